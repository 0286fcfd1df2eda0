"""The words of an explanation: a predicate, an event's values and what they have to do with each other, in short."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from dibs.coding.values import Range
from dibs.language.expression import (
    Between,
    Compare,
    Expression,
    In,
    IsNull,
    Kind,
    Like,
    Literal,
    Predicate,
    RLike,
    StringTest,
)
from dibs.language.printer import is_derived, name_text, to_sql
from dibs.reference import OfNoKind, find_key, key_beside, key_of, range_ends, satisfies, satisfying

TEXT_WIDTH = 60
VALUE_WIDTH = 40
LIST_SHOWN = 4
ARRAY_SHOWN = 4
KIND_NAMES = {Kind.BOOLEAN: "a boolean", Kind.NUMBER: "a number", Kind.STRING: "a string", Kind.TIME: "a time"}
TESTS = {
    "STARTSWITH": ("starts with", "does not start with"),
    "ENDSWITH": ("ends with", "does not end with"),
    "CONTAINS": ("contains", "does not contain"),
}


def escape(text: str) -> str:
    """The text with everything that a terminal could obey, line breaks included, written out."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text)


def shorten(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def short_sql(expression: Expression) -> str:
    """A predicate on one short line; long lists by their first items."""
    if isinstance(expression, In) and len(expression.literals) > LIST_SHOWN + 1:
        start = to_sql(expression._replace(literals=expression.literals[:LIST_SHOWN], null=False)).rstrip(")")
        more = len(expression.literals) - LIST_SHOWN + expression.null
        return shorten(escape(start), TEXT_WIDTH) + f", … {more:,} more)"
    return shorten(escape(to_sql(expression)), TEXT_WIDTH)


def short_group(operator: str, children: Sequence[Expression], predicates: int) -> str:
    """AND or OR over predicates on one line, by their number where they are too long."""
    if 0 < len(children) <= LIST_SHOWN:
        text = f" {operator} ".join(short_sql(child) for child in children)
        if len(text) <= TEXT_WIDTH:
            return text
    return f"{operator} of {predicates:,} predicates"


def show_name(name: str) -> str:
    if is_derived(name):
        return shorten(escape(name_text(name)), VALUE_WIDTH)
    return shorten(escape(name if re.fullmatch(r"[\w.]+", name) else f"`{name}`"), VALUE_WIDTH)


def show_value(value: Any) -> str:
    if isinstance(value, Range):
        if value.lo is None or value.hi is None:
            return f"anything up to {show_value(value.hi)}" if value.lo is None else f"{show_value(value.lo)} or more"
        return f"anything from {show_value(value.lo)} to {show_value(value.hi)}"
    if isinstance(value, OfNoKind):
        return value.reason
    if isinstance(value, float) and value != value:
        return "NaN"
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, str):
        return shorten(repr(value), VALUE_WIDTH) + (f" ({len(value):,} characters)" * (len(value) > VALUE_WIDTH))
    return shorten(str(value), VALUE_WIDTH)


def show_values(values: Sequence[Any]) -> str:
    first = [show_value(value) for value in values[:ARRAY_SHOWN]]
    return ", ".join(first + [f"… {len(values) - ARRAY_SHOWN:,} more"] * (len(values) > ARRAY_SHOWN))


def reason_for(predicate: Predicate, truth: bool | None, values: Sequence[Any]) -> str:
    """Why the predicate has this truth for these values of its attribute."""
    name = show_name(predicate.attribute)
    if not values:
        return f"{name} is missing"
    readable = [value for value in values if not isinstance(value, OfNoKind)]
    if not readable:
        return f"{name} cannot be read: {show_value(values[0])}"
    if truth is None:
        return _why_unknown(predicate, name, readable)
    several = f" (one of {len(values):,} values)" if len(values) > 1 else ""
    if isinstance(predicate, IsNull):
        return f"{name} is {show_values(values)}"
    if truth:
        value = next(satisfying(predicate, readable))
        return f"{name} is {show_value(value)}{several}{_relation(predicate, value)}"
    if several:
        return f"{name} has {len(values):,} values, none of which satisfies this: {show_values(values)}"
    return f"{name} is {show_value(readable[0])}{_relation(predicate, readable[0])}"


def _relation(predicate: Predicate, value: Any) -> str:
    """How a value that can be compared stands to what the predicate asks for."""
    if isinstance(value, Range):
        return (
            ", and some of that satisfies this" if satisfies(value, predicate) else ", and none of that satisfies this"
        )
    yes = satisfies(value, predicate) != getattr(predicate, "negated", False)
    match predicate:
        case Compare(_, operator, constant):
            return _position(value, operator, constant)
        case In():
            return ", in the list" if yes else ", not in the list"
        case Between(_, low, high):
            least, most = key_beside(value, low.kind), key_beside(value, high.kind)
            if least is not None and least < key_of(low):
                return f", below {show_value(low.value)}"
            if most is not None and most > key_of(high):
                return f", above {show_value(high.value)}"
            return f", between {show_value(low.value)} and {show_value(high.value)}"
        case StringTest(_, function, text):
            return f", which {TESTS[function][not yes]} {show_value(text)}"
    return ", which matches the pattern" if yes else ", which does not match the pattern"


def _position(value: Any, operator: str, constant: Literal) -> str:
    key, bound = key_beside(value, constant.kind), key_of(constant)
    if key == bound:
        return "" if operator == "=" else f", equal to {show_value(constant.value)}"
    if operator in ("=", "<>"):
        return f", not {show_value(constant.value)}"
    return f", {'below' if key < bound else 'above'} {show_value(constant.value)}"


def _why_unknown(predicate: Predicate, name: str, values: Sequence[Any]) -> str:
    expected = _kinds_asked_for(predicate)
    comparable = [value for value in values if _is_comparable(value, expected)]
    if not comparable:
        wanted = " or ".join(KIND_NAMES[kind] for kind in sorted(expected))
        if len(values) == 1 and isinstance(values[0], str) and expected == {Kind.TIME}:
            return f"{name} is {show_value(values[0])}, which reads as no time"
        if len(values) == 1:
            return f"{name} is {KIND_NAMES[_kind(values[0])]} ({show_value(values[0])}), compared with {wanted}"
        return f"{name} has {len(values):,} values, none of which is {wanted}: {show_values(values)}"
    if isinstance(predicate, (Like, RLike, StringTest)):
        return f"{name} is {show_value(comparable[0])}, and patterns are not tested over ranges"
    if isinstance(predicate, In) and predicate.null:
        return f"{name} is {show_values(values)}; the list holds NULL, which may stand for any value"
    return f"{name} is {show_values(values)}, compared with values of several kinds"


def _kinds_asked_for(predicate: Predicate) -> set[Kind]:
    match predicate:
        case Compare(_, _, constant):
            return {constant.kind}
        case In(_, literals):
            return {each.kind for each in literals} or set(Kind)
        case Between(_, low, high):
            return {low.kind, high.kind}
    return {Kind.STRING}


def _is_comparable(value: Any, kinds: set[Kind]) -> bool:
    return _kind(value) in kinds or (isinstance(value, str) and any(key_beside(value, k) is not None for k in kinds))


def _kind(value: Any) -> Kind:
    return range_ends(value)[0] if isinstance(value, Range) else find_key(value)[0]
