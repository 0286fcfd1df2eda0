"""Subscriptions that the present history cannot satisfy are not tried: section 4.3.2 of the paper.

    m.plan_joins(prefilter=True)    always; False: never; None: when it is worth its time

Each segment has its questions (questions.py), which are answered again when documents have come or gone, and never used
for a state for which they have not been. A row that is not alive can match no event with single values, so that

    a join that only such rows mention is not answered, and an event has no value for it
    where constants come first, such rows are no candidates

and the index, which knows nothing of this, does not find these rows. An event with several values (or a range) of an
attribute by which somebody asks is matched without the filter.

Answering the questions takes time. Left to itself, the filter spends at most a share (thresholds.prefilter_share) of
what joins have cost so far, and does without when that is not enough.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.coding.values import EventValues
from dibs.history.coded.columns import Snapshot
from dibs.history.coded.program import Compiled
from dibs.history.questions import Questions, Witnesses, read_questions
from dibs.history.state import State
from dibs.jit.threads import survive_forks
from dibs.segments.segment import Segment
from dibs.thresholds import thresholds

A_ROW = 2e-5  # seconds for the questions of a row, before any have been read


class Alive(NamedTuple):
    """What is to be tried."""

    segments: tuple[Segment, ...]
    answered: tuple[Witnesses | None, ...]  # by segment; None: its subscriptions ask nothing
    rows: tuple[NDArray[np.bool_] | None, ...]  # by segment; None: all
    joins: frozenset[str]  # those that are mentioned by such rows
    names: tuple[str, ...]  # of events with several values of one of these, all must be tried

    def find_joins(self, snapshot: Snapshot) -> frozenset[str]:
        """The joins when the documents come that the snapshot has and the state has not."""
        return _joins_of(self.segments, [None if a is None else a.find_alive(snapshot) for a in self.answered])

    @property
    def compiled(self) -> list[Compiled]:
        """What the questions ask of a snapshot."""
        return [each.questions.compiled for each in self.answered if each is not None]


class PreFilter:
    """Any number of threads may ask at once; who finds it busy does without."""

    def __init__(self) -> None:
        self.wanted: bool | None = None
        self.in_use: Alive | None = None  # in the last batch
        self._known: tuple[_Followed, ...] = ()
        self._last: Alive | None = None
        self._lock = threading.Lock()
        self._answering, self._spent = 0.0, 0.0  # seconds: of joins, and of questions
        self._a_state = 0.0  # seconds that following one more state took
        survive_forks(self)

    def begin_again_in_a_child(self) -> None:
        self._lock = threading.Lock()

    def note_answering(self, seconds: float) -> None:
        """What joins have cost."""
        self._answering += seconds

    def follow(self, segments: Sequence[Segment], state: State) -> Alive | None:
        """What is alive in this state; None: all of it."""
        alive = None
        if self.wanted is not False and self._lock.acquire(blocking=bool(self.wanted)):
            try:
                if self.wanted or self._can_afford(segments, state):
                    begin = time.perf_counter()
                    alive = self._follow(segments, state)
                    self._spent += time.perf_counter() - begin
            finally:
                self._lock.release()
        self.in_use = alive
        return alive

    def describe(self) -> str:
        """What it leaves out, in words."""
        if self.wanted is False:
            return "off"
        alive = self.in_use
        if alive is None:
            return "all subscriptions are tried"
        total = sum(map(len, alive.segments))
        dead = sum(
            int((~each[own.clauses_at(np.arange(len(own)))]).sum())
            for own, each in zip(alive.segments, alive.rows)
            if each is not None
        )
        return f"{dead:,} of {total:,} subscriptions cannot match with the documents that are there, and are not tried"

    def _follow(self, segments: Sequence[Segment], state: State) -> Alive | None:
        begin = time.perf_counter()
        old = {id(each.segment): each for each in self._known}
        known = [old.get(id(segment)) or _Followed(segment, read_questions(segment), None) for segment in segments]
        self._known = tuple(each.follow(state) for each in known)
        if len(old) == len(known):
            self._a_state = time.perf_counter() - begin
        rows = tuple(None if each.answered is None else each.answered.alive for each in self._known)
        answered = tuple(each.answered for each in self._known)
        last = self._last
        if last is not None and _are_same(last.segments, segments) and _are_same(last.rows, rows):
            return last._replace(answered=answered)
        if all(each is None or each.all() for each in rows):
            return None
        names = {name for each in answered if each is not None for name in each.questions.names}
        joins = _joins_of(segments, rows)
        self._last = last = Alive(tuple(segments), answered, rows, joins, tuple(sorted(names)))
        return last

    def _can_afford(self, segments: Sequence[Segment], state: State) -> bool:
        known = {id(each.segment) for each in self._known}
        new = sum(len(segment) for segment in segments if segment.joins and id(segment) not in known)
        is_new_state = any(each.answered is not None and each.answered.state is not state for each in self._known)
        cost = new * A_ROW + is_new_state * self._a_state
        return not cost or self._spent + cost <= thresholds.prefilter_share * self._answering


class _Followed(NamedTuple):
    """A segment, its questions, and their answers in the last state."""

    segment: Segment
    questions: Questions | None
    answered: Witnesses | None

    def follow(self, state: State) -> _Followed:
        if self.questions is None or (self.answered is not None and self.answered.state is state):
            return self
        return self._replace(answered=self.questions.follow(state, self.answered))


def _are_same(some: Sequence[object], others: Sequence[object]) -> bool:
    return len(some) == len(others) and all(a is b for a, b in zip(some, others))


def _joins_of(segments: Sequence[Segment], rows: Sequence[NDArray[np.bool_] | None]) -> frozenset[str]:
    """The joins that these rows mention."""
    found: set[str] = set()
    for segment, alive in zip(segments, rows):
        if alive is None:
            found.update(segment.joins)
            continue
        offsets, places = segment.joins_by_clause
        mentioned = np.unique(places[np.repeat(alive, np.diff(offsets))])
        found.update(segment.joins[place] for place in mentioned.tolist())
    return frozenset(found)


def find_several(values: EventValues, names: Sequence[str]) -> NDArray[np.bool_]:
    """The events that have several values, or a range, of one of these attributes."""
    codes = values.names.codes  # type: ignore[attr-defined]
    place = np.full(len(values.names), -1, np.int64)
    place[[codes[name] for name in names if name in codes]] = np.arange(sum(name in codes for name in names))
    counts = np.zeros(values.events * len(names), np.int64)
    for rows in (values.numbers, values.strings, values.times, values.booleans, values.unreadable):
        if len(rows.event):
            own = place[rows.name]
            kept = own >= 0
            counts += np.bincount(rows.event[kept] * np.int64(len(names)) + own[kept], minlength=len(counts))
    several: NDArray[np.bool_] = np.any(counts.reshape(values.events, len(names)) > 1, axis=1)
    for event, name, _ in values.ranges:
        if place[name] >= 0:
            several[event] = True
    return several
