"""What the subscriptions of a segment ask of documents alone (implied.py), and who of them is answered how by now.

A question is (row, conjunctions, forbidden); rows that say the same of their joins share the conjunctions, which are a
join of a program of their own (coded/program.py), and differ in the constants. The answers are documents, the
witnesses, so that a document that comes is asked for only by questions without one, and a document that goes only
concerns those whose witness it is.

Rows with OR ask nothing: they are always tried.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dibs.coding.clauses import runs
from dibs.coding.domain import NUMBER_BASE, Domains
from dibs.history.coded.answers import one_view, room_for_totals
from dibs.history.coded.columns import TIMED, Snapshot
from dibs.history.coded.known import BOUNDED, FEW, ONE, Ints, KnownValues, numbers_of
from dibs.history.coded.layout import SEVERAL, UNREADABLE, Asked, View
from dibs.history.coded.prefilter_kernels import find_witnesses
from dibs.history.coded.program import Builder, Compiled
from dibs.history.implied import Known, Question, ask_of, required_attributes
from dibs.history.state import State
from dibs.language.joins import COUNTS, EXISTS, join_of
from dibs.language.table import Facet
from dibs.segments.segment import Segment

FALSE_CELL, TRUE_CELL = 1, 2
NONE = -1  # no document


@dataclass(frozen=True, eq=False)
class Witnesses:
    """All questions of a segment in a state."""

    questions: Questions
    state: State
    witness: NDArray[np.int64]  # of each: a document, by its number, or NONE
    lacking: NDArray[np.bool_]  # by row: no document has an attribute that some document must have
    alive: NDArray[np.bool_]  # by row: some event may match it, given the documents of the state

    def find_alive(self, snapshot: Snapshot) -> NDArray[np.bool_]:
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

    def follow(self, state: State, old: Witnesses | None) -> Witnesses:
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

    def find(self, snapshot: Snapshot, view: View, questions: Ints) -> Ints:
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

    def find_lacking(self, snapshot: Snapshot, first: int, end: int) -> NDArray[np.bool_]:
        """By row: whether none of these documents (some may be gone) has an attribute that one must have."""
        lacking = np.zeros(len(self.segment.clauses), np.bool_)
        for name, rows in self.required.items():
            if not _has_value(snapshot.kind[snapshot.columns[name], first:end]):
                lacking[rows] = True
        return lacking

    def _find_in(self, snapshot: Snapshot, state: State, questions: Ints, since: int) -> Ints:
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


def _are_there(state: State, rows: Ints) -> NDArray[np.bool_]:
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
