"""Many events in one request: slice by slice they become what they would be one by one, all of them or none, while
others have their turn."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from serving import JSON_LINES, Running, running

from dibs.service.slices import MOST, Slices
from dibs.service.tenants import Tenant

EVENTS = 12_000  # some slices


@pytest.fixture
def client(served: Running, request: pytest.FixtureRequest) -> httpx.Client:
    """Of a tenant of the test's own."""
    return served.client(
        "t" + request.node.name.lower().replace("[", "-").replace("]", "").replace(" ", "-")[-40:].strip("-_")
    )


@pytest.fixture(params=["whole", "as it comes"])
def answered(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param != "whole":
        monkeypatch.setattr("dibs.service.handlers.asking.BUFFERED", 0)


def tenant_of(served: Running, client: httpx.Client) -> Tenant:
    found = served.service.tenants.find(client.get("/v1/whoami").json()["tenant"])
    assert found is not None
    return found


def lines_of(answer: httpx.Response) -> list[dict[str, Any]]:
    return [json.loads(line) for line in answer.text.splitlines()]


def fill(client: httpx.Client, **more: Any) -> None:
    for id, value in (("seven", 7), (11, 11), ("eleven", 11)):
        row = {"id": id, "expression": f"m = {value}", **more}
        assert client.post("/v1/subscriptions", content=json.dumps(row), headers=JSON_LINES).is_success


def expected(n: int) -> list[Any]:
    return {7: ["seven"], 11: [11, "eleven"]}.get(n % 13, [])


def body_of(count: int) -> bytes:
    """With a byte order mark, blank lines, and line ends of two kinds."""
    rows = [
        b'{"n": %d, "m": %d}' % (n, n % 13) + (b"\r\n" if n % 5 == 0 else b"\n") + (b"\n" if n % 7 == 0 else b"")
        for n in range(count)
    ]
    return b"\xef\xbb\xbf" + b"".join(rows)


def publish(client: httpx.Client, body: bytes, **more: Any) -> httpx.Response:
    return client.post("/v1/publish", content=body, headers=JSON_LINES | more.pop("headers", {}), **more)


@pytest.mark.usefixtures("answered")
@pytest.mark.parametrize("to", [None, "stream"])
def test_many_events_are_what_they_are_one_by_one(served: Running, client: httpx.Client, to: str | None) -> None:
    more = {}
    if to is not None:
        client.put("/v1/destinations/all", json={"kind": "stream"})
        more = {"destination": "all"}
    fill(client, **more)
    rows = lines_of(publish(client, body_of(EVENTS)))
    assert [row["position"] for row in rows] == list(range(EVENTS))
    assert [row["subscriptions"] for row in rows] == [expected(n) for n in range(EVENTS)]
    assert len({row["event"] for row in rows}) == EVENTS
    told = sum(bool(expected(n)) for n in range(EVENTS)) if to is not None else 0
    assert sum(row["deliveries"] for row in rows) == told
    tenant = tenant_of(served, client)
    assert (tenant.counts.events, tenant.counts.matches) == (EVENTS, sum(len(expected(n)) for n in range(EVENTS)))
    recent = client.get("/v1/events?limit=20").json()
    assert [each["event"]["n"] for each in recent["events"]] == list(range(EVENTS - 1, EVENTS - 21, -1))
    assert recent["kept"] == 10_000 and recent["events"][0]["seq"] == EVENTS
    assert [each["id"] for each in recent["events"]] == [row["event"] for row in rows[:-21:-1]]
    if to is not None:
        with client.stream("GET", "/v1/destinations/all/stream?after=0") as stream:
            data = (json.loads(row[6:]) for row in stream.iter_lines() if row.startswith("data: "))
            found = [next(data)["event"]["n"] for _ in range(500)]
        assert found == [n for n in range(EVENTS) if expected(n)][:500]


def test_roles_see_what_they_may(served: Running, client: httpx.Client) -> None:
    fill(client)
    publisher = served.client(client.get("/v1/whoami").json()["tenant"], "publish")
    rows = lines_of(publish(publisher, body_of(EVENTS)))
    assert len(rows) == EVENTS and not any("subscriptions" in row for row in rows)
    assert [row["count"] for row in rows] == [len(expected(n)) for n in range(EVENTS)]


@pytest.mark.usefixtures("answered")
def test_all_or_none(served: Running, client: httpx.Client) -> None:
    fill(client)
    good = b'{"m": 7}\n' * EVENTS
    answer = publish(client, good + b"\n" + b'{"n": \n')
    assert (answer.status_code, answer.json()["event"]) == (422, EVENTS)
    assert f"line {EVENTS + 2}, column" in answer.json()["detail"]
    assert client.get("/v1/events").json()["kept"] == 0
    rows = lines_of(publish(client, good + b"\n" + b'{"n": \n' + good, params={"on_error": "skip"}))
    assert len(rows) == 2 * EVENTS + 1
    assert rows[EVENTS]["position"] == EVENTS and f"line {EVENTS + 2}, column" in rows[EVENTS]["problem"]
    assert [row["position"] for row in rows] == list(range(2 * EVENTS + 1))
    assert rows[-1]["subscriptions"] == ["seven"]


@pytest.mark.usefixtures("answered")
def test_a_repeat_under_the_same_key(served: Running, client: httpx.Client) -> None:
    client.put("/v1/destinations/all", json={"kind": "stream"})
    fill(client, destination="all")
    key = {"Idempotency-Key": "the same"}
    first = publish(client, body_of(EVENTS), headers=key)
    again = publish(client, body_of(EVENTS), headers=key)
    assert again.headers["idempotent-replay"] == "true" and again.json() == {
        "repeated": True
    }  # it was too large to keep
    assert len(lines_of(first)) == EVENTS and tenant_of(served, client).counts.events == EVENTS
    small = [publish(client, b'{"n": 7}\n{"n": 8}\n', headers={"Idempotency-Key": "small"}) for _ in range(2)]
    assert small[0].text == small[1].text


@pytest.mark.usefixtures("answered")
def test_a_body_of_lines_is_matched_slice_by_slice(served: Running, client: httpx.Client) -> None:
    fill(client)
    rows = lines_of(client.post("/v1/match", content=body_of(EVENTS), headers=JSON_LINES))
    assert rows == [{"event": n, "subscriptions": expected(n)} for n in range(EVENTS)]
    weighed = client.post("/v1/match?weights=true", content=body_of(EVENTS), headers=JSON_LINES)
    assert lines_of(weighed)[-2:] == [row | {"weights": [1.0] * len(row["subscriptions"])} for row in rows[-2:]]
    bad = client.post("/v1/match", content=body_of(EVENTS) + b'{"n": \n', headers=JSON_LINES)
    assert (bad.status_code, bad.json()["event"]) == (422, EVENTS)


def test_what_fails_midway_says_how_far_it_came(served: Running, client: httpx.Client) -> None:
    client.put("/v1/destinations/all", json={"kind": "stream"})
    client.put("/v1/subscriptions/all", json={"expression": "n >= 0", "destination": "all"})
    outbox = served.service.outbox
    before = outbox.most_bytes
    [[size]] = outbox.session.read(lambda c: c.execute("SELECT bytes FROM state").fetchall())
    outbox.most_bytes = size + 500_000
    try:
        answer = publish(client, b"".join(b'{"n": %d}\n' % n for n in range(EVENTS)))
    finally:
        outbox.most_bytes = before
    assert answer.status_code == 429 and 0 < answer.json()["published"] < EVENTS
    with client.stream("GET", "/v1/destinations/all/stream?after=0") as stream:
        data = (json.loads(row[6:]) for row in stream.iter_lines() if row.startswith("data: "))
        assert [next(data)["event"]["n"] for _ in range(answer.json()["published"])] == list(
            range(answer.json()["published"])
        )


def test_an_answer_that_is_broken_off(served: Running, client: httpx.Client, caplog: pytest.LogCaptureFixture) -> None:
    """Its lines come as they are done: what fails later can only end it. That is said once, without a traceback."""
    client.put("/v1/destinations/all", json={"kind": "stream"})
    client.put("/v1/subscriptions/all", json={"expression": "n >= 0", "destination": "all"})
    outbox = served.service.outbox
    before = outbox.most_bytes
    [[size]] = outbox.session.read(lambda c: c.execute("SELECT bytes FROM state").fetchall())
    outbox.most_bytes = size + 200_000
    body = b"".join(b'{"n": %d, "long": "%s"}\n' % (n, b"x" * 1_000) for n in range(1_200))
    try:
        with caplog.at_level("ERROR"), pytest.raises(httpx.RemoteProtocolError):
            publish(client, body)
    finally:
        outbox.most_bytes = before
    assert not any(record.exc_info for record in caplog.records)
    [said] = [record.getMessage() for record in caplog.records if record.name.startswith("dibs")]
    assert said.startswith("an answer was broken off: ") and "outbox" in said
    assert client.get("/ready").status_code == 200


def test_lines_and_documents_have_a_length(served: Running, client: httpx.Client) -> None:
    long = b'{"n": "' + b"x" * (1 << 20) + b'"}'
    body = b'{"n": 7}\n' * EVENTS + long
    for path in ("/v1/publish", "/v1/match"):
        answer = client.post(path, content=body, headers=JSON_LINES)
        assert answer.status_code == 400 and f"line {EVENTS + 1}: longer than" in answer.json()["detail"]
        answer = client.post(path, content=long, headers={"Content-Type": "application/json"})
        assert (answer.status_code, answer.json()["type"]) == (413, "/problems/too-large")
    assert client.get("/v1/events").json()["kept"] == 0


def test_slices_are_whole_lines_and_all_of_them() -> None:
    body = b"\n".join(b"x" * (n * 37 % 101) for n in range(1_000))
    for size in (1, 10, 100, 1_000, MOST):
        slices, found = Slices(body, 0), []
        while not slices.is_at_end:
            found.append(slices.advance(size))
        assert b"".join(found) == body and all(text.endswith(b"\n") for text in found[:-1])
        before = b"".join(found[:-1]).count(b"\n")
        assert slices.place("line 1, column 2") == f"line {before + 1}, column 2"


def test_other_tenants_have_their_turn(tmp_path: Path) -> None:
    """Before, whoever came while a body was published waited until all of it was."""
    with running(tmp_path / "searches") as served:
        large, small = served.client("large"), served.client("small")
        small.put("/v1/subscriptions/a", json={"expression": "x = 1"})
        small.post("/v1/publish", json={"x": 1})
        large.get("/v1/whoami")
        ended = threading.Event()
        told: list[int] = []

        def bulk() -> None:
            told.append(publish(large, b'{"a": 1}\n' * 800_000).text.count("\n"))
            ended.set()

        thread = threading.Thread(target=bulk)
        thread.start()
        time.sleep(0.3)
        took = []
        while not ended.is_set():
            begun = time.perf_counter()
            assert small.post("/v1/publish", json={"x": 1}).json()["subscriptions"] == ["a"]
            assert small.get("/health").is_success
            took.append(time.perf_counter() - begun)
            time.sleep(0.01)
        thread.join()
        assert told == [800_000]
        assert len(took) >= 10 and sorted(took)[len(took) // 2] < 0.5


def test_an_event_that_cannot_be_noted_at_once_waits_for_its_turn(tmp_path: Path) -> None:
    """Others are answered meanwhile: the loop waits for no thread."""
    with running(tmp_path / "s", open=True) as served, ThreadPoolExecutor(1) as pool:
        client = served.client(token="")
        client.put("/v1/subscriptions/a", json={"expression": "a = 1"}).raise_for_status()
        assert client.post("/v1/publish", json={"a": 1}).json()["subscriptions"] == ["a"]
        tenant = served.service.tenants.find("main")
        assert tenant is not None
        for lock in (tenant.recent.turn, tenant.counts.turn):
            with lock:
                published = pool.submit(served.client(token="").post, "/v1/publish", json={"a": 1})
                for _ in range(20):
                    assert client.get("/health").status_code == 200
                assert not published.done()
            assert published.result().json()["subscriptions"] == ["a"]
        assert client.get("/v1/events").json()["kept"] == 3
        assert client.get("/v1/subscriptions/a?counts=true").json()["matches"]["total"] == 3
