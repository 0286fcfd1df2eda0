"""By which attributes joins equate events and documents: what brings the two together.

Of each conjunction of a join one equality of a document's attribute with the event's is enough: a document that does
not satisfy it makes no difference. A join that has a conjunction without one speaks of every document. So does one
whose joins within do: `x.user = d.user` leads from document to document, `x.user = user` from the event.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from dibs.history.coded.program import conjunctions_of
from dibs.language.expression import PairCompare, Predicate
from dibs.language.joins import ENDS, Join, document_text, join_of, paths_of, read_attributes, text_of
from dibs.language.pairing import name_of_event
from dibs.language.printer import name_text


class Pair(NamedTuple):
    """Attributes that are equated."""

    event: str
    document: str

    def __str__(self) -> str:
        return f"{document_text(self.document, 'd')} = {name_text(self.event)}"


@dataclass(frozen=True)
class Keys:
    """What the joins of some subscriptions have in common."""

    pairs: tuple[Pair, ...]  # the most used first
    unkeyed: tuple[str, ...]  # texts of joins that speak of every document
    ordered: tuple[str, ...]  # texts of joins that ask which document came last
    event_attributes: frozenset[str]
    document_attributes: frozenset[str]
    joins: int

    @property
    def key_attributes(self) -> list[str]:
        """Those of documents that are keys."""
        return sorted({pair.document for pair in self.pairs})

    def describe(self) -> str:
        """The keys, in words."""
        told = [f"{self.joins:,} joins"] if self.joins != 1 else ["1 join"]
        if self.pairs:
            told.append("by " + ", ".join(map(str, self.pairs[:5])) + (", ..." if len(self.pairs) > 5 else ""))
        if self.unkeyed:
            told.append(f"{len(self.unkeyed):,} with no equated key, as {self.unkeyed[0]}")
        return "; ".join(told)


def find_keys(names: Iterable[str]) -> Keys:
    """The keys of joins, which are given by the names of their attributes (language/joins.py)."""
    joins = {name: join_of(name) for name in sorted(set(names))}
    choices: list[list[Pair]] = []
    unkeyed = []
    for join in joins.values():
        found = _choices(join)
        if found is None:
            unkeyed.append(text_of(join))
        else:
            choices += found
    often = Counter(pair for each in choices for pair in set(each))
    chosen = Counter(max(each, key=lambda pair: (often[pair], pair)) for each in choices)
    return Keys(
        tuple(pair for pair, _ in sorted(chosen.items(), key=lambda item: (-item[1], item[0]))),
        tuple(unkeyed),
        tuple(text_of(join) for join in joins.values() if _is_ordered(join)),
        paths_of(read_attributes(name for join in joins.values() for name in join.event_attributes)),
        paths_of(read_attributes(name for join in joins.values() for name in join.document_attributes)),
        len(joins),
    )


def _is_ordered(join: Join) -> bool:
    return join.function in ENDS or any(map(_is_ordered, join.joins_within))


def _choices(join: Join, depth: int = 0) -> list[list[Pair]] | None:
    """For each conjunction the equalities, of which one is enough; None: some conjunction has none. depth: how many
    joins it stands in."""
    conjunctions = conjunctions_of(join.condition)
    if conjunctions is None:
        return None
    choices = [
        [Pair(event, p.attribute) for p in conjunction if (event := _equated(p, depth)) is not None]
        for conjunction in conjunctions
    ]
    for within in join.joins_within:
        choices += _choices(within, depth + 1) or [[]]
    return choices if all(choices) else None


def _equated(predicate: Predicate, depth: int) -> str | None:
    """The attribute of the event that a document's is equated with."""
    if not isinstance(predicate, PairCompare) or predicate.operator != "=" or predicate.offset is not None:
        return None
    name = predicate.event
    for _ in range(depth):
        own = name_of_event(name)
        if own is None:
            return None
        name = own
    return name
