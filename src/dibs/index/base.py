"""What an index is: a set of named arrays built from coded clauses, and a match over coded events.

The arrays can be saved as files and memory-mapped (`arrays`, `restore`): no later match changes what `arrays` gave. The
clauses belong to the segment and are saved once, whatever the index. A match gives pairs (event, row of the clauses)
and counters that say what it cost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from dibs.coding.batch import CodedEvents
from dibs.coding.clauses import Clauses
from dibs.errors import IndexTooLarge
from dibs.jit.threads import share
from dibs.tuning import tuned

FIRST_ROOM = tuned("first_room", 1 << 12, 1, "pairs", "that a kernel gets room for at first")
LARGEST_ROOM = tuned("largest_room", 1 << 22, 64, "pairs", "in one room, unless nothing fits into it")
SINK_ROOM = tuned("sink_room", 1 << 19, 32, "pairs", "in one room with a sink; going on after it costs masks work")

MOST_PLACES = 2**31 - 1  # of an array whose places are numbered by int32
PairChunk = tuple[NDArray[np.int32], NDArray[np.int32]]  # event, row
Sink = Callable[[NDArray[np.int32], NDArray[np.int32]], None]  # takes event and row, which are overwritten afterwards


@dataclass
class Pairs:
    """Matches in chunks of two columns, event and row, as the kernels filled them: in no set order, but the same for
    every number of threads."""

    chunks: list[PairChunk]
    candidates: int  # subscriptions looked at
    predicates: int  # predicates evaluated
    nodes: int = 0  # parts of the structure visited: tree nodes, lists, groups; what counts is said in each file
    count: int = 0  # pairs found, also those that went to a sink

    @property
    def false_candidates(self) -> int:
        """Candidates that were none (0 where one look at a subscription serves many events)."""
        return max(self.candidates - self.count, 0)

    def __len__(self) -> int:
        return sum(len(event) for event, _ in self.chunks)

    @property
    def event(self) -> NDArray[np.int32]:
        return np.concatenate([np.empty(0, np.int32), *(event for event, _ in self.chunks)])

    @property
    def row(self) -> NDArray[np.int32]:
        return np.concatenate([np.empty(0, np.int32), *(row for _, row in self.chunks)])

    def add(self, more: Pairs) -> None:
        self.chunks += more.chunks
        self.candidates += more.candidates
        self.predicates += more.predicates
        self.nodes += more.nodes
        self.count += more.count

    def count_costs(self, counters: dict[str, int]) -> None:
        """Adds what they have cost to a matcher's counters."""
        counters["candidates"] += self.candidates
        counters["predicates"] += self.predicates
        counters["nodes"] += self.nodes
        counters["false candidates"] += self.false_candidates


class Index(Protocol):
    """What matches. `about` says in a line what it is and what it is good for."""

    @property
    def name(self) -> str: ...

    @property
    def about(self) -> str: ...

    def arrays(self) -> dict[str, NDArray[Any]]: ...

    def match(self, events: CodedEvents, threads: int, sink: Sink | None = None) -> Pairs: ...

    def plan(self) -> dict[str, Any]: ...

    @property
    def nbytes(self) -> int: ...


def options_in(index: Index) -> dict[str, Any]:
    """The options that the index was built with and that are not what they are anyway."""
    return getattr(index, "set_options", {})


class Buildable(Index, Protocol):
    """What the registry of dibs.index names: it takes the whole model, or is a Structure."""

    name: ClassVar[str]
    about: ClassVar[str]

    @classmethod
    def build(cls, clauses: Clauses) -> Index: ...

    @classmethod
    def restore(cls, clauses: Clauses, arrays: dict[str, NDArray[Any]]) -> Index: ...


def do_pending(index: Index) -> bool:
    """Does what the index would like to have done so that later matches are faster (`auto` plans again, or files
    clauses for single events): in whatever thread, while others match. Whether there was something to do. What fails
    is forgotten, and asked for again when there is reason to."""
    work = getattr(index, "pending", None)
    if work is None:
        return False
    try:
        work()
    finally:
        index.pending = None  # type: ignore[attr-defined]
    return True


class Takes(NamedTuple):
    """What of the coded model a structure takes itself; index.complete does the rest."""

    several: bool = False  # events with several values, or a range, for one attribute
    programs: bool = False  # some expressions with OR: it has a class method takes_programs(clauses)
    updates: bool = False  # insert and delete


class Structure(Buildable, Protocol):
    """One that takes part of the model: see index.complete for the clauses and events that it gets. It may have
    parameters that users set, `options`, a tuple of index.options.Option: `build` takes them by name, and what is
    needed of them later is in its arrays."""

    takes: ClassVar[Takes]


class DynamicStructure(Structure, Protocol):
    """One whose `takes.updates` holds."""

    def insert(self, clauses: Clauses) -> None:
        """More rows, of the kind that build gets, numbered on from all rows that there ever were. Their cells mean
        the same as those before; `attributes` may have grown."""
        ...

    def delete(self, rows: NDArray[np.int64]) -> None:
        """Rows that are there, each once, will not match any more."""
        ...


def refuse_too_many(name: str, needed: int, unit: str) -> None:
    """IndexTooLarge if so many places cannot be numbered: written by such a number, they would be somewhere else."""
    if needed > MOST_PLACES:
        raise IndexTooLarge(name, needed, MOST_PLACES, unit, "use another index, such as 'auto', or fewer rows in each")


class Rate:
    """How many pairs an event gave lately: how much room to give a kernel."""

    def __init__(self) -> None:
        self.pairs = 0.0

    def room(self, events: int) -> int:
        return max(FIRST_ROOM.value, min(int(1.1 * self.pairs * events) + 1024, LARGEST_ROOM.value))

    def saw(self, pairs: int, events: int) -> None:
        self.pairs = max(0.9 * self.pairs, pairs / max(events, 1))


def in_parts(
    work: Callable[..., None],
    events: int,
    threads: int,
    block: int = 1,
    rate: Rate | None = None,
    sink: Sink | None = None,
) -> Pairs:
    """Splits the events into runs (of whole blocks) and calls `work(last, (out_event, out_row), done)` on each: a
    kernel that releases the GIL. A kernel fills its room and then stops (growing arrays inside a kernel costs more
    than the matching); `done` is where it stopped and what it did: [next event, next row, pairs, candidates,
    predicates, for the index's own use, nodes]. It is called again until done[0] == last. With a sink, each filled
    room goes there (from any thread) and is used again, so nothing grows with the number of pairs."""
    blocks = -(-events // block)
    parts = max(1, min(threads * 4 if threads > 1 else 1, blocks))
    most = SINK_ROOM.value if sink else LARGEST_ROOM.value
    if parts == 1:
        size = _first_room(events, rate, most)
        chunks, count, done = _run(work, 0, events, (np.empty(size, np.int32), np.empty(size, np.int32)), most, sink)
    else:
        # One allocation for the first rooms of all runs: a large one gets large pages, and many small ones would make
        # the threads wait for each other at every page that they touch first.
        bounds = [min(blocks * i // parts * block, events) for i in range(parts + 1)]
        sizes = [_first_room(b - a, rate, most) for a, b in zip(bounds, bounds[1:])]
        ends = list(accumulate(sizes))
        event, row = np.empty(ends[-1], np.int32), np.empty(ends[-1], np.int32)
        rooms = [(event[b - n : b], row[b - n : b]) for n, b in zip(sizes, ends)]
        ran = share(lambda i: _run(work, bounds[i], bounds[i + 1], rooms[i], most, sink), parts, threads)
        chunks, count = [c for r in ran for c in r[0]], sum(r[1] for r in ran)
        done = np.sum([r[2] for r in ran], axis=0).tolist()
    if rate is not None:
        rate.saw(count, events)
    return Pairs(chunks, done[3], done[4], done[6], count)


def _first_room(events: int, rate: Rate | None, most: int) -> int:
    return min(FIRST_ROOM.value if rate is None else rate.room(events), most)


def _run(
    work: Callable[..., None], first: int, last: int, room: PairChunk, most: int, sink: Sink | None
) -> tuple[list[PairChunk], int, list[int]]:
    """The chunks of pairs, how many these are (also those that went to the sink), and the kernel's numbers."""
    progress = np.zeros(7, np.int64)
    progress[0] = first
    chunks: list[PairChunk] = []
    given, size = 0, len(room[0])
    while True:
        work(last, room, progress)
        done = progress.tolist()
        pairs = done[2]
        if pairs:
            given += pairs
            if sink:
                sink(room[0][:pairs], room[1][:pairs])
            else:
                chunks.append((room[0][:pairs], room[1][:pairs]))
        if done[0] >= last:
            return chunks, given, done
        larger = 4 * size if pairs == 0 else min(4 * size, most)  # nothing fitted: as large as it takes
        if not sink or larger > size:
            room = np.empty(larger, np.int32), np.empty(larger, np.int32)
        size = max(size, larger)


def renumber(
    match: Callable[[Sink | None], Pairs],
    events: NDArray[np.int64] | None,
    rows: NDArray[np.int32] | None,
    deleted: NDArray[np.bool_] | None,
    sink: Sink | None,
) -> Pairs:
    """Matches and gives events and rows their own numbers; pairs of deleted rows are dropped."""

    def own(event: NDArray[np.int32], row: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        if rows is not None:
            row = rows[row]
        if events is not None:
            event = events[event].astype(np.int32)
        if deleted is not None:
            kept = ~deleted[row]
            event, row = event[kept], row[kept]
        return event, row

    found = match(None if sink is None else lambda event, row: sink(*own(event, row)))
    found.chunks = [own(*chunk) for chunk in found.chunks]
    return found
