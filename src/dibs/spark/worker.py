"""What runs in Spark's Python workers: Arrow batches of events in, Arrow batches of matches out."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa

from dibs.coding.values import EventProblem
from dibs.errors import DibsError, FormatError
from dibs.jit.parcel import Parcel, unpack
from dibs.matcher import Matcher

# Events are matched in slices, chosen so that the pairs of one slice stay about so many, however often they match.
PAIRS_AT_ONCE = 1_000_000
FIRST_SLICE, LARGEST_SLICE = 1_000, 65_536
ROWS_IN_A_BATCH = 65_536  # of the output
PROBLEMS_SHOWN = 10  # of one event

log = logging.getLogger("dibs.spark")


def match_partition(
    batches: Iterable[pa.RecordBatch],
    path: str,
    files: dict[str, bytes] | None,
    kernels: tuple[str, bytes] | None,
    names: list[str],
    attributes: str | None,
    text_ids: bool,
    weighted: bool,
    matches: bool,
    warn: bool,
) -> Iterator[pa.RecordBatch]:
    """Rows (event_id, subscription_id[, weight], problem) for the events of one partition.

    The first column of a batch is the event id, the others are the attributes called `names`. A match has no
    problem; an event that cannot be read entirely gives one row more, with a problem and no subscription.
    `matches` False: only those rows. `warn`: nobody counts them, so say it in the worker's log.
    """
    if kernels is not None:
        unpack(Parcel(*kernels))
    matcher = _load(find_index(path, lambda: files))
    events = malformed = 0
    size = FIRST_SLICE
    for batch in batches:
        ids, columns = batch.column(0), attribute_columns(batch, names, attributes)
        start = 0
        while start < batch.num_rows:
            part = columns.slice(start, size)
            found = matcher.match_batch(part, attributes=attributes, on_error="skip")
            own_ids = ids.slice(start, part.num_rows)
            start += part.num_rows
            if matches:
                yield from _match_rows(own_ids, found.pairs(weights=weighted), text_ids)
            if found.problems:
                rows = _problem_rows(own_ids, found.problems, text_ids, weighted)
                malformed += rows.num_rows
                yield rows
            events += part.num_rows
            size = max(1, min(LARGEST_SLICE, part.num_rows * PAIRS_AT_ONCE // max(found.count, 1)))
    if malformed and warn:
        log.warning(
            "%d of %d events of a partition could not be read entirely (see dibs.spark.problems)", malformed, events
        )


def attribute_columns(batch: pa.RecordBatch, names: list[str], attributes: str | None) -> pa.RecordBatch:
    columns = batch.columns[1:]
    if attributes is not None:
        text = {pa.binary(): pa.string(), pa.large_binary(): pa.large_string()}.get(columns[0].type)
        if text is not None:  # JSON as bytes, as Kafka hands it over; whether they are UTF-8 shows when they are read
            columns = [columns[0].view(text)]
    return pa.RecordBatch.from_arrays(columns, names=names)


def _match_rows(ids: pa.Array, pairs: pa.Table, text_ids: bool) -> Iterator[pa.RecordBatch]:
    id_type = pa.string() if text_ids else pa.int64()
    for batch in pairs.to_batches(max_chunksize=ROWS_IN_A_BATCH):
        arrays = {
            "event_id": ids.take(batch.column("event")),
            "subscription_id": batch.column("subscription").cast(id_type),
        }
        if "weight" in pairs.column_names:
            arrays["weight"] = batch.column("weight")
        arrays["problem"] = pa.nulls(batch.num_rows, pa.string())
        yield pa.RecordBatch.from_pydict(arrays)


def _problem_rows(ids: pa.Array, problems: list[EventProblem], text_ids: bool, weighted: bool) -> pa.RecordBatch:
    """One row for each event that has problems."""
    texts: dict[int, list[str]] = {}
    for problem in problems:
        place = "" if problem.attribute is None else f"attribute {problem.attribute!r}: "
        texts.setdefault(problem.event, []).append(place + problem.message)
    for told in texts.values():
        if len(told) > PROBLEMS_SHOWN:
            told[PROBLEMS_SHOWN:] = [f"and {len(told) - PROBLEMS_SHOWN} more"]
    arrays = {
        "event_id": ids.take(pa.array(np.fromiter(texts, np.int64))),
        "subscription_id": pa.nulls(len(texts), pa.string() if text_ids else pa.int64()),
    }
    if weighted:
        arrays["weight"] = pa.nulls(len(texts), pa.float64())
    arrays["problem"] = pa.array(["; ".join(told) for told in texts.values()], pa.string())
    return pa.RecordBatch.from_pydict(arrays)


def _load(path: Path) -> Matcher:
    return _load_version(path, (path / "index.dibs").stat().st_mtime_ns)


@lru_cache(maxsize=4)  # workers live on from job to job
def _load_version(path: Path, saved_at: int) -> Matcher:
    return Matcher.load(path, threads=1)  # Spark runs a worker on each core already


def find_index(path: str, carried: Callable[[], dict[str, bytes] | None]) -> Path:
    """The folder of the index on this machine, written now if need be."""
    here = Path(path)
    if (here / "index.dibs").exists():
        return here
    files = carried()
    if files is None:
        raise FormatError(
            f"{path} holds no saved index on the worker machine {os.uname().nodename}: it must be on a filesystem that "
            "the driver and all workers share"
        )
    root = Path(tempfile.gettempdir()) / f"dibs-worker-{os.getuid()}"
    root.mkdir(mode=0o700, exist_ok=True)
    if root.stat().st_uid != os.getuid():
        raise DibsError(f"{root} belongs to another user: remove it, or set TMPDIR for the workers")
    target = root / here.name  # named by its content
    if not target.exists():
        partial = Path(tempfile.mkdtemp(dir=root))
        for name, content in files.items():
            (partial / name).parent.mkdir(exist_ok=True)
            (partial / name).write_bytes(content)
        try:
            partial.rename(target)
        except OSError:  # another worker was faster
            shutil.rmtree(partial)
            if not target.exists():
                raise
    return target
