"""The keys of a job file: what each part may have, of which type, what for. `dibs pipeline keys` prints them."""

from __future__ import annotations

from typing import Any, NamedTuple

from dibs.spark.tables import SHRINK

KIND = "kind"


class JobKey(NamedTuple):
    type: type
    about: str
    default: Any = None
    needed: bool = False
    path: bool = False  # relative to the job file
    choices: tuple[str, ...] = ()


def _path(about: str) -> JobKey:
    return JobKey(str, about, needed=True, path=True)


_EVENT_ID = JobKey(str, "the column that names an event", "id")
_ATTRIBUTES = JobKey(
    str, "the MAP, STRUCT or JSON column with the attributes; without it the columns are the attributes"
)
_OPTIONS = JobKey(dict, "further options of Spark's reader or writer", {})
_SERVERS = JobKey(str, "host:port of the brokers", needed=True)
_TOPIC = JobKey(str, "the name of the topic", needed=True)

# By part and kind; the first kind is what a part without one is.
PARTS: dict[str, dict[str, dict[str, JobKey]]] = {
    "source": {
        "files": {
            "path": _path("a folder of files that come, or a file"),
            "format": JobKey(str, "json: an event per line", "json", choices=("json", "parquet", "orc")),
            "event_id": JobKey(str, "the column, or the field of the JSON, that names an event", "id"),
            "attributes": _ATTRIBUTES,
            "event_time": JobKey(str, "a timestamp column, for the lag"),
            "files_per_batch": JobKey(int, "files that a batch takes at most"),
            "options": _OPTIONS,
        },
        "table": {
            "path": _path("a Delta table; Parquet for a batch"),
            "format": JobKey(str, "of the table", "parquet", choices=("parquet", "delta")),
            "event_id": _EVENT_ID,
            "attributes": _ATTRIBUTES,
            "event_time": JobKey(str, "a timestamp column, for the lag"),
            "options": _OPTIONS,
        },
        "kafka": {
            "servers": _SERVERS,
            "topic": _TOPIC,
            "event_id": JobKey(str, "the field of the JSON that names an event; without it the record's key does"),
            "starting": JobKey(str, "where to begin", "earliest", choices=("earliest", "latest")),
            "records_per_batch": JobKey(int, "records that a batch takes at most"),
            "options": _OPTIONS,
        },
    },
    "subscriptions": {
        "folder": {"path": _path("a folder of Matcher.open, Matcher.save or dibs.spark.compile")},
        "table": {
            "path": _path("a table with id, expression and, if wanted, weight; read again when it changes"),
            "format": JobKey(str, "any that Spark reads; found from the path by default"),
            "shrink": JobKey(float, "a table that lost more than this share is reported before it is used", SHRINK),
            "options": _OPTIONS,
        },
        "topic": {
            "servers": _SERVERS,
            "topic": _TOPIC,
            "id_type": JobKey(str, "of the ids", "string", choices=("string", "bigint")),
            "options": _OPTIONS,
        },
    },
    "sink": {
        "parquet": {
            "path": _path("the folder; batch=N in it"),
            "files": JobKey(int, "files of a batch, at most"),
        },
        "delta": {"path": _path("the table"), "name": JobKey(str, "of this writer", "dibs")},
        "kafka": {"servers": _SERVERS, "topic": _TOPIC, "options": _OPTIONS},
        "webhook": {
            "url": JobKey(str, "where matches are POSTed to", needed=True),
            "dead_letters": _path("a folder for what cannot be delivered"),
            "headers": JobKey(dict, "further headers of each request", {}),
            "matches": JobKey(int, "matches in a request, at most", 500),
            "connections": JobKey(int, "requests at a time, at most", 4),
            "attempts": JobKey(int, "how often a request is tried", 5),
        },
    },
    "job": {
        "": {
            "name": JobKey(str, "of the query", "dibs"),
            "checkpoint": _path("the folder of the job's progress: with it a job goes on where it ended"),
            "state": JobKey(
                str,
                "a folder of the driver for snapshots of subscriptions; in the checkpoint by default",
                path=True,
            ),
            "mode": JobKey(
                str,
                "continuous: until it is stopped; available-now: what there is; batch: the same as one batch",
                "available-now",
                choices=("continuous", "available-now", "batch"),
            ),
            "trigger": JobKey(str, 'how often there is a batch, as "10 seconds"; at once by default'),
            "partitions": JobKey(int, "into how many parts the events of a batch are cut; as they come by default"),
            "carry": JobKey(list, "further columns of matches: version, subscription_version, weight", []),
            "keep": JobKey(list, "columns of the events that stand beside each match", []),
            "top": JobKey(int, "only so many matches per event, those of the highest weight"),
            "on_error": JobKey(str, "what to do with bad subscriptions", "raise", choices=("raise", "skip")),
            "types": JobKey(dict, 'of attributes, for subscriptions of a table or topic: price = "number"', {}),
        }
    },
    "spark": {
        "": {
            "master": JobKey(str, "where it runs: local[*], spark://host:7077, ...", "local[*]"),
            "memory": JobKey(str, "of the driver", "2g"),
            "jars": JobKey(list, "jars of connectors", []),
            "conf": JobKey(dict, 'any settings of Spark, as "spark.executor.cores" = 4', {}),
        }
    },
}
NEEDED_PARTS = ("source", "subscriptions", "sink", "job")


def show_keys() -> str:
    """All keys, for people."""
    lines = []
    for part, kinds in PARTS.items():
        for kind, keys in kinds.items():
            lines.append(f"[{part}]" + (f"  kind = {kind!r}" if kind else ""))
            for name, key in keys.items():
                default = (
                    "needed" if key.needed else "" if key.default in (None, [], {}) else f"default {key.default!r}"
                )
                choices = f" ({', '.join(key.choices)})" if key.choices else ""
                lines.append(f"  {name:<18}{key.about}{choices}{f'; {default}' if default else ''}")
    return "\n".join(lines)
