"""What may come into a matcher: the checks on ids, expressions and weights before anything is compiled."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dibs.coding.events.arrow_values import invalid_texts, text_buffers
from dibs.errors import DibsError, ExpressionError, Problem, Rejected, SubscriptionErrors
from dibs.language.sql import parse
from dibs.segments.ids import Id
from dibs.segments.segment import DEFAULT_WEIGHT


def checked_id(id: Any) -> Id:
    if isinstance(id, np.integer):
        id = int(id)
    if isinstance(id, bool) or not isinstance(id, (str, int)):
        raise DibsError(f"an id is a string or an integer, not {type(id).__name__} ({id!r})")
    if isinstance(id, int):
        if not -(2**63) <= id < 2**63:
            raise DibsError(f"the id {id} does not fit into 64 bits with sign; use a string")
        return int(id)
    try:
        id.encode()
    except UnicodeEncodeError:
        raise DibsError(f"the id {id!r} is not valid Unicode (lone surrogate)") from None
    return str(id)


def checked_weight(weight: Any) -> float:
    if isinstance(weight, bool) or not isinstance(weight, (int, float, np.number)) or math.isnan(weight):
        raise DibsError(f"a weight is a number, not {weight!r}")
    return float(weight)


def checked_item(item: Any) -> tuple[Id, str, float]:
    if not isinstance(item, (tuple, list)) or len(item) not in (2, 3):
        raise DibsError(f"expected (id, expression) or (id, expression, weight), found {item!r}")
    id, text = checked_id(item[0]), item[1]
    if not isinstance(text, str):
        raise ExpressionError([Problem(f"an expression is a string, not {type(text).__name__}")])
    try:
        text.encode()
    except UnicodeEncodeError:
        parse(text)  # says where
    return id, text, checked_weight(item[2]) if len(item) == 3 else DEFAULT_WEIGHT


Columns = tuple[pa.Array, pa.Array, "NDArray[np.float64] | None", "NDArray[np.int64]", list[Rejected]]


def checked_columns(table: pa.Table | pa.RecordBatch) -> Columns:
    """The good rows of a table of subscriptions as ids (int64 or large_string), texts, weights (None: all the default)
    and row numbers; and the bad ones."""
    table = pa.Table.from_batches([table]) if isinstance(table, pa.RecordBatch) else table
    for name in ("id", "expression"):
        if name not in table.column_names:
            problem = DibsError(f"the table has no column {name!r}, only {table.column_names}")
            raise SubscriptionErrors([Rejected(0, None, None, problem)])
    ids, texts = _one_array(table["id"]), _one_array(table["expression"])
    bad: list[Rejected] = []
    good = np.ones(len(table), np.bool_)

    def reject(mask: NDArray[np.bool_], message: str) -> None:
        for i in np.flatnonzero(mask & good).tolist():
            bad.append(Rejected(i, _shown(ids[i]), _shown(texts[i]), DibsError(message)))
        good[mask] = False

    def readable(column: pa.Array, what: str) -> pa.Array:
        """The strings without those that are not UTF-8, which are rejected."""
        invalid = invalid_texts(column, text_buffers(column)[1])
        if invalid is None:
            return column
        reject(invalid, f"{what} is not valid UTF-8")
        return pc.if_else(pa.array(invalid), pa.scalar(None, column.type), column)

    everything = np.ones(len(table), np.bool_)
    if not (pa.types.is_string(texts.type) or pa.types.is_large_string(texts.type)):
        reject(everything, f"an expression must be a string, not {texts.type}")
        texts = pa.nulls(len(table), pa.large_string())
    texts = texts.cast(pa.large_string())
    reject(_nulls(texts), "the expression is null; write TRUE for a subscription that always matches")
    texts = readable(texts, "the expression")
    if pa.types.is_integer(ids.type):
        try:
            ids = ids.cast(pa.int64())
        except pa.ArrowInvalid:
            reject(everything, "an id does not fit into 64 bits with sign")
    elif pa.types.is_string(ids.type) or pa.types.is_large_string(ids.type):
        ids = readable(ids.cast(pa.large_string()), "the id")
    else:
        reject(everything, f"an id must be a string or an integer, not {ids.type}")
    reject(_nulls(ids), "the id is null")
    weights = None
    if "weight" in table.column_names:
        column = _one_array(table["weight"]).cast(pa.float64(), safe=False)
        weights = column.fill_null(DEFAULT_WEIGHT).to_numpy(zero_copy_only=False).copy()
        reject(np.isnan(weights), "the weight is NaN")
    places = np.flatnonzero(good)
    if len(places) < len(table):
        rows = pa.array(places)
        ids, texts = ids.take(rows), texts.take(rows)
        weights = None if weights is None else weights[places]
    return ids, texts, weights, places, bad


def by_type(ids: list[Id] | pa.Array) -> list[tuple[NDArray[np.int64], pa.Array]]:
    """The ids as arrays of one type each, with the places they came from."""
    if isinstance(ids, pa.Array):
        return [(np.arange(len(ids)), ids)]
    result = []
    for type_, text in ((pa.int64(), False), (pa.large_string(), True)):
        rows = [i for i, x in enumerate(ids) if isinstance(x, str) == text]
        if rows:
            result.append((np.array(rows, np.int64), pa.array([ids[i] for i in rows], type_)))
    return result


def named_at(columns: list[tuple[NDArray[np.int64], pa.Array]], places: Iterable[int]) -> Iterable[tuple[int, Id]]:
    wanted = set(places)
    for rows, column in columns:
        for i, row in enumerate(rows.tolist()):
            if row in wanted:
                yield row, column[i].as_py()


def _shown(value: pa.Scalar) -> Any:
    try:
        return value.as_py()
    except UnicodeDecodeError:
        return value.as_buffer().to_pybytes().decode(errors="replace")


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    array = column.combine_chunks()
    return array if isinstance(array, pa.Array) else pa.concat_arrays(array.chunks)


def _nulls(array: pa.Array) -> NDArray[np.bool_]:
    return array.is_null().to_numpy(zero_copy_only=False)
