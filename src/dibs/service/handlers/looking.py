"""Recent events, backtests against them, attributes, counts, and the live stream."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import orjson

from dibs.arguments import Id
from dibs.service.call import Answer, Call
from dibs.service.counts import HOUR, MINUTE
from dibs.service.handlers.subscriptions import shown_counts
from dibs.service.recent import Follower, RecentEvent, plain_value
from dibs.service.subscriptions import iso

PING = 15.0  # seconds of silence in a stream
MOST_IDS = 1_000


def _shown(event: RecentEvent) -> dict[str, Any]:
    about = {"seq": event.seq, "id": event.id, "time": iso(event.time), "event": orjson.Fragment(event.text)}
    return about | {"count": event.count, "subscriptions": event.ids}


async def recent(call: Call) -> Answer:
    found = call.tenant.recent.newest(call.parameters["limit"], call.parameters["before"])
    return Answer.of({"events": [_shown(event) for event in found], "kept": len(call.tenant.recent)})


async def backtest(call: Call) -> Answer:
    given = call.json()
    call.tenant.subscriptions.check_size(given["expression"])
    begun = time.perf_counter()
    found = await call.in_thread(lambda: call.tenant.recent.backtest(given["expression"], given.get("examples", 5)))
    answer = {
        "events": found.events,
        "count": found.count,
        "rate": found.count / found.events if found.events else 0.0,
        "per_hour": found.count / found.hours if found.hours else 0.0,
        "histogram": [{"start": iso(start), "count": count, "events": events} for start, count, events in found.bars],
        "examples": [_shown(event) for event in found.examples],
        "elapsed": time.perf_counter() - begun,
    }
    return Answer.of(answer)


async def attributes(call: Call) -> Answer:
    asked = call.parameters

    def work() -> dict[str, Any]:
        values, having, events = call.tenant.recent.learnt()
        mentioned = call.tenant.matcher.attributes
        names = {*having, *mentioned}
        if asked["attribute"] is not None:
            names &= {asked["attribute"]}
        if asked["prefix"] is not None:
            names = {name for name in names if name.startswith(asked["prefix"])}
        chosen = sorted(names, key=lambda name: (-having[name], name))[: asked["limit"]]
        listed = []
        for name in chosen:
            frequent = values[name].most_common(asked["values"]) if name in values else []
            shown = [{"value": plain_value(value), "count": count} for value, count in frequent]
            about = {"name": name, "events": having[name], "subscriptions": name in mentioned, "values": shown}
            listed.append(about)
        return {"attributes": listed, "events": events}

    return Answer.of(await call.in_thread(work))


async def counts(call: Call) -> Answer:
    asked = call.parameters
    ids: list[Id] = [call.id_of(text) for text in asked["id"][:MOST_IDS]]

    def work() -> dict[str, Any]:
        counted = call.tenant.counts
        found = counted.of(ids or counted.most_frequent(asked["limit"]), asked["by"], asked["last"])
        step = HOUR if asked["by"] == "hour" else MINUTE
        start = (int(time.time()) // step - asked["last"] + 1) * step
        answer: dict[str, Any] = {"by": asked["by"], "start": iso(start)}
        answer["counts"] = [{"id": each.id} | shown_counts(each) for each in found]
        if asked["by"] == "minute":
            answer["events"] = counted.events_by_minute(asked["last"])
        return answer

    return Answer.of(await call.in_thread(work))


async def stream(call: Call) -> Answer:
    wanted = call.parameters["subscription"]
    id = None if wanted is None else call.id_of(wanted)
    if id is not None:
        await call.in_thread(lambda: call.tenant.subscriptions.get(id))
    follower = call.tenant.recent.follow(call.tenant.limits.streams)
    return Answer(media="text/event-stream", chunks=_followed(call, follower, id))


async def _followed(call: Call, follower: Follower, id: Id | None) -> AsyncIterator[bytes]:
    gone = asyncio.ensure_future(_disconnected(call))
    try:
        yield b": here\n\n"
        while not follower.closed and not gone.done():
            if not follower.waiting and not follower.lost:
                news = asyncio.ensure_future(follower.news.wait())
                done, _ = await asyncio.wait({news, gone}, timeout=PING, return_when=asyncio.FIRST_COMPLETED)
                news.cancel()
                if not done:
                    yield b": still here\n\n"
            follower.news.clear()
            lost, follower.lost = follower.lost, 0
            events = [follower.waiting.popleft() for _ in range(len(follower.waiting))]
            if id is not None:
                events = [event for event in events if id in event.ids]
            if lost:
                yield b'event: lost\ndata: {"count":%d}\n\n' % lost
            if events:
                yield b"".join(b"event: published\nid: %d\ndata: %b\n\n" % (e.seq, _line(e)) for e in events)
    finally:
        gone.cancel()
        call.tenant.recent.followers.discard(follower)


def _line(event: RecentEvent) -> bytes:
    """In one line, whatever white space the event came with."""
    return orjson.dumps(_shown(event) | {"event": orjson.loads(event.text)})


async def _disconnected(call: Call) -> None:
    while (await call.receive())["type"] != "http.disconnect":
        pass
