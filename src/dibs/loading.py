"""Bringing in the compiled matcher behind a small one (dibs.front): in the background, or while somebody waits.

In the background: a moment after the first match, so that a short program ends before it begins. If kernels are
missing, a process of its own compiles them, niced (Numba's compiler would hold the interpreter for a minute); it
goes on when this one ends, so that the next one finds them. Then a thread imports everything and runs it once.
DIBS_WARM=never: no such process, and nothing in the background.

A fork waits until the thread has done with importing, which in a child would never end. A program that ends meanwhile
waits for the step that is under way, in silence.
"""

from __future__ import annotations

import _thread
import atexit
import logging
import os
import subprocess
import sys
import threading

from dibs.errors import DibsError
from dibs.jit.forks import hold, hold_while_forking
from dibs.jit.ready import is_ready
from dibs.jit.undisturbed import bring, import_alone

A_MOMENT = 0.3  # seconds after the first match
A_LOOK = 0.2  # seconds between two looks whether the compiling process has ended
STEPS = ("numpy", "pyarrow", "numba", "dibs.matcher", "dibs.warming.sample")  # of importing
WAITING = "Dibs compiles its kernels, once on this machine"

log = logging.getLogger("dibs")
is_done = False  # everything is imported, and has run once
is_under_way = False

_importing = threading.RLock()
_ends = threading.Event()
_has_begun = False
_has_said = False


def is_wanted() -> bool:
    return os.environ.get("DIBS_WARM") != "never"


def load_in_background() -> None:
    """Begins, unless that was done."""
    global _has_begun
    if not _has_begun and is_wanted():
        _thread.start_new_thread(_load, ())  # the interpreter's own: see jit.threads
        _has_begun = True


def _load() -> None:
    global is_done, is_under_way
    try:
        # Others import this later, when it may be too late: it cannot be imported any more when the interpreter ends.
        import concurrent.futures.thread  # noqa: F401

        if _ends.wait(A_MOMENT) or not _wait_for_compiler():
            return
        is_done = _run_steps()
    except Exception:
        if not _is_ending():
            log.warning("the compiled matcher cannot be loaded; matching goes on in plain Python", exc_info=True)
    finally:
        is_under_way = False


def _run_steps() -> bool:
    """Imports everything and runs it once; whether that was done before the interpreter ended."""
    global is_under_way
    with _importing:
        is_under_way = True
        for module in STEPS:
            if _is_ending():
                return False
            import_alone(module)
        from dibs.warming.sample import run_once

        return run_once(_is_ending)


def _is_ending() -> bool:
    return _ends.is_set() or getattr(threading, "_SHUTTING_DOWN", False) or not threading.main_thread().is_alive()


def _wait_for_compiler() -> bool:
    """Whether all kernels are there, after waiting for a process that compiles them."""
    if is_ready():
        return True
    if not sys.executable:
        return False
    from dibs.warming.processes import environment

    process = subprocess.Popen(
        [sys.executable, "-m", "dibs.warming"],
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    while process.poll() is None:
        if _ends.wait(A_LOOK):
            return False
    if not is_ready():
        log.warning("the kernels cannot be compiled: matching goes on in plain Python; `dibs warm` says why")
    return is_ready()


def wait() -> None:
    """Until the kernels are compiled, which is said once: with a progress bar on a terminal."""
    global _has_said
    if _has_said or not is_wanted() or os.environ.get("NUMBA_DISABLE_JIT") or is_ready():
        return
    bar = bring("dibs.cli.progress").bar
    processes = bring("dibs.warming.processes")
    if not sys.stderr.isatty():
        log.warning("%s: a minute or so (`dibs warm` does it beforehand)", WAITING)
    try:
        with bar(WAITING, processes.guess_kernels()) as progress:
            processes.warm(progress=progress)
    except DibsError as error:  # then each is compiled when it is called, and says what is wrong
        log.warning("%s", error)
    _has_said = True  # unless it was interrupted: then who asks next waits for what is left


def _end() -> None:
    """When the interpreter ends: neither an import nor a kernel must be cut off in the middle."""
    _ends.set()
    hold(_importing)
    _importing.release()


def _begin_again_in_a_child() -> None:
    global _importing, _ends, _has_begun, is_under_way
    _importing, _ends, _has_begun, is_under_way = threading.RLock(), threading.Event(), False, False


atexit.register(_end)
hold_while_forking(lambda: _importing)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_again_in_a_child)
