"""What is asked for of the rows of Arrow data as it came (coding.events.raw): a null is absent here, but in a list."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dibs.arrays import from_numpy, to_numpy
from dibs.coding.events.arrow_types import LISTS, ROLE, WRAPPERS, unwrap
from dibs.coding.events.arrow_values import invalid_texts, microseconds, text_buffers
from dibs.coding.events.raw import RawNames, TooDeep
from dibs.coding.events.rows import ValueParts
from dibs.coding.events.scalars import EXPECTED, OUTSIDE_TIME, UnreadableValue

_INVALID = "found a string that is not UTF-8; expected UTF-8: is this binary data?"


def read_raw(raw: RawNames, batch: pa.RecordBatch, attributes: int | None, first: int, parts: ValueParts) -> None:
    """Adds it to the parts. attributes: the column that holds the attributes, if one does; first: the number of the
    first event."""
    if raw.every is not None:
        columns = range(batch.num_columns) if attributes is None else [attributes]
        for column in columns:
            _add_strings(batch.column(column), first, raw.every, parts)
    if not raw.paths:
        return
    texts: list[tuple[int, int, str]] = []
    truths: list[tuple[int, int]] = []
    for number, event in enumerate(_events(raw, batch, attributes), first):
        try:
            for code, found in raw.find_paths(event):
                if isinstance(found, str):
                    texts.append((number, code, found))
                elif found is True:
                    truths.append((number, code))
                else:
                    own = np.array([number], np.int32), np.array([code], np.int32)
                    parts.unreadable.append((*own, str(found)))
        except TooDeep as problem:
            parts.broken_events.append((np.array([number], np.int32), str(problem)))
    if truths:
        event, name = np.array(truths, np.int32).T.copy()
        parts.booleans.append((event, name, np.ones(len(truths), np.uint8)))
    if texts:
        event, name = np.array([row[:2] for row in texts], np.int32).T.copy()
        parts.strings.append((event, name, *text_buffers(pa.array([row[2] for row in texts], pa.large_string()))))


def _events(raw: RawNames, batch: pa.RecordBatch, attributes: int | None) -> Iterator[dict[str, Any]]:
    """The rows, with what may be asked for."""
    if attributes is not None:
        for row in _rows(batch.column(attributes)):
            yield row if isinstance(row, dict) else {}
        return
    names = batch.schema.names
    asked = [i for i, name in enumerate(names) if raw.may_lie_in(name)]
    columns = [_rows(batch.column(i)) for i in asked]
    for number in range(batch.num_rows):
        values = ((names[i], column[number]) for i, column in zip(asked, columns))
        yield {name: value for name, value in values if value is not None}


def _rows(array: pa.Array) -> list[Any]:
    """The elements of an array as dicts, lists and values; what cannot be read says so itself."""
    role = ROLE.get(array.type.id)
    if role in WRAPPERS:
        return _rows(unwrap(array))
    if role == "struct":
        names = [field.name for field in array.type]
        columns = [_rows(column) for column in array.flatten()]
        valid = to_numpy(array.is_valid()).tolist()
        rows = zip(*columns) if columns else iter([()] * len(array))
        return [_members(zip(names, row)) if is_there else None for is_there, row in zip(valid, rows)]
    if role == "map" or role in LISTS:
        return _lists(array)
    if role == "time":
        value, outside = microseconds(array.drop_null())
        times: list[Any] = list(value.astype("datetime64[us]"))
        for place in [] if outside is None else np.flatnonzero(outside).tolist():
            times[place] = UnreadableValue(OUTSIDE_TIME)
        return _with_nulls(array, times)
    if role == "text":
        return _texts(array)
    if role in ("number", "boolean", "null") or pa.types.is_union(array.type):
        return array.to_pylist()
    problem = UnreadableValue(f"found a value of Arrow type {array.type}; {EXPECTED}")
    return _with_nulls(array, [problem] * (len(array) - array.null_count))


def _members(pairs: Any) -> dict[str, Any]:
    return {name: value for name, value in pairs if value is not None}


def _with_nulls(array: pa.Array, values: list[Any]) -> list[Any]:
    """The values of an array that are no nulls, and None for these."""
    if not array.null_count:
        return values
    rest = iter(values)
    return [next(rest) if is_there else None for is_there in to_numpy(array.is_valid()).tolist()]


def _texts(array: pa.Array) -> list[Any]:
    if pa.types.is_string_view(array.type):
        array = array.cast(pa.large_string())
    there = array.drop_null()
    invalid = invalid_texts(there, text_buffers(there)[1])
    if invalid is None:
        return array.to_pylist()
    good = iter(there.filter(from_numpy(~invalid)).to_pylist())
    return _with_nulls(array, [UnreadableValue(_INVALID) if bad else next(good) for bad in invalid.tolist()])


def _lists(array: pa.Array) -> list[Any]:
    """Lists, and maps as dicts."""
    there = array.drop_null()
    if pa.types.is_map(array.type):
        ends = to_numpy(there.offsets).tolist()
        keys, items = _rows(there.keys), _rows(there.items)
        found = [_members(zip(keys[a:b], items[a:b])) for a, b in zip(ends, ends[1:])]
        return _with_nulls(array, found)
    inner = _rows(there.flatten())
    ends = np.append(0, np.cumsum(to_numpy(pc.list_value_length(there)))).tolist()
    return _with_nulls(array, [inner[a:b] for a, b in zip(ends, ends[1:])])


def _add_strings(array: pa.Array, first: int, code: int, parts: ValueParts) -> None:
    """All strings in a column, wherever in it they are."""
    waiting = [(array, np.arange(first, first + len(array), dtype=np.int32))]
    while waiting:
        array, event = waiting.pop()
        role = ROLE.get(array.type.id)
        if role in WRAPPERS:
            waiting.append((unwrap(array), event))
        elif role == "struct":
            waiting += [(column, event) for column in array.flatten()]
        elif role == "map" or role in LISTS:
            keep = to_numpy(array.is_valid())
            there, event = array.drop_null(), event[keep]
            if role == "map":
                lengths = np.diff(to_numpy(there.offsets))
                start = int(to_numpy(there.offsets)[0]) if len(there) else 0
                waiting.append((there.items.slice(start, int(lengths.sum())), np.repeat(event, lengths)))
            else:
                lengths = to_numpy(pc.list_value_length(there))
                waiting.append((there.flatten(), np.repeat(event, lengths)))
        elif role == "text":
            if pa.types.is_string_view(array.type):
                array = array.cast(pa.large_string())
            event, array = event[to_numpy(array.is_valid())], array.drop_null()
            offsets, data = text_buffers(array)
            invalid = invalid_texts(array, data)
            if invalid is not None:
                name = np.full(int(invalid.sum()), code, np.int32)
                parts.unreadable.append((event[invalid], name, _INVALID))
                event, array = event[~invalid], array.filter(from_numpy(~invalid))
                offsets, data = text_buffers(array)
            if len(event):
                parts.strings.append((event, np.full(len(event), code, np.int32), offsets, data))
