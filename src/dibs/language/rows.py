"""Texts one by one, for a matcher that changes while it matches: a text of a known shape is checked when it comes, and
what it says is its templates with its names and constants."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.language.advice import NOT_FINITE
from dibs.language.expression import Kind, Literal
from dibs.language.reading import hard_constant, name_of, number_of
from dibs.language.shape_kernels import WORDS_OF_A_HOLE, read_alone
from dibs.language.shapes import HARD, LIST, NAME
from dibs.language.sql import MAX_TOKENS
from dibs.language.table import Op
from dibs.language.templates import CHANGES, Source, Whole, whole_of


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
    words: NDArray[np.int64]  # see shape_kernels.read_alone
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
                return [RowValue(source.kind, 0, source.integer, None)]
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
        if any(name.upper() in NOT_FINITE for name in called.values()):  # which the grammar has advice for
            return None
        of_predicates.append(
            pattern.computed.name(
                called,
                {
                    place: _literal(data, holes[hole + place].tolist(), hard.get(hole + place))
                    for place in pattern.computed.constants.values()
                },
            )
        )
    return Row(whole, tuple(of_predicates), words, hard)


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
