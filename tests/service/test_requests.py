"""What clients met by surprise: streams after a token or a stream is gone, destinations in use, repeats by others,
HEAD, and whether a service is ready that cannot write."""

from __future__ import annotations

import json
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from receivers import wait_until
from serving import JSON_LINES, Processes, Running
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from dibs.service.database import Database
from dibs.service.settings import DATABASE
from dibs.service.tokens import list_tokens, revoke_token


def events_of(answer: httpx.Response) -> Iterator[dict[str, Any]]:
    """Server-sent events, as far as they come."""
    found: dict[str, Any] = {}
    for line in answer.iter_lines():
        name, _, value = line.partition(": ")
        if not line and found:
            yield found
            found = {}
        elif line and name:
            found[name] = json.loads(value) if name == "data" else value


def revoke_last(served: Running) -> None:
    database = Database(served.settings.folder / DATABASE)
    revoke_token(database, list_tokens(database)[-1].name)
    database.close()


def to_stream(client: httpx.Client, name: str, **more: Any) -> None:
    assert client.put(f"/v1/destinations/{name}", json={"kind": "stream", **more}).is_success
    subscription = {"expression": f"to = '{name}'", "destination": name}
    assert client.put(f"/v1/subscriptions/to-{name}", json=subscription).is_success


def publish(client: httpx.Client, name: str, *numbers: int) -> None:
    body = b"\n".join(json.dumps({"to": name, "n": n}).encode() for n in numbers)
    assert client.post("/v1/publish", content=body, headers=JSON_LINES).status_code == 202


# ---- streams ----


@pytest.mark.parametrize("path", ["/v1/stream", "/v1/destinations/kept/stream"])
def test_a_stream_ends_with_its_token(served: Running, path: str) -> None:
    to_stream(served.client(), "kept")
    token = served.token("main", "read")
    with served.client(token=token).stream("GET", path) as answer:
        assert answer.status_code == 200
        revoke_last(served)
        assert list(events_of(answer)) == [
            {"event": "ended", "data": {"reason": "the token was revoked, or has expired"}}
        ]
    wait_until(lambda: not served.service.open_streams)
    token = served.token("main", "read")
    url = "ws" + served.url.removeprefix("http") + path
    with connect(url, additional_headers={"Authorization": f"Bearer {token}"}, proxy=None) as wire:
        revoke_last(served)
        assert json.loads(wire.recv(timeout=10))["event"] == "ended"
        with pytest.raises(ConnectionClosed):
            wire.recv(timeout=10)


@pytest.mark.parametrize("says_which", [True, False])
def test_a_stream_that_was_made_again(served: Running, says_which: bool) -> None:
    """Before, a client that went on after place 3 got nothing of the new stream before its place 4."""
    client, name = served.client(), f"again-{says_which}"
    to_stream(client, name)
    publish(client, name, 1, 2, 3)
    path = f"/v1/destinations/{name}/stream"
    with client.stream("GET", path, params={"after": "0"}) as answer:
        found = events_of(answer)
        last = [next(found) for _ in range(3)][-1]["id"]
    assert last.startswith("3-")
    assert client.delete(f"/v1/destinations/{name}?force=true").is_success
    assert client.put(f"/v1/destinations/{name}", json={"kind": "stream"}).is_success
    new = (10, 11, 12, 13) if says_which else (10, 11)
    publish(client, name, *new)
    headers = {"Last-Event-ID": last if says_which else "3"}
    with client.stream("GET", path, headers=headers) as answer:
        found = events_of(answer)
        assert next(found) == {"event": "reset", "data": {}}
        assert [next(found)["data"]["event"]["n"] for _ in new] == list(new)
    with client.stream("GET", path, headers={"Last-Event-ID": "2-x"}) as answer:
        assert answer.status_code == 400


def test_a_client_that_follows_a_stream_while_it_is_made_again(served: Running) -> None:
    client = served.client()
    to_stream(client, "while")
    publish(client, "while", 1, 2)
    with client.stream("GET", "/v1/destinations/while/stream?after=0") as answer:
        found = events_of(answer)
        assert [next(found)["data"]["event"]["n"] for _ in range(2)] == [1, 2]
        outbox, lane = served.service.outbox, "while"
        old = outbox.destination(lane, "main")
        outbox.remove_destination(lane, "main")
        outbox.put_destination(old)
        publish(client, "while", 3)
        following = [next(found)]
        while following[-1]["event"] not in ("removed", "delivery"):
            following.append(next(found))
    assert [each["event"] for each in following] in (["removed"], ["reset", "delivery"])


# ---- destinations ----


def test_a_destination_is_not_made_twice_nor_removed_in_use(served: Running) -> None:
    client = served.client()
    target = {"kind": "webhook", "target": "https://example.org/hook"}
    once = {"If-None-Match": "*"}
    assert client.put("/v1/destinations/once", json=target, headers={"If-Match": "*"}).status_code == 412
    assert client.put("/v1/destinations/once", json=target, headers=once).status_code == 201
    again = client.put("/v1/destinations/once", json={"kind": "stream"}, headers=once)
    assert (again.status_code, again.json()["type"]) == (412, "/problems/changed")
    assert client.get("/v1/destinations/once").json()["kind"] == "webhook"
    assert client.put("/v1/destinations/once", json=target, headers={"If-Match": "*"}).status_code == 200
    assert client.put("/v1/destinations/once", json=target, headers={"If-Match": '"3"'}).status_code == 400
    for id in ("b", "a"):
        subscription = {"expression": "x = 1", "destination": "once", "paused": id == "b"}
        assert client.put(f"/v1/subscriptions/{id}", json=subscription).is_success
    refused = client.delete("/v1/destinations/once")
    assert (refused.status_code, refused.json()["type"]) == (409, "/problems/in-use")
    assert (refused.json()["count"], refused.json()["subscriptions"]) == (2, ["a", "b"])
    assert client.get("/v1/destinations/once").is_success
    for id in ("a", "b"):
        assert client.delete(f"/v1/subscriptions/{id}").is_success
    assert client.delete("/v1/destinations/once").is_success


# ---- repeats ----


def test_a_repeat_shows_nobody_more_than_they_may_see(served: Running) -> None:
    writer = served.client("main", "write", "publish")
    writer.put("/v1/subscriptions/secret-id", json={"expression": "y = 1"})
    key = {"Idempotency-Key": "mine"}
    first = writer.post("/v1/publish", json={"y": 1}, headers=key)
    assert first.json()["subscriptions"] == ["secret-id"]
    assert writer.post("/v1/publish", json={"y": 1}, headers=key).json() == first.json()
    repeated = served.client("main", "publish").post("/v1/publish", json={"y": 1}, headers=key)
    assert (repeated.status_code, repeated.json()) == (202, {"repeated": True})
    assert repeated.headers["idempotent-replay"] == "true"
    assert served.client("main", "admin").post("/v1/publish", json={"y": 1}, headers=key).json() == first.json()
    target = {"kind": "webhook", "target": "https://example.org/hook"}
    made = [writer.put("/v1/destinations/shown", json=target, headers={"Idempotency-Key": "d"}) for _ in range(2)]
    assert made[0].json()["secret"] and made[1].status_code == 201
    assert made[1].json() == {name: value for name, value in made[0].json().items() if name != "secret"}


# ---- the rest ----


def test_heads(served: Running) -> None:
    client = served.client()
    for path in ("/health", "/v1/whoami", "/docs", "/console", "/v1/stream"):
        answer = client.head(path)
        assert (answer.status_code, answer.content) == (200, b""), path
        if path != "/v1/stream":
            assert answer.headers["content-length"] == client.get(path).headers["content-length"]
    assert client.head("/v1/publish").status_code == 405
    wait_until(lambda: not served.service.open_streams)
    there = client.get("/console/")
    assert (there.status_code, there.headers["location"]) == (303, "/console")


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ({"kind": "period", "seconds": "60"}, "mode.seconds must be a number or null, not "),
        (5, "mode must be a string, an object or null, not "),
    ],
)
def test_what_is_wrong_with_a_body(served: Running, mode: Any, said: str) -> None:
    answer = served.client().put("/v1/subscriptions/m", json={"expression": "x = 1", "mode": mode})
    assert answer.status_code == 400 and said in answer.json()["detail"]


def test_a_long_expression_among_others_is_one_that_is_rejected(served: Running) -> None:
    client = served.client()
    rows = [{"id": "short", "expression": "x = 1"}, {"id": "long", "expression": "x = 1" + " " * 100_000}]
    body = "\n".join(map(json.dumps, rows))
    told = client.post("/v1/subscriptions?on_error=skip", content=body, headers=JSON_LINES).json()
    assert told["put"] == 1 and [each["id"] for each in told["rejected"]] == ["long"]
    assert "at most 100,000" in told["rejected"][0]["detail"]
    valid = client.post("/v1/validate", json={"expression": rows[1]["expression"]})
    assert (valid.status_code, valid.json()["type"]) == (422, "/problems/expression")


def test_a_service_that_cannot_write_is_not_ready(tmp_path: Path) -> None:
    with Processes(tmp_path / "s", "--open") as processes:
        ready = lambda: httpx.get(processes.url + "/ready", timeout=30)  # noqa: E731
        assert ready().status_code == 200
        pid = processes.process.pid
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (4_096, resource.RLIM_INFINITY))
        wait_until(lambda: ready().status_code == 503)
        assert ready().json() == {"status": "cannot write"}
        assert httpx.get(processes.url + "/health").is_success
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        wait_until(lambda: ready().status_code == 200)
