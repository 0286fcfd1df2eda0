"""The cache of compiled kernels: Numba's, at a place of ours (jit.place) and with stamps of ours (jit.stamps).

Numba keys what it compiled by the types of the arguments, the bytecode, the processor with its features and, in the
file's name, Python's version. To that come the stamp, which sees edited callees, and a file name without a line number
or a path of the source: what was compiled here is found by another machine with the same processor.

Processes share it. All writing is by renaming, and one process at a time adds to the index of a function; each piece of
code has a file name of its own, so an index never leads to another signature's code. What one process compiles, others
that need it wait for: a machine on which many begin at once compiles each kernel once.

It is only a cache: what is damaged there is compiled again, and what cannot be written is not kept.
"""

from __future__ import annotations

import hashlib
import os
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from typing import Any

from numba.core import event, serialize
from numba.core.caching import CompileResultCacheImpl, FunctionCache, IndexDataCacheFile, _CacheLocator
from numba.core.registry import CPUDispatcher

from dibs.jit.place import cache_folder, folder_name, module_folder
from dibs.jit.shipped import FOLDER as SHIPPED
from dibs.jit.shipped import shipped_level
from dibs.jit.stamps import stamp_of, stamp_of_file
from dibs.jit.undisturbed import stop_if_it_ends, undisturbed

try:
    import fcntl
except ImportError:  # Windows: a piece of code may be lost to another process, and is compiled again
    fcntl = None  # type: ignore[assignment]


PATIENCE = 60.0  # seconds to wait for another process, which may have stopped in the middle
A_MOMENT = 0.02  # seconds between two looks


class KernelLocator(_CacheLocator):  # type: ignore[misc]
    def __init__(self, function: Any, file: str):
        module = function.__module__
        self._py_file = file
        self._stamp = stamp_of(module) if module.startswith("dibs.") else stamp_of_file(file)
        self._folder = str(module_folder(cache_folder(), module, self._stamp))
        self.shipped = str(SHIPPED / folder_name(module, self._stamp))

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
        with suppress(OSError):
            os.makedirs(self._folder, exist_ok=True)


class _Implementation(CompileResultCacheImpl):  # type: ignore[misc]
    _locator_classes = (KernelLocator,)


class _File(IndexDataCacheFile):  # type: ignore[misc]
    """shipped: where the same kernel's code may lie that came with the package."""

    def __init__(self, folder: str, shipped: str, base: str, stamp: str):
        super().__init__(folder, base, stamp)
        self._shipped = _Shipped(shipped, base, stamp) if os.path.isdir(shipped) else None

    def load(self, key: Any) -> Any:
        # What is damaged may raise anything while it is unpickled.
        with suppress(Exception):
            found = super().load(key)
            if found is not None:
                return found
        return None if self._shipped is None else self._shipped.load(key)

    def save(self, key: Any, data: Any) -> None:
        with suppress(OSError), self._alone():  # a full disk, or somebody else's folder
            try:
                overloads = self._load_index()
            except Exception:
                overloads = {}
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


class _Shipped(IndexDataCacheFile):  # type: ignore[misc]
    """The code of one kernel that came with the package, for a level of processors (see jit.shipped)."""

    def load(self, key: Any) -> Any:
        level = shipped_level()
        if level is None:
            return None
        signature, (system, *_), function = key
        with suppress(Exception):
            return super().load((signature, (system, level.name, ""), function))
        return None


class _Turn:
    """To compile one kernel for one signature: only one process has it."""

    def __init__(self, path: str):
        self._path = path
        self._file: Any = None

    def take(self) -> None:
        """Waits for it, but not for ever: to compile twice is no mistake."""
        if fcntl is None:
            return
        try:
            file = open(self._path, "wb")
        except OSError:  # nothing can be kept there, so nobody waits for it
            return
        until = time.monotonic() + PATIENCE
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                if time.monotonic() > until:
                    file.close()
                    return
                time.sleep(A_MOMENT)
        self._file = file

    def give_back(self) -> None:
        if self._file is not None:
            try:
                os.unlink(self._path)  # whoever waits for it looks into the cache before it compiles
            except OSError:
                pass
            self._file.close()
            self._file = None


class KernelCache(FunctionCache):  # type: ignore[misc]
    _impl_class = _Implementation

    def __init__(self, function: Any):
        super().__init__(function)
        locator = self._impl.locator
        self._cache_file = _File(
            self._cache_path, locator.shipped, self._impl.filename_base, locator.get_source_stamp()
        )
        self._turns: dict[Any, _Turn] = {}

    # Numba asks for a signature, and saves it when it has compiled it, under its one lock for all compiling.

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        found = super().load_overload(sig, target_context)
        if found is None and sig not in self._turns:
            self._impl.locator.ensure_cache_path()
            name = hashlib.sha256(str(sig).encode()).hexdigest()[:12]
            turn = self._turns[sig] = _Turn(os.path.join(self._cache_path, f"{self._impl.filename_base}-{name}.lock"))
            turn.take()
            found = super().load_overload(sig, target_context)
            if found is not None:
                self.give_back(sig)
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            super().save_overload(sig, data)
        finally:
            self.give_back(sig)

    def give_back(self, sig: Any = None) -> None:
        """The turn of one signature, or of all."""
        for own in [sig] if sig is not None else list(self._turns):
            turn = self._turns.pop(own, None)
            if turn is not None:
                turn.give_back()


class _Unopened:
    """Stands for a dispatcher's cache until Numba asks for anything there, which it does under its one lock for all
    compiling. Most kernels are parts of others and are never asked for: to stamp them all, and to look for their
    files, would be a tenth of the time to import Dibs."""

    def __init__(self, dispatcher: Any):
        self._dispatcher = dispatcher

    def __getattr__(self, name: str) -> Any:
        opened = self._dispatcher._cache = KernelCache(self._dispatcher.py_func)
        return getattr(opened, name)


class Loaded(CPUDispatcher):  # type: ignore[misc]
    """A kernel. What Numba does in Python before the first call with arguments of new types is done where no interrupt
    reaches; for all other calls it is Numba's own dispatcher, which is not written in Python."""

    def _compile_for_args(self, *args: Any, **options: Any) -> Any:
        return self._undisturbed(partial(super()._compile_for_args, *args, **options))

    def typeof_pyval(self, value: Any) -> Any:
        return self._undisturbed(partial(super().typeof_pyval, value))

    def _search_new_conversions(self, *args: Any, **options: Any) -> Any:
        return self._undisturbed(partial(super()._search_new_conversions, *args, **options))

    def _undisturbed(self, work: Callable[[], Any]) -> Any:
        return undisturbed(work, (self.py_func.__module__,))


class _Ends(event.Listener):  # type: ignore[misc]
    """Told of each pass of the compiler."""

    def on_start(self, _: Any) -> None:
        stop_if_it_ends()

    def on_end(self, _: Any) -> None:
        pass


event.register("numba:run_pass", _Ends())

# A kernel that returns an array asks Numba for the class of arrays, by a function in Python, in the middle of making
# its result. An exception that a signal raises there comes out as a SystemError. What is remembered takes no Python.
serialize._numba_unpickle = lru_cache(maxsize=None)(serialize._numba_unpickle)


def keep_compiled(dispatcher: Any) -> Any:
    """Has Numba look for the compiled forms of a kernel in our cache and put them there, where no interrupt reaches."""
    if not isinstance(dispatcher, CPUDispatcher):  # with NUMBA_DISABLE_JIT kernels are plain functions
        return dispatcher
    dispatcher.__class__ = Loaded
    if os.path.isfile(dispatcher.py_func.__code__.co_filename):  # one that was typed in at a prompt has no source
        dispatcher._cache = _Unopened(dispatcher)
        compile = dispatcher._compiler.compile

        def compile_or_give_back(args: Any, return_type: Any) -> Any:
            try:
                return compile(args, return_type)
            except BaseException:
                dispatcher._cache.give_back()
                raise

        dispatcher._compiler.compile = compile_or_give_back
    return dispatcher
