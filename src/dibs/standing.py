"""Standing queries: how the subscriptions of a matcher come and go, and what is known of them.

A change is checked, made durable, and then applied to the layers (segments.layers), which the next match sees. A batch
collects changes and does the same once for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from dibs.additions import add_columns, add_items
from dibs.arguments import OnError, check_several
from dibs.changes import CLOSED, Batch, Changes
from dibs.errors import DibsError, DuplicateId, Rejected, UnknownId
from dibs.index import options_of
from dibs.index.options import all_options
from dibs.intake import check_columns, check_id, check_weight, sought_id
from dibs.language.joins import may_have_joins, paths_of
from dibs.language.printer import JOIN
from dibs.language.types import NO_TYPES, Types
from dibs.segments.compile import form_of
from dibs.segments.ids import Id
from dibs.segments.layers import Layers
from dibs.segments.segment import DEFAULT_WEIGHT, Choice
from dibs.segments.state import State, Subscription, Waiting

if TYPE_CHECKING:
    from typing_extensions import Self

    from dibs.storage.durable import Durable


class StandingQueries:
    """What a Matcher holds."""

    def __init__(self, index: str, choice: Choice, types: Types = NO_TYPES):
        self.index = index
        self._types = types
        self._choice = choice
        self._layers = Layers(choice, types)
        self._changes = Changes(self._layers)

    @property
    def options(self) -> dict[str, Any]:
        """The parameters of the index, also those that were not given."""
        return all_options(options_of(self.index), dict(self._choice.options))

    @property
    def types(self) -> dict[str, str]:
        """The declared types of attributes."""
        return dict(self._types)

    @property
    def choice(self) -> Choice:
        """The index and its options: for other parts of Dibs."""
        return self._choice

    def add(self, id: Id, expression: str, weight: float = DEFAULT_WEIGHT) -> None:
        """Adds one subscription. Raises ExpressionError (with .problems) or DuplicateId."""
        id, weight = check_id(id), check_weight(weight)
        form = form_of(expression, self._changes.no_joins, self._types)

        def add() -> None:
            if self._changes.has(id):
                raise DuplicateId(id)
            self._changes.make([(id, expression, weight, form)], new=True)

        self._changes.change(add)

    def add_many(
        self,
        items: Iterable[tuple[Any, ...]],
        on_error: OnError = "raise",
        progress: Callable[[int], None] | None = None,
    ) -> list[Rejected]:
        """Adds (id, expression) or (id, expression, weight) items: all of them or, when one is bad, none
        (SubscriptionErrors lists every bad one). on_error="skip" adds the good ones and returns the others. `progress`
        is called with how many more are done; if it raises, or is interrupted, none is added."""
        return add_items(self._changes, items, on_error, progress)

    def add_table(
        self,
        table: pa.Table | pa.RecordBatch,
        on_error: OnError = "raise",
        progress: Callable[[int], None] | None = None,
    ) -> list[Rejected]:
        """Adds the rows of an Arrow table with the columns id, expression and, if there is one, weight: the bulk
        path. All or none, as add_many, and `progress` likewise."""
        return add_columns(self._changes, *check_columns(table), on_error, progress)

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
        form = form_of(expression, self._changes.no_joins, self._types)
        given = None if weight is None else check_weight(weight)

        def replace() -> None:
            known = self._check_known(id)
            old = self._changes.get(known).weight
            self._changes.make([(known, expression, old if given is None else given, form)])

        self._changes.change(replace)

    def batch(self) -> AbstractContextManager[Self]:
        """Changes inside the block are made together at its end: durable by one write, visible to matches all at once,
        and none of them if the block raises. Other threads' changes wait meanwhile; matches do not."""
        return cast("AbstractContextManager[Self]", Batch(self._changes, self))

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
        self._news()
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
        self._news()
        return self._layers.state.version

    @property
    def attributes(self) -> frozenset[str]:
        """The attributes that subscriptions mention: no others are read from events."""
        names = frozenset().union(*(x.segment.names for x in self.snapshot().layers))
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
        self._news()
        state = self._layers.read(few_wait=True)
        return any(x.segment.joins for x in state.layers) or any(
            may_have_joins(one.text) for one in state.waiting.values()
        )

    @property
    def weighted(self) -> bool:
        """Whether some subscription has been given a weight of its own."""
        return any(x.segment.weights is not None for x in self.snapshot().layers)

    def _news(self) -> None:
        """Before the state is asked: it must be open, and have what another process has written since."""
        if self._changes.refused == CLOSED:
            raise DibsError(f"this matcher {CLOSED}")
        self._changes.follow()

    # ---- for other parts of Dibs; what they give may change with any version ----

    def snapshot(self) -> State:
        """What is there now, all of it compiled: a value that never changes. Raises DibsError if closed."""
        self._news()
        return self._layers.read()

    @property
    def changes(self) -> Changes:
        """The one way by which subscriptions come and go."""
        return self._changes

    @property
    def durable(self) -> Durable | None:
        """The folder of a durable matcher; None: it is in memory. Raises DibsError if closed."""
        self._news()
        return self._changes.durable

    def advance(self, removed: Collection[Id], changed: Iterable[Subscription], version: int) -> None:
        """Of one that load() opened: what has happened to these subscriptions since, up to this version. They are known
        to be good."""
        items = {s.id: Waiting(s.expression, s.weight, s.version, None) for s in changed}
        self._layers.advance(removed, items, version)
