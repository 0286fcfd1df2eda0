"""How a join is answered: by which index, and what is left to be tested document by document.

A condition is one or several conjunctions (those that an OR at its top joins). Of each, the equated attributes and one
attribute with bounds make the key of an ordered index (coded/indexes.py): d.user = user AND d.result = 'fail' AND
d.time > time - INTERVAL 10 MINUTES is one stretch of an index over (result, user, time), whatever the history's size.

Constants first, or joins first: section 4.3.1 of the paper.

    joins first       every join is answered for every event, and then the events are matched: j joins
    constants first   the events are matched by an index over the constants alone, which gives the subscriptions that
                      may match; only their joins are answered, and then the events are matched: j' joins

(Normal forms have no NOT, and IS NULL is never asked of a join: a join that is taken for granted, or for refused where
IS NOT TRUE is asked of it, never makes fewer matches.)

What is cheaper depends on j' and on what matching costs, which are measured as events come. The two orders give the
same matches. The paper counts predicates, with N subscriptions, D documents, and k attributes of constants that an
event has (k' after the first phase): j log D + k' log N for joins first, k log N + j' log D for constants first. That
count is told beside what was measured, by which the order is chosen: a predicate of a join costs more than others.

    m.plan_joins(order="joins")    or "constants": always so, for measuring
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.coding.values import EventValues
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
from dibs.tuning import tuned

FEW_JOINS = tuned("few_joins", 32, 0, "joins", "always answered before constants are matched")

BOUNDS = frozenset(["<", "<=", ">", ">="])


class Conjunction(NamedTuple):
    names: tuple[str, ...]  # of the index; none: all documents are tested
    equal: tuple[Predicate, ...]  # one for each of the names but perhaps the last
    order: tuple[Predicate, ...]  # on the last name
    rest: tuple[Expression, ...]


class JoinPlan(NamedTuple):
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
def plan_of(name: str) -> JoinPlan:
    """The plan of the join behind an attribute."""
    return plan_join(name, join_of(name))


def plan_join(name: str, join: Join) -> JoinPlan:
    form = join.condition
    parts = form.children if isinstance(form, Or) else () if form == FALSE else (form,)
    extreme = join.attribute if join.function in EXTREMES else join.by
    conjunctions = tuple(conjunction_of(part, extreme) for part in parts)
    is_fixed = not any(isinstance(p, PairCompare) or is_paired(p.attribute) for p in predicates(form))
    return JoinPlan(name, join, conjunctions, tuple(join.document_attributes), tuple(join.event_attributes), is_fixed)


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


# The subscriptions that may match: for each segment the events, and for each of these the joins (by their names) that a
# subscription of the segment mentions.
Candidates = Iterable[tuple[tuple[str, ...], NDArray[np.int64], NDArray[np.int64]]]
Needed = NDArray[np.bool_]  # event, join
FADING = 0.8  # of what was measured before, in an average
LOOK_AGAIN = 64  # batches after which the other order is tried once


TIMES = ("a_join", "narrowing")  # of what is measured
JOINS, CONSTANTS = "joins", "constants"  # what comes first


class Sizes(NamedTuple):
    """What the paper's count depends on."""

    joins: int
    documents: int
    subscriptions: int
    attributes: float = 0.0  # of constants, that an event has


def count_predicates(sizes: Sizes, needed: float) -> tuple[float, float]:
    """Predicates per event with joins first, and with constants first, as section 4.3.1 counts them. needed: the joins
    that are left after constants. (The attributes that are left after joins are taken to be all of them.)"""
    by_document, by_subscription = math.log2(max(sizes.documents, 2)), math.log2(max(sizes.subscriptions, 2))
    constants = sizes.attributes * by_subscription
    return sizes.joins * by_document + constants, constants + needed * by_document


@dataclass
class Costs:
    """Seconds, and shares, as measured so far; None: not yet."""

    a_join: float | None = None
    narrowing: float | None = None  # matching one event by constants alone
    share: float | None = None  # of the joins that are needed after that
    attributes: float | None = None  # values per event
    batches: int = 0
    order: str | None = None  # what always comes first; None: what is cheaper

    def note(self, **measured: float) -> None:
        """A time that is less than those before is taken as it is: what took long once, because a kernel was compiled
        or the machine was busy, must not decide for long."""
        for name, value in measured.items():
            old = getattr(self, name)
            is_less = old is not None and name in TIMES and value < old
            setattr(self, name, value if old is None or is_less else FADING * old + (1 - FADING) * value)

    def constants_first(self, joins: int) -> bool:
        """Which order is estimated to be cheaper for a batch of events with so many joins."""
        self.batches += 1
        if self.order is not None:
            return self.order == CONSTANTS
        if joins <= FEW_JOINS.value:
            return False
        if self.a_join is None or self.narrowing is None or self.share is None:
            return self.a_join is not None  # joins first, for what a join costs, and then the other way
        is_cheaper = self.narrowing + self.share * joins * self.a_join < joins * self.a_join
        return is_cheaper != (self.batches % LOOK_AGAIN == 0)

    def tell(self, sizes: Sizes) -> str:
        """The order, in words."""
        joins = sizes.joins
        if self.order is not None:
            return f"{self.order} first, as was asked for"
        if joins <= FEW_JOINS.value:
            return f"joins first, because there are only {joins:,}"
        if self.a_join is None or self.narrowing is None or self.share is None:
            return "not decided yet"
        needed = self.share * joins
        first, last = 1e6 * joins * self.a_join, 1e6 * (self.narrowing + needed * self.a_join)
        costs = f"about {first:,.0f} microseconds per event with joins first, {last:,.0f} with constants first, when "
        both = count_predicates(sizes._replace(attributes=self.attributes or 0.0), needed)
        counted = f"; by the paper's count {both[0]:,.0f} and {both[1]:,.0f} predicates"
        return f"{'constants' if last < first else 'joins'} first: {costs}{needed:,.1f} joins are needed{counted}"


def find_needed_joins(
    plans: list[JoinPlan], values: EventValues, candidates: Callable[[EventValues], Candidates], costs: Costs
) -> Needed:
    """Which joins have to be answered for which event, so that all others make no difference."""
    begin = time.perf_counter()
    number = {plan.name: place for place, plan in enumerate(plans)}
    needed = np.zeros((values.events, len(plans)), np.bool_)
    for names, event, place in candidates(values):
        own = np.array([number[name] for name in names], np.int64)
        needed[event, own[place]] = True
    took = (time.perf_counter() - begin) / max(values.events, 1)
    costs.note(narrowing=took, share=float(needed.mean()) if needed.size else 0.0)
    return needed
