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

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice, repeat
from typing import Any

import numpy as np
import pyarrow as pa
from numba import njit
from numpy.typing import NDArray

from dibs.language.expression import And, Between, Compare, Expression, In, IsNull, Kind, Like, Literal
from dibs.language.sql import KEYWORDS
from dibs.language.table import Facet, Op, PredicateTable, after_prefix

CHUNK = 1 << 17  # texts parsed by one call of the kernel
COMPARISON_TEXT = {Op.EQ: "=", Op.NE: "<>", Op.LT: "<", Op.LE: "<=", Op.GT: ">", Op.GE: ">="}

_EQ, _NE, _LT, _LE, _GT, _GE = (int(x) for x in (Op.EQ, Op.NE, Op.LT, Op.LE, Op.GT, Op.GE))
_BETWEEN, _NOT_BETWEEN, _IN, _NOT_IN = int(Op.BETWEEN), int(Op.NOT_BETWEEN), int(Op.IN), int(Op.NOT_IN)
_WITHIN, _IS_NULL, _NOT_NULL = int(Op.WITHIN), int(Op.IS_NULL), int(Op.NOT_NULL)
_AND, _BETWEEN_WORD, _IN_WORD, _NOT, _LIKE, _IS, _NULL, _TRUE, _FALSE = (
    np.frombuffer(word, np.uint8)
    for word in (b"and", b"between", b"in", b"not", b"like", b"is", b"null", b"true", b"false")
)
_NUMBER, _STRING, _BOOLEAN = int(Kind.NUMBER), int(Kind.STRING), int(Kind.BOOLEAN)


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
        names = _chosen([name for name, _ in t.attributes], t.attribute)
        operators = _chosen([COMPARISON_TEXT.get(op, "") for op in Op], t.operator)
        first = _chosen([*literals, None], t.literal_offsets[:-1])  # the last may be of a predicate without any
        new = tuple.__new__
        with collection_paused():
            nodes: list[Any] = list(map(new, repeat(Compare), zip(names, operators, first)))
            for op, negated in ((_BETWEEN, False), (_NOT_BETWEEN, True)):
                for p in np.flatnonzero(t.operator == op).tolist():
                    nodes[p] = new(Between, (names[p], literals[starts[p]], literals[starts[p] + 1], negated))
            for op, negated in ((_IN, False), (_NOT_IN, True)):
                for p in np.flatnonzero(t.operator == op).tolist():
                    nodes[p] = new(In, (names[p], tuple(literals[starts[p] : starts[p + 1]]), negated, False))
            for p in np.flatnonzero(t.operator == _WITHIN).tolist():
                nodes[p] = Like(names[p], first[p].value + "%")
            for op, negated in ((_IS_NULL, False), (_NOT_NULL, True)):
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

        is_string, is_boolean = t.kind == _STRING, t.kind == _BOOLEAN
        whole = is_string | (t.number == np.floor(t.number))
        value = np.where(is_string, 0, np.where(whole, t.number, 0)).astype(np.int64) + t.integer
        result = np.empty(len(value), object)
        for mask, column, make in (
            (is_string, value, string),
            (is_boolean, value, boolean),
            (whole & ~is_string & ~is_boolean, value, number),
            (~whole, t.number, number),
        ):
            encoded = pa.array(column[mask]).dictionary_encode()
            made = np.empty(len(encoded.dictionary), object)
            made[:] = [make(x) for x in encoded.dictionary.to_pylist()]
            result[mask] = made[encoded.indices.to_numpy()]
        return result.tolist()


def _chosen(items: list[Any], places: NDArray[Any]) -> list[Any]:
    """items[p] for each place p, without a Python step each."""
    column = np.empty(len(items), object)
    column[:] = items
    return column[places].tolist()


@contextmanager
def collection_paused() -> Iterator[None]:
    """Making millions of tuples would start the garbage collector again and again, and they hold no cycle."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def parse_simple(texts: pa.Array) -> BulkParse:
    """Takes the simple conjunctions among the texts (a string array; a null is not simple)."""
    texts = texts.cast(pa.large_string()) if texts.type != pa.large_string() else texts
    texts = texts.fill_null("")  # an empty text is not simple
    names: dict[bytes, int] = {}
    strings: dict[bytes, int] = {}
    words: list[int] = []  # the numbers of names that SQL reads in its own way
    starts = range(0, max(len(texts), 1), CHUNK)
    parts = [_parse_chunk(texts.slice(at, CHUNK), names, strings, words) for at in starts]
    simple, sizes, attribute, operator, counts, kind, number_column, integer = (
        np.concatenate([p[i] for p in parts]) for i in range(8)
    )
    table = PredicateTable(
        offsets=_offsets(sizes),
        attribute=attribute,
        operator=operator,
        literal_offsets=_offsets(counts),
        kind=kind,
        number=number_column,
        integer=integer,
        attributes=[(n.decode(), Facet.VALUE) for n in names],
        texts=list(strings),
        conjunctions=len(sizes),
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
    room = int(offsets[-1] - offsets[0]) // 3 + 1  # a predicate takes at least three bytes, a literal two
    sizes = np.empty(n, np.int32)
    name_start, name_size = np.empty(room, np.int64), np.empty(room, np.int32)
    operator, counts = np.empty(room, np.uint8), np.empty(room, np.int32)
    room = int(offsets[-1] - offsets[0]) // 2 + 1
    kind, number_column, integer = np.empty(room, np.uint8), np.empty(room, np.float64), np.empty(room, np.int64)
    string_size = np.empty(room, np.int32)
    predicates, literals = _parse_texts(
        data, offsets, sizes, name_start, name_size, operator, counts, kind, number_column, integer, string_size
    )
    known = len(names)
    attribute = _intern(data, name_start[:predicates], name_size[:predicates], names)
    is_string = kind[:literals] == _STRING
    integer = integer[:literals].copy()
    integer[is_string] = _intern(data, integer[is_string], string_size[:literals][is_string], strings)
    operator, counts = operator[:predicates].copy(), counts[:predicates].copy()
    kind, number_column = kind[:literals].copy(), number_column[:literals].copy()
    words += [i for i, name in enumerate(islice(names, known, None), known) if _is_sql_word(name)]
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
    prefixes = np.flatnonzero(operator == _WITHIN)
    if len(prefixes):
        # A prefix is the strings from itself up to the least string above all with it: one literal more.
        literal = (np.cumsum(counts) - counts)[prefixes]
        distinct, place = np.unique(integer[literal], return_inverse=True)
        known_texts = list(strings)
        above = [strings.setdefault(after_prefix(known_texts[i]), len(strings)) for i in distinct.tolist()]
        integer = np.insert(integer, literal + 1, np.array(above, np.int64)[place])
        kind = np.insert(kind, literal + 1, np.uint8(_STRING))
        number_column = np.insert(number_column, literal + 1, 0.0)
        counts[prefixes] = 2
    simple = sizes > 0
    return simple, sizes[simple], attribute, operator, counts, kind, number_column, integer


def _is_sql_word(name: bytes) -> bool:
    return any(part.upper() in KEYWORDS for part in name.decode().split("."))


def _intern(
    data: NDArray[np.uint8], start: NDArray[np.int64], size: NDArray[np.int32], known: dict[bytes, int]
) -> NDArray[np.int32]:
    """Numbers of the given slices in `known`, which grows."""
    slots = np.zeros(1 << max(4, int(2 * len(start)).bit_length()), np.int32)
    local = np.empty(len(start), np.int32)
    first = np.empty(len(start), np.int32)
    distinct = _number_slices(data, start, size, slots, local, first)
    view = data.data
    first = first[:distinct]
    starts = start[first]
    numbers = np.empty(distinct, np.int32)
    for i, (a, b) in enumerate(zip(starts.tolist(), (starts + size[first]).tolist())):
        numbers[i] = known.setdefault(bytes(view[a:b]), len(known))
    return numbers[local]


@njit(cache=True, nogil=True)
def _number_slices(data, start, size, slots, local, first):  # type: ignore[no-untyped-def]
    """Open addressing: slots hold 1 + the number of a distinct slice, 0 for empty."""
    mask = np.uint64(len(slots) - 1)
    distinct = 0
    for i in range(len(start)):
        a, n = start[i], size[i]
        h = np.uint64(14695981039346656037)
        for k in range(a, a + n):
            h = (h ^ np.uint64(data[k])) * np.uint64(1099511628211)
        h ^= h >> np.uint64(29)
        at = h & mask
        while True:
            s = slots[at]
            if s == 0:
                first[distinct] = i
                distinct += 1
                slots[at] = distinct
                local[i] = distinct - 1
                break
            j = first[s - 1]
            same = size[j] == n
            if same:
                b = start[j]
                for k in range(n):
                    if data[a + k] != data[b + k]:
                        same = False
                        break
            if same:
                local[i] = s - 1
                break
            at = (at + np.uint64(1)) & mask
    return distinct


@njit(cache=True, nogil=True, inline="always")
def _is_space(c):  # type: ignore[no-untyped-def]
    return c == 32 or c == 9 or c == 10 or c == 13


@njit(cache=True, nogil=True, inline="always")
def _is_letter(c):  # type: ignore[no-untyped-def]
    return (c >= 65 and c <= 90) or (c >= 97 and c <= 122)


@njit(cache=True, nogil=True, inline="always")
def _is_digit(c):  # type: ignore[no-untyped-def]
    return c >= 48 and c <= 57


@njit(cache=True, nogil=True)
def _skip_space(data, at, end):  # type: ignore[no-untyped-def]
    while at < end and _is_space(data[at]):
        at += 1
    return at


@njit(cache=True, nogil=True)
def _name_end(data, at, end):  # type: ignore[no-untyped-def]
    """One past a plain or dotted name of ASCII letters, digits and underscores; -1 where there is none."""
    while True:
        if at >= end or not _is_letter(data[at]):
            return -1
        while at < end and (_is_letter(data[at]) or _is_digit(data[at]) or data[at] == 95):
            at += 1
        if at >= end or data[at] != 46:
            return at
        at += 1


@njit(cache=True, nogil=True)
def _letters(data, at, end, word):  # type: ignore[no-untyped-def]
    """Whether the word (lower case) stands here in any case, and no letter, digit or underscore follows."""
    if at + len(word) > end:
        return False
    for k in range(len(word)):
        if (data[at + k] | 32) != word[k]:
            return False
    at += len(word)
    return at == end or not (_is_letter(data[at]) or _is_digit(data[at]) or data[at] == 95)


@njit(cache=True, nogil=True)
def _literal(data, at, end, i, kind, number_column, integer, string_size):  # type: ignore[no-untyped-def]
    """Reads literal number i; returns one past it, or -1. What follows must be a space, a comma, ')' or the end."""
    if at >= end:
        return -1
    if data[at] == 39:
        at += 1
        start = at
        while at < end and data[at] != 39:
            if data[at] == 92 or data[at] < 32:
                return -1
            at += 1
        if at >= end:
            return -1
        kind[i] = _STRING
        number_column[i] = 0.0
        integer[i] = start
        string_size[i] = at - start
        at += 1
    elif _letters(data, at, end, _TRUE) or _letters(data, at, end, _FALSE):
        truth = (data[at] | 32) == 116
        kind[i] = _BOOLEAN
        number_column[i] = 0.0
        integer[i] = 1 if truth else 0
        string_size[i] = 0
        at += 4 if truth else 5
    else:
        negative = data[at] == 45
        if negative:
            at += 1
        value, digits, fraction = np.int64(0), 0, 0
        start = at
        while at < end and _is_digit(data[at]):
            value = value * 10 + np.int64(data[at] - 48)
            digits += 1
            at += 1
            if digits > 18:
                return -1
        if at == start:
            return -1
        if at < end and data[at] == 46:
            at += 1
            start = at
            while at < end and _is_digit(data[at]):
                value = value * 10 + np.int64(data[at] - 48)
                digits += 1
                fraction += 1
                at += 1
                if digits > 15:
                    return -1
            if at == start:
                return -1
        if negative:
            value = -value
        scale = np.int64(1)
        for _ in range(fraction):
            scale *= 10
        kind[i] = _NUMBER
        if value % scale == 0:
            value //= scale
            near = np.float64(value)
            number_column[i] = near
            integer[i] = value - np.int64(near)
        else:
            # Both are below 2**53, so they are exact and the quotient is the nearest float64 of the decimal.
            number_column[i] = np.float64(value) / np.float64(scale)
            integer[i] = 0
        string_size[i] = 0
    if at < end and not (_is_space(data[at]) or data[at] == 44 or data[at] == 41):
        return -1
    return at


@njit(cache=True, nogil=True)
def _parse_text(  # type: ignore[no-untyped-def]
    data, at, end, p, i, name_start, name_size, operator, counts, kind, number_column, integer, string_size
):
    """Reads one text into predicates from p and literals from i on; returns the next p and i, or (-1, -1)."""
    while True:
        at = _skip_space(data, at, end)
        name_start[p] = at
        after = _name_end(data, at, end)
        if after < 0:
            return -1, -1
        name_size[p] = after - at
        at = _skip_space(data, after, end)
        if at + 1 >= end:
            return -1, -1
        c, d = data[at], data[at + 1]
        count, closed = 1, False
        if c == 61:  # =
            operator[p] = _EQ
            at += 2 if d == 61 else 1
        elif c == 60:  # <
            operator[p] = _LE if d == 61 else (_NE if d == 62 else _LT)
            at += 2 if d == 61 or d == 62 else 1
        elif c == 62:  # >
            operator[p] = _GE if d == 61 else _GT
            at += 2 if d == 61 else 1
        elif c == 33 and d == 61:  # !=
            operator[p] = _NE
            at += 2
        elif at == after:
            return -1, -1
        else:
            negated = _letters(data, at, end, _NOT)
            if negated:
                at = _skip_space(data, at + 3, end)
            if _letters(data, at, end, _BETWEEN_WORD):
                operator[p] = _NOT_BETWEEN if negated else _BETWEEN
                at = _skip_space(data, at + 7, end)
                at = _literal(data, at, end, i, kind, number_column, integer, string_size)
                if at < 0 or at >= end or not _is_space(data[at]):
                    return -1, -1
                at = _skip_space(data, at, end)
                if not _letters(data, at, end, _AND):
                    return -1, -1
                at += 3
                i += 1
                count = 2
            elif _letters(data, at, end, _IN_WORD):
                operator[p] = _NOT_IN if negated else _IN
                at = _skip_space(data, at + 2, end)
                if at >= end or data[at] != 40:
                    return -1, -1
                at += 1
                while True:
                    at = _skip_space(data, at, end)
                    at = _literal(data, at, end, i, kind, number_column, integer, string_size)
                    if at < 0:
                        return -1, -1
                    if negated and kind[i] != kind[i - count + 1]:
                        return -1, -1  # of two kinds: never holds
                    at = _skip_space(data, at, end)
                    if at >= end or (data[at] != 44 and data[at] != 41):
                        return -1, -1
                    if data[at] == 41:
                        break
                    at += 1
                    i += 1
                    count += 1
                at += 1
                closed = True
            elif _letters(data, at, end, _LIKE) and not negated:
                operator[p] = _WITHIN
                at = _skip_space(data, at + 4, end)
                at = _literal(data, at, end, i, kind, number_column, integer, string_size)
                if at < 0 or kind[i] != _STRING:
                    return -1, -1
                size = string_size[i] - 1  # without the % at the end, the only wildcard
                if size < 1 or data[integer[i] + size] != 37:
                    return -1, -1
                for k in range(integer[i], integer[i] + size):
                    if data[k] == 37 or data[k] == 95:
                        return -1, -1
                string_size[i] = size
                closed = True
            elif _letters(data, at, end, _IS) and not negated:
                at = _skip_space(data, at + 2, end)
                operator[p] = _IS_NULL
                if _letters(data, at, end, _NOT):
                    operator[p] = _NOT_NULL
                    at = _skip_space(data, at + 3, end)
                if not _letters(data, at, end, _NULL):
                    return -1, -1
                at += 4
                count = 0
                closed = True
            else:
                return -1, -1
        if not closed:
            at = _skip_space(data, at, end)
            at = _literal(data, at, end, i, kind, number_column, integer, string_size)
            if at < 0:
                return -1, -1
        counts[p] = count
        i += min(count, 1)
        p += 1
        after = at
        at = _skip_space(data, at, end)
        if at >= end:
            return p, i
        if at == after or not _letters(data, at, end, _AND):
            return -1, -1
        at += 3


@njit(cache=True, nogil=True)
def _parse_texts(  # type: ignore[no-untyped-def]
    data, offsets, sizes, name_start, name_size, operator, counts, kind, number_column, integer, string_size
):
    p, i = 0, 0
    for t in range(len(offsets) - 1):
        next_p, next_i = _parse_text(
            data,
            offsets[t],
            offsets[t + 1],
            p,
            i,
            name_start,
            name_size,
            operator,
            counts,
            kind,
            number_column,
            integer,
            string_size,
        )
        if next_p < 0:
            sizes[t] = 0
        else:
            sizes[t] = next_p - p
            p, i = next_p, next_i
    return p, i
