"""Tests that are made last (coding.computed.residuals), of the rows that the compiled call has found."""

from __future__ import annotations

from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from dibs.coding.computed.verifying import keep_rows
from dibs.segments.segment import Segment
from dibs.segments.single.computed import values_of
from dibs.segments.single.space import SingleSpace


class EventTests:
    """Those of one event."""

    def __init__(self, text: bytes, is_declared: bool):
        self._text = text
        self._event: Any = None
        self._is_declared = is_declared  # types of attributes are, so that values are others than the text says

    def keep(self, segment: Segment, rows: NDArray[np.int32]) -> NDArray[np.bool_] | None:
        """Which rows of a segment stay; None: the batch knows what to do with the event."""
        tests = segment.residuals
        if tests is None:
            return np.ones(len(rows), np.bool_)
        rows = segment.clauses_at(rows)
        if not tests.is_tested[rows].any():
            return np.ones(len(rows), np.bool_)
        if self._is_declared:
            return None
        if self._event is None:
            self._event = orjson.loads(self._text)
        return keep_rows(tests, rows, lambda fields: values_of(self._event, list(fields)))

    def keep_found(self, segments: list[Segment], space: SingleSpace) -> bool:
        """Leaves out what does not hold of the rows in the space. False: the batch knows what to do with the event."""
        pairs, of_layers = int(space.result[0]), int(space.result[4])
        kept = np.ones(pairs, np.bool_)
        first = 0
        for segment, last in zip(segments, space.ends.tolist()):
            own = self.keep(segment, space.row[first:last])
            if own is None:
                return False
            kept[first:last] = own
            first = last
        if not kept.all():
            before = np.append(0, np.cumsum(kept))
            space.ends[: len(segments)] = before[space.ends[: len(segments)]]
            space.ids[: before[of_layers]] = space.ids[:of_layers][kept[:of_layers]]
            space.row[: before[pairs]] = space.row[:pairs][kept]
            space.result[0], space.result[4] = before[pairs], before[of_layers]
        return True
