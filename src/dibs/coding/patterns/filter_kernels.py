"""Building the filter: which texts of the patterns are looked for, and under which gram each is filed.

A gram is good if few texts of all patterns contain it: then its slot is short, and strings, which tend to be about the
same things, seldom lead to it. The anchor of a LIKE is its text with the best gram.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dibs.coding.patterns.groups import REGEX, TEXT, Filter, PatternPieces
from dibs.jit.kernel import kernel, phase
from dibs.jit.words import equal_bytes
from dibs.tuning import tuned

AUTOMATA_ALONE = tuned("automata_alone", 16, 0, "expressions", "without a text of which each is tried in every string")

MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
UPPER = np.uint64(0xFFFFFFFF00000000)
THREE = np.uint64(0xFFFFFF)
FOUR = np.uint64(0xFFFFFFFF)
MASKS = np.array([(1 << 8 * q) - 1 for q in range(9)], np.uint64)  # the last q bytes
SIZES = np.array([8, 4, 3, 2, 1])  # of grams
EIGHT = np.uint64(8)
FOLD = np.arange(256, dtype=np.uint64)  # bytes as they are compared: ASCII letters in lower case
FOLD[65:91] += np.uint64(32)
FROM, LENGTH, FOLDED, BEFORE, COST, WANTED = range(6)  # columns of a text while it is filed
TEXT_COLUMNS = 6
WORTH_FILING = 3  # bytes of a text that is no anchor: shorter ones are in too many strings
_MOST_COUNTERS = 22  # bits
_FEWEST_GRAMS, _MOST_GRAMS = 12, 24  # bits of a place in `grams`
_BITS_FOR_ONE = 32  # in `grams`, for each text
_SHORT = np.array([0, 1 << 40, 1 << 35, 1 << 30], np.int64)  # what a gram of so few bytes costs


def build_filter(programs: PatternPieces) -> tuple[Filter, NDArray[np.int64]]:
    """The filter, and the patterns of which nothing is known."""
    kind, pieces, text = programs.kind, programs.pieces, programs.text
    number, texts = number_texts(programs)
    counters = np.zeros(1 << _bits(2 * len(text), 10, _MOST_COUNTERS), np.uint32)
    _count(pieces, text, counters)
    _choose_grams(text, texts, counters)
    rows, others = np.empty((len(pieces), 3), np.int64), np.empty(len(pieces), np.int64)
    other_offsets, alone = np.zeros(len(kind) + 1, np.int64), np.empty(len(kind), np.int64)
    anchors, lonely = _choose_anchors(programs, number, texts, rows, others, other_offsets, alone)
    rows, alone = rows[:anchors], alone[:lonely]
    anchor_offsets = np.zeros(len(texts) + 1, np.int64)
    np.cumsum(np.bincount(rows[:, 0], minlength=len(texts)), out=anchor_offsets[1:])
    unknown = kind[alone] == REGEX
    if np.count_nonzero(unknown) <= AUTOMATA_ALONE.value:  # more are faster in one pass of RE2
        unknown &= programs.automaton[alone] < 0
    grams, pairs, sizes, slots, entries = _file_pattern(text, texts)
    result = Filter(
        grams=grams,
        pairs=pairs,
        sizes=sizes,
        slots=slots,
        entries=entries,
        folded=texts[:, FOLDED] == 1,
        anchor_offsets=anchor_offsets,
        anchored=rows[np.argsort(rows[:, 0], kind="stable"), 1:],
        other_offsets=other_offsets,
        other_texts=others[: other_offsets[-1]].copy(),
        always=alone[~unknown],
    )
    return result, alone[unknown]


def number_texts(programs: PatternPieces) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The number of the text of each piece, equal for equal ones, -1 where it is none; a row for each text."""
    pieces = programs.pieces
    number, texts = np.empty(len(pieces), np.int64), np.empty((len(pieces), TEXT_COLUMNS), np.int64)
    table = np.zeros(1 << _bits(2 * len(pieces), 4, 40), np.int64)
    return number, texts[: _number_texts(programs, number, texts, table)]


def _file_pattern(
    text: NDArray[np.uint8], texts: NDArray[np.int64]
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
    """(grams, pairs, sizes, slots, entries) of the texts that are looked for."""
    wanted = np.flatnonzero(texts[:, WANTED])
    n = len(wanted)
    entries = np.column_stack([wanted, texts[wanted, FROM], texts[wanted, LENGTH], texts[wanted, BEFORE]])
    grams = np.zeros(1 << (_bits(_BITS_FOR_ONE * n, _FEWEST_GRAMS, _MOST_GRAMS) - 6), np.uint64)
    pairs, sizes = np.zeros(1024, np.uint64), np.zeros(9, np.bool_)
    slots = np.zeros(1 << _bits(2 * n, 4, 40), np.uint64)
    filed = np.empty((n, 4), np.int64)
    _file(
        entries, text, (grams, pairs, sizes), slots, np.zeros((len(slots), 2), np.int64), np.empty(n, np.int64), filed
    )
    return grams, pairs, sizes, slots, filed


def _bits(size: int, least: int, most: int) -> int:
    """Of a table of that size, or a little more."""
    return min(max((size - 1).bit_length(), least), most)


@kernel
def _count(pieces, text, counters):
    """How often each gram of four bytes occurs in all texts, by its hash."""
    shift = hash_shift(len(counters))
    for i in range(len(pieces)):
        if pieces[i, 0] == TEXT:
            gram = np.uint64(0)
            for k in range(pieces[i, 1], pieces[i, 2]):
                gram = (gram << EIGHT) | FOLD[text[k]]
                if k >= pieces[i, 1] + 3:
                    counters[four_hash(gram, shift)] += np.uint32(1)


@kernel
def _number_texts(programs, number, texts, slots):
    """Numbers the texts of all pieces, equal for equal ones, fills a row of `texts` for each, and returns how many.
    slots: for 1 + number, by hash."""
    kind, offsets, pieces, text = programs.kind, programs.offsets, programs.pieces, programs.text
    n, last = 0, np.uint64(len(slots) - 1)
    for p in range(len(kind)):
        folded = np.int64(kind[p] == REGEX)
        for i in range(offsets[p], offsets[p + 1]):
            number[i] = -1
            if pieces[i, 0] != TEXT:
                continue
            start, length = pieces[i, 1], pieces[i, 2] - pieces[i, 1]
            h = np.uint64(2 * length + folded)
            for k in range(start, start + length):
                h = (h ^ np.uint64(text[k])) * MULTIPLIER
                h ^= h >> np.uint64(32)
            at = h & last
            while slots[at] != 0:
                t = slots[at] - 1
                alike = texts[t, LENGTH] == length and texts[t, FOLDED] == folded
                if alike and equal_bytes(text, texts[t, FROM], text, start, length) == length:
                    break
                at = (at + np.uint64(1)) & last
            if slots[at] == 0:
                texts[n, FROM], texts[n, LENGTH], texts[n, FOLDED], texts[n, WANTED] = start, length, folded, 0
                n += 1
                slots[at] = n
            number[i] = slots[at] - 1
    return n


@kernel
def _choose_grams(text, texts, counters):
    shift = hash_shift(len(counters))
    for t in range(len(texts)):
        texts[t, BEFORE], texts[t, COST] = _best_gram(text, texts[t, FROM], texts[t, LENGTH], counters, shift)


@kernel
def _choose_anchors(programs, number, texts, anchors_of, others, other_offsets, alone):
    """Fills the anchors (text, pattern, the best of its other texts or -1), the other texts of each pattern, and the
    patterns without any anchor; marks the texts that are wanted. Returns how many anchors there are, and patterns
    without."""
    kind, offsets = programs.kind, programs.offsets
    anchors, n, lonely = 0, 0, 0
    for p in range(len(kind)):
        before, best = anchors, np.int64(-1)
        for i in range(offsets[p], offsets[p + 1]):
            t = number[i]
            if t < 0:
                continue
            if kind[p] == REGEX:
                anchors_of[anchors, 0], anchors_of[anchors, 1], anchors_of[anchors, 2] = t, p, -1
                texts[t, WANTED] = 1
                anchors += 1
            elif best < 0 or texts[t, COST] < texts[best, COST]:
                best = t
        if best >= 0:
            second = np.int64(-1)
            for i in range(offsets[p], offsets[p + 1]):
                t = number[i]
                if t >= 0 and t != best and texts[t, LENGTH] >= WORTH_FILING:
                    if second < 0 or texts[t, COST] < texts[second, COST]:
                        second = t
                    texts[t, WANTED] = 1
                    others[n] = t
                    n += 1
            anchors_of[anchors, 0], anchors_of[anchors, 1], anchors_of[anchors, 2] = best, p, second
            texts[best, WANTED] = 1
            anchors += 1
        other_offsets[p + 1] = n
        if anchors == before:
            alone[lonely] = p
            lonely += 1
    return anchors, lonely


@kernel
def _file(entries, text, marks, slots, places, slot, filed):
    """Fills the marks (grams, pairs, sizes), the slots, and the entries by slot. places: (entries of a slot that are
    still to come, where the next one goes); slot: of each entry."""
    grams, pairs, sizes = marks
    shift, last = hash_shift(64 * len(grams)), np.uint64(len(slots) - 1)
    for i in range(len(entries)):
        after = entries[i, 1] + entries[i, 3]
        size = gram_size(entries[i, 3])
        gram = gram_at(text, after - size, after)
        sizes[size] = True
        _mark(grams, shift, pairs, gram, size)
        own = gram_hash(gram, size)
        at = own & last
        while places[at, 0] and slots[at] != own & UPPER:
            at = (at + np.uint64(1)) & last
        slots[at] = own & UPPER
        places[at, 0] += 1
        slot[i] = at
    start = 0
    for s in range(len(slots)):
        places[s, 1] = start
        if places[s, 0]:
            slots[s] |= np.uint64(start + 1)
            start += places[s, 0]
    for i in range(len(entries)):
        left, to = places[slot[i], 0] - 1, places[slot[i], 1]
        places[slot[i], 0], places[slot[i], 1] = left, to + 1
        for k in range(4):
            filed[to, k] = entries[i, k]
        if left:
            filed[to, 0] = ~entries[i, 0]


@phase
def hash_shift(places):
    """How far hashes are shifted to be one of so many places, a power of two."""
    bits = 0
    while 1 << bits < places:
        bits += 1
    return np.uint64(64 - bits)


@phase
def _best_gram(text, start, length, counters, shift):
    """(how many bytes of a text lie before the end of its best gram, what it costs). With eight of them it is filed
    under all eight, which is worth a little."""
    if length < 4:
        return length, _SHORT[length]
    best, lowest, gram = length, np.int64(1) << 60, np.uint64(0)
    for k in range(length):
        gram = (gram << EIGHT) | FOLD[text[start + k]]
        if k >= 3:
            cost = 2 * np.int64(counters[four_hash(gram, shift)]) + np.int64(k < 7)
            if cost < lowest:
                best, lowest = k + 1, cost
    return best, lowest


@phase
def gram_size(before):
    """Bytes of the gram of a text that has so many up to the gram's end."""
    return 8 if before >= 8 else (4 if before >= 4 else before)


@phase
def gram_at(text, start, end):
    gram = np.uint64(0)
    for k in range(start, end):
        gram = (gram << EIGHT) | FOLD[text[k]]
    return gram


@phase
def gram_hash(gram, size):
    """Its lower half leads to a slot, where its upper half stands. (Different grams with the same one share it.)"""
    h = (gram ^ np.uint64(size)) * MULTIPLIER
    h = (h ^ (h >> np.uint64(32))) * MULTIPLIER
    return h ^ (h >> np.uint64(29))


@phase
def four_hash(gram, shift):
    """Where the last four bytes have their bit."""
    return ((gram & FOUR) * MULTIPLIER) >> shift


@phase
def is_marked(bits, place):
    return (bits[place >> np.uint64(6)] >> (place & np.uint64(63))) & np.uint64(1)


@phase
def three_hash(gram, shift):
    """Where the last three bytes have their bit, unlike four bytes of which the first is zero."""
    return (((gram & THREE) | np.uint64(1) << np.uint64(40)) * MULTIPLIER) >> shift


@phase
def _mark(grams, shift, pairs, gram, size):
    """Sets the bits by which a search finds the end of this gram."""
    one = np.uint64(1)
    if size >= 3:
        place = three_hash(gram, shift) if size == 3 else four_hash(gram, shift)
        grams[place >> np.uint64(6)] |= one << (place & np.uint64(63))
    elif size == 2:
        pairs[gram >> np.uint64(6)] |= one << (gram & np.uint64(63))
    else:
        for before in range(256):
            pair = np.uint64(before) << EIGHT | gram
            pairs[pair >> np.uint64(6)] |= one << (pair & np.uint64(63))
