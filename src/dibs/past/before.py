"""Stored events as joins over history see them: each after those before it."""

from __future__ import annotations

from typing import Any

import numpy as np

from dibs.coding.events import WantedNames, read_events
from dibs.coding.values import EventValues
from dibs.history.derive import Joins, Remembering
from dibs.history.history import History
from dibs.history.plan import Candidates, Costs
from dibs.history.prefilter import PreFilter
from dibs.history.retention import Retention, check_retain
from dibs.language.present import Instants, Present, read_clock
from dibs.language.types import NO_TYPES, Types


class Before:
    """A history of its own: empty, or with some documents, and then the events one after the other."""

    def __init__(
        self,
        joins: tuple[str, ...],
        documents: Any = None,
        retain: Retention = None,
        now: Present | Instants = None,
        types: Types = NO_TYPES,
    ):
        """now: the time of the match, one for all events unless it is the name of an attribute."""
        self._joins = Joins(joins, Costs(), PreFilter()) if joins else None
        self._now = read_clock() if now is None else now
        self._history, self._types = History(check_retain(retain), types), types
        if documents is not None:
            self._history.load(documents)

    def read(self, events: Any, names: WantedNames, attributes: str | None) -> EventValues:
        """The values of the next events, with those of the joins; what cannot be read is in .problems."""
        joins = self._joins
        if joins is None:
            return read_events(events, names, attributes, on_error="skip", now=self._now, types=self._types)
        turn = Remembering(self._history, events, attributes)

        def read() -> EventValues:
            values = read_events(turn.rows, names, attributes, on_error="skip", now=self._now, types=self._types)
            turn.begin(values)
            derived = joins.derive(values, self._all_joins, (), self._history.state, turn)
            turn.remember()
            return derived

        return self._history.change(read)

    def _all_joins(self, values: EventValues, *_: Any) -> Candidates:
        """All of them are needed for all events: no index tells which are not."""
        assert self._joins is not None
        names = self._joins.names
        event = np.repeat(np.arange(values.events), len(names))
        yield names, event, np.tile(np.arange(len(names)), values.events)
