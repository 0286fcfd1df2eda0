"""dibs.spark.stream: subscriptions that change while events are matched, sinks, and what a replay gives."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dibs.errors import ArgumentError, DibsError, SubscriptionErrors
from dibs.matcher import Matcher
from dibs.spark import Table, Webhook, backfill, compile, sinks, stream, versions
from dibs.spark.applying import apply_changes, become
from dibs.spark.ledger import Ledger
from dibs.spark.living import DurableFolder
from dibs.spark.snapshots import BASES, Follower
from dibs.spark.webhook import post
from dibs.thresholds import using

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
