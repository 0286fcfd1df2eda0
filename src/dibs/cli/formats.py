"""File formats, told by the ending of the name."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any, BinaryIO

from dibs.cli.outcome import BadInput

STANDARD = "-"  # standard input or output


class Format(str, Enum):
    jsonl = "jsonl"
    csv = "csv"
    parquet = "parquet"
    arrow = "arrow"


ENDINGS = {
    ".jsonl": Format.jsonl,
    ".ndjson": Format.jsonl,
    ".json": Format.jsonl,
    ".csv": Format.csv,
    ".parquet": Format.parquet,
    ".arrow": Format.arrow,
    ".feather": Format.arrow,
    ".ipc": Format.arrow,
}


def format_of(name: str, chosen: Format | None = None) -> Format:
    """The format of a file: the chosen one, else by its ending; standard input and output are JSON lines."""
    if chosen is not None:
        return chosen
    if name == STANDARD:
        return Format.jsonl
    found = Format.parquet if Path(name).is_dir() else ENDINGS.get(Path(name).suffix.lower())
    if found is None:
        raise BadInput(f"{name}: the ending tells no format; use one of {', '.join(ENDINGS)}, or --format")
    return found


def show_name(name: str) -> str:
    return "standard input" if name == STANDARD else name


def open_input(name: str) -> BinaryIO:
    import sys

    if name != STANDARD:
        return open(name, "rb")
    if sys.stdin is None:
        raise BadInput("standard input is closed: give the file's name")
    return sys.stdin.buffer


@contextlib.contextmanager
def reading(name: str, kind: Format) -> Iterator[None]:
    """Names the file in what Arrow says about it."""
    import pyarrow as pa

    try:
        yield
    except pa.ArrowException as error:
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise BadInput(f"{show_name(name)} cannot be read as {kind.value}: {text}") from None


def open_arrow(name: str) -> Any:
    """A reader of an Arrow file or an Arrow stream (Feather version 2 is an Arrow file)."""
    import pyarrow as pa

    if name == STANDARD:
        return pa.ipc.open_stream(open_input(name))
    try:
        return pa.ipc.open_file(pa.memory_map(name))
    except pa.ArrowInvalid:
        return pa.ipc.open_stream(pa.memory_map(name))


def open_parquet(name: str) -> Any:
    """A data set: one file, or a folder of them as Spark writes it."""
    import pyarrow.dataset as ds

    if name == STANDARD:
        raise BadInput("Parquet cannot be read from standard input (it is read from its end): give the file's name")
    if not Path(name).exists():
        raise BadInput(f"{name}: no such file or folder")
    return ds.dataset(name, format="parquet")
