"""Damaged files, full disks, folders that cannot be written: an error that says what to do, or the very same matches.

Each damaged folder is opened in a forked process, because the one outcome that must not be is a signal.
"""

from __future__ import annotations

import ctypes
import logging
import os
import random
import resource
import shutil
import signal
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from crash_writer import EVENTS, ChildDied, expression, in_child
from hypothesis import settings

import dibs
from dibs.errors import RecoveryWarning
from dibs.storage.manifest import read_manifest
from dibs.tuning import using

GOOD_ERRORS = (dibs.FormatError, dibs.StorageError)  # DamagedError is a FormatError
PAGE = 4096


class Truth(NamedTuple):
    matches: list[list[Any]]
    texts: dict[Any, Any]  # with weight, version and time
    version: int


def truth_of(m: dibs.Matcher) -> Truth:
    ids = [*range(400), *(f"s{i}" for i in range(40)), "late", "more"]
    texts = {i: m.get(i)[1:] for i in ids if i in m}
    assert len(texts) == len(m)
    return Truth(list(m.match_batch(EVENTS)), texts, m.version)


def made(folder: Path, seed: int, index: str) -> Truth:
    """A folder with several segments, rows gone from some, and changes that are in the log only."""
    rng = random.Random(seed)
    with dibs.Matcher.open(folder, index=index, threads=1) as m:
        m.add_many([(i, expression(rng)) for i in range(300)])
        m.add_many([(f"s{i}", expression(rng), 2.0) for i in range(20)])
        m.match({})
        checkpoint(m)
        m.remove_many([3, 5, 250, "s7"])
        m.replace(8, expression(rng))
        m.add_many([(i, expression(rng)) for i in range(300, 310)])
        m.match({})
        checkpoint(m)
        m.add("late", "a = 1 OR c LIKE '%x%'")
        m.remove(4)
        m.replace("s1", "a = 5")
        found = truth_of(m)
    kinds = {p.name.split("-")[0] for p in folder.iterdir()}
    assert kinds == {"catalog", "writer.lock", "index.dibs", "segment", "removed"}
    return found


def checkpoint(m: dibs.Matcher) -> None:
    m._changes.durable.checkpoint(m._layers)


class Sample(NamedTuple):
    folder: Path
    truth: Truth


@pytest.fixture(scope="module")
def sample(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Sample:
    folder = tmp_path_factory.mktemp("sample") / "matcher"
    return Sample(folder, made(folder, 1, getattr(request, "param", "auto")))


in_files = pytest.mark.parametrize("sample", ["auto", "pbtree"], indirect=True, scope="module")


# ---- trying one fault after the other ----


class Outcome(NamedTuple):
    told: str  # the error's or warning's text; "": neither
    error: bool
    wrong: str  # what should not be; "": nothing


def outcome(folder: Path, truth: Truth, read_only: bool) -> Outcome:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            with dibs.Matcher.open(folder, read_only=read_only, threads=1) as m:
                right = truth_of(m) == truth
                if right and not read_only:
                    m.add("more", "a = 1")
                    m.remove("more")
        except GOOD_ERRORS as e:
            sensible = str(folder) in str(e) and len(str(e)) > len(str(folder)) + 20
            return Outcome(str(e), True, "" if sensible else f"an error that says too little: {e!r}")
        except BaseException as e:
            return Outcome("", True, f"raised {e!r}")
    told = [str(w.message) for w in caught if issubclass(w.category, RecoveryWarning)]
    return Outcome("; ".join(told), False, "" if right else f"opened with other content, told: {told}")


Fault = tuple[str, Callable[[Path], None]]  # its name, and what makes it in a copy of the folder


def tried(sample: Sample, scratch: Path, faults: list[Fault], noticed: bool | None = None) -> list[Outcome]:
    """The outcomes of all faults, opened for writing and for reading; noticed: whether each must be told of, or must
    not. Fails with all that went wrong."""
    wrong, results = [], []

    def run(number: int, read_only: bool) -> Outcome:
        folder = scratch / f"{number}-{read_only}"
        shutil.copytree(sample.folder, folder)
        try:
            faults[number][1](folder)
            return outcome(folder, sample.truth, read_only)
        finally:
            shutil.rmtree(folder)

    def run_all(todo: list[tuple[int, bool]]) -> list[Outcome]:
        return [run(*which) for which in todo]

    todo = [(number, read_only) for number in range(len(faults)) for read_only in (False, True)]
    for first in range(0, len(todo), 40):
        part = todo[first : first + 40]
        try:
            found = in_child(lambda part=part: run_all(part), 120)
        except ChildDied:  # which of them it was
            found = []
            for which in part:
                try:
                    found += in_child(lambda which=which: run_all([which]), 60)
                except ChildDied as e:
                    found.append(Outcome("", True, str(e)))
        for (number, read_only), its in zip(part, found):
            what = its.wrong
            if not what and noticed is not None and bool(its.told) != noticed:
                what = f"was told of: {its.told}" if its.told else "went unnoticed"
            if what:
                wrong.append(f"{faults[number][0]}, {'reader' if read_only else 'writer'}: {what}")
        results += found
    assert not wrong, f"{len(wrong)} of {len(todo)}:\n" + "\n".join(wrong[:20])
    return results


def truncations(file: Path, size: int) -> Iterator[Fault]:
    lengths = {0, 1, 7, 64, size // 3, size // 2, size - 1, PAGE - 1, PAGE, PAGE + 1, size - size % PAGE, size - PAGE}
    for length in sorted(x for x in lengths if 0 <= x < size):
        yield f"{file} cut to {length} of {size}", lambda folder, n=length: os.truncate(folder / file, n)


def flip(path: Path, place: int, bit: int) -> None:
    with open(path, "r+b") as f:
        f.seek(place)
        byte = f.read(1)[0]
        f.seek(place)
        f.write(bytes([byte ^ 1 << bit]))


def flips(file: Path, places: Iterable[int], rng: random.Random) -> Iterator[Fault]:
    for place in places:
        bit = rng.randrange(8)
        yield f"{file} bit {bit} of byte {place}", lambda folder, p=place, b=bit: flip(folder / file, p, b)


def longer(file: Path) -> Fault:
    def append(folder: Path) -> None:
        with open(folder / file, "ab") as f:
            f.write(b"\0" * 100)

    return f"{file} with 100 bytes more", append


def zeroed(file: Path, start: int, size: int) -> Fault:
    def zero(folder: Path) -> None:
        with open(folder / file, "r+b") as f:
            f.seek(start)
            f.write(bytes(size))

    return f"{file} with zeros at {start}", zero


def removed(*files: str) -> Fault:
    return f"without {files}", lambda folder: [(folder / f).unlink() for f in files][0]


def files_of(sample: Sample, pattern: str) -> list[Path]:
    found = sorted(p.relative_to(sample.folder) for p in sample.folder.glob(pattern))
    assert found
    return found


# ---- damage ----


@in_files
@pytest.mark.parametrize("pattern", ["index.dibs", "segment-*.dibs", "removed-*.dibs"])
def test_files_of_segments(sample, tmp_path, pattern):
    """Every byte of them is vouched for, and all of them can be rebuilt."""
    rng = random.Random(7)
    faults: list[Fault] = []
    for file in files_of(sample, pattern):
        size = (sample.folder / file).stat().st_size
        places = [*range(0, 40, 3), *rng.sample(range(size), 12), size - 1]
        faults += [*truncations(file, size), *flips(file, places, rng), longer(file), removed(str(file))]
    rng.shuffle(faults)
    found = tried(sample, tmp_path, faults[: max(settings.default.max_examples // 4, 3)], noticed=True)
    assert any(not its.error for its in found), "what can be rebuilt is"


def test_the_file_of_the_catalog(sample, tmp_path):
    file, rng = Path("catalog/catalog.db"), random.Random(8)
    size = (sample.folder / file).stat().st_size
    pages = range(0, size, PAGE)
    places = [
        *range(0, 160, 3),  # the head of the file, and its tables
        *(p + rng.randrange(8) for p in pages),  # heads of pages
        *(p + 8 + 2 * rng.randrange(8) for p in pages),  # where their rows are
        *rng.sample(range(size), 40),
    ]
    faults = [*truncations(file, size), *flips(file, places, rng), removed(str(file))]
    faults += [zeroed(file, p, PAGE) for p in rng.sample(pages, min(6, len(pages)))]
    found = tried(sample, tmp_path, faults)
    assert sum(its.error for its in found) > len(found) / 4


def test_whole_pages_of_the_catalog(sample, tmp_path):
    """Pages that are sound but at the wrong place, as a disk might give them."""
    file, rng = Path("catalog/catalog.db"), random.Random(9)
    count = (sample.folder / file).stat().st_size // PAGE

    def swapped(a: int, b: int) -> Fault:
        def swap(folder: Path) -> None:
            content = bytearray((folder / file).read_bytes())
            one, other = slice(a * PAGE, a * PAGE + PAGE), slice(b * PAGE, b * PAGE + PAGE)
            content[one], content[other] = content[other], content[one]
            (folder / file).write_bytes(content)

        return f"pages {a} and {b} swapped", swap

    tried(sample, tmp_path, [swapped(*rng.sample(range(count), 2)) for _ in range(15)] + [swapped(0, 1)])


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory, sample: Sample) -> Sample:
    """A matcher whose writer was killed: the last changes are in SQLite's log."""
    folder = tmp_path_factory.mktemp("killed") / "matcher"
    shutil.copytree(sample.folder, folder)

    def child() -> Truth:
        m = dibs.Matcher.open(folder, threads=1)
        m.replace("s1", "a = 9 OR a = 1")
        m.add("more", "b = 2")
        with m.batch():
            m.remove("more")
            m.add_many([(i, f"a = {i % 9}") for i in range(310, 340)])
        found = truth_of(m)
        shutil.copytree(folder, folder.with_name("as it was"))
        return found

    truth = in_child(child)
    assert (folder.with_name("as it was") / "catalog/catalog.db-wal").stat().st_size > 5 * PAGE
    return Sample(folder.with_name("as it was"), truth)


def test_the_log_of_the_catalog(killed, tmp_path):
    """SQLite itself drops what is damaged at the end of the log without a word."""
    file, rng = Path("catalog/catalog.db-wal"), random.Random(11)
    size = (killed.folder / file).stat().st_size
    faults = [*truncations(file, size), longer(file), removed(str(file)), removed(str(file), "catalog/catalog.db-shm")]
    faults += flips(file, [*range(0, 60, 5), *rng.sample(range(size), 40)], rng)
    faults += [zeroed(file, p, PAGE) for p in rng.sample(range(0, size, PAGE), 5)]
    found = tried(killed, tmp_path, [without_index(fault) for fault in faults])
    assert sum(its.error for its in found) > len(found) / 4
    tried(killed, tmp_path, [("as it was", lambda folder: None), removed("catalog/catalog.db-shm")], noticed=False)


def without_index(fault: Fault) -> Fault:
    """And without SQLite's index of its log, as after a restart of the machine."""

    def both(folder: Path) -> None:
        fault[1](folder)
        (folder / "catalog/catalog.db-shm").unlink(missing_ok=True)

    return fault[0], both


def test_the_file_of_the_catalog_with_a_log(killed, tmp_path):
    file, rng = Path("catalog/catalog.db"), random.Random(12)
    size = (killed.folder / file).stat().st_size
    faults = [*truncations(file, size), removed(str(file)), *flips(file, rng.sample(range(size), 60), rng)]
    tried(killed, tmp_path, faults)


def test_files_that_mean_nothing(sample, tmp_path):
    """Locks, seals and leftovers hold no data: whatever is in them, all is as it was and nobody is told anything."""
    rng = random.Random(10)
    seal = Path("catalog/catalog.seal")
    size = (sample.folder / seal).stat().st_size
    faults = [*truncations(seal, size), *flips(seal, range(0, size, 7), rng), longer(seal)]
    faults += [removed(str(seal)), removed("writer.lock"), removed(str(seal), "writer.lock")]
    leftovers = (
        "index.dibs.partial",
        "segment-000900.dibs",
        "segment-000901.dibs.partial",
        "removed-000900.dibs",
        "removed-000901.dibs.partial",
        "writer.lock",
        "catalog/catalog.db-shm",
    )
    for name in leftovers:
        for content in (b"", b"dibs 3 segment", os.urandom(5000)):
            faults.append((f"{name} of {len(content)} bytes", lambda f, n=name, c=content: (f / n).write_bytes(c)))
    faults.append(("catalog.partial-1", lambda f: (f / "catalog.partial-99999999").mkdir()))
    tried(sample, tmp_path, faults, noticed=False)


def test_leftovers_go(sample, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(sample.folder, folder)
    before = {p.name for p in folder.iterdir()}
    for name in ("index.dibs.partial", "segment-000900.dibs", "removed-000001.dibs.partial"):
        (folder / name).write_bytes(b"x")
    with dibs.Matcher.open(folder, threads=1) as m:
        assert {p.name for p in folder.iterdir()} == before
        m.add_many([(1000 + i, "a = 1") for i in range(300)])
        checkpoint(m)
        assert "segment-000900.dibs" not in {p.name for p in folder.iterdir()}


# ---- what is sound, but does not belong here ----


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory, sample: Sample) -> Sample:
    """Another matcher, whose files have the same names."""
    folder = tmp_path_factory.mktemp("twin") / "matcher"
    found = Sample(folder, made(folder, 2, read_manifest(sample.folder).index))
    assert files_of(found, "*.dibs") == files_of(sample, "*.dibs")
    return found


def test_files_of_another_matcher(sample, twin, tmp_path):
    def copied(*files: str) -> Fault:
        def copy(folder: Path) -> None:
            for file in files:
                shutil.copy(twin.folder / file, folder / file)

        return f"{files} of another matcher", copy

    own = [str(f) for f in files_of(sample, "*.dibs")]
    tried(sample, tmp_path, [copied(file) for file in own], noticed=True)
    tried(sample, tmp_path, [copied(*own), copied("catalog/catalog.db")], noticed=True)
    found = tried(sample, tmp_path, [copied("index.dibs"), copied("catalog/catalog.db"), copied(*own)])
    assert all(its.error for its in found)
    tried(sample, tmp_path, [copied("catalog/catalog.seal")], noticed=True)
    tried(sample, tmp_path, [copied("writer.lock")], noticed=False)


def test_files_that_changed_places(sample, tmp_path):
    segments = [str(f) for f in files_of(sample, "segment-*")]
    others = [str(f) for f in files_of(sample, "removed-*")]

    def swapped(a: str, b: str) -> Fault:
        def swap(folder: Path) -> None:
            (folder / a).rename(folder / "aside")
            (folder / b).rename(folder / a)
            (folder / "aside").rename(folder / b)

        return f"{a} and {b} swapped", swap

    faults = [swapped(segments[0], segments[1]), swapped(segments[0], others[0]), swapped("index.dibs", segments[0])]
    if len(others) > 1:
        faults.append(swapped(others[0], others[1]))
    tried(sample, tmp_path, faults, noticed=True)


def test_an_older_manifest(tmp_path):
    """It is older than the log goes back: everything is compiled again."""
    folder = tmp_path / "matcher"
    with dibs.Matcher.open(folder, threads=1) as m:
        m.add_many([(i, f"a = {i % 9}") for i in range(300)])
        checkpoint(m)
        shutil.copy(folder / "index.dibs", tmp_path / "old")
        m.remove_many(list(range(50)))
        m.add("late", "a = 1")
        checkpoint(m)
        truth = truth_of(m)
    shutil.copy(tmp_path / "old", folder / "index.dibs")
    for read_only in (True, False):
        found = outcome(folder, truth, read_only)
        assert not found.wrong and not found.error and "nothing is lost" in found.told
    truth = truth._replace(version=truth.version + 2)
    assert outcome(folder, truth, True) == Outcome("", False, ""), "the writer has mended it"


def test_an_older_catalog_is_refused(tmp_path):
    """Changes that were acknowledged are missing from it; no warning makes up for that."""
    folder = tmp_path / "matcher"
    with dibs.Matcher.open(folder, threads=1) as m:
        m.add_many([(i, f"a = {i % 9}") for i in range(300)])
        m.compact()
    shutil.copytree(folder / "catalog", tmp_path / "old")
    with dibs.Matcher.open(folder, threads=1) as m:
        m.add_many([(i, f"a = {i % 9}") for i in range(300, 400)])
        m.compact()
    shutil.rmtree(folder / "catalog")
    shutil.copytree(tmp_path / "old", folder / "catalog")
    for read_only in (False, True):
        with pytest.raises(dibs.DamagedError, match="backup"):
            dibs.Matcher.open(folder, read_only=read_only)


def test_a_folder_without_its_catalog_is_refused(sample, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(sample.folder, folder)
    shutil.rmtree(folder / "catalog")
    with pytest.raises(dibs.DamagedError, match=r"catalog.*backup"):
        dibs.Matcher.open(folder)
    with pytest.raises(dibs.FormatError, match=str(folder)):
        dibs.Matcher.open(folder, read_only=True)
    (folder / "catalog").mkdir()
    for read_only in (False, True):
        with pytest.raises(GOOD_ERRORS, match=str(folder)):
            dibs.Matcher.open(folder, read_only=read_only)


@in_files
def test_what_was_rebuilt_stays(sample, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(sample.folder, folder)
    flip(folder / files_of(sample, "segment-*")[0], 5000, 3)
    with pytest.warns(RecoveryWarning, match=r"segment-.*nothing is lost"):
        m = dibs.Matcher.open(folder, threads=1)
    assert truth_of(m) == sample.truth and m.index == read_manifest(sample.folder).index
    checkpoint(m)
    m.close()
    assert outcome(folder, sample.truth, True) == Outcome("", False, "")


# ---- disks ----

NO_MOUNTS = "no mounts without privileges here"
LIBC = ctypes.CDLL(None, use_errno=True)
NEW_NAMESPACE, NEW_USER = 0x20000, 0x10000000
READ_ONLY, REMOUNT, BIND, RECURSIVE, PRIVATE = 1, 32, 4096, 16384, 1 << 18


def mount(what: str, where: Path | str, kind: str, flags: int, options: str) -> None:
    if LIBC.mount(what.encode(), str(where).encode(), kind.encode(), flags, options.encode()):
        raise OSError(ctypes.get_errno(), "mount")


def alone_with_mounts() -> bool:
    """Gives this process mounts of its own; whether that is allowed. Only for a forked child."""
    user, group = os.getuid(), os.getgid()
    if LIBC.unshare(NEW_NAMESPACE | (NEW_USER if user else 0)):
        return False
    try:
        if user:
            Path("/proc/self/setgroups").write_text("deny")
            Path("/proc/self/uid_map").write_text(f"0 {user} 1")
            Path("/proc/self/gid_map").write_text(f"0 {group} 1")
        mount("none", "/", "", RECURSIVE | PRIVATE, "")
    except OSError:
        return False
    return True


class Disk:
    """A small disk. Where mounting is not allowed: a limit on the size of files."""

    def __init__(self, where: Path, size: int):
        where.mkdir(exist_ok=True)
        self.where = where
        self.real = alone_with_mounts()
        if self.real:
            mount("tmpfs", where, "tmpfs", 0, f"size={size}")
        else:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            self.grow(size // 2)

    def fill(self) -> None:
        """Leaves no room at all."""
        if self.real:
            with open(self.where / "ballast", "wb", buffering=0) as f:
                try:
                    while f.write(bytes(PAGE)):
                        pass
                except OSError:
                    pass

    def grow(self, size: int) -> None:
        if self.real:
            mount("tmpfs", self.where, "tmpfs", REMOUNT, f"size={size}")
        else:
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def text(i: int) -> str:
    return f"a = {i % 9} AND b <> {i} AND c <> '{'x' * 50}'"


def test_a_disk_that_is_full_while_adding(tmp_path):
    def child() -> int:
        disk = Disk(tmp_path / "disk", 2 << 20)
        m = dibs.Matcher.open(disk.where / "matcher", threads=1)
        added = 0

        def add_on() -> None:
            nonlocal added
            for i in range(30_000):
                m.add(i, text(i))
                added += 1

        with pytest.raises(dibs.StorageError, match=r"full|larger") as caught:
            add_on()
        assert str(disk.where) in str(caught.value) and added > 100, added
        for again in range(3):
            with pytest.raises(dibs.StorageError), m.batch():
                m.add_many([(100_000 + again * 1000 + i, text(i)) for i in range(800)])
        assert len(m) == added == m.version and m.get(added - 1).version == added
        expected = [i for i in range(added) if i % 9 == 1 and i != 5]
        assert m.match({"a": 1, "b": 5, "c": "y"}) == expected
        disk.grow(1 << 26)
        m.add("later", "a = 1")
        m.close()
        with dibs.Matcher.open(disk.where / "matcher", threads=1) as m:
            assert m.match({"a": 1, "b": 5, "c": "y"}) == [*expected, "later"] and len(m) == added + 1
            assert m._changes.durable.catalog.check() == []
        return added

    assert in_child(child)


def test_a_disk_that_is_full_while_adding_many(tmp_path):
    def child() -> bool:
        disk = Disk(tmp_path / "disk", 1 << 20)
        m = dibs.Matcher.open(disk.where / "matcher", threads=1)
        m.add_many([(i, text(i)) for i in range(300)])
        table = pa.table({"id": np.arange(1000, 31_000), "expression": [text(i) for i in range(30_000)]})
        for _ in range(2):
            with pytest.raises(dibs.StorageError, match=r"full|larger"):
                m.add_table(table)
            assert len(m) == 300 and m.version == 300 and len(m.match({"a": 1, "b": -1, "c": "y"})) == 34
        m.add("one", "a = 1")
        disk.grow(1 << 27)
        m.add_table(table)
        m.close()
        with dibs.Matcher.open(disk.where / "matcher", threads=1) as m:
            assert len(m) == 30_301 and len(m.match({"a": 1, "b": -1, "c": "y"})) == 34 + 3334 + 1
        return True

    assert in_child(child)


def test_a_disk_that_is_full_while_saving(tmp_path):
    """Nothing acknowledged is lost, and closing does not fail."""

    def child() -> bool:
        disk = Disk(tmp_path / "disk", 4 << 20)
        folder = disk.where / "matcher"
        m = dibs.Matcher.open(folder, threads=1)
        m.add_many([(i, text(i)) for i in range(4000)])
        if disk.real:
            disk.fill()
        else:
            disk.grow(1 << 14)
        with pytest.raises(dibs.StorageError, match=r"full|larger"):
            m.compact()
        with pytest.raises(dibs.StorageError, match=r"full|larger"):
            m.save(disk.where / "saved")
        assert not (disk.where / "saved").exists() and not list(folder.glob("*.partial"))
        expected = m.match({"a": 1, "b": -1, "c": "y"})
        assert len(expected) == 445
        with pytest.warns(RecoveryWarning, match=r"safe in the catalog"):
            m.close()
        with dibs.Matcher.open(folder, read_only=True, threads=1) as m:
            assert m.match({"a": 1, "b": -1, "c": "y"}) == expected
        with pytest.warns(RecoveryWarning, match=r"safe in the catalog"):
            dibs.Matcher.open(folder, threads=1).close()
        disk.grow(1 << 26)
        with dibs.Matcher.open(folder, threads=1) as m:
            m.add("later", "a = 1")
            m.compact()
            m.save(disk.where / "saved")
        for opened in (dibs.Matcher.load(disk.where / "saved"), dibs.Matcher.open(folder, threads=1)):
            assert opened.match({"a": 1, "b": -1, "c": "y"}) == [*expected, "later"]
            opened.close()
        return True

    assert in_child(child)


def test_a_disk_that_is_full_in_the_background_is_told_without_a_traceback(tmp_path):
    """Saving beside adding fails: one line says so, matching goes on, and nothing is lost."""

    def child() -> list[tuple[str, bool]]:
        told: list[tuple[str, bool]] = []
        log = logging.getLogger("dibs")
        log.addHandler(handler := logging.Handler())
        handler.emit = lambda record: told.append((record.getMessage(), bool(record.exc_info)))
        disk = Disk(tmp_path / "disk", 4 << 20)
        m = dibs.Matcher.open(disk.where / "matcher", threads=1)
        m.add_many([(i, text(i)) for i in range(4000)])
        disk.fill()
        with using({"unsaved_changes": 1000}), warnings.catch_warnings(record=True):
            warnings.simplefilter("always")
            m._layers.upkeep.wake()
            m._layers.upkeep.rest()
            assert not disk.real or "full" in m.stats()["background problem"]
        assert len(m.match({"a": 1, "b": -1, "c": "y"})) == 445
        disk.grow(1 << 26)
        m.close()
        with dibs.Matcher.open(disk.where / "matcher", threads=1) as m:
            assert len(m) == 4000 and m._changes.durable.catalog.check() == []
        return told if disk.real else [("no real disk: it is full", False)]

    told = in_child(child)
    assert told and all("full" in message and not traceback for message, traceback in told), told


@pytest.mark.parametrize("lost", ["", "writer.lock", "catalog/catalog.seal"])
@pytest.mark.parametrize("read_only", [False, True])
def test_opening_on_a_full_disk(tmp_path, lost, read_only):
    """A writer may be told that there is no room, a reader reads."""

    def child() -> Outcome | None:
        disk = Disk(tmp_path / "disk", 4 << 20)
        if not disk.real:
            return None
        truth = made(disk.where / "matcher", 1, "auto")
        if lost:
            (disk.where / "matcher" / lost).unlink()
        disk.fill()
        return outcome(disk.where / "matcher", truth, read_only)

    found = in_child(child)
    if found is None:
        pytest.skip(NO_MOUNTS)
    assert not found.wrong
    assert not (found.error and read_only) and (not found.error or "full" in found.told)


def test_a_new_folder_on_a_full_disk(tmp_path):
    def child() -> bool:
        disk = Disk(tmp_path / "disk", 1 << 20)
        if not disk.real:
            return False
        disk.fill()
        with pytest.raises(dibs.StorageError, match=r"full|room|space"):
            dibs.Matcher.open(disk.where / "new")
        disk.grow(1 << 22)
        with dibs.Matcher.open(disk.where / "new") as m:
            m.add("a", "x = 1")
        return True

    if not in_child(child):
        pytest.skip(NO_MOUNTS)


def test_a_folder_that_cannot_be_written(sample, tmp_path):
    folder = tmp_path / "matcher"
    shutil.copytree(sample.folder, folder)

    def child() -> str:
        if not alone_with_mounts():
            return "not allowed here"
        mount(str(folder), folder, "", BIND, "")
        mount(str(folder), folder, "", BIND | REMOUNT | READ_ONLY, "")
        with pytest.raises(OSError):
            (folder / "x").touch()
        with pytest.raises(dibs.StorageError, match="read_only=True") as caught:
            dibs.Matcher.open(folder)
        assert str(folder) in str(caught.value)
        with dibs.Matcher.open(folder, read_only=True, threads=1) as m:
            assert truth_of(m) == sample.truth
            m.compact()
            assert truth_of(m) == sample.truth
        return "done"

    if in_child(child) != "done":
        pytest.skip(NO_MOUNTS)


NEW = frozenset(range(2000, 2060))  # ids that the sample does not have; some of its joins hold for any event


def test_a_reader_of_a_read_only_mount_follows_a_writer(sample, tmp_path):
    """It may not make the files that SQLite's readers use, and must get along without."""
    folder, view = tmp_path / "matcher", tmp_path / "view"
    shutil.copytree(sample.folder, folder)
    view.mkdir()

    def child() -> str:
        if not alone_with_mounts():
            return "not allowed here"
        mount(str(folder), view, "", BIND, "")
        mount(str(folder), view, "", BIND | REMOUNT | READ_ONLY, "")
        asked, ask = os.pipe()
        answered, answer = os.pipe()
        reader = os.fork()
        if reader == 0:
            os.close(ask)
            m = dibs.Matcher.open(view, read_only=True, threads=1)
            while os.read(asked, 1):
                os.write(answer, f"{len(NEW.intersection(m.match({'z': 1})))} {m.version}".encode().ljust(30))
            os._exit(0)
        with dibs.Matcher.open(folder, threads=1) as m:
            for i in range(60):
                m.add(2000 + i, "z = 1")
                if i % 20 == 10:
                    m.compact()
                os.write(ask, b"?")
                assert os.read(answered, 30).decode().strip() == f"{i + 1} {m.version}"
        os.close(ask)
        os.waitpid(reader, 0)
        return "done"

    if in_child(child) != "done":
        pytest.skip(NO_MOUNTS)


# ---- clocks and sizes ----


def test_a_clock_that_goes_back(tmp_path):
    with dibs.Matcher.open(tmp_path / "matcher") as m:
        now = time.time_ns() // 1000
        m.add("a", "x = 1")
        for i, clock in enumerate((now - 10**9, 0, now + 10**9, now)):
            m._changes.durable.catalog.clock = lambda at=clock: at
            m.add(i, "x = 1")
        table = pa.table({"id": list(range(10, 400)), "expression": ["x = 1"] * 390})
        m.add_table(table)
        times = [m.get(i).time for i in ("a", 0, 1, 2, 3, 10, 399)]
        assert times == sorted(times) and times[3] == now + 10**9 == times[-1]
    with dibs.Matcher.open(tmp_path / "matcher") as m:
        m.add("b", "x = 1")
        assert m.get("b").time == times[-1] and m.get("b").version == 396


@pytest.mark.slow
def test_all_but_a_few_of_many_are_removed(tmp_path):
    rows, portion = 200_000, 20_000
    folder = tmp_path / "matcher"
    kept = rows // 1000
    with dibs.Matcher.open(folder) as m:
        ids = np.arange(rows)
        m.add_table(pa.table({"id": ids, "expression": pa.array([f"x = {i % 1000}" for i in range(rows)])}))
        order = np.random.default_rng(1).permutation(rows)
        for start in range(0, rows - kept, portion):
            m.remove_many(order[start : min(start + portion, rows - kept)].tolist())
        left = sorted(order[rows - kept :].tolist())
        assert len(m) == kept and m.version == 2 * rows - kept
        assert m.match({"x": left[0] % 1000}) == [i for i in left if i % 1000 == left[0] % 1000]
        m._layers.upkeep.rest()
        assert m.stats()["removed"] < 1000 + kept, "a segment of which most is gone is rebuilt"
    with dibs.Matcher.open(folder) as m:
        assert len(m) == kept and sorted(i for i in left if i in m) == left
        assert m.match({"x": left[0] % 1000}) == [i for i in left if i % 1000 == left[0] % 1000]
    assert sum(p.stat().st_size for p in folder.glob("segment-*")) < 2_000_000
