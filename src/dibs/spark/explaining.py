"""Why events match, in Spark's Python workers: for `match(..., explain=True)`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dibs.errors import EventError
from dibs.language.present import Now
from dibs.matcher import Matcher
from dibs.segments.ids import Id


def explain_pairs(
    matcher: Matcher,
    ids: Sequence[Id],
    events: Sequence[int],
    columns: pa.RecordBatch,
    attributes: str | None,
    now: Now = None,
) -> list[str]:
    """A text for each pair of a subscription and the number of an event. Only events that match are looked at: those
    that cannot be read at all do not."""
    rows: dict[int, Any] = {}
    result = []
    for id, event in zip(ids, events, strict=True):
        try:
            if event not in rows:
                rows[event] = read_event(columns, event, attributes)
            result.append(str(matcher.explain(id, rows[event], now)))
        except (EventError, ValueError, OverflowError) as error:  # a date, say, that Python does not have
            result.append(f"matches; why cannot be told: {error}")
    return result


def read_event(columns: pa.RecordBatch, event: int, attributes: str | None) -> Any:
    """The event as the matcher takes one: a dict of what is in its columns, or the bytes of its JSON."""
    if attributes is None:
        return {name: _plain(column[event]) for name, column in zip(columns.schema.names, columns.columns)}
    value = columns.column(attributes)[event]
    if pa.types.is_string(value.type) or pa.types.is_large_string(value.type):
        large = pa.types.is_large_string(value.type)
        return pc.cast(value, pa.large_binary() if large else pa.binary()).as_py()  # which need not be UTF-8
    return _plain(value) or {}


def _plain(value: pa.Scalar) -> Any:
    """The value with maps as dicts. A key that a map has twice has both values."""
    kind = value.type
    if not value.is_valid:
        return None
    if pa.types.is_struct(kind):
        return {field.name: _plain(value[place]) for place, field in enumerate(kind)}
    if pa.types.is_map(kind):
        result: dict[Any, Any] = {}
        for entry in value.values:
            key, item = entry[0].as_py(), _plain(entry[1])
            result[key] = [result[key], item] if key in result else item
        return result
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return [_plain(element) for element in value.values]
    return value.as_py()
