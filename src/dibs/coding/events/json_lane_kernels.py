"""The kernels of coding.events.json_lane: lines out of bytes, and the values of many texts by event and name."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.coding.arrange import STRING
from dibs.coding.events.json_kernels import READ, read_object, skip_space
from dibs.jit.kernel import kernel, phase
from dibs.jit.lanes import lowest_bit
from dibs.jit.scanning import PADDING, WIDTH, equal_bytes

_NEW_LINE = np.uint8(10)


class LaneBatch(NamedTuple):
    """The values of events: the columns of coding.arrange.Arranged, and of each string its event and name."""

    offsets: NDArray[np.int64]
    name: NDArray[np.int32]
    kind: NDArray[np.uint8]
    key: NDArray[np.int64]
    rest: NDArray[np.int16]
    string_event: NDArray[np.int32]
    string_name: NDArray[np.int32]
    counts: NDArray[np.int64]  # [0]: events, [1]: values


class Order(NamedTuple):
    """In which order the values of the last event were by name: mostly those of the next one are as well."""

    place: NDArray[np.int32]  # room for as many values as are sorted
    values: NDArray[np.int64]  # [0]: how many it had

    @classmethod
    def room(cls, longest: int) -> Order:
        return cls(np.empty(longest, np.int32), np.zeros(1, np.int64))


@kernel
def split_lines(data, start, end, number):
    """The lines that are not blank: line number[i], counted from 0, is data[start[i]:end[i]]. Returns how many they
    are, and how many all are. There are PADDING bytes behind the data."""
    size = len(data) - PADDING
    kept, lines, at = 0, 0, 0
    while at < size:
        stop = at
        found = equal_bytes(data, stop, _NEW_LINE)
        while found == 0 and stop + WIDTH < size:
            stop += WIDTH
            found = equal_bytes(data, stop, _NEW_LINE)
        stop = min(stop + lowest_bit(found), size) if found != 0 else size
        if skip_space(data, at, stop) < stop:
            start[kept], end[kept], number[kept] = at, stop, lines
            kept += 1
        lines += 1
        at = stop + 1
    return kept, lines


@kernel
def read_texts(text, start, end, names, found, work, order, batch, unsure):
    """Adds the events of these texts to the batch, which has room for them. Returns how many of the texts are unsure,
    whose numbers are left there; and whether the values of each event are in order. A text that ends before it starts
    is an event without values."""
    return _read_texts(text, start, end, names, found, work, order, batch, unsure)


@phase(inline=False)
def _read_texts(text, start, end, names, found, work, order, batch, unsure):
    event, values = batch.counts[0], batch.counts[1]
    left, in_order = 0, True
    for i in range(len(start)):
        found.counts[0] = 0
        string = found.counts[1]
        if end[i] >= start[i] and read_object(text, start[i], end[i], names, found, work) != READ:
            unsure[left] = i
            left += 1
        count = found.counts[0]
        if count <= len(order.place):
            _find_order(found, count, order)
            for k in range(count):
                _copy_value(found, np.int64(order.place[k]), batch, values + k)
        else:
            in_order = False
            for k in range(count):
                _copy_value(found, k, batch, values + k)
        for k in range(count):
            if found.kind[k] == STRING:
                batch.string_event[string], batch.string_name[string] = event, found.name[k]
                string += 1
        event += 1
        values += count
        batch.offsets[event] = values
    batch.counts[0], batch.counts[1] = event, values
    return left, in_order


@phase
def _copy_value(found, k, batch, to):
    batch.name[to], batch.kind[to], batch.key[to], batch.rest[to] = (
        found.name[k],
        found.kind[k],
        found.key[k],
        found.rest[k],
    )


@phase
def _find_order(found, count, order):
    """The places of the values by ascending name."""
    place, name = order.place, found.name
    known = order.values[0] == count
    if known:
        for k in range(1, count):
            known &= name[place[k - 1]] <= name[place[k]]
    if known:
        return
    order.values[0] = count
    for k in range(count):
        at = k
        while at > 0 and name[place[at - 1]] > name[k]:
            place[at] = place[at - 1]
            at -= 1
        place[at] = k
