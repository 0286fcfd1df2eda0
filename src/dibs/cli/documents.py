"""What joins over history see on the command line: documents of a file, and the events before."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from dibs.cli.outcome import say

if TYPE_CHECKING:
    from dibs.matcher import Matcher

HISTORY_HELP = "File with documents that came before, for EXISTS, FORALL and (SELECT ...): .jsonl, .parquet or .arrow."
REMEMBER_HELP = "Add each event to the history after it was matched, so that the next ones see it."
RETAIN_HELP = "Keep only the last N documents of the history."


def prepare_history(matcher: Matcher, file: str | None, remember: bool, retain: int | None) -> None:
    """Fills the history of a matcher that is matched from now on. That of compiled files may grow here, in memory."""
    from dibs.history.retention import Retain

    if matcher.durable is not None:
        if file is not None or retain is not None:
            raise typer.BadParameter(
                "a durable matcher has its own history, to which `dibs catalog remember` adds documents",
                param_hint="--history, --retain",
            )
        return
    matcher.history.refused = ""
    if retain is not None:
        matcher.history.retain = Retain(count=retain)
    if file is not None:
        matcher.history.load(file)
    joins = matcher.joins
    if joins and not remember and not len(matcher.history):
        say(f"note: no document is in the history that {joins[0]} asks for; give --history or --remember")
