"""The engine of a matcher: how its state is asked, and what that has cost so far. All that is compiled is behind this.

one event    segments.single   from JSON text to ids in one compiled call, where that is possible
batches      read -> values -> (history: joins) -> each segment: cells -> rows, without what is gone -> Matches
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.arguments import MOST_ROWS, OnError, check_flag, check_number, check_on_error, check_text
from dibs.changes import CLOSED, Changes
from dibs.coding.batch import number_names
from dibs.coding.clauses import runs
from dibs.coding.events import WantedNames, read_events
from dibs.coding.values import EventValues
from dibs.disagreements import SeenKinds
from dibs.history.derive import IngestBatch, Joins
from dibs.history.history import History, Key, check_key, check_no_key, keys_of
from dibs.history.plan import Candidates, Costs
from dibs.history.prefilter import Alive, PreFilter
from dibs.history.retention import Retention
from dibs.history.retention import check_retain as check_retain
from dibs.history.witness import explain_join
from dibs.index import AUTO, Pairs, Sink
from dibs.intake import check_choice as check_choice
from dibs.language.expression import Expression
from dibs.language.joins import joins_in
from dibs.language.present import Now, Present, read_now
from dibs.matches import Heaviest, Matches, Part, Reader, keep_heaviest
from dibs.segments.compile import form_of
from dibs.segments.ids import Id
from dibs.segments.segment import Choice, Segment
from dibs.segments.segment_set import SegmentSet
from dibs.segments.single.call import Singles
from dibs.segments.single.texts import dict_of, text_of
from dibs.segments.state import State
from dibs.segments.tombstones import Bits, alive
from dibs.tuning import tuned

ROWS_IN_ORDER = tuned("rows_in_order", 1_000, 1, "rows", "of a segment for which all names are put in order")

COUNTERS = ("events", "pairs", "candidates", "false candidates", "predicates", "nodes")


class ReadEvents(NamedTuple):
    """A batch that was read for a state."""

    segments: list[Segment]
    values: EventValues
    readers: list[Reader]  # for each segment: which of its pairs count


class Matching:
    """Any number of threads may match at once. The arguments of its first methods are those of the Matcher's."""

    def __init__(self, changes: Changes, layers: SegmentSet, threads: int, history: History):
        self._changes = changes
        self._layers = layers
        self._wake = layers.upkeep.wake  # when an index would like to have something done
        self.types = layers.types  # of attributes, where they are declared
        self.counters = dict.fromkeys(COUNTERS, 0)
        self.names = WantedNames(())
        self.singles = Singles(self.counters, self._wake, self.types)
        self.costs = Costs()  # of answering joins
        self.prefilter = PreFilter()
        self.seen = SeenKinds()
        self._joins: Joins | None = None  # of the subscriptions that were matched last
        self.threads = threads
        self.history = history

    def snapshot(self) -> State:
        """What is there now, all of it compiled."""
        self._changes.check_open()
        return self._layers.read()

    def mentioned(self) -> frozenset[str]:
        """The attributes of events that subscriptions read."""
        return frozenset().union(*(x.segment.names for x in self.snapshot().layers))

    def match(
        self,
        event: Any,
        top: int | None = None,
        remember: bool = False,
        key: Key | None = None,
        now: Now = None,
    ) -> list[Id]:
        present = None if now is None else read_now(now)
        if remember is not False:
            check_flag("remember", remember)
        if key is not None and not remember:
            check_no_key(key)
        text = text_of(event)
        if top is None and remember is False and text is not None:
            self._changes.check_open()
            state = self._layers.read(few_wait=True)
            ids = self.singles.match(state, text, self.find_wanted, present)
            if ids is None and state.waiting:
                ids = self.singles.match(self.snapshot(), text, self.find_wanted, present)
            if ids is not None:
                return ids
        if key is not None:
            k = None if top is None else min(check_number("top", top), MOST_ROWS)
            turn = IngestBatch(self.history, [dict_of(event)], None, [check_key(key)])
            matches = self._remember(turn, "raise", k, present)
        else:
            matches = self.match_batch([dict_of(event)], top=top, remember=remember, now=now)
        return next(iter(matches)) if top is None else matches.top(top)[0]

    def match_batch(
        self,
        events: Any,
        attributes: str | None = None,
        on_error: OnError = "raise",
        top: int | None = None,
        remember: bool = False,
        key: str | None = None,
        now: Now = None,
    ) -> Matches:
        present = read_now(now)
        top = None if top is None else min(check_number("top", top), MOST_ROWS)
        check_flag("remember", remember)
        check_text("key", key)
        if not remember:
            check_no_key(key)
            return self.matches(self.read(self.snapshot(), events, attributes, on_error, now=present), top)
        turn = IngestBatch(self.history, events, attributes)
        turn.keys = None if key is None else keys_of(turn.rows, key)
        return self._remember(turn, on_error, top, present)

    def match_after(
        self,
        history: History,
        events: Any,
        attributes: str | None,
        on_error: OnError,
        keys: Sequence[Key | None] | None = None,
        then: Callable[[Matches], None] | None = None,
        now: Now = None,
    ) -> Matches:
        return self._remember(IngestBatch(history, events, attributes, keys), on_error, None, read_now(now), then)

    def _remember(
        self,
        turn: IngestBatch,
        on_error: OnError,
        top: int | None,
        now: Present = None,
        then: Callable[[Matches], None] | None = None,
    ) -> Matches:
        def match() -> Matches:
            own = None if turn.are_all_known() else turn
            matches = self.matches(self.read(self.snapshot(), turn.rows, turn.attributes, on_error, own, now), top)
            if then is not None:
                then(matches)
            if own is not None:
                own.remember()
            return matches

        return turn.history.change(match)

    def count(
        self, events: Any, attributes: str | None = None, on_error: OnError = "raise", now: Now = None
    ) -> NDArray[np.int64]:
        read = self.read(self.snapshot(), events, attributes, on_error, now=read_now(now))
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

    def check_batch(self, events: Any, attributes: str | None) -> int:
        """How many events it has. Raises EventError for the first that cannot be read."""
        wanted = self.find_wanted([layer.segment for layer in self.snapshot().layers])
        return read_events(events, wanted, attributes, types=self.types).events

    def find_witnesses(self, expression: Expression, event: Mapping[str, Any], now: Present = None) -> Any:
        """What explain says of the joins of an expression."""
        self.history.follow()
        return explain_join(joins_in(expression), event, self.history.state, now)

    def forget_names(self) -> None:
        """Those that subscriptions once mentioned."""
        self.names = WantedNames(())

    # ---- its parts ----

    def read(
        self,
        state: State,
        events: Any,
        attributes: str | None,
        on_error: OnError,
        turn: IngestBatch | None = None,
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
        if top is not None:
            parts = keep_heaviest(parts, top)
        id_types = frozenset(s.ids.ids.type for s in read.segments)
        matches = Matches(read.values.events, parts, read.values.problems, id_types)
        self.counters["pairs"] += matches.count
        return matches

    def find_wanted(self, segments: list[Segment], more: Collection[str] = ()) -> WantedNames:
        """The attributes that some subscription mentions, or once did, and these: rebuilt, or extended, only for new
        names."""
        wanted = self.names
        of = [number_names(wanted.names, s.domains) for s in segments]
        new = [s for s, n in zip(segments, of) if not n.complete]
        missing = bool(new) or not all(name in wanted.codes for name in more)
        if missing or (
            not wanted.is_sorted and any(n.disordered and len(s) > ROWS_IN_ORDER.value for s, n in zip(segments, of))
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

    def _join(self, segments: list[Segment], values: EventValues, turn: IngestBatch | None) -> EventValues:
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
            offsets, places = segment.joins_by_clause
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


def begin(
    changes: Changes, threads: int, choice: Choice | None, retain: Retention, counted: Mapping[str, int]
) -> Matching:
    """The engine of a matcher, whose subscriptions have only waited until now. counted: what matching in plain Python
    has. The turn of the changes is held."""
    changes.move_to(SegmentSet(choice or Choice(AUTO), changes.types), form_of)
    matching = Matching(changes, changes.layers, threads, History(check_retain(retain), changes.types))
    matching.counters.update(counted)
    if changes.refused == CLOSED:
        matching.history.close()
        changes.layers.close()
    return matching
