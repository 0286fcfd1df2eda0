"""The service on loopback: single-event requests and JSON lines, beside the in-process matcher and a plain server
of the same stack that answers a constant.

    python benchmarks/service.py                          100,000 subscriptions
    python benchmarks/service.py --subscriptions 1000000

Server and load run on the same machine, so their figures share its cores. Answers are compared with the in-process
matcher's before anything is timed. The load is a number of connections, each of which sends its next request when it
has the answer to the last (asyncio, raw HTTP).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from dibs.matcher import Matcher
from dibs.workloads.shop import generate

LINES = 1_000
CONSTANT = """
import asyncio, sys, uvicorn
BODY = b'{"subscriptions":[]}'
async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            await send({"type": message["type"] + ".complete"})
            if message["type"] == "lifespan.shutdown":
                return
    while (await receive()).get("more_body"):
        pass
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(BODY)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": BODY})
uvicorn.run(app, port=int(sys.argv[1]), access_log=False, log_level="warning")
"""


@contextmanager
def server(command: list[str], url: str) -> Iterator[None]:
    process = subprocess.Popen(command)
    try:
        for _ in range(1_200):
            try:
                if httpx.get(f"{url}/ready", timeout=5).status_code == 200:
                    break
            except httpx.HTTPError:
                pass
            assert process.poll() is None, "the server has ended"
            time.sleep(0.1)
        yield
    finally:
        process.terminate()
        process.wait(60)


def request_of(text: bytes, media: str = "application/json") -> bytes:
    head = f"POST /v1/match HTTP/1.1\r\nHost: localhost\r\nContent-Type: {media}\r\nContent-Length: {len(text)}\r\n\r\n"
    return head.encode() + text


async def one_connection(port: int, requests: list[bytes], first: int, until: float, took: list[float]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    place = first
    while time.perf_counter() < until:
        begun = time.perf_counter()
        writer.write(requests[place % len(requests)])
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        await reader.readexactly(length)
        took.append(time.perf_counter() - begun)
        place += 1
    writer.close()


def load(port: int, requests: list[bytes], connections: int, seconds: float) -> dict[str, float]:
    took: list[float] = []

    async def run() -> None:
        until = time.perf_counter() + seconds
        step = max(1, len(requests) // connections)
        await asyncio.gather(*(one_connection(port, requests, n * step, until, took) for n in range(connections)))

    asyncio.run(run())
    took.sort()
    at = {name: took[int(len(took) * q)] * 1e3 for name, q in (("p50 ms", 0.5), ("p99 ms", 0.99))}
    return {"requests/s": len(took) / seconds, **at}


def show(what: str, found: dict[str, float]) -> None:
    print(f"{what:<44}" + "  ".join(f"{name} {value:,.2f}" for name, value in found.items()), flush=True)


def change_all_the_time(url: str, stopping: threading.Event, done: list[int]) -> None:
    """100 changes per second."""
    with httpx.Client(base_url=url) as client:
        due = time.perf_counter()
        while not stopping.is_set():
            number = len(done) % 500
            answer = client.put(f"/v1/subscriptions/changed-{number}", json={"expression": f"price < {number}"})
            assert answer.is_success
            done.append(number)
            due += 0.01
            stopping.wait(max(0.0, due - time.perf_counter()))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--subscriptions", type=int, default=100_000)
    options.add_argument("--seconds", type=float, default=3.0)
    options.add_argument("--port", type=int, default=18_431)
    chosen = options.parse_args()
    shop = generate(chosen.subscriptions, 5_000)
    texts = [text.encode() for text in shop.events["attributes"].to_pylist()]
    port, url = chosen.port, f"http://127.0.0.1:{chosen.port}"
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "searches"
        with Matcher.open(folder) as matcher:
            matcher.add_table(shop.subscriptions)
            expected = [matcher.match(text) for text in texts[:LINES]]
            begun, count = time.perf_counter(), 0
            for text in texts:
                matcher.match(text)
            show("in process, one by one", {"events/s": len(texts) / (time.perf_counter() - begun)})
            body = b"\n".join(texts[:LINES])
            in_process = min(timed(lambda: list(matcher.match_batch(body))) for _ in range(7))
            count = sum(map(len, expected))
        show(f"in process, {LINES:,} lines ({count:,} matches)", {"events/s": LINES / in_process})
        command = [sys.executable, "-m", "dibs.cli", "serve", str(folder), "--open", "--port", str(port)]
        with server(command, url):
            serve(url, port, texts, expected, body, in_process, chosen.seconds)
        with server([sys.executable, "-c", CONSTANT, str(port + 1)], f"http://127.0.0.1:{port + 1}"):
            for connections in (1, 16):
                found = load(port + 1, [request_of(text) for text in texts], connections, chosen.seconds)
                show(f"a constant, {connections} connections", found)


def serve(
    url: str, port: int, texts: list[bytes], expected: list[Any], body: bytes, in_process: float, seconds: float
) -> None:
    with httpx.Client(base_url=url, timeout=120) as client:
        for text, ids in zip(texts[:200], expected):
            found = client.post("/v1/match", content=text, headers={"Content-Type": "application/json"})
            assert found.json()["subscriptions"] == ids, text
        media = {"Content-Type": "application/jsonl"}
        lines = client.post("/v1/match", content=body, headers=media).content.splitlines()
        assert [json.loads(line)["subscriptions"] for line in lines] == expected
    requests = [request_of(text) for text in texts]
    for connections in (1, 16):
        show(f"service, {connections} connections", load(port, requests, connections, seconds))
    of_lines = load(port, [request_of(body, "application/jsonl")], 1, seconds)
    rate = 1 / (of_lines["p50 ms"] / 1e3)
    show(f"service, {LINES:,} lines", {"events/s": rate * LINES, "of in-process": rate * in_process})
    stopping, done = threading.Event(), list[int]()
    thread = threading.Thread(target=change_all_the_time, args=(url, stopping, done))
    thread.start()
    try:
        show("service, 16 connections, with changes", load(port, requests, 16, seconds))
    finally:
        stopping.set()
        thread.join()
    print(f"{'':<44}{len(done) / seconds:,.0f} changes/s beside; load average {os.getloadavg()[0]:.1f}")


def timed(work: Any) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


if __name__ == "__main__":
    main()
