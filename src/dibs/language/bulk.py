"""The fast lane: simple conjunctions straight from UTF-8 bytes to a PredicateTable, without a Python object each.

It takes what most people write,

    name op literal AND name [NOT] BETWEEN literal AND literal AND name [NOT] IN (literal, ...)
    AND name LIKE 'prefix%' AND name IS [NOT] NULL

with plain names (dotted too), the six comparisons, numbers of up to 15 digits with a fraction or 18 without, TRUE and
FALSE, and quoted strings without escapes. Anything else, also anything it is not sure of (a name that is a SQL word,
say), it leaves alone: `simple` is False for that text and the general lane (sql.parse) decides. So the lane never
reports an error, and what it does take has the very tree that sql.parse gives (`trees`, tested as a property).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import islice, repeat
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dibs.arrays import from_numpy, to_numpy
from dibs.jit.hashing import number_slices
from dibs.language.bulk_kernels import ReadLiterals, ReadPredicates, parse_texts
from dibs.language.expression import (
    And,
    Between,
    Compare,
    Expression,
    In,
    IsNull,
    Kind,
    Like,
    Literal,
    collection_paused,
)
from dibs.language.sql import KEYWORDS, MAX_TOKENS
from dibs.language.table import Facet, Op, PredicateTable, after_prefix
from dibs.thresholds import thresholds

COMPARISON_TEXT = {Op.EQ: "=", Op.NE: "<>", Op.LT: "<", Op.LE: "<=", Op.GT: ">", Op.GE: ">="}


@dataclass
class BulkParse:
    """`simple[i]`: text i was taken; the rows of `table` are those texts, in order."""

    simple: NDArray[np.bool_]
    table: PredicateTable

    def trees(self) -> list[Expression]:
        """The expressions of the rows."""
        t = self.table
        literals = self._literals()
        starts, rows = t.literal_offsets.tolist(), t.offsets.tolist()
        names = _choose([name for name, _ in t.attributes], t.attribute)
        operators = _choose([COMPARISON_TEXT.get(op, "") for op in Op], t.operator)
        first = _choose([*literals, None], t.literal_offsets[:-1])  # the last may be of a predicate without any
        new = tuple.__new__
        with collection_paused():
            nodes: list[Any] = list(map(new, repeat(Compare), zip(names, operators, first)))
            for op, negated in ((Op.BETWEEN, False), (Op.NOT_BETWEEN, True)):
                for p in np.flatnonzero(t.operator == op).tolist():
                    nodes[p] = new(Between, (names[p], literals[starts[p]], literals[starts[p] + 1], negated))
            for op, negated in ((Op.IN, False), (Op.NOT_IN, True)):
                for p in np.flatnonzero(t.operator == op).tolist():
                    nodes[p] = new(In, (names[p], tuple(literals[starts[p] : starts[p + 1]]), negated, False))
            for p in np.flatnonzero(t.operator == Op.WITHIN).tolist():
                nodes[p] = Like(names[p], first[p].value + "%")
            for op, negated in ((Op.IS_NULL, False), (Op.NOT_NULL, True)):
                for p in np.flatnonzero(t.operator == op).tolist():
                    nodes[p] = IsNull(names[p], negated)
            return [nodes[a] if b - a == 1 else new(And, (tuple(nodes[a:b]),)) for a, b in zip(rows, rows[1:])]

    def _literals(self) -> list[Literal]:
        """One object for each distinct literal, in as many places as it stands."""
        t = self.table

        def string(i: int) -> Literal:
            return Literal(Kind.STRING, t.texts[i].decode(errors="replace"))  # the end of a prefix is no UTF-8

        def boolean(x: int) -> Literal:
            return Literal(Kind.BOOLEAN, bool(x))

        def number(x: float) -> Literal:
            return Literal(Kind.NUMBER, x)

        is_string, is_boolean = t.kind == Kind.STRING, t.kind == Kind.BOOLEAN
        whole = is_string | (t.number == np.floor(t.number))
        value = np.where(is_string, 0, np.where(whole, t.number, 0)).astype(np.int64) + t.integer
        result = np.empty(len(value), object)
        for mask, column, make in (
            (is_string, value, string),
            (is_boolean, value, boolean),
            (whole & ~is_string & ~is_boolean, value, number),
            (~whole, t.number, number),
        ):
            encoded = from_numpy(column[mask]).dictionary_encode()
            made = np.empty(len(encoded.dictionary), object)
            made[:] = [make(x) for x in encoded.dictionary.to_pylist()]
            result[mask] = made[to_numpy(encoded.indices)]
        return result.tolist()


def _choose(items: list[Any], places: NDArray[Any]) -> list[Any]:
    """items[p] for each place p, without a Python step each."""
    column = np.empty(len(items), object)
    column[:] = items
    return column[places].tolist()


def parse_simple(texts: pa.Array) -> BulkParse:
    """Takes the simple conjunctions among the texts (a string array; a null is not simple)."""
    texts = texts.cast(pa.large_string()) if texts.type != pa.large_string() else texts
    texts = texts.fill_null("") if texts.null_count else texts  # an empty text is not simple
    sizes = pc.binary_length(texts)
    if len(texts) and pc.max(sizes).as_py() > MAX_TOKENS:  # it may be beyond the limits: sql.parse counts
        texts = pc.if_else(pc.greater(sizes, MAX_TOKENS), "", texts)
    names: dict[bytes, int] = {}
    strings: dict[bytes, int] = {}
    words: list[int] = []  # the numbers of names that SQL reads in its own way
    chunk = thresholds.texts_at_once
    starts = range(0, max(len(texts), 1), chunk)
    parts = [_parse_chunk(texts.slice(at, chunk), names, strings, words) for at in starts]
    simple, predicates, attribute, operator, counts, kind, number_column, integer = (
        parts[0] if len(parts) == 1 else (np.concatenate([p[i] for p in parts]) for i in range(8))
    )
    table = PredicateTable(
        offsets=_offsets(predicates),
        attribute=attribute,
        operator=operator,
        literal_offsets=_offsets(counts),
        kind=kind,
        number=number_column,
        integer=integer,
        attributes=[(n.decode(), Facet.VALUE) for n in names],
        texts=list(strings),
        conjunctions=len(predicates),
        on_true=np.empty(0, np.int32),
        on_false=np.empty(0, np.int32),
    )
    return BulkParse(simple, table)


def _offsets(counts: NDArray[Any]) -> NDArray[np.int64]:
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    return offsets


def _parse_chunk(
    texts: pa.Array, names: dict[bytes, int], strings: dict[bytes, int], words: list[int]
) -> tuple[NDArray[Any], ...]:
    n = len(texts)
    _, offsets_buffer, data_buffer = texts.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int64, n + 1, texts.offset * 8) if n else np.zeros(1, np.int64)
    data = np.frombuffer(data_buffer, np.uint8) if data_buffer is not None else np.empty(0, np.uint8)
    size = int(offsets[-1] - offsets[0])
    sizes = np.empty(n, np.int32)
    room = ReadPredicates.room(size // 3 + 1), ReadLiterals.room(size // 2 + 1)  # the fewest bytes that each takes
    predicates, literals = parse_texts(data, offsets, sizes, *room)
    (name_start, name_size, operator, counts), (kind, number_column, integer, string_size) = room
    known = len(names)
    attribute = _intern(data, name_start[:predicates], name_size[:predicates], names)
    is_string = kind[:literals] == Kind.STRING
    integer = integer[:literals].copy()
    integer[is_string] = _intern(data, integer[is_string], string_size[:literals][is_string], strings)
    operator, counts = operator[:predicates].copy(), counts[:predicates].copy()
    kind, number_column = kind[:literals].copy(), number_column[:literals].copy()
    words += [i for i, name in enumerate(islice(names, known, None), known) if plain_name(name) is None]
    if words:
        # Their texts go to the general lane.
        row = np.repeat(np.arange(n), sizes)
        bad = np.zeros(n, np.bool_)
        bad[row[np.isin(attribute, words)]] = True
        keep = ~bad[row]
        keep_literal = np.repeat(keep, counts)
        attribute, operator, counts = attribute[keep], operator[keep], counts[keep]
        kind, number_column, integer = kind[keep_literal], number_column[keep_literal], integer[keep_literal]
        sizes[bad] = 0
    prefixes = np.flatnonzero(operator == Op.WITHIN)
    if len(prefixes):
        # A prefix is the strings from itself up to the least string above all with it: one literal more.
        literal = (np.cumsum(counts) - counts)[prefixes]
        distinct, place = np.unique(integer[literal], return_inverse=True)
        known_texts = list(strings)
        above = [strings.setdefault(after_prefix(known_texts[i]), len(strings)) for i in distinct.tolist()]
        integer = np.insert(integer, literal + 1, np.array(above, np.int64)[place])
        kind = np.insert(kind, literal + 1, np.uint8(Kind.STRING))
        number_column = np.insert(number_column, literal + 1, 0.0)
        counts[prefixes] = 2
    simple = sizes > 0
    return simple, sizes[simple], attribute, operator, counts, kind, number_column, integer


@lru_cache(maxsize=1 << 16)  # the same names come again and again
def plain_name(name: bytes) -> str | None:
    """A name as a string; None for one that SQL reads in its own way."""
    text = name.decode()
    return None if any(part.upper() in KEYWORDS for part in text.split(".")) else text


def _intern(
    data: NDArray[np.uint8], start: NDArray[np.int64], size: NDArray[np.int32], known: dict[bytes, int]
) -> NDArray[np.int32]:
    """Numbers of the given slices in `known`, which grows."""
    local, first = number_slices(data, start, size)
    view = data.data
    starts = start[first]
    numbers = np.empty(len(first), np.int32)
    for i, (a, b) in enumerate(zip(starts.tolist(), (starts + size[first]).tolist())):
        numbers[i] = known.setdefault(bytes(view[a:b]), len(known))
    return numbers[local]
