"""The spans of a coded predicate, for kernels (see coding.clauses): one, lo to hi; or, where hi is negative, -hi of
them, which stand in span_lo and span_hi from lo on, in order and disjoint.

`clauses` is any group of arrays with lo, hi, span_lo and span_hi, `spans` one with the last two.
"""

from __future__ import annotations

from dibs.jit.kernel import phase


@phase
def count_spans(p, clauses):
    return 1 if clauses.hi[p] >= 0 else -clauses.hi[p]


@phase
def nth_span(p, s, clauses):
    """The first and the last cell of span s of predicate p."""
    low, high = clauses.lo[p], clauses.hi[p]
    if high < 0:
        low, high = clauses.span_lo[low + s], clauses.span_hi[low + s]
    return low, high


@phase
def hull_of(p, clauses):
    """The first cell of the first span of predicate p and the last cell of the last one."""
    low, high = clauses.lo[p], clauses.hi[p]
    if high < 0:
        low, high = clauses.span_lo[low], clauses.span_hi[low - high - 1]
    return low, high


@phase
def meets_spans(x, y, lo, hi, spans):
    """Whether the spans of a predicate (lo, hi) meet the cells x to y."""
    if hi >= 0:
        return lo <= y and x <= hi
    a, b = lo, lo - hi  # the first span that ends at x or later
    end = b
    while a < b:
        m = (a + b) >> 1
        if spans.span_hi[m] < x:
            a = m + 1
        else:
            b = m
    return a < end and spans.span_lo[a] <= y
