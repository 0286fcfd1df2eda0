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

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.coding.computed.vectors import NUMBER, Vector, nulls
from dibs.language.expression import Kind
from dibs.language.functions import FUNCTIONS
from dibs.language.functions.plain import plain_value
from dibs.language.scalars import COMPARISONS, Call, Field, Lambda, Scalar, Value, inputs_of, is_computed, scalar_of
from dibs.lazy import lazy

# A number of a canonical text; strings, names in backticks and words are passed over.
_PIECES = re.compile(r"'(?:[^'\\]|\\.)*'|`(?:[^`]|``)*`|[^\W\d]\w*(?:\.\w+)*|(-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)")
_HOLE = "\0\x1f{}"  # the field that stands for a number of a form
LOW_OPEN, HIGH_OPEN, TRUTH = 1, 2, 4


# ---- forms ----


class ResidualForm(NamedTuple):
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


def form_of(shape: str, name: str) -> ResidualForm | None:
    """The form of the computed attributes that `cut` gives this shape, of which the name is one. None: they are not
    tested last."""
    if shape not in _known:
        if len(_known) >= _KEPT:
            _known.clear()
        _known[shape] = _make_form(name)
    return _known[shape]


_KEPT = 4096
_known: dict[str, ResidualForm | None] = {}  # by shape


def _make_form(name: str) -> ResidualForm | None:
    scalar = scalar_of(name)
    if not _gives_null_for_null(scalar):
        return None
    values: list[int | float] = []
    made = _with_holes(scalar, values)
    fields = inputs_of(scalar)
    if not values or values != cut(name)[1] or any(field[:1] == "\0" for field in fields):
        return None
    return ResidualForm(made, tuple(map(_HOLE.format, range(len(values)))), tuple(fields))


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
    def forms(self) -> list[ResidualForm]:
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
