"""Every way from one matcher to another: subscriptions, weights, what was removed, and the history are there then,
or the way says that it does not take them along. With each structure of an index."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dibs
from dibs.history.state import HistoryState
from dibs.history.stored import new_rows
from dibs.language.sql import parse
from dibs.reference import matches
from dibs.storage import store, versions
from dibs.storage.documents import HistoryHead, HistoryNews
from dibs.storage.snapshot import take_snapshot
from dibs.tuning import smallest, using

NOON = dt.datetime(2024, 5, 1, 12)
EXPRESSIONS = [
    "a = {n}", "b >= {n}", "EXISTS d (d.a = a)", "NOT EXISTS d (d.b > b AND d.a = a)", "FORALL d (d.at <> at)",
    "a IN ({n}, 7) OR b < 2", "EXISTS d (d.in.c = b AND d.s = 's{n}')", "s LIKE 's%' AND NOT b = {n}",
    "(SELECT count(*) FROM history d WHERE d.a = a) >= 2", "a IS NULL",
]  # fmt: skip
EVENTS: list[dict[str, Any]] = [
    *({"a": a, "b": b, "s": f"s{a}", "at": NOON + dt.timedelta(hours=a)} for a in range(4) for b in (1, 3)),
    {"a": [1, 7], "b": 2},
    {"b": 5},
]


@dataclass
class Kept:
    """A matcher, and what must be in it."""

    matcher: dibs.Matcher
    folder: Path | None = None  # of a durable one
    subscriptions: dict[str | int, tuple[str, float]] = field(default_factory=dict)
    documents: list[tuple[str | int | None, dict[str, Any]]] = field(default_factory=list)  # with their keys
    number: int = 0  # counts names
    opened: list[dibs.Matcher] = field(default_factory=list)  # before

    def moved(self, matcher: dibs.Matcher, folder: Path | None = None, history: bool = True) -> Kept:
        self.opened.append(self.matcher)
        self.matcher, self.folder = matcher, folder
        if not history:
            self.documents = []
        return self

    def close(self) -> None:
        for each in (self.matcher, *self.opened):
            each.close()

    def change(self, dice: random.Random) -> None:
        """Everything that leaves something behind: of subscriptions, weights and documents."""
        m = self.matcher
        for _ in range(4):
            self.number += 1
            id: str | int = self.number if self.number % 3 else f"s{self.number}"
            text = dice.choice(EXPRESSIONS).format(n=self.number % 4)
            weight = dice.choice([1.0, 2.5, -1.0])
            m.add(id, text, weight)
            self.subscriptions[id] = text, weight
        m.match(EVENTS[0])  # so that some have become a segment before the others go
        for id in dice.sample(sorted(self.subscriptions, key=str), len(self.subscriptions) // 4):
            m.remove(id)
            del self.subscriptions[id]
        id = dice.choice(sorted(self.subscriptions, key=str))
        self.subscriptions[id] = "b = 3 OR EXISTS d (d.b = b)", self.subscriptions[id][1]
        m.replace(id, self.subscriptions[id][0])
        self._add_documents(dice)
        if len(self.documents) > 6:
            key = dice.choice([key for key, _ in self.documents if key is not None])
            assert m.history.prune(keys=[key]) == 1
            self.documents = [(other, document) for other, document in self.documents if other != key]

    def _add_documents(self, dice: random.Random) -> None:
        m, n = self.matcher, self.number
        of_json = [{"a": dice.randrange(4), "b": dice.randrange(4), "in": {"c": [1, 2]}} for _ in range(2)]
        of_python: dict[str, Any] = {"a": 2, "s": "s1", "in": {"c": 3}}
        if dice.random() < 0.4:  # what JSON has no word for, which is stored in another way
            of_python |= {"at": NOON, "large": 2**70, "\0odd": float("nan")}
        of_arrow = [{"a": dice.randrange(4), "at": NOON + dt.timedelta(hours=1)}]
        m.history.load(of_json)
        m.history.add(of_python, key=f"k{n}")
        m.history.load(pa.Table.from_pylist(of_arrow))
        m.match(EVENTS[2], remember=True, key=n)
        added: list[tuple[str | int | None, dict[str, Any]]] = [
            *((None, each) for each in of_json),
            (f"k{n}", of_python),
            *((None, each) for each in of_arrow),
            (n, EVENTS[2]),
        ]
        self.documents += added

    def check(self, way: str) -> None:
        m, documents = self.matcher, [document for _, document in self.documents]
        assert {id: (m.get(id).expression, m.get(id).weight) for id in self.subscriptions} == self.subscriptions, way
        assert len(m) == len(self.subscriptions) and len(m.history) == len(documents), way
        assert all(key in m.history for key, _ in self.documents if key is not None), way
        for event in EVENTS:
            found = sorted(
                (id for id, (text, _) in self.subscriptions.items() if matches(parse(text), event, documents)),
                key=lambda id: (isinstance(id, str), id),
            )
            assert m.match(event) == found, (way, event)
            heaviest = sorted(found, key=lambda id: -self.subscriptions[id][1])[:3]
            assert m.match(event, top=3) == heaviest, (way, event)
        id = next(iter(self.subscriptions))
        assert m.explain(id, EVENTS[0]).matched == (id in m.match(EVENTS[0]))


Way = Callable[[Kept, Path], Kept]


def save(kept: Kept, place: Path) -> Kept:
    kept.matcher.save(place)
    return kept.moved(dibs.Matcher.load(place))


def export_to_memory(kept: Kept, place: Path) -> Kept:
    """Subscriptions alone."""
    path = place.with_suffix(".parquet")
    kept.matcher.export(path)
    other = dibs.Matcher(kept.matcher.index)
    other.import_from(path)
    return kept.moved(other, history=False)


def export_to_folder(kept: Kept, place: Path) -> Kept:
    path = place.with_suffix(".jsonl")
    kept.matcher.export(path)
    other = dibs.Matcher.open(place, index=kept.matcher.index)
    other.import_from(path)
    return kept.moved(other, place, history=False)


def reopen(kept: Kept, place: Path) -> Kept:
    kept.close()
    return kept.moved(dibs.Matcher.open(folder_of(kept)), kept.folder)


def read_only(kept: Kept, place: Path) -> Kept:
    """Beside the writer, if there is one."""
    return kept.moved(dibs.Matcher.load(folder_of(kept)), kept.folder)


def snapshot(kept: Kept, place: Path) -> Kept:
    """The subscriptions of a durable folder as they are saved, for Spark's streams."""
    kept.matcher.compact()
    assert take_snapshot(folder_of(kept), place) is not None
    return kept.moved(dibs.Matcher.load(place), history=False)


def version(kept: Kept, place: Path) -> Kept:
    """The subscriptions as dibs.spark.compile writes them: segments, and the rows that are gone."""
    layers = kept.matcher.snapshot().layers
    stored = []
    for layer in layers:
        one = versions.save_segment(place, layer.segment)
        gone = np.setdiff1d(np.arange(len(layer.segment)), layer.gone.find_kept())
        if len(gone):
            name, head = versions.save_removed(place, gone)
            one = versions.VersionSegment(one.file, one.rows, one.head, one.bytes, 0, name, head, len(gone))
        stored.append(one)
    segments = [layer.segment for layer in layers]
    versions.write_version(place, versions.describe(7, kept.matcher.choice, tuple(stored), segments))
    return kept.moved(dibs.Matcher.load(place), history=False)


def folder_of(kept: Kept) -> Path:
    assert kept.folder is not None
    return kept.folder


ANY: list[Way] = [save, export_to_memory, export_to_folder, version]
DURABLE: list[Way] = [reopen, read_only, snapshot]  # from a durable folder
PAIRS = {
    *((first, then) for first in (*ANY, *DURABLE) for then in ANY),
    *((first, then) for first in (export_to_folder, reopen) for then in DURABLE),
    (read_only, reopen),
    (read_only, read_only),
}


def ways_of(index: int) -> list[Way]:
    """The ways that a structure goes: all together, they go every way after every other that it can follow."""
    return WALKS[index % len(WALKS)]


def _walk_all() -> list[list[Way]]:
    """Walks over all pairs: each goes on with a pair that nobody has gone yet, as long as there is one."""
    left, walks = sorted(PAIRS, key=lambda pair: (pair[0].__name__, pair[1].__name__)), []
    while left:
        walk = list(left.pop(0))
        if walk[0] in (reopen, read_only, snapshot):
            walk.insert(0, export_to_folder)
        while len(walk) < 6 and (more := [pair for pair in left if pair[0] is walk[-1]]):
            left.remove(more[0])
            walk.append(more[0][1])
        walks.append(walk)
    return walks


WALKS = _walk_all()
INDEXES = list(dibs.indexes())


def test_walks_go_every_way() -> None:
    assert {pair for walk in WALKS for pair in zip(walk, walk[1:])} == PAIRS
    assert len(WALKS) <= len(INDEXES)


@pytest.mark.parametrize("index", INDEXES)
def test_every_way(index: str, tmp_path: Path) -> None:
    number = INDEXES.index(index)
    dice = random.Random(number)
    with using(smallest() if number % 2 else {}):
        durable = number % 3 == 0
        m = dibs.Matcher.open(tmp_path / "first", index=index) if durable else dibs.Matcher(index)
        kept = Kept(m, tmp_path / "first" if durable else None)
        kept.change(dice)
        kept.check("begin")
        for step, way in enumerate(ways_of(number)):
            kept = way(kept, tmp_path / f"step{step}")
            kept.check(f"{step}: {way.__name__}")
            if way in (export_to_memory, export_to_folder, reopen):
                kept.change(dice)
                kept.check(f"{step}: changed after {way.__name__}")
        kept.close()


# ---- the history ----


JOIN = "EXISTS d (d.a = a)"


def test_a_matcher_that_was_opened_is_saved_with_its_history(tmp_path: Path) -> None:
    with dibs.Matcher.open(tmp_path / "m") as m:
        m.add("it", JOIN)
        m.history.add({"a": 1})
        m.history.load([{"a": 2}, {"a": 3}])
    for number, options in enumerate(({}, {"read_only": True})):
        with dibs.Matcher.open(tmp_path / "m", **options) as m:
            m.save(tmp_path / f"s{number}")
        with dibs.Matcher.load(tmp_path / f"s{number}") as m:
            m.save(tmp_path / f"t{number}")
        with dibs.Matcher.load(tmp_path / f"t{number}") as m:
            assert len(m.history) == 3
            assert [m.match({"a": a}) for a in (1, 2, 3, 4)] == [["it"], ["it"], ["it"], []]


def test_how_much_is_retained_is_saved(tmp_path: Path) -> None:
    """Also with an empty history: replay goes by it."""
    with dibs.Matcher(retain=1) as m:
        m.add("it", JOIN)
        m.save(tmp_path / "s")
    with dibs.Matcher.load(tmp_path / "s") as m:
        assert m.history.retain == dibs.Retain(1)
        assert m.replay([{"a": 1}, {"a": 2}, {"a": 1}]).pairs == 0


def test_no_history_is_no_file(tmp_path: Path) -> None:
    with dibs.Matcher() as m:
        m.add("it", JOIN)
        m.history.add({"a": 1})
        m.save(tmp_path / "s")
        assert list((tmp_path / "s").glob("history-*"))
        m.history.clear()
        m.save(tmp_path / "s")
        assert not list((tmp_path / "s").glob("history-*"))


def test_a_copy_whose_history_is_lost_says_so(tmp_path: Path) -> None:
    """As versions before wrote it: a line for each byte of the documents."""
    with dibs.Matcher.open(tmp_path / "m") as m:
        m.add("it", JOIN)
        m.history.load([{"a": 1}, {"a": 2}])
        m.compact()
        state, [row] = m.snapshot(), list(new_rows(HistoryState(), m.history.state))
        content = b"\n".join([b'{"\\u0000broken":"no dict, but int"}'] * len(row.content))
        news = HistoryNews(HistoryHead(1, 0, 2), [row._replace(content=content)], frozenset())
        segments = [layer.segment for layer in state.layers]
        store.save_all(segments, tmp_path / "s", m.index, state.version, {}, news)
    with pytest.raises(dibs.DamagedError, match=r"documents were lost.*history=False") as caught:
        dibs.Matcher.load(tmp_path / "s")
    assert str(tmp_path / "s") in str(caught.value)
    with dibs.Matcher.load(tmp_path / "s", history=False) as m:
        assert m.expression("it") == JOIN and len(m.history) == 0
    with pytest.raises(dibs.ArgumentError, match="durable folder"):
        dibs.Matcher.load(tmp_path / "m", history=False)
