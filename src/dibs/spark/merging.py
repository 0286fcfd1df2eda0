"""Which segments of a version should be one: as in a matcher, by size."""

from __future__ import annotations

from dibs.storage.versions import VersionSegment
from dibs.thresholds import thresholds


def due(segments: list[VersionSegment]) -> list[list[VersionSegment]]:
    """Groups of segments of one shard, the newest of it, that should be merged: those that are at most `size_ratio`
    times as large as all newer ones together, once there are more of them than `spark_small_segments`; and segments of
    which most is gone."""
    groups = []
    for shard in sorted({s.shard for s in segments}):
        own = [s for s in segments if s.shard == shard]
        chosen: list[VersionSegment] = []
        total = 0
        for segment in reversed(own):
            rows = segment.rows - segment.removed_rows
            if rows > thresholds.spark_segment or (chosen and rows > thresholds.size_ratio * max(total, 1)):
                break
            if total + rows > thresholds.spark_segment:
                break
            chosen.append(segment)
            total += rows
        if len(chosen) > thresholds.spark_small_segments:
            groups.append(chosen[::-1])
        else:
            groups += [[s] for s in own if s.removed_rows > s.rows - s.removed_rows]
    return groups
