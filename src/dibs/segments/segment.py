"""A segment: subscriptions that were compiled together, with their own domains and index. It never changes.

Row r of everything (ids, texts, weights, clauses) is one subscription. The ids are all integers or all strings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dibs.coding.batch import code_events
from dibs.coding.clauses import Clauses, code_clauses
from dibs.coding.domain import Domains
from dibs.coding.merge import merge_clauses
from dibs.coding.values import EventValues
from dibs.index import Index, Pairs, Sink, create
from dibs.segments.compile import Compiled
from dibs.segments.ids import IdIndex

DEFAULT_WEIGHT = 1.0


@dataclass
class Segment:
    ids: IdIndex
    texts: pa.Array  # large_string
    weights: NDArray[np.float64] | None  # None: all DEFAULT_WEIGHT
    domains: Domains
    clauses: Clauses
    index: Index

    def __len__(self) -> int:
        return len(self.clauses)

    def match(self, events: EventValues, threads: int, sink: Sink | None = None) -> Pairs:
        return self.index.match(code_events(events, self.domains), threads, sink)

    def weights_at(self, rows: NDArray[Any]) -> NDArray[np.float64]:
        return np.full(len(rows), DEFAULT_WEIGHT) if self.weights is None else self.weights[rows]

    @cached_property
    def names(self) -> frozenset[str]:
        """The attributes that the subscriptions mention."""
        return frozenset(name for name, _ in self.domains.attributes)

    @property
    def nbytes(self) -> dict[str, int]:
        """Bytes by part."""
        return {
            "texts": self.texts.nbytes,
            "ids": self.ids.ids.nbytes + self.ids.nbytes,
            "weights": 0 if self.weights is None else self.weights.nbytes,
            "domains": self.domains.nbytes,
            "clauses": self.clauses.nbytes,
            "index": self.index.nbytes,
        }


def build(
    compiled: Compiled, ids: pa.Array, texts: pa.Array, weights: NDArray[np.float64] | None, index: str
) -> Segment:
    """The segment of the compiled texts; ids, texts and weights are those of all texts that were compiled."""
    if not np.array_equal(compiled.order, np.arange(len(ids))):
        order = pa.array(compiled.order)
        ids, texts = ids.take(order), texts.take(order)
        weights = None if weights is None else weights[compiled.order]
    domains, clauses = code_clauses(compiled.table)
    return Segment(IdIndex(ids), texts, weights, domains, clauses, create(index, clauses))


def merge(parts: Sequence[tuple[Segment, NDArray[np.int64]]], index: str) -> Segment:
    """One segment of the given rows of each part (whose ids are of one type)."""
    domains, clauses, place = merge_clauses([(s.domains, s.clauses, rows) for s, rows in parts])
    order = pa.array(place)
    ids = pa.concat_arrays([s.ids.ids.take(pa.array(rows)) for s, rows in parts]).take(order)
    texts = pa.concat_arrays([s.texts.take(pa.array(rows)) for s, rows in parts]).take(order)
    weights = None
    if any(s.weights is not None for s, _ in parts):
        weights = np.concatenate([s.weights_at(rows) for s, rows in parts])[place]
    return Segment(IdIndex(ids), texts, weights, domains, clauses, create(index, clauses))
