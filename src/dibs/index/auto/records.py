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

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dibs.coding.batch import CodedEvents
from dibs.coding.clauses import Clauses
from dibs.index.auto.access_sets import Entries
from dibs.index.base import Rate
from dibs.index.kernels import clear, holds_several, lay_out
from dibs.jit.interpreter import keeping
from dibs.jit.kernel import kernel
from dibs.jit.lanes import prefetch
from dibs.jit.pools import Pool, Space
from dibs.language.table import ACCEPT
from dibs.thresholds import thresholds

COARSE = 1 << 16  # coarse cells are below it
LINES = 16  # cache lines of a group that are prefetched
VERIFY, PROGRAM = 1, 2  # flags of a header


class Records:
    ARRAYS = ("words", "start", "count", "shift", "cell_group", "cell_end", "size")

    def __init__(self, clauses: Clauses, arrays: dict[str, NDArray[Any]]):
        self._clauses = clauses
        self.rate = Rate()
        self._arrays = arrays
        self._words, self._start = arrays["words"], arrays["start"]
        self.size = int(arrays["size"][0])
        self._has_programs = int(arrays["count"].sum()) > 0 and bool(_has_flag(self._words, self._start, PROGRAM))
        self._inexact = bool(_has_flag(self._words, self._start, VERIFY))
        c = clauses
        own = c.offsets, c.attribute, c.lo, c.hi, c.span_lo, c.span_hi, c.on_true, c.on_false, c.conjunctions
        self._fixed = (*(arrays[name] for name in self.ARRAYS[:-1]), *own)  # what every search is given
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
        own = clauses.offsets, clauses.attribute, clauses.lo, clauses.hi, clauses.span_lo, clauses.span_hi
        tests = entries.exact, entries.test_start, entries.tests
        words, start = _pack(
            rows[order], group[order], groups, entry[order], *tests, shift, *own, thresholds.record_spans
        )
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
        self, events: CodedEvents, last: int, room: tuple[NDArray[Any], NDArray[Any]], done: NDArray[np.int64]
    ) -> None:
        """See index.base.in_parts; done[1] is the entry of the event to go on with."""
        taken = self._pool.take(_work_space, self._clauses, self._has_programs)
        # A short search keeps the interpreter (jit.interpreter).
        few = last - done[0] <= thresholds.few_events and self.size <= thresholds.few_records
        match = _match_few if few else _match
        match(
            *self._fixed,
            events.offsets,
            events.attribute,
            events.lo,
            events.hi,
            events.points,
            self._inexact,
            self._has_programs,
            last,
            *taken.space,
            *room,
            done,
        )
        self._pool.give(taken)


def _work_space(clauses: Clauses, programs: bool) -> Space:
    """Slots for one event by attribute (coarse cell; lo, hi, more of index.kernels): all zero between calls. And the
    stamps of programs; the last one is the stamp of the event before."""
    n = clauses.attributes
    return (
        np.zeros(n, np.uint16),
        np.zeros(n, np.int32),
        np.zeros(n, np.int32),
        np.zeros((n, 2), np.int64),
        np.zeros((len(clauses) - clauses.conjunctions if programs else 0) + 1, np.int32),
    )


def _coarse_shifts(highest: NDArray[np.int32]) -> NDArray[np.uint8]:
    """By how many bits the cells of each attribute are shifted to fit, with room for "above" and "never"."""
    bits = np.ceil(np.log2(highest + 4.0)).astype(np.int64)
    return np.maximum(bits - thresholds.coarse_bits, 0).astype(np.uint8)


@kernel
def _pack(
    rows,
    group,
    groups,
    entry,
    exact,
    test_start,
    tests,
    shift,
    offsets,
    attribute,
    lo,
    hi,
    span_lo,
    span_hi,
    most_spans,
):
    """The stream of the rows, which are ordered by the group that they are filed in, and where each group starts.
    entry: of programs, which have the tests of the entry; -1 for conjunctions, which test all their predicates."""
    most = 1
    for i in range(len(rows)):
        most = max(most, offsets[rows[i] + 1] - offsets[rows[i]])
    own = np.empty(most, np.int64)
    start = np.zeros(groups + 1, np.int64)
    words = np.empty(0, np.uint64)
    for filling in (False, True):
        if filling:
            for g in range(groups):
                start[g + 1] += start[g]
            words = np.empty(start[-1], np.uint64)
        at = 0
        for i in range(len(rows)):
            first, last = offsets[rows[i]], offsets[rows[i] + 1]
            if entry[i] >= 0:
                first, last = test_start[entry[i]], test_start[entry[i] + 1]
            n, verify = 0, False
            for k in range(first, last):
                p = tests[k] if entry[i] >= 0 else k
                own[k - first] = p
                if shift[attribute[p]] > 0 or -hi[p] > most_spans:
                    verify = True
                    n += 1
                else:
                    n += 1 if hi[p] >= 0 else -hi[p]
            if n > 0xFFFF:  # more than a header can count: all are left to the clauses
                n, verify = 0, True
            if not filling:
                start[group[i] + 1] += 1 + n
                continue
            flags = 0
            if entry[i] >= 0:
                flags = PROGRAM
                verify = verify or not exact[entry[i]]
            if verify:
                flags |= VERIFY
            words[at] = (np.uint64(rows[i]) << np.uint64(32)) | (np.uint64(flags) << np.uint64(16)) | np.uint64(n)
            at += 1
            for k in range(last - first if n > 0 else 0):
                p = own[k]
                a = attribute[p]
                spans = 1 if hi[p] >= 0 else -hi[p]
                low = lo[p] if hi[p] >= 0 else span_lo[lo[p]]
                high = hi[p] if hi[p] >= 0 else span_hi[lo[p] + spans - 1]
                words[at] = _test(a, low, high, shift[a])
                at += 1
                if 1 < spans <= most_spans and shift[a] == 0:
                    for s in range(lo[p], lo[p] + spans - 1):
                        x, y = np.uint64(span_lo[s + 1]), np.uint64(span_hi[s])  # from the next span round to this one
                        width = (y - x) & np.uint64(0xFFFF)
                        words[at] = (np.uint64(a) << np.uint64(32)) | (x << np.uint64(16)) | width
                        at += 1
    return words, start


@kernel
def _has_flag(words, start, flag):
    at = 0
    while at < start[-1]:
        if (words[at] >> np.uint64(16)) & np.uint64(flag) != 0:
            return True
        at += np.int64(words[at] & np.uint64(0xFFFF)) + 1
    return False


@kernel
def _test(a, low, high, shift):
    x, y = np.uint64(COARSE - 1), np.uint64(COARSE - 1)  # never holds: no event has this coarse cell
    if low <= high:
        x, y = np.uint64(low >> shift), np.uint64(high >> shift)
    return (np.uint64(a) << np.uint64(32)) | (x << np.uint64(16)) | (y - x)


@kernel
def _match(
    words,
    start,
    count,
    shift,
    cell_group,
    cell_end,
    offsets,
    attribute,
    lo,
    hi,
    span_lo,
    span_hi,
    on_true,
    on_false,
    conjunctions,
    event_offsets,
    event_attribute,
    event_lo,
    event_hi,
    points,
    inexact,
    has_programs,
    last_event,
    coarse,
    slot_lo,
    slot_hi,
    slot_more,
    stamps,
    out_event,
    out_row,
    done,
):
    candidates, tests = np.int64(0), np.int64(0)
    one, low_half, short, half = np.uint64(1), np.uint64(0xFFFF), np.uint64(16), np.uint64(32)
    found = np.int64(0)
    entry = done[1]
    entries_end = event_offsets[last_event]
    jumps, has_cells = offsets[conjunctions], len(count) > len(shift)
    for e in range(done[0], last_event):
        first, last = event_offsets[e], event_offsets[e + 1]
        slots = False  # whether some value is no single cell: tests do not do then, candidates go to their clauses
        if not points:
            for i in range(first, last):
                again = i > first and event_attribute[i - 1] == event_attribute[i]
                slots = slots or again or event_lo[i] != event_hi[i]
        if slots or inexact:
            lay_out(first, last, event_attribute, event_lo, event_hi, slot_lo, slot_hi, slot_more)
        for i in range(first, last):
            a = event_attribute[i]
            coarse[a] = np.uint16(min(event_lo[i] >> shift[a], COARSE - 2))  # above every span, below "never"
        full = False
        found_before, candidates_before, tests_before = found, candidates, tests
        if stamps[-1] == 2**31 - 1:
            stamps[:] = 0
        stamps[-1] += 1
        reached = np.int64(0)  # the last cell that was read, of an attribute with several values
        for i in range(first + entry, last):
            a = event_attribute[i]
            if i + 1 < entries_end:  # ask for the groups of the next entry, be it of the next event
                b = event_attribute[i + 1]
                at, end = start[b], min(start[b + 1], start[b] + 8 * LINES)
                while at < end:
                    prefetch(words, at)
                    at += 8
                if has_cells and event_lo[i + 1] < cell_end[b]:
                    g = cell_group[b] + event_lo[i + 1]
                    at, end = start[g], min(start[g + 1], start[g] + 8 * LINES)
                    while at < end:
                        prefetch(words, at)
                        at += 8
            # The attribute's group, at its first value; then those of the value's cells (one, unless it is a range, of
            # which an earlier value may have had a part).
            again = i > first and event_attribute[i - 1] == a
            first_cell = np.int64(event_lo[i])
            if again:
                first_cell = max(first_cell, reached + 1)
            last_cell = np.int64(min(event_hi[i], cell_end[a] - 1)) if has_cells else np.int64(-1)
            reached = max(last_cell, reached) if again else last_cell
            found_at_entry, candidates_at_entry, tests_at_entry = found, candidates, tests
            cell = first_cell if again else first_cell - 1
            while cell <= last_cell or cell < first_cell:
                g = cell_group[a] + cell if cell >= first_cell else np.int64(a)
                cell += 1
                if count[g] == 0:
                    continue
                if found + count[g] > len(out_event):
                    full = True
                    done[0], done[1] = e, i - first
                    # What is written out of this entry is found again; if there are stamps, which are not kept, all of
                    # the event is.
                    found, candidates, tests = found_at_entry, candidates_at_entry, tests_at_entry
                    if has_programs:
                        done[1] = 0
                        found, candidates, tests = found_before, candidates_before, tests_before
                    break
                p, end_p = np.uint64(start[g]), np.uint64(start[g + 1])
                candidates += count[g]
                tests += np.int64(end_p - p) - count[g]
                while p < end_p:
                    header = words[p]
                    after = p + (header & low_half) + one
                    fails = np.uint64(0)
                    if not slots:
                        p += one
                        while p < after:
                            test = words[p]
                            v = np.uint64(coarse[test >> half])
                            fails |= np.uint64(((v - (test >> short)) & low_half) > (test & low_half))
                            p += one
                    p = after
                    row = header >> half
                    flags = (header >> short) & np.uint64(VERIFY | PROGRAM)
                    if (slots or flags != 0) and fails == 0:
                        first_p, last_p = np.int64(offsets[row]), np.int64(offsets[row + one])
                        is_program = flags & np.uint64(PROGRAM) != 0
                        if is_program and stamps[row - np.uint64(conjunctions)] == stamps[-1]:
                            fails = one
                        q = first_p if (slots or flags & np.uint64(VERIFY) != 0) and fails == 0 else last_p
                        while q < last_p:
                            b, low, high = attribute[q], lo[q], hi[q]
                            if high >= 0 and slot_more[b, 1] == 0:
                                ok = low <= slot_hi[b] and slot_lo[b] <= high
                            else:
                                ok = holds_several(
                                    b, low, high, span_lo, span_hi, slot_lo, slot_hi, slot_more, event_lo, event_hi
                                )
                            if is_program:
                                step = on_true[q - jumps] if ok else on_false[q - jumps]
                                if step < 0:
                                    fails = np.uint64(step != ACCEPT)
                                    break
                                q = first_p + step
                            elif ok:
                                q += 1
                            else:
                                fails = one
                                break
                        if is_program and fails == 0:
                            stamps[row - np.uint64(conjunctions)] = stamps[-1]
                    out_event[found] = e
                    out_row[found] = row
                    found += fails == 0
            if full:
                break
        for i in range(first, last):
            coarse[event_attribute[i]] = 0
        if slots or inexact:
            clear(first, last, event_attribute, slot_lo, slot_hi, slot_more)
        if full:
            break
        entry = np.int64(0)
        done[0], done[1] = e + 1, 0
    done[2] = found
    done[3] += candidates
    done[4] += tests


_match_few = keeping(_match)
