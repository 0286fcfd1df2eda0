"""The table of functions: mistakes with each of them, the page that lists them, and single values worth naming."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from function_table import table_of_functions

from dibs.language.calls import read_scalar
from dibs.language.functions import FUNCTIONS, Kinds, evaluate
from dibs.language.functions.plain import Moment, Plain
from dibs.language.printer import to_sql
from dibs.language.sql import KEYWORDS, parse, validate

_WORDS = KEYWORDS - {"LIKE", "ILIKE", "REGEXP", "RLIKE"}
NAMED = sorted(name for name in FUNCTIONS if name.isidentifier() and name not in _WORDS)
CONSTANTS = {
    Kinds.BOOLEAN: "TRUE",
    Kinds.NUMBER: "5",
    Kinds.STRING: "'x'",
    Kinds.TIME: "DATE '2024-01-31'",
    Kinds.INTERVAL: "INTERVAL 1 DAY",
}
SPECIAL = {"CAST", "TRY_CAST", "EXTRACT"}  # which have a form of their own


def check_problems(text: str) -> None:
    found = validate(text)
    assert found, text
    for problem in found:
        assert 0 <= problem.start < problem.end <= len(text), text
        assert problem.message and problem.advice and problem.text == text


@pytest.mark.parametrize("name", [name for name in NAMED if name not in SPECIAL])
def test_wrong_arguments_are_told(name: str) -> None:
    function = FUNCTIONS[name]
    counts = [function.least - 1] * (function.least > 0) + ([] if function.most is None else [function.most + 1])
    for count in counts:
        called = f"{name.lower()}({', '.join(['a'] * count)})"
        for text in (f"{called} = 1", f"x = {called}", f"b = 1 AND if(c, {called}, 2) = 3"):
            check_problems(text)
    for place in range(function.least):
        wanted = function.kinds_of(place) | (Kinds.STRING if function.kinds_of(place) & Kinds.TIME else Kinds(0))
        for kind, constant in CONSTANTS.items():
            if not kind & wanted:
                arguments = ["a"] * place + [constant] + ["a"] * (function.least - place - 1)
                check_problems(f"x = {name}({', '.join(arguments)})")


@pytest.mark.parametrize(
    "text",
    [
        "size(split(a, '(')) > 1",
        "regexp_extract(a, '[', 0) = 'x'",
        "regexp_replace(a, '(?=x)', '') = 'x'",
        "to_date(a, 'dd.MM.JJJJ') = b",
        "to_timestamp(a, 'E, d MMM') = b",
        "unix_timestamp(a, 'yyyy]') = b",
        "date_format(a, 'u') = b",
        r"date_format(a, 'yyyy\'T') = b",
        "date_format(a, '" + "y-" * 101 + "') = b",
        "to_timestamp(a, '" + "[" * 11 + "y') = b",
    ],
)
def test_constants_that_cannot_be_used_are_told(text: str) -> None:
    check_problems(text)
    check_problems(f"a = 1 OR {text}")


ANY = [
    "a",
    "d.b",
    "NULL",
    "5",
    "-0.5",
    "'x'",
    "''",
    "TRUE",
    "now()",
    "INTERVAL 1 MONTH",
    "a + 1",
    "x -> x",
    "*",
    "size(a)",
    "array(1)",
]


@pytest.mark.parametrize("name", NAMED)
def test_whatever_the_arguments_are(name: str) -> None:
    """Problems with place and advice, or none; and what has none can be added, printed and read again."""
    random = Random(name)
    for _ in range(60):
        given = ", ".join(random.choice(ANY) for _ in range(random.randrange(5)))
        text = random.choice(["{} = 1", "x > {}", "EXISTS d (d.x = {} AND d.a = a)", "{}"]).format(f"{name}({given})")
        if validate(text):
            check_problems(text)
        else:
            printed = to_sql(parse(text))
            assert validate(printed) == [] and to_sql(parse(printed)) == printed


def test_names_that_are_nearly_right() -> None:
    for wrong, right in {
        "lenght": "LENGTH",
        "substing": "SUBSTRING",
        "startwith": "STARTSWITH",
        "cieling": "CEILING",
    }.items():
        (problem,) = validate(f"a = 1 OR {wrong}(b, 2) > 1")
        assert problem.advice == f"did you mean {right}?"
        assert (problem.start, problem.end) == (9, 9 + len(wrong))


@pytest.mark.parametrize(
    "text", ["1 / 0", "9223372036854775807 + 1", "CAST('x' AS INT)", "ln(0)", "DATE '9999-12-31' + INTERVAL 1 DAY"]
)
def test_constants_that_are_null_are_told(text: str) -> None:
    check_problems(f"a > {text}")
    assert validate(f"a > {text} + NULL") != [] and validate("a > 1 + NULL") == []


def test_the_page_lists_all_functions() -> None:
    page = (Path(__file__).parents[2] / "docs" / "language.md").read_text()
    assert table_of_functions() in page, "python tests/language/function_table.py prints what belongs there"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2.5 + 0.5", 3),
        ("n * 4", None),  # 64 bits
        ("-7 % 3", -1),
        ("round(2.5) + round(-2.5)", 0),
        ("round(1250, -2)", 1300),
        ("5 DIV 2", 2),
        ("greatest(1, NULL, 2.5)", 2.5),
        ("greatest(1, 'x')", None),
        ("lower('ΟΔΟΣ')", "οδος"),
        ("upper('straße')", "STRASSE"),
        ("length('😀')", 1),
        ("CAST(1.5e10 AS STRING)", "15000000000"),
        ("CAST(0.00001 AS STRING)", "1.0E-5"),
        ("CAST('9223372036854775808' AS DOUBLE)", 2.0**63),
        ("year('2024-12-31 23:00:00-05:00')", 2024),  # the day as it is written
        ("hour('2024-12-31 23:00:00-05:00')", 4),  # the time in UTC
        ("to_timestamp('2024-02-29T12:30Z')", Moment(1_709_209_800_000_000)),
        ("to_timestamp('12:30')", None),
        ("from_utc_timestamp(TIMESTAMP '2024-07-01 12:00:00', 'Europe/Berlin')", Moment(1_719_842_400_000_000)),
        ("from_utc_timestamp(DATE '9999-12-31' + INTERVAL 23 HOURS, '+05:00')", None),
        ("to_utc_timestamp(DATE '2024-07-01', 'nowhere')", None),
        ("power(1, CAST('NaN' AS DOUBLE)) = CAST('NaN' AS DOUBLE)", True),
        ("split_part('a,b', ',', 5)", ""),
        ("regexp_replace('abc', '(b)', '<$1>')", "a<b>c"),
        ("regexp_extract('abc', 'x(y)')", ""),
        ("x LIKE 'a%'", None),
    ],
)
def test_single_values(text: str, value: Plain) -> None:
    found = evaluate(read_scalar(text), {"n": 2**62})
    assert found == value and type(found) is type(value)
