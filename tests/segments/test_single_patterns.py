"""Single events against LIKE, CONTAINS and suffixes: by the compiled call, and as a batch and the scan have it."""

from __future__ import annotations

from random import Random
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dibs.language.expression import Expression, Kind
from dibs.language.printer import to_sql
from dibs.matcher import Matcher
from dibs.tuning import smallest, using
from strategies import events, expressions, json_events

WORDS = ["red", "green", "blue", "new", "old", "é", "x_y", "100%", ""]
fewer = settings(max_examples=settings.default.max_examples // 2)


def pattern(random: Random) -> str:
    a, b = (random.choice(WORDS).replace("_", "\\\\_").replace("%", "\\\\%") for _ in range(2))
    shapes = [f"%{a}%", f"{a}%{b}", f"%{a}", f"{a}%", f"%{a}_{b}%", f"_{a}%", f"%{a}%{b}%", f"{a}"]
    negation = "NOT " if random.random() < 0.3 else ""
    test = f"{random.choice('tu')} {negation}LIKE '{random.choice(shapes)}'"
    extra = f" {random.choice(['AND', 'OR'])} n = {random.randint(0, 3)}" if random.random() < 0.4 else ""
    return test + extra


def event(random: Random) -> dict[str, Any]:
    def text() -> str:
        return " ".join(random.choice(WORDS) for _ in range(random.randint(0, 4)))

    values = {
        "t": text(),
        "u": random.choice([text(), [text(), text()], None, 7, {"v": text()}]),
        "n": random.randint(0, 3),
    }
    return {name: value for name, value in values.items() if random.random() < 0.8}


@pytest.mark.parametrize("count", [3, 200, 1_000])
def test_patterns_by_the_compiled_call(count: int) -> None:
    random = Random(count)
    matcher, twin = Matcher(threads=1), Matcher("scan", threads=1)
    for each in (matcher, twin):
        each.add_many([(i, text) for i, text in enumerate([pattern(Random(i)) for i in range(count)])])
    for _ in range(60):
        given = event(random)
        (right,) = twin.match_batch([given])
        assert matcher.match(given) == right, given
        assert matcher.match(orjson.dumps(given)) == right, given
    assert matcher._matching.singles.served == 120


def test_expressions_that_re2_decides() -> None:
    matcher = Matcher(threads=1)
    matcher.add_many([("known", "t RLIKE 'red+ [0-9]'"), ("unknown", "t RLIKE '[0-9]'"), ("like", "t LIKE '%red%'")])
    assert matcher.match({"t": "a redd 7"}) == ["known", "like", "unknown"]
    matcher.remove("unknown")
    matcher.compact()
    assert matcher.match({"t": "a redd 7"}) == ["known", "like"]
    assert matcher.match({"t": "blue"}) == []


def test_only_strings_that_re2_is_asked_about_leave_the_compiled_call() -> None:
    """One expression of which nothing is known concerns the events that have its attribute, and no others."""
    matcher = Matcher(threads=1)
    matcher.add_many([(i, f"t LIKE '%{i}%' AND n < {i}") for i in range(300)])
    matcher.add("unknown", "other RLIKE '[0-9]{3}' OR other RLIKE '\\\\b[0-9]' OR n = 1000")
    matcher.add("opposite", "NOT (other RLIKE '[a-z]{3}')")
    matcher.match_batch([{"n": 1}])
    singles = matcher._matching.singles
    before = singles.served
    assert matcher.match({"t": "x 17 y", "n": 5}) == [7, 17]
    assert matcher.match({"t": "x", "n": 1000}) == ["unknown"]
    assert matcher.match({"other": 7, "n": 1000}) == ["unknown"]  # no string
    assert singles.served == before + 3
    assert matcher.match({"other": "a123", "n": 3, "t": "4"}) == [4, "opposite", "unknown"]
    assert matcher.match({"other": "abc", "n": 3}) == []
    assert singles.served == before + 3


@fewer
@given(
    st.lists(expressions(kinds=[Kind.STRING, Kind.NUMBER], max_leaves=4), min_size=1, max_size=12),
    st.lists(st.one_of(json_events(), json_events(), events()), min_size=1, max_size=6),
    st.booleans(),
)
def test_any_expressions(trees: list[Expression], batch: list[dict[str, Any]], small: bool) -> None:
    with using(smallest() if small else {}):
        matcher, twin = Matcher(threads=1), Matcher("scan", threads=1)
        for each in (matcher, twin):
            each.add_many([(i, to_sql(tree)) for i, tree in enumerate(trees)])
        matcher.match_batch([])
        for given, right in zip(batch, twin.match_batch(batch)):
            assert matcher.match(given) == right, given
