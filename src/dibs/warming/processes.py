"""The parts of the workload in processes, as many at once as there are cores; then the note that all is there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from dibs.errors import DibsError
from dibs.jit.place import cache_folder
from dibs.jit.ready import is_ready, note, own_modules
from dibs.jit.stamps import kernel_modules, kernels_in
from dibs.jit.undisturbed import bring

try:
    import fcntl
except ImportError:  # Windows: two that warm at once wait for nothing
    fcntl = None  # type: ignore[assignment]

LAST = ("life", "past")
PARTS = (
    "wide masks",
    "coding",
    "small sizes",
    "masks of middle width",
    "narrow masks",
    "language",
    "records",
    "vectors",
)  # of dibs.warming.workload, which takes a second to import


class Warmed(NamedTuple):
    folder: Path
    bytes: int  # of everything that lies there
    compiled: int  # kernels, now
    seconds: float


def warm(
    everything: bool = False, processes: int | None = None, progress: Callable[[int], None] | None = None
) -> Warmed:
    """Compiles what `auto` needs, or everything: all structures. What is compiled already is only loaded. `progress` is
    told how many kernels are compiled. Raises DibsError if that fails."""
    begin = time.monotonic()
    with _alone():
        parts = [PARTS, LAST, _structures() if everything else []]
        count = _Count(progress)
        if everything or not is_ready():
            for together in parts:
                _run(list(together), processes or os.cpu_count() or 1, count)
            _write_note()
    folder = cache_folder()
    return Warmed(folder, size_of(folder), count.compiled, time.monotonic() - begin)


def guess_kernels(everything: bool = False) -> int:
    """About how many kernels there are to compile."""
    return kernels_in(kernel_modules() if everything else own_modules())


def size_of(folder: Path) -> int:
    """Bytes of the files below a folder, in which others may be writing, and from which they may take folders away."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += os.lstat(os.path.join(place, name)).st_size
    return total


class _Count:
    def __init__(self, progress: Callable[[int], None] | None):
        self.compiled = 0
        self._progress = progress
        self._lock = threading.Lock()

    def add(self) -> None:
        with self._lock:
            self.compiled += 1
            if self._progress is not None:
                self._progress(self.compiled)


def _structures() -> list[str]:
    index = bring("dibs.index")
    return [name for name in index.INDEXES if name != index.AUTO]


def _run(parts: list[str], processes: int, count: _Count) -> None:
    """Each part in a process of its own, so many at once. The first that fails ends all."""
    waiting, running = iter(parts), list[subprocess.Popen[bytes]]()
    problems: list[str] = []
    stopped = threading.Event()

    def work() -> None:
        for part in waiting:  # of all threads: asking first whether there is one would leave time for another thread
            if stopped.is_set():
                return
            with tempfile.TemporaryFile() as said:
                process = subprocess.Popen(
                    [sys.executable, "-m", "dibs.warming", part],
                    env=environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=said,
                )
                running.append(process)
                if stopped.is_set():
                    process.terminate()
                assert process.stdout is not None
                for _ in process.stdout:
                    count.add()
                if process.wait():
                    said.seek(0)
                    story = said.read().decode(errors="replace").strip() or f"exit code {process.returncode}"
                    problems.append(f"{part}: {story}")
                    stopped.set()

    threads = [threading.Thread(target=work, daemon=True) for _ in range(min(processes, len(parts)))]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        stopped.set()
        for process in running:
            if process.poll() is None:  # after an interrupt
                process.terminate()
    if problems:
        log = cache_folder() / "warming.log"
        log.write_text(problems[0], encoding="utf-8")
        last = problems[0].rpartition("\n")[2]
        raise DibsError(f"the kernels cannot be compiled: {last}; the whole story is in {log}")


def environment() -> dict[str, str]:
    """For a process that imports what this one does, and takes the usual paths."""
    own = {name: value for name, value in os.environ.items() if name != "DIBS_TUNING"}
    return own | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def _write_note() -> None:
    target = note()
    with tempfile.NamedTemporaryFile("w", dir=target.parent, suffix=".tmp", delete=False) as file:
        json.dump({"python": sys.version, "time": time.time()}, file)
    os.replace(file.name, target)


@contextmanager
def _alone() -> Iterator[None]:
    """Only one process warms a cache; the others find everything there when it is done."""
    if fcntl is None:
        yield
        return
    with open(cache_folder() / "warming.lock", "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
