"""The JSON schemas of bodies and answers, as /openapi.json shows them and requests are checked by (checking.py)."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]


def _object(required: tuple[str, ...] = (), /, **properties: Schema) -> Schema:
    result: Schema = {"type": "object", "properties": properties}
    return result | ({"required": list(required)} if required else {})


def _just(required: tuple[str, ...], /, **properties: Schema) -> Schema:
    """Of what is sent: an object with nothing else."""
    return _object(required, **properties) | {"additionalProperties": False}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


TEXT: Schema = {"type": "string", "x-media": "text/plain"}
HTML: Schema = {"type": "string", "x-media": "text/html"}
EVENT_STREAM = "text/event-stream"
STREAM: Schema = {"type": "string", "x-media": EVENT_STREAM}
ANYTHING: Schema = {"type": "object"}
ID: Schema = {"anyOf": [{"type": "string"}, {"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1}]}
SHORT: Schema = {"type": "string", "maxLength": 200}
COUNT: Schema = {"type": "integer", "minimum": 0}
NUMBER: Schema = {"type": "number"}
FLAG: Schema = {"type": "boolean"}
STRING: Schema = {"type": "string"}
EVENT: Schema = {"type": "object", "description": "An event: its attributes by name.", "example": {"price": 550}}

MODE = {
    "anyOf": [
        {"type": "string", "enum": ["every", "transition"]},
        _just(("kind",), kind=SHORT, key=_or_null(STRING), seconds=_or_null(NUMBER)),
        {"type": "null"},
    ]
}
OWN = {
    "expression": {"type": "string", "description": "A SQL condition.", "example": "price <= 580 AND color = 'red'"},
    "weight": {"type": "number"},
    "owner": _or_null(SHORT),
    "labels": _or_null({"type": "object", "additionalProperties": SHORT, "maxProperties": 20}),
    "destination": _or_null({"type": "string", "maxLength": 100}),
    "mode": MODE,
    "paused": FLAG,
}
NEW_SUBSCRIPTION = _just(("expression",), **OWN)
LINE = _just(("id",), id=ID, remove=FLAG, **OWN)
MATCH_COUNTS = _object(total=COUNT, last=_or_null(STRING), series=_list(COUNT))
SUBSCRIPTION = _object(
    ("id", "expression", "weight", "version", "paused"),
    id=ID,
    version=COUNT,
    time=_or_null(STRING),
    matches=MATCH_COUNTS,
    **OWN,
)
PAGE = _object(
    ("subscriptions", "next", "total"), subscriptions=_list(SUBSCRIPTION), next=_or_null(STRING), total=COUNT
)
REMOVED = _object(("removed",), removed=SUBSCRIPTION)
PROBLEM_IN_TEXT = _object(
    ("message",), message=STRING, advice=STRING, start=COUNT, end=COUNT, line=COUNT, column=COUNT, text=STRING
)
REJECTED = _object(("position", "detail"), position=COUNT, id={}, detail=STRING, problems=_list(PROBLEM_IN_TEXT))
CHANGED = _object(
    ("put", "removed", "rejected", "version"), put=COUNT, removed=COUNT, rejected=_list(REJECTED), version=COUNT
)
EXPRESSION = _just(("expression",), expression=STRING)
VALIDATED = _object(
    ("valid", "problems", "warnings"),
    valid=FLAG,
    warnings=_list(PROBLEM_IN_TEXT),
    problems=_list(PROBLEM_IN_TEXT),
    canonical=_or_null(STRING),
    attributes=_list(STRING),
)
EXPLANATION = _object(
    ("matched",), id={}, matched=FLAG, truth=_or_null(FLAG), headline=STRING, deciding=_list(ANYTHING), tree=ANYTHING
)
MATCHED = _object(
    ("subscriptions",),
    event=COUNT,
    subscriptions=_list(ID),
    weights=_list(NUMBER),
    versions=_list(COUNT),
    explanations=_list(_or_null(EXPLANATION)),
    problems=_list(ANYTHING),
)
PUBLISHED = _object(("event", "count"), event=STRING, count=COUNT, deliveries=COUNT, subscriptions=_list(ID))
TO_EXPLAIN = _just(("event",), event=EVENT, id=ID, expression=STRING, now=STRING)
TO_MISS = _just(("event",), event=EVENT, limit={"type": "integer", "minimum": 1, "maximum": 1_000})
MISSES = _object(
    ("matched", "misses"),
    matched=COUNT,
    misses=_list(_object(attribute=STRING, count=COUNT, subscriptions=_list(ID), distances=_list(NUMBER))),
)
RECENT = _object(
    ("seq", "time", "event"), seq=COUNT, id=STRING, time=STRING, event=EVENT, count=COUNT, subscriptions=_list(ID)
)
EVENTS = _object(("events", "kept"), events=_list(RECENT), kept=COUNT)
TO_BACKTEST = _just(("expression",), expression=STRING, examples={"type": "integer", "minimum": 0, "maximum": 100})
WHY = _object(
    ("events", "joined", "unseen", "across", "steps", "more", "lines"),
    events=COUNT,
    joined=STRING,
    unseen=_list(_object(("attribute",), attribute=STRING, suggestion=_or_null(STRING), share=NUMBER)),
    across=_list(_object(condition=STRING, attribute=STRING, asked=STRING, found=STRING, share=NUMBER)),
    steps=_list(_object(condition=STRING, alone=COUNT, left=COUNT)),
    more=COUNT,
    lines=_list(STRING),
)
BACKTEST = _object(
    ("events", "count", "rate"),
    events=COUNT,
    count=COUNT,
    rate=NUMBER,
    per_hour=NUMBER,
    histogram=_list(_object(start=STRING, count=COUNT, events=COUNT)),
    examples=_list(RECENT),
    elapsed=NUMBER,
    why=_or_null(WHY),
)
ATTRIBUTES = _object(
    ("attributes", "events"),
    events=COUNT,
    attributes=_list(
        _object(("name",), name=STRING, events=COUNT, subscriptions=FLAG, values=_list(_object(value={}, count=COUNT)))
    ),
)
COUNTS = _object(
    ("by", "start", "counts"),
    by=STRING,
    start=STRING,
    events=_list(COUNT),
    counts=_list(_object(("id", "total", "series"), id=ID, total=COUNT, last=_or_null(STRING), series=_list(COUNT))),
)
NEW_DESTINATION = _just(
    ("kind",),
    kind={"type": "string", "enum": ["webhook", "stream", "kafka"]},
    target={"type": "string", "maxLength": 2_000},
    secret=SHORT,
    limit={"type": "integer", "minimum": 1, "maximum": 10_000_000},
    when_full={"type": "string", "enum": ["refuse", "drop"]},
    paused=FLAG,
)
DESTINATION = _object(
    ("name", "kind"), name=STRING, kind=STRING, target=STRING, limit=COUNT, when_full=STRING, paused=FLAG
)
DESTINATIONS = _object(("destinations",), destinations=_list(DESTINATION))
REMOVED_DESTINATION = _object(("removed",), removed=DESTINATION)
DEAD = _object(("dead", "next"), dead=_list(ANYTHING), next=_or_null(STRING))
WHOAMI = _object(("tenant", "roles"), tenant=STRING, roles=_list(STRING), limits=ANYTHING, types=ANYTHING)
DECLARED = {"type": "object", "additionalProperties": SHORT, "example": {"price": "number", "at": "timestamp"}}
TYPES = _just(("types",), types=DECLARED)
AUDIT = _object(("entries",), entries=_list(ANYTHING))
STATUS = _object(("status",), status=STRING)
PROBLEM = _object(("type", "title", "status", "detail"), type=STRING, title=STRING, status=COUNT, detail=STRING)
