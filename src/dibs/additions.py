"""Many subscriptions of one call: all of them are added or, when one is bad, none, and every bad one is reported."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from dibs.arguments import Id, OnError, check_callable, check_on_error, check_several
from dibs.changes import Changes
from dibs.errors import ArgumentError, DibsError, DuplicateId, Rejected, SubscriptionErrors
from dibs.items import check_item
from dibs.jit.undisturbed import bring
from dibs.segments.state import Change
from dibs.tuning import tuned

# 256 simple texts 1.0 ms one by one, 0.2 as columns
ADDED_ONE_BY_ONE = tuned("added_one_by_one", 16, 1, "subscriptions", "of one call, added without making columns")

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
    most = ADDED_ONE_BY_ONE.value if changes.has_engine else len(items)
    bulk: Any = bring("dibs.bulk") if len(items) > most else None
    if bulk is not None and (plain := bulk.plain_columns(items)):
        skipped: list[Rejected] = bulk.add_columns(changes, *plain, range(len(items)), [], on_error, progress)
        return skipped
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
    if bulk is None or len(texts) <= most:
        return _add_few(changes, ids, texts, weights, places, bad, on_error, Told(progress, len(texts)))
    given = bulk.to_columns(texts, weights)
    rejected: list[Rejected] = bulk.add_columns(changes, ids, *given, places, bad, on_error, progress)
    return rejected


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
                form = changes.read(text, changes.no_joins, changes.types)
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
