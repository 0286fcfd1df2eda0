"""The PB+tree in LMDB's pages: what they hold after any updates, how much of them is resident and how many are
visited, and what happens to its files."""

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

import lmdb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pbtree_model import (
    Updated,
    any_order,
    clauses_of,
    events_of,
    matched,
    pairs_of,
    plain_clauses,
    random_updates,
    thirds,
)

from coded import random_clauses, random_events
from dibs.coding.batch import CodedEvents
from dibs.coding.clauses import Clauses
from dibs.errors import FormatError, StorageError
from dibs.index import create, restore
from dibs.index.papers.pbtree.environment import Environment, _remove_abandoned
from dibs.index.papers.pbtree.filing import EQUAL, GONE, GREATER, LESS, LISTS, UNEQUAL, rows_of
from dibs.index.papers.pbtree.pages import KNOWN_TURN, POOL, SIZE, TURN
from dibs.index.papers.pbtree.pbtree import LEAST_MEMORY, PBTree

MB = 1 << 20


def stored(tree: PBTree) -> list[tuple[int, int, int, int]]:
    """(tree, list, cell, row) of all entries, as LMDB itself reads them."""
    found = []
    with lmdb.open(str(tree._environment.folder), lock=False, readonly=True, max_dbs=1) as environment:
        database = environment.open_db(b"lists", create=False)
        with environment.begin(db=database) as transaction, transaction.cursor() as cursor:
            for key, value in cursor:
                number, entry = (int.from_bytes(x, sys.byteorder) for x in (key, value))
                found.append((number // LISTS, number % LISTS, entry >> 32, entry & 0xFFFFFFFF))
    return found


def check(tree: PBTree) -> None:
    """The pages hold just the entries of the rows that are there, in order, and the counts agree."""
    rows = np.flatnonzero(tree._need[: tree._rows] != GONE)
    operator, key, row, need, verify = tree._entries_of(rows_of(tree._growing.clauses, rows), rows)
    wanted = sorted(zip((key >> 32).tolist(), operator.tolist(), (key & 0xFFFFFFFF).tolist(), row.tolist()))
    found = stored(tree)
    assert found == wanted
    filed = np.zeros_like(tree._filed)
    for number, op, _, _ in found:
        filed[number, op] += 1
    assert (filed == tree._filed).all()
    assert (tree._need[rows] == need).all() and (tree._verify[rows] == verify).all()
    plan = tree.plan()
    assert plan["entries"] == len(found) and plan["outside the limits"] == filed[1::2].sum()
    assert plan["keys"] == np.count_nonzero(filed)


def wide_clauses(rng: np.random.Generator, rows: int, attributes: int = 4, cells: int = 1000) -> Clauses:
    """One =, <= or >= for each attribute: an index of 8 bytes for each."""
    n = rows * attributes
    constant = rng.integers(2, cells, n).astype(np.int32)
    kind = rng.integers(3, size=n)
    lo = np.where(kind == 1, 1, constant).astype(np.int32)
    hi = np.where(kind == 2, cells, constant).astype(np.int32)
    attribute = np.tile(np.arange(attributes, dtype=np.int32), rows)
    none = np.empty(0, np.int32)
    return Clauses(np.arange(rows + 1) * attributes, attribute, lo, hi, none, none, none, none, rows, attributes)


def held(clauses: Clauses, events: CodedEvents) -> list[int]:
    """The keys of the pairs of wide_clauses, where every event has every attribute."""
    width = clauses.attributes
    lo, hi, found = clauses.lo.reshape(-1, width), clauses.hi.reshape(-1, width), []
    for e, cells in enumerate(events.lo.reshape(-1, width)):
        found.append((e << 32) + np.flatnonzero(((lo <= cells) & (cells <= hi)).all(axis=1)))
    return np.concatenate(found).tolist()


def keys_of(tree: PBTree, events: CodedEvents, threads: int = 1) -> list[int]:
    pairs = tree.match(events, threads)
    return np.sort(pairs.event.astype(np.int64) << 32 | pairs.row).tolist()


def wide_events(rng: np.random.Generator, events: int, attributes: int = 4, cells: int = 1000) -> CodedEvents:
    return events_of([{a: int(rng.integers(1, cells + 1)) for a in range(attributes)} for _ in range(events)])


# ---- the paper ----


def test_lists_are_in_the_order_of_constants():
    constants = [50, 10, 5, 30, 20, 80, 6]
    rows = [[(0, op, c)] for c in constants for op in (">=", "<=", "!=", "=")]
    for tree in (PBTree.build(clauses_of(rows)), PBTree.build(clauses_of(rows[:1]))):
        for i in range(tree._rows, len(rows)):
            tree.insert(clauses_of(rows[i : i + 1]))
        check(tree)
        for op in (EQUAL, GREATER, LESS, UNEQUAL):
            inside = [cell for number, own, cell, _ in stored(tree) if own == op and number == 0]
            assert inside == sorted(constants)


def test_pages_visited_grow_with_the_logarithm_and_the_output():
    """O(log n + L): entries met are predicates satisfied, and pages visited are few more than hold these."""
    rng = np.random.default_rng(1)
    fixed = {}
    for n in (3_000, 30_000, 300_000):
        clauses = thirds(rng.integers(3_000, 2_000_000, n), 2_000_001)
        lo, hi = clauses.lo, clauses.hi
        lo[-1000:] = np.arange(1000) + 2  # what an event of 1,500 satisfies of >=, for every n
        tree = PBTree.build(clauses)
        height = tree.plan()["height"]
        for x in (1, 1_500, 700_000, 1_999_999):
            pairs = tree.match(events_of([{0: x}]), 1)
            holds = int(((lo <= x) & (x <= hi)).sum())
            assert pairs.count == pairs.candidates == pairs.predicates == holds
            assert pairs.nodes <= 3 * height + 2 + holds / (510 * 0.9)
        less = clauses.take(np.arange(0, n // 3).astype(np.int64))  # = only: the output stays the same
        fixed[n] = PBTree.build(less).match(events_of([{0: int(lo[0])}]), 1).nodes
    assert fixed[300_000] <= fixed[3_000] + 1 <= 4


# ---- updates ----


@pytest.mark.parametrize("seed", range(6))
def test_entries_after_random_updates(seed):
    rng, first = np.random.default_rng(seed), 600 if seed % 2 else 40
    tree = random_updates(PBTree.build, check, rng, first, inserted=300, deleted=400, steps=24)
    assert stored(tree) == [] and tree.plan()["height"] == 0


@given(st.lists(st.tuples(st.sampled_from(["=", "<=", ">=", "!="]), st.integers(2, 30)), max_size=25), st.randoms())
@settings(max_examples=40, deadline=None)
def test_any_order_of_insertion_and_deletion(predicates, random):
    any_order(PBTree.build, check, predicates, random)


def test_a_file_that_outgrows_its_mapping():
    environment = Environment(LEAST_MEMORY)
    environment._room = 1 << 14
    lists, values = np.zeros(50_000, np.uint32), np.arange(50_000, dtype=np.int64)
    environment.append(lists, values)
    environment.delete(lists[::2], values[::2])
    with pytest.raises(AssertionError, match="were not as expected: delete"):
        environment.delete(lists[::2], values[::2])
    with lmdb.open(str(environment.folder), lock=False, readonly=True, max_dbs=1) as opened:
        database = opened.open_db(b"lists", create=False)
        with opened.begin() as transaction:
            assert transaction.stat(database)["entries"] == 25_000


# ---- memory ----


@pytest.fixture(scope="module")
def large():
    """Clauses, their tree of 11 MB that may take 1 MB, events, and the keys of their pairs."""
    rng = np.random.default_rng(3)
    clauses, events = wide_clauses(rng, 340_000), wide_events(rng, 8)
    tree = PBTree.build(clauses, memory=MB)
    assert tree.plan()["bytes on disk"] >= 10 * tree.plan()["memory"]
    return clauses, tree, events, held(clauses, events)


def resident(own: np.ndarray) -> int:
    """Bytes of a pool that are resident, as the operating system has it."""
    page = mmap.PAGESIZE
    assert own[POOL] % page == own[SIZE] % page == 0
    known = np.fromfile("/proc/self/pagemap", np.uint64, int(own[SIZE]) // page, offset=int(own[POOL]) // page * 8)
    return int(np.count_nonzero(known >> np.uint64(63))) * page


class Watching:
    """The most bytes of a tree's pools that were resident meanwhile, as the operating system counts them. (Everything
    else is there before: counters and work space do not grow.)"""

    def __init__(self, tree: PBTree):
        self._pages, self.most, self.looks, self._over = tree._pages, 0, 0, threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def _watch(self) -> None:
        over = False
        while not over:  # at least once afterwards
            over = self._over.is_set()
            turn, pools = int(self._pages.shared[TURN]), [own for _, _, own in list(self._pages._all)]
            steady = all(own[KNOWN_TURN] == turn for own in pools)
            found = sum(resident(own) for own in pools)
            # The pools are looked at one after the other: while memory goes from one to another it counts twice.
            if steady and self._pages.shared[TURN] == turn:
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
    assert plan["resident"] <= plan["resident at most"] <= MB
    assert plan["blocks read"] > 5_000
    unbounded = PBTree.build(clauses)
    assert keys_of(unbounded, events) == wanted
    plan = unbounded.plan()
    assert plan["resident"] == plan["blocks read"] * 4 * 4096 > 5 * MB, "each block is read once"
    assert plan["pages visited"] == unbounded.match(events, 1).nodes


def test_more_threads_than_there_is_memory_for_wait():
    rng = np.random.default_rng(8)
    clauses, events = wide_clauses(rng, 60_000), wide_events(rng, 3)
    tree, wanted = PBTree.build(clauses, memory=MB), held(clauses, events)
    with Watching(tree) as seen, ThreadPoolExecutor(20) as pool:
        for found in pool.map(lambda _: keys_of(tree, events), range(40)):
            assert found == wanted
    assert 0 < seen.most <= MB and len(tree._pages._all) <= 8


def test_building_and_updating_take_no_more_than_they_may():
    """Measured in a process of its own; what is not bounded by `memory` is there before."""
    program = """
import re, sys
import numpy as np
sys.path[:0] = sys.argv[1:]
from test_pbtree import MB, PBTree, wide_clauses, wide_events
def now(what):
    return int(re.search(rf"^{what}:\\s+(\\d+)", open("/proc/self/status").read(), re.M)[1]) * 1024
rng = np.random.default_rng(3)
clauses, more, events = wide_clauses(rng, 400_000), wide_clauses(rng, 500), wide_events(rng, 2)
first = PBTree.build(clauses.take(np.arange(20_000)), memory=MB)
first.match(events, 1)
first.insert(more)
first.delete(np.arange(100))
del first
def peak(work):
    before = now("VmRSS")
    open("/proc/self/clear_refs", "w").write("5")
    result = work()
    return now("VmHWM") - before, result
built, tree = peak(lambda: PBTree.build(clauses, memory=4 * MB))
updated, _ = peak(lambda: tree.delete(np.arange(0, 400_000, 2000)))
print(built, updated, tree.plan()["bytes on disk"])
"""
    paths = [str(Path(__file__).parent), *sys.path]
    done = subprocess.run([sys.executable, "-c", program, *paths], capture_output=True, text=True, check=True)
    built, updated, disk = map(int, done.stdout.split())
    assert disk > 12 * MB
    assert built <= 4 * MB + 400_000 * 7 + 2 * MB, built  # need, verify and room for growth; what Python itself takes
    assert updated <= 4 * MB + 2 * MB, updated


def test_one_constant_of_more_entries_than_memory_sorts():
    rows = 60_000
    none = np.empty(0, np.int32)
    attribute = np.tile(np.array([0, 1], np.int32), rows)
    lo = np.full(2 * rows, 5, np.int32)
    lo[1::2] = np.random.default_rng(5).integers(1, 50, rows)
    clauses = Clauses(np.arange(rows + 1) * 2, attribute, lo, lo.copy(), none, none, none, none, rows, 2)
    tree = PBTree.build(clauses, memory=MB)
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
        pages = np.frombuffer(content, np.uint8, len(arrays["pages"]), shift)
        tree = PBTree.restore(clauses, arrays | {"pages": pages}, memory=MB)
        with Watching(tree) as seen:
            for threads in (1, 2):
                assert keys_of(tree, events, threads) == wanted
        assert 0 < seen.most <= MB and tree.plan()["blocks read"] > 1000
        assert tree._environment is None


def test_restored_from_ordinary_memory_it_reads_there_too(large):
    """What has no file, or has none any more."""
    clauses, built, events, wanted = large
    arrays = built.arrays()
    anonymous = mmap.mmap(-1, len(arrays["pages"]), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    anonymous[:] = arrays["pages"].tobytes()
    for pages in (arrays["pages"], arrays["pages"].copy(), np.frombuffer(anonymous, np.uint8)):
        tree = PBTree.restore(clauses, arrays | {"pages": pages}, memory=MB)
        assert keys_of(tree, events) == keys_of(tree, events, 2) == wanted
        assert tree.plan()["blocks read"] == 0


def test_a_page_that_cannot_be_read(tmp_path):
    """The file became shorter, which nobody should do: an error, not a wrong answer or the end of the process."""
    rng = np.random.default_rng(9)
    clauses, events = wide_clauses(rng, 60_000), wide_events(rng, 3)
    tree = PBTree.build(clauses, memory=MB, folder=str(tmp_path))
    assert keys_of(tree, events) == held(clauses, events)
    os.truncate(tree._environment.path, MB)
    for _ in range(2):
        with pytest.raises(StorageError, match=r"a page cannot be read: is the disk all right\? Build the index again"):
            tree.match(events, 2)


def test_updates_after_restoring(tmp_path):
    rng = np.random.default_rng(4)
    first, more = plain_clauses(rng, 2000, 3, 30), plain_clauses(rng, 300, 3, 30)
    arrays = PBTree.build(first).arrays()
    np.save(tmp_path / "pages.npy", arrays["pages"])
    before = arrays["pages"].tobytes()
    mapped = np.load(tmp_path / "pages.npy", mmap_mode="c")
    tree = PBTree.restore(first, {k: v.copy() for k, v in arrays.items()} | {"pages": np.asarray(mapped)})
    model = Updated(tree, first)
    model.insert(more)
    model.delete(np.arange(0, len(first), 3))
    check(tree)
    events = random_events(rng, 40, 3, 30, several=False)
    assert pairs_of(tree, events) == model.expected(events)
    assert np.load(tmp_path / "pages.npy").tobytes() == before, "the saved file is as it was"


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


def test_pages_of_another_kind_are_refused():
    clauses = clauses_of([[(0, "=", 1)]])
    arrays = PBTree.build(clauses).arrays()
    with pytest.raises(FormatError, match="none of LMDB's: compile the index again"):
        PBTree.restore(clauses, arrays | {"pages": np.zeros(1 << 14, np.uint8)})


# ---- files ----


def test_the_folder_goes_with_the_index(tmp_path):
    clauses = clauses_of([[(0, "=", 1)]] * 300)
    tree = PBTree.build(clauses, folder=str(tmp_path))
    assert [p.name for p in tree._environment.folder.iterdir()] == ["data.mdb"]
    tree.insert(clauses_of([[(0, "=", 1)]] * 400))  # all pages anew
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
    assert len(arrays["pages"]) > 0 and arrays["pages"][-1] >= 0, "what was mapped stays"


def test_the_folder_goes_at_exit(tmp_path):
    program = """
import sys
sys.path[:0] = sys.argv[2:]
from test_pbtree import PBTree, clauses_of
tree = PBTree.build(clauses_of([[(0, "=", 1)]]), folder=sys.argv[1])
assert tree._environment.path.exists()
"""
    paths = [str(Path(__file__).parent), *sys.path]
    subprocess.run([sys.executable, "-c", program, str(tmp_path), *paths], check=True)
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_is_removed_by_the_next_and_nothing_else(tmp_path):
    program = """
import os, signal, sys
sys.path[:0] = sys.argv[2:]
from test_pbtree import PBTree, clauses_of
tree = PBTree.build(clauses_of([[(0, "=", 1)]]), folder=sys.argv[1])
os.kill(os.getpid(), signal.SIGKILL)
"""
    paths = [str(Path(__file__).parent), *sys.path]
    clauses = clauses_of([[(0, "=", 1)]])
    alive = PBTree.build(clauses, folder=str(tmp_path))
    subprocess.run([sys.executable, "-c", program, str(tmp_path), *paths])
    other = tmp_path / "another"
    other.mkdir()
    (left,) = set(tmp_path.iterdir()) - {alive._environment.folder, other}
    for folder in tmp_path.iterdir():
        os.utime(folder, (0, 0))
    _remove_abandoned.cache_clear()
    again = PBTree.build(clauses, folder=str(tmp_path))
    assert not left.exists()
    assert set(tmp_path.iterdir()) == {alive._environment.folder, again._environment.folder, other}


FULL_DISK = """
import os, resource, signal, sys
folder, kind = sys.argv[1:3]
sys.path[:0] = sys.argv[3:]
import numpy as np
from test_pbtree import MB, PBTree, StorageError, wide_clauses, wide_events
rng = np.random.default_rng(1)
few, many, events = wide_clauses(rng, 4000), wide_clauses(rng, 200_000), wide_events(rng, 2)
if kind == "limit":
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2 * MB, 2 * MB))
tree = PBTree.build(few, memory=MB, folder=folder)
for memory in (MB, 64 * MB):  # while sorting in files, while LMDB writes
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
    paths = [str(Path(__file__).parent), *sys.path]
    mount = f"mount -t tmpfs -o size=3m none {tmp_path}"
    allowed = subprocess.run(["unshare", "-rm", "sh", "-c", mount], capture_output=True).returncode == 0
    if allowed:
        command = ["unshare", "-rm", "sh", "-c", f'{mount} && exec "$@"', "sh", *program, "disk", *paths]
    else:
        command = [*program, "limit", *paths]
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
