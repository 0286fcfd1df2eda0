"""Live: the index of a segment whose structure takes insertions and deletions in place (BE-Tree, PS-Tree, OpIndex...).

Segments are merged as ever: ids, texts and clauses are joined into a new segment. But the index of the largest part is
not built again: the rows of the others are inserted into it and those that were removed are deleted from it. That asks
for two maps: the structure knows cells by labels that never change (coding.labels), and rows by numbers of its own, in
the order in which they came.

The index changes in place, so nobody may be matching on it meanwhile: Matcher waits for its readers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dibs.coding.batch import CodedEvents
from dibs.coding.clauses import Clauses
from dibs.coding.domain import Domains
from dibs.coding.merge import Moved, Rows, move_clauses
from dibs.index import Pairs, Sink, create
from dibs.index.base import renumbered
from dibs.index.complete import Completed
from dibs.segments.labels import Labels, carried, fresh


class Live:
    def __init__(
        self,
        index: Completed,
        clauses: Clauses,
        domains: Domains,
        labels: Labels,
        place: NDArray[np.int32],
        settings: dict[str, Any],
    ):
        self._index = index
        self._clauses = clauses  # the segment's, in cells
        self._domains = domains
        self._labels = labels
        self._place = place  # the segment's row of each row of the index; -1 for deleted ones
        self._settings = settings  # of the index, for another one of its kind
        self._inserted = self._deleted = 0

    @classmethod
    def build(cls, name: str, domains: Domains, clauses: Clauses, settings: dict[str, Any]) -> Live:
        labels = fresh(domains)
        rows = np.arange(len(clauses))
        labelled, _ = move_clauses([(clauses, rows, labels.moved())], clauses.attributes)
        index = cast(Completed, create(name, labelled, **settings))
        return cls(index, clauses, domains, labels, rows.astype(np.int32), settings)

    @property
    def name(self) -> str:
        return self._index.name

    @property
    def about(self) -> str:
        return self._index.about

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Files hold the static form: over cells, without what was deleted."""
        return create(self.name, self._clauses, **self._settings).arrays()

    @property
    def nbytes(self) -> int:
        labels = self._labels
        return self._index.nbytes + labels.first.nbytes + labels.last.nbytes + labels.base.nbytes + self._place.nbytes

    def plan(self) -> dict[str, Any]:
        return self._index.plan() | {"inserted in place": self._inserted, "deleted in place": self._deleted}

    def match(self, events: CodedEvents, threads: int, sink: Sink | None = None) -> Pairs:
        labelled = self._labels.events(events)

        def match(sink: Sink | None) -> Pairs:
            return self._index.match(labelled, threads, sink)

        return renumbered(match, None, self._place, None, sink)

    def merged(
        self,
        parts: Sequence[tuple[Clauses, Rows, Moved]],
        domains: Domains,
        clauses: Clauses,
        place: NDArray[np.int64],
    ) -> Live | None:
        """This index, changed in place to that of a merged segment. parts: what was merged, this segment's part first,
        so that its attributes keep their numbers; domains, clauses, place: the result, as coding.merge gives it. None
        (and nothing has changed) when there is no room for new labels."""
        own, own_rows, move = parts[0]
        labels = carried(self._labels, self._domains, move, domains)
        if labels is None:
            return None
        row_of = np.empty(len(place), np.int32)  # where each given row has gone
        row_of[place] = np.arange(len(place), dtype=np.int32)
        bounds = np.cumsum([0, *(len(rows) for _, rows, _ in parts)])

        kept = np.full(len(own), -1, np.int32)
        kept[own_rows] = row_of[: bounds[1]]
        was_there = self._place >= 0
        rows = np.where(was_there, kept[self._place], -1).astype(np.int32)
        gone = np.flatnonzero(was_there & (rows < 0))
        if len(gone):
            self._index.delete(gone)
        places = [rows]
        for number, (part, chosen, move) in enumerate(parts[1:], 1):
            # Even without rows: its domains may have brought attributes.
            more, order = move_clauses([(part, chosen, labels.moved(move))], clauses.attributes)
            self._index.insert(more)
            places.append(row_of[bounds[number] : bounds[number + 1]][order])
            self._inserted += len(more)
        result = Live(self._index, clauses, domains, labels, np.concatenate(places), self._settings)
        result._inserted, result._deleted = self._inserted, self._deleted + len(gone)
        return result
