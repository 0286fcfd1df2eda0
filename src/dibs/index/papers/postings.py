"""Posting lists: for each attribute and cell the rows whose predicate holds there. Ranges are written out cell by cell.

The counting structures (index.counting, index.kindex) know equality only, so a range stands in the list of every cell
that it covers: price <= 580 has a posting for each cell up to that of 580. That makes matching plain (an event reads
one list for each of its values, and every posting in it is a predicate that holds) and memory the price: a posting
for each cell instead of one for each predicate. `write_out` counts before it allocates and refuses above a limit.

An inequality (<>, NOT IN, NOT BETWEEN) covers nearly all cells, so it is kept the other way round where that is
shorter: one posting in the list `any` of the attribute, which every event with a value of the right kind reads, and
one in an exclusion list for each cell that it does not cover. It holds when the row is in `any` and not excluded.

Lists are numbered  slot * groups + group:  a slot is an attribute's cell, a group whatever the structure tells rows
apart by (their size), so the lists of one cell stand side by side.

Arrays:
    block   int32   attributes x 3: first slot (+ cell); how many cells have slots (0: none); first exclusion slot,
                    -1 where the attribute has none. That slot is the list `any`, the one of cell c is 1 + c - floor
    limits  int32   attributes x 2: floor and ceiling, the cells from which to which `any` holds
    start   int32   lists + 1: where each list begins in rows (shared with the end of the list before)
    rows    uint32  the postings, ascending within a list (unsigned: as indices they need no test for negative ones)
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.coding.clauses import Clauses
from dibs.errors import IndexTooLarge
from dibs.jit.kernel import kernel

MOST_POSTINGS = 1_500_000_000  # postings and list starts together, 4 bytes each: 6 GB. Settable, below 2**31 - 2


class Postings(NamedTuple):
    """See above."""

    block: NDArray[np.int32]
    limits: NDArray[np.int32]
    start: NDArray[np.int32]
    rows: NDArray[np.uint32]

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self)

    def plan(self) -> dict[str, Any]:
        """Numbers worth seeing."""
        lengths = np.diff(self.start)
        return {
            "lists": int(np.count_nonzero(lengths)),
            "postings": len(self.rows),
            "longest list": int(lengths.max(initial=0)),
            "attributes with exclusions": int(np.count_nonzero(self.block[:, 2] >= 0)),
        }


def write_out(name: str, clauses: Clauses, group: NDArray[np.uint16], groups: int) -> Postings:
    """The posting lists of clauses whose rows have at most one predicate for each attribute. group: of each row, below
    `groups`; name: the index that asks, for the error when they would be too many."""
    c = clauses
    predicates = c.attribute, c.lo, c.hi, c.span_lo, c.span_hi
    limits = _inequality_limits(*predicates, c.attributes)
    excludes, cells, excluding, postings = _measure(*predicates, limits)
    slots = np.where(cells > 0, cells + 1, 0) + np.where(excluding, limits[:, 1] - limits[:, 0] + 2, 0)
    ends = np.cumsum(slots, dtype=np.int64)
    lists = int(ends[-1]) * groups if len(ends) else 0
    most = min(MOST_POSTINGS, 2**31 - 2)
    if postings + lists > most:
        raise IndexTooLarge(
            name,
            postings + lists,
            most,
            f"postings and list starts ({postings:,} and {lists:,}: ranges are written out cell by cell)",
            "use another index, such as 'auto', or raise dibs.index.papers.postings.MOST_POSTINGS (4 bytes each)",
        )
    first = ends - slots
    block = np.empty((c.attributes, 3), np.int32)
    block[:, 0] = first
    block[:, 1] = cells
    block[:, 2] = np.where(excluding, first + np.where(cells > 0, cells + 1, 0), -1)
    order, row = _by_attribute(c.offsets, c.attribute, c.attributes)
    start, rows = _fill(*predicates, excludes, limits, block, order, row, group, groups, lists, postings)
    return Postings(block, limits, start[:-1], rows)


@kernel
def _inequality_limits(attribute, lo, hi, span_lo, span_hi, attributes):
    """The least and the highest cell of predicates with several spans; inequalities reach from one to the other."""
    limits = np.empty((attributes, 2), np.int32)
    limits[:, 0], limits[:, 1] = 2**31 - 1, -1
    for p in range(len(attribute)):
        if hi[p] < 0:
            a = attribute[p]
            limits[a, 0] = min(limits[a, 0], span_lo[lo[p]])
            limits[a, 1] = max(limits[a, 1], span_hi[lo[p] - hi[p] - 1])
    return limits


@kernel
def _measure(attribute, lo, hi, span_lo, span_hi, limits):
    """Which predicates are kept as exclusions, how many cells of each attribute the others need, which attributes have
    exclusions, and how many postings all that takes."""
    excludes = np.zeros(len(attribute), np.bool_)
    cells, excluding = np.zeros(len(limits), np.int32), np.zeros(len(limits), np.bool_)
    postings = np.int64(0)
    for p in range(len(attribute)):
        a = attribute[p]
        if hi[p] >= 0:
            postings += hi[p] - lo[p] + 1
            cells[a] = max(cells[a], hi[p] + 1)
            continue
        first, last = lo[p], lo[p] - hi[p] - 1
        covered = np.int64(0)
        for s in range(first, last + 1):
            covered += span_hi[s] - span_lo[s] + 1
        as_exclusion = limits[a, 1] - limits[a, 0] + 1 - covered + 1
        if span_lo[first] == limits[a, 0] and span_hi[last] == limits[a, 1] and as_exclusion < covered:
            excludes[p] = excluding[a] = True
            postings += as_exclusion
        else:
            postings += covered
            cells[a] = max(cells[a], span_hi[last] + 1)
    return excludes, cells, excluding, postings


@kernel
def _by_attribute(offsets, attribute, attributes):
    """The predicates by attribute and, within one, by row; and the row of each. Lists are filled attribute by
    attribute so that the ends of all lists that grow at a time stay in the cache."""
    place = np.zeros(attributes + 1, np.int64)
    for a in attribute:
        place[a + 1] += 1
    for a in range(attributes):
        place[a + 1] += place[a]
    order, row = np.empty(len(attribute), np.int64), np.empty(len(attribute), np.int32)
    for r in range(len(offsets) - 1):
        for p in range(offsets[r], offsets[r + 1]):
            k = place[attribute[p]]
            order[k], row[k] = p, r
            place[attribute[p]] = k + 1
    return order, row


@kernel
def _fill(attribute, lo, hi, span_lo, span_hi, excludes, limits, block, order, row, group, groups, lists, postings):
    # Until the end, ends[i + 1] is where the next posting of list i goes; before that, ends[i + 2] counts them, and
    # before that it is the difference to the same group of the slot before. A block's last slot is never filled, so
    # differences come back to 0 there.
    ends = np.zeros(lists + 2, np.int32)
    for k in range(len(order)):
        p = order[k]
        a, g = attribute[p], np.int64(group[row[k]])
        i = block[a, 0] * np.int64(groups) + g + 2
        if hi[p] >= 0:
            ends[i + lo[p] * groups] += 1
            ends[i + (hi[p] + 1) * groups] -= 1
        elif not excludes[p]:
            for s in range(lo[p], lo[p] - hi[p]):
                ends[i + span_lo[s] * groups] += 1
                ends[i + (span_hi[s] + 1) * groups] -= 1
        else:
            i = block[a, 2] * np.int64(groups) + g + 2
            ends[i] += 1
            ends[i + groups] -= 1
            i += (1 - limits[a, 0]) * np.int64(groups)
            for s in range(lo[p], lo[p] - hi[p] - 1):
                ends[i + (span_hi[s] + 1) * groups] += 1
                ends[i + span_lo[s + 1] * groups] -= 1
    for i in range(groups + 2, lists + 2):
        ends[i] += ends[i - groups]
    for i in range(2, lists + 2):
        ends[i] += ends[i - 1]
    rows = np.empty(postings, np.uint32)
    for k in range(len(order)):
        p, r = order[k], np.uint32(row[k])
        a, g = attribute[p], np.int64(group[row[k]])
        spans = 1 if hi[p] >= 0 else -hi[p]
        i = block[a, 0] * np.int64(groups) + g + 1
        if excludes[p]:
            i = block[a, 2] * np.int64(groups) + g + 1
            rows[ends[i]] = r
            ends[i] += 1
            i += (1 - limits[a, 0]) * np.int64(groups)
            spans -= 1
        for s in range(spans):
            if hi[p] >= 0:
                low, high = lo[p], hi[p]
            elif excludes[p]:
                low, high = span_hi[lo[p] + s] + 1, span_lo[lo[p] + s + 1] - 1
            else:
                low, high = span_lo[lo[p] + s], span_hi[lo[p] + s]
            at = i + low * groups
            for _ in range(low, high + 1):
                rows[ends[at]] = r
                ends[at] += 1
                at += groups
    return ends, rows


@kernel
def slots_of(first, last, attribute, cell, block, limits, included, excluded):
    """The slots that an event with the entries first to last reads: (how many are in `included`, and in `excluded`)."""
    n, x = 0, 0
    for i in range(first, last):
        a, v = attribute[i], cell[i]
        if v < block[a, 1]:
            included[n] = block[a, 0] + v
            n += 1
        if block[a, 2] >= 0 and limits[a, 0] <= v and v <= limits[a, 1]:
            included[n] = block[a, 2]
            n += 1
            excluded[x] = block[a, 2] + 1 + v - limits[a, 0]
            x += 1
    return n, x
