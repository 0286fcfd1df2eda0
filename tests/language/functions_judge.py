"""Spark SQL as the judge of the functions: every one over awkward values, and random nestings of them.

    python tests/language/functions_judge.py [expressions] [seed]

A value is computed by the plain forms (dibs.language.functions) and by Spark, from the same rows. What Spark raises an
error for is NULL here: its try_ functions are asked where there is one. What differs by design (docs/language.md) is
left out: see `Judge.value` and the signatures.
"""

from __future__ import annotations

import datetime as dt
import math
import re
import sys
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any, NamedTuple

import pyarrow as pa
from function_signatures import FILLINGS, SIGNATURES

from dibs.language.calls import read_scalar
from dibs.language.expression import Kind
from dibs.language.functions import FUNCTIONS, apply, evaluate
from dibs.language.functions.plain import Moment, Plain, plain_value
from dibs.language.scalars import ARITHMETIC, COMPARISONS, Call, Field, Interval, Scalar, Value, text_of

_SIMPLIFYING = "org.apache.spark.sql.catalyst.optimizer.SimplifyCaseConversionExpressions"
AT_ONCE = 60  # columns that Spark is asked for
ROWS = 240
BIG = 2**63
INTS = [0, 1, -1, 2, 7, -7, 10, 63, 64, 1000, -86_400, 2**31, -(2**31) - 1, 2**53 + 1, BIG - 1, -BIG, -BIG + 1, 1 << 62]
SMALL = [0, 1, -1, 2, 3, -2, 5, -5, 12, 31, -40, 100]
DOUBLES = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 0.1, 123.456, -0.001, 1e-7, 12345678.9, 0.005, 2.675, 3.0]
DOUBLES += [1e300, -1e300, 1e-300, 5e-324, 1.7976931348623157e308, math.nan, math.inf, -math.inf, 100.0, 1e15 + 0.5]
WORDS = """a A abc İstanbul straße ΟΔΟΣ_ΣΑΣ ǅ ŉ ﬁn 日本語 a😀b 😀 a,b,,c a.b 100% x_y \\ aXbXc ẞ 1 -12 1.5 1e3 NaN
true F yes 9223372036854775808 abcabcabc null ΑΣ. ς İ ı 🇩🇪x 0x1F +7 007"""
STRINGS = ["", " ", "ABC abc", "  x  ", "\t x\n", " 42 ", "ſK\u212a", "e\u0301", "\u00a0x", *WORDS.split()]
TIME_TEXTS = """|2024-02-29|2024-02-29 12:30:45|2024-02-29T12:30:45.123456Z|2024-2-9 1:2:3|2023-02-29|2024-02|2024
20240229|2024-02-29 12:30:45.1234567|2024-02-29 12:30:45+02:00| 2024-05-01 |2024-13-01|2024-02-29 24:00:00|2024-02-29T
0001-01-01|2024-02-29 12|1969-12-31 23:59:59.999999|9999-12-31 23:59:59.999999|2024-02-29 12:30:45 +0530
2024-02-29 12:30:45GMT+1
2024-02-29x|2024-02-29 12:30:45-18:00|2024-02-29 12:30:45+18:01|2024-02-29 12:30:45.
2024-02-29 12:30:45Z |2024-02-29 1:2|2024-02-29 12:60|2024-00-01|2024-01-00"""
FORMAT_TEXTS = """|29.02.2024|29.2.2024|2024-02-29|2024-2-29|2/29/24|20240229|20240229123045|240229
2024-02-29 12:30:45|2024-02-29T12:30:45|2024-02-29T12:30:45.123Z|2024-02-29t12:30:45.1+02:00
2024-02-29T12:30:45.123456|2024-02-29T12:30:45|29/Feb/2024:12:30:45 +0530|29/feb/2024:12:30:45 +0000|29 FEB 2024
29 Feb 24|1 May 2024|1 may 2024|Feb 29, 2024 9:05 pm|12:30 AM|12:30 PM|9 AM|9 pm|13 AM|09 AM|9 PM|12:30|24:00
00:30|0:30 PM|2024|24|2024-02|02-29|03-01|60 2024|366 2023|366 2024|2024060|2024-02-29 12:30:45 UTC
2024-02-29 12:30 Europe/Berlin|2024-02-29 12:30 +02:00|2024-02-29 12:30 Z|2024-02-29 12+02|2024-02-29 12+0230
2024-02-29 12Z|2024-02-29 12z|2024-02-29 12:30+02:00|2024-02-29 12:30+0200|2024-02-29 12:30:45+02:00:15
30.02.2024|2024-02-29 12:30:45Z|2024-02-29 |2024-02-29 12:30|2024-02-29 [12:30]|1:2:3|01:02:03|45.5|45.123
45.1234|20240229123045123|on 1.5.2024|ON 29.2.2024|2024 2024|2024 2023|02/29/2024 09:05:01 PM|'24|Feb 2024|024
002024|2024-02-29T|2024-02-29T12|292024|2922024|1230|123045|am|PM|59:59|60:00|12305|+2024|-2024|0000|+12024
12024|29.02.-2024|-0.5.2024|10000-01-01|0000-01-01|2024-02-29 9:05|2024-02-29 13:05|5002024|52024|20240229+02
20240229Z|1.5.+2024|0|9999|99999|2024-02-29 12-18:00|2024-02-29 12+19|2024-02-29 12:30-00:00
2024-02-29 12:30:45 Z|2024-02-29 12:30:45 utc|2024-10-27 02:30 Europe/Berlin|2024-03-31 02:30 Europe/Berlin
2024-02-29 12:30:45 GMT+1|2024-02-29 12:30:45 GMT+01:00|2024-02-29 12:30:45 UTC-02:00|2024-02-29 12:30:45 +02:00
2024-02-29 12:30:45 America/New_York"""
TIMES = """0001-01-01 1582-10-04 1582-10-15 1899-12-31T23:59:59.999999 1900-01-01 1969-12-31T23:59:59.999999 1970-01-01
1970-01-01T00:00:00.000001 1999-12-31T23:59:59.500000 2000-01-01 2000-02-29T12:00 2021-01-03 2024-02-29T23:59:59.000001
2024-03-31T01:30 2024-03-31T02:30 2024-10-27T01:30 2024-10-27T02:30 2024-12-30 2024-12-31 2025-01-31 2023-01-01
2025-06-15T12:30:45.123456 2400-02-29 9999-12-31T23:59:59.999999 2024-01-01T00:00:01 1969-12-31T23:59:00"""
COLUMNS = {
    **dict.fromkeys(["i1", "i2"], ("int", INTS, pa.int64())),
    **dict.fromkeys(["k1", "k2"], ("small", SMALL, pa.int64())),
    **dict.fromkeys(["x1", "x2"], ("double", DOUBLES, pa.float64())),
    **dict.fromkeys(["s1", "s2"], ("string", STRINGS, pa.string())),
    "p1": ("part", ["", "a", "b", " ", "X", ",", "abc", "😀", "σ", "ab", "x y"], pa.string()),
    "f1": ("format text", FORMAT_TEXTS.replace("\n", "|").split("|"), pa.string()),
    "w1": ("time text", TIME_TEXTS.replace("\n", "|").split("|"), pa.string()),
    **dict.fromkeys(
        ["t1", "t2"], ("time", list(map(dt.datetime.fromisoformat, TIMES.split())), pa.timestamp("us", "UTC"))
    ),
    **dict.fromkeys(["b1", "b2"], ("boolean", [True, False], pa.bool_())),
}


class Made(NamedTuple):
    kind: str
    scalar: Scalar
    sql: str  # for Spark


def columns_of(kind: str) -> list[str]:
    return [name for name, (of, _, _) in COLUMNS.items() if of == kind]


def make_text(random: Random, signature: str, depth: int) -> str:
    """A signature with values in its places, of at most this depth."""
    while (begin := signature.find("{")) >= 0:
        end = signature.index("}", begin)
        signature = signature[:begin] + make_value(random, signature[begin + 1 : end], depth - 1) + signature[end + 1 :]
    return signature


def make_value(random: Random, kind: str, depth: int) -> str:
    if kind in FILLINGS:
        return random.choice(FILLINGS[kind])
    plain = columns_of(kind)
    if kind == "date":
        plain = ["to_date(t1)", "to_date(t2)"]
    if kind == "int":
        plain += columns_of("small")
    if depth > 0 and kind in SIGNATURES and (not plain or random.random() < 0.7):
        return make_text(random, random.choice(SIGNATURES[kind]), depth)
    return random.choice(plain)


# ---- Spark ----


def kind_of(scalar: Scalar) -> str:
    """int, double, or what else it is."""
    if isinstance(scalar, Field):
        return {"small": "int"}.get(COLUMNS[scalar.name][0], COLUMNS[scalar.name][0])
    if isinstance(scalar, Value):
        return "double" if scalar.literal is not None and isinstance(scalar.literal.value, float) else "int"
    if isinstance(scalar, Interval):
        return "interval"
    function, arguments = scalar
    kinds = [kind_of(argument) for argument in arguments]
    if function in ("+", "-", "*", "%", "NEGATIVE", "ABS", "COALESCE", "GREATEST", "LEAST", "NULLIF", "ROUND", "NVL"):
        if function == "-" and kinds[0] not in ("int", "double") and kinds[1] != "interval":
            return "interval"
        return "double" if "double" in kinds[: 1 if function == "ROUND" else 9] else kinds[0]
    if function in ("IF", "CASE", "NVL2"):
        return kinds[1]
    if function == "CAST":
        return "double" if arguments[1].literal.value in ("DOUBLE", "FLOAT") else "int"  # type: ignore[union-attr]
    return "double" if function in ("/", "SQRT", "SIGN", "DATE_PART") else "int"


def sql_of(scalar: Scalar) -> str:
    """For Spark, with NULL for errors."""
    if isinstance(scalar, Value) and scalar.literal is not None and scalar.literal.kind == Kind.NUMBER:
        value = scalar.literal.value
        return f"{value!r}D" if isinstance(value, float) else f"({value}L)"
    if isinstance(scalar, Interval) and not scalar.months:
        return f"INTERVAL '{scalar.microseconds / 1e6:.6f}' SECOND"
    if not isinstance(scalar, Call):
        return text_of(scalar)
    function, arguments = scalar
    texts = [sql_of(argument) for argument in arguments]
    if function == "CAST":
        to = arguments[1].literal.value  # type: ignore[union-attr]
        cast = f"try_cast({texts[0]} AS {to})"
        return f"CAST({cast} AS BIGINT)" if to.endswith("INT") else cast  # all integers are BIGINT
    if function == "DATE_PART":  # and there are no decimals
        return f"CAST(date_part({', '.join(texts)}) AS DOUBLE)"
    tried = {"+": "try_add", "-": "try_subtract", "*": "try_multiply", "/": "try_divide", "%": "try_mod"}
    if function in tried:
        if {kind_of(argument) for argument in arguments} <= {"int", "double"}:
            return f"{tried[function]}({', '.join(texts)})"
        return f"({texts[0]} {function} {texts[1]})"
    if function in ("DATE_ADD", "DATE_SUB", "ELEMENT_AT"):
        texts[1] = f"CAST({texts[1]} AS INT)"
    if function in ("<<", ">>"):  # of 64 bits
        texts[0] = f"CAST({texts[0]} AS BIGINT)"
    if function == "SIZE":  # of NULL it is NULL, whatever the session says
        return f"array_size({texts[0]})"
    if function == "DIV":
        return f"if({texts[0]} = -9223372036854775808L AND {texts[1]} = -1, NULL, {texts[0]} DIV {texts[1]})"
    if function in ("NEGATIVE", "ABS") and kind_of(scalar) == "int":
        sign = "-" if function == "NEGATIVE" else "abs"
        return f"if({texts[0]} = -9223372036854775808L, NULL, {sign}({texts[0]}))"
    if function in ARITHMETIC | COMPARISONS:
        return f"({f' {function} '.join(texts)})"
    kept = ("LIKE", "TIMESTAMPDIFF", "TIMESTAMPADD", "DATE_PART")  # constants stay as they are
    names = [
        a if isinstance(a, Value) and function in kept else Field(f"argument_{i}_") for i, a in enumerate(arguments)
    ]
    written = text_of(Call(function, tuple(names)))
    for i in range(len(names) - 1, -1, -1):
        written = written.replace(f"argument_{i}_", texts[i])
    return written


# ---- both ----


# The middle of all times, and how far from it one is safe from leaving them.
_MIDDLE, _REACH = (253_402_300_800 - 62_135_596_800) * 500_000, 156_000_000_000 * 10**6


def _may_be_empty(pattern: Plain) -> bool:
    return re.fullmatch(str(pattern), "") is not None


class Judge:
    """Our side: a value for a row, and whether it is to be compared."""

    def __init__(self) -> None:
        self.is_apart = False  # by design

    def value(self, scalar: Scalar, row: dict[str, Plain]) -> Plain:
        if not isinstance(scalar, Call):
            return evaluate(scalar, row)
        values = [self.value(argument, row) for argument in scalar.arguments]
        result = apply(FUNCTIONS[scalar.function], values)
        numbers = [value for value in (*values, result) if isinstance(value, int) and abs(value) > 2**53]
        kinds = {kind_of(argument) for argument in scalar.arguments} | {kind_of(scalar)}
        if "double" in kinds and numbers:
            self.is_apart = True  # a whole float64 is an integer here
        ends = [v for v in values if isinstance(v, Moment) and abs(v.microseconds - _MIDDLE) > _REACH]
        if (ends or scalar.function == "ROUND") and result is None and None not in values:
            self.is_apart = True  # beyond the years 1 to 9999, or 64 bits
        if (
            scalar.function == "SPLIT"
            and values[1]
            and _may_be_empty(values[1])
            and max(str(values[0]), default="") > "\uffff"
        ):
            self.is_apart = True  # Java cuts a character beyond U+FFFF in two where a match is empty
        if "double" in kinds and result is None and None not in values:
            self.is_apart = self.is_apart or any(abs(v) > 2**31 for v in values if isinstance(v, int))
        return result


def rows_of(random: Random, count: int) -> pa.Table:
    arrays = {}
    for name, (_, values, kind) in COLUMNS.items():
        rest = [*values, None]
        picked = [*random.sample(rest, len(rest)), *random.choices(rest, k=max(count - len(rest), 0))][:count]
        arrays[name] = pa.array(random.sample(picked, len(picked)), kind)
    return pa.table(arrays)


def plain_rows(table: pa.Table) -> list[dict[str, Plain]]:
    def plain(value: Any) -> Plain:
        if isinstance(value, dt.datetime):
            return Moment((value.replace(tzinfo=None) - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1))
        return plain_value(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else value

    return [{name: plain(value) for name, value in row.items()} for row in table.to_pylist()]


def expressions(count: int, random: Random) -> Iterator[Made]:
    """Each signature once over columns, then random nestings."""
    for kind, signatures in SIGNATURES.items():
        for signature in signatures:
            yield made(kind, make_text(random, signature, 1))
    for _ in range(count):
        kind = random.choice([kind for kind in SIGNATURES if kind != "apart"])
        yield made(kind, make_text(random, random.choice(SIGNATURES[kind]), random.randint(2, 4)))


def made(kind: str, text: str) -> Made:
    scalar = read_scalar(text)
    sql = sql_of(scalar)
    if kind in ("time", "date"):
        sql = f"unix_micros(CAST({sql} AS TIMESTAMP))"
    return Made(kind, scalar, f"CAST({sql} AS DOUBLE)" if kind in ("double", "apart") else sql)


def is_same(kind: str, ours: Plain, spark: Any) -> bool:
    if kind in ("time", "date") and not isinstance(spark, str):
        if spark is not None and not -62_135_596_800 * 10**6 <= spark < 253_402_300_800 * 10**6:
            return ours is None  # beyond the years 1 to 9999
        return (None if ours is None else ours.microseconds) == spark  # type: ignore[union-attr]
    if ours is None or spark is None:
        return ours is spark
    if isinstance(spark, float) and isinstance(ours, (int, float)):
        if spark != spark or ours != ours:
            return spark != spark and ours != ours
        near = 1e-14 if kind == "apart" else 0.0
        return ours == spark or math.isclose(ours, spark, rel_tol=near, abs_tol=0.0)
    return type(ours) is type(spark) and ours == spark


def check(
    spark: Any, count: int = 0, seed: int = 0, rows: int = ROWS, most: int | None = None
) -> tuple[int, list[str]]:
    """How many values were compared, and what differs. most: so many expressions, by chance."""
    random = Random(seed)
    table = rows_of(random, rows)
    plain = plain_rows(table)
    settings = {
        "spark.sql.ansi.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.optimizer.excludedRules": _SIMPLIFYING,  # it takes upper(lower(s)) for upper(s)
    }
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    compared, wrong = 0, []
    try:
        frame = spark.createDataFrame(table).cache()
        todo = list(expressions(count, random))
        todo = random.sample(todo, most or len(todo))
        for first in range(0, len(todo), AT_ONCE):
            some = todo[first : first + AT_ONCE]
            answers = ask(frame, [each.sql for each in some])
            for place, each in enumerate(some):
                differing = []
                for row, answer in zip(plain, answers):
                    judge = Judge()
                    try:
                        ours = judge.value(each.scalar, row)
                    except Exception as error:  # there must be none
                        ours = repr(error)
                    if judge.is_apart:
                        continue
                    compared += 1
                    if not is_same(each.kind, ours, answer[place]):
                        given = {name: row[name] for name in sorted(names_in(each.scalar))}
                        differing.append(f"{given}: {ours!r}, Spark {answer[place]!r}")
                if differing:
                    wrong.append(f"{text_of(each.scalar)}  [{each.sql}]\n    " + "\n    ".join(differing[:4]))
        frame.unpersist()
    finally:
        for name, earlier in before.items():
            if earlier is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, earlier)
    return compared, wrong


def names_in(scalar: Scalar) -> set[str]:
    if isinstance(scalar, Call):
        return set().union(*map(names_in, scalar.arguments))
    return {scalar.name} if isinstance(scalar, Field) else set()


def ask(frame: Any, texts: Sequence[str]) -> list[list[Any]]:
    """The answers by row; for what raises an error the beginning of its message."""
    try:
        found = frame.selectExpr(*(f"{text} AS c{i}" for i, text in enumerate(texts))).collect()
        return [list(row) for row in found]
    except Exception as error:
        if len(texts) == 1:
            return [[str(error)[:300]]] * frame.count()
        half = len(texts) // 2
        return [a + b for a, b in zip(ask(frame, texts[:half]), ask(frame, texts[half:]))]


def main() -> int:
    from dibs.spark import session

    count, seed = (int(argument) for argument in (*sys.argv[1:], "300", "0")[:2])
    spark = session(cores=2, app="functions", spark_sql_shuffle_partitions=2)
    compared, wrong = check(spark, count, seed)
    print(*wrong, f"{compared:,} values compared, {len(wrong)} expressions differ", sep="\n")
    spark.stop()
    return bool(wrong)


if __name__ == "__main__":
    raise SystemExit(main())
