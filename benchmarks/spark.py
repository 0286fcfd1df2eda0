"""Spark: what `dibs.spark` costs beside the Matcher in process, and beside the join that people write today.

    python benchmarks/spark.py                                        everything at 1,000,000 subscriptions
    python benchmarks/spark.py --only match --subscriptions 100000    one section, smaller
    python benchmarks/spark.py --only stream                          micro-batches: about 5 minutes on two quiet cores
    python benchmarks/spark.py --only match --shapes sparse --passes 4   jobs of more than 10 seconds
    python benchmarks/spark_ten_million.py --memory 1000000000        shards of 10,000,000, which are generated on Spark

    match      Parquet with a MAP and with a JSON column, sparse and dense, few and many matches per event: events per
               second of local[2] against the Matcher with two threads on the same files, long and how="array"
    sql        100,000 subscriptions and 2,000 events: match against explode, join, count; warm, the first job too, and
               per event in a job of so many --copies of the events that starting it does not count
    compile    dibs.spark.compile against Matcher.add_table; the largest resident memory of each process
    stream     micro-batches of 1,000 events on a running stream: median and 99th percentile; with 100 changes of
               subscriptions per second; with a history that 100 joins ask for, kept as a whole or by number
    shards     a sharded index against the replicated plan: time, shards visited per event, exact on all events

Rivals take turns and the best of several counts; wall time and processor time of all processes are told. Matches are
compared, or counted, before anything is told.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dibs.matcher import Matcher
from dibs.papers.workloads import boolean
from dibs.spark import History, compile, explain, match, session, stream, versions

STARTING = 3  # batches of a stream that do not count
PATIENCE = 60  # seconds: of a join that takes longer the first run counts
FILES = 4  # of events: at least one for each core
USERS, RETAINED = 2_000, 20_000  # of the events of streams with a history
JOINED = (
    "EXISTS d (d.user = user AND d.price < price) AND price < {0}",
    "price < (SELECT MIN(d.price) FROM history d WHERE d.user = user) AND price > {0}",
)
STREAMS = {
    "alone": (0, None),
    "changes": (100, None),
    "history": (0, History()),
    "retain": (0, History(retain=RETAINED)),
}
TICK = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


# What people write today.
JOIN = """
SELECT e.id, n.sub
FROM (
    SELECT v.id, p.sub, count(*) AS found
    FROM (SELECT id, explode(attributes) AS (attribute, value) FROM events) v
    JOIN predicates p ON v.attribute = p.attribute AND v.value BETWEEN p.low AND p.high
    GROUP BY v.id, p.sub
) e
JOIN needed n ON e.sub = n.sub AND e.found = n.needed
"""


# ---- measuring ----


def tree() -> list[int]:
    """This process and all below it."""
    parents: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                fields = Path(f"/proc/{entry}/stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            parents.setdefault(int(fields[1]), []).append(int(entry))
    found = [os.getpid()]
    for process in found:
        found += parents.get(process, [])
    return found


def processor_seconds() -> float:
    total = 0
    for process in tree():
        try:
            fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        total += sum(map(int, fields[11:15]))  # with those of children that have ended
    return total / TICK


class PeakMemory:
    """The largest resident memory of each process below this one, while it runs."""

    def __enter__(self) -> PeakMemory:
        self.peak: dict[str, int] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.2):
            for process in tree():
                try:
                    name = Path(f"/proc/{process}/comm").read_text().strip()
                    size = int(Path(f"/proc/{process}/statm").read_text().split()[1]) * PAGE
                except OSError:
                    continue
                name = "driver" if process == os.getpid() else f"{name} {process}"
                self.peak[name] = max(self.peak.get(name, 0), size)

    def largest(self) -> dict[str, float]:
        sizes = sorted(self.peak.items(), key=lambda item: -item[1])[:4]
        return {name: round(size / 2**30, 2) for name, size in sizes}


def in_turns(rivals: dict[str, Callable[[], Any]], repeats: int) -> dict[str, dict[str, float]]:
    best: dict[str, dict[str, float]] = {}
    for _ in range(repeats):
        for name, work in rivals.items():
            before, start = processor_seconds(), time.perf_counter()
            work()
            took = {"seconds": time.perf_counter() - start, "processor": processor_seconds() - before}
            best[name] = {k: min(v, best.get(name, took)[k]) for k, v in took.items()}
    return best


def drain(frame: Any) -> None:
    frame.write.format("noop").mode("overwrite").save()


# ---- workloads ----


def files_of(folder: Path, shape: str, subscriptions: int, events: int) -> tuple[Path, Path, pa.Table]:
    """Parquet files of events, with a MAP and with a JSON column, and the table of subscriptions."""
    work = boolean.make_named(shape, subscriptions, events)
    batch = work.event_batch()
    texts = pa.array([json.dumps(event) for event in work.event_dicts()])
    as_json = pa.table({"id": batch["id"], "attributes": texts})
    paths = folder / f"{shape}-map", folder / f"{shape}-json"
    for path, rows in zip(paths, (pa.table(batch), as_json), strict=True):
        path.mkdir(exist_ok=True)
        size = -(-len(rows) // FILES)
        for part in range(FILES):
            pq.write_table(rows.slice(part * size, size), path / f"{part}.parquet")
    return *paths, work.subscription_table()


def counted(frame: Any) -> int:
    return int(frame.count())


# ---- sections ----


def run_match(spark: Any, folder: Path, options: argparse.Namespace) -> None:
    # At 1,000,000 subscriptions: about 65, 490, 230 and 17,000 matches per event.
    cases = {"sparse": 1.0, "dense": 1.0, "zipf": 0.5, "dense-many": 0.05}
    for shape, share in cases.items():
        if options.shapes and shape not in options.shapes:
            continue
        events = int(options.events * share)
        maps, texts, table = files_of(folder, shape, options.subscriptions, events)
        matcher = Matcher(threads=2)
        matcher.add_table(table)
        matcher.save(folder / f"index-{shape}")
        for form, path in (("MAP", maps), ("JSON", texts)):
            index = folder / f"index-{shape}"
            one = spark.read.parquet(str(path))
            frame = functools.reduce(lambda frame, _, one=one: frame.union(one), range(options.passes - 1), one)

            def in_process(path: Path = path, matcher: Matcher = matcher) -> int:
                found = (
                    matcher.match_batch(pq.read_table(path), attributes="attributes").pairs()
                    for _ in range(options.passes)
                )
                return sum(pairs.num_rows for pairs in found)

            pairs = in_process()
            if counted(match(frame, index, attributes="attributes")) != pairs:
                raise AssertionError(f"{shape} {form}: other matches on Spark")
            took = in_turns(
                {
                    "in process": in_process,
                    "long": lambda f=frame, i=index: drain(match(f, i, attributes="attributes")),
                    "array": lambda f=frame, i=index: drain(match(f, i, attributes="attributes", how="array")),
                },
                options.repeats,
            )
            base = took["in process"]
            told = ", ".join(
                f"{name} {its['seconds']:.2f} s ({base['seconds'] / its['seconds']:.2f}), "
                f"processor {its['processor']:.2f} s ({base['processor'] / max(its['processor'], 1e-9):.2f})"
                for name, its in took.items()
            )
            total = events * options.passes
            each = f"{total:,} events, {pairs / total:,.0f} matches each"
            print(f"match {shape:10s} {form:4s} {each}: {told}", flush=True)


def run_sql(spark: Any, folder: Path, options: argparse.Namespace) -> None:
    for shape in ("sparse", "dense"):
        if options.shapes and shape not in options.shapes:
            continue
        subscriptions, events = min(options.subscriptions, 100_000), 2_000
        work = boolean.make_named(shape, subscriptions, events)
        row = np.repeat(np.arange(subscriptions), np.diff(work.offsets))
        names = pc.binary_join_element_wise("a", pa.array(work.attribute).cast(pa.string()), "")
        predicates = pa.table({"sub": row, "attribute": names, "low": work.low, "high": work.high})
        pq.write_table(predicates, folder / "predicates.parquet")
        pq.write_table(pa.table(work.event_batch()), folder / "events.parquet")
        spark.read.parquet(str(folder / "predicates.parquet")).repartition(8).write.mode("overwrite").parquet(
            str(folder / "predicates")
        )
        needed = pa.table({"sub": np.arange(subscriptions), "needed": np.diff(work.offsets)})
        pq.write_table(needed, folder / "needed.parquet")
        for name in ("predicates", "needed.parquet", "events.parquet"):
            spark.read.parquet(str(folder / name)).createOrReplaceTempView(name.split(".")[0])
        joined = spark.sql(JOIN)
        matcher = Matcher()
        matcher.add_table(work.subscription_table())
        matcher.save(folder / f"sql-{shape}")
        frame = spark.read.parquet(str(folder / "events.parquet"))
        ours = match(frame, folder / f"sql-{shape}", attributes="attributes", partitions=2)
        start = time.perf_counter()
        pairs = counted(ours)
        first = time.perf_counter() - start
        found: list[int] = []
        took = in_turns({"join": lambda j=joined, f=found: f.append(counted(j))}, 1)
        if found != [pairs]:
            raise AssertionError(f"{shape}: the join finds other matches")
        rivals: dict[str, Callable[[], Any]] = {"match": lambda o=ours: drain(o)}
        if took["join"]["seconds"] < PATIENCE:
            rivals["join"] = lambda j=joined: drain(j)
        took |= in_turns(rivals, options.repeats)
        more = spark.range(0, options.copies).crossJoin(frame.withColumnRenamed("id", "event")).repartition(4)
        many = match(more.withColumn("id", more["event"]), folder / f"sql-{shape}", attributes="attributes")
        large = in_turns({"match": lambda m=many: drain(m)}, options.repeats)["match"]
        empty = in_turns({"none": lambda m=more: drain(m)}, options.repeats)["none"]
        told = []
        for measure in ("seconds", "processor"):
            join, ours = took["join"][measure], took["match"][measure]
            rate = max(large[measure] - empty[measure], 1e-3) / options.copies
            told.append(
                f"{measure}: join {join:.2f}, match {ours:.2f} ({join / ours:.0f} times), per {events:,} events in a "
                f"job of {events * options.copies:,} {rate:.3f} ({join / rate:.0f} times)"
            )
        print(f"sql {shape}: the first job {first:.2f} s; {'; '.join(told)}", flush=True)


def run_compile(spark: Any, folder: Path, options: argparse.Namespace) -> None:
    work = boolean.make_named("sparse", options.subscriptions)
    path = folder / "subscriptions"
    path.mkdir(exist_ok=True)
    for number, batch in enumerate(work.subscription_batches()):
        pq.write_table(pa.table(batch), path / f"{number}.parquet")
    del work

    def add_table() -> None:
        Matcher(threads=2).add_table(pq.read_table(path))

    def on_spark() -> None:
        shutil.rmtree(folder / "compiled", ignore_errors=True)
        compile(str(path), folder / "compiled", shards=1)

    large = options.subscriptions > 2_000_000
    rivals: dict[str, Callable[[], Any]] = {} if large else {"add_table": add_table}
    with PeakMemory() as memory:
        took = in_turns(rivals | {"compile": on_spark}, options.repeats)
    version = versions.open_version(folder / "compiled")
    print(f"compile {version.subscriptions:,} in {len(version.segments)} segments", flush=True)
    for measure in ("seconds", "processor"):
        ours = took["compile"][measure]
        told = f"{ours:.1f} s"
        if not large:
            rival = took["add_table"][measure]
            told += f", add_table {rival:.1f} s, so it takes {ours / rival:.2f} times as long"
        print(f"  {measure}: {told}", flush=True)
    print(f"  GB resident at most: {memory.largest()}", flush=True)


def run_shards(spark: Any, folder: Path, options: argparse.Namespace) -> None:
    work = boolean.make_named("sparse", options.subscriptions, 2_000)
    path = folder / "subscriptions-shards"
    path.mkdir(exist_ok=True)
    for number, batch in enumerate(work.subscription_batches()):
        pq.write_table(pa.table(batch), path / f"{number}.parquet")
    pq.write_table(pa.table(work.event_batch()), folder / "events-shards.parquet")
    del work
    with PeakMemory() as memory:
        start = time.perf_counter()
        version = compile(str(path), folder / "sharded", memory=options.memory).version
        seconds = time.perf_counter() - start
    print(
        f"shards: {version.subscriptions:,} compiled in {seconds:.1f} s to {version.shards} shards, "
        f"{version.bytes / 2**30:.2f} GB; GB resident at most: {memory.largest()}",
        flush=True,
    )
    frame = spark.read.parquet(str(folder / "events-shards.parquet")).repartition(4)
    given: dict[str, Any] = dict(attributes="attributes", memory=options.memory)
    print(explain(frame, folder / "sharded", plan="sharded", **given), flush=True)
    both = {plan: match(frame, folder / "sharded", plan=plan, **given) for plan in ("sharded", "replicated")}
    for plan, found in both.items():
        with PeakMemory() as memory:
            took = in_turns({plan: lambda f=found: drain(f)}, options.repeats)[plan]
        print(f"  {plan}: {took['seconds']:.1f} s, GB resident at most: {memory.largest()}", flush=True)
    if both["sharded"].exceptAll(both["replicated"]).count() or both["replicated"].exceptAll(both["sharded"]).count():
        raise AssertionError("the plans differ")
    print("  both plans give the same matches", flush=True)


def run_stream(spark: Any, folder: Path, options: argparse.Namespace) -> None:
    work = boolean.make_named("sparse", options.subscriptions, 1_000)
    chance = np.random.default_rng(7)
    keys = {name: chance.integers(0, size, 1_000).tolist() for name, size in (("user", USERS), ("price", 1_000))}
    events = pa.table(work.event_batch())
    maps = [[*row, *zip(keys, values)] for row, values in zip(events["attributes"].to_pylist(), zip(*keys.values()))]
    events = events.set_column(1, "attributes", pa.array(maps, events["attributes"].type))
    with Matcher.open(folder / "living") as matcher:
        matcher.add_table(work.subscription_table())
        matcher.compact()
        expressions = [(s.id, s.expression) for s in (matcher.get(i) for i in range(1_000))]
        del work
        for name in options.streams:
            history = STREAMS[name][1]
            if history is not None and not matcher.joins:
                matcher.add_many((10**9 + i, JOINED[i % 2].format(10 * i)) for i in range(100))
                matcher.compact()
            told = _micro_batches(spark, folder / f"stream-{name}", events, matcher, expressions, name, options)
            seconds = np.array([m.seconds for m in told])
            taken = np.array([m.compile_seconds for m in told])
            print(
                f"stream {name}: {len(matcher):,} subscriptions, {len(told)} batches of "
                f"{events.num_rows:,} events: median {np.median(seconds) * 1e3:,.0f} ms, 99th percentile "
                f"{np.quantile(seconds, 0.99) * 1e3:,.0f} ms; of which the snapshot {np.median(taken) * 1e3:,.0f} and "
                f"{np.quantile(taken, 0.99) * 1e3:,.0f} ms; {np.mean([m.changes for m in told]):.0f} changes per "
                f"batch, {np.mean([m.matches for m in told]):,.0f} matches",
                flush=True,
            )


def _micro_batches(
    spark: Any,
    folder: Path,
    events: pa.Table,
    matcher: Matcher,
    expressions: list[tuple[Any, str]],
    name: str,
    options: argparse.Namespace,
) -> list[Any]:
    """Metrics of one batch after the other; the first ones, with which workers start, are left out."""
    inbox = folder / "in"
    inbox.mkdir(parents=True)
    pq.write_table(events, folder / "one.parquet")
    over = threading.Event()
    changes, history = STREAMS[name]

    def change() -> None:
        turn = 0
        while changes and not over.wait(1 / changes):
            id, _ = expressions[turn % len(expressions)]
            matcher.replace(id, expressions[(turn * 7 + 1) % len(expressions)][1])
            turn += 1

    reader = spark.readStream.schema(spark.read.parquet(str(folder / "one.parquet")).schema)
    frame = reader.option("maxFilesPerTrigger", 1).parquet(str(inbox)).repartition(2)
    changer = threading.Thread(target=change)
    changer.start()
    paths = folder.parent / "living", folder / "out", folder / "at"
    try:
        with stream(frame, *paths, attributes="attributes", history=history) as query:
            for number in range(options.batches + STARTING):
                os.link(folder / "one.parquet", folder / "partial")
                os.rename(folder / "partial", inbox / f"{number:06d}.parquet")
                query.processAllAvailable()
            return query.metrics[STARTING:]
    finally:
        over.set()
        changer.join()


SECTIONS = {"match": run_match, "sql": run_sql, "compile": run_compile, "stream": run_stream, "shards": run_shards}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS))
    parser.add_argument("--subscriptions", type=int, default=1_000_000)
    parser.add_argument("--shapes", nargs="+", help="of the sections match and sql; all by default")
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--passes", type=int, default=1, help="over the events, in one job of the section match")
    parser.add_argument("--copies", type=int, default=2_000, help="of the events, in the long job of the section sql")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--memory", type=int, default=10**9, help="bytes of the index that a worker may hold: shards")
    parser.add_argument("--streams", nargs="+", choices=STREAMS, default=list(STREAMS))
    parser.add_argument("--batches", type=int, default=100, help="of the section stream")
    parser.add_argument("--driver-memory", default="3g")
    options = parser.parse_args()
    spark = session(cores=2, app="dibs-benchmark", spark_driver_memory=options.driver_memory)
    folder = Path(tempfile.mkdtemp(prefix="dibs-benchmark-"))
    try:
        for name in options.only:
            SECTIONS[name](spark, folder, options)
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
