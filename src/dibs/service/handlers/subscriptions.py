"""/v1/subscriptions: put, get, delete, pause, resume, list, and many at once."""

from __future__ import annotations

from functools import partial
from time import thread_time
from typing import Any

import orjson

from dibs.arguments import DEFAULT_WEIGHT, Id
from dibs.coding.lines import LONGEST, number_lines
from dibs.errors import DibsError, Rejected
from dibs.service import schemas
from dibs.service.call import LONGEST_ID, Answer, Call
from dibs.service.checking import problem_with
from dibs.service.counts import Counted
from dibs.service.delivery import Mode, UnknownDestination
from dibs.service.details import Detail
from dibs.service.problems import SHOWN, Refusal, list_rejected
from dibs.service.slices import Pace, Slices
from dibs.service.subscriptions import LOOKED_AT, PAGE, Filter, Lines, after_cursor, cursor_of, iso, show_subscription
from dibs.service.tenants import Tenant

SPARKLINE = 24  # hours
AT_ONCE = 500  # subscriptions whose counts are read together, to find silent ones


def put(call: Call) -> Answer:
    new = _check(call, call.id, call.json())
    found, is_new = call.tenant.subscriptions.put(new, call.condition)
    return _show(found, 201 if is_new else 200)


async def get(call: Call) -> Answer:
    id = call.id

    def work() -> Answer:
        found = call.tenant.subscriptions.get(id)
        return _show(found, matches=_matches(call, [id])[id] if call.parameters["counts"] else None)

    return await call.in_thread(work)


def delete(call: Call) -> Answer:
    found = call.tenant.subscriptions.remove(call.id, call.condition)
    call.tenant.counts.forget([found.id])
    return Answer.of({"removed": show_subscription(found)})


def pause(call: Call) -> Answer:
    return _show(call.tenant.subscriptions.pause(call.id, True, call.condition))


def resume(call: Call) -> Answer:
    return _show(call.tenant.subscriptions.pause(call.id, False, call.condition))


async def list_page(call: Call) -> Answer:
    asked = call.parameters
    after = after_cursor(asked["after"])
    wanted = Filter(asked["owner"], asked["attribute"], asked["like"], asked["paused"])

    def work() -> dict[str, Any]:
        subscriptions = call.tenant.subscriptions
        if asked["silent"]:
            found, following = _page_of_silent(call.tenant, wanted, after, asked["limit"])
        else:
            found, following = subscriptions.page(wanted, after, asked["limit"])
        shown = [show_subscription(detail) for detail in found]
        if asked["counts"]:
            matches = _matches(call, [detail.id for detail in found])
            shown = [each | {"matches": matches[each["id"]]} for each in shown]
        return {"subscriptions": shown, "next": cursor_of(following), "total": len(subscriptions)}

    return Answer.of(await call.in_thread(work))


def _page_of_silent(tenant: Tenant, wanted: Filter, after: Id | None, limit: int) -> tuple[list[Detail], Id | None]:
    """The next ones that have never matched, and the id to go on after; of so many that are looked at, perhaps none."""
    found: list[Detail] = []
    size = 0
    for _ in range(LOOKED_AT // AT_ONCE):
        some, after = tenant.subscriptions.page(wanted, after, AT_ONCE)
        silent = tenant.counts.silent([detail.id for detail in some])
        for detail in some:
            if detail.id in silent:
                size += len(detail.expression)
                if found and (len(found) == limit or size > PAGE):
                    return found, found[-1].id
                found.append(detail)
        if after is None:
            break
    return found, after


async def change_many(call: Call) -> Answer:
    """The lines are read and checked slice by slice, in turns; the change is one."""
    if not call.is_lines:
        raise Refusal("media-type", "expected application/jsonl: one subscription per line")
    lines: Lines = {}
    rejected: list[Rejected] = []
    slices, pace, first = Slices(call.body, LONGEST), Pace(), 0
    while not slices.is_at_end:
        first = await call.in_thread(partial(_read_slice, call, slices, pace, first, lines, rejected))
    return await call.in_thread(partial(_change_many, call, lines, rejected))


def _read_slice(call: Call, slices: Slices, pace: Pace, first: int, lines: Lines, rejected: list[Rejected]) -> int:
    """first: lines before the slice. Returns those with it."""
    begun, text = thread_time(), slices.advance(pace.size)
    for number, line in number_lines(text):
        id: Any = None
        try:
            value = _line(line)
            id = value.pop("id")
            lines[first + number - 1] = id if value.pop("remove", False) else _check(call, id, value)
        except (DibsError, Refusal) as e:
            error = DibsError(e.detail) if isinstance(e, Refusal) else e
            rejected.append(Rejected(first + number - 1, id, None, error))
    pace.measured(len(text), begun)
    return first + text.count(b"\n")


def _change_many(call: Call, lines: Lines, rejected: list[Rejected]) -> Answer:
    tenant, asked = call.tenant, call.parameters
    put, removed = tenant.subscriptions.change_many(lines, rejected, asked["on_error"], asked["mode"])
    if removed:
        tenant.counts.forget([line for line in lines.values() if not isinstance(line, Detail)])
    listed = [list_rejected(r) for r in rejected[:SHOWN]]
    return Answer.of({"put": put, "removed": removed, "rejected": listed, "version": tenant.matcher.version})


def _line(text: bytes) -> dict[str, Any]:
    try:
        value: dict[str, Any] = orjson.loads(text)
    except orjson.JSONDecodeError as e:
        raise Refusal("body", f"no JSON: {e}") from None
    problem = problem_with(value, schemas.LINE, "the line")
    if problem:
        raise Refusal("body", problem)
    if isinstance(value["id"], str) and not 1 <= len(value["id"]) <= LONGEST_ID:
        raise Refusal("body", f"an id has 1 to {LONGEST_ID:,} characters, not {len(value['id']):,}")
    if "expression" not in value and not value.get("remove"):
        raise Refusal("body", "the line has no 'expression', which is needed, unless it says \"remove\": true")
    return value


def _check(call: Call, id: Id, given: dict[str, Any]) -> Detail:
    """A subscription as it was sent. What is wrong with its expression the matcher says."""
    mode = given.get("mode")
    if mode is not None:
        mode = Mode.of(mode).show()
    destination = given.get("destination")
    if destination is not None:
        try:
            call.service.outbox.destination(destination, call.tenant.name)
        except UnknownDestination as error:
            raise Refusal("destination", str(error)) from None
    labels, weight = given.get("labels") or None, given.get("weight", DEFAULT_WEIGHT)
    about = (id, given.get("owner"), labels, destination, mode, given.get("paused", False))
    return Detail(*about, given["expression"], float(weight))


def _show(detail: Detail, status: int = 200, matches: Any = None) -> Answer:
    shown = show_subscription(detail) | ({} if matches is None else {"matches": matches})
    return Answer.of(shown, status, ETag=f'"{detail.version}"')


def _matches(call: Call, ids: list[Id]) -> dict[Id, dict[str, Any]]:
    return {counted.id: show_counts(counted) for counted in call.tenant.counts.of(ids, "hour", SPARKLINE)}


def show_counts(counted: Counted) -> dict[str, Any]:
    last = None if counted.last is None else iso(counted.last)
    return {"total": counted.total, "last": last, "series": counted.series}
