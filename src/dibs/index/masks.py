"""masks: a batch of events at once, one bit each. The other half of `auto`.

The idea: subscriptions repeat each other's predicates, so each distinct predicate is evaluated once for a whole block
of events and gives a mask, a bit for each event. A clause is then the AND of its masks, 512 events by a handful of
instructions. Clauses stand in groups that share their most selective predicate; a group whose mask is empty is
skipped, and so are all groups of attributes that no event of the block has. The survivors of the second predicate are
first collected without branches (an unpredictable branch costs more than the test), then finished, then written out.

A predicate's mask: the values of its attribute in the block are sorted once, with cumulative masks; a span is then
two look-ups and an and-not. Events with several values or ranges for the attribute are tested one by one. IS NULL is
the complement of the events that have the attribute. So everything that the coded model can say is a mask, and
programs are run over masks too: each step splits the events that reach it into two jumps. A program starts with the
events that satisfy some predicate of its access set (index.access_sets), and is passed over where there are none.

Arrays (predicates and groups are ordered by attribute):
    attribute, lo, hi   int32   the distinct predicates, as in coding.clauses (spans in the clauses' own arrays)
    of_attribute        int64   attributes + 1: the predicates of each attribute; first those that are one span of
    plain_of            int64   attributes: values (not IS NULL, not empty), which end here
    group_predicate     uint32  the predicate that a group's clauses share
    group_start         uint32  groups + 1: its clauses
    groups_of           int64   attributes + 1: the groups of each attribute
    second              uint32  a clause's second predicate (the true one, numbered last, if it has none); AHEAD more
    rest_start, rest    uint32  clauses + 1, and a clause's other predicates
    row                 int32   a clause's row
    always              int32   rows without predicates
    program_row         int32   rows that are programs
    program_start       int64   programs + 1
    program             uint32  the predicate of each step (jumps in the clauses' own arrays)
    access_start        int64   programs + 1: its access set; the true predicate if it has none
    access              uint32  predicates

Useful for: attributes that many events of a block have (dense, skewed data), expressions with OR.
Not useful for: one event at a time over rare attributes: a mask of one bit shares nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dibs.coding.batch import CodedEvents
from dibs.coding.clauses import Clauses, runs
from dibs.index.access_sets import access_sets
from dibs.index.base import Rate
from dibs.index.mask_kernels import AHEAD, WORD, match_blocks, number_pairs, order_each

WIDE = (0,) * 8  # 512 events a block; the length of the tuple is a constant to the compiler
NARROW = (0,)
FEW_BLOCKS = 3  # up to so many narrow blocks are cheaper than a wide one


class Masks:
    ARRAYS = (
        "attribute",
        "lo",
        "hi",
        "of_attribute",
        "plain_of",
        "group_predicate",
        "group_start",
        "groups_of",
        "second",
        "rest_start",
        "rest",
        "row",
        "always",
        "program_row",
        "program_start",
        "program",
        "access_start",
        "access",
    )

    def __init__(self, clauses: Clauses, arrays: dict[str, NDArray[Any]]):
        self._clauses = clauses
        self.rate = Rate()
        self._arrays = arrays
        self.size = len(arrays["row"]) + len(arrays["always"]) + len(arrays["program_row"])
        null = (arrays["lo"] == 0) & (arrays["hi"] == 0)
        self._null_attributes = np.unique(arrays["attribute"][null]).astype(np.int32)
        self._spaces: list[tuple[NDArray[Any], ...]] = []  # work space of past calls, clean

    def arrays(self) -> dict[str, NDArray[Any]]:
        return self._arrays

    @classmethod
    def build(
        cls,
        clauses: Clauses,
        conjunctions: NDArray[np.int64],
        programs: NDArray[np.int64],
        share: NDArray[np.float32],
    ) -> Masks:
        """conjunctions, programs: rows; share: how likely each predicate of the clauses holds."""
        size = np.diff(clauses.offsets)
        always, plain = conjunctions[size[conjunctions] == 0], conjunctions[size[conjunctions] > 0]
        programs, access_start, access_set = _by_access(clauses, programs, share)
        used = runs(clauses.offsets[np.concatenate([plain, programs])], size[np.concatenate([plain, programs])])
        number, distinct = _distinct(clauses, used)
        true = len(distinct)
        n = size[plain]
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

        def steps_of(members: NDArray[np.int64]) -> NDArray[np.int64]:
            """The numbers of predicates of the programs, given by their place in the clauses."""
            row = np.searchsorted(clauses.offsets, members, side="right") - 1
            place = np.zeros(len(clauses), np.int64)
            place[programs] = steps + np.cumsum(size[programs]) - size[programs] - clauses.offsets[programs]
            return number[np.where(members < 0, 0, place[row] + members)] if len(members) else members

        def by_attribute(predicates: NDArray[Any]) -> NDArray[np.int64]:
            return starts(np.bincount(attribute_of[predicates], minlength=clauses.attributes), np.int64)

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
                "program_row": programs.astype(np.int32),
                "program_start": starts(size[programs], np.int64),
                "program": number[steps:].astype(np.uint32),
                "access_start": access_start,
                "access": np.where(access_set < 0, true, steps_of(access_set)).astype(np.uint32),
            },
        )

    def match(
        self, events: CodedEvents, last: int, room: tuple[NDArray[Any], NDArray[Any]], done: NDArray[np.int64]
    ) -> None:
        """See index.base.in_parts; done[1] is the clause (or, behind all clauses, the program) to go on with, which
        only means something for blocks of the same width: done[5] keeps it."""
        if done[5] == 0:
            done[5] = len(WIDE if last - done[0] > FEW_BLOCKS * WORD else NARROW)
        lanes = WIDE if done[5] == len(WIDE) else NARROW
        a, c = self._arrays, self._clauses
        key = len(lanes)
        try:
            space = self._spaces.pop()
            if len(space[0]) < (len(a["lo"]) + 1) * key:
                space = self._space(key)
        except IndexError:
            space = self._space(key)
        match_blocks(
            lanes,
            *(a[name] for name in self.ARRAYS),
            c.offsets,
            c.span_lo,
            c.span_hi,
            c.on_true,
            c.on_false,
            c.conjunctions,
            self._null_attributes,
            events.offsets,
            events.attribute,
            events.lo,
            events.hi,
            last,
            *space,
            *room,
            done,
        )
        self._spaces.append(space)

    def _space(self, lanes: int) -> tuple[NDArray[Any], ...]:
        longest = int(np.diff(self._arrays["program_start"]).max(initial=0))
        return (
            _aligned_zeros((len(self._arrays["lo"]) + 1) * lanes),  # masks: all zero between calls
            np.zeros(len(self._arrays["of_attribute"]), np.int32),  # entries of each attribute: likewise
            np.zeros((longest + 2) * len(WIDE), np.uint64),  # events that reach a step of a program: likewise
        )


def _by_access(
    clauses: Clauses, programs: NDArray[np.int64], share: NDArray[np.float32]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """The programs, ordered so that those of like access sets stand together, and their access sets: where each
    starts, and its predicates; -1 alone for a program that has none."""
    found, start, members = access_sets(clauses, programs, share)
    size = np.diff(start)
    leading = np.full(len(programs), -1, np.int64)
    some = found & (size > 0)
    leading[some] = clauses.attribute[members[start[:-1][some]]]
    order = np.argsort(leading, kind="stable")
    count = np.where(found, size, 1)[order]
    result = np.zeros(len(programs) + 1, np.int64)
    np.cumsum(count, out=result[1:])
    chosen = np.full(result[-1], -1, np.int64)
    own = found[order]
    chosen[runs(result[:-1][own], count[own])] = members[runs(start[:-1][order][own], count[own])]
    return programs[order], result, chosen


def _aligned_zeros(words: int) -> NDArray[np.uint64]:
    """Zeros from a cache line's start on: no mask lies across two lines."""
    room = np.zeros(words + 8, np.uint64)
    skip = -room.ctypes.data // 8 % 8
    return room[skip : skip + words]


def _plain(clauses: Clauses, predicates: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which predicates are one span of values."""
    lo, hi = clauses.lo[predicates], clauses.hi[predicates]
    return (lo > 0) & (lo <= hi)


def _distinct(clauses: Clauses, used: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """A number for each used predicate, equal for equal ones, ordered by attribute; and one example of each."""
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
    order = np.argsort(2 * attribute[example] + ~_plain(clauses, used[example]), kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return place[number], used[example[order]]
