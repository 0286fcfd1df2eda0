"""Coded subscriptions: each predicate is a short sorted list of closed spans of cells.

Rows and jumps are those of language.table. A predicate with one span has it in (lo, hi); with k > 1 spans, hi is -k
and lo is the first of its k entries in (span_lo, span_hi), which are sorted and disjoint; one that can never hold has
the empty span (1, 0). This is all that any index ever sees of a subscription.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dibs.coding.domain import Domains, domains_of
from dibs.language.expression import Kind
from dibs.language.table import Op, PredicateTable


@dataclass
class Clauses:
    """See above. `attributes` is the number of attributes of the domains."""

    offsets: NDArray[np.int64]  # rows + 1
    attribute: NDArray[np.int32]
    lo: NDArray[np.int32]
    hi: NDArray[np.int32]
    span_lo: NDArray[np.int32]
    span_hi: NDArray[np.int32]
    on_true: NDArray[np.int32]  # one for each predicate from offsets[conjunctions] on
    on_false: NDArray[np.int32]
    conjunctions: int
    attributes: int

    ARRAYS = ("offsets", "attribute", "lo", "hi", "span_lo", "span_hi", "on_true", "on_false")

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def nbytes(self) -> int:
        return sum(getattr(self, name).nbytes for name in self.ARRAYS)

    def take(self, rows: NDArray[np.int64]) -> Clauses:
        """Some rows, which are in order."""
        size = np.diff(self.offsets)[rows]
        offsets = np.zeros(len(rows) + 1, np.int64)
        np.cumsum(size, out=offsets[1:])
        steps = runs(self.offsets[rows], size)
        lo, hi = self.lo[steps], self.hi[steps]
        several = np.flatnonzero(hi < 0)
        counts = -hi[several].astype(np.int64)
        side = runs(lo[several].astype(np.int64), counts)
        lo[several] = np.cumsum(counts) - counts
        conjunctions = int(np.searchsorted(rows, self.conjunctions))
        jumps = steps[offsets[conjunctions] :] - self.offsets[self.conjunctions]
        return Clauses(
            offsets=offsets,
            attribute=self.attribute[steps],
            lo=lo,
            hi=hi,
            span_lo=self.span_lo[side],
            span_hi=self.span_hi[side],
            on_true=self.on_true[jumps],
            on_false=self.on_false[jumps],
            conjunctions=conjunctions,
            attributes=self.attributes,
        )


def concatenated(parts: Sequence[Clauses]) -> tuple[Clauses, NDArray[np.int64]]:
    """The clauses of several parts over the same domains as one, and for each row its place among all rows of the
    parts (conjunctions move to the front)."""
    bases = np.cumsum([0, *(len(p) for p in parts)])
    side = np.cumsum([0, *(len(p.span_lo) for p in parts)])
    places, sizes, pieces = [], [], []
    for programs in (False, True):
        for p, base, spans in zip(parts, bases, side):
            rows = slice(p.conjunctions, None) if programs else slice(0, p.conjunctions)
            cut = int(p.offsets[p.conjunctions])
            steps = slice(cut, None) if programs else slice(0, cut)
            lo, hi = p.lo[steps], p.hi[steps]
            places.append(base + np.arange(len(p))[rows])
            sizes.append(np.diff(p.offsets)[rows])
            pieces.append((p.attribute[steps], np.where(hi < 0, lo + spans, lo).astype(np.int32), hi))
    offsets = np.zeros(bases[-1] + 1, np.int64)
    np.cumsum(np.concatenate(sizes), out=offsets[1:])
    attribute, lo, hi = (np.concatenate([p[i] for p in pieces]) for i in range(3))
    joined = {n: np.concatenate([getattr(p, n) for p in parts]) for n in ("span_lo", "span_hi", "on_true", "on_false")}
    clauses = Clauses(
        offsets=offsets,
        attribute=attribute,
        lo=lo,
        hi=hi,
        **joined,
        conjunctions=sum(p.conjunctions for p in parts),
        attributes=max(p.attributes for p in parts),
    )
    return clauses, np.concatenate(places)


def runs(starts: NDArray[Any], sizes: NDArray[Any]) -> NDArray[np.int64]:
    """starts[0], starts[0] + 1, ... (sizes[0] of them), starts[1], ..."""
    first = np.repeat(starts - (np.cumsum(sizes) - sizes), sizes).astype(np.int64)
    return first + np.arange(len(first))


def code_clauses(table: PredicateTable) -> tuple[Domains, Clauses]:
    """Domains and coded clauses of a table."""
    domains, cell = domains_of(table)
    lo, hi, span_lo, span_hi = _spans(table, domains, cell)
    clauses = Clauses(
        offsets=table.offsets,
        attribute=table.attribute,
        lo=lo,
        hi=hi,
        span_lo=span_lo,
        span_hi=span_hi,
        on_true=table.on_true,
        on_false=table.on_false,
        conjunctions=table.conjunctions,
        attributes=len(table.attributes),
    )
    return domains, clauses


RANGES = {int(op) for op in (Op.BETWEEN, Op.WITHIN)}
OF_NO_VALUE = {int(op) for op in (Op.STRING, Op.IS_NULL, Op.NOT_NULL)}
SEVERAL = {int(op) for op in (Op.NE, Op.NOT_BETWEEN, Op.NOT_WITHIN, Op.IN, Op.NOT_IN)}  # that may have several spans


def _spans(table: PredicateTable, domains: Domains, cell: NDArray[np.int32]) -> tuple[NDArray[np.int32], ...]:
    op, attribute = table.operator, table.attribute
    present = set(np.flatnonzero(np.bincount(op)).tolist())  # small tables have few operators: most is passed over
    lo, hi = np.ones(len(op), np.int32), np.zeros(len(op), np.int32)
    at = np.minimum(table.literal_offsets[:-1], max(len(cell) - 1, 0))  # first literal, where there is one
    if len(cell):
        c = cell[at]
        first, last = domains.section(table.kind[at], attribute)
        for code, low, high in (
            (Op.EQ, c, c),
            (Op.PATTERN, c, c),
            (Op.LT, first, c - 1),
            (Op.LE, first, c),
            (Op.GT, c + 1, last),
            (Op.GE, c, last),
        ):
            if code in present:
                rows = np.flatnonzero(op == code)
                lo[rows], hi[rows] = low[rows], high[rows]
        if present & RANGES:
            rows = np.flatnonzero((op == Op.BETWEEN) | (op == Op.WITHIN))
            one_kind = table.kind[at[rows]] == table.kind[at[rows] + 1]
            lo[rows] = c[rows]
            hi[rows] = np.where(one_kind, cell[at[rows] + 1] - (op[rows] == Op.WITHIN), 0)
    if present & OF_NO_VALUE:
        rows = np.flatnonzero(op == Op.STRING)
        lo[rows], hi[rows] = domains.section(np.full(len(rows), int(Kind.STRING)), attribute[rows])
        rows = np.flatnonzero(op == Op.IS_NULL)
        lo[rows], hi[rows] = 0, 0
        rows = np.flatnonzero(op == Op.NOT_NULL)
        lo[rows], hi[rows] = 1, domains.cells[attribute[rows]] - 1
    empty = lo > hi
    lo[empty], hi[empty] = 1, 0

    if not present & SEVERAL:
        return lo, hi, np.empty(0, np.int32), np.empty(0, np.int32)
    several = np.flatnonzero(np.isin(op, list(SEVERAL)))
    owner, low, high = _several_spans(table, domains, cell, several)
    counts = np.bincount(owner, minlength=len(several)) if len(several) else np.zeros(0, np.int64)
    starts = np.concatenate([[0], np.cumsum(counts)])
    single, multiple = np.flatnonzero(counts == 1), np.flatnonzero(counts > 1)
    lo[several[single]], hi[several[single]] = low[starts[single]], high[starts[single]]
    keep = np.repeat(counts > 1, counts)
    side_starts = np.concatenate([[0], np.cumsum(counts[multiple])])
    lo[several[multiple]], hi[several[multiple]] = side_starts[:-1], -counts[multiple]
    return lo, hi, low[keep].astype(np.int32), high[keep].astype(np.int32)


def _several_spans(
    table: PredicateTable, domains: Domains, cell: NDArray[np.int32], rows: NDArray[np.int64]
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """The spans of predicates that may have several: (place in rows, lo, hi), sorted, disjoint and not adjacent."""
    op = table.operator[rows]
    starts, counts = table.literal_offsets[rows], np.diff(table.literal_offsets)[rows]
    group = np.repeat(np.arange(len(rows)), counts)
    literal = runs(starts, counts)
    c = cell[literal] if len(literal) else np.empty(0, np.int32)
    first, last = domains.section(table.kind[literal], table.attribute[rows][group]) if len(literal) else (c, c)
    code = op[group]
    is_first = np.arange(len(group)) == (np.cumsum(counts) - counts)[group] if len(group) else np.empty(0, np.bool_)
    pieces: list[tuple[Any, Any, Any]] = []

    def piece(mask: NDArray[np.bool_], low: Any, high: Any) -> None:
        pieces.append((group[mask], low[mask], high[mask]))

    piece(code == Op.IN, c, c)
    piece(code == Op.NE, first, c - 1)
    piece(code == Op.NE, c + 1, last)
    piece(np.isin(code, (Op.NOT_BETWEEN, Op.NOT_WITHIN)) & is_first, first, c - 1)
    piece((code == Op.NOT_BETWEEN) & ~is_first, c + 1, last)
    piece((code == Op.NOT_WITHIN) & ~is_first, c, last)

    # NOT IN: between neighbouring constants of one list lies a span, and one before the first and after the last.
    inside = np.flatnonzero(code == Op.NOT_IN)
    order = inside[np.lexsort((c[inside], group[inside]))]
    g, x = group[order], c[order]
    starts_list = np.concatenate([[True], g[1:] != g[:-1]]) if len(g) else np.empty(0, np.bool_)
    ends_list = np.concatenate([g[1:] != g[:-1], [True]]) if len(g) else np.empty(0, np.bool_)
    pieces.append((g, np.where(starts_list, first[order], np.concatenate([[0], x[:-1] + 1])[: len(x)]), x - 1))
    pieces.append((g[ends_list], x[ends_list] + 1, last[order][ends_list]))

    owner, low, high = (np.concatenate([p[i] for p in pieces]) for i in range(3))
    filled = low <= high
    return _merged(owner[filled], low[filled], high[filled])


def _merged(
    owner: NDArray[Any], low: NDArray[Any], high: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Spans sorted by (owner, low), with overlapping and adjacent ones of one owner joined."""
    order = np.lexsort((low, owner))
    owner, low, high = owner[order], low[order].astype(np.int64), high[order].astype(np.int64)
    if not len(owner):
        return owner, low, high
    # A running maximum of `high` within each owner: shift every owner's spans above all those before it.
    shift = owner.astype(np.int64) << 32
    reach = np.maximum.accumulate(high + shift)
    begins = np.concatenate([[True], (low + shift)[1:] > reach[:-1] + 1])
    ends = np.concatenate([np.flatnonzero(begins)[1:] - 1, [len(owner) - 1]])
    return owner[begins], low[begins], reach[ends] - shift[ends]
