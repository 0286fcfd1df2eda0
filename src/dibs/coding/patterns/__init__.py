"""CONTAINS, LIKE in general and RLIKE: all patterns of an attribute against all strings of a batch.

    groups.py            what a pattern is for a kernel: pieces, the filter that leads to it, work space
    reading_kernels.py   the RE2 texts of the domain to pieces; needs_kernels.py: what an expression must contain
    automaton_kernels.py expressions as automata, which kernels verify in strings of ASCII
    filter_kernels.py    a text of each pattern, filed under a gram of it
    search_kernels.py    one pass over the strings; like_kernels.py: LIKE verified; place_kernels.py: very many of them
    regexes.py           what is left to RE2
    span_kernels.py      distinct strings; what was found as spans of cells

One pass over a string finds the patterns that it may satisfy, however many there are. Building takes about a tenth of a
second for 100,000 patterns, so nothing of it is saved: it is done when a segment's patterns are first needed, or when
segments are merged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.coding.arrange import writable
from dibs.coding.domain import Domains
from dibs.coding.patterns.filter_kernels import build_filter, number_texts
from dibs.coding.patterns.groups import ANY, NO_NEWLINES, ONE, PATTERN_STEPS, REGEX, PatternSpace
from dibs.coding.patterns.like_kernels import TOO_MUCH, YES, States, is_like_at_once, states_of
from dibs.coding.patterns.place_kernels import are_like
from dibs.coding.patterns.reading_kernels import read_patterns
from dibs.coding.patterns.regexes import Regexes, Search, search_for
from dibs.coding.patterns.search_kernels import FREE, search_strings
from dibs.coding.patterns.span_kernels import distinct_strings, spans_of
from dibs.coding.values import Strings
from dibs.jit.groups import allocate
from dibs.jit.pools import Pool
from dibs.tuning import tuned

PATTERNS_ALONE = tuned("patterns_alone", 16, 0, "patterns", "that may hold for a long string, each tried alone")

_KEPT_TESTS = 256  # of LIKEs that are tried alone, for a batch of strings

Piece = tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]  # event, attribute, lo, hi


def pattern_pieces(s: Strings, to: NDArray[np.int32], domains: Domains, matching: bool) -> Iterator[Piece]:
    """The cells of all strings on a facet of patterns. to: the attribute of each name."""
    attribute = to[s.name]
    known = attribute >= 0
    for a in np.flatnonzero(np.bincount(attribute[known])).tolist():
        rows = np.flatnonzero(attribute == a)
        which, offsets, data = distinct_strings(rows, s.offsets, s.data)
        ends, found = patterns_of(domains, a).find(offsets, data)
        event, lo, hi = spans_of(writable(s.event[rows]), which, ends, found, int(domains.cells[a]), matching)
        yield event, np.full(len(event), a, np.int32), lo, hi


def patterns_of(domains: Domains, attribute: int, old: Iterable[PatternSet] = ()) -> PatternSet:
    """The patterns of an attribute, built when they are first asked for. old: sets with some of the same patterns."""
    found: PatternSet | None = domains.patterns.get(attribute)
    if found is None:
        first, last = domains.string_offsets[attribute], domains.string_offsets[attribute + 1]
        starts = domains.string_starts[first : last + 1]
        found = domains.patterns[attribute] = PatternSet(writable(starts), writable(domains.string_bytes), old)
    return found


class PatternSizes(NamedTuple):
    """Of a PatternSpace."""

    patterns: int
    texts: int


def pattern_work(patterns: int, texts: int) -> tuple[Any, ...]:
    """The arrays of a PatternSpace for sets of so many patterns and texts."""
    return tuple(allocate(PatternSpace, PatternSizes(patterns, texts)))


class PatternSet:
    """The patterns data[starts[i]:starts[i + 1]], which are RE2 texts."""

    def __init__(self, starts: NDArray[np.int64], data: NDArray[np.uint8], old: Iterable[PatternSet] = ()):
        self._starts, self._data = starts, data
        self.programs = read_patterns(starts, data)
        self.filter, unknown = build_filter(self.programs)
        groups = [group for s in old for group, _ in s.regexes.groups]
        self.regexes: Regexes = Regexes({self.text(p): p for p in unknown.tolist()}, groups)
        self._pool = Pool()
        self._numbered: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None  # see number_texts

    @classmethod
    def of(cls, patterns: Sequence[bytes], old: Iterable[PatternSet] = ()) -> PatternSet:
        starts = np.zeros(len(patterns) + 1, np.int64)
        np.cumsum([len(p) for p in patterns], out=starts[1:])
        return cls(starts, np.frombuffer(bytearray(b"".join(patterns)), np.uint8), old)

    def text(self, pattern: int) -> bytes:
        return self._data[self._starts[pattern] : self._starts[pattern + 1]].tobytes()

    def find(self, offsets: NDArray[np.int64], data: NDArray[np.uint8]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """(ends, found): string i has the patterns found[ends[i]:ends[i + 1]], in any order."""
        taken = self._pool.take(pattern_work, len(self.programs.kind), len(self.filter.folded))
        PatternSpace(*taken.space).allowed[0] = PATTERN_STEPS.value
        ends, found = search_strings(tuple(self.programs), tuple(self.filter), offsets, data, taken.space)
        self._pool.give(taken)
        if self.regexes or (len(found) and int(found.min()) < 0):
            return self._decide(offsets, data, ends, found)
        return ends, found

    def _decide(
        self, offsets: NDArray[np.int64], data: NDArray[np.uint8], ends: NDArray[np.int64], found: NDArray[np.int32]
    ) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """With what RE2 finds."""
        owner = np.repeat(np.arange(len(ends) - 1), np.diff(ends))
        doubtful = found < 0
        content = data.tobytes()
        strings, numbers = [owner[~doubtful]], [found[~doubtful]]
        starts = offsets.tolist()
        more: list[tuple[int, int]] = []
        owner, doubts = owner[doubtful], ~found[doubtful].astype(np.int64)
        left = np.ones(len(owner), np.bool_)
        for crowded in np.flatnonzero(np.bincount(owner) > PATTERNS_ALONE.value).tolist():
            first, last = np.searchsorted(owner, [crowded, crowded + 1]).tolist()
            size = starts[crowded + 1] - starts[crowded]
            if (last - first) * size >= PATTERN_STEPS.value * FREE:
                text = content[starts[crowded] : starts[crowded + 1]]
                yes, left[first:last] = self._decide_together(text, doubts[first:last])
                more += [(crowded, p) for p in yes]
        tests: dict[int, Search] = {}
        current, text = -1, b""
        for string, p in zip(owner[left].tolist(), doubts[left].tolist()):
            test = tests.get(p)
            if test is None:
                test = self._test(p)
                if self.programs.kind[p] == REGEX or len(tests) < _KEPT_TESTS:
                    tests[p] = test
            if string != current:
                current, text = string, content[starts[string] : starts[string + 1]]
            if test(text):
                more.append((string, p))
        if self.regexes:
            more += self.regexes.find([content[i:k] for i, k in zip(starts, starts[1:])])
        added = np.array(more, np.int64).reshape(-1, 2)
        owner = np.concatenate([*strings, added[:, 0]])
        order = np.argsort(owner, kind="stable")
        ends = np.zeros(len(ends), np.int64)
        np.cumsum(np.bincount(owner, minlength=len(ends) - 1), out=ends[1:])
        return ends, np.concatenate([*numbers, added[:, 1].astype(np.int32)])[order]

    def _decide_together(self, text: bytes, patterns: NDArray[np.int64]) -> tuple[list[int], NDArray[np.bool_]]:
        """Of very many patterns that may hold for a text: those that do, and which are left to be tried alone."""
        kind = self.programs.kind[patterns]
        by_line = (kind == NO_NEWLINES) & (b"\n" in text)
        likes, others = np.flatnonzero((kind != REGEX) & ~by_line), np.flatnonzero((kind == REGEX) | by_line)
        yes, left = [], np.zeros(len(patterns), np.bool_)
        if len(likes):
            result = self._are_like(text, patterns[likes])
            yes += patterns[likes[result == YES]].tolist()
            left[likes] = result == TOO_MUCH
        if len(others):
            made = Regexes({self.text(p): p for p in patterns[others].tolist()})
            yes += [p for _, p in made.find([text])]
        return yes, left

    def _are_like(self, text: bytes, patterns: NDArray[np.int64]) -> NDArray[np.int8]:
        if self._numbered is None:
            self._numbered = number_texts(self.programs)
        taken = self._pool.take(pattern_work, len(self.programs.kind), len(self.filter.folded))
        PatternSpace(*taken.space).allowed[0] = PATTERN_STEPS.value
        data = np.frombuffer(bytearray(text), np.uint8)
        result = are_like(self.programs, self._numbered, patterns, data, taken.space)
        self._pool.give(taken)
        return result

    def _test(self, pattern: int) -> Search:
        """The test for what took a kernel too long, or is no matter of kernels."""
        kind, offsets, content = self.programs.kind[pattern], self.programs.offsets, self.programs.text
        own = self.programs.pieces[offsets[pattern] : offsets[pattern + 1]].tolist()
        if kind == REGEX:
            return search_for(self.text(pattern))
        if kind == NO_NEWLINES:
            return partial(_search_lines, self.text(pattern), states_of(own, content))
        if any(piece == ONE for piece, _, _ in own):
            return partial(_is_like, states_of(own, content))
        return partial(_are_in, [None if piece == ANY else content[a:b].tobytes() for piece, a, b in own])


def _is_like(states: States, text: bytes) -> bool:
    return bool(is_like_at_once(*states, np.frombuffer(bytearray(text), np.uint8)))


def _search_lines(pattern: bytes, states: States, text: bytes) -> object:
    """Of a pattern whose wildcards match no line breaks."""
    return search_for(pattern)(text) if b"\n" in text else _is_like(states, text)


def _are_in(pieces: list[bytes | None], text: bytes) -> bool:
    """Whether the string consists of the pieces, of which None is any text. Python finds bytes in linear time, also
    those that are too long for RE2."""
    start, end, pieces = 0, len(text), list(pieces)
    if pieces and pieces[0] is not None and text.startswith(pieces[0]):
        start = len(pieces.pop(0) or b"")
    if pieces and pieces[-1] is not None and text.endswith(pieces[-1]):
        end -= len(pieces.pop() or b"")
    if not pieces or pieces[0] is not None or pieces[-1] is not None or start > end:
        return not pieces and start == end
    for piece in pieces:
        if piece is not None:
            start = text.find(piece, start, end)
            if start < 0:
                return False
            start += len(piece)
    return True
