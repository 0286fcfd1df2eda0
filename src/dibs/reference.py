"""The obvious evaluator: an expression and one event in plain Python. It is slow, short and the judge of every index.

    evaluate(expression, event, history)   TRUE, FALSE or UNKNOWN, as True, False or None
    matches(expression, event, history)    whether it is TRUE

`history` are the documents that joins speak of (reference_joins.py).

It shares no code with the coding stage on purpose: two readings of the same rules have to agree.

NOT is pushed down to the predicates first: NOT (a = 1) means a <> 1. For single values that is plain three-valued
logic; over an array a = [1, 2] both a = 1 and a <> 1 hold, because for each of them there is an element.

A Range holds where one of its values would satisfy the predicate. Its kind is taken as dense, so that there is always
a value between two different ones: Range(3, 4) satisfies a NOT IN (3, 4), because 3.5 does. Booleans are just two
values: Range(False, True) satisfies neither a NOT IN (FALSE, TRUE) nor a > TRUE. No number is below -infinity or
above NaN and no string below '', so that a Range without an end does not satisfy a > NaN.
"""

from __future__ import annotations

import datetime as dt
import decimal
import itertools
import math
import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dibs.coding.values import Range
from dibs.errors import EventError
from dibs.language.expression import (
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
    literal,
    negate,
)
from dibs.language.joins import is_join, join_of, joins_in
from dibs.language.regex import compile_regex
from dibs.reference_joins import join_values

ValuesByName = Mapping[str, list[Any]]
OPERATORS = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
EPOCH = dt.datetime(1970, 1, 1)
MAX_DEPTH = 1_000  # of events; also what ends an event that holds itself
EPOCH_UTC = EPOCH.replace(tzinfo=dt.timezone.utc)


def matches(expression: Expression, event: Mapping[str, Any], history: Sequence[Mapping[str, Any]] = ()) -> bool:
    """Whether the expression is TRUE for the event."""
    return evaluate(expression, event, history) is True


def evaluate(
    expression: Expression, event: Mapping[str, Any], history: Sequence[Mapping[str, Any]] = ()
) -> bool | None:
    """TRUE, FALSE or UNKNOWN (None)."""
    values = {name: found for name, found in values_of(event).items() if not is_join(name)}
    joins = list(joins_in(expression))
    if joins:
        documents = [values_of(document) for document in history]
        values |= {name: join_values(join_of(name), values, documents) for name in joins}
    truths: list[bool | None] = []  # of the nodes that wait for their parent
    for node in children_first(expression):
        match node:
            case And(children):
                truths.append(truth_of_and([truths.pop() for _ in children]))
            case Or(children):
                truths.append(truth_of_or([truths.pop() for _ in children]))
            case Constant(value):
                truths.append(value)
            case predicate:
                truths.append(truth_of(predicate, values))
    return truths.pop()


def truth_of_and(truths: list[bool | None]) -> bool | None:
    return False if False in truths else None if None in truths else True


def truth_of_or(truths: list[bool | None]) -> bool | None:
    return True if True in truths else None if None in truths else False


def children_first(expression: Expression) -> Iterator[And | Or | Constant | Predicate]:
    """The nodes of the expression with NOT pushed down to the predicates, from left to right, children first.

    No recursion: a tree may be deeper than Python's stack.
    """
    nodes: list[And | Or | Constant | Predicate] = []
    stack = [(expression, False)]
    while stack:
        node, negated = stack.pop()
        match node:
            case Not(child):
                stack.append((child, not negated))
                continue
            case And(children) | Or(children):
                stack.extend((child, negated) for child in children)
                if negated:
                    node = Or(children) if isinstance(node, And) else And(children)
            case Constant(value):
                node = Constant(not value) if negated and value is not None else node
            case predicate:
                node = negate(predicate) if negated else predicate
        nodes.append(node)
    return reversed(nodes)


def truth_of(predicate: Predicate, values: ValuesByName) -> bool | None:
    """TRUE where some value of the attribute satisfies the predicate, else FALSE where one satisfies its negation."""
    return True if holds_for(predicate, values) else False if holds_for(negate(predicate), values) else None


def holds_for(predicate: Predicate, values: ValuesByName) -> bool:
    """Whether some value of the attribute satisfies the predicate."""
    of_attribute = values.get(predicate.attribute, [])
    if isinstance(predicate, IsNull):
        if predicate.negated:
            return any(not isinstance(value, OfNoKind) for value in of_attribute)
        return not of_attribute
    return any(satisfies(value, predicate) for value in of_attribute)


def satisfies(value: Any, predicate: Predicate) -> bool:
    """Whether a value satisfies a predicate. False as well when that is unknown."""
    if isinstance(value, OfNoKind):
        return False
    if isinstance(value, Range):
        return range_satisfies(value, predicate)
    kind, key = find_key(value)
    match predicate:
        case Compare(_, symbol, constant):
            return constant.kind == kind and OPERATORS[symbol](key, key_of(constant))
        case In(_, literals, False):
            return (kind, key) in [(x.kind, key_of(x)) for x in literals]
        case In(_, literals, True, null):
            return not null and all(x.kind == kind and key != key_of(x) for x in literals)
        case Between():
            return any(all(satisfies(value, test) for test in tests) for tests in between_tests(predicate))
        case _:
            return kind == Kind.STRING and string_satisfies(value, predicate)


def string_satisfies(value: str, predicate: Predicate) -> bool:
    match predicate:
        case StringTest(_, "STARTSWITH", text, negated):
            return value.startswith(text) != negated
        case StringTest(_, "ENDSWITH", text, negated):
            return value.endswith(text) != negated
        case StringTest(_, "CONTAINS", text, negated):
            return (text in value) != negated
        case Like(_, pattern, escape, negated):
            return is_like(value, pattern, escape) != negated
        case RLike(_, pattern, negated):
            return (compile_regex(pattern).search(value) is not None) != negated
    raise AssertionError(f"not a test of strings: {predicate}")


def between_tests(predicate: Between) -> list[list[Compare]]:
    """What BETWEEN stands for, on one value: any of the lists, all of its comparisons."""
    name, low, high, negated = predicate
    if negated:
        return [[Compare(name, "<", low)], [Compare(name, ">", high)]]
    return [[Compare(name, ">=", low), Compare(name, "<=", high)]]


# --- LIKE ----------------------------------------------------------------------------------------------------------

ANY_TEXT, ANY_CHARACTER = object(), object()


def like_tokens(pattern: str, escape: str) -> list[Any]:
    """The characters of a LIKE pattern, with ANY_TEXT for % and ANY_CHARACTER for _ where these are not escaped."""
    tokens: list[Any] = []
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            tokens.append(next(characters, escape))
        else:
            tokens.append({"%": ANY_TEXT, "_": ANY_CHARACTER}.get(character, character))
    return tokens


def is_like(text: str, pattern: str, escape: str) -> bool:
    ends = {0}  # where in the text the tokens so far can end
    for token in like_tokens(pattern, escape):
        if token is ANY_TEXT:
            ends = set(range(min(ends), len(text) + 1)) if ends else ends
        else:
            ends = {end + 1 for end in ends if end < len(text) and token in (ANY_CHARACTER, text[end])}
    return len(text) in ends


# --- Ranges --------------------------------------------------------------------------------------------------------


class Stretch(NamedTuple):
    low: Any
    high: Any
    above_low: bool = False  # low itself is left out
    below_high: bool = False  # high itself is left out

    def meets(self, other: Stretch) -> bool:
        low, above_low = max((self.low, self.above_low), (other.low, other.above_low))
        high, up_to_high = min((self.high, not self.below_high), (other.high, not other.below_high))
        return low < high or (low == high and not above_low and up_to_high)


def range_satisfies(value: Range, predicate: Predicate) -> bool:
    kind, low, high = range_ends(value)
    if kind == Kind.BOOLEAN:
        return any(satisfies(each, predicate) for each in (False, True) if low <= each <= high)
    return any(Stretch(low, high).meets(solution) for solution in solutions(predicate, kind))


def range_ends(value: Range) -> tuple[Kind, Any, Any]:
    """The kind of a Range and the keys of its least and its greatest value."""
    (kind, _), *rest = ends = [find_key(end) for end in (value.lo, value.hi) if end is not None]
    least, greatest = whole(kind)
    assert all(kind == other for other, _ in rest), "values_of lets no Range of two kinds pass"
    low = least if value.lo is None else ends[0][1]
    high = greatest if value.hi is None else ends[-1][1]
    return kind, low, high


def whole(kind: Kind) -> tuple[Any, Any]:
    """The keys of the least and the greatest value of a kind, or something beyond all of them."""
    if kind == Kind.NUMBER:
        return find_key(-math.inf)[1], find_key(math.nan)[1]
    return {Kind.BOOLEAN: (False, True), Kind.STRING: (b"", b"\xff"), Kind.TIME: (-math.inf, math.inf)}[kind]


def solutions(predicate: Predicate, kind: Kind) -> list[Stretch]:
    """The values of a kind that satisfy a predicate; none for a pattern that is no interval, which is unknown."""
    least, greatest = whole(kind)
    match predicate:
        case Compare(_, symbol, constant):
            if constant.kind != kind:
                return []
            key = key_of(constant)
            below, above = Stretch(least, key, below_high=True), Stretch(key, greatest, above_low=True)
            return {
                "=": [Stretch(key, key)],
                "<>": [below, above],
                "<": [below],
                "<=": [Stretch(least, key)],
                ">": [above],
                ">=": [Stretch(key, greatest)],
            }[symbol]
        case In(_, literals, False):
            return [Stretch(key_of(x), key_of(x)) for x in literals if x.kind == kind]
        case In(_, literals, True, null):
            if null or any(x.kind != kind for x in literals):
                return []
            keys = sorted(key_of(x) for x in literals)
            gaps = [Stretch(low, high, True, True) for low, high in itertools.pairwise(keys)]
            return [Stretch(least, keys[0], below_high=True), *gaps, Stretch(keys[-1], greatest, above_low=True)]
        case Between(_, low, high, False):
            if {low.kind, high.kind} != {kind}:
                return []
            return [Stretch(key_of(low), key_of(high))]
        case Between():
            return [interval for (test,) in between_tests(predicate) for interval in solutions(test, kind)]
    return string_solutions(predicate) if kind == Kind.STRING else []


def string_solutions(predicate: Predicate) -> list[Stretch]:
    least, greatest = whole(Kind.STRING)
    match predicate:
        case Like(name, pattern, escape, negated):
            tokens = like_tokens(pattern, escape)
            fixed = list(tokens)
            while fixed and fixed[-1] is ANY_TEXT:
                fixed.pop()
            if ANY_TEXT in fixed or ANY_CHARACTER in fixed:
                return []
            if fixed == tokens:
                return solutions(Compare(name, "<>" if negated else "=", literal("".join(fixed))), Kind.STRING)
            return string_solutions(StringTest(name, "STARTSWITH", "".join(fixed), negated))
        case StringTest(_, _, "", negated):  # every string starts with it, ends with it and contains it
            return [] if negated else [Stretch(least, greatest)]
        case StringTest(_, "STARTSWITH", text, negated):
            first = text.encode()
            after = first[:-1] + bytes([first[-1] + 1])  # UTF-8 has no byte 255, so the last one has a successor
            if negated:
                return [Stretch(least, first, below_high=True), Stretch(after, greatest)]
            return [Stretch(first, after, below_high=True)]
    return []


# --- Values --------------------------------------------------------------------------------------------------------


class OfNoKind(NamedTuple):
    """A value that is there but of no kind: every predicate on it is unknown, IS NULL and IS NOT NULL included."""

    reason: str


def values_of(event: Mapping[str, Any]) -> dict[str, list[Any]]:
    """The values of every attribute: objects become dotted paths, arrays lists, and nulls are left out.

    Values are bool, int, float, str, datetime (or datetime64), Range, or OfNoKind.
    """
    if not isinstance(event, Mapping):
        raise EventError(f"an event is a mapping from attribute names to values, not {type(event).__name__}")
    found: dict[str, list[Any]] = {}
    todo: list[tuple[str | None, int, Any]] = [(None, 0, event)]
    while todo:
        name, depth, value = todo.pop()
        if depth > MAX_DEPTH:
            raise EventError(f"more than {MAX_DEPTH:,} objects and arrays inside each other", attribute=name)
        if isinstance(value, Mapping):
            for key, inner in reversed(list(value.items())):
                if not isinstance(key, str):
                    raise EventError(f"the attribute name {key!r} is not a string", attribute=name)
                todo.append((key if name is None else f"{name}.{key}", depth + 1, inner))
        elif isinstance(value, (list, tuple, set, frozenset)):
            todo.extend((name, depth + 1, element) for element in reversed(list(value)))
        elif isinstance(value, np.ndarray):
            todo.extend((name, depth + 1, element) for element in reversed(value.ravel()))
        elif (read := read_value(value)) is not None:
            assert name is not None
            found.setdefault(name, []).append(read)
    return found


def read_value(value: Any) -> Any:
    """A value as one of the language, None for a null."""
    if isinstance(value, Range):
        return read_range(value)
    if isinstance(value, np.datetime64):
        value = value.astype("datetime64[us]")
        plain = value.item()
        return value if isinstance(plain, int) else plain  # datetime cannot hold the years beyond 9999
    if isinstance(value, np.generic):
        value = value.item()
    match value:
        case None | bool() | float():
            return value
        case int():
            return read_integer(value)
        case decimal.Decimal():
            if value.is_nan():
                return math.nan
            integral = value.is_finite() and abs(value) < 2**64 and value == int(value)
            return read_integer(int(value)) if integral else float(value)
        case str():
            try:
                value.encode()
            except UnicodeEncodeError:
                return OfNoKind("a string that is not valid Unicode")
            return value
        case dt.datetime():
            return None if value != value else value  # NaT, the null of pandas, is a datetime
        case dt.date():
            return dt.datetime(value.year, value.month, value.day)
    return None if type(value).__name__ == "NAType" else OfNoKind(f"a value of type {type(value).__name__}")


def read_integer(value: int) -> int | float:
    """Integers beyond 64 bits are read as the nearest float64."""
    if -(2**63) <= value < 2**64:
        return value
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def read_range(value: Range) -> Range | OfNoKind:
    ends = [None if end is None else read_value(end) for end in (value.lo, value.hi)]
    given = [end for end in ends if end is not None]
    if not given:
        return OfNoKind("a range without ends")
    if any(isinstance(end, (Range, OfNoKind)) for end in given):
        return OfNoKind("a range with an end that is no single value")
    keys = [find_key(end) for end in given]
    if len({kind for kind, _ in keys}) > 1:
        return OfNoKind("a range from one kind of value to another")
    if keys != sorted(keys):
        return OfNoKind("a range whose low end is above its high end")
    return Range(*ends)


def find_key(value: Any) -> tuple[Kind, Any]:
    """The kind of a value that values_of gives, and a key that orders the values of that kind."""
    match value:
        case bool():
            return Kind.BOOLEAN, value
        case int() | float():  # Python compares the two by mathematical value; NaN goes above everything
            return Kind.NUMBER, (1, 0) if value != value else (0, value)
        case str():
            return Kind.STRING, value.encode()
    if isinstance(value, np.datetime64):
        return Kind.TIME, int(value.astype(np.int64))
    epoch = EPOCH if value.utcoffset() is None else EPOCH_UTC
    return Kind.TIME, (value - epoch) // dt.timedelta(microseconds=1)


def key_of(constant: Literal) -> Any:
    return find_key(read_value(constant.value))[1]
