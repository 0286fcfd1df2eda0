"""The plain twins of the kernels of coding: domains and spans of a table by numpy, one step after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dibs.coding.clauses import Clauses, runs
from dibs.coding.domain import NUMBER_BASE, Domains
from dibs.language.expression import Kind
from dibs.language.table import Facet, Op, PredicateTable

PATTERNS = Facet.PATTERN, Facet.NO_PATTERN


def plain_code_clauses(table: PredicateTable) -> tuple[Domains, Clauses]:
    """Domains and coded clauses of a table; attributes keep the table's order."""
    domains, cell = plain_domains_of(table)
    lo, hi, span_lo, span_hi = plain_spans(table, domains, cell)
    clauses = Clauses(
        offsets=table.offsets,
        attribute=table.attribute,
        lo=lo,
        hi=hi,
        span_lo=span_lo,
        span_hi=span_hi,
        on_true=table.on_true,
        on_false=table.on_false,
        conjunctions=table.conjunctions,
        attributes=len(table.attributes),
    )
    return domains, clauses


def plain_bases(domains: Domains) -> tuple[NDArray[np.int32], ...]:
    """(string_base, time_base, cells) of each attribute."""
    numbers, strings, times = (
        np.diff(x).astype(np.int32) for x in (domains.number_offsets, domains.string_offsets, domains.time_offsets)
    )
    pattern = np.isin(domains.facet, PATTERNS)
    string_base = np.where(pattern, 1, NUMBER_BASE + 2 * numbers + 1).astype(np.int32)
    time_base = (string_base + 2 * strings + 1).astype(np.int32)
    cells = np.where(pattern, 1 + strings, time_base + 2 * times + 1).astype(np.int32)
    return string_base, time_base, cells


def plain_section(domains: Domains, kind: NDArray[Any], attribute: NDArray[Any]) -> tuple[NDArray[np.int32], ...]:
    """First and last cell of a kind of values of an attribute."""
    string_base, time_base, cells = (x[attribute] for x in plain_bases(domains))
    first = np.choose(kind, [1, NUMBER_BASE, string_base, time_base])
    last = np.choose(kind, [2, string_base - 1, time_base - 1, cells - 1])
    return first.astype(np.int32), last.astype(np.int32)


def _constants_of(
    attribute: NDArray[np.int64], place: NDArray[np.int64], distinct: int, attributes: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """The distinct (attribute, place) in order: offsets by attribute, places, and each row's rank in its attribute."""
    keys, row = np.unique(attribute * max(distinct, 1) + place, return_inverse=True)
    owner, places = np.divmod(keys, max(distinct, 1))
    offsets = np.zeros(attributes + 1, np.int64)
    np.cumsum(np.bincount(owner, minlength=attributes), out=offsets[1:])
    return offsets, places, row - offsets[attribute]


def plain_domains_of(table: PredicateTable) -> tuple[Domains, NDArray[np.int32]]:
    """The domains of a table, and the cell of each of its literals."""
    n = len(table.attributes)
    owner = np.repeat(table.attribute.astype(np.int64), np.diff(table.literal_offsets))
    numbers, strings, times = (np.flatnonzero(table.kind == k) for k in (Kind.NUMBER, Kind.STRING, Kind.TIME))

    keys = list(zip(table.number[numbers].tolist(), table.integer[numbers].tolist()))
    ordered = sorted(set(keys))
    place_of = {key: i for i, key in enumerate(ordered)}
    place = np.array([place_of[key] for key in keys], np.int64)
    number_offsets, number_places, number_rank = _constants_of(owner[numbers], place, len(ordered), n)

    texts = sorted(table.texts)
    text_of = {text: i for i, text in enumerate(texts)}
    place = np.array([text_of[table.texts[i]] for i in table.integer[strings].tolist()], np.int64)
    string_offsets, string_places, string_rank = _constants_of(owner[strings], place, len(texts), n)
    stored = [texts[i] for i in string_places.tolist()]

    moments, place = np.unique(table.integer[times], return_inverse=True)
    time_offsets, time_places, time_rank = _constants_of(owner[times], place, len(moments), n)

    domains = Domains(
        attributes=table.attributes,
        facet=np.array([f for _, f in table.attributes], np.uint8),
        number_offsets=number_offsets,
        number_value=np.array([ordered[i][0] for i in number_places.tolist()], np.float64),
        number_rest=np.array([ordered[i][1] for i in number_places.tolist()], np.int16),
        string_offsets=string_offsets,
        string_starts=np.cumsum([0, *map(len, stored)]),
        string_bytes=np.array(list(b"".join(stored)), np.uint8),
        string_prefix=np.array([int.from_bytes(x[:8].ljust(8, b"\0"), "big") for x in stored], np.uint64),
        time_offsets=time_offsets,
        time_value=moments[time_places],
    )
    string_base, time_base, _ = plain_bases(domains)
    cell = 1 + table.integer  # booleans
    cell[numbers] = NUMBER_BASE + 2 * number_rank + 1
    pattern = np.isin(domains.facet[owner[strings]], PATTERNS)
    cell[strings] = string_base[owner[strings]] + np.where(pattern, string_rank, 2 * string_rank + 1)
    cell[times] = time_base[owner[times]] + 2 * time_rank + 1
    return domains, cell.astype(np.int32)


RANGES = {int(op) for op in (Op.BETWEEN, Op.WITHIN)}
OF_NO_VALUE = {int(op) for op in (Op.STRING, Op.IS_NULL, Op.NOT_NULL)}
SEVERAL = {int(op) for op in (Op.NE, Op.NOT_BETWEEN, Op.NOT_WITHIN, Op.IN, Op.NOT_IN)}  # that may have several spans


def plain_spans(table: PredicateTable, domains: Domains, cell: NDArray[np.int32]) -> tuple[NDArray[np.int32], ...]:
    op, attribute = table.operator, table.attribute
    present = set(np.flatnonzero(np.bincount(op)).tolist())  # small tables have few operators: most is passed over
    lo, hi = np.ones(len(op), np.int32), np.zeros(len(op), np.int32)
    at = np.minimum(table.literal_offsets[:-1], max(len(cell) - 1, 0))  # first literal, where there is one
    if len(cell):
        c = cell[at]
        first, last = plain_section(domains, table.kind[at], attribute)
        for code, low, high in (
            (Op.EQ, c, c),
            (Op.PATTERN, c, c),
            (Op.LT, first, c - 1),
            (Op.LE, first, c),
            (Op.GT, c + 1, last),
            (Op.GE, c, last),
        ):
            if code in present:
                rows = np.flatnonzero(op == code)
                lo[rows], hi[rows] = low[rows], high[rows]
        if present & RANGES:
            rows = np.flatnonzero((op == Op.BETWEEN) | (op == Op.WITHIN))
            one_kind = table.kind[at[rows]] == table.kind[at[rows] + 1]
            lo[rows] = c[rows]
            hi[rows] = np.where(one_kind, cell[at[rows] + 1] - (op[rows] == Op.WITHIN), 0)
    if present & OF_NO_VALUE:
        rows = np.flatnonzero(op == Op.STRING)
        lo[rows], hi[rows] = plain_section(domains, np.full(len(rows), int(Kind.STRING)), attribute[rows])
        rows = np.flatnonzero(op == Op.IS_NULL)
        lo[rows], hi[rows] = 0, 0
        rows = np.flatnonzero(op == Op.NOT_NULL)
        lo[rows], hi[rows] = 1, plain_bases(domains)[2][attribute[rows]] - 1
    empty = lo > hi
    lo[empty], hi[empty] = 1, 0

    if not present & SEVERAL:
        return lo, hi, np.empty(0, np.int32), np.empty(0, np.int32)
    several = np.flatnonzero(np.isin(op, list(SEVERAL)))
    owner, low, high = _several_spans(table, domains, cell, several)
    counts = np.bincount(owner, minlength=len(several)) if len(several) else np.zeros(0, np.int64)
    starts = np.concatenate([[0], np.cumsum(counts)])
    single, multiple = np.flatnonzero(counts == 1), np.flatnonzero(counts > 1)
    lo[several[single]], hi[several[single]] = low[starts[single]], high[starts[single]]
    keep = np.repeat(counts > 1, counts)
    side_starts = np.concatenate([[0], np.cumsum(counts[multiple])])
    lo[several[multiple]], hi[several[multiple]] = side_starts[:-1], -counts[multiple]
    return lo, hi, low[keep].astype(np.int32), high[keep].astype(np.int32)


def _several_spans(
    table: PredicateTable, domains: Domains, cell: NDArray[np.int32], rows: NDArray[np.int64]
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """The spans of predicates that may have several: (place in rows, lo, hi), sorted, disjoint and not adjacent."""
    op = table.operator[rows]
    starts, counts = table.literal_offsets[rows], np.diff(table.literal_offsets)[rows]
    group = np.repeat(np.arange(len(rows)), counts)
    literal = runs(starts, counts)
    c = cell[literal] if len(literal) else np.empty(0, np.int32)
    first, last = plain_section(domains, table.kind[literal], table.attribute[rows][group]) if len(literal) else (c, c)
    code = op[group]
    is_first = np.arange(len(group)) == (np.cumsum(counts) - counts)[group] if len(group) else np.empty(0, np.bool_)
    pieces: list[tuple[Any, Any, Any]] = []

    def piece(mask: NDArray[np.bool_], low: Any, high: Any) -> None:
        pieces.append((group[mask], low[mask], high[mask]))

    piece(code == Op.IN, c, c)
    piece(code == Op.NE, first, c - 1)
    piece(code == Op.NE, c + 1, last)
    piece(np.isin(code, (Op.NOT_BETWEEN, Op.NOT_WITHIN)) & is_first, first, c - 1)
    piece((code == Op.NOT_BETWEEN) & ~is_first, c + 1, last)
    piece((code == Op.NOT_WITHIN) & ~is_first, c, last)

    # NOT IN: between neighbouring constants of one list lies a span, and one before the first and after the last.
    inside = np.flatnonzero(code == Op.NOT_IN)
    order = inside[np.lexsort((c[inside], group[inside]))]
    g, x = group[order], c[order]
    starts_list = np.concatenate([[True], g[1:] != g[:-1]]) if len(g) else np.empty(0, np.bool_)
    ends_list = np.concatenate([g[1:] != g[:-1], [True]]) if len(g) else np.empty(0, np.bool_)
    pieces.append((g, np.where(starts_list, first[order], np.concatenate([[0], x[:-1] + 1])[: len(x)]), x - 1))
    pieces.append((g[ends_list], x[ends_list] + 1, last[order][ends_list]))

    owner, low, high = (np.concatenate([p[i] for p in pieces]) for i in range(3))
    filled = low <= high
    return _merged(owner[filled], low[filled], high[filled])


def _merged(
    owner: NDArray[Any], low: NDArray[Any], high: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Spans sorted by (owner, low), with overlapping and adjacent ones of one owner joined."""
    order = np.lexsort((low, owner))
    owner, low, high = owner[order], low[order].astype(np.int64), high[order].astype(np.int64)
    if not len(owner):
        return owner, low, high
    # A running maximum of `high` within each owner: shift every owner's spans above all those before it.
    shift = owner.astype(np.int64) << 32
    reach = np.maximum.accumulate(high + shift)
    begins = np.concatenate([[True], (low + shift)[1:] > reach[:-1] + 1])
    ends = np.concatenate([np.flatnonzero(begins)[1:] - 1, [len(owner) - 1]])
    return owner[begins], low[begins], reach[ends] - shift[ends]
