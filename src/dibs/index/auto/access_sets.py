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

A predicate may also be asked for as a complement (IS NOT TRUE): then its range says yes when it does not hold, and it
leads nowhere, as IS NULL does. `complements` tells which predicates are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.coding.clauses import Clauses, runs
from dibs.jit.kernel import kernel, phase
from dibs.language.table import ACCEPT, REJECT
from dibs.tuning import tuned

TESTS_OF_AN_ENTRY = tuned("tests_of_an_entry", 12, 1, "tests", "of an entry; more would hardly sort out more")

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
    own = Programs(c.offsets, c.lo, c.hi, c.on_true, c.on_false, c.offsets[c.conjunctions], share)
    found, *columns = _access_sets(programs, own, TESTS_OF_AN_ENTRY.value)
    return found, Entries(*columns)


def complements(clauses: Clauses, programs: NDArray[np.int64]) -> NDArray[np.bool_]:
    """For each predicate of the clauses, whether it is one of these rows, which are programs, and the row rather holds
    where the predicate does not."""
    c = clauses
    share = np.zeros(0, np.float32)  # of which nothing is asked
    own = Programs(c.offsets, c.lo, c.hi, c.on_true, c.on_false, c.offsets[c.conjunctions], share)
    result = np.zeros(len(c.attribute), np.bool_)
    _find_complements(programs, own, result)
    return result


class Programs(NamedTuple):
    """The clauses, of which programs are looked at (see coding.clauses)."""

    offsets: NDArray[np.int64]
    lo: NDArray[np.int32]
    hi: NDArray[np.int32]
    on_true: NDArray[np.int32]
    on_false: NDArray[np.int32]
    first_jump: int  # the predicate that the jumps begin with
    share: NDArray[np.float32]


class Tree(NamedTuple):
    """The nodes of one program's tree: ranges of steps. Children come after their parent, the second behind the
    first."""

    first: NDArray[np.int64]
    last: NDArray[np.int64]
    yes: NDArray[np.int64]  # where the range is left for, if it holds
    no: NDArray[np.int64]
    kind: NDArray[np.int64]
    left: NDArray[np.int64]  # the first child
    top: NDArray[np.bool_]  # only OR is above it
    must: NDArray[np.bool_]  # its part needs it
    chosen: NDArray[np.bool_]
    cost: NDArray[np.float64]


class Steps(NamedTuple):
    """What is known of one program's steps."""

    member: NDArray[np.bool_]  # of the access set
    needed: NDArray[np.bool_]  # by its part
    part_end: NDArray[np.int64]  # of the part that starts here; 0 where none does


class EntryColumns(NamedTuple):
    """The columns of Entries."""

    row: NDArray[np.int64]
    access: NDArray[np.int64]
    rank: NDArray[np.int64]
    first: NDArray[np.int64]
    last: NDArray[np.int64]
    exact: NDArray[np.bool_]
    test_start: NDArray[np.int64]
    tests: NDArray[np.int64]


@kernel
def _access_sets(rows, programs, most_tests):
    longest, total = 1, 0
    for r in rows:
        size = programs.offsets[r + 1] - programs.offsets[r]
        longest, total = max(longest, size), total + size
    tree, steps, out = _make_tree(2 * longest), _make_steps(longest), _make_entries(total, most_tests)
    found = np.zeros(len(rows), np.bool_)
    n = _find_sets(rows, most_tests, programs, tree, steps, found, out)
    return (
        found,
        out.row[:n].copy(),
        out.access[:n].copy(),
        out.rank[:n].copy(),
        out.first[:n].copy(),
        out.last[:n].copy(),
        out.exact[:n].copy(),
        out.test_start[: n + 1].copy(),
        out.tests[: out.test_start[n]].copy(),
    )


@phase(inline=False)
def _find_sets(rows, most_tests, programs, tree, steps, found, out):
    """Says which rows have an access set, and writes their entries. Returns how many."""
    n = np.int64(0)
    for i in range(len(rows)):
        nodes = _cut(rows[i], programs, tree, steps)
        _weigh(rows[i], nodes, programs, tree)
        if tree.cost[0] != NOWHERE:
            found[i] = True
            _choose(nodes, tree, steps)
            n = _write_entries(rows[i], n, most_tests, programs, steps, out)
    return n


@kernel
def _find_complements(rows, programs, result):
    longest = 1
    for r in rows:
        longest = max(longest, programs.offsets[r + 1] - programs.offsets[r])
    tree, steps = _make_tree(2 * longest), _make_steps(longest)
    for r in rows:
        base = programs.offsets[r]
        for n in range(_cut(r, programs, tree, steps)):
            if tree.kind[n] == LEAF:
                result[base + tree.first[n]] = _holds_without(n, base - programs.first_jump, programs, tree)


@kernel
def _make_tree(n):
    return Tree(
        np.empty(n, np.int64),
        np.empty(n, np.int64),
        np.empty(n, np.int64),
        np.empty(n, np.int64),
        np.empty(n, np.int64),
        np.empty(n, np.int64),
        np.empty(n, np.bool_),
        np.empty(n, np.bool_),
        np.empty(n, np.bool_),
        np.empty(n, np.float64),
    )


@kernel
def _make_steps(n):
    return Steps(np.empty(n, np.bool_), np.empty(n, np.bool_), np.empty(n, np.int64))


@kernel
def _make_entries(n, most_tests):
    return EntryColumns(
        np.empty(n, np.int64),
        np.empty(n, np.int64),
        np.empty(n, np.int64),
        np.empty(n, np.int64),
        np.empty(n, np.int64),
        np.empty(n, np.bool_),
        np.zeros(n + 1, np.int64),
        np.empty(n * most_tests, np.int64),
    )


@kernel(inline="always")
def _cut(row, programs, tree, steps):
    """Finds the tree of a program again, from the top down. Returns how many nodes it has."""
    size = programs.offsets[row + 1] - programs.offsets[row]
    first_jump = programs.offsets[row] - programs.first_jump
    for s in range(size):
        steps.member[s], steps.needed[s], steps.part_end[s] = False, False, 0
    tree.first[0], tree.last[0], tree.yes[0], tree.no[0] = 0, size, ACCEPT, REJECT
    tree.top[0], tree.must[0] = True, True
    nodes, n = 1, 0
    while n < nodes:
        s = tree.first[n]
        nodes = _cut_range(n, nodes, first_jump, programs, tree)
        if tree.top[n] and tree.kind[n] != EITHER:
            steps.part_end[s] = tree.last[n]
        if tree.must[n] and tree.kind[n] == LEAF:
            leaves_for_yes = programs.on_true[first_jump + s] == tree.yes[n]
            steps.needed[s] = leaves_for_yes and programs.on_false[first_jump + s] == tree.no[n]
        n += 1
    return nodes


@kernel(inline="always")
def _cut_range(n, nodes, first_jump, programs, tree):
    """Makes two children of the node's range, at the first step that everything before it leads to, if there is one.
    Returns how many nodes there are now."""
    first, last, yes, no = tree.first[n], tree.last[n], tree.yes[n], tree.no[n]
    tree.kind[n] = LEAF if last - first == 1 else WHOLE
    furthest, to_yes, to_no = np.int64(0), False, False
    for m in range(first + 1, last):
        before = first_jump + m - 1
        for target in (np.int64(programs.on_true[before]), np.int64(programs.on_false[before])):
            if target == yes:
                to_yes = True
            elif target == no:
                to_no = True
            else:
                furthest = max(furthest, target)
        if to_yes and to_no:
            break
        if furthest <= m:
            tree.kind[n], tree.left[n] = (EITHER if to_yes else BOTH), nodes
            a, b = nodes, nodes + 1
            tree.first[a], tree.last[a], tree.first[b], tree.last[b] = first, m, m, last
            tree.yes[a], tree.no[a] = (yes, m) if to_yes else (m, no)
            tree.yes[b], tree.no[b] = yes, no
            tree.top[a] = tree.top[b] = tree.top[n] and to_yes
            tree.must[a] = tree.must[b] = tree.top[a] or (tree.must[n] and not to_yes)
            return nodes + 2
    return nodes


@kernel(inline="always")
def _weigh(row, nodes, programs, tree):
    """The cost of each node, from the bottom up."""
    base = programs.offsets[row]
    lo, hi, share, left, cost = programs.lo, programs.hi, programs.share, tree.left, tree.cost
    for n in range(nodes - 1, -1, -1):
        if tree.kind[n] == EITHER:
            cost[n] = cost[left[n]] + cost[left[n] + 1]
        elif tree.kind[n] == BOTH:
            cost[n] = min(cost[left[n]], cost[left[n] + 1])
        else:
            cost[n] = NOWHERE if _holds_without(n, base - programs.first_jump, programs, tree) else 0.0
            for p in range(base + tree.first[n], base + tree.last[n]):
                cost[n] += NOWHERE if lo[p] == 0 and hi[p] >= 0 else share[p]


@kernel(inline="always")
def _holds_without(n, first_jump, programs, tree):
    """Whether the node's range says yes when none of its predicates holds."""
    step = tree.first[n]
    while tree.first[n] <= step < tree.last[n] and step != tree.yes[n]:
        step = np.int64(programs.on_false[first_jump + step])
    return step == tree.yes[n]


@kernel(inline="always")
def _choose(nodes, tree, steps):
    """The access set: all children of an OR, the cheapest one of an AND."""
    for n in range(nodes):
        tree.chosen[n] = n == 0
    for n in range(nodes):
        if not tree.chosen[n]:
            continue
        a, b = tree.left[n], tree.left[n] + 1
        if tree.kind[n] == EITHER:
            tree.chosen[a] = tree.chosen[b] = True
        elif tree.kind[n] == BOTH:
            tree.chosen[b if tree.cost[b] < tree.cost[a] else a] = True
        else:
            for s in range(tree.first[n], tree.last[n]):
                steps.member[s] = True


@kernel(inline="always")
def _write_entries(row, n, most_tests, programs, steps, out):
    """An entry, from the n-th on, for each member of the access set. Returns how many entries there are now."""
    base = programs.offsets[row]
    part, rank = np.int64(0), 0
    for step in range(programs.offsets[row + 1] - base):
        if steps.part_end[step] > 0:
            part, rank = step, 0
        if not steps.member[step]:
            continue
        end = steps.part_end[part]
        out.row[n], out.access[n], out.rank[n] = row, base + step, rank
        out.first[n], out.last[n] = base + part, base + end
        at = out.test_start[n]
        out.tests[at] = base + step
        at += 1
        if rank == 0:
            for other in range(part, end):
                if steps.needed[other] and other != step and at - out.test_start[n] < most_tests:
                    out.tests[at] = base + other
                    at += 1
        else:  # the same tests as the part's first entry, which is none of them: several entries, so an OR
            for q in range(out.test_start[n - rank] + 1, out.test_start[n - rank + 1]):
                out.tests[at] = out.tests[q]
                at += 1
        out.test_start[n + 1] = at
        exact = at - out.test_start[n] == end - part
        for other in range(part, end if exact else part):
            exact = exact and steps.needed[other]
        out.exact[n] = exact
        n += 1
        rank += 1
    return n
