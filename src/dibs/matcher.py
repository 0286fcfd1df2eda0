"""The Matcher: subscriptions in, matches out.

    add -> check -> catalog (if durable) -> layers of segments      events -> values -> cells -> pairs -> ids

How subscriptions come and go is in standing.py; here are matching, upkeep and files.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, Union

import numpy as np
from numpy.typing import NDArray

from dibs.arguments import OnError as OnError
from dibs.arguments import check_flag, check_number, check_path, check_text, check_threads, refuse_copies
from dibs.coding.events import WantedNames, read_events
from dibs.describe import describe, describe_plan
from dibs.errors import (
    ArgumentError,
    DibsError,
    Rejected,
    show,
)
from dibs.explain import Explanation
from dibs.explain import explain as explain_expression
from dibs.history.derive import Remembering
from dibs.history.history import History, Key, check_key, check_no_key, keys_of
from dibs.history.phases import CONSTANTS, JOINS
from dibs.history.retention import Retention, check_retain
from dibs.history.stored import StoredHistory, check_whole, read_stored
from dibs.history.witness import explain_join
from dibs.index import AUTO
from dibs.intake import check_choice
from dibs.jit.undisturbed import bring
from dibs.language.expression import Expression
from dibs.language.joins import joins_in
from dibs.language.present import Now, Present, read_now
from dibs.language.printer import JOIN
from dibs.language.sql import parse, parse_kept
from dibs.language.types import with_domains
from dibs.matches import Matches
from dibs.matching import Matching
from dibs.segments.ids import Id
from dibs.segments.single.texts import dict_of, read_event, text_of
from dibs.segments.state import Layer, State, Waiting
from dibs.standing import StandingQueries
from dibs.storage import store, versions
from dibs.storage.declared import keep_types
from dibs.storage.history_rows import HistoryNews

if TYPE_CHECKING:
    from dibs.past.replay import Replay


Event = Union[Mapping[str, Any], bytes, bytearray, memoryview, str]  # a dict of attributes, or a JSON text of one
MOST_ROWS = 2**31  # no segment has more
SAVE_TRIES = 20  # another thread may remove a subscription at the wrong moment


class Matcher(StandingQueries):
    """Standing queries, and which of them an event satisfies.

    >>> m = Matcher()
    >>> m.add("alice", "color = 'silver' AND price <= 580")
    >>> m.match({"color": "silver", "price": 550})
    ['alice']

    index: a name in dibs.indexes(). threads: how many cores a batch may use (all by default). memory: how many bytes of
    each segment's index may be kept in memory, for an index that lies in files (index="pbtree"). retain: how much
    history is kept for EXISTS and FORALL: a number of documents, a timedelta, or a dibs.Retain (all by default).
    options: parameters of the index, which dibs.indexes() lists: {"dimensions": 3}. types: of attributes, as
    {"at": "timestamp", "price": "number"}: values that come as something else are converted, or refused (LANGUAGE.md).
    domains: of attributes whose values are integers between two, as {"rating": (0, 10)}: others are refused.

    Matcher() is in memory; Matcher.open(folder) is durable, and otherwise the same.
    """

    def __init__(
        self,
        index: str = AUTO,
        threads: int | None = None,
        memory: int | None = None,
        retain: Retention = None,
        options: Mapping[str, Any] | None = None,
        types: Mapping[str, str] | None = None,
        domains: Mapping[str, tuple[int, int]] | None = None,
    ):
        declared = with_domains(types, domains)
        super().__init__(index, check_choice(index, threads, memory, options), declared)
        history = History(check_retain(retain), declared)
        self._matching = Matching(check_threads(threads), self._layers.upkeep.wake, history, declared)

    @property
    def threads(self) -> int:
        """How many cores a batch may use."""
        return self._matching.threads

    @threads.setter
    def threads(self, threads: int) -> None:
        self._matching.threads = check_threads(threads)

    @property
    def history(self) -> History:
        """The documents that EXISTS, FORALL and (SELECT ...) speak of."""
        return self._matching.history

    @history.setter
    def history(self, history: History) -> None:
        self._matching.history = history

    # ---- matching ----

    def match(
        self,
        event: Event,
        top: int | None = None,
        remember: bool = False,
        key: Key | None = None,
        now: Now = None,
    ) -> list[Id]:
        """The ids of the subscriptions that the event satisfies, sorted; with `top`, those of the highest weight
        first, at most so many. An event is a dict of attributes, or a JSON text of one. remember: then the event is
        added to the history, which is the only way in which a match changes anything; with a key, only if no document
        of that key is there. now: what now() is: an instant (a datetime, or a string as '2024-05-01T12:00:00Z'; by
        default the clock's), or the name of the attribute that holds the event's own time. Raises EventError when it
        cannot be read."""
        present = None if now is None else read_now(now)
        if remember is not False:
            check_flag("remember", remember)
        if key is not None and not remember:
            check_no_key(key)
        text = text_of(event)
        if top is None and remember is False and text is not None:
            self._news()
            state = self._layers.read(few_wait=True)
            ids = self._matching.match_text(state, text, present)
            if ids is None and state.waiting:
                ids = self._matching.match_text(self.snapshot(), text, present)
            if ids is not None:
                return ids
        if key is not None:
            k = None if top is None else min(check_number("top", top), MOST_ROWS)
            turn = Remembering(self.history, [dict_of(event)], None, [check_key(key)])
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
        """Matches a batch: a list of dicts, an Arrow table or record batch, or JSON lines as bytes.

        attributes: the MAP, STRUCT or JSON column that holds the attributes (else the columns are the attributes).
        top: keep only the pairs whose weight is among the event's `top` highest (ties included; Matches.top(k) then
        orders them); the others are forgotten as they are found, so memory does not grow with them.
        on_error="skip": what cannot be read is listed in .problems instead of raised; a value that cannot be read
        makes every predicate on it unknown, an event that cannot be read at all matches nothing.
        remember: as if the events came one after the other, each added to the history before the next is matched; all
        of them or, when one cannot be read or kept (a Range, a key that is no string), none. key: the column
        (attribute) that holds their keys, as in history.load; an event whose key is there already, or came before in
        the batch, is matched and not added again. now: as in match, one instant for all events unless it is a name.
        """
        present = read_now(now)
        top = None if top is None else min(check_number("top", top), MOST_ROWS)
        check_flag("remember", remember)
        check_text("key", key)
        matching = self._matching
        if not remember:
            check_no_key(key)
            return matching.matches(matching.read(self.snapshot(), events, attributes, on_error, now=present), top)
        turn = Remembering(self.history, events, attributes)
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
        """Matches events one after the other, each on this history, to which it is then added; all of them or none.
        keys: of each event; one that is there already is not added again. then: is told the matches before anything is
        added, and nothing is if it raises."""
        return self._remember(Remembering(history, events, attributes, keys), on_error, None, read_now(now), then)

    def _remember(
        self,
        turn: Remembering,
        on_error: OnError,
        top: int | None,
        now: Present = None,
        then: Callable[[Matches], None] | None = None,
    ) -> Matches:
        def match() -> Matches:
            own = None if turn.are_all_known() else turn
            matches = self._matching.matches(
                self._matching.read(self.snapshot(), turn.rows, turn.attributes, on_error, own, now), top
            )
            if then is not None:
                then(matches)
            if own is not None:
                own.remember()
            return matches

        return turn.history.change(match)

    def check_batch(self, events: Any, attributes: str | None = None) -> int:
        """Reads a batch as match_batch does, and matches nothing: how many events it has. Raises EventError for the
        first that cannot be read."""
        wanted = self._matching.find_wanted([layer.segment for layer in self.snapshot().layers])
        return read_events(events, wanted, attributes, types=self._types).events

    def count(
        self, events: Any, attributes: str | None = None, on_error: OnError = "raise", now: Now = None
    ) -> NDArray[np.int64]:
        """How many subscriptions each event satisfies, without making the pairs. now: as in match_batch."""
        matching = self._matching
        return matching.count(matching.read(self.snapshot(), events, attributes, on_error, now=read_now(now)))

    def explain(self, id: Id, event: Event, now: Now = None) -> Explanation:
        """Why the subscription matches the event, or why not, predicate by predicate. now: as in match."""
        return self._explain(parse_kept(self.expression(id), self._types), event, id, now)

    def explain_text(self, text: str, event: Event, id: Id | None = None, now: Now = None) -> Explanation:
        """The same of an expression that need not be added, on the history as it is."""
        return self._explain(parse(text, self._types), event, id, now)

    def _explain(self, expression: Expression, event: Event, id: Id | None, now: Now) -> Explanation:
        present = read_now(now)
        event = read_event(event)
        self.history.follow()
        joins = explain_join(joins_in(expression), event, self.history.state)
        return explain_expression(expression, event, id, joins, present, self._types)

    def stats(self) -> dict[str, Any]:
        """What is stored and what matching has cost so far; disagreements: attributes seen only in other kinds than
        subscriptions compare them with, in the batches that were looked at."""
        own = {"index": self.index, "threads": self.threads, "matching": dict(self._matching.counters)}
        result = own | describe(self.snapshot(), self._layers.upkeep)
        segments = [layer.segment for layer in self.snapshot().layers]
        result["disagreements"] = self._matching.seen.disagreements(segments)
        result["history"] = {"documents": len(self.history), "joins": len(self.joins)}
        durable = self._changes.durable
        return result if durable is None else result | {"storage": durable.stats()}

    def plan_joins(self, order: str | None = None, prefilter: bool | None = None) -> None:
        """How joins over history are answered, for measuring; the matches are the same. order: "joins" or "constants"
        come first (None: whatever is measured to be cheaper). prefilter: whether subscriptions that the present history
        cannot satisfy are found out beforehand (None: when it is worth its time)."""
        if order is not None and not (isinstance(order, str) and order in (JOINS, CONSTANTS)):
            raise ArgumentError(f"order must be 'joins', 'constants' or None, not {show(order)}")
        if prefilter is not None:
            check_flag("prefilter", prefilter)
        self._matching.costs.order = order
        self._matching.prefilter.wanted = prefilter

    def explain_plan(self) -> str:
        """How the index has filed the subscriptions, and why; and in which order joins and constants are looked at."""
        plan = describe_plan(self.snapshot())
        joins = self.joins
        if not joins:
            return plan
        told = self._matching.tell_of(tuple(JOIN + join for join in joins), len(self))
        return "\n  ".join([f"{plan}\njoins: {len(joins):,} over {len(self.history):,} documents", *told])

    def replay(
        self,
        events: Any,
        attributes: str | None = None,
        on_error: OnError = "raise",
        progress: Callable[[int], None] | None = None,
        on_matches: Callable[[int, Matches], None] | None = None,
        history: Any = None,
        now: Now = None,
    ) -> Replay:
        """Runs stored events (whatever match_batch takes, or the path of a Parquet, Arrow or JSON lines file, or of a
        folder of them) through all subscriptions: how often each matched, and which never did. Batch by batch, so
        memory stays bounded; `on_matches` gets the number of each batch's first event and its Matches, and `progress`
        how many more events are done. For an expression that is not added yet: dibs.backtest.

        history: what joins over history see before the first event: documents, as history.load takes them (none by
        default). Each event sees those before it, within what the matcher retains; its own history is left alone.
        now: as in match_batch; now="at" gives each event its own time, in its attribute `at`."""
        replay: Callable[..., Replay] = bring("dibs.past.replay").replay
        options: dict[str, Any] = {"progress": progress, "on_matches": on_matches, "history": history, "now": now}
        return replay(self, events, attributes=attributes, on_error=on_error, **options)

    # ---- upkeep and files ----

    def compact(self) -> None:
        """Merges everything and forgets what was removed: fastest matching, least memory."""
        self._news()
        self._layers.compact()
        self._matching.names = WantedNames(())
        durable = self._changes.durable
        if durable is not None and not durable.read_only:
            self._layers.upkeep.run(partial(durable.checkpoint, self._layers))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the compiled subscriptions, and the history, as a directory that load() maps into memory. An index
        that stands there is replaced; anything else is left alone and refused."""
        target = check_path(path)
        for _ in range(SAVE_TRIES):
            self.compact()
            state = self._layers.read()
            if not any(x.gone.count for x in state.layers):
                segments = [x.segment for x in state.layers]
                history = read_stored(self.history)
                options = dict(self._choice.options)
                store.save_all(segments, target, self.index, state.version, options, history, self.types)
                return
        raise DibsError("subscriptions are removed faster than they can be saved; save when there is less to do")

    def export(self, path: str | os.PathLike[str], progress: Callable[[int], None] | None = None) -> int:
        """Writes all subscriptions, as they are now, to a .parquet or .jsonl file, in the order of their ids; returns
        how many. Equal subscriptions give equal bytes. Raises StorageError."""
        export: Callable[..., int] = bring("dibs.exchange").export
        return export(self, path, progress)

    def import_from(
        self,
        path: str | os.PathLike[str],
        on_error: OnError = "raise",
        progress: Callable[[int], None] | None = None,
    ) -> list[Rejected]:
        """Adds the subscriptions of a file that export() wrote, or of any Parquet file or JSON lines with id,
        expression and, if wanted, weight: all or none, as add_many."""
        import_from: Callable[..., list[Rejected]] = bring("dibs.exchange").import_from
        return import_from(self, path, on_error, progress)

    @classmethod
    def load(cls, path: str | os.PathLike[str], threads: int | None = None, history: bool = True) -> Matcher:
        """Opens what save() wrote, memory-mapped and read-only; or the latest version of what dibs.spark.compile wrote,
        which has no history. A durable folder is opened as open(read_only=True). history=False: without the documents
        that were saved, for whoever wants the subscriptions alone."""
        source = check_path(path)
        check_flag("history", history)
        if store.is_durable(source):
            if not history:
                raise ArgumentError(f"history=False is for what save() wrote; {source} is a durable folder")
            return cls.open(source, threads=threads, read_only=True)
        if versions.is_versioned(source):
            version = versions.read_version(source)
            state = versions.load_state(source, version)
            return cls.of_state(state, version.index, threads, version.options, types=version.types)
        manifest, segments, documents = store.load_saved(source)
        if documents is not None and manifest.history is not None and history:
            check_whole(documents, source / manifest.history)
        layers = [Layer(its, store.gone_of(source, stored)) for its, stored in zip(segments, manifest.segments)]
        state = State(manifest.version, tuple(layers))
        kept = documents if history else None
        return cls.of_state(state, manifest.index, threads, manifest.options, kept, manifest.types)

    @classmethod
    def of_state(
        cls,
        state: State,
        index: str,
        threads: int | None = None,
        options: Mapping[str, Any] | None = None,
        documents: HistoryNews | None = None,
        types: Mapping[str, str] | None = None,
    ) -> Matcher:
        """One that is read-only, of segments and documents that were saved: for other parts of Dibs. Segments stay as
        they are, unless compact() is called, so that processes share their pages."""
        matcher = cls(index=index, threads=threads, options=options, types=types)
        matcher._layers.restore(state)
        matcher._layers.keep_segments()
        matcher._changes.refused = "was opened from saved files and is read-only: add to a new one and save it"
        matcher.history = StoredHistory(documents, matcher._types)
        matcher.history.refused = "its matcher was opened from saved files and is read-only"
        return matcher

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        index: str | None = None,
        threads: int | None = None,
        read_only: bool = False,
        memory: int | None = None,
        options: Mapping[str, Any] | None = None,
        retain: Retention = None,
        types: Mapping[str, str] | None = None,
        domains: Mapping[str, tuple[int, int]] | None = None,
    ) -> Matcher:
        """Opens a durable matcher, or makes one: what add() has returned from is on the disk, and so is what was added
        to the history. A folder has one writer; with read_only=True any number of processes follow what it does, each
        match seeing the latest state.

        index: by default that of the folder ("auto" for a new one), with its options; another one, or with others, is
        built again from what is there. retain: by default what the folder was opened with last (all, for a new one).
        types, domains: those of the folder, which are given when it is made.
        Raises WriterActive, StorageError, DamagedError, FormatError."""
        history_module = bring("dibs.history.durable")  # most programs do without SQLite
        storage_module = bring("dibs.storage.durable")
        folder = check_path(path)
        check_flag("read_only", read_only)
        given = None if types is None and domains is None else with_domains(types, domains)
        kept = check_retain(retain)
        if read_only and retain is not None:
            raise ArgumentError("retain is the writer's: with read_only=True the history is as it is")
        if index is not None or not store.is_durable(folder):
            check_choice(AUTO if index is None else index, threads, memory, options)  # before anything is made
        is_new = not store.is_durable(folder)
        durable = storage_module.Durable.open(folder, read_only, index, options)
        try:
            declared = keep_types(folder, given, is_new)
            matcher = cls(durable.index, threads, memory, options=durable.options, types=declared)
            durable.restore(matcher._layers)
            matcher._changes.durable = durable
            matcher.history = history = history_module.DurableHistory(
                durable.catalog.history(), matcher._changes, declared
            )
            durable.history = weakref.ref(history)
            if read_only:
                matcher._changes.refused = "is open with read_only=True: open the folder without it to change it"
            elif retain is not None:
                history.keep(kept)
        except BaseException:
            durable.close()
            raise
        return matcher

    def take_over(self, items: Mapping[Id, Waiting], version: int, **counted: int) -> None:
        """Of an empty one: the subscriptions of a matcher without kernels (dibs.cold), and what it has counted."""
        self._layers.restore(State(version, (), items))
        for name, count in counted.items():
            self._matching.counters[name] += count

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

    def __reduce__(self) -> NoReturn:
        refuse_copies()

    def __enter__(self) -> Matcher:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Matcher: {len(self):,} subscriptions, index {self.index!r}>"
