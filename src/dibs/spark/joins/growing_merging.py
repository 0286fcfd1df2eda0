"""Merging the parts of a history that grows, beside the stream: no micro-batch waits for it.

What a thread has merged takes the place of its parts when a batch begins after that. If the process ends before, the
parts are still there, and what was written is named by no batch, so it is removed.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import takewhile
from pathlib import Path

from dibs.spark.joins.growing_parts import Kept, StoredPart, merge_parts
from dibs.spark.merging import count_small
from dibs.tuning import tuned

# a merge in the batch made it wait 12 s at 32 parts
SPARK_HISTORY_PARTS = tuned("spark_history_parts", 32, 1, "micro-batches", "whose documents are not put together yet")

log = logging.getLogger("dibs.spark")


class Merging:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._pool: ThreadPoolExecutor | None = None
        self._under_way: tuple[str, tuple[StoredPart, ...], Future[StoredPart]] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Of parts that no batch names yet."""
        return () if self._under_way is None else (self._under_way[0],)

    def adopt(self, parts: tuple[StoredPart, ...]) -> tuple[StoredPart, ...]:
        """The parts, with what is merged by now in place of what it was merged from."""
        if self._under_way is None or not self._under_way[2].done():
            return parts
        (_, merged, future), self._under_way = self._under_way, None
        own = [place for place, part in enumerate(parts) if part.name in {old.name for old in merged}]
        # Those that retention has dropped since are missing at the front; another index of one means other keys.
        if not own or parts[own[0] : own[-1] + 1] != merged[len(merged) - len(own) :]:
            return parts
        failed = future.exception()
        if failed is not None:
            log.warning("parts of the history cannot be merged, and stay as they are for now: %s", failed)
            return parts
        return (*parts[: own[0]], future.result(), *parts[own[-1] + 1 :])

    def start(self, parts: tuple[StoredPart, ...], columns: Sequence[tuple[str, str]], kept: Kept) -> None:
        """Begins to merge the newest of these, if they are many, and nothing is being merged."""
        chosen = choose(parts)
        if self._under_way is not None or not chosen:
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, "dibs-history")
        name = f"part-{secrets.token_hex(8)}"
        future = self._pool.submit(merge_parts, self._folder, name, chosen, list(columns), kept)
        self._under_way = name, chosen, future

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()


def choose(parts: tuple[StoredPart, ...]) -> tuple[StoredPart, ...]:
    """The newest small parts, if they are more than `spark_history_parts`, of those that have the same keys."""
    alike = list(takewhile(lambda part: part.keys == parts[-1].keys, reversed(parts)))
    small = count_small(part.rows for part in alike)
    return parts[len(parts) - small :] if small > max(1, SPARK_HISTORY_PARTS.value) else ()
