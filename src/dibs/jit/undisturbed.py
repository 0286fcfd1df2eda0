"""Work that no signal's exception may reach: compiling and loading kernels, and importing what does so.

What a signal handler raises (Ctrl-C, a timeout's SIGALRM) Python raises in the main thread, between any two of its
steps. Numba and LLVM do not survive that in the middle of a load: memory is freed twice, or every later load fails; and
an import that is cut off leaves half a module. So the main thread has such work done by a thread of its own and waits
for it. An interrupt ends the waiting, never the work; who needs it next waits for it again. Other threads, which no
signal reaches, do it themselves.

At most one such thread works at a time. A fork waits for it, because in a child it would never end; and so does the end
of the interpreter, because LLVM cut off takes the process with it. A compiler at work is stopped then, where one of its
passes ends.

Nothing here imports Numba.
"""

from __future__ import annotations

import _thread
import atexit
import sys
import threading
import weakref
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any, Generic, TypeVar

from dibs.jit.forks import hold, hold_while_forking
from dibs.jit.threads import survive_forks

A_WHILE = 1.0  # seconds between two looks whether the work is done; it wakes who waits anyway
T = TypeVar("T")


class Ending(BaseException):
    """Stops the compiler when the interpreter ends. Nobody waits for what it compiles any more."""


class _Life:
    """Held by a thread alone. It is gone where the thread could not even begin to work, for want of memory."""


class _Work(Generic[T]):
    """Done by a thread of its own. Whoever is interrupted while waiting leaves nothing behind."""

    def __init__(self, work: Callable[[], T]):
        self._work: Callable[[], T] | None = work
        self._result: T | None = None
        self._error: BaseException | None = None
        self._is_done = False  # set before `_ended` is let go, and looked at before that is waited for
        self._ended = _thread.allocate_lock()
        self._ended.acquire()
        self._life: weakref.ref[_Life] | None = None

    def start(self) -> None:
        life = _Life()
        self._life = weakref.ref(life)
        _thread.start_new_thread(self.run, (life,))

    def run(self, life: _Life) -> None:
        try:
            assert self._work is not None
            with _loader.turn:
                _loader.begin(self)
                try:
                    self._result = self._work()
                finally:
                    _loader.under_way = None
        except BaseException as e:
            self._error = e
        finally:
            self._work = None  # what it holds is let go here, not by the main thread
            self._is_done = True
            self._ended.release()

    def wait(self) -> None:
        while not self._is_done:
            self._ended.acquire(timeout=A_WHILE)
            is_gone = self._life is not None and self._life() is None
            if is_gone and not self._is_done:
                raise MemoryError("there is no memory for a thread to work in")

    def outcome(self) -> T:
        error, self._error = self._error, None
        if error is not None:
            try:
                raise error
            finally:
                del error  # which leads here by its traceback
        return self._result  # type: ignore[return-value]


class _Loader:
    """The thread that works, if there is one."""

    def __init__(self) -> None:
        self.turn = threading.RLock()  # of whoever works, or imports
        self.under_way: _Work[Any] | None = None
        self.thread = 0  # that works, or worked last
        self.ends = False

    def begin(self, work: _Work[Any]) -> None:
        if self.ends:
            raise Ending
        self.under_way, self.thread = work, _thread.get_ident()

    def reset_after_fork(self) -> None:
        self.turn, self.under_way = threading.RLock(), None


_loader = _Loader()
survive_forks(_loader)
hold_while_forking(lambda: _loader.turn)


def undisturbed(work: Callable[[], T], modules: tuple[str, ...] = ()) -> T:
    """work(), where no signal's exception reaches it. modules: others than Dibs' own that the work may import."""
    if not _is_reached() or _is_importing(modules):
        return work()
    before = _loader.under_way
    if before is not None:  # what an interrupted call has left
        before.wait()
    own = _Work(work)
    try:
        own.start()
    except RuntimeError:  # no more threads: there are too many, or the interpreter ends
        return work()
    own.wait()
    return own.outcome()


def bring(name: str) -> ModuleType:
    """The module of that name, imported where no signal's exception reaches."""
    found = sys.modules.get(name)
    if found is not None and not getattr(found.__spec__, "_initializing", False):
        return found
    return undisturbed(lambda: import_alone(name))


def import_alone(name: str) -> ModuleType:
    """Imports it while no other thread imports this way. Numba's modules import each other in circles: two threads that
    begin at different ones get half a module each."""
    if _is_importing(()):
        return import_module(name)
    with _loader.turn:
        return import_module(name)


def _is_reached() -> bool:
    """Whether signals' exceptions reach this thread, in which nothing is being compiled yet."""
    if _loader.ends or _thread.get_ident() != threading.main_thread().ident:
        return False
    compiler: Any = sys.modules.get("numba.core.compiler_lock")
    lock = getattr(compiler, "global_compiler_lock", None)
    return lock is None or not lock.is_locked()  # by this thread


def _is_importing(modules: tuple[str, ...]) -> bool:
    """Whether this thread is importing one of Dibs' modules, or of these: another thread that imports it would wait
    for this one, and this one for the other."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "<module>":
            name = frame.f_globals.get("__name__", "")
            if name.startswith("dibs.") or name in modules:
                return True
        frame = frame.f_back
    return False


def stop_if_it_ends() -> None:
    """For the compiler, between its passes."""
    if _loader.ends and _loader.under_way is not None and _thread.get_ident() == _loader.thread:
        raise Ending


@atexit.register
def _end() -> None:
    """Waits for what is under way, and nothing begins any more."""
    _loader.ends = True
    hold(_loader.turn)
    _loader.turn.release()
