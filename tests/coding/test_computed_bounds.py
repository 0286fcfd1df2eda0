"""Ranges of attributes from tests of computed values: wider than the truth, never narrower."""

from __future__ import annotations

import itertools
import math
from random import Random
from typing import Any

import numpy as np
import pytest

from dibs.coding.computed.forms import cut, may_be_last
from dibs.coding.computed.residuals import Residuals, join
from dibs.coding.computed.splitting import split
from dibs.coding.values import number_key
from dibs.language.flatten import conjunction_table, is_conjunction, program_table
from dibs.language.functions.places import geo_distance
from dibs.language.normal_form import normal_form
from dibs.language.scalars import is_computed
from dibs.language.sql import parse
from dibs.language.table import Facet, Op, PredicateTable
from dibs.reference import evaluate
from dibs.tuning import using

FORMS = (
    "abs(x - {a}) {op} {b}",
    "x * {a} {op} {b}",
    "{a} - x {op} {b}",
    "x / {a} {op} {b}",
    "{a} + x * {b} {op} {c}",
    "-x * {a} {op} {b}",
    "ceil(x * {a}) {op} {b}",
    "floor(x / {a}) {op} {b}",
    "round(x * {a}, 1) {op} {b}",
    "round(x + {a}) {op} {b}",
    "round(x + {a}, -2) {op} {b}",
    "sqrt(x + {a}) {op} {b}",
    "ln(x * {a}) {op} {b}",
    "exp(x - {a}) {op} {b}",
    "x * x - {a} * x {op} {b}",
    "abs(x - {a}) BETWEEN {b} AND {c}",
    "x % {a} {op} {b}",
    "power(x - {a}, 2) {op} {b}",
    "abs({a} - x) / {b} {op} {c}",
)
NUMBERS = (
    *("0", "1", "-1", "17", "-3", "0.1", "1.19", "-2.5", "1e-9", "1e9", "3.0", "-1e-300", "5e-324", "1e300", "-1e308"),
    *("9007199254740992", "9007199254740993", "-9007199254740993", "9223372036854775807", "-9223372036854775807"),
    *("1152921504606846977", "0.30000000000000004", "1.7976931348623157e308"),
)
ALWAYS: tuple[int | float, ...] = (
    *(0, 1, -1, 0.5, -0.5, 2**53, 2**53 + 1, -(2**53) - 1, 2**62, 2**63 - 1, -(2**63), 2**60 + 1, 1e300, -1e300),
    *(5e-324, -5e-324, 1.7976931348623157e308, -1.7976931348623157e308, math.inf, -math.inf, math.nan),
)


def table_of(text: str) -> PredicateTable:
    form = normal_form(parse(text))
    return conjunction_table([form]) if is_conjunction(form) else program_table([form])


def holds(table: PredicateTable, predicate: int, value: int | float) -> bool:
    """Whether a predicate on numbers holds."""
    key = number_key(value)
    own = range(int(table.literal_offsets[predicate]), int(table.literal_offsets[predicate + 1]))
    ends = [(float(table.number[i]), int(table.integer[i])) for i in own]
    operator = Op(table.operator[predicate])
    if operator == Op.NOT_NULL:
        return True
    if operator == Op.BETWEEN:
        return ends[0] <= key <= ends[1]
    if operator == Op.NOT_BETWEEN:
        return key < ends[0] or key > ends[1]
    return key <= ends[0] if operator == Op.LE else key >= ends[0]


def beside(value: float) -> list[int | float]:
    """A number and those next to it, far and near."""
    found: list[int | float] = [value, np.nextafter(value, math.inf).item(), np.nextafter(value, -math.inf).item()]
    if math.isfinite(value):
        found += [
            value * (1 + 1e-12),
            value * (1 - 1e-12),
            value * (1 + 1e-9),
            value * (1 - 1e-9),
            value + 1,
            value - 1,
        ]
        found += [int(value), int(value) + 1, int(value) - 1] if abs(value) < 2**63 else []
    return [each for each in found if not isinstance(each, int) or -(2**63) <= each < 2**63]


@pytest.mark.parametrize("form", FORMS)
def test_a_range_is_never_too_narrow(form: str) -> None:
    random = Random(form)
    seen = true = bounded = 0
    for _ in range(40):
        a, b, c = (random.choice(NUMBERS) for _ in range(3))
        text = form.format(a=a, b=b, c=c, op=random.choice(["<", "<=", ">", ">=", "="]))
        try:
            table = table_of(f"y = 1 AND {text}")
        except Exception:  # constants that are NULL, or no test at all
            continue
        made, tests = split(table)
        if tests is None:
            continue
        own = [p for p, a in enumerate(made.attribute) if made.attributes[a] == ("x", Facet.VALUE)]
        assert own and not any(is_computed(name) for name, _ in made.attributes), text
        tree = parse(text)
        ends = [float(made.number[i]) for p in own for i in range(*made.literal_offsets[[p, p + 1]])]
        bounded += bool(ends)
        values = [value for end in ends for value in beside(end)]
        values += [value for number in (a, b, c) for value in beside(float(number))]
        for end, number in itertools.product(ends, (a, b, c)):
            values += [end + float(number), end - float(number), (end + float(number)) / 2]
        for value in (*values, *ALWAYS, *(random.uniform(-50, 50) for _ in range(20))):
            seen += 1
            if evaluate(tree, {"x": value}) is True:
                true += 1
                assert all(holds(made, p, value) for p in own), (text, value, ends)
    assert seen > 500 and true > 5
    assert bounded > 5 or form.startswith(("x %", "power", "x * x"))


def test_ranges_are_narrow_enough() -> None:
    for text, low, high in (
        ("abs(price - 17) < 3", 14, 20),
        ("price * 1.19 <= 99", None, 83.2),
        ("100 - price >= 20 AND 100 - price <= 60", 40, 80),
        ("round(price * 2, 1) BETWEEN 10 AND 20", 4, 11),
    ):
        made, _ = split(table_of(text))
        ends = [float(x) for x in made.number[: made.literal_offsets[-1]]]
        finite = sorted(x for x in ends if math.isfinite(x))
        if low is not None:
            assert abs(finite[0] - low) < 1.1, text
        assert abs(finite[-1] - high) < 1.1, text


def test_circles() -> None:
    """Boxes hold their circles: at the poles, at the date line, of any size."""
    random = Random(7)
    places = [(0.0, 0.0), (52.52, 13.4), (89.99, 10.0), (-90.0, 0.0), (90.0, -180.0), (0.0, 179.99), (-45.0, -180.0)]
    places += [(random.uniform(-90, 90), random.uniform(-180, 180)) for _ in range(40)]
    inside = 0
    for (lat, lon), metres in itertools.product(places, (0.5, 1000, 25_000, 3e6, 1e7, 1.5e7, 2.1e7)):
        made, tests = split(table_of(f"geo_distance(lat, lon, {lat}, {lon}) < {metres}"))
        assert tests is not None or metres > 1.9e7 or abs(lat) == 90
        if tests is None:
            continue
        where = {made.attributes[a][0]: p for p, a in enumerate(made.attribute)}
        spread = metres / 111_000 + 0.001
        for _ in range(60):
            to_lat = random.choice(
                [lat + random.uniform(-1, 1) * spread, lat + spread * 0.999, random.uniform(-90, 90)]
            )
            aside = random.uniform(-1, 1) * spread / max(math.cos(math.radians(to_lat)), 1e-6)
            to_lon = random.choice([(lon + aside + 180) % 360 - 180, -180.0, 180.0, random.uniform(-180, 180), lon])
            found = geo_distance(to_lat, to_lon, lat, lon)
            if found is not None and found < metres:
                inside += 1
                assert holds(made, where["lat"], to_lat), (lat, lon, metres, to_lat, to_lon)
                assert holds(made, where["lon"], to_lon), (lat, lon, metres, to_lat, to_lon)
    assert inside > 3000


def test_distances() -> None:
    assert geo_distance(52.52, 13.40, 52.52, 13.40) == 0
    assert geo_distance(90, 0, 90, 150) == pytest.approx(0, abs=1e-6)
    assert geo_distance(0, 179.5, 0, -179.5) == pytest.approx(111_195, rel=1e-4)
    assert geo_distance(90, 0, -90, 0) == pytest.approx(20_015_115, rel=1e-6)
    assert geo_distance(52.52, 13.40, 48.14, 11.58) == pytest.approx(504_000, rel=0.01)
    for bad in ((91, 0, 0, 0), (0, 181, 0, 0), (0, 0, -91, 0), (0, 0, 0, math.nan), (2**63 - 1, 0, 0, 0)):
        assert geo_distance(*bad) is None


LAST = (
    "abs(x - 1) < 3",
    "y = 1 AND x % 10 = 3",
    "y = 1 AND a + 5 > b",
    "y = 1 AND NOT (a + 5 > b)",
    "(y = 1 OR z = 2) AND abs(x - 1) < 3",
    "abs(x - 1) < 3 AND (y = 1 OR z = 2) AND x * 2 > 1",
    "(abs(x - 1) < 3) IS TRUE",
)
NOT_LAST = (
    "x % 10 = 3",  # nothing to find it by
    "y = 1 AND x * z > 5",  # no number of its own
    "y = 1 AND coalesce(x, 1) + 1 = 3",
    "y = 1 AND abs(x - 1) <> 3",
    "y = 1 AND (abs(x - 1) < 3 OR z = 2)",
    "y = 1 AND (abs(x - 1) < 3) IS NOT TRUE",
    "y = 1 AND (abs(x - 1) < 3) IS UNKNOWN",
    "y = 1 AND x + 1 <=> z",
    "y = 1 AND size(x) + 1 = 3",
    "y = 1 AND exists(x, e -> e + 1 > 2)",
    "y = 1 AND now() > at + INTERVAL 1 DAY",
    "y = 1 AND concat(x, '1') = 'a1'",
)


@pytest.mark.parametrize("text", LAST)
def test_what_is_tested_last(text: str) -> None:
    made, tests = split(table_of(text))
    assert tests is not None
    assert not any(is_computed(name) for name, _ in made.attributes)


@pytest.mark.parametrize("text", NOT_LAST)
def test_what_is_not(text: str) -> None:
    table = table_of(text)
    made, tests = split(table)
    assert tests is None and made is table


def test_what_many_ask_for_is_computed_for_every_event() -> None:
    texts = [f"abs(x - 1) < {c}" for c in range(20)] + ["abs(x - 2) < 3"]
    table = conjunction_table([normal_form(parse(text)) for text in texts])
    _, tests = split(table)
    assert tests is not None and tests.row.tolist() == [20]
    with using({"residual_mentions": 100}):
        assert len(split(table)[1] or []) == 21
    with using({"residual_mentions": 0}):
        assert split(table)[1] is None


def test_numbers_of_a_text() -> None:
    shape, numbers = cut("\0\5(abs((`a 1` - 17)) + item.x2 * -2.5e-07 + f1('7', 3))")
    assert numbers == [17, -2.5e-07, 3]
    assert shape == cut("\0\5(abs((`a 1` - 9)) + item.x2 * 4 + f1('7', 1.5))")[0]


def test_joining() -> None:
    """Tests of rows that are kept, moved; forms that both have are one."""
    rows = ["abs(x - 1) < 3", "x * 2 > 5 AND x * 3 < 50", "abs(x - 5) <= 2", "x * 7 = 14"]
    parts: list[tuple[Residuals | None, Any]] = []
    for own in (rows, rows[:2]):
        _, tests = split(conjunction_table([normal_form(parse(text)) for text in own]))
        parts.append((tests, np.arange(len(own)) + 10 * len(parts)))
    parts[0][1][2] = -1
    joined = join([*parts, (None, np.arange(0))], 20)
    assert joined is not None and len(joined.names) == 3
    assert sorted(joined.row.tolist()) == [0, 1, 1, 3, 10, 11, 11]
    for form in range(len(joined.names)):
        own_rows = joined.row[joined.offsets[form] : joined.offsets[form + 1]]
        assert (np.diff(own_rows) > 0).all()
    first = joined.values_at(0, np.arange(2))
    assert [vector.integer.tolist() for vector in first.values()] == [[1, 1]]
    assert join([(parts[0][0], np.full(4, -1))], 0) is None


def test_a_name_that_may_be_tested_last() -> None:
    assert may_be_last(next(name for name, _ in table_of("abs(x - 1) < 3").attributes))
    assert not may_be_last("x")
