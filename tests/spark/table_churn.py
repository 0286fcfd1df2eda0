"""A table of subscriptions that is overwritten, replaced, cut down, half-written and broken while a stream reads it.

    python tests/spark/table_churn.py --seconds 600 --pause 2

Each whole table has a subscription of its own that every event satisfies, so that the matches tell which table a batch
was matched against. In the end every event was matched in one batch, and every batch has exactly the matches of one
table that was whole at some time: never those of a part, and the stream has never ended. test_living_stream.py runs a
short form.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

EVENTS_A_FILE = 20
VALUES = 40
FORMS: tuple[tuple[str, Callable[[int, int, int, int], bool]], ...] = (
    ("n = {0}", lambda n, m, x, y: n == x),
    ("n > {0} AND m <= {1}", lambda n, m, x, y: n > x and m <= y),
    ("n < {0} OR m = {1}", lambda n, m, x, y: n < x or m == y),
    ("n IN ({0}, {1}) AND m <> {0}", lambda n, m, x, y: n in (x, y) and m != x),
)
Subscriptions = dict[str, tuple[int, int, int]]  # by id: a form and its constants


class Tables:
    """Writes one table after the other to a folder, in all the ways that there are."""

    def __init__(self, folder: Path, random: Random) -> None:
        self._folder, self._random = folder, random
        self.whole: list[Subscriptions] = []  # by number
        self.done: Counter[str] = Counter()
        self._replace(self._next(60))

    def _next(self, size: int) -> pa.Table:
        """Another one; the subscriptions of the one before stay for the most part, or change."""
        random = self._random
        before = list(self.whole[-1].items())[: size // 2] if self.whole else []
        rows: Subscriptions = dict(before)
        while len(rows) < size:
            own = (random.randrange(len(FORMS)), random.randrange(VALUES), random.randrange(VALUES))
            rows[f"s{random.randrange(10 * size)}"] = own
        self.whole.append(rows)
        texts = [FORMS[form][0].format(x, y) for form, x, y in rows.values()]
        marker = f"v{len(self.whole) - 1}"
        return pa.table({"id": [*rows, marker], "expression": [*texts, "TRUE"]})

    def _write(self, rows: pa.Table, name: str) -> None:
        self._folder.mkdir(exist_ok=True)
        pq.write_table(rows, self._folder / name)

    def _clear(self) -> None:
        for path in self._folder.iterdir() if self._folder.exists() else ():
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def _replace(self, rows: pa.Table) -> None:
        """At once, as a writer with a commit does."""
        partial = self._folder.with_name(f".{self._folder.name}")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        pq.write_table(rows, partial / "a.parquet")
        old = self._folder.with_name(".old")
        if self._folder.exists():
            self._folder.rename(old)
        partial.rename(self._folder)
        shutil.rmtree(old, ignore_errors=True)

    # Each of these is done in steps, between which the stream goes on.

    def replaced(self) -> Iterator[None]:
        self._replace(self._next(self._random.randrange(50, 70)))
        yield

    def overwritten(self) -> Iterator[None]:
        """As Spark's mode overwrite: everything goes, and then the files come one by one."""
        rows = self._next(60)
        self._clear()
        yield
        (self._folder / "_temporary" / "0").mkdir(parents=True)
        self._write(rows.slice(0, 20), "a.parquet")
        yield
        self._write(rows.slice(20), "b.parquet")
        shutil.rmtree(self._folder / "_temporary")
        (self._folder / "_SUCCESS").touch()
        yield

    def shrunk(self) -> Iterator[None]:
        self._replace(self._next(12))
        yield

    def died(self) -> Iterator[None]:
        """The writer, after the first of its tasks; another one comes later."""
        self._clear()
        (self._folder / "_temporary" / "0").mkdir(parents=True)
        self._write(self._next(60).slice(0, 30), "a.parquet")
        yield
        yield from self.replaced()

    def gone(self) -> Iterator[None]:
        shutil.rmtree(self._folder)
        yield
        yield from self.replaced()

    def broken(self) -> Iterator[None]:
        self._clear()
        self._write(self._next(60), "a.parquet")
        path = self._folder / "a.parquet"
        path.write_bytes(path.read_bytes()[: self._random.randrange(200)])
        yield
        yield from self.replaced()

    def other_columns(self) -> Iterator[None]:
        """The expressions under another name, ids of another type, weights that are texts."""
        rows = self._next(60)
        texts, numbers = pa.array(["much"] * len(rows)), pa.array(range(len(rows)))
        changed = [
            rows.rename_columns(["id", "text"]),
            rows.set_column(0, "id", numbers),
            rows.append_column("weight", texts),
        ]
        self._replace(self._random.choice(changed))
        yield
        self._replace(self._next(60).append_column("comment", pa.array(["new"] * 61)))
        yield

    def change(self) -> Iterator[None]:
        kinds = [self.replaced, self.overwritten, self.shrunk, self.died, self.gone, self.broken, self.other_columns]
        while True:
            self._random.shuffle(kinds)
            for kind in kinds:
                self.done[kind.__name__] += 1
                yield from kind()


def churn(spark: Any, folder: Path, seconds: float, pause: float, seed: int = 0) -> str:
    """Runs the stream while the table changes. Raises AssertionError; else says what there was."""
    from dibs.spark import Table, stream

    random = Random(seed)
    tables = Tables(folder / "subscriptions", random)
    over = threading.Event()
    events: dict[str, tuple[int, int]] = {}
    (folder / "in").mkdir()

    def write_events() -> None:
        own, files = Random(seed + 1), 0
        while not over.wait(min(pause / 4, 0.5)):
            some = {f"e{files}-{i}": (own.randrange(VALUES), own.randrange(VALUES)) for i in range(EVENTS_A_FILE)}
            events.update(some)
            lines = [json.dumps({"id": id, "n": n, "m": m}) for id, (n, m) in some.items()]
            (folder / f".{files}").write_text("\n".join(lines))
            (folder / f".{files}").rename(folder / "in" / f"{files:06d}.txt")
            files += 1

    lines = spark.readStream.option("maxFilesPerTrigger", 20).text(str(folder / "in"))
    frame = lines.selectExpr("get_json_object(value, '$.id') AS id", "value")
    # A shrunken table counts from the next batch on, which may be the last: there is always another one.
    query = stream(
        frame, Table(str(folder / "subscriptions")), folder / "out", folder / "checkpoint", attributes="value"
    )
    writer = threading.Thread(target=write_events)
    writer.start()
    changes = tables.change()
    until = time.monotonic() + seconds
    try:
        while time.monotonic() < until:
            time.sleep(pause)
            next(changes)
            assert query.isActive, f"the stream has ended: {query.exception()}"
    finally:
        over.set()
        writer.join()
    query.processAllAvailable()
    metrics = query.metrics
    query.stop()
    notices = Counter(kind for m in metrics for kind in KINDS if m.notice is not None and kind in m.notice)
    used = check(pq.read_table(folder / "out"), tables.whole, events)
    said = sum(m.notice is not None for m in metrics)
    return (
        f"{len(metrics)} batches of {len(events):,} events, {sum(tables.done.values())} changes {dict(tables.done)}: "
        f"{len(used)} tables used, the last good one {said} times {dict(notices)}; all exact"
    )


KINDS = ("not there", "no files", "_temporary", "cannot be read", "expected", "of the type", "shrunk", "was changed")


def check(found: pa.Table, whole: list[Subscriptions], events: dict[str, tuple[int, int]]) -> set[int]:
    """Which tables were used, if every event has the matches of the one that its batch was matched against."""
    batches: dict[int, dict[str, set[str]]] = {}
    for batch, event, id in zip(*(found[name].to_pylist() for name in ("batch", "event_id", "subscription_id"))):
        ids = batches.setdefault(batch, {}).setdefault(event, set())
        assert id not in ids, f"{event} has {id} twice in batch {batch}"
        ids.add(id)
    seen = [event for own in batches.values() for event in own]
    assert sorted(seen) == sorted(events), f"{len(events)} events, of which {len(seen)} were matched"
    used = set()
    for batch, own in sorted(batches.items()):
        markers = {id for ids in own.values() for id in ids if id.startswith("v")}
        assert len(markers) == 1, f"batch {batch} was matched against {sorted(markers)}"
        number = int(next(iter(markers))[1:])
        used.add(number)
        for event, ids in own.items():
            n, m = events[event]
            expected = {id for id, (form, x, y) in whole[number].items() if FORMS[form][1](n, m, x, y)}
            assert ids - markers == expected, f"batch {batch}, {event}, table {number}: {ids ^ expected ^ markers}"
    return used


def main() -> None:
    from dibs.spark import session

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--pause", type=float, default=2)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    spark = session(cores=2, app="dibs churn")
    with tempfile.TemporaryDirectory() as folder:
        print(churn(spark, Path(folder), given.seconds, given.pause, given.seed), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
