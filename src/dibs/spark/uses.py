"""How many subscriptions ask for an attribute, and with constants of which kinds: of what is compiled, and of texts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

import numpy as np
from numpy.typing import NDArray

from dibs.coding.clauses import Clauses
from dibs.coding.domain import NUMBER_BASE, Domains
from dibs.language.table import Facet
from dibs.segments.layer import Layer
from dibs.storage.versions import NUMBERS, STRINGS, TIMES

Asked = tuple[str, int]  # an attribute, and the bit of a kind of constants; 0: whatever it is compared with
Uses = Callable[[Collection[Asked]], dict[Asked, int]]  # the number of subscriptions for each


def count_uses(layers: Iterable[Layer], asked: Collection[Asked]) -> dict[Asked, int]:
    counts = dict.fromkeys(asked, 0)
    for layer in layers:
        for each, count in _count(layer, asked).items():
            counts[each] += count
    return counts


def count_kinds(kinds: Iterable[dict[str, int]], asked: Collection[Asked]) -> dict[Asked, int]:
    """The same of subscriptions of which these are the kinds of constants by attribute."""
    counts = dict.fromkeys(asked, 0)
    for own in kinds:
        for name, bit in asked:
            counts[name, bit] += name in own and (not bit or bool(own[name] & bit))
    return counts


def _count(layer: Layer, asked: Collection[Asked]) -> dict[Asked, int]:
    c, d = layer.segment.clauses_by_row, layer.segment.domains
    names = {name for name, _ in asked}
    places = [place for place, (name, _) in enumerate(d.attributes) if name in names]
    own = np.flatnonzero(np.isin(c.attribute, places))
    row = np.searchsorted(c.offsets, own, "right") - 1
    left = ~np.isin(row, layer.gone.list_rows())
    own, row = own[left], row[left]
    attribute, bits = c.attribute[own], _bits(c, d, own)
    found = {}
    for name, bit in asked:
        named = np.isin(attribute, [place for place in places if d.attributes[place][0] == name])
        found[name, bit] = len(np.unique(row[named & ((bits & bit) != 0 if bit else True)]))
    return found


def _bits(c: Clauses, d: Domains, own: NDArray[np.int64]) -> NDArray[np.int64]:
    """The kinds of the constants of some predicates: those of their spans that do not reach over kinds."""
    several = c.hi[own] < 0
    counts = np.where(several, -c.hi[own], 1).astype(np.int64)
    of = np.repeat(np.arange(len(own)), counts)
    within = np.arange(len(of)) - np.repeat(np.cumsum(counts) - counts, counts)
    side = np.where(several[of], c.lo[own][of] + within, 0)
    many = len(c.span_lo) > 0
    low = np.where(several[of], c.span_lo[side] if many else 0, c.lo[own][of])
    high = np.where(several[of], c.span_hi[side] if many else 0, c.hi[own][of])
    attribute = c.attribute[own][of]
    first, last = (_kind(cell, d.string_base[attribute], d.time_base[attribute]) for cell in (low, high))
    compared = np.isin(d.facet[attribute], (int(Facet.VALUE), int(Facet.TIME)))
    kind = np.where(compared, np.where(first == last, first, 0), STRINGS)
    result = np.zeros(len(own), np.int64)
    np.bitwise_or.at(result, of, kind)
    return result


def _kind(cell: NDArray[np.int32], strings: NDArray[np.int32], times: NDArray[np.int32]) -> NDArray[np.int64]:
    return np.where(cell < NUMBER_BASE, 0, np.where(cell < strings, NUMBERS, np.where(cell < times, STRINGS, TIMES)))
