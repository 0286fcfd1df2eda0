"""Reading comparisons, of an attribute or a value with a constant, an interval, NULL, another value or a pattern (LIKE,
ILIKE, RLIKE), and making predicates of computed conditions."""

from __future__ import annotations

from dibs.language.calls import QUANTIFIERS, CallReader
from dibs.language.expression import (
    FALSE,
    FLIPPED_OPERATOR,
    TRUE,
    UNKNOWN,
    And,
    Between,
    Compare,
    Constant,
    Expression,
    In,
    IsNull,
    Kind,
    Like,
    Literal,
    Or,
    RLike,
    StringTest,
    Truth,
    number,
)
from dibs.language.literals import compare
from dibs.language.operands import Operand
from dibs.language.printer import EVERY, YES, is_join
from dibs.language.problems import NOT_FINITE, Refused, as_constant
from dibs.language.regex import LikeError, like_regex, plain_test, refusal
from dibs.language.scalars import (
    PRESENT,
    Call,
    Field,
    Interval,
    Scalar,
    Value,
    computed_name,
    is_computed,
    scalar_of,
    text_of,
)
from dibs.language.tokens import Token
from dibs.language.values import functions, kinds_of, text_value

STRING_TESTS = frozenset(["STARTSWITH", "ENDSWITH", "CONTAINS"])


class ComparisonReader(CallReader):
    """Predicates that compare."""

    # -- patterns ------------------------------------------------------------------------------------------------------

    def pattern(self, left: Operand, operator: str, negated: bool) -> Expression:
        """What stands behind LIKE, ILIKE or RLIKE."""
        place = self.tokens[self.at - 1]
        if self.next.word not in QUANTIFIERS or self.tokens.kind(self.at + 1) != "(" or operator == "RLIKE":
            return self.one_pattern(left, operator, negated, place)
        is_all = self.advance().word == "ALL"
        self.advance()
        if self.next.kind == ")":
            raise self.no_patterns(place)
        found: list[Expression] = []
        while True:
            found.append(self.one_pattern(left, operator, negated, place))
            if self.next.kind != ",":
                break
            self.advance()
        self.take(")", ", or )", "the patterns are separated by commas, and ) ends the list")
        if len(found) == 1:
            return found[0]
        return And(tuple(found)) if is_all else Or(tuple(found))

    def one_pattern(self, left: Operand, operator: str, negated: bool, place: Token) -> Expression:
        at = self.next
        pattern = self.operand("a string")
        escape, escape_place = "\\", self.next
        if operator != "RLIKE" and self.next.kind == "ESCAPE":
            self.advance()
            escape_place = self.next
            escape = self.text("ESCAPE") or ""
            if len(escape) != 1:
                advice = "write one character, as in LIKE '10!%' ESCAPE '!'"
                self.problems.add("ESCAPE takes one character", advice, escape_place.start, escape_place.end)
                return UNKNOWN
        return self.matches(left, operator, negated, pattern, escape, place, at)

    def matches(
        self, left: Operand, operator: str, negated: bool, pattern: Operand, escape: str, place: Token, at: Token
    ) -> Expression:
        if pattern.attribute is not None and not is_join(pattern.attribute):
            arguments = [self.as_scalar(left), self.as_scalar(pattern)]
            if operator != "RLIKE":
                arguments.append(text_value(escape))
            return self.holds(self.pattern_call(operator, arguments, place), negated)
        self.typed_text(left.attribute, operator, left.start, left.end)
        text = self.constant_text(pattern, operator)
        attribute = self.subject(left, operator)
        if text is None:
            return UNKNOWN
        if operator == "RLIKE":
            return self.rlike(attribute, text, negated, at)
        if operator == "ILIKE" and left.attribute is not None:
            lowered = self.make_call("LOWER", [self.as_scalar(left)], place)
            assert isinstance(lowered, Call)
            attribute = computed_name(lowered)
            text, self.has_folded = functions().texts.lower(text), True
        return self.like(attribute, text, escape, negated, at)

    def like(self, attribute: str, pattern: str, escape: str, negated: bool, at: Token) -> Expression:
        try:
            reason = None if plain_test(pattern, escape) else refusal(like_regex(pattern, escape))
        except LikeError as error:
            advice = f"the escape character stands before %, _ or itself; write {escape}{escape} for {escape}"
            if escape == "\\":
                advice += ", which in a quoted string is \\\\\\\\"
            self.problems.add(str(error), advice, at.start, at.end)
            return UNKNOWN
        if reason is not None:
            self.problems.add(f"the pattern cannot be used: {reason}", "shorten it", at.start, at.end)
        return Like(attribute, pattern, escape, negated)

    def rlike(self, attribute: str, pattern: str, negated: bool, at: Token) -> Expression:
        reason = refusal(pattern)
        if reason is not None:
            advice = (
                "patterns follow RE2, which has no backreferences and no lookaround; "
                "in a quoted string every backslash is written twice, unless it is a raw string as r'\\d'"
            )
            self.problems.add(f"the pattern cannot be used: {reason}", advice, at.start, at.end)
        return RLike(attribute, pattern, negated)

    # -- predicates on computed values -------------------------------------------------------------------------------

    def holds(self, condition: Scalar, negated: bool = False) -> Expression:
        """Whether a computed condition is TRUE: by a predicate on its first argument, if there is one that says it."""
        if not isinstance(condition, Call):
            truth = condition.literal.value if isinstance(condition, Value) and condition.literal is not None else None
            return Constant(truth is not negated) if isinstance(truth, bool) else UNKNOWN
        subject, *rest = condition.arguments
        if isinstance(subject, Field) or (isinstance(subject, Call) and not self.is_condition(subject)):
            name = subject.name if isinstance(subject, Field) else computed_name(subject)
            if condition.function in ("ISNULL", "ISNOTNULL"):
                return IsNull(name, negated != (condition.function == "ISNOTNULL"))
            if condition.function in STRING_TESTS and rest == [text_value(text := _text(rest[0]))]:
                return StringTest(name, condition.function, text, negated)
            if condition.function in ("SAME_TEXT", "IP_IN") and rest == [text_value(_text(each)) for each in rest]:
                return self.one_of(condition, list(map(_text, rest)), negated)
        return Compare(self.named(condition, is_condition=True), "<>" if negated else "=", YES)

    def one_of(self, condition: Call, texts: list[str], negated: bool) -> Expression:
        """SAME_TEXT and IP_IN with constants: an attribute that all such tests share, beside strings."""
        subject = condition.arguments[0]
        if condition.function == "SAME_TEXT":
            self.has_folded = True
            name = self.named(Call("CAST", (subject, text_value("STRING"))))
            literals = tuple(Literal(Kind.STRING, text) for text in dict.fromkeys(texts))
            equal = Compare(name, "<>" if negated else "=", literals[0])
            return equal if len(literals) == 1 else In(name, literals, negated)
        name = self.named(Call("IP_KEY", (subject,)))
        found: list[Expression] = []
        for span in functions().networks.spans_of(texts):
            first, last = (Literal(Kind.STRING, key) for key in span)
            is_one = first == last
            equal = Compare(name, "<>" if negated else "=", first)
            found.append(equal if is_one else Between(name, first, last, negated))
        if len(found) == 1:
            return found[0]
        return And(tuple(found)) if negated else Or(tuple(found))

    def named(self, call: Call, is_condition: bool = False) -> str:
        """The attribute that a call is, if it is not too large."""
        return computed_name(self.measured(call, self.tokens[self.at - 1]), is_condition)

    def subject(self, left: Operand, operator: str) -> str:
        """The attribute that a predicate with constants tests."""
        if left.attribute is None:
            advice = f"write attribute {operator} ..., with the constants on the right"
            message = f"an attribute is expected on the left of {operator}"
            self.problems.add(message, advice, left.start, left.end)
        return left.attribute or ""

    def refuse_joins(self, *operands: Operand) -> None:
        for operand in operands:
            if operand.attribute is not None and is_join(operand.attribute):
                advice = "compare it by =, <>, <, <=, > or >=, or with IN or BETWEEN"
                raise Refused("a subquery does not stand here", advice, operand.start, operand.end)

    # -- comparisons --------------------------------------------------------------------------------------------------

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


def _text(scalar: Scalar) -> str:
    literal = scalar.literal if isinstance(scalar, Value) else None
    return literal.value if literal is not None and isinstance(literal.value, str) else ""
