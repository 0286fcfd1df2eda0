"""Many subscriptions of one call: all of them are added or, when one is bad, none, and every bad one is told."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dibs.changes import Changes
from dibs.errors import DibsError, DuplicateId, Rejected, SubscriptionErrors
from dibs.intake import by_type, checked_item, named_at
from dibs.segments.compile import compile_texts, form_of
from dibs.segments.ids import Id
from dibs.segments.segment import DEFAULT_WEIGHT
from dibs.segments.state import Change
from dibs.thresholds import thresholds

OnError = Literal["raise", "skip"]


def check_on_error(on_error: str) -> None:
    if on_error not in ("raise", "skip"):
        raise ValueError(f'on_error must be "raise" or "skip", not {on_error!r}')


def add_items(changes: Changes, items: Iterable[tuple[Any, ...]], on_error: OnError) -> list[Rejected]:
    """Adds (id, expression[, weight]) items; returns those that were skipped."""
    check_on_error(on_error)
    ids, texts, weights = [], [], []
    bad: list[Rejected] = []
    places: list[int] = []
    for position, item in enumerate(items):
        try:
            id, text, weight = checked_item(item)
        except DibsError as e:
            shown = item if isinstance(item, (tuple, list)) else (None, None)
            bad.append(Rejected(position, shown[0] if shown else None, shown[1] if len(shown) > 1 else None, e))
            continue
        places.append(position)
        ids.append(id)
        texts.append(text)
        weights.append(weight)
    if len(texts) <= thresholds.added_one_by_one:
        return _add_few(changes, ids, texts, weights, places, bad, on_error)
    text_column = pa.array(texts, pa.large_string())
    weight_column = None if all(w == DEFAULT_WEIGHT for w in weights) else np.array(weights, np.float64)
    return add_columns(changes, ids, text_column, weight_column, np.array(places, np.int64), bad, on_error)


def _add_few(
    changes: Changes,
    ids: list[Id],
    texts: list[str],
    weights: list[float],
    places: list[int],
    bad: list[Rejected],
    on_error: OnError,
) -> list[Rejected]:
    def add() -> list[Rejected]:
        good: list[Change] = []
        seen: set[Id] = set()
        for id, text, weight, place in zip(ids, texts, weights, places):
            try:
                form = form_of(text)
                if id in seen or changes.has(id):
                    raise DuplicateId(id)
                good.append((id, text, weight, form))
            except DibsError as e:
                bad.append(Rejected(place, id, text, e))
            seen.add(id)
        bad.sort(key=lambda r: r.position)
        if bad and on_error == "raise":
            raise SubscriptionErrors(bad)
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
    progress: Callable[[int], None] | None = None,
) -> list[Rejected]:
    """Adds rows; returns those that were skipped."""
    check_on_error(on_error)

    def add() -> list[Rejected]:
        compiled = compile_texts(texts, progress)
        columns = by_type(ids)
        errors: dict[int, DibsError] = dict(compiled.errors)
        for rows, column in columns:
            for i in changes.taken(column):
                errors.setdefault(int(rows[i]), DuplicateId(column[i].as_py()))
        if errors:
            named = dict(named_at(columns, errors))
            for i in errors:
                bad.append(Rejected(int(places[i]), named[i], texts[i].as_py(), errors[i]))
        bad.sort(key=lambda r: r.position)
        if bad and on_error == "raise":
            raise SubscriptionErrors(bad)
        if errors:
            keep = np.setdiff1d(np.arange(len(texts)), np.fromiter(errors, np.int64))
            kept = ids.take(pa.array(keep)) if isinstance(ids, pa.Array) else [ids[i] for i in keep]
            weighted = None if weights is None else weights[keep]
            add_columns(changes, kept, texts.take(pa.array(keep)), weighted, places[keep], [], "raise", None)
        elif len(texts) <= thresholds.changes_for_a_segment or changes.batching or len(columns) > 1:
            given = ids.to_pylist() if isinstance(ids, pa.Array) else ids
            of_default = [DEFAULT_WEIGHT] * len(given) if weights is None else weights.tolist()
            changes.make([(i, t, w, None) for i, t, w in zip(given, texts.to_pylist(), of_default)], new=True)
        else:
            changes.add_columns(compiled, columns[0][1], texts, weights)
        return bad

    return changes.change(add)
