"""Reading computed values from the tokens of a text: arithmetic, functions, CASE, CAST, attribute against attribute.

    value     = value (* / % DIV) value | value (+ - ||) value | value (<< >>) value | value & ^ | value
              | - value | ~ value | ( value ) | function ( value, ... ) | value :: type | CAST ( value AS type )
              | CASE [value] WHEN value THEN value ... [ELSE value] END | INTERVAL number unit
              | attribute | constant
    logic     = within a value, in parentheses, functions and CASE: also AND, OR, NOT, comparisons, IN, BETWEEN, LIKE,
                RLIKE, IS [NOT] NULL

What binds tighter stands first above. A value of constants alone is computed at once. Where an operand is a plain
attribute or constant nothing of this is called, so that a text pays only for what it computes.
"""

from __future__ import annotations

from typing import Any

from dibs.jit.undisturbed import bring
from dibs.language.advice import refuse_function
from dibs.language.expression import Kind, Literal
from dibs.language.intervals import Interval, read_interval
from dibs.language.like import LikeError, like_regex
from dibs.language.literals import TIME_WORDS
from dibs.language.operands import Operand, OperandReader
from dibs.language.problems import Problems, Refused
from dibs.language.regex import refusal
from dibs.language.scalars import Call, Field, Scalar, Value, computed_name, fields_of, is_computed, scalar_of
from dibs.language.scanner import scan
from dibs.language.tokens import Token, show_token

MAX_NESTED = 60  # values within values: they are computed by recursion
# How tightly operators bind; those of logic are read within values only.
_OR, _AND, _NOT, _COMPARISON = 1, 2, 3, 4
_LEVELS = {
    **{"OR": _OR, "AND": _AND, "=": _COMPARISON, "<>": _COMPARISON, "<": _COMPARISON, "<=": _COMPARISON},
    **{">": _COMPARISON, ">=": _COMPARISON, "<=>": _COMPARISON},
    **{"|": 5, "^": 6, "&": 7, "<<": 8, ">>": 8, "+": 9, "-": 9, "||": 9, "*": 10, "/": 10, "%": 10, "DIV": 10},
}
ARITHMETIC = 5  # the level from which on a value has no logic
_TESTS = ("IS", "NOT", "IN", "BETWEEN", "LIKE", "RLIKE")
TRUE, FALSE = (Value(Literal(Kind.BOOLEAN, truth)) for truth in (True, False))
BACKSLASH = Value(Literal(Kind.STRING, "\\"))


def read_scalar(text: str) -> Scalar:
    """The value of a canonical text."""
    problems = Problems(text)
    return ValueReader(scan(text, problems), problems).value(_OR, 0)


class ValueReader(OperandReader):
    """Operands that are computed."""

    # -- operands ----------------------------------------------------------------------------------------------------

    def operand(self, expected: str) -> Operand:
        begin, place = self.at, self.next
        problems = self.problems.mark()
        plain: Operand | None = None
        try:
            plain = super().operand(expected)
        except Refused:
            self.move_to(begin)
            if not self.begins_value():
                raise
            self.problems.take_back(problems)
        if plain is not None:
            if not self.is_continued():
                return plain
            if plain.attribute is not None and plain.attribute[:1] == "\0" and not is_computed(plain.attribute):
                return plain  # a join: its multiples are read elsewhere
            self.move_to(begin)
            self.problems.take_back(problems)
        return self.as_operand(self.value(ARITHMETIC, 0), place.start)

    def is_continued(self) -> bool:
        """Whether an operator of arithmetic comes next. (Multiples of subqueries are read elsewhere.)"""
        if self.next.value == "*" and self.tokens.kind(self.at + 1) == "(":
            if self.tokens[self.at + 2].word == "SELECT":
                return False
        return self.operator()[1] >= ARITHMETIC or (self.next.value == "::" and self.next.kind == "other")

    def continued(self, left: Operand) -> Operand:
        """An operand that stood in parentheses, with the operators that follow it."""
        return self.as_operand(self.rest_of_value(self.as_scalar(left), ARITHMETIC, 0), left.start)

    def begins_value(self) -> bool:
        """Whether what was refused as a plain operand may be a computed one."""
        at = self.at
        while self.tokens.kind(at) in ("(", "-", "+") or self.tokens[at].value == "~":
            at += 1
        token = self.tokens[at]
        if at > self.at or token.word in ("CASE", "INTERVAL"):
            return True
        return token.kind in ("name", "LIKE", "RLIKE", "reserved") and self.tokens.kind(at + 1) == "("

    def move_to(self, at: int) -> None:
        self.at, self.next = at, self.tokens[at]

    def as_scalar(self, operand: Operand) -> Scalar:
        if operand.attribute is None:
            return Value(operand.literal)
        return scalar_of(operand.attribute) if is_computed(operand.attribute) else Field(operand.attribute)

    def as_operand(self, scalar: Scalar, start: int) -> Operand:
        end = self.tokens[self.at - 1].end
        if isinstance(scalar, Field):
            return Operand(scalar.name, None, start, end)
        if isinstance(scalar, Value):
            return Operand(None, scalar.literal, start, end)
        if isinstance(scalar, Interval):
            return Operand(None, None, start, end, scalar)
        return Operand(computed_name(scalar, self.is_condition(scalar)), None, start, end)

    def is_condition(self, scalar: Scalar) -> bool:
        return isinstance(scalar, Call) and functions().FUNCTIONS[scalar.function].result == functions().Kinds.BOOLEAN

    # -- values ------------------------------------------------------------------------------------------------------

    def value(self, level: int, depth: int) -> Scalar:
        """A value with the operators behind it that bind at least so tightly."""
        if depth > MAX_NESTED:
            message = f"more than {MAX_NESTED} values stand within each other"
            raise Refused(message, "compute a part of it before", self.next.start, self.next.end)
        if level <= _NOT and self.next.kind in ("NOT", "!"):
            self.advance()
            return self.rest_of_value(self.make_call("NOT", [self.value(_NOT, depth + 1)]), level, depth)
        return self.rest_of_value(self.unary(depth), level, depth)

    def rest_of_value(self, left: Scalar, level: int, depth: int) -> Scalar:
        while True:
            if self.next.value == "::" and self.next.kind == "other":
                self.advance()
                left = self.cast_value(left, self.advance())
                continue
            if level <= _COMPARISON and self.next.kind in _TESTS:
                left = self.test(left, depth)
                continue
            sign, binds, tokens = self.operator()
            if binds < level:
                return left
            place = self.next
            for _ in range(tokens):
                self.advance()
            right = self.value(binds + 1, depth + 1)
            left = self.make_call(sign, [left, right], place)

    def operator(self) -> tuple[str, int, int]:
        """The operator that comes next, how tightly it binds (0: there is none), and how many tokens it has."""
        token = self.next
        if token.kind == "reserved" and token.word == "DIV":
            return "DIV", _LEVELS["DIV"], 1
        if token.kind not in ("other", "+", "-", "=", "<>", "<", "<=", ">", ">=", "AND", "OR"):
            return "", 0, 0
        sign = token.kind if token.kind != "other" else token.value
        if sign in ("<", ">"):
            second = self.tokens[self.at + 1]
            if second.kind == sign and second.start == token.end:
                return sign * 2, _LEVELS[sign * 2], 2
        return (sign, _LEVELS[sign], 1) if sign in _LEVELS else ("", 0, 0)

    def unary(self, depth: int) -> Scalar:
        if self.next.kind == "-" and self.tokens.kind(self.at + 1) == "number":
            self.advance()
            token = self.advance()
            return Value(self.number(token, True))
        if self.next.kind in ("-", "+") or self.next.value == "~":
            sign = self.advance()
            inner = self.value(_LEVELS["*"] + 1, depth + 1)
            return inner if sign.kind == "+" else self.make_call("NEGATIVE" if sign.kind == "-" else "~", [inner], sign)
        return self.primary(depth)

    def primary(self, depth: int) -> Scalar:
        token, following = self.next, self.tokens.kind(min(self.at + 1, len(self.tokens) - 1))
        if token.kind == "(":
            self.advance()
            inner = self.value(_OR, depth + 1)
            self.take(")", ")", "the parenthesis holds one value")
            return inner
        if token.word == "CASE" and token.kind == "reserved":
            return self.case(depth)
        if token.word == "INTERVAL" and token.kind == "reserved":
            self.advance()
            return read_interval(self)
        if token.word and following == "(" and token.kind in ("name", "LIKE", "RLIKE", "reserved"):
            return self.function(depth)
        operand = self.atom("a value", negative=False)
        if operand.attribute is not None and operand.attribute[:1] == "\0":
            message = "a subquery does not stand within a computed value"
            raise Refused(message, "compare it with the value", operand.start, operand.end)
        return self.as_scalar(operand)

    # -- functions ---------------------------------------------------------------------------------------------------

    def function(self, depth: int) -> Scalar:
        name = self.next
        if name.word in ("CAST", "TRY_CAST"):
            return self.cast_call(depth)
        known = functions().FUNCTIONS.get(name.word)
        if known is None and name.word not in TIME_WORDS and name.word not in ("DOUBLE", "FLOAT"):
            raise refuse_function(name)
        self.advance()
        self.advance()
        arguments = self.arguments(name, depth)
        if known is None:  # DATE(x) and the like
            return self.cast_value(arguments[0], name) if len(arguments) == 1 else self.make_call("CAST", arguments, name)
        return self.make_call(name.word, arguments, name)

    def arguments(self, name: Token, depth: int) -> list[Scalar]:
        """Up to the parenthesis that closes them."""
        found: list[Scalar] = []
        if name.word in ("TIMESTAMPDIFF", "DATEDIFF", "DATE_DIFF") and self.next.word in UNITS:
            found.append(Value(Literal(Kind.STRING, self.advance().word)))
            self.take(",", "a comma", "the unit stands before the two times")
        while self.next.kind != ")" or found:
            found.append(self.value(_OR, depth + 1))
            if self.next.kind != ",":
                break
            self.advance()
        self.take(")", ", or )", f"the arguments of {name.value} are separated by commas, and ) ends them")
        return found

    def make_call(self, function: str, arguments: list[Scalar], place: Token | None = None) -> Scalar:
        """The call, checked; computed at once, if it is of constants alone."""
        table = functions()
        known = table.FUNCTIONS[function]
        place = place or self.tokens[self.at - 1]
        self.check_count(known, len(arguments), place)
        for number, argument in enumerate(arguments):
            wanted, given = known.kinds_of(number), kinds_of(argument)
            if wanted & table.Kinds.TIME:
                wanted |= table.Kinds.STRING
            if given and not given & wanted:
                message = f"{show_token(place)} takes {table.describe_kinds(known.kinds_of(number))} here, not "
                advice = "CAST(... AS type) makes a value of another kind"
                self.problems.add(message + table.describe_kinds(given), advice, place.start, place.end)
        made = Call(known.name, tuple(arguments))
        if fields_of(made):
            return made
        result = table.evaluate(made, {})
        return result if isinstance(result, Interval) else Value(table.literal_of(result))

    def check_count(self, function: Any, count: int, place: Token) -> None:
        least, most = function.least, function.most
        if count < least or (most is not None and count > most):
            several = f"{least}" if most == least else f"at least {least}" if most is None else f"{least} to {most}"
            message = f"{function.name} takes {several} argument{'s' if several != '1' else ''}, not {count}"
            raise Refused(message, f"it gives {function.about}", place.start, place.end)

    def cast_call(self, depth: int) -> Scalar:
        self.advance()
        self.take("(", "(", "write CAST(value AS type)")
        inner = self.value(_OR, depth + 1)
        if self.next.word != "AS":
            raise self.refuse_unexpected("AS", "write CAST(value AS DOUBLE)")
        self.advance()
        result = self.cast_value(inner, self.advance())
        self.take(")", ")", "write CAST(value AS DOUBLE)")
        return result

    def cast_value(self, value: Scalar, to: Token) -> Scalar:
        types: dict[str, str] = functions().casts.TYPES
        if to.word not in types:
            advice = "the types are BOOLEAN, BIGINT, INT, DOUBLE, FLOAT, STRING, DATE and TIMESTAMP"
            raise Refused(f"CAST to {show_token(to)} is not supported", advice, to.start, to.end)
        return self.make_call("CAST", [value, Value(Literal(Kind.STRING, types[to.word]))], to)

    def case(self, depth: int) -> Scalar:
        """CASE WHEN condition THEN value ..., or CASE value WHEN value THEN value ..."""
        form = "write CASE WHEN price < 10 THEN 'low' ELSE 'high' END"
        place = self.advance()
        subject = None if self.next.word == "WHEN" else self.value(_OR, depth + 1)
        arguments: list[Scalar] = []
        while self.next.word == "WHEN":
            self.advance()
            condition = self.value(_OR, depth + 1)
            arguments.append(condition if subject is None else self.make_call("=", [subject, condition], place))
            self.take_named("THEN", form)
            arguments.append(self.value(_OR, depth + 1))
        if not arguments:
            raise self.refuse_unexpected("WHEN", form)
        if self.next.word == "ELSE":
            self.advance()
            arguments.append(self.value(_OR, depth + 1))
        self.take_named("END", form)
        return self.make_call("CASE", arguments, place)

    def take_named(self, word: str, form: str) -> None:
        if self.next.word != word:
            raise self.refuse_unexpected(word, form)
        self.advance()

    # -- tests within values -----------------------------------------------------------------------------------------

    def test(self, left: Scalar, depth: int) -> Scalar:
        """IS [NOT] NULL, [NOT] IN, BETWEEN, LIKE, RLIKE behind a value."""
        place = self.advance()
        if place.kind == "IS":
            negated = self.next.kind == "NOT"
            if negated:
                self.advance()
            self.take("NULL", "NULL", "within a value IS is only used in IS NULL and IS NOT NULL")
            return self.make_call("ISNOTNULL" if negated else "ISNULL", [left], place)
        negated = place.kind == "NOT"
        kind = self.advance().kind if negated else place.kind
        if kind == "IN":
            self.take("(", "a list in parentheses", "write value IN (1, 2, 3)")
            found = self.make_call("IN", [left, *self.arguments(place, depth)], place)
        elif kind == "BETWEEN":
            low = self.value(ARITHMETIC, depth + 1)
            self.take("AND", "AND", "write value BETWEEN 1 AND 5")
            high = self.value(ARITHMETIC, depth + 1)
            found = self.make_call("BETWEEN", [left, low, high], place)
        elif kind in ("LIKE", "RLIKE"):
            found = self.make_call(kind, [left, *self.pattern(kind)], place)
        else:
            raise self.refuse_unexpected("IN, BETWEEN, LIKE or RLIKE", "NOT stands before a condition")
        return self.make_call("NOT", [found], place) if negated else found

    def pattern(self, kind: str) -> list[Scalar]:
        place = self.next
        text = self.text(kind)
        escape: str | None = "\\"
        if kind == "LIKE" and self.next.kind == "ESCAPE":
            self.advance()
            escape = self.text("ESCAPE")
        if text is None or escape is None or len(escape) != 1:
            raise Refused(f"{kind} takes a string here", "write it as a constant", place.start, place.end)
        try:
            reason = refusal(text if kind == "RLIKE" else like_regex(text, escape))
        except LikeError as error:
            reason = str(error)
        if reason is not None:
            raise Refused(f"the pattern cannot be used: {reason}", "patterns follow RE2", place.start, place.end)
        constants = [Value(Literal(Kind.STRING, text))]
        return constants if kind == "RLIKE" else [*constants, Value(Literal(Kind.STRING, escape))]


UNITS = frozenset(["MICROSECOND", "MILLISECOND", "SECOND", "MINUTE", "HOUR", "DAY", "WEEK", "MONTH", "QUARTER", "YEAR"])


def kinds_of(scalar: Scalar) -> Any:
    """Which kinds its values may have; none: it is NULL."""
    kinds = functions().Kinds
    if isinstance(scalar, Field):
        return kinds.ANY
    if isinstance(scalar, Interval):
        return kinds.INTERVAL
    if isinstance(scalar, Call):
        return functions().FUNCTIONS[scalar.function].result
    if scalar.literal is None:
        return kinds(0)
    return (kinds.BOOLEAN, kinds.NUMBER, kinds.STRING, kinds.TIME)[scalar.literal.kind]


def may_be_true(scalar: Scalar) -> bool:
    """Whether it may be a boolean."""
    return bool(kinds_of(scalar) & functions().Kinds.BOOLEAN)


def functions() -> Any:
    """dibs.language.functions, which most texts do without."""
    return bring("dibs.language.functions")
