"""How results of backtests and replays are written for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from dibs.coding.values import EventProblem
from dibs.errors import show

WIDTH = 110  # characters of an event that are shown


def share(rate: float) -> str:
    """Three digits of a percentage, but never 0 for something and never 100 for not all."""
    percent = 100 * rate
    if rate in (0.0, 1.0):
        return f"{percent:.0f} %"
    if percent < 0.001:
        return "below 0.001 %"
    if percent > 99.9:
        return "above 99.9 %"
    return f"{percent:.3g} %"


def show_row(row: Mapping[str, Any]) -> str:
    options = orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY
    try:
        text = orjson.dumps(dict(row), default=str, option=options).decode()
    except TypeError:  # integers of more than 64 bits, lone surrogates, too many levels
        text = show(dict(row))
    return text if len(text) <= WIDTH else text[: WIDTH - 3] + "..."


def show_problems(problems: Sequence[EventProblem], count: int) -> list[str]:
    if not count:
        return []
    first = problems[0]
    place = f"event {first.event}" + ("" if first.attribute is None else f", attribute {first.attribute!r}")
    what = "thing" if count == 1 else "things"
    return [f"  {count:,} {what} could not be read; the first: {place}: {first.message}"]
