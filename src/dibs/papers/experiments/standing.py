"""How `auto` stands among the structures of the papers: at how many points of their figures it is the fastest."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from dibs.papers.experiments import EXPERIMENTS
from dibs.papers.experiments.results import Result, read

NEAR = 1.1  # times the fastest: no difference that a person would notice
SHOWN = 10  # of the points at which it is slowest


class Point(NamedTuple):
    """`auto` and the fastest of the others, in microseconds per event."""

    where: str
    auto: float
    rival: str
    fastest: float

    @property
    def ratio(self) -> float:
        return self.auto / self.fastest


class Standing(NamedTuple):
    fastest: int
    near: int
    slower: int
    worst: tuple[Point, ...]

    @property
    def line(self) -> str:
        """One sentence."""
        total = self.fastest + self.near + self.slower
        return (
            f"At {total} points of the papers' figures `auto` is the fastest at {self.fastest}, within "
            f"{NEAR - 1:.0%} of the fastest at {self.near}".replace("%", " %")
            + f", and slower at {self.slower}"
            + (f", at worst {self.worst[0].ratio:.2g} times." if self.worst else ".")
        )


def judge(folder: Path, names: Iterable[str] = EXPERIMENTS) -> Standing:
    """By the results of experiments in a folder, each point once."""
    points = [p for name in names if not EXPERIMENTS[name].points_of for p in _list_points(read(name, folder))]
    slower = sorted((p for p in points if p.ratio > NEAR), key=lambda p: -p.ratio)
    fastest = sum(p.ratio <= 1 for p in points)
    return Standing(fastest, len(points) - fastest - len(slower), len(slower), tuple(slower[:SHOWN]))


def _list_points(result: Result) -> Iterator[Point]:
    """Structures are rivals where they have the same data."""
    for value in result.values:
        series = result.experiment.series_at(value)
        found = {one.label: time for one in series if (time := result.at(one.label, value, "match_us")) is not None}
        for own in series:
            rivals = [one.label for one in series if one.data == own.data and one.structure != "auto"]
            rivals = [label for label in rivals if label in found]
            if own.structure == "auto" and own.label in found and rivals:
                rival = min(rivals, key=lambda label: found[label])
                shown = value if isinstance(value, str) else f"{value:,}"
                where = f"{result.name}, {shown} {result.experiment.x}" + (f", {own.data}" if own.data else "")
                yield Point(where, found[own.label], rival, found[rival])


def write(standing: Standing) -> str:
    """The sentence, and the points at which it is slowest."""
    if not standing.worst:
        return standing.line + "\n"
    rows = [f"| {p.where} | {p.auto:.3g} | {p.rival} | {p.fastest:.3g} | {p.ratio:.2f} |" for p in standing.worst]
    head = ["| slowest at | `auto`, µs per event | fastest | its µs | times |", "| --- | ---: | --- | ---: | ---: |"]
    return "\n".join([standing.line + "\n", *head, *rows]) + "\n"
