"""Many subscriptions as columns: read together, coded and indexed together, and added as a segment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dibs.additions import Progress, Told
from dibs.arguments import DEFAULT_WEIGHT, Id, OnError, check_callable, check_on_error
from dibs.arrays import from_ids, from_numpy, from_strings
from dibs.changes import Changes
from dibs.errors import DibsError, DuplicateId, Rejected, SubscriptionErrors
from dibs.intake import by_type, names_at
from dibs.segments.compile import Compiled, compile_texts
from dibs.segments.ids import IdIndex
from dibs.segments.segment import build
from dibs.segments.segment_set import PREDICATES_FOR_A_SEGMENT
from dibs.segments.state import CHANGES_FOR_A_SEGMENT


def plain_columns(items: list[Any]) -> tuple[pa.Array, pa.Array, NDArray[np.float64] | None] | None:
    """Ids, texts and weights of items of which nothing is to be said: ids of one type, weights (if any) floats.
    No Python step for each. None: they must be looked at one by one."""
    if not {*map(type, items)} <= {tuple, list} or {*map(len, items)} not in ({2}, {3}):
        return None
    ids, texts = [*map(itemgetter(0), items)], [*map(itemgetter(1), items)]
    weights = [*map(itemgetter(2), items)] if len(items[0]) == 3 else [DEFAULT_WEIGHT]
    if {*map(type, ids)} not in ({int}, {str}) or {*map(type, texts)} != {str} or {*map(type, weights)} != {float}:
        return None
    try:
        id_column = from_ids(ids)
        text_column = from_strings(texts)
    except (OverflowError, UnicodeEncodeError):  # too large an integer, or a lone surrogate
        return None
    if {*weights} == {DEFAULT_WEIGHT}:
        return id_column, text_column, None
    weight_column = np.array(weights, np.float64)
    return None if np.isnan(weight_column).any() else (id_column, text_column, weight_column)


def to_columns(texts: list[str], weights: list[float]) -> tuple[pa.Array, NDArray[np.float64] | None]:
    """Texts, and weights unless all are the default."""
    weighted = None if all(w == DEFAULT_WEIGHT for w in weights) else np.array(weights, np.float64)
    return from_strings(texts), weighted


def add_columns(
    changes: Changes,
    ids: list[Id] | pa.Array,
    texts: pa.Array,
    weights: NDArray[np.float64] | None,
    places: Sequence[int] | NDArray[np.int64],  # of the rows in the caller's input
    bad: list[Rejected],  # what was refused already
    on_error: OnError,
    progress: Progress | None = None,
) -> list[Rejected]:
    """Adds rows; returns those that were skipped."""
    check_on_error(on_error)
    check_callable("progress", progress)

    def add() -> list[Rejected]:
        columns = by_type(ids)
        must_wait = changes.batching or len(columns) > 1
        few = len(texts) <= CHANGES_FOR_A_SEGMENT.value
        told = Told(progress, len(texts))
        compiled = compile_texts(texts, told.read, must_wait or few, changes.no_joins, changes.types)
        errors: dict[int, DibsError] = dict(compiled.errors)
        for rows, column in columns:
            if compiled.errors:  # those leave their ids to later rows
                good = np.flatnonzero(~np.isin(rows, list(compiled.errors)))
                rows, column = rows[good], column.take(from_numpy(good))
            repeated = IdIndex(column).find_repeated() if len(column) else []
            for i in changes.places_in_use(column).union(repeated):
                errors[int(rows[i])] = DuplicateId(column[i].as_py())
        if errors:
            named = dict(names_at(columns, errors))
            for i in errors:
                bad.append(Rejected(int(places[i]), named[i], texts[i].as_py(), errors[i]))
        bad.sort(key=lambda r: r.position)
        if bad and on_error == "raise":
            raise SubscriptionErrors(bad)
        is_good = np.ones(len(texts), np.bool_)
        is_good[list(errors)] = False
        keep = np.flatnonzero(is_good)
        short = len(compiled.table.attribute) <= PREDICATES_FOR_A_SEGMENT.value
        if must_wait or (few and short):  # the next match makes a segment of them, together with others
            given = ids.to_pylist() if isinstance(ids, pa.Array) else ids
            own = texts.to_pylist()
            of_default = [DEFAULT_WEIGHT] * len(given) if weights is None else weights.tolist()
            forms = compiled.forms
            told.all()
            changes.make([(given[i], own[i], of_default[i], forms.get(i)) for i in keep.tolist()], new=True)
            return bad
        column = columns[0][1]
        if errors:
            kept = from_numpy(keep)
            weighted = None if weights is None else weights[keep]
            compiled = compile_texts(texts.take(kept), types=changes.types)
            _append(changes, compiled, column.take(kept), texts.take(kept), weighted, told.all)
        else:
            _append(changes, compiled, column, texts, weights, told.all)
        return bad

    return changes.change(add)


def _append(
    changes: Changes,
    compiled: Compiled,
    ids: pa.Array,
    texts: pa.Array,
    weights: NDArray[np.float64] | None,
    ready: Callable[[], None],
) -> None:
    """New subscriptions as a segment, not in a batch, within `change`. ready: is called before they are added, and none
    of them is if it raises."""
    layers = changes.layers
    state = layers.state
    first = state.version + 1
    versions = np.arange(first, first + len(texts))
    segment = build(compiled, ids, texts, weights, versions, layers.choice, state.largest())
    ready()
    changes.commit(
        lambda durable: durable.write_columns(ids, texts, weights, first),
        lambda: layers.append([segment], first + len(texts) - 1),
    )
