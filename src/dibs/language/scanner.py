"""From characters to tokens, by sqlglot's Spark tokenizer, whose pieces are put together here.

Imported when a text is read: sqlglot takes a tenth of a second, and a process that opens what others have compiled
reads none.
"""

from __future__ import annotations

import re
import threading
from typing import ClassVar

from sqlglot import Token as RawToken
from sqlglot import TokenType
from sqlglot.dialects.spark import Spark
from sqlglot.errors import TokenError

from dibs.language.literals import NUMBER, LiteralError, unescape
from dibs.language.problems import Problems
from dibs.language.tokens import GRAMMAR_WORDS, RESERVED_WORDS, Said, Token, Tokens, quote_name

_KINDS = {**GRAMMAR_WORDS, **dict.fromkeys(RESERVED_WORDS, "reserved")}
_SIGN_KINDS = {**{c: c for c in "(),-+!=<>"}, "==": "=", "!=": "<>", "<>": "<>", "<=": "<=", ">=": ">="}
_SIGNS = {sign: (kind, kind, "") for sign, kind in _SIGN_KINDS.items()}

# Looked up once: an attribute of an enum is slow to reach.
_VAR, _NUMBER, _DOT, _IDENTIFIER = TokenType.VAR, TokenType.NUMBER, TokenType.DOT, TokenType.IDENTIFIER
_STRING, _RAW_STRING = TokenType.STRING, TokenType.RAW_STRING


class _SparkTokenizer(Spark.Tokenizer):
    """Spark's, with the keywords left out: what a word means is decided here, and a word is never two."""

    KEYWORDS: ClassVar[dict[str, TokenType]] = {
        "==": TokenType.EQ,
        "!=": TokenType.NEQ,
        "<>": TokenType.NEQ,
        "<=": TokenType.LTE,
        ">=": TokenType.GTE,
        "<=>": TokenType.NULLSAFE_EQ,
        "||": TokenType.DPIPE,
        "&&": TokenType.DAMP,
        "::": TokenType.DCOLON,
        "->": TokenType.ARROW,
    }
    COMMANDS: ClassVar[set[TokenType]] = set()  # these would swallow the rest of the text
    HEX_STRINGS: ClassVar[list[str | tuple[str, str]]] = []


class _Local(threading.local):
    """A tokenizer keeps its place in itself, so each thread has its own."""

    def __init__(self) -> None:
        self.tokenizer = _SparkTokenizer(dialect="spark")


_local = _Local()


def scan(text: str, problems: Problems) -> Tokens:
    """The tokens of the text; none if it cannot be cut into any. Bad ones are reported and stand in as good ones."""
    try:
        raw = _local.tokenizer.tokenize(text)
    except TokenError:
        _report_unclosed(text, problems)
        return Tokens()
    if "{#" in text:
        _report_template_comments(text, raw, problems)
    tokens = _Scanner(text, raw, problems).tokens()
    if len(raw) > 10_000:
        _local.tokenizer.tokenize("")  # it holds on to what it read last
    return tokens


class _Scanner:
    def __init__(self, text: str, raw: list[RawToken], problems: Problems):
        self.text = text
        self.raw = raw
        self.problems = problems
        self.at = 0  # in raw

    def tokens(self) -> Tokens:
        tokens = Tokens()
        append = tokens.append
        raw, text, size = self.raw, self.text, len(self.raw)
        known: dict[str, Said] = {}  # words and numbers that were met: texts repeat themselves
        while self.at < size:
            piece = raw[self.at]
            kind = piece.token_type
            start, end = piece.start, piece.end + 1
            if (sign := _SIGNS.get(text[start:end])) is not None:
                append(sign, start, end)
                self.at += 1
            elif kind is _VAR or kind is _NUMBER:
                said = known.get(piece.text) or self.plain(piece)
                if (
                    said is None
                    or (said[0] == "name" and self.follows(_DOT))
                    or (kind is _NUMBER and self.touches(_VAR))
                ):
                    self.add(tokens, self.word(start, end))
                else:
                    known[said[1]] = said
                    append(said, start, end)
                    self.at += 1
            elif kind is _STRING or kind is _RAW_STRING:
                self.add(tokens, self.string())
            elif kind is _IDENTIFIER:
                self.add(tokens, self.name())
            elif kind is _DOT and self.touches(_NUMBER, _VAR):
                self.add(tokens, self.word(start, raw[self.at + 1].end + 1))
            else:
                append(("other", text[start:end], ""), start, end)
                self.at += 1
        append(("end", "", ""), len(text), len(text))
        return tokens

    @staticmethod
    def add(tokens: Tokens, token: Token) -> None:
        tokens.append((token.kind, token.value, token.word), token.start, token.end)

    @staticmethod
    def plain(piece: RawToken) -> Said | None:
        """What a word or number says that is as it should be."""
        written = piece.text
        if piece.token_type is _NUMBER:
            return ("number", written, "") if NUMBER.fullmatch(written) else None
        word = written.upper()
        kind = _KINDS.get(word) or ("name" if written.isidentifier() else None)
        return None if kind is None else (kind, written, word)

    def follows(self, *kinds: TokenType) -> bool:
        """Whether the next piece is of these kinds."""
        return self.at + 1 < len(self.raw) and self.raw[self.at + 1].token_type in kinds

    def touches(self, *kinds: TokenType) -> bool:
        """Whether the next piece is of these kinds, with nothing in between."""
        return self.follows(*kinds) and self.raw[self.at + 1].start == self.raw[self.at].end + 1

    def word(self, start: int, end: int) -> Token:
        """A name or a number: the tokenizer takes 10L and 1_000 for words, and .5 for two pieces."""
        text = self.text
        if text[start:end].isidentifier():
            return self.name()
        if text[start] == ".":
            self.at += 1
        while self.touches(_VAR):  # 0x1F comes as 0 and x1F
            self.at += 1
            end = self.raw[self.at].end + 1
        self.at += 1
        written = text[start:end]
        if NUMBER.fullmatch(written):
            return Token("number", written, start, end)
        kind = "name"
        if written[0].isdigit():
            kind = "number"
            message = f"{written} is neither a number nor a name"
            advice = "a name that begins with a digit needs backticks; between a number and a word there is a space"
        elif written[0] == ".":
            message, advice = "a name cannot begin with a dot", "write the whole path, as in item.price"
        else:
            odd = next((c for c in written if not ("a" + c).isidentifier()), written[0])
            message = f"{written} is not a name: it holds {odd!r} (U+{ord(odd):04X})"
            advice = f"put it in backticks: {quote_name(written)}"
        self.problems.add(message, advice, start, end)
        return Token(kind, "0" if kind == "number" else written, start, end)

    def name(self) -> Token:
        """A path: words and quoted names with dots between them."""
        first = self.raw[self.at]
        parts = [self.part(first)]
        while self.follows(_DOT):
            self.at += 1
            if self.follows(_VAR, _IDENTIFIER, _NUMBER):
                self.at += 1
                parts.append(self.part(self.raw[self.at]))
            else:
                end = self.raw[self.at].end + 1
                advice = "write the rest of the path, as in item.price, or leave out the dot"
                self.problems.add("a name is expected after the dot", advice, end - 1, end)
        start, end = first.start, self.raw[self.at].end + 1
        self.at += 1
        word = first.text.upper() if len(parts) == 1 and first.token_type == _VAR else ""
        return Token("name", ".".join(parts), start, end, word)

    def part(self, piece: RawToken) -> str:
        start, end = piece.start, piece.end + 1
        written = self.text[start:end]
        if piece.token_type == _IDENTIFIER:
            name = written[1:-1].replace("``", "`")
            if not name:
                self.problems.add("a name cannot be empty", "write the name between the backticks", start, end)
            return name
        if piece.token_type != _VAR or not written.isidentifier():
            advice = "in a path every name that is not a plain word needs backticks, as in items.`0`"
            self.problems.add(f"a name is expected after the dot, not {written}", advice, start, end)
        return written

    def string(self) -> Token:
        """One string and its neighbours: 'it''s' says it's, and 'a' 'b' says ab."""
        first = previous = self.raw[self.at]
        said = [self.content(first)]
        while self.follows(_STRING, _RAW_STRING):
            piece = self.raw[self.at + 1]
            quote = self.text[piece.start]
            plain = previous.token_type == piece.token_type == _STRING
            if plain and piece.start == previous.end + 1 and self.text[previous.start] == quote:
                said.append(quote)
            said.append(self.content(piece))
            previous = piece
            self.at += 1
        self.at += 1
        return Token("string", "".join(said), first.start, previous.end + 1)

    def content(self, piece: RawToken) -> str:
        start, end = piece.start, piece.end + 1
        if piece.token_type == _RAW_STRING:
            return self.text[start + 2 : end - 1]
        try:
            return unescape(self.text[start + 1 : end - 1])
        except LiteralError as error:
            self.problems.add(error.message, error.advice, start, end)
            return ""


# -- what the tokenizer refuses, or drops ----------------------------------------------------------------------------

_LEXEME = re.compile(
    r"""\br'[^']*'|\br"[^"]*"|'[^'\\]*(?:\\.[^'\\]*)*'|"[^"\\]*(?:\\.[^"\\]*)*"|`[^`]*`|--[^\r\n]*|/\*|['"`]""",
    re.DOTALL | re.IGNORECASE,
)
_COMMENT_SIGN = re.compile(r"/\*|\*/")
_OPENED = {"'": "string", '"': "string", "`": "quoted name", "/*": "comment"}


def _report_unclosed(text: str, problems: Problems) -> None:
    """Finds the string, name or comment without an end, which is all that the tokenizer ever refuses."""
    at = 0
    while match := _LEXEME.search(text, at):
        opened, at = match[0], match.end()
        if opened == "/*":
            at = _comment_end(text, at)
        if at < 0 or opened in "'\"`":
            end = {"/*": "*/"}.get(opened, opened)
            message = f"the {_OPENED[opened]} that begins here has no end"
            advice = f"close it with {end}"
            if opened in "'\"":
                advice += f"; a {opened} inside of it is written \\{opened}"
            problems.add(message, advice, match.start(), len(text))
            return
    problems.add("the text cannot be read", "check its quotes and comments", 0, len(text))


def _comment_end(text: str, at: int) -> int:
    """One past the end of the comment that is open at this place (comments nest), or -1."""
    depth = 1
    for sign in _COMMENT_SIGN.finditer(text, at):
        depth += 1 if sign[0] == "/*" else -1
        if not depth:
            return sign.end()
    return -1


def _report_template_comments(text: str, raw: list[RawToken], problems: Problems) -> None:
    """sqlglot skips {# #} as the comment of a template; here it would silently drop what stands inside."""
    ends = [0, *(piece.end + 1 for piece in raw)]
    starts = [*(piece.start for piece in raw), len(text)]
    for start, end in zip(ends, starts, strict=True):
        if start >= end or "{#" not in text[start:end]:
            continue
        at = start
        while at < end:
            if text.startswith("--", at):
                at = min((p for p in (text.find("\n", at), text.find("\r", at)) if p >= 0), default=end)
            elif text.startswith("/*", at):
                at = _comment_end(text, at + 2)
            elif text.startswith("{#", at):
                problems.add("unexpected {#", "comments are written /* like this */ or -- like this", at, at + 2)
                break
            else:
                at += 1
