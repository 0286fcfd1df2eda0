"""What tests of patterns share: a set's answers as lists, and random patterns and strings that often meet."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from dibs.coding.patterns import PatternSet
from dibs.language.regex import refusal

PATTERN_THRESHOLDS = st.fixed_dictionaries(
    {
        "pattern_steps": st.sampled_from([64, 0, 1]),
        "patterns_alone": st.sampled_from([16, 0, 2]),
        "instructions_of_a_set": st.sampled_from([1 << 16, 1, 20]),
    }
)
LETTERS = ["a", "b", "ab", "abba", "k", "s", "S", "é", "É", "ſ", "\u212a", "😀", "1", "-", ".", "%", "_", "\n", "\0"]
ELEMENTS = [
    *["a", "b", "ab", "abba", "aab", "k", "s", "K", "S", "é", "É", "1", "-", r"\.", r"\-", r"\_", r"\n", "\0", "😀"],
    *[".", "[ab]", "[^a]", "[]a]", "[[:alpha:]]", "[[:^digit:]b]", r"[\]a]", r"\d", r"\w", r"\b", r"\pL", "[a[:]"],
    *["^", "$", r"\A", r"\z", "(?i)", "(?-i)", "(?s)", "(?m)", "(?i:ab)", "(?is-m:kS)", r"\x61", "{", "|"],
    *[r"\x00", r"\p{Lu}", r"\Qa.b\E", r"\C", "]"],
]  # fmt: skip
TIMES = [*[""] * 8, "*", "+", "?", "{2}", "{0,1}", "{1,2}", "{0}", "{,2}", "*?", "+?", "??", "{2}{0}"]
GROUPS = ["(", "(?:", "(?P<name>", "(?i:", "(?s:", "(?-i:"]

strings = st.lists(st.sampled_from(LETTERS), max_size=14).map("".join)
likes = st.lists(st.sampled_from(["a", "b", "ab", "é", "😀", "\n", "%", "_", "!%", "!_", "!!", "."]), max_size=9).map(
    "".join
)


def _joined(parts: list[tuple[str, str]]) -> str:
    return "".join(element + times for element, times in parts)


_sequences = st.lists(st.tuples(st.sampled_from(ELEMENTS), st.sampled_from(TIMES)), max_size=5).map(_joined)
_nested = st.recursive(
    _sequences,
    lambda inner: st.lists(
        st.tuples(
            st.one_of(inner, st.builds(lambda start, body: f"{start}{body})", st.sampled_from(GROUPS), inner)),
            st.sampled_from(TIMES),
        ),
        max_size=4,
    ).map(_joined),
    max_leaves=6,
)
regexes = _nested.filter(lambda pattern: refusal(pattern) is None)


def found_in(patterns: PatternSet, texts: list[str]) -> list[list[int]]:
    """The patterns of each string, sorted."""
    encoded = [text.encode() for text in texts]
    offsets = np.zeros(len(texts) + 1, np.int64)
    np.cumsum([len(text) for text in encoded], out=offsets[1:])
    ends, found = patterns.find(offsets, np.frombuffer(bytearray(b"".join(encoded)), np.uint8))
    return [sorted(found[first:last].tolist()) for first, last in zip(ends, ends[1:])]


def set_of(patterns: list[str]) -> PatternSet:
    return PatternSet.of([p.encode() for p in patterns])
