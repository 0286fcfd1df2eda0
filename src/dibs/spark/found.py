"""What workers tell of the matches of events: one row per event, with arrays.

Spark makes long rows of arrays for a third of what it takes to bring long rows from Python (docs/decisions), and
whatever is counted or filtered is counted by events, not by pairs. With `match(..., explain=True)`, also why.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dibs.coding.values import EventProblem
from dibs.errors import EventError
from dibs.language.present import Now
from dibs.matcher import Matcher
from dibs.matches import Matches, Part
from dibs.segments.ids import Id

KINDS = {"ids": pa.int64(), "weights": pa.float64(), "versions": pa.int64(), "why": pa.string()}  # of arrays
TEXT_IDS = pa.string()
PROBLEMS_SHOWN = 10  # of one event


@dataclass(frozen=True)
class Found:
    """The columns behind those that are carried: ids[, weights][, versions][, why], or matches; and problem."""

    text_ids: bool
    lists: tuple[str, ...] = ("ids",)  # which of them
    count_only: bool = False  # their number, matches, in place of them
    top: int | None = None  # only so many of an event, those of the highest weight; equal ones by id
    nothing: bool = False  # only what is wrong with the events is asked for
    every_event: bool = True  # False: events without matches and problems give no row
    problem: bool = True
    counted: bool = False  # events, microseconds: how many there were, and for how long, in the first row of a slice

    def kind(self, name: str) -> pa.DataType:
        """Of the elements of a list."""
        return TEXT_IDS if name == "ids" and self.text_ids else KINDS[name]


def find_columns(
    matches: Matches, found: Found, matcher: Matcher, events: pa.RecordBatch, attributes: str | None, now: Now
) -> dict[str, pa.Array]:
    """The columns of the matches of events, but for problem."""
    if found.nothing:
        return no_columns(len(matches), found)
    if found.count_only:
        counts = np.zeros(len(matches), np.int64)
        for _, event, _rows in matches.parts:
            counts += np.bincount(event, minlength=len(matches))
        return {"matches": pa.array(counts)}
    parts = matches.parts
    order, offsets = matches.by_event()
    own: dict[str, Any] = {"ids": _ids(parts, found.kind("ids"), order)}
    if "weights" in found.lists or found.top is not None:
        own["weights"] = np.concatenate([np.empty(0), *(s.weights_at(r) for s, _, r in parts)])[order]
    if "versions" in found.lists:
        own["versions"] = np.concatenate([np.empty(0, np.int64), *(s.versions[r] for s, _, r in parts)])[order]
    if found.top is not None:
        chosen, offsets = _heaviest(offsets, own["ids"], own["weights"], found.top)
        own = {name: values.take(pa.array(chosen)) if name == "ids" else values[chosen] for name, values in own.items()}
    if "why" in found.lists:
        event = np.repeat(np.arange(len(matches)), np.diff(offsets))
        own["why"] = explain_pairs(matcher, own["ids"].to_pylist(), event.tolist(), events, attributes, now)
    at = pa.array(offsets)
    return {name: pa.ListArray.from_arrays(at, pa.array(own[name], found.kind(name))) for name in found.lists}


def no_columns(rows: int, found: Found) -> dict[str, pa.Array]:
    """The same of events that match nothing."""
    if found.count_only:
        return {"matches": pa.array(np.zeros(rows, np.int64))}
    at = pa.array(np.zeros(rows + 1, np.int32))
    return {name: pa.ListArray.from_arrays(at, pa.array([], found.kind(name))) for name in found.lists}


def make_rows(
    carried: dict[str, pa.Array],
    columns: dict[str, pa.Array],
    problem: pa.Array | None,
    found: Found,
    here: Any = None,
    seconds: float = 0.0,
) -> tuple[pa.RecordBatch, int]:
    """The rows that are wanted, and how many matches they have. here: which events are told of; None: all. seconds: for
    how long they were matched."""
    first = next(iter(columns.values()))
    counts = first.to_numpy() if found.count_only else np.diff(first.offsets.to_numpy())
    kept = np.ones(len(counts), np.bool_) if here is None else here
    matches = int(counts[kept].sum())
    if not found.every_event:
        kept = kept & ((counts > 0) | (False if problem is None else problem.is_valid().to_numpy(zero_copy_only=False)))
    if found.problem:
        columns = {**columns, "problem": pa.nulls(len(counts), pa.string()) if problem is None else problem}
    if found.counted:
        kept[:1] = True
        told = {"events": len(counts), "microseconds": round(seconds * 1e6)}
        columns |= {name: pa.array([number, *[None] * (len(counts) - 1)], pa.int64()) for name, number in told.items()}
    batch = pa.RecordBatch.from_pydict({**carried, **columns})
    return batch if kept.all() else batch.filter(pa.array(kept)), matches


def _ids(parts: Sequence[Part], type_: pa.DataType, order: Any) -> pa.Array:
    """Of all pairs, in this order."""
    if len({id(segment) for segment, _, _ in parts}) == 1:
        row = np.concatenate([r for _, _, r in parts])
        return parts[0][0].ids.ids.take(pa.array(row[order])).cast(type_)
    ids = [pa.array([], type_), *(s.ids.ids.take(pa.array(r)).cast(type_) for s, _, r in parts)]
    return pa.concat_arrays(ids).take(pa.array(order))


def _heaviest(offsets: Any, ids: pa.Array, weights: Any, top: int) -> tuple[Any, Any]:
    """Of pairs by event, the `top` of the highest weight of each event, highest first, then by id: their places, and
    where those of each event begin."""
    event = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    rank = np.empty(len(ids), np.int64)
    rank[pc.sort_indices(ids).to_numpy()] = np.arange(len(ids))
    heaviest = np.lexsort((rank, -weights, event))  # events stay where they are
    place = np.arange(len(ids)) - offsets[event]
    kept = np.concatenate([[0], np.cumsum(np.minimum(np.diff(offsets), top))])
    return heaviest[place < top], kept.astype(np.int32)


def problem_texts(problems: list[EventProblem]) -> dict[int, str]:
    """A text for each event that has problems."""
    texts: dict[int, list[str]] = {}
    for problem in problems:
        place = "" if problem.attribute is None else f"attribute {problem.attribute!r}: "
        texts.setdefault(problem.event, []).append(place + problem.message)
    for told in texts.values():
        if len(told) > PROBLEMS_SHOWN:
            told[PROBLEMS_SHOWN:] = [f"and {len(told) - PROBLEMS_SHOWN} more"]
    return {event: "; ".join(told) for event, told in texts.items()}


# ---- why they match ----


def explain_pairs(
    matcher: Matcher,
    ids: Sequence[Id],
    events: Sequence[int],
    columns: pa.RecordBatch,
    attributes: str | None,
    now: Now = None,
) -> list[str]:
    """A text for each pair of a subscription and the number of an event. Only events that match are looked at: those
    that cannot be read at all do not."""
    rows: dict[int, Any] = {}
    result = []
    for id, event in zip(ids, events, strict=True):
        try:
            if event not in rows:
                rows[event] = read_event(columns, event, attributes)
            result.append(str(matcher.explain(id, rows[event], now)))
        except (EventError, ValueError, OverflowError) as error:  # a date, say, that Python does not have
            result.append(f"matches; why cannot be told: {error}")
    return result


def read_event(columns: pa.RecordBatch, event: int, attributes: str | None) -> Any:
    """The event as the matcher takes one: a dict of what is in its columns, or the bytes of its JSON."""
    if attributes is None:
        return {name: _plain(column[event]) for name, column in zip(columns.schema.names, columns.columns)}
    value = columns.column(attributes)[event]
    if pa.types.is_string(value.type) or pa.types.is_large_string(value.type):
        large = pa.types.is_large_string(value.type)
        return pc.cast(value, pa.large_binary() if large else pa.binary()).as_py()  # which need not be UTF-8
    return _plain(value) or {}


def _plain(value: pa.Scalar) -> Any:
    """The value with maps as dicts. A key that a map has twice has both values."""
    kind = value.type
    if not value.is_valid:
        return None
    if pa.types.is_struct(kind):
        return {field.name: _plain(value[place]) for place, field in enumerate(kind)}
    if pa.types.is_map(kind):
        result: dict[Any, Any] = {}
        for entry in value.values:
            key, item = entry[0].as_py(), _plain(entry[1])
            result[key] = [result[key], item] if key in result else item
        return result
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return [_plain(element) for element in value.values]
    return value.as_py()
