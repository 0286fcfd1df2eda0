"""Labels: cells that keep their number when constants are added, for indexes that take rows in place.

Cells (coding.domain) are numbered without gaps, so a new constant moves all that lie above it. A label is a number of
31 bits in the same order, with room between neighbours: a constant keeps its label for ever, a new one takes one in the
middle of its gap. A gap is a run of labels, of which no constant has any; so a span of cells is a span of labels, and
stays right whatever constants are added inside it.

    0                       no value
    1, 2                    FALSE, TRUE
    3 ... 2**30 - 1         numbers
    2**30 ... 3 * 2**29 - 1   strings, or patterns
    3 * 2**29 ... 2**31 - 2   times
    2**31 - 1               a value that could not be read

Neighbouring constants are at least 2 apart. Where a gap has no room for what is to be added, `carried` says so, and
everything is labelled (and the index built) anew.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from dibs.coding.batch import CodedEvents
from dibs.coding.domain import NUMBER_BASE, Domains
from dibs.coding.merge import Moved
from dibs.language.table import Facet

NUMBERS, STRINGS, TIMES, UNREADABLE = 3, 1 << 30, 3 << 29, (1 << 31) - 1
SECTIONS = (("number", NUMBERS, STRINGS - 1), ("string", STRINGS, TIMES - 1), ("time", TIMES, UNREADABLE - 1))
WIDEST = 1 << 18  # between constants that are labelled together or come after the last


@dataclass
class Labels:
    """The labels of the constants of domains, and of their cells: cell c of attribute a has the labels first[base[a] +
    c] to last[base[a] + c]; the cell behind the last one is UNREADABLE."""

    number: NDArray[np.int32]
    string: NDArray[np.int32]
    time: NDArray[np.int32]
    base: NDArray[np.int64]
    first: NDArray[np.int32]
    last: NDArray[np.int32]

    def moved(self, move: Moved | None = None) -> Moved:
        """For coding.merge.move_clauses: from the cells of these labels' domains, or from those of domains that were
        merged into them, to labels."""
        if move is None:
            return np.arange(len(self.base) - 1), self.base, self.first, self.last
        to, base, first, last = move
        at = np.repeat(self.base[to], np.diff(base))
        return to, base, self.first[at + first], self.last[at + last]

    def events(self, events: CodedEvents) -> CodedEvents:
        """The events with labels for cells."""
        at = self.base[events.attribute]
        lo = self.first[at + events.lo]
        if events.points:
            return replace(events, lo=lo, hi=lo)
        # A value inside a gap is still one value; only a range goes on to the gap's end.
        hi = np.where(events.lo == events.hi, lo, self.last[at + events.hi])
        return replace(events, lo=lo, hi=hi)


def fresh(domains: Domains) -> Labels:
    """Labels for domains that have none yet."""
    labels = _labels(domains, {})
    assert labels is not None, "more constants than a section has labels"
    return labels


def carried(old: Labels, old_domains: Domains, move: Moved, domains: Domains) -> Labels | None:
    """Labels for domains into which others were merged: old constants keep theirs. None: there is no room."""
    to, base, first, _ = move
    known = {}
    for name, section in zip(("number", "string", "time"), _bases(old_domains)):
        offsets = getattr(old_domains, f"{name}_offsets")
        owner = np.repeat(np.arange(len(to)), np.diff(offsets))
        within = np.arange(len(owner)) - offsets[owner]
        pattern = old_domains.facet[owner] >= Facet.PATTERN
        cell = first[base[owner] + np.where(pattern, 1 + within, section[owner] + 2 * within + 1)]
        start = dict(zip(("number", "string", "time"), _bases(domains)))[name][to[owner]]
        rank = np.where(pattern, cell - 1, (cell - start - 1) >> 1)
        new_offsets = getattr(domains, f"{name}_offsets")
        known[name] = np.zeros(new_offsets[-1], np.int32)
        known[name][new_offsets[to[owner]] + rank] = getattr(old, name)
    return _labels(domains, known)


def _bases(domains: Domains) -> tuple[NDArray[Any], ...]:
    """The first cell of each section, by attribute."""
    return np.full(len(domains.cells), NUMBER_BASE, np.int32), domains.string_base, domains.time_base


def _labels(domains: Domains, known: dict[str, NDArray[np.int32]]) -> Labels | None:
    labels = {}
    for name, low, high in SECTIONS:
        offsets = getattr(domains, f"{name}_offsets")
        labels[name] = known.get(name, np.zeros(offsets[-1], np.int32))
        if not _fill_in(offsets, labels[name], low, high):
            return None
    base = np.zeros(len(domains.cells) + 1, np.int64)
    np.cumsum(domains.cells + 1, out=base[1:])
    first, last = np.zeros(base[-1], np.int32), np.zeros(base[-1], np.int32)
    pattern = domains.facet >= Facet.PATTERN
    for cell in (1, 2):
        at = base[:-1][~pattern] + cell
        first[at] = last[at] = cell
    for (name, low, high), section in zip(SECTIONS, _bases(domains)):
        _cells(getattr(domains, f"{name}_offsets"), labels[name], low, high, section, pattern, base, first, last)
    first[base[1:] - 1] = last[base[1:] - 1] = UNREADABLE
    return Labels(**labels, base=base, first=first, last=last)


@njit(cache=True, nogil=True)
def _fill_in(offsets, label, low, high):  # type: ignore[no-untyped-def]
    """Gives every constant of label 0 one between its neighbours; False if some gap is too small."""
    for a in range(len(offsets) - 1):
        i, end = offsets[a], offsets[a + 1]
        left = np.int64(low) - 1  # as if there were a constant
        while i < end:
            if label[i] != 0:
                left = np.int64(label[i])
                i += 1
                continue
            k = i
            while k < end and label[k] == 0:
                k += 1
            right = np.int64(label[k]) if k < end else np.int64(high) + 1
            more = k - i
            step = (right - left) // (more + 1)
            if step < 2:
                return False
            at_start, at_end = i == offsets[a], k == end
            if at_start or at_end:
                step = max(2, min(step // 2 if at_start and at_end else step, WIDEST))
            if at_start and at_end:
                left += (right - left - step * (more + 1)) // 2
            elif at_start:
                left = right - step * (more + 1)
            for m in range(more):
                left += step
                label[i + m] = left
            i = k
    return True


@njit(cache=True, nogil=True)
def _cells(offsets, label, low, high, section, pattern, base, first, last):  # type: ignore[no-untyped-def]
    for a in range(len(offsets) - 1):
        at = base[a] + section[a]
        if pattern[a]:
            for i in range(offsets[a], offsets[a + 1]):
                first[base[a] + 1 + i - offsets[a]] = last[base[a] + 1 + i - offsets[a]] = label[i]
            continue
        first[at] = low
        for i in range(offsets[a], offsets[a + 1]):
            last[at] = label[i] - 1
            first[at + 1] = last[at + 1] = label[i]
            at += 2
            first[at] = label[i] + 1
        last[at] = high
