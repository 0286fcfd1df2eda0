"""Durable: the folder of a matcher that survives its process.

    catalog/             the truth: every subscription, recent removals and the history, in SQLite (storage.catalog)
    index.dibs           the manifest: which segments there are, and the version up to which they hold all changes
    segment-*.dibs       compiled subscriptions, each file written once
    removed-*.dibs       rows that are gone from a segment
    writer.lock          held by the one writer

A change is durable when the catalog has committed it. Segments follow later: in the background they are saved, the
manifest is swapped, older removals are forgotten and files that no manifest names are removed. So opening means: map
the segments of the manifest, then apply what the catalog has since. Segments that are missing or damaged are compiled
again from the catalog. Only a damaged catalog cannot be mended here, and is refused.

Readers in other processes look at the catalog's stamp before each match and apply what is new. A file
that is removed while a reader has it mapped stays readable to it; one that goes between reading the manifest and
mapping makes the reader take the newer manifest.
"""

from __future__ import annotations

import math
import os
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dibs.errors import DamagedError, FormatError, RecoveryWarning, StorageError
from dibs.index import AUTO
from dibs.segments.compile import compile_texts
from dibs.segments.ids import Id
from dibs.segments.layer import Layer
from dibs.segments.segment import DEFAULT_WEIGHT, Segment, build, merge
from dibs.segments.segment_set import SCANNED_ROWS, SegmentSet
from dibs.segments.state import State, Subscription, Waiting
from dibs.segments.upkeep import Job
from dibs.storage import store
from dibs.storage.catalog import Catalog
from dibs.storage.catalog_rows import CatalogColumns
from dibs.storage.documents import HistoryChange, HistoryNews
from dibs.storage.manifest import HEAD, Manifest, StoredSegment, read_manifest, write_manifest
from dibs.storage.older import OlderLanguage
from dibs.storage.segment_files import SegmentFiles, check_ours
from dibs.storage.writer_lock import WriterLock
from dibs.tuning import tuned

UNSAVED_CHANGES = tuned("unsaved_changes", 20_000, 3, "changes", "that are not in saved segments before they are saved")
UNSAVED_ON_CLOSING = tuned("unsaved_on_closing", 1_000, 1, "changes", "the same on closing")

TRIES = 20  # of a reader, while the writer swaps manifests


class _UnreadableManifest(Exception):
    """A manifest that is damaged itself (not one that tells of damage elsewhere)."""


class Follower(Protocol):
    """A history that is brought to the state of the catalog."""

    def read_position(self) -> tuple[int, int]:
        """The last change, and the number of the next document."""

    def take(self, news: HistoryNews) -> None: ...


class Durable:
    def __init__(
        self,
        folder: Path,
        read_only: bool,
        catalog: Catalog,
        lock: WriterLock | None,
        index: str | None,
        options: Any = None,
    ):
        """index, options: that are asked for; by default those of the folder."""
        self.folder, self.read_only, self.catalog = folder, read_only, catalog
        self._lock = lock
        self._pid = os.getpid()
        self._saving = threading.Lock()  # one checkpoint at a time
        self._following = threading.Lock()
        self._seen: tuple[int, ...] = ()  # the catalog's stamp up to which a reader has followed
        self.history: weakref.ref[Follower] | None = None
        self._manifest: Manifest | None = None
        self._damage = ""
        self._unsaved = False  # segments were compiled on opening
        self.is_closed = False
        try:
            self._manifest = self._read_manifest()
        except _UnreadableManifest as e:
            self._damage = str(e)
        self._files = SegmentFiles(folder, self._manifest)
        own = (self._manifest.index, self._manifest.options) if self._manifest else store.index_of(folder) or (AUTO, {})
        self.index = index or own[0]
        self.options = options if options is not None else own[1] if self.index == own[0] else {}

    @classmethod
    def open(cls, folder: Path, read_only: bool, index: str | None, options: Any = None) -> Durable:
        lock = None
        if read_only:
            if not store.is_durable(folder):
                raise FormatError(f"{folder} holds no durable matcher; make one with Matcher.open without read_only")
        else:
            check_ours(folder)
            lock = WriterLock(folder)
        try:
            check_ours(folder)
            new = not read_only and not store.is_durable(folder)
            catalog = Catalog.open(folder / store.CATALOG, read_only=read_only, create=new)
            try:
                return cls(folder, read_only, catalog, lock, index, options)
            except BaseException:
                catalog.close()
                raise
        except BaseException:
            if lock is not None:
                lock.release()
            raise

    # ---- opening ----

    def _read_manifest(self) -> Manifest | None:
        """None: there is none yet. _UnreadableManifest: segments can be rebuilt without it."""
        try:
            manifest = read_manifest(self.folder)
        except FileNotFoundError:
            return None
        except DamagedError as e:
            raise _UnreadableManifest(str(e)) from None
        if manifest.identity != self.catalog.identity:
            raise FormatError(
                f"{self.folder} mixes two matchers: {HEAD} belongs to another catalog than {store.CATALOG}; put both "
                "back as they were, from one backup"
            )
        if manifest.version > self.catalog.version:
            raise DamagedError(
                self.folder / store.CATALOG,
                f"it ends at version {self.catalog.version:,}, the saved segments at {manifest.version:,}, so changes "
                "are missing from it; put back folder and catalog from one backup",
            )
        return manifest

    def restore(self, layers: SegmentSet) -> None:
        """Fills the layers with what is in the folder."""
        layers.restore(self._restore_saved(layers) or self._compile_all(layers))
        self.catch_up(layers)
        version, count = self.catalog.count()
        if version == layers.state.version and count != len(layers):  # a writer may have gone on meanwhile
            _tell(f"{self.folder}: its catalog holds {count:,} subscriptions, its segments {len(layers):,}", count)
            layers.restore(self._compile_all(layers))
            self.catch_up(layers)
        if not self.read_only:
            own, its = weakref.ref(self), weakref.ref(layers)  # the upkeep keeps nobody alive

            def next_checkpoint() -> Job | None:
                durable, layers = own(), its()
                return durable._next_checkpoint(layers) if durable is not None and layers is not None else None

            layers.upkeep.sources.append(next_checkpoint)
            with self._saving:
                if self._manifest is None:
                    options = dict(layers.choice.options)
                    self._publish(Manifest(self.index, 0, self.catalog.identity, self._files.next_number, (), options))
                self._remove_files()
            layers.upkeep.wake()

    def _restore_saved(self, layers: SegmentSet) -> State | None:
        """The state of the manifest; None: its segments must be rebuilt, of which it warns."""
        damage = self._damage
        for _ in range(TRIES):
            manifest = self._manifest
            try:
                if manifest is None and not damage and self.catalog.trimmed == 0:
                    return State()
                if manifest is None:
                    damage = damage or f"{self.folder / HEAD} is missing"
                elif manifest.version < self.catalog.trimmed:
                    damage = f"{self.folder / HEAD} is older than the log of changes goes back"
                else:
                    found = tuple(self._layer(layers, manifest.index, s) for s in manifest.segments)
                    return State(manifest.version, found)
            except (DamagedError, OlderLanguage) as e:
                damage = str(e)
            except FileNotFoundError as e:
                damage = f"{e.filename} is missing"
            # A reader may have met the writer swapping manifests.
            try:
                newer = self._read_manifest() if self.read_only else manifest
            except _UnreadableManifest:
                break
            if newer == manifest:
                break
            self._manifest, damage = newer, ""
        _tell(damage, len(self.catalog))
        return None

    def _layer(self, layers: SegmentSet, manifest_index: str, stored: StoredSegment) -> Layer:
        settings = dict(layers.choice.settings) if manifest_index == layers.choice.name else {}
        segment, removed = self._files.load(stored, settings)
        self._unsaved |= segment.is_renewed
        if not layers.choice.is_of(segment.index) and len(segment) > SCANNED_ROWS.value:
            self._unsaved = True
            return Layer.of(merge([(segment, removed.find_kept())], layers.choice))
        return Layer(segment, removed)

    def _compile_all(self, layers: SegmentSet) -> State:
        """The state of everything in the catalog."""
        self._unsaved = True
        version, columns = self.catalog.columns()
        return State(version, tuple(Layer.of(self._compile(layers, c)) for c in columns if len(c.ids)))

    def _compile(self, layers: SegmentSet, columns: CatalogColumns) -> Segment:
        compiled = compile_texts(columns.texts, types=layers.types, are_kept=True)
        if compiled.errors:
            place, error = next(iter(compiled.errors.items()))
            raise FormatError(
                f"the catalog holds {len(compiled.errors):,} expressions that this version of Dibs does not accept; "
                f"the first is that of {columns.ids[place].as_py()!r}: {error}"
            )
        weights = None if (columns.weights == DEFAULT_WEIGHT).all() else columns.weights
        return build(compiled, columns.ids, columns.texts, weights, columns.versions, layers.choice)

    # ---- following the catalog ----

    def follow(self, layers: SegmentSet) -> None:
        """Applies what another process has written since; some microseconds when that is nothing."""
        stamp = self.catalog.stamp()
        if stamp != self._seen:
            with self._following:
                self.catch_up(layers)
                self._seen = stamp

    def catch_up(self, layers: SegmentSet) -> None:
        """Brings the layers and the history to the state of the catalog, both as of one moment."""
        history = None if self.history is None else self.history()
        change, end = (None, 0) if history is None else history.read_position()
        if self.catalog.version == layers.state.version and change in (None, self.catalog.change):
            return
        for _ in range(TRIES):
            version = layers.state.version
            news = self.catalog.news(version, change, end)
            if news is not None and not (self.read_only and news.version - version > UNSAVED_CHANGES.value):
                break
            # The log does not go back so far, or it is quicker to take the segments that the writer has saved.
            if not self._reload(layers) and news is not None:
                break
        else:
            raise StorageError(self.folder, "the writer saves and trims faster than it can be followed; open it again")
        assert news is not None
        if news.version != version:
            items = {e.id: Waiting(e.text, e.weight, e.version, None) for e in news.entries}
            layers.advance(news.removed, items, news.version)
        if news.history is not None and history is not None:
            history.take(news.history)

    def _reload(self, layers: SegmentSet) -> bool:
        """Takes the saved segments, if they are newer."""
        try:
            manifest = self._read_manifest()
        except _UnreadableManifest:
            manifest = None
        if manifest is None or manifest.version <= layers.state.version:
            return False
        self._manifest = manifest
        layers.restore(self._restore_saved(layers) or self._compile_all(layers))
        return True

    # ---- changing ----

    def write(self, changes: Iterable[tuple[Id, str | None, float]], first: int) -> None:
        self.check_process()
        self.catalog.write(changes, first)

    def write_columns(self, ids: pa.Array, texts: pa.Array, weights: NDArray[np.float64] | None, first: int) -> None:
        self.check_process()
        self.catalog.write_columns(ids, texts, weights, first)

    def write_history(self, change: HistoryChange) -> None:
        self.check_process()
        self.catalog.write_history(change)

    def check_process(self) -> None:
        """A forked child has no part in what its parent has open."""
        if os.getpid() != self._pid:
            raise StorageError(
                self.folder, "was opened before this process was forked; open it in the process that uses it"
            )

    def with_time(self, subscription: Subscription) -> Subscription:
        entry = self.catalog.get(subscription.id)
        if entry is None or entry.version != subscription.version:
            return subscription
        return subscription._replace(time=entry.time)

    # ---- saving segments ----

    def _next_checkpoint(self, layers: SegmentSet) -> Job | None:
        return (lambda: self.checkpoint(layers)) if self._behind(layers) > UNSAVED_CHANGES.value else None

    def _behind(self, layers: SegmentSet) -> float:
        """How many changes are not in saved segments."""
        saved = self._manifest.version if self._manifest else 0
        return math.inf if self._unsaved else layers.state.version - saved

    def checkpoint(self, layers: SegmentSet) -> None:
        """Saves what is not saved yet and swaps the manifest."""
        self.check_process()
        with self._saving:
            state = layers.flush()
            stored = tuple(map(self._files.save, state.layers))
            old = self._manifest
            name, options = layers.choice.name, dict(layers.choice.options)
            new = Manifest(name, state.version, self.catalog.identity, self._files.next_number, stored, options)
            if old is None or replace(new, next_file=old.next_file) != old:
                self._publish(new)
                self.catalog.trim(state.version)
                self._remove_files()
            self._unsaved = False

    def _publish(self, manifest: Manifest) -> None:
        write_manifest(self.folder, manifest)
        self._manifest = manifest

    def _remove_files(self) -> None:
        assert self._manifest is not None
        self._files.remove_others(self._manifest)

    def finish(self, layers: SegmentSet) -> None:
        """Before closing. What cannot be saved now is in the catalog, so that is no reason to fail."""
        if self.read_only or os.getpid() != self._pid:
            return
        if self._behind(layers) > UNSAVED_ON_CLOSING.value:
            try:
                layers.upkeep.run(lambda: self.checkpoint(layers))
            except StorageError as e:
                text = f"{e}; the changes are safe in the catalog and will be compiled on the next opening"
                warnings.warn(text, RecoveryWarning, stacklevel=4)

    def stats(self) -> dict[str, Any]:
        manifest = self._manifest
        return {
            "folder": str(self.folder),
            "identity": self.catalog.identity,
            "read only": self.read_only,
            "changes to replay": self.catalog.version - (manifest.version if manifest else 0),
            "segment files": 0 if manifest is None else len(manifest.segments),
            "segment bytes": self._files.count_bytes(),
            "catalog": self.catalog.sizes(),
        }

    def close(self) -> None:
        self.is_closed = True
        if os.getpid() == self._pid:  # a forked child has no part in it
            self.catalog.close()
            if self._lock is not None:
                self._lock.release()

    def __del__(self, is_ending: Callable[[], bool] = sys.is_finalizing) -> None:
        if hasattr(self, "_pid"):  # a matcher that nobody closed: the folder is free again
            try:
                self.catalog.let_go()
                self.close()
            except (AttributeError, TypeError):  # globals are None by then; the system frees the folder
                if not is_ending():
                    raise


def _tell(damage: str, count: int) -> None:
    text = f"{damage}; compiling all {count:,} subscriptions again from the catalog (nothing is lost)"
    warnings.warn(text, RecoveryWarning, stacklevel=5)
