"""Conditions as people write them, in every lane. (On Spark: spark/test_conditions_spark.py.)"""

from __future__ import annotations

from conditions import EVENTS, HOLDS, SCHEMA
from lanes import check_lanes, check_without_kernels

NEVER_UNKNOWN = ("<=>", "DISTINCT", " IS ", "isnull", "coalesce(price > 10, FALSE)", "is_present")


def test_the_table() -> None:
    assert len(HOLDS) >= 140
    for text, (yes, no) in HOLDS.items():
        unknown = set(EVENTS) - set(yes.split()) - set(no.split())
        is_two_valued = any(words in text for words in NEVER_UNKNOWN)
        assert yes and no and bool(unknown) is not is_two_valued, text


def test_without_kernels() -> None:
    for text in HOLDS:
        check_without_kernels(text, HOLDS, EVENTS)


def test_every_lane() -> None:
    check_lanes(HOLDS, EVENTS, SCHEMA)
