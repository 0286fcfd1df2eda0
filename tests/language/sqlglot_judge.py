"""sqlglot's own parser as a judge of ours: its syntax tree, turned into an expression of ours.

It forgives more than our grammar does, so it says nothing about texts that ours refuses.
"""

from __future__ import annotations

from typing import Any

import sqlglot
from sqlglot import exp

from dibs.language.expression import (
    FLIPPED_OPERATOR,
    UNKNOWN,
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
    RLike,
    StringTest,
    Truth,
    negate,
    number,
)
from dibs.language.literals import compare, read_float, read_number, read_time

COMPARISONS = {exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}
STRING_TESTS = {exp.StartsWith: "STARTSWITH", exp.EndsWith: "ENDSWITH", exp.Contains: "CONTAINS"}
TIMES = {
    exp.DType.DATE: "DATE",
    exp.DType.TIMESTAMPTZ: "TIMESTAMP",
    exp.DType.TIMESTAMPNTZ: "TIMESTAMP_NTZ",
    exp.DType.TIMESTAMPLTZ: "TIMESTAMP",
}
SUFFIXES = {exp.DType.BIGINT: "L", exp.DType.SMALLINT: "S", exp.DType.TINYINT: "Y", exp.DType.DECIMAL: "BD"}


def judged(text: str) -> Expression:
    return expression_of(sqlglot.parse_one(text, read="spark", into=exp.Condition))


def expression_of(node: Any) -> Expression:
    if isinstance(node, exp.Paren):
        return expression_of(node.this)
    if isinstance(node, (exp.And, exp.Or)):
        connective: Any = And if isinstance(node, exp.And) else Or
        sides = [expression_of(node.this), expression_of(node.expression)]
        return connective(tuple(p for s in sides for p in (s.children if isinstance(s, connective) else (s,))))
    if isinstance(node, exp.Not):
        return negated(expression_of(node.this))
    if isinstance(node, (exp.Boolean, exp.Null)):
        return Constant(node.this if isinstance(node, exp.Boolean) else None)
    return predicate_of(node)


def negated(node: Expression) -> Expression:
    if isinstance(node, Not):
        return node.child
    if isinstance(node, Constant):
        return Constant(None if node.value is None else not node.value)
    if isinstance(node, Truth):
        return node._replace(negated=not node.negated)
    return Not(node) if isinstance(node, (And, Or)) else negate(node)


def predicate_of(node: Any) -> Expression:
    kind = type(node)
    if kind in COMPARISONS:
        left, right = value_of(node.this), value_of(node.expression)
        if left is None or right is None:
            return UNKNOWN
        if isinstance(left, str):
            return Compare(left, COMPARISONS[kind], right)
        if isinstance(right, str):
            return Compare(right, FLIPPED_OPERATOR[COMPARISONS[kind]], left)
        return compare(left, COMPARISONS[kind], right)
    if kind in STRING_TESTS:
        text = value_of(node.expression)
        return UNKNOWN if text is None else StringTest(value_of(node.this), STRING_TESTS[kind], text.value)
    if kind is exp.Column or kind is exp.Dot:
        return Compare(value_of(node), "=", Literal(Kind.BOOLEAN, True))
    if kind is exp.In:
        values = [value_of(item) for item in node.expressions]
        literals = tuple(v for v in values if v is not None)
        return In(value_of(node.this), literals, null=None in values) if literals else UNKNOWN
    if kind is exp.Between:
        low, high = value_of(node.args["low"]), value_of(node.args["high"])
        name = value_of(node.this)
        if low is not None and high is not None:
            return Between(name, low, high)
        known = [
            UNKNOWN if low is None else Compare(name, ">=", low),
            UNKNOWN if high is None else Compare(name, "<=", high),
        ]
        return UNKNOWN if known == [UNKNOWN, UNKNOWN] else And(tuple(known))
    if kind is exp.Escape:
        like = predicate_of(node.this)
        return like._replace(escape=value_of(node.expression).value) if isinstance(like, Like) else like
    if kind is exp.Like:
        pattern = value_of(node.expression)
        return (
            UNKNOWN
            if pattern is None
            else Like(value_of(node.this), pattern.value, negated=bool(node.args.get("negate")))
        )
    if kind is exp.RegexpLike:
        pattern = value_of(node.expression)
        return UNKNOWN if pattern is None else RLike(value_of(node.this), pattern.value)
    if kind is exp.Is and (isinstance(node.expression, exp.Boolean) or is_condition(node.this)):
        child = expression_of(node.this)
        value = node.expression.this if isinstance(node.expression, exp.Boolean) else None  # UNKNOWN is its NULL
        return Constant(child.value is value) if isinstance(child, Constant) else Truth(child, value)
    if kind is exp.Is and isinstance(node.expression, exp.Null):
        subject = value_of(node.this)
        return IsNull(subject) if isinstance(subject, str) else Constant(subject is None)
    raise NotImplementedError(kind)


def is_condition(node: Any) -> bool:
    while isinstance(node, exp.Paren):
        node = node.this
    return not isinstance(node, (exp.Column, exp.Dot, exp.Null, exp.Literal, exp.Neg, exp.Cast, exp.Concat))


def value_of(node: Any) -> Any:
    """A name as str, a constant as Literal, NULL as None."""
    if isinstance(node, exp.Paren):
        return value_of(node.this)
    if isinstance(node, (exp.Column, exp.Dot)):
        return ".".join(part.name for part in node.parts)
    if isinstance(node, exp.Null):
        return None
    if isinstance(node, exp.Boolean):
        return Literal(Kind.BOOLEAN, node.this)
    if isinstance(node, exp.RawString):
        return Literal(Kind.STRING, node.this)
    if isinstance(node, exp.Concat):  # neighbours: 'it''s' and 'x' 'y' cannot be told apart here
        return Literal(Kind.STRING, "".join(part.this for part in node.expressions))
    if isinstance(node, exp.Literal):
        return Literal(Kind.STRING, node.this) if node.is_string else read_number(node.this)
    if isinstance(node, exp.Neg):
        return number(-value_of(node.this).value)
    if isinstance(node, exp.Cast):
        to, inner = node.to.this, node.this
        if isinstance(inner, exp.Null):
            return None
        if to in TIMES:
            return read_time(TIMES[to], inner.this)
        if inner.is_string and to in (exp.DType.DOUBLE, exp.DType.FLOAT):
            return read_float(inner.this, to == exp.DType.FLOAT)
        if to in (exp.DType.DOUBLE, exp.DType.FLOAT):
            return read_number(inner.this + ("D" if to == exp.DType.DOUBLE else "F"))
        return read_number(inner.this + SUFFIXES[to])
    raise NotImplementedError(type(node))
