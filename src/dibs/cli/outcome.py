"""How a command ends: exit codes, and errors as text instead of tracebacks."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from enum import Enum
from typing import BinaryIO

import typer

from dibs.cli import INTERRUPTED
from dibs.errors import DibsError, UnknownIndex

NO, BAD_INPUT = 1, 3
SHOWN = 10  # problems that are printed before only their number is


class OnError(str, Enum):
    raise_ = "raise"
    skip = "skip"


class BadInput(DibsError):
    """Something that the user gave cannot be read; the text names the place and says what to do."""


def results() -> BinaryIO:
    """Where results for the next program go."""
    if sys.stdout is None:
        raise BadInput("standard output is closed: there is nowhere to write to")
    return sys.stdout.buffer


def say(text: str) -> None:
    """A line for the person, not for the next program. Where nobody reads it, the exit code still tells."""
    with contextlib.suppress(BrokenPipeError):
        typer.echo(text, err=True)


def say_problems(title: str, problems: list[str], total: int | None = None) -> None:
    total = len(problems) if total is None else total
    say(title)
    for problem in problems[:SHOWN]:
        say("  " + problem.replace("\n", "\n  "))
    if total > SHOWN:
        say(f"  ... and {total - SHOWN:,} more")


@contextlib.contextmanager
def outcome() -> Iterator[None]:
    """Turns what ends a command early into an exit code."""
    try:
        yield
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        # The reader has seen enough (`dibs match ... | head`). Python flushes stdout once more at exit: into nothing.
        _write_into_nothing()
        raise typer.Exit(0) from None
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    except UnknownIndex as error:
        raise typer.BadParameter(str(error), param_hint="--index") from None
    except DibsError as error:
        say(f"dibs: {error}")
        raise typer.Exit(BAD_INPUT) from None
    except OSError as error:
        say(f"dibs: {error.filename}: {error.strerror}" if error.filename and error.strerror else f"dibs: {error}")
        raise typer.Exit(BAD_INPUT) from None


def _write_into_nothing() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
