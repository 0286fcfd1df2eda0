"""The matches of a batch of events."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dibs import notebooks
from dibs.arguments import check_flag, check_number
from dibs.arrays import from_numpy
from dibs.coding.values import EventProblem
from dibs.items import id_order as id_order
from dibs.jit.sorting import order_by_group
from dibs.segments.id_lists import IdColumns, id_columns, lists_by_event
from dibs.segments.ids import Id, IdIndex
from dibs.segments.layer import by_type
from dibs.segments.segment import Segment
from dibs.segments.state import Waiting
from dibs.tuning import tuned

TIES_SELECTED = tuned("ties_selected", 1_000, 1, "pairs", "of an event; of more, the first are selected, not sorted")

FORGET_AT = 10_000  # pairs that are kept at least before the light ones among them are forgotten
Part = tuple[Segment, NDArray[np.int32], NDArray[np.int32]]  # segment, event, row


Reader = Callable[
    [NDArray[np.int32], NDArray[np.int32]], tuple[NDArray[np.int32], NDArray[np.int32]]
]  # pairs that count


def as_union(ids: pa.Array) -> pa.Array:
    """Ids of one type in the type of a column that has both."""
    text = not pa.types.is_integer(ids.type)
    children = [pa.nulls(0, pa.int64()), ids.cast(pa.string())] if text else [ids, pa.nulls(0, pa.string())]
    kinds = from_numpy(np.full(len(ids), text, np.int8))
    return pa.UnionArray.from_dense(kinds, from_numpy(np.arange(len(ids), dtype=np.int32)), children, ["int", "string"])


class Heaviest:
    """The pairs of each event whose weight is among its k highest, ties included. Takes pairs as they are found, from
    any thread, and forgets the others again and again."""

    def __init__(self, weights_at: Callable[[NDArray[np.int32]], NDArray[np.float64]], seen: Reader, k: int):
        self._weights_at = weights_at
        self._seen = seen
        self._k = k
        self._lock = threading.Lock()
        self._found: list[tuple[NDArray[np.int32], NDArray[np.int32]]] = []
        self._pairs = self._kept = 0

    def add(self, event: NDArray[np.int32], row: NDArray[np.int32]) -> None:
        event, row = self._seen(event, row)
        with self._lock:
            self._found.append((event.copy(), row.copy()))  # the room that they are in is used again
            self._pairs += len(event)
            if self._pairs > 2 * self._kept + FORGET_AT:  # ties stay, and are not looked at again for each few pairs
                self._forget()

    def _forget(self) -> None:
        event = np.concatenate([np.empty(0, np.int32), *(e for e, _ in self._found)])
        row = np.concatenate([np.empty(0, np.int32), *(r for _, r in self._found)])
        keep = _heaviest(event, self._weights_at(row), self._k)
        self._found = [(event[keep], row[keep])]
        self._pairs = self._kept = len(self._found[0][0])

    def pairs(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        with self._lock:
            self._forget()
            return self._found[0]


def keep_heaviest(parts: list[Part], k: int) -> list[Part]:
    """Of the pairs of several segments, each with its heaviest, those that are among the k of all of them."""
    if len(parts) < 2:
        return parts
    event = np.concatenate([event for _, event, _ in parts])
    keep = _heaviest(event, np.concatenate([segment.weights_at(rows) for segment, _, rows in parts]), k)
    own = np.split(keep, np.cumsum([len(event) for _, event, _ in parts])[:-1])
    return [(segment, event[kept], rows[kept]) for (segment, event, rows), kept in zip(parts, own)]


class Matches:
    """Which subscriptions each event of a batch satisfies.

    `len` is the number of events, `count` the number of pairs; iterating gives each event's ids, sorted (integers
    before strings). `problems` lists what could not be read, when the batch was matched with on_error="skip".
    """

    def __init__(
        self,
        events: int,
        parts: Sequence[Part],
        problems: list[EventProblem],
        id_types: frozenset[pa.DataType],
        lists: list[list[Id]] | None = None,
    ):
        """lists: the ids of each event, where they were found in plain Python; no kernel makes them again."""
        self._lists = lists
        self._events = events
        self._parts = parts
        self._id_types = id_types  # int64, large_string or both: of the matcher's ids
        self.problems = problems

    def __len__(self) -> int:
        return self._events

    @property
    def count(self) -> int:
        return sum(len(event) for _, event, _ in self._parts)

    @property
    def parts(self) -> Sequence[Part]:
        """The pairs as they were found, segment by segment, for other parts of Dibs."""
        return self._parts

    def __repr__(self) -> str:
        bad = f", {len(self.problems):,} problems" if self.problems else ""
        return f"<Matches: {self._events:,} events, {self.count:,} pairs{bad}>"

    def _repr_html_(self) -> str:
        most = notebooks.SHOWN
        rows = [
            (event, len(ids), ", ".join([*map(str, ids[:most]), *(["..."] if len(ids) > most else [])]))
            for event, ids in zip(range(most), self)
        ]
        shown = notebooks.table(("event", "matches", "subscriptions"), rows, max(len(self) - most, 0))
        return f"<div>{notebooks.headline(repr(self)[1:-1])}{shown}</div>"

    def pairs(self, weights: bool = False, versions: bool = False) -> pa.Table:
        """The columns event (row number in the batch) and subscription (id), and, if asked for, its weight and version;
        in no set order. Ids are int64 or string; a union of the two in a matcher that has both."""
        check_flag("weights", weights)
        check_flag("versions", versions)
        columns = {
            "event": pa.chunked_array([from_numpy(e.astype(np.int64)) for _, e, _ in self._parts], pa.int64()),
            "subscription": self._ids(),
        }
        if weights:
            found = [from_numpy(s.weights_at(rows)) for s, _, rows in self._parts]
            columns["weight"] = pa.chunked_array(found, pa.float64())
        if versions:
            columns["version"] = pa.chunked_array([from_numpy(s.versions[r]) for s, _, r in self._parts], pa.int64())
        return pa.table(columns)

    def _ids(self) -> pa.ChunkedArray:
        found = [s.ids.ids.take(from_numpy(rows)) for s, _, rows in self._parts]
        if len(self._id_types) < 2:
            type_ = pa.int64() if pa.int64() in self._id_types else pa.string()
            return pa.chunked_array([f.cast(type_) for f in found], type_)
        chunks = [as_union(f) for f in [*found, pa.nulls(0, pa.int64())]]
        return pa.chunked_array(chunks, chunks[0].type)

    def by_event(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The pairs of `parts`, counted through, in the order of their events; and where those of each event begin in
        this order, and the last ones end. For other parts of Dibs."""
        event = np.concatenate([np.empty(0, np.int32), *(e for _, e, _ in self._parts)])
        if self._lists is not None:
            ends = np.cumsum(np.bincount(event, minlength=self._events))
            return np.argsort(event, kind="stable").astype(np.int32), np.append(0, ends).astype(np.int32)
        found: tuple[NDArray[np.int32], NDArray[np.int32]] = order_by_group(event, self._events)
        return found

    def __iter__(self) -> Iterator[list[Id]]:
        if self._lists is not None:
            return map(list, self._lists)
        return lists_by_event(self._events, [(s.ids, event, rows) for s, event, rows in self._parts])

    def columns(self) -> IdColumns:
        """The same lists as columns, for other parts of Dibs."""
        return id_columns(self._events, [(s.ids, event, rows) for s, event, rows in self._parts])

    def top(self, k: int) -> list[list[Id]]:
        """Each event's k ids of the highest weight, highest first; equal weights in the order of ids."""
        k = check_number("k", k)
        found: list[list[tuple[float, Id]]] = [[] for _ in range(self._events)]
        for s, event, rows in self._parts:
            weight = s.weights_at(rows)
            keep = _heaviest(event, weight, k)
            event, rows = _first_ties(event[keep], rows[keep], weight[keep], s.ids, k)
            for e, w, i in zip(event.tolist(), s.weights_at(rows).tolist(), s.ids.at(rows)):
                found[e].append((w, i))
        return [[i for _, i in sorted(f, key=lambda x: (-x[0], id_order(x[1])))[:k]] for f in found]


def _first_ties(
    event: NDArray[np.int32], row: NDArray[np.int32], weight: NDArray[np.float64], ids: IdIndex, k: int
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Of pairs whose weight is among the k highest of their event those that can be among its first k: of very many
    with the least of these weights, the k with the first ids. (No Python object is made for the others.)"""
    many = np.flatnonzero(np.bincount(event) > max(k, TIES_SELECTED.value)) if len(event) > k else ()
    if not len(many):
        return event, row
    keep = np.ones(len(event), np.bool_)
    for e in many:
        own = np.flatnonzero(event == e)
        ties = own[weight[own] == weight[own].min()]
        if len(ties) > k:
            keep[ties] = False
            keep[ties[ids.first(row[ties], k)]] = True
    return event[keep], row[keep]


def _heaviest(event: NDArray[np.int32], weight: NDArray[np.float64], k: int) -> NDArray[np.bool_]:
    """Which pairs have a weight among the k highest of their event, ties included."""
    if len(event) <= k or (weight == weight[0]).all():
        return np.ones(len(event), np.bool_)
    order = np.lexsort((-weight, event))
    sorted_event = event[order]
    first = np.searchsorted(sorted_event, sorted_event)
    kth = np.minimum(first + k, len(event)) - 1
    least = np.where(sorted_event[kth] == sorted_event, weight[order][kth], -np.inf)
    keep = np.empty(len(event), np.bool_)
    keep[order] = weight[order] >= least
    return keep


class _Rows:
    """What `Matches` looks at in a segment, of subscriptions that are in none."""

    def __init__(self, ids: pa.Array, held: list[Waiting]):
        self.ids = IdIndex(ids)
        self.versions = np.array([one.version for one in held], np.int64)
        self._weights = np.array([one.weight for one in held], np.float64)

    def weights_at(self, rows: NDArray[Any]) -> NDArray[np.float64]:
        return self._weights[rows]


def matches_of(
    items: Mapping[Id, Waiting], found: list[list[Id]], problems: list[EventProblem], top: int | None
) -> Matches:
    """The matches of subscriptions that are in no segment. found: the ids of each event, sorted."""
    if top is not None:
        found = [_heaviest_ids(items, ids, top) for ids in found]
    parts: list[Part] = []
    types = set()
    for type_, column in by_type(items.keys()):
        types.add(type_)
        ids = column.to_pylist()
        rows = {id: row for row, id in enumerate(ids)}
        pairs = [(event, rows[id]) for event, own in enumerate(found) for id in own if id in rows]
        event, row = np.array(pairs, np.int32).reshape(-1, 2).T.copy()
        parts.append((cast(Any, _Rows(column, [items[id] for id in ids])), event, row))
    return Matches(len(found), parts, problems, frozenset(types), found)


def _heaviest_ids(items: Mapping[Id, Waiting], ids: list[Id], k: int) -> list[Id]:
    """Those whose weight is among the k highest, ties included."""
    if len(ids) <= k:
        return ids
    least = sorted((items[id].weight for id in ids), reverse=True)[k - 1]
    return [id for id in ids if items[id].weight >= least]
