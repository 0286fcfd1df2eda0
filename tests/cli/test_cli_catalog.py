"""dibs catalog, end to end: what it shows, what it changes, and what it says when something is wrong."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from dibs.cli import app
from dibs.cli.catalog import lay_out
from dibs.language.sql import parse
from dibs.matcher import Matcher
from dibs.storage import store
from dibs.storage.manifest import read_manifest, write_manifest

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
PHONE = "model = 'iphone5s' AND price <= 580"


def run(*arguments: object, columns: int | None = None) -> Result:
    result = CliRunner().invoke(
        app, ["catalog", *map(str, arguments)], env={"COLUMNS": None if columns is None else str(columns)}
    )
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert "Traceback" not in result.output
    return result


def done(*arguments: object) -> Result:
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result


def rows_of(result: Result) -> list[Any]:
    return [orjson.loads(line) for line in result.stdout.splitlines()]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """alice, 5 and "5" in segments; bob in the log only."""
    path = tmp_path / "alerts"
    with Matcher.open(path) as matcher:
        matcher.add_many([("alice", PHONE, 2.5), (5, "x = 1"), ("5", "x = 2"), ("gone", "TRUE")])
        matcher.remove("gone")
        matcher.compact()
        matcher.add("bob", "brand = 'Äpple'\n  OR price > 10")
    return path


# ---- looking ----


def test_ls(folder: Path) -> None:
    result = done("ls", folder)
    lines = [line.split() for line in result.stdout.splitlines()]
    assert lines[0] == ["id", "version", "time", "weight", "expression"]
    assert [line[0] for line in lines[1:]] == ["5", '"5"', "alice", "bob"]
    assert [line[1] for line in lines[1:]] == ["2", "3", "1", "6"]
    assert PHONE in result.stdout and "'Äpple'\\n  OR" in result.stdout
    assert result.stderr == "showing 4 of 4\n"


def test_ls_fits_the_terminal(folder: Path) -> None:
    lines = run("ls", folder, columns=70).stdout.splitlines()
    assert max(map(len, lines)) <= 70
    assert lines[3].endswith("…") and "alice" in lines[3]


def test_ls_limit_and_like(folder: Path) -> None:
    assert [row["id"] for row in rows_of(done("ls", folder, "--json", "--limit", 2))] == [5, "5"]
    assert done("ls", folder, "--limit", 2).stderr == "showing 2 of 4\n"
    assert len(rows_of(done("ls", folder, "--json", "--limit", 0))) == 4
    result = done("ls", folder, "--json", "--like", "PRICE", "--limit", 1)
    assert [row["id"] for row in rows_of(result)] == ["alice"]
    assert result.stderr == "showing 1 of 2 that contain 'PRICE', of 4 in all\n"
    assert [row["id"] for row in rows_of(done("ls", folder, "--json", "--like", "ALI"))] == ["alice"]
    assert run("ls", folder, "--limit", -1).exit_code == 2


def test_ls_of_nothing(tmp_path: Path) -> None:
    Matcher.open(tmp_path / "new").close()
    assert done("ls", tmp_path / "new").stderr == "showing 0 of 0\n"
    assert done("ls", tmp_path / "new", "--json").stdout == ""


def test_get(folder: Path) -> None:
    shown = done("get", folder, "alice").stdout
    for part in ("alice", "text", "2.5", PHONE, "Z\n"):
        assert part in shown
    with Matcher.open(folder, read_only=True) as matcher:
        time = matcher.get("alice").time
    row = rows_of(done("get", folder, "alice", "--json"))[0]
    assert {**row, "time": None} == {"id": "alice", "version": 1, "time": None, "weight": 2.5, "expression": PHONE}
    assert np.datetime64(row["time"].removesuffix("Z"), "us").astype(int) == time


def test_get_tells_integers_from_texts(folder: Path) -> None:
    assert rows_of(done("get", folder, "5", "--json"))[0]["expression"] == "x = 1"
    assert rows_of(done("get", folder, "5", "--string", "--json"))[0]["expression"] == "x = 2"
    done("rm", folder, "5")
    assert rows_of(done("get", folder, "5", "--json"))[0]["id"] == "5"
    done("add", folder, "--", "-7", "TRUE")
    assert rows_of(done("get", folder, "--json", "--", "-7"))[0]["id"] == -7
    for id in ("9", "05", "99999999999999999999", "nobody", "½"):
        unknown = run("get", folder, id)
        assert unknown.exit_code == 1
        assert f"no subscription has the id {id!r}" in unknown.stderr


@pytest.mark.parametrize(
    "text",
    [
        " AND ".join(f"(a{i} = {i} OR b{i} LIKE 'x%')" for i in range(20)),
        " OR ".join(f"(a{i} = {i} AND (b{i} LIKE 'x%' OR NOT (c = 1 AND d{i} > 'long enough')))" for i in range(20)),
        "a = 1\nAND b = 2",
        "NOT (" * 40 + "a = 1 AND b = 2" + " OR c = 1)" * 40,
    ],
)
def test_expressions_are_laid_out_as_they_mean(text: str) -> None:
    lines = lay_out(text)
    assert parse("\n".join(lines)) == parse(text)
    assert len(lines) > 1 or len(text) < 100 or text.startswith("NOT")


def test_whatever_is_no_expression_is_shown_as_it_is() -> None:
    assert lay_out("a >\nb " * 40) == ("a >\nb " * 40).split("\n")


# ---- changing ----


def test_add_and_rm(tmp_path: Path) -> None:
    path = tmp_path / "new"
    assert "added alice: 1 subscription\n" in done("add", path, "alice", PHONE, "--weight", "-1.5").stderr
    assert 'added "5": 2 subscriptions' in done("add", path, "5", "x = 1", "--string").stderr
    done("add", path, "5", "x = 1")
    with Matcher.open(path, read_only=True) as matcher:
        assert matcher.match({"x": 1}) == [5, "5"]
        assert matcher.weight("alice") == -1.5
    for arguments, message in (
        (("add", path, "alice", "TRUE"), "'alice' is taken already"),
        (("add", path, "carol", "price >"), "line 1, column"),
        (("add", path, "carol", "TRUE", "--weight", "nan"), "a weight is a number"),
        (("rm", path, "alice", "nobody"), "no subscription has the id 'nobody'"),
    ):
        result = run(*arguments)
        assert result.exit_code == 3
        assert message in result.stderr
    assert len(rows_of(done("ls", path, "--json"))) == 3
    assert "removed 2: 1 subscription\n" in done("rm", path, "alice", "5", "5").stderr
    assert [row["id"] for row in rows_of(done("ls", path, "--json"))] == ["5"]


@pytest.mark.parametrize("ending", ["parquet", "jsonl"])
def test_export_and_import(ending: str, folder: Path, tmp_path: Path) -> None:
    file, again = tmp_path / f"a.{ending}", tmp_path / f"b.{ending}"
    assert f"4 subscriptions are in {file}" in done("export", folder, file).stderr
    assert "added 4: 4 subscriptions" in done("import", tmp_path / "other", file).stderr
    keys = ("id", "expression", "weight")
    assert [[row[k] for k in keys] for row in rows_of(done("ls", tmp_path / "other", "--json"))] == [
        [row[k] for k in keys] for row in rows_of(done("ls", folder, "--json"))
    ]
    refused = run("import", folder, file)
    assert refused.exit_code == 3
    unit = "row" if ending == "parquet" else "line"
    assert f"4 bad subscriptions:\n  {file}, {unit} 1: subscription 5: id 5 is taken already" in refused.stderr
    assert "nothing was added" in refused.stderr
    done("rm", folder, "alice")
    result = done("import", folder, file, "--on-error", "skip")
    assert "added 1: 4 subscriptions" in result.stderr and "3 bad subscriptions:" in result.stderr
    with Matcher.open(folder) as matcher:
        matcher.save(tmp_path / "saved")
    assert "4 subscriptions" in done("export", tmp_path / "saved", again).stderr


def test_import_of_bad_files(folder: Path, tmp_path: Path) -> None:
    pq.write_table(pa.table({"name": ["a"]}), tmp_path / "a.parquet")
    (tmp_path / "b.parquet").write_bytes(b"PAR1 and no more")
    for name, message in (
        ("a.parquet", "has no column 'id'"),
        ("b.parquet", "is damaged"),
        ("c.parquet", "no such file"),
        (".", "holds no .parquet file"),
    ):
        source = tmp_path / "none" if name == "." else tmp_path / name
        if name == ".":
            source.mkdir()
        result = run("import", folder, source)
        assert result.exit_code == 3
        assert message in result.stderr
    assert run("import", tmp_path / "new", tmp_path / "c.parquet").exit_code == 3
    assert not (tmp_path / "new").exists()
    assert "use .parquet or .jsonl" in run("export", folder, tmp_path / "a.csv").stderr


def test_compact(folder: Path) -> None:
    shown = {line[:18].strip(): line[18:].split(" -> ") for line in done("compact", folder).stdout.splitlines()}
    assert [int(text.replace(",", "")) for text in shown["changes to replay"]] == [1, 0]
    assert [int(text.replace(",", "")) for text in shown["log entries"]] == [1, 0]
    assert "segment bytes" in shown and "catalog bytes" in shown
    assert "0 changes to replay" in done("check", folder).stdout
    assert len(rows_of(done("ls", folder, "--json"))) == 4


@pytest.mark.parametrize("command", ["ls", "get", "check", "compact", "rm", "export"])
def test_folders_that_are_none(command: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    more = {"get": ["a"], "rm": ["a"], "export": [tmp_path / "a.parquet"]}.get(command, [])
    for path in (tmp_path / "nothing", tmp_path, tmp_path / "file"):
        result = run(command, path, *more)
        assert result.exit_code == 3
        assert f"dibs: {path}" in result.stderr and "holds no" in result.stderr
    assert os.listdir(tmp_path) == ["file"]


# ---- checking ----


def flip(path: Path, text: bytes | None = None) -> None:
    """Changes the third byte from the end; or the text, wherever it stands."""
    content = path.read_bytes()
    if text is None:
        content = content[:-3] + bytes([content[-3] ^ 1]) + content[-2:]
    else:
        assert text in content
        content = content.replace(text, bytes([text[0] ^ 1]) + text[1:])
    path.write_bytes(content)


def wrong(folder: Path) -> dict[str, str]:
    """The parts that check finds wrong, with what it says."""
    result = run("check", folder, "--json")
    found = orjson.loads(result.stdout)
    assert result.exit_code == (0 if found["whole"] else 3)
    problems = {part["part"]: "\n".join(part["problems"]) for part in found["parts"] if part["problems"]}
    assert found["whole"] == (not problems)
    shown = run("check", folder)
    assert shown.exit_code == result.exit_code
    assert all(problem in shown.stdout for text in problems.values() for problem in text.split("\n"))
    return problems


def state(folder: Path) -> dict[str, bytes]:
    """Without SQLite's empty log and its index, which every reader needs."""
    return {
        p.name: p.read_bytes() for p in folder.rglob("*") if p.is_file() and not p.match("*-shm") and p.stat().st_size
    }


def test_check_of_a_whole_folder(folder: Path) -> None:
    with Matcher.open(folder) as matcher:
        matcher.remove("alice")
        matcher._changes.durable.checkpoint(matcher._layers)  # type: ignore[union-attr]  # with a file of removed rows
        matcher.add("carol", "TRUE")
        matcher.replace(5, "x = 3")
    before = state(folder)
    assert wrong(folder) == {}
    lines = done("check", folder).stdout.splitlines()
    assert [line.split()[:2] for line in lines] == [
        [part, "fine"] for part in ("catalog", "manifest", "segments", "removed", "agreement")
    ]
    assert "2 changes to replay" in lines[-1] and "2 subscriptions are the same" in lines[-1]
    assert state(folder) == before, "check wrote something"


def test_check_finds_damage_in_every_file(folder: Path) -> None:
    with Matcher.open(folder) as matcher:
        matcher.remove("alice")
        matcher._changes.durable.checkpoint(matcher._layers)  # type: ignore[union-attr]
    kinds = {"index.dibs": "manifest", "catalog.db": "catalog", "segment-": "segments", "removed-": "removed"}
    seen = set()
    for path in sorted(folder.rglob("*.dibs")) + [folder / "catalog" / "catalog.db"]:
        kind = next(kind for start, kind in kinds.items() if path.name.startswith(start))
        seen.add(kind)
        whole = path.read_bytes()
        flip(path, b"brand = " if kind == "catalog" else None)
        before = state(folder)
        found = wrong(folder)
        assert set(found) == {kind} and str(path) in found[kind]
        assert state(folder) == before
        if kind in ("segments", "removed"):
            assert "nothing is lost" in found[kind]
            path.unlink()
            assert "is missing" in wrong(folder)[kind]
        path.write_bytes(whole)
        assert wrong(folder) == {}
    assert seen == {"manifest", "catalog", "segments", "removed"}


def test_commands_say_damage(folder: Path) -> None:
    flip(folder / "catalog" / "catalog.db", b"iphone5s")
    for arguments in (("ls", folder), ("get", folder, "5"), ("add", folder, "x", "TRUE"), ("compact", folder)):
        result = run(*arguments)
        assert result.exit_code == 3
        assert "is damaged" in result.stderr


def test_what_is_rebuilt_is_told(folder: Path) -> None:
    next(folder.glob("segment-*")).unlink()
    result = done("add", folder, "x", "TRUE")
    assert "is missing; compiling all 4 subscriptions again" in result.stderr
    assert "Warning" not in result.stderr
    done("compact", folder)
    assert wrong(folder) == {}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"texts": pa.array(["x = 7", "x = 2"], pa.large_string())}, "expressions differ"),
        ({"weights": np.array([9.0, 8.0])}, "weights differ"),
        ({"versions": np.array([70, 71])}, "versions differ"),
        ({}, "only in the catalog"),
    ],
)
def test_check_finds_that_segments_and_catalog_differ(change: dict[str, Any], message: str, folder: Path) -> None:
    """Sound files with another content: what a bug in Dibs would leave, and no checksum finds."""
    manifest = read_manifest(folder)
    stored = next(s for s in manifest.segments if s.rows == 2)
    segment = store.load(folder / stored.file)
    for name, value in change.items():
        setattr(segment, name, value)
    head = store.save(segment, folder / "segment-000099.dibs")
    fields = {**vars(stored), "file": "segment-000099.dibs", "head": head}
    if not change:
        name = "removed-000099.dibs"
        fields |= {"removed": name, "removed_head": store.save_removed(np.array([0]), folder / name)}
    others = tuple(type(stored)(**fields) if s is stored else s for s in manifest.segments)
    write_manifest(folder, type(manifest)(**{**vars(manifest), "segments": others}))
    found = wrong(folder)
    assert set(found) == {"agreement"}
    assert message in found["agreement"]


def test_check_finds_a_manifest_of_another_catalog(folder: Path, tmp_path: Path) -> None:
    with Matcher.open(tmp_path / "other") as matcher:
        matcher.add("x", "TRUE")
        matcher.compact()
    (folder / "index.dibs").write_bytes((tmp_path / "other" / "index.dibs").read_bytes())
    assert "belongs to another catalog" in wrong(folder)["manifest"]
    (folder / "index.dibs").unlink()
    assert "is missing" in wrong(folder)["manifest"]


# ---- while another process writes ----

WRITER = """
    import itertools, sys
    from dibs.matcher import Matcher

    with Matcher.open(sys.argv[1]) as matcher:
        for i in itertools.count():
            with matcher.batch():
                for k in range(20):
                    id = f"w{k}"
                    (matcher.replace if id in matcher else matcher.add)(id, f"generation = {i}")
            matcher.add(i + 100, "TRUE")
            if i % 20 == 10:
                matcher.compact()
            if i == 15:
                print("ready", flush=True)
"""


@contextmanager
def writer(folder: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", textwrap.dedent(WRITER), str(folder)]
    with subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


def test_readers_beside_a_writer_that_is_then_killed(folder: Path, tmp_path: Path) -> None:
    with writer(folder) as process:
        for number in range(3):
            assert rows_of(done("get", folder, "alice", "--json"))[0]["expression"] == PHONE
            assert len(rows_of(done("ls", folder, "--json", "--limit", 5))) == 5
            assert wrong(folder) == {}
            done("export", folder, tmp_path / f"{number}.parquet")
            table = pq.read_table(tmp_path / f"{number}.parquet")
            assert len({text for text in table["expression"].to_pylist() if text.startswith("generation")}) == 1
        sizes = [pq.read_metadata(tmp_path / f"{number}.parquet").num_rows for number in range(3)]
        assert sizes == sorted(sizes) and sizes[0] < sizes[-1], "nobody wrote meanwhile"
        for arguments in (
            ("add", folder, "x", "TRUE"),
            ("rm", folder, "alice"),
            ("import", folder, tmp_path / "0.parquet"),
            ("compact", folder),
        ):
            result = run(*arguments)
            assert result.exit_code == 3
            assert f"is being written by process {process.pid}" in result.stderr
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert wrong(folder) == {}
    assert len(rows_of(done("ls", folder, "--json", "--limit", 0))) >= sizes[-1]
    done("add", folder, "x", "TRUE")
    done("compact", folder)
    assert wrong(folder) == {}


def test_a_closed_pipe_is_no_error(folder: Path) -> None:
    with Matcher.open(folder) as matcher:
        matcher.add_many([(f"n{i}", f"x = {i}") for i in range(20_000)])
    command = [sys.executable, "-m", "dibs.cli", "catalog", "ls", str(folder), "--json", "--limit", "0"]
    with subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert orjson.loads(process.stdout.readline())["id"] == 5
        process.stdout.close()
        assert process.wait(60) == 0
        assert process.stderr.read() == b""
