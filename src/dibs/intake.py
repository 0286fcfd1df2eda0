"""What may come into a matcher: the checks on tables of ids, expressions and weights before anything is compiled,
and on the choice of its index. (Those on single ones are in dibs.items.)"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dibs.arguments import DEFAULT_WEIGHT, Id, check_number, check_threads
from dibs.arrays import from_ids, from_numpy, to_numpy
from dibs.coding.events.arrow_types import check_layout
from dibs.coding.events.arrow_values import invalid_texts, text_buffers
from dibs.errors import ArgumentError, DibsError, Rejected, SubscriptionErrors, UnknownIndex, show
from dibs.index import find, is_known, names, options_of
from dibs.index.options import check_options
from dibs.items import check_id as check_id
from dibs.items import check_item as check_item
from dibs.items import check_weight as check_weight
from dibs.items import sought_id as sought_id
from dibs.segments.segment import Choice

GivenColumns = tuple[pa.Array, pa.Array, "NDArray[np.float64] | None", "NDArray[np.int64]", list[Rejected]]


def check_columns(table: Any) -> GivenColumns:
    """The good rows of a table of subscriptions as ids (int64 or large_string), texts, weights (None: all the default)
    and row numbers; and the bad ones."""
    table = as_table(table)
    for name in ("id", "expression", "weight"):
        number = table.column_names.count(name)
        if number > 1 or (number == 0 and name != "weight"):
            there = f"{number} columns {name!r}: leave one of them" if number else f"no column {name!r}"
            problem = DibsError(f"the table has {there}{'' if number else f', only {table.column_names}'}")
            raise SubscriptionErrors([Rejected(0, None, None, problem)])
    ids, texts = _one_array(table, "id"), _one_array(table, "expression")
    bad: list[Rejected] = []
    good = np.ones(len(table), np.bool_)

    def reject(mask: NDArray[np.bool_], message: str) -> None:
        for i in np.flatnonzero(mask & good).tolist():
            bad.append(Rejected(i, _show(ids[i]), _show(texts[i]), DibsError(message)))
        good[mask] = False

    def readable(column: pa.Array, what: str) -> pa.Array:
        """The strings without those that are not UTF-8, which are rejected."""
        invalid = invalid_texts(column, text_buffers(column)[1])
        if invalid is None:
            return column
        reject(invalid, f"{what} is not valid UTF-8")
        return pc.if_else(from_numpy(invalid), pa.scalar(None, column.type), column)

    everything = np.ones(len(table), np.bool_)
    if not (pa.types.is_string(texts.type) or pa.types.is_large_string(texts.type)):
        reject(everything, f"an expression must be a string, not {texts.type}")
        texts = pa.nulls(len(table), pa.large_string())
    texts = texts.cast(pa.large_string())
    reject(_nulls(texts), "the expression is null; write TRUE for a subscription that always matches")
    texts = readable(texts, "the expression")
    if pa.types.is_integer(ids.type):
        if pa.types.is_uint64(ids.type):
            large = pc.greater(ids, pa.scalar(2**63 - 1, ids.type))
            reject(_mark(large), "the id does not fit in a signed integer of 64 bits; use strings")
            ids = pc.if_else(large, pa.scalar(None, ids.type), ids)
        ids = ids.cast(pa.int64())
    elif pa.types.is_string(ids.type) or pa.types.is_large_string(ids.type):
        ids = readable(ids.cast(pa.large_string()), "the id")
    else:
        reject(everything, f"an id must be a string or an integer, not {ids.type}")
    reject(_nulls(ids), "the id is null")
    weights = None
    if "weight" in table.column_names:
        column = _one_array(table, "weight")
        if not _is_number(column.type):
            reject(~_nulls(column), f"a weight must be a number, not {column.type}")
            column = pa.nulls(len(table), pa.float64())
        column = column.cast(pa.float64(), safe=False)
        weights = to_numpy(column.fill_null(DEFAULT_WEIGHT)).copy()
        reject(np.isnan(weights), "the weight is NaN")
    places = np.flatnonzero(good)
    if len(places) < len(table):
        rows = from_numpy(places)
        ids, texts = ids.take(rows), texts.take(rows)
        weights = None if weights is None else weights[places]
    return ids, texts, weights, places, bad


def as_table(table: Any) -> pa.Table:
    """A table as Arrow's: a table or record batch, or what hands its rows over as such (pandas, polars, DuckDB)."""
    if isinstance(table, pa.Table):
        return table
    if isinstance(table, pa.RecordBatch):
        return pa.Table.from_batches([table])
    try:
        if isinstance(table, pa.RecordBatchReader) or hasattr(table, "__arrow_c_stream__"):
            return pa.RecordBatchReader.from_stream(table).read_all()
    except (pa.ArrowException, TypeError, ValueError, NotImplementedError) as error:
        kind = type(table).__name__
        raise ArgumentError(
            f"the {kind} does not hand over its rows as Arrow data ({error}); expected columns id, expression and, if "
            "wanted, weight, each of one type"
        ) from error
    advice = "add_many takes (id, expression) items" if isinstance(table, Iterable) else "pyarrow.table makes one"
    raise ArgumentError(f"expected an Arrow table or a DataFrame, not {show(table)}; {advice}")


def _is_number(type_: pa.DataType) -> bool:
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_null)
    return any(test(type_) for test in tests)


def by_type(ids: list[Id] | pa.Array) -> list[tuple[NDArray[np.int64], pa.Array]]:
    """The ids as arrays of one type each, with the places they came from."""
    if isinstance(ids, pa.Array):
        return [(np.arange(len(ids)), ids)]
    result = []
    for text in (False, True):
        rows = [i for i, x in enumerate(ids) if isinstance(x, str) == text]
        if rows:
            result.append((np.array(rows, np.int64), from_ids([ids[i] for i in rows])))
    return result


def names_at(columns: list[tuple[NDArray[np.int64], pa.Array]], places: Iterable[int]) -> Iterable[tuple[int, Id]]:
    wanted = set(places)
    for rows, column in columns:
        for i, row in enumerate(rows.tolist()):
            if row in wanted:
                yield row, column[i].as_py()


def _show(value: pa.Scalar) -> Any:
    try:
        return value.as_py()
    except UnicodeDecodeError:
        return value.as_buffer().to_pybytes().decode(errors="replace")


def _one_array(table: pa.Table, name: str) -> pa.Array:
    """A column without dictionaries, and strings in the one form that everybody takes."""
    column = table[name]
    try:
        for chunk in column.chunks:
            check_layout(chunk)
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
    except pa.ArrowException as error:
        raise ArgumentError(
            f"column {name!r} of the table cannot be read: {error}; expected sound Arrow data: pyarrow's "
            "validate(full=True) tells what is wrong with it"
        ) from error
    if pa.types.is_string_view(column.type):
        column = column.cast(pa.large_string())
    array = column.combine_chunks()
    return array if isinstance(array, pa.Array) else pa.concat_arrays(array.chunks)


def _mark(mask: pa.Array) -> NDArray[np.bool_]:
    return to_numpy(mask.fill_null(False))


def _nulls(array: pa.Array) -> NDArray[np.bool_]:
    return to_numpy(array.is_null())


def check_choice(index: str, threads: int | None, memory: int | None, options: Any = None) -> Choice:
    """The index of a matcher, by its name, and its settings."""
    if not isinstance(index, str):
        raise ArgumentError(f"an index is chosen by its name, not by {show(index)}; dibs.indexes() has the names")
    if not is_known(index):
        raise UnknownIndex(index, names())
    check_threads(threads)
    own = tuple(check_options(index, options_of(index), options).items()) if options is not None else ()
    if memory is None:
        return Choice(index, (), own)
    least = getattr(find(index), "least_memory", None)
    if least is None:
        raise ArgumentError(
            f"index {index!r} lies in memory as a whole: memory=... is for those that lie in files: pbtree"
        )
    memory = check_number("memory", memory, least, f"a number of bytes, at least {least:,}")
    return Choice(index, (("memory", memory),), own)
