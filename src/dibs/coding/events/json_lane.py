"""JSON texts into `EventValues` by kernels, many at once: lines of bytes, or a column of Arrow.

The kernels read what they are sure of (coding.events.json_kernels) and leave the values of each event by name, as they
are coded. Texts that they are not sure of are read one by one, by orjson, into dicts. Work goes block by block, so that
its space stays small and in the caches, and a broken line is met before all the rest was read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dibs.arrays import to_numpy
from dibs.coding.arrange import LONGEST_EVENT, Arranged
from dibs.coding.events.arrow_values import text_buffers
from dibs.coding.events.dicts import read_dicts
from dibs.coding.events.json import attributes_of, json_line, json_text
from dibs.coding.events.json_kernels import Found, Work
from dibs.coding.events.json_lane_kernels import LaneBatch, Order, read_texts, split_lines
from dibs.coding.events.json_member_kernels import find_members
from dibs.coding.events.wanted import WantedNames
from dibs.coding.lines import BYTE_ORDER_MARK
from dibs.coding.values import ArrangedValues, Booleans, EventProblem, EventValues, Numbers, Strings
from dibs.errors import EventError
from dibs.jit.memory import fresh
from dibs.jit.scanning import PADDING
from dibs.tuning import tuned

JSON_BLOCK = tuned("json_block", 1 << 19, 16, "bytes", "of JSON text that are read at once")

_NO_NAMES = WantedNames(())


class EventTexts(NamedTuple):
    """Some texts of one event each."""

    data: NDArray[np.uint8]  # PADDING zeros behind all of them
    start: NDArray[np.int64]  # text i is data[start[i]:end[i]]
    end: NDArray[np.int64]  # before the start: a null, which is an event without attributes
    parse: Callable[[int, bytes], object]  # text i as a dict, or what is wrong with it


def read_json_lines(content: bytes, wanted: WantedNames, on_error: str, attributes: str | None = None) -> EventValues:
    """attributes: the key under which the attributes stand, if they do."""
    reader = _Reader(wanted, on_error, len(content))
    for texts in _blocks_of_lines(content):
        reader.read(_find_attributes(texts, attributes))
    return reader.finish()


def read_json_texts(
    content: Sequence[bytes], wanted: WantedNames, on_error: str, attributes: str | None = None
) -> EventValues:
    """Texts of one event each."""
    reader = _Reader(wanted, on_error, sum(map(len, content)))
    for texts in _blocks_of_column(pa.array(content, pa.large_binary()).view(pa.large_string())):
        reader.read(_find_attributes(texts, attributes))
    return reader.finish()


def read_json_columns(chunks: Iterable[pa.Array], wanted: WantedNames, on_error: str) -> EventValues:
    """chunks: string arrays, or large ones."""
    if wanted.raw is not None:
        texts_of_all = (text for chunk in chunks for text in chunk.cast(pa.large_binary()).to_pylist())
        return read_dicts(({} if text is None else json_text(text) for text in texts_of_all), wanted, on_error)
    reader = _Reader(wanted, on_error)
    for chunk in chunks:
        for texts in _blocks_of_column(chunk):
            reader.read(texts)
    return reader.finish()


def _blocks_of_lines(content: bytes) -> Iterator[EventTexts]:
    at, first = len(BYTE_ORDER_MARK) if content.startswith(BYTE_ORDER_MARK) else 0, 1
    block = _Block()
    while at < len(content):
        end = at + JSON_BLOCK.value
        if end < len(content):
            cut = content.rfind(b"\n", at, end)
            if cut < 0:
                cut = content.find(b"\n", end)
            end = cut + 1 or len(content)
        data = block.pad(np.frombuffer(content, np.uint8, min(end, len(content)) - at, at))
        room = len(data) // 2 + 1
        start, stop, number = block.column(0, room), block.column(1, room), block.column(2, room)
        kept, lines = split_lines(data, start, stop, number)
        yield EventTexts(data, start[:kept], stop[:kept], _parser_of_lines(number, first))
        at, first = end, first + lines


def _find_attributes(texts: EventTexts, attributes: str | None) -> EventTexts:
    """The texts of what the events have under a key; see coding.events.json.attributes_of."""
    if attributes is None:
        return texts
    first, last = np.empty_like(texts.start), np.empty_like(texts.end)
    key = np.frombuffer(bytearray(attributes.encode("utf-8", "surrogatepass")), np.uint8)
    room, work = Found.room(len(texts.data)), Work.room(1)
    find_members(texts.data, texts.start, texts.end, key, _NO_NAMES.paths, room, work, first, last)

    def parse(i: int, _: bytes) -> object:
        event = texts.parse(i, texts.data[texts.start[i] : texts.end[i]].tobytes())
        return next(attributes_of([event], attributes))

    return EventTexts(texts.data, first, last, parse)


class _Block:
    """Space that all blocks use: fresh memory costs more than what is done with it."""

    def __init__(self) -> None:
        self._data = np.empty(0, np.uint8)
        self._columns = [np.empty(0, np.int64)] * 3

    def pad(self, data: NDArray[np.uint8]) -> NDArray[np.uint8]:
        size = len(data) + PADDING
        if len(self._data) < size:
            self._data = fresh(size, np.uint8)
        result = self._data[:size]
        result[: len(data)] = data
        result[len(data) :] = 0
        return result

    def column(self, number: int, size: int) -> NDArray[np.int64]:
        if len(self._columns[number]) < size:
            self._columns[number] = fresh(size, np.int64)
        return self._columns[number]


def _parser_of_lines(number: NDArray[np.int64], first: int) -> Callable[[int, bytes], object]:
    return lambda i, line: json_line(first + int(number[i]), line)


def _blocks_of_column(chunk: pa.Array) -> Iterator[EventTexts]:
    offsets, data = text_buffers(chunk)
    null = to_numpy(chunk.is_null()) if chunk.null_count else None
    block, first = _Block(), 0
    while first < len(chunk):
        last = int(np.searchsorted(offsets, offsets[first] + JSON_BLOCK.value, side="right")) - 1
        last = min(max(last, first + 1), first + JSON_BLOCK.value, len(chunk))
        start, end = offsets[first:last] - offsets[first], offsets[first + 1 : last + 1] - offsets[first]
        if null is not None:
            end = np.where(null[first:last], -1, end)
        yield EventTexts(block.pad(data[offsets[first] : offsets[last]]), start, end, lambda i, text: json_text(text))
        first = last


class _Reader:
    """Arrays with room for more than there is: no text can have more values than half its bytes, nor more strings than
    a third."""

    def __init__(self, wanted: WantedNames, on_error: str, size: int = 0):
        """size: bytes of all texts, if that is known."""
        self.wanted = wanted
        self._size, self._read = size, 0
        self.stop = on_error == "raise"
        self.in_order = True
        self.others: list[tuple[NDArray[np.int32], EventValues]] = []  # read one by one, and which events they are
        self._work = Work.room(len(wanted.paths.nodes))
        self._order = Order.room(LONGEST_EVENT.value)
        self._found = Found.room(0)
        none = np.zeros(0, np.int32)
        self._batch = LaneBatch(
            np.zeros(1, np.int64),
            none,
            np.zeros(0, np.uint8),
            np.zeros(0, np.int64),
            np.zeros(0, np.int16),
            none,
            none,
            np.zeros(2, np.int64),
        )

    def read(self, texts: EventTexts) -> None:
        events = len(texts.start)
        first = int(self._batch.counts[0])
        if first + events >= 2**31:
            raise EventError("found 2**31 events or more; expected fewer in one call: pass them in several batches")
        self._make_room(events, len(texts.data))
        unsure = np.empty(events, np.int32)
        left, in_order = read_texts(
            texts.data,
            texts.start,
            texts.end,
            self.wanted.paths,
            self._found,
            self._work,
            self._order,
            self._batch,
            unsure,
        )
        self.in_order &= in_order
        if left:
            self._read_others(texts, unsure[:left], first)

    def _make_room(self, events: int, size: int) -> None:
        """For so many more events, of so many bytes and PADDING."""
        b, f = self._batch, self._found
        # As many as there can be in these, and as many as there will be if the others are like those before.
        more = 1.05 * self._size / self._read - 1 if self._read else 0.0
        values, strings, string_bytes = int(b.counts[1]), int(f.counts[1]), int(f.starts[f.counts[1]])
        if len(f.name) <= size // 2:
            f = Found.room(size)._replace(starts=f.starts, data=f.data, counts=f.counts)
        self._found = f._replace(
            starts=_grow(f.starts, strings + 1, size // 3 + 1, more), data=_grow(f.data, string_bytes, size, more)
        )
        self._batch = LaneBatch(
            _grow(b.offsets, int(b.counts[0]) + 1, events, more),
            _grow(b.name, values, size // 2 + 1, more),
            _grow(b.kind, values, size // 2 + 1, more),
            _grow(b.key, values, size // 2 + 1, more),
            _grow(b.rest, values, size // 2 + 1, more),
            _grow(b.string_event, strings, size // 3 + 1, more),
            _grow(b.string_name, strings, size // 3 + 1, more),
            b.counts,
        )
        self._read += size - PADDING

    def _read_others(self, texts: EventTexts, which: NDArray[np.int32], first: int) -> None:
        events = [texts.parse(i, texts.data[texts.start[i] : texts.end[i]].tobytes()) for i in which.tolist()]
        values = read_dicts(events, self.wanted, "skip")
        number = which + np.int32(first)
        if values.problems and self.stop:
            problem = values.problems[0]
            raise EventError(problem.message, int(number[problem.event]), problem.attribute)
        self.others.append((number, values))

    def finish(self) -> EventValues:
        b, f = self._batch, self._found
        events, values, strings = int(b.counts[0]), int(b.counts[1]), int(f.counts[1])
        result: EventValues = ArrangedValues.of(
            events,
            self.wanted.names,
            Arranged(b.offsets[: events + 1], b.name[:values], b.kind[:values], b.key[:values], b.rest[:values]),
            Strings(
                b.string_event[:strings],
                b.string_name[:strings],
                f.starts[: strings + 1],
                f.data[: f.starts[strings]],
            ),
            self.in_order,
        )
        return _with_others(result, self.others) if self.others else result


def _grow(column: NDArray[Any], used: int, needed: int, more: float) -> NDArray[Any]:
    """The same with room for as many as are needed now, and for `more` times those that are used."""
    if used + needed <= len(column):
        return column
    result = fresh(used + needed + int(used * max(more, 1.0)), column.dtype)
    result[:used] = column[:used]
    return result


def _with_others(values: EventValues, others: list[tuple[NDArray[np.int32], EventValues]]) -> EventValues:
    """With the events that were read in another way, which have no values yet."""
    result = EventValues(values.events, values.names)
    result.numbers = Numbers(*_join(values.numbers, [(number, part.numbers) for number, part in others]))
    result.booleans = Booleans(*_join(values.booleans, [(number, part.booleans) for number, part in others]))
    event, name = _join(values.strings[:2], [(number, part.strings[:2]) for number, part in others])
    texts = [values.strings, *(part.strings for _, part in others)]
    lengths = np.concatenate([np.diff(part.offsets) for part in texts])
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    result.strings = Strings(event, name, offsets, np.concatenate([part.data for part in texts]))
    result.unreadable_events = np.concatenate([number[part.unreadable_events] for number, part in others])
    result.problems = [
        EventProblem(int(number[event]), attribute, message)
        for number, part in others
        for event, attribute, message in part.problems
    ]
    return result


def _join(own: tuple[Any, ...], others: list[tuple[NDArray[np.int32], tuple[Any, ...]]]) -> list[NDArray[Any]]:
    """Columns, of which the first is the event: that of others is counted among them."""
    rows = [own, *((number[part[0]], *part[1:]) for number, part in others)]
    return [np.concatenate(column) for column in zip(*rows, strict=True)]
