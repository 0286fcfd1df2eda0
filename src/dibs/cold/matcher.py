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
from typing import TYPE_CHECKING, Any

import numpy as np

from dibs.arguments import DEFAULT_WEIGHT, Id, OnError, check_number, check_on_error, check_several, check_text
from dibs.cold.subscriptions import Held, Subscriptions, id_order
from dibs.cold.values import event_of, extent, plain_values, values_by_event
from dibs.errors import DibsError, DuplicateId, Rejected, SubscriptionErrors, UnknownId
from dibs.items import check_id, check_item, check_weight, sought_id
from dibs.jit.undisturbed import bring
from dibs.language.expression import Expression
from dibs.language.joins import joins_in, paths_of
from dibs.language.normal_form import normal_form
from dibs.language.present import Now, read_clock, read_now
from dibs.language.sql import parse
from dibs.thresholds import thresholds

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dibs.coding.values import EventValues
    from dibs.explain import Explanation
    from dibs.history.history import Key
    from dibs.matcher import Matcher
    from dibs.matches import Matches
    from dibs.segments.state import Subscription

MOST_ROWS = 2**31  # as in dibs.matcher


class NeedsKernels(Exception):
    """This is for the compiled matcher."""


def _form_of(text: str) -> Expression:
    """Its normal form, if it asks for nothing but the event."""
    form = normal_form(parse(text))
    if next(joins_in(form), None) is not None:
        raise NeedsKernels
    return form


class ColdMatcher:
    def __init__(self) -> None:
        self.turn = threading.RLock()  # one change after the other
        self._state = Subscriptions({}, 0)
        self._moved = self._closed = False
        self.events = self.pairs = 0  # that were matched

    # ---- subscriptions ----

    def add(self, id: Id, expression: str, weight: float = DEFAULT_WEIGHT) -> None:
        """Adds one subscription. Raises ExpressionError (with .problems) or DuplicateId."""
        id, weight = check_id(id), check_weight(weight)
        form = _form_of(expression)

        def change(items: dict[Id, Held], version: int) -> int:
            if id in items:
                raise DuplicateId(id)
            items[id] = Held(expression, weight, version + 1, form)
            return 1

        self._change(change)

    def add_many(
        self,
        items: Iterable[tuple[Any, ...]],
        on_error: OnError = "raise",
        progress: Callable[[int], None] | None = None,
    ) -> list[Rejected]:
        """Adds (id, expression) or (id, expression, weight) items: all of them or, when one is bad, none
        (SubscriptionErrors lists every bad one). on_error="skip" adds the good ones and returns the others. `progress`
        is called with how many more are done; if it raises, or is interrupted, none is added."""
        check_on_error(on_error)
        if progress is not None:
            raise NeedsKernels
        if type(items) not in (list, tuple) or len(items) > thresholds.cold_subscriptions:  # type: ignore[arg-type]
            raise NeedsKernels  # what can be read only once must not be begun here
        given = list(enumerate(items))

        def change(held: dict[Id, Held], version: int) -> int:
            bad.clear()
            for place, item in given:
                shown = item if isinstance(item, (tuple, list)) else (None, None)
                try:
                    id, text, weight = check_item(item)
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
        """Removes a subscription. Raises UnknownId."""
        self.remove_many([id])

    def remove_many(self, ids: Iterable[Id]) -> None:
        """Removes subscriptions: all of them or, when one is not there, none. Raises UnknownId."""
        if type(ids) not in (list, tuple, set, frozenset):
            check_several(ids, "several ids", "use remove for one")
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
        """Changes a subscription's expression (and its weight, if given) at once: no event sees it missing, and a
        bad expression changes nothing. Raises UnknownId or ExpressionError."""
        form = _form_of(expression)
        given = None if weight is None else check_weight(weight)

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
            self._state = Subscriptions(items, self._state.version + made)

    def move_to(self, full: Matcher) -> None:
        """Gives the compiled matcher all that is here. No change is taken from now on."""
        waiting = bring("dibs.segments.state").Waiting
        with self.turn:
            self._moved = True
        state = self._state
        items = {id: waiting(*held) for id, held in state.items.items()}
        full.take_over(items, state.version, events=self.events, pairs=self.pairs)
        if self._closed:
            full.close()

    def close(self) -> None:
        """Lets go of everything; the matcher can be neither changed nor asked afterwards."""
        with self.turn:
            if self._moved:  # whoever is moving over may not look here again
                raise NeedsKernels
            self._closed = True
            self._state = Subscriptions({}, 0)

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
        """What is known of a subscription. Raises UnknownId."""
        held = self._hold(id)
        kind: type[Subscription] = bring("dibs.segments.state").Subscription
        return kind(sought_id(id), held.text, held.weight, held.version)  # type: ignore[arg-type]

    def expression(self, id: Id) -> str:
        """The text of a subscription."""
        return self._hold(id).text

    def weight(self, id: Id) -> float:
        """The weight of a subscription."""
        return self._hold(id).weight

    def _hold(self, id: Id) -> Held:
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
        return paths_of(self._state.names)

    @property
    def weighted(self) -> bool:
        self._check()
        return any(held.weight != DEFAULT_WEIGHT for held in self._state.items.values())

    # ---- matching ----

    def match(
        self,
        event: Any,
        top: int | None = None,
        remember: bool = False,
        key: Key | None = None,
        now: Now = None,
    ) -> list[Id]:
        """The ids of the subscriptions that the event satisfies, sorted; with `top`, those of the highest weight
        first, at most so many. An event is a dict of attributes, or a JSON text of one. remember: then the event is
        added to the history, which is the only way in which a match changes anything; with a key, only if no document
        of that key is there. now: what now() is (by default the clock's instant): see dibs.matcher.Matcher. Raises
        EventError when it cannot be read."""
        present = read_now(now)
        if remember is not False or key is not None or isinstance(present, str):
            raise NeedsKernels
        if not isinstance(event, Mapping):
            event = event_of(event)
        k = None if top is None else min(check_number("top", top), MOST_ROWS)
        self._check()
        state = self._state
        values = plain_values(event, state)
        if values is None:
            values = values_by_event(self._read([event], None, "raise", state))[0]
        self._check_extent(extent(values), state)
        found = sorted(state.find(values, present), key=id_order)
        self.events += 1
        self.pairs += len(found)
        if k is None:
            return found
        return sorted(found, key=lambda id: -state.items[id].weight)[:k]

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
        top: keep only the pairs whose weight is among the event's `top` highest.
        on_error="skip": what cannot be read is listed in .problems instead of raised.
        remember: as if the events came one after the other, each added to the history before the next is matched;
        key: the column (attribute) that holds their keys, by which an event that comes again is not added again.
        now: as in match, one instant for all events.
        """
        present = read_now(now)
        if remember is not False or key is not None or isinstance(present, str):
            raise NeedsKernels
        matches_of: Callable[..., Matches] = bring("dibs.cold.matches").matches_of  # and Arrow
        k = None if top is None else min(check_number("top", top), MOST_ROWS)
        state = self._state
        values, found = self._find(events, attributes, on_error, state, present)
        result = matches_of(state.items, values, found, k)
        self.pairs += result.count
        return result

    def count(
        self, events: Any, attributes: str | None = None, on_error: OnError = "raise", now: Now = None
    ) -> NDArray[np.int64]:
        """How many subscriptions each event satisfies, without making the pairs. now: as in match_batch."""
        present = read_now(now)
        if isinstance(present, str):
            raise NeedsKernels
        found = self._find(events, attributes, on_error, self._state, present)[1]
        result = np.array([len(ids) for ids in found], np.int64)
        self.pairs += int(result.sum())
        return result

    def _find(
        self, events: Any, attributes: str | None, on_error: OnError, state: Subscriptions, now: int | None
    ) -> tuple[EventValues, list[list[Id]]]:
        """What was read of a batch, and the ids of each event."""
        now = read_clock() if now is None else now
        values = self._read(events, attributes, on_error, state)
        if values.events * len(state.items) > thresholds.cold_pairs:
            raise NeedsKernels
        dead = set(values.unreadable_events.tolist())
        by_event = values_by_event(values)
        self._check_extent(sum(map(extent, by_event)), state)
        self.events += values.events
        return values, [[] if event in dead else state.find(own, now) for event, own in enumerate(by_event)]

    def _check_extent(self, extent: int, state: Subscriptions) -> None:
        if extent and extent * state.predicates > thresholds.cold_values:
            raise NeedsKernels

    def _read(self, events: Any, attributes: str | None, on_error: OnError, state: Subscriptions) -> EventValues:
        """By the reader of the compiled matcher, which has kernels only for what is refused here."""
        readers, json = bring("dibs.coding.events"), bring("dibs.coding.events.json")
        read_dicts: Callable[..., EventValues] = bring("dibs.coding.events.dicts").read_dicts
        read_events: Callable[..., EventValues] = readers.read_events
        check_on_error(on_error)
        self._check()
        check_text("attributes", attributes)
        wanted = readers.WantedNames(state.names)
        if isinstance(events, (bytes, bytearray, memoryview, str)):
            rows: Iterable[object] = json.json_lines(json.json_content(events))
            return read_dicts(rows if attributes is None else json.attributes_of(rows, attributes), wanted, on_error)
        if not isinstance(events, (list, tuple, Mapping)) and not _has_no_maps(events):
            raise NeedsKernels  # also because what can be read only once must not be begun here
        if hasattr(events, "__len__") and len(events) * len(state.items) > thresholds.cold_pairs:
            raise NeedsKernels
        return read_events(events, wanted, attributes=attributes, on_error=on_error)

    def explain(self, id: Id, event: Any, now: Now = None) -> Explanation:
        """Why the subscription matches the event, or why not, predicate by predicate. now: as in match."""
        present = read_now(now)
        explain: Callable[..., Explanation] = bring("dibs.explain").explain
        if not isinstance(event, Mapping):
            event = bring("dibs.segments.single.texts").read_event(event)
        return explain(parse(self.expression(id)), event, id=id, now=present)


def _has_no_maps(events: Any) -> bool:
    """Whether it is Arrow data without maps, whose keys are found by a kernel."""
    pa = bring("pyarrow")
    return isinstance(events, (pa.Table, pa.RecordBatch)) and "map<" not in str(events.schema)
