"""Random coded clauses and events, and the plain-Python twin of matching them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from dibs.coding.batch import CodedEvents
from dibs.coding.clauses import Clauses
from dibs.language.table import ACCEPT, REJECT

Spans = list[tuple[int, int]]


Row = Iterable[tuple[int, Spans]]  # (attribute, its spans)


def conjunctions_of(rows: Iterable[Row], attributes: int) -> Clauses:
    return rows_of(list(rows), attributes)


def rows_of(
    rows: Sequence[Row], attributes: int, programs: Sequence[tuple[Row, Sequence[tuple[int, int]]]] = ()
) -> Clauses:
    """Conjunctions, then programs, with the jumps of each predicate."""
    attribute, lo, hi, span_lo, span_hi, size = ([] for _ in range(6))
    for row in [*rows, *(row for row, _ in programs)]:
        size.append(0)
        for a, spans in row:
            size[-1] += 1
            attribute.append(a)
            lo.append(spans[0][0] if len(spans) == 1 else len(span_lo))
            hi.append(spans[0][1] if len(spans) == 1 else -len(spans))
            if len(spans) > 1:
                span_lo += [x for x, _ in spans]
                span_hi += [y for _, y in spans]
    on_true, on_false = ([jump[side] for _, jumps in programs for jump in jumps] for side in (0, 1))
    return _to_clauses(size, (attribute, lo, hi, span_lo, span_hi, on_true, on_false), len(rows), attributes)


def _to_clauses(size: list[int], columns: Iterable[list[int]], conjunctions: int, attributes: int) -> Clauses:
    offsets = np.cumsum([0, *size]).astype(np.int64)
    return Clauses(offsets, *(np.array(x, np.int32) for x in columns), conjunctions=conjunctions, attributes=attributes)


def events_of(events: Sequence[Mapping[int, int]]) -> CodedEvents:
    """Events from the cell of each attribute."""
    offsets = np.cumsum([0, *map(len, events)]).astype(np.int64)
    entries = [entry for event in events for entry in sorted(event.items())]
    attribute, cell = (np.array([entry[i] for entry in entries], np.int32) for i in (0, 1))
    return CodedEvents(offsets, attribute, cell, cell, True)


def pairs_of(index: Any, events: CodedEvents, threads: int = 1) -> set[tuple[int, int]]:
    """The (event, row) that an index finds."""
    pairs = index.match(events, threads)
    found = list(zip(pairs.event.tolist(), pairs.row.tolist()))
    assert len(found) == len(set(found)), "a pair was reported twice"
    return set(found)


def random_clauses(
    rng: np.random.Generator, rows: int, attributes: int, cells: int, programs: float = 0.2, nulls: float = 0.05
) -> Clauses:
    """Conjunctions of 0 to 5 predicates and forward-jumping programs of 1 to 6, with one or several spans each, some
    on the cell of no value, some that never hold."""
    size, attribute, lo, hi, span_lo, span_hi, on_true, on_false = ([] for _ in range(8))
    plain = rows - int(rows * programs)
    for r in range(rows):
        n = int(rng.integers(0, 6)) if r < plain else int(rng.integers(1, 7))
        size.append(n)
        for p in range(n):
            attribute.append(int(rng.integers(attributes)))
            kind = rng.random()
            if kind < nulls:
                lo.append(0)
                hi.append(0)
            elif kind < nulls + 0.03:
                lo.append(1)
                hi.append(0)
            elif kind < 0.7:
                a, b = sorted(rng.integers(1, cells, 2).tolist())
                lo.append(a)
                hi.append(a if rng.random() < 0.4 else b)
            else:
                points = np.unique(rng.integers(1, cells, int(rng.integers(2, 7))))
                spans = [(int(a), int(a)) for a in points[::2]] if len(points) > 2 else []
                if len(spans) < 2:
                    spans = [(1, 1), (3, cells - 1)]
                lo.append(len(span_lo))
                hi.append(-len(spans))
                span_lo += [a for a, _ in spans]
                span_hi += [b for _, b in spans]
            if r >= plain:
                targets = [ACCEPT, REJECT, *range(p + 1, n)]
                on_true.append(int(rng.choice(targets)))
                on_false.append(int(rng.choice(targets)))
    columns = attribute, lo, hi, span_lo, span_hi, on_true, on_false
    return _to_clauses(size, columns, plain, attributes)


def sections_of(attribute: int, cells: int) -> list[tuple[int, int]]:
    """The first and last cell of each kind of values: booleans, numbers, strings, times (see coding.domain). Cells 1 to
    cells - 1 are divided otherwise for each attribute; kinds without constants have one cell."""
    shares = ((1, 1, 1), (4, 1, 0), (0, 3, 1), (0, 0, 1), (1, 0, 0))[attribute % 5]
    left, sections, first = cells - 1 - 2 - len(shares), [(1, 2)], 3
    for i, share in enumerate(shares):
        size = 1 + (max(left, 0) * share // sum(shares)) // 2 * 2  # a gap, then a constant and a gap for each constant
        last = max(cells - 1, first) if i == len(shares) - 1 else first + size - 1
        sections.append((first, last))
        first = last + 1
    return sections


def random_predicate(
    rng: np.random.Generator, sections: list[tuple[int, int]], top: int, all_kinds: bool
) -> list[tuple[int, int]]:
    """The spans of some predicate of the language, on constants of one of these kinds (all_kinds: or on all at once)
    below or at the topmost cell; none if it never holds."""
    first, last = sections[int(rng.integers(len(sections)))]
    a, b = sorted(rng.integers(first, last + 1, 2).tolist())
    anywhere = np.unique(rng.integers(1, top + 1, int(rng.integers(1, 5)))).tolist()
    forms: list[list[tuple[int, int]]] = [
        [(1, top)],  # IS NOT NULL
        [(0, 0)],  # IS NULL
        [],
        [(a, a)],
        [(first, b)],  # <= or <; with b in the topmost cell, everything of this kind
        [(a, last)],
        [(a, b)],
        outside([(a, a)], first, last),  # <>
        outside([(a, b)], first, last),  # NOT BETWEEN
        joined([(x, x) for x in anywhere]),  # IN, of any kinds
        outside(joined([(x, x) for x in anywhere]), 1, top),
        outside(joined([(x, x) for x in anywhere if first <= x <= last]), first, last),  # NOT IN
    ]
    weights = np.array([3 * all_kinds, 1, 0.5, 3, 3, 3, 2, 4, 2, 2 * all_kinds, 2 * all_kinds, 2])
    return forms[int(rng.choice(len(forms), p=weights / weights.sum()))]


def joined(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Sorted spans, those that are adjacent made one."""
    result: list[tuple[int, int]] = []
    for x, y in spans:
        if result and result[-1][1] + 1 == x:
            result[-1] = result[-1][0], y
        else:
            result.append((x, y))
    return result


def outside(spans: list[tuple[int, int]], first: int, last: int) -> list[tuple[int, int]]:
    """What is left of the cells first to last."""
    edges = [first - 1, *(edge for span in spans for edge in span), last + 1]
    return [(x + 1, y - 1) for x, y in zip(edges[::2], edges[1::2]) if x + 1 <= y - 1]


def clauses_of_kinds(
    rng: np.random.Generator, rows: int, attributes: int, cells: int, programs: float = 0.2, most: int = 4
) -> Clauses:
    """Conjunctions of 1 to `most` predicates, and programs, over attributes with constants of several kinds: of some of
    them, and half the time with predicates that are about all kinds, such as IS NOT NULL."""
    plain = rows - int(rows * programs)
    all_kinds = bool(rng.random() < 0.5)
    kinds = []
    for a in range(attributes):
        sections = sections_of(a, cells)
        kinds.append([sections[k] for k in rng.choice(len(sections), int(rng.integers(1, 4)), replace=False)])
    size, attribute, lo, hi, span_lo, span_hi, on_true, on_false = ([] for _ in range(8))
    for r in range(rows):
        n = int(rng.integers(1, most + 1))
        size.append(n)
        for p in range(n):
            attribute.append(int(rng.integers(attributes)))
            spans = random_predicate(rng, kinds[attribute[-1]], cells - 1, all_kinds)
            x, y = spans[0] if len(spans) == 1 else (len(span_lo), -len(spans)) if spans else (1, 0)
            lo.append(x)
            hi.append(y)
            if len(spans) > 1:
                span_lo += [x for x, _ in spans]
                span_hi += [y for _, y in spans]
            if r >= plain:
                targets = [ACCEPT, REJECT, *range(p + 1, n)]
                on_true.append(int(rng.choice(targets)))
                on_false.append(int(rng.choice(targets)))
    columns = attribute, lo, hi, span_lo, span_hi, on_true, on_false
    return _to_clauses(size, columns, plain, attributes)


def random_events(
    rng: np.random.Generator, events: int, attributes: int, cells: int, several: bool = True, most: int = 6
) -> CodedEvents:
    """Events with 0 to `most` attributes; with `several`, some values are ranges or have up to 3 entries."""
    sizes, attribute, lo, hi = [], [], [], []
    points = True
    for _ in range(events):
        chosen = np.sort(rng.choice(attributes, int(rng.integers(0, min(attributes, most) + 1)), replace=False))
        n = 0
        for a in chosen.tolist():
            entries = int(rng.integers(1, 4)) if several and rng.random() < 0.3 else 1
            starts = np.unique(rng.integers(1, cells + 1, entries)).tolist()  # `cells` itself: a value of no kind
            for x in starts:
                wide = several and x < cells and rng.random() < 0.2
                attribute.append(a)
                lo.append(x)
                hi.append(int(rng.integers(x, cells)) if wide else x)
                points &= not wide
            points &= len(starts) == 1
            n += len(starts)
        sizes.append(n)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    first = np.array(lo, np.int32)
    return CodedEvents(
        offsets, np.array(attribute, np.int32), first, first if points else np.array(hi, np.int32), points
    )


@st.composite
def coded_cases(draw: st.DrawFn) -> tuple[Clauses, CodedEvents]:
    """A few clauses and events of everything that the coded model can say, made to shrink."""
    attributes, cells = draw(st.integers(1, 4)), draw(st.integers(3, 10))
    spans = st.lists(st.integers(1, cells - 1), min_size=2, max_size=6, unique=True).map(sorted)
    one = st.tuples(st.integers(1, cells - 1), st.integers(1, cells - 1)).map(lambda x: [tuple(sorted(x))])
    several = spans.map(lambda x: [(a, a) for a in x if a % 2])  # not adjacent
    everything = st.just([(1, cells - 1)])  # IS NOT NULL
    complement = one.map(lambda x: outside(x, 1, cells - 1))
    within = spans.map(lambda x: outside([(a, a) for a in x[1:-1]], x[0], x[-1]))  # <>, NOT IN: of one kind of several
    others = st.sampled_from([[(0, 0)], [], [(1, 1)], [(cells - 1, cells - 1)]])
    spans_of_one = st.one_of(one, several, everything, complement, within, others)
    predicate = st.tuples(st.integers(0, attributes - 1), spans_of_one)
    plain = draw(st.lists(st.lists(predicate, max_size=4), max_size=12))
    programs = draw(st.lists(st.lists(predicate, min_size=1, max_size=5), max_size=4))
    attribute, lo, hi, span_lo, span_hi, on_true, on_false = ([] for _ in range(7))
    for row, program in [*((r, False) for r in plain), *((r, True) for r in programs)]:
        for place, (a, own) in enumerate(row):
            attribute.append(a)
            first, last = own[0] if len(own) == 1 else (len(span_lo), -len(own)) if own else (1, 0)
            lo.append(first)
            hi.append(last)
            if len(own) > 1:
                span_lo += [x for x, _ in own]
                span_hi += [y for _, y in own]
            if program:
                targets = st.sampled_from([ACCEPT, REJECT, *range(place + 1, len(row))])
                on_true.append(draw(targets))
                on_false.append(draw(targets))
    sizes = [len(r) for r in [*plain, *programs]]
    columns = (np.array(x, np.int32) for x in (attribute, lo, hi, span_lo, span_hi, on_true, on_false))
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    clauses = Clauses(offsets, *columns, conjunctions=len(plain), attributes=attributes)

    value = st.one_of(st.integers(1, cells).map(lambda x: [(x, x)]), one, st.lists(one.map(lambda x: x[0]), max_size=3))
    event = st.dictionaries(st.integers(0, attributes - 1), value)
    entries, sizes, points = [], [], True
    for e in draw(st.lists(event, min_size=1, max_size=6)):
        own = sorted({(a, x, y) for a, v in e.items() for x, y in v})
        points &= all(x == y for _, x, y in own) and len({a for a, _, _ in own}) == len(own)
        entries += own
        sizes.append(len(own))
    a, x, y = (np.array([entry[i] for entry in entries], np.int32) for i in range(3))
    bounds = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return clauses, CodedEvents(bounds, a, x, x if points else y, points)


ENTRIES = ("offsets", "attribute", "lo", "hi")  # of events
MOST_KNOWN = 128  # cases
known: dict[tuple[int | bytes, ...], frozenset[tuple[int, int]]] = {}


def expected(clauses: Clauses, events: CodedEvents) -> frozenset[tuple[int, int]]:
    """The pairs (event, row), by the words of coding.clauses and language.table. Kept for a while: many indexes get the
    same cases, one after the other."""
    columns = [*(getattr(clauses, name) for name in Clauses.ARRAYS), *(getattr(events, name) for name in ENTRIES)]
    key = (clauses.conjunctions, *(column.tobytes() for column in columns))
    if key not in known:
        if len(known) == MOST_KNOWN:
            known.clear()
        known[key] = _find_pairs(clauses, events)
    return known[key]


def _find_pairs(clauses: Clauses, events: CodedEvents) -> frozenset[tuple[int, int]]:
    result = set()
    for e in range(len(events)):
        values: dict[int, list[tuple[int, int]]] = {}
        for i in range(events.offsets[e], events.offsets[e + 1]):
            values.setdefault(int(events.attribute[i]), []).append((int(events.lo[i]), int(events.hi[i])))
        for r in range(len(clauses)):
            if _row_holds(clauses, r, values):
                result.add((e, r))
    return frozenset(result)


def _row_holds(clauses: Clauses, r: int, values: dict[int, list[tuple[int, int]]]) -> bool:
    start, end = int(clauses.offsets[r]), int(clauses.offsets[r + 1])
    if r < clauses.conjunctions:
        return all(_holds(clauses, p, values) for p in range(start, end))
    step, base = 0, int(clauses.offsets[clauses.conjunctions])
    while step >= 0:
        p = start + step
        step = int((clauses.on_true if _holds(clauses, p, values) else clauses.on_false)[p - base])
    return step == ACCEPT


def _holds(clauses: Clauses, p: int, values: dict[int, list[tuple[int, int]]]) -> bool:
    lo, hi = int(clauses.lo[p]), int(clauses.hi[p])
    spans = [(int(clauses.span_lo[i]), int(clauses.span_hi[i])) for i in range(lo, lo - hi)] if hi < 0 else [(lo, hi)]
    value = values.get(int(clauses.attribute[p]), [(0, 0)])
    return any(a <= y and x <= b and a <= b for a, b in spans for x, y in value)
