"""Many texts at once: a text is a shape and its constants.

    1. read_texts     cuts each text into the shapes of its predicates and what stands around them, and puts names and
                      constants aside (shape_kernels)
    2. templates      are looked up for the distinct shapes, or made by the grammar (templates)
    3. fill           writes the columns of a PredicateTable (filling)

No step takes Python for each text, but for constants that are out of the ordinary (`_Hard`). A text that one of the
steps does not know what to do with is left to the grammar, with all its errors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dibs.arrays import from_numpy, runs
from dibs.jit.hashing import number_slices
from dibs.language.expression import Kind, Literal, microseconds, number, number_key
from dibs.language.filling import Filling, frame_arrays, pattern_arrays
from dibs.language.filling_kernels import Patterns, Read, Texts, frame_keys, sort_out, spread
from dibs.language.hole_kernels import Holes
from dibs.language.literals import LiteralError, read_number, read_time
from dibs.language.problems import Problems
from dibs.language.regex import like_regex, refusal
from dibs.language.scalars import fields_of, is_computed, scalar_of, split_mark
from dibs.language.scanner import scan
from dibs.language.shape_kernels import Predicates
from dibs.language.shapes import DATE, HARD, LIKE, NAME, REGEX, keys_of
from dibs.language.sql import MAX_TOKENS
from dibs.language.table import Facet, Op, PredicateTable
from dibs.language.templates import ComputedTemplate, Pattern, frame_of, pattern_of
from dibs.language.text_kernels import read_texts
from dibs.language.types import NO_TYPES, Types
from dibs.tuning import tuned

TEXTS_AT_ONCE = tuned("texts_at_once", 1 << 14, 1, "texts", "that are read by one call of the kernel")


@dataclass
class Reading:
    """`taken[i]`: text i was read; the rows of the table are the texts at `order`."""

    taken: NDArray[np.bool_]
    table: PredicateTable
    order: NDArray[np.int64]


def read(texts: pa.Array, progress: Callable[[int], None] | None = None, types: Types = NO_TYPES) -> Reading:
    """Reads a string array (a null is left alone). progress: is called with how many more were read, many times. types:
    of attributes. Templates know nothing of them, so they are left only texts whose constants have these."""
    found = _read(texts, progress)
    again = rows_to_read_again(found.table, types) if types else ()
    if not len(again):
        return found
    left = np.zeros(len(texts), np.bool_)
    left[found.order[again]] = True
    return _read(pc.if_else(from_numpy(left), pa.scalar(None, texts.type), texts))


def _read(texts: pa.Array, progress: Callable[[int], None] | None = None) -> Reading:
    texts = texts.cast(pa.large_string()) if texts.type != pa.large_string() else texts
    texts = texts.fill_null("") if texts.null_count else texts  # an empty text is left alone
    sizes = pc.binary_length(texts)
    if len(texts) and pc.max(sizes).as_py() > MAX_TOKENS:  # it may be beyond the limits: sql.parse counts
        texts = pc.if_else(pc.greater(sizes, MAX_TOKENS), "", texts)
    chunk = TEXTS_AT_ONCE.value
    if len(texts) > chunk:
        _keep_freed_memory()
    filling, room = Filling(len(texts)), _Room()
    for at in range(0, len(texts), chunk):
        part = _Chunk(texts.slice(at, chunk), at, filling)
        part.read(room)
        if progress is not None:
            progress(int(len(part.bad) - part.bad.sum()))
    taken = np.zeros(len(texts), np.bool_)
    order = filling.order()
    taken[order] = True
    return Reading(taken, filling.table(), order)


def _keep_freed_memory() -> None:
    """glibc hands freed memory back to the system, which clears each page of it when it is taken again: a sixth of what
    loading took. It keeps twice as much as the largest block that was ever freed, 32 MB at most: here is one, of which
    nothing is touched."""
    np.empty(31 << 20, np.uint8)


class _Room:
    """What texts are read into. Kept from chunk to chunk: memory that is new takes as long as reading."""

    def __init__(self) -> None:
        self._bytes = self._texts = -1

    def of(self, size: int, texts: int) -> tuple[Predicates, Holes, NDArray[np.uint8]]:
        if size > self._bytes or texts > self._texts:
            self._bytes, self._texts = max(size, self._bytes), max(texts, self._texts)
            signs = np.empty(self._bytes + 2 * self._texts + 2, np.uint8)
            self._arrays = Predicates.room(self._bytes, self._texts), Holes.room(self._bytes), signs
        return self._arrays


class _Chunk:
    def __init__(self, texts: pa.Array, at: int, filling: Filling):
        self.at = at
        self.filling = filling
        n = len(texts)
        _, offsets, data = texts.buffers()
        self.offsets = np.frombuffer(offsets, np.int64, n + 1, texts.offset * 8)
        self.data = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
        self.bad = np.zeros(n, np.bool_)

    def read(self, room: _Room) -> None:
        n, size = len(self.bad), int(self.offsets[-1] - self.offsets[0])
        predicates, holes, signs = room.of(size, n)
        self.first, self.first_sign = np.empty(n + 1, np.int64), np.empty(n + 1, np.int64)
        self.like = np.empty(n, np.int64)
        count, hole_count, _, sign_count, _ = read_texts(
            self.data, self.offsets, predicates, holes, signs, self.first, self.first_sign, self.like
        ).tolist()
        self.bad |= self.first[1:] == self.first[:-1]
        if not count:
            return
        self.hole = predicates.hole[: count + 1]
        self.holes = Holes._make(array[:hole_count] for array in holes)
        cut = np.flatnonzero(self.like == np.arange(n))  # all others are like one of these
        own = runs(self.first[cut], np.diff(self.first)[cut])
        self._resolve_hard()
        name = self._number_names(runs(self.hole[own], np.diff(self.hole)[own]))
        number = np.empty(count, np.int32)
        number[own], patterns = self._look_up(predicates.bytes, predicates.start[own], predicates.size[own], pattern_of)
        unknown = np.array([p is None for p in patterns], np.bool_)
        if unknown.any():
            self._refuse(own[unknown[number[own]]])
        self._name_computed(number, patterns, name)
        templates = pattern_arrays(patterns)
        frame, frames = self._find_frames(signs[:sign_count], number, templates, name)
        plain = np.array([f is not None and f.is_conjunction for f in frames] or [False], np.bool_)
        rows = sort_out(self.like, self.bad, frame, plain)
        texts = Texts(self.first, frame, number, self.hole, self.like)
        read = Read(texts, templates, frame_arrays(frames), self.holes, name)
        self.filling.add(rows, read, self.data, self.at)

    def _find_frames(
        self, signs: NDArray[np.uint8], number: NDArray[np.int32], patterns: Patterns, name: NDArray[np.int32]
    ) -> tuple[NDArray[np.int32], list[Any]]:
        """The number of the frame of each text that is like no other, and the frames. One that has none is bad."""
        cut = np.flatnonzero((self.like == np.arange(len(self.like))) & ~self.bad)
        keys, start = frame_keys(
            cut, self.first, self.first_sign, signs, number, self.hole, patterns.name, patterns.equality, name
        )
        frame = np.zeros(len(self.bad), np.int32)
        frame[cut], frames = self._look_up(keys, start[:-1], np.diff(start).astype(np.int32), frame_of)
        self.bad[cut] = np.array([f is None for f in frames], np.bool_)[frame[cut]] if len(cut) else False
        return frame, frames

    def _refuse(self, predicates: NDArray[np.int64]) -> None:
        """Leaves the texts of these predicates alone."""
        self.bad[self._texts_of(predicates)] = True

    def _texts_of(self, predicates: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.searchsorted(self.first, predicates, "right") - 1

    def _refuse_holes(self, holes: NDArray[np.int64]) -> None:
        self._refuse(np.searchsorted(self.hole, holes, "right") - 1)

    def _number_names(self, holes: NDArray[np.int64]) -> NDArray[np.int32]:
        """The number of the attribute of each of the holes that is a name."""
        kind, start, size = self.holes[:3]
        own = holes[kind[holes] == NAME]
        number, first = number_slices(self.data, start[own], size[own])
        view, names = self.data.data, self.filling.names
        known = np.empty(len(first), np.int32)
        for i, h in enumerate(own[first].tolist()):
            name = name_of(bytes(view[start[h] : start[h] + size[h]]))
            known[i] = -1 if name is None else names.setdefault(name, len(names))
        if (known < 0).any():
            self._refuse_holes(own[known[number] < 0])
        result = np.zeros(len(kind), np.int32)
        result[own] = known[number]
        return result

    def _name_computed(
        self, number: NDArray[np.int32], patterns: Sequence[Pattern | None], name: NDArray[np.int32]
    ) -> None:
        """Puts the numbers of computed attributes into the first holes of their predicates."""
        is_computed = np.array([p is not None and p.computed is not None for p in patterns], np.bool_)
        if not is_computed.any():
            return
        spread(self.like, self.bad, self.first, number, self.hole, name)
        own = np.flatnonzero(is_computed[number])
        own = own[~self.bad[self._texts_of(own)]]
        own = own[np.argsort(number[own], kind="stable")]  # those of one shape stand together
        which, firsts = np.unique(number[own], return_index=True)
        given = list(self.filling.names)  # all that holes can say: computed names come behind
        for p, predicates in zip(which.tolist(), np.split(own, firsts[1:])):
            self._name_shape(patterns[p], predicates, name, given)

    def _name_shape(
        self, pattern: Any, predicates: NDArray[np.int64], name: NDArray[np.int32], given: list[str]
    ) -> None:
        """The same of the predicates of one shape: once for each distinct combination of names and constants."""
        template: ComputedTemplate = pattern.computed
        names = self.filling.names
        of_names, of_constants = template.names.values(), template.constants.values()
        first = self.hole[predicates]
        columns = [np.zeros(len(first), np.int64), *(name[first + hole].astype(np.int64) for hole in of_names)]
        for hole in of_constants:
            columns += self._identities(first + hole)
        _, some, which = np.unique(np.stack(columns), axis=1, return_index=True, return_inverse=True)
        made = np.empty(len(some), np.int32)
        literals = {hole: self._literals(first[some] + hole) for hole in of_constants}
        for i, place in enumerate(first[some].tolist()):
            called = {hole: given[name[place + hole]] for hole in of_names}
            own = template.name(called, {hole: found[i] for hole, found in literals.items()})
            made[i] = -1 if own is None else names.setdefault(own, len(names))
        found = made[which.reshape(-1)]
        name[first + pattern.name] = np.maximum(found, 0)
        self._refuse(predicates[found < 0])
        for hole in template.networks:
            number, some = number_slices(self.data, self.holes.start[first + hole], self.holes.size[first + hole])
            known = [keys_of(text) is not None for text in self._strings(first[some] + hole)]
            self._refuse(predicates[~np.array(known, np.bool_)[number]])
        if of_constants or template.networks:  # what it is like may have other attributes, or be bad
            texts = self._texts_of(predicates)
            self.like[texts] = texts

    def _identities(self, holes: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Columns that are equal for equal constants."""
        h = self.holes
        if len(holes) and h.kind[holes[0]] == Kind.STRING:  # which its shape says, of all of them
            return [number_slices(self.data, h.start[holes], h.size[holes])[0].astype(np.int64)]
        return [h.number[holes].view(np.int64), h.integer[holes]]

    def _literals(self, holes: NDArray[np.int64]) -> list[Literal]:
        """Of holes of one kind, as they are of one shape."""
        h = self.holes
        if len(holes) and h.kind[holes[0]] == Kind.STRING:
            return [Literal(Kind.STRING, text) for text in self._strings(holes)]
        return list(map(number_of, h.number[holes].tolist(), h.integer[holes].tolist()))

    def _strings(self, holes: NDArray[np.int64]) -> list[str]:
        starts, view = self.holes.start[holes], self.data.data
        ends = starts + self.holes.size[holes]
        return [bytes(view[start:end]).decode() for start, end in zip(starts.tolist(), ends.tolist())]

    @staticmethod
    def _look_up(
        data: NDArray[np.uint8], start: NDArray[np.int64], size: NDArray[np.int32], find: Callable[[bytes], Any]
    ) -> tuple[NDArray[np.int32], list[Any]]:
        """The number of each slice among the distinct ones, and what there is for these."""
        number, first = number_slices(data, start, size)
        places = start[first]
        view = data.data
        found = [find(bytes(view[a:b])) for a, b in zip(places.tolist(), (places + size[first]).tolist())]
        return number, found

    def _resolve_hard(self) -> None:
        """Constants that kernels leave to Python. One that the grammar should complain about leaves its text to it."""
        hard = np.flatnonzero(self.holes.kind & HARD)
        if not len(hard):
            return
        kinds, starts = self.holes.kind[hard].tolist(), self.holes.start[hard]
        ends = starts + self.holes.size[hard]
        view, added, at = self.data.data, [], len(self.data)
        refused: list[int] = []
        for h, kind, a, b in zip(hard.tolist(), kinds, starts.tolist(), ends.tolist()):
            constant = hard_constant(kind, bytes(view[a:b]), bool(self.holes.integer[h]))
            if constant is None:
                refused.append(h)
                self.holes.kind[h] = Kind.NUMBER
                continue
            self.holes.kind[h], self.holes.number[h], self.holes.integer[h], text = constant
            if text is not None:
                self.holes.start[h], self.holes.size[h] = at, len(text)
                added.append(text)
                at += len(text)
        if refused:
            self._refuse_holes(np.array(refused, np.int64))
        if added:
            self.data = np.concatenate([self.data, np.frombuffer(b"".join(added), np.uint8)])


# ---- declared types ----

_OF_TEXTS = (Facet.REVERSED, Facet.PATTERN, Facet.NO_PATTERN)


def is_typed(name: str, types: Types) -> bool:
    """Whether an attribute has a declared type, or is computed from one that has."""
    return name in types or (
        is_computed(name) and any(split_mark(field)[1] in types for field in fields_of(scalar_of(name)))
    )


def rows_to_read_again(table: PredicateTable, types: Types) -> NDArray[np.int64]:
    """The rows with a constant of another kind than its attribute's, or with what is computed from such attributes."""
    wanted = np.full(len(table.attributes), _ANY, np.int8)
    for place, (name, facet) in enumerate(table.attributes):
        kind = types.kind_of(name)
        if kind is None:
            wanted[place] = _NONE if is_typed(name, types) else _ANY
        elif kind == Kind.STRING or facet not in _OF_TEXTS:
            wanted[place] = kind
        else:
            wanted[place] = _NONE
    of_predicate = wanted[table.attribute]
    bad = of_predicate == _NONE
    # PATTERN has its constants among the texts of its own.
    of_literal = np.repeat(of_predicate, np.diff(table.literal_offsets))
    other = (of_literal >= 0) & (of_literal != table.kind)
    places = np.repeat(np.arange(len(table.attribute)), np.diff(table.literal_offsets))
    bad[places[other]] = True
    if types.domains:
        ends = [types.domains.get(name, (-np.inf, np.inf)) for name, _ in table.attributes]
        low, high = np.array(ends, np.float64).reshape(-1, 2).T
        own = table.attribute[places]
        outside = (table.number < low[own]) | (table.number > high[own]) | (np.floor(table.number) != table.number)
        bad[places[outside & np.isfinite(low[own]) & (table.kind == Kind.NUMBER)]] = True
    bad |= (table.operator == Op.STRING) & (of_predicate >= 0) & (of_predicate != Kind.STRING)
    rows = np.searchsorted(table.offsets, np.flatnonzero(bad), "right") - 1
    return np.unique(rows)


_ANY, _NONE = -1, -2  # of predicates: their attribute has no type; they are read again


# ---- names and constants that need Python ----


@lru_cache(maxsize=1 << 16)  # the same names come again and again
def name_of(written: bytes) -> str | None:
    """The attribute that is written so; None: this is no name."""
    text = written.decode()
    problems = Problems(text)
    tokens = scan(text, problems)
    return tokens[0].value if len(tokens) == 2 and tokens.kind(0) == "name" and not problems else None


def number_of(near: float, rest: int) -> Literal:
    """The literal of a number as columns have it."""
    return number(int(near) + rest if rest and math.isfinite(near) else math.nan if rest else near)


HardConstant = tuple[int, float, int, bytes | None]  # kind, number, integer; and the bytes of a string


@lru_cache(maxsize=1 << 12)  # the same patterns come again and again
def hard_constant(kind: int, written: bytes, negative: bool) -> HardConstant | None:
    """A constant that is out of the ordinary; None: the grammar should look at its text."""
    text, what = written.decode(), kind & ~HARD
    try:
        if what == Kind.NUMBER:
            literal = read_number(text, negative)
            return None if literal is None else (Kind.NUMBER, *number_key(literal.value), None)
        if what == LIKE:
            said: str | None = text
        else:
            problems = Problems(text)
            tokens = scan(text, problems)
            said = tokens[0].value if len(tokens) == 2 and tokens.kind(0) == "string" and not problems else None
        if not said:
            return None
        if what in (Kind.TIME, DATE):
            return Kind.TIME, 0.0, microseconds(read_time("DATE" if what == DATE else "TIMESTAMP", said).value), None
        if what in (LIKE, REGEX):
            said = like_regex(said) if what == LIKE else said
            if refusal(said) is not None:
                return None
        return Kind.STRING, 0.0, 0, said.encode()
    except LiteralError:
        return None
