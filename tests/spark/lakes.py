"""Delta and Iceberg: subscriptions from their tables, by name, by path and by the change feed, matches into them.

Their packages are for some versions of Spark only, so this runs with a Spark of its own:

    pip install --no-deps --target DIR pyspark==4.1.4 delta-spark==4.4.0
    mvn dependency:copy -DoutputDirectory=JARS -Dartifact=...   # of io.delta:delta-spark_4.1_2.13:4.4.0,
        # io.delta:delta-storage:4.4.0 and org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0
    PYTHONPATH=DIR:src python tests/spark/lakes.py --jars JARS/*.jar

For each way to read subscriptions and each sink: a stream while the table is appended to, updated, deleted from and
merged into, which is stopped after a sink has written a batch and before the batch is committed. Each event's matches
must be those of some version of the table, the last events' those of the last one, and none twice.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from dibs.matcher import Matcher
from dibs.spark import Table, session, sinks, stream

CHANGES = (
    "INSERT INTO {0} VALUES ('b', 'n > 3'), ('c', 'n IN (1, 2)')",
    "UPDATE {0} SET expression = 'n < 2' WHERE id = 'a'",
    "DELETE FROM {0} WHERE id = 'b'",
    "MERGE INTO {0} t USING (SELECT * FROM VALUES ('c', 'n = 4'), ('d', 'n >= 0') AS v(id, expression)) s "
    "ON t.id = s.id WHEN MATCHED THEN UPDATE SET expression = s.expression WHEN NOT MATCHED THEN INSERT *",
)
EVENTS = 5  # of each file


class Dies:
    """A sink that writes a batch, and then fails, once."""

    def __init__(self, sink: Any, batch: int) -> None:
        self._sink, self._batch = sink, batch
        self.check = sink.check

    def write(self, matches: DataFrame, batch: int) -> None:
        self._sink.write(matches, batch)
        if batch == self._batch:
            self._batch = -1
            raise RuntimeError("after the write")


def start_session(jars: list[str], folder: Path) -> SparkSession:
    extensions = (
        "io.delta.sql.DeltaSparkSessionExtension",
        "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    )
    given = {"spark_jars": ",".join(jars), "spark_sql_warehouse_dir": str(folder / "warehouse")}
    spark = session(
        cores=2, app="lakes", spark_network_timeout="900s", spark_sql_extensions=",".join(extensions), **given
    )
    spark.conf.set("spark.databricks.delta.snapshotPartitions", 1)
    spark.conf.set("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
    spark.conf.set("spark.sql.catalog.ice", "org.apache.iceberg.spark.SparkCatalog")
    spark.conf.set("spark.sql.catalog.ice.type", "hadoop")
    spark.conf.set("spark.sql.catalog.ice.warehouse", str(folder / "ice"))
    return spark


def change_feed(spark: SparkSession, table: str) -> DataFrame:
    feed = spark.readStream.option("readChangeFeed", "true").option("startingVersion", 0).table(table)
    kept = feed.where("_change_type <> 'update_preimage'")
    return kept.selectExpr("id", "expression", "_change_type = 'delete' AS deleted", "_commit_version AS version")


def run(spark: SparkSession, folder: Path, table: str, source: Callable[[], Any], sink: Any, **given: Any) -> DataFrame:
    """The stream over the changes of the table; what was expected of each file of events."""
    (folder / "in").mkdir(parents=True)
    versions: list[dict[str, str]] = []
    dying = Dies(sink, 2)

    def write_events(number: int) -> None:
        rows = spark.table(table).collect()
        versions.append({row.id: row.expression for row in rows})
        lines = [json.dumps({"id": f"{number}-{n}", "n": n}) for n in range(EVENTS)]
        (folder / "in" / ".partial").write_text("\n".join(lines))
        (folder / "in" / ".partial").rename(folder / "in" / f"{number}.json")

    def go() -> None:
        events = spark.readStream.schema("id string, n long").json(str(folder / "in"))
        query = stream(events, source(), dying, folder / "checkpoint", trigger="available-now", **given)
        query.awaitTermination()

    write_events(0)
    go()
    for number, change in enumerate(CHANGES, 1):
        spark.sql(change.format(table))
        write_events(number)
        try:
            go()
        except Exception as error:
            if "after the write" not in str(error):
                raise
            go()
    expected = set()
    for number, texts in enumerate(versions):
        with Matcher() as matcher:
            matcher.add_many(texts.items())
            for n in range(EVENTS):
                expected |= {(f"{number}-{n}", id) for id in matcher.match({"n": n})}
    return spark.createDataFrame(sorted(expected), "event_id string, subscription_id string")


def check(spark: SparkSession, folder: Path, kind: str, way: str) -> None:
    name = f"ice.db.subs_{way}" if kind == "iceberg" else f"subs_{way}"
    out = f"ice.db.matches_{way}" if kind == "iceberg" else f"matches_{way}"
    feed = " TBLPROPERTIES (delta.enableChangeDataFeed = true)" if way == "feed" else ""
    place = f" LOCATION '{folder / 'table'}'" if way == "path" else ""
    spark.sql(f"CREATE TABLE {name} (id STRING, expression STRING) USING {kind}{place}{feed}")
    spark.sql(f"INSERT INTO {name} VALUES ('a', 'n <> 1')")
    sources: dict[str, Callable[[], Any]] = {
        "name": lambda: Table(name),
        "path": lambda: str(folder / "table"),
        "feed": lambda: change_feed(spark, name),
    }
    given = {"order": "version"} if way == "feed" else {}
    sink = sinks.Delta(str(folder / "out")) if way == "path" else sinks.Catalog(out, kind)
    expected = run(spark, folder, name, sources[way], sink, **given)
    if way != "path":
        spark.catalog.refreshTable(out)  # the stream has a session of its own, and Iceberg remembers tables
    found = spark.read.format("delta").load(str(folder / "out")) if way == "path" else spark.table(out)
    pairs = found.select("event_id", "subscription_id")
    assert pairs.exceptAll(expected).count() == expected.exceptAll(pairs).count() == 0, (pairs.collect(), kind, way)
    print(
        f"{kind}, subscriptions by {way}: {expected.count()} matches, each once, with a batch written twice", flush=True
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jars", nargs="+", required=True)
    parser.add_argument("--only", choices=("delta", "iceberg"))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        spark = start_session(given.jars, Path(name))
        print(f"Spark {spark.version}", flush=True)
        spark.sql("CREATE NAMESPACE ice.db")
        for kind, way in (("delta", "name"), ("delta", "path"), ("delta", "feed"), ("iceberg", "name")):
            if given.only in (None, kind):
                check(spark, Path(name) / f"{kind}-{way}", kind, way)
        spark.stop()


if __name__ == "__main__":
    main()
