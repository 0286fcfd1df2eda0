"""The contract of Matcher.open: what was added is there again, for the next process, for readers, after errors."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from crash_writer import EVENTS, SMALL, expression, in_child

import dibs
from dibs.errors import RecoveryWarning
from dibs.index import INDEXES
from dibs.segments.segment import Joined
from dibs.storage import durable as durable_module
from dibs.tuning import numbers, using

open_matcher = dibs.Matcher.open
EVENT = {"x": 1}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "matcher"


@pytest.fixture
def m(folder: Path) -> Iterator[dibs.Matcher]:
    with open_matcher(folder) as matcher:
        yield matcher


@pytest.fixture
def small() -> Iterator[None]:
    with using(SMALL):
        yield


@pytest.fixture(autouse=True)
def no_recovery() -> Iterator[None]:
    """Nothing here is damaged."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", RecoveryWarning)
        yield


def checkpoint(m: dibs.Matcher) -> None:
    m._changes.durable.checkpoint(m._layers)


# ---- opening again ----


def test_what_was_added_is_there_again(folder):
    with open_matcher(folder) as m:
        m.add("alice", "x = 1", weight=2.5)
        m.add(7, "x = 1 OR name LIKE '%é%'")
        m.add_many([("bob", "x > 5"), (8, "x IS NULL", 3.0)])
        m.add_table(pa.table({"id": [100, 101], "expression": ["x = 1", "x = 2"]}))
        m.replace("bob", "x = 1")
        m.remove(101)
        m.add("carol", "x = 1")
        m.remove_many([100, "carol"])
        said = [m.get(i) for i in ("alice", "bob", 7, 8)]
    for _ in range(2):
        with open_matcher(folder) as m:
            assert [m.get(i) for i in ("alice", "bob", 7, 8)] == said
            assert (len(m), m.version) == (4, 11)
            assert m.match(EVENT) == [7, "alice", "bob"] and m.match({"name": "Zoé"}) == [7, 8]
            assert m.match(EVENT, top=1) == ["alice"]
            assert 101 not in m and "carol" not in m
    assert said[0][:4] == ("alice", "x = 1", 2.5, 1) and said[1][:4] == ("bob", "x = 1", 1.0, 7)


def test_an_error_changes_nothing(m):
    m.add("a", "x = 1")
    for call in (
        lambda: m.add("a", "x = 2"),
        lambda: m.add("b", "x ="),
        lambda: m.remove("b"),
        lambda: m.replace("a", "x ="),
        lambda: m.remove_many(["a", "b"]),
        lambda: m.remove_many(["a", "a"]),
        lambda: m.add_many([("b", "x = 1"), ("a", "x = 1")]),
        lambda: m.add_table(pa.table({"id": ["b", "b"], "expression": ["x = 1"] * 2})),
    ):
        with pytest.raises(dibs.DibsError):
            call()
    assert (m.version, len(m), len(m._changes.durable.catalog)) == (1, 1, 1)
    assert m.match(EVENT) == ["a"]


@pytest.mark.parametrize("wrong", [True, 1.0, None, b"1"])
def test_ids_that_only_look_like_one(m, wrong):
    m.add(1, "x = 1")
    for call in (lambda: m.replace(wrong, "x = 2"), lambda: m.remove(wrong), lambda: m.get(wrong)):
        with pytest.raises(dibs.DibsError):
            call()
    assert wrong not in m
    assert m.match(EVENT) == [1] and m.version == 1


def test_versions_and_times(m):
    before = time.time_ns() // 1000
    m.add_many([("a", "x = 1"), ("b", "x = 1")])
    m.add("c", "x = 1")
    m.remove("b")
    m.replace("a", "x = 1")
    with m.batch():
        m.add("d", "x = 1")
        m.add("e", "x = 1")
    after = time.time_ns() // 1000
    assert m.version == 7
    found = m.match_batch([EVENT]).pairs(versions=True).to_pylist()
    assert {r["subscription"]: r["version"] for r in found} == {"a": 5, "c": 3, "d": 6, "e": 7}
    times = [m.get(i).time for i in "cade"]
    assert before <= times[0] <= times[1] <= times[2] == times[3] <= after


@pytest.mark.parametrize("name", list(INDEXES))
def test_every_index(name, folder):
    rng = random.Random(3)
    scan = dibs.Matcher(index="scan", threads=1)
    for life in range(3):
        with open_matcher(folder, index=name if life == 0 else None, threads=1) as m:
            assert m.index == name
            assert list(m.match_batch(EVENTS)) == list(scan.match_batch(EVENTS))
            for i in range(12):
                text = expression(rng)
                for each in (m, scan):
                    each.add(life * 100 + i if i % 3 else f"{life}-{i}", text)
                    if i == 5:
                        each.remove(life * 100 + 4)
                        each.match_batch(EVENTS)
            for each in (m, scan):
                each.replace(life * 100 + 1, "a = 1")
            if life < 2:
                checkpoint(m)
            assert list(m.match_batch(EVENTS)) == list(scan.match_batch(EVENTS))


def test_another_index_is_built_on_opening_and_kept(folder):
    with open_matcher(folder, index="counting") as m:
        m.add_many([(i, f"x = {i % 3}") for i in range(300)])
        m.compact()
    for index, expected in ((None, "counting"), ("betree", "betree"), (None, "betree"), ("auto", "auto")):
        with open_matcher(folder, index=index) as m:
            assert m.index == expected
            assert {p.segment.index.name for p in m._layers.state.layers} == {expected}
            assert m.match(EVENT) == list(range(1, 300, 3))


def test_memory_is_a_setting_of_each_opening(folder):
    with open_matcher(folder, index="pbtree", memory=1 << 21) as m:
        m.add_many([(i, f"x = {i % 3}") for i in range(300)])
        m.compact()
    with open_matcher(folder, memory=1 << 22) as m:
        assert m.index == "pbtree" and m.match(EVENT) == list(range(1, 300, 3))
        m.add("more", "x = 1")
        assert m.match(EVENT)[-1] == "more"
    with pytest.raises(ValueError, match="memory"):
        open_matcher(folder, index="auto", memory=1 << 22)
    with open_matcher(folder) as m:
        assert len(m) == 301


# ---- batches ----


def test_a_batch_is_made_at_its_end(m, folder):
    m.add_many([("a", "x = 1"), ("b", "x = 1", 4.0)])
    with open_matcher(folder, read_only=True) as follower:
        with m.batch() as same:
            assert same is m
            m.add("c", "x = 1")
            m.remove("a")
            m.replace("b", "x = 1 AND TRUE")
            m.add_many([(i, "x = 1") for i in range(5)])
            m.add("a", "x = 1 OR x = 2")
            m.remove(3)
            assert "c" in m and "a" in m and 3 not in m and len(m) == 7
            assert m.get("a").expression == "x = 1 OR x = 2" and m.get("b").weight == 4.0
            with pytest.raises(dibs.UnknownId):
                m.get(3)
            with pytest.raises(dibs.DuplicateId):
                m.add("c", "x = 1")
            seen = [m.match(EVENT), follower.match(EVENT), [m.version]]
            inside = {i: m.get(i).version for i in ("c", "b", "a", 0, 4)}
        assert seen == [["a", "b"], ["a", "b"], [2]]
        assert m.match(EVENT) == follower.match(EVENT) == [0, 1, 2, 4, "a", "b", "c"]
        assert m.version == 2 + 10
        assert inside == {i: m.get(i).version for i in inside} == {"c": 3, "b": 5, "a": 11, 0: 6, 4: 10}


def test_a_batch_that_raises_changes_nothing(m, folder):
    m.add("a", "x = 1")

    def broken(error: type[BaseException]) -> None:
        with m.batch():
            m.remove("a")
            m.add("b", "x = 1")
            raise error

    for error in (LookupError, KeyboardInterrupt):
        with pytest.raises(error):
            broken(error)
        assert m.match(EVENT) == ["a"] and len(m) == 1 and m.version == 1
    m.add("b", "x = 1")
    m.close()
    with open_matcher(folder) as again:
        assert again.match(EVENT) == ["a", "b"] and again.version == 2


def test_a_bad_change_within_a_batch_may_be_caught(m):
    with m.batch():
        m.add("a", "x = 1")
        for call in (lambda: m.add("a", "x = 2"), lambda: m.add("b", "x ="), lambda: m.remove("b")):
            with pytest.raises(dibs.DibsError):
                call()
        assert [r.id for r in m.add_many([("a", "x = 1"), ("c", "x = 1")], on_error="skip")] == ["a"]
    assert m.match(EVENT) == ["a", "c"] and m.version == 2


def test_a_batch_within_a_batch_is_part_of_it(m):
    with m.batch():
        m.add("a", "x = 1")
        with m.batch():
            m.add("b", "x = 1")
        assert m.match(EVENT) == []
    assert m.match(EVENT) == ["a", "b"]

    def broken() -> None:
        with m.batch():
            with m.batch():
                m.remove("a")
            raise LookupError

    with pytest.raises(LookupError):
        broken()
    assert m.match(EVENT) == ["a", "b"]


def test_an_empty_batch_is_no_change(m):
    with m.batch():
        pass
    assert m.version == 0


def test_batches_of_several_threads(m, folder):
    """Each is seen wholly or not at all, and a thread sees its own changes only."""
    problems: list[str] = []
    stop = threading.Event()

    def write(name: str) -> None:
        for i in range(10):
            with m.batch():
                size = len(m)
                for k in range(4):
                    m.add(f"{name}{i}-{k}", "x = 1")
                if len(m) != size + 4:
                    problems.append("another thread's changes were seen within a batch")

    def read() -> None:
        with open_matcher(folder, read_only=True, threads=1) as follower:
            while not stop.is_set():
                for each in (m, follower):
                    if len(each.match(EVENT)) % 4:
                        problems.append("half a batch was seen")
                if len(m) % 4:
                    problems.append("another thread counts half a batch")

    reader = threading.Thread(target=read)
    writers = [threading.Thread(target=write, args=(name,)) for name in "abc"]
    for thread in [reader, *writers]:
        thread.start()
    for thread in writers:
        thread.join()
    stop.set()
    reader.join()
    assert not problems
    assert len(m) == 120 == m.version


# ---- one writer ----


def test_one_writer(folder):
    m = open_matcher(folder)
    m.add("a", "x = 1")

    def refused() -> str:
        with pytest.raises(dibs.WriterActive) as caught:
            open_matcher(folder)
        assert caught.value.path == folder and isinstance(caught.value, dibs.StorageError)
        return str(caught.value)

    for message in (refused(), in_child(refused)):
        assert f"process {os.getpid()}" in message and str(folder) in message and "read_only=True" in message
    m.add("b", "x = 1")
    m.close()
    with open_matcher(folder) as again:
        assert again.match(EVENT) == ["a", "b"]


def test_the_lock_ends_with_its_holder_whatever_children_it_has(folder):
    """A pool of forked workers must not keep the folder from being opened again."""
    m = open_matcher(folder)
    m.add("a", "x = 1")
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(write)
        os.read(read, 1)  # until the parent closes its end
        os._exit(0)
    try:
        m.close()
        with open_matcher(folder) as again:
            assert again.match(EVENT) == ["a"]
    finally:
        os.close(write)
        os.close(read)
        os.waitpid(child, 0)


def test_a_forked_child_cannot_use_what_its_parent_has_open(m, folder):
    m.add("a", "x = 1")

    def child() -> list[str]:
        told = []
        changes = (lambda: m.add("b", "x = 1"), lambda: m.remove("a"), m.compact, lambda: checkpoint(m))
        questions = (lambda: m.match(EVENT), lambda: m.match_batch([EVENT]), lambda: m.get("a"), lambda: len(m))
        for call in changes + questions:
            with pytest.raises(dibs.StorageError, match="fork") as caught:
                call()
            told.append(str(caught.value))
        with open_matcher(folder, read_only=True) as own:
            assert own.match(EVENT) == ["a"]
        m.close()
        return told

    assert all(str(folder) in message for message in in_child(child))
    m.add("c", "x = 1")  # the parent's is as it was
    assert m.match(EVENT) == ["a", "c"]
    with pytest.raises(dibs.WriterActive):
        open_matcher(folder)


def test_forking_while_another_thread_asks(m):
    """A child must not wait for threads that it does not have."""
    stop = threading.Event()

    def ask() -> None:
        while not stop.is_set():
            m._changes.durable.catalog.stamp()

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        assert [in_child(lambda: "here", 5) for _ in range(20)] == ["here"] * 20
    finally:
        stop.set()
        thread.join()


# ---- readers ----


def test_a_follower_sees_each_change_at_the_next_match(m, folder):
    with open_matcher(folder, read_only=True) as follower:
        assert follower.match(EVENT) == [] and len(follower) == 0
        for change, expected in (
            (lambda: m.add("a", "x = 1"), ["a"]),
            (lambda: m.add_many([(i, "x = 1") for i in range(3)]), [0, 1, 2, "a"]),
            (lambda: m.replace("a", "x = 2"), [0, 1, 2]),
            (lambda: m.remove_many([0, 2]), [1]),
            (lambda: m.replace("a", "x = 1", 9.0), [1, "a"]),
        ):
            change()
            assert follower.match(EVENT) == m.match(EVENT) == expected
            assert follower.version == m.version
        assert follower.get("a") == m.get("a") and follower.get("a").time is not None
        m.remove("a")
        assert len(follower) == 1 and "a" not in follower, "also those that ask without a match"
        for call in (
            lambda: follower.add("b", "x = 1"),
            lambda: follower.remove(1),
            lambda: follower.batch().__enter__(),
        ):
            with pytest.raises(dibs.DibsError, match="read_only=True"):
                call()


class Follower:
    """A read-only matcher in another process, which answers one question after the other."""

    def __init__(self, folder: Path):
        ask, self._questions = os.pipe()
        self._answers, answer = os.pipe()
        self._child = os.fork()
        if self._child == 0:
            os.close(self._questions)
            os.close(self._answers)
            try:
                with open_matcher(folder, read_only=True, threads=1) as own:
                    os.write(answer, b"ready".ljust(40))
                    while os.read(ask, 1):
                        found = own.match(EVENT)
                        os.write(answer, f"{len(found)} {sum(found)} {len(own)} {own.version}".encode().ljust(40))
            except BaseException as e:
                os.write(2, repr(e).encode())
            os._exit(0)
        os.close(ask)
        os.close(answer)
        assert self._read() == "ready"

    def _read(self) -> str:
        return os.read(self._answers, 40).decode().strip()

    def says(self) -> str:
        os.write(self._questions, b"?")
        return self._read()

    def close(self) -> None:
        os.close(self._questions)
        os.close(self._answers)
        os.waitpid(self._child, 0)


@pytest.mark.parametrize("index", ["auto", "pstree"])
def test_a_follower_in_another_process(index, folder, small):
    """While the writer checkpoints, trims the log, removes old files, and adds more at once than the log keeps."""
    with open_matcher(folder, index=index, threads=1) as m:
        m.add(0, "x = 1")
        checkpoint(m)
        follower = Follower(folder)
        try:
            for i in range(1, 80):
                if i % 20 == 0:  # more than TAIL
                    m.add_many([(1000 * i + k, "x = 1") for k in range(40)])
                    m._layers.upkeep.rest()
                elif i % 13 == 0:
                    m.compact()
                elif i % 7 == 0:
                    with m.batch():
                        m.remove(max(m.match(EVENT)))
                        m.replace(0, "x = 1 OR x = 5")
                elif i % 11 == 0:
                    m.replace(max(m.match(EVENT)), "x = 1 AND TRUE")
                else:
                    m.add(i, "x = 1")
                if i % 3 == 0:
                    ids = m.match(EVENT)
                    assert follower.says() == f"{len(ids)} {sum(ids)} {len(m)} {m.version}"
            assert m._changes.durable.catalog.trimmed > 0
            checkpoint(m)
            m.add(5000, "x = 1")
        finally:
            m.close()
            last = follower.says()
            follower.close()
    with open_matcher(folder) as m:
        ids = m.match(EVENT)
        assert last == f"{len(ids)} {sum(ids)} {len(m)} {m.version}"


def come_and_go(folder: Path) -> list[str]:
    """What goes wrong for readers that open the folder again and again, while it is written."""
    problems, last = [], 0
    for _ in range(20):
        try:
            with open_matcher(folder, read_only=True, threads=1) as reader:
                found, version = reader.match(EVENT), reader.version
                reader.stats()
            if version < last or len(found) != len(set(found)):
                problems.append(f"version {version} after {last}")
            last = version
        except Exception as e:
            problems.append(repr(e))
    return problems


@pytest.fixture
def busy(folder: Path, small: None) -> Iterator[dibs.Matcher]:
    """A writer that never rests."""
    stop = threading.Event()

    def write() -> None:
        i = 0
        while not stop.is_set():
            m.add(i, "x = 1")
            i += 1
            if i % 5 == 0:
                m.remove(i - 3)

    with open_matcher(folder, threads=1) as m:
        thread = threading.Thread(target=write)
        thread.start()
        yield m
        stop.set()
        thread.join()


def test_readers_come_while_the_writer_writes(folder, busy):
    """Opening meets any state: between a commit and the next, between two manifests."""
    problems = come_and_go(folder)
    assert not problems, problems[:3]


def test_forked_readers_come_while_the_writer_writes(folder, busy):
    for _ in range(2):
        problems = in_child(lambda: come_and_go(folder), 30)
        assert not problems, problems[:3]


def test_a_reader_that_fell_behind_takes_the_saved_segments(m, folder, monkeypatch):
    monkeypatch.setattr(numbers["unsaved_changes"], "value", 10)
    m.add(0, "x = 1")
    with open_matcher(folder, read_only=True) as follower:
        assert follower.match(EVENT) == [0]
        for i in range(1, 50):
            m.add(i, "x = 1")
        m.remove(0)
        m._layers.upkeep.rest()
        checkpoint(m)
        m.add(50, "x = 1")
        reads: list[int] = []
        news = type(m._changes.durable.catalog).news
        monkeypatch.setattr(
            "dibs.storage.catalog.Catalog.news",
            lambda self, since, *known: (reads.append(since), news(self, since, *known))[1],
        )
        assert follower.match(EVENT) == list(range(1, 51))
        assert reads[-1] >= 50


def test_a_follower_that_is_overtaken_while_it_catches_up(m, folder, monkeypatch):
    """The writer trims the log again while the follower takes the segments that were saved before."""
    m.add(0, "x = 1")
    with open_matcher(folder, read_only=True) as follower:
        assert follower.match(EVENT) == [0]
        m.add(1, "x = 1")
        checkpoint(m)
        reload, times = durable_module.Durable._reload, 0

        def overtaken(self: Any, layers: Any) -> None:
            nonlocal times
            reload(self, layers)
            times += 1
            if times < 4:
                m.add(1 + times, "x = 1")
                checkpoint(m)

        monkeypatch.setattr(durable_module.Durable, "_reload", overtaken)
        assert follower.match(EVENT) == [0, 1, 2, 3, 4] and times == 4


def test_load_reads_a_durable_folder(m, folder):
    m.add("a", "x = 1")
    with dibs.Matcher.load(folder) as loaded:
        assert loaded.match(EVENT) == ["a"]
        m.add("b", "x = 1")
        assert loaded.match(EVENT) == ["a", "b"]
        with pytest.raises(dibs.DibsError, match="read_only"):
            loaded.add("c", "x = 1")


def test_save_of_a_durable_matcher(m, folder, tmp_path):
    m.add_many([("a", "x = 1"), (2, "x = 1"), ("c", "x = 1")])
    m.remove("c")
    m.save(tmp_path / "saved")
    m.add("d", "x = 1")
    with dibs.Matcher.load(tmp_path / "saved") as saved:
        assert saved.match(EVENT) == [2, "a"] and saved.version == 4
    with pytest.raises(dibs.FormatError, match="durable"):
        m.save(folder)
    with pytest.raises(dibs.FormatError, match=r"saved index.*Matcher\.load"):
        open_matcher(tmp_path / "saved")
    with pytest.raises(dibs.FormatError, match="no durable matcher"):
        open_matcher(tmp_path / "saved", read_only=True)
    assert m.match(EVENT) == [2, "a", "d"]


# ---- what is refused ----


def test_foreign_places_are_left_alone(tmp_path):
    (tmp_path / "file").write_text("keep")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "precious.txt").write_text("keep")
    for place in (tmp_path / "file", tmp_path / "other"):
        for read_only in (False, True):
            with pytest.raises(dibs.FormatError, match=str(place)):
                open_matcher(place, read_only=read_only)
    with pytest.raises(dibs.StorageError):
        open_matcher(tmp_path / "file" / "below")
    with pytest.raises(dibs.FormatError, match="no durable matcher"):
        open_matcher(tmp_path / "nowhere", read_only=True)
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["file", "other", "precious.txt"]


def test_wrong_arguments_make_nothing(tmp_path):
    for options, error in (
        ({"index": "nonsense"}, dibs.UnknownIndex),
        ({"memory": 5}, ValueError),
        ({"threads": 0}, ValueError),
    ):
        with pytest.raises(error):
            open_matcher(tmp_path / "new", **options)
        assert not (tmp_path / "new").exists()


def test_folders_are_made_and_empty_ones_taken(tmp_path):
    (tmp_path / "empty").mkdir()
    for place in (tmp_path / "empty", tmp_path / "one" / "two", str(tmp_path / "text")):
        with open_matcher(place) as m:
            m.add("a", "x = 1")
        with open_matcher(place, read_only=True) as m:
            assert m.match(EVENT) == ["a"]


def test_closed(folder):
    m = open_matcher(folder)
    m.add("a", "x = 1")
    m.close()
    m.close()
    for call in (
        lambda: m.add("b", "x = 1"),
        lambda: m.remove("a"),
        lambda: m.match(EVENT),
        lambda: m.get("a"),
        lambda: m.version,
        m.stats,
        m.compact,
        lambda: m.batch().__enter__(),
    ):
        with pytest.raises(dibs.DibsError, match="closed"):
            call()
    with open_matcher(folder) as m:
        assert m.match(EVENT) == ["a"]


def test_a_copy_of_the_folder_is_a_matcher(m, folder, tmp_path):
    m.add_many([(i, "x = 1") for i in range(300)])
    checkpoint(m)
    m.add("late", "x = 1")
    shutil.copytree(folder, tmp_path / "copy")
    with open_matcher(tmp_path / "copy") as copy:
        assert copy.match(EVENT) == [*range(300), "late"]
        copy.add("own", "x = 1")
    assert "own" not in m


# ---- interrupts, and work in the background ----


@pytest.mark.parametrize("change", ["add", "bulk", "remove"])
def test_an_interrupt_between_the_catalog_and_the_layers(m, folder, monkeypatch, change):
    m.add_many([("a", "x = 1"), ("b", "x = 1")])
    layers = m._layers

    def interrupted(*_: Any) -> None:
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(layers, "append" if change == "bulk" else "apply", interrupted)
    changes = {
        "add": lambda: m.add(1, "x = 1"),
        "remove": lambda: m.remove("a"),
        "bulk": lambda: m.add_table(pa.table({"id": list(range(1, 400)), "expression": ["x = 1"] * 399})),
    }
    with pytest.raises(KeyboardInterrupt):
        changes[change]()
    m.replace("b", "x = 1 OR x = 2")
    new = {"add": [1], "bulk": list(range(1, 400)), "remove": []}[change]
    expected = [*new, *(["b"] if change == "remove" else ["a", "b"])]
    assert m.match(EVENT) == expected and len(m) == len(expected)
    assert m.version == m._changes.durable.catalog.version == m.get("b").version
    m.close()
    with open_matcher(folder) as again:
        assert again.match(EVENT) == expected


@pytest.mark.parametrize("index", ["auto", "opindex"])
def test_merges_in_the_background(folder, small, index):
    rng = random.Random(1)
    scan = dibs.Matcher(index="scan", threads=1)
    with open_matcher(folder, index=index, threads=1) as m:
        for number in range(40):
            new = [(number * 10 + i, expression(rng)) for i in range(8)]
            gone = [i for i in range(number * 10 - 30, number * 10 - 25) if i in scan]
            for each in (m, scan):
                with each.batch():
                    each.add_many(new)
                    each.remove_many(gone)
            assert list(m.match_batch(EVENTS)) == list(scan.match_batch(EVENTS))
        m._layers.upkeep.rest()
        assert list(m.match_batch(EVENTS)) == list(scan.match_batch(EVENTS))
        assert m.stats()["background problem"] is None
        assert m.stats()["storage"]["segment files"] > 0
        assert len(m._layers.state.layers) < 10
    with open_matcher(folder) as m:
        assert list(m.match_batch(EVENTS)) == list(scan.match_batch(EVENTS)) and len(m) == len(scan)


def test_what_goes_during_a_merge_stays_gone(folder, small, monkeypatch):
    begun, go = threading.Event(), threading.Event()
    with open_matcher(folder, threads=1) as m:

        class Slow(Joined):
            def __init__(self, parts: Any) -> None:
                super().__init__(parts)
                if m._layers.upkeep.is_current_thread:
                    begun.set()
                    assert go.wait(20)

        monkeypatch.setattr("dibs.segments.segment_set.Joined", Slow)
        for i in range(4):
            m.add_many([(100 * i + k, "x = 1") for k in range(10)])
        assert begun.wait(20)
        m.remove_many([0, 1, 100, 205])
        m.replace(2, "x = 2")
        expected = m.match(EVENT)
        assert not {0, 1, 2, 100, 205} & set(expected) and len(expected) == 35
        go.set()
        m._layers.upkeep.rest()
        assert m.match(EVENT) == expected and m.match({"x": 2}) == [2]
        checkpoint(m)
        shutil.copytree(folder, folder.with_name("copy"))
        assert len(m) == 36
    for place in (folder, folder.with_name("copy")):
        with open_matcher(place) as again:
            assert again.match(EVENT) == expected and again.match({"x": 2}) == [2]


@pytest.mark.parametrize(
    "job", ["dibs.segments.segment_set.SegmentSet._merge_apart", "dibs.storage.durable.Durable._publish"]
)
def test_a_job_that_fails_is_told_and_tried_again(folder, small, monkeypatch, job, request):
    monkeypatch.setattr("dibs.segments.upkeep.PAUSE", 0.0)
    failing = pytest.MonkeyPatch()
    request.addfinalizer(failing.undo)  # whatever happens: other tests save too
    with open_matcher(folder, threads=1) as m:
        calls: list[int] = []

        def fails(*_: Any) -> None:
            calls.append(1)
            raise OSError("no luck today")

        failing.setattr(job, fails)
        for i in range(4):
            m.add_many([(100 * i + k, "x = 1") for k in range(10)])
            m._layers.upkeep.rest()
        assert calls and m.stats()["background problem"] == "no luck today"
        assert len(m.match(EVENT)) == 40
        m._layers.upkeep.rest()  # a job that was begun before fails after
        failing.undo()
        m.add("more", "x = 1")
        assert len(m.match(EVENT)) == 41
        m.match_batch([EVENT])  # makes a segment of what waits
        m._layers.upkeep.rest()
        assert m.stats()["background problem"] is None
        assert not m._layers._merging
        assert m.stats()["segments"] < 4 and m.stats()["storage"]["segment files"] > 0
    with open_matcher(folder) as m:
        assert len(m.match(EVENT)) == 41


def test_after_a_failure_there_is_a_pause(folder, small, monkeypatch):
    monkeypatch.setattr("dibs.segments.upkeep.PAUSE", 1000.0)
    calls: list[int] = []

    def fails(*_: Any) -> None:
        calls.append(1)
        raise OSError("no luck today")

    monkeypatch.setattr("dibs.storage.durable.Durable.checkpoint", fails)
    with open_matcher(folder, threads=1) as m:
        for i in range(60):
            m.add(i, "x = 1")
        m._layers.upkeep.rest()
        assert len(calls) == 1
        monkeypatch.undo()


def test_followers_are_not_disturbed_by_their_own_merges(folder, small, monkeypatch):
    """A follower that takes new segments while it is merging the old ones."""
    begun, go = threading.Event(), threading.Event()
    with open_matcher(folder, threads=1) as m, open_matcher(folder, read_only=True, threads=1) as follower:

        class Slow(Joined):
            def __init__(self, parts: Any) -> None:
                if follower._layers.upkeep.is_current_thread:
                    begun.set()
                    assert go.wait(20)
                super().__init__(parts)

        monkeypatch.setattr("dibs.segments.segment_set.Joined", Slow)
        for i in range(6):
            m.add_many([(100 * i + k, "x = 1") for k in range(10)])
            assert len(follower.match(EVENT)) == 10 * i + 10
        assert begun.wait(20)
        m.add_many([(10_000 + k, "x = 1") for k in range(100)])
        m._layers.upkeep.rest()
        checkpoint(m)
        m.remove(0)
        assert len(follower.match(EVENT)) == 159
        go.set()
        follower._layers.upkeep.rest()
        assert follower.match(EVENT) == m.match(EVENT)
        m.remove(1)
        assert follower.match(EVENT) == m.match(EVENT)
        follower._layers.upkeep.rest()
        assert follower.match(EVENT) == m.match(EVENT) and len(follower) == len(m)
        assert follower.stats()["background problem"] is None


def test_a_long_log_is_saved_on_closing(folder):
    with open_matcher(folder) as m:
        m.add_many([(i, "x = 1") for i in range(2000)])
    with open_matcher(folder) as m:
        assert m.stats()["storage"]["changes to replay"] == 0
        m.add("a", "x = 1")
    with open_matcher(folder) as m:
        assert m.stats()["storage"]["changes to replay"] == 1 and len(m) == 2001


def test_a_matcher_that_outlives_the_modules_goes_silently(folder: Path) -> None:
    """One that nobody closed, deleted by the interpreter when globals are None."""
    keep = "from dibs.storage import durable; durable.kept = m"
    program = f"import sys, dibs; m = dibs.Matcher.open(sys.argv[1]); m.add('a', 'x = 1'); {keep}; del m"
    done = subprocess.run([sys.executable, "-c", program, str(folder)], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    with open_matcher(folder) as again:
        assert again.match(EVENT) == ["a"]
