"""Reading comparisons: an attribute or a value beside a constant, an interval, NULL or another value."""

from __future__ import annotations

from dibs.language.advice import NOT_FINITE, as_constant
from dibs.language.expression import (
    FALSE,
    FLIPPED_OPERATOR,
    TRUE,
    UNKNOWN,
    Compare,
    Constant,
    Expression,
    IsNull,
    Kind,
    Literal,
    Truth,
    number,
)
from dibs.language.literals import compare
from dibs.language.operands import Operand
from dibs.language.patterns import PatternReader
from dibs.language.printer import EVERY
from dibs.language.problems import Refused
from dibs.language.scalars import PRESENT, Call, Field, Interval, Scalar, Value, is_computed, scalar_of, text_of
from dibs.language.values import functions, kinds_of


class ComparisonReader(PatternReader):
    """What the reader of predicates compares."""

    def comparison(self, left: Operand, operator: str, right: Operand) -> Expression:
        if left.interval is not None and right.interval is None:
            left, operator, right = right, FLIPPED_OPERATOR[operator], left
        if right.interval is not None:
            return self.compare_interval(left, operator, right)
        if left.attribute is not None and right.attribute is not None:
            return self.compare_values(left, operator, right)
        if left.attribute is not None:
            return self.compare_constant(left.attribute, operator, self.beside(left, right))
        if right.attribute is not None:
            return self.compare_constant(right.attribute, FLIPPED_OPERATOR[operator], self.beside(right, left))
        for side in (left, right):
            if self.problems.text[side.start] == '"':
                advice = "double quotes make a string; a name is quoted with backticks"
                self.problems.add("a constant is compared with a constant", advice, side.start, side.end)
        if left.literal is None or right.literal is None:
            return UNKNOWN
        return compare(left.literal, operator, right.literal)

    def beside(self, named: Operand, constant: Operand) -> Literal | None:
        """A constant that an attribute is compared with, as one of its type."""
        if not self.types or constant.literal is None:
            return constant.literal
        return self.typed(named.attribute, constant.literal, constant.start, constant.end)

    def compare_constant(self, attribute: str, operator: str, literal: Literal | None) -> Expression:
        if literal is None:
            return UNKNOWN
        self.check_strings(attribute, [literal])
        if not is_computed(attribute) or not self.is_condition(scalar := scalar_of(attribute)):
            return Compare(attribute, operator, literal)
        if literal.kind == Kind.BOOLEAN and operator in ("=", "<>") and text_of(scalar)[0] != "(":
            return self.holds(scalar, (operator == "=") != literal.value)
        # In parentheses it would be a condition, which is not compared: so the constant stands first.
        return self.holds(Call(FLIPPED_OPERATOR[operator], (Value(literal), scalar)))

    def check_strings(self, attribute: str, literals: list[Literal]) -> None:
        """ANY(*) has strings only, which a test with a time reads as times."""
        if attribute == EVERY and any(literal.kind in (Kind.NUMBER, Kind.BOOLEAN) for literal in literals):
            place = self.tokens[self.at - 1]
            advice = "write a string, as in ANY(*) = '5', or name the attribute"
            self.problems.add("ANY(*) has strings only", advice, place.start, place.end)

    def compare_values(self, left: Operand, operator: str, right: Operand) -> Expression:
        """Two attributes, or what is computed from them: one attribute that says whether it is so."""
        for side in (left, right):
            if side.attribute is not None and side.attribute.upper() in NOT_FINITE:
                advice = f"compare with a constant; {as_constant(side.attribute)}"
                self.problems.add("an attribute is compared with an attribute", advice, left.start, right.end)
        a, b = self.as_scalar(left), self.as_scalar(right)
        since = since_present(a)
        if since is not None:
            a, b, operator = b, a, FLIPPED_OPERATOR[operator]
        else:
            since = since_present(b)
        if since is not None and not isinstance(a, Value):
            # at > now() - INTERVAL 1 HOUR: how long ago it is, which all tests of this kind share, beside a constant
            passed = Call("INTERVAL_MICROSECONDS", (Call("-", (a, Call("NOW", (Field(PRESENT),)))),))
            return Compare(self.named(passed), operator, number(since))
        return self.holds(Call(operator, (a, b)))

    def same(self, left: Operand, right: Operand, negated: bool) -> Expression:
        """a <=> b, IS [NOT] DISTINCT FROM: NULL is like NULL, and nothing else is."""
        self.refuse_joins(left, right)
        if left.attribute is None and left.interval is None:
            left, right = right, left
        if right.attribute is None and right.literal is None and right.interval is None:
            return self.is_null(left, negated)
        a, b = self.as_scalar(left), self.as_scalar(right)
        if not isinstance(a, (Field, Call)) and not isinstance(b, (Field, Call)):
            self.has_folded = True
            return Constant(functions().evaluate(Call("<=>", (a, b)), {}) is not negated)
        if right.literal is not None and left.attribute is not None:
            literal = self.beside(left, right) or right.literal
            return Truth(Compare(left.attribute, "=", literal), True, negated)  # which an index can answer
        # In parentheses a condition would not be compared: so the constant stands first.
        sides = (b, a) if isinstance(b, Value) and self.is_condition(a) else (a, b)
        return self.holds(Call("<=>", sides), negated)

    def is_null(self, operand: Operand, negated: bool) -> Expression:
        if operand.attribute is None:
            missing = operand.literal is None and operand.interval is None
            return TRUE if missing != negated else FALSE
        if is_computed(operand.attribute) and self.is_condition(scalar_of(operand.attribute)):
            return self.holds(Call("ISNULL", (scalar_of(operand.attribute),)), negated)
        return IsNull(operand.attribute, negated)

    def compare_interval(self, left: Operand, operator: str, right: Operand) -> Expression:
        """A difference of times beside an interval: its microseconds beside a number."""
        assert right.interval is not None
        scalar = self.as_scalar(left)
        is_length = isinstance(scalar, Call) and kinds_of(scalar) & functions().Kinds.INTERVAL
        if not is_length or right.interval.months:
            message = "an interval is compared with a difference of times"
            advice = "write at - created > INTERVAL 5 MINUTES, in units of at most weeks"
            raise Refused(message, advice, min(left.start, right.start), max(left.end, right.end))
        difference = Call("INTERVAL_MICROSECONDS", (scalar,))
        return Compare(self.named(difference), operator, number(right.interval.microseconds))


def since_present(scalar: Scalar) -> int | None:
    """Of now(), and now() with an interval of a fixed length: microseconds after now()."""
    if not isinstance(scalar, Call):
        return None
    if scalar.function == "NOW":
        return 0
    if scalar.function not in ("+", "-"):
        return None
    first, *rest = scalar.arguments
    if isinstance(first, Interval) and scalar.function == "+":
        first, rest = rest[0], [first]
    if not rest or first != Call("NOW", (Field(PRESENT),)) or not isinstance(rest[0], Interval) or rest[0].months:
        return None
    return rest[0].microseconds if scalar.function == "+" else -rest[0].microseconds
