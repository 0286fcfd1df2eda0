"""Declared domains of integers: every value has a cell of its own, and everything matches as the reference says."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pytest

from dibs.coding.clauses import code_clauses, code_declared
from dibs.coding.domain import NUMBER_BASE
from dibs.coding.values import Range
from dibs.errors import ArgumentError, EventError, ExpressionError, SubscriptionErrors
from dibs.language.sql import parse
from dibs.language.types import check_types, fit_range, with_domains
from dibs.matcher import Matcher
from dibs.past.backtest import backtest
from dibs.reference import matches
from dibs.segments.compile import compile_texts
from dibs.tuning import smallest, using

DOMAINS = {"a": (0, 10), "b": (-3, 4), "c.d": (5, 5)}
TYPES = with_domains(None, DOMAINS)


def make_predicate(draw: random.Random) -> str:
    name = draw.choice([*DOMAINS, "free"])
    low, high = DOMAINS.get(name, (0, 5))
    one, two = draw.randint(low, high), draw.randint(low, high)
    listed = ", ".join(str(draw.randint(low, high)) for _ in range(draw.randint(1, 5)))
    form = draw.choice(["{n} {o} {x}", "{n} BETWEEN {x} AND {y}", "{n} NOT BETWEEN {x} AND {y}", "{n} IN ({l})"])
    form = draw.choice([form, "{n} NOT IN ({l})", "{n} IS NULL", "{n} IS NOT NULL"])
    operator = draw.choice(["=", "<>", "<", "<=", ">", ">="])
    return form.format(n=name, o=operator, x=one, y=two, l=listed)


def make_text(draw: random.Random) -> str:
    parts = [make_predicate(draw) for _ in range(draw.randint(1, 4))]
    return draw.choice([" AND ", " AND ", " OR "]).join(parts)


def make_event(draw: random.Random) -> dict[str, Any]:
    event: dict[str, Any] = {"free": draw.choice([0, 2.5, 3, 7, "x"])}
    for name in ("a", "b"):
        low, high = DOMAINS[name]
        values = [draw.randint(low, high), float(draw.randint(low, high)), str(draw.randint(low, high)), None]
        event[name] = draw.choice([*values, [draw.randint(low, high), draw.randint(low, high)]])
    if draw.random() < 0.5:
        event["c"] = {"d": 5}
    return event


def make_case(seed: int, texts: int = 150, events: int = 60) -> tuple[list[str], list[dict[str, Any]], list[list[int]]]:
    draw = random.Random(seed)
    written = [make_text(draw) for _ in range(texts)]
    made = [make_event(draw) for _ in range(events)]
    trees = [parse(text, TYPES) for text in written]
    return written, made, [[i for i, tree in enumerate(trees) if matches(tree, e, types=TYPES)] for e in made]


@pytest.mark.parametrize("few", [False, True])
def test_every_way_gives_what_the_reference_says(tmp_path: Path, few: bool) -> None:
    texts, events, expected = make_case(1 + few)
    assert 0.05 < np.mean([len(found) for found in expected]) / len(texts) < 0.9
    with using(smallest() if few else {}):
        waiting, many = Matcher(domains=DOMAINS), Matcher(domains=DOMAINS)
        for id, text in enumerate(texts):
            waiting.add(id, text)
        for start in range(0, len(texts), 50):  # segments that are merged later
            many.add_many(list(enumerate(texts))[start : start + 50])
            many.match_batch(events[:1])
        with Matcher.open(tmp_path / "durable", domains=DOMAINS) as durable:
            durable.add_many(enumerate(texts))
        many.save(tmp_path / "saved")
        reopened, loaded = Matcher.open(tmp_path / "durable"), Matcher.load(tmp_path / "saved")
        for matcher in (waiting, many, reopened, loaded):
            assert dict(matcher.types) == dict(TYPES)
            assert [matcher.match(event) for event in events] == expected
            assert [matcher.match(orjson.dumps(event)) for event in events] == expected
            assert list(matcher.match_batch(events)) == expected
            lines = b"\n".join(map(orjson.dumps, events))
            assert list(matcher.match_batch(lines)) == expected
        reopened.close()


@pytest.mark.parametrize("index", ["scan", "opindex", "betree", "psthash", "kindex", "counting", "segment-tree"])
def test_structures_agree(index: str) -> None:
    texts, events, expected = make_case(7, 80, 30)
    matcher = Matcher(index=index, domains=DOMAINS)
    matcher.add_many(enumerate(texts))
    assert list(matcher.match_batch(events)) == expected


def test_arrow_columns_and_backtests() -> None:
    texts = ["a < 4", "a NOT IN (3, 4)", "b >= 2 AND a <> 0"]
    values = [0, 3, 4, 10]
    expected = [[i for i, t in enumerate(texts) if matches(parse(t, TYPES), {"a": v}, types=TYPES)] for v in values]
    matcher = Matcher(domains=DOMAINS)
    matcher.add_many(enumerate(texts))
    for type_ in (pa.int32(), pa.float64(), pa.int64()):
        assert list(matcher.match_batch(pa.table({"a": pa.array(values, type_)}))) == expected
    events = [{"a": v} for v in values]
    assert backtest("a NOT IN (3, 4)", events, types=dict(TYPES)).count == 2


def test_ranges_are_of_integers() -> None:
    """Between 3 and 4 there is nothing."""
    texts = ["a NOT IN (3, 4)", "a = 3", "a < 3", "a > 4", "a <> 4"]
    trees = [parse(text, TYPES) for text in texts]
    matcher = Matcher(domains=DOMAINS)
    matcher.add_many(enumerate(texts))
    for range_ in (Range(3, 4), Range(2.5, 3.5), Range(None, 3), Range(4, None), Range(-7, 2.9), Range(3, 3)):
        event = {"a": range_}
        expected = [i for i, tree in enumerate(trees) if matches(tree, event, types=TYPES)]
        assert matcher.match(event) == expected == list(matcher.match_batch([event]))[0]
    assert matcher.match({"a": Range(3, 4)}) == [1, 4]
    for nothing in (Range(3.1, 3.9), Range(11, 20), Range(-5, -1), Range("a", "b")):
        with pytest.raises(EventError, match=r"expected an integer\(0, 10\)"):
            matcher.match({"a": nothing})
    assert fit_range(float("-inf"), float("inf"), (0, 3)) == (0, 3) and fit_range(5, 4, (0, 9)) is None


@pytest.mark.parametrize("value", [11, -1, 3.5, "3.5", "x", True, float("nan"), float("inf"), 2**60, 1e300])
def test_values_outside_are_refused_or_listed(value: Any) -> None:
    matcher = Matcher(domains=DOMAINS)
    matcher.add("x", "a >= 0 OR a IS NULL OR b = 1")
    for event in ({"a": value}, {"a": [1, value]}):
        with pytest.raises(EventError, match=r"expected an integer\(0, 10\)"):
            matcher.match(event)
    found = matcher.match_batch([{"a": value, "b": 1}, {"a": 1}], on_error="skip")
    assert list(found) == [["x"], ["x"]] and [problem.event for problem in found.problems] == [0]


@pytest.mark.parametrize(
    "text", ["a < 3.5", "a = 11", "a IN (1, -1)", "a BETWEEN 0 AND 10.5", "a = 'x'", "a LIKE '1%'"]
)
def test_constants_outside_are_refused(text: str) -> None:
    matcher = Matcher(domains=DOMAINS)
    with pytest.raises(ExpressionError):
        matcher.add("x", text)
    with pytest.raises(SubscriptionErrors):
        matcher.add_many([("y", "a = 1"), ("x", text)])
    assert len(matcher) == 0


def test_what_domains_may_be(tmp_path: Path) -> None:
    for wrong in (3, {"a": 3}, {"a": (0,)}, {"a": (0.5, 3)}, {"a": (3, 0)}, {"a": (0, 10**7)}, {3: (0, 1)}):
        with pytest.raises(ArgumentError):
            Matcher(domains=wrong)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="a type and a domain"):
        Matcher(types={"a": "number"}, domains={"a": (0, 1)})
    assert check_types({"a": "integer(0,10)"}) == with_domains(None, {"a": (0, 10)})
    with Matcher.open(tmp_path / "folder", domains={"a": (0, 10)}) as made:
        made.add("x", "a = 3")
    with pytest.raises(ArgumentError, match="leave types out"):
        Matcher.open(tmp_path / "folder", domains={"a": (0, 11)})
    with Matcher.open(tmp_path / "folder", types={"a": "integer(0, 10)"}) as again:
        assert again.match({"a": "3"}) == ["x"]


def test_every_integer_has_a_cell_and_nothing_else_has() -> None:
    """Half as many cells as with a gap round each constant."""
    texts = pa.array([f"n = {value}" for value in range(100)] + ["n > 42 AND s = 'x'"], pa.large_string())
    compiled = compile_texts(texts)
    plain, _ = code_clauses(compiled.table)
    domains, clauses = code_declared(compiled.table, {"n": (0, 99)})
    place = domains.number_of[next(a for a in domains.attributes if a[0] == "n")]
    assert [int(cell) - NUMBER_BASE for cell in clauses.lo[:100]] == list(range(100))
    numbers = [int(own.string_base[place]) - NUMBER_BASE for own in (domains, plain)]
    assert numbers == [101, 201]
    more = clauses.offsets[100]
    found = {
        int(a): (int(lo), int(hi)) for a, lo, hi in zip(clauses.attribute[more:], clauses.lo[more:], clauses.hi[more:])
    }
    assert found[place] == (NUMBER_BASE + 43, int(domains.string_base[place]) - 1)
    same, _ = code_declared(compiled.table, {"other": (0, 99)})
    assert same.number_value.tolist() == plain.number_value.tolist()
