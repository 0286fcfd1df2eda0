"""Reading predicates from the tokens of a text. See sql.py for the grammar and the shapes."""

from __future__ import annotations

from typing import NamedTuple

from dibs.language.advice import FUNCTIONS, as_constant
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
    Predicate,
    RLike,
    StringTest,
    negate,
)
from dibs.language.like import LikeError, like_regex, plain_test
from dibs.language.literals import LiteralError, compare, listed_time
from dibs.language.operands import Operand, OperandReader
from dibs.language.problems import Refused
from dibs.language.regex import refusal
from dibs.language.tokens import refuse_unexpected

COMPARISONS = frozenset(FLIPPED_OPERATOR)
RANGES = frozenset(["IN", "BETWEEN", "LIKE", "RLIKE"])


class Condition(NamedTuple):
    expression: Expression
    depth: int  # of And, Or and Not nodes
    start: int
    broken: bool = False  # a problem is reported, so nothing more is said about what follows


class PredicateReader(OperandReader):
    """Conditions without AND, OR and NOT; after a problem it goes on behind the condition."""

    # -- conditions --------------------------------------------------------------------------------------------------

    def start_of_condition(self) -> Operand | Condition:
        """What stands at the beginning of a condition; a bad one is reported, skipped, and counts as unknown."""
        begin = self.at
        try:
            if self.next.word in FUNCTIONS and self.tokens.kind(self.at + 1) == "(":
                return self.string_test()
            return self.operand("a condition")
        except Refused as refused:
            return self.read_broken(refused, begin)

    def rest_of_condition(self, value: Operand | Condition) -> Condition:
        """What follows an operand, with that operand on its left."""
        begin = self.at
        try:
            if isinstance(value, Condition):
                return self.after_condition(value)
            expression = self.predicate(value)
            return Condition(expression, int(isinstance(expression, (And, Or))), value.start)
        except Refused as refused:
            return self.read_broken(refused, begin)

    def read_broken(self, refused: Refused, begin: int) -> Condition:
        self.problems.add(*refused.found)
        self.skip(begin)
        return Condition(UNKNOWN, 0, self.tokens[begin].start, broken=True)

    def after_condition(self, condition: Condition) -> Condition:
        """A condition is complete, but neither AND, OR, nor the end of its parentheses follows."""
        kind = self.next.kind
        if kind == ")":
            token = self.advance()
            self.problems.add("no parenthesis is open here", "leave out the )", token.start, token.end)
            return condition
        if condition.broken:
            self.skip(self.at)
            return condition
        if kind in COMPARISONS or kind in RANGES or kind == "IS":
            advice = "compare attributes with constants; conditions are joined by AND and OR"
            raise refuse_unexpected(self.next, "AND, OR or the end of the expression", advice)
        raise self.refuse_unexpected("AND, OR or the end of the expression", "conditions are joined by AND and OR")

    def predicate(self, left: Operand) -> Expression:
        kind = self.next.kind
        if kind in COMPARISONS:
            self.advance()
            return self.comparison(left, kind, self.operand("an attribute or a constant"))
        if kind == "IS":
            return self.null_test(left)
        negated = kind == "NOT"
        if negated:
            self.advance()
            if self.next.kind not in RANGES:
                advice = (
                    "NOT stands before a condition, or before IN, BETWEEN, LIKE and RLIKE; for NULL write IS NOT NULL"
                )
                raise refuse_unexpected(self.next, "IN, BETWEEN, LIKE or RLIKE", advice)
        if self.next.kind not in RANGES:
            raise self.no_operator()
        operator = self.advance()
        if left.attribute is None:
            advice = f"write attribute {operator.kind} ..., with the constants on the right"
            message = f"an attribute is expected on the left of {operator.value.upper()}"
            self.problems.add(message, advice, left.start, left.end)
        read = {"IN": self.in_list, "BETWEEN": self.between, "LIKE": self.like, "RLIKE": self.rlike}[operator.kind]
        return read(left.attribute or "", negated)

    def no_operator(self) -> Refused:
        """An operand is not followed by an operator."""
        before, token = self.tokens[self.at - 1], self.next
        if token.kind == ")":
            self.advance()
            return Refused("no parenthesis is open here", "leave out the )", token.start, token.end)
        advice = ""
        if token.kind in ("name", "number") and before.kind == "name":
            advice = "a name of several words needs backticks, as in `first name`"
        elif token.kind == "string" and before.kind == "name":
            advice = "an operator is missing, as in color = 'red'"
        return self.refuse_unexpected("an operator (as =, <, IN, LIKE, IS NULL), AND or OR", advice)

    def skip(self, begin: int) -> None:
        """Leaves the condition that began at token `begin`: to AND or OR outside of its parentheses, or their end."""
        passed = self.tokens.kinds(begin, self.at)
        depth = max(0, passed.count("(") - passed.count(")"))
        betweens = max(0, passed.count("BETWEEN") - passed.count("AND"))  # each owns one AND
        cases = 0  # inside CASE ... END nothing is a condition
        while (kind := self.next.kind) != "end":
            word = self.next.word
            if word == "CASE":
                cases += 1
            elif word == "END":
                cases = max(0, cases - 1)
            elif kind == "(":
                depth += 1
            elif kind == ")":
                if not depth:
                    return
                depth -= 1
            elif not depth and not cases:
                if kind == "BETWEEN":
                    betweens += 1
                elif kind == "AND" and betweens:
                    betweens -= 1
                elif kind in ("AND", "OR"):
                    return
            self.advance()

    # -- predicates --------------------------------------------------------------------------------------------------

    def comparison(self, left: Operand, operator: str, right: Operand) -> Expression:
        if left.attribute is not None and right.attribute is not None:
            advice = f"compare with a constant; {as_constant(right.attribute, left.attribute)}"
            message = "an attribute is compared with an attribute"
            self.problems.add(message, advice, left.start, right.end)
            return UNKNOWN
        if left.attribute is not None:
            return UNKNOWN if right.literal is None else Compare(left.attribute, operator, right.literal)
        if right.attribute is not None:
            flipped = FLIPPED_OPERATOR[operator]
            return UNKNOWN if left.literal is None else Compare(right.attribute, flipped, left.literal)
        for side in (left, right):
            if self.problems.text[side.start] == '"':
                advice = "double quotes make a string; a name is quoted with backticks"
                self.problems.add("a constant is compared with a constant", advice, side.start, side.end)
        if left.literal is None or right.literal is None:
            return UNKNOWN
        return compare(left.literal, operator, right.literal)

    def null_test(self, left: Operand) -> Expression:
        self.advance()
        negated = self.next.kind == "NOT"
        if negated:
            self.advance()
        if self.next.kind in ("TRUE", "FALSE"):
            token, other = self.next, "FALSE" if self.next.kind == "TRUE" else "TRUE"
            advice = f"write attribute = {token.kind}"
            if negated:
                advice = f"write attribute = {other} OR attribute IS NULL"
            raise Refused(f"IS {token.kind} is not supported", advice, token.start, token.end)
        self.take("NULL", "NULL", "IS is only used in IS NULL and IS NOT NULL; compare by = or <>")
        if left.attribute is not None:
            return IsNull(left.attribute, negated)
        return TRUE if (left.literal is None) != negated else FALSE

    def in_list(self, attribute: str, negated: bool) -> Expression:
        opening = self.take("(", "a list in parentheses", "write attribute IN (1, 2, 3)")
        literals: list[Literal] = []
        places: list[tuple[int, int]] = []
        null = False
        if self.next.kind == ")":
            message, advice = "IN needs at least one constant", "write attribute IN (1, 2, 3)"
            raise Refused(message, advice, opening.start, self.next.end)
        while True:
            start = self.next.start
            literal = self.constant()
            if literal is None:
                null = True
            else:
                literals.append(literal)
                places.append((start, self.tokens[self.at - 1].end))
            if self.next.kind != ",":
                break
            self.advance()
        self.take(")", ", or )", "the constants are separated by commas, and ) ends the list")
        literals = self.as_times(literals, places)
        return In(attribute, tuple(literals), negated, null) if literals else UNKNOWN

    def as_times(self, literals: list[Literal], places: list[tuple[int, int]]) -> list[Literal]:
        """Constants that stand together: beside a time, strings are times. A bad one is reported."""
        if len({literal.kind for literal in literals}) < 2 or all(literal.kind != Kind.TIME for literal in literals):
            return literals
        result = []
        for literal, place in zip(literals, places):
            try:
                result.append(listed_time(literal))
            except LiteralError as error:
                self.problems.add(error.message, error.advice, *place)
        return result

    def between(self, attribute: str, negated: bool) -> Expression:
        start = self.next.start
        low = self.constant()
        places = [(start, self.tokens[self.at - 1].end)]
        self.take("AND", "AND", "write attribute BETWEEN 1 AND 5")
        start = self.next.start
        high = self.constant()
        if low is not None and high is not None:
            ends = self.as_times([low, high], [*places, (start, self.tokens[self.at - 1].end)])
            low, high = ends if len(ends) == 2 else (low, high)  # else it is reported
            return Between(attribute, low, high, negated)
        if low is None and high is None:
            return UNKNOWN
        sides: list[Predicate | Constant] = [
            UNKNOWN if low is None else Compare(attribute, ">=", low),
            UNKNOWN if high is None else Compare(attribute, "<=", high),
        ]
        if not negated:
            return And(tuple(sides))
        return Or(tuple(side if isinstance(side, Constant) else negate(side) for side in sides))

    def like(self, attribute: str, negated: bool) -> Expression:
        place = self.next
        pattern = self.text("LIKE")
        escape: str | None = "\\"
        escape_place = self.next
        if self.next.kind == "ESCAPE":
            self.advance()
            escape_place = self.next
            escape = self.text("ESCAPE")
            if escape is None or len(escape) != 1:
                advice = "write one character, as in LIKE '10!%' ESCAPE '!'"
                self.problems.add("ESCAPE takes one character", advice, escape_place.start, escape_place.end)
                return UNKNOWN
        if pattern is None or escape is None:
            return UNKNOWN
        try:
            reason = None if plain_test(pattern, escape) else refusal(like_regex(pattern, escape))
        except LikeError as error:
            advice = f"the escape character stands before %, _ or itself; write {escape}{escape} for {escape}"
            if escape == "\\":
                advice += ", which in a quoted string is \\\\\\\\"
            self.problems.add(str(error), advice, place.start, place.end)
            return UNKNOWN
        if reason is not None:
            self.problems.add(f"the pattern cannot be used: {reason}", "shorten it", place.start, place.end)
        return Like(attribute, pattern, escape, negated)

    def rlike(self, attribute: str, negated: bool) -> Expression:
        place = self.next
        pattern = self.text("RLIKE")
        if pattern is None:
            return UNKNOWN
        reason = refusal(pattern)
        if reason is not None:
            advice = (
                "patterns follow RE2, which has no backreferences and no lookaround; "
                "in a quoted string every backslash is written twice, unless it is a raw string as r'\\d'"
            )
            self.problems.add(f"the pattern cannot be used: {reason}", advice, place.start, place.end)
        return RLike(attribute, pattern, negated)

    def string_test(self) -> Condition:
        name = self.advance()
        form = f"write {name.word}(attribute, 'text')"
        self.advance()
        subject = self.operand("an attribute")
        if subject.attribute is None:
            self.problems.add(f"the first argument of {name.word} is an attribute", form, subject.start, subject.end)
        self.take(",", "a comma", form)
        text = self.text(name.word)
        self.take(")", ")", form)
        tested = StringTest(subject.attribute or "", name.word, text) if text is not None else UNKNOWN
        return Condition(tested, 0, name.start)
