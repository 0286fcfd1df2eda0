"""rarest: an index of another package, in plain Python. `dibs.Matcher(index="rarest")` uses it once it is installed.

The idea: a conjunction can hold only for events that have all its attributes, so each is filed under the rarest of
them, and only events that have that one look at it.

Arrays:
    row      int32   the rows, by the attribute under which they are filed
    start    int64   attributes + 1: where the rows of each attribute begin

Useful for: showing what an index is. Not useful for: anything that must be fast.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dibs.coding.batch import CodedEvents
from dibs.coding.clauses import Clauses
from dibs.index.base import Pairs, Sink, Takes


class Rarest:
    name: ClassVar[str] = "rarest"
    about: ClassVar[str] = "an example: conjunctions filed under their rarest attribute"
    # It takes conjunctions over single values. Dibs matches the rest itself, so that everything is exact.
    takes: ClassVar[Takes] = Takes()

    def __init__(self, clauses: Clauses, arrays: dict[str, NDArray[Any]]):
        self._clauses, self._arrays = clauses, arrays

    @classmethod
    def build(cls, clauses: Clauses) -> Rarest:
        often = np.bincount(clauses.attribute, minlength=clauses.attributes)
        first, end = clauses.offsets[:-1], clauses.offsets[1:]
        chosen = [min(clauses.attribute[a:b], key=often.__getitem__) for a, b in zip(first, end)]
        start = np.zeros(clauses.attributes + 1, np.int64)
        np.cumsum(np.bincount(np.array(chosen, np.int64), minlength=clauses.attributes), out=start[1:])
        return cls(clauses, {"row": np.argsort(chosen, kind="stable").astype(np.int32), "start": start})

    @classmethod
    def restore(cls, clauses: Clauses, arrays: dict[str, NDArray[Any]]) -> Rarest:
        return cls(clauses, {name: arrays[name] for name in ("row", "start")})

    def arrays(self) -> dict[str, NDArray[Any]]:
        return self._arrays

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self._arrays.values())

    def plan(self) -> dict[str, Any]:
        return {"grounds": f"{len(self._clauses):,} clauses under the rarest of their attributes"}

    def match(self, events: CodedEvents, threads: int, sink: Sink | None = None) -> Pairs:
        found: list[tuple[int, int]] = []
        candidates = predicates = 0
        row, start = self._arrays["row"], self._arrays["start"]
        for e in range(len(events)):
            begin, end = events.offsets[e], events.offsets[e + 1]
            cell = dict(zip(events.attribute[begin:end].tolist(), events.lo[begin:end].tolist()))
            for attribute in cell:
                for r in row[start[attribute] : start[attribute + 1]].tolist():
                    candidates += 1
                    held = [self._holds(p, cell) for p in range(*self._clauses.offsets[r : r + 2].tolist())]
                    predicates += len(held)
                    if all(held):
                        found.append((e, r))
        event, of_row = (np.array([pair[i] for pair in found], np.int32) for i in (0, 1))
        if sink is not None:
            sink(event, of_row)
        return Pairs([] if sink else [(event, of_row)], candidates, predicates, count=len(found))

    def _holds(self, predicate: int, cell: dict[int, int]) -> bool:
        """A predicate is one span of cells, or (hi < 0) the -hi spans from lo on; 0 is the cell of no value."""
        c = self._clauses
        lo, hi, value = int(c.lo[predicate]), int(c.hi[predicate]), cell.get(int(c.attribute[predicate]), 0)
        spans = [(lo, hi)] if hi >= 0 else zip(c.span_lo[lo : lo - hi].tolist(), c.span_hi[lo : lo - hi].tolist())
        return value > 0 and any(low <= value <= high for low, high in spans)
