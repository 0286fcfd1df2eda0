"""Validate, match, publish, explain, nearest misses."""

from __future__ import annotations

from typing import Any

import orjson

from dibs.arguments import Id
from dibs.coding.values import Range
from dibs.errors import EventError, ExpressionError, UnknownId
from dibs.language.joins import attributes_of_event
from dibs.language.printer import to_sql
from dibs.language.sql import parse
from dibs.matches import Matches
from dibs.reference import values_of
from dibs.service.call import Answer, Call
from dibs.service.problems import SHOWN, Refusal, problem_of
from dibs.service.publishing import Published, split_lines
from dibs.service.routes import LINES

EXPLAINED = 100  # subscriptions of one event
TRIED = 200  # attributes that get another value, at most
MISSES_SHOWN = 100  # ids of each attribute
EVERY_VALUE = [Range(None, float("inf")), Range("", None), True, False]


async def check_expression(call: Call) -> Answer:
    text = call.json()["expression"]
    call.tenant.subscriptions.check_size(text)
    try:
        tree = parse(text)
    except ExpressionError as error:
        problems = [problem_of(problem) for problem in error.problems]
        return Answer.of({"valid": False, "problems": problems, "canonical": None, "attributes": []})
    named = sorted(attributes_of_event(tree))
    return Answer.of({"valid": True, "problems": [], "canonical": to_sql(tree), "attributes": named})


# ---- matching ----


async def match(call: Call) -> Answer:
    asked, tenant = call.parameters, call.tenant
    plain = asked["top"] is None and not (asked["weights"] or asked["versions"] or asked["explain"])
    if not call.is_lines and plain and asked["on_error"] == "raise":
        ids = await tenant.gatherer.match(call.body)
        call.service.metrics.count("dibs_events_total", tenant=tenant.name)
        call.service.metrics.count("dibs_matches_total", len(ids), tenant=tenant.name)
        return Answer(b'{"subscriptions":' + orjson.dumps(ids) + b"}")
    return await call.in_thread(lambda: _match(call, plain))


def _match(call: Call, plain: bool) -> Answer:
    asked, matcher = call.parameters, call.tenant.matcher
    events: Any = call.body
    if not call.is_lines:
        events = [_event(call.body)]
    matches = matcher.match_batch(events, on_error=asked["on_error"], top=asked["top"])
    metrics = call.service.metrics
    metrics.count("dibs_events_total", len(matches), tenant=call.tenant.name)
    metrics.count("dibs_matches_total", matches.count, tenant=call.tenant.name)
    ids = list(matches) if asked["top"] is None else matches.top(asked["top"])
    if plain and not matches.problems:
        lines = [b'{"event":%d,"subscriptions":%b}\n' % (n, orjson.dumps(found)) for n, found in enumerate(ids)]
    else:
        lines = [
            orjson.dumps(found, option=orjson.OPT_APPEND_NEWLINE) for found in _add_details(call, matches, ids, events)
        ]
    return Answer(b"".join(lines), media=LINES) if call.is_lines else Answer(lines[0])


def _add_details(call: Call, matches: Matches, ids: list[list[Id]], events: Any) -> list[dict[str, Any]]:
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
        texts = split_lines(call.body) if call.is_lines else [call.body]
        for n, found in enumerate(ids):
            event = _event(texts[n]) if found else {}
            result[n]["explanations"] = [_explain(call, id, event) for id in found[:EXPLAINED]]
    for problem in matches.problems[:SHOWN]:
        told = {"attribute": problem.attribute, "detail": problem.message}
        result[problem.event].setdefault("problems", []).append(told)
    return result


def _explain(call: Call, id: Id, event: dict[str, Any]) -> dict[str, Any] | None:
    """Why it matches; None: it has changed since."""
    try:
        found = call.tenant.matcher.explain(id, event)
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
    texts = split_lines(call.body) if call.is_lines else [call.body]
    if not texts:
        raise Refusal("body", "the body has no event; expected an object, or one per line")
    skip = call.parameters["on_error"] == "skip"
    published, problems = await call.service.publisher.publish(call.tenant, texts, call.key, skip)
    metrics = call.service.metrics
    metrics.count("dibs_events_total", len(published), tenant=call.tenant.name)
    metrics.count("dibs_matches_total", sum(len(p.ids) for p in published), tenant=call.tenant.name)
    sees = call.identity.may("read")
    if not call.is_lines:
        if problems:
            raise EventError(problems[0][1])
        return Answer.of(_publish(published[0], sees), 202)
    rows = [(p.position, _publish(p, sees) | {"position": p.position}) for p in published]
    rows += [(position, {"position": position, "problem": detail}) for position, detail in problems]
    rows.sort(key=lambda row: row[0])
    body = b"".join(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for _, row in rows)
    return Answer(body, 202, LINES)


def _publish(published: Published, sees: bool) -> dict[str, Any]:
    about: dict[str, Any] = {"event": published.event, "count": len(published.ids), "deliveries": published.deliveries}
    if published.refused:
        about["refused"] = published.refused
    return about | ({"subscriptions": published.ids} if sees else {})


# ---- why, and why not ----


async def explain(call: Call) -> Answer:
    given = call.json()
    event = given["event"]
    if ("id" in given) == ("expression" in given):
        raise Refusal("body", "give either an id or an expression to explain")

    def work() -> dict[str, Any]:
        matcher = call.tenant.matcher
        if "expression" in given:
            call.tenant.subscriptions.check_size(given["expression"])
            return matcher.explain_text(given["expression"], event).to_dict()
        found = call.tenant.subscriptions.get(given["id"])
        if found.paused:
            return matcher.explain_text(found.expression, event, found.id).to_dict() | {"paused": True}
        return matcher.explain(given["id"], event).to_dict()

    return Answer.of(await call.in_thread(work))


async def misses(call: Call) -> Answer:
    """One event more for each attribute, in which that one may have any value: who matches it, and does not match the
    event itself, fails on this attribute alone."""
    given = call.json()
    event, limit = given["event"], given.get("limit", 20)

    def work() -> dict[str, Any]:
        matcher = call.tenant.matcher
        present = values_of(event)
        asked = sorted(matcher.attributes, key=lambda name: (name not in present, name))[:TRIED]
        flat = {name: values for name, values in present.items() if name not in asked}
        base = flat | {name: present[name] for name in asked if name in present}
        variants = [base, *(base | {name: EVERY_VALUE} for name in asked)]
        matched, *others = (set(ids) for ids in matcher.match_batch(variants))
        found = [(name, ids - matched) for name, ids in zip(asked, others) if ids - matched]
        found.sort(key=lambda pair: (-len(pair[1]), pair[0]))
        shown = [
            {"attribute": name, "count": len(ids), "subscriptions": sorted(ids, key=_order)[:MISSES_SHOWN]}
            for name, ids in found[:limit]
        ]
        return {"matched": len(matched), "misses": shown}

    return Answer.of(await call.in_thread(work))


def _order(id: Id) -> tuple[bool, Id]:
    return isinstance(id, str), id
