"""One format for every file that Dibs writes: a line of text, a JSON head, arrays. Whatever kind a file is of, it is
replaced at once or not at all, mapped into memory as a whole, and any change to it since it was written is found.

    dibs 3 segment 2345 1048640 00f3a9…   format, kind, bytes of the head, of the arrays, checksum of line and head
    {"about": {…}, "arrays": {"clauses.lo": {"dtype": "<i4", "shape": [9], "offset": 0, "checksum": "4be1…"}, …}}
    arrays                                row by row; offsets count from the first multiple of PAGE behind the head and
                                          are multiples of LINE, those of large arrays of PAGE

Every byte of a file is vouched for: the line and the head by the checksum in the line, arrays by the checksums in the
head, and what lies between is zero. So the checksum in the line stands for the whole content: it is called `head`
where one file names another.

Arrays are mapped copy-on-write. To the kernels they look like the writable arrays of a fresh segment (one compiled
version serves both), nothing is ever written back, and the processes of a machine share the pages.
"""

from __future__ import annotations

import errno
import json
import mmap
import os
import re
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dibs.errors import DamagedError, FormatError, StorageError
from dibs.storage.checksum import checksums

FORMAT = 4
PARTIAL = ".partial"  # ends the name of a file that is being written
LINE, PAGE = 64, 4096
LARGE = 65_536  # bytes of an array that gets pages of its own
FIRST_LINE = re.compile(rb"dibs (\d+) ([a-z]+) (\d+) (\d+) ([0-9a-f]{16})\n")
LONGEST_LINE = 128
OLD_LINE = re.compile(rb"(\d+) \d+ [a-z-]+\n")  # the whole of index.dibs up to format 2
ADVICE = "restore it from a copy, or make the index again"


# ---- writing ----


def write_file(path: Path, kind: str, about: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> int:
    """Writes a file in place of the one that stands there (see replace_file), and returns its head."""
    contents = [_raw(name, array) for name, array in arrays.items()]
    described: dict[str, dict[str, Any]] = {}
    end = 0
    for (name, array), checksum in zip(arrays.items(), checksums(contents)):
        start = _up(end, PAGE if array.nbytes >= LARGE else LINE)
        kind_and_shape = {"dtype": array.dtype.str, "shape": list(array.shape)}
        described[name] = {**kind_and_shape, "offset": start, "checksum": f"{checksum:016x}"}
        end = start + array.nbytes
    text = json.dumps({"about": about, "arrays": described}).encode() + b"\n"
    line = f"dibs {FORMAT} {kind} {len(text)} {end} ".encode()
    head = _head(line, text)
    line += f"{head:016x}\n".encode()
    base = _up(len(line) + len(text), PAGE)

    def write(file: BinaryIO) -> None:
        file.write(line + text)
        for content, its in zip(contents, described.values()):
            if end:
                file.write(bytes(base + its["offset"] - file.tell()))
                file.write(content.data)

    replace_file(path, write, one_writer=True)
    return head


def _raw(name: str, array: NDArray[Any]) -> NDArray[np.uint8]:
    """The bytes of an array, row by row."""
    if array.ndim == 0 or array.dtype.kind not in "biuf" or not array.dtype.isnative:
        raise ValueError(f"array {name!r} of type {array.dtype} and shape {array.shape} has no place in a file")
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


def _head(line: bytes, text: bytes) -> int:
    """The checksum of the first line up to where it stands itself, and of the head."""
    return checksums([np.frombuffer(line + text, np.uint8)])[0]


def replace_file(target: Path, write: Callable[[BinaryIO], None], one_writer: bool = False) -> None:
    """Writes a file beside, and puts it in the place of the target. It is safe on the disk when this returns. When this
    raises, the old one still stands (but if only the last step failed: to sync the folder). one_writer: nobody else
    writes this file at the same time, so that what a killed process has left of it can be written over."""
    own = "" if one_writer else f".{secrets.token_hex(4)}"
    partial = target.with_name(f"{target.name}{own}{PARTIAL}")
    try:
        try:
            with open(partial, "wb" if one_writer else "xb") as file:
                write(file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, target)
        except BaseException:
            with suppress(OSError):
                partial.unlink(missing_ok=True)
            raise
        sync_folder(target.parent)
    except OSError as e:
        raise storage_error(target, e) from e


def replace_bytes(target: Path, content: bytes) -> None:
    """The same with this content."""

    def write(file: BinaryIO) -> None:
        file.write(content)

    replace_file(target, write)


def sync_folder(folder: Path) -> None:
    """Makes the names in the folder safe on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def storage_error(path: Path, error: OSError) -> StorageError:
    """What went wrong with a file, and what to do."""
    advice = {
        errno.ENOSPC: "the disk is full: make room and try again; what was there before is unchanged",
        errno.EDQUOT: "the disk quota is used up: make room and try again; what was there before is unchanged",
        errno.EFBIG: "the file would be larger than the system allows: raise the limit (ulimit -f) and try again",
        errno.EROFS: "the filesystem is read-only: mount it for writing, or choose another folder",
        errno.EACCES: "permission denied: change the owner or the mode of the folder, or choose another",
        errno.EPERM: "permission denied: change the owner or the mode of the folder, or choose another",
        errno.ENOENT: f"there is no folder {path.parent}: make it first",
        errno.ENOTDIR: f"{path.parent} is no folder: choose another path",
        errno.EEXIST: f"{path.parent} is no folder: choose another path",
        errno.EISDIR: "a folder stands there: move it away, or choose another path",
    }
    return StorageError(path, advice.get(error.errno or 0, f"{error.strerror or error}: try again, check the disk"))


# ---- reading ----


def read_file(
    path: Path, kind: str, check: bool = True, head: int | None = None
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """What a file is about, and its arrays, mapped. head: what write_file returned, if this must be that very file.
    check=False does not look at the arrays, which takes no time whatever their size. Raises DamagedError, FormatError
    (another format or kind, no file of Dibs), StorageError; a file that is not there is FileNotFoundError."""
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) if size else b""
    except (FileNotFoundError, NotADirectoryError):
        raise
    except IsADirectoryError:
        raise FormatError(f"{path} is a folder, where a file of Dibs was expected") from None
    except PermissionError as e:
        raise StorageError(path, "permission denied: change the owner or the mode of the file") from e
    except OSError as e:
        raise storage_error(path, e) from e
    line = content[:LONGEST_LINE].partition(b"\n")[0] + b"\n"
    text_size, arrays_size, found = _first_line(path, kind, line)
    after_head = len(line) + text_size
    text = content[len(line) : after_head]
    base = _up(after_head, PAGE) if arrays_size else after_head
    if size < base + arrays_size:
        raise DamagedError(path, f"it is cut off, {size:,} of {base + arrays_size:,} bytes are there; {ADVICE}")
    if _head(line[:-17], text) != found:
        raise DamagedError(path, f"its head is not as it was written; {ADVICE}")
    if size > base + arrays_size:
        raise DamagedError(path, f"{size - base - arrays_size:,} bytes too many stand at its end; {ADVICE}")
    if head is not None and head != found:
        raise DamagedError(path, f"it is a sound file, but another one was expected in its place; {ADVICE}")
    try:
        described = json.loads(text)
        arrays = _arrays(content, base, described["arrays"])
        if check:
            _check(path, content, after_head, base, arrays, described["arrays"])
        return described["about"], arrays
    except (ValueError, KeyError, TypeError) as e:
        raise DamagedError(path, f"its head makes no sense ({e}); {ADVICE}") from e


def _first_line(path: Path, kind: str, line: bytes) -> tuple[int, int, int]:
    """The sizes of head and arrays, and the checksum, as the first line says."""
    number = re.match(rb"dibs (\d+) ", line) or OLD_LINE.fullmatch(line)
    if number and int(number[1]) != FORMAT:
        raise FormatError(
            f"{path} has the format {int(number[1])}, made by another version of Dibs; this one reads the format "
            f"{FORMAT}: make the index again, or use the version that made it"
        )
    parts = FIRST_LINE.fullmatch(line)
    if parts is None:
        if b"dibs ".startswith(line.rstrip(b"\n")[:5]):  # also when there is nothing at all
            raise DamagedError(path, f"its first line is not as it was written; {ADVICE}")
        raise FormatError(f"{path} is no file of Dibs")
    if parts[2] != kind.encode():
        raise FormatError(f"{path} is a file of the kind {parts[2].decode()!r}, where a {kind!r} was expected")
    return int(parts[3]), int(parts[4]), int(parts[5], 16)


def _arrays(content: mmap.mmap | bytes, base: int, described: dict[str, dict[str, Any]]) -> dict[str, NDArray[Any]]:
    arrays: dict[str, NDArray[Any]] = {}
    for name, its in described.items():
        kind, shape = np.dtype(its["dtype"]), tuple(its["shape"])
        count = int(np.prod(shape, dtype=np.int64))
        if count:
            arrays[name] = np.frombuffer(content, kind, count, base + its["offset"]).reshape(shape)
        else:
            arrays[name] = np.empty(shape, kind)
    return arrays


def _check(
    path: Path,
    content: mmap.mmap | bytes,
    after_head: int,
    base: int,
    arrays: dict[str, NDArray[Any]],
    described: dict[str, dict[str, Any]],
) -> None:
    """That the arrays are as they were written, and that there is nothing between them."""
    found = checksums([_raw(name, array) for name, array in arrays.items()])
    for (name, its), checksum in zip(described.items(), found):
        if f"{checksum:016x}" != its["checksum"]:
            raise DamagedError(path, f"its array {name!r} is not as it was written; {ADVICE}")
    end = after_head
    for array, its in zip(arrays.values(), described.values()):
        start = base + its["offset"]
        if content[end:start].strip(b"\0"):
            raise DamagedError(path, f"there is something at byte {end:,}, where nothing was written; {ADVICE}")
        end = start + array.nbytes


# ---- strings ----


def string_parts(name: str, strings: pa.Array) -> dict[str, NDArray[Any]]:
    """A large_string array without nulls as two arrays: where each string starts, and their bytes. Not copied, unless
    it is a slice of another."""
    if strings.type != pa.large_string() or strings.null_count:
        raise ValueError(f"{name!r} is {strings.type} with {strings.null_count} nulls; expected large_string, none")
    _, offsets, data = strings.buffers()
    starts, content = np.zeros(1, np.int64), np.empty(0, np.uint8)
    if len(strings):
        starts = np.frombuffer(offsets, np.int64, len(strings) + 1, strings.offset * 8)
        if data is not None:
            content = np.frombuffer(data, np.uint8)[starts[0] : starts[-1]]
        if starts[0]:
            starts = starts - starts[0]
    return {f"{name}.starts": starts, f"{name}.bytes": content}


def strings_of(name: str, arrays: dict[str, NDArray[Any]]) -> pa.Array:
    """The strings that string_parts took apart, where they lie. Checksums vouch for their being UTF-8."""
    starts, content = arrays[f"{name}.starts"], arrays[f"{name}.bytes"]
    return pa.LargeStringArray.from_buffers(len(starts) - 1, pa.py_buffer(starts), pa.py_buffer(content))
