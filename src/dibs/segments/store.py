"""A segment as a directory: one .npy file for each array, Arrow files for ids, texts and names, and segment.json.

Everything is memory-mapped on loading, so it costs no time and the processes of a machine share the pages. Arrays
are mapped copy-on-write: to the kernels they look like the writable arrays of a fresh segment (one compiled version
serves both), and nothing is ever written back.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dibs.coding.clauses import Clauses
from dibs.coding.domain import Domains
from dibs.errors import FormatError
from dibs.index import restore
from dibs.language.table import Facet
from dibs.segments.ids import IdIndex
from dibs.segments.segment import Segment

FORMAT = 2
MANIFEST = "segment.json"
HEAD = "index.dibs"  # of a directory of segments: format, number of segments, index


def save(segment: Segment, directory: Path) -> None:
    """Writes the segment; the directory must not exist. The manifest comes last: without it nothing is there."""
    directory.mkdir(parents=True)
    arrays: dict[str, NDArray[Any]] = {"id_hashes": segment.ids.hashes, "id_rows": segment.ids.rows}
    if segment.weights is not None:
        arrays["weights"] = segment.weights
    arrays |= {f"domains.{n}": getattr(segment.domains, n) for n in Domains.ARRAYS}
    arrays |= {f"clauses.{n}": getattr(segment.clauses, n) for n in Clauses.ARRAYS}
    arrays |= {f"index.{n}": a for n, a in segment.index.arrays().items()}
    for name, array in arrays.items():
        np.save(directory / f"{name}.npy", array, allow_pickle=False)
    for name, column in (
        ("ids", segment.ids.ids),
        ("texts", segment.texts),
        ("names", pa.array([n for n, _ in segment.domains.attributes], pa.large_string())),
    ):
        batch = pa.record_batch([column], names=[name])
        with pa.ipc.new_file(str(directory / f"{name}.arrow"), batch.schema) as writer:
            writer.write_batch(batch)
    manifest = {
        "format": FORMAT,
        "index": segment.index.name,
        "rows": len(segment),
        "conjunctions": segment.clauses.conjunctions,
        "arrays": sorted(arrays),
    }
    partial = directory / (MANIFEST + ".partial")
    partial.write_text(json.dumps(manifest, indent=1))
    os.replace(partial, directory / MANIFEST)


def load(directory: Path) -> Segment:
    """Opens a saved segment."""
    try:
        manifest = json.loads((directory / MANIFEST).read_text())
    except FileNotFoundError:
        raise FormatError(
            f"{directory} holds no saved index: {MANIFEST} is missing; save one with Matcher.save"
        ) from None
    except ValueError as e:
        raise FormatError(f"{directory / MANIFEST} is damaged ({e}); compile the index again") from None
    if manifest.get("format") != FORMAT:
        raise FormatError(
            f"{directory} has the format {manifest.get('format')!r}, this version of Dibs reads {FORMAT}: "
            "compile the index again, or use the version of Dibs that wrote it"
        )
    try:
        arrays = {name: _map(directory / f"{name}.npy") for name in manifest["arrays"]}
        ids, texts, names = (_map_column(directory / f"{n}.arrow") for n in ("ids", "texts", "names"))
    except (OSError, ValueError, pa.ArrowInvalid) as e:
        raise FormatError(f"{directory} is damaged: {e}; compile the index again") from None

    def part(prefix: str) -> dict[str, NDArray[Any]]:
        return {n[len(prefix) :]: a for n, a in arrays.items() if n.startswith(prefix)}

    own = part("domains.")
    attributes = [(name, Facet(f)) for name, f in zip(names.to_pylist(), own["facet"].tolist())]
    clauses = Clauses(**part("clauses."), conjunctions=manifest["conjunctions"], attributes=len(attributes))
    if not len(ids) == len(texts) == len(clauses) == manifest["rows"]:
        raise FormatError(f"{directory} is damaged: its parts differ in length; compile the index again")
    return Segment(
        ids=IdIndex(ids, arrays["id_hashes"], arrays["id_rows"]),
        texts=texts,
        weights=arrays.get("weights"),
        domains=Domains(attributes=attributes, **own),
        clauses=clauses,
        index=restore(manifest["index"], clauses, part("index.")),
    )


def _map(path: Path) -> NDArray[Any]:
    if os.path.getsize(path) == 0:
        raise ValueError(f"{path.name} is empty")
    array = np.load(path, mmap_mode="c", allow_pickle=False)
    return np.asarray(array).view(np.ndarray)


def _map_column(path: Path) -> pa.Array:
    with pa.memory_map(str(path)) as source:
        return pa.ipc.open_file(source).get_batch(0).column(0)


def save_all(segments: list[Segment], target: Path, index: str) -> None:
    """Writes the segments of a matcher as one directory. An index that stands there is replaced; anything else is left
    alone and refused."""
    if target.exists() and (not target.is_dir() or (any(target.iterdir()) and not (target / HEAD).exists())):
        raise FormatError(f"{target} exists and holds no saved index: give a new folder")
    partial = target.with_name(f"{target.name}.partial-{os.getpid()}")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    for i, segment in enumerate(segments):
        save(segment, partial / f"segment-{i}")
    (partial / HEAD).write_text(f"{FORMAT} {len(segments)} {index}\n")
    if target.exists():
        shutil.rmtree(target)
    os.replace(partial, target)


def load_all(source: Path) -> tuple[str, list[Segment]]:
    """The index name and the segments of a saved matcher."""
    try:
        version, segments, index = (source / HEAD).read_text().split()
    except (FileNotFoundError, NotADirectoryError):
        raise FormatError(f"{source} holds no saved index; write one with Matcher.save") from None
    except ValueError:
        raise FormatError(f"{source / HEAD} is damaged; save the index again") from None
    if version != str(FORMAT):
        raise FormatError(f"{source} has the format {version}, this version of Dibs reads {FORMAT}")
    return index, [load(source / f"segment-{i}") for i in range(int(segments))]
