"""The compiled engine of matchers, and how it arrives.

To import Numba and Arrow takes a second, to load the kernels another one, and to compile them, on a machine that has
never done it, a minute. A small matcher does without for a while (dibs.plain): `current` is None until the engine is
here. It arrives

    load_soon()    in the background, a moment after the first match, so that a short program ends before it begins. If
                   kernels are missing, a process of its own compiles them, niced (Numba's compiler would hold the
                   interpreter for a minute); it goes on when this one ends, so that the next one finds them. Then a
                   thread imports everything and runs it once. DIBS_WARM=never: nothing of this.
    require()      now, for what cannot do without it; first all kernels are compiled, if need be, by processes.
    load()         now, as it is: a kernel that is missing is compiled when it is called.

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
from collections.abc import Callable
from typing import Any

from dibs.errors import DibsError
from dibs.jit.forks import hold, hold_while_forking
from dibs.jit.ready import is_ready
from dibs.jit.undisturbed import bring, import_alone

ENGINE = "dibs.matching"
A_MOMENT = 0.3  # seconds after the first match
A_LOOK = 0.2  # seconds between two looks whether the compiling process has ended
STEPS = ("numpy", "pyarrow", "numba", ENGINE, "dibs.warming.sample")  # of importing
WAITING = "Dibs compiles its kernels, once on this machine"

Progress = Callable[[int, int], None]  # is told how many kernels are compiled, of about how many

log = logging.getLogger("dibs")
current: Any = None  # the module dibs.matching

_importing = threading.RLock()
_ends = threading.Event()
_has_begun = False
_has_compiled = False


def load() -> Any:
    """The engine, imported now."""
    global current
    if current is None:
        current = bring(ENGINE)
    return current


def require(on_progress: Progress | None = None) -> Any:
    """The engine, all of it compiled."""
    if current is None:
        compile_kernels(on_progress)
    return load()


def is_wanted() -> bool:
    """Whether kernels are compiled before they are called."""
    return os.environ.get("DIBS_WARM") != "never"


def has_kernels() -> bool:
    """Whether nothing is left to be compiled, or would be before it is called."""
    return _has_compiled or not is_wanted() or bool(os.environ.get("NUMBA_DISABLE_JIT")) or is_ready()


def compile_kernels(on_progress: Progress | None = None) -> None:
    """Waits until the kernels are compiled. Without `on_progress` it is told on a terminal, or logged."""
    global _has_compiled
    if has_kernels():
        return
    processes = bring("dibs.warming.processes")
    total = processes.guess_kernels()
    tell = _tell_terminal if on_progress is None and sys.stderr.isatty() else on_progress
    if tell is None:
        log.warning("%s: a minute or so (`dibs warm` does it beforehand)", WAITING)
    try:
        processes.warm(progress=None if tell is None else lambda done: tell(done, total))
    except DibsError as error:  # then each is compiled when it is called, and says what is wrong
        log.warning("%s", error)
    finally:
        if tell is _tell_terminal:
            _write("\r\033[K")
    _has_compiled = True  # unless it was interrupted: then who asks next waits for what is left


def _tell_terminal(done: int, total: int) -> None:
    _write(f"\r{WAITING}: {min(100, 100 * done // total)} %")


def _write(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


def load_soon() -> None:
    """Begins to bring it in, unless that was done."""
    global _has_begun
    if not _has_begun and is_wanted():
        _thread.start_new_thread(_load, ())  # the interpreter's own: see jit.threads
        _has_begun = True


def _load() -> None:
    try:
        # Others import this later, when it may be too late: it cannot be imported any more when the interpreter ends.
        import concurrent.futures.thread  # noqa: F401

        if not _ends.wait(A_MOMENT) and _wait_for_compiler():
            _run_steps()
    except Exception:
        if not _is_ending():
            log.warning("the compiled engine cannot be loaded; matching goes on in plain Python", exc_info=True)


def _run_steps() -> None:
    """Imports everything and runs it once, unless the interpreter ends."""
    with _importing:
        for module in STEPS:
            if _is_ending():
                return
            import_alone(module)
        from dibs.warming.sample import run_once

        if run_once(_is_ending):
            load()


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


def _end() -> None:
    """When the interpreter ends: neither an import nor a kernel must be cut off in the middle."""
    _ends.set()
    hold(_importing)
    _importing.release()


def _begin_again_in_a_child() -> None:
    global _importing, _ends, _has_begun
    _importing, _ends, _has_begun = threading.RLock(), threading.Event(), False


atexit.register(_end)
hold_while_forking(lambda: _importing)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_again_in_a_child)
