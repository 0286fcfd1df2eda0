"""Snapshots of subscriptions that change while a stream runs: files that never change, which name one version.

    bases/NAME/       segments: a folder that Matcher.load opens
    steps/NAME.arrow  what changed from one version to the next: id, expression (null: removed), weight, version

A snapshot is a base and the steps since. A reader that has an earlier snapshot of the same base applies only the steps
that it lacks, so a change costs what it is, however many subscriptions there are.

`Follower` is that reader, on the driver and in the workers alike.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from dibs.errors import FormatError
from dibs.matcher import Matcher
from dibs.segments.ids import Id
from dibs.segments.state import Subscription
from dibs.storage.files import replace_bytes

BASES, STEPS = "bases", "steps"


@dataclass(frozen=True)
class Step:
    """The changes up to a version, since the step before or the base."""

    name: str
    version: int
    changes: int


@dataclass(frozen=True)
class Snapshot:
    source: str  # which subscriptions they are versions of
    base: str
    base_version: int
    steps: tuple[Step, ...] = ()
    now: int | None = None  # of the batch that is matched against it: microseconds since 1970

    @property
    def version(self) -> int:
        return self.steps[-1].version if self.steps else self.base_version

    @property
    def changes(self) -> int:
        """Since the base."""
        return sum(step.changes for step in self.steps)

    def describe(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of(cls, described: dict[str, Any]) -> Snapshot:
        return cls(**{**described, "steps": tuple(Step(**step) for step in described["steps"])})


def step_path(state: Path, name: str) -> Path:
    return state / STEPS / f"{name}.arrow"


def write_step(state: Path, name: str, removed: list[Id], changed: list[Subscription], version: int) -> Step:
    """Makes the changes a step, safe on the disk."""
    ids = [*removed, *(s.id for s in changed)]
    texts = any(isinstance(id, str) for id in ids)
    if texts and not all(isinstance(id, str) for id in ids):
        raise refuse_mixed_ids()
    columns = {
        "id": pa.array(ids, pa.string() if texts else pa.int64()),
        "expression": pa.array([*[None] * len(removed), *(s.expression for s in changed)], pa.large_string()),
        "weight": pa.array([*[None] * len(removed), *(s.weight for s in changed)], pa.float64()),
        "version": pa.array([*[version] * len(removed), *(s.version for s in changed)], pa.int64()),
    }
    content = pa.BufferOutputStream()
    table = pa.table(columns)
    with pa.ipc.new_file(content, table.schema) as writer:
        writer.write_table(table)
    step_path(state, name).parent.mkdir(parents=True, exist_ok=True)
    replace_bytes(step_path(state, name), content.getvalue().to_pybytes())
    return Step(name, version, len(ids))


def read_step(content: bytes) -> tuple[list[Id], list[Subscription]]:
    """Which ids went, and which subscriptions came or were replaced."""
    removed: list[Id] = []
    changed: list[Subscription] = []
    for row in pa.ipc.open_file(pa.BufferReader(content)).read_all().to_pylist():
        if row["expression"] is None:
            removed.append(row["id"])
        else:
            changed.append(Subscription(row["id"], row["expression"], row["weight"], row["version"]))
    return removed, changed


def refuse_mixed_ids() -> FormatError:
    return FormatError(
        "some ids of the subscriptions are integers and some are strings, and a column of Spark has one type: make all "
        "of them strings"
    )


class Follower:
    """A matcher that goes from snapshot to snapshot."""

    def __init__(self, threads: int | None = None) -> None:
        self._threads = threads
        self._base: Path | None = None
        self.matcher = Matcher()

    def bring_to(self, base: Path, snapshot: Snapshot, steps: dict[str, bytes] | Path) -> Matcher:
        """The matcher at the snapshot, whose base lies in this folder. steps: the files by name, or the state folder
        that they are in."""
        if self._base != base or self.matcher.version > snapshot.version:
            loaded = Matcher.load(base, threads=self._threads)
            before, self.matcher, self._base = self.matcher, loaded, base
            before.close()
        for step in snapshot.steps:
            if step.version > self.matcher.version:
                content = step_path(steps, step.name).read_bytes() if isinstance(steps, Path) else steps[step.name]
                removed, changed = read_step(content)
                self.matcher.advance(removed, changed, step.version)
        return self.matcher


def id_type_of(matcher: Matcher) -> pa.DataType | None:
    """int64 or large_string; None: there are no subscriptions. Raises FormatError when there are both."""
    found = {layer.id_type for layer in matcher.snapshot().layers if len(layer)}
    if len(found) > 1:
        raise refuse_mixed_ids()
    return next(iter(found), None)
