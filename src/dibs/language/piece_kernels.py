"""The tokenizer (language.pieces), compiled."""

from __future__ import annotations

import numpy as np

from dibs.jit.kernel import kernel, phase
from dibs.language import pieces
from dibs.language.pieces import END, UNCLOSED

next_piece = phase(inline=False)(pieces.next_piece)


@kernel
def cut(characters):
    """All pieces of a text, with the one that ends it: (kind, start, end) each."""
    room = 64
    found = np.empty((room, 3), np.int32)
    at, count, kind = 0, 0, -1
    while kind != END and kind != UNCLOSED:
        if count == room:
            room *= 4
            more = np.empty((room, 3), np.int32)
            more[:count] = found
            found = more
        kind, start, at = next_piece(characters, at, len(characters), True)
        found[count, 0], found[count, 1], found[count, 2] = kind, start, at
        count += 1
    return found[:count]
