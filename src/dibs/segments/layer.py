"""A layer of a matcher's state: a segment and the rows that are gone from it. A value that never changes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike

from dibs.arrays import from_ids
from dibs.segments.ids import Id, id_hash
from dibs.segments.segment import Segment
from dibs.segments.state import Waiting
from dibs.segments.tombstones import Tombstones

ID_TYPES = (pa.int64(), pa.large_string())


@dataclass(frozen=True, eq=False)
class Layer:
    """A segment and the rows that are gone from it."""

    segment: Segment
    gone: Tombstones
    items: Mapping[Id, Waiting] | None = None  # of a scanned one: what it was made of and is still there

    hash_of = staticmethod(id_hash)  # by which all layers find an id

    @classmethod
    def of(cls, segment: Segment, items: Mapping[Id, Waiting] | None = None) -> Layer:
        return cls(segment, Tombstones(len(segment)), items)

    def __len__(self) -> int:
        return len(self.segment) - self.gone.count

    @property
    def id_type(self) -> pa.DataType:
        return self.segment.ids.ids.type

    def without(self, rows: ArrayLike, ids: Collection[Id]) -> Layer:
        """Without these rows, which are there; their ids may be among more."""
        items = self.items
        if items is not None:
            items = {id: item for id, item in items.items() if id not in ids}
        return Layer(self.segment, self.gone.including(np.asarray(rows, np.int64)), items)


def by_type(ids: Collection[Id]) -> Iterator[tuple[pa.DataType, pa.Array]]:
    """The ids of each type, if there are any."""
    for type_, text in zip(ID_TYPES, (False, True)):
        own = [i for i in ids if isinstance(i, str) == text]
        if own:
            yield type_, from_ids(own)
