"""The kernels of language.rows: one simple text to a packed row, and packed rows to columns.

A packed row is a run of int64:

    0          the number of its predicates
    1          the number of its literals
    2 ...      for each predicate its operator + 256 * the number of its literals
    ...        for each literal its kind, the bits of its number, its integer (of a string: its place among the row's)
"""

from __future__ import annotations

import numpy as np

from dibs.jit.kernel import kernel
from dibs.language.bulk_kernels import ReadLiterals, ReadPredicates, parse_text
from dibs.language.expression import Kind
from dibs.language.table import Op

ABOVE = -1  # instead of an end: the least string above all that start with the one before
_STRING, _WITHIN = int(Kind.STRING), int(Op.WITHIN)


@kernel
def pack_text(data):
    """The packed row of a text, and where its names and then its strings start and end; both are empty for a text that
    is not simple."""
    room = len(data) // 2 + 1
    name_start, name_size, counts = np.empty(room, np.int64), np.empty(room, np.int32), np.empty(room, np.int32)
    operator, kind, string_size = np.empty(room, np.uint8), np.empty(room, np.uint8), np.empty(room, np.int32)
    number, integer = np.empty(room, np.float64), np.empty(room, np.int64)
    predicates, literals = parse_text(
        data,
        0,
        len(data),
        0,
        0,
        ReadPredicates(name_start, name_size, operator, counts),
        ReadLiterals(kind, number, integer, string_size),
    )
    if predicates < 0:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    strings, prefixes = 0, 0
    for i in range(literals):
        strings += kind[i] == _STRING
    for p in range(predicates):
        prefixes += operator[p] == _WITHIN
    packed = np.empty(2 + predicates + 3 * (literals + prefixes), np.int64)
    slices = np.empty(2 * (predicates + strings + prefixes), np.int64)
    packed[0], packed[1] = predicates, literals + prefixes
    bits = number.view(np.int64)
    i, at, cut, string = 0, 2 + predicates, 2 * predicates, 0
    for p in range(predicates):
        slices[2 * p], slices[2 * p + 1] = name_start[p], name_start[p] + name_size[p]
        within = operator[p] == _WITHIN
        packed[2 + p] = operator[p] + 256 * (2 if within else counts[p])
        for _ in range(counts[p]):
            packed[at], packed[at + 1], packed[at + 2] = kind[i], bits[i], integer[i]
            if kind[i] == _STRING:
                packed[at + 2] = string
                slices[cut], slices[cut + 1] = integer[i], integer[i] + string_size[i]
                string += 1
                cut += 2
            at += 3
            i += 1
        if within:
            packed[at], packed[at + 1], packed[at + 2] = _STRING, 0, string
            slices[cut], slices[cut + 1] = 0, ABOVE
            string += 1
            cut += 2
            at += 3
    return packed, slices


@kernel
def unpack_rows(packed, rows, texts):
    """Columns of a PredicateTable: (offsets, operator, literal_offsets, kind, number, integer). texts: the number of
    each string of all rows."""
    offsets = np.zeros(rows + 1, np.int64)
    literals, at = 0, 0
    for r in range(rows):
        offsets[r + 1] = offsets[r] + packed[at]
        literals += packed[at + 1]
        at += 2 + packed[at] + 3 * packed[at + 1]
    operator, literal_offsets = np.empty(offsets[-1], np.uint8), np.zeros(offsets[-1] + 1, np.int64)
    kind, number, integer = np.empty(literals, np.uint8), np.empty(literals, np.int64), np.empty(literals, np.int64)
    p, i, at, string = 0, 0, 0, 0
    for _ in range(rows):
        predicates, literals = packed[at], packed[at + 1]
        at += 2
        for _ in range(predicates):
            operator[p] = packed[at] & 255
            literal_offsets[p + 1] = literal_offsets[p] + (packed[at] >> 8)
            p += 1
            at += 1
        first = string
        for _ in range(literals):
            kind[i], number[i], integer[i] = packed[at], packed[at + 1], packed[at + 2]
            if kind[i] == _STRING:
                integer[i] = texts[first + integer[i]]
                string += 1
            i += 1
            at += 3
    return offsets, operator, literal_offsets, kind, number.view(np.float64), integer
