"""The documents that subscriptions may speak of: what came before the event. In memory; durable.py builds on it.

    m.history.add({"isbn": 1, "price": 25})       one document; with a key, only if none of that key is there
    m.history.load(table_or_path)                  many
    m.match(event, remember=True)                  matches the event, and then adds it
    len(m.history), m.history.prune(...)

Whole documents are kept in the form in which they came, because a subscription that is added later may ask for any of
their attributes; what joins ask for is kept in columns and indexes besides (state.py, coded/). States are values,
and a change puts the next one in place by one assignment: readers never wait, and an interrupt leaves the one or the
other.
"""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from dibs.arguments import check_number, check_several, check_text, is_integer
from dibs.arrays import from_integers
from dibs.coding.events import read_events
from dibs.coding.events.scalars import UnreadableValue, read_scalar
from dibs.coding.values import EventValues
from dibs.errors import ArgumentError, DibsError, EventError, show
from dibs.history.coded.store import Store
from dibs.history.keys import NONE, TIME, Cells, CellsByName
from dibs.history.retention import Retain, check_retain, compact, earlier, with_last, with_recent, without
from dibs.history.sources import NO_RANGE, Unkeepable, documents_of, own_document
from dibs.history.state import HistoryState, Part, latest_time
from dibs.jit.threads import survive_forks
from dibs.language.types import NO_TYPES, Types
from dibs.segments.single.texts import read_event
from dibs.tuning import tuned

HISTORY_REBUILT = tuned("history_rebuilt", 1_000, 1, "documents", "of one call for which indexes are built again")

Key = str | int
KEY_BITS = 128  # of an integer: those of a UUID
T = TypeVar("T")


class History:
    """The documents of a matcher: Matcher.history."""

    def __init__(self, retain: Retain, types: Types = NO_TYPES):
        """types: of attributes, where they are declared: documents are kept as they come, and converted when read."""
        self.retain, self.types = check_retain(retain), types
        self.state = HistoryState(types=types)
        self.refused = ""  # why documents are not taken, when they are not
        self.lock = threading.RLock()  # held while the next state is made
        self._by_key: dict[Key, int] = {}  # numbers of documents; stale ones are found out by `find_number`
        survive_forks(self)

    def __len__(self) -> int:
        self.follow()
        return len(self.state)

    def __contains__(self, key: object) -> bool:
        self.follow()
        return self.find_number(self.state, key) is not None

    def __repr__(self) -> str:
        return f"<History: {len(self):,} documents>"

    # ---- changing ----

    def add(self, document: Mapping[str, Any] | bytes | bytearray | memoryview | str, key: Key | None = None) -> bool:
        """Adds a document, a dict of attributes or a JSON text of one; it is the newest. With a key, only if no
        document of that key is there. Returns whether it was added. Raises EventError when it cannot be read."""
        if not isinstance(document, (Mapping, bytes, bytearray, memoryview, str)):
            expected = "a document is a dict of attributes, or a JSON text of one"
            raise EventError(f"{expected}, not {type(document).__name__}; use load for several")
        try:
            document = own_document(read_event(document))
        except Unkeepable as problem:
            raise EventError(str(problem)) from None
        key = check_key(key)

        def add() -> bool:
            state = self.state
            if key is not None and self.find_number(state, key) is not None:
                return False
            values = self.read(state, [document])
            added = self.append(state, self.cells(values), 0, key)
            parts = with_documents(state.parts, state.end, [document], None)
            self.put(self.find_kept(replace(added, parts=parts)))
            return True

        return self.change(add)

    def load(self, source: Any, key: str | None = None, attributes: str | None = None) -> int:
        """Adds documents in their order: whatever match_batch takes, or the path of a Parquet, Arrow or JSON lines
        file.
        key: the column (attribute) that holds their keys; of those whose key is there already, or came before in the
        source, none is added. attributes: as in match_batch. Returns how many were added."""
        check_text("key", key)
        check_text("attributes", attributes)
        given = documents_of(source, attributes)
        their_keys = None if key is None else keys_of(given, key)

        def load() -> int:
            state, rows, keys = self.state, given, their_keys
            if keys is not None:
                rows, keys = self._unknown(state, rows, keys)
            if len(rows):
                # A document that displaces another, and is too old a moment later, does so only if they come singly.
                singly = self.retain.count is not None and self.retain.age is not None
                values = self.read(state, rows, attributes)
                state = self.extend_by(state, Part(state.end, rows, attributes), keys, values, singly)
            self.put(self.find_kept(state, all_times=True))
            return len(rows)

        return self.change(load)

    def prune(
        self,
        keep: int | None = None,
        before: dt.datetime | dt.date | None = None,
        by: str = "time",
        keys: Iterable[Key] | None = None,
    ) -> int:
        """Removes documents: all but the last `keep`; those whose time in the attribute `by` is earlier than `before`;
        those of the given keys. Returns how many were removed."""
        given = [each is not None for each in (keep, before, keys)]
        if sum(given) != 1:
            raise ArgumentError("prune takes one of keep=, before= and keys=")
        if not isinstance(by, str):
            raise ArgumentError(f"by must be the name of an attribute, not {show(by)}")
        limit = None if before is None else _microseconds(before)
        sought = (
            []
            if keys is None
            else [check_key(key) for key in check_several(keys, "the keys of documents", "put one into a list")]
        )

        def prune() -> int:
            state = self.state
            if keep is not None:
                next_one = with_last(state, check_number("keep", keep, 0, "a number of documents"))
            elif limit is not None:
                next_one = without(state, earlier(state, by, (TIME,), limit))
            else:
                found = [self.find_number(state, key) for key in sought]
                next_one = without(state, [row for row in found if row is not None])
            self.put(compact(next_one))
            return len(state) - len(self.state)

        return self.change(prune)

    def clear(self) -> None:
        """Removes all documents. (Numbers are not used again.)"""

        def clear() -> None:
            end = self.state.end
            self.put(HistoryState(end, end, end))

        self.change(clear)

    def close(self) -> None:
        """Lets go of all documents, and takes no more: what Matcher.close does."""
        with self.lock:
            self.refused = "its matcher is closed"
            self.state = HistoryState()

    def reset_after_fork(self) -> None:
        """After a fork: whoever held the lock is not here. The state is whole, as always."""
        self.lock = threading.RLock()

    def follow(self) -> None:
        """Before the state is asked for: takes what was written elsewhere."""

    def change(self, work: Callable[[], T]) -> T:
        """Calls work, which makes the next state and puts it in place, while nobody else does."""
        with self.lock:
            self.check()
            return work()

    def check(self) -> None:
        """Refuses if documents are not taken."""
        if self.refused:
            raise DibsError(f"this history cannot be changed: {self.refused}")

    def put(self, state: HistoryState) -> None:
        """Puts the next state in place, or an earlier one again. The lock is held."""
        if state.end < self.state.end:  # others will have the numbers of the documents that kernels know by now
            state = replace(state, coded=Store())
        if state.types is not self.types:
            state = replace(state, types=self.types)
        is_less = state.base != self.state.base
        self.state = state
        if is_less:  # only now: until then they were needed
            self._by_key = {key: row for key, row in self._by_key.items() if row >= state.base}

    # ---- steps, for whoever holds the lock ----

    def read(
        self, state: HistoryState, documents: Any, attributes: str | None = None, on_error: str = "raise"
    ) -> EventValues:
        """The values of documents that some join asks for."""
        names = state.names
        if self.retain.age is not None:
            state.make_columns([self.retain.by])
            names.add(self.retain.by)
        values = read_events(documents, names, attributes=attributes, on_error=on_error, types=self.types)
        check_no_ranges(values)
        return values

    @staticmethod
    def cells(values: EventValues) -> Mapping[str, Mapping[int, Cells]]:
        """The same as cells, by name and document."""
        return CellsByName(values)

    def append(
        self, state: HistoryState, cells: Mapping[str, Mapping[int, Cells]], event: int, key: Key | None
    ) -> HistoryState:
        """With one more document, whose cells are those of that event. The documents themselves (parts) are left to the
        caller, and so is retention."""
        columns, row = state.columns.copy(), state.end
        place = row - state.base
        columns = {name: column for name, column in columns.items() if name in cells}
        for name, column in columns.items():
            del column[place:]
            column.append(cells[name].get(event, NONE))
        del state.keys[place:]
        state.keys.append(key)
        if key is not None:
            self._by_key[key] = row
        ages = {
            name: by_time.add(latest_time(columns[name][place]), row)
            for name, by_time in state.ages.copy().items()
            if name in columns
        }
        return replace(state, end=row + 1, columns=columns, ages=ages)

    def extend_by(
        self, state: HistoryState, part: Part, keys: list[Any] | None, values: EventValues, singly: bool = False
    ) -> HistoryState:
        """With the documents of one more part, whose values these are. singly: they are retained one by one, else that
        is left to the caller."""
        cells, first, count = self.cells(values), state.end, len(part.rows)
        if singly or (len(state) and count <= HISTORY_REBUILT.value):
            for event in range(count):
                state = self.append(state, cells, event, None if keys is None else keys[event])
                state = self.find_kept(state) if singly else state
            return replace(state, parts=with_documents(state.parts, first, part.rows, part.attributes))
        parts = with_documents(state.parts, first, part.rows, part.attributes)
        place = first - state.base
        columns = {name: column for name, column in state.columns.copy().items() if name in cells}
        for name, column in columns.items():
            del column[place:]
            column.extend(cells[name].get(event, NONE) for event in range(count))
        del state.keys[place:]
        state.keys.extend([None] * count if keys is None else keys)
        if keys is not None:
            self._by_key.update((key, row) for row, key in enumerate(keys, first) if key is not None)
        return replace(state, end=first + count, columns=columns, ages={}, parts=parts)

    def find_kept(self, state: HistoryState, all_times: bool = False) -> HistoryState:
        """What retention leaves. all_times: several documents came, of which any may be too old."""
        retain = self.retain
        if retain.microseconds is not None:
            state = with_recent(state, retain.by, retain.microseconds, all_times)
        if retain.count is not None:
            state = with_last(state, retain.count)
        return compact(state)

    def find_number(self, state: HistoryState, key: object) -> int | None:
        """The document of this key; None if it is not there, or the key is none."""
        row = self._by_key.get(key) if isinstance(key, (str, int)) and not isinstance(key, bool) else None
        if row is None or row < state.base or not state.is_there(row) or state.key_of(row) != key:
            return None
        return row

    def _unknown(self, state: HistoryState, rows: Any, keys: list[Any]) -> tuple[Any, list[Any]]:
        """The documents whose keys are new, none twice."""
        seen: set[Any] = set()
        new: list[int] = []
        for place, key in enumerate(keys):
            if key is None or (key not in seen and self.find_number(state, key) is None):
                new.append(place)
                seen.add(key)
        if len(new) == len(keys):
            return rows, keys
        kept = [rows[place] for place in new] if isinstance(rows, list) else rows.take(from_integers(new))
        return kept, [keys[place] for place in new]


def states_of_remembered(
    history: History, part: Part, unreadable: Collection[int], keys: Sequence[Key | None] | None = None
) -> Iterator[HistoryState]:
    """The states before each of the documents of a part, and the one after them all. The lock is held, and nothing is
    put in place. What could not be read at all, or has a key that is there, takes a number and is gone at once."""
    state, (first, rows, attributes) = history.state, (part.first, part.rows, part.attributes)
    cells = history.cells(history.read(state, rows, attributes, on_error="skip"))
    for event in range(len(rows)):
        yield state
        key = None if keys is None else keys[event]
        goes = event in unreadable or (key is not None and history.find_number(state, key) is not None)
        state = history.append(state, cells, event, None if goes else key)
        state = without(state, [state.end - 1]) if goes else history.find_kept(state)
    yield replace(state, parts=with_documents(state.parts, first, rows, attributes)) if len(rows) else state


# ---- what is given ----


def check_key(key: Any) -> Key | None:
    if key is None or isinstance(key, str):
        return key
    if is_integer(key) and int(key).bit_length() <= KEY_BITS:
        return int(key)
    raise ArgumentError(f"the key of a document is a string or an integer of {KEY_BITS} bits, not {show(key)}")


def check_no_key(key: object) -> None:
    """Where nothing is remembered."""
    if key is not None:
        raise ArgumentError("key is for remember=True: the key by which the event is remembered")


def keys_of(rows: Any, name: str) -> list[Any]:
    """The keys of documents that came together."""
    if isinstance(rows, list):
        found = [row.get(name) if isinstance(row, Mapping) else None for row in rows]
    elif name in rows.column_names:
        found = rows[name].to_pylist()
    else:
        raise ArgumentError(f"there is no column {show(name)}, which key= names; the columns are {rows.column_names}")
    return [check_key(key) for key in found]


def check_no_ranges(values: EventValues) -> None:
    if values.ranges:
        event, name, _ = values.ranges[0]
        raise EventError(NO_RANGE, event, values.names[name])


def with_documents(parts: tuple[Part, ...], first: int, rows: Any, attributes: str | None) -> tuple[Part, ...]:
    """The parts with more documents, the first of this number: at the end of the last part if that can grow."""
    if parts and isinstance(rows, list) and isinstance(parts[-1].rows, list) and parts[-1].attributes == attributes:
        last, place = parts[-1], first - parts[-1].first
        if 0 <= place <= len(last.rows):
            del last.rows[place:]
            last.rows.extend(rows)
            return parts
    return (*parts, Part(first, rows, attributes))


def _microseconds(value: Any) -> int:
    """A time, as events have it."""
    try:
        found = read_scalar(value) if isinstance(value, (dt.date, np.datetime64)) else None
    except UnreadableValue as problem:
        raise ArgumentError(f"before: {problem}") from None
    if found is None:
        raise ArgumentError(f"before must be a date or a datetime, not {show(value)}")
    return int(found[1])
