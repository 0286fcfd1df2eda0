"""The PB+tree on disk, with ten times less memory than it has bytes: is it exact, how many pages does an event touch as
subscriptions grow, and what do structures in memory take for the same events?

For 1/100, 1/10 and half of the subscriptions, on dense and on sparse data. The index is built once to learn its size
and again with a tenth of that as its budget (1 MB is the least it takes). Its matches are those of `auto`, pair by
pair. What it keeps of its pages is what it says itself (tests/index/test_pbtree_disk.py looks from outside). The file
is in the file cache when rivals take turns; with the file cache cold it is timed apart: then what does not fit the
budget is read from the disk once, and from the file cache again.

The bound: each event must touch at most so many pages, or the section fails. Nothing in it is fitted to what is
measured: keys and what an event meets are counted in the entries that the clauses make, by binary search; capacities
follow from the sizes of pages, items and rows.

    sum over the trees that hold lists of the event's values:   levels(keys) + 1
  + sum over the runs that it reads of their lists:             2 + what the run fills / what a page is filled to

levels(n): of a tree of n keys whose pages are filled to seven eighths, as they are when it is built; one more page for
the item before, which may be in the leaf before. A run begins and ends within a page, or it is entered a page before
it begins, or left a page after it ends: two more pages than it fills. An item of a list fills three int32, each of its
rows one; a page is filled to seven eighths less an item that did not fit and the key of a SidSet that goes on from the
page before. An event has at most ten runs for each of its attributes, whatever n is: so this is O(log n + output).
"""

from __future__ import annotations

import gc
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dibs.coding.batch import CodedEvents
from dibs.index import create
from dibs.matcher import Matcher
from dibs.papers.structures.pbtree.layout import (
    CELLS,
    EQUAL,
    GREATER,
    HEAD,
    INNER,
    ITEM,
    LEAF,
    LESS,
    LISTS,
    UNEQUAL,
    capacity,
)
from dibs.papers.structures.pbtree.pages import PREFIX
from dibs.papers.structures.pbtree.pbtree import LEAST_MEMORY, PBTree
from dibs.papers.workloads import boolean
from dibs.segments.segment import Segment
from measure import (
    Keys,
    Say,
    Size,
    coded_events,
    events_from,
    interleaved,
    per_event,
    settle,
    timed,
)
from sections.durable import forget_file, read_bytes

SHAPES = ("dense", "sparse")
PARTS = (100, 10, 2)  # of the subscriptions, one in so many
DISK, RIVALS = "pbtree", ("pbtree-memory", "counting", "auto")
TIMES_SMALLER = 10  # the budget, than the index
SECONDS_A_CALL = 0.3  # of the slowest rival; decides how many events are timed


class TooManyPages(AssertionError):
    """An event touched more pages than it may."""


def run(size: Size, say: Say) -> dict[str, Any]:
    say("compiling the kernels, or loading them from the cache")
    _warm_up()
    workloads = {}
    for shape in SHAPES:
        points = []
        for part in PARTS:
            n = max(size.subscriptions // part, 10)
            points.append(_point(shape, n, size, lambda text, n=n, shape=shape: say(f"{shape}, {n:,}: {text}")))
        workloads[shape] = {"points": points}
    return {"subscriptions": size.subscriptions, "workloads": workloads}


def _warm_up() -> None:
    workload = boolean.make_named("dense", 2_000, events=300)
    segment, coded = _coded(workload)
    for name in (DISK, *RIVALS, "scan"):
        create(name, segment.clauses).match(coded, 1)


def _coded(workload: boolean.Workload) -> tuple[Segment, Any]:
    matcher = Matcher(threads=1)
    matcher.add_table(workload.subscription_table())
    segment = matcher.snapshot().layers[0].segment
    return segment, coded_events(workload.event_batch(), segment, "attributes")


def _point(shape: str, n: int, size: Size, say: Say) -> dict[str, Any]:
    say("generating")
    workload = boolean.make_named(shape, n, events=size.events)
    segment, coded = _coded(workload)
    settle(segment, coded)
    expected = segment.index.match(coded, 1)
    keys = Keys(expected.event, expected.row)
    few = min(size.few_events, len(coded))
    sample = create("scan", segment.clauses).match(events_from(coded, 0, few), 1)
    keys.check("scan", sample.event, sample.row, few)
    result: dict[str, Any] = {"subscriptions": n, "matches per event": len(keys) / len(coded)}
    result |= _measured(segment, coded, keys, few, size, say)
    gc.collect()
    return result | {"whole": _whole(workload, keys, result["budget"], say), "agreed": keys.agreed}


def _measured(segment: Segment, coded: Any, keys: Keys, few: int, size: Size, say: Say) -> dict[str, Any]:
    """The figures of the index on disk and of its rivals."""
    say("building")
    n = len(segment)
    gc.collect()
    seconds: dict[str, float] = {}
    seconds[f"{DISK}, 64 MB"], roomy = timed(lambda: create(DISK, segment.clauses))
    on_disk = roomy.plan()["bytes on disk"]
    del roomy
    budget = max(on_disk // TIMES_SMALLER, LEAST_MEMORY)
    seconds[DISK], index = timed(lambda: create(DISK, segment.clauses, memory=budget))
    indexes: dict[str, Any] = {DISK: index}
    for name in RIVALS:
        seconds[name], indexes[name] = timed(lambda name=name: create(name, segment.clauses))
    indexes["auto"] = segment.index  # which has seen the events

    say("matching")
    found = index.match(coded, 1)
    keys.check(DISK, found.event, found.row)
    for name in RIVALS:
        other = indexes[name].match(coded, 1)
        keys.check(name, other.event, other.row)
    trial = max(timed(lambda i=i: i.match(events_from(coded, 0, few), 1))[0] for i in indexes.values())
    some = int(np.clip(SECONDS_A_CALL / trial * few, few, len(coded)))
    timed_events = events_from(coded, 0, some)
    calls = {name: lambda i=i: i.match(timed_events, 1) for name, i in indexes.items()}
    times = per_event(interleaved(calls, min(size.repeats, 7)), some)

    bound, visited = _bound(index._structure, coded), _visited(index, coded)
    _check(bound, visited)

    say("with the file cache cold")
    for path in _open_files(PREFIX):
        forget_file(path)
    before = read_bytes()
    cold, again = timed(lambda: index.match(timed_events, 1))
    read = read_bytes() - before
    keys.check("pbtree, cold", again.event, again.row, some)
    plan = index.plan()
    return {
        "predicates": len(segment.clauses.attribute),
        "entries": plan["entries"],
        "height": plan["height"],
        "pages": plan["pages"],
        "bytes on disk": plan["bytes on disk"],
        "budget": budget,
        "index / budget": plan["bytes on disk"] / budget,
        "resident at most": plan["resident at most"],
        "memory not bounded": plan["memory not bounded"],
        "pages per event": found.nodes / len(coded),
        "pages per event at most": float(bound.mean()),
        "pages / bound of the worst event": float((visited[bound > 0] / bound[bound > 0]).max(initial=0)),
        "entries met per event": found.predicates / len(coded),
        "build seconds": seconds,
        "microseconds per event": {name: t["best"] for name, t in times.items()},
        "microseconds per event, file cache cold": cold / some * 1e6 if read else None,
        "bytes read an event when cold": read / some,
        "bytes per subscription": {name: i.nbytes / n for name, i in indexes.items()},
        "events timed": some,
    }


def _whole(workload: boolean.Workload, keys: Keys, budget: int, say: Say) -> dict[str, Any]:
    """As users have it: Matcher(index="pbtree", memory=...)."""
    say("Matcher(index='pbtree', memory=...)")
    batch = workload.event_batch()
    with Matcher(index=DISK, threads=1, memory=budget) as matcher:
        add, _ = timed(lambda: matcher.add_table(workload.subscription_table()))
        taken, pairs = timed(lambda: matcher.match_batch(batch, attributes="attributes").pairs())
        keys.check("Matcher", pairs["event"].to_numpy(), pairs["subscription"].to_numpy())  # ids are rows
        plans = matcher.stats()["plans"]
    return {
        "add_table seconds": add,
        "microseconds per event of match_batch": taken / len(batch) * 1e6,
        "resident at most": max(p["resident at most"] for p in plans),
        "pages visited": sum(p["pages visited"] for p in plans),
    }


def _visited(index: Any, coded: CodedEvents) -> NDArray[np.int64]:
    """The pages that each event touches."""
    return np.array([index.match(events_from(coded, e, e + 1), 1).nodes for e in range(len(coded))])


def _check(bound: NDArray[np.float64], visited: NDArray[np.int64]) -> None:
    over = np.flatnonzero(visited > bound)
    if len(over):
        e = over[np.argmax(visited[over] / bound[over])]
        raise TooManyPages(
            f"{len(over):,} of {len(bound):,} events touch more pages than log n and their output account for; "
            f"event {e} touches {visited[e]:,}, where {bound[e]:,.1f} are the most"
        )


def _bound(tree: PBTree, coded: CodedEvents) -> NDArray[np.float64]:
    """The pages that each event may touch: see above."""
    entries = tree._entries_of(tree._growing.clauses, np.arange(tree._rows))
    owner = (entries.key >> 32) * LISTS + entries.operator
    items, rows = np.unique(owner << 32 | entries.key & CELLS, return_counts=True)
    filled = ITEM * np.arange(len(items) + 1) + np.concatenate([[0], np.cumsum(rows)])  # by all items before

    # The lists that each value asks. Outside the limits of an attribute it asks no list of those within them, but that
    # of =.
    attribute, cell = coded.attribute.astype(np.int64), coded.lo.astype(np.int64)
    lists = 2 * LISTS * attribute[:, None] + np.arange(2 * LISTS)
    inside = (tree._floor[attribute] <= cell) & (cell <= tree._ceiling[attribute])
    always = (np.arange(2 * LISTS) == EQUAL) | (np.arange(2 * LISTS) >= LISTS)
    asked = (tree._filed.reshape(-1)[lists] > 0) & (inside[:, None] | always)
    searched = asked.reshape(-1, 2, LISTS).any(axis=2).sum(axis=1)
    event = np.repeat(np.arange(len(coded)), np.diff(coded.offsets))

    value = np.nonzero(asked)[0]
    own, cells, op = lists[asked], cell[value], lists[asked] % LISTS
    first, last = (filled[np.searchsorted(items, own + more << 32)] for more in (0, 1))
    below, up_to = (filled[np.searchsorted(items, own << 32 | cells, side)] for side in ("left", "right"))
    kinds = [op == EQUAL, op == GREATER, op == LESS, op == UNEQUAL]
    met = np.select(kinds, [up_to - below, up_to - first, last - below, last - first - (up_to - below)])
    room = tree._pages.size - HEAD
    runs = (1 + (op == UNEQUAL)) * 2 + met / (room - room // 8 - 2 * ITEM)
    levels = _levels(len(np.unique(entries.key)) + 1, tree._pages.size)
    return np.bincount(event, searched * (levels + 1), len(coded)) + np.bincount(event[value], runs, len(coded))


def _levels(keys: int, size: int) -> int:
    """Of a tree of so many keys that was built in pages of this size."""
    leaf, inner = (most - most // 8 for most in (capacity(size, LEAF), capacity(size, INNER)))
    levels, pages = 1, -(-keys // leaf)
    while pages > 1:
        levels, pages = levels + 1, -(-pages // inner)
    return levels


def _open_files(name: str) -> list[Path]:
    """Files of this process whose path has this in it, where the system says."""
    found = set()
    for link in Path("/proc/self/fd").glob("*"):
        with suppress(OSError):
            path = link.readlink()
            if name in str(path) and path.is_file():
                found.add(path)
    return sorted(found)
