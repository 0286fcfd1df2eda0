"""auto: the planner's index. Each clause goes where it is cheapest, and everything is exact.

    that few events look at             -> records   one event at a time; filed under an attribute, or values of it
    many over the same attributes       -> vectors   512 clauses at a time, one bit each, for one event
    all others                          -> masks     512 events at a time, one bit each

    masks, for one event or two         -> bits      a bit for each predicate; records of expressions with OR

A mask of one bit shares nothing, so when events keep coming one by one, the clauses of the masks are also filed for
single events (in the background; conjunctions take ten to forty bytes each).

The choice is made clause by clause, and group by group, from the share of events that have an attribute, or a value of
it: first guessed from the subscriptions, then measured. When the measured shares would file clauses so that an event
costs much less, the index is planned again in the background and swapped when it is ready.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, NamedTuple, Union

import numpy as np
from numpy.typing import NDArray

from dibs.coding.batch import CodedEvents
from dibs.coding.clauses import Clauses
from dibs.index.auto.bits import Bits
from dibs.index.auto.mask_layout import WORD
from dibs.index.auto.masks import WIDE, Masks
from dibs.index.auto.plan import OFTEN, PartCosts, Plan, is_worth_planning, make_records, plan_clauses
from dibs.index.auto.records import Records
from dibs.index.auto.shares import Shares, guess_shares, measure_shares
from dibs.index.auto.singles import ForSingles, Sieve, can_be_sieved
from dibs.index.auto.trials import time_parts, try_corrected, try_ways
from dibs.index.auto.vector_groups import SAMPLED_CLAUSES
from dibs.index.auto.vectors import Vectors
from dibs.index.base import Pairs, Sink, in_parts, renumber
from dibs.index.conjunctions import select
from dibs.index.statistics import (
    ENOUGH_EVENTS,
    LOOK_EVERY,
    ONE_BY_ONE_EVENTS,
    Presence,
    guess_presence,
    highest_cells,
    probabilities,
)
from dibs.tuning import tuned

# 40 shapes: above 1.1 times the best at 22 by estimates, at 4 by trials
TRIED_CLAUSES = tuned("tried_clauses", 200_000, 0, "clauses", "of which several plans are tried; of more, only one")
ONE_BY_ONE_CALLS = tuned(
    "one_by_one_calls", 16, 0, "calls", "with few events before the clauses of the masks are filed for them"
)
ONE_BY_ONE_CLAUSES = tuned("one_by_one_clauses", 20_000, 1, "clauses", "of the masks that are worth filing for them")
# filing 250 clauses takes 0.4 to 0.9 ms; so 64, not 256
SINGLE_SCANNED = tuned("single_scanned", 64, 4, "clauses", "of the masks that are tested one by one for a single event")
SINGLE_LEFT = tuned("single_left", 4_000, 1_000_000, "clauses", "of the masks that cannot be filed, tested one by one")
SINGLE_FILED = tuned("single_filed", 20_000, 1_000_000, "clauses", "of masks, filed when the first single event comes")
# a million sparse: match(dict) 31 to 33 us, 50 to 56 without a sieve
SIEVED = tuned("sieved", 1_000, 0, "clauses", "of the records that are worth a sieve for single events")
SIEVED_AT_ONCE = tuned("sieved_at_once", 100_000, 1_000_000_000, "clauses", "whose sieve is made at once, not beside")
SIEVE_SHARE = tuned("sieve_share", 0.5, 1e9, "share of clauses", "that may pass a sieve for it to be worth it")

DRIFTED = 0.25  # share of the attributes of events that are others than they were
ASKED = 4  # times as many events as are enough, between two times that this is asked
SETTLED = 4  # batches of which one is looked at, while the plan is the best by what was seen
SELDOM = 16  # times as many events between two looks, if nothing was worth planning
# Where the shares come from.
GUESSED = "Shares are guessed from the subscriptions"
KNOWN = "Shares are those that a larger part of the matcher had"
MEASURED = "Shares were measured"


Part = Union[Records, Masks, Vectors]


class Parts(NamedTuple):
    records: Records
    masks: Masks
    vectors: Vectors

    @classmethod
    def of(cls, plan: Plan) -> Parts:
        return cls(plan.records, plan.masks, plan.vectors)


class Auto:
    name: ClassVar[str] = "auto"
    about: ClassVar[str] = (
        "chosen clause by clause from statistics of subscriptions and events: records, masks or vectors"
    )

    def __init__(self, clauses: Clauses, parts: Parts, plan: Plan | None):
        self._clauses = clauses
        self._parts = parts
        self._plan = plan  # None: memory-mapped, another plan would need memory
        self._presence = Presence(clauses.attributes)
        self._guessed: NDArray[np.float64] | None = None
        self._sample: Clauses | None = None  # by which it is judged whether another plan would be better
        self._until_look = ENOUGH_EVENTS.value
        self._look_every = LOOK_EVERY.value
        self._drift = Drift()
        self._settled = False  # the last look was not followed by another plan, nor by other events
        self._matched = self._alone = 0  # batches that were matched, and single events that others have matched
        self._tried = False  # the plan was measured
        self._highest: NDArray[np.int32] | None = None  # cells
        self._one_by_one: OneByOne | None = None
        self._until_one_by_one = ONE_BY_ONE_CALLS.value
        self._sieve: tuple[Records | None, Sieve | None] = None, None  # of which records; None: not worth it
        self._for_singles: tuple[ForSingles | None, Any] = None, None  # and the parts that they are made of
        self.pending: Callable[[], None] | None = None  # see index.base.do_pending
        self._plans = 1
        self._observes = plan is not None
        self._grounds = GUESSED

    @classmethod
    def build(cls, clauses: Clauses, presence: NDArray[np.float64] | None = None) -> Auto:
        """presence: the share of events that have each attribute, if more is known of it than the clauses tell."""
        highest = highest_cells(clauses)
        shares = guess_shares(clauses, guess_presence(clauses) if presence is None else presence, highest)
        plan = plan_clauses(clauses, shares, highest)
        index = cls(clauses, Parts.of(plan), plan)
        index._grounds = GUESSED if presence is None else KNOWN
        index._observes = (
            presence is None or len(clauses) >= ONE_BY_ONE_CLAUSES.value
        )  # a larger one does; a small one goes soon
        return index

    @classmethod
    def restore(cls, clauses: Clauses, arrays: dict[str, NDArray[Any]]) -> Auto:
        more = tuple(n for n in Records.MORE if f"records.{n}" in arrays)
        records = Records(clauses, {n: arrays[f"records.{n}"] for n in (*Records.ARRAYS, *more)})
        masks = Masks(clauses, {n: arrays[f"masks.{n}"] for n in Masks.ARRAYS})
        if "vectors.row" in arrays:
            vectors = Vectors(clauses, {n: arrays[f"vectors.{n}"] for n in Vectors.ARRAYS})
        else:  # saved before there were vectors, or without any
            vectors = Vectors.empty(clauses)
        return cls(clauses, Parts(records, masks, vectors), None)

    def arrays(self) -> dict[str, NDArray[Any]]:
        parts = self._parts
        saved: dict[str, Part] = {"records": parts.records, "masks": parts.masks}
        if parts.vectors.size:  # so that without any, what is saved is what it always was
            saved["vectors"] = parts.vectors
        return {f"{name}.{n}": a for name, part in saved.items() for n, a in part.arrays().items()}

    def presence(self) -> NDArray[np.float64]:
        """The share of events that have each attribute, as far as it is known: for other segments of the matcher."""
        if self._presence.events >= ENOUGH_EVENTS.value:
            return self._presence.share()
        if self._plan is not None:
            return self._plan.shares.presence
        if self._guessed is None:
            self._guessed = guess_presence(self._clauses)
        return self._guessed

    @property
    def nbytes(self) -> int:
        made = (self._one_by_one, self._sieve[1])  # for single events
        return sum(a.nbytes for a in self.arrays().values()) + sum(x.nbytes for x in made if x is not None)

    def match(self, events: CodedEvents, threads: int, sink: Sink | None = None) -> Pairs:
        records, masks, vectors = self._parts
        found: Pairs | None = None
        if len(events) <= ONE_BY_ONE_EVENTS.value and masks.size >= ONE_BY_ONE_CLAUSES.value:
            few = self._for_few_events(masks)
            if few is not None:
                masks = few.left
                found = few.match(events, threads, sink)
        for part, block in ((records, 1), (vectors, 1), (masks, len(WIDE) * WORD)):
            if part.size:
                more = in_parts(partial(part.match, events), len(events), threads, block, part.rate, sink)
                if found is None:
                    found = more
                else:
                    found.add(more)
        self._matched += 1
        if not self._settled:
            self._look_at(events)
        elif self._matched % SETTLED == 0:
            self._look_at(events, SETTLED)
        return Pairs([], 0, 0) if found is None else found

    def plan(self) -> dict[str, Any]:
        """What went where, and on what grounds."""
        records, masks, vectors = self._parts
        seen = int(self._presence.events)
        return {
            "records": records.size,
            "guards": records.guards,
            "masks": masks.size,
            "vectors": vectors.size,
            "groups": vectors.groups,
            "one by one": 0 if self._one_by_one is None else len(self._one_by_one),
            "events seen": seen,
            "plans": self._plans,
            **({} if self._plan is None else _told(self._plan)),
            "grounds": (
                "records: clauses that few events look at, because of an attribute or of values that these seldom "
                "have; vectors: groups of clauses over the same attributes; masks: all others. "
                + self._grounds
                + (f"; {seen:,} events seen since." if seen else ".")
            ),
        }

    def for_singles(self) -> ForSingles | None:
        """The ways to all rows for a single event; None: there are too many that are not filed for it (yet)."""
        records, masks, vectors = self._parts
        known, filed = self._for_singles
        few, sieve = self._one_by_one, self._sieve_of(records)
        if known is not None and filed == (records, masks, few, sieve):
            return known
        left = masks
        if masks.size > SINGLE_SCANNED.value:
            if len(self._clauses) > SINGLE_FILED.value:
                few = self._for_few_events(masks)
            elif few is None or few.masks is not masks:
                few = self._one_by_one = self._file_masks(masks)
            if few is None or few.left.size > SINGLE_LEFT.value:
                return None
            left = few.left
        else:
            few = None
        scanned = left.rows.astype(np.int32)
        result = ForSingles(records, few, scanned, vectors if vectors.size else None, sieve)
        self._for_singles = result, (records, masks, few, sieve)
        return result

    def _sieve_of(self, records: Records) -> Sieve | None:
        """The sieve of these records, if it is worth it and there: of many it is made in the background."""
        known, sieve = self._sieve
        if known is not records and records.size >= SIEVED.value and can_be_sieved(records):
            if records.size <= SIEVED_AT_ONCE.value:
                self._make_sieve(records)
            elif self.pending is None:
                self.pending = partial(self._make_sieve, records)
            known, sieve = self._sieve
        return sieve if known is records else None

    def _make_sieve(self, records: Records) -> None:
        sieve = Sieve(records, self.presence())
        self._sieve = records, sieve if sieve.share <= SIEVE_SHARE.value else None

    def _for_few_events(self, masks: Masks) -> OneByOne | None:
        """What is in these masks filed for single events, once that has been asked for often enough."""
        few = self._one_by_one
        if few is not None and few.masks is masks:
            return few
        self._until_one_by_one -= 1
        if self._until_one_by_one < 0 and self.pending is None:
            self._until_one_by_one = ONE_BY_ONE_CALLS.value
            self.pending = partial(self._file_one_by_one, masks)
        return None

    def _file_one_by_one(self, masks: Masks) -> None:
        self._one_by_one = self._file_masks(masks)

    def _file_masks(self, masks: Masks) -> OneByOne:
        highest = highest_cells(self._clauses)
        if self._plan is not None:
            return OneByOne(self._clauses, masks, self._plan.shares, highest)
        return OneByOne(self._clauses, masks, guess_shares(self._clauses, self.presence(), highest), highest)

    def observe(self, events: CodedEvents) -> None:
        """Events that others have matched: segments.single."""
        self._alone += 1
        self._look_at(events)

    def _look_at(self, events: CodedEvents, times: int = 1) -> None:
        """times: the events stand for so many."""
        if not self._observes or self._plan is None:
            return
        seen = self._presence.observe(events, times)
        self._until_look -= seen
        drifted = self._drift.is_there(seen, self._presence)
        if self._until_look > 0 and not drifted:
            return
        self._settled = self._settled and not drifted
        self._until_look = self._look_every
        self._look_every = min(2 * self._look_every, LOOK_EVERY.value * SELDOM)  # a look costs milliseconds
        self._drift.look(self._presence, drifted)
        if self.pending is None:
            self.pending = self._look_at_plan

    def _look_at_plan(self) -> None:
        """Plans again if that is worth it by what the latest events had, or tries the plan, if that was not done."""
        plan = self._plan
        if plan is None:
            return
        if self._highest is None:
            self._highest = highest_cells(self._clauses)
        shares = measure_shares(*self._presence.latest(), self._presence.share(), self._highest)
        if self._sample is None:
            rows = np.linspace(0, len(self._clauses) - 1, min(len(self._clauses), SAMPLED_CLAUSES.value))
            self._sample = self._clauses.take(rows.astype(np.int64))
        is_worth = is_worth_planning(self._sample, plan, shares, self._presence.fullness(), len(self._clauses))
        if is_worth or (self._is_to_be_tried() and not self._tried):
            self._plan_again(shares)
        else:
            self._settled = True

    def _is_to_be_tried(self) -> bool:
        """Plans are tried by batches. What single events pay (segments.single) is not what these would say."""
        return TRIED_CLAUSES.value > 0 and self._matched > self._alone

    def _plan_again(self, shares: Shares) -> None:
        highest, fullness, old = highest_cells(self._clauses), self._presence.fullness(), self._plan
        if old is not None and self._is_to_be_tried():
            batches = self._presence.batches()
            tries = try_ways if len(self._clauses) <= TRIED_CLAUSES.value else try_corrected
            plan = tries(self._clauses, shares, highest, fullness, partial(time_parts, batches=batches), old)
            self._tried = True
        else:
            factors = PartCosts(1.0, 1.0, 1.0) if old is None else old.factors
            plan = plan_clauses(self._clauses, shares, highest, fullness, factors)
        is_new = old is None or plan.records is not old.records
        self._plan = plan
        self._settled = not is_new
        if not is_new:
            return
        self._parts = Parts.of(plan)
        self._one_by_one = None
        self._look_every = LOOK_EVERY.value
        self._drift = Drift()
        self._drift.look(self._presence)
        self._plans += 1
        self._grounds = MEASURED


def _told(plan: Plan) -> dict[str, str]:
    """What goes where and by what shares of events; what it costs an event by each part, as estimated and as measured;
    bytes."""

    def told(costs: PartCosts, unit: str = "") -> str:
        return ", ".join(f"{name} {cost:,.0f}{unit}" for name, cost in zip(costs._fields, costs) if cost) or "0"

    corrected = PartCosts(*(cost * factor for cost, factor in zip(plan.estimated, plan.factors)))
    presence = plan.shares.presence
    rows = max(sum(part.size for part in plan[:3]), 1)
    return {
        "way": plan.way,
        "shares of clauses": told(PartCosts(*(100.0 * part.size / rows for part in plan[:3])), " %"),
        "shares of events": f"an event has {presence.sum():,.1f} of {len(presence):,} attributes; "
        f"{int((presence >= OFTEN.value).sum()):,} are in {100 * OFTEN.value:g} % of events or more",
        "estimated ns an event": told(plan.estimated),
        "measured ns an event": "not yet" if plan.measured is None else told(plan.measured),
        "corrected ns an event": told(corrected),
        "bytes by part": told(plan.nbytes),
        "bytes at most": f"{plan.budget:,.0f}",
    }


class Drift:
    """Whether events have other attributes than when the plan was last looked at: then it is looked at at once. Looks
    for that reason that are not followed by another plan come less and less often, however the mix of events goes back
    and forth."""

    def __init__(self) -> None:
        self._known: NDArray[np.float64] | None = None  # the shares of events with each attribute at the last look
        self._every = self._until = ENOUGH_EVENTS.value
        self._until_asked = ASKED * ENOUGH_EVENTS.value

    def is_there(self, seen: int, presence: Presence) -> bool:
        """seen: events since it was last asked."""
        self._until -= seen
        self._until_asked -= seen
        if self._until > 0 or self._until_asked > 0 or self._known is None:
            return False
        self._until_asked = ASKED * ENOUGH_EVENTS.value
        latest = presence.latest_share()
        return float(np.abs(latest - self._known).sum()) > DRIFTED * float(self._known.sum() + latest.sum())

    def look(self, presence: Presence, drifted: bool = False) -> None:
        """The plan is looked at now; drifted: because of this."""
        self._known = presence.latest_share()
        self._until = self._every
        if drifted:
            self._every = min(2 * self._every, ENOUGH_EVENTS.value * SELDOM)


class OneByOne:
    """What is in masks, for one event at a time. Conjunctions are bits, whether the event has one value of an attribute
    or several; expressions with OR are records, however many events look at them: it is cheaper to look than to go
    through all; what neither takes is left to smaller masks."""

    def __init__(self, clauses: Clauses, masks: Masks, shares: Shares, highest: NDArray[np.int32]):
        """shares: of events; highest: the highest cell that predicates of an attribute cover."""
        self.masks = masks
        own, taken, left = select(clauses.take(masks.rows), several=True)
        self.rows = masks.rows[taken].astype(np.int32)
        self.bits = Bits.of(own)
        self.records: Records | None = None
        rest = np.sort(masks.rows[left])
        if len(rest):
            self.records, rest = make_records(clauses, rest, shares, highest)
        share = probabilities(clauses, shares.presence, highest)
        plain, programs = rest[rest < clauses.conjunctions], rest[rest >= clauses.conjunctions]
        self.left = Masks.build(clauses, plain, programs, share)

    def __len__(self) -> int:
        return len(self.rows) + (0 if self.records is None else self.records.size)

    def match(self, events: CodedEvents, threads: int, sink: Sink | None) -> Pairs:
        found = renumber(partial(self.bits.match, events, threads), None, self.rows, None, sink)
        if self.records is not None:
            work = partial(self.records.match, events)
            found.add(in_parts(work, len(events), threads, rate=self.records.rate, sink=sink))
        return found

    @property
    def nbytes(self) -> int:
        records = 0 if self.records is None else self.records.nbytes
        return self.bits.nbytes + self.rows.nbytes + records + sum(a.nbytes for a in self.left.arrays().values())
