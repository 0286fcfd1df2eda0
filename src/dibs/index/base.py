"""What an index is: a set of named arrays built from coded clauses, and a match over coded events.

The arrays can be saved as files and memory-mapped (`arrays`, `restore`); the clauses belong to the segment and are
saved once, whatever the index. A match gives pairs (event, row of the clauses) and counters that say what it cost.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from dibs.coding.batch import CodedEvents
from dibs.coding.clauses import Clauses

FIRST_ROOM, LARGEST_ROOM = 1 << 14, 1 << 22  # pairs


@dataclass
class Pairs:
    """Matches as two columns; ordered by event within what one thread did, rows in no set order."""

    event: NDArray[np.int32]
    row: NDArray[np.int32]
    candidates: int  # subscriptions looked at
    predicates: int  # predicates evaluated

    def __len__(self) -> int:
        return len(self.event)


class Index(Protocol):
    """One structure. `about` says in a line what it is, what it is good for and what it supports."""

    name: ClassVar[str]
    about: ClassVar[str]

    @classmethod
    def build(cls, clauses: Clauses) -> Index: ...

    @classmethod
    def restore(cls, clauses: Clauses, arrays: dict[str, NDArray[Any]]) -> Index: ...

    def arrays(self) -> dict[str, NDArray[Any]]: ...

    def match(self, events: CodedEvents, threads: int) -> Pairs: ...

    @property
    def nbytes(self) -> int: ...


@lru_cache(maxsize=1)
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="dibs")


if hasattr(os, "register_at_fork"):  # a forked child has the object but not its threads
    os.register_at_fork(after_in_child=_pool.cache_clear)


def in_parts(work: Callable[..., None], events: int, threads: int, block: int = 1) -> Pairs:
    """Splits the events into runs (of whole blocks) and calls `work(last, (out_event, out_row), done)` on each: a
    kernel that releases the GIL. A kernel fills its room and then stops (growing arrays inside a kernel costs more
    than the matching); `done` is where it stopped and what it did: [next event, next row, pairs, candidates,
    predicates]. It is called again until done[0] == last. Runs are joined in order, so the result does not depend on
    the number of threads."""
    blocks = -(-events // block)
    parts = max(1, min(threads * 4 if threads > 1 else 1, blocks))
    bounds = np.minimum(np.linspace(0, blocks, parts + 1).astype(int) * block, events).tolist()

    def run(first: int, last: int) -> tuple[NDArray[Any], NDArray[Any], int, int]:
        done = np.array([first, 0, 0, 0, 0], np.int64)
        found: list[tuple[NDArray[Any], NDArray[Any]]] = []
        size = FIRST_ROOM
        while True:
            room = np.empty(size, np.int32), np.empty(size, np.int32)
            work(last, room, done)
            found.append((room[0][: done[2]], room[1][: done[2]]))
            if done[0] >= last:
                return *_joined(found), int(done[3]), int(done[4])
            size = size * 4 if done[2] == 0 else min(4 * size, LARGEST_ROOM)  # nothing fitted: any size

    if threads <= 1 or parts == 1:
        done = [run(a, b) for a, b in zip(bounds, bounds[1:])]
    else:
        done = list(_pool().map(run, bounds[:-1], bounds[1:]))
    event, row = _joined([d[:2] for d in done])
    return Pairs(event, row, sum(d[2] for d in done), sum(d[3] for d in done))


def _joined(found: list[tuple[NDArray[Any], NDArray[Any]]]) -> tuple[NDArray[Any], NDArray[Any]]:
    if len(found) == 1:
        return found[0]
    return np.concatenate([f[0] for f in found]), np.concatenate([f[1] for f in found])
