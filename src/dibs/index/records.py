"""records: clauses beside their rarest attribute, packed into one stream of 64-bit words. Half of `auto`.

The idea: each conjunction is filed under one attribute that few events have (its access attribute). An event reads
only the groups of the attributes it has, and each group is one run of memory: for each clause a header and then its
predicates, a word each. Memory latency is the cost, so the next group is prefetched while the current one is tested;
mispredicted branches come second, so a clause is tested without early exit and clauses of one length stand together.

A program (an expression with OR) is filed under each predicate of its access set (index.access_sets): its record tests
that predicate and then runs the program. It counts only where the predicate is the first of the set that holds, so an
event meets each program once.

Arrays:
    words  uint64  for each clause a header  row << 32 | flags << 16 | n   and n tests
                   attribute << 32 | lo << 16 | (hi - lo),  in coarse cells, modulo 2**16;
                   the last test of a program always holds, and its lo is the place in the access set
    start  int64   attributes + 1: the words of each access attribute
    count  int32   attributes: how many clauses it has
    shift  uint8   attributes: a coarse cell is cell >> shift, below 65,536
    program        int32  the rows that are programs, sorted
    access_start   int64  programs + 1: the access set of each, in
    access         int64  predicates of the clauses, in order

A test holds when (value - lo) mod 2**16 <= hi - lo, so a span may wrap round, and "not in a hole" is one too: a
predicate of several spans is its hull and, for each hole, the span that goes round it. Where a test would be inexact
(coarse cells, long lists) it is wider than the predicate and the flag VERIFY sends the candidate to the clauses
themselves; so do events with several values or a range for some attribute. Branches on what the data says are kept out
of the loop over clauses: testing the flag before the outcome of the tests took a third off the time.

Useful for: attributes that are in few events (sparse, high-dimensional data).
Not useful for: attributes that most events have: every clause filed there would be tested for every event.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from dibs.coding.batch import CodedEvents
from dibs.coding.clauses import Clauses
from dibs.index.base import Rate
from dibs.index.kernels import clear, holds_several, lay_out
from dibs.index.lanes import prefetch
from dibs.language.table import ACCEPT

COARSE = 1 << 16
MOST_SPANS = 8  # a predicate of more spans is tested by its hull and verified
LINES = 16  # cache lines of a group that are prefetched
VERIFY, PROGRAM = 1, 2  # flags of a header
LARGEST_SET = 256  # predicates of an access set that is worth as many records

Sets = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]  # rows of programs, access_start, access


class Records:
    ARRAYS = ("words", "start", "count", "shift", "program", "access_start", "access")

    def __init__(self, clauses: Clauses, arrays: dict[str, NDArray[Any]]):
        self._clauses = clauses
        self.rate = Rate()
        self._arrays = arrays
        self._words, self._start = arrays["words"], arrays["start"]
        programs, records = len(arrays["program"]), int(arrays["count"].sum())
        self.size = records - len(arrays["access"]) + programs
        self._inexact = _is_inexact(self._words, self._start)
        self._spaces: list[tuple[NDArray[Any], ...]] = []  # work space of past calls, clean

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
        programs: Sets,
    ) -> Records:
        """rows: conjunctions; access: the predicate of each under which it is filed; other: an attribute of its other
        predicates; highest: the highest cell that predicates of an attribute cover; programs: with access sets."""
        shift = _coarse_shifts(highest)
        program, access_start, members = programs
        in_set = np.diff(access_start)
        # By attribute, then length (loops of one length are predicted), then another attribute (failures cluster);
        # programs last.
        place = np.concatenate([np.full(len(rows), -1), np.arange(len(members)) - np.repeat(access_start[:-1], in_set)])
        size = np.concatenate([np.diff(clauses.offsets)[rows], np.full(len(members), 255)])
        rows, access = np.concatenate([rows, np.repeat(program, in_set)]), np.concatenate([access, members])
        other = np.concatenate([other, np.zeros(len(members), np.int32)])
        filed = clauses.attribute[access]
        if clauses.attributes < 1 << 22:
            order = np.argsort((filed.astype(np.int64) << 40) | (np.minimum(size, 255) << 32) | other, kind="stable")
        else:
            order = np.lexsort((other, size, filed))
        own = clauses.offsets, clauses.attribute, clauses.lo, clauses.hi, clauses.span_lo, clauses.span_hi
        words, start = _pack(rows[order], access[order], place[order], shift, *own)
        return cls(
            clauses,
            {
                "words": words,
                "start": start,
                "count": np.bincount(filed, minlength=clauses.attributes).astype(np.int32),
                "shift": shift,
                "program": program.astype(np.int32),
                "access_start": access_start,
                "access": members,
            },
        )

    def match(
        self, events: CodedEvents, last: int, room: tuple[NDArray[Any], NDArray[Any]], done: NDArray[np.int64]
    ) -> None:
        """See index.base.in_parts; done[1] is the entry of the event to go on with."""
        c = self._clauses
        space = self._spaces.pop() if self._spaces else _work_space(c.attributes)
        _match(
            *(self._arrays[name] for name in self.ARRAYS),
            c.offsets,
            c.attribute,
            c.lo,
            c.hi,
            c.span_lo,
            c.span_hi,
            c.on_true,
            c.on_false,
            c.offsets[c.conjunctions],
            events.offsets,
            events.attribute,
            events.lo,
            events.hi,
            events.points,
            self._inexact,
            last,
            *space,
            *room,
            done,
        )
        self._spaces.append(space)


def _work_space(attributes: int) -> tuple[NDArray[Any], ...]:
    """Slots for one event by attribute (coarse cell; lo, hi, more of index.kernels): all zero between calls."""
    return (
        np.zeros(attributes, np.uint16),
        np.zeros(attributes, np.int32),
        np.zeros(attributes, np.int32),
        np.zeros((attributes, 2), np.int64),
    )


def _coarse_shifts(highest: NDArray[np.int32]) -> NDArray[np.uint8]:
    """By how many bits the cells of each attribute are shifted to fit, with room for "above" and "never"."""
    bits = np.ceil(np.log2(highest + 4.0)).astype(np.int64)
    return np.maximum(bits - 16, 0).astype(np.uint8)


@njit(cache=True, nogil=True)
def _pack(rows, access, place, shift, offsets, attribute, lo, hi, span_lo, span_hi):  # type: ignore[no-untyped-def]
    """The stream of the rows, which are ordered by the attribute of their access predicate, and where each attribute
    starts. place: in the access set, of programs; -1 for conjunctions, which test all their predicates."""
    start = np.zeros(len(shift) + 1, np.int64)
    for i in range(len(rows)):
        first, last = (offsets[rows[i]], offsets[rows[i] + 1]) if place[i] < 0 else (access[i], access[i] + 1)
        tests = _tests(first, last, shift, attribute, lo, hi)[0]
        start[attribute[access[i]] + 1] += 1 + tests + (place[i] >= 0)
    for a in range(len(shift)):
        start[a + 1] += start[a]
    words = np.empty(start[-1], np.uint64)
    at = 0
    for i in range(len(rows)):
        r = rows[i]
        first, last = (offsets[r], offsets[r + 1]) if place[i] < 0 else (access[i], access[i] + 1)
        n, verify = _tests(first, last, shift, attribute, lo, hi)
        flags = VERIFY if verify else 0
        if place[i] >= 0:
            flags = VERIFY | PROGRAM
        all_tests = n + (place[i] >= 0)
        words[at] = (np.uint64(r) << np.uint64(32)) | (np.uint64(flags) << np.uint64(16)) | np.uint64(all_tests)
        at += 1
        if n > 0:
            for p in range(first, last):
                a = attribute[p]
                spans = 1 if hi[p] >= 0 else -hi[p]
                low = lo[p] if hi[p] >= 0 else span_lo[lo[p]]
                high = hi[p] if hi[p] >= 0 else span_hi[lo[p] + spans - 1]
                words[at] = _test(a, low, high, shift[a])
                at += 1
                if 1 < spans <= MOST_SPANS and shift[a] == 0:
                    for s in range(lo[p], lo[p] + spans - 1):
                        x, y = np.uint64(span_lo[s + 1]), np.uint64(span_hi[s])  # from the next span round to this one
                        width = (y - x) & np.uint64(0xFFFF)
                        words[at] = (np.uint64(a) << np.uint64(32)) | (x << np.uint64(16)) | width
                        at += 1
        if place[i] >= 0:
            words[at] = (np.uint64(place[i]) << np.uint64(16)) | np.uint64(0xFFFF)
            at += 1
    return words, start


@njit(cache=True, nogil=True)
def _is_inexact(words, start):  # type: ignore[no-untyped-def]
    """Whether some clause has to be verified."""
    at = 0
    while at < start[-1]:
        if (words[at] >> np.uint64(16)) & np.uint64(VERIFY) != 0:
            return True
        at += np.int64(words[at] & np.uint64(0xFFFF)) + 1
    return False


@njit(cache=True, nogil=True)
def _tests(first, last, shift, attribute, lo, hi):  # type: ignore[no-untyped-def]
    """How many tests these predicates have, and whether they are wider than the predicates."""
    n, verify = 0, False
    for p in range(first, last):
        spans = 1 if hi[p] >= 0 else -hi[p]
        coarse = shift[attribute[p]] > 0
        if coarse or spans > MOST_SPANS:
            verify = True
            spans = 1
        n += spans
    if n > 0xFFFF:  # more than a header can count: all are left to the clauses
        return 0, True
    return n, verify


@njit(cache=True, nogil=True)
def _test(a, low, high, shift):  # type: ignore[no-untyped-def]
    x, y = np.uint64(COARSE - 1), np.uint64(COARSE - 1)  # never holds: no event has this coarse cell
    if low <= high:
        x, y = np.uint64(low >> shift), np.uint64(high >> shift)
    return (np.uint64(a) << np.uint64(32)) | (x << np.uint64(16)) | (y - x)


@njit(cache=True, nogil=True)
def _match(  # type: ignore[no-untyped-def]
    words,
    start,
    count,
    shift,
    program,
    access_start,
    access,
    offsets,
    attribute,
    lo,
    hi,
    span_lo,
    span_hi,
    on_true,
    on_false,
    jumps,
    event_offsets,
    event_attribute,
    event_lo,
    event_hi,
    points,
    inexact,
    last_event,
    coarse,
    slot_lo,
    slot_hi,
    slot_more,
    out_event,
    out_row,
    done,
):
    candidates, tests = np.int64(0), np.int64(0)
    one, low_half, short, half = np.uint64(1), np.uint64(0xFFFF), np.uint64(16), np.uint64(32)
    found = np.int64(0)
    entry = done[1]
    entries_end = event_offsets[last_event]
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
        for i in range(first + entry, last):
            g = event_attribute[i]
            if i + 1 < entries_end:
                b = event_attribute[i + 1]
                at, end = start[b], min(start[b + 1], start[b] + 8 * LINES)
                while at < end:
                    prefetch(words, at)
                    at += 8
            if count[g] == 0 or (i > first and event_attribute[i - 1] == g):
                continue  # nothing filed here, or another value of an attribute that is done
            if found + count[g] > len(out_event):
                full = True
                done[0], done[1] = e, i - first
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
                if (slots or (header >> short) & one != 0) and fails == 0:
                    first_p, last_p = np.int64(offsets[row]), np.int64(offsets[row + one])
                    if (header >> short) & np.uint64(PROGRAM) != 0:
                        low_j, high_j = 0, len(program) - 1
                        while low_j < high_j:
                            m = (low_j + high_j) >> 1
                            if program[m] < row:
                                low_j = m + 1
                            else:
                                high_j = m
                        own = access_start[low_j] + np.int64((words[after - one] >> short) & low_half)
                        for k in range(access_start[low_j], own + 1):
                            q = access[k]
                            b, low, high = attribute[q], lo[q], hi[q]
                            if high >= 0 and slot_more[b, 1] == 0:
                                ok = low <= slot_hi[b] and slot_lo[b] <= high
                            else:
                                ok = holds_several(
                                    b, low, high, span_lo, span_hi, slot_lo, slot_hi, slot_more, event_lo, event_hi
                                )
                            if ok != (k == own):
                                fails = one
                                break
                        if fails != 0:
                            last_p = first_p
                    q = first_p
                    while q < last_p:
                        b, low, high = attribute[q], lo[q], hi[q]
                        if high >= 0 and slot_more[b, 1] == 0:
                            ok = low <= slot_hi[b] and slot_lo[b] <= high
                        else:
                            ok = holds_several(
                                b, low, high, span_lo, span_hi, slot_lo, slot_hi, slot_more, event_lo, event_hi
                            )
                        if (header >> short) & np.uint64(PROGRAM) != 0:
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
                out_event[found] = e
                out_row[found] = row
                found += fails == 0
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
