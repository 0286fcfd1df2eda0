"""The values of a batch of events in long form: one row for each value, grouped by kind.

This is the meeting point of all entries (dicts, JSON lines, Arrow) and holds no Python object per event or value.
`numbers` carry a key that orders int64, uint64 and float64 by mathematical value: (value, rest) where value is the
nearest float64 and rest what is left of an integer; NaN is (inf, 1), so it equals itself and is above all else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.jit.undisturbed import bring
from dibs.language.expression import Kind, number_key
from dibs.lazy import lazy

if TYPE_CHECKING:
    from dibs.coding.arrange import Arranged

__all__ = [
    "ArrangedValues",
    "Booleans",
    "EventProblem",
    "EventValues",
    "Names",
    "Numbers",
    "Range",
    "Strings",
    "Times",
    "Unreadable",
    "float_keys",
    "integer_keys",
    "number_key",
]


class Range:
    """An event value that is a whole range, both ends included; None leaves an end open (not both).

    A predicate holds when some value in the range would satisfy it. Ranges are dense: between two different values
    there is always another one. LIKE, RLIKE, ENDSWITH and CONTAINS over a range of strings are unknown.
    """

    __slots__ = ("hi", "lo")

    def __init__(self, lo: Any, hi: Any):
        self.lo = lo
        self.hi = hi

    def __repr__(self) -> str:
        return f"Range({self.lo!r}, {self.hi!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Range) and (self.lo, self.hi) == (other.lo, other.hi)

    def __hash__(self) -> int:
        return hash((Range, self.lo, self.hi))


class Numbers(NamedTuple):
    event: NDArray[np.int32]
    name: NDArray[np.int32]  # index into EventValues.names
    value: NDArray[np.float64]  # never NaN, never -0.0
    rest: NDArray[np.int16]


class Strings(NamedTuple):
    event: NDArray[np.int32]
    name: NDArray[np.int32]
    offsets: NDArray[np.int64]  # len = rows + 1; string i is data[offsets[i]:offsets[i + 1]], valid UTF-8
    data: NDArray[np.uint8]


class Times(NamedTuple):
    event: NDArray[np.int32]
    name: NDArray[np.int32]
    microseconds: NDArray[np.int64]  # since 1970-01-01 UTC


class Booleans(NamedTuple):
    event: NDArray[np.int32]
    name: NDArray[np.int32]
    value: NDArray[np.uint8]  # 0 or 1


class Unreadable(NamedTuple):
    """Values that are there but of no kind: every predicate on them is unknown, IS NULL and IS NOT NULL included."""

    event: NDArray[np.int32]
    name: NDArray[np.int32]


class EventProblem(NamedTuple):
    """Something in an event that could not be read. `attribute` None: the whole event (it then matches nothing)."""

    event: int
    attribute: str | None
    message: str


def _ints() -> NDArray[np.int32]:
    return np.empty(0, np.int32)


class Names(list[str]):
    """Names of attributes, none twice, with the number of each: its place."""

    def __init__(self, names: Iterable[str] = (), family: object = None):
        super().__init__(names)
        self._family = family or object()  # of all lists of which the longer extend the shorter

    def extend_by(self, new: Sequence[str]) -> Names:
        """With new names behind. At most one extension of a list may be made, so that `extends` tells the truth."""
        result = Names(self, self._family)
        result.extend(new)
        codes = self.codes.copy()
        codes.update(zip(new, range(len(self), len(result))))
        result.__dict__["codes"] = codes
        return result

    def extends(self, other: list[str]) -> bool:
        """Whether it begins with the other names, known at once."""
        return isinstance(other, Names) and other._family is self._family and len(other) <= len(self)

    @lazy
    def codes(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self)}


@dataclass
class EventValues:
    """One batch. Within an event, an attribute with several rows is multi-valued; one with none is missing."""

    events: int
    names: list[str]  # no name twice
    numbers: Numbers = field(
        default_factory=lambda: Numbers(_ints(), _ints(), np.empty(0, np.float64), np.empty(0, np.int16))
    )
    strings: Strings = field(
        default_factory=lambda: Strings(_ints(), _ints(), np.zeros(1, np.int64), np.empty(0, np.uint8))
    )
    times: Times = field(default_factory=lambda: Times(_ints(), _ints(), np.empty(0, np.int64)))
    booleans: Booleans = field(default_factory=lambda: Booleans(_ints(), _ints(), np.empty(0, np.uint8)))
    ranges: list[tuple[int, int, Range]] = field(default_factory=list)  # (event, name, range)
    unreadable: Unreadable = field(default_factory=lambda: Unreadable(_ints(), _ints()))
    unreadable_events: NDArray[np.int32] = field(default_factory=_ints)  # these match nothing at all
    problems: list[EventProblem] = field(default_factory=list)

    @lazy
    def arranged(self) -> Arranged | None:
        """By event and name; None if that cannot be done quickly."""
        arranged: Arranged | None = bring("dibs.coding.arrange").arrange_values(self)
        return arranged  # its kernels are not imported by who only wants a Range


class ArrangedValues(EventValues):
    """Values that were read by event and name already. The columns of a kind are made when somebody asks for them."""

    @classmethod
    def of(cls, events: int, names: list[str], columns: Arranged, strings: Strings, in_order: bool) -> ArrangedValues:
        """columns: of numbers, strings and booleans only; by name within an event, if they are in order."""
        result = cls(events, names, strings=strings)
        del result.__dict__["numbers"], result.__dict__["booleans"]
        result.__dict__["arranged"] = columns if in_order else None
        result.__dict__["_columns"] = columns
        return result

    def __getattr__(self, name: str) -> Any:
        if name not in ("numbers", "booleans"):
            raise AttributeError(name)
        offsets, names, kind, key, rest = self.__dict__["_columns"]
        rows = np.flatnonzero(kind == (Kind.NUMBER if name == "numbers" else Kind.BOOLEAN))
        event = (np.searchsorted(offsets, rows, side="right") - 1).astype(np.int32)
        made: Any = (
            Numbers(event, names[rows], key[rows].view(np.float64), rest[rows])
            if name == "numbers"
            else Booleans(event, names[rows], key[rows].astype(np.uint8))
        )
        self.__dict__[name] = made
        return made


def integer_keys(values: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.int16]]:
    """(value, rest) of int64 or uint64 (or narrower) integers."""
    near = values.astype(np.float64)
    if values.dtype.itemsize < 8 or not len(values) or max(abs(near.min()), abs(near.max())) < 2.0**53:
        return near, np.zeros(len(values), np.int16)
    # 2**63 (2**64 for uint64) itself is no value of the type: step back by one representable float, then correct.
    top = 2.0**63 if values.dtype.kind == "i" else 2.0**64
    at_top = near >= top
    step = 1024.0 if values.dtype.kind == "i" else 2048.0
    back = np.where(at_top, top - step, near).astype(values.dtype)
    with np.errstate(over="ignore"):
        rest = (values - back).view(np.int64) if values.dtype.kind == "u" else values - back
    return near, (rest - np.where(at_top, np.int64(step), 0)).astype(np.int16)


def float_keys(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.int16]]:
    """(value, rest) of floats; -0.0 becomes 0.0 and NaN (inf, 1)."""
    nan = np.isnan(values)
    return np.where(nan, np.inf, values) + 0.0, nan.astype(np.int16)


def without_names(values: EventValues, codes: NDArray[np.bool_]) -> EventValues:
    """Without the values of these names, of which there hardly ever are any."""
    n, s, t, b, u = values.numbers, values.strings, values.times, values.booleans, values.unreadable
    if not any(codes[each.name].any() for each in (n, s, t, b, u)) and not any(codes[x] for _, x, _ in values.ranges):
        return values
    ranges = [row for row in values.ranges if not codes[row[1]]]
    return replace(values, **rows_where(values, lambda event, name: ~codes[name]), ranges=ranges)


def rows_where(values: EventValues, is_kept: Callable[[Any, Any], NDArray[np.bool_]]) -> dict[str, Any]:
    """The rows of each kind of which that is true."""
    n, s, t, b, u = values.numbers, values.strings, values.times, values.booleans, values.unreadable
    kept = is_kept(s.event, s.name)
    lengths = np.diff(s.offsets)
    offsets = np.append(0, np.cumsum(lengths[kept])).astype(np.int64)
    rows: dict[str, Any] = {"strings": Strings(s.event[kept], s.name[kept], offsets, s.data[np.repeat(kept, lengths)])}
    others: dict[str, Any] = {"numbers": n, "times": t, "booleans": b, "unreadable": u}
    for key, columns in others.items():
        own = is_kept(columns.event, columns.name)
        rows[key] = columns._make(column[own] for column in columns)
    return rows
