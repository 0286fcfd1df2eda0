"""The AND of whole bit vectors, as Tatbul (2001) published it: all five structures with profile="published".

Every slot of an attribute's tree has a vector with a bit for each profile, and profiles without a predicate on the
attribute have a 1 in all of them. Behind an attribute's slots stands the vector of just these: it is what an event
without the attribute, or with a value that no interval covers, leaves. The vectors of all attributes are ANDed, those
that the event lacks included. Trees that end in runs (Segment Tree, Interval Tree) set the bits of what they find in
a copy of that vector; the paper ORs vectors of nodes.

Arrays:
    whole        uint64  (vectors, words): a bit for each place (tatbul.intervals)
    whole_first  int64   attributes + 1: the vectors of each attribute, the last of which is of those without it

That is (slots + attributes) x profiles bits: more than 2 GB are refused (IndexTooLarge).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.errors import IndexTooLarge
from dibs.index.groups import CANDIDATES, NEXT_EVENT, NODES, PAIRS, PREDICATES, ClauseArrays, EventArrays, Room
from dibs.jit.kernel import kernel, phase
from dibs.jit.lanes import lowest_bit
from dibs.papers.structures.tatbul.bit_vectors import (
    ENTRY,
    GONE,
    GONE_END,
    LIST,
    LIST_END,
    MEMBER,
    RUN,
    WORD,
    vector_of,
    words_of,
)
from dibs.papers.structures.tatbul.combination import CombiningSpace, Profiles, verify
from dibs.papers.structures.tatbul.intervals import NONE, FoundIntervals, Intervals

MOST_WORDS = 1 << 28


class WholeVectors(NamedTuple):
    whole: NDArray[np.uint64]
    whole_first: NDArray[np.int64]


def whole_vectors(name: str, intervals: Intervals, made: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """From what a tree made: slots of bit_vectors, or none."""
    attributes, rows = len(intervals.start) - 1, len(intervals.row)
    slots = np.zeros(attributes, np.int64)
    if "table" in made:
        slots[:] = _count_slots(made["table"], len(made["words"]), len(made["runs"]))
    first = np.concatenate([np.zeros(1, np.int64), np.cumsum(slots + 1)])
    width = -(-rows // 64)
    if (words := int(first[-1]) * width) > MOST_WORDS:
        advice = "leave out options={'profile': 'published'}"
        raise IndexTooLarge(name, words, MOST_WORDS, "words of bit vectors", advice)
    whole = np.zeros((int(first[-1]), width), np.uint64)
    _set_absent(whole, first, intervals.start, intervals.place, rows)
    if "table" in made:
        _set_slots(whole, first, made["table"], made["members"], made["words"], made["runs"], made["entries"])
    return WholeVectors(whole, first)._asdict()


@kernel
def _count_slots(table, words, runs):
    """How many slots each attribute has: vectors and runs of the attributes follow each other."""
    slots, word_end, run_end = np.zeros(len(table), np.int64), np.int64(words), np.int64(runs)
    for a in range(len(table) - 1, -1, -1):
        if table[a, WORD] < 0:
            slots[a] = run_end - table[a, RUN]
            run_end = table[a, RUN]
            continue
        if words_of(table, a) > 0:
            slots[a] = (word_end - table[a, WORD]) // words_of(table, a)
        word_end = table[a, WORD]
    return slots


@kernel
def _set_absent(whole, first, start, place, rows):
    for a in range(len(first) - 1):
        own = whole[first[a + 1] - 1]
        for p in range(rows):
            own[p >> 6] |= np.uint64(1) << np.uint64(p & 63)
        for i in range(start[a], start[a + 1]):
            own[place[i] >> 6] &= ~(np.uint64(1) << np.uint64(place[i] & 63))


@kernel
def _set_slots(whole, first, table, members, words, runs, entries):
    for a in range(len(first) - 1):
        absent = first[a + 1] - 1
        for v in range(first[a], absent):
            own, s = whole[v], v - first[a]
            for w in range(len(own)):
                own[w] = whole[absent, w]
            if table[a, WORD] >= 0:
                at, member = vector_of(table, a, s), table[a, MEMBER]
                for w in range(words_of(table, a)):
                    bits = words[at + w]
                    while bits != 0:
                        p = members[member + (w << 6) + lowest_bit(bits)]
                        own[p >> 6] |= np.uint64(1) << np.uint64(p & 63)
                        bits &= bits - np.uint64(1)
                continue
            m, base = table[a, RUN] + s, table[a, ENTRY]
            # A place may begin, end and begin again: what stands more often in the list than in what is gone.
            for i in range(base + runs[m, LIST], base + runs[m, LIST_END]):
                own[entries[i] >> 6] ^= np.uint64(1) << np.uint64(entries[i] & 63)
            for i in range(base + runs[m, GONE], base + runs[m, GONE_END]):
                own[entries[i] >> 6] ^= np.uint64(1) << np.uint64(entries[i] & 63)


@kernel
def combine_whole(profiles, vectors, clauses, events, found, work, room, progress):
    """tatbul.combination.combine, by vectors alone."""
    profiles, vectors, clauses = Profiles(*profiles), WholeVectors(*vectors), ClauseArrays(*clauses)
    events, found, work, room = EventArrays(*events), FoundIntervals(*found), CombiningSpace(*work), Room(*room)
    width, rows = vectors.whole.shape[1], len(profiles.row)
    left, one = np.empty(width, np.uint64), np.empty(width, np.uint64)
    pairs = progress[PAIRS]
    for e in range(progress[NEXT_EVENT], found.first_event + len(found.start) - 1):
        for w in range(width):
            left[w] = ~np.uint64(0)
        _and_attributes_of_event(profiles, vectors, events, found, e, work, left, one)
        _and_other_attributes(vectors, events, e, work, left)
        remain = np.int64(0)
        for w in range(width):
            bits = left[w]
            while bits != 0:
                work.left[remain] = profiles.row[(w << 6) + lowest_bit(bits)]
                remain += 1
                bits &= bits - np.uint64(1)
        tested = np.int64(0)
        if profiles.verifies:
            remain, tested = verify(clauses, events, e, work, remain)
        if pairs + remain > len(room.event):
            break
        for i in range(remain):
            room.event[pairs + i] = e
            room.row[pairs + i] = work.left[i]
        pairs += remain
        n = e - found.first_event
        progress[NEXT_EVENT] = e + 1
        progress[CANDIDATES] += rows
        progress[PREDICATES] += tested + found.evaluations[n]
        progress[NODES] += found.nodes[n]
    progress[PAIRS] = pairs


@phase
def _and_attributes_of_event(profiles, vectors, events, found, e, work, left, one):
    """Each value of event e: the vector of its slot, or that of the profiles without the attribute and the bits of its
    runs."""
    whole, first, entry = vectors.whole, vectors.whole_first, events.offsets[found.first_event]
    next_run = found.start[e - found.first_event]
    for i in range(events.offsets[e], events.offsets[e + 1]):
        a, s = events.attribute[i], np.int64(found.slot[i - entry])
        if s >= 0:
            own = whole[first[a] + s]
            for w in range(len(left)):
                left[w] &= own[w]
            continue
        for w in range(len(left)):
            one[w] = whole[first[a + 1] - 1, w]
        first_run, next_run = next_run, next_run + NONE - s
        for r in range(first_run, next_run):
            for k in range(found.first[r], found.first[r] + found.length[r]):
                p = profiles.entries[k]
                one[p >> 6] |= np.uint64(1) << np.uint64(p & 63)
        for w in range(len(left)):
            left[w] &= one[w]


@phase
def _and_other_attributes(vectors, events, e, work, left):
    for i in range(events.offsets[e], events.offsets[e + 1]):
        work.cell[events.attribute[i]] = 1
    for a in range(len(work.cell)):
        if work.cell[a] == 0:
            own = vectors.whole[vectors.whole_first[a + 1] - 1]
            for w in range(len(left)):
                left[w] &= own[w]
    for i in range(events.offsets[e], events.offsets[e + 1]):
        work.cell[events.attribute[i]] = 0
