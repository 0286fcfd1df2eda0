"""The values of a batch by event and name, whatever their kind: made once for a batch, and then coded for each segment.

Reading gives values kind by kind, in the order of columns or of keys. Attributes of domains are numbered in the order
of their names, and so are the names of a batch: what is sorted by name here is sorted by attribute for every segment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.jit.interpreter import keeping
from dibs.jit.kernel import kernel, phase
from dibs.jit.sorting import sort_run
from dibs.language.expression import Kind
from dibs.tuning import tuned

if TYPE_CHECKING:
    from dibs.coding.values import EventValues

# single matches beside a merge 0.65 ms, 1.5 where kernels give the interpreter away
FEW_EVENTS = tuned("few_events", 4, 1, "events", "for which kernels keep the interpreter, if subscriptions are few too")
LONGEST_EVENT = tuned("longest_event", 1_000, 0, "values", "of an event; more are sorted another way")

MANY = 128  # values of an event that are no longer sorted by insertion
UNREADABLE = 4  # a kind after those of Kind
NUMBER, STRING, TIME, BOOLEAN = (int(k) for k in (Kind.NUMBER, Kind.STRING, Kind.TIME, Kind.BOOLEAN))


class Arranged(NamedTuple):
    """Event e has the values offsets[e] to offsets[e + 1], by ascending name; equal names are values of an array."""

    offsets: NDArray[np.int64]
    name: NDArray[np.int32]
    kind: NDArray[np.uint8]  # a Kind, or UNREADABLE
    key: NDArray[np.int64]  # the bits of a number, microseconds, 0 or 1, or which of the strings
    rest: NDArray[np.int16]  # of a number


def arrange_values(values: EventValues) -> Arranged | None:
    """None: there are ranges among them, or very many values in one event."""
    if values.ranges:
        return None
    n, s, t, b, u = values.numbers, values.strings, values.times, values.booleans, values.unreadable
    columns: tuple[NDArray[Any], ...] = (*n, s.event, s.name, *t, *b, *u)
    arrange = _arrange if values.events > FEW_EVENTS.value else _arrange_few
    offsets, name, kind, key, rest = arrange(values.events, LONGEST_EVENT.value, *map(writable, columns))
    return None if len(offsets) == 0 else Arranged(offsets, name, kind, key, rest)


def writable(array: NDArray[Any]) -> NDArray[Any]:
    """Kernels are compiled once, for writable arrays; what comes straight from Arrow is read-only."""
    return array if array.flags.writeable else array.copy()


class _Where(NamedTuple):
    """The event and the name of each value of a kind."""

    event: NDArray[np.int32]
    name: NDArray[np.int32]


class _Contents(NamedTuple):
    """What the values are, kind by kind. (Strings are where they were.)"""

    number: NDArray[np.float64]
    rest: NDArray[np.int16]
    time: NDArray[np.int64]
    boolean: NDArray[np.uint8]


@kernel
def _arrange(events, most, *columns):
    """The columns of Numbers, Strings (without their texts), Times, Booleans and Unreadable, one after the other:
    handing groups over from Python takes twice the time, which a few events would notice. Offsets are empty when some
    event has more than `most` values."""
    kinds = (
        _Where(columns[0], columns[1]),
        _Where(columns[4], columns[5]),
        _Where(columns[6], columns[7]),
        _Where(columns[9], columns[10]),
        _Where(columns[12], columns[13]),
    )
    offsets = np.zeros(events + 1, np.int64)
    longest = _find_offsets(kinds, offsets)
    total = offsets[-1] if longest <= most else 0
    name, kind = np.empty(total, np.int32), np.empty(total, np.uint8)
    key, rest = np.empty(total, np.int64), np.zeros(total, np.int16)
    if longest > most:
        return offsets[:0], name, kind, key, rest
    packed = np.empty(total, np.int64)
    _pack(kinds, offsets[:-1].copy(), packed)
    _sort_each(packed, offsets)
    contents = _Contents(columns[2], columns[3], columns[8], columns[11])
    _unpack(kinds, contents, packed, Arranged(offsets, name, kind, key, rest))
    return offsets, name, kind, key, rest


@phase
def _find_offsets(kinds, offsets):
    """Returns how many values an event has at most."""
    for values in kinds:
        for i in range(len(values.event)):
            offsets[values.event[i] + 1] += 1
    longest = 0
    for e in range(len(offsets) - 1):
        longest = max(longest, offsets[e + 1])
        offsets[e + 1] += offsets[e]
    return longest


@phase
def _pack(kinds, end, packed):
    """By event: name << 32 | place, where the places of all kinds follow each other; end[e] is where the next one of
    event e goes."""
    first = 0
    for values in kinds:
        for i in range(len(values.event)):
            e = values.event[i]
            packed[end[e]] = (np.int64(values.name[i]) << 32) | (first + i)
            end[e] += 1
        first += len(values.event)


@phase
def _unpack(kinds, contents, packed, values):
    strings = len(kinds[0].event)
    times = strings + len(kinds[1].event)
    booleans = times + len(kinds[2].event)
    unreadable = booleans + len(kinds[3].event)
    for i in range(len(packed)):
        values.name[i] = packed[i] >> 32
        place = packed[i] & 0xFFFFFFFF
        if place < strings:
            values.kind[i], values.rest[i] = NUMBER, contents.rest[place]
            values.key[i] = np.float64(contents.number[place]).view(np.int64)
        elif place < times:
            values.kind[i], values.key[i] = STRING, place - strings
        elif place < booleans:
            values.kind[i], values.key[i] = TIME, contents.time[place - times]
        elif place < unreadable:
            values.kind[i], values.key[i] = BOOLEAN, contents.boolean[place - booleans]
        else:
            values.kind[i], values.key[i] = UNREADABLE, 0


@phase
def _sort_each(packed, offsets):
    """Within each event, by insertion where its values are few: columns mostly come in order, so there is little to
    move."""
    for e in range(len(offsets) - 1):
        first, last = offsets[e], offsets[e + 1]
        if last - first > MANY:
            sort_run(packed, first, last)
            continue
        for i in range(first + 1, last):
            x = packed[i]
            at = i
            while at > first and packed[at - 1] > x:
                packed[at] = packed[at - 1]
                at -= 1
            packed[at] = x


_arrange_few = keeping(_arrange)
