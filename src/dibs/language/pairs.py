"""Reading what stands inside a join: conditions on pairs of an event and an earlier document. See subqueries.py."""

from __future__ import annotations

from dibs.language.conditions import ConditionReader
from dibs.language.expression import (
    FLIPPED_OPERATOR,
    UNKNOWN,
    And,
    Constant,
    Expression,
    Not,
    Or,
    PairCompare,
    Predicate,
    Truth,
    predicates,
)
from dibs.language.intervals import read_interval
from dibs.language.literals import NUMBER
from dibs.language.operands import Operand, OperandReader
from dibs.language.predicates import COMPARISONS, Condition
from dibs.language.problems import Refused
from dibs.language.scalars import is_computed
from dibs.language.tokens import Token

LONGEST = 2**63  # microseconds: more than all times that can be told apart
UNITS = {
    "MICROSECOND": 1,
    "MILLISECOND": 1_000,
    "SECOND": 1_000_000,
    "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000,
    "DAY": 86_400_000_000,
    "WEEK": 604_800_000_000,
}
_INTERVAL_FORM = "write INTERVAL 10 MINUTES, with DAYS, HOURS, MINUTES or SECONDS"
_OUTSIDE = "write d.attribute for an attribute of the earlier document; what is asked of the event alone stands outside"


def below(path: str, alias: str) -> str | None:
    """The attribute that a path names in a document of this alias; None: it is the event's."""
    return path[len(alias) + 1 :] if path.startswith(alias + ".") else None


class PairReader(ConditionReader):
    """What stands inside a join. Operands have the names of the text; predicates those of the document."""

    ends = ("end", ")")
    takes_constants_only = True

    def __init__(self, outer: OperandReader, alias: str):
        super().__init__(outer.tokens, outer.problems)
        self.at, self.next = outer.at, outer.next
        self.numbers, self.types = outer.numbers, outer.types
        self.name = alias
        self.offsets: dict[int, int] = {}  # what is added to the attribute that begins at this character

    def declared(self, attribute: str | None) -> str | None:
        return super().declared(attribute if attribute is None else below(attribute, self.name) or attribute)

    def operator(self) -> tuple[str, int, int]:
        """Intervals that are added to an attribute are read by `operand`, as offsets."""
        following = self.tokens[min(self.at + 1, len(self.tokens) - 1)]
        if self.next.kind in ("+", "-") and following.kind == "reserved" and following.word == "INTERVAL":
            return "", 0, 0
        return super().operator()

    def report_empty(self) -> None:
        advice = f"write a condition, as in {self.name}.price > price"
        self.problems.add("the condition of the join is empty", advice, self.next.start, self.next.end)

    # -- conditions --------------------------------------------------------------------------------------------------

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

    def condition(self, operand: Operand) -> Condition:
        condition = super().condition(operand)
        if operand.attribute is None:
            return condition
        return condition._replace(expression=self.of_document(condition.expression, operand))

    def predicate(self, left: Operand) -> Expression:
        is_comparison = self.next.kind in COMPARISONS
        found = super().predicate(left)
        return found if is_comparison or left.attribute is None else self.of_document(found, left)

    def comparison(self, left: Operand, operator: str, right: Operand) -> Expression:
        if left.attribute is None or right.attribute is None:
            found = super().comparison(left, operator, right)
            named = right if left.attribute is None else left
            return found if named.attribute is None else self.of_document(found, named)
        for side in (left, right):
            if is_computed(side.attribute or ""):
                raise self.no_computed(side)
        document, other = below(left.attribute, self.name), right
        place = self.offsets.get(right.start), self.offsets.get(left.start)
        if document is None:
            document, other, operator = below(right.attribute, self.name), left, FLIPPED_OPERATOR[operator]
            place = place[::-1]
        assert other.attribute is not None
        if document is None:
            advice = f"one side is the earlier document's: write {self.name}.attribute for it"
            self.problems.add("both sides are attributes of the event", advice, left.start, right.end)
            return UNKNOWN
        if below(other.attribute, self.name) is not None:
            advice = f"one side is the event's: write it without {self.name}."
            self.problems.add("both sides are attributes of the earlier document", advice, left.start, right.end)
        offset = None if place == (None, None) else (place[0] or 0) - (place[1] or 0)
        return PairCompare(document, operator, other.attribute, offset)

    def string_test(self) -> Condition:
        tested = super().string_test()
        if isinstance(tested.expression, (And, Or, Not, Truth, Constant)):
            return tested
        name = Operand(tested.expression.attribute, None, tested.start, self.tokens[self.at - 1].end)
        return tested._replace(expression=self.of_document(tested.expression, name))

    def of_document(self, found: Expression, operand: Operand) -> Expression:
        """The predicate on an attribute and constants, with its name in the document."""
        assert operand.attribute is not None
        if is_computed(operand.attribute) or any(is_computed(predicate.attribute) for predicate in predicates(found)):
            raise self.no_computed(operand)
        name = below(operand.attribute, self.name)
        if name is None:
            self.problems.add("this asks nothing of the earlier document", _OUTSIDE, operand.start, operand.end)
            return found
        if operand.start in self.offsets:
            message = "an interval is added to an attribute that is compared with a constant"
            self.problems.add(message, "work out the time and write it as a constant", operand.start, operand.end)
        return rename(found, name)

    def no_computed(self, operand: Operand) -> Refused:
        message = "a value is computed inside a join over history"
        advice = "put it into the events as an attribute of its own; intervals may be added to times"
        return Refused(message, advice, operand.start, operand.end)

    def describe_no_constant(self, place: Token, attribute: str) -> tuple[str, str]:
        what, advice = super().describe_no_constant(place, attribute)
        return what, f"{advice}; attributes of the event are compared one by one, as in {self.name}.time >= time"

    # -- intervals ---------------------------------------------------------------------------------------------------

    def operand(self, expected: str) -> Operand:
        operand = super().operand(expected)
        while self.next.kind in ("+", "-"):
            following = self.tokens[self.at + 1]
            if following.kind != "reserved" or following.word != "INTERVAL":
                break
            token = self.advance()
            sign = -1 if token.kind == "-" else 1
            self.advance()
            if operand.attribute is None:
                moved = self.make_call(token.kind, [self.as_scalar(operand), read_interval(self)], token)
                operand = self.as_operand(moved, operand.start)
                continue
            self.offsets[operand.start] = self.offsets.get(operand.start, 0) + sign * self.interval()
            operand = operand._replace(end=self.tokens[self.at - 1].end)
        return operand

    def interval(self) -> int:
        """The microseconds of 10 MINUTES, '10' MINUTES or '10 minutes'."""
        amount = self.advance()
        written, unit = amount.value, self.next
        if amount.kind == "string" and " " in written.strip():
            written, _, word = written.strip().partition(" ")
            word = word.strip().upper()
        elif amount.kind in ("string", "number") and unit.word:
            word = self.advance().word
        else:
            wrong = amount if amount.kind not in ("string", "number") else unit
            raise Refused("an interval is a number and a unit", _INTERVAL_FORM, wrong.start, wrong.end)
        size = UNITS.get(word) or UNITS.get(word.removesuffix("S"))
        place = Operand(None, None, amount.start, self.tokens[self.at - 1].end)
        if size is None:
            long = word.removesuffix("S") in ("MONTH", "QUARTER", "YEAR")
            message = f"{word} are not all of one length" if long else f"{word} is no unit of time"
            raise Refused(message, _INTERVAL_FORM, place.start, place.end)
        if not (NUMBER.fullmatch(written) and written.isascii() and written.isdigit()):
            raise Refused(f"{written} is no whole number of {word}", _INTERVAL_FORM, place.start, place.end)
        if len(written) > 20 or int(written) * size >= LONGEST:
            message = "the interval is longer than all times that can be told apart"
            raise Refused(message, "shorten it", place.start, place.end)
        return int(written) * size


def rename(found: Expression, name: str) -> Expression:
    """A predicate, a constant, or one connective of these, for another attribute."""
    if isinstance(found, Constant):
        return found
    if isinstance(found, (And, Or)):
        return type(found)(tuple(rename(child, name) for child in found.children))
    assert not isinstance(found, (Not, Truth))
    predicate: Predicate = found
    return predicate._replace(attribute=name)
