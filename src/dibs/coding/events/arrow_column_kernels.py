"""The kernels of coding.events.arrow_columns: they walk Arrow's own structures, as its C data interface lays them out.

    ArrowArray    words: length, nulls (-1: not counted), offset, buffers, children, -> buffers, -> children, ...
    buffers       -> which elements are valid (a bit each; 0: all are), -> values, or -> offsets and -> bytes

A column that has no value in 64 rows costs a look at 8 bytes there.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.jit.bits import value_at
from dibs.jit.borrowing import borrow
from dibs.jit.kernel import kernel, phase
from dibs.jit.lanes import count_bits, lowest_bit
from dibs.jit.prefetching import prefetch_at

# Forms of columns.
INT8, INT16, INT32, INT64, UINT8, UINT16, UINT32, UINT64, FLOAT32, FLOAT64, BOOLEAN, TIME, TEXT, LARGE_TEXT = range(14)
WIDTHS = (1, 2, 4, 8, 1, 2, 4, 8, 4, 8, 0, 8, 4, 8)  # bytes per row of a column's second buffer; 0: a bit

STRETCH = 4096  # so many rows of a column are read at a time

_LENGTH, _OFFSET, _BUFFERS, _CHILDREN = 0, 16, 40, 48  # bytes from the start of an ArrowArray


class Columns(NamedTuple):
    """The columns that are read."""

    place: NDArray[np.int64]  # among those of the batch
    name: NDArray[np.int32]
    form: NDArray[np.uint8]


class ColumnRoom(NamedTuple):
    """For the values of all columns, kind by kind: as in coding.values."""

    number_event: NDArray[np.int32]
    number_name: NDArray[np.int32]
    number_value: NDArray[np.float64]
    number_rest: NDArray[np.int16]
    boolean_event: NDArray[np.int32]
    boolean_name: NDArray[np.int32]
    boolean_value: NDArray[np.uint8]
    time_event: NDArray[np.int32]
    time_name: NDArray[np.int32]
    time_value: NDArray[np.int64]
    text_event: NDArray[np.int32]
    text_name: NDArray[np.int32]
    text_offsets: NDArray[np.int64]
    text_bytes: NDArray[np.uint8]


@kernel
def count_values(batch, columns):
    """How many numbers, booleans, times and texts there are, and bytes of texts; -1 texts if offsets of some are out
    of order. batch: the address of its struct."""
    counts = np.zeros(5, np.int64)
    for c in range(len(columns.place)):
        form = columns.form[c]
        column, rows, first, valid = _column(batch, columns.place[c])
        found = 0
        least, most = _text(column, form, first)[0], _text(column, form, first + rows - 1)[1]
        for start in range(0, rows, 64):
            bits = _valid(valid, first + start, min(rows - start, 64))
            found += count_bits(bits)
            while form >= TEXT and bits != 0:
                low, high = _text(column, form, first + start + lowest_bit(bits))
                if low < least or high < low or high > most:
                    return np.int64(0), np.int64(0), np.int64(0), np.int64(-1), np.int64(0)
                counts[4] += high - low
                least = high
                bits &= bits - np.uint64(1)
        counts[3 if form >= TEXT else 2 if form == TIME else 1 if form == BOOLEAN else 0] += found
    return counts[0], counts[1], counts[2], counts[3], counts[4]


@kernel
def take_values(batch, columns, event, room):
    """Fills the room, column by column. event: the number of the first row."""
    columns, room = borrow(columns), borrow(room)
    counts = np.zeros(4, np.int64)
    if len(room.text_offsets) > 0:
        room.text_offsets[0] = 0
    listed = np.empty(STRETCH, np.int64)
    for c in range(len(columns.place)):
        form, name = columns.form[c], columns.name[c]
        column, rows, first, valid = _column(batch, columns.place[c])
        for start in range(0, rows, STRETCH):
            found = listed[: _list_rows(valid, first + start, min(rows - start, STRETCH), listed)]
            _ask_for_values(column, form, found)
            if form < BOOLEAN:
                _take_numbers(column, form, found, event - first, name, room, counts)
            elif form == BOOLEAN:
                _take_booleans(column, found, event - first, name, room, counts)
            elif form == TIME:
                _take_times(column, found, event - first, name, room, counts)
            else:
                _take_texts(column, form, found, event - first, name, room, counts)


@phase
def _list_rows(valid, first, count, listed):
    """Those of `count` rows from `first` on that have a value; returns how many there are."""
    found = 0
    for start in range(0, count, 64):
        bits = _valid(valid, first + start, min(count - start, 64))
        while bits != 0:
            listed[found] = first + start + lowest_bit(bits)
            found += 1
            bits &= bits - np.uint64(1)
    return found


@phase
def _ask_for_values(column, form, listed):
    """Values of sparse columns lie far apart: all are asked for before the first is waited for."""
    data, width = _buffer(column, 1), WIDTHS[form]
    if width > 0:
        for row in listed:
            prefetch_at(data + width * row)


@phase
def _tell_whose(events, names, n, listed, event, name):
    """The event and the name of the values, from the n-th on; returns where the next ones go."""
    for k in range(len(listed)):
        events[n + k], names[n + k] = event + listed[k], name
    return n + len(listed)


@phase
def _take_numbers(column, form, listed, event, name, room, counts):
    data, n = _buffer(column, 1), counts[0]
    counts[0] = _tell_whose(room.number_event, room.number_name, n, listed, event, name)
    for k in range(len(listed)):
        room.number_value[n + k], room.number_rest[n + k] = _number(data, form, listed[k])


@phase
def _take_booleans(column, listed, event, name, room, counts):
    data, n = _buffer(column, 1), counts[1]
    counts[1] = _tell_whose(room.boolean_event, room.boolean_name, n, listed, event, name)
    for k in range(len(listed)):
        row = listed[k]
        room.boolean_value[n + k] = value_at(np.uint8(0), data + (row >> 3)) >> (row & 7) & 1


@phase
def _take_times(column, listed, event, name, room, counts):
    data, n = _buffer(column, 1), counts[2]
    counts[2] = _tell_whose(room.time_event, room.time_name, n, listed, event, name)
    for k in range(len(listed)):
        room.time_value[n + k] = value_at(np.int64(0), data + 8 * listed[k])


@phase
def _take_texts(column, form, listed, event, name, room, counts):
    data, n = _buffer(column, 2), counts[3]
    counts[3] = _tell_whose(room.text_event, room.text_name, n, listed, event, name)
    for k in range(len(listed)):
        low, high = _text(column, form, listed[k])
        at = room.text_offsets[n + k]
        for byte in range(high - low):
            room.text_bytes[at + byte] = value_at(np.uint8(0), data + low + byte)
        room.text_offsets[n + k + 1] = at + high - low


@phase
def _column(batch, place):
    """(address of the column, its rows, the first of them in its buffers, address of its valid bits)."""
    children = value_at(np.int64(0), batch + _CHILDREN)
    column = value_at(np.int64(0), children + 8 * place)
    first = value_at(np.int64(0), column + _OFFSET) + value_at(np.int64(0), batch + _OFFSET)
    return column, value_at(np.int64(0), batch + _LENGTH), first, _buffer(column, 0)


@phase
def _buffer(column, number):
    return value_at(np.int64(0), value_at(np.int64(0), column + _BUFFERS) + 8 * number)


@phase
def _valid(address, first, count):
    """Up to 64 bits from bit `first` on. Nothing behind them is read."""
    everything = np.uint64(2**64 - 1) >> np.uint64(64 - count)
    if address == 0:
        return everything
    shift = first & 7
    at, end = address + (first >> 3), address + (first + count + 7 >> 3)
    bits = np.uint64(value_at(np.uint8(0), at)) >> np.uint64(shift)
    for k in range(1, end - at):
        bits |= np.uint64(value_at(np.uint8(0), at + k)) << np.uint64(8 * k - shift)
    return bits & everything


@phase
def _text(column, form, row):
    """(start, end) of a text in its bytes; (0, 0) of anything else."""
    if form < TEXT:
        return np.int64(0), np.int64(0)
    offsets = _buffer(column, 1)
    if form == TEXT:
        return (
            np.int64(value_at(np.int32(0), offsets + 4 * row)),
            np.int64(value_at(np.int32(0), offsets + 4 * row + 4)),
        )
    return value_at(np.int64(0), offsets + 8 * row), value_at(np.int64(0), offsets + 8 * row + 8)


@phase
def _number(data, form, row):
    """(value, rest): see coding.values."""
    if form == INT64:
        return _signed_key(value_at(np.int64(0), data + 8 * row))
    if form == UINT64:
        return _unsigned_key(value_at(np.uint64(0), data + 8 * row))
    value = 0.0
    if form == FLOAT64:
        value = value_at(np.float64(0), data + 8 * row)
    elif form == FLOAT32:
        value = np.float64(value_at(np.float32(0), data + 4 * row))
    elif form == INT32:
        value = np.float64(value_at(np.int32(0), data + 4 * row))
    elif form == UINT32:
        value = np.float64(value_at(np.uint32(0), data + 4 * row))
    elif form == INT16:
        value = np.float64(value_at(np.int16(0), data + 2 * row))
    elif form == UINT16:
        value = np.float64(value_at(np.uint16(0), data + 2 * row))
    elif form == INT8:
        value = np.float64(value_at(np.int8(0), data + row))
    else:
        value = np.float64(value_at(np.uint8(0), data + row))
    if value != value:
        return np.inf, np.int64(1)
    return value + 0.0, np.int64(0)


@phase
def _signed_key(x):
    near = np.float64(x)
    if near == 2.0**63:  # no int64 itself
        return near, x - np.int64(2**63 - 1) - np.int64(1)
    return near, x - np.int64(near)


@phase
def _unsigned_key(x):
    near = np.float64(x)
    return near, np.int64(x - (np.uint64(0) if near == 2.0**64 else np.uint64(near)))
