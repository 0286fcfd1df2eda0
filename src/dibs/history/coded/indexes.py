"""Ordered indexes over documents: some columns by equality, then perhaps one by order.

An index is a value. Its entries lie in runs, each in order (layout.Run), the newest documents in the last one;
documents from `sorted` on are in none yet, and are tested one by one, as those are that would have too many entries
(`wide`: with several long arrays, one for each combination). When those in no run yet have become many they make a run,
which is merged with the runs before it that are not much longer: a document is moved a logarithmic number of times, and
there are a logarithmic number of runs. The documents of which each is still to be seen by the events after it alone are
a run of their own before they are merged: a run that an event sees as a whole is counted without a look at its entries.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.history.coded.index_kernels import count_entries, file_groups, make_entries, make_ranks, merge_order
from dibs.history.coded.layout import INDEX, RUN, STRING, Documents, Groups, IndexEntries, Ranks, Run, Sorted
from dibs.jit.groups import Table
from dibs.jit.hashing import slots_for
from dibs.tuning import tuned

if TYPE_CHECKING:
    from dibs.history.coded.columns import Texts

HISTORY_TAIL = tuned("history_tail", 64, 2, "documents", "of an ordered index that are not sorted in yet")
# entries are a product of lengths: it overflowed 64 bits
HISTORY_ENTRIES = tuned(
    "history_entries", 64, 1, "entries", "of a document in an index for each of its values; one with more has none"
)
HISTORY_RANKED = tuned("history_ranked", 4_096, 1, "entries", "of a run, counted without a look at each document")


class IndexKey(NamedTuple):
    names: tuple[str, ...]
    equated: int  # so many of them by equality; at most one more by order


def needs_ranks(sorted: Sorted, first: int) -> bool:
    """Whether a long stretch may have documents before this one and others."""
    is_cut = sorted.oldest < first <= sorted.newest and not len(sorted.ranks.before)
    return is_cut and len(sorted.run.row) >= HISTORY_RANKED.value


def _rank(sorted: Sorted) -> Sorted:
    levels = max(int(sorted.newest).bit_length(), 1)
    return sorted._replace(ranks=Ranks(*make_ranks(sorted.run.row, levels)))


@dataclass(frozen=True, eq=False)
class Index:
    columns: NDArray[np.int32]
    equated: int
    groups: Groups
    written: NDArray[np.int64]  # [0]: how many were ever put into the groups' slots, at most: see columns.Texts
    count: int  # of groups
    runs: tuple[Sorted, ...]
    sorted: int  # documents from here on are in no run
    wide: NDArray[np.int32]  # documents before it that are in none
    is_multiple: bool  # some document has several entries

    @classmethod
    def none(cls, columns: NDArray[np.int32], equated: int) -> Index:
        empty = Groups(np.zeros(16, np.int32), np.empty(0, np.uint8), np.empty(0, np.int64), np.empty(0, np.int32))
        return cls(columns, equated, empty, np.zeros(1, np.int64), 0, (), 0, np.empty(0, np.int32), False)

    @property
    def nbytes(self) -> int:
        runs = sum(each.nbytes for sorted in self.runs for each in (*sorted.run, *sorted.ranks))
        return runs + self.wide.nbytes + sum(each.nbytes for each in self.groups)

    def rank(self, first: int) -> Index:
        """With ranks for the runs of which documents before this one are gone."""
        if not any(needs_ranks(sorted, first) for sorted in self.runs):
            return self
        return replace(self, runs=tuple(_rank(each) if needs_ranks(each, first) else each for each in self.runs))


def grow_index(index: Index, docs: Documents, texts: Texts, size: int, merge: bool = True) -> Index:
    """With the documents up to `size`, if they have become many. merge: with the runs before them, too."""
    if size - index.sorted >= HISTORY_TAIL.value:
        index = _with_run(index, docs, texts, size)
    runs = _merge(index.runs, docs) if merge and index.runs else index.runs
    return index if len(runs) == len(index.runs) else replace(index, runs=runs)


def _with_run(index: Index, docs: Documents, texts: Texts, size: int) -> Index:
    most = HISTORY_ENTRIES.value
    room, wide_room = count_entries(docs, index.columns, index.sorted, size, most)
    groups, written = _with_room(index, room)
    bounds = (index.sorted, size, room, wide_room, most)
    written[0] = index.count + room
    *columns, wide, count, is_multiple = make_entries(docs, index.columns, index.equated, bounds, groups, index.count)
    written[0] = count
    if room > max(64, 2 * (count - index.count)):
        groups, written = _with_room(replace(index, groups=groups, count=int(count)), 0)
    runs = index.runs
    if len(columns[0]):
        run = _in_order(Run(*columns), texts)
        runs = (*runs, Sorted(run, int(run.row.min()), int(run.row.max())))
    wide = np.append(index.wide, wide) if len(wide) else index.wide
    is_multiple = index.is_multiple or bool(is_multiple)
    return Index(index.columns, index.equated, groups, written, int(count), runs, size, wide, is_multiple)


def _in_order(run: Run, texts: Texts) -> Run:
    if not len(run.key):
        order = np.argsort(run.group, kind="stable")
        return Run(run.group[order], run.kind, run.key, run.tie[:0], run.row[order])
    keys: list[Any] = [run.key, run.kind, run.group]
    if run.tie.any():
        tie = run.tie.astype(np.int64)
        strings = run.kind == STRING
        if strings.any():
            tie[strings] = texts.ranks(run.tie[strings])
        keys.insert(0, tie)
    order = np.lexsort(keys)
    return _take_run(run._replace(tie=run.tie if run.tie.any() else run.tie[:0]), order)


def _take_run(run: Run, order: NDArray[Any]) -> Run:
    columns: list[Any] = [each[order] if len(each) else each for each in run]
    return Run(*columns)


def _merge(runs: tuple[Sorted, ...], docs: Documents) -> tuple[Sorted, ...]:
    """With the last run merged into those before it that are at most twice as long as all that come after."""
    *older, last = runs
    while older and len(older[-1].run.group) <= 2 * len(last.run.group):
        before = older.pop()
        order = merge_order(docs, before.run, last.run)
        a, b = before.run, last.run
        if len(a.tie) != len(b.tie) and (len(a.tie) == 0 or len(b.tie) == 0):
            a, b = _with_ties(a), _with_ties(b)
        both: list[Any] = [np.concatenate(each) for each in zip(tuple[Any, ...](a), tuple[Any, ...](b))]
        last = Sorted(_take_run(Run(*both), order), min(before.oldest, last.oldest), max(before.newest, last.newest))
    return (*older, last)


def _with_ties(run: Run) -> Run:
    return run if len(run.tie) else run._replace(tie=np.zeros(len(run.key), np.int32))


def _with_room(index: Index, more: int) -> tuple[Groups, NDArray[np.int64]]:
    """The groups, with room for more of them (and for one that is looked for), and how many were written there."""
    old, count, equated = index.groups, index.count, index.equated
    if not equated:
        return old, index.written
    size = (count + more + 1) * equated
    fits = len(old.kind) >= size and len(old.slots) >= 2 * (count + more) and index.written[0] == count
    if fits and more:
        return old, index.written
    spare = count // 4 if more else 0
    size += spare * equated
    slots = np.zeros(slots_for(count + more + spare), np.int32)
    groups = Groups(slots, np.zeros(size, np.uint8), np.zeros(size, np.int64), np.zeros(size, np.int32))
    pairs: list[Any] = list(zip(old[1:], groups[1:]))
    for own, new in pairs:
        new[: count * equated] = own[: count * equated]
    file_groups(groups, count, equated)
    return groups, np.full(1, count, np.int64)


def table_of(indexes: list[Index]) -> Table:
    """What kernels read of the indexes: INDEX bytes for each, then RUN bytes for each of its runs."""
    heads: list[IndexEntries] = []
    runs: list[Sorted] = []
    for index in indexes:
        last = int(index.columns[-1]) if len(index.columns) > index.equated else -2
        first = INDEX * len(indexes) + RUN * len(runs)
        numbers = (len(index.runs), first, index.sorted, index.count, index.equated, last, int(index.is_multiple))
        heads.append(IndexEntries(*numbers, index.groups, index.wide))
        runs += index.runs
    return Table(*heads, *runs)
