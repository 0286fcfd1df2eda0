"""Changes of subscriptions, as tables and topics tell them, applied to a matcher. Twice is as good as once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Union

import numpy as np
import pyarrow as pa

from dibs.arguments import DEFAULT_WEIGHT, OnError
from dibs.errors import ArgumentError, DibsError, DuplicateId, ExpressionError, Rejected, SubscriptionErrors
from dibs.matcher import Matcher
from dibs.segments.ids import Id
from dibs.spark.tasks import TWICE, advise

Change = tuple[Id, Union[str, None], Union[float, None]]  # expression None: it goes; weight None: as it was


def apply_changes(matcher: Matcher, changes: Iterable[Change], on_error: OnError) -> list[Rejected]:
    """Makes the changes, in this order and all together. An id that is there is replaced, one that goes need not be
    there. on_error="skip": what is bad is left out and returned; else none is made."""
    rejected: list[Rejected] = []
    with matcher.batch():
        for place, (id, expression, weight) in enumerate(changes):
            try:
                _apply(matcher, id, expression, weight)
            except (ExpressionError, ArgumentError, DuplicateId) as error:
                rejected.append(Rejected(place, id, expression, error))
        _check(rejected, on_error)
    return rejected


def _apply(matcher: Matcher, id: Id, expression: str | None, weight: float | None) -> None:
    there = id in matcher
    if expression is None:
        if there:
            matcher.remove(id)
    elif not there:
        matcher.add(id, expression, DEFAULT_WEIGHT if weight is None else weight)
    elif matcher.expression(id) != expression or (weight is not None and matcher.weight(id) != weight):
        matcher.replace(id, expression, weight)


def become(matcher: Matcher, table: pa.Table, on_error: OnError) -> list[Rejected]:
    """Makes the matcher hold the rows of the table (id, expression[, weight]) and nothing else; only what differs is
    changed. A row that is bad leaves the subscription of its id as it was."""
    if not len(matcher):
        try:
            return list(map(advise, matcher.add_table(table, on_error=on_error)))
        except SubscriptionErrors as errors:
            raise SubscriptionErrors(list(map(advise, errors.rejected))) from None
    weights = table["weight"].to_pylist() if "weight" in table.column_names else [DEFAULT_WEIGHT] * len(table)
    before = dict(_all(matcher))
    seen: set[Any] = set()
    changes: list[Change] = []
    rejected: list[Rejected] = []
    for place, (id, text, weight) in enumerate(zip(table["id"].to_pylist(), table["expression"].to_pylist(), weights)):
        if id is None or text is None:
            error: DibsError = ArgumentError(f"{'the id' if id is None else 'the expression'} is null")
            rejected.append(Rejected(place, id, text, error))
        elif id in seen:
            rejected.append(Rejected(place, id, text, DuplicateId(id, TWICE)))
        elif before.get(id) != (text, weight):
            changes.append((id, text, weight))
        seen.add(id)
    _check(rejected, on_error)
    changes += [(id, None, None) for id in before.keys() - seen]
    return rejected + apply_changes(matcher, changes, on_error)


def _check(rejected: list[Rejected], on_error: OnError) -> None:
    if rejected and on_error == "raise":
        raise SubscriptionErrors(rejected)


def _all(matcher: Matcher) -> Iterator[tuple[Id, tuple[str, float]]]:
    for layer in matcher.snapshot().layers:
        rows, segment = layer.gone.find_kept(), layer.segment
        texts = segment.texts.take(pa.array(rows)).to_pylist()
        yield from zip(segment.ids.at(rows.astype(np.int32)), zip(texts, segment.weights_at(rows).tolist()))
