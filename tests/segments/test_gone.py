"""Which rows are gone: a value that never changes."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dibs.segments.tombstones import Tombstones, alive

rows = st.integers(0, 40)


@given(st.lists(st.sets(rows), max_size=4), st.lists(st.tuples(rows, rows), max_size=60))
def test_pairs_of_rows_that_are_gone_are_left_out(steps, pairs):
    states, gone = [(Tombstones(41), frozenset())], frozenset()
    for more in steps:
        states.append((states[-1][0].including(np.array(sorted(more - gone), np.int64)), gone | more))
        gone = states[-1][1]
    for state, expected in states:  # the earlier ones are as they were
        event, row = (np.array([p[i] for p in pairs], np.int32) for i in (0, 1))
        kept = alive(state.bits, event, row) if state.bits is not None else (event, row)
        assert list(zip(*(x.tolist() for x in kept))) == [p for p in pairs if p[1] not in expected]
        assert state.count == len(expected)
        assert state.list_rows().tolist() == sorted(expected)
        assert state.find_kept().tolist() == [r for r in range(41) if r not in expected]
        assert state.has_each(np.arange(41)).tolist() == [state.has(r) for r in range(41)]
        assert [r for r in range(41) if state.has(r)] == sorted(expected)
