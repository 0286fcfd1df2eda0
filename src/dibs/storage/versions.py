"""Versions of compiled subscriptions: a folder in which nothing that somebody may be using is ever changed.

    versions/000000000007.json   one version, whole: which segments count and which of their rows are gone
    segments/*.dibs              compiled subscriptions and rows that are gone; versions share them
    rejected/000000000007/       the subscriptions that version 7 refused, as Parquet files, if there are any

A version is one small file, written last and at once, so a reader finds a version whole or not at all. Its number only
grows; names of segment files are never used twice. A version that is there stays as it is until `remove_versions`.
The plain layout (files, relative names, no links) is the same on a disk and in an object store.
"""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dibs.errors import DamagedError, FormatError
from dibs.language.joins import paths_of, read_attributes
from dibs.language.printer import is_join
from dibs.language.scalars import asks_for_now
from dibs.language.table import Facet
from dibs.segments.layer import Layer
from dibs.segments.segment import Choice, Segment
from dibs.segments.state import State
from dibs.segments.tombstones import Tombstones
from dibs.storage import store
from dibs.storage.files import FORMAT, replace_file, storage_error
from dibs.storage.manifest import Manifest

VERSIONS, SEGMENTS, REJECTED = "versions", "segments", "rejected"
NUMBERS, STRINGS, TIMES = 1, 2, 4
NAME = re.compile(r"(\d{12})\.json")


@dataclass(frozen=True)
class VersionSegment:
    file: str  # relative to the folder
    rows: int  # those that are gone included
    head: int  # of the file: it must be that very file
    bytes: int
    shard: int = 0
    removed: str | None = None  # the file of the rows that are gone, if any are
    removed_head: int | None = None
    removed_rows: int = 0


@dataclass(frozen=True)
class Version:
    """What a reader has to know of one version, without opening a segment."""

    version: int
    index: str
    ids: str  # "int64", "string", or "mixed"
    weighted: bool
    kinds: dict[str, int] = field(hash=False)  # of the constants of each attribute that subscriptions mention: bits
    segments: tuple[VersionSegment, ...]
    rejected: int = 0
    # Of a sharded one: "routes", the expression of each shard that an event must satisfy for any subscription of the
    # shard to match; and what dibs.spark made them of.
    sharding: dict[str, Any] = field(default_factory=dict, hash=False)
    about: dict[str, Any] = field(default_factory=dict, hash=False)  # what made it: for people
    options: dict[str, Any] = field(default_factory=dict, hash=False)  # of the index, those that differ from defaults
    types: dict[str, str] = field(default_factory=dict, hash=False)  # of attributes, where they are declared

    @property
    def choice(self) -> Choice:
        return Choice(self.index, options=tuple(self.options.items()))

    @property
    def attributes(self) -> frozenset[str]:
        """Those of events that subscriptions read."""
        return paths_of(read_attributes(name for name in self.kinds if not is_join(name)))

    @property
    def asks_for_now(self) -> bool:
        """Whether some subscription speaks of the time of the match."""
        return any(map(asks_for_now, self.kinds))

    @property
    def joins(self) -> list[str]:
        """The joins over history that subscriptions mention, by the names of their attributes."""
        return [name for name in self.kinds if is_join(name)]

    @property
    def subscriptions(self) -> int:
        return sum(s.rows - s.removed_rows for s in self.segments)

    @property
    def fingerprint(self) -> str:
        """The same for the same content, wherever it lies."""
        files = [(s.file, s.head, s.removed_head) for s in self.segments]
        return blake2b(repr((FORMAT, files)).encode(), digest_size=16).hexdigest()

    @property
    def bytes(self) -> int:
        return sum(s.bytes for s in self.segments)

    @property
    def routes(self) -> list[str]:
        return self.sharding.get("routes", [])

    @property
    def shards(self) -> int:
        """How many there are; 1: it is not sharded."""
        return max(1, len(self.routes))

    def of_shard(self, shard: int | None) -> tuple[VersionSegment, ...]:
        """Its segments; None: all."""
        return self.segments if shard is None else tuple(s for s in self.segments if s.shard == shard)

    def files(self, shard: int | None = None) -> list[str]:
        return [name for s in self.of_shard(shard) for name in (s.file, s.removed) if name is not None]


def to_text(version: Version) -> str:
    fields = {**vars(version), "segments": [vars(segment) for segment in version.segments]}
    return json.dumps({"dibs": FORMAT, **fields})


def from_text(text: str | bytes, name: str) -> Version:
    """name: of the file, for messages."""
    try:
        fields = json.loads(text)
        if fields.pop("dibs") != FORMAT:
            raise FormatError(f"{name} was made by another version of Dibs: compile the subscriptions again")
        segments = tuple(VersionSegment(**s) for s in fields.pop("segments"))
        return Version(segments=segments, **fields)
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        raise DamagedError(Path(name), f"it makes no sense ({e}); compile the subscriptions again") from e


def version_name(number: int) -> str:
    return f"{VERSIONS}/{number:012d}.json"


def numbers_in(names: Collection[str]) -> list[int]:
    """The versions that files of these names are, the oldest first."""
    return sorted(int(found[1]) for name in names if (found := NAME.fullmatch(name)))


# ---- a folder of this machine ----


def is_versioned(folder: Path) -> bool:
    return (folder / VERSIONS).is_dir()


def list_versions(folder: Path) -> list[int]:
    """The numbers of all versions, the oldest first."""
    try:
        return numbers_in(os.listdir(folder / VERSIONS))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as e:
        raise storage_error(folder, e) from e


def read_version(folder: Path, number: int | None = None) -> Version:
    """A version; None: the latest."""
    there = list_versions(folder)
    if not there or (number is not None and number not in there):
        wanted = "" if number is None else f" of version {number:,}"
        found = f"it has the versions {', '.join(map(str, there[-5:]))}" if there else "make one: dibs.spark.compile"
        raise FormatError(f"{folder} holds no compiled subscriptions{wanted}; {found}")
    name = folder / version_name(there[-1] if number is None else number)
    return from_text(name.read_bytes(), str(name))


def write_version(folder: Path, version: Version) -> None:
    """Makes it a version of the folder, at once. Its files must be there already. Raises FormatError if there is such a
    version, which somebody else has made."""
    (folder / VERSIONS).mkdir(parents=True, exist_ok=True)
    partial = folder / VERSIONS / f"{secrets.token_hex(8)}.partial"
    target = folder / version_name(version.version)
    try:
        replace_file(partial, lambda file: _write(file, version))
        try:
            os.link(partial, target)  # fails where os.replace would write over
        except FileExistsError:
            raise refuse_taken(str(folder), version.version) from None
        finally:
            partial.unlink()
    except OSError as e:
        raise storage_error(folder, e) from e


def _write(file: Any, version: Version) -> None:
    file.write(to_text(version).encode())


def refuse_taken(folder: str, number: int) -> FormatError:
    return FormatError(
        f"somebody else has just written version {number:,} of {folder}, which has one writer at a time: try again"
    )


def of_saved(folder: Path, manifest: Manifest, segments: list[Segment]) -> Version:
    """What Matcher.save wrote, as a version. It stays what it is for as long as nothing is saved over it, and a reader
    notices that: the files are others then."""
    stored = tuple(VersionSegment(s.file, s.rows, s.head, (folder / s.file).stat().st_size) for s in manifest.segments)
    choice = Choice(manifest.index, options=tuple(manifest.options.items()))
    return describe(manifest.version, choice, stored, segments, manifest.types)


def describe(
    number: int,
    choice: Choice,
    stored: tuple[VersionSegment, ...],
    segments: list[Segment],
    declared: dict[str, str] | None = None,
) -> Version:
    """The version of stored segments, which are these."""
    types = {str(s.ids.ids.type) for s in segments}
    ids = "mixed" if len(types) > 1 else "int64" if types == {"int64"} else "string"
    kinds: dict[str, int] = {}
    for segment in segments:
        add_kinds(kinds, kinds_in(segment))
    weighted = any(s.weights is not None for s in segments)
    return Version(
        number, choice.name, ids, weighted, kinds, stored, options=dict(choice.options), types=declared or {}
    )


def kinds_in(segment: Segment) -> dict[str, int]:
    """Of which kinds the constants of each attribute are: NUMBERS, STRINGS, TIMES or several of them."""
    d, result = segment.domains, dict.fromkeys(segment.names, 0)
    offsets = ((NUMBERS, d.number_offsets), (STRINGS, d.string_offsets), (TIMES, d.time_offsets))
    found = sum(np.where(np.diff(its) > 0, bit, 0) for bit, its in offsets)
    for (name, facet), bits in zip(d.attributes, np.asarray(found).tolist()):
        result[name] |= bits if facet in (Facet.VALUE, Facet.TIME) else STRINGS
    result.pop("", None)  # which bears the predicate that never holds
    return result


def add_kinds(kinds: dict[str, int], more: dict[str, int]) -> None:
    for name, found in more.items():
        kinds[name] = kinds.get(name, 0) | found


def save_segment(folder: Path, segment: Segment, shard: int = 0) -> VersionSegment:
    """Writes a segment that no version names yet."""
    (folder / SEGMENTS).mkdir(parents=True, exist_ok=True)
    name = f"{SEGMENTS}/{secrets.token_hex(8)}.dibs"
    head = store.save(segment, folder / name)
    return VersionSegment(name, len(segment), head, (folder / name).stat().st_size, shard)


def save_removed(folder: Path, rows: NDArray[np.int64]) -> tuple[str, int]:
    """Writes which rows of a segment are gone: the name of the file and its head."""
    (folder / SEGMENTS).mkdir(parents=True, exist_ok=True)
    name = f"{SEGMENTS}/{secrets.token_hex(8)}.removed.dibs"
    return name, store.save_removed(rows, folder / name)


def load_state(folder: Path, version: Version, shard: int | None = None) -> State:
    """The segments of a version, or of one of its shards, as the state of a matcher."""
    return State(version.version, tuple(_layer(folder, s) for s in version.of_shard(shard)))


def _layer(folder: Path, stored: VersionSegment) -> Layer:
    try:
        segment = store.load(folder / stored.file, stored.head)
        gone = Tombstones(len(segment)).including(read_removed(folder, stored))
    except FileNotFoundError as e:
        raise FormatError(
            f"{e.filename} is not there any more: the index was saved over, or its version removed, while a job used "
            "it. Versions that dibs.spark.compile writes stay until they are removed"
        ) from None
    return Layer(segment, gone)


def read_removed(folder: Path, stored: VersionSegment) -> NDArray[np.int64]:
    """The rows of a segment that are gone."""
    if stored.removed is None:
        return np.empty(0, np.int64)
    return store.load_removed(folder / stored.removed, stored.removed_head)


def remove_versions(folder: Path, keep: Collection[int]) -> list[str]:
    """Removes all versions but these, and the files that none of these names; returns the names of what went."""
    there = list_versions(folder)
    kept = [read_version(folder, number) for number in there if number in keep]
    named = {name for version in kept for name in version.files()}
    gone = [version_name(number) for number in there if number not in keep]
    with suppress(FileNotFoundError):
        files = [f"{SEGMENTS}/{name}" for name in sorted(os.listdir(folder / SEGMENTS))]
        gone += [name for name in files if name not in named]
    for name in gone:
        with suppress(FileNotFoundError):
            (folder / name).unlink()
    return gone
