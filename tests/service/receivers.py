"""Real receivers of webhooks on loopback: one thread each, with a behaviour that can be changed while it runs."""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from dibs.service.delivery.signing import BadSignature, verify

Behaviour = Callable[["Receiver", int], int]  # of the request with this number; the status that is answered


class Receiver:
    """Keeps every request that it has taken: (delivery id, body, attempt)."""

    def __init__(self, behaviour: Behaviour | None = None, secret: str = "", tls: ssl.SSLContext | None = None):
        self.behaviour, self.secret = behaviour or (lambda receiver, number: 200), secret
        self.taken: list[tuple[str, dict[str, Any], int]] = []
        self.requests = 0
        self.headers: dict[str, str] = {}
        self.answers: list[int] = []
        self.wrong: list[str] = []  # what was not signed as it should be
        self.more: dict[str, str] = {}  # headers of answers
        self.ended = threading.Event()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1  # an answer goes out at once, else the kernel holds back its second part for 40 milliseconds

            def do_POST(self) -> None:
                length = int(self.headers["content-length"])
                body = self.rfile.read(length)
                if len(body) < length:  # whoever was sending it was killed
                    self.close_connection = True
                    return
                receiver.requests += 1
                receiver.headers = dict(self.headers.items())
                delivery = self.headers["webhook-id"]
                try:
                    verify(receiver.secret or "unknown", receiver.headers, body)
                except BadSignature as e:
                    receiver.wrong += [str(e)] * bool(receiver.secret)
                status = receiver.behaviour(receiver, receiver.requests)
                if 200 <= status < 300:
                    receiver.taken.append((delivery, json.loads(body), int(self.headers["dibs-attempt"])))
                receiver.answers.append(status)
                try:
                    self.send_response(status)
                    for name, value in receiver.more.items():
                        self.send_header(name, value)
                    self.send_header("content-length", "2")
                    self.end_headers()
                    self.wfile.write(b"ok")
                except OSError:
                    pass  # whoever asked has hung up

            def log_message(self, *_: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            def handle_error(self, *_: object) -> None:
                pass  # whoever has sent something was killed, or did not wait

        self.server = Server(("127.0.0.1", 0), Handler)
        if tls is not None:
            self.server.socket = tls.wrap_socket(self.server.socket, server_side=True)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self.thread.start()
        self.url = f"http{'s' * (tls is not None)}://127.0.0.1:{self.server.server_address[1]}/hook"

    @property
    def ids(self) -> list[str]:
        return [delivery for delivery, _, _ in self.taken]

    @property
    def events(self) -> list[Any]:
        """The first time that each delivery was taken."""
        first: dict[str, Any] = {}
        for delivery, body, _ in list(self.taken):
            first.setdefault(delivery, body.get("event"))
        return list(first.values())

    def __enter__(self) -> Receiver:
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self.server.shutdown()
        self.server.server_close()
        assert self.wrong == []


def hangs(receiver: Receiver, number: int) -> int:
    receiver.ended.wait(30)
    return 500


def wait_until(condition: Callable[[], object], seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to this in time"
        time.sleep(0.01)
