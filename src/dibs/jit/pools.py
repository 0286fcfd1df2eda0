"""Pools of work space: the arrays that a kernel needs besides those of its structure, kept from call to call.

A kernel wants counters, slots or bits that are clean (all zero, say), and leaves them clean: that is cheaper than fresh
ones for every event. Several threads may match at once, so a space belongs to one call from `take` to `give`:

    taken = pool.take(make)
    kernel(..., *taken.space, ...)
    pool.give(taken)

An exception on the way (KeyboardInterrupt included) skips `give`, and that is right: such a space may not be clean, so
nobody gets it again. `forget` is for structures that grow: whatever was made before is too small and never comes back,
not even from a call that is under way. No locks: single operations on a list are atomic, and nothing else is asked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

Space = tuple[Any, ...]  # arrays, or groups of them


class Taken(NamedTuple):
    space: Space
    age: int  # how often its pool had forgotten all when it was made


class Pool:
    """Spaces that no call is using."""

    def __init__(self) -> None:
        self._idle: list[Taken] = []
        self._age = 0

    def take(self, make: Callable[..., Space], *sizes: Any) -> Taken:
        """An idle space or, if there is none, make(*sizes). (The pool does not keep `make`: a structure that is in its
        own pool would be freed late.)"""
        while True:
            try:
                taken = self._idle.pop()  # asking first whether there is one would leave time for another thread
            except IndexError:
                age = self._age
                return Taken(make(*sizes), age)
            if taken.age == self._age:
                return taken

    @property
    def idle(self) -> list[Space]:
        """The spaces that no call is using, for whoever adds up bytes."""
        return [taken.space for taken in list(self._idle)]

    def give(self, taken: Taken) -> None:
        """The space is clean again."""
        if taken.age == self._age:
            self._idle.append(taken)

    def forget(self) -> None:
        """Spaces of another size are needed from now on."""
        self._age += 1
        self._idle.clear()
