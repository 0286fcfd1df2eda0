"""Which texts that templates have read are not what they say: where types are declared, constants may be converted."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dibs.language.expression import Kind
from dibs.language.scalars import fields_of, is_computed, scalar_of, split_mark
from dibs.language.table import Facet, Op, PredicateTable
from dibs.language.types import Types

_TEXTS = (Facet.REVERSED, Facet.PATTERN, Facet.NO_PATTERN)


def is_typed(name: str, types: Types) -> bool:
    """Whether an attribute has a declared type, or is computed from one that has."""
    return name in types or (
        is_computed(name) and any(split_mark(field)[1] in types for field in fields_of(scalar_of(name)))
    )


def rows_to_read_again(table: PredicateTable, types: Types) -> NDArray[np.int64]:
    """The rows with a constant of another kind than its attribute's, or with what is computed from such attributes."""
    wanted = np.full(len(table.attributes), _ANY, np.int8)
    for place, (name, facet) in enumerate(table.attributes):
        kind = types.kind_of(name)
        if kind is None:
            wanted[place] = _NONE if is_typed(name, types) else _ANY
        elif kind == Kind.STRING or facet not in _TEXTS:
            wanted[place] = kind
        else:
            wanted[place] = _NONE
    of_predicate = wanted[table.attribute]
    bad = of_predicate == _NONE
    # PATTERN has its constants among the texts of its own.
    of_literal = np.repeat(of_predicate, np.diff(table.literal_offsets))
    other = (of_literal >= 0) & (of_literal != table.kind)
    places = np.repeat(np.arange(len(table.attribute)), np.diff(table.literal_offsets))
    bad[places[other]] = True
    if types.domains:
        ends = [types.domains.get(name, (-np.inf, np.inf)) for name, _ in table.attributes]
        low, high = np.array(ends, np.float64).reshape(-1, 2).T
        own = table.attribute[places]
        outside = (table.number < low[own]) | (table.number > high[own]) | (np.floor(table.number) != table.number)
        bad[places[outside & np.isfinite(low[own]) & (table.kind == Kind.NUMBER)]] = True
    bad |= (table.operator == Op.STRING) & (of_predicate >= 0) & (of_predicate != Kind.STRING)
    rows = np.searchsorted(table.offsets, np.flatnonzero(bad), "right") - 1
    return np.unique(rows)


_ANY, _NONE = -1, -2  # of predicates: their attribute has no type; they are read again
