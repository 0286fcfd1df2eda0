"""Joins over history in plain Python: every document is looked at. The judge of dibs.history, with which it shares no
code but the language.

    join_values(join, values, documents)   what the attribute that stands for the join has for values: [True] or [False]
                                           for a condition, the number for COUNT and SUM, for MIN and MAX one value of
                                           each kind, for MAX_BY the values of the last document

`values` and `documents` are what reference.values_of makes of the event and of the documents.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from dibs.coding.values import Range
from dibs.language.expression import FLIPPED_OPERATOR, NEGATED_OPERATOR, Expression, Kind, PairCompare, Predicate
from dibs.language.joins import (
    COUNT,
    COUNT_DISTINCT,
    EXISTS,
    MAX_BY,
    MIN,
    TOTALS,
    Join,
    join_within,
    read_of_pair,
)
from dibs.language.pairing import NOW, name_in_pair
from dibs.language.printer import PAIRED, is_paired
from dibs.reference.computed import with_computed
from dibs.reference.predicates import range_ends, truth_of
from dibs.reference.totals import total
from dibs.reference.tree import truth_of_tree
from dibs.reference.values import OfNoKind, ValuesByName, find_key, key_beside


def join_values(join: Join, values: ValuesByName, documents: Iterable[ValuesByName]) -> list[Any]:
    every = list(documents)
    return values_of_found(join, values, [document for document in every if is_met(join, values, document, every)])


def values_of_found(join: Join, values: ValuesByName, found: list[ValuesByName]) -> list[Any]:
    """The same, where these are the documents that satisfy the condition."""
    if join.function == EXISTS:
        return [bool(found)]
    return compared(join, values, result_of(join, found))


def result_of(join: Join, found: list[ValuesByName]) -> list[Any]:
    """What is found, before that is compared with the event."""
    if join.function == COUNT:
        return [len(found)]
    if join.function in (*TOTALS, COUNT_DISTINCT):
        return total(join, found)
    return end(join, found) if join.by else extremes(join, found)


def compared(join: Join, values: ValuesByName, result: list[Any]) -> list[Any]:
    """The result, or what comes of comparing it with the event's values, if the join does that."""
    if join.event is None:
        return result
    assert join.operator is not None
    if join.factor is not None:
        result = [times(join.factor, each) for each in result if find_key(each)[0] == Kind.NUMBER]
    both = [(value, each) for value in values.get(join.event, []) for each in result]
    holds, fails = FLIPPED_OPERATOR[join.operator], FLIPPED_OPERATOR[NEGATED_OPERATOR[join.operator]]
    truths = {True: any(stands(*pair, holds) for pair in both), False: any(stands(*pair, fails) for pair in both)}
    return [truth for truth, there in truths.items() if there]


def times(factor: float, value: Any) -> float:
    """As float64 multiplies: the value is its nearest float64."""
    try:
        return factor * float(value)
    except OverflowError:
        return factor * (math.inf if value > 0 else -math.inf)


def is_met(join: Join, values: ValuesByName, document: ValuesByName, every: Sequence[ValuesByName]) -> bool:
    """Whether the condition of the join is TRUE for this pair. every: all documents."""

    return is_true(join.condition, values, document, every)


def is_true(condition: Expression, values: ValuesByName, document: ValuesByName, every: Sequence[ValuesByName]) -> bool:
    def truth_of_leaf(leaf: Predicate) -> bool | None:
        if isinstance(leaf, PairCompare):
            return any(pairs(leaf, values, document))
        if is_paired(leaf.attribute):
            return truth_of(*in_pair(leaf, values, document, every))
        return truth_of(leaf, document)

    return truth_of_tree(condition, truth_of_leaf) is True


def in_pair(
    leaf: Predicate, values: ValuesByName, document: ValuesByName, every: Sequence[ValuesByName]
) -> tuple[Predicate, ValuesByName]:
    """A test of what is computed from both, or of a join within the join, as one of an event that has the attributes of
    both."""
    events, documents = read_of_pair(leaf.attribute)
    both = {name_in_pair(name, True): values.get(name, []) for name in events}
    both |= {name_in_pair(name, False): document.get(name, []) for name in documents}
    name, join = leaf.attribute[len(PAIRED) :], join_within(leaf.attribute)
    own = leaf._replace(attribute=name)
    now = name_in_pair(NOW, True)  # which is an attribute of the pair
    if join is None:
        return own, with_computed(both, [name], now)
    both = {**both, **with_computed(both, join.event_attributes, now)}
    return own, {name: join_values(join, both, every)}


def pairs(leaf: PairCompare, values: ValuesByName, document: ValuesByName) -> Iterator[tuple[Any, Any]]:
    """The values of the event and of the document for which it holds."""
    attribute, operator, event, offset = leaf
    both = ((v, d) for v in values.get(event, []) for d in document.get(attribute, []))
    return (pair for pair in both if stands(*pair, operator, offset))


def stands(value: Any, other: Any, operator: str, offset: int | None = None) -> bool:
    """Whether a document's value `other` stands in this relation to the event's value (+ offset), or, for a Range, to
    some value in it. False as well where that is unknown. With an offset, strings are the times that they read as."""
    if isinstance(value, OfNoKind) or isinstance(other, OfNoKind):
        return False
    kind, key = find_key(other)
    if offset is not None:
        kind, key = Kind.TIME, key_beside(other, Kind.TIME)
    if isinstance(value, Range):
        own, low, high = range_ends(value)
        low = None if own != kind else low
    else:
        low = high = key_beside(value, Kind.TIME) if offset is not None else key_alike(value, kind)
    if key is None or low is None:
        return False
    if offset is not None:
        low, high = low + offset, high + offset
    return {
        "=": low <= key <= high,
        "<>": low != high or key != low,
        "<": key < high,
        "<=": key <= high,
        ">": key > low,
        ">=": key >= low,
    }[operator]


def key_alike(value: Any, kind: Kind) -> Any:
    """The key of a value of this kind; None: it is of another."""
    own, key = find_key(value)
    return key if own == kind else None


def extremes(join: Join, found: list[ValuesByName]) -> list[Any]:
    """The least or greatest value of each kind."""
    assert join.attribute is not None
    by_kind: dict[Kind, list[Any]] = {}
    for document in found:
        for value in document.get(join.attribute, []):
            if not isinstance(value, (Range, OfNoKind)):
                by_kind.setdefault(find_key(value)[0], []).append(value)
    choose = min if join.function == MIN else max
    return [choose(values, key=lambda value: find_key(value)[1]) for values in by_kind.values()]


def end(join: Join, found: list[ValuesByName]) -> list[Any]:
    """The values of the document that is greatest, or least, by the other attribute (within each kind); of equal ones,
    of the one that came last, or first. Documents that lack one of the two do not count."""
    assert join.attribute is not None and join.by is not None
    is_last = join.function == MAX_BY
    best: dict[Kind, tuple[Any, list[Any]]] = {}
    for document in found if is_last else reversed(found):
        own = [value for value in document.get(join.attribute, []) if not isinstance(value, (Range, OfNoKind))]
        for kind, key in (find_key(v) for v in document.get(join.by, []) if not isinstance(v, (Range, OfNoKind))):
            is_better = kind not in best or (key >= best[kind][0] if is_last else key <= best[kind][0])
            if own and is_better:
                best[kind] = key, own
    return [value for _, own in best.values() for value in own]
