"""The normal form: its shape, what it makes of each construct, and that it stays small. (test_agreement.py checks
that it means the same.)"""

from __future__ import annotations

import time

import pytest
from hypothesis import given

from dibs.language.expression import And, Constant, Expression, In, Not, Or, Truth, predicates
from dibs.language.normal_form import normal_form
from dibs.language.printer import to_sql
from dibs.language.sql import MAX_DEPTH, parse
from strategies import expressions

# text -> text of the normal form
FORMS = {
    # NOT
    "NOT (a = 1 AND b < 2)": "a <> 1 OR b >= 2",
    "NOT (a IN (1, 2) OR NOT (b LIKE 'x_' AND c IS NULL))": "a NOT IN (1, 2) AND b LIKE 'x_' AND c IS NULL",
    "NOT (a BETWEEN 1 AND 2 OR CONTAINS(b, 'x') OR c RLIKE 'x')": (
        "a NOT BETWEEN 1 AND 2 AND NOT CONTAINS(b, 'x') AND c NOT RLIKE 'x'"
    ),
    # constants: unknown is as good as false once no NOT is left
    "a = 1 AND TRUE": "a = 1",
    "a = 1 AND FALSE": "FALSE",
    "a = 1 OR TRUE": "TRUE",
    "a = 1 OR FALSE": "a = 1",
    "a = 1 AND NULL": "FALSE",
    "a = 1 OR NULL": "a = 1",
    "NOT (a = 1 OR NULL)": "FALSE",
    "NOT (a = 1 AND NULL)": "a <> 1",
    "NULL": "FALSE",
    "NOT (TRUE AND NOT FALSE)": "FALSE",
    "a BETWEEN NULL AND 5": "FALSE",
    "a NOT BETWEEN NULL AND 5": "a > 5",
    "(a = 1 OR 1 = 1) AND b = 2": "b = 2",
    # repeats and absorption
    "a = 1 AND a = 1": "a = 1",
    "a = 1 AND b = 2 AND a = 1": "a = 1 AND b = 2",
    "(a = 1 OR b = 2) AND (a = 1 OR b = 2)": "a = 1 OR b = 2",
    "a = 1 AND (a = 1 OR b = 2)": "a = 1",
    "a = 1 OR b = 2 AND a = 1": "a = 1",
    "a < 1 AND (b = 1 OR (a < 1 AND c = 1))": "a < 1 AND (b = 1 OR a < 1 AND c = 1)",
    # some element for each predicate: these are left alone
    "a = 1 AND a = 2": "a = 1 AND a = 2",
    "a = 1 AND a <> 1": "a = 1 AND a <> 1",
    "a > 5 AND a < 1": "a > 5 AND a < 1",
    "a <> 1 AND a <> 2": "a <> 1 AND a <> 2",
    "a NOT IN (1) AND a NOT IN (2)": "a <> 1 AND a <> 2",
    "a = 1 OR a <> 1": "a = 1 OR a <> 1",
    "a IS NULL OR a IS NOT NULL": "a IS NULL OR a IS NOT NULL",
    # some element for one of two tests: these are merged
    "a = 1 OR a = 2": "a IN (1, 2)",
    "a = 1 OR b = 2 OR a IN (2, 1, 3)": "a IN (1, 2, 3) OR b = 2",
    "a = 1 OR a = 'x'": "a IN (1, 'x')",
    "NOT (a <> 1 AND a <> 2)": "a IN (1, 2)",
    "a = 1 OR a NOT IN (2, 3)": "a = 1 OR a NOT IN (2, 3)",
    # IN and BETWEEN
    "a IN (1)": "a = 1",
    "a NOT IN (1)": "a <> 1",
    "a IN (1, 2, 1)": "a IN (1, 2)",
    "a IN (1, NULL)": "a = 1",
    "a NOT IN (1, NULL)": "FALSE",
    "a NOT IN (1, 'x')": "FALSE",
    "a IN (1, 'x')": "a IN (1, 'x')",
    "a BETWEEN 5 AND 5": "a = 5",
    "a NOT BETWEEN 5 AND 5": "a <> 5",
    "a BETWEEN 1 AND 'x'": "FALSE",
    "a NOT BETWEEN 1 AND 'x'": "a NOT BETWEEN 1 AND 'x'",
    # LIKE
    "a LIKE 'abc'": "a = 'abc'",
    "a NOT LIKE 'abc'": "a <> 'abc'",
    "a LIKE ''": "a = ''",
    "a LIKE 'abc%'": "STARTSWITH(a, 'abc')",
    "a LIKE '%abc'": "ENDSWITH(a, 'abc')",
    "a NOT LIKE '%abc%%'": "NOT CONTAINS(a, 'abc')",
    "a LIKE '%'": "STARTSWITH(a, '')",
    "a LIKE '%%'": "STARTSWITH(a, '')",
    "a NOT LIKE '%'": "NOT STARTSWITH(a, '')",
    r"a LIKE 'a\%\_'": "a = 'a%_'",
    "a LIKE 'a!%%' ESCAPE '!'": "STARTSWITH(a, 'a%')",
    "a LIKE 'a_'": "a LIKE 'a_'",
    "a LIKE 'a%b'": "a LIKE 'a%b'",
    "a LIKE 'x' OR a LIKE 'y' OR a = 'z'": "a IN ('x', 'y', 'z')",
    # IS TRUE and the like: complements of predicates, IS FALSE by NOT
    "(a = 1) IS TRUE": "a = 1",
    "(a = 1) IS NOT TRUE": "(a = 1) IS NOT TRUE",
    "NOT ((a = 1) IS NOT TRUE)": "a = 1",
    "(a = 1 AND b < 2) IS FALSE": "a <> 1 OR b >= 2",
    "(a = 1) IS NOT FALSE": "(a <> 1) IS NOT TRUE",
    "(a = 1) IS UNKNOWN": "(a = 1) IS NOT TRUE AND (a <> 1) IS NOT TRUE",
    "(a = 1) IS NOT UNKNOWN": "a = 1 OR a <> 1",
    "active IS NOT TRUE": "(active = TRUE) IS NOT TRUE",
    "NOT (a < 1 AND b < 2) IS TRUE": "(a < 1) IS NOT TRUE OR (b < 2) IS NOT TRUE",
    "(NOT (a < 1 AND b < 2)) IS NOT TRUE": "(a >= 1) IS NOT TRUE AND (b >= 2) IS NOT TRUE",
    "((a < 1) IS NOT TRUE OR b < 2) IS NOT TRUE": "a < 1 AND (b < 2) IS NOT TRUE",
    "((a < 1) IS NOT TRUE AND b < 2) IS FALSE": "a < 1 OR b >= 2",
    "(a IS NULL OR b LIKE 'x%') IS NOT TRUE": "(a IS NULL) IS NOT TRUE AND (STARTSWITH(b, 'x')) IS NOT TRUE",
    "(EXISTS d (d.a = a)) IS NOT TRUE": "NOT EXISTS (SELECT 1 FROM history d WHERE d.a = a)",
    "(a = 1 OR a = 2) IS NOT TRUE": "(a IN (1, 2)) IS NOT TRUE",
    "(a = 1) IS NOT TRUE OR a = 2 OR a = 3": "(a = 1) IS NOT TRUE OR a IN (2, 3)",
    "(a = 1) IS NOT TRUE OR (a = 2) IS NOT TRUE": "(a = 1) IS NOT TRUE OR (a = 2) IS NOT TRUE",
    "a = 2 AND (a = 1) IS NOT TRUE": "a = 2 AND (a = 1) IS NOT TRUE",
    "(a NOT IN (1, NULL)) IS NOT TRUE": "TRUE",
    "(a = 1 OR NULL) IS UNKNOWN": "(a = 1) IS NOT TRUE",
    "(a < 1) IS NOT TRUE AND ((a < 1) IS NOT TRUE OR b < 1)": "(a < 1) IS NOT TRUE",
    # flattening
    "a < 1 AND NOT (b < 1 OR c < 1)": "a < 1 AND b >= 1 AND c >= 1",
    "(a < 1 OR FALSE) AND (b < 1 AND TRUE)": "a < 1 AND b < 1",
    "a < 1 OR (b < 1 OR c < 1) AND TRUE": "a < 1 OR b < 1 OR c < 1",
}


@pytest.mark.parametrize("text", FORMS)
def test_forms(text: str) -> None:
    assert to_sql(normal_form(parse(text))) == FORMS[text]


def size(expression: Expression) -> int:
    """Connectives, predicates and constants of lists; what is below IS UNKNOWN twice."""
    total, stack = 0, [(expression, 1)]
    while stack:
        node, times = stack.pop()
        total += times * (len(node.literals) if isinstance(node, In) else not is_complement(node))
        if isinstance(node, Truth) and node.value is None:
            times *= 2
        below = node.children if isinstance(node, (And, Or)) else [node.child] if isinstance(node, (Not, Truth)) else []
        stack += [(child, times) for child in below]
    return total


def is_complement(form: Expression) -> bool:
    return isinstance(form, Truth) and form.value is True and form.negated


def is_normal(form: Expression) -> bool:
    """TRUE, FALSE, or And and Or by turns, each of two or more, over predicates and complements of predicates."""
    if isinstance(form, Truth):
        return is_complement(form) and not isinstance(form.child, (And, Or, Not, Truth, Constant))
    if isinstance(form, (And, Or)):
        return (
            len(form.children) > 1
            and len(set(form.children)) == len(form.children)
            and all(type(c) is not type(form) and not isinstance(c, Constant) and is_normal(c) for c in form.children)
        )
    return not isinstance(form, Not) and form != Constant(None)


@given(expressions(extremes=True, max_leaves=12))
def test_shape(expression: Expression) -> None:
    form = normal_form(expression)
    assert is_normal(form)
    assert size(form) <= size(expression)
    assert normal_form(form) == form
    assert {p.attribute for p in predicates(form)} <= {p.attribute for p in predicates(expression)}


def test_factors_are_not_multiplied_out() -> None:
    text = " AND ".join(f"(a{i} = 1 OR b{i} = 1)" for i in range(1, 41))
    seconds = []
    for _ in range(3):
        start = time.process_time()
        form = normal_form(parse(text))
        seconds.append(time.process_time() - start)
    assert min(seconds) < 0.05
    assert to_sql(form) == text


def test_long_and_deep_trees() -> None:
    wide = " OR ".join(f"a{i % 7} = {i}" for i in range(20_000))
    assert len(normal_form(parse(wide)).children) == 7  # type: ignore[union-attr]
    deep: Expression = parse("x < 1")
    for i in range(MAX_DEPTH):
        deep = (And if i % 2 else Or)((deep, parse(f"y{i} < 1")))
    assert normal_form(deep) == deep
    for _ in range(10_000):
        deep = Not(deep)
    assert size(normal_form(deep)) == 2 * MAX_DEPTH + 1


def test_trees_made_by_hand() -> None:
    assert normal_form(And(())) == Constant(True)
    assert normal_form(Or(())) == Constant(False)
    assert normal_form(Not(Or(()))) == Constant(True)
    assert normal_form(In("a", ())) == Constant(False)
