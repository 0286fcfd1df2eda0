"""Running the service: one process, or a writer and matching processes that follow it.

--workers 1   one process listens, writes and matches; beside it the deliverer
--workers N   N processes listen on the same socket and match, each with a read-only matcher that follows the writer;
              the writer answers them over a socket in a folder of its own. A process that ends is started again, at
              first at once, then after longer and longer pauses; one that cannot even start the first time ends all.

SIGTERM and Ctrl-C stop it gracefully: no new connections, requests under way are answered, then everything is closed.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import secrets
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import uvicorn

from dibs.errors import DibsError, StorageError, WriterActive
from dibs.service.app import Service, prepare_folder
from dibs.service.database import Database
from dibs.service.delivering import Restarts, die_with_parent
from dibs.service.delivery import Outbox
from dibs.service.delivery.sealing import Sealing
from dibs.service.forwarding import Forwarder
from dibs.service.logs import configure_logs
from dibs.service.private_files import keep_private
from dibs.service.protocol import http_protocol
from dibs.service.settings import DATABASE, Settings
from dibs.service.websocket import LARGEST
from dibs.storage.writer_lock import WriterLock

GRACE = 10  # seconds for requests under way
LOCK = "service.lock"
FAILED = 3  # exit code of a process that could not start
BACKLOG = 1_024
log = logging.getLogger("dibs.service")


class StartError(DibsError):
    """The service cannot be started."""


def listening_socket(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((settings.host, settings.port))
    except OSError as e:
        found.close()
        place = f"{settings.host}:{settings.port}"
        raise StorageError(place, f"cannot listen there ({e.strerror}): choose another --port or --host") from e
    found.listen(BACKLOG)
    return found


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, service: Service):
        super().__init__(config)
        self._service = service

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._service.end_streams()
        await super().shutdown(sockets)


def server_of(settings: Settings, service: Service, tls: bool = True, **more: Any) -> uvicorn.Server:
    if tls and settings.tls_certificate is not None:
        more |= {"ssl_certfile": str(settings.tls_certificate), "ssl_keyfile": str(settings.tls_key)}
    config = uvicorn.Config(
        service,
        http=http_protocol(0 if "uds" in more else settings.max_connections, settings.stalled),
        ws="websockets-sansio",
        ws_max_size=LARGEST,
        ws_per_message_deflate=False,
        lifespan="on",
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=GRACE,
        backlog=BACKLOG,
        **more,
    )
    return _Server(config, service)


def run(settings: Settings, told: Callable[[Settings], None] = lambda _: None) -> None:
    """Serves until it is stopped. told: is called with the settings, and the port that was chosen, when it listens.
    Raises DibsError: it could not be started, or somebody else serves the folder."""
    configure_logs(settings.log, settings.log_level)
    keep_private()
    prepare_folder(settings)
    lock = _take_folder(settings.folder)
    try:
        WriterLock(settings.folder).release()  # no other program writes
        Database(settings.folder / DATABASE).close()  # made before anybody reads it
        Outbox.open(settings.folder, sealing=Sealing.of_file(settings.secrets_key)).close()
        listening = listening_socket(settings)
        settings = replace(settings, port=listening.getsockname()[1])
        try:
            if settings.workers == 1:
                told(settings)
                _serve(settings, Service(settings), sockets=[listening])
            else:
                _run_processes(settings, listening, told)
        finally:
            listening.close()
    finally:
        lock.release()


def _take_folder(folder: Path) -> WriterLock:
    """A folder is served once: what a second service would do to it, in several processes, ends before it begins."""
    try:
        return WriterLock(folder, LOCK)
    except WriterActive as e:
        raise StorageError(folder, f"is served already, by {e.holder}: stop that one, or ask it") from None


def _serve(settings: Settings, service: Service, sockets: list[socket.socket] | None = None, **more: Any) -> None:
    """Raises what kept the service from starting."""
    try:
        server_of(settings, service, **more).run(sockets=sockets)
    except SystemExit:
        if service.failure is None:
            raise
        raise service.failure from None


# ---- several processes ----


def _run_writer(parent: int, failures: Connection, settings: Settings, place: str, secret: str) -> None:
    die_with_parent(parent)
    service = Service(settings, secret=secret)
    with _telling(failures, settings):
        _serve(settings, service, tls=False, uds=place)


def _run_matching(
    parent: int, failures: Connection, settings: Settings, listening: socket.socket, place: str, secret: str
) -> None:
    die_with_parent(parent)
    service = Service(settings, forward=Forwarder(Path(place), secret), secret=secret)
    with _telling(failures, settings):
        _serve(settings, service, sockets=[listening])


@contextmanager
def _telling(failures: Connection, settings: Settings) -> Iterator[None]:
    """In a child: why it cannot start is told to the parent, which says it."""
    configure_logs(settings.log, settings.log_level)
    try:
        yield
    except DibsError as error:
        failures.send(str(error))
        sys.exit(FAILED)


class _Child:
    """A process that is started again when it ends."""

    def __init__(self, target: Callable[..., None], arguments: tuple[Any, ...]):
        self._target, self._arguments = target, arguments
        self._restarts = Restarts()
        self._due: float | None = None  # when it is started again; None: it runs
        self.process: BaseProcess

    def start(self, context: Any) -> None:
        self._failures, theirs = context.Pipe(duplex=False)
        self.process = context.Process(target=self._target, args=(os.getpid(), theirs, *self._arguments))
        self.process.start()
        theirs.close()
        self._restarts.started()
        self._due = None

    def look_after(self, context: Any, may_fail: bool) -> None:
        """may_fail: whatever keeps it from starting may pass, as the service has been up. Raises StartError."""
        if self.process.is_alive():
            return
        if self._due is None:
            pause = self._restarts.pause()
            why = self._why()
            if not may_fail and self.process.exitcode == FAILED:
                raise StartError(why)
            log.warning("a process ended (%s); it is started again in %g s", why, pause)
            self._due = time.monotonic() + pause
        elif time.monotonic() >= self._due:
            self.start(context)

    def _why(self) -> str:
        try:
            return str(self._failures.recv()) if self._failures.poll() else f"exit code {self.process.exitcode}"
        except EOFError:
            return f"exit code {self.process.exitcode}"


def _run_processes(settings: Settings, listening: socket.socket, told: Callable[[Settings], None]) -> None:
    context = multiprocessing.get_context("spawn")
    secret = secrets.token_hex(16)
    with tempfile.TemporaryDirectory(prefix="dibs-") as private:  # readable by this user only
        place = str(Path(private) / "writer")
        writer = _Child(_run_writer, (settings, place, secret))
        others = [_Child(_run_matching, (settings, listening, place, secret)) for _ in range(settings.workers)]
        children = [writer, *others]
        stopping = False

        def stop(*_: object) -> None:
            nonlocal stopping
            stopping = True

        before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
        running: list[_Child] = []
        was_up = False
        try:
            for child in children:
                child.start(context)
                running.append(child)
            told(settings)
            while not stopping:
                time.sleep(0.05)
                was_up = was_up or Path(place).exists()  # the writer listens once it has opened everything
                for child in children:
                    if not stopping:
                        child.look_after(context, was_up or child is not writer)
        finally:
            _stop([child.process for child in running if child is not writer])
            _stop([child.process for child in running if child is writer])  # what was forwarded is still answered
            for number, handler in before.items():
                signal.signal(number, handler)


def _stop(processes: list[BaseProcess]) -> None:
    for process in processes:
        process.terminate()
    for process in processes:
        process.join(GRACE + 5)
        if process.is_alive():
            process.kill()
            process.join()
