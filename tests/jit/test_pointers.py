"""Arrays as pointers: the elements are the array's, and what a pointer cannot lead through is refused."""

from __future__ import annotations

import numpy as np
import pytest
from numba.core.errors import TypingError

from dibs.jit.kernel import kernel
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
