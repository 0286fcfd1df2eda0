"""From the values of a batch to those that are computed from them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dibs.coding.arrange import writable
from dibs.coding.computed.elements import compute_over_elements, over_elements
from dibs.coding.computed.few import compute_few
from dibs.coding.computed.naming import ComputedNames
from dibs.coding.computed.program import Program, empty_column, program_of
from dibs.coding.computed.program_layout import MOST_COMBINATIONS, Column
from dibs.coding.computed.running import compute_rows, evaluate, fill_left, with_room
from dibs.coding.computed.vectors import BOOLEAN, INTERVAL, NULL, NUMBER, STRING, TIME, Vector, empty, nulls
from dibs.coding.values import EventValues, Strings, Unreadable, without_names
from dibs.jit.scanning import PADDING
from dibs.jit.undisturbed import bring
from dibs.language.present import Instants, read_clock
from dibs.language.scalars import Field
from dibs.lazy import lazy
from dibs.tuning import tuned

FEW_COMPUTED = tuned("few_computed", 8, 0, "events", "whose computed values are made one by one, without columns")


def compute(values: EventValues, names: ComputedNames, now: Instants = None) -> EventValues:
    """The values with the computed ones. What an event itself has under such a name is left out. now: the time of the
    match; None: by the clock."""
    values = without_names(values, names.is_computed)
    if names.present is not None:
        values = _with_present(values, names.present, read_clock() if now is None else now)
    if values.events <= FEW_COMPUTED.value:
        return compute_few(values, names)
    if names.by_events is not None:
        values = compute_few(values, names.by_events)
        names = names.by_columns
    columns = FieldColumns(values, names.is_field)
    parts = []
    scalars = zip(names.scalars, names.programs, names.codes, names.fields, names.field_codes)
    for scalar, program, code, fields, codes in scalars:
        event, rows, bad = columns.combine(codes)
        over = over_elements(scalar) if program is None else None
        if over is not None and over.parts:
            event, result = compute_over_elements(scalar, over, columns, dict(zip(fields, rows)), event)
        elif program is None:
            vectors = {field: columns.vector(own) for field, own in zip(fields, rows)}
            result = evaluate(scalar, vectors, len(event))
        else:
            result, left = compute_rows(program, columns.cells, *columns.bytes_for(program), rows)
            if left.any():
                own = {field: columns.vector(own[left]) for field, own in zip(fields, rows)}
                result = fill_left(result, left, scalar, own)
        parts.append((code, event, result, bad))
    return _append(values, parts)


def _with_present(values: EventValues, code: int, now: int | NDArray[np.int64]) -> EventValues:
    """With the time of the match as an attribute of every event."""
    t, n = values.times, values.events
    event = np.append(t.event, np.arange(n, dtype=np.int32))
    times = type(t)(
        event, np.append(t.name, np.full(n, code, np.int32)), np.append(t.microseconds, np.broadcast_to(now, n))
    )
    return replace(values, times=times)


class FieldColumns:
    """The values of some attributes, by attribute and event."""

    def __init__(self, values: EventValues, is_field: NDArray[np.bool_]):
        self.events = values.events
        n, s, t, b, u = values.numbers, values.strings, values.times, values.booleans, values.unreadable
        picked = [np.flatnonzero(is_field[rows.name]) if len(rows.name) else rows.name for rows in (n, s, t, b)]
        size = sum(map(len, picked))
        cells = self.cells = empty_column(size)
        self._kernels: Any = bring("dibs.coding.computed.program_kernels")
        self._name, self._event = np.empty(size, np.int32), np.empty(size, np.int32)
        self._text_row = np.empty(size, np.int64)  # of a string
        at = 0
        kinds: tuple[Any, ...] = (n, s, t, b)
        for kind, rows, own in zip((NUMBER, STRING, TIME, BOOLEAN), kinds, picked):
            part = slice(at, at + len(own))
            self._name[part], self._event[part], cells.kind[part] = rows.name[own], rows.event[own], kind
            if kind == NUMBER:
                self._kernels.fill_numbers(writable(n.value), writable(n.rest), own, cells, at)
            elif kind == STRING:
                cells.start[part], cells.end[part], self._text_row[part] = s.offsets[own], s.offsets[own + 1], own
            else:
                cells.integer[part] = (t.microseconds if kind == TIME else b.value)[own]
            at += len(own)
        self._first, self._order = self._kernels.sort_by_name(self._name, len(is_field))
        self._strings = s
        self._bytes: dict[bool, tuple[NDArray[np.uint8], int]] = {}
        self.unknown = self._find_unknown(values, u, is_field)

    def bytes_for(self, program: Program) -> tuple[NDArray[np.uint8], int]:
        """See with_room."""
        if program.makes_texts not in self._bytes:
            s = self._strings
            self._bytes[program.makes_texts] = with_room(s.data[: s.offsets[-1]], program)
        return self._bytes[program.makes_texts]

    @staticmethod
    def _find_unknown(values: EventValues, u: Unreadable, is_field: NDArray[np.bool_]) -> dict[int, NDArray[np.int64]]:
        """By attribute, the events of which a value is a range or cannot be read."""
        found: dict[int, list[int]] = {}
        for event, name in zip(u.event.tolist(), u.name.tolist()):
            if is_field[name]:
                found.setdefault(name, []).append(event)
        for event, name, _ in values.ranges:
            if is_field[name]:
                found.setdefault(name, []).append(event)
        return {name: np.unique(np.array(events)) for name, events in found.items()}

    def combine(self, codes: list[int]) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int64]]:
        """For each combination of values of these attributes: its event, and of each attribute the place of its value
        (-1: it has none). And the events whose value is unknown, which have no combination."""
        places = np.full((len(codes), self.events), -1, np.int64)
        counts = np.zeros((len(codes), self.events), np.int32)
        most = 0
        for k, code in enumerate(codes):
            own = self._order[self._first[code] : self._first[code + 1]]
            most = max(most, self._kernels.place_values(own, self._event, places[k], counts[k]))
        bad = np.zeros(self.events, np.bool_)
        for code in codes:
            if code in self.unknown:
                bad[self.unknown[code]] = True
        if most <= 1 and not bad.any():
            return np.arange(self.events, dtype=np.int32), places, np.flatnonzero(bad)
        return self._combine_several(codes, np.maximum(counts, 1), places, bad)

    def _combine_several(
        self, codes: list[int], counts: NDArray[np.int32], places: NDArray[np.int64], bad: NDArray[np.bool_]
    ) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int64]]:
        """The same where events have several values of one attribute."""
        total = np.prod(counts.astype(np.float64), axis=0)
        bad |= total > MOST_COMBINATIONS
        of_event = np.where(bad, 0, total).astype(np.int64)
        event = np.repeat(np.arange(self.events, dtype=np.int32), of_event)
        ends = np.cumsum(of_event)
        number = np.arange(len(event)) - np.repeat(ends - of_event, of_event)  # of the combination within its event
        rows = np.empty((len(codes), len(event)), np.int64)
        for k, code in enumerate(codes):
            own = self._order[self._first[code] : self._first[code + 1]]
            own = own[np.argsort(self._event[own], kind="stable")]
            starts = np.searchsorted(self._event[own], np.arange(self.events))
            several = counts[k][event]
            at = np.minimum(starts[event] + number % several, len(own) - 1)
            rows[k] = np.where(places[k][event] >= 0, own[at], -1) if len(own) else -1
            number = number // several
        return event, rows, np.flatnonzero(bad)

    def vector(self, rows: NDArray[np.int64]) -> Vector:
        """The values at these places, or NULL."""
        missing, cells = rows < 0, self.cells
        if missing.all():
            return empty(len(rows))
        there = np.where(missing, 0, rows)
        kind = np.where(missing, NULL, cells.kind[there]).astype(np.uint8)
        text, has_text = nulls(len(rows)), kind == STRING
        if has_text.any():
            text = self._texts.take(pa.array(np.where(has_text, self._text_row[there], 0), mask=~has_text))
        return Vector(kind, cells.number[there], cells.integer[there], cells.whole[there] & ~missing, text)

    @lazy
    def padded(self) -> NDArray[np.uint8]:
        """The bytes of strings, behind which kernels may read."""
        s = self._strings
        return np.append(s.data[: s.offsets[-1]], np.zeros(PADDING, np.uint8))

    def vector_of(self, column: Column) -> Vector:
        """A column whose strings lie among the bytes."""
        rows, program = len(column.kind), program_of(Field("x"), ["x"])
        assert program is not None
        found, _ = compute_rows(program, column, self.padded, len(self.padded), np.arange(rows).reshape(1, rows))
        return found

    @lazy
    def _texts(self) -> pa.Array:
        s = self._strings
        buffers = [None, pa.py_buffer(np.ascontiguousarray(s.offsets)), pa.py_buffer(np.ascontiguousarray(s.data))]
        return pa.Array.from_buffers(pa.large_string(), len(s.event), buffers)


# ---- results ----

_Part = tuple[int, NDArray[np.int32], Vector, NDArray[np.int64]]


class Added(NamedTuple):
    """Room for results, as EventValues has numbers (value, rest), times and truths (integer)."""

    event: NDArray[np.int32]
    name: NDArray[np.int32]
    value: NDArray[np.float64]
    rest: NDArray[np.int16]
    integer: NDArray[np.int64]


def _append(values: EventValues, parts: list[_Part]) -> EventValues:
    """With the results before what was there: computed names are the first in order."""
    s = values.strings
    parts = [(code, event, _spread(vector, len(event)), bad) for code, event, vector, bad in parts]
    kinds = [np.bincount(vector.kind, minlength=NULL + 1) for _, _, vector, _ in parts]
    kernels: Any = bring("dibs.coding.computed.result_kernels")
    made: dict[str, Any] = {}
    for key, kind in (("numbers", NUMBER), ("times", TIME), ("booleans", BOOLEAN)):
        count = sum(int(own[kind]) for own in kinds)
        if not count:
            continue
        old = getattr(values, key)
        size = count + len(old.event)
        added = Added(
            np.empty(size, np.int32),
            np.empty(size, np.int32),
            np.empty(size if kind == NUMBER else 0, np.float64),
            np.empty(size if kind == NUMBER else 0, np.int16),
            np.empty(0 if kind == NUMBER else size, np.int64),
        )
        at = 0
        for (code, event, vector, _), own in zip(parts, kinds):
            if own[kind]:
                numbers = NumberArrays(vector.number, vector.integer, vector.whole)
                at = kernels.add_results(vector.kind, kind, numbers, event, code, added, at)
        added.event[count:], added.name[count:] = old.event, old.name
        if kind == NUMBER:
            added.value[count:], added.rest[count:] = old.value, old.rest
            made[key] = type(old)(added.event, added.name, added.value, added.rest)
        else:
            added.integer[count:] = old[2]
            made[key] = type(old)(added.event, added.name, added.integer.astype(old[2].dtype, copy=False))
    unknown = [(event[vector.kind == INTERVAL], code) for code, event, vector, _ in parts]
    unknown += [(bad.astype(np.int32), code) for code, _, _, bad in parts]
    unknown = [(event, code) for event, code in unknown if len(event)]
    if unknown:
        u = values.unreadable
        names = [np.full(len(event), code, np.int32) for event, code in unknown]
        made["unreadable"] = type(u)(
            np.concatenate([u.event, *(event for event, _ in unknown)]), np.concatenate([u.name, *names])
        )
    texts = []
    for (code, event, vector, _), own in zip(parts, kinds):
        if own[STRING]:
            rows = np.flatnonzero(vector.kind == STRING)
            text = vector.text if len(rows) == len(vector) else vector.text.take(pa.array(rows))
            texts.append((event[rows], np.full(len(rows), code, np.int32), text.cast(pa.large_string())))
    if texts:
        made["strings"] = _append_texts(s, texts)
    return replace(values, **made) if made else values


def _spread(vector: Vector, rows: int) -> Vector:
    return vector if len(vector) == rows else vector.take(np.zeros(rows, np.int64))


class NumberArrays(NamedTuple):
    number: NDArray[np.float64]
    integer: NDArray[np.int64]
    whole: NDArray[np.bool_]


def keys_of(vector: Vector) -> tuple[NDArray[np.float64], NDArray[np.int16]]:
    """Numbers as EventValues has them."""
    value, rest = np.empty(len(vector), np.float64), np.empty(len(vector), np.int16)
    numbers = NumberArrays(vector.number, vector.integer, vector.whole)
    bring("dibs.coding.computed.result_kernels").fill_keys(numbers, value, rest)
    return value, rest


def _append_texts(s: Strings, texts: list[tuple[Any, ...]]) -> Strings:
    offsets, data, end = [], [], 0
    for *_, array in texts:
        _, own, content = array.buffers()
        places = np.frombuffer(own, np.int64, len(array) + 1, array.offset * 8)
        offsets.append(places[:-1] - places[0] + end)
        if content is not None:
            data.append(np.frombuffer(content, np.uint8)[places[0] : places[-1]])
        end += int(places[-1] - places[0])
    return Strings(
        np.concatenate([*(event for event, _, _ in texts), s.event]),
        np.concatenate([*(name for _, name, _ in texts), s.name]),
        np.concatenate([*offsets, s.offsets + end]),
        np.concatenate([*data, s.data[: s.offsets[-1]]]),
    )
