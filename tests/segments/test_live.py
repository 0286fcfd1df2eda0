"""Indexes that take rows in place: after adds, removes and replaces a matcher answers as a scan does."""

from __future__ import annotations

import random
import threading

import numpy as np
import pytest

import dibs
from dibs.coding.clauses import code_clauses
from dibs.coding.merge import merge_domains
from dibs.index import INDEXES, takes
from dibs.language.flatten import conjunction_table
from dibs.language.normal_form import normal_form
from dibs.language.sql import parse
from dibs.segments.labels import STRINGS, UNREADABLE, carried, fresh

DYNAMIC = [name for name in INDEXES if (part := takes(name)) and part.updates]


def expression(rng: random.Random) -> str:
    a, b = rng.choice("abcd"), rng.choice("abcd")
    x, y = sorted((rng.randint(-30, 30) / 4, rng.randint(-30, 30) / 4))
    word = "".join(rng.choice("xyz") for _ in range(rng.randint(1, 4)))
    return rng.choice(
        [
            f"{a} = {x} AND {b} > {y}",
            f"{a} BETWEEN {x} AND {y}",
            f"{a} <> {x} AND {b} <= {y} AND {a} > {x - 2}",
            f"{a} IN ({x}, {y}, {x + 1}) AND {b} NOT IN ({y}, 3)",
            f"{a} LIKE '{word}%' AND {b} >= {x}",
            f"{a} = '{word}' AND {b} < '{word[::-1]}'",
            f"{a} LIKE '%{word}%' OR {b} = {x}",
            f"NOT ({a} LIKE '%{word}%{word[0]}%') AND {b} < {y}",
            f"({a} = {x} OR {b} = '{word}') AND {b} IS NOT NULL",
            f"{a} IS NULL AND {b} <= {y}",
            f"{a} > DATE '2024-01-{rng.randint(1, 28):02}' AND {b} <> {x}",
            f"{a} = TRUE AND {b} >= {x}",
        ]
    )


def event(rng: random.Random) -> dict[str, object]:
    def value() -> object:
        kind = rng.random()
        if kind < 0.5:
            return rng.randint(-40, 40) / 4
        if kind < 0.75:
            return "".join(rng.choice("xyz") for _ in range(rng.randint(1, 5)))
        if kind < 0.8:
            return rng.random() < 0.5
        if kind < 0.9:
            return [rng.randint(-30, 30) / 4 for _ in range(rng.randint(0, 3))]
        low = rng.randint(-30, 30) / 4
        return dibs.Range(low, low + rng.randint(0, 20) / 4)

    return {name: value() for name in "abcd" if rng.random() < 0.7}


@pytest.mark.parametrize("name", DYNAMIC)
@pytest.mark.parametrize("seed", range(3))
def test_a_life_of_changes(name, seed):
    rng = random.Random(seed)
    live, scan = dibs.Matcher(index=name, threads=1), dibs.Matcher(index="scan", threads=1)
    ids: list[object] = []
    for step in range(60):
        kind = rng.random()
        if kind < 0.5:
            new = [(rng.randint(0, 10**9) if rng.random() < 0.7 else f"s{step}-{i}", expression(rng)) for i in range(8)]
            for m in (live, scan):
                m.add_many(new)
            ids += [i for i, _ in new]
        elif kind < 0.7 and ids:
            gone = ids.pop(rng.randrange(len(ids)))
            for m in (live, scan):
                m.remove(gone)
        elif kind < 0.8 and ids:
            text = expression(rng)
            for m in (live, scan):
                m.replace(ids[-1], text)
        elif kind < 0.83:
            live.compact()
        events = [event(rng) for _ in range(4)]
        assert list(live.match_batch(events)) == list(scan.match_batch(events))
    assert live.count(events).tolist() == scan.count(events).tolist()
    assert [live.match(e, top=3) for e in events] == [scan.match(e, top=3) for e in events]
    plans = live.stats()["plans"]
    assert sum(p["inserted in place"] for p in plans) > 0
    assert "inserted in place" in live.explain_plan()


@pytest.mark.parametrize("name", DYNAMIC)
def test_saved_and_loaded(name, tmp_path):
    rng = random.Random(7)
    live = dibs.Matcher(index=name)
    for i in range(60):
        live.add(i, expression(rng))
        if i % 5 == 0:
            live.match(event(rng))
        if i % 7 == 3:
            live.remove(i - 3)
    events = [event(rng) for _ in range(40)]
    live.save(tmp_path / "saved")
    assert list(dibs.Matcher.load(tmp_path / "saved").match_batch(events)) == list(live.match_batch(events))


@pytest.mark.parametrize("name", DYNAMIC[:1])
def test_a_gap_that_is_used_up(name):
    """Constants that halve one gap again and again need new labels after some thirty."""
    live, scan = dibs.Matcher(index=name), dibs.Matcher(index="scan")
    low, high = 0.0, 1.0
    for i in range(45):
        low, high = (low, (low + high) / 2) if i % 2 else ((low + high) / 2, high)
        for m in (live, scan):
            m.add(i, f"a >= {low} AND a < {high}")
        assert live.match({"a": low}) == scan.match({"a": low})
    at = (low + high) / 2
    assert live.match({"a": at}) == scan.match({"a": at}) == list(range(45))


def domains(*texts):
    return code_clauses(conjunction_table([normal_form(parse(t)) for t in texts]))[0]


def test_labels_keep_their_meaning():
    old = domains("a = 5 AND b = 'x'", "a > 9")
    labels = fresh(old)
    new, moves = merge_domains([old, domains("a < 7", "a = 6 AND c = 1", "b = 'w'", "a = 12")])
    more = carried(labels, old, moves[0], new)
    assert new.number_value.tolist() == [5, 6, 7, 9, 12, 1]
    assert np.all(np.diff(more.number[:5]) >= 2)
    assert more.number[[0, 3]].tolist() == labels.number.tolist()
    assert more.string[1] == labels.string[0] and STRINGS < more.string[0] < more.string[1] - 1
    assert (more.first <= more.last).all() and more.last.max() == UNREADABLE


def test_constants_that_only_grow_do_not_use_up_their_room():
    parts = domains("a = 0")
    labels = fresh(parts)
    for i in range(1, 300):
        merged, moves = merge_domains([parts, domains(f"a = {i}")])
        labels, parts = carried(labels, parts, moves[0], merged), merged
        assert labels is not None
    assert np.diff(labels.number).min() >= 2


@pytest.mark.parametrize("name", DYNAMIC[:1])
def test_readers_and_writers_at_once(name):
    matcher = dibs.Matcher(index=name, threads=1)
    matcher.add_many([(i, f"a >= {i}") for i in range(50)])
    stop, problems = threading.Event(), []

    def read() -> None:
        while not stop.is_set():
            try:
                found = matcher.match({"a": 49})
                assert found[:50] == list(range(50)), "what is never removed is always there"
            except BaseException as e:
                problems.append(e)
                return

    threads = [threading.Thread(target=read) for _ in range(3)]
    for t in threads:
        t.start()
    for i in range(1000, 1150):
        matcher.add(i, f"a <> {i}")
        if i % 3 == 0:
            matcher.remove(i)
        if i % 4 == 0:
            matcher.replace(7, f"a >= {7 + i % 2}")
    stop.set()
    for t in threads:
        t.join()
    assert not problems
