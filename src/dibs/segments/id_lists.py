"""Rows to sorted lists of ids: integers in their order, texts by code point, integers before texts.

A text that Arrow hands to Python costs 0.6 microseconds, and sorting a list of them 0.2. So a segment that has given
out as many texts as it has rows gets their order: the rank of each row and the row of each rank (8 bytes), and the
texts by rank as Python objects (some 60 bytes and their length each; only if the segment has at most
`LISTED_IDS` rows). Then ranks are sorted, which are numbers, and texts are looked up: tens of nanoseconds.

A Python object for each match of an event costs some 100 nanoseconds, whatever is done with it. So IdColumns have one
for each *id* of a batch: it is read, sorted, counted and written as JSON once, and the matches are numbers.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dibs.arrays import from_numpy, to_numpy
from dibs.jit.kernel import kernel, phase
from dibs.jit.prefetching import prefetch_to_write
from dibs.jit.sorting import sort_run
from dibs.segments.ids import Id, IdIndex
from dibs.tuning import tuned

# 23 ns an id instead of 650
LISTED_IDS = tuned("listed_ids", 1_000_000, 2, "ids", "of a segment, kept as Python objects once worth it")

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
        if len(order) <= LISTED_IDS.value:
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


FLAGGED = 16  # times as many rows as pairs has a segment whose rows are looked up in an array of that length
NUMBER, COUNT, IDS, END = 0, 1, 2, 3  # what stands behind a piece of a frame
DIGITS = 20  # of a number, at most


class Frame:
    """A line of JSON for each event: pieces of text, and behind each the event's number, how many ids it has, or these
    ids with commas between. The last piece ends the line."""

    def __init__(self, *parts: bytes | int):
        """A piece, what stands behind it, the next piece, and so on."""
        pieces = [part for part in parts if isinstance(part, bytes)]
        self.text = np.frombuffer(b"".join(pieces), np.uint8)
        self.ends = np.cumsum([len(piece) for piece in pieces])
        self.fields = np.array([*(part for part in parts if isinstance(part, int)), END])
        assert len(self.fields) == len(self.ends)


class _Texts(NamedTuple):
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    data: NDArray[np.uint8]


class IdColumns(Sequence[list[Id]]):
    """The ids of many events, as a sequence: the sorted ids of each event.

    ids       the ids that some event has, integers before texts, each in order
    offsets   int64, events + 1: where the places of each event begin
    places    int32: of each event its ids, as ascending places in `ids`"""

    def __init__(self, ids: list[Id], offsets: NDArray[np.int64], places: NDArray[np.int32]):
        self.ids, self.offsets, self.places = ids, offsets, places

    @property
    def pairs(self) -> int:
        """Of all events."""
        return len(self.places)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, number):
        if isinstance(number, slice):
            return [self[each] for each in range(*number.indices(len(self)))]
        first, last = self.offsets[number], self.offsets[number + 1]
        return [self.ids[place] for place in self.places[first:last].tolist()]

    def __iter__(self) -> Iterator[list[Id]]:
        ids, places, ends = self.ids, self.places.tolist(), self.offsets.tolist()
        found = [ids[place] for place in places]
        return (found[a:b] for a, b in zip(ends, ends[1:]))

    def times(self) -> dict[Id, int]:
        """How many events each id has."""
        return dict(zip(self.ids, np.bincount(self.places, minlength=len(self.ids)).tolist()))

    def lines(self, frame: Frame, first: int) -> bytes:
        """A line for each event; they are numbered from `first` on."""
        texts = self._texts()
        length = texts.ends - texts.starts
        room = len(self) * (len(frame.text) + DIGITS * len(frame.fields)) + self.pairs
        out = np.empty(room + int(length[self.places].sum()), np.uint8)
        used = write_lines(out, (frame.text, frame.ends, frame.fields), first, self.offsets, self.places, texts)
        assert used >= 0
        return out[:used].tobytes()

    def _texts(self) -> _Texts:
        """The ids as JSON: all at once (one by one takes ten times as long), if what was written shows where each
        ends."""
        together = orjson.dumps(self.ids)[1:-1]
        lengths = [len(str(id)) if isinstance(id, int) else len(id) + 2 for id in self.ids]
        between = 1
        if sum(lengths) + len(lengths) - 1 != len(together):  # some text is not ASCII, or has escapes
            found = [orjson.dumps(id) for id in self.ids]
            together, lengths, between = b"".join(found), [len(text) for text in found], 0
        ends = np.cumsum(lengths, dtype=np.int64) + between * np.arange(len(lengths))
        return _Texts(ends - np.array(lengths, np.int64), ends, np.frombuffer(together, np.uint8))


def id_columns(events: int, parts: Sequence[tuple[IdIndex, NDArray[np.int32], NDArray[np.int32]]]) -> IdColumns:
    """Of parts (segment's ids, event, row): a segment may have several."""
    by_segment: dict[int, list[int]] = {}
    for number, (ids, _, _) in enumerate(parts):
        by_segment.setdefault(id(ids), []).append(number)
    known: list[Id] = []
    event, place = [np.empty(0, np.int32)], [np.empty(0, np.int32)]
    for numbers in by_segment.values():
        ids = parts[numbers[0]][0]
        rows, places = _distinct(np.concatenate([parts[n][2] for n in numbers]), len(ids.ids))
        event += [parts[n][1] for n in numbers]
        place.append(places + np.int32(len(known)))
        known += ids.at(rows)
    order = _order(known)
    moved = np.empty(len(known), np.int32)
    moved[order] = np.arange(len(known), dtype=np.int32)
    offsets, places = by_event(np.concatenate(event), moved[np.concatenate(place)], events)
    sort_runs(places, offsets)
    return IdColumns([known[at] for at in order.tolist()], offsets, places)


def _distinct(rows: NDArray[np.int32], of: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Those there are, ascending, and the place of each among them."""
    if of > FLAGGED * len(rows):
        found, places = np.unique(rows, return_inverse=True)
        return found, places.astype(np.int32)
    is_there = np.zeros(of, np.bool_)
    is_there[rows] = True
    found = np.flatnonzero(is_there).astype(np.int32)
    place_of = np.empty(of, np.int32)
    place_of[found] = np.arange(len(found), dtype=np.int32)
    return found, place_of[rows]


def _order(ids: list[Id]) -> NDArray[np.int64]:
    texts = [isinstance(id, str) for id in ids]
    if not any(texts):
        return np.argsort(np.array(ids, np.int64))
    return np.array(sorted(range(len(ids)), key=lambda at: (texts[at], ids[at])))


@kernel
def sort_runs(items, offsets):
    for run in range(len(offsets) - 1):
        sort_run(items, offsets[run], offsets[run + 1])


@kernel
def write_lines(out, frame, first, offsets, places, texts):
    """Returns the bytes written, -1: there was no room for them."""
    pieces, ends, fields = frame
    at = 0
    for event in range(len(offsets) - 1):
        some = places[offsets[event] : offsets[event + 1]]
        size = len(pieces) + DIGITS * len(fields) + len(some)
        for place in some:
            size += texts.ends[place] - texts.starts[place]
        if at + size > len(out):
            return -1
        begin = 0
        for piece in range(len(ends)):
            at = _copy(out, at, pieces, begin, ends[piece])
            begin = ends[piece]
            if fields[piece] == NUMBER:
                at = _write_number(out, at, first + event)
            elif fields[piece] == COUNT:
                at = _write_number(out, at, len(some))
            elif fields[piece] == IDS:
                for number in range(len(some)):
                    if number:
                        out[at] = 44  # a comma
                        at += 1
                    place = some[number]
                    at = _copy(out, at, texts.data, texts.starts[place], texts.ends[place])
    return at


@phase
def _copy(out, at, data, begin, end):
    for i in range(begin, end):
        out[at] = data[i]
        at += 1
    return at


@phase
def _write_number(out, at, number):
    """Not negative."""
    digits, rest = 1, number // 10
    while rest:
        digits += 1
        rest //= 10
    for i in range(digits - 1, -1, -1):
        out[at + i] = 48 + number % 10
        number //= 10
    return at + digits
