"""A standalone cluster of a master and two workers, which see no folder of the driver's index, loses an executor in the
middle of a `match` and a worker in the middle of a `backfill`: the matches must be those of the Matcher in process.

    python tests/spark/cluster_kills.py              once
    python tests/spark/cluster_kills.py --times 10   several times, killed at other moments
    python tests/spark/cluster_kills.py --shared     workers see the driver's folders

Hiding a folder takes root (a mount namespace). A short form is tests/spark/test_cluster.py.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
from cluster import Cluster

PARTITIONS, EVENTS, SUBSCRIPTIONS = 10, 1_000, 200


def run_jobs(folder: Path, master: str) -> None:
    """The driver: two jobs, whose results are Parquet files."""
    from dibs.spark import backfill, match, session

    spark = session(app="cluster", spark_master=master, spark_executor_memory="512m", spark_task_maxFailures=8)
    events = spark.read.parquet(str(folder / "events.parquet")).repartition(PARTITIONS)
    subscriptions = spark.read.parquet(str(folder / "subscriptions.parquet"))
    match(events, subscriptions).write.parquet(str(folder / "match"))
    backfill(events, subscriptions, folder / "backfill", folder / "checkpoint", state=folder / "hidden" / "state")
    spark.stop()


def write_inputs(folder: Path) -> set[tuple[int, int]]:
    """The matches that there must be."""
    from dibs.matcher import Matcher

    chance = random.Random(7)
    events = [{"id": i, "n": chance.randrange(50), "s": str(chance.randrange(20))} for i in range(EVENTS)]
    kinds = ("n = {}", "n BETWEEN {} AND 30 AND s <> '3'", "s = '{}' OR n = 7", "n NOT IN (1, {}) AND s LIKE '1%'")
    texts = [kinds[i % 4].format(chance.randrange(50)) for i in range(SUBSCRIPTIONS)]
    pq.write_table(pa.Table.from_pylist(events), folder / "events.parquet")
    table = pa.table({"id": range(SUBSCRIPTIONS), "expression": texts})
    pq.write_table(table, folder / "subscriptions.parquet")
    matcher = Matcher()
    matcher.add_table(table)
    pairs = matcher.match_batch(pa.Table.from_pylist(events)).pairs()
    return set(zip(pairs["event"].to_pylist(), pairs["subscription"].to_pylist()))


def kill_below(worker: subprocess.Popen[bytes], whole: bool) -> None:
    """SIGKILL to the executors of a worker; whole: and to the worker, as when a machine goes."""
    tasks = Path(f"/proc/{worker.pid}/task")
    children = {int(pid) for task in tasks.iterdir() for pid in (task / "children").read_text().split()}
    victims = ([worker.pid] if whole else []) + sorted(children)
    if not children:
        raise RuntimeError("the worker has no executor that could be killed")
    for pid in victims:
        os.kill(pid, signal.SIGKILL)


def wait_for_tasks(out: Path, count: int, job: subprocess.Popen[bytes], log: Path, seconds: float = 240) -> None:
    """Until so many tasks have handed in their files, and others have not."""
    end = time.monotonic() + seconds
    while len(list(out.glob("**/_temporary/0/task_*"))) < count:
        if job.poll() is not None or time.monotonic() > end:
            raise RuntimeError(f"nothing to kill: the job is over, or does not begin:\n{log.read_text()[-5_000:]}")
        time.sleep(0.02)


def run(folder: Path, seed: int = 1, apart: bool = True) -> str:
    expected = write_inputs(folder)
    (folder / "hidden").mkdir()
    chance = random.Random(seed)
    log = folder / "job.log"
    with Cluster(folder / "cluster", memory="512m", hidden=folder / "hidden" if apart else None) as cluster:
        with open(log, "wb") as told:
            command = [sys.executable, __file__, "--job", str(folder), "--master", cluster.master]
            job = subprocess.Popen(command, stdout=told, stderr=told)
        try:
            wait_for_tasks(folder / "match", chance.randrange(2, PARTITIONS // 2), job, log)
            kill_below(cluster.workers[0], whole=False)
            wait_for_tasks(folder / "backfill", chance.randrange(2, PARTITIONS // 2), job, log)
            kill_below(cluster.workers[1], whole=True)
            assert job.wait(300) == 0, log.read_text()[-5_000:]
        finally:
            job.kill()
            job.wait()
        caches = list((folder / "cluster").glob("worker-*/tmp/dibs-worker-*/base-*"))
    assert bool(caches) == apart, f"snapshots that came by broadcast: {caches}"
    for name in ("match", "backfill"):
        rows = pq.read_table(folder / name).to_pylist()
        found = [(row["event_id"], row["subscription_id"]) for row in rows]
        assert len(found) == len(set(found)), f"{name}: {len(found) - len(set(found))} matches twice"
        assert set(found) == expected, f"{name}: {len(expected - set(found))} matches are missing"
    return f"{len(expected):,} matches, twice; an executor and a worker killed"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--shared", action="store_true")
    parser.add_argument("--job", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--master", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.job is not None:
        run_jobs(arguments.job, arguments.master)
        return
    for seed in range(arguments.times):
        folder = Path(tempfile.mkdtemp(prefix="dibs-cluster-kills-"))
        try:
            print(f"{seed}: {run(folder, seed, not arguments.shared)}", flush=True)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
