"""Reading predicates from the tokens of a text. See sql.py for the grammar and the shapes."""

from __future__ import annotations

from typing import NamedTuple

from dibs.language.comparisons import STRING_TESTS, ComparisonReader
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
    Kind,
    Literal,
    Not,
    Or,
    Predicate,
    StringTest,
    Truth,
    negate,
)
from dibs.language.literals import LiteralError, listed_time
from dibs.language.operands import Operand
from dibs.language.printer import YES, is_join
from dibs.language.problems import NOT_FINITE, Refused, refuse_unexpected
from dibs.language.scalars import Scalar, Value, is_computed, scalar_of
from dibs.language.values import OR, may_be_true

COMPARISONS = frozenset(FLIPPED_OPERATOR)
RANGES = frozenset(["IN", "BETWEEN", "LIKE", "ILIKE", "RLIKE"])
# Functions that say what a predicate says.
TESTS = STRING_TESTS | {"LIKE", "ILIKE", "RLIKE", "REGEXP", "REGEXP_LIKE", "ISNULL", "ISNOTNULL"}
TRUTHS = {"TRUE": True, "FALSE": False, "UNKNOWN": None}
MAX_UNKNOWN = 3  # one IS UNKNOWN within the other: each doubles the normal form of what is below it


class Condition(NamedTuple):
    expression: Expression
    depth: int  # of And, Or, Not and Truth nodes
    start: int
    broken: bool = False  # a problem is reported, so nothing more is said about what follows
    whole: bool = False  # in parentheses, or such that Spark lets IS TRUE follow it without: a comparison, a function


class PredicateReader(ComparisonReader):
    """Conditions without AND, OR and NOT; after a problem it goes on behind the condition."""

    # -- conditions --------------------------------------------------------------------------------------------------

    def start_of_condition(self) -> Operand | Condition:
        """What stands at the beginning of a condition; a bad one is reported, skipped, and counts as unknown."""
        begin = self.at
        try:
            if self.next.word in TESTS and self.tokens.kind(self.at + 1) == "(":
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
            advice = "a condition is not compared; conditions are joined by AND and OR"
            raise refuse_unexpected(self.next, "AND, OR or the end of the expression", advice)
        raise self.refuse_unexpected("AND, OR or the end of the expression", "conditions are joined by AND and OR")

    def predicate(self, left: Operand) -> Expression:
        kind = self.next.kind
        if kind in COMPARISONS:
            self.advance()
            return self.comparison(left, kind, self.operand("an attribute or a constant"))
        if kind == "IS":
            return self.null_test(left)
        if kind == "other" and self.next.value == "<=>":
            self.advance()
            return self.same(left, self.operand("an attribute or a constant"), negated=False)
        negated = kind == "NOT"
        if negated:
            self.advance()
            if self.range() is None:
                advice = (
                    "NOT stands before a condition, or before IN, BETWEEN, LIKE and RLIKE; for NULL write IS NOT NULL"
                )
                raise refuse_unexpected(self.next, "IN, BETWEEN, LIKE or RLIKE", advice)
        operator = self.range()
        if operator is None:
            raise self.no_operator()
        self.advance()
        if operator == "IN":
            return self.in_list(left, negated)
        if operator == "BETWEEN":
            return self.between(left, negated)
        return self.pattern(left, operator, negated)

    def range(self) -> str | None:
        """IN, BETWEEN, LIKE, ILIKE or RLIKE, if that comes next."""
        kind = "ILIKE" if self.next.kind == "reserved" and self.next.word == "ILIKE" else self.next.kind
        return kind if kind in RANGES else None

    def no_operator(self) -> Refused:
        """An operand is not followed by an operator."""
        before, token = self.tokens[self.at - 1], self.next
        if token.kind == ")":
            self.advance()
            return Refused("no parenthesis is open here", "leave out the )", token.start, token.end)
        advice = "as in price < 10 or color = 'red'"
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

    def null_test(self, left: Operand) -> Expression:
        """IS [NOT] NULL, DISTINCT FROM, TRUE, FALSE or UNKNOWN behind an operand."""
        negated = self.is_not()
        if self.next.word == "DISTINCT":
            self.advance()
            self.take_named("FROM", "write a IS DISTINCT FROM b")
            return self.same(left, self.operand("an attribute or a constant"), not negated)
        if self.next.word in TRUTHS:
            return self.truth_test(self.condition(left).expression, negated)
        self.take("NULL", "NULL, TRUE, FALSE, UNKNOWN or DISTINCT FROM", "compare by = or <>")
        return self.is_null(left, negated)

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
            expression = Compare(operand.attribute, "=", self.typed(operand.attribute, YES, operand.start, operand.end))
            self.check_strings(operand.attribute, [YES])
            if is_computed(operand.attribute):
                scalar = scalar_of(operand.attribute)
                if self.is_condition(scalar):
                    expression = self.holds(scalar)
                elif not may_be_true(scalar):
                    advice = "compare it, as in price * quantity > 100"
                    self.problems.add("a condition is expected, not a value", advice, operand.start, operand.end)
        elif operand.interval is not None:
            advice = "compare it, as in at - created > INTERVAL 5 MINUTES"
            self.problems.add("a condition is expected, not an interval", advice, operand.start, operand.end)
        elif literal is not None and literal.kind == Kind.BOOLEAN:
            expression = TRUE if literal.value else FALSE
        elif literal is not None:
            advice = "compare it with an attribute, as in price < 10"
            if literal.kind == Kind.STRING:
                advice += "; quotes make a string, a name is quoted with backticks"
            self.problems.add("a condition is expected, not a constant", advice, operand.start, operand.end)
        return Condition(expression, int(isinstance(expression, (And, Or))), operand.start)

    def in_list(self, left: Operand, negated: bool) -> Expression:
        opening = self.take("(", "a list in parentheses", "write attribute IN (1, 2, 3)")
        literals: list[Literal] = []
        values: list[Scalar] = []
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
        if self.all_constants(left, *values):
            attribute = self.subject(left, "IN")
            self.check_strings(attribute, literals)
            if self.declared(left.attribute) is not None:
                literals = [self.typed(left.attribute, each, *place) for each, place in zip(literals, places)]
            given = len(literals)
            literals = self.as_times(literals, places)
            null = null or len(literals) < given  # of a kept text: what is no time beside times is never equal
            return In(attribute, tuple(literals), negated, null) if literals else UNKNOWN
        self.refuse_joins(left)
        return self.holds(self.make_call("IN", [self.as_scalar(left), *values], opening), negated)

    def all_constants(self, left: Operand, *values: Scalar) -> bool:
        """Whether a plain predicate can say it: an attribute beside constants."""
        if left.interval is not None or any(not isinstance(value, Value) for value in values):
            return False
        return left.attribute is None or not is_computed(left.attribute) or not self.is_condition(self.as_scalar(left))

    def item(self) -> Operand:
        """What may stand where mostly constants do: a constant, an attribute, or what is computed."""
        place = self.next
        if place.kind == "string" and self.tokens.kind(self.at + 1) in (",", ")", "AND"):
            self.advance()
            return Operand(None, Literal(Kind.STRING, place.value), place.start, place.end)
        found = self.operand("a constant")
        if found.attribute is not None and (is_join(found.attribute) or found.attribute.upper() in NOT_FINITE):
            what, advice = self.describe_no_constant(place, found.attribute)
            self.problems.add(f"a constant is expected, not {what}", advice, found.start, found.end)
            return found._replace(attribute=None)
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
                if not self.is_kept:
                    self.problems.add(error.message, error.advice, *place)
        return result

    def between(self, left: Operand, negated: bool) -> Expression:
        place = self.next
        first = self.item()
        self.take("AND", "AND", "write attribute BETWEEN 1 AND 5")
        last = self.item()
        bounds = self.as_scalar(first), self.as_scalar(last)
        if not self.all_constants(left, *bounds):
            self.refuse_joins(left)
            return self.holds(self.make_call("BETWEEN", [self.as_scalar(left), *bounds], place), negated)
        attribute = self.subject(left, "BETWEEN")
        low, high = self.beside(left, first), self.beside(left, last)
        self.check_strings(attribute, [literal for literal in (low, high) if literal is not None])
        if low is not None and high is not None:
            ends = self.as_times([low, high], [(first.start, first.end), (last.start, last.end)])
            if len(ends) < 2:  # it is reported, or kept
                return UNKNOWN
            low, high = ends
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

    # -- functions that say what a predicate says --------------------------------------------------------------------

    def string_test(self) -> Condition:
        """STARTSWITH(attribute, 'text') and other functions that say what a predicate says."""
        name = self.advance()
        word = "RLIKE" if name.word.startswith("REGEXP") else name.word
        is_null = word in ("ISNULL", "ISNOTNULL")
        form = f"write {name.word}(attribute)" if is_null else f"write {name.word}(attribute, 'text')"
        self.advance()
        subject = self.operand("an attribute")
        if is_null:
            if self.next.kind != ")" and (subject.attribute is None or not is_join(subject.attribute)):
                subject = self.as_operand(self.rest_of_value(self.as_scalar(subject), OR, 0), subject.start)
            self.take(")", ")", form)
            return Condition(self.is_null(subject, word == "ISNOTNULL"), 0, name.start)
        self.take(",", "a comma", form)
        at = self.next
        text = self.operand("a string")
        escape = "\\"
        if word in ("LIKE", "ILIKE") and self.next.kind == ",":
            self.advance()
            escape = self.text(word) or ""
        self.take(")", ")", form)
        if len(escape) != 1:
            raise Refused("the escape of LIKE is one character", "write LIKE(name, '10!%', '!')", at.start, at.end)
        if word not in STRING_TESTS:
            return Condition(self.matches(subject, word, False, text, escape, name, at), 0, name.start)
        if text.attribute is not None and not is_join(text.attribute):
            self.refuse_joins(subject)
            called = self.make_call(word, [self.as_scalar(subject), self.as_scalar(text)], name)
            return Condition(self.holds(called), 0, name.start)
        if subject.attribute is None:
            self.problems.add(f"the first argument of {name.word} is an attribute", form, subject.start, subject.end)
        self.typed_text(subject.attribute, name.word, subject.start, subject.end)
        constant = self.constant_text(text, name.word)
        tested = StringTest(subject.attribute or "", word, constant) if constant is not None else UNKNOWN
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
