"""The catalog under interrupts at any moment, and in processes that fork."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from crash_writer import in_child

from dibs.errors import DibsError, StorageError
from dibs.storage import sqlite
from dibs.storage.catalog import Catalog
from dibs.storage.sqlite import DATA
from interrupts import Signals


@pytest.fixture
def folder() -> Iterator[Path]:
    room = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    path = Path(tempfile.mkdtemp(prefix="dibs-catalog-", dir=room))
    yield path / "catalog"
    shutil.rmtree(path)


@pytest.fixture
def signals() -> Iterator[Signals]:
    before = signal.getsignal(signal.SIGALRM)
    yield Signals(random.Random(3))
    signal.signal(signal.SIGALRM, before)


def texts(n: int, version: int) -> pa.Array:
    return pa.array([f"a = {version}"] * n, pa.large_string())


def test_interrupts_at_any_moment(folder: Path, signals: Signals) -> None:
    """Of a call, all or nothing is there, and the next one works."""
    catalog = Catalog.open(folder)
    outside = sqlite3.connect(folder / DATA, timeout=0, isolation_level=None)
    n, cut = 300, {True: 0, False: 0}
    catalog.write_columns(pa.array(np.arange(n)), texts(n, 0), None, 1)
    assert len(catalog.columns()[1]) == 1 and catalog.check() == []  # all is compiled
    calls: dict[str, tuple[Callable[[int], Any], int]] = {
        "write": (lambda v: catalog.write([(i, f"a = {v}", 1.0) for i in range(n)], v + 1), n),
        "remove": (lambda v: catalog.write([(1, None, 1.0), (1, f"a = {v}", 1.0)], v + 1), 2),
        "write_columns": (lambda v: catalog.write_columns(pa.array(np.arange(v, v + n)), texts(n, v), None, v + 1), n),
        "trim": (lambda v: catalog.trim(v), 0),
        "get": (lambda v: catalog.get(5), 0),
        "columns": (lambda v: catalog.columns(), 0),
        "news": (lambda v: catalog.news(v - n), 0),
        "version": (lambda v: (catalog.version, catalog.stamp()), 0),
    }
    end = time.monotonic() + 12
    while time.monotonic() < end:
        for name, (call, changes) in calls.items():
            before = catalog.version
            was_cut = signals.call(name, lambda call=call, v=before: call(v))  # type: ignore[misc]
            cut[was_cut] += 1
            after = catalog.version
            assert after in ({before, before + changes} if was_cut else {before + changes}), name
            outside.execute("BEGIN IMMEDIATE")  # nobody holds anything
            outside.execute("ROLLBACK")
            if name == "write":
                found = catalog.get_many(range(n))
                assert len({e.version - e.id for e in found if e is not None and e.id != 1}) == 1
    assert min(cut.values()) > 20, cut
    assert catalog.check() == []
    outside.close()
    catalog.close()
    with Catalog.open(folder) as catalog:
        assert catalog.check() == []


def test_interrupts_of_closing(folder: Path, signals: Signals) -> None:
    cut = 0
    for round_ in range(150):
        catalog = Catalog.open(folder)
        catalog.write([(round_, "a = 1", 1.0)], round_ + 1)
        cut += signals.call("close", catalog.close)
        catalog.close()
        with pytest.raises(StorageError, match="is closed"):
            catalog.get(1)
    with Catalog.open(folder) as catalog:
        assert catalog.version == 150 and catalog.check() == []
    assert cut > 20  # how many of the others come to their end is up to the machine


def test_interrupts_of_opening(folder: Path, signals: Signals) -> None:
    Catalog.open(folder).close()
    cut = sum(signals.call("open", lambda: Catalog.open(folder).close()) for _ in range(150))
    assert cut > 20  # how many of the others come to their end is up to the machine
    with Catalog.open(folder) as catalog:
        catalog.write([(1, "a = 1", 1.0)], 1)
        assert catalog.check() == []


def test_what_an_interrupt_left_open_is_rolled_back(folder: Path) -> None:
    """An interrupt that came while another one was being handled."""
    with Catalog.open(folder) as catalog:
        catalog.write([(1, "a = 1", 1.0)], 1)
        for session in (catalog._writer, catalog._reader):
            session._connection.execute("BEGIN")
            session._connection.execute("SELECT * FROM state").fetchall()
        catalog._writer._connection.execute("DELETE FROM subscriptions")
        assert catalog.get(1) is not None
        catalog.write([(2, "a = 1", 1.0)], 2)
        assert len(catalog) == 2 and catalog.check() == []


# ---- forks ----


def inherited(catalog: Catalog) -> list[str]:
    """What an inherited catalog says."""
    told = []
    write = lambda: catalog.write([(1, "a = 1", 1.0)], 2)  # noqa: E731
    for use in (lambda: catalog.get(1), lambda: catalog.version, catalog.stamp, write, catalog.columns):
        try:
            use()
            told.append("")
        except StorageError as e:
            told.append(str(e))
    catalog.close()
    return told


@pytest.mark.parametrize("busy", [False, True])
def test_forked_children(folder: Path, busy: bool) -> None:
    """With other threads at work: never a hang, and no harm to the parent's file."""
    stop, problems = threading.Event(), list[BaseException]()
    with Catalog.open(folder) as catalog:
        catalog.write([(1, "a = 1", 1.0)], 1)

        def work(way: Callable[[], Any]) -> None:
            try:
                while not stop.is_set():
                    way()
            except BaseException as e:
                problems.append(e)

        ways: list[Callable[[], Any]] = [
            lambda: catalog.get_many([1] * 50),
            catalog.columns,
            lambda: catalog.write([(f"parent {catalog.version}", "a = 1", 1.0)], catalog.version + 1),
            lambda: Catalog.open(folder, read_only=True).close(),
        ]
        threads = [threading.Thread(target=work, args=(way,)) for way in ways if busy]
        for thread in threads:
            thread.start()

        def child() -> list[str]:
            told = inherited(catalog)
            with Catalog.open(folder, read_only=True) as own:  # its own
                assert own.get(1) is not None and own.check() == []
            return told

        for _ in range(12):
            told = in_child(child, 30)
            assert all("was opened before this process was forked: open it again here" in text for text in told)
        stop.set()
        for thread in threads:
            thread.join()
        assert not problems
        catalog.write([("last", "a = 1", 1.0)], catalog.version + 1)
        assert catalog.check() == []


def test_a_forked_child_writes_to_its_own(folder: Path) -> None:
    with Catalog.open(folder) as catalog:
        catalog.write([(1, "a = 1", 1.0)], 1)
        for round_ in range(5):

            def child(round_: int = round_) -> bool:
                with Catalog.open(folder) as own:
                    own.write([(f"child {round_}", "a = 1", 1.0)], own.version + 1)
                    return own.check() == []

            assert in_child(child)
            assert catalog.get(f"child {round_}") is not None
            catalog.write([(f"parent {round_}", "a = 1", 1.0)], catalog.version + 1)
        assert (len(catalog), catalog.check()) == (11, [])


def test_a_fork_within_a_call(folder: Path) -> None:
    """The connection cannot be closed then: the child leaves it alone, and refuses the file."""
    with Catalog.open(folder) as catalog:
        catalog.write([(1, "a = 1", 1.0)], 1)

        def work(connection: sqlite3.Connection) -> str:
            def child() -> str:
                with pytest.raises(StorageError, match="before this process was forked"):
                    catalog.get(1)
                with pytest.raises(StorageError, match="start processes by spawn"):
                    Catalog.open(folder)
                return "told"

            told = in_child(child)
            connection.execute("SELECT * FROM state").fetchall()
            return str(told)

        assert catalog._reader.read(work) == "told"
        assert catalog.get(1) is not None and catalog.check() == []


def test_a_call_that_takes_longer_than_a_fork_waits(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "FORK_WAITS", 0.1)
    with Catalog.open(folder) as catalog:
        catalog.write([(1, "a = 1", 1.0)], 1)
        inside, leave = threading.Event(), threading.Event()

        def long(connection: sqlite3.Connection) -> None:
            inside.set()
            leave.wait(30)

        thread = threading.Thread(target=lambda: catalog._reader.read(long))
        thread.start()
        inside.wait(30)

        def child() -> str:
            try:
                Catalog.open(folder)
            except DibsError as e:
                return str(e)
            return ""

        assert "was in use when this process was forked" in in_child(child)
        leave.set()
        thread.join()
        assert catalog.get(1) is not None and catalog.check() == []


def test_the_file_that_another_program_holds(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "PATIENCE", 0.1)
    with Catalog.open(folder) as catalog, closing(sqlite3.connect(folder / DATA, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StorageError, match="another program has held it"):
            catalog.write([(1, "a = 1", 1.0)], 1)
        assert catalog.get(1) is None
        other.execute("ROLLBACK")
        catalog.write([(1, "a = 1", 1.0)], 1)
