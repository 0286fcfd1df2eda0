"""Where the newest snapshot of a history is kept, and how it follows the documents."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dibs.coding.events import read_events
from dibs.coding.values import EventValues, Unreadable
from dibs.history.coded.columns import DocumentSnapshot, attribute_of
from dibs.history.coded.indexes import needs_ranks
from dibs.history.coded.program import Compiled
from dibs.jit.threads import survive_forks

if TYPE_CHECKING:
    from dibs.history.state import HistoryState

AT_ONCE = 1 << 17  # documents that are read at a time


class Store:
    """One for all states of a history. A snapshot may know more documents than a state that asks for it, whose view
    leaves them out."""

    def __init__(self) -> None:
        self.snapshot = DocumentSnapshot()
        self._lock = threading.RLock()
        survive_forks(self)

    def reset_after_fork(self) -> None:
        self._lock = threading.RLock()

    def at(self, state: HistoryState, *asked: Compiled) -> DocumentSnapshot:
        """A snapshot with the documents of the state, and all that these programs ask for."""
        snapshot = self.snapshot
        if all(_has(snapshot, state, each) for each in asked):
            return snapshot
        with self._lock:
            known = self.snapshot
            snapshot = known if known.base == state.base else DocumentSnapshot(state.base)
            for each in asked:
                snapshot = _with_all(snapshot, state, each)
            if snapshot.base >= known.base:  # a state from before a compaction gets one of its own
                self.snapshot = snapshot
        return snapshot

    def put(self, snapshot: DocumentSnapshot) -> None:
        """Puts a snapshot in place whose documents have been added."""
        with self._lock:
            if snapshot.base == self.snapshot.base and snapshot.size > self.snapshot.size:
                self.snapshot = snapshot


def _has(snapshot: DocumentSnapshot, state: HistoryState, asked: Compiled) -> bool:
    return (
        snapshot.base == state.base
        and snapshot.size >= state.end - state.base
        and all(name in snapshot.columns for name in asked.names)
        and all(key in snapshot.indexes for key in asked.indexes)
        and not _needs_ranks(snapshot, state, asked)
        and (
            not asked.patterns
            or (snapshot.tested == snapshot.texts.count and set(asked.patterns) <= set(snapshot.patterns))
        )
    )


def _needs_ranks(snapshot: DocumentSnapshot, state: HistoryState, asked: Compiled) -> bool:
    first = state.first - state.base
    return any(needs_ranks(sorted, first) for key in asked.counted for sorted in snapshot.indexes[key].runs)


def _with_all(snapshot: DocumentSnapshot, state: HistoryState, asked: Compiled) -> DocumentSnapshot:
    new = [name for name in asked.names if name not in snapshot.columns]
    if new:
        wanted = list(dict.fromkeys(map(attribute_of, new)))
        batches = read_documents(state, wanted, 0, snapshot.size) if snapshot.size else iter(())
        snapshot = snapshot.with_columns(new, batches)
    for _, values in read_documents(state, snapshot.attributes, snapshot.size, state.end - state.base):
        snapshot = snapshot.with_documents(values, values.events)
    snapshot = snapshot.with_patterns(asked.patterns).with_indexes(asked.indexes)
    return snapshot.with_ranks(asked.counted, state.first - state.base)


def read_documents(state: HistoryState, names: Any, first: int, end: int) -> Iterator[tuple[int, EventValues]]:
    """The values of documents from `first` to `end` (from the base of the state on), in batches: the number of the
    first, and values."""
    at = state.base + first
    stops = [*(part.first for part in state.parts[1:]), state.end]
    for part, stop in zip(state.parts, stops):
        stop = min(stop, state.base + end)
        while at < stop:
            size = min(AT_ONCE, stop - at)
            rows = part.readable(at - part.first, size)
            values = read_events(rows, names, attributes=part.attributes, on_error="skip", types=state.types)
            yield at - state.base, without_ranges(values)
            at += size


def without_ranges(values: EventValues) -> EventValues:
    """Documents have no ranges; one that came before a join asked for its attribute is not known."""
    if not values.ranges:
        return values
    event = np.array([row[0] for row in values.ranges], np.int32)
    name = np.array([row[1] for row in values.ranges], np.int32)
    u = values.unreadable
    return replace(values, ranges=[], unreadable=Unreadable(np.append(u.event, event), np.append(u.name, name)))
