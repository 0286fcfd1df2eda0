"""What is left to RE2: one expression against one string, and all strings against expressions that need no text.

The latter are matched in sets: an RE2 set finds every matching expression of a group in one pass. Groups are bounded in
size: compiling a set keeps the interpreter for its whole time, and takes memory and time in proportion to the group. A
group never changes, so that segments which are merged hand theirs on, and only what is new is compiled.

A set that runs out of its memory budget answers with no match at all and says nothing, so every set carries one more
expression, the empty one, that matches every string: when it is missing from the answer, the set has failed and its
expressions are tried one by one, which RE2 always can. Large ones (\\p{L}{50}) are tried one by one from the start.

Memory: everything is compiled when it is first needed, within a budget of its own, and only what was used last stays
compiled, in the whole process: KEPT_SETS sets of SET_MEMORY and what their instructions need, KEPT_SMALL expressions of
SMALL_MEMORY and KEPT_LARGE of regex.MAX_MEMORY. That is 700 MB if all of them used up what they may. (RE2 takes it as
it meets new states: a thousand ordinary expressions take some 20 MB.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

import re2

from dibs.language.regex import LARGE_PROGRAM, options, program_size
from dibs.tuning import tuned

# one set of all kept the interpreter for 1 to 11 s; one of this size compiles in 0.1 s
INSTRUCTIONS_OF_A_SET = tuned(
    "instructions_of_a_set", 1 << 16, 1, "instructions", "of the expressions that RE2 matches in one pass"
)

SET_MEMORY = 8 << 20  # bytes of a set of no instructions
AN_INSTRUCTION = 300  # bytes more for each: RE2 asks for room for twenty states of all of them
SMALL_MEMORY = 256 << 10  # bytes; enough for a thousand instructions
KEPT_SETS, KEPT_SMALL, KEPT_LARGE = 8, 1024, 24

Search = Callable[[bytes], object]


class Regexes:
    """Expressions and their numbers; `find` gives the numbers of those that match somewhere in a string.

    old: groups of expressions, taken over where many of theirs are among these."""

    def __init__(self, patterns: dict[bytes, int], old: Sequence[Group] = ()):
        left = dict(patterns)
        self.groups: list[tuple[Group, list[int]]] = []  # and the number of each expression, -1 if it has none here
        for group in old:
            if group.is_large and 2 * sum(p in left for p in group.patterns) >= len(group.patterns):
                self.groups.append((group, [left.pop(p, -1) for p in group.patterns]))
        self.large = [(p, i) for p, i in left.items() if program_size(p) > LARGE_PROGRAM]
        for p, _ in self.large:
            del left[p]
        for part in _part(list(left)):
            self.groups.append((Group(part), [left[p] for p in part]))

    def __bool__(self) -> bool:
        return bool(self.groups or self.large)

    def find(self, texts: Sequence[bytes]) -> Iterator[tuple[int, int]]:
        """(string, number) of each match."""
        for group, numbers in self.groups:
            for string, i in group.find(texts):
                if numbers[i] >= 0:
                    yield string, numbers[i]
        for p, number in self.large:
            search = search_for(p)
            yield from ((string, number) for string, text in enumerate(texts) if search(text))


def _part(patterns: list[bytes]) -> list[list[bytes]]:
    """The patterns in groups of bounded size."""
    parts: list[list[bytes]] = []
    size = 0
    for p in patterns:
        own = program_size(p)
        if not parts or size + own > INSTRUCTIONS_OF_A_SET.value:
            parts.append([])
            size = 0
        parts[-1].append(p)
        size += own
    return parts


class Group:
    """Some expressions, compiled when they are needed."""

    def __init__(self, patterns: list[bytes]):
        self.patterns = patterns
        self.size = sum(map(program_size, patterns))

    @property
    def is_large(self) -> bool:
        return 4 * self.size >= INSTRUCTIONS_OF_A_SET.value

    def find(self, texts: Sequence[bytes]) -> Iterator[tuple[int, int]]:
        """(string, number) of each match."""
        found_by, always = _set_of(self)
        left = []
        for string, text in enumerate(texts):
            found = (found_by.Match(text) or ()) if always >= 0 else ()
            if always in found:
                yield from ((string, i) for i in found if i != always)
            else:
                left.append(string)
        if left:
            for i, p in enumerate(self.patterns):
                search = search_for(p)
                yield from ((string, i) for string in left if search(texts[string]))


@lru_cache(maxsize=KEPT_SETS)
def _set_of(group: Group) -> tuple[re2.Set, int]:
    """The set of a group's expressions, and the number of the empty one in it; -1: it could not be compiled."""
    made = re2.Set.SearchSet(options(SET_MEMORY + AN_INSTRUCTION * group.size))
    for p in group.patterns:
        made.Add(p)
    always = made.Add("")
    try:
        made.Compile()
    except re2.error:
        always = -1
    return made, always


def search_for(pattern: bytes) -> Search:
    """The search for one expression: None or False if it is not there."""
    return _small(pattern) or _large(pattern)


@lru_cache(maxsize=KEPT_SMALL)
def _small(pattern: bytes) -> Search | None:
    try:
        found: Search = re2.compile(pattern.decode(), options(SMALL_MEMORY)).search
    except re2.error:  # it needs more
        return None
    return found


@lru_cache(maxsize=KEPT_LARGE)
def _large(pattern: bytes) -> Search:
    found: Search = re2.compile(pattern.decode(), options()).search
    return found
