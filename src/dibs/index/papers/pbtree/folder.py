"""Where the pages of a PB+tree lie on disk: a file in a folder of its own, with the files that entries are sorted in.

The index is a cache of what its segment knows, so nothing is synced and nothing has a checksum (what is saved has one:
storage.files); the folder goes when the index goes, or at exit. Its process holds a lock on it: folders that nobody
holds are those of processes that were killed, and the next one to make a folder there removes them.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from dibs.errors import StorageError

PREFIX = "dibs-pages-"
PAGES = "pages"
_ADVICE = "make room there, or give a folder on a larger disk (folder=..., or the environment variable TMPDIR)"


class Folder:
    def __init__(self, above: str | None = None):
        """above: where it is made, if not where temporary files are."""
        above = above or tempfile.gettempdir()
        try:
            _remove_abandoned(above)
            self.path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=above))
            held = os.open(self.path, os.O_RDONLY)
            fcntl.flock(held, fcntl.LOCK_SH)
        except OSError as e:
            raise StorageError(above, f"no folder for the pages can be made there ({e.strerror}): {_ADVICE}") from None
        self.close = weakref.finalize(self, _remove, str(self.path), held, os.getpid())

    @property
    def pages(self) -> Path:
        return self.path / PAGES

    @contextmanager
    def writing(self, more: int) -> Iterator[None]:
        """What fails while files are written here; more: bytes that are still to be written, about."""
        try:
            yield
        except OSError as e:
            try:
                free = f"{shutil.disk_usage(self.path).free:,} bytes are free"
            except OSError:
                free = "it is gone"
            reason = e.strerror or str(e)
            message = f"the pages of the index cannot be written ({reason}); {free}, about {more:,} more are needed"
            raise StorageError(self.path, f"{message}: {_ADVICE}") from e


def _remove(folder: str, held: int, process: int) -> None:
    if os.getpid() == process:  # a forked child has the object, but the folder is not its own
        shutil.rmtree(folder, ignore_errors=True)
    os.close(held)


@cache
def _remove_abandoned(above: str) -> None:
    """Once for each process and place. A folder of the last minute may be one whose lock is just being taken."""
    for folder in Path(above).glob(f"{PREFIX}*"):
        with suppress(OSError):
            if time.time() - folder.stat().st_mtime < 60:
                continue
            held = os.open(folder, os.O_RDONLY)
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(held)
