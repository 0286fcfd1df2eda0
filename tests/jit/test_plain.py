"""Kernels as plain Python (NUMBA_DISABLE_JIT=1): each machine operation does what its twin says, and matchers answer as
the reference does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import numba
import numpy as np
import pytest

from dibs.jit import bits, lanes, scanning, words
from dibs.jit.bits import value_at
from dibs.jit.plain import Memory, plain_kernel, wrap

SCRIPT = Path(__file__).parents[1] / "plain_kernels.py"
LANES = (0,) * 4
WORDS = 40


def compiled(operation: Any) -> Any:
    """A function that does nothing else."""
    return numba.njit(lambda *args: operation(*args))


def random_words(random: Random) -> np.ndarray:
    kinds = (lambda: 0, lambda: (1 << 64) - 1, lambda: random.getrandbits(64), lambda: 1 << random.randrange(64))
    return np.array([random.choice(kinds)() for _ in range(WORDS)], np.uint64)


def place(random: Random) -> np.int64:
    return np.int64(random.randrange(WORDS // 4) * 4)


def text(random: Random) -> np.ndarray:
    return np.array([random.choice([0x22, 0x5C, 0x1F, 0x20, 0x80, 0xFF, 65, 66]) for _ in range(80)], np.uint8)


def start(random: Random) -> np.int64:
    return np.int64(random.randrange(48))


def numbers(random: Random) -> np.ndarray:
    return np.array([random.randrange(WORDS // 4) for _ in range(8)], np.int64)


def run(random: Random) -> tuple[np.int64, np.int64]:
    first = random.randrange(8)
    return np.int64(first), np.int64(random.randrange(first, 8))


ONE_WORD = {
    scanning.reverse_word: lambda r: (np.uint64(r.getrandbits(64)),),
    scanning.high_product: lambda r: (np.uint64(r.getrandbits(64)), np.uint64(r.getrandbits(64))),
    scanning.leading_zeros: lambda r: (np.uint64(r.getrandbits(r.randrange(1, 65)) | 1),),
    lanes.lowest_bit: lambda r: (np.uint64(r.getrandbits(64) | 1) << np.uint64(r.randrange(64)),),
    lanes.count_bits: lambda r: (np.uint64(r.getrandbits(64)),),
    bits.bits_of_number: lambda r: (np.float64(r.uniform(-1e300, 1e300)),),
    bits.number_of_bits: lambda r: (np.int64(r.getrandbits(62)),),
    words.word_at: lambda r: (text(r), start(r)),
    words.byte_at: lambda r: (text(r), start(r)),
    scanning.special_bytes: lambda r: (text(r), start(r)),
    scanning.equal_bytes: lambda r: (text(r), start(r), np.uint8(65)),
    scanning.different_bytes: lambda r: (text(r), start(r), text(r), start(r)),
    scanning.copy_bytes: lambda r: (text(r), start(r), text(r), start(r)),
    lanes.and_two: lambda r: (LANES, random_words(r), place(r), place(r), random_words(r), place(r)),
    lanes.and_not: lambda r: (LANES, random_words(r), place(r), place(r), random_words(r), place(r)),
    lanes.or_and_not: lambda r: (LANES, random_words(r), place(r), place(r), random_words(r), place(r)),
    lanes.and_run: lambda r: (LANES, random_words(r), numbers(r), *run(r), random_words(r), place(r)),
    lanes.and_lines: lambda r: (LANES, random_words(r), numbers(r) // 2, np.int64(3), *run(r), random_words(r)),
    lanes.split: lambda r: (LANES, random_words(r), place(r), random_words(r), np.int64(0), np.int64(4), np.int64(8)),
    lanes.clear: lambda r: (LANES, random_words(r), place(r)),
    lanes.is_empty: lambda r: (LANES, random_words(r), place(r)),
}


@pytest.mark.parametrize("operation", ONE_WORD, ids=lambda operation: operation._name)
def test_a_machine_operation_does_what_its_twin_says(operation):
    call = compiled(operation)
    for seed in range(40):
        own, other = ONE_WORD[operation](Random(seed)), ONE_WORD[operation](Random(seed))
        expected, found = call(*own), operation.plain(*(wrap(arg) for arg in other))
        assert expected == found
        for a, b in zip(own, other):
            assert np.array_equal(a, b)  # what was written


def test_the_twin_of_a_read_by_address():
    array = np.array([3, 1 << 40], np.int64)
    assert value_at.plain(np.int64(0), array.ctypes.data + 8) == 1 << 40


def test_twins_refuse_what_is_out_of_bounds():
    data = np.zeros(40, np.uint8)
    for at in (-1, 33):
        with pytest.raises(IndexError):
            words.word_at.plain(data, at)
    with pytest.raises(IndexError):
        scanning.special_bytes.plain(data, 9)
    with pytest.raises(IndexError):
        lanes.clear.plain(LANES, np.zeros(6, np.uint64), 3)


def test_items_are_as_wide_as_in_compiled_code():
    bytes_, small = wrap(np.array([200, 255], np.uint8)), wrap(np.array([1 << 30], np.int32))
    assert bytes_[1] * 256 == 65280 and bytes_[0] - 201 == -1 and small[0] * 4 == 1 << 32
    small[0] = (1 << 32) - 1
    assert small[0] == -1
    assert next_word(np.array([(1 << 64) - 1], np.uint64)) == 0  # and wraps, without a warning


@plain_kernel
def next_word(words):
    return words[0] + np.uint64(1)


@plain_kernel
def inner(group):
    return group[0][:2], group[0][0] * 256


@plain_kernel
def outer(group):
    part, product = inner(group)
    assert type(part) is Memory and type(group[0]) is Memory
    return part, product


def test_arrays_go_in_as_memory_and_come_out_as_arrays():
    part, product = outer((np.array([200, 1, 2], np.uint8),))
    assert type(part) is np.ndarray and part.tolist() == [200, 1] and product == 51200


def test_matchers_answer_as_the_reference_does_when_nothing_is_compiled():
    environment = os.environ | {"NUMBA_DISABLE_JIT": "1", "DIBS_WARM": "never"}
    done = subprocess.run([sys.executable, SCRIPT, "1", "2"], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-4000:]
    assert "none wrong" in done.stdout
