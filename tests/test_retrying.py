"""When a webhook is tried again."""

from __future__ import annotations

import random

import pytest

from dibs.retrying import Retries, read_retry_after


def test_pauses_grow_to_the_longest_and_a_random_half_is_left_out() -> None:
    retries, chance = Retries(first=1.0, longest=60.0), random.Random(1)
    for failures, whole in ((1, 1.0), (2, 2.0), (6, 32.0), (7, 60.0), (1_000, 60.0)):
        waits = [retries.wait(failures, None, chance) for _ in range(200)]
        assert whole / 2 <= min(waits) < 0.55 * whole and 0.95 * whole < max(waits) <= whole


@pytest.mark.parametrize(("asked", "least"), [(5.0, 5.0), (0.0, 0.5), (1e8, 60.0)])
def test_a_receiver_may_ask_for_more(asked: float, least: float) -> None:
    wait = Retries(first=1.0, longest=60.0).wait(1, asked, random.Random(1))
    assert least <= wait <= max(least, 1.0)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [(None, None), ("", None), ("12", 12.0), ("-1", None), ("Fri, 31 Dec 1999", None), ("²", None), ("9" * 9, None)],
)
def test_what_a_receiver_asks_for(header: str | None, seconds: float | None) -> None:
    assert read_retry_after(header) == seconds
