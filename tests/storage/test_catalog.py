"""The catalog: against a dict, across processes and threads, on full and read-only disks, and killed."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dibs.errors import DamagedError, FormatError, StorageError
from dibs.segments.ids import Id
from dibs.storage import catalog_check
from dibs.storage.catalog import Catalog
from dibs.storage.catalog_check import SEAL, read_seal
from dibs.storage.catalog_rows import Entry, checksum_of, checksums_of, rows_of_columns
from dibs.storage.sqlite import DATA, LOG
from dibs.tuning import using

ROOT = Path(__file__).parents[2]
LONG_IDS = ["y" * n for n in (478, 479, 480, 481, 482, 510, 511, 512, 5000)] + ["y" * 600 + str(i) for i in range(3)]
IDS: list[Id] = [0, 1, -1, 2**63 - 1, -(2**63), "", "\0", "a\0b", "1", "ä", "𝄞", *LONG_IDS]


@pytest.fixture
def folder() -> Iterator[Path]:
    """In memory: the tests commit a lot."""
    room = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    path = Path(tempfile.mkdtemp(prefix="dibs-catalog-", dir=room))
    yield path / "catalog"
    shutil.rmtree(path)


def key_order(id: Id) -> Any:
    return (0, id, b"") if isinstance(id, int) else (1, 0, id.encode())


def everything(catalog: Catalog) -> list[Entry]:
    return [entry for batch in catalog.entries(batch=7) for entry in batch]


def from_columns(catalog: Catalog) -> tuple[int, list[Entry]]:
    """In the order of ids."""
    version, parts = catalog.columns()
    found = []
    for part in parts:
        part.ids.validate(full=True)
        part.texts.validate(full=True)
        rows = zip(part.ids.to_pylist(), part.texts.to_pylist(), part.weights, part.versions, part.times)
        found += [Entry(id, text, float(w), int(v), int(t)) for id, text, w, v, t in rows]
    return version, sorted(found, key=lambda entry: key_order(entry.id))


def columns(rows: list[tuple[Id, str, float]]) -> tuple[pa.Array, pa.Array, Any]:
    type_ = pa.int64() if isinstance(rows[0][0], int) else pa.large_string()
    ids, texts, weights = zip(*rows)
    return pa.array(ids, type_), pa.array(texts, pa.large_string()), np.array(weights)


ids = st.sampled_from(IDS) | st.integers(-5, 5) | st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
texts = st.sampled_from(["", "a = 1", "TRUE " * 50, "b\0'ä𝄞'", "x" * 9000])
weights = st.floats(allow_nan=False)
changes = st.lists(st.tuples(ids, st.none() | texts, weights), max_size=12)
adds = st.one_of(
    st.lists(st.tuples(kind, texts, weights), min_size=1, max_size=12)
    for kind in (st.integers(-5, 5) | st.sampled_from(IDS[:5]), st.sampled_from([*IDS[5:], "b", "c"]))
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("write"), changes),
        st.tuples(st.just("columns"), adds),
        st.tuples(st.just("trim"), st.floats(0, 1)),
        st.tuples(st.just("reopen"), st.none()),
    ),
    max_size=8,
)


@settings(max_examples=60)
@given(steps, st.sampled_from([1, 2, 5, 10_000]), st.sampled_from([1, 1000]), st.sampled_from([0, 10**9]))
def test_as_a_dict(steps: list[tuple[str, Any]], rows_read: int, index_rebuilt: int, by_two: int) -> None:
    sizes = {"catalog_rows_read": rows_read, "catalog_index_rebuilt": index_rebuilt, "catalog_checked_by_two": by_two}
    with using(sizes):
        _as_a_dict(steps)


def _as_a_dict(steps: list[tuple[str, Any]]) -> None:
    room = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=room) as temporary:
        path = Path(temporary) / "catalog"
        catalog = Catalog.open(path)
        model: dict[Id, tuple[str, float, int]] = {}
        log: list[Id] = []
        trimmed = 0
        try:
            for step, value in steps:
                if step == "write":
                    catalog.write(value, len(log) + 1)
                elif step == "columns":
                    catalog.write_columns(*columns(value), len(log) + 1)
                elif step == "trim":
                    trimmed = max(trimmed, round(len(log) * value))
                    catalog.trim(trimmed)
                else:
                    catalog.close()
                    catalog = Catalog.open(path)
                for id, text, weight in value if step in ("write", "columns") else []:
                    log.append(id)
                    if text is None:
                        model.pop(id, None)
                    else:
                        model[id] = (text, weight, len(log))
                assert (catalog.version, catalog.trimmed, len(catalog)) == (len(log), trimmed, len(model))
                found = everything(catalog)
                assert [e.id for e in found] == sorted(model, key=key_order)
                assert {e.id: (e.text, e.weight, e.version) for e in found} == model
                assert from_columns(catalog) == (len(log), found)
                assert catalog.check() == []
            for since in range(trimmed, len(log) + 1):
                news = catalog.news(since)
                touched = set(log[since:])
                assert news is not None and news.version == len(log)
                assert {e.id: (e.text, e.weight, e.version) for e in news.entries} == {
                    id: model[id] for id in touched & model.keys()
                }
                assert set(news.removed) == touched - model.keys()
            assert trimmed == 0 or catalog.news(trimmed - 1) is None
        finally:
            catalog.close()


def test_get(folder: Path) -> None:
    with Catalog.open(folder) as catalog:
        catalog.clock = lambda: 1234
        catalog.write([(id, f"a = {i}", i / 2) for i, id in enumerate(IDS)], 1)
        for i, id in enumerate(IDS):
            assert catalog.get(id) == Entry(id, f"a = {i}", i / 2, i + 1, 1234)
        assert catalog.get("nobody") is None and catalog.get(77) is None and catalog.get("y" * 700) is None
        assert [None if e is None else e.id for e in catalog.get_many([1, 99, "ä"])] == [1, None, "ä"]


def test_entries_after_an_id(folder: Path) -> None:
    with Catalog.open(folder) as catalog:
        catalog.write([(id, "a = 1", 1.0) for id in IDS], 1)
        order = [entry.id for entry in everything(catalog)]
        assert order[:5] == [-(2**63), -1, 0, 1, 2**63 - 1]
        for i, id in enumerate(order):
            assert [e.id for batch in catalog.entries(after=id, batch=3) for e in batch] == order[i + 1 :]
        assert [e.id for batch in catalog.entries(after="zz") for e in batch] == order[order.index("ä") :]


def test_entries_while_they_change(folder: Path) -> None:
    """What stays comes once, whatever else comes and goes."""
    with Catalog.open(folder) as catalog:
        catalog.write([(i, "stays", 1.0) for i in range(0, 100, 2)], 1)
        found = []
        for n, batch in enumerate(catalog.entries(batch=5)):
            found += [e.id for e in batch if e.text == "stays"]
            catalog.write([(i, None if n % 2 else "new", 1.0) for i in range(1, 100, 2)], catalog.version + 1)
        assert found == list(range(0, 100, 2))


def test_versions_must_continue(folder: Path) -> None:
    with Catalog.open(folder) as catalog:
        catalog.write([(1, "a = 1", 1.0)], 1)
        for wrong in (0, 1, 3):
            with pytest.raises(
                StorageError, match=f"the next change has the version 2, not {wrong}; has somebody else"
            ):
                catalog.write([(2, "a = 1", 1.0)], wrong)
            with pytest.raises(StorageError, match="the next change has the version 2"):
                catalog.write_columns(*columns([(2, "a = 1", 1.0)]), wrong)
        assert (len(catalog), catalog.version, catalog.get(2)) == (1, 1, None)


def test_trimming(folder: Path) -> None:
    with Catalog.open(folder) as catalog:
        catalog.write([(i, "a = 1", 1.0) for i in range(1000)], 1)
        catalog.write([(i, None, 1.0) for i in range(0, 1000, 2)], 1001)
        catalog.trim(1300)
        catalog.trim(1200)  # no effect
        assert catalog.trimmed == 1300 and catalog.news(1299) is None and catalog.check() == []
        news = catalog.news(1300)
        assert news is not None and sorted(news.removed, key=key_order) == list(range(600, 1000, 2))
        assert not news.entries and news.version == 1500
        with pytest.raises(StorageError, match="has changes up to 1500, not up to 1501"):
            catalog.trim(1501)


def test_time_never_goes_back(folder: Path) -> None:
    with Catalog.open(folder) as catalog:
        for now, expected in ((1000, 1000), (500, 1000), (1001, 1001), (-5, 1001)):
            catalog.clock = lambda now=now: now  # type: ignore[misc]
            catalog.write([(now, "a = 1", 1.0)], catalog.version + 1)
            catalog.write_columns(*columns([(f"{now}", "a = 1", 1.0)]), catalog.version + 1)
            assert catalog.get(now).time == catalog.get(f"{now}").time == expected  # type: ignore[union-attr]
    with Catalog.open(folder) as catalog:
        catalog.clock = lambda: 7
        catalog.write([(1, "a = 1", 1.0)], catalog.version + 1)
        assert catalog.get(1).time == 1001  # type: ignore[union-attr]


def edit(folder: Path, *statements: str) -> None:
    """With SQLite itself, as if the disk had done it."""
    with closing(sqlite3.connect(folder / DATA)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE subscriptions SET expression = (SELECT expression FROM subscriptions WHERE id = 1) WHERE id = 2",
        "UPDATE subscriptions SET id = 4 WHERE id = 2",
        "UPDATE subscriptions SET id = '2' WHERE id = 2",
        "UPDATE subscriptions SET weight = weight + 1e-9 WHERE id = 2",
        "UPDATE subscriptions SET version = 77 WHERE id = 2",
        "UPDATE subscriptions SET time = time + 1 WHERE id = 2",
        "UPDATE subscriptions SET checksum = checksum + 1 WHERE id = 2",
        "UPDATE subscriptions SET expression = x'ff' WHERE id = 2",
        "UPDATE subscriptions SET expression = CAST(x'ff' AS TEXT) WHERE id = 2",
        "UPDATE subscriptions SET id = 2.5 WHERE id = 2",
        "UPDATE subscriptions SET checksum = 'x' WHERE id = 2",
        "UPDATE subscriptions SET time = 'x' WHERE id = 2",
        "UPDATE removed SET id = '3'",
        "UPDATE removed SET version = 1",
        "DELETE FROM removed",
        "DELETE FROM subscriptions WHERE id = 2",
        "INSERT INTO subscriptions SELECT 5, expression, weight, 78, time, checksum FROM subscriptions WHERE id = 1",
        "UPDATE state SET version = 3",
        "UPDATE state SET identity = '0'",
        "DELETE FROM state",
        "DROP INDEX by_id",
        "CREATE TABLE more (x)",
        "PRAGMA application_id = 1",
    ],
)
@pytest.mark.parametrize("by_two", [0, 10**9])
def test_what_somebody_else_changed_is_found(folder: Path, statement: str, by_two: int) -> None:
    with using({"catalog_checked_by_two": by_two}):
        _what_somebody_else_changed_is_found(folder, statement)


def _what_somebody_else_changed_is_found(folder: Path, statement: str) -> None:
    with Catalog.open(folder) as catalog:
        catalog.write([(1, "a = 1", 1.0), (2, "a = 2", 1.0), (3, "a = 1", 1.0)], 1)
        catalog.write([(3, None, 1.0)], 4)
        edit(folder, statement)
        [problem] = catalog.check()
        assert str(folder / DATA) in problem and "restore a backup" in problem
        if "WHERE id = 2" in statement and "version = 77" not in statement:
            for read in (catalog.columns, lambda: list(catalog.entries()), lambda: catalog.news(0)):
                if "DELETE" not in statement:
                    with pytest.raises(DamagedError, match="restore a backup"):
                        read()
    for read_only in (False, True):
        with pytest.raises(DamagedError, match="restore a backup"):
            Catalog.open(folder, read_only=read_only)


def test_an_index_that_differs_is_found(folder: Path) -> None:
    """SQLite's quick check looks at the pages of an index, not at what they say."""
    with Catalog.open(folder) as catalog:
        catalog.write([(f"id {i}", "a = 1", 1.0) for i in range(500)], 1)
    content = bytearray((folder / DATA).read_bytes())
    places = [m.start() for m in re.finditer(b"id 250", content)]
    kinds = {place: content[place // 4096 * 4096] for place in places}
    assert {10, 13} <= {*kinds.values()}, "leaves of the index and of the table"
    for place in places:
        if kinds[place] == 10:
            content[place : place + 6] = b"id 25O"
    (folder / DATA).write_bytes(content)
    with pytest.raises(DamagedError, match="the index of ids"):
        Catalog.open(folder)


def test_later_formats_are_refused(folder: Path) -> None:
    Catalog.open(folder).close()
    edit(folder, "PRAGMA user_version = 4")
    with pytest.raises(
        FormatError, match="has the format 4, this version of Dibs reads up to 3: use the version that wrote it"
    ):
        Catalog.open(folder)


def test_a_catalog_of_lmdb_is_refused(folder: Path) -> None:
    folder.mkdir()
    (folder / "data.mdb").write_bytes(bytes(8192))
    for read_only in (False, True):
        with pytest.raises(FormatError, match=r"earlier version of Dibs.* export it with that version .* import it"):
            Catalog.open(folder, read_only=read_only)


def test_each_part_of_a_row_counts() -> None:
    seed = np.uint64(7)
    for id in IDS:
        whole = Entry(id, "a = 'ä'", -0.5, 7, 8)
        others = [whole._replace(id=other) for other in (*IDS, 7, "7") if other != id or type(other) is not type(id)]
        others += [whole._replace(text=text) for text in ("a = 'ä' ", "a = 'a'", "", "a = 'ä'\0")]
        others += [whole._replace(weight=0.5), whole._replace(version=8, time=7), whole._replace(time=9)]
        sums = [checksum_of(entry, seed) for entry in (whole, *others)]
        assert len(set(sums)) == 1 + len(others)
        assert checksum_of(whole, np.uint64(8)) != sums[0]


def test_checksums_of_columns_are_the_same() -> None:
    for ids in (IDS[:5], IDS[5:]):
        entries = [Entry(id, f"x{i}ä", i / 3, 5 + i, 9) for i, id in enumerate(ids)]
        column, texts, weights = columns([(e.id, e.text, e.weight) for e in entries])
        rows = rows_of_columns(column, texts, weights, np.arange(5, 5 + len(ids)), 9)
        assert checksums_of(rows, np.uint64(7)).tolist() == [checksum_of(entry, np.uint64(7)) for entry in entries]


@pytest.mark.parametrize("there", [0, 10, 5000])
@pytest.mark.parametrize("kind", [int, str])
def test_bulk_and_single_writing_make_the_same_rows(folder: Path, kind: Any, there: int) -> None:
    """With ids that repeat, and ids that are taken."""
    rng = random.Random(1)
    for distinct in (False, True):
        numbers = list(range(3000)) if distinct else [rng.randrange(2000) for _ in range(3000)]
        rows = [(kind(n), "a = 1 AND b = 2 " * rng.randrange(9), rng.random()) for n in numbers]
        found = []
        for way in ("write", "write_columns"):
            with Catalog.open(folder.with_name(f"{way}-{distinct}")) as catalog:
                catalog.clock = lambda: 5
                catalog.write([(kind(5000 + i), "old", 1.0) for i in range(there)], 1)
                if way == "write":
                    catalog.write(rows, there + 1)
                else:
                    catalog.write_columns(*columns(rows), there + 1)  # type: ignore[arg-type]
                found.append((catalog.count(), everything(catalog)))
                assert catalog.check() == []
        assert found[0] == found[1]


def test_minus_zero_is_zero(folder: Path) -> None:
    """SQLite keeps no sign of a zero, so neither does the checksum."""
    with Catalog.open(folder) as catalog:
        catalog.write([(1, "a = 1", -0.0)], 1)
        catalog.write_columns(*columns([(2, "a = 1", -0.0), (3, "a = 1", float("-inf"))]), 2)
        assert [e.weight for e in everything(catalog)] == [0.0, 0.0, float("-inf")] and catalog.check() == []


def test_anybody_can_read_it(folder: Path) -> None:
    with Catalog.open(folder) as catalog:
        catalog.clock = lambda: 5
        catalog.write([("7", "a = 1", 2.5), (7, "b = 'x'", 1.0)], 1)
        with closing(sqlite3.connect(folder / DATA)) as connection:
            found = connection.execute("SELECT id, typeof(id), expression, weight, version, time FROM subscriptions")
            assert found.fetchall() == [("7", "text", "a = 1", 2.5, 1, 5), (7, "integer", "b = 'x'", 1.0, 2, 5)]


def test_a_text_that_is_too_long_for_many(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What SQLite cannot put together at once is read in smaller parts."""
    with Catalog.open(folder) as catalog:
        catalog.write([(i, "x" * 2000, 1.0) for i in range(40)], 1)
        catalog.get(1)
        connection = catalog._reader._connection
        if sys.version_info < (3, 11):
            return
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 9000)
        assert len(from_columns(catalog)[1]) == 40


def test_room_is_reused(folder: Path) -> None:
    n = 20_000
    rng = np.random.default_rng(0)
    texts = pa.array([f"price <= {i} AND model = 'iphone5s' AND color = 'silver'" for i in range(n)], pa.large_string())
    with Catalog.open(folder) as catalog:
        sizes = []
        for _ in range(3):
            catalog.write_columns(pa.array(rng.permutation(n)), texts, None, catalog.version + 1)
            for start in range(0, n, n // 4):
                catalog.write([(i, None, 1.0) for i in range(start, start + n // 4)], catalog.version + 1)
            catalog.trim(catalog.version)
            sizes.append(catalog.sizes()["file"])
            assert len(catalog) == 0 and catalog.check() == []
        assert sizes[-1] <= 1.2 * sizes[0]
        assert catalog.sizes()["used"] < 100_000 < catalog.sizes()["file"]


def test_opening(folder: Path) -> None:
    for wrong in (dict(read_only=True), dict(create=False)):
        with pytest.raises(StorageError, match="there is no catalog"):
            Catalog.open(folder, **wrong)
    assert not folder.exists()
    leftover = folder.with_name("catalog.partial-999999999")
    leftover.mkdir()
    with Catalog.open(folder) as writer:
        assert not leftover.exists() and os.listdir(folder.parent) == ["catalog"]
        identity = writer.identity
        with Catalog.open(folder, read_only=True) as reader:
            writer.write([(1, "a = 1", 1.0)], 1)
            assert (reader.version, reader.identity, len(reader)) == (1, identity, 1)
            with pytest.raises(StorageError, match="was opened with read_only=True"):
                reader.write([], 2)
        assert writer.get(1) is not None
    with pytest.raises(StorageError, match="is closed"):
        writer.get(1)
    writer.close()
    with Catalog.open(folder, read_only=True) as reader:  # now the reader comes first
        seen = reader.stamp()
        assert seen == reader.stamp()
        with Catalog.open(folder) as writer:
            writer.write([(2, "a = 1", 1.0)], 2)
            assert reader.stamp() != seen and reader.version == 2
        assert reader.get(2) is not None
    assert len(identity) == 32 and identity != Catalog.open(folder.with_name("other")).identity


def test_threads_read_while_one_writes(folder: Path) -> None:
    problems: list[BaseException] = []
    with Catalog.open(folder) as catalog:
        stop = threading.Event()

        def read() -> None:
            try:
                while not stop.is_set():
                    version = catalog.version
                    assert version % 50 == 0
                    entries = catalog.get_many(range(version))
                    assert all(e is not None and e.version == e.id + 1 for e in entries)
                    read_version, found = from_columns(catalog)
                    assert len(found) == read_version >= version
            except BaseException as e:
                problems.append(e)

        threads = [threading.Thread(target=read) for _ in range(3)]
        for thread in threads:
            thread.start()
        for n in range(60):
            catalog.write([(i, "x" * 2000, 1.0) for i in range(50 * n, 50 * n + 50)], 50 * n + 1)
        stop.set()
        for thread in threads:
            thread.join()
        assert not problems
        assert catalog.check() == []


def python(program: str, *arguments: object, before: str = "", **options: Any) -> subprocess.Popen[str]:
    """A process that runs the program, after shell commands in a namespace of its own if there are any."""
    head = "import sys; from pathlib import Path; from dibs.storage.catalog import Catalog\n"
    command = [sys.executable, "-c", head + textwrap.dedent(program), *map(str, arguments)]
    if before:
        command = ["unshare", "-rm", "sh", "-c", before + ' && exec "$@"', "sh", *command]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stdin=pipe, stderr=pipe, text=True, cwd=ROOT, **options)


def answer(process: subprocess.Popen[str]) -> list[str]:
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    return out.splitlines()


def can_mount() -> bool:
    try:
        return (
            subprocess.run(["unshare", "-rm", "mount", "-t", "tmpfs", "x", "/mnt"], capture_output=True).returncode == 0
        )
    except OSError:
        return False


needs_mount = pytest.mark.skipif(not can_mount(), reason="mounting is not allowed here")


def test_another_process_reads(folder: Path) -> None:
    """It sees each commit."""
    with Catalog.open(folder) as catalog:
        reader = python(
            """
            reader = Catalog.open(Path(sys.argv[1]), read_only=True)
            print(reader.version, flush=True)
            for line in sys.stdin:
                print(reader.version, len(reader), sum(map(len, reader.entries())), reader.check(), flush=True)
            """,
            folder,
        )
        assert reader.stdin and reader.stdout
        assert reader.stdout.readline() == "0\n"
        n = 0
        for rows in (1, 10, 30_000, 100):
            texts = pa.array(["x" * 1000] * rows, pa.large_string())
            catalog.write_columns(pa.array(np.arange(n, n + rows)), texts, None, n + 1)
            n += rows
            reader.stdin.write("\n")
            reader.stdin.flush()
            assert reader.stdout.readline() == f"{n} {n} {n} []\n"
        answer(reader)


def test_a_reader_opens_while_another_process_writes(folder: Path) -> None:
    Catalog.open(folder).close()
    writer = python(
        """
        import time
        writer, end = Catalog.open(Path(sys.argv[1])), time.time() + 2
        print("ready", flush=True)
        while time.time() < end:
            n = writer.version
            writer.write([(i % 500, None if i % 3 == 0 else f"a = {i}", 1.0) for i in range(n, n + 20)], n + 1)
            if n % 2000 == 0:
                writer.trim(n)
        """,
        folder,
    )
    assert writer.stdout and writer.stdout.readline() == "ready\n"
    opened = 0
    while writer.poll() is None:
        with Catalog.open(folder, read_only=True) as reader:
            assert reader.version % 20 == 0
            version, found = from_columns(reader)
            assert all(e.version <= version and int(e.text[4:]) % 500 == e.id for e in found)
            opened += 1
    answer(writer)
    assert opened > 5


def test_a_second_writer_is_found_by_its_versions(folder: Path) -> None:
    with Catalog.open(folder) as catalog:
        catalog.write([(1, "a = 1", 1.0)], 1)
        answer(python("Catalog.open(Path(sys.argv[1])).write([(2, 'b = 1', 1.0)], 2)", folder))
        with pytest.raises(StorageError, match="the next change has the version 3, not 2"):
            catalog.write([(3, "a = 1", 1.0)], 2)


def test_killed_while_writing(folder: Path) -> None:
    """What was acknowledged is there, and nothing is there in part."""
    rng = random.Random(0)
    program = """
        import numpy as np, pyarrow as pa
        catalog, n = Catalog.open(Path(sys.argv[1])), 20_000
        print("ready", flush=True)
        for round_ in range(10**6):
            ids = pa.array(np.random.default_rng(round_).permutation(3 * n)[:n])
            first = catalog.version + 1
            texts = pa.array([f"a = {first}"] * n, pa.large_string())
            catalog.write_columns(ids, texts, None, first)
            print(catalog.version, flush=True)
            catalog.trim(first - 1)
        """
    for _ in range(3):
        process = python(program, folder)
        assert process.stdout and process.stdout.readline() == "ready\n"
        process.stdout.readline()
        time.sleep(rng.random() * 0.5)
        process.send_signal(signal.SIGKILL)
        acknowledged = [line for line in process.communicate()[0].splitlines(keepends=True) if line.endswith("\n")]
        with Catalog.open(folder) as catalog:
            assert catalog.version % 20_000 == 0
            assert catalog.version >= int(acknowledged[-1]) if acknowledged else catalog.version > 0
            version, found = from_columns(catalog)
            last = version - 20_000 + 1
            assert sum(e.text == f"a = {last}" for e in found) == 20_000
            assert [p.name for p in folder.parent.iterdir()] == ["catalog"]


FILL = """
    import errno, os, resource
    from dibs.errors import StorageError
    path, limit = Path(sys.argv[1]), int(sys.argv[2])
    catalog = Catalog.open(path)
    catalog.write([(i, "x" * 500, 1.0) for i in range(100)], 1)
    if limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    failed = 0
    for size in (3000, 5000, 1):
        while True:
            n = catalog.version
            try:
                catalog.write([(i, "x" * size, 1.0) for i in range(n, n + 20)], n + 1)
            except StorageError as e:
                failed += 1
                print(e, flush=True)
                assert catalog.version == n and len(catalog) == n and catalog.get(n) is None
                break
            assert n < 100_000
    assert catalog.check() == []
    if limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    else:
        os.system(f"mount -o remount,size=20m {path.parent}")
    n = catalog.version
    catalog.write([(i, "x" * 5000, 1.0) for i in range(n, n + 20)], n + 1)
    catalog.close()
    catalog = Catalog.open(path)
    assert (catalog.version, len(catalog)) == (n + 20, n + 20)
    print("done", failed)
    """


@needs_mount
def test_a_full_disk(folder: Path) -> None:
    folder.parent.mkdir(exist_ok=True)
    where = folder.parent / "disk"
    where.mkdir()
    lines = answer(python(FILL, where / "catalog", 0, before=f"mount -t tmpfs -o size=1500k x {where}"))
    assert lines[-1] == "done 3"
    assert all("the disk is full" in line or "is the disk full" in line for line in lines[:-1])


def test_a_limit_of_the_file(folder: Path) -> None:
    lines = answer(python(FILL, folder, 1_500_123))
    assert lines[-1] == "done 3"
    assert all("ulimit -f" in line for line in lines[:-1])


READ = """
    catalog = Catalog.open(Path(sys.argv[1]), read_only=True)
    print(catalog.version, catalog.get(1).text, catalog.check(), flush=True)
    from dibs.errors import StorageError
    try:
        Catalog.open(Path(sys.argv[1])).write([(2, "a = 1", 1.0)], 2)
    except StorageError as e:
        print(e)
    """


@needs_mount
@pytest.mark.parametrize("log", ["none", "left by a killed writer", "empty"])
def test_a_disk_that_cannot_be_written(folder: Path, log: str) -> None:
    answer(python("Catalog.open(Path(sys.argv[1])).write([(1, 'a = 1', 1.0)], 1)", folder))
    if log == "left by a killed writer":
        answer(python("import os; Catalog.open(Path(sys.argv[1])).write([(1, 'a = 2', 1.0)], 2); os._exit(0)", folder))
        assert (folder / LOG).stat().st_size
    else:
        with Catalog.open(folder) as catalog:
            catalog.write([(1, "a = 2", 1.0)], 2)
    if log == "empty":
        Catalog.open(folder, read_only=True).close()
        assert (folder / LOG).exists()
    lines = answer(python(READ, folder, before=f"mount --bind {folder} {folder} && mount -o remount,bind,ro {folder}"))
    assert lines[0] == "2 a = 2 []"
    assert "check the permissions" in lines[1]


@pytest.mark.skipif(os.getuid() != 0, reason="only root becomes somebody else")
def test_a_folder_of_somebody_else(folder: Path) -> None:
    """A reader that may not write anything, not even where it reads, reads right things."""
    folder.parent.chmod(0o755)
    with Catalog.open(folder) as catalog:
        catalog.write([(i, "a = 1", 1.0) for i in range(300)], 1)
        folder.chmod(0o755)
        reader = python(
            """
            import os
            from dibs.errors import StorageError
            with Catalog.open(Path(sys.argv[1]), read_only=True) as catalog:
                catalog.get_many(range(300))  # loads what nobody else may load
            os.setuid(65534)
            catalog = Catalog.open(Path(sys.argv[1]), read_only=True)
            print("ready", flush=True)
            seen = set()
            while len(seen) < 40:
                entries = catalog.get_many(range(300))
                versions = {e.version - e.id for e in entries}
                assert len(versions) == 1, versions  # all of one write
                seen |= versions
            print("done")
            """,
            folder,
        )
        assert reader.stdout and reader.stdout.readline() == "ready\n"
        while reader.poll() is None:
            catalog.write([(i, f"a = {catalog.version}", 1.0) for i in range(300)], catalog.version + 1)
            catalog.trim(catalog.version)
            time.sleep(0.005)
        assert answer(reader) == ["done"]


def test_the_log_stays_small(folder: Path) -> None:
    """Also with readers that stay open, and after a large change."""
    with Catalog.open(folder) as catalog, Catalog.open(folder, read_only=True) as reader:
        n = 20_000
        for _ in range(3):
            rows = pa.array(np.arange(n)), pa.array(["x" * 2000] * n, pa.large_string()), None
            catalog.write_columns(*rows, catalog.version + 1)
            assert reader.get(n - 1) is not None
        largest = 0
        for i in range(3000):
            catalog.write([(i, "y" * 2000, 1.0)], catalog.version + 1)
            assert reader.version == catalog.version
            largest = max(largest, catalog.sizes()["wal"])
        assert largest < 1 << 25 and catalog.sizes()["wal"] < 17 << 20
        assert reader.check() == []


# ---- the seal ----


def test_what_was_closed_is_sealed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And opens without a look at each row; after a kill it does not."""
    looks: list[int] = []
    check_rows = catalog_check.check_rows
    monkeypatch.setattr(catalog_check, "check_rows", lambda c: (looks.append(1), check_rows(c))[1])
    with Catalog.open(folder) as catalog:
        catalog.write([(1, "a = 1", 1.0)], 1)
        assert read_seal(folder).committed == 1 and not read_seal(folder).size  # type: ignore[union-attr]
    looks.clear()
    for read_only in (True, False, True):
        with Catalog.open(folder, read_only=read_only) as catalog:
            assert catalog.version == 1 and not looks
    answer(python("import os; Catalog.open(Path(sys.argv[1])).write([(2, 'a = 1', 1.0)], 2); os._exit(0)", folder))
    with Catalog.open(folder) as catalog:
        assert catalog.version == 2 and looks
    looks.clear()
    assert Catalog.open(folder).version == 2 and not looks, "closing has sealed it, although nothing was written"


def test_closed_at_the_end_of_the_program(folder: Path) -> None:
    """When no thread can be started any more."""
    program = """
        import atexit
        from dibs.tuning import put
        import concurrent.futures.thread
        put({"catalog_checked_by_two": 0})
        catalog = Catalog.open(Path(sys.argv[1]))
        catalog.write([(i, "x" * 1000, 1.0) for i in range(6000)], 1)
        atexit.register(catalog.close)
        """
    process = python(program, folder)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0 and not errors
    assert read_seal(folder).size == (folder / DATA).stat().st_size  # type: ignore[union-attr]


def test_a_lost_log_is_found(folder: Path) -> None:
    """SQLite takes what is left for the whole."""
    Catalog.open(folder).close()
    program = """
        import os
        catalog = Catalog.open(Path(sys.argv[1]))
        for i in range(5):
            catalog.write([(i, "a = 1", 1.0)], i + 1)
        os._exit(0)
        """
    answer(python(program, folder))
    log = (folder / LOG).read_bytes()
    for damage in ("missing", "cut", "flipped", "empty"):
        copy = folder.with_name(damage)
        shutil.copytree(folder, copy)
        (copy / "catalog.db-shm").unlink()
        if damage == "missing":
            (copy / LOG).unlink()
        else:
            changed = bytearray(log)
            changed[len(log) // 2] ^= 4
            (copy / LOG).write_bytes({"cut": log[:-100], "empty": b"", "flipped": bytes(changed)}[damage])
        for read_only in (True, False):
            with pytest.raises(DamagedError, match=r"change 5 was committed: its log .* is missing or damaged"):
                Catalog.open(copy, read_only=read_only)
    with Catalog.open(folder) as catalog:
        assert catalog.version == 5


def test_a_lost_seal_is_made_again(folder: Path) -> None:
    for damage in (b"", b"nonsense", None):
        with Catalog.open(folder) as catalog:
            catalog.write([(1, "a = 1", 1.0)], catalog.version + 1)
        if damage is None:
            (folder / SEAL).unlink()
        else:
            (folder / SEAL).write_bytes(damage)
        with Catalog.open(folder) as catalog:
            assert read_seal(folder).committed == catalog.version  # type: ignore[union-attr]


def test_databases_and_logs_of_two_backups(folder: Path) -> None:
    """SQLite would put them together without a word."""
    program = """
        import os
        catalog = Catalog.open(Path(sys.argv[1]))
        catalog.write([(f"{sys.argv[2]} {i}", f"a = {i}", 1.0) for i in range(2000)], catalog.version + 1)
        os._exit(0)
        """
    backups = []
    for name in ("one", "two"):
        Catalog.open(folder).close()  # what is in the log moves to the database
        answer(python(program, folder, name))
        backups.append(folder.with_name(name))
        shutil.copytree(folder, backups[-1])
    other = folder.with_name("other")
    answer(python(program, other, "other"))
    outcomes = []
    for database in (*backups, other):
        for log in (*backups, other):
            for seal in (*backups, other):
                mixed = folder.with_name("mixed")
                shutil.copytree(database, mixed)
                (mixed / "catalog.db-shm").unlink()
                shutil.copy(log / LOG, mixed / LOG)
                shutil.copy(seal / SEAL, mixed / SEAL)
                with suppress(DamagedError), Catalog.open(mixed, read_only=True) as catalog:
                    outcomes.append((database.name, log.name, seal.name))
                    assert from_columns(catalog)[1] == from_columns_of(log)
                shutil.rmtree(mixed)
    assert {("one", "one", "one"), ("two", "two", "two"), ("other", "other", "other")} <= set(outcomes)
    # A log that writes every page is as good on any database; the second one does not.
    assert not {("one", "two"), ("other", "two")} & {which[:2] for which in outcomes}


def from_columns_of(folder: Path) -> list[Entry]:
    with Catalog.open(folder, read_only=True) as catalog:
        return from_columns(catalog)[1]
