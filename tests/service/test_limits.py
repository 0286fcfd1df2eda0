"""What may be under way at once: above it a request is refused, by a problem document that names the limit."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
from receivers import wait_until
from serving import JSON_LINES, Running, running

from dibs.service.settings import Limits

BODY = 150_000  # bytes, more than are left uncounted


@contextmanager
def begun(served: Running, token: str, sent: int, length: int = 200_000) -> Iterator[socket.socket]:
    """A request whose body does not end."""
    head = f"POST /v1/match HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
    head += f"Content-Type: application/jsonl\r\nContent-Length: {length}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", served.port), timeout=20) as connection:
        connection.sendall(head.encode() + b" " * sent)
        yield connection


def answer_of(connection: socket.socket) -> tuple[int, dict[str, str], dict[str, Any]]:
    text = b""
    while b"\r\n\r\n" not in text or not text.endswith(b"}"):
        part = connection.recv(65_536)
        assert part, text
        text += part
    head, _, body = text.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines[1:])
    return int(lines[0].split()[1]), headers, json.loads(body)


def refused(found: tuple[int, dict[str, str], dict[str, Any]], status: int, limit: str, most: int) -> bool:
    code, headers, body = found
    assert (code, body["limit"], body["most"]) == (status, limit, most), body
    assert int(headers["retry-after"]) >= 1 and headers["content-type"] == "application/problem+json"
    return True


def test_bytes_under_way(tmp_path: Path) -> None:
    """Before, 60 bodies of 30 MB that never ended took 1.8 GB."""
    limits = Limits(bytes=200_000, requests=0)
    with running(tmp_path / "s", limits=limits, max_bytes=400_000) as served:
        own, other, third = (served.token(name) for name in ("one", "other", "third"))
        room = served.service.room
        with begun(served, own, BODY) as first:
            wait_until(lambda: room.taken["bytes"] == BODY)
            with begun(served, own, BODY) as second:
                assert refused(answer_of(second), 429, "bytes", 200_000)
            with begun(served, other, BODY):
                wait_until(lambda: room.taken["bytes"] == 2 * BODY)
                with begun(served, third, BODY) as fourth:
                    assert refused(answer_of(fourth), 503, "bytes in all", 400_000)
                # Who asks for little is not refused because others ask for much.
                client = served.client(token=third)
                assert client.post("/v1/match", json={"a": "x" * 10_000}).is_success
            first.sendall(b" " * (200_000 - BODY))
            assert first.recv(1_000).startswith(b"HTTP/1.1 200")
        wait_until(lambda: room.taken["bytes"] == 0 and not room.requests)


def test_requests_under_way(tmp_path: Path) -> None:
    with running(tmp_path / "s", limits=Limits(requests=2)) as served, ExitStack() as stack:
        own, other = served.token("one"), served.token("other")
        for _ in range(2):
            stack.enter_context(begun(served, own, 10))
        wait_until(lambda: list(served.service.room.requests.values()) == [2])
        answer = served.client(token=own).get("/v1/whoami")
        assert refused((answer.status_code, dict(answer.headers), answer.json()), 429, "requests", 2)
        assert served.client(token=other).get("/v1/whoami").is_success
        assert httpx.get(served.url + "/health").is_success


def test_streams_of_every_kind(tmp_path: Path) -> None:
    """Before, streams of destinations were not counted at all."""
    with running(tmp_path / "s", limits=Limits(streams=2), max_streams=3) as served, ExitStack() as stack:
        one, other, third = (served.client(name) for name in ("one", "other", "third"))
        for client in (one, other, third):
            assert client.put("/v1/destinations/live", json={"kind": "stream"}).is_success
        kept = "/v1/destinations/live/stream"
        for client, path in ((one, kept), (one, "/v1/stream"), (other, kept)):
            assert stack.enter_context(client.stream("GET", path)).status_code == 200
        for client, status, limit, most in ((one, 429, "streams", 2), (third, 503, "streams in all", 3)):
            for path in (kept, "/v1/stream"):
                answer = client.get(path)
                assert refused((answer.status_code, dict(answer.headers), answer.json()), status, limit, most)
        assert one.get("/v1/whoami").is_success
        stack.close()
        wait_until(lambda: served.service.room.taken["streams"] == 0 and not served.service.open_streams)


def test_connections(tmp_path: Path) -> None:
    with running(tmp_path / "s", max_connections=3) as served, ExitStack() as stack:
        token = served.token()
        place = ("127.0.0.1", served.port)
        idle = [stack.enter_context(socket.create_connection(place)) for _ in range(3)]
        assert httpx.get(served.url + "/health").is_success  # in place of the one that has waited longest
        idle[0].settimeout(10)
        assert idle[0].recv(10) == b""
        for _ in range(3):
            stack.enter_context(begun(served, token, 10))
        wait_until(lambda: list(served.service.room.requests.values()) == [3])
        with socket.create_connection(place, timeout=10) as more:
            assert refused(answer_of(more), 503, "connections in all", 3)


def test_a_client_that_takes_nothing_is_cut_off(tmp_path: Path) -> None:
    with running(tmp_path / "s", stalled=0.5) as served:
        client = served.client()
        client.put("/v1/destinations/live", json={"kind": "stream"})
        client.put("/v1/subscriptions/all", json={"expression": "n > 0", "destination": "live"})
        rows = b"\n".join(b'{"n": %d, "text": "%b"}' % (n, b"x" * 20_000) for n in range(1, 500))
        assert client.post("/v1/publish", content=rows, headers=JSON_LINES).status_code == 202
        with socket.create_connection(("127.0.0.1", served.port)) as connection:
            path = "/v1/destinations/live/stream?after=0"
            head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {served.token()}\r\n\r\n"
            connection.sendall(head.encode())
            wait_until(lambda: len(served.service.open_streams) == 1)
            wait_until(lambda: not served.service.open_streams)


def test_long_expressions_delay_nobody(tmp_path: Path) -> None:
    """Before, they were read in the loop: 24 of them kept everybody waiting for 4.5 s."""
    with running(tmp_path / "s") as served, ExitStack() as stack:
        text = " OR ".join(f"a{n} = {n}" for n in range(20_000))[:97_990] + "1"
        body = json.dumps({"expression": text}).encode()
        head = (
            f"POST /v1/validate HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {served.token('bad', 'read')}\r\n"
        )
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        client = served.client("good")
        client.get("/v1/whoami")
        asked = [stack.enter_context(socket.create_connection(("127.0.0.1", served.port))) for _ in range(12)]
        for connection in asked:
            connection.sendall(head.encode() + body)
        took = []
        for _ in range(10):
            began = time.perf_counter()
            assert client.post("/v1/match", json={"a": 1}).is_success
            took.append(time.perf_counter() - began)
        still = [connection for connection in asked if not _has_answer(connection)]
        assert still and sorted(took)[5] < 0.3  # they were not done before


def _has_answer(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return bool(connection.recv(1))
    except BlockingIOError:
        return False


def test_the_size_of_an_answer_is_counted_until_it_is_taken(tmp_path: Path) -> None:
    with running(tmp_path / "s", limits=Limits(bytes=1 << 20)) as served:
        token = served.token()
        client = served.client(token=token)
        rows = b"\n".join(b'{"id": "%b%d", "expression": "TRUE"}' % (b"x" * 900, n) for n in range(2_000))
        assert client.post(
            "/v1/subscriptions", content=rows[: 1 << 20].rpartition(b"\n")[0], headers=JSON_LINES
        ).is_success
        lines = b'{"a": 1}\n' * 40
        with socket.create_connection(("127.0.0.1", served.port)) as connection:
            head = f"POST /v1/match HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
            head += f"Content-Type: application/jsonl\r\nContent-Length: {len(lines)}\r\n\r\n"
            connection.sendall(head.encode() + lines)
            wait_until(lambda: served.service.room.taken["bytes"] > 1 << 20)
            with begun(served, token, BODY) as second:
                assert refused(answer_of(second), 429, "bytes", 1 << 20)
        wait_until(lambda: served.service.room.taken["bytes"] == 0)
