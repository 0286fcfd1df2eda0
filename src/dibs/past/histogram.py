"""When the matches were: counts by hour, day, month..., in UTC.

Times come batch by batch and nobody knows the first and the last in advance: they are counted by the minute until
there are too many minutes, then by the hour, and so on. In the end the finest step is chosen that gives few enough
buckets.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dibs.coding.events.arrow_types import ROLE, WRAPPERS, unwrap
from dibs.coding.events.arrow_values import microseconds
from dibs.errors import EventError

SHOWN = 60  # buckets at most
KEPT = 1 << 14  # buckets that are counted apart before the step grows; more than the days of SHOWN weeks
WIDTH = 40  # characters of the longest bar

EventTimes = NDArray[np.int64]  # microseconds since 1970 UTC
_MINUTE = 60_000_000
_DAY = 1_440 * _MINUTE
_MONDAY = 4  # 1970-01-05 was one


def _by(size: int, start: int = 0) -> Callable[[EventTimes], EventTimes]:
    return lambda times: (times - start) // size


def _by_month(months: int) -> Callable[[EventTimes], EventTimes]:
    return lambda times: (times // _DAY).astype("datetime64[D]").astype("datetime64[M]").astype(np.int64) // months


# (name, number of the bucket of a time, the time at which a bucket begins). Each step is coarser than the one before.
_STEPS: list[tuple[str, Callable[[EventTimes], EventTimes], Callable[[EventTimes], EventTimes]]] = [
    ("minute", _by(_MINUTE), lambda n: n * _MINUTE),
    ("hour", _by(60 * _MINUTE), lambda n: n * 60 * _MINUTE),
    ("day", _by(_DAY), lambda n: n * _DAY),
    ("week", _by(7 * _DAY, _MONDAY * _DAY), lambda n: (7 * n + _MONDAY) * _DAY),
]


def _from_month(months: int) -> Callable[[EventTimes], EventTimes]:
    return lambda n: (n * months).astype("datetime64[M]").astype("datetime64[D]").astype(np.int64) * _DAY


for _name, _months in (("month", 1), ("year", 12), ("decade", 120), ("century", 1_200), ("100 centuries", 120_000)):
    _STEPS.append((_name, _by_month(_months), _from_month(_months)))


@dataclass
class Histogram:
    """`counts[i]` matches were between `starts[i]` and the next start; `untimed` had no time."""

    column: str
    step: str
    starts: list[str]  # ISO 8601, as much of it as the step needs
    counts: list[int]
    untimed: int

    def __iter__(self) -> Iterator[tuple[str, int]]:
        return iter(zip(self.starts, self.counts))

    def __len__(self) -> int:
        return len(self.starts)

    def __str__(self) -> str:
        most = max(self.counts, default=0)
        digits = len(f"{most:,}")
        lines = [f"by {self.step} of {self.column} (UTC):"]
        for start, count in self:
            bar = "█" * (max(1, round(WIDTH * count / most)) if count else 0)
            lines.append(f"  {start}  {count:>{digits},}  {bar}".rstrip())
        if self.untimed:
            lines.append(f"  without a time: {self.untimed:,}")
        return "\n".join(lines)


@dataclass
class HistogramCounting:
    """The histogram of one expression while events pass."""

    column: str
    step: int = 0
    numbers: EventTimes = field(default_factory=lambda: np.empty(0, np.int64))  # of buckets, sorted
    counts: EventTimes = field(default_factory=lambda: np.empty(0, np.int64))
    untimed: int = 0
    dates: bool = True  # all times are midnights: nobody wants to see hours of them

    def add(self, times: EventTimes, untimed: int) -> None:
        self.untimed += untimed
        if not len(times):
            return
        self.dates = self.dates and not (times % _DAY).any()
        numbers, counts = np.unique(_STEPS[self.step][1](times), return_counts=True)
        self._join(np.concatenate([self.numbers, numbers]), np.concatenate([self.counts, counts]))
        while len(self.numbers) > KEPT and self.step + 1 < len(_STEPS):
            starts = _STEPS[self.step][2](self.numbers)
            self.step += 2 if _STEPS[self.step + 1][0] == "week" else 1  # a week may lie in two months
            self._join(_STEPS[self.step][1](starts), self.counts)

    def _join(self, numbers: EventTimes, counts: EventTimes) -> None:
        self.numbers, place = np.unique(numbers, return_inverse=True)
        self.counts = np.zeros(len(self.numbers), np.int64)
        np.add.at(self.counts, place, counts)

    def finish(self) -> Histogram:
        if not len(self.numbers):
            return Histogram(self.column, _STEPS[self.step][0], [], [], self.untimed)
        begun = _STEPS[self.step][2](self.numbers)
        step = max(self.step, 2) if self.dates else self.step
        numbers = _STEPS[step][1](begun)
        while numbers[-1] - numbers[0] >= SHOWN and step + 1 < len(_STEPS):
            step += 1
            numbers = _STEPS[step][1](begun)
        name, _, start_of = _STEPS[step]
        counts = np.zeros(numbers[-1] - numbers[0] + 1, np.int64)  # the empty ones too
        np.add.at(counts, numbers - numbers[0], self.counts)
        starts = start_of(numbers[0] + np.arange(len(counts)))
        return Histogram(self.column, name, [_show(t, name) for t in starts.tolist()], counts.tolist(), self.untimed)


def _show(start: int, step: str) -> str:
    text = str(np.datetime64(start, "us"))
    date, _, clock = text.partition("T")
    if step in ("minute", "hour"):
        return f"{date} {clock[:5]}"
    if step in ("day", "week"):
        return date
    return date.rsplit("-", 1)[0] if step == "month" else date.rsplit("-", 2)[0]


def times_of(data: Any, column: str, events: NDArray[np.int64]) -> tuple[EventTimes, int]:
    """The times of these events of a batch, and how many of them have none. Times are dates and timestamps, or text
    that says one in ISO 8601."""
    if isinstance(data, Sequence):
        array = _from_values([data[event].get(column) for event in events.tolist()], column)
    else:
        array = data.column(column).take(pa.array(events))
        array = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
    while ROLE.get(array.type.id) in WRAPPERS:
        array = unwrap(array)
    role = ROLE.get(array.type.id)
    if role == "text":
        array = _from_values(array.to_pylist(), column)
    elif role not in ("time", "null"):
        raise EventError(f"column {column!r} is of type {array.type}; expected dates or timestamps for time=")
    array = array.drop_null()
    if role == "null" or not len(array):
        return np.empty(0, np.int64), len(events)
    times, outside = microseconds(array)
    times = times if outside is None else times[~outside]
    return times, len(events) - len(times)


def _from_values(values: list[Any], column: str) -> pa.Array:
    result: list[dt.datetime | None] = []
    for value in values:
        if isinstance(value, str):
            try:
                value = dt.datetime.fromisoformat(value.replace("Z", "+00:00"))
            except ValueError:
                value = None
        if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
            value = dt.datetime(value.year, value.month, value.day)
        if value is not None and not isinstance(value, dt.datetime):
            raise EventError(
                f"found a value of type {type(value).__name__} as {column!r}; "
                "expected dates, timestamps or texts in ISO 8601 for time="
            )
        if value is not None and value != value:  # pandas' NaT
            value = None
        if value is not None and value.tzinfo is not None:
            try:
                value = value.astimezone(dt.timezone.utc).replace(tzinfo=None)
            except OverflowError:  # before the year 1, or after 9999
                value = None
        result.append(value)
    return pa.array(result, pa.timestamp("us"))
