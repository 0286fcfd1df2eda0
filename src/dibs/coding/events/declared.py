"""Values of attributes whose types are declared (language.types), as values of these types.

Most values have the kind of their type already, and are only looked at by the array. A string that says a time is read
by a kernel; all others are converted one by one, once for equal ones. What does not fit is a problem of its event.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from dibs.coding.arrange import writable
from dibs.coding.values import EventProblem, EventValues, Range, number_key
from dibs.errors import EventError
from dibs.language.expression import Kind
from dibs.language.functions.plain import Moment, Plain, plain_value
from dibs.language.time_kernels import read_times
from dibs.language.types import Types, domain_of, fit, fit_range, kind_of_type

NOT_DECLARED = 255
DAY = 86_400_000_000
FACTORS = {"timestamp_seconds": 1_000_000, "timestamp_millis": 1_000, "timestamp_micros": 1}
FAR = 50 * 366 * DAY  # microseconds from 1970


class DeclaredNames:
    """The declared types among the names of a batch."""

    def __init__(self, names: Sequence[str], types: Types):
        self.types = {code: types[name] for code, name in enumerate(names) if name in types}
        found = {name: types[name] for name in names if name in types}
        self.plain = [(name, orjson.dumps(name) + b":", type_) for name, type_ in found.items() if "." not in name]
        self.paths = [name for name in found if "." in name]
        self.kind = np.full(len(names), NOT_DECLARED, np.uint8)
        self.is_date = np.zeros(len(names), np.bool_)
        self.reads_times = np.zeros(len(names), np.bool_)  # strings are times
        self.factor = np.zeros(len(names), np.int64)  # of numbers that are times: microseconds
        # Domains of integers; others have no ends.
        self.domains: dict[int, tuple[int, int]] = {}
        self.low, self.high = np.full(len(names), -np.inf), np.full(len(names), np.inf)
        for code, type_ in self.types.items():
            self.kind[code] = kind_of_type(type_)
            if (domain := domain_of(type_)) is not None:
                self.low[code], self.high[code] = domain
                self.domains[code] = domain
            self.factor[code] = FACTORS.get(type_, 0)
            self.is_date[code] = type_ == "date"
            self.reads_times[code] = type_ in ("date", "timestamp")


def convert(values: EventValues, names: DeclaredNames, on_error: str) -> EventValues:
    """Raises EventError for the first event with a value that does not fit, unless such values are to be listed."""
    conversion = _Conversion(values, names)
    conversion.run()
    return conversion.finish(on_error)


class _Conversion:
    def __init__(self, values: EventValues, names: DeclaredNames):
        self.values, self.names = values, names
        self.kept: dict[str, NDArray[np.bool_]] = {}
        self.added: dict[str, list[tuple[Any, ...]]] = {"numbers": [], "strings": [], "times": [], "booleans": []}
        self.times: list[tuple[NDArray[Any], ...]] = []  # that were read at once
        self.bad: list[tuple[int, int, Plain]] = []  # event, name, value
        self.ranges: list[tuple[int, int, Range]] = []
        self.known: dict[tuple[str, type, Plain], Plain] = {}

    def run(self) -> None:
        values = self.values
        n, s, t, b = values.numbers, values.strings, values.times, values.booleans
        self._read_epochs()
        self._take("numbers", n, Kind.NUMBER, lambda row: _number(n.value[row], n.rest[row]))
        self._read_times()
        self._take("strings", s, Kind.STRING, self._text)
        self._take("times", t, Kind.TIME, lambda row: Moment(int(t.microseconds[row])))
        self._take("booleans", b, Kind.BOOLEAN, lambda row: bool(b.value[row]))
        for event, name, range_ in values.ranges:
            domain = self.names.domains.get(name)
            ends = (range_.lo, range_.hi) if domain is None else fit_range(range_.lo, range_.hi, domain)
            if self.names.kind[name] == Kind.BOOLEAN or ends is None:
                self.bad.append((event, name, str(range_)))
            else:
                self.ranges.append((event, name, range_ if domain is None else Range(*ends)))

    def _text(self, row: int) -> str:
        s = self.values.strings
        return s.data[s.offsets[row] : s.offsets[row + 1]].tobytes().decode()

    def _read_times(self) -> None:
        """Strings that say times."""
        s, names = self.values.strings, self.names
        self.kept["strings"] = np.ones(len(s.event), np.bool_)
        rows = np.flatnonzero(names.reads_times[s.name])
        if not len(rows):
            return
        there, micros = read_times(writable(s.data), s.offsets[rows], s.offsets[rows + 1])
        there &= ~names.is_date[s.name[rows]] | (micros % DAY == 0)
        good = rows[there]
        self.times.append((s.event[good], s.name[good], micros[there]))
        self.kept["strings"][rows] = False
        for row in rows[~there].tolist():
            self.bad.append((int(s.event[row]), int(s.name[row]), self._text(row)))

    def _read_epochs(self) -> None:
        """Whole numbers since 1970; those with a fraction or far away are converted one by one."""
        n, names = self.values.numbers, self.names
        self.kept["numbers"] = np.ones(len(n.event), np.bool_)
        factor = names.factor[n.name]
        whole = (factor > 0) & (n.rest == 0) & (np.floor(n.value) == n.value)
        rows = np.flatnonzero(
            whole & (n.value >= -FAR // np.maximum(factor, 1)) & (n.value <= FAR // np.maximum(factor, 1))
        )
        if len(rows):
            self.times.append((n.event[rows], n.name[rows], n.value[rows].astype(np.int64) * factor[rows]))
            self.kept["numbers"][rows] = False

    def _take(self, key: str, rows: Any, own: Kind, value: Callable[[int], Plain]) -> None:
        """Takes out what is of another kind than its type, and converts it."""
        kind = self.names.kind[rows.name]
        kept = self.kept.setdefault(key, np.ones(len(rows.event), np.bool_))
        other = (kind != NOT_DECLARED) & (kind != own) & kept
        if own == Kind.NUMBER and self.names.domains:
            whole = (np.floor(rows.value) == rows.value) & (rows.rest == 0)
            inside = whole & (rows.value >= self.names.low[rows.name]) & (rows.value <= self.names.high[rows.name])
            other |= np.isfinite(self.names.low[rows.name]) & ~inside & kept
        if own == Kind.TIME:
            other |= self.names.is_date[rows.name] & (rows.microseconds % DAY != 0)
        for row in np.flatnonzero(other).tolist():
            self._convert(int(rows.event[row]), int(rows.name[row]), value(row))
        kept[other] = False

    def _convert(self, event: int, name: int, value: Plain) -> None:
        type_ = self.names.types[name]
        key = (type_, type(value), value)
        if key not in self.known:
            self.known[key] = fit(value, type_)
        found = self.known[key]
        if found is None:
            self.bad.append((event, name, value))
        elif isinstance(found, bool):
            self.added["booleans"].append((event, name, found))
        elif isinstance(found, (int, float)):
            self.added["numbers"].append((event, name, *number_key(found)))
        elif isinstance(found, str):
            self.added["strings"].append((event, name, found.encode()))
        elif isinstance(found, Moment):
            self.added["times"].append((event, name, found.microseconds))

    def finish(self, on_error: str) -> EventValues:
        if self.bad and on_error == "raise":
            event, name, value = min(self.bad, key=lambda bad: bad[:2])
            raise EventError(self._message(name, value), event, self.values.names[name])
        same = self.ranges == self.values.ranges
        if not self.bad and not self.times and same and all(kept.all() for kept in self.kept.values()):
            return self.values
        values = self.values
        made: dict[str, Any] = {}
        for key in ("numbers", "times", "booleans"):
            made[key] = self._rows(key)
        made["strings"] = self._strings()
        u = values.unreadable
        places = np.array([(event, name) for event, name, _ in self.bad], np.int32).reshape(-1, 2)
        made["unreadable"] = type(u)(np.append(u.event, places[:, 0]), np.append(u.name, places[:, 1]))
        problems = [EventProblem(e, values.names[n], self._message(n, value)) for e, n, value in self.bad]
        everything = sorted([*values.problems, *problems], key=lambda problem: problem.event)
        return replace(values, **made, ranges=self.ranges, problems=everything)

    def _rows(self, key: str) -> Any:
        rows = getattr(self.values, key)
        columns = [column[self.kept[key]] for column in rows]
        if self.added[key]:
            columns = [np.append(c, np.array(more, c.dtype)) for c, more in zip(columns, zip(*self.added[key]))]
        if key == "times":
            for some in self.times:
                columns = [np.append(c, more) for c, more in zip(columns, some)]
        return type(rows)(*columns)

    def _strings(self) -> Any:
        s, kept, added = self.values.strings, self.kept["strings"], self.added["strings"]
        sizes = np.diff(s.offsets)
        data = s.data[s.offsets[0] : s.offsets[-1]][np.repeat(kept, sizes)] if not kept.all() else s.data
        texts = [text for *_, text in added]
        lengths = np.append(sizes[kept], np.array([len(text) for text in texts], np.int64))
        if kept.all():
            data = s.data[: s.offsets[-1]]
        data = np.append(data, np.frombuffer(b"".join(texts), np.uint8))
        offsets = np.append(0, np.cumsum(lengths)).astype(np.int64)
        places = np.array([row[:2] for row in added], np.int32).reshape(-1, 2)
        return type(s)(np.append(s.event[kept], places[:, 0]), np.append(s.name[kept], places[:, 1]), offsets, data)

    def _message(self, name: int, value: Plain) -> str:
        type_ = self.names.types[name]
        shown = repr(value) if not isinstance(value, Moment) else f"a time that is no {type_}"
        shown = shown if len(shown) <= 60 else shown[:57] + "..."
        return f"found {shown}; expected {'an' if type_[0] == 'i' else 'a'} {type_}, as types says"


def _number(near: float, rest: int) -> int | float:
    if np.isinf(near):
        return float("nan") if rest else float(near)
    return plain_value(int(near) + int(rest) if rest else float(near))
