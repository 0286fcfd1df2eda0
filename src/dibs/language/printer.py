"""From a tree back to text: canonical, and parse(to_sql(tree)) == tree for every tree that parse gives.

A tree made by hand comes back as parse would have shaped it: connectives flattened, those of one child replaced by
the child (of none: TRUE for AND, FALSE for OR), NOT moved into predicates, constants and IS TRUE, IS TRUE of a constant
decided, IN over nothing but NULL turned into UNKNOWN. What it means is the same.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Callable, Iterator
from typing import get_args

from dibs.errors import ArgumentError, ExpressionError, Problem, show
from dibs.language.expression import (
    UNITS,
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
    PairCompare,
    Predicate,
    RLike,
    StringTest,
    Truth,
)
from dibs.language.tokens import KEYWORDS, quote_name

_CONSTANTS = {True: "TRUE", False: "FALSE", None: "NULL"}
TRUTHS = {True: "TRUE", False: "FALSE", None: "UNKNOWN"}
# A join over history is an attribute whose name is this character, which no text can hold, and its own canonical text.
JOIN = "\0"
# So is a value that is computed from the event (scalars.py): COMPUTED, or CONDITION where it is true or false.
COMPUTED, CONDITION = "\0\1", "\0\2"
# And what is computed from an event and an earlier document together, inside a join (pairing.py): PAIRED and the name
# of what is computed, over `e.attribute` of the event and `d.attribute` of the document.
PAIRED = "\0\3"
QUERY = f"{JOIN}(SELECT"  # how a join begins that has a value
# What is read of an event as it came (scalars.py): an attribute as a whole, whether it is there, all strings. And what
# stands for an element of an array.
WHOLE, HAS_KEY, EVERY, BOUND = "\0\x11", "\0\x12", "\0\x13", "\0\x14"
YES = Literal(Kind.BOOLEAN, True)
_EMPTY = {And: "TRUE", Or: "FALSE"}
_JOINT = {And: " AND ", Or: " OR "}


def to_sql(expression: Expression) -> str:
    """The canonical text of a tree."""
    if not isinstance(expression, get_args(Expression)):
        raise ArgumentError(f"expected a tree as dibs.parse makes it, not {show(expression)}")
    return "".join(pieces(expression))


def pieces(expression: Expression, named: Callable[[str], str] | None = None) -> Iterator[str]:
    """Pieces of text from left to right, without recursion. named: how an attribute is written."""
    stack: list[Expression | str] = [expression]
    while stack:
        node = stack.pop()
        if isinstance(node, str):
            yield node
        elif isinstance(node, Not):
            stack += [")", node.child, "NOT ("] if isinstance(node.child, (And, Or, Not)) else [node.child, "NOT "]
        elif isinstance(node, Truth):
            stack += [f") IS {'NOT ' * node.negated}{TRUTHS[node.value]}", node.child, "("]
        elif isinstance(node, (And, Or)):
            if not node.children:
                yield _EMPTY[type(node)]
            only_child = len(node.children) == 1
            for place, child in enumerate(reversed(node.children)):
                if place:
                    stack.append(_JOINT[type(node)])
                # AND binds tighter than OR, so only an OR inside an AND needs parentheses. NOT is before its operand.
                enclosed = isinstance(child, (And, Or)) and isinstance(node, And) and not only_child
                stack += [")", child, "("] if enclosed else [child]
        elif isinstance(node, Constant):
            yield _CONSTANTS[node.value]
        else:
            yield predicate_text(node, named)


def predicate_text(predicate: Predicate, named: Callable[[str], str] | None = None) -> str:
    name = (named or name_text)(predicate.attribute)
    if isinstance(predicate, PairCompare):
        return f"{name} {predicate.operator} {name_text(predicate.event)}{interval_text(predicate.offset)}"
    if isinstance(predicate, Compare):
        if is_condition(predicate.attribute):
            return name if predicate == Compare(predicate.attribute, "=", YES) else f"NOT {name}"
        return f"{name} {predicate.operator} {literal_text(predicate.literal)}"
    negation = "NOT " if predicate.negated else ""
    if isinstance(predicate, IsNull):
        return f"{name} IS {negation}NULL"
    if isinstance(predicate, In):
        constants = [*map(literal_text, predicate.literals), *(["NULL"] if predicate.null else [])]
        return f"{name} {negation}IN ({', '.join(constants) or 'NULL'})"
    if isinstance(predicate, Between):
        return f"{name} {negation}BETWEEN {literal_text(predicate.low)} AND {literal_text(predicate.high)}"
    if isinstance(predicate, StringTest):
        return f"{negation}{predicate.function}({name}, {string_text(predicate.text)})"
    if isinstance(predicate, RLike):
        return f"{name} {negation}RLIKE {string_text(predicate.pattern)}"
    assert isinstance(predicate, Like)
    escape = "" if predicate.escape == "\\" else f" ESCAPE {string_text(predicate.escape)}"
    return f"{name} {negation}LIKE {string_text(predicate.pattern)}{escape}"


def name_text(name: str) -> str:
    """A path of plain words as it is, anything else in backticks (a quoted name may hold dots); joins and computed
    values say themselves."""
    if name[:1] == JOIN:
        if name[:2] == PAIRED:
            return f"PAIR {name_text(name[2:])}"  # which tells it from others
        if name[:2] in (WHOLE, HAS_KEY, BOUND):
            return name_text(name[2:])
        return "ANY(*)" if name == EVERY else name[2:] if name[:2] in (COMPUTED, CONDITION) else name[1:]
    if "\0" in name or not name:
        raise ExpressionError([Problem(f"no text can name the attribute {name!r}", "rename the attribute")])
    parts = name.split(".")
    if all(part.isidentifier() and part.upper() not in KEYWORDS for part in parts):
        return name
    return quote_name(name)


def is_join(name: str) -> bool:
    return name[:1] == JOIN and name[1:2] >= " "


def is_paired(name: str) -> bool:
    """Whether it is computed from an event and an earlier document together."""
    return name[:2] == PAIRED


def is_derived(name: str) -> bool:
    """Whether it is no attribute that events have, but a join or a computed value."""
    return name[:1] == JOIN


def is_condition(name: str) -> bool:
    """Whether an attribute is a join or a computed value that is true or false, as EXISTS is; else it has a value, as
    (SELECT COUNT(*) ...) has."""
    if name[:2] == PAIRED:
        return is_condition(name[2:])
    return name[:2] == CONDITION or (is_join(name) and not name.startswith(QUERY))


def interval_text(offset: int | None) -> str:
    """What is added to a time, in the largest unit up to days of which it is a whole number."""
    if offset is None:
        return ""
    unit, size = next((unit, UNITS[unit]) for unit in reversed(UNITS) if unit != "WEEK" and offset % UNITS[unit] == 0)
    return f" {'-' if offset < 0 else '+'} INTERVAL {abs(offset) // size} {unit}S"


def literal_text(literal: Literal) -> str:
    kind, value = literal
    if kind == Kind.STRING:
        return string_text(value)
    if kind == Kind.BOOLEAN:
        return "TRUE" if value else "FALSE"
    if kind == Kind.TIME:
        return time_text(value)
    if isinstance(value, float) and not math.isfinite(value):
        said = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        return f"CAST('{said}' AS DOUBLE)"
    return repr(value)


def time_text(value: dt.date) -> str:
    if isinstance(value, dt.datetime):
        return f"TIMESTAMP '{value.isoformat(sep=' ')}'"
    return f"DATE '{value.isoformat()}'"


_SPECIAL = re.compile(r"[\\'\x00-\x1f\x7f-\x9f]")
_ESCAPES = {"\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def string_text(text: str) -> str:
    """In single quotes; only what could end the string or does not print is escaped."""
    return "'" + _SPECIAL.sub(lambda match: _ESCAPES.get(match[0]) or f"\\u{ord(match[0]):04x}", text) + "'"
