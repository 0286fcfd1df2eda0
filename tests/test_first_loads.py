"""Interrupts of first loads: what tests/first_loads.py does at length, in short; and the thread out of their reach."""

from __future__ import annotations

import _thread
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba.core.caching import NullCache

from dibs.jit.kernel import kernel
from dibs.jit.undisturbed import _Work, bring, undisturbed
from first_loads import Interrupted, run

MAIN = threading.main_thread().ident


@pytest.mark.parametrize("kind", ["issue", "signals", "lines", "threads", "forks"])
def test_processes_that_are_interrupted_answer_right_and_end_by_themselves(kind: str) -> None:
    assert run(kind, 0).interrupts >= 40


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", ["ends", "script"])
def test_a_process_that_ends_while_kernels_are_loaded_says_nothing(kind: str, seed: int) -> None:
    run(kind, seed)


def test_a_process_that_ends_while_kernels_are_compiled_says_nothing() -> None:
    run("compiles", 0)


# The import that failed: it is too late for it when the main thread has ended.
ENDS_WHILE_IT_IMPORTS = """
import sys, threading, time, dibs
from dibs import engine
engine.A_MOMENT = 0.0
engine.is_ready = lambda: True  # no kernel is reached
engine.STEPS = ("late", *engine.STEPS)
m = dibs.Matcher()
m.add("a", "b = 1")
assert m.match({"b": 1}) == ["a"]
while "late" not in sys.modules:
    time.sleep(0.001)
"""
LATE = """
import threading, time
while threading.main_thread().is_alive():
    time.sleep(0.001)
import concurrent.futures.thread
"""


def test_an_import_in_the_background_that_comes_too_late_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "late.py").write_text(LATE)
    own = {k: v for k, v in os.environ.items() if k != "DIBS_WARM"}
    own["PYTHONPATH"] = os.pathsep.join([str(tmp_path), *(path for path in sys.path if path)])
    done = subprocess.run([sys.executable, "-c", ENDS_WHILE_IT_IMPORTS], env=own, capture_output=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")


def interrupted_after(seconds: float, work: Any) -> None:
    """Calls it, and raises in the main thread after so many seconds."""

    def handle(*_: Any) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, handle)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        with pytest.raises(Interrupted):
            work()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_an_interrupt_ends_the_waiting_and_not_the_work() -> None:
    done: list[int] = []

    def work() -> int:
        time.sleep(0.3)
        done.append(_thread.get_ident())
        return len(done)

    interrupted_after(0.05, lambda: undisturbed(work))
    assert done == []
    assert undisturbed(lambda: len(done)) == 1  # after what is under way
    assert undisturbed(work) == 2 and MAIN not in done


def test_what_fails_there_fails_here() -> None:
    def fail() -> None:
        raise LookupError("why")

    with pytest.raises(LookupError, match="why"):
        undisturbed(fail)
    assert undisturbed(lambda: 5) == 5
    with pytest.raises(ModuleNotFoundError):
        bring("dibs.no_such_thing")


def test_nobody_waits_for_a_thread_that_has_no_memory_to_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise MemoryError  # as the thread's first call does, where there is no room for its frame

    with monkeypatch.context() as patch:
        patch.setattr(_Work, "run", fail)
        patch.setattr(sys, "unraisablehook", lambda _: None)  # pytest's keeps the frame
        with pytest.raises(MemoryError):
            undisturbed(lambda: 5)
    assert undisturbed(lambda: 5) == 5


def test_another_thread_does_it_itself() -> None:
    own: list[bool] = []
    thread = threading.Thread(target=lambda: own.append(undisturbed(_thread.get_ident) == _thread.get_ident()))
    thread.start()
    thread.join()
    assert own == [True]
    inner = undisturbed(lambda: undisturbed(_thread.get_ident) == _thread.get_ident())
    assert inner  # nor does the one that works wait for another


@kernel
def compiled_here(values):
    total = 0
    for value in values:
        total += value
    return total


def test_a_kernel_is_compiled_elsewhere_and_called_here(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = compiled_here._compiler
    where: list[int] = []
    compile = compiler.compile

    def slowly(args: Any, return_type: Any) -> Any:
        where.append(_thread.get_ident())
        time.sleep(0.2)
        return compile(args, return_type)

    monkeypatch.setattr(compiler, "compile", slowly)
    monkeypatch.setattr(compiled_here, "_cache", NullCache())
    interrupted_after(0.05, lambda: compiled_here(np.arange(5)))
    assert compiled_here(np.arange(5)) == 10
    assert compiled_here(np.arange(5.0)) == 10.0
    assert len(where) == 2 and MAIN not in where


def test_a_fork_waits_for_the_work_in_spite_of_an_interrupt() -> None:
    begun, done = threading.Event(), []

    def work() -> None:
        begun.set()
        time.sleep(0.4)
        done.append(1)

    interrupted_after(0.05, lambda: undisturbed(work))
    begun.wait()
    child = os.fork()
    if child == 0:
        os._exit(0 if done and undisturbed(lambda: 7) == 7 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert undisturbed(lambda: 5) == 5


def test_an_interrupt_of_a_fork_comes_after_it() -> None:
    begun, done = threading.Event(), []

    def work() -> None:
        begun.set()
        time.sleep(0.5)
        done.append(1)

    interrupted_after(0.05, lambda: undisturbed(work))
    begun.wait()
    children: list[int] = []

    def handle(*_: Any) -> None:
        raise KeyboardInterrupt

    def fork() -> None:
        child = os.fork()
        if child == 0:
            os._exit(0 if done else 1)
        children.append(child)
        time.sleep(1)

    before = signal.signal(signal.SIGINT, handle), signal.signal(signal.SIGALRM, handle)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(KeyboardInterrupt):
            fork()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGINT, before[0])
        signal.signal(signal.SIGALRM, before[1])
    if not children:  # raised between the fork and the next line
        children.append(-1)
    assert os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]) == 0
