"""What OpIndex files: units, each a conjunction (counted) or a whole CNF (a bitmap of its clauses) under one pivot.

    conjunction   one unit; its pivot is its least frequent attribute
    DNF           a unit for each term, which is a conjunction like any other
    CNF           a unit for each attribute of one of its clauses, the pivot set: a matching event has at least one of
                  them. The clause is the one of fewest predicates, and among those the one of least frequent attributes

Programs of jumps (language.table) are in such a form if their jumps say so. In a DNF each predicate but the last of a
term goes on to the next one when it holds, the last one to ACCEPT, and when it does not hold all go to the next term
(in the last term to REJECT). A CNF is the same with true and false, ACCEPT and REJECT exchanged.

An entry of a predicate list has the key  rank << 32 | operand  and a pointer to its unit. The rank of an attribute is
its number with the bits in reverse, the paper's "global ordering of attributes": attributes that are equal modulo b
stand together in it for every b that is a power of two, so they can be the segments of a directory.

The named groups are those of the arrays that opindex.blocks describes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.coding.clauses import Clauses
from dibs.index.groups import ClauseArrays
from dibs.index.operators import BETWEEN, EQ, GE, IN, LE, NE, Limits, operators
from dibs.index.spans import nth_span
from dibs.jit.kernel import kernel, phase
from dibs.language.table import ACCEPT, REJECT
from dibs.tuning import tuned

# w of 1, 8, 16, 32, 64 bits: 15.1, 8.8, 6.0, 6.2, 4.9 us an event
OPINDEX_CLAUSES = tuned("opindex_clauses", 64, 1, "clauses", "of a CNF that is taken: at most the bits of a word")
OPINDEX_ENTRIES = tuned("opindex_entries", 4_096, 1, "entries", "of a CNF that is taken")

OTHER, DNF, CNF = 0, 1, 2
CLAUSE_BITS = 6  # the pointer of a CNF's entry is its slot and, in this many bits, the clause
WORD = 1 << CLAUSE_BITS  # clauses that have a bit in one machine word
RANK_BITS = 31
NO_FLOOR, NO_CEILING = 2**31 - 1, -1  # of an attribute without wide predicates
LISTS = 5  # of a partition: EQ, LE, GE, NE and BETWEEN; the spans of an IN are divided among the others


def program_forms(clauses: Clauses) -> NDArray[np.uint8]:
    """The form of each program: OTHER also where a predicate is IS NULL or never holds, and for very large CNFs (which
    have each predicate once for each attribute of their pivot set)."""
    c = clauses
    if len(c) == c.conjunctions:
        return np.empty(0, np.uint8)
    most_clauses, most_entries = min(OPINDEX_CLAUSES.value, WORD), OPINDEX_ENTRIES.value
    return _program_forms(c.offsets, c.lo, c.hi, c.on_true, c.on_false, c.conjunctions, most_clauses, most_entries)


def notice(
    clauses: Clauses, floor: NDArray[np.int32], ceiling: NDArray[np.int32], frequency: NDArray[np.int64]
) -> None:
    """Adds to how frequent each attribute is: the number of predicates on it, and as a fraction of one (of 2**32) the
    number of relational predicates that they are in the paper's way of writing (an IN of k values k, a BETWEEN two).
    Attributes that had no limits (see index.operators) get those of the clauses; the others stand."""
    c = clauses
    _notice(c.attribute, c.lo, c.hi, c.span_lo, c.span_hi, floor, ceiling, frequency)


Units = tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int64], NDArray[np.int32], NDArray[np.uint64]]
# the row (~row where a row has several units), its first and last + 1 predicate, the pivot, and what must be counted


def units_of(clauses: Clauses, frequency: NDArray[np.int64], base: int) -> tuple[Units, Units, NDArray[np.uint8]]:
    """Units that are counted and those that are bitmaps, and the clause of each predicate of a program. The first row
    of the clauses has the number `base`."""
    c = clauses
    forms = program_forms(c)
    assert forms.all(), "a program that was not taken"
    own = c.offsets, c.attribute, c.on_true, c.on_false, c.conjunctions
    counted, bitmaps, clause = _units(*own, forms, frequency, base)
    return _columns(counted), _columns(bitmaps), clause


def _columns(units: NDArray[np.int64]) -> Units:
    row, first, last, pivot, need = (np.ascontiguousarray(units[:, k]) for k in range(5))
    return row.astype(np.int32), first, last, pivot.astype(np.int32), need.view(np.uint64)


def entries_of(
    clauses: Clauses,
    units: Units,
    partition: NDArray[np.int32],
    slot: NDArray[np.int32],
    clause: NDArray[np.uint8],
    limits: Limits,
    bits: int,
) -> tuple[NewEntries, NewEntries]:
    """What the units put into the predicate lists: those of one operand, and those of BETWEEN lists, which have two.
    bits: CLAUSE_BITS for bitmaps, otherwise 0."""
    c = clauses
    jumps = int(c.offsets[c.conjunctions])
    _, first, last, _, _ = units
    new = NewUnits(first, last, partition, slot)
    one, two = _entries(new, ClauseArrays.of(c), operators(c, *limits), clause, jumps, limits, bits)
    return NewEntries(*one), NewEntries(*two)


def rewrite_intervals(clauses: Clauses, limits: Limits) -> Clauses:
    """Each BETWEEN of a conjunction as the two predicates >= and <=, as the paper has it. One that reaches beyond the
    limits, within which these hold (index.operators), stays what it is, and so do programs, whose jumps count it."""
    c, (floor, ceiling) = clauses, limits
    own = c.attribute
    two = (operators(c, floor, ceiling) == BETWEEN) & (floor[own] <= c.lo) & (c.hi <= ceiling[own])
    two[c.offsets[c.conjunctions] :] = False
    which = np.repeat(np.arange(len(own)), 1 + two)
    ends = np.cumsum(1 + two)
    offsets = np.concatenate([np.zeros(1, np.int64), ends])[c.offsets]
    above, lo, hi = ends[two] - 2, c.lo[which], c.hi[which]
    hi[above], lo[above + 1] = ceiling[own[two]], floor[own[two]]
    return replace(c, offsets=offsets, attribute=own[which], lo=lo, hi=hi)


@kernel
def _is_normal(start, n, onward, aside, end, last):
    """Whether a program is runs of predicates that go `onward` one by one, the last of a run to `end`, and `aside` to
    the next run, in the last run to `last`."""
    p = 0
    while p < n:
        q = p
        while q < n - 1 and onward[start + q] == q + 1:
            q += 1
        if onward[start + q] != end:
            return False
        after = q + 1 if q + 1 < n else last
        for k in range(p, q + 1):
            if aside[start + k] != after:
                return False
        p = q + 1
    return True


@kernel
def _program_forms(offsets, lo, hi, on_true, on_false, conjunctions, most_clauses, most_entries):
    rows = len(offsets) - 1
    forms = np.zeros(rows - conjunctions, np.uint8)
    for r in range(conjunctions, rows):
        start, n = offsets[r] - offsets[conjunctions], offsets[r + 1] - offsets[r]
        usable, spans = n > 0, 0
        for p in range(offsets[r], offsets[r + 1]):
            spans += 1 if hi[p] >= 0 else -hi[p]
            if hi[p] >= 0 and (lo[p] == 0 or lo[p] > hi[p]):
                usable = False
        if not usable:
            continue
        if _is_normal(start, n, on_true, on_false, ACCEPT, REJECT):
            forms[r - conjunctions] = DNF
        elif _is_normal(start, n, on_false, on_true, REJECT, ACCEPT):
            clauses, size, least = 0, 0, n
            for p in range(n):
                size += 1
                if on_false[start + p] == REJECT:
                    clauses += 1
                    least = min(least, size)
                    size = 0
            if clauses <= most_clauses and least * spans <= most_entries:
                forms[r - conjunctions] = CNF
    return forms


@kernel
def _notice(attribute, lo, hi, span_lo, span_hi, floor, ceiling, frequency):
    for p in range(len(attribute)):
        a = attribute[p]
        frequency[a] += (1 << 32) + (-hi[p] if hi[p] < 0 else 1 + (lo[p] < hi[p]))
        low, high = lo[p], hi[p]
        if high < 0:
            low, high = span_lo[lo[p]], span_hi[lo[p] - hi[p] - 1]
        if low < high:
            if floor[a] == NO_FLOOR:
                floor[a], ceiling[a] = ~low, high  # negative: found here
            elif floor[a] < 0:
                floor[a], ceiling[a] = ~min(~floor[a], low), max(ceiling[a], high)
    for a in attribute:
        if floor[a] < 0:
            floor[a] = ~floor[a]


@kernel
def _rarest(first, last, attribute, frequency):
    best = attribute[first]
    for p in range(first + 1, last):
        a = attribute[p]
        if frequency[a] < frequency[best] or (frequency[a] == frequency[best] and a < best):
            best = a
    return best


@kernel
def _units(offsets, attribute, on_true, on_false, conjunctions, forms, frequency, base):
    """Columns: row, first, last, pivot, need (in the order of Units)."""
    jumps = offsets[conjunctions]
    most = len(attribute) - jumps
    counted, bitmaps = np.empty((conjunctions + most, 5), np.int64), np.empty((most, 5), np.int64)
    clause = np.zeros(most, np.uint8)
    n, m = 0, 0
    for r in range(len(offsets) - 1):
        start, end, row = offsets[r], offsets[r + 1], base + r
        form = DNF if r < conjunctions else forms[r - conjunctions]
        if form == DNF:
            first = n
            for p in range(start, end):
                if p == end - 1 or (r >= conjunctions and on_true[p - jumps] == ACCEPT):
                    counted[n, 0], counted[n, 1], counted[n, 2] = row, start, p + 1
                    counted[n, 3], counted[n, 4] = _rarest(start, p + 1, attribute, frequency), p + 1 - start
                    n += 1
                    start = p + 1
            if n > first + 1:
                for q in range(first, n):
                    counted[q, 0] = ~row
            continue
        clauses, begin, best, best_end, least = 0, start, start, start, np.int64(0)
        total = np.int64(0)
        for p in range(start, end):
            clause[p - jumps] = clauses
            total += frequency[attribute[p]]
            if on_false[p - jumps] == REJECT:
                size, best_size = p + 1 - begin, best_end - best
                if best_size == 0 or size < best_size or (size == best_size and total < least):
                    best, best_end, least = begin, p + 1, total
                begin, total = p + 1, np.int64(0)
                clauses += 1
        first = m
        for p in range(best, best_end):
            new = True
            for q in range(first, m):
                new = new and bitmaps[q, 3] != attribute[p]
            if new:
                bitmaps[m, 0], bitmaps[m, 1], bitmaps[m, 2], bitmaps[m, 3] = row, start, end, attribute[p]
                bitmaps[m, 4] = -1 if clauses == WORD else (1 << clauses) - 1
                m += 1
        if m > first + 1:
            for q in range(first, m):
                bitmaps[q, 0] = ~row
    return counted[:n], bitmaps[:m], clause


@phase
def rank_of(attribute):
    """The 31 bits of an attribute's number in reverse."""
    x = np.uint64(attribute)
    x = ((x >> np.uint64(1)) & np.uint64(0x55555555)) | ((x & np.uint64(0x55555555)) << np.uint64(1))
    x = ((x >> np.uint64(2)) & np.uint64(0x33333333)) | ((x & np.uint64(0x33333333)) << np.uint64(2))
    x = ((x >> np.uint64(4)) & np.uint64(0x0F0F0F0F)) | ((x & np.uint64(0x0F0F0F0F)) << np.uint64(4))
    x = ((x >> np.uint64(8)) & np.uint64(0x00FF00FF)) | ((x & np.uint64(0x00FF00FF)) << np.uint64(8))
    x = (x >> np.uint64(16)) | ((x & np.uint64(0xFFFF)) << np.uint64(16))
    return np.int64(x >> np.uint64(1))


@phase
def _list(op, low, high, floor, ceiling):
    """The list for a predicate of one span or NE, or for one span of an IN. LE asks for the floor only, and GE for the
    ceiling only, so they may reach beyond the other one: the match compares a value with just that for each list."""
    if op == NE:
        return NE
    if low == high:
        return EQ
    return LE if low == floor else GE if high == ceiling else BETWEEN


@phase
def _span_count(p, code, clauses):
    """How many entries a predicate makes."""
    return -clauses.hi[p] if code[p] == IN else 1


@phase
def _operands(p, s, code, clauses):
    """The first and the last value of entry s of a predicate; of <> the hole."""
    low, high = nth_span(p, s, clauses)
    if code[p] == NE:
        low = high = high + 1
    return low, high


@phase
def _count_entries(units, clauses, code, limits):
    """Those of one operand, and those of two."""
    floor, ceiling = limits
    narrow, wide = 0, 0
    for u in range(len(units.first)):
        for p in range(units.first[u], units.last[u]):
            a = clauses.attribute[p]
            for s in range(_span_count(p, code, clauses)):
                low, high = _operands(p, s, code, clauses)
                two = _list(code[p], low, high, floor[a], ceiling[a]) == BETWEEN
                wide += two
                narrow += not two
    return narrow, wide


@kernel
def _no_entries(n, wide):
    far = n if wide else 0
    return NewEntries(np.empty(n, np.int32), np.empty(n, np.int64), np.empty(n, np.int32), np.empty(far, np.int32))


@kernel
def _entries(units, clauses, code, clause, jumps, limits, bits):
    """code: the operator of each predicate; jumps: the first predicate of the programs, whose clauses are known."""
    narrow, wide = _count_entries(units, clauses, code, limits)
    one, two = _no_entries(narrow, False), _no_entries(wide, True)
    _fill_entries(units, clauses, code, clause, jumps, limits, bits, (one, two))
    return (one.list_of, one.key, one.pointer, one.far), (two.list_of, two.key, two.pointer, two.far)


@phase
def _fill_entries(units, clauses, code, clause, jumps, limits, bits, new):
    (floor, ceiling), (one, two) = limits, new
    narrow, wide = 0, 0
    for u in range(len(units.first)):
        for p in range(units.first[u], units.last[u]):
            a = clauses.attribute[p]
            base, to = rank_of(a) << 32, units.slot[u] << bits
            if bits > 0:
                to |= clause[p - jumps]
            for s in range(_span_count(p, code, clauses)):
                low, high = _operands(p, s, code, clauses)
                kind = _list(code[p], low, high, floor[a], ceiling[a])
                list_of = units.partition[u] * LISTS + kind
                if kind == BETWEEN:
                    two.list_of[wide], two.pointer[wide] = list_of, to
                    two.key[wide], two.far[wide] = base | low, high
                    wide += 1
                else:
                    one.list_of[narrow], one.pointer[narrow] = list_of, to
                    one.key[narrow] = base | (high if kind == LE else low)
                    narrow += 1


class PredicateLists(NamedTuple):
    """The predicate lists of one of the pools NARROW and WIDE."""

    key: NDArray[np.int64]  # rank << 32 | operand, ascending in each block
    pointer: NDArray[np.int32]
    far: NDArray[np.int32]  # WIDE only; empty in the other pool, as is link
    link: NDArray[np.int32]


class NewEntries(NamedTuple):
    """Entries that are not in their lists yet."""

    list_of: NDArray[np.int32]  # LISTS x partition + operator
    key: NDArray[np.int64]
    pointer: NDArray[np.int32]
    far: NDArray[np.int32]  # WIDE only


class Directories(NamedTuple):
    """The heads of the lists, and the segments of their directories."""

    heads: NDArray[np.int32]  # lists x HEAD
    signature: NDArray[np.uint64]
    ends: NDArray[np.int32]
    width: int  # bits of a signature


class DirectorySizes(NamedTuple):
    """The paper's b and w."""

    segments: int  # of a directory, at most; 0: there are neither directories nor signatures
    width: int  # bits of a signature, up to those of a word


class NewUnits(NamedTuple):
    """Units and where they went."""

    first: NDArray[np.int64]  # predicate
    last: NDArray[np.int64]  # + 1
    partition: NDArray[np.int32]
    slot: NDArray[np.int32]


# ---- what a match reads; it is called with plain tuples, which takes half the time, and names them itself ----


class Partitions(NamedTuple):
    """The partitions with the heads of their lists, and what is known of attributes."""

    partition: NDArray[np.int32]  # by attribute, -1: it is no pivot
    floor: NDArray[np.int32]  # by attribute, see index.operators
    ceiling: NDArray[np.int32]
    parts: NDArray[np.int32]  # partitions x PART
    heads: NDArray[np.int32]  # lists x HEAD
    signature: NDArray[np.uint64]
    ends: NDArray[np.int32]
    need: NDArray[Any]
    owner: NDArray[np.int32]
    width: int  # bits of a signature


class AllEntries(NamedTuple):
    """Both pools of entries."""

    key: NDArray[np.int64]
    pointer: NDArray[np.int32]
    wide_key: NDArray[np.int64]
    wide_pointer: NDArray[np.int32]
    far: NDArray[np.int32]
    link: NDArray[np.int32]


class Points(NamedTuple):
    """Events of points."""

    offsets: NDArray[np.int64]
    attribute: NDArray[np.int32]
    value: NDArray[np.int32]


class PartitionSpace(NamedTuple):
    """Work space for the partition that has its turn; nothing in it has to be clean."""

    counter: NDArray[Any]  # its slots: the counter array of the paper
    hits: NDArray[np.int32]  # slots whose counter became zero, and a place for one that did not
    stamp: NDArray[np.int64]  # by row: the tick of the event that last matched it
    tick: NDArray[np.int64]  # one number: events so far


class Searches(NamedTuple):
    """Work space for an event: its attributes, and what to search in the partition that has its turn and the next."""

    base: NDArray[np.int64]  # by attribute of the event: the least key of it
    bits: NDArray[np.uint64]  # (2, attributes): its bit in signatures, of equality and of other operators
    pivots: NDArray[np.int64]  # the event's partitions
    where: NDArray[np.int64]  # (both halves, WHERE), see opindex.kernels
