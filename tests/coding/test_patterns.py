"""Sets of patterns: every way to match them gives the same answer, within bounds of memory."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import re2
from hypothesis import given
from hypothesis import strategies as st

import dibs
from dibs.coding import patterns as module
from dibs.coding.patterns import Group, PatternSet
from dibs.language.regex import LARGE_PROGRAM, compiled, program_size
from dibs.thresholds import using

PATTERNS = ["a", "ab", "b+", "^a", "a$", "(?i)É", "é", ".", "..", "[^a]", r"\bab\b", r"\p{L}{2}", "x{0,30}y", "(?s)a.b"]


def one_by_one(patterns: list[str], text: str) -> list[int]:
    return [i for i, p in enumerate(patterns) if re2.search(p, text)]


@given(
    st.lists(st.sampled_from(PATTERNS), unique=True),
    st.text("abé xyÉ\n", max_size=12),
    st.sampled_from([1, 20, 1 << 16]),
)
def test_groups_of_any_size_find_the_same(patterns: list[str], text: str, size: int) -> None:
    with using({"instructions_of_a_set": size}):
        found = PatternSet([p.encode() for p in patterns]).find(text.encode())
    assert found == one_by_one(patterns, text)


@pytest.mark.parametrize("memory", [0, 1 << 14, 1 << 17, 1 << 20, 32 << 20])
def test_a_set_without_memory_loses_no_pattern(memory: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether RE2 refuses to compile the set or gives up while it matches."""
    monkeypatch.setattr(module, "SET_MEMORY", memory)
    monkeypatch.setattr(module, "AN_INSTRUCTION", 0)
    patterns = [f"({'.' * i}x.{{0,20}}y)" for i in range(1, 60)]
    texts = ["axby" * 10, "x", "", "éx y", "x" * 50 + "y" * 50, "xy" * 3000, "".join(map(chr, range(100, 20_000)))]
    found = PatternSet([p.encode() for p in patterns])
    for text in texts:
        assert found.find(text.encode()) == one_by_one(patterns, text)


def test_a_set_that_fails_while_it_matches_is_noticed() -> None:
    """RE2 then answers nothing at all: not even the pattern that matches every string."""
    group = Group([b"a", b"b"])
    group.find(b"")

    class Failing:
        def Match(self, text: bytes) -> None:
            return None

    group._set = Failing()  # type: ignore[assignment]
    assert group.find(b"xb") == [1]


def test_large_patterns_are_not_kept_for_ever() -> None:
    patterns = [rf"\p{{L}}{{{n}}}x" for n in range(5, 50, 9)]
    assert all(program_size(p.encode()) > LARGE_PROGRAM for p in patterns)
    found = PatternSet([p.encode() for p in patterns])
    assert not found.groups and len(found.large) == len(patterns)
    assert found.find(("é" * 20 + "x").encode()) == one_by_one(patterns, "é" * 20 + "x")
    assert module._large.cache_info().maxsize == 64


def test_estimates_of_programs_are_not_too_small() -> None:
    for pattern in [*PATTERNS, "(?i)kelvin", r"\W\D\S", "[[:^alpha:]]", "(?s)" + "." * 1000, "[^é]", "a" * 1000]:
        assert program_size(pattern.encode()) >= 0.8 * compiled(pattern).programsize, pattern


def test_contains_of_any_length() -> None:
    text = "long \\. text\0é" * 100_000
    with dibs.Matcher() as m:
        m.add_many([(1, f"LENGTH IS NULL AND a LIKE '%{'x' * 500_000}%'"), (2, "CONTAINS(a, 'xx')")])
        assert m.match({"a": "y" + "x" * 500_001}) == [1, 2]
        assert m.match({"a": "y" + "x" * 499_999}) == [2]
    found = PatternSet([re2.escape(text).encode()])
    assert found.find(("a" + text + "b").encode()) == [0]
    assert found.find(text[1:].encode()) == []


def words(first: int, count: int) -> list[str]:
    return [f"word{first + i:06}" for i in range(count)]


def test_merging_hands_compiled_patterns_on() -> None:
    """A change beside many patterns: after the merge only the new ones are compiled."""
    with dibs.Matcher() as m:
        m.add_many((w, f"CONTAINS(t, '{w}')") for w in words(0, 20_000))
        assert m.match({"t": "... word000777 word019999"}) == ["word000777", "word019999"]
        before = compiled_groups(m)
        assert len(before) > 3
        m.add_many((w, f"CONTAINS(t, '{w}')") for w in words(20_000, 300))
        m.remove("word000777")
        m.compact()
        assert m.match({"t": "... word000777 word020001 word019999"}) == ["word019999", "word020001"]
        after = compiled_groups(m)
        assert len(after - before) <= 2
        assert len(after & before) >= len(before) - 1


def compiled_groups(m: dibs.Matcher) -> set[Group]:
    sets = [s for x in m.snapshot().layers for s in x.segment.domains.patterns.values()]
    return {group for s in sets for group, _ in s.groups if group._set is not None}


def test_no_group_is_too_large_to_compile() -> None:
    """100,000 patterns of thirty letters did not fit into one set, and each was then tried by itself."""
    rng = np.random.default_rng(3)
    letters = rng.integers(ord("a"), ord("z") + 1, (5_000, 60), np.uint8)
    patterns = [row.tobytes() for row in letters]
    found = PatternSet(patterns)
    assert found.find(b"..." + patterns[4321] + b"." + patterns[17]) == [17, 4321]
    assert all(group._always >= 0 and group._singles is None for group, _ in found.groups)


CHILD = r"""
import dibs
from dibs.explain import explain
for pattern in ["(a", "(x)\\1", "x{5000}", "\\p{L}{300}", "\\p{L}{2000}", "(?:\\p{L}{30}){30}", "[" * 50, "*"]:
    assert dibs.validate(f"a RLIKE r'{pattern}'"), pattern
assert dibs.validate("a LIKE '" + "_" * 2_000_000 + "'")
m = dibs.Matcher()
m.add_many((n, rf"a RLIKE r'\p{{L}}{{{n}}}' OR a LIKE '%{'_' * n}x%{n}%'") for n in range(1, 20))
m.match({"a": "é" * 20})
m.explain(10, {"a": "é" * 20})
print("done")
"""


def test_nothing_is_written_to_stderr() -> None:
    """RE2 logs what it refuses, and what runs out of memory, unless it is told not to."""
    done = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == ("done", "")
