"""The evaluation of Tatbul's paper: figures 7 and 8, which count the comparisons of a document's matching.

Two attributes, closed intervals, 50 documents. A profile's distance from an origin is Zipf's and its direction random.
The overlap of figure 8 is set by the width of the intervals; it is the share of pairs of profiles that meet.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from dibs.experiments.experiment import AUTO, Data, Experiment, Series, Size

DOCUMENTS = 50
ORIGIN, WIDTH = 5_000.0, 10.0
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


def _make(profiles: int, overlap: float | None, seed: int) -> Data:
    random = np.random.default_rng(seed)
    starts = ORIGIN + random.choice([-1, 1], (profiles, 2)) * _draw_distances(random, profiles)
    width = WIDTH if overlap is None else _find_width(starts, overlap)
    texts = [
        " AND ".join(f"{name} BETWEEN {low:.3f} AND {low + width:.3f}" for name, low in zip("xy", row))
        for row in starts
    ]
    inside = starts[random.integers(0, profiles, DOCUMENTS)] + random.random((DOCUMENTS, 2)) * width
    events = pa.RecordBatch.from_arrays([pa.array(np.round(column, 3)) for column in inside.T], names=["x", "y"])
    return Data(pa.array(texts), events)


def _draw_distances(random: np.random.Generator, profiles: int) -> Any:
    """Zipf over the ranks of distance: dense at the origin, thin far from it. Their spread grows with their number, so
    that the overlap at a width of 10 stays low."""
    ranks = np.arange(1, 2 * profiles + 1)
    weight = 1 / ranks**0.5
    return random.choice(ranks * WIDTH, (profiles, 2), p=weight / weight.sum()) + random.random((profiles, 2)) * WIDTH


def _find_width(starts: Any, overlap: float) -> float:
    """The width at which so many pairs of profiles meet in an attribute: two intervals meet when their starts are no
    further apart than the width."""
    first, second = np.triu_indices(len(starts), 1)
    return float(np.quantile(np.abs(starts[first] - starts[second]), overlap))


def _by_number(value: Any, size: Size) -> Data:
    return _make(max(int(value * min(size.scale * 100, 1)), 10), None, size.seed)


def _by_overlap(value: Any, size: Size) -> Data:
    return _make(max(int(100 * min(size.scale * 100, 1)), 10), value, size.seed)


EXPERIMENTS: dict[str, Experiment] = {
    "tatbul-7": Experiment(
        "Tatbul, figure 7: comparisons by profiles",
        "profiles",
        tuple(range(100, 1_001, 100)),
        _by_number,
        SERIES,
        MEASURES,
    ),
    "tatbul-8": Experiment(
        "Tatbul, figure 8: comparisons by overlap, 100 profiles",
        "overlap",
        (0.1, 0.2, 0.4, 0.6, 0.8, 0.9, 0.95, 0.98),
        _by_overlap,
        SERIES,
        MEASURES,
    ),
}
