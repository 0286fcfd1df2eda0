"""Snapshots of a durable folder, or of a version of compiled subscriptions: its segments as they are saved now, kept
for somebody who needs this very state later.

Files of segments never change, so a snapshot is another name for each (a hard link; a copy where the filesystem has
none), and costs no room as long as the folder has them too. It is a folder that Matcher.load opens. What has changed
in a durable folder since the segments were saved is in the catalog: `Catalog.news(manifest.version)`.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path

from dibs.errors import DamagedError
from dibs.storage.files import PARTIAL, storage_error, sync_folder
from dibs.storage.manifest import Manifest, read_manifest, read_types, write_manifest
from dibs.storage.versions import Version, write_version

TRIES = 20  # while the writer swaps manifests


def take_snapshot(folder: Path, target: Path) -> Manifest | None:
    """Makes `target` a snapshot of the durable folder, wholly or not at all. None: no segments are saved there, or what
    is saved cannot be read (the catalog has it all)."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        for _ in range(TRIES):
            try:
                manifest = read_manifest(folder)
            except (FileNotFoundError, DamagedError):
                return None
            names = [name for s in manifest.segments for name in (s.file, s.removed) if name is not None]
            types = dict(read_types(folder)) or manifest.types
            finish = partial(write_manifest, manifest=replace(manifest, identity="", types=types))
            if _link_all(folder, names, target, finish):
                return manifest
    except OSError as e:
        raise storage_error(target, e) from e
    return None


def take_version(folder: Path, version: Version, target: Path) -> bool:
    """Makes `target` a folder with this version alone, wholly or not at all. False: its files are gone."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        return _link_all(folder, version.files(), target, lambda beside: write_version(beside, version))
    except OSError as e:
        raise storage_error(target, e) from e


def _link_all(folder: Path, names: Iterable[str], target: Path, finish: Callable[[Path], None]) -> bool:
    """Whether all files were still there. finish: writes what names them."""
    beside = target.with_name(f"{target.name}{PARTIAL}-{secrets.token_hex(4)}")
    beside.mkdir()
    try:
        for name in names:
            (beside / name).parent.mkdir(exist_ok=True)
            _link(folder / name, beside / name)
        finish(beside)
        sync_folder(beside)
        os.replace(beside, target)
    except FileNotFoundError:  # the writer has saved, or removed the version, meanwhile
        shutil.rmtree(beside, ignore_errors=True)
        return False
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise
    sync_folder(target.parent)
    return True


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:  # another filesystem, or one without links
        shutil.copyfile(source, target)
        descriptor = os.open(target, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
