"""Texts one by one, for a matcher that changes while it matches: a text of a known shape is checked when it comes, and
what it says is its templates with its names and constants."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dibs.language.expression import Kind, Literal
from dibs.language.filling import Filling, frame_arrays, pattern_arrays
from dibs.language.filling_kernels import Read, Texts, unpack
from dibs.language.hole_kernels import Holes
from dibs.language.reading import hard_constant, name_of, number_of
from dibs.language.shapes import CHANGES, HARD, LIST, NAME, Source, keys_of
from dibs.language.sql import MAX_TOKENS
from dibs.language.table import Op, PredicateTable
from dibs.language.templates import Whole, whole_of
from dibs.language.text_kernels import WORDS_OF_A_HOLE, read_alone


class RowValue(NamedTuple):
    """A literal."""

    kind: int
    bits: int  # of a number's float64
    integer: int  # its rest, or the value
    text: bytes | None


class Step(NamedTuple):
    """One predicate of a program."""

    name: str
    operator: int
    literals: list[RowValue]
    on_true: int
    on_false: int


class Row(NamedTuple):
    """A text that templates have read."""

    whole: Whole
    names: tuple[str, ...]  # of each predicate
    words: NDArray[np.int64]  # see text_kernels.read_alone
    hard: dict[int, RowValue]  # by hole

    def steps(self, text: str) -> list[Step] | None:
        """Its predicates; None: some of them ask for more than values. text: that it was read from."""
        if not self.whole.has_only_values:
            return None
        data, words = text.encode(), self.words.tolist()
        first_hole = 2 + words[0]

        def value(hole: int, change: int) -> RowValue:
            if hole in self.hard:
                hard = self.hard[hole]
                return hard if hard.text is None else hard._replace(text=CHANGES[change](hard.text))
            at = first_hole + WORDS_OF_A_HOLE * hole
            kind, start, size, bits, integer = words[at : at + WORDS_OF_A_HOLE]
            text = CHANGES[change](data[start : start + size]) if kind == Kind.STRING else None
            return RowValue(kind, bits, integer, text)

        def values(predicate: int, source: Source) -> list[RowValue]:
            if source.hole < 0:
                return [RowValue(source.kind, int(np.float64(source.number).view(np.int64)), source.integer, None)]
            hole = words[1 + predicate] + source.hole
            at = first_hole + WORDS_OF_A_HOLE * hole
            if words[at] == LIST:
                return [value(item, source.change) for item in range(hole + 1, hole + 1 + words[at + 2])]
            return [value(hole, source.change)]

        steps = []
        for units, on_true, on_false in self.whole.frame.steps:
            literals = []
            for predicate, negated in units:
                test = self.whole.patterns[predicate].tests[negated]
                for source in test.sources:
                    literals += values(predicate, source)
            operator = int(Op.IN if len(units) > 1 else test.operator)
            steps.append(Step(self.names[units[0][0]], operator, literals, on_true, on_false))
        return steps


def read_row(text: str) -> Row | None:
    """The row of a text; None for one that the grammar must look at. A few microseconds for a shape that is known."""
    data = text.encode()
    if len(data) > MAX_TOKENS:  # it may be beyond the limits: sql.parse counts
        return None
    key, words = read_alone(np.frombuffer(data, np.uint8))
    if not len(words):
        return None
    whole = whole_of(key.tobytes())
    if whole is None:
        return None
    read, holes = words.tolist(), 2 + int(words[0])
    if whole.has_one_name_each and max(read[holes::WORDS_OF_A_HOLE]) < HARD:
        simple: list[str] = []
        for pattern, hole in zip(whole.patterns, read[1:holes]):
            at = holes + WORDS_OF_A_HOLE * (hole + pattern.name)
            name = name_of(data[read[at + 1] : read[at + 1] + read[at + 2]])
            if name is None:
                return None
            simple.append(name)
        return Row(whole, tuple(simple), words, {})
    return _read_rest(data, whole, words)


def _read_rest(data: bytes, whole: Whole, words: NDArray[np.int64]) -> Row | None:
    """The same of a text with computed values, or with constants that Python has to look at."""
    holes = words[2 + words[0] :].reshape(-1, WORDS_OF_A_HOLE)
    hard: dict[int, RowValue] = {}
    names: dict[int, str] = {}  # by hole
    for number, (kind, start, size) in enumerate(holes[:, :3].tolist()):
        if kind == NAME:
            name = name_of(data[start : start + size])
            if name is None:
                return None
            names[number] = name
        elif kind & HARD:
            constant = hard_constant(kind, data[start : start + size], bool(holes[number, 4]))
            if constant is None:
                return None
            own, near, rest, content = constant
            hard[number] = RowValue(own, int(np.float64(near).view(np.int64)), rest, content)
    first = words[1 : 2 + words[0]].tolist()
    of_predicates: list[str] = []
    for pattern, hole in zip(whole.patterns, first):
        if pattern.computed is None:
            of_predicates.append(names[hole + pattern.name])
            continue
        called = {place: names[hole + place] for place in pattern.computed.names.values()}

        def literal(place: int, at: int = hole) -> Literal:
            return _literal(data, holes[at + place].tolist(), hard.get(at + place))

        if any(keys_of(literal(place).value) is None for place in pattern.computed.networks):
            return None
        name = pattern.computed.name(called, {place: literal(place) for place in pattern.computed.constants.values()})
        if name is None:
            return None
        of_predicates.append(name)
    return Row(whole, tuple(of_predicates), words, hard)


def fill_rows(rows: Sequence[Row], texts: pa.Array) -> tuple[PredicateTable, NDArray[np.int64]]:
    """The table of rows, without another look at their texts, which are large strings; and which its rows are."""
    _, offsets, buffer = texts.buffers()
    start = np.frombuffer(offsets, np.int64, len(texts) + 1, texts.offset * 8)
    data = np.frombuffer(buffer, np.uint8)
    wholes, names, words, hard = zip(*rows)
    distinct = {id(whole): whole for whole in wholes}
    number = {key: i for i, key in enumerate(distinct)}
    frame = np.array([number[key] for key in map(id, wholes)], np.int32)
    patterns = [whole.patterns for whole in distinct.values()]
    frames = [whole.frame for whole in distinct.values()]
    filling = Filling(len(rows))
    known = filling.names
    numbers = {some: [known.setdefault(name, len(known)) for name in some] for some in dict.fromkeys(names)}
    called = np.array(list(chain.from_iterable(map(numbers.__getitem__, names))), np.int32)
    word = np.cumsum([0, *map(len, words)])
    holes = Holes.room(int(word[-1] - 2 * len(rows) - len(called)) // WORDS_OF_A_HOLE)
    like = np.arange(len(rows))
    room = (
        np.empty(len(rows) + 1, np.int64),
        frame,
        np.empty(len(called), np.int32),
        np.empty(len(called) + 1, np.int64),
    )
    read = Read(
        Texts(*room, like), pattern_arrays(list(chain.from_iterable(patterns))), frame_arrays(frames), holes,
        np.zeros(len(holes.kind), np.int32),
    )  # fmt: skip
    unpack(np.concatenate(words), word, start, np.cumsum([0, *map(len, patterns)]), called, read)
    if any(hard):
        data = _put_hard(hard, read, data)
    plain = np.array([own.is_conjunction for own in frames], np.bool_)[frame]
    filling.add((np.flatnonzero(plain), np.flatnonzero(~plain)), read, data, 0)
    return filling.table(), filling.order()


def _put_hard(hard: Sequence[dict[int, RowValue]], read: Read, data: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Puts constants that Python has looked at into their holes. Returns the bytes, with those of their strings."""
    holes, added, end = read.holes, [], len(data)
    for t, constants in enumerate(hard):
        for own, (kind, bits, integer, text) in constants.items():
            h = read.texts.hole[read.texts.first[t]] + own
            holes.kind[h], holes.number[h], holes.integer[h] = kind, np.int64(bits).view(np.float64), integer
            if text is not None:
                holes.start[h], holes.size[h] = end, len(text)
                added.append(text)
                end += len(text)
    return np.concatenate([data, np.frombuffer(b"".join(added), np.uint8)])


def _literal(data: bytes, hole: list[int], hard: RowValue | None) -> Literal:
    """A constant that something is computed with."""
    kind, start, size, bits, integer = hole
    text = data[start : start + size]
    if hard is not None:
        kind, bits, integer, content = hard
        text = content or b""
    if kind == Kind.STRING:
        return Literal(Kind.STRING, text.decode())
    return number_of(float(np.int64(bits).view(np.float64)), integer)
