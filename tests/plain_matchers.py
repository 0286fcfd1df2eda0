"""Matchers whose engine is not here, in processes where it is (conftest.py)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dibs import engine
from dibs.additions import add_items
from dibs.changes import Changes
from dibs.matcher import Matcher
from dibs.plain import PlainMatching


def plain_matcher(threads: int | None = None, stays: bool = True) -> Matcher:
    """stays: until it is asked for what it cannot do."""
    before, engine.current = engine.current, None
    try:
        matcher = Matcher(threads=threads)
    finally:
        engine.current = before
    matcher._stays_plain = stays
    return matcher


def is_plain(matcher: Matcher) -> bool:
    return matcher._matching is None


def plain_matching(items: Iterable[tuple[Any, ...]]) -> PlainMatching:
    """Raises NeedsEngine for what it cannot do."""
    changes = Changes()
    add_items(changes, items, on_error="raise")
    return PlainMatching(changes)
