"""Who may not, may not: every endpoint without a token, with a wrong one, with another tenant's, without the role;
bodies that are too large, too deep or too slow; heads, paths and addresses that try to get elsewhere."""

from __future__ import annotations

import json
import re
import socket
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from receivers import wait_until
from serving import JSON_LINES, Running, running

from dibs.errors import ArgumentError
from dibs.service.database import Database
from dibs.service.dispatch import all_routes
from dibs.service.forwarding import WRITER
from dibs.service.settings import DATABASE, Limits, Settings
from dibs.service.tokens import list_tokens, revoke_token

ROUTES = [route for route in all_routes() if route.method != "WEBSOCKET"]
GUARDED = [route for route in ROUTES if route.role != "nobody"]
SECRET_EVENT = {"secret": "of mine"}


def path_of(path: str) -> str:
    return re.sub(r"{(\w+)}", "theirs", path)


def ask(client: httpx.Client, route: Any, **more: Any) -> httpx.Response:
    body: dict[str, Any] = {"json": {"expression": "TRUE", "event": {}}} if route.method in ("POST", "PUT") else {}
    if route.lines and route.body is None:
        body = {"content": b'{"id": "theirs", "remove": true}\n', "headers": JSON_LINES}
    return client.request(route.method, path_of(route.path), **{**body, **more})


@pytest.fixture(scope="module")
def theirs(served: Running) -> httpx.Client:
    """The admin of another tenant, with a subscription, a destination, events and counts."""
    client = served.client("theirs")
    assert client.put("/v1/destinations/theirs", json={"kind": "stream"}).is_success
    made = client.put("/v1/subscriptions/theirs", json={"expression": "secret = 'of mine'", "owner": "them"})
    assert made.is_success
    for _ in range(3):
        assert client.post("/v1/publish", json=SECRET_EVENT).json()["count"] == 1
    return client


def test_there_are_routes_to_guard() -> None:
    assert len(GUARDED) > 20
    assert {route.path for route in ROUTES} - {route.path for route in GUARDED} == {
        "/health", "/ready", "/openapi.json", "/docs", "/internal/metrics",
        "/", "/console", "/console/", "/console/{file}",
    }  # fmt: skip


@pytest.mark.parametrize("route", GUARDED, ids=lambda route: f"{route.method} {route.path}")
def test_nobody_gets_in_without_the_right_token(served: Running, theirs: httpx.Client, route: Any) -> None:
    for token in ("", "wrong", "dibs_" + "x" * 43, "x" * 5_000):
        client = served.client(token=token)
        answer = ask(client, route)
        assert answer.status_code == 401, answer.text
        assert answer.headers["www-authenticate"].startswith("Bearer")
        assert answer.json()["type"] == "/problems/unauthorized"


def test_each_role_may_what_it_says_and_no_more(served: Running) -> None:
    may = {"read": {"read", "any"}, "publish": {"publish", "any"}, "write": {"read", "write", "any"}}
    for role, allowed in may.items():
        client = served.client("roles", role)
        for route in GUARDED:
            if route.answer.get("x-media") == "text/event-stream" and route.role in allowed:
                continue  # has no end
            status = ask(client, route).status_code
            assert (status == 403) == (route.role not in allowed), (role, route.path, status)


def test_a_tenant_sees_nothing_of_another(served: Running, theirs: httpx.Client) -> None:
    mine = served.client("mine")
    for route in GUARDED:
        if route.answer.get("x-media") == "text/event-stream":
            if "{" in route.path:
                assert mine.get(path_of(route.path)).status_code == 404
            continue
        answer = ask(mine, route)
        if "{" in route.path and route.method != "PUT":
            assert answer.status_code == 404, (route.path, answer.text)
        assert "of mine" not in answer.text and "them" not in re.sub("theirs", "", answer.text), route.path
    assert mine.post("/v1/match", json=SECRET_EVENT).json()["subscriptions"] == []
    assert mine.get("/v1/counts").json()["counts"] == []
    assert mine.get("/v1/events").json()["kept"] <= 1
    other = mine.get("/v1/subscriptions?tenant=theirs")
    assert other.status_code == 400  # not even the word
    assert theirs.get("/v1/subscriptions/theirs").json()["expression"] == "secret = 'of mine'"
    text = mine.get("/metrics").text
    assert 'tenant="mine"' in text and "theirs" not in text and "main" not in text


def test_a_token_of_all_tenants_names_the_tenant(served: Running, theirs: httpx.Client) -> None:
    everybody = served.client("*", "admin")
    assert everybody.get("/v1/subscriptions/theirs?tenant=theirs").json()["owner"] == "them"
    assert everybody.get("/v1/subscriptions/theirs").status_code == 404
    for name in ("nobody", "..", "../theirs", "", "a/b", "x" * 100):
        assert everybody.get("/v1/subscriptions", params={"tenant": name}).status_code == 404
    assert not (served.settings.folder / "tenants" / "nobody").exists()
    text = everybody.get("/metrics").text
    assert 'tenant="theirs"' in text and 'route="' in text


def test_secrets_are_hashed_and_revoked_tokens_refused(served: Running) -> None:
    token = served.token("main", "read")
    client = served.client(token=token)
    assert client.get("/v1/whoami").json()["roles"] == ["read"]
    for path in served.settings.folder.glob(DATABASE + "*"):
        assert token.encode() not in path.read_bytes()
    database = Database(served.settings.folder / DATABASE)
    revoke_token(database, list_tokens(database)[-1].name)
    database.close()
    assert client.get("/v1/whoami").status_code == 401


# ---- bodies ----


def test_bodies_that_are_too_large(tmp_path: Path) -> None:
    limits = Limits(body=10_000, expression=100, subscriptions=3, seconds=1)
    with running(tmp_path / "s", open=True, limits=limits) as served, httpx.Client(base_url=served.url) as client:
        large = b'{"a": "' + b"x" * 20_000 + b'"}'
        assert client.post("/v1/match", content=large, headers={"Content-Type": "application/json"}).status_code == 413
        chunked = client.post("/v1/match", content=iter([large[:9_000], large[9_000:]]), headers=JSON_LINES)
        assert chunked.status_code == 413
        long = client.put("/v1/subscriptions/a", json={"expression": "a = '" + "x" * 200 + "'"})
        assert (long.status_code, long.json()["type"]) == (422, "/problems/expression")
        for name in "abc":
            assert client.put(f"/v1/subscriptions/{name}", json={"expression": "a = 1"}).is_success
        assert client.put("/v1/subscriptions/d", json={"expression": "a = 1"}).status_code == 429
        assert client.put("/v1/subscriptions/c", json={"expression": "a = 2"}).is_success
        body = b'{"id": "d", "expression": "a = 1"}\n'
        assert client.post("/v1/subscriptions", content=body, headers=JSON_LINES).status_code == 429
        # A body that comes too slowly, and one that never does.
        for sent in (b"", b'{"a":'):
            with socket.create_connection(("127.0.0.1", served.port)) as slow:
                head = b"POST /v1/match HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                head += b"Content-Length: 50\r\n\r\n"
                slow.sendall(head + sent)
                begun = time.monotonic()
                assert slow.recv(1_000).startswith(b"HTTP/1.1 408")
                assert time.monotonic() - begun < 10


@pytest.mark.parametrize(
    "path", ["/v1/match", "/v1/publish", "/v1/validate", "/v1/explain", "/v1/misses", "/v1/backtest"]
)
def test_bodies_that_are_deep_or_broken(served: Running, path: str) -> None:
    client = served.client()
    deep = b'{"a":' * 100_000 + b"1" + b"}" * 100_000
    bodies = [
        deep,
        b"[" * 100_000,
        b'{"event":' + deep + b"}",
        b"",
        b"null",
        b"[]",
        b'"x"',
        b"\xff\xfe",
        b'{"a":1e999}',
        b"{}{}",
    ]
    bodies += [b'{"a":"\\ud800"}', b"\x00" * 100, b'{"expression": 5}', b'{"expression": "' + b"(" * 50_000 + b'"}']
    bodies += [b'{"expression": "' + b"NOT " * 20_000 + b'TRUE"}', b'{"event": {"a": ' + b"9" * 5_000 + b'}, "id": 1}']
    for body in bodies:
        for media in ("application/json", "application/jsonl"):
            answer = client.post(path, content=body, headers={"Content-Type": media})
            assert answer.status_code < 500, (body[:40], answer.text)
    assert client.get("/health").is_success


def test_rates_are_bounded(tmp_path: Path) -> None:
    limits = Limits(rate=20)
    with running(tmp_path / "s", limits=limits) as served:
        one, other = served.client("one"), served.client("other")
        found = [one.post("/v1/match", json={}) for _ in range(60)]
        refused = [answer for answer in found if answer.status_code == 429]
        assert 10 < len(refused) < 41 and int(refused[0].headers["retry-after"]) >= 1
        assert other.post("/v1/match", json={}).is_success


# ---- heads, paths, hosts ----


def raw(served: Running, text: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", served.port), timeout=20) as connection:
        connection.sendall(text)
        parts = []
        while part := connection.recv(65_536):
            parts.append(part)
    return b"".join(parts)


def test_heads_cannot_be_injected(served: Running) -> None:
    client = served.client()
    key = "a%0d%0aSet-Cookie:x=1"
    answer = client.put(f"/v1/subscriptions/{key}", json={"expression": "a = 1"}, headers={"Idempotency-Key": key})
    assert answer.status_code == 201 and "set-cookie" not in answer.headers
    assert answer.json()["id"] == "a\r\nSet-Cookie:x=1"
    for value in (b'"1"\r\nX: y', b"\x00", b"x" * 100_000):
        head = b"GET /health HTTP/1.1\r\nHost: localhost\r\nIf-Match: " + value + b"\r\nConnection: close\r\n\r\n"
        found = raw(served, head)
        assert not found or found.split(b" ")[1][:1] in b"24", found[:100]
        assert b"X: y" not in found
    client.delete(f"/v1/subscriptions/{key}")


def test_a_head_without_end_is_cut_off(served: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    from dibs.service import protocol

    monkeypatch.setattr(protocol, "HEAD_SECONDS", 0.3)
    for sent in (b"", b"GET /health HTTP/1.1\r\nHo"):
        with socket.create_connection(("127.0.0.1", served.port), timeout=20) as slow:
            slow.sendall(sent)
            begun = time.monotonic()
            assert slow.recv(1_000) == b""
            assert time.monotonic() - begun < 10
    endless = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    endless += b"".join(b"X-%d: %s\r\n" % (i, b"y" * 1_000) for i in range(200))
    try:
        assert b"200 OK" not in raw(served, endless + b"\r\n")
    except OSError:
        pass  # cut off while it was still sending


@pytest.mark.parametrize(
    "path",
    [
        "/../../etc/passwd",
        "/v1/../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/docs/../../../etc/passwd",
        "//etc/passwd",
        "/v1/subscriptions/..%2f..%2f..%2fetc%2fpasswd",
        "/console/..%2f..%2fapp.py",
        "/v1/destinations/..%2f..",
        "/\\..\\..",
        "/%00",
        "/%ff",
    ],
)
def test_paths_lead_nowhere_else(served: Running, path: str) -> None:
    token = served.token()
    head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
    found = raw(served, head.encode())
    assert found.split(b" ")[1] in (b"404", b"400"), found[:300]
    assert b"root:" not in found


def test_pages_of_other_sites_and_other_names_get_nothing(tmp_path: Path) -> None:
    with running(tmp_path / "s", open=True) as served, httpx.Client(base_url=served.url) as client:
        assert client.post("/v1/match", json={}).is_success
        assert client.post("/v1/match", json={}, headers={"Origin": served.url}).is_success
        for origin in ("http://evil.example", "null", "http://127.0.0.1:1"):
            assert client.post("/v1/match", json={}, headers={"Origin": origin}).status_code == 403
        assert client.post("/v1/match", json={}, headers={"Host": "rebound.example"}).status_code == 403
        assert client.get("/ready", headers={"Host": httpx.URL(WRITER).host}).is_success  # as processes that follow ask
        form = client.post("/v1/publish", content=b"{}", headers={"Content-Type": "text/plain"})
        assert form.status_code == 415


def test_open_is_for_loopback_only() -> None:
    for host in ("0.0.0.0", "192.168.1.5", "::", "example.org"):
        with pytest.raises(ArgumentError, match="loopback"):
            Settings(Path("x"), host=host, open=True)
    assert Settings(Path("x")).is_loopback


def test_webhooks_go_to_public_addresses_only(served: Running) -> None:
    client = served.client()
    hosts = [
        "127.0.0.1",
        "localhost",
        "10.0.0.1",
        "192.168.0.9:8080",
        "169.254.169.254",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "0.0.0.0",
        "[fe80::1]",
        "[fc00::1]",
        "2130706433",
        "0x7f.1",
        "user:pw@example.org",
    ]
    for host in hosts:
        answer = client.put("/v1/destinations/hook", json={"kind": "webhook", "target": f"http://{host}/x"})
        refused_now = answer.status_code == 422
        assert refused_now or host in ("2130706433", "0x7f.1"), (host, answer.text)  # those when they are resolved
    for target in (
        "file:///etc/passwd",
        "gopher://example.org",
        "http://",
        "https://exa mple.org/",
        "https://x\r\nHost: y/",
    ):
        answer = client.put("/v1/destinations/hook", json={"kind": "webhook", "target": target})
        assert answer.status_code == 422, (target, answer.text)
    fine = client.put("/v1/destinations/hook", json={"kind": "webhook", "target": "https://example.org/hook"})
    assert fine.is_success
    assert "secret" not in json.dumps(client.get("/v1/destinations").json())


def test_what_is_no_request_is_answered_by_a_problem_document(served: Running) -> None:
    """Found by the fuzzer: an address of 75,000 characters was answered by plain text."""
    long = "&".join(f"id=x{n}" for n in range(9_000))
    for head in (f"GET /v1/counts?by=hour&{long} HTTP/1.1", "HTTP is spoken here", "GET / HTTP/1.1\r\nno colon"):
        with socket.create_connection(("127.0.0.1", served.port), timeout=20) as connection:
            connection.sendall(f"{head}\r\nHost: localhost\r\n\r\n".encode())
            answer = b""
            while part := connection.recv(65_536):
                answer += part
        first, _, body = answer.partition(b"\r\n\r\n")
        assert first.startswith(b"HTTP/1.1 400 Bad Request\r\n") and b"application/problem+json" in first, answer
        assert json.loads(body)["status"] == 400 and json.loads(body)["detail"]


@pytest.mark.parametrize(
    ("more", "answers"),
    [
        (b"no request at all\r\n\r\n", [b"202", b"202"]),  # what came before it is answered
        (b"POST /v1/match HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nno size\r\n", None),
        (b"", None),
    ],
)
def test_what_follows_a_request_does_not_take_its_answer(
    served: Running, caplog: pytest.LogCaptureFixture, more: bytes, answers: list[bytes] | None
) -> None:
    """Found by the fuzzer: 400 was the answer to an event that was published, and the event's own went to a connection
    that was closed: a traceback."""
    token = served.token()
    head = f"POST /v1/publish HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nContent-Length: 8\r\n"
    request = f'{head}Content-Type: application/json\r\n\r\n{{"a": 1}}'.encode()
    with caplog.at_level("ERROR"):
        for leaves in (False, True):
            with socket.create_connection(("127.0.0.1", served.port), timeout=20) as connection:
                connection.sendall(request * 2 + more)
                if leaves or not more:
                    continue
                answer = b""
                while part := connection.recv(65_536):
                    answer += part
            if answers is not None:
                assert re.findall(rb"HTTP/1.1 (\d+)", answer) == answers
        wait_until(lambda: not served.service.room.requests)
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


def test_a_body_that_breaks_off_into_nonsense(served: Running) -> None:
    head = f"POST /v1/match HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {served.token()}\r\n"
    with socket.create_connection(("127.0.0.1", served.port), timeout=20) as connection:
        connection.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\nno size\r\n".encode())
        answer = connection.recv(65_536)
    assert answer.startswith(b"HTTP/1.1 400 ")
