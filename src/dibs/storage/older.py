"""Segments that were compiled in an older language (language.table.LANGUAGE), as they are compiled today.

In 1, tests with times were tests of the value, whose facet TIME did not exist. Here they move there with their
constants: a row stays the row that it is, so that what names rows of a file (tombstones, versions) still holds, and no
text is read again. A list of times and of other constants would become two tests, so that its row may change its place:
such a segment is compiled again from its texts, by who has them all (storage.durable), or refused.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dibs.coding.clauses import Clauses, runs
from dibs.coding.domain import Domains
from dibs.errors import FormatError
from dibs.language.table import Facet


class OlderLanguage(FormatError):
    """A segment that only its texts tell how to compile today."""


def has_old_times(domains: Domains) -> bool:
    return bool(((np.diff(domains.time_offsets) > 0) & (domains.facet == Facet.VALUE)).any())


def move_times(path: Path, old: Domains, clauses: Clauses) -> tuple[Domains, Clauses]:
    """The same with tests of times on the facet TIME. Raises OlderLanguage of the file at the path."""
    counts = np.diff(old.time_offsets)
    is_moved = (counts > 0) & (old.facet == Facet.VALUE)
    moved = np.flatnonzero(is_moved)
    number = np.arange(len(counts)) + np.cumsum(is_moved) - is_moved  # of each attribute; its TIME is the next
    new = _domains(old, moved, counts)

    first, last, several = _ends(clauses)
    own = clauses.attribute
    is_there = is_moved[own] & (first <= last) & (last >= old.time_base[own])
    is_time = is_there & (first >= old.time_base[own])
    is_any = is_there & ~several & (first == 1) & (last == old.cells[own] - 1)  # IS NOT NULL
    if (is_there & ~is_time & ~is_any).any():
        raise OlderLanguage(
            f"{path} was compiled by an older version of Dibs, and has lists of times and other constants, which mean "
            "more today: make the index again from its subscriptions"
        )
    attribute = (number[own] + is_time).astype(np.int32)
    shift = np.where(is_time, new.time_base[attribute] - old.time_base[own], 0).astype(np.int32)
    lo, hi = clauses.lo.copy(), clauses.hi.copy()
    lo[~several] += shift[~several]
    hi[~several] += shift[~several]
    hi[is_any] = new.cells[attribute[is_any]] - 1
    sizes = -clauses.hi[several].astype(np.int64)
    side = np.zeros(len(clauses.span_lo), np.int32)
    side[runs(clauses.lo[several].astype(np.int64), sizes)] = np.repeat(shift[several], sizes)
    spans: dict[str, Any] = {"span_lo": clauses.span_lo + side, "span_hi": clauses.span_hi + side}
    return new, replace(clauses, attribute=attribute, lo=lo, hi=hi, attributes=len(new.attributes), **spans)


def _domains(old: Domains, moved: NDArray[np.int64], counts: NDArray[np.int64]) -> Domains:
    """With an attribute behind each of these that has its times. (So the times of all stay in their order.)"""
    attributes = list(old.attributes)
    for a in reversed(moved.tolist()):
        attributes.insert(a + 1, (attributes[a][0], Facet.TIME))
    rest = counts.copy()
    rest[moved] = 0
    return replace(
        old,
        attributes=attributes,
        facet=np.insert(old.facet, moved + 1, np.uint8(Facet.TIME)),
        number_offsets=np.insert(old.number_offsets, moved + 1, old.number_offsets[moved + 1]),
        string_offsets=np.insert(old.string_offsets, moved + 1, old.string_offsets[moved + 1]),
        time_offsets=np.append(0, np.cumsum(np.insert(rest, moved + 1, counts[moved]))).astype(np.int64),
    )


def _ends(clauses: Clauses) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.bool_]]:
    """The first and the last cell of each predicate, and whether it has several spans."""
    several = clauses.hi < 0
    first, last = clauses.lo.copy(), clauses.hi.copy()
    begin = clauses.lo[several]
    first[several] = clauses.span_lo[begin]
    last[several] = clauses.span_hi[begin - clauses.hi[several] - 1]
    return first, last, several
