"""Whether a clause of records holds, and was not reported before."""

from __future__ import annotations

import numpy as np

from dibs.index.auto.record_layout import FEWEST, FLAGS, GROUP, HIGH, LOW, MIDDLE, ONE, PROGRAM, SEVERAL, VERIFY
from dibs.index.kernels import test_conjunction, test_program
from dibs.jit.kernel import kernel, phase


@kernel(inline="always")
def next_stamp(stamps):
    if stamps[-1] == 2**31 - 1:
        for i in range(len(stamps)):
            stamps[i] = 0
    stamps[-1] += 1


@phase
def has_bit(bits, i):
    """Those bits are in the caches; what they tell of is not."""
    i = np.uint64(i)
    return (bits[i >> np.uint64(3)] >> (i & np.uint64(7))) & 1 != 0


@phase
def is_read(filled, values):
    """Whether the group of an attribute is there, and an event of so many values may have all that one of it needs."""
    return filled >= GROUP and values >= np.int64(filled & FEWEST)


@kernel(inline="always")
def test_record(p, header, several, open_guard, records, clauses, jumps, events, space):
    """0 if the clause at words[p] holds, and was not reported before. No test is left out because another one failed:
    that branch would be mispredicted. open_guard: its guard, which may not stand among its tests, was not decided."""
    after = p + (header & LOW) + ONE
    fails, is_open = np.uint64(0), open_guard
    p += ONE
    if several:
        while p < after:
            test = records.words[p]
            fails |= np.uint64(rules_out(test, space.coarse))
            is_open |= space.coarse[test >> HIGH] == SEVERAL
            p += ONE
    else:
        while p < after:
            test = records.words[p]
            v = np.uint64(space.coarse[test >> HIGH])
            fails |= np.uint64(((v - (test >> MIDDLE)) & LOW) > (test & LOW))
            p += ONE
    flags = (header >> MIDDLE) & FLAGS
    if (several or flags != 0) and fails == 0:
        fails = np.uint64(not verify(np.int64(header >> HIGH), flags, several, is_open, clauses, jumps, events, space))
    return fails


@phase
def rules_out(test, coarse):
    """Whether a test fails for an event that may have several values, but has one of this attribute, or none."""
    v = np.uint64(coarse[test >> HIGH])
    return (((v - (test >> MIDDLE)) & LOW) > (test & LOW)) & (v != SEVERAL)


@phase(inline=False)
def verify(row, flags, several, is_open, clauses, jumps, events, space):
    """Whether a candidate that passed its tests, if they could be made, is a pair. It is asked about once: a program
    may have several entries, and an event of several values meets a clause under each of them. is_open: some test
    could not be made, as the event has several values of its attribute."""
    program, ask_clauses = flags & np.uint64(PROGRAM) != 0, is_open or flags & np.uint64(VERIFY) != 0
    if program or several:
        if space.stamps[row] == space.stamps[-1]:
            return False
        space.stamps[row] = space.stamps[-1]
    ok = True
    if ask_clauses:
        if program:
            ok, _ = test_program(row, clauses, jumps, space.slots, events)
        else:
            ok, _ = test_conjunction(row, clauses, space.slots, events)
    return ok
