"""Simple conjunctions one by one: a text is read when it comes, and put into a table with others when they are matched.

This is the fast lane (language.bulk) for a matcher that changes while it matches: the same few texts are compiled again
and again, so what was read of each is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from dibs.language.bulk import plain_name
from dibs.language.row_kernels import ABOVE, pack_text, unpack_rows
from dibs.language.sql import MAX_TOKENS
from dibs.language.table import Attribute, Facet, PredicateTable, after_prefix


class SimpleRow(NamedTuple):
    """A text that the fast lane has read."""

    names: tuple[str, ...]  # of each predicate
    packed: bytes  # see language.row_kernels
    strings: tuple[bytes, ...]  # of the literals that are strings, in order


def read_simple(text: str) -> SimpleRow | None:
    """The row of a text, or None for one that the fast lane leaves alone: a few microseconds, where making its tree
    takes a hundred."""
    data = text.encode()
    if len(data) > MAX_TOKENS:  # it may be beyond the limits: sql.parse counts
        return None
    packed, slices = pack_text(np.frombuffer(data, np.uint8))
    if not len(packed):
        return None
    cuts = slices.tolist()
    ends = 2 * int(packed[0])
    names = [plain_name(data[a:b]) for a, b in zip(cuts[:ends:2], cuts[1:ends:2])]
    if None in names:
        return None
    strings: list[bytes] = []
    for a, b in zip(cuts[ends::2], cuts[ends + 1 :: 2]):
        strings.append(after_prefix(strings[-1]) if b == ABOVE else data[a:b])
    return SimpleRow(tuple(names), packed.tobytes(), tuple(strings))  # type: ignore[arg-type]


def rows_table(rows: Sequence[SimpleRow]) -> PredicateTable:
    """The table of the rows. Its attributes are sorted, as the coding stage wants them."""
    names = [name for row in rows for name in row.names]
    strings = list(chain.from_iterable([row.strings for row in rows]))
    known = {name: i for i, name in enumerate(sorted(set(names)))}
    texts = {text: i for i, text in enumerate(dict.fromkeys(strings))}
    packed = np.frombuffer(b"".join([row.packed for row in rows]), np.int64)
    offsets, operator, literal_offsets, kind, number, integer = unpack_rows(
        packed, len(rows), np.array([texts[s] for s in strings], np.int32)
    )
    value = Facet.VALUE
    attributes: list[Attribute] = [(name, value) for name in known]
    return PredicateTable(
        offsets=offsets,
        attribute=np.array([known[name] for name in names], np.int32),
        operator=operator,
        literal_offsets=literal_offsets,
        kind=kind,
        number=number,
        integer=integer,
        attributes=attributes,
        texts=list(texts),
        conjunctions=len(rows),
        on_true=np.empty(0, np.int32),
        on_false=np.empty(0, np.int32),
    )
