"""Borrowed arrays: the same data, and nobody's count changes."""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.jit.borrowing import borrowed
from dibs.jit.kernel import kernel


class Group(NamedTuple):
    numbers: NDArray[Any]
    table: NDArray[Any]
    factor: int


@kernel
def _sum_of_group(group):
    group = borrowed(group)
    total = 0
    for i in range(len(group.numbers)):
        total += _added(group.numbers, group.table[:, 0], i) * group.factor
    group.numbers[0] = 100
    return total


@kernel
def _added(numbers, column, upto):
    total = 0
    for i in range(upto + 1):
        total += numbers[i] + column[i]
    return total


@kernel
def _sum_of_array(array):
    return _added(borrowed(array), borrowed(array), len(array) - 1)


def test_a_group_is_read_and_written_and_its_counts_stay():
    group = Group(np.arange(4), np.arange(8, dtype=np.int32).reshape(4, 2), 3)
    before = [sys.getrefcount(x) for x in group[:2]]
    for _ in range(5):
        group.numbers[0] = 0
        assert _sum_of_group(group) == 3 * (0 + 3 + 9 + 18)
    assert group.numbers.tolist() == [100, 1, 2, 3]
    assert [sys.getrefcount(x) for x in group[:2]] == before


def test_a_single_array():
    array = np.arange(5)
    before = sys.getrefcount(array)
    assert _sum_of_array(array) == 20
    assert sys.getrefcount(array) == before
