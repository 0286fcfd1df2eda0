"""Patterns within bounds: of time whatever they and the strings are, of memory, and while subscriptions change."""

from __future__ import annotations

import subprocess
import sys
import time

import numpy as np
import pytest
import re2
from hypothesis import given
from hypothesis import strategies as st
from pattern_sets import found_in, set_of

import dibs
from dibs.coding.patterns import PatternSet, regexes
from dibs.coding.patterns.regexes import KEPT_LARGE, KEPT_SMALL, Group, Regexes
from dibs.language.regex import LARGE_PROGRAM, MAX_PROGRAM, compile_regex, like_regex, program_size
from dibs.matcher import Matcher
from dibs.tuning import using

PATTERNS = ["b+", "(?i)É", "[^a]", r"\bab\b", r"\p{L}{2}", "x{0,30}y", "[ab]{2}", r"^\w+$", r"\d"]  # none needs a text


def one_by_one(patterns: list[str], texts: list[str]) -> list[tuple[int, int]]:
    return [(s, i) for s, text in enumerate(texts) for i, p in enumerate(patterns) if re2.search(p, text)]


def numbered(patterns: list[str]) -> dict[bytes, int]:
    return {p.encode(): i for i, p in enumerate(patterns)}


@given(
    st.lists(st.sampled_from(PATTERNS), unique=True),
    st.lists(st.text("abé xyÉ1\n", max_size=12), max_size=3),
    st.sampled_from([1, 20, 1 << 16]),
)
def test_groups_of_any_size_find_the_same(patterns: list[str], texts: list[str], size: int) -> None:
    with using({"instructions_of_a_set": size}):
        found = Regexes(numbered(patterns)).find([text.encode() for text in texts])
        assert sorted(found) == one_by_one(patterns, texts)


@pytest.mark.parametrize("memory", [0, 1 << 14, 1 << 17, 1 << 20, 32 << 20])
def test_a_set_without_memory_loses_no_pattern(memory: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether RE2 refuses to compile the set or gives up while it matches."""
    monkeypatch.setattr(regexes, "SET_MEMORY", memory)
    monkeypatch.setattr(regexes, "AN_INSTRUCTION", 0)
    patterns = [f"({'.' * i}[xz].{{0,20}}[yz])" for i in range(1, 60)]
    texts = ["axby" * 10, "x", "", "éx y", "x" * 50 + "y" * 50, "xy" * 3000, "".join(map(chr, range(100, 20_000)))]
    found = Regexes(numbered(patterns)).find([text.encode() for text in texts])
    assert sorted(found) == one_by_one(patterns, texts)


def test_a_set_that_fails_while_it_matches_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """RE2 then answers nothing at all: not even the pattern that matches every string."""

    class Failing:
        def Match(self, text: bytes) -> None:
            return None

    monkeypatch.setattr(regexes, "_set_of", lambda group: (Failing(), 2))
    assert list(Group([b"[aA]", b"[bB]"]).find([b"xb", b"a"])) == [(1, 0), (0, 1)]


def test_what_is_compiled_is_bounded() -> None:
    large = [rf"\p{{L}}{{{n}}}[xy]" for n in range(5, 40)]
    assert all(program_size(p.encode()) > LARGE_PROGRAM for p in large) and len(large) > KEPT_LARGE
    small = [f"word{n}[xy]" for n in range(KEPT_SMALL + 100)]
    patterns = set_of([*large, *small])
    assert not patterns.regexes.groups and len(patterns.regexes.large) == len(large)
    text = "é" * 20 + "x " + " ".join(f"word{n}y" for n in range(len(small)))
    expected = [i for i, p in enumerate([*large, *small]) if re2.search(p, text)]
    for _ in range(2):
        assert found_in(patterns, [text]) == [expected]
    assert regexes._small.cache_info().currsize <= KEPT_SMALL
    assert regexes._large.cache_info().currsize <= KEPT_LARGE


def test_the_largest_patterns_are_compiled_within_their_budget() -> None:
    """What needs more memory than a small one is given it."""
    pattern = f"ab[xy]{{1000}}({'[cd]x' * 3000})?"
    assert LARGE_PROGRAM < compile_regex(pattern).programsize <= MAX_PROGRAM
    assert found_in(set_of([pattern]), ["ab" + "xy" * 500, "ab"]) == [[0], []]


def test_estimates_of_programs_are_not_too_small() -> None:
    for pattern in [*PATTERNS, "(?i)kelvin", r"\W\D\S", "[[:^alpha:]]", "(?s)" + "." * 1000, "[^é]", "a" * 1000]:
        assert program_size(pattern.encode()) >= 0.8 * compile_regex(pattern).programsize, pattern


def test_contains_of_any_length() -> None:
    text = "long \\. text\0é" * 100_000
    with dibs.Matcher() as m:
        m.add_many([(1, f"LENGTH IS NULL AND a LIKE '%{'x' * 500_000}%'"), (2, "CONTAINS(a, 'xx')")])
        assert m.match({"a": "y" + "x" * 500_001}) == [1, 2]
        assert m.match({"a": "y" + "x" * 499_999}) == [2]
    for steps in (64, 0):
        with using({"pattern_steps": steps}):
            assert found_in(set_of([re2.escape(text)]), ["a" + text + "b", text[1:]]) == [[0], []]


HOSTILE = {
    "many parts": ("%qwertyui" + "%a" * 500 + "%b%", "qwertyui" + "a" * 50_000 + "b", True),
    "a part that is almost there": ("%qwertyui%" + "a" * 5_000 + "%", "qwertyui" + ("a" * 4_999 + "b") * 20, False),
    "the same with characters": ("%qwertyui%" + "a" * 2_000 + "_b%", "qwertyui" + "a" * 50_000, False),
    "a very long part with characters": ("%" + "a" * 20_000 + "_b%", "a" * 1_000_000, False),
    "a long text that is almost there": ("%" + "a" * 20_000 + "%", ("a" * 19_999 + "b") * 10, False),
    "many characters": ("%a" + "_" * 2_999 + "b%c", "ab" * 20_000 + "c", False),
    "many characters beyond ASCII": ("%é" + "_" * 2_999 + "ü%c", "éü" * 20_000 + "c", False),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_patterns_take_linear_time(name: str) -> None:
    """Tried at every place, some of these would take 10 ** 9 steps."""
    like, text, expected = HOSTILE[name]
    patterns = set_of([re2.escape(like[1:-1]) if like[1:-1].isalnum() else like_regex(like)])
    found_in(patterns, [""])
    start = time.process_time()
    assert found_in(patterns, [text]) == [[0] if expected else []]
    assert time.process_time() - start < 1, "a quadratic search takes longer"


def words(first: int, count: int) -> list[str]:
    return [f"word{first + i:06}" for i in range(count)]


def test_merging_hands_patterns_on() -> None:
    """A change beside many patterns: those of the merged segment are ready when it comes, and RE2's sets stay."""
    with Matcher() as m:
        m.add_many((w, f"CONTAINS(t, '{w}')") for w in words(0, 20_000))
        m.add_many((f"letters {i}", f"t RLIKE '^[a-z]{{{i}}}[!]$'") for i in range(1, 1_000))
        assert m.match({"t": "... word000777 word019999"}) == ["word000777", "word019999"]
        before = groups_of(m)
        assert len(before) >= 1
        m.add_many((w, f"CONTAINS(t, '{w}')") for w in words(20_000, 300))
        m.remove("word000777")
        m.compact()
        assert all(x.segment.domains.patterns for x in m._layers.state.layers)
        assert groups_of(m) == before
        assert m.match({"t": "... word000777 word020001 word019999"}) == ["word019999", "word020001"]


def groups_of(m: Matcher) -> set[Group]:
    sets: list[PatternSet] = [s for x in m._layers.state.layers for s in x.segment.domains.patterns.values()]
    return {group for s in sets for group, _ in s.regexes.groups}


def test_100_000_patterns_are_built_at_once() -> None:
    rng = np.random.default_rng(3)
    letters = rng.integers(ord("a"), ord("z") + 1, (100_000, 30), np.uint8)
    patterns = sorted(row.tobytes() for row in letters)
    PatternSet.of(patterns[:10])
    start = time.process_time()
    found = PatternSet.of(patterns)
    assert time.process_time() - start < 2
    text = "..." + patterns[4321].decode() + "." + patterns[17].decode() + patterns[99_999].decode()
    assert found_in(found, [text, text[1:], text[-30:]]) == [[17, 4321, 99_999], [17, 4321, 99_999], [99_999]]


CHILD = r"""
import dibs
from dibs.explain import explain
for pattern in ["(a", "(x)\\1", "x{5000}", "\\p{L}{300}", "\\p{L}{2000}", "(?:\\p{L}{30}){30}", "[" * 50, "*"]:
    assert dibs.validate(f"a RLIKE r'{pattern}'"), pattern
assert dibs.validate("a LIKE '" + "_" * 2_000_000 + "'")
m = dibs.Matcher()
m.add_many((n, rf"a RLIKE r'\p{{L}}{{{n}}}' OR a LIKE '%{'_' * n}x%{n}%'") for n in range(1, 20))
m.add_many((-n, rf"a RLIKE r'xé?\p{{L}}{{{n}}}y'") for n in range(1, 20))
m.match({"a": "xé" * 20 + "y"})
m.explain(10, {"a": "é" * 20})
print("done")
"""


def test_nothing_is_written_to_stderr() -> None:
    """RE2 logs what it refuses, and what runs out of memory, unless it is told not to."""
    done = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == ("done", "")
