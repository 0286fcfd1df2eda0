"""Posting lists: for each attribute and cell the rows whose predicate holds there. Ranges are written out cell by cell.

Counting and K-index (structures.counting, .kindex) know equality only, so a range stands in the list of every cell
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
from dibs.index.groups import ClauseArrays
from dibs.jit.kernel import kernel, phase

FIRST, CELLS, EXCLUSIONS = range(3)  # the columns of block
FLOOR, CEILING = range(2)  # the columns of limits
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
            "attributes with exclusions": int(np.count_nonzero(self.block[:, EXCLUSIONS] >= 0)),
        }


class SlotsRead(NamedTuple):
    """Work space: the slots that an event reads. `slots_of` fills both from the front and says how far."""

    included: NDArray[np.int64]  # rows in their lists have a predicate that holds
    excluded: NDArray[np.int64]  # rows in their lists stand in an included `any`, but their predicate does not hold

    @classmethod
    def for_events(cls, widest: int) -> SlotsRead:
        """widest: the most values that an event has. A value reads the list of its cell, `any` and one exclusion."""
        return cls(np.empty(2 * widest, np.int64), np.empty(widest, np.int64))


class _Kept(NamedTuple):
    """How `_measure` would keep the predicates."""

    excludes: NDArray[np.bool_]  # by predicate: as an exclusion
    limits: NDArray[np.int32]  # see above


class _PredicateEntries(NamedTuple):
    """The predicates by attribute and, within one, by row."""

    predicate: NDArray[np.int64]
    row: NDArray[np.int32]


def write_out(name: str, clauses: Clauses, group: NDArray[np.uint16], groups: int) -> Postings:
    """The posting lists of clauses whose rows have at most one predicate for each attribute. group: of each row, below
    `groups`; name: the index that asks, for the error when they would be too many."""
    arrays = ClauseArrays.of(clauses)
    limits = _inequality_limits(arrays, clauses.attributes)
    excludes, cells, excluding, postings = _measure(arrays, limits)
    own_slots = np.where(cells > 0, cells + 1, 0)
    slots = own_slots + np.where(excluding, limits[:, CEILING] - limits[:, FLOOR] + 2, 0)
    ends = np.cumsum(slots, dtype=np.int64)
    lists = int(ends[-1]) * groups if len(ends) else 0
    most = min(MOST_POSTINGS, 2**31 - 2)
    if postings + lists > most:
        raise IndexTooLarge(
            name,
            postings + lists,
            most,
            f"postings and list starts ({postings:,} and {lists:,}: ranges are written out cell by cell)",
            "use another index, such as 'auto', or raise dibs.papers.structures.postings.MOST_POSTINGS (4 bytes each)",
        )
    first = ends - slots
    block = np.empty((clauses.attributes, 3), np.int32)
    block[:, FIRST] = first
    block[:, CELLS] = cells
    block[:, EXCLUSIONS] = np.where(excluding, first + own_slots, -1)
    entries = _PredicateEntries(*_by_attribute(arrays, clauses.attributes))
    kept = _Kept(excludes, limits)
    ends_of_lists = _count_postings(arrays, kept, block, entries, group, groups, lists)
    rows = np.empty(postings, np.uint32)
    _write_postings(arrays, kept, block, entries, group, groups, ends_of_lists, rows)
    return Postings(block, limits, ends_of_lists[:-1], rows)


@kernel
def _inequality_limits(clauses, attributes):
    """The least and the highest cell of predicates with several spans; inequalities reach from one to the other."""
    _, attribute, lo, hi, span_lo, span_hi = clauses
    limits = np.empty((attributes, 2), np.int32)
    limits[:, FLOOR], limits[:, CEILING] = 2**31 - 1, -1
    for p in range(len(attribute)):
        if hi[p] < 0:
            a = attribute[p]
            limits[a, FLOOR] = min(limits[a, FLOOR], span_lo[lo[p]])
            limits[a, CEILING] = max(limits[a, CEILING], span_hi[lo[p] - hi[p] - 1])
    return limits


@kernel
def _measure(clauses, limits):
    """Which predicates are kept as exclusions, how many cells of each attribute the others need, which attributes have
    exclusions, and how many postings all that takes."""
    _, attribute, lo, hi, span_lo, span_hi = clauses
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
        floor, ceiling = limits[a, FLOOR], limits[a, CEILING]
        covered = np.int64(0)
        for s in range(first, last + 1):
            covered += span_hi[s] - span_lo[s] + 1
        as_exclusion = ceiling - floor + 1 - covered + 1
        if span_lo[first] == floor and span_hi[last] == ceiling and as_exclusion < covered:
            excludes[p] = excluding[a] = True
            postings += as_exclusion
        else:
            postings += covered
            cells[a] = max(cells[a], span_hi[last] + 1)
    return excludes, cells, excluding, postings


@kernel
def _by_attribute(clauses, attributes):
    """_PredicateEntries. Lists are filled attribute by attribute so that the ends of all lists that grow at a time stay
    in the cache."""
    offsets, attribute = clauses.offsets, clauses.attribute
    place = np.zeros(attributes + 1, np.int64)
    for a in attribute:
        place[a + 1] += 1
    for a in range(attributes):
        place[a + 1] += place[a]
    predicate, row = np.empty(len(attribute), np.int64), np.empty(len(attribute), np.int32)
    for r in range(len(offsets) - 1):
        for p in range(offsets[r], offsets[r + 1]):
            k = place[attribute[p]]
            predicate[k], row[k] = p, r
            place[attribute[p]] = k + 1
    return predicate, row


@kernel(inline="always")
def _list_any(block, a, groups, g):
    """The list `any` of an attribute, for rows of a group."""
    return block[a, EXCLUSIONS] * np.int64(groups) + g


@kernel(inline="always")
def _list_excluding(block, limits, a, groups, g):
    """The exclusion list that cell 0 would have; that of cell c is c * groups behind it."""
    return (block[a, EXCLUSIONS] + 1 - np.int64(limits[a, FLOOR])) * np.int64(groups) + g


@kernel(inline="always")
def _list_including(block, a, groups, g):
    """The list of an attribute's cell 0, for rows of a group; that of cell c is c * groups behind it."""
    return block[a, FIRST] * np.int64(groups) + g


@kernel
def _count_postings(clauses, kept, block, entries, group, groups, lists):
    """ends: ends[i + 1] is where the first posting of list i goes. Until the end, ends[i + 2] counts the postings of
    list i, and before that it is the difference to the same group of the slot before. A block's last slot is never
    filled, so differences come back to 0 there."""
    _, attribute, lo, hi, span_lo, span_hi = clauses
    excludes, limits = kept
    ends = np.zeros(lists + 2, np.int32)
    for k in range(len(entries.predicate)):
        p = entries.predicate[k]
        a, g = attribute[p], np.int64(group[entries.row[k]])
        i = _list_including(block, a, groups, g) + 2
        if hi[p] >= 0:
            ends[i + lo[p] * groups] += 1
            ends[i + (hi[p] + 1) * groups] -= 1
        elif not excludes[p]:
            for s in range(lo[p], lo[p] - hi[p]):
                ends[i + span_lo[s] * groups] += 1
                ends[i + (span_hi[s] + 1) * groups] -= 1
        else:
            i = _list_any(block, a, groups, g) + 2
            ends[i] += 1
            ends[i + groups] -= 1
            i = _list_excluding(block, limits, a, groups, g) + 2
            for s in range(lo[p], lo[p] - hi[p] - 1):
                ends[i + (span_hi[s] + 1) * groups] += 1
                ends[i + span_lo[s + 1] * groups] -= 1
    for i in range(groups + 2, lists + 2):
        ends[i] += ends[i - groups]
    for i in range(2, lists + 2):
        ends[i] += ends[i - 1]
    return ends


@kernel
def _write_postings(clauses, kept, block, entries, group, groups, ends, rows):
    """Fills the lists. Before, ends[i + 1] is where list i begins; afterwards, where it ends."""
    _, attribute, lo, hi, span_lo, span_hi = clauses
    excludes, limits = kept
    for k in range(len(entries.predicate)):
        p, r = entries.predicate[k], np.uint32(entries.row[k])
        a, g = attribute[p], np.int64(group[r])
        spans = 1 if hi[p] >= 0 else -hi[p]
        i = _list_including(block, a, groups, g) + 1
        if excludes[p]:
            i = _list_any(block, a, groups, g) + 1
            rows[ends[i]] = r
            ends[i] += 1
            i = _list_excluding(block, limits, a, groups, g) + 1
            spans -= 1  # what is excluded lies between the spans
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


@phase
def slots_of(events, e, postings, slots):
    """The slots that event e reads: (how many are in `included`, and in `excluded`)."""
    attribute, cell, block, limits = events.attribute, events.lo, postings.block, postings.limits
    included, excluded = slots
    n, x = 0, 0
    for i in range(events.offsets[e], events.offsets[e + 1]):
        a, v = attribute[i], cell[i]
        if v < block[a, CELLS]:
            included[n] = block[a, FIRST] + v
            n += 1
        if block[a, EXCLUSIONS] >= 0 and limits[a, FLOOR] <= v and v <= limits[a, CEILING]:
            included[n] = block[a, EXCLUSIONS]
            n += 1
            excluded[x] = block[a, EXCLUSIONS] + 1 + v - limits[a, FLOOR]
            x += 1
    return n, x
