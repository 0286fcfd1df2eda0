"""The subscriptions of a tenant: the matcher's, with what the service keeps of them (details.py).

One change after the other, in one process: the writer. Conditions (If-Match) are looked at where the change is made.
"""

from __future__ import annotations

import base64
import binascii
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from heapq import merge
from time import thread_time
from typing import Any, Union

import orjson

from dibs.arguments import Id
from dibs.errors import DibsError, DuplicateId, ExpressionError, Problem, Rejected, SubscriptionErrors, UnknownId
from dibs.language.joins import attributes_of_event
from dibs.language.sql import parse
from dibs.matcher import Matcher
from dibs.matches import id_order
from dibs.segments.state import ReadText
from dibs.service.details import Detail, Details
from dibs.service.problems import Refusal
from dibs.service.settings import Limits
from dibs.storage.catalog_rows import Entry

LOOKED_AT = 5_000  # subscriptions, for one page of a filtered list
LOOKING = 0.25  # processor seconds for one: some expressions take longer to look at than others
PAGE = 1 << 20  # characters of the expressions of a page
BATCH = 200  # subscriptions that are read at once
Lines = dict[int, Union[Detail, Id]]  # of a change, by their places


@dataclass(frozen=True)
class Condition:
    """What must hold for a change: the version is one of these; the id is not there."""

    versions: frozenset[int] | None = None  # If-Match; empty: none that there is
    exists: bool = False  # If-Match: *
    absent: bool = False  # If-None-Match: *

    def check(self, found: Detail | None, id: Id) -> None:
        if self.absent and found is not None:
            raise Refusal("changed", f"the subscription {id!r} is there already", {"version": found.version})
        if self.exists and found is None:
            raise Refusal("changed", f"there is no subscription {id!r}, as If-Match wants", {"version": None})
        if self.versions is not None and (found is None or found.version not in self.versions):
            version = None if found is None else found.version
            has = "is not there" if found is None else f"has the version {version}"
            raise Refusal(
                "changed", f"the subscription {id!r} {has}, which If-Match does not name", {"version": version}
            )


@dataclass(frozen=True)
class Filter:
    owner: str | None = None
    attribute: str | None = None
    like: str | None = None
    paused: bool | None = None

    def takes(self, detail: Detail) -> bool:
        if self.owner is not None and detail.owner != self.owner:
            return False
        if self.paused is not None and detail.paused != self.paused:
            return False
        if self.like is not None and self.like.lower() not in f"{detail.id}\n{detail.expression}".lower():
            return False
        return self.attribute is None or _mentions(detail.expression, self.attribute)


def _mentions(expression: str, attribute: str) -> bool:
    if attribute.split(".")[-1] not in expression:  # parsing takes longer
        return False
    return attribute in attributes_of_event(parse(expression))


class Subscriptions:
    def __init__(self, matcher: Matcher, details: Details, limits: Limits):
        self.matcher, self.details, self.limits = matcher, details, limits
        self._turn = threading.RLock()

    def settle(self) -> None:
        """On opening: makes every row of the details true."""
        for detail in self.details.list_unsettled():
            self._make_true(detail)
        gone = []
        for detail in self.details.all():
            if detail.paused:
                continue
            if detail.id not in self.matcher:  # removed, here before a kill or by another program
                gone.append(detail.id)
            elif detail.destination is not None:
                self.details.receive(detail, self.matcher.get(detail.id).version)
        if gone:
            self.details.forget(gone)

    def _make_true(self, detail: Detail) -> None:
        there = detail.id in self.matcher
        if detail.paused:
            if there:
                self.matcher.remove(detail.id)
        else:
            now = self.matcher.get(detail.id) if there else None
            try:
                if now is None:
                    self.matcher.add(detail.id, detail.expression, detail.weight)
                elif (now.expression, now.weight) != (detail.expression, detail.weight):
                    self.matcher.replace(detail.id, detail.expression, detail.weight)
            except ExpressionError:  # nobody was told that it had been accepted
                if now is None:
                    self.details.forget([detail.id])
                return
        self.details.finish(detail, detail.version)

    # ---- asking ----

    def __len__(self) -> int:
        return len(self.matcher) + self.details.count_paused()

    def get(self, id: Id) -> Detail:
        found = self._find(id)
        if found is None:
            raise UnknownId(id)
        return found

    def _find(self, id: Id) -> Detail | None:
        detail = self.details.get(id)
        if detail is not None and detail.paused:
            return detail
        if id not in self.matcher:
            return None
        return _join(self.matcher.get(id), detail)

    def page(self, wanted: Filter, after: Id | None, limit: int) -> tuple[list[Detail], Id | None]:
        """The next ones in the order of ids, and the id to go on after: None if there are no more. Fewer than the limit
        where they are long, or where it would take too long to find others."""
        found: list[Detail] = []
        last, looked, size, begun = after, 0, 0, thread_time()
        for detail in self._list_in_order(wanted, after, limit):
            if len(found) == limit or looked == LOOKED_AT + limit:
                return found, last
            if looked and (size + len(detail.expression) > PAGE or thread_time() - begun > LOOKING):
                return found, last
            last, looked = detail.id, looked + 1
            if wanted.takes(detail):
                found.append(detail)
                size += len(detail.expression)
        return found, None

    def _list_in_order(self, wanted: Filter, after: Id | None, limit: int) -> Iterator[Detail]:
        if wanted.owner is not None:
            return self._of_owner(wanted.owner, after)
        if wanted.paused:
            return self._list_paused(after)
        batch = min(limit + 1, BATCH) if wanted == Filter() else BATCH
        key = lambda detail: id_order(detail.id)  # noqa: E731
        return merge(self._matching(after, batch), self._list_paused(after), key=key)

    def _matching(self, after: Id | None, batch: int) -> Iterator[Detail]:
        durable = self.matcher.durable
        assert durable is not None
        for entries in durable.catalog.entries(after, batch):
            details = self.details.get_many(entry.id for entry in entries)
            for entry in entries:
                detail = details.get(entry.id)
                if detail is None or not detail.paused:
                    yield _of_entry(entry, detail)

    def _list_paused(self, after: Id | None) -> Iterator[Detail]:
        while found := self.details.list_paused(after, BATCH):
            yield from found
            after = found[-1].id

    def _of_owner(self, owner: str, after: Id | None) -> Iterator[Detail]:
        durable = self.matcher.durable
        assert durable is not None
        while found := self.details.of_owner(owner, after, BATCH):
            entries = durable.catalog.get_many(detail.id for detail in found)
            for detail, entry in zip(found, entries):
                if detail.paused:
                    yield detail
                elif entry is not None:
                    yield _of_entry(entry, detail)
            after = found[-1].id

    # ---- changing ----

    def put(self, new: Detail, condition: Condition = Condition()) -> tuple[Detail, bool]:  # noqa: B008
        """Adds or replaces it; returns what is there now, and whether it is new."""
        with self._turn:
            old = self._find(new.id)
            condition.check(old, new.id)
            self.check_size(new.expression)
            if old is None:
                self._check_room(1)
            self._make([new], [] if old is None else [old])
            return self.get(new.id), old is None

    def remove(self, id: Id, condition: Condition) -> Detail:
        with self._turn:
            old = self._find(id)
            condition.check(old, id)
            if old is None:
                raise UnknownId(id)
            if not old.paused:
                self.matcher.remove(id)
            if not old.is_plain:
                self.details.forget([id])
            return old

    def pause(self, id: Id, paused: bool, condition: Condition) -> Detail:
        with self._turn:
            old = self._find(id)
            condition.check(old, id)
            if old is None:
                raise UnknownId(id)
            if old.paused != paused:
                self._make([replace(old, paused=paused)], [old])
            return self.get(id)

    def _make(
        self,
        new: list[Detail],
        old: list[Detail],
        read: dict[Id, ReadText] | None = None,
        before: Callable[[], None] | None = None,
    ) -> None:
        """Of subscriptions that were checked; old: those of their ids that are there; read: texts that were read
        already. before: what belongs to the same change of the matcher, which may raise."""
        texts: dict[Id, str] = {**read} if read else {}
        there = {detail.id: detail for detail in old}
        now = time.time_ns() // 1_000
        for detail in new:
            if not detail.is_plain and detail.id not in texts:  # before anything is written
                texts[detail.id] = self.matcher.read(detail.expression)
        new = [replace(d, version=self.matcher.version + 1, time=now) if d.paused else d for d in new]
        kept = [detail for detail in new if not detail.is_plain]
        if kept:
            self.details.begin(kept)
        with self.matcher.batch():
            if before is not None:
                before()
            for detail in new:
                was, text = there.get(detail.id), texts.get(detail.id, detail.expression)
                matches = was is not None and not was.paused
                if detail.paused and matches:
                    self.matcher.remove(detail.id)
                elif not detail.paused and matches:
                    self.matcher.replace(detail.id, text, detail.weight)
                elif not detail.paused:
                    self.matcher.add(detail.id, text, detail.weight)
        for detail in kept:
            self.details.finish(detail, detail.version if detail.paused else self.matcher.get(detail.id).version)
        plain = [d.id for d in new if d.is_plain and d.id in there and not there[d.id].is_plain]
        if plain:
            self.details.forget(plain)

    def change_many(self, lines: Lines, rejected: list[Rejected], on_error: str, mode: str) -> tuple[int, int]:
        """Puts subscriptions, and removes those of which only the id is given. rejected: lines that were bad before.
        Returns how many were put and removed."""
        with self._turn:
            put: dict[Id, tuple[int, Detail]] = {}
            removed: dict[Id, int] = {}
            for place, line in lines.items():
                id = line.id if isinstance(line, Detail) else line
                if mode == "add" and isinstance(line, Detail) and (id in put or self._find(id) is not None):
                    rejected.append(Rejected(place, id, line.expression, DuplicateId(id)))
                    continue
                put.pop(id, None)
                removed.pop(id, None)
                if isinstance(line, Detail):
                    put[id] = place, line
                else:
                    removed[id] = place
            return self._change(put, removed, rejected, on_error)

    def _change(
        self, put: dict[Id, tuple[int, Detail]], removed: dict[Id, int], rejected: list[Rejected], on_error: str
    ) -> tuple[int, int]:
        there = {id: found for id in (*put, *removed) if (found := self._find(id)) is not None}
        good: list[Detail] = []
        read: dict[Id, ReadText] = {}
        plain_new: list[tuple[int, Detail]] = []  # the matcher reads many at once, and finds the bad ones
        quick = all(detail.is_plain for _, detail in put.values())  # else details are written first
        for id, (place, detail) in put.items():
            try:
                self.check_size(detail.expression)
                if id in there or not quick:
                    read[id] = self.matcher.read(detail.expression)
                    good.append(detail)
                else:
                    plain_new.append((place, detail))
            except DibsError as e:
                rejected.append(Rejected(place, id, detail.expression, e))
        for id, place in removed.items():
            if id not in there:
                rejected.append(Rejected(place, id, None, UnknownId(id)))
        self._check_room(sum(id not in there for id in put))
        gone = [there[id] for id in removed if id in there]
        bad: list[Rejected] = []

        def add_and_remove() -> None:
            items = [(d.id, d.expression, d.weight) for _, d in plain_new]
            bad.extend(self.matcher.add_many(items, on_error="skip") if items else [])
            rejected.extend(Rejected(plain_new[r.position][0], r.id, r.expression, r.error) for r in bad)
            rejected.sort(key=lambda r: r.position)
            if rejected and on_error == "raise":
                raise SubscriptionErrors(rejected)
            self.matcher.remove_many(d.id for d in gone if not d.paused)

        if rejected and on_error == "raise" and not plain_new:
            raise SubscriptionErrors(sorted(rejected, key=lambda r: r.position))
        self._make(good, [there[d.id] for d in good if d.id in there], read, add_and_remove)
        forgotten = [d.id for d in gone if not d.is_plain]
        if forgotten:
            self.details.forget(forgotten)
        return len(good) + len(plain_new) - len(bad), len(gone)

    def check_size(self, expression: str) -> None:
        most = self.limits.expression
        if most and len(expression) > most:
            message = f"the expression has {len(expression):,} characters; at most {most:,} are taken"
            raise ExpressionError([Problem(message, "make several subscriptions of it", end=len(expression))])

    def _check_room(self, more: int) -> None:
        most = self.limits.subscriptions
        if most and more and len(self) + more > most:
            detail = f"there are {len(self):,} subscriptions, and {more:,} more would be over {most:,}"
            raise Refusal("quota", detail, {"limit": "subscriptions", "most": most})


def _of_entry(entry: Entry, detail: Detail | None) -> Detail:
    base = Detail(entry.id) if detail is None else detail
    return replace(base, expression=entry.text, weight=entry.weight, version=entry.version, time=entry.time)


def _join(found: Any, detail: Detail | None) -> Detail:
    base = Detail(found.id) if detail is None else detail
    text, weight, version = found.expression, found.weight, found.version
    return replace(base, expression=text, weight=weight, version=version, time=found.time or 0)


def show_subscription(detail: Detail) -> dict[str, Any]:
    """As the API shows it."""
    return {
        "id": detail.id,
        "expression": detail.expression,
        "weight": detail.weight,
        "version": detail.version,
        "time": iso(detail.time / 1e6),
        "owner": detail.owner,
        "labels": detail.labels,
        "destination": detail.destination,
        "mode": detail.mode,
        "paused": detail.paused,
    }


def iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def cursor_of(id: Id | None) -> str | None:
    return None if id is None else base64.urlsafe_b64encode(orjson.dumps([id])).decode().rstrip("=")


def after_cursor(cursor: str | None) -> Id | None:
    if cursor is None:
        return None
    try:
        [id] = orjson.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        if isinstance(id, (str, int)) and not isinstance(id, bool):
            return id
    except (ValueError, TypeError, binascii.Error):
        pass
    raise Refusal("argument", "after must be the `next` of the page before")
