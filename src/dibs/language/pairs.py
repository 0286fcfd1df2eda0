"""Reading what stands inside a join: conditions on pairs of an event and an earlier document. See subqueries.py."""

from __future__ import annotations

from dibs.language.expression import (
    FALSE,
    TRUE,
    UNKNOWN,
    And,
    Constant,
    Expression,
    IsNull,
    Not,
    Or,
    PairCompare,
    Predicate,
    Truth,
)
from dibs.language.joins import COUNTS, place_join, read_attributes
from dibs.language.operands import Operand
from dibs.language.pairing import Side, below, place, value_of
from dibs.language.predicates import Condition
from dibs.language.printer import EVERY, PAIRED, is_join, is_paired
from dibs.language.problems import Refused
from dibs.language.scalars import Call, Field, Value, is_raw, sees_structure
from dibs.language.subqueries import ALTERNATIVES, MAX_ALTERNATIVES, SubscriptionReader

MAX_JOINS = 8  # one within the other
_OUTSIDE = "write d.attribute for an attribute of the earlier document; what is asked of the event alone stands outside"
_WHOLES = "compare single values, as in d.tag = tag: an attribute that is an array has all its elements"


class PairReader(SubscriptionReader):
    """What stands inside a join. Operands have the names of the text; predicates those of the document and the event
    (pairing.py)."""

    ends = ("end", ")")

    def __init__(self, outer: SubscriptionReader, alias: str):
        super().__init__(outer.tokens, outer.problems)
        self.at, self.next = outer.at, outer.next
        self.numbers, self.types = outer.numbers, outer.types
        self.name = alias
        self.depth = outer.depth + 1
        if self.depth > MAX_JOINS:
            place, advice = self.tokens[self.at - 1], "ask for fewer steps, or remember what the first ones match"
            raise Refused(f"more than {MAX_JOINS} joins stand within each other", advice, place.start, place.end)

    def declared(self, attribute: str | None) -> str | None:
        return super().declared(attribute if attribute is None else below(attribute, self.name) or attribute)

    def report_empty(self) -> None:
        advice = f"write a condition, as in {self.name}.price > price"
        self.problems.add("the condition of the join is empty", advice, self.next.start, self.next.end)

    def read_quantified(self) -> Condition:
        found = super().read_quantified()
        return found._replace(expression=self.placed(found.expression, found.start, self.tokens[self.at - 1].end))

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
        if is_join(found.attribute):
            return self.placed_join(found, start, end)
        if EVERY in read_attributes([found.attribute]):
            self.problems.add("ANY(*) is not asked inside a join", "name the attribute", start, end)
            return UNKNOWN
        placed = place(found, self.name)
        if isinstance(placed, Side):
            if placed == Side.EVENT:
                self.problems.add("this asks nothing of the earlier document", _OUTSIDE, start, end)
            return UNKNOWN
        self.check_wholes(placed, start, end)
        return placed

    def placed_join(self, found: Predicate, start: int, end: int) -> Expression:
        """A test of a join within this one, as one of the pair."""
        join = self.joins[found.attribute]
        if self.problems:  # it may be one of this join, whose condition is not known then
            return UNKNOWN
        if not _finds(join.condition):
            advice = f"name what they have in common, as in x.user = {self.name}.user"
            self.problems.add("a join within a join equates an attribute of its documents", advice, start, end)
        elif join.alternatives > MAX_ALTERNATIVES:
            message = f"a join within a join has more than {MAX_ALTERNATIVES} alternatives"
            self.problems.add(message, ALTERNATIVES, start, end)
        elif any(map(is_raw, read_attributes(join.event_attributes))):
            self.problems.add("arrays as wholes are not compared by a join within a join", _WHOLES, start, end)
        else:
            placed = place_join(join, self.name)
            if isinstance(placed, str):
                return found._replace(attribute=placed)
            self.problems.add("this asks nothing of the earlier document", _OUTSIDE, start, end)
        return UNKNOWN

    def check_wholes(self, placed: Expression, start: int, end: int) -> None:
        """Pairs have attributes, and no arrays as wholes."""
        if isinstance(placed, (And, Or)):
            for child in placed.children:
                self.check_wholes(child, start, end)
            return
        assert not isinstance(placed, (Constant, Not, Truth))
        if is_paired(placed.attribute) and sees_structure(value_of(placed.attribute[len(PAIRED) :])):
            message = "arrays as wholes are not compared with what an earlier document has"
            self.problems.add(message, _WHOLES, start, end)

    def is_null(self, operand: Operand, negated: bool) -> Expression:
        if operand.attribute is None or not is_join(operand.attribute):
            return super().is_null(operand, negated)
        if self.joins[operand.attribute].function in COUNTS:
            return TRUE if negated else FALSE
        return IsNull(operand.attribute, negated)


def _finds(condition: Expression) -> bool:
    """Whether an equality with what is given leads to the documents that satisfy it."""
    if isinstance(condition, And):
        return any(map(_finds, condition.children))
    if isinstance(condition, Or):
        return all(map(_finds, condition.children))
    return condition == FALSE or (isinstance(condition, PairCompare) and condition.operator == "=")
