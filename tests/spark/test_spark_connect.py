"""dibs.spark.match through Spark Connect, in a process of its own (a classic session does not mix with it)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark
PLANS = ("replicated", "sharded", "local")

PROGRAM = r"""
import json, os, shutil, sys, time
from pathlib import Path

from dibs.java import ensure_java

ensure_java()
os.environ["PYSPARK_PYTHON"] = sys.executable

from pyspark.sql import Observation, SparkSession
from pyspark.sql import functions as F

from dibs.errors import DibsError, SubscriptionErrors
from dibs.spark import History, backfill, compile, explain, match, problems, sources, stream, use

builder = SparkSession.builder.remote("local[2]").config("spark.sql.shuffle.partitions", 2)
builder = builder.config("spark.ui.enabled", "false").config("spark.python.daemon.module", "dibs.spark.daemon")
builder = builder.config("spark.python.unix.domain.socket.enabled", "true")
spark = builder.getOrCreate()
said = {"session": type(spark).__module__}


def pairs(frame):
    return sorted(list(row) for row in frame.collect())


rows = [(f"e{i}", i, "ab"[i % 2], [i, -i], (i * 0.5,)) for i in range(6)]
events = spark.createDataFrame(rows, "id string, n int, s string, tags array<int>, o struct<x double>")
texts = [(1, "n >= 4"), (2, "s = 'a' AND tags = -2"), (3, "o.x BETWEEN 1 AND 1.5")]
subs = spark.createDataFrame(texts, "id int, expression string")

said["columns"] = pairs(match(events, subs))
said["types"] = match(events, subs).dtypes

broken = events.select("id", F.to_json(F.struct("n", "s", "tags", "o")).alias("body")).union(
    spark.createDataFrame([("bad", "{")], "id string, body string")
)
seen = Observation()
said["json"] = pairs(match(broken, subs, attributes="body", observe=seen))
said["observed"] = {key: value for key, value in seen.get.items() if key != "microseconds"}
said["problems"] = [row.event_id for row in problems(broken, subs, attributes="body").collect()]

bad = subs.union(spark.createDataFrame([(9, "n >")], "id int, expression string"))
try:
    match(events, bad)
except SubscriptionErrors as error:
    said["raised"] = [r.id for r in error.rejected]
matches, rejected = match(events, bad, on_error="skip")
said["skipped"] = [pairs(matches) == said["columns"], [row.id for row in rejected.collect()]]

# A server on another machine does not see this process's files: without them the workers use those in the job.
carried = match(events, spark.createDataFrame([(5, "n = 3")], "id int, expression string"))
shutil.rmtree(sources.own_folder())
said["carried"] = pairs(carried)

# Kernels and files are sent once for a session, and not with each query.
said["bytes"] = len(match(events, subs)._plan.to_proto(spark._client).SerializeToString()) < 100_000

folder = Path(sys.argv[1])
many = spark.range(100_000).selectExpr("id", "concat('n = ', repeat('1', 700), id) AS expression")
begin = time.perf_counter()
try:
    match(events, many)
except DibsError as error:
    said["refused"] = ["index_dir=" in str(error), time.perf_counter() - begin < 30]

# Compiled by a job, in versions; all plans.
plans = {}
for version, rows in enumerate((texts, [*texts[1:], (4, "n = 0 OR tags = 5 OR z IS NOT NULL")]), 1):
    done = compile(spark.createDataFrame(rows, "id int, expression string"), folder / "index", shards=2)
    for plan in ("replicated", "sharded", "local"):
        plans[f"{plan} {version}"] = pairs(match(events, folder / "index", plan=plan, version=version))
said["plans"] = plans
arrays = match(events, folder / "index", plan="sharded", how="array").collect()
said["arrays"] = sorted([row.event_id, sorted(row.subscription_ids)] for row in arrays)
said["explained"] = explain(events, folder / "index", plan="sharded").shards
events.write.parquet(str(folder / "in"))
stream_of = spark.readStream.schema(events.schema).parquet(str(folder / "in"))
query = match(stream_of, subs).writeStream.format("memory").queryName("m").trigger(availableNow=True).start()
query.awaitTermination(60)
said["stream"] = pairs(spark.table("m"))

# What needs the driver's files is refused at the call, and says what to do.
for name, call in (("stream", stream), ("backfill", backfill)):
    try:
        call(stream_of if name == "stream" else events, folder / "index", folder / "out", folder / "at")
    except DibsError as error:
        said["refused " + name] = str(error)
joins = spark.createDataFrame([(7, "EXISTS d (d.n = n)")], "id int, expression string")
said["history"] = pairs(match(events, joins, history=History(events.where("n < 2"))))

# SQL, with an index that the server gets with the query, and with one that it opens by its path.
use("alerts", subs, spark, index_dir=folder / "named")
events.createOrReplaceTempView("events")
spark.readStream.schema(events.schema).parquet(str(folder / "in")).createOrReplaceTempView("arriving")
for name in ("alerts", str(folder / "index")):
    found = spark.sql(f"SELECT id, explode(dibs_match(struct(*), '{name}')) AS s FROM events")
    said["sql " + name.rpartition("/")[2]] = sorted([row.id, int(row.s)] for row in found.collect())
lateral = "SELECT e.id, m.subscription_id AS s FROM (SELECT id, struct(*) AS e FROM events) e, "
lateral += "LATERAL dibs_matches(e.e, 'alerts') m"
said["lateral"] = sorted([row.id, int(row.s)] for row in spark.sql(lateral).collect())
arriving = spark.sql("SELECT id, explode(dibs_match(struct(*), 'alerts')) AS s FROM arriving")
query = arriving.writeStream.format("memory").queryName("q").trigger(availableNow=True).start()
query.awaitTermination(60)
said["sql stream"] = sorted([row.id, int(row.s)] for row in spark.table("q").collect())
print("SAID", json.dumps(said))
spark.stop()
"""


def test_spark_connect(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=240,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("SAID")]
    assert lines, done.stderr[-4000:]
    said = json.loads(lines[0][len("SAID") :])
    expected = [["e2", 2], ["e2", 3], ["e3", 3], ["e4", 1], ["e5", 1]]
    changed = [["e0", 4], ["e2", 2], ["e2", 3], ["e3", 3], ["e5", 4]]
    by_plan = {f"{plan} {version}": rows for version, rows in ((1, expected), (2, changed)) for plan in PLANS}
    for name, instead in (("stream", "match(events, ...).writeStream"), ("backfill", "match")):
        told = said.pop(f"refused {name}")
        assert told.startswith(f"{name} needs a classic Spark session") and instead in told
    assert said == {
        "history": [["e0", 7], ["e1", 7]],
        "bytes": True,
        "refused": [True, True],
        "plans": by_plan,
        "arrays": [["e0", [4]], ["e1", []], ["e2", [2, 3]], ["e3", [3]], ["e4", []], ["e5", [4]]],
        "explained": 3,
        "session": "pyspark.sql.connect.session",
        "columns": expected,
        "types": [["event_id", "string"], ["subscription_id", "bigint"]],
        "json": expected,
        "observed": {"matches": 5, "malformed_events": 1, "events": 7, "mistakes": []},
        "problems": ["bad"],
        "raised": [9],
        "skipped": [True, [9]],
        "carried": [["e3", 5]],
        "stream": expected,
        "sql alerts": expected,
        "sql index": changed,
        "lateral": expected,
        "sql stream": expected,
    }
