"""Who misses an event by a hair: subscriptions that fail on one attribute alone, the nearest first."""

from __future__ import annotations

import datetime as dt
from time import thread_time
from typing import Any

from dibs.arguments import Id
from dibs.coding.values import Range
from dibs.errors import UnknownId
from dibs.language.expression import Kind, attributes
from dibs.language.joins import joins_in
from dibs.language.sql import parse
from dibs.language.types import check_types
from dibs.matcher import Matcher
from dibs.nearness import MISSING, distance
from dibs.reference import values_of, with_computed, with_types

TRIED = 200  # attributes that get another value, at most
RANKED = 2_000  # subscriptions whose distance is found, over all attributes; others come after them
SHOWN = 100  # ids of each attribute
COPIED = 1_000_000  # values of the event, in all events that are tried; but some attributes are
LEAST_TRIED = 5
RANKING = 1.0  # seconds, each attribute has its share of them; those whose distance is not found by then come after
COMPARED = 1_000  # values of an attribute that distances are found from
# Every value of an attribute, by the kind that is declared.
EVERY: dict[Kind | None, list[Any]] = {
    None: [Range(None, float("inf")), Range("", None), True, False],
    Kind.NUMBER: [Range(None, float("inf"))],
    Kind.STRING: [Range("", None)],
    Kind.BOOLEAN: [True, False],
    Kind.TIME: [Range(dt.datetime.min, None)],
}


def find_misses(matcher: Matcher, event: dict[str, Any], limit: int) -> dict[str, Any]:
    """One event more for each attribute, in which that one may have any value: who matches it, and does not match the
    event itself, fails on this attribute alone. Attributes come by the nearest of their subscriptions."""
    present = values_of(event)
    tried = max(LEAST_TRIED, min(TRIED, COPIED // max(1, sum(map(len, present.values())))))
    asked = sorted(matcher.attributes, key=lambda name: (name not in present, name))[:tried]
    flat = {name: values for name, values in present.items() if name not in asked}
    base = flat | {name: present[name] for name in asked if name in present}
    types = check_types(matcher.types)
    variants = [base, *(base | {name: EVERY[types.kind_of(name)]} for name in asked)]
    matched, *others = (set(ids) for ids in matcher.match_batch(variants))
    found = [(name, sorted(ids - matched, key=_order)) for name, ids in zip(asked, others) if ids - matched]
    each, begun = max(SHOWN, RANKED // max(1, len(found))), thread_time()
    some = {name: values[:COMPARED] for name, values in present.items()}
    ranked = [
        (name, *_rank(matcher, ids, some, each, begun + RANKING * place / len(found)))
        for place, (name, ids) in enumerate(found, 1)
    ]
    ranked.sort(key=lambda row: (row[2][0], -len(row[1]), row[0]))
    shown = [
        {"attribute": name, "count": len(ids), "subscriptions": ids[:SHOWN], "distances": distances[:SHOWN]}
        for name, ids, distances in ranked[:limit]
    ]
    return {"matched": len(matched), "misses": shown}


def _rank(
    matcher: Matcher, ids: list[Id], present: dict[str, list[Any]], most: int, end: float
) -> tuple[list[Id], list[float]]:
    """The ids by their distance, with it; those beyond `most`, or reached after the end, are behind, as far as
    something can be."""
    near: list[tuple[float, int, Id]] = []
    while len(near) < min(most, len(ids)) and (not near or thread_time() < end):
        near.append((_distance(matcher, ids[len(near)], present), len(near), ids[len(near)]))
    rest = ids[len(near) :]
    return [id for *_, id in sorted(near)] + rest, [round(far, 9) for far, *_ in sorted(near)] + [MISSING] * len(rest)


def _distance(matcher: Matcher, id: Id, present: dict[str, list[Any]]) -> float:
    try:
        types = check_types(matcher.types)
        tree = parse(matcher.expression(id), types)
    except UnknownId:  # it has gone since
        return MISSING
    return (
        MISSING
        if next(joins_in(tree), None) is not None
        else distance(tree, with_computed(with_types(present, types), attributes(tree)))
    )


def _order(id: Id) -> tuple[bool, Id]:
    return isinstance(id, str), id
