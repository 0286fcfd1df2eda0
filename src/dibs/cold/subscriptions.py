"""The subscriptions of a small matcher without kernels: texts and trees, held against events by dibs.reference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from dibs.arguments import Id
from dibs.language.expression import And, Constant, Expression, Or, Truth, attributes
from dibs.language.joins import read_attributes
from dibs.language.present import Present
from dibs.language.scalars import is_computed, is_raw
from dibs.lazy import lazy
from dibs.reference import ValuesByName, children_first, holds_for, with_computed


class Held(NamedTuple):
    """A subscription."""

    text: str
    weight: float
    version: int
    form: Expression  # normal form


class Subscriptions:
    """All of them, as they are at some version. It never changes."""

    def __init__(self, items: Mapping[Id, Held], version: int):
        self.items = items
        self.version = version

    @lazy
    def names(self) -> frozenset[str]:
        """The attributes of events that they read."""
        return frozenset(read_attributes(name for held in self.items.values() for name in attributes(held.form)))

    @lazy
    def has_raw(self) -> bool:
        """Whether something of an event is read as it came."""
        return any(map(is_raw, self.names))

    @lazy
    def computed(self) -> tuple[str, ...]:
        """The computed attributes that they mention."""
        named = (name for held in self.items.values() for name in attributes(held.form) if is_computed(name))
        return tuple(dict.fromkeys(named))

    @lazy
    def predicates(self) -> int:
        return sum(1 for held in self.items.values() for _ in children_first(held.form))

    @lazy
    def leading(self) -> frozenset[str]:
        """Where an object may hold such an attribute: the beginnings of dotted names."""
        return frozenset(name[:i] for name in self.names for i, c in enumerate(name) if c == ".")

    def find(self, values: ValuesByName, now: Present = None) -> list[Id]:
        """The ids of those that hold for an event. now: the time of the match."""
        values = with_computed(values, self.computed, now)
        return [id for id, held in self.items.items() if _holds(held.form, values)]


def id_order(id: Id) -> tuple[bool, Any]:
    return isinstance(id, str), id


def _holds(form: Expression, values: ValuesByName) -> bool:
    """Whether a normal form is TRUE: it has no NOT left, so FALSE and UNKNOWN need not be told from each other."""
    match form:
        case And(children):
            return all(_holds(child, values) for child in children)
        case Or(children):
            return any(_holds(child, values) for child in children)
        case Truth(child):  # a complement
            return not _holds(child, values)
        case Constant(value):
            return value is True
        case predicate:
            return holds_for(predicate, values)  # type: ignore[arg-type]
