"""Results to pictures: a panel for each measure of each experiment, one legend for all. Needs matplotlib."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

from dibs.papers.experiments.experiment import MEASURES, OURS_TOO
from dibs.papers.experiments.results import Result
from dibs.papers.experiments.whys import BUILT

# Structures keep their colour and mark from figure to figure, dotted as they became here; `auto` is thick and blue.
LOOKS = {
    "auto": ("#0b6e99", "o"),
    "SCAN": ("#b3b3b3", "s"),
    "k-index": ("#8c564b", "^"),
    "Propagation": ("#2ca02c", "v"),
    "Gryphon": ("#17becf", "<"),
    "SIFT": ("#bcbd22", ">"),
    "OpIndex": ("#ff7f0e", "D"),
    "OpIndex-BS": ("#ffbb78", "d"),
    "BE-Tree": ("#d62728", "P"),
    "BE-Tree, batch": ("#ff9896", "X"),
    "PSTBloom": ("#9467bd", "*"),
    "PSTHash": ("#e377c2", "h"),
    "auto, CNF": ("#0b6e99", "o"),
    "auto, DNF": ("#6fb7d6", "o"),
    "naive": ("#7f7f7f", "s"),
}
OTHERS = (("#262626", "p"), ("#c49c94", "H"), ("#4d7c0f", "8"), ("#7c2d12", "^"), ("#0f766e", "v"), ("#581c87", "D"))
NOTHING_BUILT = "SCAN"
NARROW = 3
LABELLED = ((30, "235"), (300, "25"))  # an axis of less than so many times: which first digits, beside powers of ten
STYLE = {
    "figure.facecolor": "white",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "font.size": 9,
    "svg.hashsalt": "dibs",
    "svg.fonttype": "none",
}


def group(names: Sequence[str]) -> dict[str, list[str]]:
    """Names of experiments by the figure that they are pictures of: 5a and 5b are figure 5."""
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(re.sub(r"(?<=\d)[a-z]$", "", name), []).append(name)
    return found


def draw(results: Sequence[Result], path: Path, endings: Sequence[str] = ("svg", "png")) -> list[Path]:
    """The pictures of some experiments in one file, for each ending; nothing without matplotlib."""
    try:
        import matplotlib
    except ImportError:
        return []
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    panels = [(result, measure) for result in results for measure in result.experiment.measures]
    columns = min(len(panels), 2 if len(panels) in (2, 4, 8) else 3)
    lines = -(-len(panels) // columns)
    labels = list(dict.fromkeys(label for result in results for label in result.labels))
    looks = _choose_looks(labels)
    with plt.rc_context(STYLE):
        figure, grid = plt.subplots(
            lines, columns, figsize=(4.6 * columns, 3.4 * lines + 0.5), squeeze=False, layout="constrained"
        )
        for axes in list(grid.flat)[len(panels) :]:
            axes.set_visible(False)
        for axes, (result, measure) in zip(grid.flat, panels):
            (_draw_lines if len(result.points) > 1 else _draw_bars)(axes, result, measure, looks)
        handles = {h.get_label(): h for axes in grid.flat for h in axes.get_legend_handles_labels()[0]}
        if handles:
            shown = [handles[label] for label in labels if label in handles]
            figure.legend(
                handles=shown, ncols=min(len(shown), 5 if columns > 1 else 2), frameon=False, loc="outside lower center"
            )
        scales = sorted({result.settings["scale"] for result in results})
        scaled = " to ".join(f"{scale:.4g}" for scale in dict.fromkeys((scales[0], scales[-1])))
        share = "the paper's sizes" if scaled == "1" else f"{scaled} of the paper's sizes"
        figure.suptitle(f"{share}; lower is better", fontsize=9)
        written = []
        for ending in endings:
            written.append(path.with_name(f"{path.name}.{ending}"))
            metadata = {"Date": None} if ending == "svg" else None
            figure.savefig(written[-1], dpi=110, metadata=metadata)
        plt.close(figure)
    return written


def _choose_looks(labels: Sequence[str]) -> dict[str, tuple[str, str]]:
    others = cycle(OTHERS)
    named = dict.fromkeys(label.removesuffix(OURS_TOO) for label in labels)
    looks = {label: LOOKS.get(label) or next(others) for label in named}
    return {label: looks[label.removesuffix(OURS_TOO)] for label in labels}


def _draw_lines(axes: Any, result: Result, measure: str, looks: dict[str, tuple[str, str]]) -> None:
    words = any(isinstance(value, str) for value in result.values)
    places = list(range(len(result.values))) if words else result.values
    for label in result.labels:
        if label == NOTHING_BUILT and measure in BUILT:
            continue
        found = [(x, y) for x, y in zip(places, result.line(label, measure)) if y]
        colour, mark = looks[label]
        thick = 2.5 if label.startswith("auto") else 1.2
        if found:
            style = {"linestyle": ":", "markersize": 3} if label.endswith(OURS_TOO) else {"markersize": 4}
            axes.plot(*zip(*found), color=colour, marker=mark, linewidth=thick, label=label, **style)
    wide = not words and min(places) > 0 and max(places) >= 4 * min(places) and len(places) > 2
    if wide:
        axes.set_xscale("log")
        if len(places) > 6:
            set_plain_ticks(axes.xaxis)
    if words or len(places) <= 6:
        axes.set_xticks(places, [value if words else _shorten(value) for value in result.values])
        axes.tick_params(axis="x", which="minor", bottom=False, labelbottom=False)
    shown = [y for label in result.labels for y in result.line(label, measure) if y]
    narrow = bool(shown) and max(shown) < NARROW * min(shown)
    if narrow:  # from 0: what hardly changes should look so
        axes.set_ylim(0, 1.15 * max(shown))
    else:
        axes.set_yscale("log")
        set_plain_ticks(axes.yaxis)
    axes.set(xlabel=result.experiment.x, ylabel=MEASURES[measure] + ("" if narrow else " (log)"))
    axes.grid(color="#e6e6e6")
    axes.set_title(_title(result), loc="left", fontsize=9)


def _draw_bars(axes: Any, result: Result, measure: str, looks: dict[str, tuple[str, str]]) -> None:
    """A table of the paper: one value."""
    values = {label: result.line(label, measure)[0] or 0.0 for label in reversed(result.labels)}
    found = [(label, value) for label, value in values.items() if value]
    if measure in BUILT:
        found = [(label, value) for label, value in found if label != NOTHING_BUILT]
    bars = axes.barh(
        [label for label, _ in found], [value for _, value in found], color=[looks[label][0] for label, _ in found]
    )
    axes.bar_label(bars, [_shorten(value) for _, value in found], fontsize=8, padding=2)
    axes.set_xscale("log")
    if found:
        shown = [value for _, value in found]
        axes.set_xlim(min(shown) / 3, max(shown) * 8)  # room for the numbers
        set_plain_ticks(axes.xaxis)
    axes.set_xlabel(f"{MEASURES[measure]} (log)")
    axes.set_title(_title(result), loc="left", fontsize=9)


def _shorten(value: float) -> str:
    """1,500,000 as 1.5M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


def set_plain_ticks(axis: Any) -> None:
    """0.5, 20, 300k: no powers. Between the powers the more labels the fewer of them the axis spans."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    low, high = axis.get_view_interval()
    axis.set_major_formatter(FuncFormatter(lambda value, _: _shorten(value)))
    span = high / max(low, 1e-12)
    digits = next((digits for most, digits in LABELLED if span < most), "")
    axis.set_minor_formatter(
        FuncFormatter(lambda value, _: _shorten(value) if f"{value:e}"[0] in digits else "")
        if digits
        else NullFormatter()
    )


def _title(result: Result) -> str:
    """Without the paper, which the page names, and with the true sizes; on several lines where it is long."""
    about = textwrap.wrap(result.experiment.about.partition(", ")[2], 52)
    return "\n".join([*about, *textwrap.wrap(result.sizes, 60)])
