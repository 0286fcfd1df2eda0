"""Keys: numbers that are the same for equal values of the same attribute of documents.

Values that differ may have the same key: then a partition has documents that nobody asks for, which changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dibs.coding.values import EventValues, Names
from dibs.history.keys import BOOLEAN, NUMBER, STRING, TIME
from dibs.spark.joins.keys import Pair

EVERY = np.int64(0x6469_6273)  # the key of all documents, for joins that speak of every one

_ODD = np.uint64(0x9E3779B97F4A7C15)
_OTHER = np.uint64(0xC2B2AE3D27D4EB4F)


def hash_documents(values: EventValues, attributes: Sequence[str], every: bool) -> pa.ListArray:
    """The keys of each document, none twice. every: EVERY is one of each."""
    event, key = _hash(values, [Pair(name, name) for name in attributes])
    if every:
        event = np.append(event, np.arange(values.events))
        key = np.append(key, np.full(values.events, EVERY))
    return _as_lists(event, key, values.events)


def hash_events(values: EventValues, pairs: Sequence[Pair]) -> pa.ListArray:
    """The keys of documents that each event asks for, none twice; those of the first pair stand first."""
    return _as_lists(*_hash(values, pairs), values.events)


def _hash(values: EventValues, pairs: Sequence[Pair]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(event, key), by event and pair."""
    codes = names.codes if isinstance(names := values.names, Names) else Names(names).codes
    events, places, keys = [np.empty(0, np.int64)], [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for kind, event, name, bits in _bits(values):
        for number, pair in enumerate(pairs):
            own = np.flatnonzero(name == codes.get(pair.event, -1))
            events.append(event[own].astype(np.int64))
            places.append(np.full(len(own), number))
            keys.append(_mix(bits[own] ^ _tag(pair.document, kind)))
    event, place, key = map(np.concatenate, (events, places, keys))
    order = np.lexsort((place, event))
    return event[order], key[order]


def _bits(values: EventValues) -> list[tuple[int, Any, Any, NDArray[np.uint64]]]:
    """(kind, event, name, 64 bits that equal values have in common) of each kind of values."""
    n, s, t, b = values.numbers, values.strings, values.times, values.booleans
    numbers = _mix(n.value.view(np.uint64)).view(np.uint64) ^ n.rest.astype(np.int64).view(np.uint64)
    return [
        (NUMBER, n.event, n.name, numbers),
        (STRING, s.event, s.name, _hash_texts(s.offsets, s.data)),
        (TIME, t.event, t.name, np.ascontiguousarray(t.microseconds).view(np.uint64)),
        (BOOLEAN, b.event, b.name, b.value.astype(np.uint64)),
    ]


def _hash_texts(offsets: NDArray[np.int64], data: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Each distinct text is looked at once."""
    if len(offsets) < 2:
        return np.empty(0, np.uint64)
    buffers = [None, pa.py_buffer(np.ascontiguousarray(offsets)), pa.py_buffer(np.ascontiguousarray(data))]
    texts = pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, buffers).dictionary_encode()
    hashes = np.array([_number(text) for text in texts.dictionary.to_pylist()], np.uint64)
    return hashes[texts.indices.to_numpy()]


def _number(text: bytes) -> int:
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "little")


@lru_cache(4_096)
def _tag(attribute: str, kind: int) -> np.uint64:
    return np.uint64(_number(f"{kind} {attribute}".encode()))


def _mix(bits: NDArray[np.uint64]) -> NDArray[np.int64]:
    bits = (bits ^ (bits >> np.uint64(31))) * _ODD
    bits = (bits ^ (bits >> np.uint64(29))) * _OTHER
    return (bits ^ (bits >> np.uint64(32))).view(np.int64)


def _as_lists(event: NDArray[np.int64], key: NDArray[np.int64], events: int) -> pa.ListArray:
    """Lists by event in the given order, without repeats. event: in any order."""
    order = np.argsort(event, kind="stable")
    event, key = event[order], key[order]
    by_key = np.lexsort((key, event))  # stable: of equal ones the first stands first
    repeats = np.zeros(len(key), np.bool_)
    same = (np.diff(event[by_key]) == 0) & (np.diff(key[by_key]) == 0)
    repeats[by_key[1:][same]] = True
    event, key = event[~repeats], key[~repeats]
    offsets = np.zeros(events + 1, np.int32)
    np.cumsum(np.bincount(event, minlength=events), out=offsets[1:])
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(key, pa.int64()))
