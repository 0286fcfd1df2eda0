"""Snapshots of a durable folder: its segments as they are saved now, kept for somebody who needs this very state later.

Files of segments never change, so a snapshot is another name for each (a hard link; a copy where the filesystem has
none), and costs no room as long as the folder has them too. It is a folder that Matcher.load opens. What has changed
since the segments were saved is in the catalog: `Catalog.news(manifest.version)`.
"""

from __future__ import annotations

import os
import secrets
import shutil
from dataclasses import replace
from pathlib import Path

from dibs.errors import DamagedError
from dibs.storage.files import PARTIAL, storage_error, sync_folder
from dibs.storage.manifest import Manifest, read_manifest, write_manifest

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
            if _link_all(folder, manifest, target):
                return manifest
    except OSError as e:
        raise storage_error(target, e) from e
    return None


def _link_all(folder: Path, manifest: Manifest, target: Path) -> bool:
    """Whether all files were still there."""
    beside = target.with_name(f"{target.name}{PARTIAL}-{secrets.token_hex(4)}")
    beside.mkdir()
    try:
        for segment in manifest.segments:
            for name in filter(None, (segment.file, segment.removed)):
                _link(folder / name, beside / name)
        write_manifest(beside, replace(manifest, identity=""))
        sync_folder(beside)
        os.replace(beside, target)
    except FileNotFoundError:  # the writer has saved meanwhile
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
