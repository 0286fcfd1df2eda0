"""Thresholds: the sizes at which Dibs takes another way to the same answer.

A path that begins only above some size (a background plan, a full room, a merge) is never met by a test of a few
subscriptions. So every such size stands here and is read when it is needed, never copied: tests set all of them to
their smallest values, or to random ones, and every way must give the same answer.

    DIBS_THRESHOLDS=smallest    for a whole process, and for those it starts (Spark's workers among them)
    DIBS_THRESHOLDS=random:7    drawn by that seed
    with using(smallest()): ... for a block

Not here: limits that refuse input (they belong to the language) and sizes that only prefetch or show.
"""

from __future__ import annotations

import math
import os
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Any

VARIABLE = "DIBS_THRESHOLDS"


def _threshold(default: float, smallest: float, about: str) -> Any:
    """smallest: the value at which the path behind it is taken as often as it can be. (It may be above the default,
    where a path is taken below its threshold.)"""
    return field(default=default, metadata={"smallest": smallest, "about": about})


@dataclass
class Thresholds:
    # segments.layers
    size_ratio: int = _threshold(
        16, 1, "a segment is merged with all newer ones if it is at most so many times as large"
    )
    changes_for_a_segment: int = _threshold(256, 1, "changes of one call that are worth a segment of their own")
    merged_at_once: int = _threshold(1_000, 2, "rows of segments that are merged in the foreground")
    small_segments: int = _threshold(3, 1, "so many small segments are not worth a merge")
    most_small_segments: int = _threshold(8, 1, "small segments before they are merged in the foreground")
    scanned_rows: int = _threshold(64, 2, "rows of a new segment that are scanned, in a matcher that has many more")
    # additions
    added_one_by_one: int = _threshold(16, 1, "subscriptions of one call that are added without making columns")
    # storage.durable
    unsaved_changes: int = _threshold(20_000, 3, "changes that are not in saved segments before they are saved")
    unsaved_on_closing: int = _threshold(1_000, 1, "the same on closing")
    # index.papers.pbtree
    pbtree_page: int = _threshold(4096, 128, "bytes of a page: a larger list or tree has several")
    pbtree_most_ranges: int = _threshold(16, 1, "ranges of a predicate that are filed; one of more is verified")
    pbtree_entries_outside: int = _threshold(64, 1, "entries outside the limits that are never worth building again")
    pbtree_rows_a_row_seen: int = _threshold(
        16, 1_000_000, "when more than one in so many rows was met, all counters are set back, not only theirs"
    )


def smallest() -> dict[str, Any]:
    """Every threshold at its smallest."""
    return {f.name: f.metadata["smallest"] for f in fields(Thresholds)}


def at_random(seed: int | str) -> dict[str, Any]:
    """Each threshold somewhere between its smallest and its default value, small ones as likely as large ones."""
    draw = random.Random(f"dibs {seed}")
    return {f.name: _between(f.metadata["smallest"], f.default, draw) for f in fields(Thresholds)}


def _between(low: Any, high: Any, draw: random.Random) -> Any:
    if low > high:
        low, high = high, low
    value = math.exp(draw.uniform(math.log(max(low, 1e-6)), math.log(max(high, 1e-6))))
    return type(high)(min(max(round(value) if isinstance(high, int) else value, low), high))


@contextmanager
def using(values: Mapping[str, Any]) -> Iterator[None]:
    """These thresholds inside the block. For tests: all threads of the process see them."""
    before = {name: getattr(thresholds, name) for name in values}
    vars(thresholds).update(values)
    try:
        yield
    finally:
        vars(thresholds).update(before)


def _of_environment(words: str) -> dict[str, Any]:
    kind, _, seed = words.partition(":")
    if kind == "smallest" and not seed:
        return smallest()
    if kind == "random" and seed:
        return at_random(seed)
    raise ValueError(f"{VARIABLE} must be smallest, or random: and a seed, not {words!r}")


thresholds = Thresholds()
if os.environ.get(VARIABLE):
    vars(thresholds).update(_of_environment(os.environ[VARIABLE]))
