"""A small matcher without kernels: what answers while they are compiled or loaded (dibs.front).

Subscriptions are kept as texts and trees, and each event is held against each of them by the plain evaluator
(dibs.reference). The answers, the errors and the order of everything are those of dibs.matcher: what is checked is
checked by the same functions, and an event in which something is not plain is read by the same reader.

Whatever it cannot do, or should not because it is too much, is NeedsKernels.

The subscriptions are a value, and a change puts another one in its place by one assignment, as in segments.state.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import orjson

from dibs.arguments import DEFAULT_WEIGHT, Id, OnError, check_on_error, check_text, checked_number, checked_several
from dibs.errors import DibsError, DuplicateId, EventError, Rejected, SubscriptionErrors, UnknownId
from dibs.items import checked_id, checked_item, checked_weight, sought_id
from dibs.language.expression import And, Constant, Expression, Or, attributes
from dibs.language.joins import joins_in
from dibs.language.normal_form import normal_form
from dibs.language.sql import parse
from dibs.lazy import lazy
from dibs.reference import ValuesByName, holds_for
from dibs.thresholds import thresholds

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dibs.coding.values import EventValues
    from dibs.explain import Explanation
    from dibs.matcher import Matcher
    from dibs.matches import Matches
    from dibs.segments.state import Subscription

MOST_ROWS = 2**31  # as in dibs.matcher
DEEP = 50  # objects and arrays inside each other in an event that is called plain
PLAIN_INTEGERS = range(-(2**63), 2**64)


class NeedsKernels(Exception):
    """This is for the compiled matcher."""


class Held(NamedTuple):
    """A subscription."""

    text: str
    weight: float
    version: int
    form: Expression  # normal form


class ColdSubscriptions:
    """All of them, as they are at some version. It never changes."""

    def __init__(self, items: Mapping[Id, Held], version: int):
        self.items = items
        self.version = version

    @lazy
    def names(self) -> frozenset[str]:
        """The attributes that they mention."""
        return frozenset(name for held in self.items.values() for name in attributes(held.form))

    @lazy
    def leading(self) -> frozenset[str]:
        """Where an object may hold such an attribute: the beginnings of dotted names."""
        return frozenset(name[:i] for name in self.names for i, c in enumerate(name) if c == ".")

    def found(self, values: ValuesByName) -> list[Id]:
        """The ids of those that hold for an event."""
        return [id for id, held in self.items.items() if _holds(held.form, values)]


def _form_of(text: str) -> Expression:
    """Its normal form, if it asks for nothing but the event."""
    form = normal_form(parse(text))
    if next(joins_in(form), None) is not None:
        raise NeedsKernels
    return form


def id_order(id: Id) -> tuple[bool, Any]:
    return isinstance(id, str), id


def _holds(form: Expression, values: ValuesByName) -> bool:
    """Whether a normal form is TRUE: it has no NOT left, so nothing that is FALSE or UNKNOWN can help."""
    match form:
        case And(children):
            return all(_holds(child, values) for child in children)
        case Or(children):
            return any(_holds(child, values) for child in children)
        case Constant(value):
            return value is True
        case predicate:
            return holds_for(predicate, values)  # type: ignore[arg-type]


class ColdMatcher:
    def __init__(self) -> None:
        self.turn = threading.RLock()  # one change after the other
        self._state = ColdSubscriptions({}, 0)
        self._moved = self._closed = False
        self.events = self.pairs = 0  # that were matched

    # ---- subscriptions ----

    def add(self, id: Id, expression: str, weight: float = DEFAULT_WEIGHT) -> None:
        id, weight = checked_id(id), checked_weight(weight)
        form = _form_of(expression)

        def change(items: dict[Id, Held], version: int) -> int:
            if id in items:
                raise DuplicateId(id)
            items[id] = Held(expression, weight, version + 1, form)
            return 1

        self._change(change)

    def add_many(self, items: Iterable[tuple[Any, ...]], on_error: OnError = "raise") -> list[Rejected]:
        check_on_error(on_error)
        if type(items) not in (list, tuple) or len(items) > thresholds.cold_subscriptions:  # type: ignore[arg-type]
            raise NeedsKernels  # what can be read only once must not be begun here
        given = list(enumerate(items))

        def change(held: dict[Id, Held], version: int) -> int:
            bad.clear()
            for place, item in given:
                shown = item if isinstance(item, (tuple, list)) else (None, None)
                try:
                    id, text, weight = checked_item(item)
                except DibsError as e:
                    bad.append(Rejected(place, shown[0] if shown else None, shown[1] if len(shown) > 1 else None, e))
                    continue
                try:
                    form = _form_of(text)
                    if id in held:
                        raise DuplicateId(id)
                    version += 1
                    held[id] = Held(text, weight, version, form)
                except DibsError as e:
                    bad.append(Rejected(place, id, text, e))
            if bad and on_error == "raise":
                raise SubscriptionErrors(bad)
            return len(given) - len(bad)

        bad: list[Rejected] = []
        self._change(change)
        return bad

    def remove(self, id: Id) -> None:
        self.remove_many([id])

    def remove_many(self, ids: Iterable[Id]) -> None:
        if type(ids) not in (list, tuple, set, frozenset):
            checked_several(ids, "several ids", "use remove for one")
            raise NeedsKernels
        given = list(ids)

        def change(items: dict[Id, Held], version: int) -> int:
            for one in given:
                id = sought_id(one)
                if id is None or items.pop(id, None) is None:
                    raise UnknownId(one)
            return len(given)

        self._change(change)

    def replace(self, id: Id, expression: str, weight: float | None = None) -> None:
        form = _form_of(expression)
        given = None if weight is None else checked_weight(weight)

        def change(items: dict[Id, Held], version: int) -> int:
            known = sought_id(id)
            if known is None or known not in items:
                raise UnknownId(id)
            old = items.pop(known)
            items[known] = Held(expression, old.weight if given is None else given, version + 1, form)
            return 1

        self._change(change)

    def _change(self, change: Callable[[dict[Id, Held], int], int]) -> None:
        """change: works on a copy, and tells how many changes it made."""
        with self.turn:
            self._check()
            if self._moved:
                raise NeedsKernels
            items = dict(self._state.items)
            made = change(items, self._state.version)
            if len(items) > thresholds.cold_subscriptions:
                raise NeedsKernels
            self._state = ColdSubscriptions(items, self._state.version + made)

    def move_to(self, full: Matcher) -> None:
        """Gives the compiled matcher all that is here. No change is taken from now on."""
        from dibs.segments.state import Waiting

        with self.turn:
            self._moved = True
        state = self._state
        items = {id: Waiting(*held) for id, held in state.items.items()}
        full.take_over(items, state.version, events=self.events, pairs=self.pairs)
        if self._closed:
            full.close()

    def close(self) -> None:
        with self.turn:
            self._closed = True
            self._state = ColdSubscriptions({}, 0)

    def _check(self) -> None:
        if self._closed:
            raise DibsError("this matcher is closed")

    def begin_again_in_a_child(self) -> None:
        """After a fork: whoever held the lock is not here."""
        self.turn = threading.RLock()

    def __len__(self) -> int:
        return len(self._state.items)

    def __contains__(self, id: object) -> bool:
        return sought_id(id) in self._state.items

    def get(self, id: Id) -> Subscription:
        from dibs.segments.state import Subscription

        held = self._held(id)
        return Subscription(sought_id(id), held.text, held.weight, held.version)  # type: ignore[arg-type]

    def expression(self, id: Id) -> str:
        return self._held(id).text

    def weight(self, id: Id) -> float:
        return self._held(id).weight

    def _held(self, id: Id) -> Held:
        self._check()
        known = sought_id(id)
        held = None if known is None else self._state.items.get(known)
        if held is None:
            raise UnknownId(id)
        return held

    @property
    def version(self) -> int:
        self._check()
        return self._state.version

    @property
    def attributes(self) -> frozenset[str]:
        self._check()
        return self._state.names

    @property
    def weighted(self) -> bool:
        self._check()
        return any(held.weight != DEFAULT_WEIGHT for held in self._state.items.values())

    # ---- matching ----

    def match(self, event: Any, top: int | None = None) -> list[Id]:
        if not isinstance(event, Mapping):
            event = _event_of(event)
        k = None if top is None else min(checked_number("top", top), MOST_ROWS)
        self._check()
        state = self._state
        values = plain_values(event, state)
        if values is None:
            values = values_by_event(self._read([event], None, "raise", state))[0]
        found = sorted(state.found(values), key=id_order)
        self.events += 1
        self.pairs += len(found)
        if k is None:
            return found
        return sorted(found, key=lambda id: -state.items[id].weight)[:k]

    def match_batch(
        self, events: Any, attributes: str | None = None, on_error: OnError = "raise", top: int | None = None
    ) -> Matches:
        from dibs.coldmatches import matches_of  # imports Arrow

        k = None if top is None else min(checked_number("top", top), MOST_ROWS)
        state = self._state
        values, found = self._found(events, attributes, on_error, state)
        result = matches_of(state.items, values, found, k)
        self.pairs += result.count
        return result

    def count(self, events: Any, attributes: str | None = None, on_error: OnError = "raise") -> NDArray[np.int64]:
        found = self._found(events, attributes, on_error, self._state)[1]
        result = np.array([len(ids) for ids in found], np.int64)
        self.pairs += int(result.sum())
        return result

    def _found(
        self, events: Any, attributes: str | None, on_error: OnError, state: ColdSubscriptions
    ) -> tuple[EventValues, list[list[Id]]]:
        """What was read of a batch, and the ids of each event."""
        values = self._read(events, attributes, on_error, state)
        if values.events * len(state.items) > thresholds.cold_pairs:
            raise NeedsKernels
        dead = set(values.unreadable_events.tolist())
        self.events += values.events
        by_event = enumerate(values_by_event(values))
        return values, [[] if event in dead else state.found(own) for event, own in by_event]

    def _read(self, events: Any, attributes: str | None, on_error: OnError, state: ColdSubscriptions) -> EventValues:
        """By the reader of the compiled matcher, which has kernels only for what is refused here."""
        from dibs.coding.events import WantedNames, read_events
        from dibs.coding.events.dicts import read_dicts
        from dibs.coding.events.json import attributes_of, json_content, json_lines

        check_on_error(on_error)
        self._check()
        check_text("attributes", attributes)
        wanted = WantedNames(state.names)
        if isinstance(events, (bytes, bytearray, memoryview, str)):
            rows: Iterable[object] = json_lines(json_content(events))
            return read_dicts(rows if attributes is None else attributes_of(rows, attributes), wanted, on_error)
        if not isinstance(events, (list, tuple, Mapping)) and not _has_no_maps(events):
            raise NeedsKernels  # also because what can be read only once must not be begun here
        if hasattr(events, "__len__") and len(events) * len(state.items) > thresholds.cold_pairs:
            raise NeedsKernels
        return read_events(events, wanted, attributes=attributes, on_error=on_error)

    def explain(self, id: Id, event: Mapping[str, Any]) -> Explanation:
        from dibs.explain import explain

        if not isinstance(event, Mapping):
            raise EventError(f"an event is a dict of attributes, not {type(event).__name__}")
        return explain(parse(self.expression(id)), event, id=id)


def _has_no_maps(events: Any) -> bool:
    """Whether it is Arrow data without maps, whose keys are found by a kernel."""
    import pyarrow as pa

    return isinstance(events, (pa.Table, pa.RecordBatch)) and "map<" not in str(events.schema)


# ---- values ----


def _event_of(event: object) -> Any:
    """The event of a JSON text."""
    if isinstance(event, (bytes, bytearray, memoryview, str)):
        with suppress(orjson.JSONDecodeError):
            found = orjson.loads(event)
            if type(found) is dict:
                return found
    from dibs.segments.single.texts import dict_of  # which knows what to say

    return dict_of(event)


def plain_values(event: Mapping[str, Any], state: ColdSubscriptions) -> ValuesByName | None:
    """The values of the attributes that are asked for; None if something is not plain and takes the careful reader."""
    values: dict[str, list[Any]] = {}
    plain = type(event) is dict and all(_take(key, value, state, values, 0) for key, value in event.items())
    return values if plain else None


def _take(path: Any, value: Any, state: ColdSubscriptions, values: dict[str, list[Any]], depth: int) -> bool:
    """Whether all of it is plain."""
    if type(path) is not str or depth > DEEP:
        return False
    wanted = path in state.names
    if not wanted and path not in state.leading:
        return True
    kind = type(value)
    if kind is dict:
        return path not in state.leading or all(
            type(key) is str and _take(f"{path}.{key}", inner, state, values, depth + 1) for key, inner in value.items()
        )
    if kind is list:
        return all(_take(path, inner, state, values, depth + 1) for inner in value)
    if value is None:
        return True
    if not wanted:
        return kind in (str, int, float, bool)
    if (kind is str and _is_text(value)) or (kind is int and value in PLAIN_INTEGERS) or kind is float or kind is bool:
        values.setdefault(path, []).append(value)
        return True
    return False


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def values_by_event(batch: EventValues) -> list[ValuesByName]:
    """What the careful reader has read, as the evaluator takes it."""
    from dibs.reference import OfNoKind

    found: list[dict[str, list[Any]]] = [{} for _ in range(batch.events)]

    def put(events: Any, names: Any, values: Iterable[Any]) -> None:
        for event, name, value in zip(events.tolist(), names.tolist(), values):
            found[event].setdefault(batch.names[name], []).append(value)

    n, s, t, b, u = batch.numbers, batch.strings, batch.times, batch.booleans, batch.unreadable
    put(n.event, n.name, map(_number, n.value.tolist(), n.rest.tolist()))
    data, ends = s.data.tobytes(), s.offsets.tolist()
    put(s.event, s.name, [data[x:y].decode() for x, y in zip(ends, ends[1:])])
    put(t.event, t.name, t.microseconds.astype("datetime64[us]"))
    put(b.event, b.name, map(bool, b.value.tolist()))
    put(u.event, u.name, [OfNoKind("")] * len(u.event))
    for event, name, range_ in batch.ranges:
        found[event].setdefault(batch.names[name], []).append(range_)
    return list(found)


def _number(near: float, rest: int) -> int | float:
    """The number of a key: see coding.values."""
    if near == float("inf"):
        return float("nan") if rest else near
    return int(near) + rest if rest else near
