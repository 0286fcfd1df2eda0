"""Hostile events over HTTP: the answers of the in-process matcher, whatever the event says, and the service lives."""

from __future__ import annotations

from random import Random

import orjson
import pytest
from serving import JSON_LINES, Running

from hostile_events import hostile_case, texts_of


@pytest.mark.parametrize("seed", range(4))
def test_hostile_events(served: Running, seed: int) -> None:
    random = Random(seed)
    case = hostile_case(random)
    tenant = f"hostile{seed}"
    client = served.client(tenant)
    for group in case.groups:
        lines = b"\n".join(orjson.dumps({"id": rule.id, "expression": rule.text}) for rule in group)
        assert client.post("/v1/subscriptions", content=lines, headers=JSON_LINES).status_code == 200
        assert client.post("/v1/match", content=b"{}").status_code == 200
    right = [case.expected(event) for event in case.events]
    for event, ids in zip(case.events, right):
        for text in texts_of(random, event):
            answer = client.post("/v1/match", content=text)
            assert answer.status_code == 200, answer.text[:500]
            assert answer.json()["subscriptions"] == ids
    lines = b"\n".join(next(texts_of(random, event)) for event in case.events)
    answer = client.post("/v1/match", content=lines, headers=JSON_LINES)
    assert [orjson.loads(line)["subscriptions"] for line in answer.content.splitlines()] == right
    assert client.post("/v1/publish", content=lines, headers=JSON_LINES).status_code == 202


def test_what_once_ended_the_process(served: Running) -> None:
    words, values = [f"w{i:05d}" for i in range(6085)], [f"v{i:03d}" for i in range(990)]
    client = served.client("overrun")
    for rules in ([f"CONTAINS(t, '{w}')" for w in words], [f"a = '{v}'" for v in values]):
        lines = b"\n".join(orjson.dumps({"id": rule, "expression": rule}) for rule in rules)
        assert client.post("/v1/subscriptions", content=lines, headers=JSON_LINES).status_code == 200
    event = orjson.dumps({"t": " ".join(words), "a": values})
    for _ in range(10):
        assert len(client.post("/v1/match", content=event).json()["subscriptions"]) == len(words) + len(values)
    assert client.get("/health").status_code == 200


def test_explanations_of_a_large_event_end(served: Running) -> None:
    """Each looks at the whole event: there are as many as take no long time together."""
    client = served.client("explained")
    lines = b"\n".join(orjson.dumps({"id": i, "expression": f"a = {i}"}) for i in range(100))
    assert client.post("/v1/subscriptions", content=lines, headers=JSON_LINES).status_code == 200
    found = client.post("/v1/match?explain=true", content=orjson.dumps({"a": list(range(100_000))})).json()
    assert found["subscriptions"] == list(range(100)) and 0 < len(found["explanations"]) < 100
    assert all(each["matched"] for each in found["explanations"])


def test_misses_of_a_large_event_end(served: Running) -> None:
    """The distances of those that are not reached in time are not found: they come after the others."""
    client = served.client("missed")
    listed = ", ".join(str(i + 0.5) for i in range(200))
    lines = b"\n".join(orjson.dumps({"id": i, "expression": f"a IN ({listed}, {-i}.5)"}) for i in range(100))
    assert client.post("/v1/subscriptions", content=lines, headers=JSON_LINES).status_code == 200
    [found] = client.post("/v1/misses", json={"event": {"a": list(range(3_000))}}).json()["misses"]
    assert found["count"] == 100 and sorted(found["subscriptions"]) == list(range(100))
    assert found["distances"][0] < 0.1 and found["distances"][-1] == 1.0
