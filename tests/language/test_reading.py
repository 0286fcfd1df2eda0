"""Templates: whatever they take says what the grammar reads, and they take what people write."""

from __future__ import annotations

from random import Random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reader_agreement import Texts, check

import dibs
from dibs.errors import SubscriptionErrors
from dibs.language.reading import read
from dibs.language.rows import read_row
from dibs.language.sql import parse, validate
from dibs.language.table import Op
from dibs.language.templates import Kept, frame_of, pattern_of
from dibs.language.text_kernels import read_alone
from dibs.tuning import numbers

TAKEN = [
    "a = 1",
    "  a=1  ",
    "a==1 AND b!=2 and c<>3 And d<4 AND e<=5 AND f>6 AND g>=7",
    "a = -5 AND b = 0 AND c = -0 AND d = 007 AND e = - 5",
    "a = 1.50 AND b = 1.0 AND c = -0.5 AND d = 0.1 AND e = 123456789.123456",
    "a = 999999999999999999 AND b = 9007199254740993",
    "a = 12345678901234567890 AND b = 1e5 AND c = .5 AND d = 5. AND e = 10L AND f = 0.1F AND g = 1.5BD",
    "a = 'x' AND b = '' AND c = 'é 😀 \"quoted\" -- no comment' AND d='%'",
    "a = 'it''s' AND b = 'it\\'s' AND c = 'a' 'b' AND d = \"x\" AND e = r'\\d' AND f = '\\u00e9'",
    "a BETWEEN 1 AND 2 AND b between 'x' and 'y' AND NOT c BETWEEN DATE '2024-01-01' AND DATE '2024-12-31'",
    "a IN (1, 2,3 , 4) AND b in(1) AND c IN (-1, 2.5) AND d NOT IN ('x', 'y')",
    "item.price <= 5 AND a.b.c.d.e = 1 AND `a b` = 1 AND a.`b c`.d = 2 AND é = 3",
    "a LIKE 'x%' AND b like '%é😀' AND c LIKE '%x%' AND d LIKE 'x' AND e LIKE 'a_b%c'",
    "a RLIKE '^x' AND b REGEXP r'\\d' AND STARTSWITH(c, 'x') AND endswith(d, 'y') AND CONTAINS(e, 'z.')",
    "a IS NULL AND b is not null AND c IS  NOT  NULL",
    "a = TRUE AND b <> false AND c AND NOT d",
    "a\n=\t1\r\nAND b = 2 -- why\n AND /* because */ c = 3",
    "date = 1 AND model = 2 AND year = 3 AND timestamp = 4",
    "at >= TIMESTAMP '2024-05-01 10:00:00' AND at < TIMESTAMP '2024-05-01T10:00:00.5+02:00'",
    "day = DATE '2024-02-29' OR day < date '2024-1-1'",
    "(a = 1) AND ((b <= 2))",
    "a = b AND price * qty > 5 AND lower(name) = 'x' OR abs(price - 17.5) < 3",
    "a = 1 OR b = 2 OR a = 3",
    "NOT (a = 1 AND !b > 2) OR 5 < c",
    "(a = 1 OR b <= 2) AND NOT (c IN ('x', 'y') OR d BETWEEN 4 AND 9)",
    "a > 5 IS NOT TRUE AND a IS TRUE and (b)is  not\nfalse AND NOT c = 1 IS NOT TRUE",
    "(a = 1 OR b = 2) IS UNKNOWN OR ((a IN (1, 2) AND NOT c LIKE 'x%') IS FALSE) IS NOT UNKNOWN",
    "(a = 1) IS NOT TRUE AND (a IN (2, 3)) IS NOT TRUE AND NOT (a = 4 IS TRUE) AND lower(b) = 'x' IS FALSE",
    "((a IN (1, 2, 3) AND (b NOT IN ('x', 'y')) IS UNKNOWN) IS NOT UNKNOWN) IS UNKNOWN",
    "ip_in(addr, '10.0.0.0/8') AND NOT IP_IN(a.b, '::1') OR ip_in(c, '10.1.2.3') AND ip_in(lower(d), '2001:db8::/32')",
    "exists(items, x -> x.price < 10) OR FORALL(a.tags, y -> y = 'red' AND NOT y.x.é IN (1, -2))",
    "exists(x, x -> exists(x.tags, y -> y = 'a' AND x.n > y.n AND z -5 < x)) AND abs(item.price - 3) < 2",
    "at > now() - INTERVAL 5 MINUTES OR at - created >= interval 2 hours AND hour(at + INTERVAL 1 DAY) = 5",
]
LEFT = [
    "", " ", "a = ", "= 1", "a = 1 AND", "a = 1AND b = 2", "a = 'x", "a = 1 /* why", "a IN ()", "a IN (1,)",
    "a BETWEEN 1 2", "a = NULL", "a <=> 1", "a < = 1", "a =! 1", "a NOT = 1", "a NOT NULL",
    "select = 1", "current_date = 1", "a.1 = 1", "f(a) = 1", "(a = 1", "a = 1)", "a = 1 = 1", "(a) (b)", "1 = 1",
    "a = 'x\0y'", "a = 1e999", "a = 128Y", "a RLIKE '['", "a LIKE 'x' ESCAPE 'ab'", "a = '\\uD83D'", "``=1", "TRUE",
    "a = DATE '2023-02-29'", "a = CAST(9007199254740993 AS DOUBLE)", "EXISTS d (d.a = a)", "a = -(-128Y)",
    "a LIKE ('x%')", "a RLIKE ('x')", "a LIKE 'x!%' ESCAPE '!'",
    "a IN (1, 2) IS TRUE", "a IS NULL IS TRUE", "a = 1 IS TRUE IS TRUE", "IS TRUE", "a = 1 IS", "a = 1 IS NOT",
    "(a = 1) IS NULL", "TRUE IS TRUE", "a BETWEEN 1 IS TRUE AND 2",
    "(((a IS UNKNOWN) IS UNKNOWN) IS UNKNOWN) IS UNKNOWN",
    "NOT c not like\xa0('\\\\')", "a like\xa0('x%')",
    "ip_in(a, '10.1.2.0/24', '10.1.3.0/24')", "ip_in(a, '10.1.2.3/24')", "ip_in(a, '::/0')", "ip_in(a, '')",
    "exists(a, `x y` -> `x y` > 1)", "exists(a, x -> `x`.b > 1)", "exists(a, x -> x LIKE 'a%')", "a -> b",
    "exists(a, x.y -> x > 1)", "exists(5, x -> x > 1)",
]  # fmt: skip


def test_what_people_write_is_taken():
    taken = read(pa.array(TAKEN)).taken
    assert taken.all(), [text for text, took in zip(TAKEN, taken) if not took]
    assert all(read_row(text) is not None for text in TAKEN)
    assert check(TAKEN, Random(0)) == (len(TAKEN), len(TAKEN))


def test_what_is_doubtful_is_left_to_the_grammar():
    result = read(pa.array(LEFT))
    assert not result.taken.any(), [text for text, took in zip(LEFT, result.taken) if took]
    assert len(result.table) == 0
    assert all(read_row(text) is None for text in LEFT)
    check(LEFT, Random(0))


def test_random_texts_agree():
    random = Random(7)
    texts = Texts(random)
    taken, accepted = check([texts.text() for _ in range(2_000)], random)
    assert taken > 650, "otherwise templates were hardly tried"
    assert accepted < 1_900, "and so were errors"


PIECES = [
    "a", "b.c", "date", "AND", "and", "OR", "NOT", "=", "==", "<", "<=", "<>", "!=", ">", "BETWEEN", "IN", "(", ")",
    ",", "1", "-1", "1.5", "'x'", "''", "'é'", " ", "  ", "\n", "--", "/*", "*/", "`", '"', "\\", ".", "e5", "L", "-",
    "NULL", "TRUE", "LIKE", "IS", "'x%'", "NOT NULL", "IS NULL", "ESCAPE", "RLIKE", "DATE", "r'x'", "+", "!", "EXISTS",
    "IS TRUE", "IS NOT UNKNOWN", "IS FALSE", "UNKNOWN",
]  # fmt: skip


@given(st.lists(st.sampled_from(PIECES), min_size=3, max_size=14), st.sampled_from(["", " "]))
def test_nothing_is_taken_that_the_grammar_refuses_or_reads_differently(pieces, blank):
    check([blank.join(pieces), "a = 1 AND b" + blank.join(pieces)], Random(1))


@given(st.decimals(allow_nan=False, allow_infinity=False, places=6, min_value=-(10**8), max_value=10**8))
def test_decimals_are_the_nearest_float(x):
    table = read(pa.array([f"a = {x:f}"])).table
    assert table.number[0] == float(str(x)) and table.integer[0] == 0


@pytest.mark.parametrize("shift", [0, 1, 3])
def test_slices_nulls_and_several_chunks(shift, monkeypatch):
    monkeypatch.setattr(numbers["texts_at_once"], "value", 2)
    texts = ["x = 0", "a = 1", None, "select = 3 AND b = 'y'", "b = 'x' OR c = 'y'", "", "a = 2", "a LIKE 'x_%'"]
    result = read(pa.array(texts).slice(shift))
    left = [t for t, taken in zip(texts[shift:], result.taken) if not taken]
    assert left == [t for t in texts[shift:] if t in (None, "", "select = 3 AND b = 'y'")]
    assert result.order.tolist() == [i - shift for i in (0, 1, 6, 7, 4) if i >= shift]  # the program comes last
    assert result.table.conjunctions == len(result.order) - 1


def test_equalities_of_one_attribute_are_one_list():
    table = read(
        pa.array(["a = 1 OR b > 2 OR a IN (3, 4)", "NOT (a <> 1 AND `a` NOT IN (2, 3))", "a = 1 AND a = 2"])
    ).table
    assert table.conjunctions == 2
    assert table.operator.tolist() == [Op.IN, Op.EQ, Op.EQ, Op.IN, Op.GT]


@pytest.mark.parametrize("count", [65_535, 65_537])
def test_very_many_names_are_told_apart(count: int) -> None:
    """A name has two bytes in the key of a text: the first and the 65,537th were one, and so their equalities."""
    key, words = read_alone(np.frombuffer(" OR ".join(f"a{i}=1" for i in range(count)).encode(), np.uint8))
    assert words[0] == count
    for names in key.tobytes().split(b"\0", count + 1)[count + 1 :]:
        assert len(set(memoryview(names).cast("H"))) == count


def test_limits_are_those_of_the_grammar() -> None:
    too_long = "a IN (" + "1," * 1_400_000 + "1)"
    too_deep = "(" * 10_001 + "a = 1" + ")" * 10_001
    nested = "a = 1"
    for i in range(120):
        nested = f"({nested}) {'AND' if i % 2 else 'OR'} b{i} = 2"
    texts = ["a = 1", too_long, too_deep, nested, "b = 2"]
    assert [bool(validate(text)) for text in texts] == [False, True, True, True, False]
    assert read(pa.array(texts)).taken.tolist() == [True, False, False, False, True]
    assert [read_row(text) is None for text in texts] == [False, True, True, True, False]


def test_errors_of_many_are_those_of_each() -> None:
    bad = {3: "a = 'x", 5: "price < < 3", 8: "a LIKE 'x\\'", 11: "lower(a, b) = 'x'"}
    texts = [bad.get(i, f"a = {i} OR b LIKE 'x{i}%'") for i in range(400)]
    table = pa.table({"id": range(400), "expression": texts})
    with dibs.Matcher() as matcher:
        with pytest.raises(SubscriptionErrors) as caught:
            matcher.add_table(table)
        assert len(matcher) == 0
        skipped = matcher.add_table(table, on_error="skip")
        assert len(matcher) == 396
    for found in (caught.value.rejected, skipped):
        assert [r.position for r in found] == list(bad)
        assert [r.error.problems for r in found] == [validate(text) for text in bad.values()]


def test_a_bad_network_leaves_others_like_it_alone() -> None:
    """Only its own text is read by the grammar, also where it is the first of many that differ in constants alone."""
    texts = [f"ip_in(a, '10.0.{i}.0/24') AND b = {i}" for i in range(100)]
    texts[0], texts[50] = "ip_in(a, '10.0.0.1/24') AND b = 1", "ip_in(a, 'x') AND b = 1"
    assert np.flatnonzero(~read(pa.array(texts)).taken).tolist() == [0, 50]
    assert check(texts, Random(0)) == (98, 98)


# ---- templates ----


def test_shapes_are_kept_within_a_bound() -> None:
    made: list[bytes] = []
    kept = Kept(lambda key: made.append(key) or len(made), most=20_000)
    for _ in range(3):
        for i in range(1_000):
            kept(b"%d" % i)
            assert kept(b"often") == 2
        assert len(kept) < 40
    assert made.count(b"often") == 1
    assert made.count(b"0") == 3


def test_a_shape_without_a_meaning_has_no_template() -> None:
    assert pattern_of(b"\x01<=\x02") is None  # a < = 1: two signs, unlike <=
    assert pattern_of(b"\x01\x0c\x02") is not None
    assert pattern_of(b"\x02=\x02") is None  # it depends on the constants whether it is TRUE
    assert pattern_of(b"\x01=CAST (\x02AS DOUBLE )") is None  # a constant that would come out changed
    assert pattern_of(b"\xff\xfe ") is None
    assert pattern_of(b"IP_IN (\x01,\x03)") is not None
    assert pattern_of(b"IP_IN (\x01,\x03,\x03)") is None  # it depends on the constants how many spans there are
    assert frame_of(b"p&&p") is None


def test_the_examples_of_shapes_are_read_once() -> None:
    texts = pa.array([f"first_{i} = {i} OR NOT second_{i} > {i}" for i in range(1_000)])
    before = len(pattern_of), len(frame_of)
    read(texts)
    assert len(pattern_of) - before[0] <= 2 and len(frame_of) - before[1] <= 1


def test_every_text_that_is_taken_is_accepted_alone() -> None:
    for text in TAKEN:
        parse(text)
