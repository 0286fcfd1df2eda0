"""The subscriptions of a matcher: how they come and go, and what is known of them; and how its engine arrives.

A change is checked, made durable, and then applied to the layers (segments.segment_set), which the next match sees. A
batch collects changes and does the same once for all of them.

Until the engine is here (dibs.engine), subscriptions only wait, and events are matched in plain Python (dibs.plain).
The first call that finds the engine here goes over to it; what cannot do without it waits for it. Nothing imports
Arrow or Numba before.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, cast

from dibs import engine
from dibs.additions import Progress, add_items
from dibs.arguments import DEFAULT_WEIGHT, Id, OnError, check_several
from dibs.changes import Batch, Changes
from dibs.errors import DuplicateId, Rejected, UnknownId
from dibs.items import check_id, check_weight, sought_id
from dibs.jit.undisturbed import bring
from dibs.language.joins import may_have_joins, paths_of
from dibs.language.printer import JOIN
from dibs.language.types import NO_TYPES, Types
from dibs.plain import COLD_SUBSCRIPTIONS, NeedsEngine, PlainMatching
from dibs.segments.state import ReadText, State, Subscription, Waiting

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import Self

    from dibs.history.retention import Retention
    from dibs.matching import Matching
    from dibs.segments.segment import Choice
    from dibs.segments.segment_set import SegmentSet
    from dibs.storage.durable import Durable

AUTO = "auto"


class Subscriptions:
    """What a Matcher holds."""

    def __init__(
        self,
        threads: int,
        index: str = AUTO,
        choice: Choice | None = None,
        retain: Retention = None,
        types: Types = NO_TYPES,
    ):
        """choice, retain: as the engine takes them; None: the defaults."""
        self.index = index
        self._types = types
        self._threads = threads
        self._begin = choice, retain  # of the engine's part
        self._changes = Changes(types)
        self._plain = PlainMatching(self._changes)
        self._matching: Matching | None = None  # the engine's part, once it is here
        self._stays_plain = False  # though the engine is here: for tests

    # ---- the engine ----

    def use_engine(self, run: Any = None) -> Matching:
        """From now on the engine answers (run: dibs.matching, if it is known to be here). Several threads may come here
        at once, and none of their changes is lost."""
        run = engine.require() if run is None else run
        self._stays_plain = False
        with self._changes.turn:
            if self._matching is None:
                self._matching = run.begin(self._changes, self._threads, *self._begin, self._plain.counters)
            return self._matching

    def _ask(self, call: str, *given: Any) -> Any:
        """Of a matcher whose engine was not here: its answer in plain Python, if there is one."""
        if engine.current is None or self._stays_plain:
            try:
                return getattr(self._plain, call)(*given)
            except NeedsEngine:
                pass
            finally:
                if call != "mentioned" and not self._stays_plain:
                    engine.load_soon()
        return getattr(self.use_engine(), call)(*given)

    def _expect(self, more: int) -> None:
        """Before subscriptions come to a matcher whose engine was not here: they may be too many to do without it."""
        is_here = engine.current is not None and not self._stays_plain
        if is_here or len(self._changes.layers.state) + more > COLD_SUBSCRIPTIONS.value:
            self.use_engine()

    @property
    def _layers(self) -> SegmentSet:
        if self._matching is None:
            self.use_engine()
        layers: SegmentSet = self._changes.layers
        return layers

    # ---- coming and going ----

    def add(self, id: Id, expression: str, weight: float = DEFAULT_WEIGHT) -> None:
        """Adds one subscription. Raises ExpressionError (with .problems) or DuplicateId."""
        id, weight = check_id(id), check_weight(weight)
        if self._matching is None:
            self._expect(1)
        changes = self._changes
        if isinstance(expression, ReadText):
            form = expression.form
        else:
            form = changes.read(expression, changes.no_joins, self._types)

        def add() -> None:
            if changes.has(id):
                raise DuplicateId(id)
            changes.make([(id, str(expression), weight, form)], new=True)

        changes.change(add)

    def read(self, expression: str) -> ReadText:
        """The same text for `add` or `replace`, read already: for who must know before that it is good. Raises
        ExpressionError."""
        self.use_engine()  # without it, texts are read in another way
        form = self._changes.read(expression, self._changes.no_joins, self._types)
        found = ReadText(expression)
        found.form = form
        return found

    def add_many(
        self,
        items: Iterable[tuple[Any, ...]],
        on_error: OnError = "raise",
        progress: Progress | None = None,
    ) -> list[Rejected]:
        """Adds (id, expression) or (id, expression, weight) items: all of them or, when one is bad, none
        (SubscriptionErrors lists every bad one). on_error="skip" adds the good ones and returns the others. `progress`
        is called with how many more are done; if it raises, or is interrupted, none is added."""
        if self._matching is None:
            self._expect(len(items) if isinstance(items, (list, tuple)) else COLD_SUBSCRIPTIONS.value + 1)
        return add_items(self._changes, items, on_error, progress)

    def add_table(
        self,
        table: pa.Table | pa.RecordBatch,
        on_error: OnError = "raise",
        progress: Progress | None = None,
    ) -> list[Rejected]:
        """Adds the rows of an Arrow table with the columns id, expression and, if there is one, weight: the bulk
        path. All or none, as add_many, and `progress` likewise."""
        if self._matching is None:
            self.use_engine()
        columns = bring("dibs.intake").check_columns(table)
        skipped: list[Rejected] = bring("dibs.bulk").add_columns(self._changes, *columns, on_error, progress)
        return skipped

    def remove(self, id: Id) -> None:
        """Removes a subscription. Raises UnknownId."""
        self.remove_many([id])

    def remove_many(self, ids: Iterable[Id]) -> None:
        """Removes subscriptions: all of them or, when one is not there, none. Raises UnknownId."""
        ids = list(check_several(ids, "several ids", "use remove for one"))

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
        if self._matching is None:
            self._expect(0)
        changes = self._changes
        if isinstance(expression, ReadText):
            form = expression.form
        else:
            form = changes.read(expression, changes.no_joins, self._types)
        given = None if weight is None else check_weight(weight)

        def replace() -> None:
            known = self._check_known(id)
            old = changes.get(known).weight
            changes.make([(known, str(expression), old if given is None else given, form)])

        changes.change(replace)

    def batch(self) -> AbstractContextManager[Self]:
        """Changes inside the block are made together at its end: durable by one write, visible to matches all at once,
        and none of them if the block raises. Other threads' changes wait meanwhile; matches do not."""
        return cast("AbstractContextManager[Self]", Batch(self._changes, self))

    # ---- what is known ----

    @property
    def options(self) -> dict[str, Any]:
        """The parameters of the index, also those that were not given."""
        known = bring("dibs.index").options_of(self.index)
        own: dict[str, Any] = bring("dibs.index.options").all_options(known, dict(self.choice.options))
        return own

    @property
    def types(self) -> dict[str, str]:
        """The declared types of attributes."""
        return dict(self._types)

    def __len__(self) -> int:
        self._changes.follow()
        return len(self._changes)

    def __contains__(self, id: object) -> bool:
        self._changes.follow()
        sought = sought_id(id)
        return sought is not None and self._changes.has(sought)

    def get(self, id: Id) -> Subscription:
        """What is known of a subscription: expression, weight, version and, in a durable matcher, time. Raises
        UnknownId."""
        self._changes.check_open()
        found, durable = self._changes.get(self._check_known(id)), self._changes.durable
        return found if durable is None else durable.with_time(found)

    @staticmethod
    def _check_known(id: Any) -> Id:
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
        self._changes.check_open()
        state: State = self._changes.layers.state
        return state.version

    @property
    def attributes(self) -> frozenset[str]:
        """The attributes that subscriptions mention: no others are read from events."""
        names: frozenset[str] = self._ask("mentioned") if self._matching is None else self._matching.mentioned()
        return paths_of(names)

    @property
    def joins(self) -> list[str]:
        """The different joins over history that subscriptions mention, as SQL."""
        layers = self.snapshot().layers
        found = {name for x in layers if x.segment.joins for name in x.segment.joins_of(x.gone.find_kept())}
        return sorted(name[len(JOIN) :] for name in found)

    @property
    def asks_history(self) -> bool:
        """Whether some subscription has a join, or may have: cheaper than `joins`, and never wrong about none."""
        if self._matching is None:
            self.use_engine()
        self._changes.check_open()
        state: State = self._changes.layers.read(few_wait=True)
        return any(x.segment.joins for x in state.layers) or any(
            may_have_joins(one.text) for one in state.waiting.values()
        )

    @property
    def weighted(self) -> bool:
        """Whether some subscription has been given a weight of its own."""
        self._changes.check_open()
        state: State = self._changes.layers.state
        return any(x.segment.weights is not None for x in state.layers) or any(
            one.weight != DEFAULT_WEIGHT for one in state.waiting.values()
        )

    # ---- for other parts of Dibs; what they give may change with any version ----

    def snapshot(self) -> State:
        """What is there now, all of it compiled: a value that never changes. Raises DibsError if closed."""
        return (self._matching or self.use_engine()).snapshot()

    @property
    def choice(self) -> Choice:
        """The index and its options."""
        return self._layers.choice

    @property
    def changes(self) -> Changes:
        """The one way by which subscriptions come and go."""
        return self._changes

    @property
    def durable(self) -> Durable | None:
        """The folder of a durable matcher; None: it is in memory. Raises DibsError if closed."""
        self._changes.check_open()
        return self._changes.durable

    def advance(self, removed: Collection[Id], changed: Iterable[Subscription], version: int) -> None:
        """Of one that load() opened: what has happened to these subscriptions since, up to this version. They are known
        to be good."""
        items = {s.id: Waiting(s.expression, s.weight, s.version, None) for s in changed}
        self._layers.advance(removed, items, version)
