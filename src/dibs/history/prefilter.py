"""Subscriptions that the present history cannot satisfy are not tried: section 4.3.2 of the paper.

    m.plan_joins(prefilter=True)    always; False: never; None: when it is worth its time

Each segment has its questions, which are answered again when documents have come or gone, and never used
for a state for which they have not been. A row that is not alive can match no event with single values, so that

    a join that only such rows mention is not answered, and an event has no value for it
    where constants come first, such rows are no candidates

and the index, which knows nothing of this, does not find these rows. An event with several values (or a range) of an
attribute by which somebody asks is matched without the filter.

Answering the questions takes time. Left to itself, the filter spends at most a share (`PREFILTER_SHARE`) of
what joins have cost so far, and does without when that is not enough.

What the subscriptions of a segment ask of documents alone (implied.py) are questions. One is (row, conjunctions,
forbidden); rows that say the same of their joins share the conjunctions, which are a join of a program of their own
(coded/program.py), and differ in the constants. The answers are documents, the witnesses, so that a document that comes
is asked for only by questions without one, and a document that goes only concerns those whose witness it is.

Rows with OR ask nothing: they are always tried.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.coding.clauses import runs
from dibs.coding.domain import NUMBER_BASE, Domains
from dibs.coding.values import EventValues
from dibs.history.coded.answer_kernels import find_witnesses
from dibs.history.coded.answers import one_view, room_for_totals
from dibs.history.coded.columns import TIMED, DocumentSnapshot
from dibs.history.coded.known import BOUNDED, FEW, ONE, Ints, KnownValues, numbers_of
from dibs.history.coded.layout import SEVERAL, UNREADABLE, Asked, View
from dibs.history.coded.program import Builder, Compiled
from dibs.history.implied import Known, Question, ask_of, required_attributes
from dibs.history.state import HistoryState
from dibs.jit.threads import survive_forks
from dibs.language.joins import COUNTS, EXISTS, join_of
from dibs.language.table import Facet
from dibs.segments.segment import Segment
from dibs.tuning import tuned

# shared joins 1,334 us an event of 1,445; wishes with a join each 370 of 696
PREFILTER_SHARE = tuned("prefilter_share", 0.1, 1e9, "of the time", "of joins that may go into what cannot match")

A_ROW = 2e-5  # seconds for the questions of a row, before any have been read


class Alive(NamedTuple):
    """What is to be tried."""

    segments: tuple[Segment, ...]
    answered: tuple[Witnesses | None, ...]  # by segment; None: its subscriptions ask nothing
    rows: tuple[NDArray[np.bool_] | None, ...]  # by segment; None: all
    joins: frozenset[str]  # those that are mentioned by such rows
    names: tuple[str, ...]  # of events with several values of one of these, all must be tried

    def find_joins(self, snapshot: DocumentSnapshot) -> frozenset[str]:
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

    def reset_after_fork(self) -> None:
        self._lock = threading.Lock()

    def note_answering(self, seconds: float) -> None:
        """What joins have cost."""
        self._answering += seconds

    def follow(self, segments: Sequence[Segment], state: HistoryState) -> Alive | None:
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

    def _follow(self, segments: Sequence[Segment], state: HistoryState) -> Alive | None:
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

    def _can_afford(self, segments: Sequence[Segment], state: HistoryState) -> bool:
        known = {id(each.segment) for each in self._known}
        new = sum(len(segment) for segment in segments if segment.joins and id(segment) not in known)
        is_new_state = any(each.answered is not None and each.answered.state is not state for each in self._known)
        cost = new * A_ROW + is_new_state * self._a_state
        return not cost or self._spent + cost <= PREFILTER_SHARE.value * self._answering


class _Followed(NamedTuple):
    """A segment, its questions, and their answers in the last state."""

    segment: Segment
    questions: Questions | None
    answered: Witnesses | None

    def follow(self, state: HistoryState) -> _Followed:
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


FALSE_CELL, TRUE_CELL = 1, 2
NONE = -1  # no document


@dataclass(frozen=True, eq=False)
class Witnesses:
    """All questions of a segment in a state."""

    questions: Questions
    state: HistoryState
    witness: NDArray[np.int64]  # of each: a document, by its number, or NONE
    lacking: NDArray[np.bool_]  # by row: no document has an attribute that some document must have
    alive: NDArray[np.bool_]  # by row: some event may match it, given the documents of the state

    def find_alive(self, snapshot: DocumentSnapshot) -> NDArray[np.bool_]:
        """The rows that are alive when the documents come that the snapshot has and the state has not: in that state,
        and in those on the way."""
        questions, end = self.questions, self.state.end - snapshot.base
        witness = self.witness.copy()
        open_ones = np.flatnonzero((witness == NONE) & ~questions.is_forbidden)
        shape = np.ones(len(questions.rows), np.int64)
        view = View(end * shape, snapshot.size * shape, np.empty(0, np.int32))
        witness[open_ones] = questions.find(snapshot, view, open_ones)
        witness[questions.is_forbidden] = NONE  # what forbids a match may go
        lacking = self.lacking
        if lacking.any():
            lacking = lacking & questions.find_lacking(snapshot, end, snapshot.size)
        return questions.find_alive(witness, lacking)


@dataclass(eq=False)
class Questions:
    segment: Segment
    rows: Ints  # those that ask something
    event: Ints  # of each question: the place of its row in rows
    number: Ints  # of each question: of its join in the program
    is_forbidden: NDArray[np.bool_]
    names: tuple[str, ...]  # the attributes of events by which they ask: an event must have one value of each
    required: dict[str, Ints]  # attributes that some document must have: rows
    compiled: Compiled
    known: KnownValues
    slots: Ints

    # ---- answers ----

    def follow(self, state: HistoryState, old: Witnesses | None) -> Witnesses:
        """All questions answered for a state. old: the answers for another one."""
        snapshot = state.coded.at(state, self.compiled)
        if old is None or old.state.coded is not state.coded or old.state.end > state.end:
            witness = self._find_in(snapshot, state, np.arange(len(self.event)), state.first)
        else:
            witness = old.witness.copy()
            lost = np.flatnonzero((witness != NONE) & ~_are_there(state, witness))
            open_ones = np.flatnonzero(witness == NONE)
            witness[lost] = self._find_in(snapshot, state, lost, state.first)
            if state.end > old.state.end:
                witness[open_ones] = self._find_in(snapshot, state, open_ones, old.state.end)
        lacking = self.find_lacking(snapshot, state.first - snapshot.base, state.end - snapshot.base)
        alive = self.find_alive(witness, lacking)
        if old is not None and np.array_equal(alive, old.alive):
            alive = old.alive  # the same object, by which others see that nothing has changed
        return Witnesses(self, state, witness, lacking, alive)

    def find_alive(self, witness: NDArray[np.int64], lacking: NDArray[np.bool_]) -> NDArray[np.bool_]:
        result = ~lacking
        result[self.rows[self.event[(witness != NONE) == self.is_forbidden]]] = False
        return result

    def find(self, snapshot: DocumentSnapshot, view: View, questions: Ints) -> Ints:
        """Witnesses of some questions among the documents of a view."""
        if not len(questions):
            return np.empty(0, np.int64)
        program, ends = self.compiled.bind(snapshot)
        asked = Asked(
            snapshot.table.address,
            snapshot.documents,
            self.known.operands(self.compiled, ends, snapshot, self.slots),
            program.tests,
            program.conjunctions,
            program.joins,
            view,
            program.slots,
            np.empty(0, np.int32),
            room_for_totals(program.joins.function, 0),
        )
        found: Ints = find_witnesses(asked, self.event[questions], self.number[questions])
        return np.where(found < 0, NONE, found + snapshot.base)

    def find_lacking(self, snapshot: DocumentSnapshot, first: int, end: int) -> NDArray[np.bool_]:
        """By row: whether none of these documents (some may be gone) has an attribute that one must have."""
        lacking = np.zeros(len(self.segment.clauses), np.bool_)
        for name, rows in self.required.items():
            if not _has_value(snapshot.kind[snapshot.columns[name], first:end]):
                lacking[rows] = True
        return lacking

    def _find_in(self, snapshot: DocumentSnapshot, state: HistoryState, questions: Ints, since: int) -> Ints:
        """Witnesses among the documents of a state from the number `since` on."""
        view = one_view(state, len(self.rows), snapshot.base)
        return self.find(snapshot, view._replace(first=np.maximum(view.first, since - snapshot.base)), questions)


def _has_value(kinds: NDArray[np.uint8]) -> bool:
    """Whether one of these documents has a value of which something is known; mostly one of the last has."""
    size = 64
    while len(kinds):
        last = kinds[-size:]
        if ((last < UNREADABLE) | (last == SEVERAL)).any():
            return True
        kinds, size = kinds[:-size], size * 8
    return False


def _are_there(state: HistoryState, rows: Ints) -> NDArray[np.bool_]:
    there = (rows >= state.first) & (rows < state.end)
    if state.gone:
        there &= ~np.isin(rows, np.fromiter(state.gone, np.int64, len(state.gone)))
    return there


# ---- from a segment ----


def read_questions(segment: Segment) -> Questions | None:
    """None: its subscriptions ask nothing."""
    clauses, domains = segment.clauses, segment.domains
    offsets, _places = segment.joins_by_clause
    rows = np.flatnonzero(np.diff(offsets[: clauses.conjunctions + 1]))
    if not len(rows):
        return None
    joins = [join_of(name) for name in segment.joins]
    names = tuple(sorted({name for join in joins for name in join.event_attributes}))
    timed = sorted({TIMED + name for name in names} & set(numbers_of(domains)))
    known = KnownValues.read(domains, clauses, rows, [*names, *timed])
    column = {name: number for number, name in enumerate([*names, *timed])}
    steps, step_row, truths = _join_steps(segment, rows)
    builder = Builder()
    numbers: dict[Question, int] = {}
    found: list[tuple[Ints, int, bool]] = []
    required: dict[str, list[Ints]] = {}
    order = np.argsort(steps, kind="stable")
    bounds = np.searchsorted(steps[order], np.arange(len(joins) + 1))
    for number, join in enumerate(joins):
        own = order[bounds[number] : bounds[number + 1]]
        given = [*join.event_attributes, *(TIMED + name for name in join.event_attributes if TIMED + name in column)]
        status = known.status[step_row[own]][:, [column[name] for name in given]]
        shapes, shape = _distinct(np.column_stack([truths[own], status]))
        for at, (truth_code, *codes) in enumerate(shapes.tolist()):
            if truth_code == _ANY:
                continue
            truth = {_FALSE: False, _TRUE: True}.get(truth_code)
            by_code = [
                frozenset(name for name, code in zip(given, codes) if code == wanted) for wanted in (ONE, FEW, BOUNDED)
            ]
            events = step_row[own[shape == at]]
            for name in required_attributes(join, truth):
                required.setdefault(name, []).append(rows[events])
            question = ask_of(join, truth, Known(*by_code))
            if question is None:
                continue
            if question not in numbers:
                numbers[question] = builder.add_exists(question.conjunctions)
            found.append((events, numbers[question], question.is_forbidden))
    if not found and not required:
        return None
    for name in required:
        builder.add_name(name)
    compiled = builder.compile()
    sizes = [len(events) for events, _, _ in found]
    return Questions(
        segment,
        rows,
        np.concatenate([events for events, _, _ in found]) if found else np.empty(0, np.int64),
        np.repeat([number for _, number, _ in found], sizes).astype(np.int64),
        np.repeat([is_forbidden for _, _, is_forbidden in found], sizes).astype(np.bool_),
        names,
        {name: np.unique(np.concatenate(parts)) for name, parts in required.items()},
        compiled,
        known,
        np.array([column[name] for name in compiled.slots], np.int64),
    )


_ANY, _FALSE, _TRUE, _VALUE = range(4)  # what a step asks of its join: nothing certain; FALSE; TRUE; to have a value


def _join_steps(segment: Segment, rows: Ints) -> tuple[Ints, Ints, Ints]:
    """Of the steps of these rows that are joins: the join (its place), the place of the row, and what is asked."""
    clauses, domains = segment.clauses, segment.domains
    place_of = {name: number for number, name in enumerate(segment.joins)}
    join = np.array([place_of.get(name, -1) for name, _ in domains.attributes], np.int64)
    sizes = np.diff(clauses.offsets)[rows]
    steps = runs(clauses.offsets[rows], sizes)
    kept = join[clauses.attribute[steps]] >= 0
    row, steps = np.repeat(np.arange(len(rows)), sizes)[kept], steps[kept]
    attribute = clauses.attribute[steps]
    lo, hi = clauses.lo[steps], clauses.hi[steps]
    truth = np.full(len(steps), _ANY)
    truth[(lo == FALSE_CELL) & (hi == FALSE_CELL)] = _FALSE
    truth[(lo == TRUE_CELL) & (hi == TRUE_CELL)] = _TRUE
    functions = [join_of(name) for name in segment.joins]
    is_count = np.array([each.function in COUNTS and each.event is None for each in functions], np.bool_)
    is_extreme = np.array([each.function not in (*COUNTS, EXISTS) for each in functions], np.bool_)
    own = join[attribute]
    truth[is_extreme[own] & (truth == _ANY)] = _VALUE
    counted = np.flatnonzero(is_count[own])
    zero = np.array([_zero_cell(domains, number) for number in range(len(domains.attributes))], np.int64)[attribute]
    no_zero = (hi >= 0) & ((lo > zero) | (hi < zero)) & (lo >= NUMBER_BASE) & (hi < domains.string_base[attribute])
    truth[counted] = np.where(no_zero[counted], _VALUE, _ANY)
    return own, row, truth


def _zero_cell(domains: Domains, attribute: int) -> int:
    """The cell of the number 0."""
    if domains.attributes[attribute][1] != Facet.VALUE:
        return 0
    first, end = domains.number_offsets[attribute : attribute + 2]
    constants = domains.number_value[first:end]
    rank = int(np.searchsorted(constants, 0.0))
    return NUMBER_BASE + 2 * rank + int(rank < len(constants) and constants[rank] == 0.0)


def _distinct(table: Ints) -> tuple[Ints, Ints]:
    """The different rows of a table, and which of them each is. (np.unique of rows turns an interrupt into a
    TypeError.)"""
    order = np.lexsort(table.T)
    in_order = table[order]
    is_new = np.ones(len(table), np.bool_)
    is_new[1:] = (in_order[1:] != in_order[:-1]).any(axis=1)
    place = np.empty(len(table), np.int64)
    place[order] = np.cumsum(is_new) - 1
    return in_order[is_new], place
