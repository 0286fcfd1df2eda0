"""The generators: what they promise about sizes, skew, matches and repeatability."""

from __future__ import annotations

import re

import numpy as np
import orjson
import pyarrow as pa
import pytest

import dibs
from dibs.papers.workloads import boolean
from dibs.reference import matches as reference_matches
from dibs.workloads import shop


def expected_pairs(workload: boolean.Workload) -> set[tuple[int, int]]:
    """(event, subscription) pairs by the definition of the arrays."""
    pairs = set()
    subscription = np.repeat(np.arange(workload.subscriptions), np.diff(workload.offsets))
    for event in range(workload.events):
        values = np.full(workload.shape.attributes, -1)
        values[workload.event_attribute[event]] = workload.event_value[event]
        found = values[workload.attribute]
        failed = subscription[(found < workload.low) | (found > workload.high)]
        pairs |= {(event, int(s)) for s in np.setdiff1d(np.arange(workload.subscriptions), failed)}
    return pairs


# ---- boolean ----


@pytest.mark.parametrize("name", boolean.SHAPES)
def test_shapes_keep_their_parameters(name: str) -> None:
    workload = boolean.make_named(name, 5_000, events=200)
    shape, size = workload.shape, np.diff(workload.offsets)
    assert workload.subscriptions == 5_000
    assert workload.events == 200
    assert size.min() == shape.smallest
    assert size.max() == shape.largest
    assert 0 <= workload.low.min()
    assert (workload.low <= workload.high).all()
    assert workload.high.max() < shape.cardinality
    subscription = np.repeat(np.arange(5_000), size)
    assert len(np.unique(subscription * shape.attributes + workload.attribute)) == len(workload.attribute)
    assert all(len(set(row)) == shape.event_size for row in workload.event_attribute.tolist())
    assert np.mean(workload.low == workload.high) == pytest.approx(shape.equality, abs=0.1)


@pytest.mark.parametrize("name", boolean.SHAPES)
def test_every_subscription_matches_its_event(name: str) -> None:
    workload = boolean.make_named(name, 300, events=50)
    pairs = expected_pairs(workload)
    assert {(s % 50, s) for s in range(300)} <= pairs


@pytest.mark.parametrize("name", boolean.SHAPES)
def test_matcher_finds_the_pairs_in_every_form(name: str) -> None:
    workload = boolean.make_named(name, 2_000, events=40)
    matcher = dibs.Matcher()
    matcher.add_table(workload.subscription_table())
    expected = expected_pairs(workload)

    def found(matches: dibs.Matches) -> set[tuple[int, int]]:
        pairs = matches.pairs()
        return set(zip(pairs["event"].to_pylist(), pairs["subscription"].to_pylist(), strict=True))

    assert found(matcher.match_batch(workload.event_batch(), attributes="attributes")) == expected
    assert found(matcher.match_batch(workload.event_dicts())) == expected
    if workload.shape.attributes <= 1_000:
        assert found(matcher.match_batch(workload.event_columns())) == expected


def test_texts_say_what_the_arrays_say() -> None:
    workload = boolean.make_named("ads", 3_000)
    top = workload.shape.cardinality - 1
    seen = set()
    for s, text in enumerate(workload.subscription_table()["expression"].to_pylist()):
        found = []
        for name, operator, value, high in re.findall(r"a(\d+) (=|<=|>=|BETWEEN) (\d+)(?: AND (\d+)\b)?", text):
            seen.add(operator)
            n = int(value)
            span = {"=": (n, n), "<=": (0, n), ">=": (n, top), "BETWEEN": (n, int(high or -1))}[operator]
            found.append((int(name), *span))
        part = slice(*workload.offsets[s : s + 2])
        columns = (workload.attribute[part], workload.low[part], workload.high[part])
        assert found == list(zip(*map(np.ndarray.tolist, columns), strict=True))
        if s < 20:
            assert workload.expression(s) == text
    assert seen == {"=", "<=", ">=", "BETWEEN"}


def test_zipf_prefers_the_first_attributes() -> None:
    used = np.bincount(boolean.make_named("zipf", 10, events=1_000).event_attribute.ravel(), minlength=1_000)
    assert used[0] > 900
    assert used[:10].sum() > 5 * used[500:510].sum()


def test_boolean_is_repeatable() -> None:
    first, again, other = (boolean.make_named("sparse", 1_000, events=100, seed=s) for s in (1, 1, 2))
    assert first.subscription_table().equals(again.subscription_table())
    assert first.event_batch().equals(again.event_batch())
    assert not first.subscription_table().equals(other.subscription_table())


def test_many_texts_come_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    workload = boolean.make_named("retail", 2_500)
    whole = workload.subscription_table()["expression"].to_pylist()
    sizes = []
    parts: list[str] = []
    for batch in workload.subscription_batches(rows=1_000):
        sizes.append(len(batch))
        parts += batch.column("expression").to_pylist()
    assert sizes == [1_000, 1_000, 500]
    assert parts == whole
    monkeypatch.setattr(boolean, "TEXTS_AT_ONCE", 999)
    reports: list[tuple[int, int]] = []
    workload.subscription_table(lambda done, total: reports.append((done, total)))
    assert reports[-1] == (2_500, 2_500)


def test_boolean_refuses_what_makes_no_sense() -> None:
    with pytest.raises(ValueError, match="no workload is called 'spares'; there are: sparse, dense"):
        boolean.make_named("spares", 10)
    with pytest.raises(ValueError, match="event_size <= attributes"):
        boolean.Shape(attributes=10, event_size=20)
    with pytest.raises(ValueError, match="an event"):
        boolean.make_named("dense", 10, events=0)
    assert boolean.make_named("dense", 0).subscription_table().num_rows == 0


# ---- shop ----


@pytest.fixture(scope="module")
def small_shop() -> shop.Shop:
    return shop.generate(10_000, 2_000, weights=True)


def test_attributes_are_skewed_as_in_a_real_catalogue(small_shop: shop.Shop) -> None:
    frequency = small_shop.frequency
    assert 1_900 <= len(frequency) <= 2_200
    assert frequency["brand"] / shop.SMALLEST_CATALOGUE == pytest.approx(0.31, abs=0.01)
    assert frequency["country_of_manufacture"] / shop.SMALLEST_CATALOGUE == pytest.approx(0.17, abs=0.01)
    counts = list(frequency.values())
    assert counts == sorted(counts, reverse=True)
    assert np.median(counts) < 0.002 * shop.SMALLEST_CATALOGUE, "half of the attributes are rare"


def test_a_subscriptions_first_attribute_follows_the_logarithm_of_its_frequency(small_shop: shop.Shop) -> None:
    logarithm = {name: np.log(count) * (0.1 if name == "title" else 1) for name, count in small_shop.frequency.items()}
    # Subscriptions of one predicate have nothing but their first attribute.
    texts = shop.generate(60_000, 0).subscriptions["expression"].to_pylist()
    one = re.compile(r"(?:NOT |CONTAINS\()?(\w+)(?: BETWEEN \S+ AND \S+)?(?:(?! AND | OR ).)*")
    names = [alone[1] for alone in map(one.fullmatch, texts) if alone]
    assert len(names) > 5_000
    common = set(list(logarithm)[:100])
    expected = sum(logarithm[name] for name in common) / sum(logarithm.values())
    assert np.mean([name in common for name in names]) == pytest.approx(expected, rel=0.1)


def test_all_expressions_are_accepted_and_all_operators_occur(small_shop: shop.Shop) -> None:
    texts = small_shop.subscriptions["expression"].to_pylist()
    assert [text for text in texts[:3_000] if dibs.validate(text)] == []
    for operator in (
        " = ",
        " <> ",
        " IN (",
        " NOT IN (",
        " LIKE '",
        "%'",
        " <= ",
        " >= ",
        " BETWEEN ",
        " OR ",
        "NOT (",
    ):
        assert sum(operator in text for text in texts) > 20, operator
    assert any(text.startswith("NOT ") for text in texts)
    assert any("CONTAINS(title, " in text for text in texts)
    assert any("\\'" in text for text in texts), "a quote inside a value"


def test_events_are_products_with_typed_attributes(small_shop: shop.Shop) -> None:
    assert small_shop.events.schema == pa.schema([("id", pa.int64()), ("attributes", pa.string())])
    assert len(set(small_shop.events["id"].to_pylist())) == 2_000
    products = [orjson.loads(text) for text in small_shop.events["attributes"].to_pylist()]
    sizes = [len(product) for product in products]
    assert min(sizes) == 3
    assert max(sizes) > 15
    for product in products:
        assert isinstance(product["price"], float)
        assert product["title"].startswith(product.get("brand", ""))
    assert any(isinstance(product.get("features"), list) for product in products)
    kinds = {type(value) for product in products for value in product.values()}
    assert kinds == {str, float, int, bool, list}


def test_a_shop_is_repeatable_and_grows_at_its_end(small_shop: shop.Shop) -> None:
    again = shop.generate(10_000, 2_000, weights=True)
    assert again.subscriptions.equals(small_shop.subscriptions)
    assert again.events.equals(small_shop.events)
    larger = shop.generate(25_000, 3_000)
    assert larger.subscriptions.slice(0, 10_000).equals(small_shop.subscriptions.select(["id", "expression"]))
    assert larger.events.slice(0, 2_000).equals(small_shop.events)
    other = shop.generate(10, 10, seed=2)
    assert not other.subscriptions.equals(small_shop.subscriptions.slice(0, 10).select(["id", "expression"]))


def test_matches_happen_and_are_right(small_shop: shop.Shop) -> None:
    matcher = dibs.Matcher()
    matcher.add_table(small_shop.subscriptions)
    events = small_shop.events.slice(0, 60)
    matches = matcher.match_batch(events, attributes="attributes")
    assert 0.5 < matches.count / 60 < 0.01 * 10_000
    ids = small_shop.subscriptions["id"].to_pylist()[:300]
    parsed = [dibs.parse(text) for text in small_shop.subscriptions["expression"].to_pylist()[:300]]
    for found, text in zip(matches, events["attributes"].to_pylist(), strict=True):
        product = orjson.loads(text)
        expected = {id for id, expression in zip(ids, parsed, strict=True) if reference_matches(expression, product)}
        assert expected == set(found) & set(ids)


def test_some_events_can_be_malformed(small_shop: shop.Shop) -> None:
    broken = shop.generate(0, 2_000, malformed=0.1).events["attributes"].to_pylist()
    whole = small_shop.events["attributes"].to_pylist()
    changed = [(a, b) for a, b in zip(broken, whole, strict=True) if a != b]
    assert 100 < len(changed) < 300
    assert all(whole_text.startswith(half) for half, whole_text in changed)
    for half, _ in changed:
        with pytest.raises(orjson.JSONDecodeError):
            orjson.loads(half)


def test_shop_reports_progress_and_refuses_nonsense() -> None:
    reports: list[tuple[int, int]] = []
    shop.generate(50_000, 10, progress=lambda done, total: reports.append((done, total)))
    assert reports == [(20_000, 50_000), (40_000, 50_000), (50_000, 50_000)]
    with pytest.raises(ValueError, match="-1 subscriptions"):
        shop.generate(-1)
    with pytest.raises(ValueError, match="share from 0 to 1, not 2"):
        shop.generate(1, 1, malformed=2)
