"""The bytes of the catalog: keys, records, the blocks of the change log, and the state; each with its checksum.

    subscriptions   key: 1 and the integer (8 bytes, big-endian, sign flipped); or 2 and the string (UTF-8). So integers
                    come first, and both kinds are in order. LMDB's keys have at most 511 bytes: the key of a string
                    longer than LONG bytes is 2, its first 478 bytes and its hash (32 bytes); such keys have 511 bytes,
                    others never. Long strings that begin with the same 478 bytes are in the order of their hashes.
                    record: checksum u64, version u64, time i64, weight f64; of a long id its size u32 and the id; then
                    the text (UTF-8)
    changes         key: the version of its first change (8 bytes, big-endian)
                    block: checksum u64, number of changes u32, then a change after the other: a byte, INTEGER or
                    STRING, REMOVED added when it is a removal; the integer as above, or size u32 and the string
    about           key: STATE; record: see State

All numbers are little-endian where nothing else is said. A checksum is over the key and what follows the checksum, so a
record at another's place is found too. The state holds the sum (mod 2**64) of all records' checksums and of all
blocks': a record that is missing, or came back, is found by that.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from dibs.segments.ids import Id

INTEGER, STRING = 1, 2  # the first byte of keys, and of changes in the log
REMOVED = 0x80
LONG = 480  # bytes of a string: longer ones are keyed by their beginning and hash
BEGINNING = 478  # bytes of a long string in its key
LONG_KEY = 511
FORMAT = 1
STATE = b"state"
SUBSCRIPTIONS, CHANGES, ABOUT = b"subscriptions", b"changes", b"about"  # the databases
RECORD_HEAD = struct.Struct("<QQqd")
BLOCK_HEAD = struct.Struct("<QI")
BLOCK_LIMIT = 2016  # bytes of a block: two fit a page of 4096; only a change that is larger by itself exceeds it
SIGN = 1 << 63
MASK = (1 << 64) - 1
SEED, MULTIPLIER = np.uint64(0x2545F4914F6CDD1D), np.uint64(0xDA942042E4DD58B5)


class Entry(NamedTuple):
    """A subscription of the catalog."""

    id: Id
    text: str
    weight: float
    version: int  # of the change that put it there
    time: int  # of that change: UTC microseconds


class Change(NamedTuple):
    """One change of the log."""

    version: int
    id: Id
    removed: bool


class State(NamedTuple):
    """What `about` says of the whole catalog."""

    identity: bytes
    transaction: int  # LMDB's number of the transaction that wrote this
    version: int  # of the last change
    trimmed: int  # the changes up to this one are no longer in the log
    time: int  # the latest that was given to a change
    entries: int  # subscriptions
    entries_sum: int  # of the checksums of their records
    blocks: int  # of the log
    blocks_sum: int


STATE_RECORD = struct.Struct("<QI16sQQQqQQQQ")  # checksum, format, then the fields of State


@intrinsic
def load64(typingctx, array, at):  # type: ignore[no-untyped-def]
    """The 64 bits at byte `at` of a byte array, wherever that is."""

    def code(context, builder, signature, args):  # type: ignore[no-untyped-def]
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        pointer = builder.bitcast(builder.gep(data, [args[1]]), ir.IntType(64).as_pointer())
        return builder.load(pointer, align=1)

    return types.uint64(array, types.int64), code


@njit(cache=True, nogil=True, inline="always")
def _step(h, word):  # type: ignore[no-untyped-def]
    h = (h ^ word) * MULTIPLIER
    return h ^ (h >> np.uint64(32))


@njit(cache=True, nogil=True)
def hashed(data, start, size, seed):  # type: ignore[no-untyped-def]
    """A hash of data[start : start + size]. Each step is bijective in the hash and in the word: a difference within
    one word of 8 bytes is always seen, any other goes unseen about once in 2**64 times."""
    h = seed ^ (np.uint64(size) * np.uint64(0x9E3779B97F4A7C15))
    end = start + (size & ~7)
    for i in range(start, end, 8):
        h = _step(h, load64(data, i))
    word = np.uint64(0)
    for k in range(start + size - end):
        word |= np.uint64(data[end + k]) << np.uint64(8 * k)
    return _step(_step(h, word), np.uint64(size))


@njit(cache=True, nogil=True)
def sealed(data, key, key_size, body, body_size):  # type: ignore[no-untyped-def]
    """The checksum of a key and a body (what follows the checksum), both in `data`."""
    return hashed(data, body, body_size, hashed(data, key, key_size, SEED))


def checksum(key: bytes, body: bytes) -> int:
    both = np.frombuffer(key + body, np.uint8)
    return int(sealed(both, 0, len(key), len(key), len(body)))


def _with_checksum(key: bytes, body: bytes) -> bytes:
    return checksum(key, body).to_bytes(8, "little") + body


def _is_whole(key: bytes, record: bytes, head: int) -> bool:
    return len(record) >= head and int.from_bytes(record[:8], "little") == checksum(key, record[8:])


def encoded_id(id: Id) -> bytes:
    """The kind of the id, and the id."""
    if isinstance(id, str):
        return b"\x02" + id.encode()
    return b"\x01" + (id + SIGN).to_bytes(8, "big")


def decoded_id(encoded: bytes) -> Id:
    if encoded[0] == INTEGER:
        return int.from_bytes(encoded[1:9], "big") - SIGN
    return encoded[1:].decode()


def key_of(id: Id) -> bytes:
    whole = encoded_id(id)
    if len(whole) <= LONG + 1:
        return whole
    return whole[: BEGINNING + 1] + blake2b(whole[1:], digest_size=32).digest()


def record_of(key: bytes, id: Id, text: str, weight: float, version: int, time: int) -> bytes:
    parts = [RECORD_HEAD.pack(0, version, time, weight)[8:]]
    if len(key) == LONG_KEY:
        assert isinstance(id, str)
        whole = id.encode()
        parts += [len(whole).to_bytes(4, "little"), whole]
    parts.append(text.encode())
    return _with_checksum(key, b"".join(parts))


def entry_of(key: bytes, record: bytes) -> Entry | None:
    """The entry of a record; None if the checksum is wrong."""
    if not _is_whole(key, record, RECORD_HEAD.size):
        return None
    _, version, time, weight = RECORD_HEAD.unpack_from(record)
    start, id = RECORD_HEAD.size, key
    if len(key) == LONG_KEY:
        size = int.from_bytes(record[start : start + 4], "little")
        id = b"\x02" + record[start + 4 : start + 4 + size]
        start += 4 + size
    return Entry(decoded_id(id), record[start:].decode(), weight, version, time)


def version_key(version: int) -> bytes:
    return version.to_bytes(8, "big")


def blocks_of(ids: Iterable[tuple[Id, bool]], version: int) -> Iterator[tuple[bytes, bytes]]:
    """(key, block) of changes, of which the first has this version."""
    held: list[bytes] = []
    size = BLOCK_HEAD.size
    for id, removed in ids:
        whole = encoded_id(id)
        if whole[0] == STRING:
            whole = b"\x02" + (len(whole) - 1).to_bytes(4, "little") + whole[1:]
        if removed:
            whole = bytes([whole[0] | REMOVED]) + whole[1:]
        if held and size + len(whole) > BLOCK_LIMIT:
            yield _block(held, version)
            version += len(held)
            held, size = [], BLOCK_HEAD.size
        held.append(whole)
        size += len(whole)
    if held:
        yield _block(held, version)


def _block(changes: list[bytes], version: int) -> tuple[bytes, bytes]:
    key = version_key(version)
    return key, _with_checksum(key, len(changes).to_bytes(4, "little") + b"".join(changes))


def changes_of(key: bytes, block: bytes) -> list[Change] | None:
    """The changes of a block; None if the checksum is wrong."""
    if not _is_whole(key, block, BLOCK_HEAD.size):
        return None
    version, at, result = int.from_bytes(key, "big"), BLOCK_HEAD.size, []
    for i in range(int.from_bytes(block[8:12], "little")):
        kind, at = block[at], at + 1
        id: Id
        if kind & ~REMOVED == INTEGER:
            id, at = int.from_bytes(block[at : at + 8], "big") - SIGN, at + 8
        else:
            size, at = int.from_bytes(block[at : at + 4], "little"), at + 4
            id, at = block[at : at + size].decode(), at + size
        result.append(Change(version + i, id, kind & REMOVED != 0))
    return result


def block_count(block: bytes) -> int:
    """How many changes a block has."""
    return int.from_bytes(block[8:12], "little")


def sum_of(record: bytes) -> int:
    """What a record or block adds to the sum of all."""
    return int.from_bytes(record[:8], "little")


def state_record(state: State) -> bytes:
    return _with_checksum(STATE, STATE_RECORD.pack(0, FORMAT, *state)[8:])


def format_of(record: bytes) -> int | None:
    """The format; None if the checksum is wrong. A later format keeps the first two fields and the checksum."""
    return int.from_bytes(record[8:12], "little") if _is_whole(STATE, record, 12) else None


def state_of(record: bytes) -> State:
    fields: tuple[Any, ...] = STATE_RECORD.unpack(record)
    return State(*fields[2:])
