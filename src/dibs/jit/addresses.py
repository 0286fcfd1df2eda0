"""Memory that comes as a number: what other libraries hand over by address."""

from __future__ import annotations

from numba.extending import intrinsic


@intrinsic
def value_at(typingctx, like, address):
    """The value at this address, which is of the same type as `like`."""

    def code(context, builder, signature, args):
        kind = context.get_data_type(like)
        return builder.load(builder.inttoptr(args[1], kind.as_pointer()), align=1)

    return like(like, address), code
