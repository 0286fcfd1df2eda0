"""The kernels that read texts: many, one after the other, or one alone (language.shape_kernels cuts each)."""

from __future__ import annotations

import numpy as np

from dibs.jit.kernel import kernel, phase
from dibs.language.expression import Kind
from dibs.language.hole_kernels import Holes, read_number
from dibs.language.shape_kernels import PLAIN, Predicates, read_text
from dibs.language.shapes import LIST, NAME

_NUMBER, _STRING, _NAME, _LIST = int(Kind.NUMBER), int(Kind.STRING), int(NAME), int(LIST)
_DOT, _BACKSLASH, _EXCLAMATION, _OR_SIGN, _PREDICATE = 46, 92, 33, 124, 112


@phase(inline=False)
def _same_as_last(data, at, end, last, last_end, holes, first, h):
    """Whether a text is the last one with other numbers and strings in it: then its holes are written from h on. Texts
    that programs write come one like the other, and this is three times as fast as cutting them. The last one has no
    holes but names, plain numbers and plain strings (PLAIN), and these are [first, h)."""
    i, j, to = at, last, h
    for k in range(first, h):
        kind, start = holes.kind[k], holes.start[k]
        if kind == _NAME:
            holes.kind[to] = kind  # it is that of the last one, and compared with what follows
            to += 1
            continue
        if i + start - j >= end:
            return False
        while j < start:
            if data[i] != data[j]:
                return False
            i += 1
            j += 1
        stop = i
        if kind == _NUMBER:
            value = np.int64(0)
            while stop < end and 48 <= data[stop] <= 57:
                value = value * 10 + np.int64(data[stop] - 48)  # too long a one is read again
                stop += 1
            has_fraction = stop + 1 < end and data[stop] == _DOT and stop > i
            if has_fraction or stop - i > 18:
                stop += has_fraction
                while stop < end and 48 <= data[stop] <= 57:
                    stop += 1
                read_number(data, i, stop, False, holes, to)
            else:
                near = np.float64(value)
                holes.kind[to], holes.start[to], holes.size[to] = _NUMBER, i, stop - i
                holes.number[to], holes.integer[to] = near, value - np.int64(near)
        else:
            quote = data[j - 1]
            while stop < end and data[stop] != quote and data[stop] != _BACKSLASH and data[stop] != 0:
                stop += 1
            if stop == end or data[stop] != quote:
                return False
            holes.kind[to], holes.start[to], holes.size[to] = _STRING, i, stop - i
        if stop == i or holes.kind[to] != kind:
            return False
        to += 1
        i, j = stop, start + holes.size[k]
    if end - i != last_end - j:
        return False
    while i < end:
        if data[i] != data[j]:
            return False
        i += 1
        j += 1
    return True


@kernel
def read_texts(data, offsets, predicates, holes, signs, first_predicate, first_sign, like):
    """Reads texts one after the other. Those of text t are the predicates [first_predicate[t], first_predicate[t + 1])
    and signs likewise; none: it is left alone. like[t]: the first one before it from which it differs in numbers and
    strings alone, if that was seen, else t. Returns how many predicates, holes, bytes and signs there are."""
    count = np.zeros(5, np.int64)
    first_predicate[0], first_sign[0], predicates.hole[0] = 0, 0, 0
    last, p, h, s = -1, 0, 0, 0  # the last text that was read, and where it begins
    for t in range(len(offsets) - 1):
        next_p, next_h, next_s, like[t] = count[0], count[1], count[3], t
        has_room = 2 * next_p - p < len(predicates.size) and 2 * next_h - h < len(holes.kind)
        if (
            last >= 0
            and count[PLAIN] > 0
            and has_room
            and 2 * next_s - s < len(signs)
            and _same_as_last(data, offsets[t], offsets[t + 1], offsets[last], offsets[last + 1], holes, h, next_h)
        ):
            for k in range(next_p - p):
                predicates.start[next_p + k], predicates.size[next_p + k] = (
                    predicates.start[p + k],
                    predicates.size[p + k],
                )
                predicates.hole[next_p + k] = predicates.hole[p + k] - h + next_h
            for k in range(next_s - s):
                signs[next_s + k] = signs[s + k]
            count[0], count[1], count[3] = 2 * next_p - p, 2 * next_h - h, 2 * next_s - s
            predicates.hole[count[0]], like[t] = count[1], like[last]
            last, p, h, s = t, next_p, next_h, next_s
        elif read_text(data, offsets[t], offsets[t + 1], predicates, holes, signs, count):
            last, p, h, s = t, next_p, next_h, next_s
        first_predicate[t + 1], first_sign[t + 1] = count[0], count[3]
    return count


WORDS_OF_A_HOLE = 5  # kind, start, size, bits of the number, integer


@kernel
def read_alone(data):
    """One text: (key, words), both empty for one that is left alone.

    The key is that of templates.whole_of: the signs, behind a zero each the shape of every predicate, and where OR or
    NOT may bring predicates together, for each name in two bytes the first predicate that has it. words: the number of
    predicates, the first hole of each and one past the last, and then the holes."""
    room = len(data) + 2
    predicates = Predicates(
        np.empty(room, np.int64),
        np.empty(room, np.int32),
        np.empty(room + 1, np.int64),
        np.empty(2 * room + 8, np.uint8),
    )
    holes = Holes(
        np.empty(room, np.uint8),
        np.empty(room, np.int64),
        np.empty(room, np.int32),
        np.empty(room, np.float64),
        np.empty(room, np.int64),
    )
    signs, count = np.empty(room + 2, np.uint8), np.zeros(5, np.int64)
    if not read_text(data, 0, len(data), predicates, holes, signs, count):
        return np.empty(0, np.uint8), np.empty(0, np.int64)
    p, h, b, s = count[0], count[1], count[2], count[3]
    merges = False
    for k in range(s):  # TRUTHS are letters
        merges |= signs[k] == _OR_SIGN or signs[k] == _EXCLAMATION or (signs[k] >= 65 and signs[k] != _PREDICATE)
    merges &= p < 65536  # as in frame_keys: two bytes tell no more apart, and apart they mean the same
    key, at = np.empty(s + b + p + (2 * h + 1 if merges else 0), np.uint8), 0
    for k in range(s):
        key[at] = signs[k]
        at += 1
    for q in range(p):
        key[at] = 0
        at += 1
        for k in range(predicates.start[q], predicates.start[q] + predicates.size[q]):
            key[at] = predicates.bytes[k]
            at += 1
    if merges:
        key[at] = 0
        at += 1
        for q in range(p):
            for hole in range(predicates.hole[q], predicates.hole[q + 1]):
                if holes.kind[hole] == _NAME:
                    first = _first_name(data, holes, predicates.hole, q, hole)
                    key[at], key[at + 1] = first & 255, (first >> 8) & 255
                    at += 2
    words = np.empty(2 + p + WORDS_OF_A_HOLE * h, np.int64)
    words[0] = p
    for q in range(p + 1):
        words[1 + q] = predicates.hole[q]
    bits = holes.number.view(np.int64)
    to = 2 + p
    for hole in range(h):
        kind = holes.kind[hole]
        words[to], words[to + 1], words[to + 2] = kind, holes.start[hole], holes.size[hole]
        words[to + 3] = bits[hole] if kind == _NUMBER else 0
        words[to + 4] = holes.integer[hole] if kind != _STRING and kind != _NAME and kind != _LIST else 0
        to += WORDS_OF_A_HOLE
    return key[:at], words


@phase
def _first_name(data, holes, first_hole, q, hole):
    """The first predicate that has the name that stands in this hole of predicate q."""
    for other in range(min(q, 256)):
        for h in range(first_hole[other], first_hole[other + 1]):
            if holes.kind[h] == _NAME and holes.size[h] == holes.size[hole]:
                k = 0
                while k < holes.size[h] and data[holes.start[h] + k] == data[holes.start[hole] + k]:
                    k += 1
                if k == holes.size[h]:
                    return other
    return np.int64(q)
