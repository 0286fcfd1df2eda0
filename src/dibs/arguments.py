"""Checks of arguments that several calls take. What is wrong is an ArgumentError that names the argument, says what was
found and what is expected; no call fails somewhere inside because of what it was given."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, NoReturn, Union

import numpy as np

from dibs.errors import ArgumentError, show

OnError = Literal["raise", "skip"]
Id = Union[str, int]
DEFAULT_WEIGHT = 1.0
MOST_THREADS = 1_024
MOST_ROWS = 2**31  # no segment has more


def refuse_copies() -> NoReturn:
    """What a matcher says when it is pickled or copied."""
    raise ArgumentError(
        "a matcher cannot be copied or sent to another process: save() it and load() it there, or open the same folder "
        "with read_only=True"
    )


def check_on_error(on_error: object) -> None:
    if not isinstance(on_error, str) or on_error not in ("raise", "skip"):
        raise ArgumentError(f'on_error must be "raise" or "skip", not {show(on_error)}')


def is_integer(value: object) -> bool:
    """Python's or NumPy's, but neither True nor a timedelta64, which NumPy calls an integer."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, (bool, np.timedelta64))


def check_threads(threads: Any) -> int:
    """The number of cores to use; None: all."""
    if threads is None:
        return os.cpu_count() or 1
    if is_integer(threads) and threads > MOST_THREADS:
        raise ArgumentError(f"threads must be at most {MOST_THREADS:,}, not {show(threads)}")
    return check_number("threads", threads)


def check_number(name: str, value: Any, least: int = 1, expected: str = "a positive number") -> int:
    """An integer, at least so large."""
    if not is_integer(value) or value < least:
        raise ArgumentError(f"{name} must be {expected}, not {show(value)}")
    return int(value)


def check_text(name: str, value: object) -> None:
    """A name, or None."""
    if value is not None and not (isinstance(value, str) and _is_unicode(value)):
        raise ArgumentError(f"{name} must be a string, not {show(value)}")


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate
        return False
    return True


def check_flag(name: str, value: object) -> None:
    if not isinstance(value, (bool, np.bool_)):
        raise ArgumentError(f"{name} must be True or False, not {show(value)}")


def check_callable(name: str, value: object) -> None:
    """A function, or None."""
    if value is not None and not callable(value):
        raise ArgumentError(f"{name} must be a function, not {show(value)}")


def check_path(path: Any) -> Path:
    if isinstance(path, (str, os.PathLike)):
        text = os.fspath(path)
        if not isinstance(text, str):
            raise ArgumentError(f"a path is a string or a Path, not bytes: decode it with os.fsdecode({show(path)})")
        if text and "\0" not in text and _is_file_name(text):
            _check_length(text)
            return Path(text)
        raise ArgumentError(f"no file can be called {show(text)}: expected the path of a file or folder")
    raise ArgumentError(f"a path is a string or a Path, not {show(path)}")


def _check_length(text: str) -> None:
    """By the filesystem's own limits."""
    try:
        os.lstat(text)
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise ArgumentError(
                f"no file can be called {show(text)}: the name is too long; use a shorter one"
            ) from None


def _is_file_name(text: str) -> bool:
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        return False
    return True


def check_several(values: Any, expected: str, one: str) -> Iterable[Any]:
    """Anything to go through but what is a mistake: a single text, or a table, which would give its columns' names.
    one: what takes one."""
    is_mistake = isinstance(values, (str, bytes, bytearray, memoryview)) or hasattr(values, "columns")
    if is_mistake or not is_several(values):
        raise ArgumentError(f"expected {expected}, not {show(values)}; {one}")
    return values


def is_several(values: object) -> bool:
    """Whether it can be gone through, which an array without dimensions only looks like."""
    return isinstance(values, Iterable) and not (isinstance(values, np.ndarray) and values.ndim == 0)
