"""records: clauses beside a rare attribute or value, packed into one stream of 64-bit words. Half of `auto`.

The idea: each conjunction is filed in one group, that of an attribute that few events have, or that of a value (a
cell) that few events have for a common attribute. An event reads only the groups of its attributes and values, and
each group is one run of memory: for each clause a header and then its predicates, a word each. Memory latency is the
cost, so the next groups are prefetched while the current one is tested; mispredicted branches come second, so a clause
is tested without early exit and clauses of one length stand together.

A program (an expression with OR) is filed as its entries (index.access_sets), each with its own tests; an entry that
passes them runs the program, unless the tests say it all. An event is stamped on the programs it has met, so that each
is reported once.

Arrays:
    words  uint64  for each clause a header  row << 32 | flags << 16 | n   and n tests
                   attribute << 32 | lo << 16 | (hi - lo),  in coarse cells, modulo 2**16
    start  int64   groups + 1: the words of each group; first the groups of attributes, then those of cells
    count  int32   groups: how many clauses it has
    shift  uint8   attributes: a coarse cell is cell >> shift, below 65,536
    cell_group, cell_end   int64, int32   attributes: cell c of the attribute has the group cell_group + c if c is
                   below cell_end
    size   int64   1: rows filed

A test holds when (value - lo) mod 2**16 <= hi - lo, so a span may wrap round, and "not in a hole" is one too: a
predicate of several spans is its hull and, for each hole, the span that goes round it. Where a test would be inexact
(coarse cells, long lists) it is wider than the predicate and the flag VERIFY sends the candidate to the clauses
themselves; so do events with several values or a range for some attribute. Branches on what the data says are kept out
of the loop over clauses: testing the flag before the outcome of the tests took a third off the time.

Useful for: attributes that are in few events (sparse, high-dimensional data); equality over many values.
Not useful for: ranges over attributes that most events have: every clause filed there would be tested for every event.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.coding.batch import CodedEvents
from dibs.coding.clauses import Clauses
from dibs.index.auto.access_sets import Entries
from dibs.index.base import Rate
from dibs.index.groups import CANDIDATES, NEXT_EVENT, NEXT_ROW, PAIRS, PREDICATES, ClauseArrays, EventArrays, Room
from dibs.index.kernels import Jumps, Slots, clear, lay_out, test_conjunction, test_program
from dibs.jit.interpreter import keeping
from dibs.jit.kernel import kernel
from dibs.jit.lanes import prefetch
from dibs.jit.pools import Pool, Space
from dibs.thresholds import thresholds

COARSE = 1 << 16  # coarse cells are below it
LINE, LINES = 8, 16  # words of a cache line, and lines of a group that are prefetched
VERIFY, PROGRAM = 1, 2  # flags of a header
# Parts of words: attribute or row << HIGH | lo or flags << MIDDLE | width or n, in the bits of LOW.
HIGH, MIDDLE, LOW = np.uint64(32), np.uint64(16), np.uint64(0xFFFF)
FLAGS, ONE = np.uint64(VERIFY | PROGRAM), np.uint64(1)


class RecordArrays(NamedTuple):
    """See above."""

    words: NDArray[np.uint64]
    start: NDArray[np.int64]
    count: NDArray[np.int32]  # type: ignore[assignment]  # hides tuple.count, which nobody needs
    shift: NDArray[np.uint8]
    cell_group: NDArray[np.int64]
    cell_end: NDArray[np.int32]


class Facts(NamedTuple):
    """What lets a search leave something out."""

    points: bool  # of the events: see coding.batch
    inexact: bool  # some header has the flag VERIFY
    has_programs: bool


class WorkSpace(NamedTuple):
    """All zero between events, but the stamps."""

    slots: Slots
    coarse: NDArray[np.uint16]  # the event's coarse cell, by attribute
    stamps: NDArray[np.int32]  # by program, the last event that it was reported for; at the end, this event's


class Records:
    ARRAYS = (*RecordArrays._fields, "size")

    def __init__(self, clauses: Clauses, arrays: dict[str, NDArray[Any]]):
        self._clauses = clauses
        self.rate = Rate()
        self._arrays = arrays
        self._words, self._start = arrays["words"], arrays["start"]
        self.size = int(arrays["size"][0])
        self._has_programs = int(arrays["count"].sum()) > 0 and bool(_has_flag(self._words, self._start, PROGRAM))
        self._inexact = bool(_has_flag(self._words, self._start, VERIFY))
        own = RecordArrays(*(arrays[name] for name in RecordArrays._fields))
        self._fixed = *own, *ClauseArrays.of(clauses), clauses.on_true, clauses.on_false  # what every search is given
        self._pool = Pool()

    def arrays(self) -> dict[str, NDArray[Any]]:
        return self._arrays

    @classmethod
    def build(
        cls,
        clauses: Clauses,
        rows: NDArray[np.int64],
        access: NDArray[np.int64],
        other: NDArray[np.int32],
        highest: NDArray[np.int32],
        often: NDArray[np.bool_],
        entries: Entries,
    ) -> Records:
        """rows: conjunctions; access: the predicate of each under which it is filed; other: an attribute of its other
        predicates; highest: the highest cell that predicates of an attribute cover; often: the attributes whose
        clauses are filed by cells (their access predicates have one); entries: of programs."""
        shift = _coarse_shifts(highest)
        filed_rows = len(rows) + len(np.unique(entries.row))
        entry = np.concatenate([np.full(len(rows), -1), np.arange(len(entries))])
        size = np.concatenate([np.diff(clauses.offsets)[rows], np.diff(entries.test_start)])
        rows, access = np.concatenate([rows, entries.row]), np.concatenate([access, entries.access])
        other = np.concatenate([other, np.zeros(len(entries), np.int32)])
        filed = clauses.attribute[access]
        by_cell = often[filed]
        used = np.zeros(clauses.attributes, np.bool_)
        used[filed[by_cell]] = True
        cell_end = np.where(used, highest + 1, 0).astype(np.int32)
        cell_group = clauses.attributes + np.cumsum(cell_end, dtype=np.int64) - cell_end
        groups = clauses.attributes + int(cell_end.sum(dtype=np.int64))
        group = np.where(by_cell, cell_group[filed] + clauses.lo[access], filed)
        # By group, then length (loops of one length are predicted), then another attribute (failures cluster).
        if groups < 1 << 31 and clauses.attributes < 1 << 24:
            order = np.argsort(
                (group << 32) | (np.minimum(size, 255) << 24) | np.minimum(other, 0xFFFFFF), kind="stable"
            )
        else:
            order = np.lexsort((other, size, group))
        ordered, tests = Filed(rows[order], group[order], entry[order]), Tests.of(entries)
        words, start = _pack(ordered, groups, tests, ClauseArrays.of(clauses), shift, thresholds.record_spans)
        return cls(
            clauses,
            {
                "words": words,
                "start": start,
                "count": np.bincount(group, minlength=groups).astype(np.int32),
                "shift": shift,
                "cell_group": cell_group,
                "cell_end": cell_end,
                "size": np.array([filed_rows]),
            },
        )

    def looks(self, attribute: NDArray[Any], cell: NDArray[Any], share: NDArray[Any]) -> float:
        """How many clauses an event looks at in the groups of these cells, when it has them with these shares."""
        known = cell < self._arrays["cell_end"][attribute]
        groups = self._arrays["cell_group"][attribute[known]] + cell[known]
        return float((self._arrays["count"][groups] * share[known]).sum())

    def match(
        self, events: CodedEvents, last: int, room: tuple[NDArray[Any], NDArray[Any]], progress: NDArray[np.int64]
    ) -> None:
        """See index.base.in_parts; progress[NEXT_ROW] is the entry of the event to go on with."""
        taken = self._pool.take(_work_space, self._clauses, self._has_programs)
        # A short search keeps the interpreter (jit.interpreter).
        few = last - progress[NEXT_EVENT] <= thresholds.few_events and self.size <= thresholds.few_records
        match = _match_few if few else _match
        match(
            events.points,
            self._inexact,
            self._has_programs,
            self._clauses.conjunctions,
            last,
            progress,
            *self._fixed,
            events.offsets,
            events.attribute,
            events.lo,
            events.hi,
            *taken.space,
            *room,
        )
        self._pool.give(taken)


def _work_space(clauses: Clauses, programs: bool) -> Space:
    """The arrays of a WorkSpace."""
    n = clauses.attributes
    slots = Slots(np.zeros(n, np.int32), np.zeros(n, np.int32), np.zeros((n, 2), np.int64))
    stamps = np.zeros((len(clauses) - clauses.conjunctions if programs else 0) + 1, np.int32)
    return *slots, np.zeros(n, np.uint16), stamps


def _coarse_shifts(highest: NDArray[np.int32]) -> NDArray[np.uint8]:
    """By how many bits the cells of each attribute are shifted to fit, with room for "above" and "never"."""
    bits = np.ceil(np.log2(highest + 4.0)).astype(np.int64)
    return np.maximum(bits - thresholds.coarse_bits, 0).astype(np.uint8)


class Filed(NamedTuple):
    """The clauses to pack, ordered by group."""

    row: NDArray[np.int64]
    group: NDArray[np.int64]
    entry: NDArray[np.int64]  # of programs, which have the tests of the entry; -1: all predicates are tests


class Tests(NamedTuple):
    """Those of index.auto.access_sets.Entries."""

    exact: NDArray[np.bool_]
    start: NDArray[np.int64]
    tests: NDArray[np.int64]

    @classmethod
    def of(cls, entries: Entries) -> Tests:
        return cls(entries.exact, entries.test_start, entries.tests)


@kernel
def _pack(filed, groups, entries, clauses, shift, most_spans):
    """The stream of what is filed, and where each group starts."""
    start = np.zeros(groups + 1, np.int64)
    _count_words(start, filed, entries, clauses, shift, most_spans)
    for g in range(groups):
        start[g + 1] += start[g]
    words = np.empty(start[-1], np.uint64)
    _write_clauses(words, filed, entries, clauses, shift, most_spans)
    return words, start


@kernel(makes_arrays=False)
def _count_words(start, filed, entries, clauses, shift, most_spans):
    """The words of each group, one place behind it."""
    for i in range(len(filed.row)):
        n, _ = _count_tests(i, filed, entries, clauses, shift, most_spans)
        start[filed.group[i] + 1] += 1 + n


@kernel(makes_arrays=False)
def _write_clauses(words, filed, entries, clauses, shift, most_spans):
    at = 0
    for i in range(len(filed.row)):
        n, verify = _count_tests(i, filed, entries, clauses, shift, most_spans)
        flags = 0
        if filed.entry[i] >= 0:
            flags = PROGRAM
            verify = verify or not entries.exact[filed.entry[i]]
        if verify:
            flags |= VERIFY
        words[at] = _word(filed.row[i], flags, n)
        at += 1
        if n > 0:
            first, last = _tests_of(i, filed, entries, clauses)
            for k in range(first, last):
                p = entries.tests[k] if filed.entry[i] >= 0 else k
                at = _write_tests(words, at, p, clauses, shift, most_spans)


@kernel(inline="always")
def _tests_of(i, filed, entries, clauses):
    """From where to where the tests of what is filed stand: among those of entries, or as predicates."""
    if filed.entry[i] >= 0:
        first, last = entries.start[filed.entry[i]], entries.start[filed.entry[i] + 1]
    else:
        first, last = clauses.offsets[filed.row[i]], clauses.offsets[filed.row[i] + 1]
    return first, last


@kernel(makes_arrays=False)
def _count_tests(i, filed, entries, clauses, shift, most_spans):
    """How many words the tests take, and whether they are wider than the predicates."""
    n, verify = 0, False
    first, last = _tests_of(i, filed, entries, clauses)
    for k in range(first, last):
        p = entries.tests[k] if filed.entry[i] >= 0 else k
        spans = 1 if clauses.hi[p] >= 0 else -clauses.hi[p]
        if shift[clauses.attribute[p]] > 0 or spans > most_spans:
            verify = True
            n += 1
        else:
            n += spans
    if n > 0xFFFF:  # more than a header can count: all are left to the clauses
        n, verify = 0, True
    return n, verify


@kernel(makes_arrays=False)
def _write_tests(words, at, p, clauses, shift, most_spans):
    """The hull of a predicate and, where that is exact, one test for each hole. Returns the place behind them."""
    a, low, high = clauses.attribute[p], clauses.lo[p], clauses.hi[p]
    if high >= 0:
        words[at] = _hull(a, low, high, shift[a])
        return at + 1
    first, last = low, low - high - 1  # the spans
    words[at] = _hull(a, clauses.span_lo[first], clauses.span_hi[last], shift[a])
    at += 1
    if last - first < most_spans and shift[a] == 0:
        for s in range(first, last):  # from the next span round to this one
            x, y = clauses.span_lo[s + 1], clauses.span_hi[s]
            words[at] = _word(a, x, (y - x) & 0xFFFF)
            at += 1
    return at


@kernel(inline="always")
def _hull(a, low, high, shift):
    x, y = COARSE - 1, COARSE - 1  # never holds: no event has this coarse cell
    if low <= high:
        x, y = np.int64(low >> shift), np.int64(high >> shift)
    return _word(a, x, y - x)


@kernel(inline="always")
def _word(high, middle, low):
    return (np.uint64(high) << HIGH) | (np.uint64(middle) << MIDDLE) | np.uint64(low)


@kernel
def _has_flag(words, start, flag):
    """Whether some header has it."""
    at = np.uint64(0)
    while at < np.uint64(start[-1]):
        if (words[at] >> MIDDLE) & np.uint64(flag) != 0:
            return True
        at += (words[at] & LOW) + ONE
    return False


@kernel
def _match(points, inexact, has_programs, first_program, last_event, progress, *arrays):
    """The arrays of RecordArrays, ClauseArrays, Jumps, EventArrays, WorkSpace and Room, one after the other: handing
    groups over from Python takes twice the time, which single events would notice."""
    records, clauses = RecordArrays(*arrays[:6]), ClauseArrays(*arrays[6:12])
    jumps, events = Jumps(arrays[12], arrays[13], first_program), EventArrays(*arrays[14:18])
    slots, coarse, stamps = Slots(*arrays[18:21]), arrays[21], arrays[22]
    facts, space, room = Facts(points, inexact, has_programs), WorkSpace(slots, coarse, stamps), Room(*arrays[23:])
    _match_events(records, clauses, jumps, events, facts, last_event, space, room, progress)


_match_few = keeping(_match)


@kernel(makes_arrays=False)
def _match_events(records, clauses, jumps, events, facts, last_event, space, room, progress):
    """Goes on where `progress` says (NEXT_ROW: the entry of the event) and stops when the room for pairs is full."""
    slots = space.slots
    progress[PAIRS] = 0
    while progress[NEXT_EVENT] < last_event:
        e = progress[NEXT_EVENT]
        first, last = events.offsets[e], events.offsets[e + 1]
        # Whether some value is no single cell: tests do not do then, candidates go to their clauses.
        several = not facts.points and _has_several(first, last, events)
        for i in range(first, last):
            a = events.attribute[i]
            cell = min(events.lo[i] >> records.shift[a], COARSE - 2)  # above every span, below "never"
            space.coarse[a] = np.uint16(cell)
        if several or facts.inexact:
            lay_out(first, last, events.attribute, events.lo, events.hi, slots.lo, slots.hi, slots.more)
        _next_stamp(space.stamps)
        finished = _read_groups(several, facts, records, clauses, jumps, events, space, room, progress)
        for i in range(first, last):
            space.coarse[events.attribute[i]] = 0
        if several or facts.inexact:
            clear(first, last, events.attribute, slots.lo, slots.hi, slots.more)
        if not finished:
            return
        progress[NEXT_EVENT], progress[NEXT_ROW] = e + 1, 0


@kernel(inline="always")
def _has_several(first, last, events):
    several = False
    for i in range(first, last):
        again = i > first and events.attribute[i - 1] == events.attribute[i]
        several = several or again or events.lo[i] != events.hi[i]
    return several


@kernel(inline="always")
def _next_stamp(stamps):
    if stamps[-1] == 2**31 - 1:
        for i in range(len(stamps)):
            stamps[i] = 0
    stamps[-1] += 1


@kernel(inline="always")
def _read_groups(several, facts, records, clauses, jumps, events, space, room, progress):
    """The groups of the event's entries: that of the attribute, at its first value; then those of the value's cells
    (one, unless it is a range, of which an earlier value may have had a part). False if the room is full."""
    first, last = events.offsets[progress[NEXT_EVENT]], events.offsets[progress[NEXT_EVENT] + 1]
    has_cells = len(records.count) > len(records.shift)
    event_start = progress[PAIRS], progress[CANDIDATES], progress[PREDICATES]
    reached = np.int64(0)  # the last cell that was read, of an attribute with several values
    full = False
    i = first + progress[NEXT_ROW]
    while i < last and not full:
        if i + 1 < events.offsets[-1]:  # the next entry, be it of the next event
            _ask_for_groups(events.attribute[i + 1], events.lo[i + 1], has_cells, records)
        a = events.attribute[i]
        again = i > first and events.attribute[i - 1] == a
        first_cell = np.int64(events.lo[i])
        if again:
            first_cell = max(first_cell, reached + 1)
        last_cell = np.int64(min(events.hi[i], records.cell_end[a] - 1)) if has_cells else np.int64(-1)
        reached = max(last_cell, reached) if again else last_cell
        entry_start = progress[PAIRS], progress[CANDIDATES], progress[PREDICATES]
        cell = first_cell if again else first_cell - 1  # one before the first: the attribute's group
        while cell <= last_cell or cell < first_cell:
            g = records.cell_group[a] + cell if cell >= first_cell else np.int64(a)
            cell += 1
            if records.count[g] == 0:
                continue
            if progress[PAIRS] + records.count[g] > len(room.event):
                full = True
                # What is written out of this entry is found again; if there are stamps, which are not kept, all of
                # the event is.
                progress[NEXT_ROW] = 0 if facts.has_programs else i - first
                counts = event_start if facts.has_programs else entry_start
                progress[PAIRS], progress[CANDIDATES], progress[PREDICATES] = counts
                break
            _read_group(g, several, records, clauses, jumps, events, space, room, progress)
        i += 1
    return not full


@kernel(inline="always")
def _ask_for_groups(a, cell, has_cells, records):
    """Prefetches the groups of an entry."""
    _ask_for_group(np.int64(a), records)
    if has_cells and cell < records.cell_end[a]:
        _ask_for_group(records.cell_group[a] + cell, records)


@kernel(inline="always")
def _ask_for_group(g, records):
    at, end = records.start[g], min(records.start[g + 1], records.start[g] + LINE * LINES)
    while at < end:
        prefetch(records.words, at)
        at += LINE


@kernel(inline="always")
def _read_group(g, several, records, clauses, jumps, events, space, room, progress):
    """Tests every clause of a group, for whose pairs there is room."""
    p, end = np.uint64(records.start[g]), np.uint64(records.start[g + 1])
    found = progress[PAIRS]
    progress[CANDIDATES] += records.count[g]
    progress[PREDICATES] += np.int64(end - p) - records.count[g]
    while p < end:
        header = records.words[p]
        after = p + (header & LOW) + ONE
        fails = np.uint64(0)
        if not several:
            p += ONE
            while p < after:
                test = records.words[p]
                v = np.uint64(space.coarse[test >> HIGH])
                fails |= np.uint64(((v - (test >> MIDDLE)) & LOW) > (test & LOW))
                p += ONE
        p = after
        row, flags = header >> HIGH, (header >> MIDDLE) & FLAGS
        if (several or flags != 0) and fails == 0:
            fails = np.uint64(not _verify(np.int64(row), flags, several, clauses, jumps, events, space))
        room.event[found] = progress[NEXT_EVENT]
        room.row[found] = row
        found += fails == 0
    progress[PAIRS] = found


@kernel(inline="always")
def _verify(row, flags, several, clauses, jumps, events, space):
    """Whether a candidate that passed its tests, if they could be made, is a pair that was not reported before."""
    ask_clauses = several or flags & np.uint64(VERIFY) != 0
    if flags & np.uint64(PROGRAM) == 0:
        ok = True
        if ask_clauses:
            ok, _ = test_conjunction(row, clauses, space.slots, events)
    else:
        program = row - jumps.first_program
        ok = space.stamps[program] != space.stamps[-1]
        if ok and ask_clauses:
            ok, _ = test_program(row, clauses, jumps, space.slots, events)
        if ok:
            space.stamps[program] = space.stamps[-1]
    return ok
