"""From events to events with what joins say of them, by the kernels: the front of this folder.

Answering(plans)            the joins, compiled once
.seen_by(state, events)     which documents the events see
.answered(...)              answers of a batch, which `with_answers` puts among the values of the events
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dibs.coding.values import Booleans, EventValues, Numbers, Strings, Times
from dibs.history.coded.answer_kernels import answer_joins
from dibs.history.coded.columns import DocumentSnapshot, order_bits
from dibs.history.coded.layout import (
    BOOLEAN,
    DIGITS,
    FUNCTION_DISTINCT,
    FUNCTION_FIRST,
    FUNCTION_LAST,
    FUNCTION_ROWS,
    FUNCTION_SUM,
    IS_FALSE,
    IS_TRUE,
    NUMBER,
    SEVERAL,
    STRING,
    TIME,
    UNREADABLE,
    Answers,
    Asked,
    Memo,
    Operands,
    Program,
    Tally,
    View,
)
from dibs.history.coded.operands import operands_of
from dibs.history.coded.program import Compiled, Ends, compile_plans
from dibs.history.plan import JoinPlan
from dibs.jit.hashing import slots_for

if TYPE_CHECKING:
    from dibs.history.state import HistoryState

NEVER_GONE = np.int32(2**31 - 1)
ALL = np.empty(0, np.int64)  # offsets of joins where all are needed
NO_MEMO = Memo(
    np.empty(0, np.uint8),
    np.empty((0, 2), np.int64),
    np.empty((0, 4), np.uint8),
    np.empty((0, 4), np.int64),
    np.empty((0, 4), np.int32),
    np.empty((0, 4), np.int32),
)


def view_of(states: Sequence[HistoryState], base: int) -> View:
    """What each event sees, each with the state before it. Documents go, and do not come back."""
    first = np.fromiter((state.first - base for state in states), np.int64, len(states))
    end = np.fromiter((state.end - base for state in states), np.int64, len(states))
    gone = np.empty(0, np.int32)
    last: frozenset[int] = frozenset()
    for event, state in enumerate(states):
        if state.gone is not last:
            if not len(gone):
                gone = np.full(int(end[-1]), NEVER_GONE, np.int32)
            for row in state.gone - last:
                if row >= base:
                    gone[row - base] = min(event, gone[row - base])
            last = state.gone
    return View(first, end, gone)


def one_view(state: HistoryState, events: int, base: int) -> View:
    """All of them with the same state."""
    gone = np.empty(0, np.int32)
    if state.gone:
        gone = np.full(state.end - base, NEVER_GONE, np.int32)
        gone[np.fromiter(state.gone, np.int64, len(state.gone)) - base] = 0
    shape = np.ones(events, np.int64)
    return View((state.first - base) * shape, (state.end - base) * shape, gone)


@dataclass
class _Bound:
    snapshot: DocumentSnapshot
    program: Program
    ends: Ends


class Answering:
    """Joins that kernels answer. `left` are the places of the plans that they do not take."""

    def __init__(self, plans: Sequence[JoinPlan], compiled: tuple[Compiled, list[int]] | None = None):
        """compiled: the plans, if they were compiled before."""
        self.compiled, self.left = compiled or compile_plans(plans)
        taken = sorted(set(range(len(plans))) - set(self.left))
        self.taken = np.array(taken, np.int64)  # places in the plans
        self.names = [plans[place].name for place in taken]
        joins = self.compiled.program.joins
        self.has_value = (joins.function != 0) & (joins.slot < 0)  # no condition
        self._bound: _Bound | None = None
        self._memo: tuple[Any, Memo] | None = None

    def bind(self, snapshot: DocumentSnapshot) -> tuple[Program, Ends]:
        bound = self._bound
        if bound is None or bound.snapshot is not snapshot:
            bound = self._bound = _Bound(snapshot, *self.compiled.bind(snapshot))
        return bound.program, bound.ends

    def memo(self, state: HistoryState) -> Memo:
        """What is known of this state already."""
        memo = self._memo
        if memo is None or memo[0] is not state:
            n = len(self.names)
            made = Memo(*(np.zeros((n, *each.shape[1:]), each.dtype) for each in NO_MEMO))
            memo = self._memo = (state, made)
        return memo[1]

    def answer(
        self,
        values: EventValues,
        snapshot: DocumentSnapshot,
        view: View,
        needed: NDArray[np.bool_] | None = None,
        memo: Memo = NO_MEMO,
        witness: bool = False,
    ) -> tuple[Answers, int]:
        """Answers, and how many values there are among them. needed: event, join (of those that are taken)."""
        program, ends = self.bind(snapshot)
        operands = operands_of(values, self.compiled, ends, snapshot)
        return run(program, operands, snapshot, view, needed, memo, witness)


def run(
    program: Program,
    operands: Operands,
    snapshot: DocumentSnapshot,
    view: View,
    needed: NDArray[np.bool_] | None,
    memo: Memo = NO_MEMO,
    witness: bool = False,
) -> tuple[Answers, int]:
    events, joins = len(view.end), len(program.joins.function)
    offsets, places = ALL, np.empty(0, np.int32)
    with_values = (program.joins.function != 0) & (program.joins.slot < 0)
    room = 4 * events * int(with_values.sum())
    if needed is not None:
        offsets = np.zeros(events + 1, np.int64)
        np.cumsum(needed.sum(axis=1), out=offsets[1:])
        places = np.nonzero(needed)[1].astype(np.int32)
        room = 4 * int(needed[:, with_values].sum())
    answers = Answers(
        np.zeros((events, joins), np.uint8),
        np.empty((events, joins) if witness else (0, 0), np.int32),
        np.empty(room, np.int32),
        np.empty(room, np.int32),
        np.empty(room, np.uint8),
        np.empty(room, np.int64),
        np.empty(room, np.int32),
        np.empty(room, np.int32),
    )
    asked = Asked(
        snapshot.table.address,
        snapshot.documents,
        operands,
        program.tests,
        program.conjunctions,
        program.joins,
        view,
        program.slots,
        np.zeros(snapshot.size, np.int32),
        room_for_totals(program.joins.function, snapshot.size + snapshot.extras),
    )
    return answers, int(answer_joins(asked, offsets, places, memo, answers))


def room_for_totals(functions: NDArray[np.uint8], values: int) -> Tally:
    """values: the most that an attribute has, not less than there are documents."""
    has_sums = ((functions >= FUNCTION_SUM) & (functions < FUNCTION_DISTINCT)).any()
    slots = slots_for(2 * values) if (functions == FUNCTION_DISTINCT).any() else 0
    return Tally(
        np.zeros(DIGITS if has_sums else 0, np.int64),
        np.zeros(8, np.int64),
        np.zeros(1),
        np.zeros(slots, np.int32),
        np.zeros(slots, np.uint8),
        np.zeros(slots, np.int64),
        np.zeros(slots, np.int32),
        np.empty(values if (functions == FUNCTION_ROWS).any() else 0, np.int32),
    )


# ---- answers as values of events ----


Answered = tuple[int, Answers, int]  # the first event, answers, and how many values there are among them


def with_answers(
    values: EventValues, codes: NDArray[np.int32], joins: Any, snapshot: DocumentSnapshot, parts: Sequence[Answered]
) -> EventValues:
    """The events with their answers, part by part. codes: the number of the name of each join."""
    b = values.booleans
    truths = [(b.event, b.name, b.value)]
    found = []
    for first, answers, count in parts:
        for bit, value in ((IS_TRUE, 1), (IS_FALSE, 0)):
            event, join = np.nonzero(answers.truth & bit)
            truths.append(((event + first).astype(np.int32), codes[join], np.full(len(event), value, np.uint8)))
        if count:
            found.append((answers.event[:count] + np.int32(first), *(each[:count] for each in answers[3:])))
    values = replace(values, booleans=Booleans(*map(np.concatenate, zip(*truths))))
    if not found:
        return values
    event, join, kind, key, tie, row = map(np.concatenate, zip(*found))
    last = np.isin(joins.function[join], (FUNCTION_LAST, FUNCTION_FIRST))
    if last.any():
        event, join, kind, key, tie = _last_values(event, join, kind, key, tie, row, last, joins, snapshot)
    return with_values(values, event, codes[join], kind, key, tie, snapshot)


def _last_values(
    event: Any, join: Any, kind: Any, key: Any, tie: Any, row: Any, last: Any, joins: Any, snapshot: DocumentSnapshot
) -> Any:
    """Answers in which the document that is the last one is replaced by what it has."""
    column = joins.attribute[join[last]]
    rows = row[last]
    kind, key, tie = kind.copy(), key.copy(), tie.copy()
    kind[last], key[last], tie[last] = (
        snapshot.kind[column, rows],
        snapshot.key[column, rows],
        snapshot.tie[column, rows],
    )
    several = np.flatnonzero(last & (kind == SEVERAL))
    kept = kind < UNREADABLE
    columns = [each[kept] for each in (event, join, kind, key, tie)]
    for place in several.tolist():
        own = slice(int(key[place]), int(key[place]) + int(tie[place]))
        extra = [each[own] for each in snapshot.extra]
        known = extra[0] < UNREADABLE
        same = [np.full(int(known.sum()), each[place]) for each in (event, join)]
        columns = [np.append(a, b).astype(a.dtype) for a, b in zip(columns, (*same, *(each[known] for each in extra)))]
    return columns


def with_values(
    values: EventValues, event: Any, name: Any, kind: Any, key: Any, tie: Any, snapshot: DocumentSnapshot
) -> EventValues:
    n, s, t, b = values.numbers, values.strings, values.times, values.booleans
    own = kind == NUMBER
    if own.any():
        number = order_bits(key[own].view(np.float64)).view(np.float64)
        n = Numbers(*_append(n, event[own], name[own], number, tie[own].astype(np.int16)))
    own = kind == TIME
    if own.any():
        t = Times(*_append(t, event[own], name[own], key[own]))
    own = kind == BOOLEAN
    if own.any():
        b = Booleans(*_append(b, event[own], name[own], key[own].astype(np.uint8)))
    own = kind == STRING
    if own.any():
        texts = snapshot.texts
        starts, sizes = texts.start[tie[own]], texts.start[tie[own] + 1] - texts.start[tie[own]]
        ends = np.cumsum(sizes)
        data = texts.data[np.repeat(starts - (ends - sizes), sizes) + np.arange(ends[-1])]
        offsets = np.append(s.offsets, s.offsets[-1] + ends)
        s = Strings(np.append(s.event, event[own]), np.append(s.name, name[own]), offsets, np.append(s.data, data))
    return replace(values, numbers=n, strings=s, times=t, booleans=b)


def _append(old: Any, *new: Any) -> list[Any]:
    return [np.append(a, b).astype(a.dtype) for a, b in zip(old, new)]
