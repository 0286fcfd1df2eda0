"""Entries in order, in bounded memory, however badly the ranges were guessed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dibs.papers.structures.pbtree.filing import SORTED, Sorting
from dibs.papers.structures.pbtree.lists import TreeEntries
from dibs.papers.structures.pbtree.pages import PageFolder

MOST = 40  # entries that there is memory for


def portions_of(entries, sample, memory=SORTED * MOST):
    """What comes out of entries that are added in portions of 25."""
    folder = PageFolder()
    try:
        sorting = Sorting(folder, memory, entries.key[sample], len(entries.key))
        for start in range(0, len(entries.key), 25):
            sorting.add(TreeEntries(*(column[start : start + 25] for column in entries)))
        return list(sorting.sort())
    finally:
        folder.close()


def rows_of(entries):
    return list(zip(*(column.tolist() for column in entries)))


def check(entries, portions):
    """All entries are there once; a portion is sorted; the rows of a key come in order. How many portions are not
    behind all before them."""
    found, before, not_behind = [], (-1, -1), 0
    for portion in portions:
        assert len(portion.key) <= MOST
        order = list(zip(portion.key.tolist(), portion.row.tolist()))
        assert order == sorted(order)
        not_behind += order[0] < before
        before = max(before, order[-1])
        found += rows_of(portion)
    assert sorted(found) == sorted(rows_of(entries))
    last = {}
    for _, key, row in found:
        assert last.get(key, -1) < row
        last[key] = row
    return not_behind


def entries_of(keys):
    """Entries of (operator, tree, cell), with rows in their order."""
    operator = np.array([k[0] for k in keys], np.uint8)
    key = np.array([k[1] << 32 | k[2] for k in keys], np.int64)
    return TreeEntries(operator, key, np.arange(len(keys), dtype=np.int32))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 3), st.sampled_from([0, 1, 5, 6, 7, 2**31 - 1])),
        min_size=1,
        max_size=400,
    ),
    st.data(),
)
def test_any_entries_and_any_sample(keys, data):
    entries = entries_of(keys)
    sample = sorted(data.draw(st.sets(st.integers(0, len(keys) - 1), min_size=1, max_size=12)))
    check(entries, portions_of(entries, sample))


@pytest.mark.parametrize("heavy", [MOST // 2, MOST - 1, MOST, 3 * MOST, 10 * MOST])
def test_a_bad_sample_and_a_heavy_key_cost_no_half_full_pages(heavy):
    """Each portion is behind those before, though the sample says that all entries are of one key."""
    rng = np.random.default_rng(heavy)
    some = zip(rng.integers(0, 4, 500), rng.integers(0, 4, 500), rng.integers(0, 90, 500))
    keys = [(1, 1, 7)] * heavy + [(int(a), int(b), int(c)) for a, b, c in some]
    rng.shuffle(keys)
    entries = entries_of([tuple(int(x) for x in k) for k in keys])
    sample = [i for i, k in enumerate(keys) if tuple(k) == (1, 1, 7)][:5]
    assert check(entries, portions_of(entries, sample)) == 0
