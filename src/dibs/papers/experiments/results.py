"""Points of experiments to files, and back.

FOLDER/NAME.json holds what was measured, with the settings; experiments that share points share the file. A run that
was cut short goes on: points of the same settings are kept.
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dibs.errors import DibsError
from dibs.papers.experiments import find
from dibs.papers.experiments.experiment import Experiment, Size
from dibs.papers.experiments.measure import measure_point

COLUMNS = (
    "build_s",
    "bytes",
    "match_us",
    "median_us",
    "insert_us",
    "delete_us",
    "matches",
    "candidates",
    "predicates",
    "nodes",
    "refused",
)


@dataclass(frozen=True)
class Result:
    """What an experiment gave."""

    name: str
    experiment: Experiment
    settings: dict[str, Any]
    points: list[dict[str, Any]]

    @property
    def labels(self) -> list[str]:
        return list(dict.fromkeys(label for point in self.points for label in point["rows"]))

    @property
    def values(self) -> list[Any]:
        return [point["x"] for point in self.points]

    def at(self, label: str, value: Any, measure: str) -> float | None:
        """None: refused, or not measured."""
        for point in self.points:
            if point["x"] == value:
                found: float | None = point["rows"].get(label, {}).get(measure)
                return found
        return None

    def line(self, label: str, measure: str) -> list[float | None]:
        return [point["rows"].get(label, {}).get(measure) for point in self.points]


def path_of(name: str, folder: Path) -> Path:
    return folder / f"{find(name).points_of or name}.json"


def run(name: str, folder: Path, size: Size, progress: Callable[[int], None] = lambda done: None) -> Result:
    """Measures what is not measured yet."""
    experiment, path = find(name), path_of(name, folder)
    folder.mkdir(parents=True, exist_ok=True)
    settings = size._asdict()
    known = json.loads(path.read_text()) if path.exists() else {}
    points = known["points"] if known.get("settings") == settings else []
    for done, value in enumerate(experiment.values):
        progress(done)
        if all(point["x"] != value for point in points):
            points.append(_round(measure_point(experiment, value, size)))
            points.sort(key=lambda point: experiment.values.index(point["x"]))
            _write(path, {"name": path.stem, "settings": settings, "points": points})
    return Result(name, experiment, settings, points)


def read(name: str, folder: Path) -> Result:
    """What was measured before."""
    path = path_of(name, folder)
    try:
        known = json.loads(path.read_text())
    except FileNotFoundError:
        raise DibsError(f"{path} does not exist: measure it first (dibs bench figure {name} --out {folder})") from None
    except ValueError as e:
        raise DibsError(f"{path} is no JSON ({e}): give a folder that dibs bench wrote") from None
    return Result(name, find(name), known["settings"], known["points"])


def write_csv(result: Result, path: Path) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["x", "subscriptions", "structure", *COLUMNS])
        for point in result.points:
            for label, row in point["rows"].items():
                writer.writerow([point["x"], point["subscriptions"], label, *(row.get(c, "") for c in COLUMNS)])


def _write(path: Path, content: dict[str, Any]) -> None:
    """At once: a run that is cut short leaves the old file or the new one. A line for each structure at each point."""
    points = []
    for point in content["points"]:
        rows = ",\n".join(f"  {json.dumps(label)}: {json.dumps(row)}" for label, row in point["rows"].items())
        about = json.dumps({key: value for key, value in point.items() if key != "rows"})
        points.append(f'{about[:-1]}, "rows": {{\n{rows}}}}}')
    head = json.dumps({key: value for key, value in content.items() if key != "points"})
    beside = path.with_name(path.name + ".partial")
    beside.write_text(f'{head[:-1]}, "points": [\n' + ",\n".join(points) + "]}\n")
    os.replace(beside, path)


def _round(value: Any) -> Any:
    """Numbers of four digits: more are noise."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {key: item if key == "x" else _round(item) for key, item in value.items()}
    return [_round(item) for item in value] if isinstance(value, list) else value
