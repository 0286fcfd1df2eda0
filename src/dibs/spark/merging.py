"""Which of many small things should be one: as in a matcher, by size."""

from __future__ import annotations

from collections.abc import Iterable

from dibs.segments.segment_set import SIZE_RATIO
from dibs.storage.versions import VersionSegment
from dibs.tuning import tuned

SPARK_SEGMENT = tuned("spark_segment", 1_000_000, 40, "subscriptions", "of a segment that one task builds")
SPARK_SMALL_SEGMENTS = tuned("spark_small_segments", 8, 1, "segments", "of a shard, small, that are not worth a merge")


def count_small(sizes: Iterable[int], largest: int | None = None) -> int:
    """How many of these, the newest first, should be one, as each of them is at most `size_ratio` times as large as all
    newer ones together. So a row is copied some times, however many come. largest: how large the one may be."""
    total = count = 0
    for size in sizes:
        if (count and size > SIZE_RATIO.value * max(total, 1)) or (largest is not None and total + size > largest):
            break
        total += size
        count += 1
    return count


def due(segments: list[VersionSegment]) -> list[list[VersionSegment]]:
    """Groups of segments of one shard that should be merged: the newest small ones, once there are more of them than
    `spark_small_segments`; and segments of which most is gone."""
    groups = []
    for shard in sorted({s.shard for s in segments}):
        own = [s for s in segments if s.shard == shard]
        small = count_small((s.rows - s.removed_rows for s in reversed(own)), SPARK_SEGMENT.value)
        if small > SPARK_SMALL_SEGMENTS.value:
            groups.append(own[len(own) - small :])
        else:
            groups += [[s] for s in own if s.removed_rows > s.rows - s.removed_rows]
    return groups
