"""Which attributes of an event are looked at, and the numbers that the names of one batch get."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

# Codes of paths that have no number.
SKIP = -1  # neither wanted nor on the way to a wanted attribute
LEADS = -2  # not wanted itself, but an object here may hold wanted attributes


class WantedNames:
    """The attributes that some subscription mentions. Everything else in an event is passed over unread.

    Immutable; make it once for many batches, because it takes time in proportion to the number of names.
    """

    __slots__ = ("_dotted", "names")

    def __init__(self, names: Iterable[str]):
        self.names = frozenset(names)
        # Sorted, because a set of all prefixes would be quadratic in the length of a name with very many dots.
        self._dotted = sorted(name for name in self.names if "." in name)

    def leads(self, path: str) -> bool:
        """Whether an object at this path may hold a wanted attribute."""
        if not self._dotted:
            return False
        start = path + "."
        place = bisect_left(self._dotted, start)
        return place < len(self._dotted) and self._dotted[place].startswith(start)


class BatchNames:
    """Numbers for the wanted names that a batch really has, in order of appearance (`EventValues.names`)."""

    __slots__ = ("codes", "names", "wanted")

    def __init__(self, wanted: WantedNames):
        self.wanted = wanted
        self.names: list[str] = []
        self.codes: dict[str, int] = {}  # of all paths met so far: the number of the name, SKIP or LEADS

    def code(self, path: str) -> int:
        """The number of a wanted name, SKIP or LEADS. The caller has looked into `codes` already."""
        if path in self.wanted.names:
            code = len(self.names)
            self.names.append(path)
        else:
            code = LEADS if self.wanted.leads(path) else SKIP
        self.codes[path] = code
        return code

    def numbers(self, wanted_names: Sequence[str]) -> NDArray[np.int32]:
        """The numbers of many names, all of which are wanted."""
        codes = self.codes
        for name in wanted_names:
            if name not in codes:
                self.code(name)
        return np.fromiter((codes[name] for name in wanted_names), np.int32, len(wanted_names))
