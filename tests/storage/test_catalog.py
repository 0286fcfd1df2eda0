"""The catalog: against a dict, across processes, threads and forks, on full and read-only disks, and killed."""

from __future__ import annotations

import fcntl
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dibs.errors import DamagedError, StorageError
from dibs.segments.ids import Id
from dibs.storage import catalog_environment as environments
from dibs.storage.catalog import Catalog
from dibs.storage.catalog_records import (
    SUBSCRIPTIONS,
    Change,
    Entry,
    blocks_of,
    changes_of,
    entry_of,
    key_of,
    record_of,
)

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
    return (0, id, b"") if isinstance(id, int) else (1, 0, key_of(id))


def everything(catalog: Catalog) -> list[Entry]:
    return [entry for batch in catalog.entries(batch=7) for entry in batch]


def from_columns(catalog: Catalog) -> tuple[int, list[Entry]]:
    version, parts = catalog.columns()
    found = []
    for part in parts:
        part.ids.validate(full=True)
        part.texts.validate(full=True)
        rows = zip(part.ids.to_pylist(), part.texts.to_pylist(), part.weights, part.versions, part.times)
        found += [Entry(id, text, float(w), int(v), int(t)) for id, text, w, v, t in rows]
    return version, found


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
@given(steps)
def test_as_a_dict(steps: list[tuple[str, Any]]) -> None:
    room = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=room) as temporary:
        path = Path(temporary) / "catalog"
        catalog = Catalog.open(path)
        model: dict[Id, tuple[str, float, int]] = {}
        log: list[Change] = []
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
                    log.append(Change(len(log) + 1, id, text is None))
                    if text is None:
                        model.pop(id, None)
                    else:
                        model[id] = (text, weight, len(log))
                assert (catalog.version, catalog.trimmed, len(catalog)) == (len(log), trimmed, len(model))
                found = everything(catalog)
                assert [e.id for e in found] == sorted(model, key=key_order)
                assert {e.id: (e.text, e.weight, e.version) for e in found} == model
                assert from_columns(catalog) == (len(log), found)
                assert catalog.changes(trimmed) == log[trimmed:]
                assert catalog.check() == []
            for since in range(trimmed, len(log) + 1):
                assert catalog.changes(since) == log[since:]
                news = catalog.news(since)
                touched = {change.id for change in log[since:]}
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


def test_the_log_says_what_it_no_longer_has(folder: Path) -> None:
    with Catalog.open(folder) as catalog:
        catalog.write([(i, "a = 1", 1.0) for i in range(1000)], 1)
        catalog.trim(500)
        catalog.trim(400)  # no effect
        assert [c.version for c in catalog.changes(500)] == list(range(501, 1001))
        with pytest.raises(StorageError, match="has the changes 501 to 1000, not those since 499"):
            catalog.changes(499)
        with pytest.raises(StorageError, match="not those since 1001"):
            catalog.changes(1001)
        with pytest.raises(StorageError, match="has changes up to 1000, not up to 1001"):
            catalog.trim(1001)


def test_trimming_in_portions(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dibs.storage.catalog.TRIM_PORTION", 3)
    with Catalog.open(folder) as catalog:
        catalog.write([(f"some id {i}", None, 1.0) for i in range(3000)], 1)
        before = catalog.transaction_number()
        catalog.trim(2990)
        assert catalog.transaction_number() > before + 5
        assert [c.version for c in catalog.changes(2990)] == list(range(2991, 3001))
        assert catalog.check() == []


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


def test_a_record_at_another_place_or_changed_is_found(folder: Path) -> None:
    with Catalog.open(folder) as catalog:
        catalog.write([(1, "a = 1", 1.0), (2, "a = 2", 1.0)], 1)
        held = catalog._held

        def swap(txn: Any) -> None:
            record = txn.get(key_of(1), db=held.subscriptions)
            txn.put(key_of(2), record, db=held.subscriptions)
            catalog._put_state(txn, catalog._read_state(txn))

        held.write(swap)
        with pytest.raises(DamagedError, match="does not fit its checksum"):
            catalog.get(2)
        with pytest.raises(DamagedError, match="does not fit its checksum"):
            list(catalog.entries())
        with pytest.raises(DamagedError, match="does not fit its checksum"):
            catalog.columns()
        assert catalog.get(1) is not None
        [problem] = catalog.check()
        assert "restore a backup" in problem


@pytest.mark.parametrize("id", IDS, ids=lambda id: repr(id)[:12])
def test_each_bit_of_a_record_counts(id: Id) -> None:
    key = key_of(id)
    assert len(key) <= 511
    record = record_of(key, id, "a = 'ä'", -0.5, 7, 8)
    assert entry_of(key, record) == Entry(id, "a = 'ä'", -0.5, 7, 8)
    [(block_key, block)] = blocks_of([(id, True)], 9)
    assert changes_of(block_key, block) == [Change(9, id, True)]
    rng = random.Random(0)
    for whole, read, name in ((record, entry_of, key), (block, changes_of, block_key)):
        for bit in rng.sample(range(8 * len(whole)), min(8 * len(whole), 150)):
            changed = bytearray(whole)
            changed[bit // 8] ^= 1 << bit % 8
            assert read(name, bytes(changed)) is None  # type: ignore[operator]
        for length in range(len(whole)):
            assert read(name, whole[:length]) is None  # type: ignore[operator]


def test_bulk_and_single_writing_make_the_same_bytes(folder: Path) -> None:
    rng = random.Random(1)
    for kind in (int, str):
        rows = [(kind(rng.randrange(10**6)), "a = 1 AND b = 2 " * rng.randrange(9), rng.random()) for _ in range(3000)]
        found = []
        for way in ("write", "write_columns"):
            with Catalog.open(folder.with_name(f"{way}-{kind.__name__}")) as catalog:
                catalog.clock = lambda: 5
                if way == "write":
                    catalog.write(rows, 1)  # type: ignore[arg-type]
                else:
                    catalog.write_columns(*columns(rows), 1)
                held = catalog._held
                found.append(
                    held.read(
                        lambda txn, held=held: [  # type: ignore[misc]
                            list(txn.cursor(db)) for db in (held.subscriptions, held.changes)
                        ]
                    )
                )
                assert catalog.check() == []
        assert found[0] == found[1]


def test_progress(folder: Path) -> None:
    seen: list[tuple[int, int]] = []
    with Catalog.open(folder) as catalog:
        n = 120_000
        texts = pa.array(["a = 1"] * n, pa.large_string())
        catalog.write_columns(pa.array(np.arange(n)), texts, None, 1, lambda done, of: seen.append((done, of)))
        assert seen == [(50_000, n), (100_000, n), (n, n)]
        assert catalog.get(5).weight == 1.0  # type: ignore[union-attr]
        catalog.write_columns(pa.array(np.arange(0)), texts.slice(0, 0), None, n + 1)
        assert catalog.version == n


def test_removed_pages_are_reused(folder: Path) -> None:
    n = 200_000
    rng = np.random.default_rng(0)
    texts = pa.array([f"price <= {i} AND model = 'iphone5s' AND color = 'silver'" for i in range(n)], pa.large_string())
    with Catalog.open(folder) as catalog:
        sizes = []
        for _ in range(3):
            catalog.write_columns(pa.array(rng.permutation(n)), texts, None, catalog.version + 1)
            catalog.trim(catalog.version)
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
        seen = reader.transaction_number()
        with Catalog.open(folder) as writer:
            writer.write([(2, "a = 1", 1.0)], 2)
            assert reader.transaction_number() == seen + 1 and reader.version == 2
        assert reader.get(2) is not None
    assert len(identity) == 32 and identity != Catalog.open(folder.with_name("other")).identity


def test_threads_read_while_the_map_grows(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environments, "SMALLEST_MAP", 1 << 16)
    problems: list[BaseException] = []
    with Catalog.open(folder) as catalog:
        assert catalog.sizes()["map"] == 1 << 16
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
        assert catalog.sizes()["map"] >= 1 << 22 and catalog.check() == []


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
    """It sees each commit, also when the map has grown beyond what it knew."""
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
            assert reader.check() == []
            opened += 1
    answer(writer)
    assert opened > 5


def test_a_second_writer_is_found_by_its_versions(folder: Path) -> None:
    with Catalog.open(folder) as catalog:
        catalog.write([(1, "a = 1", 1.0)], 1)
        answer(python("Catalog.open(Path(sys.argv[1])).write([(2, 'b = 1', 1.0)], 2)", folder))
        with pytest.raises(StorageError, match="the next change has the version 3, not 2"):
            catalog.write([(3, "a = 1", 1.0)], 2)


def test_a_forked_child_opens_its_own(folder: Path) -> None:
    with Catalog.open(folder) as catalog:
        catalog.write([(1, "a = 1", 1.0)], 1)
        stop = threading.Event()

        def read() -> None:
            while not stop.is_set():
                catalog.get_many([1] * 50)

        thread = threading.Thread(target=read)
        thread.start()
        for round_ in range(10):
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    with pytest.raises(StorageError, match="before this process was forked: open it again here"):
                        catalog.get(1)
                    catalog.close()
                    with Catalog.open(folder) as own:
                        own.write([(f"child {round_}", "a = 1", 1.0)], own.version + 1)
                        assert own.check() == []
                    status = 0
                finally:
                    os._exit(status)
            assert os.waitpid(child, 0)[1] == 0
            assert catalog.get(f"child {round_}") is not None
            catalog.write([(f"parent {round_}", "a = 1", 1.0)], catalog.version + 1)
        stop.set()
        thread.join()
        assert (len(catalog), catalog.check()) == (21, [])


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
            assert len(list(folder.parent.iterdir())) == 1


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
    print(catalog.version, catalog.get(1).text, catalog.check(), catalog._held.protected, flush=True)
    from dibs.errors import StorageError
    try:
        Catalog.open(Path(sys.argv[1]))
    except StorageError as e:
        print(e)
    """


@needs_mount
@pytest.mark.parametrize("lock", [True, False])
def test_a_disk_that_cannot_be_written(folder: Path, lock: bool) -> None:
    with Catalog.open(folder) as catalog:
        catalog.write([(1, "a = 1", 1.0)], 1)
    if not lock:
        (folder / "lock.mdb").unlink()
    lines = answer(python(READ, folder, before=f"mount --bind {folder} {folder} && mount -o remount,bind,ro {folder}"))
    assert lines[0] == "1 a = 1 [] False"
    assert lines[1].endswith("): check the permissions, or open with read_only=True")


@pytest.mark.skipif(os.getuid() != 0, reason="only root becomes somebody else")
def test_a_folder_of_somebody_else(folder: Path) -> None:
    """A reader without the lock file, whom the writer does not know, reads right things or reads again."""
    folder.parent.chmod(0o755)
    with Catalog.open(folder) as catalog:
        catalog.write([(i, "a = 1", 1.0) for i in range(300)], 1)
        for name in ("", "data.mdb", "lock.mdb"):
            (folder / name).chmod(0o755 if not name else 0o644)
        reader = python(
            """
            import os
            from dibs.errors import StorageError
            with Catalog.open(Path(sys.argv[1]), read_only=True) as catalog:
                catalog.get_many(range(300))  # loads what nobody else may load
            os.setuid(65534)
            catalog = Catalog.open(Path(sys.argv[1]), read_only=True)
            assert not catalog._held.protected and not catalog._held.writable
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


def test_too_many_readers(folder: Path) -> None:
    with Catalog.open(folder) as catalog:
        env = catalog._held._env
        held = [env.begin() for _ in range(environments.READERS)]
        with pytest.raises(StorageError, match="has 1024 readers at once already; close some"):
            catalog.get(1)
        while held:
            held.pop().abort()
        assert catalog.get(1) is None


def test_a_new_file_is_of_the_layout_that_is_checked(folder: Path) -> None:
    """Whatever the environment prefers."""
    program = "Catalog.open(Path(sys.argv[1])).close(); Catalog.open(Path(sys.argv[1])).close()"
    answer(python(program, folder, env={**os.environ, "LMDB_DEFAULT_LIB_VERSION": "1"}))
    assert SUBSCRIPTIONS in (folder / "data.mdb").read_bytes()


def test_a_failure_while_the_meta_page_is_written(folder: Path) -> None:
    """LMDB gives up then, and so does the catalog, until it is opened again."""
    catalog, reader = Catalog.open(folder), Catalog.open(folder, read_only=True)
    catalog.write([(1, "a = 1", 1.0)], 1)
    # LMDB writes meta pages through a descriptor of its own, which syncs: it becomes one that cannot be written.
    numbers = [int(name) for name in os.listdir("/proc/self/fd")]
    data = os.stat(folder / "data.mdb")
    own = [n for n in numbers if _is_open(n) and os.path.samestat(os.fstat(n), data)]
    syncing = [n for n in own if fcntl.fcntl(n, fcntl.F_GETFL) & os.O_DSYNC]
    assert len(syncing) == 1
    read_only = os.open(folder / "data.mdb", os.O_RDONLY)
    os.dup2(read_only, syncing[0])
    os.close(read_only)
    with pytest.raises(StorageError, match=r"failed while writing .* close it and open it again"):
        catalog.write([(2, "a = 1", 1.0)], 2)
    for use in (lambda: catalog.get(1), lambda: reader.version, lambda: catalog.write([(2, "a = 1", 1.0)], 2)):
        with pytest.raises(StorageError, match="close it and open it again"):
            use()
    catalog.close()
    reader.close()
    with Catalog.open(folder) as catalog:
        assert catalog.get(1) is not None and catalog.version == 1
        catalog.write([(3, "a = 1", 1.0)], 2)
        assert catalog.check() == []


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True
