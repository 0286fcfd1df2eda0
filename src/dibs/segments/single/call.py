"""The call of a single event, seen from Python: a plan, a work space, the text; then the rows' ids."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dibs.coding.batch import CodedEvents
from dibs.coding.events import WantedNames
from dibs.errors import DibsError
from dibs.index.auto.planner import Auto
from dibs.jit.pools import Pool, Taken
from dibs.language.present import Present, read_clock
from dibs.language.types import NO_TYPES, Types
from dibs.segments.id_lists import add_ids, sort_ids
from dibs.segments.ids import Id, IdIndex
from dibs.segments.segment import Segment
from dibs.segments.single.computed import add_computed
from dibs.segments.single.kernels import match_text, match_text_keeping
from dibs.segments.single.memtable import NOTHING, gather_waiting
from dibs.segments.single.plan import EventTable, part_of, parts_of
from dibs.segments.single.program_kernels import IS_READ, NOW
from dibs.segments.single.residuals import EventTests
from dibs.segments.single.space import SingleSpace
from dibs.segments.single.tables import DONE, FULL, LEFT, STALE
from dibs.segments.state import State
from dibs.segments.tombstones import alive
from dibs.tuning import tuned

SINGLE_TEXT = tuned("single_text", 1 << 16, 1 << 20, "bytes", "of a single event that are read by the kernel")
SINGLE_LOOKS = tuned("single_looks", 16, 1, "events", "of which one single event is shown to the index")

NUL = b"\\u0000"  # as JSON writes it; names of computed values have it
NO_PLAN = object()  # of a state with segments, or with what waits, that are not matched this way
Rows = tuple[IdIndex, NDArray[np.int32]]  # some of a segment
Wanted = Callable[[list[Segment], Collection[str]], WantedNames]  # all names that segments mention, and these


class Singles:
    """The single events of a matcher."""

    def __init__(self, counters: dict[str, int], wake: Callable[[], None], types: Types = NO_TYPES):
        self._types = types  # of attributes, where they are declared
        self._counters = counters  # of the matcher
        self._wake = wake  # there is work in the background
        self._spaces = Pool()
        self._calls = 0
        self._pending = NOTHING  # the records of what waited last
        self.served = 0  # events that were matched this way

    def match(self, state: State, text: bytes, wanted: Wanted, now: Present = None) -> list[Id] | None:
        """The ids of the event that the text says, sorted; None: batches know what to do with it."""
        plan = state.single
        if plan is None or self._calls % SINGLE_LOOKS.value == 0:
            plan = self._plan(state, wanted)
        self._calls += 1
        if plan is NO_PLAN or len(text) > SINGLE_TEXT.value:
            return None
        event, is_read = text, False  # is_read: the call computes nothing
        if plan.asks_for_more:
            if plan.programs.present >= 0 and isinstance(now, str):  # the name of an attribute
                return None
            left = plan.without_programs
            is_read = plan.declared is not None or (plan.computed is not None and NUL in text)
            if is_read or (left is not None and left.may_be_in(text)):
                with_values = add_computed(text, plan.computed if is_read else left, now, plan.declared)
                if with_values is None:
                    return None
                text = with_values
        make: Any = SingleSpace  # the pool knows tuples of arrays
        taken = self._spaces.take(make, plan.needs)
        space: Any = taken.space
        if space.covered is not plan.needs:
            if not space.needs.cover(plan.needs):
                space = SingleSpace(space.needs.with_all_of(plan.needs))
            space.covered = plan.needs
        if len(text) > space.needs.text:
            space = SingleSpace(space.needs._replace(text=2 * len(text)))
        space.read_for(plan.names)
        if plan.has_programs:
            self._tell(plan, space, now, is_read)
        call = match_text_keeping if plan.few else match_text
        status = call(plan.address, space.address, text, space.needs.values)
        while status != DONE and status in (FULL, LEFT):
            if status == FULL:
                space = SingleSpace(space.needs._replace(rows=4 * space.needs.rows))
            else:
                with_values = add_computed(event, plan.computed, now)
                if with_values is None:
                    break
                text, is_read = with_values, True
                if len(text) > space.needs.text:
                    space = SingleSpace(space.needs._replace(text=2 * len(text)))
            space.read_for(plan.names)
            if plan.has_programs:
                self._tell(plan, space, now, is_read)
            status = call(plan.address, space.address, text, space.needs.values)
        if status == STALE:
            raise DibsError("compiled kernels are older than this version of Dibs: delete its __pycache__ folders")
        tests = EventTests(text, plan.declared is not None) if plan.has_residuals else None
        is_done = status == DONE and (tests is None or tests.keep_found(plan.segments, space))
        ids = self._finish(plan, space, tests) if is_done else None
        self._spaces.give(taken if space is taken.space else Taken(space, taken.age))
        return ids

    @staticmethod
    def _tell(plan: EventTable, space: SingleSpace, now: Present, is_read: bool) -> None:
        space.told[IS_READ] = is_read
        if plan.programs.present >= 0:
            assert not isinstance(now, str)
            space.told[NOW] = read_clock() if now is None else now

    def _finish(self, plan: EventTable, space: SingleSpace, tests: EventTests | None) -> list[Id] | None:
        """None: batches know what to do with the event."""
        pairs, candidates, predicates, nodes, of_layers = space.result.tolist()
        self.served += 1
        counters = self._counters
        counters["events"] += 1
        counters["pairs"] += pairs
        counters["candidates"] += candidates
        counters["false candidates"] += max(candidates - pairs, 0)
        counters["predicates"] += predicates
        counters["nodes"] += nodes
        if self._calls % SINGLE_LOOKS.value == 0:
            self._observe(plan, space)
        if plan.asked:
            asked = self._ask_indexes(plan, space, tests)
            if asked is None:
                return None
            rows = [*self._rows_by_segment(plan, space), *asked]
            return sort_ids(rows, plan.pending.ids_of(space.row[of_layers:pairs].tolist()))
        if not pairs:
            return []
        if plan.has_integers:
            ids = space.ids[:of_layers]
            ids.sort()
            if of_layers == pairs:
                return ids.tolist()
            return add_ids(ids.tolist(), plan.pending.ids_of(space.row[of_layers:pairs].tolist()))
        if len(plan.segments) == 1 and of_layers == pairs:
            return sort_ids([(plan.segments[0].ids, space.row[:pairs])])
        rows = self._rows_by_segment(plan, space)
        return sort_ids(rows, plan.pending.ids_of(space.row[of_layers:pairs].tolist()))

    def _rows_by_segment(self, plan: EventTable, space: SingleSpace) -> list[Rows]:
        """What the call has found."""
        found, first = [], 0
        for segment, last in zip(plan.segments, space.ends.tolist()):
            if last > first:
                found.append((segment.ids, space.row[first:last]))
            first = last
        return found

    def _ask_indexes(self, plan: EventTable, space: SingleSpace, tests: EventTests | None) -> list[Rows] | None:
        """What other indexes find for the event that the call has coded; None: see _finish."""
        rows: list[Rows] = []
        offsets = space.events.offsets.tolist()
        for i, layer in plan.asked:
            segment = layer.segment
            if offsets[i] == offsets[i + 1] and segment.clauses.ask_for_values:
                continue
            found = segment.ask_index(_coded_event(space, offsets[i], offsets[i + 1]))
            found.count_costs(self._counters)
            for event, row in found.chunks:
                if layer.gone.bits is not None:
                    event, row = alive(layer.gone.bits, event, row)
                kept = None if tests is None else tests.keep(segment, row)
                if kept is not None:
                    row = row[kept]
                elif tests is not None:
                    return None
                self._counters["pairs"] += len(row)
                rows.append((segment.ids, row))
            if segment.has_pending_work:
                self._wake()
        return rows

    def _plan(self, state: State, wanted: Wanted) -> Any:
        """The plan of the state, as its indexes are now."""
        segments = [layer.segment for layer in state.layers]
        plan = state.single
        if isinstance(plan, EventTable) and all(part_of(s) is part for s, part in zip(segments, plan.parts)):
            return plan
        parts = parts_of(state)
        found = (
            None
            if parts is None
            else gather_waiting(state.waiting, partial(wanted, segments), self._pending, self._types)
        )
        plan = NO_PLAN
        if parts is not None and found is not None:
            self._pending = found[0]
            plan = EventTable(state, parts, found[1], found[0], self._types)
        object.__setattr__(state, "single", plan)  # whole: another thread may be looking
        return plan

    def _observe(self, plan: EventTable, space: SingleSpace) -> None:
        """What the indexes want to know of events: of one in so many."""
        offsets = space.events.offsets.tolist()
        asked = [i for i, _ in plan.asked]  # their indexes observe what they match
        for i, segment in enumerate(plan.segments):
            if isinstance(segment.index, Auto) and i not in asked:
                segment.index.observe(_coded_event(space, offsets[i], offsets[i + 1]))
                if segment.has_pending_work:
                    self._wake()


def _coded_event(space: SingleSpace, first: int, last: int) -> CodedEvents:
    """The event as the call has coded it: its own, as the space is used again."""
    attribute, lo, hi = (x[first:last].copy() for x in space.events[1:])
    points = bool((attribute[1:] != attribute[:-1]).all() and (lo == hi).all())
    return CodedEvents(np.array([0, last - first]), attribute, lo, lo if points else hi, points)
