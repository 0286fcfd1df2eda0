"""Computed values in texts: what is read, how it is printed, what stays a name, and the limits."""

from __future__ import annotations

import datetime as dt
import time
from random import Random

import pyarrow as pa
import pytest
from functions_judge import expressions

import dibs
from dibs.errors import ExpressionError
from dibs.language.calls import read_scalar
from dibs.language.expression import And, Compare, IsNull, Like, Not, Or, RLike, StringTest, attributes, literal
from dibs.language.printer import to_sql
from dibs.language.scalars import is_computed, text_of
from dibs.language.sql import parse, validate
from dibs.language.values import MAX_NESTED, MAX_SIZE
from dibs.reference import evaluate

AT = dt.datetime(2024, 2, 29, 12, 30, 45, 500_000)
EVENT = {
    "a": 3,
    "b": 4,
    "s": "Straße 5",
    "pattern": "%ASS%",
    "at": AT,
    "start": AT - dt.timedelta(hours=30),
    "on": True,
}

# text -> canonical text, and what it is for EVENT
GOOD: dict[str, tuple[str, bool | None]] = {
    "a + b * 2 = 11": ("(a + (b * 2)) = 11", True),
    "(a + b) * 2 = 14": ("((a + b) * 2) = 14", True),
    "a - b - 1 < 0 AND -a < b": ("((a - b) - 1) < 0 AND ((-a) < b)", True),
    "a < b": ("(a < b)", True),
    "NOT a < b": ("NOT (a < b)", False),
    "a <=> missing": ("(a <=> missing)", False),
    "NOT (a <=> missing)": ("NOT (a <=> missing)", True),
    "a <=> 3": ("(a = 3) IS TRUE", True),
    "NULL <=> a": ("a IS NULL", False),
    "1 <=> NULL": ("FALSE", False),
    "missing IS NOT DISTINCT FROM gone": ("(missing <=> gone)", True),
    "a IS DISTINCT FROM NULL": ("a IS NOT NULL", True),
    "a IS DISTINCT FROM b + 1": ("NOT (a <=> (b + 1))", True),
    "s ILIKE '%STRASSE%'": ("lower(s) LIKE '%strasse%'", False),
    "s ILIKE 'STRAßE _'": ("lower(s) LIKE 'straße _'", True),
    "s NOT ILIKE 'x!%' ESCAPE '!'": ("lower(s) NOT LIKE 'x!%' ESCAPE '!'", True),
    "s LIKE ANY ('x%', '%5')": ("s LIKE 'x%' OR s LIKE '%5'", True),
    "s LIKE SOME ('S%')": ("s LIKE 'S%'", True),
    "s NOT LIKE ALL ('x%', '%5')": ("s NOT LIKE 'x%' AND s NOT LIKE '%5'", False),
    "NOT s LIKE ANY ('x%', NULL)": ("NOT (s LIKE 'x%' OR NULL)", None),
    "s ILIKE ANY ('X', 'STR%')": ("lower(s) LIKE 'x' OR lower(s) LIKE 'str%'", True),
    "s LIKE pattern": ("(s LIKE pattern)", False),
    "upper(s) LIKE pattern": ("(upper(s) LIKE pattern)", True),
    "s NOT RLIKE concat('^', s)": ("NOT (s RLIKE concat('^', s))", False),
    "REGEXP_LIKE(s, '[0-9]$')": ("s RLIKE '[0-9]$'", True),
    "NOT rlike(s, 'x')": ("s NOT RLIKE 'x'", True),
    "like(lower(s), 'str%')": ("lower(s) LIKE 'str%'", True),
    "ilike(s, 'STR%')": ("lower(s) LIKE 'str%'", True),
    "CONTAINS(lower(s), 'ß')": ("CONTAINS(lower(s), 'ß')", True),
    "startswith('Straße 5 b', s)": ("startswith('Straße 5 b', s)", True),
    "endswith(s, a)": ("endswith(s, a)", None),
    "isnull(missing) AND isnotnull(a + b)": ("missing IS NULL AND (a + b) IS NOT NULL", True),
    "TRUE = isnull(a)": ("a IS NULL", False),
    "FALSE = (a < b)": ("(FALSE = (a < b))", False),
    "isnull(a < b)": ("isnull((a < b))", False),
    "on = (a < b)": ("(on = (a < b))", True),
    "5 IN (a, b + 1)": ("(5 IN (a, (b + 1)))", True),
    "a NOT IN (b, 7)": ("NOT (a IN (b, 7))", True),
    "3.5 BETWEEN a AND b": ("(3.5 BETWEEN a AND b)", True),
    "CASE WHEN a > 5 THEN 'x' WHEN b > 3 THEN 'y' END = 'y'": (
        "CASE WHEN (a > 5) THEN 'x' WHEN (b > 3) THEN 'y' END = 'y'",
        True,
    ),
    "CASE WHEN .5 < a THEN .5 ELSE .25 END < .5": ("CASE WHEN (0.5 < a) THEN 0.5 ELSE 0.25 END < 0.5", False),
    "CASE a WHEN 3 THEN TRUE ELSE FALSE END": ("CASE WHEN (a = 3) THEN TRUE ELSE FALSE END = TRUE", True),
    "CASE WHEN a IN (1, b) OR s IS NULL OR NOT on THEN 1 ELSE 2 END = 2": (
        "CASE WHEN ((a IN (1, b)) OR isnull(s) OR (NOT on)) THEN 1 ELSE 2 END = 2",
        True,
    ),
    "CAST(a AS STRING) || '!' = '3!'": ("concat(CAST(a AS STRING), '!') = '3!'", True),
    "s || a::text || 'x' = 'y'": ("concat(s, CAST(a AS STRING), 'x') = 'y'", False),
    "TRY_CAST(s AS INT) IS NULL": ("CAST(s AS INT) IS NULL", True),
    "date(at) = DATE '2024-02-29'": ("CAST(at AS DATE) = DATE '2024-02-29'", True),
    "at > DATE '2024-02-28' + INTERVAL 36 HOURS": ("at > TIMESTAMP '2024-02-29 12:00:00'", True),
    "at - start > INTERVAL '1 day 5 hours'": ("interval_microseconds((at - start)) > 104400000000", True),
    "at - start BETWEEN INTERVAL 1 DAY AND INTERVAL 2 DAYS": (
        "((at - start) BETWEEN INTERVAL 86400000000 MICROSECONDS AND INTERVAL 172800000000 MICROSECONDS)",
        True,
    ),
    "at + INTERVAL 1 MONTH > start": ("((at + INTERVAL 1 MONTHS) > start)", True),
    "TRIM(BOTH '5 ' FROM s) = 'Straße'": ("trim('5 ', s) = 'Straße'", True),
    "TRIM(LEADING FROM s) = s AND trim(TRAILING s FROM s) = ''": ("(ltrim(s) = s) AND rtrim(s, s) = ''", True),
    "POSITION('ß' IN s) = 5 AND position('x', s) = 0": ("locate('ß', s) = 5 AND locate('x', s) = 0", True),
    "SUBSTRING(s FROM 2 FOR 3) = 'tra'": ("substring(s, 2, 3) = 'tra'", True),
    "EXTRACT(HOUR FROM at) = 12 AND date_part('minute', at) = 30": ("hour(at) = 12 AND minute(at) = 30", True),
    "EXTRACT(SECOND FROM at) = 45.5": ("date_part('SECOND', at) = 45.5", True),
    "timestampdiff(HOUR, start, at) = 30 AND datediff(day, start, at) = 1": (
        "timestampdiff(HOUR, start, at) = 30 AND timestampdiff(DAY, start, at) = 1",
        True,
    ),
    "mod(a, 2) = 1 AND a % 2 = 1": ("(a % 2) = 1 AND (a % 2) = 1", True),
    "TRUE <=> (a < b)": ("((a < b)) IS TRUE", True),
    "INTERVAL 1 DAY BETWEEN INTERVAL 1 HOUR AND INTERVAL 36 HOURS": ("TRUE", True),
    "a & 1 | 2 = 3": ("((a & 1) | 2) = 3", True),
    "1 << a >> 1 ^ 5 = 1": ("(((1 << a) >> 1) ^ 5) = 1", True),
    "a DIV 2 = 1 AND ~a = -4": ("(a DIV 2) = 1 AND (~a) = -4", True),
    "if(a > b, s, NULL) IS NULL": ("if((a > b), s, NULL) IS NULL", True),
    "coalesce(missing, on)": ("coalesce(missing, on) = TRUE", True),
}


@pytest.mark.parametrize("text", GOOD)
def test_texts(text: str) -> None:
    canonical, truth = GOOD[text]
    tree = parse(text)
    assert to_sql(tree) == canonical
    assert parse(canonical) == tree
    assert evaluate(tree, EVENT) is truth


def test_plain_predicates_stay_plain() -> None:
    """What a predicate says is one, so that it is indexed as before."""
    assert parse("rlike(a, 'x') AND NOT like(a, 'x') AND isnull(a) AND NOT contains(a, 'x')") == And(
        (RLike("a", "x"), Like("a", "x", negated=True), IsNull("a"), StringTest("a", "CONTAINS", "x", negated=True))
    )
    assert parse("a LIKE ANY ('x', 'y')") == Or((Like("a", "x"), Like("a", "y")))
    assert isinstance(parse("NOT a LIKE ALL ('x', 'y')"), Not)
    assert parse("a = 2 * 60 AND b > -(-5)") == And((Compare("a", "=", literal(120)), Compare("b", ">", literal(5))))


@pytest.mark.parametrize(
    "word",
    [
        *(
            "left",
            "right",
            "if",
            "end",
            "when",
            "then",
            "else",
            "day",
            "hour",
            "now",
            "any",
            "all",
            "some",
            "both",
            "trim",
        ),
        *("leading", "from", "for", "year", "date", "timestamp", "concat", "lower", "distinct", "position", "extract"),
        *("abs", "cast", "try_cast", "double", "string", "replace", "mod", "second", "like_", "contains", "isnull"),
    ],
)
def test_names_of_functions_are_names(word: str) -> None:
    """They are functions before a parenthesis only."""
    assert parse(f"{word} = 1") == Compare(word, "=", literal(1))
    for text in (
        f"{word} + 1 > {word}",
        f"CASE WHEN {word} > 1 THEN {word} ELSE {word} END = 1",
        f"trim({word}) = concat({word}, {word})",
        f"substring({word}, {word}, {word}) = 'x' AND a IN ({word}, 1)",
        f"position({word} IN {word}) = 1 AND datediff({word}, {word}) = 2 AND extract(day FROM {word}) = 3",
        f"a IS DISTINCT FROM {word} AND {word} LIKE {word}",
    ):
        tree = parse(text)
        assert parse(to_sql(tree)) == tree
        assert any(word in name for name in attributes(tree))


def test_random_values_are_printed_as_they_are_read() -> None:
    for made in expressions(300, Random(3)):
        text = text_of(made.scalar)
        assert text_of(read_scalar(text)) == text
        tree = parse(f"{'i1' if made.kind == 'boolean' else text} <=> {text}")
        assert parse(to_sql(tree)) == tree


def test_constants_are_computed_in_every_lane() -> None:
    """Texts of one shape whose constants are computed are not read by a template."""
    texts = [f"a = lower('{word}')" for word in ("x", "X")] + [f"a = abs({n})" for n in (5, -5)] + ["a = 1.5 :: INT"]
    with dibs.Matcher() as matcher:
        matcher.add_table(pa.table({"id": range(300), "expression": texts * 60}))
        assert len(matcher.match({"a": "x"})) == len(matcher.match({"a": 5})) == 120
        assert matcher.match({"a": "X"}) == [] and len(matcher.match({"a": 1})) == 60


# --- limits ---


@pytest.mark.parametrize(
    ("text", "is_fine"),
    [
        (" + ".join(["a"] * (MAX_NESTED + 1)) + " > 1", True),
        (" + ".join(["a"] * (MAX_NESTED + 2)) + " > 1", False),
        ("a > " + "(" * 60 + "b + 1" + ")" * 60, True),
        ("5 = " + "abs(" * MAX_NESTED + "b" + ")" * MAX_NESTED, True),
        ("a = " + "abs(" * MAX_NESTED + "b" + ")" * MAX_NESTED, False),  # the comparison is a value, too
        ("5 = " + "(-" * MAX_NESTED + "b" + ")" * MAX_NESTED, True),
        ("5 = " + "(1 - " * MAX_NESTED + "b" + ")" * MAX_NESTED, True),
        ("a = (" + "NOT (" * (MAX_NESTED - 1) + "b" + ")" * MAX_NESTED, True),
        (" + ".join(["a"] * (MAX_NESTED + 1)) + " > b", False),
        ("a = abs(" + " + ".join(["a"] * MAX_NESTED) + ") AND abs(c) ILIKE 'x'", False),
        ("abs(" * (MAX_NESTED - 1) + "b" + ")" * (MAX_NESTED - 1) + " <=> 5", True),
        ("a = (" + " OR ".join(["b < c"] * 2_000) + ")", True),
        ("a = " + " || ".join(["b"] * 5_000), True),
        ("a = coalesce(" + "b, " * MAX_SIZE + "c)", False),
        ("a = CASE concat(" + "b, " * 5_000 + "c) WHEN 1 THEN 2 " + "WHEN 3 THEN 4 " * 5_000 + "END", False),
        *(
            (begin * 9_999, False)
            for begin in ("abs(", "CAST(", "CASE WHEN ", "a = (b + ", "a = trim(BOTH ", "a + ", "a::int", "DATE(")
        ),
        ("a = " + "b::int" + "::int" * 9_999, False),
        ("a = " + "~" * 9_999 + "b", False),
    ],
    ids=lambda value: value[:16] if isinstance(value, str) else None,
)
def test_nesting_and_size(text: str, is_fine: bool) -> None:
    start = time.process_time()
    found = validate(text)
    assert bool(found) is not is_fine
    if is_fine:
        tree = parse(text)
        assert parse(to_sql(tree)) == tree
        for name in attributes(tree):
            if is_computed(name):  # it is read anew in another process
                assert text_of(read_scalar(name[2:])) == name[2:]
    assert time.process_time() - start < 5


def test_texts_do_not_grow_without_bound() -> None:
    """Each step may double a text: it ends as NULL, long before memory does."""
    grown = "s"
    for _ in range(14):
        grown = f"concat({grown}, {grown})"
    with pytest.raises(ExpressionError):
        parse(f"{grown} = 'x'")
    event = {"s": "x" * 100_000, "n": 10**9}
    start = time.process_time()
    for text in (
        "length(replace(s, 'x', s)) > 0",
        "length(lpad(s, n, 'y')) > 0",
        "length(rpad(s, n)) > 0",
        "length(regexp_replace(s, 'x', s)) > 0",
        "length(" + "concat(" * 20 + "s" + ", s, s, s, s, s, s, s, s, s, s)" * 20 + ") > 0",
        "length(replace(replace(replace(s, 'x', 'xxxxxxxxxx'), 'x', 'xxxxxxxxxx'), 'x', 'xxxxxxxxxx')) > 0",
    ):
        assert evaluate(parse(text), event) is None, text
    assert time.process_time() - start < 5
