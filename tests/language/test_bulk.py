"""The fast lane: whatever it takes has the very tree of the general lane, and it takes what people mostly write."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs.language.bulk import parse_simple
from dibs.language.expression import Literal
from dibs.language.printer import to_sql
from dibs.language.rows import read_simple
from dibs.language.sql import parse, validate
from dibs.thresholds import thresholds
from strategies import expressions

TAKEN = [
    "a = 1",
    "  a=1  ",
    "a==1 AND b!=2 and c<>3 And d<4 AND e<=5 AND f>6 AND g>=7",
    "a = -5 AND b = 0 AND c = -0 AND d = 007",
    "a = 1.50 AND b = 1.0 AND c = -0.5 AND d = 0.1 AND e = 123456789.123456",
    "a = 999999999999999999 AND b = 9007199254740993",
    "a = 'x' AND b = '' AND c = 'é 😀 \"quoted\" -- no comment' AND d='%'",
    "a BETWEEN 1 AND 2 AND b between 'x' and 'y'",
    "a IN (1, 2,3 , 'x') AND b in(1)",
    "item.price <= 5 AND a.b.c.d.e = 1",
    "a NOT IN (1, 2) AND b not between 1 and 2 AND c NOT  IN('x')",
    "a LIKE 'x%' AND b like 'é😀%' AND c = 'y'",
    "a IS NULL AND b is not null AND c IS  NOT  NULL",
    "a = TRUE AND b <> false AND c IN (TRUE, 1)",
    "a\n=\t1\r\nAND b = 2",
    "date = 1 AND model = 2 AND year = 3",
]
LEFT = [
    "",
    " ",
    "a",
    "a = ",
    "= 1",
    "a = 1 OR b = 2",
    "NOT a = 1",
    "(a = 1)",
    "1 = a",
    "a = b",
    "a = 1 AND",
    "a = 1AND b = 2",
    "a = 1 ANDb = 2",
    "a = 'x''y'",
    r"a = 'x\'y'",
    "a = 'x",
    "a = 'x' 'y'",
    'a = "x"',
    "a = 10L",
    "a = 1e5",
    "a = .5",
    "a = 5.",
    "a = 1.5.5",
    "a = - 5",
    "a = --5",
    "a = 1 -- why",
    "a = 1 /* why */",
    "a = 1234567890123456789",
    "a = 0.1234567890123456",
    "a IN ()",
    "a IN (1",
    "a IN (1,)",
    "a IN 1",
    "a BETWEEN 1 2",
    "a BETWEEN 1 AND",
    "a = NULL",
    "a = DATE '2024-01-01'",
    "a <=> 1",
    "a = 1 AND(b = 2)",
    "a = TRUEX",
    "a LIKE 'x%y%'",
    "a LIKE 'x_%'",
    "a LIKE '%'",
    "a LIKE 'x'",
    "a LIKE 5",
    "a NOT LIKE 'x%'",
    "a LIKE 'x%' ESCAPE '!'",
    "a NOT IN (1, 'x')",
    "a NOT IN (1, NULL)",
    "a NOT = 1",
    "a IS TRUE",
    "a IS NOT",
    "a NOT NULL",
    "a IS NULLX",
    "a = 1 AND NOT b = 2",
    "a =! 1",
    "a => 1",
    "select = 1",
    "a.select = 1",
    "current_date = 1",
    "`a` = 1",
    "_a = 1",
    "é = 1",
    "a. b = 1",
    "a.1 = 1",
    "f(a) = 1",
    "a = 'x\x01y'",
]


def test_simple_conjunctions_are_taken():
    bulk = parse_simple(pa.array(TAKEN))
    assert bulk.simple.all(), [t for t, taken in zip(TAKEN, bulk.simple) if not taken]
    for text, tree in zip(TAKEN, bulk.trees()):
        assert tree == parse(text), text


def test_everything_else_is_left_alone():
    bulk = parse_simple(pa.array(LEFT))
    assert not bulk.simple.any(), [t for t, taken in zip(LEFT, bulk.simple) if taken]
    assert len(bulk.table) == 0


@given(st.lists(expressions(), min_size=1, max_size=5))
def test_same_tree_as_the_general_lane(trees):
    texts = [to_sql(t) for t in trees]
    bulk = parse_simple(pa.array(texts))
    taken = [t for t, simple in zip(texts, bulk.simple) if simple]
    assert bulk.trees() == [parse(t) for t in taken]


PIECES = [
    "a", "b.c", "price", "date", "AND", "and", "OR", "NOT", "=", "==", "<", "<=", "<>", "!=", ">", ">=", "BETWEEN",
    "IN", "(", ")", ",", "1", "-1", "1.5", "'x'", "''", "'é'", " ", "  ", "\n", "--", "/*", "`", '"', "\\", ".", "e5",
    "L", "-", "NULL", "TRUE", "LIKE", "IS", "'x%'", "NOT NULL", "IS NULL",
]  # fmt: skip


@given(st.lists(st.sampled_from(PIECES), min_size=3, max_size=14).map(lambda p: "a = 1 AND b" + " ".join(p)))
def test_never_takes_what_the_general_lane_refuses_or_reads_differently(text):
    bulk = parse_simple(pa.array([text]))
    if bulk.simple[0]:
        assert validate(text) == []
        assert bulk.trees() == [parse(text)]


@given(st.decimals(allow_nan=False, allow_infinity=False, places=6, min_value=-(10**8), max_value=10**8))
def test_decimals_are_the_nearest_float(x):
    text = f"a = {x:f}"
    bulk = parse_simple(pa.array([text]))
    if bulk.simple[0]:
        literal = bulk.trees()[0].literal
        assert isinstance(literal, Literal)
        assert literal.value == float(str(x))


@pytest.mark.parametrize("shift", [0, 1, 3])
def test_slices_nulls_and_several_chunks(shift, monkeypatch):
    monkeypatch.setattr(thresholds, "texts_at_once", 2)
    texts = pa.array(["x = 0", "a = 1", None, "select = 3 AND b = 'y'", "b = 'x' AND c = 'y'", "", "a = 2"]).slice(
        shift
    )
    bulk = parse_simple(texts)
    assert bulk.trees() == [parse(t) for t, s in zip(texts.to_pylist(), bulk.simple) if s]
    assert [t for t, s in zip(texts.to_pylist(), bulk.simple) if not s] == [
        t for t in texts.to_pylist() if t in (None, "", "select = 3 AND b = 'y'")
    ]


def test_both_lanes_have_the_same_limits() -> None:
    """What is too long for the general lane is not taken by the fast one."""
    too_long = "a IN (" + "1," * 1_400_000 + "1)"
    assert validate(too_long)
    assert not parse_simple(pa.array(["a = 1", too_long, "b = 2"])).simple[1]
    assert read_simple(too_long) is None
