"""Subscriptions of fewer predicates than PSTHash has dimensions: found by the method of PSTBloom, as the paper says.

With two dimensions there are none that PSTBloom would treat otherwise than PS-Tree: a single predicate leaves nothing
to ask a signature for. So these are for more than two.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dibs.coding.batch import CodedEvents
from dibs.coding.clauses import Clauses
from dibs.index.base import Pairs, Sink, renumber
from dibs.papers.structures.pstree.pstbloom import PSTBloom

PREFIX = "small."


class SmallRows:
    """`rows`: their numbers in the whole index, ascending, by their numbers in `bloom`."""

    def __init__(self, bloom: PSTBloom, rows: NDArray[np.int32]):
        self.bloom, self.rows = bloom, rows

    @classmethod
    def none(cls, clauses: Clauses, access: str) -> SmallRows:
        return cls(PSTBloom.build(clauses.take(np.zeros(0, np.int64)), access), np.zeros(0, np.int32))

    @classmethod
    def restore(cls, clauses: Clauses, arrays: dict[str, NDArray[Any]]) -> SmallRows:
        own = {name.removeprefix(PREFIX): a for name, a in arrays.items() if name.startswith(PREFIX)}
        return cls(PSTBloom.restore(clauses, own), own["rows"])

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {PREFIX + name: a for name, a in (self.bloom.arrays() | {"rows": self.rows}).items()}

    @property
    def nbytes(self) -> int:
        return self.bloom.nbytes + self.rows.nbytes

    def insert(self, clauses: Clauses, rows: NDArray[np.int64]) -> None:
        """Also when there are none: the clauses say how many attributes events may have."""
        self.bloom.insert(clauses)
        self.rows = np.concatenate([self.rows, rows.astype(np.int32)])

    def delete(self, rows: NDArray[np.int64]) -> None:
        self.bloom.delete(np.searchsorted(self.rows, rows).astype(np.int64))

    def match(self, events: CodedEvents, threads: int, sink: Sink | None) -> Pairs:
        return renumber(partial(self.bloom.match, events, threads), None, self.rows, None, sink)
