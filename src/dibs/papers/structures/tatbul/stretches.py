"""The profiles that are not ruled out by their pivots: as an AND passes over empty words.

Places (tatbul.intervals) come in blocks. For one event, a block is alive if it has a place whose pivot predicate holds
(or might, where looking through costs more than it saves: small attributes, and long runs that are not sorted). Alive
blocks that follow each other are a stretch; there are few.
"""

from __future__ import annotations

import numpy as np

from dibs.jit.kernel import phase
from dibs.jit.lanes import lowest_bit
from dibs.papers.structures.tatbul.bit_vectors import MEMBER, OWN, OWN_END, RANK, vector_of
from dibs.papers.structures.tatbul.found import NONE

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
