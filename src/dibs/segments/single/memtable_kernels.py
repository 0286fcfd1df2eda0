"""Events against records of what waits (segments.single.memtable): values as they were read, against literals as they
were read. What an operator means stands in coding.operators."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.coding.arrange import NUMBER, STRING, TIME
from dibs.coding.domain import compare_bytes
from dibs.coding.events.json_kernels import Found
from dibs.coding.operators import OTHER, holds
from dibs.index.groups import CANDIDATES, PAIRS
from dibs.index.groups import PREDICATES as TESTED
from dibs.jit.groups import Clean, Columns, Sized
from dibs.jit.kernel import phase
from dibs.language.table import ACCEPT, Op
from dibs.language.time_kernels import read_time

_BETWEEN, _NOT_BETWEEN, _IN, _NOT_IN = (int(x) for x in (Op.BETWEEN, Op.NOT_BETWEEN, Op.IN, Op.NOT_IN))
_NOT_WITHIN, _ANY_STRING = int(Op.NOT_WITHIN), int(Op.STRING)
_IS_NULL, _NOT_NULL = int(Op.IS_NULL), int(Op.NOT_NULL)
MARKS = 64  # words, a power of two: few enough to stay in the caches, which `first` is not
_HEAD, _STEP, _LITERAL = 1, 6, 3  # as in segments.single.memtable


class Records(NamedTuple):
    """All records, one behind the other, in three views; and their heads."""

    heads: Annotated[NDArray[np.int32], Columns(2)]
    words: NDArray[np.int64]
    numbers: NDArray[np.float64]
    bytes: NDArray[np.uint8]


class Values(NamedTuple):
    """The values of the event."""

    found: Found
    numbers: NDArray[np.float64]  # their keys, as numbers
    # By number of a name: 1 + its first value, 0: it has none.
    first: Annotated[NDArray[np.int32], Clean("nodes")]
    next: Annotated[NDArray[np.int32], Sized("values")]  # of each value: 1 + the next one of the same name, or 0
    # A bit for some names: set if the event has one of them.
    marks: Annotated[NDArray[np.uint64], Clean(MARKS)]


@phase(inline=False)
def match_waiting(records, values, row, progress):
    """Adds the numbers of the records that hold to the rows. There is room for all of them."""
    _mark(values)
    at, pairs, is_laid_out = np.int64(0), progress[PAIRS], False
    for number in range(len(records.heads)):
        name = records.heads[number, 1]
        if name < 0 or (values.marks[(name >> 6) & (MARKS - 1)] >> np.uint64(name & 63)) & np.uint64(1) != 0:
            if not is_laid_out:
                _lay_out(values)
                is_laid_out = True
            row[pairs] = number
            pairs += _holds(records, at, values, progress)
            progress[CANDIDATES] += 1
        at += records.heads[number, 0]
    progress[PAIRS] = pairs
    _clear(values, is_laid_out)


@phase
def _mark(values):
    found = values.found
    for i in range(found.counts[0]):
        name = np.int64(found.name[i])
        values.marks[(name >> 6) & (MARKS - 1)] |= np.uint64(1) << np.uint64(name & 63)


@phase
def _lay_out(values):
    found = values.found
    for i in range(found.counts[0] - 1, -1, -1):
        values.next[i] = values.first[found.name[i]]
        values.first[found.name[i]] = i + 1


@phase
def _clear(values, is_laid_out):
    found = values.found
    for i in range(len(values.marks)):
        values.marks[i] = 0
    if is_laid_out:
        for i in range(found.counts[0]):
            values.first[found.name[i]] = 0


@phase(inline=False)
def _holds(records, record, values, progress):
    """1 or 0."""
    words = records.words
    step = np.int64(0 if words[record] > 0 else ACCEPT)
    while step >= 0:
        at = record + _HEAD + _STEP * step
        value = np.int64(values.first[words[at]])
        operator, literal, count = words[at + 1], record + words[at + 2], words[at + 3]
        holds = operator == _IS_NULL and value == 0
        if operator != _IS_NULL:
            while value > 0 and not holds:
                if operator in (_IN, _NOT_IN):
                    holds = _test_list(operator, records, record, literal, count, values, value - 1)
                else:
                    holds = _test(operator, records, record, literal, values, value - 1)
                value = np.int64(values.next[value - 1])
        progress[TESTED] += 1
        step = words[at + 4] if holds else words[at + 5]
    return np.int64(step == ACCEPT)


@phase
def _test(operator, records, record, literal, values, i):
    """Whether value i satisfies an operator that has two literals, one or none."""
    words, kind = records.words, np.int64(values.found.kind[i])
    if operator == _NOT_NULL:
        return True
    if kind == STRING and operator <= _NOT_BETWEEN and words[literal] == TIME:  # then so are all its literals
        kind = np.int64(TIME) if _find_time(values, i) else kind
    if operator == _ANY_STRING:
        return kind == STRING
    if operator > _NOT_WITHIN:  # never, and patterns, which are not here
        return False
    first = second = np.int64(OTHER)
    if words[literal] == kind:
        first = _compare(records, record, literal, values, i)
    if operator >= _BETWEEN and words[literal + _LITERAL] == kind:
        second = _compare(records, record, literal + _LITERAL, values, i)
    return holds(operator, first, second)


@phase
def _find_time(values, i):
    """Whether value i, a string, reads as a time."""
    found, s = values.found, values.found.key[i]
    is_time, _ = read_time(found.data, found.starts[s], found.starts[s + 1])
    return is_time


@phase
def _test_list(operator, records, record, literal, count, values, i):
    """IN: it equals some literal. NOT IN: none, and is of a kind that lies between theirs."""
    words, kind = records.words, np.int64(values.found.kind[i])
    if kind == STRING and count > 0 and words[literal] == TIME:
        kind = np.int64(TIME) if _find_time(values, i) else kind
    least, most = kind + 1, kind - 1
    for k in range(count):
        at = literal + _LITERAL * k
        if words[at] == kind and _compare(records, record, at, values, i) == 0:
            return operator == _IN
        least, most = min(least, words[at]), max(most, words[at])
    return operator == _NOT_IN and count > 0 and least <= kind and kind <= most


@phase(inline=False)
def _compare(records, record, literal, values, i):
    """-1, 0 or 1: value i beside a literal of its kind, or beside a time, as which it reads."""
    found, bits, integer = values.found, records.words[literal + 1], records.words[literal + 2]
    if records.words[literal] == TIME:
        s = found.key[i]
        _, own = read_time(found.data, found.starts[s], found.starts[s + 1])
    elif found.kind[i] == STRING:
        s, start = found.key[i], 8 * record + bits
        order = compare_bytes(found.data, found.starts[s], found.starts[s + 1], records.bytes, start, start + integer)
        return np.int64(order)
    elif found.kind[i] == NUMBER:
        value, other = values.numbers[i], records.numbers[literal + 1]
        if value != other:
            return np.int64(-1 if value < other else 1)
        own = np.int64(found.rest[i])
    else:
        own = found.key[i]
    return np.int64(own > integer) - np.int64(own < integer)
