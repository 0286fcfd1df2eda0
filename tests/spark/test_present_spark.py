"""now() on Spark: one instant for a query and for a micro-batch, which a repeated one sees again."""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

from dibs.matcher import Matcher
from dibs.spark import match, stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOW = "2024-05-01T12:30:00Z"
RECENT = "at > now() - INTERVAL 1 HOUR"


@pytest.mark.parametrize("plan", ["replicated", "local"])
def test_a_batch(spark: SparkSession, plan: str) -> None:
    rows = [(i, f"2024-05-01 {hour}:00:00", f"2024-05-01 {hour}:30:00") for i, hour in enumerate((9, 11, 12, 13))]
    texts = spark.createDataFrame(rows, "id INT, at STRING, sent STRING")
    times = texts.withColumn("at", F.to_timestamp(F.concat("at", F.lit("Z"))))
    as_json = texts.select("id", F.to_json(F.struct("at", "sent")).alias("j"))
    subscriptions = [("recent", RECENT), ("dated", "now() > TIMESTAMP '2024-05-01 12:00:00'")]
    given = spark.createDataFrame(subscriptions, "id STRING, expression STRING")

    def found(events: object, attributes: str | None = None, now: str | None = None) -> list[tuple[int, str]]:
        result = match(events, given, attributes=attributes, now=now, plan=plan)
        return sorted((row.event_id, row.subscription_id) for row in result.collect())

    dated = [(i, "dated") for i in range(4)]
    for events, column in ((texts, None), (times, None), (as_json, "j")):
        assert found(events, column, NOW) == sorted([*dated, (2, "recent"), (3, "recent")])
        assert found(events, column) == dated  # by the clock
        own = found(events, column, "sent")
        assert own == sorted([(i, "recent") for i in range(4)] + [(2, "dated"), (3, "dated")])
    why = match(times, given, explain=True, now=NOW).where("event_id = 2").collect()
    assert len(why) == 2 and all("matches" in row.why for row in why)


def test_a_stream_and_a_repeated_batch(spark: SparkSession, tmp_path: Path) -> None:
    """The instant of a batch is written down before it is matched, and read again when it is repeated."""
    folder, events, checkpoint = tmp_path / "folder", tmp_path / "in", tmp_path / "checkpoint"
    texts = {f"bit {bit}": f"unix_micros(now()) DIV {2**bit} % 2 = 1" for bit in range(16)}
    with Matcher.open(folder) as matcher:
        matcher.add_many([("recent", RECENT), *texts.items()])
    events.mkdir()
    lines = [{"id": i, "at": dt.datetime.now(dt.timezone.utc).isoformat()} for i in range(50)]
    (events / "a.json").write_text("\n".join(map(json.dumps, lines)))
    read = spark.readStream.schema("id INT, at STRING").json(str(events))
    seen = []
    for _ in range(2):
        with stream(read, folder, tmp_path / "out", checkpoint) as query:
            query.processAllAvailable()
        rows = pq.read_table(tmp_path / "out").to_pylist()
        seen.append(Counter(row["subscription_id"] for row in rows))
        # As after a crash before it was committed.
        (checkpoint / "commits" / "0").unlink()
        (checkpoint / "commits" / ".0.crc").unlink(missing_ok=True)
    assert seen[0] == seen[1] and set(seen[0].values()) == {50} and "recent" in seen[0]
    entry = json.loads((checkpoint / "dibs" / "batches" / "000000000000.json").read_bytes())
    now = entry["snapshot"]["now"]
    assert set(seen[0]) == {"recent", *(f"bit {bit}" for bit in range(16) if now >> bit & 1)}
