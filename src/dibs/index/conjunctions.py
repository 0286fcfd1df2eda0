"""The clauses that the papers' structures see: conjunctions over values that are there, sorted by attribute.

The papers know neither IS NULL nor expressions that are always or never true, so `select` sorts the rows out:

    TAKEN   every predicate is about a value and can hold
    LEFT    no predicate at all, some IS NULL, or a program (OR, IS NOT TRUE): index.complete matches these
    NEVER   some predicate never holds: nothing to do

A structure for single-valued events also gets at most one predicate for each attribute of a row: two predicates on one
value hold together exactly where their spans meet. (With several values each predicate may be satisfied by another
one, so structures that take arrays and ranges get the predicates as they are.)
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.coding.clauses import Clauses, runs
from dibs.index.groups import ClauseArrays
from dibs.index.spans import count_spans, nth_span
from dibs.jit.kernel import kernel, phase

LEFT, TAKEN, NEVER = 0, 1, 2


def select(
    clauses: Clauses, several: bool, programs: NDArray[np.bool_] | None = None
) -> tuple[Clauses, NDArray[np.int32], NDArray[np.int32]]:
    """The clauses for a structure, the row of each, and the rows that are left. several: the structure takes events
    with several values; programs: which programs (in order) it takes."""
    c = clauses
    fate = _fates(c.offsets, c.attribute, c.lo, c.hi, c.conjunctions)
    if programs is not None:
        fate[c.conjunctions :][programs] = TAKEN
    left = np.flatnonzero(fate == LEFT).astype(np.int32)
    taken = np.flatnonzero(fate == TAKEN)
    plain = taken[taken < c.conjunctions]
    if len(taken) == len(c) and not _out_of_order(c.offsets, c.attribute, c.conjunctions):
        return clauses, taken.astype(np.int32), left
    kept, sizes, joined = _conjoin(plain, several, ClauseArrays.of(c))
    attribute, lo, hi, span_lo, span_hi = joined
    taken = np.concatenate([plain[kept], taken[len(plain) :]])
    rows = taken[kept.sum() :]
    counts = np.diff(c.offsets)[rows]
    steps = runs(c.offsets[rows], counts)
    jumps = steps - c.offsets[c.conjunctions]
    step_lo, step_hi, step_span_lo, step_span_hi = _with_spans(c, steps, len(span_lo))
    offsets = np.zeros(len(taken) + 1, np.int64)
    np.cumsum(np.concatenate([sizes, counts]), out=offsets[1:])
    chosen = Clauses(
        offsets=offsets,
        attribute=np.concatenate([attribute, c.attribute[steps]]),
        lo=np.concatenate([lo, step_lo]),
        hi=np.concatenate([hi, step_hi]),
        span_lo=np.concatenate([span_lo, step_span_lo]),
        span_hi=np.concatenate([span_hi, step_span_hi]),
        on_true=c.on_true[jumps],
        on_false=c.on_false[jumps],
        conjunctions=len(taken) - len(rows),
        attributes=c.attributes,
    )
    return chosen, taken.astype(np.int32), left


def _with_spans(clauses: Clauses, predicates: NDArray[np.int64], base: int) -> tuple[NDArray[np.int32], ...]:
    """lo and hi of the predicates, and their spans, which will stand from `base` on."""
    lo, hi = clauses.lo[predicates].copy(), clauses.hi[predicates]
    several = np.flatnonzero(hi < 0)
    counts = -hi[several].astype(np.int64)
    side = runs(lo[several].astype(np.int64), counts)
    lo[several] = base + np.cumsum(counts) - counts
    return lo, hi, clauses.span_lo[side], clauses.span_hi[side]


@kernel
def _fates(offsets, attribute, lo, hi, conjunctions):
    fate = np.full(len(offsets) - 1, LEFT, np.uint8)
    for r in range(conjunctions):
        if offsets[r] < offsets[r + 1]:
            fate[r] = TAKEN
        for p in range(offsets[r], offsets[r + 1]):
            if hi[p] >= 0 and lo[p] > hi[p]:
                fate[r] = NEVER
                break
            if hi[p] >= 0 and lo[p] == 0:
                fate[r] = LEFT
    return fate


@kernel
def _out_of_order(offsets, attribute, conjunctions):
    for r in range(conjunctions):
        for p in range(offsets[r] + 1, offsets[r + 1]):
            if attribute[p] <= attribute[p - 1]:
                return True
    return False


class JoinedPredicates(NamedTuple):
    """Predicates, as in coding.clauses."""

    attribute: NDArray[np.int32]
    lo: NDArray[np.int32]
    hi: NDArray[np.int32]
    span_lo: NDArray[np.int32]
    span_hi: NDArray[np.int32]


class Scratch(NamedTuple):
    order: NDArray[np.int64]  # a row's predicates by attribute
    lo: NDArray[np.int32]  # the spans that predicates on one attribute have in common
    hi: NDArray[np.int32]
    next_lo: NDArray[np.int32]  # these, and one more predicate's
    next_hi: NDArray[np.int32]


@kernel
def _conjoin(rows, several, clauses):
    """The rows with their predicates sorted by attribute and, unless `several`, joined where they share one. Says
    which rows can hold at all."""
    longest, predicates, spans = 0, 0, 0
    for r in rows:
        longest = max(longest, clauses.offsets[r + 1] - clauses.offsets[r])
        predicates += clauses.offsets[r + 1] - clauses.offsets[r]
        for p in range(clauses.offsets[r], clauses.offsets[r + 1]):
            spans += count_spans(p, clauses)
    kept, sizes = np.ones(len(rows), np.bool_), np.empty(len(rows), np.int64)
    # A join of spans is never longer than all that went into it.
    out = JoinedPredicates(
        np.empty(predicates, np.int32),
        np.empty(predicates, np.int32),
        np.empty(predicates, np.int32),
        np.empty(spans, np.int32),
        np.empty(spans, np.int32),
    )
    scratch = Scratch(
        np.empty(longest, np.int64),
        np.empty(spans, np.int32),
        np.empty(spans, np.int32),
        np.empty(spans, np.int32),
        np.empty(spans, np.int32),
    )
    count, n, side = _conjoin_rows(rows, several, clauses, scratch, kept, sizes, out)
    joined = (out.attribute[:n], out.lo[:n], out.hi[:n], out.span_lo[:side], out.span_hi[:side])
    return kept, sizes[:count], joined


@phase(inline=False)
def _conjoin_rows(rows, several, clauses, scratch, kept, sizes, out):
    """Returns how many rows were kept, and how many predicates and spans they have."""
    count, n, side = np.int64(0), np.int64(0), np.int64(0)
    for i in range(len(rows)):
        size, more = _conjoin_row(rows[i], several, n, side, clauses, scratch, out)
        kept[i] = size >= 0
        if kept[i]:
            sizes[count] = size
            count, n, side = count + 1, n + size, side + more
    return count, n, side


@phase(inline=False)
def _conjoin_row(row, several, n, side, clauses, scratch, out):
    """Writes a row's predicates from the n-th on and their spans from `side` on. Returns how many there are: -1
    predicates if the row cannot hold."""
    first_n, first_side = n, side
    size = _sort_row(row, clauses, scratch.order)
    k = 0
    while k < size:
        a = clauses.attribute[scratch.order[k]]
        spans = _copy_spans(scratch.order[k], clauses, scratch)
        k += 1
        while not several and k < size and clauses.attribute[scratch.order[k]] == a:
            spans = _intersect(scratch.order[k], spans, clauses, scratch)
            k += 1
        if spans == 0:
            return -1, 0
        out.attribute[n], out.lo[n], out.hi[n] = a, scratch.lo[0], scratch.hi[0]
        if spans > 1:
            out.lo[n], out.hi[n] = side, -spans
            for s in range(spans):
                out.span_lo[side], out.span_hi[side] = scratch.lo[s], scratch.hi[s]
                side += 1
        n += 1
    return n - first_n, side - first_side


@kernel(inline="always")
def _sort_row(row, clauses, order):
    """The row's predicates by attribute, equal ones as they were. Returns how many there are."""
    first, last = clauses.offsets[row], clauses.offsets[row + 1]
    for p in range(first, last):
        at = p - first
        while at > 0 and clauses.attribute[order[at - 1]] > clauses.attribute[p]:
            order[at] = order[at - 1]
            at -= 1
        order[at] = p
    return last - first


@kernel(inline="always")
def _copy_spans(p, clauses, scratch):
    for s in range(count_spans(p, clauses)):
        scratch.lo[s], scratch.hi[s] = nth_span(p, s, clauses)
    return np.int64(count_spans(p, clauses))


@kernel(inline="always")
def _intersect(p, have, clauses, scratch):
    """What the spans in the scratch and those of a predicate have in common, into the scratch. Returns how many."""
    x, y, count = 0, 0, np.int64(0)
    while x < have and y < count_spans(p, clauses):
        low, high = nth_span(p, y, clauses)
        have_lo, have_hi = scratch.lo[x], scratch.hi[x]
        if max(low, have_lo) <= min(high, have_hi):
            scratch.next_lo[count], scratch.next_hi[count] = max(low, have_lo), min(high, have_hi)
            count += 1
        if have_hi < high:
            x += 1
        else:
            y += 1
    for s in range(count):
        scratch.lo[s], scratch.hi[s] = scratch.next_lo[s], scratch.next_hi[s]
    return count
