"""Arrays without counting: pointers and phases. The elements are the array's, and what cannot be done is refused."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from numba.core.errors import TypingError

from dibs.jit.kernel import kernel, phase
from dibs.jit.pointers import pointer_to, pointer_to_write


@kernel
def third_of(array):
    return pointer_to(array)[2]


@kernel
def set_third(array, value):
    pointer_to_write(array)[2] = value


def read_only(array):
    array.flags.writeable = False
    return array


@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_a_pointer_reads_and_writes_the_elements(kind):
    array = np.arange(5, dtype=kind)
    set_third(array, 70)
    assert array.tolist() == [0, 1, 70, 3, 4]
    assert third_of(array) == third_of(read_only(array)) == 70


def test_what_is_not_contiguous_is_refused():
    with pytest.raises(TypingError, match="contiguous array only"):
        third_of(np.arange(9)[::2])
    with pytest.raises(TypingError, match="contiguous array that is not read-only"):
        set_third(np.arange(9)[::2], 1)


def test_what_is_read_only_is_not_written():
    with pytest.raises(TypingError, match="not read-only"):
        set_third(read_only(np.arange(9)), 1)


@phase
def add_to_all(group, value):
    for i in range(len(group)):
        group[i] += value


@kernel
def add_to_each(a, b, value):
    made = a + b
    add_to_all(a, value)
    add_to_all(made, value)
    return made


def test_a_phase_is_handed_arrays_and_nobody_s_count_changes():
    a, b = np.arange(3), np.arange(3)
    before = sys.getrefcount(a)
    assert add_to_each(a, b, 10).tolist() == [10, 12, 14]
    assert a.tolist() == [10, 11, 12]
    assert sys.getrefcount(a) == before


@phase
def doubled(array):
    return (array * 2).sum()


@kernel
def call_doubled(array):
    return doubled(array)


def test_a_phase_that_makes_arrays_is_refused():
    with pytest.raises(Exception, match="NRT"):
        call_doubled(np.arange(3))


def test_python_does_not_call_a_phase():
    with pytest.raises(TypeError, match="add_to_all is a phase, which only kernels call"):
        add_to_all(np.arange(3), 1)
