"""SQL engines as judges: which rows their WHERE keeps, for many expressions at once, over typed columns with nulls."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa

from dibs.language.expression import (
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
from dibs.language.printer import TRUTHS, to_sql
from dibs.language.scalars import is_computed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Kept = set[tuple[int, int]]  # (row, expression), by their places
COLUMNS_AT_ONCE = 160  # that Spark is asked for: its code for many more takes minutes to compile


def duckdb_literal(constant: Literal) -> str:
    value = constant.value
    if constant.kind == Kind.STRING:
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, dt.datetime):
        return f"TIMESTAMP '{value}'"
    if isinstance(value, dt.date):
        return f"DATE '{value}'"
    return f"CAST('{value!r}' AS DOUBLE)" if isinstance(value, float) else str(value)


def duckdb_sql(node: Expression) -> str:
    """The expression in DuckDB's dialect, which has other functions and no default escape in LIKE."""
    if is_computed(getattr(node, "attribute", "")):
        return f"({in_duckdb_words(to_sql(node))})"
    match node:
        case And(children):
            return "(" + " AND ".join(map(duckdb_sql, children)) + ")"
        case Or(children):
            return "(" + " OR ".join(map(duckdb_sql, children)) + ")"
        case Not(child):
            return f"(NOT {duckdb_sql(child)})"
        case Truth(child, value, negated):
            return f"({duckdb_sql(child)} IS {'NOT ' * negated}{TRUTHS[value]})"
        case Constant(value):
            return "CAST(NULL AS BOOLEAN)" if value is None else str(value).upper()
        case Compare(name, operator, constant):
            return f"({name} {operator} {duckdb_literal(constant)})"
        case In(name, literals, negated, null):
            items = [duckdb_literal(each) for each in literals] + ["NULL"] * null
            return f"({name} {'NOT ' * negated}IN ({', '.join(items)}))"
        case Between(name, low, high, negated):
            return f"({name} {'NOT ' * negated}BETWEEN {duckdb_literal(low)} AND {duckdb_literal(high)})"
        case StringTest(name, function, text, negated):
            called = {"STARTSWITH": "starts_with", "ENDSWITH": "ends_with", "CONTAINS": "contains"}[function]
            return f"({'NOT ' * negated}{called}({name}, {duckdb_literal(literal(text))}))"
        case Like(name, pattern, escape, negated):
            return f"({name} {'NOT ' * negated}LIKE {duckdb_literal(literal(pattern))} ESCAPE '{escape}')"
        case RLike(name, pattern, negated):
            return f"({'NOT ' * negated}regexp_matches({name}, {duckdb_literal(literal(pattern))}))"
        case IsNull(name, negated):
            return f"({name} IS {'NOT ' * negated}NULL)"
    raise AssertionError(node)


# CONCAT by another name, as DuckDB's leaves NULLs out.
_GIVEN = ["abcdefghijklmnop"[:count] for count in range(1, 17)]
CONCAT = "CREATE MACRO joined " + ", ".join(f"({', '.join(names)}) AS {' || '.join(names)}" for names in _GIVEN)


def in_duckdb_words(text: str) -> str:
    return text.replace(" <=> ", " IS NOT DISTINCT FROM ").replace("concat(", "joined(")


def kept_by_duckdb(expressions: Sequence[Expression], rows: pa.Table) -> Kept:
    plain = rows.set_column(rows.column_names.index("t"), "t", rows["t"].cast(pa.timestamp("us")))
    numbered = plain.append_column("row", pa.array(range(len(rows))))
    with duckdb.connect() as connection:
        connection.register("numbered", numbered)
        connection.execute(CONCAT)
        return {
            (row, number)
            for number, expression in enumerate(expressions)
            for (row,) in connection.execute(f"SELECT row FROM numbered WHERE {duckdb_sql(expression)}").fetchall()
        }


def kept_by_spark(spark: SparkSession, texts: Sequence[str], rows: pa.Table) -> Kept:
    """WHERE keeps a row exactly where coalesce(condition, false) is true; so one query answers for many conditions."""
    frame = spark.createDataFrame(rows).cache()  # without it, the optimizer would answer instead of the engine
    kept: Kept = set()
    for first in range(0, len(texts), COLUMNS_AT_ONCE):
        some = enumerate(texts[first : first + COLUMNS_AT_ONCE])
        answers = frame.selectExpr(*(f"coalesce(({text}), false) AS c{number}" for number, text in some)).collect()
        kept |= {(row, first + n) for row, answer in enumerate(answers) for n, is_kept in enumerate(answer) if is_kept}
    frame.unpersist()
    return kept
