"""Clauses to buckets: which guards stand under which values. See index.auto.records."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.index.auto.record_packing import hull, tests_of
from dibs.index.auto.shares import LARGER, LEVEL_BITS, buckets_of, is_larger, next_bucket
from dibs.index.groups import ClauseArrays
from dibs.index.spans import count_spans
from dibs.jit.kernel import kernel, phase


class Ladder(NamedTuple):
    """The rungs of attribute a are rungs[a] : rungs[a + 1], each for one width of buckets."""

    rungs: NDArray[np.int32]
    shift: NDArray[np.uint8]  # bucket b of the rung has the cells b << shift and on
    bucket: NDArray[np.int64]  # the number of its first bucket
    end: NDArray[np.int32]  # how many it has

    @property
    def buckets(self) -> int:
        return int(self.bucket[-1] + self.end[-1]) if len(self.end) else 0


def make_ladder(
    attribute: NDArray[np.int32], level: NDArray[np.int8], larger: NDArray[np.bool_], highest: NDArray[np.int32]
) -> Ladder:
    """attribute, level: of the predicates that something is filed under; larger: whether it also stands in buckets of
    the next level; highest: each attribute's highest cell."""
    attribute = np.concatenate([attribute, attribute[larger]]).astype(np.int64)
    level = np.concatenate([level, level[larger] + 1])
    levels = 1 + int(level.max(initial=0))
    used = np.unique(attribute * levels + level)
    owner, shift = used // levels, LEVEL_BITS * (used % levels)
    rungs = np.zeros(len(highest) + 1, np.int32)
    np.cumsum(np.bincount(owner, minlength=len(highest)), out=rungs[1:])
    end = (highest[owner] >> shift) + 1
    bucket = np.cumsum(end, dtype=np.int64) - end
    return Ladder(rungs, shift.astype(np.uint8), bucket, end.astype(np.int32))


@kernel
def take_larger(access, level, clauses):
    """By clause: whether it stands in buckets of the next level, too."""
    found = np.zeros(len(access), np.bool_)
    for i in range(len(access)):
        behind = np.int64(0)
        for s in range(count_spans(access[i], clauses)):
            first, behind = buckets_of(access[i], s, LEVEL_BITS * np.int64(level[i]), behind, clauses)
            up = -(-first // LARGER) * LARGER
            found[i] |= first < behind and is_larger(up, behind)
    return found


class FiledByValue(NamedTuple):
    """What stands in buckets; all in the order of its words."""

    access: NDArray[np.int64]  # predicates
    level: NDArray[np.int8]  # of these
    guard: NDArray[np.int64]  # predicates
    place: NDArray[np.int64]  # of the words


@kernel
def choose_guards(row, entry, access, tests, clauses, share):
    """The least likely test of each clause beside its access predicate, or that one, if there is no other."""
    chosen = access.copy()
    for i in range(len(row)):
        first, last = tests_of(row[i], entry[i], tests, clauses)
        for k in range(first, last):
            p = tests.tests[k] if entry[i] >= 0 else k
            if p != access[i] and (chosen[i] == access[i] or share[p] < share[chosen[i]]):
                chosen[i] = p
    return chosen


@kernel
def list_known(access, level, guard, clauses, shift):
    """Of each clause, the predicates that hold whenever its guard is found under an event's value, and holds: see
    record_packing.Filed."""
    known = np.full((len(access), 2), -1, np.int64)
    for i in range(len(access)):
        if level[i] == 0:  # a bucket is a cell
            known[i, 0] = access[i]
        p = guard[i]
        if level[i] >= 0 and clauses.hi[p] >= 0 and shift[clauses.attribute[p]] == 0:  # its hull is all of it
            known[i, 1] = p
    return known


def stand_guards(
    by_value: FiledByValue, ladder: Ladder, clauses: ClauseArrays, shift: NDArray[np.uint8]
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """guards, guard and place of records: each clause has its guard in every bucket that its access predicate
    covers."""
    return _stand_guards(by_value, ladder, ladder.buckets, clauses, shift)


@kernel
def _stand_guards(by_value, ladder, buckets, clauses, shift):
    guards = np.zeros(buckets + 1, np.uint32)
    _count_guards(guards, by_value, ladder, clauses)
    for b in range(buckets):
        guards[b + 1] += guards[b]
    guard, place = np.empty(guards[-1], np.uint64), np.empty(guards[-1], np.uint32)
    _write_guards(guards[:-1].copy(), guard, place, by_value, ladder, clauses, shift)
    return guards, guard, place


@phase(inline=False)
def _count_guards(guards, by_value, ladder, clauses):
    """The guards of each bucket, one place behind it."""
    for i in range(len(by_value.access)):
        p, level = by_value.access[i], np.int64(by_value.level[i])
        own, larger = _first_bucket(p, level, ladder, clauses), _first_bucket(p, level + 1, ladder, clauses)
        behind = np.int64(0)
        for s in range(count_spans(p, clauses)):
            b, behind = buckets_of(p, s, LEVEL_BITS * level, behind, clauses)
            while b < behind:
                guards[_place(b, behind, own, larger) + 1] += np.uint32(1)
                b = next_bucket(b, behind)


@phase(inline=False)
def _write_guards(at, guard, place, by_value, ladder, clauses, shift_of):
    """at: where the next guard of each bucket goes."""
    for i in range(len(by_value.access)):
        p, level = by_value.access[i], np.int64(by_value.level[i])
        own, larger = _first_bucket(p, level, ladder, clauses), _first_bucket(p, level + 1, ladder, clauses)
        behind, word = np.int64(0), hull(by_value.guard[i], clauses, shift_of)
        for s in range(count_spans(p, clauses)):
            b, behind = buckets_of(p, s, LEVEL_BITS * level, behind, clauses)
            while b < behind:
                bucket = _place(b, behind, own, larger)
                to = at[bucket]
                guard[to], place[to] = word, by_value.place[i]
                at[bucket] = to + np.uint32(1)
                b = next_bucket(b, behind)


@phase
def _first_bucket(p, level, ladder, clauses):
    """The number of the first bucket of a level; -1: the attribute has no such level."""
    a, shift = clauses.attribute[p], LEVEL_BITS * level
    for r in range(ladder.rungs[a], ladder.rungs[a + 1]):
        if np.int64(ladder.shift[r]) == shift:
            return ladder.bucket[r]
    return np.int64(-1)


@phase
def _place(b, behind, own, larger):
    """The number of the bucket that is next: b of its own level, or the one of the next level that begins with b."""
    return larger + (b >> LEVEL_BITS) if is_larger(b, behind) else own + b
