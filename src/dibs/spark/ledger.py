"""The ledger of a stream: which snapshot of the subscriptions each micro-batch is matched against.

    batches/000000000012.json    written, and safe on the disk, before batch 12 is matched
    stream.lock                  held by the one stream whose state the folder is

So a batch that is run again after a crash is matched against the same snapshot, and gives the same matches. Spark
begins a batch only when the one before is committed: what only earlier batches name is removed then. A state folder
may outlive a checkpoint, whose successor counts its batches from 0 again: what another query wrote does not count.
"""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from pathlib import Path

from dibs.errors import DamagedError, DibsError, WriterActive
from dibs.spark.snapshots import BASES, STEPS, Snapshot, step_path
from dibs.storage.files import replace_bytes
from dibs.storage.writer_lock import WriterLock, is_here

BATCHES = "batches"
LOCK = "stream.lock"
FORMAT = 1


class Ledger:
    def __init__(self, state: Path) -> None:
        """Raises DibsError when another stream has the folder."""
        self.state = state
        try:
            self._lock = WriterLock(state, LOCK)
        except WriterActive as error:
            own = "of this process" if is_here(error.holder) else f"of {error.holder}"
            raise DibsError(
                f"{state} is the state of a stream that runs, {own}: stop that one first, or give this one a "
                "checkpoint and a state= of its own"
            ) from None
        (state / BATCHES).mkdir(parents=True, exist_ok=True)

    def close(self) -> None:
        self._lock.release()

    def _path(self, batch: int) -> Path:
        return self.state / BATCHES / f"{batch:012d}.json"

    def read(self, batch: int, query: str | None = None) -> Snapshot | None:
        """None: the batch is new to this query (None: to any)."""
        path = self._path(batch)
        try:
            content = json.loads(path.read_bytes())
            if content["format"] != FORMAT:
                raise ValueError(f"it has the format {content['format']}")
            if query is not None and content.get("query", query) != query:  # files did not always say
                return None
            return Snapshot.of(content["snapshot"])
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise DamagedError(
                path, f"it cannot be read ({error}); without it batch {batch} cannot be run again"
            ) from None

    def last(self) -> Snapshot | None:
        """Of the latest batch."""
        batches = self._batches()
        return self.read(batches[-1]) if batches else None

    def write(self, batch: int, snapshot: Snapshot, query: str) -> None:
        about = {"format": FORMAT, "query": query, "batch": batch, "version": snapshot.version}
        content = about | {"snapshot": snapshot.describe()}
        replace_bytes(self._path(batch), json.dumps(content, indent=1).encode())

    def _batches(self) -> list[int]:
        return sorted(int(path.stem) for path in (self.state / BATCHES).glob("*.json"))

    def tidy(self, batch: int, latest: Snapshot, query: str, *more: Snapshot) -> None:
        """Removes what neither this batch nor the one before names. `latest` and more: are kept, too."""
        kept = [latest, *more]
        for number in self._batches():
            snapshot = self.read(number, query) if number in (batch - 1, batch) else None
            if snapshot is None:
                self._path(number).unlink(missing_ok=True)
            else:
                kept.append(snapshot)
        bases = {snapshot.base for snapshot in kept}
        steps = {step_path(self.state, step.name) for snapshot in kept for step in snapshot.steps}
        for folder in (self.state / BASES).glob("*"):
            if folder.name not in bases:
                shutil.rmtree(folder, ignore_errors=True)
        for path in (self.state / STEPS).glob("*"):
            if path not in steps:
                with suppress(OSError):
                    path.unlink()
