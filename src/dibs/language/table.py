"""Normal forms of many subscriptions as flat columns: what the language stage hands to the coding stage.

A row is a subscription and owns a run of predicates; a predicate owns a run of literals. Rows [0, conjunctions) are
plain conjunctions: they hold when all their predicates hold (with none: always). The other rows are programs of
forward jumps, the whole of AND and OR without a tree: evaluation starts at the row's first predicate and goes on at
`on_true` or `on_false`, which number a later predicate of the row (from 0), ACCEPT or REJECT. A program has just the
predicates of its expression, so nothing ever explodes.

A predicate speaks of (attribute, facet): the value itself, or something derived from a string (see Facet).
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

ACCEPT, REJECT = -1, -2


class Facet(enum.IntEnum):
    """What of an attribute a predicate looks at."""

    VALUE = 0  # the value
    REVERSED = 1  # a string's bytes in reverse order: a suffix becomes a prefix
    PATTERN = 2  # the patterns that a string satisfies, as values
    NO_PATTERN = 3  # the patterns that a string does not satisfy, as values

    __hash__ = int.__hash__  # Enum's own is ten times as slow, and attributes are looked up by the thousand


class Op(enum.IntEnum):
    """Tests of a predicate, with the number of its literals."""

    EQ = 0  # 1
    NE = 1  # 1
    LT = 2  # 1
    LE = 3  # 1
    GT = 4  # 1
    GE = 5  # 1
    BETWEEN = 6  # 2
    NOT_BETWEEN = 7  # 2
    IN = 8  # any
    NOT_IN = 9  # any
    WITHIN = 10  # 2: first <= value < second (prefixes)
    NOT_WITHIN = 11  # 2
    STRING = 12  # 0: any string
    IS_NULL = 13  # 0
    NOT_NULL = 14  # 0
    PATTERN = 15  # 1, the pattern's text; on the facets PATTERN and NO_PATTERN only
    NEVER = 16  # 0


Attribute = tuple[str, Facet]


def after_prefix(prefix: bytes) -> bytes:
    """The least byte string above all that start with the prefix. (No byte of UTF-8 is 0xFF: it can be counted up.)"""
    return prefix[:-1] + bytes([prefix[-1] + 1])


@dataclass
class PredicateTable:
    """See above. L literals: number rows carry (number, integer = rest) as in coding.values; string rows
    integer = index into texts; time rows integer = microseconds since 1970 UTC; boolean rows integer = 0 or 1."""

    offsets: NDArray[np.int64]  # rows + 1
    attribute: NDArray[np.int32]  # P, into attributes
    operator: NDArray[np.uint8]  # P
    literal_offsets: NDArray[np.int64]  # P + 1
    kind: NDArray[np.uint8]  # L, a Kind
    number: NDArray[np.float64]  # L
    integer: NDArray[np.int64]  # L
    attributes: list[Attribute]  # none twice
    texts: list[bytes]  # none twice
    conjunctions: int
    on_true: NDArray[np.int32]  # one for each predicate from offsets[conjunctions] on
    on_false: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.offsets) - 1


def concatenate(tables: Sequence[PredicateTable]) -> PredicateTable:
    """One table of all rows in order; only the last one may hold programs."""
    assert all(t.conjunctions == len(t) for t in tables[:-1]), "programs must come last"
    tables = [t for t in tables if len(t) or t.attributes] or tables[:1]
    if len(tables) == 1:
        return tables[0]
    first = tables[0]
    attributes = {a: i for i, a in enumerate(first.attributes)}
    texts = {t: i for i, t in enumerate(first.texts)}
    attribute, integer = [first.attribute], [first.integer]
    for t in tables[1:]:
        to_attribute = _intern(t.attributes, attributes)
        to_text = _intern(t.texts, texts)
        attribute.append(to_attribute[t.attribute].astype(np.int32))
        moved = t.integer.copy()
        strings = t.kind == 2
        moved[strings] = to_text[moved[strings]]
        integer.append(moved)
    return PredicateTable(
        offsets=_join_offsets([t.offsets for t in tables]),
        attribute=np.concatenate(attribute),
        operator=np.concatenate([t.operator for t in tables]),
        literal_offsets=_join_offsets([t.literal_offsets for t in tables]),
        kind=np.concatenate([t.kind for t in tables]),
        number=np.concatenate([t.number for t in tables]),
        integer=np.concatenate(integer),
        attributes=list(attributes),
        texts=list(texts),
        conjunctions=sum(t.conjunctions for t in tables),
        on_true=tables[-1].on_true,
        on_false=tables[-1].on_false,
    )


def _intern(items: Iterable[Any], known: dict[Any, int]) -> NDArray[np.int64]:
    return np.fromiter((known.setdefault(x, len(known)) for x in items), np.int64)


def _join_offsets(parts: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    shifted, base = [np.zeros(1, np.int64)], 0
    for p in parts:
        shifted.append(p[1:] + base)
        base += int(p[-1])
    return np.concatenate(shifted)
