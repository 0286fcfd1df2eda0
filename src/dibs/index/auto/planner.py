"""auto: the planner's index. Each clause goes where it is cheapest, and everything is exact.

    beside a rare attribute or value    -> records   one event at a time, one run of memory a group
    all others                          -> masks     512 events at a time, one bit each

    these, for one event or two         -> bits      a bit for each predicate (index.propagation)

A mask of one bit shares nothing, so when events keep coming one by one, the conjunctions of the masks are also filed
for single events (in the background; ten to forty bytes per clause).

The choice is made clause by clause from the share of events that have an attribute, or a value of it: first guessed
from the subscriptions, then measured. When the measured shares would file many clauses elsewhere, the index is planned
again in the background and swapped when it is ready.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from dibs.coding.batch import CodedEvents
from dibs.coding.clauses import Clauses
from dibs.index.auto.access_sets import Entries, access_sets
from dibs.index.auto.mask_layout import WORD
from dibs.index.auto.masks import WIDE, Masks
from dibs.index.auto.records import Records
from dibs.index.auto.singles import ForSingles, Sieve, can_be_sieved
from dibs.index.base import Pairs, Sink, in_parts, renumber
from dibs.index.conjunctions import select
from dibs.index.papers.propagation.propagation import ANY, Propagation
from dibs.index.statistics import (
    Presence,
    access_predicates,
    cell_shares,
    filing_costs,
    guess_presence,
    highest_cells,
    probabilities,
)
from dibs.thresholds import thresholds

EVERYWHERE = 1e9  # more than any share of events, and not infinite
# Where the shares come from.
GUESSED = "Shares are guessed from the subscriptions"
KNOWN = "Shares are those that a larger part of the matcher had"
MEASURED = "Shares were measured"

Cells = tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float64]]  # attribute, cell, share of events


class Auto:
    name: ClassVar[str] = "auto"
    about: ClassVar[str] = "chosen clause by clause from statistics of subscriptions and events: records or masks"

    def __init__(
        self,
        clauses: Clauses,
        records: Records,
        masks: Masks,
        often: NDArray[np.bool_],
        planned: NDArray[np.float64] | None,
    ):
        self._clauses = clauses
        self._parts = (records, masks)
        self._often = often  # by attribute: where its clauses were put
        # How often attributes were planned to be present; None: memory-mapped, another plan would need memory.
        self._planned = planned
        self._guessed: NDArray[np.float64] | None = None
        self._presence = Presence(clauses.attributes)
        self._mentioned: NDArray[np.int64] | None = None  # predicates on each attribute
        self._until_look = thresholds.enough_events
        self._one_by_one: OneByOne | None = None
        self._until_one_by_one = thresholds.one_by_one_calls
        self._sieve: tuple[Records | None, Sieve | None] = None, None  # of which records; None: not worth it
        self._for_singles: tuple[ForSingles | None, Any] = None, None  # and the parts that they are made of
        self.pending: Callable[[], None] | None = None  # see index.base.do_pending
        self._plans = 1
        self._observes = planned is not None
        self._grounds = GUESSED

    @classmethod
    def build(cls, clauses: Clauses, presence: NDArray[np.float64] | None = None) -> Auto:
        """presence: the share of events that have each attribute, if more is known of it than the clauses tell."""
        shares = guess_presence(clauses) if presence is None else presence
        index = cls(clauses, *_plan(clauses, shares), shares)
        index._grounds = GUESSED if presence is None else KNOWN
        index._observes = (
            presence is None or len(clauses) >= thresholds.one_by_one_clauses
        )  # a larger one does; a small one goes soon
        return index

    @classmethod
    def restore(cls, clauses: Clauses, arrays: dict[str, NDArray[Any]]) -> Auto:
        records = Records(clauses, {n: arrays[f"records.{n}"] for n in Records.ARRAYS})
        masks = Masks(clauses, {n: arrays[f"masks.{n}"] for n in Masks.ARRAYS})
        return cls(clauses, records, masks, arrays["often"], None)

    def arrays(self) -> dict[str, NDArray[Any]]:
        records, masks = self._parts
        result = {f"records.{n}": a for n, a in records.arrays().items()}
        result |= {f"masks.{n}": a for n, a in masks.arrays().items()}
        return result | {"often": self._often}

    def presence(self) -> NDArray[np.float64]:
        """The share of events that have each attribute, as far as it is known: for other segments of the matcher."""
        if self._presence.events >= thresholds.enough_events:
            return self._presence.share()
        if self._planned is None and self._guessed is None:
            self._guessed = guess_presence(self._clauses)
        return self._planned if self._planned is not None else cast(NDArray[np.float64], self._guessed)

    @property
    def nbytes(self) -> int:
        made = (self._one_by_one, self._sieve[1])  # for single events
        return sum(a.nbytes for a in self.arrays().values()) + sum(x.nbytes for x in made if x is not None)

    def match(self, events: CodedEvents, threads: int, sink: Sink | None = None) -> Pairs:
        records, masks = self._parts
        found = Pairs([], 0, 0)
        if (
            len(events) <= thresholds.one_by_one_events
            and events.points
            and masks.size >= thresholds.one_by_one_clauses
        ):
            few = self._for_few_events(masks)
            if few is not None:
                masks = few.left
                found.add(few.match(events, threads, sink))
        for part, block in ((records, 1), (masks, len(WIDE) * WORD)):
            if part.size:
                found.add(in_parts(partial(part.match, events), len(events), threads, block, part.rate, sink))
        self.observe(events)
        return found

    def plan(self) -> dict[str, Any]:
        """What went where, and on what grounds."""
        records, masks = self._parts
        seen = int(self._presence.events)
        return {
            "records": records.size,
            "masks": masks.size,
            "attributes often present": int(self._often.sum()),
            "one by one": 0 if self._one_by_one is None else len(self._one_by_one),
            "events seen": seen,
            "plans": self._plans,
            "grounds": (
                f"records: clauses with an attribute that less than {thresholds.often:.0%} of events have, or a value "
                f"that less than {thresholds.often_cell:.1%} have; masks: all others. "
                + self._grounds
                + (f"; {seen:,} events seen since." if seen else ".")
            ),
        }

    def for_singles(self) -> ForSingles | None:
        """The ways to all rows for a single event; None: there are too many that are not filed for it (yet)."""
        records, masks = self._parts
        known, filed = self._for_singles
        few, sieve = self._one_by_one, self._sieve_of(records)
        if known is not None and filed == (records, masks, few, sieve):
            return known
        if masks.size <= thresholds.single_scanned:
            result = ForSingles(records, None, masks.rows.astype(np.int32), sieve)
        else:
            if few is None or few.masks is not masks:
                if masks.size > thresholds.single_filed:
                    return None
                few = self._one_by_one = OneByOne(self._clauses, masks)
            if few.left.size > thresholds.single_left:
                return None
            result = ForSingles(records, few, few.left.rows.astype(np.int32), sieve)
        self._for_singles = result, (records, masks, few, sieve)
        return result

    def _sieve_of(self, records: Records) -> Sieve | None:
        """The sieve of these records, if it is worth it and there: of many it is made in the background."""
        known, sieve = self._sieve
        if known is not records and records.size >= thresholds.sieved and can_be_sieved(records):
            if records.size <= thresholds.sieved_at_once:
                self._make_sieve(records)
            elif self.pending is None:
                self.pending = partial(self._make_sieve, records)
            known, sieve = self._sieve
        return sieve if known is records else None

    def _make_sieve(self, records: Records) -> None:
        sieve = Sieve(records, self.presence())
        self._sieve = records, sieve if sieve.share <= thresholds.sieve_share else None

    def _for_few_events(self, masks: Masks) -> OneByOne | None:
        """The conjunctions of these masks filed for single events, once that has been asked for often enough."""
        few = self._one_by_one
        if few is not None and few.masks is masks:
            return few
        self._until_one_by_one -= 1
        if self._until_one_by_one < 0 and self.pending is None:
            self._until_one_by_one = thresholds.one_by_one_calls
            self.pending = partial(self._file_one_by_one, masks)
        return None

    def _file_one_by_one(self, masks: Masks) -> None:
        self._one_by_one = OneByOne(self._clauses, masks)

    def observe(self, events: CodedEvents) -> None:
        if not self._observes or self._planned is None:
            return
        self._until_look -= self._presence.observe(events)
        if self._until_look > 0:
            return
        self._until_look = thresholds.look_every
        share = self._presence.share()
        moved = (share >= thresholds.often) != self._often
        if self._mentioned is None:
            self._mentioned = np.bincount(self._clauses.attribute, minlength=self._clauses.attributes)
        concerned = self._mentioned
        elsewhere = concerned[moved].sum() > thresholds.worth_planning * max(concerned.sum(), 1)
        # Shares of values follow those of their attributes.
        misjudged = np.abs(np.log(np.maximum(share, 1e-6) / np.maximum(self._planned, 1e-6))) > np.log(
            thresholds.misjudged
        )
        elsewhere |= 2 * concerned[misjudged & (share >= thresholds.often)].sum() > concerned.sum()
        cells = self._presence.frequent_cells(thresholds.often_cell)
        spared = self._parts[0].looks(*cells) - thresholds.often_cell * self._parts[0].looks(
            *cells[:2], np.ones(len(cells[0]))
        )
        worth_it = elsewhere or spared > thresholds.worth_moving * len(self._clauses)
        if worth_it and self.pending is None:
            self.pending = partial(self._plan_again, share, cells)

    def _plan_again(self, share: NDArray[np.float64], cells: Cells) -> None:
        records, masks, often = _plan(self._clauses, share, cells)
        self._parts, self._often, self._planned = (records, masks), often, share
        self._one_by_one = None
        self._plans += 1
        self._grounds = MEASURED


class OneByOne:
    """The conjunctions of masks as a Propagation, which looks at one event at a time; what it does not take is left to
    smaller masks."""

    def __init__(self, clauses: Clauses, masks: Masks):
        self.masks = masks
        own, taken, left = select(clauses.take(masks.rows), several=False)
        self.rows = masks.rows[taken].astype(np.int32)
        self.bits = Propagation.build(own, access=ANY)  # by equality only, far more clauses are looked at
        rest = np.sort(masks.rows[left])
        share = probabilities(clauses, guess_presence(clauses), highest_cells(clauses))
        plain, programs = rest[rest < clauses.conjunctions], rest[rest >= clauses.conjunctions]
        self.left = Masks.build(clauses, plain, programs, share)

    def __len__(self) -> int:
        return len(self.rows)

    def match(self, events: CodedEvents, threads: int, sink: Sink | None) -> Pairs:
        return renumber(partial(self.bits.match, events, threads), None, self.rows, None, sink)

    @property
    def nbytes(self) -> int:
        return self.bits.nbytes + self.rows.nbytes + sum(a.nbytes for a in self.left.arrays().values())


def _plan(
    clauses: Clauses, presence: NDArray[np.float64], cells: Cells | None = None
) -> tuple[Records, Masks, NDArray[np.bool_]]:
    often = presence >= thresholds.often
    highest = highest_cells(clauses)
    share = probabilities(clauses, presence, highest)
    base, cell_share = cell_shares(clauses, presence, highest, often)
    if cells is not None:
        attribute, cell, measured = cells
        known = base[attribute] + cell < base[attribute + 1]
        cell_share[base[attribute[known]] + cell[known]] = measured[known]
    cost = filing_costs(clauses, presence, often, base, cell_share)
    cost[often[clauses.attribute] & (cost > thresholds.often_cell)] = np.inf
    rows, access, other = access_predicates(clauses, cost, most=EVERYWHERE)
    left = np.ones(clauses.conjunctions, np.bool_)
    left[rows] = False
    programs = np.arange(clauses.conjunctions, len(clauses))
    found, entries = access_sets(clauses, programs, share)
    rare_programs = _rare_programs(clauses, entries, cost)
    entries = entries.take(rare_programs[entries.row])
    records = Records.build(clauses, rows, access, other, highest, often, entries)
    others = programs[~(found & rare_programs[programs])]
    return records, Masks.build(clauses, np.flatnonzero(left), others, share), often


def _rare_programs(clauses: Clauses, entries: Entries, cost: NDArray[np.float32]) -> NDArray[np.bool_]:
    """By row: whether it has entries, not too many, and all can be filed beside something rare."""
    common = np.isinf(cost[entries.access])
    count = np.bincount(entries.row, minlength=len(clauses))
    return (count <= thresholds.record_entries) & (
        np.bincount(entries.row, weights=common, minlength=len(clauses)) == 0
    )
