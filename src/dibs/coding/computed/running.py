"""Programs (program.py) over columns: the machine computes all rows, but for those that it leaves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dibs.coding.computed.program import Program, empty_column, literals_of, machine, program_of
from dibs.coding.computed.program_layout import Column, Sources
from dibs.coding.computed.vectors import STRING, Vector, choose, empty, nulls, of_plain, to_plain
from dibs.jit.undisturbed import bring
from dibs.language.functions import evaluate as evaluate_plain
from dibs.language.functions.plain import Plain
from dibs.language.scalars import Field, Scalar, inputs_of

BLOCK = 128  # rows at once, of which the upper values of a stack stay in the nearest cache
SHORT = 64  # bytes of a text that there is room for at first: memory that is not touched costs nothing
ROOM = 1 << 22  # bytes of texts that the rows of a block make on their way


def with_room(data: NDArray[np.uint8], program: Program) -> tuple[NDArray[np.uint8], int]:
    """The bytes of strings, with room behind them for those that the program makes; and where that begins."""
    if not program.makes_texts:
        return (data if data.flags.writeable else data.copy()), len(data)
    grown = np.empty(len(data) + ROOM, np.uint8)
    grown[: len(data)] = data
    return grown, len(data)


def compute_rows(
    program: Program, column: Column, data: NDArray[np.uint8], free: int, places: NDArray[np.int64]
) -> tuple[Vector, NDArray[np.bool_]]:
    """The results for all rows, and which of them are left. places: fields x rows. data, free: see with_room."""
    kernels: Any = bring("dibs.coding.computed.program_kernels")
    rows = places.shape[1]
    found, left, done = empty_column(rows), np.zeros(rows, np.bool_), np.zeros(3, np.int64)
    texts = np.empty(max(SHORT * rows, 1 << 10) if program.makes_texts else 1 << 10, np.uint8)
    work, literals = machine(BLOCK), literals_of(program.literals)
    work.free[0] = free
    sources = Sources(places.reshape(-1), rows, column, found, literals, data)
    while True:
        kernels.compute_rows(program.code, sources, texts, found, left, done, work)
        if done[0] == rows:
            break
        larger = np.empty(
            max(2 * len(texts), int(done[1] + done[2]), int(done[1]) * rows // max(int(done[0]), 1)), np.uint8
        )
        larger[: done[1]] = texts[: done[1]]
        texts = larger
    text = nulls(rows)
    has_text = found.kind == STRING
    if has_text.any():
        offsets = np.append(np.zeros(1, np.int64), found.end)
        valid = None if has_text.all() else pa.py_buffer(np.packbits(has_text, bitorder="little"))
        buffers = [valid, pa.py_buffer(offsets), pa.py_buffer(texts)]
        text = pa.Array.from_buffers(pa.large_string(), rows, buffers)
    return Vector(found.kind, found.number, found.integer, found.whole, text), left


def fill_left(result: Vector, left: NDArray[np.bool_], scalar: Scalar, fields: Mapping[str, Vector]) -> Vector:
    """With the rows that are left, by the plain form, once for equal values. fields: of these rows alone."""
    rows = np.flatnonzero(left)
    columns = [to_plain(vector) for vector in fields.values()]
    known: dict[tuple[object, ...], Plain] = {}
    values: list[Plain] = []
    for own in zip(*columns) if columns else [()] * len(rows):
        key = tuple((type(value), value) for value in own)
        if key not in known:
            known[key] = evaluate_plain(scalar, dict(zip(fields, own)))
        values.append(known[key])
    place = np.zeros(len(left), np.int64)
    place[rows] = np.arange(len(rows))
    return choose(~left, result, of_plain(values).take(place))


def evaluate(scalar: Scalar, fields: Mapping[str, Vector], rows: int) -> Vector:
    """The column of a computed value, from those of its fields. What has no program is computed row by row, and not
    function by function: of texts that grow on their way there is one at a time then."""
    if isinstance(scalar, Field):
        return fields[scalar.name]
    fields = {name: fields[name] for name in inputs_of(scalar)}
    program = program_of(scalar, list(fields))
    if program is None or any(vector.months is not None for vector in fields.values()):
        result, left = empty(rows), np.ones(rows, np.bool_)
    else:
        column, data, places = _joined(list(fields.values()), rows)
        result, left = compute_rows(program, column, *with_room(data, program), places)
    if left.any():
        at = np.flatnonzero(left)
        result = fill_left(result, left, scalar, {name: vector.take(at) for name, vector in fields.items()})
    return result


def _joined(vectors: Sequence[Vector], rows: int) -> tuple[Column, NDArray[np.uint8], NDArray[np.int64]]:
    """Vectors as one column, the bytes of their strings, and where each has its rows."""
    starts, ends, contents = [], [], [np.zeros(0, np.uint8)]
    places = np.empty((len(vectors), rows), np.int64)
    first = used = 0
    for k, vector in enumerate(vectors):
        size = len(vector)
        places[k] = first + (np.arange(rows) if size == rows else 0)
        first += size
        start = end = np.zeros(size, np.int64)
        if vector.text.null_count < size:
            _, own, content = vector.text.buffers()
            offsets = np.frombuffer(own, np.int64, size + 1, vector.text.offset * 8)
            start, end = offsets[:-1] - offsets[0] + used, offsets[1:] - offsets[0] + used
            contents.append(np.frombuffer(content or b"", np.uint8)[offsets[0] : offsets[-1]])
            used += len(contents[-1])
        starts.append(start)
        ends.append(end)
    if not vectors:
        return empty_column(0), contents[0], places
    column = Column(
        np.concatenate([vector.kind for vector in vectors]),
        np.concatenate([vector.number for vector in vectors]),
        np.concatenate([vector.integer for vector in vectors]),
        np.concatenate([vector.whole for vector in vectors]),
        np.concatenate(starts),
        np.concatenate(ends),
    )
    return column, np.concatenate(contents), places
