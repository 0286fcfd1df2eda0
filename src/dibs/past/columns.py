"""A few expressions against many events, column by column: no index, and no grouping of values by event.

The idea: each predicate of the expressions is a bit. Coded clauses say in which cells a predicate holds
(coding.clauses), so a table can say for every cell of an attribute which bits hold there. Each value of a batch is
coded to its cell, and the bits of the cell are put to those of its event; several values of an attribute, and the cells
of a range, simply add up, because a predicate holds when some value satisfies it. At the end each event's bits decide:
all bits of a conjunction, or the way through a program's jumps. Only missing values remain: an attribute that some
predicate wants to be null has one more bit, which says that there is a value.

Useful for: a few expressions of at most 64 predicates together. Others go to an index, which is as exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dibs.coding.batch import code_events, pieces
from dibs.coding.clauses import Clauses, code_declared
from dibs.coding.domain import NUMBER_BASE, Domains, number_cell, string_cell
from dibs.coding.groups import NumberConstants, StringConstants
from dibs.coding.values import EventValues
from dibs.errors import ExpressionError
from dibs.index import AUTO, create
from dibs.jit.kernel import kernel
from dibs.language.joins import join_of, paths_of, read_attributes
from dibs.language.printer import is_join
from dibs.language.table import ACCEPT, Facet
from dibs.language.types import NO_TYPES, Types
from dibs.segments.compile import compile_texts

BITS = 64
FEW = 16  # constants of an attribute that are compared one by one, without a branch, rather than searched
SCANNED = 100  # expressions: more of them are worth an index
Satisfied = list[NDArray[np.int64]]  # for each expression the events that satisfy it, in order


class CellBits(NamedTuple):
    """The bits that hold in the cells."""

    base: NDArray[np.int64]  # where each attribute's cells begin in `table`
    table: NDArray[np.uint64]  # of each cell, with one more for values that are there but could not be read


class Expressions:
    """Compiled expressions; `find` is called from several threads."""

    def __init__(self, texts: Sequence[str], names: Sequence[object] | None = None, types: Types = NO_TYPES):
        """names: of the expressions, for what is wrong with them; None: there is only one."""
        compiled = compile_texts(pa.array(list(texts), pa.large_string()), types=types)
        if compiled.errors and names is None:
            raise compiled.errors[0]
        if compiled.errors and names is not None:
            raise ExpressionError(
                [
                    replace(problem, message=f"expression {names[i]!r}: {problem.message}")
                    for i, error in sorted(compiled.errors.items())
                    for problem in error.problems
                ]
            )
        self._order = compiled.order  # the expression of each row
        self._domains, self._clauses = code_declared(compiled.table, compiled.domains)
        own = frozenset(name for name, _ in self._domains.attributes)
        self.joins = tuple(sorted(filter(is_join, own)))
        asked = (join_of(name) for name in self.joins)
        # What joins ask of the events before is asked of all events.
        self.names = own.union(*([*join.event_attributes, *join.document_attributes] for join in asked))
        self.attributes = paths_of(read_attributes(self.names))
        self._columns = CodedColumns.build(self._domains, self._clauses)
        if self._columns is None:
            self._index = create("scan" if len(texts) <= SCANNED else AUTO, self._clauses)

    def find(self, values: EventValues) -> Satisfied:
        """values: with those of the joins."""
        dead = values.unreadable_events
        if self._columns is not None:
            matched = self._columns.match(values)
            matched[:, dead] = False
            rows = [np.flatnonzero(row) for row in matched]
        else:
            pairs = self._index.match(code_events(values, self._domains), 1)
            event, row = pairs.event.astype(np.int64), pairs.row
            if len(dead):
                alive = ~np.isin(event, dead)
                event, row = event[alive], row[alive]
            order = np.lexsort((event, row))
            bounds = np.searchsorted(row[order], np.arange(len(self._clauses) + 1))
            rows = [event[order[a:b]] for a, b in zip(bounds, bounds[1:])]
        result: Satisfied = [rows[0]] * len(rows)
        for place, found in zip(self._order.tolist(), rows):
            result[place] = found
        return result


class CodedColumns:
    def __init__(self, domains: Domains, clauses: Clauses, nullable: NDArray[np.int64]):
        self._domains = domains
        self._clauses = clauses
        self._nullable = nullable  # attributes that some predicate wants to be null; attribute i has the bit first + i
        self._first = len(clauses.attribute)
        self._plain = not domains.facet.any()  # nothing is derived from strings
        self.base = np.concatenate([[0], np.cumsum(domains.cells.astype(np.int64) + 1)])
        self.table = np.zeros(int(self.base[-1]), np.uint64)
        for bit, (attribute, spans) in enumerate(_spans(clauses)):
            for lo, hi in spans:
                start = int(self.base[attribute])
                self.table[start + lo : start + hi + 1] |= np.uint64(1 << bit)
        for place, attribute in enumerate(nullable.tolist()):
            start, end = int(self.base[attribute]) + 1, int(self.base[attribute + 1])
            self.table[start:end] |= np.uint64(1 << (self._first + place))
        self._cells = CellBits(self.base, self.table)
        self._null_bits = self.table[self.base[nullable]]

    @classmethod
    def build(cls, domains: Domains, clauses: Clauses) -> CodedColumns | None:
        """None: there are not bits enough."""
        wants_null = [a for a, spans in _spans(clauses) if any(lo == 0 <= hi for lo, hi in spans)]
        nullable = np.unique(np.array(wants_null, np.int64))
        return cls(domains, clauses, nullable) if len(clauses.attribute) + len(nullable) <= BITS else None

    def match(self, values: EventValues) -> NDArray[np.bool_]:
        """Which rows (first axis) which events satisfy."""
        d, c = self._domains, self._clauses
        bits = np.zeros(values.events, np.uint64)
        own = np.array([d.number_of.get((name, Facet.VALUE), -1) for name in values.names], np.int32)
        n, s, none = values.numbers, values.strings, EventValues(0, [])
        if len(n.event):
            _numbers(n, own, NumberConstants.of(d), self._cells, bits)
        if len(s.event) and self._plain:
            _strings(s, own, StringConstants.of(d), self._cells, bits)
        values = replace(values, numbers=none.numbers, strings=none.strings if self._plain else s)
        for event, attribute, lo, hi in pieces(values, d):
            _spread(event, attribute, lo, hi, self._cells, bits)
        if len(self._nullable):
            _nulls(self._null_bits, self._first, bits)
        result = np.empty((len(c), values.events), np.bool_)
        _decide(bits, c.offsets, c.conjunctions, c.on_true, c.on_false, result)
        return result


def _spans(clauses: Clauses) -> list[tuple[int, list[tuple[int, int]]]]:
    """(attribute, spans) of each predicate."""
    result = []
    for attribute, lo, hi in zip(clauses.attribute.tolist(), clauses.lo.tolist(), clauses.hi.tolist()):
        spans = [(lo, hi)]
        if hi < 0:
            spans = list(zip(clauses.span_lo[lo : lo - hi].tolist(), clauses.span_hi[lo : lo - hi].tolist()))
        result.append((attribute, spans))
    return result


@kernel
def _numbers(numbers, own, constants, cells, bits):
    """own: the attribute of each name, or -1. Random numbers against a few constants would mispredict half the steps of
    a search, at five times the cost of comparing with all of them: number_cell is for many constants."""
    event, name, value, rest = numbers
    offsets, values, rests = constants
    base, table = cells
    for i in range(len(event)):
        a = own[name[i]]
        if a < 0:
            continue
        first, last = offsets[a], offsets[a + 1]
        if last - first <= FEW:
            below, equal = 0, 0
            for m in range(first, last):
                same = values[m] == value[i]
                below += (values[m] < value[i]) | (same & (rests[m] < rest[i]))
                equal |= same & (rests[m] == rest[i])
            cell = 2 * below + equal
        else:
            cell = number_cell(value[i], rest[i], first, last, values, rests)
        bits[event[i]] |= table[base[a] + NUMBER_BASE + cell]


@kernel
def _strings(strings, own, constants, cells, bits):
    """As with numbers: the first eight bytes, read without asking where the string ends, decide against a few
    constants, unless they are just those of a constant."""
    event, name, starts, data = strings
    offsets, constant_starts, constant_bytes, prefixes, section = constants
    base, table = cells
    for i in range(len(event)):
        a = own[name[i]]
        if a < 0:
            continue
        first, last, start, end = offsets[a], offsets[a + 1], starts[i], starts[i + 1]
        decided = last - first <= FEW and start + 8 <= len(data)
        cell = 0
        if decided:
            head = np.uint64(0)
            for k in range(8):
                head = (head << np.uint64(8)) | np.uint64(data[start + k])
            if end - start < 8:
                head &= ~(np.uint64(0xFFFFFFFFFFFFFFFF) >> np.uint64(8 * (end - start)))
            for m in range(first, last):
                cell += 2 * (prefixes[m] < head)
                decided &= prefixes[m] != head
        if not decided:
            cell = string_cell(data, start, end, first, last, constant_starts, constant_bytes, prefixes)
        bits[event[i]] |= table[base[a] + section[a] + cell]


@kernel
def _spread(event, attribute, lo, hi, cells, bits):
    """The bits of the cells lo to hi."""
    base, table = cells
    for i in range(len(event)):
        start = base[attribute[i]]
        for cell in range(start + lo[i], start + hi[i] + 1):
            bits[event[i]] |= table[cell]


@kernel
def _nulls(null_bits, first, bits):
    for e in range(len(bits)):
        for i in range(len(null_bits)):
            if (bits[e] >> np.uint64(first + i)) & np.uint64(1) == 0:
                bits[e] |= null_bits[i]


@kernel
def _decide(bits, offsets, conjunctions, on_true, on_false, result):
    one = np.uint64(1)
    for r in range(conjunctions):
        mask = np.uint64(0)
        for p in range(offsets[r], offsets[r + 1]):
            mask |= one << np.uint64(p)
        for e in range(len(bits)):
            result[r, e] = bits[e] & mask == mask
    jumps = offsets[conjunctions]
    for r in range(conjunctions, len(offsets) - 1):
        for e in range(len(bits)):
            p = offsets[r]
            while True:
                holds = (bits[e] >> np.uint64(p)) & one
                step = on_true[p - jumps] if holds else on_false[p - jumps]
                if step < 0:
                    break
                p = offsets[r] + step
            result[r, e] = step == ACCEPT
