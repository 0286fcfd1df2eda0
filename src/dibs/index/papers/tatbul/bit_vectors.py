"""The bit vectors of Tatbul (2001) for a million profiles: which profiles each slot of an attribute's tree satisfies.

The trees of the paper end in slots: elementary intervals, or clusters, in the order of the values. Each slot has a bit
for every profile; a million bits for a million slots would be 125 GB. Two things make them small:

Words. Only profiles that have a predicate on the attribute, its members, have a bit. An attribute with few slots keeps
such vectors as words: at most 512 bits a predicate (thresholds.tatbul_slots). Members are in the order of places
(index.intervals), so the bits of a run of places are a run too, and `rank` says where it begins: what other attributes
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
    runs    int32  n x 4: the places of a slot are entries[r0:r1] without entries[r2:r3], counted from the attribute's
                   first; a place may begin, end and begin again, so these are bags, not sets
    entries int32  places. For each anchor: its list, then what begins at each slot up to the next anchor, then what
                   ends there
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dibs.index.papers.tatbul.intervals import Intervals
from dibs.jit.kernel import kernel
from dibs.thresholds import thresholds

MEMBER, MEMBERS, WORD, RANK, OWN, OWN_END, RUN, ENTRY = range(8)
# The columns of `table`. MEMBERS: how many; WORD: -1 if the attribute has runs; RANK: -1 if it has none; OWN to
# OWN_END: the members whose pivot the attribute is, counted from its first member.

NONE = -1  # instead of a slot: nothing was found; NONE - n: n runs were


def bit_vectors(
    intervals: Intervals, first: NDArray[np.int32], last: NDArray[np.int32], slots: NDArray[np.int64]
) -> dict[str, NDArray[Any]]:
    """The vectors of slots[a] : slots[a + 1] for each attribute a, of which each interval covers first to last (none
    if first > last). Each slot is covered by some interval."""
    start, place = intervals.start, intervals.place
    block, group, places = intervals.block[0], intervals.group, len(intervals.row)
    vectors = _words(start, place, first, last, slots, group, places, block, thresholds.tatbul_slots)
    table, members, words, rank = vectors
    runs, length = _lay_out(start, first, last, slots, table, thresholds.tatbul_differences)
    entries = _fill(start, place, first, last, slots, runs, table, length)
    return {"table": table, "members": members, "words": words, "rank": rank, "runs": runs, "entries": entries}


def sizes(arrays: dict[str, NDArray[Any]]) -> dict[str, int]:
    """What there is, for plans."""
    return {
        "attributes with words": int((arrays["table"][:, WORD] >= 0).sum()),
        "bytes of words": arrays["words"].nbytes,
        "entries of lists": len(arrays["entries"]),
    }


@kernel
def _words(start, place, first, last, slots, group, places, block_bits, most_slots):
    attributes = len(start) - 1
    blocks = (places >> block_bits) + 1
    table = np.full((attributes, 8), -1, np.int64)
    member, word, ranks = np.int64(0), np.int64(0), np.int64(0)
    for a in range(attributes):
        count = np.int64(0)
        for i in range(start[a], start[a + 1]):
            count += i == start[a] or place[i] != place[i - 1]
        table[a, MEMBER], table[a, MEMBERS] = member, count
        if slots[a + 1] - slots[a] <= most_slots:
            table[a, WORD] = word
            word += (slots[a + 1] - slots[a]) * ((count + 63) >> 6)
            member += count
            if count > blocks:
                table[a, RANK] = ranks
                ranks += blocks + 1
    members, words, rank = np.empty(member, np.int32), np.zeros(word, np.uint64), np.empty(ranks, np.int32)
    for a in range(attributes):
        if table[a, WORD] < 0:
            continue
        m, width = np.int64(-1), (table[a, MEMBERS] + 63) >> 6
        table[a, OWN], table[a, OWN_END] = 0, 0
        block = np.int64(0)
        for i in range(start[a], start[a + 1]):
            p = np.int64(place[i])
            if i == start[a] or p != place[i - 1]:
                m += 1
                members[table[a, MEMBER] + m] = p
                table[a, OWN] += p < group[a]
                table[a, OWN_END] += p < group[a + 1]
                while table[a, RANK] >= 0 and block <= p >> block_bits:
                    rank[table[a, RANK] + block] = m
                    block += 1
            # Where its bit changes; then each slot is the one before it with these changes.
            bit, at = np.uint64(1) << np.uint64(m & 63), table[a, WORD] + (m >> 6)
            if first[i] <= last[i]:
                words[at + first[i] * width] ^= bit
                if last[i] + 1 < slots[a + 1] - slots[a]:
                    words[at + (last[i] + 1) * width] ^= bit
        for w in range(table[a, WORD] + width, table[a, WORD] + (slots[a + 1] - slots[a]) * width):
            words[w] ^= words[w - width]
        while table[a, RANK] >= 0 and block <= blocks:
            rank[table[a, RANK] + block] = m + 1
            block += 1
    return table, members, words, rank


@kernel
def _lay_out(start, first, last, slots, table, differences):
    """The runs of attributes that have no words, and the length of all entries."""
    attributes = len(start) - 1
    count, most = np.int64(0), np.int64(0)
    for a in range(attributes):
        if table[a, WORD] < 0:
            table[a, RUN] = count
            count += slots[a + 1] - slots[a]
            most = max(most, slots[a + 1] - slots[a])
    runs = np.empty((count, 4), np.int32)
    begins, ends = np.empty(most + 1, np.int64), np.empty(most + 1, np.int64)
    total = np.int64(0)
    for a in range(attributes):
        table[a, ENTRY] = total
        if table[a, WORD] >= 0:
            continue
        row, count = table[a, RUN], slots[a + 1] - slots[a]
        for s in range(count + 1):
            begins[s], ends[s] = 0, 0
        for i in range(start[a], start[a + 1]):
            if first[i] <= last[i]:
                begins[first[i]] += 1
                ends[last[i] + 1] += 1
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
                runs[row + k, 0], runs[row + k, 1] = at, plus
            minus = plus
            for k in range(s, top):
                minus += ends[k] if k > s else 0
                size += begins[k] - ends[k] if k > s else 0
                runs[row + k, 2], runs[row + k, 3] = plus, minus
            at = minus
            s = top
        total += at
    return runs, total


@kernel
def _fill(start, place, first, last, slots, runs, table, length):
    """Intervals come by place, so every list is sorted. No vector is empty, so an anchor is known by another r0 than
    that of the slot before."""
    entries = np.empty(length, np.int32)
    attributes = len(start) - 1
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
            if s == 0 or runs[row + s, 0] != runs[row + s - 1, 0]:
                own[anchors] = base + runs[row + s, 0]
                anchors += 1
                begins[s], ends[s] = -1, -1
            else:
                begins[s], ends[s] = base + runs[row + s - 1, 1], base + runs[row + s - 1, 3]
            anchor[s] = anchors
        for i in range(start[a], start[a + 1]):
            x, y = first[i], last[i]
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
def runs_of_slots(
    table, runs, event_offsets, event_attribute, first_event, last_event, slot, run_start, run_first, run_length
):
    """Runs for the slots that are no words."""
    n = np.int64(0)
    entry = event_offsets[first_event]
    for e in range(first_event, last_event):
        for i in range(event_offsets[e], event_offsets[e + 1]):
            a, s = event_attribute[i], slot[i - entry]
            if s < 0 or table[a, WORD] >= 0:
                continue
            m, base = table[a, RUN] + s, table[a, ENTRY]
            run_first[n], run_length[n] = base + runs[m, 0], runs[m, 1] - runs[m, 0]
            slot[i - entry] = NONE - 1
            n += 1
            if runs[m, 2] < runs[m, 3]:
                run_first[n], run_length[n] = base + runs[m, 2], runs[m, 2] - runs[m, 3]
                slot[i - entry] = NONE - 2
                n += 1
        run_start[e - first_event + 1] = n
