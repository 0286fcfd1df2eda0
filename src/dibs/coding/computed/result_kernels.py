"""Results of computed values as the values of a batch."""

from __future__ import annotations

from dibs.coding.computed.number_steps import key_of
from dibs.coding.computed.program_layout import NUMBER
from dibs.jit.kernel import kernel


@kernel
def add_results(kind, wanted, numbers, event, code, added, at):
    """Those of one kind as EventValues has them, from `at` on; where they end."""
    for i in range(len(kind)):
        if kind[i] == wanted:
            added.event[at], added.name[at] = event[i], code
            if wanted == NUMBER:
                near, rest = key_of(numbers.whole[i], numbers.integer[i], numbers.number[i])
                added.value[at], added.rest[at] = near + 0.0, rest
            else:
                added.integer[at] = numbers.integer[i]
            at += 1
    return at


@kernel
def fill_keys(numbers, value, rest):
    """Numbers as EventValues has them."""
    for i in range(len(value)):
        near, left = key_of(numbers.whole[i], numbers.integer[i], numbers.number[i])
        value[i], rest[i] = near + 0.0, left
