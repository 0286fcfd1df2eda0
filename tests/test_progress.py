"""Loading tells how far it is, and whoever interrupts it finds nothing half added."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import dibs
from dibs.tuning import using

ROWS = 2_000
ITEMS = [(f"s{i}", f"x = {i} OR y < {i}") for i in range(ROWS)]
WAYS: dict[str, Callable[..., Any]] = {
    "add_table": lambda m, **given: m.add_table(
        pa.table({"id": [id for id, _ in ITEMS], "expression": [text for _, text in ITEMS]}), **given
    ),
    "add_many": lambda m, **given: m.add_many(ITEMS, **given),
    "of ids of both types": lambda m, **given: m.add_many([(1, "x = 1"), *ITEMS[1:]], **given),
    "a few": lambda m, **given: [m.add_many(ITEMS[i : i + 10], **given) for i in range(0, ROWS, 10)],
}


@pytest.mark.parametrize("way", WAYS)
def test_all_rows_are_told(way: str) -> None:
    told: list[int] = []
    with using({"texts_at_once": 100}), dibs.Matcher() as matcher:
        WAYS[way](matcher, progress=told.append)
        assert len(matcher) == ROWS
    assert sum(told) == ROWS and len(told) >= 20 and min(told) > 0


def test_rows_that_are_skipped_are_told_too() -> None:
    told: list[int] = []
    with dibs.Matcher() as matcher:
        matcher.add_many([*ITEMS, ("bad", "x <"), ("s1", "x = 1")], on_error="skip", progress=told.append)
        assert sum(told) == len(matcher) + 2 == ROWS + 2


class Stopped(Exception):
    pass


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("way", ["add_table", "add_many"])
def test_nothing_is_added_if_the_callback_raises(way: str, durable: bool, tmp_path: Path) -> None:
    matcher = dibs.Matcher.open(tmp_path / "m") if durable else dibs.Matcher()
    matcher.add("old", "x = 1")
    calls = wanted = 0

    def stop(rows: int) -> None:
        nonlocal calls
        calls += 1
        if calls == wanted:
            raise Stopped

    with using({"texts_at_once": 500}):
        while wanted < 10:
            calls, wanted = 0, wanted + 1
            try:
                WAYS[way](matcher, progress=stop)
            except Stopped:
                assert len(matcher) == 1 and matcher.match({"x": 1}) == ["old"]
                continue
            break
    assert wanted == calls + 1 > 4, "every call has been the last one, but for one that was not made"
    assert len(matcher) == ROWS + 1
    matcher.close()
    if durable:
        with dibs.Matcher.open(tmp_path / "m") as again:
            assert len(again) == ROWS + 1


@pytest.mark.parametrize("durable", [False, True])
def test_a_signal_leaves_all_or_nothing(durable: bool, tmp_path: Path) -> None:
    """At any time of the work, and not where it tells of itself."""
    seen = set()
    for k in range(20):
        folder = tmp_path / str(k)
        matcher = dibs.Matcher.open(folder) if durable else dibs.Matcher()
        old = signal.signal(signal.SIGALRM, signal.default_int_handler)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.0005 * 1.5**k)
            WAYS["add_table"](matcher)
            signal.setitimer(signal.ITIMER_REAL, 0)
        except KeyboardInterrupt:
            pass
        finally:
            signal.signal(signal.SIGALRM, old)
        seen.add(len(matcher))
        matcher.add("next", "x = 1")
        count = len(matcher)
        matcher.close()
        if durable:
            with dibs.Matcher.open(folder) as again:
                assert len(again) == count
    assert seen == {0, ROWS}, "some were interrupted, others not, and none in between"
