"""Changes, once: answers to requests with an Idempotency-Key are kept for a day, and every change is written to the
audit log. Both are one transaction, after the change itself."""

from __future__ import annotations

import hashlib
import inspect
import sqlite3
import time
from collections.abc import Callable
from typing import Any

import orjson

from dibs.service.call import Answer, Call
from dibs.service.database import Database
from dibs.service.problems import Refusal
from dibs.service.subscriptions import iso

KEPT = 86_400.0  # seconds
LARGEST = 1 << 20  # bytes of an answer that is kept; of a larger one only that it was given
ENTRIES = 1_000_000  # of the audit log


class Answers:
    def __init__(self, database: Database):
        self._database = database
        self._under_way: set[tuple[str, str]] = set()

    async def once(self, call: Call, handler: Callable[[Call], Any]) -> Any:
        """The handler's answer, or the one that was given to the same request before."""
        key = call.key
        if key is None:
            return await self._make(call, handler, None, b"")
        own, digest = (call.tenant.name, key), _digest(call)
        if own in self._under_way:
            raise Refusal("idempotency", "a request with this key is under way", headers={"Retry-After": "1"})
        self._under_way.add(own)
        try:
            found = await call.in_thread(lambda: self._find(*own))
            return await self._make(call, handler, key, digest) if found is None else _repeat(found, digest)
        finally:
            self._under_way.discard(own)

    async def _make(self, call: Call, handler: Callable[[Call], Any], key: str | None, digest: bytes) -> Any:
        """A handler that is a plain function changes and is written down in one go of one thread: beside a loop that is
        busy matching, a change has to wait for its turn only once."""
        if inspect.iscoroutinefunction(handler):
            answer = await handler(call)
            if key is not None or call.route.role != "publish":
                await call.in_thread(lambda: self._write(call, answer, key, digest))
            return answer

        def change() -> Answer:
            answer: Answer = handler(call)
            self._write(call, answer, key, digest)
            return answer

        return await call.in_thread(change)

    def _find(self, tenant: str, key: str) -> tuple[Any, ...] | None:
        query = "SELECT digest, status, headers, body FROM answers WHERE tenant = ? AND key = ? AND time > ?"
        rows = self._database.read(query, (tenant, key, time.time() - KEPT))
        return rows[0] if rows else None

    def _write(self, call: Call, answer: Answer, key: str | None, digest: bytes) -> None:
        now = time.time()
        action = f"{call.route.method} {call.route.path}"
        about = orjson.dumps(call.path | {k: v for k, v in call.parameters.items() if v is not None}).decode()

        def work(connection: sqlite3.Connection) -> None:
            if call.route.role != "publish":
                row = (now, call.tenant.name, call.identity.token, action, about, answer.status)
                connection.execute(
                    "INSERT INTO audit (time, tenant, token, action, about, status) VALUES (?, ?, ?, ?, ?, ?)", row
                )
            if key is not None:
                body = answer.body if len(answer.body) <= LARGEST else b'{"repeated": true}'
                headers = orjson.dumps([answer.media, answer.headers]).decode()
                row = (call.tenant.name, key, digest, answer.status, headers, body, now)  # type: ignore[assignment]
                connection.execute("INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?, ?, ?, ?)", row)

        self._database.write(work)

    def forget_old(self) -> None:
        """Answers after a day, and the oldest entries of the audit log."""
        old = time.time() - KEPT
        if not self._database.read("SELECT 1 FROM answers WHERE time < ? LIMIT 1", (old,)) and not self._is_long():
            return

        def work(connection: sqlite3.Connection) -> None:
            connection.execute("DELETE FROM answers WHERE time < ?", (old,))
            connection.execute("DELETE FROM audit WHERE number <= (SELECT max(number) FROM audit) - ?", (ENTRIES,))

        self._database.write(work)

    def _is_long(self) -> bool:
        [(first, last)] = self._database.read("SELECT min(number), max(number) FROM audit")
        return first is not None and last - first > ENTRIES + ENTRIES // 10

    def entries(self, tenant: str, limit: int, before: int | None) -> list[dict[str, Any]]:
        """Of the audit log, the newest first."""
        rows = self._database.read(
            "SELECT number, time, token, action, about, status FROM audit WHERE tenant = ? AND number < ? "
            "ORDER BY number DESC LIMIT ?",
            (tenant, 2**62 if before is None else before, limit),
        )
        names = ("number", "time", "token", "action", "about", "status")
        return [dict(zip(names, (n, iso(at), token, action, orjson.loads(about), status)))
                for n, at, token, action, about, status in rows]  # fmt: skip


def _digest(call: Call) -> bytes:
    """Of all that makes a request another one."""
    found = hashlib.sha256()
    query = call.scope["query_string"]
    for part in (call.route.method.encode(), call.scope["raw_path"], query, call.media.encode(), call.body):
        found.update(len(part).to_bytes(8, "little") + part)
    return found.digest()


def _repeat(found: tuple[Any, ...], digest: bytes) -> Answer:
    known, status, headers, body = found
    if known != digest:
        raise Refusal("idempotency", "this key was used for another request: use a new one for each change")
    media, more = orjson.loads(headers)
    return Answer(body, status, media, {**more, "Idempotent-Replay": "true"})
