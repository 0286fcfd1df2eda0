"""Reading AND, OR, NOT and parentheses from the tokens of a text. See sql.py for the grammar and the shapes."""

from __future__ import annotations

from dibs.language.expression import UNKNOWN, And, Constant, Expression, Not, Or, Truth, negate
from dibs.language.operands import Operand
from dibs.language.predicates import Condition, PredicateReader
from dibs.language.problems import Problems
from dibs.language.tokens import Tokens

MAX_PARENTHESES = 10_000  # open at one place of a text
MAX_DEPTH = 100  # AND, OR, NOT and IS TRUE one within the other, after flattening: later stages walk trees by recursion


class _Parenthesis:
    """What stands between two parentheses, as far as it is read: closed conjunctions, and the one still open."""

    __slots__ = ("conjuncts", "disjuncts", "negated", "start")

    def __init__(self, start: int):
        self.start = start
        self.disjuncts: list[Condition] = []
        self.conjuncts: list[Condition] = []
        self.negated = False  # an odd number of NOTs stands before the condition that comes next


class ConditionReader(PredicateReader):
    """Reads AND, OR, NOT and parentheses with a stack of its own: texts may nest deeper than Python recurses."""

    ends: tuple[str, ...] = ("end",)  # what may follow the whole condition

    def __init__(self, tokens: Tokens, problems: Problems):
        super().__init__(tokens, problems)
        self.groups = [_Parenthesis(0)]

    def tree(self) -> Expression:
        if self.next.kind in self.ends:
            self.report_empty()
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
                if self.next.kind not in ("AND", "OR"):
                    return self.join(self.groups[0], value).expression
                kind = self.advance().kind
                self.end_condition(self.groups[-1], value)
                if kind == "OR":
                    self.end_conjunction(self.groups[-1])
        return UNKNOWN

    def report_empty(self) -> None:
        advice = "write a condition, as in price < 10, or TRUE to match every event"
        self.problems.add("the expression is empty", advice, 0, self.next.end)

    def close_groups(self, value: Operand | Condition) -> Operand | Condition:
        """Reads on behind a value, out of as many parentheses as end here, until AND, OR or the end comes next."""
        while True:
            kind = self.next.kind
            if kind in ("AND", "OR") or (kind == ")" and kind in self.ends and len(self.groups) == 1):
                return value
            if kind == "end":
                for group in self.groups[1:]:
                    advice = "close it with ), or leave it out"
                    self.problems.add("the parenthesis is not closed", advice, group.start, group.start + 1)
                del self.groups[1:]
                return value
            if kind == ")" and len(self.groups) > 1:
                self.advance()
                value = self.group(self.groups.pop(), value)
            elif isinstance(value, Operand) and self.is_continued():
                value = self.continue_value(value)
            else:
                value = self.not_too_deep(self.rest_of_condition(value))

    def group(self, group: _Parenthesis, value: Operand | Condition) -> Operand | Condition:
        """What the parentheses hold: (a) is still the operand a, so that (a) = 1 can follow."""
        alone = not (group.disjuncts or group.conjuncts or group.negated)
        if alone and (isinstance(value, Operand) or value.broken):
            return value
        return self.join(group, value)._replace(whole=True)

    def join(self, group: _Parenthesis, value: Operand | Condition) -> Condition:
        self.end_condition(group, value)
        self.end_conjunction(group)
        return self.connect(Or, group.disjuncts)

    def end_conjunction(self, group: _Parenthesis) -> None:
        group.disjuncts.append(self.connect(And, group.conjuncts))
        group.conjuncts = []

    def end_condition(self, group: _Parenthesis, value: Operand | Condition) -> None:
        condition = self.condition(value) if isinstance(value, Operand) else value
        if group.negated:
            condition = self.negate(condition)
            group.negated = False
        group.conjuncts.append(condition)

    def connect(self, connective: type[And] | type[Or], conditions: list[Condition]) -> Condition:
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

    def negate(self, condition: Condition) -> Condition:
        expression, depth, start = condition[:3]
        if isinstance(expression, Not):
            return Condition(expression.child, depth - 1, start)
        if isinstance(expression, Truth):
            return Condition(expression._replace(negated=not expression.negated), depth, start)
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
