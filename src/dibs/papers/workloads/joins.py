"""Offers of a marketplace, and subscriptions that compare a new one with all that came before.

    work = generate(Market(), subscriptions=100_000, joins=2_000, documents=1_000_000, events=1_000, seed=1)
    work.texts        subscriptions, as Dibs takes them: constants, and one of the joins
    work.documents    an Arrow table; work.events likewise, of the minutes after

A text is a template in which @name is an attribute of the event, so that other engines can have it in words of their
own (`spell`). Joins differ in a constant on the document. A share of them, and of the subscriptions, waits for goods,
shops or categories of which there is no document yet, as many a wish does.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

START = dt.datetime(2024, 1, 1)
SECOND = 1_000_000
UNKNOWN = 10_000_000  # added to the constant of a join for which there is no document
SHAPES = (
    "EXISTS (SELECT 1 FROM history d WHERE d.sku = @sku AND d.price > @price AND d.shop <> 's{0}')",
    "NOT EXISTS (SELECT 1 FROM history d WHERE d.sku = @sku AND d.shop = 's{0}')",
    "EXISTS (SELECT 1 FROM history d WHERE d.price < @price AND d.shop = 's{0}')",
    "@price < (SELECT MIN(d.price) FROM history d WHERE d.sku = @sku AND d.price > {0})",
    "(SELECT COUNT(*) FROM history d WHERE d.shop = @shop AND d.kind = 'c{0}' AND d.time > @time - INTERVAL 1 DAY) > 1",
)


@dataclass(frozen=True)
class Market:
    goods: int = 50_000
    shops: int = 1_000
    kinds: int = 500
    prices: int = 10_000
    waiting: float = 0.3  # the share of subscriptions and of joins for what is not offered yet
    broad: float = 0.0  # the share of subscriptions whose constants are true of most events
    missing: float = 0.02  # the share of values that are missing


@dataclass(frozen=True)
class JoinWorkload:
    templates: list[str]
    joins: list[str]  # the templates of joins, of which subscription n has number n % len(joins)
    documents: pa.Table
    events: pa.Table

    @property
    def texts(self) -> list[str]:
        return [spell(template, "") for template in self.templates]


def spell(template: str, prefix: str) -> str:
    """The text with this before every attribute of the event."""
    return template.replace("@", prefix)


def generate(
    market: Market, subscriptions: int, joins: int, documents: int, events: int, seed: int = 1
) -> JoinWorkload:
    draw = np.random.default_rng(seed)
    constants = np.arange(joins) // len(SHAPES) + (draw.random(joins) < market.waiting) * UNKNOWN
    some = [SHAPES[n % len(SHAPES)].format(constants[n]) for n in range(joins)]
    templates = [f"{_constants(market, draw)} AND {some[n % joins]}" for n in range(subscriptions)]
    return JoinWorkload(templates, some, offers(market, 0, documents, draw), offers(market, documents, events, draw))


def _constants(market: Market, draw: np.random.Generator) -> str:
    """What a subscription asks of the event alone."""
    if market.broad and draw.random() < market.broad:
        return f"@price > {draw.integers(1, market.prices // 10)}"
    unknown = draw.random() < market.waiting
    if draw.random() < 0.5:
        sku = draw.integers(market.goods) + market.goods * unknown
        return f"@sku = 'k{sku}' AND @price < {draw.integers(1, market.prices)}"
    kind = draw.integers(market.kinds) + market.kinds * unknown
    low = int(draw.integers(market.prices))
    return f"@kind = 'c{kind}' AND @price BETWEEN {low} AND {low + market.prices // 100}"


def offers(market: Market, first: int, count: int, draw: np.random.Generator) -> pa.Table:
    """So many offers, one every second, from this one on."""
    start = int(START.replace(tzinfo=dt.timezone.utc).timestamp()) * SECOND
    times = start + (first + np.arange(count)) * SECOND

    def text(letter: str, numbers: NDArray[Any]) -> pa.Array:
        chosen = np.char.add(letter, numbers.astype(np.str_))
        return pa.array(chosen, pa.string(), mask=draw.random(count) < market.missing)

    return pa.table(
        {
            "sku": text("k", draw.integers(market.goods, size=count)),
            "shop": text("s", draw.integers(market.shops, size=count)),
            "kind": text("c", draw.integers(market.kinds, size=count)),
            "price": pa.array(draw.integers(1, market.prices, count), pa.int64()),
            "time": pa.array(times, pa.timestamp("us")),
        }
    )
