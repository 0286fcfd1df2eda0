"""naive: every predicate of every profile is evaluated for every event: the baseline that Tatbul (2001) counts against.

The idea: none. The paper's lazy algorithm, which stops at the first predicate of a profile that fails, is `scan`.

Arrays: none of its own. Counters: candidates are all profiles; predicates are all predicates.

Useful for: showing what an index saves. Not useful for: anything else.

Where it differs from the paper: in nothing.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dibs.coding.batch import CodedEvents
from dibs.coding.clauses import Clauses
from dibs.index.base import Pairs, Rate, Sink, Takes, in_parts
from dibs.index.groups import CANDIDATES, NEXT_EVENT, PAIRS, PREDICATES, ClauseArrays, EventArrays, Room
from dibs.index.spans import meets_spans
from dibs.jit.kernel import kernel


class Naive:
    name: ClassVar[str] = "naive"
    about: ClassVar[str] = "Tatbul's naive baseline (2001): every predicate of every profile, for every event"
    takes: ClassVar[Takes] = Takes()

    def __init__(self, clauses: Clauses):
        self._clauses, self._rate = clauses, Rate()

    @classmethod
    def build(cls, clauses: Clauses) -> Naive:
        return cls(clauses)

    @classmethod
    def restore(cls, clauses: Clauses, arrays: dict[str, NDArray[Any]]) -> Naive:
        return cls(clauses)

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {}

    @property
    def nbytes(self) -> int:
        return 0

    def plan(self) -> dict[str, Any]:
        return {"grounds": f"all predicates of {len(self._clauses):,} profiles are evaluated for every event"}

    def match(self, events: CodedEvents, threads: int, sink: Sink | None = None) -> Pairs:
        clauses, coded = ClauseArrays.of(self._clauses), EventArrays.of(events)

        def work(last: int, room: tuple[Any, Any], progress: NDArray[np.int64]) -> None:
            _match(clauses, coded, self._clauses.attributes, last, Room(*room), progress)

        return in_parts(work, len(events), threads, rate=self._rate, sink=sink)


@kernel
def _match(clauses, events, attributes, last_event, room, progress):
    """Stops between events: one whose pairs do not fit into the room is begun again in a larger one."""
    cell = np.zeros(attributes, np.int32)
    rows, pairs = len(clauses.offsets) - 1, np.int64(0)
    for e in range(progress[NEXT_EVENT], last_event):
        for i in range(events.offsets[e], events.offsets[e + 1]):
            cell[events.attribute[i]] = events.lo[i]
        found = pairs
        for r in range(rows):
            holds = True
            for p in range(clauses.offsets[r], clauses.offsets[r + 1]):
                v, low, high = cell[clauses.attribute[p]], clauses.lo[p], clauses.hi[p]
                holds &= v > 0 and (low <= v <= high if high >= 0 else meets_spans(v, v, low, high, clauses))
            if holds:
                if found < len(room.event):
                    room.event[found], room.row[found] = e, r
                found += 1
        for i in range(events.offsets[e], events.offsets[e + 1]):
            cell[events.attribute[i]] = 0
        if found > len(room.event):
            break
        pairs = found
        progress[NEXT_EVENT] = e + 1
        progress[CANDIDATES] += rows
        progress[PREDICATES] += len(clauses.attribute)
    progress[PAIRS] = pairs
