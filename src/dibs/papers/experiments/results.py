"""Points of experiments to files, and back.

FOLDER/NAME.json holds what was measured, with the settings; experiments that share points share the file. It is
written again whenever a structure at a point is done, and a run goes on where the one before stopped: what was measured
with the same settings is kept. A point has the true numbers of what was measured (`x`, `subscriptions`, `events`, ...),
the value of the paper that it stands for (`of`), the seed of its data, and what measured it when.
"""

from __future__ import annotations

import csv
import datetime
import json
import os
import platform
import statistics
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from dibs.errors import DibsError
from dibs.papers.experiments import find
from dibs.papers.experiments.experiment import Experiment, Size
from dibs.papers.experiments.measure import Limits, measure_point

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
FACTS = ("seed", "subscriptions", "events", "attributes", "predicates", "values", "read_s", "code_s", "code_bytes")
SavedPoint = dict[str, Any]


@dataclass(frozen=True)
class Result:
    """What an experiment gave: a point for each value, of one seed or the medians of several."""

    name: str
    experiment: Experiment
    settings: dict[str, Any]
    points: list[SavedPoint]
    seeds: int = 1

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

    @property
    def sizes(self) -> str:
        """In words: so many subscriptions and events."""
        shown = [_say_range([point[what] for point in self.points if point.get(what)], what) for what in COUNTED]
        return ", ".join(filter(None, shown)) + (f", {self.seeds} seeds" if self.seeds > 1 else "")


COUNTED = ("subscriptions", "events")


def _say_range(numbers: Sequence[int], what: str) -> str:
    if not numbers:
        return ""
    return " to ".join(dict.fromkeys(f"{n:,}" for n in (min(numbers), max(numbers)))) + f" {what}"


FORMS = "published, ours"  # what is measured of each structure; results without it are of ours, by the plain names


def path_of(name: str, folder: Path) -> Path:
    return folder / f"{find(name).points_of or name}.json"


def run(
    name: str,
    folder: Path,
    size: Size,
    progress: Callable[[int], None] = lambda done: None,
    seeds: int = 1,
    limits: Limits | None = None,
) -> Result:
    """Measures what is not measured yet, with so many seeds from the size's own on."""
    experiment, path = find(name), path_of(name, folder)
    folder.mkdir(parents=True, exist_ok=True)
    settings = {key: value for key, value in size._asdict().items() if key != "seed"} | {"forms": FORMS}
    file = json.loads(path.read_text()) if path.exists() else {}
    points: list[SavedPoint] = file["points"] if file.get("settings") == settings else []
    order = {_key(value): place for place, value in enumerate(experiment.values)}
    known = {(point["seed"], _key(point["of"])): point for point in points}

    def save(point: SavedPoint) -> None:
        known[point["seed"], _key(point["of"])] = point = _round(point | {"made": _say_where_and_when()})
        points[:] = sorted(known.values(), key=lambda p: (p["seed"], order[_key(p["of"])]))
        _write(path, {"name": path.stem, "settings": settings, "points": points})

    wanted = range(size.seed, size.seed + seeds)
    for done, (seed, value) in enumerate((seed, value) for seed in wanted for value in experiment.values):
        progress(done)
        point = known.get((seed, _key(value)))
        labels = {one.label for one in experiment.series_at(value)}
        if point is None or not labels <= point["rows"].keys():
            measure_point(experiment, value, size._replace(seed=seed), point, save, limits)
    return Result(name, experiment, settings, _merge([p for p in points if p["seed"] in wanted]), seeds)


def _key(value: Any) -> str:
    """JSON has no difference between 1 and 1.0."""
    return value if isinstance(value, str) else f"{value:g}"


def read(name: str, folder: Path) -> Result:
    """What was measured before: the medians of all seeds."""
    file = _read(name, folder)
    seeds = len({point["seed"] for point in file["points"]})
    return Result(name, find(name), file["settings"], _merge(file["points"]), seeds)


def read_seeds(name: str, folder: Path) -> list[Result]:
    """The same, seed by seed."""
    file = _read(name, folder)
    seeds = dict.fromkeys(point["seed"] for point in file["points"])
    by_seed = ([point for point in file["points"] if point["seed"] == seed] for seed in seeds)
    return [Result(name, find(name), file["settings"], points) for points in by_seed]


def _read(name: str, folder: Path) -> dict[str, Any]:
    path = path_of(name, folder)
    try:
        file = json.loads(path.read_text())
        if not file["points"]:
            raise FileNotFoundError
        file["points"][0]["seed"]
    except FileNotFoundError:
        raise DibsError(f"{path} does not exist: measure it first (dibs bench figure {name} --out {folder})") from None
    except (ValueError, KeyError, TypeError) as e:
        raise DibsError(f"{path} is no result ({e!r}): give a folder that dibs bench wrote") from None
    found: dict[str, Any] = file
    return found


def _merge(points: Sequence[SavedPoint]) -> list[SavedPoint]:
    """Points of several seeds to one for each value: medians of what was measured with most of them."""
    together: dict[str, list[SavedPoint]] = {}
    for point in points:
        together.setdefault(_key(point["of"]), []).append(point)
    return [_median(of_one) if len(of_one) > 1 else of_one[0] for of_one in together.values()]


def _median(points: Sequence[SavedPoint]) -> SavedPoint:
    rows = {}
    for label in points[0]["rows"]:
        own = [point["rows"].get(label, {}) for point in points]
        measured = [row for row in own if "match_us" in row]
        if 2 * len(measured) <= len(own):
            rows[label] = next(row for row in own if "match_us" not in row)
        else:
            rows[label] = {key: _middle([row.get(key) for row in measured]) for key in measured[0]}
    return points[0] | {"rows": rows}


def _middle(found: Sequence[Any]) -> Any:
    numbers = [value for value in found if isinstance(value, (int, float))]
    return statistics.median(numbers) if len(numbers) == len(found) else found[0]


def write_csv(result: Result, path: Path) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["x", "in the paper", *FACTS, "structure", *COLUMNS])
        for point in result.points:
            facts = [point["x"], point["of"], *(point.get(fact, "") for fact in FACTS)]
            for label, row in point["rows"].items():
                writer.writerow([*facts, label, *(row.get(c, "") for c in COLUMNS)])


@lru_cache(maxsize=1)
def _say_where() -> str:
    here = Path(__file__).parent
    command = ["git", "-C", str(here), "describe", "--always", "--dirty"]
    try:
        commit = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        commit = "a release"
    return f"{commit}, {_processor()}, {os.cpu_count()} cores"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _say_where_and_when() -> str:
    """What an author would give: the version, the machine and the date."""
    return f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d}, {_say_where()}"


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
        return {key: item if key in ("x", "of") else _round(item) for key, item in value.items()}
    return [_round(item) for item in value] if isinstance(value, list) else value
