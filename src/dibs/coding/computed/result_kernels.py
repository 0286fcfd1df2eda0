"""Results of computed values as the values of a batch."""

from __future__ import annotations

from dibs.coding.computed.number_steps import key_of
from dibs.jit.kernel import kernel


@kernel
def fill_keys(column, rows, value, rest):
    """Numbers of a column as EventValues has them."""
    for i in range(len(rows)):
        at = rows[i]
        near, left = key_of(column.whole[at], column.integer[at], column.number[at])
        value[i], rest[i] = near + 0.0, left
