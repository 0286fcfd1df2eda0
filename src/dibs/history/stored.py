"""A history as it is stored, in the catalog or in a file, and back: documents as they came, the numbers of those that
are gone, and how much is retained. Columns and indexes are made from that when a join first asks.

One that survives its process has every change in the catalog's database before it is seen.

    put     the next state -> what came and what went by it -> committed (storage.documents) -> in place
    take    what is in the catalog -> the next state, in place: on opening, in a process that only reads, and after an
            interrupt between the two steps of `put`

Numbers are never used again. Changes of the history and of subscriptions take turns (`turn`), so that there is one
order of both.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Protocol, TypeVar

import pyarrow as pa

from dibs.coding.values import EventValues
from dibs.errors import DamagedError
from dibs.history.encoding import ARROW, StoredLines, encode_documents, has_lines, table_of
from dibs.history.history import History, Key
from dibs.history.retention import Retain, compact
from dibs.history.state import HistoryState, Part
from dibs.language.types import NO_TYPES, Types
from dibs.storage.documents import DocumentRow, HistoryChange, HistoryHead, HistoryNews
from dibs.storage.durable import Durable
from dibs.tuning import tuned

# a row each: 5 us to read and check; a million in rows of 1,000: 0.3 s to open
DOCUMENTS_IN_A_ROW = tuned("documents_in_a_row", 1_000, 1, "documents", "that one row of the catalog holds")


class StoredHistory(History):
    """One that was stored; `take` brings it to what is stored now."""

    def __init__(self, news: HistoryNews | None, types: Types = NO_TYPES):
        """news: all that is stored."""
        super().__init__(Retain(), types)
        self.last_change = 0  # that the state has
        self.retained: str | None = None  # as it is stored
        if news is not None:
            self.take(news)

    def read_position(self) -> tuple[int, int]:
        """The last change, and the number of the next document."""
        return self.last_change, self.state.end

    def take(self, news: HistoryNews) -> None:
        """To take the same once more changes nothing."""
        with self.lock:
            head, state = news.head, self.state
            rows = [row for row in news.rows if row.number >= state.end]
            if head.first >= state.end:  # nothing of what was known is there any more
                begin = rows[0].number if rows else head.end
                state = HistoryState(begin, begin, begin, types=self.types)
            for part, keys in _parts(rows):
                state = self.extend_by(state, part, keys, self._values(state, part))
            state = replace(state, first=head.first, gone=news.gone, newest=head.newest)
            self.retain = _retain_of(head.retain)
            History.put(self, compact(state))
            self.last_change, self.retained = head.change, head.retain

    def _values(self, state: HistoryState, part: Part) -> EventValues:
        """What the columns that there are ask for."""
        if not state.columns:
            return EventValues(0, [])
        return self.read(state, part.readable(0, len(part.rows)), part.attributes, on_error="skip")


def read_stored(history: History) -> HistoryNews | None:
    """All of it; None: nothing is there, and nothing is said of how much is kept."""
    history.follow()
    state = history.state
    if not len(state) and history.retain == Retain():
        return None
    head = HistoryHead(1, state.first, state.end, state.newest, text_of(history.retain))
    return HistoryNews(head, list(new_rows(HistoryState(), state)), state.gone)


def check_whole(news: HistoryNews, path: Path) -> None:
    """That the documents of a saved matcher are there. Up to version 0.1, to save a matcher that had been opened from
    files itself wrote something else in their place, which has more lines than there were documents."""
    if any(row.form != ARROW and not has_lines(row.content, row.size) for row in news.rows):
        raise DamagedError(
            path,
            "its documents were lost when it was saved, by a version of Dibs that could not save what it had opened: "
            "save it again from where it came from, or load its subscriptions alone with history=False",
        )


# ---- states to rows ----


def new_rows(old: HistoryState, new: HistoryState) -> Iterator[DocumentRow]:
    """The documents that the one state has and the other, before it, had not."""
    begin = max(old.end, new.first)
    ends = [*(part.first for part in new.parts[1:]), new.end]
    for part, end in zip(new.parts, ends):
        end = min(end, new.end, part.first + len(part.rows))
        for first in range(max(begin, part.first), end, DOCUMENTS_IN_A_ROW.value):
            count = min(DOCUMENTS_IN_A_ROW.value, end - first)
            start = first - part.first
            form, attributes, content = encode_documents(part.some(start, count), part.attributes, first - old.end)
            keys = [new.key_of(row) for row in range(first, first + count)]
            text = json.dumps(keys) if any(key is not None for key in keys) else None
            yield DocumentRow(first, count, form, attributes, content if form == ARROW else content.decode(), text)


def _parts(rows: list[DocumentRow]) -> Iterator[tuple[Part, list[Key | None] | None]]:
    """Rows as parts, with the keys of their documents: as few as possible."""
    for (form, attributes), group in groupby(rows, lambda row: (row.form, row.attributes)):
        own = list(group)
        if form != ARROW:
            contents = [row.content.encode() if isinstance(row.content, str) else row.content for row in own]
            yield Part(own[0].number, StoredLines(contents, [row.size for row in own]), None), _keys(own)
            continue
        tables = [(row, table_of(row.content)) for row in own]
        for _, alike in groupby(tables, lambda each: each[1].schema):
            several = list(alike)
            whole = pa.concat_tables([table for _, table in several])
            yield Part(several[0][0].number, whole, attributes), _keys([row for row, _ in several])


def _keys(rows: list[DocumentRow]) -> list[Key | None] | None:
    if not any(row.keys for row in rows):
        return None
    return [key for row in rows for key in ([None] * row.size if row.keys is None else json.loads(row.keys))]


# ---- retention as text ----


def text_of(retain: Retain) -> str:
    return json.dumps({"count": retain.count, "microseconds": retain.microseconds, "by": retain.by})


def _retain_of(text: str | None) -> Retain:
    if text is None:
        return Retain()
    found = json.loads(text)
    age = found["microseconds"]
    return Retain(found["count"], None if age is None else dt.timedelta(microseconds=age), found["by"])


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

    def put(self, state: HistoryState) -> None:
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
