"""The kernel of coding.alternatives: steps of one attribute become one."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.jit.kernel import kernel, phase
from dibs.jit.sorting import sort_run
from dibs.language.table import ACCEPT, REJECT


class Steps(NamedTuple):
    """Those of all programs, with their jumps; lo, hi and spans as in Clauses, with room for as many spans again, and
    one for each step."""

    attribute: NDArray[np.int32]
    lo: NDArray[np.int32]
    hi: NDArray[np.int32]
    on_true: NDArray[np.int32]
    on_false: NDArray[np.int32]
    span_lo: NDArray[np.int32]
    span_hi: NDArray[np.int32]


class JoiningWork(NamedTuple):
    """For one program."""

    leader: NDArray[np.int64]  # by step: the one that it becomes part of, or itself
    number: NDArray[np.int64]  # its new number
    led: NDArray[np.int64]  # how many jumps lead to it
    run: NDArray[np.int64]  # the first step of its run
    following: NDArray[np.int64]  # the next of the same leader; -1: none
    by_attribute: NDArray[np.int64]  # the last step of a run with it, plus 1: 0 where there is none
    spans: NDArray[np.int64]  # of one leader, lo << 32 | hi


@kernel
def join_steps(offsets, steps, apart, gapless, spans):
    """Writes the new steps of each program where its old ones begin. Returns how many each has now, and whether it is a
    conjunction. spans: how many there are."""
    programs, longest, widest = len(offsets) - 1, np.int64(1), np.int64(1)
    for r in range(programs):
        longest, widest = max(longest, offsets[r + 1] - offsets[r]), max(widest, _count_all(r, offsets, steps))
    work = JoiningWork(
        np.empty(longest, np.int64),
        np.empty(longest, np.int64),
        np.empty(longest, np.int64),
        np.empty(longest, np.int64),
        np.empty(longest, np.int64),
        np.zeros(len(apart), np.int64),
        np.empty(widest, np.int64),
    )
    sizes, is_plain = np.empty(programs, np.int64), np.zeros(programs, np.bool_)
    for r in range(programs):
        base, size = offsets[r], offsets[r + 1] - offsets[r]
        sizes[r] = _find_leaders(base, size, steps, apart, work)
        if sizes[r] < size:
            spans = _write(base, size, steps, gapless, spans, work)
            is_plain[r] = _is_conjunction(base, sizes[r], steps)
    return sizes, is_plain


@phase(inline=False)
def _count_all(r, offsets, steps):
    """The spans of a program."""
    total = np.int64(0)
    for p in range(offsets[r], offsets[r + 1]):
        total += 1 if steps.hi[p] >= 0 else -np.int64(steps.hi[p])
    return total


@phase(inline=False)
def _find_leaders(base, size, steps, apart, work):
    """Fills leader, number and following. Returns how many steps are left."""
    for s in range(size):
        work.led[s], work.leader[s], work.following[s] = 0, s, -1
    for s in range(size):
        for target in (steps.on_true[base + s], steps.on_false[base + s]):
            if target >= 0:
                work.led[target] += 1
    first, left = np.int64(0), np.int64(0)
    while first < size:
        behind = _end_of_run(first, base, size, steps, work)
        for s in range(first, behind):
            a = steps.attribute[base + s]
            if behind > first + 1 and not apart[a] and _needs_value(base + s, steps):
                before = work.by_attribute[a] - 1
                if before >= 0:
                    work.leader[s], work.following[before] = work.leader[before], s
                work.by_attribute[a] = s + 1
            work.number[s], work.run[s] = left, first
            left += work.leader[s] == s
        for s in range(first, behind):
            work.by_attribute[steps.attribute[base + s]] = 0
        first = behind
    return left


@phase
def _end_of_run(first, base, size, steps, work):
    s = first + 1
    while (
        s < size
        and steps.on_false[base + s - 1] == s
        and steps.on_true[base + s] == steps.on_true[base + first]
        and work.led[s] == 1
    ):
        s += 1
    return s


@phase
def _needs_value(p, steps):
    return (steps.lo[p] if steps.hi[p] >= 0 else steps.span_lo[steps.lo[p]]) > 0


@phase(inline=False)
def _write(base, size, steps, gapless, spans, work):
    """The leaders, each with the spans of those that it leads. No step gets a higher number, so places are read before
    they are written. Returns how many spans there are then."""
    first = np.int64(0)
    while first < size:
        behind = first + 1  # of the run
        on_true, on_false = steps.on_true[base + first], steps.on_false[base + first]
        while behind < size and work.run[behind] == work.run[first]:
            on_false = steps.on_false[base + behind]
            behind += 1
        to_true, to_false = _moved(on_true, work), _moved(on_false, work)
        last = first
        for s in range(first, behind):
            if work.leader[s] == s:
                last = s
        for s in range(first, behind):
            if work.leader[s] == s:
                spans = _take_spans(base, s, steps, gapless, spans, work)
                to = base + work.number[s]
                steps.attribute[to], steps.lo[to], steps.hi[to] = (
                    steps.attribute[base + s], steps.lo[base + s], steps.hi[base + s],
                )  # fmt: skip
                steps.on_true[to] = to_true
                steps.on_false[to] = to_false if s == last else work.number[s] + 1
        first = behind
    return spans


@phase
def _moved(target, work):
    return np.int32(target if target < 0 else work.number[target])


@phase(inline=False)
def _take_spans(base, s, steps, gapless, spans, work):
    """Gives a leader the spans of all that it leads."""
    if work.following[s] < 0:
        return spans
    n, k = np.int64(0), s
    while k >= 0:
        lo, hi = np.int64(steps.lo[base + k]), np.int64(steps.hi[base + k])
        if hi < 0:
            for i in range(lo, lo - hi):
                work.spans[n] = (np.int64(steps.span_lo[i]) << 32) | np.int64(steps.span_hi[i])
                n += 1
        elif lo <= hi:
            work.spans[n] = (lo << 32) | hi
            n += 1
        k = work.following[k]
    sort_run(work.spans, 0, n)
    nearest = 0 if gapless[steps.attribute[base + s]] else 1  # so far from the one before, a span is joined to it
    start = spans
    for i in range(n):
        lo, hi = work.spans[i] >> 32, work.spans[i] & 0xFFFFFFFF
        if spans > start and lo <= steps.span_hi[spans - 1] + nearest:
            steps.span_hi[spans - 1] = max(np.int64(steps.span_hi[spans - 1]), hi)
        else:
            steps.span_lo[spans], steps.span_hi[spans] = lo, hi
            spans += 1
    if spans - start > 1:
        steps.lo[base + s], steps.hi[base + s] = start, start - spans
        return spans
    steps.lo[base + s], steps.hi[base + s] = 1, 0
    if spans > start:
        steps.lo[base + s], steps.hi[base + s] = steps.span_lo[start], steps.span_hi[start]
    return start


@phase(inline=False)
def _is_conjunction(base, size, steps):
    """Whether a program goes on from step to step, and rejects when one does not hold."""
    for s in range(size):
        if steps.on_true[base + s] != (s + 1 if s + 1 < size else ACCEPT) or steps.on_false[base + s] != REJECT:
            return False
    return True
