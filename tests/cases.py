"""Random cases, drawn from a `random.Random`: subscriptions and events that meet.

A world is what one case speaks of: a few attributes, each with constants of one kind or of several at once. Expressions
are made of these constants, and event values lie at them, just below, just above, or are the same in another kind, so
that a good share of the pairs match and most of the others fail by little.

Not every world has everything: a batch with one array in it takes other paths than a batch of single values, and an OR
other paths than a conjunction. So each world is plain in some ways and wild in others.

batches.py makes whole batches of such values, in every form that an entry takes. Hypothesis draws the same cases: see
`cases` in strategies.py.
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
from collections.abc import Sequence
from random import Random
from typing import Any, NamedTuple

import numpy as np

from dibs.coding.values import Range
from dibs.language.expression import (
    And,
    Between,
    Compare,
    Constant,
    Expression,
    In,
    IsNull,
    Kind,
    Like,
    Literal,
    Not,
    Or,
    Predicate,
    RLike,
    StringTest,
    Truth,
    literal,
)
from dibs.language.predicates import MAX_UNKNOWN
from dibs.reference import evaluate

NAMES = ("a", "b", "c.d", "x y", "select", "c.e.f", "g", "h", "é", "k", *(f"s{i}" for i in range(30)))
OPERATORS = ("=", "<>", "<", "<=", ">", ">=")
KINDS = tuple(Kind)

MIDNIGHT = dt.datetime(2024, 2, 29)
TICK = dt.timedelta(microseconds=1)
NUMBERS: list[Any] = [0, 1, 2, 3, 7, -1, 0.1, 0.5, 1.5, -0.0, 5e-324, 1e300, math.nan, math.inf, -math.inf]
LARGE = [
    2**53,
    2**53 + 1,
    2.0**53 + 2,
    2**63 - 1,
    2**63,
    2**64 - 1,
    2**64,
    -(2**63),
    -(2**63) - 1,
    10**30,
    -(2**53) - 1,
]
WORDS = [
    "",
    "a",
    "ab",
    "abc",
    "b",
    "B",
    "é",
    "zürich",
    "\U0001f600",
    "a%b",
    "it's",
    "a\\b",
    "a\nb",
    "\uffff",
    "1",
    "a\0",
]
# Strings are ordered by their first bytes as one word, and then one by one: so these differ before, at and after them.
PREFIXES = ["comm", "common-", "common-p", "common-prefix", "common-préfix", "common-prefix-of-many-strings"]
TIMES = [
    MIDNIGHT,
    MIDNIGHT.date(),
    MIDNIGHT + TICK,
    dt.date(1969, 12, 31),
    dt.datetime(1970, 1, 1),
    dt.date.min,
    dt.date.max,
]

LIKE_PATTERNS = [
    "",
    "%",
    "_",
    "a%",
    "%b",
    "%b%",
    "a_",
    "_b%",
    "ab",
    "a\\%b",
    "a%b%",
    "%%",
    "é%",
    "%é",
    "__%",
    "common%x",
]
RLIKE_PATTERNS = ["a", "^a", "b$", "^ab?$", "[ab]+", "a.b", "(?i)A", "^$", "é|ü", "^.$", "a{2}|b", "\\\\", "prefix$"]
UNREADABLE = [b"x", 1j, dt.timedelta(1), "\ud800", Range(2, 1), Range(1, "x"), Range(None, None), object]


class Attribute(NamedTuple):
    name: str
    constants: list[Any]  # that predicates compare it with
    presence: float  # share of the events that have it


class World(NamedTuple):
    attributes: list[Attribute]
    shapes: Sequence[str]  # of predicates
    depth: int  # of AND, OR and NOT; 0: conjunctions
    several: bool  # arrays and ranges in events
    unreadable: bool  # some values of no kind in events
    long: bool = False  # some conjunctions of more predicates than a byte counts


# --- worlds --------------------------------------------------------------------------------------------------------


def random_world(random: Random) -> World:
    long = random.random() < 0.1
    names = list(NAMES[: 40 if long else random.choice([1, 2, 3, 5, 8, 10, 40])])
    several_kinds = random.random() < 0.6
    few = random.random() < 0.3  # constants: many subscriptions share theirs
    attributes = []
    for name in names:
        kinds = [kind for kind in KINDS if random.random() < 0.5] if several_kinds else []
        kinds = kinds or [random.choice(KINDS)]
        count = 2 if few else random.choice([3, 6, 12])
        constants = [random_constant(random, random.choice(kinds)) for _ in range(count)]
        attributes.append(Attribute(name, constants, 1.0 if long else random.choice([0.05, 0.3, 0.8, 0.8, 1.0])))
    plain = ["compare", "compare", "compare", "in", "between", "null"]
    shapes = [*plain, "string", "like", "rlike"] if random.random() < 0.6 else plain
    depth = random.choice([0, 0, 1, 2, 3])
    return World(attributes, shapes, depth, random.random() < 0.4, random.random() < 0.1, long)


def random_constant(random: Random, kind: Kind) -> Any:
    if kind == Kind.BOOLEAN:
        return random.random() < 0.5
    if kind == Kind.STRING:
        if random.random() < 0.4:
            return random.choice(PREFIXES) + random.choice(WORDS)
        return random.choice(WORDS)
    if kind == Kind.TIME:
        if random.random() < 0.4:
            return MIDNIGHT + TICK * random.randint(-3, 3)
        return random.choice(TIMES)
    source = random.choice(["small", "small", "quarters", "special", "large"])
    if source == "small":
        return random.randint(-5, 5)
    if source == "quarters":
        return random.randint(-20, 20) / 4
    return random.choice(NUMBERS if source == "special" else LARGE)


# --- expressions ---------------------------------------------------------------------------------------------------


def random_expressions(random: Random, world: World, count: int) -> list[Expression]:
    return [random_expression(random, world) for _ in range(count)]


def random_expression(random: Random, world: World) -> Expression:
    if world.long and random.random() < 0.05:
        return And(tuple(_exclusion(random, world) for _ in range(random.choice([60, 127, 130, 254, 260]))))
    if world.depth == 0 or random.random() < 0.3:
        parts = tuple(random_predicate(random, world) for _ in range(random.choice([1, 1, 2, 2, 3, 4])))
        return parts[0] if len(parts) == 1 else And(parts)
    return random_tree(random, world, world.depth)


def _exclusion(random: Random, world: World) -> Predicate:
    """What most values satisfy."""
    name, constants, _ = random.choice(world.attributes)
    if random.random() < 0.3:
        return IsNull(name, negated=True)
    return Compare(name, "<>", literal(random.choice(constants)))


def random_tree(random: Random, world: World, depth: int) -> Expression:
    shape = random.choice(["predicate", "and", "or", "or", random.choice(["not", "truth"])]) if depth else "predicate"
    if shape == "predicate":
        if random.random() < 0.03:
            return Constant(random.choice([True, False, None]))
        return random_predicate(random, world)
    if shape == "not":
        return Not(random_tree(random, world, depth - 1))
    if shape == "truth":
        value = random.choice([True, True, False, None])
        return truth(random_tree(random, world, depth - 1), value, random.random() < 0.6)
    children = tuple(random_tree(random, world, depth - 1) for _ in range(random.randint(2, 3)))
    return And(children) if shape == "and" else Or(children)


def truth(child: Expression, value: bool | None, negated: bool) -> Truth:
    """(child) IS [NOT] value, unless the grammar refuses it: then IS TRUE is asked in place of IS UNKNOWN."""
    return Truth(child, value if value is not None or unknowns_in(child) < MAX_UNKNOWN else True, negated)


def unknowns_in(node: Expression) -> int:
    """How deep IS UNKNOWN is asked of IS UNKNOWN."""
    if isinstance(node, (And, Or)):
        return max(map(unknowns_in, node.children), default=0)
    if isinstance(node, (Not, Truth)):
        return unknowns_in(node.child) + (isinstance(node, Truth) and node.value is None)
    return 0


def random_predicate(random: Random, world: World) -> Predicate:
    attribute = random.choice(world.attributes)
    name, negated = attribute.name, random.random() < 0.3
    texts = [x for x in attribute.constants if isinstance(x, str)] or ["a"]
    shape = random.choice(world.shapes)
    if shape == "null":
        return IsNull(name, random.random() < 0.6)
    if shape == "string":
        text, function = random.choice(texts), random.choice(["STARTSWITH", "ENDSWITH", "CONTAINS"])
        part = {"STARTSWITH": text[:-1], "ENDSWITH": text[1:], "CONTAINS": text[1:-1]}[function]
        return StringTest(name, function, random.choice([text, part]), negated)
    if shape == "like":
        if random.random() < 0.2:
            return Like(name, random.choice(["a!%b", "!_%", "a!!b", "!%"]), "!", negated)
        return Like(name, random.choice(LIKE_PATTERNS), "\\", negated)
    if shape == "rlike":
        return RLike(name, random.choice(RLIKE_PATTERNS), negated)

    def constant(kind: Kind | None = None) -> Literal:
        all_ = [literal(x) for x in attribute.constants]
        return random.choice([x for x in all_ if kind in (None, x.kind)])

    first = constant()
    kind = first.kind if random.random() < 0.9 else None  # of the others
    if shape == "in":
        items = _without_texts([first, *(constant(kind) for _ in range(random.choice([0, 1, 2, 3, 4, 15])))])
        return In(name, tuple(items), negated, null=random.random() < 0.1)
    if shape == "between":
        ends = _without_texts([first, constant(kind)])
        ends = [ends[0], ends[-1]]
        if (
            ends[0].kind == ends[1].kind
            and random.random() < 0.9
            and not evaluate(Compare("a", "<=", ends[1]), {"a": ends[0].value})
        ):
            ends.reverse()
        return Between(name, *ends, negated)
    return Compare(name, random.choice(OPERATORS), first)


def _without_texts(found: list[Literal]) -> list[Literal]:
    """None twice, and no strings beside times, which the grammar would read as times."""
    is_timed = any(each.kind == Kind.TIME for each in found)
    return [each for each in dict.fromkeys(found) if not is_timed or each.kind != Kind.STRING]


# --- values --------------------------------------------------------------------------------------------------------


def near(random: Random, constant: Any) -> Any:
    """The value itself, one just below or above it, another spelling of it, or its like in another kind."""
    how = random.choice(["equal", "equal", "equal", "below", "above", "spelling", "other kind"])
    if how == "equal":
        return constant
    if how == "other kind":
        return _in_another_kind(random, constant)
    step = {"below": -1, "above": 1}.get(how, 0)
    if isinstance(constant, bool):
        return constant if step else np.bool_(constant)
    if isinstance(constant, int):
        if step:
            return constant + step
        spellings = [float(constant), decimal.Decimal(constant), constant + 0.5]
        return random.choice([*spellings, np.int64(constant)] if abs(constant) < 2**63 else spellings)
    if isinstance(constant, float):
        if step:
            return math.nextafter(constant, step * math.inf)
        integral = math.isfinite(constant) and constant == int(constant)
        small = np.float32(constant) if abs(constant) < 1e30 else constant
        return random.choice([np.float64(constant), small, int(constant) if integral else constant])
    if isinstance(constant, str):
        if step == 0:
            return random.choice([constant.upper(), constant[::-1], "a" + constant])
        return constant[:-1] if step < 0 else constant + random.choice(["\0", "b", "é"])
    moment = constant if isinstance(constant, dt.datetime) else dt.datetime(constant.year, constant.month, constant.day)
    if step == 0:
        spellings = [moment.date(), np.datetime64(moment, "us")]
        if 1 < moment.year < 9999:
            zone = dt.timezone(dt.timedelta(hours=5, minutes=30))
            spellings.append(moment.replace(tzinfo=dt.timezone.utc).astimezone(zone))
        return random.choice(spellings)
    return moment if (moment.year, step) in ((1, -1), (9999, 1)) else moment + step * TICK


def _in_another_kind(random: Random, constant: Any) -> Any:
    if isinstance(constant, bool):
        return random.choice([int(constant), str(constant), float(constant)])
    if isinstance(constant, (int, float)):
        return random.choice([str(constant), bool(constant), MIDNIGHT])
    if isinstance(constant, str):
        return random.choice([len(constant), constant == "", MIDNIGHT.date()])
    return random.choice([str(constant), 0, True])


def random_range(random: Random, attribute: Attribute) -> Any:
    """Between two constants, or open at one end; where they are of two kinds, one of them."""
    low, high = (random.choice(attribute.constants) for _ in range(2))
    hidden = random.choice([None, None, 0, 1])
    chosen = Range(None if hidden == 0 else low, None if hidden == 1 else high)
    readable = [r for r in (chosen, Range(chosen.hi, chosen.lo)) if evaluate(IsNull("a", True), {"a": r})]
    return readable[0] if readable else low


def random_value(random: Random, attribute: Attribute, world: World) -> Any:
    chance = random.random()
    if chance < 0.05:
        return None
    if world.unreadable and chance < 0.15:
        return random.choice(UNREADABLE)
    if not world.several or chance < 0.6:
        return near(random, random.choice(attribute.constants))
    if chance < 0.7:
        return random_range(random, attribute)
    elements = [near(random, random.choice(attribute.constants)) for _ in range(random.randint(0, 4))]
    if random.random() < 0.3:
        elements.append(random.choice([None, [], random_range(random, attribute), elements[:1]]))
    return random.choice([elements, elements, tuple(elements)])
