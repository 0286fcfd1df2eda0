"""SUM, AVG, STDDEV, COUNT(DISTINCT), the first and the last value: exact, in whatever order documents came."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dibs
from dibs.language.sql import parse
from dibs.reference import matches
from dibs.reference.totals import rounded_sum
from dibs.tuning import smallest, using

SUM = "x = (SELECT SUM(d.x) FROM history d)"
AVG = "x = (SELECT AVG(d.x) FROM history d)"
NUMBERS = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**63), 2**64 - 1)
TINY = 5e-324


def found(text: str, documents: list[Any], event: dict[str, Any]) -> bool:
    """What a matcher says, alone, in a batch and in words; it is what the reference says."""
    with dibs.Matcher() as m:
        m.add("it", text)
        m.history.load(documents)
        result = m.match(event) == ["it"]
        assert [list(ids) for ids in m.match_batch([event] * 5)] == [["it"] * result] * 5
        assert m.explain("it", event).matched == result
    assert matches(parse(text), event, documents) == result
    return result


@given(st.lists(NUMBERS, min_size=1, max_size=12), st.randoms(use_true_random=False))
def test_a_sum_rounds_once_in_any_order(numbers: list[Any], random: Any) -> None:
    total = rounded_sum([*numbers, 0.5])  # no integer among the numbers: the sum is a float64
    mean = total / (len(numbers) + 1)
    documents = [{"x": x} for x in [*numbers, 0.5]]
    random.shuffle(documents)
    with dibs.Matcher() as m:
        m.add_many([("sum", SUM), ("mean", AVG)])
        m.history.load(documents)
        assert m.match({"x": total}) == ["mean"] * (mean == total) + ["sum"]
        assert "mean" in m.match({"x": mean})


def test_rounding_is_that_of_fractions() -> None:
    """Halves, carries through many digits, the smallest and the largest numbers."""
    cases: list[list[float]] = [
        [1.0, 2.0**-53], [1.0, 2.0**-53, TINY], [1.0, -(2.0**-54), -TINY], [2.0**53, 1.0], [2.0**53, 1.0, 2.0],
        [1e308, 1e308], [1e308, 1e308, -1e308], [TINY, TINY], [1.0, TINY, -1.0], [1e308, 1.0, -1e308], [0.1] * 10,
        [2.0**1023, 2.0**1023 - 2.0**970, 2.0**969], [2.0**1023, 2.0**1023 - 2.0**970, 2.0**969 - 2.0**916],
        [-(2.0**53), -1.0, -TINY], [2.0**-1022, -TINY], [0.5, 2.0**52, 2.0**-1074],
        [math.pi * 2.0**k for k in range(-60, 60)],
    ]  # fmt: skip
    for numbers in cases:
        try:
            exact = float(sum(map(Fraction, numbers)))
        except OverflowError:
            exact = math.inf
        assert rounded_sum(numbers) == exact
        assert found(SUM, [{"x": x} for x in [*numbers, 0.25, -0.25]], {"x": exact}), numbers


@pytest.mark.parametrize(
    ("values", "sum_", "mean"),
    [
        ([1, 2, 3], 6, 2),
        ([2**62, 2**62 - 1], 2**63 - 1, 2.0**62),
        ([2**62, 2**62], None, 2.0**62),  # beyond 64 bits
        ([-(2**62), -(2**62)], -(2**63), -(2.0**62)),
        ([-(2**63), -1], None, -(2.0**62)),
        ([-(2**63), -1, 1], -(2**63), -(2.0**63) / 3),
        ([2**53, 1, 1.0], 2**53 + 2, (2**53 + 2) / 3),  # a whole float64 is an integer
        ([2**53 + 1, 0.5], 2.0**53 + 2, 2.0**52 + 1),  # rounded once: to even
        ([2**64 - 1, 1], 2.0**64, 2.0**63),
        ([math.inf, 1], math.inf, math.inf),
        ([math.inf, -math.inf], math.nan, math.nan),
        ([math.nan, 1], math.nan, math.nan),
        ([[1, 2], 3, "4", True, None], 6, 2),  # all elements, and numbers alone
        (["1", None], None, None),
        ([], None, None),
    ],
)
def test_sums_and_means(values: list[Any], sum_: Any, mean: Any) -> None:
    documents = [{"x": value} for value in values]
    for text, result in ((SUM, sum_), (AVG, mean)):
        query = text.removeprefix("x = ")
        assert found(f"{query} IS NULL", documents, {}) == (result is None)
        assert found(f"{query} IS NOT NULL", documents, {}) == (result is not None)
        if result is not None:
            assert found(text, documents, {"x": result}) and not found(text, documents, {"x": 12345})


def test_deviations() -> None:
    documents = [{"x": x} for x in (2, 4, 4, 4, 5, 5, 7, 9)]
    assert found("(SELECT STDDEV_POP(d.x) FROM history d) = 2", documents, {})
    assert found("(SELECT STD(d.x) FROM history d) = x", documents, {"x": math.sqrt(32 / 7)})
    assert found("(SELECT STDDEV_SAMP(d.x) FROM history d) IS NULL", documents[:1], {})
    assert found("(SELECT STDDEV_POP(d.x) FROM history d) = 0", documents[:1], {})
    assert found("(SELECT STDDEV(d.x) FROM history d) = x", [*documents, {"x": math.inf}], {"x": math.nan})
    far = [{"x": 1e9 + x} for x in (0, 1, 2)]  # nothing is lost where the mean is far away
    assert found("(SELECT STDDEV(d.x) FROM history d) = 1", far, {})


def test_different_values() -> None:
    values = [1, 1.0, "1", True, math.nan, math.nan, [1, 2], None, -0.0, 0, 2**53, 2**53 + 1, "é", "é", {"y": 1}]
    documents = [{"x": value} for value in values]
    assert found("(SELECT COUNT(DISTINCT d.x) FROM history d) = 9", documents, {})
    assert found("(SELECT COUNT(DISTINCT d.z) FROM history d) = 0", documents, {})
    assert found("(SELECT COUNT(DISTINCT lower(d.x)) FROM history d) = 2", documents, {})


def test_the_first_and_the_last() -> None:
    rows = [(3, "c"), (1, "a"), (1, "b"), (3, "d"), (0, None)]
    documents = [{"t": t, "v": v} for t, v in rows]
    assert found("(SELECT FIRST(d.v ORDER BY d.t) FROM history d) = 'a'", documents, {})  # of equal ones, as they came
    assert found("(SELECT LAST(d.v ORDER BY d.t) FROM history d) = 'd'", documents, {})
    assert found("v = (SELECT MIN_BY(d.v, -d.t) FROM history d)", documents, {"v": "c"})
    assert parse("(SELECT MAX_BY(d.v, d.t) FROM history d) = 1") == parse(
        "(SELECT LAST(d.v ORDER BY d.t) FROM history d) = 1"
    )


def test_documents_that_satisfy_both_sides_of_or_count_once() -> None:
    documents = [{"a": a, "b": b, "x": 10 * a + b} for a in (1, 2) for b in (1, 2)]
    with using(smallest()):
        for text in ("SUM(d.x) FROM history d WHERE d.a = a OR d.b = b) = 44", "AVG(d.x) FROM history d) = 16.5",
                     "COUNT(DISTINCT d.a) FROM history d WHERE d.a = a OR d.b = b) = 2"):  # fmt: skip
            assert found(f"(SELECT {text}", documents, {"a": 1, "b": 1})
