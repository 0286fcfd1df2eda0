"""Integer workloads in the manner of BEGen, the generator of the BE-Tree paper.

Every subscription is made from one of the events so that it matches at least that one; how much more it matches
follows from the number of attributes, the operators and the width of the ranges. Attributes are called a0, a1, ...;
values are integers from 0 to cardinality - 1. The shapes:

    sparse      30,000 attributes, 1 to 9 predicates: two events share hardly any attribute
    dense       100 attributes, 3 to 7 predicates: every attribute is in 30 % of the events
    dense-many  100 attributes, 1 to 9 predicates: short subscriptions match many events (1 to 2 %)
    zipf        1,000 attributes, the k-th one 1/k as popular as the first
    ads         122 attributes, 4 to 12 predicates, mostly equality: advertisement targeting
    retail      20,000 attributes, 1 to 4 predicates: saved searches over a wide catalogue

    workload = boolean.make_named("sparse", 1_000_000)
    matcher.add_table(workload.subscription_table())
    matcher.match_batch(workload.event_batch(), attributes="attributes")
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

TEXTS_AT_ONCE = 100_000  # bounds the memory for the pieces of texts, and Arrow's 2 GB limit of one string array


@dataclass(frozen=True)
class Shape:
    """The parameters of a workload."""

    attributes: int
    cardinality: int = 100
    smallest: int = 1  # predicates of a subscription, both ends included
    largest: int = 9
    event_size: int = 30  # attributes of an event
    equality: float = 0.2  # share of `=`; the rest is <=, >= and BETWEEN in equal parts
    width: float = 0.12  # of a BETWEEN, as a share of the cardinality
    zipf: float = 0.0  # attribute k is used in proportion to 1 / (k + 1) ** zipf

    def __post_init__(self) -> None:
        if not 1 <= self.smallest <= self.largest <= self.event_size <= self.attributes:
            raise ValueError(
                "a shape needs 1 <= smallest <= largest <= event_size <= attributes, not "
                f"{self.smallest}, {self.largest}, {self.event_size}, {self.attributes}"
            )
        if self.cardinality < 1:
            raise ValueError(f"cardinality must be at least 1, not {self.cardinality}")


SHAPES = {
    "sparse": Shape(attributes=30_000),
    "dense": Shape(attributes=100, smallest=3, largest=7),
    "dense-many": Shape(attributes=100),
    "zipf": Shape(attributes=1_000, smallest=3, largest=7, zipf=1.0),
    "ads": Shape(attributes=122, cardinality=50, smallest=4, largest=12, event_size=20, equality=0.6),
    "retail": Shape(attributes=20_000, cardinality=50, smallest=1, largest=4, event_size=20, equality=0.4),
}


@dataclass(frozen=True)
class Workload:
    """Subscription s has the predicates offsets[s] : offsets[s + 1]; predicate p says that the event's value of
    attribute[p] is between low[p] and high[p], both included. No subscription has an attribute twice.
    Event i has the values event_value[i, :] of the attributes event_attribute[i, :], which are all different."""

    name: str
    shape: Shape
    offsets: NDArray[np.int64]
    attribute: NDArray[np.int32]
    low: NDArray[np.int32]
    high: NDArray[np.int32]
    event_attribute: NDArray[np.int32]
    event_value: NDArray[np.int32]

    @property
    def subscriptions(self) -> int:
        return len(self.offsets) - 1

    @property
    def events(self) -> int:
        return len(self.event_attribute)

    def expression(self, subscription: int) -> str:
        """The SQL text of one subscription."""
        return str(self._texts(subscription, subscription + 1)[0])

    @property
    def subscription_schema(self) -> pa.Schema:
        return pa.schema([("id", pa.int64()), ("expression", pa.string())])

    def subscription_batches(self, rows: int = TEXTS_AT_ONCE) -> Iterator[pa.RecordBatch]:
        """(id int64, expression string), a batch at a time; the id is the subscription's number."""
        for start in range(0, self.subscriptions, rows):
            stop = min(start + rows, self.subscriptions)
            ids = pa.array(np.arange(start, stop, dtype=np.int64))
            yield pa.record_batch([ids, self._texts(start, stop)], names=["id", "expression"])

    def subscription_table(self, progress: Callable[[int, int], None] | None = None) -> pa.Table:
        """All subscriptions as an Arrow table; `progress` is called with (done, total)."""
        batches = []
        for batch in self.subscription_batches():
            batches.append(batch)
            if progress is not None:
                progress(sum(map(len, batches)), self.subscriptions)
        return pa.Table.from_batches(batches, self.subscription_schema)

    def event_batches(self) -> Iterator[pa.RecordBatch]:
        yield self.event_batch()

    def event_batch(self) -> pa.RecordBatch:
        """(id int64, attributes map<string, int64>)."""
        numbers = pa.array(self.event_attribute.ravel()).cast(pa.string())
        names = pc.binary_join_element_wise("a", numbers, "")
        values = pa.array(self.event_value.ravel().astype(np.int64))
        starts = np.arange(self.events + 1, dtype=np.int32) * np.int32(self.shape.event_size)
        attributes = pa.MapArray.from_arrays(pa.array(starts), names, values)
        ids = pa.array(np.arange(self.events, dtype=np.int64))
        return pa.record_batch([ids, attributes], names=["id", "attributes"])

    def event_columns(self) -> pa.RecordBatch:
        """A column of int64 for each attribute, null where an event has no value. For shapes of few attributes."""
        values = np.zeros((self.shape.attributes, self.events), np.int64)
        missing = np.ones((self.shape.attributes, self.events), bool)
        row = np.arange(self.events)[:, None]
        values[self.event_attribute, row] = self.event_value
        missing[self.event_attribute, row] = False
        columns = [pa.array(v, mask=m) for v, m in zip(values, missing, strict=True)]
        return pa.record_batch(columns, names=[f"a{k}" for k in range(self.shape.attributes)])

    def event_dicts(self) -> list[dict[str, int]]:
        return [
            {f"a{a}": v for a, v in zip(names, values, strict=True)}
            for names, values in zip(self.event_attribute.tolist(), self.event_value.tolist(), strict=True)
        ]

    def _texts(self, start: int, stop: int) -> pa.StringArray:
        first, last = self.offsets[start], self.offsets[stop]
        low, high = self.low[first:last], self.high[first:last]
        top = self.shape.cardinality - 1
        kind = np.select([low == high, low == 0, high == top], [0, 1, 2], 3).astype(np.int8)
        operators = pa.array([" = ", " <= ", " >= ", " BETWEEN "])
        numbers = pa.array([str(v) for v in range(top + 1)])
        tails = pa.array([f" AND {v}" for v in range(top + 1)] + [""])
        predicates = pc.binary_join_element_wise(
            "a",
            pa.array(self.attribute[first:last]).cast(pa.string()),
            operators.take(pa.array(kind)),
            numbers.take(pa.array(np.where(kind == 1, high, low))),
            tails.take(pa.array(np.where(kind == 3, high, top + 1))),
            "",
        )
        starts = (self.offsets[start : stop + 1] - first).astype(np.int32)
        return pc.binary_join(pa.ListArray.from_arrays(pa.array(starts), predicates), " AND ")


def make_named(name: str, subscriptions: int, events: int = 1_000, seed: int = 1) -> Workload:
    """One of the SHAPES in the size wanted."""
    if name not in SHAPES:
        raise ValueError(f"no workload is called {name!r}; there are: {', '.join(SHAPES)}")
    return generate(SHAPES[name], subscriptions, events, seed, name)


def generate(shape: Shape, subscriptions: int, events: int = 1_000, seed: int = 1, name: str = "own") -> Workload:
    """A workload of any shape. Subscription s is made from event s % events, whose values satisfy it."""
    if subscriptions < 0 or events < 1:
        raise ValueError(
            f"a workload needs an event and no negative number, not {events} events, {subscriptions} subscriptions"
        )
    random = np.random.default_rng(seed)
    event_attribute = _choose_attributes(random, shape, events)
    event_value = random.integers(0, shape.cardinality, (events, shape.event_size), dtype=np.int32)

    size = random.integers(shape.smallest, shape.largest + 1, subscriptions)
    offsets = np.concatenate([[0], np.cumsum(size)]).astype(np.int64)
    attribute = np.empty(offsets[-1], np.int32)
    value = np.empty(offsets[-1], np.int32)
    for start in range(0, subscriptions, TEXTS_AT_ONCE):
        stop = min(start + TEXTS_AT_ONCE, subscriptions)
        order = _shuffle_heads(random, stop - start, shape.event_size, shape.largest)
        wanted = np.arange(shape.largest) < size[start:stop, None]
        place = order[wanted]
        event = np.repeat(np.arange(start, stop) % events, size[start:stop])
        attribute[offsets[start] : offsets[stop]] = event_attribute[event, place]
        value[offsets[start] : offsets[stop]] = event_value[event, place]
    low, high = _ranges(random, shape, value)
    return Workload(name, shape, offsets, attribute, low, high, event_attribute, event_value)


def _choose_attributes(random: np.random.Generator, shape: Shape, events: int) -> NDArray[np.int32]:
    """Different attributes for each event: the largest keys of log(weight) + Gumbel noise are a weighted draw
    without replacement."""
    log_weight = -shape.zipf * np.log(np.arange(1, shape.attributes + 1))
    chosen = np.empty((events, shape.event_size), np.int32)
    for start in range(0, events, 100):
        stop = min(start + 100, events)
        keys = random.gumbel(size=(stop - start, shape.attributes)) + log_weight
        largest = np.argpartition(keys, -shape.event_size, axis=1)[:, -shape.event_size :]
        chosen[start:stop] = np.sort(largest, axis=1)  # argpartition's own order differs between machines
    return chosen


def _shuffle_heads(random: np.random.Generator, rows: int, width: int, head: int) -> NDArray[np.int64]:
    """The first `head` places of a random order of 0 .. width - 1, for each row: a Fisher-Yates shuffle that stops."""
    order = np.tile(np.arange(width), (rows, 1))
    row = np.arange(rows)
    for place in range(head):
        other = random.integers(place, width, rows)
        order[row, place], order[row, other] = order[row, other], order[row, place].copy()
    return order[:, :head]


def _ranges(random: np.random.Generator, shape: Shape, value: NDArray[np.int32]) -> tuple[Any, Any]:
    """Bounds round each value: `=`, or one of <=, >=, BETWEEN with a bound at a random distance."""
    n, top = len(value), shape.cardinality - 1
    kind = np.where(random.random(n) < shape.equality, 0, random.integers(1, 4, n))
    place = random.random(n)
    span = max(1, int(shape.cardinality * shape.width))
    above = value + (place * (top + 1 - value)).astype(np.int32)
    below = (place * (value + 1)).astype(np.int32)
    start = np.maximum(value - (place * span).astype(np.int32), 0)
    end = np.minimum(start + span, top)
    low = np.choose(kind, [value, 0, below, start]).astype(np.int32)
    high = np.choose(kind, [value, above, top, end]).astype(np.int32)
    return low, high
