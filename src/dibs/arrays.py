"""Arrow arrays of what NumPy and Python hold; and places in arrays.

pa.array would do, but its first call imports pandas where that is installed: a quarter of a second before the first
match. So the way from the first subscription to the first match, and that of a process that opens a matcher, makes its
arrays here, of their buffers.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


def from_numpy(values: NDArray[Any]) -> pa.Array:
    """Numbers and booleans, none of them null."""
    kind = pa.from_numpy_dtype(values.dtype)
    content = np.packbits(values, bitorder="little") if values.dtype == bool else np.ascontiguousarray(values)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(content)])


def from_integers(values: Sequence[int]) -> pa.Array:
    """OverflowError: one of them has more than 64 bits."""
    return from_numpy(np.array(values, np.int64))


def from_strings(texts: Sequence[str]) -> pa.Array:
    """Of type large_string. UnicodeEncodeError: one of them is no Unicode text (a lone surrogate)."""
    joined = "".join(texts)
    if joined.isascii():
        lengths, content = map(len, texts), joined.encode()
    else:
        encoded = [text.encode() for text in texts]
        lengths, content = map(len, encoded), b"".join(encoded)
    starts = np.fromiter(accumulate(lengths, initial=0), np.int64, len(texts) + 1)
    return pa.Array.from_buffers(pa.large_string(), len(texts), [None, pa.py_buffer(starts), pa.py_buffer(content)])


def from_ids(ids: Sequence[int | str]) -> pa.Array:
    """Ids of one type, at least one."""
    return from_strings(ids) if isinstance(ids[0], str) else from_integers(ids)  # type: ignore[arg-type]


def to_numpy(array: pa.Array) -> NDArray[Any]:
    """Numbers and booleans, none of them null: numbers as a view, which cannot be written. Arrow's own to_numpy
    imports pandas too."""
    if array.null_count:
        raise ValueError(f"{array.null_count} of {len(array)} values are null, for which NumPy has no value")
    content = array.buffers()[1]
    data: Any = b"" if content is None else content
    if pa.types.is_boolean(array.type):
        bits = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")
        return bits[array.offset : array.offset + len(array)].view(np.bool_)
    kind = "f" if pa.types.is_floating(array.type) else "i" if pa.types.is_signed_integer(array.type) else "u"
    dtype = np.dtype(f"{kind}{array.type.bit_width // 8}")
    return np.frombuffer(data, dtype, len(array), array.offset * dtype.itemsize)


def runs(starts: NDArray[Any], sizes: NDArray[Any]) -> NDArray[np.int64]:
    """starts[0], starts[0] + 1, ... (sizes[0] of them), starts[1], ..."""
    first = np.repeat(starts - (np.cumsum(sizes) - sizes), sizes).astype(np.int64)
    return first + np.arange(len(first))
