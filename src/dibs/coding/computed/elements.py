"""What is computed from arrays as they came, over columns of their elements.

    size(tags)                          how many elements each array has
    items[0].price, element_at(a, 1)    one of its elements, and what lies in it
    exists(items, x -> x.price < y)     the condition is a program over all elements of all events; and so is
    array_contains(tags, 'x')           exists(tags, x -> 'x' = x)

Such a part becomes a field of the value that it stands in. Rows in which something is UNUSUAL (element_kernels.py) are
computed by the plain form, as is all that has parts of another kind.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dibs.coding.computed.program import Program, empty_column, program_of
from dibs.coding.computed.program_layout import BOOLEAN, NULL, NUMBER, Column
from dibs.coding.computed.running import compute_rows, evaluate, with_room
from dibs.coding.computed.vectors import STRING, Vector, empty, nulls, of_plain, to_plain
from dibs.coding.computed.wholes import decode
from dibs.jit.undisturbed import bring
from dibs.language.functions import evaluate as evaluate_plain
from dibs.language.functions.arrays import MOST_TRIALS, values_in
from dibs.language.functions.plain import Plain, is_integer, plain_of
from dibs.language.printer import WHOLE
from dibs.language.scalars import Call, Field, Lambda, Scalar, Value, bound_fields_of, inputs_of, sees_structure

if TYPE_CHECKING:
    from dibs.coding.computed.computing import FieldColumns

_PART = "\0part"  # names of parts, of which no event has any


class Size(NamedTuple):
    array: str


class Element(NamedTuple):
    array: str
    place: int  # from 0, or below 0 from the end
    keys: tuple[str, ...]


class Tried(NamedTuple):
    """A condition that some element, or each, must satisfy."""

    array: str
    decides: bool  # what one element alone says: TRUE of EXISTS, FALSE of FORALL
    program: Program
    fields: list[str]  # of the event
    keys: list[str]  # what it reads of elements: "" is the element itself


class OverElements(NamedTuple):
    rest: Scalar  # with fields in place of the parts
    parts: dict[str, Size | Element | Tried]


@lru_cache(4_096)
def over_elements(scalar: Scalar) -> OverElements | None:
    """None: it has a part of another kind."""
    parts: dict[str, Size | Element | Tried] = {}
    rest = _without_parts(scalar, parts)
    return OverElements(rest, parts) if rest is not None else None


def _without_parts(scalar: Scalar, parts: dict[str, Size | Element | Tried]) -> Scalar | None:
    if not sees_structure(scalar):
        return scalar
    if not isinstance(scalar, Call):
        return None
    part = _part(scalar.function, scalar.arguments)
    if part is not None:
        name = f"{_PART}{len(parts)}"
        parts[name] = part
        return Field(name)
    found = [_without_parts(argument, parts) for argument in scalar.arguments]
    if any(each is None for each in found) or scalar.function in ("ARRAY", "SPLIT", "GET", "ELEMENT_AT", "SIZE"):
        return None
    return Call(scalar.function, tuple(each for each in found if each is not None))


def _part(function: str, arguments: tuple[Scalar, ...]) -> Size | Element | Tried | None:
    array = arguments[0].name if arguments and isinstance(arguments[0], Field) else ""
    if function in ("GET", "ELEMENT_AT"):
        return _element(function, arguments)
    if array[:2] != WHOLE:
        return None
    if function == "SIZE":
        return Size(array)
    if function in ("EXISTS", "FORALL") and isinstance(arguments[1], Lambda):
        bound = bound_fields_of(arguments[1])
        return _tried(array, function == "EXISTS", arguments[1].body, bound)
    if function == "ARRAY_CONTAINS" and isinstance(arguments[1], Value) and arguments[1].literal is not None:
        element = Field(f"{_PART} element")
        return _tried(array, True, Call("=", (arguments[1], element)), [(element.name, "")])
    return None


def _element(function: str, arguments: tuple[Scalar, ...]) -> Element | None:
    array, said = arguments
    place = plain_of(said.literal) if isinstance(said, Value) else None
    if isinstance(place, str) and isinstance(array, Call) and array.function in ("GET", "ELEMENT_AT"):
        inner = _element(array.function, array.arguments)
        is_key = bool(place) and "." not in place
        return inner._replace(keys=(*inner.keys, place)) if inner is not None and is_key else None
    if not (isinstance(array, Field) and array.name[:2] == WHOLE and is_integer(place)):
        return None
    number = int(place)  # type: ignore[arg-type]
    if function == "GET":
        return Element(array.name, number, ()) if number >= 0 else None
    return Element(array.name, number - 1 if number > 0 else number, ()) if number else None


def _tried(array: str, decides: bool, body: Scalar, bound: list[tuple[str, str]]) -> Tried | None:
    if sees_structure(body) or any(name[:2] == WHOLE or "." in path for name, path in bound):
        return None
    fields = [name for name in inputs_of(body) if name not in dict(bound)]
    program = program_of(body, [*fields, *(name for name, _ in bound)])
    return None if program is None else Tried(array, decides, program, fields, [path for _, path in bound])


def compute_over_elements(
    scalar: Scalar, over: OverElements, columns: FieldColumns, fields: dict[str, NDArray[np.int64]], event: NDArray[Any]
) -> tuple[NDArray[np.int32], Vector]:
    """The values for each combination, and the event of each value. fields: the place of each field's value."""
    rows = len(event)
    left = np.zeros(rows, np.bool_)
    vectors = {name: _compute(part, columns, fields, left) for name, part in over.parts.items()}
    vectors |= {name: columns.vector(fields[name]) for name in inputs_of(over.rest) if name not in vectors}
    result = evaluate(over.rest, vectors, rows)
    result = result if len(result) == rows else result.take(np.zeros(rows, np.int64))
    if not left.any():
        return event, result
    kept = np.flatnonzero(~left)
    others, values = _by_plain_form(scalar, np.flatnonzero(left), columns, fields, event)
    return np.concatenate([event[kept], others]), _joined(result.take(kept), of_plain(values))


def _by_plain_form(
    scalar: Scalar,
    rows: NDArray[np.int64],
    columns: FieldColumns,
    fields: dict[str, NDArray[np.int64]],
    event: NDArray[np.int32],
) -> tuple[NDArray[np.int32], list[Plain]]:
    """An array as a value is several: those of its elements."""
    given = {name: to_plain(columns.vector(places[rows])) for name, places in fields.items()}
    combinations = np.bincount(event)[event[rows]].tolist()
    events, values = [], list[Plain]()
    for i, row in enumerate(rows.tolist()):
        own = {name: _decoded(column[i]) if name[:2] == WHOLE else column[i] for name, column in given.items()}
        for value in values_in(evaluate_plain(scalar, own, combinations[i])):
            events.append(event[row])
            values.append(value)
    return np.array(events, np.int32), values


def _decoded(value: Plain) -> Plain:
    return decode(value) if isinstance(value, str) else value


def _joined(first: Vector, second: Vector) -> Vector:
    both = first, second
    months = None
    if any(v.months is not None for v in both):
        months = np.concatenate([np.zeros(len(v), np.int64) if v.months is None else v.months for v in both])
    return Vector(
        np.concatenate([v.kind for v in both]),
        np.concatenate([v.number for v in both]),
        np.concatenate([v.integer for v in both]),
        np.concatenate([v.whole for v in both]),
        pa.concat_arrays([v.text for v in both]),
        months,
    )


# ---- the parts ----


def _compute(
    part: Size | Element | Tried, columns: FieldColumns, fields: dict[str, NDArray[np.int64]], left: NDArray[np.bool_]
) -> Vector:
    """Marks the rows that are left."""
    kernels: Any = bring("dibs.coding.computed.element_kernels")
    data, cells = columns.padded, columns.cells
    places = fields[part.array]
    missing, there = places < 0, np.maximum(places, 0)
    if not len(cells.kind):
        return empty(len(places))
    is_text = ~missing & (cells.kind[there] == STRING)
    start, end = np.where(is_text, cells.start[there], 0), np.where(is_text, cells.end[there], 0)
    count = np.empty(len(places), np.int64)
    kernels.count_elements(data, start, end, count)
    if isinstance(part, Size):
        return _numbers(count)
    sizes = np.maximum(count, 0)
    if isinstance(part, Tried):
        many = sizes > MOST_TRIALS // 100
        left |= many
        sizes[many] = 0
    last = np.cumsum(sizes)
    elements = empty_column(int(last[-1]) if len(last) else 0)
    kernels.read_elements(data, start, end, last - sizes, last, elements)
    if isinstance(part, Element):
        return _pick(part, elements, sizes, last, columns, left)
    return _try(part, elements, count, sizes, columns, fields, left)


def _numbers(count: NDArray[np.int64]) -> Vector:
    kind = np.where(count < 0, NULL, NUMBER).astype(np.uint8)
    return Vector(kind, count.astype(np.float64), count, count >= 0, nulls(len(count)))


def _members(elements: Column, key: str, columns: FieldColumns) -> Column:
    found = empty_column(len(elements.kind))
    kernels: Any = bring("dibs.coding.computed.element_kernels")
    kernels.read_members(columns.padded, np.frombuffer(key.encode(), np.uint8).copy(), elements, found)
    return found


def _pick(
    part: Element,
    elements: Column,
    sizes: NDArray[np.int64],
    last: NDArray[np.int64],
    columns: FieldColumns,
    left: NDArray[np.bool_],
) -> Vector:
    place = part.place if part.place >= 0 else sizes + part.place
    is_there = (place >= 0) & (place < sizes)
    at = np.where(is_there, last - sizes + place, 0)
    found = empty_column(len(sizes))
    if len(elements.kind):
        found = Column._make(column[at] for column in elements)
    found.kind[~is_there] = NULL
    for key in part.keys:
        found = _members(found, key, columns)
    left |= found.kind > NULL
    found.kind[found.kind > NULL] = NULL
    return columns.vector_of(found)


def _try(
    part: Tried,
    elements: Column,
    count: NDArray[np.int64],
    sizes: NDArray[np.int64],
    columns: FieldColumns,
    fields: dict[str, NDArray[np.int64]],
    left: NDArray[np.bool_],
) -> Vector:
    row, tried = np.repeat(np.arange(len(sizes)), sizes), len(elements.kind)
    own = [elements if not key else _members(elements, key, columns) for key in part.keys]
    own = [Column(column.kind.copy(), *column[1:]) for column in own]
    unusual = np.zeros(tried, np.bool_)
    kernels: Any = bring("dibs.coding.computed.element_kernels")
    for column in own:
        unusual |= (column.kind > NULL) & (column.kind != kernels.OBJECT)
        column.kind[column.kind > NULL] = NULL  # an object is no value
    joined = Column._make(map(np.concatenate, zip(columns.cells, *own)))
    first = len(columns.cells.kind)
    places = np.empty((len(part.fields) + len(own), tried), np.int64)
    for k, name in enumerate(part.fields):
        places[k] = fields[name][row]
    for k in range(len(own)):
        places[len(part.fields) + k] = first + k * tried + np.arange(tried)
    truth, left_over = compute_rows(part.program, joined, *with_room(columns.padded, part.program), places)
    left[row[unusual | left_over]] = True
    is_known = truth.kind == BOOLEAN
    decided = np.bincount(row[is_known & (truth.integer == int(part.decides))], minlength=len(sizes)) > 0
    unknown = np.bincount(row[~is_known], minlength=len(sizes)) > 0
    kind = np.where((count < 0) | (unknown & ~decided), NULL, BOOLEAN).astype(np.uint8)
    value = np.where(decided, part.decides, not part.decides).astype(np.int64)
    return Vector(kind, np.zeros(len(kind)), value, np.zeros(len(kind), np.bool_), nulls(len(kind)))
