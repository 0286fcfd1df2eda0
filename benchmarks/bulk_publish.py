"""Bulk publishing over HTTP: JSON lines to /v1/publish, with 0, 1 and 40 matches an event, without destinations and
with a stream that every match goes to; events a second, and of the processor's time of the service a second.

    python benchmarks/bulk_publish.py                 some seconds for each line
    python benchmarks/bulk_publish.py --megabytes 16  the body of one request

Before anything is timed, the answers of some events are compared with what the events were made to match.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

import httpx

from service import processor_time, service, show

JSON_LINES = {"Content-Type": "application/jsonl"}
SUBSCRIPTIONS = 10_000
WITH_DESTINATIONS = 20_000  # events of one request: each is written to the disk


def fill(client: httpx.Client, destination: str | None) -> None:
    """Sets of 0, 1 and 40 subscriptions share a value; all others have one of their own."""
    if destination is not None:
        client.put(f"/v1/destinations/{destination}", json={"kind": "stream", "limit": 1_000}).raise_for_status()
    about = "" if destination is None else f', "destination": "{destination}"'
    values = [1] + [40] * 40 + list(range(1_000, 1_000 + SUBSCRIPTIONS))
    body = "\n".join(f'{{"id": {n}, "expression": "a = {value}"{about}}}' for n, value in enumerate(values))
    client.post("/v1/subscriptions", content=body.encode(), headers=JSON_LINES, timeout=120).raise_for_status()


def measure(client: httpx.Client, pid: int, matches: int, count: int, what: str) -> None:
    line = b'{"a":%d}\n' % matches
    told = client.post("/v1/publish", content=line * 100, headers=JSON_LINES).text.splitlines()
    assert len(told) == 100 and all(f'"count":{matches},' in each for each in told), told[:1]
    begun, spent = time.perf_counter(), processor_time(pid)
    answer = client.post("/v1/publish", content=line * count, headers=JSON_LINES)
    seconds, spent = time.perf_counter() - begun, processor_time(pid) - spent
    assert answer.status_code == 202 and answer.content.count(b"\n") == count
    show(f"{what}, {matches} matches an event", {"events/s": count / seconds, "of a core": count / spent})


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--megabytes", type=int, default=4, help="of a body without destinations")
    options.add_argument("--port", type=int, default=18_441)
    chosen = options.parse_args()
    for destination in (None, "all"):
        what = "without destinations" if destination is None else "to a stream"
        with (
            tempfile.TemporaryDirectory() as temporary,
            service(Path(temporary) / "bulk", chosen.port) as pid,
            httpx.Client(base_url=f"http://127.0.0.1:{chosen.port}", timeout=600) as client,
        ):
            fill(client, destination)
            for matches in (0, 1, 40):
                count = (chosen.megabytes << 20) // 10 if destination is None else WITH_DESTINATIONS
                measure(client, pid, matches, count if matches < 40 else count // 4, what)
    print(f"load average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
