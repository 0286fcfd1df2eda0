"""Normal forms of many subscriptions as flat columns: what the language stage hands to the coding stage.

A row is a subscription and owns a run of predicates; a predicate owns a run of literals. Rows [0, conjunctions) are
plain conjunctions: they hold when all their predicates hold (with none: always). The other rows are programs of
forward jumps, the whole of AND and OR without a tree: evaluation starts at the row's first predicate and goes on at
`on_true` or `on_false`, which number a later predicate of the row (from 0), ACCEPT or REJECT. A program has just the
predicates of its expression, so nothing ever explodes.

A predicate speaks of (attribute, facet): the value itself, or something derived from a string (see Facet). One whose
literals are times speaks of TIME, so that what others ask of the value does not change by it.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

ACCEPT, REJECT = -1, -2
# What texts mean, and how it is compiled. In 1, no string was ever read as a time; in 2, all tests of computed values
# were predicates of their own. Compiled segments carry it (storage.store).
LANGUAGE = 3


class Facet(enum.IntEnum):
    """What of an attribute a predicate looks at."""

    VALUE = 0  # the value
    REVERSED = 1  # a string's bytes in reverse order: a suffix becomes a prefix
    PATTERN = 2  # the patterns that a string satisfies, as values
    NO_PATTERN = 3  # the patterns that a string does not satisfy, as values
    TIME = 4  # a time, also one that a string reads as (language.literals.time_of); other values are none

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
    """One table of all rows: the conjunctions of all tables in order, then their programs."""
    tables = [t for t in tables if len(t) or t.attributes] or tables[:1]
    if len(tables) == 1:
        return tables[0]
    attributes: dict[Attribute, int] = {}
    texts: dict[bytes, int] = {}
    attribute, integer = [], []
    for t in tables:
        attribute.append(_intern(t.attributes, attributes).astype(np.int32)[t.attribute])
        moved = t.integer.copy()
        strings = t.kind == 2
        moved[strings] = _intern(t.texts, texts)[moved[strings]]
        integer.append(moved)

    def rows(programs: bool) -> list[tuple[int, slice, slice, slice]]:
        """Of each table: its number, and its rows of that kind, their predicates and literals."""
        found = []
        for number, t in enumerate(tables):
            row = slice(t.conjunctions, len(t)) if programs else slice(0, t.conjunctions)
            step = slice(int(t.offsets[row.start]), int(t.offsets[row.stop]))
            found.append((number, row, step, slice(*t.literal_offsets[[step.start, step.stop]].tolist())))
        return found

    parts = rows(False) + rows(True)
    return PredicateTable(
        offsets=_offsets([np.diff(tables[n].offsets)[row] for n, row, _, _ in parts]),
        attribute=np.concatenate([attribute[n][step] for n, _, step, _ in parts]),
        operator=np.concatenate([tables[n].operator[step] for n, _, step, _ in parts]),
        literal_offsets=_offsets([np.diff(tables[n].literal_offsets)[step] for n, _, step, _ in parts]),
        kind=np.concatenate([tables[n].kind[own] for n, _, _, own in parts]),
        number=np.concatenate([tables[n].number[own] for n, _, _, own in parts]),
        integer=np.concatenate([integer[n][own] for n, _, _, own in parts]),
        attributes=list(attributes),
        texts=list(texts),
        conjunctions=sum(t.conjunctions for t in tables),
        on_true=np.concatenate([t.on_true for t in tables]),
        on_false=np.concatenate([t.on_false for t in tables]),
    )


def _intern(items: Iterable[Any], known: dict[Any, int]) -> NDArray[np.int64]:
    return np.fromiter((known.setdefault(x, len(known)) for x in items), np.int64)


def _offsets(counts: list[NDArray[Any]]) -> NDArray[np.int64]:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(np.concatenate(counts), dtype=np.int64)])
