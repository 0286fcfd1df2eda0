"""What groups of vectors cost an event, in nanoseconds: see index.auto.vectors and index.auto.plan."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dibs.coding.clauses import Clauses
from dibs.index.auto.vector_building import make_segments
from dibs.index.auto.vector_groups import NONE, Groups
from dibs.index.auto.vector_layout import LINE
from dibs.index.groups import ClauseArrays
from dibs.index.spans import count_spans
from dibs.jit.kernel import kernel
from dibs.tuning import tuned

LINE_COST = tuned("line_cost", 2.5, 0.2, "ns", "what it pays for 512 clauses of a group of vectors, for each attribute")
GROUP_COST = tuned("group_cost", 5.0, 1.0, "ns", "what it pays for a look at such a group, and for each of its vectors")
VERIFY_COST = tuned("verify_cost", 15.0, 15.0, "ns", "what it pays for a clause that its vectors do not decide")

NEAR_LINES = 1 << 13  # of an event's vectors: half a megabyte. More come from further away,
FAR_TIMES = 3.0  # and so many times as slowly


def cost_groups(
    clauses: Clauses,
    groups: Groups,
    presence: NDArray[np.float64],
    share: NDArray[np.float32],
    highest: NDArray[np.int32],
    times: float = 1.0,
) -> NDArray[np.float64]:
    """By group. presence, share: see index.auto.plan; highest: the highest cell that predicates of an attribute cover;
    times: each row stands for so many."""
    if not len(groups):
        return np.empty(0)
    segments = make_segments(clauses, groups.of_row, highest)
    # Of events that have the attribute, by predicate: those that satisfy it, and those beside it in its segments.
    inexact = np.where(segments.exact, 0.0, 1.0 / np.maximum(segments.count, 1))
    left = _count_left(ClauseArrays.of(clauses), groups.of_row, len(groups), share, presence, inexact)
    verified = np.logical_or.reduceat(~segments.exact[groups.attributes], groups.start[:-1])
    present = presence[groups.attributes]
    have_all = np.multiply.reduceat(present, groups.start[:-1])
    rarest = np.minimum.reduceat(present, groups.start[:-1])
    slots = np.diff(groups.start)
    lines = slots * np.ceil(times * groups.rows / LINE)
    line_cost = LINE_COST.value * np.where(lines > NEAR_LINES, FAR_TIMES, 1.0)
    each = slots * GROUP_COST.value + lines * line_cost + times * left * verified * VERIFY_COST.value
    return np.asarray(rarest * GROUP_COST.value + have_all * each)


@kernel
def _count_left(clauses, of_row, groups, share, presence, inexact):
    """By group: how many clauses are left by the vectors of an event that has all attributes."""
    left = np.zeros(groups)
    for row in range(len(of_row)):
        if of_row[row] != NONE:
            likely = 1.0
            for p in range(clauses.offsets[row], clauses.offsets[row + 1]):
                a = clauses.attribute[p]
                beside = inexact[a] * count_spans(p, clauses)
                likely *= min(share[p] / max(presence[a], 1e-9) + beside, 1.0)
            left[of_row[row]] += likely
    return left
