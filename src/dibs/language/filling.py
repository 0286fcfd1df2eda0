"""Templates, names and constants to the columns of a PredicateTable, for texts that were read together
(language.reading) or one by one (language.rows)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import gt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dibs.jit.hashing import number_slices
from dibs.language.filling_kernels import (
    FACETS,
    Attributes,
    Columns,
    Filled,
    Frames,
    Patterns,
    Read,
    Strings,
    count_literals,
    fill,
)
from dibs.language.shapes import CHANGES
from dibs.language.table import Facet, PredicateTable, concatenate
from dibs.language.templates import Frame, Pattern

SPARE = 1 << 22  # rows, predicates or literals for which there is room before they come


class Filling:
    """What the texts of a call have in common: names, strings, and columns of conjunctions and of programs."""

    def __init__(self, texts: int) -> None:
        self.names: dict[str, int] = {}
        self._strings: dict[bytes, int] = {}
        self._conjunctions, self._programs = _Part(texts, False), _Part(texts, True)

    def add(
        self, rows: tuple[NDArray[np.int64], NDArray[np.int64]], read: Read, data: NDArray[np.uint8], at: int
    ) -> None:
        """Adds texts: conjunctions, and others. data: the bytes that their holes are places in; at: the number of the
        first text among those of the call."""
        for part, own in zip((self._conjunctions, self._programs), rows):
            if len(own):
                strings = part.add(own, read, at, len(self.names))
                self._number_strings(strings, int(part.count[4]), part.columns.integer, data)

    def order(self) -> NDArray[np.int64]:
        """Which texts the rows of the table are."""
        return np.concatenate([*self._conjunctions.rows, *self._programs.rows, np.empty(0, np.int64)])

    def table(self) -> PredicateTable:
        names, strings = list(self.names), list(self._strings)
        return concatenate([part.table(names, strings) for part in (self._conjunctions, self._programs)])

    def _number_strings(
        self, strings: Strings, count: int, integer: NDArray[np.int64], data: NDArray[np.uint8]
    ) -> None:
        """Puts the number of its text into each literal that is a string."""
        known, view = self._strings, data.data
        change = strings.change[:count]
        for which in np.flatnonzero(np.bincount(change)).tolist() if count else []:
            own = np.flatnonzero(change == which)
            start, size = strings.start[own], strings.size[own]
            place, first = number_slices(data, start, size)
            numbers, made = np.empty(len(first), np.int64), CHANGES[which]
            for i, (a, b) in enumerate(zip(start[first].tolist(), (start + size)[first].tolist())):
                numbers[i] = known.setdefault(made(bytes(view[a:b])), len(known))
            integer[strings.literal[own]] = numbers[place]


class _Part:
    """Rows of one kind, in columns that grow."""

    def __init__(self, texts: int, are_programs: bool) -> None:
        self._texts, self._seen = texts, 0  # of the whole call, and so far
        self._are_programs = are_programs
        self.rows: list[NDArray[np.int64]] = []  # which texts they are
        self.count = np.zeros(5, np.int64)  # see filling_kernels.fill
        self.columns = Columns.room(0, 0, 0, are_programs)
        self._attributes = Attributes(np.empty(0, np.int32), np.empty(0, np.int32))

    def add(self, rows: NDArray[np.int64], read: Read, at: int, names: int) -> Strings:
        """Adds these texts: the literals that are strings, of which only the places are known."""
        texts = read.texts
        predicates, literals = count_literals(rows, texts, read.patterns, read.frames, read.holes.kind, read.holes.size)
        self._seen = at + len(texts.frame)
        self._make_room(len(rows), predicates, literals, names)
        strings = Strings.room(literals)
        fill(rows, read, Filled(self._attributes, self.columns, strings, self.count))
        self.rows.append(rows + at)
        return strings

    def _make_room(self, rows: int, predicates: int, literals: int, names: int) -> None:
        """For so many more, and for what is still to come, as far as that can be told: more if there are as many in
        the texts to come as there were so far, but no more than some."""
        row, predicate, literal = self.count[:3].tolist()
        wanted = row + rows, predicate + predicates, literal + literals
        there = len(self.columns.offsets) - 1, len(self.columns.attribute), len(self.columns.kind)
        if any(map(gt, wanted, there)):
            share = max(self._texts / self._seen, 1.0 if not self.rows else 1.5)
            more = [min(int(share * size), size + SPARE) for size in map(max, wanted, there)]
            larger = Columns.room(more[0], more[1], more[2], self._are_programs)
            used = row + 1, *[predicate] * 2, predicate + 1, *[predicate] * 2, *[literal] * 3
            _copy(self.columns, larger, used)
            self.columns = larger
        if FACETS * names > len(self._attributes.number):
            size = 2 * FACETS * names
            larger_ones = Attributes(np.full(size, -1, np.int32), np.empty(size, np.int32))
            _copy(self._attributes, larger_ones, [len(self._attributes.number)] * 2)
            self._attributes = larger_ones

    def table(self, names: list[str], strings: list[bytes]) -> PredicateTable:
        rows, predicates, literals, attributes, _ = self.count.tolist()
        c = self.columns
        used = self._attributes.used[:attributes].tolist()
        return PredicateTable(
            offsets=c.offsets[: rows + 1],
            attribute=c.attribute[:predicates],
            operator=c.operator[:predicates],
            literal_offsets=c.literal_offsets[: predicates + 1],
            kind=c.kind[:literals],
            number=c.number[:literals],
            integer=c.integer[:literals],
            attributes=[(names[i // FACETS], Facet(i % FACETS)) for i in used],
            texts=strings,
            conjunctions=0 if self._are_programs else rows,
            on_true=c.on_true[:predicates],
            on_false=c.on_false[:predicates],
        )


def _copy(old: Iterable[NDArray[Any]], new: Iterable[NDArray[Any]], sizes: Iterable[int]) -> None:
    for source, target, size in zip(old, new, sizes):
        target[:size] = source[:size]


# ---- templates as arrays ----


def pattern_arrays(patterns: Sequence[Pattern | None]) -> Patterns:
    tests = [test for p in patterns for test in (p.tests if p is not None else (None, None))]
    sources = [() if test is None else test.sources for test in tests]
    flat = [source for some in sources for source in some]
    return Patterns(
        np.array([0 if p is None else p.name for p in patterns], np.int32),
        np.array([0 if p is None else p.equality for p in patterns], np.uint8),
        np.array([0 if test is None else test.facet for test in tests], np.uint8),
        np.array([0 if test is None else test.operator for test in tests], np.uint8),
        _offsets([len(some) for some in sources]).astype(np.int32),
        np.array([s.hole for s in flat], np.int32),
        np.array([s.change for s in flat], np.uint8),
        np.array([s.kind for s in flat], np.uint8),
        np.array([s.number for s in flat], np.float64),
        np.array([s.integer for s in flat], np.int64),
    )


def frame_arrays(frames: Sequence[Frame | None]) -> Frames:
    steps = [() if f is None else f.steps for f in frames]
    flat = [step for some in steps for step in some]
    units = [unit for step in flat for unit in step.units]
    return Frames(
        _offsets([len(some) for some in steps]),
        _offsets([len(step.units) for step in flat]),
        np.array([step.on_true for step in flat], np.int32),
        np.array([step.on_false for step in flat], np.int32),
        np.array([unit for unit, _ in units], np.int32),
        np.array([negated for _, negated in units], np.uint8),
    )


def _offsets(counts: list[int]) -> NDArray[np.int64]:
    return np.append(0, np.cumsum(np.array(counts, np.int64)))
