"""Files: what is written is read again; what is damaged in any way is refused; what fails leaves the old state."""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dibs.coding.clauses import code_clauses
from dibs.coding.events import read_events
from dibs.errors import DamagedError, FormatError, StorageError
from dibs.index import create
from dibs.segments.compile import compile_texts
from dibs.segments.ids import IdIndex
from dibs.segments.segment import Segment
from dibs.storage import checksum, files, store
from dibs.storage.checksum import checksums
from dibs.storage.files import read_file, storage_error, string_parts, strings_of, write_file
from dibs.storage.manifest import HEAD, Manifest, StoredSegment, read_manifest, write_manifest
from dibs.storage.store import load, load_all, load_removed, save, save_all, save_removed

HERE = Path(__file__).parent  # programs that run apart import from this file
DTYPES = ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8", "?"]


# ---- checksums ----


def twin(content: bytes) -> int:
    """The checksum as its page says it, one word after the other."""
    if len(content) > checksum.PIECE:
        pieces = [content[i : i + checksum.PIECE] for i in range(0, len(content), checksum.PIECE)]
        return twin(b"".join(twin(piece).to_bytes(8, "little") for piece in pieces))
    full = 2**64 - 1

    def step(lane: int, word: int) -> int:
        mixed = lane ^ word
        return ((mixed << 29 | mixed >> 35) & full) * 0x9E6C63D0876A9A47 & full

    whole = len(content) // 8
    words = [int.from_bytes(content[8 * i : 8 * i + 8], "little") for i in range(whole)]
    lanes = list(range(1, 9))
    for i in range(whole // 8 * 8):
        lanes[i % 8] = step(lanes[i % 8], words[i])
    result = len(content)
    for word in [*lanes, *words[whole // 8 * 8 :], int.from_bytes(content[8 * whole :], "little")]:
        result = step(result, word)
    result = (result ^ result >> 32) * 0xD1B54A32D192ED03 & full
    return result ^ result >> 29


def of(content: bytes, misaligned: int = 0) -> int:
    return checksums([np.frombuffer(bytes(misaligned) + content, np.uint8)[misaligned:]])[0]


@given(st.binary(max_size=300), st.integers(0, 7))
def test_checksum_is_its_twin(content: bytes, misaligned: int) -> None:
    assert of(content, misaligned) == twin(content)


@given(st.binary(min_size=1, max_size=300), st.data())
def test_a_change_within_a_word_is_always_seen(content: bytes, data: st.DataObject) -> None:
    word = data.draw(st.integers(0, (len(content) - 1) // 8)) * 8
    size = min(8, len(content) - word)
    other = data.draw(st.binary(min_size=size, max_size=size).filter(lambda b: b != content[word : word + size]))
    assert of(content[:word] + other + content[word + size :]) != of(content)


def test_checksum_of_pieces() -> None:
    content = np.random.default_rng(1).bytes(checksum.PIECE + 100_003)
    assert of(content) == twin(content)
    two_pieces = np.frombuffer(content, np.uint8).copy()
    before = checksums([two_pieces, two_pieces[:9]])
    for place in (0, checksum.PIECE - 1, checksum.PIECE, len(content) - 1):
        two_pieces[place] ^= 128
        assert checksums([two_pieces]) != before[:1]
        two_pieces[place] ^= 128
    assert checksums([two_pieces, two_pieces[:9]]) == before


def test_zeros_of_different_length_differ() -> None:
    assert len({of(bytes(n)) for n in range(300)}) == 300


# ---- round trips ----


@given(
    st.dictionaries(
        st.text(st.characters(codec="utf-8"), max_size=5),
        st.sampled_from(DTYPES).flatmap(lambda t: hnp.arrays(t, hnp.array_shapes(min_dims=1, min_side=0, max_side=7))),
        max_size=5,
    ),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(st.characters(codec="utf-8")) | st.floats(allow_nan=False),
        lambda inner: st.lists(inner, max_size=3),
        max_leaves=5,
    ),
)
def test_round_trip(tmp_path_factory: pytest.TempPathFactory, arrays: dict[str, Any], value: object) -> None:
    path = tmp_path_factory.getbasetemp() / "round-trip.dibs"
    head = write_file(path, "some", {"value": value}, arrays)
    about, found = read_file(path, "some", head=head)
    assert about == {"value": value}
    assert list(found) == list(arrays)
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype and found[name].shape == array.shape
        assert found[name].tobytes() == array.tobytes()
    assert not path.with_name(path.name + files.PARTIAL).exists()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [0, 1, 300_000])
def test_mapped_arrays_are_ordinary_ones(tmp_path: Path, dtype: str, size: int) -> None:
    fresh = np.random.default_rng(0).integers(0, 2, size).astype(dtype)
    grid = np.asfortranarray(np.arange(70_000).reshape(7, -1).astype(dtype))
    write_file(tmp_path / "a", "some", {}, {"first": np.ones(3, "i1"), "fresh": fresh, "grid": grid[:, ::2]})
    before = (tmp_path / "a").read_bytes()
    _, arrays = read_file(tmp_path / "a", "some")
    assert np.array_equal(arrays["fresh"], fresh) and np.array_equal(arrays["grid"], grid[:, ::2])
    for array in arrays.values():
        assert type(array) is np.ndarray and array.flags.c_contiguous and array.flags.aligned
        assert numba.typeof(array) == numba.typeof(np.ascontiguousarray(array).copy())  # one compiled version for both
        assert array.size == 0 or array.ctypes.data % (4096 if array.nbytes >= 65_536 else 64) == 0
        array[...] = 0
    assert (tmp_path / "a").read_bytes() == before  # nothing is written back
    assert np.array_equal(read_file(tmp_path / "a", "some")[1]["fresh"], fresh)


@pytest.mark.parametrize("bad", [np.array(3), np.array(["a"]), np.array([None]), np.arange(3, dtype=">i4")])
def test_what_has_no_place_in_a_file(tmp_path: Path, bad: Any) -> None:
    with pytest.raises(ValueError, match="has no place in a file"):
        write_file(tmp_path / "a", "some", {}, {"bad": bad})
    assert list(tmp_path.iterdir()) == []


@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=9), max_size=9), st.data())
def test_strings(texts: list[str], data: st.DataObject) -> None:
    whole = pa.array(texts, pa.large_string())
    start = data.draw(st.integers(0, len(texts)))
    part = whole.slice(start, data.draw(st.integers(0, len(texts) - start)))
    arrays = string_parts("x", part)
    found = strings_of("x", arrays)
    found.validate(full=True)
    assert found.equals(part)
    assert arrays["x.starts"][0] == 0 and len(arrays["x.bytes"]) == arrays["x.starts"][-1]
    if len(part) and start == 0:
        assert arrays["x.starts"].ctypes.data == whole.buffers()[1].address  # not copied
        assert found.buffers()[1].address == arrays["x.starts"].ctypes.data


def test_strings_with_nulls_are_refused() -> None:
    for strings in (pa.array(["a", None], pa.large_string()), pa.array(["a"], pa.string())):
        with pytest.raises(ValueError, match="expected large_string"):
            string_parts("x", strings)


# ---- damage ----


def small_file(path: Path) -> bytes:
    arrays = {"a": np.arange(5), "none": np.empty((0, 2), "i4"), "b": np.arange(9, dtype="u1"), "c": np.ones((2, 3))}
    write_file(path, "some", {"name": "x"}, arrays)
    return path.read_bytes()


def refused(path: Path, kind: str = "some") -> bool:
    try:
        read_file(path, kind)
    except FormatError:
        return True
    return False


def test_every_flipped_bit_is_found(tmp_path: Path) -> None:
    path = tmp_path / "a"
    good = small_file(path)
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as content:
        for place, byte in enumerate(good):
            # Every bit; of the many zeros between head and arrays, one a byte.
            for bit in range(8) if byte or place >= files.PAGE else [place % 8]:
                content[place] = byte ^ 1 << bit
                assert refused(path), f"bit {bit} of byte {place}"
            content[place] = byte
    assert not refused(path)


def test_every_flipped_bit_of_a_manifest_is_found(tmp_path: Path) -> None:
    write_manifest(tmp_path, Manifest("auto", 7, "me", 3, (StoredSegment("segment-000002.dibs", 9, None, 2**64 - 1),)))
    path = tmp_path / HEAD
    good = path.read_bytes()
    for place, byte in enumerate(good):
        for bit in range(8):
            path.write_bytes(good[:place] + bytes([byte ^ 1 << bit]) + good[place + 1 :])
            with pytest.raises(FormatError):
                read_manifest(tmp_path)
    path.write_bytes(good)
    assert read_manifest(tmp_path).version == 7


def test_every_truncation_is_found(tmp_path: Path) -> None:
    path = tmp_path / "a"
    good = small_file(path)
    for size in reversed(range(len(good))):
        os.truncate(path, size)
        with pytest.raises(DamagedError):
            read_file(path, "some", check=False)
    for more in (b"\0", b"\n", bytes(4096), good):
        path.write_bytes(good + more)
        with pytest.raises(DamagedError, match="bytes too many"):
            read_file(path, "some", check=False)


def test_damage_is_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "a"
    good = small_file(path)
    line, text, _ = good.split(b"\n", 2)
    start = 4096
    for bad, message in [
        (b"", "a is damaged: its first line"),
        (good[:-1], "it is cut off"),
        (good.replace(b'"x"', b'"y"'), "its head is not as it was written"),
        (good[:start] + b"\1" + good[start + 1 :], "its array 'a' is not as it was written"),
        (good[: start - 1] + b"\1" + good[start:], f"something at byte {len(line) + len(text) + 2}"),
    ]:
        path.write_bytes(bad)
        with pytest.raises(DamagedError, match=message) as caught:
            read_file(path, "some")
        assert caught.value.path == path
    path.write_bytes(good[:start] + b"\1" + good[start + 1 :])
    assert read_file(path, "some", check=False)[1]["a"][0] == 1  # as was asked for


def test_other_files(tmp_path: Path) -> None:
    path = tmp_path / "a"
    good = small_file(path)
    for content, message in [
        (good.replace(f"dibs {store.FORMAT}".encode(), b"dibs 3", 1), "format 3, made by another version of Dibs"),
        (b"dibs 17 who knows what\nelse", "format 17, made by another version of Dibs"),
        (b"2 1 auto\n", "format 2, made by another version of Dibs.*make the index again"),
        (b"PNG", "no file of Dibs"),
        (bytes(5000), "no file of Dibs"),
    ]:
        path.write_bytes(content)
        with pytest.raises(FormatError, match=message) as caught:
            read_file(path, "some")
        assert not isinstance(caught.value, DamagedError)
    path.write_bytes(good)
    with pytest.raises(FormatError, match="kind 'some', where a 'other' was expected"):
        read_file(path, "other")
    with pytest.raises(FormatError, match="is a folder"):
        read_file(tmp_path, "some")
    with pytest.raises(FileNotFoundError):
        read_file(tmp_path / "nothing", "some")


def test_another_sound_file(tmp_path: Path) -> None:
    heads = [write_file(tmp_path / f"{i}", "some", {}, {"a": np.array([i])}) for i in range(2)]
    os.replace(tmp_path / "0", tmp_path / "1")
    read_file(tmp_path / "1", "some", head=heads[0])
    with pytest.raises(DamagedError, match="another one was expected"):
        read_file(tmp_path / "1", "some", head=heads[1])


# ---- what the system refuses ----


@contextlib.contextmanager
def as_nobody() -> Iterator[None]:
    """Without the rights of root, who may do everything."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


def test_permissions(tmp_path: Path) -> None:
    path = tmp_path / "a"
    good = small_file(path)
    path.chmod(0)
    tmp_path.chmod(0o555)
    try:
        with as_nobody():
            with pytest.raises(StorageError, match=r"permission denied: .*the mode of the file"):
                read_file(path, "some")
            with pytest.raises(StorageError, match=r"permission denied: .*the mode of the folder"):
                write_file(path, "some", {}, {})
    finally:
        tmp_path.chmod(0o755)
        path.chmod(0o644)
    assert path.read_bytes() == good and list(tmp_path.iterdir()) == [path]


def test_no_folder(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"there is no folder .*nowhere: make it first"):
        write_file(tmp_path / "nowhere" / "a", "some", {}, {})
    (tmp_path / "file").write_text("keep")
    with pytest.raises(StorageError, match="file is no folder"):
        write_file(tmp_path / "file" / "a", "some", {}, {})
    (tmp_path / "folder").mkdir()
    with pytest.raises(StorageError, match="a folder stands there"):
        write_file(tmp_path / "folder", "some", {}, {})
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "folder"]
    assert "I/O error" in str(storage_error(tmp_path, OSError(errno.EIO, "I/O error")))


REFUSED = """
    import os, resource, subprocess, sys
    from pathlib import Path
    import numpy as np
    from dibs.errors import StorageError
    from dibs.storage.files import read_file, write_file

    folder, wanted, step = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    write_file(folder / "a", "some", {}, {"x": np.arange(1000)})
    if step == "limit":
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
    elif step == "read-only":
        subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
    for _ in range(2):
        try:
            write_file(folder / "a", "some", {}, {"x": np.arange(500_000)})
        except StorageError as e:
            assert wanted in str(e), e
            assert e.path == folder / "a"
        else:
            raise AssertionError("it was written")
        assert os.listdir(folder) == ["a"], os.listdir(folder)
        assert read_file(folder / "a", "some")[1]["x"].tolist() == list(range(1000))
    if step == "full":
        write_file(folder / "a", "some", {}, {"x": np.arange(1001)})
        assert len(read_file(folder / "a", "some")[1]["x"]) == 1001
"""


def run(program: str, *arguments: str, before: str = "") -> None:
    python = [sys.executable, "-c", textwrap.dedent(program), *arguments]
    command = ["unshare", "-rm", "sh", "-c", f'{before} && exec "$@"', "sh", *python] if before else python
    done = subprocess.run(command, capture_output=True, text=True, cwd=HERE)
    assert done.returncode == 0, done.stderr


def may_mount(folder: Path) -> bool:
    command = ["unshare", "-rm", "mount", "-t", "tmpfs", "none", str(folder)]
    try:
        return subprocess.run(command, capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


@pytest.mark.parametrize(("step", "wanted"), [("full", "the disk is full"), ("read-only", "filesystem is read-only")])
def test_full_and_read_only_disks(tmp_path: Path, step: str, wanted: str) -> None:
    if may_mount(tmp_path):
        run(REFUSED, str(tmp_path), wanted, step, before=f"mount -t tmpfs -o size=2m none '{tmp_path}'")
    else:
        run(REFUSED, str(tmp_path), "larger than the system allows", "limit")


def test_a_limit_on_files(tmp_path: Path) -> None:
    run(REFUSED, str(tmp_path), "larger than the system allows", "limit")


# ---- segments ----

TEXTS = [
    "x = 1",
    "x > 2.5 AND name = 'größer'",
    "name LIKE 'a%' AND x BETWEEN 1 AND 3",
    "name LIKE '%é_%' OR NOT CONTAINS(name, 'q')",
    "d >= DATE '2024-01-01' AND t < TIMESTAMP '2025-01-01 00:00:00'",
    "(x = 1 OR y = 2) AND (x IS NULL OR `a b`.c <> 'z')",
    "ok = TRUE AND x NOT IN (4, 5, 9007199254740993)",
    "name RLIKE '^[a-c]+$'",
    "TRUE",
]
EVENTS: list[dict[str, Any]] = [
    {"x": 1, "name": "xéy"},
    {"x": [1, 9], "name": "größer", "ok": True},
    {"x": 3, "y": 2, "name": "abc", "a b": {"c": "y"}},
    {"name": "q", "y": 2},
    {},
]


def segment(texts: list[str], ids: pa.Array, weights: Any = None, index: str = "auto") -> Segment:
    column = pa.array(["before", *texts, "after"], pa.large_string()).slice(1, len(texts))
    compiled = compile_texts(column)
    order = pa.array(compiled.order)
    domains, clauses = code_clauses(compiled.table)
    versions = np.arange(len(texts), dtype=np.int64) * 3
    index_of = create(index, clauses)
    return Segment(IdIndex(ids.take(order)), column.take(order), weights, versions, domains, clauses, index_of)


def numbered(texts: list[str], first: int = 0) -> Segment:
    return segment(texts, pa.array(range(first, first + len(texts)), pa.int64()))


def pairs(of: Segment) -> list[tuple[int, int]]:
    found = of.match(read_events(EVENTS, of.names), threads=2)
    return sorted(zip(found.event.tolist(), found.row.tolist()))


@pytest.mark.parametrize("index", ["auto", "scan", "betree", "opindex", "kindex"])
@pytest.mark.parametrize("ids", ["integers", "strings"])
@pytest.mark.parametrize("copies", [0, 1, 900])
def test_segments(tmp_path: Path, index: str, ids: str, copies: int) -> None:
    texts = TEXTS * copies
    numbers = range(-4, len(texts) - 4)
    column = (
        pa.array(numbers, pa.int64()) if ids == "integers" else pa.array([f"é{n}" for n in numbers], "large_string")
    )
    weights = np.linspace(0, 9, len(texts)) if index == "auto" else None
    made = segment(texts, column, weights, index)
    loaded = load(tmp_path / "s", save(made, tmp_path / "s"))
    assert loaded.ids.ids.equals(made.ids.ids) and loaded.texts.equals(made.texts)
    loaded.texts.validate(full=True)
    assert np.array_equal(loaded.versions, made.versions)
    assert (loaded.weights is None) == (weights is None) and np.array_equal(loaded.weights_at([]), np.empty(0))
    if weights is not None:
        assert np.array_equal(loaded.weights, weights)  # type: ignore[arg-type]
    assert loaded.names == made.names and loaded.index.name == index and len(loaded) == len(texts)
    assert pairs(loaded) == pairs(made)
    assert bool(pairs(made)) == bool(copies)
    for id in made.ids.at(np.arange(min(len(texts), 20), dtype=np.int32)):
        assert loaded.ids.find(id) == made.ids.find(id) is not None
    assert save(loaded, tmp_path / "again") == save(made, tmp_path / "s")  # to the last byte


def test_sliced_ids(tmp_path: Path) -> None:
    made = numbered(TEXTS)
    for column in (pa.array(range(20), pa.int64()), pa.array([f"id {i}" for i in range(20)], pa.large_string())):
        made.ids = IdIndex(column.slice(5, len(TEXTS)))
        save(made, tmp_path / "s")
        assert load(tmp_path / "s").ids.ids.equals(made.ids.ids)


def test_removed(tmp_path: Path) -> None:
    for rows in ([], [3], range(100_000)):
        head = save_removed(np.array(rows, np.int64), tmp_path / "r")
        assert load_removed(tmp_path / "r", head).tolist() == list(rows)
    with pytest.raises(FormatError, match="kind 'removed'"):
        load(tmp_path / "r")
    with pytest.raises(DamagedError, match="another one"):
        load_removed(tmp_path / "r", head + 1)


# ---- folders ----


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def test_folders(tmp_path: Path) -> None:
    target = tmp_path / "below" / "index"
    segments = [numbered(TEXTS), segment(["x = 1"], pa.array(["a"], pa.large_string()))]
    manifest = save_all(segments, target, "auto", version=12)
    assert names(target) == ["index.dibs", "segment-000000.dibs", "segment-000001.dibs"]
    found, loaded = load_all(target)
    assert found == manifest == read_manifest(target)
    assert (found.index, found.version, found.identity, found.next_file) == ("auto", 12, "", 2)
    assert [s.rows for s in found.segments] == [len(TEXTS), 1]
    assert [pairs(s) for s in loaded] == [pairs(s) for s in segments]
    # Names are never used again, and what was there goes; what is not ours stays.
    (target / "notes.txt").write_text("keep")
    (target / "segment-000041.dibs.partial").write_text("of a writer that was killed")
    assert save_all(segments[:1], target, "scan").next_file == 43
    assert names(target) == ["index.dibs", "notes.txt", "segment-000042.dibs"]
    assert pairs(loaded[0]) == pairs(segments[0])  # still mapped
    save_all([], target, "scan")
    assert names(target) == ["index.dibs", "notes.txt"]
    assert load_all(target)[1] == []
    assert save_all(segments[:1], target, "auto").next_file == 44
    assert names(target.parent) == ["index"]


def test_an_empty_folder_and_a_link(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to("empty")
    save_all([numbered(TEXTS)], tmp_path / "empty", "auto")
    save_all([numbered(TEXTS[:2])], tmp_path / "link", "auto")
    assert [len(s) for s in load_all(tmp_path / "empty")[1]] == [2]
    assert names(tmp_path) == ["empty", "link"]


def test_what_is_no_saved_index_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "precious.txt").write_text("keep")
    (tmp_path / "file").write_text("keep")
    for target in (tmp_path / "other", tmp_path / "file"):
        with pytest.raises(FormatError, match="exists and holds no saved index: give a new folder"):
            save_all([], target, "auto")
        with pytest.raises(FormatError, match=r"holds no saved index; write one with Matcher.save"):
            load_all(target)
    with pytest.raises(FormatError, match="holds no saved index"):
        load_all(tmp_path / "nowhere")
    with pytest.raises(StorageError, match="file is no folder"):
        save_all([], tmp_path / "file" / "index", "auto")
    save_all([], tmp_path / "durable", "auto")
    (tmp_path / "durable" / "catalog").mkdir()
    with pytest.raises(FormatError, match="holds a durable matcher"):
        save_all([], tmp_path / "durable", "auto")
    assert names(tmp_path) == ["durable", "file", "other"] and names(tmp_path / "other") == ["precious.txt"]


def test_the_old_format_is_told_and_replaced(tmp_path: Path) -> None:
    target = tmp_path / "index"
    (target / "segment-0").mkdir(parents=True)
    (target / "segment-0" / "ids.arrow").write_text("...")
    (target / HEAD).write_text("2 1 auto\n")
    with pytest.raises(FormatError, match=r"format 2, made by another version of Dibs.*make the index again"):
        load_all(target)
    save_all([numbered(TEXTS)], target, "auto")
    assert names(target) == ["index.dibs", "segment-000001.dibs"]
    (target / HEAD).write_bytes(b"damaged")
    save_all([numbered(TEXTS)], target, "auto")
    assert names(target) == ["index.dibs", "segment-000002.dibs"]


def test_files_that_are_mixed_up(tmp_path: Path) -> None:
    target = tmp_path / "index"
    manifest = save_all([numbered(TEXTS), numbered(TEXTS[::-1], 100)], target, "auto")
    a, b = (target / s.file for s in manifest.segments)
    contents = a.read_bytes(), b.read_bytes()
    a.write_bytes(contents[1])
    b.write_bytes(contents[0])
    with pytest.raises(DamagedError, match=r"segment-000000.dibs is damaged.*another one was expected"):
        load_all(target)
    a.write_bytes(contents[0])
    with pytest.raises(DamagedError, match=r"segment-000001.dibs"):
        load_all(target)
    b.unlink()
    with pytest.raises(DamagedError, match=r"segment-000001.dibs is damaged: it is missing"):
        load_all(target)
    b.write_bytes(contents[1])
    write_manifest(target, replace(manifest, segments=(replace(manifest.segments[0], rows=4),)))
    with pytest.raises(DamagedError, match=r"has 9 rows, index.dibs says 4"):
        load_all(target)
    write_file(target / HEAD, "manifest", {"index": "auto"}, {})
    with pytest.raises(DamagedError, match="makes no sense"):
        load_all(target)
    write_file(a, "segment", {"rows": 3}, {})
    with pytest.raises(FormatError, match="another version"):
        load(a)


def test_a_full_disk_leaves_the_saved_index(tmp_path: Path) -> None:
    program = """
        import os, sys
        from pathlib import Path
        from dibs.errors import StorageError
        from test_files import TEXTS, load_all, numbered, pairs, save_all

        small, large = [numbered(TEXTS)], [numbered(TEXTS * 10), numbered(TEXTS * 2_000)]
        target = Path(sys.argv[1]) / "index"
        manifest = save_all(small, target, "auto")
        for where in (target, target.with_name("new")):
            try:
                save_all(large, where, "auto")
            except StorageError as e:
                assert "disk is full" in str(e), e
            else:
                raise AssertionError("it was written")
        assert os.listdir(target.parent) == ["index"], os.listdir(target.parent)
        assert sorted(os.listdir(target)) == ["index.dibs", "segment-000000.dibs"], os.listdir(target)
        assert load_all(target)[0] == manifest
        assert save_all(small, target, "auto").next_file == 2
    """
    if not may_mount(tmp_path):
        pytest.skip("nothing may be mounted here; test_a_limit_on_files tests the same of single files")
    run(program, str(tmp_path), before=f"mount -t tmpfs -o size=2m none '{tmp_path}'")


def test_readers_while_an_index_is_replaced(tmp_path: Path) -> None:
    target = tmp_path / "index"
    choices = [[numbered(TEXTS)], [numbered(TEXTS[:3]), numbered(TEXTS[3:], 50)]]
    save_all(choices[0], target, "auto")
    stop = threading.Event()
    saved = 0

    def write() -> None:
        nonlocal saved
        while not stop.is_set():
            saved += 1
            save_all(choices[saved % 2], target, "auto", version=saved)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        versions = []
        for _ in range(150):
            manifest, loaded = load_all(target)
            assert len(loaded) == 1 + manifest.version % 2 and sum(map(len, loaded)) == len(TEXTS)
            versions.append(manifest.version)
    finally:
        stop.set()
        writer.join()
    assert versions == sorted(versions) and len(set(versions)) > 5


def test_two_save_the_same_new_folder(tmp_path: Path) -> None:
    """Whoever comes second replaces the index of the first."""
    made = [numbered(TEXTS)]
    for attempt in range(20):
        target = tmp_path / f"{attempt}"
        problems: list[BaseException] = []

        def save_it(target: Path = target, problems: list[BaseException] = problems) -> None:
            try:
                save_all(made, target, "auto")
            except BaseException as e:
                problems.append(e)

        threads = [threading.Thread(target=save_it) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert problems == []
        assert pairs(load_all(target)[1][0]) == pairs(made[0])
    assert len(names(tmp_path)) == 20


def test_killed_while_saving(tmp_path: Path) -> None:
    """Whenever the writer dies, the folder holds the index before or the one after."""
    program = """
        import sys
        from pathlib import Path
        from test_files import TEXTS, numbered, save_all

        choices = [[numbered(TEXTS * 20)], [numbered(TEXTS), numbered(TEXTS * 9, 50)]]
        version = int(sys.argv[2])
        while True:
            version += 1
            save_all(choices[version % 2], Path(sys.argv[1]), "auto", version)
            print(version, flush=True)
    """
    target = tmp_path / "index"
    rng = random.Random(5)
    version = 0
    for _ in range(5):
        command = [sys.executable, "-c", textwrap.dedent(program), str(target), str(version)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=HERE) as writer:
            assert writer.stdout is not None
            told = int(writer.stdout.readline())
            time.sleep(rng.random() * 0.05)
            writer.send_signal(signal.SIGKILL)
            told = max([told, *(int(line) for line in writer.stdout.read().split())])
        manifest, loaded = load_all(target)
        assert manifest.version in (told, told + 1)  # what was told is there
        assert [len(s) for s in loaded] == ([9, 81] if manifest.version % 2 else [180])
        version = manifest.version
    save_all([], target, "auto")
    assert names(target) == [HEAD]  # whatever the dead left behind is gone


def test_the_head_stays_readable(tmp_path: Path) -> None:
    """The first line says what a file is, to people too."""
    save_all([numbered(TEXTS)], tmp_path / "index", "auto")
    first = (tmp_path / "index" / HEAD).read_text().splitlines()[0].split()
    assert first[:3] == ["dibs", str(store.FORMAT), "manifest"]
    assert (
        (tmp_path / "index" / "segment-000000.dibs").read_bytes().startswith(f"dibs {store.FORMAT} segment ".encode())
    )
