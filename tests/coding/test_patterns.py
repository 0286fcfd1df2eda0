"""All patterns of an attribute: every way to match them gives the same answer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import re2
from hypothesis import example, given
from hypothesis import strategies as st
from pattern_sets import PATTERN_THRESHOLDS, found_in, likes, regexes, set_of, strings

import dibs
from dibs.coding.patterns.groups import CONTAINS, LIKE, NO_NEWLINES, REGEX
from dibs.language.expression import Like, RLike, StringTest
from dibs.language.printer import to_sql
from dibs.language.regex import like_regex
from dibs.reference import is_like, matches
from dibs.tuning import using


@given(st.lists(likes, unique=True, max_size=12), st.lists(strings, max_size=6), PATTERN_THRESHOLDS)
@example(["_"], ["é", "😀", "ab", ""], {})
@example(["%_%_%", "__%", "%_"], ["é", "é😀", "", "\n\n\n"], {})
def test_like_is_what_the_reference_says(patterns: list[str], texts: list[str], sizes: dict[str, int]) -> None:
    with using(sizes):
        found = found_in(set_of([like_regex(p, "!") for p in patterns]), texts)
    assert found == [[i for i, p in enumerate(patterns) if is_like(text, p, "!")] for text in texts]


@given(st.lists(strings.filter(bool), unique=True, max_size=12), st.lists(strings, max_size=6), PATTERN_THRESHOLDS)
def test_contains(patterns: list[str], texts: list[str], sizes: dict[str, int]) -> None:
    with using(sizes):
        patterned = set_of([re2.escape(p) for p in patterns])
        found = found_in(patterned, texts)
    assert patterned.programs.kind.tolist() == [CONTAINS] * len(patterns)
    assert found == [[i for i, p in enumerate(patterns) if p in text] for text in texts]


@given(st.lists(regexes, unique=True, max_size=12), st.lists(strings, max_size=6), PATTERN_THRESHOLDS)
@example(["(?i)kiss", "(?i)k", "(?i)s+1"], ["\u212aiſs", "KIſS", "ſ1", "\u212a", "k"], {})
@example(["(?i)a|b", "a(?i)b|s", "(?i:k)s", "(k|(?i)s)S"], ["B", "ſ", "Ks", "kS", "sS", "aB", "S"], {})
@example(["ab{0}", "(ab){0,2}c", "a??b", "(?:ab|)k", "x*", "a{2}"], ["a", "c", "b", "k", "", "aa"], {})
@example(["[]a]b", "[[:alpha:]]b", "[a[:]b", r"[\]]b"], ["]b", "zb", ":b", "[b"], {})
def test_regular_expressions(patterns: list[str], texts: list[str], sizes: dict[str, int]) -> None:
    with using(sizes):
        found = found_in(set_of(patterns), texts)
    assert found == [[i for i, p in enumerate(patterns) if re2.search(p, text)] for text in texts]


@pytest.mark.parametrize(
    ("pattern", "kind", "needed"),
    [
        ("abc", CONTAINS, ["abc"]),
        (r"(?s)\Aab.*c\z", LIKE, ["ab", "c"]),
        ("^ab", LIKE, ["ab"]),
        ("a.b$", NO_NEWLINES, ["a", "b"]),
        ("", LIKE, []),
        ("(?i)iPhone ?[0-9]+", REGEX, ["iphone"]),
        ("(?i)desk", REGEX, ["desk", "ſ", "\u212a"]),
        ("(?i)é+lan", REGEX, ["lan"]),
        ("colou?r", REGEX, ["colo"]),
        ("(red|green|blue) shirts?", REGEX, [" shirt"]),
        ("iphone|galaxy", REGEX, ["iphone", "galaxy"]),
        ("(?:iphone|galaxy) ?[0-9]", REGEX, ["iphone", "galaxy"]),
        ("iphone|", REGEX, []),
        ("(iphone)?", REGEX, []),
        ("(iphone){2,3}", REGEX, ["iphone"]),
        ("(iphone){0,3}", REGEX, []),
        (r"a\Qb\E", REGEX, []),
        ("(" * 40 + "a+" + ")" * 40, REGEX, []),
        ("|".join(f"w{i}x+" for i in range(65)), REGEX, []),
        ("[ab]+", REGEX, []),
    ],
)
def test_what_a_pattern_needs(pattern: str, kind: int, needed: list[str]) -> None:
    programs = set_of([pattern]).programs
    texts = [programs.text[a:b].tobytes().decode() for piece, a, b in programs.pieces.tolist() if piece == 0]
    assert (programs.kind.tolist(), texts) == ([kind], needed)


def test_every_length_at_every_place() -> None:
    """Texts of 1 to 40 bytes, strings across the blocks of the search, texts that reach over the end of a string."""
    rng = np.random.default_rng(5)
    letters = "".join(rng.choice(list("abc"), 5_000))
    patterns = sorted({letters[i : i + n] for n in range(1, 41) for i in range(0, 4_000, 333)})
    cuts = [0, 1, 2, 3, 1023, 1024, 1024, 1025, 2047, 2049, 4000, 5000]
    texts = [letters[a:b] for a, b in zip(cuts, cuts[1:])]
    assert found_in(set_of(patterns), texts) == [[i for i, p in enumerate(patterns) if p in t] for t in texts]


PREDICATES = st.one_of(
    st.builds(Like, st.just("t"), likes, st.just("!"), st.booleans()),
    st.builds(RLike, st.just("t"), regexes, st.booleans()),
    st.builds(StringTest, st.just("t"), st.just("CONTAINS"), strings, st.booleans()),
)


@given(
    st.lists(PREDICATES, min_size=1, max_size=8),
    st.lists(st.one_of(strings, st.lists(strings, max_size=3), st.none(), st.integers()), max_size=5),
    PATTERN_THRESHOLDS,
)
def test_matcher_agrees_with_the_reference(predicates: list[Any], values: list[Any], sizes: dict[str, int]) -> None:
    """Arrays, repeats, missing values, and NOT, which is true of an array if some element does not match."""
    events = [{"t": value} for value in [*values, *values[:1]]]
    with using(sizes), dibs.Matcher() as m:
        m.add_many((i, to_sql(p)) for i, p in enumerate(predicates))
        found = list(m.match_batch(events))
    assert found == [[i for i, p in enumerate(predicates) if matches(p, event)] for event in events]
