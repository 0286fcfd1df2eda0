"""Running the service: one process, or a writer and matching processes that follow it.

--workers 1   one process listens, writes and matches; beside it the deliverer
--workers N   N processes listen on the same socket and match, each with a read-only matcher that follows the writer;
              the writer answers them over a socket in a folder of its own. A process that ends is started again.

SIGTERM and Ctrl-C stop it gracefully: no new connections, requests under way are answered, then everything is closed.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import secrets
import signal
import socket
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import uvicorn

from dibs.errors import StorageError
from dibs.service.app import Service, prepare_folder
from dibs.service.database import Database
from dibs.service.delivering import die_with_parent
from dibs.service.forwarding import Forwarder
from dibs.service.protocol import http_protocol
from dibs.service.settings import DATABASE, Settings
from dibs.service.websocket import LARGEST

GRACE = 10  # seconds for requests under way
AGAIN = 0.5  # seconds before a process that ended is started again
BACKLOG = 1_024
log = logging.getLogger("dibs.service")


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
        http=http_protocol(),
        ws="websockets-sansio",
        ws_max_size=LARGEST,
        ws_per_message_deflate=False,
        lifespan="on",
        access_log=False,
        log_level="warning",
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=GRACE,
        backlog=BACKLOG,
        **more,
    )
    return _Server(config, service)


def run(settings: Settings, told: Callable[[Settings], None] = lambda _: None) -> None:
    """Serves until it is stopped. told: is called with the settings, and the port that was chosen, when it listens."""
    prepare_folder(settings)
    Database(settings.folder / DATABASE).close()  # made before anybody reads it
    listening = listening_socket(settings)
    settings = replace(settings, port=listening.getsockname()[1])
    try:
        if settings.workers == 1:
            told(settings)
            server_of(settings, Service(settings)).run(sockets=[listening])
        else:
            _run_processes(settings, listening, told)
    finally:
        listening.close()


# ---- several processes ----


def _run_writer(parent: int, settings: Settings, place: str, secret: str) -> None:
    die_with_parent(parent)
    server_of(settings, Service(settings, secret=secret), tls=False, uds=place).run()


def _run_matching(parent: int, settings: Settings, listening: socket.socket, place: str, secret: str) -> None:
    die_with_parent(parent)
    service = Service(settings, forward=Forwarder(Path(place), secret), secret=secret)
    server_of(settings, service).run(sockets=[listening])


def _run_processes(settings: Settings, listening: socket.socket, told: Callable[[Settings], None]) -> None:
    context = multiprocessing.get_context("spawn")
    secret = secrets.token_hex(16)
    with tempfile.TemporaryDirectory(prefix="dibs-") as private:  # readable by this user only
        place = str(Path(private) / "writer")
        targets = [(_run_writer, (settings, place, secret))]
        targets += [(_run_matching, (settings, listening, place, secret))] * settings.workers  # type: ignore[list-item]
        stopping = False

        def stop(*_: object) -> None:
            nonlocal stopping
            stopping = True

        before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
        running: list[BaseProcess] = []
        try:
            for target, arguments in targets:
                running.append(_start(context, target, arguments))
            told(settings)
            while not stopping:
                time.sleep(0.05)
                for number, process in enumerate(running):
                    if not process.is_alive() and not stopping:
                        log.warning("a process ended (%s); it is started again", process.exitcode)
                        time.sleep(AGAIN)
                        running[number] = _start(context, *targets[number])
        finally:
            _stop(running[1:])  # those that listen first: what they forward is still answered
            _stop(running[:1])
            for number, handler in before.items():
                signal.signal(number, handler)


def _start(context: Any, target: Callable[..., None], arguments: tuple[Any, ...]) -> BaseProcess:
    process: BaseProcess = context.Process(target=target, args=(os.getpid(), *arguments))
    process.start()
    return process


def _stop(processes: list[BaseProcess]) -> None:
    for process in processes:
        process.terminate()
    for process in processes:
        process.join(GRACE + 5)
        if process.is_alive():
            process.kill()
            process.join()
