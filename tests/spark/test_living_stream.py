"""dibs.spark.stream: subscriptions that change while events are matched, sinks, and what a replay gives."""

from __future__ import annotations

import json
import os
import re
import threading
import traceback
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, StringType, StructField
from table_churn import churn

from dibs.errors import ArgumentError, DibsError, FormatError, SubscriptionErrors
from dibs.matcher import Matcher
from dibs.spark import History, Table, Webhook, backfill, compile, match, sinks, stream, versions
from dibs.spark.applying import apply_changes, become
from dibs.spark.fed import Heard
from dibs.spark.ledger import Ledger
from dibs.spark.ordering import Ranked, find_order, settle
from dibs.spark.parquet_files import find_folder
from dibs.spark.places import is_unfinished
from dibs.spark.running import Interrupted, find_interruption, stop_quietly
from dibs.spark.snapshots import BASES, Follower
from dibs.spark.subscription_sources import DurableFolder
from dibs.spark.tables import TableFeed
from dibs.spark.webhook import post
from dibs.tuning import using

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CARRY = ("version", "subscription_version")


class Inbox:
    """A folder of JSON lines that a stream reads: one file, one batch."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._folder, self._files = folder, 0
        folder.mkdir()
        self.stream = spark.readStream.option("maxFilesPerTrigger", 1).text(str(folder))

    def put(self, *events: dict[str, Any] | str) -> None:
        lines = [event if isinstance(event, str) else json.dumps(event) for event in events]
        partial = self._folder / f".{self._files}"
        partial.write_text("\n".join(lines))
        os.utime(partial, (self._files, self._files))  # Spark takes files in the order of their times
        partial.rename(self._folder / f"{self._files:04d}.txt")
        self._files += 1


@pytest.fixture
def inbox(spark: SparkSession, tmp_path: Path) -> Inbox:
    return Inbox(spark, tmp_path / "in")


def found(path: Path) -> list[tuple[Any, ...]]:
    """(batch, version, subscription version, event, subscription) of all matches, sorted."""
    rows = pq.read_table(path).to_pylist()
    return sorted(
        (r["batch"], r["version"], r["subscription_version"], r["event_id"], r["subscription_id"]) for r in rows
    )


# ---- snapshots ----


@pytest.mark.parametrize(("changes_since_base", "steps_since_base"), [(10_000, 64), (10, 3), (1, 1)])
def test_snapshots_of_a_folder_that_changes(tmp_path: Path, changes_since_base: int, steps_since_base: int) -> None:
    """Every snapshot gives what the matcher gave at that version, to a follower that goes on and to a new one."""
    random = Random(7)
    events = [{"n": n} for n in range(10)]
    sizes = {"changes_since_base": changes_since_base, "steps_since_base": steps_since_base}
    with using(sizes), Matcher.open(tmp_path / "folder") as matcher:
        matcher.add_many([(i, f"n >= {i % 10}") for i in range(50)])
        living, follower = DurableFolder(tmp_path / "folder", tmp_path, None), Follower()
        taken = []
        for turn in range(30):
            for _ in range(random.randrange(4)):
                id = random.randrange(70)
                apply_changes(matcher, [(id, random.choice([None, f"n = {random.randrange(10)}"]), None)], "raise")
            if turn % 7 == 6:
                matcher.compact()  # new segments, and removals are forgotten
            snapshot = living.now()
            expected = [matcher.match(event) for event in events]
            taken.append((snapshot, expected))
            assert snapshot.version == matcher.version
            assert [
                follower.bring_to(tmp_path / BASES / snapshot.base, snapshot, tmp_path).match(e) for e in events
            ] == expected
        living.close()
    for snapshot, expected in random.sample(taken, 8):
        other = Follower()
        assert [
            other.bring_to(tmp_path / BASES / snapshot.base, snapshot, tmp_path).match(e) for e in events
        ] == expected
    if changes_since_base == 10:
        assert len({snapshot.base for snapshot, _ in taken}) > 1


def test_the_ledger_keeps_what_two_batches_need(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    with Matcher.open(tmp_path / "folder") as matcher, using({"changes_since_base": 1}):
        living = DurableFolder(tmp_path / "folder", tmp_path, None)
        for batch in range(6):
            matcher.add(batch, "TRUE")
            matcher.add(-batch - 1, "TRUE")
            matcher.compact()
            snapshot = living.now()
            ledger.write(batch, snapshot, "query")
            ledger.tidy(batch, snapshot, "query")
            assert ledger.read(batch, "query") == ledger.last() == snapshot
        living.close()
    assert ledger.read(3, "query") is None and ledger.read(4, "query") is not None
    assert len(list((tmp_path / BASES).iterdir())) == 2
    assert ledger.read(5, "another query") is None
    ledger.write(0, snapshot, "another query")
    ledger.tidy(0, snapshot, "another query")
    assert ledger.read(4) is None and ledger.read(5) is None and len(list((tmp_path / BASES).iterdir())) == 1


# ---- streams ----


@pytest.mark.spark
def test_changes_are_seen_by_the_next_batch_and_replays_are_the_same(inbox: Inbox, tmp_path: Path) -> None:
    with Matcher.open(tmp_path / "subs") as matcher:
        matcher.add("even", "n IN (0, 2, 4)")
        matcher.add("all", "TRUE", weight=2.5)
        inbox.put(*({"n": n} for n in range(3)))
        seen = []
        options: dict[str, Any] = dict(event_id="value", attributes="value", carry=CARRY, on_batch=seen.append)
        with stream(inbox.stream, tmp_path / "subs", tmp_path / "out", tmp_path / "checkpoint", **options) as query:
            query.processAllAvailable()
            matcher.replace("even", "n = 2")
            matcher.remove("all")
            matcher.add("odd", "n = 1")
            inbox.put({"n": 1}, {"n": 2}, '{"n": 1')
            query.processAllAvailable()
            progress = query.lastProgress
        expected = [
            (0, 2, 1, '{"n": 0}', "even"), (0, 2, 1, '{"n": 2}', "even"),
            *((0, 2, 2, f'{{"n": {n}}}', "all") for n in range(3)),
            (1, 5, 3, '{"n": 2}', "even"), (1, 5, 5, '{"n": 1}', "odd"),
        ]  # fmt: skip
        assert found(tmp_path / "out") == expected
        entry = json.loads((tmp_path / "checkpoint" / "dibs" / "batches" / "000000000001.json").read_bytes())
        assert entry["query"] == query.id
        assert progress is not None and progress["dibs"]["version"] == 5 and progress["numInputRows"] == 3
        assert [(m.batch, m.events, m.matches, m.malformed_events, m.changes) for m in seen] == [
            (0, 3, 5, 0, 0),
            (1, 3, 2, 1, 3),
        ]
        # The last batch once more, as after a crash before it was committed; the subscriptions have changed since.
        (tmp_path / "checkpoint" / "commits" / "1").unlink()
        (tmp_path / "checkpoint" / "commits" / ".1.crc").unlink(missing_ok=True)
        matcher.remove("odd")
        inbox.put({"n": 1})
        matcher.add("late", "n = 1")
        with stream(inbox.stream, tmp_path / "subs", tmp_path / "out", tmp_path / "checkpoint", **options) as query:
            query.processAllAvailable()
            assert [(m.batch, m.version, m.replayed) for m in query.metrics] == [(1, 5, True), (2, 7, False)]
    assert found(tmp_path / "out") == [*expected, (2, 7, 7, '{"n": 1}', "late")]


@pytest.mark.spark
def test_a_new_checkpoint_takes_no_versions_from_an_old_state_folder(
    spark: SparkSession, inbox: Inbox, tmp_path: Path
) -> None:
    """Its batches have the same numbers as those of the stream before, and are others."""
    options: dict[str, Any] = dict(event_id="value", attributes="value", carry=CARRY, state=tmp_path / "state")
    with Matcher.open(tmp_path / "subs") as matcher:
        matcher.add("a", "n = 1")
        inbox.put({"n": 1})
        for start in ("first", "second"):
            checkpoint = tmp_path / f"{start} checkpoint"
            query = stream(
                inbox.stream, tmp_path / "subs", tmp_path / start, checkpoint, trigger="available-now", **options
            )
            query.awaitTermination(60)
            assert [(m.batch, m.version, m.replayed) for m in query.metrics] == [(0, matcher.version, False)]
            matcher.add(f"b after {start}", "n = 1")
        stored = spark.read.text(str(tmp_path / "in"))
        for _ in range(2):
            told = backfill(stored, tmp_path / "subs", tmp_path / "third", tmp_path / "third checkpoint", **options)
            assert (told.version, told.matches) == (3, 3)
            matcher.add(f"c{matcher.version}", "n = 1")
        assert told.replayed
    assert [id for *_, id in found(tmp_path / "second")] == ["a", "b after first"]


@pytest.mark.spark
def test_a_table_is_read_again_when_it_changes_and_a_backfill_gives_the_same(
    spark: SparkSession, inbox: Inbox, tmp_path: Path
) -> None:
    def write(**texts: str) -> None:
        pq.write_table(pa.table({"id": list(texts), "expression": list(texts.values())}), tmp_path / "subs.parquet")

    write(a="n = 1", b="n >= 1")
    inbox.put({"n": 1}, {"n": 2})
    options: dict[str, Any] = dict(event_id="value", attributes="value", carry=CARRY, on_error="skip")
    query = stream(inbox.stream, tmp_path / "subs.parquet", tmp_path / "out", tmp_path / "checkpoint", **options)
    with query:
        query.processAllAvailable()
        write(b="n >= 1", c="n = 2", d="n >")
        inbox.put({"n": 1}, {"n": 2})
        query.processAllAvailable()
        assert [m.rejected for m in query.metrics] == [0, 1]
    pairs = [(batch, event[-2], id) for batch, _, _, event, id in found(tmp_path / "out")]
    assert sorted(pairs) == [(0, "1", "a"), (0, "1", "b"), (0, "2", "b"), (1, "1", "b"), (1, "2", "b"), (1, "2", "c")]

    stored = spark.read.text(str(tmp_path / "in" / "0001.txt"))
    told = backfill(stored, Table(str(tmp_path / "subs.parquet")), tmp_path / "again", tmp_path / "other", **options)
    assert (told.events, told.matches) == (2, 3)
    again = found(tmp_path / "again")
    assert [row[3:] for row in again] == [row[3:] for row in found(tmp_path / "out") if row[0] == 1]
    with pytest.raises(DibsError, match="batch=0 is there already, and not of this checkpoint"):
        backfill(stored, Table(str(tmp_path / "subs.parquet")), tmp_path / "again", tmp_path / "third", **options)
    assert found(tmp_path / "again") == again


@pytest.mark.spark
def test_a_table_that_is_overwritten_while_a_stream_runs(
    spark: SparkSession, inbox: Inbox, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever becomes of it, the last good version stays until there is another, and the progress says so."""
    folder = tmp_path / "subs"

    def write(count: int, ids: Any = str, **columns: Any) -> None:
        table = {"id": [ids(i) for i in range(count)], "expression": ["n = 1"] * count, **columns}
        folder.mkdir(exist_ok=True)
        pq.write_table(pa.table({k: v for k, v in table.items() if v is not None}), folder / "a.parquet")

    def batch() -> tuple[int, str | None]:
        inbox.put({"n": 1})
        query.processAllAvailable()
        assert query.lastProgress is not None and query.lastProgress["dibs"]["notice"] == query.metrics[-1].notice
        assert query.metrics[-1].matches == query.metrics[-1].subscriptions
        return query.metrics[-1].matches, query.metrics[-1].notice

    def is_kept(why: str) -> bool:
        matches, notice = batch()
        return matches == 40 and notice is not None and why in notice and "last good version (40)" in notice

    write(40)
    options: dict[str, Any] = dict(event_id="value", attributes="value")
    with stream(inbox.stream, folder, tmp_path / "out", tmp_path / "checkpoint", **options) as query:
        assert batch() == (40, None)
        (folder / "a.parquet").unlink()  # as Spark's overwrite begins
        assert is_kept("it has no files")
        folder.rmdir()
        assert is_kept("it is not there")
        (folder / "_temporary" / "0").mkdir(parents=True)
        write(20)  # the first of its tasks is committed, and the driver dies
        assert is_kept("it has _temporary and no _SUCCESS")
        (folder / "_temporary" / "0").rmdir()
        (folder / "_temporary").rmdir()
        (folder / "a.parquet").write_bytes((folder / "a.parquet").read_bytes()[:100])
        assert is_kept("it cannot be read: ")
        write(40, expression=None)
        assert is_kept("expected subscriptions with the columns id")
        write(40, int)
        assert is_kept("its ids are of the type int64 now, and were strings")
        write(19)
        assert is_kept("it has shrunk from 40 subscriptions to 19, by more than 50%")
        assert batch() == (19, None)
        write(18)
        assert batch() == (18, None)
        assert "it is not there" in caplog.text
    (folder / "a.parquet").unlink()
    with stream(inbox.stream, folder, tmp_path / "out", tmp_path / "checkpoint", **options) as query:
        matches, notice = batch()
        assert matches == 18 and "it has no files" in str(notice)
    with pytest.raises(DibsError, match="subs cannot be used: it has no files"):
        stream(inbox.stream, folder, tmp_path / "out", tmp_path / "new", **options)
    (folder / "_temporary").mkdir()
    write(3)
    with pytest.raises(FormatError, match="it has _temporary and no _SUCCESS"):
        compile(folder, tmp_path / "index")
    with pytest.raises(ArgumentError, match="shrink is a share"):
        Table("x", shrink=2)


@pytest.mark.spark
def test_a_table_that_is_written_all_the_time(spark: SparkSession, tmp_path: Path) -> None:
    """table_churn.py runs for longer."""
    told = churn(spark, tmp_path, seconds=15, pause=0.5)
    assert "all exact" in told


@pytest.mark.spark
@pytest.mark.parametrize("name", ["subs.parquet", "subs"])
def test_a_table_that_is_replaced_faster_than_it_is_read(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    path = tmp_path / name
    path.mkdir() if path.suffix == "" else None
    file = path if path.suffix else path / "a.parquet"
    written = 0

    def replace_file() -> None:
        nonlocal written
        written += 1
        pq.write_table(pa.table({"id": [1], "expression": [f"n = {written}"]}), tmp_path / ".partial")
        (tmp_path / ".partial").rename(file)

    def read_slowly(table: Table, spark: SparkSession) -> Any:
        frame = read(table, spark)
        replace_file()
        return frame

    replace_file()
    read = Table.read
    monkeypatch.setattr(Table, "read", read_slowly)
    monkeypatch.setattr("dibs.spark.tables.PATIENCE", 0.0)
    feed = TableFeed(Table(str(path)), spark, tmp_path / "folder", "raise")
    feed.start(stay=True)
    for version in (2, 3):
        assert feed.check() == Heard()
        with Matcher.load(tmp_path / "folder") as matcher:
            assert matcher.expression(1) == f"n = {version}"
    feed.close()


@pytest.mark.spark
@pytest.mark.parametrize("path", ["subs", "sub*"])
def test_a_table_that_changes_while_it_is_read(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """Of this machine, and one that Spark is asked for."""
    (tmp_path / "subs").mkdir()

    def write(text: str) -> None:
        pq.write_table(pa.table({"id": [1], "expression": [text]}), tmp_path / "subs" / "a.parquet")

    def read_slowly(table: Table, spark: SparkSession) -> Any:
        frame = read(table, spark)
        write("n = 222")
        return frame

    write("n = 1")
    feed = TableFeed(Table(str(tmp_path / path)), spark, tmp_path / "folder", "raise")
    feed.start(stay=True)
    assert feed.check() == Heard()
    write("n = 22")
    read = Table.read
    with monkeypatch.context() as patched:
        patched.setattr(Table, "read", read_slowly)
        heard = feed.check()
    assert "changed while it was read" in str(heard.notice)
    assert feed.check() == Heard()
    feed.close()
    with Matcher.load(tmp_path / "folder") as matcher:
        assert matcher.expression(1) == "n = 222"

    def read_what_is_gone(table: Table, spark: SparkSession) -> Any:
        write("n = 3")
        monkeypatch.setattr(Table, "read", read)
        raise OSError("another file than the one that was listed")

    monkeypatch.setattr(Table, "read", read_what_is_gone)
    starting = TableFeed(Table(str(tmp_path / path)), spark, tmp_path / "starting", "raise")
    starting.start(stay=True)  # waits for whoever is writing
    starting.close()
    for file, unfinished in [("a.parquet", False), ("_temporary", True), ("_SUCCESS", False)]:
        (tmp_path / "subs" / file).mkdir(exist_ok=True) if unfinished else (tmp_path / "subs" / file).touch()
        assert is_unfinished(tmp_path / "subs") == is_unfinished(f"file://{tmp_path / 'subs'}", spark) == unfinished


@pytest.mark.spark
def test_a_table_by_its_name(spark: SparkSession, tmp_path: Path) -> None:
    """A view of files, whose changes are seen by these, and one of rows, which is read each time."""

    def write(*texts: str) -> None:
        pq.write_table(pa.table({"id": list(texts), "expression": list(texts)}), tmp_path / "subs.parquet")

    write("n = 1", "n = 2")
    spark.sql(f"CREATE OR REPLACE TEMP VIEW named_files AS SELECT * FROM parquet.`file://{tmp_path}/subs.parquet`")
    spark.createDataFrame([("a", "n = 1")], "id string, expression string").createOrReplaceTempView("named_rows")
    files = TableFeed(Table("named_files"), spark, tmp_path / "files", "raise")
    rows = TableFeed(Table("named_rows"), spark, tmp_path / "rows", "raise")
    try:
        for feed in (files, rows):
            feed.start(stay=True)
            assert feed.check() == Heard()
        assert [len(feed._matcher) for feed in (files, rows)] == [2, 1]
        version = files._matcher.version
        write("n = 1", "n = 2", "n = 3")
        more = [("a", "n = 1"), ("b", "n = 2")]
        spark.createDataFrame(more, "id string, expression string").createOrReplaceTempView("named_rows")
        assert [feed.check() for feed in (files, rows)] == [Heard()] * 2
        assert [len(feed._matcher) for feed in (files, rows)] == [3, 2]
        spark.catalog.dropTempView("named_rows")
        assert "the last good version (2)" in str(rows.check().notice)
        assert files._matcher.version == version + 1
    finally:
        files.close()
        rows.close()


@pytest.mark.spark
def test_compiled_versions_are_subscriptions_of_a_stream(spark: SparkSession, inbox: Inbox, tmp_path: Path) -> None:
    """Each batch has the newest version, and keeps it when it is run again, even if it was removed meanwhile."""
    first = spark.createDataFrame([("a", "n = 1"), ("b", "n >= 1")], "id string, expression string")
    compile(first, tmp_path / "index", shards=2)
    options: dict[str, Any] = dict(event_id="value", attributes="value", carry=("version",))
    inbox.put({"n": 1})
    with stream(inbox.stream, tmp_path / "index", tmp_path / "out", tmp_path / "checkpoint", **options) as query:
        query.processAllAvailable()
        changed = {"id": ["a", "c"], "expression": [None, "n = 1"], "deleted": [True, None]}
        versions.apply_changes(tmp_path / "index", pa.table(changed))
        inbox.put({"n": 1})
        query.processAllAvailable()
    (tmp_path / "checkpoint" / "commits" / "1").unlink()
    (tmp_path / "checkpoint" / "commits" / ".1.crc").unlink(missing_ok=True)
    versions.apply_changes(tmp_path / "index", pa.table({"id": ["d"], "expression": ["n = 1"]}))
    versions.remove_versions(tmp_path / "index")
    inbox.put({"n": 1})
    with stream(inbox.stream, tmp_path / "index", tmp_path / "out", tmp_path / "checkpoint", **options) as query:
        query.processAllAvailable()
        assert [(m.batch, m.version, m.replayed) for m in query.metrics] == [(1, 2, True), (2, 3, False)]
    rows = pq.read_table(tmp_path / "out").to_pylist()
    seen = sorted((r["batch"], r["version"], r["subscription_id"]) for r in rows)
    assert seen == [(0, 1, "a"), (0, 1, "b"), (1, 2, "b"), (1, 2, "c"), (2, 3, "b"), (2, 3, "c"), (2, 3, "d")]


@pytest.mark.spark
def test_whatever_a_sink_does_events_are_counted_once(spark: SparkSession, tmp_path: Path) -> None:
    """Partitions that one task does, matches that are computed twice in one job, or in several, or not all of them."""
    events = spark.range(0, 1_000, 1, 4).selectExpr("id", "id % 10 AS n")
    subs = spark.createDataFrame([(1, "n = 1"), (2, "n >= 8")], "id int, expression string")
    sinks_of_all_kinds: list[Any] = [
        sinks.Parquet(str(tmp_path / "out"), files=1),
        lambda d, _: d.coalesce(1).collect(),
        lambda d, _: d.union(d).collect(),
        lambda d, _: [d.limit(1).collect(), d.coalesce(3).collect(), d.where("subscription_id = 1").count(), d.take(2)],
    ]
    for number, sink in enumerate(sinks_of_all_kinds):
        told = backfill(events, subs, sink, tmp_path / f"checkpoint {number}")
        assert (number, told.events, told.matches) == (number, 1_000, 300)
    history = backfill(
        events,
        subs.union(spark.createDataFrame([(3, "EXISTS d (d.id = id)")], subs.schema)),
        lambda d, _: d.union(d).coalesce(1).collect(),
        tmp_path / "with history",
        history=History(),
    )
    assert (history.events, history.matches) == (1_000, 300)


ALL_KINDS = """SELECT id, id % 3 AS n, CAST(id AS STRING) AS text, CAST(id AS TINYINT) AS tiny,
    CAST(id AS SMALLINT) AS small, CAST(id AS INT) AS whole, CAST(id AS FLOAT) AS single, id / 7 AS double,
    id % 2 = 0 AS flag, CAST(CAST(id AS STRING) AS BINARY) AS bytes, CAST(id / 7 AS DECIMAL(20, 3)) AS money,
    DATE'1500-01-01' + CAST(id AS INT) AS day, TIMESTAMP'1700-01-01' AS old,
    TIMESTAMP_NTZ'2024-03-10 02:30:00' AS plain, IF(id = 1, NULL, id) AS missing FROM range(0, 40, 1, 3)"""


@pytest.mark.spark
def test_workers_write_what_spark_would_write(spark: SparkSession, tmp_path: Path) -> None:
    """Files of the same columns and rows, where the sink's folder is one of this machine."""
    events = spark.sql(ALL_KINDS)
    kept = [name for name in events.columns if name != "id"]
    rows = [(1, "n = 1", 2.0), (2, "n >= 1", 3.0), (3, "whole < 5", 0.5)]
    subs = spark.createDataFrame(rows, "id int, expression string, weight double")
    options: dict[str, Any] = dict(keep=kept, carry=["weight", "version", "subscription_version"], top=2)
    ours, theirs = tmp_path / "ours", tmp_path / "theirs" / "batch=0"
    (ours / ".batch=0-left").mkdir(parents=True)
    backfill(events, subs, ours, tmp_path / "checkpoint", **options)
    (ours / "batch=0" / "part-earlier.parquet").touch()
    told = backfill(events, subs, ours, tmp_path / "checkpoint", **options)  # replaces what is there
    backfill(events, subs, lambda d, _: d.write.parquet(str(theirs)), tmp_path / "other", **options)
    found, expected = (spark.read.parquet(str(path)) for path in (ours, theirs.parent))
    assert found.schema == expected.schema
    assert sorted(map(repr, found.collect())) == sorted(map(repr, expected.collect()))
    assert told.matches == found.count() == 42
    assert [path.name for path in ours.iterdir()] == ["batch=0"]
    assert sorted(path.name[:5] for path in (ours / "batch=0").iterdir()) == ["_SUCC", *["part-"] * 3]
    backfill(events.where("FALSE"), subs, tmp_path / "none", tmp_path / "no events", **options)
    assert spark.read.parquet(str(tmp_path / "none")).schema == expected.schema
    nested = events.selectExpr("id", "n", "whole", "array(n) AS tags")  # is left to Spark
    backfill(nested, subs, tmp_path / "nested", tmp_path / "of lists", keep=["tags"])
    assert spark.read.parquet(str(tmp_path / "nested")).count() == 13 + 26 + 5
    assert find_folder("/data/x", [StructField("a", ArrayType(StringType()))], spark) is None
    spark.conf.set("fs.defaultFS", "viewfs://all/")
    spark.conf.set("fs.viewfs.mounttable.all.link./data", f"file://{tmp_path}")
    try:
        assert find_folder("/data/x", [StructField("a", StringType())], spark) is None
    finally:
        spark.conf.unset("fs.defaultFS")
        spark.conf.unset("fs.viewfs.mounttable.all.link./data")
    assert find_folder("/data/x", [StructField("a", StringType())], spark) == (Path("/data/x"), "snappy")


@pytest.mark.spark
def test_jobs_of_a_batch_and_their_plan(
    spark: SparkSession, inbox: Inbox, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One job, or two with a history; the plan says which subscriptions there are."""
    subs = spark.createDataFrame([("a", "n = 1"), ("b", "n > 1")], "id string, expression string")
    asking = subs.union(spark.createDataFrame([("c", "EXISTS d (d.n = n)")], subs.schema))
    scheduler = spark.sparkContext._jsc.sc().dagScheduler()  # type: ignore[union-attr]
    for number, (given, history, most) in enumerate([(subs, None, 1), (asking, History(), 2)]):
        jobs: list[int] = []

        def count(metrics: Any, jobs: list[int] = jobs) -> None:
            jobs.append(scheduler.nextJobId())

        out = tmp_path / f"out {number}"
        options: dict[str, Any] = dict(event_id="value", attributes="value", history=history, on_batch=count)
        with stream(inbox.stream, given, out, tmp_path / f"checkpoint {number}", **options) as query:
            for _ in range(4):
                inbox.put({"n": 1}, {"n": 2})
                query.processAllAvailable()
        assert {after - before for before, after in zip(jobs[-4:], jobs[-3:])} == {most}
    match(spark.createDataFrame([(1, 1)], "id int, n int"), subs).explain()
    assert re.search(r"dibs_match\[\w+, version 1, 2 subscriptions\]", capsys.readouterr().out)
    backfill(spark.createDataFrame([(1, 1)], "id int, n int"), subs, lambda d, _: d.explain(), tmp_path / "explained")
    assert re.search(r"dibs_match\[version \d+, 2 subscriptions\]", capsys.readouterr().out)


@pytest.mark.spark
def test_a_stream_of_changes(spark: SparkSession, inbox: Inbox, tmp_path: Path) -> None:
    """Columns as attributes; changes come as a stream, and what is there at the start counts for the first batch."""
    changes = Inbox(spark, tmp_path / "changes")
    changes.put({"id": 1, "expression": "n = 1"}, {"id": 2, "expression": "n = 2"})
    changes.put({"id": 1, "deleted": True}, {"id": 3, "expression": "m = 3"})
    texts = changes.stream.selectExpr("from_json(value, 'id bigint, expression string, deleted boolean') AS c")
    events = inbox.stream.selectExpr("from_json(value, 'id string, n bigint, m bigint') AS e").select("e.*")
    inbox.put({"id": "x", "n": 2, "m": 3}, {"id": "y", "n": 1})
    query = stream(events, texts.select("c.*"), tmp_path / "out", tmp_path / "checkpoint", trigger="available-now")
    query.awaitTermination(60)
    assert query.exception() is None
    rows = pq.read_table(tmp_path / "out").to_pylist()
    assert sorted((r["event_id"], r["subscription_id"]) for r in rows) == [("x", 2), ("x", 3)]


def put_changes(folder: Path, name: str, time: int, *changes: dict[str, Any]) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("\n".join(map(json.dumps, changes)))
    os.utime(folder / name, (time, time))


CHANGES = "id string, expression string, deleted boolean, at int"
MANY = [{"id": f"y{i}", "expression": "n = 7"} for i in range(50)]  # Spark reads the largest file first


def run_once(events: Any, changes: Any, out: Path, **options: Any) -> list[str]:
    """The subscriptions that matched."""
    checkpoint = out.with_name(f"{out.name} checkpoint")
    query = stream(
        events, changes, out, checkpoint, event_id="VALUE", attributes=F.col("value"), trigger="availableNow", **options
    )
    query.awaitTermination(60)
    assert query.exception() is None
    return sorted(pq.read_table(out)["subscription_id"].to_pylist())


@pytest.mark.spark
def test_changes_count_in_the_order_of_their_files(spark: SparkSession, inbox: Inbox, tmp_path: Path) -> None:
    """By time and name, and in a file by line; not as Spark's tasks read them."""
    folder = tmp_path / "changes"
    put_changes(folder, "b.json", 10, {"id": "x", "expression": "n = 1"}, {"id": "z", "expression": "n = 0"})
    again = [{"id": "z", "expression": "n = 1"}, {"id": "z", "deleted": True}, {"id": "z", "expression": "n = 1"}]
    put_changes(folder, "a.json", 20, {"id": "x", "deleted": True}, *MANY, *again)
    put_changes(folder, "c.json", 20, {"id": "w", "expression": "n = 1"}, {"id": "y1", "deleted": True})
    inbox.put({"n": 1}, {"n": 7})
    wanted = sorted(["w", "z", *(f"y{i}" for i in range(50) if i != 1)])
    streamed = spark.readStream.schema(CHANGES).json(str(folder))
    assert run_once(inbox.stream, streamed, tmp_path / "out") == wanted
    # Lines that were shuffled have lost their order: those of z are left out, and told.
    shuffled = streamed.repartition(2)
    with pytest.raises(SubscriptionErrors, match="whose lines were shuffled: give order="):
        run_once(inbox.stream, shuffled, tmp_path / "refused")
    assert run_once(inbox.stream, shuffled, tmp_path / "skipped", on_error="skip") == [id for id in wanted if id != "z"]
    compile(spark.read.schema(CHANGES).json(str(folder)), tmp_path / "index", changes=True)
    matcher = Matcher.load(tmp_path / "index")
    assert sorted(matcher.match({"n": 1}) + matcher.match({"n": 7})) == wanted


@pytest.mark.spark
def test_changes_count_in_the_order_that_is_given(spark: SparkSession, inbox: Inbox, tmp_path: Path) -> None:
    folder = tmp_path / "changes"
    put_changes(
        folder, "b.json", 20, {"id": "x", "expression": "n = 1", "at": 1}, {"id": "x", "deleted": True, "at": 3}
    )
    put_changes(folder, "a.json", 10, {"id": "x", "expression": "n = 2", "at": 4}, *MANY)
    inbox.put({"n": 1}, {"n": 2})
    streamed = spark.readStream.schema(CHANGES).json(str(folder))
    shouted = streamed.withColumnsRenamed({"id": "ID", "deleted": "Deleted"})
    assert run_once(inbox.stream, shouted, tmp_path / "out", order="at") == ["x"]
    with pytest.raises(ArgumentError, match="order='when' names no single column of the changes"):
        run_once(inbox.stream, streamed, tmp_path / "out", order=["at", "when"])
    with pytest.raises(ArgumentError, match="order is the name of a column"):
        run_once(inbox.stream, streamed, tmp_path / "out", order=7)
    with pytest.raises(ArgumentError, match="order= says which"):
        run_once(inbox.stream, Table(str(folder), "json"), tmp_path / "out", order="at")
    put_changes(folder, "c.json", 30, {"id": "x", "expression": "n = 1", "at": 4})
    with pytest.raises(SubscriptionErrors, match="at does not say which is the last: it is equal, or null"):
        run_once(inbox.stream, streamed, tmp_path / "again", order="at")


@pytest.mark.spark
def test_changes_of_a_topic_count_within_its_partitions(spark: SparkSession) -> None:
    rows = [("x", 0, 7), ("x", 0, 5), ("y", 0, 8), ("y", 1, 3), ("z", 1, 4)]
    changes = spark.createDataFrame(rows, "id string, partition int, offset long")
    ordering = find_order(changes, None)
    ranked = ordering.frame.select("id", "offset", ordering.rank("id", "id").alias("rank")).collect()
    assert {(r.id, r.offset): r["rank"] for r in ranked} == {
        ("x", 5): 1, ("x", 7): 2, ("y", 8): None, ("y", 3): None, ("z", 4): 1
    }  # fmt: skip


def test_changes_that_nothing_orders_clash() -> None:
    """The same change twice is one; two that differ are left out, unless the order tells which is later."""
    x1, x2 = Ranked("x", "n = 1", None, None), Ranked("x", None, None, None)
    other = Ranked("y", "n = 1", 2.0, None)
    assert settle([x1, other, x1], "why") == ([x1, other], [])
    settled, rejected = settle([x1, other, x2], "nobody knows")
    assert settled == [other] and [(r.id, r.expression) for r in rejected] == [("x", "n = 1"), ("x", None)]
    assert "differ, and nobody knows" in str(rejected[0].error)
    ranked = [x2._replace(rank=2), x1._replace(rank=1), x1._replace(rank=3), x1._replace(rank=3)]
    assert [change.rank for change in settle(ranked, "why")[0]] == [1, 2, 3]
    assert settle([*ranked, x2._replace(rank=3)], "why")[0] == []
    assert settle([*ranked, x2], "why")[0] == []


@pytest.mark.spark
def test_a_stream_is_started_again_in_the_same_process(spark: SparkSession, inbox: Inbox, tmp_path: Path) -> None:
    """However it ended, and though nobody closed it; one that runs keeps its state for itself."""
    table, changes = tmp_path / "subs.parquet", tmp_path / "changes"
    pq.write_table(pa.table({"id": [1], "expression": ["n = 1"]}), table)
    put_changes(changes, "a.json", 1, {"id": "x", "expression": "n = 1"})
    failing = True
    seen: list[int] = []

    def sink(matches: Any, batch: int) -> None:
        if failing:
            raise OSError("the sink is away")
        seen.append(matches.count())

    for number, subs in enumerate([table, spark.readStream.schema(CHANGES).json(str(changes))]):
        checkpoint = tmp_path / f"checkpoint {number}"

        def start(checkpoint: Path = checkpoint, subs: Any = subs, **options: Any) -> Any:
            return stream(inbox.stream, subs, sink, checkpoint, event_id="value", attributes="value", **options)

        inbox.put({"n": 1})
        failing = True
        query = start()
        with pytest.raises(Exception, match="the sink is away"):
            query.processAllAvailable()
        failing = False
        again = start()
        again.processAllAvailable()
        with pytest.raises(DibsError, match="is the state of a stream that runs, of this process: stop that one first"):
            start()
        with pytest.raises(DibsError, match="is the state of a stream that runs"):
            start(checkpoint=tmp_path / "other", state=checkpoint / "dibs")
        assert again.isActive
        again.query.stop()  # Spark's own way
        inbox.put({"n": 1})
        with start() as last:
            last.processAllAvailable()
            assert [m.replayed for m in last.metrics] == [False]
        query.stop()
    assert sum(seen) == 2 + 4


PROXY_ERROR = r"py4j.protocol.Py4JJavaError: An error occurred while calling(.|\n)*(java.lang.InterruptedException)"


class OfJava:
    """As Py4J shows an exception of Java."""

    def __init__(self, text: str, cause: OfJava | None = None) -> None:
        self._text, self._cause = text, cause

    def toString(self) -> str:
        return self._text

    def getCause(self) -> OfJava | None:
        return self._cause


class FromJava(Exception):
    def __init__(self, cause: OfJava) -> None:
        super().__init__("An error occurred while calling o1.parquet.\n" + "\tat a.line.of.Java\n" * 200)
        self.java_exception = cause


@pytest.mark.parametrize("text", ["java.lang.InterruptedException", "SparkException: Job 5, of a cancelled job group"])
def test_what_stops_a_batch_is_told_shortly(text: str) -> None:
    """Spark looks through the text by a regular expression, whose stack grows with what it finds."""

    def run(batch: int) -> None:
        try:
            raise FromJava(OfJava("org.apache.spark.SparkException: aborted", OfJava(text)))
        except FromJava as error:
            raise RuntimeError("a sink that tells it in its own words") from error

    with pytest.raises(Interrupted) as raised:
        stop_quietly(run)(3)
    told = "".join(traceback.format_exception(raised.value))
    found = re.search(PROXY_ERROR, told)
    assert found is not None
    assert len(found[0]) < 500
    with pytest.raises(FromJava):
        stop_quietly(lambda batch: (_ for _ in ()).throw(FromJava(OfJava("java.io.IOException: full"))).__next__())(3)


@pytest.mark.spark
def test_a_stream_is_stopped_in_the_middle_of_a_batch(spark: SparkSession, inbox: Inbox, tmp_path: Path) -> None:
    began, seen = threading.Event(), []

    def sink(matches: DataFrame, batch: int) -> None:
        began.set()
        try:
            spark.sql("SELECT java_method('java.lang.Thread', 'sleep', 4000L)").collect()
        except Exception as error:
            seen.append(find_interruption(error))
            raise

    inbox.put({"n": 1})
    subscriptions = spark.createDataFrame([(1, "n = 1")], "id int, expression string")
    query = stream(inbox.stream, subscriptions, sink, tmp_path / "checkpoint", event_id="value", attributes="value")
    assert began.wait(60)
    query.query.stop()
    assert query.exception() is None
    assert len(seen) == 1
    assert seen[0] is not None


@pytest.mark.spark
def test_what_does_not_fit_the_events_is_told_at_the_start(inbox: Inbox, tmp_path: Path) -> None:
    events = inbox.stream.selectExpr("from_json(value, 'id string, price double') AS e").select("e.*")
    arguments: tuple[Any, ...] = (events, tmp_path / "subs", tmp_path / "out", tmp_path / "checkpoint")
    with Matcher.open(tmp_path / "subs") as matcher:
        matcher.add(1, "price = '5'")
        matcher.add(2, "price >= 5")
        with pytest.raises(DibsError, match="do not fit the events:\n  1 subscription compares 'price' with strings"):
            stream(*arguments, strict=True)
        inbox.put({"id": "a", "price": 5})
        with pytest.warns(UserWarning, match="compares? 'price' with strings"):
            query = stream(*arguments)
        with query:
            query.processAllAvailable()
            matcher.add(3, "prise = 5")
            inbox.put({"id": "b", "price": 6})
            query.processAllAvailable()
            told = [m.mistakes for m in query.metrics]
            assert [len(texts) for texts in told] == [1, 2] and "did they mean 'price'?" in told[1][0]
            assert query.lastProgress is not None and query.lastProgress["dibs"]["mistakes"] == told[1]
        matcher.add(4, "EXISTS d (d.id = id)")
        with pytest.raises(DibsError, match="ask for the documents that came before"):
            stream(*arguments)
    assert sorted(pq.read_table(tmp_path / "out")["subscription_id"].to_pylist()) == [2, 2]


@pytest.mark.spark
def test_columns_that_are_kept_and_the_heaviest_matches(spark: SparkSession, tmp_path: Path) -> None:
    """As in a batch; with a history too."""
    events = spark.range(0, 40, 1, 3).selectExpr("id", "id % 4 AS n", "concat('p', id) AS place", "'v' AS weight")
    subs = [(1, "n >= 1", 1.0), (2, "n >= 2", 5.0), (3, "n >= 0", 2.0), (4, "n = 3", 5.0)]
    frame = spark.createDataFrame(subs, "id int, expression string, weight double")
    options: dict[str, Any] = dict(keep=["PLACE", F.col("n")], top=2)
    wanted = sorted(map(tuple, match(events, frame, **options).collect()))
    assert len(wanted) == 10 * 1 + 10 * 2 + 10 * 2 + 10 * 2
    for history in (None, History()):
        out = tmp_path / f"out {history is None}"
        subs_now = (
            frame
            if history is None
            else frame.union(spark.createDataFrame([(5, "EXISTS d (d.id = id)", 9.0)], frame.schema))
        )
        told = backfill(
            events, subs_now, out, f"{out} checkpoint", carry=["weight"], event_id="id", history=history, **options
        )
        found = spark.read.parquet(str(out)).drop("batch")
        assert found.columns == ["event_id", "place", "n", "subscription_id", "weight"]
        assert sorted(map(tuple, found.collect())) == wanted
        assert (told.events, told.matches) == (40, len(wanted))
    with pytest.raises(DibsError, match="keep='weight' is the name of a column of the result"):
        backfill(events, frame, tmp_path / "out", tmp_path / "refused", keep=["weight"])


@pytest.mark.spark
def test_other_options_with_the_same_checkpoint_are_told(inbox: Inbox, tmp_path: Path) -> None:
    Matcher.open(tmp_path / "subs").close()
    inbox.put({"n": 1})
    arguments: tuple[Any, ...] = (tmp_path / "subs", tmp_path / "out", tmp_path / "checkpoint")
    options: dict[str, Any] = dict(event_id="value", attributes="value", trigger="available-now")
    stream(inbox.stream, *arguments, **options).awaitTermination(60)
    stream(inbox.stream, *arguments, **options).awaitTermination(60)
    with pytest.raises(DibsError, match="carry= was nothing and is weight: its matches would not go with those in"):
        stream(inbox.stream, *arguments, carry=["weight"], **options)
    bytes_of = inbox.stream.selectExpr("CAST(value AS BINARY) AS value")
    with pytest.raises(DibsError, match="event_id= was of the type string and is of the type binary"):
        stream(bytes_of, *arguments, **options)
    with pytest.warns(UserWarning, match="carry= was nothing and is weight: matches from now on differ"):
        stream(
            inbox.stream, tmp_path / "subs", lambda *_: None, tmp_path / "checkpoint", carry=["weight"], **options
        ).awaitTermination(60)


@pytest.mark.spark
def test_what_a_stream_refuses(spark: SparkSession, inbox: Inbox, tmp_path: Path) -> None:
    def start(subscriptions: Any, sink: Any = "out", checkpoint: Any = "checkpoint", **options: Any) -> None:
        stream(inbox.stream, subscriptions, sink, tmp_path / checkpoint, **{"event_id": "value", **options})

    Matcher.open(tmp_path / "subs").close()
    good = tmp_path / "subs"
    with pytest.raises(DibsError, match="use backfill for a batch"):
        stream(spark.range(1), good, "out", tmp_path / "checkpoint")
    with pytest.raises(DibsError, match="use stream for a streaming one"):
        backfill(inbox.stream, good, "out", tmp_path / "checkpoint")
    with pytest.raises(DibsError, match="event_id='id' names no single column"):
        start(good, event_id="id")
    with pytest.raises(ArgumentError, match="carry takes 'version'"):
        start(good, carry=["versions"])
    with pytest.raises(ArgumentError, match="expected a timestamp"):
        start(good, event_time="value")
    with pytest.raises(ArgumentError, match="a sink is a path"):
        start(good, sink=7)
    for name in ("main.default.matches", "default.matches"):
        with pytest.raises(
            ArgumentError, match=f"'{name}' is the path of a folder, and looks like the name of a table"
        ):
            start(good, sink=name)
    with pytest.raises(ArgumentError, match='trigger is "available-now", a time as "10 seconds"'):
        start(good, trigger="now")
    with pytest.raises(ArgumentError, match="event_id is the name of a column of the events, not int"):
        start(good, event_id=7)
    twice = spark.createDataFrame([(1, "n = 1"), (1, "n = 2")], "id int, expression string")
    with pytest.raises(SubscriptionErrors, match="the table has it twice: keep one row of each id"):
        start(twice, checkpoint="twice")
    with pytest.raises(DibsError, match="no path of this machine"):
        stream(inbox.stream, good, "out", "s3a://bucket/checkpoint", event_id="value")
    with pytest.raises(ArgumentError, match="the subscriptions of a stream are"):
        start(Matcher())
    with pytest.raises(DibsError, match="a Delta sink needs delta-spark"):
        start(good, sink=sinks.Delta("out"))
    with pytest.raises(ArgumentError, match="begins with http"):
        start(good, sink=Webhook("ftp://x", "dead"))


# ---- changes ----


def test_a_matcher_becomes_a_table() -> None:
    matcher = Matcher()
    assert become(matcher, pa.table({"id": [1, 2, 3], "expression": ["n = 1", "n = 2", "n = 3"]}), "raise") == []
    versions = {id: matcher.get(id).version for id in (1, 2, 3)}
    table = pa.table({"id": [2, 3, 4, 4, None], "expression": ["n = 2", "n = 0", "n = 4", "n = 5", "n = 6"]})
    with pytest.raises(SubscriptionErrors, match="the table has it twice"):
        become(matcher, table, "raise")
    assert {id: matcher.get(id).version for id in (1, 2, 3)} == versions
    rejected = become(matcher, table, "skip")
    assert [(r.position, r.id) for r in rejected] == [(3, 4), (4, None)]
    assert {id: matcher.expression(id) for id in (2, 3, 4)} == {2: "n = 2", 3: "n = 0", 4: "n = 4"}
    assert 1 not in matcher and matcher.get(2).version == versions[2]


# ---- webhooks ----


@pytest.fixture
def receiver() -> Iterator[Any]:
    """A server that refuses the first request of each key, and every request with an event "refused"."""
    seen: dict[str, list[dict[str, Any]]] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            attempts = seen.setdefault(self.headers["Idempotency-Key"], [])
            attempts.append(body)
            refused = any(match["event_id"] == "refused" for match in body["matches"])
            self.send_response(422 if refused else 503 if len(attempts) == 1 else 204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    server.seen = seen  # type: ignore[attr-defined]
    yield server
    server.shutdown()
    server.server_close()


@pytest.mark.spark
def test_a_webhook_retries_and_keeps_what_it_cannot_deliver(spark: SparkSession, receiver: Any, tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{receiver.server_port}/matches"
    hook = Webhook(url, str(tmp_path / "dead"), matches=3, connections=2, attempts=3, pause=0.01)
    rows = [(f"e{i % 5}", f"s{i}") for i in range(20)] + [("refused", "s")]
    frame = spark.createDataFrame(rows, "event_id string, subscription_id string")
    hook.write(frame, 4)
    first = {key: attempts[0] for key, attempts in receiver.seen.items()}
    refused = {key for key, body in first.items() if any(m["event_id"] == "refused" for m in body["matches"])}
    delivered = [m for key, body in first.items() if key not in refused for m in body["matches"]]
    dead = pq.read_table(tmp_path / "dead").to_pylist()
    assert {letter["key"] for letter in dead} == refused and dead[0]["error"].startswith("422")
    kept = [m for letter in dead for m in json.loads(letter["body"])["matches"]]
    pairs = sorted((m["event_id"], m["subscription_id"]) for m in delivered + kept)
    assert pairs == sorted(rows)
    assert {len(a) for key, a in receiver.seen.items() if key not in refused} == {2}

    hook.write(frame.orderBy("subscription_id").repartition(3), 4)  # the same keys with the same matches
    assert {key: attempts[-1] for key, attempts in receiver.seen.items()} == first


def test_a_webhook_that_nobody_answers() -> None:
    attempts, error = post(Webhook("http://127.0.0.1:1/", "dead", attempts=2, pause=0.01), "key", b"{}")
    assert attempts == 2 and error is not None and "refused" in error
