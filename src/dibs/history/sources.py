"""Documents of any form, as the history keeps them: an Arrow table, or a list of dicts."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Iterable, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import pyarrow as pa

from dibs.arguments import check_path
from dibs.coding.events import arrow_source
from dibs.coding.events.json import json_content, json_lines
from dibs.coding.values import Range
from dibs.errors import ArgumentError, EventError, StorageError

EXPECTED = "a list of dicts, an Arrow table, JSON lines as bytes, or the path of a .parquet, .arrow or .jsonl file"

MAX_DEPTH = 500  # that is looked into
_PLAIN = (str, int, float, bool, type(None), dt.date)
_ARRAYS = (list, tuple, set, frozenset)


def documents_of(source: Any) -> Any:
    """The documents; what cannot be read raises."""
    if isinstance(source, (str, os.PathLike)):
        return from_file(check_path(source))
    found = arrow_source(source)
    if found is not None:
        if isinstance(found, pa.RecordBatchReader):
            return found.read_all()
        return pa.Table.from_batches([found]) if isinstance(found, pa.RecordBatch) else found
    if isinstance(source, (bytes, bytearray, memoryview)):
        return list(json_lines(json_content(source)))
    if isinstance(source, Mapping):
        raise EventError("found one document; expected several: use add for one, or put it into a list")
    if isinstance(source, Iterable):
        return [own_document(each, n) if isinstance(each, Mapping) else each for n, each in enumerate(source)]
    raise EventError(f"found documents of type {type(source).__name__}; expected {EXPECTED}")


def own_document(document: Mapping[str, Any], number: int | None = None) -> dict[str, Any]:
    """A copy that does not change when the caller's does. Raises EventError for a Range, of whatever attribute: joins
    may ask for it later."""
    kept = {}
    for name, value in document.items():
        if not isinstance(value, _PLAIN):
            if _has_range(value, 0):
                raise EventError("a document of the history has single values or arrays, no Range", number, name)
            value = deepcopy(value)
        kept[name] = value
    return kept


def _has_range(value: Any, depth: int) -> bool:
    if isinstance(value, Range):
        return True
    if depth > MAX_DEPTH:  # which is told when it is read
        return False
    inside = value.values() if isinstance(value, Mapping) else value if isinstance(value, _ARRAYS) else ()
    return any(_has_range(each, depth + 1) for each in inside if not isinstance(each, _PLAIN))


def from_file(path: Path) -> Any:
    readers = {
        ".parquet": _parquet,
        ".arrow": _arrow,
        ".feather": _arrow,
        ".jsonl": _lines,
        ".ndjson": _lines,
        ".json": _lines,
    }
    read = readers.get(path.suffix.lower())
    if read is None:
        raise ArgumentError(f"the history is loaded from {', '.join(readers)}; {path.name!r} ends otherwise")
    try:
        return read(path)
    except (OSError, pa.ArrowException) as error:
        raise StorageError(path, f"cannot be read: {str(error).splitlines()[0]}") from error


def _parquet(path: Path) -> pa.Table:
    import pyarrow.parquet as pq

    return pq.read_table(path)


def _arrow(path: Path) -> pa.Table:
    import pyarrow.feather as feather

    return feather.read_table(path)


def _lines(path: Path) -> list[Any]:
    return list(json_lines(path.read_bytes()))
