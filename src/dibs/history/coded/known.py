"""What the constants of subscriptions say of an event, as operands of joins: of an attribute one value, a few, or an
interval. Read from the coded clauses of a segment, whose spans of cells are just that (coding/domain.py).

A cell of a constant is the constant; one of a gap lies between two of them, which do not belong to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.coding.clauses import Clauses, runs
from dibs.coding.domain import NUMBER_BASE, Domains
from dibs.history.coded.columns import TIMED, order_bits
from dibs.history.coded.layout import BOOLEAN, NUMBER, OPEN_HIGH, OPEN_LOW, STRING, TIME, Operands
from dibs.history.coded.program import Compiled, Ends
from dibs.history.implied import MOST_VALUES
from dibs.language.table import Facet

if TYPE_CHECKING:
    from dibs.history.coded.columns import DocumentSnapshot

NOTHING, BOUNDED, FEW, ONE = range(4)  # what is known of an attribute
Ints = NDArray[Any]


class _Spans(NamedTuple):
    """What is known, by place (row * attributes + attribute), as cells of the domain of the attribute."""

    place: Ints
    low: Ints
    high: Ints


@dataclass(frozen=True, eq=False)
class KnownValues:
    """Of some rows of a segment. An operand is of a kind and has two ends, 2 * i and 2 * i + 1, where it has them."""

    status: NDArray[np.uint8]  # row, attribute
    place: Ints  # of each operand, in order
    kind: NDArray[np.uint8]
    has: NDArray[np.bool_]  # operand, end
    is_open: NDArray[np.uint8]
    is_one: NDArray[np.bool_]  # both ends are the same
    ends: Ends

    @classmethod
    def read(cls, domains: Domains, clauses: Clauses, rows: Ints, names: Sequence[str]) -> KnownValues:
        """What rows, which are conjunctions, say of these attributes; of TIMED ones, what they say of their times."""
        number_of = numbers_of(domains)
        attribute = np.array([number_of.get(name, -1) for name in names], np.int64)
        spans = _read_spans(clauses, rows, attribute)
        own = attribute[spans.place % max(len(names), 1)]
        kinds = [_kind_of(domains, own, cells) for cells in (spans.low, spans.high)]
        kept = np.flatnonzero((kinds[0] == kinds[1]) & (spans.low > 0) & (spans.low <= spans.high))
        place, kind, own = spans.place[kept], kinds[0][kept].astype(np.uint8), own[kept]
        low = _end_of(domains, own, kind, spans.low[kept], False)
        high = _end_of(domains, own, kind, spans.high[kept], True)
        is_one = (spans.low[kept] == spans.high[kept]) & ~low.is_open
        status = np.zeros(len(rows) * len(names), np.uint8)
        status[place] = BOUNDED
        counts = np.bincount(place, minlength=len(status))
        status[place[is_one]] = ONE
        status[counts > 1] = FEW
        is_open = low.is_open * np.uint8(OPEN_LOW) | high.is_open * np.uint8(OPEN_HIGH)
        pairs: list[Any] = list(zip(low, high))
        has, _, key, tie, start, stop = (np.stack(pair, 1) for pair in pairs)
        ends = Ends(key.ravel(), tie.ravel(), start.ravel(), stop.ravel(), domains.string_bytes)
        return cls(status.reshape(len(rows), len(names)), place, kind, has, is_open, is_one, ends)

    def operands(self, compiled: Compiled, constants: Ends, snapshot: DocumentSnapshot, slots: Ints) -> Operands:
        """As operands behind the constants of a program. slots: for each of its slots, the attribute."""
        rows, names = self.status.shape
        ends = self.ends.resolve(np.repeat(self.kind, 2), snapshot)
        first, shift = len(constants.key), len(constants.data)
        of_attribute = np.full(names, -1, np.int64)
        of_attribute[slots] = np.arange(len(slots))
        slot = of_attribute[self.place % max(names, 1)]
        kept = np.flatnonzero(slot >= 0)
        place = self.place[kept] // max(names, 1) * len(slots) + slot[kept]
        kept = kept[np.argsort(place, kind="stable")]
        low = np.where(self.has[kept, 0], first + 2 * kept, -1)
        high = np.where(self.has[kept, 1], first + 2 * kept + 1, -1)
        high = np.where(self.is_one[kept], low, high)
        at = np.zeros(rows * len(slots) + 1, np.int64)
        np.cumsum(np.bincount(place, minlength=rows * len(slots)), out=at[1:])
        return Operands(
            np.append(compiled.kind, self.kind[kept]),
            np.append(compiled.low, low).astype(np.int32),
            np.append(compiled.high, high).astype(np.int32),
            np.append(np.zeros(len(compiled.kind), np.uint8), self.is_open[kept]),
            np.append(constants.key, ends.key),
            np.append(constants.tie, ends.tie),
            np.append(constants.start, ends.start + shift),
            np.append(constants.stop, ends.stop + shift),
            np.append(constants.data, ends.data),
            at + len(compiled.kind),
        )


def numbers_of(domains: Domains) -> dict[str, int]:
    """The domains by the name of the attribute; those of strings that are read as times under TIMED and the name."""
    marks = {Facet.VALUE: "", Facet.TIME: TIMED}
    numbered = enumerate(domains.attributes)
    return {marks[facet] + name: number for number, (name, facet) in numbered if facet in marks}


def _read_spans(clauses: Clauses, rows: Ints, attribute: Ints) -> _Spans:
    """attribute: the numbers of the attributes that are asked for; -1: it is not there."""
    column = np.full(clauses.attributes + 1, -1, np.int64)
    column[attribute[attribute >= 0]] = np.flatnonzero(attribute >= 0)
    sizes = np.diff(clauses.offsets)[rows]
    steps = runs(clauses.offsets[rows], sizes)
    own = column[clauses.attribute[steps]]
    kept = own >= 0
    steps = steps[kept]
    place = np.repeat(np.arange(len(rows)), sizes)[kept] * len(attribute) + own[kept]
    lo, hi = clauses.lo[steps].astype(np.int64), clauses.hi[steps].astype(np.int64)
    several = hi < 0
    size = np.where(several, -hi, 1)
    last = len(clauses.span_lo) - 1
    low, high = lo.copy(), hi.copy()
    if several.any():
        low[several] = clauses.span_lo[lo[several]]
        high[several] = clauses.span_hi[lo[several] + size[several] - 1]
    total = np.bincount(place, minlength=len(rows) * len(attribute))
    is_list = several & (size <= MOST_VALUES) & (total[place] == 1)
    for k in range(MOST_VALUES if several.any() else 0):
        at = np.minimum(np.where(is_list, lo, 0) + k, last)
        is_list &= (k >= size) | (clauses.span_lo[at] == clauses.span_hi[at])
    # All predicates on one attribute together: the span that they have in common.
    alone = ~is_list
    lowest = np.full(len(total), -1, np.int64)
    highest = np.full(len(total), np.iinfo(np.int64).max)
    np.maximum.at(lowest, place[alone], low[alone])
    np.minimum.at(highest, place[alone], high[alone])
    spans = np.unique(place[alone])
    cells = clauses.span_lo[runs(lo[is_list], size[is_list])].astype(np.int64)
    places = np.append(spans, np.repeat(place[is_list], size[is_list]))
    order = np.argsort(places, kind="stable")
    return _Spans(places[order], np.append(lowest[spans], cells)[order], np.append(highest[spans], cells)[order])


def _kind_of(domains: Domains, attribute: Ints, cell: Ints) -> Ints:
    kind = np.where(cell < NUMBER_BASE, BOOLEAN, NUMBER)
    kind = np.where(cell >= domains.string_base[attribute], STRING, kind)
    kind = np.where(cell >= domains.time_base[attribute], TIME, kind)
    return np.where(cell >= domains.cells[attribute], 255, kind)


class _End(NamedTuple):
    has: NDArray[np.bool_]
    is_open: NDArray[np.bool_]
    key: NDArray[np.int64]
    tie: NDArray[np.int32]
    start: NDArray[np.int64]
    stop: NDArray[np.int64]


def _end_of(domains: Domains, attribute: Ints, kind: Ints, cell: Ints, is_high: bool) -> _End:
    """The end of a span at a cell."""
    n = len(cell)
    has, is_open = np.ones(n, np.bool_), np.zeros(n, np.bool_)
    key, tie = np.zeros(n, np.int64), np.zeros(n, np.int32)
    start, stop = np.zeros(n, np.int64), np.zeros(n, np.int64)
    truth = kind == BOOLEAN
    key[truth] = cell[truth] - 1
    sections = (
        (NUMBER, np.full(n, NUMBER_BASE), domains.number_offsets),
        (STRING, domains.string_base[attribute], domains.string_offsets),
        (TIME, domains.time_base[attribute], domains.time_offsets),
    )
    for of, base, offsets in sections:
        own = np.flatnonzero(kind == of)
        place = cell[own] - base[own]
        is_gap = place % 2 == 0
        rank = place // 2 - (is_gap & (not is_high))
        first, size = offsets[attribute[own]], np.diff(offsets)[attribute[own]]
        inside = (rank >= 0) & (rank < size)
        has[own], is_open[own] = inside, is_gap
        own, constant = own[inside], (first + rank)[inside]
        if of == NUMBER:
            key[own], tie[own] = order_bits(domains.number_value[constant]), domains.number_rest[constant]
        elif of == TIME:
            key[own] = domains.time_value[constant]
        else:
            start[own], stop[own] = domains.string_starts[constant], domains.string_starts[constant + 1]
    return _End(has, is_open, key, tie, start, stop)
