"""Matching in plain Python, which a small matcher does until its engine is here (dibs.engine).

Each event is held against each subscription by the plain evaluator (dibs.reference). The answers, the errors and the
order of everything are those of the engine: what is checked is checked by the same functions, and an event in which
something is not plain is read by the same reader. What is too much for it, or needs the history, is NeedsEngine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from dibs.arguments import MOST_ROWS, Id, OnError, check_number, check_on_error, check_text
from dibs.changes import Changes
from dibs.items import id_order
from dibs.jit.undisturbed import bring
from dibs.language.expression import And, Constant, Expression, Or, Truth, attributes
from dibs.language.joins import joins_in, read_attributes
from dibs.language.present import Now, Present, read_clock, read_now
from dibs.language.scalars import is_computed, is_raw
from dibs.lazy import lazy
from dibs.plain_values import event_of, extent, plain_values, values_by_event
from dibs.reference import ValuesByName, children_first, holds_for, with_computed
from dibs.segments.state import State
from dibs.tuning import tuned

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dibs.coding.values import EventValues
    from dibs.matches import Matches

COLD_SUBSCRIPTIONS = tuned("cold_subscriptions", 1_000, 0, "subscriptions", "that need no kernels until these are here")
COLD_PAIRS = tuned(
    "cold_pairs", 2_000_000, 0, "subscriptions times events", "of a batch that need no kernels until these are here"
)
COLD_VALUES = tuned(
    "cold_values", 200_000, 0, "predicates times values", "of an event, likewise; or 64 characters each"
)


class NeedsEngine(Exception):
    """This is for the engine."""


class Asked:
    """What the subscriptions of a state ask of events."""

    def __init__(self, state: State):
        self.state = state
        self._forms: dict[Id, Expression] = {id: held.form for id, held in state.waiting.items()}  # type: ignore[misc]

    @lazy
    def mentioned(self) -> tuple[str, ...]:
        """The attributes that they mention, computed ones too."""
        return tuple(dict.fromkeys(name for form in self._forms.values() for name in attributes(form)))

    @lazy
    def names(self) -> frozenset[str]:
        """The attributes of events that they read."""
        return frozenset(read_attributes(self.mentioned))

    @lazy
    def has_raw(self) -> bool:
        """Whether something of an event is read as it came."""
        return any(map(is_raw, self.names))

    @lazy
    def has_joins(self) -> bool:
        return any(next(joins_in(form), None) is not None for form in self._forms.values())

    @lazy
    def leading(self) -> frozenset[str]:
        """Paths at which an object may hold such an attribute: the beginnings of dotted names."""
        return frozenset(name[:i] for name in self.names for i, c in enumerate(name) if c == ".")

    @lazy
    def predicates(self) -> int:
        return sum(1 for form in self._forms.values() for _ in children_first(form))

    @lazy
    def _computed(self) -> tuple[str, ...]:
        return tuple(filter(is_computed, self.mentioned))

    def check_extent(self, extent: int) -> None:
        if extent and extent * self.predicates > COLD_VALUES.value:
            raise NeedsEngine

    def find(self, values: ValuesByName, now: Present = None) -> list[Id]:
        """The ids of those that hold for an event, sorted. now: the time of the match."""
        values = with_computed(values, self._computed, now)
        return sorted((id for id, form in self._forms.items() if _holds(form, values)), key=id_order)


def _holds(form: Expression, values: ValuesByName) -> bool:
    """Whether a normal form is TRUE: it has no NOT left, so FALSE and UNKNOWN need not be told from each other."""
    match form:
        case And(children):
            return all(_holds(child, values) for child in children)
        case Or(children):
            return any(_holds(child, values) for child in children)
        case Truth(child):  # a complement
            return not _holds(child, values)
        case Constant(value):
            return value is True
        case predicate:
            return holds_for(predicate, values)  # type: ignore[arg-type]


class PlainMatching:
    """Any number of threads may match at once. The arguments are those of the Matcher's methods."""

    def __init__(self, changes: Changes):
        self._changes = changes
        self._asked = Asked(State())
        self.counters = {"events": 0, "pairs": 0}

    def asked(self) -> Asked:
        """Of the state that is there now."""
        self._changes.check_open()
        state, asked = self._changes.layers.state, self._asked
        if state.layers or self._changes.has_engine:  # another thread has gone over meanwhile
            raise NeedsEngine
        if asked.state is not state:
            self._asked = asked = Asked(state)
        if asked.has_joins:
            raise NeedsEngine
        return asked

    def mentioned(self) -> frozenset[str]:
        """The attributes of events that subscriptions read."""
        return self.asked().names

    def match(
        self, event: Any, top: int | None = None, remember: bool = False, key: object = None, now: Now = None
    ) -> list[Id]:
        present = _check(remember, key, now)
        if not isinstance(event, Mapping):
            event = event_of(event)
        k = None if top is None else min(check_number("top", top), MOST_ROWS)
        asked = self.asked()
        values = plain_values(event, asked)
        if values is None:
            values = values_by_event(self._read(asked, [event], None, "raise"))[0]
        asked.check_extent(extent(values))
        found = asked.find(values, present)
        self.counters["events"] += 1
        self.counters["pairs"] += len(found)
        if k is None:
            return found
        return sorted(found, key=lambda id: -asked.state.waiting[id].weight)[:k]

    def match_batch(
        self,
        events: Any,
        attributes: str | None = None,
        on_error: OnError = "raise",
        top: int | None = None,
        remember: bool = False,
        key: object = None,
        now: Now = None,
    ) -> Matches:
        present = _check(remember, key, now)
        k = None if top is None else min(check_number("top", top), MOST_ROWS)
        asked, values, found = self._find(events, attributes, on_error, present)
        result: Matches = bring("dibs.matches").matches_of(asked.state.waiting, found, values.problems, k)  # and Arrow
        self.counters["pairs"] += result.count
        return result

    def count(
        self, events: Any, attributes: str | None = None, on_error: OnError = "raise", now: Now = None
    ) -> NDArray[np.int64]:
        _, _, found = self._find(events, attributes, on_error, _check(False, None, now))
        result = np.array([len(ids) for ids in found], np.int64)
        self.counters["pairs"] += int(result.sum())
        return result

    def _find(
        self, events: Any, attributes: str | None, on_error: OnError, now: int | None
    ) -> tuple[Asked, EventValues, list[list[Id]]]:
        """What was read of a batch, and the ids of each event."""
        asked, now = self.asked(), read_clock() if now is None else now
        values = self._read(asked, events, attributes, on_error)
        if values.events * len(asked.state) > COLD_PAIRS.value:
            raise NeedsEngine
        dead = set(values.unreadable_events.tolist())
        by_event = values_by_event(values)
        asked.check_extent(sum(map(extent, by_event)))
        self.counters["events"] += values.events
        return asked, values, [[] if event in dead else asked.find(own, now) for event, own in enumerate(by_event)]

    def _read(self, asked: Asked, events: Any, attributes: str | None, on_error: OnError) -> EventValues:
        """By the engine's reader, which has kernels only for what is refused here."""
        readers, json = bring("dibs.coding.events"), bring("dibs.coding.events.json")
        read_dicts: Callable[..., EventValues] = bring("dibs.coding.events.dicts").read_dicts
        read_events: Callable[..., EventValues] = readers.read_events
        check_on_error(on_error)
        check_text("attributes", attributes)
        wanted = readers.WantedNames(asked.names)
        if isinstance(events, (bytes, bytearray, memoryview, str)):
            rows: Iterable[object] = json.json_lines(json.json_content(events))
            return read_dicts(rows if attributes is None else json.attributes_of(rows, attributes), wanted, on_error)
        if not isinstance(events, (list, tuple, Mapping)) and not _has_no_maps(events):
            raise NeedsEngine  # also because what can be read only once must not be begun here
        if hasattr(events, "__len__") and len(events) * len(asked.state) > COLD_PAIRS.value:
            raise NeedsEngine
        return read_events(events, wanted, attributes=attributes, on_error=on_error)


def _check(remember: object, key: object, now: Now) -> int | None:
    """The time of the match; NeedsEngine if history is asked for, or each event has its own time."""
    present = read_now(now)
    if remember is not False or key is not None or isinstance(present, str):
        raise NeedsEngine
    return present


def _has_no_maps(events: Any) -> bool:
    """Whether it is Arrow data without maps, whose keys are found by a kernel."""
    pa = bring("pyarrow")
    return isinstance(events, (pa.Table, pa.RecordBatch)) and "map<" not in str(events.schema)
