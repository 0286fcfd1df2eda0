"""The tokens of a text (language.scanner finds them):

    name     a word, or words and `quoted names` joined by dots: one attribute, as events spell it
    string   'text' or "text" or r'text', with escapes read and neighbouring strings joined, as Spark does
    number   digits with fraction, exponent and suffix, as written
    AND OR NOT IN BETWEEN LIKE RLIKE IS NULL TRUE FALSE ESCAPE    the words of the grammar (REGEXP is RLIKE)
    ( ) , + - ! = <> < <= > >=                                    its signs (== is =, != is <>)
    reserved a word that SQL gives a meaning which this language does not have
    other    any other character or sign
    end      behind the last character

Only the words named here are special: every other word is a name, whatever SQL uses it for elsewhere. After a dot
every word is a name.
"""

from __future__ import annotations

from array import array
from typing import NamedTuple

GRAMMAR_WORDS = {
    **{w: w for w in ("AND", "OR", "NOT", "IN", "BETWEEN", "LIKE", "RLIKE", "IS", "NULL", "TRUE", "FALSE", "ESCAPE")},
    "REGEXP": "RLIKE",
}
RESERVED_WORDS = frozenset(
    [
        *("SELECT", "WHERE", "CASE", "EXISTS", "FORALL", "INTERVAL", "ILIKE", "XOR", "DIV", "CURRENT_DATE"),
        *("CURRENT_TIME", "CURRENT_TIMESTAMP", "CURRENT_USER", "SESSION_USER", "LOCALTIMESTAMP"),
    ]
)
# A bare word that is none of these is an attribute wherever it stands, unless a parenthesis follows (a function), or
# it is DATE or TIMESTAMP and a string follows.
KEYWORDS = frozenset(GRAMMAR_WORDS) | RESERVED_WORDS


class Token(NamedTuple):
    kind: str
    value: str  # name: the attribute; string: what it says; otherwise as written
    start: int
    end: int
    word: str = ""  # a bare word, in upper case


Said = tuple[str, str, str]  # kind, value and word of a token, wherever it stands


class Tokens:
    """The tokens of a text, the last one of kind `end`. Kept in columns and made when they are asked for: a text may
    have a million of them, and an object each would take six times the memory."""

    __slots__ = ("_ends", "_said", "_starts")

    def __init__(self) -> None:
        self._said: list[Said] = []
        self._starts, self._ends = array("i"), array("i")

    def append(self, said: Said, start: int, end: int) -> None:
        self._said.append(said)
        self._starts.append(start)
        self._ends.append(end)

    def __len__(self) -> int:
        return len(self._said)

    def __getitem__(self, i: int) -> Token:
        kind, value, word = self._said[i]
        return Token(kind, value, self._starts[i], self._ends[i], word)

    def kind(self, i: int) -> str:
        return self._said[i][0]

    def kinds(self, first: int, end: int) -> list[str]:
        return [said[0] for said in self._said[first:end]]


def quote_name(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def show_token(token: Token, width: int = 40) -> str:
    if token.kind == "string":
        return "a string"
    written = token.value
    return written if len(written) <= width else written[: width - 1] + "…"
