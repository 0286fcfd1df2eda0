"""Compiled subscriptions on Spark: a folder with versions, and how to open one.

`dibs.spark.compile(subscriptions, PATH)` writes version 1 of PATH, and each further call writes the next one. A version
never changes, so whoever has fixed one gets the same matches as often as it likes:

    latest(PATH)                  the number of the newest version; list_versions(PATH): of all
    open_version(PATH, 7)         version 7 (None: the newest): what it has, without opening segments
                                  (.version .subscriptions .attributes .ids .weighted .rejected .shards .bytes .about)
    load_matcher(PATH, 7)         a read-only Matcher of version 7, mapped into memory
    match(events, PATH, version=7)  the same on Spark: the version is fixed when match is called (None: the newest then)
    apply_changes(PATH, table)    a few changes, made here on the driver: the next version, of which only what is
                                  new is written. (Many changes: compile, which is a job.)
    remove_versions(PATH, keep)   removes old versions, when no job uses them any more

PATH is a folder that driver and workers share, or a URL (s3://, hdfs://, whatever fsspec opens): then every machine
keeps copies of the files that it uses. The files are described in dibs.storage.versions. A place has one writer at a
time; readers need no lock.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from dibs.matcher import Matcher
from dibs.spark.changes import apply_changes as apply_changes
from dibs.spark.places import place_of
from dibs.storage import versions
from dibs.storage.versions import Version

PathLike = str | os.PathLike[str]


def latest(path: PathLike) -> int:
    """The number of the newest version. Raises FormatError when there is none."""
    return open_version(path).version


def list_versions(path: PathLike) -> list[int]:
    """The numbers of all versions, the oldest first."""
    return place_of(path).numbers()


def open_version(path: PathLike, version: int | None = None) -> Version:
    """A version, or the newest, without opening its segments. Raises FormatError when it is not there."""
    return place_of(path).read(version)


def load_matcher(path: PathLike, version: int | None = None, threads: int | None = None) -> Matcher:
    """A version, or the newest, as a read-only Matcher of this process."""
    place = place_of(path)
    opened = place.read(version)
    return Matcher.of_state(
        versions.load_state(place.fetch(opened), opened), opened.index, threads, opened.options, types=opened.types
    )


def remove_versions(path: PathLike, keep: int | Iterable[int] = 1) -> list[str]:
    """Removes all versions but the newest `keep`, or but those of these numbers, with the files that only they had.
    Jobs and streams that use one of them would fail: remove what no job uses any more. Returns the names of the
    removed files."""
    place = place_of(path)
    kept = place.numbers()[-max(keep, 1) :] if isinstance(keep, int) else keep
    return place.remove_versions(kept)
