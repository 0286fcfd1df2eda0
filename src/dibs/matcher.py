"""The Matcher: subscriptions in, matches out.

    add -> compile (language, coding) -> segment (index)      events -> values -> cells -> pairs -> ids

Subscriptions that come one by one wait as normal forms until the next match, which turns them into a segment.
Segments never change: a removal clears a flag, and small segments are merged, so that an add costs a logarithmic
number of moves and the number of segments stays small.
"""

from __future__ import annotations

import math
import os
import shutil
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dibs.coding.events import WantedNames, read_events
from dibs.coding.events_arrow_values import invalid_texts, text_buffers
from dibs.errors import (
    DibsError,
    DuplicateId,
    EventError,
    ExpressionError,
    FormatError,
    Problem,
    Rejected,
    SubscriptionErrors,
    UnknownId,
    UnknownIndex,
)
from dibs.explain import Explanation
from dibs.explain import explain as explain_expression
from dibs.index import AUTO, INDEXES
from dibs.language.expression import Expression
from dibs.language.normal_form import normal_form
from dibs.language.sql import parse
from dibs.matches import Matches, Part
from dibs.segments import store
from dibs.segments.compile import compile_forms, compile_texts
from dibs.segments.ids import Id, IdIndex
from dibs.segments.segment import DEFAULT_WEIGHT, Segment, build, merge

OnError = Literal["raise", "skip"]
MERGE_RATIO = 4  # a segment at most this many times as large as the next one is merged with it


class _Waiting(NamedTuple):
    text: str
    weight: float
    form: Expression


class _Removed:
    """Which rows of a segment are gone, and since when: a reader that started at version v still sees the rows that
    were removed later, so a replaced subscription is never missing."""

    NEVER = np.iinfo(np.int64).max

    def __init__(self, rows: int):
        self._rows = rows
        self._at: NDArray[np.int64] | None = None  # made at the first removal
        self.count = 0

    def add(self, row: int, version: int) -> None:
        if self._at is None:
            self._at = np.full(self._rows, self.NEVER)
        self._at[row] = version
        self.count += 1

    def alive(self, rows: NDArray[Any], version: int) -> NDArray[np.bool_] | None:
        """Which of the rows a reader of this version sees; None: all."""
        return None if self._at is None else self._at[rows] > version

    def has(self, row: int) -> bool:
        return self._at is not None and bool(self._at[row] != self.NEVER)

    def kept(self) -> NDArray[np.int64]:
        return np.arange(self._rows) if self._at is None else np.flatnonzero(self._at == self.NEVER)


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
        self._removed: list[_Removed] = []  # beside _segments
        self._version = 0  # counts removals
        self._waiting: dict[Id, _Waiting] = {}
        self._lock = threading.RLock()
        self._counters = {"events": 0, "pairs": 0, "candidates": 0, "predicates": 0}
        self._known_names: tuple[list[Segment], WantedNames] = ([], WantedNames(()))
        self._closed_to_changes = ""  # why, when it is

    # ---- subscriptions ----

    def add(self, id: Id, expression: str, weight: float = DEFAULT_WEIGHT) -> None:
        """Adds one subscription. Raises ExpressionError (with .problems) or DuplicateId."""
        with self._lock:
            self._check_writable()
            id, weight = _checked_id(id), _checked_weight(weight)
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
                id, text, weight = _checked_item(item)
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
        table = pa.Table.from_batches([table]) if isinstance(table, pa.RecordBatch) else table
        for name in ("id", "expression"):
            if name not in table.column_names:
                raise SubscriptionErrors(
                    [Rejected(0, None, None, DibsError(f"the table has no column {name!r}, only {table.column_names}"))]
                )
        ids = _one_array(table["id"])
        texts = _one_array(table["expression"])
        bad: list[Rejected] = []
        good = np.ones(len(table), np.bool_)

        def reject(mask: NDArray[np.bool_], message: str) -> None:
            for i in np.flatnonzero(mask & good).tolist():
                bad.append(Rejected(i, _shown(ids[i]), _shown(texts[i]), DibsError(message)))
            good[mask] = False

        if not (pa.types.is_string(texts.type) or pa.types.is_large_string(texts.type)):
            reject(good.copy(), f"an expression must be a string, not {texts.type}")
            texts = pa.nulls(len(table), pa.large_string())
        texts = texts.cast(pa.large_string())
        reject(_nulls(texts), "the expression is null; write TRUE for a subscription that always matches")
        texts = self._readable(texts, reject, "the expression")
        if pa.types.is_integer(ids.type):
            try:
                ids = ids.cast(pa.int64())
            except pa.ArrowInvalid:
                reject(good.copy(), "an id does not fit into 64 bits with sign")
        elif pa.types.is_string(ids.type) or pa.types.is_large_string(ids.type):
            ids = self._readable(ids.cast(pa.large_string()), reject, "the id")
        else:
            reject(good.copy(), f"an id must be a string or an integer, not {ids.type}")
        reject(_nulls(ids), "the id is null")
        weights = None
        if "weight" in table.column_names:
            column = _one_array(table["weight"]).cast(pa.float64(), safe=False)
            weights = column.fill_null(DEFAULT_WEIGHT).to_numpy(zero_copy_only=False).copy()
            reject(np.isnan(weights), "the weight is NaN")
        places = np.flatnonzero(good)
        if len(places) < len(table):
            rows = pa.array(places)
            ids, texts = ids.take(rows), texts.take(rows)
            weights = None if weights is None else weights[places]
        return self._add_columns(ids, texts, weights, places, bad, on_error, progress)

    @staticmethod
    def _readable(column: pa.Array, reject: Callable[[NDArray[np.bool_], str], None], what: str) -> pa.Array:
        """The column of strings without those that are not UTF-8, which are rejected."""
        if not len(column):
            return column
        _, content = text_buffers(column)
        invalid = invalid_texts(column, content)
        if invalid is None:
            return column
        reject(invalid, f"{what} is not valid UTF-8")
        return pc.if_else(pa.array(invalid), pa.scalar(None, column.type), column)

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
            compiled = compile_texts(texts, progress)
            columns = _by_type(ids)
            errors: dict[int, DibsError] = dict(compiled.errors)
            for rows, column in columns:
                for i in self._taken(column):
                    errors.setdefault(int(rows[i]), DuplicateId(column[i].as_py()))
            if errors:
                named = dict(_named(columns, errors))
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
            weight = old_weight if weight is None else _checked_weight(weight)
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
        matches = self.match_batch([event])
        if top is None:
            return next(iter(matches))
        if not isinstance(top, int) or top < 1:
            raise ValueError(f"top must be a positive number, not {top!r}")
        return matches.top(top)[0]

    def match_batch(self, events: Any, attributes: str | None = None, on_error: OnError = "raise") -> Matches:
        """Matches a batch: a list of dicts, an Arrow table or record batch, or JSON lines as bytes.

        attributes: the MAP, STRUCT or JSON column that holds the attributes (else the columns are the attributes).
        on_error="skip": what cannot be read is listed in .problems instead of raised; a value that cannot be read
        makes every predicate on it unknown, an event that cannot be read at all matches nothing.
        """
        if on_error not in ("raise", "skip"):
            raise ValueError(f'on_error must be "raise" or "skip", not {on_error!r}')
        segments, removed, version = self._snapshot()
        values = read_events(events, self._wanted(segments), attributes=attributes, on_error=on_error)
        dead = None
        if len(values.unreadable_events):
            dead = np.zeros(values.events, np.bool_)
            dead[values.unreadable_events] = True
        parts: list[Part] = []
        for segment, gone in zip(segments, removed):
            pairs = segment.match(values, self.threads)
            for event, row in pairs.chunks:
                keep = gone.alive(row, version)
                if dead is not None:
                    keep = ~dead[event] if keep is None else keep & ~dead[event]
                parts.append((segment, event, row) if keep is None else (segment, event[keep], row[keep]))
            self._counters["candidates"] += pairs.candidates
            self._counters["predicates"] += pairs.predicates
        id_types = frozenset(s.ids.ids.type for s in segments)
        matches = Matches(values.events, parts, values.problems, id_types)
        self._counters["events"] += values.events
        self._counters["pairs"] += matches.count
        return matches

    def _wanted(self, segments: list[Segment]) -> WantedNames:
        """The attributes that some subscription mentions; made anew only when the segments have changed."""
        known = self._known_names
        if len(known[0]) != len(segments) or any(a is not b for a, b in zip(known[0], segments)):
            names: frozenset[str] = frozenset().union(*(s.names for s in segments))
            known = self._known_names = (segments, WantedNames(names))
        return known[1]

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
            "bytes": parts,
            "matching": dict(self._counters),
        }

    # ---- segments ----

    def _snapshot(self) -> tuple[list[Segment], list[_Removed], int]:
        with self._lock:
            if self._waiting:
                self._flush()
            return list(self._segments), list(self._removed), self._version

    def _flush(self) -> None:
        """Turns what waits into segments (one for each type of ids)."""
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
        self._removed.append(_Removed(len(segment)))
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
            self._segments[numbers[0]], self._removed[numbers[0]] = merged, _Removed(len(merged))
            gone.remove(numbers[0])
        for i in sorted(gone, reverse=True):
            del self._segments[i], self._removed[i]

    def compact(self) -> None:
        """Merges everything and forgets what was removed: fastest matching, least memory."""
        with self._lock:
            if self._waiting:
                self._flush()
            for kind in (pa.int64(), pa.large_string()):
                own = [i for i, s in enumerate(self._segments) if s.ids.ids.type == kind]
                if len(own) > 1 or any(self._removed[i].count for i in own):
                    self._merge(own)

    # ---- files ----

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the compiled subscriptions as a directory that load() maps into memory. An index that stands there
        is replaced; anything else is left alone and refused."""
        with self._lock:
            self.compact()
            target = Path(path)
            if target.exists() and any(target.iterdir()) and not (target / "index.dibs").exists():
                raise FormatError(f"{target} is not empty and holds no saved index: give a new folder")
            partial = target.with_name(f"{target.name}.partial-{os.getpid()}")
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
            for i, segment in enumerate(self._segments):
                store.save(segment, partial / f"segment-{i}")
            (partial / "index.dibs").write_text(f"{store.FORMAT} {len(self._segments)} {self.index}\n")
            if target.exists():
                shutil.rmtree(target)
            os.replace(partial, target)

    @classmethod
    def load(cls, path: str | os.PathLike[str], threads: int | None = None) -> Matcher:
        """Opens what save() wrote, memory-mapped and read-only."""
        source = Path(path)
        try:
            version, segments, index = (source / "index.dibs").read_text().split()
        except FileNotFoundError:
            raise FormatError(f"{source} holds no saved index; write one with Matcher.save") from None
        except ValueError:
            raise FormatError(f"{source / 'index.dibs'} is damaged; save the index again") from None
        if version != str(store.FORMAT):
            raise FormatError(f"{source} has the format {version}, this version of Dibs reads {store.FORMAT}")
        matcher = cls(index=index, threads=threads)
        matcher._segments = [store.load(source / f"segment-{i}") for i in range(int(segments))]
        matcher._removed = [_Removed(len(s)) for s in matcher._segments]
        matcher._closed_to_changes = "was opened from saved files and is read-only: add to a new one and save it"
        return matcher

    def _check_writable(self) -> None:
        if self._closed_to_changes:
            raise DibsError(f"this matcher {self._closed_to_changes}")

    def close(self) -> None:
        """Lets go of everything; the matcher is empty and read-only afterwards."""
        with self._lock:
            self._segments, self._removed, self._waiting = [], [], {}
            self._closed_to_changes = "is closed"

    def __enter__(self) -> Matcher:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Matcher: {len(self):,} subscriptions, index {self.index!r}>"


def _checked_id(id: Any) -> Id:
    if isinstance(id, bool) or not isinstance(id, (str, int)):
        raise DibsError(f"an id is a string or an integer, not {type(id).__name__} ({id!r})")
    if isinstance(id, int):
        if not -(2**63) <= id < 2**63:
            raise DibsError(f"the id {id} does not fit into 64 bits with sign; use a string")
        return int(id)
    try:
        id.encode()
    except UnicodeEncodeError:
        raise DibsError(f"the id {id!r} is not valid Unicode (lone surrogate)") from None
    return str(id)


def _checked_weight(weight: Any) -> float:
    if isinstance(weight, bool) or not isinstance(weight, (int, float, np.number)) or math.isnan(weight):
        raise DibsError(f"a weight is a number, not {weight!r}")
    return float(weight)


def _checked_item(item: Any) -> tuple[Id, str, float]:
    if not isinstance(item, (tuple, list)) or len(item) not in (2, 3):
        raise DibsError(f"expected (id, expression) or (id, expression, weight), found {item!r}")
    id, text = _checked_id(item[0]), item[1]
    if not isinstance(text, str):
        raise ExpressionError([Problem(f"an expression is a string, not {type(text).__name__}")])
    try:
        text.encode()
    except UnicodeEncodeError:
        parse(text)  # says where
    return id, text, _checked_weight(item[2]) if len(item) == 3 else DEFAULT_WEIGHT


def _by_type(ids: list[Id] | pa.Array) -> list[tuple[NDArray[np.int64], pa.Array]]:
    """The ids as arrays of one type each, with the places they came from."""
    if isinstance(ids, pa.Array):
        return [(np.arange(len(ids)), ids)]
    result = []
    for type_, text in ((pa.int64(), False), (pa.large_string(), True)):
        rows = [i for i, x in enumerate(ids) if isinstance(x, str) == text]
        if rows:
            result.append((np.array(rows, np.int64), pa.array([ids[i] for i in rows], type_)))
    return result


def _named(columns: list[tuple[NDArray[np.int64], pa.Array]], places: Iterable[int]) -> Iterable[tuple[int, Id]]:
    wanted = set(places)
    for rows, column in columns:
        for i, row in enumerate(rows.tolist()):
            if row in wanted:
                yield row, column[i].as_py()


def _shown(value: pa.Scalar) -> Any:
    try:
        return value.as_py()
    except UnicodeDecodeError:
        return value.as_buffer().to_pybytes()


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    array = column.combine_chunks()
    return array if isinstance(array, pa.Array) else pa.concat_arrays(array.chunks)


def _nulls(array: pa.Array) -> NDArray[np.bool_]:
    return array.is_null().to_numpy(zero_copy_only=False)
