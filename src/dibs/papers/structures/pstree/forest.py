"""A PS-Tree for each attribute: which disjoint predicate spaces its predicates cut its domain into.

The idea (Ji and Jacobsen 2018, section 4): all values that the same predicates cover are one space. A value of an event
is then matched against all predicates of an attribute by finding its space, in as many steps as a value has elements.
The domain is [0, 2**31), an element is 4 bits: each inner node is one cache line of 16 links, one for each value of
the next element, and a leaf is a space.

Arrays, which grow (those of `arrays` are cut to what is used):
    tree    int32   (attributes, 4): root link, levels, first leaf, last leaf. All boundaries are below 16**levels; a
                    value from there on is in the last space
    node    int32   (nodes, 16): links; >= 0 is a leaf, ~n < 0 an inner node. A free node has the next free one first
    inside  int32   nodes: how many boundaries lie inside the node's range, not at its start; at least 2
    leaf    int32   (leaves, 8): start of the space, next leaf, leaf before (-1: none), predicate counter, how many
                    predicates begin at the start or end just before it, and the list of the space: place, size, room
    seen    int64   leaves: event counter
    entry   int32   (entries, 4), free int64: the lists, a pool of .spaces. What an entry is says each structure
    mentions, highest  int64, int32: by attribute, in how many rows it ever was, and its highest cell
    limits  int32   (attributes, 2): floor and ceiling, see index.operators; (0, 2) with access="statistics"
    state   int64   see pstree.spaces

A slot (a value of an element, below a node) with at most one boundary inside its range is linked to the leaf whose
space covers the range's end; a value before that leaf's start is in the leaf before it. So a look-up needs no way back
up the tree, and a run of nodes with one boundary is never made. A boundary is where a predicate begins or has just
ended. The predicate counter alone does not say when two spaces may be merged (neighbours with the same counter may be
covered by different predicates), so the predicates at each boundary are counted: at none, the spaces are merged.

Before events were seen, the predicate of the most selective operator gives access to a row (section 3.3 of the paper),
in the order = IN BETWEEN, inequalities, NOT IN, <>.

Where it differs from the paper: nine elements of a 32-bit integer are eight, as there is no sign; the three leaf links
of an inner node (l, e, g) are the 16 links themselves, which replaces the search for the neighbour of a missing node
(GetRNode, GetLNode); what a merged space's event counter is, the paper does not say.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dibs.coding.batch import CodedEvents
from dibs.coding.clauses import Clauses
from dibs.index.base import Pairs, Rate, Sink, in_parts
from dibs.index.groups import NEXT_EVENT, NODES, OWN, ClauseArrays
from dibs.index.operators import BETWEEN, EQ, GE, IN, LE, NE, Limits, limits, operators
from dibs.index.options import Option
from dibs.index.statistics import ATTRIBUTES_A_PREDICATE, REMEMBERED_EVENTS, highest_cells, probabilities
from dibs.papers.structures.growing import grow_array
from dibs.papers.structures.pstree.kernels import find_spaces, merge_all, partition_all
from dibs.papers.structures.pstree.lists import (
    add_observed,
    attach,
    count_events,
    count_needed,
    cover,
    cover_many,
    detach,
    reserve,
)
from dibs.papers.structures.pstree.rows import Rows
from dibs.papers.structures.pstree.spaces import (
    BEFORE,
    ENTRY,
    EVENTS,
    FANOUT,
    FIRST,
    FREE_LEAF,
    FREE_NODE,
    LAST,
    LEAF,
    LEAVES_MADE,
    LEVELS,
    MOST_LEVELS,
    NEXT,
    NODES_MADE,
    ROOM,
    ROOT,
    SIZE,
    START,
    STATE,
    TREE,
    Boundaries,
    Chunks,
    Links,
    SpaceLists,
    Trees,
    chunk_sizes,
    empty_pool,
    with_more,
    with_room,
)
from dibs.tuning import tuned

PSTREE_WALK = tuned("pstree_walk", 8, 1_000_000, "leaves", "for each row of a batch: of more, no walk along all leaves")
PSTREE_BLOCK = tuned("pstree_block", 1_024, 1, "candidates", "that are collected before they are looked at")

PLACE_OF_OPERATOR = np.empty(6)
PLACE_OF_OPERATOR[[EQ, IN, BETWEEN, LE, GE, NE]] = 0, 1, 2, 3, 3, 5
NOT_IN = 4
ALMOST_ALL = 0.999  # of a domain: what a predicate covers at most, so that operators count before it


def widen_limits(known: NDArray[np.int32], clauses: Clauses, attributes: int) -> NDArray[np.int32]:
    """The floors and ceilings of so many attributes (index.operators), those of new clauses included."""
    new = Limits(*limits(clauses))
    none = np.tile(np.array([2**31 - 1, -1], np.int32), (attributes - len(known), 1))
    floor, ceiling = np.concatenate([known, none]).T.copy()
    np.minimum(floor[: len(new.floor)], new.floor, out=floor[: len(new.floor)])
    np.maximum(ceiling[: len(new.ceiling)], new.ceiling, out=ceiling[: len(new.ceiling)])
    return np.stack([floor, ceiling], axis=1)


def rank_by_operators(clauses: Clauses, known: NDArray[np.int32], highest: NDArray[np.int32]) -> NDArray[np.float64]:
    """Below 1, by operator, then by the share of the domain that a predicate covers."""
    floor, ceiling = known.T.copy()
    operator = operators(clauses, floor, ceiling)
    rank = PLACE_OF_OPERATOR[operator]
    several = np.flatnonzero(operator == IN)
    first, attribute = clauses.lo[several], clauses.attribute[several]
    last = first - clauses.hi[several] - 1
    whole = (clauses.span_lo[first] <= floor[attribute]) & (clauses.span_hi[last] >= ceiling[attribute])
    rank[several[whole]] = NOT_IN
    covered = probabilities(clauses, np.ones(len(known)), highest)
    return (rank + np.minimum(covered, ALMOST_ALL)) / len(PLACE_OF_OPERATOR)


OPERATORS, STATISTICS = "operators", "statistics"
ACCESS = Option(
    "access", "how access predicates are chosen before events were seen", OPERATORS, words=(OPERATORS, STATISTICS)
)
NO_LIMITS = np.zeros((0, 2), np.int32)
# What EventSpaces has: offsets, attribute, value and space of the events of a match.
SpacedEvents = tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]


class Forest:
    """See above."""

    ARRAYS = ("tree", "node", "inside", "leaf", "seen", "entry", "free", "mentions", "highest", "state")

    def __init__(self, arrays: dict[str, NDArray[Any]]):
        self.limits = arrays.get("limits", NO_LIMITS)  # files of earlier versions have none
        self.by_operators = bool(arrays["by_operators"][0]) if "by_operators" in arrays else False
        self.tree, self.node, self.inside, self.leaf, self.seen = (arrays[n] for n in self.ARRAYS[:5])
        self.chunks = Chunks(arrays["entry"], arrays["free"])
        self.mentions, self.highest, self.state = (arrays[n] for n in self.ARRAYS[7:])
        self._lock = Lock()  # of `seen` and `state`, which matches write too

    @classmethod
    def empty(cls, access: str) -> Forest:
        entry, free = empty_pool(ENTRY)
        state = np.zeros(STATE, np.int64)
        state[FREE_NODE] = state[FREE_LEAF] = -1
        return cls(
            {
                "tree": np.zeros((0, TREE), np.int32),
                "node": np.zeros((0, FANOUT), np.int32),
                "inside": np.zeros(0, np.int32),
                "leaf": np.zeros((0, LEAF), np.int32),
                "seen": np.zeros(0, np.int64),
                "entry": entry,
                "free": free,
                "mentions": np.zeros(0, np.int64),
                "highest": np.zeros(0, np.int32),
                "limits": NO_LIMITS,
                "by_operators": np.array([access == OPERATORS]),
                "state": state,
            }
        )

    @property
    def attributes(self) -> int:
        return len(self.tree)

    @property
    def leaves(self) -> int:
        """How many there are, with those that are free."""
        return int(self.state[LEAVES_MADE])

    def arrays(self) -> dict[str, NDArray[Any]]:
        nodes, leaves = int(self.state[NODES_MADE]), self.leaves
        return {
            "tree": self.tree,
            "node": self.node[:nodes],
            "inside": self.inside[:nodes],
            "leaf": self.leaf[:leaves],
            "seen": self.seen[:leaves].copy(),  # matching counts in this one and in the state
            "entry": self.chunks.entry[: self.chunks.used],
            "free": self.chunks.free,
            "mentions": self.mentions,
            "highest": self.highest,
            "limits": self.limits,
            "by_operators": np.array([self.by_operators]),
            "state": self.state.copy(),
        }

    @property
    def nbytes(self) -> int:
        own = (self.tree, self.node, self.inside, self.leaf, self.seen, self.mentions, self.highest, self.state)
        return sum(a.nbytes for a in own) + self.chunks.nbytes

    def links(self) -> Links:
        return Links(self.tree, self.node, self.leaf)

    def trees(self) -> Trees:
        return Trees(self.links(), self.inside, self.seen, self.chunks, self.state)

    def lists(self) -> SpaceLists:
        return SpaceLists(self.leaf, self.chunks)

    def readable(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The lists for a match: what ListArrays has."""
        return self.leaf, self.chunks.entry

    # ---- updates ----

    def widen(self, attributes: int) -> None:
        """New attributes, each with one space that holds every value."""
        old = len(self.tree)
        if attributes <= old:
            return
        first = self.leaves
        new = np.arange(first, first + attributes - old, dtype=np.int32)
        self.leaf, self.seen = grow_array(self.leaf, first + len(new)), grow_array(self.seen, first + len(new))
        self.leaf[new] = 0
        self.leaf[new, NEXT] = self.leaf[new, BEFORE] = -1
        self.seen[new] = 0
        self.state[LEAVES_MADE] += len(new)
        tree = np.zeros((len(new), TREE), np.int32)
        tree[:, ROOT] = tree[:, FIRST] = tree[:, LAST] = new
        self.tree = np.concatenate([self.tree, tree])
        self.mentions = np.append(self.mentions, np.zeros(len(new), np.int64))
        self.highest = np.append(self.highest, np.ones(len(new), np.int32))

    def ranks(self, clauses: Clauses, rows: int) -> NDArray[np.float64]:
        """How likely each predicate of new rows is (section 3.3): the number of events seen that matched it and, where
        that is equal, an estimate below 1. rows: how many there are, with these."""
        c = clauses
        self.widen(c.attributes)
        if len(c.attribute):
            self.mentions += np.bincount(c.attribute, minlength=self.attributes)
            highest = highest_cells(c)
            np.maximum(self.highest[: len(highest)], highest, out=self.highest[: len(highest)])
        if self.by_operators:
            self.limits = widen_limits(self.limits, c, self.attributes)
            rank = rank_by_operators(c, self.limits, self.highest)
        else:
            presence = np.minimum(ATTRIBUTES_A_PREDICATE * self.mentions / max(rows, 1), 1.0)
            rank = probabilities(c, presence, self.highest).astype(np.float64)
        if self.state[EVENTS]:
            add_observed(rank, ClauseArrays.of(c), self.links(), self.seen)
        return rank

    def make_room(self) -> None:
        """For what the kernels found missing."""
        nodes, leaves = int(self.state[NODES_MADE]) + 2 * MOST_LEVELS, self.leaves + 1
        self.node, self.inside = grow_array(self.node, nodes), grow_array(self.inside, nodes)
        self.leaf, self.seen = grow_array(self.leaf, leaves), grow_array(self.seen, leaves)
        self.chunks = with_room(self.chunks)

    def expect(self, boundaries: int) -> None:
        """Room for so many boundaries, so that little is copied on the way."""
        leaves = self.leaves + boundaries
        nodes = int(self.state[NODES_MADE]) + boundaries // (FANOUT // 2) + 2 * MOST_LEVELS
        self.leaf, self.seen = grow_array(self.leaf, leaves), grow_array(self.seen, leaves)
        self.node, self.inside = grow_array(self.node, nodes), grow_array(self.inside, nodes)

    def partition(self, boundaries: Boundaries) -> None:
        """Spaces begin at these boundaries."""
        self.expect(len(boundaries.key))
        at = partition_all(boundaries, 0, self.trees())
        while at < len(boundaries.key):
            self.make_room()
            at = partition_all(boundaries, at, self.trees())

    def merge(self, boundaries: Boundaries) -> None:
        """The opposite."""
        merge_all(boundaries, self.trees())

    def cover(self, rows: Rows, which: NDArray[np.int64], change: int) -> int:
        """Counts these predicates in (or out of) all spaces that they cover; says how many those are."""
        count = cover_many if PSTREE_WALK.value * len(which) >= self.leaves else cover
        return int(count(which, change, rows.group(), self.links()))

    def attach(self, rows: Rows, which: NDArray[np.int64], words: NDArray[np.int32]) -> None:
        """The entry words[i] in the lists of all spaces of predicate which[i]."""
        self.chunks = self.list_rows(rows, which, words, self.lists())

    def list_rows(self, rows: Rows, which: NDArray[np.int64], words: NDArray[np.int32], lists: SpaceLists) -> Chunks:
        """The same for any lists of the spaces; returns their pool, which may have grown."""
        own = rows.group(), self.links()
        place, chunks = lists
        if PSTREE_WALK.value * len(which) >= self.leaves:
            need = count_needed(which, *own)
            size = place[: len(need), SIZE] + need
            moved = size[(need > 0) & (size > place[: len(need), ROOM])]
            chunks = with_more(chunks, int(chunk_sizes(moved).sum()))
            reserve(need, SpaceLists(place, chunks))
        at = attach(which, words, 0, SpaceLists(place, chunks), *own, self.state)
        while at < len(which):
            chunks = with_room(chunks)
            at = attach(which, words, at, SpaceLists(place, chunks), *own, self.state)
        return chunks

    def detach(self, rows: Rows, which: NDArray[np.int64], codes: NDArray[np.int32]) -> None:
        """The opposite, by the codes that the entries begin with."""
        detach(which, codes, self.lists(), rows.group(), self.links())

    # ---- events ----

    def match(
        self,
        search: Callable[..., None],
        rows: Rows,
        own: tuple[Any, ...],
        events: CodedEvents,
        threads: int,
        rate: Rate,
        sink: Sink | None,
    ) -> Pairs:
        """What the kernel of a structure finds by the spaces of the events. own: what it is handed besides lists, rows
        and spaces."""
        spaces, lists, named = self.spaces_of(events), self.readable(), tuple(rows.group())

        def work(last: int, room: tuple[Any, Any], progress: NDArray[np.int64]) -> None:
            self.find(spaces, last, progress)
            sizes = self.attributes, PSTREE_BLOCK.value
            search(*sizes, last, lists, *own, named, spaces, room, progress)

        found = in_parts(work, len(events), threads, rate=rate, sink=sink)
        self.observe(spaces)
        return found

    def spaces_of(self, events: CodedEvents) -> SpacedEvents:
        """The events with room for their spaces, which `find` looks up."""
        return events.offsets, events.attribute, events.lo, np.empty(len(events.attribute), np.int32)

    def find(self, events: SpacedEvents, last: int, progress: NDArray[np.int64]) -> None:
        """The leaf of each entry of the events up to `last`, once; counts inner nodes and leaves as nodes visited."""
        if not progress[OWN]:
            progress[OWN] = 1
            first = int(progress[NEXT_EVENT])
            offsets = events[0]
            entries = int(offsets[first]), int(offsets[last])
            progress[NODES] += find_spaces(*entries, events, tuple(self.links()))

    def observe(self, events: SpacedEvents) -> None:
        """Counts events, by the leaves of all their entries; old ones fade out."""
        offsets, _, _, space = events
        count = len(offsets) - 1
        with self._lock:
            if self.state[EVENTS] + count > REMEMBERED_EVENTS.value:
                self.state[EVENTS] //= 2
                self.seen //= 2
            self.state[EVENTS] += count
            count_events(space, self.seen)

    # ---- what one may want to know ----

    def spaces(self, attribute: int) -> list[dict[str, int]]:
        """The predicate spaces of an attribute, in order."""
        result = []
        at = int(self.tree[attribute, FIRST])
        while at >= 0:
            start, after, _, predicates, edges, place, size, _ = self.leaf[at].tolist()
            result.append(
                {
                    "leaf": at,
                    "start": start,
                    "predicates": predicates,
                    "edges": edges,
                    "events": int(self.seen[at]),
                    "at": place,
                    "size": size,
                }
            )
            at = after
        return result

    def plan(self) -> dict[str, Any]:
        live = self.leaf[: self.leaves]
        live = live[live[:, START] >= 0]
        return {
            "spaces": len(live),
            "inner nodes": int(self.state[NODES_MADE]) - self._free_nodes(),
            "levels": int(self.tree[:, LEVELS].max(initial=0)),
            "entries": int(live[:, SIZE].sum()),
            "longest list": int(live[:, SIZE].max(initial=0)),
            "events seen": int(self.state[EVENTS]),
        }

    def _free_nodes(self) -> int:
        count, at = 0, int(self.state[FREE_NODE])
        while at >= 0:
            count, at = count + 1, int(self.node[at, 0])
        return count
