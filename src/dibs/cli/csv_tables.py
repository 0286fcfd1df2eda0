"""CSV files as tables. The first row names the columns; an empty cell is missing, a quoted empty one is an empty text.

A file is read twice: once for the types of the columns (csv_types), which every value decides, and once for the rows.
Standard input and other pipes cannot be read twice and are kept in a temporary file meanwhile.

Arrow reads ahead in threads of its own. It is only ever given files that it opens itself: a thread that reads from a
Python file while the interpreter ends takes the whole process down.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

from dibs.cli.formats import STANDARD, open_input, show_name
from dibs.cli.outcome import BadInput
from dibs.lazy import lazy

if TYPE_CHECKING:
    import pyarrow as pa

    from dibs.cli.csv_types import Kind

BLOCK = 8 << 20  # bytes at a time, and the most that a row may have


def choose_types(words: Sequence[str] | None) -> dict[str, Kind]:
    """What --types says of columns of CSV. (Seconds since 1970 are read as the numbers that they are.)"""
    if not words:
        return {}
    from dibs.cli.csv_types import Kind

    named = {name: "text" if type_ == "string" else type_ for name, type_ in declared_types(words).items()}
    return {name: Kind[type_] for name, type_ in named.items() if type_ in Kind.__members__}


def declared_types(words: Sequence[str] | None) -> dict[str, str]:
    """What --types says: name=type,name=type. A name may hold commas and equals signs."""
    if not words:
        return {}
    from dibs.language.types import KINDS, SYNONYMS

    found_types: dict[str, str] = {}
    for text in words:
        rest = text
        while rest:
            found = re.match(r"(.+?)=([^=,]*)(?:,|$)", rest, re.DOTALL)
            if found is None or (found[2] not in KINDS and found[2] not in SYNONYMS):
                wrong = f"{found[2]!r} is no type" if found else f"{rest!r} names no type"
                raise typer.BadParameter(
                    f"{wrong}; expected name=type, with commas between several, and text, number, boolean, date, "
                    "timestamp, timestamp_seconds, timestamp_millis or timestamp_micros as type",
                    param_hint="--types",
                )
            found_types[found[1]], rest = SYNONYMS.get(found[2], found[2]), rest[found.end() :]
    return found_types


def _is_regular(name: str) -> bool:
    """Whether the file can be read twice; a pipe cannot. Raises OSError for a file that cannot be read at all."""
    return stat.S_ISREG(os.stat(name).st_mode)


class CsvTable:
    """A CSV file, a batch at a time. kinds: of columns, where the user says them; those elsewhere may be missing. ids:
    columns that name things."""

    def __init__(
        self,
        name: str,
        kinds: Mapping[str, Kind] | None = None,
        ids: Collection[str] = (),
        elsewhere: Collection[str] = (),
    ):
        self.name, self.kinds, self.ids, self.elsewhere = name, dict(kinds or {}), ids, elsewhere
        self._kept: Any = None  # a copy of standard input
        self.path = name
        if name == STANDARD or not _is_regular(name):
            self._kept = tempfile.NamedTemporaryFile(prefix="dibs-", suffix=".csv")  # noqa: SIM115 as long as this lives
            with open_input(name) as source:
                shutil.copyfileobj(source, self._kept)
            self._kept.flush()
            self.path = self._kept.name

    @lazy
    def names(self) -> list[str]:
        with self._reading():
            return list(self._open([]).schema.names)

    @lazy
    def columns(self) -> list[Any]:
        """The columns with all that their types need, when all rows have been looked at."""
        from dibs.cli.csv_types import Column

        unknown = [name for name in self.kinds if name not in self.names and name not in self.elsewhere]
        if unknown:
            raise BadInput(
                f"{show_name(self.name)} has no column {unknown[0]!r}, as --types says, only "
                f"{', '.join(map(repr, self.names))}"
            )
        columns = [
            Column(name, self.kinds.get(name), name in self.ids and name not in self.kinds) for name in self.names
        ]
        first = 1
        with self._reading():
            for batch in self._open(self.names):
                for column, texts in zip(columns, batch.columns):
                    try:
                        column.look(texts, first)
                    except BadInput as error:
                        raise BadInput(f"{show_name(self.name)}, {error}") from None
                first += len(batch)
        return columns

    @lazy
    def schema(self) -> pa.Schema:
        import pyarrow as pa

        return pa.schema([(column.name, column.type()) for column in self.columns])

    def notes(self, wanted: Collection[str]) -> list[str]:
        """What people should know of the columns of these names."""
        notes = [column.note() for column in self.columns if column.name in wanted]
        return [f"{show_name(self.name)}: {note}" for note in notes if note]

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        from dibs.cli.csv_types import convert_column

        types = self.schema.types
        with self._reading():
            for batch in self._open(self.names):
                arrays = [convert_column(texts, type_) for texts, type_ in zip(batch.columns, types)]
                yield pa.RecordBatch.from_arrays(arrays, names=self.names)

    def texts(self) -> pa.Table:
        """Everything at once, as text."""
        with self._reading():
            return self._open(self.names).read_all()

    def _open(self, texts: list[str]) -> Any:
        """texts: columns that are read as they stand."""
        import pyarrow as pa
        import pyarrow.csv as pc

        options = pc.ConvertOptions(
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            check_utf8=False,  # whoever reads the values says which are none
            column_types=dict.fromkeys(texts, pa.string()),
        )
        return pc.open_csv(
            self.path,
            pc.ReadOptions(block_size=BLOCK, use_threads=False),  # without threads it says which row is wrong
            pc.ParseOptions(newlines_in_values=True),
            options,
        )

    @contextmanager
    def _reading(self) -> Iterator[None]:
        import pyarrow as pa

        try:
            yield
        except UnicodeDecodeError:
            raise BadInput(f"{show_name(self.name)} cannot be read as csv: the first row is not UTF-8") from None
        except pa.ArrowException as error:
            text = str(error).splitlines()[0] if str(error) else type(error).__name__
            if "straddling" in text:
                text = f"a row is longer than {BLOCK >> 20} MB; is a quote not closed?"
            raise BadInput(f"{show_name(self.name)} cannot be read as csv: {text}") from None
