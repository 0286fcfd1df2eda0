"""Attributes that events have in one kind and subscriptions compare with another: `price > 5`, and every price is a
string. Such tests are UNKNOWN for every event, which is hardly meant.

Only some batches are looked at, the first ones and then one in so many, and of a batch only which names have values of
which kind: nothing is kept of an event, and a batch costs microseconds more.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from dibs.coding.values import EventValues
from dibs.language.expression import Kind
from dibs.language.printer import is_derived
from dibs.segments.segment import Segment
from dibs.storage.versions import NUMBERS, STRINGS, TIMES, kinds_in

FIRST = 8  # batches that are all looked at
EVERY = 64  # later on, one in so many
_BITS = {Kind.NUMBER: NUMBERS, Kind.STRING: STRINGS, Kind.TIME: TIMES, Kind.BOOLEAN: 8}
_WORDS = {NUMBERS: "number", STRINGS: "string", TIMES: "time", 8: "boolean"}


class SeenKinds:
    """Which kinds of values the attributes of events had."""

    def __init__(self) -> None:
        self._batches = 0
        self._kinds: dict[str, int] = {}

    def look(self, values: EventValues) -> None:
        self._batches += 1
        if self._batches > FIRST and self._batches % EVERY:
            return
        groups: Iterable[tuple[Kind, Any]] = (
            (Kind.NUMBER, values.numbers),
            (Kind.STRING, values.strings),
            (Kind.TIME, values.times),
            (Kind.BOOLEAN, values.booleans),
        )
        for kind, rows in groups:
            if len(rows.name):
                for code in np.flatnonzero(np.bincount(rows.name)).tolist():
                    name = values.names[code]
                    self._kinds[name] = self._kinds.get(name, 0) | _BITS[kind]

    def disagreements(self, segments: Iterable[Segment]) -> dict[str, dict[str, list[str]]]:
        """By attribute: with which kinds it is compared, and in which, all others, it was seen."""
        asked: dict[str, int] = {}
        for segment in segments:
            for name, bits in kinds_in(segment).items():
                asked[name] = asked.get(name, 0) | bits
        found = {}
        for name, bits in sorted(asked.items()):
            seen = self._kinds.get(name, 0)
            readable = bits | (STRINGS if bits & TIMES else 0)  # strings are read as times
            if bits and seen and not seen & readable and not is_derived(name):
                found[name] = {"compared with": _words(bits), "seen as": _words(seen)}
        return found


def _words(bits: int) -> list[str]:
    return [word for bit, word in _WORDS.items() if bits & bit]
