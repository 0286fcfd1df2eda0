"""A short form of exactness.py: every index, every way to make a matcher and every entry, against each judge."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from hypothesis import settings

import entries
import exactness
from dibs.index import INDEXES
from dibs.matcher import Matcher
from settings import THRESHOLDS

NAMES = list(INDEXES)
PAIRS = 60 * settings.default.max_examples


def check(judge: str, pairs: int, **options: Any) -> exactness.Summary:
    *_, summary = exactness.run(judge, pairs, **options)
    assert not summary.wrong, summary.wrong[0]
    assert summary.pairs >= pairs and summary.matches > 0.02 * pairs
    return summary


@pytest.mark.parametrize("thresholds", THRESHOLDS)
@pytest.mark.parametrize("indexes", [NAMES[::3], NAMES[1::3], NAMES[2::3]], ids=",".join)
def test_by_the_reference(indexes: list[str], thresholds: str) -> None:
    check("reference", PAIRS, indexes=indexes, thresholds=thresholds, size=45, seed=11)


# Outside judges add their own opinion of each pair, which is the same for every index: each index is asked once.
@pytest.mark.parametrize(("thresholds", "first"), zip(THRESHOLDS, range(3)))
def test_by_duckdb(thresholds: str, first: int) -> None:
    check("duckdb", PAIRS, indexes=NAMES[first::3], thresholds=thresholds, size=50, seed=12)


@pytest.mark.spark
@pytest.mark.parametrize(("thresholds", "first"), [("smallest", 0), ("random", 1)])
def test_by_spark(spark: Any, thresholds: str, first: int) -> None:
    check("spark", PAIRS, indexes=NAMES[first::2], thresholds=thresholds, size=50, seed=13, spark=spark)


def test_what_is_wrong_is_found_and_made_small(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    """An entry that forgets one subscription."""

    def forgetful(matcher: Matcher, batch: Any) -> entries.Answer:
        found = entries.one_by_one(matcher, batch)
        return [[id for id in ids if " IS NOT NULL" not in matcher.expression(id)] for ids in found]

    monkeypatch.setitem(entries.ASKINGS, "forgetful", forgetful)
    monkeypatch.setattr(
        sys, "argv", ["exactness.py", "--pairs", "1000", "--indexes", "scan", "--thresholds", "default"]
    )
    assert exactness.main() == 1
    told = capsys.readouterr().out
    assert "WRONG: index scan, matcher " in told and "entry forgetful, thresholds default, seed " in told
    assert "subscriptions (1):" in told and "events (1):" in told and "matches: True, was told: False" in told
    assert "1 wrong" in told


def test_an_error_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(entries.ASKINGS, "broken", lambda matcher, batch: 1 / 0)
    (summary,) = exactness.run("reference", 100, indexes=["scan"], size=10)
    (wrong,) = summary.wrong
    assert "entry broken" in wrong and "ZeroDivisionError" in wrong


@pytest.mark.parametrize("wrong", [["--indexes", "auto,best"], ["--pairs", "0"]])
def test_options_that_cannot_be(wrong: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["exactness.py", *wrong])
    with pytest.raises(SystemExit):
        exactness.main()
