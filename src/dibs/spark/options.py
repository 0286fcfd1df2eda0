"""What a stream was started with, so that it is told when it is started again with something else.

options.json    in its state folder: the query, and what its matches look like
"""

from __future__ import annotations

import json
import os
import warnings
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from dibs.errors import DibsError
from dibs.spark.micro_batch import Wanted
from dibs.spark.places import local_path
from dibs.spark.sinks import Delta, Parquet, Sink
from dibs.storage.files import replace_bytes

NAME = "options.json"


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
    if isinstance(sink, (Parquet, Delta)):
        raise DibsError(f"{text}: its matches would not go with those in {sink.path}: give another sink and checkpoint")
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
