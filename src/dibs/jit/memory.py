"""Fresh arrays for the results of a batch.

NumPy asks the system for the memory of a large array and gives it back at once, so every batch meets pages that were
never touched: of 10,000 events that was 5 ms, as much as all the reading. Arrow's pool keeps what is given back.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

_SMALL = 1 << 16  # bytes; the system's own allocator keeps those


def fresh(size: int, kind: Any) -> NDArray[Any]:
    """An array of any content, as numpy.empty."""
    count = size * np.dtype(kind).itemsize
    return np.empty(size, kind) if count < _SMALL else np.frombuffer(pa.allocate_buffer(count), kind)
