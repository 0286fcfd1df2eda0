"""Changes, once: answers to requests with an Idempotency-Key are kept for a day, and every change is written to the
audit log. Both are one transaction, after the change itself."""

from __future__ import annotations

import hashlib
import sqlite3
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import orjson

from dibs.service.call import Answer, Call
from dibs.service.database import Database
from dibs.service.problems import Refusal
from dibs.service.routes import JSON
from dibs.service.subscriptions import iso
from dibs.service.tokens import Identity

if TYPE_CHECKING:
    from dibs.service.dispatch import ReadyRoute

KEPT = 86_400.0  # seconds
LARGEST = 1 << 20  # bytes of an answer that is kept; of a larger one only that it was given
REPEATED = b'{"repeated": true}'
ENTRIES = 1_000_000  # of the audit log


class Answers:
    def __init__(self, database: Database):
        self._database = database
        self._under_way: set[tuple[str, str]] = set()

    async def once(self, call: Call, ready: ReadyRoute) -> Any:
        """The handler's answer, or the one that was given to the same request before."""
        key = call.key
        if key is None:
            return await self._make(call, ready, None, b"")
        own = (call.tenant.name, key)
        if own in self._under_way:
            raise Refusal("idempotency", "a request with this key is under way", headers={"Retry-After": "1"})
        self._under_way.add(own)
        answer = None
        try:
            digest, found = await call.in_thread(lambda: (_digest(call), self._find(*own)))
            if found is not None:
                return _repeat(found, digest, call.identity)
            answer = await self._make(call, ready, key, digest)
            return answer
        finally:
            if answer is None or answer.chunks is None:  # else it is under way until the last of them
                self._under_way.discard(own)

    async def _make(self, call: Call, ready: ReadyRoute, key: str | None, digest: bytes) -> Any:
        """A handler that is a plain function changes and is written down in one go of one thread: beside a loop that is
        busy matching, a change has to wait for its turn only once."""
        if ready.is_awaited:
            answer = await ready.handler(call)
            if key is not None and answer.chunks is not None:
                answer.chunks = self._keep_chunks(call, answer, answer.chunks, key, digest)
            elif key is not None or call.route.role != "publish":
                await call.in_thread(lambda: self._write(call, answer, key, digest))
            return answer

        def change() -> Answer:
            answer: Answer = ready.handler(call)
            self._write(call, answer, key, digest)
            return answer

        return await call.in_thread(change)

    async def _keep_chunks(
        self, call: Call, answer: Answer, chunks: AsyncIterator[bytes], key: str, digest: bytes
    ) -> AsyncIterator[bytes]:
        """An answer that is sent as it comes is kept before its end is sent."""
        kept: list[bytes] | None = []
        try:
            async for chunk in chunks:
                yield chunk
                if kept is not None:
                    kept.append(chunk)
                    kept = kept if sum(map(len, kept)) <= LARGEST else None
            answer.kept = REPEATED if kept is None else b"".join(kept)
            await call.in_thread(lambda: self._write(call, answer, key, digest))
        finally:
            self._under_way.discard((call.tenant.name, key))

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
                body = answer.body if answer.kept is None else answer.kept
                body = body if len(body) <= LARGEST else REPEATED
                headers = orjson.dumps([answer.media, answer.headers, sorted(call.identity.roles)]).decode()
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


def _repeat(found: tuple[Any, ...], digest: bytes, identity: Identity) -> Answer:
    """To a token that may less than the first one only that it was answered: it may not see all that was."""
    known, status, headers, body = found
    if known != digest:
        raise Refusal("idempotency", "this key was used for another request: use a new one for each change")
    media, more, *roles = orjson.loads(headers)
    if roles and not identity.roles.issuperset(roles[0]):
        media, more, body = JSON, {}, REPEATED
    return Answer(body, status, media, {**more, "Idempotent-Replay": "true"})
