"""Places where compiled subscriptions lie: a folder that this machine sees, or a URL that Arrow or fsspec opens.

    /data/index, file:///data/index     this machine's files, used where they lie
    s3://, s3a://, hdfs://, gs://, ...  Arrow's filesystems; what Arrow does not know: fsspec, if it is installed

Files are written under a name of their own and never again, so a copy in this machine's cache is as good as the file.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyarrow import fs

from dibs.arguments import check_path
from dibs.errors import DibsError, FormatError, StorageError
from dibs.storage import versions
from dibs.storage.versions import VERSIONS, Version

UNFINISHED, MARK = "_temporary", "_SUCCESS"  # in a folder while Spark or Hadoop writes a table there, and at its end
CRYPTO = "parquet.crypto.factory.class"  # by which Parquet files are encrypted
JAVA = ("_jvm", "_jsc", "_jsparkSession")  # of a classic session: what Python has no words for
URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")  # dbfs:/ too
SHOWN = 300  # characters of what others say
SAME = {"s3a": "s3", "s3n": "s3", "gcs": "gs"}  # Hadoop's names of what Arrow calls otherwise
UNUSED_DAYS = 7  # after which a cached index is removed by whoever caches another


class Folder:
    """A folder of this machine."""

    def __init__(self, path: Path):
        self.path = path
        self.name = str(path)

    def numbers(self) -> list[int]:
        return versions.list_versions(self.path)

    def read(self, number: int | None = None) -> Version:
        return versions.read_version(self.path, number)

    def commit(self, version: Version) -> None:
        """Makes it a version; its files must be here already."""
        versions.write_version(self.path, version)

    @property
    def staging(self) -> Path:
        """Where new files are written: here, as no version names them yet."""
        return self.path

    def upload(self, staged: Path, names: Iterable[str]) -> None:
        pass

    def fetch(self, version: Version, shard: int | None = None) -> Path:
        """A folder of this machine that has the files of the version."""
        return self.path

    def fetch_files(self, names: Iterable[str]) -> Path:
        """The same for files of these names."""
        return self.path

    def discard(self, names: Iterable[str]) -> None:
        """Removes files that no version names."""
        for name in names:
            with suppress(FileNotFoundError):
                (self.path / name).unlink()

    def remove_versions(self, keep: Iterable[int]) -> list[str]:
        return versions.remove_versions(self.path, set(keep))


class Remote:
    """A folder in a filesystem that Arrow or fsspec opens."""

    def __init__(self, name: str, files: Any, root: str):
        self.name, self._files, self._root = name, files, root.rstrip("/")

    def numbers(self) -> list[int]:
        return versions.numbers_in(self._list(VERSIONS))

    def read(self, number: int | None = None) -> Version:
        there = self.numbers()
        if not there or (number is not None and number not in there):
            wanted = "" if number is None else f" of version {number:,}"
            raise FormatError(f"{self.name} holds no compiled subscriptions{wanted}; it has the versions {there[-5:]}")
        name = versions.version_name(there[-1] if number is None else number)
        with self._tell(), self._files.open_input_stream(f"{self._root}/{name}") as file:
            return versions.from_text(file.read(), f"{self.name}/{name}")

    def commit(self, version: Version) -> None:
        if version.version in self.numbers():
            raise versions.refuse_taken(self.name, version.version)
        name, partial = versions.version_name(version.version), f"{VERSIONS}/{secrets.token_hex(8)}.partial"
        with self._tell():
            self._files.create_dir(f"{self._root}/{VERSIONS}", recursive=True)
            with self._files.open_output_stream(f"{self._root}/{partial}") as file:
                file.write(versions.to_text(version).encode())
            self._files.move(f"{self._root}/{partial}", f"{self._root}/{name}")

    @property
    def staging(self) -> Path:
        return Path(tempfile.mkdtemp(prefix="dibs-staging-"))

    def upload(self, staged: Path, names: Iterable[str]) -> None:
        """Brings new files from where they were written to where they belong, and removes them there."""
        with self._tell():
            for name in names:
                self._files.create_dir(os.path.dirname(f"{self._root}/{name}"), recursive=True)
                fs.copy_files(str(staged / name), f"{self._root}/{name}", fs.LocalFileSystem(), self._files)
        shutil.rmtree(staged, ignore_errors=True)

    def fetch(self, version: Version, shard: int | None = None) -> Path:
        return self.fetch_files(version.files(shard))

    def fetch_files(self, names: Iterable[str]) -> Path:
        folder = cache_folder() / blake2b(self.name.encode(), digest_size=12).hexdigest()
        folder.mkdir(exist_ok=True)
        for name in names:
            target = folder / name
            if not target.exists():
                target.parent.mkdir(exist_ok=True)
                partial = target.with_name(f"{target.name}.{secrets.token_hex(4)}.partial")
                with self._tell():
                    fs.copy_files(f"{self._root}/{name}", str(partial), self._files, fs.LocalFileSystem())
                partial.rename(target)
        folder.touch()
        return folder

    def remove_versions(self, keep: Iterable[int]) -> list[str]:
        there, keep = self.numbers(), set(keep)
        named = {name for number in there if number in keep for name in self.read(number).files()}
        gone = [versions.version_name(number) for number in there if number not in keep]
        own = [f"{versions.SEGMENTS}/{name}" for name in self._list(versions.SEGMENTS)]
        gone += [name for name in own if name not in named]
        self.discard(gone)
        return gone

    def discard(self, names: Iterable[str]) -> None:
        with self._tell():
            for name in names:
                self._files.delete_file(f"{self._root}/{name}")

    def _list(self, folder: str) -> list[str]:
        with self._tell():
            chosen = fs.FileSelector(f"{self._root}/{folder}", allow_not_found=True)
            return [info.base_name for info in self._files.get_file_info(chosen)]

    def _tell(self) -> _Told:
        return _Told(self.name)


class _Told:
    """What a filesystem raises, in our words."""

    def __init__(self, name: str):
        self._name = name

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, _: Any) -> None:
        if isinstance(error, FileNotFoundError):
            raise FormatError(f"{self._name}: {error}: its version was removed while somebody used it") from error
        if isinstance(error, (OSError, pa.ArrowException)):
            raise StorageError(Path(self._name), f"its filesystem says: {error}") from error


Place = Folder | Remote


def is_url(path: object) -> bool:
    return isinstance(path, str) and URL.match(path) is not None and not path.startswith("file:")


def local_path(path: str | os.PathLike[str]) -> str | None:
    """The path on this machine; None: it is somewhere else."""
    text = os.fspath(path)
    parts = urlsplit(text)
    if len(parts.scheme) < 2:
        return text
    return unquote(parts.path) if parts.scheme == "file" else None


def spark_path(path: str | os.PathLike[str]) -> str:
    """For Spark, whose own file system need not be this machine's: the path of one of its files says so."""
    local = local_path(path)
    return os.fspath(path) if local is None else f"file://{Path(local).absolute()}"


def local_folder(path: str, spark: Any) -> Path | None:
    """The folder of this machine that Spark writes plain files to when it is given the path; None: it writes elsewhere,
    or files that are encrypted."""
    java, _, session = (getattr(spark, name) for name in JAVA)
    wanted, configuration = java.org.apache.hadoop.fs.Path(path), session.sessionState().newHadoopConf()
    if configuration.get(CRYPTO) is not None:
        return None
    found = str(wanted.getFileSystem(configuration).makeQualified(wanted).toString())
    return Path(found.removeprefix("file:")) if found.startswith("file:/") else None


def is_hidden(name: str) -> bool:
    """From Spark's readers."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def first_line(error: BaseException) -> str:
    """What an error says, without its stack."""
    of_java = getattr(error, "java_exception", None)
    whole = str(error) if of_java is None else str(of_java.toString())
    text = " ".join(whole.split("\n", 1)[0].split())
    return text if len(text) <= SHOWN else text[:SHOWN] + " ..."


def is_unfinished(path: Path | str, spark: Any = None) -> bool:
    """Whether somebody has begun to write a table to this folder, and has not ended it: whatever files it has are a
    part of it. spark: a session that looks, at a URL."""
    if isinstance(path, Path):
        return (path / UNFINISHED).is_dir() and not (path / MARK).exists()
    java, context, _ = (getattr(spark, name) for name in JAVA)
    hadoop = java.org.apache.hadoop.fs.Path
    files = hadoop(path).getFileSystem(context.hadoopConfiguration())
    return bool(files.exists(hadoop(path, UNFINISHED)) and not files.exists(hadoop(path, MARK)))


def place_of(path: str | os.PathLike[str]) -> Place:
    """The place of a path or URL. Raises DibsError when no filesystem knows it."""
    if isinstance(path, str) and path.startswith("file:"):
        path = unquote(urlsplit(path).path)
    if isinstance(path, str) and is_url(path):
        return _remote(path)
    return Folder(check_path(path).absolute())


def has_versions(path: str | os.PathLike[str]) -> bool:
    """Whether dibs.spark.compile has written there. Where no filesystem of ours opens the path, it has not."""
    try:
        place = place_of(path)
    except DibsError:
        return False
    return versions.is_versioned(place.path) if isinstance(place, Folder) else bool(place.numbers())


@lru_cache(maxsize=64)
def _remote(url: str) -> Remote:
    scheme, rest = url.split(":/", 1)
    rest = rest.removeprefix("/") if rest.startswith("/") else f"/{rest}"
    reasons = []
    try:
        files, root = fs.FileSystem.from_uri(f"{SAME.get(scheme, scheme)}://{rest}")
        return Remote(url, files, root)
    except (OSError, pa.ArrowException, ValueError) as e:
        reasons.append(f"Arrow says: {first_line(e)}")
    try:
        import fsspec

        opened, root = fsspec.core.url_to_fs(f"{SAME.get(scheme, scheme)}://{rest}")
        return Remote(url, fs.PyFileSystem(fs.FSSpecHandler(opened)), root)
    except Exception as e:  # whatever the packages of its filesystems raise
        reasons.append(f"fsspec says: {first_line(e)}")
    raise DibsError(
        f"no filesystem opens {url} ({'; '.join(reasons)}): install what it needs (fsspec and its package for "
        f"{scheme}), or give a folder that the driver and all workers see"
    )


def cache_folder() -> Path:
    """Where this machine keeps copies of compiled subscriptions: one folder per user, for all processes. What nobody
    has used for a week goes when something new comes."""
    root = Path(tempfile.gettempdir()) / f"dibs-worker-{os.getuid()}"
    root.mkdir(mode=0o700, exist_ok=True)
    if root.stat().st_uid != os.getuid():
        raise DibsError(f"{root} belongs to another user: remove it, or set TMPDIR for the workers")
    return root


def remove_unused(root: Path) -> None:
    """Removes the copies that nobody has used of late."""
    for folder in root.iterdir():
        with suppress(OSError):
            if time.time() - folder.stat().st_mtime > UNUSED_DAYS * 86_400:
                shutil.rmtree(folder, ignore_errors=True)
