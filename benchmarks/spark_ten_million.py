"""10,000,000 subscriptions and 100,000 events, generated, compiled and matched on Spark, within a given memory.

    python benchmarks/spark_ten_million.py                         all of it
    python benchmarks/spark_ten_million.py --scale 0.1             a tenth of both
    python benchmarks/spark_ten_million.py --memory 1000000000     a worker may hold 1 GB of the index: less than 6
                                                                   minutes on two quiet cores (half a one to generate,
                                                                   one to compile, the rest to match by two plans)

    generate   OpIndex's Table 3 (workloads/independent.py) by blocks of rows in tasks, to Parquet
    compile    dibs.spark.compile, with `auto`, to as many shards as --memory asks for
    visits     how many shards an event visits, of the first 1,000 events (dibs.spark.explain)
    match      all events, the ids of all matches handed to Spark, an array per event: by the plan that `match` takes,
               and if that is the sharded one, by the replicated one too

Told for each: seconds, seconds of processors, and the most memory of all processes together (proportional, so that
pages which workers share count once). Last of all, some blocks of subscriptions are made again in this process and
matched by `scan` against some events: Spark must have found the same pairs.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F

from dibs.matcher import Matcher
from dibs.papers.workloads.blocks import BLOCK
from dibs.papers.workloads.independent import Independent
from dibs.spark import compile, explain, match, session
from dibs.spark.workloads import make_events, make_subscriptions
from spark import processor_seconds, tree

SUBSCRIPTIONS, EVENTS = 10_000_000, 100_000
CHECKED_BLOCKS, CHECKED_EVENTS = 5, 50


class Memory:
    """The most memory of this process and all below it, together."""

    def __enter__(self) -> Memory:
        self.peak = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.5):
            self.peak = max(self.peak, sum(map(self._proportional, tree())))

    @staticmethod
    def _proportional(process: int) -> int:
        try:
            lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
        except OSError:  # it has ended
            return 0
        return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def tell(name: str, work: Callable[[], Any]) -> Any:
    before, start = processor_seconds(), time.perf_counter()
    with Memory() as memory:
        result = work()
    seconds, processor = time.perf_counter() - start, processor_seconds() - before
    print(f"{name:24} {seconds:7.1f} s, {processor:7.1f} s of processors, {memory.peak / 2**30:.2f} GB", flush=True)
    return result


def check(workload: Independent, matches: Any) -> int:
    """Some blocks against some events, by `scan` in this process; the number of pairs."""
    blocks = np.unique(np.linspace(0, workload.subscription_blocks - 1, CHECKED_BLOCKS).astype(int)).tolist()
    events = workload.event_block(0).slice(0, CHECKED_EVENTS)
    with Matcher(index="scan") as matcher:
        for block in blocks:
            matcher.add_table(pa.Table.from_batches([workload.subscription_block(block)]))
        pairs = matcher.match_batch(events, attributes="attributes").pairs()
    expected = set(zip(pairs["event"].to_pylist(), pairs["subscription"].to_pylist(), strict=True))
    found = matches.where(F.col("event_id") < len(events)).collect()
    some = set(blocks)
    pairs = {(row.event_id, id) for row in found for id in row.subscription_ids if id // BLOCK in some}
    if pairs != expected:
        raise AssertionError(f"{len(pairs ^ expected)} pairs differ from those of scan, e.g. {min(pairs ^ expected)}")
    return len(pairs)


def run(spark: Any, folder: Path, options: argparse.Namespace) -> None:
    subscriptions, events = (max(int(n * options.scale), 1) for n in (SUBSCRIPTIONS, EVENTS))
    workload = Independent(subscriptions, events, options.seed)
    print(f"{subscriptions:,} subscriptions, {events:,} events, {workload.dimensions:,} dimensions", flush=True)
    table, log, index = (str(folder / name) for name in ("subscriptions", "events", "index"))
    tell("generate subscriptions", lambda: make_subscriptions(spark, workload).write.parquet(table))
    tell("generate events", lambda: make_events(spark, workload).repartition(4).write.parquet(log))
    version = tell("compile", lambda: compile(table, index, memory=options.memory)).version
    size = version.bytes / 2**30
    print(f"{'':24} {version.shards} shards, {len(version.segments)} segments, {size:.2f} GB", flush=True)
    given: dict[str, Any] = {"attributes": "attributes", "memory": options.memory}
    frame = spark.read.parquet(log)
    plan = tell("visits", lambda: explain(frame, index, **given))
    print(f"{'':24} {plan}", flush=True)
    counts = set()
    for name in [plan.plan, "replicated"] if plan.plan == "sharded" else [plan.plan]:
        matches = match(frame, index, how="array", plan=name, **given)
        sizes = matches.agg(F.sum(F.size("subscription_ids")).alias("matches"), F.count("*").alias("events"))
        found = tell(f"match, {name}", sizes.first)
        if found.events != events:
            raise AssertionError(f"{found.events} events came back of {events}")
        counts.add(found.matches)
        print(f"{'':24} {found.matches:,} matches, {found.matches / events:,.1f} per event", flush=True)
        print(f"{'check':24} {check(workload, matches):,} pairs are those of scan", flush=True)
    if len(counts) > 1:
        raise AssertionError(f"the plans find different numbers of matches: {counts}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="times 10,000,000 subscriptions and 100,000 events")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--memory", type=int, default=2 * 10**9, help="bytes of the index that a worker may hold")
    parser.add_argument("--driver-memory", default="2g")
    parser.add_argument("--folder", type=Path, help="for the files (a few GB); a temporary one by default")
    options = parser.parse_args()
    spark = session(cores=2, app="dibs-ten-million", spark_driver_memory=options.driver_memory)
    folder = Path(tempfile.mkdtemp(prefix="dibs-ten-million-", dir=options.folder))
    try:
        run(spark, folder, options)
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
