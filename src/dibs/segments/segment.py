"""A segment: subscriptions that were compiled together, with their own domains and index. It never changes, but for an
index that takes rows in place when it goes over into a merged segment.

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
from dibs.coding.merge import merge_domains, move_clauses
from dibs.coding.values import EventValues
from dibs.index import Index, Pairs, Sink, create, takes
from dibs.segments.compile import Compiled
from dibs.segments.ids import IdIndex
from dibs.segments.live import Live

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
    return Segment(IdIndex(ids), texts, weights, domains, clauses, _indexed(index, domains, clauses))


def updates_in_place(index: str) -> bool:
    """Whether the index of this name takes insertions and deletions itself."""
    part = takes(index)
    return part is not None and part.updates


def _indexed(index: str, domains: Domains, clauses: Clauses) -> Index:
    return Live.build(index, domains, clauses) if updates_in_place(index) else create(index, clauses)


def merge(parts: Sequence[tuple[Segment, NDArray[np.int64]]], index: str) -> Segment:
    """One segment of the given rows of each part (whose ids are of one type). An index that can takes the rows of the
    others in place: nobody may be matching on the parts meanwhile, nor afterwards."""
    parts = sorted(parts, key=lambda part: -len(part[1]))  # the first part's attributes keep their numbers
    domains, moves = merge_domains([s.domains for s, _ in parts])
    moving = [(s.clauses, rows, move) for (s, rows), move in zip(parts, moves)]
    clauses, place = move_clauses(moving, len(domains.attributes))
    order = pa.array(place)
    ids = pa.concat_arrays([s.ids.ids.take(pa.array(rows)) for s, rows in parts]).take(order)
    texts = pa.concat_arrays([s.texts.take(pa.array(rows)) for s, rows in parts]).take(order)
    weights = None
    if any(s.weights is not None for s, _ in parts):
        weights = np.concatenate([s.weights_at(rows) for s, rows in parts])[place]
    largest = parts[0][0].index
    merged = largest.merged(moving, domains, clauses, place) if isinstance(largest, Live) else None
    return Segment(IdIndex(ids), texts, weights, domains, clauses, merged or _indexed(index, domains, clauses))
