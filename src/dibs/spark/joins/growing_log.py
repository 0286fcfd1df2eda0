"""The files of a history that grows: which documents a micro-batch begins with, and its own.

    history/batches/000000000012.json   written, and safe on the disk, before batch 12 is matched: the parts before it,
                                        and its own part
    history/parts/NAME/                 Parquet files that never change: the events of one batch, or those of
                                        several, put together

So a batch that is run again after a crash sees the same events in the same order, with the same documents before them.
Spark begins a batch only when the one before is committed: parts that only earlier batches name are removed then.

The rows of a part: the columns c0, c1, ... of the events, and those of OWN. A document's number is firsts[part] +
before; numbers go on from batch to batch without a gap.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pyspark.sql.types import ArrayType, BooleanType, IntegerType, LongType, StructField

from dibs.errors import DamagedError, DibsError
from dibs.storage.files import replace_bytes

HISTORY, BATCHES, PARTS = "history", "batches", "parts"
FORMAT = 1
OWN = [
    StructField("part", IntegerType()),  # which task wrote it
    StructField("before", LongType()),  # how many documents of that task came before it
    StructField("readable", BooleanType()),  # else it is no document, and matches nothing
    StructField("time", LongType()),  # by which it is retained, in microseconds
    StructField("newest", LongType()),  # the greatest time of those before it, of that task
    StructField("keys", ArrayType(LongType())),
    StructField("asks", ArrayType(LongType())),
]


@dataclass(frozen=True)
class Landed:
    name: str
    columns: tuple[str, ...]  # the names of c0, c1, ...
    keys: tuple[str, ...]  # the attributes whose keys are stored
    firsts: tuple[int, ...]  # number of the first document of each task
    newest: tuple[int | None, ...]  # the greatest time before each task


@dataclass(frozen=True)
class Record:
    """A batch: its own events, and all parts before it. end: the number after its last document; latest: the greatest
    time of all, its own included."""

    before: tuple[Landed, ...]
    own: Landed
    start: int
    started: int | None  # the greatest time before its first event
    end: int
    latest: int | None
    unreadable: int  # of its events


class Log:
    def __init__(self, state: Path) -> None:
        self.folder = state / HISTORY
        (self.folder / BATCHES).mkdir(parents=True, exist_ok=True)

    def part_path(self, name: str) -> str:
        return str(self.folder / PARTS / name)

    def _path(self, batch: int) -> Path:
        return self.folder / BATCHES / f"{batch:012d}.json"

    def read(self, batch: int, query: str) -> Record | None:
        """None: the batch is new to this query."""
        path = self._path(batch)
        try:
            content = json.loads(path.read_bytes())
            if content["format"] != FORMAT:
                raise ValueError(f"it has the format {content['format']}")
            return _record(content["record"]) if content["query"] == query else None
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise DamagedError(path, f"it cannot be read ({error}); without it the history is lost") from None

    def read_before(self, batch: int, query: str) -> Record | None:
        """The batch before this one; None: the history begins here."""
        found = self.read(batch - 1, query)
        if found is None:
            earlier = [number for number in self._batches() if number < batch and self.read(number, query) is not None]
            if earlier:
                raise DibsError(
                    f"the history of this stream ends with batch {earlier[-1]}, and this is batch {batch}: those "
                    f"between ran without history=. Remove {self.folder} to begin again without documents"
                )
        return found

    def write(self, batch: int, record: Record, query: str) -> None:
        content = {"format": FORMAT, "query": query, "batch": batch, "record": asdict(record)}
        replace_bytes(self._path(batch), json.dumps(content, indent=1).encode())

    def tidy(self, batch: int, query: str) -> None:
        """Removes what neither this batch nor the one before names."""
        kept: set[str] = set()
        for number in self._batches():
            record = self.read(number, query) if number in (batch - 1, batch) else None
            if record is None:
                self._path(number).unlink(missing_ok=True)
            else:
                kept.update(part.name for part in (*record.before, record.own))
        for folder in (self.folder / PARTS).glob("*"):
            if folder.name not in kept:
                shutil.rmtree(folder, ignore_errors=True)

    def _batches(self) -> list[int]:
        return sorted(int(path.stem) for path in (self.folder / BATCHES).glob("*.json"))


def _record(content: dict[str, Any]) -> Record:
    return Record(**{**content, "before": tuple(map(_part, content["before"])), "own": _part(content["own"])})


def _part(content: dict[str, Any]) -> Landed:
    lists = ("columns", "keys", "firsts", "newest")
    return Landed(content["name"], *(tuple(content[name]) for name in lists))


def number_tasks(
    counted: Iterable[tuple[int, int, int | None]], start: int, newest: int | None
) -> tuple[tuple[int, ...], tuple[int | None, ...], int, int | None]:
    """From (task, documents, greatest time) of each task: the number of the first document and the greatest time before
    it, for each; and both after them all."""
    rows = {task: (documents, time) for task, documents, time in counted}
    firsts: list[int] = []
    times: list[int | None] = []
    for task in range(max(rows, default=-1) + 1):
        firsts.append(start)
        times.append(newest)
        documents, time = rows.get(task, (0, None))
        start += documents
        newest = time if newest is None else newest if time is None else max(newest, time)
    return tuple(firsts), tuple(times), start, newest
