"""The values of events as operands of tests."""

from __future__ import annotations

from typing import Any

import numpy as np

from dibs.coding.values import EventValues
from dibs.history.coded.columns import TIMED, DocumentSnapshot, long_form
from dibs.history.coded.known import Ints
from dibs.history.coded.layout import STRING, Operands
from dibs.history.coded.program import Compiled, Ends, ends_of
from dibs.history.keys import BOOLEAN, NUMBER, TIME, TOP, Cell, Span, span_of


def operands_of(values: EventValues, compiled: Compiled, constants: Ends, snapshot: DocumentSnapshot) -> Operands:
    """The constants of a program, and behind them the values of events by event and slot."""
    slots = {name: number for number, name in enumerate(compiled.slots)}
    slot, event, kind, key, tie = long_form(values, slots)
    start = stop = np.zeros(len(key), np.int64)
    data = np.empty(0, np.uint8)
    if isinstance(tie, tuple):
        tie, (offsets, data) = tie
        strings = kind == STRING
        if strings.any():
            places = tie[strings]
            text_key, text_tie = snapshot.texts.find(offsets, data)
            key, tie, start, stop = key.copy(), tie.copy(), start.copy(), stop.copy()
            key[strings], tie[strings] = text_key[places], text_tie[places]
            start[strings], stop[strings] = offsets[places], offsets[places + 1]
    first = len(constants.key)
    low = high = np.arange(first, first + len(key), dtype=np.int32)
    own = Ends(key, tie, start, stop, data)
    if values.ranges:
        slot, event, kind, low, high, own = _with_ranges(
            values, slots, snapshot, (slot, event, kind, low, high), own, first
        )
    place = event * max(len(slots), 1) + slot
    order = np.argsort(place, kind="stable")
    counts = np.bincount(place, minlength=values.events * len(slots))
    if counts.max(initial=0) > 1:
        order = _in_order(place * 8 + kind, low - first, high - first, own, order, counts[place[order]] > 1)
        counts = np.bincount(place[order], minlength=values.events * len(slots))
    at = np.zeros(values.events * len(slots) + 1, np.int64)
    if len(slots):
        np.cumsum(counts, out=at[1:])
    shift = len(constants.data)
    return Operands(
        np.append(compiled.kind, kind[order]),
        np.append(compiled.low, low[order]),
        np.append(compiled.high, high[order]),
        np.zeros(len(compiled.kind) + len(kind), np.uint8),
        np.append(constants.key, own.key),
        np.append(constants.tie, own.tie),
        np.append(constants.start, own.start + shift),
        np.append(constants.stop, own.stop + shift),
        np.append(constants.data, own.data),
        at + len(compiled.kind),
    )


def _in_order(group: Ints, low: Ints, high: Ints, ends: Ends, order: Ints, is_several: Ints) -> Ints:
    """The order of operands by place, and in one place as layout.Operands says, without those that others contain.
    group: the place and, in the last 3 bits, the kind. low, high: places among the ends; below 0: there is none."""
    several = order[is_several]
    n, own = len(several), group[several]
    low, high = low[several], high[several]
    rank = ends.ranks(np.append(own, own) & 7, np.maximum(np.append(low, high), 0))
    lows, highs = np.where(low < 0, -1, rank[:n]), np.where(high < 0, 2 * n, rank[n:])
    by_low = np.lexsort((-highs, lows, own))
    is_first = np.diff(own[by_low], prepend=-1) > 0
    end = np.cumsum(is_first) * (2 * n + 1) + highs[by_low]
    is_kept = np.append(True, end[1:] > np.maximum.accumulate(end)[:-1])
    order = np.append(order[~is_several], several[by_low[is_kept]])
    return order[np.argsort(group[order], kind="stable")]


def _with_ranges(
    values: EventValues,
    slots: dict[str, int],
    snapshot: DocumentSnapshot,
    columns: tuple[Any, ...],
    own: Ends,
    first: int,
) -> tuple[Any, ...]:
    """With the ranges among the values, which have two ends each."""
    slot, event, kind, low, high = (each.tolist() for each in columns)
    cells: list[Cell] = []
    place = first + len(own.key)
    for number, name, each in values.ranges:
        span = span_of(each)
        named = values.names[name]
        wanted = (named, TIMED + named) if span.kind == TIME else (named,)
        taken = [slots[each] for each in wanted if each in slots]
        ends = _ends(span)
        numbers = []
        for end in ends:
            numbers.append(-1 if end is None else place + len(cells))
            if end is not None:
                cells.append((span.kind, end))
        if ends[0] is not None and ends[0] == ends[1]:
            numbers[1] = numbers[0]
        for at in taken:
            for column, value in zip((slot, event, kind, low, high), (at, number, span.kind, *numbers)):
                column.append(value)
    kinds, ends_new = ends_of(cells)
    ends_new = ends_new.resolve(kinds, snapshot)
    shift = len(own.data)
    moved = ends_new._replace(start=ends_new.start + shift, stop=ends_new.stop + shift)
    pairs: list[Any] = list(zip(own, moved))
    joined = Ends(*(np.append(*pair) for pair in pairs))
    types = (np.int64, np.int64, np.uint8, np.int32, np.int32)
    return (*(np.array(c, t) for c, t in zip((slot, event, kind, low, high), types)), joined)


def _ends(span: Span) -> tuple[Any, Any]:
    """The ends of a range; where it has none, the least or greatest value of its kind, if there is one."""
    if span.kind == TIME:
        return span.low, span.high
    least = {BOOLEAN: False, NUMBER: float("-inf"), STRING: ""}[span.kind]
    greatest = {BOOLEAN: True, NUMBER: TOP, STRING: None}[span.kind]
    return least if span.low is None else span.low, greatest if span.high is None else span.high
