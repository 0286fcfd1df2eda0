"""Patterns: what LIKE means, which regular expressions the language takes, and both as RE2 expressions.

A pattern of LIKE is a run of characters in which % stands for any text, _ for any one character, and the escape
character takes the special meaning from the %, _ or escape character behind it. As in Spark, the escape character may
stand before nothing else.

A regular expression must be one that RE2 can run in linear time, within a budget of memory: a short one can be a large
program: \\p{L} is 1,200 instructions, and \\p{L}{300} has it 300 times.
"""

from __future__ import annotations

import enum
import re
from functools import lru_cache
from typing import TYPE_CHECKING

from dibs.jit.undisturbed import bring

if TYPE_CHECKING:
    import re2  # most programs do without: it is imported where it is used


# ---- LIKE ----


class Wildcard(enum.Enum):
    ANY = "%"  # any text, also none
    ONE = "_"  # one character (a code point)


class LikeError(ValueError):
    """A pattern, or an escape, that means nothing. `position` is its place in the pattern."""

    def __init__(self, message: str, position: int = 0):
        super().__init__(message)
        self.position = position


def like_pieces(pattern: str, escape: str = "\\") -> list[str | Wildcard]:
    """The pattern as texts and wildcards: no text is empty, no two texts are neighbours, nor are two ANY."""
    if len(escape) != 1:
        raise LikeError(f"the escape of LIKE must be one character, not {escape!r}")
    pieces: list[str | Wildcard] = []
    text: list[str] = []
    characters = iter(enumerate(pattern))
    for position, character in characters:
        if character == escape:
            _, escaped = next(characters, (0, ""))
            if not escaped:
                raise LikeError(f"the pattern ends with its escape character {escape}", position)
            if escaped not in ("%", "_", escape):
                raise LikeError(f"the escape character {escape} stands before {escaped!r}", position)
            text.append(escaped)
        elif character in "%_":
            if text:
                pieces.append("".join(text))
                text.clear()
            wildcard = Wildcard(character)
            if wildcard is Wildcard.ONE or not pieces or pieces[-1] is not Wildcard.ANY:
                pieces.append(wildcard)
        else:
            text.append(character)
    if text:
        pieces.append("".join(text))
    return pieces


def plain_test(pattern: str, escape: str = "\\") -> tuple[str, str] | None:
    """("=" | "STARTSWITH" | "ENDSWITH" | "CONTAINS", text) where one of these says the same as the pattern."""
    match like_pieces(pattern, escape):
        case []:
            return "=", ""
        case [str(text)]:
            return "=", text
        case [Wildcard.ANY]:
            return "STARTSWITH", ""
        case [str(text), Wildcard.ANY]:
            return "STARTSWITH", text
        case [Wildcard.ANY, str(text)]:
            return "ENDSWITH", text
        case [Wildcard.ANY, str(text), Wildcard.ANY]:
            return "CONTAINS", text
    return None


def like_regex(pattern: str, escape: str = "\\") -> str:
    """The RE2 expression that finds something in a string exactly when the string is LIKE the pattern.

    An ANY at either end leaves that end open instead of asking RE2 to walk over it.
    """
    re2 = bring("re2")  # most expressions do without
    pieces = like_pieces(pattern, escape)
    open_start = pieces[:1] == [Wildcard.ANY]
    open_end = pieces[-1:] == [Wildcard.ANY]
    inner = pieces[open_start : len(pieces) - open_end]
    body = "".join(_REGEX[p] if isinstance(p, Wildcard) else re2.escape(p) for p in inner)
    return "(?s)" + ("" if open_start else r"\A") + body + ("" if open_end else r"\z")


_REGEX = {Wildcard.ANY: ".*", Wildcard.ONE: "."}


# ---- regular expressions ----

MAX_MEMORY = 8 << 20  # of one expression while it is compiled and run, in bytes; RE2 refuses what needs more
INSTRUCTION = 16  # bytes
MAX_PROGRAM = (1 << 20) // INSTRUCTION  # instructions of one expression
LARGE_PROGRAM = 4096  # instructions: one that is not kept compiled for ever
_MAY_BE_LARGE = re.compile(rb"\{|\\[pP]")
_CLASS = re.compile(rb"\\[a-zA-Z]|(?<!\\)[.\[]")  # of characters: about 16 instructions


def options(memory: int = MAX_MEMORY) -> re2.Options:
    result = bring("re2").Options()
    result.max_mem = memory
    result.log_errors = False  # else RE2 writes to stderr
    return result


def compile_regex(pattern: str) -> re2._Regexp:
    """The expression; re2.error for one that RE2 does not take. re2 keeps the last 128 of them: not the large ones."""
    re2 = bring("re2")
    try:
        found = re2.compile(pattern, options())
    except re2.error:
        re2.purge()
        raise
    if found.programsize > LARGE_PROGRAM:
        re2.purge()
    return found


@lru_cache(maxsize=1 << 14)
def program_size(pattern: bytes) -> int:
    """The instructions of an expression that RE2 takes; an estimate for one that cannot be large."""
    if _MAY_BE_LARGE.search(pattern):
        return compile_regex(pattern.decode()).programsize
    size = 4 + len(pattern) + 16 * len(_CLASS.findall(pattern))
    return 4 * size if b"(?i" in pattern else size


def refusal(pattern: str) -> str | None:
    """Why the pattern is not taken; None when it is."""
    re2 = bring("re2")
    if len(pattern) > MAX_PROGRAM:  # RE2 may write to stderr about a walk that takes too long
        return f"it has {len(pattern):,} characters as a regular expression; {MAX_PROGRAM:,} are allowed"
    try:
        size = compile_regex(pattern).programsize
    except re2.error as error:
        reason = error.args[0] if error.args else "not a regular expression"
        said = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        if "too large" in said:
            return _needs(f"more than {MAX_MEMORY / 2**20:.0f}")
        return said if len(said) <= 100 else said[:99] + "…"
    return _needs(f"{size * INSTRUCTION / 2**20:.1f}") if size > MAX_PROGRAM else None


def _needs(megabytes: str) -> str:
    return f"it needs {megabytes} MB compiled; 1 MB is allowed"
