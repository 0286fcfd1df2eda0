"""The check of a catalog's file: whatever is done to its bytes, opening it says so, or gives what was written."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import lmdb
import numpy as np
import pytest

from dibs.errors import DamagedError, FormatError
from dibs.index.papers.pbtree.lmdb_pages import TREE, Tree, key_size
from dibs.storage import catalog_records
from dibs.storage.catalog import Catalog
from dibs.storage.catalog_environment import open_lmdb
from dibs.storage.catalog_records import ABOUT, STATE, STATE_RECORD, _with_checksum
from dibs.storage.lmdb_check import Damage, check_free, mapped, metas, walked

PAGE = 4096
Content = list[tuple[object, ...]]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder in memory: the tests write and sync a lot."""
    room = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    path = Path(tempfile.mkdtemp(prefix="dibs-check-", dir=room))
    yield path
    shutil.rmtree(path)


def content(catalog: Catalog) -> Content:
    """Everything that is in it."""
    found: Content = [tuple(entry) for batch in catalog.entries() for entry in batch]
    found += [tuple(change) for change in catalog.changes(catalog.trimmed)]
    return [*found, (catalog.identity, catalog.version, catalog.trimmed, len(catalog))]


def filled(path: Path) -> list[tuple[bytes, Content]]:
    """Makes a catalog with branches, large values, long ids, free pages and a log; returns the file and what is in it
    after each write."""
    rng = random.Random(1)
    states = []
    with Catalog.open(path) as catalog:
        for round_ in range(6):
            changes: list[tuple[str | int, str | None, float]] = []
            for i in range(40):
                id: str | int = (
                    rng.randrange(80) if i % 2 else f"id {rng.randrange(80)}" + "x" * rng.choice((0, 30, 600))
                )
                text = None if rng.random() < 0.3 else "a = 1 OR " * rng.choice((1, 10, 50, 600 if i == 7 else 1))
                changes.append((id, text, float(round_)))
            catalog.write(changes, catalog.version + 1)
            if round_ == 3:
                catalog.trim(100)
            states.append(((path / "data.mdb").read_bytes(), content(catalog)))
    return states


def outcome(path: Path, expected: Content) -> str:
    try:
        with Catalog.open(path, read_only=True) as catalog:
            return "right" if content(catalog) == expected else "WRONG"
    except (DamagedError, FormatError):
        return "refused"


def writes_on(path: Path) -> str:
    """What was taken for whole must also carry writing."""
    with Catalog.open(path) as catalog:
        for round_ in range(3):
            changes = [(i, None if (i + round_) % 3 == 0 else f"b = {i}", 1.0) for i in range(0, 150, 2)]
            catalog.write(changes, catalog.version + 1)
        return "right" if catalog.check() == [] else "WRONG"


def in_child(work: Callable[[Callable[[str], None]], None]) -> list[str]:
    """Runs it in a forked child, which reports lines; fails if the child dies, with the last line that it reported."""
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            with open(send, "w", buffering=1) as out:
                work(lambda line: out.write(line + "\n") and None)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(send)
    with open(receive) as source:
        lines = source.read().splitlines()
    _, status = os.waitpid(child, 0)
    assert status == 0, f"the child ended with {status} after {lines[-1:]}"
    return lines


def variants(original: bytes) -> Iterator[tuple[str, int, bytes]]:
    """(what, where, the other bytes)."""
    rng = random.Random(2)
    places = set(range(220)) | set(range(PAGE, PAGE + 220))
    places |= set(rng.sample(range(220, PAGE), 20)) | set(rng.sample(range(PAGE + 220, 2 * PAGE), 20))
    for page in range(2, len(original) // PAGE):
        places |= set(range(page * PAGE, page * PAGE + 24)) | {page * PAGE + rng.randrange(PAGE) for _ in range(12)}
    for place in sorted(places):
        yield "bit", place, bytes([original[place] ^ 1 << rng.randrange(8)])
        if place < 2 * PAGE:
            yield "byte", place, bytes([rng.choice((0, 255, original[place] ^ 255))])
    for page in range(len(original) // PAGE):
        for field in rng.sample(range(0, 24, 2), 4):
            yield "field", page * PAGE + field, rng.choice((b"\0\0", b"\xff\xff", b"\x10\0", b"\0\x10", b"\x01\0"))


def test_changed_bytes_are_found_or_harmless(folder: Path) -> None:
    path = folder / "catalog"
    original, expected = filled(path)[-1]

    def work(report: Callable[[str], None]) -> None:
        for kind, place, other in variants(original):
            name = f"{kind} at page {place // PAGE}, byte {place % PAGE}: {other.hex()}"
            report(f"trying {name}")
            changed = original[:place] + other + original[place + len(other) :]
            (path / "data.mdb").write_bytes(changed)
            found = outcome(path, expected)
            if found == "right" and changed != original and place % 3 == 0:
                found = writes_on(path)
            report(f"{found} {name}")

    lines = [line for line in in_child(work) if not line.startswith("trying")]
    assert [line for line in lines if line.startswith("WRONG")] == []
    counts = {word: sum(line.startswith(word) for line in lines) for word in ("right", "refused")}
    assert counts["refused"] > 1000 and counts["right"] > 50, counts
    assert sum("refused" in line and ("page 0," in line or "page 1," in line) for line in lines) > 200


def test_lengths(folder: Path) -> None:
    path = folder / "catalog"
    original, expected = filled(path)[-1]
    lengths = {0, 1, 15, 16, 40, 152, 4095, 4096, 4097, 8191, 8192, 8193}
    lengths |= {n * PAGE + d for n in range(2, len(original) // PAGE) for d in (-1, 0, 1)}

    def work(report: Callable[[str], None]) -> None:
        for length in sorted(lengths):
            report(f"trying {length}")
            (path / "data.mdb").write_bytes(original[:length])
            report(f"{outcome(path, expected)} {length}")
        for more in (1, 100, PAGE, PAGE + 1):
            (path / "data.mdb").write_bytes(original + b"\x55" * more)
            report(f"longer {outcome(path, expected)}")

    lines = [line for line in in_child(work) if not line.startswith("trying")]
    assert not any(line.startswith("WRONG") for line in lines)
    assert sum(line.startswith("refused") for line in lines) > len(lengths) / 2
    assert [line for line in lines if line.startswith("longer")] == ["longer right"] * 4  # as a failed write leaves it


def test_pages_of_an_earlier_state_are_found_or_harmless(folder: Path) -> None:
    """A write that never reached the disk: a page is what it was. Only of the meta page this leaves a whole catalog,
    that of the transaction before: there is nothing in the file that could tell."""
    path = folder / "catalog"
    states = filled(path)
    original, expected = states[-1]

    def work(report: Callable[[str], None]) -> None:
        for i, (before, _) in enumerate(states[:-1]):
            for page in range(len(before) // PAGE):
                at = slice(page * PAGE, (page + 1) * PAGE)
                if before[at] == original[at]:
                    continue
                changed = bytearray(original)
                changed[at] = before[at]
                (path / "data.mdb").write_bytes(changed)
                found = outcome(path, expected)
                if found == "WRONG" and page < 2:
                    found = f"before {outcome(path, states[-2][1])}"
                report(f"{found} state {i}, page {page}")

    lines = in_child(work)
    assert [line for line in lines if "WRONG" in line] == []
    assert sum(line.startswith("before right") for line in lines) >= 1
    assert sum(line.startswith("refused") for line in lines) > 50


def test_a_swapped_pair_of_pages_is_found(folder: Path) -> None:
    path = folder / "catalog"
    original, expected = filled(path)[-1]
    pages = [original[i : i + PAGE] for i in range(0, len(original), PAGE)]
    rng = random.Random(3)

    def work(report: Callable[[str], None]) -> None:
        for _ in range(100):
            a, b = rng.sample(range(len(pages)), 2)
            swapped = list(pages)
            swapped[a], swapped[b] = swapped[b], swapped[a]
            (path / "data.mdb").write_bytes(b"".join(swapped))
            report(f"{outcome(path, expected)} {a} and {b}")

    assert not any(line.startswith("WRONG") for line in in_child(work))


def test_a_damaged_lock_file_does_no_harm(folder: Path) -> None:
    path = folder / "catalog"
    expected = filled(path)[-1][1]
    size = (path / "lock.mdb").stat().st_size
    rng = random.Random(4)

    def work(report: Callable[[str], None]) -> None:
        for length in (0, 1, 100, size, size):
            (path / "lock.mdb").write_bytes(rng.randbytes(length))
            report(outcome(path, expected))
            report(writes_on(path))
            with Catalog.open(path) as catalog:
                expected[:] = content(catalog)

    assert in_child(work) == ["right"] * 10


def test_a_missing_file_is_no_new_catalog(folder: Path) -> None:
    path = folder / "catalog"
    filled(path)
    (path / "data.mdb").unlink()
    with pytest.raises(DamagedError, match=r"data\.mdb is damaged: the file is missing; restore a backup"):
        Catalog.open(path)
    (path / "data.mdb").write_bytes(b"")
    with pytest.raises(DamagedError, match="too short"):
        Catalog.open(path)
    (folder / "x").mkdir()
    open_lmdb(folder / "x").close()
    with pytest.raises(DamagedError, match="nothing was ever written"):
        Catalog.open(folder / "x")


def test_another_lmdb_file_is_no_catalog(folder: Path) -> None:
    with lmdb.open(str(folder / "other"), max_dbs=2) as env:
        other = env.open_db(b"other")
        with env.begin(write=True) as txn:
            txn.put(b"a", b"b", db=other)
    with pytest.raises(DamagedError, match="not those of a catalog"):
        Catalog.open(folder / "other")


def test_a_later_format(folder: Path) -> None:
    path = folder / "catalog"
    Catalog.open(path).close()
    with open_lmdb(path) as env:
        about = env.open_db(ABOUT)
        for _ in range(2):  # both meta pages
            with env.begin(write=True) as txn:
                body = txn.get(STATE, db=about)[12:] + b"something new"
                txn.put(STATE, _with_checksum(STATE, (7).to_bytes(4, "little") + body), db=about)
    with pytest.raises(
        FormatError, match=r"data\.mdb: the catalog has the format 7, this version of Dibs reads 1"
    ) as e:
        Catalog.open(path)
    assert not isinstance(e.value, DamagedError)


@pytest.mark.parametrize("field", range(1, 9))
def test_counters_and_sums_that_do_not_fit(folder: Path, field: int) -> None:
    """What the state says is compared with what is there, also when its own checksum fits."""
    path = folder / "catalog"
    filled(path)
    with open_lmdb(path) as env:
        about = env.open_db(ABOUT, create=False)
        with env.begin(write=True) as txn:
            state = catalog_records.state_of(txn.get(STATE, db=about))._replace(transaction=txn.id())
            name = state._fields[field]
            wrong = state._replace(**{name: getattr(state, name) - 1})
            txn.put(STATE, catalog_records.state_record(wrong), db=about)
    if name in ("time", "trimmed"):  # the log still has the change that was trimmed last: its block has others too
        Catalog.open(path).close()
    else:
        with pytest.raises(DamagedError):
            Catalog.open(path)
    assert STATE_RECORD.size == len(catalog_records.state_record(state))


def test_every_kind_of_file_that_lmdb_writes_is_whole(folder: Path) -> None:
    """Trees grow and shrink at random, values are large and small, transactions are aborted: the rules of the check
    hold after each commit."""
    rng = random.Random(5)
    with lmdb.open(str(folder), map_size=1 << 26, max_dbs=3) as env:
        databases = [env.open_db(name) for name in (b"a", b"b", b"c")]
        for round_ in range(120):
            with env.begin(write=True) as txn:
                growing = rng.random() < 0.6
                for _ in range(rng.choice((1, 10, 300))):
                    db, key = rng.choice(databases), rng.randbytes(rng.choice((1, 2, 2, 2, 9, 200, 511)))
                    if rng.random() < (0.8 if growing else 0.2):
                        txn.put(key, rng.randbytes(rng.choice((0, 1, 7, 100, 1500, 2030, 5000, 40000))), db=db)
                    else:
                        cursor = txn.cursor(db)
                        if cursor.set_range(key):
                            cursor.delete()
                if round_ % 37 == 36:
                    txn.drop(rng.choice(databases), delete=False)
                if round_ % 11 == 0:
                    txn.abort()
            with open(folder / "data.mdb", "rb") as file:
                it, _ = metas(file.fileno())
            pages = mapped(folder / "data.mdb", it.last_page, PAGE)
            marks = np.zeros(it.last_page + 1, np.uint8)
            marks[:2] = 1
            entries = 0
            for place in walked(pages, it.main, marks, "main").tolist():
                data = place + 8 + key_size(pages.u2, place)
                tree = Tree(*TREE.unpack(pages.u1[data : data + TREE.size].tobytes()))
                entries += len(walked(pages, tree, marks, "tree"))
            check_free(pages, it, marks, walked(pages, it.free, marks, "free"))
            with env.begin() as txn:
                assert entries == sum(txn.stat(db)["entries"] for db in databases)


def test_a_page_that_is_lost_is_found(folder: Path) -> None:
    """In use and free pages must be all pages."""
    path = folder / "catalog"
    filled(path)
    with open(path / "data.mdb", "rb") as file:
        it, _ = metas(file.fileno())
    pages = mapped(path / "data.mdb", it.last_page, PAGE)
    marks = np.ones(it.last_page + 1, np.uint8)
    marks[5] = 0
    with pytest.raises(Damage, match="1 pages are neither in use nor free"):
        check_free(pages, it, marks, np.empty(0, np.int64))
