"""The work space of a call: all that it writes. A call has one to itself from beginning to end (jit.pools); between
calls, everything that should be zero is.

One space serves all layers, one after the other, so it is as large as the largest of them needs; and all states of a
matcher, until one needs more.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dibs.coding.computed.program import empty_column, machine
from dibs.coding.events.json_kernels import Found, Work
from dibs.coding.patterns.groups import PATTERN_STEPS
from dibs.index.auto.record_layout import WorkSizes, WorkSpace
from dibs.index.auto.vector_layout import VectorSpace
from dibs.index.groups import EventArrays
from dibs.jit.groups import Table, allocate
from dibs.jit.scanning import PADDING
from dibs.segments.single.memtable_kernels import Values
from dibs.segments.single.program_kernels import Running
from dibs.segments.single.tables import Space

PATTERNS_OF_AN_EVENT = 4_096  # of all layers; one that has more is left to batches


class Needs(NamedTuple):
    """The sizes of a space."""

    layers: int
    text: int  # bytes
    values: int  # of an event
    nodes: int  # of the names, see coding.events.paths
    attributes: int
    rungs: int  # of records
    filed: int  # rows of a layer
    listed: int  # segments of vectors
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

    # What follows from these.

    @property
    def coded(self) -> int:
        """Entries: a value has one in each layer, and a string another one where it is read in reverse or as a time.
        Kernels ask all the same: what patterns leave free is not known here."""
        one_each = self.values * self.layers
        return one_each + 1 + (one_each + PATTERNS_OF_AN_EVENT if self.patterns > 0 else 0)

    @property
    def padded_text(self) -> int:
        return self.text + PADDING

    @property
    def reversed(self) -> int:
        return self.padded_text if self.patterns else 0

    @property
    def attribute_words(self) -> int:
        return self.attributes // 64 + 1

    @property
    def survivors(self) -> int:
        return self.clauses + 1


class SingleSpace:
    def __init__(self, needs: Needs):
        n = self.needs = self.covered = needs  # covered: the needs that were looked at last
        entries = [np.empty(n.coded, np.int32) for _ in range(3)]
        found = Found.room(n.text)
        work = allocate(WorkSpace, WorkSizes.of(n.attributes, n.filed, n.rungs))
        self._space = allocate(
            Space,
            n,
            events=EventArrays(np.zeros(n.layers + 1, np.int64), *entries),
            values=allocate(Values, n, found=found, numbers=found.key.view(np.float64)),
            reading=Work.room(n.nodes),
            running=allocate(Running, n, machine=machine(1), columns=empty_column(n.values)),
            work=work,
            vectors=allocate(VectorSpace, n, slots=work.slots),
        )
        self._space.patterns.allowed[0] = PATTERN_STEPS.value
        self.result, self.ends, self.ids = self._space.result, self._space.ends, self._space.ids
        self.told = self._space.running.told  # see program_kernels
        self.events, self.row = self._space.events, self._space.room.row
        self._names: object = None
        self._table = Table(self._space)
        self.address = self._table.address

    def read_for(self, names: object) -> None:
        """These names are wanted from now on: keys that the last event had may lead elsewhere."""
        if self._names is not names:
            self._space.reading.last_size.fill(-1)
            self._names = names
