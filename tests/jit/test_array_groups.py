"""Groups of arrays, declared once: what kernels get by address is what was declared, and nothing else goes into a
table."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Annotated, Any, NamedTuple

import numpy as np
import pytest
from numba.core.errors import TypingError
from numpy.typing import NDArray

from dibs.jit.group_at import group_at, grouped, part_at
from dibs.jit.groups import (
    Clean,
    Columns,
    Saved,
    Sized,
    Table,
    allocate,
    empty,
    fingerprint,
    restore,
    save,
    saved_names,
    size_of,
)
from dibs.jit.kernel import kernel, phase


class Pairs(NamedTuple):
    number: Annotated[NDArray[np.int16], Clean("rows")]
    both: Annotated[NDArray[np.float64], Columns(2), Sized("rows"), Saved("numbers")]


class Whole(NamedTuple):
    words: Annotated[NDArray[np.uint64], Sized(3)]
    pairs: Pairs
    first: int
    flags: Annotated[NDArray[np.bool_], Clean("rows"), Saved(None)]


class Elsewhere(NamedTuple):
    words: NDArray[np.uint64]
    pairs: Pairs
    flags: NDArray[np.bool_]
    first: int


class Untyped(NamedTuple):
    words: NDArray[Any]


class Text(NamedTuple):
    words: str


def whole() -> Whole:
    numbers = np.arange(4.0).reshape(2, 2)
    pairs = Pairs(np.array([-3, 4], np.int16), numbers)
    return Whole(np.array([1, 2, 1 << 63], np.uint64), pairs, 70, np.array([True, False]))


@kernel
def sums(table):
    g = group_at(table, Whole)
    return g.words[2], g.pairs.number[0], g.pairs.both[1, 0], g.pairs.both.shape, g.first, len(g.flags), g.flags[0]


@kernel
def sums_of_parts(table):
    words, both = part_at(table, Whole, "words"), part_at(table, Whole, "pairs.both")
    pairs, flags = part_at(table, Whole, "pairs"), part_at(table, Whole, "flags")
    return words[2], pairs.number[0], both[1, 0], both.shape, part_at(table, Whole, "first"), len(flags), flags[0]


@phase(inline=False)
def fill(table):
    pairs = part_at(table, Whole, "pairs")
    for i in range(len(pairs.number)):
        pairs.number[i], pairs.both[i, 1] = i, -i


@kernel
def fill_second(table):
    fill(table + size_of_whole)


size_of_whole = size_of(Whole)
EXPECTED = (1 << 63, -3, 2.0, (2, 2), 70, 2, True)


def test_kernels_get_what_is_in_the_table():
    table = Table(whole())
    assert sums(table.address) == sums_of_parts(table.address) == EXPECTED


@kernel
def sums_of_parts_in_a_row(*parts):
    g = grouped(parts, Whole)
    g.pairs.number[1] = 9
    return g.words[2], g.pairs.number[0], g.pairs.both[1, 0], g.pairs.both.shape, g.first, len(g.flags), g.flags[0]


def test_arrays_that_come_one_by_one_are_put_into_groups():
    words, pairs, first, flags = whole()
    before = sys.getrefcount(words)
    assert sums_of_parts_in_a_row(words, *pairs, first, flags) == EXPECTED
    assert pairs.number[1] == 9 and sys.getrefcount(words) == before
    assert grouped.plain((words, *pairs, first, flags), Whole) == (words, pairs, first, flags)
    with pytest.raises(TypingError, match="Whole has 5 parts, not 4"):
        sums_of_parts_in_a_row(words, *pairs, flags)


def test_the_plain_twins_get_the_same():
    table = Table(whole())
    group = group_at.plain(table.address, Whole)
    for a, b in zip(group, whole()):
        for x, y in zip(a, b) if isinstance(a, tuple) else [(a, b)]:
            assert np.array_equal(x, y) and getattr(x, "dtype", None) == getattr(y, "dtype", np.dtype(np.int64))
    assert part_at.plain(table.address, Whole, "pairs.both").tolist() == [[0.0, 1.0], [2.0, 3.0]]
    part_at.plain(table.address, Whole, "pairs.number")[1] = 5
    assert table._held[0].pairs.number.tolist() == [-3, 5]


def test_groups_stand_one_behind_the_other_and_phases_write_there():
    first, second = whole(), whole()
    table = Table.joined([Table(first), Table(second)])
    fill_second(table.address)
    assert first.pairs.number.tolist() == [-3, 4]
    assert second.pairs.number.tolist() == [0, 1] and second.pairs.both.tolist() == [[0.0, 0.0], [2.0, -1.0]]


def test_a_part_is_replaced():
    table = Table.joined([Table(whole()), Table(whole())])
    table.put(Whole, "pairs.number", np.array([9], np.int16), size_of(Whole) // 16)
    table.put(Whole, "first", 71)
    assert sums(table.address) == (*EXPECTED[:4], 71, *EXPECTED[5:])
    assert sums(table.address + size_of(Whole))[1] == 9


@pytest.mark.parametrize(
    ("number", "both"),
    [
        (np.zeros(2, np.int32), np.zeros((2, 2))),
        (np.zeros((2, 1), np.int16), np.zeros((2, 2))),
        (np.zeros(4, np.int16)[::2], np.zeros((2, 2))),
        (np.zeros(2, np.int16), np.zeros((2, 3))),
        (np.zeros(2, np.int16), np.zeros(2)),
        (np.zeros(2, np.int16), np.zeros((2, 2)).T[:1]),
    ],
)
def test_an_array_that_is_not_as_declared_is_refused(number, both):
    with pytest.raises(TypeError, match=r"must be (int16|float64) of"):
        Table(Pairs(number, both))


def test_a_declaration_that_says_too_little_is_refused():
    with pytest.raises(TypeError, match=r"Untyped\.words must say of which type"):
        size_of(Untyped)
    with pytest.raises(TypeError, match=r"Text\.words must be an array"):
        size_of(Text)
    with pytest.raises(AttributeError, match="Pairs has no part third"):
        Table(whole()).put(Whole, "pairs.third", 1)
    with pytest.raises(TypeError, match=r"Elsewhere\.words does not say how long it is"):
        allocate(Elsewhere)


def test_allocation():
    made = allocate(Whole, SimpleNamespace(rows=5), first=3)
    assert [len(made.words), len(made.flags), made.pairs.both.shape, made.first] == [3, 5, (5, 2), 3]
    assert not made.flags.any() and not made.pairs.number.any()
    assert [a.dtype for a in (made.words, made.pairs.both)] == [np.uint64, np.float64]
    none = empty(Whole)
    assert none.pairs.both.shape == (0, 2) and none.first == 0 and len(none.words) == 0
    Table(made, none)


def test_names_in_files():
    assert saved_names(Pairs) == ("number", "numbers")
    pairs = whole().pairs
    saved = save(pairs)
    assert set(saved) == {"number", "numbers"} and restore(Pairs, saved) == pairs
    assert saved_names(Whole) == ("words", "pairs", "first")
    assert restore(Whole, save(whole()), flags=4).flags == 4


def test_a_fingerprint_tells_layouts_apart():
    assert fingerprint(Whole) == fingerprint(Whole)
    assert (
        len({fingerprint(*groups) for groups in ([Whole], [Elsewhere], [Pairs], [Whole, Pairs], [Pairs, Whole])}) == 5
    )
