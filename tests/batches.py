"""Batches of random events (see cases.py) in every form in which Dibs takes them, and whole cases with expressions.

Each form has values that the others cannot carry: ranges are Python's alone, JSON has no times, an Arrow column has one
type. So a batch is made for one of FORMS, and comes in all the forms that can hold it.
"""

from __future__ import annotations

import datetime as dt
import decimal
import json
import math
from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from cases import MIDNIGHT, Attribute, World, near, random_expressions, random_value, random_world
from dibs.language.expression import Expression


class Batch(NamedTuple):
    """Events as dicts, and the same events in every other form that can carry them."""

    events: list[dict[str, Any]]
    forms: dict[str, tuple[Any, str | None]]  # by name: the events, and the column that holds the attributes
    on_error: str = "raise"


class Case(NamedTuple):
    expressions: list[Expression]
    batch: Batch


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
