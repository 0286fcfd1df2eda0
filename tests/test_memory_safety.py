"""No event overruns a buffer: guards and bounds checks see what they should, and nothing in hostile events.

memory_safety.py searches for an hour; this is its short form, and what was found once."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from random import Random
from typing import Any

import numba
import numpy as np
import pytest

import memory_safety
from dibs.jit.scanning import copy_bytes
from dibs.matcher import Matcher
from dibs.tuning import numbers, using
from guards import GuardBroken, guarded
from settings import THRESHOLDS

SCRIPT = Path(memory_safety.__file__)


def of_dibs(function: Any) -> Any:
    """A kernel that counts as one of Dibs'."""
    function.__module__ = "dibs.tested"
    return numba.njit(function)


@of_dibs
def copy(data, target, to):
    copy_bytes(data, 0, target, to)


@numba.njit
def plain(data, target, to):
    """Somebody else's: nobody looks after the call."""
    copy_bytes(data, 0, target, to)


@of_dibs
def write(target, at):
    target[at] = 0


@pytest.mark.parametrize("in_thread", [False, True])
def test_guards_see_what_is_written_round_an_array(in_thread: bool) -> None:
    found: list[Any] = []

    def work() -> None:
        data, target = np.zeros(64, np.uint8), np.zeros(40, np.uint8)
        copy(data, target, 8)
        for wrong in (lambda: copy(data, target, 9), lambda: write(np.empty(0, np.int64), 0)):
            with pytest.raises(GuardBroken) as caught:
                wrong()
            found.append(str(caught.value))

    with guarded() as guards:
        if in_thread:
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
        else:
            work()
        guards.broken.clear()
    assert "dibs.tested.copy: 1 array(s) overrun, one of them of 40 bytes" in found[0]
    assert "dibs.tested.write" in found[1]
    assert guards.called["dibs.tested.copy"] == 2


def test_guards_see_it_when_an_array_is_gone() -> None:
    def unseen() -> None:
        with guarded():
            plain(np.zeros(64, np.uint8), np.zeros(40, np.uint8), 20)

    with pytest.raises(GuardBroken, match="the end"):
        unseen()


CHECKED = """
import numba, numpy as np
from dibs.jit.lanes import and_two
from dibs.jit.scanning import copy_bytes, special_bytes
from dibs.jit.words import byte_at, word_at
LANES = (0,) * 4

@numba.njit
def read(how, data, words, at):
    if how == 0:
        return np.uint64(word_at(data, at))
    if how == 1:
        return np.uint64(byte_at(data, at))
    if how == 2:
        return np.uint64(special_bytes(data, at))
    if how == 3:
        copy_bytes(data, 0, data, at)
        return np.uint64(0)
    return and_two(LANES, words, 0, at, words, 0)

data, words = np.zeros(40, np.uint8), np.zeros(12, np.uint64)
for how, width, size in ((0, 8, 40), (1, 1, 40), (2, 32, 40), (3, 32, 40), (4, 4, 12)):
    read(how, data, words, size - width)
    for at in (size - width + 1, size + 100, -1):
        try:
            read(how, data, words, at)
        except IndexError:
            continue
        raise SystemExit(f"{how} reads {width} items at {at} of {size}")
print("good")
"""


def in_a_process(*arguments: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], env=os.environ | environment, capture_output=True, text=True, timeout=1200
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return done.stdout


def test_bounds_checks_see_words_and_vectors() -> None:
    assert in_a_process("-c", CHECKED, NUMBA_BOUNDSCHECK="1") == "good\n"


def test_the_engine_stays_within_bounds() -> None:
    """All its kernels with bounds checks, all arrays with guards: a little of everything, random and hostile cases."""
    said = in_a_process(str(SCRIPT), "--seconds", "15", "--indexes", "auto,scan", "--seed", "5")
    kernels, phases = (words.split(" of ") for words in said.rpartition("calls; ")[2].split(" kernels called, "))
    assert kernels[0] == kernels[1], said
    assert phases[0] == phases[1].split()[0], said


@pytest.mark.parametrize("setting", THRESHOLDS)
def test_hostile_events(setting: str) -> None:
    with guarded():
        for seed in range(6):
            for index in ("auto", "scan", "betree"):
                memory_safety._case("hostile", index, setting, seed)


# --- what was found ------------------------------------------------------------------------------------------------


def test_many_patterns_before_many_values() -> None:
    """Those of the first segment filled the entries, and the second one's were written behind them."""
    words, values = [f"w{i:05d}" for i in range(6085)], [f"v{i:03d}" for i in range(990)]
    with guarded(), Matcher() as matcher:
        matcher.add_many([(i, f"CONTAINS(t, '{w}')") for i, w in enumerate(words)])
        matcher.add_many([(f"s{i}", f"a = '{v}'") for i, v in enumerate(values)])
        for count in (4080, 4095, 4096, 4097, 6085):
            event = {"t": " ".join(words[:count]), "a": values}
            for _ in range(3):
                assert len(matcher.match(event)) == count + len(values)


def test_many_strings_in_many_segments() -> None:
    """Each has an entry for its value and one in reverse, in each of eight segments."""
    values = [f"v{i:03d}" for i in range(numbers["single_values"].value - 1)]
    rules = [f"a = '{v}' OR ENDSWITH(a, '{v[1:]}')" for v in values]
    with using({"merged_at_once": 2}), guarded(), Matcher() as matcher:
        matcher._layers.keep_segments()
        for segment in range(8):
            matcher.add_many([(f"{segment} {i}", rule) for i, rule in enumerate(rules)])
            matcher.match_batch([{}])
        assert len(matcher.snapshot().layers) == 8
        for _ in range(3):
            assert len(matcher.match({"a": values})) == 8 * len(values)


@pytest.mark.parametrize("size", [0, 1, 31, 32, 33, 63, 64, 65, 95, 96])
def test_the_last_line_of_a_block(size: int) -> None:
    """The search for its end read behind the padding."""
    random = Random(size)
    with guarded(), Matcher() as matcher:
        matcher.add("x", "a = 'x'")
        lines = [b'{"a": "x"}' + b" " * (size + i) for i in range(random.randint(30, 40))]
        assert matcher.match_batch(b"\n".join(lines)).count == len(lines)
