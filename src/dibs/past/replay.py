"""Stored events through all current subscriptions: how often each would have matched, and delivery again.

`replay_batches` gives the matches batch by batch, with the number of the batch's first event; `replay` counts them by
subscription. The subscriptions may change meanwhile: every batch is matched on those that are there then, and counts
are by id.

Joins over history see the events before, in the order of the stored events, from the first batch on for which there is
a join, with the attributes that subscriptions asked for then. The matcher's own history is left alone.
"""

from __future__ import annotations

import time as clock
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dibs import notebooks
from dibs.arguments import OnError, check_callable, check_number, check_on_error, check_text
from dibs.coding.events import WantedNames
from dibs.coding.values import EventProblem
from dibs.errors import EventError
from dibs.history.history import History
from dibs.language.joins import join_of, read_attributes
from dibs.language.present import Now, datetime_at, read_clock, read_now
from dibs.matches import Matches, Part, as_union
from dibs.past.shown import share, show_problems
from dibs.past.sources import StoredBatch, Wanted
from dibs.past.sources_files import open_events
from dibs.segments.ids import Id
from dibs.segments.state import State

FIRST_ROWS = 64  # events at the beginning, when nobody knows yet how much they match
ROWS = 8_192  # events at a time later on, unless they match so much that...
PAIRS = 1 << 22  # ...there would be more pairs than this
PROBLEMS_KEPT = 1_000
SEGMENTS_HELD = 32  # segments that are counted row by row before their counts are put together by id
ID_TYPES = (pa.int64(), pa.large_string())


class Matching(Protocol):
    """What is asked of a matcher."""

    @property
    def attributes(self) -> Collection[str]: ...

    @property
    def history(self) -> History: ...

    def match_batch(
        self, events: Any, attributes: str | None = None, on_error: OnError = "raise", *, now: Now = None
    ) -> Matches: ...

    def match_after(
        self, history: History, events: Any, attributes: str | None, on_error: OnError, *, now: Now = None
    ) -> Matches: ...

    def snapshot(self) -> State: ...


@dataclass
class Replay:
    """How often each subscription matched. The subscriptions are those that were there at the beginning, and those that
    matched later."""

    events: int = 0
    pairs: int = 0
    problems: list[EventProblem] = field(default_factory=list)  # the first of what could not be read...
    problem_count: int = 0  # ...and how much that is in all
    elapsed: float = 0.0
    # For each type of ids the ids, sorted, and their counts.
    _found: list[tuple[pa.Array, NDArray[np.int64]]] = field(default_factory=list, repr=False)

    def __len__(self) -> int:
        """The number of subscriptions."""
        return sum(len(ids) for ids, _ in self._found)

    def counts(self) -> pa.Table:
        """The columns subscription, count and rate (the share of the events, from 0 to 1), a row for each subscription,
        also for those that never matched, in the order of ids. Ids are int64 or string; a union of the two where there
        are both."""
        count = np.concatenate([np.empty(0, np.int64), *(counts for _, counts in self._found)])
        columns = [ids for ids, _ in self._found]
        if len(columns) > 1:
            chunks = [as_union(ids) for ids in columns]
        else:
            text = [pa.types.is_large_string(ids.type) for ids in columns]
            chunks = [ids.cast(pa.string()) if text[0] else ids for ids in columns] or [pa.array([], pa.string())]
        rate = count / max(self.events, 1)
        return pa.table({"subscription": pa.chunked_array(chunks), "count": count, "rate": rate})

    def silent(self) -> list[Id]:
        """The ids that never matched, sorted."""
        return [id for ids, counts in self._found for id in ids.filter(pa.array(counts == 0)).to_pylist()]

    def busiest(self, k: int = 10) -> list[tuple[Id, int]]:
        """The k ids that matched most, with their counts; equal counts in the order of ids."""
        k = check_number("k", k, 0, "a number from 0 on")
        best: list[tuple[Id, int]] = []
        for ids, counts in self._found:
            rows = np.argsort(-counts, kind="stable")[:k]
            rows = rows[counts[rows] > 0]
            best += zip(ids.take(pa.array(rows)).to_pylist(), counts[rows].tolist())
        return sorted(best, key=lambda pair: -pair[1])[:k]

    def to_dict(self, busiest: int = 10) -> dict[str, Any]:
        """The totals, the busiest subscriptions and the silent ones, of types that JSON has."""
        silent = self.silent()
        return {
            "events": self.events,
            "subscriptions": len(self),
            "pairs": self.pairs,
            "elapsed": self.elapsed,
            "problem_count": self.problem_count,
            "problems": [problem._asdict() for problem in self.problems],
            "busiest": [{"subscription": id, "count": count} for id, count in self.busiest(busiest)],
            "silent_count": len(silent),
            "silent": silent,
        }

    def __str__(self) -> str:
        each = f"{self.pairs / self.events:,.3g} an event" if self.events else "no events"
        lines = [f"{len(self):,} subscriptions over {self.events:,} events: {self.pairs:,} matches, {each}"]
        lines += show_problems(self.problems, self.problem_count)
        best = [(str(id), f"{count:,}", share(count / self.events)) for id, count in self.busiest()]
        if best:
            lines.append("  the busiest:")
            widths = [max(len(row[i]) for row in best) for i in range(3)]
            lines += [f"    {row[0]:<{widths[0]}}  {row[1]:>{widths[1]}}  {row[2]:>{widths[2]}}" for row in best]
        silent = self.silent()
        if silent:
            shown = ", ".join(map(str, silent[:10])) + (", ..." if len(silent) > 10 else "")
            lines.append(f"  {len(silent):,} never matched: {shown}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        first, *rest = str(self).split("\n")
        best = self.busiest()
        rows = [(str(id), count, notebooks.Bar(count / best[0][1])) for id, count in best]
        silent = [line.strip() for line in rest if "never matched" in line]
        shown = notebooks.table(("the busiest", "events", ""), rows)
        return f"<div>{notebooks.headline(first)}{shown}{notebooks.lines_of(silent)}</div>"


def replay_batches(
    matcher: Matching,
    events: Any,
    *,
    attributes: str | None = None,
    on_error: OnError = "raise",
    batch_size: int | None = None,
    history: Any = None,
    now: Now = None,
) -> Iterator[tuple[int, Matches]]:
    """The matches of stored events (whatever `backtest` takes), batch by batch: (number of the batch's first event,
    Matches). Event numbers in pairs() count from that one; those in .problems are whole already. batch_size: events at
    a time; by default so many that the pairs of a batch stay in the millions. history, now: see Matcher.replay; one
    instant for all batches."""
    check_on_error(on_error)
    check_text("attributes", attributes)
    batch_size = None if batch_size is None else check_number("batch_size", batch_size)
    before = History(matcher.history.retain, matcher.history.types)
    if history is not None:
        before.load(history)
    present = read_now(now)
    own_time = frozenset([present] if isinstance(present, str) else ())
    now = datetime_at(read_clock()) if present is None else now
    source = open_events(events)
    names = _names(matcher) | own_time
    size = batch_size or FIRST_ROWS
    done = 0
    while True:
        wanted = Wanted(WantedNames(names) if source.again else None, attributes)
        rest = _Rest(source.batches(wanted, batch_size or ROWS), done)
        while (part := rest.take(size)) is not None:
            known = before.state
            if _joins(matcher):
                matches = matcher.match_after(before, part.data, attributes, "skip", now=now)
            else:
                matches = matcher.match_batch(part.data, attributes=attributes, on_error="skip", now=now)
            if source.again and not part.passing and attributes is None and not names.issuperset(_names(matcher)):
                # A new subscription asks for columns that were not read: once more from here, with them.
                names |= _names(matcher)
                before.put(known)
                break
            matches.problems = [_number(part, problem) for problem in matches.problems]
            if matches.problems and on_error == "raise":
                first = matches.problems[0]
                raise EventError(first.message, first.event, first.attribute)
            if batch_size is None:
                size = max(1, min(ROWS, 4 * size, PAIRS * len(part) // max(matches.count, 1)))
            done = part.first + len(part)
            yield part.first, matches
        else:
            return


def _joins(matcher: Matching) -> set[str]:
    return {name for layer in matcher.snapshot().layers for name in layer.segment.joins}


def _names(matcher: Matching) -> frozenset[str]:
    """The attributes that are asked of events, and of those before them."""
    asked = (name for join in _joins(matcher) for name in join_of(join).document_attributes)
    return frozenset(matcher.attributes).union(read_attributes(asked))


class _Rest:
    """Batches from an event on, of any size that is asked for."""

    def __init__(self, batches: Iterator[StoredBatch], first: int):
        self._batches, self._next = batches, first
        self._batch: StoredBatch | None = None

    def take(self, size: int) -> StoredBatch | None:
        """At most `size` of the next events; None: there are no more."""
        while self._batch is None or self._batch.first + len(self._batch) <= self._next:
            self._batch = next(self._batches, None)
            if self._batch is None:
                return None
        start = max(self._next - self._batch.first, 0)
        part = self._batch.between(start, min(start + size, len(self._batch)))
        self._next = part.first + len(part)
        return part


def _number(batch: StoredBatch, problem: EventProblem) -> EventProblem:
    event, attribute, message = problem
    return EventProblem(batch.first + event, attribute, batch.message(event, attribute, message))


def replay(
    matcher: Matching,
    events: Any,
    *,
    attributes: str | None = None,
    on_error: OnError = "raise",
    progress: Callable[[int], None] | None = None,
    batch_size: int | None = None,
    on_matches: Callable[[int, Matches], None] | None = None,
    history: Any = None,
    now: Now = None,
) -> Replay:
    """Runs stored events through all subscriptions and counts how often each matches. `on_matches` gets each batch's
    first event and Matches; `progress` is called with how many more events are done. history,
    now: see Matcher.replay."""
    check_callable("progress", progress)
    check_callable("on_matches", on_matches)
    begun = clock.perf_counter()
    result = Replay()
    layers = matcher.snapshot().layers
    counting = _Tally([x.segment.ids.ids.take(pa.array(x.gone.find_kept())) for x in layers])
    batches = replay_batches(
        matcher, events, attributes=attributes, on_error=on_error, batch_size=batch_size, history=history, now=now
    )
    for first, matches in batches:
        result.events = first + len(matches)
        result.pairs += matches.count
        result.problem_count += len(matches.problems)
        result.problems += matches.problems[: PROBLEMS_KEPT - len(result.problems)]
        for part in matches.parts:
            counting.add(part)
        if on_matches is not None:
            on_matches(first, matches)
        if progress is not None:
            progress(len(matches))
    result._found = counting.finish()
    result.elapsed = clock.perf_counter() - begun
    return result


class _Tally:
    """Counts by row for the segments that are being matched, by id for what they have become."""

    def __init__(self, ids: list[pa.Array]):
        self._tables = [_table(column, np.zeros(len(column), np.int64)) for column in ids if len(column)]
        # By the segment's id(): it is kept here, so no other object can get that.
        self._rows: dict[int, tuple[Any, NDArray[np.int64]]] = {}

    def add(self, part: Part) -> None:
        segment, _, row = part
        if not len(row):
            return
        held = self._rows.get(id(segment))
        if held is None:
            if len(self._rows) == SEGMENTS_HELD:
                self._put_together()
            held = self._rows[id(segment)] = (segment, np.zeros(len(segment), np.int64))
        counts = held[1]
        if len(row) * 8 < len(counts):
            np.add.at(counts, row, 1)
        else:
            counts += np.bincount(row, minlength=len(counts))

    def _put_together(self) -> None:
        for segment, counts in self._rows.values():
            rows = np.flatnonzero(counts)
            self._tables.append(_table(segment.ids.ids.take(pa.array(rows)), counts[rows]))
        self._rows = {}
        joined = []
        for type_ in ID_TYPES:
            own = [table for table in self._tables if table.schema.field("id").type == type_]
            if own:
                sums = pa.concat_tables(own).group_by("id").aggregate([("count", "sum")])
                joined.append(sums.rename_columns({"id": "id", "count_sum": "count"}).combine_chunks())
        self._tables = joined

    def finish(self) -> list[tuple[pa.Array, NDArray[np.int64]]]:
        self._put_together()
        result = []
        for table in self._tables:
            table = table.take(pc.sort_indices(table["id"]))
            result.append((table["id"].combine_chunks(), table["count"].to_numpy()))
        return result


def _table(ids: pa.Array, counts: NDArray[np.int64]) -> pa.Table:
    return pa.table({"id": ids, "count": counts})
