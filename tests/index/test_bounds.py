"""What guards the writes of the papers' structures: what cannot be numbered is refused, and a build with bounds checks
sees pointers, vectors, and what leaves its block or page."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from coded import conjunctions_of, events_of, pairs_of
from dibs.errors import IndexTooLarge
from dibs.index import base, create
from dibs.index.auto import bit_layout as layout
from dibs.papers.structures.betree import betree

ROWS = [[(i % 7, [(1 + i % 5, 2 + i % 5)]), (7 + i % 3, [(i % 11 + 1, i % 11 + 1)])] for i in range(300)]
CLAUSES = conjunctions_of(ROWS, 10)


@pytest.mark.parametrize("name", ["gryphon", "propagation", "opindex", "betree", "pstree", "pstbloom", "psthash"])
def test_what_int32_cannot_number_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A place above 2**31 would be written as another one."""
    create(name, CLAUSES)
    monkeypatch.setattr(base, "MOST_PLACES", 30)
    with pytest.raises(IndexTooLarge, match="the limit is 30: use another index"):
        create(name, CLAUSES)


def test_clauses_under_one_access_predicate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their number shares a word with their place: it was cut off from 2**24 on."""
    assert layout.MOST_CLAUSES >= (1 << 28) - 1
    monkeypatch.setattr(layout, "MOST_CLAUSES", 250)
    wide = conjunctions_of([[(0, [(1, 2 + i % 3)])] for i in range(251)], 1)
    with pytest.raises(IndexTooLarge, match="251 clauses under one access predicate"):
        create("propagation", wide)
    assert len(pairs_of(create("propagation", wide, access="any"), events_of([{0: 2}]))) == 251


def test_the_words_of_a_be_tree_stay_below_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """They grow by half, which would lead beyond what links can name."""
    limit = 9_000
    monkeypatch.setattr(base, "MOST_PLACES", limit)
    monkeypatch.setattr(betree, "MOST_PLACES", limit)
    tree = betree.BETree.build(conjunctions_of([], 10))
    more, rows, lengths = conjunctions_of(ROWS[:20], 10), 0, set()

    def fill() -> None:
        nonlocal rows
        while rows < 100_000:
            tree.insert(more)
            rows += 20
            lengths.add(len(tree._words))

    with pytest.raises(IndexTooLarge):
        fill()
    assert rows > 100
    assert max(lengths) == limit


CHECKED = """
import numba, numpy as np
from dibs.papers.structures.betree.nodes import c_node_at, entry_at
from dibs.papers.structures.counters import changes, set_back, zeros
from dibs.papers.structures.kindex import pass_key
from dibs.jit.pointers import CHECKED, pointer_to, pointer_to_write, rows_from

@numba.njit
def use(how, words, keys, counts, at):
    if how == 0:
        return pointer_to(words)[at]
    if how == 1:
        return c_node_at(pointer_to_write(words), at).rows
    if how == 2:
        return entry_at(pointer_to_write(words), at).hi
    if how == 3:
        return rows_from(pointer_to(words), 2, 50)[1, at]
    if how == 4:
        pass_key(keys, at, 1)
    if how == 5:
        zeros(counts, at)
    if how == 6:
        changes(counts, counts, at)
    if how == 7:
        set_back(counts, counts, at)
    return 0

assert CHECKED
arrays = np.zeros((50, 2), np.int32), np.zeros(30, np.int64), np.zeros(128, np.uint8)
for how, last in enumerate((99, 78, 97, 49, 21, 64, 64, 64)):
    use(how, *arrays, last)
    for at in (last + 1, 1000):
        try:
            use(how, *arrays, at)
        except IndexError:
            continue
        raise SystemExit(f"{how} is not checked at {at}")
print("good")
"""


def test_bounds_checks_see_pointers_and_vectors() -> None:
    environment: dict[str, Any] = os.environ | {"NUMBA_BOUNDSCHECK": "1"}
    done = subprocess.run([sys.executable, "-c", CHECKED], env=environment, capture_output=True, text=True, timeout=600)
    assert done.stdout == "good\n", done.stderr[-4000:]


BLOCKS = """
import numpy as np
from coded import conjunctions_of
from dibs.papers.structures.betree.betree import BETree


def fails(message, spoil):
    tree = BETree.build(conjunctions_of([[(0, [(i + 1, i + 1)])] for i in range(30)], 1))
    spoil(tree)
    try:
        tree.insert(conjunctions_of([[(0, [(i + 1, i + 1)]) for _ in range(40)] for i in range(3)], 1))
    except IndexError as e:
        assert message in str(e), e
    else:
        raise SystemExit(f"not seen: {message}")

def small_scratch(tree):
    import dibs.papers.structures.betree.update as update
    update.prepare = lambda arrays, longest: None

fails("scratch", small_scratch)
print("good")
"""


def test_checked_blocks_of_a_be_tree() -> None:
    """What is written within the words, but beyond its block, is seen too."""
    tests = os.path.dirname(os.path.dirname(__file__))
    path = os.pathsep.join([tests, os.environ.get("PYTHONPATH", "")])
    environment: dict[str, Any] = os.environ | {"NUMBA_BOUNDSCHECK": "1", "PYTHONPATH": path}
    done = subprocess.run([sys.executable, "-c", BLOCKS], env=environment, capture_output=True, text=True, timeout=600)
    assert done.stdout == "good\n", done.stderr[-4000:]
