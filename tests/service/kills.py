"""Kills: a service whose processes are killed (SIGKILL) at random moments, while it is published to and its receivers
fail, hang and answer slowly.

    python tests/service/kills.py --kills 100 --workers 2

Whatever was killed: each event whose publishing was acknowledged reaches every receiver that it is for; receivers see
the events of one publisher in the order in which they were published (the first time that each comes); an event that
comes again comes under the same delivery id. A publisher that gets no answer tries again with the same Idempotency-Key,
and one in ten gives up instead: that event may come or not, but not twice. One subscription has a join over what was
published before: no event may find itself there, and each that was acknowledged is remembered once.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import httpx
from receivers import Receiver

import dibs

PUBLISHERS = 3
# By receiver; the first is true of every event that was not remembered before it was matched.
EXPRESSIONS = {"good": "n > 0 AND FORALL d (n <> d.n OR publisher <> d.publisher)", "slow": "half = 1"}
SETTLED = 120.0  # seconds after the last kill in which everything must have been delivered
TIMES = {"SECONDS": "0.7", "FIRST": "0.05", "LONGEST": "0.5", "ATTEMPTS": "1000000"}


def fails(receiver: Receiver, number: int) -> int:
    return 503 if random.random() < 0.2 else 200


def hangs_sometimes(receiver: Receiver, number: int) -> int:
    """Half of the time it has taken what it does not answer: that is sent again."""
    if random.random() < 0.03:
        receiver.ended.wait(1.5)
    return 200


def is_slow(receiver: Receiver, number: int) -> int:
    time.sleep(random.uniform(0, 0.05))
    return 200


class Served:
    """`dibs serve` as a process of its own, started again when it was killed as a whole."""

    def __init__(self, folder: Path, workers: int):
        self.folder, self.workers = folder, workers
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        options = ["--open", "--port", str(self.port), "--workers", str(self.workers), "--private-targets"]
        times = {f"DIBS_DELIVERY_{name}": value for name, value in TIMES.items()}
        command = [sys.executable, "-m", "dibs.cli", "serve", str(self.folder), *options]
        quiet = subprocess.DEVNULL
        return subprocess.Popen(
            command, env={**os.environ, **times}, stdout=quiet, stderr=quiet, start_new_session=True
        )

    def wait(self, seconds: float = 120.0) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.process.poll() is not None:
                self.process = self._start()
            try:
                if httpx.get(f"{self.url}/v1/destinations", timeout=5).status_code == 200:  # the writer answers
                    return
            except httpx.HTTPError:
                pass
            time.sleep(0.05)
        raise AssertionError("the service did not come back")

    def processes(self) -> dict[str, list[int]]:
        """Its processes by what they do."""
        found: dict[str, list[int]] = {"all": [self.process.pid]}
        for path in Path("/proc").glob("[0-9]*"):
            try:
                session = int((path / "stat").read_text().rsplit(")", 1)[1].split()[3])
                command = (path / "cmdline").read_bytes()
            except (OSError, IndexError):
                continue
            if session != self.process.pid or int(path.name) == self.process.pid:
                continue
            if b"dibs.service.delivery" in command:
                found.setdefault("deliverer", []).append(int(path.name))
            elif b"spawn_main" in command:
                found.setdefault("writer" if _writes(path) else "matcher", []).append(int(path.name))
        return found

    def kill(self, draw: random.Random) -> str:
        found = self.processes()
        role = draw.choice(sorted(found) + [role for role in found if role != "all"] * 2)  # all: takes the longest
        if role == "all":
            self.end()
        else:
            with suppress(ProcessLookupError):
                os.kill(draw.choice(found[role]), signal.SIGKILL)
        return role

    def end(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def _writes(process: Path) -> bool:
    """The writer is the one that has the outbox open."""
    for file in (process / "fd").glob("*"):
        with suppress(OSError):
            if os.readlink(file).endswith("/outbox.sqlite"):
                return True
    return False


class Publishing(threading.Thread):
    """One publisher: one event after the other, each until it is acknowledged or given up."""

    def __init__(self, url: str, name: int, stopping: threading.Event):
        super().__init__(daemon=True)
        self.url, self.publisher, self.stopping = url, name, stopping
        self.acknowledged: list[int] = []
        self.refused: list[str] = []
        self.number = 0

    def run(self) -> None:
        draw = random.Random(self.publisher)
        with httpx.Client(timeout=10) as client:
            while not self.stopping.is_set():
                self.number += 1
                event = {"publisher": self.publisher, "n": self.number, "half": self.number % 2}
                headers = {"Idempotency-Key": f"{self.publisher}-{self.number}"}
                while not self._published(client, event, headers):
                    if draw.random() < 0.1:
                        break
                    time.sleep(0.05)
                time.sleep(draw.uniform(0, 0.06))

    def _published(self, client: httpx.Client, event: dict[str, int], headers: dict[str, str]) -> bool:
        try:
            answer = client.post(f"{self.url}/v1/publish", json=event, headers=headers)
        except httpx.HTTPError:
            return False
        if answer.status_code == 202:
            self.acknowledged.append(self.number)
            return True
        if answer.status_code < 500 and answer.status_code != 409:  # 409: the attempt before is still under way
            self.refused.append(f"{answer.status_code} {answer.text[:200]}")
            return True
        return False


def run_kills(kills: int, workers: int, seed: int, told: bool = True) -> Counter[str]:
    """Raises AssertionError. What was killed, and how much came."""
    draw = random.Random(seed)
    receivers = {
        "good": Receiver(),
        "fails": Receiver(fails),
        "hangs": Receiver(hangs_sometimes),
        "slow": Receiver(is_slow),
    }
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        served = Served(Path(folder) / "searches", workers)
        stopping = threading.Event()
        publishers = [Publishing(served.url, number, stopping) for number in range(PUBLISHERS)]
        try:
            served.wait()
            with httpx.Client(base_url=served.url, timeout=30) as client:
                for name, receiver in receivers.items():
                    made = client.put(f"/v1/destinations/{name}", json={"kind": "webhook", "target": receiver.url})
                    receiver.secret = made.raise_for_status().json()["secret"]
                    body = {"expression": EXPRESSIONS.get(name, "n > 0"), "destination": name}
                    client.put(f"/v1/subscriptions/{name}", json=body).raise_for_status()
            for publisher in publishers:
                publisher.start()
            for number in range(kills):
                time.sleep(draw.uniform(0.05, 0.8))
                role = served.kill(draw)
                counts[f"kills: {role}"] += 1
                served.wait()
                if told and number % 10 == 9:
                    taken = sum(len(receiver.taken) for receiver in receivers.values())
                    print(f"{number + 1} kills, {taken:,} deliveries taken", flush=True)
            stopping.set()
            for publisher in publishers:
                publisher.join(30)
                assert not publisher.is_alive() and not publisher.refused, publisher.refused
            wait_for_all(served, receivers, publishers)
        finally:
            stopping.set()
            served.end()
            for receiver in receivers.values():
                receiver.__exit__()
        counts["documents"] = check_history(served.folder, publishers)
    for name, receiver in receivers.items():
        check(name, receiver)
        counts[f"deliveries: {name}"] = len(set(receiver.ids))
        counts[f"repeats: {name}"] = len(receiver.ids) - len(set(receiver.ids))
    counts["acknowledged"] = sum(len(publisher.acknowledged) for publisher in publishers)
    counts["given up by publishers"] = sum(publisher.number for publisher in publishers) - counts["acknowledged"]
    return counts


def check_history(folder: Path, publishers: list[Publishing]) -> int:
    """Each event that was acknowledged is a document, once. How many documents there are."""
    seen = [{"publisher": one.publisher, "n": n} for one in publishers for n in one.acknowledged]
    with dibs.Matcher.open(folder) as m:
        m.add("once", "(SELECT COUNT(*) FROM history d WHERE d.n = n AND d.publisher = publisher) = 1")
        wrong = [event for event, ids in zip(seen, m.match_batch(seen)) if "once" not in ids]
        assert not wrong, f"not remembered once: {wrong[:10]}"
        return len(m.history)


def missing(receivers: dict[str, Receiver], publishers: list[Publishing]) -> list[str]:
    """Acknowledged events that have not come."""
    found = []
    for name, receiver in receivers.items():
        came = {(event["publisher"], event["n"]) for event in receiver.events}
        wanted = {(p.publisher, n) for p in publishers for n in p.acknowledged if name != "slow" or n % 2}
        found += [f"{name}: {one}" for one in sorted(wanted - came)]
    return found


def wait_for_all(served: Served, receivers: dict[str, Receiver], publishers: list[Publishing]) -> None:
    end = time.monotonic() + SETTLED
    while lost := missing(receivers, publishers):
        assert time.monotonic() < end, f"{len(lost)} acknowledged events did not come: {lost[:5]}"
        time.sleep(0.2)
    with httpx.Client(base_url=served.url, timeout=30) as client:
        while any(one["waiting"] for one in client.get("/v1/destinations").json()["destinations"]):
            assert time.monotonic() < end, "something still waits"
            time.sleep(0.2)
        assert client.get("/v1/deliveries").json()["dead"] == 0


def check(name: str, receiver: Receiver) -> None:
    """Order, and that repeats have the same id."""
    ids: dict[tuple[int, int], str] = {}
    last: Counter[int] = Counter()
    for delivery, body, _ in receiver.taken:
        event = body["event"]
        place = (event["publisher"], event["n"])
        assert ids.setdefault(place, delivery) == delivery, f"{name}: {place} came under two ids"
    for event in receiver.events:
        assert event["n"] > last[event["publisher"]], f"{name}: {event} came after {last[event['publisher']]}"
        last[event["publisher"]] = event["n"]
    assert name != "slow" or all(event["half"] for event in receiver.events)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--kills", type=int, default=100)
    options.add_argument("--workers", type=int, default=2)
    options.add_argument("--seed", type=int, default=1)
    chosen = options.parse_args()
    for what, count in sorted(run_kills(chosen.kills, chosen.workers, chosen.seed).items()):
        print(f"{count:8,}  {what}")


if __name__ == "__main__":
    main()
