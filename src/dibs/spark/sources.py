"""What `match` takes as subscriptions, as a version of index files that workers can open.

    a path          what dibs.spark.compile or Matcher.save wrote; a durable folder, as it is now; Parquet or Delta
    a Matcher       as it is now
    a DataFrame     compiled: on the driver if it is small, else by dibs.spark.compile; before the kernels are there,
                    a few are not (cold.py)

What is compiled here lies in a folder named by its content, so that it is not compiled again: below `index_dir` for
good, or else below a folder that goes when the driver's Python ends (or, if that was killed, when the next one comes).
"""

from __future__ import annotations

import atexit
import hashlib
import importlib.metadata
import os
import re
import shutil
import tempfile
import weakref
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, LongType, StringType

from dibs import engine
from dibs.errors import ArgumentError, DibsError, FormatError, SubscriptionErrors
from dibs.language.types import Types
from dibs.matcher import Matcher, OnError
from dibs.segments.segment import Choice, Segment
from dibs.spark.cold import Texts, is_cold, kinds_of, read_texts
from dibs.spark.compile import compile
from dibs.spark.frames import is_frame, is_local, no_subscriptions, not_subscriptions, subscription_columns, table_frame
from dibs.spark.mistakes import Asked, count_kinds, count_uses
from dibs.spark.places import Folder, Place, has_versions, local_path, place_of
from dibs.spark.session import describe_jobs
from dibs.spark.tasks import Job, bad_rows, compile_rows, frame_rejected, write_bad
from dibs.storage import store, versions
from dibs.storage.versions import Version, VersionSegment
from dibs.tuning import tuned

SPARK_COLLECTED = tuned("spark_collected", 100_000, 5, "subscriptions", "compiled on the driver, not by a job")

# Index files up to this size travel inside the job to workers that cannot see them. Spark Connect takes messages of
# 128 MiB at most.
CARRIED_BYTES = 64 * 2**20
LEAST_BYTES = 60  # of a compiled subscription, beside its text
AT_ONCE = 10_000  # subscriptions of a frame that are brought to the driver before they are counted
OWN = re.compile(r"dibs-driver-(\d+)-\w+")


@dataclass(frozen=True)
class Source:
    """Index files, and what the driver has to know of them."""

    place: Place
    version: Version
    shared: bool  # the place is one that workers see too
    texts: Texts | None = None  # the subscriptions themselves, of which there is no index

    @property
    def id_type(self) -> DataType:
        return LongType() if self.version.ids == "int64" else StringType()

    def count_uses(self, asked: Collection[Asked]) -> dict[Asked, int]:
        """Where that is known without bringing files here."""
        if self.texts is not None:
            return count_kinds(map(kinds_of, self.texts), asked)
        if not isinstance(self.place, Folder):
            return {}
        return count_uses(versions.load_state(self.place.path, self.version).layers, asked)

    def frame_rejected(self, session: SparkSession) -> DataFrame:
        return frame_rejected(session, self.place, self.version, self.id_type, self.shared)


def open_source(
    subscriptions: Any,
    session: SparkSession,
    choice: Choice,
    on_error: OnError,
    index_dir: str | os.PathLike[str] | None,
    version: int | None = None,
    may_be_texts: bool = False,
    types: Types | None = None,
) -> Source:
    """may_be_texts: workers can do without an index. types: of attributes; what is compiled already has its own.

    Raises SubscriptionErrors (on_error="raise"), DibsError for what is no subscriptions."""
    if isinstance(subscriptions, (str, os.PathLike)):
        if _is_index(subscriptions):
            return _typed(_check(_of_path(subscriptions, session, version), subscriptions), types)
        frame = table_frame(session, subscriptions)
        if frame is None:
            raise no_subscriptions(subscriptions)
        subscriptions = frame
    if version is not None:
        raise DibsError("version= is for the path of compiled subscriptions: what dibs.spark.compile wrote")
    if isinstance(subscriptions, Matcher):
        return _typed(_check(_of_state(subscriptions, index_dir), "the matcher"), types)
    if not is_frame(subscriptions):
        raise not_subscriptions(subscriptions)
    return _of_frame(subscriptions, choice, on_error, index_dir, may_be_texts and not types, dict(types or {}))


def _typed(source: Source, types: Types | None) -> Source:
    """Refuses others than it has."""
    own = source.version.types
    if types is not None and dict(types) != own:
        raise ArgumentError(
            f"the subscriptions have {f'the types {own}' if own else 'no types'}, and match is given {types}: leave "
            "types out, or compile them with these"
        )
    return source


def _is_index(path: str | os.PathLike[str]) -> bool:
    if local_path(path) is None:
        return has_versions(path)  # else Spark may know it
    place = place_of(path)
    assert isinstance(place, Folder)
    return versions.is_versioned(place.path) or (place.path / store.HEAD).exists() or store.is_durable(place.path)


def _check(source: Source, named: Any) -> Source:
    if source.version.ids == "mixed":
        raise DibsError(
            f"the ids in {named} are integers and strings, and a column of Spark has one type: save two indexes, or "
            "make all ids strings"
        )
    return source


# ---- what is there already ----


def _of_path(path: str | os.PathLike[str], session: SparkSession, version: int | None) -> Source:
    place = place_of(path)
    if not isinstance(place, Folder) or versions.is_versioned(place.path):
        return Source(place, place.read(version), shared=True)
    if version is not None:
        raise DibsError(f"{path} has no versions: dibs.spark.compile writes them")
    if store.is_durable(place.path):
        matcher = _follow(place.path)
        return _of_state(matcher, None)
    manifest, segments = store.load_all(place.path)
    saved = versions.of_saved(place.path, manifest, segments)
    return Source(_pin(place, saved) if is_local(session) else place, saved, shared=True)


@lru_cache(maxsize=16)
def _follow(folder: Path) -> Matcher:
    """A durable matcher, which follows its writer: of its next state only what is new is saved."""
    return Matcher.open(folder, read_only=True)


def _pin(place: Folder, saved: Version) -> Place:
    """A folder with the same files under further names, which stay when something is saved over the index."""
    folder = own_folder() / f"pinned-{saved.fingerprint}"
    try:
        for name in saved.files():
            folder.mkdir(exist_ok=True)
            with suppress(FileExistsError):
                os.link(place.path / name, folder / name)
    except OSError:  # another filesystem, or none that has links: then a job says when its files are gone
        return place
    return Folder(folder) if saved.segments else place


_stored: weakref.WeakKeyDictionary[Segment, tuple[Path, VersionSegment]] = weakref.WeakKeyDictionary()


def _of_state(matcher: Matcher, index_dir: str | os.PathLike[str] | None) -> Source:
    """The state of a matcher: segments that were saved before are not written again."""
    state = matcher.snapshot()
    root = own_folder() if index_dir is None else _local_folder(index_dir)
    stored = []
    for layer in state.layers:
        known = _stored.get(layer.segment)
        if known is None or known[0] != root or not (root / known[1].file).exists():
            known = _stored[layer.segment] = (root, versions.save_segment(root, layer.segment))
        file = known[1]
        if layer.gone.count:
            name, head = versions.save_removed(root, layer.gone.list_rows())
            file = replace(file, removed=name, removed_head=head, removed_rows=layer.gone.count)
        stored.append(file)
    version = versions.describe(
        state.version, matcher.choice, tuple(stored), [x.segment for x in state.layers], matcher.types
    )
    return Source(Folder(root), version, shared=index_dir is not None)


# ---- what is compiled now ----


def _of_frame(
    subscriptions: DataFrame,
    choice: Choice,
    on_error: OnError,
    index_dir: str | os.PathLike[str] | None,
    may_be_texts: bool,
    types: dict[str, str],
) -> Source:
    table = subscription_columns(subscriptions)
    session = subscriptions.sparkSession
    local, shared = is_local(session), index_dir is not None
    # A few are brought here at once: one job. Of more, Spark says first how many there are.
    with describe_jobs(session, "reads the subscriptions"):
        rows = collect(table.frame.drop("deleted").limit(AT_ONCE + 1))
    if len(rows) <= AT_ONCE:
        if local and not shared and may_be_texts and is_cold(choice):
            read = read_texts(rows, table.text_ids, table.weighted, on_error)
            if read is not None:
                return Source(Folder(own_folder()), read[1], True, texts=read[0])
        counted: tuple[int, int, Any] = len(rows), pc.sum(pc.utf8_length(rows["expression"])).as_py() or 0, _hash(rows)
    else:
        with describe_jobs(session, "counts the subscriptions"):
            rows, counted = None, _count(table.frame)
    least = counted[0] * LEAST_BYTES + counted[1]
    if not shared and not local and least > CARRIED_BYTES:
        raise too_large(least, "take more than")
    about = (importlib.metadata.version("dibs"), store.FORMAT, tuple(choice), on_error, table.text_ids, table.weighted)
    name = hashlib.blake2b(repr((*about, *types.items(), *map(str, counted))).encode(), digest_size=16).hexdigest()
    place = _below(own_folder() if index_dir is None else index_dir, name)
    if not place.numbers():
        if counted[0] > SPARK_COLLECTED.value and (local or shared):
            compile(
                subscriptions,
                place.name,
                shards=1,
                index=choice.name,
                options=dict(choice.options),
                on_error=on_error,
                types=types or None,
            )
        else:
            rows = collect(table.frame.drop("deleted")) if rows is None else rows
            _compile_here(rows, place, choice, table.text_ids, table.weighted, on_error, types)
    return Source(place, place.read(), shared)


def _hash(rows: pa.Table) -> str:
    """The same for the same rows, in whatever order they come."""
    content = pa.BufferOutputStream()
    ordered = rows.sort_by([("id", "ascending"), ("expression", "ascending"), ("weight", "ascending")])
    with pa.ipc.new_stream(content, rows.schema) as writer:
        writer.write_table(ordered.combine_chunks())
    return hashlib.blake2b(content.getvalue(), digest_size=16).hexdigest()


def _count(frame: DataFrame) -> tuple[int, int, Any]:
    """How many rows there are, how long their expressions are together, and sums of hashes of all rows."""
    hashes = [F.xxhash64(F.lit(seed), "id", "expression", "weight").cast("decimal(20,0)") for seed in (1, 2)]
    sums = [F.sum(h).alias(f"h{i}") for i, h in enumerate(hashes)]
    told = frame.agg(F.count(F.lit(1)).alias("rows"), F.sum(F.length("expression")).alias("size"), *sums)
    (seen,) = told.collect()
    return seen.rows, seen.size or 0, tuple(map(str, seen[2:]))


def too_large(size: int, words: str) -> DibsError:
    return DibsError(
        f"the compiled subscriptions {words} {size / 2**20:,.0f} MiB, and at most {CARRIED_BYTES / 2**20:,.0f} MiB "
        "travel with a job: give index_dir=, a folder on a filesystem that the driver and all workers share (or a "
        "URL), or compile them with dibs.spark.compile"
    )


def _below(root: str | os.PathLike[str], name: str) -> Place:
    return place_of(f"{os.fspath(root)}/{name}")


def _local_folder(path: str | os.PathLike[str]) -> Path:
    place = place_of(path)
    if not isinstance(place, Folder):
        raise DibsError(f"a matcher cannot be saved below {path}: give a folder, or compile it with dibs.spark.compile")
    place.path.mkdir(parents=True, exist_ok=True)
    return place.path


def _compile_here(
    table: pa.Table,
    place: Place,
    choice: Choice,
    text_ids: bool,
    weighted: bool,
    on_error: OnError,
    types: dict[str, str],
) -> None:
    """Few subscriptions are quicker compiled by the driver than by a job."""
    engine.compile_kernels()  # for all kernels: those of the workers too, which get them from here
    job = Job(place.name, 1, choice.name, dict(choice.options), weighted, text_ids, len(table), None, False, True, None)
    job = replace(job, types=types)
    matcher, bad = compile_rows(table, job)
    if bad and on_error == "raise":
        raise SubscriptionErrors(bad)
    staged = place.staging
    segments = [layer.segment for layer in matcher.snapshot().layers]
    stored = tuple(versions.save_segment(staged, segment) for segment in segments)
    place.upload(staged, [s.file for s in stored])
    if bad:
        write_bad(place, bad_rows(job, bad, pa.chunked_array([pa.array(range(len(table)), pa.int64())])), job)
    version = versions.describe(1, choice, stored, segments, types)
    ids = "string" if text_ids else "int64"
    about = {"rows": len(table), "counted": {"0": len(table)}}
    with suppress(FormatError):  # somebody else was faster, with the same
        place.commit(replace(version, ids=ids, weighted=weighted, rejected=len(bad), about=about))


def collect(frame: DataFrame) -> pa.Table:
    """The frame on the driver; if it does not fit, what to do."""
    try:
        return frame.toArrow()
    except Exception as e:
        if any(word in str(e) for word in ("TaskResultLost", "maxResultSize", "OutOfMemory", "heap space")):
            raise DibsError(
                "the rows do not fit through Spark's driver (spark.driver.maxResultSize, spark.driver.memory): compile "
                "the subscriptions on the workers, dibs.spark.compile(subscriptions, path), and match with the path; "
                "or give index_dir=, a folder that the driver and all workers share"
            ) from e
        raise


@lru_cache(maxsize=1)
def own_folder() -> Path:
    """A folder of this process. Those of processes that were killed are removed."""
    root = Path(tempfile.gettempdir())
    for folder in root.glob("dibs-driver-*"):
        found = OWN.fullmatch(folder.name)
        with suppress(OSError):
            if found and folder.stat().st_uid == os.getuid() and not Path(f"/proc/{found[1]}").exists() and _has_proc():
                shutil.rmtree(folder, ignore_errors=True)
    mine = tempfile.mkdtemp(prefix=f"dibs-driver-{os.getpid()}-")
    atexit.register(shutil.rmtree, mine, ignore_errors=True)
    return Path(mine)


def _has_proc() -> bool:
    return Path("/proc/self").exists()
