"""dibs bench: the experiments of the papers, on this machine, and what becomes of their claims."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dibs.cli.outcome import outcome, say
from dibs.cli.progress import bar

if TYPE_CHECKING:
    from dibs.papers.experiments.results import Result

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="The figures of the papers, measured here: structures as published, and `auto`.",
)
NOISE = 0.1  # so much of a difference may be the machine's, whatever the repeats say


@app.command("list", help="Name all experiments.")
def list_them() -> None:
    from dibs.papers.experiments import EXPERIMENTS

    with outcome():
        for name, its in EXPERIMENTS.items():
            values = ", ".join(v if isinstance(v, str) else f"{v:,}" for v in its.values)
            typer.echo(f"{name:18} {its.about}; by {its.x}: {values}" + (" at scale 1" if its.is_size else ""))


FIGURE_HELP = """
Measure one experiment: OUT/NAME.json and .csv, and with matplotlib (pip install 'dibs[bench]') .svg and .png.

\b
    dibs bench figure pstree-9a --scale 0.05 --out figures

The scale is the share of the paper's subscriptions and documents that is measured; 1 is all of them. What is written
has the true numbers. A structure at a point is saved when it is done: what OUT holds for the same scale is kept, so
that a run that was cut short goes on, and figures that show the same points share them. All structures of a point
must find the same matches, or nothing is written for it. One that takes more memory or time than it may has the
reason in place of figures.
"""
Scale = Annotated[
    float, typer.Option(help="The share of the paper's sizes: 1 is the paper's own.", min=0.000001, max=100.0)
]
Out = Annotated[Path, typer.Option(help="A folder for the results.")]
Seed = Annotated[int, typer.Option(help="Of the workload: the same data for the same seed.", min=0)]
Seeds = Annotated[int, typer.Option(help="How many seeds, from --seed on: verdicts ask for several.", min=1)]
Gigabytes = Annotated[float, typer.Option(help="The most memory of a structure at a point.", min=0.1)]
Minutes = Annotated[float, typer.Option(help="The most processor time of a structure at a point.", min=0.01)]


@app.command(help=FIGURE_HELP)
def figure(
    name: Annotated[str, typer.Argument(help="A name that `dibs bench list` shows.")],
    scale: Scale = 0.01,
    out: Out = Path("figures"),
    seed: Seed = 1,
    seeds: Seeds = 1,
    gigabytes: Gigabytes = 12,
    minutes: Minutes = 10,
) -> None:
    with outcome():
        _measure(name, out, scale, seed, seeds, gigabytes, minutes)


ALL_HELP = """
Measure every experiment, one after the other, as `dibs bench figure` does. At scale 1 that takes many hours: stop it
whenever you like, the next run goes on.

\b
    dibs bench all --scale 1 --seeds 3 --out figures
"""


@app.command("all", help=ALL_HELP)
def measure_all(
    scale: Scale = 0.01,
    out: Out = Path("figures"),
    seed: Seed = 1,
    seeds: Seeds = 1,
    gigabytes: Gigabytes = 12,
    minutes: Minutes = 10,
    only: Annotated[str, typer.Option(help="Names that begin so.")] = "",
) -> None:
    from dibs.papers.experiments import EXPERIMENTS

    with outcome():
        for name in EXPERIMENTS:
            if name.startswith(only):
                _measure(name, out, scale, seed, seeds, gigabytes, minutes)


def _measure(name: str, out: Path, scale: float, seed: int, seeds: int, gigabytes: float, minutes: float) -> None:
    from dibs.papers.experiments import find
    from dibs.papers.experiments.experiment import Size
    from dibs.papers.experiments.measure import Limits
    from dibs.papers.experiments.pictures import draw
    from dibs.papers.experiments.results import run, write_csv

    with bar(name, seeds * len(find(name).values)) as progress:
        result = run(name, out, Size(scale, seed), progress, seeds, Limits(gigabytes, minutes))
    write_csv(result, out / f"{name}.csv")
    _show(result)
    if not draw([result], out / name):
        say("no matplotlib, so no pictures: pip install 'dibs[bench]'")


VERDICTS_HELP = """
Judge every claim of the papers by results that were measured before, and write verdicts.md.

\b
    dibs bench all --scale 0.02 --seeds 3 --out figures
    dibs bench verdicts --results figures --out verdicts.md
"""


@app.command(help=VERDICTS_HELP)
def verdicts(
    results: Annotated[Path, typer.Option(help="The folder of the results.", exists=True, file_okay=False)],
    out: Annotated[Path, typer.Option(help="The page.")] = Path("verdicts.md"),
) -> None:
    from dibs.papers.experiments import standing
    from dibs.papers.experiments import verdicts as judging

    with outcome():
        found = judging.judge_all(results)
        auto = standing.judge(results)
        out.write_text(judging.write(found, judging.list_sizes(results), auto))
        for verdict in found:
            typer.echo(f"{verdict.claim.name:28} {verdict.word}")
        typer.echo(auto.line)
        for point in auto.worst:
            typer.echo(f"    {point.where}: {point.auto:.3g} µs, {point.rival} {point.fastest:.3g}")


def _show(result: Result) -> None:
    from dibs.papers.experiments.experiment import MEASURES

    for measure in result.experiment.measures:
        typer.echo(f"{result.experiment.about}; {MEASURES[measure]}, best of several; {result.sizes}")
        typer.echo("  ".join([f"{result.experiment.x:>14}", *(f"{label:>18}" for label in result.labels)]))
        for value in result.values:
            cells = (result.at(label, value, measure) for label in result.labels)
            shown = (f"{'' if c is None else f'{c:,.4g}':>18}" for c in cells)
            typer.echo("  ".join([f"{value if isinstance(value, str) else f'{value:,}':>14}", *shown]))


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
    from dibs.papers.experiments import find

    with outcome():
        first, second = (json.loads(path.read_text()) for path in (a, b))
        if (first["name"], first["settings"]) != (second["name"], second["settings"]):
            raise typer.BadParameter(
                f"{a} is {first['name']} with {first['settings']}, {b} is {second['name']} with {second['settings']}: "
                "measure the same twice"
            )
        worse = 0
        later = {(point["seed"], point["x"]): point["rows"] for point in second["points"]}
        for point in first["points"]:
            for label, row in point["rows"].items():
                other = later.get((point["seed"], point["x"]), {}).get(label, {})
                if "all_us" not in row or "all_us" not in other:
                    continue
                verdict = judge(row["all_us"], other["all_us"])
                worse += verdict == "worse"
                times = f"{row['match_us']:,.2f} -> {other['match_us']:,.2f} us"
                typer.echo(f"{find(first['name']).x} {point['x']}: {label}: {times}: {verdict}")
        if worse:
            raise typer.Exit(1)


def judge(before: list[float], after: list[float]) -> str:
    """By the times of the repeats."""
    if abs(min(after) - min(before)) <= NOISE * min(before):
        return "noise"
    if max(after) < min(before):
        return "better"
    return "worse" if min(after) > max(before) else "noise"
