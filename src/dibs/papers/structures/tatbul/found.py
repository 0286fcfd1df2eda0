"""What the trees of all attributes find for some events: the hand-over from trees to combination."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.jit.kernel import phase

NONE = -1  # instead of a slot: nothing was found; NONE - n: n runs were


class FoundIntervals(NamedTuple):
    """What the trees found for some events. Entry i of the events (from the first event's first on) has slot[i] of its
    attribute's bit vectors, or NONE, or NONE - n if it has n runs. Event e (counted from the first) has the runs
    start[e]:start[e + 1], those of its entries in order, each of length[r] places from entries[first[r]] on; a negative
    length takes places away."""

    first_event: int
    slot: NDArray[np.int32]
    start: NDArray[np.int64]  # events + 1
    first: NDArray[np.int64]
    length: NDArray[np.int32]
    evaluations: NDArray[np.int64]  # by event
    nodes: NDArray[np.int64]  # by event


def room_for(first_event: int, events: int, entries: int, runs: int) -> tuple[Any, ...]:
    """A FoundIntervals, as kernels take it: nothing so far; `runs` is how many there are at most."""
    return tuple(
        FoundIntervals(
            first_event,
            np.full(entries, NONE, np.int32),
            np.zeros(events + 1, np.int64),
            np.empty(runs, np.int64),
            np.empty(runs, np.int32),
            np.zeros(events, np.int64),
            np.zeros(events, np.int64),
        )
    )


@phase
def collect_runs(tree, events, found, collect):
    """For trees that end in runs: asks collect(tree, attribute, value, found, n) for every value of the events. It
    writes runs from found[n] on, and returns how many, comparisons, and nodes."""
    n, entry = np.int64(0), events.offsets[found.first_event]
    for k in range(len(found.evaluations)):
        e = found.first_event + k
        compared, seen = np.int64(0), np.int64(0)
        for i in range(events.offsets[e], events.offsets[e + 1]):
            runs, steps, nodes = collect(tree, events.attribute[i], events.lo[i], found, n)
            found.slot[i - entry] -= runs
            n += runs
            compared += steps
            seen += nodes
        found.start[k + 1] = n
        found.evaluations[k], found.nodes[k] = compared, seen
