"""Joins as arrays that kernels run: see layout.py.

A condition becomes conjunctions of tests (its OR multiplied out). Numbers of columns, indexes and patterns are the
program's own until it is bound to a snapshot, which has numbers of its own for them.

Not taken: a condition that would be more than MOST conjunctions, which is answered by the reference, or that has values
which are computed from the event and the document together (candidates.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dibs.history.coded.columns import DocumentSnapshot, order_bits, read_as_times
from dibs.history.coded.indexes import IndexKey
from dibs.history.coded.layout import (
    EQUAL,
    FUNCTION_AVG,
    FUNCTION_COUNT,
    FUNCTION_DISTINCT,
    FUNCTION_EXISTS,
    FUNCTION_FIRST,
    FUNCTION_LAST,
    FUNCTION_MAX,
    FUNCTION_MIN,
    FUNCTION_ROWS,
    FUNCTION_STDDEV,
    FUNCTION_STDDEV_POP,
    FUNCTION_SUM,
    IS_NULL,
    NEVER,
    NOT_IN,
    NOT_NULL,
    OPERATORS,
    PATTERN,
    Conjunctions,
    JoinTable,
    Program,
    Tests,
)
from dibs.history.keys import NUMBER, STRING, TOP, Cell, literal_cell
from dibs.history.plan import Conjunction, JoinPlan, conjunction_of
from dibs.language.expression import (
    FLIPPED_OPERATOR,
    NEGATED_OPERATOR,
    TRUE,
    And,
    Between,
    Compare,
    Constant,
    Expression,
    In,
    IsNull,
    Or,
    PairCompare,
    Predicate,
    number_key,
)
from dibs.language.joins import (
    AVG,
    COUNT,
    COUNT_DISTINCT,
    EXISTS,
    EXTREMES,
    MAX,
    MAX_BY,
    MIN,
    MIN_BY,
    STDDEV,
    STDDEV_POP,
    SUM,
)
from dibs.language.printer import is_paired

MOST = 64  # conjunctions of a join
FUNCTIONS = {
    EXISTS: FUNCTION_EXISTS,
    COUNT: FUNCTION_COUNT,
    MIN: FUNCTION_MIN,
    MAX: FUNCTION_MAX,
    MAX_BY: FUNCTION_LAST,
    MIN_BY: FUNCTION_FIRST,
    SUM: FUNCTION_SUM,
    AVG: FUNCTION_AVG,
    STDDEV: FUNCTION_STDDEV,
    STDDEV_POP: FUNCTION_STDDEV_POP,
    COUNT_DISTINCT: FUNCTION_DISTINCT,
}


def conjunctions_of(form: Expression) -> list[tuple[Predicate, ...]] | None:
    """The conjunctions whose OR the form is, over columns (columns.TIMED); None: there are too many."""
    match form:
        case Constant(value):
            return [()] if value is True else []
        case Or(children):
            found = [conjunctions_of(child) for child in children]
            if any(each is None for each in found):
                return None
            joined = [conjunction for each in found for conjunction in each or ()]
            return joined if len(joined) <= MOST else None
        case And(children):
            result: list[tuple[Predicate, ...]] = [()]
            for child in children:
                parts = conjunctions_of(child)
                if parts is None or len(result) * len(parts) > MOST:
                    return None
                result = [(*a, *b) for a, b in product(result, parts)]
            return result
        case Between(attribute, low, high, True):
            return [(read_as_times(Compare(attribute, "<", low)),), (read_as_times(Compare(attribute, ">", high)),)]
    return [(read_as_times(form),)]  # type: ignore[arg-type]


class Interval(NamedTuple):
    """Constants from low to high; of a single one both are the same."""

    low: Cell
    high: Cell


class Builder:
    """Collects the arrays of a program."""

    def __init__(self) -> None:
        self.names: dict[str, int] = {}
        self.slots: dict[str, int] = {}
        self.indexes: dict[IndexKey, int] = {}
        self.patterns: dict[Predicate, int] = {}
        self.constants: list[Interval] = []
        self.tests: list[tuple[int, ...]] = []
        self.conjunctions: list[tuple[int, ...]] = []
        self.joins: list[tuple[Any, ...]] = []

    def add(self, plan: JoinPlan, forms: list[tuple[Predicate, ...]]) -> None:
        join = plan.join
        first = len(self.conjunctions)
        extreme = join.attribute if join.function in EXTREMES else join.by
        for form in forms:
            self._add_conjunction(conjunction_of(And(form) if form else TRUE, extreme))
        attribute = -1 if join.attribute is None else self.add_name(join.attribute)
        by = -1 if join.by is None else self.add_name(join.by)
        slot, operator, negated = -1, 0, 0
        if join.event is not None and join.operator is not None:
            slot = self._slot(join.event)
            operator = OPERATORS[FLIPPED_OPERATOR[join.operator]]
            negated = OPERATORS[FLIPPED_OPERATOR[NEGATED_OPERATOR[join.operator]]]
        scale = np.nan if join.factor is None else join.factor
        last = len(self.conjunctions)
        function = FUNCTIONS[join.function]
        self.joins.append((function, first, last, attribute, by, slot, operator, negated, scale, plan.is_fixed))

    def add_exists(self, conjunctions: Iterable[Conjunction]) -> int:
        """Adds the join that asks for a document that satisfies one of these; its number."""
        return self._add_search(FUNCTION_EXISTS, conjunctions)

    def add_rows(self, conjunctions: Iterable[Conjunction]) -> int:
        """Adds the join that lists the documents that satisfy one of these; its number."""
        return self._add_search(FUNCTION_ROWS, conjunctions)

    def _add_search(self, function: int, conjunctions: Iterable[Conjunction]) -> int:
        first = len(self.conjunctions)
        for conjunction in conjunctions:
            self._add_conjunction(conjunction)
        self.joins.append((function, first, len(self.conjunctions), -1, -1, -1, 0, 0, np.nan, False))
        return len(self.joins) - 1

    def add_name(self, name: str) -> int:
        """The number of a column."""
        return self.names.setdefault(name, len(self.names))

    def compile(self) -> Compiled:
        cells = [cell for interval in self.constants for cell in interval]
        end_kind, ends = ends_of(cells)
        low = np.arange(0, len(cells), 2, dtype=np.int32)
        same = np.fromiter((a == b for a, b in self.constants), np.bool_, len(self.constants))
        program = Program(
            JoinTable(*_columns(JoinTable, self.joins)),
            Conjunctions(*_columns(Conjunctions, self.conjunctions)),
            Tests(*_columns(Tests, self.tests)),
            len(self.slots),
        )
        return Compiled(
            tuple(self.names), tuple(self.slots), tuple(self.indexes), tuple(self.patterns), self._find_counted(),
            program, end_kind[::2].copy(), low, np.where(same, low, low + 1).astype(np.int32), end_kind, ends,
        )  # fmt: skip

    def _find_counted(self) -> tuple[IndexKey, ...]:
        keys = list(self.indexes)
        found = {}
        for function, first, last, *_ in self.joins:
            if function == FUNCTION_COUNT and last - first == 1:
                index, _, _, rest, stop = self.conjunctions[first]
                if index >= 0 and rest == stop:
                    found[keys[index]] = True
        return tuple(found)

    def _add_conjunction(self, chosen: Conjunction) -> None:
        index = -1
        if chosen.names:
            for name in chosen.names:
                self.add_name(name)
            index = self.indexes.setdefault(IndexKey(chosen.names, len(chosen.equal)), len(self.indexes))
        places = [len(self.tests)]
        for group in (chosen.equal, chosen.order, chosen.rest):
            for predicate in group:
                self._add_test(predicate)  # type: ignore[arg-type]
            places.append(len(self.tests))
        self.conjunctions.append((index, *places))

    def _add_test(self, predicate: Predicate) -> None:
        column = self.add_name(predicate.attribute)
        slot, first, last, offset, is_timed = -1, len(self.constants), 0, 0, False
        match predicate:
            case PairCompare(_, symbol, event, moved):
                operator, slot = OPERATORS[symbol], self._slot(event)
                offset, is_timed = moved or 0, moved is not None
            case Compare(_, symbol, constant):
                operator = OPERATORS[symbol]
                self._constant(literal_cell(constant))
            case In(_, literals, negated, null):
                operator = (NEVER if null else NOT_IN) if negated else EQUAL
                for cell in sorted({literal_cell(literal) for literal in literals}, key=_in_order):
                    self._constant(cell)
            case Between(_, low, high):
                ends = literal_cell(low), literal_cell(high)
                operator = EQUAL if ends[0][0] == ends[1][0] else NEVER
                self.constants.append(Interval(*ends))
            case IsNull(_, negated):
                operator = NOT_NULL if negated else IS_NULL
            case _:
                operator, first = PATTERN, self.patterns.setdefault(predicate, len(self.patterns))
        last = len(self.constants)
        self.tests.append((column, operator, slot, first, last, offset, is_timed))

    def _constant(self, cell: Cell) -> None:
        self.constants.append(Interval(cell, cell))

    def _slot(self, name: str) -> int:
        return self.slots.setdefault(name, len(self.slots))


def _number(value: Any) -> tuple[float, int]:
    return (np.inf, 1) if value is TOP else number_key(value)


def _in_order(cell: Cell) -> Any:
    kind, value = cell
    return kind, _number(value) if kind == NUMBER else value


class Ends(NamedTuple):
    """Values by themselves: key, tie, and where their texts are."""

    key: NDArray[np.int64]
    tie: NDArray[np.int32]
    start: NDArray[np.int64]
    stop: NDArray[np.int64]
    data: NDArray[np.uint8]

    def resolve(self, kind: NDArray[np.uint8], snapshot: DocumentSnapshot) -> Ends:
        """With the numbers of texts that the snapshot has. kind: of each."""
        strings = np.flatnonzero(kind == STRING)
        if not len(strings):
            return self
        key, tie = self.key.copy(), self.tie.copy()
        key[strings], tie[strings] = snapshot.texts.find(*self._texts(strings))
        return self._replace(key=key, tie=tie)

    def ranks(self, kind: NDArray[Any], places: NDArray[Any]) -> NDArray[np.int64]:
        """The rank of the value at each of these places, which is of this kind; equal ones have one."""
        key, tie = self.key[places], self.tie[places]
        strings = np.flatnonzero(kind == STRING)
        if len(strings):
            offsets, data = self._texts(places[strings])
            texts = pa.LargeBinaryArray.from_buffers(
                pa.large_binary(), len(strings), [None, pa.py_buffer(offsets), pa.py_buffer(data)]
            )
            key[strings], tie[strings] = 0, pc.rank(texts, "ascending", tiebreaker="dense").to_numpy()
        order = np.lexsort((tie, key, kind))
        is_new = np.zeros(len(order), np.bool_)
        for each in (kind, key, tie):
            is_new[1:] |= np.diff(each[order]) != 0
        rank = np.empty(len(order), np.int64)
        rank[order] = np.cumsum(is_new)
        return rank

    def _texts(self, places: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        """Offsets and bytes."""
        starts = self.start[places]
        sizes = self.stop[places] - starts
        offsets = np.append(0, np.cumsum(sizes))
        data = self.data[np.repeat(starts - offsets[:-1], sizes) + np.arange(offsets[-1])]
        return offsets, np.ascontiguousarray(data)


def ends_of(cells: Sequence[Cell]) -> tuple[NDArray[np.uint8], Ends]:
    """The kinds of cells, and their keys; texts are not resolved."""
    kind = np.fromiter((cell[0] for cell in cells), np.uint8, len(cells))
    key, tie = np.zeros(len(cells), np.int64), np.zeros(len(cells), np.int32)
    texts = [cell[1].encode() if cell[0] == STRING else b"" for cell in cells]
    stop = np.cumsum([len(text) for text in texts], dtype=np.int64) if cells else np.empty(0, np.int64)
    start = np.append(0, stop[:-1]).astype(np.int64)[: len(cells)]
    for i, (of, value) in enumerate(cells):
        if of == NUMBER:
            near, rest = _number(value)
            key[i], tie[i] = order_bits(np.array([near]))[0], rest
        elif of != STRING:
            key[i] = int(value)
    return kind, Ends(key, tie, start, stop, np.frombuffer(b"".join(texts), np.uint8).copy())


@dataclass(frozen=True, eq=False)
class Compiled:
    """A program that is not bound yet."""

    names: tuple[str, ...]
    slots: tuple[str, ...]
    indexes: tuple[IndexKey, ...]
    patterns: tuple[Predicate, ...]
    counted: tuple[IndexKey, ...]  # by which COUNT needs no look at documents
    program: Program
    kind: NDArray[np.uint8]  # of constants, which are operands
    low: NDArray[np.int32]
    high: NDArray[np.int32]
    end_kind: NDArray[np.uint8]
    ends: Ends

    def bind(self, snapshot: DocumentSnapshot) -> tuple[Program, Ends]:
        """With the numbers of a snapshot, which has all that is asked for."""
        columns = np.array([snapshot.columns[name] for name in self.names] or [0], np.int32)
        indexes = np.array([*(snapshot.index_numbers[key] for key in self.indexes), -1], np.int32)
        patterns = {predicate: number for number, predicate in enumerate(snapshot.patterns)}
        numbers = np.array([patterns[predicate] for predicate in self.patterns] or [0], np.int32)
        joins, conjunctions, tests, slots = self.program
        is_pattern = tests.operator == PATTERN
        first = tests.first.copy()
        first[is_pattern] = numbers[first[is_pattern]]
        tests = tests._replace(column=columns[tests.column] if len(tests.column) else tests.column, first=first)
        own = [np.where(each < 0, -1, columns[each]).astype(np.int32) for each in (joins.attribute, joins.by)]
        joins = joins._replace(attribute=own[0], by=own[1])
        conjunctions = conjunctions._replace(number=indexes[conjunctions.number])
        return Program(joins, conjunctions, tests, slots), self.ends.resolve(self.end_kind, snapshot)


def compile_plans(plans: Iterable[JoinPlan]) -> tuple[Compiled, list[int]]:
    """The program of those plans that are taken, and the places of the others."""
    builder = Builder()
    left: list[int] = []
    for place, plan in enumerate(plans):
        forms = conjunctions_of(plan.join.condition)
        if forms is None or any(is_paired(predicate.attribute) for form in forms for predicate in form):
            left.append(place)
        else:
            builder.add(plan, forms)
    return builder.compile(), left


_TYPES: dict[str, Any] = {
    "function": np.uint8, "operator": np.uint8, "negated": np.uint8, "is_fixed": np.uint8, "is_timed": np.uint8,
    "factor": np.float64, "offset": np.int64,
}  # fmt: skip


def _columns(group: Any, rows: list[tuple[Any, ...]]) -> Iterator[NDArray[Any]]:
    columns = list(zip(*rows)) if rows else [()] * len(group._fields)
    for name, column in zip(group._fields, columns):
        yield np.array(column, _TYPES.get(name, np.int32))
