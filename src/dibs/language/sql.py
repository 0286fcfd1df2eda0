"""From the text of a WHERE clause to its tree.

sqlglot's Spark tokenizer reads the characters (tokens.py). The grammar is small and is read here, in predicates.py and
in operands.py, for three reasons: sqlglot's own parser forgives too much (`a BETWEEN 1 2`, `a IN (1,)`, `a NOT NULL`
pass), it recurses (compiled, it can overflow the C stack), and it stops at the first error. Where it accepts a text of
this language it must read it alike, which the tests check. The reader here keeps its own stack and goes on after a
problem, so that all are found at once.

    condition  = condition OR condition | condition AND condition | NOT condition | ( condition ) | predicate
    predicate  = operand (= == <> != < <= > >=) operand
               | attribute [NOT] IN (constant, ...)        | attribute [NOT] BETWEEN constant AND constant
               | attribute [NOT] LIKE string [ESCAPE 'c']  | attribute [NOT] RLIKE string
               | STARTSWITH(attribute, string) | ENDSWITH(attribute, string) | CONTAINS(attribute, string)
               | operand IS [NOT] NULL | attribute | TRUE | FALSE | NULL

The shape of the tree is canonical:
- AND and OR are flattened in the order of the text, whatever the parentheses: (a AND b) AND c is And((a, b, c)), and
  so is a AND (b AND c). They have at least two children and no child of their own class.
- NOT before a predicate is the negated predicate (NOT a = 1 is a <> 1, NOT a LIKE 'x' is a NOT LIKE 'x'), before a
  constant the other constant; NOT NOT cancels. So Not stands only before And and Or.
- A bare attribute is a test for TRUE: `active` is active = TRUE, `NOT active` is active <> TRUE.
- A constant on the left changes sides: 5 < a is a > 5. Two constants are compared at once: 1 = 1 is TRUE.
- NULL: a comparison, LIKE, RLIKE or function with NULL is UNKNOWN. IN loses its NULLs and becomes In(null=True), or
  UNKNOWN when it has nothing else; the other constants stay in order, repeats included. BETWEEN with a NULL is the
  two comparisons joined by AND (NOT BETWEEN: their negations joined by OR), one of them UNKNOWN.
- Numbers, dates and timestamps are the literals of literals.py; names are the paths of tokens.py joined by dots.
"""

from __future__ import annotations

import re
from contextlib import nullcontext

from dibs.errors import ExpressionError, Problem
from dibs.language.expression import (
    FALSE,
    TRUE,
    UNKNOWN,
    And,
    Compare,
    Constant,
    Expression,
    Kind,
    Literal,
    Not,
    Or,
    collection_paused,
    negate,
)
from dibs.language.operands import Operand
from dibs.language.predicates import Condition, PredicateReader
from dibs.language.problems import Problems
from dibs.language.tokens import KEYWORDS, Tokens, scan

__all__ = ["KEYWORDS", "MAX_DEPTH", "MAX_LENGTH", "MAX_PARENTHESES", "MAX_TOKENS", "parse", "validate"]

MAX_LENGTH = 3_000_000  # characters of a text
MAX_TOKENS = 1_250_000  # words, numbers, strings and signs of a text; reading takes up to 300 bytes for each
MAX_PARENTHESES = 10_000  # open at one place of a text
MAX_DEPTH = 100  # AND, OR and NOT one within the other, after flattening: later stages walk trees by recursion

_UNREADABLE_CHARACTER = re.compile("[\0\ud800-\udfff]")
_PIECE = re.compile(r"""'[^'\\]*(?:\\.[^'\\]*)*'|"[^"\\]*(?:\\.[^"\\]*)*"|`[^`]*`|\w+|[^\w\s]""", re.DOTALL)
_LONG = 10_000  # characters of a text for whose tokens and nodes the garbage collector is paused


def parse(text: str) -> Expression:
    """The tree of a text, in the shape that the module describes; ExpressionError with all problems of a bad one."""
    problems = _checked(text)
    tree: Expression = UNKNOWN
    if not problems:
        with collection_paused() if len(text) > _LONG else nullcontext():
            tokens = scan(text, problems)
            if len(tokens):
                tree = _ConditionReader(tokens, problems).tree()
    if problems:
        raise ExpressionError(problems.in_order())
    return tree


def validate(text: str) -> list[Problem]:
    """The problems of a text, from left to right; none when parse accepts it."""
    try:
        parse(text)
    except ExpressionError as error:
        return error.problems
    return []


def _checked(text: object) -> Problems:
    """The problems of the text as a whole."""
    if not isinstance(text, str):
        problems = Problems("")
        advice = "decode it as UTF-8 first" if isinstance(text, (bytes, bytearray)) else "pass the text of a condition"
        problems.add(f"an expression is a str, not {type(text).__name__}", advice, 0, 0)
        return problems
    problems = Problems(text)
    if len(text) > MAX_LENGTH:
        advice = "split it into several subscriptions"
        problems.add(f"the text has {len(text):,} characters; {MAX_LENGTH:,} are allowed", advice, 0, 0)
    elif len(text) > MAX_TOKENS and (pieces := sum(1 for _ in _PIECE.finditer(text))) > MAX_TOKENS:
        advice = "split it into several subscriptions"
        message = f"the text has about {pieces:,} words and signs; {MAX_TOKENS:,} are allowed"
        problems.add(message, advice, 0, 0)
    elif bad := _UNREADABLE_CHARACTER.search(text):
        nul = bad[0] == "\0"
        what = "the character NUL" if nul else f"half of a surrogate pair (U+{ord(bad[0]):04X}), which is no character"
        advice = "leave it out, or write it \\0 inside a string" if nul else "check how the text was decoded"
        problems.add(f"the text holds {what}", advice, bad.start(), bad.end())
    return problems


class _Parenthesis:
    """What stands between two parentheses, as far as it is read: closed conjunctions, and the one still open."""

    __slots__ = ("conjuncts", "disjuncts", "negated", "start")

    def __init__(self, start: int):
        self.start = start
        self.disjuncts: list[Condition] = []
        self.conjuncts: list[Condition] = []
        self.negated = False  # an odd number of NOTs stands before the condition that comes next


class _ConditionReader(PredicateReader):
    """Reads AND, OR, NOT and parentheses with a stack of its own: texts may nest deeper than Python recurses."""

    def __init__(self, tokens: Tokens, problems: Problems):
        super().__init__(tokens, problems)
        self.groups = [_Parenthesis(0)]

    def tree(self) -> Expression:
        if self.next.kind == "end":
            advice = "write a condition, as in price < 10, or TRUE to match every event"
            self.problems.add("the expression is empty", advice, 0, self.next.end)
            return UNKNOWN
        while not self.problems.full:
            kind = self.next.kind
            if kind in ("NOT", "!"):
                self.advance()
                self.groups[-1].negated = not self.groups[-1].negated
            elif kind == "(":
                self.groups.append(_Parenthesis(self.advance().start))
                if len(self.groups) > MAX_PARENTHESES + 1:
                    self.too_deep(f"more than {MAX_PARENTHESES:,} parentheses are open", self.groups[-1].start)
                    break
            else:
                value = self.close_groups(self.start_of_condition())
                kind = self.advance().kind
                if kind == "end":
                    return self.joined(self.groups[0], value).expression
                self.end_condition(self.groups[-1], value)
                if kind == "OR":
                    self.end_conjunction(self.groups[-1])
        return UNKNOWN

    def close_groups(self, value: Operand | Condition) -> Operand | Condition:
        """Reads on behind a value, out of as many parentheses as end here, until AND, OR or the end comes next."""
        while True:
            kind = self.next.kind
            if kind in ("AND", "OR"):
                return value
            if kind == "end":
                for group in self.groups[1:]:
                    advice = "close it with ), or leave it out"
                    self.problems.add("the parenthesis is not closed", advice, group.start, group.start + 1)
                del self.groups[1:]
                return value
            if kind == ")" and len(self.groups) > 1:
                self.advance()
                value = self.grouped(self.groups.pop(), value)
            else:
                value = self.rest_of_condition(value)

    def grouped(self, group: _Parenthesis, value: Operand | Condition) -> Operand | Condition:
        """What the parentheses hold: (a) is still the operand a, so that (a) = 1 can follow."""
        nothing_else = not (group.disjuncts or group.conjuncts or group.negated)
        if nothing_else and (isinstance(value, Operand) or value.broken):
            return value
        return self.joined(group, value)

    def joined(self, group: _Parenthesis, value: Operand | Condition) -> Condition:
        self.end_condition(group, value)
        self.end_conjunction(group)
        return self.connected(Or, group.disjuncts)

    def end_conjunction(self, group: _Parenthesis) -> None:
        group.disjuncts.append(self.connected(And, group.conjuncts))
        group.conjuncts = []

    def end_condition(self, group: _Parenthesis, value: Operand | Condition) -> None:
        condition = self.condition(value) if isinstance(value, Operand) else value
        if group.negated:
            condition = self.negated(condition)
            group.negated = False
        group.conjuncts.append(condition)

    def condition(self, operand: Operand) -> Condition:
        """An operand that stands for a condition: a bare attribute asks for TRUE."""
        literal = operand.literal
        expression: Expression = UNKNOWN
        if operand.attribute is not None:
            expression = Compare(operand.attribute, "=", Literal(Kind.BOOLEAN, True))
        elif literal is not None and literal.kind == Kind.BOOLEAN:
            expression = TRUE if literal.value else FALSE
        elif literal is not None:
            advice = "compare it with an attribute, as in price < 10"
            if literal.kind == Kind.STRING:
                advice += "; quotes make a string, a name is quoted with backticks"
            self.problems.add("a condition is expected, not a constant", advice, operand.start, operand.end)
        return Condition(expression, 0, operand.start)

    def connected(self, connective: type[And] | type[Or], conditions: list[Condition]) -> Condition:
        if len(conditions) == 1:
            return conditions[0]
        children: list[Expression] = []
        depth = 1
        for condition in conditions:
            expression = condition.expression
            if isinstance(expression, connective):
                children.extend(expression.children)
                depth = max(depth, condition.depth)
            else:
                children.append(expression)
                depth = max(depth, condition.depth + 1)
        return self.not_too_deep(Condition(connective(tuple(children)), depth, conditions[0].start))

    def negated(self, condition: Condition) -> Condition:
        expression, depth, start, _ = condition
        if isinstance(expression, Not):
            return Condition(expression.child, depth - 1, start)
        if isinstance(expression, (And, Or)):
            return self.not_too_deep(Condition(Not(expression), depth + 1, start))
        if isinstance(expression, Constant):
            value = expression.value
            return condition._replace(expression=Constant(None if value is None else not value))
        return condition._replace(expression=negate(expression))

    def not_too_deep(self, condition: Condition) -> Condition:
        if condition.depth > MAX_DEPTH:
            self.too_deep(f"AND, OR and NOT are nested more than {MAX_DEPTH} deep", condition.start)
            return Condition(UNKNOWN, 0, condition.start)
        return condition

    def too_deep(self, message: str, start: int) -> None:
        advice = "write it flatter: a AND b AND c needs no parentheses, whatever its length"
        self.problems.add(message, advice, start, start + 1)
