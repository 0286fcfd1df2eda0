"""The Matcher: subscriptions in, matches out.

    add -> compile (language, coding) -> segment (index)      events -> values -> cells -> pairs -> ids

Subscriptions that come one by one wait as normal forms until the next match, which turns them into a segment.
Segments never change: a removal clears a flag, and small segments are merged, so that an add costs a logarithmic
number of moves and the number of segments stays small.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dibs.coding.events import WantedNames, read_events
from dibs.coding.values import EventValues
from dibs.errors import (
    DibsError,
    DuplicateId,
    EventError,
    Rejected,
    SubscriptionErrors,
    UnknownId,
    UnknownIndex,
)
from dibs.explain import Explanation
from dibs.explain import explain as explain_expression
from dibs.index import AUTO, INDEXES, Pairs, Sink
from dibs.intake import by_type, checked_columns, checked_id, checked_item, checked_weight, named_at
from dibs.language.expression import Expression
from dibs.language.normal_form import normal_form
from dibs.language.sql import parse
from dibs.matches import Heaviest, Matches, Part, Reader
from dibs.segments import store
from dibs.segments.compile import compile_forms, compile_texts
from dibs.segments.ids import Id, IdIndex
from dibs.segments.removed import Removed
from dibs.segments.segment import DEFAULT_WEIGHT, Segment, build, merge, updates_in_place

OnError = Literal["raise", "skip"]
CLOSED = "is closed"
MERGE_RATIO = 4  # a segment at most this many times as large as the next one is merged with it


Snapshot = tuple[list[Segment], list[Removed], int]  # the two beside each other, and the version


class _Waiting(NamedTuple):
    text: str
    weight: float
    form: Expression


class Matcher:
    """Standing queries, and which of them an event satisfies.

    >>> m = Matcher()
    >>> m.add("alice", "color = 'silver' AND price <= 580")
    >>> m.match({"color": "silver", "price": 550})
    ['alice']

    index: a name in dibs.indexes(). threads: how many cores a batch may use (all by default).
    """

    def __init__(self, index: str = AUTO, threads: int | None = None):
        if index not in INDEXES:
            raise UnknownIndex(index, list(INDEXES))
        if threads is not None and (not isinstance(threads, int) or threads < 1):
            raise ValueError(f"threads must be a positive number, not {threads!r}")
        self.index = index
        self.threads = threads or os.cpu_count() or 1
        self._segments: list[Segment] = []
        self._removed: list[Removed] = []  # beside _segments
        self._version = 0  # counts removals
        self._waiting: dict[Id, _Waiting] = {}
        self._lock = threading.RLock()
        self._readers = 0  # matches under way
        self._idle = threading.Condition(self._lock)  # told when there are none
        self._in_place = updates_in_place(index)
        counters = ("events", "pairs", "candidates", "false candidates", "predicates", "nodes")
        self._counters = dict.fromkeys(counters, 0)
        self._known_names: tuple[list[Segment], WantedNames] = ([], WantedNames(()))
        self._closed_to_changes = ""  # why, when it is

    # ---- subscriptions ----

    def add(self, id: Id, expression: str, weight: float = DEFAULT_WEIGHT) -> None:
        """Adds one subscription. Raises ExpressionError (with .problems) or DuplicateId."""
        with self._lock:
            self._check_writable()
            id, weight = checked_id(id), checked_weight(weight)
            form = normal_form(parse(expression))
            if id in self:
                raise DuplicateId(id)
            self._waiting[id] = _Waiting(expression, weight, form)

    def add_many(self, items: Iterable[tuple[Any, ...]], on_error: OnError = "raise") -> list[Rejected]:
        """Adds (id, expression) or (id, expression, weight) items: all of them or, when one is bad, none
        (SubscriptionErrors lists every bad one). on_error="skip" adds the good ones and returns the others."""
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
        text_column = pa.array(texts, pa.large_string())
        weight_column = None if all(w == DEFAULT_WEIGHT for w in weights) else np.array(weights, np.float64)
        return self._add_columns(ids, text_column, weight_column, np.array(places, np.int64), bad, on_error, None)

    def add_table(
        self,
        table: pa.Table | pa.RecordBatch,
        on_error: OnError = "raise",
        progress: Callable[[int], None] | None = None,
    ) -> list[Rejected]:
        """Adds the rows of an Arrow table with the columns id, expression and, if there is one, weight: the bulk
        path. All or none, as add_many. `progress` is told how many more rows are parsed."""
        ids, texts, weights, places, bad = checked_columns(table)
        return self._add_columns(ids, texts, weights, places, bad, on_error, progress)

    def _add_columns(
        self,
        ids: list[Id] | pa.Array,
        texts: pa.Array,
        weights: NDArray[np.float64] | None,
        places: NDArray[np.int64],  # of the rows in the caller's input
        bad: list[Rejected],
        on_error: OnError,
        progress: Callable[[int], None] | None,
    ) -> list[Rejected]:
        if on_error not in ("raise", "skip"):
            raise ValueError(f'on_error must be "raise" or "skip", not {on_error!r}')
        with self._lock:
            self._check_writable()
            self._await_readers()
            compiled = compile_texts(texts, progress)
            columns = by_type(ids)
            errors: dict[int, DibsError] = dict(compiled.errors)
            for rows, column in columns:
                for i in self._taken(column):
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
                self._add_columns(
                    pa.chunked_array([ids]).take(pa.array(keep)).combine_chunks()
                    if isinstance(ids, pa.Array)
                    else [ids[i] for i in keep],
                    texts.take(pa.array(keep)),
                    None if weights is None else weights[keep],
                    places[keep],
                    [],
                    "raise",
                    None,
                )
                return bad
            for rows, column in columns:
                part = compiled if len(columns) == 1 else compile_texts(texts.take(pa.array(rows)))
                part_texts = texts if len(columns) == 1 else texts.take(pa.array(rows))
                if len(column):
                    own = None if weights is None else weights[rows]
                    self._append(build(part, column, part_texts, own, self.index))
            return bad

    def _taken(self, column: pa.Array) -> set[int]:
        """Places in the column whose id is in use, or stands earlier in the column."""
        taken = set(IdIndex(column).repeated()) if len(column) else set()
        for segment, removed in zip(self._segments, self._removed):
            if segment.ids.ids.type == column.type and len(column):
                taken.update(i for i, row in segment.ids.find_all(column) if not removed.has(row))
        if self._waiting:
            taken.update(i for i, id in enumerate(column.to_pylist()) if id in self._waiting)
        return taken

    def remove(self, id: Id) -> None:
        """Removes a subscription. Raises UnknownId."""
        with self._lock:
            self._check_writable()
            if self._waiting.pop(id, None) is None:
                place = self._find(id)
                if place is None:
                    raise UnknownId(id)
                self._version += 1
                self._removed[place[0]].add(place[1], self._version)

    def replace(self, id: Id, expression: str, weight: float | None = None) -> None:
        """Changes a subscription's expression (and its weight, if given) at once: no event sees it missing, and a
        bad expression changes nothing. Raises UnknownId or ExpressionError."""
        with self._lock:
            self._check_writable()
            form = normal_form(parse(expression))
            _, old_weight = self._get(id)
            weight = old_weight if weight is None else checked_weight(weight)
            self.remove(id)
            self._waiting[id] = _Waiting(expression, weight, form)

    def __len__(self) -> int:
        return len(self._waiting) + sum(len(s) - r.count for s, r in zip(self._segments, self._removed))

    def __contains__(self, id: object) -> bool:
        return isinstance(id, (str, int)) and (id in self._waiting or self._find(id) is not None)

    def expression(self, id: Id) -> str:
        """The text of a subscription."""
        return self._get(id)[0]

    def weight(self, id: Id) -> float:
        """The weight of a subscription."""
        return self._get(id)[1]

    @property
    def attributes(self) -> frozenset[str]:
        """The attributes that subscriptions mention: no others are read from events."""
        return frozenset().union(*(s.names for s in self._snapshot()[0]))

    @property
    def weighted(self) -> bool:
        """Whether some subscription has been given a weight of its own."""
        return any(s.weights is not None for s in self._snapshot()[0])

    def _get(self, id: Id) -> tuple[str, float]:
        with self._lock:
            waiting = self._waiting.get(id)
            if waiting is not None:
                return waiting.text, waiting.weight
            place = self._find(id)
            if place is None:
                raise UnknownId(id)
            segment, row = self._segments[place[0]], place[1]
            return segment.texts[row].as_py(), float(segment.weights_at(np.array([row]))[0])

    def _find(self, id: Id) -> tuple[int, int] | None:
        if isinstance(id, bool) or (isinstance(id, int) and not -(2**63) <= id < 2**63):
            return None
        for i, segment in enumerate(self._segments):
            row = segment.ids.find(id)
            if row is not None and not self._removed[i].has(row):
                return i, row
        return None

    # ---- matching ----

    def match(self, event: Mapping[str, Any], top: int | None = None) -> list[Id]:
        """The ids of the subscriptions that the event satisfies, sorted; with `top`, those of the highest weight
        first, at most so many. Raises EventError when the event cannot be read."""
        if not isinstance(event, Mapping):
            raise EventError(
                f"an event is a dict of attributes, not {type(event).__name__}; use match_batch for several"
            )
        matches = self.match_batch([event], top=top)
        return next(iter(matches)) if top is None else matches.top(top)[0]

    def match_batch(
        self, events: Any, attributes: str | None = None, on_error: OnError = "raise", top: int | None = None
    ) -> Matches:
        """Matches a batch: a list of dicts, an Arrow table or record batch, or JSON lines as bytes.

        attributes: the MAP, STRUCT or JSON column that holds the attributes (else the columns are the attributes).
        top: keep only the pairs whose weight is among the event's `top` highest (ties included; Matches.top(k) then
        orders them); the others are forgotten as they are found, so memory does not grow with them.
        on_error="skip": what cannot be read is listed in .problems instead of raised; a value that cannot be read
        makes every predicate on it unknown, an event that cannot be read at all matches nothing.
        """
        if top is not None and (not isinstance(top, int) or isinstance(top, bool) or top < 1):
            raise ValueError(f"top must be a positive number, not {top!r}")
        with self._reading() as snapshot:
            segments, values, readers = self._read(events, attributes, on_error, snapshot)
            parts: list[Part] = []
            for segment, seen in zip(segments, readers):
                if top is None:
                    parts += [(segment, *seen(*chunk)) for chunk in self._matched(segment, values, None).chunks]
                else:
                    best = Heaviest(segment.weights_at, seen, top)
                    self._matched(segment, values, best.add)
                    parts.append((segment, *best.pairs()))
        id_types = frozenset(s.ids.ids.type for s in segments)
        matches = Matches(values.events, parts, values.problems, id_types)
        self._counters["pairs"] += matches.count
        return matches

    def count(self, events: Any, attributes: str | None = None, on_error: OnError = "raise") -> NDArray[np.int64]:
        """How many subscriptions each event satisfies, without making the pairs."""
        with self._reading() as snapshot:
            segments, values, readers = self._read(events, attributes, on_error, snapshot)
            result = np.zeros(values.events, np.int64)
            lock = threading.Lock()
            for segment, seen in zip(segments, readers):

                def add(event: NDArray[np.int32], row: NDArray[np.int32], s: Reader = seen) -> None:
                    found = np.bincount(s(event, row)[0], minlength=len(result))
                    with lock:
                        np.add(result, found, out=result)

                self._matched(segment, values, add)
        self._counters["pairs"] += int(result.sum())
        return result

    @contextmanager
    def _reading(self) -> Iterator[Snapshot]:
        """The state to match on, which nobody changes meanwhile."""
        with self._lock:
            snapshot = self._snapshot()
            self._readers += 1
        try:
            yield snapshot
        finally:
            with self._lock:
                self._readers -= 1
                self._idle.notify_all()

    def _await_readers(self) -> None:
        """Before an index is changed in place. The lock is given up meanwhile, so nothing may be half done."""
        while self._in_place and self._readers:
            self._idle.wait()

    def _read(
        self, events: Any, attributes: str | None, on_error: OnError, snapshot: Snapshot
    ) -> tuple[list[Segment], EventValues, list[Reader]]:
        """The segments to match, the values of the events, and for each segment which of its pairs count."""
        if on_error not in ("raise", "skip"):
            raise ValueError(f'on_error must be "raise" or "skip", not {on_error!r}')
        segments, removed, version = snapshot
        values = read_events(events, self._wanted(segments), attributes=attributes, on_error=on_error)
        dead = None
        if len(values.unreadable_events):
            dead = np.zeros(values.events, np.bool_)
            dead[values.unreadable_events] = True
        self._counters["events"] += values.events
        return segments, values, [partial(_seen, gone, version, dead) for gone in removed]

    def _matched(self, segment: Segment, values: EventValues, sink: Sink | None) -> Pairs:
        pairs = segment.match(values, self.threads, sink)
        self._counters["candidates"] += pairs.candidates
        self._counters["predicates"] += pairs.predicates
        self._counters["nodes"] += pairs.nodes
        self._counters["false candidates"] += pairs.false_candidates
        return pairs

    def _wanted(self, segments: list[Segment]) -> WantedNames:
        """The attributes that some subscription mentions, or once did: made anew only for new names."""
        known, wanted = self._known_names
        new = [s for s in segments if not any(s is k for k in known)]
        if any(name not in wanted.codes for s in new for name in s.names):
            wanted = WantedNames(frozenset().union(*(s.names for s in segments)))
        if new:
            self._known_names = (segments, wanted)
        return wanted

    def explain(self, id: Id, event: Mapping[str, Any]) -> Explanation:
        """Why the subscription matches the event, or why not, predicate by predicate."""
        if not isinstance(event, Mapping):
            raise EventError(f"an event is a dict of attributes, not {type(event).__name__}")
        return explain_expression(parse(self.expression(id)), event, id=id)

    def stats(self) -> dict[str, Any]:
        """What is stored and what matching has cost so far."""
        segments, removed, _ = self._snapshot()
        parts: dict[str, int] = {}
        for s in segments:
            for name, size in s.nbytes.items():
                parts[name] = parts.get(name, 0) + size
        return {
            "index": self.index,
            "subscriptions": sum(len(s) - r.count for s, r in zip(segments, removed)),
            "removed": sum(r.count for r in removed),
            "segments": len(segments),
            "attributes": len(frozenset().union(*(s.names for s in segments))),
            "predicates": sum(len(s.clauses.attribute) for s in segments),
            "threads": self.threads,
            "plans": [s.index.plan() for s in segments],
            "bytes": parts,
            "matching": dict(self._counters),
        }

    def explain_plan(self) -> str:
        """How the index has filed the subscriptions, and why."""
        segments, _, _ = self._snapshot()
        lines = []
        for number, s in enumerate(segments, 1):
            lines.append(f"segment {number} of {len(segments)}: {len(s):,} subscriptions, index {s.index.name}")
            lines += [
                f"  {key}: {value:,}" if isinstance(value, int) else f"  {key}: {value}"
                for key, value in s.index.plan().items()
            ]
        return "\n".join(lines) or "no subscriptions"

    # ---- segments ----

    def _snapshot(self) -> Snapshot:
        with self._lock:
            if self._closed_to_changes == CLOSED:
                raise DibsError(f"this matcher {CLOSED}")
            if self._waiting:
                self._flush()
            return list(self._segments), list(self._removed), self._version

    def _flush(self) -> None:
        """Turns what waits into segments (one for each type of ids)."""
        self._await_readers()
        for text_ids in (False, True):
            items = [(i, w) for i, w in self._waiting.items() if isinstance(i, str) == text_ids]
            if items:
                ids = pa.array([i for i, _ in items], pa.large_string() if text_ids else pa.int64())
                texts = pa.array([w.text for _, w in items], pa.large_string())
                weights = np.array([w.weight for _, w in items])
                compiled = compile_forms([w.form for _, w in items])
                own = None if (weights == DEFAULT_WEIGHT).all() else weights
                self._append(build(compiled, ids, texts, own, self.index))
        self._waiting = {}

    def _append(self, segment: Segment) -> None:
        self._segments.append(segment)
        self._removed.append(Removed(len(segment)))
        kind = segment.ids.ids.type
        while True:
            own = [i for i, s in enumerate(self._segments) if s.ids.ids.type == kind]
            if len(own) < 2:
                return
            last, before = own[-1], own[-2]
            sizes = [len(self._segments[i]) - self._removed[i].count for i in (before, last)]
            if sizes[0] > MERGE_RATIO * sizes[1]:
                return
            self._merge([before, last])

    def _merge(self, numbers: list[int]) -> None:
        """Joins segments (whose ids are of one type) into one at the place of the first."""
        parts = [(self._segments[i], self._removed[i].kept()) for i in numbers]
        gone = set(numbers)
        if any(len(rows) for _, rows in parts):
            merged = merge(parts, self.index)
            self._segments[numbers[0]], self._removed[numbers[0]] = merged, Removed(len(merged))
            gone.remove(numbers[0])
        for i in sorted(gone, reverse=True):
            del self._segments[i], self._removed[i]

    def compact(self) -> None:
        """Merges everything and forgets what was removed: fastest matching, least memory."""
        with self._lock:
            self._await_readers()
            if self._waiting:
                self._flush()
            for kind in (pa.int64(), pa.large_string()):
                own = [i for i, s in enumerate(self._segments) if s.ids.ids.type == kind]
                if len(own) > 1 or any(self._removed[i].count for i in own):
                    self._merge(own)
            self._known_names = ([], WantedNames(()))

    # ---- files ----

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the compiled subscriptions as a directory that load() maps into memory. An index that stands there
        is replaced; anything else is left alone and refused."""
        with self._lock:
            self.compact()
            store.save_all(self._segments, Path(path), self.index)

    @classmethod
    def load(cls, path: str | os.PathLike[str], threads: int | None = None) -> Matcher:
        """Opens what save() wrote, memory-mapped and read-only."""
        index, segments = store.load_all(Path(path))
        matcher = cls(index=index, threads=threads)
        matcher._segments = segments
        matcher._removed = [Removed(len(s)) for s in matcher._segments]
        matcher._closed_to_changes = "was opened from saved files and is read-only: add to a new one and save it"
        return matcher

    def _check_writable(self) -> None:
        if self._closed_to_changes:
            raise DibsError(f"this matcher {self._closed_to_changes}")

    def close(self) -> None:
        """Lets go of everything; the matcher can be neither changed nor asked afterwards."""
        with self._lock:
            self._segments, self._removed, self._waiting = [], [], {}
            self._closed_to_changes = CLOSED

    def __enter__(self) -> Matcher:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Matcher: {len(self):,} subscriptions, index {self.index!r}>"


def _seen(
    gone: Removed, version: int, dead: NDArray[np.bool_] | None, event: NDArray[np.int32], row: NDArray[np.int32]
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """The pairs that count: of subscriptions that are there at this version, of events that could be read."""
    keep = gone.alive(row, version)
    if dead is not None:
        keep = ~dead[event] if keep is None else keep & ~dead[event]
    return (event, row) if keep is None else (event[keep], row[keep])
