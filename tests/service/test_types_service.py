"""Declared types in the service and the commands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from serving import running

import dibs
from command_line import found, run
from dibs.errors import DibsError, FormatError
from dibs.matcher import Matcher
from dibs.service.problems import refusal_of

TYPES = {"price": "number", "at": "timestamp_seconds"}


def test_a_tenant(tmp_path: Path) -> None:
    with running(tmp_path / "searches", types=TYPES) as served:
        client = served.client()
        assert client.put("/v1/subscriptions/a", json={"expression": "price > '5'"}).status_code == 201
        assert client.put("/v1/subscriptions/b", json={"expression": "at > '2024-05-01'"}).status_code == 201
        refused = client.put("/v1/subscriptions/c", json={"expression": "price > 'x'"})
        assert refused.status_code == 422 and "declared number" in refused.text
        assert client.post("/v1/validate", json={"expression": "price LIKE 'x'"}).json()["valid"] is False
        event = {"price": "6", "at": 1714564800}
        assert client.post("/v1/match", json=event).json() == {"subscriptions": ["a", "b"]}
        assert client.post("/v1/publish", json=event).json()["subscriptions"] == ["a", "b"]
        assert client.post("/v1/explain", json={"event": event, "id": "a"}).json()["matched"] is True
        assert client.post("/v1/match", json={"price": "x"}).status_code == 422
        assert client.post("/v1/publish", json={"price": "x"}).status_code == 422
        assert client.post("/v1/backtest", json={"expression": "price = '6'"}).json()["count"] == 1
        missed = client.post("/v1/misses", json={"event": {"price": 1, "at": 1714564800}}).json()
        assert [(row["attribute"], row["subscriptions"]) for row in missed["misses"]] == [("price", ["a"])]
        with dibs.Client(served.url, served.token()) as own:
            told = own.explain("a", event)
            assert (
                told.matched and told.to_dict() == client.post("/v1/explain", json={"event": event, "id": "a"}).json()
            )
            assert not own.explain("b", {"at": 5}).matched
    with Matcher.open(tmp_path / "searches") as matcher:
        assert matcher.types == TYPES


def test_types_by_the_api(tmp_path: Path) -> None:
    with running(tmp_path / "searches") as served:
        shop, reader = served.client("shop"), served.client("shop", "read", "write", "publish")
        assert shop.get("/v1/types").json() == {"types": {}}
        assert reader.put("/v1/types", json={"types": TYPES}).status_code == 403
        event = {"price": "6", "at": 1714564800}
        assert shop.put("/v1/subscriptions/a", json={"expression": "price > 5"}).status_code == 201
        assert shop.post("/v1/publish", json=event).json()["subscriptions"] == []
        refused = shop.put("/v1/types", json={"types": TYPES})
        assert refused.status_code == 409 and "1 subscriptions" in refused.json()["detail"]
        assert shop.put("/v1/types", json={"types": {}}).status_code == 200  # as it is
        assert shop.delete("/v1/subscriptions/a").status_code == 200
        wrong = shop.put("/v1/types", json={"types": {"price": "decimal"}})
        assert wrong.status_code == 400 and "must be one of number" in wrong.json()["detail"]
        assert shop.put("/v1/types", json={"types": TYPES}).json() == {"types": TYPES}
        assert reader.get("/v1/whoami").json()["types"] == TYPES
        for expression in ("price > '5' AND at > '2024-05-01'", "EXISTS d (d.price < price)"):
            assert shop.put(f"/v1/subscriptions/{expression[:2]}", json={"expression": expression}).status_code == 201
        assert shop.post("/v1/publish", json=event).json()["subscriptions"] == ["pr"]
        assert shop.post("/v1/publish", json=event | {"price": 7}).json()["subscriptions"] == ["EX", "pr"]
        shop.delete("/v1/subscriptions/pr"), shop.delete("/v1/subscriptions/EX")
        refused = shop.put("/v1/types", json={"types": {}})
        assert refused.status_code == 409 and "2 documents" in refused.json()["detail"]
        assert [entry["action"] for entry in shop.get("/v1/audit").json()["entries"]].count("PUT /v1/types") == 2
        assert served.client().get("/v1/types").json() == {"types": {}}
    with running(tmp_path / "searches") as served:
        assert served.client("shop").get("/v1/types").json() == {"types": TYPES}  # kept
        assert served.client().put("/v1/types", json={"types": {"n": "number"}}).status_code == 200
    with running(tmp_path / "started", types=TYPES) as served:
        refused = served.client().put("/v1/types", json={"types": {}})
        assert refused.status_code == 409 and "--types" in refused.json()["detail"]
        assert served.client("shop").put("/v1/types", json={"types": {}}).json() == {"types": {}}


def test_who_asks_in_the_moment_of_a_change_is_told_to_ask_again(tmp_path: Path) -> None:
    with Matcher.open(tmp_path / "m") as matcher:
        pass
    for ask in (lambda: matcher.match({"a": 1}), lambda: matcher.add(1, "a = 1")):
        with pytest.raises(DibsError) as closed:
            ask()
        assert refusal_of(closed.value).status == 503


def test_commands(tmp_path: Path) -> None:
    subscriptions, events = tmp_path / "subs.jsonl", tmp_path / "events.jsonl"
    subscriptions.write_text(json.dumps({"id": "a", "expression": "price > 5 AND at > '2024-05-01'"}))
    rows = [{"price": price, "at": 1714564800} for price in ("6", 7, "1")]
    events.write_text("\n".join(map(json.dumps, rows)))
    types = ["--types", "price=number,at=timestamp_seconds"]
    given = ["--subscriptions", subscriptions, "--events", events]
    assert found(run("match", *given, *types)) == [["a"], ["a"], []]
    assert found(run("match", *given)) == [[], [], []]
    ran = run("backtest", "price > 5 AND at > '2024-05-01'", events, "--json", *types)
    assert json.loads(ran.stdout)["count"] == 2
    ran = run("backtest", "--subscriptions", subscriptions, events, "--json", *types)
    assert json.loads(ran.stdout)["pairs"] == 2
    assert run("explain", "-s", subscriptions, "--id", "a", "-e", json.dumps(rows[0]), *types).exit_code == 0
    assert run("explain", "-s", subscriptions, "--id", "a", "-e", json.dumps(rows[0])).exit_code == 1
    assert run("validate", "price > 'x'", *types).exit_code == 1
    assert run("compile", "-s", subscriptions, "--out", tmp_path / "index", *types).exit_code == 0
    assert found(run("match", "-s", tmp_path / "index", "--events", events)) == [["a"], ["a"], []]
    assert run("validate", "price > 'x'").exit_code == 0
    assert "is no type" in run("match", *given, "--types", "price=int").output
    table = tmp_path / "events.csv"
    table.write_text("price,at\n6,1714564800\n1,1714564800\n")
    assert found(run("match", "--subscriptions", subscriptions, "--events", table, *types)) == [["a"], []]
    events.write_text('{"price": "x"}')
    ran = run("match", *given, *types)
    assert ran.exit_code == 3 and "expected a number" in ran.output


def test_exports(tmp_path: Path) -> None:
    with Matcher(types=TYPES) as matcher:
        matcher.add(1, "price > '5'")
        matcher.export(tmp_path / "a.parquet")
    with Matcher(types=TYPES) as matcher:
        assert matcher.import_from(tmp_path / "a.parquet") == [] and matcher.match({"price": "6"}) == [1]
    with Matcher() as matcher, pytest.raises(FormatError, match="types"):
        matcher.import_from(tmp_path / "a.parquet")
