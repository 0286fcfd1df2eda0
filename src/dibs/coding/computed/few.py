"""Computed values of very few events: one by one, which takes less time than to make columns of them."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np

from dibs.coding.computed.naming import ComputedNames
from dibs.coding.computed.program_layout import MOST_COMBINATIONS
from dibs.coding.computed.wholes import decode
from dibs.coding.values import EventValues, number_key
from dibs.language.functions import evaluate
from dibs.language.functions.arrays import values_in
from dibs.language.functions.plain import Moment, plain_value
from dibs.language.scalars import Interval

_UNKNOWN = object()


def compute_few(values: EventValues, names: ComputedNames) -> EventValues:
    given = _fields(values, names)
    numbers: list[tuple[Any, ...]] = []
    texts: list[tuple[Any, ...]] = []
    times: list[tuple[Any, ...]] = []
    booleans: list[tuple[Any, ...]] = []
    unknown: list[tuple[int, int]] = []
    for event in range(values.events):
        for scalar, code, fields, codes in zip(names.scalars, names.codes, names.fields, names.field_codes):
            own = [given.get((event, field), [None]) for field in codes]
            if any(_UNKNOWN in some for some in own) or math.prod(map(len, own)) > MOST_COMBINATIONS:
                unknown.append((event, code))
                continue
            combinations = math.prod(map(len, own))
            found = (evaluate(scalar, dict(zip(fields, each)), combinations) for each in itertools.product(*own))
            for value in itertools.chain.from_iterable(map(values_in, found)):
                if isinstance(value, bool):
                    booleans.append((event, code, value))
                elif isinstance(value, (int, float)):
                    numbers.append((event, code, *number_key(value)))
                elif isinstance(value, str):
                    texts.append((event, code, value.encode()))
                elif isinstance(value, Moment):
                    times.append((event, code, value.microseconds))
                else:
                    assert isinstance(value, Interval)  # of which no test is known
                    unknown.append((event, code))
    made: dict[str, Any] = {}
    rows = {"numbers": numbers, "times": times, "booleans": booleans, "unreadable": unknown}
    for key, added in rows.items():
        if added:
            old = getattr(values, key)
            made[key] = type(old)(*(np.append(o, np.array(n, o.dtype)) for o, n in zip(old, zip(*added))))
    if texts:
        s, own_texts = values.strings, [text for *_, text in texts]
        data = np.append(s.data[: s.offsets[-1]], np.frombuffer(b"".join(own_texts), np.uint8))
        offsets = np.append(s.offsets, s.offsets[-1] + np.cumsum([len(text) for text in own_texts]))
        places = np.array([row[:2] for row in texts], np.int32)
        made["strings"] = type(s)(np.append(s.event, places[:, 0]), np.append(s.name, places[:, 1]), offsets, data)
    return replace(values, **made) if made else values


def _fields(values: EventValues, names: ComputedNames) -> dict[tuple[int, int], list[Any]]:
    """The values that something is computed from."""
    found: dict[tuple[int, int], list[Any]] = {}
    is_field, is_whole = names.is_field, names.is_whole

    def add(event: int, name: int, value: Any) -> None:
        found.setdefault((event, name), []).append(value)

    n, s, t, b, u = values.numbers, values.strings, values.times, values.booleans, values.unreadable
    for event, name, value, rest in zip(n.event.tolist(), n.name.tolist(), n.value.tolist(), n.rest.tolist()):
        if is_field[name]:
            if math.isinf(value):
                add(event, name, math.nan if rest else value)
            else:
                add(event, name, plain_value(int(value) + rest if rest else value))
    offsets, data = s.offsets.tolist(), s.data
    for i, (event, name) in enumerate(zip(s.event.tolist(), s.name.tolist())):
        if is_field[name]:
            text = data[offsets[i] : offsets[i + 1]].tobytes()
            add(event, name, decode(text) if is_whole[name] else text.decode())
    for event, name, micros in zip(t.event.tolist(), t.name.tolist(), t.microseconds.tolist()):
        if is_field[name]:
            add(event, name, Moment(micros))
    for event, name, truth in zip(b.event.tolist(), b.name.tolist(), b.value.tolist()):
        if is_field[name]:
            add(event, name, bool(truth))
    for event, name in [*zip(u.event.tolist(), u.name.tolist()), *((event, name) for event, name, _ in values.ranges)]:
        if is_field[name]:
            add(event, name, _UNKNOWN)
    return found
