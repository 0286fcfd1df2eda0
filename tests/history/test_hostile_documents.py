"""Documents and events with long arrays, of which an index would have one entry, or be asked for one group, for each
combination; and snapshots of documents that nobody came to know, again and again."""

from __future__ import annotations

import tracemalloc
from random import Random
from typing import Any

import numpy as np
import pytest

import dibs
from dibs.coding.events import read_events
from dibs.history.coded.columns import DocumentSnapshot, Texts
from dibs.history.coded.indexes import IndexKey
from dibs.reference import matches
from dibs.tuning import using

NAMES = "abcde"
ALL = " AND ".join(f"d.{name} = {name}" for name in NAMES)
JOINS = [
    f"EXISTS d ({ALL})",
    "FORALL d (d.a <> a OR d.b <> b OR d.n < n)",
    f"(SELECT COUNT(*) FROM history d WHERE {ALL}) >= 2",
    f"(SELECT MAX(d.n) FROM history d WHERE {ALL}) >= 68",
    "(SELECT MIN(d.n) FROM history d WHERE d.a = a AND d.b = b) = 3",
]


def documents(size: int) -> list[dict[str, Any]]:
    """Enough for an index. Two of them have arrays of so many values, all of which begin at their number."""
    found: list[dict[str, Any]] = [{"n": n} | dict.fromkeys(NAMES, -n - 1) for n in range(70)]
    for n in (3, 68):
        found[n] = {"n": n} | {name: [*range(n, n + size)] for name in NAMES}
    return found


@pytest.mark.parametrize("size", [2, 3, 9, 40, 400, 5_000])
@pytest.mark.parametrize("entries", [1, 64])
def test_documents_with_several_long_arrays(size: int, entries: int) -> None:
    events = [dict.fromkeys(NAMES, value) for value in (2, 3, 4, 67 + size, 68, -1, -5)]
    events += [{name: [4, 69, 70_000] for name in NAMES}, dict.fromkeys(NAMES, 3) | {"e": -1}, {"a": 3, "b": 3}]
    with using({"history_entries": entries}), dibs.Matcher() as m, dibs.Matcher() as plain:
        for each in (m, plain):
            each.add_many(list(enumerate(JOINS)))
        plain.history.load(documents(size))
        m.history.load(documents(size))
        with using({"history_tail": 1_000}):  # no index at all
            right = [plain.match({**event, "n": 68}) for event in events]
        assert [m.match({**event, "n": 68}) for event in events] == right
        assert list(m.match_batch([{**event, "n": 68} for event in events])) == right
        assert len(set(map(tuple, right))) > 2


ASKED = [f"d.a {operator} a" for operator in ("=", "<>", "<", "<=", ">", ">=")] + [
    "d.at > at - INTERVAL 2 DAYS",
    "d.at <= at",
    f"d.a NOT IN (1, 7, 3, 2.5, {2**53 + 1})",
    "d.b IN (9, 3, 'w', 5)",
    "d.b = a AND d.a <> b",
]
ABOUT = [
    "EXISTS d (d.k = k AND {})",
    "FORALL d (d.k <> k OR {})",
    "(SELECT COUNT(*) FROM history d WHERE d.k = k AND {}) = 1",
]
COMPARED = [
    "a {} (SELECT MAX(d.a) FROM history d WHERE d.k = k)",
    "a {} (SELECT MAX_BY(d.b, d.n) FROM history d WHERE d.k = k)",
]


def _values(random: Random) -> list[Any]:
    base = random.randrange(50)

    def value() -> Any:
        n = random.randrange(base, base + 20)
        odd = [
            n + 0.5,
            random.random() < 0.5,
            2**53 + n % 3,
            f"w{n:07}",
            f"w{n:08}",
            f"{n}\u00fc",
            f"2024-02-{n % 30:02}",
        ]
        return random.choice([n, n, n, random.choice(odd), random.choice([*odd, float("nan"), float("-inf"), ""])])

    return [value() for _ in range(random.choice([0, 1, 1, 2, 3, 9, 40]))]


def _event(random: Random, number: int) -> dict[str, Any]:
    found = {"k": number % 16, "n": number} | {name: _values(random) for name in "ab"}
    found["at"] = [f"2024-02-{random.randrange(1, 30):02}" for _ in range(random.choice([0, 1, 2, 9]))]
    return found if random.random() < 0.8 else found | {"a": [*map(int, range(number % 7 + 1, 40, number % 5 + 1))] * 3}


def _with_ranges(random: Random, event: dict[str, Any]) -> dict[str, Any]:
    low = random.randrange(-3, 60)
    some = [
        dibs.Range(low, low + 5),
        dibs.Range(low - 1, low + 2),
        dibs.Range(low + 1, low + 9),
        dibs.Range("w0000050", None),
    ]
    return event | {"a": [*event["a"], *random.sample(some, random.randrange(1, 5))]}


@pytest.mark.parametrize("tail", [0, 1_000])
def test_values_of_any_number_and_kind(tail: int) -> None:
    """Those of a test are in order, each kind for itself, and none is within another: as when each is looked at."""
    random = Random(3)
    texts = [about.format(asked) for asked in ASKED for about in ABOUT]
    texts += [text.format(operator) for text in COMPARED for operator in ("=", "<>", "<", ">=")]
    documents = [_event(random, n) for n in range(30)]
    events = [_event(random, n) for n in range(30)]
    events = [_with_ranges(random, event) if n % 3 == 0 else event for n, event in enumerate(events)]
    events += [event | {"k": [*range(n, 81 + n)]} for n, event in enumerate(events[:4], 3)]
    trees = [dibs.parse(text) for text in texts]
    with using({"history_tail": tail}), dibs.Matcher() as m:
        m.add_many(list(enumerate(texts)))
        m.history.load(documents)
        found = list(m.match_batch(events))
    for event, ids in zip(events, found):
        expected = [i for i, tree in enumerate(trees) if matches(tree, event, documents)]
        assert ids == expected, (event, [texts[i] for i in set(ids) ^ set(expected)])
    assert len(set(map(tuple, found))) > 20
    assert {*range(len(texts))} == {id for ids in found for id in ids}


@pytest.mark.parametrize("size", [9_999, 10_000, 10_001, 30_000])
@pytest.mark.parametrize("asked", ["d.n + a = 19999", "coalesce(d.a, n) = 7"])
def test_long_arrays_that_are_computed_with(size: int, asked: str) -> None:
    """Of an event and of a document: as many combinations as the language says."""
    long = {"a": [*range(9_990, 9_990 + size - 1), 7], "n": 10_000}
    short = {"n": 10_000}
    event, document = (long, short) if "(a" in asked or " a " in asked else (short, long)
    text = f"EXISTS d ({asked})"
    with dibs.Matcher() as m:
        m.add(1, text)
        m.history.load([{"n": 1}, document, {"n": 2}])
        assert m.match(event) == [1] * matches(dibs.parse(text), event, [{"n": 1}, document, {"n": 2}])
        assert m.match(event) == [1] * (size <= 10_000)


def test_an_event_is_not_there_once_for_each_document() -> None:
    """Where values are computed of both, or joins within ask for both."""
    with using({"derived_at_once": 1 << 17}), dibs.Matcher() as m:
        m.add(1, "EXISTS d (abs(d.a - a) < 0.5)")
        m.add(2, "EXISTS d (d.b = 3 AND EXISTS e (e.b = d.b AND e.a = a + 1))")
        m.history.load([{"a": 2 * n, "b": n % 4} for n in range(300)])
        m.match({"a": 1, "b": 1})
        tracemalloc.start()
        try:
            assert m.match({"a": [2 * n + 1 for n in range(14_000)], "b": 3}) == []
            assert m.match({"a": [2 * n + 1 for n in range(2_000)], "b": 3}) == [2]
            assert tracemalloc.get_traced_memory()[1] < 100e6
        finally:
            tracemalloc.stop()


def test_events_that_ask_for_more_groups_than_numbers_tell() -> None:
    """2 ** 16 values of four attributes: 2 ** 64 combinations, which is 0 for a number of 64 bits."""
    with dibs.Matcher() as m:
        m.add("x", "EXISTS d (d.a = a AND d.b = b AND d.c = c AND d.d = d)")
        m.history.load([dict.fromkeys("abcd", n) for n in range(100)])
        assert m.match({name: [*range(99, 99 + 2**16)] for name in "abcd"}) == ["x"]
        assert m.match({name: [*range(100, 100 + 2**16)] for name in "abcd"}) == []


def offsets_of(texts: list[bytes]) -> tuple[Any, Any]:
    return np.cumsum([0, *map(len, texts)]), np.frombuffer(b"".join(texts), np.uint8).copy()


def test_snapshots_that_nobody_came_to_know_leave_texts_free_slots() -> None:
    """Without any, looking for a text that is not there would never end."""
    known, *_ = Texts.none().add(*offsets_of([b"x%d" % i for i in range(20)]))
    for turn in range(200):
        known.add(*offsets_of([b"%d-%d" % (turn, i) for i in range(20)]))
    last, _, tie = known.add(*offsets_of([b"y%d" % i for i in range(20)]))
    taken = (last.slots > 0) & (last.slots <= last.count)
    assert 2 * np.count_nonzero(taken) <= len(taken)
    assert tie.tolist() == [*range(20, 40)]
    assert last.find(*offsets_of([b"x3", b"z", b"y7"]))[1].tolist() == [3, -1, 27]
    assert last.copy().add(*offsets_of([b"x3", b"z"]))[2].tolist() == [3, 40]


def test_snapshots_that_nobody_came_to_know_leave_groups_free_slots() -> None:
    random, key = Random(1), IndexKey(("a",), 1)

    def more(snapshot: DocumentSnapshot, values: list[int]) -> DocumentSnapshot:
        rows = read_events([{"a": value} for value in values], ["a"])
        return snapshot.with_documents(rows, len(values)).with_indexes([key])

    with using({"history_tail": 2}):
        known = more(DocumentSnapshot().with_columns(["a"], iter(())), [*range(200)])
        known = more(known, [200, 201])
        for _ in range(100):
            more(known, [random.randint(1_000, 1 << 40) for _ in range(40)])
        last = more(known, [*range(300, 340)]).indexes[key]
    taken = (last.groups.slots > 0) & (last.groups.slots <= last.count)
    assert last.count == 242
    assert 2 * np.count_nonzero(taken) <= len(taken)
