"""Which documents are kept, and the states without the others."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Union

from dibs.arguments import check_number, is_integer
from dibs.errors import ArgumentError, show
from dibs.history.keys import TIME
from dibs.history.state import HistoryState, Part, latest_time
from dibs.language.expression import MICROSECOND
from dibs.tuning import tuned

HISTORY_COMPACTED = tuned(
    "history_compacted", 1_000, 1, "documents", "that are gone before anything of them is given up"
)

EXPECTED = "a number of documents, a timedelta, or dibs.Retain(count=..., age=..., by=...)"


@dataclass(frozen=True)
class Retain:
    """How much history is kept: the last `count` documents, and of these only such that are at most `age` older, by the
    time in their attribute `by`, than the latest that came. None: no limit.

    A document exactly `age` older is kept. One without such a time is kept until its turn by `count`. Time is that of
    the documents and not of a clock, so that the same documents always leave the same history."""

    count: int | None = None
    age: dt.timedelta | None = None
    by: str = "time"

    def __post_init__(self) -> None:
        if self.count is not None:
            check_number("count", self.count, 0, "a number of documents")
        if self.age is not None and (not isinstance(self.age, dt.timedelta) or self.age < dt.timedelta()):
            raise ArgumentError(f"age must be a timedelta that is not negative, not {show(self.age)}")
        if not isinstance(self.by, str) or not self.by:
            raise ArgumentError(f"by must be the name of an attribute, not {show(self.by)}")

    @property
    def microseconds(self) -> int | None:
        return None if self.age is None else self.age // MICROSECOND


Retention = Union[int, dt.timedelta, Retain, None]


def check_retain(retain: Any) -> Retain:
    if retain is None:
        return Retain()
    if isinstance(retain, Retain):
        return retain
    if isinstance(retain, dt.timedelta):
        return Retain(age=retain)
    if is_integer(retain):
        return Retain(count=int(retain))
    raise ArgumentError(f"retain must be {EXPECTED}, not {show(retain)}")


# ---- states with fewer documents ----


def with_last(state: HistoryState, count: int) -> HistoryState:
    """With the last so many documents."""
    surplus = len(state) - count
    if surplus <= 0:
        return state
    if not state.gone:
        return replace(state, first=state.first + surplus)
    first, gone = state.first, set(state.gone)
    while surplus:
        if first in gone:
            gone.discard(first)
        else:
            surplus -= 1
        first += 1
    return _tidy(replace(state, first=first, gone=frozenset(gone)))


def with_recent(state: HistoryState, by: str, age: int, all_times: bool) -> HistoryState:
    """Without documents that are more than `age` older than the latest."""
    column = state.column(by)
    last = range(state.end - 1 if not all_times else state.first, state.end)
    times = [time for row in last if (time := latest_time(column[row - state.base])) is not None]
    if not times:
        return state
    newest = max(times) if state.newest is None else max(state.newest, *times)
    limit = newest - age
    low: tuple[int, ...] = (TIME,)
    if not all_times and state.newest is not None:
        low = (TIME, state.newest - age)  # all that is earlier is gone already, but for the one that has just come
    rows = earlier(state, by, low, limit)
    if not all_times and times[0] < limit:
        rows.append(state.end - 1)
    return replace(without(state, rows), newest=newest)


def earlier(state: HistoryState, by: str, low: tuple[int, ...], limit: int) -> list[int]:
    """The documents whose latest time in this attribute is earlier than the limit, from `low` (TIME, or that and a
    time) on."""
    found = state.by_time(by).between(low[1] if len(low) > 1 else None, limit)
    return [row for row in found if state.is_there(row)]


def without(state: HistoryState, rows: Iterable[int]) -> HistoryState:
    gone = state.gone.union(rows)
    return state if len(gone) == len(state.gone) else _tidy(replace(state, gone=gone))


def _tidy(state: HistoryState) -> HistoryState:
    """With those that are gone at the beginning told by `first`."""
    if state.first not in state.gone:
        return state
    first, gone = state.first, set(state.gone)
    while first in gone:
        gone.discard(first)
        first += 1
    return replace(state, first=first, gone=frozenset(gone))


def compact(state: HistoryState) -> HistoryState:
    """Without anything of the documents that are gone, if these have become more than those that are there."""
    lost = state.first - state.base + len(state.gone)
    if lost <= max(len(state), HISTORY_COMPACTED.value):
        return state
    place = state.first - state.base
    size = state.end - state.base
    parts = tuple(part for part in state.parts if part.first + len(part.rows) > state.first)
    if parts and isinstance(parts[0].rows, list) and parts[0].first < state.first:
        rows = parts[0].rows[state.first - parts[0].first :]
        parts = (Part(state.first, rows, parts[0].attributes), *parts[1:])
    columns = {name: column[place:size] for name, column in state.columns.copy().items()}
    return replace(state, base=state.first, parts=parts, keys=state.keys[place:size], columns=columns, ages={})
