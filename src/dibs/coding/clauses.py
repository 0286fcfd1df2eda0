"""Coded subscriptions: each predicate is a short sorted list of closed spans of cells.

Rows and jumps are those of language.table. A predicate with one span has it in (lo, hi); with k > 1 spans, hi is -k
and lo is the first of its k entries in (span_lo, span_hi), which are sorted, disjoint and not adjacent; one that can
never hold has the empty span (1, 0). This is all that any index ever sees of a subscription.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dibs.arrays import runs as runs
from dibs.coding.clause_kernels import spans_of
from dibs.coding.constants import domains_of
from dibs.coding.domain import NUMBER_BASE, Domains
from dibs.language.expression import Kind
from dibs.language.table import ACCEPT, Facet, PredicateTable
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
    return domains, clauses_of(domains, table, attribute, cell)


def clauses_of(
    domains: Domains, table: PredicateTable, attribute: NDArray[np.int32], cell: NDArray[np.int32]
) -> Clauses:
    """The clauses of a table: attribute: of each predicate, in the domains; cell: of each literal."""
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
    return Clauses(
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


Domain = tuple[int, int]  # the least and the greatest value, both included


def code_declared(table: PredicateTable, declared: Mapping[str, Domain]) -> tuple[Domains, Clauses]:
    """The same where domains are declared (language.types): the cells of an attribute are its integers.

    An attribute that has no values but the integers from 0 to 5 gets the constants 1, 3 and 5, whatever its predicates
    mention; then the gaps between them are 0, 2 and 4, and every integer has a cell of its own: the cell of v is
    NUMBER_BASE + v - 0. That is half as many as with a gap round each constant, and all that searches cells stays as it
    is. Segments that are merged have the same constants of such an attribute. A cell holds one integer, however it is
    cut."""
    if not any(name in declared for name, _ in table.attributes):
        return code_clauses(table)
    plain, attribute, cell = domains_of(table)
    of_literal = np.repeat(attribute, np.diff(table.literal_offsets))
    offsets, value, rest, cell = _number_values(plain, cell, of_literal, table, declared)
    domains = replace(plain, number_offsets=offsets, number_value=value, number_rest=rest)
    return domains, clauses_of(domains, table, attribute, cell)


def _number_values(
    plain: Domains,
    cell: NDArray[np.int32],
    of_literal: NDArray[np.int32],
    table: PredicateTable,
    declared: Mapping[str, Domain],
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.int16], NDArray[np.int32]]:
    """The number constants, and the cell of each literal. An attribute with a constant that is none of its domain's
    integers (of an older version, say) keeps its constants."""
    attributes, offsets, value, rest = plain.attributes, plain.number_offsets, plain.number_value, plain.number_rest
    low, sizes, parts = np.zeros(len(attributes), np.int64), np.diff(offsets), []
    numbered = np.zeros(len(attributes), np.bool_)
    for place, (name, facet) in enumerate(attributes):
        own = value[offsets[place] : offsets[place + 1]]
        domain = declared.get(name) if facet == Facet.VALUE else None
        if domain is not None and _lie_within(own, rest[offsets[place] : offsets[place + 1]], domain):
            low[place], numbered[place] = domain[0], True
            own = np.arange(domain[0] + 1, domain[1] + 1, 2, dtype=np.float64)
        parts.append(own)
    new = np.zeros(len(attributes) + 1, np.int64)
    np.cumsum([len(part) for part in parts], out=new[1:])
    rests = np.zeros(new[-1], np.int16)
    if rest.any():
        for place in np.flatnonzero(~numbered).tolist():
            rests[new[place] : new[place + 1]] = rest[offsets[place] : offsets[place + 1]]
    further = (2 * (np.diff(new) - sizes)).astype(np.int32)  # strings and times move behind the numbers
    is_number = table.kind == Kind.NUMBER
    moved = np.where(is_number | (table.kind == Kind.BOOLEAN), 0, further[of_literal])
    there = is_number & numbered[of_literal]
    cell = cell + moved.astype(np.int32)
    cell[there] = NUMBER_BASE + (table.number[there] - low[of_literal[there]]).astype(np.int32)
    return new, np.concatenate([*parts, np.empty(0, np.float64)]), rests, cell


def _lie_within(value: NDArray[np.float64], rest: NDArray[np.int16], domain: Domain) -> bool:
    return bool(not rest.any() and ((value >= domain[0]) & (value <= domain[1]) & (np.floor(value) == value)).all())
