"""The facets of strings for a single event (language.table.Facet): in reverse, as times, and as patterns."""

from __future__ import annotations

import numpy as np

from dibs.coding.arrange import STRING
from dibs.coding.domain import string_cell, time_text_cell
from dibs.coding.patterns.search_kernels import search_string
from dibs.jit.group_at import part_at
from dibs.jit.kernel import phase
from dibs.jit.scanning import PADDING
from dibs.jit.sorting import sort_run
from dibs.segments.single.coding_kernels import add_entry
from dibs.segments.single.tables import ASKS_RE2, SET, LayerTable, SetOfPatterns, Space


@phase(inline=False)
def code_facets(layer, space, first, last):
    """Adds the entries of a layer's facets to those of its values, from `first` to `last`: where they end then, and
    whether each is one cell and the only one of its attribute. No place (-1): RE2 decides about a string, or they are
    too many."""
    found, facets = part_at(space, Space, "values.found"), part_at(layer, LayerTable, "facets")
    entries, satisfied = part_at(space, Space, "events"), part_at(space, Space, "satisfied")
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
            strings, copy = part_at(layer, LayerTable, "domain.strings"), part_at(space, Space, "reversed")
            cell = _reversed_cell(found.data, start, end, a, strings, copy)
            last, single = add_entry(entries, first, last, a, cell, cell)
            points = points and single
        if len(facets.times) > 0 and facets.times[name] >= 0:
            if last >= room:
                return np.int64(-1), False
            a = np.int64(facets.times[name])
            cell = time_text_cell(found.data, start, end, a, facets.constants)
            last, single = add_entry(entries, first, last, a, cell, cell)
            points = points and single
        for is_matching in (True, False):
            to = facets.matching if is_matching else facets.others
            if len(to) > 0 and to[name] >= 0:
                a = np.int64(to[name])
                if facets.set_of[a] == ASKS_RE2:
                    return np.int64(-1), False
                count = _search(facets.sets + SET * facets.set_of[a], space, (start, end, found.data))
                if count < 0 or last + count + 1 > room:  # one more: the cells behind the last pattern
                    return np.int64(-1), False
                sort_run(satisfied, 0, count)
                cells = facets.constants.cells[a]
                last, single = _add_patterns(space, first, last, a, count, cells, is_matching)
                points = points and single
    return last, points


@phase
def _reversed_cell(data, start, end, a, strings, reversed):
    size = end - start
    for k in range(size):
        reversed[k] = data[end - 1 - k]
    for k in range(size, size + PADDING):
        reversed[k] = 0
    cell = string_cell(
        reversed,
        np.int64(0),
        size,
        strings.offsets[a],
        strings.offsets[a + 1],
        strings.starts,
        strings.data,
        strings.prefix,
    )
    return np.int64(strings.base[a]) + cell


@phase(inline=False)
def _search(patterns, space, string):
    """How many patterns of a set the string has: they are left in the space, in the order of the search."""
    programs, filed = part_at(patterns, SetOfPatterns, "programs"), part_at(patterns, SetOfPatterns, "filter")
    return search_string(programs, filed, string, part_at(space, Space, "satisfied"), part_at(space, Space, "patterns"))


@phase(inline=False)
def _add_patterns(space, first, last, a, count, cells, is_matching):
    """The cells of what was found or, if not matching, those between them."""
    entries, satisfied, points = part_at(space, Space, "events"), part_at(space, Space, "satisfied"), True
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
