"""Reading computed values from the tokens of a text: arithmetic, functions, CASE, CAST, attribute against attribute.

    value     = value (* / % DIV) value | value (+ - ||) value | value (<< >>) value | value & ^ | value
              | - value | ~ value | ( value ) | value :: type | INTERVAL number unit | attribute | constant
              | value [ value ] [ . name ]
              | function ( value, ... ), CASE ... END, CAST ( value AS type )        see calls.py
    logic     = within a value, in parentheses, functions and CASE: also AND, OR, NOT, comparisons, IN, BETWEEN, LIKE,
                ILIKE, RLIKE, IS [NOT] NULL, IS [NOT] DISTINCT FROM

What binds tighter stands first above. A value of constants alone is computed at once. Where an operand is a plain
attribute or constant nothing of this is called, so that a text pays only for what it computes.
"""

from __future__ import annotations

from typing import Any

from dibs.jit.undisturbed import bring
from dibs.language.expression import Kind, Literal
from dibs.language.operands import CASTS, Operand, OperandReader, read_interval
from dibs.language.printer import BOUND, EVERY, WHOLE
from dibs.language.problems import NOT_FINITE, Problems, Refused, as_constant
from dibs.language.scalars import (
    PRESENT,
    Call,
    Field,
    Interval,
    Lambda,
    Scalar,
    Value,
    computed_name,
    is_computed,
    scalar_of,
)
from dibs.language.tokens import Token, Tokens, show_token
from dibs.language.types import KINDS

MAX_NESTED = 64  # values within values: they are computed by recursion
MAX_SIZE = 10_000  # attributes, constants and operators of one value
_MAX_DEPTH = 2 * MAX_NESTED + 5  # of the reader: the canonical text of a value takes at most two steps for one
# How tightly operators bind; those of logic are read within values only.
OR, AND, NOT, COMPARISON = 1, 2, 3, 4
_LEVELS = {
    "OR": OR,
    "AND": AND,
    "=": COMPARISON,
    "<>": COMPARISON,
    "<": COMPARISON,
    "<=": COMPARISON,
    ">": COMPARISON,
    ">=": COMPARISON,
    "<=>": COMPARISON,
    "|": 5,
    "^": 6,
    "&": 7,
    "<<": 8,
    ">>": 8,
    "+": 9,
    "-": 9,
    "||": 9,
    "*": 10,
    "/": 10,
    "%": 10,
    "DIV": 10,
}
ARITHMETIC = 5  # the level from which on a value has no logic
UNARY = 11
_TESTS = ("IS", "NOT", "IN", "BETWEEN", "LIKE", "RLIKE")
# Functions that give one of their arguments, and which these are.
_CHOOSING = {
    **dict.fromkeys(["COALESCE", "NVL", "GREATEST", "LEAST"], slice(None)),
    **dict.fromkeys(["IF", "NVL2"], slice(1, None)),
    "NULLIF": slice(0, 1),
}
_CHAINED = ("AND", "OR", "||")
QUANTIFIERS = ("EXISTS", "FORALL")
_ELEMENT_FORM = "write tags[0], or items[0].price"
_COMPARING = {"=", "<>", "<", "<=", ">", ">=", "<=>", "IN", "BETWEEN", "NULLIF", "GREATEST", "LEAST"}
_FLAT = ("AND", "OR", "CONCAT")  # (a AND b) AND c is one AND of three
PRESENT_WORDS = ("NOW", "CURRENT_TIMESTAMP", "CURRENT_DATE", "CURDATE")
_SPECIAL_WORDS = ("CURRENT_TIMESTAMP", "CURRENT_DATE")  # functions also without parentheses
_FUNCTION_KINDS = ("name", "LIKE", "RLIKE", "reserved")  # of tokens that are functions before a parenthesis


class ValueReader(OperandReader):
    """Operands that are computed."""

    def __init__(self, tokens: Tokens, problems: Problems):
        super().__init__(tokens, problems)
        self.has_folded = False  # a constant was computed from others
        self.measures: dict[int, tuple[int, int, Scalar]] = {}  # of calls, by id: nodes, and how deep they are nested
        self.variables: list[str] = []  # what stands for an element in the conditions that are open, the innermost last

    # -- operands ----------------------------------------------------------------------------------------------------

    def operand(self, expected: str) -> Operand:
        begin, place = self.at, self.next
        problems = self.problems.mark()
        plain: Operand | None = None
        is_called = self.next.kind in _FUNCTION_KINDS and self.next.word not in CASTS and self.is_function(begin)
        if is_called and self.next.word in functions().FUNCTIONS:
            return self.as_operand(self.value(ARITHMETIC, 0), place.start)
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
        is_product = self.next.value == "*" and self.tokens.kind(self.at + 1) == "("
        if is_product and self.tokens[self.at + 2].word == "SELECT":
            return False
        return self.operator()[1] >= ARITHMETIC or (self.next.value in ("::", "[") and self.next.kind == "other")

    def continued(self, left: Operand) -> Operand:
        """An operand that stood in parentheses, with the operators that follow it."""
        return self.as_operand(self.rest_of_value(self.as_scalar(left), ARITHMETIC, 0), left.start)

    def begins_value(self) -> bool:
        """Whether what was refused as a plain operand may be a computed one."""
        at = self.at
        while self.tokens.kind(at) in ("(", "-", "+") or self.tokens[at].value == "~":
            at += 1
        token = self.tokens[at]
        begins = token.word in ("CASE", "INTERVAL") or (token.kind == "reserved" and token.word in _SPECIAL_WORDS)
        return at > self.at or begins or self.is_function(at)

    def is_function(self, at: int) -> bool:
        """Whether a function is called there: its name is one only before a parenthesis."""
        token = self.tokens[at]
        if token.kind not in _FUNCTION_KINDS or not token.word or self.tokens.kind(at + 1) != "(":
            return False
        return token.kind != "reserved" or token.word in ("ILIKE", *_SPECIAL_WORDS) or self.is_quantifier(at)

    def is_quantifier(self, at: int) -> bool:
        """Whether EXISTS or FORALL of an array stands there, not of documents: with a variable and an arrow."""
        if self.tokens[at].word not in QUANTIFIERS or self.tokens.kind(at + 1) != "(":
            return False
        depth = 0
        for place in range(at + 1, min(at + MAX_SIZE, len(self.tokens))):
            kind = self.tokens.kind(place)
            depth += (kind == "(") - (kind == ")")
            if depth == 0:
                return False
            if depth == 1 and kind == "other" and self.tokens[place].value == "->":
                return True
        return False

    def move_to(self, at: int) -> None:
        self.at, self.next = at, self.tokens[at]

    def as_scalar(self, operand: Operand) -> Scalar:
        if operand.interval is not None:
            return operand.interval
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
        if kinds_of(scalar) == functions().Kinds.ARRAY:
            advice = "write array_contains(array(1, 2), a), or a IN (1, 2); a = 1 asks for an element"
            raise Refused("an array as a whole is not compared", advice, start, end)
        return Operand(computed_name(scalar, self.is_condition(scalar)), None, start, end)

    def is_condition(self, scalar: Scalar) -> bool:
        return isinstance(scalar, Call) and functions().FUNCTIONS[scalar.function].result == functions().Kinds.BOOLEAN

    # -- values ------------------------------------------------------------------------------------------------------

    def value(self, level: int, depth: int) -> Scalar:
        """A value with the operators behind it that bind at least so tightly."""
        if depth > _MAX_DEPTH:
            raise self.too_nested(self.next)
        if level <= NOT and self.next.kind in ("NOT", "!"):
            place = self.advance()
            return self.rest_of_value(self.make_call("NOT", [self.value(NOT, depth + 1)], place), level, depth)
        return self.rest_of_value(self.unary(depth), level, depth)

    def too_nested(self, place: Token) -> Refused:
        message = f"more than {MAX_NESTED} values stand within each other"
        return Refused(message, "put a part of it into the events as an attribute", place.start, place.end)

    def rest_of_value(self, left: Scalar, level: int, depth: int) -> Scalar:
        while True:
            if self.next.value == "::" and self.next.kind == "other":
                self.advance()
                left = self.cast_value(left, self.advance())
                continue
            if self.next.value == "[" and self.next.kind == "other":
                left = self.element(left, depth)
                continue
            if level <= COMPARISON and self.begins_test():
                left = self.test(left, depth)
                continue
            sign, binds, tokens = self.operator()
            if not binds or binds < level:
                return left
            place = self.next
            operands = [left]
            while True:
                for _ in range(tokens):
                    self.advance()
                operands.append(self.value(binds + 1, depth + 1))
                if sign not in _CHAINED or self.operator()[0] != sign:
                    break
            left = self.make_call(sign, operands, place)

    def begins_test(self) -> bool:
        return self.next.kind in _TESTS or (self.next.kind == "reserved" and self.next.word == "ILIKE")

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
            inner = self.value(UNARY, depth + 1)
            if isinstance(inner, Field) and inner.name.upper() in NOT_FINITE:
                message = f"a constant is expected, not the attribute {inner.name}"
                raise Refused(message, as_constant(inner.name), sign.start, self.tokens[self.at - 1].end)
            made = self.make_call("~" if sign.value == "~" else "NEGATIVE", [inner], sign)
            return inner if sign.kind == "+" else made
        return self.primary(depth)

    def primary(self, depth: int) -> Scalar:
        token = self.next
        if token.kind == "(":
            self.advance()
            inner = self.value(OR, depth + 1)
            self.take(")", ")", "the parenthesis holds one value")
            return inner
        if token.word == "CASE" and token.kind == "reserved":
            return self.case(depth)
        if token.word == "INTERVAL" and token.kind == "reserved":
            self.advance()
            return read_interval(self)
        if self.is_function(self.at):
            return self.function(depth)
        if token.kind == "reserved" and token.word in _SPECIAL_WORDS:
            self.advance()
            return self.present(token.word, token)
        operand = self.atom("a value", negative=False)
        if operand.attribute is not None and operand.attribute[:1] == "\0":
            message = "a subquery does not stand within a computed value"
            advice = "compare it with an attribute of the event or with a constant"
            raise Refused(message, advice, operand.start, operand.end)
        return self.variable(operand.attribute) or self.as_scalar(operand)

    def variable(self, name: str | None) -> Field | None:
        """What stands for an element, or lies in it."""
        first, dot, path = (name or "").partition(".")
        if first not in self.variables:
            return None
        depth = len(self.variables) - self.variables[::-1].index(first)
        return Field(f"{BOUND}{depth}{dot}{path}")

    def element(self, array: Scalar, depth: int) -> Scalar:
        """array[0], with a path behind it perhaps."""
        place = self.advance()
        number = self.value(OR, depth + 1)
        if self.next.value != "]" or self.next.kind != "other":
            raise self.refuse_unexpected("]", _ELEMENT_FORM)
        self.advance()
        found = self.make_call("GET", [array, number], place)
        if self.next.value == "." and self.next.kind == "other":
            self.advance()
            found = self.make_call("GET", [found, text_value(self.take("name", "a name", _ELEMENT_FORM).value)], place)
        return found

    def present(self, function: str, place: Token) -> Scalar:
        """The time of the match, or its day."""
        return self.measured(Call(functions().FUNCTIONS[function].name, (Field(PRESENT),)), place)

    # -- what calls.py reads -----------------------------------------------------------------------------------------

    def function(self, depth: int) -> Scalar:
        raise NotImplementedError

    def case(self, depth: int) -> Scalar:
        raise NotImplementedError

    def cast_value(self, value: Scalar, to: Token) -> Scalar:
        raise NotImplementedError

    def test(self, left: Scalar, depth: int) -> Scalar:
        raise NotImplementedError

    # -- calls -------------------------------------------------------------------------------------------------------

    def make_call(self, function: str, arguments: list[Scalar], place: Token, may_fail: bool = False) -> Scalar:
        """The call, checked; computed at once, if it is of constants alone."""
        table = functions()
        known = table.FUNCTIONS[function]
        self.check_count(known, len(arguments), place)
        if self.types and known.name in _COMPARING:
            arguments = self.constants_as_declared(arguments, place)
        for number, argument in enumerate(arguments):
            if known.kinds_of(number) & table.Kinds.ARRAY and isinstance(argument, Field):
                arguments[number] = argument = as_whole(argument)
            wanted, given = known.kinds_of(number), self.kinds(argument)
            if wanted & table.Kinds.TIME:
                wanted |= table.Kinds.STRING
            if given and not given & wanted:
                message = f"{show_token(place)} takes {table.describe_kinds(known.kinds_of(number))} here, not "
                advice = "CAST(value AS type) makes a value of another kind"
                self.problems.add(message + table.describe_kinds(given), advice, place.start, place.end)
        if known.name in _FLAT:
            arguments = [each for one in arguments for each in self.parts(one, known.name)]
        made = Call(known.name, tuple(arguments))
        if known.name == "ARRAY" or any(isinstance(argument, (Field, Call)) for argument in arguments):
            return self.measured(made, place)
        self.has_folded = True
        result = table.evaluate(made, {})
        if result is None and not may_fail and not known.takes_null and Value(None) not in arguments:
            advice = "no condition on it is ever TRUE: write another constant"
            self.problems.add(f"{show_token(place)} of these constants is NULL", advice, place.start, place.end)
        return result if isinstance(result, Interval) else Value(table.literal_of(result))

    def constants_as_declared(self, arguments: list[Scalar], place: Token) -> list[Scalar]:
        """Constants that are compared with an attribute of a declared type, as ones of that type."""
        named = (argument.name for argument in arguments if isinstance(argument, Field))
        name = next((name for name in named if self.declared(name) is not None), None)
        return [
            Value(self.typed(name, argument.literal, place.start, place.end))
            if isinstance(argument, Value) and argument.literal is not None
            else argument
            for argument in arguments
        ]

    def kinds(self, scalar: Scalar) -> Any:
        """Which kinds its values may have, as far as types are declared."""
        type_ = self.declared(scalar.name) if isinstance(scalar, Field) else None
        if type_ is None:
            return kinds_of(scalar)
        kinds = functions().Kinds
        return (kinds.BOOLEAN, kinds.NUMBER, kinds.STRING, kinds.TIME)[KINDS[type_]]

    @staticmethod
    def parts(scalar: Scalar, function: str) -> tuple[Scalar, ...]:
        return scalar.arguments if isinstance(scalar, Call) and scalar.function == function else (scalar,)

    def measured(self, made: Call, place: Token) -> Call:
        """The call, if it is not too large."""
        parts = [self.measure(argument) for argument in made.arguments]
        size, depth = 1 + sum(part[0] for part in parts), 1 + max((part[1] for part in parts), default=0)
        if depth > MAX_NESTED:
            raise self.too_nested(place)
        if size > MAX_SIZE:
            message = f"a value has more than {MAX_SIZE:,} attributes, constants and operators"
            raise Refused(message, "put a part of it into the events as an attribute", place.start, place.end)
        self.measures[id(made)] = size, depth, made
        return made

    def measure(self, scalar: Scalar) -> tuple[int, int]:
        """Nodes, and how deep they are nested."""
        if isinstance(scalar, Lambda):
            size, depth = self.measure(scalar.body)
            return size + 1, depth + 1
        if not isinstance(scalar, Call):
            return 1, 0
        if id(scalar) not in self.measures:
            self.measured(scalar, self.next)
        return self.measures[id(scalar)][:2]

    def check_count(self, function: Any, count: int, place: Token) -> None:
        least, most = function.least, function.most
        if count < least or (most is not None and count > most):
            several = f"{least}" if most == least else f"at least {least}" if most is None else f"{least} to {most}"
            plural = "" if least == 1 and several.endswith("1") else "s"
            message = f"{show_token(place)} takes {several} argument{plural}, not {count}"
            advice = f"write {functions().describe_call(function)}: {function.about}"
            raise Refused(message, advice, place.start, place.end)


def kinds_of(scalar: Scalar) -> Any:
    """Which kinds its values may have; none: it is NULL."""
    kinds = functions().Kinds
    if isinstance(scalar, Field):
        if scalar.name == EVERY:
            return kinds.STRING
        return kinds.ANY | kinds.ARRAY if scalar.name[:2] == WHOLE else kinds.ANY
    if isinstance(scalar, Lambda):
        return kinds.ANY
    if isinstance(scalar, Interval):
        return kinds.INTERVAL
    if isinstance(scalar, Call):
        function, arguments = scalar
        if function == "CAST":
            return functions().casts.kinds_of_type(arguments[1].literal.value)  # type: ignore[union-attr]
        if function in _CHOOSING or function == "CASE":
            found = kinds(0)
            last = len(arguments) // 2 * 2
            given = (*arguments[1:last:2], *arguments[last:]) if function == "CASE" else arguments[_CHOOSING[function]]
            for argument in given:
                found |= kinds_of(argument)
            return found
        return functions().FUNCTIONS[function].result
    if scalar.literal is None:
        return kinds(0)
    return (kinds.BOOLEAN, kinds.NUMBER, kinds.STRING, kinds.TIME)[scalar.literal.kind]


def as_whole(field: Field) -> Field:
    """The array as it came, in place of each of its elements."""
    return field if field.name == EVERY or field.name[:2] == WHOLE else Field(WHOLE + field.name)


def may_be_true(scalar: Scalar) -> bool:
    """Whether it may be a boolean."""
    return bool(kinds_of(scalar) & functions().Kinds.BOOLEAN)


def text_value(text: str) -> Value:
    return Value(Literal(Kind.STRING, text))


def functions() -> Any:
    """dibs.language.functions, which most texts do without."""
    return bring("dibs.language.functions")
