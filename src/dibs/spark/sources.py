"""Subscriptions of a DataFrame to index files, on the driver.

The files lie in a folder named by their content, so subscriptions that were compiled before are not compiled again:
below `index_dir` for good, or else below a folder that goes when the driver's Python ends.
"""

from __future__ import annotations

import atexit
import hashlib
import importlib.metadata
import os
import shutil
import tempfile
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ByteType, DataType, IntegerType, LongType, NumericType, ShortType, StringType

from dibs import loading
from dibs.errors import DibsError, Rejected
from dibs.matcher import Matcher, OnError
from dibs.storage import store

COLUMNS = "id (a string or an integer), expression (a string) and, if wanted, weight (a number)"


@dataclass(frozen=True)
class CompiledIndex:
    """Index files, and what the driver has to know of them."""

    path: Path
    id_type: DataType  # StringType or LongType
    weighted: bool
    attributes: frozenset[str]  # that the subscriptions mention
    shared: bool  # the path is one that workers see too
    rejected: list[Rejected] = field(default_factory=list)


_compiled: dict[Path, CompiledIndex] = {}


def saved_index(path: str | os.PathLike[str]) -> CompiledIndex:
    """What Matcher.save wrote; or the present state of a durable matcher, which is saved for the workers, so that all
    of them match the same one."""
    matcher = Matcher.load(path)
    folder = Path(path).absolute()
    durable = store.is_durable(folder)
    if durable:
        folder = _own_folder() / f"{matcher.stats()['storage']['identity']}-{matcher.version}"
        if not folder.exists():
            matcher.save(folder)
        matcher = Matcher.load(folder)
    kind = matcher.match_batch([]).pairs().schema.field("subscription").type
    if pa.types.is_union(kind):
        raise DibsError(
            f"the ids in {path} are integers and strings, and a column of Spark has one type: save two indexes, or "
            "make all ids strings"
        )
    id_type = LongType() if pa.types.is_integer(kind) else StringType()
    return CompiledIndex(folder, id_type, matcher.weighted, matcher.attributes, shared=not durable)


def compile_subscriptions(
    subscriptions: DataFrame, index: str, on_error: OnError, index_dir: str | os.PathLike[str] | None
) -> CompiledIndex:
    """Collects, compiles and saves the subscriptions. on_error="raise": SubscriptionErrors names every bad one."""
    table, id_type = _collect(subscriptions)
    root = Path(index_dir).absolute() if index_dir is not None else _own_folder()
    path = root / _digest(table, index, on_error)
    known = _compiled.get(path)
    if known is not None and path.exists():
        return known
    rejected: list[Rejected] = []
    if path.exists() and on_error == "raise":  # of an earlier driver, which found nothing to reject
        matcher = Matcher.load(path)
    else:
        loading.wait()  # for all kernels: those of the workers too, which get them from here
        matcher = Matcher(index=index)
        rejected = matcher.add_table(table, on_error=on_error)
        if not path.exists():
            matcher.save(path)
    weighted = "weight" in table.column_names
    _compiled[path] = CompiledIndex(path, id_type, weighted, matcher.attributes, index_dir is not None, rejected)
    return _compiled[path]


def rejected_frame(session: SparkSession, compiled: CompiledIndex) -> DataFrame:
    """The rejected subscriptions: position (in the order in which they were collected), id, expression, error."""
    id_type = pa.int64() if isinstance(compiled.id_type, LongType) else pa.string()
    columns = {
        "position": pa.array([r.position for r in compiled.rejected], pa.int64()),
        "id": pa.array([r.id for r in compiled.rejected], id_type),
        "expression": pa.array([r.expression for r in compiled.rejected], pa.string()),
        "error": pa.array([str(r.error) for r in compiled.rejected], pa.string()),
    }
    return session.createDataFrame(pa.table(columns))


def _collect(subscriptions: DataFrame) -> tuple[pa.Table, DataType]:
    """The columns of the subscriptions as an Arrow table, and the type of the ids in the result."""
    if subscriptions.isStreaming:
        raise DibsError(
            "the subscriptions are a streaming DataFrame, but they are compiled once, at the start: read a batch"
        )
    count = subscriptions.columns.count
    if count("id") != 1 or count("expression") != 1 or count("weight") > 1:
        raise DibsError(f"expected subscriptions with the columns {COLUMNS}; found {subscriptions.columns}")
    types = {f.name: f.dataType for f in subscriptions.schema.fields}
    if isinstance(types["id"], StringType):
        id_type: DataType = StringType()
    elif isinstance(types["id"], (ByteType, ShortType, IntegerType, LongType)):
        id_type = LongType()
    else:
        raise DibsError(
            f"the ids of the subscriptions are of the type {types['id'].simpleString()}; expected string or an integer "
            "type: cast them"
        )
    if not isinstance(types["expression"], StringType):
        raise DibsError(f"the expressions are of the type {types['expression'].simpleString()}; expected string")
    if not isinstance(types.get("weight", LongType()), NumericType):
        raise DibsError(f"the weights are of the type {types['weight'].simpleString()}; expected a number: cast them")
    # Positions, as columns of a frame may be called the same but for upper and lower case.
    numbered = subscriptions.toDF(*(f"c{i}" for i in range(len(subscriptions.columns))))
    wanted = [
        F.col(f"c{subscriptions.columns.index('id')}").cast(id_type).alias("id"),
        F.col(f"c{subscriptions.columns.index('expression')}").alias("expression"),
    ]
    if "weight" in types:
        wanted.append(F.col(f"c{subscriptions.columns.index('weight')}").cast("double").alias("weight"))
    return numbered.select(*wanted).toArrow(), id_type


class _Hash:
    """A file that keeps only the hash of what is written."""

    def __init__(self) -> None:
        self.hash = hashlib.blake2b(digest_size=16)
        self.closed = False

    def write(self, data: Any) -> int:
        self.hash.update(data)
        return len(memoryview(data))

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True


def _digest(table: pa.Table, index: str, on_error: str) -> str:
    content = _Hash()
    content.write(repr((importlib.metadata.version("dibs"), store.FORMAT, index, on_error)).encode())
    with pa.ipc.new_stream(content, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    return content.hash.hexdigest()


@lru_cache(maxsize=1)
def _own_folder() -> Path:
    folder = tempfile.mkdtemp(prefix="dibs-driver-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)
