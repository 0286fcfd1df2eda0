"""Validate, match, publish, explain, nearest misses."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from itertools import takewhile
from time import thread_time
from typing import Any

import orjson

from dibs.arguments import Id
from dibs.errors import EventError, UnknownId
from dibs.language.present import datetime_at, read_clock
from dibs.language.types import check_types
from dibs.matches import Matches
from dibs.segments.id_lists import COUNT, IDS, NUMBER, Frame, IdColumns
from dibs.service.call import Answer, Call
from dibs.service.misses import find_misses
from dibs.service.problems import SHOWN, Refusal, refusal_of
from dibs.service.publishing import PublishedSlice, Publishing
from dibs.service.routes import LINES
from dibs.service.slices import BUFFERED, Pace, Slices, split_lines

IN_THE_LOOP = 16 << 10  # bytes of an event that is matched there, if it is one of those that are matched in no time
SHORT = 200  # bytes of an expression that is read there: half a millisecond at most
EXPLAINED = 100  # subscriptions of one event
EXPLAINING = 0.5  # seconds after which no more of them are: each looks at the whole event
MATCHED = Frame(b'{"event":', NUMBER, b',"subscriptions":[', IDS, b"]}\n")


async def check_expression(call: Call) -> Answer:
    if len(call.body) <= SHORT:
        return _check_expression(call)
    return await call.in_thread(lambda: _check_expression(call))


def _check_expression(call: Call) -> Answer:
    text = call.json()["expression"]
    call.tenant.subscriptions.check_size(text)
    return Answer(call.service.expressions.validate(text, check_types(call.tenant.matcher.types)))


# ---- matching ----


async def match(call: Call) -> Answer:
    asked, tenant = call.parameters, call.tenant
    plain = asked["top"] is None and not (asked["weights"] or asked["versions"] or asked["explain"] or asked["now"])
    if not call.is_lines and plain and asked["on_error"] == "raise" and len(call.body) <= IN_THE_LOOP:
        ids = await tenant.gatherer.match(call.body)
        call.service.metrics.matched(tenant.name, 1, len(ids))
        return Answer(b'{"subscriptions":' + orjson.dumps(ids) + b"}")
    if not call.is_lines:
        return await call.in_thread(lambda: Answer(_match(call, plain, [_event(call.body)])))
    if asked["now"] is None:
        call.parameters = asked | {"now": datetime_at(read_clock())}  # one for all slices
    slices, pace = Slices(call.body, tenant.limits.document), tenant.pace
    chunks = _match_slices(call, plain, slices, pace)
    if len(call.body) <= BUFFERED:
        return Answer(b"".join([chunk async for chunk in chunks]), media=LINES)
    if asked["on_error"] == "raise":  # an answer that has begun cannot become a refusal
        while not slices.is_at_end:
            await call.in_thread(partial(_check_slice, call, slices, pace))
        slices.back_to_start()
    return Answer(media=LINES, chunks=chunks)


async def _match_slices(call: Call, plain: bool, slices: Slices, pace: Pace) -> AsyncIterator[bytes]:
    while not slices.is_at_end:
        yield await call.in_thread(partial(_match_slice, call, plain, slices, pace))


def _check_slice(call: Call, slices: Slices, pace: Pace) -> None:
    try:
        slices.events += call.tenant.matcher.check_batch(slices.advance(pace.size))
    except EventError as error:
        raise slices.place_error(error) from None


def _match_slice(call: Call, plain: bool, slices: Slices, pace: Pace) -> bytes:
    begun, text = thread_time(), slices.advance(pace.size)
    try:
        return _match(call, plain, text, slices)
    except EventError as error:
        raise slices.place_error(error) from None
    finally:
        pace.measured(len(text), begun)


def _match(call: Call, plain: bool, events: Any, slices: Slices | None = None) -> bytes:
    asked, matcher = call.parameters, call.tenant.matcher
    matches = matcher.match_batch(events, on_error=asked["on_error"], top=asked["top"], now=asked["now"])
    call.service.metrics.matched(call.tenant.name, len(matches), matches.count)
    first = 0
    if slices is not None:
        first = slices.events
        slices.events += len(matches)
    if plain and not matches.problems:
        return matches.columns().lines(MATCHED, first)
    ids = list(matches) if asked["top"] is None else matches.top(asked["top"])
    found = _add_details(call, matches, ids, slices)
    if slices is None:
        return orjson.dumps(found[0])
    for each in found:
        each["event"] += first
    return b"".join([orjson.dumps(each, option=orjson.OPT_APPEND_NEWLINE) for each in found])


def _add_details(call: Call, matches: Matches, ids: list[list[Id]], slices: Slices | None) -> list[dict[str, Any]]:
    asked = call.parameters
    result: list[dict[str, Any]] = [{"event": n, "subscriptions": found} for n, found in enumerate(ids)]
    if asked["weights"] or asked["versions"]:
        about = _about(matches)
        for n, found in enumerate(ids):
            if asked["weights"]:
                result[n]["weights"] = [about[n, id][0] for id in found]
            if asked["versions"]:
                result[n]["versions"] = [about[n, id][1] for id in found]
    if asked["explain"]:
        texts = [call.body] if slices is None else split_lines(slices.text)
        for n, found in enumerate(ids):
            event = _event(texts[n]) if found else {}
            end = thread_time() + EXPLAINING
            some = takewhile(lambda id, end=end: thread_time() < end, found[:EXPLAINED])  # type: ignore[misc]
            result[n]["explanations"] = [_explain(call, id, event) for id in some]
    for problem in matches.problems[:SHOWN]:
        message = problem.message if slices is None else slices.place(problem.message)
        told = {"attribute": problem.attribute, "detail": message}
        result[problem.event].setdefault("problems", []).append(told)
    return result


def _explain(call: Call, id: Id, event: dict[str, Any]) -> dict[str, Any] | None:
    """Why it matches; None: it has changed since."""
    try:
        found = call.tenant.matcher.explain(id, event, call.parameters["now"])
    except UnknownId:
        return None
    return found.to_dict() if found.matched else None


def _about(matches: Matches) -> dict[tuple[int, Id], tuple[float, int]]:
    table = matches.pairs(weights=True, versions=True)
    names = ("event", "subscription", "weight", "version")
    columns = [table[name].to_pylist() for name in names]
    return {(event, id): (weight, version) for event, id, weight, version in zip(*columns)}


def _event(text: bytes) -> dict[str, Any]:
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as e:
        raise EventError(f"no JSON: {e}") from None
    if not isinstance(value, dict):
        raise EventError(f"an event is an object of attributes, not {type(value).__name__}")
    return value


# ---- publishing ----


async def publish(call: Call) -> Answer:
    """A body of some size is answered when it is published; a larger one slice by slice."""
    skip, sees = call.parameters["on_error"] == "skip", call.identity.may("read")
    request = call.service.publisher.begin(call.tenant, call.body, lines=call.is_lines, key=call.key, skip=skip)
    first = request.at_once() if not call.is_lines and len(call.body) <= IN_THE_LOOP else None
    if first is not None:
        call.service.metrics.matched(call.tenant.name, 1, len(first.ids[0]))
        return Answer.of(_show(first, 0, sees), 202)
    first = await _publish_slice(call, request)
    if not call.is_lines:
        if first.problems:
            raise EventError(first.problems[0][1])
        return Answer.of(_show(first, 0, sees), 202)
    if not request.is_done:
        chunks = _publish_slices(call, request, first, sees)
        if len(call.body) > BUFFERED:
            return Answer(status=202, media=LINES, chunks=chunks)
        try:
            return Answer(b"".join([chunk async for chunk in chunks]), 202, LINES)
        except Exception as error:
            refusal = refusal_of(error)
            refusal.more |= {"published": request.published}  # the first of its events
            raise refusal from error
    if not first.events and not first.problems:
        raise Refusal("body", "the body has no event; expected an object, or one per line")
    return Answer(_show_lines(first, sees), 202, LINES)


async def _publish_slice(call: Call, request: Publishing) -> PublishedSlice:
    found = await request.turn()
    call.service.metrics.matched(call.tenant.name, found.events, found.count)
    return found


async def _publish_slices(call: Call, request: Publishing, found: PublishedSlice, sees: bool) -> AsyncIterator[bytes]:
    while True:
        yield await call.in_thread(partial(_show_lines, found, sees))
        if request.is_done:
            return
        found = await _publish_slice(call, request)


def _show_lines(found: PublishedSlice, sees: bool) -> bytes:
    if found.told is None and found.positions is None and isinstance(found.ids, IdColumns):
        return _show_plain(found, found.ids, sees)
    rows = [(found.position(n), _show(found, n, sees) | {"position": found.position(n)}) for n in range(found.events)]
    rows += [(position, {"position": position, "problem": detail}) for position, detail in found.problems]
    rows.sort(key=lambda row: row[0])
    return b"".join([orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for _, row in rows])


def _show_plain(found: PublishedSlice, ids: IdColumns, sees: bool) -> bytes:
    """Of many events that nobody was to be told of: the same text as of the others."""
    start = b'{"event":"%b' % found.front.encode(), NUMBER, b'","count":', COUNT
    end = b',"position":', NUMBER, b"}\n"
    middle = (b',"deliveries":0,"subscriptions":[', IDS, b"]" + end[0]) if sees else (b',"deliveries":0' + end[0],)
    return ids.lines(Frame(*start, *middle, *end[1:]), found.first)


def _show(found: PublishedSlice, number: int, sees: bool) -> dict[str, Any]:
    ids, told = found.ids[number], None if found.told is None else found.told[number]
    about: dict[str, Any] = {"event": f"{found.front}{found.position(number)}" if told is None else told.event}
    about |= {"count": len(ids), "deliveries": 0 if told is None else told.deliveries}
    if told is not None and told.refused:
        about["refused"] = told.refused
    return about | ({"subscriptions": ids} if sees else {})


# ---- why, and why not ----


def explain(call: Call) -> Answer:
    given = call.json()
    event = given["event"]
    if ("id" in given) == ("expression" in given):
        raise Refusal("body", "give either an id or an expression to explain")
    matcher, now = call.tenant.matcher, given.get("now")
    if "expression" in given:
        call.tenant.subscriptions.check_size(given["expression"])
        return Answer.of(matcher.explain_text(given["expression"], event, None, now).to_dict())
    found = call.tenant.subscriptions.get(given["id"])
    if found.paused:
        return Answer.of(matcher.explain_text(found.expression, event, found.id, now).to_dict() | {"paused": True})
    return Answer.of(matcher.explain(given["id"], event, now).to_dict())


def misses(call: Call) -> Answer:
    given = call.json()
    return Answer.of(find_misses(call.tenant.matcher, given["event"], given.get("limit", 20)))
