"""Explanations: the truth of every part, what decides, and what people read."""

from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given

from dibs.coding.values import Range
from dibs.errors import EventError
from dibs.explain import Explanation, Part, explain
from dibs.language.expression import And, Compare, Expression, Not, Or, Truth, literal
from dibs.language.sql import parse
from dibs.reference import evaluate, matches
from strategies import events, expressions


def explained(text: str, event: dict[str, Any], id: Any = None) -> Explanation:
    return explain(parse(text), event, id)


def reason(text: str, **event: Any) -> str:
    (part,) = explained(text, event).parts
    return part.reason


def test_a_match_and_a_miss_as_they_print() -> None:
    text = "model = 'iphone5s' AND (color = 'silver' OR color = 'gold') AND price <= 580"
    assert str(explained(text, {"model": "iphone5s", "color": "gold", "price": 620}, "alice")).splitlines() == [
        "alice does not match: price is 620, above 580",
        "  ✗ no       AND                     2 of 3 hold",
        "  ✓ yes      ├─ model = 'iphone5s'   model is 'iphone5s'",
        "  ✓ yes      ├─ OR                   1 of 2 holds",
        "  ✗ no       │  ├─ color = 'silver'  color is 'gold', not 'silver'",
        "  ✓ yes      │  └─ color = 'gold'    color is 'gold'",
        "  ✗ no       └─ price <= 580         price is 620, above 580",
    ]
    assert str(explained("price <= 580", {"price": 550}, 7)).splitlines() == [
        "7 matches: price is 550, below 580",
        "  ✓ yes      price <= 580  price is 550, below 580",
    ]
    assert str(explained("color = 'silver'", {})).splitlines() == [
        "does not match: color is missing",
        "  ? unknown  color = 'silver'  color is missing",
    ]


def test_is_true_and_the_like() -> None:
    text = "(color = 'red' OR NOT (price >= 5 AND sale)) IS NOT TRUE AND tags = 'x' IS NOT FALSE"
    found = explained(text, {"price": 7, "sale": True, "tags": ["a", "b"]})
    assert str(found).splitlines() == [
        "does not match: tags is 'a' (one of 2 values), not 'x'",
        "  ✗ no       AND                           1 of 2 holds",
        "  ✓ yes      ├─ IS NOT TRUE                it is unknown",
        "  ? unknown  │  └─ OR                      none of 3 holds",
        "  ? unknown  │     ├─ color = 'red'        color is missing",
        "  ✗ no       │     ├─ price < 5            price is 7, above 5",
        "  ✗ no       │     └─ sale <> TRUE         sale is TRUE, equal to TRUE",
        "  ✗ no       └─ (tags <> 'x') IS NOT TRUE  tags is 'a' (one of 2 values), not 'x'",
    ]
    assert [part.attribute for part in found.deciding] == ["tags"]
    assert found.parts[0].text == "(color = 'red' OR price < 5 OR sale <> TRUE) IS NOT TRUE"
    assert found.to_dict()["tree"]["parts"][0]["operator"] == "IS NOT TRUE"
    alone = explained("tags = 'x' IS NOT TRUE", {"tags": ["a", "b"]})
    assert (alone.operator, alone.truth) == ("", True)
    assert alone.headline == "matches: tags has 2 values, none of which satisfies the condition: 'a', 'b'"


@pytest.mark.parametrize(
    ("text", "value", "expected"),
    [
        ("a = 5", 5, "a is 5"),
        ("a = 5", 4, "a is 4, not 5"),
        ("a <> 5", 5, "a is 5, equal to 5"),
        ("a < 5", 5, "a is 5, equal to 5"),
        ("a >= 5", 4.5, "a is 4.5, below 5"),
        ("a > 5", math.nan, "a is NaN, above 5"),
        ("a = TRUE", False, "a is FALSE, not TRUE"),
        ("a < DATE '2024-01-01'", dt.date(2024, 1, 2), "a is 2024-01-02 00:00:00, above 2024-01-01"),
        ("a IN (1, 2)", 2, "a is 2, in the list"),
        ("a IN (1, 2)", 3, "a is 3, not in the list"),
        ("a NOT IN (1, 2)", 3, "a is 3, not in the list"),
        ("a NOT IN (1, 2)", 2, "a is 2, in the list"),
        ("a NOT IN (1, NULL)", 2, "a is 2; the list holds NULL, which may stand for any value"),
        ("a NOT IN (1, 'x')", 2, "a is 2, compared with values of several kinds"),
        ("a BETWEEN 1 AND 3", 2, "a is 2, between 1 and 3"),
        ("a BETWEEN 1 AND 3", 0, "a is 0, below 1"),
        ("a NOT BETWEEN 1 AND 3", 4, "a is 4, above 3"),
        ("STARTSWITH(a, 'x')", "xy", "a is 'xy', which starts with 'x'"),
        ("NOT ENDSWITH(a, 'x')", "xy", "a is 'xy', which does not end with 'x'"),
        ("CONTAINS(a, 'z')", "xy", "a is 'xy', which does not contain 'z'"),
        ("a LIKE '_y'", "xy", "a is 'xy', which matches the pattern"),
        ("a NOT RLIKE 'y$'", "xy", "a is 'xy', which matches the pattern"),
        ("a = 'x'", 5, "a is a number (5), compared with a string"),
        ("a RLIKE '5'", 5, "a is a number (5), compared with a string"),
        ("a = 5", True, "a is a boolean (TRUE), compared with a number"),
        ("a IS NULL", None, "a is missing"),
        ("a IS NULL", 5, "a is 5"),
        ("a IS NOT NULL", 5, "a is 5"),
        ("a = 5", [], "a is missing"),
        ("a = 5", b"x", "a cannot be read: a value of type bytes"),
        ("a = 5", [1, 5, 6], "a is 5 (one of 3 values)"),
        ("a = 5", [1, 2, 3, 4, 6, 7], "a has 6 values, none of which satisfies this: 1, 2, 3, 4, … 2 more"),
        ("a = 5", ["x", "y"], "a has 2 values, none of which is a number: 'x', 'y'"),
        ("a = 5", Range(4, 6), "a is anything from 4 to 6, and some of that satisfies this"),
        ("a = 5", Range(6, None), "a is 6 or more, and none of that satisfies this"),
        ("a = 5", Range(None, 4), "a is anything up to 4, and none of that satisfies this"),
        ("a LIKE '%b'", Range("a", "c"), "a is anything from 'a' to 'c', and patterns are not tested over ranges"),
        ("a = 5", Range("a", "c"), "a is a string (anything from 'a' to 'c'), compared with a number"),
    ],
)
def test_reasons(text: str, value: Any, expected: str) -> None:
    assert reason(text, a=value) == expected


def test_what_decides() -> None:
    def deciding(text: str, **event: Any) -> list[str]:
        return [part.text for part in explained(text, event).deciding]

    assert deciding("a = 1 AND b = 2 AND c = 3", a=1, b=1) == ["b = 2", "c = 3"]
    assert deciding("a = 1 AND b = 2", a=1, b=2) == ["a = 1", "b = 2"]
    assert deciding("a = 1 OR b = 2", a=2, b=1) == ["a = 1", "b = 2"]
    assert deciding("(a = 1 AND b = 2) OR c = 3", a=1, b=2, c=3) == ["c = 3"]  # one predicate says it all
    assert deciding("(a = 1 AND b = 2) OR (c = 3 AND d = 4)", a=1, c=1) == ["b = 2", "c = 3", "d = 4"]
    assert deciding("NOT (a = 1 OR b = 2)", a=1, b=2) == ["a <> 1", "b <> 2"]
    assert deciding("a = 1 AND (a = 1 OR b = 2) AND FALSE", a=2, b=2) == ["a = 1", "FALSE"]


def test_parts_mirror_the_expression() -> None:
    found = explained("a = 1 AND (b = 2 AND (c = 3 OR NULL))", {"a": 1, "b": [2, 3]})
    assert (found.operator, found.truth, found.matched) == ("AND", None, False)
    first, second, either = found.parts  # an AND inside an AND is one AND
    assert (first.text, first.attribute, first.values, first.truth) == ("a = 1", "a", (1,), True)
    assert second.values == (2, 3)
    assert [(part.text, part.truth, part.reason) for part in either.parts] == [
        ("c = 3", None, "c is missing"),
        ("NULL", None, "NULL"),
    ]
    assert repr(either.parts[0]) == "<Part c = 3: unknown>"


def test_long_things_are_shortened() -> None:
    many = ", ".join(str(i) for i in range(10_000))
    shown = str(explained(f"a IN ({many})", {"a": "x" * 100_000}))
    assert "a IN (0, 1, 2, 3, … 9,996 more)" in shown
    assert "(100,000 characters)" in shown
    assert max(len(line) for line in shown.splitlines()) < 200
    part = explained(f"a IN ({many})", {"a": 1}).parts[0]
    assert part.text.endswith("9998, 9999)")  # in full
    shown = str(explained("a = '" + "y" * 100_000 + "'", {"a": list(range(1000))}))
    assert "… 996 more" in shown
    assert max(len(line) for line in shown.splitlines()) < 200


def test_hundreds_of_predicates_show_what_decides_first() -> None:
    event = {f"a{i}": i for i in range(500)} | {"a333": 0, "a444": 0}
    found = explained(" AND ".join(f"a{i} = {i}" for i in range(500)), event, "wide")
    lines = str(found).splitlines()
    assert lines[0] == "wide does not match: a333 is 0, not 333; a444 is 0, not 444"
    assert lines[2].split() == ["✗", "no", "├─", "a333", "=", "333", "a333", "is", "0,", "not", "333"]
    assert lines[3].split()[:4] == ["✗", "no", "├─", "a444"]
    assert lines[-1].split()[1:] == ["…", "452", "more:", "452", "yes"]
    assert len(lines) == 51
    assert len(found.to_text(lines=1000).splitlines()) == 502
    either = explained(" AND ".join(f"(a{i} = 0 OR b{i} = 0)" for i in range(500)), event, "wide")
    assert len(str(either).splitlines()) <= 51
    assert "a1 = 0 OR b1 = 0" in str(either)
    assert "and 991 more reasons" in either.headline


def test_depth_beyond_the_stack_of_python() -> None:
    deep: Expression = Compare("a", "=", literal(1))
    for level in range(5_000):
        deep = And((Compare("b", ">=", literal(-level)), Or((Compare("c", "=", literal(level)), Not(deep)))))
    found = explain(deep, {"b": 0, "a": 1})
    assert found.truth is evaluate(deep, {"b": 0, "a": 1})
    assert len(found.deciding) > 1000
    assert len(str(found).splitlines()) <= 51
    assert "predicates" in str(found)
    assert found._repr_html_()


def test_html_is_inert() -> None:
    nasty = "<script>alert(1)</script>"
    page = explained(f"`{nasty}` = '{nasty}' AND b = '<img src=x>'", {nasty: nasty + "&", "b": 1}, nasty)._repr_html_()
    assert "<script" not in page
    assert "<img" not in page
    assert page.count("&lt;script&gt;") >= 4
    assert "✗ no" in page


def test_terminals_get_no_control_characters() -> None:
    shown = str(explained("`a\x1b[31m` = 'x'", {"a\x1b[31m": "\x1b[2J\r\n\u202e"}, "id\x07\n2"))
    assert all(c.isprintable() or c == "\n" for c in shown)
    assert len(shown.splitlines()) == 2


def test_to_dict_is_json() -> None:
    event = {"a": [1, math.nan, dt.date(2024, 1, 1), None], "b": Range(1, None), "c": b"x"}
    found = explained("(a = 1 OR b < 0) AND c = 'x'", event, "alice").to_dict()
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found["id"] == "alice"
    assert found["matched"] is False
    assert found["truth"] is None
    assert [part["text"] for part in found["deciding"]] == ["c = 'x'"]
    either, last = found["tree"]["parts"]
    assert either["operator"] == "OR"
    assert either["parts"][0]["values"] == [1, "nan", "2024-01-01 00:00:00"]
    assert either["parts"][1]["values"] == [{"lo": 1, "hi": None}]
    assert last["values"] == [{"unreadable": "a value of type bytes"}]
    shallow = explained("a = 1 AND (b = 1 OR (c = 1 AND d = 1))", event).to_dict(depth=1)
    assert shallow["tree"]["parts"][1]["text"] == "b = 1 OR c = 1 AND d = 1"


def test_what_decides_below_is_not_true() -> None:
    found = explained("(a = 1 AND b = 2) IS NOT TRUE AND c = 3", {"a": 1, "b": 5, "c": 3})
    assert found.matched and [(part.text, part.truth) for part in found.deciding] == [("b = 2", False), ("c = 3", True)]


def test_an_event_that_is_none() -> None:
    with pytest.raises(EventError):
        explain(parse("a = 1"), "a=1")  # type: ignore[arg-type]


@given(expressions(), events())
def test_an_explanation_has_the_truth_of_the_reference(expression: Expression, event: dict[str, Any]) -> None:
    found = explain(expression, event, 1)
    assert found.truth is evaluate(expression, event)
    assert found.matched is matches(expression, event)
    assert str(found)
    assert found._repr_html_()
    json.dumps(found.to_dict(), allow_nan=False)
    deciding = list(_deciders(found.root, found.matched))
    assert all(bool(part.truth) is holds for part, holds in deciding)
    assert {part.expression for part in found.deciding} == {part.expression for part, _ in deciding}
    assert 1 <= len(found.deciding) <= found.root.predicates
    for part in _leaves(found.root):
        assert part.truth is evaluate(part.expression, event)


def _deciders(part: Part, holds: bool) -> Iterator[tuple[Part, bool]]:
    """The predicates that decide, with whether each holds if the whole does: IS NOT TRUE holds where they do not."""
    if not part.parts:
        yield part, holds
    below = holds != (isinstance(part.expression, Truth) and part.expression.negated)
    for each in part.deciding_parts() if part.parts else ():
        yield from _deciders(each, below)


def _leaves(part: Part) -> list[Part]:
    return [leaf for inner in part.parts for leaf in _leaves(inner)] if part.parts else [part]
