"""Arrays that a kernel does not count.

Numba counts who holds an array, also from one compiled function to the next: two atomic operations for each array that
is handed to a function with a loop in it, inlined or not. In the innermost loops that is more than the work itself.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.extending import intrinsic


@intrinsic
def borrowed(typingctx, arrays):
    """The array, or the tuple (named or not) of arrays and numbers, uncounted: phases of a kernel are then handed
    arrays for nothing. Only for what the kernel itself was handed, whose caller holds it until the kernel is done; it
    must not be returned."""

    def uncounted(context, builder, kind, value):
        if not isinstance(kind, types.Array):
            return value
        array = context.make_array(kind)(context, builder, value)
        array.meminfo = ir.Constant(array.meminfo.type, None)
        return array._getvalue()

    def code(context, builder, signature, args):
        kind, value = signature.args[0], args[0]
        if not isinstance(kind, types.BaseTuple):
            return uncounted(context, builder, kind, value)
        for i, part in enumerate(kind):
            own = uncounted(context, builder, part, builder.extract_value(value, i))
            value = builder.insert_value(value, own, i)
        return value

    return arrays(arrays), code
