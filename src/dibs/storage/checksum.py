"""A checksum of 64 bits, as fast as the memory gives the bytes: is a file still as it was written?

It finds damage, not forgery. The bytes are taken as little-endian words of 64 bits. A step takes a word into a lane:

    lane = turn(lane ^ word, 29 bits to the left) * MULTIPLIER        mod 2**64; the multiplier is odd

Words go to eight lanes in turn (a multiplication takes several cycles, but one can start in each), as long as there
are eight more; then the lanes, the other words and the bytes that fill no word are taken one after the other into a
lane that started as the number of bytes, and the result is mixed once more. Of contents longer than PIECE the checksum
is that of the checksums of its pieces, so that several cores share the work.

A step is bijective in the lane and in the word, and so is all that follows: if one word of the input differs, in any
number of bits, the checksum always differs. Any other difference goes unseen about once in 2**64 times.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from dibs.jit.kernel import kernel

MULTIPLIER = np.uint64(0x9E6C63D0876A9A47)
LAST_MULTIPLIER = np.uint64(0xD1B54A32D192ED03)
LANES = 8
PIECE = 1 << 22  # bytes
THREADS = 8  # at most: a few cores use up what the memory gives
WORTH_THREADS = 1 << 20  # bytes


def checksums(contents: list[NDArray[np.uint8]]) -> list[int]:
    """The checksum of each, on several cores."""
    counts = [max(1, -(-len(content) // PIECE)) for content in contents]
    pieces = [c[i * PIECE : (i + 1) * PIECE] for c, count in zip(contents, counts) for i in range(count)]
    threads = min(THREADS, os.cpu_count() or 1, len(pieces))
    shared = None if threads < 2 or sum(map(len, contents)) < WORTH_THREADS else _share(pieces, threads)
    found = [_piece(piece) for piece in pieces] if shared is None else shared
    result, end = [], 0
    for count in counts:
        own, end = found[end : end + count], end + count
        result.append(own[0] if count == 1 else _piece(np.array(own, np.uint64).view(np.uint8)))
    return result


def _share(pieces: list[NDArray[np.uint8]], threads: int) -> list[int] | None:
    """None: no thread can be started, as at the end of a program."""
    with ThreadPoolExecutor(threads, thread_name_prefix="dibs") as pool:
        try:
            waiting = [pool.submit(_piece, piece) for piece in pieces]
        except RuntimeError:
            return None
        return [future.result() for future in waiting]


def _piece(content: NDArray[np.uint8]) -> int:
    if content.ctypes.data % 8:
        content = content.copy()
    whole = len(content) & ~7
    words = content[:whole].view(np.uint64)
    words.flags.writeable = False  # so that one compiled version serves all
    last = int.from_bytes(content[whole:].tobytes(), "little")
    return int(_checksum(words, np.uint64(last), np.uint64(len(content))))


@kernel
def _step(lane, word):
    mixed = lane ^ word
    return ((mixed << np.uint64(29)) | (mixed >> np.uint64(35))) * MULTIPLIER


@kernel
def _checksum(words, last, size):
    """Of whole words, the bytes that fill no word (as one; 0 if there are none), and the number of all bytes."""
    a, b, c, d = np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(4)
    e, f, g, h = np.uint64(5), np.uint64(6), np.uint64(7), np.uint64(8)
    rounds = np.uint64(len(words)) // np.uint64(LANES)
    for k in range(rounds):
        i = k * np.uint64(LANES)
        a = _step(a, words[i])
        b = _step(b, words[i + np.uint64(1)])
        c = _step(c, words[i + np.uint64(2)])
        d = _step(d, words[i + np.uint64(3)])
        e = _step(e, words[i + np.uint64(4)])
        f = _step(f, words[i + np.uint64(5)])
        g = _step(g, words[i + np.uint64(6)])
        h = _step(h, words[i + np.uint64(7)])
    result = size
    for lane in (a, b, c, d, e, f, g, h):
        result = _step(result, lane)
    for rest in range(rounds * np.uint64(LANES), np.uint64(len(words))):
        result = _step(result, words[rest])
    result = _step(result, last)
    result = (result ^ (result >> np.uint64(32))) * LAST_MULTIPLIER
    return result ^ (result >> np.uint64(29))
