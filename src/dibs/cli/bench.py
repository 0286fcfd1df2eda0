"""dibs bench: the experiments of the papers, on this machine."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from dibs.cli.outcome import outcome, say
from dibs.cli.progress import bar

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="The figures of the papers, measured here: structures as published, and `auto`.",
)
NOISE = 0.1  # so much of a difference may be the machine's, whatever the repeats say
MEASURES = {"match_us": "microseconds per event", "build_s": "seconds to build", "bytes": "bytes"}
COLUMNS = ("build_s", "bytes", "match_us", "median_us", "matches", "candidates", "predicates", "nodes", "refused")


@app.command("list", help="Name all experiments.")
def list_them() -> None:
    from dibs.workloads.figures import EXPERIMENTS

    with outcome():
        for name, its in EXPERIMENTS.items():
            typer.echo(f"{name:26} {its.about}; by {its.x}: {', '.join(f'{v:,}' for v in its.values)}")


FIGURE_HELP = """
Measure one experiment: OUT/NAME.json and .csv, and with matplotlib (pip install 'dibs[bench]') .svg and .png.

\b
    dibs bench figure pstree-9a --scale 0.05 --out figures

Sizes are the paper's times the scale. Points that OUT/NAME.json holds for the same scale and seed are kept, so that a
run that was cut short goes on. All structures of a point must find the same matches, or nothing is written for it.
"""


@app.command(help=FIGURE_HELP)
def figure(
    name: Annotated[str, typer.Argument(help="A name that `dibs bench list` shows.")],
    scale: Annotated[float, typer.Option(help="Times the paper's sizes.", min=0.000001, max=100.0)] = 0.1,
    out: Annotated[Path, typer.Option(help="A folder for the results.")] = Path("figures"),
    seed: Annotated[int, typer.Option(help="Of the workload: the same data for the same seed.", min=0)] = 1,
) -> None:
    from dibs.workloads.figures import experiment, measure_point

    with outcome():
        wanted = experiment(name)
        out.mkdir(parents=True, exist_ok=True)
        path = out / f"{name}.json"
        known = json.loads(path.read_text()) if path.exists() else {}
        points = known["points"] if known.get("settings") == [scale, seed] else []
        result: dict[str, Any] = {"name": name, "about": wanted.about, "x": wanted.x, "measure": wanted.measure}
        result |= {"settings": [scale, seed], "points": points}
        with bar(name, len(wanted.values)) as progress:
            for number, value in enumerate(wanted.values):
                progress(number)
                if all(point["x"] != value for point in points):
                    points.append(measure_point(name, value, scale, seed))
                    _write(path, json.dumps(result, indent=1))
        _write_csv(out / f"{name}.csv", points)
        _show(result)
        if not _draw(result, out / name):
            say("no matplotlib, so no pictures: pip install 'dibs[bench]'")


def _write(path: Path, text: str) -> None:
    """At once: a run that is cut short leaves the old file or the new one."""
    beside = path.with_name(path.name + ".partial")
    beside.write_text(text)
    os.replace(beside, path)


def _write_csv(path: Path, points: list[dict[str, Any]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["x", "subscriptions", "structure", *COLUMNS])
        for point in points:
            for label, row in point["rows"].items():
                writer.writerow([point["x"], point["subscriptions"], label, *(row.get(c, "") for c in COLUMNS)])


def _labels(result: dict[str, Any]) -> list[str]:
    return list(dict.fromkeys(label for point in result["points"] for label in point["rows"]))


def _show(result: dict[str, Any]) -> None:
    measure = result["measure"]
    typer.echo(f"{result['about']}; {MEASURES[measure]}, best of several")
    labels = _labels(result)
    typer.echo("  ".join([f"{result['x']:>14}", *(f"{label:>18}" for label in labels)]))
    for point in result["points"]:
        cells = (point["rows"].get(label, {}).get(measure) for label in labels)
        typer.echo(
            "  ".join([f"{point['x']:>14,}", *(f"{'refused' if c is None else f'{c:,.4g}':>18}" for c in cells)])
        )


def _draw(result: dict[str, Any], path: Path) -> bool:
    """The picture as SVG and PNG; False without matplotlib."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    drawn, axes = plt.subplots(figsize=(7, 4.5))
    for label, marker in zip(_labels(result), "os^vDP*Xdph<>"):
        found = [(p["x"], p["rows"].get(label, {}).get(result["measure"])) for p in result["points"]]
        found = [(x, y) for x, y in found if y]
        style = {"color": "#0b6e99", "linewidth": 2.5} if label == "auto" else {"linewidth": 1}
        axes.plot(*zip(*found) if found else ([], []), marker=marker, markersize=4, label=label, **style)
    values = [point["x"] for point in result["points"]]
    axes.set_xscale("log" if min(values) > 0 and max(values) > 20 * min(values) else "linear")
    axes.set_yscale("log")
    axes.set(
        xlabel=result["x"],
        ylabel=MEASURES[result["measure"]],
        title=f"{result['about']}, scale {result['settings'][0]}",
    )
    axes.grid(color="#e6e6e6")
    axes.legend(fontsize=8, frameon=False, bbox_to_anchor=(1.02, 1), loc="upper left")
    for ending in ("svg", "png"):
        drawn.savefig(path.with_suffix(f".{ending}"), bbox_inches="tight", dpi=120)
    plt.close(drawn)
    return True


COMPARE_HELP = """
Hold two results of one experiment against each other: is B noise, better or worse?

\b
    dibs bench compare before/pstree-9a.json after/pstree-9a.json

A difference is noise below a tenth, or where the repeats of A and B overlap. Exit code 1 when something is worse.
"""


@app.command(help=COMPARE_HELP)
def compare(
    a: Annotated[Path, typer.Argument(help="A result: NAME.json.", exists=True, dir_okay=False)],
    b: Annotated[Path, typer.Argument(help="Another one.", exists=True, dir_okay=False)],
) -> None:
    with outcome():
        first, second = (json.loads(path.read_text()) for path in (a, b))
        if (first["name"], first["settings"]) != (second["name"], second["settings"]):
            raise typer.BadParameter(
                f"{a} is {first['name']} at {first['settings']} (scale and seed), {b} is {second['name']} at "
                f"{second['settings']}: measure the same twice"
            )
        worse = 0
        later = {point["x"]: point["rows"] for point in second["points"]}
        for point in first["points"]:
            for label, row in point["rows"].items():
                other = later.get(point["x"], {}).get(label, {})
                if "all_us" not in row or "all_us" not in other:
                    continue
                verdict = judge(row["all_us"], other["all_us"])
                worse += verdict == "worse"
                times = f"{row['match_us']:,.2f} -> {other['match_us']:,.2f} us"
                typer.echo(f"{first['x']} {point['x']:,}: {label}: {times}: {verdict}")
        if worse:
            raise typer.Exit(1)


def judge(before: list[float], after: list[float]) -> str:
    """By the times of the repeats."""
    if abs(min(after) - min(before)) <= NOISE * min(before):
        return "noise"
    if max(after) < min(before):
        return "better"
    return "worse" if min(after) > max(before) else "noise"
