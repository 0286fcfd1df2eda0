"""Every figure and table of the papers' evaluations as a named experiment, and every claim they make in words.

experiment.py   what an experiment is; pstree.py, opindex.py, betree.py, tatbul.py, tatbul_joins.py, pbtree.py: those of
                each paper
measure.py      how one point is measured, and how much it may take
results.py      points to files, and back; pictures.py: to pictures
claims.py       what a claim is; claims_*.py: those of each paper; whys.py: why one fails;
                verdicts.py: results to verdicts.md
"""

from __future__ import annotations

from dibs.errors import DibsError
from dibs.papers.experiments import betree, opindex, pbtree, pstree, tatbul, tatbul_joins
from dibs.papers.experiments.experiment import Experiment

EXPERIMENTS: dict[str, Experiment] = {
    **opindex.EXPERIMENTS,
    **betree.EXPERIMENTS,
    **pstree.EXPERIMENTS,
    **tatbul.EXPERIMENTS,
    **tatbul_joins.EXPERIMENTS,
    **pbtree.EXPERIMENTS,
}


def find(name: str) -> Experiment:
    """The experiment of this name."""
    if name not in EXPERIMENTS:
        raise DibsError(f"no experiment is called {name!r}; there are: {', '.join(EXPERIMENTS)}")
    return EXPERIMENTS[name]
