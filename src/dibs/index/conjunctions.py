"""The clauses that the papers' structures see: conjunctions over values that are there, sorted by attribute.

The papers know neither IS NULL nor expressions that are always or never true, so `select` sorts the rows out:

    TAKEN   every predicate is about a value and can hold
    LEFT    no predicate at all, some IS NULL, or a program: index.complete matches these
    NEVER   some predicate never holds: nothing to do

A structure for single-valued events also gets at most one predicate for each attribute of a row: two predicates on one
value hold together exactly where their spans meet. (With several values each predicate may be satisfied by another
one, so structures that take arrays and ranges get the predicates as they are.)
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dibs.coding.clauses import Clauses, runs
from dibs.jit.kernel import kernel

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
    columns = (c.offsets, c.attribute, c.lo, c.hi, c.span_lo, c.span_hi)
    kept, sizes, attribute, lo, hi, span_lo, span_hi = _conjoin(plain, several, *columns)
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


@kernel
def _conjoin(rows, several, offsets, attribute, lo, hi, span_lo, span_hi):
    """The rows with their predicates sorted by attribute and, unless `several`, joined where they share one. Says
    which rows can hold at all."""
    predicates, spans = 0, 0
    for r in rows:
        predicates += offsets[r + 1] - offsets[r]
        for p in range(offsets[r], offsets[r + 1]):
            spans += 1 if hi[p] >= 0 else -hi[p]
    kept, sizes = np.ones(len(rows), np.bool_), np.empty(len(rows), np.int64)
    out_attribute, out_lo, out_hi = (
        np.empty(predicates, np.int32),
        np.empty(predicates, np.int32),
        np.empty(predicates, np.int32),
    )
    # A join of spans is never longer than all that went into it.
    out_span_lo, out_span_hi = np.empty(spans, np.int32), np.empty(spans, np.int32)
    have_lo, have_hi = np.empty(spans, np.int32), np.empty(spans, np.int32)
    next_lo, next_hi = np.empty(spans, np.int32), np.empty(spans, np.int32)
    n, side, out = 0, 0, 0
    for i in range(len(rows)):
        first, last = offsets[rows[i]], offsets[rows[i] + 1]
        order = np.empty(last - first, np.int64)
        for p in range(first, last):
            at = p - first
            while at > 0 and attribute[order[at - 1]] > attribute[p]:
                order[at] = order[at - 1]
                at -= 1
            order[at] = p
        n_before, side_before = n, side
        k = 0
        while k < len(order):
            p = order[k]
            a = attribute[p]
            k += 1
            if several or k == len(order) or attribute[order[k]] != a:
                out_attribute[n], out_lo[n], out_hi[n] = a, lo[p], hi[p]
                if hi[p] < 0:
                    out_lo[n] = side
                    for s in range(lo[p], lo[p] - hi[p]):
                        out_span_lo[side], out_span_hi[side] = span_lo[s], span_hi[s]
                        side += 1
                n += 1
                continue
            have = 1 if hi[p] >= 0 else -hi[p]
            for s in range(have):
                have_lo[s] = lo[p] if hi[p] >= 0 else span_lo[lo[p] + s]
                have_hi[s] = hi[p] if hi[p] >= 0 else span_hi[lo[p] + s]
            while k < len(order) and attribute[order[k]] == a:
                q = order[k]
                k += 1
                more = 1 if hi[q] >= 0 else -hi[q]
                x, y, count = 0, 0, 0
                while x < have and y < more:
                    low = lo[q] if hi[q] >= 0 else span_lo[lo[q] + y]
                    high = hi[q] if hi[q] >= 0 else span_hi[lo[q] + y]
                    if max(low, have_lo[x]) <= min(high, have_hi[x]):
                        next_lo[count], next_hi[count] = max(low, have_lo[x]), min(high, have_hi[x])
                        count += 1
                    if have_hi[x] < high:
                        x += 1
                    else:
                        y += 1
                for s in range(count):
                    have_lo[s], have_hi[s] = next_lo[s], next_hi[s]
                have = count
            if have == 0:
                kept[i] = False
                break
            out_attribute[n], out_lo[n], out_hi[n] = a, have_lo[0], have_hi[0]
            if have > 1:
                out_lo[n], out_hi[n] = side, -have
                for s in range(have):
                    out_span_lo[side], out_span_hi[side] = have_lo[s], have_hi[s]
                    side += 1
            n += 1
        if kept[i]:
            sizes[out] = n - n_before
            out += 1
        else:
            n, side = n_before, side_before
    return kept, sizes[:out], out_attribute[:n], out_lo[:n], out_hi[:n], out_span_lo[:side], out_span_hi[:side]
