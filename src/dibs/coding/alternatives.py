"""OR over one attribute is one predicate: `a = 1 OR a < 0 OR a LIKE 'x%'` has the spans of all three, as IN has.

Some element of an array satisfies one of two tests exactly when some element satisfies the first or some element the
second, so this holds for arrays too. It is done here, where predicates are spans, and NOT has long been pushed down to
them: what the language stage makes of a text, and its templates, know nothing of it, and explanations show each test.

In a program (language.table) the children of an OR that are predicates are a *run* of steps: when one does not hold,
the next is asked, whom nobody else leads to, and they all go on at the same place when they hold. The steps of a run
may stand in any order, and those of one attribute become the first of them. A program that is left without an OR is a
conjunction, and moves to these.

Cells of patterns have no gaps between them: other patterns may come between two neighbours when segments are merged.
So their spans stay single cells, though neighbours be adjacent.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dibs.coding.alternative_kernels import Steps, join_steps
from dibs.coding.clauses import Clauses, runs


def join_alternatives(
    clauses: Clauses, apart: NDArray[np.bool_], gapless: NDArray[np.bool_]
) -> tuple[Clauses, NDArray[np.int64]]:
    """The clauses with such steps joined, and for each row its place among those before. apart, gapless: attributes
    that are left alone, and those whose cells have no gaps between them."""
    c, rows = clauses, np.arange(len(clauses))
    cut = int(c.offsets[c.conjunctions])
    if cut == len(c.attribute):
        return c, rows
    room = np.empty(len(c.attribute) - cut + len(c.span_lo), np.int32)
    steps = Steps(
        *(column.copy() for column in (c.attribute[cut:], c.lo[cut:], c.hi[cut:], c.on_true, c.on_false)),
        *(np.concatenate([spans, room]) for spans in (c.span_lo, c.span_hi)),
    )
    offsets = c.offsets[c.conjunctions :] - cut
    sizes, is_plain = join_steps(offsets, steps, apart, gapless, len(c.span_lo))
    if np.array_equal(sizes, np.diff(offsets)):
        return c, rows
    kept = runs(offsets[:-1], sizes)
    size = np.concatenate([np.diff(c.offsets)[: c.conjunctions], sizes])
    joined = Clauses(
        offsets=np.concatenate([np.zeros(1, np.int64), np.cumsum(size)]),
        attribute=np.concatenate([c.attribute[:cut], steps.attribute[kept]]),
        lo=np.concatenate([c.lo[:cut], steps.lo[kept]]),
        hi=np.concatenate([c.hi[:cut], steps.hi[kept]]),
        span_lo=steps.span_lo,
        span_hi=steps.span_hi,
        on_true=steps.on_true[kept],
        on_false=steps.on_false[kept],
        conjunctions=c.conjunctions,
        attributes=c.attributes,
    )
    plain = c.conjunctions + np.flatnonzero(is_plain)
    programs = c.conjunctions + np.flatnonzero(~is_plain)
    return _with_conjunctions(joined, plain, programs), np.concatenate([rows[: c.conjunctions], plain, programs])


def _with_conjunctions(c: Clauses, plain: NDArray[np.int64], programs: NDArray[np.int64]) -> Clauses:
    """plain, programs: the programs that have become conjunctions, and the others. Spans that nobody has any more are
    left out."""
    order = np.concatenate([np.arange(c.conjunctions), plain, programs])
    size = np.diff(c.offsets)[order]
    steps = runs(c.offsets[order], size)
    jumps = runs(c.offsets[programs], np.diff(c.offsets)[programs]) - c.offsets[c.conjunctions]
    moved = Clauses(
        offsets=np.concatenate([np.zeros(1, np.int64), np.cumsum(size)]),
        attribute=c.attribute[steps],
        lo=c.lo[steps],
        hi=c.hi[steps],
        span_lo=c.span_lo,
        span_hi=c.span_hi,
        on_true=c.on_true[jumps],
        on_false=c.on_false[jumps],
        conjunctions=c.conjunctions + len(plain),
        attributes=c.attributes,
    )
    return moved.take(np.arange(len(moved)))
