"""Collecting the problems of one text."""

from __future__ import annotations

from dibs.errors import Problem

MAX_PROBLEMS = 100  # of one text that are reported; nobody reads on


class Refused(Exception):
    """The part of the text that is being read has no meaning; the reader goes on behind it."""

    def __init__(self, message: str, advice: str, start: int, end: int):
        super().__init__(message)
        self.found = (message, advice, start, end)


class Problems:
    """The problems found in a text so far, each with its place."""

    def __init__(self, text: str):
        self.text = text
        self._found: dict[tuple[int, int, str], Problem] = {}

    def __bool__(self) -> bool:
        return bool(self._found)

    @property
    def full(self) -> bool:
        return len(self._found) >= MAX_PROBLEMS

    def add(self, message: str, advice: str, start: int, end: int) -> None:
        """The same message at the same place counts once; beyond MAX_PROBLEMS nothing does."""
        if self.full:
            return
        line = self.text.count("\n", 0, start) + 1
        column = start - self.text.rfind("\n", 0, start)
        problem = Problem(message, advice, start, end, line, column, self.text)
        self._found.setdefault((start, end, message), problem)

    def mark(self) -> int:
        """How many there are: see take_back."""
        return len(self._found)

    def take_back(self, mark: int) -> None:
        """Forgets what was found since then: it is read in another way."""
        for key in list(self._found)[mark:]:
            del self._found[key]

    def in_order(self) -> list[Problem]:
        """All of them, from left to right."""
        return sorted(self._found.values(), key=lambda p: (p.start, p.end))
