"""gryphon: a tree of tests. Clauses that begin with the same predicates share a path and fail together.

The idea (Aguilera et al. 1999): attributes have a fixed order, and each level of the tree tests one of them. A node's
edges are the results that some clause asks for: equal to a constant, within a range, or "don't care". An event goes
down from the root along every edge that its value satisfies and always along the don't-care edge, and matches the
clauses of every leaf that it reaches. A predicate that a thousand clauses begin with is tested once.

With many attributes nearly every edge is a don't-care one, so chains of them are skipped: here a node is such a chain,
and has edges for all attributes that are tested anywhere along it. The depth is the number of predicates of a clause,
not the number of attributes. A path without branches down to a single clause is not made of nodes either: it is the
list of tests that are left, a tail.

The first attributes are those that have the fewest don't-cares, as in the paper: those that most clauses mention. With
the option order="rare" (ours) they are those that the fewest clauses mention: fewer paths are shared, but few events
enter them: on skewed data a tenth of the nodes are visited, on uniform data about as many.

Arrays (A attributes, numbered by level from here on):
    level  int32  A: the level of each attribute
    tree   int32  (N, 4): nodes and their edges, breadth first. A node is a row (edges, first of its rows, rows, first
                  entry of its directory or -1), followed by its edges (level, lo, hi, target): the value of the level
                  lies within lo and hi. The target is the row of a node, or -1 - the place of a tail. Edges are sorted
                  by level; for each level the equality edges (lo == hi) come first, by constant, then the others by
                  lo. A predicate of several spans is several edges to one target; they are disjoint, so an event
                  follows at most one of them
    reach  int32  N / B: the highest hi of B rows of the tree: runs of ranges that end below the value are skipped
    entry  int32  (D, 3): directories of the root and of nodes with many edges (`GRYPHON_EDGES`): (level,
                  first edge, first edge that is no equality) for each level that the node has, and one more for the
                  end. The first A + 1 are the root's, which has all levels, so they are found without a search; the
                  directory of another node begins with (number of levels, 0, 0)
    tails  int32  row, number of tests, and for each test level, lo, hi (several spans as in coding.clauses); a tail of
                  fewer than two tests is filled up to two with (0, 0, -1), so that two can be read
    rows   int32  the rows of clauses that end at a node
    shape  int64  nodes, tails, depth: how many nodes the longest path has; B

Counters: a node is one of the tree or a tail; a candidate is a clause that ends at a node visited, or the tail's;
predicates are the edges that were compared with the value and the tests of tails.

Useful for: equality predicates; clauses that share their first predicates; many clauses over rare attributes.
Not useful for: ranges on attributes that most events have: an event satisfies many edges of each node.

Differs from the paper: the option `order`; equality edges are found by binary search instead of hashing, and by
looking at all edges where a node has few: that took half the time, as each search costs mispredicted branches. All
chains of don't-care edges are skipped, as above, and not only those without another edge.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dibs.coding.batch import CodedEvents
from dibs.coding.clauses import Clauses, runs
from dibs.index.base import Pairs, Rate, Sink, Takes, in_parts, refuse_too_many
from dibs.index.groups import EventArrays, Room
from dibs.index.options import Option
from dibs.index.predicates import distinct
from dibs.jit.pools import Pool
from dibs.jit.sorting import order_each
from dibs.papers.structures.gryphon_kernels import (
    EDGES,
    FIRST_ROW,
    HEAD,
    HI,
    LEVEL,
    LO,
    ROWS,
    TARGET,
    TEST,
    WIDTH,
    DistinctPredicates,
    MatchingTree,
    SeveralSpans,
    Walk,
    match_events,
    write_directories,
    write_tails,
)
from dibs.tuning import tuned

GRYPHON_EDGES = tuned("gryphon_edges", 256, 0, "edges", "of a node that are compared one by one, without a directory")
GRYPHON_BLOCK = tuned("gryphon_block", 32, 1, "rows", "of the tree that are passed over together")

POPULAR, RARE = "popular", "rare"


class Gryphon:
    name: ClassVar[str] = "gryphon"
    about: ClassVar[str] = (
        "Gryphon (Aguilera et al. 1999): a matching tree with equality, general and don't-care edges; "
        "good for equality predicates that clauses share"
    )
    takes: ClassVar[Takes] = Takes()
    options: ClassVar[tuple[Option, ...]] = (
        Option("order", "the attributes that are tested first", POPULAR, words=(POPULAR, RARE)),
    )

    def __init__(self, clauses: Clauses, tree: MatchingTree):
        self._clauses, self._tree = clauses, tree
        self._spans = SeveralSpans(clauses.span_lo, clauses.span_hi)
        self._rate = Rate()
        self._pool = Pool()

    @classmethod
    def build(cls, clauses: Clauses, order: str = POPULAR) -> Gryphon:
        return cls(clauses, _build(clauses, order))

    @classmethod
    def restore(cls, clauses: Clauses, arrays: dict[str, NDArray[Any]]) -> Gryphon:
        return cls(clauses, MatchingTree(*(arrays[name] for name in MatchingTree._fields)))

    def arrays(self) -> dict[str, NDArray[Any]]:
        return self._tree._asdict()

    @property
    def nbytes(self) -> int:
        return sum(a.nbytes for a in self._tree)

    def plan(self) -> dict[str, Any]:
        nodes, tails, depth, _ = self._tree.shape.tolist()
        edges = len(self._tree.tree) - nodes
        return {
            "nodes": nodes,
            "edges": edges,
            "tails": tails,
            "depth": depth,
            "grounds": f"{len(self._clauses):,} clauses on {edges:,} edges of {nodes:,} nodes, {depth} deep; "
            f"the attributes that the {'most' if self._begins_with_popular() else 'fewest'} clauses mention come first",
        }

    def _begins_with_popular(self) -> bool:
        mentioned = np.bincount(self._clauses.attribute, minlength=self._clauses.attributes)
        first, last = np.argmin(self._tree.level), np.argmax(self._tree.level)
        return bool(mentioned[first] > mentioned[last])

    def match(self, events: CodedEvents, threads: int, sink: Sink | None = None) -> Pairs:
        arrays = EventArrays.of(events)

        def work(last: int, room: tuple[Any, Any], progress: NDArray[np.int64]) -> None:
            taken = self._pool.take(Walk.at_rest, len(self._tree.level), len(self._tree.tree))
            match_events(self._tree, self._spans, taken.space, arrays, last, Room(*room), progress)
            self._pool.give(taken)

        return in_parts(work, len(events), threads, rate=self._rate, sink=sink)


def _build(clauses: Clauses, first: str) -> MatchingTree:
    """The tree, depth by depth: clauses that are not alone yet are sorted by (node, next predicate), and each distinct
    pair is an edge to a node of the next depth or, with one clause, to a tail."""
    c = clauses
    mentioned = np.bincount(c.attribute, minlength=c.attributes)
    level = np.empty(c.attributes, np.int32)
    level[np.argsort(-mentioned if first == POPULAR else mentioned, kind="stable")] = np.arange(c.attributes)
    number, example = distinct(c)
    lo, hi, own_level = c.lo[example], c.hi[example], level[c.attribute[example]]
    size = np.diff(c.offsets)
    order_each(number, c.offsets[:-1], size, own_level)
    piece_lo, piece_hi, pieces, place = _pieces(c, lo, hi, own_level)
    begins_at = np.cumsum(pieces) - pieces

    row, node = np.arange(len(c)), np.zeros(len(c), np.int64)  # rows that go on, and the node that each has reached
    nodes, tails, depth = 1, 0, 0
    ends, edges, tail_of = [], [], []
    while len(row):
        on = size[row] > depth
        ends.append((node[~on], row[~on]))
        row, node = row[on], node[on]
        predicate = number[c.offsets[row] + depth]
        order = np.argsort((node << 32) | place[begins_at[predicate]], kind="stable")
        row, node, predicate = row[order], node[order], predicate[order]
        begins = np.ones(len(row), np.bool_)
        begins[1:] = (node[1:] != node[:-1]) | (predicate[1:] != predicate[:-1])
        start = np.flatnonzero(begins)
        members = np.diff(np.append(start, len(row)))
        branch, leaf = members > 1, members == 1
        target = np.where(branch, nodes - 1 + np.cumsum(branch), -tails - np.cumsum(leaf))
        tail_of.append((row[start[leaf]], np.full(leaf.sum(), depth + 1)))
        nodes, tails, depth = nodes + int(branch.sum()), tails + int(leaf.sum()), depth + 1
        count = pieces[predicate[start]]
        piece = runs(begins_at[predicate[start]], count)
        edges.append((np.repeat(node[start], count), piece, np.repeat(target, count)))
        on = np.repeat(branch, members)
        row, node = row[on], np.repeat(target, members)[on]
    end_node, end_row = _join(ends, 2)
    edge_node, piece, target = _join(edges, 3)
    tail_row, skip = _join(tail_of, 2)

    words = HEAD + TEST * np.maximum(size[tail_row] - skip, 2)
    tail_start = np.cumsum(words) - words
    refuse_too_many(Gryphon.name, int(words.sum()), "words of tails")
    refuse_too_many(Gryphon.name, len(piece) + nodes, "nodes and edges")
    tail_words = np.empty(int(words.sum()), np.int32)
    write_tails(tail_start, tail_row, skip, c.offsets, DistinctPredicates(number, own_level, lo, hi), tail_words)
    order = np.argsort((edge_node << 32) | place[piece], kind="stable")
    edge_node, piece, target = edge_node[order], piece[order], target[order]
    fan, ending = np.bincount(edge_node, minlength=nodes), np.bincount(end_node, minlength=nodes)
    stands = np.cumsum(fan + 1) - (fan + 1)
    tree = np.zeros((len(piece) + nodes, WIDTH), np.int32)
    tree[stands, EDGES], tree[stands, FIRST_ROW], tree[stands, ROWS] = fan, np.cumsum(ending) - ending, ending
    at = np.arange(len(piece)) + edge_node + 1  # an edge stands behind its node and all nodes and edges before
    tree[at, LEVEL], tree[at, LO], tree[at, HI] = np.repeat(own_level, pieces)[piece], piece_lo[piece], piece_hi[piece]
    down = target >= 0
    tree[at[down], TARGET] = stands[target[down]]
    tree[at[~down], TARGET] = -1 - tail_start[-1 - target[~down]]
    block = GRYPHON_BLOCK.value
    top = np.zeros(-(-len(tree) // block) * block, np.int32)
    top[at] = piece_hi[piece]
    return MatchingTree(
        level,
        tree,
        reach=top.reshape(-1, block).max(axis=1),
        entry=write_directories(tree, stands, c.attributes, GRYPHON_EDGES.value),
        tails=tail_words,
        rows=end_row[np.argsort(end_node, kind="stable")].astype(np.int32),
        shape=np.array([nodes, tails, depth, block], np.int64),
    )


def _pieces(
    clauses: Clauses, lo: NDArray[np.int32], hi: NDArray[np.int32], level: NDArray[np.int32]
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int64], NDArray[np.int64]]:
    """The spans of the distinct predicates, one after the other; how many each predicate has; and the place of each
    span in the order that the edges of a node have."""
    several = hi < 0
    count = np.where(several, -hi.astype(np.int64), 1)
    predicate = np.repeat(np.arange(len(lo)), count)
    piece_lo, piece_hi = lo[predicate], hi[predicate]
    listed = np.flatnonzero(several[predicate])
    side = runs(lo.astype(np.int64), count)[listed]
    piece_lo[listed], piece_hi[listed] = clauses.span_lo[side], clauses.span_hi[side]
    wide = (piece_lo != piece_hi).astype(np.int64)
    order = np.argsort((level[predicate].astype(np.int64) << 32) | (wide << 31) | piece_lo, kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return piece_lo, piece_hi, count, place


def _join(parts: Sequence[tuple[NDArray[Any], ...]], columns: int) -> tuple[NDArray[Any], ...]:
    return tuple(np.concatenate([np.empty(0, np.int64), *(p[i] for p in parts)]) for i in range(columns))
