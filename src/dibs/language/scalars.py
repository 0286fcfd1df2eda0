"""Values that are computed from an event: `price * qty`, `lower(name)`, `hour(at)`, `a < b`.

    Scalar = Field(name) | Value(literal) | Interval(months, microseconds) | Call(function, arguments)
           | Lambda(depth, body)

A computed value is an attribute of the event. Its name is a mark that no text can hold and its canonical text; equal
values have equal names, so that all subscriptions share one, which is computed once for an event. The tree of a
subscription holds ordinary predicates on that name:

    price * qty > 100          name of `(price * qty)`, > 100
    a < b                      name of `(a < b)`, = TRUE        (NOT a < b: <> TRUE)

Operators are calls too: `+`, `<`, AND, CASE. What each function means stands in language.functions.

The time of the match is an input as attributes are: `now()` is NOW of the field PRESENT, which whoever reads events
fills in (language.present).

The name of a field may have a mark in front, which says what of the attribute is meant: WHOLE, the array as it came, in
place of one element of it; HAS_KEY, whether the key is there; EVERY alone, all strings of the event. In the body of a
Lambda `BOUND 1.price` is the price of the element that the outermost one is about: `exists(items, x -> x.price < 10)`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import NamedTuple, Union

from dibs.jit.undisturbed import bring
from dibs.language.expression import Literal, compare_by_class
from dibs.language.printer import (
    BOUND,
    COMPUTED,
    CONDITION,
    EVERY,
    HAS_KEY,
    WHOLE,
    literal_text,
    name_text,
    string_text,
)

PRESENT = "\0\4"  # the attribute of every event that is the time of the match; no text can name it
KEPT = 65_536  # computed values whose texts need not be read again

ARITHMETIC = frozenset(["+", "-", "*", "/", "%", "DIV", "||", "&", "|", "^", "<<", ">>"])
COMPARISONS = frozenset(["=", "<>", "<", "<=", ">", ">=", "<=>"])
LOGIC = frozenset(["AND", "OR"])
_MAKING = ("ARRAY", "SPLIT")  # arrays
INFIX = ARITHMETIC | COMPARISONS | LOGIC
_PREFIX = {"NEGATIVE": "-", "~": "~", "NOT": "NOT "}


@compare_by_class
class Field(NamedTuple):
    """An attribute of the event."""

    name: str


@compare_by_class
class Value(NamedTuple):
    """A constant; None: NULL."""

    literal: Literal | None


@compare_by_class
class Interval(NamedTuple):
    """A length of time. Months have no fixed length, so they are kept apart."""

    months: int
    microseconds: int


@compare_by_class
class Call(NamedTuple):
    function: str  # in upper case, or an operator's sign
    arguments: tuple[Scalar, ...]


@compare_by_class
class Lambda(NamedTuple):
    """A condition on an element of an array, as argument of EXISTS and FORALL."""

    depth: int  # 1: within no other
    body: Scalar


Scalar = Union[Field, Value, Interval, Call, Lambda]


def is_computed(name: str) -> bool:
    return name[:2] in (COMPUTED, CONDITION)


def computed_name(scalar: Scalar, is_condition: bool = False) -> str:
    """The attribute that stands for a value; is_condition: for one that is TRUE, FALSE or unknown."""
    name = (CONDITION if is_condition else COMPUTED) + text_of(scalar)
    scalar_of.remember(name, scalar)
    return name


def split_mark(name: str) -> tuple[str, str]:
    """WHOLE or HAS_KEY, or nothing, and the name behind it."""
    return (name[:2], name[2:]) if name[:2] in (WHOLE, HAS_KEY) else ("", name)


def is_raw(name: str) -> bool:
    """Whether it is read of the event as it came."""
    return name[:1] == "\0" and name[:2] in (WHOLE, HAS_KEY, EVERY)


def bound_at(name: str) -> tuple[int, str] | None:
    """Of a field that is an element of an array, or lies in one: the depth of its Lambda, and the path."""
    name = split_mark(name)[1]
    if name[:2] != BOUND:
        return None
    depth, _, path = name[2:].partition(".")
    return int(depth), path


def fields_of(scalar: Scalar) -> list[str]:
    """The attributes of an event that it is computed from, in order of first mention."""
    return [name for name in inputs_of(scalar) if name != PRESENT]


def inputs_of(scalar: Scalar) -> list[str]:
    """The same, and PRESENT, if it asks for the time of the match."""
    return [name for name in dict.fromkeys(_fields(scalar)) if bound_at(name) is None]


def bound_fields_of(function: Lambda) -> list[tuple[str, str]]:
    """The fields of its own element that it names, each with its path."""
    found = ((name, bound_at(name)) for name in dict.fromkeys(_fields(function.body)))
    return [(name, bound[1]) for name, bound in found if bound is not None and bound[0] == function.depth]


def sees_structure(scalar: Scalar) -> bool:
    """Whether arrays are more than their elements to it: it has fields that are read as they came, or makes arrays."""
    if isinstance(scalar, Field):
        return scalar.name[:2] in (WHOLE, HAS_KEY)
    if isinstance(scalar, Call):
        return scalar.function in _MAKING or any(map(sees_structure, scalar.arguments))
    return isinstance(scalar, Lambda)


def asks_for_now(name: str) -> bool:
    """Whether an attribute is computed from the time of the match."""
    return is_computed(name) and PRESENT in inputs_of(scalar_of(name))


def at_time_of(scalar: Scalar, field: str) -> Scalar:
    """The value, where the time of the match is what an attribute of the event says."""
    if isinstance(scalar, Call):
        return Call(scalar.function, tuple(at_time_of(argument, field) for argument in scalar.arguments))
    if isinstance(scalar, Lambda):
        return scalar._replace(body=at_time_of(scalar.body, field))
    return Field(field) if scalar == Field(PRESENT) else scalar


def _fields(scalar: Scalar) -> Iterator[str]:
    if isinstance(scalar, Field):
        yield scalar.name
    elif isinstance(scalar, Call):
        for argument in scalar.arguments:
            yield from _fields(argument)
    elif isinstance(scalar, Lambda):
        yield from _fields(scalar.body)


def map_fields(scalar: Scalar, renamed: Callable[[str], str]) -> Scalar:
    """The same of other attributes, at the same time."""
    if isinstance(scalar, Field):
        is_own = scalar.name == PRESENT or bound_at(scalar.name) is not None
        return scalar if is_own else Field(renamed(scalar.name))
    if isinstance(scalar, Call):
        return Call(scalar.function, tuple(map_fields(argument, renamed) for argument in scalar.arguments))
    if isinstance(scalar, Lambda):
        return scalar._replace(body=map_fields(scalar.body, renamed))
    return scalar


def size_of(scalar: Scalar) -> int:
    """How many nodes it has."""
    if isinstance(scalar, Lambda):
        return 1 + size_of(scalar.body)
    return 1 + sum(map(size_of, scalar.arguments)) if isinstance(scalar, Call) else 1


# ---- text ----


def text_of(scalar: Scalar) -> str:
    """Its canonical text, which the grammar reads as the same value."""
    if isinstance(scalar, Field):
        return name_text(scalar.name)
    if isinstance(scalar, Value):
        return "NULL" if scalar.literal is None else literal_text(scalar.literal)
    if isinstance(scalar, Interval):
        return interval_text(scalar)
    if isinstance(scalar, Lambda):
        return _lambda_text(scalar)
    function, arguments = scalar
    if function in _TEXTS:
        return _TEXTS[function](arguments)
    texts = list(map(text_of, arguments))
    if function in INFIX:
        return f"({f' {function} '.join(texts)})"
    if function in _PREFIX:
        return f"({_PREFIX[function]}{texts[0]})"
    return f"{function.lower()}({', '.join(texts)})"


def interval_text(interval: Interval) -> str:
    if interval.months and interval.microseconds:
        return f"(INTERVAL {interval.months} MONTHS + INTERVAL {interval.microseconds} MICROSECONDS)"
    return f"INTERVAL {interval.months} MONTHS" if interval.months else f"INTERVAL {interval.microseconds} MICROSECONDS"


def _lambda_text(function: Lambda) -> str:
    """Its element gets the first name that no attribute in its body begins with: those of the lambdas around it are
    attributes by then."""
    taken = {split_mark(name)[1].partition(".")[0] for name in _fields(function.body)}
    name = next(name for number in itertools.count(1) for name in _variables(number) if name not in taken)
    return f"{name} -> {text_of(_rename(function.body, function.depth, name))}"


def _variables(number: int) -> tuple[str, ...]:
    return ("x", "y", "z") if number == 1 else (f"x{number}",)


def _rename(scalar: Scalar, depth: int, name: str) -> Scalar:
    if isinstance(scalar, Field):
        found = bound_at(scalar.name)
        if found is None or found[0] != depth:
            return scalar
        return Field(split_mark(scalar.name)[0] + name + f".{found[1]}" * bool(found[1]))
    if isinstance(scalar, Call):
        return Call(scalar.function, tuple(_rename(argument, depth, name) for argument in scalar.arguments))
    return Lambda(scalar.depth, _rename(scalar.body, depth, name)) if isinstance(scalar, Lambda) else scalar


def _case_text(arguments: tuple[Scalar, ...]) -> str:
    texts = list(map(text_of, arguments))
    pairs = "".join(f" WHEN {texts[i]} THEN {texts[i + 1]}" for i in range(0, len(texts) - 1, 2))
    last = f" ELSE {texts[-1]}" if len(texts) % 2 else ""
    return f"CASE{pairs}{last} END"


def _string(scalar: Scalar) -> str:
    assert isinstance(scalar, Value) and scalar.literal is not None
    return str(scalar.literal.value)


def _with_unit(function: str, arguments: tuple[Scalar, ...]) -> str:
    return f"{function}({', '.join([_string(arguments[0]), *map(text_of, arguments[1:])])})"


def _like_text(arguments: tuple[Scalar, ...]) -> str:
    value, pattern, escape = arguments
    last = "" if _string(escape) == "\\" else f" ESCAPE {string_text(_string(escape))}"
    return f"({text_of(value)} LIKE {text_of(pattern)}{last})"


_TEXTS: dict[str, Callable[[tuple[Scalar, ...]], str]] = {
    "CASE": _case_text,
    "CAST": lambda a: f"CAST({text_of(a[0])} AS {_string(a[1])})",
    "TIMESTAMPDIFF": lambda a: _with_unit("timestampdiff", a),
    "TIMESTAMPADD": lambda a: _with_unit("timestampadd", a),
    "IN": lambda a: f"({text_of(a[0])} IN ({', '.join(map(text_of, a[1:]))}))",
    "BETWEEN": lambda a: f"({text_of(a[0])} BETWEEN {text_of(a[1])} AND {text_of(a[2])})",
    "LIKE": _like_text,
    "RLIKE": lambda a: f"({text_of(a[0])} RLIKE {text_of(a[1])})",
    "NOW": lambda a: "now()",
    "CURRENT_DATE": lambda a: "current_date()",
    "GET": lambda a: f"{text_of(a[0])}[{text_of(a[1])}]",
}


class _Remembered:
    """The value behind a name. Reading a text takes a while, and most were just written."""

    def __init__(self) -> None:
        self._read = lru_cache(KEPT)(_read_scalar)
        self._known: dict[str, Scalar | partial[Scalar]] = {}

    def remember(self, name: str, scalar: Scalar | partial[Scalar]) -> None:
        """scalar: or what makes it; few are asked for."""
        if len(self._known) >= KEPT:
            self._known.clear()
        self._known[name] = scalar

    def __call__(self, name: str) -> Scalar:
        found = self._known.get(name)
        if isinstance(found, partial):
            found = self._known[name] = found()
        return found or self._read(name)


def _read_scalar(name: str) -> Scalar:
    read: Callable[[str], Scalar] = bring("dibs.language.calls").read_scalar  # which reads by what stands here
    return read(name[2:])


scalar_of = _Remembered()
