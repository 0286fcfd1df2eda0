"""The log of a history that grows: which documents a micro-batch begins with, and its own.

    history/batches/000000000012.json   written, and safe on the disk, before batch 12 is matched: the parts before it,
                                        and its own part
    history/parts/NAME/                 files that never change (growing_parts.py): the events of one batch, or those of
                                        several, merged

So a batch that is run again after a crash sees the same events in the same order, with the same documents before them.
Spark begins a batch only when the one before is committed: parts that only earlier batches name are removed then.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dibs.errors import DamagedError, DibsError
from dibs.spark.joins.growing_parts import StoredPart
from dibs.storage.files import replace_bytes

HISTORY, BATCHES, PARTS = "history", "batches", "parts"
FORMAT = 2


@dataclass(frozen=True)
class Record:
    """A batch: its own events, and all parts before it. Numbers of documents go on from batch to batch without a gap.
    end: the number after its last document; latest: the greatest time of all, its own included."""

    before: tuple[StoredPart, ...]
    own: StoredPart
    start: int
    started: int | None  # the greatest time before its first event
    end: int
    latest: int | None
    unreadable: int  # events that are no documents, and match nothing

    @property
    def parts(self) -> tuple[StoredPart, ...]:
        return (*self.before, self.own)


class Log:
    def __init__(self, state: Path) -> None:
        self.folder = state / HISTORY
        self.parts = self.folder / PARTS
        (self.folder / BATCHES).mkdir(parents=True, exist_ok=True)
        self.parts.mkdir(exist_ok=True)

    def _path(self, batch: int) -> Path:
        return self.folder / BATCHES / f"{batch:012d}.json"

    def read(self, batch: int, query: str) -> Record | None:
        """None: the batch is new to this query."""
        path = self._path(batch)
        try:
            content = json.loads(path.read_bytes())
            if content["query"] != query:
                return None
            if content["format"] == 1:
                raise DibsError(
                    f"the history in {self.folder} was written by an earlier version of Dibs, in files that this one "
                    "does not read: let that version end the stream, or remove the folder to begin again without "
                    "documents (History(documents) may bring them back)"
                )
            if content["format"] != FORMAT:
                raise ValueError(f"it has the format {content['format']}")
            return _record(content["record"])
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

    def read_last(self, queries: Collection[str | None]) -> Record | None:
        """The latest batch of a query that is one of these."""
        for batch in reversed(self._batches()):
            for query in queries:
                found = None if query is None else self.read(batch, query)
                if found is not None:
                    return found
        return None

    def write(self, batch: int, record: Record, query: str) -> None:
        content = {"format": FORMAT, "query": query, "batch": batch, "record": asdict(record)}
        replace_bytes(self._path(batch), json.dumps(content, indent=1).encode())

    def tidy(self, batch: int, query: str, more: Collection[str] = ()) -> None:
        """Removes what neither this batch nor the one before names. more: the names of parts that stay, too."""
        kept = set(more)
        for number in self._batches():
            record = self.read(number, query) if number in (batch - 1, batch) else None
            if record is None:
                self._path(number).unlink(missing_ok=True)
            else:
                kept.update(part.name for part in record.parts)
        for folder in self.parts.glob("*"):
            if folder.name not in kept:
                shutil.rmtree(folder, ignore_errors=True)

    def _batches(self) -> list[int]:
        return sorted(int(path.stem) for path in (self.folder / BATCHES).glob("*.json"))


def _record(content: dict[str, Any]) -> Record:
    return Record(**{**content, "before": tuple(map(_part, content["before"])), "own": _part(content["own"])})


def _part(content: dict[str, Any]) -> StoredPart:
    lists = ("files", "columns", "types", "keys")
    return StoredPart(**{**content, **{name: tuple(content[name]) for name in lists}})
