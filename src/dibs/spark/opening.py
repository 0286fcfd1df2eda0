"""Compiled subscriptions in a worker: where their files are on this machine, and the Matcher that maps them."""

from __future__ import annotations

import secrets
import shutil
from functools import lru_cache
from pathlib import Path

from dibs.errors import FormatError
from dibs.matcher import Matcher
from dibs.spark.places import Folder, cache_folder, place_of, remove_unused
from dibs.spark.shipping import Artifact, receive
from dibs.storage import versions
from dibs.storage.versions import Version

OPENED = 4  # indexes, or shards of one, that a worker keeps mapped


def open_matcher(
    path: str, version: Version, files: dict[str, bytes] | Artifact | None, shard: int | None = None
) -> Matcher:
    """The version, or a shard of it. files: its content, for a machine that does not see the path."""
    return _open(_here(path, version, files, shard), versions.to_text(version), shard)


@lru_cache(maxsize=OPENED)  # workers live on from job to job
def _open(folder: Path, text: str, shard: int | None) -> Matcher:
    version = versions.from_text(text, "a job")
    state = versions.load_state(folder, version, shard)
    # One thread: Spark runs a worker on each core already.
    return Matcher.of_state(state, version.index, threads=1, options=version.options, types=version.types)


def _here(path: str, version: Version, files: dict[str, bytes] | Artifact | None, shard: int | None) -> Path:
    """The folder of this machine that has the files."""
    place = place_of(path)
    if not isinstance(place, Folder):
        return place.fetch(version, shard)
    names = version.files(shard)
    if files is None or all((place.path / name).exists() for name in names):
        if not place.path.is_dir():
            raise FormatError(
                f"{path} is not there on a worker's machine: it must be on a filesystem that the driver and all "
                "workers share, or a URL"
            )
        return place.path
    return write_here(version.fingerprint, receive(files))


def write_here(name: str, files: dict[str, bytes]) -> Path:
    """A folder of this machine with these files. name: by which it is found again."""
    root = cache_folder()
    target = root / name
    if not target.exists():
        remove_unused(root)
        partial = root / f"{secrets.token_hex(8)}.partial"
        for name, content in files.items():
            (partial / name).parent.mkdir(parents=True, exist_ok=True)
            (partial / name).write_bytes(content)
        try:
            partial.rename(target)
        except OSError:  # another worker was faster
            shutil.rmtree(partial)
            if not target.exists():
                raise
    target.touch()
    return target
