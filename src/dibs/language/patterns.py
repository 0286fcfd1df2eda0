"""Reading LIKE, ILIKE and RLIKE from the tokens of a text, and making predicates of computed conditions."""

from __future__ import annotations

from dibs.language.calls import QUANTIFIERS, CallReader
from dibs.language.expression import (
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
)
from dibs.language.like import LikeError, like_regex, plain_test
from dibs.language.operands import Operand
from dibs.language.printer import YES, is_join
from dibs.language.problems import Refused
from dibs.language.regex import refusal
from dibs.language.scalars import Call, Field, Scalar, Value, computed_name
from dibs.language.tokens import Token
from dibs.language.values import functions, text_value

STRING_TESTS = frozenset(["STARTSWITH", "ENDSWITH", "CONTAINS"])


class PatternReader(CallReader):
    """Predicates with patterns."""

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


def _text(scalar: Scalar) -> str:
    literal = scalar.literal if isinstance(scalar, Value) else None
    return literal.value if literal is not None and isinstance(literal.value, str) else ""
