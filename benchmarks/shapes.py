"""Shapes of workloads that people have, and what a seed draws among them: texts of subscriptions and events as dicts.

A shape says which operators, how many attributes, values and subscriptions, how long lists are, and what of all that
an event has. `drawn(seed)` is one of very many; `NAMED` are those that `auto` once was slow on. Everything is made by
Python's random generator, so a seed means the same everywhere.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import accumulate
from random import Random
from typing import Any

LETTERS = "abcdefghijklmnop"
TEXTS = ("prefix", "suffix", "contains", "like")  # operators that ask for texts
OPERATORS = ("=", "in", "<", "between", "<>", "not in", "is null", *TEXTS)
MOST_WEIGHED = 100_000  # values of which each may be of another likelihood


@dataclass(frozen=True)
class Shape:
    """Pairs are the least and the most of what is drawn uniformly."""

    name: str
    subscriptions: int
    attributes: int
    values: int  # of an attribute
    predicates: tuple[int, int]
    operators: tuple[str, ...]  # each as likely as it is often named
    present: tuple[int, int]  # attributes of an event
    listed: tuple[int, int] = (2, 5)  # values of a list
    width: float = 0.1  # share of the values that a range covers, at most
    skew: float = 0.0  # of values and attributes: the exponent of a Zipf distribution
    ors: float = 0.0  # share of subscriptions that are an OR of two conjunctions
    nots: float = 0.0  # share of conjunctions that are negated
    repeated: float = 0.0  # share of subscriptions that repeat an earlier one's expression
    tenants: int = 0  # with them, every subscription begins with `tenant = n`, and every event has one
    template: str = ""  # instead of predicates, one of TEMPLATES
    events: int = 3_000
    batch: int = 3_000

    def __str__(self) -> str:
        """The name, and what differs from a shape that says nothing."""
        told = [f"{f.name} {getattr(self, f.name)}" for f in fields(self)[1:] if getattr(self, f.name) != f.default]
        return f"{self.name}: {', '.join(told)}"


class Maker:
    """Draws subscriptions and events of a shape."""

    def __init__(self, shape: Shape, seed: int):
        self.shape, self._random = shape, Random(f"{shape.name} {seed}")

    def texts(self) -> list[str]:
        made: list[str] = []
        for _ in range(self.shape.subscriptions):
            if made and self._random.random() < self.shape.repeated:
                made.append(made[self._random.randrange(len(made))])
            else:
                made.append(self._subscription())
        return made

    def events(self) -> list[dict[str, Any]]:
        return [self._event() for _ in range(self.shape.events)]

    def _subscription(self) -> str:
        s, random = self.shape, self._random
        if s.template:
            return TEMPLATES[s.template](self)
        text = self._conjunction()
        if random.random() < s.ors:
            text = f"({text} OR {self._conjunction()})"
        if random.random() < s.nots:
            text = f"NOT ({text})"
        return f"tenant = {random.randrange(s.tenants)} AND {text}" if s.tenants else text

    def _conjunction(self) -> str:
        most = min(self._random.randint(*self.shape.predicates), self.shape.attributes)
        return " AND ".join(self._predicate(a) for a in self._attributes(most))

    def _attributes(self, count: int) -> list[int]:
        """Distinct ones."""
        if count == self.shape.attributes:
            return list(range(count))
        chosen: dict[int, None] = {}
        while len(chosen) < count:
            chosen[self._skewed(self.shape.attributes, self._attribute_weights)] = None
        return list(chosen)

    def _predicate(self, a: int) -> str:
        s, random = self.shape, self._random
        operator = random.choice(s.operators)
        if operator in TEXTS:
            return self._text_predicate(f"t{a}", operator)
        name, x = f"a{a}", self._value()
        if operator == "=" or operator == "<>":
            return f"{name} {operator} {x}"
        if operator in ("in", "not in"):
            values = {self._value() for _ in range(random.randint(*s.listed))}
            return f"{name} {operator.upper()} ({', '.join(map(str, sorted(values)))})"
        if operator == "<":
            return f"{name} < {x}" if random.random() < 0.5 else f"{name} >= {x}"
        if operator == "between":
            return f"{name} BETWEEN {x} AND {x + int(random.random() * s.width * s.values)}"
        assert operator == "is null", operator
        return f"{name} IS NULL"

    def _text_predicate(self, name: str, operator: str) -> str:
        text = text_of(self._value())
        if operator == "prefix":
            return f"{name} LIKE '{text[: self._random.randint(2, len(text))]}%'"
        if operator == "suffix":
            return f"{name} LIKE '%{text[-self._random.randint(2, len(text)) :]}'"
        if operator == "contains":
            return f"{name} LIKE '%{text[1:]}%'"
        return f"{name} LIKE '{text[:2]}%{text[-2:]}'"

    def _event(self) -> dict[str, Any]:
        s, random = self.shape, self._random
        if s.template in EVENTS:
            return EVENTS[s.template](self)
        own = self._attributes(min(random.randint(*s.present), s.attributes))
        texts, numbers = any(o in TEXTS for o in s.operators), any(o not in TEXTS for o in s.operators)
        event: dict[str, Any] = {"tenant": random.randrange(s.tenants)} if s.tenants else {}
        for a in own:
            value = self._value()
            event |= ({f"a{a}": value} if numbers else {}) | ({f"t{a}": text_of(value)} if texts else {})
        return event

    def _value(self) -> int:
        return self._skewed(self.shape.values, self._value_weights)

    def _skewed(self, count: int, weights: list[float]) -> int:
        if not weights:
            return self._random.randrange(count)
        return bisect_left(weights, self._random.random() * weights[-1])

    @cached_property
    def _value_weights(self) -> list[float]:
        return self._zipf(self.shape.values)

    @cached_property
    def _attribute_weights(self) -> list[float]:
        return self._zipf(self.shape.attributes)

    def _zipf(self, count: int) -> list[float]:
        if not self.shape.skew or count > MOST_WEIGHED:
            return []
        return list(accumulate(1.0 / (1 + i) ** self.shape.skew for i in range(count)))

    # ---- templates

    def long_list(self) -> str:
        ids = self._random.sample(range(self.shape.values), 500)
        return f"user IN ({', '.join(map(str, ids))}) AND amount > {self._random.randrange(1_000)}"

    def user(self) -> dict[str, Any]:
        return {"user": self._random.randrange(self.shape.values), "amount": self._random.randrange(1_000)}

    def rectangle(self) -> str:
        lat, lon = self._random.uniform(-90, 90), self._random.uniform(-180, 180)
        high, wide = self._random.uniform(0, 5.4), self._random.uniform(0, 10.8)
        return f"lat BETWEEN {lat:.4f} AND {lat + high:.4f} AND lon BETWEEN {lon:.4f} AND {lon + wide:.4f}"

    def place(self) -> dict[str, Any]:
        return {"lat": round(self._random.uniform(-90, 90), 4), "lon": round(self._random.uniform(-180, 180), 4)}

    def expression(self) -> str:
        return rf"url RLIKE '(?i)/[a-z]+{self._random.randrange(10_000)}/.*\\.(php|asp)x?$'"

    def url(self) -> dict[str, Any]:
        words = [f"{self._random.choice(LETTERS)}x{self._random.randrange(10_000)}" for _ in range(3)]
        return {"url": f"https://www.example.com/{'/'.join(words)}/page.{self._random.choice(['php', 'aspx', 'html'])}"}


TEMPLATES = {"long list": Maker.long_list, "rectangle": Maker.rectangle, "expression": Maker.expression}
EVENTS = {"long list": Maker.user, "rectangle": Maker.place, "expression": Maker.url}


def text_of(value: int) -> str:
    """A word for the number: neighbours share a prefix, as words do."""
    word = ""
    for _ in range(5):
        word = LETTERS[value % 16] + word
        value //= 16
    return "k" + word


_PLAIN = Shape("", 60_000, 3, 1_000, (1, 1), ("=",), (1, 1))
# What `auto` was slow on when users first tried it: the rows of the table of issue 33, in order.
NAMED = {
    shape.name: shape
    for shape in (
        replace(_PLAIN, name="long list", subscriptions=5_000, values=1_000_000, template="long list"),
        replace(_PLAIN, name="three lists, two there", predicates=(3, 3), operators=("in",), listed=(20, 200),
                present=(2, 2)),
        replace(_PLAIN, name="three lists", predicates=(3, 3), operators=("in",), listed=(20, 200), present=(3, 3)),
        replace(_PLAIN, name="rectangles", subscriptions=100_000, template="rectangle"),
        replace(_PLAIN, name="short lists", attributes=60, values=30, predicates=(1, 3), operators=("in",),
                present=(8, 8)),
        replace(_PLAIN, name="one equality", attributes=3_000, values=1_000_000, present=(10, 10)),
        replace(_PLAIN, name="mixed, two there", attributes=6, predicates=(3, 6), present=(2, 2),
                operators=("=", "in", "<", "between")),
        replace(_PLAIN, name="expressions", subscriptions=5_000, template="expression"),
    )
}  # fmt: skip


def drawn(seed: int, number: int, largest: int = 100_000) -> Shape:
    """The shape of this number among those of a seed, with at most so many subscriptions."""
    random = Random(f"shape {seed} {number}")
    attributes = _between(random, 2, 30_000)
    texts = random.random() < 0.25
    kinds = TEXTS if texts else ("=", "in", "<", "between")
    operators = tuple(random.sample(kinds, random.randint(1, len(kinds))))
    if random.random() < 0.3:
        operators += (random.choice(("<>", "not in", "is null", "=") if not texts else ("=", "in")),)
    longest = random.choice((5, 5, 20, 100, 500))
    fewest = random.randint(1, 4)
    most_present = min(attributes, 60)
    present = random.choice((1, 2, max(most_present // 4, 1), most_present))
    subscriptions = _between(random, 500, largest)
    if max(operators.count("in"), operators.count("not in")):
        subscriptions = min(subscriptions, 10_000_000 // longest)
    return Shape(
        name=f"{seed}.{number}",
        subscriptions=subscriptions,
        attributes=attributes,
        values=_between(random, 4, 1_000_000),
        predicates=(fewest, fewest + random.choice((0, 0, 2, 4))),
        operators=operators,
        present=(max(present // 2, 1), present),
        listed=(max(longest // 10, 2), longest),
        width=random.choice((0.001, 0.01, 0.1, 1.0)),
        skew=random.choice((0.0, 0.0, 0.5, 1.0)),
        ors=random.choice((0.0, 0.0, 0.0, 0.3, 1.0)),
        nots=random.choice((0.0, 0.0, 0.0, 0.1)),
        repeated=random.choice((0.0, 0.0, 0.0, 0.5, 0.95)),
        tenants=random.choice((0, 0, 0, 10, 1_000)),
        batch=random.choice((1, 10, 100, 1_000, 3_000, 3_000)),
    )


def _between(random: Random, least: int, most: int) -> int:
    """Each order of magnitude as likely."""
    return round(least * (most / least) ** random.random())
