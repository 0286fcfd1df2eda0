"""Intervals over few attributes: Tatbul's profiles (section 4.1.6) and the PS-Tree paper's Table 3.

`Profiles` are closed intervals of one width on each of two attributes. Their middles lie round an origin, at
distances with a Zipf distribution, in a direction that is uniform on each attribute: the greater the skew, the
closer together. How much profiles overlap follows from width and skew: `measure_overlap` tells it, and `find_width`
the width for a given overlap. Documents have uniform values. The paper defines neither overlap (here: of pairs of
profiles, on both attributes) nor the distances; those up to 500 let intervals of width 10 overlap by its 1 to 20 %.

`Intervals` are the intervals of Table 3 (100,000, and as many points): uniform places, uniform widths up to twice
`width`, which the paper does not give; the default lets about ten intervals hold a point.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dibs.papers.workloads.blocks import Blocks, make_maps, name_attributes, require
from dibs.papers.workloads.draws import draw, join_rows

ORIGIN = FARTHEST = 500
PLACES = 1_000_000


@dataclass(frozen=True)
class Profiles(Blocks):
    attributes: int = 2
    width: int = 10
    skew: float = 1.0

    def check(self) -> None:
        require(self.attributes >= 1, f"at least one attribute, not {self.attributes}")
        require(self.width >= 0, f"a width that is not negative, not {self.width}")

    def list_domains(self) -> dict[str, tuple[int, int]]:
        reach = FARTHEST + self.width
        return {f"a{k}": (ORIGIN - reach, ORIGIN + reach) for k in range(self.attributes)}

    def draw_starts(self, random: np.random.Generator, rows: int) -> NDArray[np.int64]:
        shape = rows, self.attributes
        distance = draw(random, FARTHEST, self.skew, shape)
        return np.asarray(ORIGIN + distance * random.choice([-1, 1], shape) - self.width // 2)

    def write_expressions(self, random: np.random.Generator, rows: NDArray[np.int64]) -> pa.StringArray:
        return _write_intervals(self.draw_starts(random, len(rows)), self.width)

    def make_attributes(self, random: np.random.Generator, rows: NDArray[np.int64]) -> pa.MapArray:
        values = random.integers(ORIGIN - FARTHEST, ORIGIN + FARTHEST + 1, (len(rows), self.attributes))
        return _make_points(values)


@dataclass(frozen=True)
class Intervals(Blocks):
    width: float = 0.0001  # on average, as a share of all places

    def check(self) -> None:
        require(0 < self.width < 0.5, f"a width between 0 and 0.5, not {self.width}")

    def write_expressions(self, random: np.random.Generator, rows: NDArray[np.int64]) -> pa.StringArray:
        starts = random.integers(0, PLACES, (len(rows), 1))
        return _write_intervals(starts, random.integers(0, int(2 * self.width * PLACES) + 1, (len(rows), 1)))

    def make_attributes(self, random: np.random.Generator, rows: NDArray[np.int64]) -> pa.MapArray:
        return _make_points(random.integers(0, PLACES, (len(rows), 1)))

    def list_domains(self) -> dict[str, tuple[int, int]]:
        return {"a0": (0, PLACES + int(2 * self.width * PLACES))}


def measure_overlap(starts: NDArray[np.int64], width: int) -> float:
    """The share of pairs of profiles that overlap on every attribute."""
    return float((_measure_distances(starts) <= width).mean())


def find_width(starts: NDArray[np.int64], overlap: float) -> int:
    """The least width for which so large a share of pairs overlaps."""
    require(0 < overlap <= 1, f"an overlap above 0, up to 1, not {overlap}")
    return int(np.quantile(_measure_distances(starts), overlap, method="inverted_cdf"))


def _measure_distances(starts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Of all pairs, on the attribute on which they are farthest apart."""
    a, b = np.triu_indices(len(starts), 1)
    return np.asarray(np.abs(starts[a] - starts[b]).max(axis=1))


def _write_intervals(starts: NDArray[np.int64], width: int | NDArray[np.int64]) -> pa.StringArray:
    names = name_attributes(np.tile(np.arange(starts.shape[1]), len(starts)))
    bounds = (pa.array(bound.ravel()).cast(pa.string()) for bound in (starts, starts + width))
    texts = pc.binary_join_element_wise(names, pc.binary_join_element_wise(*bounds, " AND "), " BETWEEN ")
    return join_rows(texts, np.full(len(starts), starts.shape[1]), " AND ")


def _make_points(values: NDArray[np.int64]) -> pa.MapArray:
    names = name_attributes(np.tile(np.arange(values.shape[1]), len(values)))
    return make_maps(np.full(len(values), values.shape[1]), names, pa.array(values.ravel()))
