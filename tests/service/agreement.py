"""Does the API give the matches of an in-process Matcher? Eight clients at once, each with subscriptions of its own
that it changes all the time, in every way that the API has; and each keeps a Matcher with the same ones, which is the
judge. Whatever a client is answered must be what its Matcher says, as far as its own subscriptions go, at that
moment.

    python tests/service/agreement.py                     8 clients, 300 rounds each, one process and three
    python tests/service/agreement.py --rounds 2000 --seed 5

test_agreement_service.py runs a short form of it.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import httpx

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent))

from serving import JSON_LINES, Processes, running

from batches import json_batch
from cases import random_expression, random_world
from dibs.language.printer import to_sql
from dibs.matcher import Matcher


@dataclass
class Tally:
    answers: int = 0
    matches: int = 0
    changes: int = 0
    wrong: list[str] = field(default_factory=list)

    def show(self, what: str) -> None:
        counts = f"{self.answers:,} answers, {self.matches:,} matches, {self.changes:,} changes"
        print(f"{what}: {counts}, {len(self.wrong)} wrong", flush=True)


class OneClient:
    def __init__(self, url: str, token: str, name: str, seed: int, tally: Tally):
        self.random, self.name, self.tally = Random(seed), name, tally
        self.client = httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=60, verify=False)
        self.own = Matcher(threads=1)
        self.paused: dict[str, tuple[str, float]] = {}
        self.world = random_world(self.random)

    def run(self, rounds: int) -> None:
        try:
            for _ in range(rounds):
                self.random.choice(
                    [self.put, self.put, self.delete, self.many, self.pause, self.match, self.match_lines, self.publish]
                )()
                if self.random.random() < 0.05:
                    self.world = random_world(self.random)
        except Exception as error:
            self.tally.wrong.append(f"{self.name}: {type(error).__name__}: {error}")
        finally:
            self.client.close()

    def new_id(self) -> str:
        return f"{self.name}-{self.random.randrange(60)}"

    def expression(self) -> str:
        return to_sql(random_expression(self.random, self.world))

    def ask(self, method: str, path: str, *expected: int, **more: Any) -> httpx.Response:
        answer = self.client.request(method, path, **more)
        assert answer.status_code in expected, f"{method} {path}: {answer.status_code} {answer.text[:300]}"
        return answer

    # ---- changes ----

    def keep(self, id: str, text: str, weight: float, paused: bool = False) -> None:
        self.forget(id)
        if paused:
            self.paused[id] = text, weight
        else:
            self.own.add(id, text, weight)

    def forget(self, id: str) -> None:
        self.paused.pop(id, None)
        if id in self.own:
            self.own.remove(id)

    def knows(self, id: str) -> bool:
        return id in self.own or id in self.paused

    def put(self) -> None:
        id, text, weight = self.new_id(), self.expression(), self.random.choice([1.0, 2.5, 7.0])
        body = {"expression": text, "weight": weight, "paused": self.random.random() < 0.1}
        if self.random.random() < 0.3:
            body["owner"] = self.random.choice("xyz")
        self.ask("PUT", f"/v1/subscriptions/{id}", 200 if self.knows(id) else 201, json=body)
        self.keep(id, text, weight, bool(body["paused"]))
        self.tally.changes += 1

    def delete(self) -> None:
        id = self.new_id()
        self.ask("DELETE", f"/v1/subscriptions/{id}", 200 if self.knows(id) else 404)
        self.forget(id)
        self.tally.changes += 1

    def pause(self) -> None:
        id = self.new_id()
        word = self.random.choice(["pause", "resume"])
        self.ask("POST", f"/v1/subscriptions/{id}/{word}", 200 if self.knows(id) else 404)
        if word == "pause" and id in self.own:
            found = self.own.get(id)
            self.keep(id, found.expression, found.weight, paused=True)
        elif word == "resume" and id in self.paused:
            self.keep(id, *self.paused[id])
        self.tally.changes += 1

    def many(self) -> None:
        rows: list[dict[str, Any]] = []
        for id in dict.fromkeys(self.new_id() for _ in range(self.random.randrange(1, 30))):
            if self.random.random() < 0.3 and self.knows(id):
                rows.append({"id": id, "remove": True})
            else:
                rows.append({"id": id, "expression": self.expression(), "weight": 3.0})
        if self.random.random() < 0.2 and "expression" in rows[0]:
            rows[0]["owner"] = "x"
        body = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
        self.ask("POST", "/v1/subscriptions", 200, content=body, headers=JSON_LINES)
        for row in rows:
            if "remove" in row:
                self.forget(row["id"])
            else:
                self.keep(row["id"], row["expression"], 3.0)
        self.tally.changes += len(rows)

    # ---- answers ----

    def check(self, given: list[Any], event: Any, how: str) -> None:
        own = [id for id in given if str(id).startswith(self.name + "-")]
        expected = self.own.match(event)
        self.tally.answers += 1
        self.tally.matches += len(expected)
        if own != expected:
            self.tally.wrong.append(f"{how}: {event!r}: {own} instead of {expected}")

    def texts(self, count: int) -> list[bytes]:
        found: bytes = json_batch(self.random, self.world, count).forms["json lines"][0]
        return found.split(b"\n")

    def match(self) -> None:
        for text in self.texts(3):
            found = self.ask("POST", "/v1/match", 200, content=text, headers={"Content-Type": "application/json"})
            self.check(found.json()["subscriptions"], text, "match")

    def match_lines(self) -> None:
        texts = self.texts(self.random.choice([1, 5, 50]))
        more = self.random.choice(["", "?weights=true", "?explain=true"])
        found = self.ask("POST", f"/v1/match{more}", 200, content=b"\n".join(texts), headers=JSON_LINES)
        rows = [json.loads(line) for line in found.text.splitlines()]
        assert len(rows) == len(texts)
        for row, text in zip(rows, texts):
            self.check(row["subscriptions"], text, "lines")
            if "weights" in row:
                pairs = [(id, w) for id, w in zip(row["subscriptions"], row["weights"]) if id in self.own]
                assert all(self.own.weight(id) == w for id, w in pairs)

    def publish(self) -> None:
        for text in self.texts(2):
            found = self.ask("POST", "/v1/publish", 202, content=text, headers={"Content-Type": "application/json"})
            self.check(found.json()["subscriptions"], text, "publish")


def compare(url: str, token: str, clients: int, rounds: int, seed: int) -> Tally:
    tally = Tally()
    each = [OneClient(url, token, f"c{n}", seed * 1_000 + n, tally) for n in range(clients)]
    threads = [threading.Thread(target=one.run, args=(rounds,)) for one in each]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    everything = Matcher(threads=1)
    for one in each:
        everything.add_many((id, one.own.expression(id), one.own.weight(id)) for id in sorted(_ids(one)))
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=60, verify=False) as client:
        for text in [text for one in each for text in one.texts(20)]:
            found = client.post("/v1/match", content=text, headers={"Content-Type": "application/json"})
            tally.answers += 1
            if found.json()["subscriptions"] != everything.match(text):
                tally.wrong.append(f"at the end: {text!r}")
            top = client.post("/v1/match?top=3", content=text, headers={"Content-Type": "application/json"})
            if top.json()["subscriptions"] != everything.match(text, top=3):
                tally.wrong.append(f"at the end, top: {text!r}")
    return tally


def _ids(one: OneClient) -> list[str]:
    return [f"{one.name}-{n}" for n in range(60) if f"{one.name}-{n}" in one.own]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--clients", type=int, default=8)
    options.add_argument("--rounds", type=int, default=300)
    options.add_argument("--seed", type=int, default=1)
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        with running(Path(folder) / "one", gather_from=1) as served:
            tally = compare(served.url, served.token(), chosen.clients, chosen.rounds, chosen.seed)
        tally.show("one process")
        wrong = tally.wrong
        with Processes(Path(folder) / "three", workers=2) as processes:
            tally = compare(processes.url, processes.token, chosen.clients, chosen.rounds, chosen.seed)
        tally.show("--workers 2")
    for problem in [*wrong, *tally.wrong][:20]:
        print(problem)
    sys.exit(bool(wrong or tally.wrong))


if __name__ == "__main__":
    main()
