"""Reading what stands inside a join: conditions on pairs of an event and an earlier document. See subqueries.py."""

from __future__ import annotations

from dibs.language.conditions import ConditionReader
from dibs.language.expression import UNKNOWN, And, Constant, Expression, Not, Or, Truth, attributes
from dibs.language.operands import Operand, OperandReader
from dibs.language.pairing import Side, below, place
from dibs.language.predicates import Condition
from dibs.language.printer import EVERY
from dibs.language.problems import Refused
from dibs.language.scalars import Call, Field, Value, asks_for_now, fields_of, is_computed, scalar_of, sees_structure

_OUTSIDE = "write d.attribute for an attribute of the earlier document; what is asked of the event alone stands outside"


class PairReader(ConditionReader):
    """What stands inside a join. Operands have the names of the text; predicates those of the document and the event
    (pairing.py)."""

    ends = ("end", ")")

    def __init__(self, outer: OperandReader, alias: str):
        super().__init__(outer.tokens, outer.problems)
        self.at, self.next = outer.at, outer.next
        self.numbers, self.types = outer.numbers, outer.types
        self.name = alias

    def declared(self, attribute: str | None) -> str | None:
        return super().declared(attribute if attribute is None else below(attribute, self.name) or attribute)

    def report_empty(self) -> None:
        advice = f"write a condition, as in {self.name}.price > price"
        self.problems.add("the condition of the join is empty", advice, self.next.start, self.next.end)

    def start_of_condition(self) -> Operand | Condition:
        begin = self.at
        token = self.next
        if token.kind == "reserved" and token.word in ("EXISTS", "FORALL", "SELECT"):
            advice = "join their conditions outside, as in EXISTS d (...) AND EXISTS d (...)"
            refused = Refused("a subquery within a subquery is not supported", advice, token.start, token.end)
            return self.read_broken(refused, begin)
        return super().start_of_condition()

    def truth_test(self, child: Expression, negated: bool) -> Expression:
        word = self.next
        advice = "outside of a join it can be asked of a condition; inside compare by = TRUE or = FALSE, or use IS NULL"
        message = f"IS {'NOT ' * negated}{word.word} is not supported inside a join"
        raise Refused(message, advice, word.start, word.end)

    # -- whose attributes --------------------------------------------------------------------------------------------

    def condition(self, operand: Operand) -> Condition:
        condition = super().condition(operand)
        return condition._replace(expression=self.placed(condition.expression, operand.start, operand.end))

    def predicate(self, left: Operand) -> Expression:
        found = super().predicate(left)
        return self.placed(found, left.start, self.tokens[self.at - 1].end)

    def string_test(self) -> Condition:
        tested = super().string_test()
        end = self.tokens[self.at - 1].end
        return tested._replace(expression=self.placed(tested.expression, tested.start, end))

    def same(self, left: Operand, right: Operand, negated: bool) -> Expression:
        """Computed, also beside a constant: a complement does not stand inside a join."""
        sides = self.as_scalar(left), self.as_scalar(right)
        constants = [isinstance(side, Value) and side.literal is not None for side in sides]
        if not any(constants) or not any(isinstance(side, (Field, Call)) for side in sides):
            return super().same(left, right, negated)
        return self.holds(Call("<=>", sides if constants[0] else sides[::-1]), negated)

    def placed(self, found: Expression, start: int, end: int) -> Expression:
        """What was read with the names of the text, over the document and the event."""
        if isinstance(found, (And, Or)):
            return type(found)(tuple(self.placed(child, start, end) for child in found.children))
        if isinstance(found, Constant):
            return found
        assert not isinstance(found, (Not, Truth))
        if not self.is_allowed(found, start, end):
            return UNKNOWN
        placed = place(found, self.name)
        if not isinstance(placed, Side):
            return placed
        if placed == Side.EVENT:
            self.problems.add("this asks nothing of the earlier document", _OUTSIDE, start, end)
        return UNKNOWN

    def is_allowed(self, found: Expression, start: int, end: int) -> bool:
        """Whether documents can be asked this: they have attributes, and no arrays as wholes and no present time."""
        for name in attributes(found):
            scalar = scalar_of(name) if is_computed(name) else Field(name)
            if asks_for_now(name):
                advice = f"compare with an attribute of the event, as in {self.name}.time > time - INTERVAL 1 HOUR"
                self.problems.add("the present time is not supported inside a join over history", advice, start, end)
                return False
            if sees_structure(scalar) or EVERY in fields_of(scalar):
                advice = "compare single values, as in d.tag = tag: an attribute that is an array has all its elements"
                self.problems.add("arrays as wholes are not supported inside a join over history", advice, start, end)
                return False
        return True
