"""A writer may be killed at any moment: what it acknowledged is there, and of what it was doing all or nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import crash_writer
import pytest

import dibs


def reports(folder: Path, *runs: tuple[Any, ...]) -> list[dict[str, Any]]:
    """What several runs of crash_writer say, which go on at once."""
    started = []
    for number, (rounds, at, *indexes) in enumerate(runs):
        own = folder / str(number)
        own.mkdir()
        words = [sys.executable, crash_writer.__file__, own, rounds, number, at, *indexes]
        started.append(subprocess.Popen([str(w) for w in words], stdout=subprocess.PIPE, stderr=subprocess.PIPE))
    outcomes = [(process, *process.communicate(timeout=600)) for process in started]
    for process, _, errors in outcomes:
        assert process.returncode == 0, errors.decode()
    return [json.loads(out) for _, out, _ in outcomes]


def total(found: list[dict[str, Any]], what: str) -> int:
    return sum(report[what] for report in found)


def problems(found: list[dict[str, Any]]) -> str:
    return "\n".join(
        f"index {wrong['index']}, life {wrong['life']}:\n" + "\n".join(map(str, wrong["what"]))
        for report in found
        for wrong in report["wrong"]
    )


@pytest.mark.slow
def test_killed_at_random_moments(tmp_path: Path) -> None:
    found = reports(tmp_path, (20, "moments", "auto", "pbtree"), (20, "moments", "pstree", "opindex"))
    assert not problems(found)
    assert total(found, "kills") == 40
    # That something happened: enough lives came to work, and some were killed in the middle of a change.
    assert total(found, "checked") > 12 and total(found, "acknowledged") > 60 and total(found, "doubtful") > 2
    assert total(found, "of documents") > 0


@pytest.mark.slow
def test_killed_at_operations_on_files(tmp_path: Path) -> None:
    found = reports(tmp_path, (20, "operations", "auto", "betree"), (20, "operations", "pbtree", "auto"))
    assert not problems(found)
    assert total(found, "kills") == 40
    # Some died between the commit and the acknowledgement: the change was made, wholly.
    assert total(found, "doubtful") > 5 and total(found, "made") > 0


def test_everything_is_synced_before_it_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Power loss: a file is synced before it gets its name, its folder after, and only then do others rely on it."""
    done: list[tuple[str, str]] = []
    sync, replace, unlink = os.fsync, os.replace, os.unlink

    def name_of(descriptor: int) -> str:
        return Path(os.readlink(f"/proc/self/fd/{descriptor}")).name

    monkeypatch.setattr(os, "fsync", lambda fd: (done.append(("sync", name_of(fd))), sync(fd)))
    monkeypatch.setattr(os, "replace", lambda a, b: (done.append(("name", Path(b).name)), replace(a, b)))
    monkeypatch.setattr(os, "unlink", lambda p, **o: (done.append(("remove", Path(p).name)), unlink(p, **o)))
    folder = tmp_path / "matcher"
    with dibs.Matcher.open(folder) as m:
        assert ("sync", "matcher") in done  # the names of the catalog and the manifest
        m.add_many([(i, f"x = {i}") for i in range(300)])
        m.compact()
        m.remove(7)
        done.clear()
        m._changes.durable.checkpoint(m._layers)
        m.compact()
    files = [name for what, name in done if what == "name"]
    assert [f.split("-")[0] for f in files] == ["removed", "index.dibs", "segment", "index.dibs"]
    for file in files:
        at = done.index(("name", file))
        assert done[at - 1] == ("sync", f"{file}.partial")
        assert done[at + 1] == ("sync", "matcher")
    gone = [name for what, name in done if what == "remove" and not name.endswith(".partial")]
    assert sorted(f.split("-")[0] for f in gone) == ["removed", "segment"]
    last_manifest = max(i for i, (what, name) in enumerate(done) if (what, name) == ("name", "index.dibs"))
    assert all(done.index(("remove", name)) > last_manifest for name in gone)


def test_sqlite_syncs_each_commit(tmp_path: Path) -> None:
    with dibs.Matcher.open(tmp_path / "matcher") as m:
        m.add("a", "x = 1")
        writer = m._changes.durable.catalog._writer
        assert [writer.execute(f"PRAGMA {name}") for name in ("journal_mode", "synchronous")] == [[("wal",)], [(2,)]]
