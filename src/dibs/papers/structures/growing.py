"""Arrays that grow: what structures with native updates keep their clauses and nodes in."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dibs.coding.clauses import Clauses


def grow_array(array: NDArray[Any], size: int, fill: Any = 0) -> NDArray[Any]:
    """The array with room for at least `size` items (of its first dimension): itself, or a copy at least half as large
    again, with `fill` in the new places."""
    if len(array) >= size:
        return array
    larger = np.full((max(size, len(array) + len(array) // 2, 16), *array.shape[1:]), fill, array.dtype)
    larger[: len(array)] = array
    return larger


class GrowingClauses:
    """Conjunctions to which others are added. `clauses` is what is there now: views into arrays with spare room, to
    be asked for again after each addition."""

    def __init__(self, clauses: Clauses):
        self.clauses = clauses
        self._room = {n: getattr(clauses, n) for n in ("offsets", "attribute", "lo", "hi", "span_lo", "span_hi")}

    def add(self, more: Clauses) -> None:
        """The rows of `more` behind those that are there."""
        assert more.conjunctions == len(more), "programs are not kept here"
        old = self.clauses
        rows, predicates, spans = len(old), int(old.offsets[-1]), len(old.span_lo)
        columns: dict[str, tuple[int, NDArray[Any]]] = {
            "offsets": (rows + 1, more.offsets[1:] + predicates),
            "attribute": (predicates, more.attribute),
            "lo": (predicates, np.where(more.hi < 0, more.lo + spans, more.lo)),
            "hi": (predicates, more.hi),
            "span_lo": (spans, more.span_lo),
            "span_hi": (spans, more.span_hi),
        }
        views = {}
        for name, (start, new) in columns.items():
            end = start + len(new)
            self._room[name] = grow_array(self._room[name], end)
            self._room[name][start:end] = new
            views[name] = self._room[name][:end]
        self.clauses = Clauses(
            **views,
            on_true=old.on_true,
            on_false=old.on_false,
            conjunctions=rows + len(more),
            attributes=max(old.attributes, more.attributes),
        )
