"""What runs in Spark's Python workers for `match`: Arrow batches of events in, one row per event with its matches out.

One row per event, with arrays of ids: Spark makes long rows of them for a third of what it takes to bring long rows
from Python (DECISIONS.md), and whatever is counted or filtered is counted by events, not by pairs.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dibs.coding.values import EventProblem
from dibs.jit.parcel import Parcel, unpack
from dibs.language.expression import Kind
from dibs.language.present import Now, datetime_at
from dibs.language.types import Types, check_types
from dibs.matcher import Matcher
from dibs.matches import Matches, Part
from dibs.spark.cold import open_texts
from dibs.spark.explaining import explain_pairs
from dibs.spark.joins.worker import Meet, Meeting, open_replicated
from dibs.spark.opening import open_matcher
from dibs.storage import versions
from dibs.storage.versions import Version

# Events are matched in slices, chosen so that the pairs of one slice stay about so many, however often they match.
PAIRS_AT_ONCE = 2_000_000
FIRST_SLICE, LARGEST_SLICE = 256, 65_536
PROBLEMS_SHOWN = 10  # of one event
MENTIONED_TOGETHER = 500  # attributes in one subscription of a router
NO_SHARD = -1  # of rows that only tell of an event: that it is there, and what is wrong with it

log = logging.getLogger("dibs.spark")


@dataclass(frozen=True)
class Task:
    """What a worker must know: plain values, which a worker without Dibs can unpickle."""

    path: str
    version: str  # as text
    files: dict[str, bytes] | None
    kernels: tuple[str, bytes] | None
    names: list[str]  # of the columns of attributes, which are the last ones
    attributes: str | None
    carried: list[str]  # the columns before them, which come out as they are: the event's id and what is kept
    weighted: bool
    top: int | None = None
    count_only: bool = False
    explain: bool = False
    matches: bool = True  # False: problems only
    warn: bool = False  # nobody counts the problems, so say it in the worker's log
    every_event: bool = True  # False: events without matches and problems give no row
    documents: dict[str, Any] | None = None  # of joins over history: replicated (joins/worker.py, DocumentFile)
    meeting: dict[str, Any] | None = None  # or partitioned (Meeting)
    timed: bool = False  # a column with the time of the match stands before the attributes
    own_time: str | None = None  # the attribute that holds the event's own
    texts: tuple[tuple[Any, ...], ...] | None = None  # the subscriptions, in place of an index (cold.py)

    @property
    def opened_version(self) -> Version:
        return _version(self.version)


@lru_cache(maxsize=8)
def _version(text: str) -> Version:
    return versions.from_text(text, "a job")


def match_partition(batches: Iterable[pa.RecordBatch], task: Task) -> Iterator[pa.RecordBatch]:
    """Rows (carried columns, ids, weights, why, matches, problem), one for each event: see `_found_rows`."""
    _prepare(task)
    if task.texts is not None:
        few = open_texts(task.texts)
        yield from _match(batches, task, lambda _: few, largest=FIRST_SLICE)
        return
    matcher = open_matcher(task.path, task.opened_version, task.files)
    if task.documents is not None:
        matcher = open_replicated(matcher, task.documents)
    if task.meeting is not None:
        met = Meet(matcher, Meeting(**task.meeting))
        yield from _match(met.events(batches), task, lambda _: met.matcher())
    else:
        yield from _match(batches, task, lambda _: matcher)


def match_shards(batches: Iterable[pa.RecordBatch], task: Task) -> Iterator[pa.RecordBatch]:
    """The same for events that were routed: the columns shard, problem and row come before the others. Rows of one
    shard stand together."""
    _prepare(task)
    for batch in batches:
        shards = batch.column(0).to_numpy()
        cuts = np.flatnonzero(np.diff(shards)) + 1
        for start, end in zip([0, *cuts.tolist()], [*cuts.tolist(), len(shards)]):
            part = batch.slice(start, end - start)
            if not len(part):
                continue
            rest = pa.RecordBatch.from_arrays(part.columns[2:], names=part.schema.names[2:])
            if shards[start] == NO_SHARD:
                yield _rows(rest, task, _nothing(len(part), task), part.column(1))
            else:
                matcher = open_matcher(task.path, task.opened_version, task.files, int(shards[start]))
                yield from _match([rest], task, lambda _, matcher=matcher: matcher, problems=False)


def route_partition(batches: Iterable[pa.RecordBatch], task: Task) -> Iterator[pa.RecordBatch]:
    """Events with the shards that they visit: the columns shard, problem and all others, a row for each shard; and a
    row with NO_SHARD for each event, if every event counts, or if something is wrong with it."""
    _prepare(task)
    router = make_router(task.version)
    shards = task.opened_version.shards
    for batch in batches:
        found = router.match_batch(
            _attribute_columns(batch, task), attributes=task.attributes, on_error="skip", now=_now(batch, task)
        )
        pairs = found.pairs()
        event, shard = pairs["event"].to_numpy(), pairs["subscription"].to_numpy()
        event, shard = event[shard < shards], shard[shard < shards]
        problems = _problem_texts(found.problems)
        alone = np.arange(len(batch)) if task.every_event else np.array(sorted(problems), np.int64)
        texts = pa.array([None] * len(event) + [problems.get(e) for e in alone.tolist()], pa.string())
        event, shard = np.concatenate([event, alone]), np.concatenate([shard, np.full(len(alone), NO_SHARD)])
        order = pa.array(np.argsort(shard, kind="stable"))
        carried = len(task.carried)
        taken = pa.array(event).take(order)
        # A row that only tells of an event is not matched: it travels without the attributes.
        matched = pa.array(event, mask=shard == NO_SHARD).take(order)
        own = [c.take(taken if place < carried else matched) for place, c in enumerate(batch.columns)]
        columns = [pa.array(shard.astype(np.int32)).take(order), texts.take(order), *own]
        yield pa.RecordBatch.from_arrays(columns, names=["shard", "problem", *batch.schema.names])


_CONSTANTS = {Kind.BOOLEAN: "TRUE", Kind.NUMBER: "0", Kind.STRING: "''", Kind.TIME: "DATE '1970-01-01'"}


def _constant(name: str, types: Types) -> str:
    return str(types.domains[name][0]) if name in types.domains else _CONSTANTS[types.kind_of(name) or Kind.BOOLEAN]


@lru_cache(maxsize=4)
def make_router(text: str) -> Matcher:
    """Whom an event visits: a matcher whose subscriptions are the routes, by the number of their shard. Those behind
    them mention all attributes, so that whatever is wrong with one of them is found here: conjunctions of very many, as
    an event looks at each through one of its predicates only."""
    version = _version(text)
    router = Matcher(threads=1, types=version.types)
    types = check_types(version.types)
    names = [f"`{name.replace('`', '``')}` IN ({_constant(name, types)})" for name in sorted(version.attributes)]
    mentions = (" AND ".join(names[i : i + MENTIONED_TOGETHER]) for i in range(0, len(names), MENTIONED_TOGETHER))
    router.add_many(enumerate([*version.routes, *mentions]))
    return router


def _prepare(task: Task) -> None:
    if task.kernels is not None:
        unpack(Parcel(*task.kernels))


def match_events(batches: Iterable[pa.RecordBatch], task: Task, matcher: Matcher) -> Iterator[pa.RecordBatch]:
    """Rows for events of an index that is open."""
    return _match(batches, task, lambda _: matcher)


def _match(
    batches: Iterable[pa.RecordBatch],
    task: Task,
    matcher_of: Any,
    problems: bool = True,
    largest: int = LARGEST_SLICE,
) -> Iterator[pa.RecordBatch]:
    events = malformed = 0
    size = FIRST_SLICE
    for batch in batches:
        start = 0
        while start < batch.num_rows:
            part = batch.slice(start, size)
            start += part.num_rows
            found, said, pairs = _find(part, task, matcher_of(part))
            texts = _problem_texts(said) if problems else {}
            malformed += len(texts)
            events += part.num_rows
            size = max(1, min(largest, part.num_rows * PAIRS_AT_ONCE // max(pairs, 1)))
            problem = pa.array([texts.get(e) for e in range(len(part))], pa.string()) if texts else None
            yield _rows(part, task, found, problem)
    if malformed and task.warn:
        log.warning(
            "%d of %d events of a partition could not be read entirely (see dibs.spark.problems)", malformed, events
        )


def _find(part: pa.RecordBatch, task: Task, matcher: Matcher) -> tuple[dict[str, pa.Array], list[EventProblem], int]:
    """The columns of the matches, what is wrong with the events, and how many pairs there are."""
    columns, now = _attribute_columns(part, task), _now(part, task)
    if task.count_only and task.matches:
        matches = matcher.match_batch(columns, attributes=task.attributes, on_error="skip", now=now)
        counts = np.zeros(len(part), np.int64)
        for _, event, _rows in matches.parts:
            counts += np.bincount(event, minlength=len(part))
        return {"matches": pa.array(counts)}, matches.problems, matches.count
    matches = matcher.match_batch(columns, attributes=task.attributes, on_error="skip", top=task.top, now=now)
    if not task.matches:
        return _nothing(len(part), task), matches.problems, matches.count
    return _lists(matches, task, matcher, columns, now), matches.problems, matches.count


def _lists(matches: Matches, task: Task, matcher: Matcher, columns: pa.RecordBatch, now: Now) -> dict[str, pa.Array]:
    """One list of ids per event, and beside it what else is asked for."""
    id_type = pa.int64() if task.opened_version.ids == "int64" else pa.string()
    parts = matches.parts
    order, offsets = matches.by_event()
    ids, weights = _ids(parts, id_type, order), None
    if task.weighted:
        weights = np.concatenate([np.empty(0), *(s.weights_at(r) for s, _, r in parts)])[order]
    if task.top is not None:
        chosen, offsets = _heaviest(offsets, ids, weights, task.top)
        ids, weights = ids.take(pa.array(chosen)), None if weights is None else weights[chosen]
    at = pa.array(offsets)
    result = {"ids": pa.ListArray.from_arrays(at, ids)}
    if weights is not None:
        result["weights"] = pa.ListArray.from_arrays(at, pa.array(weights))
    if task.explain:
        event = np.repeat(np.arange(len(matches)), np.diff(offsets))
        texts = explain_pairs(matcher, ids.to_pylist(), event.tolist(), columns, task.attributes, now)
        result["why"] = pa.ListArray.from_arrays(at, pa.array(texts, pa.string()))
    return result


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
    rank[pa.compute.sort_indices(ids).to_numpy()] = np.arange(len(ids))
    weights = np.ones(len(ids)) if weights is None else weights
    heaviest = np.lexsort((rank, -weights, event))  # events stay where they are
    place = np.arange(len(ids)) - offsets[event]
    kept = np.concatenate([[0], np.cumsum(np.minimum(np.diff(offsets), top))])
    return heaviest[place < top], kept.astype(np.int32)


def _nothing(rows: int, task: Task) -> dict[str, pa.Array]:
    if task.count_only:
        return {"matches": pa.array(np.zeros(rows, np.int64))}
    at = pa.array(np.zeros(rows + 1, np.int32))
    id_type = pa.int64() if task.opened_version.ids == "int64" else pa.string()
    result = {"ids": pa.ListArray.from_arrays(at, pa.array([], id_type))}
    if task.weighted:
        result["weights"] = pa.ListArray.from_arrays(at, pa.array([], pa.float64()))
    if task.explain:
        result["why"] = pa.ListArray.from_arrays(at, pa.array([], pa.string()))
    return result


def _rows(part: pa.RecordBatch, task: Task, found: dict[str, pa.Array], problem: pa.Array | None) -> pa.RecordBatch:
    """The carried columns, what was found, and what is wrong."""
    carried = {name: part.column(place) for place, name in enumerate(task.carried)}
    problem = pa.nulls(len(part), pa.string()) if problem is None else problem
    batch = pa.RecordBatch.from_pydict({**carried, **found, "problem": problem})
    if task.every_event:
        return batch
    first = next(iter(found.values()))
    some = first.to_numpy() > 0 if task.count_only else np.diff(first.offsets.to_numpy()) > 0
    some |= problem.is_valid().to_numpy(zero_copy_only=False)
    return batch if some.all() else batch.filter(pa.array(some))


def _attribute_columns(batch: pa.RecordBatch, task: Task) -> pa.RecordBatch:
    columns = batch.columns[len(batch.columns) - len(task.names) :]
    if task.attributes is not None:
        text = {pa.binary(): pa.string(), pa.large_binary(): pa.large_string()}.get(columns[0].type)
        if text is not None:  # JSON as bytes, as Kafka hands it over; whether they are UTF-8 shows when they are read
            columns = [columns[0].view(text)]
    return pa.RecordBatch.from_arrays(columns, names=task.names)


def _now(batch: pa.RecordBatch, task: Task) -> Now:
    """The time of the match, which is the same in all rows."""
    if not task.timed:
        return task.own_time
    times = pc.drop_null(batch.column(batch.num_columns - len(task.names) - 1))
    return datetime_at(times[:1].cast(pa.timestamp("us", "UTC")).cast(pa.int64())[0].as_py()) if len(times) else None


def _problem_texts(problems: list[EventProblem]) -> dict[int, str]:
    """A text for each event that has problems."""
    texts: dict[int, list[str]] = {}
    for problem in problems:
        place = "" if problem.attribute is None else f"attribute {problem.attribute!r}: "
        texts.setdefault(problem.event, []).append(place + problem.message)
    for told in texts.values():
        if len(told) > PROBLEMS_SHOWN:
            told[PROBLEMS_SHOWN:] = [f"and {len(told) - PROBLEMS_SHOWN} more"]
    return {event: "; ".join(told) for event, told in texts.items()}
