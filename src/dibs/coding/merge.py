"""Joining coded clauses of several domains into one, without their texts.

Merging domains only ever cuts cells into smaller ones: a constant's cell becomes another single cell, a gap becomes a
run of cells. So each old cell has a first and a last new cell, and a span is moved by looking up its two ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dibs.arrays import from_numpy, to_numpy
from dibs.coding.batch import Numbered
from dibs.coding.clauses import Clauses, runs
from dibs.coding.domain import (
    NUMBER_BASE,
    Domains,
    constants_of,
    number_ranks,
    ranks,
    string_buffers,
    string_prefixes,
)
from dibs.coding.patterns import PatternSet, patterns_of
from dibs.language.table import Facet

RowNumbers = NDArray[np.int64]
# The new number of each attribute; where its old cells start in the next two; the first and the last new cell of each.
Moved = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int32], NDArray[np.int32]]


def move_clauses(
    parts: Sequence[tuple[Clauses, RowNumbers, Moved]], attributes: int
) -> tuple[Clauses, NDArray[np.int64]]:
    """The given rows of each part with their cells moved, as one set of clauses; and for each of its rows the place
    among all rows given."""
    chosen: list[tuple[Clauses, RowNumbers, Moved, NDArray[np.int64]]] = []
    base = 0
    for clauses, rows, move in parts:
        chosen.append((clauses, rows, move, np.arange(base, base + len(rows))))
        base += len(rows)
    # All conjunctions first, then all programs: the order that Clauses asks for.
    pieces = []
    for programs in (False, True):
        for clauses, rows, move, place in chosen:
            mask = (rows >= clauses.conjunctions) == programs
            pieces.append(_move(clauses, rows[mask], move, place[mask], programs))
    sizes = np.concatenate([p["size"] for p in pieces])
    offsets = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    side, lo, hi = 0, [], []
    for p in pieces:
        several = p["hi"] < 0
        p["lo"][several] += side
        side += len(p["span_lo"])
        lo.append(p["lo"])
        hi.append(p["hi"])
    joined = {k: np.concatenate([p[k] for p in pieces]) for k in pieces[0] if k not in ("lo", "hi", "size")}
    merged = Clauses(
        offsets=offsets,
        attribute=joined["attribute"],
        lo=np.concatenate(lo),
        hi=np.concatenate(hi),
        span_lo=joined["span_lo"],
        span_hi=joined["span_hi"],
        on_true=joined["on_true"],
        on_false=joined["on_false"],
        conjunctions=sum(int((rows < c.conjunctions).sum()) for c, rows, _ in parts),
        attributes=attributes,
    )
    return merged, joined["place"]


def _move(
    clauses: Clauses, rows: RowNumbers, move: Moved, place: NDArray[np.int64], programs: bool
) -> dict[str, NDArray[Any]]:
    to_attribute, cell_base, first_cell, last_cell = move
    size = np.diff(clauses.offsets)[rows]
    take = runs(clauses.offsets[rows], size)
    attribute, lo, hi = clauses.attribute[take], clauses.lo[take].copy(), clauses.hi[take].copy()
    filled = (hi >= 0) & (lo <= hi)
    lo[filled] = first_cell[cell_base[attribute[filled]] + lo[filled]]
    hi[filled] = last_cell[cell_base[attribute[filled]] + hi[filled]]
    several = np.flatnonzero(hi < 0)
    spans = -hi[several].astype(np.int64)
    side = runs(lo[several].astype(np.int64), spans)
    owner = np.repeat(cell_base[attribute[several]], spans)
    lo[several] = np.cumsum(spans) - spans
    jumps = take - clauses.offsets[clauses.conjunctions] if programs else np.empty(0, np.int64)
    return {
        "size": size,
        "place": place,
        "attribute": to_attribute[attribute].astype(np.int32),
        "lo": lo,
        "hi": hi,
        "span_lo": first_cell[owner + clauses.span_lo[side]],
        "span_hi": last_cell[owner + clauses.span_hi[side]],
        "on_true": clauses.on_true[jumps],
        "on_false": clauses.on_false[jumps],
    }


def merge_domains(olds: list[Domains]) -> tuple[Domains, list[Moved]]:
    """All constants of the domains in one, whose attributes are sorted, and where the cells of each have gone."""
    numbers = {a: i for i, a in enumerate(sorted({a for d in olds for a in d.attributes}))}
    to_attribute = [np.fromiter(map(numbers.__getitem__, d.attributes), np.int64, len(d.attributes)) for d in olds]
    n = len(numbers)

    def owners(name: str) -> NDArray[np.int64]:
        return np.concatenate([np.repeat(t, np.diff(getattr(d, name))) for d, t in zip(olds, to_attribute)])

    value, rest, place = number_ranks(
        np.concatenate([d.number_value for d in olds]),
        np.concatenate([d.number_rest for d in olds]).astype(np.int64),
    )
    number_offsets, number_places, number_rank = constants_of(owners("number_offsets"), place, len(value), n)

    strings = pa.concat_arrays([_store(d) for d in olds])
    encoded = strings.dictionary_encode()
    texts = encoded.dictionary.to_pylist()
    order = sorted(range(len(texts)), key=texts.__getitem__)
    text_place = np.empty(len(order), np.int64)
    text_place[order] = np.arange(len(order))
    string_offsets, string_places, string_rank = constants_of(
        owners("string_offsets"), text_place[to_numpy(encoded.indices)], len(order), n
    )
    starts, data = string_buffers(encoded.dictionary.take(from_numpy(np.array(order, np.int64)[string_places])))

    moments, place = ranks(np.concatenate([d.time_value for d in olds]))
    time_offsets, time_places, time_rank = constants_of(owners("time_offsets"), place, len(moments), n)

    new = Domains(
        attributes=list(numbers),
        facet=np.array([f for _, f in numbers], np.uint8),
        number_offsets=number_offsets,
        number_value=value[number_places],
        number_rest=rest[number_places],
        string_offsets=string_offsets,
        string_starts=starts,
        string_bytes=data,
        string_prefix=string_prefixes(starts, data),
        time_offsets=time_offsets,
        time_value=moments[time_places],
    )
    known = [d.numbered for d in olds]
    if all(k is not None and k.names is known[0].names for k in known):  # no need to look all names up again
        code = np.empty(n, np.int32)
        for k, t in zip(known, to_attribute):
            code[t] = k.code
        new.numbered = Numbered(known[0].names, new, code)
    _hand_on_patterns(olds, to_attribute, new)
    result, at = [], [0, 0, 0]
    for d, t in zip(olds, to_attribute):
        of_kinds = []
        for i, (rank, column) in enumerate(
            ((number_rank, d.number_value), (string_rank, d.string_prefix), (time_rank, d.time_value))
        ):
            of_kinds.append(rank[at[i] : at[i] + len(column)])
            at[i] += len(column)
        result.append((t, *_cell_map(d, new, t, *of_kinds)))
    return new, result


def _hand_on_patterns(olds: list[Domains], to_attribute: list[NDArray[np.int64]], new: Domains) -> None:
    """Patterns that were in use are built here, where nobody waits for them; with what RE2 has compiled of them."""
    found: dict[int, list[PatternSet]] = {}
    for d, t in zip(olds, to_attribute):
        for a, patterns in list(d.patterns.items()):
            found.setdefault(int(t[a]), []).append(patterns)
    for a, sets in found.items():
        patterns_of(new, a, sets)


def _store(d: Domains) -> pa.Array:
    buffers = [None, pa.py_buffer(d.string_starts), pa.py_buffer(d.string_bytes)]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(d.string_prefix), buffers)


def _cell_map(
    old: Domains, new: Domains, to: NDArray[np.int64], number: Any, string: Any, time: Any
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32]]:
    """For each old cell (all attributes in a row, from `base`) the first and the last of its new cells."""
    base = np.zeros(len(old.attributes) + 1, np.int64)
    np.cumsum(old.cells, out=base[1:])
    first, last = np.zeros(base[-1], np.int32), np.zeros(base[-1], np.int32)
    for cell in (0, 1, 2):  # no value, FALSE, TRUE (pattern facets overwrite theirs below)
        at = base[:-1][old.cells > cell] + cell
        first[at] = last[at] = cell
    plain = (old.facet != Facet.PATTERN) & (old.facet != Facet.NO_PATTERN)
    sections = (
        (number, old.number_offsets, np.full(len(to), NUMBER_BASE), np.full(len(to), NUMBER_BASE), new.string_base[to]),
        (string, old.string_offsets, old.string_base, new.string_base[to], new.time_base[to]),
        (time, old.time_offsets, old.time_base, new.time_base[to], new.cells[to]),
    )
    for rank, offsets, old_base, new_base, new_end in sections:
        owner = np.repeat(np.arange(len(to)), np.diff(offsets))
        keep = plain[owner]
        within = np.arange(len(owner)) - offsets[owner]
        at = (base[owner] + old_base[owner] + 2 * within + 1)[keep]
        cell = (new_base[owner] + 2 * rank + 1)[keep]
        first[at] = last[at] = cell
        first[at + 1] = cell + 1  # the gap above a constant starts behind it,
        last[at - 1] = cell - 1  # the gap below it ends before it
        attribute = np.flatnonzero(plain)
        first[base[attribute] + old_base[attribute]] = new_base[attribute]
        last[base[attribute] + old_base[attribute] + 2 * np.diff(offsets)[attribute]] = new_end[attribute] - 1
    owner = np.repeat(np.arange(len(to)), np.diff(old.string_offsets))
    keep = ~plain[owner]
    at = (base[owner] + 1 + np.arange(len(owner)) - old.string_offsets[owner])[keep]
    first[at] = last[at] = (1 + string)[keep]
    return base, first, last
