"""What the trees of all attributes found, combined: which profiles have all their predicates satisfied.

Tatbul (2001) ANDs bit vectors in which profiles without a predicate on the attribute have a 1: the vectors of all
attributes, those that the event lacks included, each as long as there are profiles. With thousands of attributes that
is (attributes) x (profiles) bits of mostly "does not care". So only predicates that hold are represented, and they are
counted: a profile is in the AND of all vectors when as many of its predicates hold as it has. What makes it fast:

    places     profiles are numbered by pivot predicate (tatbul.intervals), and with the option `pivots` (ours) those
               whose pivot predicate fails are ruled out first, block by block
    stretches  the blocks that are left are a few runs: only their counters are set to zero, and they are compared with
               the sizes many at a time
    no branch  depends on single places where predicates are counted: what is ruled out counts 0, it is not jumped over

Places come in blocks. For one event, a block is alive if it has a place whose pivot predicate holds
(or might, where looking through costs more than it saves: small attributes, and long runs that are not sorted). Alive
blocks that follow each other are a stretch; there are few. So an AND passes over empty words.
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
from dibs.papers.structures.tatbul.bit_vectors import MEMBER, OWN, OWN_END, RANK, Vectors, vector_of, words_of
from dibs.papers.structures.tatbul.intervals import NONE, FoundIntervals

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
            left, tested = verify(clauses, events, e, work, left)
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
def verify(clauses, events, e, work, remain):
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


BEGIN, END = range(2)  # the columns of Work.stretch: a first block, and one past the last


@phase
def find_stretches(profiles, vectors, events, found, e, work):
    """Marks the alive blocks of event e; how many stretches they are."""
    group, table = profiles.group, vectors.table
    entry, next_run = events.offsets[found.first_event], found.start[e - found.first_event]
    stretches = np.int64(0)
    for i in range(events.offsets[e], events.offsets[e + 1]):
        a, s = events.attribute[i], np.int64(found.slot[i - entry])
        first_run, next_run = next_run, next_run + max(NONE - s, 0)
        if s == NONE or group[a] == group[a + 1]:
            continue
        if s > NONE:
            if table[a, RANK] >= 0:
                _mark_members(profiles, vectors, a, s, work.alive)
            else:
                _mark_group(profiles, a, work.alive)
        elif profiles.ordered:
            _mark_sorted_runs(profiles, a, found, first_run, next_run, work.alive)
        else:
            length = np.int64(0)
            for r in range(first_run, next_run):
                length += max(found.length[r], 0)
            if length < group[a + 1] - group[a]:
                _mark_runs(profiles, a, found, first_run, next_run, work.alive)
            else:
                _mark_group(profiles, a, work.alive)
        stretches = _add_stretches(profiles, a, work, stretches)
    return stretches


@phase
def all_in_one_stretch(profiles, work):
    """Nothing is ruled out."""
    blocks = ((len(profiles.row) - 1) >> profiles.block) + 1
    for b in range(blocks):
        work.alive[b] = 1
    work.stretch[0, BEGIN], work.stretch[0, END] = 0, blocks
    return np.int64(blocks > 0)


@phase
def _blocks_of(group, block, a):
    """The blocks with the places whose pivot is attribute a, which has some: first, and one past the last."""
    return group[a] >> block, ((group[a + 1] - 1) >> block) + 1


@phase
def _mark_group(profiles, a, alive):
    """All places whose pivot is attribute a."""
    begin, end = _blocks_of(profiles.group, profiles.block, a)
    for b in range(begin, end):
        alive[b] = 1


@phase
def _mark_members(profiles, vectors, a, s, alive):
    """Those whose bit is set in slot s."""
    at, member = vector_of(vectors.table, a, s), vectors.table[a, MEMBER]
    own, after = vectors.table[a, OWN], vectors.table[a, OWN_END]
    for w in range(own >> 6, ((after - 1) >> 6) + 1):
        bits = vectors.words[at + w]
        while bits != 0:
            m = (w << 6) + lowest_bit(bits)
            bits &= bits - np.uint64(1)
            if own <= m < after:
                alive[vectors.members[member + m] >> profiles.block] = 1


@phase
def _mark_sorted_runs(profiles, a, found, first_run, next_run, alive):
    """Those in the runs, each of which is sorted by place."""
    entries, group = profiles.entries, profiles.group
    for r in range(first_run, next_run):
        at, top = found.first[r], found.first[r] + found.length[r]
        after = top
        while at < after:
            m = (at + after) >> 1
            if entries[m] < group[a]:
                at = m + 1
            else:
                after = m
        while at < top and entries[at] < group[a + 1]:
            alive[entries[at] >> profiles.block] = 1
            at += 1


@phase
def _mark_runs(profiles, a, found, first_run, next_run, alive):
    """Those in the runs, whatever their order (but for runs that take places away)."""
    entries, group = profiles.entries, profiles.group
    for r in range(first_run, next_run):
        for k in range(found.first[r], found.first[r] + found.length[r]):
            alive[entries[k] >> profiles.block] |= group[a] <= entries[k] < group[a + 1]


@phase
def _add_stretches(profiles, a, work, stretches):
    """The stretches with those of attribute a. Groups come in order, so stretches do; the last block of a group may
    be the first of the next."""
    stretch = work.stretch
    begin, end = _blocks_of(profiles.group, profiles.block, a)
    if stretches > 0:
        begin = max(begin, np.int64(stretch[stretches - 1, END]))
    for b in range(begin, end):
        if work.alive[b] == 0:
            continue
        if stretches > 0 and stretch[stretches - 1, END] == b:
            stretch[stretches - 1, END] = b + 1
        else:
            stretch[stretches, BEGIN], stretch[stretches, END] = b, b + 1
            stretches += 1
    return stretches
