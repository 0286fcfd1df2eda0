"""The evaluation of Tatbul's paper: figures 7 and 8, which count the comparisons of a document's matching.

Two attributes, closed intervals, 50 documents (papers.workloads.intervals). The overlap of figure 8, which is set by
the width of the intervals, is the share of pairs of profiles that meet on both attributes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dibs.papers.experiments.experiment import AUTO, Data, Experiment, Series, Size, data_of
from dibs.papers.workloads.blocks import SUBSCRIPTIONS, start_random
from dibs.papers.workloads.intervals import Profiles, find_width

DOCUMENTS = 50
PROFILES_OF_8 = 100
PROFILES = Profiles()
SERIES = (
    Series("naive", "naive"),
    Series("Cluster", "cluster"),
    Series("Interval", "interval"),
    Series("Hybrid", "hybrid"),
    Series("Segment Tree", "segment-tree"),
    Series("Interval Tree", "interval-tree"),
    AUTO,
)
MEASURES = ("predicates", "match_us")


def _by_number(value: Any, size: Size) -> Data:
    return data_of(replace(PROFILES, subscriptions=size.of(value), events=DOCUMENTS, seed=size.seed))


def _by_overlap(value: Any, size: Size) -> Data:
    profiles = replace(PROFILES, subscriptions=size.of(PROFILES_OF_8), events=DOCUMENTS, seed=size.seed)
    starts = profiles.draw_starts(start_random(profiles.seed, SUBSCRIPTIONS), profiles.subscriptions)
    return data_of(replace(profiles, width=find_width(starts, value)))


EXPERIMENTS: dict[str, Experiment] = {
    "tatbul-7": Experiment(
        "Tatbul, figure 7: comparisons by profiles",
        "profiles",
        tuple(range(100, 1_001, 100)),
        _by_number,
        SERIES,
        MEASURES,
        is_size=True,
    ),
    "tatbul-8": Experiment(
        "Tatbul, figure 8: comparisons by overlap",
        "overlap",
        (0.1, 0.2, 0.4, 0.6, 0.8, 0.9, 0.95, 0.98),
        _by_overlap,
        SERIES,
        MEASURES,
    ),
}
