"""Events as Python dicts (what JSON is parsed to included) into `EventValues`.

The loop over plain values is written out in one function, because a call for each value would cost more than all
the rest. Rows of one kind are appended event by event, so it is enough to note, after each event, how many there
are: `_Ends`. Objects and arrays, and every type that is not a plain bool, int, float or str, take the slow lane.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Iterator, Mapping
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.arrays import from_strings
from dibs.coding.events.depth import DEEPEST, too_deep
from dibs.coding.events.raw import RawNames, TooDeep, path_of
from dibs.coding.events.rows import drop_events
from dibs.coding.events.scalars import EXACT_SCALARS, LONE_SURROGATE, UnreadableValue, is_text, read_range, read_scalar
from dibs.coding.events.wanted import LEADS, SKIP, WantedNames
from dibs.coding.values import (
    Booleans,
    EventProblem,
    EventValues,
    Numbers,
    Range,
    Strings,
    Times,
    Unreadable,
    float_keys,
    number_key,
)
from dibs.errors import EventError
from dibs.language.expression import Kind

_ARRAYS = (list, tuple, set, frozenset)


class BrokenEvent(NamedTuple):
    """Stands for an event that could not even be brought into the form of a dict."""

    message: str


class _BadEvent(Exception):
    """The event as a whole is unreadable."""


class _Stop(Exception):
    """A problem was noted and on_error is "raise": nothing after it matters."""


def read_dicts(events: Iterable[object], wanted: WantedNames, on_error: str) -> EventValues:
    return _DictReader(wanted, on_error == "raise").read(events)


class _DictReader:
    def __init__(self, wanted: WantedNames, stop: bool):
        self.wanted = wanted
        self.stop = stop
        self.below: dict[str, dict[str, tuple[str, int]] | None] = {}  # path -> key -> (path, code); None: skip all
        self.event = -1  # the number of the event at hand
        self.numbers: list[int | float] = []
        self.number_names: list[int] = []
        self.strings: list[str] = []
        self.string_names: list[int] = []
        self.times: list[int] = []
        self.time_names: list[int] = []
        self.booleans: list[bool] = []
        self.boolean_names: list[int] = []
        self.ranges: list[tuple[int, int, Range]] = []
        self.unreadable: list[tuple[int, int]] = []
        self.unreadable_events: list[int] = []
        self.problems: list[EventProblem] = []

    def read(self, events: Iterable[object]) -> EventValues:
        numbers, number_names = self.numbers.append, self.number_names.append
        strings, string_names = self.strings.append, self.string_names.append
        booleans, boolean_names = self.booleans.append, self.boolean_names.append
        raw = self.wanted.raw
        code_of = (self.wanted.codes if raw is None else raw.other_codes).get
        ends = _Ends()
        try:
            for event in events:
                self.event += 1
                try:
                    if type(event) is not dict and not isinstance(event, Mapping):
                        raise _BadEvent(_no_event(event))
                    for key, value in event.items():
                        code = code_of(key)
                        if code is None:
                            code = self._code(key)
                        if code < 0:
                            if code == LEADS:
                                self._structure(key, code, value)
                            continue
                        kind = type(value)
                        if kind is float or kind is int:
                            numbers(value)
                            number_names(code)
                        elif kind is str:
                            strings(value)
                            string_names(code)
                        elif kind is bool:
                            booleans(value)
                            boolean_names(code)
                        elif kind in EXACT_SCALARS:
                            self._take(code, EXACT_SCALARS[kind](value))
                        elif value is not None:
                            self._structure(key, code, value)
                    if raw is not None:
                        self._take_raw(raw, event)
                except _BadEvent as problem:
                    self.unreadable_events.append(self.event)
                    self._problem(None, str(problem))
                ends.numbers.append(len(self.numbers))
                ends.strings.append(len(self.strings))
                ends.times.append(len(self.times))
                ends.booleans.append(len(self.booleans))
        except _Stop:
            # Rows of the event at hand have no end and are cut off; the strings before it are still to be checked.
            del self.strings[ends.strings[-1] if ends.strings else 0 :]
        return self._finish(self.event + 1, ends)

    def _code(self, key: object, path: str | None = None) -> int:
        """The code of a key that is not known yet, in an object at this path (None: in the event itself)."""
        if type(key) is not str:
            if not isinstance(key, str):
                raise _BadEvent(no_key(key, path))
            key = str.__str__(key)  # other classes may hash and print as they like
        name = key if path is None else f"{path}.{key}"
        return SKIP if name[:1] == "\0" else self.wanted.code(name)

    def _structure(self, path: str, code: int, value: Any) -> None:
        """Everything inside a value, depth first, without recursion."""
        stack: list[Iterator[tuple[str, int, Any]]] = [iter([(str.__str__(path), code, value)])]
        while stack:
            for path, code, value in stack[-1]:
                kind = type(value)
                if kind is float or kind is int:
                    if code >= 0:
                        self.numbers.append(value)
                        self.number_names.append(code)
                elif kind is str:
                    if code >= 0:
                        self.strings.append(value)
                        self.string_names.append(code)
                elif value is not None:
                    inside = self._inside(path, code, value)
                    if inside is not None:
                        if len(stack) > DEEPEST:
                            raise _BadEvent(too_deep(path))
                        stack.append(inside)
                        break
            else:
                stack.pop()

    def _inside(self, path: str, code: int, value: Any) -> Iterator[tuple[str, int, Any]] | None:
        """What an object or array holds, as (path, code, value). Any other value is taken here and gives None."""
        if isinstance(value, dict):
            return self._fields(path, value)
        if isinstance(value, _ARRAYS):
            return zip(repeat(path), repeat(code), value)
        if isinstance(value, np.ndarray):
            if code < 0 and value.dtype.kind != "O":
                return None
            # tolist() would make plain integers of datetime64[ns].
            elements = list(value.flat) if value.dtype.kind in "mM" else value.tolist()
            return zip(repeat(path), repeat(code), elements if isinstance(elements, list) else [elements])
        if code >= 0:
            try:
                if isinstance(value, Range):
                    found = read_range(value)
                    found = found if type(value) is Range else type(value)(found.lo, found.hi)  # see coding.expressed
                    self.ranges.append((self.event, code, found))
                    return None
                self._take(code, read_scalar(value))
                return None
            except UnreadableValue as problem:
                if not isinstance(value, Mapping):
                    self.unreadable.append((self.event, code))
                    self._problem(self.wanted.names[code], str(problem))
                    return None
        return self._fields(path, value) if isinstance(value, Mapping) else None

    def _take(self, code: int, scalar: tuple[Kind, Any] | None) -> None:
        if scalar is None:
            return
        kind, value = scalar
        if kind is Kind.NUMBER:
            self.numbers.append(value)
            self.number_names.append(code)
        elif kind is Kind.STRING:
            self.strings.append(value)
            self.string_names.append(code)
        elif kind is Kind.TIME:
            self.times.append(value)
            self.time_names.append(code)
        else:
            self.booleans.append(value)
            self.boolean_names.append(code)

    def _take_raw(self, raw: RawNames, event: Mapping[Any, Any]) -> None:
        """What is asked for as it came."""
        try:
            for code, found in raw.find(event):
                if isinstance(found, str):
                    self.strings.append(found)
                    self.string_names.append(code)
                elif found is None:
                    self.unreadable.append((self.event, code))
                elif isinstance(found, UnreadableValue):
                    self.unreadable.append((self.event, code))
                    self._problem(path_of(self.wanted.names[code]), str(found))
                else:
                    self.booleans.append(found)
                    self.boolean_names.append(code)
        except TooDeep as problem:
            raise _BadEvent(str(problem)) from None

    def _fields(self, path: str, value: Mapping[Any, Any]) -> Iterator[tuple[str, int, Any]] | None:
        if path not in self.below:
            self.below[path] = {} if self.wanted.leads(path) else None
        known = self.below[path]
        return None if known is None else self._find_known_fields(path, known, value)

    def _find_known_fields(
        self, path: str, known: dict[str, tuple[str, int]], value: Mapping[Any, Any]
    ) -> Iterator[tuple[str, int, Any]]:
        for key, inner in value.items():
            place = known.get(key)
            if place is None:
                code = self._code(key, path)
                place = (f"{path}.{str.__str__(key)}", code)
                if type(key) is str:
                    known[key] = place
            if place[1] != SKIP:
                yield (*place, inner)

    def _problem(self, attribute: str | None, message: str) -> None:
        self.problems.append(EventProblem(self.event, attribute, message))
        if self.stop:
            raise _Stop

    def _finish(self, events: int, ends: _Ends) -> EventValues:
        rows: dict[str, Any] = {}  # only what there is: for one event, empty arrays would cost more than its values
        if self.strings:
            rows["strings"] = self._finish_strings(ends.strings)
        if self.problems:
            self.problems.sort(key=lambda problem: problem.event)
            if self.stop:
                first = self.problems[0]
                raise EventError(first.message, first.event, first.attribute)
        if self.numbers:
            name = np.array(self.number_names, np.int32)
            rows["numbers"] = Numbers(_event_of(ends.numbers), name, *_number_keys(self.numbers))
        if self.times:
            name = np.array(self.time_names, np.int32)
            rows["times"] = Times(_event_of(ends.times), name, np.array(self.times, np.int64))
        if self.booleans:
            name = np.array(self.boolean_names, np.int32)
            rows["booleans"] = Booleans(_event_of(ends.booleans), name, np.array(self.booleans, np.uint8))
        if self.unreadable:
            event, name = np.array(self.unreadable, np.int32).T.copy()
            rows["unreadable"] = Unreadable(event, name)
        values = EventValues(events, self.wanted.names, ranges=self.ranges, problems=self.problems, **rows)
        if self.unreadable_events:
            values = drop_events(values, np.array(self.unreadable_events, np.int32))
        return values

    def _finish_strings(self, ends: list[int]) -> Strings:
        event = _event_of(ends)
        name = np.array(self.string_names[: len(self.strings)], np.int32)
        strings = self.strings
        try:
            text = from_strings(strings)
        except UnicodeEncodeError:
            good = np.array([is_text(string) for string in strings])
            for row in np.flatnonzero(~good):
                self.unreadable.append((int(event[row]), int(name[row])))
                problem = EventProblem(int(event[row]), path_of(self.wanted.names[name[row]]), LONE_SURROGATE)
                self.problems.append(problem)
            event, name = event[good], name[good]
            text = from_strings([strings[row] for row in np.flatnonzero(good)])
        _, offsets, data = text.buffers()
        places = np.frombuffer(offsets, np.int64, len(text) + 1)
        return Strings(event, name, places, np.frombuffer(data or b"", np.uint8, places[-1]))


class _Ends:
    """For each kind: how many rows there are after each event."""

    __slots__ = ("booleans", "numbers", "strings", "times")

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.strings: list[int] = []
        self.times: list[int] = []
        self.booleans: list[int] = []


def _event_of(ends: list[int]) -> NDArray[np.int32]:
    """The event of each row."""
    if len(ends) == 1:
        return np.zeros(ends[0], np.int32)
    return np.repeat(np.arange(len(ends), dtype=np.int32), np.diff(ends, prepend=0))


def _number_keys(numbers: list[int | float]) -> tuple[NDArray[np.float64], NDArray[np.int16]]:
    """(value, rest) of ints of any size and floats; see values.number_key, which takes those that need care."""
    try:
        near = np.array(numbers, np.float64)
    except OverflowError:
        keys = [number_key(number) for number in numbers]
        return np.array([key[0] for key in keys]), np.array([key[1] for key in keys], np.int16)
    magnitude = np.abs(near)
    if magnitude.max() < 2.0**53:  # no NaN either
        return near + 0.0, np.zeros(len(near), np.int16)
    value, rest = float_keys(near)
    for row in np.flatnonzero(magnitude >= 2.0**53):
        value[row], rest[row] = number_key(numbers[row])
    return value, rest


def _no_event(event: object) -> str:
    if isinstance(event, BrokenEvent):
        return event.message
    return f"found an event of type {type(event).__name__}; expected a dict of attribute names to values"


def no_key(key: object, path: str | None) -> str:
    """What is wrong with a key that is no string, in an object at this path (None: in the event itself)."""
    place = "" if path is None else f" below {path[:100]!r}"
    return f"found the key {reprlib.repr(key)} of type {type(key).__name__}{place}; expected keys that are strings"
