"""auto: the planner's index. Each clause goes where it is cheapest, and everything is exact.

    rarely present access attributes    -> records   one event at a time, one run of memory a group
    often present ones, IS NULL         -> masks     512 events at a time, one bit each

The choice is made clause by clause from the share of events that have its access attribute: first guessed from the
subscriptions, then measured. When the measured shares would file many clauses elsewhere, the index is planned again
in the background and swapped when it is ready.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dibs.coding.batch import CodedEvents
from dibs.coding.clauses import Clauses
from dibs.index.access_sets import Entries, access_sets
from dibs.index.base import Pairs, Sink, in_parts
from dibs.index.mask_kernels import WORD
from dibs.index.masks import WIDE, Masks
from dibs.index.records import LARGEST_SET, Records
from dibs.index.statistics import Presence, access_predicates, guessed_presence, highest_cells, probabilities

OFTEN = 0.01  # share of events with the attribute from which on masks are cheaper
ENOUGH_EVENTS = 1024  # before measured shares are believed for the first time
LOOK_EVERY = 4096  # events, after that
WORTH_PLANNING = 0.1  # share of clauses that would move


class Auto:
    name: ClassVar[str] = "auto"
    about: ClassVar[str] = "chosen clause by clause from statistics of subscriptions and events: records or masks"

    def __init__(self, clauses: Clauses, records: Records, masks: Masks, often: NDArray[np.bool_], fixed: bool):
        self._clauses = clauses
        self._parts = (records, masks)
        self._often = often  # by attribute: where its clauses were put
        self._fixed = fixed  # memory-mapped: another plan would need memory of its own
        self._presence = Presence(clauses.attributes)
        self._mentioned: NDArray[np.int64] | None = None  # predicates on each attribute
        self._until_look = ENOUGH_EVENTS
        self._planning = threading.Lock()
        self._plans = 1

    @classmethod
    def build(cls, clauses: Clauses) -> Auto:
        return cls(clauses, *_plan(clauses, guessed_presence(clauses)), fixed=False)

    @classmethod
    def restore(cls, clauses: Clauses, arrays: dict[str, NDArray[Any]]) -> Auto:
        records = Records(clauses, {n: arrays[f"records.{n}"] for n in Records.ARRAYS})
        masks = Masks(clauses, {n: arrays[f"masks.{n}"] for n in Masks.ARRAYS})
        return cls(clauses, records, masks, arrays["often"], fixed=True)

    def arrays(self) -> dict[str, NDArray[Any]]:
        records, masks = self._parts
        result = {f"records.{n}": a for n, a in records.arrays().items()}
        result |= {f"masks.{n}": a for n, a in masks.arrays().items()}
        return result | {"often": self._often}

    @property
    def nbytes(self) -> int:
        return sum(a.nbytes for a in self.arrays().values())

    def match(self, events: CodedEvents, threads: int, sink: Sink | None = None) -> Pairs:
        records, masks = self._parts
        found = Pairs([], 0, 0)
        for part, block in ((records, 1), (masks, len(WIDE) * WORD)):
            if part.size:
                found.add(in_parts(partial(part.match, events), len(events), threads, block, part.rate, sink))
        self._observe(events)
        return found

    def plan(self) -> dict[str, Any]:
        """What went where, and on what grounds."""
        records, masks = self._parts
        seen = int(self._presence.events)
        return {
            "records": records.size,
            "masks": masks.size,
            "attributes often present": int(self._often.sum()),
            "events seen": seen,
            "plans": self._plans,
            "grounds": (
                f"records: clauses with an attribute that less than {OFTEN:.0%} of events have; masks: all others. "
                + ("Shares are guessed from the subscriptions" if self._plans == 1 else "Shares were measured")
                + (f"; {seen:,} events seen since." if seen else ".")
            ),
        }

    def _observe(self, events: CodedEvents) -> None:
        if self._fixed:
            return
        self._presence.observe(events)
        self._until_look -= len(events)
        if self._until_look > 0:
            return
        self._until_look = LOOK_EVERY
        share = self._presence.share()
        moved = (share >= OFTEN) != self._often
        if self._mentioned is None:
            self._mentioned = np.bincount(self._clauses.attribute, minlength=self._clauses.attributes)
        concerned = self._mentioned
        if concerned[moved].sum() > WORTH_PLANNING * max(concerned.sum(), 1) and self._planning.acquire(blocking=False):
            threading.Thread(target=self._plan_again, args=(share,), daemon=True, name="dibs-planner").start()

    def _plan_again(self, share: NDArray[np.float64]) -> None:
        try:
            records, masks, often = _plan(self._clauses, share)
            self._parts, self._often = (records, masks), often
            self._plans += 1
        finally:
            self._planning.release()


def _plan(clauses: Clauses, presence: NDArray[np.float64]) -> tuple[Records, Masks, NDArray[np.bool_]]:
    often = presence >= OFTEN
    highest = highest_cells(clauses)
    share = probabilities(clauses, presence, highest)
    rows, access, other = access_predicates(clauses, share)
    rare = ~often[clauses.attribute[access]]
    rows, access, other = rows[rare], access[rare], other[rare]
    left = np.ones(clauses.conjunctions, np.bool_)
    left[rows] = False
    programs = np.arange(clauses.conjunctions, len(clauses))
    found, entries = access_sets(clauses, programs, share)
    rare_programs = _rare_programs(clauses, entries, often)
    records = Records.build(clauses, rows, access, other, highest, entries.take(rare_programs[entries.row]))
    others = programs[~(found & rare_programs[programs])]
    return records, Masks.build(clauses, np.flatnonzero(left), others, share), often


def _rare_programs(clauses: Clauses, entries: Entries, often: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """By row: whether it has entries, not too many, and only by attributes that are rarely present."""
    common = often[clauses.attribute[entries.access]]
    count = np.bincount(entries.row, minlength=len(clauses))
    return (count <= LARGEST_SET) & (np.bincount(entries.row, weights=common, minlength=len(clauses)) == 0)
