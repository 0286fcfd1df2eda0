"""A bad neighbour: a good tenant of 100,000 subscriptions asks 200 times a second (two matches, then a publish), beside
a tenant that does its worst. Told are p50 and p99 of the good one and of /health, from the moment at which a
request was due, and the memory of the service.

    python benchmarks/neighbours.py                    every neighbour for ten seconds
    python benchmarks/neighbours.py --only bulk,bodies

nobody      the good tenant alone
bulk        bodies of 16 MB with 1.6 million small events to /v1/publish, one after the other
event       events of 27 MB to /v1/match
validate    24 validations of 98,000 characters at once
bodies      60 bodies of 30 MB that are begun and never ended
streams     500 streams of a destination that nobody reads, while it is published to
all         all of them at once
machine     as many processes as all neighbours have, which compute and ask nothing: what the machine's cores take

The good tenant, and each neighbour, is a process of its own on the same machine. Neighbours would be elsewhere: they
run at a lower priority, so that they keep the service busy and not its cores.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import os
import random
import socket
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx

from dibs.matcher import Matcher
from dibs.service.database import Database
from dibs.service.settings import DATABASE
from dibs.service.tokens import create_token
from dibs.workloads.shop import generate
from service import server, show

RATE, CONNECTIONS, HEALTH = 200, 16, 20  # requests a second, by so many connections; and to /health
SERVE = """
import json, sys
from pathlib import Path
from dibs.service.server import run
from dibs.service.settings import Settings
run(Settings(Path(sys.argv[1]), port=int(sys.argv[2]), deliver=False, **json.loads(sys.argv[3])))
"""


def head(method: str, path: str, token: str, length: int, media: str = "application/json") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", f"Authorization: Bearer {token}"]
    return "\r\n".join([*lines, f"Content-Type: {media}", f"Content-Length: {length}", "", ""]).encode()


# ---- the good tenant ----


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> bytes:
    writer.write(request)
    answer = await reader.readuntil(b"\r\n\r\n")
    length = int(answer.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    await reader.readexactly(length)
    return answer[9:12]


async def good_tenant(port: int, token: str, texts: list[bytes], seconds: float) -> dict[str, Any]:
    requests = []
    for number, text in enumerate(texts):
        path = "/v1/publish" if number % 3 == 2 else "/v1/match"
        requests.append(head("POST", path, token, len(text)) + text)
    took: list[float] = []
    of_health: list[float] = []
    refused: list[bytes] = []

    async def client(rate: float, first: float, wanted: Callable[[int], bytes], found: list[float]) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        due, number = time.perf_counter() + first, 0
        end = due + seconds
        while due < end:
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            status = await ask(reader, writer, wanted(number))
            found.append(time.perf_counter() - due)
            if status not in (b"200", b"202"):
                refused.append(status)
            due += 1 / rate
            number += 1
        writer.close()

    health = head("GET", "/health", token, 0)
    clients: list[Awaitable[None]] = [client(HEALTH, 0.0, lambda n: health, of_health)]
    for n in range(CONNECTIONS):
        pick = lambda number, n=n: requests[(number * CONNECTIONS + n) % len(requests)]  # noqa: E731
        clients.append(client(RATE / CONNECTIONS, n / RATE, pick, took))
    await asyncio.gather(*clients)
    return {"took": sorted(took), "health": sorted(of_health), "refused": len(refused)}


def run_good(port: int, token: str, texts: list[bytes], seconds: float, told: Any) -> None:
    told.put(asyncio.run(good_tenant(port, token, texts, seconds)))


# ---- the neighbours ----


def client_of(port: int, token: str) -> httpx.Client:
    limits = httpx.Limits(max_connections=None)
    headers = {"Authorization": f"Bearer {token}"}
    return httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=None, limits=limits)


def publish_bulk(port: int, token: str) -> None:
    body = b'{"a": %d}\n' % 5 * 1_600_000
    with client_of(port, token) as client:
        while True:
            client.post("/v1/publish", content=body, headers={"Content-Type": "application/jsonl"})


def match_huge(port: int, token: str) -> None:
    body = b"{" + b",".join(b'"k%d":%d' % (n, n) for n in range(1_700_000)) + b"}"
    with client_of(port, token) as client:
        while True:
            client.post("/v1/match", content=body, headers={"Content-Type": "application/json"})


def validate_long(port: int, token: str) -> None:
    text = " OR ".join(f"a{n} = {n}" for n in range(20_000))[:97_990] + "1"
    body = json.dumps({"expression": text}).encode()

    async def ask_for_ever() -> None:
        while True:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, IndexError):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                while True:
                    await ask(reader, writer, head("POST", "/v1/validate", token, len(body)) + body)

    async def together() -> None:
        await asyncio.gather(*(ask_for_ever() for _ in range(24)))

    asyncio.run(together())


def leave_bodies(port: int, token: str) -> None:
    part, kept = b" " * (30 << 20), []
    start = head("POST", "/v1/publish", token, (30 << 20) + 10)
    while True:
        for _ in range(60):
            connection = socket.create_connection(("127.0.0.1", port))
            connection.settimeout(0.5)
            with contextlib.suppress(OSError):
                connection.sendall(start + part)
            kept.append(connection)
        time.sleep(2.0)
        for connection in kept:
            connection.close()
        kept.clear()


def leave_streams(port: int, token: str) -> None:
    with client_of(port, token) as client:
        client.put("/v1/destinations/unread", json={"kind": "stream", "limit": 1_000})
        client.put("/v1/subscriptions/unread", json={"expression": "b > 0", "destination": "unread"})
        kept = []
        for _ in range(500):
            connection = socket.create_connection(("127.0.0.1", port))
            connection.sendall(head("GET", "/v1/destinations/unread/stream", token, 0))
            kept.append(connection)
        text = json.dumps({"b": 1, "text": "x" * 2_000})
        while True:
            client.post("/v1/publish", content=text, headers={"Content-Type": "application/json"})
            time.sleep(0.01)


def compute(port: int, token: str) -> None:
    text = json.dumps({"a": list(range(100_000))})
    while True:
        json.loads(text)


def run_bad(name: str, port: int, token: str) -> None:
    os.nice(10)
    (NEIGHBOURS | {"machine": compute})[name](port, token)


NEIGHBOURS: dict[str, Callable[[int, str], None]] = {
    "bulk": publish_bulk,
    "event": match_huge,
    "validate": validate_long,
    "bodies": leave_bodies,
    "streams": leave_streams,
}


def memory_of(pid: int) -> float:
    """Resident MB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


def at(found: list[float], share: float) -> float:
    return found[min(int(len(found) * share), len(found) - 1)] * 1e3


def measure(name: str, pid: int, port: int, tokens: dict[str, str], texts: list[bytes], seconds: float) -> None:
    context = multiprocessing.get_context("spawn")
    several = {"nobody": [], "all": list(NEIGHBOURS), "machine": ["machine"] * len(NEIGHBOURS)}
    chosen: list[str] = several.get(name, [name])
    bad = [context.Process(target=run_bad, args=(each, port, tokens["bad"]), daemon=True) for each in chosen]
    told = context.Queue()
    good = context.Process(target=run_good, args=(port, tokens["good"], texts, seconds, told))
    for process in bad:
        process.start()
    time.sleep(3.0 if bad else 0.5)  # until they have begun
    good.start()
    most = 0.0
    found = None
    while found is None and good.is_alive():
        most = max(most, memory_of(pid))
        with contextlib.suppress(Exception):
            found = told.get(timeout=0.1)
    for process in bad:
        process.kill()
        process.join()
    good.join()
    assert found is not None, "the good tenant could not ask"
    figures = {"p50 ms": at(found["took"], 0.5), "p99 ms": at(found["took"], 0.99), "most ms": found["took"][-1] * 1e3}
    figures |= {"/health p99 ms": at(found["health"], 0.99), "refused": found["refused"], "MB": most}
    show(f"beside {name}", figures)
    wait_until_quiet(port)


def wait_until_quiet(port: int) -> None:
    """Until what the last neighbour has left behind is done."""
    end = time.monotonic() + 60
    quick = 0
    while quick < 10 and time.monotonic() < end:
        begun = time.perf_counter()
        with contextlib.suppress(httpx.HTTPError):
            httpx.get(f"http://127.0.0.1:{port}/health", timeout=30)
        quick = quick + 1 if time.perf_counter() - begun < 0.2 else 0
        time.sleep(0.1)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--subscriptions", type=int, default=100_000)
    options.add_argument("--seconds", type=float, default=10.0, help="of each neighbour")
    options.add_argument("--port", type=int, default=18_451)
    options.add_argument("--only", default=",".join(["nobody", *NEIGHBOURS, "all", "machine"]))
    options.add_argument("--settings", default="{}", help="of the service, as JSON")
    chosen = options.parse_args()
    shop = generate(chosen.subscriptions, 3_000)
    texts = [text.encode() for text in shop.events["attributes"].to_pylist()]
    random.Random(1).shuffle(texts)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "searches"
        Matcher.open(folder).close()
        (folder / "tenants").mkdir()
        with Matcher.open(folder / "tenants" / "good") as matcher:
            matcher.add_table(shop.subscriptions)
        database = Database(folder / DATABASE)
        tokens = {name: create_token(database, name, ("write", "publish"))[1] for name in ("good", "bad")}
        database.close()
        command = [sys.executable, "-c", SERVE, str(folder), str(chosen.port), chosen.settings]
        with server(command, f"http://127.0.0.1:{chosen.port}") as process:
            asyncio.run(good_tenant(chosen.port, tokens["good"], texts, 2.0))  # opened, and warm
            for name in chosen.only.split(","):
                measure(name, process.pid, chosen.port, tokens, texts, chosen.seconds)
    print(f"load average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
