"""Access sets: for an expression with OR, some predicates of which at least one holds whenever the expression does.

So an index need only look at the expressions that a satisfied predicate leads to. The rule: an AND is reached through
its cheapest child, an OR through all its children, cost being how likely a predicate holds. A predicate that absence
can satisfy (IS NULL) leads nowhere, and an expression that needs it has no access set: it is always looked at.

A program (language.table) is predicates in order with two forward jumps each, so its tree is found again by cutting a
range of steps, which is left either for `yes` or for `no`, at a step that everything before it leads to:

    nothing before it leaves for yes    the range is an AND of two ranges, the first of which says yes by going on
    nothing before it leaves for no     the range is an OR of two, the first of which says no by going on

A range that cannot be cut is not made by AND and OR. If it says no when none of its predicates holds, then all of them
are an access set; otherwise it has none.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from dibs.coding.clauses import Clauses
from dibs.language.table import ACCEPT, REJECT

NOWHERE = np.inf  # the cost of what has no access set
LEAF, BOTH, EITHER, WHOLE = range(4)  # a predicate, AND, OR, a range that cannot be cut


def access_sets(
    clauses: Clauses, programs: NDArray[np.int64], share: NDArray[np.float32]
) -> tuple[NDArray[np.bool_], NDArray[np.int64], NDArray[np.int64]]:
    """For each of the rows (which are programs): whether it has an access set, where that starts (one more at the
    end), and the predicates of all sets, in order. share: how likely each predicate of the clauses holds."""
    c = clauses
    return _access_sets(programs, c.offsets, c.lo, c.hi, c.on_true, c.on_false, c.offsets[c.conjunctions], share)


@njit(cache=True, nogil=True)
def _access_sets(rows, offsets, lo, hi, on_true, on_false, jumps, share):  # type: ignore[no-untyped-def]
    longest, total = 1, 0
    for r in rows:
        longest = max(longest, offsets[r + 1] - offsets[r])
        total += offsets[r + 1] - offsets[r]
    found = np.zeros(len(rows), np.bool_)
    start, members = np.zeros(len(rows) + 1, np.int64), np.empty(total, np.int64)
    # Nodes of one program's tree; children come after their parent.
    room = 2 * longest
    first, last = np.empty(room, np.int64), np.empty(room, np.int64)
    yes, no = np.empty(room, np.int64), np.empty(room, np.int64)
    kind, left = np.empty(room, np.int64), np.empty(room, np.int64)  # the second child stands behind the first
    cost, chosen = np.empty(room), np.empty(room, np.bool_)
    for i in range(len(rows)):
        base = offsets[rows[i]]
        first[0], last[0], yes[0], no[0] = 0, offsets[rows[i] + 1] - base, ACCEPT, REJECT
        nodes, n = 1, 0
        while n < nodes:
            s, e = first[n], last[n]
            kind[n] = LEAF if e - s == 1 else WHOLE
            furthest, to_yes, to_no = np.int64(0), False, False
            for m in range(s + 1, e):
                for target in (np.int64(on_true[base + m - 1 - jumps]), np.int64(on_false[base + m - 1 - jumps])):
                    if target == yes[n]:
                        to_yes = True
                    elif target == no[n]:
                        to_no = True
                    else:
                        furthest = max(furthest, target)
                if to_yes and to_no:
                    break
                if furthest <= m:
                    kind[n], left[n] = (EITHER if to_yes else BOTH), nodes
                    first[nodes], last[nodes], first[nodes + 1], last[nodes + 1] = s, m, m, e
                    yes[nodes], no[nodes] = (yes[n], m) if to_yes else (m, no[n])
                    yes[nodes + 1], no[nodes + 1] = yes[n], no[n]
                    nodes += 2
                    break
            n += 1
        for n in range(nodes - 1, -1, -1):
            chosen[n] = False
            if kind[n] == EITHER:
                cost[n] = cost[left[n]] + cost[left[n] + 1]
                continue
            if kind[n] == BOTH:
                cost[n] = min(cost[left[n]], cost[left[n] + 1])
                continue
            cost[n] = 0.0
            step = first[n]
            while first[n] <= step < last[n] and step != yes[n]:
                step = on_false[base + step - jumps]
            if step == yes[n]:
                cost[n] = NOWHERE
            for p in range(base + first[n], base + last[n]):
                cost[n] += NOWHERE if lo[p] == 0 and hi[p] >= 0 else share[p]
        chosen[0] = True
        at = start[i]
        if cost[0] < NOWHERE:
            found[i] = True
            for n in range(nodes):
                if not chosen[n]:
                    continue
                if kind[n] == EITHER:
                    chosen[left[n]] = chosen[left[n] + 1] = True
                elif kind[n] == BOTH:
                    chosen[left[n] + (cost[left[n] + 1] < cost[left[n]])] = True
                else:
                    for p in range(base + first[n], base + last[n]):
                        here = at
                        while here > start[i] and members[here - 1] > p:
                            members[here] = members[here - 1]
                            here -= 1
                        members[here] = p
                        at += 1
        start[i + 1] = at
    return found, start, members[: start[-1]]
