"""Is a durable folder whole? Each file by its checksums, then segments and catalog against each other.

Nothing is mended or written here (but SQLite's empty log, which every reader needs). While a writer is active it may
swap the manifest, trim the log and remove files; what looks wrong is therefore looked at again with the newer manifest,
if there is one by then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dibs.arrays import from_numpy, to_numpy
from dibs.errors import DibsError, FormatError, StorageError
from dibs.segments.segment import DEFAULT_WEIGHT
from dibs.storage.catalog import Catalog
from dibs.storage.files import read_file, strings_of
from dibs.storage.manifest import HEAD, Manifest, StoredSegment, read_manifest
from dibs.storage.store import CATALOG, load_removed

TRIES = 20
REBUILT = "nothing is lost: the next opening rebuilds it from the catalog"
ID_TYPES = (pa.int64(), pa.large_string())


class Finding(NamedTuple):
    """What was found about one kind of files."""

    part: str
    about: str
    problems: list[str]


class CheckedRows(NamedTuple):
    """Subscriptions whose ids are of one type."""

    ids: pa.Array
    texts: pa.Array
    weights: NDArray[np.float64]
    versions: NDArray[np.int64]

    def at(self, rows: Any) -> CheckedRows:
        places = from_numpy(np.asarray(rows, np.int64))
        return CheckedRows(self.ids.take(places), self.texts.take(places), self.weights[rows], self.versions[rows])


def check_folder(folder: Path) -> list[Finding]:
    """All parts of a durable folder. Raises FormatError when it is none."""
    if not (folder / CATALOG).is_dir():
        raise FormatError(f"{folder} holds no durable matcher: it has no folder {CATALOG}")
    catalog: Catalog | None = None
    about, problems = "cannot be read", []
    try:
        catalog = Catalog.open(folder / CATALOG, read_only=True)
        problems = catalog.check()
        sizes = catalog.sizes()
        about = f"{sizes['entries']:,} subscriptions, {sizes['log']:,} changes in the log, {sizes['file']:,} bytes"
        if sizes["documents"]:
            about += f", {sizes['documents']:,} documents"
    except DibsError as e:
        problems = [str(e)]
    try:
        return [Finding("catalog", about, problems), *_files(folder, None if problems else catalog)]
    finally:
        if catalog is not None:
            catalog.close()


def _files(folder: Path, catalog: Catalog | None) -> list[Finding]:
    before: Manifest | None = None
    parts: list[Finding] = []
    for attempt in range(TRIES):
        manifest, part = _manifest(folder, catalog)
        if attempt and manifest == before:
            break
        before = manifest
        parts = [part]
        if manifest is None:
            break
        parts += _segments(folder, catalog, manifest)
        if not any(part.problems for part in parts):
            break
    return parts


def _manifest(folder: Path, catalog: Catalog | None) -> tuple[Manifest | None, Finding]:
    try:
        manifest = read_manifest(folder)
    except FileNotFoundError:
        lost = catalog is not None and catalog.trimmed > 0
        return None, Finding("manifest", "there is none", [f"{folder / HEAD} is missing; {REBUILT}"] if lost else [])
    except DibsError as e:
        return None, Finding("manifest", "cannot be read", [f"{e}; {REBUILT}"])
    problems = []
    if catalog is not None and manifest.identity != catalog.identity:
        problems.append(f"{folder / HEAD} belongs to another catalog; put both back from one backup")
    elif catalog is not None and manifest.version > catalog.version:
        newer = f"the manifest is of version {manifest.version:,}, the catalog ends at {catalog.version:,}"
        problems.append(f"{newer}: changes are missing from it; put both back from one backup")
    return manifest, Finding("manifest", f"version {manifest.version:,}, index {manifest.index}", problems)


def _segments(folder: Path, catalog: Catalog | None, manifest: Manifest) -> list[Finding]:
    found: list[CheckedRows] = []
    problems: dict[str, list[str]] = {"segments": [], "removed": []}
    names: dict[str, list[str]] = {"segments": [], "removed": []}
    for stored in manifest.segments:
        gone = np.empty(0, np.int64)
        names["segments"].append(stored.file)
        if stored.removed is not None:
            names["removed"].append(stored.removed)
            try:
                gone = load_removed(folder / stored.removed, stored.removed_head)
            except (DibsError, FileNotFoundError) as e:
                problems["removed"].append(_tell(folder / stored.removed, e))
        try:
            found.append(_rows(folder, stored, gone))
        except (DibsError, FileNotFoundError, KeyError) as e:
            problems["segments"].append(_tell(folder / stored.file, e))
    parts = [Finding(kind, _sizes(folder, names[kind]), problems[kind]) for kind in names]
    if catalog is None or any(part.problems for part in parts):
        return parts
    try:
        same, changes, differences = _compare(catalog, manifest.version, found)
    except DibsError as e:
        return [*parts, Finding("agreement", "cannot be told", [str(e)])]
    about = f"{same:,} subscriptions are the same in segments and catalog; {changes:,} changes to replay"
    return [*parts, Finding("agreement", about, differences)]


def _tell(path: Path, error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return f"{path} is missing; {REBUILT}"
    return f"{error if isinstance(error, DibsError) else f'{path} lacks {error}'}; {REBUILT}"


def _sizes(folder: Path, names: list[str]) -> str:
    size = sum((folder / name).stat().st_size for name in names if (folder / name).exists())
    return f"{len(names):,} file{'s' * (len(names) != 1)}, {size:,} bytes"


def _rows(folder: Path, stored: StoredSegment, gone: NDArray[np.int64]) -> CheckedRows:
    """The subscriptions of a segment's file that are not gone."""
    path = folder / stored.file
    _, arrays = read_file(path, "segment", head=stored.head)
    ids = from_numpy(arrays["ids"]) if "ids" in arrays else strings_of("ids", arrays)
    weights = arrays.get("weights")
    weights = np.full(len(ids), DEFAULT_WEIGHT) if weights is None else weights
    texts = strings_of("texts", arrays)
    if "spellings" in arrays:
        texts = texts.take(from_numpy(np.repeat(np.arange(len(texts)), np.diff(arrays["spellings"]))))
    rows = CheckedRows(ids, texts, weights, arrays["versions"])
    if len(ids) != stored.rows or (len(gone) and not 0 <= gone.min() <= gone.max() < stored.rows):
        raise FormatError(f"{path} has {len(ids):,} rows, which is not what {HEAD} and the removed rows say")
    return rows.at(np.setdiff1d(np.arange(len(ids)), gone))


# ---- segments against catalog ----


def _compare(catalog: Catalog, since: int, segments: Sequence[CheckedRows]) -> tuple[int, int, list[str]]:
    """(subscriptions that are the same, changes since, differences). Only those that no change since concerns are
    compared; the others are what the log is replayed for."""
    _, columns = catalog.columns()
    news = catalog.news(since)  # after the columns: what came between is left out on both sides
    if news is None:
        raise StorageError(catalog.folder, "its log does not go back to the manifest, or the writer trims it just now")
    ids = {*news.removed, *(entry.id for entry in news.entries)}
    same, differences = 0, []
    for id_type in ID_TYPES:
        changed = pa.array([id for id in ids if isinstance(id, str) == (id_type != pa.int64())], id_type)
        ours = _is_ordered([rows for rows in segments if rows.ids.type == id_type], id_type, changed)
        truth = _is_ordered([CheckedRows(*c[:4]) for c in columns if c[0].type == id_type], id_type, changed)
        found = list(_differences(ours, truth))
        differences += found
        same += 0 if found else len(truth.ids)
    return same, news.version - since, differences


def _is_ordered(parts: Sequence[CheckedRows], id_type: pa.DataType, changed: pa.Array) -> CheckedRows:
    """All parts as one in the order of ids, without those that changed."""
    none = np.empty(0)
    empty = CheckedRows(pa.array([], id_type), pa.array([], pa.large_string()), none, none.astype(np.int64))
    ids, texts, weights, versions = zip(*(empty, *parts))
    whole = CheckedRows(
        pa.concat_arrays(ids), pa.concat_arrays(texts), np.concatenate(weights), np.concatenate(versions)
    )
    order = to_numpy(pc.sort_indices(whole.ids))
    if len(changed):
        concerned = to_numpy(pc.is_in(whole.ids, value_set=changed))
        order = order[~concerned[order]]
    return whole.at(order)


def _differences(ours: CheckedRows, truth: CheckedRows) -> Iterator[str]:
    if not ours.ids.equals(truth.ids):
        for one, other, where in ((ours, truth, "segments"), (truth, ours, "catalog")):
            only = pc.filter(one.ids, pc.invert(pc.is_in(one.ids, value_set=other.ids)))
            if len(only):
                yield f"{len(only):,} subscriptions are only in the {where}; the first is {only[0].as_py()!r}"
        repeated = len(ours.ids) - len(pc.unique(ours.ids))
        if repeated:
            yield f"{repeated:,} subscriptions are in the segments twice"
        return
    for name, wrong in (
        ("expressions", to_numpy(pc.not_equal(ours.texts, truth.texts))),
        ("weights", ours.weights != truth.weights),
        ("versions", ours.versions != truth.versions),
    ):
        places = np.flatnonzero(wrong)
        if len(places):
            first = truth.ids[int(places[0])].as_py()
            yield f"{len(places):,} {name} differ between segments and catalog; the first is that of {first!r}"
