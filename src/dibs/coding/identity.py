"""Identity coding: the cells of attributes whose domain is declared (language.types) are its integers.

An attribute that has no values but the integers from 0 to 5 gets the constants 1, 3 and 5, whatever its predicates
mention; then the gaps between them are 0, 2 and 4, and every integer has a cell of its own: the cell of v is
NUMBER_BASE + v - 0. That is half as many as with a gap round each constant, and all that searches cells stays as it is.
Segments that are merged have the same constants of such an attribute. A cell holds one integer, however it is cut.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dibs.coding.clause_kernels import spans_of
from dibs.coding.clauses import Clauses, code_clauses
from dibs.coding.constants import domains_of
from dibs.coding.domain import NUMBER_BASE, Domains
from dibs.language.expression import Kind
from dibs.language.table import Facet, PredicateTable

Domain = tuple[int, int]  # the least and the greatest value, both included


def code_declared(table: PredicateTable, declared: Mapping[str, Domain]) -> tuple[Domains, Clauses]:
    """What coding.clauses makes of a table, where domains are declared."""
    if not any(name in declared for name, _ in table.attributes):
        return code_clauses(table)
    plain, attribute, cell = domains_of(table)
    of_literal = np.repeat(attribute, np.diff(table.literal_offsets))
    offsets, value, rest, cell = _number_values(plain, cell, of_literal, table, declared)
    domains = replace(plain, number_offsets=offsets, number_value=value, number_rest=rest)
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
