"""The Matcher: subscriptions in, matches out.

    add -> check -> catalog (if durable) -> layers of segments      events -> values -> cells -> pairs -> ids

How subscriptions come and go, and how the engine arrives, is in subscriptions.py; how events are matched, in
matching.py (the engine) and, until it is here, in plain.py. Nothing that takes long to import is imported here.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, Union

from dibs import engine
from dibs.arguments import Id, check_flag, check_path, check_threads, refuse_copies
from dibs.arguments import OnError as OnError
from dibs.errors import ArgumentError, DibsError, Rejected, show
from dibs.jit.undisturbed import bring
from dibs.language.expression import Expression
from dibs.language.joins import joins_in
from dibs.language.present import Now, read_now
from dibs.language.printer import JOIN
from dibs.language.sql import parse, parse_kept
from dibs.language.types import with_domains
from dibs.notebooks import Text
from dibs.subscriptions import AUTO, Subscriptions

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from dibs.explain import Explanation
    from dibs.history.history import History, Key
    from dibs.history.retention import Retention
    from dibs.matches import Matches
    from dibs.past.replay import Replay
    from dibs.segments.state import State
    from dibs.storage.documents import HistoryNews

Event = Union[Mapping[str, Any], bytes, bytearray, memoryview, str]  # a dict of attributes, or a JSON text of one
TEXTS = "dibs.segments.single.texts"
SAVE_TRIES = 20  # another thread may remove a subscription at the wrong moment


class Matcher(Subscriptions):
    """Standing queries, and which of them an event satisfies.

    >>> m = Matcher()
    >>> m.add("alice", "color = 'silver' AND price <= 580")
    >>> m.match({"color": "silver", "price": 550})
    ['alice']

    index: a name in dibs.indexes(). threads: how many cores a batch may use (all by default). memory: how many bytes of
    each segment's index may be kept in memory, for an index that lies in files (index="pbtree"). retain: how much
    history is kept for EXISTS and FORALL: a number of documents, a timedelta, or a dibs.Retain (all by default).
    options: parameters of the index, which dibs.indexes() lists: {"dimensions": 3}. types: of attributes, as
    {"at": "timestamp", "price": "number"}: values that come as something else are converted, or refused
    (docs/language.md). domains: of attributes whose values are integers between two, as {"rating": (0, 10)}: others
    are refused.

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
        others = (memory, retain, options, types, domains)
        is_default = type(index) is str and index == AUTO and all(given is None for given in others)
        run = engine.current if is_default else engine.require()
        choice = None if run is None else run.check_choice(index, threads, memory, options)
        super().__init__(check_threads(threads), index, choice, retain, declared)
        if run is not None:
            self.use_engine(run)

    @property
    def threads(self) -> int:
        """How many cores a batch may use."""
        return self._threads

    @threads.setter
    def threads(self, threads: int) -> None:
        self._threads = check_threads(threads)
        if self._matching is not None:
            self._matching.threads = self._threads

    @property
    def history(self) -> History:
        """The documents that EXISTS, FORALL and (SELECT ...) speak of."""
        return (self._matching or self.use_engine()).history

    @history.setter
    def history(self, history: History) -> None:
        (self._matching or self.use_engine()).history = history

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
        if self._matching is None:
            found: list[Id] = self._ask("match", event, top, remember, key, now)
            return found
        return self._matching.match(event, top, remember, key, now)

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
        if self._matching is None:
            found: Matches = self._ask("match_batch", events, attributes, on_error, top, remember, key, now)
            return found
        return self._matching.match_batch(events, attributes, on_error, top, remember, key, now)

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
        matching = self._matching or self.use_engine()
        return matching.match_after(history, events, attributes, on_error, keys, then, now)

    def check_batch(self, events: Any, attributes: str | None = None) -> int:
        """Reads a batch as match_batch does, and matches nothing: how many events it has. Raises EventError for the
        first that cannot be read."""
        return (self._matching or self.use_engine()).check_batch(events, attributes)

    def count(
        self, events: Any, attributes: str | None = None, on_error: OnError = "raise", now: Now = None
    ) -> NDArray[np.int64]:
        """How many subscriptions each event satisfies, without making the pairs. now: as in match_batch."""
        if self._matching is None:
            found: NDArray[np.int64] = self._ask("count", events, attributes, on_error, now)
            return found
        return self._matching.count(events, attributes, on_error, now)

    def explain(self, id: Id, event: Event, now: Now = None) -> Explanation:
        """Why the subscription matches the event, or why not, predicate by predicate. now: as in match."""
        return self._explain(parse_kept(self.expression(id), self._types), event, id, now)

    def explain_text(self, text: str, event: Event, id: Id | None = None, now: Now = None) -> Explanation:
        """The same of an expression that need not be added, on the history as it is."""
        return self._explain(parse(text, self._types), event, id, now)

    def _explain(self, expression: Expression, event: Event, id: Id | None, now: Now) -> Explanation:
        present = read_now(now)
        given: Mapping[str, Any] = event if isinstance(event, Mapping) else bring(TEXTS).read_event(event)
        joins = None
        if next(joins_in(expression), None) is not None:
            joins = (self._matching or self.use_engine()).find_witnesses(expression, given, present)
        explain: Callable[..., Explanation] = bring("dibs.explain").explain
        return explain(expression, given, id, joins, present, self._types)

    def stats(self) -> dict[str, Any]:
        """What is stored and what matching has cost so far; disagreements: attributes seen only in other kinds than
        subscriptions compare them with, in the batches that were looked at."""
        matching = self._matching or self.use_engine()
        own = {"index": self.index, "threads": self.threads, "matching": dict(matching.counters)}
        result = own | bring("dibs.describe").describe(self.snapshot(), self._layers.upkeep)
        segments = [layer.segment for layer in self.snapshot().layers]
        result["disagreements"] = matching.seen.disagreements(segments)
        result["history"] = {"documents": len(self.history), "joins": len(self.joins)}
        durable = self._changes.durable
        return result if durable is None else result | {"storage": durable.stats()}

    def plan_joins(self, order: str | None = None, prefilter: bool | None = None) -> None:
        """How joins over history are answered, for measuring; the matches are the same. order: "joins" or "constants"
        come first (None: whatever is measured to be cheaper). prefilter: whether subscriptions that the present history
        cannot satisfy are found out beforehand (None: when it is worth its time)."""
        if order is not None and not (isinstance(order, str) and order in ("joins", "constants")):
            raise ArgumentError(f"order must be 'joins', 'constants' or None, not {show(order)}")
        if prefilter is not None:
            check_flag("prefilter", prefilter)
        matching = self._matching or self.use_engine()
        matching.costs.order = order
        matching.prefilter.wanted = prefilter

    def explain_plan(self) -> str:
        """How the index has filed the subscriptions, and why; and in which order joins and constants are looked at."""
        plan: str = bring("dibs.describe").describe_plan(self.snapshot())
        joins = self.joins
        if not joins:
            return Text(plan)
        told = (self._matching or self.use_engine()).tell_of(tuple(JOIN + join for join in joins), len(self))
        return Text("\n  ".join([f"{plan}\njoins: {len(joins):,} over {len(self.history):,} documents", *told]))

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
        matching = self._matching or self.use_engine()
        self._changes.check_open()
        self._layers.compact()
        matching.forget_names()
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
                history = bring("dibs.history.stored").read_stored(self.history)
                given = self.index, state.version, dict(self.choice.options), history, self.types
                bring("dibs.storage.store").save_all(segments, target, *given)
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
        engine.require()
        store, versions = bring("dibs.storage.store"), bring("dibs.storage.versions")
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
            bring("dibs.history.stored").check_whole(documents, source / manifest.history)
        state = store.state_of(source, manifest, segments)
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
        engine.load()
        matcher = cls(index=index, threads=threads, options=options, types=types)
        matcher._layers.restore(state)
        matcher._layers.keep_segments()
        matcher._changes.refused = "was opened from saved files and is read-only: add to a new one and save it"
        matcher.history = bring("dibs.history.stored").StoredHistory(documents, matcher._types)
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
        run, store = engine.require(), bring("dibs.storage.store")
        history_module = bring("dibs.history.stored")  # most programs do without SQLite
        storage_module = bring("dibs.storage.durable")
        folder = check_path(path)
        check_flag("read_only", read_only)
        given = None if types is None and domains is None else with_domains(types, domains)
        kept = run.check_retain(retain)
        if read_only and retain is not None:
            raise ArgumentError("retain is the writer's: with read_only=True the history is as it is")
        if index is not None or not store.is_durable(folder):
            run.check_choice(AUTO if index is None else index, threads, memory, options)  # before anything is made
        is_new = not store.is_durable(folder)
        durable = storage_module.Durable.open(folder, read_only, index, options)
        try:
            declared = bring("dibs.storage.manifest").keep_types(folder, given, is_new)
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

    def close(self) -> None:
        """Lets go of everything; the matcher can be neither changed nor asked afterwards. May be called again, also
        after it was interrupted."""
        durable = self._changes.durable
        self._changes.close()
        if self._matching is not None:
            self._matching.history.close()
        try:
            if durable is not None and not durable.is_closed:
                durable.finish(self._layers)
        finally:
            self._changes.layers.close()
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
