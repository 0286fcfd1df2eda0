"""Destinations, how delivery goes, dead letters. The outbox decides; this only speaks HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import orjson

from dibs.service.call import Answer, Call, until_gone
from dibs.service.checking import integer_of
from dibs.service.delivery import DeadLetter, Destination, DestinationStats, UnknownDestination
from dibs.service.delivery.streams import Lost, StreamItem, follow, last_place, sse, sse_of_stream
from dibs.service.schemas import EVENT_STREAM
from dibs.service.subscriptions import iso


def _show(destination: Destination) -> dict[str, Any]:
    names = ("name", "kind", "target", "limit", "when_full", "paused")
    return {name: getattr(destination, name) for name in names}


def _moment(seconds: float | None) -> str | None:
    return None if seconds is None else iso(seconds)


def _state(stats: DestinationStats) -> dict[str, Any]:
    numbers = ("waiting", "delivered", "suppressed", "refused", "dropped", "dead", "last_error")
    times = ("oldest", "failing_since", "retry_at", "last_success")
    found = {name: getattr(stats, name) for name in numbers} | {name: _moment(getattr(stats, name)) for name in times}
    return _show(stats.destination) | found


async def list_destinations(call: Call) -> Answer:
    found = await call.in_thread(lambda: call.service.outbox.stats(call.tenant.name))
    return Answer.of({"destinations": [_state(stats) for stats in found]})


def put_destination(call: Call) -> Answer:
    given = call.json()
    new = Destination(name=call.path["name"], tenant=call.tenant.name, **given)
    call.service.check_target(new)
    known = {stats.destination.name for stats in call.service.outbox.stats(call.tenant.name)}
    put, is_new = call.service.outbox.put_destination(new), new.name not in known
    secret = {"secret": put.secret} if is_new else {}
    return Answer.of(_show(put) | secret, 201 if is_new else 200)


async def get_destination(call: Call) -> Answer:
    name = call.path["name"]

    def work() -> dict[str, Any]:
        call.service.outbox.destination(name, call.tenant.name)  # raises UnknownDestination
        return next(_state(s) for s in call.service.outbox.stats(call.tenant.name) if s.destination.name == name)

    return Answer.of(await call.in_thread(work))


def delete_destination(call: Call) -> Answer:
    name, outbox = call.path["name"], call.service.outbox
    found = outbox.destination(name, call.tenant.name)
    outbox.remove_destination(name, call.tenant.name)
    return Answer.of({"removed": _show(found)})


async def overview(call: Call) -> Answer:
    found = await call.in_thread(lambda: call.service.outbox.stats(call.tenant.name))
    sums = {
        name: sum(getattr(s, name) for s in found) for name in ("waiting", "delivered", "dead", "refused", "dropped")
    }
    return Answer.of(sums | {"destinations": [_state(stats) for stats in found]})


async def dead_letters(call: Call) -> Answer:
    asked = call.parameters
    after, limit = asked["after"] or "", asked["limit"]

    def work() -> list[DeadLetter]:
        return call.service.outbox.dead_letters(call.tenant.name, asked["destination"], after=after, limit=limit)

    found = await call.in_thread(work)
    following = found[-1].delivery.id if len(found) == limit else None
    return Answer.of({"dead": [_dead(letter) for letter in found], "next": following})


def _dead(letter: DeadLetter) -> dict[str, Any]:
    delivery = letter.delivery
    return {
        "id": delivery.id,
        "destination": delivery.destination,
        "event": delivery.event,
        "created": iso(delivery.created),
        "died": iso(letter.died),
        "reason": letter.reason,
        "attempts": delivery.attempts,
        "body": orjson.Fragment(delivery.body),
    }


def resend(call: Call) -> Answer:
    delivery = call.path["delivery"]
    call.service.outbox.resend(delivery, call.tenant.name)
    return Answer.of({"id": delivery, "status": "queued"}, 202)


async def follow_stream(call: Call) -> Answer:
    """A destination of the kind stream, from the place that the client names, or from now on."""
    name, tenant, outbox = call.path["name"], call.tenant.name, call.service.outbox
    after = call.parameters["after"]
    last = call.headers.get(b"last-event-id")
    if last is not None:
        after = integer_of(last.decode("latin-1"), "Last-Event-ID")
    await call.in_thread(lambda: last_place(outbox, name, tenant))  # raises UnknownDestination
    items = follow(outbox, name, tenant, after, call.service.pool)
    return Answer(media=EVENT_STREAM, chunks=_following(call, items))


async def _following(call: Call, items: AsyncIterator[StreamItem | Lost | None]) -> AsyncIterator[bytes]:
    yield b": here\n\n"
    try:
        async for chunk in sse_of_stream(until_gone(call.receive, call.service.closing, items)):
            yield chunk
    except UnknownDestination:
        yield sse("removed", {})
