"""The state of a matcher: a value that never changes.

    layers     segments, the newest last, each with the rows that are gone from it
    waiting    subscriptions that came since the last match, by id, read but not coded
    version    of the last change

A change computes another state and puts it in place of the old one by a single assignment (segments.segment_set), so
one that is interrupted anywhere has either happened or not, and a reader that holds a state is never disturbed. A
subscription is in one place only, so the order of layers means nothing to readers.

A state without layers needs neither Arrow nor Numba: it is what a matcher has before its engine is here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Union

import numpy as np

from dibs.arguments import Id
from dibs.errors import UnknownId
from dibs.jit.undisturbed import bring
from dibs.tuning import tuned

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import ArrayLike

    from dibs.segments.compile import Form
    from dibs.segments.layer import Layer
    from dibs.segments.segment import Segment

CHANGES_FOR_A_SEGMENT = tuned("changes_for_a_segment", 256, 1, "changes", "of one call that are worth a segment")
# 4,000 adds 27 to 28 us each instead of 34; single adds, median 34 to 17 us
MERGED_AT_ONCE = tuned("merged_at_once", 1_000, 2, "rows", "of segments that are merged in the foreground")


class Subscription(NamedTuple):
    """What is known of one subscription."""

    id: Id
    expression: str
    weight: float
    version: int  # of the matcher when it was added or last replaced
    time: int | None = None  # of that, in UTC microseconds; only a durable matcher keeps it


Change = tuple[Id, Union[str, None], float, Union["Form", None]]  # text None: it goes; weight; form, as below


class ReadText(str):
    """A text that was read, with what it says: who is given it does not read it again."""

    form: Form


class Waiting(NamedTuple):
    text: str
    weight: float
    version: int
    form: Form | None  # None: not read yet


@dataclass(frozen=True, eq=False)
class State:
    version: int = 0
    layers: tuple[Layer, ...] = ()
    waiting: Mapping[Id, Waiting] = field(default_factory=dict)
    # What single events are handed of it, made when the first one comes: segments.single.plan.
    single: Any = field(init=False, repr=False, default=None)

    def __len__(self) -> int:
        """The number of subscriptions."""
        return len(self.waiting) + sum(map(len, self.layers))

    def has(self, id: Id) -> bool:
        return id in self.waiting or self._find(id) is not None

    def get(self, id: Id) -> Subscription:
        waiting = self.waiting.get(id)
        if waiting is not None:
            return Subscription(id, waiting.text, waiting.weight, waiting.version)
        found = self._find(id)
        if found is None:
            raise UnknownId(id)
        segment, row = self.layers[found[0]].segment, found[1]
        weight = float(segment.weights_at(np.array([row]))[0])
        spellings = segment.spellings
        text = segment.texts[row if spellings is None else int(spellings.first.searchsorted(row, "right")) - 1].as_py()
        return Subscription(id, text, weight, int(segment.versions[row]))

    def _find(self, id: Id) -> tuple[int, int] | None:
        """The layer and the row of an id that is there and does not wait."""
        if not self.layers or isinstance(id, bool) or (isinstance(id, int) and not -(2**63) <= id < 2**63):
            return None
        hash = self.layers[0].hash_of(id)
        for number, layer in enumerate(self.layers):
            if layer.items is None or id in layer.items:
                row = layer.segment.ids.find(id, hash)
                if row is not None and not layer.gone.has(row):
                    return number, row
        return None

    def places_in_use(self, column: pa.Array) -> set[int]:
        """Places in the column whose id is in use."""
        used: set[int] = set()
        for layer in self.layers if len(column) else ():
            if layer.id_type == column.type:
                places, rows = layer.segment.ids.find_all(column)
                used.update(places[~layer.gone.has_each(rows)].tolist())
        if self.waiting:
            used.update(i for i, id in enumerate(column.to_pylist()) if id in self.waiting)
        return used

    def without(self, ids: Collection[Id]) -> State:
        """Without those of the subscriptions that are there."""
        rows = self._rows_of_many(ids) if len(ids) > CHANGES_FOR_A_SEGMENT.value else self._rows_of_few(ids)
        layers = self.layers
        if rows:
            layers = tuple(
                layer.without(rows[number], ids) if number in rows else layer for number, layer in enumerate(layers)
            )
        waiting = self.waiting
        if waiting and not waiting.keys().isdisjoint(ids):
            waiting = {id: item for id, item in waiting.items() if id not in ids}
        return replace(self, layers=layers, waiting=waiting)

    def _rows_of_few(self, ids: Collection[Id]) -> Mapping[int, ArrayLike]:
        result: dict[int, list[int]] = {}
        for id in ids:
            found = self._find(id)
            if found is not None:
                result.setdefault(found[0], []).append(found[1])
        return result

    def _rows_of_many(self, ids: Collection[Id]) -> Mapping[int, ArrayLike]:
        result: dict[int, ArrayLike] = {}
        for type_, column in bring("dibs.segments.layer").by_type(ids):
            for number, layer in enumerate(self.layers):
                if layer.id_type == type_:
                    _, rows = layer.segment.ids.find_all(column)
                    rows = np.unique(rows[~layer.gone.has_each(rows)])
                    if len(rows):
                        result[number] = rows
        return result

    def largest(self) -> Segment | None:
        """The segment that knows most of the events."""
        return max((x.segment for x in self.layers), key=len, default=None)

    def of_type(self, id_type: pa.DataType) -> list[Layer]:
        return [layer for layer in self.layers if layer.id_type == id_type]
