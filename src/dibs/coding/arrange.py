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
from dibs.language.expression import Kind
from dibs.thresholds import thresholds

if TYPE_CHECKING:
    from dibs.coding.values import EventValues

UNREADABLE = 4  # a kind after those of Kind
NUMBER, STRING, TIME, BOOLEAN = (int(k) for k in (Kind.NUMBER, Kind.STRING, Kind.TIME, Kind.BOOLEAN))


class Arranged(NamedTuple):
    """Event e has the values offsets[e] to offsets[e + 1], by ascending name; equal names are values of an array."""

    offsets: NDArray[np.int64]
    name: NDArray[np.int32]
    kind: NDArray[np.uint8]  # a Kind, or UNREADABLE
    key: NDArray[np.int64]  # the bits of a number, microseconds, 0 or 1, or which of the strings
    rest: NDArray[np.int16]  # of a number


def arranged(values: EventValues) -> Arranged | None:
    """None: there are ranges among them, or very many values in one event."""
    if values.ranges:
        return None
    n, s, t, b, u = values.numbers, values.strings, values.times, values.booleans, values.unreadable
    columns: tuple[NDArray[Any], ...] = (*n, s.event, s.name, *t, *b, *u)
    arrange = _arrange if values.events > thresholds.few_events else _arrange_few
    offsets, name, kind, key, rest = arrange(values.events, thresholds.longest_event, *map(writable, columns))
    return None if len(offsets) == 0 else Arranged(offsets, name, kind, key, rest)


def writable(array: NDArray[Any]) -> NDArray[Any]:
    """Kernels are compiled once, for writable arrays; what comes straight from Arrow is read-only."""
    return array if array.flags.writeable else array.copy()


@kernel
def _arrange(
    events,
    most,
    number_event,
    number_name,
    number_value,
    number_rest,
    string_event,
    string_name,
    time_event,
    time_name,
    time_value,
    boolean_event,
    boolean_name,
    boolean_value,
    unreadable_event,
    unreadable_name,
):
    """Offsets are empty when some event has more than `most` values. (Not in groups: an array in a NamedTuple costs
    0.2 microseconds more at the call, and single events are coded one by one.)"""
    offsets = np.zeros(events + 1, np.int64)
    _count(number_event, offsets)
    _count(string_event, offsets)
    _count(time_event, offsets)
    _count(boolean_event, offsets)
    _count(unreadable_event, offsets)
    longest = 0
    for e in range(events):
        longest = max(longest, offsets[e + 1])
        offsets[e + 1] += offsets[e]
    total = offsets[-1] if longest <= most else 0
    name, kind = np.empty(total, np.int32), np.empty(total, np.uint8)
    key, rest = np.empty(total, np.int64), np.zeros(total, np.int16)
    if longest > most:
        return offsets[:0], name, kind, key, rest

    # By event: name << 32 | place, where the places of all kinds follow each other.
    packed = np.empty(total, np.int64)
    end = offsets[:-1].copy()
    strings = len(number_event)
    times = strings + len(string_event)
    booleans = times + len(time_event)
    unreadable = booleans + len(boolean_event)
    _pack(number_event, number_name, 0, end, packed)
    _pack(string_event, string_name, strings, end, packed)
    _pack(time_event, time_name, times, end, packed)
    _pack(boolean_event, boolean_name, booleans, end, packed)
    _pack(unreadable_event, unreadable_name, unreadable, end, packed)
    _sort_each(packed, offsets)

    number_key = number_value.view(np.int64)
    for i in range(total):
        name[i] = packed[i] >> 32
        place = packed[i] & 0xFFFFFFFF
        if place < strings:
            kind[i], key[i], rest[i] = NUMBER, number_key[place], number_rest[place]
        elif place < times:
            kind[i], key[i] = STRING, place - strings
        elif place < booleans:
            kind[i], key[i] = TIME, time_value[place - times]
        elif place < unreadable:
            kind[i], key[i] = BOOLEAN, boolean_value[place - booleans]
        else:
            kind[i], key[i] = UNREADABLE, 0
    return offsets, name, kind, key, rest


@phase
def _count(event, offsets):
    """How many values event e has, in offsets[e + 1]."""
    for i in range(len(event)):
        offsets[event[i] + 1] += 1


@phase
def _pack(event, name, first, end, packed):
    """The values of one kind, whose places begin with `first`; end[e] is where the next one of event e goes."""
    for i in range(len(event)):
        packed[end[event[i]]] = (np.int64(name[i]) << 32) | (first + i)
        end[event[i]] += 1


@phase
def _sort_each(packed, offsets):
    """Within each event, by insertion: columns mostly come in order, so there is little to move."""
    for e in range(len(offsets) - 1):
        for i in range(offsets[e] + 1, offsets[e + 1]):
            x = packed[i]
            at = i
            while at > offsets[e] and packed[at - 1] > x:
                packed[at] = packed[at - 1]
                at -= 1
            packed[at] = x


_arrange_few = keeping(_arrange)
