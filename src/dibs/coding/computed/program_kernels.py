"""Tests that are made last, of numbers, by a small machine: see program.py.

A value is (kind, whole, integer, number) as in a Vector, and one of a stack; what is not a number is NULL.
"""

from __future__ import annotations

import math

import numpy as np

from dibs.coding.computed.distance_kernels import distance
from dibs.coding.computed.program import (
    ABS,
    ADD,
    CONSTANT,
    DEPTH,
    DIVIDE,
    FIELD,
    GEO_DISTANCE,
    NEGATIVE,
    SQRT,
    SUBTRACT,
    TESTS,
)
from dibs.coding.computed.residuals import HIGH_OPEN, LOW_OPEN, TRUTH
from dibs.jit.kernel import kernel, phase
from dibs.language.expression import Kind

_NUMBER = int(Kind.NUMBER)
_TWO_63 = 2.0**63
_LEAST = np.int64(-(2**63))


@kernel
def test_pairs(code, event, test, first, combinations, columns, constants, tests, holds):
    """Fills in whether each test holds for its event, by some combination of its values. test: counted from the first
    of the form. first: the form's first constant and test. No program is deeper than DEPTH."""
    there, whole = np.empty(DEPTH, np.bool_), np.empty(DEPTH, np.bool_)
    integer, number = np.empty(DEPTH, np.int64), np.empty(DEPTH, np.float64)
    holes, known = combinations.holes, np.full(4, math.nan)
    for i in range(len(event)):
        e, t = event[i], test[i]
        holds[i] = False
        for c in range(combinations.start[e], combinations.start[e] + combinations.size[e]):
            own = first[0] + t * holes[0]
            _run(code, combinations.place[:, c], own, columns, constants, (there, whole, integer, number), known)
            if there[0] and _is_wanted(tests, first[1] + t, whole[0], integer[0], number[0]):
                holds[i] = True
                break


@phase(inline=False)
def _run(code, place, constant, columns, constants, stack, known):
    """The value is the last on the stack."""
    there, whole, integer, number = stack
    top = -1
    for k in range(len(code)):
        op, argument = code[k, 0], code[k, 1]
        if op == FIELD:
            top += 1
            at = place[argument]
            there[top] = at >= 0 and columns.kind[at] == _NUMBER
            if there[top]:
                whole[top], integer[top], number[top] = columns.whole[at], columns.integer[at], columns.number[at]
        elif op == CONSTANT:
            top += 1
            at = constant + argument
            there[top], whole[top] = True, constants.whole[at]
            integer[top], number[top] = constants.integer[at], constants.number[at]
        elif op in (NEGATIVE, ABS):
            if whole[top]:
                if op == NEGATIVE or integer[top] < 0:
                    there[top] = there[top] and integer[top] != _LEAST
                    integer[top] = -integer[top]
                number[top] = np.float64(integer[top])
            else:
                number[top] = -number[top] if op == NEGATIVE else abs(number[top])
        elif op == SQRT:
            if there[top]:
                root = math.sqrt(number[top]) if number[top] >= 0 else math.nan
                _set_number(top, root, whole, integer, number)
        elif op == GEO_DISTANCE:
            top -= 3
            there[top] = there[top] and there[top + 1] and there[top + 2] and there[top + 3]
            if there[top]:
                metres = distance(number[top], number[top + 1], number[top + 2], number[top + 3], known)
                there[top] = not math.isnan(metres)
                _set_number(top, metres, whole, integer, number)
        elif op >= TESTS:
            top -= 1
            there[top] = there[top] and there[top + 1]
            if there[top]:
                truth = _compare(op - TESTS, _order(top, top + 1, whole, integer, number))
                whole[top], integer[top], number[top] = True, truth, np.float64(truth)
        else:
            top -= 1
            there[top] = there[top] and there[top + 1]
            if there[top]:
                there[top] = _compute(op, top, whole, integer, number)


@phase(inline=False)
def _compute(op, top, whole, integer, number):
    """The result of two numbers, in place of the first; False: it is NULL."""
    a, b, x, y = integer[top], integer[top + 1], number[top], number[top + 1]
    if op == DIVIDE:
        if y == 0.0:
            return False
        _set_number(top, x / y, whole, integer, number)
        return True
    near = x + y if op == ADD else (x - y if op == SUBTRACT else x * y)
    if not (whole[top] and whole[top + 1]):
        _set_number(top, near, whole, integer, number)
        return True
    if abs(near) > 9.3e18:
        return False
    exact = a + b if op == ADD else (a - b if op == SUBTRACT else a * b)
    if abs(np.float64(exact) - near) > 1e18:  # it has gone round: by 2^64
        return False
    integer[top], number[top] = exact, np.float64(exact)
    return True


@phase
def _set_number(top, value, whole, integer, number):
    """A result of float64: a whole one is an integer."""
    number[top] = value
    whole[top] = math.floor(value) == value and -_TWO_63 <= value < _TWO_63 if math.isfinite(value) else False
    integer[top] = np.int64(value) if whole[top] else np.int64(0)


@phase
def _key(whole, integer, number):
    """As coding.values has numbers."""
    if whole:
        near = np.float64(integer)
        if near >= _TWO_63:
            return near, integer - np.int64(2**63 - 1) - 1
        return near, integer - np.int64(near)
    if math.isnan(number):
        return math.inf, np.int64(1)
    return number, np.int64(0)


@phase
def _order(first, second, whole, integer, number):
    """-1, 0 or 1."""
    x, rest_x = _key(whole[first], integer[first], number[first])
    y, rest_y = _key(whole[second], integer[second], number[second])
    if x != y:
        return -1 if x < y else 1
    return 0 if rest_x == rest_y else (-1 if rest_x < rest_y else 1)


@phase
def _compare(sign, order):
    """1 or 0; sign: a place in program.COMPARED."""
    if sign == 0:
        return np.int64(order == 0)
    if sign == 1:
        return np.int64(order != 0)
    if sign == 2:
        return np.int64(order < 0)
    if sign == 3:
        return np.int64(order <= 0)
    return np.int64(order > 0) if sign == 4 else np.int64(order >= 0)


@phase
def _is_wanted(tests, t, whole, integer, number):
    flags = tests.flags[t]
    if flags & TRUTH != 0:
        return np.float64(integer) == tests.low[t]
    key, rest = _key(whole, integer, number)
    low, high = tests.low[t], tests.high[t]
    if key < low or key > high:
        return False
    if key == low:
        below = np.int64(tests.low_rest[t])
        if rest < below or (rest == below and flags & LOW_OPEN != 0):
            return False
    if key == high:
        above = np.int64(tests.high_rest[t])
        if rest > above or (rest == above and flags & HIGH_OPEN != 0):
            return False
    return True
