"""The plots of docs/benchmarks: SVG, white background, the same bytes for the same results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dibs.papers.experiments.pictures import set_plain_ticks
from words import STAGES, number

SHAPES = ("sparse", "dense", "zipf", "ads", "retail")
# Ours in strong colours, everybody else in greys; told apart without colour by their order, which the legend repeats.
COLOURS = {
    "scan": "#d9d9d9",
    "NumPy counting": "#b3b3b3",
    "access lists": "#8c8c8c",
    "bit slices": "#595959",
    "match_batch": "#f0a202",
    "auto": "#0b6e99",
}
STYLE = {
    "figure.facecolor": "white",
    "axes.facecolor": "white",
    "savefig.facecolor": "white",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e6e6e6",
    "font.size": 10,
    "svg.hashsalt": "dibs",
}


def draw(results: dict[str, Any], folder: Path) -> list[Path]:
    """Draws every plot; the files."""
    folder.mkdir(parents=True, exist_ok=True)
    sections = results["sections"]
    written = []
    with plt.rc_context(STYLE):
        for name, plot in (
            ("matching", _matching),
            ("growth", _growth),
            ("single", _single),
            ("batches", _batches),
            ("structures", _structures),
            ("pages", _pages),
            ("live", _live),
            ("outside", _outside),
        ):
            if name == "outside" and name not in sections:
                continue
            figure = plot(sections)
            path = folder / f"{name}.svg"
            figure.savefig(path, bbox_inches="tight", metadata={"Date": None})
            plt.close(figure)
            written.append(path)
    return written


def _matching(sections: dict[str, Any]) -> Figure:
    figure, axes = plt.subplots(figsize=(9, 4))
    width = 0.8 / len(COLOURS)
    for k, (name, colour) in enumerate(COLOURS.items()):
        times = [sections[s]["microseconds per event"][name]["best"] for s in SHAPES]
        places = [i - 0.4 + (k + 0.5) * width for i in range(len(SHAPES))]
        bars = axes.bar(places, times, width * 0.92, color=colour, label=name)
        if name in ("auto", "match_batch"):
            axes.bar_label(bars, [_show(t) for t in times], fontsize=7, padding=1)
    axes.set_yscale("log")
    set_plain_ticks(axes.yaxis)
    axes.set_xticks(range(len(SHAPES)), SHAPES)
    axes.grid(axis="x", visible=False)
    axes.set_ylabel("microseconds per event (log)")
    subscriptions = sections["sparse"]["subscriptions"]
    axes.set_title(f"One event against {subscriptions:,} subscriptions, lower is better", loc="left", fontsize=11)
    axes.legend(ncols=4, fontsize=8, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.08))
    return figure


def _growth(sections: dict[str, Any]) -> Figure:
    figure, axes = plt.subplots(figsize=(6, 4))
    for shape, colour in (("sparse", "#0b6e99"), ("dense", "#f0a202")):
        points = sections[f"growth-{shape}"]["points"]
        n, times = [p["subscriptions"] for p in points], [p["microseconds per event"] for p in points]
        axes.plot(n, times, "o-", color=colour, label=shape)
        for x, y in zip(n, times):
            axes.annotate(_show(y), (x, y), (5, -11), textcoords="offset points", fontsize=8)
        axes.plot(n, [times[0] * x / n[0] for x in n], ":", color=colour, linewidth=1)
    axes.margins(y=0.12)  # room for the lowest number
    axes.plot([], [], ":", color="#595959", linewidth=1, label="in proportion")
    axes.set_xscale("log")
    axes.set_yscale("log")
    ticks = [p["subscriptions"] for p in sections["growth-sparse"]["points"]]
    axes.set_xticks(ticks, [f"{x:,}" for x in ticks])
    axes.tick_params(axis="x", which="minor", bottom=False, labelbottom=False)
    set_plain_ticks(axes.yaxis)
    axes.set_xlabel("subscriptions (log)")
    axes.set_ylabel("microseconds per event (log)")
    axes.set_title("auto, coded batches, one thread", loc="left", fontsize=11)
    axes.legend(frameon=False)
    return figure


def _single(sections: dict[str, Any]) -> Figure:
    figure, axes = plt.subplots(figsize=(8, 3))
    colours = ("#f0a202", "#e8c468", "#7fc4de", "#b3b3b3")
    for kind in ("many matches", "few matches"):
        found, left = sections["single"][kind], 0.0
        batch, call = f"{kind}, a batch of one", f"{kind}, match(dict)"
        for name, colour in zip(STAGES, colours):
            label = f"a batch of one: {name}" if kind == "few matches" else None
            axes.barh(batch, found["stages"][name], left=left, color=colour, label=label, height=0.6)
            left += found["stages"][name]
        time = found["microseconds per event"]["match(dict)"]
        axes.barh(call, time, color="#0b6e99", height=0.6)
        for row, end in ((batch, left), (call, time)):
            axes.annotate(f"{end:.0f}", (end, row), xytext=(3, 0), textcoords="offset points", va="center", fontsize=8)
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("microseconds per event")
    axes.set_title("One event at a time: the compiled call, and the stages of a batch of one", loc="left", fontsize=11)
    axes.legend(ncols=2, fontsize=8, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.2))
    return figure


def _batches(sections: dict[str, Any]) -> Figure:
    figure, axes = plt.subplots(figsize=(6, 4))
    for shape, colour in (("sparse", "#0b6e99"), ("dense", "#f0a202")):
        times = sections["cliffs"]["batch sizes"][shape]
        _line(axes, [int(s) for s in times], list(times.values()), colour, shape)
    axes.set_xscale("log")
    axes.set_yscale("log")
    sizes = [int(s) for s in sections["cliffs"]["batch sizes"]["sparse"]]
    axes.set_xticks(sizes, [f"{s:,}" for s in sizes])
    axes.tick_params(axis="x", which="minor", bottom=False, labelbottom=False)
    set_plain_ticks(axes.yaxis)
    axes.set_xlabel("events of a batch (log)")
    axes.set_ylabel("microseconds per event (log)")
    axes.set_title("auto by batch size, coded batches, one thread", loc="left", fontsize=11)
    axes.legend(frameon=False)
    return figure


def _structures(sections: dict[str, Any]) -> Figure:
    """A panel for each workload; bars of fewer subscriptions are hatched and say how many."""
    section = sections["structures"]
    workloads, subscriptions = section["workloads"], section["subscriptions"]
    most = max(len(w["rows"]) for w in workloads.values())
    lines = -(-len(workloads) // 2)
    columns = min(len(workloads), 2)
    figure, panels = plt.subplots(
        lines, columns, figsize=(5.5 * columns, lines * (0.9 + 0.22 * most)), squeeze=False, layout="constrained"
    )
    for axes, (shape, workload) in zip(panels.flat, workloads.items()):
        rows = [row for row in workload["rows"] if "microseconds per event" in row]
        rows.sort(key=lambda row: row["microseconds per event"], reverse=True)
        for place, row in enumerate(rows):
            name, time = row["structure"], row["microseconds per event"]
            fewer = row["subscriptions"] < subscriptions
            colour = COLOURS["auto"] if name == "auto" else "#d9d9d9" if fewer else "#8c8c8c"
            axes.barh(place, time, 0.75, color=colour, hatch="///" if fewer else None, edgecolor="white")
            text = f" {_show(time)}" + (f"  ({row['subscriptions']:,} subscriptions)" if fewer else "")
            axes.text(time, place, text, va="center", fontsize=7)
        axes.set_yticks(range(len(rows)), [row["structure"] for row in rows], fontsize=8)
        axes.set_xscale("log")
        times = [row["microseconds per event"] for row in rows]
        axes.set_xlim(min(times) / 2, max(times) * 8)  # room for the numbers
        set_plain_ticks(axes.xaxis)
        axes.grid(axis="y", visible=False)
        axes.set_xlabel("microseconds per event (log)", fontsize=8)
        axes.set_title(f"{shape}, {subscriptions:,} subscriptions", loc="left", fontsize=10)
    for axes in list(panels.flat)[len(workloads) :]:
        axes.set_visible(False)
    return figure


def _pages(sections: dict[str, Any]) -> Figure:
    figure, axes = plt.subplots(figsize=(6, 4))
    for (shape, workload), colour in zip(sections["pages"]["workloads"].items(), ("#f0a202", "#0b6e99")):
        points = workload["points"]
        n = [p["subscriptions"] for p in points]
        _line(axes, n, [p["pages per event"] for p in points], colour, shape)
        most = [p["pages per event at most"] for p in points]
        axes.plot(n, most, ":", color=colour, linewidth=1, label=f"{shape}: at most, by log n and output")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks(n, [f"{x:,}" for x in n])
    axes.tick_params(axis="x", which="minor", bottom=False, labelbottom=False)
    set_plain_ticks(axes.yaxis)
    axes.set_xlabel("subscriptions (log)")
    axes.set_ylabel("pages per event (log)")
    axes.set_title("pbtree on disk: pages that an event touches", loc="left", fontsize=11)
    axes.legend(frameon=False, fontsize=8)
    return figure


def _live(sections: dict[str, Any]) -> Figure:
    """Bars: what is left of the throughput of an idle matcher."""
    figure, axes = plt.subplots(figsize=(7, 3.2))
    matchers = sections["live"]["matchers"]
    bars = []
    for m in matchers:
        for kind in ("batches", "single events"):
            for row in m[kind]["rows"]:
                bars.append((f"{row['rate']:,} per second\n{m['where']}, {kind}", row["of idle"], kind))
    for place, (_, share, kind) in enumerate(bars):
        axes.bar(place, share, 0.7, color=COLOURS["auto"] if kind == "batches" else COLOURS["match_batch"])
        axes.text(place, share, f"{share:.2f}", ha="center", va="bottom", fontsize=8)
    axes.axhline(1, color="#595959", linewidth=1, linestyle=":")
    axes.set_xticks(range(len(bars)), [name for name, *_ in bars], fontsize=7, rotation=30, ha="right")
    axes.set_ylim(0, 1.15)
    axes.grid(axis="x", visible=False)
    axes.set_ylabel("share of the idle throughput")
    axes.set_title("Matching while subscriptions are added and removed at a rate", loc="left", fontsize=11)
    return figure


def _outside(sections: dict[str, Any]) -> Figure:
    section = sections["outside"]
    groups = []
    for shape, workload in section["workloads"].items():
        for kind, title in (("join", "joins"), ("rules", "rules")):
            found = workload[kind]
            groups.append((f"{shape}, {found['subscriptions']:,}, {title}", found["microseconds per event"]))
    found = section["patterns"]
    groups.append((f"texts, {found['patterns']:,} words", found["microseconds per string"]))
    engines = section.get("engines", {})
    groups += [(f"JSON text, {title}", found["microseconds per event"]) for title, found in engines.items()]
    columns = 2
    lines = -(-len(groups) // columns)
    figure, panels = plt.subplots(lines, columns, figsize=(10, 1.7 * lines), squeeze=False, layout="constrained")
    for axes in list(panels.flat)[len(groups) :]:
        axes.set_visible(False)
    for axes, (title, times) in zip(panels.flat, groups):
        names = sorted(times, key=lambda name: -times[name])
        colours = [COLOURS["auto"] if name.startswith("dibs") else "#8c8c8c" for name in names]
        bars = axes.barh(names, [times[name] for name in names], 0.7, color=colours)
        axes.bar_label(bars, [number(times[name]) for name in names], fontsize=8, padding=2)
        axes.set_xscale("log")
        axes.set_xlim(min(times.values()) / 3, max(times.values()) * 10)  # room for the numbers
        set_plain_ticks(axes.xaxis)
        axes.tick_params(labelsize=8)
        axes.grid(axis="y", visible=False)
        axes.set_xlabel("microseconds per event (log)", fontsize=8)
        axes.set_title(title, loc="left", fontsize=9)
    return figure


def _line(axes: Axes, x: list[int], y: list[float], colour: str, label: str) -> None:
    axes.plot(x, y, "o-", color=colour, label=label)
    for a, b in zip(x, y):
        axes.annotate(_show(b), (a, b), (4, 5), textcoords="offset points", fontsize=8)


def _show(value: float) -> str:
    """Two digits that count; all of what is large."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"
