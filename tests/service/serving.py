"""A real service on a free port of loopback, in a thread of the test's process, and its tokens."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

from dibs.matcher import Matcher
from dibs.service.app import Service, prepare_folder
from dibs.service.database import Database
from dibs.service.server import listening_socket, server_of
from dibs.service.settings import DATABASE, Settings
from dibs.service.tokens import create_token

JSON_LINES = {"Content-Type": "application/jsonl"}


class Running:
    """A service that runs; `url`, and clients with a token of some tenant and roles."""

    def __init__(self, settings: Settings, service: Service, port: int):
        self.settings, self.service, self.port = settings, service, port
        self.url = f"http://127.0.0.1:{port}"
        self._clients: list[httpx.Client] = []

    def token(self, tenant: str = "main", *roles: str) -> str:
        database = Database(self.settings.folder / DATABASE)
        try:
            return create_token(database, tenant, roles or ("admin",))[1]
        finally:
            database.close()

    def client(self, tenant: str = "main", *roles: str, token: str | None = None) -> httpx.Client:
        secret = self.token(tenant, *roles) if token is None else token
        headers = {"Authorization": f"Bearer {secret}"} if secret else {}
        client = httpx.Client(base_url=self.url, headers=headers, timeout=30, verify=False)
        self._clients.append(client)
        return client

    @property
    def matcher(self) -> Matcher:
        """Of the tenant main, in the service itself."""
        tenant = self.service.tenants.find("main")
        assert tenant is not None
        return tenant.matcher

    def close(self) -> None:
        for client in self._clients:
            client.close()


@contextlib.contextmanager
def running(folder: Path, **more: Any) -> Iterator[Running]:
    settings = Settings(folder, **({"port": 0, "deliver": False, "threads": 1} | more))
    prepare_folder(settings)
    Database(folder / DATABASE).close()
    listening = listening_socket(settings)
    service = Service(settings)
    server = server_of(settings, service)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        deadline = time.monotonic() + 120
        while service.state != "ready":
            assert thread.is_alive() and time.monotonic() < deadline, "the service has not started"
            time.sleep(0.01)
        found = Running(settings, service, listening.getsockname()[1])
        # Tokens are looked at each second; tests do not wait for that.
        service.tokens.fresh = 0.0
        try:
            yield found
        finally:
            found.close()
    finally:
        server.should_exit = True
        thread.join(30)
        listening.close()
        assert not thread.is_alive()


class Processes:
    """`dibs serve` as a person starts it: a process of its own, with those that it starts."""

    def __init__(self, folder: Path, *options: str, workers: int = 1):
        self.folder = folder
        command = [sys.executable, "-m", "dibs.cli", "serve", str(folder), "--port", "0", "--workers", str(workers)]
        self.process = subprocess.Popen([*command, *options], stderr=subprocess.PIPE, text=True)
        self.url = self.token = ""
        self.said: list[str] = []

    def __enter__(self) -> Processes:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said.append(line)
            if found := re.search(r" at (http\S+) ", line):
                self.url = found[1]
            if found := re.search(r"shown this once: (dibs_[\w-]+)|may do everything", line):
                self.token = found[1] or ""
                break
        threading.Thread(target=self._listen, daemon=True).start()
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and self.process.poll() is None:
            with contextlib.suppress(httpx.HTTPError):
                if httpx.get(f"{self.url}/ready", timeout=5, verify=False).status_code == 200:
                    return self
            time.sleep(0.05)
        self.process.kill()
        raise AssertionError(f"the service has not started: {self.said}")

    def _listen(self) -> None:
        assert self.process.stderr is not None
        self.said.extend(self.process.stderr)

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        try:
            self.process.wait(40)
        finally:
            self.process.kill()
