"""The ledger of a stream: which snapshot of the subscriptions each micro-batch is matched against.

batches/       the records (batch_log.py)
stream.lock    held by the one stream whose state the folder is
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

from dibs.errors import DibsError, WriterActive
from dibs.spark.batch_log import BatchLog
from dibs.spark.snapshots import BASES, STEPS, Snapshot, step_path
from dibs.storage.writer_lock import WriterLock, is_here

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
