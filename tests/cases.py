"""Random cases, drawn from a `random.Random`: subscriptions and events that meet.

A world is what one case speaks of: a few attributes, each with constants of one kind or of several at once. Expressions
are made of these constants, and event values lie at them, just below, just above, or are the same in another kind, so
that a good share of the pairs match and most of the others fail by little.

Not every world has everything: a batch with one array in it takes other paths than a batch of single values, and an OR
other paths than a conjunction. So each world is plain in some ways and wild in others.

Hypothesis draws the same cases: see `cases` in strategies.py.
"""

from __future__ import annotations

import datetime as dt
import decimal
import json
import math
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

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
    literal,
)
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


class Batch(NamedTuple):
    """Events as dicts, and the same events in every other form that can carry them."""

    events: list[dict[str, Any]]
    forms: dict[str, tuple[Any, str | None]]  # by name: the events, and the column that holds the attributes
    on_error: str = "raise"


class Case(NamedTuple):
    expressions: list[Expression]
    batch: Batch


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
    shape = random.choice(["predicate", "and", "or", "or", "not"]) if depth else "predicate"
    if shape == "predicate":
        if random.random() < 0.03:
            return Constant(random.choice([True, False, None]))
        return random_predicate(random, world)
    if shape == "not":
        return Not(random_tree(random, world, depth - 1))
    children = tuple(random_tree(random, world, depth - 1) for _ in range(random.randint(2, 3)))
    return And(children) if shape == "and" else Or(children)


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
        items = dict.fromkeys([first, *(constant(kind) for _ in range(random.choice([0, 1, 2, 3, 4, 15])))])
        return In(name, tuple(items), negated, null=random.random() < 0.1)
    if shape == "between":
        ends = [first, constant(kind)]
        if (
            ends[0].kind == ends[1].kind
            and random.random() < 0.9
            and not evaluate(Compare("a", "<=", ends[1]), {"a": ends[0].value})
        ):
            ends.reverse()
        return Between(name, *ends, negated)
    return Compare(name, random.choice(OPERATORS), first)


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


# --- batches -------------------------------------------------------------------------------------------------------


def random_batch(random: Random, world: World, count: int, form: str | None = None) -> Batch:
    """form: of FORMS, the one that the events are made for; each has values that the others cannot carry."""
    return FORMS[form or random.choice(list(FORMS))](random, world, count)


def python_batch(random: Random, world: World, count: int) -> Batch:
    """Whatever Python has, as dicts alone."""
    events = [random_event(random, world, lambda a: random_value(random, a, world)) for _ in range(count)]
    return Batch(events, {"dicts": (events, None)}, "skip" if world.unreadable else "raise")


def json_batch(random: Random, world: World, count: int) -> Batch:
    """What JSON can say: no times, no NaN, no ranges."""

    def value(attribute: Attribute) -> Any:
        plain = _json_value(random, attribute)
        if world.several and random.random() < 0.4:
            return [plain, *(_json_value(random, attribute) for _ in range(random.randint(0, 3)))][
                random.randint(0, 1) :
            ]
        return plain

    events = [random_event(random, world, value) for _ in range(count)]
    texts = [json.dumps(event, ensure_ascii=random.random() < 0.5) for event in events]
    column = pa.table({"id": range(count), "event": texts})
    forms = {
        "dicts": (events, None),
        "json lines": ("\n".join(texts).encode(), None),
        "json column": (column, "event"),
        "json in dicts": ([{"event": text} for text in texts], "event"),
    }
    return Batch(events, forms)


def _json_value(random: Random, attribute: Attribute) -> Any:
    value = near(random, random.choice(attribute.constants))
    if type(value) in (bool, int, str) or (type(value) is float and math.isfinite(value)):
        return value
    return random.choice([None, 0, 1, "", True, str(value)])


ARROW_TYPES: list[pa.DataType] = [
    pa.bool_(),
    pa.int8(),
    pa.int64(),
    pa.uint64(),
    pa.float32(),
    pa.float64(),
    pa.decimal128(38, 4),
    pa.string(),
    pa.large_string(),
    pa.string_view(),
    pa.dictionary(pa.int32(), pa.string()),
    pa.date32(),
    pa.timestamp("us"),
    pa.timestamp("us", "UTC"),
    pa.timestamp("ms"),
]


def arrow_batch(random: Random, world: World, count: int) -> Batch:
    """A typed column for each attribute."""
    columns = {}
    for attribute in world.attributes:
        type_ = _fitting_type(random, [attribute])
        values = _carried(random, attribute, type_, 3 * count)
        listed = world.several and not pa.types.is_dictionary(type_) and random.random() < 0.5
        cells: list[Any] = []
        for _ in range(count):
            if random.random() > attribute.presence:
                cells.append(None)
            elif listed:
                cells.append([random.choice(values) for _ in range(random.randint(0, 3))])
            else:
                cells.append(random.choice(values))
        columns[attribute.name] = pa.array(cells, pa.list_(type_) if listed else type_)
    table = pa.table(columns)
    cut = random.randint(0, count)
    pieces = pa.concat_tables([table.slice(0, cut), table.slice(cut)])
    (record_batch,) = table.combine_chunks().to_batches()
    forms = {
        "dicts": (table.to_pylist(), None),
        "arrow table": (pieces, None),
        "record batch": (record_batch, None),
        "struct column": (pa.table({"id": range(count), "event": table.to_struct_array()}), "event"),
    }
    return Batch(table.to_pylist(), forms)


def map_batch(random: Random, world: World, count: int) -> Batch:
    """A MAP column: all attributes of one type."""
    type_ = _fitting_type(random, world.attributes)
    values = {a.name: [*_carried(random, a, type_, 3 * count), None] for a in world.attributes}
    events = [
        {a.name: random.choice(values[a.name]) for a in world.attributes if random.random() < a.presence}
        for _ in range(count)
    ]
    maps = pa.array([list(event.items()) for event in events], pa.map_(pa.string(), type_))
    read = [dict(event) for event in maps.to_pylist()]  # as the type keeps the values
    return Batch(read, {"dicts": (read, None), "map column": (pa.table({"event": maps}), "event")})


def _fitting_type(random: Random, attributes: list[Attribute]) -> pa.DataType:
    """Mostly a type that can hold some constants of the attributes."""
    constants = [x for attribute in attributes for x in attribute.constants]
    fitting = [type_ for type_ in ARROW_TYPES if any(_kept(x, type_) for x in constants)]
    return random.choice(fitting if random.random() < 0.9 else ARROW_TYPES)


def _carried(random: Random, attribute: Attribute, type_: pa.DataType, count: int) -> list[Any]:
    """Values near the attribute's constants that the type can hold, or some others where there are none."""
    found = [kept for _ in range(count) for kept in _kept(near(random, random.choice(attribute.constants)), type_)]
    for value in [] if found else (True, 1, "a", MIDNIGHT, MIDNIGHT.date()):
        found += _kept(value, type_)
    return found


def _kept(value: Any, type_: pa.DataType) -> list[Any]:
    """The value if the type can hold it (in a list of one), else nothing."""
    of_type = pa.types
    if of_type.is_boolean(type_):
        return [value] if isinstance(value, bool) else []
    if isinstance(value, (bool, np.generic)):
        return []
    if of_type.is_integer(type_):
        bits = type_.bit_width
        low, high = (0, 2**bits) if of_type.is_unsigned_integer(type_) else (-(2 ** (bits - 1)), 2 ** (bits - 1))
        return [value] if isinstance(value, int) and low <= value < high else []
    if of_type.is_floating(type_):
        return [float(value)] if isinstance(value, (int, float)) else []
    if of_type.is_decimal(type_):
        small = isinstance(value, (int, float)) and math.isfinite(value) and abs(value) < 10**18 and value * 4 % 1 == 0
        return [decimal.Decimal(value)] if small else []
    if of_type.is_date(type_):
        return [value] if type(value) is dt.date else []
    if of_type.is_timestamp(type_):
        plain = type(value) is dt.datetime and value.tzinfo is None
        return [value] if plain and (type_.unit == "us" or value.microsecond % 1000 == 0) else []
    return [value] if isinstance(value, str) else []


FORMS: dict[str, Callable[[Random, World, int], Batch]] = {
    "python": python_batch,
    "json": json_batch,
    "arrow": arrow_batch,
    "map": map_batch,
}


def random_event(random: Random, world: World, value: Callable[[Attribute], Any]) -> dict[str, Any]:
    """An event with a value for each attribute that it has, dotted names now and then as objects."""
    event: dict[str, Any] = {}
    for attribute in world.attributes:
        if random.random() > attribute.presence:
            continue
        here, (first, dot, rest) = value(attribute), attribute.name.partition(".")
        shape = random.choice(["flat", "object", "array"]) if dot and first not in event else "flat"
        if shape == "array" and not world.several:
            shape = "object"
        if shape == "flat":
            event[attribute.name] = here
        elif shape == "object":
            event[first] = {rest: here, "other": 1}
        elif isinstance(here, (list, tuple)):
            event[first] = [{rest: element} for element in here] + [{}]
        else:
            event[first] = [{"other": 2}, {rest: here}, None]
    return event


def random_case(random: Random, expressions: int, events: int, form: str | None = None) -> Case:
    world = random_world(random)
    return Case(random_expressions(random, world, expressions), random_batch(random, world, events, form))
