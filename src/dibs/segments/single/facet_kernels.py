"""The facets of strings for a single event (language.table.Facet): in reverse, as times, and as patterns."""

from __future__ import annotations

import numpy as np

from dibs.coding.arrange import STRING
from dibs.coding.domain import string_cell, time_text_cell
from dibs.coding.groups import TimeConstants
from dibs.coding.patterns.search_kernels import search_string
from dibs.jit.borrowing import array_at, number_at
from dibs.jit.kernel import phase
from dibs.jit.scanning import PADDING
from dibs.jit.sorting import sort_run
from dibs.segments.single.arrays import code_at, domain_at, facets_at, filter_at, find_at, patterns_at, programs_at
from dibs.segments.single.coding_kernels import add_entry
from dibs.segments.single.layout import ASKS_RE2, FACETS, REVERSED, SATISFIED, SET, FacetArrays

_SETS = FacetArrays._fields.index("sets")  # their place among the facets


@phase(inline=False)
def code_facets(plan, own, space, first, last):
    """Adds the entries of a layer's facets to those of its values, from `first` to `last`: where they end then, and
    whether each is one cell and the only one of its attribute. No place (-1): RE2 decides about a string, or they are
    too many."""
    found, facets, entries = find_at(space), facets_at(plan, own), code_at(space)
    room, points = len(entries.attribute), True
    for i in range(found.counts[0]):
        if found.kind[i] != STRING:
            continue
        name, s = found.name[i], found.key[i]
        start, end = found.starts[s], found.starts[s + 1]
        if len(facets.reversed) > 0 and facets.reversed[name] >= 0:
            if last >= room:
                return np.int64(-1), False
            a = np.int64(facets.reversed[name])
            cell = _reversed_cell(found.data, start, end, a, domain_at(plan, own), array_at(space, REVERSED, np.uint8))
            last, single = add_entry(entries, first, last, a, cell, cell)
            points = points and single
        if len(facets.times) > 0 and facets.times[name] >= 0:
            if last >= room:
                return np.int64(-1), False
            a = np.int64(facets.times[name])
            constants = TimeConstants(facets.time_offsets, facets.time_value, facets.time_base, facets.cells)
            cell = time_text_cell(found.data, start, end, a, constants)
            last, single = add_entry(entries, first, last, a, cell, cell)
            points = points and single
        for is_matching in (True, False):
            to = facets.matching if is_matching else facets.others
            if len(to) > 0 and to[name] >= 0:
                a = np.int64(to[name])
                if facets.set_of[a] == ASKS_RE2:
                    return np.int64(-1), False
                count = _search(plan, own, space, a, (start, end, found.data))
                if count < 0 or last + count + 1 > room:  # one more: the cells behind the last pattern
                    return np.int64(-1), False
                sort_run(array_at(space, SATISFIED, np.int32), 0, count)
                last, single = _add_patterns(space, first, last, a, count, facets.cells[a], is_matching)
                points = points and single
    return last, points


@phase
def _reversed_cell(data, start, end, a, domain, reversed):
    size = end - start
    for k in range(size):
        reversed[k] = data[end - 1 - k]
    for k in range(size, size + PADDING):
        reversed[k] = 0
    cell = string_cell(
        reversed,
        np.int64(0),
        size,
        domain.string_offsets[a],
        domain.string_offsets[a + 1],
        domain.string_starts,
        domain.string_bytes,
        domain.string_prefix,
    )
    return np.int64(domain.string_base[a]) + cell


@phase(inline=False)
def _search(plan, own, space, a, string):
    """How many patterns of an attribute the string has: they are left in the space, in the order of the search."""
    facets, satisfied = facets_at(plan, own), array_at(space, SATISFIED, np.int32)
    sets, at = number_at(plan, own + FACETS + _SETS), SET * np.int64(facets.set_of[a])
    return search_string(programs_at(sets, at), filter_at(sets, at), string, satisfied, patterns_at(space))


@phase(inline=False)
def _add_patterns(space, first, last, a, count, cells, is_matching):
    """The cells of what was found or, if not matching, those between them."""
    entries, satisfied, points = code_at(space), array_at(space, SATISFIED, np.int32), True
    at = np.int64(1)
    for k in range(count + 1):
        stop = np.int64(1 + satisfied[k]) if k < count else np.int64(cells)
        if is_matching and k < count:
            last, single = add_entry(entries, first, last, a, stop, stop)
            points = points and single
        elif not is_matching and at < stop:
            last, single = add_entry(entries, first, last, a, at, stop - 1)
            points = points and single
        at = stop + 1
    return last, points
