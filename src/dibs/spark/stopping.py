"""A micro-batch that is cut off because its stream is stopped, told to Spark in words that it understands.

Spark looks through the text of what Python raises, by a regular expression, for the name of an interruption, and if the
text is as long as a stack of Java, that search overflows the stack of the stream's thread, which dies of it with 1,024
lines on the terminal. So what says that the stream was stopped is told shortly.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]

from dibs.spark.places import first_line

INTERRUPTIONS = ("InterruptedException", "InterruptedIOException", "ClosedByInterruptException")
CANCELLED = "cancelled job group", "cancellation of job group"  # as stopping a query does
DEEPEST = 20  # causes that are looked at


class Interrupted(Exception):
    """What Spark takes for an interruption: it knows it by this name."""

    def __init__(self, told: str) -> None:
        super().__init__(f"An error occurred while calling a micro-batch: {told}: java.lang.InterruptedException")


Interrupted.__module__, Interrupted.__qualname__ = "py4j.protocol", "Py4JJavaError"


def stop_quietly(run: Callable[..., None]) -> Callable[..., None]:
    """For a function of micro-batches."""

    @wraps(run)
    def batch(*given: Any) -> None:
        try:
            run(*given)
        except Exception as error:
            told = find_interruption(error)
            if told is None:
                raise
            raise Interrupted(told) from None

    return batch


def find_interruption(error: BaseException | None) -> str | None:
    """The first line of what says, among an error and its causes, that a job was interrupted; None: nothing does."""
    for _ in range(DEEPEST):
        if error is None:
            return None
        told = _of_java(error)
        if told is not None:
            return told
        error = error.__cause__ or error.__context__
    return None


def _of_java(error: BaseException) -> str | None:
    try:
        cause = getattr(error, "java_exception", None)
        for _ in range(DEEPEST):
            if cause is None:
                return None
            text = str(cause.toString())
            if text.split(":")[0].endswith(INTERRUPTIONS) or any(words in text for words in CANCELLED):
                return first_line(error)
            cause = cause.getCause()
    except (Py4JError, OSError):  # with the JVM
        return None
    return None
