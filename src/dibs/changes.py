"""Changes: the one way by which subscriptions come and go. They are checked before (matcher.py), and then

    -> the batch, if one is open    or    -> catalog, durable on return (if there is one) -> layers, visible

A batch is a transaction: its changes are seen by nobody but the thread that makes them, until all are made together.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dibs.errors import DibsError, UnknownId
from dibs.segments.compile import Compiled
from dibs.segments.ids import Id
from dibs.segments.layers import Change, Layers, Subscription
from dibs.segments.segment import build

if TYPE_CHECKING:
    from dibs.storage.durable import Durable

CLOSED = "is closed"


class Changes:
    def __init__(self, layers: Layers):
        self._layers = layers
        self.durable: Durable | None = None
        self.refused = ""  # why changes are not taken, when they are not
        self._turn = threading.RLock()  # one change after the other; a batch holds it to its end
        self._batch: dict[Id, tuple[Change, int]] | None = None  # the latest change of each id and which it is
        self._batched: list[Change] = []
        self._new: set[Id] = set()  # ids of the batch that were not there before it

    @contextmanager
    def turn(self) -> Iterator[None]:
        """While a change is checked and made."""
        with self._turn:
            if self.refused:
                raise DibsError(f"this matcher {self.refused}")
            if self.durable is not None and self.durable.catalog.version != self._layers.version:
                self.durable.catch_up(self._layers)  # an interrupt came between the catalog and the layers
            yield

    def close(self) -> bool:
        """No more changes; False if it was closed already. Waits for a change that is being made."""
        with self._turn:
            was_open, self.refused = self.refused != CLOSED, CLOSED
            return was_open

    @contextmanager
    def batch(self) -> Iterator[None]:
        with self.turn():
            if self._batch is not None:  # a batch within a batch is part of it
                yield
                return
            self._batch, self._batched, self._new = {}, [], set()
            try:
                yield
                changes, old, self._batch = self._batched, self._batch.keys() - self._new, None
                self._make(changes, old)
            finally:
                self._batch = None

    @property
    def batching(self) -> bool:
        return self._batch is not None

    def make(self, changes: list[Change], new: bool = False) -> None:
        """Changes that were checked. new: of ids that are not there, none twice."""
        if self._batch is not None:
            if new:
                self._new.update(change[0] for change in changes if change[0] not in self._batch)
            self._batch |= {change[0]: (change, i) for i, change in enumerate(changes, len(self._batched))}
            self._batched += changes
        else:
            self._make(changes, () if new else None)

    def _make(self, changes: list[Change], old: Collection[Id] | None) -> None:
        """old: those of their ids that may be there; None: all of them."""
        if changes:
            first = self._layers.version + 1
            if self.durable is not None:
                self.durable.write(((id, text, weight) for id, text, weight, _ in changes), first)
            self._layers.apply(changes, first, old)

    def add_columns(
        self, compiled: Compiled, ids: pa.Array, texts: pa.Array, weights: NDArray[np.float64] | None
    ) -> None:
        """Many new subscriptions, not in a batch."""
        first = self._layers.version + 1
        versions = np.arange(first, first + len(texts))
        segment = build(compiled, ids, texts, weights, versions, self._layers.choice, self._layers.largest())
        if self.durable is not None:
            self.durable.write_columns(ids, texts, weights, first)
        self._layers.append([segment], first + len(texts) - 1)

    # ---- what is there, for the thread that asks ----

    def _own(self) -> dict[Id, tuple[Change, int]]:
        """The changes of a batch that this thread has open."""
        mine = self._batch is not None and self._turn._is_owned()  # type: ignore[attr-defined]
        return self._batch or {} if mine else {}

    def has(self, id: Id) -> bool:
        if not _is_id(id):
            return False
        found = self._own().get(id)
        return self._layers.has(id) if found is None else found[0][1] is not None

    def get(self, id: Id) -> Subscription:
        if not _is_id(id):
            raise UnknownId(id)
        found = self._own().get(id)
        if found is None:
            return self._layers.get(id)
        (_, text, weight, _), place = found
        if text is None:
            raise UnknownId(id)
        return Subscription(id, text, weight, self._layers.version + 1 + place)

    def taken(self, column: pa.Array) -> set[int]:
        """Places in the column whose id is in use, or stands earlier in the column."""
        repeated, used = self._layers.taken(column)
        own = self._own()
        if own:
            for i, id in enumerate(column.to_pylist()):
                if id in own:
                    (used.discard if own[id][0][1] is None else used.add)(i)
        return repeated | used

    def __len__(self) -> int:
        count = len(self._layers)
        for id, (change, _) in self._own().items():
            count += (change[1] is not None) - self._layers.has(id)
        return count


def _is_id(id: object) -> bool:
    """True and 1.0 equal 1, but are no ids."""
    return isinstance(id, (str, int)) and not isinstance(id, bool)
