"""How a match runs: three plans, one answer.

replicated   every worker maps the whole index, and events stay where they are
sharded      events are sent to the shards that can match them (a shuffle); a worker maps one shard at a time
local        few events are brought to the driver and matched there, without a job for the matching
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dibs.errors import ArgumentError, DibsError, show
from dibs.storage.versions import Version

PLANS = ("auto", "replicated", "sharded", "local")


@dataclass(frozen=True)
class Plan:
    """Which plan a match takes, and why. `visits`: how many shards an event visits, on average over some events."""

    plan: str
    why: str
    subscriptions: int
    bytes: int
    memory: int
    shards: int
    columns: tuple[str, ...] = ()  # of the events that leave the JVM
    events: int | None = None  # that were looked at
    visits: float | None = None
    history: str = ""  # how documents come to the events, and why, if there are joins over history

    def __str__(self) -> str:
        lines = [
            f"{self.plan}: {self.why}",
            f"  {self.subscriptions:,} subscriptions, {self.bytes / 2**20:,.1f} MiB of index files; a worker may hold "
            f"{self.memory / 2**20:,.0f} MiB",
            f"  columns that leave the JVM: {', '.join(self.columns)}",
        ]
        if self.history:
            lines.append(f"  {self.history}")
        if self.shards > 1:
            visited = "" if self.visits is None else f"; an event visits {self.visits:.2f} ({self.events:,} looked at)"
            lines.append(f"  {self.shards} shards{visited}")
        return "\n".join(lines)


def choose(plan: Any, version: Version, memory: int, few: bool, streaming: bool) -> Plan:
    """The plan. few: the events are no DataFrame of Spark, so they are on the driver already."""
    if plan not in PLANS:
        raise ArgumentError(f"plan must be one of {', '.join(map(repr, PLANS))}, not {show(plan)}")
    size = version.bytes
    if plan == "sharded" and version.shards == 1:
        raise DibsError(
            "plan='sharded' needs an index that is cut into shards: dibs.spark.compile(subscriptions, path, shards=...)"
        )
    if plan == "local" and streaming:
        raise DibsError("plan='local' brings the events to the driver, and a stream has no end: leave plan= out")
    if plan != "auto":
        chosen, why = plan, "it was asked for"
    elif few:
        chosen, why = "local", "the events are on the driver already"
    elif size <= memory:
        chosen, why = "replicated", "the index fits into the memory of a worker"
    elif version.shards > 1:
        chosen, why = "sharded", "the index is larger than the memory of a worker"
    else:
        chosen = "replicated"
        why = "the index is larger than the memory of a worker, but not cut into shards: dibs.spark.compile does that"
    return Plan(chosen, why, version.subscriptions, size, memory, version.shards)
