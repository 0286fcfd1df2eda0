"""The kernel of coding.constants: it ranks the literals of each attribute and lays out the constants of the domains.

Literals are grouped by attribute and kind and sorted within their group by (key, tie). The key is an int64 in the order
of the values: of numbers the float's bits, of strings the first 8 bytes, of times the microseconds. The tie decides
between equal keys: of numbers it is the rest, of strings the text's number (then the bytes are compared; no text is
there twice, so equal strings have equal ties).
"""

from __future__ import annotations

import numpy as np

from dibs.coding.domain import NUMBER_BASE, bases, compare_bytes, prefix
from dibs.coding.groups import Ranked, Texts
from dibs.jit.hashing import number_pair, slots_for
from dibs.jit.kernel import kernel
from dibs.language.expression import Kind
from dibs.language.table import Facet

_BOOLEAN, _NUMBER, _STRING, _TIME = (int(k) for k in (Kind.BOOLEAN, Kind.NUMBER, Kind.STRING, Kind.TIME))
_PATTERN, _NO_PATTERN = int(Facet.PATTERN), int(Facet.NO_PATTERN)
_KINDS = 3  # that have constants: the group of a literal is _KINDS * attribute + kind - 1
_RUN = 12  # literals that are sorted by insertion
_LEAST = np.int64(-(2**63))
_MOST = np.int64(2**63 - 1)


@kernel
def lay_out(attribute, literal_offsets, kind, number, integer, facet, text_starts, text_bytes):
    """The constants of each attribute and the cell of each literal: (number offsets, values, rests, string offsets,
    starts, bytes, prefixes, time offsets, times, cells)."""
    ends, key, tie, row = _group(attribute, literal_offsets, kind, number, integer, len(facet), text_starts, text_bytes)
    rank = np.empty(len(kind), np.int32)
    number_offsets, string_offsets, time_offsets = _rank(ends, key, tie, row, rank, text_starts, text_bytes)

    number_bits, number_rest = np.empty(number_offsets[-1], np.int64), np.empty(number_offsets[-1], np.int16)
    time_value = np.empty(time_offsets[-1], np.int64)
    text, string_prefix = np.empty(string_offsets[-1], np.int32), np.empty(string_offsets[-1], np.uint64)
    for a in range(len(facet)):
        start = ends[_KINDS * a] - number_offsets[a]
        for i in range(number_offsets[a], number_offsets[a + 1]):
            b = key[start + i]
            number_bits[i] = b if b >= 0 else b ^ _MOST
            number_rest[i] = tie[start + i]
        start = ends[_KINDS * a + 1] - string_offsets[a]
        for i in range(string_offsets[a], string_offsets[a + 1]):
            text[i] = tie[start + i]
            string_prefix[i] = np.uint64(key[start + i]) ^ np.uint64(_LEAST)
        start = ends[_KINDS * a + 2] - time_offsets[a]
        for i in range(time_offsets[a], time_offsets[a + 1]):
            time_value[i] = key[start + i]
    string_starts, string_bytes = _copy(text, text_starts, text_bytes)

    string_base, time_base, _ = bases(facet, number_offsets, string_offsets, time_offsets)
    _to_cells(rank, attribute, literal_offsets, kind, integer, facet, string_base, time_base)
    return (
        number_offsets,
        number_bits.view(np.float64),
        number_rest,
        string_offsets,
        string_starts,
        string_bytes,
        string_prefix,
        time_offsets,
        time_value,
        rank,
    )


@kernel
def _group(attribute, literal_offsets, kind, number, integer, attributes, text_starts, text_bytes):
    """(ends, key, tie, row): group g is [ends[g], ends[g + 1]) of the others; row is the literal."""
    ends = np.zeros(_KINDS * attributes + 1, np.int64)
    for p in range(len(attribute)):
        for i in range(literal_offsets[p], literal_offsets[p + 1]):
            if kind[i] != _BOOLEAN:
                ends[_KINDS * attribute[p] + kind[i]] += 1
    for g in range(_KINDS * attributes):
        ends[g + 1] += ends[g]
    key, tie, row = np.empty(ends[-1], np.int64), np.empty(ends[-1], np.int32), np.empty(ends[-1], np.int32)
    fill = ends[:-1].copy()
    bits = number.view(np.int64)
    for p in range(len(attribute)):
        for i in range(literal_offsets[p], literal_offsets[p + 1]):
            k = kind[i]
            if k == _BOOLEAN:
                continue
            g = _KINDS * attribute[p] + k - 1
            at = fill[g]
            fill[g] += 1
            row[at] = i
            if k == _TIME:
                key[at], tie[at] = integer[i], 0
                continue
            tie[at] = integer[i]
            if k == _STRING:
                head = prefix(text_bytes, text_starts[integer[i]], text_starts[integer[i] + 1])
                key[at] = np.int64(head ^ np.uint64(_LEAST))
            else:
                b = bits[i] if bits[i] != _LEAST else np.int64(0)  # -0.0 is 0.0
                key[at] = b if b >= 0 else b ^ _MOST
    return ends, key, tie, row


@kernel
def _rank(ends, key, tie, row, rank, text_starts, text_bytes):
    """Moves the distinct (key, tie) of each group to its front, sorted, writes each literal's place among them to
    `rank`, and returns how many numbers, strings and times the attributes have, as offsets."""
    largest = 0
    for g in range(len(ends) - 1):
        largest = max(largest, ends[g + 1] - ends[g])
    local, who, place = np.empty(largest, np.int32), np.empty(largest, np.int32), np.empty(largest, np.int32)
    room = largest if largest > _RUN else 0
    half = Ranked(np.empty(room, np.int64), np.empty(room, np.int32), np.empty(room, np.int32))
    texts = Texts(text_starts, text_bytes)
    slots = np.empty(slots_for(room), np.int32)
    attributes = len(ends) // _KINDS
    offsets = np.zeros((_KINDS, attributes + 1), np.int64)
    for g in range(len(ends) - 1):
        a, k = g // _KINDS, g % _KINDS
        start, end = ends[g], ends[g + 1]
        offsets[k, a + 1] = offsets[k, a]
        if start == end:
            continue
        strings = k == _STRING - 1
        own_key, own_tie = key[start:end], tie[start:end]
        count = _fewer(own_key, own_tie, local, slots)
        for i in range(count):
            who[i] = i
        _sort(count, Ranked(own_key, own_tie, who), half, strings, texts)
        distinct = 0
        for i in range(count):
            d = distinct - 1
            if distinct == 0 or own_key[d] != own_key[i] or own_tie[d] != own_tie[i]:
                own_key[distinct], own_tie[distinct] = own_key[i], own_tie[i]
                distinct += 1
            place[who[i]] = distinct - 1
        for i in range(end - start):
            rank[row[start + i]] = place[local[i]]
        offsets[k, a + 1] += distinct
    return offsets[0].copy(), offsets[1].copy(), offsets[2].copy()


@kernel
def _copy(text, text_starts, text_bytes):
    """(starts, bytes) of some texts."""
    starts = np.zeros(len(text) + 1, np.int64)
    for i in range(len(text)):
        starts[i + 1] = starts[i] + text_starts[text[i] + 1] - text_starts[text[i]]
    data = np.empty(starts[-1], np.uint8)
    for i in range(len(text)):
        start = text_starts[text[i]] - starts[i]
        for k in range(starts[i], starts[i + 1]):
            data[k] = text_bytes[start + k]
    return starts, data


@kernel
def _to_cells(rank, attribute, literal_offsets, kind, integer, facet, string_base, time_base):
    """Puts the cell of each literal in the place of its rank."""
    for p in range(len(attribute)):
        a = attribute[p]
        for i in range(literal_offsets[p], literal_offsets[p + 1]):
            k = kind[i]
            if k == _BOOLEAN:
                rank[i] = 1 + integer[i]
            elif k == _NUMBER:
                rank[i] = NUMBER_BASE + 2 * rank[i] + 1
            elif k == _TIME:
                rank[i] = time_base[a] + 2 * rank[i] + 1
            elif facet[a] == _PATTERN or facet[a] == _NO_PATTERN:
                rank[i] += string_base[a]
            else:
                rank[i] = string_base[a] + 2 * rank[i] + 1


@kernel
def _below(key, tie, other_key, other_tie, strings, texts):
    if key != other_key or tie == other_tie:
        return key < other_key
    if not strings:
        return tie < other_tie
    starts, data = texts
    start, end, other, other_end = starts[tie], starts[tie + 1], starts[other_tie], starts[other_tie + 1]
    return compare_bytes(data, start, end, data, other, other_end) < 0


@kernel
def _fewer(key, tie, local, slots):
    """Moves the distinct (key, tie) to the front, in order of appearance, and returns their number; `local` says which
    is which. Few are left as they are: sorting them is quicker."""
    n = len(key)
    if n <= _RUN:
        for i in range(n):
            local[i] = i
        return n
    own = slots[: slots_for(n)]
    own[:] = 0
    distinct = 0
    for i in range(n):
        local[i] = number_pair(key[i], tie[i], key, tie, own, distinct)
        distinct += local[i] == distinct
    return distinct


@kernel
def _sort(n, ranked, half, strings, texts):
    """Sorts the first n by (key, tie): short runs by insertion, then two and two are merged. The lower half of a merge
    moves to `half` first."""
    key, tie, who = ranked
    other_key, other_tie, other_who = half
    for a in range(0, n, _RUN):
        for i in range(a + 1, min(a + _RUN, n)):
            x, y, z = key[i], tie[i], who[i]
            j = i
            while j > a and _below(x, y, key[j - 1], tie[j - 1], strings, texts):
                key[j], tie[j], who[j] = key[j - 1], tie[j - 1], who[j - 1]
                j -= 1
            key[j], tie[j], who[j] = x, y, z
    width = _RUN
    while width < n:
        for a in range(0, n - width, 2 * width):
            middle, last = a + width, min(a + 2 * width, n)
            d = middle - 1
            if not _below(key[middle], tie[middle], key[d], tie[d], strings, texts):
                continue
            for i in range(width):
                other_key[i], other_tie[i], other_who[i] = key[a + i], tie[a + i], who[a + i]
            i, j, at = 0, middle, a
            while i < width:
                if j < last and _below(key[j], tie[j], other_key[i], other_tie[i], strings, texts):
                    key[at], tie[at], who[at] = key[j], tie[j], who[j]
                    j += 1
                else:
                    key[at], tie[at], who[at] = other_key[i], other_tie[i], other_who[i]
                    i += 1
                at += 1
        width *= 2
