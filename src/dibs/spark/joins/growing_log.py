"""The log of a history that grows: which documents a micro-batch begins with, and its own.

    history/batches/       the records (ledger.py): the parts before a batch, and its own part
    history/parts/NAME/    files that never change (growing_parts.py): the events of one batch, or those of several,
                           merged

So a batch that is run again after a crash sees the same events in the same order, with the same documents before them.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dibs.errors import DibsError
from dibs.spark.joins.growing_parts import StoredPart
from dibs.spark.ledger import BatchLog

HISTORY, PARTS = "history", "parts"
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


class Log(BatchLog[Record]):
    def __init__(self, state: Path) -> None:
        super().__init__(state / HISTORY, "record", FORMAT, "the history is lost", asdict, _record)
        self.parts = self.folder / PARTS
        self.parts.mkdir(exist_ok=True)

    def refuse(self, format: Any) -> None:
        if format == 1:
            raise DibsError(
                f"the history in {self.folder} was written by an earlier version of Dibs, in files that this one "
                "does not read: let that version end the stream, or remove the folder to begin again without "
                "documents (History(documents) may bring them back)"
            )
        super().refuse(format)

    def read_before(self, batch: int, query: str) -> Record | None:
        """The batch before this one; None: the history begins here."""
        found = self.read(batch - 1, query)
        if found is None:
            earlier = [n for n in self.list_batches() if n < batch and self.read(n, query) is not None]
            if earlier:
                raise DibsError(
                    f"the history of this stream ends with batch {earlier[-1]}, and this is batch {batch}: those "
                    f"between ran without history=. Remove {self.folder} to begin again without documents"
                )
        return found

    def read_last(self, queries: Collection[str | None]) -> Record | None:
        """The latest batch of a query that is one of these."""
        tried = ((batch, query) for batch in reversed(self.list_batches()) for query in queries if query is not None)
        return next((found for each in tried if (found := self.read(*each)) is not None), None)

    def tidy(self, batch: int, query: str, more: Collection[str] = ()) -> None:
        """Removes what neither this batch nor the one before names. more: the names of parts that stay, too."""
        kept = {*more, *(part.name for record in self.keep_two(batch, query) for part in record.parts)}
        for folder in self.parts.glob("*"):
            if folder.name not in kept:
                shutil.rmtree(folder, ignore_errors=True)


def _record(content: dict[str, Any]) -> Record:
    return Record(**{**content, "before": tuple(map(_part, content["before"])), "own": _part(content["own"])})


def _part(content: dict[str, Any]) -> StoredPart:
    lists = ("files", "columns", "types", "keys")
    return StoredPart(**{**content, **{name: tuple(content[name]) for name in lists}})
