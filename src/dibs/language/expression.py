"""The expression tree of a subscription: immutable, hashable, compared by class and content.

    Expression = And(children) | Or(children) | Not(child) | Truth(child, value, negated) | Constant(value)
               | Compare | In | Between | StringTest | Like | RLike | IsNull        (the predicates)

Inside a join over history (joins.py) attributes are those of an earlier document, and there is one more predicate,
PairCompare, which sets one of them against an attribute of the event.

A predicate speaks of one attribute. `negated` predicates are predicates of their own (NOT IN, NOT LIKE, ...): over
an array they ask for SOME element that fails the positive test, so a negation may be pushed into a predicate but
never pulled out of one. Nor is it ever pushed through Truth, whose complement is Truth again: never UNKNOWN, and over
an array `(a = 1) IS NOT TRUE` says that NO element is 1.

Nodes are named tuples because a million of them are made at once; equality and hash take the class into account
(a plain tuple would call And(x) and Or(x) equal).
"""

from __future__ import annotations

import datetime as dt
import enum
import gc
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar, Union


class Kind(enum.IntEnum):
    """The kinds of values. A comparison across kinds is unknown."""

    BOOLEAN = 0
    NUMBER = 1
    STRING = 2
    TIME = 3  # dates and timestamps: a date is its midnight in UTC


Node = TypeVar("Node", bound=type)


def compare_by_class(node: Node) -> Node:
    """Gives a named tuple an equality and a hash that take its class into account."""

    def equal(self: Any, other: object) -> bool:
        return type(self) is type(other) and bool(tuple.__eq__(self, other))  # type: ignore[operator]

    def unequal(self: Any, other: object) -> bool:
        return not equal(self, other)

    def hashed(self: Any) -> int:
        return hash((node.__name__, tuple.__hash__(self)))

    for name, method in (("__eq__", equal), ("__ne__", unequal), ("__hash__", hashed)):
        setattr(node, name, method)
    return node


NAN = math.nan  # the one NaN object of literals: tuples compare by identity first, so it equals itself


@compare_by_class
class Literal(NamedTuple):
    """A constant. NUMBER: int (of 64 bits, signed or unsigned) or a float that is not integral in that range;
    STRING: str; TIME: datetime.date, or datetime.datetime without zone (UTC); BOOLEAN: bool."""

    kind: Kind
    value: Any


def number(value: int | float) -> Literal:
    """The canonical literal of a number: integral values of 64 bits are ints, everything else is a float."""
    if isinstance(value, float):
        if math.isnan(value):
            return Literal(Kind.NUMBER, NAN)
        if -(2.0**63) <= value < 2.0**64 and value == int(value):
            return Literal(Kind.NUMBER, int(value))
        return Literal(Kind.NUMBER, value)
    if -(2**63) <= value < 2**64:
        return Literal(Kind.NUMBER, int(value))
    try:
        return Literal(Kind.NUMBER, float(value))
    except OverflowError:
        return Literal(Kind.NUMBER, math.inf if value > 0 else -math.inf)


def number_key(value: int | float) -> tuple[float, int]:
    """(nearest float64, what is left of an integer): orders int64, uint64 and float64 by mathematical value.

    NaN is (inf, 1), so it equals itself and is above all else; wider integers are read as the nearest float64.
    """
    if isinstance(value, float):
        return (math.inf, 1) if value != value else (value + 0.0, 0)
    if not -(2**63) <= value < 2**64:
        try:
            return float(value), 0
        except OverflowError:
            return (math.inf, 0) if value > 0 else (-math.inf, 0)
    near = float(value)
    return near, value - int(near)


def literal(value: bool | int | float | str | dt.date | dt.datetime) -> Literal:
    """The literal of a Python value."""
    if isinstance(value, bool):
        return Literal(Kind.BOOLEAN, value)
    if isinstance(value, (int, float)):
        return number(value)
    if isinstance(value, str):
        return Literal(Kind.STRING, value)
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        return Literal(Kind.TIME, value.astimezone(dt.timezone.utc).replace(tzinfo=None))
    if isinstance(value, dt.date):
        return Literal(Kind.TIME, value)
    raise TypeError(f"no literal of type {type(value).__name__}")


EPOCH = dt.datetime(1970, 1, 1)
MICROSECOND = dt.timedelta(microseconds=1)
_SIZES = (1, 1_000, 1_000_000, 60_000_000, 3_600_000_000, 86_400_000_000, 604_800_000_000)
UNITS = dict(zip(("MICROSECOND", "MILLISECOND", "SECOND", "MINUTE", "HOUR", "DAY", "WEEK"), _SIZES))  # of time
MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}  # which have no fixed length


def microseconds(value: dt.date) -> int:
    """Microseconds since 1970 UTC of a date or of a datetime without zone."""
    if not isinstance(value, dt.datetime):
        value = dt.datetime(value.year, value.month, value.day)
    return (value - EPOCH) // MICROSECOND


NEGATED_OPERATOR = {"=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
FLIPPED_OPERATOR = {"=": "=", "<>": "<>", "<": ">", ">": "<", "<=": ">=", ">=": "<="}


@compare_by_class
class Compare(NamedTuple):
    """attribute operator literal; the operator is one of = <> < <= > >=."""

    attribute: str
    operator: str
    literal: Literal


@compare_by_class
class In(NamedTuple):
    """attribute [NOT] IN (literals). `null`: the list holds a NULL, so the test is never FALSE (NOT IN: never TRUE)."""

    attribute: str
    literals: tuple[Literal, ...]
    negated: bool = False
    null: bool = False


@compare_by_class
class Between(NamedTuple):
    """attribute [NOT] BETWEEN low AND high, both ends included. Over an array it is one test on each element."""

    attribute: str
    low: Literal
    high: Literal
    negated: bool = False


@compare_by_class
class StringTest(NamedTuple):
    """[NOT] STARTSWITH | ENDSWITH | CONTAINS (attribute, text)."""

    attribute: str
    function: str  # "STARTSWITH", "ENDSWITH" or "CONTAINS"
    text: str
    negated: bool = False


@compare_by_class
class Like(NamedTuple):
    """attribute [NOT] LIKE pattern [ESCAPE escape]: % is any text, _ is one character."""

    attribute: str
    pattern: str
    escape: str = "\\"
    negated: bool = False


@compare_by_class
class RLike(NamedTuple):
    """attribute [NOT] RLIKE pattern: some part of the string matches the RE2 expression."""

    attribute: str
    pattern: str
    negated: bool = False


@compare_by_class
class IsNull(NamedTuple):
    """attribute IS [NOT] NULL: no value at all, counting neither nulls nor empty arrays. Never unknown."""

    attribute: str
    negated: bool = False


@compare_by_class
class PairCompare(NamedTuple):
    """attribute of an earlier document, operator, attribute of the event [+ offset]. Only in the condition of a join.

    The offset, in microseconds, is added to the event's value, which then must be a time. Over arrays it asks for SOME
    pair of elements."""

    attribute: str
    operator: str
    event: str
    offset: int | None = None


@compare_by_class
class Constant(NamedTuple):
    """TRUE, FALSE, or NULL (value None: unknown)."""

    value: bool | None


@compare_by_class
class And(NamedTuple):
    children: tuple[Expression, ...]


@compare_by_class
class Or(NamedTuple):
    children: tuple[Expression, ...]


@compare_by_class
class Not(NamedTuple):
    child: Expression


@compare_by_class
class Truth(NamedTuple):
    """(child) IS [NOT] TRUE (value True), FALSE (False) or UNKNOWN (None). Itself never unknown.

    IS FALSE: NOT child, pushed to its predicates, is TRUE. IS UNKNOWN: neither of both is."""

    child: Expression
    value: bool | None
    negated: bool = False


Predicate = Union[Compare, In, Between, StringTest, Like, RLike, IsNull, PairCompare]
Expression = Union[And, Or, Not, Truth, Constant, Compare, In, Between, StringTest, Like, RLike, IsNull, PairCompare]

TRUE, FALSE, UNKNOWN = Constant(True), Constant(False), Constant(None)


def negate(predicate: Predicate) -> Predicate:
    """The predicate that is TRUE exactly where this one is FALSE (for a single value)."""
    if isinstance(predicate, (Compare, PairCompare)):
        return predicate._replace(operator=NEGATED_OPERATOR[predicate.operator])
    return predicate._replace(negated=not predicate.negated)


def is_timed(predicate: Predicate) -> bool:
    """Whether it compares with times, beside which a string is read as one."""
    if isinstance(predicate, Compare):
        return predicate.literal.kind == Kind.TIME
    if isinstance(predicate, In):
        return any(literal.kind == Kind.TIME for literal in predicate.literals)
    return isinstance(predicate, Between) and Kind.TIME in (predicate.low.kind, predicate.high.kind)


def tests_of_truth(node: Truth) -> And | Or | Truth:
    """IS UNKNOWN in the other two tests: neither the condition nor NOT the condition is TRUE."""
    if node.value is not None:
        return node
    child, _, negated = node
    if negated:
        return Or((Truth(child, True), Truth(child, False)))
    return And((Truth(child, True, True), Truth(child, False, True)))


def predicates(expression: Expression) -> Iterator[Predicate]:
    """The predicates from left to right, repeats included."""
    stack: list[Expression] = [expression]
    while stack:
        node = stack.pop()
        if isinstance(node, (And, Or)):
            stack.extend(reversed(node.children))
        elif isinstance(node, (Not, Truth)):
            stack.append(node.child)
        elif not isinstance(node, Constant):
            yield node


def attributes(expression: Expression) -> list[str]:
    """The attributes that the expression mentions, in order of first mention."""
    return list(dict.fromkeys(p.attribute for p in predicates(expression)))


@contextmanager
def collection_paused() -> Iterator[None]:
    """Making millions of tuples would start the garbage collector again and again, and they hold no cycle."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
