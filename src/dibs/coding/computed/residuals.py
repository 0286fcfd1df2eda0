"""Tests of computed values that are made last, for what all other predicates have let through.

`abs(price - 17) < 3` has a constant of its own inside, so a million subscriptions have a million computed values. They
are not computed for every event: in its row the test becomes a range on `price` (bounds.py), which any index files, and
the pairs of events and rows that come out are tested (verifying.py). So a row asks for no less than before, and no
index knows of functions.

A test is made last if fewer than `residual_mentions` predicates of the table ask for its value, if the row cannot hold
without it, if every function in it gives NULL for NULL, and if there is something to find the row by: a range, or
another predicate of the row. All others are computed for every event.

Tests of one form differ in their numbers alone; these are columns:

    tests    by form, then by row
    values   the numbers of a test's form, in their order in the text
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.coding.computed.bounds import Ranges, find_bounds, ranges
from dibs.coding.computed.vectors import NUMBER, Vector, nulls, of_plain
from dibs.language.expression import Kind
from dibs.language.functions import FUNCTIONS
from dibs.language.functions.plain import plain_value
from dibs.language.printer import CONDITION
from dibs.language.scalars import COMPARISONS, Call, Field, Lambda, Scalar, Value, inputs_of, is_computed, scalar_of
from dibs.language.table import ACCEPT, REJECT, Facet, Op, PredicateTable
from dibs.lazy import lazy
from dibs.thresholds import thresholds

# A number of a canonical text; strings, names in backticks and words are passed over.
_PIECES = re.compile(r"'(?:[^'\\]|\\.)*'|`(?:[^`]|``)*`|[^\W\d]\w*(?:\.\w+)*|(-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)")
_HOLE = "\0\x1f{}"  # the field that stands for a number of a form
_ENDS = {
    Op.EQ: (True, True, False, False),  # whether there is a lower and an upper end, and whether each is open
    Op.LT: (False, True, False, True),
    Op.LE: (False, True, False, False),
    Op.GT: (True, False, True, False),
    Op.GE: (True, False, False, False),
    Op.BETWEEN: (True, True, False, False),
}
_SELECTIVE = frozenset([Op.EQ, Op.LT, Op.LE, Op.GT, Op.GE, Op.BETWEEN, Op.IN, Op.WITHIN, Op.PATTERN])
LEAST, MOST = (-math.inf, 0), (math.inf, 1)  # keys of numbers: the least, and NaN
LOW_OPEN, HIGH_OPEN, TRUTH = 1, 2, 4


# ---- forms ----


class Form(NamedTuple):
    """What a computed value is, but for its numbers."""

    scalar: Scalar  # with fields in their place
    holes: tuple[str, ...]
    fields: tuple[str, ...]


def cut(name: str) -> tuple[str, list[int | float]]:
    """The text of a computed attribute without its numbers, and these."""
    numbers: list[int | float] = []

    def take(found: re.Match[str]) -> str:
        text = found[1]
        if text is None:
            return found[0]
        numbers.append(plain_value(int(text)) if text.lstrip("-").isdigit() else plain_value(float(text)))
        return "\x1f"

    return _PIECES.sub(take, name), numbers


def form_of(shape: str, name: str) -> Form | None:
    """The form of the computed attributes that `cut` gives this shape, of which the name is one. None: they are not
    tested last."""
    if shape not in _known:
        if len(_known) >= _KEPT:
            _known.clear()
        _known[shape] = _make_form(name)
    return _known[shape]


_KEPT = 4096
_known: dict[str, Form | None] = {}  # by shape


def _make_form(name: str) -> Form | None:
    scalar = scalar_of(name)
    if not _gives_null_for_null(scalar):
        return None
    values: list[int | float] = []
    made = _with_holes(scalar, values)
    fields = inputs_of(scalar)
    if not values or values != cut(name)[1] or any(field[:1] == "\0" for field in fields):
        return None
    return Form(made, tuple(map(_HOLE.format, range(len(values)))), tuple(fields))


def may_be_last(name: str) -> bool:
    """Whether a computed attribute is of a form that may be tested last."""
    return is_computed(name) and form_of(cut(name)[0], name) is not None


_COMPARISONS = COMPARISONS - {"<=>"}  # which are handed NULL too, but make no more of it


def _gives_null_for_null(scalar: Scalar) -> bool:
    if isinstance(scalar, Call):
        known = FUNCTIONS.get(scalar.function)
        is_strict = known is not None and (not known.takes_null or known.name in _COMPARISONS)
        return is_strict and all(map(_gives_null_for_null, scalar.arguments))
    return not isinstance(scalar, Lambda) and scalar != Value(None)


def _with_holes(scalar: Scalar, values: list[int | float]) -> Scalar:
    if isinstance(scalar, Call):
        return Call(scalar.function, tuple(_with_holes(argument, values) for argument in scalar.arguments))
    if isinstance(scalar, Value) and scalar.literal is not None and scalar.literal.kind == Kind.NUMBER:
        values.append(plain_value(scalar.literal.value))
        return Field(_HOLE.format(len(values) - 1))
    return scalar


# ---- the tests of a segment ----


@dataclass(eq=False)
class Residuals:
    """See above. An end of a test is a key of a number (coding.values); of TRUTH, both are 0 or 1."""

    names: list[str]  # of each form an attribute that has it
    row: NDArray[np.int64]  # tests
    form: NDArray[np.int32]  # tests
    low: NDArray[np.float64]  # tests
    low_rest: NDArray[np.int16]
    high: NDArray[np.float64]
    high_rest: NDArray[np.int16]
    flags: NDArray[np.uint8]  # tests: LOW_OPEN, HIGH_OPEN, TRUTH
    number: NDArray[np.float64]  # values
    integer: NDArray[np.int64]
    whole: NDArray[np.bool_]
    rows: int  # of the segment

    ARRAYS = ("row", "form", "low", "low_rest", "high", "high_rest", "flags", "number", "integer", "whole")

    def __len__(self) -> int:
        return len(self.row)

    @lazy
    def forms(self) -> list[Form]:
        found = [form_of(cut(name)[0], name) for name in self.names]
        assert None not in found
        return [form for form in found if form is not None]

    @lazy
    def offsets(self) -> NDArray[np.int64]:
        """Where the tests of each form begin."""
        return np.searchsorted(self.form, np.arange(len(self.names) + 1))

    @lazy
    def first_value(self) -> NDArray[np.int64]:
        """Of the tests of each form."""
        holes = np.array([len(form.holes) for form in self.forms], np.int64)
        return np.append(0, np.cumsum(holes * np.diff(self.offsets)))

    @lazy
    def is_tested(self) -> NDArray[np.bool_]:
        """Of each row."""
        found = np.zeros(self.rows, np.bool_)
        found[self.row] = True
        return found

    def values_at(self, form: int, tests: NDArray[np.int64]) -> dict[str, Vector]:
        """The numbers of these tests, counted from the first of the form."""
        holes = self.forms[form].holes
        made: dict[str, Vector] = {}
        for k, hole in enumerate(holes):
            at = self.first_value[form] + tests * len(holes) + k
            kind = np.full(len(at), NUMBER, np.uint8)
            made[hole] = Vector(kind, self.number[at], self.integer[at], self.whole[at], nulls(len(at)))
        return made

    @property
    def nbytes(self) -> int:
        return sum(int(getattr(self, name).nbytes) for name in self.ARRAYS)


def join(parts: Sequence[tuple[Residuals | None, NDArray[np.int64]]], rows: int) -> Residuals | None:
    """The tests of several segments in one of so many rows. Of each: where its rows have gone, -1 where a row went."""
    known: dict[tuple[str, int], int] = {}
    names: list[str] = []
    columns: dict[str, list[NDArray[Any]]] = {name: [] for name in Residuals.ARRAYS}
    starts, sizes = [], []
    values = 0
    for part, gone_to in parts:
        if part is None or not len(part):
            continue
        number, seen = [], dict[str, int]()
        for name in part.names:
            shape = cut(name)[0]
            seen[shape] = seen.get(shape, 0) + 1
            key = shape, seen[shape]
            if key not in known:
                known[key] = len(names)
                names.append(name)
            number.append(known[key])
        holes = np.array([len(form.holes) for form in part.forms], np.int64)[part.form]
        place = values + np.append(0, np.cumsum(holes))[:-1]
        values += len(part.number)
        kept = gone_to[part.row] >= 0
        starts.append(place[kept])
        sizes.append(holes[kept])
        for name in ("low", "low_rest", "high", "high_rest", "flags"):
            columns[name].append(getattr(part, name)[kept])
        columns["row"].append(gone_to[part.row[kept]])
        columns["form"].append(np.array(number, np.int32)[part.form[kept]])
        for name in ("number", "integer", "whole"):
            columns[name].append(getattr(part, name))
    if not names or not sum(map(len, columns["row"])):
        return None
    joined = {name: np.concatenate(own) for name, own in columns.items()}
    order = np.lexsort((joined["row"], joined["form"]))
    at = _runs(np.concatenate(starts)[order], np.concatenate(sizes)[order])
    for name in Residuals.ARRAYS:
        joined[name] = joined[name][at if name in ("number", "integer", "whole") else order]
    used = np.unique(joined["form"])
    joined["form"] = np.searchsorted(used, joined["form"]).astype(np.int32)
    return Residuals([names[form] for form in used.tolist()], **joined, rows=rows)


def _runs(start: NDArray[np.int64], size: NDArray[np.int64]) -> NDArray[np.int64]:
    """start[0], start[0] + 1, ... for each."""
    ends = np.cumsum(size)
    return np.repeat(start - ends + size, size) + np.arange(int(ends[-1]) if len(ends) else 0)


# ---- out of a table ----


def split(table: PredicateTable) -> tuple[PredicateTable, Residuals | None]:
    """The table with ranges in place of tests that are made last, and these."""
    found = _Found(table)
    if not found.tests:
        return table, None
    return found.replaced()


class _Found:
    """Tests of a table that may be made last, by form."""

    def __init__(self, table: PredicateTable):
        self.table = table
        self.tests: dict[tuple[str, int], list[tuple[int, list[int | float]]]] = {}  # predicates and their numbers
        self.names: dict[tuple[str, int], str] = {}
        own = [a for a, (name, facet) in enumerate(table.attributes) if is_computed(name) and facet == Facet.VALUE]
        if not own:
            return
        mentions = np.bincount(table.attribute, minlength=len(table.attributes))
        is_rare = np.zeros(len(table.attributes), np.bool_)
        is_rare[own] = mentions[own] < thresholds.residual_mentions
        self.row = np.repeat(np.arange(len(table)), np.diff(table.offsets))
        predicates = np.flatnonzero(is_rare[table.attribute])
        is_range = self._are_ranges(predicates).tolist()
        good: dict[int, tuple[str, list[int | float]] | None] = {}
        for p, a, fits in zip(predicates.tolist(), table.attribute[predicates].tolist(), is_range):
            if a not in good:
                name = table.attributes[a][0]
                shape, numbers = cut(name)
                good[a] = (shape, numbers) if numbers and form_of(shape, name) is not None else None
            if not fits or not self._must_hold(p):
                good[a] = None
        seen: dict[tuple[int, str], int] = {}
        for p, a in zip(predicates.tolist(), table.attribute[predicates].tolist()):
            found = good[a]
            if found is not None:
                place = int(self.row[p]), found[0]
                seen[place] = seen.get(place, 0) + 1
                key = found[0], seen[place]
                self.names.setdefault(key, table.attributes[a][0])
                self.tests.setdefault(key, []).append((p, found[1]))

    def _are_ranges(self, predicates: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which predicates ask for the numbers between two ends, or for a truth."""
        table = self.table
        operator, first, last = table.operator, table.literal_offsets[predicates], table.literal_offsets[predicates + 1]
        of_kind = [np.append(0, np.cumsum(table.kind == kind)) for kind in (Kind.NUMBER, Kind.BOOLEAN)]
        numbers, truths = ((count[last] - count[first] == last - first) & (last > first) for count in of_kind)
        is_condition = np.array([name[:2] == CONDITION for name, _ in table.attributes], np.bool_)
        are_ends = np.array([op in _ENDS for op in Op], np.bool_)[operator[predicates]]
        asks_truth = (operator[predicates] == Op.EQ) | (operator[predicates] == Op.NE)
        return np.where(is_condition[table.attribute[predicates]], asks_truth & truths, are_ends & numbers)

    def _must_hold(self, p: int) -> bool:
        """Whether its row cannot hold without it: no way through the program leads past it."""
        table, row = self.table, int(self.row[p])
        if row < table.conjunctions:
            return True
        start, base = int(table.offsets[row]), int(table.offsets[table.conjunctions])
        here = p - start
        before = slice(start - base, p - base)
        if table.on_false[p - base] != REJECT:
            return False
        targets = np.concatenate([table.on_true[before], table.on_false[before]])
        return bool((((targets <= here) & (targets != ACCEPT)) | (targets == REJECT)).all())

    def replaced(self) -> tuple[PredicateTable, Residuals | None]:
        table = self.table
        attributes = {attribute: number for number, attribute in enumerate(table.attributes)}
        is_found = self._others()
        all_found: list[tuple[Form, NDArray[np.int64], list[Vector], _Ends, dict[str, Ranges]]] = []
        for key, tests in self.tests.items():
            form = form_of(key[0], self.names[key])
            assert form is not None
            predicates = np.array([p for p, _ in tests], np.int64)
            columns = [of_plain([numbers[k] for _, numbers in tests]) for k in range(len(form.holes))]
            ends = self._ends(predicates)
            wanted = ranges(ends.low, ends.high, ends.nan)
            bounds = find_bounds(form.scalar, wanted, dict(zip(form.holes, columns)))
            for of_field in bounds.values():
                is_found[self.row[predicates[of_field.are_bounds]]] = True
            all_found.append((form, predicates, columns, ends, bounds))
        new = _NewPredicates()
        parts: list[_Part] = []
        for name, (form, predicates, columns, ends, bounds) in zip(self.names.values(), all_found):
            kept = np.flatnonzero(is_found[self.row[predicates]])
            if len(kept):
                for field in form.fields:
                    number = attributes.setdefault((field, Facet.VALUE), len(attributes))
                    new.add(predicates[kept], number, _take(bounds.get(field), kept))
                own = _Ends(*(column[kept] for column in ends))
                parts.append(_Part(name, predicates[kept], own, [column.take(kept) for column in columns]))
        if not parts:
            return table, None
        return new.into(table, list(attributes)), self._residuals(parts)

    def _others(self) -> NDArray[np.bool_]:
        """Rows that have another predicate by which they can be found."""
        table = self.table
        operators = np.array([op in _SELECTIVE for op in range(len(Op))], np.bool_)[table.operator]
        for tests in self.tests.values():
            operators[[p for p, _ in tests]] = False
        operators[int(table.offsets[table.conjunctions]) :] = False  # which of a program's do is for the index to say
        return np.bincount(self.row[operators], minlength=len(table)) > 0

    def _ends(self, predicates: NDArray[np.int64]) -> _Ends:
        table = self.table
        operator = table.operator[predicates]
        first = table.literal_offsets[predicates]
        last = table.literal_offsets[predicates + 1] - 1
        of = np.array([_ENDS.get(op, (True, True, False, False)) for op in Op], np.bool_)[operator]
        is_truth = table.kind[first] == Kind.BOOLEAN
        truth = np.where(operator == Op.EQ, table.integer[first], 1 - table.integer[first])
        low = np.where(is_truth, truth, np.where(of[:, 0], table.number[first], LEAST[0]))
        high = np.where(is_truth, truth, np.where(of[:, 1], table.number[last], MOST[0]))
        low_rest = np.where(is_truth, 0, np.where(of[:, 0], table.integer[first], LEAST[1])).astype(np.int16)
        high_rest = np.where(is_truth, 0, np.where(of[:, 1], table.integer[last], MOST[1])).astype(np.int16)
        flags = LOW_OPEN * of[:, 2] + HIGH_OPEN * of[:, 3] + TRUTH * is_truth
        return _Ends(low.astype(np.float64), low_rest, high.astype(np.float64), high_rest, flags.astype(np.uint8))

    def _residuals(self, parts: list[_Part]) -> Residuals:
        columns: dict[str, list[NDArray[Any]]] = {name: [] for name in Residuals.ARRAYS}
        for number, (_, predicates, ends, values) in enumerate(parts):
            order = np.argsort(self.row[predicates], kind="stable")
            columns["row"].append(self.row[predicates][order])
            columns["form"].append(np.full(len(order), number, np.int32))
            for name, column in ends._asdict().items():
                columns[name].append(column[order])
            for name in ("number", "integer", "whole"):
                columns[name].append(np.stack([getattr(vector, name)[order] for vector in values], axis=1).ravel())
        joined = {name: np.concatenate(own) for name, own in columns.items()}
        return Residuals([part.name for part in parts], **joined, rows=len(self.table))


class _Ends(NamedTuple):
    """Keys of the ends of tests."""

    low: NDArray[np.float64]
    low_rest: NDArray[np.int16]
    high: NDArray[np.float64]
    high_rest: NDArray[np.int16]
    flags: NDArray[np.uint8]

    @property
    def nan(self) -> NDArray[np.bool_]:
        return (self.high == math.inf) & (self.high_rest > 0)


class _Part(NamedTuple):
    """Tests of a form."""

    name: str
    predicates: NDArray[np.int64]
    ends: _Ends
    values: list[Vector]


def _take(found: Ranges | None, rows: NDArray[np.int64]) -> Ranges | None:
    return None if found is None else Ranges(*(column[rows] for column in found))


class _NewPredicates:
    """Ranges that take the place of predicates."""

    def __init__(self) -> None:
        self._place: list[NDArray[np.int64]] = []
        self._attribute: list[NDArray[np.int32]] = []
        self._operator: list[NDArray[np.uint8]] = []
        self._literals: list[NDArray[np.float64]] = []  # two of each, of which those that are NaN do not count

    def add(self, places: NDArray[np.int64], attribute: int, found: Ranges | None) -> None:
        n = len(places)
        self._place.append(places)
        self._attribute.append(np.full(n, attribute, np.int32))
        if found is None:
            self._operator.append(np.full(n, Op.NOT_NULL, np.uint8))
            self._literals.append(np.full((n, 2), math.nan))
            return
        low, high, nan, inverted = found
        has_low, has_high = np.isfinite(low), np.isfinite(high)
        only_low, only_high = has_low & (~has_high | nan), has_high & ~has_low & ~nan
        # What is at most so much, or NaN: all but what lies between that and infinity, which is included.
        but_nan = has_high & ~has_low & nan & ~inverted
        both = has_low & has_high & ~nan & ~inverted
        operator = np.full(n, Op.NOT_NULL, np.uint8)
        first, second = np.full(n, math.nan), np.full(n, math.nan)
        for chosen, op, a, b in (
            (only_low & ~inverted, Op.GE, low, None),
            (only_high & ~inverted, Op.LE, high, None),
            (both, Op.BETWEEN, low, high),
            (but_nan, Op.NOT_BETWEEN, np.nextafter(high, math.inf), np.full(n, math.inf)),
            (inverted, Op.NOT_BETWEEN, low, high),
        ):
            operator[chosen] = op
            first[chosen] = a[chosen]
            if b is not None:
                second[chosen] = b[chosen]
        self._operator.append(operator)
        self._literals.append(np.stack([first, second], axis=1) + 0.0)

    def into(self, table: PredicateTable, attributes: list[Any]) -> PredicateTable:
        """The table with these in place of the predicates at their places."""
        place, attribute, operator = (np.concatenate(x) for x in (self._place, self._attribute, self._operator))
        literals = np.concatenate(self._literals)
        is_kept = np.ones(len(table.operator), np.bool_)
        is_kept[place] = False
        kept = np.flatnonzero(is_kept)
        order = np.argsort(np.concatenate([kept, place]), kind="stable")
        counts = np.bincount(place, minlength=len(table.operator)) + is_kept
        first = np.append(0, np.cumsum(counts))  # where each predicate is now

        size = np.concatenate([np.diff(table.literal_offsets)[kept], (~np.isnan(literals)).sum(axis=1)])
        numbers = literals[~np.isnan(literals)]
        start = np.concatenate(
            [table.literal_offsets[kept], len(table.kind) + np.append(0, np.cumsum(size[len(kept) :]))[:-1]]
        )
        at = _runs(start[order].astype(np.int64), size[order].astype(np.int64))
        kind = np.append(table.kind, np.full(len(numbers), Kind.NUMBER, np.uint8))[at]
        attribute = np.append(table.attribute[kept], attribute)[order]
        used, renumbered = np.unique(attribute, return_inverse=True)
        on_true, on_false = self._jumps(table, counts, first)
        return PredicateTable(
            offsets=first[table.offsets],
            attribute=renumbered.astype(np.int32).reshape(-1),
            operator=np.append(table.operator[kept], operator)[order],
            literal_offsets=np.append(0, np.cumsum(size[order])).astype(np.int64),
            kind=kind,
            number=np.append(table.number, numbers)[at],
            integer=np.append(table.integer, np.zeros(len(numbers), np.int64))[at],
            attributes=[attributes[a] for a in used.tolist()],
            texts=table.texts,
            conjunctions=table.conjunctions,
            on_true=on_true,
            on_false=on_false,
        )

    @staticmethod
    def _jumps(
        table: PredicateTable, counts: NDArray[np.int64], first: NDArray[np.int64]
    ) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """A step that has become several goes on when all of them hold."""
        base = int(table.offsets[table.conjunctions])
        row_start = np.repeat(table.offsets[:-1], np.diff(table.offsets))[base:]
        counts = counts[base:]

        def moved(target: NDArray[np.int32]) -> NDArray[np.int64]:
            there = np.where(target < 0, 0, target)
            return np.where(target < 0, target, first[row_start + there] - first[row_start])

        on_true, on_false = np.repeat(moved(table.on_true), counts), np.repeat(moved(table.on_false), counts)
        own = np.repeat(first[base:-1], counts) - np.repeat(first[row_start], counts)
        number = np.arange(len(on_true)) - np.repeat(first[base:-1] - first[base], counts)  # among those of its step
        is_last = number == np.repeat(counts, counts) - 1
        on_true = np.where(is_last, on_true, own + number + 1)
        return on_true.astype(np.int32), on_false.astype(np.int32)
