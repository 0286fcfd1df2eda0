"""What `match` and `stream` are told beside events and subscriptions: values that one can keep, change and hand on,
`match(events, table, **options)`. And what a stream was started with, so that it is told when it is started again with
something else.

options.json    in its state folder: the query, and what its matches look like
"""

from __future__ import annotations

import difflib
import json
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from pyspark.sql import DataFrame, Observation

from dibs.arguments import OnError
from dibs.errors import ArgumentError, DibsError
from dibs.language.present import Now
from dibs.spark.places import local_path
from dibs.spark.sinks import Catalog, Delta, Parquet, Sink
from dibs.storage.files import replace_bytes

if TYPE_CHECKING:
    from dibs.spark.micro_batch import Wanted

NAME = "options.json"


class MatchOptions(TypedDict, total=False):
    """What `match` says of them; `matching`, `problems` and `explain` take the same, as far as it concerns them."""

    index: str
    options: Mapping[str, Any] | None
    observe: str | Observation | None
    index_dir: str | os.PathLike[str] | None
    version: int | None
    plan: str
    memory: int | None
    how: str
    top: int | None
    keep: Sequence[str]
    explain: bool
    count_only: bool
    partitions: int | None
    history: Any
    strict: bool
    now: Now
    types: Mapping[str, str] | None


class StreamOptions(TypedDict, total=False):
    """What `stream` says of them; `backfill` takes the same."""

    event_id: str
    attributes: str | None
    carry: Iterable[str]
    event_time: str | None
    keep: Iterable[str]
    top: int | None
    order: str | Sequence[str] | None
    on_error: OnError
    state: str | os.PathLike[str] | None
    history: Any
    strict: bool
    types: Mapping[str, str] | None


def check_names(given: Mapping[str, Any], known: type) -> None:
    for name in given:
        if name not in known.__annotations__:
            near = difflib.get_close_matches(name, known.__annotations__, 1)
            advice = f"; did you mean {near[0]}?" if near else f": there are {', '.join(known.__annotations__)}"
            raise ArgumentError(f"{name}= is no option{advice}")


def describe_options(events: DataFrame, wanted: Wanted) -> dict[str, str]:
    kind = events.schema[wanted.event_id].dataType.simpleString()
    lists = {"carry": sorted(wanted.carry), "keep": wanted.keep}
    return {"event_id": f"of the type {kind}"} | {key: ", ".join(names) or "nothing" for key, names in lists.items()}


def check_options(state: Path, checkpoint: str | os.PathLike[str], options: dict[str, str], sink: Sink) -> None:
    """Tells what differs from the start before with this checkpoint: in files that would not go together it raises
    DibsError, else it warns."""
    try:
        before = json.loads((state / NAME).read_bytes())
    except (OSError, ValueError):
        return
    if before.get("query") != find_query(checkpoint):
        return  # of another checkpoint
    changed = [(key, before[key], now) for key, now in options.items() if before.get(key, now) != now]
    if not changed:
        return
    told = "; ".join(f"{key}= was {then} and is {now}" for key, then, now in changed)
    text = f"the stream with the checkpoint {os.fspath(checkpoint)} was started with other options: {told}"
    if isinstance(sink, (Parquet, Delta, Catalog)):
        where = sink.table if isinstance(sink, Catalog) else sink.path
        raise DibsError(f"{text}: its matches would not go with those in {where}: give another sink and checkpoint")
    warnings.warn(f"{text}: matches from now on differ from those before", UserWarning, stacklevel=4)


def write_options(state: Path, query: str, options: dict[str, Any]) -> None:
    replace_bytes(state / NAME, json.dumps({"query": query, **options}, indent=1).encode())


def find_query(checkpoint: str | os.PathLike[str]) -> str | None:
    """The query of a checkpoint; None: it is new, or not of this machine."""
    local = local_path(checkpoint)
    try:
        return None if local is None else str(json.loads((Path(local) / "metadata").read_bytes())["id"])
    except (OSError, ValueError, KeyError):
        return None
