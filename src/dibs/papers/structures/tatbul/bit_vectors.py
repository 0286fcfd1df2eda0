"""The bit vectors of Tatbul (2001) for a million profiles: which profiles each slot of an attribute's tree satisfies.

The trees of the paper end in slots: elementary intervals, or clusters, in the order of the values. Each slot has a bit
for every profile; a million bits for a million slots would be 125 GB. Two things make them small:

Words. Only profiles that have a predicate on the attribute, its members, have a bit. An attribute with few slots keeps
such vectors as words: at most 512 bits per predicate (`TATBUL_SLOTS`). Members are in the order of places
(tatbul.intervals), so the bits of a run of places are a run too, and `rank` says where it begins: what other attributes
have ruled out is not read.

Differences. Most bits of a slot are those of the slot before: a profile's interval covers a run of slots, so its bit
changes at two of them. (Storing only the bits that cannot be made from another node's is what the paper proposes.) In
an attribute with many slots some of them, the anchors, have the list of their profiles in full, and each slot after an
anchor is that list, with what began since then and without what ended. A slot is an anchor as soon as the differences
are more than a share of the vector itself. So reading a vector costs at most that share more than its own length, and
all vectors take memory in proportion to the profiles, not to profiles times slots.

Measured for 1M profiles, 5 % of them with a predicate on each of 100 attributes (one event, 30 attributes present): the
AND of whole vectors takes 0.8 ms as words and 7 ms as Roaring bitmaps (pyroaring), 125 and 117 KB a slot; one of
members only has 6 KB here, and would have 40 KB as a Roaring bitmap. So there are none.

Arrays:
    table   int64  attributes x 8: where in the arrays below an attribute's part begins; see the constants
    members int32  places with a predicate on the attribute, ascending; of attributes with words only
    words   uint64 for each slot a bit for each member
    rank    int32  for each block of places, and one more: how many members are before it; of large attributes only
    runs    int32  n x 4: the places of a slot are entries[LIST:LIST_END] without entries[GONE:GONE_END], counted from
                   the attribute's first; a place may begin, end and begin again, so these are bags, not sets
    entries int32  places. For each anchor: its list, then what begins at each slot up to the next anchor, then what
                   ends there
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.index.base import refuse_too_many
from dibs.index.groups import EventArrays
from dibs.jit.kernel import kernel, phase
from dibs.papers.structures.tatbul.intervals import NONE, FoundIntervals, Intervals
from dibs.tuning import tuned

TATBUL_SLOTS = tuned("tatbul_slots", 512, 0, "slots", "of an attribute whose vectors are words")
TATBUL_DIFFERENCES = tuned(
    "tatbul_differences", 0.25, 0.05, "bits", "that differ from the last anchor, as a share, for a slot to be one"
)

COLUMNS = 8
MEMBER, MEMBERS, WORD, RANK, OWN, OWN_END, RUN, ENTRY = range(COLUMNS)
# The columns of `table`. MEMBERS: how many; WORD: -1 if the attribute has runs; RANK: -1 if it has none; OWN to
# OWN_END: the members whose pivot the attribute is, counted from its first member.

RUN_COLUMNS = 4
LIST, LIST_END, GONE, GONE_END = range(RUN_COLUMNS)  # the columns of `runs`


class Vectors(NamedTuple):
    """What is read of vectors that are words."""

    table: NDArray[np.int64]
    members: NDArray[np.int32]
    words: NDArray[np.uint64]
    rank: NDArray[np.int32]


class Covered(NamedTuple):
    """The slots of each attribute a, slots[a] : slots[a + 1], and which of them each interval covers: first to last,
    counted from the attribute's first; none if first > last. Each slot is covered by some interval."""

    first: NDArray[np.int32]
    last: NDArray[np.int32]
    slots: NDArray[np.int64]


def no_vectors() -> Vectors:
    """For trees that end in runs."""
    none = np.empty(0, np.int32)
    return Vectors(np.empty((0, COLUMNS), np.int64), none, np.empty(0, np.uint64), none)


def bit_vectors(intervals: Intervals, covered: Covered) -> dict[str, NDArray[Any]]:
    """The vectors of all slots."""
    table = _measure(intervals, covered, TATBUL_SLOTS.value)
    members, words, rank = _words(intervals, covered, table)
    runs, length, longest = _lay_out(intervals, covered, table, TATBUL_DIFFERENCES.value)
    refuse_too_many("interval", longest, "entries of an attribute's vectors")
    entries = _fill(intervals, covered, runs, table, length)
    return {"table": table, "members": members, "words": words, "rank": rank, "runs": runs, "entries": entries}


def sizes(arrays: dict[str, NDArray[Any]]) -> dict[str, int]:
    """What there is, for plans."""
    return {
        "attributes with words": int((arrays["table"][:, WORD] >= 0).sum()),
        "bytes of words": arrays["words"].nbytes,
        "entries of lists": len(arrays["entries"]),
    }


@phase
def words_of(table, a):
    """How many words a slot of attribute a has."""
    return (table[a, MEMBERS] + 63) >> 6


@phase
def vector_of(table, a, s):
    """Where the words of slot s of attribute a begin."""
    return table[a, WORD] + s * words_of(table, a)


@phase
def _blocks(intervals):
    return (len(intervals.row) >> intervals.block[0]) + 1


@kernel
def _measure(intervals, covered, most_slots):
    """The table, but for OWN, RUN and ENTRY: which attributes have words, which of those have ranks, and where."""
    start, place, slots = intervals.start, intervals.place, covered.slots
    blocks = _blocks(intervals)
    table = np.full((len(start) - 1, COLUMNS), -1, np.int64)
    member, word, ranks = np.int64(0), np.int64(0), np.int64(0)
    for a in range(len(table)):
        count = np.int64(0)
        for i in range(start[a], start[a + 1]):
            count += i == start[a] or place[i] != place[i - 1]
        table[a, MEMBER], table[a, MEMBERS] = member, count
        if slots[a + 1] - slots[a] <= most_slots:
            table[a, WORD] = word
            word += (slots[a + 1] - slots[a]) * words_of(table, a)
            member += count
            if count > blocks:
                table[a, RANK] = ranks
                ranks += blocks + 1
    return table


@kernel
def _words(intervals, covered, table):
    """members, words and rank; OWN of the table."""
    slots, blocks = covered.slots, _blocks(intervals)
    member, word, ranks = np.int64(0), np.int64(0), np.int64(0)
    for a in range(len(table)):
        if table[a, WORD] >= 0:
            member += table[a, MEMBERS]
            word += (slots[a + 1] - slots[a]) * words_of(table, a)
            ranks += blocks + 1 if table[a, RANK] >= 0 else 0
    members, words, rank = np.empty(member, np.int32), np.zeros(word, np.uint64), np.empty(ranks, np.int32)
    for a in range(len(table)):
        if table[a, WORD] >= 0:
            _list_members(intervals, a, table, members, rank)
            _set_bits(intervals, covered, a, table, words)
    return members, words, rank


@phase
def _list_members(intervals, a, table, members, rank):
    """The members of attribute a, which of them have it as pivot, and their ranks."""
    start, place, group = intervals.start, intervals.place, intervals.group
    ranked = table[a, RANK] >= 0
    table[a, OWN], table[a, OWN_END] = 0, 0
    m, block = np.int64(0), np.int64(0)
    for i in range(start[a], start[a + 1]):
        p = np.int64(place[i])
        if i > start[a] and p == place[i - 1]:
            continue
        members[table[a, MEMBER] + m] = p
        table[a, OWN] += p < group[a]
        table[a, OWN_END] += p < group[a + 1]
        while ranked and block <= p >> intervals.block[0]:
            rank[table[a, RANK] + block] = m
            block += 1
        m += 1
    while ranked and block <= _blocks(intervals):
        rank[table[a, RANK] + block] = m
        block += 1


@phase
def _set_bits(intervals, covered, a, table, words):
    """The words of attribute a: first where the bit of an interval changes; then each slot is the one before it with
    these changes."""
    start, place = intervals.start, intervals.place
    slots, width = covered.slots[a + 1] - covered.slots[a], words_of(table, a)
    m = np.int64(-1)
    for i in range(start[a], start[a + 1]):
        m += i == start[a] or place[i] != place[i - 1]
        bit, at = np.uint64(1) << np.uint64(m & 63), table[a, WORD] + (m >> 6)
        first, after = covered.first[i], covered.last[i] + 1
        if first < after:
            words[at + first * width] ^= bit
            if after < slots:
                words[at + after * width] ^= bit
    for w in range(table[a, WORD] + width, table[a, WORD] + slots * width):
        words[w] ^= words[w - width]


@kernel
def _lay_out(intervals, covered, table, differences):
    """The runs of attributes that have no words, the length of all entries, and that of the longest attribute's."""
    start, slots, attributes = intervals.start, covered.slots, len(table)
    count, most = np.int64(0), np.int64(0)
    for a in range(attributes):
        if table[a, WORD] < 0:
            table[a, RUN] = count
            count += slots[a + 1] - slots[a]
            most = max(most, slots[a + 1] - slots[a])
    runs = np.empty((count, RUN_COLUMNS), np.int32)
    begins, ends = np.empty(most + 1, np.int64), np.empty(most + 1, np.int64)
    total, longest = np.int64(0), np.int64(0)
    for a in range(attributes):
        table[a, ENTRY] = total
        if table[a, WORD] >= 0:
            continue
        row, count = table[a, RUN], slots[a + 1] - slots[a]
        for s in range(count + 1):
            begins[s], ends[s] = 0, 0
        for i in range(start[a], start[a + 1]):
            if covered.first[i] <= covered.last[i]:
                begins[covered.first[i]] += 1
                ends[covered.last[i] + 1] += 1
        size, s, at = np.int64(0), np.int64(0), np.int64(0)
        while s < count:
            size += begins[s] - ends[s]
            top, changes, after = s + 1, np.int64(0), size  # top: one past the last slot of this anchor
            while top < count:
                after += begins[top] - ends[top]
                changes += begins[top] + ends[top]
                if changes > differences * after:
                    break
                top += 1
            plus = at + size
            for k in range(s, top):
                plus += begins[k] if k > s else 0
                runs[row + k, LIST], runs[row + k, LIST_END] = at, plus
            minus = plus
            for k in range(s, top):
                minus += ends[k] if k > s else 0
                size += begins[k] - ends[k] if k > s else 0
                runs[row + k, GONE], runs[row + k, GONE_END] = plus, minus
            at = minus
            s = top
        total, longest = total + at, max(longest, at)
    return runs, total, longest


@kernel
def _fill(intervals, covered, runs, table, length):
    """Intervals come by place, so every list is sorted. No vector is empty, so an anchor is known by another LIST than
    that of the slot before."""
    start, place, slots, attributes = intervals.start, intervals.place, covered.slots, len(table)
    entries = np.empty(length, np.int32)
    most = np.int64(0)
    for a in range(attributes):
        most = max(most, slots[a + 1] - slots[a])
    anchor = np.empty(most, np.int64)  # how many anchors up to this slot
    own = np.empty(most, np.int64)  # by anchor: where to put the next of its list
    begins, ends = np.empty(most, np.int64), np.empty(most, np.int64)  # by slot: where to put the next; -1: anchor
    for a in range(attributes):
        if table[a, WORD] >= 0:
            continue
        row, base, count = table[a, RUN], table[a, ENTRY], slots[a + 1] - slots[a]
        anchors = np.int64(0)
        for s in range(count):
            if s == 0 or runs[row + s, LIST] != runs[row + s - 1, LIST]:
                own[anchors] = base + runs[row + s, LIST]
                anchors += 1
                begins[s], ends[s] = -1, -1
            else:
                begins[s], ends[s] = base + runs[row + s - 1, LIST_END], base + runs[row + s - 1, GONE_END]
            anchor[s] = anchors
        for i in range(start[a], start[a + 1]):
            x, y = covered.first[i], covered.last[i]
            if x > y:
                continue
            if begins[x] >= 0:
                entries[begins[x]] = place[i]
                begins[x] += 1
            if y + 1 < count and ends[y + 1] >= 0:
                entries[ends[y + 1]] = place[i]
                ends[y + 1] += 1
            for k in range(anchor[x] - (begins[x] < 0), anchor[y]):
                entries[own[k]] = place[i]
                own[k] += 1
    return entries


@kernel
def runs_of_slots(table, runs, events, found):
    """Runs for the slots that are no words. (Groups are plain tuples here: see tatbul.attribute_trees.)"""
    events, found = EventArrays(*events), FoundIntervals(*found)
    entry, n = events.offsets[found.first_event], np.int64(0)
    for k in range(len(found.start) - 1):
        e = found.first_event + k
        for i in range(events.offsets[e], events.offsets[e + 1]):
            a, s = events.attribute[i], found.slot[i - entry]
            if s < 0 or table[a, WORD] >= 0:
                continue
            m, base = table[a, RUN] + s, table[a, ENTRY]
            found.first[n], found.length[n] = base + runs[m, LIST], runs[m, LIST_END] - runs[m, LIST]
            found.slot[i - entry] = NONE - 1
            n += 1
            if runs[m, GONE] < runs[m, GONE_END]:
                found.first[n], found.length[n] = base + runs[m, GONE], runs[m, GONE] - runs[m, GONE_END]
                found.slot[i - entry] = NONE - 2
                n += 1
        found.start[k + 1] = n
