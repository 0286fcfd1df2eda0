"""The service as an ASGI application: a request is dispatched by the table of routes, its token, rate, parameters and
body are checked, and its handler is called; whatever is raised becomes a problem document.

A matching process (`follows`) answers the routes that are `local`, from a matcher that follows the writer's; all others
it forwards to the writer (forwarding.py).
"""

from __future__ import annotations

import asyncio
import gc
import logging
import secrets
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import parse_qsl

from dibs.errors import DibsError
from dibs.service.answers import Answers
from dibs.service.bodies import read_body
from dibs.service.call import BODY_TYPES, LINE_TYPES, Answer, Call, Receive, Scope, Send
from dibs.service.checking import check_parameters
from dibs.service.database import Database
from dibs.service.deadlines import Deadlines
from dibs.service.delivering import DelivererProcess
from dibs.service.delivery import DeliverySettings, Destination, Outbox, Reach, check_destination
from dibs.service.delivery.sealing import Sealing
from dibs.service.delivery.streams import Streams
from dibs.service.dispatch import Dispatch, ReadyRoute, all_routes
from dibs.service.expressions import ExpressionReader
from dibs.service.forwarding import Forwarder
from dibs.service.limits import Hold, Room
from dibs.service.logs import log_request, request_id, requests
from dibs.service.metrics import Metrics
from dibs.service.private_files import make_private
from dibs.service.problems import Refusal, refusal_of
from dibs.service.publishing import Publisher
from dibs.service.routes import TENANT, Route
from dibs.service.settings import ALL, DATABASE, MAIN, Settings
from dibs.service.tenants import Tenants
from dibs.service.tokens import EVERYBODY, FRESH, Identity, Tokens
from dibs.service.turns import Turns, share_interpreter
from dibs.service.websocket import as_get
from dibs.service.writability import Writability
from dibs.warming.sample import run_once

Application = Callable[[Scope, Receive, Send], Awaitable[None]]
THREADS, TURNS, TURNS_OF_TENANT = 8, 8, 2
UPKEEP = 5.0  # seconds between two flushes of counts
HOLD = "dibs.hold"  # in the scope: what the request takes of the room
LOOPBACK_NAMES = {"localhost", "127.0.0.1", "[::1]", "::1"}
log = logging.getLogger("dibs.service")


class Service:
    def __init__(self, settings: Settings, forward: Forwarder | None = None, secret: str = ""):
        self.settings, self.forward = settings, forward
        self.secret = secret or secrets.token_hex(16)  # that the processes of one service know
        self.follows = forward is not None
        self.routes = all_routes()
        self.dispatch = Dispatch(self.routes)
        self.deadlines = Deadlines()
        self.pool = ThreadPoolExecutor(THREADS, thread_name_prefix="dibs-service")  # for what is short
        self.turns = Turns(TURNS, TURNS_OF_TENANT, "dibs-turn", self.deadlines)  # for what is not
        self.expressions = ExpressionReader()
        self.metrics = Metrics()
        self.state = "opening"  # then ready, then closing
        self.failure: Exception | None = None  # why it could not start
        reach = Reach(loopback=settings.private_targets, private=settings.private_targets)
        self.delivery = DeliverySettings(reach, settings.brokers, settings.secrets_key)
        self.deliverer: DelivererProcess | None = None
        self._upkeep: asyncio.Task[None] | None = None
        self._watch: asyncio.Task[None] | None = None
        self.closing: asyncio.Event  # set: streams that are forwarded end
        self.open_streams: set[Hold] = set()
        self.room = Room(settings)
        self.writability = Writability(self)
        self.database: Database
        self.reading: Database
        self.tenants: Tenants
        self.tokens: Tokens
        self.answers: Answers
        self.outbox: Outbox
        self.streams: Streams
        self.publisher: Publisher

    # ---- its life ----

    async def start(self) -> None:
        share_interpreter()
        self.closing = asyncio.Event()
        if self.forward is not None:
            self.forward.closing = self.closing
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self._open)
        await self.tenants.get(MAIN)
        if self.settings.deliver and not self.follows:
            self.deliverer = DelivererProcess(self.settings, self.delivery)
        self._upkeep = asyncio.ensure_future(self._keep_up())
        self._watch = asyncio.ensure_future(self._watch_tokens())
        self.state = "ready"

    def _open(self) -> None:
        folder = self.settings.folder
        if not self.follows:
            prepare_folder(self.settings)
        self.database = Database(folder / DATABASE, read_only=self.follows)
        # A connection of their own: the loop looks at them, and must not wait for those who write.
        self.reading = Database(folder / DATABASE, read_only=True)
        self.tokens = Tokens(self.reading)
        self.tenants = Tenants(self.settings, self.database, self.pool, self.follows)
        if not self.follows:
            self.answers = Answers(self.database)
            self.outbox = Outbox.open(folder, sealing=Sealing.of_file(self.settings.secrets_key))
            self.publisher = Publisher(self.outbox, self.deadlines)
            self.streams = Streams(self.outbox, self.pool)
        run_once()  # what matching needs is loaded before anybody asks
        gc.collect()
        gc.freeze()  # what is there stays: the collector need not look at it while others wait

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

    async def _watch_tokens(self) -> None:
        """Streams end with their token."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(min(self.tokens.fresh or FRESH, FRESH))
            if not self.open_streams or self.settings.open:
                continue
            try:
                await loop.run_in_executor(self.pool, self.tokens.look)
            except DibsError:
                log.exception("tokens cannot be read; it will be tried again")
                continue
            for stream in list(self.open_streams):
                if not self.tokens.is_in_use(stream.identity):
                    stream.end_stream("the token was revoked, or has expired")

    def _flush(self) -> None:
        self.tenants.each(lambda tenant: tenant.counts.flush())
        self.answers.forget_old()

    def end_streams(self) -> None:
        """They have no end of their own, which a graceful stop would wait for."""
        self.closing.set()
        for stream in self.open_streams:
            stream.end_stream()

    async def stop(self) -> None:
        """What has been answered is on the disk; followers are told goodbye."""
        self.state = "closing"
        for task in (self._upkeep, self._watch):
            if task is not None:
                task.cancel()
        if self.forward is not None:
            await self.forward.close()
        self.end_streams()
        await asyncio.get_running_loop().run_in_executor(None, self._close)

    def _close(self) -> None:
        self.expressions.close()  # those who wait for it are told so
        self.turns.close()
        if not self.follows:
            self.publisher.close()
        self.pool.shutdown(wait=True)
        self.tenants.close()
        if self.deliverer is not None:
            self.deliverer.stop()
        if not self.follows:
            self.streams.close()
            self.outbox.close()
        self.reading.close()
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
        try:
            await self._serve(scope, receive, send, is_socket)
        finally:
            hold: Hold | None = scope.get(HOLD)
            if hold is not None:
                self.open_streams.discard(hold)
                hold.end()

    async def _serve(self, scope: Scope, receive: Receive, send: Send, is_socket: bool) -> None:
        begun = time.perf_counter()
        name, is_head = "?", False
        try:
            headers = dict(scope["headers"])
            raw = scope.get("raw_path") or scope["path"].encode()
            methods, path = self.dispatch.find(raw.decode("latin-1"))
            method = scope["method"]
            is_head = method == "HEAD"
            ready = methods.get("GET" if is_head else method)
            if ready is None or (is_socket and not ready.route.is_stream):
                allowed = ", ".join(methods)
                raise Refusal("method", f"only {allowed} can be done here", headers={"Allow": allowed})
            name = ready.name
            if self.forward is not None and not ready.route.local:
                self._check_origin(headers)
                await self.forward(scope, receive, send)
                return
            answer = await self._answer(ready, scope, receive, send, headers, path)
        except Exception as error:
            answer = self._refuse(error, name, scope)
        if isinstance(answer, Answer):
            seconds = time.perf_counter() - begun
            self.metrics.answered(name, answer.status, seconds, scope.get("dibs.tenant"))
            if requests.isEnabledFor(logging.INFO):
                log_request(scope, name, answer.status, seconds)
            if "dibs.request" in scope:
                answer.headers = {**answer.headers, "X-Request-Id": request_id(scope)}
            await self._send(answer, scope, send, is_head)
        else:
            await answer(scope, receive, send)

    async def _send(self, answer: Answer, scope: Scope, send: Send, is_head: bool) -> None:
        if HOLD in scope:
            scope[HOLD].add_bytes(len(answer.body))
        try:
            await answer.send(send, is_head)
        except (
            DibsError,
            Refusal,
        ) as error:  # the answer had begun: it ends without its end, and so does the connection
            about = {"about": {"request": request_id(scope)}}
            log.error("an answer was broken off: %s", refusal_of(error).detail, extra=about)

    def _refuse(self, error: Exception, name: str, scope: Scope) -> Answer:
        refusal = refusal_of(error)
        if refusal.status >= 500:
            log.error("%s failed", name, exc_info=error, extra={"about": {"request": request_id(scope)}})
        self.metrics.refused(refusal.type, scope.get("dibs.tenant"))
        return Answer.refuse(refusal)

    async def _answer(
        self,
        ready: ReadyRoute,
        scope: Scope,
        receive: Receive,
        send: Send,
        headers: dict[bytes, bytes],
        path: dict[str, str],
    ) -> Answer | Application:
        route = ready.route
        self._check_origin(headers)
        if self.state == "closing" or (self.state == "opening" and route.role != "nobody"):
            raise Refusal("unavailable", f"the service is {self.state}", headers={"Retry-After": "1"})
        identity = self._identity(route, headers)
        parameters, asked_tenant = self._parameters(ready, scope["query_string"], identity)
        if route.role == "nobody":
            about = (headers, path, identity, None, parameters, Hold(self.room, identity, "", self.settings.limits))
            return await ready.handler(Call(self, route, scope, receive, send, *about))  # type: ignore[arg-type]
        tenant_name = asked_tenant if identity.tenant == ALL else identity.tenant
        if self.forward is not None and not self.tenants.is_there(tenant_name):
            return self.forward
        scope["dibs.tenant"] = tenant_name
        tenant = self.tenants.find(tenant_name) or await self.tenants.get(tenant_name)
        tenant.rate.take()
        hold = Hold(self.room, identity, tenant.name, tenant.limits)
        hold.begin()
        scope[HOLD] = hold
        call = Call(self, route, scope, receive, send, headers, path, identity, tenant, parameters, hold)
        if ready.has_body:
            call.body = await self._body(call)
        if route.changes:
            return await self.answers.once(call, ready)
        if ready.is_awaited:
            return await ready.handler(call)
        return await call.in_thread(lambda: ready.handler(call))

    def _check_origin(self, headers: dict[bytes, bytes]) -> None:
        """A page of another site must not use what a browser on this machine may reach; and a name that was made to
        point to loopback is not ours."""
        host = headers.get(b"host", b"").decode("latin-1")
        if b"origin" in headers:
            origin = headers[b"origin"].decode("latin-1")
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

    def _parameters(self, ready: ReadyRoute, query: bytes, identity: Identity) -> tuple[dict[str, Any], str]:
        """The parameters, and which tenant is meant."""
        if not query:
            return ready.defaults, MAIN
        route = ready.route
        given: dict[str, list[str]] = {}
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
        return name == MAIN or bool(self.reading.read(query, (name, name)))

    async def _body(self, call: Call) -> bytes:
        route, limits = call.route, call.tenant.limits
        media = call.media
        if media not in BODY_TYPES or (media in LINE_TYPES and not route.lines):
            kinds = [*(["application/json"] if route.body else []), *(["application/jsonl"] if route.lines else [])]
            if kinds:
                raise Refusal("media-type", f"expected {' or '.join(kinds)}, not {media!r} (curl: --json)")
        most, what = limits.body, "the body"
        if not call.is_lines and limits.document and not 0 < most < limits.document:
            most, what = limits.document, "the document"
        declared = call.headers.get(b"content-length", b"")
        return await read_body(call.receive, declared, most, what, self.deadlines, limits.seconds, call.hold)

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                try:
                    await self.start()
                except Exception as error:
                    self.failure = error
                    await send({"type": "lifespan.startup.failed", "message": ""})
                    return
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                await self.stop()
                await send({"type": "lifespan.shutdown.complete"})
                return


def _secret(headers: dict[bytes, bytes]) -> str:
    kind, _, secret = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
    return secret.strip() if kind.lower() == "bearer" else ""


def prepare_folder(settings: Settings) -> None:
    """The main matcher comes first: a folder that holds something else is refused before anything is written."""
    from dibs import engine
    from dibs.matcher import Matcher
    from dibs.storage.store import is_durable

    engine.load()  # kernels are compiled when they are called
    if not is_durable(settings.folder):
        Matcher.open(settings.folder, types=settings.types).close()
    make_private(settings.folder)
