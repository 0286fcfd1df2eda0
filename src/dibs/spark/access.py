"""Which events can match a subscription: what decides on its shard, and which shards an event visits.

A subscription is reached through one predicate that must hold (a conjunction), or through some of which one must hold
(an expression with OR: index.auto.access_sets). Its key is (attribute, kind, value) of the first: an equality with a
number or a string has a value, whatever else asks for the attribute only that it is there. Shards are ranges of keys in
order, cut by `Cuts` so that they hold about as many rows. A key that many share is cut too: its rows are dealt out.

What an event must satisfy for any subscription of a shard to match is its *route*, an expression of the language: for
each attribute a range of numbers, a range of strings, or that it is there at all. It is made of what the shard
really holds, so it is right however the rows came there; and Dibs itself says which routes an event satisfies, so
arrays, ranges, decimals and times mean there what they mean in subscriptions.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Union

import numpy as np
from numpy.typing import NDArray

from dibs.coding.clauses import Clauses
from dibs.coding.domain import NUMBER_BASE, Domains
from dibs.index.auto.access_sets import access_sets
from dibs.language.expression import Between, Compare, Constant, Expression, IsNull, Literal, Or, Truth, number
from dibs.language.expression import Kind as LiteralKind
from dibs.language.printer import YES, is_condition, to_sql
from dibs.language.table import Facet
from dibs.language.types import check_types
from dibs.segments.segment import Segment

ALWAYS, THERE, NUMBER, STRING = range(4)  # kinds of keys: no attribute, an attribute, a value of it
Key = tuple[str, int, Union[float, str]]  # attribute, kind, value
EVERYWHERE: Key = ("", ALWAYS, 0.0)


@dataclass(frozen=True)
class Cuts:
    """Where the keys, in order, are cut. Shard 0 has what every event must be shown, shard i + 1 the keys from
    cut i - 1 up to cut i. A key that stands there several times is shared by the shards between."""

    cuts: tuple[Key, ...]

    @property
    def shards(self) -> int:
        return len(self.cuts) + 2

    def place(self, access: Access) -> NDArray[np.int64]:
        """The shard of each row."""
        first = np.array([bisect_left(self.cuts, key) for key in access.keys], np.int64)
        last = np.array([bisect_right(self.cuts, key) for key in access.keys], np.int64)
        shared = np.maximum(last - first, 1)[access.of_row]
        turn = np.arange(len(access.of_row)) % shared
        everywhere = np.array([key == EVERYWHERE for key in access.keys], np.bool_)
        start = 1 + np.where(last > first, first + 1, first)
        return np.where(everywhere[access.of_row], 0, start[access.of_row] + turn)


def cuts_of(counted: dict[Key, int], shards: int) -> Cuts:
    """Cuts by which so many shards (and shard 0) hold about as many rows each, as far as a sample tells."""
    keys = sorted(key for key in counted if key != EVERYWHERE)
    total, seen = sum(counted[key] for key in keys), 0
    cuts: list[Key] = []
    for key in keys:
        seen += counted[key]
        while len(cuts) < shards - 1 and seen * shards >= total * (len(cuts) + 1):
            cuts.append(key)
    return Cuts(tuple(cuts))


@dataclass
class Access:
    """The keys of a segment's rows: row r has keys[of_row[r]]. `reach`: for each row that is reached through more than
    its key, the attributes that it is reached through."""

    keys: list[Key]  # by attribute; of one attribute numbers before strings, both ascending
    stretch: NDArray[np.int64]  # the same for keys of one attribute that are numbers, and for those that are strings
    of_row: NDArray[np.int64]
    reach_row: NDArray[np.int64]
    reach_attribute: list[str]


def access_keys(segment: Segment) -> Access:
    c, d = segment.clauses_by_row, segment.domains
    names = [name for name, _ in d.attributes]
    step = np.full(len(c), -1, np.int64)  # the predicate that each row is reached through
    needs_value = _needs_value(c)
    score = np.where(needs_value, 1 + np.where(_constant_cell(c, d), d.cells[c.attribute] if len(names) else 0, 0), 0)
    end = int(c.offsets[c.conjunctions])
    row = np.repeat(np.arange(len(c)), np.diff(c.offsets))[:end]
    best = np.lexsort((score[:end], row))
    sizes = np.diff(c.offsets[: c.conjunctions + 1])
    last = c.offsets[1 : c.conjunctions + 1] - 1
    has = np.flatnonzero(sizes > 0)
    step[has] = best[last[has]]
    step[has[score[step[has]] == 0]] = -1
    programs = np.arange(c.conjunctions, len(c))
    reach_row, reach_step = np.empty(0, np.int64), np.empty(0, np.int64)
    if len(programs):
        _, entries = access_sets(c, programs, np.ones(len(c.attribute), np.float32))
        asked = np.zeros(len(c), np.bool_)
        asked[entries.row] = True
        asked[entries.row[~needs_value[entries.access]]] = False
        reach_row, reach_step = entries.row[asked[entries.row]], entries.access[asked[entries.row]]
        step[reach_row[::-1]] = reach_step[::-1]  # the first one of each row
    keys, stretch, of_row = _keys(step, c, d, names)
    return Access(keys, stretch, of_row, reach_row, [names[a] for a in c.attribute[reach_step].tolist()])


def _needs_value(c: Clauses) -> NDArray[np.bool_]:
    """Which predicates hold only where the attribute has a value."""
    result = (c.lo > 0) & (c.hi >= 0)
    several = np.flatnonzero(c.hi < 0)
    result[several] = c.span_lo[c.lo[several]] > 0
    return result


def _constant_cell(c: Clauses, d: Domains) -> NDArray[np.bool_]:
    """Which predicates ask for one number or one string, which is a constant of the domain."""
    if not len(d.attributes):
        return np.zeros(len(c.attribute), np.bool_)
    base = d.string_base[c.attribute]
    is_number = (c.lo > NUMBER_BASE) & (c.lo < base) & ((c.lo - NUMBER_BASE) % 2 == 1)
    is_string = (c.lo > base) & (c.lo < d.time_base[c.attribute]) & ((c.lo - base) % 2 == 1)
    plain = d.facet[c.attribute] == int(Facet.VALUE)
    return (c.lo == c.hi) & plain & (is_number | is_string)


def _keys(
    step: NDArray[np.int64], c: Clauses, d: Domains, names: list[str]
) -> tuple[list[Key], NDArray[np.int64], NDArray[np.int64]]:
    """The distinct keys of these predicates (-1: none), their stretches, and which key each has."""
    attribute = np.where(step >= 0, c.attribute[step], -1) if len(c.attribute) else step
    cell = np.full(len(step), -1, np.int64)
    constant = _constant_cell(c, d)
    valued = np.flatnonzero(step >= 0)
    valued = valued[constant[step[valued]]] if len(valued) else valued
    cell[valued] = c.lo[step[valued]]
    both, of_row = np.unique((attribute.astype(np.int64) << 32) + cell, return_inverse=True)
    attribute, cell = (both + 1) >> 32, ((both + 1) & 0xFFFF_FFFF) - 1  # as cells begin at -1
    keys = [_key(a, at, d, names) for a, at in zip(attribute.tolist(), cell.tolist())]
    base = np.append(d.string_base, 0)[attribute]  # of the attribute -1, which is none: 0
    return keys, attribute * 3 + np.where(cell < 0, 0, np.where(cell < base, 1, 2)), of_row


def _key(attribute: int, cell: int, d: Domains, names: list[str]) -> Key:
    if attribute < 0:
        return EVERYWHERE
    if cell < 0:
        return names[attribute], THERE, 0.0
    base = int(d.string_base[attribute])
    if cell < base:
        value = float(d.number_value[d.number_offsets[attribute] + (cell - NUMBER_BASE) // 2])
        return (names[attribute], NUMBER, value) if math.isfinite(value) else (names[attribute], THERE, 0.0)
    return names[attribute], STRING, d.string(int(d.string_offsets[attribute]) + (cell - base) // 2).decode()


# ---- routes ----

# What a shard is reached through, as JSON has it: attribute -> [there, least and greatest number, likewise string].
Reach = dict[str, list[Any]]


def reach_of(access: Access, rows: NDArray[np.int64]) -> Reach:
    """Through what these rows are reached; "" stands for whatever comes."""
    result: Reach = {}
    places = np.unique(access.of_row[rows])
    # The first and the last key of a stretch are its least and its greatest: those between widen nothing. (Numbers that
    # are infinite, or none, stand at its ends and ask for every value.)
    change = np.diff(access.stretch[places]) != 0
    ends = np.append(True, change) | np.append(change, True) if len(places) else np.empty(0, np.bool_)
    for place in places[ends].tolist():
        attribute, kind, value = access.keys[place]
        if not attribute and kind != ALWAYS:  # what bears the predicate that never holds (language.flatten)
            continue
        widen(result, attribute, [kind == THERE, *(_both(value, kind == NUMBER)), *(_both(value, kind == STRING))])
    own = np.isin(access.reach_row, rows)
    for attribute in {access.reach_attribute[i] for i in np.flatnonzero(own).tolist()} - {""}:
        widen(result, attribute, [True, None, None, None, None])
    return result


def _both(value: Any, wanted: bool) -> list[Any]:
    return [value, value] if wanted else [None, None]


def widen(reach: Reach, attribute: str, other: list[Any]) -> None:
    """Adds what else the attribute is asked for."""
    mine = reach.setdefault(attribute, [False, None, None, None, None])
    mine[0] = mine[0] or other[0]
    for place, choose in ((1, min), (2, max), (3, min), (4, max)):
        both = [x for x in (mine[place], other[place]) if x is not None]
        mine[place] = choose(both) if both else None


def route(reach: Reach, types: Mapping[str, str]) -> str:
    """The expression that an event must satisfy. types: of attributes, where they are declared."""
    domains = check_types(types).domains
    if "" in reach:
        return "TRUE"
    terms: list[Expression] = []
    for attribute, (there, low, high, first, last) in sorted(reach.items()):
        if there:
            terms.append(_has_value(attribute))
            continue
        if low is not None and attribute in domains:  # constants are its integers, and only they may be written
            least, most = domains[attribute]
            low, high = max(math.floor(low), least), min(math.ceil(high), most)
            if low <= high:
                terms.append(Between(attribute, number(low), number(high), negated=False))
        elif low is not None:  # a float that is next to an integer of 64 bits may stand for it
            low, high = math.nextafter(low, -math.inf), math.nextafter(high, math.inf)
            terms.append(Between(attribute, number(low), number(high), negated=False))
        if first is not None:
            low_text, high_text = Literal(LiteralKind.STRING, first), Literal(LiteralKind.STRING, last)
            terms.append(Between(attribute, low_text, high_text, negated=False))
    return to_sql(Or(tuple(terms))) if terms else to_sql(Constant(False))


def _has_value(attribute: str) -> Expression:
    if is_condition(attribute):
        return Truth(Compare(attribute, "=", YES), None, negated=True)
    return IsNull(attribute, negated=True)
