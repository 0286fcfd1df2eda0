"""How a join is answered: by which index, and what is left to be tested document by document.

A condition is one or several conjunctions (those that an OR at its top joins). Of each, the equated attributes and one
attribute with bounds make the key of an ordered index (ordered.py): d.user = user AND d.result = 'fail' AND d.time >
time - INTERVAL 10 MINUTES is one stretch of an index over (result, user, time), whatever the size of the history.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import lru_cache
from itertools import product
from typing import NamedTuple

from dibs.history.keys import TIME, UNREADABLE, Cell, Span, literal_cell
from dibs.history.ordered import Bounds, Key, Ordered, after
from dibs.history.verify import Event
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

NO_PREFIX: list[Key] = [()]
MOST_STRETCHES = 64  # that one conjunction looks for; with more, the documents are tested one by one
BOUNDS = frozenset(["<", "<=", ">", ">="])


class Conjunction(NamedTuple):
    names: tuple[str, ...]  # of the index; none: all documents are tested
    equal: tuple[Predicate, ...]  # one for each of the names but perhaps the last
    order: tuple[Predicate, ...]  # on the last name
    rest: tuple[Expression, ...]
    keys: tuple[list[Key] | None, ...] = ()  # of `equal`, where they are constants


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
    join = join_of(name)
    form = join.condition
    parts = form.children if isinstance(form, Or) else () if form == FALSE else (form,)
    extreme = join.attribute if join.function in EXTREMES else join.by
    conjunctions = tuple(conjunction_of(part, extreme) for part in parts)
    is_fixed = not any(isinstance(p, PairCompare) for p in predicates(form))
    return Plan(name, join, conjunctions, tuple(join.document_attributes), tuple(join.event_attributes), is_fixed)


def conjunction_of(form: Expression, extreme: str | None, single: Collection[str] | None = None) -> Conjunction:
    """extreme: the attribute of which the least or greatest is asked for, which an index that ends with it gives.
    single: the attributes of the event that have single values (None: all); an equality with another asks for an
    interval, which is a bound."""
    parts: Sequence[Expression] = form.children if isinstance(form, And) else () if form == TRUE else (form,)
    equal: dict[str, Predicate] = {}
    for part in sorted(parts, key=lambda part: not isinstance(part, PairCompare)):
        if isinstance(part, (Compare, PairCompare, In)) and _equates(part, single):
            equal.setdefault(part.attribute, part)
    order = _order([part for part in parts if getattr(part, "attribute", None) not in equal])
    last = order[0].attribute if order else extreme
    names = tuple(sorted(equal))
    used = [*equal.values(), *order]
    rest = tuple(part for part in parts if not any(part is each for each in used))
    if last is not None and last not in equal:
        names = (*names, last)
    in_order = tuple(equal[name] for name in sorted(equal))
    return Conjunction(names, in_order, tuple(order), rest, tuple(map(_constant_keys, in_order)))


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


class Access(NamedTuple):
    """The stretches of an index to look at, and what is left to be tested."""

    bounds: list[Bounds]
    rest: tuple[Expression, ...]


def access_of(conjunction: Conjunction, index: Ordered, event: Event) -> Access | None:
    """None: all documents have to be tested."""
    parts: list[list[Key]] = []
    for predicate, constants in zip(conjunction.equal, conjunction.keys):
        keys = _event_cells(predicate, event) if isinstance(predicate, PairCompare) else constants
        if keys is None:
            return None
        parts.append(keys)
    ranges: list[list[Bounds]] = []
    for predicate in conjunction.order:
        found = _ranges(predicate, event)
        if found is None:
            return None
        ranges.append(found)
    rest = conjunction.rest
    if not ranges:
        whole = len(conjunction.names) > len(conjunction.equal)  # the last name is there for MIN and MAX
        used = [Bounds((), (UNREADABLE,) if whole else (0,))]
    elif index.is_multiple or any(len(each) != 1 for each in ranges):
        used, rest = ranges[0], (*rest, *conjunction.order[1:])  # each bound may be met by another element
    else:
        used = [Bounds(max(each[0].low for each in ranges), min(each[0].high for each in ranges))]
    prefixes = [sum(each, ()) for each in product(*parts)] if parts else NO_PREFIX
    if len(prefixes) * len(used) > MOST_STRETCHES:
        return None
    return Access([Bounds(start + low, start + high) for start in prefixes for low, high in used], rest)


def _constant_keys(predicate: Predicate) -> list[Key] | None:
    if isinstance(predicate, In):
        return [literal_cell(each) for each in predicate.literals]
    return [literal_cell(predicate.literal)] if isinstance(predicate, Compare) else None


def _event_cells(predicate: PairCompare, event: Event) -> list[Cell] | None:
    """The values of the event that documents are compared with; None: one of them is a range."""
    cells = []
    for cell in dict.fromkeys(event.get(predicate.event, ())):  # the same value twice counts once
        if isinstance(cell, Span):
            return None
        if predicate.offset is not None:
            if cell[0] != TIME:
                continue
            cell = (TIME, cell[1] + predicate.offset)
        if cell[0] != UNREADABLE:
            cells.append(cell)
    return cells


def _ranges(predicate: Predicate, event: Event) -> list[Bounds] | None:
    if isinstance(predicate, IsNull):
        return [Bounds((), (UNREADABLE,))]
    if isinstance(predicate, Between):
        low, high = literal_cell(predicate.low), literal_cell(predicate.high)
        return [Bounds(low, after(high))] if low[0] == high[0] else []
    assert isinstance(predicate, (Compare, PairCompare))
    if isinstance(predicate, Compare):
        cells: list[Cell] | None = [literal_cell(predicate.literal)]
    else:
        cells = _event_cells(predicate, event)
    if cells is None:
        return None
    return [bounds for cell in cells for bounds in _bounds(predicate.operator, cell)]


def _bounds(symbol: str, cell: Cell) -> list[Bounds]:
    kind = cell[0]
    if symbol == ">":
        return [Bounds(after(cell), (kind + 1,))]
    if symbol == ">=":
        return [Bounds(cell, (kind + 1,))]
    if symbol == "<":
        return [Bounds((kind,), cell)]
    if symbol == "<=":
        return [Bounds((kind,), after(cell))]
    return [Bounds((kind,), cell), Bounds(after(cell), (kind + 1,))]
