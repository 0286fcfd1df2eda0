"""Layers: all subscriptions of a matcher, as segments that lie on each other, and what has just come.

    waiting    subscriptions that came since the last match, by id, read but not coded
    layers     segments, the newest last, each with the rows that are gone from it and since when

A change is cheap: an added subscription waits, a removed one is noted with the version. The next reader makes a segment
of what waits. Segments are merged by size: a segment at most RATIO times as large as all newer ones together is merged
with them in the background (segments.upkeep), or at once if they are many and it has no time, so that a subscription is
moved a logarithmic number of times and there are never many segments. When the background has rested long enough, it
merges all there is, so that a matcher with few changes is soon as fast as one that was built at once. A subscription is
there in one place only, so the order of segments means nothing to readers.

A reader holds a snapshot: the layers, what is gone from them, and the version. It never sees a row that went before
that version and never misses one that went after it. What changes in place (an index with native updates) waits for the
readers, and they for it.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any, NamedTuple, Union

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dibs.errors import IndexTooLarge, UnknownId
from dibs.index import AUTO
from dibs.segments.compile import Form, compile_mixed
from dibs.segments.ids import Id, IdIndex, id_hash
from dibs.segments.removed import Bits, Removed
from dibs.segments.segment import DEFAULT_WEIGHT, Choice, Joined, Segment, build
from dibs.segments.upkeep import Job, Upkeep
from dibs.thresholds import thresholds

RATIO = 16
MANY = 256  # changes of one call that are worth a segment of their own
AT_ONCE = 1_000  # rows that are merged at once, if at all: a few milliseconds
BUSY = 8  # times as many, while the background is at work on others
REST = 10  # the background rests so many times as long as merging everything takes before it does that without need
A_ROW = 2e-6  # seconds of merging a row, about
A_LOOK = 1.0  # seconds between two looks of readers for work in the background
WIDTH = 3  # so many small segments are not worth a merge
MOST = 8  # of them: more are merged at once, when the background has no time
TINY = 64  # rows of a segment that are scanned rather than indexed, in a matcher that has many more
ID_TYPES = (pa.int64(), pa.large_string())


class Layer:
    """A segment with the rows that are gone from it."""

    def __init__(self, segment: Segment, removed: Removed | None = None):
        self.segment = segment
        self.removed = removed or Removed(len(segment))
        self.merging = False  # in the background
        self.items: dict[Id, Waiting] | None = None  # of a tiny one: what it was made of and is still there
        # Of a durable matcher (storage.durable): how it is saved (a StoredSegment), and with how many rows gone.
        self.stored: Any = None
        self.stored_gone = 0

    def __len__(self) -> int:
        return len(self.segment) - self.removed.count

    @property
    def id_type(self) -> pa.DataType:
        return self.segment.ids.ids.type


class Snapshot(NamedTuple):
    layers: list[Layer]
    gone: list[Bits | None]  # of each: see segments.removed
    version: int


class Subscription(NamedTuple):
    """What is known of one subscription."""

    id: Id
    expression: str
    weight: float
    version: int  # of the matcher when it was added or last replaced
    time: int | None = None  # of that, in UTC microseconds; only a durable matcher keeps it


Change = tuple[Id, Union[str, None], float, Union[Form, None]]  # text None: it goes; weight; form, as below


class Waiting(NamedTuple):
    text: str
    weight: float
    version: int
    form: Form | None  # None: not read yet


class Layers:
    def __init__(self, choice: Choice):
        self.choice = choice
        self.lock = threading.RLock()  # held for moments: the state changes from one to the next
        self.version = 0
        self.layers: list[Layer] = []
        self.waiting: dict[Id, Waiting] = {}
        self.upkeep = Upkeep(self.lock, self._next_merge)
        self._in_place = choice.in_place
        self._compacting = threading.Lock()  # one after the other
        self._next_tidying = self._next_look = 0.0  # when the background may merge everything; when to look for work
        self._readers = self._changers = 0  # matches under way; threads that want to change an index in place
        self._turn = threading.Condition(self.lock)  # told when one of them ends

    # ---- what is there ----

    def __len__(self) -> int:
        with self.lock:
            return len(self.waiting) + sum(len(layer) for layer in self.layers)

    def get(self, id: Id) -> Subscription:
        with self.lock:
            waiting = self.waiting.get(id)
            if waiting is not None:
                return Subscription(id, waiting.text, waiting.weight, waiting.version)
            place = self.find(id)
            if place is None:
                raise UnknownId(id)
            segment, row = place[0].segment, place[1]
            weight = float(segment.weights_at(np.array([row]))[0])
            return Subscription(id, segment.texts[row].as_py(), weight, int(segment.versions[row]))

    def has(self, id: Id) -> bool:
        with self.lock:
            return id in self.waiting or self.find(id) is not None

    def find(self, id: Id) -> tuple[Layer, int] | None:
        """The layer and the row of an id that is there and does not wait."""
        if isinstance(id, bool) or (isinstance(id, int) and not -(2**63) <= id < 2**63):
            return None
        hash = id_hash(id)
        for layer in self.layers:
            if layer.items is None or id in layer.items:
                row = layer.segment.ids.find(id, hash)
                if row is not None and not layer.removed.has(row):
                    return layer, row
        return None

    def taken(self, column: pa.Array) -> tuple[set[int], set[int]]:
        """Places in the column whose id stands earlier in the column, and those whose id is in use."""
        if not len(column):
            return set(), set()
        used: set[int] = set()
        with self.lock:
            for layer in self.layers:
                if layer.id_type == column.type:
                    places, rows = layer.segment.ids.find_all(column)
                    used.update(places[layer.removed.there(rows)].tolist())
            if self.waiting:
                used.update(i for i, id in enumerate(column.to_pylist()) if id in self.waiting)
        return set(IdIndex(column).repeated()), used

    # ---- reading ----

    @contextmanager
    def reading(self) -> Iterator[Snapshot]:
        """The state to match on, which nobody changes meanwhile."""
        with self.lock:
            while self._changers:
                self._turn.wait()
            snapshot = self.snapshot()
            self._readers += 1
            if len(self.layers) > 1 and (now := time.monotonic()) > self._next_look:  # without changes nobody else does
                self._next_look = now + A_LOOK
                self.upkeep.wake()
        try:
            yield snapshot
        finally:
            with self.lock:
                self._readers -= 1
                self._turn.notify_all()

    def snapshot(self) -> Snapshot:
        with self.lock:
            self.flush()
            return Snapshot(list(self.layers), [x.removed.taken() for x in self.layers], self.version)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Before an index may be changed in place; the lock is held. It is given up while readers end, so nothing may
        be half done."""
        if not self._in_place:
            yield
            return
        self._changers += 1
        try:
            while self._readers:
                self._turn.wait()
            yield
        finally:
            self._changers -= 1
            self._turn.notify_all()

    # ---- changing: one thread at a time ----

    def drop(self, id: Id, version: int) -> bool:
        """Removes a subscription; whether it was there."""
        if self.waiting.pop(id, None) is not None:
            return True
        place = self.find(id)
        if place is not None:
            place[0].removed.add(place[1], version)
            if place[0].items is not None:
                place[0].items.pop(id, None)
        return place is not None

    def drop_all(self, ids: Sequence[Id], version: int) -> None:
        """Removes those that are there."""
        for type_, column in _by_type(ids):
            for layer in self.layers:
                if layer.id_type == type_:
                    _, rows = layer.segment.ids.find_all(column)
                    layer.removed.add_all(rows[layer.removed.there(rows)], version)
        for items in [x.items for x in self.layers if x.items]:
            for id in ids:
                items.pop(id, None)
        for id in ids if self.waiting else ():
            self.waiting.pop(id, None)

    def apply(self, changes: Sequence[Change], first: int, old: Collection[Id] | None = None) -> None:
        """Changes of the versions first, first + 1, ..., which all become visible at once. old: those of their ids that
        may be there; None: all of them."""
        last = {change[0]: i for i, change in enumerate(changes)}
        added = {
            id: Waiting(text, weight, first + i, form)
            for i, (id, text, weight, form) in enumerate(changes)
            if text is not None and last[id] == i
        }
        old = last if old is None else old
        segments = self.built(added) if len(added) > MANY else None
        with self.lock, self.alone() if segments else nullcontext():
            if len(old) > MANY:
                self.drop_all(list(old), first)
            else:
                for id in old:
                    self.drop(id, first)
            if segments is None:
                self.waiting |= added
            else:
                self.append(segments)
            self.version = first + len(changes) - 1
            if len(self.waiting) > MANY:  # so that no reader has much to do
                self.flush()
        if old:
            self.upkeep.wake()
        if self._readers:
            time.sleep(0)  # a thread that only adds would keep the interpreter from those that match, 5 ms at a time

    def append(self, segments: Iterable[Segment], version: int | None = None) -> None:
        """Segments of new ids; `version`: after them."""
        with self.lock, self.alone():
            self.version = self.version if version is None else version
            for segment in segments:
                self.layers.append(Layer(segment))
                self._merge_small(segment.ids.ids.type)
        self.upkeep.wake()

    def flush(self) -> None:
        """Makes segments of what waits."""
        if not self.waiting:
            return
        with self.alone():
            # What is tiny already is made anew with it, which is quicker than to merge it or to match one more.
            tiny = next((x for x in self.layers if x.items is not None and not x.merging), None)
            items = self.waiting
            if tiny is None or tiny.items is None or len(tiny.items) + len(items) > TINY:
                tiny = None
            else:
                items = tiny.items | items
            segments = self.built(items)
            scanned = self._scans(len(items))
            self.waiting = {}
            if tiny is not None:
                self.layers.remove(tiny)
            self.append(segments)
            short = len(segments[0].clauses.attribute) <= thresholds.predicates_for_a_segment
            if scanned and short and len(segments) == 1 and self.layers[-1].segment is segments[0]:
                self.layers[-1].items = items

    def built(self, items: Mapping[Id, Waiting]) -> list[Segment]:
        """Segments of subscriptions that are known to be good: one for each type of ids."""
        result = []
        for _, ids in _by_type(list(items)):
            own = [items[id] for id in ids.to_pylist()] if len(ids) < len(items) else list(items.values())
            texts, weights, versions, forms = zip(*own)
            column = pa.array(texts, pa.large_string())
            weighted = None if all(w == DEFAULT_WEIGHT for w in weights) else np.array(weights)
            make = partial(build, compile_mixed(column, forms), ids, column, weighted, np.array(versions))
            result.append(self._made(make, self._choice_for(len(ids))))
        return result

    def _made(self, make: Callable[[Choice, Segment | None], Segment], choice: Choice) -> Segment:
        """The segment; with `auto` if the chosen index would be too large: subscriptions that were accepted one by one
        must be matched. (Many at once are refused instead.)"""
        like = self.largest()
        try:
            return make(choice, like)
        except IndexTooLarge as e:
            warnings.warn(f"{e}; these subscriptions are matched by {AUTO!r} instead", UserWarning, stacklevel=2)
            return make(Choice(AUTO), like)

    def largest(self) -> Segment | None:
        """The segment that knows most of the events."""
        return max((x.segment for x in self.layers), key=len, default=None)

    def _choice_for(self, rows: int) -> Choice:
        return Choice("scan") if self._scans(rows) else self.choice

    def _scans(self, rows: int) -> bool:
        """Whether so many new rows are scanned: building an index takes longer than scanning a few rows."""
        return rows <= TINY and not self._in_place and any(len(x.segment) > AT_ONCE for x in self.layers)

    # ---- merging ----

    def _tail(self, id_type: pa.DataType) -> list[Layer]:
        """The newest layers of this type of ids that should be one."""
        chosen: list[Layer] = []
        total = 0
        for layer in reversed([x for x in self.layers if x.id_type == id_type]):
            if layer.merging or (chosen and len(layer) > RATIO * max(total, 1)):
                break
            chosen.append(layer)
            total += len(layer)
        return chosen[::-1]

    def _merge_small(self, id_type: pa.DataType) -> None:
        tail = self._tail(id_type)
        most = AT_ONCE if self._in_place or not self.upkeep.busy else BUSY * AT_ONCE
        while len(tail) > 1 and sum(len(layer) for layer in tail) > most:
            del tail[0]
        if len(tail) > (1 if self._in_place or len(self) <= AT_ONCE else MOST):
            self._replace(tail, self._joined(tail))

    def _joined(self, layers: Sequence[Layer]) -> tuple[Joined, list[NDArray[np.int64]]] | None:
        """The layers as one, and which of their rows; None: nothing is left of them."""
        kept = [layer.removed.kept() for layer in layers]
        if not any(map(len, kept)):
            return None
        return Joined([(layer.segment, rows) for layer, rows in zip(layers, kept)]), kept

    def _replace(
        self,
        layers: Sequence[Layer],
        joined: tuple[Joined, list[NDArray[np.int64]]] | None,
        segment: Segment | None = None,  # if its index is made already
    ) -> None:
        """One layer instead of these. Rows that went while it was made go from it too."""
        if joined is not None:
            choice = self._choice_for(sum(map(len, joined[1])))
            new = Layer(segment or self._made(joined[0].indexed, choice))
            for layer, rows, gone_to in zip(layers, joined[1], joined[0].rows()):
                gone, since = layer.removed.since(rows)
                new.removed.add_all(gone_to[gone], since)
            self.layers[self.layers.index(layers[0])] = new
            layers = layers[1:]
        for layer in layers:
            self.layers.remove(layer)

    def _next_merge(self) -> Job | None:
        """What the background should merge; the lock is held."""
        for id_type in ID_TYPES:
            chosen = self._tail(id_type)
            if len(chosen) < 2:  # or one of which most is gone
                own = (x for x in self.layers if x.id_type == id_type and not x.merging)
                chosen = [x for x in own if x.removed.count > max(len(x), AT_ONCE)][:1]
            if len(chosen) <= WIDTH and sum(len(x.segment) for x in chosen) <= AT_ONCE:
                chosen = self._untidy(id_type)
            if chosen:
                return partial(self._merge_apart, self._claimed(chosen))
        return None

    @staticmethod
    def _claimed(chosen: list[Layer]) -> list[Layer]:
        """To be merged; nobody else does."""
        for layer in chosen:
            layer.merging = True
        return chosen

    def _untidy(self, id_type: pa.DataType) -> list[Layer]:
        """All layers of this type of ids, if it is time to merge them and worth it."""
        own = [x for x in self.layers if x.id_type == id_type]
        rows = sum(len(x.segment) for x in own)
        extra = rows - max((len(x) for x in own), default=0)
        now = time.monotonic()
        if now < self._next_tidying or extra <= max(AT_ONCE, rows // 1000) or any(x.merging for x in own):
            return []
        self._next_tidying = now + REST * A_ROW * rows
        return own

    def _merge_apart(self, chosen: list[Layer]) -> None:
        """In the background: the lock is held only while the result takes the place of the parts."""
        try:
            joined = self._joined(chosen)
            segment = None if joined is None or self._in_place else self._made(joined[0].indexed, self.choice)
            with self.lock, self.alone():
                if set(map(id, chosen)) <= set(map(id, self.layers)):  # else a follower has taken newer ones
                    self._replace(chosen, joined, segment)
        finally:
            with self.lock:
                for layer in chosen:
                    layer.merging = False

    def compact(self) -> None:
        """One segment for each type of ids of what is there now, without what was removed. Matching goes on."""
        with self._compacting, self.upkeep.paused():
            for id_type in ID_TYPES:
                with self.lock:
                    self.flush()
                    own = [layer for layer in self.layers if layer.id_type == id_type]
                    if len(own) < 2 and not any(layer.removed.count for layer in own):
                        continue
                    self._claimed(own)
                self._merge_apart(own)

    def close(self) -> None:
        self.upkeep.close()
        with self.lock:
            self.layers, self.waiting = [], {}


def _by_type(ids: Sequence[Id]) -> Iterator[tuple[pa.DataType, pa.Array]]:
    for type_, text in zip(ID_TYPES, (False, True)):
        own = [i for i in ids if isinstance(i, str) == text]
        if own:
            yield type_, pa.array(own, type_)
