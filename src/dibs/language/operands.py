"""Reading operands from the tokens of a text: attributes and constants."""

from __future__ import annotations

import datetime as dt
import re
from typing import NamedTuple

from dibs.language.expression import MONTHS, UNITS, Kind, Literal, number
from dibs.language.literals import TIME_WORDS, LiteralError, nearest_float32, read_float, read_number, read_time
from dibs.language.problems import (
    NOT_FINITE,
    Problems,
    Refused,
    as_constant,
    refuse_function,
    refuse_sign,
    refuse_unexpected,
    refuse_word,
)
from dibs.language.scalars import Interval
from dibs.language.tokens import Token, Tokens, quote_name, show_token
from dibs.language.types import NO_TYPES, kind_of_type, typed_literal

PREFIXES = frozenset(["(", "-", "+"])
FLOAT_TYPES = {"DOUBLE": False, "FLOAT": True}  # True: of 32 bits
CASTS = frozenset(["CAST", *FLOAT_TYPES, *TIME_WORDS])

AS_STRING = "a string needs quotes, as in 'red'"
_EXAMPLES = {
    "a constant": "as 10, 'red', TRUE or DATE '2024-01-31'",
    "a string": AS_STRING,
    "a value": "as in price * 2",
}


class Operand(NamedTuple):
    """An attribute, a constant, an interval, or NULL (none of them)."""

    attribute: str | None
    literal: Literal | None
    start: int
    end: int
    interval: Interval | None = None


class OperandReader:
    """A place among the tokens, and what can be read there."""

    def __init__(self, tokens: Tokens, problems: Problems):
        self.tokens = tokens
        self.problems = problems
        self.at = 0
        self.next = tokens[0]
        self.numbers: dict[tuple[str, bool], Literal] = {}  # that were read: one object each
        self.is_kept = False  # the text may be one of an earlier version (sql.parse_kept)
        self.types = NO_TYPES  # of attributes, where they are declared

    # -- moving on ---------------------------------------------------------------------------------------------------

    def advance(self) -> Token:
        token = self.next
        if token.kind != "end":
            self.at += 1
            self.next = self.tokens[self.at]
        return token

    def take(self, kind: str, expected: str, advice: str = "") -> Token:
        if self.next.kind != kind:
            raise self.refuse_unexpected(expected, advice)
        return self.advance()

    def refuse_unexpected(self, expected: str, advice: str = "") -> Refused:
        """What to say about the next token when something else is expected."""
        token = self.next
        if token.kind == "reserved":
            return refuse_word(token)
        if token.kind in ("other", "+", "-") and (refused := refuse_sign(token)):
            return refused
        return refuse_unexpected(token, expected, advice)

    # -- declared types ----------------------------------------------------------------------------------------------

    def declared(self, attribute: str | None) -> str | None:
        """The type of an attribute, if it is declared."""
        return self.types.get(attribute) if self.types and attribute is not None else None

    def typed(self, attribute: str | None, literal: Literal, start: int, end: int) -> Literal:
        """A constant beside an attribute, as one of its type; one that does not fit is reported."""
        type_ = self.declared(attribute)
        if type_ is None or (literal.kind == kind_of_type(type_) == Kind.TIME):
            return literal
        found = typed_literal(literal, type_)
        if found is None:
            message = f"{attribute} is declared {type_}, and this constant is no {type_}"
            self.problems.add(
                message,
                f"write a constant that is {'an' if type_[0] == 'i' else 'a'} {type_}, or change the type",
                start,
                end,
            )
            return literal
        return found

    def typed_text(self, attribute: str | None, test: str, start: int, end: int) -> None:
        """Reports a test of text, asked of an attribute that is none."""
        type_ = self.declared(attribute)
        if type_ is not None and kind_of_type(type_) != Kind.STRING:
            advice = f"{test} is asked of strings: compare it, or write CAST({attribute} AS STRING)"
            self.problems.add(f"{attribute} is declared {type_}", advice, start, end)

    # -- operands ----------------------------------------------------------------------------------------------------

    def constant(self) -> Literal | None:
        """A constant; None for NULL."""
        place = self.next
        if place.kind == "string":
            self.advance()
            return Literal(Kind.STRING, place.value)
        operand = self.operand("a constant")
        if operand.attribute is not None:
            what, advice = self.describe_no_constant(place, operand.attribute)
            self.problems.add(f"a constant is expected, not {what}", advice, operand.start, operand.end)
        return operand.literal

    def describe_no_constant(self, place: Token, attribute: str) -> tuple[str, str]:
        """What stands in place of a constant, and what to write."""
        return f"the attribute {show_token(place)}", as_constant(attribute)

    def text(self, user: str) -> str | None:
        """The string that a test needs; None for NULL."""
        return self.constant_text(self.operand("a string"), user)

    def constant_text(self, operand: Operand, user: str) -> str | None:
        literal = operand.literal
        if operand.attribute is not None or (literal is not None and literal.kind != Kind.STRING):
            self.problems.add(f"{user} takes a string", AS_STRING, operand.start, operand.end)
            return None
        return None if literal is None else literal.value

    def operand(self, expected: str) -> Operand:
        """An attribute or a constant, in parentheses and with signs as may be."""
        if self.next.kind not in PREFIXES:
            return self.atom(expected, negative=False)
        start = self.next.start
        prefix: list[Token] = []
        while self.next.kind in PREFIXES:
            prefix.append(self.advance())
        signs = [t for t in prefix if t.kind != "("]
        negative = sum(t.kind == "-" for t in signs) % 2 == 1
        operand = self.atom(expected, negative)
        if signs and operand.attribute is not None:
            if operand.attribute.upper() in NOT_FINITE:
                message = f"a constant is expected, not the attribute {operand.attribute}"
                raise Refused(message, as_constant(operand.attribute), signs[0].start, operand.end)
            raise refuse_sign(signs[-1]) or refuse_unexpected(signs[-1], expected)
        if signs and operand.literal is not None and operand.literal.kind != Kind.NUMBER:
            raise Refused("a sign stands only before a number", "leave it out", signs[-1].start, signs[-1].end)
        for token in prefix:
            if token.kind == "(":
                self.take(")", ")", "the parenthesis holds one attribute or constant")
        return operand._replace(start=start, end=self.tokens[self.at - 1].end)

    def atom(self, expected: str, negative: bool) -> Operand:
        token = self.next
        kind = token.kind
        literal: Literal | None = None
        if kind == "name":
            following_kind = self.tokens.kind(self.at + 1)
            if following_kind == "(":
                return self.call(negative)
            if following_kind == "string" and token.word:
                following = self.tokens[self.at + 1]
                if token.word in TIME_WORDS:
                    self.advance()
                    return self.time(token, self.advance())
                if following.start == token.end:
                    message = f"{token.value}'...' is no string"
                    raise Refused(message, "strings are 'text', \"text\" or r'text'", token.start, following.end)
            self.advance()
            return Operand(token.value, None, token.start, token.end)
        if kind == "string":
            literal = Literal(Kind.STRING, token.value)
        elif kind == "number":
            literal = self.number(token, negative)
        elif kind in ("TRUE", "FALSE"):
            literal = Literal(Kind.BOOLEAN, kind == "TRUE")
        elif kind != "NULL":
            raise self.no_operand(expected)
        self.advance()
        return Operand(None, literal, token.start, token.end)

    def no_operand(self, expected: str) -> Refused:
        token = self.next
        if token.kind in ("LIKE", "RLIKE") and self.tokens.kind(self.at + 1) == "(":
            return refuse_function(token)
        if token.word:
            return self.refuse_unexpected(
                expected, f"if it is the name of an attribute, write {quote_name(token.value)}"
            )
        return self.refuse_unexpected(expected, _EXAMPLES.get(expected, "as in price < 10 or color = 'red'"))

    def number(self, token: Token, negative: bool) -> Literal:
        try:
            literal = self.numbers.get((token.value, negative)) or read_number(token.value, negative)
            assert literal is not None, "the scanner checked its form"
            self.numbers[token.value, negative] = literal
            return literal
        except LiteralError as error:
            self.problems.add(error.message, error.advice, token.start, token.end)
            return number(0)

    def time(self, word: Token, text: Token) -> Operand:
        try:
            literal = read_time(word.word, text.value)
        except LiteralError as error:
            self.problems.add(error.message, error.advice, text.start, text.end)
            literal = Literal(Kind.TIME, dt.date(1970, 1, 1))
        return Operand(None, literal, word.start, text.end)

    def call(self, negative: bool) -> Operand:
        """CAST(constant AS type) or type(constant): NaN and the infinities, dates and timestamps. Other casts are
        computed (values.py)."""
        name = self.next
        if name.word not in CASTS or not self.is_constant(self.at + 2):
            raise refuse_function(name)
        self.advance()
        self.advance()
        inner = self.operand("a constant")
        to = name
        if name.word == "CAST":
            if self.next.word != "AS":
                raise self.refuse_unexpected("AS", "write CAST('NaN' AS DOUBLE)")
            self.advance()
            to = self.take("name", "a type", "write CAST('NaN' AS DOUBLE)")
        if to.word not in CASTS or to.word == "CAST":
            raise refuse_function(name)  # it is computed
        self.take(")", ")")
        place = Operand(None, None, name.start, self.tokens[self.at - 1].end)
        if inner.literal is None:
            return place
        try:
            literal = self.cast(inner.literal, to.word)
        except LiteralError as error:
            self.problems.add(error.message, error.advice, inner.start, inner.end)
            literal = number(0)
        if negative and literal.kind == Kind.NUMBER:
            literal = number(-literal.value)
        return place._replace(literal=literal)

    def is_constant(self, at: int) -> bool:
        """Whether a constant stands there, perhaps with a sign."""
        while self.tokens.kind(at) in ("-", "+"):
            at += 1
        return self.tokens.kind(at) in ("string", "number", "TRUE", "FALSE", "NULL")

    def cast(self, literal: Literal, to: str) -> Literal:
        if literal.kind == Kind.STRING:
            return read_float(literal.value, FLOAT_TYPES[to]) if to in FLOAT_TYPES else read_time(to, literal.value)
        if literal.kind == Kind.NUMBER and to in FLOAT_TYPES:
            value = float(literal.value)
            return number(nearest_float32(value, str(literal.value)) if FLOAT_TYPES[to] else value)
        raise LiteralError(f"this constant cannot be cast to {to}", "write the constant itself")


# ---- lengths of time ----

_LONGEST = 2**63  # microseconds: more than all times that can be told apart
_TOO_LONG = "the interval is longer than all times that can be told apart"
_FORM = "write INTERVAL 10 MINUTES, with YEARS, MONTHS, WEEKS, DAYS, HOURS, MINUTES or SECONDS"
_PART = re.compile(r"\s*([+-]?\d+)\s+([A-Za-z]+)\s*", re.ASCII)


def read_interval(reader: OperandReader) -> Interval:
    """What follows the word INTERVAL: 10 MINUTES, '10' MINUTES, '1 day 2 hours'."""
    sign = -1 if reader.next.kind == "-" else 1
    if reader.next.kind in ("-", "+"):
        reader.advance()
    amount = reader.advance()
    written = amount.value
    parts = list(_PART.finditer(written)) if amount.kind == "string" else []
    if parts and "".join(part[0] for part in parts) == written:
        found = [(part[1], part[2].upper()) for part in parts]
    elif amount.kind in ("string", "number") and reader.next.word:
        found = [(written.strip(), reader.advance().word)]
    else:
        wrong = amount if amount.kind not in ("string", "number") else reader.next
        raise Refused("an interval is a number and a unit", _FORM, wrong.start, wrong.end)
    end = reader.tokens[reader.at - 1].end
    months = microseconds = 0
    for count, word in found:
        unit = word if word in UNITS or word in MONTHS else word.removesuffix("S")
        if unit not in UNITS and unit not in MONTHS:
            raise Refused(f"{word} is no unit of time", _FORM, amount.start, end)
        if not re.fullmatch(r"[+-]?\d+", count, re.ASCII):
            raise Refused(f"{count} is no whole number of {word}", _FORM, amount.start, end)
        if len(count) > 20:
            raise Refused(_TOO_LONG, "shorten it", amount.start, end)
        months += sign * int(count) * MONTHS.get(unit, 0)
        microseconds += sign * int(count) * UNITS.get(unit, 0)
    if max(abs(months), abs(microseconds)) >= _LONGEST:
        raise Refused(_TOO_LONG, "shorten it", amount.start, end)
    return Interval(months, microseconds)
