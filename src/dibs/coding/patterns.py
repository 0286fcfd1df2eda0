"""All patterns of one attribute against one string (CONTAINS, LIKE in general, RLIKE).

An RE2 set finds every matching pattern of a group in one pass. Groups are bounded in size: compiling a set keeps the
interpreter for its whole time, and takes memory and time in proportion to the group. A group never changes, so that
segments which are merged hand theirs on, and only what is new is compiled.

A set that runs out of its memory budget answers with no match at all and says nothing, so every set carries one more
pattern, the empty one, that matches every string: when it is missing from the answer, the set has failed and its
patterns are tried one by one, which RE2 always can. Large patterns (\\p{L}{50}) are tried one by one from the start,
and only the last few of them stay compiled.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache

import re2

from dibs.language.regex import LARGE_PROGRAM, compiled, options, program_size
from dibs.thresholds import thresholds

SET_MEMORY = 32 << 20  # bytes of a set of no instructions
_ESCAPED = re.compile(rb"\\(.)", re.DOTALL)
AN_INSTRUCTION = 300  # bytes more for each: RE2 asks for room for twenty states of all of them


class PatternSet:
    """The patterns (RE2 texts) of an attribute; `find` gives the numbers of those that match somewhere in a string.

    old: sets of patterns of which many are among these; their groups are taken over where they are of use."""

    def __init__(self, patterns: Sequence[bytes], old: Sequence[PatternSet] = ()):
        left = {p: i for i, p in enumerate(patterns)}
        self.groups: list[tuple[Group, list[int]]] = []  # and the number of each pattern of it, -1 if it has none here
        for group in (group for s in old for group, _ in s.groups if group.is_large):  # small ones are put together
            if 2 * sum(p in left for p in group.patterns) >= len(group.patterns):
                self.groups.append((group, [left.pop(p, -1) for p in group.patterns]))
        self.large = [(p, i) for p, i in left.items() if program_size(p) > LARGE_PROGRAM]
        for p, _ in self.large:
            del left[p]
        for part in _parted(list(left)):
            self.groups.append((Group(part), [left[p] for p in part]))

    def find(self, text: bytes) -> list[int]:
        """Numbers of the matching patterns, sorted."""
        found = []
        for group, numbers in self.groups:
            found += [numbers[i] for i in group.find(text) if numbers[i] >= 0]
        found += [i for p, i in self.large if _large(p)(text)]
        return sorted(found)


def _parted(patterns: list[bytes]) -> list[list[bytes]]:
    """The patterns in groups of bounded size."""
    parts: list[list[bytes]] = []
    size = 0
    for p in patterns:
        own = program_size(p)
        if not parts or size + own > thresholds.instructions_of_a_set:
            parts.append([])
            size = 0
        parts[-1].append(p)
        size += own
    return parts


@lru_cache(maxsize=64)
def _large(pattern: bytes) -> Callable[[bytes], bool]:
    """Whether a text matches. CONTAINS may look for a text of any length, which RE2 could not compile."""
    literal = _ESCAPED.sub(rb"\1", pattern.replace(rb"\x00", b"\0"))
    if re2.escape(literal) == pattern:
        return lambda text: literal in text
    search = compiled(pattern.decode()).search
    return lambda text: search(text.decode()) is not None


class Group:
    """Some patterns, compiled when they are first needed."""

    def __init__(self, patterns: list[bytes]):
        self.patterns = patterns
        self.size = sum(map(program_size, patterns))
        self._set: re2.Set | None = None
        self._always = -1  # the number of the empty pattern; -1 if the set cannot be used
        self._singles: list[re2._Regexp] | None = None

    @property
    def is_large(self) -> bool:
        return 4 * self.size >= thresholds.instructions_of_a_set

    def find(self, text: bytes) -> list[int]:
        """Numbers of the matching patterns."""
        if self._set is None:
            self._compile()
        if self._always >= 0:
            found = self._set.Match(text) or ()  # type: ignore[union-attr]
            if self._always in found:
                return [i for i in found if i != self._always]
        if self._singles is None:
            self._singles = [re2.compile(p.decode(), options()) for p in self.patterns]
        value = text.decode()
        return [i for i, p in enumerate(self._singles) if p.search(value)]

    def _compile(self) -> None:
        made = re2.Set.SearchSet(options(SET_MEMORY + AN_INSTRUCTION * self.size))
        for p in self.patterns:
            made.Add(p)
        always = made.Add("")
        try:
            made.Compile()
        except re2.error:
            always = -1
        self._always, self._set = always, made  # whole: another thread may be looking
