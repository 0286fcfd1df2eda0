"""The kernels of language.filling: names and constants into templates, text by text, to columns."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.jit.kernel import kernel, phase
from dibs.language.expression import Kind
from dibs.language.hole_kernels import Holes
from dibs.language.shapes import LIST, NAME
from dibs.language.table import Facet, Op
from dibs.language.text_kernels import WORDS_OF_A_HOLE

FACETS = len(Facet)  # an attribute here is FACETS * the number of its name + its facet
_NUMBER, _STRING, _NAME, _LIST, _IN = int(Kind.NUMBER), int(Kind.STRING), int(NAME), int(LIST), int(Op.IN)
_OR, _NOT, _PREDICATE = 124, 33, 112
_REPEATED = 64  # literals of a text whose places are kept for those that are like it


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
    pattern: NDArray[np.int32]  # of each predicate of texts that are like no other
    hole: NDArray[np.int64]  # the first of each predicate
    like: NDArray[np.int64]  # of each text: the first from which it differs in numbers and strings alone, or itself


class Read(NamedTuple):
    """Texts and their templates: all that `fill` reads."""

    texts: Texts
    patterns: Patterns
    frames: Frames
    holes: Holes
    name: NDArray[np.int32]  # the number of the name in each hole of texts that are like no other


class Columns(NamedTuple):
    """Columns of a PredicateTable, with room for more."""

    offsets: NDArray[np.int64]  # of rows, in predicates; the first is 0
    attribute: NDArray[np.int32]
    operator: NDArray[np.uint8]
    literal_offsets: NDArray[np.int64]
    on_true: NDArray[np.int32]  # of programs; else empty, and so is:
    on_false: NDArray[np.int32]
    kind: NDArray[np.uint8]
    number: NDArray[np.float64]
    integer: NDArray[np.int64]

    @classmethod
    def room(cls, rows: int, predicates: int, literals: int, are_programs: bool) -> Columns:
        p, i, jumps = predicates, literals, predicates if are_programs else 0
        return cls(
            np.zeros(rows + 1, np.int64),
            np.empty(p, np.int32),
            np.empty(p, np.uint8),
            np.zeros(p + 1, np.int64),
            np.empty(jumps, np.int32),
            np.empty(jumps, np.int32),
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
        arrays: list[Any] = [np.empty(size, kind) for kind in (np.int64, np.int64, np.int32, np.uint8)]
        return cls(*arrays)


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
def spread(like, bad, first_predicate, pattern, hole, name):
    """Gives each text that is like another one the templates and names of that, and what is bad of it."""
    for t in range(len(like)):
        if like[t] != t:
            own, other = first_predicate[t], first_predicate[like[t]]
            last = first_predicate[t + 1]
            bad[t] |= bad[like[t]]
            for k in range(last - own):
                pattern[own + k] = pattern[other + k]
            for k in range(hole[last] - hole[own]):
                name[hole[own] + k] = name[hole[other] + k]


@kernel
def sort_out(like, bad, frame, is_conjunction):
    """The texts that are not bad: conjunctions, and others. frame: of those that are like no other; of all, then."""
    rows = np.empty(len(like), np.int64)
    first, last = 0, len(like)
    for t in range(len(like)):
        frame[t] = frame[like[t]]
        bad[t] |= bad[like[t]]
        if not bad[t]:
            if is_conjunction[frame[t]]:
                rows[first] = t
                first += 1
            else:
                last -= 1
                rows[last] = t
    return rows[:first], rows[last:][::-1].copy()


@kernel
def unpack(words, at, start, patterns_before, names, read):
    """Texts that were read one by one (text_kernels.read_alone), as if they had been together. at: where the words of
    each begin; start: its text; patterns_before: by template of a whole text, which frames are numbered by; names: of
    each predicate."""
    texts, patterns, _, holes, name = read
    bits = holes.number.view(np.int64)
    p, h = 0, 0
    for t in range(len(at) - 1):
        word, texts.first[t] = at[t], p
        count = words[word]
        to = word + 2 + count
        for k in range(count):
            texts.hole[p], texts.pattern[p] = h + words[word + 1 + k], patterns_before[texts.frame[t]] + k
            name[texts.hole[p] + patterns.name[texts.pattern[p]]] = names[p]
            p += 1
        for _ in range(words[word + 1 + count]):
            holes.kind[h], holes.start[h], holes.size[h] = words[to], start[t] + words[to + 1], words[to + 2]
            bits[h], holes.integer[h] = words[to + 3], words[to + 4]
            to, h = to + WORDS_OF_A_HOLE, h + 1
    texts.first[len(at) - 1], texts.hole[p] = p, h


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
    """(predicates, literals) that `fill` writes at most. Texts that are like each other have as many: no lists."""
    predicates, literals, last, of_last, in_last = 0, 0, -1, 0, 0
    for r in range(len(rows)):
        if texts.like[rows[r]] != last:
            last = texts.like[rows[r]]
            frame, first = texts.frame[rows[r]], texts.first[last]
            step, end = frames.step[frame], frames.step[frame + 1]
            of_last, in_last = end - step, 0
            for unit in range(frames.unit[step], frames.unit[end]):
                predicate = first + frames.predicate[unit]
                test = 2 * texts.pattern[predicate] + frames.negated[unit]
                in_last += patterns.source[test + 1] - patterns.source[test]
                for h in range(texts.hole[predicate], texts.hole[predicate + 1]):
                    if holes_kind[h] == _LIST:
                        in_last += holes_size[h]
        predicates += of_last
        literals += in_last
    return predicates, literals


@phase
def _repeat(columns, strings, holes, first_hole, from_hole, from_change, at):
    """Another row like the last one, with constants of its own. at: where predicates and literals of the last
    one begin, and those of this one; strings so far. Returns strings."""
    last_p, last_i, p, i, string = at
    for k in range(p - last_p):
        columns.attribute[p + k] = columns.attribute[last_p + k]
        columns.operator[p + k] = columns.operator[last_p + k]
        columns.literal_offsets[p + k + 1] = columns.literal_offsets[last_p + k + 1] + i - last_i
        if len(columns.on_true) > 0:
            columns.on_true[p + k] = columns.on_true[last_p + k]
            columns.on_false[p + k] = columns.on_false[last_p + k]
    for k in range(i - last_i):
        h = first_hole + from_hole[k]
        if from_hole[k] < 0:
            columns.kind[i + k], columns.number[i + k] = columns.kind[last_i + k], columns.number[last_i + k]
            columns.integer[i + k] = columns.integer[last_i + k]
        elif holes.kind[h] == _NUMBER:
            columns.kind[i + k], columns.number[i + k] = _NUMBER, holes.number[h]
            columns.integer[i + k] = holes.integer[h]
        else:
            columns.kind[i + k], columns.number[i + k], columns.integer[i + k] = _STRING, 0.0, 0
            strings.literal[string], strings.start[string] = i + k, holes.start[h]
            strings.size[string], strings.change[string] = holes.size[h], from_change[k]
            string += 1
    return string


@kernel
def fill(rows, read, filled):
    """Adds the rows, which are texts. There is room: see count_literals."""
    texts, patterns, frames, holes, name = read
    attributes, columns, strings, count = filled
    row, p, i, known, string = count[0], count[1], count[2], count[3], 0
    are_programs = len(columns.on_true) > 0
    # Of the last row: what it is like, where its predicates and literals begin, and the hole of each literal, from its
    # first hole on (-1: it is always the same), and what is made of a string there.
    last, last_p, last_i = np.int64(-1), p, i
    from_hole, from_change = np.empty(_REPEATED, np.int64), np.empty(_REPEATED, np.uint8)
    for r in range(len(rows)):
        t = rows[r]
        first, like = texts.first[t], texts.like[t]
        first_hole = texts.hole[first]
        if like == last:
            more, more_literals = p - last_p, i - last_i
            at = last_p, last_i, p, i, string
            string = _repeat(columns, strings, holes, first_hole, from_hole, from_change, at)
            last_p, last_i = p, i
            p, i, row = p + more, i + more_literals, row + 1
            columns.offsets[row] = p
            continue
        last, last_p, last_i = like, p, i
        frame, first_like = texts.frame[t], texts.first[like]
        for step in range(frames.step[frame], frames.step[frame + 1]):
            test = np.int64(0)
            for unit in range(frames.unit[step], frames.unit[step + 1]):
                predicate = frames.predicate[unit]
                pattern = texts.pattern[first_like + predicate]
                test = 2 * pattern + frames.negated[unit]
                hole = texts.hole[first + predicate]
                if unit == frames.unit[step]:
                    name_hole = texts.hole[first_like + predicate] + patterns.name[pattern]
                    attribute = FACETS * name[name_hole] + patterns.facet[test]
                    if attributes.number[attribute] < 0:
                        attributes.number[attribute], attributes.used[known] = known, attribute
                        known += 1
                    columns.attribute[p] = attributes.number[attribute]
                for source in range(patterns.source[test], patterns.source[test + 1]):
                    h = patterns.hole[source]
                    if i - last_i < _REPEATED:
                        from_hole[i - last_i] = hole + h - first_hole if h >= 0 else -1
                        from_change[i - last_i] = patterns.change[source]
                    else:
                        last = np.int64(-1)
                    if h < 0:
                        columns.kind[i], columns.number[i] = patterns.kind[source], patterns.number[source]
                        columns.integer[i] = patterns.integer[source]
                        i += 1
                        continue
                    h += hole
                    item, end = h, h + 1
                    if holes.kind[h] == _LIST:
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
            if are_programs:
                columns.on_true[p], columns.on_false[p] = frames.on_true[step], frames.on_false[step]
            p += 1
            columns.literal_offsets[p] = i
        row += 1
        columns.offsets[row] = p
    count[0], count[1], count[2], count[3], count[4] = row, p, i, known, string
