"""What durability costs and what it saves: opening against rebuilding, changes that survive against changes in
memory, the size of the files and what checking them takes.

Everything lies in a temporary folder, so TMPDIR says which disk is measured.
"""

from __future__ import annotations

import gc
import json
import os
import shutil
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa

from dibs.matcher import Matcher
from dibs.papers.workloads import boolean
from dibs.storage import store
from dibs.storage.catalog import Catalog
from measure import Keys, Say, Size, timed
from sections.durable_changes import Job, changing, expected, job_of

BUILDS = 2  # rounds of what takes as long as rebuilding
REPEATS = 3  # of what takes about a second
REPLAYED = 10_000  # changes that no segment holds yet, as after a crash

PROCESS = """
import json, sys, time
start = time.perf_counter()
import dibs
imported = time.perf_counter()
kind, path, event = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
if kind == "reopen":
    m = dibs.Matcher.open(path)
else:
    import pyarrow as pa
    m = dibs.Matcher()
    with pa.memory_map(path) as file:
        m.add_table(pa.ipc.open_file(file).read_all())
ids = m.match(event)
print(json.dumps([imported - start, ids]), flush=True)
m.close()
"""


def run(size: Size, say: Say) -> dict[str, Any]:
    say("compiling the kernels, or loading them from the cache")
    warm_up()
    say("generating")
    job = job_of(size)
    with TemporaryDirectory(prefix="dibs-bench-") as temporary:
        folder = Path(temporary)
        building = _building(job, folder, size, say)
        reopening = _reopening(job, folder, size, say)
        processes = _in_new_processes(job, folder, size, say)
        disk = _disk(job, folder / "base")
        checking = _checking(folder / "base", size, say)
        changes = changing(job, folder, say)
        filesystem = filesystem_of(folder)
    build = building["seconds"]["rebuild, first match"]
    return {
        "subscriptions": job.base,
        "filesystem": filesystem,
        "building": building,
        "reopening": reopening,
        "reopen / rebuild": reopening["seconds"]["file cache warm"] / build,
        "reopen with a cold file cache / rebuild": _ratio(reopening["seconds"]["file cache cold"], build),
        "reopen after a crash / rebuild": reopening["seconds"]["after a crash"] / build,
        "new process": processes,
        "disk": disk,
        "checking": checking,
        "changing": changes,
        "agreed": job.keys.agreed,
    }


def _ratio(a: float | None, b: float) -> float | None:
    return None if a is None else a / b


def warm_up(index: str = "auto") -> None:
    """Everything that is timed once, with a small workload."""
    workload = boolean.make_named("sparse", 3_000, events=300)
    table = workload.subscription_table()
    with TemporaryDirectory() as folder:
        for _ in range(2):
            with Matcher.open(folder, index, threads=1) as m:
                if not len(m):
                    m.add_table(table.slice(0, 2_000))
                m.match(workload.event_dicts()[0])
                m.match_batch(workload.event_batch(), attributes="attributes").pairs()
                m.add_table(table.slice(2_000))
                m.match(workload.event_dicts()[0])
                m.remove_many(range(2_000, 3_000))
                m.add(-1, "a1 = 1")
                m.replace(-1, "a1 = 2")
                m.remove(-1)
                m.compact()


# ---- building and opening ----


def _building(job: Job, folder: Path, size: Size, say: Say) -> dict[str, Any]:
    """Seconds of all subscriptions in memory and in a new folder, in turns; leaves the folder "base"."""
    seconds: dict[str, list[float]] = defaultdict(list)
    for i in range(min(BUILDS, size.repeats)):
        say(f"rebuilding, in memory and durable, {i + 1}")
        gc.collect()
        with Matcher() as matcher:
            add, _ = timed(lambda m=matcher: m.add_table(job.table))
            first, found = timed(lambda m=matcher: m.match(job.event))
            seconds["add_table in memory"].append(add)
            seconds["rebuild, first match"].append(add + first)
            if i == 0:
                job.check("rebuilt", matcher)
        assert len(found) == job.keys.up_to(1)
        gc.collect()
        shutil.rmtree(folder / "base", ignore_errors=True)
        matcher = Matcher.open(folder / "base")
        add, _ = timed(lambda m=matcher: m.add_table(job.table))
        save, _ = timed(matcher.close)
        seconds["add_table, durable"].append(add)
        seconds["add_table, durable, segments saved"].append(add + save)
    best = {name: min(s) for name, s in seconds.items()}
    adds = {name: job.base / s for name, s in best.items() if name.startswith("add_table")}
    return {"seconds": best, "a second": adds}


def _reopening(job: Job, folder: Path, size: Size, say: Say) -> dict[str, Any]:
    """Seconds of Matcher.open and the first match, in this process."""
    crashed_keys = _crash(job, folder, say)

    def first(name: str, prepare: Callable[[Path], Any], keys: Keys) -> tuple[float, float, int]:
        gc.collect()  # nothing may be mapped any more
        prepare(folder / name)
        before = read_bytes()
        start = time.perf_counter()
        matcher = Matcher.open(folder / name)
        opened = time.perf_counter()
        found = matcher.match(job.event)
        end = time.perf_counter()
        read = read_bytes() - before
        assert len(found) == keys.up_to(1), f"{name} reopened: {len(found)} matches"
        matcher.close()
        return end - start, end - opened, read

    warm, cold, after = [], [], []
    for i in range(max(min(size.repeats, REPEATS), 1)):
        say("reopening")
        shutil.rmtree(folder / "crashed", ignore_errors=True)  # closing has mended the last one
        shutil.copytree(folder / "killed", folder / "crashed")
        warm.append(first("base", lambda _: None, job.keys))
        cold.append(first("base", _forget, job.keys))
        after.append(first("crashed", lambda _: None, crashed_keys))
        if i == 0:
            for name, keys in (("base", None), ("crashed", crashed_keys)):
                with Matcher.open(folder / name) as matcher:
                    job.check(f"{name}, reopened", matcher, keys)
    for name in ("killed", "crashed"):
        shutil.rmtree(folder / name)
    read = min(cold)[2]
    is_cold = read > 0  # else nothing could be taken out of the cache, as where files are memory
    return {
        "seconds": {
            "file cache warm": min(warm)[0],
            "file cache cold": min(cold)[0] if is_cold else None,
            "after a crash": min(after)[0],
        },
        "of that the first match": min(warm)[1],
        "bytes read when cold": read,
        "changes replayed after a crash": _replayed(job),
    }


def _replayed(job: Job) -> int:
    return max(min(REPLAYED, job.base // 10), 1)


def _crash(job: Job, folder: Path, say: Say) -> Keys:
    """Makes the folder "killed" as it is when its process is killed with adds that no segment holds: the copy of one
    that is in use. Returns what it must match."""
    say("making a folder as a crash leaves it")
    ids = range(job.base, job.base + _replayed(job))
    texts = {id: id % len(job.spare) for id in ids}
    shutil.copytree(folder / "base", folder / "source")
    with Matcher.open(folder / "source") as matcher:
        matcher.add_many([(id, job.spare[text]) for id, text in texts.items()])
        assert matcher.stats()["storage"]["changes to replay"] >= len(texts)
        shutil.copytree(folder / "source", folder / "killed", ignore=shutil.ignore_patterns("*.partial"))
    shutil.rmtree(folder / "source")
    return expected(job, dict(texts))


def _forget(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            forget_file(path)


def forget_file(path: Path) -> None:
    """Takes a file out of the file cache of the operating system, where that can be done and nobody has it mapped."""
    if not hasattr(os, "posix_fadvise"):
        return
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)  # what is not written yet cannot be forgotten
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(file)


def read_bytes() -> int:
    """What this process has read from disks so far."""
    try:
        lines = Path("/proc/self/io").read_text().splitlines()
    except OSError:
        return 0
    return int(dict(line.split(": ") for line in lines)["read_bytes"])


def _in_new_processes(job: Job, folder: Path, size: Size, say: Say) -> dict[str, Any]:
    """Seconds from the start of Python to the first match."""
    path = folder / "base.arrow"
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, job.table.schema) as writer:
        writer.write_table(job.table)

    def seconds(kind: str, path: Path) -> tuple[float, float]:
        command = [sys.executable, "-c", PROCESS, kind, str(path), json.dumps(job.event)]
        start = time.perf_counter()
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            line = process.stdout.readline()
            end = time.perf_counter()
        if process.returncode or not line:
            raise RuntimeError(f"the new process that should {kind} ended with {process.returncode}")
        imported, ids = json.loads(line)
        assert len(ids) == job.keys.up_to(1), f"{kind} in a new process: {len(ids)} matches"
        return end - start, imported

    taken: dict[str, list[tuple[float, float]]] = {"rebuild": [], "reopen": []}
    for _ in range(min(BUILDS, size.repeats)):
        say("in new processes")
        taken["rebuild"].append(seconds("build", path))
        taken["reopen"].extend(seconds("reopen", folder / "base") for _ in range(min(2, size.repeats)))
    path.unlink()
    best = {kind: min(t)[0] for kind, t in taken.items()}
    return {
        "seconds": best,
        "of that the import": min(taken["reopen"])[1],
        "ratio": best["reopen"] / best["rebuild"],
    }


# ---- files ----


def _disk(job: Job, folder: Path) -> dict[str, float]:
    """Bytes a subscription of a folder that was closed."""
    segments = sum(p.stat().st_size for p in folder.glob("*.dibs"))
    catalog = sum(p.stat().st_size for p in (folder / "catalog").iterdir())
    return {
        "catalog": catalog / job.base,
        "segments": segments / job.base,
        "texts": job.table["expression"].nbytes / job.base,
    }


def _checking(folder: Path, size: Size, say: Say) -> dict[str, Any]:
    """Seconds and GB a second of what is checked: segments on every opening, the catalog when it was not closed."""
    say("checking the files")
    segments = sorted(folder.glob("segment-*.dibs"))
    catalog, loads = [], []
    for _ in range(max(min(size.repeats, REPEATS), 1)):
        with Catalog.open(folder / "catalog") as opened:
            seconds, wrong = timed(opened.check)
            assert not wrong
        catalog.append(seconds)
        loads.append(timed(lambda: [len(store.load(path)) for path in segments])[0])
    parts = {
        "catalog": (min(catalog), (folder / "catalog" / "catalog.db").stat().st_size),
        "segments": (min(loads), sum(p.stat().st_size for p in segments)),
    }
    parts["both"] = tuple(map(sum, zip(*parts.values())))  # type: ignore[assignment]
    return {name: {"seconds": s, "bytes": b, "GB a second": b / s / 1e9} for name, (s, b) in parts.items()}


def filesystem_of(folder: Path) -> str:
    """The kind of file system that a folder is on, where the system says."""
    try:
        mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    except OSError:
        return "unknown"
    above = [(len(place), kind) for place, kind in mounts if folder.resolve().is_relative_to(place)]
    return max(above)[1] if above else "unknown"
