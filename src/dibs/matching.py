"""How the state of a matcher is asked: events to values, what joins say of them, pairs, and what it has cost so far.

one event    segments.single   from JSON text to ids in one compiled call, where that is possible
batches      read -> values -> (history: joins) -> each segment: cells -> rows, without what is gone -> Matches
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.arguments import OnError, check_on_error
from dibs.coding.batch import number_names
from dibs.coding.clauses import runs
from dibs.coding.events import WantedNames, read_events
from dibs.coding.values import EventValues
from dibs.disagreements import SeenKinds
from dibs.history.derive import Joins, Remembering
from dibs.history.history import History
from dibs.history.phases import Candidates, Costs
from dibs.history.prefilter import Alive, PreFilter
from dibs.index import Pairs, Sink
from dibs.language.present import Present
from dibs.language.types import NO_TYPES, Types
from dibs.matches import Heaviest, Matches, Part, Reader
from dibs.segments.gone import Bits, alive
from dibs.segments.ids import Id
from dibs.segments.segment import Segment
from dibs.segments.single.call import Singles
from dibs.segments.state import State
from dibs.thresholds import thresholds

COUNTERS = ("events", "pairs", "candidates", "false candidates", "predicates", "nodes")


class ReadEvents(NamedTuple):
    """A batch that was read for a state."""

    segments: list[Segment]
    values: EventValues
    readers: list[Reader]  # for each segment: which of its pairs count


class Matching:
    """Any number of threads may match at once. `wake` is called when an index would like to have something done."""

    def __init__(self, threads: int, wake: Callable[[], None], history: History, types: Types = NO_TYPES):
        self.types = types  # of attributes, where they are declared
        self.counters = dict.fromkeys(COUNTERS, 0)
        self.names = WantedNames(())
        self.singles = Singles(self.counters, wake, types)
        self.costs = Costs()  # of answering joins
        self.prefilter = PreFilter()
        self.seen = SeenKinds()
        self._joins: Joins | None = None  # of the subscriptions that were matched last
        self.threads = threads
        self._wake = wake
        self.history = history

    def match_text(self, state: State, text: bytes, now: Present = None) -> list[Id] | None:
        """The ids for the event of a JSON text; None: it must be read as a batch."""
        return self.singles.match(state, text, self.find_wanted, now)

    def read(
        self,
        state: State,
        events: Any,
        attributes: str | None,
        on_error: OnError,
        turn: Remembering | None = None,
        now: Present = None,
    ) -> ReadEvents:
        """turn: see match_batch(remember=True). now: the time of the match (language.present)."""
        check_on_error(on_error)
        segments = [x.segment for x in state.layers]
        wanted = self.find_wanted(segments)
        values = read_events(events, wanted, attributes=attributes, on_error=on_error, now=now, types=self.types)
        self.seen.look(values)
        if turn is not None or any(s.joins for s in segments):
            values = self._join(segments, values, turn)
        dead = None
        if len(values.unreadable_events):
            dead = np.zeros(values.events, np.bool_)
            dead[values.unreadable_events] = True
        self.counters["events"] += values.events
        return ReadEvents(segments, values, [partial(_keep_seen, x.gone.bits, dead) for x in state.layers])

    def matches(self, read: ReadEvents, top: int | None) -> Matches:
        parts: list[Part] = []
        for segment, seen in zip(read.segments, read.readers):
            if top is None:
                parts += [(segment, *seen(*chunk)) for chunk in self._match(segment, read.values, None).chunks]
            else:
                best = Heaviest(segment.weights_at, seen, top)
                self._match(segment, read.values, best.add)
                parts.append((segment, *best.pairs()))
        id_types = frozenset(s.ids.ids.type for s in read.segments)
        matches = Matches(read.values.events, parts, read.values.problems, id_types)
        self.counters["pairs"] += matches.count
        return matches

    def count(self, read: ReadEvents) -> NDArray[np.int64]:
        """How many subscriptions each event satisfies."""
        result = np.zeros(read.values.events, np.int64)
        lock = threading.Lock()
        for segment, seen in zip(read.segments, read.readers):

            def add(event: NDArray[np.int32], row: NDArray[np.int32], s: Reader = seen) -> None:
                found = np.bincount(s(event, row)[0], minlength=len(result))
                with lock:
                    np.add(result, found, out=result)

            self._match(segment, read.values, add)
        self.counters["pairs"] += int(result.sum())
        return result

    def find_wanted(self, segments: list[Segment], more: Collection[str] = ()) -> WantedNames:
        """The attributes that some subscription mentions, or once did, and these: rebuilt, or extended, only for new
        names."""
        wanted = self.names
        of = [number_names(wanted.names, s.domains) for s in segments]
        new = [s for s, n in zip(segments, of) if not n.complete]
        missing = bool(new) or not all(name in wanted.codes for name in more)
        if missing or (
            not wanted.is_sorted
            and any(n.disordered and len(s) > thresholds.rows_in_order for s, n in zip(segments, of))
        ):
            extended = wanted.extend_by(chain(more, *(s.names for s in new))) if missing else None
            wanted = self.names = extended or WantedNames(frozenset(more).union(*(s.names for s in segments)))
        return wanted

    def tell_of(self, joins: tuple[str, ...], subscriptions: int) -> list[str]:
        """How these joins are answered, line by line: in which order with the constants, and why."""
        return Joins(joins, self.costs, self.prefilter).tell(subscriptions, len(self.history))

    def _match(self, segment: Segment, values: EventValues, sink: Sink | None) -> Pairs:
        pairs = segment.match(values, self.threads, sink)
        if segment.has_pending_work:
            self._wake()
        pairs.count_costs(self.counters)
        return pairs

    # ---- joins over history ----

    def _join(self, segments: list[Segment], values: EventValues, turn: Remembering | None) -> EventValues:
        """The events with what joins over history say of them."""
        names = tuple(dict.fromkeys(name for s in segments for name in s.joins))
        joins = self._joins
        if names and (joins is None or joins.names != names):
            joins = self._joins = Joins(names, self.costs, self.prefilter)
        if turn is not None:
            turn.begin(values)
        if not names or joins is None:
            return values
        return joins.derive(values, partial(self._candidates, segments), segments, self.history.state, turn)

    def _candidates(
        self, segments: list[Segment], values: EventValues, alive: Alive | None, all_of: NDArray[np.bool_]
    ) -> Candidates:
        """The joins of the subscriptions that may match, without those that are not alive but for some events
        (all_of)."""
        for number, segment in enumerate(segments):
            offsets, places = segment.joins_by_row
            if len(places):
                pairs = segment.match_constants(values, self.threads)
                event, row = pairs.event, pairs.row
                rows = None if alive is None else alive.rows[number]
                if rows is not None:
                    kept = rows[row] | all_of[event]
                    event, row = event[kept], row[kept]
                sizes = np.diff(offsets)[row]
                yield segment.joins, np.repeat(event, sizes).astype(np.int64), places[runs(offsets[row], sizes)]


def _keep_seen(
    gone: Bits | None, dead: NDArray[np.bool_] | None, event: NDArray[np.int32], row: NDArray[np.int32]
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """The pairs that count: of subscriptions that are there, of events that could be read."""
    if gone is not None:
        event, row = alive(gone, event, row)
    if dead is not None:
        keep = ~dead[event]
        event, row = event[keep], row[keep]
    return event, row
