"""Subscriptions that change while a stream runs, on the driver: `now()` is a snapshot of their latest version.

    DurableFolder    what some process changes through Matcher.open: its saved segments, linked, and the news of its
                     catalog since
    SavedFolder      what Matcher.save or dibs compile writes, linked again when it is written again
    Compiled         what dibs.spark.compile writes, here or at a URL: its newest version, linked

Tables and topics become a durable folder of the stream's own first (feeds.py).
"""

from __future__ import annotations

import secrets
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from dibs.errors import FormatError, StorageError
from dibs.matcher import Matcher
from dibs.segments.state import Subscription
from dibs.spark.places import Place
from dibs.spark.snapshots import BASES, Snapshot, Step, write_step
from dibs.storage import store
from dibs.storage.catalog import Catalog
from dibs.storage.catalog_changes import News
from dibs.storage.manifest import Manifest, read_manifest
from dibs.storage.snapshot import take_snapshot, take_version
from dibs.tuning import tuned

CHANGES_SINCE_BASE = tuned("changes_since_base", 10_000, 1, "changes", "of a stream before newer segments are taken")
STEPS_SINCE_BASE = tuned("steps_since_base", 64, 1, "steps", "of such a snapshot before they are joined")

TRIES = 20  # while the writer saves and trims


class SubscriptionSource(Protocol):
    """Subscriptions that change."""

    def now(self) -> Snapshot:
        """The latest version, as files in the state folder."""

    def close(self) -> None: ...


class DurableFolder:
    def __init__(self, folder: Path, state: Path, known: Snapshot | None) -> None:
        """known: the snapshot to go on from, if it is one of this folder."""
        self._folder, self._state = folder, state
        self._catalog = Catalog.open(folder / store.CATALOG, read_only=True)
        ours = known is not None and known.source == self._catalog.identity and (state / BASES / known.base).is_dir()
        self._latest = known if ours else None

    def now(self) -> Snapshot:
        latest = self._latest
        news = None if latest is None else self._catalog.news(latest.version)
        if latest is None or news is None or self._is_due(latest):
            latest, news = self._new_base()
        if len(latest.steps) >= STEPS_SINCE_BASE.value:
            latest, news = self._join(latest)
        if news.version > latest.version:
            latest = replace(latest, steps=(*latest.steps, self._step(news)))
        self._latest = latest
        return latest

    def _is_due(self, latest: Snapshot) -> bool:
        """Whether there are many changes since the base, and segments that have them."""
        if latest.changes <= CHANGES_SINCE_BASE.value:
            return False
        try:
            return read_manifest(self._folder).version > latest.base_version
        except (FileNotFoundError, FormatError):
            return False

    def _join(self, latest: Snapshot) -> tuple[Snapshot, News]:
        """For one step in place of all since the base: what has become of an id may be told twice."""
        news = self._catalog.news(latest.base_version)
        return self._new_base() if news is None else (replace(latest, steps=()), news)

    def _new_base(self) -> tuple[Snapshot, News]:
        for _ in range(TRIES):
            name = f"base-{secrets.token_hex(8)}"
            manifest = take_snapshot(self._folder, self._state / BASES / name)
            version = self._compile(name) if manifest is None else manifest.version
            news = self._catalog.news(version)
            if news is not None:
                return Snapshot(self._catalog.identity, name, version), news
        raise StorageError(self._folder, "its writer saves faster than a snapshot can be taken: try again later")

    def _compile(self, name: str) -> int:
        """Makes a base of all that is in the catalog."""
        with Matcher.load(self._folder) as matcher:
            matcher.save(self._state / BASES / name)
        return read_manifest(self._state / BASES / name).version

    def _step(self, news: News) -> Step:
        changed = [Subscription(e.id, e.text, e.weight, e.version) for e in news.entries]
        return write_step(self._state, f"step-{secrets.token_hex(8)}", news.removed, changed, news.version)

    def close(self) -> None:
        self._catalog.close()


class SavedFolder:
    def __init__(self, folder: Path, state: Path) -> None:
        self._folder, self._state = folder, state
        self._latest: tuple[Manifest, Snapshot] | None = None

    def now(self) -> Snapshot:
        manifest = read_manifest(self._folder)
        if self._latest is None or self._latest[0] != manifest:
            name = f"base-{secrets.token_hex(8)}"
            taken = take_snapshot(self._folder, self._state / BASES / name)
            if taken is None:
                raise FormatError(f"{self._folder} holds no saved index any more: write one with Matcher.save")
            self._latest = taken, Snapshot(str(self._folder), name, taken.version)
        return self._latest[1]

    def close(self) -> None:
        pass


class Compiled:
    def __init__(self, place: Place, state: Path) -> None:
        self._place, self._state = place, state
        self._latest: Snapshot | None = None
        place.read()  # says so if there is no version

    def now(self) -> Snapshot:
        for _ in range(TRIES):
            version = self._place.read()
            if self._latest is not None and self._latest.base_version == version.version:
                return self._latest
            name = f"base-{secrets.token_hex(8)}"
            if take_version(self._place.fetch(version), version, self._state / BASES / name):
                self._latest = Snapshot(self._place.name, name, version.version)
                return self._latest
        raise StorageError(Path(self._place.name), "its versions are removed faster than one can be opened")

    def close(self) -> None:
        pass
