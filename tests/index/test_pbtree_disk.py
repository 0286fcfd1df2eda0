"""The PB+tree on disk: how much of its pages is in memory, whoever matches and builds; what is saved; what happens to
its files, and when the disk fails."""

from __future__ import annotations

import gc
import mmap
import os
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pbtree_model import (
    KINDS,
    clauses_of,
    held,
    keys_of,
    matched,
    pairs_of,
    plain_clauses,
    wide_clauses,
    wide_events,
)
from pbtree_pages import check

from coded import random_clauses, random_events
from dibs.coding.clauses import Clauses
from dibs.errors import FormatError, StorageError
from dibs.index import create, restore
from dibs.papers.structures.pbtree.pages import _remove_abandoned
from dibs.papers.structures.pbtree.pbtree import PBTree

MB = 1 << 20
PAGE = 4096
PATHS = [str(Path(__file__).parent), *sys.path]


def build(clauses: Clauses, **options: Any) -> PBTree:
    return PBTree.build(clauses, page=PAGE, **options)


# ---- memory ----


@pytest.fixture(scope="module")
def large():
    """Clauses, their tree of 10 MB that may take 1 MB, events, and the keys of their pairs."""
    rng = np.random.default_rng(3)
    clauses, events = wide_clauses(rng, 500_000), wide_events(rng, 8)
    tree = build(clauses, memory=MB)
    assert tree.plan()["bytes on disk"] >= 9 * tree.plan()["memory"]
    return clauses, tree, events, held(clauses, events)


class Watching:
    """The most bytes of a tree's pool that were there meanwhile, whichever way it was divided: frames and tables. That
    the process takes no more is measured from outside, see below."""

    def __init__(self, tree: PBTree):
        self._pages, self.most, self.looks, self._over = tree._pages, 0, 0, threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def _watch(self) -> None:
        over = False
        while not over:  # at least once afterwards
            over = self._over.wait(0.001)
            with self._pages._change:
                shares = list(self._pages._shares)
            found = sum(array.nbytes for share in shares for array in share[:-1])
            self.most = max(self.most, found)
            self.looks += 1

    def __enter__(self) -> Watching:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def test_an_index_of_ten_times_its_memory(large):
    clauses, tree, events, wanted = large
    with Watching(tree) as seen:
        for threads in (1, 2, 1):
            assert keys_of(tree, events, threads) == wanted
        with ThreadPoolExecutor(5) as pool:
            for found in pool.map(lambda _: keys_of(tree, events), range(5)):
                assert found == wanted
    plan = tree.plan()
    assert seen.looks > 2 and 0 < seen.most <= MB, seen.most
    assert 0 < plan["resident"] <= plan["resident at most"] <= MB
    assert plan["blocks read"] > 1_000
    unbounded = build(clauses)
    before = unbounded.plan()
    assert keys_of(unbounded, events) == wanted
    plan = unbounded.plan()
    assert plan["resident"] > 4 * MB
    read = plan["blocks read"] - before["blocks read"]
    assert plan["resident"] == read * 4 * PAGE + unbounded._pages.tables, "each block is read once"
    assert plan["pages visited"] == unbounded.match(events, 1).nodes
    assert unbounded.plan()["blocks read"] == plan["blocks read"], "and never again"


def test_more_threads_than_there_is_memory_for_wait():
    rng = np.random.default_rng(8)
    clauses, events = wide_clauses(rng, 60_000), wide_events(rng, 3)
    tree, wanted = build(clauses, memory=MB), held(clauses, events)
    with Watching(tree) as seen, ThreadPoolExecutor(20) as pool:
        for found in pool.map(lambda _: keys_of(tree, events), range(40)):
            assert found == wanted
    assert 0 < seen.most <= MB and 1 < len(tree._pages._shares) <= 7


MEASURED = """
import re, sys
import numpy as np
sys.path[:0] = sys.argv[1:]
from test_pbtree_disk import MB, build, wide_clauses, wide_events
def now(what):
    return int(re.search(rf"^{what}:\\s+(\\d+)", open("/proc/self/status").read(), re.M)[1]) * 1024
rng = np.random.default_rng(3)
clauses, more, events = wide_clauses(rng, 600_000), wide_clauses(rng, 500), wide_events(rng, 2)
first = build(clauses.take(np.arange(20_000)), memory=MB)
first.match(events, 1)
first.insert(more)
first.delete(np.arange(100))
del first
def peak(work):
    before = now("VmRSS")
    open("/proc/self/clear_refs", "w").write("5")
    result = work()
    return now("VmHWM") - before, result
built, tree = peak(lambda: build(clauses, memory=4 * MB))
matched, _ = peak(lambda: tree.match(events, 1))
updated, _ = peak(lambda: tree.delete(np.arange(0, 600_000, 3000)))
print(built, matched, updated, tree.plan()["bytes on disk"])
"""


def test_building_matching_and_updating_take_no_more_than_they_may():
    """The peak of the resident memory of a process of its own; what is not bounded by `memory` is known, and what
    Python itself takes is 2 MB."""
    done = subprocess.run([sys.executable, "-c", MEASURED, *PATHS], capture_output=True, text=True, check=True)
    built, matched, updated, disk = map(int, done.stdout.split())
    assert disk > 11 * MB
    assert built <= 4 * MB + 600_000 * 7 + 2 * MB, built  # numbers, need, verify
    assert matched <= 4 * MB + 600_000 * 6 + 2 * MB, matched  # counters and hits
    assert updated <= 4 * MB + 2 * MB, updated


def test_one_constant_of_more_entries_than_memory_sorts():
    rows = 60_000
    none = np.empty(0, np.int32)
    attribute = np.tile(np.array([0, 1], np.int32), rows)
    lo = np.full(2 * rows, 5, np.int32)
    lo[1::2] = np.random.default_rng(5).integers(1, 50, rows)
    clauses = Clauses(np.arange(rows + 1) * 2, attribute, lo, lo.copy(), none, none, none, none, rows, 2)
    tree = build(clauses, memory=MB)
    check(tree)
    found = matched(tree, [{0: 5, 1: 7}, {0: 4, 1: 7}])
    assert found == [set(np.flatnonzero(lo[1::2] == 7).tolist()), set()]


def test_too_little_memory_is_refused():
    with pytest.raises(ValueError, match=r"memory is 1,000 bytes; a pbtree needs at least 1,048,576"):
        PBTree.build(clauses_of([[(0, "=", 1)]]), memory=1000)


# ---- saved and restored ----


def test_restored_from_a_file_it_reads_there(large, tmp_path):
    clauses, built, events, wanted = large
    arrays = built.arrays()
    for shift in (0, 64, 4096):  # of the pages in the file, which need not be those of the operating system
        path = tmp_path / f"segment-{shift}"
        with path.open("wb") as file:
            file.write(b"x" * shift)
            file.write(arrays["pages"].data)
            file.write(b"x" * 100)
        with path.open("rb") as file:
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        pages = np.frombuffer(content, np.int32, arrays["pages"].size, shift).reshape(arrays["pages"].shape)
        tree = PBTree.restore(clauses, arrays | {"pages": pages}, memory=MB)
        with Watching(tree) as seen:
            for threads in (1, 2):
                assert keys_of(tree, events, threads) == wanted
        assert 0 < seen.most <= MB and tree.plan()["blocks read"] > 500
        assert tree._pages.folder is None


def test_restored_from_ordinary_memory_it_reads_there_too(large):
    """What has no file, or has none any more."""
    clauses, built, events, wanted = large
    arrays = built.arrays()
    anonymous = mmap.mmap(-1, arrays["pages"].nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    anonymous[:] = arrays["pages"].tobytes()
    without = np.frombuffer(anonymous, np.int32).reshape(arrays["pages"].shape)
    for pages in (arrays["pages"], arrays["pages"].copy(), without):
        tree = PBTree.restore(clauses, arrays | {"pages": pages}, memory=MB)
        assert keys_of(tree, events) == keys_of(tree, events, 2) == wanted
        assert tree.plan()["blocks read"] == 0


def test_a_page_that_cannot_be_read(tmp_path):
    """The file became shorter, which nobody should do: an error, not a wrong answer or the end of the process."""
    rng = np.random.default_rng(9)
    clauses, events = wide_clauses(rng, 60_000), wide_events(rng, 3)
    tree = build(clauses, memory=MB, folder=str(tmp_path))
    assert keys_of(tree, events) == held(clauses, events)
    os.truncate(tree._pages.folder.pages, MB // 2)
    for _ in range(2):
        with pytest.raises(StorageError, match=r"a page cannot be read: is the disk all right\? Build the index again"):
            tree.match(events, 2)


def test_a_page_that_cannot_be_written(tmp_path):
    """While frames make room for others: an error, and an index that says that it is not whole."""
    rng = np.random.default_rng(9)
    clauses, events = wide_clauses(rng, 120_000), wide_events(rng, 3)
    tree = build(clauses, memory=MB, folder=str(tmp_path))
    tree._grow()
    tree._pages._drop()
    tree._pages._file = os.open(tree._pages.folder.pages, os.O_RDONLY)
    with pytest.raises(StorageError, match=r"cannot be written \(a page cannot be written\); [\d,]+ bytes are free"):
        tree.delete(np.arange(0, 120_000, 7))
    with pytest.raises(StorageError, match="the index is incomplete, build it again"):
        tree.match(events, 1)
    os.close(tree._pages._file)


def test_arrays_stay_when_the_index_changes_or_goes():
    rng = np.random.default_rng(6)
    clauses, more = plain_clauses(rng, 500, 3, 30), plain_clauses(rng, 100, 3, 30)
    events = random_events(rng, 30, 3, 30, several=False)
    tree = PBTree.build(clauses)
    arrays = {k: v if k == "pages" else v.copy() for k, v in tree.arrays().items()}
    wanted = pairs_of(tree, events)
    tree.insert(more)
    tree.delete(np.arange(200))
    del tree
    gc.collect()
    assert pairs_of(PBTree.restore(clauses, arrays), events) == wanted


def test_options_go_through_create_and_restore(tmp_path):
    rng = np.random.default_rng(7)
    clauses, events = random_clauses(rng, 300, 3, 30), random_events(rng, 20, 3, 30)
    index = create("pbtree", clauses, memory=3 * MB, folder=str(tmp_path))
    assert index.plan()["memory"] == 3 * MB and len(list(tmp_path.iterdir())) == 1
    again = restore("pbtree", clauses, index.arrays(), memory=2 * MB)
    assert again.plan()["memory"] == 2 * MB
    one, two = index.match(events, 1), again.match(events, 2)
    assert sorted(zip(one.event, one.row)) == sorted(zip(two.event, two.row))


@pytest.mark.parametrize("kind", ["memory", "disk"])
def test_pages_of_another_kind_are_refused(kind):
    clauses = clauses_of([[(0, "=", 1)]])
    tree = KINDS[kind](clauses)
    arrays = tree.arrays()
    other = {"pages": np.zeros(1 << 14, np.uint8)}, {"pages": arrays["pages"][:2]}, {"tree": np.zeros(3, np.int64)}
    for part in other:
        with pytest.raises(FormatError, match="not those of this version: compile the index again"):
            type(tree).restore(clauses, arrays | part)
    with pytest.raises(FormatError, match="not those of this version"):
        type(tree).restore(clauses, {k: v for k, v in arrays.items() if k != "tree"})


# ---- files ----


def test_the_folder_goes_with_the_index(tmp_path):
    clauses = clauses_of([[(0, "=", 1)]] * 300)
    tree = PBTree.build(clauses, folder=str(tmp_path))
    assert [p.name for p in tree._pages.folder.path.iterdir()] == ["pages"]
    tree.insert(clauses_of([[(0, "=", 1)]] * 400))  # all pages are written again
    assert len(list(tmp_path.iterdir())) == 1
    arrays = tree.arrays()
    if child := os.fork():
        assert os.waitpid(child, 0)[1] == 0
    else:  # a forked child has it too, and it is not its own
        del tree
        gc.collect()
        os._exit(0)
    assert len(list(tmp_path.iterdir())) == 1 and len(matched(tree, [{0: 1}])[0]) == 700
    del tree
    gc.collect()
    assert list(tmp_path.iterdir()) == []
    assert len(arrays["pages"]) > 0 and arrays["pages"][0, 0] >= 0, "what was mapped stays"


def test_the_folder_goes_at_exit(tmp_path):
    program = """
import sys
sys.path[:0] = sys.argv[2:]
from test_pbtree_disk import PBTree, clauses_of
tree = PBTree.build(clauses_of([[(0, "=", 1)]]), folder=sys.argv[1])
assert tree._pages.folder.pages.exists()
"""
    subprocess.run([sys.executable, "-c", program, str(tmp_path), *PATHS], check=True)
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_is_removed_by_the_next_and_nothing_else(tmp_path):
    program = """
import os, signal, sys
sys.path[:0] = sys.argv[2:]
from test_pbtree_disk import PBTree, clauses_of
tree = PBTree.build(clauses_of([[(0, "=", 1)]]), folder=sys.argv[1])
os.kill(os.getpid(), signal.SIGKILL)
"""
    clauses = clauses_of([[(0, "=", 1)]])
    alive = PBTree.build(clauses, folder=str(tmp_path))
    subprocess.run([sys.executable, "-c", program, str(tmp_path), *PATHS])
    other = tmp_path / "another"
    other.mkdir()
    (left,) = set(tmp_path.iterdir()) - {alive._pages.folder.path, other}
    for folder in tmp_path.iterdir():
        os.utime(folder, (0, 0))
    _remove_abandoned.cache_clear()
    again = PBTree.build(clauses, folder=str(tmp_path))
    assert not left.exists()
    assert set(tmp_path.iterdir()) == {alive._pages.folder.path, again._pages.folder.path, other}


FULL_DISK = """
import os, resource, signal, sys
folder, kind = sys.argv[1:3]
sys.path[:0] = sys.argv[3:]
import numpy as np
from test_pbtree_disk import MB, PBTree, StorageError, wide_clauses, wide_events
rng = np.random.default_rng(1)
few, many, events = wide_clauses(rng, 4000), wide_clauses(rng, 200_000), wide_events(rng, 2)
if kind == "limit":
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2 * MB, 2 * MB))
tree = PBTree.build(few, memory=MB, folder=folder)
for memory in (MB, 64 * MB):  # while sorting in files, while pages are made
    try:
        PBTree.build(many, memory=memory, folder=folder)
    except StorageError as e:
        print(e)
        assert str(e).startswith(folder)
    else:
        raise SystemExit("it did not fail")
assert len(os.listdir(folder)) == 1, "what came to nothing is gone"
before = tree.match(events, 1).count
for _ in range(200):
    try:
        tree.insert(wide_clauses(rng, 2000))
    except StorageError as e:
        print(e)
        break
else:
    raise SystemExit("it did not fail")
try:
    tree.match(events, 1)
except StorageError as e:
    print(e)
    assert "incomplete" in str(e)
else:
    raise SystemExit("an index with half of its rows matched")
"""


def test_a_full_disk(tmp_path):
    """A file system of 3 MB where we may mount one, otherwise files that cannot be larger than 2 MB."""
    program = [sys.executable, "-c", FULL_DISK, str(tmp_path)]
    mount = f"mount -t tmpfs -o size=3m none {tmp_path}"
    allowed = subprocess.run(["unshare", "-rm", "sh", "-c", mount], capture_output=True).returncode == 0
    if allowed:
        command = ["unshare", "-rm", "sh", "-c", f'{mount} && exec "$@"', "sh", *program, "disk", *PATHS]
    else:
        command = [*program, "limit", *PATHS]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 4
    for line in lines[:3]:
        assert re.search(
            r"cannot be written \(.*\); [\d,]+ bytes are free, about [\d,]+ more are needed: make room", line
        )
    assert "folder=..." in lines[0] and "TMPDIR" in lines[0]


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(StorageError, match=r"nowhere: no folder for the pages can be made there \(No such file"):
        PBTree.build(clauses_of([[(0, "=", 1)]]), folder=str(tmp_path / "nowhere"))
