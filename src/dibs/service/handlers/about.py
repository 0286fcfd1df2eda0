"""The service about itself: health, numbers, metrics, audit, documents."""

from __future__ import annotations

import time
from functools import lru_cache
from typing import Any

import orjson

from dibs import __version__
from dibs.service.call import Answer, Call
from dibs.service.forwarding import SECRET
from dibs.service.metrics import Sample
from dibs.service.openapi import document, page
from dibs.service.problems import Refusal
from dibs.service.settings import ALL


async def health(call: Call) -> Answer:
    return Answer.of({"status": "ok"})


async def ready(call: Call) -> Answer:
    """A process that follows is ready when the writer is: most requests need both."""
    state, forward = call.service.state, call.service.forward
    if state == "ready" and forward is not None and not await forward.is_ready():
        state = "opening"
    return Answer.of({"status": state}, 200 if state == "ready" else 503)


async def whoami(call: Call) -> Answer:
    identity = call.identity
    about = {"tenant": identity.tenant, "token": identity.token, "roles": sorted(identity.roles)}
    return Answer.of(about | {"limits": call.tenant.limits.show()})


async def stats(call: Call) -> Answer:
    tenant, service = call.tenant, call.service

    def work() -> dict[str, Any]:
        found = tenant.matcher.stats()
        found.pop("storage", None)  # names the server's folders
        return {
            "version": __version__,
            "uptime": time.time() - service.metrics.started,
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
        gauges: list[Sample] = []
        for tenant in tenants:
            label = ("tenant", tenant.name)
            gauges.append(("dibs_subscriptions", (label,), len(tenant.subscriptions)))
            gauges.append(("dibs_recent_events", (label,), len(tenant.recent)))
            for each in service.outbox.stats(tenant.name):
                labels = (("destination", each.destination.name), label)
                gauges.append(("dibs_deliveries_waiting", labels, each.waiting))
                gauges.append(("dibs_deliveries_dead", labels, each.dead))
                gauges.append(("dibs_deliveries_total", labels, each.delivered))
        return service.metrics.text(gauges, None if all_tenants else call.tenant.name)

    return Answer((await call.in_thread(work)).encode(), media="text/plain; version=0.0.4; charset=utf-8")


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
    call.service.metrics.others[given.pop("process")] = given
    return Answer.of({"status": "ok"})


@lru_cache(1)
def _document() -> bytes:
    from dibs.service.app import all_routes

    return orjson.dumps(document(all_routes()))


@lru_cache(1)
def _page() -> bytes:
    from dibs.service.app import all_routes

    return page(all_routes()).encode()


async def openapi(call: Call) -> Answer:
    return Answer(_document())


async def docs(call: Call) -> Answer:
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return Answer(_page(), media="text/html; charset=utf-8", headers={"Content-Security-Policy": policy})
