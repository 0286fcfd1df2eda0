"""An online shop: products to publish, and the saved searches that wait for them.

In the manner of the OpIndex paper's eBay generator. A catalogue of products is made first; it has about 2,000
attributes, and how many products have one is very skewed (brand 31 %, country of manufacture 17 %, then a long tail
that only one category has). The events are products picked at random. With f(A) products having attribute A, a
subscription's first attribute is drawn in proportion to log f(A); the others are drawn with the same weights among
the attributes of a product that has the first, so that a subscription speaks about one thing that the shop really
sells. Most of its values are that product's.

    shop = generate(subscriptions=100_000, events=20_000)
    shop.subscriptions    id, expression[, weight]      "mia-17", "category = 'rugs' AND price <= 89.99"
    shop.events           id, attributes                a product as a JSON text, numbers as numbers
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dibs.workloads.shop_catalogue import Catalogue, make_catalogue
from dibs.workloads.shop_searches import expressions
from dibs.workloads.shop_words import FIRST_NAMES

SUBSCRIPTIONS_AT_ONCE = 20_000
SMALLEST_CATALOGUE = 50_000  # products; fewer would lack many of the rare attributes


@dataclass(frozen=True)
class Shop:
    subscriptions: pa.Table  # id string, expression string[, weight double]
    events: pa.Table  # id int64, attributes string (JSON)
    frequency: dict[str, int]  # how many of the catalogue's products have the attribute, the commonest first


def generate(
    subscriptions: int = 100_000,
    events: int = 20_000,
    *,
    seed: int = 1,
    weights: bool = False,
    malformed: float = 0.0,
    progress: Callable[[int, int], None] | None = None,
) -> Shop:
    """The shop, the same for the same arguments. A larger shop begins with the subscriptions of a smaller one.

    malformed: the share of events whose JSON text is broken off; progress: called with (done, total) subscriptions.
    """
    if subscriptions < 0 or events < 0:
        raise ValueError(f"a shop cannot have {subscriptions} subscriptions and {events} events")
    if not 0 <= malformed <= 1:
        raise ValueError(f"malformed is a share from 0 to 1, not {malformed}")
    catalogue = make_catalogue(np.random.default_rng([seed, 0]), max(SMALLEST_CATALOGUE, events))
    batches = []
    done = 0
    for batch in _subscriptions(catalogue, subscriptions, seed):
        batches.append(batch if weights else batch.drop_columns(["weight"]))
        done += len(batch)
        if progress is not None:
            progress(done, subscriptions)
    fields = [("id", pa.string()), ("expression", pa.string())] + [("weight", pa.float64())] * weights
    frequency = sorted(zip(catalogue.names, catalogue.frequency.tolist(), strict=True), key=lambda pair: -pair[1])
    return Shop(
        pa.Table.from_batches(batches, pa.schema(fields)),
        _events(np.random.default_rng([seed, 1]), catalogue, events, malformed),
        {name: count for name, count in frequency if count},
    )


def _subscriptions(catalogue: Catalogue, subscriptions: int, seed: int) -> Iterator[pa.RecordBatch]:
    for part, start in enumerate(range(0, subscriptions, SUBSCRIPTIONS_AT_ONCE)):
        random = np.random.default_rng([seed, 2, part])
        numbers = np.arange(start, start + SUBSCRIPTIONS_AT_ONCE)
        names = FIRST_NAMES.split()
        who = pa.array(names).take(pa.array(random.integers(0, len(names), len(numbers))))
        whole = pa.record_batch(
            {
                "id": pc.binary_join_element_wise(who, pa.array(numbers).cast(pa.string()), "-"),
                "expression": expressions(random, catalogue, len(numbers)),
                "weight": pa.array(np.round(random.lognormal(2, 1, len(numbers)), 2)),
            }
        )
        yield whole.slice(0, subscriptions - start)


def _events(random: np.random.Generator, catalogue: Catalogue, events: int, malformed: float) -> pa.Table:
    product = random.permutation(catalogue.products)[:events]
    texts = catalogue.json(product)
    broken = random.random(events) < malformed
    if broken.any():
        halves = [text[: len(text) // 2] for text in texts.filter(pa.array(broken)).to_pylist()]
        texts = pc.replace_with_mask(texts, pa.array(broken), pa.array(halves, pa.string()))
    return pa.table({"id": pa.array(product.astype(np.int64)), "attributes": texts})
