"""records: clauses beside a rare attribute or value, packed into one stream of 64-bit words. Half of `auto`.

The idea: each conjunction is filed in one group, that of an attribute that few events have, or that of a value (a
cell) that few events have for a common attribute. An event reads only the groups of its attributes and values, and
each group is one run of memory: for each clause a header and then its predicates, a word each. Memory latency is the
cost, so the next groups are prefetched while the current one is tested; mispredicted branches come second, so a clause
is tested without early exit and clauses of one length stand together.

A program (an expression with OR) is filed as its entries (index.access_sets), each with its own tests; an entry that
passes them runs the program, unless the tests say it all. An event is stamped on the programs it has met, so that each
is reported once.

Arrays:
    words  uint64  for each clause a header  row << 32 | flags << 16 | n   and n tests
                   attribute << 32 | lo << 16 | (hi - lo),  in coarse cells, modulo 2**16
    start  int64   groups + 1: the words of each group; first the groups of attributes, then those of cells
    count  int32   groups: how many clauses it has
    shift  uint8   attributes: a coarse cell is cell >> shift, below 65,536
    cell_group, cell_end   int64, int32   attributes: cell c of the attribute has the group cell_group + c if c is
                   below cell_end
    size   int64   1: rows filed

A test holds when (value - lo) mod 2**16 <= hi - lo, so a span may wrap round, and "not in a hole" is one too: a
predicate of several spans is its hull and, for each hole, the span that goes round it. Where a test would be inexact
(coarse cells, long lists) it is wider than the predicate and the flag VERIFY sends the candidate to the clauses
themselves; so do events with several values or a range for some attribute. Branches on what the data says are kept out
of the loop over clauses: testing the flag before the outcome of the tests took a third off the time.

Useful for: attributes that are in few events (sparse, high-dimensional data); equality over many values.
Not useful for: ranges over attributes that most events have: every clause filed there would be tested for every event.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dibs.coding.batch import CodedEvents
from dibs.coding.clauses import Clauses
from dibs.index.auto.access_sets import Entries
from dibs.index.auto.record_kernels import match, match_few
from dibs.index.auto.record_layout import PROGRAM, VERIFY, RecordArrays
from dibs.index.auto.record_packing import Filed, Tests, has_flag, pack
from dibs.index.base import Rate
from dibs.index.groups import NEXT_EVENT, ClauseArrays
from dibs.index.kernels import Slots
from dibs.jit.pools import Pool, Space
from dibs.thresholds import thresholds


class Records:
    ARRAYS = (*RecordArrays._fields[:-1], "size")

    def __init__(self, clauses: Clauses, arrays: dict[str, NDArray[Any]]):
        self._clauses = clauses
        self.rate = Rate()
        self._arrays = arrays
        self._words, self._start = arrays["words"], arrays["start"]
        self.size = int(arrays["size"][0])
        self.has_programs = int(arrays["count"].sum()) > 0 and bool(has_flag(self._words, self._start, PROGRAM))
        self.inexact = bool(has_flag(self._words, self._start, VERIFY))
        filled = np.packbits(arrays["count"] > 0, bitorder="little")
        self.own = RecordArrays._make([*(arrays[name] for name in RecordArrays._fields[:-1]), filled])
        self._fixed = (
            *self.own,
            *ClauseArrays.of(clauses),
            clauses.on_true,
            clauses.on_false,
        )  # what every search is given
        self._pool = Pool()

    def arrays(self) -> dict[str, NDArray[Any]]:
        return self._arrays

    @classmethod
    def build(
        cls,
        clauses: Clauses,
        rows: NDArray[np.int64],
        access: NDArray[np.int64],
        other: NDArray[np.int32],
        highest: NDArray[np.int32],
        often: NDArray[np.bool_],
        entries: Entries,
    ) -> Records:
        """rows: conjunctions; access: the predicate of each under which it is filed; other: an attribute of its other
        predicates; highest: the highest cell that predicates of an attribute cover; often: the attributes whose
        clauses are filed by cells (their access predicates have one); entries: of programs."""
        shift = _coarse_shifts(highest)
        filed_rows = len(rows) + len(np.unique(entries.row))
        entry = np.concatenate([np.full(len(rows), -1), np.arange(len(entries))])
        size = np.concatenate([np.diff(clauses.offsets)[rows], np.diff(entries.test_start)])
        rows, access = np.concatenate([rows, entries.row]), np.concatenate([access, entries.access])
        other = np.concatenate([other, np.zeros(len(entries), np.int32)])
        filed = clauses.attribute[access]
        by_cell = often[filed]
        used = np.zeros(clauses.attributes, np.bool_)
        used[filed[by_cell]] = True
        cell_end = np.where(used, highest + 1, 0).astype(np.int32)
        cell_group = clauses.attributes + np.cumsum(cell_end, dtype=np.int64) - cell_end
        groups = clauses.attributes + int(cell_end.sum(dtype=np.int64))
        group = np.where(by_cell, cell_group[filed] + clauses.lo[access], filed)
        # By group, then length (loops of one length are predicted), then another attribute (failures cluster).
        if groups < 1 << 31 and clauses.attributes < 1 << 24:
            order = np.argsort(
                (group << 32) | (np.minimum(size, 255) << 24) | np.minimum(other, 0xFFFFFF), kind="stable"
            )
        else:
            order = np.lexsort((other, size, group))
        ordered, tests = Filed(rows[order], group[order], entry[order]), Tests.of(entries)
        words, start = pack(ordered, groups, tests, ClauseArrays.of(clauses), shift, thresholds.record_spans)
        return cls(
            clauses,
            {
                "words": words,
                "start": start,
                "count": np.bincount(group, minlength=groups).astype(np.int32),
                "shift": shift,
                "cell_group": cell_group,
                "cell_end": cell_end,
                "size": np.array([filed_rows]),
            },
        )

    def looks(self, attribute: NDArray[Any], cell: NDArray[Any], share: NDArray[Any]) -> float:
        """How many clauses an event looks at in the groups of these cells, when it has them with these shares."""
        known = cell < self._arrays["cell_end"][attribute]
        groups = self._arrays["cell_group"][attribute[known]] + cell[known]
        return float((self._arrays["count"][groups] * share[known]).sum())

    def match(
        self, events: CodedEvents, last: int, room: tuple[NDArray[Any], NDArray[Any]], progress: NDArray[np.int64]
    ) -> None:
        """See index.base.in_parts; progress[NEXT_ROW] is the entry of the event to go on with."""
        taken = self._pool.take(_work_space, self._clauses, self.has_programs)
        # A short search keeps the interpreter (jit.interpreter).
        few = last - progress[NEXT_EVENT] <= thresholds.few_events and self.size <= thresholds.few_records
        search = match_few if few else match
        search(
            events.points,
            self.inexact,
            self.has_programs,
            self._clauses.conjunctions,
            last,
            progress,
            *self._fixed,
            events.offsets,
            events.attribute,
            events.lo,
            events.hi,
            *taken.space,
            *room,
        )
        self._pool.give(taken)


def _work_space(clauses: Clauses, programs: bool) -> Space:
    """The arrays of a WorkSpace."""
    n = clauses.attributes
    slots = Slots(np.zeros(n, np.int32), np.zeros(n, np.int32), np.zeros((n, 2), np.int64))
    stamps = np.zeros((len(clauses) - clauses.conjunctions if programs else 0) + 1, np.int32)
    return *slots, np.zeros(n, np.uint16), stamps


def _coarse_shifts(highest: NDArray[np.int32]) -> NDArray[np.uint8]:
    """By how many bits the cells of each attribute are shifted to fit, with room for "above" and "never"."""
    bits = np.ceil(np.log2(highest + 4.0)).astype(np.int64)
    return np.maximum(bits - thresholds.coarse_bits, 0).astype(np.uint8)
