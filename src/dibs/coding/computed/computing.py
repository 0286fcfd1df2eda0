"""From the values of a batch to those that are computed from them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dibs.coding.arrange import writable
from dibs.coding.computed.few import compute_few
from dibs.coding.computed.naming import ComputedNames
from dibs.coding.computed.program import Program, empty_column
from dibs.coding.computed.program_layout import MOST_COMBINATIONS
from dibs.coding.computed.running import compute_rows, evaluate, fill_left, with_room
from dibs.coding.computed.vectors import BOOLEAN, INTERVAL, NULL, NUMBER, STRING, TIME, Vector, empty, nulls
from dibs.coding.values import EventValues, Strings, Unreadable, without_names
from dibs.jit.undisturbed import bring
from dibs.language.present import Instants, read_clock
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
        if program is None:
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
        picked = [np.flatnonzero(is_field[rows.name]) for rows in (n, s, t, b)]
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
    def _texts(self) -> pa.Array:
        s = self._strings
        buffers = [None, pa.py_buffer(np.ascontiguousarray(s.offsets)), pa.py_buffer(np.ascontiguousarray(s.data))]
        return pa.Array.from_buffers(pa.large_string(), len(s.event), buffers)


# ---- results ----

_Part = tuple[int, NDArray[np.int32], Vector, NDArray[np.int64]]


def _append(values: EventValues, parts: list[_Part]) -> EventValues:
    n, s, t, b, u = values.numbers, values.strings, values.times, values.booleans, values.unreadable
    added: dict[str, list[tuple[Any, ...]]] = {"numbers": [], "times": [], "booleans": [], "unreadable": []}
    texts = []
    for code, event, vector, bad in parts:
        if len(vector) == 1 and len(event) != 1:
            vector = vector.take(np.zeros(len(event), np.int64))
        for kind in np.flatnonzero(np.bincount(vector.kind, minlength=6)).tolist():
            rows = np.flatnonzero(vector.kind == kind)
            own = event[rows], np.full(len(rows), code, np.int32)
            if kind == NUMBER:
                added["numbers"].append((*own, *keys_of(vector, rows)))
            elif kind == TIME:
                added["times"].append((*own, vector.integer[rows]))
            elif kind == BOOLEAN:
                added["booleans"].append((*own, vector.integer[rows].astype(np.uint8)))
            elif kind == STRING:
                texts.append((*own, vector.text.take(pa.array(rows)).cast(pa.large_string())))
            elif kind == INTERVAL:
                added["unreadable"].append(own)
        if len(bad):
            added["unreadable"].append((bad.astype(np.int32), np.full(len(bad), code, np.int32)))
    made: dict[str, Any] = {}
    before: dict[str, Any] = {"numbers": n, "times": t, "booleans": b, "unreadable": u}
    for key, old in before.items():
        if added[key]:
            made[key] = type(old)(*map(np.concatenate, zip(old, *added[key])))
    if texts:
        made["strings"] = _append_texts(s, texts)
    return replace(values, **made) if made else values


class NumberArrays(NamedTuple):
    number: NDArray[np.float64]
    integer: NDArray[np.int64]
    whole: NDArray[np.bool_]


def keys_of(vector: Vector, rows: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.int16]]:
    """Numbers as EventValues has them."""
    value, rest = np.empty(len(rows), np.float64), np.empty(len(rows), np.int16)
    numbers = NumberArrays(vector.number, vector.integer, vector.whole)
    bring("dibs.coding.computed.result_kernels").fill_keys(numbers, rows, value, rest)
    return value, rest


def _append_texts(s: Strings, texts: list[tuple[Any, ...]]) -> Strings:
    offsets, data, end = [s.offsets], [s.data[: s.offsets[-1]]], int(s.offsets[-1])
    for *_, array in texts:
        _, own, content = array.buffers()
        places = np.frombuffer(own, np.int64, len(array) + 1, array.offset * 8)
        offsets.append(places[1:] - places[0] + end)
        if content is not None:
            data.append(np.frombuffer(content, np.uint8)[places[0] : places[-1]])
        end = int(offsets[-1][-1]) if len(array) else end
    return Strings(
        np.concatenate([s.event, *(event for event, _, _ in texts)]),
        np.concatenate([s.name, *(name for _, name, _ in texts)]),
        np.concatenate(offsets),
        np.concatenate(data),
    )
