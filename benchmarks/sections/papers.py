"""Every figure and table of the papers' evaluations (dibs.experiments), at a scale; VERDICTS.md follows from them.

A process for each core measures one experiment after the other: structures take turns inside a process, and processor
time counts, so the other process disturbs all of them alike.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from dibs.experiments import EXPERIMENTS, verdicts
from dibs.experiments import results as files
from dibs.experiments.experiment import Size as FigureSize
from measure import Say, Size

# Where structures are fast and attributes many, a small share of the subscriptions would leave hardly any for each.
TIMES = {
    "opindex": 5,
    "betree-table": 10,
    "betree-7": 5,
    "betree-8": 5,
    "betree-9": 5,
    "betree-12": 5,
    "pstree-table": 5,
}


def run(size: Size, say: Say) -> dict[str, Any]:
    folder = Path(size.figures)
    shutil.rmtree(folder, ignore_errors=True)
    repeats = min(size.repeats, 5)
    names = [name for name, its in EXPERIMENTS.items() if not its.points_of]
    seconds = {}
    with ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn")) as pool:
        running = {}
        for name in names:
            times = next((times for start, times in TIMES.items() if name.startswith(start)), 1)
            settings = FigureSize(size.scale * times, repeats=repeats)
            running[pool.submit(_measure, name, folder, settings)] = name
        for done in as_completed(running):
            seconds[running[done]] = done.result()
            say(f"{len(seconds)} of {len(names)}: {running[done]}")
    found = verdicts.judge_all(folder)
    return {
        "scale": size.scale,
        "experiments": len(EXPERIMENTS),
        "seconds": seconds,
        "verdicts": dict(Counter(verdict.word for verdict in found)),
        "claims": {verdict.claim.name: verdict.word for verdict in found},
    }


def _measure(name: str, folder: Path, settings: FigureSize) -> float:
    """In a process of the pool; the processor seconds."""
    import time

    begin = time.process_time()
    files.run(name, folder, settings)
    return time.process_time() - begin
