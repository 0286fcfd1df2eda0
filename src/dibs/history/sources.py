"""Documents of any form, as the history keeps them: an Arrow table, or a list of dicts."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dibs.arguments import check_path, is_several
from dibs.coding.events import arrow_source
from dibs.coding.events.arrow_types import check_layout
from dibs.coding.events.depth import DEEPEST, is_too_deep, may_be_deep, too_deep
from dibs.coding.events.dicts import BrokenEvent, no_key
from dibs.coding.events.json import JsonTexts, json_content, json_line, json_text
from dibs.coding.lines import number_lines
from dibs.coding.values import Range
from dibs.errors import ArgumentError, EventError, MissingFile, StorageError
from dibs.jit.undisturbed import bring

EXPECTED = "a list of dicts, an Arrow table, JSON lines as bytes, or the path of a .parquet, .arrow or .jsonl file"
SHORT = 2 * DEEPEST  # bytes of a JSON text that cannot be too deep
NO_RANGE = "a document of the history has single values or arrays, no Range"

_PLAIN = frozenset((str, int, float, bool, type(None), dt.date, dt.datetime))  # values that never change
_ARRAYS = (list, tuple, set, frozenset)
_is_plain, _are_names = _PLAIN.issuperset, frozenset((str,)).issuperset


def documents_of(source: Any, attributes: str | None = None) -> Any:
    """The documents, which can be read more than once, and do not change when the caller's do. What cannot be kept, as
    `own_document` says, is a BrokenEvent. attributes: the column that holds their attributes."""
    if isinstance(source, (str, os.PathLike)):
        return checked_texts(from_file(check_path(source)), attributes)
    found = arrow_source(source)
    if found is not None:
        try:
            if isinstance(found, pa.RecordBatchReader):
                found = found.read_all()
            elif isinstance(found, pa.RecordBatch):
                found = pa.Table.from_batches([found])
            found = _laid_out(found)
        except pa.ArrowException as error:
            raise EventError(f"the Arrow data cannot be read: {error}") from error
        return checked_texts(found, attributes)
    if isinstance(source, (bytes, bytearray, memoryview)):
        return checked_texts(_documents_in(json_content(source)), attributes)
    if isinstance(source, JsonTexts):
        return checked_texts([_checked(document, text) for document, text in zip(source, source.texts)], attributes)
    if isinstance(source, Mapping):
        raise EventError("found one document; expected several: use add for one, or put it into a list")
    if not is_several(source):
        raise EventError(f"found documents of type {type(source).__name__}; expected {EXPECTED}")
    own = [_own(each) if type(each) is dict or isinstance(each, Mapping) else each for each in source]
    return checked_texts(own, attributes)


class Unkeepable(Exception):
    """A document that cannot be kept; the message says why."""


def own_document(document: Mapping[str, Any]) -> dict[str, Any]:
    """A copy that does not change when the caller's does. Raises Unkeepable for what nobody could read later, of
    whatever attribute, as joins may ask for any: a Range, a key that is no string, too many levels."""
    if type(document) is dict and _are_names(map(type, document)) and _is_plain(map(type, document.values())):
        return document.copy()
    kept = {}
    for name, value in document.items():
        if not isinstance(name, str):
            raise Unkeepable(no_key(name, None))
        try:
            kept[name] = _own_value(value, name, 1)
        except RecursionError:  # the caller has come far already
            raise Unkeepable(too_deep(name)) from None
    return kept


def _own(document: Mapping[str, Any]) -> Any:
    try:
        return own_document(document)
    except Unkeepable as problem:
        return BrokenEvent(str(problem))


def _own_value(value: Any, name: str, depth: int) -> Any:
    """Objects and arrays are copied. All else never changes, or is of no kind, so that nobody can ask what it is."""
    if type(value) in _PLAIN:
        return value
    if isinstance(value, Range):
        raise Unkeepable(f"attribute {name!r}: {NO_RANGE}")
    if isinstance(value, np.ndarray):
        if value.dtype.kind != "O" and value.dtype.names is None:
            _check_depth(depth + max(value.ndim - 1, 0), name)
            return value.copy()
        value = value.tolist()
        return _own_value(value if isinstance(value, list) else [value], name, depth)
    if isinstance(value, _ARRAYS):
        _check_depth(depth, name)
        elements = []
        for each in value:  # no comprehension: the stack would grow by two frames a level
            elements.append(each if type(each) in _PLAIN else _own_value(each, name, depth + 1))
        return elements
    if isinstance(value, Mapping):
        _check_depth(depth, name)
        fields = {}
        for key, each in value.items():
            if not isinstance(key, str):
                raise Unkeepable(no_key(key, name))
            fields[key] = each if type(each) in _PLAIN else _own_value(each, name, depth + 1)
        return fields
    return value


def _check_depth(depth: int, name: str) -> None:
    if depth > DEEPEST:
        raise Unkeepable(too_deep(name))


# ---- JSON texts ----


def _documents_in(content: bytes) -> list[Any]:
    """Those of JSON lines."""
    return [
        json_line(number, line) if len(line) < SHORT else _checked(json_line(number, line), line)
        for number, line in number_lines(content, longest=None)
    ]


def _checked(document: Any, text: bytes) -> Any:
    """What was read of a JSON text, if it is not too deep."""
    is_deep = may_be_deep(text) and not isinstance(document, BrokenEvent) and is_too_deep(document)
    return BrokenEvent(too_deep("")) if is_deep else document


def checked_texts(rows: Any, attributes: str | None) -> Any:
    """The documents, of which one is a BrokenEvent whose attributes are a JSON text that is too deep."""
    if attributes is None:
        return rows
    if isinstance(rows, list):
        return [_checked_text(row, attributes) for row in rows]
    if rows.column_names.count(attributes) != 1 or not _is_text(rows.schema.field(attributes).type):
        return rows
    brackets = [pc.count_substring(rows[attributes], mark) for mark in "[{"]
    most = pc.max(pc.add(*brackets)).as_py()
    return rows if most is None or most <= DEEPEST + 1 else checked_texts(rows.to_pylist(), attributes)


def _checked_text(row: Any, attributes: str) -> Any:
    text = row.get(attributes) if isinstance(row, Mapping) else None
    if isinstance(text, str):
        text = text.encode("utf-8", "surrogatepass")
    if isinstance(text, bytes) and may_be_deep(text) and isinstance(_checked(json_text(text), text), BrokenEvent):
        return _checked(json_text(text), text)
    return row


def _is_text(kind: pa.DataType) -> bool:
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    return any(test(kind) for test in tests)


# ---- files ----


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
    except FileNotFoundError:
        raise MissingFile(path) from None
    except (OSError, pa.ArrowException) as error:
        raise StorageError(path, f"cannot be read: {str(error).splitlines()[0]}") from error


def _parquet(path: Path) -> pa.Table:
    return _laid_out(bring("pyarrow.parquet").read_table(path))


def _arrow(path: Path) -> pa.Table:
    return _laid_out(bring("pyarrow.feather").read_table(path))


def _laid_out(table: pa.Table) -> pa.Table:
    """It is read again and again, by kernels and by Arrow: once it must be sound."""
    for column in table.columns:
        for chunk in column.chunks:
            check_layout(chunk)
    return table


def _lines(path: Path) -> list[Any]:
    return _documents_in(path.read_bytes())
