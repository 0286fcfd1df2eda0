"""The kernels of language.reading that fill: names and constants into templates, text by text, to columns."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.jit.kernel import kernel
from dibs.language.expression import Kind
from dibs.language.shape_kernels import Holes
from dibs.language.shapes import LIST, NAME
from dibs.language.table import Facet, Op

FACETS = len(Facet)  # an attribute here is FACETS * the number of its name + its facet
_NUMBER, _STRING, _NAME, _LIST, _IN = int(Kind.NUMBER), int(Kind.STRING), int(NAME), int(LIST), int(Op.IN)
_OR, _NOT, _PREDICATE = 124, 33, 112


class Patterns(NamedTuple):
    """Templates of predicates. Those of number p are tests 2 p, as it stands, and 2 p + 1, negated."""

    name: NDArray[np.int32]  # which hole it is
    equality: NDArray[np.uint8]
    facet: NDArray[np.uint8]  # of each test
    operator: NDArray[np.uint8]
    source: NDArray[np.int32]  # the first of each test; tests + 1
    hole: NDArray[np.int32]  # of each source: see templates.Source
    change: NDArray[np.uint8]
    kind: NDArray[np.uint8]
    number: NDArray[np.float64]
    integer: NDArray[np.int64]


class Frames(NamedTuple):
    """Templates of what stands around predicates."""

    step: NDArray[np.int64]  # the first of each frame; frames + 1
    unit: NDArray[np.int64]  # the first of each step; steps + 1
    on_true: NDArray[np.int32]
    on_false: NDArray[np.int32]
    predicate: NDArray[np.int32]  # of each unit
    negated: NDArray[np.uint8]


class Texts(NamedTuple):
    """What was read of texts: see language.shape_kernels."""

    first: NDArray[np.int64]  # the first predicate of each
    frame: NDArray[np.int32]  # of each text
    pattern: NDArray[np.int32]  # of each predicate
    hole: NDArray[np.int64]  # the first of each predicate


class Read(NamedTuple):
    """Texts and their templates: all that `fill` reads."""

    texts: Texts
    patterns: Patterns
    frames: Frames
    holes: Holes
    name: NDArray[np.int32]  # the number of the name in each hole


class Columns(NamedTuple):
    """Columns of a PredicateTable, with room for more."""

    offsets: NDArray[np.int64]  # of rows, in predicates; the first is 0
    attribute: NDArray[np.int32]
    operator: NDArray[np.uint8]
    literal_offsets: NDArray[np.int64]
    on_true: NDArray[np.int32]
    on_false: NDArray[np.int32]
    kind: NDArray[np.uint8]
    number: NDArray[np.float64]
    integer: NDArray[np.int64]

    @classmethod
    def room(cls, rows: int, predicates: int, literals: int) -> Columns:
        p, i = predicates, literals
        return cls(
            np.zeros(rows + 1, np.int64),
            np.empty(p, np.int32),
            np.empty(p, np.uint8),
            np.zeros(p + 1, np.int64),
            np.empty(p, np.int32),
            np.empty(p, np.int32),
            np.empty(i, np.uint8),
            np.empty(i, np.float64),
            np.empty(i, np.int64),
        )


class Strings(NamedTuple):
    """The literals that are strings: which they are, where they stand, and what is to be made of them."""

    literal: NDArray[np.int64]
    start: NDArray[np.int64]
    size: NDArray[np.int32]
    change: NDArray[np.uint8]

    @classmethod
    def room(cls, size: int) -> Strings:
        return cls(
            np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size, np.int32), np.empty(size, np.uint8)
        )


class Attributes(NamedTuple):
    """Attributes in the order of first use."""

    number: NDArray[np.int32]  # of each name and facet, or -1
    used: NDArray[np.int32]  # FACETS * name + facet of each number


class Filled(NamedTuple):
    """All that `fill` writes."""

    attributes: Attributes
    columns: Columns
    strings: Strings
    counts: NDArray[np.int64]  # rows, predicates, literals and attributes so far, and strings of this call


@kernel
def spread(like, first_predicate, pattern, hole, name):
    """Gives each text that is like another one the templates and names of that."""
    for t in range(len(like)):
        if like[t] != t:
            own, other = first_predicate[t], first_predicate[like[t]]
            last = first_predicate[t + 1]
            for k in range(last - own):
                pattern[own + k] = pattern[other + k]
            for k in range(hole[last] - hole[own]):
                name[hole[own] + k] = name[hole[other] + k]


@kernel
def frame_keys(texts, first_predicate, first_sign, signs, pattern, hole, name_hole, equality, name):
    """The keys of templates.frame_of for these texts: (bytes, where each begins). Equalities on an attribute that
    another equality of the text speaks of, too, are told apart where OR, NOT or IS may bring them together."""
    size = 0
    for t in texts:
        size += first_sign[t + 1] - first_sign[t] + 2 * (first_predicate[t + 1] - first_predicate[t])
    keys, start = np.empty(size, np.uint8), np.empty(len(texts) + 1, np.int64)
    at = 0
    for i in range(len(texts)):
        t = texts[i]
        start[i] = at
        merges = False
        for s in range(first_sign[t], first_sign[t + 1]):
            merges |= signs[s] == _OR or signs[s] == _NOT or (signs[s] >= 65 and signs[s] != _PREDICATE)
        first, last = first_predicate[t], first_predicate[t + 1]
        merges &= last - first < 65536
        p = first
        for s in range(first_sign[t], first_sign[t + 1]):
            keys[at] = signs[s]
            if signs[s] == _PREDICATE:
                if merges and equality[pattern[p]] > 0:
                    own, count, least = name[hole[p] + name_hole[pattern[p]]], 0, p
                    for q in range(first, last):
                        other = pattern[q]
                        if equality[other] > 0 and name[hole[q] + name_hole[other]] == own:
                            count += 1
                            least = min(least, q)
                    if count > 1:
                        keys[at] = equality[pattern[p]]
                        keys[at + 1], keys[at + 2] = (least - first) & 255, (least - first) >> 8
                        at += 2
                p += 1
            at += 1
    start[len(texts)] = at
    return keys, start


@kernel
def count_literals(rows, texts, patterns, frames, holes_kind, holes_size):
    """(predicates, literals) that `fill` writes at most."""
    predicates, literals = 0, 0
    for r in range(len(rows)):
        frame, first = texts.frame[rows[r]], texts.first[rows[r]]
        step, last = frames.step[frame], frames.step[frame + 1]
        predicates += last - step
        for unit in range(frames.unit[step], frames.unit[last]):
            predicate = first + frames.predicate[unit]
            test = 2 * texts.pattern[predicate] + frames.negated[unit]
            literals += patterns.source[test + 1] - patterns.source[test]
            for h in range(texts.hole[predicate], texts.hole[predicate + 1]):
                if holes_kind[h] == _LIST:
                    literals += holes_size[h]
    return predicates, literals


@kernel
def fill(rows, read, filled):
    """Adds the rows, which are texts. There is room: see count_literals."""
    texts, patterns, frames, holes, name = read
    attributes, columns, strings, count = filled
    row, p, i, known, string = count[0], count[1], count[2], count[3], 0
    for r in range(len(rows)):
        t = rows[r]
        frame, first = texts.frame[t], texts.first[t]
        for step in range(frames.step[frame], frames.step[frame + 1]):
            test = np.int64(0)
            for unit in range(frames.unit[step], frames.unit[step + 1]):
                predicate = first + frames.predicate[unit]
                pattern = texts.pattern[predicate]
                test = 2 * pattern + frames.negated[unit]
                hole = texts.hole[predicate]
                if unit == frames.unit[step]:
                    attribute = FACETS * name[hole + patterns.name[pattern]] + patterns.facet[test]
                    if attributes.number[attribute] < 0:
                        attributes.number[attribute], attributes.used[known] = known, attribute
                        known += 1
                    columns.attribute[p] = attributes.number[attribute]
                for source in range(patterns.source[test], patterns.source[test + 1]):
                    h = patterns.hole[source]
                    if h < 0:
                        columns.kind[i], columns.number[i] = patterns.kind[source], patterns.number[source]
                        columns.integer[i] = patterns.integer[source]
                        i += 1
                        continue
                    h += hole
                    kind = holes.kind[h]
                    if kind == _NUMBER:  # by far the most
                        columns.kind[i], columns.number[i] = kind, holes.number[h]
                        columns.integer[i] = holes.integer[h]
                        i += 1
                        continue
                    item, end = h, h + 1
                    if kind == _LIST:
                        item, end = h + 1, h + 1 + holes.size[h]
                    while item < end:
                        kind = holes.kind[item]
                        columns.kind[i], columns.number[i] = kind, holes.number[item] if kind == _NUMBER else 0.0
                        columns.integer[i] = holes.integer[item]
                        if kind == _STRING:
                            strings.literal[string], strings.start[string] = i, holes.start[item]
                            strings.size[string], strings.change[string] = holes.size[item], patterns.change[source]
                            string += 1
                        i += 1
                        item += 1
            several = frames.unit[step + 1] - frames.unit[step] > 1
            columns.operator[p] = _IN if several else patterns.operator[test]
            columns.on_true[p], columns.on_false[p] = frames.on_true[step], frames.on_false[step]
            p += 1
            columns.literal_offsets[p] = i
        row += 1
        columns.offsets[row] = p
    count[0], count[1], count[2], count[3], count[4] = row, p, i, known, string
