"""The way to streams over HTTP."""

from __future__ import annotations

from dibs.service import schemas
from dibs.service.call import Answer, Call
from dibs.service.delivery.streams import follow, last_place, sse_of_stream
from dibs.service.problems import Refusal
from dibs.service.routes import Parameter, Route

ROUTES = (
    Route(
        "GET",
        "/v1/destinations/{name}/stream",
        "dibs.service.delivery.routes:follow_stream",
        "read",
        "Deliveries to a stream as they come (server-sent events)",
        (Parameter("after", "From after this place; without: from now on. Last-Event-ID says the same."),),
        answer=schemas.STREAM,
    ),
)


async def follow_stream(call: Call) -> Answer:
    given = call.headers.get(b"last-event-id", b"").decode("latin-1") or call.parameters["after"]
    if given and not (given.isascii() and given.isdecimal() and len(given) < 19):
        raise Refusal("argument", f"a place in a stream is a number from 0, not {given[:40]!r}")
    outbox, name, tenant = call.service.outbox, call.path["name"], call.tenant.name
    if outbox.destination(name, tenant).kind != "stream":
        raise Refusal("argument", f"{name} is no stream: nobody can listen to it")
    place = int(given) if given else await call.in_thread(lambda: last_place(outbox, name, tenant))
    followed = follow(outbox, name, tenant, place, call.service.pool)
    return Answer(media="text/event-stream", chunks=sse_of_stream(followed))
