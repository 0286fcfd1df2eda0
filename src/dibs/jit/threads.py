"""Threads for one call: they share its items among themselves and end with it.

No pool stands between calls, so there is nothing that an interrupt could leave half done, nor a fork without its
threads. Starting a thread takes some 30 microseconds; a call that is worth several takes milliseconds.

The locks and threads are the interpreter's own (`_thread`): `threading.Event`, `Thread.start` and futures are Python
code round them, which a signal handler that raises can leave locked for ever.
"""

from __future__ import annotations

import _thread
import os
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


def share(work: Callable[[int], T], items: int, threads: int) -> list[T]:
    """[work(0), ..., work(items - 1)], computed by so many threads, of which the caller's is one. The first exception
    is raised, after all threads have ended."""
    results: list[Any] = [None] * items
    errors: list[BaseException] = []
    left = list(range(items - 1, -1, -1))  # popped from its end, one item at a time

    def run() -> None:
        try:
            while left:
                try:
                    item = left.pop()
                except IndexError:  # another thread took the last one
                    return
                results[item] = work(item)
        except BaseException as e:
            left.clear()
            errors.append(e)

    def help(ended: _thread.LockType) -> None:
        try:
            run()
        finally:
            ended.release()

    started: list[_thread.LockType] = []
    try:
        for _ in range(min(threads, items) - 1):
            ended = _thread.allocate_lock()
            ended.acquire()
            _thread.start_new_thread(help, (ended,))
            started.append(ended)
        run()
    finally:
        left.clear()  # after an interrupt: nobody begins another item
        for ended in started:
            ended.acquire()
    if errors:
        raise errors[0]
    return results


class AfterFork(Protocol):
    def reset_after_fork(self) -> None:
        """New locks: whoever held one when the process was forked is not here."""
        ...


_live: weakref.WeakSet[Any] = weakref.WeakSet()


def survive_forks(holder: AfterFork) -> None:
    """Has the holder of locks told when it wakes up in a forked child, which has no other thread."""
    _live.add(holder)


_held: list[Any] = []  # while the process is forked


def _wait_for_the_compiler() -> None:
    """What another thread is compiling is finished first: in a child, LLVM would be left in the middle of it."""
    from dibs.jit.forks import hold

    compiler: Any = getattr(sys.modules.get("numba.core.compiler_lock"), "global_compiler_lock", None)
    if compiler is not None and not compiler.is_locked():  # by this thread
        hold(compiler._lock)
        _held.append(compiler._lock)


def _let_the_compiler_go_on() -> None:
    while _held:
        _held.pop().release()


def _begin_again_in_a_child() -> None:
    _held.clear()
    compiler: Any = getattr(sys.modules.get("numba.core.compiler_lock"), "global_compiler_lock", None)
    library: Any = getattr(getattr(sys.modules.get("llvmlite.binding.ffi"), "lib", None), "_lock", None)
    for foreign in (compiler, library):  # another thread may have been compiling
        if hasattr(foreign, "_lock"):
            foreign._lock = threading.RLock()
    for holder in list(_live):
        holder.reset_after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_wait_for_the_compiler,
        after_in_parent=_let_the_compiler_go_on,
        after_in_child=_begin_again_in_a_child,
    )
