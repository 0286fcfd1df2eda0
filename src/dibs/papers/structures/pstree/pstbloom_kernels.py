"""The signatures of pstree.pstbloom, and its match."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.index.groups import CANDIDATES, NEXT_EVENT, PAIRS
from dibs.jit.kernel import kernel, phase
from dibs.papers.structures.pstree.kernels import leave_boundary, merge, partition_at
from dibs.papers.structures.pstree.lists import (
    ask_for_list,
    begin_event,
    finish_event,
    first_space,
    list_of,
    next_space,
    no_candidates,
    span_count,
    stop_before,
    verify,
)
from dibs.papers.structures.pstree.spaces import (
    ATTRIBUTE,
    BEFORE,
    CODE,
    EDGES,
    ENTRY,
    PREDICATE_COUNTER,
    ROW,
    SIZE,
    START,
    Chunks,
    EventSpaces,
    ListArrays,
    RowArrays,
    copy_entries,
    give_back,
    take,
)

NOTHING, EVERYTHING = 0, 1  # the first two words of all signatures: in the one is no id, in the other every one
IDS_A_WORD = 8  # at most, when a signature is made: 4 to 8 bits an id
WORD, MASK, SIGN = range(3)  # columns of a sign, and how many
FIRST_OTHER, SECOND_OTHER, THIRD_OTHER = np.uint64(1), np.uint64(2), np.uint64(3)  # columns of an entry
INLINE = ENTRY - 1  # other attributes of an entry
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
NONE, ONE = np.uint64(0), np.uint64(1)


class Signatures(NamedTuple):
    """The Bloom filters of the spaces."""

    sign: NDArray[np.int32]  # (leaves, SIGN): the first word of the signature, and its number of words - 1
    words: Chunks  # of width 1; word NOTHING has no bit set, word EVERYTHING all


class EventSignatures(NamedTuple):
    """The signatures of an event, by 1 + attribute: NOTHING where it has no value, and EVERYTHING for attribute -1."""

    word: NDArray[np.uint32]  # as in a sign
    mask: NDArray[np.uint32]
    passed: NDArray[np.uint64]  # a block of entries that passed the first signature, and a place for none


@phase
def _hash(code):
    return np.uint64(np.uint32(code)) * GOLDEN


@phase
def _place(h):
    """Which word of a signature an id is in, modulo its number of words."""
    return h >> np.uint64(20)


@phase
def _bits(h):
    """The two bits of an id in its word."""
    return (ONE << (h >> np.uint64(59))) | (ONE << ((h >> np.uint64(54)) & np.uint64(31)))


# ---- updates ----


@kernel
def partition_signed(boundaries, at, signatures, trees):
    """kernels.partition_all; the new leaf has a copy of the signature too."""
    leaf = trees.links.leaf
    for i in range(at, len(boundaries.key)):
        found = partition_at(boundaries, i, trees)
        if found < 0 or found >= len(signatures.sign):
            return i
        # Without edges it is new, or its signature did not fit before.
        if leaf[found, EDGES] == 0 and not _copy_signature(leaf[found, BEFORE], found, signatures):
            return i
        leaf[found, EDGES] += boundaries.predicates[i]
    return len(boundaries.key)


@phase
def _copy_signature(leaf, to, signatures):
    """False, and nothing done, when the pool has to grow."""
    sign = signatures.sign
    old, mask = np.int64(sign[leaf, WORD]), np.int64(sign[leaf, MASK])
    new = old
    if old > EVERYTHING:
        new = take(mask + 1, signatures.words)
        if new < 0:
            return False
        copy_entries(new, old, mask + 1, signatures.words)
    sign[to, WORD], sign[to, MASK] = new, mask
    return True


@kernel
def merge_signed(boundaries, signatures, trees):
    """kernels.merge_all; what the same predicates cover has the same ids in its signature."""
    sign = signatures.sign
    for i in range(len(boundaries.key)):
        gone = leave_boundary(boundaries, i, trees)
        if gone >= 0:
            if sign[gone, WORD] > EVERYTHING:
                give_back(np.int64(sign[gone, WORD]), np.int64(sign[gone, MASK]) + 1, signatures.words)
            sign[gone, WORD], sign[gone, MASK] = NOTHING, 0
            merge(boundaries.key[i] >> 32, gone, trees)


@kernel
def sizes(leaves, leaf):
    """How many words the signature of each leaf should have: a power of 2, or 0 where it is empty."""
    result = np.zeros(leaves, np.int64)
    for at in range(leaves):
        ids = leaf[at, PREDICATE_COUNTER] - leaf[at, SIZE]
        if leaf[at, START] >= 0 and ids > 0:
            result[at] = 1
            while result[at] * IDS_A_WORD < ids:
                result[at] *= 2
    return result


@kernel
def add_ids(which, codes, owner, start, signatures, rows, links):
    """Adds the id codes[owner[i]] to the signatures of all spaces of predicate which[i], from i = start on. Returns
    where it stopped, because the pool has to grow; adding an id again does no harm."""
    for i in range(start, len(which)):
        h = _hash(codes[owner[i]])
        place, bits = np.int64(_place(h)), np.int32(np.uint32(_bits(h)))
        for s in range(span_count(which[i], rows)):
            at, high = first_space(which[i], s, rows, links)
            while at >= 0:
                if not _sign(at, place, bits, signatures):
                    return i
                at = next_space(at, high, links)
    return len(which)


@phase
def _sign(at, place, bits, signatures):
    """Sets the bits of an id in the signature of a leaf. False, and nothing done, when the pool has to grow."""
    sign, word = signatures.sign, signatures.words.entry
    if sign[at, WORD] == NOTHING:
        new = take(np.int64(1), signatures.words)
        if new < 0:
            return False
        word[new, 0] = 0
        sign[at, WORD] = new
    word[sign[at, WORD] + (place & sign[at, MASK]), 0] |= bits
    return True


@kernel
def sign_words(which, rows):
    """The entries of some rows: the code, and 1 + attribute of up to three more predicates, 0 where there is none."""
    result = np.zeros((len(which), ENTRY), np.int32)
    for i in range(len(which)):
        p, end = rows.offsets[which[i]], rows.offsets[which[i] + 1]
        result[i, CODE] = which[i] if end == p + 1 else ~(p + 1)
        for q in range(p + 1, min(end, p + 1 + INLINE)):
            result[i, q - p] = 1 + rows.predicate[q, ATTRIBUTE]
    return result


# ---- MatchEvent ----


@kernel
def match_signed(attributes, block, last_event, lists, signatures, rows, events, room, progress):
    """See index.base.in_parts. block: candidates that are verified together; signatures: sign, the words, and
    whether those of all attributes are asked."""
    sign, words, every = signatures
    lists, rows, events = ListArrays(*lists), RowArrays(*rows), EventSpaces(*events)
    waiting, asked = no_candidates(attributes, block), _no_signatures(attributes, block)
    found = np.int64(0)
    for e in range(progress[NEXT_EVENT], last_event):
        before = found
        begin_event(e, events, waiting.slot)
        _note_signatures(e, events, sign, asked)
        n, found = _screen_signed(e, last_event, found, lists, (words, every), rows, events, (waiting, asked), room)
        found = verify(n, e, found, waiting, rows, room)
        if found < 0:
            stop_before(e, before, progress)
            return
        finish_event(e, events, waiting, progress)
        _forget_signatures(e, events, asked)
    progress[NEXT_EVENT], progress[PAIRS] = last_event, found


@kernel(forceinline=True)
def _no_signatures(attributes, block):
    word, mask = np.zeros(1 + attributes, np.uint32), np.zeros(1 + attributes, np.uint32)
    word[0] = EVERYTHING
    return EventSignatures(word, mask, np.empty(block + 1, np.uint64))


@phase
def _note_signatures(e, events, sign, asked):
    for i in range(events.offsets[e], events.offsets[e + 1]):
        a, leaf = events.attribute[i] + 1, events.space[i]
        asked.word[a], asked.mask[a] = sign[leaf, WORD], sign[leaf, MASK]


@phase
def _forget_signatures(e, events, asked):
    for i in range(events.offsets[e], events.offsets[e + 1]):
        a = events.attribute[i] + 1
        asked.word[a], asked.mask[a] = NOTHING, 0


@phase
def _screen_signed(e, last_event, found, lists, signed, rows, events, work, room):
    """matching.screen_spaces, but what a candidate has to pass are the signatures of its other attributes."""
    (words, every), (waiting, asked) = signed, work
    entry, code, space = lists.entry, waiting.code, events.space
    block, n, candidates = np.uint64(len(code) - 1), NONE, np.int64(0)
    for i in range(events.offsets[e], events.offsets[e + 1]):
        ask_for_list(i, events.offsets[last_event], lists, space)
        at, end = list_of(np.uint64(space[i]), lists)
        candidates += np.int64(end - at)
        while at < end:
            # The first signature stops most, so the other two are asked apart, both without branches.
            stop = min(end, at + block - n)
            passed = _ask_first(at, stop, entry, words, asked)
            before = n
            n = _ask_others(passed, n, code, entry, words, asked)
            if every:
                n = _ask_all(before, n, code, rows.predicate, words, asked)
            at = stop
            if n == block:
                found = verify(np.int64(n), e, found, waiting, rows, room)
                n = NONE
                if found < 0:
                    return np.int64(0), found
    waiting.tally[CANDIDATES] += candidates
    return np.int64(n), found


@phase
def _ask_first(at, stop, entry, word, asked):
    """Which of the entries at to stop have their id in the signature of their first other attribute; how many."""
    first, mask, passed = asked
    count = NONE
    while at < stop:
        x = np.uint64(entry[at, FIRST_OTHER])
        h = _hash(entry[at, CODE])
        bits = _bits(h)
        w = np.uint64(word[np.uint64(first[x]) + (_place(h) & np.uint64(mask[x])), NONE])
        passed[count] = at
        count += np.uint64((w & bits) == bits)
        at += ONE
    return count


@phase
def _ask_others(count, n, code, entry, word, asked):
    """Which of those have it in the other two as well: their codes from n on; the new end."""
    first, mask, passed = asked
    for k in range(count):
        at = passed[k]
        y, z = np.uint64(entry[at, SECOND_OTHER]), np.uint64(entry[at, THIRD_OTHER])
        h = _hash(entry[at, CODE])
        place, bits = _place(h), _bits(h)
        w = np.uint64(word[np.uint64(first[y]) + (place & np.uint64(mask[y])), NONE])
        w &= np.uint64(word[np.uint64(first[z]) + (place & np.uint64(mask[z])), NONE])
        code[n] = entry[at, CODE]
        n += np.uint64((w & bits) == bits)
    return n


@phase
def _ask_all(start, n, code, predicate, word, asked):
    """Which of the codes from `start` to n are in the signatures of their attributes after the third other one, too;
    the new end."""
    first, mask, _ = asked
    end = start
    for k in range(start, n):
        row, ok = code[k], True
        if row < 0:
            h = _hash(row)
            place, bits = _place(h), _bits(h)
            p = np.int64(~row)
            last = p + INLINE  # those up to here were asked
            while ok and predicate[p, ROW] < 0:
                p += 1
                if p >= last:
                    x = 1 + predicate[p, ATTRIBUTE]
                    w = np.uint64(word[np.uint64(first[x]) + (place & np.uint64(mask[x])), NONE])
                    ok = (w & bits) == bits
        code[end] = row
        end += np.uint64(ok)
    return end
