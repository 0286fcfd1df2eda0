"""What the trees of all attributes found, combined: which profiles have all their predicates satisfied.

Tatbul (2001) ANDs bit vectors in which profiles without a predicate on the attribute have a 1: the vectors of all
attributes, those that the event lacks included, each as long as there are profiles. With thousands of attributes that
is (attributes) x (profiles) bits of mostly "does not care". So only predicates that hold are represented, and they are
counted: a profile is in the AND of all vectors when as many of its predicates hold as it has. What makes it fast:

    places     profiles are numbered by pivot predicate (tatbul.intervals), and with the option `pivots` (ours) those
               whose pivot predicate fails are ruled out first, block by block (tatbul.stretches)
    stretches  the blocks that are left are a few runs: only their counters are set to zero, and they are compared with
               the sizes many at a time
    no branch  depends on single places where predicates are counted: what is ruled out counts 0, it is not jumped over
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.index.groups import CANDIDATES, NEXT_EVENT, NODES, PAIRS, PREDICATES, ClauseArrays, EventArrays, Room
from dibs.index.spans import meets_spans
from dibs.jit.kernel import kernel, phase
from dibs.jit.lanes import lowest_bit, prefetch
from dibs.jit.pools import Space
from dibs.papers.structures.tatbul.bit_vectors import MEMBER, RANK, Vectors, vector_of, words_of
from dibs.papers.structures.tatbul.found import FoundIntervals
from dibs.papers.structures.tatbul.stretches import BEGIN, END, all_in_one_stretch, find_stretches

CHUNK = 64  # counters that are compared at a time
AHEAD = 8  # rows to be verified are asked for before it is their turn


class Profiles(NamedTuple):
    """The profiles by place (tatbul.intervals), and what is true of the runs of `entries`."""

    row: NDArray[np.int32]
    size: NDArray[Any]
    group: NDArray[np.int64]
    entries: NDArray[np.int32]  # places
    block: int  # of how many bits the number of a place in its block is
    ordered: bool  # whether all runs are sorted by place
    verifies: bool  # whether what the trees find only may match
    pivots: bool  # whether pivot predicates rule profiles out


class CombiningSpace(NamedTuple):
    """The work space of one call. Between events no block is alive and all cells are zero."""

    counts: NDArray[Any]  # by place, as large as whole blocks: how many predicates hold; as `size`
    alive: NDArray[np.uint8]  # by block
    stretch: NDArray[np.int32]  # blocks x 2: BEGIN, END
    left: NDArray[np.int32]  # rows of which as many predicates hold as they have
    cell: NDArray[np.int32]  # by attribute, if something is verified: the event's


def work_space(size: NDArray[Any], attributes: int, block_bits: int) -> Space:
    """A CombiningSpace, as kernels take it."""
    blocks = (len(size) >> block_bits) + 1
    return tuple(
        CombiningSpace(
            np.zeros(blocks << block_bits, size.dtype),
            np.zeros(blocks, np.uint8),
            np.empty((blocks, 2), np.int32),
            np.empty(len(size) + 1, np.int32),
            np.zeros(attributes, np.int32),
        )
    )


@kernel
def combine(profiles, vectors, clauses, events, found, work, room, progress):
    """The events of `found` that are not done, until the room is full. An event for which there is no room is begun
    again from the start the next time, so its work is only counted when it is done. (The groups come as plain tuples:
    see tatbul.attribute_trees.)"""
    profiles, vectors, clauses = Profiles(*profiles), Vectors(*vectors), ClauseArrays(*clauses)
    events, found, work, room = EventArrays(*events), FoundIntervals(*found), CombiningSpace(*work), Room(*room)
    pairs = progress[PAIRS]
    for e in range(progress[NEXT_EVENT], found.first_event + len(found.start) - 1):
        if profiles.pivots:
            stretches = find_stretches(profiles, vectors, events, found, e, work)
        else:
            stretches = all_in_one_stretch(profiles, work)
        _reset_counters(profiles, work, stretches)
        if stretches > 0:
            _count_words(profiles, vectors, events, found, e, work, stretches)
            _count_runs(profiles, found, e, work)
        candidates, left = _compare_with_sizes(profiles, work, stretches)
        tested = np.int64(0)
        if profiles.verifies:
            left, tested = _verify(clauses, events, e, work, left)
        if pairs + left > len(room.event):
            break
        for i in range(left):
            room.event[pairs + i] = e
            room.row[pairs + i] = work.left[i]
        pairs += left
        n = e - found.first_event
        progress[NEXT_EVENT] = e + 1
        progress[CANDIDATES] += candidates
        progress[PREDICATES] += tested + found.evaluations[n]
        progress[NODES] += found.nodes[n]
    progress[PAIRS] = pairs


@phase
def _reset_counters(profiles, work, stretches):
    for k in range(stretches):
        begin, end = np.int64(work.stretch[k, BEGIN]), np.int64(work.stretch[k, END])
        for p in range(begin << profiles.block, end << profiles.block):
            work.counts[p] = 0


@phase
def _count_words(profiles, vectors, events, found, e, work, stretches):
    """Counts the predicates that hold by the slots of event e: of an attribute with ranks in the stretches only, of
    others throughout."""
    entry, end = events.offsets[found.first_event], events.offsets[e + 1]
    for i in range(events.offsets[e], end):
        a, s = events.attribute[i], np.int64(found.slot[i - entry])
        if s < 0:
            continue
        if vectors.table[a, RANK] >= 0:
            _count_stretches(vectors, a, s, work, stretches)
            continue
        if i + 1 < end and found.slot[i + 1 - entry] >= 0:
            b, t = events.attribute[i + 1], np.int64(found.slot[i + 1 - entry])
            prefetch(vectors.words, vector_of(vectors.table, b, t))
            prefetch(vectors.members, vectors.table[b, MEMBER])
            prefetch(vectors.members, vectors.table[b, MEMBER] + 16)
        _count_members(profiles, vectors, a, s, work)


@phase
def _count_members(profiles, vectors, a, s, work):
    """The bits of slot s. What is ruled out counts 0."""
    block, one = np.uint64(profiles.block), np.uint64(1)
    at, member = vector_of(vectors.table, a, s), vectors.table[a, MEMBER]
    for w in range(words_of(vectors.table, a)):
        bits = vectors.words[at + w]
        while bits != 0:
            p = np.uint64(vectors.members[member + (w << 6) + lowest_bit(bits)])
            bits &= bits - one
            work.counts[p] += work.alive[p >> block]


@phase
def _count_stretches(vectors, a, s, work, stretches):
    """The bits of slot s within the stretches."""
    one = np.uint64(1)
    at, member = vector_of(vectors.table, a, s), vectors.table[a, MEMBER]
    ranks = vectors.table[a, RANK]
    for k in range(stretches):
        x, y = vectors.rank[ranks + work.stretch[k, BEGIN]], vectors.rank[ranks + work.stretch[k, END]]
        for w in range(x >> 6, ((y - 1) >> 6) + 1):
            bits = vectors.words[at + w]
            if w == x >> 6:
                bits &= ~np.uint64(0) << np.uint64(x & 63)
            if w == y >> 6:
                bits &= (one << np.uint64(y & 63)) - one
            while bits != 0:
                p = np.uint64(vectors.members[member + (w << 6) + lowest_bit(bits)])
                bits &= bits - one
                work.counts[p] += 1


@phase
def _count_runs(profiles, found, e, work):
    """Counts the predicates that hold by the runs of event e."""
    entries, counts, alive, block = profiles.entries, work.counts, work.alive, np.uint64(profiles.block)
    first, last = found.start[e - found.first_event], found.start[e - found.first_event + 1]
    for r in range(first, last):
        begin, length = found.first[r], found.length[r]
        if r + 1 < last:
            prefetch(entries, found.first[r + 1])
        if profiles.ordered:
            for i in range(begin, begin + length):
                p = np.uint64(entries[i])
                if alive[p >> block] != 0:  # mostly not, and neighbours are alike
                    counts[p] += 1
        elif length >= 0:
            for i in range(begin, begin + length):
                p = np.uint64(entries[i])
                counts[p] += alive[p >> block]
        else:
            for i in range(begin, begin - length):
                p = np.uint64(entries[i])
                counts[p] -= alive[p >> block]


@phase
def _compare_with_sizes(profiles, work, stretches):
    """How many places the stretches have, and how many rows are left; no block is alive any more."""
    size, counts, left = profiles.size, work.counts, work.left
    candidates, remain = np.int64(0), np.int64(0)
    for k in range(stretches):
        begin, end = np.int64(work.stretch[k, BEGIN]), np.int64(work.stretch[k, END])
        for b in range(begin, end):
            work.alive[b] = 0
        x, top = begin << profiles.block, min(end << profiles.block, len(size))
        candidates += top - x
        while x < top:
            after = min(x + CHUNK, top)
            some = False
            for p in range(x, after):
                some |= counts[p] == size[p]
            if some:
                for p in range(x, after):
                    left[remain] = profiles.row[p]
                    remain += counts[p] == size[p]
            x = after
    return candidates, remain


@phase
def _verify(clauses, events, e, work, remain):
    """Keeps the rows whose predicates all hold: how many, and how many predicates were tested."""
    left, cell = work.left, work.cell
    begin, end = events.offsets[e], events.offsets[e + 1]
    for i in range(begin, end):
        cell[events.attribute[i]] = events.lo[i]
    held, tested = np.int64(0), np.int64(0)
    for i in range(remain):
        if i + 2 * AHEAD < remain:
            prefetch(clauses.offsets, left[i + 2 * AHEAD])
        if i + AHEAD < remain:
            q = clauses.offsets[left[i + AHEAD]]
            prefetch(clauses.attribute, q)
            prefetch(clauses.lo, q)
            prefetch(clauses.hi, q)
        r = left[i]
        ok = True
        for q in range(clauses.offsets[r], clauses.offsets[r + 1]):
            v = cell[clauses.attribute[q]]
            tested += 1
            ok = meets_spans(v, v, clauses.lo[q], clauses.hi[q], clauses)
            if not ok:
                break
        left[held] = r
        held += ok
    for i in range(begin, end):
        cell[events.attribute[i]] = 0
    return held, tested
