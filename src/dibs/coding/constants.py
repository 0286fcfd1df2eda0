"""From a table of predicates to its domains: all constants, sorted, by attribute."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dibs.coding.constant_kernels import lay_out
from dibs.coding.domain import Domains
from dibs.language.table import Attribute, PredicateTable


def domains_of(table: PredicateTable) -> tuple[Domains, NDArray[np.int32], NDArray[np.int32]]:
    """The domains of a table, the number in them of each predicate's attribute, and the cell of each literal."""
    attributes, attribute = _in_order(table.attributes, table.attribute)
    facet = np.frombuffer(bytearray([f for _, f in attributes]), np.uint8)
    *constants, cell = lay_out(
        attribute, table.literal_offsets, table.kind, table.number, table.integer, facet, *_store(table.texts)
    )
    return Domains(attributes, facet, *constants), attribute, cell


def _in_order(attributes: list[Attribute], attribute: NDArray[np.int32]) -> tuple[list[Attribute], NDArray[np.int32]]:
    """The attributes sorted, and the given ones with their new numbers."""
    order = sorted(range(len(attributes)), key=attributes.__getitem__)
    if order == list(range(len(order))):
        return attributes, attribute
    number = np.empty(len(order), np.int32)
    number[order] = np.arange(len(order), dtype=np.int32)
    return [attributes[i] for i in order], number[attribute]


def _store(texts: Sequence[bytes]) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """(starts, bytes) of all texts."""
    starts = np.zeros(len(texts) + 1, np.int64)
    if texts:
        np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)), out=starts[1:])
    return starts, np.frombuffer(bytearray().join(texts), np.uint8)
