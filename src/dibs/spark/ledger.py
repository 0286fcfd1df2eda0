"""What each micro-batch of a stream is begun with, on the disk before it is; and the ledger of a stream: which snapshot
of the subscriptions that is.

    batches/000000000012.json    written, and safe, before batch 12 is matched
    stream.lock                  held by the one stream whose state the folder is

So a batch that is run again after a crash is begun with the same, and gives the same. Spark begins a batch only when
the one before is committed: records of earlier ones are removed then, and whatever only they name. A folder may outlive
a checkpoint, whose successor counts its batches from 0 again: what another query wrote does not count.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Generic, TypeVar

from dibs.errors import DamagedError, DibsError, WriterActive
from dibs.spark.snapshots import BASES, STEPS, Snapshot, step_path
from dibs.storage.files import replace_bytes
from dibs.storage.writer_lock import WriterLock, is_here

BATCHES = "batches"
Logged = TypeVar("Logged")


class BatchLog(Generic[Logged]):
    """name: of the record in a file. format: of the files. lost: what cannot be done without one."""

    def __init__(
        self,
        folder: Path,
        name: str,
        format: int,
        lost: str,
        describe: Callable[[Logged], dict[str, Any]],
        make: Callable[[dict[str, Any]], Logged],
    ) -> None:
        self.folder, self._name, self._format, self._lost = folder, name, format, lost
        self._describe, self._make = describe, make
        (folder / BATCHES).mkdir(parents=True, exist_ok=True)

    def _path(self, batch: int) -> Path:
        return self.folder / BATCHES / f"{batch:012d}.json"

    def read(self, batch: int, query: str | None = None) -> Logged | None:
        """None: the batch is new to this query (None: to any)."""
        path = self._path(batch)
        try:
            content = json.loads(path.read_bytes())
            if query is not None and content.get("query", query) != query:  # files did not always say
                return None
            if content["format"] != self._format:
                self.refuse(content["format"])
            return self._make(content[self._name])
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise DamagedError(path, f"it cannot be read ({error}); without it {self._lost}") from None

    def refuse(self, format: Any) -> None:
        raise ValueError(f"it has the format {format}")

    def write(self, batch: int, record: Logged, query: str) -> None:
        content = {"format": self._format, "query": query, "batch": batch, self._name: self._describe(record)}
        replace_bytes(self._path(batch), json.dumps(content, indent=1).encode())

    def list_batches(self) -> list[int]:
        return sorted(int(path.stem) for path in (self.folder / BATCHES).glob("*.json"))

    def keep_two(self, batch: int, query: str) -> list[Logged]:
        """The records of this batch and the one before; all others are removed."""
        kept = []
        for number in self.list_batches():
            record = self.read(number, query) if number in (batch - 1, batch) else None
            if record is None:
                self._path(number).unlink(missing_ok=True)
            else:
                kept.append(record)
        return kept


# ---- which snapshot ----

LOCK = "stream.lock"


class Ledger(BatchLog[Snapshot]):
    def __init__(self, state: Path) -> None:
        """Raises DibsError when another stream has the folder."""
        try:
            self._lock = WriterLock(state, LOCK)
        except WriterActive as error:
            own = "of this process" if is_here(error.holder) else f"of {error.holder}"
            raise DibsError(
                f"{state} is the state of a stream that runs, {own}: stop that one first, or give this one a "
                "checkpoint and a state= of its own"
            ) from None
        super().__init__(state, "snapshot", 1, "the batch cannot be run again", Snapshot.describe, Snapshot.of)
        self.state = state

    def close(self) -> None:
        self._lock.release()

    def last(self) -> Snapshot | None:
        """Of the latest batch."""
        batches = self.list_batches()
        return self.read(batches[-1]) if batches else None

    def tidy(self, batch: int, latest: Snapshot, query: str, *more: Snapshot) -> None:
        """Removes what neither this batch nor the one before names. `latest` and more: are kept, too."""
        kept = [latest, *more, *self.keep_two(batch, query)]
        bases = {snapshot.base for snapshot in kept}
        steps = {step_path(self.state, step.name) for snapshot in kept for step in snapshot.steps}
        for folder in (self.state / BASES).glob("*"):
            if folder.name not in bases:
                shutil.rmtree(folder, ignore_errors=True)
        for path in (self.state / STEPS).glob("*"):
            if path not in steps:
                with suppress(OSError):
                    path.unlink()
