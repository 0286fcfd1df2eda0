"""Rows to sorted lists of ids: integers in their order, texts by code point, integers before texts.

A text that Arrow hands to Python costs 0.6 microseconds, and sorting a list of them 0.2. So a segment that has given
out as many texts as it has rows gets their order: the rank of each row and the row of each rank (8 bytes), and the
texts by rank as Python objects (some 60 bytes and their length each; only if the segment has at most
`thresholds.listed_ids` rows). Then ranks are sorted, which are numbers, and texts are looked up: tens of nanoseconds.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dibs.arrays import from_numpy, to_numpy
from dibs.jit.kernel import kernel
from dibs.jit.prefetching import prefetch_to_write
from dibs.segments.ids import Id, IdIndex
from dibs.thresholds import thresholds

MANY = 32  # ids of an event, for which it is sorted by itself
FEW = 16  # ids that are put into the list of all others one by one
PAIRS_AT_ONCE = 1 << 16  # that are sorted together, in the caches
_RANK = 0xFFFFFFFF


class TextOrder:
    """The order of a segment's texts. A value."""

    def __init__(self, ids: pa.Array):
        order = to_numpy(pc.sort_indices(ids)).astype(np.int64)
        self.rank = np.empty(len(order), np.int32)
        self.rank[order] = np.arange(len(order), dtype=np.int32)
        self._texts: NDArray[Any] | None = None
        self._row, self._ids = order.astype(np.int32), ids
        if len(order) <= thresholds.listed_ids:
            self._texts = np.empty(len(order), object)
            self._texts[:] = texts_of(ids.take(from_numpy(order)))
            self._objects = np.frombuffer(self._texts, np.int64)  # the addresses of the texts

    def texts(self, ranks: NDArray[Any]) -> list[Id]:
        """Those of the ranks."""
        if self._texts is not None:
            if len(ranks) >= MANY:
                _ask_for_texts(self._objects, ranks)
            return self._texts[ranks].tolist()
        return texts_of(self._ids.take(from_numpy(self._row[ranks])))

    @property
    def nbytes(self) -> int:
        return self.rank.nbytes + self._row.nbytes + (0 if self._texts is None else 68 * len(self._texts))


def texts_of(array: pa.Array) -> list[Id]:
    """The texts of a large_string array: all bytes are decoded at once, and cut."""
    starts = np.frombuffer(array.buffers()[1], np.int64, len(array) + 1, 8 * array.offset)
    data = array.buffers()[2]
    content = b"" if data is None else memoryview(data)[starts[0] : starts[-1]].tobytes()
    ends = (starts - starts[0]).tolist()
    if content.isascii():
        text = content.decode("ascii")
        return [text[a:b] for a, b in zip(ends, ends[1:])]
    return [content[a:b].decode() for a, b in zip(ends, ends[1:])]


def order_of(ids: IdIndex, more: int) -> TextOrder | None:
    """The order of a segment's texts, if it is worth it: `more` of them are asked for."""
    known = ids.order
    if known is None:
        ids.given += more
        if ids.given >= len(ids.ids):
            known = ids.order = TextOrder(ids.ids)
    return known


def sort_ids(parts: Sequence[tuple[IdIndex, NDArray[np.int32]]], more: Sequence[Id] = ()) -> list[Id]:
    """The ids of some rows of several segments, and these."""
    if len(parts) == 1 and not more:
        return _sort(*parts[0])
    integers, texts = ([own] for own in _sort_by_type(more))
    for ids, rows in parts:
        (texts if ids.integers is None else integers).append(_sort(ids, rows))
    first, last = _merge(integers), _merge(texts)
    return first + last if first and last else first or last


def add_ids(integers: list[Id], more: Sequence[Id]) -> list[Id]:
    """These in order, which nobody else has, with some more."""
    own, texts = _sort_by_type(more)
    return _merge([integers, own]) + texts


def _sort_by_type(ids: Sequence[Id]) -> tuple[list[Any], list[Any]]:
    """Integers and texts."""
    return sorted(id for id in ids if not isinstance(id, str)), sorted(id for id in ids if isinstance(id, str))


def _sort(ids: IdIndex, rows: NDArray[np.int32]) -> list[Id]:
    if ids.integers is not None:
        found = ids.integers[rows]
        found.sort()
        return found.tolist()
    order = order_of(ids, len(rows))
    if order is not None:
        ranks = order.rank[rows]
        ranks.sort()
        return order.texts(ranks)
    texts = ids.at(rows)
    texts.sort()
    return texts


def _merge(lists: list[list[Any]]) -> list[Any]:
    """Sorted lists, which nobody else has, as one."""
    result, *others = sorted(lists, key=len, reverse=True)
    if sum(map(len, others)) <= FEW:
        for id in chain.from_iterable(others):
            insort(result, id)
    else:
        for other in others:
            result += other
        result.sort()  # runs in order are merged
    return result


def lists_by_event(
    events: int, parts: Sequence[tuple[IdIndex, NDArray[np.int32], NDArray[np.int32]]]
) -> Iterator[list[Id]]:
    """For each event its ids, of parts (segment's ids, event, row): a segment may have several."""
    of_segment: dict[int, list[int]] = {}  # by the identity of its ids
    for i, (ids, _, _) in enumerate(parts):
        of_segment.setdefault(-1 if ids.integers is not None else id(ids), []).append(i)
    integers: list[Iterator[list[Id]]] = []
    texts: list[Iterator[list[Id]]] = []
    for key, places in of_segment.items():
        event = np.concatenate([parts[i][1] for i in places])
        ids = parts[places[0]][0]
        if key == -1:
            found = [ids.integers[row] for ids, _, row in (parts[i] for i in places) if ids.integers is not None]
            integers.append(_integer_lists(events, event, np.concatenate(found)))
        else:
            texts.append(_text_lists(events, ids, event, np.concatenate([parts[i][2] for i in places])))
    sources = [*integers, *texts]
    if not sources:
        return ([] for _ in range(events))
    if len(sources) == 1:
        return sources[0]
    first = len(integers)
    if first in (0, len(sources)):
        return (_merge(list(lists)) for lists in zip(*sources))
    return (_merge(list(lists[:first])) + _merge(list(lists[first:])) for lists in zip(*sources))


def _integer_lists(events: int, event: NDArray[np.int32], id: NDArray[np.int64]) -> Iterator[list[Id]]:
    offsets, keys = by_event(event, id, events)
    if len(id) >= MANY * events:
        ends = offsets.tolist()
        for a, b in zip(ends, ends[1:]):
            own = keys[a:b]
            own.sort()
            yield own.tolist()
        return
    for first, last, bounds in _stretches(offsets):
        part = keys[bounds[0] : bounds[-1]]
        which = np.repeat(np.arange(first, last), np.diff(bounds))
        ids: list[Id] = part[np.lexsort((part, which))].tolist()
        yield from _cut(ids, bounds)


def _text_lists(events: int, ids: IdIndex, event: NDArray[np.int32], row: NDArray[np.int32]) -> Iterator[list[Id]]:
    order = order_of(ids, len(row))
    if order is None:
        offsets, rows = by_event(event, row, events)
        for _, _, bounds in _stretches(offsets):
            for texts in _cut(ids.at(rows[bounds[0] : bounds[-1]]), bounds):
                texts.sort()
                yield texts
        return
    offsets, ranks = by_event(event, order.rank[row], events)
    if len(row) >= MANY * events:  # few numbers are sorted fastest
        ends = offsets.tolist()
        for a, b in zip(ends, ends[1:]):
            own = ranks[a:b]
            own.sort()
            yield order.texts(own)
        return
    for first, last, bounds in _stretches(offsets):
        which = np.repeat(np.arange(last - first, dtype=np.int64) << 32, np.diff(bounds))
        keys = which | ranks[bounds[0] : bounds[-1]]
        keys.sort()
        yield from _cut(order.texts(keys & _RANK), bounds)


def _cut(ids: list[Id], bounds: NDArray[np.int64]) -> Iterator[list[Id]]:
    ends = (bounds - bounds[0]).tolist()
    return (ids[a:b] for a, b in zip(ends, ends[1:]))


def _stretches(offsets: NDArray[np.int64]) -> Iterator[tuple[int, int, NDArray[np.int64]]]:
    """Runs of events with some PAIRS_AT_ONCE pairs each: the first, one past the last, and where their pairs begin."""
    first, events = 0, len(offsets) - 1
    while first < events:
        last = int(np.searchsorted(offsets, offsets[first] + PAIRS_AT_ONCE, side="right")) - 1
        last = min(max(last, first + 1), events)
        yield first, last, offsets[first : last + 1]
        first = last


@kernel
def by_event(event, key, events):
    """Offsets by event, and the keys in the order of their events (counting sort)."""
    offsets = np.zeros(events + 1, np.int64)
    for e in event:
        offsets[e + 1] += 1
    for e in range(events):
        offsets[e + 1] += offsets[e]
    place, result = offsets[:-1].copy(), np.empty_like(key)
    for i in range(len(event)):
        e = event[i]
        result[place[e]] = key[i]
        place[e] += 1
    return offsets, result


@kernel
def _ask_for_texts(objects, ranks):
    """Prefetches the Python objects of these ranks, whose counts of references are about to change: each is a cache
    line somewhere, and waiting for them, one after the other, took most of the time."""
    for i in range(len(ranks)):
        prefetch_to_write(objects[ranks[i]])
