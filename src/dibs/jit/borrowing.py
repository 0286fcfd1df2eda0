"""Arrays that compiled functions hand to each other without counting.

Numba counts who holds an array, atomically, from one compiled function to the next and for each array that is taken
out of a group. In inner loops that is more than the work itself: a match that was cut into functions took ten times as
long. What a kernel is handed lives until it returns, so nothing below it needs to count. Four ways, for four needs:

- `@phase` (jit.kernel), the rule: a function that makes no arrays is compiled without counting altogether, and is
  handed arrays and groups of them as they are. A kernel that makes arrays does so itself, and leaves loops to phases.
- `borrow`, where a kernel must make arrays within its loop (room that grows): what it was handed, uncounted.
- Pointers (jit.pointers), where there is no array to hand over: memory that holds structures of several types.
- Tables of addresses (jit.groups), from which kernels take groups of arrays: a call from Python costs one number then,
  however many arrays there are. Who made the table holds the arrays for as long as it is used.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from dibs.jit.operations import operation


def uncounted(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    """The value, if it is an array without who counts it."""
    if not isinstance(kind, types.Array):
        return value
    array = context.make_array(kind)(context, builder, value)
    array.meminfo = ir.Constant(array.meminfo.type, None)
    return array._getvalue()


def _plain_borrow(arrays):
    return arrays


@operation(_plain_borrow)
def borrow(typingctx, arrays):
    """The array, or the tuple (named or not) of arrays and numbers, uncounted. Only for what the kernel itself was
    handed, whose caller holds it until the kernel is done; it must not be returned."""

    def code(context, builder, signature, args):
        kind, value = signature.args[0], args[0]
        if not isinstance(kind, types.BaseTuple):
            return uncounted(context, builder, kind, value)
        for i, part in enumerate(kind):
            own = uncounted(context, builder, part, builder.extract_value(value, i))
            value = builder.insert_value(value, own, i)
        return value

    return arrays(arrays), code
