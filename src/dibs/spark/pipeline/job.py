"""A job file to a JobFile. All that is wrong with it is told at once, each key with the nearest name that there is.
What each part may have, of which type, what for, stands once (`dibs pipeline keys` prints it)."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

from dibs.errors import DibsError, MissingFile
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


# ---- the file ----

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

NAMES = {str: "a string", int: "a number", float: "a number", list: "a list", dict: "a table"}


class JobError(DibsError):
    """A job file is wrong; the text lists everything that is."""


@dataclass(frozen=True)
class Part:
    """One part of the file, all its keys there."""

    kind: str
    values: Mapping[str, Any]

    def __getitem__(self, key: str) -> Any:
        return self.values[key]

    def get(self, key: str) -> Any:
        """None: this kind has no such key."""
        return self.values.get(key)


@dataclass(frozen=True)
class JobFile:
    file: str
    source: Part
    subscriptions: Part
    sink: Part
    job: Part
    spark: Part

    def show(self) -> str:
        """The plan, for people."""
        lines = [f"{self.job['name']}: {self.file}"]
        for name in PARTS:
            part: Part = getattr(self, name)
            lines.append(f"  {name:<14}{part.kind}")
            told = {key: value for key, value in part.values.items() if value not in (None, [], {})}
            lines += [f"    {key:<18}{_secret(key, value)}" for key, value in told.items()]
        return "\n".join(lines)


def read_job(path: str | os.PathLike[str], overrides: Mapping[str, str] | None = None) -> JobFile:
    """The job of a file. overrides: {"source.path": "events"}: in place of what the file says; their paths are relative
    to the current folder, those of the file to its own. Raises JobError, MissingFile."""
    file = Path(path)
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise MissingFile(path) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise JobError(f"{path} is no TOML file: {error}") from None
    except OSError as error:
        raise JobError(f"{path} cannot be read: {error.strerror}") from None
    reader = _Reader(file.absolute().parent)
    parts = reader.read(content, dict(overrides or {}))
    if reader.problems:
        raise JobError(f"{path} cannot be run:\n" + "\n".join(f"  {problem}" for problem in reader.problems))
    return JobFile(str(path), **parts)


class _Reader:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.problems: list[str] = []

    def read(self, content: dict[str, Any], overrides: dict[str, str]) -> dict[str, Part]:
        for name in content:
            if name not in PARTS:
                self.problems.append(f"there is no part [{name}]{_nearest(name, PARTS)}")
            elif not isinstance(content[name], dict):
                self.problems.append(f"{name} must be a part: write [{name}] above its keys")
        for name in NEEDED_PARTS:
            if name not in content:
                self.problems.append(f"the part [{name}] is missing")
        own: dict[str, dict[str, str]] = {}
        for key, value in overrides.items():
            part, _, name = key.partition(".")
            if part not in PARTS or not name:
                self.problems.append(f"--set {key}: expected PART.KEY=VALUE{_nearest(part, PARTS)}")
            else:
                own.setdefault(part, {})[name] = value
        present = {name: content.get(name, {}) for name in PARTS if isinstance(content.get(name, {}), dict)}
        return {name: self._part(name, given, own.get(name, {})) for name, given in present.items()}

    def _part(self, name: str, given: dict[str, Any], overrides: dict[str, str]) -> Part:
        kinds = PARTS[name]
        default = next(iter(kinds))
        kind = overrides.pop(KIND, given.get(KIND, default)) if default else ""
        if not isinstance(kind, str) or kind not in kinds:
            self.problems.append(
                f"[{name}] kind = {kind!r}: expected {' or '.join(map(repr, kinds))}{_nearest(kind, kinds)}"
            )
            return Part("", {})
        keys = kinds[kind]
        values: dict[str, Any] = {}
        for key, value in {**given, **overrides}.items():
            if key == KIND and default:
                continue
            place = f"[{name}]" + (f" of the kind {kind!r}" if kind else "")
            if key not in keys:
                self.problems.append(f"{place} has no key {key!r}{_nearest(key, keys)}")
            else:
                overridden = key in overrides
                values[key] = self._value(f"{place} {key}", keys[key], value, overridden)
        for key, about in keys.items():
            if key not in values:
                if about.needed and (given or overrides or name not in NEEDED_PARTS):
                    self.problems.append(f"[{name}] needs {key}: {about.about}")
                values[key] = about.default
        return Part(kind, {key: values[key] for key in keys})

    def _value(self, place: str, key: JobKey, value: Any, overridden: bool) -> Any:
        if overridden and key.type is int:
            value = int(value) if value.isdigit() else value
        if overridden and key.type is float:
            with suppress(ValueError):
                value = float(value)
        if overridden and key.type is list:
            value = [item for item in value.split(",") if item]
        kind: Any = (int, float) if key.type is float else key.type
        if not isinstance(value, kind) or isinstance(value, bool):
            self.problems.append(f"{place} = {value!r}: expected {NAMES[key.type]}")
            return key.default
        if key.choices and value not in key.choices:
            self.problems.append(
                f"{place} = {value!r}: expected {', '.join(key.choices)}{_nearest(value, key.choices)}"
            )
        if key.path and not overridden and "://" not in value:
            return str(Path(os.path.normpath(self._folder / value)))
        if key.type is dict:
            return {str(k): str(v).lower() if isinstance(v, bool) else str(v) for k, v in value.items()}
        return value


def _nearest(name: Any, known: Any) -> str:
    """A hint, if something is called much the same."""
    near = get_close_matches(str(name), [k for k in known if k], n=1, cutoff=0.5)
    return f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(k for k in known if k)}"


def _secret(key: str, value: Any) -> Any:
    """Headers and options may hold passwords: their names are enough."""
    return ", ".join(value) if isinstance(value, dict) and key != "conf" else value
