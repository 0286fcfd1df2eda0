"""A property that is computed once, without a lock.

functools.cached_property holds a lock (before Python 3.12) while it computes, one for all instances: threads wait for
each other, and a process that is forked meanwhile waits for ever. Here two threads may compute the same value; one of
them stays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class lazy(Generic[T]):
    def __init__(self, compute: Callable[[Any], T]):
        self._compute = compute
        self._name = compute.__name__
        self.__doc__ = compute.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> lazy[T]: ...

    @overload
    def __get__(self, instance: object, owner: type) -> T: ...

    def __get__(self, instance: object | None, owner: type) -> lazy[T] | T:
        if instance is None:
            return self
        value = instance.__dict__[self._name] = self._compute(instance)  # found there from now on
        return value
