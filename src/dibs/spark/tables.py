"""A table of subscriptions that others write while a stream reads it.

A table has no lock, and most writers replace it file by file. So a version of it is taken only if it is whole, as far
as one can see: it is there, it can be read, nobody has begun to write it without end, and its files are the same before
and after they were read. (Those of this machine are linked, and the links are read: a writer that replaces files faster
than Spark reads them is no hindrance.) Otherwise the stream goes on with what it has, says so in its progress
(BatchMetrics.notice), and looks again before the next batch.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import pyarrow as pa
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from dibs.arguments import OnError
from dibs.errors import ArgumentError, DibsError, show
from dibs.language.types import Types
from dibs.spark.applying import become
from dibs.spark.fed import Fed, Heard, collect_subscriptions, log
from dibs.spark.frames import FORMATS, find_format, is_local, is_table_name
from dibs.spark.places import MARK, UNFINISHED, first_line, is_hidden, is_unfinished, local_path, spark_path
from dibs.spark.snapshots import id_type_of

SHRINK = 0.5
PATIENCE = 30.0  # seconds that a start waits for whoever is writing
PAUSE = 0.5
PLAIN = ("parquet", "orc", "json", "csv", "text", "avro")  # formats of which a table is its files, wherever they lie


@dataclass(frozen=True)
class Table:
    """A table of subscriptions (id, expression[, weight]), read again when it has changed. path: of its files, or the
    name of a table or view that Spark's catalog knows (one that has no files is read before each batch). format: any
    that Spark reads; "delta" by itself where the path has a Delta log. With a path that is not of this machine Spark is
    asked for its files before each batch. shrink: a table that has lost more than this share of the subscriptions since
    it was read last is first reported, in the progress of one batch, and used from the next on if it still is so."""

    path: str
    format: str | None = None
    options: dict[str, str] = field(default_factory=dict)
    shrink: float = SHRINK

    def __post_init__(self) -> None:
        if isinstance(self.shrink, bool) or not isinstance(self.shrink, (int, float)) or not 0 <= self.shrink <= 1:
            raise ArgumentError(f"shrink is a share of the subscriptions, from 0 to 1, not {show(self.shrink)}")

    def kind(self) -> str:
        if self.format is not None:
            return self.format
        local = local_path(self.path)
        found = None if local is None else find_format(Path(local))
        return found or FORMATS.get(Path(self.path).suffix, "parquet")

    def is_named(self, spark: SparkSession) -> bool:
        """Whether the path is the name of a table, and of nothing else."""
        return is_table_name(spark, self.path) and self.format is None

    def read(self, spark: SparkSession) -> DataFrame:
        if self.is_named(spark):
            return spark.table(self.path)
        return spark.read.format(self.kind()).options(**self.options).load(spark_path(self.path))


class _NotWhole(DibsError):
    """A table that cannot be taken now. passing: it is being written."""

    def __init__(self, message: str, passing: bool = False) -> None:
        self.passing = passing
        super().__init__(message)


class TableFeed(Fed):
    def __init__(
        self, table: Table, spark: SparkSession, folder: Path, on_error: OnError, types: Types | None = None
    ) -> None:
        super().__init__(folder, on_error, types)
        self._table, self._spark = table, spark
        self._stamp: object = None  # of the table as it was taken
        self._shrunk: object = None  # of one that was reported
        self._noticed: str | None = None  # and logged
        self._at_start: str | None = None  # for the first batch

    def start(self, stay: bool) -> None:
        until = time.monotonic() + PATIENCE
        while True:
            try:
                return self._refresh(starting=True)
            except _NotWhole as error:
                if error.passing and time.monotonic() < until:
                    time.sleep(PAUSE)
                elif len(self._matcher):  # of an earlier start: check says so
                    return self._note(error)
                else:
                    raise DibsError(f"the table of subscriptions {self._table.path} cannot be used: {error}") from None

    def check(self) -> Heard:
        try:
            self._refresh(starting=False)
            self._noticed = None
        except _NotWhole as error:
            self._note(error)
        at_start, self._at_start = self._at_start, None
        return Heard(self._take(), self._noticed or at_start)

    def _note(self, error: _NotWhole) -> None:
        kept = f"the subscriptions of the last good version ({len(self._matcher):,}) are used on"
        notice = f"{self._table.path}: {error}; {kept}"
        if notice != self._noticed:
            log.warning("%s", notice)
        self._noticed = notice

    def _refresh(self, starting: bool) -> None:
        """Takes the table, if it has changed. Raises _NotWhole; then everything is as it was."""
        stamp = self._look()
        if stamp == self._stamp:
            return
        rows = self._read(stamp)
        before = len(self._matcher)
        if len(rows) < before * (1 - self._table.shrink):
            share = f"{self._table.shrink:.0%}"
            told = f"it has shrunk from {before:,} subscriptions to {len(rows):,}, by more than {share}"
            if starting:  # there may be no next batch
                self._at_start = f"{self._table.path}: {told}"
                log.warning("%s", self._at_start)
            elif stamp != self._shrunk:
                self._shrunk = stamp
                raise _NotWhole(f"{told}: it is used from the next batch on, if it still is so")
        if not starting:
            self._check_ids(rows)
        self.tell(become(self._matcher, rows, self._on_error))
        self._stamp = stamp

    def _read(self, stamp: object) -> pa.Table:
        """The table that looks so, whole."""
        table, look = self._table, self._look
        with tempfile.TemporaryDirectory(prefix="table-", dir=self.folder.parent) as folder:
            links = self._link(Path(folder))
            if links is not None:
                _check_same(stamp, look)
                table, look = replace(table, path=str(links), format=table.kind()), partial(_look_at, links)
                stamp = look()
            try:
                rows = self._collect(table)
            except _NotWhole as error:
                _check_same(stamp, look, error)
                raise
            _check_same(stamp, look)
        return rows

    def _link(self, folder: Path) -> Path | None:
        """Where the table's files, as they are now, can be read whatever becomes of the table. None: only where they
        are."""
        local, spark = local_path(self._table.path), self._spark
        if local is None or not is_local(spark) or self._table.is_named(spark) or self._table.kind() not in PLAIN:
            return None
        if is_pattern(local) or is_pattern(str(folder)):
            return None
        source, links = Path(local), folder / Path(local).name
        try:
            for file in [source] if source.is_file() else _files(source):
                link = links / file.relative_to(source)
                link.parent.mkdir(parents=True, exist_ok=True)
                os.link(file, link)
        except FileNotFoundError as error:
            raise _NotWhole("it was changed while it was read", passing=True) from error
        except OSError:  # another filesystem, or one that has no links
            return None
        return links

    def _collect(self, table: Table) -> pa.Table:
        try:
            return collect_subscriptions(table.read(self._spark))
        except (PySparkException, Py4JJavaError, pa.ArrowException, OSError) as error:
            told = first_line(error).replace(table.path, self._table.path)
            raise _NotWhole(f"it cannot be read: {told}") from error
        except DibsError as error:
            raise _NotWhole(str(error)) from error

    def _check_ids(self, rows: pa.Table) -> None:
        """The column of ids in the matches has one type for as long as the stream runs."""
        known, found = id_type_of(self._matcher), rows.schema.field("id").type
        if known is not None and (known == pa.int64()) != pa.types.is_integer(found):
            before = "integers" if known == pa.int64() else "strings"
            advice = "start the stream again to take it"
            raise _NotWhole(f"its ids are of the type {found} now, and were {before}: {advice}")

    def _look(self) -> object:
        """Another value when the table has changed. Raises _NotWhole when it is not there, or being written."""
        local = local_path(self._table.path)
        try:
            if self._table.is_named(self._spark):
                return self._ask_catalog()
            if local is None or is_pattern(local):
                return self._ask_spark()
            return _look_at(Path(local))
        except OSError as error:  # a file that was just there
            raise _NotWhole(f"it was changed while it was looked at ({error})", passing=True) from error
        except (PySparkException, Py4JJavaError) as error:
            raise _NotWhole(f"its files cannot be listed: {first_line(error)}") from error

    def _ask_catalog(self) -> object:
        """The files of the table, or of what a view looks at."""
        self._spark.catalog.refreshTable(self._table.path)
        files = [local_path(name) or name for name in self._spark.table(self._table.path).inputFiles()]
        here = [Path(name) for name in files if Path(name).exists()]
        if not files or len(here) < len(files):  # it must be read to see whether it has changed
            return object()
        unfinished = [folder for folder in {file.parent for file in here} if is_unfinished(folder)]
        if unfinished:
            raise _unfinished()
        return _stamps(here)

    def _ask_spark(self) -> object:
        if is_unfinished(self._table.path, self._spark):
            raise _unfinished()
        listed = self._spark.read.format("binaryFile").option("recursiveFileLookup", "true").load(self._table.path)
        return sorted(map(tuple, listed.select("path", "length", "modificationTime").collect()))


def is_pattern(path: str) -> bool:
    """Whether Spark takes it for one."""
    return any(sign in path for sign in "*?[{")


def _check_same(stamp: object, look: Callable[[], object], error: Exception | None = None) -> None:
    if type(stamp) is not object and look() != stamp:
        raise _NotWhole("it was changed while it was read", passing=True) from error


def _files(folder: Path) -> list[Path]:
    return [p for p in folder.rglob("*") if p.is_file() and not any(map(is_hidden, p.relative_to(folder).parts))]


def _look_at(path: Path) -> object:
    if path.is_file():
        status = path.stat()
        return status.st_size, status.st_mtime_ns
    if not path.is_dir():
        raise _NotWhole("it is not there")
    log_folder = path / "_delta_log"
    if log_folder.is_dir():
        return _stamps(p for p in log_folder.rglob("*") if p.is_file())
    if is_unfinished(path):
        raise _unfinished()
    found = _files(path)
    if not found:
        raise _NotWhole("it has no files")
    return _stamps(found)


def _stamps(paths: Iterable[Path]) -> object:
    return sorted((str(p), s.st_size, s.st_mtime_ns) for p in paths for s in [p.stat()])


def _unfinished() -> _NotWhole:
    return _NotWhole(f"it is being written, or its writer died: it has {UNFINISHED} and no {MARK}", passing=True)
