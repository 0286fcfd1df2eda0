"""Making an empty catalog: under another name first, so that the folder is there wholly or not at all. A catalog whose
file is missing, empty or without a transaction is damaged, and no mistake about that can make a new one of it.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import lmdb

from dibs.errors import StorageError
from dibs.storage.catalog_environment import DATA, allocate_lock, open_lmdb
from dibs.storage.catalog_records import ABOUT, CHANGES, STATE, SUBSCRIPTIONS, State, state_record


def create_catalog(folder: Path) -> None:
    """Makes an empty catalog in a folder that is missing or empty."""
    beside = f"{folder.name}.partial-"
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        for old in folder.parent.glob(f"{beside}*"):
            if not _is_running(old.name[len(beside) :]):
                shutil.rmtree(old, ignore_errors=True)
        partial = folder.with_name(f"{beside}{os.getpid()}")
        partial.mkdir()
        try:
            _write_empty(partial)
            try:
                os.rename(partial, folder)
            except OSError:
                if not (folder / DATA).exists():  # else somebody else was faster
                    raise
            _sync(folder.parent)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    except OSError as e:
        raise StorageError(folder, f"the catalog cannot be made ({e.strerror}): check permissions and room") from e


def _write_empty(folder: Path) -> None:
    allocate_lock(folder)
    try:
        with open_lmdb(folder) as env, env.begin(write=True) as txn:
            env.open_db(SUBSCRIPTIONS, txn)
            env.open_db(CHANGES, txn)
            about = env.open_db(ABOUT, txn)
            empty = State(os.urandom(16), txn.id(), *[0] * 7)
            txn.put(STATE, state_record(empty), db=about)
    except lmdb.Error as e:
        raise OSError(getattr(e, "code", 0), str(e)) from e
    _sync(folder)


def _sync(folder: Path) -> None:
    file = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _is_running(process: str) -> bool:
    try:
        os.kill(int(process), 0)
    except (ProcessLookupError, ValueError, OverflowError):
        return False
    except PermissionError:
        pass
    return True
