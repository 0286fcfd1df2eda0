"""Reading predicates from the tokens of a text. See sql.py for the grammar and the shapes."""

from __future__ import annotations

from typing import NamedTuple

from dibs.language.advice import FUNCTIONS, NOT_FINITE, as_constant
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
    Not,
    Or,
    Predicate,
    RLike,
    StringTest,
    Truth,
    negate,
    number,
)
from dibs.language.like import LikeError, like_regex, plain_test
from dibs.language.literals import LiteralError, compare, listed_time
from dibs.language.operands import Operand
from dibs.language.printer import YES, is_join
from dibs.language.problems import Refused
from dibs.language.regex import refusal
from dibs.language.scalars import Call, Scalar, Value, computed_name, is_computed, scalar_of
from dibs.language.tokens import refuse_unexpected
from dibs.language.values import ValueReader, may_be_true

COMPARISONS = frozenset(FLIPPED_OPERATOR)
RANGES = frozenset(["IN", "BETWEEN", "LIKE", "RLIKE"])
TRUTHS = {"TRUE": True, "FALSE": False, "UNKNOWN": None}
MAX_UNKNOWN = 3  # one IS UNKNOWN within the other: each doubles the normal form of what is below it


class Condition(NamedTuple):
    expression: Expression
    depth: int  # of And, Or, Not and Truth nodes
    start: int
    broken: bool = False  # a problem is reported, so nothing more is said about what follows
    whole: bool = False  # in parentheses, or such that Spark lets IS TRUE follow it without: a comparison, a function


class PredicateReader(ValueReader):
    """Conditions without AND, OR and NOT; after a problem it goes on behind the condition."""

    takes_constants_only = False  # in lists and BETWEEN

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
            depth = int(isinstance(expression, (And, Or, Truth)))
            is_comparison = self.next.kind == "IS" and not COMPARISONS.isdisjoint(self.tokens.kinds(begin, self.at))
            return Condition(expression, depth, value.start, whole=is_comparison)
        except Refused as refused:
            return self.read_broken(refused, begin)

    def continue_value(self, value: Operand) -> Operand | Condition:
        """What an operand is with the arithmetic that follows it."""
        begin = self.at
        try:
            return self.continued(value)
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
        if kind == "IS":
            return self.after_is(condition)
        if kind in COMPARISONS or kind in RANGES:
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
        if left.interval is not None and right.interval is None:
            left, operator, right = right, FLIPPED_OPERATOR[operator], left
        if right.interval is not None:
            return self.compare_interval(left, operator, right)
        if left.attribute is not None and right.attribute is not None:
            return self.compare_values(left, operator, right)
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

    def compare_values(self, left: Operand, operator: str, right: Operand) -> Expression:
        """Two attributes, or what is computed from them: one attribute that says whether it is so."""
        for side in (left, right):
            if side.attribute is not None and side.attribute.upper() in NOT_FINITE:
                advice = f"compare with a constant; {as_constant(side.attribute)}"
                self.problems.add("an attribute is compared with an attribute", advice, left.start, right.end)
        return self.holds(Call(operator, (self.as_scalar(left), self.as_scalar(right))))

    def holds(self, condition: Scalar, negated: bool = False) -> Expression:
        return Compare(computed_name(condition, is_condition=True), "<>" if negated else "=", YES)

    def compare_interval(self, left: Operand, operator: str, right: Operand) -> Expression:
        """A difference of times beside an interval: its microseconds beside a number."""
        assert right.interval is not None
        if left.attribute is None or right.interval.months:
            message = "an interval is compared with a difference of times"
            advice = "write at - created > INTERVAL 5 MINUTES, in units of at most weeks"
            raise Refused(message, advice, left.start, right.end)
        difference = Call("INTERVAL_MICROSECONDS", (self.as_scalar(left),))
        return Compare(computed_name(difference), operator, number(right.interval.microseconds))

    def null_test(self, left: Operand) -> Expression:
        """IS [NOT] NULL, TRUE, FALSE or UNKNOWN behind an operand."""
        negated = self.is_not()
        if self.next.word in TRUTHS:
            return self.truth_test(self.condition(left).expression, negated)
        self.take("NULL", "NULL, TRUE, FALSE or UNKNOWN", "compare by = or <>")
        if left.attribute is not None:
            return IsNull(left.attribute, negated)
        return TRUE if (left.literal is None) != negated else FALSE

    def after_is(self, condition: Condition) -> Condition:
        """IS [NOT] TRUE, FALSE or UNKNOWN behind a condition."""
        place = self.next
        negated = self.is_not()
        if self.next.kind == "NULL":
            advice = f"write IS {'NOT ' * negated}UNKNOWN; IS NULL is asked of an attribute"
            raise Refused("a condition is not NULL but UNKNOWN", advice, place.start, self.next.end)
        if self.next.word not in TRUTHS:
            raise self.refuse_unexpected("TRUE, FALSE or UNKNOWN", "write (price < 10) IS NOT TRUE")
        if not condition.whole:
            advice = "put it in parentheses, as in (color IN ('red', 'blue')) IS NOT TRUE"
            what = f"IS {'NOT ' * negated}{self.next.word}"
            raise Refused(f"it is not clear what {what} is asked of", advice, place.start, self.next.end)
        expression = self.truth_test(condition.expression, negated)
        return Condition(expression, condition.depth + isinstance(expression, Truth), condition.start)

    def is_not(self) -> bool:
        """Reads IS, and whether NOT follows."""
        self.advance()
        if self.next.kind != "NOT":
            return False
        self.advance()
        return True

    def truth_test(self, child: Expression, negated: bool) -> Expression:
        """Reads TRUE, FALSE or UNKNOWN."""
        token = self.advance()
        value = TRUTHS[token.word]
        if isinstance(child, Constant):
            return TRUE if (child.value is value) != negated else FALSE
        if value is None and not _can_be_doubled(child):
            message = f"IS UNKNOWN is asked of IS UNKNOWN, more than {MAX_UNKNOWN} deep"
            raise Refused(message, "IS TRUE, IS FALSE and IS UNKNOWN are never UNKNOWN", token.start, token.end)
        return Truth(child, value, negated)

    def condition(self, operand: Operand) -> Condition:
        """An operand that stands for a condition: a bare attribute asks for TRUE."""
        literal = operand.literal
        expression: Expression = UNKNOWN
        if operand.attribute is not None:
            expression = Compare(operand.attribute, "=", YES)
            if is_computed(operand.attribute) and not may_be_true(scalar_of(operand.attribute)):
                advice = "compare it, as in price * quantity > 100"
                self.problems.add("a condition is expected, not a value", advice, operand.start, operand.end)
        elif literal is not None and literal.kind == Kind.BOOLEAN:
            expression = TRUE if literal.value else FALSE
        elif literal is not None:
            advice = "compare it with an attribute, as in price < 10"
            if literal.kind == Kind.STRING:
                advice += "; quotes make a string, a name is quoted with backticks"
            self.problems.add("a condition is expected, not a constant", advice, operand.start, operand.end)
        return Condition(expression, 0, operand.start)

    def in_list(self, attribute: str, negated: bool) -> Expression:
        opening = self.take("(", "a list in parentheses", "write attribute IN (1, 2, 3)")
        literals: list[Literal] = []
        values: list[Scalar] = []  # as soon as one of them is no constant, all are
        places: list[tuple[int, int]] = []
        null = False
        if self.next.kind == ")":
            message, advice = "IN needs at least one constant", "write attribute IN (1, 2, 3)"
            raise Refused(message, advice, opening.start, self.next.end)
        while True:
            item = self.item()
            values.append(self.as_scalar(item))
            if item.literal is None:
                null = True
            else:
                literals.append(item.literal)
                places.append((item.start, item.end))
            if self.next.kind != ",":
                break
            self.advance()
        self.take(")", ", or )", "the constants are separated by commas, and ) ends the list")
        if all(isinstance(value, Value) for value in values):
            literals = self.as_times(literals, places)
            return In(attribute, tuple(literals), negated, null) if literals else UNKNOWN
        listed = Call("IN", (self.as_scalar(Operand(attribute, None, 0, 0)), *values))
        return self.holds(listed, negated)

    def item(self) -> Operand:
        """What may stand where mostly constants do: a constant, an attribute, or what is computed."""
        place = self.next
        if place.kind == "string" and self.tokens.kind(self.at + 1) in (",", ")", "AND"):
            self.advance()
            return Operand(None, Literal(Kind.STRING, place.value), place.start, place.end)
        found = self.operand("a constant")
        if found.attribute is not None and (
            is_join(found.attribute) or found.attribute.upper() in NOT_FINITE or self.takes_constants_only
        ):
            what, advice = self.describe_no_constant(place, found.attribute)
            self.problems.add(f"a constant is expected, not {what}", advice, found.start, found.end)
            return found._replace(attribute=None)
        if found.interval is not None:
            self.problems.add("an interval is not expected here", "compare by < and >", found.start, found.end)
        return found

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
        first = self.item()
        self.take("AND", "AND", "write attribute BETWEEN 1 AND 5")
        last = self.item()
        if first.attribute is not None or last.attribute is not None:
            value = self.as_scalar(Operand(attribute, None, 0, 0))
            return self.holds(Call("BETWEEN", (value, self.as_scalar(first), self.as_scalar(last))), negated)
        low, high = first.literal, last.literal
        if low is not None and high is not None:
            ends = self.as_times([low, high], [(first.start, first.end), (last.start, last.end)])
            low, high = ends if len(ends) == 2 else (low, high)  # else it is reported
            return Between(attribute, low, high, negated)
        if low is None and high is None:
            return UNKNOWN
        bounds: list[Predicate | Constant] = [
            UNKNOWN if low is None else Compare(attribute, ">=", low),
            UNKNOWN if high is None else Compare(attribute, "<=", high),
        ]
        if not negated:
            return And(tuple(bounds))
        return Or(tuple(bound if isinstance(bound, Constant) else negate(bound) for bound in bounds))

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
        return Condition(tested, 0, name.start, whole=True)


def _can_be_doubled(expression: Expression) -> bool:
    """Whether IS UNKNOWN, which says everything below it twice (normal_form.py), may be asked of it."""
    stack: list[tuple[Expression, int]] = [(expression, 1)]
    while stack:
        node, deep = stack.pop()
        if isinstance(node, (And, Or)):
            stack.extend((child, deep) for child in node.children)
        elif isinstance(node, (Not, Truth)):
            deep += isinstance(node, Truth) and node.value is None
            if deep > MAX_UNKNOWN:
                return False
            stack.append((node.child, deep))
    return True
