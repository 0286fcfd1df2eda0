"""`EventValues` put together from the parts that columns give, and rows of whole events taken out of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dibs.coding.events.raw import path_of
from dibs.coding.values import Booleans, EventProblem, EventValues, Numbers, Strings, Times, Unreadable
from dibs.errors import EventError

Ints = NDArray[np.int32]


class ValueParts:
    """Rows in the order in which they were found: for each kind a list of tuples of columns, (event, name, ...)."""

    def __init__(self) -> None:
        self.numbers: list[tuple[Ints, Ints, NDArray[np.float64], NDArray[np.int16]]] = []
        self.strings: list[tuple[Ints, Ints, NDArray[np.int64], NDArray[np.uint8]]] = []  # offsets start at 0
        self.times: list[tuple[Ints, Ints, NDArray[np.int64]]] = []
        self.booleans: list[tuple[Ints, Ints, NDArray[np.uint8]]] = []
        self.unreadable: list[tuple[Ints, Ints, str]] = []  # with the message for all these rows
        self.broken_events: list[tuple[Ints, str]] = []

    def finish(self, events: int, names: list[str], on_error: str) -> EventValues:
        """All parts together. on_error "raise": EventError for the first event with a problem, if there is one."""
        if on_error == "raise":
            self._raise_first(names)
        values = EventValues(events, names)
        if self.numbers:
            values.numbers = Numbers(*map(np.concatenate, zip(*self.numbers, strict=True)))
        if self.times:
            values.times = Times(*map(np.concatenate, zip(*self.times, strict=True)))
        if self.booleans:
            values.booleans = Booleans(*map(np.concatenate, zip(*self.booleans, strict=True)))
        if self.strings:
            event, name, offsets, data = zip(*self.strings, strict=True)
            lengths = np.concatenate([np.diff(part) for part in offsets])
            places = np.zeros(len(lengths) + 1, np.int64)
            np.cumsum(lengths, out=places[1:])
            values.strings = Strings(np.concatenate(event), np.concatenate(name), places, np.concatenate(data))
        if self.unreadable:
            values.unreadable = Unreadable(
                np.concatenate([part[0] for part in self.unreadable]),
                np.concatenate([part[1] for part in self.unreadable]),
            )
        if self.unreadable or self.broken_events:
            values.problems = self._problems(names)
        if self.broken_events:
            values = drop_events(values, np.concatenate([part[0] for part in self.broken_events]))
        return values

    def _raise_first(self, names: list[str]) -> None:
        firsts: list[tuple[int, str | None, str]] = []
        for event, name, message in self.unreadable:
            row = int(event.argmin())
            firsts.append((int(event[row]), path_of(names[name[row]]), message))
        firsts += [(int(event.min()), None, message) for event, message in self.broken_events if len(event)]
        if firsts:
            number, attribute, text = min(firsts, key=lambda first: first[0])
            raise EventError(text, number, attribute)

    def _problems(self, names: list[str]) -> list[EventProblem]:
        """One for each event and attribute (an array with several bad elements is told once), in order of events."""
        problems: dict[tuple[int, str | None], EventProblem] = {}
        for events, message in self.broken_events:
            for event in events.tolist():
                problems.setdefault((event, None), EventProblem(event, None, message))
        for events, numbers, message in self.unreadable:
            for event, number in zip(events.tolist(), numbers.tolist(), strict=True):
                attribute = path_of(names[number])
                problems.setdefault((event, attribute), EventProblem(event, attribute, message))
        return sorted(problems.values(), key=lambda problem: problem.event)


def drop_events(values: EventValues, events: NDArray[np.int32]) -> EventValues:
    """The same batch without any value of these events, which become its unreadable events."""
    gone = np.zeros(values.events, bool)
    gone[events] = True

    def kept(event: NDArray[np.int32]) -> NDArray[np.bool_]:
        return ~gone[event]

    numbers, strings, times, booleans = values.numbers, values.strings, values.times, values.booleans
    numbers = Numbers._make(column[kept(numbers.event)] for column in numbers)
    times = Times._make(column[kept(times.event)] for column in times)
    booleans = Booleans._make(column[kept(booleans.event)] for column in booleans)
    keep = kept(strings.event)
    lengths = np.diff(strings.offsets)
    offsets = np.zeros(np.count_nonzero(keep) + 1, np.int64)
    np.cumsum(lengths[keep], out=offsets[1:])
    data = strings.data[np.repeat(keep, lengths)]
    return replace(
        values,
        numbers=numbers,
        strings=Strings(strings.event[keep], strings.name[keep], offsets, data),
        times=times,
        booleans=booleans,
        ranges=[row for row in values.ranges if not gone[row[0]]],
        unreadable=Unreadable(*(column[kept(values.unreadable.event)] for column in values.unreadable)),
        unreadable_events=np.flatnonzero(gone).astype(np.int32),
    )
