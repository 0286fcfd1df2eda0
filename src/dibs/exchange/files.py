"""The files of exports and imports: Parquet and JSON lines, written and read. What is in them: see __init__.py."""

from __future__ import annotations

import datetime as dt
import math
import os
from collections.abc import Iterable
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO, Union

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from dibs.coding.lines import read_lines as lines_of
from dibs.errors import DamagedError, DibsError, FormatError, Rejected, StorageError
from dibs.intake import check_columns, check_item
from dibs.language.expression import EPOCH
from dibs.segments.ids import Id
from dibs.segments.segment import DEFAULT_WEIGHT
from dibs.storage.files import storage_error, string_parts

FORMAT = 1
ROWS = 50_000  # of a row group, and in memory at once
PARQUET, LINES = ".parquet", ".jsonl"
FLAG = "id_is_integer"
READ = ("id", FLAG, "expression", "weight")  # what an import reads
CHECKSUM = "dibs.checksum"
INFINITE = {"Infinity": math.inf, "-Infinity": -math.inf}
EXPECTED = "expected id, expression and perhaps weight"

ColumnBatch = dict[str, pa.Array]
# ids, texts, weights (None: all the default), places of the good rows in the file, and the bad ones
Read = tuple[Union[list[Id], pa.Array], pa.Array, "NDArray[np.float64] | None", "NDArray[np.int64]", list[Rejected]]


# ---- writing ----


def write_parquet(file: BinaryIO, schema: pa.Schema, batches: Iterable[ColumnBatch]) -> None:
    checksum = _Checksum()
    # No dictionaries: nearly all values differ, and a dictionary of floats might not tell 0.0 from -0.0.
    with pq.ParquetWriter(file, schema, compression="zstd", use_dictionary=False, write_page_checksum=True) as writer:
        for columns in batches:
            integers = pa.types.is_integer(columns["id"].type)
            columns[FLAG] = pa.array(np.full(len(columns["id"]), integers))
            columns["id"] = columns["id"].cast(schema.field("id").type)
            batch = pa.record_batch([columns[name] for name in schema.names], schema=schema)
            checksum.add(batch)
            writer.write_batch(batch, ROWS)
        writer.add_key_value_metadata({CHECKSUM: checksum.text()})


class _Checksum:
    """Of the columns that an import reads, however their rows are divided."""

    def __init__(self) -> None:
        # Of each column its values, or the lengths of its strings; and apart from them the bytes of its strings.
        self._values = {name: blake2b(name.encode(), digest_size=16) for name in READ}
        self._bytes = {name: blake2b(name.encode(), digest_size=16) for name in READ}

    def add(self, rows: pa.RecordBatch | pa.Table) -> None:
        for name in READ:
            column = rows.column(name) if name in rows.schema.names else pa.array([], pa.int64())
            for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
                if pa.types.is_large_string(chunk.type):
                    starts, content = string_parts(name, chunk).values()
                    self._values[name].update(np.diff(starts).data)
                    self._bytes[name].update(content.data)
                else:
                    self._values[name].update(np.ascontiguousarray(chunk.to_numpy(zero_copy_only=False)).data)

    def text(self) -> str:
        parts = [own[name].digest() for own in (self._values, self._bytes) for name in READ]
        return blake2b(b"".join(parts), digest_size=16).hexdigest()


def write_lines(file: BinaryIO, names: list[str], batches: Iterable[ColumnBatch]) -> None:
    shown = {weight: text for text, weight in INFINITE.items()}
    for columns in batches:
        values = {name: columns[name].to_pylist() for name in names}
        values["weight"] = [shown.get(weight, weight) for weight in values["weight"]]
        if "time" in values:
            values["time"] = list(map(show_time, columns["time"].cast(pa.int64()).to_pylist()))
        rows = zip(*values.values())
        file.write(b"".join(orjson.dumps(dict(zip(names, r)), option=orjson.OPT_APPEND_NEWLINE) for r in rows))


def show_time(time: int) -> str:
    """UTC microseconds as text: 2026-01-31T12:00:00.000000Z."""
    return (EPOCH + dt.timedelta(microseconds=time)).isoformat(timespec="microseconds") + "Z"


def ending_of(path: Path) -> str:
    ending = path.suffix.lower()
    if ending not in (PARQUET, LINES):
        raise FormatError(f"{path}: the ending tells the format; use {PARQUET} or {LINES}")
    return ending


# ---- reading: Parquet ----


def read_parquet(source: Path) -> pa.Table:
    """The columns that count."""
    files = sorted(p for p in source.iterdir() if p.suffix.lower() == PARQUET) if source.is_dir() else [source]
    if not files:
        raise FormatError(f"{source}: the folder holds no {PARQUET} file")
    tables = [_read_file(file) for file in files]
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException as e:
        raise FormatError(f"{source}: its files differ in the types of their columns ({e})") from e


def _read_file(path: Path) -> pa.Table:
    try:
        with open(path, "rb") as file:
            is_parquet = file.read(4) == b"PAR1"
        # Arrow's own file: its threads must not read through Python, which may end before they do.
        native = pa.OSFile(os.fsencode(path))
        with native, pq.ParquetFile(native, page_checksum_verification=True) as content:
            schema = content.schema_arrow
            _check_schema(path, schema)
            table = content.read([name for name in READ if name in schema.names])
            checksum = (content.metadata.metadata or {}).get(CHECKSUM.encode())
    except OSError as e:
        if e.errno is not None:
            raise _unreadable(path, e) from e
        raise _no_parquet(path, is_parquet, e) from e
    except (pa.ArrowException, ValueError, KeyError, MemoryError) as e:
        raise _no_parquet(path, is_parquet, e) from e
    table = pa.table({name: _plain(table[name]) for name in table.column_names}, metadata=schema.metadata)
    if checksum is not None and checksum != _checksum_of(table):
        raise DamagedError(path, "its rows are not those that were exported; export it again, or take another copy")
    # The flag is ours only where it means something; a column of others may be called so too.
    is_mixed = FLAG in table.column_names and pa.types.is_boolean(table[FLAG].type)
    if FLAG in table.column_names and not (is_mixed and pa.types.is_large_string(table["id"].type)):
        table = table.drop_columns([FLAG])
    return table


def _checksum_of(table: pa.Table) -> bytes:
    checksum = _Checksum()
    try:
        checksum.add(table)
    except (ValueError, TypeError, pa.ArrowException):  # columns of a type that no export has
        return b""
    return checksum.text().encode()


def _check_schema(path: Path, schema: pa.Schema) -> None:
    made = (schema.metadata or {}).get(b"dibs.format", b"")
    if made.isdigit() and int(made) > FORMAT:
        raise FormatError(
            f"{path} is an export of the format {int(made)}; this version of Dibs reads {FORMAT}: use a newer one"
        )
    missing = [repr(name) for name in ("id", "expression") if name not in schema.names]
    if missing:
        there = ", ".join(map(repr, schema.names)) or "none"
        raise FormatError(f"{path} has no column {' and no column '.join(missing)}, only {there}; {EXPECTED}")
    for name in ("id", "expression", "weight", FLAG):
        if schema.names.count(name) > 1:
            raise FormatError(f"{path} has several columns {name!r}: leave one of them")
    if "weight" in schema.names:
        kind = schema.field("weight").type
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_null)
        if not any(test(kind) for test in tests):
            raise FormatError(f"{path}: the column 'weight' must hold numbers, not {kind}")


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Without dictionaries; strings of any size in all."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_string(column.type) or pa.types.is_string_view(column.type):
        column = column.cast(pa.large_string())
    return column


def _no_parquet(path: Path, is_parquet: bool, error: BaseException) -> FormatError:
    told = (str(error).splitlines() or [type(error).__name__])[0]
    if is_parquet or not path.stat().st_size:
        return DamagedError(path, f"it cannot be read ({told}); export it again, or take another copy")
    return FormatError(f"{path} is no Parquet file ({told}); {EXPECTED} in {PARQUET} or {LINES}")


def _unreadable(path: Path, error: OSError) -> StorageError:
    if isinstance(error, FileNotFoundError):
        return StorageError(path, "there is no such file: check the name")
    return storage_error(path, error)


def read_mixed(table: pa.Table) -> Read:
    """A table with ids of both types."""
    names, texts, weights, places, bad = check_columns(table)
    flags = table[FLAG].take(pa.array(places)).to_pylist()
    ids: list[Id] = []
    good: list[int] = []
    for i, (name, is_integer) in enumerate(zip(names.to_pylist(), flags)):
        try:
            ids.append(_integer(name) if is_integer else name)
            good.append(i)
        except DibsError as e:
            bad.append(Rejected(int(places[i]), name, texts[i].as_py(), e))
    if len(good) < len(places):
        texts, weights = texts.take(pa.array(good, pa.int64())), None if weights is None else weights[good]
    return ids, texts, weights, places[good], bad


def _integer(name: str) -> int:
    with suppress(ValueError):
        number = int(name)
        if str(number) == name and -(2**63) <= number < 2**63:
            return number
    raise DibsError(f"{FLAG} is true, but the id {name!r} is no integer of 64 bits")


# ---- reading: JSON lines ----


def read_lines(source: Path) -> Read:
    ids: list[Id] = []
    texts: list[str] = []
    weights: list[float] = []
    places: list[int] = []
    bad: list[Rejected] = []
    try:
        with open(source, "rb") as file:
            for lines in lines_of(file, str(source)):
                for number, line in zip(lines.numbers, lines.texts):
                    row: Any = None
                    try:
                        row = orjson.loads(line)
                        if not isinstance(row, dict):
                            raise DibsError(f"this is not a JSON object; {EXPECTED}")
                        id, text, weight = _item(row)
                    except orjson.JSONDecodeError as e:
                        if places and not lines.whole:
                            raise DamagedError(source, "its last line is cut off; export it again") from None
                        bad.append(Rejected(number - 1, None, None, DibsError(f"this is not JSON ({e})")))
                    except DibsError as e:
                        row = row if isinstance(row, dict) else {}
                        bad.append(Rejected(number - 1, row.get("id"), row.get("expression"), e))
                    else:
                        ids.append(id)
                        texts.append(text)
                        weights.append(weight)
                        places.append(number - 1)
    except OSError as e:
        raise _unreadable(source, e) from e
    if bad and not places:
        raise FormatError(f"{source} holds no subscription as a JSON line; line {bad[0].position + 1}: {bad[0].error}")
    own = None if all(weight == DEFAULT_WEIGHT for weight in weights) else np.array(weights, np.float64)
    return ids, pa.array(texts, pa.large_string()), own, np.array(places, np.int64), bad


def _item(row: dict[str, Any]) -> tuple[Id, str, float]:
    for name in ("id", "expression"):
        if row.get(name) is None:
            raise DibsError(f"there is no {name!r}; {EXPECTED}")
    weight = row.get("weight")
    if weight is None:
        return check_item((row["id"], row["expression"]))
    weight = INFINITE.get(weight, weight) if isinstance(weight, str) else weight
    return check_item((row["id"], row["expression"], weight))
