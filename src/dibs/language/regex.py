"""Which regular expressions the language takes: those that RE2 can run in linear time, within a budget of memory.

A short pattern can be a large program: \\p{L} is 1,200 instructions, and \\p{L}{300} has it 300 times.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from dibs.jit.undisturbed import bring

if TYPE_CHECKING:
    import re2  # most programs do without: it is imported where it is used

MAX_MEMORY = 8 << 20  # of one expression while it is compiled and run, in bytes; RE2 refuses what needs more
INSTRUCTION = 16  # bytes
MAX_PROGRAM = (1 << 20) // INSTRUCTION  # instructions of one expression
LARGE_PROGRAM = 4096  # instructions: one that is not kept compiled for ever
_MAY_BE_LARGE = re.compile(rb"\{|\\[pP]")
_CLASS = re.compile(rb"\\[a-zA-Z]|(?<!\\)[.\[]")  # of characters: about 16 instructions


def options(memory: int = MAX_MEMORY) -> re2.Options:
    result = bring("re2").Options()
    result.max_mem = memory
    result.log_errors = False  # else RE2 writes to stderr
    return result


def compile_regex(pattern: str) -> re2._Regexp:
    """The expression; re2.error for one that RE2 does not take. re2 keeps the last 128 of them: not the large ones."""
    re2 = bring("re2")
    try:
        found = re2.compile(pattern, options())
    except re2.error:
        re2.purge()
        raise
    if found.programsize > LARGE_PROGRAM:
        re2.purge()
    return found


@lru_cache(maxsize=1 << 14)
def program_size(pattern: bytes) -> int:
    """The instructions of an expression that RE2 takes; an estimate for one that cannot be large."""
    if _MAY_BE_LARGE.search(pattern):
        return compile_regex(pattern.decode()).programsize
    size = 4 + len(pattern) + 16 * len(_CLASS.findall(pattern))
    return 4 * size if b"(?i" in pattern else size


def refusal(pattern: str) -> str | None:
    """Why the pattern is not taken; None when it is."""
    re2 = bring("re2")
    if len(pattern) > MAX_PROGRAM:  # RE2 may write to stderr about a walk that takes too long
        return f"it has {len(pattern):,} characters as a regular expression; {MAX_PROGRAM:,} are allowed"
    try:
        size = compile_regex(pattern).programsize
    except re2.error as error:
        reason = error.args[0] if error.args else "not a regular expression"
        said = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        if "too large" in said:
            return _needs(f"more than {MAX_MEMORY / 2**20:.0f}")
        return said if len(said) <= 100 else said[:99] + "…"
    return _needs(f"{size * INSTRUCTION / 2**20:.1f}") if size > MAX_PROGRAM else None


def _needs(megabytes: str) -> str:
    return f"it needs {megabytes} MB compiled; 1 MB is allowed"
