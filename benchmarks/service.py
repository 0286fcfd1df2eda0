"""The service on loopback: single-event requests and JSON lines, beside the in-process matcher and a plain server
of the same stack that answers a constant.

    python benchmarks/service.py                          100,000 subscriptions, a minute
    python benchmarks/service.py --subscriptions 1000000  three minutes
    python benchmarks/service.py --gathering              how single events of many clients are gathered, by variants
    python benchmarks/service.py --against OTHER/src      single events of this version, of another one and of the
                                                          constant, in turns

Server and load run on the same machine, so their figures share its cores; processor time of the server is told too.
Answers are compared with the in-process matcher's before anything is timed. The load is a number of connections, each
of which sends its next request when it has the answer to the last (asyncio, raw HTTP). Changes are made by a process of
its own: beside the load in one interpreter they would wait for the load, not for the service.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
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


SERVE = """
import json, sys
from pathlib import Path
from dibs.service.server import run
from dibs.service.settings import Settings
run(Settings(Path(sys.argv[1]), port=int(sys.argv[2]), open=True, deliver=False, **json.loads(sys.argv[3])))
"""
FILL = """
import sys
from pathlib import Path
from dibs.matcher import Matcher
from dibs.workloads.shop import generate
with Matcher.open(Path(sys.argv[1])) as matcher:
    matcher.add_table(generate(int(sys.argv[2]), 1).subscriptions)
"""
ROUNDS = 5
CHANGE = """
import sys, threading, time
import httpx
url, seconds, rate, clients = sys.argv[1], *map(float, sys.argv[2:])
took = []
def change(client):
    with httpx.Client(base_url=url) as http:
        due = end = time.perf_counter()
        end += seconds
        number = 0
        while due < end and time.perf_counter() < end:
            begun = time.perf_counter()
            body = {"expression": f"price < {number % 125}"}
            http.put(f"/v1/subscriptions/changed-{client}-{number % 125}", json=body).raise_for_status()
            took.append(time.perf_counter() - begun)
            number += 1
            due += clients / rate
            time.sleep(max(0.0, due - time.perf_counter()))
threads = [threading.Thread(target=change, args=(n,)) for n in range(int(clients))]
for thread in threads: thread.start()
for thread in threads: thread.join()
took.sort()
print(len(took) / seconds, took[len(took) // 2] * 1e3, took[int(len(took) * 0.99)] * 1e3)
"""
CHANGES, CHANGERS = 100, 4  # per second, and by so many clients
VARIANTS: dict[str, dict[str, Any]] = {
    "as measured": {},
    "from 2 on": {"gather_from": 2},
    "from 16 on": {"gather_from": 16},
    "never": {"gather_from": 1_000_000},
}


@contextmanager
def server(command: list[str], url: str, source: str | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """source: of the version that it is run with; None: this one."""
    process = subprocess.Popen(command, env=None if source is None else os.environ | {"PYTHONPATH": source})
    try:
        for _ in range(1_200):
            try:
                if httpx.get(f"{url}/ready", timeout=5).status_code == 200:
                    break
            except httpx.HTTPError:
                pass
            assert process.poll() is None, "the server has ended"
            time.sleep(0.1)
        yield process
    finally:
        process.terminate()
        process.wait(60)


@contextmanager
def service(folder: Path, port: int, **settings: Any) -> Iterator[int]:
    """Its process id."""
    command = [sys.executable, "-c", SERVE, str(folder), str(port), json.dumps(settings)]
    with server(command, f"http://127.0.0.1:{port}") as process:
        yield process.pid


def processor_time(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


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


def load(
    port: int, requests: list[bytes], connections: int, seconds: float, pid: int | None = None
) -> dict[str, float]:
    took: list[float] = []

    async def run() -> None:
        until = time.perf_counter() + seconds
        step = max(1, len(requests) // connections)
        await asyncio.gather(*(one_connection(port, requests, n * step, until, took) for n in range(connections)))

    before = processor_time(pid) if pid is not None else 0.0
    asyncio.run(run())
    spent = {"cpu us": (processor_time(pid) - before) / len(took) * 1e6} if pid is not None else {}
    took.sort()
    at = {name: took[int(len(took) * q)] * 1e3 for name, q in (("p50 ms", 0.5), ("p99 ms", 0.99))}
    return {"requests/s": len(took) / seconds, **at, **spent}


def show(what: str, found: dict[str, float]) -> None:
    print(f"{what:<44}" + "  ".join(f"{name} {value:,.2f}" for name, value in found.items()), flush=True)


@contextmanager
def changes(url: str, seconds: float) -> Iterator[None]:
    """Beside what is done meanwhile: so many per second, by so many clients."""
    command = [sys.executable, "-c", CHANGE, url, str(seconds), str(CHANGES), str(CHANGERS)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        time.sleep(0.5)  # until it has begun
        yield
        told, _ = process.communicate(timeout=60)
    rate, middle, late = map(float, told.split())
    show("    beside it", {"changes/s": rate, "p50 ms": middle, "p99 ms": late})


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--subscriptions", type=int, default=100_000)
    options.add_argument("--seconds", type=float, default=3.0, help="of each figure")
    options.add_argument("--port", type=int, default=18_431)
    options.add_argument("--gathering", action="store_true", help="only how single events are gathered, by variants")
    options.add_argument("--against", metavar="SOURCE", help="only single events, beside this other version of Dibs")
    chosen = options.parse_args()
    shop = generate(chosen.subscriptions, 5_000)
    texts = [text.encode() for text in shop.events["attributes"].to_pylist()]
    requests = [request_of(text) for text in texts]
    if chosen.against is not None:
        compare_versions(chosen.against, chosen.subscriptions, chosen.port, requests, chosen.seconds)
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "searches"
        with Matcher.open(folder) as matcher:
            begun = time.perf_counter()
            matcher.add_table(shop.subscriptions)
            expected = [matcher.match(text) for text in texts[:LINES]]
            show(f"{chosen.subscriptions:,} subscriptions filled in", {"seconds": time.perf_counter() - begun})
            body = b"\n".join(texts[:LINES])
            in_process = measure_matcher(matcher, texts, body)
        if chosen.gathering:
            compare_gathering(folder, chosen.port, requests, chosen.seconds)
            return
        with service(folder, chosen.port) as pid:
            check_answers(chosen.port, texts, expected, body)
            measure_service(chosen.port, pid, requests, body, in_process, chosen.seconds)
    port = chosen.port + 1
    with server([sys.executable, "-c", CONSTANT, str(port)], f"http://127.0.0.1:{port}") as process:
        for connections in (1, 16):
            found = load(port, requests, connections, chosen.seconds, process.pid)
            show(f"a constant, {connections} connections", found)
    print(f"load average {os.getloadavg()[0]:.1f}")


def measure_matcher(matcher: Matcher, texts: list[bytes], body: bytes) -> float:
    """In this process. Returns the seconds for the lines of the body."""
    for text in texts[:LINES]:
        matcher.match(text)
    begun = time.perf_counter()
    for text in texts[:LINES]:
        matcher.match(text)
    show("in process, one by one", {"events/s": LINES / (time.perf_counter() - begun)})
    seconds = min(timed(lambda: list(matcher.match_batch(body))) for _ in range(7))
    show(f"in process, {LINES:,} lines", {"events/s": LINES / seconds})
    return seconds


def check_answers(port: int, texts: list[bytes], expected: list[Any], body: bytes) -> None:
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=120) as client:
        for text, ids in zip(texts[:200], expected):
            found = client.post("/v1/match", content=text, headers={"Content-Type": "application/json"})
            assert found.json()["subscriptions"] == ids, text
        media = {"Content-Type": "application/jsonl"}
        lines = client.post("/v1/match", content=body, headers=media).content.splitlines()
        assert [json.loads(line)["subscriptions"] for line in lines] == expected


def measure_service(port: int, pid: int, requests: list[bytes], body: bytes, in_process: float, seconds: float) -> None:
    for connections in (1, 16, 64):
        show(f"service, {connections} connections", load(port, requests, connections, seconds, pid))
    of_lines = load(port, [request_of(body, "application/jsonl")], 1, seconds)
    rate = 1 / (of_lines["p50 ms"] / 1e3)
    show(f"service, {LINES:,} lines", {"events/s": rate * LINES, "of in-process": rate * in_process})
    with changes(f"http://127.0.0.1:{port}", seconds + 1.0):
        show("service, 16 connections, with changes", load(port, requests, 16, seconds, pid))


def compare_gathering(folder: Path, port: int, requests: list[bytes], seconds: float) -> None:
    for name, settings in VARIANTS.items():
        with service(folder, port, **settings) as pid:
            load(port, requests, 1, 1.0)
            for connections in (1, 4, 16, 64):
                show(f"gathered {name}, {connections} connections", load(port, requests, connections, seconds, pid))
            with changes(f"http://127.0.0.1:{port}", seconds + 1.0):
                show(f"gathered {name}, 16, with changes", load(port, requests, 16, seconds, pid))


def compare_versions(other: str, subscriptions: int, port: int, requests: list[bytes], seconds: float) -> None:
    """All of them run throughout; each is asked in its turn, and the middle of the turns is told."""
    sources = {"this version": str(Path(__file__).parents[1] / "src"), "the other": str(Path(other).resolve())}
    found: dict[tuple[str, int], list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as temporary, ExitStack() as running:
        asked: dict[str, tuple[int, int]] = {}  # port and process
        for place, (name, source) in enumerate(sources.items()):
            folder = str(Path(temporary) / str(place))
            environment = os.environ | {"PYTHONPATH": source}
            subprocess.run([sys.executable, "-c", FILL, folder, str(subscriptions)], env=environment, check=True)
            command = [sys.executable, "-c", SERVE, folder, str(port + place), "{}"]
            process = running.enter_context(server(command, f"http://127.0.0.1:{port + place}", source))
            asked[name] = port + place, process.pid
        command = [sys.executable, "-c", CONSTANT, str(port + len(asked))]
        process = running.enter_context(server(command, f"http://127.0.0.1:{port + len(asked)}"))
        asked["a constant"] = port + len(asked), process.pid
        for number in range(ROUNDS + 1):  # the first is to warm up
            for connections in (1, 16):
                for name, (at, pid) in asked.items():
                    told = load(at, requests, connections, seconds, pid)
                    if number:
                        found.setdefault((name, connections), []).append(told)
    for (name, connections), turns in found.items():
        middle = {figure: statistics.median(turn[figure] for turn in turns) for figure in turns[0]}
        least = min(turn["cpu us"] for turn in turns)
        show(f"{name}, {connections} connections", middle | {"least cpu us": least})
    print(f"{subscriptions:,} subscriptions, load average {os.getloadavg()[0]:.1f}")


def timed(work: Any) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


if __name__ == "__main__":
    main()
