"""DuckDB as a judge: over typed columns with nulls, its WHERE and ours keep the same rows."""

from __future__ import annotations

from random import Random

import pytest

from dibs.language.expression import And, Constant, Not, Or, Truth
from dibs.language.printer import to_sql
from dibs.matcher import Matcher
from dibs.reference import matches
from dibs.tuning import using
from settings import THRESHOLDS
from sql_judges import duckdb_sql, kept_by_duckdb
from strategies import TYPED_COLUMNS, typed_expression, typed_rows

EXPRESSIONS = ROWS = 160


@pytest.mark.parametrize("name", ["auto", "propagation", "betree"])
@pytest.mark.parametrize("thresholds", THRESHOLDS)
def test_every_pair_agrees(thresholds: str, name: str) -> None:
    seed = 1 + list(THRESHOLDS).index(thresholds)
    random = Random(seed)
    rows = typed_rows(random, ROWS)
    expressions = [typed_expression(random) for _ in range(EXPRESSIONS)]
    expected = kept_by_duckdb(expressions, rows)

    with using(THRESHOLDS[thresholds](seed)), Matcher(index=name) as matcher:
        matcher.add_many((number, to_sql(expression)) for number, expression in enumerate(expressions))
        pairs = matcher.match_batch(rows).pairs()
        found = set(zip(pairs["event"].to_pylist(), pairs["subscription"].to_pylist(), strict=True))
        # The same rows one by one, twice, so that what is planned in the background is used too.
        singly = [
            {(row, id) for row, event in enumerate(rows.to_pylist()) for id in matcher.match(event)} for _ in "12"
        ]
    assert singly == [found, found]

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
        elif isinstance(node, (Not, Truth)):
            stack.append(node.child)
            if isinstance(node, Truth):
                asked.add(("Truth", node.value, node.negated))
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
    truths = {("Truth", value, negated) for value in (True, False, None) for negated in (True, False)}
    assert operators | functions | lists | others | columns | constants | truths <= asked
