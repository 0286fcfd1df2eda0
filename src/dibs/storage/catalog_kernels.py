"""Kernels over the rows of a catalog: checksums, strings and numbers that SQLite has put together, the order of ids."""

from __future__ import annotations

import numpy as np

from dibs.jit.kernel import kernel
from dibs.jit.words import word_at

INTEGER, STRING = 0, 1  # kinds of ids
MULTIPLIER = np.uint64(0xDA942042E4DD58B5)
BETWEEN = np.uint8(0xFF)  # in no UTF-8


@kernel(inline="always")
def _step(h, word):
    h = (h ^ word) * MULTIPLIER
    return h ^ (h >> np.uint64(32))


@kernel
def _hash(data, start, end, h):
    """Each step is bijective in the hash and in the word: a difference within one word of 8 bytes is always seen, any
    other goes unseen about once in 2**64 times."""
    size = end - start
    whole = start + (size & ~7)
    for i in range(start, whole, 8):
        h = _step(h, word_at(data, i))
    word = np.uint64(0)
    for k in range(end - whole):
        word |= np.uint64(data[whole + k]) << np.uint64(8 * k)
    return _step(_step(h, word), np.uint64(size))


@kernel
def fill_checksums(rows, seed, result):
    for i in range(len(result)):
        h = _step(seed, np.uint64(rows.kinds[i]))
        h = _hash(rows.ids, rows.id_starts[i], rows.id_starts[i + 1], h)
        h = _hash(rows.texts, rows.text_starts[i], rows.text_starts[i + 1], h)
        result[i] = _end(h, rows.weights[i], rows.versions[i], rows.times[i])


@kernel
def checksum_row(seed, kind, id, text, weight, version, time):
    """One row, which is not worth arrays; see fill_checksums."""
    h = _hash(text, 0, len(text), _hash(id, 0, len(id), _step(seed, np.uint64(kind))))
    return _end(h, weight, version, time)


@kernel(inline="always")
def _end(h, weight, version, time):
    h = _step(_step(h, np.float64(weight).view(np.uint64)), np.uint64(version))
    return np.int64(_step(h, np.uint64(time)))


@kernel
def _number(content, start, end):
    """(the integer, whether it is one)."""
    at, negative = start, start < end and content[start] == 45
    if negative:
        at += 1
    value, good = np.uint64(0), at < end <= at + 19
    for k in range(at, end):
        digit = content[k] - 48
        good = good and 0 <= digit <= 9
        value = value * np.uint64(10) + np.uint64(digit)
    return np.int64(np.uint64(0) - value if negative else value), good


@kernel
def read_numbers(content, result):
    start = 0
    for i in range(len(result)):
        end = start
        while end < len(content) and content[end] != 44:
            end += 1
        result[i], good = _number(content, start, end)
        if not good:
            return False
        start = end + 1
    return start == len(content) + 1


@kernel
def split_into(content, kinds, starts, out):
    """Bytes of `out`; -1 if there are not as many parts as kinds, or an integer is none."""
    start = size = 0
    starts[0] = 0
    for i in range(len(kinds)):
        end = start
        if kinds[i] == STRING:
            while end < len(content) and content[end] != BETWEEN:
                out[size] = content[end]
                size += 1
                end += 1
        else:
            while end < len(content) and content[end] != BETWEEN:
                end += 1
            value, good = _number(content, start, end)
            if not good:
                return -1
            for k in range(8):
                out[size + k] = np.uint8(np.uint64(value) >> np.uint64(8 * k) & np.uint64(0xFF))
            size += 8
        starts[i + 1] = size
        start = end + 1
    return size if start == len(content) + 1 else -1


@kernel
def is_ascending(kinds, starts, ids):
    for i in range(1, len(kinds)):
        if kinds[i] != kinds[i - 1]:
            if kinds[i] < kinds[i - 1]:
                return False
            continue
        a, b, end = starts[i - 1], starts[i], starts[i + 1]
        if kinds[i] == INTEGER:
            if np.int64(word_at(ids, a)) >= np.int64(word_at(ids, b)):
                return False
            continue
        k = 0
        while a + k < b and b + k < end and ids[a + k] == ids[b + k]:
            k += 1
        if b + k == end or (a + k < b and ids[a + k] > ids[b + k]):
            return False
    return True
