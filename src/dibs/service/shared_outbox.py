"""The outbox that the tenants share: what several of them have for it is one commit."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from dibs.service.delivery import Enqueued, Outbox
from dibs.service.delivery import Publication as OfOutbox

AT_ONCE = 4_096  # publications of one commit, if there are several to choose from


class SharedOutbox:
    """Who comes while another writes is written with the others who came, by one of them, in one transaction."""

    def __init__(self, outbox: Outbox):
        self._outbox = outbox
        self._turn = threading.Lock()
        self._waiting: list[_OutboxWrite] = []
        self._is_busy = False

    def enqueue_many(self, publications: list[OfOutbox]) -> list[Enqueued]:
        own = _OutboxWrite(publications)
        with self._turn:
            self._waiting.append(own)
            writes = not self._is_busy
            self._is_busy = True
        if writes:
            self._write(own)
        else:
            own.is_due.wait()
            if not own.is_done:  # the one before it has ended: this one goes on
                self._write(own)
        if own.error is not None:
            raise own.error
        return own.told

    def _write(self, own: _OutboxWrite) -> None:
        """One transaction, of this one and others; then the next of those that wait writes."""
        with self._turn:
            self._waiting.remove(own)
            some, size = [own], len(own.publications)
            for each in sorted(
                self._waiting, key=lambda each: len(each.publications)
            ):  # small ones are not kept waiting
                if size + len(each.publications) <= AT_ONCE:
                    some.append(each)
                    size += len(each.publications)
            self._waiting = [each for each in self._waiting if each not in some]
        try:
            self._enqueue(some)
        finally:
            with self._turn:
                following = self._waiting[0] if self._waiting else None
                self._is_busy = following is not None
            for each in some:
                each.is_done = True
                each.is_due.set()
            if following is not None:
                following.is_due.set()

    def _enqueue(self, some: list[_OutboxWrite]) -> None:
        try:
            told = iter(self._outbox.enqueue_many([p for each in some for p in each.publications]))
            for each in some:
                each.told = [next(told) for _ in each.publications]
        except Exception as error:
            if len(some) == 1:
                some[0].error = error
                return
            for each in some:
                self._enqueue([each])


@dataclass(eq=False)
class _OutboxWrite:
    publications: list[OfOutbox]
    told: list[Enqueued] = field(default_factory=list)
    error: Exception | None = None
    is_due: threading.Event = field(default_factory=threading.Event)
    is_done: bool = False
