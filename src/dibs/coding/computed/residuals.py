"""Tests of computed values that are made last, for what all other predicates have let through.

`abs(price - 17) < 3` has a constant of its own inside, so a million subscriptions have a million computed values. They
are not computed for every event: in its row the test becomes a range on `price` (bounds.py), which any index files, and
the pairs of events and rows that come out are tested (verifying.py). So a row asks for no less than before, and no
index knows of functions.

A test is made last if fewer than `residual_mentions` predicates of the table ask for its value (with an equality beside
them, as many as an event is likely to reach), if the row cannot hold without it, if every function in it gives NULL for
NULL, and if there is something to find the row by: a range, or another predicate of the row. All others are computed
for every event.

Tests of one form differ in their numbers alone; these are columns:

    tests    by form, then by row
    values   the numbers of a test's form, in their order in the text
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dibs.coding.computed.forms import ResidualForm, cut, form_of
from dibs.coding.computed.program import Program, program_of
from dibs.coding.computed.program_layout import Column, TestEnds
from dibs.coding.computed.vectors import NUMBER, Vector, nulls
from dibs.lazy import lazy


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
    def forms(self) -> list[ResidualForm]:
        found = [form_of(cut(name)[0], name) for name in self.names]
        assert None not in found
        return [form for form in found if form is not None]

    @lazy
    def programs(self) -> list[Program | None]:
        """Of each form."""
        return [program_of(form.scalar, form.fields, form.holes) for form in self.forms]

    @lazy
    def constants(self) -> Column:
        none = np.empty(0, np.int64)
        return Column(np.empty(0, np.uint8), self.number, self.integer, self.whole, none, none)

    @lazy
    def ends(self) -> TestEnds:
        return TestEnds(self.low, self.low_rest, self.high, self.high_rest, self.flags)

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
    def _places(self) -> list[NDArray[np.int32] | None]:
        """Of the forms that many rows have: the test of each row, counted from the first of the form, or -1."""
        found: list[NDArray[np.int32] | None] = []
        for start, end in zip(self.offsets.tolist(), self.offsets[1:].tolist()):
            found.append(None)
            if 8 * (end - start) >= self.rows:
                found[-1] = place = np.full(self.rows, -1, np.int32)
                place[self.row[start:end]] = np.arange(end - start)
        return found

    def tests_of(self, form: int, rows: NDArray[Any]) -> NDArray[np.int64]:
        """The test of this form that each row has, counted from the first, or -1."""
        place = self._places[form]
        if place is not None:
            return place[rows].astype(np.int64)
        own = self.row[self.offsets[form] : self.offsets[form + 1]]
        at = np.minimum(np.searchsorted(own, rows), len(own) - 1)
        return np.where(own[at] == rows, at, -1)

    def take(self, rows: NDArray[np.int64]) -> Residuals:
        """Those of some rows, of which some may be the same."""
        found = [self.tests_of(form, rows) for form in range(len(self.names))]
        own = [np.flatnonzero(tests >= 0) for tests in found]
        at = np.concatenate([start + tests[its] for start, tests, its in zip(self.offsets.tolist(), found, own)])
        holes = np.array([len(form.holes) for form in self.forms], np.int64)
        form = self.form[at]
        values = runs_of(self.first_value[form] + (at - self.offsets[form]) * holes[form], holes[form])
        columns = {n: getattr(self, n)[values if n in ("number", "integer", "whole") else at] for n in self.ARRAYS}
        return Residuals(self.names, **{**columns, "row": np.concatenate(own)}, rows=len(rows))

    @lazy
    def firsts(self) -> list[NDArray[np.int64]]:
        """Of each form its first value and its first test, and how many values a test has."""
        holes = [len(form.holes) for form in self.forms]
        return [
            np.array(own, np.int64) for own in zip(self.first_value[:-1].tolist(), self.offsets[:-1].tolist(), holes)
        ]

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
    at = runs_of(np.concatenate(starts)[order], np.concatenate(sizes)[order])
    for name in Residuals.ARRAYS:
        joined[name] = joined[name][at if name in ("number", "integer", "whole") else order]
    used = np.unique(joined["form"])
    joined["form"] = np.searchsorted(used, joined["form"]).astype(np.int32)
    return Residuals([names[form] for form in used.tolist()], **joined, rows=rows)


def runs_of(start: NDArray[np.int64], size: NDArray[np.int64]) -> NDArray[np.int64]:
    """start[0], start[0] + 1, ... for each."""
    ends = np.cumsum(size)
    return np.repeat(start - ends + size, size) + np.arange(int(ends[-1]) if len(ends) else 0)
