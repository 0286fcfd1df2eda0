"""`EventValues` turned back into something one can read and compare, with its invariants checked on the way."""

from __future__ import annotations

from typing import Any

import numpy as np

from dibs.coding.values import EventValues

Decoded = dict[int, dict[str, list[tuple[Any, ...]]]]


def decode(values: EventValues) -> Decoded:
    """event -> name -> its values, sorted; events without any value are left out."""
    check(values)
    decoded: Decoded = {}

    def put(event: int, name: int, value: tuple[Any, ...]) -> None:
        decoded.setdefault(int(event), {}).setdefault(values.names[name], []).append(value)

    for event, name, value, rest in zip(*values.numbers, strict=True):
        put(event, name, ("number", float(value), int(rest)))
    offsets, data = values.strings.offsets, values.strings.data
    for row, (event, name) in enumerate(zip(values.strings.event, values.strings.name, strict=True)):
        put(event, name, ("string", data[offsets[row] : offsets[row + 1]].tobytes().decode()))
    for event, name, microseconds in zip(*values.times, strict=True):
        put(event, name, ("time", int(microseconds)))
    for event, name, value in zip(*values.booleans, strict=True):
        put(event, name, ("boolean", int(value)))
    for event, name, found in values.ranges:
        put(event, name, ("range", repr(found.lo), repr(found.hi)))
    for event, name in zip(*values.unreadable, strict=True):
        put(event, name, ("unreadable",))
    for names in decoded.values():
        for found_values in names.values():
            found_values.sort(key=repr)
    return decoded


def check(values: EventValues) -> None:
    """What values.py says of every batch."""
    assert len(set(values.names)) == len(values.names)
    kinds = [values.numbers, values.strings, values.times, values.booleans, values.unreadable]
    for kind in kinds:
        assert kind.event.dtype == kind.name.dtype == np.int32
        assert len(kind.event) == len(kind.name)
        if len(kind.event):
            assert kind.event.min() >= 0
            assert kind.event.max() < values.events
            assert kind.name.min() >= 0
            assert kind.name.max() < len(values.names)
        assert not np.isin(kind.event, values.unreadable_events).any()
    assert values.numbers.value.dtype == np.float64
    assert values.numbers.rest.dtype == np.int16
    assert not np.isnan(values.numbers.value).any()
    assert not (np.signbit(values.numbers.value) & (values.numbers.value == 0)).any()
    assert values.strings.offsets.dtype == np.int64
    assert values.strings.data.dtype == np.uint8
    assert len(values.strings.offsets) == len(values.strings.event) + 1
    assert values.strings.offsets[0] == 0
    assert values.strings.offsets[-1] == len(values.strings.data)
    assert (np.diff(values.strings.offsets) >= 0).all()
    assert values.times.microseconds.dtype == np.int64
    assert values.booleans.value.dtype == np.uint8
    assert set(np.unique(values.booleans.value)) <= {0, 1}
    assert values.unreadable_events.dtype == np.int32
    assert values.unreadable_events.tolist() == sorted(set(values.unreadable_events.tolist()))
    assert [problem.event for problem in values.problems] == sorted(problem.event for problem in values.problems)
