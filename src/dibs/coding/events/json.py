"""Events as JSON text: lines of one object each, or texts that stand in a column. They are read as dicts then.

Outcomes worth knowing, all of them those of orjson: of a key that an object has twice the last one counts; NaN,
Infinity and numbers too large for a float64 are no JSON, and neither is an escaped lone surrogate, so the line is
broken; integers of more than 64 bits are read as the nearest float64; more than 1,024 levels are refused, wherever they
are (see depth.py for the limit on what is looked at).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import orjson

from dibs.coding.events.depth import too_deep
from dibs.coding.events.dicts import BrokenEvent
from dibs.coding.lines import number_lines

_JSON_NAMES = {list: "an array", str: "a string", int: "a number", float: "a number", bool: "a boolean"}


def json_content(data: bytes | bytearray | memoryview | str) -> bytes:
    # A str with a lone surrogate becomes bytes that are not UTF-8: one broken line, not a failed call.
    return data.encode("utf-8", "surrogatepass") if isinstance(data, str) else bytes(data)


def json_lines(content: bytes) -> Iterator[object]:
    """The events of JSON lines. Blank lines are no events, and so are not counted as any."""
    for number, line in number_lines(content, longest=None):
        yield json_line(number, line)


def json_line(number: int, line: bytes) -> object:
    try:
        event = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        return BrokenEvent(_describe_broken(f"line {number}, ", line, error))
    return event if type(event) is dict else BrokenEvent(_no_object(f"line {number}: ", event))


def json_text(text: bytes | str) -> object:
    try:
        event = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        content = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
        return BrokenEvent(_describe_broken("", content, error))
    return event if type(event) is dict else BrokenEvent(_no_object("", event))


class JsonTexts(Sequence[object]):
    """JSON texts of one event each; as a sequence it is what `json_text` makes of them, when somebody asks."""

    def __init__(self, texts: Sequence[bytes]):
        self.texts = texts

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, place: Any) -> Any:
        found = self.texts[place]
        return JsonTexts(found) if isinstance(place, slice) else json_text(found)


def attributes_of(events: Iterable[object], attributes: str) -> Iterator[object]:
    """What each event has under one key: an object, a JSON text of one, or None for no attributes."""
    for event in events:
        if isinstance(event, BrokenEvent) or not isinstance(event, Mapping):
            yield event
            continue
        inner: Any = event.get(attributes, event)
        if inner is event:
            yield BrokenEvent(f"found no {attributes!r}; expected the attributes there, as attributes= says")
        elif inner is None:
            yield {}
        elif isinstance(inner, (str, bytes)):
            yield json_text(inner)
        elif isinstance(inner, Mapping):
            yield inner
        else:
            yield BrokenEvent(
                f"found a value of type {type(inner).__name__} as {attributes!r}; "
                "expected an object or a JSON text of one, as attributes= says"
            )


def _describe_broken(place: str, line: bytes, error: orjson.JSONDecodeError) -> str:
    try:
        line.decode()
    except UnicodeDecodeError as undecodable:  # orjson does not tell where
        column = len(line[: undecodable.start].decode()) + 1
        return f"{place}column {column}: found bytes that are not UTF-8; expected a JSON object in UTF-8"
    if "depth limit" in error.msg or "ecursion limit" in error.msg:  # as versions of orjson word it
        return f"{place}column {error.colno}: {too_deep('')}"
    return f"{place}column {error.colno}: found broken JSON ({error.msg}); expected one JSON object"


def _no_object(place: str, event: object) -> str:
    return f"{place}found {_JSON_NAMES.get(type(event), 'null')}; expected one JSON object"
