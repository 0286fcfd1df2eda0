"""The service about itself: health, numbers, metrics, audit, documents."""

from __future__ import annotations

import time
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import orjson

from dibs import __version__
from dibs.language.types import check_types
from dibs.service.call import Answer, Call
from dibs.service.delivery import DestinationStats
from dibs.service.forwarding import SECRET
from dibs.service.metrics import Sample
from dibs.service.openapi import document, page
from dibs.service.problems import Refusal
from dibs.service.settings import ALL
from dibs.service.tenants import Tenant

if TYPE_CHECKING:
    from dibs.service.app import Service


async def health(call: Call) -> Answer:
    return Answer.of({"status": "ok"})


async def ready(call: Call) -> Answer:
    """A process that follows is ready when the writer is: most requests need both. The writer is when it can write."""
    state, forward = call.service.state, call.service.forward
    if state == "ready" and forward is not None and not await forward.is_ready():
        state = "opening"
    if state == "ready" and forward is None and not await call.service.writability.ask():
        state = "cannot write"
    return Answer.of({"status": state}, 200 if state == "ready" else 503)


async def whoami(call: Call) -> Answer:
    identity = call.identity
    about = {"tenant": identity.tenant, "token": identity.token, "roles": sorted(identity.roles)}
    return Answer.of(about | {"limits": call.tenant.limits.show(), "types": call.tenant.matcher.types})


def types(call: Call) -> Answer:
    return Answer.of({"types": call.tenant.matcher.types})


def put_types(call: Call) -> Answer:
    call.tenant.declare(check_types(call.json()["types"]))
    return types(call)


async def stats(call: Call) -> Answer:
    tenant, service = call.tenant, call.service

    def work() -> dict[str, Any]:
        found = tenant.matcher.stats()
        found.pop("storage", None)  # names the server's folders
        return {
            "version": __version__,
            "uptime": service.metrics.uptime,
            "subscriptions": len(tenant.subscriptions),
            "paused": tenant.details.count_paused(),
            "recent_events": len(tenant.recent),
            "published": tenant.counts.events,
            "matches": tenant.counts.matches,
            "gathered": {"batches": tenant.gatherer.batches, "events": tenant.gatherer.gathered},
            "latency": service.metrics.quantiles() if call.identity.may("admin") else {},
            "matcher": found,
            "plan": tenant.matcher.explain_plan(),
        }

    return Answer(orjson.dumps(await call.in_thread(work), default=str, option=orjson.OPT_SERIALIZE_NUMPY))


async def audit(call: Call) -> Answer:
    asked = call.parameters
    entries = call.service.answers.entries
    found = await call.in_thread(lambda: entries(call.tenant.name, asked["limit"], asked["before"]))
    return Answer.of({"entries": found})


async def metrics(call: Call) -> Answer:
    service, all_tenants = call.service, call.identity.tenant == ALL or call.service.settings.open

    def work() -> str:
        tenants = list(service.tenants) if all_tenants else [call.tenant]
        destinations = service.outbox.stats(None if all_tenants else call.tenant.name)
        gauges = [sample for tenant in tenants for sample in _of_tenant(tenant)]
        gauges += [sample for each in destinations for sample in _of_destination(each)]
        if all_tenants:
            gauges += _of_service(service, destinations)
        return service.metrics.text(gauges, None if all_tenants else call.tenant.name)

    return Answer((await call.in_thread(work)).encode(), media="text/plain; version=0.0.4; charset=utf-8")


def _of_tenant(tenant: Tenant) -> list[Sample]:
    values = {
        "dibs_subscriptions": len(tenant.subscriptions),
        "dibs_subscriptions_paused": tenant.details.count_paused(),
        "dibs_subscriptions_limit": tenant.limits.subscriptions,
        "dibs_recent_events": len(tenant.recent),
        "dibs_published_total": tenant.counts.events,
        "dibs_tenant_streams": len(tenant.feed),
    }
    return [(name, (("tenant", tenant.name),), value) for name, value in values.items()]


def _of_destination(found: DestinationStats) -> list[Sample]:
    values: dict[str, float] = {
        "dibs_deliveries_dead": found.dead,
        "dibs_deliveries_total": found.delivered,
        "dibs_deliveries_refused_total": found.refused,
        "dibs_deliveries_dropped_total": found.dropped,
        "dibs_deliveries_suppressed_total": found.suppressed,
    }
    if found.destination.kind == "stream":
        values["dibs_deliveries_kept"] = found.kept
    else:
        values["dibs_deliveries_waiting"] = found.waiting
        values["dibs_deliveries_oldest_seconds"] = _age(found.oldest)
        values["dibs_destination_failing_seconds"] = _age(found.failing_since)
    labels = (("destination", found.destination.name), ("tenant", found.destination.tenant))
    return [(name, labels, value) for name, value in values.items()]


def _of_service(service: Service, destinations: list[DestinationStats]) -> list[Sample]:
    outbox, deliverer = service.outbox, service.deliverer
    ages = [_age(each.oldest) for each in destinations if each.destination.kind != "stream"]
    values = {
        "dibs_outbox_bytes": outbox.bytes_kept(),
        "dibs_outbox_limit_bytes": outbox.most_bytes,
        "dibs_outbox_file_bytes": outbox.bytes_on_disk(),
        "dibs_outbox_oldest_seconds": max(ages, default=0.0),
    }
    found: list[Sample] = [(name, (), value) for name, value in values.items()]
    found.append(("dibs_build_info", (("version", __version__),), 1))
    return found + service.metrics.processes(None if deliverer is None else deliverer.pid)


def _age(moment: float | None) -> float:
    return 0.0 if moment is None else max(0.0, time.time() - moment)


async def take_metrics(call: Call) -> Answer:
    """From a matching process of the same service."""
    if call.headers.get(SECRET, b"").decode("latin-1") != call.service.secret:
        raise Refusal("not-found", "there is nothing at this path; GET /docs shows what there is")
    parts = []
    while True:
        message = await call.receive()
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            break
    given = orjson.loads(b"".join(parts))
    call.service.metrics.take(given.pop("process"), given)
    return Answer.of({"status": "ok"})


@lru_cache(1)
def _document() -> bytes:
    from dibs.service.dispatch import all_routes

    return orjson.dumps(document(all_routes()))


@lru_cache(1)
def _page() -> bytes:
    from dibs.service.dispatch import all_routes

    return page(all_routes()).encode()


async def openapi(call: Call) -> Answer:
    return Answer(_document())


async def docs(call: Call) -> Answer:
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return Answer(_page(), media="text/html; charset=utf-8", headers={"Content-Security-Policy": policy})
