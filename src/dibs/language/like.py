"""LIKE patterns: read once into pieces, from which come the plain tests and the RE2 expressions.

A pattern is a run of characters in which % stands for any text, _ for any one character, and the escape character
takes the special meaning from the %, _ or escape character behind it. As in Spark, the escape character may stand
before nothing else.
"""

from __future__ import annotations

import enum

from dibs.jit.undisturbed import bring


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
