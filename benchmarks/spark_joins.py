"""Joins over history on Spark: a batch by both plans beside Spark's own join, and micro-batches of a stream.

    python benchmarks/spark_joins.py --documents 1000000       about three minutes on two cores

20,000 events, 501 subscriptions that share two joins by one key. Spark SQL answers the two joins alone, and its answers
are compared; what the subscriptions make of them is left out there. Wall time: nothing else should run.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

USERS, EVENTS, FILES, EVENTS_PER_FILE = 50_000, 20_000, 6, 1_000
CHEAPEST = "price < (SELECT MIN(d.price) FROM history d WHERE d.user = user)"
OFTEN = "(SELECT COUNT(*) FROM history d WHERE d.user = user AND d.price > price) >= 3"
SQL = """SELECT count_if(price < low) + count_if(dearer >= 3) FROM (SELECT e.id, e.price, min(d.price) AS low,
         count_if(d.price > e.price) AS dearer FROM events e LEFT JOIN documents d ON d.user = e.user
         GROUP BY e.id, e.price)"""


def main() -> None:
    from pyspark.sql import functions as F

    from dibs.matcher import Matcher
    from dibs.spark import History, match, session, stream

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    texts = {i: f"price < {i} AND {CHEAPEST}" for i in range(2, 1_002, 2)} | {1: OFTEN}
    spark = session(cores=2, app="joins", spark_driver_memory="3g")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        row = "id", f"pmod(hash(id), {USERS}) AS user", "CAST(pmod(hash(id + 7), 1000) AS DOUBLE) AS price"
        spark.range(given.documents).selectExpr(*row).write.parquet(str(folder / "documents"))
        spark.range(-EVENTS, 0).selectExpr(*row).repartition(2).write.parquet(str(folder / "events"))
        documents, events = (spark.read.parquet(str(folder / each)) for each in ("documents", "events"))
        documents.createOrReplaceTempView("documents")
        events.createOrReplaceTempView("events")
        subscriptions = spark.createDataFrame(list(texts.items()), "id long, expression string")

        def by(plan: str) -> Callable[[], Any]:
            history = History(documents, plan=plan)
            wide = [1, 1_000]  # every price is below 1,000: these two are the joins themselves
            found = match(events, subscriptions, history=history, how="array")
            both = F.size(F.array_intersect("subscription_ids", F.array(*(F.lit(i).cast("long") for i in wide))))
            return lambda: found.agg(F.sum(both)).collect()[0][0]

        ways = {"partitioned": by("partitioned"), "replicated": by("replicated")}
        ways["Spark SQL, the joins alone"] = lambda: spark.sql(SQL).collect()[0][0]
        best: dict[str, float] = {}
        answers = set()
        for _ in range(given.rounds):
            for way, run in ways.items():
                began = time.perf_counter()
                answers.add(run())
                best[way] = min(time.perf_counter() - began, best.get(way, 1e9))
        assert len(answers) == 1, f"the answers differ: {answers}"
        for way, seconds in best.items():
            print(f"{way}: {seconds:.2f} s for {EVENTS:,} events and {given.documents:,} documents", flush=True)

        with Matcher.open(folder / "subscriptions") as living:
            living.add_many(texts.items())
        (folder / "in").mkdir()
        for number in range(FILES):
            own = spark.range(EVENTS_PER_FILE * number, EVENTS_PER_FILE * (number + 1)).selectExpr(*row)
            own.coalesce(1).write.parquet(str(folder / f"file-{number}"))
            written = next((folder / f"file-{number}").glob("*.parquet"))
            os.utime(written, (number, number))
            written.rename(folder / "in" / f"{number}.parquet")
        files = spark.readStream.schema(events.schema).option("maxFilesPerTrigger", 1).parquet(str(folder / "in"))
        query = stream(
            files, folder / "subscriptions", folder / "out", folder / "checkpoint", history=History(documents),
            trigger="available-now",
        )  # fmt: skip
        query.awaitTermination()
        seconds = sorted(m.seconds for m in query.metrics[1:])  # the first lands the documents
        print(
            f"stream: micro-batches of {EVENTS_PER_FILE:,} events with {given.documents:,} documents before them: "
            f"median {seconds[len(seconds) // 2]:.2f} s, of which in workers "
            f"{sorted(m.match_seconds for m in query.metrics[1:])[len(seconds) // 2]:.2f} s of matching"
        )
    spark.stop()


if __name__ == "__main__":
    main()
