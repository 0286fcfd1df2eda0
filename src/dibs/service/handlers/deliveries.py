"""Destinations, how delivery goes, dead letters. The outbox decides; this only speaks HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import orjson

from dibs.service.call import Answer, Call, until_gone
from dibs.service.delivery import DeadLetter, Destination, DestinationExists, DestinationStats, UnknownDestination
from dibs.service.delivery.streams import Followed, Place, sse, sse_of_stream
from dibs.service.limits import Hold
from dibs.service.problems import Refusal
from dibs.service.schemas import EVENT_STREAM
from dibs.service.subscriptions import iso

USERS_SHOWN = 100  # subscriptions that keep a destination from being removed


def _show(destination: Destination) -> dict[str, Any]:
    names = ("name", "kind", "target", "limit", "when_full", "paused")
    return {name: getattr(destination, name) for name in names}


def _moment(seconds: float | None) -> str | None:
    return None if seconds is None else iso(seconds)


def _state(stats: DestinationStats) -> dict[str, Any]:
    numbers = ("waiting", "kept", "delivered", "suppressed", "refused", "dropped", "dead", "last_error")
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
    outbox, condition = call.service.outbox, call.condition
    if condition.versions is not None:
        raise Refusal("argument", "a destination has no version: If-Match and If-None-Match must be *")
    is_new = not outbox.has_destination(new.name, call.tenant.name)
    if condition.exists and is_new:
        raise Refusal("changed", f"there is no destination {new.name!r}, as If-Match wants")
    try:
        put = outbox.put_destination(new, absent=condition.absent)
    except DestinationExists as error:
        raise Refusal("changed", str(error)) from None
    secret = {"secret": put.secret} if is_new else {}
    answer = Answer.of(_show(put) | secret, 201 if is_new else 200)
    answer.kept = orjson.dumps(_show(put))  # the secret is shown once
    return answer


async def get_destination(call: Call) -> Answer:
    name = call.path["name"]

    def work() -> dict[str, Any]:
        call.service.outbox.destination(name, call.tenant.name)  # raises UnknownDestination
        return next(_state(s) for s in call.service.outbox.stats(call.tenant.name) if s.destination.name == name)

    return Answer.of(await call.in_thread(work))


def delete_destination(call: Call) -> Answer:
    """What waits for it is dropped with it, and what names it would be told nothing: that has to be asked for."""
    name, outbox = call.path["name"], call.service.outbox
    found = outbox.destination(name, call.tenant.name)
    if not call.parameters["force"]:
        users = sorted(call.tenant.details.users_of(name), key=str)
        if users:
            shown = ", ".join(repr(id) for id in users[:3]) + (" ..." if len(users) > 3 else "")
            detail = (
                f"{len(users):,} subscriptions name the destination ({shown}): change them first, or say ?force=true"
            )
            raise Refusal("in-use", detail, {"count": len(users), "subscriptions": users[:USERS_SHOWN]})
    outbox.remove_destination(name, call.tenant.name)
    return Answer.of({"removed": _show(found)})


async def overview(call: Call) -> Answer:
    found = await call.in_thread(lambda: call.service.outbox.stats(call.tenant.name))
    names = ("waiting", "kept", "delivered", "dead", "refused", "dropped")
    sums = {name: sum(getattr(s, name) for s in found) for name in names}
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


def resend_all(call: Call) -> Answer:
    count = call.service.outbox.resend_all(call.tenant.name, call.parameters["destination"])
    return Answer.of({"count": count, "status": "queued"}, 202)


async def follow_stream(call: Call) -> Answer:
    """A destination of the kind stream, from the place that the client names, or from now on."""
    name, tenant, streams = call.path["name"], call.tenant.name, call.service.streams
    given = call.headers.get(b"last-event-id", b"").decode("latin-1") or call.parameters["after"]
    after = None if given is None else Place.of(given)
    await streams.check(name, tenant)  # raises UnknownDestination
    items = streams.follow(name, tenant, after)
    return Answer(media=EVENT_STREAM, chunks=_following(call, call.open_stream(), items))


async def _following(call: Call, stream: Hold, items: AsyncIterator[Followed]) -> AsyncIterator[bytes]:
    yield b": here\n\n"
    try:
        async for chunk in sse_of_stream(until_gone(call.receive, stream.ending, items)):
            yield chunk
    except UnknownDestination:
        yield sse("removed", {})
    if stream.reason:
        yield sse("ended", {"reason": stream.reason})
