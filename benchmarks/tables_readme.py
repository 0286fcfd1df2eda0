"""README's figures: the few that a reader wants first, out of the same results as docs/benchmarks."""

from __future__ import annotations

from typing import Any

from words import markdown, number

SHAPES = ("sparse", "dense", "zipf", "ads", "retail")
BASELINES = ("access lists", "bit slices")
RATES = (100, 1000)  # subscriptions added, and as many removed, per second


def write_readme(sections: dict[str, Any]) -> str:
    """What README says of speed."""
    times = {shape: sections[shape]["microseconds per event"] for shape in SHAPES}
    rows: list[list[Any]] = [
        ["`auto`, coded events", *(times[s]["auto"]["best"] for s in SHAPES)],
        [
            "`match_batch`, from Arrow batches to Arrow pairs",
            *(times[s]["match_batch"]["best"] for s in SHAPES),
        ],
        ["the better of two plain Numba kernels", *(min(times[s][b]["best"] for b in BASELINES) for s in SHAPES)],
        ["`scan`", *(times[s]["scan"]["best"] for s in SHAPES)],
        ["*matches per event*", *(sections[s]["matches per event"] for s in SHAPES)],
    ]
    table = markdown(["microseconds per event", *SHAPES], rows)
    count = f"{sections['sparse']['subscriptions']:,} subscriptions, one core:"
    return f"{count}\n\n{table}\n\n{_tell_single(sections)} {_tell_bulk(sections)} {_tell_changes(sections)}"


def _tell_single(sections: dict[str, Any]) -> str:
    few = sections["single"]["few matches"]
    return f"A single `match(dict)` takes {number(few['microseconds per event']['match(dict)'])} microseconds (sparse)."


def _tell_bulk(sections: dict[str, Any]) -> str:
    durable, seconds = sections["durable"], sections["durable"]["building"]["seconds"]
    size = sum(sections["bulk"]["bytes per subscription"].values())
    return (
        f"Adding {durable['subscriptions']:,} in bulk takes {number(seconds['add_table in memory'])} seconds "
        f"({number(seconds['add_table, durable'])} durable) and {number(size)} bytes each; opening them again takes "
        f"{number(durable['reopening']['seconds']['file cache warm'])} seconds, all checksums verified."
    )


def _tell_changes(sections: dict[str, Any]) -> str:
    kept = {
        (matcher["where"], row["rate"]): number(row["of idle"])
        for matcher in sections["live"]["matchers"]
        for row in matcher["batches"]["rows"]
        if matcher["index"] == "auto"
    }
    return " ".join(
        f"With {rate:,} added and {rate:,} removed per second, batches are matched at {kept['memory', rate]} of the "
        f"idle speed (durable {kept['durable', rate]})."
        for rate in RATES
        if ("memory", rate) in kept and ("durable", rate) in kept
    )
