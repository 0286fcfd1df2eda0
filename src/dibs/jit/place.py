"""Where compiled kernels lie: the cache's folder, who may use it, and what goes.

    $NUMBA_CACHE_DIR, $DIBS_CACHE, or $XDG_CACHE_HOME/dibs (~/.cache/dibs): the first that is set and can be written
    else a folder of this user among the temporary files

In it each module with kernels has a folder for each stamp (jit.stamps), so several versions of Dibs, several clones and
several Pythons share it without disturbing each other. Nothing here imports Numba.
"""

from __future__ import annotations

import os
import shutil
import stat
import sys
import tempfile
import time
from functools import cache
from pathlib import Path

UNUSED = 14 * 86_400  # seconds after which a folder of another stamp goes
A_DAY = 86_400


def cache_folder() -> Path:
    """The folder of the cache, which is there and can be written."""
    names = ("NUMBA_CACHE_DIR", "DIBS_CACHE", "XDG_CACHE_HOME")
    return _folder(*(os.environ.get(name, "") for name in names))


@cache
def _folder(numba: str, own: str, xdg: str) -> Path:
    home = Path(xdg) if os.path.isabs(xdg) else Path(os.path.expanduser("~"), ".cache")
    for folder in (numba, own):
        if folder and _is_writable(Path(folder)):
            return Path(os.path.abspath(folder))
    if home.is_absolute() and _is_writable(home / "dibs"):
        return home / "dibs"
    return _temporary()


def _is_writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return False
    return True


def _temporary() -> Path:
    """What is loaded from the cache is run, so it must be nobody else's folder."""
    user = os.getuid() if hasattr(os, "getuid") else os.environ.get("USERNAME", "user")
    folder = Path(tempfile.gettempdir(), f"dibs-cache-{user}")
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
        if stat.S_ISDIR(found.st_mode) and (sys.platform == "win32" or found.st_uid == os.getuid()):
            if not found.st_mode & 0o022 and _is_writable(folder):
                return folder
    except OSError:
        pass
    return Path(tempfile.mkdtemp(prefix="dibs-cache-"))


@cache
def module_folder(root: Path, module: str, stamp: str) -> Path:
    """The folder of a module's kernels; it is marked as used now, and what nobody has used for long is cleared."""
    folder = root / folder_name(module, stamp)
    try:
        if time.time() - folder.stat().st_mtime > A_DAY:
            os.utime(folder)
    except OSError:
        folder.mkdir(parents=True, exist_ok=True)
        clear_unused(root, module)
    return folder


def folder_name(module: str, stamp: str) -> str:
    return f"{module.removeprefix('dibs.')}-{stamp[:16]}"


def clear_unused(root: Path, module: str) -> None:
    """Removes the module's folders of other stamps that have not been used of late."""
    long_ago = time.time() - UNUSED
    for folder in root.glob(f"{module.removeprefix('dibs.')}-*"):
        try:
            if folder.stat().st_mtime < long_ago:
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:
            pass  # another process was quicker
