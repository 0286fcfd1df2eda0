"""What feeds of a stream's subscriptions have in common: the durable folder that they keep as it should be."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow as pa
from pyspark.sql import DataFrame

from dibs.arguments import OnError
from dibs.errors import Rejected
from dibs.language.types import Types
from dibs.matcher import Matcher
from dibs.spark.applying import Change, apply_changes
from dibs.spark.frames import subscription_columns

log = logging.getLogger("dibs.spark")


@dataclass(frozen=True)
class Heard:
    """What a feed has to say before a batch."""

    rejected: int = 0  # changes that were left out since the last time
    notice: str | None = None  # what is wrong with the subscriptions, though the stream goes on


class Feed(Protocol):
    """What keeps a durable folder as it should be."""

    folder: Path

    def start(self, stay: bool) -> None:
        """Applies what there is; stay: and goes on."""

    def check(self) -> Heard:
        """Before each batch. Raises what has gone wrong and ends the stream."""

    def close(self) -> None: ...


class Fed:
    """The folder, and what was left out of it."""

    def __init__(self, folder: Path, on_error: OnError, types: Types | None) -> None:
        self.folder, self._on_error = folder, on_error
        self._matcher = Matcher.open(folder, types=types)
        self._rejected = 0

    def apply(self, changes: Iterable[Change]) -> None:
        self.tell(apply_changes(self._matcher, changes, self._on_error))

    def tell(self, rejected: list[Rejected]) -> None:
        self._rejected += len(rejected)
        for one in rejected[:10]:
            log.warning("subscription %r was left out: %s", one.id, one.error)
        if len(rejected) > 10:
            log.warning("%d subscriptions were left out", len(rejected))

    def _take(self) -> int:
        rejected, self._rejected = self._rejected, 0
        return rejected

    def close(self) -> None:
        self._matcher.close()


def collect_subscriptions(frame: DataFrame) -> pa.Table:
    """The rows (id, expression[, weight]) of a table. Raises DibsError when it is none of subscriptions."""
    table = subscription_columns(frame)
    wanted = table.frame.select("id", "expression", *(["weight"] if table.weighted else []))
    return (wanted.na.fill(1.0, ["weight"]) if table.weighted else wanted).toArrow()
