"""From the values of a batch to those that are computed from them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dibs.coding.computed.columns import evaluate
from dibs.coding.computed.few import compute_few
from dibs.coding.computed.naming import MOST_COMBINATIONS, ComputedNames
from dibs.coding.computed.vectors import BOOLEAN, INTERVAL, NULL, NUMBER, STRING, TIME, Vector, empty, nulls
from dibs.coding.values import EventValues, Strings, Unreadable, without_names
from dibs.language.present import Instants, read_clock
from dibs.thresholds import thresholds


def compute(values: EventValues, names: ComputedNames, now: Instants = None) -> EventValues:
    """The values with the computed ones. What an event itself has under such a name is left out. now: the time of the
    match; None: by the clock."""
    values = without_names(values, names.is_computed)
    if names.present is not None:
        values = _with_present(values, names.present, read_clock() if now is None else now)
    if values.events <= thresholds.few_computed:
        return compute_few(values, names)
    if names.by_events is not None:
        values = compute_few(values, names.by_events)
        names = names.by_columns
    columns = FieldColumns(values, names.is_field)
    parts = []
    for scalar, code, fields, codes in zip(names.scalars, names.codes, names.fields, names.field_codes):
        event, rows, bad = columns.combine(codes)
        vectors = {field: columns.vector(c, r) for field, c, r in zip(fields, codes, rows)}
        result = evaluate(scalar, vectors, len(event))
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
        column = empty(size)
        self.name, event = np.empty(size, np.int32), np.empty(size, np.int32)
        at = 0
        text_rows = np.full(size, -1, np.int64)
        kinds: tuple[Any, ...] = (n, s, t, b)
        for kind, rows, own in zip((NUMBER, STRING, TIME, BOOLEAN), kinds, picked):
            part = slice(at, at + len(own))
            at += len(own)
            self.name[part], event[part], column.kind[part] = rows.name[own], rows.event[own], kind
            if kind == NUMBER:
                _fill_numbers(column, part, n.value[own], n.rest[own])
            elif kind == STRING:
                text_rows[part] = own
            else:
                column.integer[part] = (t.microseconds if kind == TIME else b.value)[own]
        order = np.lexsort((event, self.name))
        self.name, self.event = self.name[order], event[order]
        self.column = Vector(
            column.kind[order], column.number[order], column.integer[order], column.whole[order], column.text
        )
        self.text_rows = text_rows[order]
        self.strings = s
        self.unknown = self._find_unknown(values, u, is_field)

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

    def combine(self, codes: list[int]) -> tuple[NDArray[np.int32], list[NDArray[np.int64]], NDArray[np.int64]]:
        """For each combination of values of these attributes: its event, and of each attribute the place of its value
        (-1: it has none). And the events whose value is unknown, which have no combination."""
        bad = np.zeros(self.events, np.bool_)
        starts, counts = [], []
        for code in codes:
            first, last = np.searchsorted(self.name, [code, code + 1])
            count = np.bincount(self.event[first:last], minlength=self.events)
            starts.append(first + np.cumsum(count) - count)
            counts.append(count)
            if code in self.unknown:
                bad[self.unknown[code]] = True
        total = np.ones(self.events, np.float64)
        for count in counts:
            total *= np.maximum(count, 1)
        bad |= total > MOST_COMBINATIONS
        of_event = np.where(bad, 0, total).astype(np.int64)
        event = np.repeat(np.arange(self.events, dtype=np.int32), of_event)
        ends = np.cumsum(of_event)
        number = np.arange(len(event)) - np.repeat(ends - of_event, of_event)  # of the combination within its event
        rows = []
        for start, count in zip(starts, counts):
            several = np.maximum(count, 1)[event]
            place = start[event] + number % several
            number = number // several
            rows.append(np.where(count[event] > 0, place, -1))
        return event, rows, np.flatnonzero(bad)

    def vector(self, code: int, rows: NDArray[np.int64]) -> Vector:
        missing = rows < 0
        there = np.where(missing, 0, rows)
        if not len(self.name):
            return empty(len(rows))
        column = self.column
        kind = np.where(missing, NULL, column.kind[there]).astype(np.uint8)
        text, has_text = nulls(len(rows)), kind == STRING
        if has_text.any():
            text = self._strings().take(pa.array(np.where(has_text, self.text_rows[there], 0), mask=~has_text))
        whole = column.whole[there] & ~missing
        return Vector(kind, column.number[there], column.integer[there], whole, text)

    def _strings(self) -> pa.Array:
        if not hasattr(self, "_text"):
            s = self.strings
            buffers = [None, pa.py_buffer(np.ascontiguousarray(s.offsets)), pa.py_buffer(np.ascontiguousarray(s.data))]
            self._text = pa.Array.from_buffers(pa.large_string(), len(s.event), buffers)
        return self._text


def _fill_numbers(column: Vector, part: slice, value: NDArray[np.float64], rest: NDArray[np.int16]) -> None:
    is_nan = np.isinf(value) & (rest != 0)
    number = np.where(is_nan, np.nan, value)
    whole = (np.floor(number) == number) & (number >= -(2.0**63)) & (number <= 2.0**63)
    near = np.where(whole & (number < 2.0**63), number, 0.0).astype(np.int64)
    over = number == 2.0**63  # an integer below it, or one that is too large
    integer = near + rest
    integer = np.where(over, np.iinfo(np.int64).max + (rest.astype(np.int64) + 1), integer)
    whole &= ~over | (rest < 0)
    column.number[part], column.whole[part] = number, whole
    column.integer[part] = np.where(whole, integer, 0)


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


def keys_of(vector: Vector, rows: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.int16]]:
    """Numbers as EventValues has them."""
    number, whole, integer = vector.number[rows], vector.whole[rows], vector.integer[rows]
    near = np.where(whole, integer.astype(np.float64), number)
    is_nan = np.isnan(near)
    rest = np.where(whole & (near < 2.0**63), integer - np.where(whole & (near < 2.0**63), near, 0).astype(np.int64), 0)
    top = whole & (near >= 2.0**63)
    rest = np.where(top, integer - np.iinfo(np.int64).max - 1, rest)
    return np.where(is_nan, np.inf, near) + 0.0, np.where(is_nan, 1, rest).astype(np.int16)


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
