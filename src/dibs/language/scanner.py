"""From the pieces of a text (language.pieces) to its tokens (language.tokens)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from dibs.jit.undisturbed import bring
from dibs.language.literals import NUMBER, LiteralError, unescape
from dibs.language.pieces import END, OTHER, QUOTED_NAME, RAW_STRING, SIGN, STRING, TEMPLATE, UNCLOSED, WORD, next_piece
from dibs.language.pieces import NUMBER as NUMBER_PIECE
from dibs.language.problems import Problems
from dibs.language.tokens import GRAMMAR_WORDS, RESERVED_WORDS, Said, Token, Tokens, quote_name

_KINDS = {**GRAMMAR_WORDS, **dict.fromkeys(RESERVED_WORDS, "reserved")}
_SIGN_KINDS = {**{c: c for c in "(),-+!=<>"}, "==": "=", "!=": "<>", "<>": "<>", "<=": "<=", ">=": ">="}
_SIGNS = {sign: (kind, kind, "") for sign, kind in _SIGN_KINDS.items()}
_COMPILED = "dibs.language.piece_kernels"

Piece = list[int]  # kind, start, end

# Python imports a codec when it is first used, and an interrupt there would leave its import lock taken for ever: so
# those of the language are used here, while this module is imported where none reaches.
for _codec in ("utf-32-le", "utf-16"):
    "".encode(_codec)


def scan(text: str, problems: Problems) -> Tokens:
    """The tokens of the text; none if it cannot be cut into any. Bad ones are reported and stand in as good ones."""
    raw = cut(text)
    if raw[-1][0] == UNCLOSED:
        _report_unclosed(text, raw[-1][1], problems)
        return Tokens()
    if "{#" in text:
        raw = list(_without_templates(text, raw, problems))
    return _Scanner(text, raw, problems).tokens()


def cut(text: str) -> list[Piece]:
    """The pieces of a text up to its end, or to one that has none. Compiled, where kernels are at hand."""
    data = text.encode("utf-32-le", "surrogatepass")
    kernels: Any = sys.modules.get(_COMPILED)
    if kernels is not None and not getattr(kernels.__spec__, "_initializing", False):
        np = bring("numpy")
        return kernels.cut(np.frombuffer(data, np.uint32)).tolist()
    characters = memoryview(data).cast("I")
    result: list[Piece] = []
    at, kind = 0, -1
    while kind not in (END, UNCLOSED):
        kind, start, at = next_piece(characters, at, len(text), True)
        result.append([kind, start, at])
    return result


def _without_templates(text: str, raw: list[Piece], problems: Problems) -> Iterator[Piece]:
    """{# #} is a comment for others: here it is a problem, and what stands inside is passed over."""
    passed = 0
    for piece in raw:
        if piece[0] == TEMPLATE and piece[1] >= passed:
            advice = "comments are written /* like this */ or -- like this"
            problems.add("unexpected {#", advice, piece[1], piece[2])
            end = text.find("#}", piece[2])
            passed = len(text) if end < 0 else end + 2
        elif piece[1] >= passed:
            yield piece


class _Scanner:
    def __init__(self, text: str, raw: list[Piece], problems: Problems):
        self.text = text
        self.raw = raw
        self.problems = problems
        self.at = 0  # in raw

    def tokens(self) -> Tokens:
        tokens = Tokens()
        append = tokens.append
        raw, text = self.raw, self.text
        known: dict[str, Said] = {}  # words and numbers that were met: texts repeat themselves
        while True:
            kind, start, end = raw[self.at]
            written = text[start:end]
            if kind == SIGN:
                if (sign := _SIGNS.get(written)) is not None:
                    append(sign, start, end)
                    self.at += 1
                elif written == "." and text[start - 1 : start] == "]" and self.follows(WORD, QUOTED_NAME):
                    append(("other", ".", ""), start, end)
                    self.at += 1
                    self.add(tokens, self.name())
                elif written == "." and self.touches(NUMBER_PIECE, WORD):
                    self.add(tokens, self.word(start, raw[self.at + 1][2]))
                else:
                    append(("other", written, ""), start, end)
                    self.at += 1
            elif kind in (WORD, NUMBER_PIECE):
                said = known.get(written) or self.plain(kind, written)
                if (
                    said is None
                    or (said[0] == "name" and self.follows_dot())
                    or (kind == NUMBER_PIECE and self.touches(WORD))
                ):
                    self.add(tokens, self.word(start, end))
                else:
                    known[said[1]] = said
                    append(said, start, end)
                    self.at += 1
            elif kind in (STRING, RAW_STRING):
                self.add(tokens, self.string())
            elif kind == QUOTED_NAME:
                self.add(tokens, self.name())
            elif kind == END:
                append(("end", "", ""), len(text), len(text))
                return tokens
            else:
                assert kind == OTHER
                append(("other", written, ""), start, end)
                self.at += 1

    @staticmethod
    def add(tokens: Tokens, token: Token) -> None:
        tokens.append((token.kind, token.value, token.word), token.start, token.end)

    @staticmethod
    def plain(kind: int, written: str) -> Said | None:
        """What a word or number says that is as it should be."""
        if kind == NUMBER_PIECE:
            return ("number", written, "") if NUMBER.fullmatch(written) else None
        word = written.upper()
        known = _KINDS.get(word) or ("name" if written.isidentifier() else None)
        return None if known is None else (known, written, word)

    def follows(self, *kinds: int) -> bool:
        """Whether the next piece is of these kinds. (There is always one: the end.)"""
        return self.raw[self.at + 1][0] in kinds

    def follows_dot(self) -> bool:
        """Whether a path goes on here. In THEN .5 the dot is the number's."""
        kind, start, end = self.raw[self.at + 1]
        if kind != SIGN or self.text[start:end] != ".":
            return False
        after, begin, _ = self.raw[self.at + 2]
        return start == self.raw[self.at][2] or after != NUMBER_PIECE or begin != end

    def touches(self, *kinds: int) -> bool:
        """Whether the next piece is of these kinds, with nothing in between."""
        return self.follows(*kinds) and self.raw[self.at + 1][1] == self.raw[self.at][2]

    def word(self, start: int, end: int) -> Token:
        """A name or a number: .5 comes as two pieces."""
        text = self.text
        if text[start:end].isidentifier():
            return self.name()
        if text[start] == ".":
            self.at += 1
        while self.touches(WORD):  # 0x1F comes as 0 and x1F
            self.at += 1
            end = self.raw[self.at][2]
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
        kind, start, end = self.raw[self.at]
        parts = [self.part(self.raw[self.at])]
        while self.follows_dot():
            self.at += 1
            if self.follows(WORD, QUOTED_NAME, NUMBER_PIECE):
                self.at += 1
                parts.append(self.part(self.raw[self.at]))
            else:
                place = self.raw[self.at][2]
                advice = "write the rest of the path, as in item.price, or leave out the dot"
                self.problems.add("a name is expected after the dot", advice, place - 1, place)
        word = self.text[start:end].upper() if len(parts) == 1 and kind == WORD else ""
        end = self.raw[self.at][2]
        self.at += 1
        return Token("name", ".".join(parts), start, end, word)

    def part(self, piece: Piece) -> str:
        kind, start, end = piece
        written = self.text[start:end]
        if kind == QUOTED_NAME:
            name = written[1:-1].replace("``", "`")
            if not name:
                self.problems.add("a name cannot be empty", "write the name between the backticks", start, end)
            return name
        if kind != WORD or not written.isidentifier():
            advice = "in a path every name that is not a plain word needs backticks, as in items.`0`"
            self.problems.add(f"a name is expected after the dot, not {written}", advice, start, end)
        return written

    def string(self) -> Token:
        """One string and its neighbours: 'it''s' says it's, and 'a' 'b' says ab."""
        first = previous = self.raw[self.at]
        said = [self.content(first)]
        while self.follows(STRING, RAW_STRING):
            piece = self.raw[self.at + 1]
            quote = self.text[piece[1]]
            plain = previous[0] == piece[0] == STRING
            if plain and piece[1] == previous[2] and self.text[previous[1]] == quote:
                said.append(quote)
            said.append(self.content(piece))
            previous = piece
            self.at += 1
        self.at += 1
        return Token("string", "".join(said), first[1], previous[2])

    def content(self, piece: Piece) -> str:
        kind, start, end = piece
        if kind == RAW_STRING:
            return self.text[start + 2 : end - 1]
        try:
            return unescape(self.text[start + 1 : end - 1])
        except LiteralError as error:
            self.problems.add(error.message, error.advice, start, end)
            return ""


def _report_unclosed(text: str, start: int, problems: Problems) -> None:
    """A string, name or comment that begins here has no end, which is all that cannot be cut into pieces."""
    if text[start] in "rRnN":  # the letter before a string
        start += 1
    what, end = {"`": ("quoted name", "`"), "/": ("comment", "*/")}.get(text[start], ("string", text[start]))
    advice = f"close it with {end}"
    if what == "string":
        advice += f"; a {end} inside of it is written \\{end}"
    problems.add(f"the {what} that begins here has no end", advice, start, len(text))
