"""What the service itself takes for a request of one event: the ASGI application in this process, without a socket.

    python benchmarks/requests_in_process.py                       figures of this version
    python benchmarks/requests_in_process.py --against OTHER/src   both, in turns

Processor time of all threads, the best and the middle of many rounds. Each version works in a process of its own, which
opens its service and then measures whenever it is told to, so that both meet the same moods of the machine.
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
from pathlib import Path
from typing import Any

ROUNDS, REQUESTS = 20, 1_500
SUBSCRIPTIONS = 1_000
KINDS = ("match", "publish", "match, 16 at once", "publish, 16 at once", "validate")


async def measure_whenever_told() -> None:
    from dibs.service.app import Service
    from dibs.service.settings import Settings

    with tempfile.TemporaryDirectory() as temporary:
        service = Service(Settings(Path(temporary) / "searches", open=True, deliver=False))
        await service.start()
        event = b'{"price": 550, "color": "red", "model": "iphone5s"}'
        lines = b"\n".join(b'{"id": %d, "expression": "price = %d"}' % (n, n) for n in range(SUBSCRIPTIONS))
        assert json.loads(await ask(service, "/v1/subscriptions", lines, "application/jsonl"))["put"] == SUBSCRIPTIONS
        assert json.loads(await ask(service, "/v1/match", event))["subscriptions"] == [550]
        assert json.loads(await ask(service, "/v1/publish", event))["count"] == 1
        text = b'{"expression": "price <= 580 AND color = \'red\'"}'
        paths = {"match": ("/v1/match", event), "publish": ("/v1/publish", event), "validate": ("/v1/validate", text)}
        print(json.dumps("ready"), flush=True)
        for kind in sys.stdin:
            what, _, at_once = kind.strip().partition(", ")
            print(json.dumps(await measured(service, *paths[what], 16 if at_once else 1)), flush=True)
        await service.stop()


async def measured(service: Any, path: str, body: bytes, at_once: int) -> float:
    """Microseconds of a request."""

    async def some() -> None:
        for _ in range(REQUESTS // at_once):
            await ask(service, path, body)

    await asyncio.gather(*(some() for _ in range(at_once)))  # warm
    begun = time.process_time()
    await asyncio.gather(*(some() for _ in range(at_once)))
    return (time.process_time() - begun) / (REQUESTS // at_once * at_once) * 1e6


async def ask(service: Any, path: str, body: bytes, media: str = "application/json") -> bytes:
    headers = [(b"host", b"localhost"), (b"content-type", media.encode()), (b"content-length", b"%d" % len(body))]
    scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode()}
    scope |= {"query_string": b"", "headers": headers, "client": ("127.0.0.1", 1)}
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    await service(scope, receive, send)
    assert sent[0]["status"] in (200, 202), sent
    found: bytes = sent[1]["body"]
    return found


class Version:
    """One, in a process of its own."""

    def __init__(self, source: Path):
        own = {"PYTHONPATH": str(source)}
        if "DIBS_CACHE" in os.environ:  # else kernels of one version might make room for those of the other
            own["DIBS_CACHE"] = os.environ["DIBS_CACHE"]
        self.name, self.found = str(source), {kind: [] for kind in KINDS}  # type: tuple[str, dict[str, list[float]]]
        command = [sys.executable, __file__, "--work"]
        pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self._process = subprocess.Popen(command, env=os.environ | own, **pipes)
        assert self._read() == "ready"

    def _read(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def measure(self, kind: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(kind + "\n")
        self._process.stdin.flush()
        self.found[kind].append(self._read())

    def end(self) -> None:
        self._process.communicate()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--against", type=Path, help="the src folder of another version")
    options.add_argument("--rounds", type=int, default=ROUNDS)
    options.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.work:
        asyncio.run(measure_whenever_told())
        return
    sources = [Path(__file__).parents[1] / "src", *([chosen.against] if chosen.against else [])]
    versions = [Version(source) for source in sources]
    for _ in range(chosen.rounds):
        for kind in KINDS:
            for version in versions:
                version.measure(kind)
    for kind in KINDS:
        parts = [f"{min(v.found[kind]):7.1f} (middle {statistics.median(v.found[kind]):7.1f})" for v in versions]
        if len(versions) == 2:
            best, middle = (f(versions[0].found[kind]) / f(versions[1].found[kind]) for f in (min, statistics.median))
            parts.append(f"/ {best:.3f} (middle {middle:.3f})")
        print(f"{kind:<22} us of processor: " + "  ".join(parts))
    for version in versions:
        version.end()
    print(f"load average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
