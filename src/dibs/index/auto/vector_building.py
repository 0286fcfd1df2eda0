"""Groups of clauses to vectors: segments of cells, the order of the clauses, the bits. See index.auto.vectors."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.coding.clauses import Clauses
from dibs.index.auto.vector_groups import NONE, Groups, sort_predicates
from dibs.index.auto.vector_layout import LANES, LINE, MOST_SLOTS, WORD, VectorArrays
from dibs.index.groups import ClauseArrays
from dibs.index.spans import count_spans, hull_of, nth_span
from dibs.jit.kernel import kernel, phase
from dibs.tuning import tuned

VECTOR_BYTES = tuned("vector_bytes", 32.0, 0.25, "bytes", "of vectors for a predicate; a part of it for further spans")

# Times vector_bytes, for each span of a list beyond the first; where lines are few, for a line is not too long then.
OF_A_SPAN, OF_FEW, FEW = 0.25, 2.0, 4 * LINE


class Segments(NamedTuple):
    """Those of all attributes: see index.auto.vectors."""

    of_cell: NDArray[np.int32]
    cells: NDArray[np.int64]
    count: NDArray[np.int64]  # type: ignore[assignment]  # by attribute; hides tuple.count, which nobody needs
    exact: NDArray[np.bool_]  # by attribute


def make_segments(clauses: Clauses, of_row: NDArray[np.int32], highest: NDArray[np.int32]) -> Segments:
    """Of the predicates of all rows that have a group."""
    own, n = ClauseArrays.of(clauses), clauses.attributes
    spans, predicates = _count_predicates(own, of_row, n)
    cells = np.zeros(n + 1, np.int64)
    np.cumsum(np.where(predicates > 0, highest + 2, 0), out=cells[1:])
    mean = spans / np.maximum(predicates, 1)
    of_span = np.where(predicates <= FEW, OF_FEW, OF_A_SPAN)
    bytes_each = VECTOR_BYTES.value * (1.0 + of_span * np.maximum(mean - 1, 0))
    most = np.maximum(WORD / 8 * bytes_each, 1).astype(np.int64)
    of_cell, count, exact = _make_segments(own, of_row, cells, most)
    return Segments(of_cell, cells, count, exact)


@kernel
def _count_predicates(clauses, of_row, attributes):
    """By attribute: spans of the predicates of the rows that have a group, and how many these are."""
    spans, predicates = np.zeros(attributes, np.int64), np.zeros(attributes, np.int64)
    for row in range(len(of_row)):
        if of_row[row] != NONE:
            for p in range(clauses.offsets[row], clauses.offsets[row + 1]):
                spans[clauses.attribute[p]] += count_spans(p, clauses)
                predicates[clauses.attribute[p]] += 1
    return spans, predicates


@kernel
def _make_segments(clauses, of_row, cells, most):
    covered, border = np.zeros(cells[-1], np.int32), np.zeros(cells[-1], np.bool_)
    _mark_spans(clauses, of_row, cells, covered, border)
    count, exact = np.zeros(len(most), np.int64), np.ones(len(most), np.bool_)
    of_cell = np.zeros(cells[-1], np.int32)
    _number_cells(cells, most, covered, border, of_cell, count, exact)
    return of_cell, count, exact


@phase(inline=False)
def _mark_spans(clauses, of_row, cells, covered, border):
    """covered: how many spans begin at a cell, less those that end before it; border: whether some do."""
    for row in range(len(of_row)):
        if of_row[row] != NONE:
            for p in range(clauses.offsets[row], clauses.offsets[row + 1]):
                base = cells[clauses.attribute[p]]
                for s in range(count_spans(p, clauses)):
                    x, y = nth_span(p, s, clauses)
                    if x <= y:
                        covered[base + x] += 1
                        covered[base + y + 1] -= 1
                        border[base + x] = border[base + y + 1] = True


@phase(inline=False)
def _number_cells(cells, most, covered, border, of_cell, count, exact):
    for a in range(len(most)):
        spans, n = np.int64(0), np.int64(0)
        for c in range(cells[a], cells[a + 1]):
            spans += covered[c]
            if border[c] and spans > 0:
                n += 1
            of_cell[c] = n if spans > 0 else -n
        count[a], exact[a] = min(n, most[a]), n <= most[a]
        if n > most[a]:  # neighbours share one, with the cells between them
            for c in range(cells[a], cells[a + 1]):
                at = np.int64(abs(of_cell[c]))
                here, after = _coarse(at, n, most[a]), _coarse(min(at + 1, n), n, most[a])
                inside = of_cell[c] > 0 or (here == after and at < n)
                of_cell[c] = here if inside else -here


@phase
def _coarse(segment, segments, most):
    """Grows by one at most from a segment to the next."""
    return (segment - 1) * most // segments + 1 if segment > 0 else np.int64(0)


def build_vectors(
    clauses: Clauses, groups: Groups, chosen: NDArray[np.bool_], presence: NDArray[np.float64],
    share: NDArray[np.float32], highest: NDArray[np.int32],
) -> dict[str, NDArray[Any]]:  # fmt: skip
    """See index.auto.vectors.Vectors.build."""
    numbers = np.flatnonzero(chosen)
    lists = [groups.attributes[groups.start[g] : groups.start[g + 1]] for g in numbers]
    filed = np.array([int(own[np.argmin(presence[own])]) for own in lists], np.int64)
    order = np.argsort(filed, kind="stable")
    numbers, lists = numbers[order], [lists[i] for i in order]
    place = np.full(len(groups) + 1, NONE, np.int32)  # the last one is NONE's
    place[numbers] = np.arange(len(numbers))
    of_row = place[groups.of_row]
    own = ClauseArrays.of(clauses)
    rows = np.flatnonzero(of_row != NONE)
    rows = rows[np.lexsort((_first_cells(own, of_row, rows, len(numbers), share), of_row[rows]))]
    start = np.concatenate([np.zeros(1, np.int64), np.cumsum(groups.rows[numbers])])
    lines = -(-groups.rows[numbers] // LINE)
    words = -(-lines // WORD)
    sizes = np.array([len(x) for x in lists], np.int64)
    slots = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    attributes = np.concatenate([np.empty(0, np.int32), *lists])
    segments = make_segments(clauses, of_row, highest)
    vectors = np.repeat(lines, sizes) * segments.count[attributes]
    summaries = np.repeat(words, sizes) * segments.count[attributes]
    layout = {
        "segment": segments.of_cell,
        "cells": segments.cells,
        "segments": np.concatenate([np.zeros(1, np.int64), np.cumsum(segments.count)]),
        "groups_of": np.searchsorted(filed[order], np.arange(clauses.attributes + 1)).astype(np.int32),
        "slots": slots.astype(np.int32),
        "slot_attribute": attributes,
        "slot_vector": np.cumsum(vectors) - vectors,
        "slot_summary": np.cumsum(summaries) - summaries,
        "lines": lines.astype(np.int32),
        "start": start,
        "row": rows.astype(np.int32),
        "exact": np.array([bool(segments.exact[x].all()) for x in lists], np.uint8),
    }
    layout["vectors"] = align_zeros(int(vectors.sum()) * len(LANES))
    layout["summaries"] = np.zeros(int(summaries.sum()), np.uint64)
    _fill(own, VectorArrays(**layout))
    return layout


def align_zeros(words: int) -> NDArray[np.uint64]:
    """Zeros from a cache line's start on: no line of a vector lies across two."""
    room = np.zeros(words + 8, np.uint64)
    skip = -room.ctypes.data // 8 % 8
    return room[skip : skip + words]


@kernel
def _first_cells(clauses, of_row, rows, groups, share):
    """Of each row, the first cell of its predicate in the slot of its group that holds for the fewest events."""
    total, own = np.zeros((groups, MOST_SLOTS), np.float64), np.empty(MOST_SLOTS, np.int64)
    result = np.empty(len(rows), np.int32)
    _add_shares(clauses, of_row, rows, share, total, own)
    for i in range(len(rows)):
        row = rows[i]
        sort_predicates(row, own, 0, clauses)
        best = 0
        for k in range(1, clauses.offsets[row + 1] - clauses.offsets[row]):
            if total[of_row[row], k] < total[of_row[row], best]:
                best = k
        result[i] = hull_of(own[best], clauses)[0]
    return result


@phase(inline=False)
def _add_shares(clauses, of_row, rows, share, total, own):
    for i in range(len(rows)):
        row = rows[i]
        sort_predicates(row, own, 0, clauses)
        for k in range(clauses.offsets[row + 1] - clauses.offsets[row]):
            total[of_row[row], k] += share[own[k]]


@kernel
def _fill(clauses, index):
    """Sets the bits of the vectors and summaries, which are zero; all else of the index is there."""
    own = np.empty(MOST_SLOTS, np.int64)
    for g in range(len(index.lines)):
        lines = np.int64(index.lines[g])
        for i in range(index.start[g], index.start[g + 1]):
            sort_predicates(np.int64(index.row[i]), own, 0, clauses)
            for slot in range(index.slots[g], index.slots[g + 1]):
                _set_bits(own[slot - index.slots[g]], i - index.start[g], slot, lines, clauses, index)
        words = (lines + WORD - 1) // WORD
        for slot in range(index.slots[g], index.slots[g + 1]):
            a = index.slot_attribute[slot]
            for s in range(index.segments[a + 1] - index.segments[a]):
                _summarize(index.slot_vector[slot] + s * lines, index.slot_summary[slot] + s * words, lines, index)


@phase(inline=False)
def _set_bits(p, bit, slot, lines, clauses, index):
    """The bit of a clause in the vectors of all segments that its predicate covers."""
    base, vector = index.cells[index.slot_attribute[slot]], index.slot_vector[slot]
    word, mask, behind = bit >> 6, np.uint64(1) << np.uint64(bit & 63), np.int64(0)
    for s in range(count_spans(p, clauses)):
        x, y = nth_span(p, s, clauses)
        if x <= y:
            first, last = np.int64(index.segment[base + x]), np.int64(abs(index.segment[base + y]))
            for k in range(max(first, behind), last + 1):
                index.vectors[(vector + (k - 1) * lines) * len(LANES) + word] |= mask
            behind = last + 1


@phase(inline=False)
def _summarize(vector, summary, lines, index):
    for line in range(lines):
        some = np.uint64(0)
        for k in range(len(LANES)):
            some |= index.vectors[(vector + line) * len(LANES) + k]
        if some != 0:
            index.summaries[summary + (line >> 6)] |= np.uint64(1) << np.uint64(line & 63)
