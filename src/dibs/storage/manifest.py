"""The manifest of a folder of segments: which files count. It is swapped as a whole, so a reader finds the old state or
the new one; files that it does not name are leftovers of writers that were cut short, and mean nothing.

Numbers of files only grow: a name is never used again, so a reader of an older manifest finds the file that it means,
or none.

The declared types of a durable folder are in a file of their own, written when the folder is made, and again only while
it holds nothing.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from dibs.errors import ArgumentError, DamagedError
from dibs.language.types import NO_TYPES, Types, check_types
from dibs.storage.files import ADVICE, read_file, write_file

HEAD = "index.dibs"  # the file's name


@dataclass(frozen=True)
class StoredSegment:
    file: str  # its name in the folder
    rows: int
    removed: str | None  # the file of the rows that are gone, if any are
    head: int  # of the segment's file: it must be that very file
    removed_head: int | None = None  # of the file of removed rows; None: any


@dataclass(frozen=True)
class Manifest:
    index: str
    version: int  # of the matcher: all changes up to it are in the segments
    identity: str  # of the catalog that they were made from; "" where there is none
    next_file: int
    segments: tuple[StoredSegment, ...]
    options: dict[str, Any] = field(default_factory=dict)  # of the index, where they are not the defaults
    history: str | None = None  # the file of the documents, of a saved matcher that has some
    history_head: int | None = None
    types: dict[str, str] = field(default_factory=dict)  # of attributes, of a saved matcher where they are declared


def segment_name(number: int) -> str:
    return f"segment-{number:06d}.dibs"


def removed_name(number: int) -> str:
    return f"removed-{number:06d}.dibs"


def history_name(number: int) -> str:
    return f"history-{number:06d}.dibs"


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Makes it the manifest of the folder, at once. The files that it names must be there already."""
    about = {name: value for name, value in asdict(manifest).items() if value is not None}  # as if it had none
    if not manifest.options:  # so that versions without options read it
        del about["options"]
    if not manifest.types:
        del about["types"]
    write_file(folder / HEAD, "manifest", about, {})


def read_manifest(folder: Path) -> Manifest:
    """The manifest of the folder. Raises FileNotFoundError when it has none, and what read_file raises."""
    about, _ = read_file(folder / HEAD, "manifest")
    try:
        fields: dict[str, Any] = {**about, "segments": tuple(StoredSegment(**s) for s in about["segments"])}
        return Manifest(**fields)
    except (KeyError, TypeError) as e:
        raise DamagedError(folder / HEAD, f"it makes no sense ({e}); {ADVICE}") from e


FILE = "types.dibs"


def keep_types(folder: Path, given: Types | None, is_new: bool) -> Types:
    """The types of a folder: those that are given, if it is new. Raises ArgumentError when it has others."""
    if is_new and given:
        write_file(folder / FILE, "types", {"types": dict(given)}, {})
        return given
    found = read_types(folder)
    if given is not None and given != found:
        was = f"has the types {found}" if found else "has no types"
        raise ArgumentError(
            f"{folder} {was}, and is opened with {given}: leave types out; for others, export its subscriptions and "
            "import them into a new folder"
        )
    return found


def change_types(folder: Path, types: Types) -> None:
    """For the writer of a folder that has neither subscriptions nor documents, nor segments, while it is closed."""
    write_file(folder / FILE, "types", {"types": dict(types)}, {})


def types_stamp(folder: Path) -> tuple[int, int]:
    """Another one when the types were changed."""
    try:
        found = os.stat(folder / FILE)
    except FileNotFoundError:
        return (0, 0)
    return found.st_ino, found.st_mtime_ns


def read_types(folder: Path) -> Types:
    """Raises DamagedError."""
    try:
        about, _ = read_file(folder / FILE, "types")
    except FileNotFoundError:
        return NO_TYPES
    try:
        return check_types(about["types"])
    except (KeyError, ArgumentError) as error:
        raise DamagedError(folder / FILE, f"it makes no sense ({error}); {ADVICE}") from error
