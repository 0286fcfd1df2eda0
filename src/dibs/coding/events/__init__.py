"""Reading events of every form into `EventValues`: the entry of the coding stage.

    dicts ──────────────────────────────────────┐
    JSON lines, JSON texts of Arrow ─> kernels  ├─> EventValues
    Arrow ─> columns ───────────────────────────┘      with what is computed from these (coding.computed)

The same content gives the same values whatever the form. Attributes that no subscription mentions are not looked at,
so whatever is wrong with them is no problem.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import pyarrow as pa

from dibs.arguments import check_on_error, check_text, is_several
from dibs.coding.arrange import FEW_EVENTS
from dibs.coding.computed import compute
from dibs.coding.events.arrow import read_arrow
from dibs.coding.events.declared import convert
from dibs.coding.events.dicts import read_dicts
from dibs.coding.events.json import JsonTexts, attributes_of, json_content, json_lines
from dibs.coding.events.json_lane import read_json_lines, read_json_texts
from dibs.coding.events.wanted import WantedNames
from dibs.coding.lines import has_lines
from dibs.coding.values import EventValues
from dibs.errors import EventError
from dibs.language.present import Instants, Present
from dibs.language.types import NO_TYPES, Types

__all__ = ["WantedNames", "read_events"]

_FORMS = "a list of dicts, an Arrow table, record batch or reader, or JSON lines as bytes"


def read_events(
    events: object,
    wanted: WantedNames | Collection[str],
    attributes: str | None = None,
    on_error: str = "raise",
    now: Present | Instants = None,
    types: Types = NO_TYPES,
) -> EventValues:
    """The values of the wanted attributes of a batch of events.

    events      an iterable of dicts; a pyarrow Table, RecordBatch or RecordBatchReader, or anything that hands over
                Arrow data by its stream or array interface (polars, pandas, DuckDB); or JSON lines in bytes or str,
                where blank lines are no events and a byte order mark, and \\r before \\n, are allowed.
    wanted      the attributes that are looked at. Pass `WantedNames` when there are many names and many batches.
    attributes  the column (or key) that holds the attributes: a map or struct (an object), or JSON text.
    on_error    "raise": EventError for the first event with something unreadable. "skip": the value becomes
                `unreadable` (or the event one of `unreadable_events`, with no values at all) and is told in `problems`.
    now         the time of the match (language.present).
    types       of attributes, where they are declared: values are converted, and one that does not fit is unreadable.
    """
    check_on_error(on_error)
    check_text("attributes", attributes)
    if not isinstance(wanted, WantedNames):
        wanted = WantedNames(wanted)
    if isinstance(now, str):
        wanted, now = wanted.at_time_of(now), None
    values = _read(events, wanted, attributes, on_error)
    if types:
        declared = wanted.declared(types)
        values = values if declared is None else convert(values, declared, on_error)
    return values if wanted.computed is None else compute(values, wanted.computed, now)


def _read(events: object, wanted: WantedNames, attributes: str | None, on_error: str) -> EventValues:
    source = arrow_source(events)
    if source is not None:
        return read_arrow(source, wanted, attributes, on_error)
    if isinstance(events, (bytes, bytearray, memoryview, str)):
        content = json_content(events)
        # The kernels have so much space to prepare that very few lines are dicts in less time.
        if wanted.raw is None and has_lines(content, FEW_EVENTS.value):
            return read_json_lines(content, wanted, on_error, attributes)
        rows: Iterable[object] = json_lines(content)
    elif isinstance(events, JsonTexts):
        if wanted.raw is None and len(events) > FEW_EVENTS.value:
            return read_json_texts(events.texts, wanted, on_error, attributes)
        rows = events
    elif isinstance(events, Mapping):
        raise EventError(f"found one event of type {type(events).__name__}; expected {_FORMS}: put it into a list")
    elif is_several(events):
        rows = events  # type: ignore[assignment]
    else:
        raise EventError(f"found events of type {type(events).__name__}; expected {_FORMS}")
    if attributes is not None:
        rows = attributes_of(rows, attributes)
    return read_dicts(rows, wanted, on_error)


def arrow_source(events: object) -> pa.Table | pa.RecordBatch | pa.RecordBatchReader | None:
    """The events as Arrow data, when they are or can be handed over as such."""
    if isinstance(events, (pa.Table, pa.RecordBatch, pa.RecordBatchReader)):
        return events
    try:
        if hasattr(events, "__arrow_c_stream__"):
            return pa.RecordBatchReader.from_stream(events)
        if hasattr(events, "__arrow_c_array__"):
            return pa.record_batch(events)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise EventError(
            f"the {type(events).__name__} does not hand over its rows as Arrow data ({error}); expected {_FORMS}"
        ) from error
    return None
