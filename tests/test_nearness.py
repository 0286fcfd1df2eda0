"""How far an event is from an expression: 0 exactly where it matches, and less where less is missing."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from dibs.language.sql import parse
from dibs.nearness import distance
from dibs.reference import matches, values_of
from strategies import events, expressions

EVENT = {"price": 590, "brand": "Acme", "at": "2024-01-02", "tags": ["a", "b"], "fine": True}


def far(text: str, event: dict[str, Any] | None = None) -> float:
    return distance(parse(text), values_of(EVENT if event is None else event))


@pytest.mark.parametrize(
    ("nearer", "farther"),
    [
        ("price < 590", "price <= 589"),
        ("price <= 580", "price <= 100"),
        ("price IN (1, 600)", "price IN (1, 700)"),
        ("price BETWEEN 600 AND 700", "price BETWEEN 690 AND 700"),
        ("brand = 'Acne'", "brand = 'Zebra'"),
        ("brand = 'Zebra'", "brand = 5"),
        ("STARTSWITH(brand, 'Acn')", "STARTSWITH(brand, 'Zeb')"),
        ("brand = 'Zebra'", "size = 4"),
        ("price <= 580 AND brand = 'Acme'", "price <= 580 AND brand = 'Zebra'"),
        ("price <= 100 OR price <= 580", "price <= 100"),
        ("NOT (price > 580)", "NOT (price > 5)"),
        ("tags = 'bc'", "tags = 'zzzz'"),
        ("FALSE OR size = 4", "FALSE"),
    ],
)
def test_order(nearer: str, farther: str) -> None:
    assert 0 < far(nearer) < far(farther)


@given(expressions(), events())
def test_it_is_0_exactly_where_the_expression_matches(expression: Any, event: Any) -> None:
    assert (distance(expression, values_of(event)) == 0) == matches(expression, event)
