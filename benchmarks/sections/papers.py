"""Every figure and table of the papers' evaluations (papers.experiments), at a scale; VERDICTS.md follows from them.

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

from dibs.papers.experiments import EXPERIMENTS, standing, verdicts
from dibs.papers.experiments import results as files
from dibs.papers.experiments.experiment import Size as FigureSize
from measure import Say, Size

# The share of a paper's sizes that a full run measures, by the longest beginning of a name that is here. BE-Tree makes
# a partition only where three subscriptions of an l-node have an attribute, so that with thousands of attributes a
# small share leaves thousands of subscriptions at its root; PSTHash keeps every pair of spaces, which limits the rest.
SCALES = {
    "opindex-": 0.05,
    "opindex-1": 0.5,
    "opindex-7": 1.0,
    "opindex-10": 0.5,
    "opindex-10a": 0.03,
    "opindex-11": 0.05,
    "opindex-12": 0.05,
    "opindex-13": 0.05,
    "opindex-14": 0.03,
    "betree-": 0.03,
    "betree-7": 0.15,
    "betree-8": 0.15,
    "betree-9": 0.15,
    "betree-12": 0.15,
    "betree-13": 0.1,
    "betree-table": 0.1,
    "pstree-": 0.015,
    "pstree-6b": 0.05,
    "pstree-8": 0.03,
    "pstree-9b": 0.05,
    "pstree-10b": 0.05,
    "pstree-11b": 0.05,
    "pstree-12b": 0.05,
    "pstree-13b": 0.05,
    "pstree-15": 0.05,
    "pstree-table": 0.075,
    "pstree-table-3": 1.0,
    "tatbul-": 0.015,
    "pbtree-": 0.3,
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
            settings = FigureSize(find_scale(name) * size.scale, repeats=repeats)
            running[pool.submit(_measure, name, folder, settings)] = name
        for done in as_completed(running):
            seconds[running[done]] = done.result()
            say(f"{len(seconds)} of {len(names)}: {running[done]}")
    found = verdicts.judge_all(folder)
    return {
        "scales": [scale * size.scale for scale in (min(SCALES.values()), max(SCALES.values()))],
        "experiments": len(EXPERIMENTS),
        "seconds": seconds,
        "verdicts": dict(Counter(verdict.word for verdict in found)),
        "auto": standing.judge(folder).line,
        "claims": {verdict.claim.name: verdict.word for verdict in found},
    }


def find_scale(name: str) -> float:
    """Of an experiment, in a full run."""
    return SCALES[max((start for start in SCALES if name.startswith(start)), key=len)]


def _measure(name: str, folder: Path, settings: FigureSize) -> float:
    """In a process of the pool; the processor seconds."""
    import time

    begin = time.process_time()
    files.run(name, folder, settings)
    return time.process_time() - begin
