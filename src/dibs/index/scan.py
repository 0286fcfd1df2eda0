"""scan: every clause against every event. The oracle of all other structures, and always right.

The idea: no idea. For each event, lay its values out by attribute and walk through all clauses; a conjunction stops
at its first predicate that fails, a program follows its jumps.

Arrays: none of its own; it reads those of the clauses, in order, once for each event.

Useful for: a few thousand subscriptions; expressions that no access path helps; checking other structures.
Not useful for: anything large: the time is (events) x (subscriptions).
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dibs.coding.batch import CodedEvents
from dibs.coding.clauses import Clauses
from dibs.index.base import Pairs, Sink, in_parts
from dibs.index.kernels import clear, holds_several, lay_out
from dibs.jit.interpreter import keeping
from dibs.jit.kernel import kernel
from dibs.language.table import ACCEPT
from dibs.thresholds import thresholds


class Scan:
    name: ClassVar[str] = "scan"
    about: ClassVar[str] = "every clause against every event; exact on everything, the oracle of the others"

    def __init__(self, clauses: Clauses):
        self._clauses = clauses

    @classmethod
    def build(cls, clauses: Clauses) -> Scan:
        return cls(clauses)

    @classmethod
    def restore(cls, clauses: Clauses, arrays: dict[str, NDArray[Any]]) -> Scan:
        return cls(clauses)

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {}

    @property
    def nbytes(self) -> int:
        return 0

    def plan(self) -> dict[str, Any]:
        return {"grounds": "every clause is tested against every event"}

    def match(self, events: CodedEvents, threads: int, sink: Sink | None = None) -> Pairs:
        c = self._clauses

        def work(last: int, room: tuple[Any, Any], done: NDArray[np.int64]) -> None:
            # A short scan keeps the interpreter (jit.interpreter).
            few = last - done[0] <= thresholds.few_events and len(c) <= thresholds.short_scan
            scan = _scan_few if few else _scan
            scan(
                c.offsets,
                c.attribute,
                c.lo,
                c.hi,
                c.span_lo,
                c.span_hi,
                c.on_true,
                c.on_false,
                c.conjunctions,
                c.attributes,
                c.ask_for_values,
                events.offsets,
                events.attribute,
                events.lo,
                events.hi,
                last,
                *room,
                done,
            )

        return in_parts(work, len(events), threads, sink=sink)


@kernel
def _scan(
    offsets,
    attribute,
    lo,
    hi,
    span_lo,
    span_hi,
    on_true,
    on_false,
    conjunctions,
    attributes,
    ask_for_values,
    event_offsets,
    event_attribute,
    event_lo,
    event_hi,
    last_event,
    out_event,
    out_row,
    done,
):
    """Goes on where `done` says (see index.base) and stops when the room for pairs is full."""
    slot_lo, slot_hi = np.zeros(attributes, np.int32), np.zeros(attributes, np.int32)
    slot_more = np.zeros((attributes, 2), np.int64)
    count, tested = 0, 0
    rows = len(offsets) - 1
    jumps = offsets[conjunctions]
    first_row = done[1]
    for e in range(done[0], last_event):
        if ask_for_values and event_offsets[e] == event_offsets[e + 1]:
            continue
        lay_out(
            event_offsets[e], event_offsets[e + 1], event_attribute, event_lo, event_hi, slot_lo, slot_hi, slot_more
        )
        for r in range(first_row, rows):
            p, end = offsets[r], offsets[r + 1]
            program = r >= conjunctions
            matched, tested_before = True, tested
            while p < end:
                a, low, high = attribute[p], lo[p], hi[p]
                tested += 1
                if high >= 0 and slot_more[a, 1] == 0:
                    ok = low <= slot_hi[a] and slot_lo[a] <= high
                else:
                    ok = holds_several(a, low, high, span_lo, span_hi, slot_lo, slot_hi, slot_more, event_lo, event_hi)
                if program:
                    step = on_true[p - jumps] if ok else on_false[p - jumps]
                    if step < 0:
                        matched = step == ACCEPT
                        break
                    p = offsets[r] + step
                elif ok:
                    p += 1
                else:
                    matched = False
                    break
            if matched:
                if count == len(out_event):
                    done[0], done[1], done[2] = e, r, count
                    done[3] += r - first_row
                    done[4] += tested_before  # this row will be tested again
                    return
                out_event[count] = e
                out_row[count] = r
                count += 1
        done[3] += rows - first_row
        first_row = 0
        clear(event_offsets[e], event_offsets[e + 1], event_attribute, slot_lo, slot_hi, slot_more)
    done[0], done[1], done[2] = last_event, 0, count
    done[4] += tested


_scan_few = keeping(_scan)
