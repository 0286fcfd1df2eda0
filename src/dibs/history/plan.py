"""How a join is answered: by which index, and what is left to be tested document by document.

A condition is one or several conjunctions (those that an OR at its top joins). Of each, the equated attributes and one
attribute with bounds make the key of an ordered index (coded/indexes.py): d.user = user AND d.result = 'fail' AND
d.time > time - INTERVAL 10 MINUTES is one stretch of an index over (result, user, time), whatever the history's size.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import NamedTuple

from dibs.language.expression import (
    FALSE,
    TRUE,
    And,
    Between,
    Compare,
    Expression,
    In,
    IsNull,
    Or,
    PairCompare,
    Predicate,
    predicates,
)
from dibs.language.joins import EXTREMES, Join, join_of
from dibs.language.printer import is_paired

BOUNDS = frozenset(["<", "<=", ">", ">="])


class Conjunction(NamedTuple):
    names: tuple[str, ...]  # of the index; none: all documents are tested
    equal: tuple[Predicate, ...]  # one for each of the names but perhaps the last
    order: tuple[Predicate, ...]  # on the last name
    rest: tuple[Expression, ...]


class Plan(NamedTuple):
    name: str  # of the attribute that stands for the join
    join: Join
    conjunctions: tuple[Conjunction, ...]
    attributes: tuple[str, ...]  # of documents
    event_attributes: tuple[str, ...]
    is_fixed: bool  # the documents that satisfy it are the same for all events

    @property
    def tests_all(self) -> bool:
        """Whether no index helps: some conjunction has neither an equality nor a bound."""
        return any(each.rest and not each.equal and not each.order for each in self.conjunctions)


@lru_cache(65_536)
def plan_of(name: str) -> Plan:
    """The plan of the join behind an attribute."""
    return plan_join(name, join_of(name))


def plan_join(name: str, join: Join) -> Plan:
    form = join.condition
    parts = form.children if isinstance(form, Or) else () if form == FALSE else (form,)
    extreme = join.attribute if join.function in EXTREMES else join.by
    conjunctions = tuple(conjunction_of(part, extreme) for part in parts)
    is_fixed = not any(isinstance(p, PairCompare) or is_paired(p.attribute) for p in predicates(form))
    return Plan(name, join, conjunctions, tuple(join.document_attributes), tuple(join.event_attributes), is_fixed)


def conjunction_of(form: Expression, extreme: str | None, single: Collection[str] | None = None) -> Conjunction:
    """extreme: the attribute of which the least or greatest is asked for, which an index that ends with it gives.
    single: the attributes of the event that have single values (None: all); an equality with another asks for an
    interval, which is a bound."""
    parts: Sequence[Expression] = form.children if isinstance(form, And) else () if form == TRUE else (form,)
    equal: dict[str, Predicate] = {}
    searched = [part for part in parts if not is_paired(getattr(part, "attribute", ""))]
    for part in sorted(searched, key=lambda part: not isinstance(part, PairCompare)):
        if isinstance(part, (Compare, PairCompare, In)) and _equates(part, single):
            equal.setdefault(part.attribute, part)
    order = _order([part for part in searched if getattr(part, "attribute", None) not in equal])
    last = order[0].attribute if order else extreme
    names = tuple(sorted(equal))
    used = [*equal.values(), *order]
    rest = tuple(part for part in parts if not any(part is each for each in used))
    if last is not None and last not in equal:
        names = (*names, last)
    return Conjunction(names, tuple(equal[name] for name in sorted(equal)), tuple(order), rest)


def _equates(part: Compare | PairCompare | In, single: Collection[str] | None) -> bool:
    if isinstance(part, PairCompare) and single is not None and part.event not in single:
        return False
    return not part.negated if isinstance(part, In) else part.operator == "="


def _is_bound(part: Compare | PairCompare | Between) -> bool:
    """Of a part that does not equate."""
    return not part.negated if isinstance(part, Between) else part.operator == "=" or part.operator in BOUNDS


def _order(parts: list[Expression]) -> list[Predicate]:
    """The predicates on the one attribute whose order is used: best with the event's own bounds, worst with <>."""
    groups: dict[str, list[Predicate]] = {}
    for part in parts:
        if isinstance(part, (Compare, PairCompare, Between)) and _is_bound(part):
            groups.setdefault(part.attribute, []).append(part)
    if groups:
        return max(groups.values(), key=lambda group: (any(isinstance(p, PairCompare) for p in group), len(group)))
    others: list[Predicate] = [
        p for p in parts if isinstance(p, (Compare, PairCompare)) or (isinstance(p, IsNull) and p.negated)
    ]
    return others[:1]
