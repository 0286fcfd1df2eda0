"""What a join is for one event and the documents of a state."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from dibs.history.keys import BOOLEAN, NUMBER, TOP, UNREADABLE, Cell, Cells
from dibs.history.ordered import KeyRun, KeyStretch, Ordered
from dibs.history.plan import Access, Conjunction, Plan, access_of
from dibs.history.state import State
from dibs.history.verify import Event, holds, stands
from dibs.language.expression import FLIPPED_OPERATOR, NEGATED_OPERATOR, And, number_key
from dibs.language.joins import COUNT, EXISTS, MAX_BY, MIN

ALL = Conjunction((), (), (), ())  # every document
YES, NO = ((BOOLEAN, True),), ((BOOLEAN, False),)


def answer(plan: Plan, state: State, event: Event) -> Cells:
    """The values of the attribute that stands for the join: TRUE or FALSE for a condition (both where the event has
    several values), the number for COUNT, and for MIN and MAX one value of each kind."""
    join = plan.join
    result = _find_known(plan, state, event) if plan.is_fixed else _find_cells(plan, state, event)
    if join.event is None:
        return result
    assert join.operator is not None
    others = event.get(join.event, ())
    holding, failing = FLIPPED_OPERATOR[join.operator], FLIPPED_OPERATOR[NEGATED_OPERATOR[join.operator]]
    if join.factor is not None:
        result = multiply(result, join.factor)
    pairs = [(cell, other) for cell in result for other in others]
    found = YES if any(stands(cell, holding, other) for cell, other in pairs) else ()
    return found + NO if any(stands(cell, failing, other) for cell, other in pairs) else found


def multiply(cells: Cells, factor: float) -> Cells:
    """Multiples of numbers, as float64 multiplies them; of other values there are none."""
    products = (number_key(key)[0] * factor for kind, key in cells if kind == NUMBER and key is not TOP)
    found = tuple((NUMBER, TOP if math.isnan(product) else product + 0.0) for product in products)
    return (*found, *(cell for cell in cells if cell == (NUMBER, TOP)))


def _find_known(plan: Plan, state: State, event: Event) -> Cells:
    """What is found for all events alike: once for a state."""
    found = state.answers.get(plan.name)
    if found is None:
        found = state.answers[plan.name] = _find_cells(plan, state, event)
    return found


def _find_cells(plan: Plan, state: State, event: Event) -> Cells:
    if plan.join.function == EXISTS:
        return YES if witness(plan, state, event) is not None else NO
    if plan.join.function == COUNT:
        return ((NUMBER, count(plan, state, event)),)
    if plan.join.function == MAX_BY:
        assert plan.join.attribute is not None
        column, base = state.column(plan.join.attribute), state.base
        cells = (cell for row in latest(plan, state, event) for cell in column[row - base])
        return tuple(dict.fromkeys(cell for cell in cells if cell[0] != UNREADABLE))
    return tuple(cell for cell, _ in extremes(plan, state, event))


# ---- documents ----


class _Found(NamedTuple):
    """What an index gives for a conjunction."""

    ordered: Ordered
    access: Access

    @property
    def counts_each_once(self) -> bool:
        """Whether every key of its stretches is another document that satisfies the conjunction."""
        return not self.access.rest and not self.ordered.is_multiple and len(self.access.bounds) <= 1


def _find(conjunction: Conjunction, state: State, event: Event) -> _Found | None:
    """None: all documents have to be tested."""
    if not conjunction.names:
        return None
    index = state.index(conjunction.names)
    access = access_of(conjunction, index, event)
    return None if access is None else _Found(index, access)


def _rows(plan: Plan, conjunction: Conjunction, state: State, event: Event) -> Iterator[int]:
    """The documents that satisfy a conjunction, the newest runs first; some more than once."""
    found = _find(conjunction, state, event)
    if found is None:
        rest: tuple[Any, ...] = (*conjunction.equal, *conjunction.order, *conjunction.rest)
        candidates: Iterator[int] = state.rows()
    else:
        rest = found.access.rest
        stretches = (each for bounds in found.access.bounds for each in found.ordered.stretches(bounds))
        candidates = (row for each in stretches for row in _newest_first(state, each))
    if not rest:
        return candidates
    state.make_columns(plan.attributes)
    columns, base = state.columns, state.base
    test = rest[0] if len(rest) == 1 else And(rest)

    def satisfies(row: int) -> bool:
        return holds(test, lambda name: columns[name][row - base], event)

    return filter(satisfies, candidates)


def _newest_first(state: State, stretch: KeyStretch) -> Iterator[int]:
    """In chunks: mostly the first document that is there is enough."""
    _, start, end = stretch
    size = 16
    while start < end:
        chunk = stretch._replace(start=max(start, end - size))
        yield from state.there(chunk._replace(end=end)).tolist()[::-1]
        end, size = chunk.start, size * 8


def witness(plan: Plan, state: State, event: Event) -> int | None:
    """A document that satisfies the condition."""
    for conjunction in plan.conjunctions:
        found = _find(conjunction, state, event)
        if found is not None and not found.access.rest:
            is_empty = True
            for bounds in found.access.bounds:
                for run, _, end in found.ordered.stretches(bounds):
                    newest = int(run.rows[end - 1])
                    if state.is_there(newest):  # as it mostly is
                        return newest
                    is_empty = False
            if is_empty:
                continue
        row = next(_rows(plan, conjunction, state, event), None)
        if row is not None:
            return row
    return None


def count(plan: Plan, state: State, event: Event) -> int:
    """How many documents satisfy the condition."""
    if len(plan.conjunctions) == 1:
        if plan.conjunctions[0] == ALL:
            return len(state)
        found = _find(plan.conjunctions[0], state, event)
        if found is not None and found.counts_each_once:
            stretches = (each for bounds in found.access.bounds for each in found.ordered.stretches(bounds))
            return sum(
                each.end - each.start if state.are_all_there(each) else len(state.there(each)) for each in stretches
            )
    return len({row for conjunction in plan.conjunctions for row in _rows(plan, conjunction, state, event)})


def extremes(plan: Plan, state: State, event: Event) -> list[tuple[Cell, int]]:
    """The least or greatest value of each kind, and a document that has it."""
    attribute = plan.join.attribute
    assert attribute is not None
    if len(plan.conjunctions) == 1 and (conjunction := plan.conjunctions[0]).names[-1:] == (attribute,):
        found = _find(conjunction, state, event)
        ends_it = found is not None and not found.access.rest and len(found.access.bounds) <= 1
        if found is not None and ends_it and not (found.ordered.is_multiple and conjunction.order):
            return _ends(plan, state, found)
    best: dict[int, tuple[Cell, int]] = {}
    column = state.column(attribute)
    is_least = plan.join.function == MIN
    for conjunction in plan.conjunctions:
        for row in _rows(plan, conjunction, state, event):
            for cell in column[row - state.base]:
                old = best.get(cell[0])
                if old is None or (cell < old[0] if is_least else cell > old[0]):
                    best[cell[0]] = cell, row
    best.pop(UNREADABLE, None)
    return list(best.values())


def latest(plan: Plan, state: State, event: Event) -> list[int]:
    """The documents for MAX_BY, one for each kind of value by which they are ordered."""
    by, attribute = plan.join.by, plan.join.attribute
    assert by is not None and attribute is not None
    column, own, base = state.column(by), state.column(attribute), state.base
    best: dict[int, tuple[Any, int]] = {}

    def has_value(row: int) -> bool:
        return any(cell[0] != UNREADABLE for cell in own[row - base])

    for conjunction in plan.conjunctions:
        found = _find(conjunction, state, event) if conjunction.names[-1:] == (by,) else None
        if found is not None and not found.access.rest and not (found.ordered.is_multiple and conjunction.order):
            keys = _from_the_end(state, found, has_value)
        else:
            rows = (row for row in _rows(plan, conjunction, state, event) if has_value(row))
            keys = ((cell, row) for row in rows for cell in column[row - base])
        for (kind, key), row in keys:
            if kind not in best or (key, row) > best[kind]:
                best[kind] = key, row
    best.pop(UNREADABLE, None)
    return [row for _, row in best.values()]


def _from_the_end(state: State, found: _Found, has_value: Callable[[int], bool]) -> Iterator[tuple[Cell, int]]:
    """Of each stretch, the last key of each kind whose document counts."""
    for bounds in found.access.bounds:
        for run, start, end in found.ordered.stretches(bounds):
            done: set[int] = set()
            for place in range(end - 1, start - 1, -1):
                cell, row = run.keys[place][-2:], int(run.rows[place])
                if cell[0] in done:
                    if len(done) > UNREADABLE or run.keys[start][-2] in done:
                        break
                elif state.is_there(row) and has_value(row):
                    done.add(cell[0])
                    yield cell, row


def _ends(plan: Plan, state: State, found: _Found) -> list[tuple[Cell, int]]:
    """From the ends of the stretches, kind by kind."""
    is_least = plan.join.function == MIN
    best: dict[int, tuple[Cell, int]] = {}
    for bounds in found.access.bounds:
        for stretch in found.ordered.stretches(bounds):
            for cell, row in _kinds(state, stretch, is_least):
                old = best.get(cell[0])
                if old is None or (cell < old[0] if is_least else cell > old[0]):
                    best[cell[0]] = cell, row
    best.pop(UNREADABLE, None)
    return list(best.values())


def _kinds(state: State, stretch: KeyStretch, is_least: bool) -> Iterator[tuple[Cell, int]]:
    """The first (last) cell of each kind in a stretch whose document is there. The last two parts of a key are a cell,
    so kinds follow each other; there are hardly ever two."""
    run, start, end = stretch
    keys = run.keys
    while start < end:
        kind = keys[start if is_least else end - 1][-2]
        prefix = keys[start][:-2]
        low, high = start, bisect_left(keys, (*prefix, kind + 1), start, end)
        if not is_least:
            low, high = bisect_left(keys, (*prefix, kind), start, end), end
        place = _first_there(state, run, low, high, is_least)
        if place is not None:
            yield keys[place][-2:], int(run.rows[place])
        start, end = (high, end) if is_least else (start, low)


def _first_there(state: State, run: KeyRun, low: int, high: int, forward: bool) -> int | None:
    if run.oldest >= state.first and not state.gone:
        return low if forward else high - 1
    places = range(low, high) if forward else range(high - 1, low - 1, -1)
    return next((place for place in places if state.is_there(int(run.rows[place]))), None)
