"""The named groups of arrays that the kernels of patterns are handed."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

# What a pattern is
CONTAINS = 0  # [ANY, TEXT, ANY]: it matches wherever its text occurs
LIKE = 1  # pieces that a kernel verifies
NO_NEWLINES = 2  # the same, but its wildcards do not match line breaks: only verified in strings without any
REGEX = 3  # its automaton or RE2 verifies it; its pieces are TEXTs of which every match contains at least one (none:
# nothing is known)

# What a piece is: a row (kind, a, b) of `pieces`
TEXT = 0  # the bytes a to b of `text`
ONE = 1  # any a characters
ANY = 2  # any text, also none


class PatternPieces(NamedTuple):
    """Patterns as they were read. Pattern p has the pieces offsets[p] to offsets[p + 1]. Behind an ANY comes no ONE
    (the two change places) and no other ANY. The texts of a REGEX are in lower case, as FOLD makes it."""

    kind: NDArray[np.uint8]
    offsets: NDArray[np.int64]
    pieces: NDArray[np.int64]  # n x 3
    text: NDArray[np.uint8]
    automaton: NDArray[np.int32]  # the row of a REGEX in `automata`; -1: it has none
    automata: NDArray[np.uint64]  # n x automaton_kernels.WIDTH


class Filter(NamedTuple):
    """The distinct texts that are looked for, each filed under a gram: 8, 4, or of short texts all of their (folded)
    bytes.

    A position of a string is looked at if `grams` has the bit of the four bytes that end there, or of the three; or
    `pairs` that of the two. Then the slots of its grams lead to entries: a slot holds the upper half of the gram's hash
    and 1 + i in its lower half, for the row i and those behind it, (text, from, length, before): `length` bytes of the
    programs' text of which the gram ends behind the first `before`. The text is ~t if another row of the same slot
    follows. An empty slot is 0.

    A pattern is looked at if one of its anchors is in the string: text t is that of the patterns with the places
    anchor_offsets[t] to anchor_offsets[t + 1]. A LIKE has one, and the rest of its texts that are worth it are
    other_texts[other_offsets[p]:other_offsets[p + 1]]: they must be there, too."""

    grams: NDArray[np.uint64]  # a bit for each hash
    pairs: NDArray[np.uint64]  # a bit for each of the 65,536
    sizes: NDArray[np.bool_]  # 9: whether there are grams of so many bytes
    slots: NDArray[np.uint64]  # a power of two
    entries: NDArray[np.int64]  # n x 4
    folded: NDArray[np.bool_]  # whether a text is one of expressions, in lower case
    anchor_offsets: NDArray[np.int64]
    anchored: NDArray[np.int64]  # n x 2: a pattern, and the best of its other texts or -1
    other_offsets: NDArray[np.int64]
    other_texts: NDArray[np.int64]
    always: NDArray[np.int64]  # patterns that a kernel verifies in every string


class PatternSpace(NamedTuple):
    """Scratch space of one search; see jit.pools. Strings are counted over all searches."""

    seen: NDArray[np.int64]  # the last string for which the pattern was looked at
    present: NDArray[np.int64]  # twice the last string in which the text was found; 1 more: so were all of its slot
    here: NDArray[np.int64]  # the texts of this string; ~t is one that may be there
    place: NDArray[np.int64]  # positions of a block that are looked at,
    gram: NDArray[np.uint64]  # and the eight bytes that end there
    counters: NDArray[np.int64]  # STRINGS and SPENT
    allowed: NDArray[np.int64]  # 1: thresholds.pattern_steps


STRINGS = 0  # strings that were searched with this space so far
SPENT = 1  # bytes that were compared in this string, or texts that were looked at, for nothing
