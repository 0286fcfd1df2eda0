"""All patterns of one attribute against one string in one pass (CONTAINS, LIKE in general, RLIKE).

An RE2 set finds every matching pattern at once. A set that runs out of its memory budget answers with no match at
all and says nothing, so every set carries one more pattern, the empty one, that matches every string: when it is
missing from the answer, the set has failed and the patterns are tried one by one, which RE2 always can.
"""

from __future__ import annotations

import re2

SET_MEMORY = 256 << 20
PATTERN_MEMORY = 64 << 20


def options(memory: int) -> re2.Options:
    result = re2.Options()
    result.log_errors = False
    result.max_mem = memory
    return result


class PatternSet:
    """The patterns (RE2 texts) of an attribute; `find` gives the numbers of those that match somewhere in a string."""

    def __init__(self, patterns: list[bytes]):
        self._patterns = patterns
        self._singles: list[re2._Regexp] | None = None
        self._set = re2.Set.SearchSet(options(SET_MEMORY))
        for p in patterns:
            self._set.Add(p.decode())
        self._always = self._set.Add("")
        try:
            self._set.Compile()
        except re2.error:
            self._always = -1

    def find(self, text: bytes) -> list[int]:
        """Numbers of the matching patterns, sorted."""
        if self._always >= 0:
            found = self._set.Match(text)
            if self._always in found:
                found.remove(self._always)
                return sorted(found)
        if self._singles is None:
            self._singles = [re2.compile(p.decode(), options(PATTERN_MEMORY)) for p in self._patterns]
        value = text.decode()
        return [i for i, p in enumerate(self._singles) if p.search(value)]
