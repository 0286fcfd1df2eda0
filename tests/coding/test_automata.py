"""Expressions as automata: what a kernel says about a string of ASCII is what RE2 says."""

from __future__ import annotations

from random import Random

import numba
import numpy as np
import pytest
import re2

from dibs.coding.patterns import PatternSet
from dibs.coding.patterns.automaton_kernels import POSITIONS, accepts, read_automata
from dibs.coding.patterns.like_kernels import TOO_MUCH
from dibs.jit.scanning import PADDING
from dibs.language.regex import options
from dibs.matcher import Matcher
from guards import guarded

CHARACTERS = tuple("abcskSK1/.^$-_]}éſ ")
ESCAPES = (r"\d", r"\w", r"\s", r"\W", r"\.", r"\x41", r"\A", r"\z", r"\n", r"\t", r"\-")
CLASSES = (
    "[ab]",
    "[^a]",
    "[a-c]",
    r"[^\d]",
    "[é-ü]",
    "[a-é]",
    "[]a]",
    r"[a\]]",
    "[a-]",
    "[-a]",
    r"[\w-]",
    "[S-b]",
    r"[^\W]",
)
ATOMS = [*CHARACTERS, *ESCAPES, *CLASSES]
LETTERS = "aabbcckKsS1/._ \n-]}A\tZ"


@numba.njit
def run(automata, data, end):
    return accepts(automata, 0, data, 0, end)


def automaton(pattern: str) -> np.ndarray | None:
    text = pattern.encode()
    data = np.frombuffer(bytearray(text), np.uint8)
    row, automata = read_automata(np.array([0, len(text)]), data, np.array([0]), 1)
    return automata if row[0] == 0 else None


def answer(automata: np.ndarray, string: str) -> int:
    text = string.encode()
    return int(run(automata, np.frombuffer(bytearray(text + bytes(PADDING)), np.uint8), len(text)))


def expression(random: Random, depth: int) -> str:
    kind = random.random()
    if depth == 0 or kind < 0.45:
        return random.choice(ATOMS)
    if kind < 0.7:
        return "".join(expression(random, depth - 1) for _ in range(random.randint(0, 4)))
    if kind < 0.85:
        branches = "|".join(expression(random, depth - 1) for _ in range(random.randint(1, 3)))
        begin, times = (
            random.choice(["(", "(?:", "(?i:", "(?s:", "(?-i:", "(?P<n>"]),
            random.choice(["", "", "*", "+?"]),
        )
        return f"{begin}{branches}){times}"
    return random.choice(ATOMS) + random.choice(["*", "+", "?", "{2}", "{1,3}", "{0,2}", "{2,}", "??", "+?", "{0}"])


@pytest.mark.parametrize("seed", range(3))
def test_random_expressions(seed: int) -> None:
    random = Random(seed)
    read = matches = doubts = 0
    with guarded():
        while read < 250:
            pattern = random.choice(["", "", "(?i)", "(?s)", "(?is)"]) + expression(random, 3)
            try:
                judge = re2.compile(pattern, options())
            except re2.error:
                continue
            automata = automaton(pattern)
            if automata is None:
                continue
            read += 1
            for _ in range(12):
                letters = LETTERS if random.random() < 0.7 else LETTERS + "éſ\u212a"
                string = "".join(random.choice(letters) for _ in range(random.randint(0, 9)))
                said, right = answer(automata, string), judge.search(string) is not None
                if said == TOO_MUCH:
                    doubts += 1
                    assert not string.isascii()
                else:
                    matches += right
                    assert bool(said) == right, (pattern, string)
    assert matches > 500 and doubts > 50


@pytest.mark.parametrize(
    "pattern",
    [r"^^a", r"a$$", r"$^", r"(^|a)*b", r"(ab){2}", r"\bab", r"(?m)^a", r"\pL", r"[[:alpha:]]", r"(?i)é", r"(?i)[é]"]
    + [r"\Qa.b\E", r"\C", f"a{{{POSITIONS + 1}}}", "a" * (POSITIONS + 1), "(" * 40 + "a" + ")" * 40],
)  # fmt: skip
def test_what_is_left_to_re2(pattern: str) -> None:
    re2.compile(pattern, options())
    assert automaton(pattern) is None


@pytest.mark.parametrize("size", [POSITIONS - 1, POSITIONS])
def test_as_many_positions_as_there_can_be(size: int) -> None:
    for pattern in ("a" * size, f"a{{{size}}}", "[ab]" * size):
        with guarded():
            automata = automaton(pattern)
            assert automata is not None
            assert answer(automata, "a" * size) and not answer(automata, "a" * (size - 1))


def test_a_set_of_them() -> None:
    """With texts that all of them share, which lead to nothing, beside those that tell them apart."""
    patterns = [rf"(?i)/[a-z]+{i}/.*\.(php|asp)x?$".encode() for i in range(500)]
    pieces = PatternSet.of(patterns)
    assert (pieces.programs.automaton >= 0).all() and not pieces.regexes
    first, last = pieces.programs.offsets[[123, 124]]
    assert [bytes(pieces.programs.text[a:b]) for _, a, b in pieces.programs.pieces[first:last]] == [b"123/"]
    strings = [b"http://x.de/ABC123/x.PHP", b"http://x.de/abc123/x.html", "http://x.de/ä/k77/ü.asp".encode()]
    offsets = np.cumsum([0, *map(len, strings)])
    ends, found = pieces.find(offsets, np.frombuffer(bytearray(b"".join(strings)), np.uint8))
    assert [found[a:b].tolist() for a, b in zip(ends, ends[1:])] == [[123], [], [77]]


def test_without_a_text() -> None:
    """Few are tried in every string, many are left to one pass of RE2."""
    for count, left in ((3, False), (40, True)):
        patterns = [rf"[a-c]{{{i + 1}}}[0-9]" for i in range(count)]
        assert bool(PatternSet.of([p.encode() for p in patterns]).regexes) == left
        with Matcher(threads=1) as matcher:
            matcher.add_many((i, f"t RLIKE '{p}'") for i, p in enumerate(patterns))
            for _ in range(3):
                assert matcher.match({"t": "xab7"}) == [0, 1]
                assert matcher.match({"t": "éab7"}) == [0, 1]
                assert matcher.match({"t": "éab"}) == []
