"""Many subscriptions of one call: all of them are added or, when one is bad, none, and every bad one is reported."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dibs.arguments import OnError, check_callable, check_on_error, check_several
from dibs.arrays import from_ids, from_numpy, from_strings
from dibs.changes import Changes
from dibs.errors import ArgumentError, DibsError, DuplicateId, Rejected, SubscriptionErrors
from dibs.intake import by_type, check_item, names_at
from dibs.segments.compile import compile_texts, form_of
from dibs.segments.ids import Id
from dibs.segments.segment import DEFAULT_WEIGHT
from dibs.segments.state import Change
from dibs.thresholds import thresholds

READ = 0.4  # of the work on a row, about: it is read. Then it is coded and indexed

Progress = Callable[[int], None]


class Told:
    """Tells how many more rows are done, as the work on all of them goes on: in the end that all are, and that before
    they are added, so that nothing is if `progress` raises."""

    def __init__(self, progress: Progress | None, rows: int):
        self._progress, self._rows = progress, rows
        self._read = self._told = 0

    def read(self, more: int) -> None:
        self._read += more
        self._reach(int(READ * self._read))

    def all(self) -> None:
        self._reach(self._rows)

    def _reach(self, rows: int) -> None:
        if self._progress is not None and rows > self._told:
            more, self._told = rows - self._told, rows
            self._progress(more)


def add_items(
    changes: Changes, items: Iterable[tuple[Any, ...]], on_error: OnError, progress: Progress | None = None
) -> list[Rejected]:
    """Adds (id, expression[, weight]) items; returns those that were skipped."""
    check_on_error(on_error)
    check_callable("progress", progress)
    if hasattr(items, "__arrow_c_stream__") or hasattr(items, "__arrow_c_array__"):
        raise ArgumentError(f"add_many takes (id, expression) items; use add_table for a {type(items).__name__}")
    if isinstance(items, Mapping):
        raise ArgumentError("add_many takes (id, expression) items; pass .items() of a dict of expressions by id")
    items = list(check_several(items, "(id, expression) items", "use add for one subscription"))
    if len(items) > thresholds.added_one_by_one and (plain := _plain_columns(items)):
        return add_columns(changes, *plain, np.arange(len(items)), [], on_error, progress)
    ids, texts, weights = [], [], []
    bad: list[Rejected] = []
    places: list[int] = []
    for position, item in enumerate(items):
        try:
            id, text, weight = check_item(item)
        except DibsError as e:
            shown = item if isinstance(item, (tuple, list)) else (None, None)
            bad.append(Rejected(position, shown[0] if shown else None, shown[1] if len(shown) > 1 else None, e))
            continue
        places.append(position)
        ids.append(id)
        texts.append(text)
        weights.append(weight)
    if len(texts) <= thresholds.added_one_by_one:
        return _add_few(changes, ids, texts, weights, places, bad, on_error, Told(progress, len(texts)))
    text_column = from_strings(texts)
    weight_column = None if all(w == DEFAULT_WEIGHT for w in weights) else np.array(weights, np.float64)
    return add_columns(changes, ids, text_column, weight_column, np.array(places, np.int64), bad, on_error, progress)


def _plain_columns(items: list[Any]) -> tuple[pa.Array, pa.Array, NDArray[np.float64] | None] | None:
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


def _add_few(
    changes: Changes,
    ids: list[Id],
    texts: list[str],
    weights: list[float],
    places: list[int],
    bad: list[Rejected],
    on_error: OnError,
    told: Told,
) -> list[Rejected]:
    def add() -> list[Rejected]:
        good: list[Change] = []
        seen: set[Id] = set()
        for id, text, weight, place in zip(ids, texts, weights, places):
            try:
                form = form_of(text, changes.no_joins, changes.types)
                if id in seen or changes.has(id):
                    raise DuplicateId(id)
                good.append((id, text, weight, form))
                seen.add(id)  # one that is refused leaves its id to a later one
            except DibsError as e:
                bad.append(Rejected(place, id, text, e))
        bad.sort(key=lambda r: r.position)
        if bad and on_error == "raise":
            raise SubscriptionErrors(bad)
        told.all()
        changes.make(good, new=True)
        return bad

    return changes.change(add)


def add_columns(
    changes: Changes,
    ids: list[Id] | pa.Array,
    texts: pa.Array,
    weights: NDArray[np.float64] | None,
    places: NDArray[np.int64],  # of the rows in the caller's input
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
        few = len(texts) <= thresholds.changes_for_a_segment
        told = Told(progress, len(texts))
        compiled = compile_texts(texts, told.read, must_wait or few, changes.no_joins, changes.types)
        errors: dict[int, DibsError] = dict(compiled.errors)
        for rows, column in columns:
            if compiled.errors:  # those leave their ids to later rows
                good = np.flatnonzero(~np.isin(rows, list(compiled.errors)))
                rows, column = rows[good], column.take(from_numpy(good))
            for i in changes.places_in_use(column):
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
        short = len(compiled.table.attribute) <= thresholds.predicates_for_a_segment
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
            changes.add_columns(compiled, column.take(kept), texts.take(kept), weighted, told.all)
        else:
            changes.add_columns(compiled, column, texts, weights, told.all)
        return bad

    return changes.change(add)
