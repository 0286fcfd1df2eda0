"""From a table of predicates to ranges of attributes, and tests that are made last (residuals.py)."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.coding.computed.bounds import Ranges, find_bounds, ranges
from dibs.coding.computed.forms import ResidualForm, cut, form_of
from dibs.coding.computed.program_layout import HIGH_OPEN, LOW_OPEN, TRUTH
from dibs.coding.computed.residuals import Residuals, runs_of
from dibs.coding.computed.vectors import Vector, of_plain
from dibs.language.expression import Kind
from dibs.language.printer import CONDITION
from dibs.language.scalars import is_computed
from dibs.language.table import ACCEPT, REJECT, Facet, Op, PredicateTable
from dibs.tuning import tuned

RESIDUAL_MENTIONS = tuned(
    "residual_mentions", 16, 1_000_000_000, "predicates", "of a segment on a value for every event to have it"
)

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


def split(table: PredicateTable) -> tuple[PredicateTable, Residuals | None]:
    """The table with ranges in place of tests that are made last, and these."""
    found = _TableTests(table)
    if not found.tests:
        return table, None
    return found.replaced()


class _TableTests:
    """Tests of a table that may be made last, by form."""

    def __init__(self, table: PredicateTable):
        self.table = table
        self.tests: dict[tuple[str, int], list[tuple[int, list[int | float]]]] = {}  # predicates and their numbers
        self.names: dict[tuple[str, int], str] = {}
        own = [a for a, (name, facet) in enumerate(table.attributes) if is_computed(name) and facet == Facet.VALUE]
        if not own:
            return
        self.row = np.repeat(np.arange(len(table)), np.diff(table.offsets))
        is_rare = np.zeros(len(table.attributes), np.bool_)
        is_rare[own] = self._askers(own) < RESIDUAL_MENTIONS.value
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

    def _askers(self, own: list[int]) -> NDArray[np.float64]:
        """How many rows would ask for each of these computed values in an event that has the other attributes: of rows
        with an equality of as many constants as the table has for that attribute, as few."""
        table = self.table
        mentions = np.bincount(table.attribute, minlength=len(table.attributes))[own].astype(np.float64)
        if (mentions < RESIDUAL_MENTIONS.value).all():
            return mentions
        is_other = np.ones(len(table.attributes), np.bool_)
        is_other[own] = False
        equal = np.flatnonzero((table.operator == Op.EQ) & is_other[table.attribute])
        equal = equal[(equal < table.offsets[table.conjunctions]) & (np.diff(table.literal_offsets)[equal] > 0)]
        attribute, literal = table.attribute[equal], table.literal_offsets[equal]
        bits = table.number[literal].view(np.int64) ^ table.integer[literal]
        _, first = np.unique(bits * len(table.attributes) + attribute, return_index=True)
        constants = np.maximum(np.bincount(attribute[first], minlength=len(table.attributes)), 1)
        share = np.ones(len(table))
        np.minimum.at(share, self.row[equal], 1 / constants[attribute])
        return np.bincount(table.attribute, share[self.row], len(table.attributes))[own].astype(np.float64)

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
        all_found: list[tuple[ResidualForm, NDArray[np.int64], list[Vector], _FoundEnds, dict[str, Ranges]]] = []
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
        parts: list[_FormTests] = []
        for name, (form, predicates, columns, ends, bounds) in zip(self.names.values(), all_found):
            kept = np.flatnonzero(is_found[self.row[predicates]])
            if len(kept):
                for field in form.fields:
                    number = attributes.setdefault((field, Facet.VALUE), len(attributes))
                    new.add(predicates[kept], number, _take(bounds.get(field), kept))
                own = _FoundEnds._make(column[kept] for column in ends)
                parts.append(_FormTests(name, predicates[kept], own, [column.take(kept) for column in columns]))
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

    def _ends(self, predicates: NDArray[np.int64]) -> _FoundEnds:
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
        return _FoundEnds(low.astype(np.float64), low_rest, high.astype(np.float64), high_rest, flags.astype(np.uint8))

    def _residuals(self, parts: list[_FormTests]) -> Residuals:
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


class _FoundEnds(NamedTuple):
    """Keys of the ends of tests."""

    low: NDArray[np.float64]
    low_rest: NDArray[np.int16]
    high: NDArray[np.float64]
    high_rest: NDArray[np.int16]
    flags: NDArray[np.uint8]

    @property
    def nan(self) -> NDArray[np.bool_]:
        return (self.high == math.inf) & (self.high_rest > 0)


class _FormTests(NamedTuple):
    """Tests of a form."""

    name: str
    predicates: NDArray[np.int64]
    ends: _FoundEnds
    values: list[Vector]


def _take(found: Ranges | None, rows: NDArray[np.int64]) -> Ranges | None:
    return None if found is None else Ranges._make(column[rows] for column in found)


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
        at = runs_of(start[order].astype(np.int64), size[order].astype(np.int64))
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
