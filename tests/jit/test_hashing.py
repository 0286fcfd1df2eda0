"""Numbers for equal things: those that a dict gives."""

from __future__ import annotations

import numpy as np
import pytest

from dibs.jit.hashing import number_pairs, number_slices
from dibs.jit.sorting import order_hashes


def numbers_of(things):
    known: dict = {}
    numbers = [known.setdefault(thing, len(known)) for thing in things]
    return numbers, [numbers.index(k) for k in range(len(known))]


@pytest.mark.parametrize("kinds", [1, 3, 50, 1_000])
@pytest.mark.parametrize("shift", [0, 20, 32, 52])  # hashes of numbers that differ in their upper bits only
def test_pairs(kinds, shift):
    rng = np.random.default_rng(kinds)
    x, y = rng.integers(-kinds, kinds, (2, 700)) << shift
    number, first = number_pairs(x, y)
    assert (number.tolist(), first.tolist()) == numbers_of(zip(x.tolist(), y.tolist()))


@pytest.mark.parametrize("dtype", [np.uint8, np.int64])
@pytest.mark.parametrize("most", [0, 1, 3, 40])
def test_slices(dtype, most):
    rng = np.random.default_rng(most)
    data = rng.integers(0, 2, 3_000).astype(dtype) << (40 if dtype == np.int64 else 0)
    size = rng.integers(0, most + 1, 500)
    start = rng.integers(0, len(data) - most, 500)
    number, first = number_slices(data, start, size)
    assert (number.tolist(), first.tolist()) == numbers_of(tuple(data[a : a + n].tolist()) for a, n in zip(start, size))


@pytest.mark.parametrize("kinds", [1, 3, 2**20, 2**64])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 1_000])
def test_order_of_hashes(kinds, count):
    hashes = np.random.default_rng(count).integers(0, kinds - 1, count, np.uint64, endpoint=True)
    ordered, places, is_done = order_hashes(hashes)
    if is_done:
        assert ordered.tolist() == sorted(hashes.tolist())
        assert places.tolist() == np.argsort(hashes, kind="stable").tolist()
    assert is_done or (count == 1_000 and kinds < 2**64), "hashes are put in order"


def test_nothing():
    nothing = np.empty(0, np.int64)
    found = [*number_pairs(nothing, nothing), *number_slices(nothing, nothing, nothing)]
    assert [len(each) for each in found] == [0] * 4
