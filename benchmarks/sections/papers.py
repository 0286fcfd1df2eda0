"""A sample of every figure and table of the papers' evaluations: that all of them run, and how `auto` stands.

The figures themselves are those of `make papers`, which takes hours (dibs.papers.page).
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from dibs.papers.experiments import EXPERIMENTS, standing
from dibs.papers.experiments import results as files
from dibs.papers.experiments.experiment import Size as FigureSize
from measure import Say, Size


def run(size: Size, say: Say) -> dict[str, Any]:
    names = [name for name, its in EXPERIMENTS.items() if not its.points_of]
    seconds = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            begin = time.process_time()
            files.run(name, Path(folder), FigureSize(size.scale, repeats=min(size.repeats, 5)))
            seconds[name] = time.process_time() - begin
            say(f"{len(seconds)} of {len(names)}: {name}")
        auto = standing.judge(Path(folder)).line
    return {"scale": size.scale, "experiments": len(EXPERIMENTS), "seconds": seconds, "auto": auto}
