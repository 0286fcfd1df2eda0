"""The work space of a call: all that it writes. A call has one to itself from beginning to end (jit.pools); between
calls, everything that should be zero is.

One space serves all layers, one after the other, so it is as large as the largest of them needs; and all states of a
matcher, until one needs more.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dibs.coding.events.json_kernels import Found, Work
from dibs.coding.patterns import pattern_work
from dibs.coding.patterns.groups import PatternSpace
from dibs.index.auto.record_layout import WINDOW, room_for_buckets
from dibs.index.groups import PROGRESS as PROGRESS_NUMBERS
from dibs.jit.borrowing import Table, entries_of
from dibs.jit.scanning import PADDING
from dibs.segments.single.layout import WORK
from dibs.segments.single.sieve_kernels import PASSED
from dibs.segments.single.waiting_kernels import MARKS
from dibs.thresholds import thresholds

PATTERNS_OF_AN_EVENT = 4_096  # of all layers; one that has more is left to batches
RESULTS = 5  # pairs, candidates, predicates, nodes, and how many of the pairs are of layers


class Needs(NamedTuple):
    """The sizes of a space."""

    layers: int
    text: int  # bytes
    values: int  # of an event
    nodes: int  # of the names, see coding.events.paths
    attributes: int
    rungs: int  # of records
    filed: int  # rows of a layer
    words: int  # of bits
    accesses: int  # of bits: access predicates
    clauses: int  # of bits
    rows: int  # that an event may match
    patterns: int  # of a set
    texts: int  # that patterns of a set look for

    def cover(self, other: Needs) -> bool:
        return all(a >= b for a, b in zip(self, other))

    def with_all_of(self, other: Needs) -> Needs:
        """Both, with room to grow: states come and go, and each has a few more than the one before."""
        return Needs(*(a if a >= b else b + (b >> 2) for a, b in zip(self, other)))


class SingleSpace:
    def __init__(self, needs: Needs):
        n = self.needs = self.covered = needs  # covered: the needs that were looked at last
        # A value has an entry in each layer, and a string another one where it is read in reverse or as a time. Kernels
        # ask all the same: what patterns leave free is not known here.
        coded = n.values * n.layers + 1
        if n.patterns > 0:
            coded += n.values * n.layers + PATTERNS_OF_AN_EVENT
        self.result = np.zeros(RESULTS, np.int64)
        self.offsets = np.zeros(n.layers + 1, np.int64)
        self.ends = np.zeros(n.layers, np.int64)
        self.attribute, self.lo, self.hi = (np.empty(coded, np.int32) for _ in range(3))
        self.row = np.empty(n.rows, np.int32)
        self.ids = np.empty(n.rows, np.int64)
        self._reading = Work.room(n.nodes)
        self._names: object = None
        patterns = PatternSpace(*pattern_work(n.patterns, n.texts))
        patterns.allowed[0] = thresholds.pattern_steps
        arrays = (
            self.result,
            self.offsets,
            self.ends,
            self.attribute,
            self.lo,
            self.hi,
            np.empty(n.values, np.int32),
            np.empty(n.values, np.uint64),
            np.empty(n.values, np.int64),
            np.empty(n.values, np.int64),
            np.zeros(n.text + PADDING, np.uint8),
            *Found.room(n.text),
            *self._reading,
            np.zeros(n.attributes, np.int32),
            np.zeros(n.attributes, np.int32),
            np.zeros((n.attributes, 2), np.int64),
            np.zeros(n.attributes, np.uint16),
            np.zeros(n.filed + 1, np.int32),
            np.empty(thresholds.guards_at_once, np.uint32),
            np.empty(room_for_buckets(n.rungs), np.uint32),
            np.empty(WINDOW + 1, np.uint32),
            np.zeros(n.attributes // 64 + 1, np.uint64),
            np.empty(PASSED, np.uint64),
            np.zeros(n.words, np.uint64),
            np.empty(n.accesses, np.int32),
            np.empty(n.clauses + 1, np.uint64),
            np.empty(n.rows, np.int32),
            self.row,
            self.ids,
            np.zeros(PROGRESS_NUMBERS, np.int64),
            np.zeros(n.nodes, np.int32),
            np.empty(n.values, np.int32),
            np.zeros(MARKS, np.uint64),
            *patterns,
            np.empty(n.patterns, np.int32),
            np.empty(n.text + PADDING if n.patterns else 0, np.uint8),
        )
        numbers = np.array(entries_of(arrays), np.int64)
        assert len(numbers) == 2 * WORK
        self._table = Table(numbers, arrays)
        self.address = self._table.address

    def read_for(self, names: object) -> None:
        """These names are wanted from now on: keys that the last event had may lead elsewhere."""
        if self._names is not names:
            self._reading.last_size.fill(-1)
            self._names = names
