"""Histories that survive: in a durable matcher, in another process that follows it, in saved files."""

from __future__ import annotations

import datetime as dt
import sqlite3
import tempfile
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dibs
from dibs.history.encoding import StoredLines, encode_documents
from dibs.language.expression import Expression
from dibs.language.printer import to_sql
from dibs.reference import matches
from dibs.storage.check import check_folder
from dibs.tuning import using
from join_strategies import documents, subscriptions

NOON = dt.datetime(2024, 1, 1, 12)
MINUTE = dt.timedelta(minutes=1)
COUNT = "(SELECT COUNT(*) FROM history d)"
JOIN = "EXISTS d (d.a = a)"


def left(m: dibs.Matcher, name: str = "n") -> list[int]:
    """Which documents are there, by their numbers, from 0 to 29."""
    return [n for n in range(30) if sees(m, f"EXISTS d (d.{name} = {n})")]


def sees(m: dibs.Matcher, text: str) -> bool:
    with dibs.Matcher() as other:
        other.add("it", text)
        other.history = m.history
        found = other.match({}) == ["it"]
        other.history = dibs.Matcher().history  # or it would be closed
    return found


# ---- what was added is there again ----


def test_what_returned_is_there_again(tmp_path: Path) -> None:
    with dibs.Matcher.open(tmp_path / "m") as m:
        m.add_many([("join", JOIN), ("count", f"{COUNT} = 4"), ("plain", "a = 1")])
        assert m.match({"a": 1}, remember=True) == ["plain"]
        assert m.match_batch([{"a": 1}, {"a": 2}], remember=True).count == 2
        assert m.history.add({"a": 3, "at": NOON}, key="k") and not m.history.add({"a": 4}, key="k")
        assert m.match({"a": 3}) == ["count", "join"]
    for read_only in (False, True):
        with dibs.Matcher.open(tmp_path / "m", read_only=read_only) as m:
            assert len(m.history) == 4 and "k" in m.history and m.stats()["history"]["documents"] == 4
            assert m.match({"a": 3}) == ["count", "join"] and m.match({"a": 4}) == ["count"]
            assert m.explain("join", {"a": 3}).headline == "join matches: because of document 'k': a 3 = 3"
    with dibs.Matcher.open(tmp_path / "m") as m:
        m.add("later", "EXISTS d (d.at < at)")  # of an attribute for which nobody asked when it came
        assert m.match({"at": NOON + MINUTE}) == ["count", "later"]
        assert not m.history.add({"a": 4}, key="k")
        assert m.history.prune(keys=["k"]) == 1 and m.history.add({"a": 4}, key="k")
        m.history.clear()
    with dibs.Matcher.open(tmp_path / "m") as m:
        assert len(m.history) == 0 and "k" not in m.history and m.match({"a": 4}) == []


def test_a_reader_follows(tmp_path: Path) -> None:
    with dibs.Matcher.open(tmp_path / "m") as m, dibs.Matcher.open(tmp_path / "m", read_only=True) as reader:
        m.add(0, JOIN)
        assert reader.match({"a": 1}) == [] and len(reader.history) == 0
        m.match({"a": 1}, remember=True)
        assert reader.match({"a": 1}) == [0] and len(reader.history) == 1
        m.history.load(pa.table({"a": [5, 6]}))
        assert reader.match({"a": 6}) == [0]
        m.add(1, "NOT EXISTS d (d.a = a)")
        m.history.prune(keep=1)
        assert reader.match({"a": 5}) == [1] and len(reader.history) == 1
        m.history.clear()
        m.history.add({"a": 7}, key=7)
        assert reader.match({"a": 7}) == [0] and 7 in reader.history
        for change in (
            lambda: reader.history.add({}),
            lambda: reader.match({}, remember=True),
            lambda: reader.history.clear(),
        ):
            with pytest.raises(dibs.DibsError, match="open with read_only=True"):
                change()
        with pytest.raises(dibs.ArgumentError, match="retain is the writer's"):
            dibs.Matcher.open(tmp_path / "m", read_only=True, retain=1)
    with pytest.raises(dibs.DibsError, match="is closed"):
        m.history.add({})


def test_documents_and_subscriptions_have_one_order(tmp_path: Path) -> None:
    with dibs.Matcher.open(tmp_path / "m") as m:
        m.history.add({"n": 0})
        m.add("a", JOIN)
        m.match_batch([{"n": 1}, {"n": 2}], remember=True)
        m.add("b", JOIN)
        with m.batch():
            m.add("c", JOIN)
            m.history.add({"n": 3})  # at once, as matches are: the batch is made at its end
        m.history.add({"n": 4})
        assert m.version == 3
    with closing(sqlite3.connect(tmp_path / "m" / "catalog" / "catalog.db")) as connection:
        rows = connection.execute("SELECT number, size, version, content FROM documents ORDER BY number").fetchall()
    assert rows == [
        (0, 1, 0, '{"n":0}'),
        (1, 2, 1, '{"n":1}\n{"n":2}'),
        (3, 1, 2, '{"n":3}'),
        (4, 1, 3, '{"n":4}'),
    ]


# ---- retention ----


def test_retention_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "m"
    with dibs.Matcher.open(folder, retain=dibs.Retain(count=3, age=10 * MINUTE)) as m:
        m.history.load([{"n": n, "time": NOON + n * MINUTE} for n in range(5)])
    with dibs.Matcher.open(folder) as m:
        assert m.history.retain == dibs.Retain(count=3, age=10 * MINUTE) and left(m) == [2, 3, 4]
        m.history.add({"n": 5, "time": NOON + 13 * MINUTE})
        assert left(m) == [3, 4, 5]
        m.history.add({"n": 6, "time": NOON + 14 * MINUTE})  # 4 is exactly ten minutes older
        assert left(m) == [4, 5, 6]
    with dibs.Matcher.open(folder) as m:
        m.history.add({"n": 7, "time": NOON + 2 * MINUTE})  # too old when it comes, by what came before opening
        assert left(m) == [4, 5, 6]
        m.history.add({"n": 8, "time": NOON + 14 * MINUTE + dt.timedelta(microseconds=1)})
        assert left(m) == [5, 6, 8]
    with dibs.Matcher.open(folder, retain=2) as m:
        assert m.history.retain == dibs.Retain(2) and left(m) == [6, 8]
    with dibs.Matcher.open(folder, retain=dibs.Retain()) as m:
        m.history.load([{"n": n} for n in range(10, 20)])
        assert left(m) == [6, 8, *range(10, 20)]
    with dibs.Matcher.open(folder, retain=0) as m:
        assert len(m.history) == 0 and m.history.add({"n": 1}) and len(m.history) == 0
    assert [part.problems for part in check_folder(folder)] == [[]] * len(check_folder(folder))


@pytest.mark.parametrize("size", [1, 4, 1000])
def test_the_catalog_keeps_no_more_than_is_retained(tmp_path: Path, size: int) -> None:
    with using({"documents_in_a_row": size}), dibs.Matcher.open(tmp_path / "m", retain=10) as m:
        for first in range(0, 60, 6):
            m.history.load([{"n": n} for n in range(first, first + 6)])
            m.history.load(pa.table({"n": [first]}))
        with closing(sqlite3.connect(tmp_path / "m" / "catalog" / "catalog.db")) as connection:
            [(documents,)] = connection.execute("SELECT sum(size) FROM documents").fetchall()
        assert 10 <= documents <= 16


# ---- documents of all kinds ----


class Odd:
    pass


VALUES: list[Any] = [
    1, -(2**63), 2**63, 2**200, True, 0.1, -0.0, 1e300, float("nan"), float("inf"), "", "é\0x", "\ud800", None,
    NOON, NOON.replace(tzinfo=dt.timezone(dt.timedelta(hours=5))), dt.date(1, 1, 1), np.datetime64("200000-01-01"),
    np.datetime64("NaT"), np.int8(3), np.float32(0.1), np.bool_(True), Decimal("1.5"), Decimal(2**70), b"bytes", Odd(),
    [1, [2, "x"], {"b": 3}], (1, 2), {1, 2}, np.array([1, 2]), np.array([NOON], "datetime64[ns]"), {"b": {"c": [NOON]}},
    {"b": 1, 2: 3}, {"\0time": 5}, {"\0\0": {"\0unreadable": 1}}, OrderedDict(b=1), MappingProxyType({"b": 1}), [], {},
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=lambda value: repr(value)[:20])
def test_every_value_is_read_as_before(value: Any) -> None:
    from dibs.coding.events import read_events
    from dibs.history.keys import cells_of

    names = ["a", "a.b", "a.b.c", "a.b.b", "plain"]
    document: Mapping[Any, Any] = {"a": value, "plain": 1}
    stored = StoredLines([encode_documents([document], None).content], [1])
    assert len(stored) == 1
    before, after = (
        cells_of(read_events(rows, names, on_error="skip"), names)
        for rows in ([document], stored.slice(0, 1).readable())
    )
    assert before == after


@settings(max_examples=max(settings.default.max_examples // 4, 3))
@given(st.lists(documents(), max_size=4), st.lists(documents(), min_size=1, max_size=3), subscriptions())
def test_matcher_batch_and_durable_agree(
    past: list[dict[str, Any]], now: list[dict[str, Any]], expression: Expression
) -> None:
    """One by one and together, before and after opening again: what the obvious evaluator says."""
    with tempfile.TemporaryDirectory() as folder:
        singly = dibs.Matcher()
        for m in (singly, dibs.Matcher.open(Path(folder) / "m")):
            m.add("it", to_sql(expression))
            m.history.load(past[:2])
            for document in past[2:]:
                m.history.add(document)
            m.save(Path(folder) / "saved")
            if m is not singly:
                m.close()
        durable, saved = dibs.Matcher.open(Path(folder) / "m"), dibs.Matcher.load(Path(folder) / "saved")
        expected = [matches(expression, event, past) for event in now]
        for m in (singly, durable, saved):
            assert [m.match(event) == ["it"] for event in now] == expected
            assert [len(ids) == 1 for ids in m.match_batch(now)] == expected
        expected = [matches(expression, event, past + now[:n]) for n, event in enumerate(now)]
        assert [singly.match(event, remember=True) == ["it"] for event in now] == expected
        assert [len(ids) == 1 for ids in durable.match_batch(now, remember=True)] == expected
        durable.close()
        with dibs.Matcher.open(Path(folder) / "m") as again:
            assert [again.match(event) for event in now] == [singly.match(event) for event in now]


def test_what_cannot_be_kept_changes_nothing(tmp_path: Path) -> None:
    deep: Any = 1
    for _ in range(300):
        deep = [deep]
    with dibs.Matcher.open(tmp_path / "m") as m:
        for bad, message in ((dibs.Range(1, 2), "no Range"), (deep, "inside each other")):
            with pytest.raises(dibs.EventError, match=message):
                m.history.add({"x": bad})
            with pytest.raises(dibs.EventError, match=f"event 1.*{message}"):
                m.match_batch([{"x": 1}, {"x": bad}], remember=True)
        assert len(m.history) == 0
        lines = b'{"a": 1}\n{broken\n{"a": 2}'
        m.match_batch(lines, on_error="skip", remember=True)
        assert len(m.history) == 2
    with dibs.Matcher.open(tmp_path / "m") as m:
        assert len(m.history) == 2 and left(m, "a") == [1, 2]


# ---- damage ----


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE documents SET content = '{\"n\":2}' WHERE number = 0",
        "UPDATE documents SET content = x'00' WHERE number = 0",
        "UPDATE documents SET number = 9 WHERE number = 0",
        "UPDATE documents SET size = 2 WHERE number = 0",
        "UPDATE documents SET form = 'arrow' WHERE number = 0",
        "UPDATE documents SET attributes = 'a' WHERE number = 0",
        "UPDATE documents SET keys = '[1]' WHERE number = 0",
        "UPDATE documents SET version = 7 WHERE number = 0",
        "UPDATE documents SET time = time + 1 WHERE number = 0",
        "UPDATE documents SET checksum = checksum + 1 WHERE number = 0",
        "DELETE FROM documents WHERE number = 0",
        "DELETE FROM gone",
        "INSERT INTO gone VALUES (0)",
        "UPDATE history SET first = 1",
        "UPDATE history SET newest = 1",
        "UPDATE history SET retain = NULL",
        "DELETE FROM history",
        "DROP TABLE gone",
    ],
)
def test_damage_is_found(tmp_path: Path, statement: str) -> None:
    with dibs.Matcher.open(tmp_path / "m") as m:
        m.history.add({"n": 0})
        m.history.load([{"n": 1}, {"n": 2}], key="n")
        m.history.prune(keys=[1])
    with closing(sqlite3.connect(tmp_path / "m" / "catalog" / "catalog.db")) as connection:
        connection.execute(statement)
        connection.commit()
    for read_only in (True, False):
        with pytest.raises(dibs.DamagedError, match=r"catalog\.db"):
            dibs.Matcher.open(tmp_path / "m", read_only=read_only)
    assert check_folder(tmp_path / "m")[0].problems


def test_a_lost_log_is_found(tmp_path: Path) -> None:
    """Documents that were committed, and are missing, are told even if no subscription has changed since."""
    with dibs.Matcher.open(tmp_path / "m") as m:
        m.add(0, JOIN)
    m = dibs.Matcher.open(tmp_path / "m")
    m.history.add({"a": 1})
    content = {path.name: path.read_bytes() for path in (tmp_path / "m" / "catalog").iterdir()}
    m.close()
    for name, bytes_ in content.items():
        (tmp_path / "m" / "catalog" / name).write_bytes(bytes_ if "wal" not in name else b"")
    with pytest.raises(dibs.DamagedError, match="change 2 was committed: its log"):
        dibs.Matcher.open(tmp_path / "m")


# ---- saved files ----


def test_saved_with_its_history(tmp_path: Path) -> None:
    m = dibs.Matcher(retain=dibs.Retain(count=5, age=MINUTE))
    m.add_many([(0, JOIN), (1, f"{COUNT} = 3")])
    m.history.load([{"a": n, "key": f"k{n}", "time": NOON} for n in range(4)], key="key")
    m.history.load(pa.table({"a": [7]}))
    m.history.prune(keys=["k0", "k2"])
    m.save(tmp_path / "saved")
    loaded = dibs.Matcher.load(tmp_path / "saved")
    assert left(loaded, "a") == [1, 3, 7] and "k1" in loaded.history and loaded.history.retain == m.history.retain
    assert loaded.match({"a": 7}) == [0, 1] and loaded.joins == m.joins
    for change in (lambda: loaded.history.add({}), lambda: loaded.match({}, remember=True)):
        with pytest.raises(dibs.DibsError, match="opened from saved files and is read-only"):
            change()
    m.history.clear()
    m.save(tmp_path / "saved")
    cleared = dibs.Matcher.load(tmp_path / "saved").history
    assert len(cleared) == 0 and cleared.retain == m.history.retain
    m.history.add({"a": 1})
    m.save(tmp_path / "saved")
    [file] = (tmp_path / "saved").glob("history-*")
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(dibs.DamagedError, match="history-"):
        dibs.Matcher.load(tmp_path / "saved")
    file.unlink()
    with pytest.raises(dibs.DamagedError, match=r"missing, but index\.dibs names it"):
        dibs.Matcher.load(tmp_path / "saved")
