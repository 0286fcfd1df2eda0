"""The named groups of arrays that the kernels of patterns are handed."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.jit.groups import Clean, Columns, Sized
from dibs.tuning import tuned

PATTERN_STEPS = tuned("pattern_steps", 64, 0, "bytes", "compared for each byte of a string before RE2 decides instead")

# What a pattern is
CONTAINS = 0  # [ANY, TEXT, ANY]: it matches wherever its text occurs
LIKE = 1  # pieces that a kernel verifies
NO_NEWLINES = 2  # the same, but its wildcards do not match line breaks: only verified in strings without any
REGEX = 3  # its automaton or RE2 verifies it; its pieces are TEXTs of which every match contains at least one (none:
# nothing is known)

BLOCK = 1024  # positions of a string that are looked at together

# The columns of an automaton: see automaton_kernels
POSITIONS = 64
BEGIN, END = 128, 129  # symbols beside those of ASCII
FOLLOW = 0
SYMBOLS = POSITIONS
FIRST = SYMBOLS + END + 1
LAST = FIRST + 1
IS_NULLABLE = LAST + 1  # 1: it matches every string
WIDTH = IS_NULLABLE + 1

# What a piece is: a row (kind, a, b) of `pieces`
TEXT = 0  # the bytes a to b of `text`
ONE = 1  # any a characters
ANY = 2  # any text, also none


class PatternPieces(NamedTuple):
    """Patterns as they were read. Pattern p has the pieces offsets[p] to offsets[p + 1]. Behind an ANY comes no ONE
    (the two change places) and no other ANY. The texts of a REGEX are in lower case, as FOLD makes it."""

    kind: NDArray[np.uint8]
    offsets: NDArray[np.int64]
    pieces: Annotated[NDArray[np.int64], Columns(3)]
    text: NDArray[np.uint8]
    automaton: NDArray[np.int32]  # the row of a REGEX in `automata`; -1: it has none
    automata: Annotated[NDArray[np.uint64], Columns(WIDTH)]


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
    entries: Annotated[NDArray[np.int64], Columns(4)]
    folded: NDArray[np.bool_]  # whether a text is one of expressions, in lower case
    anchor_offsets: NDArray[np.int64]
    anchored: Annotated[NDArray[np.int64], Columns(2)]  # a pattern, and the best of its other texts or -1
    other_offsets: NDArray[np.int64]
    other_texts: NDArray[np.int64]
    always: NDArray[np.int64]  # patterns that a kernel verifies in every string


class PatternSpace(NamedTuple):
    """Scratch space of one search; see jit.pools. Strings are counted over all searches."""

    seen: Annotated[NDArray[np.int64], Clean("patterns")]  # the last string for which the pattern was looked at
    # Twice the last string in which the text was found; 1 more: so were all of its slot.
    present: Annotated[NDArray[np.int64], Clean("texts")]
    here: Annotated[NDArray[np.int64], Sized("texts")]  # the texts of this string; ~t is one that may be there
    place: Annotated[NDArray[np.int64], Sized(BLOCK)]  # positions of a block that are looked at,
    gram: Annotated[NDArray[np.uint64], Sized(BLOCK)]  # and the eight bytes that end there
    counters: Annotated[NDArray[np.int64], Clean(2)]  # STRINGS and SPENT
    allowed: Annotated[NDArray[np.int64], Sized(1)]  # PATTERN_STEPS


STRINGS = 0  # strings that were searched with this space so far
SPENT = 1  # bytes that were compared in this string, or texts that were looked at, for nothing
