"""The obvious evaluator: an expression and one event in plain Python. It is slow, short and the judge of every index.

    evaluate(expression, event, history)   TRUE, FALSE or UNKNOWN, as True, False or None
    matches(expression, event, history)    whether it is TRUE

`history` are the documents that joins speak of (joins.py).

It shares no code with the coding stage on purpose: two readings of the same rules have to agree.

NOT is pushed down to the predicates first: NOT (a = 1) means a <> 1. For single values that is plain three-valued
logic; over an array a = [1, 2] both a = 1 and a <> 1 hold, because for each of them there is an element.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from dibs.language.expression import Expression, attributes
from dibs.language.joins import join_of, joins_in, read_attributes
from dibs.language.present import Present
from dibs.language.types import NO_TYPES, Types
from dibs.reference.computed import with_computed
from dibs.reference.joins import join_values
from dibs.reference.predicates import holds_for, is_like, range_ends, satisfies, satisfying, truth_of
from dibs.reference.raw import raw_values
from dibs.reference.tree import children_first, truth_of_and, truth_of_or, truth_of_tree
from dibs.reference.typed import with_types
from dibs.reference.values import OfNoKind, ValuesByName, find_key, key_beside, key_of, values_of

__all__ = [
    "OfNoKind",
    "ValuesByName",
    "children_first",
    "evaluate",
    "find_key",
    "holds_for",
    "is_like",
    "key_beside",
    "key_of",
    "matches",
    "range_ends",
    "raw_values",
    "satisfies",
    "satisfying",
    "truth_of",
    "truth_of_and",
    "truth_of_or",
    "values_of",
    "with_computed",
    "with_types",
]


def matches(
    expression: Expression,
    event: Mapping[str, Any],
    history: Sequence[Mapping[str, Any]] = (),
    now: Present = None,
    types: Types = NO_TYPES,
) -> bool:
    """Whether the expression is TRUE for the event."""
    return evaluate(expression, event, history, now, types) is True


def evaluate(
    expression: Expression,
    event: Mapping[str, Any],
    history: Sequence[Mapping[str, Any]] = (),
    now: Present = None,
    types: Types = NO_TYPES,
) -> bool | None:
    """TRUE, FALSE or UNKNOWN (None). now: the time of the match (language.present). types: of attributes, where they
    are declared, which the expression was read with, too."""
    given = with_types(values_of(event), types)
    values: ValuesByName = {name: found for name, found in given.items() if name[:1] != "\0"}
    joins = {name: join_of(name) for name in joins_in(expression)}
    values = {**values, **raw_values(event, read_attributes(attributes(expression)))}
    asked = [*attributes(expression), *(name for join in joins.values() for name in join.event_attributes)]
    values = with_computed(values, asked, now)
    if joins:
        asked = [name for join in joins.values() for name in join.document_attributes]
        documents = [values_of_document(document, asked, types) for document in history]
        values = {**values, **{name: join_values(join, values, documents) for name, join in joins.items()}}
    return truth_of_tree(expression, partial(truth_of, values=values))


def values_of_document(document: Mapping[str, Any], asked: list[str], types: Types) -> ValuesByName:
    given = {**with_types(values_of(document), types), **raw_values(document, read_attributes(asked))}
    return with_computed(given, asked)
