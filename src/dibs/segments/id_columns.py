"""The ids of many events as columns: which ids there are, and of each event the places of its ids among them.

A Python object for each match of an event costs some 100 nanoseconds, whatever is done with it. Here there is one for
each *id* of a batch: it is read, sorted, counted and written as JSON once, and the matches are numbers.

    ids       the ids that some event has, integers before texts, each in order
    offsets   int64, events + 1: where the places of each event begin
    places    int32: of each event its ids, as ascending places in `ids`
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray

from dibs.jit.kernel import kernel, phase
from dibs.jit.sorting import sort_run
from dibs.segments.id_lists import by_event
from dibs.segments.ids import Id, IdIndex

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
    """As a sequence: the sorted ids of each event."""

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
