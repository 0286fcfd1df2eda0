"""The machine that runs programs (program.py), over blocks of rows: a step is done for all rows of a block before the
next one begins, so that to find out which step it is costs nothing."""

from __future__ import annotations

import numpy as np

from dibs.coding.computed.distance_kernels import distance
from dibs.coding.computed.number_steps import (
    cast_number,
    combine_bits,
    combine_numbers,
    compare,
    compute,
    copy_value,
    divide_whole,
    key_of,
    put_key,
    raise_to,
    set_float,
    transform,
)
from dibs.coding.computed.other_steps import (
    add_months,
    ask,
    choose,
    choose_one,
    find_extreme,
    join_truths,
    pass_days,
    shift,
    shift_months,
    take_part,
)
from dibs.coding.computed.program_layout import (
    ADD_MONTHS,
    AND,
    BITS_NOT,
    BOOLEAN,
    COALESCE,
    COMPARED,
    CONCAT,
    DAYS_BETWEEN,
    DIVIDE,
    EXP,
    FAILS,
    FIELD,
    GEO_DISTANCE,
    GREATEST,
    HIGH_OPEN,
    HOLDS,
    HOLE,
    IF,
    IP_KEY,
    IS_NOT_NULL,
    LEAST,
    LEFT_OVER,
    LIKE,
    LITERAL,
    LOG2,
    LOW_OPEN,
    LOWER,
    MONTHS_LATER,
    NOT,
    NULL,
    NULLIF,
    NUMBER,
    OR,
    QUOTIENT,
    REVERSE,
    RIGHT,
    ROUND_TO,
    SAME,
    STRING,
    TEXT_OF,
    TIME_PART,
    TO_BOOLEAN,
    TRUNCATE,
    TRUTH,
    UNITS,
)
from dibs.coding.computed.text_steps import (
    change_text,
    compare_texts,
    cut_texts,
    join_texts,
    put_text,
    transform_text,
    write_texts,
)
from dibs.jit.kernel import kernel, phase


@phase(inline=False)
def run(code, first, last, n, sources, machine):
    """The steps from `first` to `last`, for the first n rows of the machine: results are at the bottom of its stack. No
    program is deeper than DEPTH, and bytes are written only where there is room."""
    columns, holes, data = sources.columns, sources.holes, sources.data
    v, left, stride = machine.stack, machine.left, len(machine.left)
    for r in range(n):
        left[r] = False
    top = -stride
    for step in range(first, last):
        op, argument = np.int64(code[step, 0]), np.int64(code[step, 1])
        if op == FIELD:
            top += stride
            for r in range(n):
                at = sources.places[argument * sources.width + machine.place[r]]
                if at >= 0:
                    copy_value(columns, at, v, top + r)
                else:
                    v.kind[top + r] = NULL
        elif op == HOLE:
            top += stride
            for r in range(n):
                i, at = top + r, machine.hole[r] + argument
                v.kind[i], v.number[i], v.integer[i], v.whole[i] = (
                    NUMBER,
                    holes.number[at],
                    holes.integer[at],
                    holes.whole[at],
                )
        elif op == LITERAL:
            top += stride
            _put_literal(sources.literals, argument, v, top, n, left, data, machine.free)
        elif op <= DIVIDE:
            top -= stride
            compute(op, v, top, top + stride, n, left, data)
        elif op >= COMPARED and op < SAME:
            top -= stride
            compare(op - COMPARED, v, top, top + stride, n, data)
        elif op <= QUOTIENT:
            top -= stride
            divide_whole(op, v, top, top + stride, n)
        elif op <= RIGHT:
            top -= stride
            combine_bits(op, v, top, top + stride, n)
        elif op <= BITS_NOT:
            transform(op, v, top, n)
        elif op == GEO_DISTANCE:
            top -= 3 * stride
            _measure(v, top, stride, n, machine.known)
        elif op in (AND, OR):
            top -= stride
            join_truths(op, v, top, top + stride, n)
        elif op >= NOT and op <= IS_NOT_NULL:
            ask(op, v, top, n)
        elif op in (SAME, COALESCE, NULLIF):
            top -= stride
            choose(op, v, top, top + stride, n, data)
        elif op == IF:
            top -= 2 * stride
            choose_one(v, top, top + stride, top + 2 * stride, n)
        elif op in (GREATEST, LEAST):
            top -= (argument - 1) * stride
            find_extreme(op, v, top, argument, stride, n, data)
        elif op == CONCAT:
            top -= stride
            join_texts(v, top, top + stride, n, left, data, machine.free)
        elif op >= LOWER and op <= IP_KEY:
            transform_text(op, v, top, n, left, data, machine.free, machine.groups)
        elif op == TEXT_OF:
            write_texts(v, top, n, left, data, machine.free)
        elif op > ADD_MONTHS:
            top = _run_texts(op, argument, v, top, stride, n, left, data, machine.free)
        elif op >= EXP:
            top = _run_others(op, argument, v, top, stride, n, left, data)
        elif op >= TIME_PART:
            take_part(op - TIME_PART, v, top, n, left, data)
        elif op >= DAYS_BETWEEN and op <= UNITS and op != TRUNCATE:
            top -= stride
            pass_days(op, argument, v, top, top + stride, n, left, data)
        else:
            shift(op, argument, v, top, n, left, data)


@phase(inline=False)
def _run_texts(op, argument, v, top, stride, n, left, data, free):
    """Steps from TRIM on; returns where the stack ends then."""
    if op <= REVERSE:
        change_text(op, argument, v, top, n, left, data, free)
    elif op <= LIKE:
        top -= stride
        compare_texts(op, argument, v, top, top + stride, n, left, data)
    else:
        top -= 2 * stride
        cut_texts(op, v, top, top + stride, top + 2 * stride, n, left, data, free)
    return top


@phase(inline=False)
def _run_others(op, argument, v, top, stride, n, left, data):
    """Steps behind the parts of times, up to ADD_MONTHS; returns where the stack ends then."""
    if op <= LOG2:
        raise_to(op, v, top, n)
    elif op <= ROUND_TO:
        top -= stride
        combine_numbers(op, v, top, top + stride, n, left)
    elif op <= TO_BOOLEAN:
        cast_number(op, argument, v, top, n, left, data)
    elif op <= MONTHS_LATER:
        shift_months(op, argument, v, top, n, left, data)
    else:
        top -= stride
        add_months(v, top, top + stride, n, left, data)
    return top


@phase(inline=False)
def _put_literal(literals, argument, v, top, n, left, data, free):
    column = literals.column
    if column.kind[argument] != STRING:
        for r in range(n):
            copy_value(column, argument, v, top + r)
    elif put_text(literals.data, column.start[argument], column.end[argument], v, top, data, free):
        for r in range(1, n):
            copy_value(v, top, v, top + r)
    else:
        for r in range(n):
            left[r] = True
            v.kind[top + r] = NULL


@phase(inline=False)
def _measure(v, top, stride, n, known):
    for r in range(n):
        a, b, c, d = top + r, top + r + stride, top + r + 2 * stride, top + r + 3 * stride
        if v.kind[a] == NUMBER and v.kind[b] == NUMBER and v.kind[c] == NUMBER and v.kind[d] == NUMBER:
            metres = distance(v.number[a], v.number[b], v.number[c], v.number[d], known)
            if metres == metres:
                set_float(v, a, metres)
            else:
                v.kind[a] = NULL
        else:
            v.kind[a] = NULL


@kernel
def fill_numbers(value, rest, rows, column, at):
    """Numbers as EventValues has them, as values of a column from `at` on."""
    for i in range(len(rows)):
        put_key(column, at + i, value[rows[i]], rest[rows[i]])


@kernel
def sort_by_name(name, names):
    """(where the values of each name begin, the places of all values by name, in their order)."""
    first = np.zeros(names + 2, np.int64)
    for i in range(len(name)):
        first[name[i] + 2] += 1
    for k in range(2, names + 2):
        first[k] += first[k - 1]
    order = np.empty(len(name), np.int64)
    for i in range(len(name)):
        order[first[name[i] + 1]] = i
        first[name[i] + 1] += 1
    return first, order


@kernel
def place_values(own, event, places, counts):
    """The place of the first value of each event, and how many it has; returns the largest number."""
    most = np.int64(0)
    for i in range(len(own)):
        e = event[own[i]]
        if counts[e] == 0:
            places[e] = own[i]
        counts[e] += 1
        most = max(most, np.int64(counts[e]))
    return most


@kernel
def compute_rows(code, sources, texts, found, left, done, machine):
    """The values of a program for rows, from done[0] on, until all are made or texts has no more room for one: then
    done[0] says how far it came. done[1]: the bytes of texts that are used. found.end of a row: where its text ends
    there, and that of the next one begins."""
    base, block, rows = machine.free[0], len(machine.left), len(left)
    at = done[0]
    while at < rows:
        n = min(block, rows - at)
        for r in range(n):
            machine.place[r] = at + r
        machine.free[0] = base
        run(code, 0, len(code), n, sources, machine)
        size = np.int64(0)
        for r in range(n):
            if machine.stack.kind[r] == STRING and not machine.left[r]:
                size += machine.stack.end[r] - machine.stack.start[r]
        if done[1] + size > len(texts):
            done[2] = size
            break
        _keep(machine.stack, machine.left, n, at, found, left, sources.data, texts, done)
        at += n
    done[0] = at
    machine.free[0] = base


@phase(inline=False)
def _keep(v, is_left, n, at, found, left, data, texts, done):
    """There is room for the texts."""
    end = done[1]
    for r in range(n):
        copy_value(v, r, found, at + r)
        left[at + r] = is_left[r]
        if is_left[r]:
            found.kind[at + r] = NULL
        elif v.kind[r] == STRING:
            start, to = np.uint64(v.start[r]), np.uint64(end)
            end += v.end[r] - v.start[r]
            for k in range(np.uint64(end) - to):  # unsigned, or it is no loop of vectors
                texts[to + k] = data[start + k]
        found.end[at + r] = end
    done[1] = end


@kernel
def test_pairs(code, event, test, first, combinations, sources, tests, holds, machine):
    """Fills in whether each test holds for its event, by some combination of its values. test: counted from the first
    of the form. first: the form's first hole and test, and how many holes a test has."""
    block, base = len(machine.left), machine.free[0]
    rows = np.int64(0)
    for i in range(len(event)):
        holds[i] = FAILS
        start = combinations.start[event[i]]
        for c in range(start, start + combinations.size[event[i]]):
            machine.place[rows], machine.hole[rows], machine.pair[rows] = c, first[0] + test[i] * first[2], i
            rows += 1
            if rows == block:
                run(code, 0, len(code), rows, sources, machine)
                _judge(machine, rows, test, first[1], tests, holds)
                rows, machine.free[0] = np.int64(0), base
    run(code, 0, len(code), rows, sources, machine)
    _judge(machine, rows, test, first[1], tests, holds)
    machine.free[0] = base


@phase
def _judge(machine, rows, test, first, tests, holds):
    v = machine.stack
    for r in range(rows):
        i = machine.pair[r]
        if machine.left[r]:
            holds[i] = HOLDS if holds[i] == HOLDS else LEFT_OVER
        elif _is_wanted(tests, first + test[i], v.kind[r], v.whole[r], v.integer[r], v.number[r]):
            holds[i] = HOLDS


@phase
def _is_wanted(tests, t, kind, whole, integer, number):
    flags = tests.flags[t]
    if flags & TRUTH != 0:
        return kind == BOOLEAN and np.float64(integer) == tests.low[t]
    if kind != NUMBER:
        return False
    key, rest = key_of(whole, integer, number)
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
