"""Which clauses can be vectors together (index.auto.vectors): conjunctions over the same attributes.

The attributes of a clause are a list, in order, each as often as it has predicates on it. Lists are compared by a hash
first, of a sample of the rows, as most workloads have few lists that are repeated or none; then one by one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.coding.clauses import Clauses
from dibs.index.auto.vector_layout import MOST_SLOTS
from dibs.index.groups import ClauseArrays
from dibs.index.spans import hull_of
from dibs.jit.kernel import kernel, phase
from dibs.tuning import tuned

SAMPLED_CLAUSES = tuned("sampled_clauses", 20_000, 10, "clauses", "by which that is judged")
# at 512 a new segment's 257 clauses are masks: 30 us a single event instead of 4.5
VECTOR_ROWS = tuned("vector_rows", 128, 1, "clauses", "over the same attributes that may be vectors")

SEEN = 4  # rows of a group in the sample, at least, unless all rows are in it
NONE = -1


class Groups(NamedTuple):
    of_row: NDArray[np.int32]  # the group of each row, or NONE
    rows: NDArray[np.int64]  # of each group: how many
    start: NDArray[np.int64]  # groups + 1: where the attributes of each begin
    attributes: NDArray[np.int32]

    @classmethod
    def none(cls, rows: int) -> Groups:
        """Of so many rows."""
        return cls(np.full(rows, NONE, np.int32), np.empty(0, np.int64), np.zeros(1, np.int64), np.empty(0, np.int32))

    def __len__(self) -> int:
        return len(self.rows)


def find_groups(clauses: Clauses, times: float = 1.0) -> Groups:
    """The groups of at least `vector_rows` rows, if each row stands for so many."""
    own, n = ClauseArrays.of(clauses), clauses.conjunctions
    none = Groups.none(len(clauses))
    if n * times < VECTOR_ROWS.value:
        return none
    some = np.linspace(0, max(n - 1, 0), min(n, SAMPLED_CLAUSES.value)).astype(np.int64)
    seen, count = np.unique(_signatures(own, some), return_counts=True)
    fewest = VECTOR_ROWS.value / times
    known = seen[(count >= (fewest if len(some) == n else max(SEEN, fewest * len(some) / n))) & (seen != 0)]
    if not len(known):
        return none
    of_row = none.of_row.copy()
    _number(known, own, n, of_row)
    rows = np.bincount(of_row[of_row != NONE], minlength=len(known))
    kept = rows >= fewest
    renumbered = np.append(np.where(kept, np.cumsum(kept) - 1, NONE), NONE)  # the last one is NONE's
    of_row = renumbered[of_row].astype(np.int32)
    _, first = np.unique(of_row, return_index=True)
    examples = first[-int(kept.sum()) :] if kept.any() else np.empty(0, np.int64)
    size = np.diff(clauses.offsets)[examples]
    start = np.concatenate([np.zeros(1, np.int64), np.cumsum(size)])
    attributes = [np.sort(clauses.attribute[clauses.offsets[r] : clauses.offsets[r + 1]]) for r in examples]
    return Groups(of_row, rows[kept], start, np.concatenate([np.empty(0, np.int32), *attributes]))


@kernel
def _signatures(clauses, rows):
    """A hash of the attributes of each row; 0: it can be in no group."""
    result = np.zeros(len(rows), np.uint64)
    for i in range(len(rows)):
        result[i] = _signature(rows[i], clauses)
    return result


@phase(inline=False)
def _signature(row, clauses):
    first, last = clauses.offsets[row], clauses.offsets[row + 1]
    if first == last or last - first > MOST_SLOTS:
        return np.uint64(0)
    total = np.uint64(0)
    for p in range(first, last):
        if hull_of(p, clauses)[0] == 0:  # it holds without a value
            return np.uint64(0)
        x = np.uint64(clauses.attribute[p]) + np.uint64(1)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        total += x ^ (x >> np.uint64(31))
    return total | np.uint64(1)


@kernel
def _number(known, clauses, conjunctions, of_row):
    """The place of each row's signature among the known ones, if its attributes are those of the first such row."""
    example, own = np.full(len(known), -1, np.int64), np.empty(2 * MOST_SLOTS, np.int64)
    _number_rows(known, example, own, clauses, conjunctions, of_row)


@phase(inline=False)
def _number_rows(known, example, own, clauses, conjunctions, of_row):
    for row in range(conjunctions):
        signature = _signature(row, clauses)
        a, b = np.int64(0), np.int64(len(known))
        while a < b:
            m = (a + b) >> 1
            if known[m] < signature:
                a = m + 1
            else:
                b = m
        if a < len(known) and known[a] == signature:
            if example[a] < 0:
                example[a] = row
            if _same_attributes(row, example[a], own, clauses):
                of_row[row] = a


@phase(inline=False)
def _same_attributes(row, other, own, clauses):
    n = clauses.offsets[row + 1] - clauses.offsets[row]
    if n != clauses.offsets[other + 1] - clauses.offsets[other]:
        return False
    same, first, other_first = 0, clauses.offsets[row], clauses.offsets[other]
    while same < n and clauses.attribute[first + same] == clauses.attribute[other_first + same]:
        same += 1
    if same == n:  # mostly, as programs write them
        return True
    sort_predicates(row, own, 0, clauses)
    sort_predicates(other, own, MOST_SLOTS, clauses)
    for k in range(n):
        if clauses.attribute[own[k]] != clauses.attribute[own[MOST_SLOTS + k]]:
            return False
    return True


@phase
def sort_predicates(row, own, at, clauses):
    """The predicates of a row at own[at:], by attribute; those of one attribute as they stand."""
    first = clauses.offsets[row]
    for p in range(first, clauses.offsets[row + 1]):
        k = at + p - first
        while k > at and clauses.attribute[own[k - 1]] > clauses.attribute[p]:
            own[k] = own[k - 1]
            k -= 1
        own[k] = p
