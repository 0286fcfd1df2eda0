"""Segments and documents as files, and a folder of them: what Matcher.save writes and Matcher.load maps."""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dibs.arrays import from_numpy, from_strings, to_numpy
from dibs.coding.clauses import Clauses
from dibs.coding.computed.residuals import Residuals
from dibs.coding.domain import Domains
from dibs.coding.repeats import RowRuns
from dibs.errors import DamagedError, FormatError
from dibs.index import create, restore
from dibs.index.options import from_array
from dibs.language.table import LANGUAGE, Facet
from dibs.segments.ids import IdIndex
from dibs.segments.layer import Layer
from dibs.segments.segment import Segment
from dibs.segments.state import State
from dibs.segments.tombstones import Tombstones
from dibs.storage.documents import DocumentRow, HistoryHead, HistoryNews
from dibs.storage.files import (
    ADVICE,
    PARTIAL,
    read_file,
    storage_error,
    string_parts,
    strings_of,
    sync_folder,
    write_file,
)
from dibs.storage.files import FORMAT as FORMAT
from dibs.storage.manifest import HEAD as HEAD
from dibs.storage.manifest import Manifest, StoredSegment, history_name, read_manifest, segment_name, write_manifest
from dibs.storage.older import has_old_times, move_times

CATALOG = "catalog"  # the folder that makes a folder of segments a durable matcher
FACETS = list(Facet)  # by number
# What a saved index consists of, this format's and older ones', and what a writer that was cut short left behind.
OUR_NAMES = re.compile(r"(segment|removed|history)-(\d+)(\.dibs(\.partial)?)?|index\.dibs\.partial")


def is_durable(folder: Path) -> bool:
    """Whether the folder is that of a durable matcher, not of a saved one."""
    try:
        return (folder / CATALOG).is_dir()
    except OSError as e:  # that we may not look
        raise storage_error(folder, e) from e


class _Content(NamedTuple):
    """What is saved of a matcher."""

    segments: list[Segment]
    history: HistoryNews | None
    empty: Manifest  # the manifest without any files


# ---- one segment ----


def save(segment: Segment, path: Path) -> int:
    """Writes the segment as a file, and returns its head."""
    ids = segment.ids.ids
    arrays: dict[str, NDArray[Any]] = {"id_hashes": segment.ids.hashes, "id_rows": segment.ids.rows}
    arrays |= string_parts("ids", ids) if pa.types.is_large_string(ids.type) else {"ids": to_numpy(ids)}
    arrays |= string_parts("texts", segment.texts)
    if segment.weights is not None:
        arrays["weights"] = segment.weights
    arrays["versions"] = segment.versions
    arrays |= string_parts("names", from_strings([n for n, _ in segment.domains.attributes]))
    arrays |= {f"domains.{n}": getattr(segment.domains, n) for n in Domains.ARRAYS}
    arrays |= {f"clauses.{n}": getattr(segment.clauses, n) for n in Clauses.ARRAYS}
    arrays |= {f"index.{n}": a for n, a in segment.index.arrays().items()}
    if segment.residuals is not None:
        arrays |= {f"residuals.{n}": getattr(segment.residuals, n) for n in Residuals.ARRAYS}
        arrays |= string_parts("residual_forms", from_strings(segment.residuals.names))
    about: dict[str, Any] = {"index": segment.index.name}
    if segment.repeats is None:
        about["rows"] = len(segment)
    else:  # whoever takes each row to have a clause of its own misses `rows`, and says that it is another version
        about["repeated_rows"] = len(segment)
        arrays["repeats"] = segment.repeats.first
        if segment.spellings is not None:
            arrays["spellings"] = segment.spellings.first
    about |= {"conjunctions": segment.clauses.conjunctions, "language": LANGUAGE}
    return write_file(path, "segment", about, arrays)


def load(path: Path, head: int | None = None, settings: dict[str, Any] | None = None) -> Segment:
    """Opens a saved segment. head: what `save` returned, if it must be that one; settings: of its index."""
    about, arrays = read_file(path, "segment", head=head)

    def part(prefix: str) -> dict[str, NDArray[Any]]:
        return {n[len(prefix) :]: a for n, a in arrays.items() if n.startswith(prefix)}

    try:
        ids = from_numpy(arrays["ids"]) if "ids" in arrays else strings_of("ids", arrays)
        own = part("domains.")
        names = strings_of("names", arrays).to_pylist()
        attributes = [(name, FACETS[f]) for name, f in zip(names, own["facet"].tolist())]
        clauses = Clauses(**part("clauses."), conjunctions=about["conjunctions"], attributes=len(attributes))
        domains = Domains(attributes=attributes, **own)
        id_index = IdIndex(ids, arrays["id_hashes"], arrays["id_rows"])
        texts, versions = strings_of("texts", arrays), arrays["versions"]
        repeats, spellings = (RowRuns(arrays[n]) if n in arrays else None for n in ("repeats", "spellings"))
        name, rows = about["index"], about["rows" if repeats is None else "repeated_rows"]
        residuals = None
        if "residuals.row" in arrays:
            forms = strings_of("residual_forms", arrays).to_pylist()
            residuals = Residuals(forms, **part("residuals."), rows=len(clauses))
    except (KeyError, TypeError) as e:  # sound, but with other parts than ours: a format whose number was not changed
        raise FormatError(f"{path} was made by another version of Dibs ({e!r}): make the index again") from e
    spans = [(len(clauses), repeats), (len(texts), spellings)]
    if not len(ids) == len(versions) == rows or not all(_covers(its, size, rows) for size, its in spans):
        raise DamagedError(path, f"its parts differ in length; {ADVICE}")
    if about.get("language", 1) > LANGUAGE:
        raise FormatError(f"{path} was made by a later version of Dibs: open it with that one, or make the index again")
    is_older = about.get("language", 1) < LANGUAGE and has_old_times(domains)
    if is_older:
        domains, clauses = move_times(path, domains, clauses)
        options = from_array(arrays.get("index.options"))
        index = create(name, clauses, **((settings or {}) | options))
    else:
        index = restore(name, clauses, part("index."), **(settings or {}))
    shared = residuals, repeats, spellings
    segment = Segment(id_index, texts, arrays.get("weights"), versions, domains, clauses, index, *shared)
    segment.is_renewed = is_older
    return segment


def _covers(runs: RowRuns | None, size: int, rows: int) -> bool:
    """Whether there are as many as there are runs of rows, none of them empty; None: as many as rows."""
    if runs is None:
        return size == rows
    first = runs.first
    return len(first) == size + 1 and first[0] == 0 and first[-1] == rows and bool((np.diff(first) > 0).all())


def save_removed(rows: NDArray[np.int64], path: Path) -> int:
    """Writes which rows of a segment are gone, and returns the file's head."""
    return write_file(path, "removed", {}, {"rows": np.asarray(rows, np.int64)})


def load_removed(path: Path, head: int | None = None) -> NDArray[np.int64]:
    return read_file(path, "removed", head=head)[1]["rows"]


# ---- a history ----


def save_history(history: HistoryNews, path: Path) -> int:
    """Writes the documents as a file, and returns its head."""
    contents = [row.content.encode() if isinstance(row.content, str) else row.content for row in history.rows]
    arrays: dict[str, NDArray[Any]] = {
        "number": np.array([row.number for row in history.rows], np.int64),
        "size": np.array([row.size for row in history.rows], np.int64),
        "ends": np.cumsum([len(content) for content in contents], dtype=np.int64),
        "content": np.frombuffer(b"".join(contents), np.uint8),
        "gone": np.array(sorted(history.gone), np.int64),
    }
    rest = [[row.form, row.attributes, row.keys] for row in history.rows]
    return write_file(path, "history", {"head": history.head._asdict(), "rows": rest}, arrays)


def load_history(path: Path, head: int | None = None) -> HistoryNews:
    about, arrays = read_file(path, "history", head=head)
    try:
        content, ends = arrays["content"].tobytes(), arrays["ends"].tolist()
        rows = [
            DocumentRow(number, size, form, attributes, content[start:end], keys)
            for number, size, (form, attributes, keys), start, end in zip(
                arrays["number"].tolist(), arrays["size"].tolist(), about["rows"], [0, *ends], ends
            )
        ]
        return HistoryNews(HistoryHead(**about["head"]), rows, frozenset(arrays["gone"].tolist()))
    except (KeyError, TypeError, ValueError) as e:
        raise FormatError(f"{path} was made by another version of Dibs ({e!r}): save the matcher again") from e


# ---- a folder of segments ----


def save_all(
    segments: list[Segment],
    target: Path,
    index: str,
    version: int = 0,
    options: dict[str, Any] | None = None,
    history: HistoryNews | None = None,
    types: dict[str, str] | None = None,
) -> Manifest:
    """Writes the segments of a matcher, and its documents, as one folder. An index that stands there is replaced, at
    the moment when its manifest is; anything else is left alone and refused. One process may save to a folder at a
    time."""
    content = _Content(segments, history, Manifest(index, version, "", 0, (), options or {}, types=types or {}))
    try:
        if (target / CATALOG).exists():
            advice = "which a saved index cannot replace: give a new folder"
            raise FormatError(f"{target} holds a durable matcher, {advice}")
        if target.exists() and (not target.is_dir() or (any(target.iterdir()) and not (target / HEAD).exists())):
            raise FormatError(f"{target} exists and holds no saved index: give a new folder")
        if not (target / HEAD).exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            manifest = _save_new(content, target)
            if manifest is not None:
                return manifest
        return _save_over(content, target)
    except OSError as e:
        raise storage_error(target, e) from e


def _save_new(content: _Content, target: Path) -> Manifest | None:
    """Writes the folder beside and gives it its name when it is whole. None: somebody else was faster."""
    beside = target.with_name(f"{target.name}{PARTIAL}-{secrets.token_hex(4)}")
    beside.mkdir()
    try:
        manifest = _save_into(content, beside)
        os.replace(beside, target)  # which may be there, if it is empty
    except BaseException as e:
        shutil.rmtree(beside, ignore_errors=True)
        if isinstance(e, OSError) and e.errno in (errno.ENOTEMPTY, errno.EEXIST) and (target / HEAD).exists():
            return None
        raise
    sync_folder(target.parent)
    return manifest


def _save_over(content: _Content, target: Path) -> Manifest:
    """Adds new files, swaps the manifest, removes the old files: the folder holds a whole index all the time."""
    old = _ours(target)
    first = next_file(target)
    try:
        first = max(first, read_manifest(target).next_file)
    except FormatError:  # of another format or damaged: it is being replaced
        pass
    manifest = _save_into(content._replace(empty=replace(content.empty, next_file=first)), target)
    for name in old:  # what cannot be removed means nothing any more
        if (target / name[0]).is_dir():  # up to format 2
            shutil.rmtree(target / name[0], ignore_errors=True)
        else:
            with suppress(OSError):
                (target / name[0]).unlink()
    return manifest


def _ours(folder: Path) -> list[re.Match[str]]:
    return [found for name in sorted(os.listdir(folder)) if (found := OUR_NAMES.fullmatch(name))]


def next_file(folder: Path) -> int:
    """A number above those of all files in the folder, whether a manifest names them or not."""
    return max((int(name[2]) + 1 for name in _ours(folder) if name[2]), default=0)


def index_of(folder: Path) -> tuple[str, dict[str, Any]] | None:
    """Which index the largest segment in the folder has, and its options, if its manifest does not tell any more."""
    for path in sorted(folder.glob("segment-*.dibs"), key=lambda path: -path.stat().st_size):
        with suppress(FormatError, OSError):
            about, arrays = read_file(path, "segment", check=False)
            return str(about["index"]), from_array(arrays.get("index.options"))
    return None


def _save_into(content: _Content, folder: Path) -> Manifest:
    """The files, numbered from the next one on, and the manifest."""
    stored: list[StoredSegment] = []
    first = content.empty.next_file
    documents, documents_head, number = None, None, first
    try:
        for number, segment in enumerate(content.segments, first):
            name = segment_name(number)
            head = save(segment, folder / name)
            stored.append(StoredSegment(name, len(segment), None, head))
        number = first + len(content.segments)
        if content.history is not None:
            documents = history_name(number)
            documents_head = save_history(content.history, folder / documents)
            number += 1
        manifest = replace(
            content.empty,
            next_file=number,
            segments=tuple(stored),
            history=documents,
            history_head=documents_head,
        )
        write_manifest(folder, manifest)
        return manifest
    except BaseException:
        for file in (*(its.file for its in stored), documents):
            if file is not None:
                with suppress(OSError):
                    (folder / file).unlink()
        raise


def load_all(source: Path) -> tuple[Manifest, list[Segment]]:
    """As load_saved, without the documents."""
    return load_saved(source)[:2]


def load_saved(source: Path) -> tuple[Manifest, list[Segment], HistoryNews | None]:
    """The manifest of a folder, its segments (all rows, also those that the manifest's `removed` files name) and its
    documents, if it has some. If the index is replaced meanwhile, it is the new one."""
    manifest = _manifest(source)
    while True:
        try:
            segments = [_load_stored(source, stored) for stored in manifest.segments]
            return manifest, segments, _load_documents(source, manifest)
        except FormatError:
            before, manifest = manifest, _manifest(source)
            if manifest == before:
                raise


def state_of(source: Path, manifest: Manifest, segments: list[Segment]) -> State:
    """What load_saved has found, as the state of a matcher."""
    layers = [Layer(its, _gone_of(source, stored)) for its, stored in zip(segments, manifest.segments)]
    return State(manifest.version, tuple(layers))


def _gone_of(source: Path, stored: StoredSegment) -> Tombstones:
    """The rows that are gone from a segment, as it is stored. (Only durable folders and their snapshots have any.)"""
    gone = Tombstones(stored.rows)
    if stored.removed is None:
        return gone
    return gone.including(load_removed(source / stored.removed, stored.removed_head))


def _manifest(source: Path) -> Manifest:
    try:
        return read_manifest(source)
    except (FileNotFoundError, NotADirectoryError):
        raise FormatError(f"{source} holds no saved index; write one with Matcher.save") from None


def _load_documents(source: Path, manifest: Manifest) -> HistoryNews | None:
    if manifest.history is None:
        return None
    try:
        return load_history(source / manifest.history, manifest.history_head)
    except FileNotFoundError:
        raise DamagedError(source / manifest.history, f"it is missing, but {HEAD} names it; {ADVICE}") from None


def _load_stored(source: Path, stored: StoredSegment) -> Segment:
    path = source / stored.file
    try:
        segment = load(path, stored.head)
    except FileNotFoundError:
        raise DamagedError(path, f"it is missing, but {HEAD} names it; {ADVICE}") from None
    if len(segment) != stored.rows:
        raise DamagedError(path, f"it has {len(segment):,} rows, {HEAD} says {stored.rows:,}; {ADVICE}")
    return segment
