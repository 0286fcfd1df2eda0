"""Which regular expressions the language takes: those that RE2 can run in linear time, within a memory budget."""

from __future__ import annotations

import re2

MAX_MEMORY = 8 << 20  # of one compiled expression, in bytes; RE2 refuses what needs more


def options() -> re2.Options:
    result = re2.Options()
    result.max_mem = MAX_MEMORY
    result.log_errors = False
    return result


def refusal(pattern: str) -> str | None:
    """RE2's reason not to take the pattern; None when it takes it."""
    try:
        re2.compile(pattern, options())
    except re2.error as error:
        reason = error.args[0] if error.args else "not a regular expression"
        said = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        return said if len(said) <= 100 else said[:99] + "…"
    return None
