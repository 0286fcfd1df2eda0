"""The PB+tree in LMDB's pages on disk, with ten times less memory than it has bytes: is it exact, how many pages does
an event touch as subscriptions grow, and what do structures in memory take for the same events?

For 1/100, 1/10 and all of the subscriptions, on dense and on sparse data. The index is built once to learn its size and
again with a tenth of that as its budget (1 MB is the least it takes). Its matches are those of `auto`, pair by pair.
What it keeps of its pages is what it says itself (tests/test_pbtree.py looks from outside). The file is in the file
cache when rivals take turns; with the file cache cold it is timed apart: then what does not fit the budget is read from
the disk once, and from the file cache again.

The bound: each event must touch at most so many pages, or the section fails. Nothing in it is fitted to what is
measured: list sizes and what an event meets are counted in the entries that the clauses make, by binary search;
capacities follow from the sizes of pages, entries and nodes. Only which keys lie in one page is read from the file, and
that these pages are not more than the keys need is checked too.

    sum over the pages of keys that hold lists of the event:   levels(pages of all keys)
  + sum over the runs that it reads of lists of their own:     2 * levels(pages of the list) - 1
  + entries that it meets in these / 510                       (and the pages above them: 1 in 112 more)

levels(p) = 1 + log(p), rounded up, to the base of the children that a half full branch page has. 510 entries fill a
leaf page, and lists are written so. A run begins and ends within a page, so on each level but the root's it may
touch one page more than its entries fill. An event has at most eight lists for each of its attributes, whatever n is:
so this is O(log n + output).
"""

from __future__ import annotations

import gc
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dibs.coding.batch import CodedEvents
from dibs.index import create
from dibs.index.papers.pbtree.environment import PREFIX
from dibs.index.papers.pbtree.filing import CELLS, EQUAL, GREATER, LESS, LISTS, UNEQUAL
from dibs.index.papers.pbtree.kernels import ENTRY, KEY
from dibs.index.papers.pbtree.lmdb_pages import HEAD, NODE
from dibs.index.papers.pbtree.pbtree import LEAST_MEMORY, PBTree
from dibs.matcher import Matcher
from dibs.segments.segment import Segment
from dibs.workloads import boolean
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
PARTS = (100, 10, 1)  # of the subscriptions, one in so many
DISK, RIVALS = "pbtree", ("pbtree-memory", "counting", "auto")
TIMES_SMALLER = 10  # the budget, than the index
SECONDS_A_CALL = 0.3  # of the slowest rival; decides how many events are timed

# What LMDB's pages hold. A node takes 2 bytes for its place besides, and is never larger than half a page.
ROOM = 4096 - HEAD
ENTRIES_A_PAGE = ROOM // ENTRY
LEAST_LISTS, LEAST_ENTRIES = (ROOM // (2 + NODE + size) // 2 for size in (KEY, ENTRY))  # children of a half full page
IN_A_NODE = (ROOM // 2 - 2 - NODE - KEY - HEAD) // ENTRY // 4 * 4  # a list of more entries is a tree of its own


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
    workload = boolean.named("dense", 2_000, events=300)
    segment, coded = _coded(workload)
    for name in (DISK, *RIVALS, "scan"):
        create(name, segment.clauses).match(coded, 1)


def _coded(workload: boolean.Workload) -> tuple[Segment, Any]:
    matcher = Matcher(threads=1)
    matcher.add_table(workload.subscription_table())
    segment = matcher._snapshot().layers[0].segment
    return segment, coded_events(workload.event_batch(), segment, "attributes")


def _point(shape: str, n: int, size: Size, say: Say) -> dict[str, Any]:
    say("generating")
    workload = boolean.named(shape, n, events=size.events)
    segment, coded = _coded(workload)
    settle(segment, coded)
    expected = segment.index.match(coded, 1)
    keys = Keys(expected.event, expected.row)
    few = min(size.few_events, len(coded))
    sample = create("scan", segment.clauses).match(events_from(coded, 0, few), 1)
    keys.check("scan", sample.event, sample.row, few)
    result: dict[str, Any] = {"subscriptions": n, "matches an event": len(keys) / len(coded)}
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
        "pages an event": found.nodes / len(coded),
        "pages an event at most": float(bound.mean()),
        "pages / bound of the worst event": float((visited[bound > 0] / bound[bound > 0]).max(initial=0)),
        "entries met an event": found.predicates / len(coded),
        "build seconds": seconds,
        "microseconds an event": {name: t["best"] for name, t in times.items()},
        "microseconds an event, file cache cold": cold / some * 1e6 if read else None,
        "bytes read an event when cold": read / some,
        "bytes a subscription": {name: i.nbytes / n for name, i in indexes.items()},
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
        "microseconds an event of match_batch": taken / len(batch) * 1e6,
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
    operator, key, *_ = tree._entries_of(tree._growing.clauses, np.arange(tree._rows))
    owner = (key >> 32) * LISTS + operator
    entries = np.sort(owner << 32 | key & CELLS)
    size = np.bincount(owner, minlength=tree._filed.size)
    start = np.cumsum(size) - size

    # The lists that each value asks, in order. Outside the limits of an attribute it asks no list of those within
    # them, but that of =.
    attribute, cell = coded.attribute.astype(np.int64), coded.lo.astype(np.int64)
    lists = 2 * LISTS * attribute[:, None] + np.arange(2 * LISTS)
    inside = (tree._floor[attribute] <= cell) & (cell <= tree._ceiling[attribute])
    always = (np.arange(2 * LISTS) == EQUAL) | (np.arange(2 * LISTS) >= LISTS)
    asked = (size[lists] > 0) & (inside[:, None] | always)
    lists, value = lists[asked], np.nonzero(asked)[0]
    event = np.repeat(np.arange(len(coded)), np.diff(coded.offsets))[value]

    own = size[lists]
    below = np.searchsorted(entries, lists << 32 | cell[value]) - start[lists]
    up_to = np.searchsorted(entries, lists << 32 | cell[value], "right") - start[lists]
    equal, op = up_to - below, lists % LISTS
    kinds = [op == EQUAL, op == GREATER, op == LESS, op == UNEQUAL]
    met = np.select(kinds, [equal, up_to, own - below, own - equal])

    keys = _least_keys(tree)
    if len(keys) > _pages_of_keys(size):
        raise TooManyPages(f"the keys take {len(keys):,} pages, where {_pages_of_keys(size):,} are the most")
    page = np.searchsorted(keys, lists, "right")
    another = np.ones(len(lists), np.bool_)
    another[1:] = (page[1:] != page[:-1]) | (event[1:] != event[:-1])
    levels = _levels(np.ceil(own / ENTRIES_A_PAGE), LEAST_ENTRIES)
    of_run = 2 * levels - 1
    reading = (1 + (op == UNEQUAL)) * of_run + met / ENTRIES_A_PAGE * LEAST_ENTRIES / (LEAST_ENTRIES - 1)
    pages = another * _levels(len(keys), LEAST_LISTS) + np.where(own > IN_A_NODE, reading, 0)
    return np.bincount(event, pages, len(coded))


def _levels(leaves: Any, least: int) -> Any:
    """Of a tree of so many leaf pages, at most, where branch pages have at least so many children."""
    return 1 + np.ceil(np.log(leaves) / np.log(least))


def _pages_of_keys(size: NDArray[np.int64]) -> int:
    """The leaf pages that the keys of lists of these sizes take, at most: a page is left when the next list does not
    fit, so two that are neighbours hold more than one has room for. (A list that became a tree has left its page when
    it was as large as a node may be.)"""
    size = np.minimum(size[size > 0], IN_A_NODE)
    content = np.where(size > 1, HEAD + ENTRY * (-(-size // 4) * 4), ENTRY)
    return int((2 + NODE + KEY + content).sum() / (ROOM / 2)) + 1


def _least_keys(tree: PBTree) -> NDArray[np.int64]:
    """The least key that each leaf page of keys may hold, as the branch pages in the file say."""
    above, pages = [(0, tree._pages.tree.root)], tree._pages
    with tree._environment.path.open("rb") as file:
        for _ in range(pages.tree.depth - 1):
            below = []
            for least, number in above:
                file.seek(number * pages.page_size)
                page = file.read(pages.page_size)
                (lower,) = struct.unpack_from("<H", page, 12)
                for at in struct.unpack_from(f"<{(lower - HEAD) // 2}H", page, HEAD):
                    low, high, more, length = struct.unpack_from("<4H", page, at)
                    own = struct.unpack_from("<I", page, at + NODE)[0] if length else least
                    below.append((own, low | high << 16 | more << 32))
            above = below
    return np.array([least for least, _ in above])


def _open_files(name: str) -> list[Path]:
    """Files of this process whose path has this in it, where the system says."""
    found = set()
    for link in Path("/proc/self/fd").glob("*"):
        with suppress(OSError):
            path = link.readlink()
            if name in str(path) and path.is_file():
                found.add(path)
    return sorted(found)
