"""scan: every clause against every event. The oracle of all other structures, and always right.

The idea: no idea. For each event, lay its values out by attribute and walk through all clauses; a conjunction stops
at its first predicate that fails, a program follows its jumps.

Arrays: none of its own; it reads those of the clauses, in order, once for each event.

Useful for: a few thousand subscriptions; expressions that no access path helps; checking other structures.
Not useful for: anything large: the time is (events) x (subscriptions).
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.coding.arrange import FEW_EVENTS
from dibs.coding.batch import CodedEvents
from dibs.coding.clauses import Clauses
from dibs.index.auto.singles import ForSingles
from dibs.index.base import Pairs, Sink, in_parts
from dibs.index.groups import CANDIDATES, NEXT_EVENT, NEXT_ROW, PAIRS, PREDICATES, ClauseArrays, EventArrays, Room
from dibs.index.kernels import Jumps, Slots, clear, lay_out, test_conjunction, test_program
from dibs.jit.group_at import grouped
from dibs.jit.interpreter import keeping
from dibs.jit.kernel import kernel, phase
from dibs.lazy import lazy
from dibs.tuning import tuned

SHORT_SCAN = tuned("short_scan", 1_000, 0, "clauses", "whose scan for few events keeps the interpreter")


class Scan:
    name: ClassVar[str] = "scan"
    about: ClassVar[str] = "every clause against every event; exact on everything, the oracle of the others"

    def __init__(self, clauses: Clauses):
        self._clauses = clauses
        self._fixed = *ClauseArrays.of(clauses), clauses.on_true, clauses.on_false, clauses.conjunctions

    @classmethod
    def build(cls, clauses: Clauses) -> Scan:
        return cls(clauses)

    @classmethod
    def restore(cls, clauses: Clauses, arrays: dict[str, NDArray[Any]]) -> Scan:
        return cls(clauses)

    @lazy
    def for_singles(self) -> ForSingles:
        return ForSingles(None, None, np.arange(len(self._clauses), dtype=np.int32))

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {}

    @property
    def nbytes(self) -> int:
        return 0

    def plan(self) -> dict[str, Any]:
        return {"grounds": "every clause is tested against every event"}

    def match(self, events: CodedEvents, threads: int, sink: Sink | None = None) -> Pairs:
        c = self._clauses
        arrays = *self._fixed, *EventArrays.of(events)

        def work(last: int, room: tuple[Any, Any], progress: NDArray[np.int64]) -> None:
            # A short scan keeps the interpreter (jit.interpreter).
            few = last - progress[NEXT_EVENT] <= FEW_EVENTS.value and len(c) <= SHORT_SCAN.value
            scan = _scan_few if few else _scan
            scan(c.attributes, c.ask_for_values, last, progress, *arrays, *room)

        return in_parts(work, len(events), threads, sink=sink)


class ScanCall(NamedTuple):
    """What a scan reads and writes."""

    clauses: ClauseArrays
    jumps: Jumps
    events: EventArrays
    room: Room


@kernel
def _scan(attributes, ask_for_values, last_event, progress, *parts):
    """parts: those of a ScanCall."""
    clauses, jumps, events, room = grouped(parts, ScanCall)
    slots = Slots(np.zeros(attributes, np.int32), np.zeros(attributes, np.int32), np.zeros((attributes, 2), np.int64))
    _scan_events(clauses, jumps, ask_for_values, events, last_event, slots, room, progress)


_scan_few = keeping(_scan)


@phase(inline=False)
def _scan_events(clauses, jumps, ask_for_values, events, last_event, slots, room, progress):
    """Goes on where `progress` says (see index.base) and stops when the room for pairs is full."""
    found, tested = np.int64(0), np.int64(0)
    rows = len(clauses.offsets) - 1
    first_row = progress[NEXT_ROW]
    for e in range(progress[NEXT_EVENT], last_event):
        first, last = events.offsets[e], events.offsets[e + 1]
        if ask_for_values and first == last:
            continue
        lay_out(first, last, events.attribute, events.lo, events.hi, slots.lo, slots.hi, slots.more)
        for row in range(first_row, rows):
            if row < jumps.first_program:
                matched, tests = test_conjunction(row, clauses, slots, events)
            else:
                matched, tests = test_program(row, clauses, jumps, slots, events)
            if matched:
                if found == len(room.event):
                    progress[NEXT_EVENT], progress[NEXT_ROW], progress[PAIRS] = e, row, found
                    progress[CANDIDATES] += row - first_row
                    progress[PREDICATES] += tested  # without this row's tests: it will be tested again
                    return
                room.event[found], room.row[found] = e, row
                found += 1
            tested += tests
        progress[CANDIDATES] += rows - first_row
        first_row = 0
        clear(first, last, events.attribute, slots.lo, slots.hi, slots.more)
    progress[NEXT_EVENT], progress[NEXT_ROW], progress[PAIRS] = last_event, 0, found
    progress[PREDICATES] += tested
