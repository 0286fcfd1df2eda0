"""One transaction that enqueues: publications become rows, by their destinations and modes."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

import orjson

from dibs.service.delivery.clock import OutboxClock
from dibs.service.delivery.model import Destination, Enqueued, MatchedDestination, Publication, UnknownDestination
from dibs.service.delivery.modes import DIGEST_EVENTS, Judge, transition_attributes

REPEATS_KNOWN = 86_400.0  # seconds for which a publisher's key is remembered
COLUMNS = "number, tenant, name, kind, target, most, when_full, paused, waiting, placed"  # of a Lane


@dataclass
class Lane:
    """A destination while something is enqueued for it."""

    number: int
    destination: Destination
    waiting: int
    placed: int
    suppressed: int = 0
    refused: int = 0
    dropped: int = 0

    def is_full(self) -> bool:
        return self.destination.kind != "stream" and self.waiting >= self.destination.limit


class Writing:
    """One transaction that enqueues."""

    def __init__(self, connection: sqlite3.Connection, identity: str, clock: OutboxClock):
        self.connection, self.identity, self.clock = connection, identity, clock
        self.now, self.date = clock(), show_time(clock.date())
        [self.number, self.bytes] = connection.execute("SELECT number, bytes FROM state").fetchone()
        self._before = (self.number, self.bytes)
        self._lanes: dict[tuple[str, str], Lane | None] = {}
        self._attributes: dict[str, set[str]] = {}  # by tenant: that transitions are kept for
        self._rows: list[tuple[Any, ...]] = []  # deliveries to be inserted
        self._front, self._events = f"evt-{os.urandom(8).hex()}", 0

    def publish(self, publication: Publication) -> Enqueued:
        self._events += 1
        event, key, tenant = f"{self._front}{self._events:x}", publication.key, publication.tenant
        if key is not None:
            found = self.connection.execute(
                "SELECT event FROM published WHERE tenant = ? AND key = ? AND at > ?",
                (tenant, key, self.now - REPEATS_KNOWN),
            ).fetchone()
            if found is not None:
                return Enqueued(found[0], repeated=True)
            self.connection.execute(
                "INSERT OR REPLACE INTO published VALUES (?, ?, ?, ?)", (tenant, key, event, self.now)
            )
        attributes = self._attributes.get(tenant)
        if attributes is None:
            attributes = self._attributes[tenant] = transition_attributes(self.connection, tenant)
        if not publication.matches and not attributes:
            return Enqueued(event)
        judge = Judge(self.connection, tenant, publication.event, self.now, attributes)
        counts = {"suppress": 0, "collect": 0, "drop": 0}
        refused: dict[str, str] = {}
        told: dict[str, list[MatchedDestination]] = {}
        for match in publication.matches:
            lane = self._lane(tenant, match.destination)
            if lane is None:
                refused[match.destination] = "there is no destination of this name"
            elif lane.is_full() and lane.destination.when_full == "drop":
                lane.dropped += 1
                counts["drop"] += 1
            elif lane.is_full():
                lane.refused += 1
                refused[match.destination] = f"{lane.waiting:,} deliveries wait for it, its limit: try again later"
            else:
                verdict = judge.verdict(match, lane.number)
                if verdict == "deliver":
                    told.setdefault(match.destination, []).append(match)
                    continue
                counts[verdict] += 1
                if verdict == "suppress":
                    lane.suppressed += 1
                else:
                    self.bytes += judge.collect(match, lane.number, self._item(event, publication.event))
        judge.end_transitions(match.subscription for match in publication.matches)
        for name, matches in told.items():
            lane = self._lane(tenant, name)
            assert lane is not None
            self._insert(lane, event, self._body(event, publication.event, matches))
        return Enqueued(event, len(told), counts["collect"], counts["suppress"], counts["drop"], refused)

    def send_digest(self, lane: Lane, digest: tuple[int, Any, float, int]) -> None:
        """A digest becomes a delivery."""
        number, subscription, opened, matches = digest
        rows = self.connection.execute(
            "SELECT item FROM collected WHERE digest = ? ORDER BY place", (number,)
        ).fetchall()
        items = [item for [item] in rows]
        body = {
            "digest": {
                "subscription": subscription,
                "from": show_time(self.clock.date_of(opened)),
                "to": self.date,
                "matches": matches,
                "left_out": max(0, matches - DIGEST_EVENTS),
            },
            "events": [orjson.Fragment(item) for item in items],
        }
        self.bytes -= sum(map(len, items))
        self.connection.execute("DELETE FROM collected WHERE digest = ?", (number,))
        self.connection.execute("DELETE FROM digests WHERE number = ?", (number,))
        self._insert(lane, "", body)

    def lane_of(self, row: Sequence[Any]) -> Lane:
        """The one of this row, which `finish` writes."""
        lane = read_lane(row)
        known = self._lanes.setdefault((lane.destination.tenant, lane.destination.name), lane)
        return known or lane

    def finish(self) -> int:
        """Writes the deliveries and the counters; how many bytes all bodies have."""
        self.connection.executemany("INSERT INTO deliveries VALUES (?, ?, ?, ?, ?, ?, ?)", self._rows)
        self._rows.clear()
        for lane in self._lanes.values():
            if lane is not None:
                self._trim(lane)
                self.connection.execute(
                    "UPDATE destinations SET waiting = ?, placed = ?, suppressed = suppressed + ?, "
                    "refused = refused + ?, dropped = dropped + ? WHERE number = ?",
                    (lane.waiting, lane.placed, lane.suppressed, lane.refused, lane.dropped, lane.number),
                )
        self.clock.note(self.connection, self.now)
        if self._before != (self.number, self.bytes):
            self.connection.execute("UPDATE state SET number = ?, bytes = ?", (self.number, self.bytes))
        return self.bytes

    def _lane(self, tenant: str, name: str) -> Lane | None:
        if (tenant, name) not in self._lanes:
            try:
                self._lanes[tenant, name] = find_lane(self.connection, tenant, name)
            except UnknownDestination:
                self._lanes[tenant, name] = None
        return self._lanes[tenant, name]

    def _body(self, event: str, text: bytes, matches: list[MatchedDestination]) -> dict[str, Any]:
        return {
            "event_id": event,
            "published": self.date,
            "matches": [match.shown for match in matches],
            "event": orjson.Fragment(text),
        }

    def _item(self, event: str, text: bytes) -> bytes:
        return orjson.dumps({"event_id": event, "published": self.date, "event": orjson.Fragment(text)})

    def _insert(self, lane: Lane, event: str, body: dict[str, Any]) -> None:
        self.number += 1
        lane.placed += 1
        lane.waiting += 1
        front = {
            "delivery": f"{self.identity}-{self.number}",
            "destination": lane.destination.name,
            "place": lane.placed,
        }
        text = orjson.dumps({**front, **body})
        self.bytes += len(text)
        self._rows.append((self.number, lane.number, lane.placed, event, self.now, 0, text))

    def _trim(self, lane: Lane) -> None:
        """A stream keeps its latest deliveries."""
        over = lane.waiting - lane.destination.limit
        if lane.destination.kind != "stream" or over <= 0:
            return
        oldest = "SELECT number FROM deliveries WHERE destination = ? ORDER BY number LIMIT ?"
        [size] = self.connection.execute(
            f"SELECT sum(length(body)) FROM deliveries WHERE number IN ({oldest})", (lane.number, over)
        ).fetchone()
        self.connection.execute(f"DELETE FROM deliveries WHERE number IN ({oldest})", (lane.number, over))
        self.bytes -= size
        lane.waiting -= over


def find_lane(connection: sqlite3.Connection, tenant: str, name: str) -> Lane:
    found = connection.execute(
        f"SELECT {COLUMNS} FROM destinations WHERE tenant = ? AND name = ?", (tenant, name)
    ).fetchone()
    if found is None:
        raise UnknownDestination(tenant, name)
    return read_lane(found)


def read_lane(row: Sequence[Any]) -> Lane:
    """Without its secret, which only the one who sends needs."""
    number, tenant, name, kind, target, most, when_full, paused, waiting, placed = row
    return Lane(number, Destination(name, kind, target, tenant, "", most, when_full, bool(paused)), waiting, placed)


def show_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
