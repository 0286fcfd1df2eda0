"""A history that survives its process: every change is in the catalog's database before it is seen.

    put     the next state -> what came and what went by it -> committed (storage.documents) -> in place
    take    what is in the catalog -> the next state, in place: on opening, in a process that only reads, and after an
            interrupt between the two steps of `put`

Numbers are never used again. Changes of the history and of subscriptions take turns (`turn`), so that there is one
order of both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from dibs.history.retention import Retain
from dibs.history.state import State
from dibs.history.stored import StoredHistory, new_rows, text_of
from dibs.language.types import NO_TYPES, Types
from dibs.storage.durable import Durable
from dibs.storage.history_rows import HistoryChange, HistoryHead, HistoryNews

T = TypeVar("T")


class Turn(Protocol):
    """One change of anything after the other (dibs.changes)."""

    def change(self, make: Callable[[], T]) -> T: ...

    def commit(self, write: Callable[[Durable], None], apply: Callable[[], None]) -> None: ...

    def follow(self) -> None: ...


class DurableHistory(StoredHistory):
    def __init__(self, news: HistoryNews | None, turn: Turn, types: Types = NO_TYPES):
        super().__init__(news, types)
        self._turn = turn

    def follow(self) -> None:
        self._turn.follow()

    def change(self, work: Callable[[], T]) -> T:
        with_lock = super().change
        return self._turn.change(lambda: with_lock(work))

    def keep(self, retain: Retain) -> None:
        """From now on so much is kept."""

        def keep() -> None:
            before, self.retain = self.retain, retain
            try:
                self.put(self.find_kept(self.state, all_times=True))
            except BaseException:
                self.retain = before
                raise

        if retain != self.retain:
            self.change(keep)

    def put(self, state: State) -> None:
        old, retained, change = self.state, text_of(self.retain), self.last_change + 1
        rows = list(new_rows(old, state))
        gone = frozenset() if state.gone is old.gone else state.gone - old.gone
        head = HistoryHead(change, state.first, state.end, state.newest, retained)
        put = super().put
        if head == HistoryHead(change, old.first, old.end, old.newest, self.retained) and not gone:
            put(state)
            return

        def apply() -> None:
            put(state)
            self.last_change, self.retained = change, retained  # last: to take the same once more changes nothing

        self._turn.commit(lambda durable: durable.write_history(HistoryChange(head, rows, gone)), apply)
