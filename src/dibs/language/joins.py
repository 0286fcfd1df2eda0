"""Joins over history: what a subscription asks of the documents that came before the event.

A join is an attribute of the event, computed from the event and the history before anything is matched. Its name is
JOIN, a character that no text and so no subscription can name, and its canonical text; equal joins have equal names, so
that all subscriptions share one. The tree of a subscription holds ordinary predicates on that name:

    EXISTS (SELECT 1 FROM history d WHERE ...)        name = TRUE      (NOT EXISTS: name <> TRUE)
    price < (SELECT MIN(d.price) FROM history d ...)  name = TRUE      (0.9 * (SELECT ...) likewise)
    (SELECT COUNT(*) FROM history d WHERE ...) >= 5   name >= 5

The condition of a join is a normal form (normal_form.py) over one document d: predicates with constants on attributes
of d, and PairCompare. AND and OR inside it are sorted, so that the order in which people write them does not matter.

A join within a join is an attribute of the pair of event and document, as what is computed from both is (pairing.py):
the pair is the event that it is asked for, and `d.user` and `e.user` are its attributes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from dibs.jit.undisturbed import bring
from dibs.language.expression import (
    TRUE,
    And,
    Constant,
    Expression,
    Not,
    Or,
    PairCompare,
    Truth,
    attributes,
    compare_by_class,
    predicates,
)
from dibs.language.normal_form import normal_form
from dibs.language.pairing import (
    Side,
    below,
    fields_of_pair,
    in_text,
    map_event_of_pair,
    map_name,
    named_in_pair,
    of_pair,
    sides_of_pair,
)
from dibs.language.printer import EVERY, JOIN, PAIRED, is_join, is_paired, name_text, pieces
from dibs.language.scalars import asks_for_now, fields_of, is_computed, scalar_of, split_mark
from dibs.language.scalars import text_of as text_of_scalar

EXISTS, COUNT, MIN, MAX, MAX_BY, MIN_BY = "EXISTS", "COUNT", "MIN", "MAX", "MAX_BY", "MIN_BY"
COUNT_DISTINCT, SUM, AVG, STDDEV, STDDEV_POP = "COUNT(DISTINCT", "SUM", "AVG", "STDDEV", "STDDEV_POP"
COUNTS = (COUNT, COUNT_DISTINCT)  # which always have a value
EXTREMES = (MIN, MAX)
ENDS = (MAX_BY, MIN_BY)  # the values of one document: the last, or the first
TOTALS = (SUM, AVG, STDDEV, STDDEV_POP)  # of numbers alone
_WORDS = ("EXISTS", "FORALL", "SELECT")
KEPT = 65_536  # joins whose texts need not be read again


@compare_by_class
class Join(NamedTuple):
    """What is asked of the documents for which the condition is TRUE. With `event`: whether that attribute of the event
    stands in the relation `operator` to it."""

    function: str
    condition: Expression  # TRUE: all documents
    attribute: str | None = None  # of which MIN, MAX, SUM and so on are taken
    by: str | None = None  # MAX_BY and MIN_BY: the attribute that tells which document is the last, or the first
    event: str | None = None
    operator: str | None = None
    factor: float | None = None  # what is compared is a multiple of the result, as float64 multiplies

    @property
    def event_attributes(self) -> list[str]:
        """The attributes of the event that it reads."""
        found = [self.event] if self.event is not None else []
        for p in predicates(self.condition):
            if isinstance(p, PairCompare):
                found.append(p.event)
            elif is_paired(p.attribute):
                found += read_of_pair(p.attribute)[0]
        return list(dict.fromkeys(found))

    @property
    def document_attributes(self) -> list[str]:
        """The attributes of documents that it reads, with those that joins within it ask for."""
        found = [name for name in (self.attribute, self.by) if name is not None]
        for p in predicates(self.condition):
            found += read_of_pair(p.attribute)[1] if is_paired(p.attribute) else [p.attribute]
            within = join_within(p.attribute)
            found += within.document_attributes if within is not None else []
        return list(dict.fromkeys(found))

    @property
    def alternatives(self) -> int:
        """How many conjunctions its condition is when it is multiplied out."""

        def count(form: Expression) -> int:
            if isinstance(form, And):
                return math.prod(map(count, form.children))
            return sum(map(count, form.children)) if isinstance(form, Or) else 1

        return count(self.condition)

    @property
    def joins_within(self) -> list[Join]:
        """The joins that it asks for each of its documents."""
        found = (join_within(p.attribute) for p in predicates(self.condition))
        return [join for join in found if join is not None]


def joins_in(expression: Expression) -> Iterator[str]:
    """The names of the joins that a subscription mentions, repeats included."""
    return (p.attribute for p in predicates(expression) if is_join(p.attribute))


def may_have_joins(text: str) -> bool:
    """Whether the text of a subscription has a word that every join has; without reading it."""
    upper = text.upper()
    return any(word in upper for word in _WORDS)


def attributes_of_event(expression: Expression) -> list[str]:
    """The attributes of the event that the expression mentions, those that its joins compare included."""
    return read_attributes(attributes(expression))


def read_attributes(names: Iterable[str]) -> list[str]:
    """What is read of an event for these attributes: themselves, what joins compare, what is computed with."""
    found: dict[str, None] = {}
    for name in names:
        if is_join(name):
            found |= dict.fromkeys(read_attributes(join_of(name).event_attributes))
        elif is_computed(name):
            found |= dict.fromkeys(fields_of(scalar_of(name)))
        else:
            found[name] = None
    return list(found)


def paths_of(names: Iterable[str]) -> frozenset[str]:
    """The attributes of events behind these names, as people know them: no joins, nothing that is computed; * stands
    for all that there are."""
    paths = ("*" if name == EVERY else split_mark(name)[1] for name in names)
    return frozenset(path for path in paths if path[:1] != JOIN)


def join_within(name: str) -> Join | None:
    """The join that an attribute of a pair is, if it is one."""
    return join_of(name[len(PAIRED) :]) if is_paired(name) and is_join(name[len(PAIRED) :]) else None


def read_of_pair(name: str) -> tuple[list[str], list[str]]:
    """What is read of the event and of the document for an attribute of the pair."""
    within = join_within(name)
    if within is None:
        return fields_of_pair(name)
    asked = within.event_attributes
    return sides_of_pair(read_attributes(asked), any(map(asks_for_now, asked)))


def place_join(join: Join, alias: str) -> str | Side:
    """The attribute of the pair that a join is, which was read with the names of the text; or NONE or EVENT: it asks
    nothing of the document."""
    side = Side.NONE
    for name in read_attributes(join.event_attributes):
        side |= Side.EVENT if below(name, alias) is None else Side.DOCUMENT
    if Side.DOCUMENT not in side:
        return side
    return _paired(map_event(join, lambda name: named_in_pair(name, alias)))


def _paired(join: Join) -> str:
    return PAIRED + name_of(join._replace(condition=_sort(join.condition)[1]))


def map_event(join: Join, renamed: Callable[[str], str]) -> Join:
    """The same join with other names for the attributes of the event."""

    def of_event(field: str) -> str:
        return map_event_of_pair(field, renamed)

    def mapped(p: Expression) -> Expression:
        if isinstance(p, (And, Or)):
            return type(p)(tuple(map(mapped, p.children)))
        if isinstance(p, PairCompare):
            return p._replace(event=map_name(p.event, renamed))
        if isinstance(p, (Constant, Not, Truth)) or not is_paired(p.attribute):
            return p
        within = join_within(p.attribute)
        if within is None:
            return p._replace(attribute=PAIRED + map_name(p.attribute[len(PAIRED) :], of_event))
        return p._replace(attribute=_paired(map_event(within, of_event)))

    event = None if join.event is None else map_name(join.event, renamed)
    return join._replace(condition=mapped(join.condition), event=event)


def canonical(condition: Expression) -> Expression:
    """The condition of a join in the one form that all its spellings have."""
    return _sort(normal_form(condition))[1]


def _sort(form: Expression) -> tuple[str, Expression]:
    """The form with its ANDs and ORs sorted, and a text of it that tells it from others. (Trees are not deep.)"""
    if not isinstance(form, (And, Or)):
        return "".join(pieces(form)), form
    children = dict(map(_sort, form.children))
    texts = sorted(children)
    joint = " AND " if isinstance(form, And) else " OR "
    return f"({joint.join(texts)})", type(form)(tuple(children[text] for text in texts))


def name_of(join: Join) -> str:
    """The attribute that stands for the join."""
    return JOIN + text_of(join)


def text_of(join: Join) -> str:
    """Its canonical text, which SQL engines take as it stands where `history` has one column of the alias' name that
    holds the document."""
    alias = _alias(join.condition)
    where = ""

    def named(name: str) -> str:
        return document_text(name, alias)

    if join.condition != TRUE:
        where = " WHERE " + "".join(pieces(join.condition, named))
    if join.function == EXISTS:
        return f"EXISTS (SELECT 1 FROM history {alias}{where})"
    asked = ", ".join(named(name) for name in (join.attribute, join.by) if name is not None) or "*"
    asked = f"{join.function} {asked})" if join.function == COUNT_DISTINCT else f"{join.function}({asked})"
    query = f"(SELECT {asked} FROM history {alias}{where})"
    if join.factor is not None:
        query = f"{_factor_text(join.factor)} * {query}"
    return query if join.event is None else f"{name_text(join.event)} {join.operator} {query}"


def document_text(name: str, alias: str) -> str:
    """An attribute of the document of this alias, or what is computed from it, or from it and the event."""
    if not is_computed(name) and not is_paired(name):
        return f"{alias}.{name_text(name)}"
    within = join_within(name)
    if within is not None:
        return text_of(map_event(within, lambda field: of_pair(field, f"{alias}.".__add__, str)))
    # Behind JOIN stands what is written as it is.
    return text_of_scalar(in_text(name, lambda field: f"{JOIN}{alias}.{name_text(field)}", lambda field: field))


def _factor_text(factor: float) -> str:
    """With an exponent, by which SQL engines know a float64 (0.9 would be a decimal)."""
    digits, _, exponent = repr(factor).partition("e")
    return f"{digits}e{int(exponent or 0)}"


def _alias(condition: Expression) -> str:
    """d, or the first of d1, d2, ... that no attribute of the event inside begins with."""
    names = read_attributes(Join(EXISTS, condition).event_attributes)
    first = {name.split(".")[0] for name in names}
    alias, number = "d", 0
    while alias in first:
        number += 1
        alias = f"d{number}"
    return alias


@lru_cache(KEPT)
def join_of(name: str) -> Join:
    """The join behind an attribute."""
    read_join: Callable[[str], Join] = bring("dibs.language.subqueries").read_join  # which reads by what stands here
    return read_join(name[1:])
