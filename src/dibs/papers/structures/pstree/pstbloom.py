"""pstbloom: PS-Trees whose spaces carry Bloom filters, so that most candidates fall without being evaluated.

The idea (Ji and Jacobsen 2018, section 5): as in pstree a subscription is in the lists of all spaces of its access
predicate. All its other predicates are in the trees too, and every space that one of them covers has the
subscription's id in its signature, a Bloom filter. A candidate matches only if each of its other attributes has, in the
event, a value whose space has the candidate's id in its signature; what passes is evaluated.

Arrays: those of .rows and .forest, and
    sign        int32   (leaves, 2): the first word of the signature and a mask, its number of words (a power of 2) - 1
    signature   int32   (words, 1), free_words int64: the words, a pool of .chunks. An id sets two bits of one
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

Published (option `profile`): a candidate asks the signatures of all its other attributes, as in Algorithm 5.

Where it differs from the paper: signatures have 4 to 8 bits an id instead of one size; only three signatures are asked
for a candidate, as its other attributes are in the memory that holds the predicates themselves; how deletion treats
signatures is not in the paper; the option `access`, see pstree.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dibs.coding.batch import CodedEvents
from dibs.coding.clauses import Clauses
from dibs.index.base import Pairs, Rate, Sink, Takes, refuse_too_many
from dibs.index.options import Option
from dibs.papers.structures.growing import grow_array
from dibs.papers.structures.profiles import OURS, PROFILE, PUBLISHED, is_published, save_profile
from dibs.papers.structures.pstree.forest import ACCESS, OPERATORS, Forest
from dibs.papers.structures.pstree.pstbloom_kernels import (
    EVERYTHING,
    MASK,
    NOTHING,
    SIGN,
    WORD,
    Signatures,
    add_ids,
    match_signed,
    merge_signed,
    partition_signed,
    sign_words,
    sizes,
)
from dibs.papers.structures.pstree.rows import Rows
from dibs.papers.structures.pstree.spaces import ATTRIBUTE, CODE, USED, Boundaries, Chunks, empty_pool, with_room

SIGNED, ADDED, REMOVED = range(3)
ALL = 1 << 40  # predicates of a row
LINE = 16  # words of a cache line


class PSTBloom:
    name: ClassVar[str] = "pstbloom"
    about: ClassVar[str] = "PSTBloom: PS-Trees with a Bloom filter for each predicate space; for many attributes"
    takes: ClassVar[Takes] = Takes(updates=True)
    options: ClassVar[tuple[Option, ...]] = (ACCESS, PROFILE)

    def __init__(self, rows: Rows, forest: Forest, own: dict[str, NDArray[Any]]):
        self.rows, self.forest = rows, forest
        self._signatures = Signatures(own["sign"], Chunks(own["signature"], own["free_words"]))
        self._counts = own["counts"]
        self._published = is_published(own)
        self._rate = Rate()

    @classmethod
    def build(cls, clauses: Clauses, access: str = OPERATORS, profile: str = OURS) -> PSTBloom:
        own: dict[str, NDArray[Any]] = {"sign": np.zeros((0, SIGN), np.int32), "counts": np.zeros(3, np.int64)}
        own |= save_profile(profile == PUBLISHED)
        own["signature"], own["free_words"] = _no_signatures(0)
        index = cls(Rows.none(), Forest.empty(access), own)
        index.insert(clauses)
        return index

    @classmethod
    def restore(cls, clauses: Clauses, arrays: dict[str, NDArray[Any]]) -> PSTBloom:
        return cls(Rows(*(arrays[name] for name in Rows.ARRAYS)), Forest(arrays), arrays)

    def arrays(self) -> dict[str, NDArray[Any]]:
        sign, words = self._signatures
        own: dict[str, NDArray[Any]] = {
            "sign": sign[: self.forest.leaves],
            "signature": words.entry[: words.used],
            "free_words": words.free,
            "counts": self._counts,
        }
        return self.rows.arrays() | self.forest.arrays() | own | save_profile(self._published)

    @property
    def nbytes(self) -> int:
        sign, words = self._signatures
        own = sign.nbytes + words.nbytes + self._counts.nbytes
        return self.rows.nbytes + self.forest.nbytes + own

    def plan(self) -> dict[str, Any]:
        ids = int(self._counts[SIGNED] + self._counts[ADDED] - self._counts[REMOVED])
        return self.forest.plan() | {
            "ids in signatures": ids,
            "bits an id": round(32 * self._signatures.words.used / max(ids, 1), 1),
            "grounds": "each subscription is in lists of its least likely predicate and in signatures of the others",
        }

    def insert(self, clauses: Clauses) -> None:
        rank = self.forest.ranks(clauses, len(self.rows) + len(clauses))
        rows, forest = self.rows, self.forest
        which = rows.by_access(rows.add(clauses, rank))
        self._partition(rows.boundaries(which, ALL))
        others, owner = rows.positions(which, 1, ALL)
        forest.cover(rows, rows.offsets[which], 1)
        self._counts[ADDED] += forest.cover(rows, others, 1)
        forest.attach(rows, rows.offsets[which], sign_words(which, rows.group()))
        if not self._sign_again():
            self._add_ids(which, others, owner)

    def delete(self, rows: NDArray[np.int64]) -> None:
        own, forest = self.rows, self.forest
        forest.detach(own, own.offsets[rows], sign_words(rows, own.group())[:, CODE].copy())
        forest.cover(own, own.offsets[rows], -1)
        self._counts[REMOVED] += forest.cover(own, own.positions(rows, 1, ALL)[0], -1)
        merge_signed(own.boundaries(rows, ALL), self._signatures, forest.trees())
        own.mark_deleted(rows)
        self._sign_again()

    def _partition(self, boundaries: Boundaries) -> None:
        forest, at = self.forest, 0
        forest.expect(len(boundaries.key))
        while True:
            self._signatures = self._signatures._replace(sign=grow_array(self._signatures.sign, len(forest.leaf)))
            at = partition_signed(boundaries, at, self._signatures, forest.trees())
            if at == len(boundaries.key):
                return
            forest.make_room()
            self._make_room()

    def _make_room(self) -> None:
        """For the words that the kernels found missing."""
        self._signatures = self._signatures._replace(words=with_room(self._signatures.words))

    def _sign_again(self) -> bool:
        """Makes all signatures again if too much has changed; whether it did."""
        signed, added, removed = self._counts.tolist()
        if added <= signed and removed <= signed // 2:
            return False
        self._counts[:] = signed + added - removed, 0, 0
        leaves, sign = self.forest.leaves, self._signatures.sign
        words = sizes(leaves, self.forest.leaf)
        # One word of many signatures is written for each id: a line between them keeps it off the same cache set.
        room = np.where(words > LINE, words + LINE, words)
        refuse_too_many(self.name, int(room.sum()), "words of signatures")
        self._signatures = Signatures(sign, _no_signatures(int(room.sum())))
        ends = EVERYTHING + 1 + np.cumsum(room)
        sign[:leaves, WORD] = np.where(words > 0, ends - room, NOTHING)
        sign[:leaves, MASK] = np.maximum(words - 1, 0)
        first = self.rows.predicate[self.rows.offsets[: len(self.rows)], ATTRIBUTE]
        which = np.flatnonzero(first >= 0)
        self._add_ids(which, *self.rows.positions(which, 1, ALL))
        return True

    def _add_ids(self, which: NDArray[np.int64], others: NDArray[np.int64], owner: NDArray[np.int64]) -> None:
        """others, owner: the predicates of these rows but the first ones, see Rows.positions."""
        own = self.rows.group()
        codes = sign_words(which, own)[:, CODE].copy()
        at = 0
        while True:
            at = add_ids(others, codes, owner, at, self._signatures, own, self.forest.links())
            if at == len(others):
                return
            self._make_room()

    def match(self, events: CodedEvents, threads: int, sink: Sink | None = None) -> Pairs:
        signatures = self._signatures.sign, self._signatures.words.entry, self._published
        return self.forest.match(match_signed, self.rows, (signatures,), events, threads, self._rate, sink)


def _no_signatures(words: int) -> Chunks:
    """A pool of empty signatures, with so many words to hand out."""
    _, free = empty_pool(1)
    signature = np.zeros((EVERYTHING + 1 + words, 1), np.int32)
    signature[EVERYTHING] = -1
    free[USED] = len(signature)
    return Chunks(signature, free)
