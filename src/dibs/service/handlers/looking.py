"""Recent events, backtests against them, attributes, counts, and the live stream."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from functools import lru_cache
from typing import Any

import orjson

from dibs.arguments import Id
from dibs.service.call import Answer, Call, until_gone
from dibs.service.counts import HOUR, MINUTE
from dibs.service.delivery.streams import Listener, Lost, sse
from dibs.service.handlers.subscriptions import show_counts
from dibs.service.limits import Hold
from dibs.service.recent import RecentEvent, plain_value
from dibs.service.schemas import EVENT_STREAM
from dibs.service.subscriptions import iso

MOST_IDS = 1_000
MOMENT = 0.05  # seconds
SHOWN_TO_ALL = 256  # events


def _show(event: RecentEvent) -> dict[str, Any]:
    about = {"seq": event.seq, "id": event.id, "time": iso(event.time), "event": orjson.Fragment(event.text)}
    return about | {"count": event.count, "subscriptions": event.ids}


async def recent(call: Call) -> Answer:
    def work() -> Answer:
        found = call.tenant.recent.newest(call.parameters["limit"], call.parameters["before"])
        return Answer.of({"events": [_show(event) for event in found], "kept": len(call.tenant.recent)})

    return await call.in_thread(work)


async def backtest(call: Call) -> Answer:
    given = call.json()
    call.tenant.subscriptions.check_size(given["expression"])
    begun = time.perf_counter()
    found = await call.in_thread(lambda: call.tenant.backtest(given["expression"], given.get("examples", 5)))
    answer = {
        "events": found.events,
        "count": found.count,
        "rate": found.count / found.events if found.events else 0.0,
        "per_hour": found.count / found.hours if found.hours else 0.0,
        "histogram": [{"start": iso(start), "count": count, "events": events} for start, count, events in found.bars],
        "examples": [_show(event) for event in found.examples],
        "why": None if found.why is None else found.why.to_dict(),
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
        answer["counts"] = [{"id": each.id} | show_counts(each) for each in found]
        if asked["by"] == "minute":
            answer["events"] = counted.events_by_minute(asked["last"])
        return answer

    return Answer.of(await call.in_thread(work))


# ---- streams ----


async def stream(call: Call) -> Answer:
    wanted = call.parameters["subscription"]
    id = None if wanted is None else call.id_of(wanted)
    if id is not None:
        await call.in_thread(lambda: call.tenant.subscriptions.get(id))
    stream = call.open_stream()
    return Answer(media=EVENT_STREAM, chunks=_live(call, stream, call.tenant.feed.listen(), id))


async def _live(call: Call, stream: Hold, listener: Listener[RecentEvent], id: Id | None) -> AsyncIterator[bytes]:
    """What has come meanwhile is sent together, and then nothing for a moment: a flood of events is one of bytes for
    whoever watches, not of work for the loop."""
    with listener:
        yield b": here\n\n"
        async for items in until_gone(call.receive, stream.ending, aiter(listener)):
            if items is None:
                yield b": still here\n\n"
                continue
            shown = [_shown(item) for item in items if isinstance(item, Lost) or id is None or id in item.ids]
            if shown:
                yield b"".join(shown)
                await asyncio.sleep(MOMENT)
        if stream.reason:
            yield sse("ended", {"reason": stream.reason})


def _shown(item: RecentEvent | Lost) -> bytes:
    return sse("lost", {"count": item.count}) if isinstance(item, Lost) else _shown_event(item)


@lru_cache(SHOWN_TO_ALL)
def _shown_event(event: RecentEvent) -> bytes:
    """Made once for all who watch."""
    return sse("published", _show(event) | {"event": orjson.loads(event.text)}, event.seq)
