"""Streams over WebSocket, with a real client: the same events as server-sent events, for the same people."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from receivers import wait_until
from serving import Running, running
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol


def socket_url(url: str) -> str:
    return "ws" + url.removeprefix("http")


@contextmanager
def listening(served: Running, path: str, secret: str | None = None, **more: Any) -> Iterator[ClientConnection]:
    headers = {"Authorization": f"Bearer {served.token() if secret is None else secret}"}
    with connect(socket_url(served.url) + path, additional_headers=headers, proxy=None, **more) as found:
        yield found


def read(wire: ClientConnection) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(wire.recv(timeout=10))
    return found


def read_sse(lines: Iterator[str]) -> dict[str, Any]:
    """The next server-sent event, as the message that it would be."""
    found: dict[str, Any] = {}
    for line in lines:
        if line.startswith(":"):
            continue
        if not line and found:
            return found
        name, _, value = line.partition(": ")
        if line:
            found[name] = {"event": str, "id": _id, "data": json.loads}[name](value)
    raise AssertionError("the stream has ended")


def _id(text: str) -> int | str:
    return int(text) if text.isdigit() else text


def stream_with(client: httpx.Client, name: str, limit: int = 100_000) -> None:
    assert client.put(f"/v1/destinations/{name}", json={"kind": "stream", "limit": limit}).is_success
    told = {"expression": f"to = '{name}'", "destination": name}
    assert client.put(f"/v1/subscriptions/to-{name}", json=told).is_success


def publish(client: httpx.Client, name: str, count: int, **more: Any) -> None:
    rows = [json.dumps({"to": name, "n": n, **more}).encode() for n in range(count)]
    answer = client.post("/v1/publish", content=b"\n".join(rows), headers={"Content-Type": "application/jsonl"})
    assert answer.status_code == 202


def test_messages_are_the_server_sent_events(served: Running) -> None:
    client = served.client()
    stream_with(client, "same")
    publish(client, "same", 5, text="line\nbreak \u2028 \U0001f600")
    path = "/v1/destinations/same/stream?after=0"
    with listening(served, path) as wire, client.stream("GET", path) as answer:
        lines = answer.iter_lines()
        for n in range(10):
            if n == 5:
                publish(client, "same", 5)
            message = read(wire)
            assert message == read_sse(lines)
            place, _, stream = message["id"].partition("-")
            assert (message["event"], place, message["data"]["event"]["n"]) == ("delivery", str(n + 1), n % 5)
            assert message["data"]["place"] == n + 1
    with listening(served, f"/v1/destinations/same/stream?after=8-{stream}") as wire:
        assert [read(wire)["data"]["place"] for _ in range(2)] == [9, 10]
        assert client.delete("/v1/subscriptions/to-same").is_success
        assert client.delete("/v1/destinations/same").is_success
        assert read(wire) == {"event": "removed", "data": {}}
        with pytest.raises(ConnectionClosed):
            wire.recv(timeout=10)


def test_the_live_stream(served: Running) -> None:
    client = served.client()
    with listening(served, "/v1/stream") as wire, client.stream("GET", "/v1/stream") as answer:
        lines = answer.iter_lines()
        assert next(lines) == ": here"
        wait_until(lambda: len(served.service.tenants.find("main").feed) == 2)  # type: ignore[union-attr]
        wire.send("what a client says is given away")
        publish(client, "nobody", 3)
        for n in range(3):
            message = read(wire)
            assert message == read_sse(lines) and message["event"] == "published"
            assert message["data"]["event"] == {"to": "nobody", "n": n}
    wait_until(lambda: len(served.service.tenants.find("main").feed) == 0)  # type: ignore[union-attr]


def test_the_same_people_may_listen(served: Running) -> None:
    path = "/v1/stream"
    for secret, status in (("", 401), ("dibs_wrong", 401), (served.token("main", "publish"), 403)):
        with pytest.raises(InvalidStatus) as refused, listening(served, path, secret):
            pass
        assert refused.value.response.status_code == status
        assert json.loads(refused.value.response.body)["status"] == status
    stream_with(served.client(), "own")
    path = "/v1/destinations/own/stream"
    with pytest.raises(InvalidStatus) as refused, listening(served, path, served.token("another")):
        pass
    assert refused.value.response.status_code == 404
    for nothing, status in (("/v1/nothing", 404), ("/v1/stats", 405), ("/v1/match", 405)):
        with pytest.raises(InvalidStatus) as refused, listening(served, nothing):
            pass
        assert refused.value.response.status_code == status
    with pytest.raises(InvalidStatus) as refused, listening(served, path, origin="http://elsewhere.example"):
        pass
    assert refused.value.response.status_code == 403


def test_a_browser_says_its_token_as_a_protocol(served: Running) -> None:
    url = socket_url(served.url) + "/v1/stream"
    protocols = [Subprotocol("dibs"), Subprotocol(served.token())]
    with connect(url, subprotocols=protocols, proxy=None) as wire:
        assert wire.subprotocol == "dibs"
    protocols[1] = Subprotocol("dibs_wrong")
    with pytest.raises(InvalidStatus) as refused, connect(url, subprotocols=protocols, proxy=None):
        pass
    assert refused.value.response.status_code == 401


def test_streams_over_websocket_are_counted_with_the_others(tmp_path: Path) -> None:
    from dibs.service.settings import Limits

    with running(tmp_path / "searches", limits=Limits(streams=1)) as served, listening(served, "/v1/stream"):
        wait_until(lambda: len(served.service.tenants.find("main").feed) == 1)  # type: ignore[union-attr]
        with pytest.raises(InvalidStatus) as refused, listening(served, "/v1/stream"):
            pass
        assert refused.value.response.status_code == 429


def test_one_that_does_not_read_holds_up_nobody_and_is_told_what_it_missed(served: Running) -> None:
    client = served.client()
    stream_with(client, "slow", limit=50)
    with listening(served, "/v1/destinations/slow/stream?after=0", max_queue=1) as wire:
        begun = time.monotonic()
        for _ in range(20):
            publish(client, "slow", 50, text="x" * 20_000)  # 20 MB: more than sockets hold
        assert time.monotonic() - begun < 20
        found = [read(wire)]
        while found[-1]["data"].get("place") != 1_000:
            found.append(read(wire))
    lost = sum(message["data"]["count"] for message in found if message["event"] == "lost")
    places = [message["data"]["place"] for message in found if message["event"] == "delivery"]
    assert lost > 0 and lost + len(places) == 1_000 and places == sorted(places)


def test_what_is_no_websocket_any_more_is_no_error_of_the_service(
    served: Running, caplog: pytest.LogCaptureFixture
) -> None:
    """A client that sends what is no frame, while the service waits for it to take what it was sent."""
    client = served.client()
    stream_with(client, "odd")
    publish(client, "odd", 100, text="x" * 100_000)  # 10 MB: more than sockets hold
    asks = ["GET /v1/destinations/odd/stream?after=0 HTTP/1.1", "Host: localhost", "Upgrade: websocket"]
    asks += ["Connection: Upgrade", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="]
    asks += [f"Authorization: Bearer {served.token()}", "", ""]
    with caplog.at_level("ERROR", "uvicorn.error"):
        with socket.create_connection(("127.0.0.1", served.port), timeout=10) as wire:
            wire.sendall("\r\n".join(asks).encode())
            assert wire.recv(12).endswith(b"101")
            time.sleep(0.3)  # until nothing more fits into the connection
            wire.sendall(b"\xff" * 50)
            time.sleep(0.1)
            while wire.recv(1 << 20):
                pass
        wait_until(lambda: not served.service.open_streams)
    assert [record.getMessage() for record in caplog.records] == []
