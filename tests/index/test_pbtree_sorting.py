"""Entries in order, in bounded memory, however badly the ranges were guessed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dibs.index.papers.pbtree.environment import Environment
from dibs.index.papers.pbtree.sorting import SORTED, Sorting

MOST = 40  # entries that there is memory for


def portions_of(lists, values, sample, memory=SORTED * MOST):
    """What comes out of entries that are added in portions of 25."""
    environment = Environment(1 << 20, None)
    try:
        sorting = Sorting(environment, memory, (lists[sample], values[sample]), len(lists))
        for start in range(0, len(lists), 25):
            sorting.add(lists[start : start + 25], values[start : start + 25])
        return list(sorting.sorted())
    finally:
        environment.close()


def check(lists, values, portions):
    """All entries are there once; a portion is sorted, and where it says so behind all before it."""
    before = (-1, -1)
    found = []
    for own_lists, own_values, behind in portions:
        assert len(own_lists) <= MOST
        entries = list(zip(own_lists.tolist(), own_values.tolist()))
        assert entries == sorted(entries)
        if behind:
            assert before < entries[0]
        before = max(before, entries[-1])
        found += entries
    assert sorted(found) == sorted(zip(lists.tolist(), values.tolist()))


def entries_of(keys):
    """Lists and values of (list, cell), with rows in their order."""
    lists = np.array([k[0] for k in keys], np.uint32)
    return lists, np.array([k[1] << 32 | row for row, k in enumerate(keys)], np.int64)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from([0, 1, 5, 6, 7, 2**31 - 1])), min_size=1, max_size=400),
    st.data(),
)
def test_any_entries_and_any_sample(keys, data):
    lists, values = entries_of(keys)
    sample = sorted(data.draw(st.sets(st.integers(0, len(keys) - 1), min_size=1, max_size=12)))
    check(lists, values, portions_of(lists, values, sample))


@pytest.mark.parametrize("heavy", [MOST // 2, MOST - 1, MOST, 3 * MOST, 10 * MOST])
def test_a_bad_sample_and_a_heavy_key_cost_no_half_full_pages(heavy):
    """Each portion can be appended, though the sample says that all entries are of one key."""
    rng = np.random.default_rng(heavy)
    keys = [(1, 7)] * heavy + [(int(a), int(b)) for a, b in zip(rng.integers(0, 4, 500), rng.integers(0, 90, 500))]
    rng.shuffle(keys)
    lists, values = entries_of([tuple(k) for k in keys])
    sample = [i for i, k in enumerate(keys) if tuple(k) == (1, 7)][:5]
    portions = portions_of(lists, values, sample)
    check(lists, values, portions)
    assert all(behind for _, _, behind in portions)
