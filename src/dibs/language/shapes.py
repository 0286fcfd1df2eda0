"""What the shape of a predicate is made of: see language.shape_kernels. Nothing here imports Numba."""

from __future__ import annotations

# Bytes that stand for a hole.
A_NAME = 1
A_NUMBER = 2
A_STRING = 3  # also of LIKE, where it has no wildcards
AN_EMPTY_STRING = 4
A_PREFIX = 5  # of LIKE: wildcards only at its end; then only at its beginning; at both; and all others
A_SUFFIX = 6
A_PART = 7
A_PATTERN = 8
A_REGEX = 9
A_DATE = 14
A_TIMESTAMP = 15
A_LIST_OF_NUMBERS = 16
A_LIST_OF_STRINGS = 17

# Bytes that stand for a sign of two characters.
UNEQUAL = 11
AT_MOST = 12
AT_LEAST = 13
ARROW = 19
SIGNS = {UNEQUAL: "<>", AT_MOST: "<=", AT_LEAST: ">=", ARROW: "->"}

# The last byte of a predicate that IS [NOT] TRUE, FALSE or UNKNOWN follows without parentheses; and what stands for
# these in a frame.
TESTED = 18
TRUTHS = {"t": "TRUE", "f": "FALSE", "u": "UNKNOWN", "T": "NOT TRUE", "F": "NOT FALSE", "U": "NOT UNKNOWN"}

# Kinds of holes, beside the kinds of values.
NAME = 0  # in place of BOOLEAN, which TRUE and FALSE are
LIST = 7
LIKE, REGEX, DATE = 4, 5, 6  # what Python has to look at, always with:
HARD = 8
