"""Reading a file of subscriptions: id, expression and, if there is one, weight. Other fields are ignored.
Joins over history see documents of a file, and the events before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from dibs.cli.formats import Format, format_of, open_arrow, open_input, open_parquet, reading, show_name
from dibs.cli.outcome import BadInput, OnError, say, say_problems
from dibs.cli.progress import bar, load_engine
from dibs.coding.lines import number_lines

if TYPE_CHECKING:
    import pyarrow as pa

    from dibs.cli.csv_types import Kind
    from dibs.matcher import Matcher


EXPECTED = '{"id": "alice", "expression": "price <= 580"}, with "weight" if you like'


@dataclass
class Subscriptions:
    """What was read: a table, or items when ids of both types occur. Subscription i came from the place numbers[i]
    (counted from 1) of the file."""

    name: str
    unit: str  # line or row
    table: pa.Table | None
    items: list[tuple[Any, ...]]
    numbers: Sequence[int]
    problems: list[tuple[int, str]] = field(default_factory=list)  # (place, what is wrong)

    def __len__(self) -> int:
        return len(self.numbers)

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        """(id, expression) of each."""
        if self.table is None:
            yield from ((item[0], item[1]) for item in self.items)
            return
        for batch in self.table.to_batches(max_chunksize=10_000):
            yield from zip(batch.column("id").to_pylist(), batch.column("expression").to_pylist(), strict=True)

    def place(self, number: int) -> str:
        return f"{show_name(self.name)}, {self.unit} {number}"

    def show_problems(self) -> list[str]:
        return [f"{self.place(number)}: {message}" for number, message in sorted(self.problems)]


def read_subscriptions(name: str, chosen: Format | None = None, id_kind: Kind | None = None) -> Subscriptions:
    """All subscriptions of a file; lines that are none are in .problems. id_kind: the type of ids in CSV, where --types
    says it."""
    kind = format_of(name, chosen)
    if kind is Format.jsonl:
        return _from_json(name)
    return _from_csv(name, id_kind) if kind is Format.csv else _from_table(name, kind)


def load_file(
    name: str,
    on_error: OnError,
    index: str | None,
    threads: int | None,
    id_kind: Kind | None = None,
    writes: bool = False,
    types: dict[str, str] | None = None,
) -> tuple[Matcher, int]:
    """A matcher with the file's subscriptions, or with those of a compiled index or a durable folder; and how many bad
    ones it lacks. With on_error=raise a bad one is the end, with a list of all of them. writes: to be the writer of a
    durable folder. types: of attributes; a compiled index has its own."""
    load_engine()
    from dibs.matcher import Matcher

    matcher = Matcher(index=index or "auto", threads=threads, types=types)
    if (Path(name) / "index.dibs").exists():
        durable = writes and (Path(name) / "catalog").is_dir()
        loaded = Matcher.open(name, threads=threads) if durable else Matcher.load(name, threads=threads)
        if index not in (None, loaded.index):
            raise typer.BadParameter(
                f"{name} is compiled for the index {loaded.index!r}; give its subscriptions, or compile them with "
                f"--index {index}",
                param_hint="--index",
            )
        if types and types != loaded.types:
            own = f"the types {loaded.types}" if loaded.types else "no types"
            raise typer.BadParameter(f"{name} has {own}, which cannot be changed", param_hint="--types")
        return loaded, 0
    read = read_subscriptions(name, id_kind=id_kind)
    with bar("subscriptions", len(read)) as advance:
        if read.table is None:
            rejected = matcher.add_many(read.items, on_error="skip", progress=sum_up(advance))
        else:
            rejected = matcher.add_table(read.table, on_error="skip", progress=sum_up(advance))
    for r in rejected:
        read.problems.append((read.numbers[r.position], f"subscription {r.id!r}: {r.error}"))
    problems = read.show_problems()
    if problems and on_error is OnError.raise_:
        say_problems(f"{len(problems):,} bad subscription{'s' * (len(problems) != 1)}:", problems)
        raise BadInput("nothing was done; correct them, or leave them out with --on-error skip")
    return matcher, len(problems)


def sum_up(advance: Callable[[int], None]) -> Callable[[int], None]:
    """From "so many more" to "so many in all"."""
    done = 0

    def more(rows: int) -> None:
        nonlocal done
        done += rows
        advance(done)

    return more


def _from_json(name: str) -> Subscriptions:
    items: list[tuple[Any, ...]] = []
    numbers: list[int] = []
    problems = []
    for number, row, problem in _json_rows(name):
        problem = problem or _wrong(row)
        if problem:
            problems.append((number, problem))
            continue
        weight = row.get("weight")
        items.append((row["id"], row["expression"]) if weight is None else (row["id"], row["expression"], weight))
        numbers.append(number)
    return Subscriptions(name, "line", _as_table(items), items, numbers, problems)


def _as_table(items: list[tuple[Any, ...]]) -> pa.Table | None:
    """The bulk path wants ids of one type (and text that is valid Unicode); None where the items are not so."""
    import pyarrow as pa

    columns: dict[str, list[Any]] = {"id": [item[0] for item in items], "expression": [item[1] for item in items]}
    if any(len(item) == 3 for item in items):
        columns["weight"] = [item[2] if len(item) == 3 else None for item in items]
    try:
        return pa.table({k: _as_column(v, pa.float64() if k == "weight" else None) for k, v in columns.items()})
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, UnicodeEncodeError):
        return None


def _as_column(values: list[Any], type_: pa.DataType | None) -> pa.Array:
    import pyarrow as pa

    from dibs.arrays import from_ids

    return from_ids(values) if {*map(type, values)} in ({int}, {str}) else pa.array(values, type_)


def _json_rows(name: str) -> Iterator[tuple[int, dict[str, Any], str]]:
    import orjson

    with open_input(name) as file:
        for number, line in number_lines(file, show_name(name)):
            try:
                row = orjson.loads(line)
            except orjson.JSONDecodeError as error:
                yield number, {}, f"this is not JSON ({error}); expected {EXPECTED}"
                continue
            if isinstance(row, dict):
                yield number, row, ""
            else:
                yield number, {}, f"this is not a JSON object; expected {EXPECTED}"


def _wrong(row: dict[str, Any]) -> str:
    for key in ("id", "expression"):
        if row.get(key) is None:
            return f"there is no {key!r}; expected {EXPECTED}"
    if isinstance(row["id"], bool) or not isinstance(row["id"], (str, int)):
        return f"the id must be a text or an integer, not {row['id']!r}"
    if not isinstance(row["expression"], str):
        return f"the expression must be a text, not {row['expression']!r}"
    weight = row.get("weight")
    if weight is not None and (isinstance(weight, bool) or not isinstance(weight, (int, float))):
        return f"the weight must be a number, not {weight!r}"
    return ""


def _from_table(name: str, kind: Format) -> Subscriptions:
    import pyarrow as pa

    with reading(name, kind):
        table = open_parquet(name).to_table() if kind is Format.parquet else open_arrow(name).read_all()
    _check_columns(name, table.column_names)
    columns = {c: table[c] for c in ("id", "expression", "weight") if c in table.column_names}
    for column, values in columns.items():
        if pa.types.is_dictionary(values.type):
            columns[column] = values.cast(values.type.value_type)
    if "weight" in columns and not _is_number(columns["weight"].type):
        raise BadInput(f"{show_name(name)}: the column 'weight' must hold numbers, not {columns['weight'].type}")
    return Subscriptions(name, "row", pa.table(columns), [], range(1, len(table) + 1))


def _from_csv(name: str, id_kind: Kind | None) -> Subscriptions:
    """The columns of a file that is small enough to be in memory, by the rules of csv_types."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from dibs.cli.csv_tables import CsvTable
    from dibs.cli.csv_types import ANY_NUMBER, Column, convert_column

    file = CsvTable(name)
    _check_columns(name, file.names)
    table = file.texts().combine_chunks()
    texts = {c: _one(table[c]) for c in ("id", "expression", "weight") if c in file.names}
    column = Column("id", id_kind, is_id=id_kind is None)
    try:
        column.look(texts["id"], 1)
    except BadInput as error:
        raise BadInput(f"{show_name(name)}, {error}") from None
    columns = {"id": convert_column(texts["id"], column.type()), "expression": texts["expression"]}
    bad: list[tuple[int, str]] = []
    if "weight" in texts:
        good = pc.match_substring_regex(texts["weight"].cast(pa.binary()), ANY_NUMBER).fill_null(True)
        for row in pc.indices_nonzero(pc.invert(good)).to_pylist():
            shown = texts["weight"][row].as_buffer().to_pybytes().decode(errors="replace")
            bad.append((row + 1, f"the weight must be a number, not {shown!r}"))
        columns["weight"] = convert_column(pc.if_else(good, texts["weight"], None), pa.float64())
    numbers = [i + 1 for i in range(len(table))]
    if bad:
        wrong = {row for row, _ in bad}
        numbers = [number for number in numbers if number not in wrong]
        columns = {c: values.filter(good) for c, values in columns.items()}
    return Subscriptions(name, "row", pa.table(columns), [], numbers, bad)


def _one(column: pa.ChunkedArray) -> pa.Array:
    import pyarrow as pa

    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _check_columns(name: str, names: list[str]) -> None:
    missing = [repr(column) for column in ("id", "expression") if column not in names]
    if missing:
        raise BadInput(
            f"{show_name(name)} has no column {' and no column '.join(missing)}, only "
            f"{', '.join(map(repr, names)) or 'none'}; a subscription is id, expression[, weight]"
        )
    for column in ("id", "expression", "weight"):
        if names.count(column) > 1:
            raise BadInput(f"{show_name(name)} has several columns {column!r}: leave one of them")


def _is_number(type_: pa.DataType) -> bool:
    import pyarrow as pa

    return any(
        test(type_) for test in (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_null)
    )


HISTORY_HELP = "File with documents that came before, for EXISTS, FORALL and (SELECT ...): .jsonl, .parquet or .arrow."
REMEMBER_HELP = "Add each event to the history after it was matched, so that the next ones see it."
RETAIN_HELP = "Keep only the last N documents of the history."


def prepare_history(matcher: Matcher, file: str | None, remember: bool, retain: int | None) -> None:
    """Fills the history of a matcher that is matched from now on. That of compiled files may grow here, in memory."""
    from dibs.history.retention import Retain

    if matcher.durable is not None:
        if file is not None or retain is not None:
            raise typer.BadParameter(
                "a durable matcher has its own history, to which `dibs catalog remember` adds documents",
                param_hint="--history, --retain",
            )
        return
    matcher.history.refused = ""
    if retain is not None:
        matcher.history.retain = Retain(count=retain)
    if file is not None:
        matcher.history.load(file)
    joins = matcher.joins
    if joins and not remember and not len(matcher.history):
        say(f"note: no document is in the history that {joins[0]} asks for; give --history or --remember")
