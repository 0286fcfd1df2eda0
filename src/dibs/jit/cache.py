"""The cache of compiled kernels: Numba's, at a place of ours (jit.place) and with stamps of ours (jit.stamps).

Numba keys what it compiled by the types of the arguments, the bytecode, the processor with its features and, in the
file's name, Python's version. To that come the stamp, which sees edited callees, and a file name without a line number
or a path of the source: what was compiled here is found by another machine with the same processor.

Processes share it. All writing is by renaming, and one process at a time adds to the index of a function; each piece of
code has a file name of its own, so an index never leads to another signature's code.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from numba.core.caching import CompileResultCacheImpl, FunctionCache, IndexDataCacheFile, _CacheLocator

from dibs.jit.place import cache_folder, module_folder
from dibs.jit.stamps import stamp_of, stamp_of_file

try:
    import fcntl
except ImportError:  # Windows: a piece of code may be lost to another process, and is compiled again
    fcntl = None  # type: ignore[assignment]


class KernelLocator(_CacheLocator):  # type: ignore[misc]
    def __init__(self, function: Any, file: str):
        module = function.__module__
        self._py_file = file
        self._stamp = stamp_of(module) if module.startswith("dibs.") else stamp_of_file(file)
        self._folder = str(module_folder(cache_folder(), module, self._stamp))

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> KernelLocator | None:
        return cls(py_func, py_file)

    def get_cache_path(self) -> str:
        return self._folder

    def get_source_stamp(self) -> str:
        return self._stamp

    def get_disambiguator(self) -> str:
        return "1"  # no two kernels of a module have one name

    def ensure_cache_path(self) -> None:
        os.makedirs(self._folder, exist_ok=True)


class _Implementation(CompileResultCacheImpl):  # type: ignore[misc]
    _locator_classes = (KernelLocator,)


class _File(IndexDataCacheFile):  # type: ignore[misc]
    def save(self, key: Any, data: Any) -> None:
        with self._alone():
            overloads = self._load_index()
            name = self._data_name_pattern.replace("{number:d}", uuid.uuid4().hex[:12])
            self._save_data(name, data)
            overloads[key] = name
            self._save_index(overloads)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        if fcntl is None:
            yield
            return
        with open(os.path.join(self._cache_path, "lock"), "wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # let go when the file is closed
            yield


class KernelCache(FunctionCache):  # type: ignore[misc]
    _impl_class = _Implementation

    def __init__(self, function: Any):
        super().__init__(function)
        self._cache_file = _File(self._cache_path, self._impl.filename_base, self._impl.locator.get_source_stamp())


def keep_compiled(dispatcher: Any) -> Any:
    """Has Numba look for the compiled forms of a kernel in our cache, and put them there."""
    # With NUMBA_DISABLE_JIT kernels are plain functions; and one that was typed in at a prompt has no source.
    if hasattr(dispatcher, "enable_caching") and os.path.isfile(dispatcher.py_func.__code__.co_filename):
        dispatcher._cache = KernelCache(dispatcher.py_func)
    return dispatcher
