"""Expressions that many subscribers have: in a segment they stand once, as clauses, as texts, or as both.

Equal clauses are found after coding (coding.repeats), so spellings do not matter; the rows are put in the order of
their clauses, and among these of their texts. Whatever is of a row alone (id, weight, version, whether it is gone)
knows nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dibs.arrays import from_numpy, to_numpy
from dibs.coding.clauses import Clauses
from dibs.coding.computed.residuals import Residuals, join
from dibs.coding.repeats import MOST_DISTINCT, RowRuns, find_repeats
from dibs.jit.sorting import order_by_group
from dibs.segments.state import MERGED_AT_ONCE

NO_RUNS = (None, None)


class Shared(NamedTuple):
    clauses: Clauses
    residuals: Residuals | None
    place: NDArray[np.int32]  # of each row among those that there were
    texts: pa.Array
    runs: tuple[RowRuns, RowRuns | None]  # of the rows of each clause, and of each text


def share(clauses: Clauses, residuals: Residuals | None, texts: Callable[[], pa.Array]) -> Shared | None:
    """The clauses and texts that are distinct; None: few are alike, or so few are there that they are merged soon.
    texts: of the rows, as large strings."""
    if len(clauses) <= MERGED_AT_ONCE.value:
        return None
    first = find_repeats(clauses, residuals)
    if first is None:
        return None
    is_first = first == np.arange(len(first))
    kept = np.flatnonzero(is_first)
    number = (np.cumsum(is_first, dtype=np.int32) - 1)[first]
    if residuals is not None:
        residuals = join([(residuals, np.where(is_first, number, -1))], len(kept))
    encoded = texts().dictionary_encode()
    text = to_numpy(encoded.indices)
    order, _ = order_by_group(text, len(encoded.dictionary))
    place = order[order_by_group(number[order], len(kept))[0]]
    number, text = number[place], text[place]
    starts = np.append(True, (number[1:] != number[:-1]) | (text[1:] != text[:-1]))
    spellings, own = None, text
    if starts.sum() <= MOST_DISTINCT * len(text):
        spellings, own = _runs(starts), text[starts]
    runs = _runs(np.append(True, number[1:] != number[:-1])), spellings
    return Shared(clauses.take(kept), residuals, place, encoded.dictionary.take(from_numpy(own)), runs)


def _runs(starts: NDArray[np.bool_]) -> RowRuns:
    return RowRuns(np.append(np.flatnonzero(starts), len(starts)).astype(np.int32))
