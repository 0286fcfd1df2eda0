"""Kills a stream with SIGKILL again and again, while events come and subscriptions change all the time.

    python tests/spark/stream_kills.py --kills 20 --seed 1
    python tests/spark/stream_kills.py --kills 20 --history
    python tests/spark/stream_kills.py --kills 20 --through table      or feed

The victim is the driver's Python, the JVM or a Python worker, at a random moment, sometimes before the first batch
since the last kill is done; what has died is started again with the same checkpoint. In the end the matches in the
Parquet sink are held against the plain evaluator: every event was matched in one batch, against one version of the
subscriptions, and has exactly the matches of that version, once. With --history there are joins, and each event sees
those before it, as in one Matcher that is told of events and changes in the same order. --through: subscriptions come
from a durable folder, from a table that is written anew each time, or as files of changes (feed); of the latter two a
subscription that all events satisfy tells which state a batch has seen.
test_stream_kills.py runs a short form.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

VICTIMS = ("driver", "jvm", "worker")
EVENTS_A_FILE = 5
FILES_A_BATCH, FILES_A_LAST_BATCH = 2, 50  # the last run has to catch up with all that was written meanwhile
PATIENCE = 600.0  # seconds for a batch: sessions start, on busy machines
EARLY = 0.25  # how many drivers and JVMs die without waiting for a batch
ALWAYS = "always"  # a subscription that every event satisfies and nobody changes
EXPRESSIONS = (
    "n = {0}",
    "n > {0} AND m <= {1}",
    "n < {0} OR m = {1}",
    "s LIKE '{0}%'",
    "n IN ({0}, {1}) AND m IS NOT NULL",
)
JOINS = (
    "EXISTS d (d.n = n AND d.m > m) AND n <> {0}",
    "(SELECT COUNT(*) FROM history d WHERE d.s = s) >= {0}",
    "m < (SELECT MIN(d.m) FROM history d WHERE d.n = n AND d.s <> s)",
    "NOT EXISTS d (d.m = m AND d.n > {1})",
)
KEPT = 200  # documents
THROUGH = ("folder", "table", "feed")
MARK = "at-"  # and the number of changes: the one subscription that says which state this is


def run_stream(folder: Path, stay: bool, history: bool, through: str) -> None:
    """The driver: a stream over everything in the folder."""
    from dibs.spark import History, Table, session, stream

    spark = session(app="dibs kills", spark_master="local[2,4]")  # a task is tried four times
    files = FILES_A_BATCH if stay else FILES_A_LAST_BATCH
    events = spark.readStream.option("maxFilesPerTrigger", files).text(str(folder / "events"))
    events = events.selectExpr("get_json_object(value, '$.id') AS id", "value")
    events = events.selectExpr("*", "CAST(substr(id, 2) AS LONG) AS number")
    subscriptions: Any = folder / "subscriptions"
    if through == "table":
        subscriptions = Table(str(folder / "subscriptions.parquet"))
    elif through == "feed":
        schema = "id string, expression string, deleted boolean, number bigint"
        subscriptions = spark.readStream.schema(schema).json(str(folder / "changes"))
    query = stream(
        events,
        subscriptions,
        folder / "matches",
        folder / "checkpoint",
        attributes="value",
        carry=("version", "subscription_version"),
        trigger=None if stay else "available-now",
        order="number" if through == "feed" else None,
        history=History(order="number", retain=KEPT) if history else None,
        on_batch=lambda metrics: print("batch", "again" if metrics.replayed else "new", flush=True),
    )
    query.awaitTermination()
    spark.stop()


class Feed:
    """Changes subscriptions and writes events until it is told to stop, and remembers everything."""

    def __init__(self, folder: Path, seed: int, pause: float, history: bool, through: str) -> None:
        from dibs.matcher import Matcher

        self._folder, self._random, self._pause, self.through = folder, random.Random(seed), pause, through
        (folder / "events").mkdir(parents=True)
        (folder / "changes").mkdir()
        self._expressions = EXPRESSIONS + JOINS if history else EXPRESSIONS
        self.matcher = Matcher.open(folder / "subscriptions") if through == "folder" else None
        self._held: dict[str, str] = {}
        self._published = 0  # of the changes
        self.changes: list[tuple[str, str | None]] = []  # number i made the version i + 1
        self.events: dict[str, dict[str, Any]] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._change(ALWAYS, "TRUE")
        for i in range(200):
            self._change(f"s{i}", self._expression())
        self._publish()
        self._thread.start()

    def _expression(self) -> str:
        return self._random.choice(self._expressions).format(self._random.randrange(10), self._random.randrange(10))

    def _change(self, id: str, expression: str | None) -> None:
        if self.matcher is not None:
            if id in self._held:
                self.matcher.remove(id) if expression is None else self.matcher.replace(id, expression)
            elif expression is not None:
                self.matcher.add(id, expression)
            assert self.matcher.version == len(self.changes) + 1
        self._held.pop(id, None)
        if expression is not None:
            self._held[id] = expression
        self.changes.append((id, expression))

    def _publish(self) -> None:
        """What has changed since the last time, and all at once, with the mark of the state."""
        before, now = f"{MARK}{self._published}", f"{MARK}{len(self.changes)}"
        new, self._published = self.changes[self._published :], len(self.changes)
        if self.through == "table":
            import pyarrow as pa
            import pyarrow.parquet as pq

            held = {**self._held, now: "TRUE"}
            pq.write_table(pa.table({"id": list(held), "expression": list(held.values())}), self._folder / ".partial")
            (self._folder / ".partial").rename(self._folder / "subscriptions.parquet")
        elif self.through == "feed":
            first = len(self.changes) - len(new)  # a mark has the number of the last change
            numbered = [
                *enumerate(new, first),
                *((len(self.changes), mark) for mark in ((before, None), (now, "TRUE"))),
            ]
            rows = [{"id": id, "expression": s, "deleted": s is None, "number": n} for n, (id, s) in numbered]
            partial = self._folder / "changes" / ".partial"
            partial.write_text("\n".join(map(json.dumps, rows)))
            partial.rename(partial.with_name(f"{len(self.changes):08d}.json"))

    def _run(self) -> None:
        while not self._stop.is_set():
            for _ in range(5):
                id = f"s{self._random.randrange(300)}"
                gone = id in self._held and self._random.random() < 0.4
                self._change(id, None if gone else self._expression())
            self._publish()
            self._write_events()
            time.sleep(self._pause)

    def _write_events(self) -> None:
        lines = []
        for _ in range(EVENTS_A_FILE):
            n, m = self._random.randrange(10), self._random.choice([None, *range(10)])
            event = {"id": f"e{len(self.events)}", "n": n, "m": m, "s": str(self._random.randrange(100))}
            self.events[event["id"]] = event
            lines.append(json.dumps(event))
        partial = self._folder / "events" / f".{len(self.events)}"
        partial.write_text("\n".join(lines))
        partial.rename(partial.with_name(f"{len(self.events):08d}.txt"))

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        if self.matcher is not None:
            self.matcher.close()


class Driver:
    """The process of the stream, and those that it has started."""

    def __init__(self, folder: Path, history: bool, through: str, stay: bool = True) -> None:
        flags = [*(["--stay"] if stay else []), *(["--history"] if history else []), "--through", through]
        command = [sys.executable, __file__, "--stream", str(folder), *flags]
        self._folder = folder
        self._log = open(folder / "stream.log", "ab")  # noqa: SIM115
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self._log, text=True)
        self.batches = self.replayed = 0
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.batches += line.startswith("batch ")
            self.replayed += line.startswith("batch again")

    def wait_for_batches(self, count: int, seconds: float) -> None:
        end = time.monotonic() + seconds
        while self.batches < count:
            if self.process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"the stream has done {self.batches} batches, expected {count}:\n{self.told()}")
            time.sleep(0.05)

    def wait_for_end(self, seconds: float) -> None:
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"the stream is not done after {self.batches} batches:\n{self.told()}") from None
        assert code == 0, f"the stream could not go on:\n{self.told()}"

    def told(self) -> str:
        return (self._folder / "stream.log").read_text()[-5_000:]

    def victim(self, kind: str) -> int | None:
        below = descendants(self.process.pid)
        if kind == "driver":
            return self.process.pid
        if kind == "jvm":
            return next((pid for pid, name in below if "java" in name), None)
        workers = [pid for pid, name in below if "dibs.spark.daemon" in name]
        return workers[-1] if len(workers) > 1 else None  # the first is their parent

    def kill(self, kind: str, seconds: float) -> None:
        """As soon as there is one."""
        end = time.monotonic() + seconds
        while (pid := self.victim(kind)) is None:
            if self.process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"the stream has no {kind} that could be killed:\n{self.told()}")
            time.sleep(0.05)
        below = descendants(self.process.pid)
        os.kill(pid, signal.SIGKILL)
        if kind != "worker":  # a stream without its driver or JVM is over
            time.sleep(0.5)
            self.end(below)

    def end(self, below: list[tuple[int, str]] | None = None) -> None:
        for pid, _ in [*(descendants(self.process.pid) if below is None else below), (self.process.pid, "")]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.wait()
        self._reader.join()
        self._log.close()


def descendants(pid: int) -> list[tuple[int, str]]:
    """(process, command line) of all that a process has started, parents first."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                parent = int(Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, IndexError):
                continue
            children.setdefault(parent, []).append(int(entry))
    found: list[tuple[int, str]] = []
    waiting = [pid]
    while waiting:
        for child in sorted(children.get(waiting.pop(0), [])):
            waiting.append(child)
            try:
                found.append((child, Path(f"/proc/{child}/cmdline").read_bytes().replace(b"\0", b" ").decode()))
            except OSError:
                continue
    return found


def check(folder: Path, feed: Feed, history: bool) -> str:
    """Fails when a match is missing, there twice, or wrong; else says what there was."""
    import pyarrow.parquet as pq

    rows = pq.read_table(folder / "matches").to_pylist()
    versions: dict[int, int] = {}  # of batches
    places: dict[str, int] = {}  # batches of events
    is_told = feed.through == "folder"
    for row in rows:
        mark = str(row["version"]) if is_told else row["subscription_id"].partition(MARK)[2]
        if mark:
            assert versions.setdefault(row["batch"], int(mark)) == int(mark), f"two versions in {row['batch']}"
        assert places.setdefault(row["event_id"], row["batch"]) == row["batch"], f"{row['event_id']} in two batches"
    missing = feed.events.keys() - places.keys()
    assert not missing, f"{len(missing)} events were never matched, as {min(missing)}"
    own = [row for row in rows if not row["subscription_id"].startswith(MARK)]
    found = [(row["event_id"], row["subscription_id"], row["subscription_version"]) for row in own]
    seen = [version for _, version in sorted(versions.items())]
    assert seen == sorted(seen), "a batch has seen an earlier state than the one before"
    assert len(found) == len(set(found)), "a match is there twice"

    expected = expected_with_history(feed, versions, places) if history else expected_alone(feed, versions, places)
    if not is_told:  # the stream's own folder counts changes in its own way
        expected, found = ({(event, id, 0) for event, id, _ in some} for some in (expected, found))
    wrong = expected ^ set(found)
    assert not wrong, f"{len(wrong)} of {len(expected)} matches are wrong, as {min(wrong)}"
    return (
        f"{len(feed.events):,} events in {len(versions):,} batches, {len(set(versions.values())):,} versions of "
        f"{len(feed.changes):,} changes: all {len(expected):,} matches are there once and right"
    )


Expected = set[tuple[str, str, int]]  # (event, subscription, its version)


def expected_alone(feed: Feed, versions: dict[int, int], places: dict[str, int]) -> Expected:
    """By the plain evaluator."""
    from dibs.language.sql import parse
    from dibs.reference import matches

    expected = set()
    state: dict[str, tuple[str, int]] = {}
    trees: dict[str, Any] = {}
    done = 0
    for version in sorted(set(versions.values())):
        for number, (id, expression) in enumerate(feed.changes[done:version], done + 1):
            state.pop(id, None)
            if expression is not None:
                state[id] = expression, number
        done = version
        own = [event for event, batch in places.items() if versions[batch] == version]
        for event in own:
            for id, (expression, made) in state.items():
                tree = trees.setdefault(expression, parse(expression))
                if matches(tree, feed.events[event]):
                    expected.add((event, id, made))
    return expected


def expected_with_history(feed: Feed, versions: dict[int, int], places: dict[str, int]) -> Expected:
    """By a Matcher: batch after batch, and within a batch by number."""
    from dibs.matcher import Matcher

    expected = set()
    made: dict[str, int] = {}
    done = 0
    with Matcher(retain=KEPT) as matcher:
        for batch, version in sorted(versions.items()):
            for number, (id, expression) in enumerate(feed.changes[done:version], done + 1):
                if id in matcher:
                    matcher.remove(id)
                if expression is not None:
                    matcher.add(id, expression)
                    made[id] = number
            done = max(done, version)
            own = sorted((event for event, place in places.items() if place == batch), key=lambda event: int(event[1:]))
            found = matcher.match_batch([feed.events[event] for event in own], remember=True)
            expected |= {(event, id, made[id]) for event, ids in zip(own, found, strict=True) for id in ids}
    return expected


def run(
    folder: Path,
    kills: int,
    seed: int,
    victims: tuple[str, ...] = VICTIMS,
    pause: float = 0.4,
    history: bool = False,
    through: str = "folder",
) -> str:
    chance = random.Random(seed)
    feed = Feed(folder, seed, pause, history, through)
    driver = Driver(folder, history, through)
    counts = dict.fromkeys(VICTIMS, 0)
    replayed = 0
    try:
        for number in range(kills):
            kind = victims[number % len(victims)]
            if kind != "worker" and number > 0 and chance.random() < EARLY:
                time.sleep(chance.uniform(0.0, 20.0))
            else:
                driver.wait_for_batches(1, PATIENCE)
                time.sleep(chance.uniform(0.0, 3.0))
            before = driver.batches
            driver.kill(kind, PATIENCE)
            counts[kind] += 1
            print(f"kill {number + 1}: {kind} after {before} batches", flush=True)
            if kind == "worker":
                driver.wait_for_batches(before + 2, PATIENCE)  # the stream survives its workers
            elif number < kills - 1:
                replayed += driver.replayed
                driver = Driver(folder, history, through)
    finally:
        feed.stop()
        if driver.process.poll() is None:
            driver.end()
    last = Driver(folder, history, through, stay=False)  # what is left
    try:
        last.wait_for_end(PATIENCE)
    finally:
        last.end()
    replayed += driver.replayed + last.replayed
    told = check(folder, feed, history)
    killed = ", ".join(f"{kind} {n} times" for kind, n in counts.items())
    return f"killed {killed}; {replayed} batches were run again; {told}"


def main() -> None:
    parser = argparse.ArgumentParser(description="Kill a stream at random moments, and check its matches.")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--history", action="store_true", help="with joins over the events before")
    parser.add_argument("--through", choices=THROUGH, default="folder", help="what the subscriptions come from")
    parser.add_argument("--folder", type=Path, help="a new folder, which is kept with everything in it")
    parser.add_argument("--stream", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--stay", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    given = {"history": arguments.history, "through": arguments.through}
    if arguments.stream is not None:
        run_stream(arguments.stream, arguments.stay, **given)
        return
    if arguments.folder is not None:
        print(run(arguments.folder, arguments.kills, arguments.seed, **given))
        return
    with tempfile.TemporaryDirectory(prefix="dibs-kills-") as folder:
        print(run(Path(folder), arguments.kills, arguments.seed, **given))


if __name__ == "__main__":
    main()
