"""Many texts at once: a text is a shape and its constants.

    1. read_texts     cuts each text into the shapes of its predicates and what stands around them, and puts names and
                      constants aside (shape_kernels)
    2. templates      are looked up for the distinct shapes, or made by the grammar (templates)
    3. fill           writes the columns of a PredicateTable (filling_kernels)

No step takes Python for each text, but for constants that are out of the ordinary (`_Hard`). A text that one of the
steps does not know what to do with is left to the grammar, with all its errors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import gt
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dibs.arrays import runs
from dibs.jit.hashing import number_slices
from dibs.language.advice import NOT_FINITE
from dibs.language.expression import Kind, Literal, microseconds, number, number_key
from dibs.language.filling_kernels import (
    FACETS,
    Attributes,
    Columns,
    Filled,
    Frames,
    Patterns,
    Read,
    Strings,
    Texts,
    count_literals,
    fill,
    frame_keys,
    spread,
)
from dibs.language.like import like_regex
from dibs.language.literals import LiteralError, read_number, read_time
from dibs.language.problems import Problems
from dibs.language.regex import refusal
from dibs.language.scanner import scan
from dibs.language.shape_kernels import Holes, Predicates, read_texts
from dibs.language.shapes import DATE, HARD, LIKE, NAME, REGEX
from dibs.language.sql import MAX_TOKENS
from dibs.language.table import Facet, PredicateTable, concatenate
from dibs.language.templates import CHANGES, ComputedTemplate, Frame, Pattern, frame_of, pattern_of
from dibs.thresholds import thresholds

SPARE = 1 << 22  # rows, predicates or literals for which there is room before they come


@dataclass
class Reading:
    """`taken[i]`: text i was read; the rows of the table are the texts at `order`."""

    taken: NDArray[np.bool_]
    table: PredicateTable
    order: NDArray[np.int64]


def read(texts: pa.Array, progress: Callable[[int], None] | None = None) -> Reading:
    """Reads a string array (a null is left alone). progress: is called with how many more were read, many times."""
    texts = texts.cast(pa.large_string()) if texts.type != pa.large_string() else texts
    texts = texts.fill_null("") if texts.null_count else texts  # an empty text is left alone
    sizes = pc.binary_length(texts)
    if len(texts) and pc.max(sizes).as_py() > MAX_TOKENS:  # it may be beyond the limits: sql.parse counts
        texts = pc.if_else(pc.greater(sizes, MAX_TOKENS), "", texts)
    chunk = thresholds.texts_at_once
    gathered, room = _Gathered(len(texts)), _Room()
    for at in range(0, len(texts), chunk):
        part = _Chunk(texts.slice(at, chunk), at, gathered)
        part.read(room)
        if progress is not None:
            progress(int(len(part.bad) - part.bad.sum()))
    taken = np.zeros(len(texts), np.bool_)
    order = gathered.order()
    taken[order] = True
    return Reading(taken, gathered.table(), order)


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


class _Gathered:
    """What the chunks of a call have in common: names, texts, and columns of conjunctions and of programs."""

    def __init__(self, texts: int) -> None:
        self.names: dict[str, int] = {}
        self.texts: dict[bytes, int] = {}
        self.conjunctions, self.programs = _Part(texts), _Part(texts)

    def order(self) -> NDArray[np.int64]:
        return np.concatenate([*self.conjunctions.rows, *self.programs.rows, np.empty(0, np.int64)])

    def table(self) -> PredicateTable:
        names = list(self.names)
        parts = (self.conjunctions, self.programs)
        return concatenate([part.table(names, list(self.texts), part is self.programs) for part in parts])


class _Part:
    """Rows of one kind, in columns that grow."""

    def __init__(self, texts: int) -> None:
        self.texts, self.seen = texts, 0  # of the whole call, and so far
        self.rows: list[NDArray[np.int64]] = []  # which texts they are
        self.count = np.zeros(5, np.int64)  # see filling_kernels.fill
        self.columns = Columns.room(0, 0, 0)
        self.attributes = Attributes(np.empty(0, np.int32), np.empty(0, np.int32))

    def make_room(self, rows: int, predicates: int, literals: int, names: int) -> None:
        """For so many more, and for what is still to come, as far as that can be told: more if there are as many in
        the texts to come as there were so far, but no more than some."""
        row, predicate, literal = self.count[:3].tolist()
        wanted = row + rows, predicate + predicates, literal + literals
        there = len(self.columns.offsets) - 1, len(self.columns.attribute), len(self.columns.kind)
        if any(map(gt, wanted, there)):
            share = max(self.texts / self.seen, 1.0 if not self.rows else 1.5)
            larger = Columns.room(*(min(int(share * size), size + SPARE) for size in map(max, wanted, there)))
            used = row + 1, *[predicate] * 2, predicate + 1, *[predicate] * 2, *[literal] * 3
            _copy(self.columns, larger, used)
            self.columns = larger
        if FACETS * names > len(self.attributes.number):
            size = 2 * FACETS * names
            more = Attributes(np.full(size, -1, np.int32), np.empty(size, np.int32))
            _copy(self.attributes, more, [len(self.attributes.number)] * 2)
            self.attributes = more

    def table(self, names: list[str], texts: list[bytes], are_programs: bool) -> PredicateTable:
        rows, predicates, literals, attributes, _ = self.count.tolist()
        c = self.columns
        used = self.attributes.used[:attributes].tolist()
        jumps = predicates if are_programs else 0
        return PredicateTable(
            offsets=c.offsets[: rows + 1],
            attribute=c.attribute[:predicates],
            operator=c.operator[:predicates],
            literal_offsets=c.literal_offsets[: predicates + 1],
            kind=c.kind[:literals],
            number=c.number[:literals],
            integer=c.integer[:literals],
            attributes=[(names[i // FACETS], Facet(i % FACETS)) for i in used],
            texts=texts,
            conjunctions=0 if are_programs else rows,
            on_true=c.on_true[:jumps],
            on_false=c.on_false[:jumps],
        )


def _copy(old: Iterable[NDArray[Any]], new: Iterable[NDArray[Any]], sizes: Iterable[int]) -> None:
    for source, target, size in zip(old, new, sizes):
        target[:size] = source[:size]


def _offsets(counts: NDArray[Any]) -> NDArray[np.int64]:
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    return offsets


class _Chunk:
    def __init__(self, texts: pa.Array, at: int, gathered: _Gathered):
        self.at = at
        self.gathered = gathered
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
        spread(self.like, self.first, number, self.hole, name)
        self.bad |= self.bad[self.like]
        self._name_computed(number, patterns, name)
        pattern_arrays = _pattern_arrays(patterns)
        frame, frames = self._find_frames(signs[:sign_count], number, pattern_arrays, name)
        plain = np.array([f is not None and f.is_conjunction for f in frames], np.bool_)
        texts = Texts(self.first, frame, number, self.hole)
        frame_arrays = _frame_arrays(frames)
        read = Read(texts, pattern_arrays, frame_arrays, self.holes, name)
        for part, are_programs in ((self.gathered.conjunctions, False), (self.gathered.programs, True)):
            rows = np.flatnonzero(~self.bad)
            rows = rows[plain[frame[rows]] != are_programs] if len(frames) else rows
            if len(rows):
                predicate_count, literal_count = count_literals(
                    rows, texts, pattern_arrays, frame_arrays, self.holes.kind, self.holes.size
                )
                part.seen = self.at + n
                part.make_room(len(rows), predicate_count, literal_count, len(self.gathered.names))
                strings = Strings.room(literal_count)
                fill(rows, read, Filled(part.attributes, part.columns, strings, part.count))
                part.rows.append(rows + self.at)
                self._number_strings(strings, int(part.count[4]), part.columns.integer)

    def _find_frames(
        self, signs: NDArray[np.uint8], number: NDArray[np.int32], patterns: Patterns, name: NDArray[np.int32]
    ) -> tuple[NDArray[np.int32], list[Any]]:
        """The number of the frame of each text, and the frames. A text that is left without is bad."""
        cut = np.flatnonzero((self.like == np.arange(len(self.like))) & ~self.bad)
        keys, start = frame_keys(
            cut, self.first, self.first_sign, signs, number, self.hole, patterns.name, patterns.equality, name
        )
        frame = np.zeros(len(self.bad), np.int32)
        frame[cut], frames = self._look_up(keys, start[:-1], np.diff(start).astype(np.int32), frame_of)
        self.bad[cut] = np.array([f is None for f in frames], np.bool_)[frame[cut]] if len(cut) else False
        self.bad |= self.bad[self.like]
        return frame[self.like], frames

    def _number_strings(self, strings: Strings, count: int, integer: NDArray[np.int64]) -> None:
        """Puts the number of its text into each literal that is a string."""
        known, view = self.gathered.texts, self.data.data
        change = strings.change[:count]
        for which in np.flatnonzero(np.bincount(change)).tolist() if count else []:
            own = np.flatnonzero(change == which)
            start, size = strings.start[own], strings.size[own]
            place, first = number_slices(self.data, start, size)
            numbers, made = np.empty(len(first), np.int64), CHANGES[which]
            for i, (a, b) in enumerate(zip(start[first].tolist(), (start + size)[first].tolist())):
                numbers[i] = known.setdefault(made(bytes(view[a:b])), len(known))
            integer[strings.literal[own]] = numbers[place]

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
        view, names = self.data.data, self.gathered.names
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
        own = np.flatnonzero(is_computed[number])
        own = own[~self.bad[self._texts_of(own)]]
        own = own[np.argsort(number[own], kind="stable")]  # those of one shape stand together
        which, firsts = np.unique(number[own], return_index=True)
        given = list(self.gathered.names)  # all that holes can say: computed names come behind
        for p, predicates in zip(which.tolist(), np.split(own, firsts[1:])):
            self._name_shape(patterns[p], predicates, name, given)

    def _name_shape(
        self, pattern: Any, predicates: NDArray[np.int64], name: NDArray[np.int32], given: list[str]
    ) -> None:
        """The same of the predicates of one shape: once for each distinct combination of names and constants."""
        template: ComputedTemplate = pattern.computed
        names = self.gathered.names
        of_names, of_constants = template.names.values(), template.constants.values()
        first = self.hole[predicates]
        columns = [np.zeros(len(first), np.int64), *(name[first + hole].astype(np.int64) for hole in of_names)]
        for hole in of_constants:
            columns += self._identities(first + hole)
        _, some, which = np.unique(np.stack(columns), axis=1, return_index=True, return_inverse=True)
        made = np.empty(len(some), np.int32)
        for i, place in enumerate(first[some].tolist()):
            called = {hole: given[name[place + hole]] for hole in of_names}
            if any(each.upper() in NOT_FINITE for each in called.values()):  # which the grammar has advice for
                made[i] = -1
                continue
            constants = {hole: self._literal(place + hole) for hole in of_constants}
            made[i] = names.setdefault(template.name(called, constants), len(names))
        found = made[which.reshape(-1)]
        name[first + pattern.name] = np.maximum(found, 0)
        self._refuse(predicates[found < 0])
        if of_constants:  # which of its attributes are the same is not as in the text that it is like
            texts = self._texts_of(predicates)
            self.like[texts] = texts

    def _identities(self, holes: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Columns that are equal for equal constants."""
        h = self.holes
        if len(holes) and h.kind[holes[0]] == Kind.STRING:  # which its shape says, of all of them
            return [number_slices(self.data, h.start[holes], h.size[holes])[0].astype(np.int64)]
        return [h.number[holes].view(np.int64), h.integer[holes]]

    def _literal(self, hole: int) -> Literal:
        h = self.holes
        if h.kind[hole] == Kind.STRING:
            start = int(h.start[hole])
            return Literal(Kind.STRING, bytes(self.data.data[start : start + int(h.size[hole])]).decode())
        return number_of(float(h.number[hole]), int(h.integer[hole]))

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


# ---- templates as arrays ----


def _pattern_arrays(patterns: Sequence[Pattern | None]) -> Patterns:
    tests = [test for p in patterns for test in (p.tests if p is not None else (None, None))]
    sources = [() if test is None else test.sources for test in tests]
    flat = [source for some in sources for source in some]
    return Patterns(
        np.array([0 if p is None else p.name for p in patterns], np.int32),
        np.array([0 if p is None else p.equality for p in patterns], np.uint8),
        np.array([0 if test is None else test.facet for test in tests], np.uint8),
        np.array([0 if test is None else test.operator for test in tests], np.uint8),
        _offsets(np.array([len(some) for some in sources], np.int32)).astype(np.int32),
        np.array([s.hole for s in flat], np.int32),
        np.array([s.change for s in flat], np.uint8),
        np.array([s.kind for s in flat], np.uint8),
        np.array([s.number for s in flat], np.float64),
        np.array([s.integer for s in flat], np.int64),
    )


def _frame_arrays(frames: Sequence[Frame | None]) -> Frames:
    steps = [() if f is None else f.steps for f in frames]
    flat = [step for some in steps for step in some]
    units = [unit for step in flat for unit in step.units]
    return Frames(
        _offsets(np.array([len(some) for some in steps], np.int64)),
        _offsets(np.array([len(step.units) for step in flat], np.int64)),
        np.array([step.on_true for step in flat], np.int32),
        np.array([step.on_false for step in flat], np.int32),
        np.array([unit for unit, _ in units], np.int32),
        np.array([negated for _, negated in units], np.uint8),
    )
