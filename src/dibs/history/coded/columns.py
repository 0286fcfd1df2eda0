"""The attributes of documents that joins ask for, as columns of arrays.

An attribute may have a second column, of its times alone: strings are the times that they read as there
(language.literals.time_of). Its name is TIMED and the attribute's.

A snapshot is a value: the documents up to a number, some of their attributes, and indexes over them. The next one
shares its arrays, and writes behind what it knows: rows behind `size`, texts and groups from their counts on. So
whoever holds the older snapshot sees what it saw, and one that nobody came to know is overwritten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dibs.coding.arrange import writable
from dibs.coding.values import EventValues, Names
from dibs.history.coded.index_kernels import file_texts, find_texts, number_texts
from dibs.history.coded.indexes import Index, IndexKey, grow_index, table_of
from dibs.history.coded.layout import BOOLEAN, MISSING, NUMBER, SEVERAL, STRING, TIME, UNREADABLE, Documents
from dibs.jit.groups import Table
from dibs.jit.hashing import slots_for
from dibs.language.expression import Like, PairCompare, Predicate, RLike, StringTest, is_timed
from dibs.language.printer import JOIN
from dibs.language.regex import compile_regex, like_regex
from dibs.language.time_kernels import read_times
from dibs.lazy import lazy

_MOST = np.int64(2**63 - 1)
TIMED = 2 * JOIN  # which no attribute and no join begins with


def attribute_of(name: str) -> str:
    """The attribute of documents, or of events, behind the name of a column."""
    return name.removeprefix(TIMED)


def read_as_times(predicate: Predicate) -> Predicate:
    """The predicate over columns: one that compares with times, or with an offset of time, is over times alone."""
    if isinstance(predicate, PairCompare) and predicate.offset is not None:
        return predicate._replace(attribute=TIMED + predicate.attribute, event=TIMED + predicate.event)
    return predicate._replace(attribute=TIMED + predicate.attribute) if is_timed(predicate) else predicate


def text_test(predicate: Predicate) -> Callable[[str], bool]:
    """The test of a text behind a pattern."""
    match predicate:
        case StringTest(_, function, text, negated):
            test = {"STARTSWITH": str.startswith, "ENDSWITH": str.endswith, "CONTAINS": str.__contains__}[function]
            return lambda value: test(value, text) != negated
        case Like(_, pattern, escape, negated):
            found = compile_regex(like_regex(pattern, escape)).search
        case RLike(_, pattern, negated):
            found = compile_regex(pattern).search
        case _:
            raise AssertionError(f"no pattern: {predicate}")
    return lambda value: (found(value) is not None) != negated


def order_bits(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Integers in the order of the numbers, of which none is NaN or -0.0; of the integers' bits, the numbers again."""
    bits = values.view(np.int64)
    return np.where(bits < 0, bits ^ _MOST, bits)


@dataclass(frozen=True, eq=False)
class Texts:
    """Texts of documents, numbered. A snapshot that nobody came to know leaves numbers behind in the slots, which would
    count as taken once there are as many texts; with many such snapshots none would be left that is free. So who finds
    that more was written than it knows takes new slots."""

    start: NDArray[np.int64]
    data: NDArray[np.uint8]
    slots: NDArray[np.int32]
    written: NDArray[np.int64]  # [0]: how many texts were ever put into these slots, at most
    count: int

    @classmethod
    def none(cls) -> Texts:
        return cls(np.zeros(2, np.int64), np.zeros(8, np.uint8), np.zeros(16, np.int32), np.zeros(1, np.int64), 0)

    def add(self, offsets: NDArray[np.int64], data: NDArray[np.uint8]) -> tuple[Texts, Any, Any]:
        """With these texts; and the key and the tie of each."""
        more = len(offsets) - 1
        new = self._with_room(more, int(offsets[-1] - offsets[0]))
        new.written[0] = self.count + more  # at most; before the first, in case that all of it ends here
        key, tie, count = number_texts(offsets, data, new.start, new.data, new.slots, new.count)
        new.written[0] = count
        return replace(new, count=int(count)), key, tie

    def copy(self) -> Texts:
        written = np.full(1, -1, np.int64)  # somebody may be writing: whatever is in the slots is not relied upon
        return Texts(self.start.copy(), self.data.copy(), self.slots.copy(), written, self.count)

    def find(self, offsets: NDArray[np.int64], data: NDArray[np.uint8]) -> tuple[Any, Any]:
        return find_texts(offsets, data, self.start, self.data, self.slots, self.count)

    def _with_room(self, texts: int, size: int) -> Texts:
        start, data, slots, written = self.start, self.data, self.slots, self.written
        used = int(start[self.count])
        if len(start) < self.count + texts + 1:
            start = _longer(start, self.count + 1, self.count + texts + 1)
        if len(data) < used + size + 8:
            data = _longer(data, used, used + size + 8)
        if len(slots) < 2 * (self.count + texts) or written[0] != self.count:
            slots = np.zeros(slots_for(2 * (self.count + texts)), np.int32)
            file_texts(start, data, slots, self.count)
            written = np.zeros(1, np.int64)
        return Texts(start, data, slots, written, self.count)

    def bytes_of(self, number: int) -> bytes:
        return self.data[self.start[number] : self.start[number + 1]].tobytes()

    def ranks(self, numbers: NDArray[np.int32]) -> NDArray[np.int64]:
        """The place of each of these texts in their order."""
        distinct, place = np.unique(numbers, return_inverse=True)
        texts = [self.bytes_of(number) for number in distinct.tolist()]
        rank = np.empty(len(texts), np.int64)
        rank[sorted(range(len(texts)), key=texts.__getitem__)] = np.arange(len(texts))
        return rank[place]

    @property
    def nbytes(self) -> int:
        return self.start.nbytes + self.data.nbytes + self.slots.nbytes


@dataclass(frozen=True, eq=False)
class DocumentSnapshot:
    base: int = 0  # the number of the first document
    size: int = 0  # documents
    names: tuple[str, ...] = ()
    kind: NDArray[np.uint8] = field(default_factory=lambda: np.empty((0, 0), np.uint8))
    key: NDArray[np.int64] = field(default_factory=lambda: np.empty((0, 0), np.int64))
    tie: NDArray[np.int32] = field(default_factory=lambda: np.empty((0, 0), np.int32))
    extra: tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int32]] = field(
        default_factory=lambda: (np.empty(0, np.uint8), np.empty(0, np.int64), np.empty(0, np.int32))
    )
    extras: int = 0
    texts: Texts = field(default_factory=Texts.none)
    indexes: dict[IndexKey, Index] = field(default_factory=dict)
    patterns: tuple[Predicate, ...] = ()
    met: NDArray[np.uint8] = field(default_factory=lambda: np.zeros((0, 0), np.uint8))  # pattern, text
    tested: int = 0  # texts that patterns were tried on

    # ---- what kernels see ----

    @lazy
    def documents(self) -> Documents:
        return Documents(self.kind, self.key, self.tie, *self.extra, self.texts.start, self.texts.data, self.met)

    @lazy
    def columns(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.names)}

    @lazy
    def attributes(self) -> list[str]:
        """Those of documents that columns are made of."""
        return list(dict.fromkeys(map(attribute_of, self.names)))

    @lazy
    def index_numbers(self) -> dict[IndexKey, int]:
        return {key: number for number, key in enumerate(self.indexes)}

    @lazy
    def table(self) -> Table:
        return table_of(list(self.indexes.values()))

    @property
    def nbytes(self) -> dict[str, int]:
        """Bytes by part."""
        columns = sum(each.nbytes for each in (self.kind, self.key, self.tie, *self.extra))
        return {
            "columns": columns,
            "texts": self.texts.nbytes,
            "patterns": self.met.nbytes,
            "indexes": sum(index.nbytes for index in self.indexes.values()),
        }

    # ---- the next one ----

    def with_documents(self, values: EventValues, count: int) -> DocumentSnapshot:
        """With so many more documents, whose values these are."""
        first, end = self.size, self.size + count
        new = self._with_rows(end)
        new.kind[:, first:end] = MISSING
        cells = long_form(values, new.columns)
        return replace(new._fill(*cells, first, count), size=end)

    def with_columns(self, names: Sequence[str], batches: Iterator[tuple[int, EventValues]]) -> DocumentSnapshot:
        """With more attributes. batches: the number of the first, and values."""
        wide = len(self.names) + len(names)
        room = self.kind.shape[1]
        kind = np.full((wide, room), MISSING, np.uint8)
        key, tie = np.zeros((wide, room), np.int64), np.zeros((wide, room), np.int32)
        pairs: list[Any] = list(zip((self.kind, self.key, self.tie), (kind, key, tie)))
        for old, own in pairs:
            own[: len(self.names), : self.size] = old[:, : self.size]
        # Events may be remembered meanwhile, behind what this snapshot knows: with them, nothing that grows is shared.
        kinds, keys, ties = self.extra
        extra, texts = (kinds.copy(), keys.copy(), ties.copy()), self.texts.copy()
        new = replace(self, names=(*self.names, *names), kind=kind, key=key, tie=tie, extra=extra, texts=texts)
        columns = {name: new.columns[name] for name in names}
        for first, values in batches:
            new = new._fill(*long_form(values, columns), first, values.events)
        return new

    def with_indexes(self, keys: Iterable[IndexKey], merge: bool = True) -> DocumentSnapshot:
        """With these indexes, as far as they are not there, and all of them as long as they should be. merge: see
        grow_index."""
        made: dict[IndexKey, Index] = {}
        for key in dict.fromkeys([*self.indexes, *keys]):
            columns = np.array([self.columns[name] for name in key.names], np.int32)
            old = self.indexes.get(key) or Index.none(columns, key.equated)
            made[key] = grow_index(old, self.documents, self.texts, self.size, merge)
        if list(made) == list(self.indexes) and all(made[key] is self.indexes[key] for key in made):
            return self
        return replace(self, indexes=made)

    def with_ranks(self, keys: Iterable[IndexKey], first: int) -> DocumentSnapshot:
        """With what it takes to count by these indexes when documents before this one are gone."""
        made = {key: self.indexes[key].rank(first) for key in keys}
        if all(index is self.indexes[key] for key, index in made.items()):
            return self
        return replace(self, indexes=self.indexes | made)

    def with_patterns(self, predicates: Iterable[Predicate]) -> DocumentSnapshot:
        """With these patterns, tried on all texts. (Texts of other attributes too: a text has one number.)"""
        patterns = tuple(dict.fromkeys([*self.patterns, *predicates]))
        if len(patterns) == len(self.patterns) and self.tested == self.texts.count:
            return self
        met = np.zeros((len(patterns), len(self.texts.start)), np.uint8)
        met[: len(self.patterns), : self.tested] = self.met[:, : self.tested]
        for number, predicate in enumerate(patterns):
            test = text_test(predicate)
            known = self.tested if number < len(self.patterns) else 0
            for text in range(known, self.texts.count):
                met[number, text] = test(self.texts.bytes_of(text).decode())
        return replace(self, patterns=patterns, met=met, tested=self.texts.count)

    def _with_rows(self, end: int) -> DocumentSnapshot:
        room = self.kind.shape[1]
        if end <= room:
            return replace(self)
        room = end if not self.size else max(end, room + room // 4 + 64)
        kind = np.full((len(self.names), room), MISSING, np.uint8)
        key, tie = np.zeros((len(self.names), room), np.int64), np.zeros((len(self.names), room), np.int32)
        pairs: list[Any] = list(zip((self.kind, self.key, self.tie), (kind, key, tie)))
        for old, own in pairs:
            own[:, : self.size] = old[:, : self.size]
        return replace(self, kind=kind, key=key, tie=tie)

    def _fill(self, column: Any, row: Any, kind: Any, value: Any, tie: Any, first: int, count: int) -> DocumentSnapshot:
        """With these values of the documents from `first` on. Those of strings are places in the tie's array of texts
        until here."""
        place = column * count + row
        sizes = np.bincount(place, minlength=len(self.names) * count)
        several = sizes[place] > 1
        row = row + first
        new = self
        texts, offsets, data = self.texts, *_NO_TEXTS
        if isinstance(tie, tuple):
            tie, (offsets, data) = tie
        strings = kind == STRING
        if len(offsets) > 1:
            texts, text_key, text_tie = texts.add(offsets, data)
            value, tie = value.copy(), tie.copy()
            value[strings], tie[strings] = text_key[value[strings]], text_tie[tie[strings]]
            new = replace(new, texts=texts)
        if several.any():
            new = new._with_several(column[several], row[several], kind[several], value[several], tie[several])
            alone = ~several
            column, row, kind, value, tie = (each[alone] for each in (column, row, kind, value, tie))
        new.kind[column, row], new.key[column, row], new.tie[column, row] = kind, value, tie
        return new

    def _with_several(self, column: Any, row: Any, kind: Any, value: Any, tie: Any) -> DocumentSnapshot:
        """With attributes that have several values each."""
        order = np.lexsort((row, column))
        column, row, kind, value, tie = (each[order] for each in (column, row, kind, value, tie))
        is_first = np.append(True, (column[1:] != column[:-1]) | (row[1:] != row[:-1]))
        starts = np.flatnonzero(is_first)
        sizes = np.diff(np.append(starts, len(column)))
        end = self.extras + len(column)
        extra = self.extra
        if len(extra[0]) < end:
            extra = tuple(_longer(each, self.extras, end) for each in extra)  # type: ignore[assignment]
        pairs: list[Any] = list(zip(extra, (kind, value, tie)))
        for own, new in pairs:
            own[self.extras : end] = new
        self.kind[column[starts], row[starts]] = SEVERAL
        self.key[column[starts], row[starts]] = self.extras + starts
        self.tie[column[starts], row[starts]] = sizes
        return replace(self, extra=extra, extras=end)


_NO_TEXTS = np.zeros(1, np.int64), np.empty(0, np.uint8)


def _columns_of(values: EventValues, columns: dict[str, int]) -> NDArray[np.int64]:
    """The column of each name, or -1. There may be far more names than columns."""
    names = values.names if isinstance(values.names, Names) else Names(values.names)
    own = np.full(max(len(names), 1), -1, np.int64)
    for name, column in columns.items():
        if name in names.codes:
            own[names.codes[name]] = column
    return own


def long_form(values: EventValues, columns: dict[str, int]) -> tuple[Any, Any, Any, Any, Any]:
    """(column, event, kind, key, tie) of the values of these attributes, one row for each; the tie is paired with the
    texts of the strings, whose key and tie are their places there."""
    own = _columns_of(values, columns)
    n, s, t, b, u = values.numbers, values.strings, values.times, values.booleans, values.unreadable
    parts = []
    readable: list[Any] = [(n, NUMBER), (s, STRING), (t, TIME), (b, BOOLEAN), (u, UNREADABLE)]
    for rows, kind in readable:
        if not len(rows.event):
            continue
        column = own[rows.name]
        kept = np.flatnonzero(column >= 0)
        key: Any = np.zeros(len(kept), np.int64)
        tie: Any = np.zeros(len(kept), np.int32)
        if kind == NUMBER:
            key, tie = order_bits(n.value[kept]), n.rest[kept].astype(np.int32)
        elif kind == STRING:
            key, tie = kept, kept.astype(np.int32)
        elif kind == TIME:
            key = t.microseconds[kept]
        elif kind == BOOLEAN:
            key = b.value[kept].astype(np.int64)
        event = rows.event[kept].astype(np.int64)
        parts.append((column[kept], event, np.full(len(kept), kind, np.uint8), key, tie))
    if any(name.startswith(TIMED) for name in columns):
        timed = {name[len(TIMED) :]: column for name, column in columns.items() if name.startswith(TIMED)}
        parts += _times(values, _columns_of(values, timed))
    if not parts:
        nothing = np.empty(0, np.int64)
        return nothing, nothing, nothing.astype(np.uint8), nothing, nothing.astype(np.int32)
    column, event, kinds, key, tie = (np.concatenate(each) for each in zip(*parts))
    texts = (writable(s.offsets), writable(s.data)) if (kinds == STRING).any() else _NO_TEXTS
    return column, event, kinds, key, (tie, texts)


def _times(values: EventValues, own: NDArray[np.int64]) -> Iterator[tuple[Any, ...]]:
    """The same of columns of times. own: that of each name, or -1."""
    s, t = values.strings, values.times
    of_strings, of_times = np.flatnonzero(own[s.name] >= 0), np.flatnonzero(own[t.name] >= 0)
    is_time, read = read_times(writable(s.data), s.offsets[of_strings], s.offsets[of_strings + 1])
    found: list[Any] = [(s, of_strings[is_time], read[is_time]), (t, of_times, t.microseconds[of_times])]
    for rows, kept, key in found:
        kind, tie = np.full(len(kept), TIME, np.uint8), np.zeros(len(kept), np.int32)
        yield own[rows.name[kept]], rows.event[kept].astype(np.int64), kind, key, tie


def _longer(array: NDArray[Any], used: int, size: int) -> NDArray[Any]:
    result = np.zeros(size if not used else max(size, used + used // 4), array.dtype)
    result[:used] = array[:used]
    return result
