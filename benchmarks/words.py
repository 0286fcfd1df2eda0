"""What all tables are made of: numbers, Markdown, and promises."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

STAGES = ("read", "code", "kernel", "output")  # of a batch of one event


class Promise(NamedTuple):
    """A figure that is promised: at most (or, for scan, at least) so much."""

    measure: str
    where: str
    must: str
    aim: str
    value: float
    kept: bool
    note: str = ""

    @property
    def shown(self) -> str:
        return f"{number(self.value)}{self.note}"


def at_most(measure: str, where: str, must: float, aim: float | None, value: float) -> Promise:
    shown_aim = "" if aim is None else f"{aim:g}"
    return Promise(measure, where, f"at most {must:g}", shown_aim, value, value <= must)


def number(value: float | None) -> str:
    """Three digits that count."""
    if value is None:
        return ""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 0.1 else f"{value:.3f}"


def markdown(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table; the first column is text, the others numbers."""

    def line(cells: Sequence[Any]) -> str:
        return "| " + " | ".join(c if isinstance(c, str) else number(c) for c in cells) + " |"

    ruler = "| --- |" + " ---: |" * (len(head) - 1)
    return "\n".join([line(head), ruler, *map(line, rows)])
