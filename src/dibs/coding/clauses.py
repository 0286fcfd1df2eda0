"""Coded subscriptions: each predicate is a short sorted list of closed spans of cells.

Rows and jumps are those of language.table. A predicate with one span has it in (lo, hi); with k > 1 spans, hi is -k
and lo is the first of its k entries in (span_lo, span_hi), which are sorted, disjoint and not adjacent; one that can
never hold has the empty span (1, 0). This is all that any index ever sees of a subscription.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dibs.arrays import runs as runs
from dibs.coding.clause_kernels import spans_of
from dibs.coding.constants import domains_of
from dibs.coding.domain import Domains
from dibs.language.table import ACCEPT, PredicateTable
from dibs.lazy import lazy


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

    @lazy
    def ask_for_values(self) -> bool:
        """Whether none holds for an event that has no value for any of the attributes: all have predicates, none of
        these covers the cell of no value, and no program accepts because one of them does not hold."""
        nothing = (self.lo == 0) & (self.hi >= 0)
        return bool(
            np.diff(self.offsets).all()
            and not nothing.any()
            and self.span_lo.all()
            and not (self.on_false == ACCEPT).any()
        )

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


def concatenate_clauses(parts: Sequence[Clauses]) -> tuple[Clauses, NDArray[np.int64]]:
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


def code_clauses(table: PredicateTable) -> tuple[Domains, Clauses]:
    """Domains and coded clauses of a table."""
    domains, attribute, cell = domains_of(table)
    lo, hi, span_lo, span_hi = spans_of(
        table.operator,
        attribute,
        table.literal_offsets,
        table.kind,
        cell,
        domains.string_base,
        domains.time_base,
        domains.cells,
    )
    clauses = Clauses(
        offsets=table.offsets,
        attribute=attribute,
        lo=lo,
        hi=hi,
        span_lo=span_lo,
        span_hi=span_hi,
        on_true=table.on_true,
        on_false=table.on_false,
        conjunctions=table.conjunctions,
        attributes=len(domains.attributes),
    )
    return domains, clauses
