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

What an index files is an *entry*: one predicate of an access set together with others that must hold beside it. The
OR at the top of an expression cuts it into parts, each with an access set of its own; of the entries for
(a AND (b OR c)) OR d, two have the test a beside their access predicate b or c. Several entries of one expression may
be satisfied by one event, and only one of them must report it: the first that is, or the one for which

    the program accepts in a step of the entry's part, and no earlier predicate of the part's access set holds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dibs.coding.clauses import Clauses, runs
from dibs.jit.kernel import kernel
from dibs.language.table import ACCEPT, REJECT
from dibs.thresholds import thresholds

NOWHERE = np.inf  # the cost of what has no access set
LEAF, BOTH, EITHER, WHOLE = range(4)  # a predicate, AND, OR, a range that cannot be cut


@dataclass
class Entries:
    """Entry i leads to `row`; entries of a row are in the order of their access predicates, so those of a part stand
    together, and `rank[i]` of them come before i. Predicates are places in the clauses. tests[test_start[i] :
    test_start[i + 1]] have to hold, the access predicate among them; the part has the steps first[i] : last[i].
    exact[i]: the tests are all that the part asks for, so the program accepts where they hold."""

    row: NDArray[np.int64]
    access: NDArray[np.int64]
    rank: NDArray[np.int64]
    first: NDArray[np.int64]
    last: NDArray[np.int64]
    exact: NDArray[np.bool_]
    test_start: NDArray[np.int64]
    tests: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.row)

    def take(self, chosen: NDArray[np.bool_]) -> Entries:
        """Some entries; all or none of each part."""
        sizes = np.diff(self.test_start)[chosen]
        start = np.zeros(len(sizes) + 1, np.int64)
        np.cumsum(sizes, out=start[1:])
        tests = self.tests[runs(self.test_start[:-1][chosen], sizes)]
        first, last, exact = self.first[chosen], self.last[chosen], self.exact[chosen]
        return Entries(self.row[chosen], self.access[chosen], self.rank[chosen], first, last, exact, start, tests)


def access_sets(
    clauses: Clauses, programs: NDArray[np.int64], share: NDArray[np.float32]
) -> tuple[NDArray[np.bool_], Entries]:
    """For each of the rows, which are programs, whether it has an access set; and the entries of those that have.
    share: how likely each predicate of the clauses holds."""
    c = clauses
    jumps = c.offsets[c.conjunctions]
    own = c.offsets, c.lo, c.hi, c.on_true, c.on_false
    found, *columns = _access_sets(programs, *own, jumps, share, thresholds.tests_of_an_entry)
    return found, Entries(*columns)


@kernel
def _access_sets(rows, offsets, lo, hi, on_true, on_false, jumps, share, most_tests):
    longest, total = 1, 0
    for r in rows:
        longest = max(longest, offsets[r + 1] - offsets[r])
        total += offsets[r + 1] - offsets[r]
    found = np.zeros(len(rows), np.bool_)
    out_row, out_access, out_rank, out_first, out_last, exact, test_start, tests = (
        np.empty(total, np.int64),
        np.empty(total, np.int64),
        np.empty(total, np.int64),
        np.empty(total, np.int64),
        np.empty(total, np.int64),
        np.empty(total, np.bool_),
        np.zeros(total + 1, np.int64),
        np.empty(total * most_tests, np.int64),
    )
    # Nodes of one program's tree; children come after their parent, the second behind the first.
    room = 2 * longest
    first, last, yes, no, kind, left = (
        np.empty(room, np.int64),
        np.empty(room, np.int64),
        np.empty(room, np.int64),
        np.empty(room, np.int64),
        np.empty(room, np.int64),
        np.empty(room, np.int64),
    )
    top, must, chosen = np.empty(room, np.bool_), np.empty(room, np.bool_), np.empty(room, np.bool_)
    cost = np.empty(room)
    # By step: whether it is in the access set, whether its part needs it, where a part that starts here ends.
    member, needed, part_end = np.empty(longest, np.bool_), np.empty(longest, np.bool_), np.empty(longest, np.int64)
    n_entries, n_tests = 0, 0
    for i in range(len(rows)):
        base = offsets[rows[i]]
        steps = offsets[rows[i] + 1] - base
        first[0], last[0], yes[0], no[0], top[0], must[0] = 0, steps, ACCEPT, REJECT, True, True
        for step in range(steps):
            member[step], needed[step], part_end[step] = False, False, 0
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
                    top[nodes] = top[nodes + 1] = top[n] and to_yes
                    must[nodes] = must[nodes + 1] = top[nodes] or (must[n] and not to_yes)
                    nodes += 2
                    break
            if top[n] and kind[n] != EITHER:
                part_end[s] = e
            if must[n] and kind[n] == LEAF:
                needed[s] = on_true[base + s - jumps] == yes[n] and on_false[base + s - jumps] == no[n]
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
        if cost[0] == NOWHERE:
            continue
        found[i] = True
        chosen[0] = True
        for n in range(nodes):
            if not chosen[n]:
                continue
            if kind[n] == EITHER:
                chosen[left[n]] = chosen[left[n] + 1] = True
            elif kind[n] == BOTH:
                chosen[left[n] + (cost[left[n] + 1] < cost[left[n]])] = True
            else:
                for step in range(first[n], last[n]):
                    member[step] = True
        part, rank = np.int64(0), 0
        for step in range(steps):
            if part_end[step] > 0:
                part, rank = step, 0
            if not member[step]:
                continue
            k = n_entries
            out_row[k], out_access[k], out_rank[k] = rows[i], base + step, rank
            out_first[k], out_last[k] = base + part, base + part_end[part]
            tests[n_tests] = base + step
            n_tests += 1
            if rank == 0:
                other = part
                while other < part_end[part] and n_tests - test_start[k] < most_tests:
                    if needed[other] and other != step:
                        tests[n_tests] = base + other
                        n_tests += 1
                    other += 1
            else:  # the same tests as the part's first entry, which is none of them: several entries, so an OR
                for q in range(test_start[k - rank] + 1, test_start[k - rank + 1]):
                    tests[n_tests] = tests[q]
                    n_tests += 1
            n_entries += 1
            rank += 1
            test_start[k + 1] = n_tests
            exact[k] = n_tests - test_start[k] == part_end[part] - part
            for other in range(part, part_end[part] if exact[k] else part):
                exact[k] = exact[k] and needed[other]
    k = n_entries
    return (
        found,
        out_row[:k].copy(),
        out_access[:k].copy(),
        out_rank[:k].copy(),
        out_first[:k].copy(),
        out_last[:k].copy(),
        exact[:k].copy(),
        test_start[: k + 1].copy(),
        tests[:n_tests].copy(),
    )
