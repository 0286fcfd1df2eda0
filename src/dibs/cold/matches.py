"""The matches of a small matcher without kernels (dibs.cold.matcher) in the form that all matches have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dibs.arguments import Id
from dibs.coding.values import EventValues
from dibs.matches import Heaviest, Matches, Part, id_order
from dibs.segments.ids import IdIndex
from dibs.segments.state import by_type

if TYPE_CHECKING:
    from dibs.cold.subscriptions import Held


# Arrow imports pandas, if it is there, for the first array that it makes of one of NumPy's: here no interrupt reaches.
pa.array(np.empty(0, np.int32))


class _ColdRows:
    """What `Matches` looks at in a segment."""

    def __init__(self, ids: pa.Array, items: Mapping[Id, Held]):
        own = [items[id] for id in ids.to_pylist()]
        self.ids = IdIndex(ids)
        self.versions = np.array([held.version for held in own], np.int64)
        self._weights = np.array([held.weight for held in own], np.float64)

    def weights_at(self, rows: NDArray[Any]) -> NDArray[np.float64]:
        return self._weights[rows]


class ColdMatches(Matches):
    """Lists of ids without kernels."""

    def __iter__(self) -> Iterator[list[Id]]:
        found: list[list[Id]] = [[] for _ in range(len(self))]
        for segment, event, rows in self.parts:
            for e, id in zip(event.tolist(), segment.ids.ids.take(pa.array(rows)).to_pylist()):
                found[e].append(id)
        return (sorted(ids, key=id_order) for ids in found)

    def by_event(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        event = np.concatenate([np.empty(0, np.int32), *(e for _, e, _ in self.parts)])
        ends = np.cumsum(np.bincount(event, minlength=len(self)))
        return np.argsort(event, kind="stable").astype(np.int32), np.append(0, ends).astype(np.int32)


def matches_of(items: Mapping[Id, Held], values: EventValues, found: list[list[Id]], top: int | None) -> Matches:
    """The matches of subscriptions and events; found: the ids of each event."""
    parts: list[Part] = []
    types = set()
    for type_, column in by_type(items.keys()):
        types.add(type_)
        rows = {id: row for row, id in enumerate(column.to_pylist())}
        pairs = [(event, rows[id]) for event, ids in enumerate(found) for id in ids if id in rows]
        event, row = np.array(pairs, np.int32).reshape(-1, 2).T.copy()
        segment = _ColdRows(column, items)
        if top is not None:
            best = Heaviest(segment.weights_at, lambda event, row: (event, row), top)
            best.add(event, row)
            event, row = best.pairs()
        parts.append((cast(Any, segment), event, row))
    return ColdMatches(values.events, parts, values.problems, frozenset(types))
