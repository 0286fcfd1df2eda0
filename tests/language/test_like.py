"""LIKE patterns: pieces, plain tests and regular expressions against an obvious matcher."""

from __future__ import annotations

import pytest
import re2
from hypothesis import given
from hypothesis import strategies as st

from dibs.language.regex import MAX_MEMORY, LikeError, Wildcard, like_pieces, like_regex, options, plain_test, refusal

ANY, ONE = Wildcard.ANY, Wildcard.ONE


@pytest.mark.parametrize(
    ("pattern", "escape", "pieces"),
    [
        ("", "\\", []),
        ("abc", "\\", ["abc"]),
        ("a%b_c", "\\", ["a", ANY, "b", ONE, "c"]),
        ("%%_%%", "\\", [ANY, ONE, ANY]),
        (r"\%\_\\x", "\\", [r"%_\x"]),
        ("!%!!", "!", ["%!"]),
        ("a%%b", "%", ["a%b"]),
        ("a__", "_", ["a_"]),
    ],
)
def test_pieces(pattern: str, escape: str, pieces: list[str | Wildcard]) -> None:
    assert like_pieces(pattern, escape) == pieces


@pytest.mark.parametrize(
    ("pattern", "escape", "message", "position"),
    [
        ("ab\\", "\\", "ends with its escape", 2),
        ("a\\b", "\\", "stands before 'b'", 1),
        ("a%", "%", "ends with its escape", 1),
        ("a", "", "must be one character", 0),
        ("a", "xy", "must be one character", 0),
    ],
)
def test_patterns_without_meaning(pattern: str, escape: str, message: str, position: int) -> None:
    with pytest.raises(LikeError, match=message) as raised:
        like_pieces(pattern, escape)
    assert raised.value.position == position


@pytest.mark.parametrize(
    ("pattern", "test"),
    [
        ("", ("=", "")),
        ("a", ("=", "a")),
        ("%", ("STARTSWITH", "")),
        ("a%%", ("STARTSWITH", "a")),
        ("%a", ("ENDSWITH", "a")),
        ("%a%", ("CONTAINS", "a")),
        ("a%b", None),
        ("_", None),
        ("%_%", None),
    ],
)
def test_plain_tests(pattern: str, test: tuple[str, str] | None) -> None:
    assert plain_test(pattern) == test


def is_like(text: str, pieces: list[str | Wildcard]) -> bool:
    """The obvious matcher."""
    if not pieces:
        return not text
    first, *rest = pieces
    if first is ANY:
        return any(is_like(text[i:], rest) for i in range(len(text) + 1))
    if first is ONE:
        return text != "" and is_like(text[1:], rest)
    return text.startswith(str(first)) and is_like(text[len(str(first)) :], rest)


TEXTS = st.text("ab%_\\\n.é😀*", max_size=8)


@given(
    st.lists(st.sampled_from(["%", "_", "\\%", "\\_", "\\\\", "a", "b", "\n", "é", "😀", ".", "*"]), max_size=6), TEXTS
)
def test_regex_and_plain_test_say_the_same(parts: list[str], text: str) -> None:
    pattern = "".join(parts)
    expected = is_like(text, like_pieces(pattern))
    assert bool(re2.search(like_regex(pattern), text, options())) == expected
    match plain_test(pattern):
        case "=", str(part):
            assert (text == part) == expected
        case "STARTSWITH", str(part):
            assert text.startswith(part) == expected
        case "ENDSWITH", str(part):
            assert text.endswith(part) == expected
        case "CONTAINS", str(part):
            assert (part in text) == expected


def test_refusals() -> None:
    assert options().max_mem == MAX_MEMORY
    assert refusal("^a+$") is None
    assert refusal("(a+)+$") is None  # harmless here: time is linear
    assert refusal(r"(a)\1") == r"invalid escape sequence: \1"
    assert refusal("x" * 1_000_000) == "it has 1,000,000 characters as a regular expression; 65,536 are allowed"
    assert refusal(r"\p{L}{600}") == "it needs more than 8 MB compiled; 1 MB is allowed"
    assert refusal(r"\p{L}{300}") == "it needs 5.5 MB compiled; 1 MB is allowed"
    assert refusal(r"\p{Lu}\p{L}{2,40}") is None
    assert len(refusal("[" + "x" * 10_000) or "") == 100
