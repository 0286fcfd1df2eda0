"""Stored events in folders: links, pipes, what may not be read, and what are no events at all."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dibs
from dibs import backtest


def write_events(path: Path, values: list[int]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"a": values}), path)


def test_links_in_a_folder_are_followed_once(tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "events", tmp_path / "elsewhere"
    write_events(folder / "b" / "e.parquet", [1])
    write_events(folder / "a.parquet", [1, 2])
    write_events(elsewhere / "e.parquet", [1, 1])
    write_events(folder / "_left_out" / "e.parquet", [1])
    (folder / "_SUCCESS").touch()
    (folder / "loop").symlink_to(folder, target_is_directory=True)
    (folder / "b" / "up").symlink_to("..", target_is_directory=True)
    (folder / "c").symlink_to(elsewhere, target_is_directory=True)
    (folder / "d.parquet").symlink_to(folder / "a.parquet")
    result = backtest("a = 1", folder)
    assert (result.count, result.events) == (4, 5)
    assert [example.event for example in result.examples] == [0, 2, 3, 4]  # a, b, c: in the order of their paths


def test_a_folder_with_something_else_in_it(tmp_path: Path) -> None:
    write_events(tmp_path / "a.parquet", [1])
    (tmp_path / "b").mkdir()
    os.mkfifo(tmp_path / "b" / "pipe")  # which would keep whoever opens it waiting
    with pytest.raises(dibs.StorageError, match=r"b/pipe: is no Parquet file.*move it elsewhere"):
        backtest("a = 1", tmp_path)
    (tmp_path / "b" / "pipe").unlink()
    (tmp_path / "b" / "nowhere").symlink_to("nothing")
    with pytest.raises(dibs.StorageError, match=r"b/nowhere: is a link that leads nowhere"):
        backtest("a = 1", tmp_path)
    (tmp_path / "b" / "nowhere").unlink()
    assert backtest("a = 1", tmp_path).count == 1
    assert backtest("a = 1", tmp_path / "b").events == 0  # empty
    begun = time.monotonic()
    with pytest.raises(dibs.StorageError, match="is no Parquet file; / was given"):
        backtest("a = 1", "/")
    assert time.monotonic() - begun < 5


def test_what_may_not_be_read(tmp_path: Path) -> None:
    """A folder in the folder, and files of every kind."""
    write_events(tmp_path / "events" / "a.parquet", [1])
    write_events(tmp_path / "events" / "closed" / "e.parquet", [1])
    (tmp_path / "e.jsonl").write_bytes(b'{"a": 1}')
    with pa.ipc.new_stream(tmp_path / "e.arrow", pa.schema({"a": pa.int64()})) as writer:
        writer.write_table(pa.table({"a": [1]}))
    places = [tmp_path / "e.jsonl", tmp_path / "e.arrow", tmp_path / "events" / "closed" / "e.parquet"]
    for place in (tmp_path / "events", *places):
        backtest("a = 1", place)  # loads all that a process without rights cannot load
    for place in places:
        place.chmod(0)
    places[2].chmod(0o644)
    (tmp_path / "events" / "closed").chmod(0)
    for place in (tmp_path, *tmp_path.parents):
        if place == tmp_path or place.name.startswith(("pytest-", "popen-")):  # those of the test alone
            place.chmod(0o755)

    is_root = os.geteuid() == 0
    told = []
    try:
        if is_root:
            os.seteuid(65534)
        for place in (tmp_path / "events", *places[:2]):
            with pytest.raises(dibs.StorageError) as caught:
                backtest("a = 1", place)
            told.append(str(caught.value))
    finally:
        if is_root:
            os.seteuid(0)
        (tmp_path / "events" / "closed").chmod(0o755)
    assert all("permission denied" in each for each in told), told
    assert told[0].startswith(str(tmp_path / "events" / "closed"))
