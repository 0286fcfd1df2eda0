"""From tree to text and back: the identity, for every tree that parse can give."""

from __future__ import annotations

import datetime as dt
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs.errors import ExpressionError
from dibs.language.expression import (
    FALSE,
    TRUE,
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
    literal,
)
from dibs.language.printer import to_sql
from dibs.language.regex import LikeError, like_pieces, refusal
from dibs.language.sql import parse
from strategies import expressions, without_texts


def eq(name: str, value: Any) -> Compare:
    return Compare(name, "=", literal(value))


A, B, C = eq("a", 1), eq("b", 2), eq("c", 3)

TEXTS: list[tuple[Expression, str]] = [
    (A, "a = 1"),
    (Compare("a", "<>", literal(True)), "a <> TRUE"),
    (eq("a", -0.5), "a = -0.5"),
    (eq("a", 1e300), "a = 1e+300"),
    (eq("a", 5e-324), "a = 5e-324"),
    (eq("a", 2**64 - 1), "a = 18446744073709551615"),
    (eq("a", 2.0**64), "a = 1.8446744073709552e+19"),
    (eq("a", math.nan), "a = CAST('NaN' AS DOUBLE)"),
    (eq("a", math.inf), "a = CAST('Infinity' AS DOUBLE)"),
    (eq("a", -math.inf), "a = CAST('-Infinity' AS DOUBLE)"),
    (eq("a", dt.date(2024, 2, 29)), "a = DATE '2024-02-29'"),
    (eq("a", dt.datetime(24, 2, 29)), "a = TIMESTAMP '0024-02-29 00:00:00'"),
    (eq("a", dt.datetime(2024, 2, 29, 1, 2, 3, 4)), "a = TIMESTAMP '2024-02-29 01:02:03.000004'"),
    (eq("a", "it's \\ \n\t\r\0\x1f\x7f 😀 é % _"), r"a = 'it\'s \\ \n\t\r\u0000\u001f\u007f 😀 é % _'"),
    (eq("a.b", 1), "a.b = 1"),
    (eq("x y", 1), "`x y` = 1"),
    (eq("a`b", 1), "`a``b` = 1"),
    (eq("a..b", 1), "`a..b` = 1"),
    (eq("select", 1), "`select` = 1"),
    (eq("a.In", 1), "`a.In` = 1"),
    (eq("5a", 1), "`5a` = 1"),
    (eq("größe", 1), "größe = 1"),
    (eq("date", 1), "date = 1"),
    (In("a", (literal(1), literal("x")), negated=True, null=True), "a NOT IN (1, 'x', NULL)"),
    (Between("a", literal(1), literal(2), negated=True), "a NOT BETWEEN 1 AND 2"),
    (StringTest("a", "CONTAINS", "x", negated=True), "NOT CONTAINS(a, 'x')"),
    (Like("a", "x\\%%"), "a LIKE 'x\\\\%%'"),
    (Like("a", "x!%", "!", negated=True), "a NOT LIKE 'x!%' ESCAPE '!'"),
    (RLike("a", "\\d", negated=True), "a NOT RLIKE '\\\\d'"),
    (IsNull("a", negated=True), "a IS NOT NULL"),
    (TRUE, "TRUE"),
    (UNKNOWN, "NULL"),
    (And((A, Or((B, C)))), "a = 1 AND (b = 2 OR c = 3)"),
    (Or((A, And((B, C)))), "a = 1 OR b = 2 AND c = 3"),
    (Not(And((A, B))), "NOT (a = 1 AND b = 2)"),
    (Truth(A, True), "(a = 1) IS TRUE"),
    (Or((Truth(Or((A, B)), None, negated=True), C)), "(a = 1 OR b = 2) IS NOT UNKNOWN OR c = 3"),
    (Truth(Not(And((A, B))), False, negated=True), "(NOT (a = 1 AND b = 2)) IS NOT FALSE"),
    (And((Not(Or((A, B))), C)), "NOT (a = 1 OR b = 2) AND c = 3"),
]


@pytest.mark.parametrize(("tree", "text"), TEXTS, ids=lambda value: value if isinstance(value, str) else "")
def test_texts(tree: Expression, text: str) -> None:
    assert to_sql(tree) == text
    assert parse(text) == tree


RESHAPED: list[tuple[Expression, Expression]] = [
    (And((A, And((B, C)))), And((A, B, C))),
    (Or((Or((A, B)), C)), Or((A, B, C))),
    (And((A,)), A),
    (Or((And((Or((A, B)),)), C)), Or((A, B, C))),
    (And(()), TRUE),
    (Or(()), FALSE),
    (Not(A), Compare("a", "<>", literal(1))),
    (Not(Not(And((A, B)))), And((A, B))),
    (Not(And((A,))), Compare("a", "<>", literal(1))),
    (Not(TRUE), FALSE),
    (Not(Truth(A, None)), Truth(A, None, negated=True)),
    (Truth(TRUE, False, negated=True), TRUE),
    (Not(IsNull("a", negated=True)), IsNull("a")),
    (In("a", ()), UNKNOWN),
]


@pytest.mark.parametrize(("tree", "canonical"), RESHAPED)
def test_trees_made_by_hand_come_back_in_canonical_shape(tree: Expression, canonical: Expression) -> None:
    assert parse(to_sql(tree)) == canonical


@pytest.mark.parametrize("name", ["", "a\0b"])
def test_names_that_no_text_can_hold(name: str) -> None:
    with pytest.raises(ExpressionError, match="no text can name the attribute"):
        to_sql(eq(name, 1))


def test_deep_and_long_trees() -> None:
    tree: Expression = A
    for _ in range(5000):
        tree = Not(Or((tree, B)))
    assert to_sql(tree).count("NOT") == 5000
    assert to_sql(And((A,) * 20_000)).count("AND") == 19_999


# --- canonical trees: everything that parse can give ---

NAMES = st.one_of(
    st.sampled_from(
        ["a", "b.c", "x y", "select", "in", "date", "a.b.c.d.e.f", "`", "a``b", ".", "5", "r", "é", "--", "/*"]
    ),
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=8),
)
STRINGS = st.one_of(
    st.sampled_from(["", "'", "''", '"', "\\", "\\'", "\0", "\\%", "a\nb", "é😀", "{#", "--", "/*", "\\u0041", "\x85"]),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
)
LITERALS = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.integers(-(2**70), 2**70),
    st.floats(),
    STRINGS,
    st.dates(),
    st.datetimes(),
).map(literal)
OPERATORS = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])
FUNCTIONS = st.sampled_from(["STARTSWITH", "ENDSWITH", "CONTAINS"])


def is_like(pattern: str, escape: str) -> bool:
    try:
        return bool(like_pieces(pattern, escape)) or not pattern
    except LikeError:
        return False


PATTERNS = st.lists(st.sampled_from(["%", "_", "\\%", "\\_", "\\\\", "a", "'", "é😀"]), max_size=6).map("".join)
ESCAPES = st.characters(exclude_categories=["Cs"])
LIKES = st.one_of(
    st.builds(Like, NAMES, PATTERNS, st.just("\\"), st.booleans()),
    st.builds(Like, NAMES, STRINGS, ESCAPES, st.booleans()).filter(lambda like: is_like(like.pattern, like.escape)),
)
LISTS = st.lists(LITERALS, min_size=1, max_size=4).map(without_texts)
PREDICATES = st.one_of(
    st.builds(Compare, NAMES, OPERATORS, LITERALS),
    st.builds(In, NAMES, LISTS.map(tuple), st.booleans(), st.booleans()),
    st.builds(lambda name, ends, negated: Between(name, ends[0], ends[-1], negated), NAMES, LISTS, st.booleans()),
    st.builds(StringTest, NAMES, FUNCTIONS, STRINGS, st.booleans()),
    LIKES,
    st.builds(RLike, NAMES, STRINGS.filter(lambda pattern: refusal(pattern) is None), st.booleans()),
    st.builds(IsNull, NAMES, st.booleans()),
    st.sampled_from([TRUE, FALSE, UNKNOWN]),
)


def joined(connective: Any, parts: list[Expression]) -> Expression:
    """As parse joins them: flattened."""
    return connective(tuple(p for part in parts for p in (part.children if isinstance(part, connective) else (part,))))


TREES = st.recursive(
    PREDICATES,
    lambda inner: st.one_of(
        st.builds(joined, st.sampled_from([And, Or]), st.lists(inner, min_size=2, max_size=4)),
        st.builds(joined, st.sampled_from([And, Or]), st.lists(inner, min_size=2, max_size=4)).map(Not),
    ),
    max_leaves=8,
)


@given(TREES)
def test_print_and_parse_is_the_identity(tree: Expression) -> None:
    text = to_sql(tree)
    assert parse(text) == tree
    assert to_sql(parse(text)) == text


@given(expressions(extremes=True))
def test_one_round_makes_any_tree_canonical(tree: Expression) -> None:
    once = parse(to_sql(tree))
    assert is_canonical(once)
    assert parse(to_sql(once)) == once


def is_canonical(node: Expression) -> bool:
    if isinstance(node, Not):
        return isinstance(node.child, (And, Or)) and is_canonical(node.child)
    if isinstance(node, Truth):
        return not isinstance(node.child, Constant) and is_canonical(node.child)
    if isinstance(node, (And, Or)):
        apart = all(type(child) is not type(node) and is_canonical(child) for child in node.children)
        return apart and len(node.children) > 1
    return isinstance(node, Constant) or not isinstance(node, In) or bool(node.literals)


@given(st.floats(allow_nan=False))
def test_every_float_comes_back(value: float) -> None:
    tree = eq("a", value)
    again = parse(to_sql(tree))
    assert isinstance(again, Compare)
    assert again == tree
    assert again.literal == Literal(Kind.NUMBER, tree.literal.value)
