"""What dibs.Client sends to a service: checked, as paths, headers and JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote

import orjson

from dibs.arguments import is_integer, is_several
from dibs.errors import ArgumentError, EventError, UnknownId, show
from dibs.items import sought_id

BYTES_AT_ONCE = 16 << 20  # of events


def path_of(id: Any) -> str:
    sought = sought_id(id)
    if sought is None:
        raise UnknownId(id)
    return f"/v1/subscriptions/{quote(str(sought), safe='')}"


def integer_of(id: Any) -> dict[str, str]:
    return {"integer": "true"} if is_integer(id) else {}


def check_header(name: str, value: object) -> None:
    """What HTTP takes as the value of a header, or None."""
    if value is not None and not (isinstance(value, str) and value.isascii() and value.isprintable()):
        raise ArgumentError(f"{name} must be a string of printable ASCII characters, not {show(value)}")


def json_of(value: Any) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError as error:
        raise ArgumentError(f"this cannot be said in JSON, which a service is asked in: {error}") from None


def lines_of(rows: Iterable[Any]) -> bytes:
    return b"\n".join(map(json_of, rows))


def event_of(event: Any) -> bytes:
    if isinstance(event, (bytes, bytearray, memoryview)):
        return bytes(event)
    if isinstance(event, str):
        return event.encode("utf-8", "surrogatepass")  # which the service says is no UTF-8
    if isinstance(event, Mapping):
        try:
            return orjson.dumps(dict(event))
        except TypeError as error:
            raise EventError(f"the event cannot be said in JSON, which a service is asked in: {error}") from None
    raise EventError(
        f"an event is a dict of attributes, or a JSON text of one, not {type(event).__name__}; "
        "use match_batch for several"
    )


def batches_of(events: Any) -> Iterator[bytes]:
    """Lines, some megabytes at a time."""
    from dibs.coding.lines import read_lines

    if isinstance(events, str):
        events = event_of(events)
    if isinstance(events, Mapping) or not is_several(events):
        expected = "a list of dicts or JSON texts, or JSON lines as bytes"
        raise EventError(f"found events of type {type(events).__name__}; expected {expected}")
    texts: Iterable[bytes] = map(event_of, events)
    if isinstance(events, (bytes, bytearray, memoryview)):
        texts = (text for lines in read_lines(events) for text in lines.texts)
    waiting: list[bytes] = []
    size = 0
    for text in texts:
        waiting.append(text.replace(b"\n", b" ") if b"\n" in text else text)
        size += len(text)
        if size > BYTES_AT_ONCE:
            yield b"\n".join(waiting)
            waiting, size = [], 0
    if waiting:
        yield b"\n".join(waiting)
