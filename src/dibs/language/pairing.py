"""Values inside a join: whose attributes they are computed from, and which test of a pair they make.

A value that is computed from a document alone is an attribute of the document, and one that is computed from the event
alone an attribute of the event. So `lower(d.user) = lower(user)` is a PairCompare of the two, as `d.user = user` is.
What mixes both, as `abs(d.price - price) < 5`, is TRUE, FALSE or unknown for a pair: an attribute of the pair, whose
name begins with PAIRED, over `d.price` and `e.price`. The time of the match is an attribute of the event, NOW.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

from dibs.language.expression import (
    FLIPPED_OPERATOR,
    NEGATED_OPERATOR,
    And,
    Between,
    Compare,
    Expression,
    In,
    IsNull,
    Kind,
    Like,
    Literal,
    Or,
    PairCompare,
    Predicate,
    RLike,
    StringTest,
)
from dibs.language.literals import time_of
from dibs.language.printer import COMPUTED, CONDITION, PAIRED, YES, is_paired
from dibs.language.scalars import (
    Call,
    Field,
    Interval,
    Scalar,
    Value,
    asks_for_now,
    computed_name,
    fields_of,
    inputs_of,
    is_computed,
    map_fields,
    scalar_of,
    split_mark,
)
from dibs.language.values import functions, kinds_of, text_value

_DOCUMENT, _EVENT = "d.", "e."  # whose attribute it is, in what is computed for a pair
NOW = COMPUTED + "now()"
_MOVING = ("+", "-")


class Side(enum.IntFlag):
    """Whose attributes a value is computed from."""

    NONE = 0
    EVENT = 1
    DOCUMENT = 2
    BOTH = 3


def below(path: str, alias: str) -> str | None:
    """The attribute that a path names in a document of this alias; None: it is the event's."""
    mark, path = split_mark(path)
    return mark + path[len(alias) + 1 :] if path.startswith(alias + ".") else None


def side_of(scalar: Scalar, alias: str) -> Side:
    side = Side.NONE
    for name in inputs_of(scalar):
        side |= Side.EVENT if below(name, alias) is None else Side.DOCUMENT
    return side


def value_of(name: str) -> Scalar:
    """The value that an attribute is."""
    return scalar_of(name) if is_computed(name) else Field(name)


def name_of_value(scalar: Scalar) -> str:
    """The attribute that a value is, which is no constant."""
    return scalar.name if isinstance(scalar, Field) else computed_name(scalar, is_boolean(scalar))


def is_boolean(scalar: Scalar) -> bool:
    return isinstance(scalar, Call) and functions().FUNCTIONS[scalar.function].result == functions().Kinds.BOOLEAN


# -- what is read of a pair ------------------------------------------------------------------------------------------


def fields_of_pair(name: str) -> tuple[list[str], list[str]]:
    """The attributes of the event and those of the document that a value of a pair is computed from."""
    own = name[len(PAIRED) :]
    return sides_of_pair(fields_of(value_of(own)), asks_for_now(own))


def sides_of_pair(names: list[str], asks_now: bool) -> tuple[list[str], list[str]]:
    """Attributes of a pair as those of the event and those of the document."""
    event = [name[len(_EVENT) :] for name in names if name.startswith(_EVENT)] + [NOW] * asks_now
    return event, [name[len(_DOCUMENT) :] for name in names if name.startswith(_DOCUMENT)]


def in_text(name: str, document: Callable[[str], str], event: Callable[[str], str]) -> Scalar:
    """What is computed from a document, or from a pair, with the attributes under other names."""
    if not is_paired(name):
        return map_fields(value_of(name), document)

    return map_fields(value_of(name[len(PAIRED) :]), lambda field: of_pair(field, document, event))


def of_pair(field: str, document: Callable[[str], str], event: Callable[[str], str]) -> str:
    """An attribute of a pair under another name."""
    if field.startswith(_DOCUMENT):
        return document(field[len(_DOCUMENT) :])
    return event(field[len(_EVENT) :])


def map_name(name: str, renamed: Callable[[str], str]) -> str:
    """An attribute, or what is computed, with other attributes."""
    return name_of_value(map_fields(value_of(name), renamed))


def map_event_of_pair(field: str, renamed: Callable[[str], str]) -> str:
    """An attribute of a pair, where those of the event have other names."""
    return of_pair(field, lambda name: name_in_pair(name, False), lambda name: name_in_pair(renamed(name), True))


def name_in_pair(name: str, is_event: bool) -> str:
    """The name of an attribute of the event, or of the document, in what is computed for a pair."""
    mark, path = split_mark(name)
    return mark + (_EVENT if is_event else _DOCUMENT) + path


def name_of_event(field: str) -> str | None:
    """The attribute of the event that one of a pair is."""
    return field[len(_EVENT) :] if field.startswith(_EVENT) else None


def named_in_pair(name: str, alias: str) -> str:
    """The same of a name of the text."""
    own = below(name, alias)
    return name_in_pair(name, True) if own is None else name_in_pair(own, False)


# -- predicates ------------------------------------------------------------------------------------------------------


def place(predicate: Predicate, alias: str) -> Expression | Side:
    """A predicate that was read with the names of the text, over the document and the event; or NONE or EVENT: it asks
    nothing of the document."""
    scalar = value_of(predicate.attribute)
    side = side_of(scalar, alias)
    if side == Side.DOCUMENT:
        return predicate._replace(attribute=name_of_value(_in_document(scalar, alias)))
    if side != Side.BOTH:
        return side
    if isinstance(predicate, IsNull):
        return IsNull(_paired(scalar, alias), predicate.negated)
    negated = False
    if isinstance(predicate, Compare) and predicate.attribute[: len(CONDITION)] == CONDITION:
        negated = predicate.operator == "<>"
    else:
        scalar, negated = _as_call(predicate, scalar)
    assert isinstance(scalar, Call)
    return _compare(scalar, negated, alias) or _holds(scalar, negated, alias)


def _in_document(scalar: Scalar, alias: str) -> Scalar:
    return map_fields(scalar, lambda name: below(name, alias) or name)


def _paired(scalar: Scalar, alias: str) -> str:
    return PAIRED + name_of_value(map_fields(scalar, lambda name: named_in_pair(name, alias)))


def _holds(call: Call, negated: bool, alias: str) -> Expression:
    return Compare(_paired(call, alias), "<>" if negated else "=", YES)


def _as_call(predicate: Predicate, scalar: Scalar) -> tuple[Call, bool]:
    """A predicate with constants as a computed condition; and whether it is negated."""
    match predicate:
        case Compare(_, operator, literal):
            return Call(operator, (scalar, Value(literal))), False
        case In(_, literals, negated, null):
            return Call("IN", (scalar, *map(Value, literals), *([Value(None)] if null else []))), negated
        case Between(_, low, high, negated):
            return Call("BETWEEN", (scalar, Value(low), Value(high))), negated
        case StringTest(_, function, text, negated):
            return Call(function, (scalar, text_value(text))), negated
        case Like(_, pattern, escape, negated):
            return Call("LIKE", (scalar, text_value(pattern), text_value(escape))), negated
        case RLike(_, pattern, negated):
            return Call("RLIKE", (scalar, text_value(pattern))), negated
    raise AssertionError(f"no test of a value: {predicate}")


def _compare(call: Call, negated: bool, alias: str) -> Expression | None:
    """A condition over pairs as comparisons of an attribute of the document with one of the event; None: it is none."""
    function, arguments = call
    if function == "BETWEEN":
        return _between(arguments, negated, alias)
    if function not in FLIPPED_OPERATOR:
        return None
    operator = NEGATED_OPERATOR[function] if negated else function
    left, right = arguments
    if isinstance(right, Value) and right.literal is not None and right.literal.kind == Kind.NUMBER:
        return _compare_passed(left, operator, right.literal, alias)
    if side_of(left, alias) == Side.EVENT:
        left, operator, right = right, FLIPPED_OPERATOR[operator], left
    if side_of(left, alias) != Side.DOCUMENT or side_of(right, alias) != Side.EVENT:
        return None
    return _pair(left, operator, right, 0, alias)


def _between(arguments: tuple[Scalar, ...], negated: bool, alias: str) -> Expression | None:
    """Two comparisons. With a time at one end both are times."""
    value, *ends = arguments
    is_timed = any(map(is_time, arguments))
    found: list[Expression] = []
    for operator, end in zip("<>" if negated else (">=", "<="), ends):
        sides = side_of(value, alias), side_of(end, alias)
        pair: Predicate | None = None
        if sides == (Side.DOCUMENT, Side.EVENT):
            pair = _pair(value, operator, end, 0, alias, is_timed)
        elif sides == (Side.EVENT, Side.DOCUMENT):
            pair = _pair(end, FLIPPED_OPERATOR[operator], value, 0, alias, is_timed)
        elif sides == (Side.DOCUMENT, Side.NONE):
            pair = _beside_constant(value, operator, end, alias, is_timed)
        if pair is None:
            return None
        found.append(pair)
    return (Or if negated else And)(tuple(found))


def _beside_constant(value: Scalar, operator: str, end: Scalar, alias: str, is_timed: bool) -> Predicate | None:
    literal = end.literal if isinstance(end, Value) else None
    if literal is not None and is_timed and literal.kind == Kind.STRING:
        moment = time_of(literal.value)
        literal = None if moment is None else Literal(Kind.TIME, moment)
    return None if literal is None else Compare(name_of_value(_in_document(value, alias)), operator, literal)


def _compare_passed(left: Scalar, operator: str, literal: Literal, alias: str) -> Expression | None:
    """The time that has passed between both, beside a number of microseconds: a window."""
    if not isinstance(left, Call) or left.function != "INTERVAL_MICROSECONDS" or not isinstance(literal.value, int):
        return None
    passed, microseconds = left.arguments[0], literal.value
    if not isinstance(passed, Call) or passed.function != "-" or isinstance(passed.arguments[1], Interval):
        return None
    first, second = passed.arguments
    if side_of(first, alias) == Side.EVENT:
        first, second, operator, microseconds = second, first, FLIPPED_OPERATOR[operator], -microseconds
    if side_of(first, alias) != Side.DOCUMENT or side_of(second, alias) != Side.EVENT:
        return None
    return _pair(first, operator, second, microseconds, alias, is_timed=True)


def _pair(
    document: Scalar, operator: str, event: Scalar, more: int, alias: str, is_timed: bool = False
) -> PairCompare | None:
    """The document's value beside the event's; intervals that are added to one of them are an offset between both. With
    an offset both are times, or strings that are read as times."""
    is_timed = is_timed or is_time(document) or is_time(event)
    later = more_later = 0
    if is_timed:
        (document, later), (event, more_later) = _moved(document), _moved(event)
    offset = more + more_later - later
    if is_boolean(document) or (not is_timed and may_be_interval(document) and may_be_interval(event)):
        return None  # a condition is not compared; and lengths of time are no attributes
    if not -(2**63) < offset < 2**63:
        return None
    attribute = name_of_value(_in_document(document, alias))
    return PairCompare(attribute, operator, name_of_value(event), offset if is_timed else None)


def _moved(scalar: Scalar) -> tuple[Scalar, int]:
    """A time without the intervals that are added to it, and how many microseconds these are. Strings are read as times
    here, so that TO_TIMESTAMP does nothing."""
    microseconds = 0
    while isinstance(scalar, Call) and scalar.function in (*_MOVING, "TO_TIMESTAMP"):
        if scalar.function == "TO_TIMESTAMP" and len(scalar.arguments) == 1:
            (scalar,) = scalar.arguments
            continue
        if scalar.function == "TO_TIMESTAMP":  # in a format of its own
            break
        first, second = scalar.arguments
        if scalar.function == "+" and isinstance(first, Interval):
            first, second = second, first
        if not isinstance(second, Interval) or second.months or may_be_interval(first):
            break
        microseconds += second.microseconds * (-1 if scalar.function == "-" else 1)
        scalar = first
    return scalar, microseconds


# -- kinds -----------------------------------------------------------------------------------------------------------


def is_time(scalar: Scalar) -> bool:
    """Whether it is a time or NULL, whatever the event has."""
    if isinstance(scalar, Call) and scalar.function in _MOVING:
        first, second = scalar.arguments
        if isinstance(first, Interval) and scalar.function == "+":
            first, second = second, first
        return isinstance(second, Interval) and not may_be_interval(first)
    kinds: Any = kinds_of(scalar)
    return bool(kinds == functions().Kinds.TIME)


def may_be_interval(scalar: Scalar) -> bool:
    """Whether it may be a length of time. (Attributes are none.)"""
    if isinstance(scalar, Interval):
        return True
    if not isinstance(scalar, Call) or not kinds_of(scalar) & functions().Kinds.INTERVAL:
        return False
    if scalar.function in _MOVING:  # a length is what is between two times, or two lengths together
        passed = scalar.function == "-" and all(map(_may_be_time, scalar.arguments))
        return passed or all(map(may_be_interval, scalar.arguments))
    return any(map(may_be_interval, scalar.arguments))


def _may_be_time(scalar: Scalar) -> bool:
    kinds = functions().Kinds
    return bool(kinds_of(scalar) & (kinds.TIME | kinds.STRING))
