"""records: clauses that few events look at, packed into one stream of 64-bit words. Half of `auto`.

The idea: each conjunction is filed under one of its predicates, its access predicate, and an event looks only at what
is filed under its own attributes and values.

    under an attribute    that few events have: all its clauses are one run of memory, read from end to end
    under values          of an attribute that many have: under every bucket of cells that the predicate covers, by a
                          *guard*, the least likely one of the other tests. Only clauses whose guard holds are read

Buckets are of 1, 16, 256, ... cells, and a clause is filed under the smallest by which few cover its predicate, where
16 of them that it covers whole are one of the next width (the PS-Tree's spaces, but of several widths, so that wide
predicates need few copies). So an event looks at one bucket of each width that is in use: the rungs of its attribute.
Memory latency is the cost, so what comes next is prefetched while the current one is tested; mispredicted branches come
second, so guards and clauses are tested without early exit.

A program (an expression with OR) is filed as its entries (auto.access_sets), each with its own tests; an entry that
passes them runs the program, unless the tests say it all. An event is stamped on the rows that it may meet twice, so
that each is reported once.

Arrays:
    words  uint64  for each clause a header  row << 32 | flags << 16 | n   and n tests, the least likely first:
                   attribute << 32 | lo << 16 | (hi - lo),  in coarse cells, modulo 2**16. First the clauses filed
                   under attributes, by attribute; at the end one word that is none
    start  int64   attributes + 1: the words of each attribute's group
    count  int32   attributes: how many clauses it has
    shift  uint8   attributes: a coarse cell is cell >> shift, below 65,536
    rungs  int32   attributes + 1: the rungs of each attribute
    rung_shift, rung_bucket, rung_end   uint8, int64, int32: cell c is in bucket rung_bucket + (c >> rung_shift), if
                   c >> rung_shift is below rung_end
    guards uint32  buckets + 1: the guards of each bucket
    guard, place   uint64, uint32: a test, and where the words of its clause begin
    size   int64   1: rows filed
    fewest uint8   attributes: so many attributes, at least, does what is filed under it need; 0: nothing is. An event
                   of fewer values does not look there (k-index)

A test holds when (value - lo) mod 2**16 <= hi - lo, so a span may wrap round, and "not in a hole" is one too: a
predicate of several spans is its hull and, for each hole, the span that goes round it. Where a test would be inexact
(coarse cells, long lists) it is wider than the predicate and the flag VERIFY sends the candidate to the clauses
themselves; so do events with several values or a range for some attribute. What holds for whoever finds a guard needs
no test: the guard itself, if its hull is all of it, and the access predicate, if buckets are single cells. Branches on
what the data says are kept out of the loop over clauses: testing the flag before the outcome of the tests took a third
off the time.

Useful for: attributes and values that are in few events (sparse, high-dimensional data; equality; small matchers).
Not useful for: ranges over attributes that most events have: many guards would be tested for every event.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dibs.coding.arrange import FEW_EVENTS
from dibs.coding.batch import CodedEvents
from dibs.coding.clauses import Clauses
from dibs.index.auto.access_sets import Entries
from dibs.index.auto.record_buckets import (
    FiledByValue,
    choose_guards,
    list_known,
    make_ladder,
    stand_guards,
    take_larger,
)
from dibs.index.auto.record_kernels import FiledRecords, match, match_few
from dibs.index.auto.record_layout import GROUP, VERIFY, RecordArrays, WorkSizes, WorkSpace
from dibs.index.auto.record_packing import Filed, Tests, count_fewest, has_flag, pack
from dibs.index.auto.shares import LEVEL_BITS, WHOLE, PredicateFiling
from dibs.index.base import Rate
from dibs.index.groups import NEXT_EVENT, ClauseArrays
from dibs.index.kernels import Jumps
from dibs.jit.groups import Table, allocate, restore, saved_names
from dibs.jit.pools import Pool, Space
from dibs.tuning import tuned

FEW_RECORDS = tuned("few_records", 50_000, 0, "clauses", "whose search for few events keeps the interpreter")
RECORD_SPANS = tuned("record_spans", 8, 1, "spans", "of a predicate; one of more is tested by its hull and verified")
COARSE_BITS = tuned("coarse_bits", 16, 3, "bits", "of a cell; one of more is tested by its first bits and verified")


class Records:
    ARRAYS = (*saved_names(RecordArrays), "size")
    MORE = ("fewest",)  # what folders that were saved before lack

    def __init__(self, clauses: Clauses, arrays: dict[str, NDArray[Any]]):
        self._clauses = clauses
        self.rate = Rate()
        self._arrays = arrays
        self.size = int(arrays["size"][0])
        self.inexact = bool(has_flag(arrays["words"], VERIFY))
        fewest = arrays.get("fewest", np.ones(clauses.attributes, np.uint8))
        filled = fewest | np.where(arrays["count"] > 0, GROUP, 0).astype(np.uint8)
        filled_bucket = np.packbits(np.diff(arrays["guards"]) > 0, bitorder="little")
        self.own = restore(RecordArrays, arrays, filled=filled, filled_bucket=filled_bucket)
        jumps = Jumps(clauses.on_true, clauses.on_false, clauses.conjunctions)
        self._filed = Table(FiledRecords(self.own, ClauseArrays.of(clauses), jumps))
        self._pool = Pool()

    def arrays(self) -> dict[str, NDArray[Any]]:
        return self._arrays

    @property
    def nbytes(self) -> int:
        return sum(a.nbytes for a in self._arrays.values())

    @property
    def guards(self) -> int:
        return len(self._arrays["guard"])

    @classmethod
    def build(
        cls,
        clauses: Clauses,
        rows: NDArray[np.int64],
        access: NDArray[np.int64],
        other: NDArray[np.int32],
        entries: Entries,
        filing: PredicateFiling,
        share: NDArray[np.float32],
        highest: NDArray[np.int32],
    ) -> Records:
        """rows: conjunctions; access: the predicate of each under which it is filed; other: an attribute of its other
        predicates; entries: of programs; filing, share: how each predicate of the clauses is filed, and how likely it
        holds; highest: the highest cell that predicates of an attribute cover."""
        shift = _coarse_shifts(highest)
        filed_rows = len(rows) + len(np.unique(entries.row))
        entry = np.concatenate([np.full(len(rows), -1), np.arange(len(entries))])
        size = np.concatenate([np.diff(clauses.offsets)[rows], np.diff(entries.test_start)])
        rows, access = np.concatenate([rows, entries.row]), np.concatenate([access, entries.access])
        other = np.concatenate([other, np.zeros(len(entries), np.int32)])
        attribute, level = clauses.attribute[access], filing.level[access]
        order = _order(clauses, access, level, size, other)
        rows, access, entry = rows[order], access[order], entry[order]
        level, attribute = level[order], attribute[order]
        whole = int((level == WHOLE).sum())
        own, tests = ClauseArrays.of(clauses), Tests.of(entries)
        chosen = choose_guards(rows[whole:], entry[whole:], access[whole:], tests, own, share)
        known = np.full((len(rows), 2), -1)
        known[whole:] = list_known(access[whole:], level[whole:], chosen, own, shift)
        filed = Filed(rows, entry, level != WHOLE, known)
        words, place = pack(filed, int(size.max(initial=0)), tests, own, share, shift, RECORD_SPANS.value)
        larger = take_larger(access[whole:], level[whole:], own)
        ladder = make_ladder(attribute[whole:], level[whole:], larger, highest)
        by_value = FiledByValue(access[whole:], level[whole:], chosen, place[whole:-1])
        guards, guard, at = stand_guards(by_value, ladder, own, shift)
        count = np.bincount(attribute[:whole], minlength=clauses.attributes)
        return cls(
            clauses,
            {
                "words": words,
                "start": place[np.concatenate([[0], np.cumsum(count)])],
                "count": count.astype(np.int32),
                "shift": shift,
                "rungs": ladder.rungs,
                "rung_shift": ladder.shift,
                "rung_bucket": ladder.bucket,
                "rung_end": ladder.end,
                "guards": guards,
                "guard": guard,
                "place": at,
                "size": np.array([filed_rows]),
                "fewest": count_fewest(filed, attribute, clauses.attributes, tests, own),
            },
        )

    def match(
        self, events: CodedEvents, last: int, room: tuple[NDArray[Any], NDArray[Any]], progress: NDArray[np.int64]
    ) -> None:
        """See index.base.in_parts."""
        taken = self._pool.take(_work_space, self._clauses, len(self.own.rung_end))
        # A short search keeps the interpreter (jit.interpreter).
        few = last - progress[NEXT_EVENT] <= FEW_EVENTS.value and self.size <= FEW_RECORDS.value
        search = match_few if few else match
        search(
            events.points,
            self.inexact,
            last,
            progress,
            self._filed.address,
            taken.space[0].address,
            events.offsets,
            events.attribute,
            events.lo,
            events.hi,
            *room,
        )
        self._pool.give(taken)


def _order(
    clauses: Clauses,
    access: NDArray[np.int64],
    level: NDArray[np.int8],
    size: NDArray[np.int64],
    other: NDArray[np.int32],
) -> NDArray[np.int64]:
    """First what is filed under attributes, by attribute; then what is filed under values, by rung and bucket. Equal
    lengths together (loops of one length are predicted), then the same other attribute (failures cluster)."""
    attribute, size = clauses.attribute[access].astype(np.int64), np.minimum(size, 0xFF)
    whole, by_value = np.flatnonzero(level == WHOLE), np.flatnonzero(level != WHOLE)
    key = (attribute << 32) | (size << 24) | np.minimum(other, 0xFFFFFF)
    bucket = np.where(clauses.hi[access] >= 0, clauses.lo[access], 0) >> (LEVEL_BITS * np.maximum(level, 0))
    rung = (attribute << 4) | np.maximum(level, 0)
    value_key = (rung << 32) | (np.minimum(bucket, 0xFFFFFF).astype(np.int64) << 8) | size
    return np.concatenate(
        [whole[np.argsort(key[whole], kind="stable")], by_value[np.argsort(value_key[by_value], kind="stable")]]
    )


def _work_space(clauses: Clauses, rungs: int) -> Space:
    """The table of a WorkSpace."""
    return (Table(allocate(WorkSpace, WorkSizes.of(clauses.attributes, len(clauses), rungs))),)


def _coarse_shifts(highest: NDArray[np.int32]) -> NDArray[np.uint8]:
    """By how many bits the cells of each attribute are shifted to fit, with room for "above" and "never"."""
    bits = np.ceil(np.log2(highest + 4.0)).astype(np.int64)
    return np.maximum(bits - COARSE_BITS.value, 0).astype(np.uint8)
