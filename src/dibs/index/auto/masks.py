"""masks: a batch of events at once, one bit each. The other half of `auto`.

The idea: subscriptions repeat each other's predicates, so each distinct predicate is evaluated once for a whole block
of events and gives a mask, a bit for each event. A clause is then the AND of its masks, 512 events by a handful of
instructions. Clauses stand in groups that share their most selective predicate; a group whose mask is empty is
skipped, and so are all groups of attributes that no event of the block has. The survivors of the second predicate are
first collected without branches (an unpredictable branch costs more than the test), then finished, then written out.

A predicate's mask: the values of its attribute in the block are sorted once, with cumulative masks; a span is then
two look-ups and an and-not. Events with several values or ranges for the attribute are tested one by one. IS NULL is
the complement of the events that have the attribute. So everything that the coded model can say is a mask, and
programs are run over masks too: each step splits the events that reach it into two jumps. The entries of a program
(index.auto.access_sets) stand among the clauses, and only the events that pass an entry's tests are run through it.

Arrays (predicates and groups are ordered by attribute):
    attribute, lo, hi   int32   the distinct predicates, as in coding.clauses (spans in the clauses' own arrays)
    of_attribute        int64   attributes + 1: the predicates of each attribute; first those that are one span of
    plain_of            int64   attributes: values (not IS NULL, not empty), which end here
    group_predicate     uint32  the predicate that a group's clauses share
    group_start         uint32  groups + 1: its clauses
    groups_of           int64   attributes + 1: the groups of each attribute
    second              uint32  a clause's second predicate (the true one, numbered last, if it has none); AHEAD more
    rest_start, rest    uint32  clauses + 1, and a clause's other predicates
    row                 int32   a clause's row; that of entry k is -1 - k, unless the entry is exact
    always              int32   rows without predicates
    program             int32   of each step of all programs: predicate, jump if it holds, jump if not, 0
    entry               int32   of each entry: row, first step and number of steps of its program, first and last step
                                of the part counted from there, rank (as in index.auto.access_sets), 0, 0
    entry_access        uint32  the access predicate of each entry
    unreached           int64   1: so many programs have no access set; they come first, one entry each, always run

Useful for: attributes that many events of a block have (dense, skewed data), expressions with OR.
Not useful for: one event at a time over rare attributes: a mask of one bit shares nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dibs.coding.batch import CodedEvents
from dibs.coding.clauses import Clauses, runs
from dibs.index.auto.access_sets import Entries, access_sets
from dibs.index.auto.mask_filling import cells_to_tabulate
from dibs.index.auto.mask_kernels import match_blocks
from dibs.index.auto.mask_layout import (
    AHEAD,
    BEGIN,
    ENTRY,
    ON_FALSE,
    ON_TRUE,
    PART_FIRST,
    PART_LAST,
    PREDICATE,
    RANK,
    ROW,
    STEP,
    STEPS,
    WORD,
    MaskArrays,
    Sizes,
    Spans,
    WorkSpace,
)
from dibs.index.base import Rate
from dibs.index.groups import NEXT_EVENT, OWN
from dibs.jit.hashing import number_pairs
from dibs.jit.pools import Pool, Space
from dibs.jit.sorting import order_each
from dibs.tuning import tuned

# dense CNF: a third of the time when whole blocks run through programs
FEW_SURVIVORS = tuned("few_survivors", 8.0, 1e9, "events", "of a block that pass a program's entries, to use these")
NARROW_BLOCKS = tuned("narrow_blocks", 2, 0, "blocks", "of 64 events that are cheaper than a wider one")
MIDDLE_BLOCKS = tuned("middle_blocks", 1, 0, "blocks", "of middle width that are cheaper than a wide one")
SURVIVORS_AT_ONCE = tuned("survivors_at_once", 1_024, 2, "clauses", "of masks, collected before they are finished")
MASK_SPANS = tuned("mask_spans", 16, 1, "spans", "of a predicate; one of more is tested value by value")
RUN_ONE_BY_ONE = tuned(
    "run_one_by_one", 8, 0, "events", "that pass an entry's tests and are run through its program singly"
)
TABULATED_CELLS = tuned("tabulated_cells", 4_096, 1, "cells", "of a domain that is tabulated; larger ones are searched")

# Words of a mask, 64 events each: the length of the tuple is a constant to the compiler.
WIDE = (0,) * 8
MIDDLE = (0,) * 4
NARROW = (0,)
WIDTHS = {len(lanes): lanes for lanes in (WIDE, MIDDLE, NARROW)}


class Masks:
    ARRAYS = MaskArrays._fields

    def __init__(self, clauses: Clauses, arrays: dict[str, NDArray[Any]]):
        self._clauses = clauses
        self.rate = Rate()
        self._arrays = arrays
        row, entry_row = arrays["row"], arrays["entry"][ROW::ENTRY]
        programs = np.unique(np.concatenate([row[row >= clauses.conjunctions], entry_row]))
        plain = row[(row >= 0) & (row < clauses.conjunctions)]
        self.size = len(plain) + len(arrays["always"]) + len(programs)  # rows, not entries
        self._most_predicates = int(np.diff(arrays["of_attribute"]).max(initial=0))
        null = (arrays["lo"] == 0) & (arrays["hi"] == 0)
        null_attributes = np.unique(arrays["attribute"][null]).astype(np.int32)
        own = MaskArrays(*(arrays[name] for name in self.ARRAYS))
        self._fixed = *own, *Spans(clauses.span_lo, clauses.span_hi, null_attributes)  # what every search is given
        self._pools = {width: Pool() for width in WIDTHS}

    def arrays(self) -> dict[str, NDArray[Any]]:
        return self._arrays

    @property
    def rows(self) -> NDArray[np.int64]:
        """The rows that are matched here, in order."""
        a = self._arrays
        return np.unique(np.concatenate([a["row"][a["row"] >= 0], a["always"], a["entry"][ROW::ENTRY]])).astype(
            np.int64
        )

    @classmethod
    def build(
        cls,
        clauses: Clauses,
        conjunctions: NDArray[np.int64],
        programs: NDArray[np.int64],
        share: NDArray[np.float32],
    ) -> Masks:
        """conjunctions, programs: rows, in order; share: how likely each predicate of the clauses holds."""
        size = np.diff(clauses.offsets)
        always, plain = conjunctions[size[conjunctions] == 0], conjunctions[size[conjunctions] > 0]
        found, entries = access_sets(clauses, programs, share)
        found &= _few_survivors(entries, share, len(clauses))[programs]
        reached = np.zeros(len(clauses), np.bool_)
        reached[programs[found]] = True
        entries = entries.take(reached[entries.row])
        complete = entries.exact & (entries.first == clauses.offsets[entries.row])  # nothing is left to find out
        own = (runs(clauses.offsets[rows], size[rows]) for rows in (plain, programs))
        number, distinct = _distinct(clauses, np.concatenate([next(own), entries.tests, next(own)]))
        true = len(distinct)
        n = np.concatenate([size[plain], np.diff(entries.test_start)])
        unreached = programs[~found]
        entry_number = len(unreached) + np.cumsum(~complete) - 1
        plain = np.concatenate([plain, np.where(complete, entries.row, -1 - entry_number)])
        steps = int(n.sum())
        first = np.cumsum(n) - n
        sorted_ = number[:steps]
        order_each(sorted_, first, n, share[distinct])  # the most selective predicate of each clause first
        access = sorted_[first]
        second = np.where(n > 1, sorted_[np.minimum(first + 1, max(steps - 1, 0))], true) if steps else access
        # Clauses of one group: equal lengths together (predictable loops), then equal second predicates (cache).
        if true < 1 << 26:
            key = (access << 36) | (np.minimum(n, 511) << 27) | second
            place = np.argsort(key, kind="stable")
        else:
            place = np.lexsort((second, n, access))
        access, n, first, second, plain = access[place], n[place], first[place], second[place], plain[place]
        begins = np.flatnonzero(np.concatenate([[True], access[1:] != access[:-1]])) if len(access) else access
        members = np.diff(np.append(begins, len(access)))
        predicate = access[begins]
        rest = np.maximum(n - 2, 0)
        attribute_of = clauses.attribute[distinct]

        def starts(counts: NDArray[Any], dtype: Any) -> NDArray[Any]:
            result = np.zeros(len(counts) + 1, dtype)
            np.cumsum(counts, out=result[1:])
            return result

        def by_attribute(predicates: NDArray[Any]) -> NDArray[np.int64]:
            return starts(np.bincount(attribute_of[predicates], minlength=clauses.attributes), np.int64)

        left = entries.take(~complete)
        begin = np.zeros(len(clauses), np.int64)
        begin[programs] = np.cumsum(size[programs]) - size[programs]
        jumps = runs(clauses.offsets[programs], size[programs]) - clauses.offsets[clauses.conjunctions]
        program = np.zeros((len(jumps), STEP), np.int32)
        program[:, PREDICATE] = number[steps:]
        program[:, ON_TRUE], program[:, ON_FALSE] = clauses.on_true[jumps], clauses.on_false[jumps]
        entry = np.zeros((len(unreached) + len(left), ENTRY), np.int32)
        rows = entry[:, ROW] = np.concatenate([unreached, left.row])
        entry[:, BEGIN], entry[:, STEPS], entry[: len(unreached), PART_LAST] = begin[rows], size[rows], size[unreached]
        base = clauses.offsets[left.row]
        for column, values in ((PART_FIRST, left.first - base), (PART_LAST, left.last - base), (RANK, left.rank)):
            entry[len(unreached) :, column] = values
        entry_access = np.zeros(len(entry), np.uint32)
        entry_access[len(unreached) :] = program[begin[left.row] + left.access - base, PREDICATE]
        return cls(
            clauses,
            {
                "attribute": attribute_of,
                "lo": clauses.lo[distinct],
                "hi": clauses.hi[distinct],
                "of_attribute": by_attribute(np.arange(true)),
                "plain_of": by_attribute(np.arange(true))[:-1]
                + np.bincount(attribute_of[_plain(clauses, distinct)], minlength=clauses.attributes),
                "group_predicate": predicate.astype(np.uint32),
                "group_start": starts(members, np.uint32),
                "groups_of": by_attribute(predicate),
                "second": np.append(second, np.full(AHEAD, true)).astype(np.uint32),
                "rest_start": starts(rest, np.uint32),
                "rest": sorted_[runs(first + 2, rest)].astype(np.uint32),
                "row": plain.astype(np.int32),
                "always": always.astype(np.int32),
                "program": program.ravel(),
                "entry": entry.ravel(),
                "entry_access": entry_access,
                "unreached": np.array([len(unreached)]),
            },
        )

    def match(
        self, events: CodedEvents, last: int, room: tuple[NDArray[Any], NDArray[Any]], progress: NDArray[np.int64]
    ) -> None:
        """See index.base.in_parts; progress[NEXT_ROW] is the clause (or, behind all clauses, the program) to go on
        with, which only means something for blocks of the same width: progress[OWN] keeps it."""
        if progress[OWN] == 0:
            progress[OWN] = len(_choose_width(last - int(progress[NEXT_EVENT])))
        lanes = WIDTHS[int(progress[OWN])]
        tabulated = cells_to_tabulate(TABULATED_CELLS.value, self._most_predicates, len(WIDE) * WORD)
        sizes = Sizes(SURVIVORS_AT_ONCE.value, MASK_SPANS.value, RUN_ONE_BY_ONE.value, TABULATED_CELLS.value, tabulated)
        pool = self._pools[len(lanes)]
        taken = pool.take(self._space, len(lanes))
        match_blocks(
            lanes,
            sizes,
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
        pool.give(taken)

    def _space(self, lanes: int) -> Space:
        longest = int(self._arrays["entry"][STEPS::ENTRY].max(initial=0))
        return WorkSpace(
            masks=_align_zeros((len(self._arrays["lo"]) + 1) * lanes),
            written=np.empty(len(self._arrays["lo"]) + 1, np.uint32),
            entries_of=np.zeros(len(self._arrays["of_attribute"]), np.int32),
            reach=np.zeros((longest + 2) * len(WIDE), np.uint64),
        )


def _choose_width(events: int) -> tuple[int, ...]:
    if events <= NARROW_BLOCKS.value * WORD:
        return NARROW
    return MIDDLE if events <= MIDDLE_BLOCKS.value * len(MIDDLE) * WORD else WIDE


def _few_survivors(entries: Entries, share: NDArray[np.float32], rows: int) -> NDArray[np.bool_]:
    """By row: whether so few events are expected to pass the tests of its entries that it pays to look at them first,
    instead of running all events of a block through the program in any case."""
    passing = np.zeros(len(entries.tests) + 1)
    np.cumsum(np.log(np.maximum(share[entries.tests], 1e-9)), out=passing[1:])
    each = np.exp(passing[entries.test_start[1:]] - passing[entries.test_start[:-1]])
    return np.bincount(entries.row, weights=each, minlength=rows) * len(WIDE) * WORD < FEW_SURVIVORS.value


def _align_zeros(words: int) -> NDArray[np.uint64]:
    """Zeros from a cache line's start on: no mask lies across two lines."""
    room = np.zeros(words + 8, np.uint64)
    skip = -room.ctypes.data // 8 % 8
    return room[skip : skip + words]


def _plain(clauses: Clauses, predicates: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which predicates are one span of values."""
    lo, hi = clauses.lo[predicates], clauses.hi[predicates]
    return (lo > 0) & (lo <= hi)


def _distinct(clauses: Clauses, used: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """A number for each used predicate, equal for equal ones, ordered by attribute and first cell; and one example of
    each."""
    attribute, lo, hi = clauses.attribute[used].astype(np.int64), clauses.lo[used].astype(np.int64), clauses.hi[used]
    several = np.flatnonzero(hi < 0)
    if len(several):
        # Equal lists of spans get one code, kept apart from single spans by its sign.
        lists: dict[bytes, int] = {}
        codes = np.empty(len(several), np.int64)
        for i, (a, k) in enumerate(zip(lo[several].tolist(), (-hi[several]).tolist())):
            spans = clauses.span_lo[a : a + k].tobytes() + clauses.span_hi[a : a + k].tobytes()
            codes[i] = lists.setdefault(spans, len(lists))
        lo = lo.copy()
        lo[several] = codes
    # The low bits of lo << 32 | hi tell single spans (hi >= 0) from lists (hi < 0).
    number, example = number_pairs(attribute, (lo << 32) | (hi.astype(np.int64) & 0xFFFFFFFF))
    # By first cell: neighbours read the same part of a table.
    order = np.lexsort((lo[example], 2 * attribute[example] + ~_plain(clauses, used[example])))
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return place[number], used[example[order]]
