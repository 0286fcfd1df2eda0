"""Columns of Arrow batches as the events, or documents, that they hold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

import pyarrow as pa

from dibs.coding.events import WantedNames, read_events
from dibs.coding.values import EventValues

TEXTS = {pa.binary(): pa.string(), pa.large_binary(): pa.large_string()}


def name_columns(columns: Sequence[pa.Array], names: Sequence[str], attributes: str | None) -> pa.RecordBatch:
    """The columns under the names that they have for users. attributes: the one that holds the attributes, whose JSON
    may be bytes, as Kafka hands it over."""
    if attributes is not None and columns[0].type in TEXTS:
        columns = [columns[0].view(TEXTS[columns[0].type])]
    return pa.RecordBatch.from_arrays(list(columns), names=list(names))


def read_keys(columns: pa.RecordBatch, wanted: Iterable[str], attributes: str | None) -> EventValues:
    """The values that keys are made of; what cannot be read has none."""
    return read_events(columns, _names(frozenset(wanted)), attributes=attributes, on_error="skip")


@lru_cache(maxsize=8)
def _names(wanted: frozenset[str]) -> WantedNames:
    """Made once for many batches: there may be very many names."""
    return WantedNames(wanted)
