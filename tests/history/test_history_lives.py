"""Lives of histories: documents come and go in any way and order, and joins say at every step what the obvious
evaluator says of the documents that a plain list has left. So do they in a durable matcher, opened again and again, and
in one that follows it."""

from __future__ import annotations

import datetime as dt
import tempfile
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dibs
from dibs.reference import matches
from dibs.storage.check import check_folder
from dibs.tuning import using
from settings import THRESHOLDS

NOON = dt.datetime(2024, 1, 1, 12)
MINUTE = dt.timedelta(minutes=1)
TEXTS = [
    "EXISTS d (d.n = n)",
    "EXISTS d (d.n > n AND d.m = m)",
    "FORALL d (d.n <> n OR d.m <> m)",
    *(f"(SELECT COUNT(*) FROM history d WHERE d.n = n) = {k}" for k in range(4)),
    *(f"(SELECT COUNT(*) FROM history d WHERE d.time > time - INTERVAL 3 MINUTES) = {k}" for k in range(4)),
    *(f"(SELECT COUNT(*) FROM history d) = {k}" for k in range(6)),
    "n < (SELECT MIN(d.n) FROM history d WHERE d.m = m)",
    "n = (SELECT MAX(d.n) FROM history d)",
    "n = (SELECT MAX_BY(d.n, d.time) FROM history d WHERE d.m = m)",
    "(SELECT MAX_BY(d.n, d.m) FROM history d) = 2",
    "EXISTS d (d.time = time OR d.n = m)",
    "EXISTS d (d.m IS NULL)",
    "EXISTS d (d.n + 1 = m AND d.time BETWEEN time - INTERVAL 3 MINUTES AND time)",
    "EXISTS d (d.n - m = n - 1)",
    "(SELECT COUNT(*) FROM history d WHERE abs(d.n - n) <= 1 AND d.m = m) >= 2",
    "n = (SELECT MIN_BY(d.n, d.time) FROM history d WHERE d.m = m)",
    "(SELECT SUM(d.n) FROM history d WHERE d.m = m OR d.n = n) >= 3",
    "n > (SELECT AVG(d.n * 0.1) FROM history d) * 10",
    "(SELECT COUNT(DISTINCT d.n) FROM history d WHERE d.m = m) = 2",
    "(SELECT STDDEV(d.n) FROM history d) < 1",
]
TREES = [dibs.parse(text) for text in TEXTS]


class Model:
    """The documents that are left: (key, document), the oldest first."""

    def __init__(self, retain: dibs.Retain):
        self.retain = retain
        self.left: list[tuple[Any, dict[str, Any]]] = []
        self.newest: dt.datetime | None = None

    def add(self, document: dict[str, Any], key: Any = None) -> None:
        if key is not None and any(key == other for other, _ in self.left):
            return
        self.left.append((key, document))
        time = latest(document)
        if self.retain.age is not None and time is not None:
            self.newest = time if self.newest is None else max(self.newest, time)
            self.drop(lambda each: (latest(each) or self.newest) < self.newest - self.retain.age)
        if self.retain.count is not None:
            self.left = self.left[max(len(self.left) - self.retain.count, 0) :]

    def drop(self, is_dropped: Any) -> None:
        self.left = [(key, each) for key, each in self.left if not is_dropped(each)]

    @property
    def documents(self) -> list[dict[str, Any]]:
        return [each for _, each in self.left]


def latest(document: dict[str, Any]) -> dt.datetime | None:
    times = document.get("time", [])
    return max(times, default=None) if isinstance(times, list) else times


def document(draw: Random) -> dict[str, Any]:
    found: dict[str, Any] = {"n": draw.randint(0, 3), "m": draw.randint(0, 2)}
    if draw.random() < 0.2:
        del found[draw.choice(["n", "m"])]
    if draw.random() < 0.1:
        found["n"] = [draw.randint(0, 3), draw.randint(0, 3)]
    if draw.random() < 0.85:
        found["time"] = NOON + draw.randint(0, 9) * MINUTE
    if draw.random() < 0.05:
        found["time"] = [NOON + draw.randint(0, 9) * MINUTE, NOON]
    return found


def table(documents: list[dict[str, Any]]) -> Any:
    """As Arrow data, if there is one type for each column."""
    try:
        return pa.table({name: [each.get(name) for each in documents] for name in ("n", "m", "time")})
    except pa.ArrowException:
        return documents


def live(draw: Random, retain: dibs.Retain, steps: int, folder: Path | None = None) -> None:
    m, model = (
        dibs.Matcher(retain=retain) if folder is None else dibs.Matcher.open(folder, retain=retain),
        Model(retain),
    )
    follower = None if folder is None else dibs.Matcher.load(folder)
    m.add_many(list(enumerate(TEXTS)))
    kinds = ["add", "add", "add", "remember", "load", "batch", "keep", "before", "keys", "clear"]
    for _ in range(steps):
        what = draw.choice(kinds if folder is None else [*kinds, "open"])
        some = [document(draw) for _ in range(draw.randint(0, 4))]
        if what == "add":
            one, key = document(draw), draw.choice([None, *range(6)])
            m.history.add(one, key=key)
            model.add(one, key)
        elif what == "remember":
            one = document(draw)
            assert m.match(one, remember=True) == expected(one, model)
            model.add(one)
        elif what == "load":
            m.history.load(table(some) if draw.random() < 0.3 else some)
            for one in some:
                model.add(one)
        elif what == "batch":
            found = [list(ids) for ids in m.match_batch(some, remember=True)]
            for ids, one in zip(found, some, strict=True):
                assert ids == expected(one, model)
                model.add(one)
        elif what == "keep" and draw.random() < 0.3:
            kept = draw.randint(0, 4)
            before = len(model.left)
            model.left = model.left[max(len(model.left) - kept, 0) :]
            assert m.history.prune(keep=kept) == before - len(model.left)
        elif what == "before" and draw.random() < 0.5:
            limit = NOON + draw.randint(0, 9) * MINUTE
            m.history.prune(before=limit)
            model.drop(lambda each, limit=limit: (latest(each) or limit) < limit)
        elif what == "keys":
            keys = [draw.randint(0, 5) for _ in range(2)]
            m.history.prune(keys=keys)
            model.left = [(key, each) for key, each in model.left if key not in keys]
        elif what == "clear" and draw.random() < 0.05:
            m.history.clear()
            model = Model(retain)
        elif what == "open" and folder is not None:
            m.close()
            m = dibs.Matcher.open(folder)
            assert m.history.retain == retain
        event = document(draw)
        for each in (m, follower):
            if each is not None and (each is m or draw.random() < 0.5):
                assert len(each.history) == len(model.left)
                assert all((key in each.history) == any(key == k for k, _ in model.left) for key in range(6))
                assert each.match(event) == expected(event, model)
    m.close()
    if folder is not None and follower is not None:
        assert [part.problems for part in check_folder(folder) if part.problems] == []
        follower.close()


def expected(event: dict[str, Any], model: Model) -> list[int]:
    return [n for n, tree in enumerate(TREES) if matches(tree, event, model.documents)]


RETAIN = {
    "all": dibs.Retain(),
    "count": dibs.Retain(count=4),
    "age": dibs.Retain(age=4 * MINUTE),
    "both": dibs.Retain(count=5, age=5 * MINUTE),
}


@pytest.mark.parametrize("thresholds", THRESHOLDS)
@pytest.mark.parametrize("retain", RETAIN)
@settings(max_examples=settings.default.max_examples // 4)  # each is a dozen of matches and more
@given(st.integers(0, 2**32))
def test_lives(retain: str, thresholds: str, seed: int) -> None:
    with using(THRESHOLDS[thresholds](seed)):
        live(Random(seed), RETAIN[retain], 12)


@pytest.mark.parametrize("thresholds", THRESHOLDS)
@pytest.mark.parametrize("retain", RETAIN)
@settings(max_examples=max(settings.default.max_examples // 10, 2))  # each opens folders
@given(st.integers(0, 2**32))
def test_durable_lives(retain: str, thresholds: str, seed: int) -> None:
    with using(THRESHOLDS[thresholds](seed)), tempfile.TemporaryDirectory() as folder:
        live(Random(seed), RETAIN[retain], 12, Path(folder) / "m")
