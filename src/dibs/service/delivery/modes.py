"""Which matches of a published event become deliveries: the modes of model.py, within the transaction that enqueues.

Where the destination is full, nothing of this is asked: for a mode, a match that was refused is none.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from functools import cached_property
from typing import Any, Literal

import orjson

from dibs.service.delivery.model import Id, MatchedDestination

Verdict = Literal["deliver", "suppress", "collect"]
DIGEST_EVENTS = 1_000  # events of a digest that are sent with it; of all others it tells the number


class EventKeys:
    """The values of an event's keys, as texts that are equal where the values are."""

    def __init__(self, event: bytes):
        self.event = event

    @cached_property
    def _values(self) -> Any:
        return orjson.loads(self.event)

    def value(self, attribute: str) -> str:
        if not attribute:
            return ""
        return orjson.dumps(_same(self._find(attribute)), option=orjson.OPT_SORT_KEYS).decode()

    def _find(self, attribute: str) -> Any:
        values = self._values
        if isinstance(values, dict) and attribute in values:
            return values[attribute]
        for name in attribute.split("."):
            values = values.get(name) if isinstance(values, dict) else None
        return values


def _same(value: Any) -> Any:
    """1.0 is 1, as in expressions."""
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else value


def transition_attributes(connection: sqlite3.Connection, tenant: str) -> set[str]:
    """Whose values transitions of the tenant are kept for: what is looked up in its events."""
    rows = connection.execute("SELECT attribute FROM attributes WHERE tenant = ?", (tenant,))
    return {attribute for [attribute] in rows}


class Judge:
    """The modes' verdicts on the matches of one event."""

    def __init__(self, connection: sqlite3.Connection, tenant: str, event: bytes, now: float, attributes: set[str]):
        """attributes: that transitions are kept for (`transition_attributes`); new ones are added."""
        self.connection, self.tenant, self.now, self.attributes = connection, tenant, now, attributes
        self.keys = EventKeys(event)

    def verdict(self, match: MatchedDestination, destination: int) -> Verdict:
        """What becomes of a match; the state of its mode is what it is afterwards."""
        if match.mode.kind == "transition":
            return self._transition(match, destination)
        if match.mode.kind == "period":
            return self._period(match, destination)
        return "collect" if match.mode.kind == "digest" else "deliver"

    def _transition(self, match: MatchedDestination, destination: int) -> Verdict:
        attribute = match.mode.key or ""
        place = (self.tenant, attribute, self.keys.value(attribute), match.subscription, destination)
        found = self.connection.execute(
            "SELECT version FROM active WHERE tenant = ? AND attribute = ? AND value = ? AND subscription = ? "
            "AND destination = ?",
            place,
        ).fetchone()
        if found == (match.version,):
            return "suppress"
        if attribute not in self.attributes:
            self.connection.execute("INSERT OR IGNORE INTO attributes VALUES (?, ?)", (self.tenant, attribute))
            self.attributes.add(attribute)
        self.connection.execute("INSERT OR REPLACE INTO active VALUES (?, ?, ?, ?, ?, ?)", (*place, match.version))
        return "deliver"

    def _period(self, match: MatchedDestination, destination: int) -> Verdict:
        attribute = match.mode.key or ""
        place = (self.tenant, match.subscription, destination, attribute, self.keys.value(attribute))
        found = self.connection.execute(
            "SELECT version, until FROM periods WHERE tenant = ? AND subscription = ? AND destination = ? "
            "AND attribute = ? AND value = ?",
            place,
        ).fetchone()
        if found is not None and found[0] == match.version and self.now < found[1]:
            return "suppress"
        until = self.now + float(match.mode.seconds or 0)
        self.connection.execute(
            "INSERT OR REPLACE INTO periods VALUES (?, ?, ?, ?, ?, ?, ?)", (*place, match.version, until)
        )
        return "deliver"

    def end_transitions(self, matched: Iterable[Id]) -> None:
        """What was on for a key of this event, and has not matched it, is off."""
        still = set(matched)
        for attribute in self.attributes:
            place = (self.tenant, attribute, self.keys.value(attribute))
            of_key = "tenant = ? AND attribute = ? AND value = ?"
            on = self.connection.execute(f"SELECT DISTINCT subscription FROM active WHERE {of_key}", place).fetchall()
            ended = [(*place, subscription) for [subscription] in on if subscription not in still]
            self.connection.executemany(f"DELETE FROM active WHERE {of_key} AND subscription = ?", ended)

    # ---- digests ----

    def collect(self, match: MatchedDestination, destination: int, item: bytes) -> int:
        """Adds an event to the digest of a subscription; bytes that are kept for it."""
        place = (self.tenant, match.subscription, destination)
        due = self.now + float(match.mode.seconds or 0)
        self.connection.execute(
            "INSERT OR IGNORE INTO digests (tenant, subscription, destination, opened, due, matches) "
            "VALUES (?, ?, ?, ?, ?, 0)",
            (*place, self.now, due),
        )
        [number, matches] = self.connection.execute(
            "UPDATE digests SET matches = matches + 1 WHERE tenant = ? AND subscription = ? AND destination = ? "
            "RETURNING number, matches",
            place,
        ).fetchone()
        if matches > DIGEST_EVENTS:
            return 0
        self.connection.execute("INSERT INTO collected VALUES (?, ?, ?)", (number, matches, item))
        return len(item)
