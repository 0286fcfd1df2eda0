"""kindex: posting lists by size, attribute and cell, merged so that rows which cannot have enough hits are skipped.

The idea (Whang et al. 2009, the k-index and its conjunction algorithm): rows are parted by their size K, the number of
their predicates; a list for each (K, attribute, cell) names the rows of that size whose predicate holds there. A row of
size K matches when it stands in K of the lists that the event reads, so
  - sizes above the number of the event's attributes are not looked at, nor those of which fewer than K lists are there;
  - the lists of a size are kept in order of the row at which each stands. If the first and the K-th of them stand at
    the same row, it matches. If not, no row before that of the K-th can be in K lists: all those before it skip there.

Arrays: those of structures.postings, where the group of a row is its size, and
    sizes   int32   the sizes that rows have, ascending; the group of a row is the place of its size here
The lists of a size that are being merged are in MergedLists: those that include come first.

Inequalities. Under the weak semantics an event without the attribute satisfies `a <> 5`: the row is listed under (a, 5)
as one that this value excludes, and inequalities do not count in K. That is what the k-index does by nature. Under the
strong semantics, SQL's and ours, the event must have the attribute. Whang et al. get it by a default value for every
attribute that an event lacks, which all inequalities exclude: each event then reads a list for each attribute of the
whole space, and Sadoghi and Jacobsen (2011) left the k-index out of their comparison there. Here an inequality counts
in K and stands in the list `any` of its attribute, which events with a value read: the event's own attributes are all
that is touched. The merge rejects excluded rows as the paper does.

Counters of work: a node is a list with a posting that was opened, a predicate evaluated a posting at which a list came
to stand, a candidate a row for which first and K-th list were compared.

Useful for: sparse data; rows of many different sizes, of which the event is too small for many.
Not useful for: popular attributes and unselective predicates: rows that stand in nearly K lists leave little to skip,
and every step pays for keeping the lists in order (structures.counting then does the same work with less); wide ranges
over many cells (memory: see structures.postings).

Published (option `profile`): as the papers that compare themselves with the k-index have it, the lists of the sizes
that an event can match are counted in an array of all rows, which is set back after each event (structures.counting).

Differs from the paper: lists are runs of one array, found by attribute and cell without hashing, those of all sizes
side by side; instead of a sort in each step, every key that moved is inserted again, eight places at a time and without
branches (`pass_key`: a posting takes 16 ns instead of the 42 of a loop that looks for the place); skipping gallops;
size 1 needs no merge. The order of sizes (largest first) is the paper's.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from dibs.coding.batch import CodedEvents
from dibs.coding.clauses import Clauses
from dibs.index.base import Pairs, Rate, Sink, Takes, in_parts
from dibs.index.groups import CANDIDATES, NEXT_EVENT, NODES, PAIRS, PREDICATES, EventArrays, Room
from dibs.index.options import Option
from dibs.jit.kernel import kernel, phase
from dibs.jit.prefetching import place_of, prefetch
from dibs.papers.structures.counting import Counting
from dibs.papers.structures.postings import Postings, SlotsRead, slots_of, write_out
from dibs.papers.structures.profiles import OURS, PROFILE, PUBLISHED, is_published, save_profile

ROW, INCLUDED, NUMBER = 32, 1 << 31, (1 << 31) - 1  # the parts of a key
END = 2**63 - 1  # the key of a list that is at its end
AT_ONCE = 8
FULL = -1  # instead of a number of pairs: there is no room for one more


class MergedLists(NamedTuple):
    """Work space: the m lists that are being merged, three for each value of the event at most."""

    key: NDArray[np.int64]  # row at which a list stands << 32 | included << 31 | number of the list: keys order by row,
    # and a list that excludes comes first. key[: m + 1] is in order and ends with END; what is behind does not matter
    place: NDArray[np.int64]  # by number: the posting at which the list stands
    end: NDArray[np.int64]  # by number: one past its last posting

    @classmethod
    def for_events(cls, widest: int) -> MergedLists:
        most = 3 * widest
        return cls(np.empty(most + AT_ONCE + 1, np.int64), np.empty(most, np.int64), np.empty(most, np.int64))


class KIndex:
    name: ClassVar[str] = "kindex"
    about: ClassVar[str] = "k-index: lists by size, attribute and cell, merged with skipping; for sparse data"
    takes: ClassVar[Takes] = Takes()
    options: ClassVar[tuple[Option, ...]] = (PROFILE,)

    def __init__(self, clauses: Clauses, postings: Postings, sizes: NDArray[np.int32], published: bool):
        self._postings, self._sizes = postings, sizes
        self._counting = Counting(clauses, postings, True, sizes) if published else None
        self._rate = Rate()

    @classmethod
    def build(cls, clauses: Clauses, profile: str = OURS) -> KIndex:
        sizes, group = np.unique(np.diff(clauses.offsets), return_inverse=True)
        postings = write_out(cls.name, clauses, group.astype(np.uint16), len(sizes))
        return cls(clauses, postings, sizes.astype(np.int32), profile == PUBLISHED)

    @classmethod
    def restore(cls, clauses: Clauses, arrays: dict[str, NDArray[Any]]) -> KIndex:
        postings = Postings(*(arrays[name] for name in Postings._fields))
        return cls(clauses, postings, arrays["sizes"], is_published(arrays))

    def arrays(self) -> dict[str, NDArray[Any]]:
        return self._postings._asdict() | {"sizes": self._sizes} | save_profile(self._counting is not None)

    @property
    def nbytes(self) -> int:
        own = self._postings if self._counting is None else self._counting
        return own.nbytes + self._sizes.nbytes

    def plan(self) -> dict[str, Any]:
        grounds = "each event merges, size by size, the lists of its values"
        return {"sizes": self._sizes.tolist()} | self._postings.plan() | {"grounds": grounds}

    def match(self, events: CodedEvents, threads: int, sink: Sink | None = None) -> Pairs:
        if self._counting is not None:
            return self._counting.match(events, threads, sink)
        arrays, widest = EventArrays.of(events), int(np.diff(events.offsets).max(initial=0))

        def work(last: int, room: tuple[Any, Any], progress: NDArray[np.int64]) -> None:
            slots, lists = SlotsRead.for_events(widest), MergedLists.for_events(widest)
            _merge(self._postings, self._sizes, slots, lists, arrays, last, Room(*room), progress)

        return in_parts(work, len(events), threads, rate=self._rate, sink=sink)


@intrinsic
def pass_key(typingctx, keys, at, key):
    """keys[i] = max(keys[i], min(keys[i + 1], key)) for the 8 places from `at` on. Going on like this from a place that
    was set to -1, behind which all is in order, takes that place out and puts `key` in where it belongs: before its
    place keys move down by one, behind it they stay."""

    def code(context, builder, signature, args):
        vector, number = ir.VectorType(ir.IntType(64), AT_ONCE), ir.IntType(32)
        after = builder.add(args[1], ir.Constant(args[1].type, 1))
        places = (place_of(context, builder, signature.args[0], args[0], i, AT_ONCE) for i in (args[1], after))
        here, there = (builder.bitcast(place, vector.as_pointer()) for place in places)
        old, new = (builder.load(pointer, align=8) for pointer in (here, there))
        none = ir.Constant(vector, ir.Undefined)
        one = builder.insert_element(none, args[2], ir.Constant(number, 0))
        same = builder.shuffle_vector(one, none, ir.Constant(ir.VectorType(number, AT_ONCE), [0] * AT_ONCE))
        least = builder.select(builder.icmp_signed("<", new, same), new, same)
        builder.store(builder.select(builder.icmp_signed(">", least, old), least, old), here, align=8)
        return context.get_dummy_value()

    return types.void(keys, types.int64, types.int64), code


@kernel
def _merge(postings, sizes, slots, lists, events, last_event, room, progress):
    """See index.base.in_parts. An event whose matches do not fit is merged again in the next call."""
    _merge_events(postings, sizes, slots, lists, events, last_event, room, progress)


@phase(inline=False)
def _merge_events(postings, sizes, slots, lists, events, last_event, room, progress):
    _, _, start, rows = postings
    groups, found = len(sizes), np.int64(0)
    for e in range(progress[NEXT_EVENT], last_event):
        values = events.offsets[e + 1] - events.offsets[e]
        n, x = slots_of(events, e, postings, slots)
        for j in range(n):
            prefetch(rows, np.int64(start[slots.included[j] * groups]))
        before = found
        nodes, read, candidates = np.int64(0), np.int64(0), np.int64(0)
        for g in range(groups - 1, -1, -1):
            size = np.int64(sizes[g])
            if size > values:
                continue
            including = _open(start, groups, g, slots.included, n, 0, lists)
            if including < size:
                continue
            m = _open(start, groups, g, slots.excluded, x, including, lists)
            nodes += m
            if size == 1 and including == m:
                found, compared, stood = _take_all(rows, lists, m, e, found, room)
            else:
                _order(rows, lists, m, including)
                found, compared, stood = _conjunction(rows, size, lists, m, e, found, room)
            if found == FULL:
                progress[NEXT_EVENT], progress[PAIRS] = e, before
                return
            candidates += compared
            read += stood
        progress[CANDIDATES] += candidates
        progress[PREDICATES] += read
        progress[NODES] += nodes
    progress[NEXT_EVENT], progress[PAIRS] = last_event, found


@phase
def _open(start, groups, g, slots, n, m, lists):
    """Adds the lists of group g that have a posting, of the first n slots, to m others: how many there are then."""
    for j in range(n):
        i = slots[j] * groups + g
        if start[i] < start[i + 1]:
            lists.place[m], lists.end[m] = start[i], start[i + 1]
            m += 1
    return m


@phase
def _take_all(rows, lists, m, e, found, room):
    """Rows of one predicate: each posting is a match. As _conjunction."""
    read = np.int64(0)
    for j in range(m):
        place, length = lists.place[j], lists.end[j] - lists.place[j]
        if found + length > len(room.event):
            return np.int64(FULL), read, read
        for p in range(length):
            room.event[found + p] = e
            room.row[found + p] = rows[place + p]
        found += length
        read += length
    return found, read, read


@phase
def _order(rows, lists, m, including):
    """The keys of m lists that stand at their beginnings; `including`: how many of them include."""
    key = lists.key
    for j in range(m):
        own = (np.int64(rows[lists.place[j]]) << ROW) | (INCLUDED if j < including else 0) | j
        i = j
        while i > 0 and key[i - 1] > own:
            key[i] = key[i - 1]
            i -= 1
        key[i] = own
    key[m] = END


@phase
def _conjunction(rows, size, lists, m, e, found, room):
    """The paper's conjunction algorithm over m lists in order: (pairs found up to now or FULL, rows compared, postings
    at which a list stood)."""
    key, place, end = lists
    out_event, out_row = room
    read, compared = np.int64(m), np.int64(0)
    while m >= size:
        compared += 1
        first, row = key[0] >> ROW, key[size - 1] >> ROW
        moved = size  # so many of the first lists go on to the target
        if first < row:
            target = row
            while key[moved - 1] >> ROW == row:
                moved -= 1
        else:
            target = row + 1
            if key[0] & INCLUDED != 0:
                if found == len(out_event):
                    return np.int64(FULL), compared, read
                out_event[found] = e
                out_row[found] = row
                found += 1
            else:
                while moved < m and key[moved] >> ROW == row:
                    moved += 1
        for q in range(moved - 1, -1, -1):  # the keys behind q are in order
            j = key[q] & NUMBER
            p, last = _skip_to(rows, target, place[j] + 1, end[j]), end[j]
            own = np.int64(END)
            if p < last:
                place[j] = p
                read += 1
                own = (np.int64(rows[p]) << ROW) | (key[q] & (INCLUDED | NUMBER))
            key[q] = -1
            for i in range(q, m, AT_ONCE):
                pass_key(key, i, own)
            m -= p == last
    return found, compared, read


@phase
def _skip_to(rows, target, p, last):
    """The first posting from p on whose row is the target or a later one, or `last`: galloping, then halving."""
    if p >= last or np.int64(rows[p]) >= target:
        return p
    step = 1
    while p + step < last and np.int64(rows[p + step]) < target:
        p += step
        step += step
    # rows[p] is before the target, rows[high] is not (or is past the end)
    high = min(p + step, last)
    while high - p > 1:
        middle = (p + high) >> 1
        if np.int64(rows[middle]) < target:
            p = middle
        else:
            high = middle
    return high
