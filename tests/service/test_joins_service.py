"""Joins over history through the service: what is published is what later events are compared with."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from serving import JSON_LINES, Processes, Running, running

import dibs
from command_line import run
from dibs.history.stored import DurableHistory
from dibs.service.delivery import Outbox

NEW, CHEAPER = "FORALL d (isbn <> d.isbn)", "price < (SELECT MIN(d.price) FROM history d WHERE d.isbn = isbn)"


@pytest.fixture
def served_here(tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path / "searches") as found:
        yield found


def put(client: httpx.Client, id: str, expression: str, **more: Any) -> None:
    answer = client.put(f"/v1/subscriptions/{id}", json={"expression": expression, **more})
    assert answer.status_code in (200, 201), answer.text


def publish(client: httpx.Client, event: dict[str, Any], **headers: str) -> list[Any]:
    answer = client.post("/v1/publish", json=event, headers=headers)
    assert answer.status_code == 202, answer.text
    return answer.json()["subscriptions"]  # type: ignore[no-any-return]


def test_what_is_published_is_seen_by_the_next(served_here: Running) -> None:
    client = served_here.client()
    assert publish(client, {"isbn": 1}) == [] and len(served_here.matcher.history) == 0  # nobody asks for it
    put(client, "new", NEW)
    put(client, "cheaper", CHEAPER)
    assert client.post("/v1/match", json={"isbn": 1}).json() == {"subscriptions": ["new"]}  # a question leaves nothing
    assert publish(client, {"isbn": 1, "price": 20}) == ["new"]
    assert publish(client, {"isbn": 1, "price": 30}) == []
    assert publish(client, {"isbn": 1, "price": 19}) == ["cheaper"]
    assert client.post("/v1/match", json={"isbn": 1, "price": 18}).json() == {"subscriptions": ["cheaper"]}
    body = b'{"isbn": 2, "price": 5}\n{"isbn": 2\n{"isbn": 2, "price": 4}\n'
    answer = client.post("/v1/publish?on_error=skip", content=body, headers=JSON_LINES)
    rows = [json.loads(line) for line in answer.content.splitlines()]
    assert [row.get("subscriptions") for row in rows] == [["new"], None, ["cheaper"]] and "problem" in rows[1]
    refused = client.post("/v1/publish", content=b'{"isbn": 3}\n{"isbn":\n', headers=JSON_LINES)
    assert refused.status_code == 422 and publish(client, {"isbn": 3}) == ["new"]  # nothing of it was remembered
    pretty = json.dumps({"isbn": 4}, indent=2)
    assert client.post("/v1/publish", content=pretty).json()["subscriptions"] == ["new"]
    assert publish(client, {"isbn": 4}) == []


def test_asking_about_joins(served_here: Running) -> None:
    client = served_here.client()
    put(client, "new", NEW)
    publish(client, {"isbn": 7, "kind": "book"})
    checked = client.post("/v1/validate", json={"expression": f"kind = 'book' AND {CHEAPER}"}).json()
    assert checked["valid"] and checked["attributes"] == ["isbn", "kind", "price"]
    for question in ({"id": "new"}, {"expression": NEW}):
        told = client.post("/v1/explain", json={"event": {"isbn": 7}, **question}).json()
        assert not told["matched"] and "because of document 0: isbn 7 = 7" in told["headline"]
        assert client.post("/v1/explain", json={"event": {"isbn": 8}, **question}).json()["matched"]
    client.post("/v1/subscriptions/new/pause")
    told = client.post("/v1/explain", json={"event": {"isbn": 8}, "id": "new"}).json()
    assert told["matched"] and told["paused"]
    found = client.get("/v1/subscriptions?attribute=isbn").json()["subscriptions"]
    assert [each["id"] for each in found] == ["new"]
    client.post("/v1/subscriptions/new/resume")
    put(client, "seen", "EXISTS d (d.isbn = isbn)")
    near = client.post("/v1/misses", json={"event": {"isbn": 8}}).json()
    assert near["misses"] == [{"attribute": "isbn", "count": 1, "subscriptions": ["seen"], "distances": [1.0]}]


def test_a_client_and_the_command_ask_the_service_why(served_here: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    token = served_here.token()
    monkeypatch.setenv("DIBS_TOKEN", token)
    text = f"kind = 'book' AND ({NEW} OR (SELECT COUNT(*) FROM history d WHERE d.kind = kind) > 5)"
    with dibs.Client(served_here.url, token) as client, dibs.Matcher() as m:
        for each in (client, m):
            each.add("it", text)
        client.publish({"isbn": 1, "kind": "book"})
        m.history.add({"isbn": 1, "kind": "book"})
        for isbn in (1, 2):
            event = {"isbn": isbn, "kind": "book"}
            told, expected = client.explain("it", event), m.explain("it", event)
            assert (str(told), told.matched) == (str(expected), isbn == 2)
            assert told.to_dict() == expected.to_dict()
            done = run("explain", "--server", served_here.url, "--id", "it", "--event", json.dumps(event))
            assert done.exit_code == 2 - isbn and str(expected) in done.stdout, done.stderr


def test_a_backtest_sees_the_events_before(served_here: Running) -> None:
    client = served_here.client()
    for isbn in (1, 2, 1, 3, 2):
        publish(client, {"isbn": isbn})
    found = client.post("/v1/backtest", json={"expression": NEW}).json()
    assert (found["events"], found["count"]) == (5, 3)
    assert [each["event"] for each in found["examples"]] == [{"isbn": 3}, {"isbn": 2}, {"isbn": 1}]


def test_it_is_there_after_a_restart_and_in_every_process(tmp_path: Path) -> None:
    with running(tmp_path / "searches") as served:
        client = served.client()
        put(client, "new", NEW)
        assert publish(client, {"isbn": 1}) == ["new"]
    with (
        Processes(tmp_path / "searches", "--history", "2", "--open", workers=2) as service,
        httpx.Client(base_url=service.url, timeout=30) as client,
    ):
        assert publish(client, {"isbn": 1}) == [] and publish(client, {"isbn": 2}) == ["new"]
        for _ in range(8):  # whichever process answers
            with httpx.Client(base_url=service.url, timeout=30) as other:
                assert other.post("/v1/match", json={"isbn": 2}).json() == {"subscriptions": []}
        assert publish(client, {"isbn": 3}) == ["new"] and publish(client, {"isbn": 1}) == ["new"]  # 2 are kept


def test_a_backup_while_it_runs(tmp_path: Path) -> None:
    """The three databases, as docs/service.md says it."""
    with running(tmp_path / "searches") as served:
        client = served.client()
        put(client, "new", NEW, owner="shop")
        publish(client, {"isbn": 1})
        for name in ("catalog/catalog.db", "service.sqlite", "outbox.sqlite"):
            target = tmp_path / "restored" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            with closing(sqlite3.connect(tmp_path / "searches" / name)) as old, closing(sqlite3.connect(target)) as new:
                old.backup(new)
        publish(client, {"isbn": 2})
        token = client.headers["Authorization"].split()[1]
    with running(tmp_path / "restored") as served:
        client = served.client(token=token)
        assert client.get("/v1/subscriptions/new").json()["owner"] == "shop"
        assert publish(client, {"isbn": 1}) == [] and publish(client, {"isbn": 2}) == ["new"]


def test_how_much_is_kept(tmp_path: Path) -> None:
    def retained(**more: Any) -> Any:
        with running(tmp_path / "searches", **more) as served:
            assert served.client().get("/v1/stats").status_code == 200
            return served.matcher.history.retain.count

    assert [retained(), retained(history=5), retained(), retained(history=0)] == [100_000, 5, 5, 0]
    with running(tmp_path / "searches") as served:
        client = served.client()
        put(client, "new", NEW)
        assert publish(client, {"isbn": 1}) == publish(client, {"isbn": 1}) == ["new"]  # 0: nothing is
    with dibs.Matcher.open(tmp_path / "own", retain=7) as m:
        m.history.add({"isbn": 1})
    with running(tmp_path / "own") as served:
        put(served.client(), "new", NEW)
        assert served.matcher.history.retain.count == 7 and publish(served.client(), {"isbn": 1}) == []


@pytest.mark.parametrize("where", ["outbox", "history"])
def test_a_failure_between_delivery_and_history(
    where: str, served_here: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Published again under its key: it is delivered once and remembered once, and finds the history without itself."""
    client = served_here.client()
    assert client.put("/v1/destinations/shown", json={"kind": "stream"}).status_code == 201
    put(client, "new", NEW, destination="shown")
    owner, name = (Outbox, "enqueue_many") if where == "outbox" else (DurableHistory, "put")
    real, failures = getattr(owner, name), iter([True])

    def fail_once(*arguments: Any) -> Any:
        for _ in failures:
            raise OSError("the disk is away")
        return real(*arguments)

    monkeypatch.setattr(owner, name, fail_once)
    first = client.post("/v1/publish", json={"isbn": 1}, headers={"Idempotency-Key": "a"})
    assert first.status_code >= 500 and len(served_here.matcher.history) == 0
    assert publish(client, {"isbn": 1}, **{"Idempotency-Key": "a"}) == ["new"]
    assert len(served_here.matcher.history) == 1 and publish(client, {"isbn": 1}) == []
    assert client.get("/v1/destinations/shown").json()["kept"] == 1
