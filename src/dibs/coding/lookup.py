"""Constants by their hash: a value of an attribute is asked for its cell by equality alone, where that is enough.

A search among the sorted constants of an attribute finds the gap of a value that is none of them. Where every predicate
covers all gaps or none (=, <>, IN, NOT IN, IS NULL), any gap is as good as the right one, and one look into a table
takes the place of fifteen steps. Whether it is so is read off the clauses.

Most values are no constant at all, and a bit tells so: those bits stay in the caches, which the tables do not.

Made when the first large batch comes (see coding.batch.code_events); few values are not worth it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dibs.coding.domain import NUMBER_BASE, Domains
from dibs.coding.groups import Constants, Lookup
from dibs.coding.lookup_kernels import number_hash, put, string_hash
from dibs.jit.kernel import kernel, phase
from dibs.language.table import Facet
from dibs.tuning import tuned

if TYPE_CHECKING:
    from dibs.coding.clauses import Clauses

CONSTANTS_SEARCHED = tuned("constants_searched", 32, 0, "constants", "of an attribute, searched rather than looked up")

_WORDS, _FLAGS = np.zeros(2, np.uint64), np.zeros(0, np.uint8)
NOTHING = Lookup(_WORDS, _WORDS, _WORDS, _FLAGS, _FLAGS)  # all constants are searched


def lookup_of(domains: Domains, clauses: Clauses) -> Lookup:
    c = Constants.of(domains)
    numbers, strings = _find_unordered(
        clauses.attribute, clauses.lo, clauses.hi, clauses.span_lo, clauses.span_hi, c.string_base, c.time_base
    )
    of_numbers, of_strings = np.diff(c.number_offsets), np.diff(c.string_offsets)
    numbers &= of_numbers > CONSTANTS_SEARCHED.value
    numbers[np.repeat(np.arange(len(numbers)), of_numbers)[domains.number_rest != 0]] = 0
    strings &= (of_strings > CONSTANTS_SEARCHED.value) & (domains.facet == Facet.VALUE)
    if len(c.string_bytes) >= 2**32:
        strings[:] = 0
    if not numbers.any() and not strings.any():
        return NOTHING
    all_numbers, all_strings = of_numbers[numbers > 0].sum(), of_strings[strings > 0].sum()
    lookup = Lookup(_slots(all_numbers), _slots(all_strings), _likely(all_numbers + all_strings), numbers, strings)
    _fill(lookup, c)
    return lookup


def _slots(constants: int) -> NDArray[np.uint64]:
    """At most half of them will be taken."""
    return np.zeros(2 << int(2 * constants).bit_length(), np.uint64)


def _likely(constants: int) -> NDArray[np.uint64]:
    """8 to 16 bits for each."""
    return np.zeros(1 << max(int(8 * constants).bit_length() - 6, 0), np.uint64)


@kernel
def _find_unordered(attribute, lo, hi, span_lo, span_hi, string_base, time_base):
    """Of each attribute whether all predicates cover all gaps between its numbers, or none; and between its strings."""
    n = len(string_base)
    numbers, strings = np.ones(n, np.uint8), np.ones(n, np.uint8)
    for p in range(len(attribute)):
        a = attribute[p]
        middle, end = np.int64(string_base[a]), np.int64(time_base[a])
        first, last = np.int64(lo[p]), np.int64(lo[p]) + 1
        several = hi[p] < 0
        if several:
            last = first - hi[p]
        else:
            first, last = 0, 1
        of_numbers, of_strings = 0, 0
        for s in range(first, last):
            low, high = (np.int64(span_lo[s]), np.int64(span_hi[s])) if several else (np.int64(lo[p]), np.int64(hi[p]))
            of_numbers += _gaps(low, high, NUMBER_BASE, middle)
            of_strings += _gaps(low, high, middle, end)
        if of_numbers != 0 and of_numbers != _gaps(0, end, NUMBER_BASE, middle):
            numbers[a] = 0
        if of_strings != 0 and of_strings != _gaps(0, end, middle, end):
            strings[a] = 0
    return numbers, strings


@phase
def _gaps(low, high, first, end):
    """How many gaps of the section [first, end) are in the span: every second cell, from its first on."""
    low, high = max(low, first), min(high, end - 1)
    if low > high:
        return 0
    return ((high - first) >> 1) - ((low - first + 1) >> 1) + 1


@kernel
def _fill(lookup, c):
    _put_all(lookup, c)


@phase(inline=False)
def _put_all(lookup, c):
    for a in range(len(lookup.numbers)):
        if lookup.numbers[a]:
            for i in range(c.number_offsets[a], c.number_offsets[a + 1]):
                bits = np.float64(c.number_value[i]).view(np.int64)
                cell = NUMBER_BASE + 2 * (i - c.number_offsets[a]) + 1
                put(lookup, lookup.number_slots, number_hash(a, bits), np.uint64(bits), a, cell)
        if lookup.strings[a]:
            for i in range(c.string_offsets[a], c.string_offsets[a + 1]):
                h = string_hash(a, c.string_bytes, c.string_starts[i], c.string_starts[i + 1])
                cell = c.string_base[a] + 2 * (i - c.string_offsets[a]) + 1
                put(lookup, lookup.string_slots, h, h, c.string_starts[i], cell)
