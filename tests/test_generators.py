"""The papers' generators: the same seed gives the same rows, blocks are independent, and what a parameter promises is
measured on the rows."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

import dibs
from dibs.errors import DibsError
from dibs.papers.workloads import blocks
from dibs.papers.workloads.begen import BEGen, Drift, between_uniform_and_zipf, of_selectivity, reverse
from dibs.papers.workloads.blocks import Blocks
from dibs.papers.workloads.draws import draw_distinct, sum_weights
from dibs.papers.workloads.generators import GENERATORS
from dibs.papers.workloads.independent import Independent, NormalForms
from dibs.papers.workloads.intervals import Intervals, Profiles, find_width, measure_overlap
from dibs.papers.workloads.products import LARGEST, Ads, Products
from dibs.papers.workloads.words import ARTICLE, TWEET, Keywords, Prefixes, QGrams, make_vocabulary, split_words

OPERATORS = re.compile(r"(<>|<=|>=|=|<|>|BETWEEN|NOT IN|IN|STARTSWITH)")


def texts(workload: Blocks) -> list[str]:
    return workload.subscription_table()["expression"].to_pylist()


def count_operators(workload: Blocks) -> Counter[str]:
    return Counter(OPERATORS.findall(" ".join(texts(workload))))


def sizes(workload: Blocks) -> list[int]:
    """Predicates of each conjunction."""
    return [text.count(" AND ") + 1 - text.count(" BETWEEN ") for text in texts(workload)]


def events(workload: Blocks | Drift) -> list[dict]:
    return [dict(pairs) for pairs in workload.event_batch()["attributes"].to_pylist()]


def match_share(workload: Blocks) -> float:
    matcher = dibs.Matcher()
    matcher.add_table(workload.subscription_table())
    return matcher.match_batch(workload.event_batch(), attributes="attributes").count / len(matcher) / workload.events


def count_attributes(workload: Blocks) -> Counter[str]:
    return Counter(name for event in events(workload) for name in event)


# ---- all of them ----


@pytest.mark.parametrize("name", GENERATORS)
def test_the_same_seed_gives_the_same_rows_and_another_seed_others(name, monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK", 50)
    make = GENERATORS[name]
    first, again, other = (make(subscriptions=120, events=60, seed=seed) for seed in (3, 3, 4))
    assert first.subscription_table().equals(again.subscription_table())
    assert first.event_batch().equals(again.event_batch())
    assert not first.subscription_table().equals(other.subscription_table())
    assert not first.event_batch().equals(other.event_batch())
    # A block does not depend on those before it, nor on how many come after it.
    assert first.subscription_block(1).equals(replace(first, subscriptions=1_000).subscription_block(1))
    assert first.subscription_table()["id"].to_pylist() == list(range(120))
    assert [len(batch) for batch in first.event_batches()] == [50, 10]
    assert not first.subscription_block(0)["expression"].equals(first.subscription_block(1)["expression"])


@pytest.mark.parametrize("name", GENERATORS)
def test_expressions_are_valid_and_none_may_be_wanted(name):
    workload = GENERATORS[name](subscriptions=200, events=5)
    assert all(dibs.validate(text) == [] for text in texts(workload))
    assert replace(workload, subscriptions=0).subscription_table().num_rows == 0
    for bad in {"subscriptions": -1}, {"events": 0}, {"seed": -1}:
        with pytest.raises(DibsError, match="a workload needs"):
            replace(workload, **bad)


@pytest.mark.parametrize("name", GENERATORS)
def test_no_conjunction_and_no_event_has_an_attribute_twice(name):
    workload = GENERATORS[name](subscriptions=300, events=20)
    for text in texts(workload) if name != "normal-forms" else ():
        names = re.findall(r"\b((?:a|n|s)\d+|kw_[a-z]+|q_[a-z]{2})\b", text)
        assert len(names) == len(set(names)) > 0, text
    for attributes in workload.event_batch()["attributes"].to_pylist():
        names = re.findall(r'"(\w+)":', attributes) if isinstance(attributes, str) else [key for key, _ in attributes]
        assert len(names) == len(set(names)) > 0


def test_weighted_draws_without_replacement_follow_their_weights():
    """Against the probabilities of all ordered pairs of four things."""
    weights = np.diff(sum_weights(4, 1.0), prepend=0)
    drawn = draw_distinct(np.random.default_rng(1), sum_weights(4, 1.0), 200_000, 2)
    found = Counter(map(tuple, drawn.tolist()))
    for a, b in combinations(range(4), 2):
        for first, second in ((a, b), (b, a)):
            expected = weights[first] * weights[second] / (1 - weights[first])
            assert found[first, second] / 200_000 == pytest.approx(expected, rel=0.05)
    assert (np.sort(draw_distinct(np.random.default_rng(1), sum_weights(30, 5.0), 50, 30)) == np.arange(30)).all()


# ---- BEGen ----


@pytest.mark.parametrize("p", [0.001, 0.01, 0.09])
@pytest.mark.parametrize("operators", ["min", "low", "med", "high"])
def test_begen_matches_as_often_as_it_is_told(p, operators):
    workload = BEGen(5_000, 1_000, operators=operators, match_probability=p)
    assert match_share(workload) == pytest.approx(p, rel=0.02, abs=0.0001)


def test_begen_has_the_operators_sizes_and_ranges_it_is_told():
    classes = {"min": {"="}, "low": {"=", "IN"}, "med": {"=", "IN", "<", "<=", ">", ">=", "BETWEEN"}}
    classes["high"] = classes["med"] | {"<>", "NOT IN"}
    for operators, expected in classes.items():
        workload = BEGen(5_000, 100, operators=operators, equality=0.3)
        found = count_operators(workload)
        assert set(found) == expected
        if operators != "min":
            assert found["="] / found.total() == pytest.approx(0.3, abs=0.01)
        assert np.mean(sizes(workload)) == pytest.approx(7, abs=0.1)
        assert all(len(event) == 15 for event in events(workload))
    bounds = re.findall(r"BETWEEN (\d+) AND (\d+)", " ".join(texts(BEGen(5_000, cardinality=1_000))))
    widths = [(int(high) - int(low) + 1) / 1_000 for low, high in bounds]
    assert np.mean(widths) == pytest.approx(0.12, rel=0.1)
    members = re.findall(r"IN \(([^)]*)\)", " ".join(texts(BEGen(5_000))))
    assert {len(set(own.split(", "))) for own in members} == {2, 3, 4, 5, 6}


def test_begen_skews_attributes_and_values():
    even, skewed = (
        BEGen(10, 5_000, match_probability=None),
        BEGen(10, 5_000, match_probability=None, attribute_skew=1.0),
    )
    flat, steep = count_attributes(even), count_attributes(skewed)
    assert max(flat.values()) < 1.5 * 5_000 * 15 / 400
    assert steep["a0"] / 5_000 > 0.9 > 0.3 > steep["a100"] / 5_000
    values = Counter(v for event in events(replace(even, value_skew=1.0)) for v in event.values())
    assert values[0] / values[9] == pytest.approx(10, rel=0.15)
    own = Counter(v for event in events(even) for v in event.values())
    assert own[0] / own[9] == pytest.approx(1, abs=0.15)


@pytest.mark.parametrize("selectivity", [0.5, 0.8, 0.9])
def test_begen_dimensions_are_as_selective_as_they_are_told(selectivity):
    cardinality = of_selectivity(selectivity)
    workload = BEGen(10, 3_000, cardinality=cardinality, operators="min", match_probability=None)
    values = Counter(v for event in events(workload) for v in event.values())
    assert values[0] / values.total() == pytest.approx(1 - selectivity, rel=0.05)


def test_begen_refuses_what_makes_no_sense():
    for bad in (
        {"operators": "most"},
        {"cardinality": 1},
        {"subscription_size": 20},
        {"match_probability": 0},
        {"equality": 2},
    ):
        with pytest.raises(DibsError, match="a workload needs"):
            BEGen(**bad)
    with pytest.raises(DibsError, match="a selectivity between 0 and 1, not 1"):
        of_selectivity(1)


# ---- OpIndex ----


def test_table_3():
    workload = Independent(5_000, 500)
    found = count_operators(workload)
    assert [found[op] / found.total() for op in ("=", "<=", ">=")] == pytest.approx([0.4, 0.3, 0.3], abs=0.02)
    assert Counter(sizes(workload)).keys() == {1, 2, 3, 4}
    assert np.mean(sizes(workload)) == pytest.approx(2.5, abs=0.05)
    assert {len(event) for event in events(workload)} == set(range(1, 21))
    steep = count_attributes(Independent(10, 2_000, skew=1.0))
    assert steep["a0"] > 5 * steep["a20"] > 0


def test_normal_forms():
    for form, outer, inner in (("cnf", " AND ", " OR "), ("dnf", " OR ", " AND ")):
        workload = NormalForms(2_000, 100, form=form, dimensions=100)
        parts = [text.strip("()").split(f"){outer}(") for text in texts(workload)]
        assert {len(own) for own in parts} == {1, 2, 3, 4, 5}
        assert {part.count(inner) + 1 for own in parts for part in own} == {1, 2, 3, 4}
        assert match_share(workload) > 0


@pytest.mark.parametrize("length", [TWEET, ARTICLE])
def test_keywords_and_documents(length):
    for operator in ("=", "interval"):
        workload = Keywords(3_000, 500, operator=operator, document_size=length)
        assert np.mean(sizes(workload)) == pytest.approx(2.4, abs=0.1)
        assert np.mean([len(event) for event in events(workload)]) == pytest.approx(length, rel=0.03)
        assert set(count_operators(workload)) == {"=" if operator == "=" else "BETWEEN"}
        assert match_share(workload) > 0
    counts = count_attributes(Keywords(1, 2_000, document_size=length))
    words = make_vocabulary(50_000)
    assert counts[f"kw_{words[0]}"] > 2 * counts[f"kw_{words[30]}"] > 0
    asked = set(re.findall(r"kw_(\w+)", " ".join(texts(Keywords(3_000)))))
    assert asked.isdisjoint(words[:50]) and words[50] in asked


def test_split_keywords():
    """The dimensions and sizes of PS-Tree's query log (section 7.3): all that three letters make."""
    workload = Keywords(4_000, 400, operator="split", document_size=93.07)
    assert workload.space == 26**3 == len(split_words()[0])
    assert np.mean(sizes(workload)) == pytest.approx(2.78, abs=0.05)
    assert np.mean([len(event) for event in events(workload)]) == pytest.approx(93.07, rel=0.05)
    named = {name for event in events(workload) for name in event}
    assert {"kw_exc", "kw_fun"} <= named and all(re.fullmatch("kw_[a-z]{3}", name) for name in named)
    assert len(named) > 5_000 and match_share(workload) > 0


def test_a_vocabulary_begins_with_the_words_of_the_text():
    words = make_vocabulary(50_000)
    assert len(set(words)) == 50_000
    assert words[0] == "the" and "object" in words[:50]
    assert words[:100] == make_vocabulary(10_000)[:100]


def test_products():
    workload = Products(2_000, 3_000)
    counts = count_attributes(workload)
    assert counts["a0"] / 3_000 == pytest.approx(0.31, abs=0.03)
    assert counts["a1"] / 3_000 == pytest.approx(0.17, abs=0.03)
    asked = Counter(int(a) for a in re.findall(r"a(\d+)", " ".join(texts(Products(20_000)))))
    head, tail = sum(asked[k] for k in range(100)), sum(asked[k] for k in range(10_104, 10_204))
    assert head / tail == pytest.approx(
        np.log(0.31 * 296_846 / 40**0.87) / np.log(0.31 * 296_846 / 10_154**0.87), rel=0.3
    )
    assert set(count_operators(workload)) == {"="}
    assert set(count_operators(Products(100, operator="set"))) == {"IN"}
    assert match_share(workload) > 0


def test_prefixes():
    for share in (0.0, 0.3, 1.0):
        found = count_operators(Prefixes(3_000, prefixes=share))
        assert found["STARTSWITH"] / found.total() == pytest.approx(share, abs=0.02)
    assert {len(p) for p in re.findall(r"'(\w+)'", " ".join(texts(Prefixes(500, prefixes=1.0, length=2))))} == {2}
    shares = [match_share(Prefixes(3_000, 200, prefixes=1.0, length=length)) for length in (1, 3)]
    assert shares[0] > shares[1] > 0


# ---- the others ----


def test_titles_and_authors():
    for source, size in (("author", 8), ("title", 35)):
        workload = QGrams(2_000, 200, source=source)
        assert np.mean(sizes(workload)) == pytest.approx(size, rel=0.1)
        names = {name for event in events(workload) for name in event}
        assert len(names) <= 676 and all(re.fullmatch("q_[a-z]{2}", name) for name in names)
        assert match_share(QGrams(2_000, 200, source=source, match_probability=0.01)) == pytest.approx(0.01, abs=0.003)


def test_ads():
    workload = Ads(30_000, 200, sessions=200)
    own = sizes(workload)
    assert min(own) == 1 and 40 < max(own) <= LARGEST
    assert np.mean(own) == pytest.approx(8, abs=0.2)
    assert all(len(event) == 20 for event in events(workload))
    names = set(re.findall(r"a(\d+)", " ".join(texts(workload))))
    assert names == {str(k) for k in range(122)}
    # Every subscription that is not too long matches the session that it was made from.
    assert match_share(workload) >= np.mean(np.array(own) <= 20) / 200


def test_profiles_overlap_as_they_are_told():
    starts = Profiles().draw_starts(np.random.default_rng(1), 1_000)
    assert 0.01 <= measure_overlap(starts, 10) <= 0.2
    for wanted in (0.1, 0.5, 0.98):
        assert measure_overlap(starts, find_width(starts, wanted)) == pytest.approx(wanted, abs=0.02)
    far = Profiles(skew=0.2).draw_starts(np.random.default_rng(1), 1_000)
    assert measure_overlap(starts, 10) > 2 * measure_overlap(far, 10)
    assert match_share(Profiles(500, 500, width=200)) > match_share(Profiles(500, 500)) > 0


def test_intervals_hold_a_point_as_often_as_they_are_told():
    assert match_share(Intervals(5_000, 1_000, width=0.01)) == pytest.approx(0.01, rel=0.05)


def test_a_drift_goes_there_and_back():
    drift = between_uniform_and_zipf(1_000, 100, steps=4)
    alive: set[int] = set()
    shares = []
    for step in drift.list_steps():
        assert alive.issuperset(step.gone.tolist()) and alive.isdisjoint(step.come.tolist())
        alive = alive - set(step.gone.tolist()) | set(step.come.tolist())
        assert len(alive) == 1_000
        assert step.share == pytest.approx(np.mean([id >= 1_000 for id in alive]))
        shares.append(step.share)
    assert shares == pytest.approx([0, 0.25, 0.5, 0.75, 1, 0.75, 0.5, 0.25, 0])
    assert drift.subscription_table()["id"].to_pylist() == list(range(2_000))
    halves = events(drift)
    assert len(halves) == 100
    assert sum("a0" in event for event in halves[50:]) > 40 > 10 > sum("a0" in event for event in halves[:50])
    assert reverse(drift).first.attribute_skew == 1.0
