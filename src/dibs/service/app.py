"""The service as an ASGI application: a request is dispatched by the table of routes, its token, rate, parameters and
body are checked, and its handler is called; whatever is raised becomes a problem document.

A matching process (`follows`) answers the routes that are `local`, from a matcher that follows the writer's; all others
it forwards to the writer (forwarding.py).
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import parse_qsl, unquote

from dibs.errors import DibsError
from dibs.service.answers import Answers
from dibs.service.call import BODY_TYPES, LINE_TYPES, Answer, Call, Receive, Scope, Send
from dibs.service.checking import check_parameters
from dibs.service.database import Database
from dibs.service.delivering import DelivererProcess
from dibs.service.delivery import DeliverySettings, Destination, Outbox, Reach, check_destination
from dibs.service.forwarding import Forwarder
from dibs.service.metrics import Metrics
from dibs.service.problems import Refusal, refusal_of
from dibs.service.publishing import Publisher
from dibs.service.routes import EXTENSIONS, ROUTES, TENANT, Route
from dibs.service.settings import ALL, DATABASE, MAIN, Settings
from dibs.service.tenants import Tenants
from dibs.service.tokens import EVERYBODY, Identity, Tokens
from dibs.service.websocket import as_get
from dibs.warming.sample import run_once

Application = Callable[[Scope, Receive, Send], Awaitable[None]]
Handler = Callable[
    [Call], Any
]  # awaits an Answer or an Application; one that changes something may be a plain function
THREADS = 16
UPKEEP = 5.0  # seconds between two flushes of counts
LOOPBACK_NAMES = {"localhost", "127.0.0.1", "[::1]", "::1"}
log = logging.getLogger("dibs.service")


def all_routes() -> list[Route]:
    """The table, with those of delivery and console where they are there."""
    found = list(ROUTES)
    for place in EXTENSIONS:
        module, _, name = place.partition(":")
        if importlib.util.find_spec(module) is not None:
            found += getattr(importlib.import_module(module), name, ())
    return found


class Dispatch:
    """From a path to what can be done there: methods to routes."""

    def __init__(self, routes: list[Route]):
        self.plain: dict[str, dict[str, Route]] = {}
        self.templates: dict[int, list[tuple[list[str], dict[str, Route]]]] = {}
        for route in routes:
            if "{" not in route.path:
                self.plain.setdefault(route.path, {})[route.method] = route
                continue
            parts = route.path.split("/")
            same = self.templates.setdefault(len(parts), [])
            methods = next((methods for known, methods in same if known == parts), None)
            if methods is None:
                methods = {}
                same.append((parts, methods))
            methods[route.method] = route

    def find(self, raw_path: str) -> tuple[dict[str, Route], dict[str, str]]:
        """raw_path: as it was sent, so that an id may hold a slash (%2F)."""
        methods = self.plain.get(raw_path)
        if methods is not None:
            return methods, {}
        given = raw_path.split("/")
        for parts, methods in self.templates.get(len(given), ()):
            if all(part == each or part.startswith("{") for part, each in zip(parts, given)):
                pairs = [(part[1:-1], each) for part, each in zip(parts, given) if part.startswith("{")]
                return methods, {name: _decode(each) for name, each in pairs}
        raise Refusal("not-found", "there is nothing at this path; GET /docs shows what there is")


def _decode(text: str) -> str:
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise Refusal("argument", "the path is not UTF-8, percent-encoded") from None


class Service:
    def __init__(self, settings: Settings, forward: Forwarder | None = None, secret: str = ""):
        self.settings, self.forward = settings, forward
        self.secret = secret or secrets.token_hex(16)  # that the processes of one service know
        self.follows = forward is not None
        self.routes = all_routes()
        self.dispatch = Dispatch(self.routes)
        self.handlers: dict[Route, Handler] = {}
        self.pool = ThreadPoolExecutor(THREADS, thread_name_prefix="dibs-service")
        self.metrics = Metrics()
        self.state = "opening"  # then ready, then closing
        reach = Reach(loopback=settings.private_targets, private=settings.private_targets)
        self.delivery = DeliverySettings(reach, settings.brokers)
        self._deliverer: DelivererProcess | None = None
        self._upkeep: asyncio.Task[None] | None = None
        self.closing: asyncio.Event  # set: streams end
        self.database: Database
        self.tenants: Tenants
        self.tokens: Tokens
        self.answers: Answers
        self.outbox: Outbox
        self.publisher: Publisher

    # ---- its life ----

    async def start(self) -> None:
        self.closing = asyncio.Event()
        if self.forward is not None:
            self.forward.closing = self.closing
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self._open)
        await self.tenants.get(MAIN)
        self._upkeep = asyncio.ensure_future(self._keep_up())
        self.state = "ready"

    def _open(self) -> None:
        folder = self.settings.folder
        if not self.follows:
            prepare_folder(self.settings)
        self.database = Database(folder / DATABASE, read_only=self.follows)
        self.tokens = Tokens(self.database)
        self.tenants = Tenants(self.settings, self.database, self.pool, self.follows)
        if not self.follows:
            self.answers = Answers(self.database)
            self.outbox = Outbox.open(folder)
            self.publisher = Publisher(self.outbox, self.pool)
            if self.settings.deliver:
                self._deliverer = DelivererProcess(folder, self.delivery)
        run_once()  # what matching needs is loaded before anybody asks

    async def _keep_up(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(UPKEEP if self.forward is None else 1.0)
            try:
                if self.forward is not None:
                    await self.forward.hand_over(self.metrics.hand_over())
                else:
                    await loop.run_in_executor(self.pool, self._flush)
            except Exception:
                log.exception("upkeep failed; it will be tried again")

    def _flush(self) -> None:
        self.tenants.each(lambda tenant: tenant.counts.flush())
        self.answers.forget_old()

    def end_streams(self) -> None:
        """They have no end of their own, which a graceful stop would wait for."""
        self.closing.set()

    async def stop(self) -> None:
        """What has been answered is on the disk; followers are told goodbye."""
        self.state = "closing"
        if self._upkeep is not None:
            self._upkeep.cancel()
        if self.forward is not None:
            await self.forward.close()
        self.end_streams()
        await asyncio.get_running_loop().run_in_executor(None, self._close)

    def _close(self) -> None:
        self.pool.shutdown(wait=True)
        self.tenants.close()
        if self._deliverer is not None:
            self._deliverer.stop()
        if not self.follows:
            self.outbox.close()
        self.database.close()

    def check_target(self, destination: Destination) -> None:
        """Where deliveries may not go at all is said when the destination comes; the address that a name has is looked
        at each time that something is sent."""
        try:
            check_destination(destination, self.delivery)
        except DibsError as error:
            raise Refusal("destination", str(error)) from None

    # ---- a request ----

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        is_socket = scope["type"] == "websocket"
        if is_socket:
            scope, receive, send = as_get(scope, receive, send)
        begun = time.perf_counter()
        name = "?"
        try:
            headers = dict(scope["headers"])
            raw = scope.get("raw_path") or scope["path"].encode()
            methods, path = self.dispatch.find(raw.decode("latin-1"))
            route = methods.get(scope["method"])
            if route is None or (is_socket and not route.is_stream):
                allowed = ", ".join(methods)
                raise Refusal("method", f"only {allowed} can be done here", headers={"Allow": allowed})
            name = f"{route.method} {route.path}"
            if self.forward is not None and not route.local:
                self._check_origin(headers)
                await self.forward(scope, receive, send)
                return
            answer = await self._answer(route, scope, receive, send, headers, path)
        except Exception as error:
            answer = self._refuse(error, name)
        if isinstance(answer, Answer):
            self.metrics.count("dibs_requests_total", route=name, status=str(answer.status))
            self.metrics.observe(name, time.perf_counter() - begun)
            await answer.send(send)
        else:
            await answer(scope, receive, send)

    def _refuse(self, error: Exception, name: str) -> Answer:
        refusal = refusal_of(error)
        if refusal.status >= 500:
            log.error("%s failed", name, exc_info=error)
        self.metrics.count("dibs_refused_total", type=refusal.type)
        return Answer.refuse(refusal)

    async def _answer(
        self,
        route: Route,
        scope: Scope,
        receive: Receive,
        send: Send,
        headers: dict[bytes, bytes],
        path: dict[str, str],
    ) -> Answer | Application:
        self._check_origin(headers)
        if self.state == "closing" or (self.state == "opening" and route.role != "nobody"):
            raise Refusal("unavailable", f"the service is {self.state}", headers={"Retry-After": "1"})
        identity = self._identity(route, headers)
        parameters, asked_tenant = self._parameters(route, scope["query_string"], identity)
        handler = self.handlers.get(route) or self._handler(route)
        if route.role == "nobody":
            return await handler(Call(self, route, scope, receive, send, headers, path, identity, None, parameters))  # type: ignore[arg-type]
        tenant_name = asked_tenant if identity.tenant == ALL else identity.tenant
        if self.forward is not None and not self.tenants.is_there(tenant_name):
            return self.forward
        tenant = self.tenants.find(tenant_name) or await self.tenants.get(tenant_name)
        tenant.rate.take()
        call = Call(self, route, scope, receive, send, headers, path, identity, tenant, parameters)
        if route.method in ("POST", "PUT"):
            call.body = await self._body(call)
        if not route.changes:
            return await handler(call)
        return await self.answers.once(call, handler)

    def _handler(self, route: Route) -> Handler:
        module, _, name = route.handler.partition(":")
        found: Handler = getattr(importlib.import_module(module), name)
        self.handlers[route] = found
        return found

    def _check_origin(self, headers: dict[bytes, bytes]) -> None:
        """A page of another site must not use what a browser on this machine may reach; and a name that was made to
        point to loopback is not ours."""
        host = headers.get(b"host", b"").decode("latin-1")
        origin = headers.get(b"origin", b"").decode("latin-1")
        if origin and origin.partition("://")[2] != host:
            raise Refusal("forbidden", "pages of other sites may not use this service")
        if self.settings.open:
            name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
            if name not in LOOPBACK_NAMES:
                raise Refusal("forbidden", "without tokens the service is asked by the names of this machine only")

    def _identity(self, route: Route, headers: dict[bytes, bytes]) -> Identity:
        if self.settings.open or route.role == "nobody":
            return EVERYBODY
        secret = _secret(headers)
        found = self.tokens.identity(secret) if secret else None
        if found is None:
            detail = "the token is not known, or was revoked" if secret else "send a token: Authorization: Bearer TOKEN"
            raise Refusal("unauthorized", detail, headers={"WWW-Authenticate": 'Bearer realm="dibs"'})
        if not found.may(route.role):
            raise Refusal("forbidden", f"this needs the role {route.role}, which the token does not have")
        return found

    def _parameters(self, route: Route, query: bytes, identity: Identity) -> tuple[dict[str, Any], str]:
        """The parameters, and which tenant is meant."""
        given: dict[str, list[str]] = {}
        if query:
            try:
                pairs = parse_qsl(query.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=1_100)
            except ValueError:
                raise Refusal("argument", "the query is not UTF-8, percent-encoded, or has too many parts") from None
            for name, value in pairs:
                given.setdefault(name, []).append(value)
        if identity.tenant == ALL and "tenant" in given:
            tenant = check_parameters({"tenant": given.pop("tenant")}, (TENANT,))["tenant"]
            if not self._has_tenant(tenant):
                raise Refusal("not-found", "there is no such tenant; a token makes one")
            return check_parameters(given, route.parameters), tenant
        return check_parameters(given, route.parameters), MAIN

    def _has_tenant(self, name: str) -> bool:
        query = "SELECT 1 FROM tokens WHERE tenant = ? UNION SELECT 1 FROM tenants WHERE name = ?"
        return name == MAIN or bool(self.database.read(query, (name, name)))

    async def _body(self, call: Call) -> bytes:
        route, limits = call.route, call.tenant.limits
        media = call.media
        if media not in BODY_TYPES or (media in LINE_TYPES and not route.lines):
            kinds = [*(["application/json"] if route.body else []), *(["application/jsonl"] if route.lines else [])]
            if kinds:
                raise Refusal("media-type", f"expected {' or '.join(kinds)}, not {media!r} (curl: --json)")
        most = limits.body or 1 << 40
        length = call.headers.get(b"content-length", b"")
        if length.isdigit() and int(length) > most:
            raise Refusal("too-large", f"the body has {int(length):,} bytes; at most {most:,} are taken")
        return await _in_time(_read_body(call.receive, most), limits.seconds)

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                try:
                    await self.start()
                except Exception as error:
                    await send({"type": "lifespan.startup.failed", "message": str(error)})
                    return
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                await self.stop()
                await send({"type": "lifespan.shutdown.complete"})
                return


async def _in_time(work: Coroutine[Any, Any, bytes], seconds: float) -> bytes:
    """What wait_for does, without a task for each request."""
    task, is_late = asyncio.current_task(), False

    def cut_off() -> None:
        nonlocal is_late
        is_late = True
        if task is not None:
            task.cancel()

    timer = asyncio.get_running_loop().call_later(seconds, cut_off) if seconds else None
    try:
        return await work
    except asyncio.CancelledError:
        if not is_late:
            raise
        if task is not None and hasattr(task, "uncancel"):  # from Python 3.11 on
            task.uncancel()
        detail = f"the body did not come within {seconds} seconds"
        raise Refusal("timeout", detail, headers={"Connection": "close"}) from None
    finally:
        if timer is not None:
            timer.cancel()


async def _read_body(receive: Receive, most: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Refusal("body", "the connection ended before the body did")
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > most:
            raise Refusal("too-large", f"the body has more than {most:,} bytes", headers={"Connection": "close"})
        if not message.get("more_body"):
            return parts[0] if len(parts) == 1 else b"".join(parts)


def _secret(headers: dict[bytes, bytes]) -> str:
    kind, _, secret = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
    return secret.strip() if kind.lower() == "bearer" else ""


def prepare_folder(settings: Settings) -> None:
    """The main matcher comes first: a folder that holds something else is refused before anything is written."""
    from dibs.matcher import Matcher
    from dibs.storage.store import is_durable

    if not is_durable(settings.folder):
        Matcher.open(settings.folder).close()
