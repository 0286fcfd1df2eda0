"""What Dibs raises, and the one record that describes a mistake in an expression.

    DibsError
    ├── ExpressionError      a subscription's text cannot be accepted   (.problems)
    ├── SubscriptionErrors   several subscriptions of one call are bad  (.rejected)
    ├── DuplicateId          an id is taken already                     (.id)
    ├── UnknownId            no subscription has this id                (.id)
    ├── EventError           an event cannot be read                    (.event, .attribute)
    ├── ArgumentError        an argument is of the wrong type, or none of those that are allowed
    ├── LineTooLong          a line of a file is longer than allowed    (.name, .line, .limit)
    ├── UnknownIndex         no index of this name                      (.name)
    ├── IndexTooLarge        an index would need too much memory        (.name, .needed, .limit)
    ├── StorageError         files cannot be written or read            (.path)
    │   ├── MissingFile      there is no such file                      (.path)
    │   └── WriterActive     somebody else writes to this folder        (.path, .holder)
    └── FormatError          saved files are of another version, or no files of Dibs
        └── DamagedError     saved files are not as they were written   (.path)

ExpressionError, SubscriptionErrors, DuplicateId, EventError, UnknownIndex and LineTooLong are ValueErrors too,
ArgumentError is a ValueError and a TypeError, UnknownId is a KeyError, so that code which does not know Dibs can still
catch them. MissingFile is a FileNotFoundError.

RecoveryWarning is a warning: something was damaged or missing and has been rebuilt. BackgroundWarning: work in the
background failed and will be tried again.
"""

from __future__ import annotations

import reprlib
from dataclasses import dataclass
from typing import Any


def show(value: object) -> str:
    """A value in a message: its type, and it itself as far as it is short and can be shown."""
    try:
        return f"{type(value).__name__} ({' '.join(reprlib.repr(value).split())})"
    except Exception:  # whatever its class does; an integer of thousands of digits
        return type(value).__name__


def _repr(value: object) -> str:
    try:
        return repr(value)
    except Exception:
        return f"({type(value).__name__})"


@dataclass(frozen=True)
class Problem:
    """One mistake in one expression: where it is, what is wrong, what to do."""

    message: str
    advice: str = ""
    start: int = 0  # first character concerned, counted from 0
    end: int = 0  # one past the last character concerned
    line: int = 1  # both counted from 1
    column: int = 1
    text: str = ""  # the expression (long ones: the part around the place)

    def __str__(self) -> str:
        lines = [f"line {self.line}, column {self.column}: {self.message}"]
        if self.text:
            shown, caret = self._excerpt()
            lines += ["    " + shown, "    " + caret]
        if self.advice:
            lines.append("  " + self.advice)
        return "\n".join(lines)

    def _excerpt(self, width: int = 76) -> tuple[str, str]:
        line_start = self.text.rfind("\n", 0, self.start) + 1
        line_end = self.text.find("\n", self.start)
        line_end = len(self.text) if line_end < 0 else line_end
        first = max(line_start, min(self.start - width // 2, line_end - width))
        last = min(line_end, first + width)
        length = max(1, min(self.end, last) - self.start)
        return self.text[first:last], " " * (self.start - first) + "^" * length


class DibsError(Exception):
    """Everything that Dibs raises by itself."""


class ExpressionError(DibsError, ValueError):
    """A subscription's text cannot be accepted."""

    def __init__(self, problems: list[Problem]):
        self.problems = problems
        super().__init__("\n".join(str(p) for p in problems))


@dataclass(frozen=True)
class Rejected:
    """A subscription that was not added, and why."""

    position: int  # its place in the call, counted from 0
    id: Any
    expression: Any
    error: DibsError

    def __str__(self) -> str:
        return f"subscription {_repr(self.id)} (number {self.position}): {self.error}"


class SubscriptionErrors(DibsError, ValueError):
    """Several subscriptions of one call are bad; none of that call was added."""

    SHOWN = 20

    def __init__(self, rejected: list[Rejected]):
        self.rejected = rejected
        lines = [f"{len(rejected):,} subscription{'s' * (len(rejected) != 1)} cannot be added; none was:"]
        lines += [str(r) for r in rejected[: self.SHOWN]]
        if len(rejected) > self.SHOWN:
            lines.append(f"... and {len(rejected) - self.SHOWN:,} more (all of them in .rejected)")
        super().__init__("\n".join(lines))


class DuplicateId(DibsError, ValueError):
    """An id is taken already."""

    def __init__(self, id: Any, advice: str = "use replace() to change a subscription"):
        self.id = id
        super().__init__(f"id {id!r} is taken already: {advice}")


class UnknownId(DibsError, KeyError):
    """No subscription has this id."""

    def __init__(self, id: Any):
        self.id = id
        super().__init__(f"no subscription has the id {_repr(id)}")

    def __str__(self) -> str:
        return str(self.args[0])


class EventError(DibsError, ValueError):
    """An event cannot be read."""

    def __init__(self, message: str, event: int | None = None, attribute: str | None = None):
        self.event = event
        self.attribute = attribute
        place = [] if event is None else [f"event {event}"]
        place += [] if attribute is None else [f"attribute {attribute!r}"]
        super().__init__(f"{', '.join(place)}: {message}" if place else message)


class ArgumentError(DibsError, ValueError, TypeError):
    """An argument is of the wrong type, or none of those that are allowed."""


class LineTooLong(DibsError, ValueError):
    """A line of a file is longer than allowed: most likely the file is none of lines."""

    def __init__(self, name: str, line: int, limit: int):
        self.name, self.line, self.limit = name, line, limit
        place = f"{name}, line {line}" if name else f"line {line}"
        size = f"{limit >> 20:,} MB" if limit >= 1 << 20 else f"{limit:,} bytes"
        super().__init__(f"{place}: longer than {size}; expected one object or text per line: is this a file of lines?")


class UnknownIndex(DibsError, ValueError):
    """No index of this name."""

    def __init__(self, name: str, known: list[str]):
        self.name = name
        super().__init__(f"no index is called {name!r}; there are: {', '.join(known)}")


class IndexTooLarge(DibsError):
    """An index would need too much memory: nothing was built."""

    def __init__(self, name: str, needed: int, limit: int, unit: str, advice: str):
        self.name, self.needed, self.limit = name, needed, limit
        super().__init__(f"index {name!r} would need {needed:,} {unit}; the limit is {limit:,}: {advice}")


class StorageError(DibsError):
    """Files cannot be written or read: the disk is full, the folder is read-only, permissions are missing..."""

    def __init__(self, path: Any, message: str):
        self.path = path
        super().__init__(f"{path}: {message}")


class MissingFile(StorageError, FileNotFoundError):
    """There is no such file."""

    def __init__(self, path: Any):
        super().__init__(path, "No such file or folder: check the name")

    def __str__(self) -> str:
        return str(self.args[0])


class WriterActive(StorageError):
    """Somebody else has the folder open for writing."""

    def __init__(self, path: Any, holder: str):
        self.holder = holder
        advice = "a folder has one writer: close that one, or open with read_only=True"
        super().__init__(path, f"is being written by {holder}; {advice}")


class FormatError(DibsError):
    """Saved files are of another version, or no files of Dibs."""


class DamagedError(FormatError):
    """Saved files are not as they were written: truncated, changed, mixed up."""

    def __init__(self, path: Any, message: str):
        self.path = path
        super().__init__(f"{path} is damaged: {message}")


class RecoveryWarning(UserWarning):
    """Something of a durable folder was damaged or missing and has been rebuilt; nothing is lost."""


class BackgroundWarning(UserWarning):
    """Work in the background (merging, planning, saving) failed; it will be tried again, and matching goes on."""
