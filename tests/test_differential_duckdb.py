"""DuckDB as a judge: over typed columns with nulls, its WHERE and ours keep the same rows."""

from __future__ import annotations

import datetime as dt
from random import Random

import duckdb
import pyarrow as pa
import pytest

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
    literal,
)
from dibs.language.printer import to_sql
from dibs.matcher import Matcher
from dibs.reference import matches
from strategies import TYPED_COLUMNS, typed_expression, typed_rows

EXPRESSIONS = ROWS = 160


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
    match node:
        case And(children):
            return "(" + " AND ".join(map(duckdb_sql, children)) + ")"
        case Or(children):
            return "(" + " OR ".join(map(duckdb_sql, children)) + ")"
        case Not(child):
            return f"(NOT {duckdb_sql(child)})"
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


def kept_by_duckdb(expressions: list[Expression], rows: pa.Table) -> set[tuple[int, int]]:
    plain = rows.set_column(rows.column_names.index("t"), "t", rows["t"].cast(pa.timestamp("us")))
    numbered = plain.append_column("row", pa.array(range(len(rows))))
    connection = duckdb.connect()
    connection.register("numbered", numbered)
    return {
        (row, number)
        for number, expression in enumerate(expressions)
        for (row,) in connection.execute(f"SELECT row FROM numbered WHERE {duckdb_sql(expression)}").fetchall()
    }


@pytest.mark.parametrize("seed", [1, 2])
def test_every_pair_agrees(seed: int) -> None:
    random = Random(seed)
    rows = typed_rows(random, ROWS)
    expressions = [typed_expression(random) for _ in range(EXPRESSIONS)]
    expected = kept_by_duckdb(expressions, rows)

    matcher = Matcher()
    matcher.add_many((number, to_sql(expression)) for number, expression in enumerate(expressions))
    pairs = matcher.match_batch(rows).pairs()
    found = set(zip(pairs["event"].to_pylist(), pairs["subscription"].to_pylist(), strict=True))

    pairs_in_all = len(rows) * len(expressions)
    assert pairs_in_all >= 20_000
    assert 0.1 * pairs_in_all < len(expected) < 0.9 * pairs_in_all
    events = rows.to_pylist()
    for row, number in sorted(found ^ expected)[:1]:
        pytest.fail(
            f"{to_sql(expressions[number])}\n  as {duckdb_sql(expressions[number])}\n  on {events[row]}\n"
            f"  DuckDB: {(row, number) in expected}, Matcher: {(row, number) in found}, "
            f"reference: {matches(expressions[number], events[row])}; {len(found ^ expected)} pairs differ"
        )
    judged = {
        (row, number) for row, event in enumerate(events) for number, e in enumerate(expressions) if matches(e, event)
    }
    assert judged == expected


def test_the_expressions_have_everything() -> None:
    """A judge that is never asked about an operator does not judge it."""
    random = Random(1)
    asked: set[tuple[str, object, object]] = set()
    stack = [typed_expression(random) for _ in range(2 * EXPRESSIONS)]
    while stack:
        node = stack.pop()
        if isinstance(node, (And, Or)):
            stack.extend(node.children)
        elif isinstance(node, Not):
            stack.append(node.child)
        elif isinstance(node, Constant):
            asked.add(("constant", node.value, None))
        else:
            what = getattr(node, "operator", None) or getattr(node, "function", None) or getattr(node, "null", None)
            asked.add((type(node).__name__, what, getattr(node, "negated", None)))
            asked.add(("column", node.attribute, None))
    operators = {("Compare", operator, None) for operator in ("=", "<>", "<", "<=", ">", ">=")}
    functions = {("StringTest", f, n) for f in ("STARTSWITH", "ENDSWITH", "CONTAINS") for n in (True, False)}
    lists = {("In", null, negated) for null in (True, False) for negated in (True, False)}
    others = {(name, None, negated) for name in ("Between", "Like", "RLike", "IsNull") for negated in (True, False)}
    columns = {("column", name, None) for name in TYPED_COLUMNS}
    constants = {("constant", value, None) for value in (True, False, None)}
    assert operators | functions | lists | others | columns | constants <= asked
