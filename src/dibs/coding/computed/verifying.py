"""The tests that are made last (residuals.py), of pairs of an event and a row.

Pairs of a batch are tested by form: the attributes are columns of the events, the numbers of tests columns of the rows,
and one evaluation over both says which pairs stay. Of an event with several values of an attribute a pair has a row for
each combination, as for any computed value, and stays if one of them holds.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dibs.coding.computed.computing import FieldColumns, keys_of
from dibs.coding.computed.program import Program, literals_of, machine
from dibs.coding.computed.program_layout import HIGH_OPEN, HOLDS, LEFT_OVER, LOW_OPEN, TRUTH, Combinations, Sources
from dibs.coding.computed.residuals import Residuals
from dibs.coding.computed.running import BLOCK, evaluate, with_room
from dibs.coding.computed.vectors import BOOLEAN, NUMBER, Vector, of_plain
from dibs.coding.values import EventValues, Names, number_key
from dibs.jit.undisturbed import bring
from dibs.language.functions import evaluate as evaluate_plain
from dibs.language.functions.plain import Plain
from dibs.tuning import tuned

RESIDUAL_ROWS = tuned("residual_rows", 1 << 18, 1, "combinations", "of values that are tested last at once")
FEW_RESIDUALS = tuned("few_residuals", 16, 0, "pairs", "of a single event that are tested last one by one")

Mask = NDArray[np.bool_]


class Verifier:
    """The tests of a segment for one batch. Several threads may ask at once."""

    def __init__(self, tests: Residuals, values: EventValues):
        self._tests = tests
        self._values = values
        self._lock = threading.Lock()
        self._columns: FieldColumns | None = None
        self._combined: dict[tuple[int, ...], Any] = {}
        names = values.names
        self._codes = names.codes if isinstance(names, Names) else {name: code for code, name in enumerate(names)}

    def pairs(self, event: NDArray[np.int32], row: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Those that stay."""
        tests = self._tests
        left = np.flatnonzero(tests.is_tested[row])
        if not len(left):
            return event, row
        fails = np.zeros(len(row), np.bool_)
        for form in range(len(tests.names)):
            test = tests.tests_of(form, row[left])
            asked = test >= 0
            if asked.any():
                mine = left[asked]
                fails[mine] = ~self._test(form, event[mine], test[asked])
                if form + 1 < len(tests.names):
                    left = left[~fails[left]]
        return event[~fails], row[~fails]

    def _test(self, form: int, event: NDArray[np.int32], test: NDArray[np.int64]) -> Mask:
        """Whether each test of the form holds for its event."""
        starts, counts, places = self._combinations(form)
        program = self._tests.programs[form]
        if program is None:
            return self._test_columns(form, event, test)
        assert self._columns is not None
        result = _run(self._tests, form, program, event, test, (starts, counts, places), self._columns)
        left = np.flatnonzero(result == LEFT_OVER)
        holds = result == HOLDS
        if len(left):
            holds[left] = self._test_columns(form, event[left], test[left])
        return holds

    def _test_columns(self, form: int, event: NDArray[np.int32], test: NDArray[np.int64]) -> Mask:
        starts, counts, places = self._combinations(form)
        several = counts[event]
        result = np.zeros(len(event), np.bool_)
        first = 0
        ends = np.cumsum(several)
        while first < len(event):  # of so many combinations at a time that they need little room
            done = int(ends[first - 1]) if first else 0
            last = max(int(np.searchsorted(ends, done + RESIDUAL_ROWS.value, side="right")), first + 1)
            own = slice(first, last)
            pair = np.repeat(np.arange(last - first), several[own])
            number = np.arange(len(pair)) - np.repeat(np.cumsum(several[own]) - several[own], several[own])
            at = starts[event[own]][pair] + number
            holds = self._evaluate(form, [place[at] for place in places], test[own][pair])
            result[own] = np.bincount(pair[holds], minlength=last - first) > 0
            first = last
        return result

    def _evaluate(self, form: int, rows: list[NDArray[np.int64]], test: NDArray[np.int64]) -> Mask:
        assert self._columns is not None
        made = self._tests.forms[form]
        vectors = {field: self._columns.vector(own) for field, own in zip(made.fields, rows)}
        value = evaluate(made.scalar, vectors | self._tests.values_at(form, test), len(test))
        return _lie_within(self._tests, value, self._tests.offsets[form] + test)

    def _combinations(self, form: int) -> Any:
        """For each event where its combinations begin and how many there are; of each field the place of its value in
        each combination."""
        codes = tuple(self._codes.get(field, -1) for field in self._tests.forms[form].fields)
        with self._lock:
            if codes not in self._combined:
                if self._columns is None:
                    is_field = np.zeros(len(self._values.names), np.bool_)
                    own = {field for each in self._tests.forms for field in each.fields}
                    is_field[[self._codes[field] for field in own if field in self._codes]] = True
                    self._columns = FieldColumns(self._values, is_field)
                event, places, _ = self._columns.combine(list(codes))
                counts = np.bincount(event, minlength=self._values.events)
                self._combined[codes] = np.cumsum(counts) - counts, counts, places
            return self._combined[codes]


def _run(
    tests: Residuals,
    form: int,
    program: Program,
    event: NDArray[np.int32],
    test: NDArray[np.int64],
    combinations: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]],
    columns: FieldColumns | Given,
) -> NDArray[np.uint8]:
    """By the machine: for each pair FAILS, HOLDS or LEFT_OVER."""
    kernels: Any = bring("dibs.coding.computed.program_kernels")
    result = np.empty(len(event), np.uint8)
    work = machine(BLOCK if len(event) > 1 else 1)
    data, work.free[0] = columns.bytes_for(program)
    start, size, places = combinations
    literals = literals_of(program.literals)
    sources = Sources(places.reshape(-1), places.shape[1], columns.cells, tests.constants, literals, data)
    whose = Combinations(start, size)
    kernels.test_pairs(program.code, event, test, tests.firsts[form], whose, sources, tests.ends, result, work)
    return result


def _lie_within(tests: Residuals, value: Vector, test: NDArray[np.int64]) -> Mask:
    """Whether each value is what its test asks for."""
    if len(value) == 1 and len(test) != 1:
        value = value.take(np.zeros(len(test), np.int64))
    flags = tests.flags[test]
    is_truth = (flags & TRUTH) != 0
    key, rest = keys_of(value)
    low, low_rest, high, high_rest = (x[test] for x in (tests.low, tests.low_rest, tests.high, tests.high_rest))
    above = (key > low) | ((key == low) & ((rest > low_rest) | ((rest == low_rest) & ((flags & LOW_OPEN) == 0))))
    below = (key < high) | ((key == high) & ((rest < high_rest) | ((rest == high_rest) & ((flags & HIGH_OPEN) == 0))))
    is_number = (value.kind == NUMBER) & ~is_truth
    return (is_number & above & below) | (is_truth & (value.kind == BOOLEAN) & (value.integer == low))


# ---- one event ----

ValuesOf = Callable[[Sequence[str]], "list[list[Plain]] | None"]


def keep_rows(tests: Residuals, rows: NDArray[np.int32], values_of: ValuesOf) -> Mask | None:
    """Which rows stay for one event. values_of: the values of attributes, [None] of one that is missing; None: there is
    something unusual about them, and nothing is known of the rows."""
    keep = np.ones(len(rows), np.bool_)
    left = np.flatnonzero(tests.is_tested[rows])
    for form, made in enumerate(tests.forms):
        if not len(left):
            break
        test = tests.tests_of(form, rows[left])
        asked = test >= 0
        if asked.any():
            values = values_of(made.fields)
            if values is None:
                return None
            keep[left[asked]] = _test_event(tests, form, values, test[asked])
            left = left[keep[left]]
    return keep


def _test_event(tests: Residuals, form: int, values: list[list[Plain]], test: NDArray[np.int64]) -> Mask:
    made = tests.forms[form]
    program = tests.programs[form]
    if program is not None:
        place = np.arange(len(values))[:, None]
        if any(len(own) > 1 for own in values):
            first = np.cumsum([0, *map(len, values)])[:-1]
            place = np.indices([len(own) for own in values]).reshape(len(values), -1) + first[:, None]
        place = np.ascontiguousarray(place)
        combinations = np.zeros(1, np.int64), np.array([place.shape[1]], np.int64), place
        event = np.zeros(len(test), np.int32)
        result = _run(tests, form, program, event, test, combinations, Given(values))
        holds = result == HOLDS
        for i in np.flatnonzero(result == LEFT_OVER).tolist():
            holds[i] = _holds(tests, form, values, int(test[i]))
        return holds
    if len(test) > FEW_RESIDUALS.value and all(len(own) == 1 for own in values):
        vectors = {field: of_plain(own) for field, own in zip(made.fields, values)}
        value = evaluate(made.scalar, vectors | tests.values_at(form, test), len(test))
        return _lie_within(tests, value, tests.offsets[form] + test)
    return np.fromiter((_holds(tests, form, values, t) for t in test.tolist()), np.bool_, len(test))


class Given:
    """The values of one event, as programs read them."""

    def __init__(self, values: list[list[Plain]]):
        self.cells, self._data = literals_of(list(itertools.chain.from_iterable(values)))

    def bytes_for(self, program: Program) -> tuple[NDArray[np.uint8], int]:
        return with_room(self._data, program)


def _holds(tests: Residuals, form: int, values: list[list[Plain]], test: int) -> bool:
    made = tests.forms[form]
    size = len(made.holes)
    at = int(tests.first_value[form]) + test * size
    own = slice(at, at + size)
    columns = tests.whole[own].tolist(), tests.integer[own].tolist(), tests.number[own].tolist()
    given: dict[str, Plain] = dict(zip(made.holes, (i if is_whole else n for is_whole, i, n in zip(*columns))))
    test += int(tests.offsets[form])
    flags = int(tests.flags[test])
    low, high = (
        (float(tests.low[test]), int(tests.low_rest[test])),
        (float(tests.high[test]), int(tests.high_rest[test])),
    )
    for combination in itertools.product(*values):
        given.update(zip(made.fields, combination))
        value = evaluate_plain(made.scalar, given)
        if isinstance(value, bool):
            if flags & TRUTH and value == bool(low[0]):
                return True
        elif isinstance(value, (int, float)) and not flags & TRUTH:
            key = number_key(value)
            above = key > low or (key == low and not flags & LOW_OPEN)
            if above and (key < high or (key == high and not flags & HIGH_OPEN)):
                return True
    return False
