"""The HTTP API: its contract, and the one table that it is made from.

Dispatch (dispatch.py), roles, sizes of bodies, /openapi.json and /docs (openapi.py) all read ROUTES. A route that is
not here does not exist; delivery and console add theirs by a list of the same kind (`EXTENSIONS`).

WHO     `Authorization: Bearer TOKEN`. A token belongs to one tenant and has roles: read (look, match, explain), publish
        (publish events), write (read, and change subscriptions), admin (everything). A token of all tenants ("*") says
        for which with ?tenant=NAME. Without a token: 401; without the role: 403; what another tenant has: 404.
        `dibs serve --open` (loopback only) asks for no token: everybody is admin of the tenant "main".
IDS     Texts or 64-bit integers, as in dibs.Matcher. In a path an id is a text (percent-encoded; "/" as %2F), and
        with ?integer=true an integer; in JSON its JSON type decides.
BODIES  JSON in UTF-8, or JSON lines with `Content-Type: application/jsonl` (application/x-ndjson is the same). A
        document, or line, has at most --max-document bytes, all lines --max-body (413), within --max-seconds (408).
ERRORS  application/problem+json (RFC 9457): {"type": "/problems/expression", "title", "status", "detail": the words
        of the library, ...}. type is one of: expression (422; "problems": [{message, advice, start, end, line,
        column, text}]), subscriptions (422; "rejected": [{position, id, detail, problems?}]), event (422; "event",
        "attribute"), argument (400), body (400), unauthorized (401), forbidden (403), unknown-id, not-found (404),
        method (405), timeout (408), changed (412: If-Match; "version"), duplicate-id (409), idempotency (409), in-use
        (409), too-large (413), media-type (415), quota (429; Retry-After, "limit": which), destination (422),
        unavailable (503; Retry-After, "limit"), internal (500). HEAD is answered as GET, without the body.
KEYS    `Idempotency-Key: TEXT` (at most 200 characters) on any write or publish: a repeat within a day gives the first
        answer again and changes nothing (header `Idempotent-Replay: true`); the same key with another body is 409.
VERSION Every subscription has a version, sent as ETag: "7". If-Match: "7" makes PUT, DELETE, pause and resume
        conditional (412 if it is another one); If-None-Match: * on PUT means: only if it is not there.

A SUBSCRIPTION {"id", "expression", "weight", "version", "time" (ISO, of its last change), "owner", "labels",
        "destination", "mode", "paused"}. Only expression is required. owner: any text up to 200 characters; labels: an
        object of texts; destination: the name of one of the tenant's destinations; mode: "every" (default), or {"kind":
        "transition", "key"?: attribute}, {"kind": "period", "seconds", "key"?}, {"kind": "digest", "seconds"}
        (delivery/model.py).
A DESTINATION {"name", "kind": "webhook" | "stream" | "kafka", "target", "limit", "when_full": "refuse" | "drop",
        "paused"}; "secret" is taken, and shown once in the answer to the PUT that made it.

    PUT    /v1/subscriptions/{id}   write    {expression, weight?, owner?, destination?, mode?, labels?, paused?}
                                             -> 201 or 200, the subscription; ETag. Replaces all of it.
    GET    /v1/subscriptions/{id}   read     -> 200, the subscription; ETag. ?counts=true: with "matches" (as below)
    DELETE /v1/subscriptions/{id}   write    -> 200 {"removed": the subscription as it was} (for undo)
    POST   /v1/subscriptions/{id}/pause  write  -> 200, the subscription: it is kept and matches nothing
    POST   /v1/subscriptions/{id}/resume write  -> 200, the subscription
    GET    /v1/subscriptions        read     ?limit=100 ?after=CURSOR ?owner= ?attribute= ?like= (in id or
                                             expression, any case) ?paused=true|false ?silent=true (no match
                                             counted) ?counts=true ?tenant= -> {"subscriptions": [...], "next":
                                             cursor or null, "total": all of the tenant}. A page may be short, or
                                             empty, and still have a next: filters look at some thousands at a time.
    POST   /v1/subscriptions        write    JSON lines of subscriptions with "id"; {"id", "remove": true} removes.
                                             ?on_error=raise (all or none, 422) or skip; ?mode=put (default) or add
                                             (an id that is taken is an error)
                                             -> {"put": n, "removed": n, "rejected": [...], "version": n}
    POST   /v1/validate             read     {"expression"} -> {"valid", "problems": [...],
                                             "warnings": [...] (never TRUE), "canonical": text or
                                             null, "attributes": [...]}
    POST   /v1/match                read     an event -> {"subscriptions": [ids]} sorted; or JSON lines -> JSON
                                             lines {"event": n, "subscriptions": [ids]}. ?top=k (heaviest first),
                                             ?weights=true, ?versions=true (lists beside), ?explain=true
                                             ("explanations", the first 100, fewer of a
                                             large event; null: it has changed since),
                                             ?on_error=skip ("problems"),
                                             ?now=TIME (what now() is; by default the clock's)
    POST   /v1/publish              publish  an event or JSON lines: matched, kept among the recent ones, counted,
                                             handed to delivery. -> 202 {"event": id, "count": n, "deliveries": n,
                                             "subscriptions": [ids]}, the last with the role read only; JSON lines
                                             likewise. When it is answered it is on the disk.
    POST   /v1/explain              read     {"event": {...}, "id"} or {"event", "expression"}
                                             [, "now"] -> explanation:
                                             {"id", "matched", "truth", "headline", "deciding", "tree"}
    POST   /v1/misses               read     {"event", "limit"?} -> {"matched": n, "misses": [{"attribute", "count",
                                             "subscriptions": [ids], "distances"}]}: who would match with another
                                             value of one attribute, the nearest first
    GET    /v1/events               read     ?limit=100 ?before=SEQ -> {"events": [{"seq", "id", "time", "event",
                                             "count", "subscriptions"}], "kept": n}: recent ones, newest first
    POST   /v1/backtest             read     {"expression", "examples"?: 5} against the recent events -> {"events",
                                             "count", "rate" (share), "per_hour", "histogram": [{"start", "count",
                                             "events"}], "examples": [{"seq", "time", "event"}], "elapsed",
                                             "why"}: where it matches little, attributes that no event has,
                                             comparisons across kinds, events that each condition leaves
    GET    /v1/attributes           read     ?prefix= ?limit=100 ?values=10 ?attribute= (exact) -> {"attributes":
                                             [{"name", "events", "subscriptions": bool, "values": [{"value",
                                             "count"}]}], "events": looked at}
    GET    /v1/counts               read     ?id= (repeated; ?integer=true) ?by=minute|hour ?last=60 -> {"by",
                                             "start": ISO, "counts": [{"id", "total", "last", "series": [n...]}],
                                             "events": [n...]}; without id: the 100 that matched most
    PUT    /v1/destinations/{name}  write    {"kind", "target"?, "secret"?, "limit"?, "when_full"?, "paused"?}
                                             -> 201 or 200, the destination. If-None-Match: * only adds (412)
    GET    /v1/destinations/{name}  read     -> the destination, and how it does: waiting, delivered, dead...
    DELETE /v1/destinations/{name}  write    -> 200 {"removed": ...}; what waits for it is dropped. 409 (in-use) if
                                             subscriptions name it, unless ?force=true
    GET    /v1/destinations         read     -> {"destinations": [...]}
    GET    /v1/destinations/{name}/stream  read  server-sent events of a stream: `delivery` (id: its place, a dash and
                                             the stream's number), `lost`, `reset` (another stream of that name:
                                             from its beginning), `ended`; Last-Event-ID, or ?after=, goes on there
    GET    /v1/deliveries           read     -> what the outbox says of itself (queued, dead, by destination)
    GET    /v1/deliveries/dead      read     ?limit ?after ?destination -> {"dead": [...], "next"}
    POST   /v1/deliveries/dead/{delivery}/resend  write  -> 202
    POST   /v1/deliveries/dead/resend  write ?destination -> 202 {"count"}: all of them, or those of a destination
    GET    /v1/stream               read     server-sent events: `event: published`, data {"seq", "id", "time",
                                             "event", "count", "subscriptions" (the first 100)}; `event: lost`,
                                             data {"count"} when the reader is too slow. ?subscription= only those
    GET    /v1/stats                read     numbers of the tenant's matcher, its plan, load and latencies
    GET    /v1/whoami               any      {"tenant", "roles", "limits", "types": of attributes, as declared}
    GET    /v1/types                read     -> {"types": {attribute: type}}
    PUT    /v1/types                admin    {"types"} -> 200, the same. 409 (in-use) unless the tenant has neither
                                             subscriptions nor documents: types say what these mean
    GET    /v1/audit                admin    ?limit ?before -> {"entries": [{"number", "time", "token", "action",
                                             "id", "status"}]}
    GET    /health                  nobody   200 {"status": "ok"}: the process answers
    GET    /ready                   nobody   200, or 503 while it opens or closes
    GET    /metrics                 read     Prometheus text, of the tenant; for a token of all tenants, of all
    GET    /openapi.json            nobody   this table as an OpenAPI document; GET /docs as a page
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from dibs.service import schemas

Role = Literal["read", "publish", "write", "admin", "any", "nobody"]
JSON, LINES, PROBLEM = "application/json", "application/jsonl", "application/problem+json"


@dataclass(frozen=True)
class Parameter:
    """A query parameter, checked before the handler sees it."""

    name: str
    about: str
    type: Literal["string", "integer", "boolean"] = "string"
    default: Any = None
    choices: tuple[str, ...] = ()
    least: int | None = None
    most: int | None = None
    repeated: bool = False


@dataclass(frozen=True, eq=False)
class Route:
    method: str
    path: str  # with {name} for one segment, whatever it holds
    handler: str  # module:function
    role: Role
    summary: str
    parameters: tuple[Parameter, ...] = ()
    body: dict[str, Any] | None = None  # the schema of a JSON body
    lines: bool = False  # whether JSON lines are taken
    answer: dict[str, Any] = field(default_factory=dict)  # the schema of the answer
    status: int = 200
    changes: bool = False  # by the one writer only, audited, with idempotency keys
    local: bool = False  # answered by any matching process, not by the writer

    @property
    def is_stream(self) -> bool:
        """Whether a WebSocket of it is taken too."""
        return self.answer is schemas.STREAM


TENANT = Parameter("tenant", "Which tenant is meant; only for a token of all tenants.")
INTEGER = Parameter("integer", "The id in the path is an integer.", "boolean", False)
ON_ERROR = Parameter(
    "on_error", "raise: all or nothing; skip: what is bad is listed.", default="raise", choices=("raise", "skip")
)
COUNTS = Parameter("counts", "With how often each has matched.", "boolean", False)
AFTER = Parameter("after", "Where the page before has ended: its `next`.")


LIMIT = Parameter("limit", "At most so many.", "integer", 100, least=1, most=1_000)


SUBSCRIPTIONS, ASKING, LOOKING, DELIVERIES, ABOUT = (
    f"dibs.service.handlers.{m}" for m in ("subscriptions", "asking", "looking", "deliveries", "about")
)

ROUTES: tuple[Route, ...] = (
    Route(
        "GET",
        "/v1/subscriptions",
        f"{SUBSCRIPTIONS}:list_page",
        "read",
        "List subscriptions",
        (
            LIMIT,
            AFTER,
            COUNTS,
            Parameter("owner", "Only those of this owner."),
            Parameter("attribute", "Only those whose expression mentions this attribute."),
            Parameter("like", "Only those whose id or expression contains this, in any case."),
            Parameter("paused", "Only those that are paused, or not.", "boolean"),
            Parameter("silent", "Only those without a counted match.", "boolean", False),
        ),
        answer=schemas.PAGE,
    ),
    Route(
        "POST",
        "/v1/subscriptions",
        f"{SUBSCRIPTIONS}:change_many",
        "write",
        "Put or remove many",
        (
            ON_ERROR,
            Parameter(
                "mode",
                "put: add or replace; add: an id that is taken is an error.",
                default="put",
                choices=("put", "add"),
            ),
        ),
        lines=True,
        answer=schemas.CHANGED,
        changes=True,
    ),
    Route(
        "PUT",
        "/v1/subscriptions/{id}",
        f"{SUBSCRIPTIONS}:put",
        "write",
        "Add or replace one",
        (INTEGER,),
        body=schemas.NEW_SUBSCRIPTION,
        answer=schemas.SUBSCRIPTION,
        changes=True,
    ),
    Route(
        "GET",
        "/v1/subscriptions/{id}",
        f"{SUBSCRIPTIONS}:get",
        "read",
        "Show one",
        (INTEGER, COUNTS),
        answer=schemas.SUBSCRIPTION,
    ),
    Route(
        "DELETE",
        "/v1/subscriptions/{id}",
        f"{SUBSCRIPTIONS}:delete",
        "write",
        "Remove one",
        (INTEGER,),
        answer=schemas.REMOVED,
        changes=True,
    ),
    Route(
        "POST",
        "/v1/subscriptions/{id}/pause",
        f"{SUBSCRIPTIONS}:pause",
        "write",
        "Pause one",
        (INTEGER,),
        answer=schemas.SUBSCRIPTION,
        changes=True,
    ),
    Route(
        "POST",
        "/v1/subscriptions/{id}/resume",
        f"{SUBSCRIPTIONS}:resume",
        "write",
        "Let a paused one match again",
        (INTEGER,),
        answer=schemas.SUBSCRIPTION,
        changes=True,
    ),
    Route(
        "POST",
        "/v1/validate",
        f"{ASKING}:check_expression",
        "read",
        "All problems of an expression",
        body=schemas.EXPRESSION,
        answer=schemas.VALIDATED,
        local=True,
    ),
    Route(
        "POST",
        "/v1/match",
        f"{ASKING}:match",
        "read",
        "Who matches",
        (
            Parameter("top", "The heaviest first, at most so many.", "integer", least=1, most=1_000_000),
            Parameter("weights", "With the weight of each.", "boolean", False),
            Parameter("versions", "With the version of each.", "boolean", False),
            Parameter("explain", "With the reason for each, of the first 100.", "boolean", False),
            Parameter("now", "What now() is: a time, or the attribute that holds the event's own."),
            ON_ERROR,
        ),
        body=schemas.EVENT,
        lines=True,
        answer=schemas.MATCHED,
        local=True,
    ),
    Route(
        "POST",
        "/v1/publish",
        f"{ASKING}:publish",
        "publish",
        "Match, count and deliver",
        (ON_ERROR,),
        body=schemas.EVENT,
        lines=True,
        answer=schemas.PUBLISHED,
        status=202,
        changes=True,
    ),
    Route(
        "POST",
        "/v1/explain",
        f"{ASKING}:explain",
        "read",
        "Why, or why not",
        body=schemas.TO_EXPLAIN,
        answer=schemas.EXPLANATION,
    ),
    Route(
        "POST",
        "/v1/misses",
        f"{ASKING}:misses",
        "read",
        "Who would match with another value of one attribute",
        body=schemas.TO_MISS,
        answer=schemas.MISSES,
    ),
    Route(
        "GET",
        "/v1/events",
        f"{LOOKING}:recent",
        "read",
        "The recent events",
        (LIMIT, Parameter("before", "Only older ones than this.", "integer", least=0, most=2**53)),
        answer=schemas.EVENTS,
    ),
    Route(
        "POST",
        "/v1/backtest",
        f"{LOOKING}:backtest",
        "read",
        "What an expression would have matched",
        body=schemas.TO_BACKTEST,
        answer=schemas.BACKTEST,
    ),
    Route(
        "GET",
        "/v1/attributes",
        f"{LOOKING}:attributes",
        "read",
        "Attributes and frequent values of recent events",
        (
            LIMIT,
            Parameter("prefix", "Only attributes that begin with this."),
            Parameter("attribute", "Only this one."),
            Parameter("values", "So many values of each.", "integer", 10, least=0, most=1_000),
        ),
        answer=schemas.ATTRIBUTES,
    ),
    Route(
        "GET",
        "/v1/counts",
        f"{LOOKING}:counts",
        "read",
        "How often subscriptions have matched, over time",
        (
            Parameter("id", "Of these; may be repeated.", repeated=True),
            INTEGER,
            Parameter("by", "The width of a step.", default="hour", choices=("minute", "hour")),
            Parameter("last", "So many steps.", "integer", 24, least=1, most=168),
            LIMIT,
        ),
        answer=schemas.COUNTS,
    ),
    Route(
        "GET",
        "/v1/destinations",
        f"{DELIVERIES}:list_destinations",
        "read",
        "List destinations",
        answer=schemas.DESTINATIONS,
    ),
    Route(
        "PUT",
        "/v1/destinations/{name}",
        f"{DELIVERIES}:put_destination",
        "write",
        "Add or replace a destination",
        body=schemas.NEW_DESTINATION,
        answer=schemas.DESTINATION,
        changes=True,
    ),
    Route(
        "GET",
        "/v1/destinations/{name}",
        f"{DELIVERIES}:get_destination",
        "read",
        "Show one, and how it does",
        answer=schemas.DESTINATION,
    ),
    Route(
        "DELETE",
        "/v1/destinations/{name}",
        f"{DELIVERIES}:delete_destination",
        "write",
        "Remove a destination",
        (Parameter("force", "Also if subscriptions name it.", "boolean", False),),
        answer=schemas.REMOVED_DESTINATION,
        changes=True,
    ),
    Route(
        "GET",
        "/v1/destinations/{name}/stream",
        f"{DELIVERIES}:follow_stream",
        "read",
        "Follow a destination of the kind stream (server-sent events, or a WebSocket)",
        (Parameter("after", "From the delivery after this one, by its id or place; else from now on."),),
        answer=schemas.STREAM,
    ),
    Route("GET", "/v1/deliveries", f"{DELIVERIES}:overview", "read", "How delivery goes", answer=schemas.ANYTHING),
    Route(
        "GET",
        "/v1/deliveries/dead",
        f"{DELIVERIES}:dead_letters",
        "read",
        "What could not be delivered",
        (LIMIT, AFTER, Parameter("destination", "Only of this one.")),
        answer=schemas.DEAD,
    ),
    Route(
        "POST",
        "/v1/deliveries/dead/resend",
        f"{DELIVERIES}:resend_all",
        "write",
        "Try all dead letters again",
        (Parameter("destination", "Only those of this one."),),
        answer=schemas.ANYTHING,
        status=202,
        changes=True,
    ),
    Route(
        "POST",
        "/v1/deliveries/dead/{delivery}/resend",
        f"{DELIVERIES}:resend",
        "write",
        "Try a dead letter again",
        answer=schemas.ANYTHING,
        status=202,
        changes=True,
    ),
    Route(
        "GET",
        "/v1/stream",
        f"{LOOKING}:stream",
        "read",
        "Events and matches as they come (server-sent events, or a WebSocket)",
        (Parameter("subscription", "Only events that match this one."), INTEGER),
        answer=schemas.STREAM,
    ),
    Route("GET", "/v1/stats", f"{ABOUT}:stats", "read", "Numbers, plan, load and latencies", answer=schemas.ANYTHING),
    Route("GET", "/v1/whoami", f"{ABOUT}:whoami", "any", "What the token may", answer=schemas.WHOAMI),
    Route("GET", "/v1/types", f"{ABOUT}:types", "read", "The declared types of attributes", answer=schemas.TYPES),
    Route(
        "PUT",
        "/v1/types",
        f"{ABOUT}:put_types",
        "admin",
        "Declare types, while there are no subscriptions and no documents",
        body=schemas.TYPES,
        answer=schemas.TYPES,
        changes=True,
    ),
    Route(
        "GET",
        "/v1/audit",
        f"{ABOUT}:audit",
        "admin",
        "Who changed what",
        (LIMIT, Parameter("before", "Only older ones than this.", "integer", least=0, most=2**53)),
        answer=schemas.AUDIT,
    ),
    Route("GET", "/health", f"{ABOUT}:health", "nobody", "Does the process answer?", answer=schemas.STATUS, local=True),
    Route("GET", "/ready", f"{ABOUT}:ready", "nobody", "Is it ready for requests?", answer=schemas.STATUS, local=True),
    Route("GET", "/metrics", f"{ABOUT}:metrics", "read", "Metrics for Prometheus", answer=schemas.TEXT),
    Route("POST", "/internal/metrics", f"{ABOUT}:take_metrics", "nobody", "From a matching process to the writer"),
    Route(
        "GET",
        "/openapi.json",
        f"{ABOUT}:openapi",
        "nobody",
        "This API as an OpenAPI document",
        answer=schemas.ANYTHING,
        local=True,
    ),
    Route("GET", "/docs", f"{ABOUT}:docs", "nobody", "This API as a page", answer=schemas.HTML, local=True),
)

EXTENSIONS = ("dibs.service.console:ROUTES",)  # where these packages are there
