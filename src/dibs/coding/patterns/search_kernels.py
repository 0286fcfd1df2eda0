"""One pass over many strings for all patterns of an attribute.

The strings lie behind each other. Block by block the filter picks the positions at which a text may end, without a
branch; then these are looked at. A text that begins before its string, or ends behind it, is none. What was found
is verified when the string ends: a pattern matches, or not, or is left to RE2.
"""

from __future__ import annotations

import numpy as np

from dibs.coding.patterns.automaton_kernels import accepts
from dibs.coding.patterns.filter_kernels import (
    EIGHT,
    FOLD,
    FOUR,
    MASKS,
    SIZES,
    UPPER,
    four_hash,
    gram_hash,
    hash_shift,
    is_marked,
    three_hash,
)
from dibs.coding.patterns.groups import BLOCK, CONTAINS, REGEX, SPENT, STRINGS, Filter, PatternPieces, PatternSpace
from dibs.coding.patterns.like_kernels import NO, TOO_MUCH, is_like
from dibs.jit.borrowing import borrow
from dibs.jit.kernel import kernel, phase
from dibs.jit.words import equal_bytes

FREE = 1 << 14  # bytes of a string that count for nothing when what it takes is added up
MUCH = 16  # bytes of a text that were there, but not the whole of it


@kernel
def search_strings(programs, filed, offsets, data, work):
    """(ends, found): string i has the patterns found[ends[i]:ends[i + 1]], in any order; RE2 decides about those that
    are negative, ~p for pattern p. programs, filed, work: as plain tuples, which cost less in a call."""
    programs, filed, work = borrow(PatternPieces(*programs)), borrow(Filter(*filed)), borrow(PatternSpace(*work))
    patterns, strings, shift = len(programs.kind), len(offsets) - 1, hash_shift(64 * len(filed.grams))
    found, ends = np.empty(patterns + min(patterns, 4096), np.int32), np.zeros(strings + 1, np.int64)
    gram, string = np.uint64(0), 0
    at, n, texts = offsets[0], 0, 0  # n patterns were found so far, and so many texts in this string
    _begin(work)
    while string < strings:
        stop = min(at + BLOCK, offsets[strings])
        hits, gram = _pick(filed, shift, data, at, stop, gram, work)
        hit = 0
        while string < strings:
            start, end = offsets[string], offsets[string + 1]
            while hit < hits and work.place[hit] < end:
                texts = _look(programs.text, filed, shift, (start, end, data), hit, texts, work)
                hit += 1
            if end > stop:
                break
            n = _gather(programs, filed, texts, found, n, work)
            n = _verify(programs, (start, end, data), found, ends[string], n, work)
            string, texts = string + 1, 0
            ends[string] = n
            if n + patterns > len(found):
                more = np.empty(2 * len(found) + patterns, np.int32)
                more[:n] = found[:n]
                found = more
            _begin(work)
        at = stop
    return ends, found[:n]


@phase(inline=False)
def search_string(programs, filed, string, found, work):
    """How many patterns one string (start, end, data) has, which are found[0], found[1], ...; negative: RE2 decides
    about some. There is room for all patterns."""
    start, end, data = string
    shift, gram, at, texts = hash_shift(64 * len(filed.grams)), np.uint64(0), start, 0
    _begin(work)
    while at < end:
        stop = min(at + BLOCK, end)
        hits, gram = _pick(filed, shift, data, at, stop, gram, work)
        for hit in range(hits):
            texts = _look(programs.text, filed, shift, string, hit, texts, work)
        at = stop
    n = _gather(programs, filed, texts, found, 0, work)
    n = _verify(programs, string, found, 0, n, work)
    for i in range(n):
        if found[i] < 0:
            return np.int64(-1)
    return np.int64(n)


@phase
def _begin(work):
    """A new string."""
    work.counters[STRINGS] += 1
    work.counters[SPENT] = 0


@phase
def _pick(filed, shift, data, at, stop, gram, work):
    """(how many positions of this block are looked at, the eight bytes before its end). gram: the eight before it."""
    short = filed.sizes[1] or filed.sizes[2] or filed.sizes[3]
    hits = np.uint64(0)  # unsigned, as all that is an index here
    for i in range(np.uint64(at), np.uint64(stop)):
        gram = (gram << EIGHT) | FOLD[data[i]]
        hit = is_marked(filed.grams, four_hash(gram, shift))
        if short:
            hit |= is_marked(filed.grams, three_hash(gram, shift)) | is_marked(filed.pairs, gram & MASKS[2])
        work.place[hits], work.gram[hits] = i, gram
        hits += hit
    return np.int64(hits), gram


@phase
def _look(text, filed, shift, string, hit, texts, work):
    """Adds the texts that end at this position of a string (start, end, data), or may be in it, to those `texts` that
    are known to be here, and returns how many there are then."""
    start, end, data = string
    number, gram, behind = work.counters[STRINGS], work.gram[hit], work.place[hit] + 1
    last = np.uint64(len(filed.slots) - 1)
    four = is_marked(filed.grams, four_hash(gram, shift))
    three = is_marked(filed.grams, three_hash(gram, shift))
    for size in SIZES:
        if not filed.sizes[size] or not (four if size >= 4 else three or size < 3):
            continue
        own = gram_hash(gram & MASKS[size], size)
        slot = own & last
        while filed.slots[slot] != 0 and filed.slots[slot] & UPPER != own & UPPER:
            slot = (slot + np.uint64(1)) & last
        i = np.int64(filed.slots[slot] & FOUR) - 1
        if i < 0 or work.present[_text_of(filed, i)] == 2 * number + 1:
            continue
        first, is_open = i, False  # is_open: some text of the slot may still come
        while i >= 0:
            t, row = _text_of(filed, i), i
            i = i + 1 if filed.entries[i, 0] < 0 else -1
            begin, length = behind - filed.entries[row, 3], filed.entries[row, 2]
            if length > end - begin or is_present(work, t, number):  # what does not fit here fits nowhere behind
                continue
            if begin < start:
                is_open = True
                continue
            sure = work.counters[SPENT] < work.allowed[0] * (end - start + 16)
            if sure and not _is_at(text, filed.entries[row, 1], length, filed.folded[t], data, begin, work):
                is_open = True
                continue
            work.present[t] = 2 * number
            work.here[texts] = t if sure else ~t
            texts += 1
        # A long slot is walked through again and again only as long as there is something to find.
        if not is_open:
            if is_present(work, _text_of(filed, first), number):
                work.present[_text_of(filed, first)] = 2 * number + 1
        elif row - first > MUCH:
            work.counters[SPENT] += row - first
    return texts


@phase
def _text_of(filed, row):
    t = filed.entries[row, 0]
    return ~t if t < 0 else t


@phase
def is_present(work, text, number):
    """Whether the text was found in this string."""
    return work.present[text] >> 1 == number


@phase
def _is_at(text, start, length, folded, data, at, work):
    """Whether the text stands at this place. What it takes counts only if it was much for nothing."""
    k = 0
    if folded:
        while k < length and text[start + k] == FOLD[data[at + k]]:
            k += 1
    else:
        k = equal_bytes(text, start, data, at, length)
    if k < length and k >= MUCH:
        work.counters[SPENT] += k
    return k == length


@phase
def _gather(programs, filed, texts, found, n, work):
    """Adds the patterns that may match, by the texts that are here. ~p: RE2 decides."""
    number, kind = work.counters[STRINGS], programs.kind
    for i in range(texts):
        t, sure = work.here[i], work.here[i] >= 0
        t = t if sure else ~t
        for k in range(filed.anchor_offsets[t], filed.anchor_offsets[t + 1]):
            p, other = filed.anchored[k, 0], filed.anchored[k, 1]
            if other >= 0 and not is_present(work, other, number):
                continue
            if kind[p] == REGEX:
                if work.seen[p] == number:
                    continue
                work.seen[p] = number
                p = p if programs.automaton[p] >= 0 else ~p
            elif kind[p] == CONTAINS:
                p = p if sure else ~p
            else:
                o, last = filed.other_offsets[p], filed.other_offsets[p + 1]
                while o < last and is_present(work, filed.other_texts[o], number):
                    o += 1
                if o < last:
                    continue
            found[n] = p
            n += 1
    for i in range(len(filed.always)):
        found[n] = filed.always[i]
        n += 1
    return n


@phase
def _verify(programs, string, found, first, n, work):
    """Decides about the LIKEs and automata of found[first:n], as long as that is not too much in all: n behind what is
    left."""
    start, end, data = string
    kept, most = first, work.allowed[0] * (end - start + FREE)
    for i in range(first, n):
        p = np.int64(found[i])
        if p >= 0 and programs.kind[p] != CONTAINS:
            result = TOO_MUCH
            if work.counters[SPENT] < most:
                if programs.kind[p] == REGEX:
                    work.counters[SPENT] += end - start
                    result = accepts(programs.automata, np.int64(programs.automaton[p]), data, start, end)
                else:
                    result = is_like(programs, p, data, start, end, work)
            if result == NO:
                continue
            p = ~p if result == TOO_MUCH else p
        found[kept] = p
        kept += 1
    return kept
