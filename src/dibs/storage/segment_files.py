"""The files in the folder of a durable matcher: whether it is ours, and which file holds which segment."""

from __future__ import annotations

import os
import weakref
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dibs.errors import DamagedError, FormatError
from dibs.segments.layer import Layer
from dibs.segments.segment import Segment
from dibs.segments.tombstones import Tombstones
from dibs.storage import store, writer_lock
from dibs.storage.manifest import HEAD, Manifest, StoredSegment, read_manifest, removed_name, segment_name

OURS = ("segment-*.dibs*", "removed-*.dibs*", HEAD + ".*")


class SegmentFiles:
    """Names are never used again: a reader of an older manifest must find the file that it means, or none."""

    def __init__(self, folder: Path, manifest: Manifest | None):
        self.folder = folder
        self.next_number = max(store.next_file(folder), 0 if manifest is None else manifest.next_file)
        # How segments are saved, and with how many rows gone: while they live.
        self._stored: weakref.WeakKeyDictionary[Segment, tuple[StoredSegment, int]] = weakref.WeakKeyDictionary()

    def load(self, stored: StoredSegment, settings: dict[str, Any]) -> tuple[Segment, Tombstones]:
        """A segment, mapped into memory, and its rows that are gone."""
        segment = store.load(self.folder / stored.file, stored.head, settings)
        gone = np.empty(0, np.int64)
        if stored.removed is not None:
            gone = store.load_removed(self.folder / stored.removed, stored.removed_head)
        removed = Tombstones(len(segment)).including(gone)
        if not segment.is_renewed:
            self._stored[segment] = stored, removed.count
        return segment, removed

    def save(self, layer: Layer) -> StoredSegment:
        """Writes what is not in files yet; says where the layer is."""
        number, self.next_number = self.next_number, self.next_number + 1
        stored, gone = self._stored.get(layer.segment, (None, 0))
        if stored is None:
            file = segment_name(number)
            head = store.save(layer.segment, self.folder / file)
            stored, gone = StoredSegment(file, len(layer.segment), None, head), 0
        if layer.gone.count != gone:
            file = removed_name(number)
            head = store.save_removed(layer.gone.list_rows(), self.folder / file)
            stored = replace(stored, removed=file, removed_head=head)
        self._stored[layer.segment] = stored, layer.gone.count
        return stored

    def remove_others(self, manifest: Manifest) -> None:
        """Files that the manifest does not name, left behind by an earlier one or by a crash."""
        named = {name for s in manifest.segments for name in (s.file, s.removed)}
        for pattern in OURS:
            for path in self.folder.glob(pattern):
                if path.name not in named:
                    with suppress(OSError):  # it means nothing, and will be tried again
                        path.unlink()

    def count_bytes(self) -> int:
        sizes = []
        for path in self.folder.glob("*.dibs"):
            with suppress(FileNotFoundError):  # the writer has removed it just now
                sizes.append(path.stat().st_size)
        return sum(sizes)


def check_ours(folder: Path) -> None:
    """Refuses a folder that holds something else."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise FormatError(f"{folder} is a file: give a folder for a durable matcher")
    names = {n for n in os.listdir(folder) if n != writer_lock.NAME and not n.startswith(store.CATALOG + ".partial")}
    if not names or store.CATALOG in names:
        return
    if HEAD in names:
        try:
            durable = read_manifest(folder).identity != ""
        except FormatError:
            durable = False
        if durable:
            raise DamagedError(folder, f"the folder {store.CATALOG} is missing; put it back from a backup")
        raise FormatError(f"{folder} holds a saved index: read it with Matcher.load, or open another folder")
    raise FormatError(f"{folder} exists and holds something else ({min(names)}...): give a new or empty folder")
