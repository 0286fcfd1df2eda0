"""Which type has a column of a CSV file? Every value counts, and none may change by it.

    integer or number    every value is a number as JSON writes it (no plus, no leading zeros), and stays the same: an
                         integer of 64 bits, or what a float64 shows again as it was (2.50 is 2.5; 0.1 is 0.1)
    boolean              true and false
    date, timestamp      2024-01-31; 2024-01-31 12:00:00, also with T, fractions down to microseconds, and a zone
    text                 everything else
    ids                  integers if all of them are integers of 64 bits as they are usually written, else text

What a user says with --types goes before all that; then numbers may have leading zeros and a plus, and may be rounded.
"""

from __future__ import annotations

from decimal import Decimal
from enum import Enum
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dibs.cli.outcome import BadInput

ID = r"^(0|-?[1-9][0-9]*)$"
INTEGER = r"^-?(0|[1-9][0-9]*)$"
NUMBER = r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$"
ANY_NUMBER = r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?$|^(NaN|[+-]?(Infinity|inf))$"
BOOLEAN = r"^(true|false|True|False|TRUE|FALSE)$"
ANY_BOOLEAN = r"(?i)^(true|false|yes|no|t|f|y|n|1|0)$"
TRUE = r"(?i)^(true|yes|t|y|1)$"
DATE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
TIMESTAMP = (
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?(Z|[+-][0-9]{2}:?[0-9]{2})?)?$"
)
ZONE = r"[0-9]{2}:[0-9]{2}.*(Z|[+-][0-9]{2}:?[0-9]{2})$"
FRACTION = r"^-?[0-9]+\.[0-9]*[1-9]$"
SHORT = 15  # characters of a number without exponent that a float64 always shows again


class Kind(str, Enum):
    text = "text"
    number = "number"
    boolean = "boolean"
    date = "date"
    timestamp = "timestamp"


EXAMPLES = {
    Kind.number: "-1.5",
    Kind.boolean: "true or false",
    Kind.date: "2024-01-31",
    Kind.timestamp: "2024-01-31 12:00:00 or 2024-01-31T12:00:00.5Z",
}


class Column:
    """What is known of a column after some of its rows. kind: what it has to be, if that is given."""

    def __init__(self, name: str, kind: Kind | None = None, is_id: bool = False):
        self.name, self.kind, self.is_id = name, kind, is_id
        self.values = self.numbers = 0  # that are there; of them those that look like numbers
        kinds = [Kind.number] if is_id else [Kind.number, Kind.boolean, Kind.date, Kind.timestamp]
        self.possible = [k for k in kinds if kind in (None, k)]
        self.no_number = ("", 0)  # the first value that is none, or would change, and its row, counted from 1
        self.integers = True
        self.least = self.most = 0  # of the integers
        self.finite = True
        self.as_float = True  # whether a float64 holds every value
        self.digits = [0, 0]  # before the point and after it: the most there are

    def look(self, texts: pa.Array, first: int) -> None:
        """Takes the next rows into account. first: the number of the first of them, counted from 1."""
        texts = texts.cast(pa.binary())  # it may be no UTF-8
        there = texts.drop_null()
        self.values += len(there)
        if not len(there) or self.kind is Kind.text:
            return
        if self.kind is None:
            self.numbers += _count(there, ANY_NUMBER)
        for kind in list(self.possible):
            fits = self._fit(kind, there)
            if fits is None:
                continue
            at = _row(texts, fits)
            if self.kind is not None:
                place = f"row {first + at}, column {self.name!r}"
                raise BadInput(
                    f"{place}: {_show(texts[at])!r} is no {kind.value}, as --types says; expected {EXAMPLES[kind]}"
                )
            self.possible.remove(kind)
            if kind is Kind.number:
                self.no_number = (_show(texts[at]), first + at)

    def _fit(self, kind: Kind, there: pa.Array) -> int | None:
        """The place of the first value that is none of the kind."""
        given = self.kind is not None
        if kind is Kind.boolean:
            return _first_other(there, ANY_BOOLEAN if given else BOOLEAN)
        if kind is Kind.number:
            wrong = _first_other(there, ANY_NUMBER if given else ID if self.is_id else NUMBER)
            return self._measure(there) if wrong is None else wrong
        wrong = _first_other(there, DATE if kind is Kind.date else TIMESTAMP)
        return _first_impossible(there, kind) if wrong is None else wrong

    def _measure(self, there: pa.Array) -> int | None:
        """Takes numbers into account; the place of the first one that would not stay as it is."""
        texts = _plain_numbers(there.cast(pa.string()))
        self.integers = self.integers and _first_other(texts, INTEGER) is None
        simple = pc.and_(
            pc.less_equal(pc.binary_length(texts), SHORT), pc.invert(pc.match_substring_regex(texts, "[a-zA-Z]"))
        )
        self._take_simple(texts.filter(simple))
        places = np.flatnonzero(~simple.to_numpy(zero_copy_only=False))
        others = texts.take(pa.array(places))
        if not self._take_integers(others):
            shown = _show_again(others)
            self._take_simple(others.filter(pa.array(shown)))
            places, others = places[~shown], others.filter(pa.array(~shown))
            for place, text in zip(places.tolist(), others.to_pylist()):
                if not self._take(text):
                    return int(place)
        return None

    def _take_simple(self, texts: pa.Array) -> None:
        """Numbers that a float64 shows again."""
        if not len(texts):
            return
        size, point = pc.binary_length(texts).to_numpy(), pc.find_substring(texts, ".").to_numpy()
        whole = np.where(point < 0, size, point)  # with the sign, so that it is one digit too many at most
        self.digits = [max(self.digits[0], int(whole.max())), max(self.digits[1], int((size - whole).max()) - 1)]
        self._take_integers(texts.filter(pc.match_substring_regex(texts, INTEGER)))

    def _take_integers(self, texts: pa.Array) -> bool:
        """False if they are not all of 64 bits with sign."""
        try:
            values = texts.cast(pa.int64()).to_numpy()
        except pa.ArrowInvalid:
            return False
        if len(values):
            self.least, self.most = min(self.least, int(values.min())), max(self.most, int(values.max()))
            self.digits[0] = max(self.digits[0], len(str(max(self.most, -self.least))))
            as_float = values.astype(np.float64)
            large = np.abs(as_float) >= 2.0**53
            self.as_float = self.as_float and all(int(f) == int(v) for f, v in zip(as_float[large], values[large]))
        return True

    def _take(self, text: str) -> bool:
        """One number that needs care; False if it would change."""
        near = float(text)
        value = Decimal(text)
        if not value.is_finite():
            self.finite = False
            return True
        if value.adjusted() < 400 and value == value.to_integral_value():
            whole = int(value)
            self.least, self.most = min(self.least, whole), max(self.most, whole)
            is_exact = not np.isinf(near) and int(near) == whole
            stays = is_exact or -(2**63) <= whole < 2**64
        else:
            is_exact = stays = not np.isinf(near) and Decimal(repr(near)) == value
        self.as_float = self.as_float and is_exact
        exponent = value.as_tuple().exponent
        assert isinstance(exponent, int)
        self.digits = [max(self.digits[0], value.adjusted() + 1), max(self.digits[1], -exponent)]
        return stays or (self.kind is Kind.number and not np.isinf(near))

    def type(self) -> pa.DataType:
        """Of the column, when all rows have been seen."""
        if not self.values or not self.possible:
            return pa.large_string()
        kind = self.possible[0]
        if self.is_id and not self._fits_int64():
            return pa.large_string()
        if kind is Kind.number:
            return self._number_type()
        return {Kind.boolean: pa.bool_(), Kind.date: pa.date32(), Kind.timestamp: pa.timestamp("us", "UTC")}[kind]

    def _fits_int64(self) -> bool:
        return -(2**63) <= self.least and self.most < 2**63

    def _number_type(self) -> pa.DataType:
        if self.integers and self._fits_int64():
            return pa.int64()
        if self.integers and self.least >= 0 and self.most < 2**64:
            return pa.uint64()
        width = self.digits[0] + self.digits[1]
        if self.as_float or not self.finite or (width > 76 and self.kind is Kind.number):
            return pa.float64()
        if width > 76:
            return pa.large_string()
        # Integers of 64 bits beside fractions: a decimal holds both, and events are read from it as they should be.
        return pa.decimal128(38, self.digits[1]) if width <= 38 else pa.decimal256(76, self.digits[1])

    def note(self) -> str:
        """What a person should know who expected numbers: why there are none; empty where there is nothing to say."""
        if self.kind is not None or self.is_id or 2 * self.numbers <= self.values or self.possible:
            return ""
        value, row = self.no_number
        return (
            f"column {self.name!r} is text, because {value!r} (row {row}) is no number, or would not stay as it is; "
            f"--types {self.name}=number or {self.name}=text decides it"
        )


def convert_column(texts: pa.Array, type_: pa.DataType) -> pa.Array:
    """The rows as values of the type that the column was found to have."""
    if pa.types.is_large_string(type_):
        return texts.cast(type_)
    if pa.types.is_boolean(type_):
        return pc.match_substring_regex(texts, TRUE)
    if pa.types.is_timestamp(type_):
        return _timestamps(texts)
    if pa.types.is_date(type_):
        return texts.cast(type_)
    texts = _plain_numbers(texts)
    if pa.types.is_decimal(type_):
        return pa.array([None if text is None else Decimal(text) for text in texts.to_pylist()], type_)
    return texts.cast(type_)


def _plain_numbers(texts: pa.Array) -> pa.Array:
    """Without plus and leading zeros."""
    if _count(texts, r"^([+]|-?0[0-9])"):
        texts = pc.replace_substring_regex(texts, r"^\+", "")
        texts = pc.replace_substring_regex(texts, r"^(-?)0+([0-9])", r"\1\2")
    return texts


def _show_again(texts: pa.Array) -> NDArray[np.bool_]:
    """Which are fractions that Arrow writes just so when it has read them as float64: nearly all that programs write.
    Not integers: beyond 2**53 the shortest text of a float64 need not be its value."""
    fractions = pc.if_else(pc.match_substring_regex(texts, FRACTION), texts, pa.scalar(None, texts.type))
    same = pc.equal(fractions.cast(pa.float64()).cast(texts.type), texts)
    return same.fill_null(False).to_numpy(zero_copy_only=False)


def _timestamps(texts: pa.Array) -> pa.Array:
    zoned = pc.match_substring_regex(texts, ZONE)
    nothing = pa.scalar(None, texts.type)
    utc = pa.timestamp("us", "UTC")
    with_zone = pc.if_else(zoned, texts, nothing).cast(utc)
    without = pc.if_else(zoned, nothing, texts).cast(pa.timestamp("us")).cast(pa.int64()).cast(utc)
    return pc.coalesce(with_zone, without)


def _count(texts: pa.Array, pattern: str) -> int:
    return pc.sum(pc.match_substring_regex(texts, pattern)).as_py() or 0


def _first_other(texts: pa.Array, pattern: str) -> int | None:
    """The place of the first text that does not match."""
    matching = pc.match_substring_regex(texts, pattern).to_numpy(zero_copy_only=False)
    return None if matching.all() else int(matching.argmin())


def _first_impossible(there: pa.Array, kind: Kind) -> int | None:
    """The place of the first date that no calendar has."""
    texts = there.cast(pa.string())
    convert: Any = _timestamps if kind is Kind.timestamp else (lambda part: part.cast(pa.date32()))
    try:
        convert(texts)
        return None
    except pa.ArrowInvalid:
        pass
    low, high = 0, len(texts)  # the first `low` are fine, among the first `high` one is not
    while high - low > 1:
        middle = (low + high) // 2
        try:
            convert(texts.slice(low, middle - low))
            low = middle
        except pa.ArrowInvalid:
            high = middle
    return low


def _row(texts: pa.Array, place: int) -> int:
    """The row of a value, counted from 0, by its place among those that are there."""
    return int(np.flatnonzero(pc.is_valid(texts).to_numpy(zero_copy_only=False))[place])


def _show(value: pa.Scalar) -> str:
    text = value.as_py().decode(errors="replace")
    return text if len(text) <= 60 else text[:57] + "..."
