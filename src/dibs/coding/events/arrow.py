"""Events as Arrow data into `EventValues`: Python works per column and per distinct map key, never per event.

Structs, maps and lists are taken apart without copying: only the event number and the path of each element are
carried along, and what turns out to be null or not wanted on the way is marked, to be left out at the leaves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import compress
from typing import Any, NamedTuple, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dibs.arrays import from_numpy, to_numpy
from dibs.coding.events.arrow_columns import plan_of, read_columns
from dibs.coding.events.arrow_rows import read_raw
from dibs.coding.events.arrow_types import LISTS, ROLE, WRAPPERS, check_layout, holds_objects, role_inside, unwrap
from dibs.coding.events.arrow_values import invalid_texts, microseconds, number_keys, text_buffers
from dibs.coding.events.json_lane import read_json_columns
from dibs.coding.events.raw import RawNames
from dibs.coding.events.rows import ValueParts
from dibs.coding.events.scalars import EXPECTED, OUTSIDE_TIME
from dibs.coding.events.wanted import WantedNames
from dibs.coding.values import EventValues
from dibs.errors import EventError

_INVALID_TEXT = "found a string that is not UTF-8; expected UTF-8: is this binary data?"


class _Elements(NamedTuple):
    """An Arrow array on its way to the leaves."""

    array: pa.Array
    event: NDArray[np.int32]  # of each element
    paths: Sequence[str | None]  # every one may give a wanted attribute; None is the top, above all attributes
    which: NDArray[np.int32] | None  # index into paths of each element, -1: leave it out; None: all are of paths[0]


def read_arrow(
    source: pa.Table | pa.RecordBatch | pa.RecordBatchReader,
    wanted: WantedNames,
    attributes: str | None,
    on_error: str,
) -> EventValues:
    batches = source if isinstance(source, pa.RecordBatchReader) else [source]
    column = None if attributes is None else _attribute_column(source.schema, attributes)
    try:
        if column is not None and role_inside(source.schema.field(column).type) == "text":
            return read_json_columns(_texts(batches, column), wanted, on_error)
        reader = _ArrowReader(wanted)
        for batch in batches:
            reader.read(batch, column)
    except pa.ArrowException as error:
        raise EventError(f"the Arrow data cannot be read: {error}") from error
    return reader.parts.finish(reader.events, wanted.names, on_error)


def _attribute_column(schema: pa.Schema, attributes: str) -> int:
    places = schema.get_all_field_indices(attributes)
    if len(places) != 1:
        shown = ", ".join(repr(name) for name in schema.names[:20]) + (", ..." if len(schema.names) > 20 else "")
        number = "several columns are" if places else "no column is"
        raise EventError(f"{number} called {attributes!r}, as attributes= says; the columns are: {shown or 'none'}")
    type_ = schema.field(places[0]).type
    if role_inside(type_) not in ("null", "struct", "map", "text") or ROLE[type_.id] in LISTS:
        raise EventError(
            f"column {attributes!r} is of type {type_}; expected a map, a struct or strings of JSON for attributes="
        )
    return int(places[0])


def _texts(batches: Iterable[pa.Table | pa.RecordBatch], column: int) -> Iterator[pa.Array]:
    for batch in batches:
        for chunk in _chunks(batch, column):
            plain = _plain(chunk)
            yield plain.cast(pa.large_string()) if pa.types.is_string_view(plain.type) else plain


def _plain(array: pa.Array) -> pa.Array:
    while ROLE.get(array.type.id) in WRAPPERS:
        array = unwrap(array)
    return array


def _chunks(batch: pa.Table | pa.RecordBatch, column: int) -> list[pa.Array]:
    whole = batch.column(column)
    chunks = whole.chunks if isinstance(whole, pa.ChunkedArray) else [whole]
    for chunk in chunks:
        check_layout(chunk)
    return chunks


class _ArrowReader:
    def __init__(self, wanted: WantedNames):
        self.wanted = wanted
        self.parts = ValueParts()
        self.events = 0

    def read(self, batch: pa.Table | pa.RecordBatch, attributes: int | None) -> None:
        """Reads all wanted columns, or only the one that holds the attributes."""
        first, self.events = self.events, self.events + batch.num_rows
        if self.events >= 2**31:
            raise EventError("found 2**31 events or more; expected fewer in one call: pass them in several batches")
        if self.wanted.raw is not None:
            batch = self._read_raw(self.wanted.raw, batch, attributes, first)
        if attributes is not None:
            self._read_column(batch, attributes, None, first)
            return
        plan = plan_of(batch.schema, self.wanted)
        for part in batch.to_batches() if isinstance(batch, pa.Table) else [batch]:
            texts = read_columns(part, plan, first, self.parts)
            if texts is not None:
                self._texts(*texts)
            for column in plan.others:
                name = plan.schema.names[column]
                if self._useful([name], plan.schema.field(column).type)[0]:
                    self._read_column(part, column, name, first)
            first += part.num_rows

    def _read_raw(
        self, raw: RawNames, batch: pa.Table | pa.RecordBatch, attributes: int | None, first: int
    ) -> pa.Table | pa.RecordBatch:
        """What is asked for as it came; gives the batch without columns that are called as this is."""
        for part in batch.to_batches() if isinstance(batch, pa.Table) else [batch]:
            for column in range(part.num_columns):
                check_layout(part.column(column))
            read_raw(raw, part, attributes, first, self.parts)
            first += part.num_rows
        if attributes is None and any(name[:1] == "\0" for name in batch.schema.names):
            batch = batch.select([i for i, name in enumerate(batch.schema.names) if name[:1] != "\0"])
        return batch

    def _read_column(self, batch: pa.Table | pa.RecordBatch, column: int, path: str | None, first: int) -> None:
        """first: the number of its first event."""
        for chunk in _chunks(batch, column):
            event = np.arange(first, first + len(chunk), dtype=np.int32)
            self._read_elements(_Elements(chunk, event, [path], None))
            first += len(chunk)

    def _useful(self, paths: list[str], type_: pa.DataType) -> list[bool]:
        """Whether a wanted attribute may come of elements of this type at each of the paths."""
        if holds_objects(type_):
            return [self.wanted.leads(path) for path in paths]
        return [path in self.wanted.codes for path in paths]

    def _read_elements(self, elements: _Elements) -> None:
        stack = [elements]
        while stack:
            elements = stack.pop()
            role = ROLE.get(elements.array.type.id)
            if not len(elements.array) or role == "null":
                continue
            if role == "struct":
                stack.extend(self._fields(elements))
            elif role == "map":
                stack.extend(self._entries(elements))
            elif role in LISTS:
                stack.append(_list_elements(elements))
            elif role in WRAPPERS:
                keep = None if elements.which is None else elements.which >= 0
                stack.append(elements._replace(array=unwrap(elements.array, keep)))
            else:
                self._leaves(elements, role)

    def _fields(self, elements: _Elements) -> Iterator[_Elements]:
        array, event, paths, _ = elements
        which = _without_nulls(elements)
        for place, field in enumerate(array.type):
            inner = [_join(path, field.name) for path in paths]
            useful = self._useful(inner, field.type)
            if all(useful):
                yield _Elements(array.field(place), event, inner, which)
            elif any(useful):
                yield _Elements(array.field(place), event, *_keep(inner, useful, which))

    def _entries(self, elements: _Elements) -> Iterator[_Elements]:
        array, event, paths, _ = elements
        which = _without_nulls(elements)
        first, lengths = _extent(array)
        count = int(lengths.sum())
        event = np.repeat(event, lengths)
        which = None if which is None else np.repeat(which, lengths)
        keys = _plain(array.keys.slice(first, count))
        if ROLE.get(keys.type.id) != "text":
            held = event if which is None else event[which >= 0]
            message = f"found a map with keys of type {array.type.key_type}; expected keys that are strings"
            self.parts.broken_events.append((np.unique(held), message))
            return
        if paths[0] is None and not holds_objects(array.type.item_type):
            # The keys are attributes: found by their bytes, all at once.
            found = self.wanted.numbers_of(keys)
            found = found if which is None else np.where(which >= 0, found, np.int32(-1))
            yield _Elements(array.items.slice(first, count), event, self.wanted.names, found)
            return
        coded = keys.dictionary_encode()
        key = to_numpy(coded.indices.fill_null(-1))
        names = _names(coded.dictionary)
        if len(paths) == 1:
            inner = [_join(paths[0], name) for name in names] if paths[0] is not None else names
            pair = key if which is None else np.where(which >= 0, key, -1)
        else:
            # One path for each pair of outer path and key that occurs. Codes with a -1 in them name some path or
            # other, but no element keeps them.
            assert which is not None
            occurs, pair = np.unique(which.astype(np.int64) * len(names) + key, return_inverse=True)
            inner = [_join(paths[code // len(names)], names[code % len(names)]) for code in occurs.tolist()]
            pair = np.where((which >= 0) & (key >= 0), pair, -1)
        useful = self._useful(inner, array.type.item_type)
        if any(useful):
            yield _Elements(array.items.slice(first, count), event, *_keep(inner, useful, pair))

    def _leaves(self, elements: _Elements, role: str | None) -> None:
        """Values of no inner structure: by kind into the parts."""
        array, event, paths, _ = elements
        if pa.types.is_string_view(array.type):
            array = array.cast(pa.large_string())
        which = _without_nulls(elements)
        if paths is self.wanted.names:
            numbers = np.arange(len(paths), dtype=np.int32)
        else:
            numbers = np.array([self.wanted.codes[cast("str", path)] for path in paths], np.int32)
        if which is None:
            name = np.full(len(array), numbers[0], np.int32)
        else:
            keep = which >= 0
            if not keep.all():
                which, event = which[keep], event[keep]
                if role is not None:
                    array = array.filter(from_numpy(keep))
            name = numbers[which]
        if self.wanted.raw is not None and self.wanted.raw.is_raw[name].any():
            keep = ~self.wanted.raw.is_raw[name]
            event, name, array = event[keep], name[keep], array.filter(from_numpy(keep)) if role is not None else array
        if not len(event):
            return
        parts = self.parts
        if role == "number":
            parts.numbers.append((event, name, *number_keys(array)))
        elif role == "text":
            self._texts(array, event, name)
        elif role == "time":
            value, outside = microseconds(array)
            if outside is not None:
                parts.unreadable.append((event[outside], name[outside], OUTSIDE_TIME))
                event, name, value = event[~outside], name[~outside], value[~outside]
            parts.times.append((event, name, value))
        elif role == "boolean":
            parts.booleans.append((event, name, to_numpy(array.cast(pa.uint8()))))
        else:
            parts.unreadable.append((event, name, f"found a value of Arrow type {elements.array.type}; {EXPECTED}"))

    def _texts(self, array: pa.Array, event: NDArray[np.int32], name: NDArray[np.int32]) -> None:
        offsets, data = text_buffers(array)
        invalid = invalid_texts(array, data)
        if invalid is not None:
            self.parts.unreadable.append((event[invalid], name[invalid], _INVALID_TEXT))
            offsets, data = text_buffers(array.filter(from_numpy(~invalid)))
            event, name = event[~invalid], name[~invalid]
        self.parts.strings.append((event, name, offsets, data))


def _join(path: str | None, name: str) -> str:
    return name if path is None else f"{path}.{name}"


def _without_nulls(elements: _Elements) -> NDArray[np.int32] | None:
    """`which` with the null elements marked as left out."""
    array, which = elements.array, elements.which
    if pa.types.is_union(array.type):
        # Unions count no nulls of their own, and not every version of Arrow looks into their values.
        valid = np.array([value is not None for value in array.to_pylist()])
    elif not array.null_count:
        return which
    else:
        valid = to_numpy(array.is_valid())
    return np.where(valid, np.int32(0) if which is None else which, np.int32(-1))


def _keep(paths: list[str], useful: list[bool], which: Any) -> tuple[list[str], NDArray[np.int32]]:
    """The useful paths, and `which` for these only."""
    number = np.where(useful, np.cumsum(useful) - 1, -1).astype(np.int32)
    return list(compress(paths, useful)), np.where(which >= 0, number[which], np.int32(-1))


def _extent(array: pa.Array) -> tuple[int, NDArray[Any]]:
    """Where the elements of a list or map array begin in its values, and how many each list has, nulls included."""
    if pa.types.is_fixed_size_list(array.type):
        size = array.type.list_size
        return array.offset * size, np.full(len(array), size)
    offsets = to_numpy(array.offsets)
    return int(offsets[0]), np.diff(offsets)


def _list_elements(elements: _Elements) -> _Elements:
    array, event, paths, _ = elements
    which = _without_nulls(elements)
    if ROLE[array.type.id] == "list":
        first, lengths = _extent(array)
        inner = array.values.slice(first, int(lengths.sum()))
    else:
        inner, lengths = array.flatten(), to_numpy(pc.list_value_length(array).fill_null(0))
    return _Elements(inner, np.repeat(event, lengths), paths, None if which is None else np.repeat(which, lengths))


def _names(dictionary: pa.Array) -> list[str]:
    """Map keys as strings. One that is not UTF-8 gets lone surrogates, so that it is no name of a subscription."""
    try:
        return dictionary.to_pylist()
    except UnicodeDecodeError:
        raw = dictionary.cast(pa.large_string()).cast(pa.large_binary()).to_pylist()
        return [name.decode(errors="surrogateescape") for name in raw]
