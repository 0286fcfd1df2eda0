"""What a matcher says of itself: sizes, plans and counters."""

from __future__ import annotations

from typing import Any

import numpy as np

from dibs.coding.computed.forms import cut
from dibs.coding.computed.splitting import RESIDUAL_MENTIONS
from dibs.language.joins import paths_of
from dibs.language.scalars import is_computed, scalar_of, text_of
from dibs.segments.segment import Segment
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
        lines += _describe_computed(s)
    return "\n".join(lines) or "no subscriptions"


def _describe_computed(segment: Segment) -> list[str]:
    """Which tests of computed values are made last, and which values every event has computed for few."""
    lines = []
    if segment.residuals is not None:
        lines.append(f"  tests of computed values that are made last: {len(segment.residuals):,}")
    attributes = segment.domains.attributes
    own = [number for number, (name, _) in enumerate(attributes) if is_computed(name) and cut(name)[1]]
    if own:
        mentions = np.bincount(segment.clauses_by_row.attribute, minlength=len(attributes))
        few = {attributes[number][0] for number in own if mentions[number] < RESIDUAL_MENTIONS.value}
        if few:
            said = f"{len(few):,}, {text_of(scalar_of(min(few)))} among them"
            lines.append(f"  computed for every event, with a constant of few subscriptions: {said}")
    return lines
