"""How deep objects and arrays may lie inside each other, in events and in documents: everywhere the same.

The limit also ends a structure that holds itself. What no expression asks for is not looked at in an event; a document
is looked at as a whole, because a join that is added later may ask for anything in it."""

from __future__ import annotations

from typing import Any

DEEPEST = 200  # objects and arrays inside each other, below the event itself


def too_deep(path: str) -> str:
    """What is wrong with a value at this path."""
    place = f", below {path[:100]!r}" if path else ""
    return (
        f"found more than {DEEPEST} objects and arrays inside each other{place}; "
        "expected fewer (does the event hold itself?)"
    )


def may_be_deep(text: bytes) -> bool:
    """Whether a JSON text has so many brackets that it may be too deep."""
    return text.count(b"[") + text.count(b"{") > DEEPEST + 1


def is_too_deep(event: dict[str, Any]) -> bool:
    """Whether one that was parsed from JSON is."""
    level: list[Any] = [event]
    for _ in range(DEEPEST + 1):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if type(outer) is dict else outer)
            if type(inner) is dict or type(inner) is list
        ]
        if not level:
            return False
    return True
