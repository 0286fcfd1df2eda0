"""Documents as bytes, for files and databases, and back: what is read of them afterwards is what was before.

    json     documents that were Python objects: JSON lines, to be read by people. What JSON has no word for is an
             object of one field whose name begins with the character 0: {"\\u0000time": microseconds since 1970 UTC}
             and so on (see TAGS). A field of a document that begins so itself has one such character more.
    arrow    documents that were Arrow data: a stream in Arrow's own format

Nothing is lost on the way but what nobody can ask for: whether an array was a list or a set, a number's Python type,
names that are no Unicode text.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import orjson
import pyarrow as pa

from dibs.coding.events.depth import DEEPEST, too_deep
from dibs.coding.events.dicts import BrokenEvent
from dibs.coding.events.json import attributes_of
from dibs.coding.events.scalars import UnreadableValue, is_text, read_scalar
from dibs.coding.values import Range
from dibs.errors import EventError
from dibs.history.keys import time_at
from dibs.language.expression import Kind

TEXT, ARROW = "json", "arrow"  # forms
TAG = "\0"
TAGGED = b"\\u0000"  # as JSON writes it
TIME, NUMBER, INTEGER, UNREADABLE, BROKEN, PAIRS = (
    TAG + name for name in ("time", "number", "integer", "unreadable", "broken", "pairs")
)


class OfNoKind:
    """Stands for a value of which nothing is known but that it is there."""

    def __init__(self, kind: str):
        self.kind = kind  # what it was


class EncodedDocuments(NamedTuple):
    """Documents that came together, as bytes."""

    form: str
    attributes: str | None
    content: bytes


def encode_documents(rows: Any, attributes: str | None, number: int = 0) -> EncodedDocuments:
    """rows: an Arrow table, a list of dicts, or StoredLines; number: of the first of them, where something is wrong.
    Raises EventError."""
    if isinstance(rows, pa.Table):
        own = rows if attributes is None else rows.select([attributes])
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, own.schema) as writer:
            writer.write_table(own.combine_chunks())
        return EncodedDocuments(ARROW, attributes, sink.getvalue().to_pybytes())
    if isinstance(rows, StoredLines):
        return EncodedDocuments(TEXT, None, b"\n".join(rows.lines()))
    documents = rows if attributes is None else list(attributes_of(rows, attributes))
    lines = [_line(number, document) for number, document in enumerate(documents, number)]
    return EncodedDocuments(TEXT, None, b"\n".join(lines))


def table_of(content: Any) -> pa.Table:
    """Documents of the form ARROW."""
    return pa.ipc.open_stream(content).read_all()


class StoredLines:
    """Documents as JSON lines, in several pieces; they are read when somebody asks."""

    def __init__(self, pieces: list[bytes], counts: list[int]):
        self.pieces = pieces
        self._ends = list(accumulate(counts))

    def __len__(self) -> int:
        return self._ends[-1]

    def lines(self, start: int = 0, length: int | None = None) -> list[bytes]:
        end = len(self) if length is None else start + length
        first, last = bisect_right(self._ends, start), bisect_right(self._ends, end - 1)
        before = self._ends[first - 1] if first else 0
        lines = [line for piece in self.pieces[first : last + 1] for line in piece.split(b"\n")]
        return lines[start - before : end - before]

    def slice(self, start: int, length: int) -> StoredLines:
        """Some of them."""
        return StoredLines([b"\n".join(self.lines(start, length))], [length])

    def readable(self) -> bytes | list[Any]:
        """The documents as read_events takes them: as they lie here, if there is nothing in them that JSON lacks."""
        content = b"\n".join(self.pieces)
        return [_document(line) for line in content.split(b"\n")] if TAGGED in content else content


def has_lines(content: bytes | str, size: int) -> bool:
    """Whether this is the content of so many documents of the form TEXT."""
    return (content.count("\n") if isinstance(content, str) else content.count(b"\n")) == size - 1


# ---- Python objects to JSON ----


def _line(number: int, document: object) -> bytes:
    if not isinstance(document, Mapping):
        reason = document.message if isinstance(document, BrokenEvent) else f"no dict, but {type(document).__name__}"
        return orjson.dumps({BROKEN: reason})
    try:
        return orjson.dumps(_fields(document, 0))
    except _Refused as problem:
        raise EventError(str(problem), number) from None
    except RecursionError:  # the caller has come far already
        raise EventError(too_deep(""), number) from None


class _Refused(Exception):
    """A document that cannot be kept."""


def _fields(value: Mapping[Any, Any], depth: int) -> dict[str, Any]:
    _check_depth(depth)
    result: dict[str, Any] = {}
    for key, inner in value.items():
        if not isinstance(key, str):
            pairs = [[k if isinstance(k, str) else None, _value(v, depth + 1)] for k, v in value.items() if _is_name(k)]
            return {PAIRS: pairs}
        name = str.__str__(key)
        if is_text(name):
            result[TAG + name if name[:1] == TAG else name] = _value(inner, depth + 1)
    return result


def _check_depth(depth: int) -> None:
    if depth > DEEPEST:
        raise _Refused(too_deep(""))


def _is_name(key: object) -> bool:
    return not isinstance(key, str) or is_text(key)


def _value(value: Any, depth: int) -> Any:
    """A value in words of JSON."""
    kind = type(value)
    if kind is str and is_text(value):
        return value
    if value is None or kind is bool:
        return value
    if kind is int:
        return value if -(2**63) <= value < 2**63 else {INTEGER: hex(value)}
    if kind is float:
        return value if math.isfinite(value) else {NUMBER: str(value)}
    if isinstance(value, dict):
        return _fields(value, depth)
    if isinstance(value, (list, tuple, set, frozenset, np.ndarray)):
        _check_depth(depth)
        return [_value(each, depth + 1) for each in _elements(value)]
    if isinstance(value, Range):
        raise _Refused("a document of the history has single values or arrays, no Range")
    try:
        scalar = read_scalar(value)
    except UnreadableValue:
        return _fields(value, depth) if isinstance(value, Mapping) else {UNREADABLE: kind.__name__}
    if scalar is None:
        return None
    if scalar[0] is Kind.TIME:
        return {TIME: scalar[1]}
    if scalar[0] is Kind.STRING and not is_text(scalar[1]):
        return {UNREADABLE: "str"}
    return _value(scalar[1], depth)


def _elements(value: Any) -> Iterable[Any]:
    if not isinstance(value, np.ndarray):
        return iter(value)
    elements = list(value.flat) if value.dtype.kind in "mM" else value.tolist()
    return elements if isinstance(elements, list) else [elements]


# ---- and back ----


def _document(line: bytes) -> object:
    found = orjson.loads(line)
    if TAGGED not in line:
        return found
    return _plain(found)


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        [(name, inner)] = value.items()
        if name in TAGS:
            return TAGS[name](inner)
    return {name[1:] if name[:1] == TAG else name: _plain(inner) for name, inner in value.items()}


def _integer(text: str) -> int:
    """In base 16, which may have any number of digits; up to version 0.1 in base 10."""
    return int(text, 16 if "x" in text else 10)


def _pairs(pairs: list[Any]) -> dict[Any, Any]:
    return {OfNoKind("key") if key is None else key: _plain(inner) for key, inner in pairs}


TAGS: dict[str, Callable[[Any], Any]] = {
    TIME: time_at,
    NUMBER: float,
    INTEGER: _integer,
    UNREADABLE: OfNoKind,  # a value of no kind
    BROKEN: BrokenEvent,  # what came was no document
    PAIRS: _pairs,  # an object with names that are no strings, which are null here
}
