"""Guard bytes round every NumPy array, looked at after each call of a kernel.

    with guarded() as guards:
        ...                      # GuardBroken names the kernel that wrote where it may not
    guards.called                # the kernels that Python has called meanwhile, by name

NumPy lets a process say how the data of arrays is allocated (NEP 49). Here each block lies in a chain with all others
and has GUARD bytes of a pattern before and behind it. Whoever writes there without an index (a vector, a pointer, an
address out of a table) is seen: when the block is freed, and after each call of a compiled function from Python, which
looks at the whole chain. What bounds checks see (NUMBA_BOUNDSCHECK=1) they see earlier and more exactly.

Not seen: memory that is not NumPy's (mapped files, Arrow's buffers; results that are usually Arrow's are NumPy's while
this is on), and what is written inside a block that holds many things, such as the words of a BE-Tree.
"""

from __future__ import annotations

import contextvars
import ctypes
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import dispatcher
from numba.extending import intrinsic
from numpy._core import _multiarray_umath

from dibs.jit import memory

GUARD = 64  # bytes on each side
HEADER = 64  # before them: next, previous, size
PATTERN = 0xA5
NEXT, PREVIOUS, SIZE = 0, 8, 16
# Of the state: the chain's first block, how many there are, how many were found broken, and the size of the last one.
FIRST, COUNT, BROKEN, BROKEN_SIZE, WORDS = 0, 8, 16, 24, 4

_libc = ctypes.CDLL(None)


def _plain(name: str, *arguments: Any) -> Any:
    """A function of the C library that takes and gives addresses as numbers."""
    function = getattr(_libc, name)
    function.argtypes, function.restype = arguments, ctypes.c_size_t
    return function


_size = ctypes.c_size_t
_malloc, _free = _plain("malloc", _size), _plain("free", _size)
_memset, _memcpy = _plain("memset", _size, ctypes.c_int, _size), _plain("memcpy", _size, _size, _size)
_memcmp = _plain("memcmp", _size, _size, _size)


@intrinsic
def _load(typingctx, address):
    def code(context, builder, signature, args):
        return builder.load(builder.inttoptr(args[0], ir.IntType(64).as_pointer()))

    return types.uint64(types.uint64), code


@intrinsic
def _store(typingctx, address, value):
    def code(context, builder, signature, args):
        builder.store(args[1], builder.inttoptr(args[0], ir.IntType(64).as_pointer()))
        return context.get_dummy_value()

    return types.void(types.uint64, types.uint64), code


# For as long as the process lives: arrays are freed after this module is gone.
STATE, GUARDS = _malloc(8 * WORDS), _malloc(GUARD)
ctypes.memset(STATE, 0, 8 * WORDS)
ctypes.memset(GUARDS, PATTERN, GUARD)
_state = (ctypes.c_uint64 * WORDS).from_address(STATE)


@numba.njit
def _chain(size):
    """A new block at the beginning of the chain: the address of its data, or 0."""
    block = np.uint64(_malloc(HEADER + 2 * GUARD + size))
    if block == 0:
        return np.uint64(0)
    first = _load(np.uint64(STATE + FIRST))
    _store(block + np.uint64(NEXT), first)
    _store(block + np.uint64(PREVIOUS), np.uint64(0))
    _store(block + np.uint64(SIZE), np.uint64(size))
    if first != 0:
        _store(first + np.uint64(PREVIOUS), block)
    _store(np.uint64(STATE + FIRST), block)
    _store(np.uint64(STATE + COUNT), _load(np.uint64(STATE + COUNT)) + np.uint64(1))
    data = block + np.uint64(HEADER + GUARD)
    _memset(data - np.uint64(GUARD), PATTERN, GUARD)
    _memset(data + np.uint64(size), PATTERN, GUARD)
    return data


@numba.njit
def _look(block):
    """Whether the guards of a block are whole; if not, that is noted, and they are again."""
    size = _load(block + np.uint64(SIZE))
    before = block + np.uint64(HEADER)
    behind = before + np.uint64(GUARD) + size
    if _memcmp(before, GUARDS, GUARD) == 0 and _memcmp(behind, GUARDS, GUARD) == 0:
        return True
    _store(np.uint64(STATE + BROKEN), _load(np.uint64(STATE + BROKEN)) + np.uint64(1))
    _store(np.uint64(STATE + BROKEN_SIZE), size)
    _memset(before, PATTERN, GUARD)
    _memset(behind, PATTERN, GUARD)
    return False


@numba.njit
def _unchain(data):
    block = np.uint64(data) - np.uint64(HEADER + GUARD)
    _look(block)
    after, before = _load(block + np.uint64(NEXT)), _load(block + np.uint64(PREVIOUS))
    if after != 0:
        _store(after + np.uint64(PREVIOUS), before)
    if before != 0:
        _store(before + np.uint64(NEXT), after)
    else:
        _store(np.uint64(STATE + FIRST), after)
    _store(np.uint64(STATE + COUNT), _load(np.uint64(STATE + COUNT)) - np.uint64(1))
    _free(block)


@numba.njit
def _look_at_all():
    block = _load(np.uint64(STATE + FIRST))
    while block != 0:
        _look(block)
        block = _load(block + np.uint64(NEXT))


_number = types.uintp


@numba.cfunc(_number(_number, _number))
def _allocate(context, size):
    return _chain(size)


@numba.cfunc(_number(_number, _number, _number))
def _allocate_zeros(context, count, size):
    data = _chain(count * size)
    if data != 0:
        _memset(data, 0, count * size)
    return data


@numba.cfunc(_number(_number, _number, _number))
def _reallocate(context, old, size):
    data = _chain(size)
    if data != 0 and old != 0:
        had = _load(np.uint64(old) - np.uint64(HEADER + GUARD) + np.uint64(SIZE))
        _memcpy(data, old, min(had, np.uint64(size)))
        _unchain(old)
    return data


@numba.cfunc(types.void(_number, _number, _number))
def _give_back(context, data, size):
    if data != 0:
        _unchain(data)


class _Handler(ctypes.Structure):
    """PyDataMem_Handler of NumPy's C interface."""

    _fields_ = (
        ("name", ctypes.c_char * 127),
        ("version", ctypes.c_uint8),
        ("context", ctypes.c_void_p),
        ("malloc", ctypes.c_void_p),
        ("calloc", ctypes.c_void_p),
        ("realloc", ctypes.c_void_p),
        ("free", ctypes.c_void_p),
    )


_functions = (_allocate, _allocate_zeros, _reallocate, _give_back)
_handler = _Handler(b"guarded", 1, None, *(f.address for f in _functions))
for _held in (_functions, _handler):
    # For ever: arrays keep the handler that they were made by, and some are freed when the modules are gone already.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_held))
_SET_HANDLER = 304  # its place in NumPy's table of functions


def _set_handler(capsule: Any) -> Any:
    """The handler that was in force before, as a capsule."""
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    table = ctypes.cast(pointer(_multiarray_umath._ARRAY_API, None), ctypes.POINTER(ctypes.c_void_p))
    return ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(table[_SET_HANDLER])(capsule)


def _capsule() -> Any:
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    return new(ctypes.addressof(_handler), b"mem_handler", None)


class GuardBroken(BaseException):
    """No Exception, so that nobody takes it for a failed kernel and goes another way."""


class Guards:
    """What was called, and what was found."""

    def __init__(self) -> None:
        self.called: Counter[str] = Counter()
        self.broken: list[str] = []

    @property
    def blocks(self) -> int:
        """Arrays that are guarded now."""
        return int(_state[COUNT // 8])

    def look(self, after: str) -> None:
        """At all guards; raises GuardBroken if one is not whole."""
        _look_at_all()
        count, size = int(_state[BROKEN // 8]), int(_state[BROKEN_SIZE // 8])
        if count:
            _state[BROKEN // 8] = 0
            self.broken.append(f"{after}: {count} array(s) overrun, one of them of {size} bytes")
            raise GuardBroken(self.broken[-1])


@contextmanager
def guarded() -> Iterator[Guards]:
    """Of all threads that begin meanwhile, and of this one."""
    guards, plain = Guards(), dispatcher.Dispatcher.__call__
    start, small = threading.Thread.start, memory._SMALL

    def call(self: Any, *arguments: Any, **named: Any) -> Any:
        function = self.py_func
        if not function.__module__.startswith("dibs."):
            return plain(self, *arguments, **named)
        name = f"{function.__module__}.{function.__name__}"
        guards.called[name] += 1
        result = plain(self, *arguments, **named)
        guards.look(name)
        return result

    def start_with_handler(thread: threading.Thread) -> None:
        run, context = thread.run, contextvars.copy_context()
        thread.run = lambda: context.run(run)  # type: ignore[method-assign]
        start(thread)

    _look_at_all()  # compiled now, not within a call
    before = _set_handler(_capsule())
    dispatcher.Dispatcher.__call__ = call
    threading.Thread.start = start_with_handler  # type: ignore[method-assign]
    memory._SMALL = 1 << 62
    try:
        yield guards
        guards.look("the end")
    finally:
        memory._SMALL = small
        threading.Thread.start = start  # type: ignore[method-assign]
        del dispatcher.Dispatcher.__call__
        _set_handler(before)
