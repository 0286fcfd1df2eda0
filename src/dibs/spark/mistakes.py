"""What is probably a mistake: attributes that no event can have, and constants of a kind that an attribute never has.

Both match nothing, where Spark's WHERE fails or casts. And columns that Spark compares in another way than Dibs: CHAR,
collations, timestamps in a session's time zone, decimals of many digits. The types of the events' columns are known
before anything runs, and so are the kinds of all constants (storage.versions.kinds_in), so it is told then: by a
warning, or an error.
"""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import DataFrame
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    MapType,
    NullType,
    NumericType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from dibs.coding.clauses import Clauses
from dibs.coding.domain import NUMBER_BASE, Domains
from dibs.errors import DibsError
from dibs.language.printer import is_derived
from dibs.language.table import Facet
from dibs.matcher import Matcher
from dibs.segments.layer import Layer
from dibs.segments.segment import Segment
from dibs.spark.events import prefix_ends
from dibs.storage.versions import NUMBERS, STRINGS, TIMES, kinds_in

Asked = tuple[str, int]  # an attribute, and the bit of a kind of constants; 0: whatever it is compared with
Uses = Callable[[Collection[Asked]], dict[Asked, int]]  # the number of subscriptions for each


def count_uses(layers: Iterable[Layer], asked: Collection[Asked]) -> dict[Asked, int]:
    counts = dict.fromkeys(asked, 0)
    for layer in layers:
        for each, count in _count(layer, asked).items():
            counts[each] += count
    return counts


def count_kinds(kinds: Iterable[dict[str, int]], asked: Collection[Asked]) -> dict[Asked, int]:
    """The same of subscriptions of which these are the kinds of constants by attribute."""
    counts = dict.fromkeys(asked, 0)
    for own in kinds:
        for name, bit in asked:
            counts[name, bit] += name in own and (not bit or bool(own[name] & bit))
    return counts


def _count(layer: Layer, asked: Collection[Asked]) -> dict[Asked, int]:
    c, d = layer.segment.clauses_by_row, layer.segment.domains
    names = {name for name, _ in asked}
    places = [place for place, (name, _) in enumerate(d.attributes) if name in names]
    own = np.flatnonzero(np.isin(c.attribute, places))
    row = np.searchsorted(c.offsets, own, "right") - 1
    left = ~np.isin(row, layer.gone.list_rows())
    own, row = own[left], row[left]
    attribute, bits = c.attribute[own], _bits(c, d, own)
    found = {}
    for name, bit in asked:
        named = np.isin(attribute, [place for place in places if d.attributes[place][0] == name])
        found[name, bit] = len(np.unique(row[named & ((bits & bit) != 0 if bit else True)]))
    return found


def _bits(c: Clauses, d: Domains, own: NDArray[np.int64]) -> NDArray[np.int64]:
    """The kinds of the constants of some predicates: those of their spans that do not reach over kinds."""
    several = c.hi[own] < 0
    counts = np.where(several, -c.hi[own], 1).astype(np.int64)
    of = np.repeat(np.arange(len(own)), counts)
    within = np.arange(len(of)) - np.repeat(np.cumsum(counts) - counts, counts)
    side = np.where(several[of], c.lo[own][of] + within, 0)
    many = len(c.span_lo) > 0
    low = np.where(several[of], c.span_lo[side] if many else 0, c.lo[own][of])
    high = np.where(several[of], c.span_hi[side] if many else 0, c.hi[own][of])
    attribute = c.attribute[own][of]
    first, last = (_kind(cell, d.string_base[attribute], d.time_base[attribute]) for cell in (low, high))
    compared = np.isin(d.facet[attribute], (int(Facet.VALUE), int(Facet.TIME)))
    kind = np.where(compared, np.where(first == last, first, 0), STRINGS)
    result = np.zeros(len(own), np.int64)
    np.bitwise_or.at(result, of, kind)
    return result


def _kind(cell: NDArray[np.int32], strings: NDArray[np.int32], times: NDArray[np.int32]) -> NDArray[np.int64]:
    return np.where(cell < NUMBER_BASE, 0, np.where(cell < strings, NUMBERS, np.where(cell < times, STRINGS, TIMES)))


# ---- what is told of them ----

# Kinds of columns: the types, the bit of the constants that they are compared with, their name, how to write constants.
KINDS: tuple[tuple[tuple[type[DataType], ...], int, str, str], ...] = (
    ((NumericType,), NUMBERS, "numbers", "write numbers without quotes"),
    ((StringType,), STRINGS, "strings", "write strings in quotes"),
    ((DateType, TimestampType, TimestampNTZType), TIMES, "times", "write DATE '2024-03-01' or TIMESTAMP '...'"),
    ((BooleanType,), 0, "booleans", "write TRUE or FALSE"),
)
NAMES = {bit: name for _, bit, name, _ in KINDS if bit}
READABLE = (NullType, *(type_ for types, *_ in KINDS for type_ in types))
LISTED = 5  # attributes that one sentence names
ALONE = 3  # attributes with the same mistake that have a sentence each
MISSING, OBJECT, UNREADABLE = "missing", "object", "unreadable"
PADDED, COLLATED, ZONED, LONG = "padded", "collated", "zoned", "long"
BY_TYPE = frozenset((OBJECT, UNREADABLE, PADDED, COLLATED, ZONED, LONG))  # what is told of each type for itself
REFUSED = frozenset((PADDED, COLLATED))  # by all, not only by those who are strict
CHAR = "__CHAR_VARCHAR_TYPE_STRING"  # Spark's metadata of a CHAR column, whose type is string
UTC = frozenset(("UTC", "Etc/UTC", "GMT", "Etc/GMT", "Z", "+00:00", "UCT", "Zulu"))
EXACT_DIGITS, INTEGER_DIGITS = 15, 18  # of all decimals that a double has, of all integers that 64 bits have
PLAIN = "UTF8_BINARY"  # the collation of strings that have none


DIFFERENCES = {
    PADDED: "{who} compare{s} {names}, of the type {type}, whose values Spark fills with spaces and compares "
    "without them, which Dibs does not: give the events rtrim(column) instead",
    COLLATED: "{who} compare{s} {names}, of the type {type}, and Dibs compares bytes: give the events the column "
    "with COLLATE UTF8_BINARY, and lower(column) if upper and lower case are to be equal",
    ZONED: "{who} compare{s} {names} with times, and those without a zone are in UTC here, but in Spark's session "
    "time zone {type} there: write the zone, TIMESTAMP '2024-03-01 00:00:00-05:00', or set spark.sql.session.timeZone "
    "to UTC",
    LONG: "{who} compare{s} {names}, of the type {type}, of whose digits Dibs compares the first 15 (of integers, "
    "those of 64 bits): values that differ only behind them are equal to it",
}


class Mistake(NamedTuple):
    what: str  # one of those above, or the name of the kind of its values
    name: str  # of the attribute
    type: str = ""  # or the time zone
    constants: int = 0  # the bit of the kind that it is compared with


_told: set[str] = set()  # so that each is told once


class Mistakes:
    """Finds them, for events of one schema."""

    def __init__(self, events: DataFrame, attributes: str | None) -> None:
        self._attributes, schema = attributes, events.schema
        self._zone = events.sparkSession.conf.get("spark.sql.session.timeZone", "UTC") or "UTC"
        own = {field.name: (field.metadata or {}).get(CHAR, "") for field in schema.fields}
        self._padded = {name: kind for name, kind in own.items() if kind.startswith("char") and attributes is None}
        root = schema if attributes is None else schema[attributes].dataType
        self._known = _paths(root) if isinstance(root, StructType) else {}
        self._values = root.valueType if isinstance(root, MapType) else None
        self._says = isinstance(root, (StructType, MapType))  # JSON says nothing

    def find(self, kinds: Mapping[str, int]) -> set[Mistake]:
        """kinds: of the constants of each attribute that subscriptions mention."""
        if not self._says:
            return set()
        return {mistake for name, bits in kinds.items() for mistake in self._of(name, bits)}

    def _of(self, name: str, bits: int) -> Iterable[Mistake]:
        kind = self._type_of(name)
        if kind is None:
            yield Mistake(MISSING, name)
        elif isinstance(kind, NullType):  # or nobody knows
            return
        elif isinstance(kind, (StructType, MapType)):
            yield Mistake(OBJECT, name, kind.simpleString())
        elif not isinstance(_element(kind), (*READABLE, StructType, MapType)):
            yield Mistake(UNREADABLE, name, kind.simpleString())
        else:
            for types, own, values, _ in KINDS:
                if isinstance(_element(kind), types):
                    read = TIMES if own == STRINGS else 0  # a test with a time reads strings as times
                    others = (bit for bit in NAMES if bits & bit & ~(own | read))
                    yield from (Mistake(values, name, kind.simpleString(), bit) for bit in others)
                    if bits & own:
                        yield from self._differing(name, _element(kind))

    def _differing(self, name: str, kind: DataType) -> Iterable[Mistake]:
        """What Spark compares in a way of its own, with constants of the same kind."""
        if name in self._padded:
            yield Mistake(PADDED, name, self._padded[name])
        elif isinstance(kind, StringType) and getattr(kind, "collation", PLAIN) not in (PLAIN, None):
            yield Mistake(COLLATED, name, kind.simpleString())
        elif isinstance(kind, TimestampType) and self._zone not in UTC:
            yield Mistake(ZONED, name, self._zone)
        elif isinstance(kind, DecimalType) and kind.precision > (EXACT_DIGITS if kind.scale else INTEGER_DIGITS):
            yield Mistake(LONG, name, kind.simpleString())

    def _type_of(self, name: str) -> DataType | None:
        """None: no event has it. NullType: it may be of any."""
        if name in self._known:
            return self._known[name]
        if self._values is not None:
            return NullType() if isinstance(self._values, (StructType, MapType, ArrayType)) else self._values
        for end in prefix_ends(name)[:-1]:
            head = self._known.get(name[:end])
            if isinstance(head, MapType) and not isinstance(head.valueType, (StructType, MapType)):
                return head.valueType
            if isinstance(head, (MapType, ArrayType)):
                return NullType()
        return None

    def describe(self, mistakes: Iterable[Mistake], uses: Uses | None = None) -> list[str]:
        """In sentences: one for each attribute, as far as they are few, others together. uses: counts subscriptions."""
        groups: dict[tuple[str, str, int], list[str]] = {}
        for what, name, type_, constants in sorted(mistakes):
            alike = type_ if what in BY_TYPE else ""
            groups.setdefault((what, alike, constants), []).append(name)
        alone = {(name, group[2]) for group, names in groups.items() for name in names[:ALONE]}
        counts = {} if uses is None or not alone else uses(alone)
        told = []
        for group, names in groups.items():
            told += [self._tell(*group, [name], counts.get((name, group[2]), 0)) for name in names[:ALONE]]
            if len(names) > ALONE:
                told.append(self._tell(*group, names[ALONE:], 0))
        return told

    def tell(self, found: set[Mistake], strict: bool, stacklevel: int, uses: Uses | None = None) -> list[str]:
        """Warns of mistakes, and gives what it says of them. Raises DibsError for what is refused; strict: for all that
        may be wrong (decimals of many digits mostly are not)."""
        refused = {m for m in found if m.what in REFUSED or (strict and m.what != LONG)}
        if refused:
            lines = "\n".join(f"  {text}" for text in self.describe(refused, uses))
            raise DibsError(f"the subscriptions do not fit the events:\n{lines}")
        told = self.describe(found, uses)
        for text in told:
            if text not in _told:
                _told.add(text)
                warnings.warn(text, UserWarning, stacklevel=stacklevel)
        return told

    def _tell(self, what: str, type_: str, constants: int, names: list[str], count: int) -> str:
        """count: of the subscriptions that mention these attributes so; 0: nobody has counted them."""
        who = "1 subscription" if count == 1 else f"{count:,} subscriptions" if count else "subscriptions"
        s = "s" if count == 1 else ""
        if what == MISSING:
            nearest = _nearest(names[0], self._known) if len(names) == 1 else None
            advice = f"; did they mean {nearest!r}?" if nearest is not None else ""
            them = "it is" if len(names) == 1 else "they are"
            return f"{who} mention{s} {_list(names)}, which the events do not have: to them {them} always null{advice}"
        if what == OBJECT:
            advice = "only what is in it is a value, and it itself always null: name what is in it"
            return f"{who} mention{s} {_list(names)}, of the type {type_}: {advice}"
        if what == UNREADABLE:
            return (
                f"{who} mention{s} {_list(names)}, of the type {type_}, which Dibs cannot read: where it is not "
                "null, whatever they ask of it is unknown, IS NULL and IS NOT NULL too: cast it, or add a column that "
                "says what they ask"
            )
        if what in DIFFERENCES:
            return DIFFERENCES[what].format(who=who, s=s, names=_list(names), type=type_)
        others = NAMES[constants]
        advice = next(advice for _, _, name, advice in KINDS if name == what)
        there = "its values" if len(names) == 1 else "their values"
        there = there if self._values is None else f"the values of {self._attributes!r}"
        return (
            f"{who} compare{s} {_list(names)} with {others}, but {there} are {what}, which are never equal to "
            f"{others}, nor less or greater: {advice}, or cast the column"
        )


class SegmentMistakes:
    """Those of a matcher that changes: each of its segments is looked at once."""

    def __init__(self, mistakes: Mistakes) -> None:
        self._mistakes = mistakes
        self._of: WeakKeyDictionary[Segment, set[Mistake]] = WeakKeyDictionary()
        self._last: tuple[set[Mistake], tuple[str, ...]] = set(), ()

    def find(self, matcher: Matcher) -> set[Mistake]:
        found: set[Mistake] = set()
        for layer in matcher.snapshot().layers:
            if layer.segment not in self._of:
                kinds = {name: bits for name, bits in kinds_in(layer.segment).items() if not is_derived(name)}
                self._of[layer.segment] = self._mistakes.find(kinds)
            found |= self._of[layer.segment]
        return found

    def tell(self, found: set[Mistake], strict: bool, stacklevel: int, matcher: Matcher) -> None:
        layers = matcher.snapshot().layers
        self._mistakes.tell(found, strict, stacklevel + 1, lambda asked: count_uses(layers, asked))

    def describe(self, found: set[Mistake]) -> tuple[str, ...]:
        """For the metrics of a batch: without numbers, which change from one to the next."""
        if found != self._last[0]:
            self._last = found, tuple(self._mistakes.describe(found))
        return self._last[1]


def _paths(schema: StructType) -> dict[str, DataType]:
    """All columns and fields of columns, by their paths."""
    result: dict[str, DataType] = {}
    for field in schema.fields:
        result[field.name] = field.dataType
        if isinstance(field.dataType, StructType):
            result |= {f"{field.name}.{path}": kind for path, kind in _paths(field.dataType).items()}
    return result


def _element(kind: DataType) -> DataType:
    while isinstance(kind, ArrayType):
        kind = kind.elementType
    return kind


def _nearest(name: str, known: Iterable[str]) -> str | None:
    same = {path.lower(): path for path in known}
    found = difflib.get_close_matches(name.lower(), same, n=1, cutoff=0.7)
    return same[found[0]] if found else None


def _list(names: list[str]) -> str:
    shown = ", ".join(map(repr, names[:LISTED]))
    return shown + (f" and {len(names) - LISTED:,} more" if len(names) > LISTED else "")
