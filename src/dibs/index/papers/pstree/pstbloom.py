"""pstbloom: PS-Trees whose spaces carry Bloom filters, so that most candidates fall without being evaluated.

The idea (Ji and Jacobsen 2018, section 5): as in pstree a subscription is in the lists of all spaces of its access
predicate. All its other predicates are in the trees too, and every space that one of them covers has the
subscription's id in its signature, a Bloom filter. A candidate matches only if each of its other attributes has, in the
event, a value whose space has the candidate's id in its signature; what passes is evaluated.

Arrays: those of index.pstree_rows and index.pstree_forest, and
    sign        int32   (leaves, 2): the first word of the signature and a mask, its number of words (a power of 2) - 1
    signature   int32   (words, 1), free_words int64: the words, a pool of index.chunks. An id sets two bits of one
                        word. Word 0 has no bit set (a space without ids, an attribute that the event lacks), word 1
                        all of them (no attribute to ask for)
    counts      int64   pairs (space, id) when all signatures were last made, added since, removed since
An entry of a list is
    [code, 1 + attribute, 1 + attribute, 1 + attribute]   of up to three other predicates, the least likely ones
and the code is the subscription's id. Nodes visited are inner nodes and leaves of the trees; predicates evaluated are
those of candidates that passed the signatures.

A Bloom filter cannot forget an id, nor grow: signatures are supersets in between, and all are made again when as many
pairs were added as there were, or half of them removed.

Useful for: data of many attributes; updates while events come.
Not useful for: wide predicates over domains of many constants: all predicates are in the trees, so that inserting one
touches every space that it covers; few attributes with many subscriptions (signatures are large and lists long).

Where it differs from the paper: signatures have 4 to 8 bits an id instead of one size; only three signatures are asked
for a candidate, as its other attributes are in the memory that holds the predicates themselves; how deletion treats
signatures is not in the paper.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dibs.coding.batch import CodedEvents
from dibs.coding.clauses import Clauses
from dibs.index.base import Pairs, Rate, Sink, Takes, in_parts
from dibs.index.growing import grown
from dibs.index.papers.pstree.chunks import USED, empty_pool, with_room
from dibs.index.papers.pstree.forest import Forest
from dibs.index.papers.pstree.kernels import ATTRIBUTE, LEAVES
from dibs.index.papers.pstree.pstbloom_kernels import (
    EVERYTHING,
    NOTHING,
    add_ids,
    match_signed,
    merge_signed,
    partition_signed,
    signed_words,
    sizes,
)
from dibs.index.papers.pstree.rows import Rows
from dibs.thresholds import thresholds

SIGNED, ADDED, REMOVED = range(3)
ALL = 1 << 40  # predicates of a row
LINE = 16  # words of a cache line


class PSTBloom:
    name: ClassVar[str] = "pstbloom"
    about: ClassVar[str] = "PSTBloom: PS-Trees with a Bloom filter for each predicate space; for many attributes"
    takes: ClassVar[Takes] = Takes(updates=True)

    OWN = ("sign", "signature", "free_words", "counts")

    def __init__(self, rows: Rows, forest: Forest, own: dict[str, NDArray[Any]]):
        self.rows, self.forest = rows, forest
        self._sign, self._signature, self._free_words, self._counts = (own[name] for name in self.OWN)
        self._rate = Rate()

    @classmethod
    def build(cls, clauses: Clauses) -> PSTBloom:
        own: dict[str, NDArray[Any]] = {"sign": np.zeros((0, 2), np.int32), "counts": np.zeros(3, np.int64)}
        own["signature"], own["free_words"] = _no_signatures(0)
        index = cls(Rows.none(), Forest.empty(), own)
        index.insert(clauses)
        return index

    @classmethod
    def restore(cls, clauses: Clauses, arrays: dict[str, NDArray[Any]]) -> PSTBloom:
        return cls(Rows(*(arrays[name] for name in Rows.ARRAYS)), Forest(arrays), arrays)

    def arrays(self) -> dict[str, NDArray[Any]]:
        own = {
            "sign": self._sign[: int(self.forest.state[LEAVES])],
            "signature": self._signature[: int(self._free_words[USED])],
            "free_words": self._free_words,
            "counts": self._counts,
        }
        return self.rows.arrays() | self.forest.arrays() | own

    @property
    def nbytes(self) -> int:
        own = self._sign.nbytes + self._signature.nbytes + self._free_words.nbytes + self._counts.nbytes
        return self.rows.nbytes + self.forest.nbytes + own

    def plan(self) -> dict[str, Any]:
        ids = int(self._counts[SIGNED] + self._counts[ADDED] - self._counts[REMOVED])
        return self.forest.plan() | {
            "ids in signatures": ids,
            "bits an id": round(32 * int(self._free_words[USED]) / max(ids, 1), 1),
            "grounds": "each subscription is in lists of its least likely predicate and in signatures of the others",
        }

    def insert(self, clauses: Clauses) -> None:
        rank = self.forest.ranks(clauses, len(self.rows) + len(clauses))
        rows, forest = self.rows, self.forest
        which = rows.by_access(rows.add(clauses, rank))
        keys, counts = rows.boundaries(which, ALL)
        forest.expect(len(keys))
        at = 0
        while True:
            self._sign = grown(self._sign, len(forest.leaf))
            at = partition_signed(keys, counts, at, *self._signatures(), *forest.trees())
            if at == len(keys):
                break
            forest.make_room()
            self._signature = with_room(self._signature, self._free_words)
        others, owner = rows.positions(which, 1, ALL)
        forest.cover(rows, rows.offsets[which], 1)
        self._counts[ADDED] += forest.cover(rows, others, 1)
        forest.attach(rows, rows.offsets[which], signed_words(which, rows.offsets, rows.predicate))
        if not self._sign_again():
            self._add_ids(which, others, owner)

    def delete(self, rows: NDArray[np.int64]) -> None:
        own = self.rows
        self.forest.detach(own, own.offsets[rows], signed_words(rows, own.offsets, own.predicate)[:, 0].copy())
        self.forest.cover(own, own.offsets[rows], -1)
        self._counts[REMOVED] += self.forest.cover(own, own.positions(rows, 1, ALL)[0], -1)
        merge_signed(*own.boundaries(rows, ALL), *self._signatures(), *self.forest.trees())
        own.mark_deleted(rows)
        self._sign_again()

    def _signatures(self) -> tuple[NDArray[Any], ...]:
        return self._sign, self._signature, self._free_words

    def _sign_again(self) -> bool:
        """Makes all signatures again if too much has changed; whether it did."""
        signed, added, removed = self._counts.tolist()
        if added <= signed and removed <= signed // 2:
            return False
        self._counts[:] = signed + added - removed, 0, 0
        leaves = int(self.forest.state[LEAVES])
        words = sizes(leaves, self.forest.leaf)
        # One word of many signatures is written for each id: a line between them keeps it off the same cache set.
        taken = np.where(words > LINE, words + LINE, words)
        self._signature, self._free_words = _no_signatures(int(taken.sum()))
        ends = EVERYTHING + 1 + np.cumsum(taken)
        self._sign[:leaves, 0] = np.where(words > 0, ends - taken, NOTHING)
        self._sign[:leaves, 1] = np.maximum(words - 1, 0)
        first = self.rows.predicate[self.rows.offsets[: len(self.rows)], ATTRIBUTE]
        which = np.flatnonzero(first >= 0)
        self._add_ids(which, *self.rows.positions(which, 1, ALL))
        return True

    def _add_ids(self, which: NDArray[np.int64], others: NDArray[np.int64], owner: NDArray[np.int64]) -> None:
        """others, owner: the predicates of these rows but the first ones, see Rows.positions."""
        rows = self.rows
        codes = signed_words(which, rows.offsets, rows.predicate)[:, 0].copy()
        own = rows.predicate, rows.span
        at = 0
        while True:
            at = add_ids(others, codes, owner, at, *self._signatures(), *own, *self.forest.links())
            if at == len(others):
                return
            self._signature = with_room(self._signature, self._free_words)

    def match(self, events: CodedEvents, threads: int, sink: Sink | None = None) -> Pairs:
        space = np.empty(len(events.attribute), np.int32)
        forest, rows = self.forest, self.rows

        def work(last: int, room: tuple[Any, Any], done: NDArray[np.int64]) -> None:
            if not done[5]:
                done[5] = 1
                forest.find(events, int(done[0]), last, space, done)
            match_signed(
                thresholds.pstree_block,
                forest.leaf,
                forest.entry,
                forest.attributes,
                self._sign,
                self._signature,
                rows.predicate,
                rows.span,
                events.offsets,
                events.attribute,
                events.lo,
                space,
                last,
                *room,
                done,
            )

        found = in_parts(work, len(events), threads, rate=self._rate, sink=sink)
        forest.observe(len(events), space)
        return found


def _no_signatures(words: int) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """A pool of empty signatures, with so many words to hand out."""
    _, free = empty_pool(1)
    signature = np.zeros((EVERYTHING + 1 + words, 1), np.int32)
    signature[EVERYTHING] = -1
    free[USED] = len(signature)
    return signature, free
