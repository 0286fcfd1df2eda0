"""propagation: find all satisfied predicates first, then test the clauses that one of them gives access to.

The idea (Fabret et al. 2001): every distinct predicate has one bit. The first phase finds the predicates that an event
satisfies and sets their bits. Each clause is filed under its most selective predicate, its access predicate; clauses
with one access predicate and the same number of other predicates are a cluster. The second phase reads the clusters of
the satisfied access predicates, and a clause matches when the bits of its other predicates are set. A test in the
second phase is the same for all operators, and a cluster is a table of predicate numbers, read from front to back.

Predicates are numbered by (attribute, group, constant), so that what the first phase finds is mostly runs of bits:

    EQ      = c    sorted by c: the one at the event's value
    LE      <= c   sorted by c: all from the value on, if it is not below the attribute's floor
    GE      >= c   sorted by c: all up to the value, if it is not above the ceiling (see index.operators)
    NE      <> c   sorted by c: all between floor and ceiling but the one at the value
    SPANS   else   BETWEEN, IN, NOT IN: a list of spans sorted by their beginnings

Arrays (D predicates, W = D / 64 + 1 words of bits, S spans, R access predicates):
    groups       int32   (attributes + 1, 8): the first predicate of each of the five groups, the first span, floor,
                         ceiling; the last row holds the ends
    key          int32   D: the constant that a group is sorted by (of SPANS, where the first span begins)
    span_begin, span_end, span_predicate   int32   S: by attribute, then beginning
    span_reach   int32   S / 64: where the last of 64 spans ends: those that end before the value are skipped
    access       uint64  W: bits of the predicates that are access predicates; `rank` counts those before each word
    rank         int32   W
    start        int64   R + 1: the clusters of each access predicate in `clusters`
    clusters     int32   for each access predicate: how many clauses m it has; then, clause by clause in order of size,
                         a column of their most selective other predicates, one of the next, their rows, and m + 1
                         distances to where the remaining predicates of each begin. Predicates that a clause does not
                         have are the true one, whose bit is always set

Counters: a candidate is a clause of a cluster that was read, a node is an access predicate whose clusters were read;
predicates are those found satisfied in the first phase and those whose bits were read in the second.

Useful for: many equality predicates over large domains; many clauses that share few distinct predicates (dense data):
the bits of all of them fit into the first cache.
Not useful for: clauses without a selective predicate; very many distinct predicates: their bits leave the caches.

Differs from the paper: any predicate may give access, not only equality (the first phase finds the others as well, and
a clause without equality would have to be tested for every event); the first phase searches sorted arrays instead of
hash tables and B-trees; bits are cleared attribute by attribute, not all for each event, which is what later papers
blame Propagation for; clusters of one access predicate stand in one table, since most hold one or two clauses, and its
first two columns are tested for all clauses without a branch, the others only for those that are left. A cluster at a
time, with a column for each predicate, took a third longer on dense data. Access by several predicates at once (the
paper's clustering by schemas, from statistics of events) is not here; the papers that compare themselves with
Propagation leave it out too.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dibs.coding.batch import CodedEvents
from dibs.coding.clauses import Clauses, runs
from dibs.index import operators
from dibs.index.base import Pairs, Rate, Sink, Takes, in_parts
from dibs.index.predicates import distinct
from dibs.index.statistics import guessed_presence, highest_cells, probabilities
from dibs.jit.kernel import kernel
from dibs.jit.lanes import count_bits, lowest_bit, prefetch
from dibs.jit.pools import Pool, Space
from dibs.jit.sorting import order_each

EQ, LE, GE, NE, SPANS, FIRST_SPAN, FLOOR, CEILING = range(8)  # the columns of `groups`
AHEAD, LINES = 16, 4  # the clusters of the access predicate after so many are asked for, so many cache lines
PLACE = np.uint64((1 << 40) - 1)
ALL = np.uint64(0xFFFFFFFFFFFFFFFF)


class Propagation:
    name: ClassVar[str] = "propagation"
    about: ClassVar[str] = (
        "Propagation (Fabret et al. 2001): a bit for each distinct predicate, clusters under access predicates; "
        "good for selective equality predicates"
    )
    takes: ClassVar[Takes] = Takes()
    ARRAYS = (
        "groups",
        "key",
        "span_begin",
        "span_end",
        "span_predicate",
        "span_reach",
        "access",
        "rank",
        "start",
        "clusters",
    )

    def __init__(self, clauses: Clauses, arrays: dict[str, NDArray[Any]]):
        self._rows = len(clauses)
        self._arrays = {name: arrays[name] for name in self.ARRAYS}
        self._rate = Rate()
        self._pool = Pool()

    @classmethod
    def build(cls, clauses: Clauses) -> Propagation:
        number, example = distinct(clauses)
        groups, key, spans, order = _number(clauses, example)
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        presence, highest = guessed_presence(clauses), highest_cells(clauses)
        share = probabilities(clauses, presence, highest)[example][order]

        own = place[number]  # the predicates of each row, the most selective first
        first, size = clauses.offsets[:-1], np.diff(clauses.offsets)
        order_each(own, first, size, share)
        second = np.where(size > 1, own[np.minimum(first + 1, max(len(own) - 1, 0))], 0) if len(own) else first
        # Equal second predicates stand together: their bits are in the cache.
        rows = np.lexsort((second, size, own[first])) if len(own) else first
        true = _true(len(order))
        is_access = np.zeros(true + 64, np.bool_)
        is_access[own[first]] = True
        access = np.packbits(is_access, bitorder="little").view(np.uint64)
        inside = is_access.reshape(-1, 64).sum(axis=1)
        rank = (np.cumsum(inside) - inside).astype(np.int32)
        start, clusters = _clusters(rows, own, first, size, int(is_access.sum()), true)
        arrays = {"groups": groups, "key": key, "access": access, "rank": rank, "start": start, "clusters": clusters}
        return cls(clauses, arrays | spans)

    @classmethod
    def restore(cls, clauses: Clauses, arrays: dict[str, NDArray[Any]]) -> Propagation:
        return cls(clauses, arrays)

    def arrays(self) -> dict[str, NDArray[Any]]:
        return self._arrays

    @property
    def nbytes(self) -> int:
        return sum(a.nbytes for a in self._arrays.values())

    def plan(self) -> dict[str, Any]:
        predicates, access = len(self._arrays["key"]), len(self._arrays["start"]) - 1
        return {
            "distinct predicates": predicates,
            "access predicates": access,
            "grounds": f"{self._rows:,} clauses in clusters under {access:,} of {predicates:,} distinct predicates, "
            "each filed under the one that is least likely to hold",
        }

    def match(self, events: CodedEvents, threads: int, sink: Sink | None = None) -> Pairs:
        a = self._arrays

        def work(last: int, room: tuple[Any, Any], done: NDArray[np.int64]) -> None:
            taken = self._pool.take(self._space)
            batch = events.offsets, events.attribute, events.lo
            _match(*(a[name] for name in self.ARRAYS), *batch, last, *taken.space, *room, done)
            self._pool.give(taken)

        return in_parts(work, len(events), threads, rate=self._rate, sink=sink)

    def _space(self) -> Space:
        bits = np.zeros(len(self._arrays["access"]), np.uint64)  # zero between calls, but for the true predicate
        bits[-1] = 1
        # Of one event: satisfied access predicates; clauses whose first two predicates hold, and their clusters.
        hits, survivors = len(self._arrays["start"]), self._rows + 1
        return bits, np.empty(hits, np.int32), np.empty(survivors, np.uint64)


def _true(predicates: int) -> int:
    """The number of the predicate that always holds: it has a word of bits of its own, which is never cleared."""
    return -(-predicates // 64) * 64


def _number(
    clauses: Clauses, example: NDArray[np.int64]
) -> tuple[NDArray[np.int32], NDArray[np.int32], dict[str, NDArray[Any]], NDArray[np.intp]]:
    """groups, key and the span arrays of the distinct predicates, and their order."""
    floor, ceiling = operators.limits(clauses)
    op = operators.operators(clauses, floor, ceiling)[example]
    attribute, lo, hi = clauses.attribute[example], clauses.lo[example], clauses.hi[example]
    group = np.full(len(op), SPANS)
    for code, column in ((operators.EQ, EQ), (operators.LE, LE), (operators.GE, GE), (operators.NE, NE)):
        group[op == code] = column
    constant = np.where(group == LE, hi, lo)
    several = hi < 0
    constant[several] = clauses.span_lo[lo[several]]
    holes = group == NE
    constant[holes] = clauses.span_hi[lo[holes]] + 1
    order = np.argsort((attribute.astype(np.int64) << 34) | (group << 31) | constant)
    attribute, group, lo, hi = attribute[order], group[order], lo[order], hi[order]

    general = np.flatnonzero(group == SPANS)
    count = np.where(hi[general] < 0, -hi[general].astype(np.int64), 1)
    predicate = np.repeat(general, count)
    begin, end = lo[predicate], hi[predicate]
    listed = np.flatnonzero(end < 0)
    side = runs(lo[general].astype(np.int64), count)[listed]
    begin[listed], end[listed] = clauses.span_lo[side], clauses.span_hi[side]
    sorted_ = np.argsort((attribute[predicate].astype(np.int64) << 31) | begin, kind="stable")
    begin, end, predicate = begin[sorted_], end[sorted_], predicate[sorted_].astype(np.int32)
    reach = np.maximum.reduceat(end, np.arange(0, len(end), 64)) if len(end) else end

    groups = np.zeros((clauses.attributes + 1, 8), np.int32)
    counts = np.bincount(attribute.astype(np.int64) * 5 + group, minlength=5 * clauses.attributes)
    starts = np.zeros(5 * clauses.attributes + 5, np.int64)
    np.cumsum(counts, out=starts[1 : len(counts) + 1])
    starts[len(counts) + 1 :] = len(order)
    groups[:, :FIRST_SPAN] = starts.reshape(-1, 5)
    np.cumsum(np.bincount(attribute[predicate], minlength=clauses.attributes), out=groups[1:, FIRST_SPAN])
    groups[:-1, FLOOR], groups[:-1, CEILING] = floor, ceiling
    spans: dict[str, NDArray[Any]] = {
        "span_begin": begin,
        "span_end": end,
        "span_predicate": predicate,
        "span_reach": reach,
    }
    return groups, constant[order].astype(np.int32), spans, order


@kernel
def _clusters(rows, own, first, size, accesses, true):
    """start and clusters of rows that are ordered by (access predicate, size)."""
    words = 2 * accesses
    for i in range(len(rows)):
        words += 4 + max(size[i] - 3, 0)
    start, clusters = np.empty(accesses + 1, np.int64), np.empty(words, np.int32)
    at, i, n = 0, 0, 0
    while i < len(rows):
        j = i
        while j < len(rows) and own[first[rows[j]]] == own[first[rows[i]]]:
            j += 1
        start[n] = at
        n += 1
        m = j - i
        clusters[at] = m
        at += 1
        others = at + 4 * m + 1
        for c in range(m):
            r = rows[i + c]
            p, end = first[r] + 1, first[r] + size[r]
            clusters[at + c] = own[p] if p < end else true
            clusters[at + m + c] = own[p + 1] if p + 1 < end else true
            clusters[at + 2 * m + c] = r
            clusters[at + 3 * m + c] = others - (at + 3 * m + c)
            for q in range(p + 2, end):
                clusters[others] = own[q]
                others += 1
        clusters[at + 4 * m] = others - (at + 4 * m)
        at, i = others, j
    start[n] = at
    return start, clusters


@kernel
def _match(
    groups,
    key,
    span_begin,
    span_end,
    span_predicate,
    span_reach,
    access,
    rank,
    start,
    clusters,
    event_offsets,
    event_attribute,
    event_cell,
    last_event,
    bits,
    hits,
    survivors,
    out_event,
    out_row,
    done,
):
    """Stops between events: one whose pairs do not fit into the room is begun again in a larger one."""
    one, six, forty, low_six = np.uint64(1), np.uint64(6), np.uint64(40), np.uint64(63)
    found = 0
    full = False
    for e in range(done[0], last_event):
        first, last = event_offsets[e], event_offsets[e + 1]
        candidates, evaluated, n_hits = 0, 0, 0

        # First phase: the bits of the satisfied predicates.
        for i in range(first, last):
            prefetch(groups, event_attribute[i] * 8)
        for i in range(first, last):
            a, v = event_attribute[i], event_cell[i]
            if i + 1 < last:
                b = event_attribute[i + 1]
                p, q = groups[b, EQ], groups[b, SPANS]
                while p < q:
                    prefetch(key, p)
                    p += 16
                p, q = groups[b, FIRST_SPAN], min(groups[b + 1, FIRST_SPAN], groups[b, FIRST_SPAN] + 256)
                while p < q:
                    prefetch(span_begin, p)
                    prefetch(span_end, p)
                    prefetch(span_predicate, p)
                    p += 16
            for g in range(SPANS):
                begin, end = groups[a, g], groups[a, g + 1]
                if begin == end or (g != EQ and (v < groups[a, FLOOR] or v > groups[a, CEILING])):
                    continue
                # The first predicate of the group whose constant is not below the value.
                p, n = begin, end - begin
                while n > 0:
                    half = n >> 1
                    below = key[p + half] < v
                    p = p + half + 1 if below else p
                    n = n - half - 1 if below else half
                at = p < end and key[p] == v
                if g == EQ:
                    if at:
                        bits[p >> 6] |= one << np.uint64(p & 63)
                    continue
                if g == LE:
                    begin = p
                elif g == GE:
                    end = p + at
                if begin < end:
                    w, final = begin >> 6, (end - 1) >> 6
                    mask = ALL << np.uint64(begin & 63)
                    while w < final:
                        bits[w] |= mask
                        mask = ALL
                        w += 1
                    bits[w] |= mask & (ALL >> np.uint64(63 - ((end - 1) & 63)))
                if g == NE and at:
                    bits[p >> 6] &= ~(one << np.uint64(p & 63))
            s, end = groups[a, FIRST_SPAN], groups[a + 1, FIRST_SPAN]
            while s < end and span_begin[s] <= v:
                if span_reach[s >> 6] < v:
                    s = ((s >> 6) + 1) << 6
                    continue
                stop = min(end, ((s >> 6) + 1) << 6)
                while s < stop and span_begin[s] <= v:
                    p = span_predicate[s]
                    bits[p >> 6] |= np.uint64(span_end[s] >= v) << np.uint64(p & 63)
                    s += 1

        # The access predicates among them. Attributes share words at their ends, so each word is looked at once.
        after = -1
        for i in range(first, last):
            p, q = groups[event_attribute[i], EQ], groups[event_attribute[i] + 1, EQ]
            if p == q:
                continue
            for w in range(max(p >> 6, after), ((q - 1) >> 6) + 1):
                evaluated += count_bits(bits[w])
                hot = bits[w] & access[w]
                while hot != 0:
                    bit = lowest_bit(hot)
                    hits[n_hits] = rank[w] + count_bits(access[w] & ((one << np.uint64(bit)) - one))
                    prefetch(start, hits[n_hits])
                    n_hits += 1
                    hot &= hot - one
            after = ((q - 1) >> 6) + 1

        # Second phase: the first two predicates of each clause in their clusters, without a branch on the outcome.
        kept = np.uint64(0)
        for h in range(min(AHEAD, n_hits)):
            prefetch(clusters, start[hits[h]])
        for h in range(n_hits):
            if h + AHEAD < n_hits:
                at = start[hits[h + AHEAD]]
                for line in range(LINES):
                    prefetch(clusters, at + 16 * line)
            at = start[hits[h]]
            c, m = np.uint64(at + 1), np.uint64(clusters[at])
            stop = c + m
            candidates += np.int64(m)
            while c < stop:
                x, y = np.uint64(clusters[c]), np.uint64(clusters[c + m])
                survivors[kept] = (m << forty) | c
                kept += (bits[x >> six] >> (x & low_six)) & (bits[y >> six] >> (y & low_six)) & one
                c += one
        evaluated += 2 * candidates
        # Then the others of those that are left.
        if found + np.int64(kept) > len(out_event):
            full = True
            kept = np.uint64(0)
        for s in range(np.int64(kept)):
            m = survivors[s] >> forty
            c = (survivors[s] & PLACE) + m + m
            out_event[found] = e
            out_row[found] = clusters[c]
            c += m
            q, stop = c + np.uint64(clusters[c]), c + one + np.uint64(clusters[c + one])
            evaluated += np.int64(stop - q)
            hold = one
            while q < stop:
                x = np.uint64(clusters[q])
                hold &= bits[x >> six] >> (x & low_six)
                q += one
            found += np.int64(hold)

        for i in range(first, last):
            p, q = groups[event_attribute[i], EQ], groups[event_attribute[i] + 1, EQ]
            if p < q:
                for w in range(p >> 6, ((q - 1) >> 6) + 1):
                    bits[w] = 0
        if full:
            done[0] = e
            break
        done[0] = e + 1
        done[3] += candidates
        done[4] += evaluated
        done[6] += n_hits
    done[2] = found
