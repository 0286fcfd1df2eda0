"""How the arrays of bits are laid out: the numbers of predicates, and the clusters.

bits.py says what each array holds; these are the groups in which kernels get them.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.coding.clauses import Clauses, runs
from dibs.errors import IndexTooLarge
from dibs.index import operators
from dibs.index.base import refuse_too_many
from dibs.jit.groups import Clean, Columns, Saved, Sized
from dibs.jit.kernel import kernel

COLUMNS = 8
EQ, LE, GE, NE, SPANS, FIRST_SPAN, FLOOR, CEILING = range(COLUMNS)  # the columns of `groups`
GROUPS = SPANS + 1  # the first of them are groups of predicates
PLACE_BITS = 36  # of a place in `clusters`, in a word with the number of clauses under an access predicate
MOST_CLAUSES = (1 << 64 - PLACE_BITS) - 1


class Predicates(NamedTuple):
    """What the first phase reads."""

    groups: Annotated[NDArray[np.int32], Columns(COLUMNS)]
    key: NDArray[np.int32]
    span_begin: NDArray[np.int32]
    span_end: NDArray[np.int32]
    span_predicate: NDArray[np.int32]
    span_reach: NDArray[np.int32]


class Clusters(NamedTuple):
    """What the second phase reads, and what leads to it."""

    access: NDArray[np.uint64]
    rank: NDArray[np.int32]
    start: NDArray[np.int64]
    table: Annotated[NDArray[np.int32], Saved("clusters")]


class ClusterSpace(NamedTuple):
    """The work space of one call."""

    bits: Annotated[NDArray[np.uint64], Clean("words")]  # by predicate; zero between events, but for the true one
    hits: Annotated[NDArray[np.int32], Sized("accesses")]  # of one event: the satisfied access predicates
    # Of one event: the clauses whose first two predicates hold, each as a place in the first column of its table, and
    # above it (from bit PLACE_BITS on) how many clauses that table has, which is how far apart its columns are.
    survivors: Annotated[NDArray[np.uint64], Sized("survivors")]


def true_predicate(predicates: int) -> int:
    """The number of the predicate that always holds: it has a word of bits of its own, which is never cleared."""
    return -(-predicates // 64) * 64


def number_predicates(
    clauses: Clauses, example: NDArray[np.int64]
) -> tuple[NDArray[np.int32], NDArray[np.int32], dict[str, NDArray[Any]], NDArray[np.intp]]:
    """groups, key and the span arrays of the distinct predicates, and their order."""
    floor, ceiling = operators.limits(clauses)
    op = operators.operators(clauses, floor, ceiling)[example]
    attribute, lo, hi = clauses.attribute[example], clauses.lo[example], clauses.hi[example]
    group = np.full(len(op), SPANS)
    for code, column in ((operators.EQ, EQ), (operators.LE, LE), (operators.GE, GE), (operators.NE, NE)):
        group[op == code] = column
    constant = np.where(group == LE, hi, lo)
    several = hi < 0
    constant[several] = clauses.span_lo[lo[several]]
    holes = group == NE
    constant[holes] = clauses.span_hi[lo[holes]] + 1
    order = np.argsort((attribute.astype(np.int64) << 34) | (group << 31) | constant)
    attribute, group, lo, hi = attribute[order], group[order], lo[order], hi[order]

    general = np.flatnonzero(group == SPANS)
    count = np.where(hi[general] < 0, -hi[general].astype(np.int64), 1)
    predicate = np.repeat(general, count)
    begin, end = lo[predicate], hi[predicate]
    listed = np.flatnonzero(end < 0)
    side = runs(lo[general].astype(np.int64), count)[listed]
    begin[listed], end[listed] = clauses.span_lo[side], clauses.span_hi[side]
    sorted_ = np.argsort((attribute[predicate].astype(np.int64) << 31) | begin, kind="stable")
    begin, end, predicate = begin[sorted_], end[sorted_], predicate[sorted_].astype(np.int32)
    reach = np.maximum.reduceat(end, np.arange(0, len(end), 64)) if len(end) else end

    groups = np.zeros((clauses.attributes + 1, COLUMNS), np.int32)
    counts = np.bincount(attribute.astype(np.int64) * GROUPS + group, minlength=GROUPS * clauses.attributes)
    starts = np.zeros(GROUPS * (clauses.attributes + 1), np.int64)
    np.cumsum(counts, out=starts[1 : len(counts) + 1])
    starts[len(counts) + 1 :] = len(order)
    groups[:, :GROUPS] = starts.reshape(-1, GROUPS)
    np.cumsum(np.bincount(attribute[predicate], minlength=clauses.attributes), out=groups[1:, FIRST_SPAN])
    groups[:-1, FLOOR], groups[:-1, CEILING] = floor, ceiling
    spans: dict[str, NDArray[Any]] = {
        "span_begin": begin,
        "span_end": end,
        "span_predicate": predicate,
        "span_reach": reach,
    }
    return groups, constant[order].astype(np.int32), spans, order


def refuse_large_clusters(name: str, access: NDArray[np.int64], size: NDArray[np.int64]) -> None:
    """IndexTooLarge if what is under one access predicate cannot be numbered. access, size: of each row."""
    count = int(np.bincount(access).max(initial=0))
    if count > MOST_CLAUSES:
        advice = "use another index, such as 'auto', or options={'access': 'any'}"
        raise IndexTooLarge(name, count, MOST_CLAUSES, "clauses under one access predicate", advice)
    words = np.bincount(access, weights=4 + np.maximum(size - 3, 0))  # see lay_out_clusters
    refuse_too_many(name, int(words.max(initial=0)) + 2, "words of clauses under one access predicate")


@kernel
def lay_out_clusters(rows, own, first, size, accesses, true):
    """start and clusters of rows that are ordered by (access predicate, size)."""
    words = 2 * accesses
    for i in range(len(rows)):
        words += 4 + max(size[i] - 3, 0)
    start, clusters = np.empty(accesses + 1, np.int64), np.empty(words, np.int32)
    at, i, n = 0, 0, 0
    while i < len(rows):
        j = i
        while j < len(rows) and own[first[rows[j]]] == own[first[rows[i]]]:
            j += 1
        start[n] = at
        n += 1
        m = j - i
        clusters[at] = m
        first_other, second_other, row, begin = at + 1, at + 1 + m, at + 1 + 2 * m, at + 1 + 3 * m  # the columns
        others = begin + m + 1
        for c in range(m):
            r = rows[i + c]
            p, end = first[r] + 1, first[r] + size[r]
            clusters[first_other + c] = own[p] if p < end else true
            clusters[second_other + c] = own[p + 1] if p + 1 < end else true
            clusters[row + c] = r
            clusters[begin + c] = others - (begin + c)
            for q in range(p + 2, end):
                clusters[others] = own[q]
                others += 1
        clusters[begin + m] = others - (begin + m)
        at, i = others, j
    start[n] = at
    return start, clusters
