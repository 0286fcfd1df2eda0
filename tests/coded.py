"""Random coded clauses and events, and the plain-Python twin of matching them."""

from __future__ import annotations

import numpy as np

from dibs.coding.batch import CodedEvents
from dibs.coding.clauses import Clauses
from dibs.language.table import ACCEPT, REJECT


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
    offsets = np.concatenate([[0], np.cumsum(size)]).astype(np.int64)
    columns = (np.array(x, np.int32) for x in (attribute, lo, hi, span_lo, span_hi, on_true, on_false))
    return Clauses(offsets, *columns, conjunctions=plain, attributes=attributes)


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


def expected(clauses: Clauses, events: CodedEvents) -> set[tuple[int, int]]:
    """The pairs (event, row), by the words of coding.clauses and language.table."""
    result = set()
    for e in range(len(events)):
        values: dict[int, list[tuple[int, int]]] = {}
        for i in range(events.offsets[e], events.offsets[e + 1]):
            values.setdefault(int(events.attribute[i]), []).append((int(events.lo[i]), int(events.hi[i])))
        for r in range(len(clauses)):
            if _row_holds(clauses, r, values):
                result.add((e, r))
    return result


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
