"""Layers: the one place where the state of a matcher is held, and how it goes over into the next.

A change is cheap: an added subscription waits, a removed one is a bit. Single events are matched against what waits as
it is (segments.single.memtable); whoever reads a batch next, or has added many, makes a segment of it.
Segments are merged by size: a segment at most `size_ratio` times as large as all newer ones together is merged with
them in the background (segments.upkeep), or at once if they are many and it has no time, so that a subscription is
moved a logarithmic number of times and there are never many segments. When the background has rested long enough, it
merges all there is, so that a matcher with few changes is soon as fast as one that was built at once.

States are values (segments.state). Whoever makes the next one does so under the lock, from the one that stands, and
`self.state = next` is the last thing it does: an interrupt before it leaves the old state, one after it the new one.
Readers take `state` without a lock and keep it for as long as they like.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dibs.arrays import from_strings
from dibs.errors import IndexTooLarge
from dibs.index import AUTO, Index
from dibs.index.base import do_pending
from dibs.jit.threads import survive_forks
from dibs.language.types import NO_TYPES, Types
from dibs.segments.compile import compile_mixed
from dibs.segments.ids import Id
from dibs.segments.layer import ID_TYPES, Layer, by_type
from dibs.segments.segment import DEFAULT_WEIGHT, Choice, Joined, Segment, build
from dibs.segments.state import CHANGES_FOR_A_SEGMENT, MERGED_AT_ONCE, Change, State, Waiting
from dibs.segments.upkeep import Job, Upkeep
from dibs.tuning import tuned

SIZE_RATIO = tuned("size_ratio", 16, 1, "times", "as large as all newer segments it may be, to be merged with them")
# a merge at every match cost more than matching six small segments
SMALL_SEGMENTS = tuned("small_segments", 3, 1, "segments", "that are small and not worth a merge")
MOST_SMALL_SEGMENTS = tuned("most_small_segments", 8, 1, "segments", "that are small before a merge in the foreground")
# building auto over a new row 1.1 ms, a scan 0.25; an add and a match 14 to 2 ms
SCANNED_ROWS = tuned("scanned_rows", 64, 2, "rows", "of a new segment that are scanned, beside many more")
WAITING_ROWS = tuned("waiting_rows", 256, 1, "subscriptions", "that wait and are matched as they are by single events")
PREDICATES_FOR_A_SEGMENT = tuned("predicates_for_a_segment", 10_000, 1, "predicates", "of one call, worth a segment")

BUSY = 8  # times as many rows are merged at once while the background is at work on others
UNREAD = 16  # times as many small segments are left alone while nobody reads: merging would delay who adds
MERGE_IDLE_FACTOR = 10  # a merge of everything that is not needed comes after so many times as long as the last took
A_ROW = 2e-6  # seconds of merging a row, about, before it was measured
A_LOOK = 1.0  # seconds between two looks of readers for work in the background
ACTIVE_READER_SECONDS = 0.05  # who has begun a match since is probably still at it


class SegmentSet:
    def __init__(self, choice: Choice, types: Types = NO_TYPES):
        self.choice, self.types = choice, types
        self.lock = threading.RLock()  # held while the next state is made: for moments
        self.state = State()
        self.upkeep = Upkeep(self.lock, self._next_merge)
        self.upkeep.sources.append(self._next_plan)
        self._merging: frozenset[Segment] = frozenset()  # by the thread of the upkeep, which alone sets it
        self._next_tidying = self._next_look = 0.0  # when the background may merge everything; when to look for work
        self._a_row = A_ROW
        self._last_read = 0.0
        survive_forks(self)

    def __len__(self) -> int:
        return len(self.state)

    # ---- reading ----

    def read(self, few_wait: bool = False) -> State:
        """The state to match on. few_wait: some may wait in it, and are matched as they are."""
        now = self._last_read = time.monotonic()
        state = self.state
        if not few_wait or len(state.waiting) > WAITING_ROWS.value:
            state = self.flush()
        if len(state.layers) > 1 and now > self._next_look:  # without changes nobody else looks for work
            self._next_look = now + A_LOOK
            self.upkeep.wake()
        return state

    def flush(self) -> State:
        """The state, in which nothing waits."""
        state = self.state
        if not state.waiting:
            return state
        with self.lock:
            state = self.state
            if state.waiting:
                state = self._flush(state)
                self.state = state
        self.upkeep.wake()
        return state

    def _flush(self, state: State) -> State:
        """With segments of what waits."""
        # What is scanned already is compiled again with it, which is quicker than to merge it or to match one more; and
        # when together they are too many to be scanned, they are not.
        items, layers = state.waiting, state.layers
        scanned = next((x for x in layers if x.items is not None and x.segment not in self._merging), None)
        old = {} if scanned is None or scanned.items is None else scanned.items
        if old:
            items = {**old, **items}
            layers = tuple(x for x in layers if x is not scanned)
        rest = State(state.version, layers)
        scans = self._scans(rest, len(items))
        segments = self.build(items, rest)
        short = len(segments[0].clauses.attribute) <= PREDICATES_FOR_A_SEGMENT.value
        if scans and short and len(segments) == 1:
            return replace(rest, layers=(*layers, Layer.of(segments[0], items)))
        return self._with_segments(rest, segments)

    # ---- changing: one thread at a time (dibs.changes) ----

    def apply(self, changes: Sequence[Change], first: int, old: Collection[Id] | None = None) -> None:
        """Changes of the versions first, first + 1, ..., which all become visible at once. old: those of their ids that
        may be there; None: all of them."""
        last = {change[0]: i for i, change in enumerate(changes)}
        added = {
            id: Waiting(text, weight, first + i, form)
            for i, (id, text, weight, form) in enumerate(changes)
            if text is not None and last[id] == i
        }
        ids = last.keys() if old is None else set(old)
        segments = self.build(added, self.state) if len(added) > CHANGES_FOR_A_SEGMENT.value else []
        with self.lock:
            old_state = self.state.without(ids) if ids else self.state
            waiting = old_state.waiting if segments else {**old_state.waiting, **added}
            state = State(first + len(changes) - 1, old_state.layers, waiting)
            if segments:
                state = self._with_segments(state, segments)
            if len(state.waiting) > CHANGES_FOR_A_SEGMENT.value:  # so that no reader has much to do
                state = self._flush(state)
            self.state = state
        if ids or segments or len(state.layers) > UNREAD * MOST_SMALL_SEGMENTS.value:
            self.upkeep.wake()
        if time.monotonic() - self._last_read < ACTIVE_READER_SECONDS:
            time.sleep(0)  # a thread that only adds would keep the interpreter from those that match, 5 ms at a time

    def append(self, segments: Iterable[Segment], version: int) -> None:
        """Segments of new ids; `version`: after them."""
        with self.lock:
            self.state = replace(self._with_segments(self.state, segments), version=version)
        self.upkeep.wake()

    def advance(self, removed: Collection[Id], items: Mapping[Id, Waiting], version: int) -> None:
        """What another process has done: these go, these come or are replaced, and then it is this version."""
        segments = self.build(items, self.state)
        with self.lock:
            state = self.state.without({*removed, *items})
            self.state = replace(self._with_segments(state, segments), version=version)
        self.upkeep.wake()

    def restore(self, state: State) -> None:
        """Another state altogether: what is being merged of the old one comes to nothing."""
        with self.lock:
            self.state = state

    def keep_segments(self) -> None:
        """Nothing is merged in the background from now on."""
        self.upkeep.sources.remove(self._next_merge)

    # ---- building ----

    def build(self, items: Mapping[Id, Waiting], state: State) -> list[Segment]:
        """Segments of subscriptions that are known to be good: one for each type of ids."""
        result = []
        for _, ids in by_type(items.keys()):
            own = [items[id] for id in ids.to_pylist()] if len(ids) < len(items) else list(items.values())
            texts, weights, versions, forms = zip(*own)
            column = from_strings(texts)
            weighted = None if all(w == DEFAULT_WEIGHT for w in weights) else np.array(weights)
            make = partial(build, compile_mixed(column, forms, self.types), ids, column, weighted, np.array(versions))
            result.append(self._make(make, state, len(ids)))
        return result

    def _make(self, make: Callable[[Choice, Segment | None], Segment], state: State, rows: int) -> Segment:
        """The segment; with `auto` if the chosen index would be too large: subscriptions that were accepted one by one
        must be matched. (Many at once are refused instead.)"""
        like = state.largest()
        try:
            return make(Choice("scan") if self._scans(state, rows) else self.choice, like)
        except IndexTooLarge as e:
            warnings.warn(f"{e}; these subscriptions are matched by {AUTO!r} instead", UserWarning, stacklevel=2)
            return make(Choice(AUTO), like)

    @staticmethod
    def _scans(state: State, rows: int) -> bool:
        """Whether so many new rows are scanned: building an index takes longer than scanning a few rows."""
        return rows <= SCANNED_ROWS.value and any(len(x.segment) > MERGED_AT_ONCE.value for x in state.layers)

    # ---- merging ----

    def _with_segments(self, state: State, segments: Iterable[Segment]) -> State:
        """With these segments on top, and merged with what is small enough for that."""
        for segment in segments:
            state = replace(state, layers=(*state.layers, Layer.of(segment)))
            state = self._merge_small(state, segment.ids.ids.type)
        return state

    def _tail(self, state: State, id_type: pa.DataType) -> list[Layer]:
        """The newest layers of this type of ids that should be one."""
        chosen: list[Layer] = []
        total = 0
        for layer in reversed(state.of_type(id_type)):
            if layer.segment in self._merging or (chosen and len(layer) > SIZE_RATIO.value * max(total, 1)):
                break
            chosen.append(layer)
            total += len(layer)
        return chosen[::-1]

    def _merge_small(self, state: State, id_type: pa.DataType) -> State:
        tail = self._tail(state, id_type)
        at_once = MERGED_AT_ONCE.value
        while len(tail) > 1 and sum(map(len, tail)) > (BUSY * at_once if self.upkeep.busy else at_once):
            del tail[0]
        if len(tail) <= (1 if len(state) <= at_once else MOST_SMALL_SEGMENTS.value):
            return state
        joined = _Joining(tail)
        return joined.put_into(state, joined.segment(partial(self._make, state=state, rows=joined.rows)))

    def _next_merge(self) -> Job | None:
        """What the background should merge; the lock is held."""
        state, at_once = self.state, MERGED_AT_ONCE.value
        for id_type in ID_TYPES:
            chosen = self._tail(state, id_type)
            if len(chosen) < 2:  # or one of which most is gone
                own = (x for x in state.of_type(id_type) if x.segment not in self._merging)
                chosen = [x for x in own if x.gone.count > max(len(x), at_once)][:1]
            if len(chosen) <= SMALL_SEGMENTS.value and sum(len(x.segment) for x in chosen) <= at_once:
                chosen = self._untidy(state, id_type)
            if chosen:
                return partial(self._merge_apart, [x.segment for x in chosen])
        return None

    def _untidy(self, state: State, id_type: pa.DataType) -> list[Layer]:
        """All layers of this type of ids, if it is time to merge them and worth it."""
        own = state.of_type(id_type)
        rows = sum(len(x.segment) for x in own)
        extra = rows - max(map(len, own), default=0)
        now = time.monotonic()
        if now < self._next_tidying or extra <= max(MERGED_AT_ONCE.value, rows // 1000):
            return []
        self._next_tidying = now + MERGE_IDLE_FACTOR * self._a_row * rows
        return own

    def _merge_apart(self, segments: Collection[Segment]) -> None:
        """By the thread of the upkeep: the lock is held only while the result takes the place of the parts."""
        with self.lock:
            chosen = [x for x in self.state.layers if x.segment in segments]
            if len(chosen) < len(segments):
                return  # some of them were merged at once meanwhile
            self._merging = frozenset(segments)
        begin = time.monotonic()
        try:
            joined = _Joining(chosen)
            segment = joined.segment(partial(self._make, state=self.state, rows=joined.rows))
            with self.lock:
                if joined.fits(self.state):  # else a follower has taken newer ones
                    self.state = joined.put_into(self.state, segment)
        finally:
            self._merging = frozenset()
        if joined.rows > MERGED_AT_ONCE.value:
            self._a_row = (time.monotonic() - begin) / joined.rows

    def _next_plan(self) -> Job | None:
        """What an index would like to have done; the lock is held."""
        pending = (x.segment.index for x in self.state.layers if x.segment.has_pending_work)
        index = next(pending, None)
        return None if index is None else partial(_do_pending, index)

    def compact(self) -> None:
        """One segment for each type of ids of what is there now, without what was removed. Matching goes on."""
        self.upkeep.run(self._compact)

    def _compact(self) -> None:
        for id_type in ID_TYPES:
            own = self.flush().of_type(id_type)
            if len(own) > 1 or any(layer.gone.count for layer in own):
                self._merge_apart([layer.segment for layer in own])

    def close(self) -> None:
        """May be called again."""
        self.upkeep.close()
        self.state = State()

    def reset_after_fork(self) -> None:
        """After a fork: whoever held the lock is not here. The state is whole, as always."""
        self.lock = threading.RLock()
        self._merging = frozenset()
        self.upkeep.reset_after_fork(self.lock)


def _do_pending(index: Index) -> None:
    do_pending(index)


class _Joining:
    """Layers on the way to one."""

    def __init__(self, layers: Sequence[Layer]):
        self._layers = layers
        self._kept: list[NDArray[np.int64]] = [layer.gone.find_kept() for layer in layers]
        self.rows = sum(map(len, self._kept))
        self._joined = None
        if self.rows:
            self._joined = Joined([(layer.segment, rows) for layer, rows in zip(layers, self._kept)])

    def segment(self, made: Callable[[Callable[[Choice, Segment | None], Segment]], Segment]) -> Segment | None:
        """None: nothing is left of them."""
        return None if self._joined is None else made(self._joined.index_rows)

    def fits(self, state: State) -> bool:
        """Whether they are all in the state still (perhaps with fewer rows)."""
        return {x.segment for x in self._layers} <= {x.segment for x in state.layers}

    def put_into(self, state: State, segment: Segment | None) -> State:
        """The state with the one in place of the layers, without the rows that went while it was made."""
        now = {layer.segment: layer for layer in state.layers}
        ours = {layer.segment for layer in self._layers}
        merged: list[Layer] = []
        if segment is not None and self._joined is not None:
            new = Layer.of(segment)
            for layer, rows, gone_to in zip(self._layers, self._kept, self._joined.rows()):
                gone = now[layer.segment].gone.has_each(rows)
                new = Layer(segment, new.gone.including(gone_to[gone]))
            merged = [new]
        layers: list[Layer] = []
        for layer in state.layers:
            if layer.segment not in ours:
                layers.append(layer)
            elif merged:  # in the place of the first of them
                layers.append(merged.pop())
        return replace(state, layers=tuple(layers))
