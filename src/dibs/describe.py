"""What a matcher says of itself: sizes, plans and counters."""

from __future__ import annotations

from typing import Any

from dibs.language.joins import paths_of
from dibs.segments.state import State
from dibs.segments.upkeep import Upkeep


def describe(state: State, upkeep: Upkeep) -> dict[str, Any]:
    """What is stored."""
    layers = state.layers
    segments = [x.segment for x in layers]
    parts: dict[str, int] = {}
    for s in segments:
        for name, size in s.nbytes.items():
            parts[name] = parts.get(name, 0) + size
    return {
        "version": state.version,
        "subscriptions": sum(map(len, layers)),
        "removed": sum(x.gone.count for x in layers),
        "segments": len(segments),
        "attributes": len(paths_of(frozenset().union(*(s.names for s in segments)))),
        "predicates": sum(len(s.clauses.attribute) for s in segments),
        "plans": [s.index.plan() for s in segments],
        "bytes": parts,
        "background problem": None if upkeep.problem is None else str(upkeep.problem),
    }


def describe_plan(state: State) -> str:
    """How the indexes have filed the subscriptions, and why."""
    segments = [x.segment for x in state.layers]
    lines = []
    for number, s in enumerate(segments, 1):
        lines.append(f"segment {number} of {len(segments)}: {len(s):,} subscriptions, index {s.index.name}")
        lines += [
            f"  {key}: {value:,}" if isinstance(value, int) else f"  {key}: {value}"
            for key, value in s.index.plan().items()
        ]
    return "\n".join(lines) or "no subscriptions"
