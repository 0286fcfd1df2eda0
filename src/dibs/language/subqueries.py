"""Reading joins over history from the tokens of a text:

    condition = EXISTS ( SELECT 1 FROM history d [WHERE pairs] )  | EXISTS d ( pairs )  | FORALL d ( pairs )
    operand   = ( SELECT aggregate FROM history d [WHERE pairs] )  | number * operand  | operand * number
    aggregate = COUNT(*) | COUNT([DISTINCT] value) | MIN, MAX, SUM, AVG, STDDEV, STDDEV_POP (value)
                | MAX_BY, MIN_BY (value, value)  | LAST, FIRST (value ORDER BY value)
    pairs     = AND, OR, NOT, parentheses over predicates of sql.py, each with an attribute of d, and joins within
    value     = computed from attributes of d alone

The alias d is any name; names without it are the event's. FORALL d (p) is NOT EXISTS d (NOT (p)). What stands inside is
read by pairs.py.
"""

from __future__ import annotations

import math

from dibs.jit.undisturbed import bring
from dibs.language.conditions import ConditionReader
from dibs.language.expression import (
    FALSE,
    FLIPPED_OPERATOR,
    TRUE,
    And,
    Compare,
    Expression,
    IsNull,
    Kind,
    Not,
    Truth,
    number,
    number_key,
    predicates,
)
from dibs.language.joins import (
    AVG,
    COUNT,
    COUNT_DISTINCT,
    COUNTS,
    ENDS,
    EXISTS,
    EXTREMES,
    MAX_BY,
    MIN_BY,
    STDDEV,
    TOTALS,
    Join,
    canonical,
    name_of,
)
from dibs.language.operands import Operand
from dibs.language.pairing import Side, below, is_boolean, name_of_value, side_of
from dibs.language.predicates import COMPARISONS, Condition
from dibs.language.printer import YES, is_join
from dibs.language.problems import LAST_FORM as _LAST_FORM
from dibs.language.problems import LAST_WORDS, Problems, Refused, refuse_unexpected
from dibs.language.scalars import Field, Scalar, map_fields
from dibs.language.scanner import scan
from dibs.language.tokens import Token, Tokens, show_token
from dibs.language.values import OR

AGGREGATES = {name: name for name in (COUNT, *EXTREMES, *ENDS, *TOTALS)} | {
    "MEAN": AVG,
    "STD": STDDEV,
    "STDDEV_SAMP": STDDEV,
    "LAST": MAX_BY,
    "FIRST": MIN_BY,
}
MAX_ALTERNATIVES = 32  # of a join that has others within it, or is within one
ALTERNATIVES = "ask for them in several joins, joined by OR"
_EXISTS_FORM = "write EXISTS (SELECT 1 FROM history d WHERE d.price > price), or EXISTS d (d.price > price)"
_FORALL_FORM = "write FORALL d (d.price > price)"
_TIMES_FORM = "write price < 0.9 * (SELECT MIN(d.price) FROM history d WHERE d.sku = sku)"
_SELECT_FORM = "write (SELECT COUNT(*) FROM history d WHERE d.user = user) >= 5, or MIN(d.price) or MAX(d.price)"


def read_join(text: str) -> Join:
    """The join of a canonical text that is not followed by anything."""
    reader = SubscriptionReader(scan(text, Problems(text)), Problems(text))
    reader.tree()
    return list(reader.joins.values())[-1]


class SubscriptionReader(ConditionReader):
    """Conditions with joins. `joins` has those that were read, by name, the outermost last."""

    def __init__(self, tokens: Tokens, problems: Problems):
        super().__init__(tokens, problems)
        self.joins: dict[str, Join] = {}
        self.depth = 0  # how many joins this stands in

    def attribute_of(self, join: Join) -> str:
        if join.joins_within and join.alternatives > MAX_ALTERNATIVES:
            message = f"a join that asks a join has more than {MAX_ALTERNATIVES} alternatives"
            place = self.tokens[self.at - 1]
            raise Refused(message, ALTERNATIVES, place.start, place.end)
        name = name_of(join)
        self.joins.pop(name, None)
        self.joins[name] = join
        return name

    # -- conditions --------------------------------------------------------------------------------------------------

    def start_of_condition(self) -> Operand | Condition:
        if self.next.kind != "reserved" or self.next.word not in ("EXISTS", "FORALL") or self.is_quantifier(self.at):
            return super().start_of_condition()
        begin = self.at
        try:
            return self.read_quantified()
        except Refused as refused:
            return self.read_broken(refused, begin)

    def read_quantified(self) -> Condition:
        """EXISTS or FORALL."""
        word = self.advance()
        is_forall = word.word == "FORALL"
        if self.next.kind == "(" and not is_forall:
            self.advance()
            self.take_word("SELECT", _EXISTS_FORM)
            is_name = (
                self.next.kind == "name" and self.tokens.kind(self.at + 1) != "("
            )  # whatever is selected, it is there
            if self.next.kind != "number" and self.next.value != "*" and not is_name:
                raise self.refuse_unexpected("1", _EXISTS_FORM)
            self.advance()
            condition = self.from_history(_EXISTS_FORM)[1]
        else:
            form = _FORALL_FORM if is_forall else _EXISTS_FORM
            alias = self.alias(form)
            self.take("(", "(", form)
            condition = self.pairs(alias)
        self.take(")", "AND, OR or )", "the parenthesis of the join is closed by )")
        join = Join(EXISTS, canonical(Not(condition) if is_forall else condition))
        return Condition(Compare(self.attribute_of(join), "<>" if is_forall else "=", YES), 0, word.start)

    def condition(self, operand: Operand) -> Condition:
        if operand.attribute is not None and is_join(operand.attribute):
            self.problems.add("a condition is expected, not a value", _SELECT_FORM, operand.start, operand.end)
        return super().condition(operand)

    def predicate(self, left: Operand) -> Expression:
        left = self.multiple(left)  # (SELECT ...) is read as what parentheses hold
        if left.attribute is not None and is_join(left.attribute):
            if self.next.kind not in COMPARISONS:
                self.check_no_multiple(left)
            at = 1 if self.next.kind == "NOT" else 0
            if self.tokens.kind(self.at + at) in ("LIKE", "RLIKE"):
                advice = "compare it by =, <>, <, <=, > or >=, or with IN or BETWEEN"
                raise Refused("patterns are tested on attributes only", advice, self.next.start, self.next.end)
        return super().predicate(left)

    def comparison(self, left: Operand, operator: str, right: Operand) -> Expression:
        joins = [side.attribute is not None and is_join(side.attribute) for side in (left, right)]
        if all(joins):
            advice = "compare it with an attribute of the event or with a constant"
            raise Refused("a subquery is compared with a subquery", advice, left.start, right.end)
        if left.attribute is None or right.attribute is None or not any(joins):
            self.check_no_multiple(left)
            self.check_no_multiple(right)
            return super().comparison(left, operator, right)
        if joins[0]:
            left, operator, right = right, FLIPPED_OPERATOR[operator], left
        assert left.attribute is not None and right.attribute is not None
        join = self.joins[right.attribute]._replace(event=left.attribute, operator=operator)
        return Compare(self.attribute_of(join), "=", YES)

    def in_list(self, left: Operand, negated: bool) -> Expression:
        query = self.tokens[min(self.at + 1, len(self.tokens) - 1)]
        if query.kind == "reserved" and query.word == "SELECT":
            advice = "write EXISTS (SELECT 1 FROM history d WHERE d.attribute = attribute)"
            raise Refused("IN takes a list of constants, no query", advice, query.start, query.end)
        return super().in_list(left, negated)

    def is_null(self, operand: Operand, negated: bool) -> Expression:
        test = super().is_null(operand, negated)
        if not isinstance(test, IsNull) or not is_join(test.attribute):
            return test
        join = self.joins[test.attribute]
        if join.function in COUNTS:  # a number is always there
            return TRUE if test.negated else FALSE
        if join.function in TOTALS:  # also NULL of what are no numbers, and beyond 64 bits; no number is above NaN
            return Truth(Compare(test.attribute, "<=", number(math.nan)), True, not test.negated)
        asked = (IsNull(name, True) for name in (join.attribute, join.by) if name is not None)
        some = Join(EXISTS, canonical(And((join.condition, *asked))))
        return Compare(self.attribute_of(some), "=" if test.negated else "<>", YES)

    def string_test(self) -> Condition:
        tested = super().string_test()
        if any(is_join(predicate.attribute) for predicate in predicates(tested.expression)):
            end = self.tokens[self.at - 1].end
            raise Refused("patterns are tested on attributes only", "compare it by = or <", tested.start, end)
        return tested

    # -- multiples of a subquery --------------------------------------------------------------------------------------

    def operand(self, expected: str) -> Operand:
        return self.multiple(super().operand(expected))

    def continued(self, left: Operand) -> Operand:
        if left.attribute is None or not is_join(left.attribute):
            return super().continued(left)
        if self.next.value != "*":
            advice = "compare it with an attribute of the event or with a constant"
            raise Refused("a subquery does not stand within a computed value", advice, left.start, left.end)
        return self.multiple(left)

    def multiple(self, operand: Operand) -> Operand:
        """What an operand is with a multiplication that follows it."""
        if self.next.value != "*" or self.next.kind != "other":
            return operand
        sign = self.next
        refused = Refused("a subquery is multiplied by one number", _TIMES_FORM, sign.start, sign.end)
        if operand.literal is None and (operand.attribute is None or not is_join(operand.attribute)):
            raise refused
        self.advance()
        other = super().operand("a number or a subquery")
        query, by = (operand, other) if operand.literal is None else (other, operand)
        if query.attribute is None or not is_join(query.attribute) or by.literal is None:
            raise refused
        if self.joins[query.attribute].factor is not None:
            raise Refused("a subquery is multiplied twice", "write one number", sign.start, sign.end)
        factor = by.literal.value if by.literal.kind == Kind.NUMBER else None
        if factor is None or not math.isfinite(number_key(factor)[0]):
            raise Refused("a subquery is multiplied by a finite number", _TIMES_FORM, by.start, by.end)
        join = self.joins[query.attribute]._replace(factor=number_key(factor)[0])
        return Operand(self.attribute_of(join), None, operand.start, other.end)

    def check_no_multiple(self, operand: Operand) -> None:
        """Multiples are compared with attributes of the event."""
        name = operand.attribute
        if name is not None and is_join(name) and self.joins[name].factor is not None:
            message = "a multiple of a subquery is compared with an attribute of the event"
            raise Refused(message, "work out what the subquery is compared with", operand.start, operand.end)

    # -- subqueries --------------------------------------------------------------------------------------------------

    def atom(self, expected: str, negative: bool) -> Operand:
        is_subquery = self.next.kind == "reserved" and self.next.word == "SELECT"
        if not (is_subquery and self.at and self.tokens.kind(self.at - 1) == "("):
            return super().atom(expected, negative)
        start = self.advance().start
        word = self.take("name", "COUNT, MIN or MAX", _SELECT_FORM)
        if word.word not in AGGREGATES:
            message = f"{show_token(word)} is not supported in a subquery"
            asks_one = word.word in LAST_WORDS or self.next.kind != "("  # one value of one document
            raise Refused(message, _LAST_FORM if asks_one else _SELECT_FORM, word.start, word.end)
        self.take("(", "(", _SELECT_FORM)
        function, asked = self.aggregate(word)
        self.take(")", ")", _SELECT_FORM)
        alias, condition = self.from_history(_SELECT_FORM)
        names = [self.read_asked(scalar, alias, word, place) for scalar, place in asked]
        attribute, by = [*names, None, None][:2]
        if attribute is not None and function == COUNT:
            condition, attribute = And((condition, IsNull(attribute, True))), None
        join = Join(function, canonical(condition), attribute, by)
        return Operand(self.attribute_of(join), None, start, self.tokens[self.at - 1].end)

    def aggregate(self, word: Token) -> tuple[str, list[tuple[Scalar, Token]]]:
        """The function, and what it is taken of, up to the parenthesis that closes it."""
        function = AGGREGATES[word.word]
        if self.next.value == "*" and function == COUNT:
            self.advance()
            return function, []
        if self.next.word == "DISTINCT" and self.tokens.kind(self.at + 1) in ("name", "("):
            distinct = self.advance()
            if function != COUNT:
                advice = "leave it out, or write COUNT(DISTINCT d.price)"
                raise Refused("DISTINCT is for COUNT alone", advice, distinct.start, distinct.end)
            function = COUNT_DISTINCT
        asked = [self.asked()]
        if function in ENDS:
            if word.word in ("FIRST", "LAST"):
                self.take_word("ORDER", _LAST_FORM)
                self.take_word("BY", _LAST_FORM)
            else:
                self.take(",", "a comma", _LAST_FORM)
            asked.append(self.asked())
        return function, asked

    def asked(self) -> tuple[Scalar, Token]:
        place = self.next
        if place.kind not in ("name", "(", "reserved", "-") and place.value != "~":
            raise refuse_unexpected(place, "an attribute of the documents", _SELECT_FORM)
        return self.value(OR, 0), place

    def describe_no_constant(self, place: Token, attribute: str) -> tuple[str, str]:
        if is_join(attribute):
            return "a subquery", "compare with it by >= and <=, joined by AND"
        return super().describe_no_constant(place, attribute)

    def read_asked(self, scalar: Scalar, alias: str, function: Token, place: Token) -> str:
        """The attribute of documents that an argument is, or what is computed from them."""
        if side_of(scalar, alias) != Side.DOCUMENT:
            message = f"{function.word} is taken of an attribute of the documents"
            advice = f"write {alias}.{scalar.name if isinstance(scalar, Field) else 'attribute'}"
            self.problems.add(message, advice, place.start, place.end)
            return "unknown"
        if is_boolean(scalar):
            message, advice = f"{function.word} is taken of a value, not of a condition", "put it behind WHERE"
            self.problems.add(message, advice, place.start, place.end)
        return name_of_value(map_fields(scalar, lambda name: below(name, alias) or name))

    def from_history(self, form: str) -> tuple[str, Expression]:
        """FROM history d [WHERE ...], up to the parenthesis that closes it: the alias, and the condition."""
        self.take_word("FROM", form)
        table = self.take("name", "history", form)
        if table.word != "HISTORY":
            advice = "documents that came before the event are in the table history; no other can be asked"
            raise Refused(f"there is no table {show_token(table)}", advice, table.start, table.end)
        if self.next.word == "AS":
            self.advance()
        alias = self.alias(form) if self.next.kind == "name" else table.value
        if self.next.kind == "reserved" and self.next.word == "WHERE":
            self.advance()
            return alias, self.pairs(alias)
        if self.next.kind != ")":
            raise self.refuse_unexpected("WHERE or )", form)
        return alias, TRUE

    def pairs(self, alias: str) -> Expression:
        """The condition on pairs of an event and a document, up to the parenthesis that closes it."""
        inside: SubscriptionReader = bring("dibs.language.pairs").PairReader(self, alias)  # which is one of these
        condition = inside.tree()
        self.at, self.next = inside.at, inside.next
        return TRUE if self.problems else condition  # a broken one may hold what cannot be written

    def alias(self, form: str) -> str:
        name = self.take("name", "a name for the earlier document", form)
        if not name.word:
            raise Refused("the name of the earlier document is a plain word, as d", form, name.start, name.end)
        return name.value

    def take_word(self, word: str, form: str) -> Token:
        if self.next.word != word:
            raise self.refuse_unexpected(word, form)
        return self.advance()
