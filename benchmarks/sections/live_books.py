"""Who is there: which subscriptions a matcher under change has, and how many of them match each event.

Subscriptions come from a workload: those of the base, and texts that are given to new ids in turn. The oldest go first;
those of the base in random order. So a matcher under change stays of one size.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from baselines import AccessLists
from dibs.papers.workloads.boolean import Workload
from measure import WrongMatches


class Group(NamedTuple):
    """Changes that are made together."""

    added: list[tuple[int, str]]
    removed: list[int]


class Oracle:
    """Which events each subscription of a workload matches, found by a baseline."""

    def __init__(self, workload: Workload, base: int):
        self.workload, self.base, self.texts = workload, base, workload.subscriptions - base
        self.spare = workload.subscription_table()["expression"].slice(base).to_pylist()
        event, subscription = AccessLists(workload).match(workload.event_attribute, workload.event_value)
        order = np.argsort(subscription, kind="stable")
        self._event = event[order]
        self._start = np.searchsorted(subscription[order], np.arange(workload.subscriptions + 1))
        self.at_first = np.bincount(event[subscription < base], minlength=workload.events)

    def number(self, id: int) -> int:
        """The subscription of the workload whose text an id has."""
        return id if id < self.base else self.base + (id - self.base) % self.texts

    def counts(self, ids: list[int]) -> NDArray[np.int64]:
        """How many of these match each event."""
        parts = [self._event[self._start[n] : self._start[n + 1]] for n in map(self.number, ids)]
        events = np.concatenate(parts) if parts else np.empty(0, np.int64)
        return np.bincount(events, minlength=self.workload.events)


class Books:
    """Of one matcher."""

    def __init__(self, oracle: Oracle):
        self.oracle = oracle
        self._order: list[int] = np.random.default_rng(1).permutation(oracle.base).tolist()
        self._gone = 0  # so many of them are no longer there
        self._next = oracle.base
        self.counts = oracle.at_first.copy()  # of each event, after all groups that were noted

    def __len__(self) -> int:
        return len(self._order) - self._gone

    def event_of(self, id: int) -> int:
        """An event that the id matches: the one that its text was made from."""
        return self.oracle.number(id) % len(self.counts)

    def group(self, adds: int, removes: int) -> Group:
        """The next changes."""
        ids = range(self._next, self._next + adds)
        spare, base = self.oracle.spare, self.oracle.base
        added = [(id, spare[(id - base) % len(spare)]) for id in ids]
        removed = self._order[self._gone : self._gone + removes]
        self._order += ids
        self._gone += len(removed)
        self._next += adds
        return Group(added, removed)

    def forget(self, groups: list[Group]) -> None:
        """The last groups were not made."""
        for group in reversed(groups):
            if group.added:
                del self._order[-len(group.added) :]
            self._gone -= len(group.removed)
            self._next -= len(group.added)

    def note(self, groups: list[Group]) -> NDArray[np.int64]:
        """The groups were made: the matches of each event before them and after each of them."""
        history = np.empty((len(groups) + 1, len(self.counts)), np.int64)
        history[0] = self.counts
        for i, group in enumerate(groups):
            added = self.oracle.counts([id for id, _ in group.added])
            history[i + 1] = history[i] + added - self.oracle.counts(group.removed)
        self.counts = history[-1].copy()
        return history

    def check(self, who: str, found: NDArray[Any]) -> None:
        """That these are the numbers of matches of all events now."""
        if not np.array_equal(found, self.counts):
            raise WrongMatches(f"{who}: {found.sum():,} matches, not the {self.counts.sum():,} expected ones")
