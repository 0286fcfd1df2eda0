"""Many plain columns of an Arrow batch at once: what is read costs by the values that are there, not by the columns.

Calling Arrow for each column, to find that it is almost empty, is most of the time that a table of 1,000 columns
takes. Columns of numbers, booleans, strings and timestamps of microseconds are read by one kernel instead, straight
from Arrow's buffers. All others are left to coding.events.arrow.
"""

from __future__ import annotations

import ctypes
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dibs.coding.events import arrow_column_kernels as kernels
from dibs.coding.events.arrow_column_kernels import ColumnRoom, Columns, count_values, take_values
from dibs.coding.events.rows import ValueParts
from dibs.coding.events.wanted import WantedNames
from dibs.jit.memory import fresh

_FORMS: dict[int, int] = {  # by the id of the type
    pa.int8().id: kernels.INT8,
    pa.int16().id: kernels.INT16,
    pa.int32().id: kernels.INT32,
    pa.int64().id: kernels.INT64,
    pa.uint8().id: kernels.UINT8,
    pa.uint16().id: kernels.UINT16,
    pa.uint32().id: kernels.UINT32,
    pa.uint64().id: kernels.UINT64,
    pa.float32().id: kernels.FLOAT32,
    pa.float64().id: kernels.FLOAT64,
    pa.bool_().id: kernels.BOOLEAN,
    pa.string().id: kernels.TEXT,
    pa.large_string().id: kernels.LARGE_TEXT,
}

_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype, _pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


class ColumnPlan(NamedTuple):
    """How the columns of a schema are read."""

    schema: pa.Schema
    columns: Columns  # at once, in the order of their names
    others: list[int]  # wanted, or on the way to something wanted, one by one


def plan_of(schema: pa.Schema, wanted: WantedNames) -> ColumnPlan:
    """Kept with the names: batch after batch has the same schema."""
    plan: ColumnPlan | None = wanted.plan
    if plan is None or not plan.schema.equals(schema):
        plan = wanted.plan = _plan(schema, wanted)
    return plan


def _plan(schema: pa.Schema, wanted: WantedNames) -> ColumnPlan:
    found: list[tuple[int, int, int]] = []  # name, place, form
    others: list[int] = []
    for place, name in enumerate(schema.names):
        number = wanted.codes.get(name, -1)
        # The names go first: the type of a column that nobody wants is not even asked for.
        if number >= 0 or wanted.leads(name):
            form = _form(schema.field(place).type)
            if form is None:
                others.append(place)
            elif number >= 0:
                found.append((number, place, form))
    rows = np.array(sorted(found), np.int64).reshape(-1, 3)
    columns = Columns(rows[:, 1].copy(), rows[:, 0].astype(np.int32), rows[:, 2].astype(np.uint8))
    return ColumnPlan(schema, columns, others)


def _form(type_: pa.DataType) -> int | None:
    if pa.types.is_timestamp(type_):
        return kernels.TIME if type_.unit == "us" else None
    return _FORMS.get(type_.id)


class ColumnTexts(NamedTuple):
    """Strings that are not known to be UTF-8."""

    array: pa.Array
    event: NDArray[np.int32]
    name: NDArray[np.int32]


def read_columns(batch: pa.RecordBatch, plan: ColumnPlan, first: int, parts: ValueParts) -> ColumnTexts | None:
    """Adds the values of the planned columns to the parts, but for the texts."""
    if not len(plan.columns.place) or not batch.num_rows:
        return None
    batch.validate()  # the kernels trust the sizes of buffers
    schema, held = batch.__arrow_c_array__()  # alive until the kernels are done
    address = _pointer_of(held, b"arrow_array")
    numbers, booleans, times, texts, size = count_values(address, plan.columns)
    if texts < 0:
        batch.validate(full=True)
        raise pa.ArrowInvalid("the offsets of strings are out of order")
    room = _room(numbers, booleans, times, texts, size)
    take_values(address, plan.columns, first, room)
    del schema, held
    if numbers:
        parts.numbers.append(room[:4])
    if booleans:
        parts.booleans.append(room[4:7])
    if times:
        parts.times.append(room[7:10])
    if not texts:
        return None
    buffers = [None, pa.py_buffer(room.text_offsets), pa.py_buffer(room.text_bytes)]
    return ColumnTexts(pa.Array.from_buffers(pa.large_string(), texts, buffers), room.text_event, room.text_name)


def _room(numbers: int, booleans: int, times: int, texts: int, size: int) -> ColumnRoom:
    return ColumnRoom(
        number_event=fresh(numbers, np.int32),
        number_name=fresh(numbers, np.int32),
        number_value=fresh(numbers, np.float64),
        number_rest=fresh(numbers, np.int16),
        boolean_event=fresh(booleans, np.int32),
        boolean_name=fresh(booleans, np.int32),
        boolean_value=fresh(booleans, np.uint8),
        time_event=fresh(times, np.int32),
        time_name=fresh(times, np.int32),
        time_value=fresh(times, np.int64),
        text_event=fresh(texts, np.int32),
        text_name=fresh(texts, np.int32),
        text_offsets=fresh(texts + 1, np.int64),
        text_bytes=fresh(size, np.uint8),
    )
