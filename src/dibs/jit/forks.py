"""What a fork waits for: work of other threads that in a child, where they are not, would never end.

An exception that a signal raises before a fork, or while the interpreter ends, Python drops, and goes on. So locks are
taken there in spite of interrupts (`hold`), and an interrupt of a fork comes after it.

What was registered last Python does first. So what has locks that the awaited work may need, and holds them while the
process is forked, is registered before: the compiler's (jit.threads), and those of logging.
"""

from __future__ import annotations

import _thread
import logging  # noqa: F401
import os
import time
from collections.abc import Callable
from typing import Any

import dibs.jit.threads  # noqa: F401

A_MOMENT = 0.01  # seconds, after which the fork has returned: before, Python would drop the exception again

_awaited: list[Callable[[], Any]] = []  # finds the lock, which is another one in a child
_held: list[Any] = []  # while the process is forked
_interrupts: list[BaseException] = []


def hold(lock: Any) -> BaseException | None:
    """Takes the lock (an RLock) in spite of interrupts, and returns the latest of them."""
    interrupt = None
    while True:
        try:
            while not lock._is_owned():
                lock.acquire()
            return interrupt
        except BaseException as e:  # perhaps after the lock was taken
            interrupt = e


def hold_while_forking(find: Callable[[], Any]) -> None:
    """Has a fork wait for a lock (an RLock), before those that were named earlier: whoever holds it may take those."""
    _awaited.insert(0, find)


def _hold_all() -> None:
    for find in _awaited:
        lock = find()
        if not lock._is_owned():
            interrupt = hold(lock)
            _held.append(lock)
            if interrupt is not None:
                _interrupts.append(interrupt)


def _let_go() -> None:
    while _held:
        _held.pop().release()
    while _interrupts:
        interrupt = _interrupts.pop()
        if not isinstance(interrupt, KeyboardInterrupt):
            raise interrupt  # which Python prints
        _thread.start_new_thread(_interrupt_again, ())


def _interrupt_again() -> None:
    time.sleep(A_MOMENT)
    _thread.interrupt_main()


def _begin_again_in_a_child() -> None:
    _held.clear()
    _interrupts.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_hold_all, after_in_parent=_let_go, after_in_child=_begin_again_in_a_child)
