"""Matches of a stream that workers write to Parquet files themselves, where they see the sink's folder.

    .batch=12-NAME/part-*.parquet    written by tasks, which tell the driver their names
    batch=12/                        the same folder, renamed once all of them are done, in place of an earlier one

A million matches of a thousand events need not become rows of the JVM to be written: that took half of a micro-batch.
What tasks have left behind that failed, or were run twice, goes before the folder gets its name.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    TimestampNTZType,
    TimestampType,
)

from dibs.spark.frames import is_local
from dibs.spark.places import local_folder
from dibs.spark.worker import Task, run

TOLD = "file string"
CODEC, PROTOCOL = "spark.sql.parquet.compression.codec", "spark.sql.sources.commitProtocolClass"
BINARY = "UTF8_BINARY"
TYPES: dict[type[DataType], pa.DataType] = {
    StringType: pa.string(),
    BinaryType: pa.binary(),
    BooleanType: pa.bool_(),
    ByteType: pa.int8(),
    ShortType: pa.int16(),
    IntegerType: pa.int32(),
    LongType: pa.int64(),
    FloatType: pa.float32(),
    DoubleType: pa.float64(),
    DateType: pa.date32(),
    TimestampType: pa.timestamp("us", "UTC"),
    TimestampNTZType: pa.timestamp("us"),
}
SPARK_VERSION = b"org.apache.spark.version"  # by which Spark knows that old dates need no other calendar
CODECS = {"snappy": "snappy", "gzip": "gzip", "zstd": "zstd", "none": "none", "uncompressed": "none", "lz4_raw": "lz4"}


@dataclass(frozen=True)
class Target:
    folder: str
    schema: pa.Schema  # of the rows: what is carried, the lists of Found by element[, version]
    codec: str
    version: int | None  # of all subscriptions, if that is a column


def find_folder(path: str, fields: Sequence[StructField], spark: SparkSession) -> tuple[Path, str] | None:
    """On the driver: the folder that Spark would write rows of these fields to, and the codec that it would use, where
    workers can do the same; None: it is left to Spark."""
    if not is_local(spark) or any(arrow_type(field.dataType) is None for field in fields):
        return None
    codec = CODECS.get((spark.conf.get(CODEC, "snappy") or "snappy").lower())
    protocol = spark.conf.get(PROTOCOL, None)
    if codec is None or (protocol and not protocol.endswith(".SQLHadoopMapReduceCommitProtocol")):
        return None
    folder = local_folder(path, spark)
    return None if folder is None else (folder, codec)


def arrow_type(kind: DataType) -> pa.DataType | None:
    """How such a column is written; None: it is left to Spark."""
    if isinstance(kind, DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    return TYPES.get(type(kind)) if getattr(kind, "collation", BINARY) == BINARY else None


def write(batches: Iterable[pa.RecordBatch], task: Task, target: Target, **live: Any) -> Iterator[pa.RecordBatch]:
    """In a worker: writes the matches, and tells the name of the file, if there are any."""
    name = f"part-{secrets.token_hex(8)}.parquet"
    writer: pq.ParquetWriter | None = None
    try:
        for rows in run(batches, task, **live):
            if not len(rows):
                continue
            if writer is None:
                writer = _open(Path(target.folder) / name, target, len(task.events.carried))
            writer.write_batch(_flatten(rows, task, target))
    finally:
        if writer is not None:
            writer.close()
    yield pa.record_batch({"file": pa.array([] if writer is None else [name], pa.string())})


def _open(path: Path, target: Target, carried: int) -> pq.ParquetWriter:
    # Ids and values of events come many times each, ids of subscriptions seldom.
    repeated = target.schema.names[:carried]
    options = {"compression": target.codec, "use_dictionary": repeated, "store_schema": False}
    return pq.ParquetWriter(path, target.schema, write_statistics=True, **options)


def _flatten(rows: pa.RecordBatch, task: Task, target: Target) -> pa.RecordBatch:
    """A row for each match."""
    carried = task.events.carried
    counts = pc.list_value_length(rows.column("ids")).to_numpy()
    event = pa.array(np.repeat(np.arange(len(rows)), counts))
    columns = [rows.column(name).take(event) for name in carried]
    columns += [rows.column(name).flatten() for name in task.found.lists]
    if target.version is not None:
        columns.append(pa.array(np.full(len(event), target.version)))
    return pa.RecordBatch.from_arrays([c.cast(f.type) for c, f in zip(columns, target.schema)], schema=target.schema)


def begin(path: Path, batch: int) -> Path:
    """On the driver: the folder for the files of a batch. What earlier tries have left of it goes."""
    for left in path.glob(f".batch={batch}-*"):
        shutil.rmtree(left, ignore_errors=True)
    folder = path / f".batch={batch}-{secrets.token_hex(8)}"
    folder.mkdir(parents=True)
    return folder


def commit(folder: Path, path: Path, batch: int, files: Sequence[str], target: Target) -> None:
    """On the driver: the folder with these files as that of the batch."""
    folder = folder.rename(folder.with_name(f"{folder.name}-done"))  # tasks that run on can begin no file there
    if not files:  # readers find the columns all the same
        _open(folder / "part-none.parquet", target, 0).close()
        files = ["part-none.parquet"]
    for left in {file.name for file in folder.iterdir()} - set(files):
        (folder / left).unlink()
    (folder / "_SUCCESS").touch()
    there = path / f"batch={batch}"
    if there.exists():
        shutil.rmtree(there)
    folder.rename(there)
