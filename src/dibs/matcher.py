"""The Matcher: subscriptions in, matches out.

    add -> check -> catalog (if durable) -> layers of segments      events -> values -> cells -> pairs -> ids

A change is checked, made durable, and then applied to the layers (segments.layers), which the next match sees. A batch
collects changes and does the same once for all of them.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dibs.additions import add_columns, add_items
from dibs.arguments import OnError as OnError
from dibs.arguments import check_flag, check_on_error, checked_number, checked_path, checked_several, checked_threads
from dibs.changes import CLOSED, Batch, Changes
from dibs.coding.batch import numbered
from dibs.coding.clauses import runs
from dibs.coding.events import WantedNames, read_events
from dibs.coding.values import EventValues
from dibs.describe import described, planned
from dibs.errors import (
    ArgumentError,
    DibsError,
    DuplicateId,
    EventError,
    Rejected,
    UnknownId,
    UnknownIndex,
    shown,
)
from dibs.explain import Explanation
from dibs.explain import explain as explain_expression
from dibs.history.derive import Joins, Remembering
from dibs.history.history import History
from dibs.history.phases import Candidates, Costs
from dibs.history.retention import Retention, checked_retain
from dibs.history.witness import explained
from dibs.index import AUTO, INDEXES, Pairs, Sink, find
from dibs.intake import checked_columns, checked_id, checked_weight, sought_id
from dibs.language.joins import is_join, joins_in
from dibs.language.printer import JOIN
from dibs.language.sql import parse
from dibs.matches import Heaviest, Matches, Part, Reader
from dibs.segments.compile import form_of
from dibs.segments.gone import Bits, alive
from dibs.segments.ids import Id
from dibs.segments.layers import Layers
from dibs.segments.segment import DEFAULT_WEIGHT, Choice, Segment
from dibs.segments.state import Layer, State, Subscription
from dibs.storage import store
from dibs.thresholds import thresholds

if TYPE_CHECKING:
    from dibs.past.replay import Replay


MOST_ROWS = 2**31  # no segment has more
SAVE_TRIES = 20  # another thread may remove a subscription at the wrong moment


class Matcher:
    """Standing queries, and which of them an event satisfies.

    >>> m = Matcher()
    >>> m.add("alice", "color = 'silver' AND price <= 580")
    >>> m.match({"color": "silver", "price": 550})
    ['alice']

    index: a name in dibs.indexes(). threads: how many cores a batch may use (all by default). memory: how many bytes of
    each segment's index may be kept in memory, for an index that lies in files (index="pbtree"). retain: how much
    history is kept for EXISTS and FORALL: a number of documents, a timedelta, or a dibs.Retain (all by default).

    Matcher() is in memory; Matcher.open(folder) is durable, and otherwise the same.
    """

    def __init__(
        self, index: str = AUTO, threads: int | None = None, memory: int | None = None, retain: Retention = None
    ):
        self._choice = _checked(index, threads, memory)
        self.index = index
        self.threads = checked_threads(threads)
        self._layers = Layers(self._choice)
        self._changes = Changes(self._layers)
        counters = ("events", "pairs", "candidates", "false candidates", "predicates", "nodes")
        self._counters = dict.fromkeys(counters, 0)
        self._names = WantedNames(())
        self._joins: Joins | None = None  # of the subscriptions that were matched last
        self._costs = Costs()  # of answering them
        self.history = History(checked_retain(retain))

    # ---- subscriptions ----

    def add(self, id: Id, expression: str, weight: float = DEFAULT_WEIGHT) -> None:
        """Adds one subscription. Raises ExpressionError (with .problems) or DuplicateId."""
        id, weight = checked_id(id), checked_weight(weight)
        form = form_of(expression, self._changes.no_joins)

        def add() -> None:
            if self._changes.has(id):
                raise DuplicateId(id)
            self._changes.make([(id, expression, weight, form)], new=True)

        self._changes.change(add)

    def add_many(self, items: Iterable[tuple[Any, ...]], on_error: OnError = "raise") -> list[Rejected]:
        """Adds (id, expression) or (id, expression, weight) items: all of them or, when one is bad, none
        (SubscriptionErrors lists every bad one). on_error="skip" adds the good ones and returns the others."""
        return add_items(self._changes, items, on_error)

    def add_table(
        self,
        table: pa.Table | pa.RecordBatch,
        on_error: OnError = "raise",
        progress: Callable[[int], None] | None = None,
    ) -> list[Rejected]:
        """Adds the rows of an Arrow table with the columns id, expression and, if there is one, weight: the bulk
        path. All or none, as add_many. `progress` is told how many more rows are parsed."""
        return add_columns(self._changes, *checked_columns(table), on_error, progress)

    def remove(self, id: Id) -> None:
        """Removes a subscription. Raises UnknownId."""
        self.remove_many([id])

    def remove_many(self, ids: Iterable[Id]) -> None:
        """Removes subscriptions: all of them or, when one is not there, none. Raises UnknownId."""
        ids = list(checked_several(ids, "several ids", "use remove for one"))

        def remove() -> None:
            found: dict[Id, None] = {}
            for given in ids:
                id = sought_id(given)
                if id is None or id in found or not self._changes.has(id):
                    raise UnknownId(given)
                found[id] = None
            self._changes.make([(id, None, 0.0, None) for id in found])

        self._changes.change(remove)

    def replace(self, id: Id, expression: str, weight: float | None = None) -> None:
        """Changes a subscription's expression (and its weight, if given) at once: no event sees it missing, and a
        bad expression changes nothing. Raises UnknownId or ExpressionError."""
        form = form_of(expression, self._changes.no_joins)
        given = None if weight is None else checked_weight(weight)

        def replace() -> None:
            known = self._known(id)
            old = self._changes.get(known).weight
            self._changes.make([(known, expression, old if given is None else given, form)])

        self._changes.change(replace)

    def batch(self) -> AbstractContextManager[Matcher]:
        """Changes inside the block are made together at its end: durable by one write, visible to matches all at once,
        and none of them if the block raises. Other threads' changes wait meanwhile; matches do not."""
        return cast("AbstractContextManager[Matcher]", Batch(self._changes, self))

    def __len__(self) -> int:
        self._follow()
        return len(self._changes)

    def __contains__(self, id: object) -> bool:
        self._follow()
        sought = sought_id(id)
        return sought is not None and self._changes.has(sought)

    def get(self, id: Id) -> Subscription:
        """What is known of a subscription: expression, weight, version and, in a durable matcher, time. Raises
        UnknownId."""
        self._news()
        found, durable = self._changes.get(self._known(id)), self._changes.durable
        return found if durable is None else durable.timed(found)

    @staticmethod
    def _known(id: Any) -> Id:
        """The id, which some subscription may have."""
        sought = sought_id(id)
        if sought is None:
            raise UnknownId(id)
        return sought

    def expression(self, id: Id) -> str:
        """The text of a subscription."""
        return self.get(id).expression

    def weight(self, id: Id) -> float:
        """The weight of a subscription."""
        return self.get(id).weight

    @property
    def version(self) -> int:
        """Counts changes: each add, remove or replace is one. A subscription's own version is that of the change that
        made it what it is."""
        self._news()
        return self._layers.state.version

    @property
    def attributes(self) -> frozenset[str]:
        """The attributes that subscriptions mention: no others are read from events."""
        names = frozenset().union(*(x.segment.names for x in self._snapshot().layers))
        return frozenset(name for name in names if not is_join(name))

    @property
    def joins(self) -> list[str]:
        """The different joins over history that subscriptions mention, as SQL."""
        layers = self._snapshot().layers
        found = {name for x in layers if x.segment.joins for name in x.segment.joins_of(x.gone.kept())}
        return sorted(name[len(JOIN) :] for name in found)

    @property
    def weighted(self) -> bool:
        """Whether some subscription has been given a weight of its own."""
        return any(x.segment.weights is not None for x in self._snapshot().layers)

    # ---- matching ----

    def match(self, event: Mapping[str, Any], top: int | None = None, remember: bool = False) -> list[Id]:
        """The ids of the subscriptions that the event satisfies, sorted; with `top`, those of the highest weight
        first, at most so many. remember: then the event is added to the history, which is the only way in which a match
        changes anything. Raises EventError when the event cannot be read."""
        if not isinstance(event, Mapping):
            raise EventError(
                f"an event is a dict of attributes, not {type(event).__name__}; use match_batch for several"
            )
        matches = self.match_batch([event], top=top, remember=remember)
        return next(iter(matches)) if top is None else matches.top(top)[0]

    def match_batch(
        self,
        events: Any,
        attributes: str | None = None,
        on_error: OnError = "raise",
        top: int | None = None,
        remember: bool = False,
    ) -> Matches:
        """Matches a batch: a list of dicts, an Arrow table or record batch, or JSON lines as bytes.

        attributes: the MAP, STRUCT or JSON column that holds the attributes (else the columns are the attributes).
        top: keep only the pairs whose weight is among the event's `top` highest (ties included; Matches.top(k) then
        orders them); the others are forgotten as they are found, so memory does not grow with them.
        on_error="skip": what cannot be read is listed in .problems instead of raised; a value that cannot be read
        makes every predicate on it unknown, an event that cannot be read at all matches nothing.
        remember: as if the events came one after the other, each added to the history before the next is matched; all
        of them or, when one cannot be read, none.
        """
        top = None if top is None else min(checked_number("top", top), MOST_ROWS)
        check_flag("remember", remember)
        if not remember:
            return self._matches(self._read(events, attributes, on_error), top)
        turn = Remembering(self.history, events, attributes)
        with self.history.lock:
            matches = self._matches(self._read(turn.rows, attributes, on_error, turn), top)
            turn.remember()
        return matches

    def _matches(self, read: tuple[list[Segment], EventValues, list[Reader]], top: int | None) -> Matches:
        segments, values, readers = read
        parts: list[Part] = []
        for segment, seen in zip(segments, readers):
            if top is None:
                parts += [(segment, *seen(*chunk)) for chunk in self._matched(segment, values, None).chunks]
            else:
                best = Heaviest(segment.weights_at, seen, top)
                self._matched(segment, values, best.add)
                parts.append((segment, *best.pairs()))
        id_types = frozenset(s.ids.ids.type for s in segments)
        matches = Matches(values.events, parts, values.problems, id_types)
        self._counters["pairs"] += matches.count
        return matches

    def count(self, events: Any, attributes: str | None = None, on_error: OnError = "raise") -> NDArray[np.int64]:
        """How many subscriptions each event satisfies, without making the pairs."""
        segments, values, readers = self._read(events, attributes, on_error)
        result = np.zeros(values.events, np.int64)
        lock = threading.Lock()
        for segment, seen in zip(segments, readers):

            def add(event: NDArray[np.int32], row: NDArray[np.int32], s: Reader = seen) -> None:
                found = np.bincount(s(event, row)[0], minlength=len(result))
                with lock:
                    np.add(result, found, out=result)

            self._matched(segment, values, add)
        self._counters["pairs"] += int(result.sum())
        return result

    def _news(self) -> None:
        """Before the state is asked: it must be open, and have what another process has written since."""
        if self._changes.refused == CLOSED:
            raise DibsError(f"this matcher {CLOSED}")
        self._follow()

    def _follow(self) -> None:
        durable = self._changes.durable
        if durable is not None and self._changes.refused != CLOSED:
            if durable.read_only:
                durable.follow(self._layers)
            else:
                durable.check_process()
                self._changes.settle()

    def _snapshot(self) -> State:
        self._news()
        return self._layers.read()

    def _read(
        self, events: Any, attributes: str | None, on_error: OnError, turn: Remembering | None = None
    ) -> tuple[list[Segment], EventValues, list[Reader]]:
        """The segments to match, the values of the events, and for each segment which of its pairs count."""
        check_on_error(on_error)
        state = self._snapshot()
        segments = [x.segment for x in state.layers]
        values = read_events(events, self._wanted(segments), attributes=attributes, on_error=on_error)
        if turn is not None or any(s.joins for s in segments):
            values = self._joined(segments, values, turn)
        dead = None
        if len(values.unreadable_events):
            dead = np.zeros(values.events, np.bool_)
            dead[values.unreadable_events] = True
        self._counters["events"] += values.events
        return segments, values, [partial(_seen, x.gone.bits, dead) for x in state.layers]

    def _joined(self, segments: list[Segment], values: EventValues, turn: Remembering | None) -> EventValues:
        """The events with what joins over history say of them."""
        names = tuple(dict.fromkeys(name for s in segments for name in s.joins))
        joins = self._joins
        if names and (joins is None or joins.names != names):
            joins = self._joins = Joins(names, self._costs)
        states = repeat(self.history.state) if turn is None else turn.states(joins if names else None, values)
        return joins.derived(values, partial(self._candidates, segments), states) if names and joins else values

    def _candidates(self, segments: list[Segment], values: EventValues) -> Candidates:
        """The joins of the subscriptions that match."""
        for segment in segments:
            offsets, places = segment.joins_by_row
            if len(places):
                pairs = segment.match(values, self.threads)
                sizes = np.diff(offsets)[pairs.row]
                yield (
                    segment.joins,
                    np.repeat(pairs.event, sizes).astype(np.int64),
                    places[runs(offsets[pairs.row], sizes)],
                )

    def _matched(self, segment: Segment, values: EventValues, sink: Sink | None) -> Pairs:
        pairs = segment.match(values, self.threads, sink)
        if segment.has_pending_work:
            self._layers.upkeep.wake()
        self._counters["candidates"] += pairs.candidates
        self._counters["predicates"] += pairs.predicates
        self._counters["nodes"] += pairs.nodes
        self._counters["false candidates"] += pairs.false_candidates
        return pairs

    def _wanted(self, segments: list[Segment]) -> WantedNames:
        """The attributes that some subscription mentions, or once did: made anew, or extended, only for new names."""
        wanted = self._names
        of = [numbered(wanted.names, s.domains) for s in segments]
        new = [s for s, n in zip(segments, of) if not n.complete]
        if new or (
            not wanted.is_sorted
            and any(n.disordered and len(s) > thresholds.rows_in_order for s, n in zip(segments, of))
        ):
            extended = wanted.extended(name for s in new for name in s.names) if new else None
            wanted = self._names = extended or WantedNames(frozenset().union(*(s.names for s in segments)))
        return wanted

    def _check_no_joins(self, done: str) -> None:
        joins = self.joins
        if joins:
            raise DibsError(
                f"subscriptions with joins over history cannot be {done} yet, and there are {len(joins):,} joins, as "
                f"{joins[0]}: remove these subscriptions, or keep them in a matcher of their own"
            )

    def explain(self, id: Id, event: Mapping[str, Any]) -> Explanation:
        """Why the subscription matches the event, or why not, predicate by predicate."""
        if not isinstance(event, Mapping):
            raise EventError(f"an event is a dict of attributes, not {type(event).__name__}")
        expression = parse(self.expression(id))
        return explain_expression(expression, event, id, explained(joins_in(expression), event, self.history.state))

    def stats(self) -> dict[str, Any]:
        """What is stored and what matching has cost so far."""
        own = {"index": self.index, "threads": self.threads, "matching": dict(self._counters)}
        result = own | described(self._snapshot(), self._layers.upkeep)
        result["history"] = {"documents": len(self.history), "joins": len(self.joins)}
        durable = self._changes.durable
        return result if durable is None else result | {"storage": durable.stats()}

    def explain_plan(self) -> str:
        """How the index has filed the subscriptions, and why; and in which order joins and constants are looked at."""
        plan = planned(self._snapshot())
        joins = self.joins
        if not joins:
            return plan
        told = Joins(tuple(JOIN + join for join in joins), self._costs).told()
        return "\n  ".join([f"{plan}\njoins: {len(joins):,} over {len(self.history):,} documents", *told])

    def replay(
        self,
        events: Any,
        attributes: str | None = None,
        on_error: OnError = "raise",
        progress: Callable[[int], None] | None = None,
        on_matches: Callable[[int, Matches], None] | None = None,
    ) -> Replay:
        """Runs stored events (whatever match_batch takes, or the path of a Parquet, Arrow or JSON lines file, or of a
        folder of them) through all subscriptions: how often each matched, and which never did. Batch by batch, so
        memory stays bounded; `on_matches` gets the number of each batch's first event and its Matches, and `progress`
        how many more events are done. For an expression that is not added yet: dibs.backtest."""
        from dibs.past.replay import replay

        self._check_no_joins("replayed")
        return replay(self, events, attributes=attributes, on_error=on_error, progress=progress, on_matches=on_matches)

    # ---- upkeep and files ----

    def compact(self) -> None:
        """Merges everything and forgets what was removed: fastest matching, least memory."""
        self._news()
        self._layers.compact()
        self._names = WantedNames(())
        durable = self._changes.durable
        if durable is not None and not durable.read_only:
            self._layers.upkeep.run(partial(durable.checkpoint, self._layers))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the compiled subscriptions as a directory that load() maps into memory. An index that stands there
        is replaced; anything else is left alone and refused."""
        target = checked_path(path)
        for _ in range(SAVE_TRIES):
            self.compact()
            self._check_no_joins("saved")
            state = self._layers.read()
            if not any(x.gone.count for x in state.layers):
                segments = [x.segment for x in state.layers]
                store.save_all(segments, target, self.index, state.version)
                return
        raise DibsError("subscriptions are removed faster than they can be saved; save when there is less to do")

    def export(self, path: str | os.PathLike[str], progress: Callable[[int], None] | None = None) -> int:
        """Writes all subscriptions, as they are now, to a .parquet or .jsonl file, in the order of their ids; returns
        how many. Equal subscriptions give equal bytes. Raises StorageError."""
        from dibs.exchange import export

        return export(self, path, progress)

    def import_from(
        self,
        path: str | os.PathLike[str],
        on_error: OnError = "raise",
        progress: Callable[[int], None] | None = None,
    ) -> list[Rejected]:
        """Adds the subscriptions of a file that export() wrote, or of any Parquet file or JSON lines with id,
        expression and, if wanted, weight: all or none, as add_many."""
        from dibs.exchange import import_from

        return import_from(self, path, on_error, progress)

    @classmethod
    def load(cls, path: str | os.PathLike[str], threads: int | None = None) -> Matcher:
        """Opens what save() wrote, memory-mapped and read-only. A durable folder is opened as open(read_only=True)."""
        source = checked_path(path)
        if store.is_durable(source):
            return cls.open(source, threads=threads, read_only=True)
        manifest, segments = store.load_all(source)
        matcher = cls(index=manifest.index, threads=threads)
        matcher._layers.restore(State(manifest.version, tuple(map(Layer.of, segments))))
        matcher._changes.refused = "was opened from saved files and is read-only: add to a new one and save it"
        matcher.history.refused = "saved files have none yet; use dibs.Matcher()"
        return matcher

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        index: str | None = None,
        threads: int | None = None,
        read_only: bool = False,
        memory: int | None = None,
    ) -> Matcher:
        """Opens a durable matcher, or makes one: what add() has returned from is on the disk. A folder has one writer;
        with read_only=True any number of processes follow what it does, each match seeing the latest state.

        index: by default that of the folder ("auto" for a new one); another one is built anew. Raises WriterActive,
        StorageError, DamagedError, FormatError."""
        from dibs.storage.durable import Durable  # most programs do without SQLite

        folder = checked_path(path)
        check_flag("read_only", read_only)
        if index is not None or not store.is_durable(folder):
            _checked(AUTO if index is None else index, threads, memory)  # before anything is made
        durable = Durable.open(folder, read_only, index)
        try:
            matcher = cls(durable.index, threads, memory)
            durable.restore(matcher._layers)
        except BaseException:
            durable.close()
            raise
        matcher._changes.durable = durable
        matcher._changes.no_joins = "in a durable matcher yet"
        matcher.history.refused = "a durable matcher has none yet; use dibs.Matcher()"
        if read_only:
            matcher._changes.refused = "is open with read_only=True: open the folder without it to change it"
        return matcher

    def close(self) -> None:
        """Lets go of everything; the matcher can be neither changed nor asked afterwards. May be called again, also
        after it was interrupted."""
        durable = self._changes.durable
        self._changes.close()
        self.history.close()
        try:
            if durable is not None and not durable.is_closed:
                durable.finish(self._layers)
        finally:
            self._layers.close()
            if durable is not None:
                durable.close()

    def __enter__(self) -> Matcher:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Matcher: {len(self):,} subscriptions, index {self.index!r}>"


def _checked(index: str, threads: int | None, memory: int | None) -> Choice:
    if not isinstance(index, str):
        raise ArgumentError(f"an index is chosen by its name, not by {shown(index)}; dibs.indexes() has the names")
    if index not in INDEXES:
        raise UnknownIndex(index, list(INDEXES))
    checked_threads(threads)
    if memory is None:
        return Choice(index)
    least = getattr(find(index), "least_memory", None)
    if least is None:
        raise ArgumentError(
            f"index {index!r} lies in memory as a whole: memory=... is for those that lie in files: pbtree"
        )
    memory = checked_number("memory", memory, least, f"a number of bytes, at least {least:,}")
    return Choice(index, (("memory", memory),))


def _seen(
    gone: Bits | None, dead: NDArray[np.bool_] | None, event: NDArray[np.int32], row: NDArray[np.int32]
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """The pairs that count: of subscriptions that are there, of events that could be read."""
    if gone is not None:
        event, row = alive(gone, event, row)
    if dead is not None:
        keep = ~dead[event]
        event, row = event[keep], row[keep]
    return event, row
