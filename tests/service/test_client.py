"""dibs.Client answers as the Matcher does, errors included; and the commands that ask a service."""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from serving import Running

import dibs
from command_line import run


@pytest.fixture
def both(served: Running) -> Iterator[tuple[dibs.Client, dibs.Matcher]]:
    """The same subscriptions in a service and in a matcher."""
    with dibs.Client(served.url, served.token()) as client:
        found = client._http.get("/v1/subscriptions?limit=1000").json()["subscriptions"]
        if found:
            client.remove_many(each["id"] for each in found)
        yield client, dibs.Matcher()


def outcome(work: Callable[[], Any]) -> Any:
    """What it gives, or raises: the type, and its words."""
    try:
        return work()
    except dibs.DibsError as error:
        return type(error), str(error)


SOME = [("x", "a = 1"), ("z", "a = 2", 3)]
STEPS: list[Callable[[Any], Any]] = [
    lambda m: m.add("alice", "price <= 580 AND color = 'red'"),
    lambda m: m.add(5, "price > 0", 2.5),
    lambda m: m.add("alice", "price < 1"),
    lambda m: m.add("bad", "price <= AND"),
    lambda m: len(m),
    lambda m: m.match({"price": 500, "color": "red"}),
    lambda m: m.match(b'{"price": 500, "color": "red"}', top=1),
    lambda m: m.match(b"{"),
    lambda m: m.match(5),
    lambda m: [r.position for r in m.add_many([*SOME, ("y", "a ="), ("alice", "a = 1")], on_error="skip")],
    lambda m: m.add_many([("n", "a = 1"), ("x", "a = 1")]) and None,
    lambda m: ("n" in m, "x" in m, 5 in m, "5" in m, None in m),
    lambda m: [*m.match_batch([{"a": 1}, {"a": 2}, {"price": 1}])],
    lambda m: m.match_batch(b'{"a": 1}\n\n{"a": 2}\n').count,
    lambda m: m.match_batch([{"a": 1}] * 3).pairs().num_rows,
    lambda m: [*m.match_batch(b'{"a": 1}\n{"a": \n', on_error="skip")],
    lambda m: m.match_batch([{"price": 9, "a": 2}], top=1).top(1),
    lambda m: m.replace("x", "a = 7", 9),
    lambda m: m.replace("x", "a = 8"),
    lambda m: m.replace("nobody", "a = 8"),
    lambda m: m.replace("x", "a ="),
    lambda m: (m.expression("x"), m.weight("x"), m.get("x").weight),
    lambda m: m.expression("nobody"),
    lambda m: str(m.explain("alice", {"price": 600, "color": "red"})),
    lambda m: m.explain("nobody", {}),
    lambda m: m.add_table(pa.table({"id": [100, 101], "expression": ["b = 1", "b = 2"]})),
    lambda m: m.match({"b": 2}),
    lambda m: sorted(m.attributes),
    lambda m: m.remove_many([100, "nobody"]),
    lambda m: m.remove_many([100, 101]),
    lambda m: m.remove("x"),
    lambda m: m.remove("x"),
    lambda m: m.match({"a": 8, "price": 3, "color": "red"}),
]  # fmt: skip


def test_every_method_does_what_the_matchers_does(both: tuple[dibs.Client, dibs.Matcher]) -> None:
    client, matcher = both
    for number, step in enumerate(STEPS):
        asked, expected = outcome(lambda step=step: step(client)), outcome(lambda step=step: step(matcher))
        assert asked == expected, number


def test_what_only_a_service_has(both: tuple[dibs.Client, dibs.Matcher], served: Running) -> None:
    client, _ = both
    client.add("a", "x = 1", owner="me")
    first = client.publish({"x": 1}, key="k1")
    assert first["count"] == 1 and client.publish({"x": 1}, key="k1") == first
    client.pause("a")
    assert client.match({"x": 1}) == []
    client.resume("a")
    assert client.match({"x": 1}) == ["a"]
    assert client.backtest("x = 1")["count"] >= 1
    assert client.stats()["subscriptions"] == 1
    with pytest.raises(dibs.ServiceError, match="token") as error:
        dibs.Client(served.url, "wrong").match({})
    assert error.value.status == 401
    with pytest.raises(dibs.ServiceError, match="does it run"):
        dibs.Client("http://127.0.0.1:9", "x").match({})
    with pytest.raises(dibs.ArgumentError, match="address"):
        dibs.Client("localhost:8080")
    with pytest.raises(dibs.EventError, match="JSON"):
        client.match({"x": dibs.Range(1, 2)})


def test_commands_ask_a_service(
    both: tuple[dibs.Client, dibs.Matcher], served: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, _ = both
    client.add("a", "x = 1")
    client.add(5, "x > 0")
    monkeypatch.setenv("DIBS_TOKEN", served.token("main", "read"))
    events = tmp_path / "events.jsonl"
    events.write_text('{"x": 1}\n{"x": 2}\n{"x": 0}\n')
    done = run("match", "--server", served.url, "-e", str(events))
    assert done.exit_code == 0, done.stderr
    assert [json.loads(line)["subscriptions"] for line in done.stdout.splitlines()] == [[5, "a"], [5], []]
    done = run("explain", "--server", served.url, "--id", "5", "--event", '{"x": -1}')
    assert done.exit_code == 1 and "does not match" in done.stdout
    assert run("match", "--server", served.url, "-s", "x").exit_code == 2
    monkeypatch.setenv("DIBS_TOKEN", "wrong")
    done = run("match", "--server", served.url, "-e", str(events))
    assert done.exit_code == 3 and "token" in done.stderr


def test_tokens_by_the_command(served: Running) -> None:
    folder = str(served.settings.folder)
    made = run("token", "create", folder, "--tenant", "shop", "--role", "publish", "--about", "till")
    secret = made.stdout.strip()
    assert made.exit_code == 0 and secret.startswith("dibs_")
    listed = run("token", "list", folder, "--json").stdout.splitlines()
    name = json.loads(listed[-1])["name"]
    assert secret not in "".join(listed) and json.loads(listed[-1])["about"] == "till"
    with dibs.Client(served.url, secret) as client:
        assert client.publish({"x": 1})["count"] == 0
        with pytest.raises(dibs.ServiceError, match="role read"):
            client.match({"x": 1})
        assert run("token", "revoke", folder, name).exit_code == 0
        with pytest.raises(dibs.ServiceError, match="revoked"):
            client.publish({"x": 1})
    assert run("token", "revoke", folder, name).exit_code == 3
    assert run("token", "create", folder, "--role", "king").exit_code == 2  # the command line is wrong
    assert run("token", "create", folder, "--tenant", "../x").exit_code == 2
    assert run("token", "limits", folder, "small", "--subscriptions", "1").exit_code == 0
    with dibs.Client(served.url, served.token("small")) as client:
        client.add("a", "x = 1")
        with pytest.raises(dibs.ServiceError, match="1 subscriptions"):
            client.add("b", "x = 1")


def test_a_token_that_has_expired_is_not_in_use(served: Running) -> None:
    folder = str(served.settings.folder)
    for days in ("0.0000001", "30"):
        assert run("token", "create", folder, "--tenant", "brief", "--days", days).exit_code == 0
    time.sleep(0.02)
    rows = [json.loads(row) for row in run("token", "list", folder, "--json").stdout.splitlines()]
    states = {row["name"]: row["state"] for row in rows if row["tenant"] == "brief"}
    assert sorted(states.values()) == ["expired", "in use"]
    for line in run("token", "list", folder).stdout.splitlines():
        name, state = line.split()[0], line[10:].split("  ")[0]
        assert states.get(name, state) == state


@pytest.mark.parametrize("end", ["\x00x", "\r\nHost: x", "ä", " x", "\x7f"])
def test_a_token_is_in_no_error(served: Running, end: str) -> None:
    """Whatever was given for it, and wherever."""
    secret = "dibs_" + "s" * 43
    with pytest.raises(dibs.ServiceError, match="the token is not known") as refused:
        dibs.Client(served.url, f" {secret}\n").match({})  # as a file has it
    assert secret not in "".join(traceback.format_exception(refused.value))
    calls: list[Callable[[], object]] = [
        lambda: dibs.Client(served.url, secret + end).match({}),
        lambda: dibs.Client(secret + end),
        lambda: dibs.Client(f"http://admin:{secret}@127.0.0.1:{served.port}").match({}),
        lambda: dibs.Client(served.url, secret.encode()),  # type: ignore[arg-type]
    ]
    for call in calls:
        with pytest.raises(dibs.DibsError) as raised:
            call()
        assert secret not in "".join(traceback.format_exception(raised.value))


def test_catalog_validate_backtest_and_stats_ask_a_service(
    both: tuple[dibs.Client, dibs.Matcher], served: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, _ = both
    monkeypatch.setenv("DIBS_TOKEN", served.token("main", "write", "publish"))
    url = served.url
    assert run("catalog", "add", url, "alice", "price <= 580", "--weight", "2").exit_code == 0
    assert run("catalog", "add", url, "5", "price > 1000").exit_code == 0
    done = run("catalog", "add", url, "5", "price > 1")
    assert done.exit_code == 3 and "5" in done.stderr
    done = run("catalog", "add", url, "bad", "price >")
    assert done.exit_code == 3 and "price >" in done.stderr
    client.add("paused", "x = 1", paused=True)
    done = run("catalog", "ls", url, "--json")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(row["id"], row["expression"], row["weight"]) for row in rows] == [
        (5, "price > 1000", 1.0),
        ("alice", "price <= 580", 2.0),
    ]
    assert [
        json.loads(line)["id"] for line in run("catalog", "ls", url, "--like", "ALI", "--json").stdout.splitlines()
    ] == ["alice"]
    assert "price <= 580" in run("catalog", "get", url, "alice").stdout
    assert run("catalog", "get", url, "nobody").exit_code == 1
    for ending in ("parquet", "jsonl"):
        file, other = tmp_path / f"out.{ending}", tmp_path / f"folder-{ending}"
        assert run("catalog", "export", url, str(file)).exit_code == 0
        assert run("catalog", "import", str(other), str(file)).exit_code == 0
        with dibs.Matcher.open(other) as matcher:
            assert matcher.match({"price": 500}) == ["alice"] and matcher.match({"price": 2000}) == [5]
            assert matcher.weight("alice") == 2.0 and len(matcher) == 2
    done = run("catalog", "rm", url, "alice", "nobody")
    assert done.exit_code == 3 and "alice" in client
    assert run("catalog", "rm", url, "alice", "5").exit_code == 0
    assert "alice" not in client and 5 not in client
    done = run("validate", "--server", url, "--json", "price <= 5", "price <=")
    ours = run("validate", "--json", "price <= 5", "price <=")
    assert done.exit_code == 1 and done.stdout == ours.stdout
    for price in range(10):
        client.publish({"unique": price})
    done = run("backtest", "--server", url, "unique >= 7", "--json")
    assert done.exit_code == 0 and json.loads(done.stdout)["count"] == 3
    done = run("backtest", "--server", url, "unique >= 7")
    assert done.exit_code == 0 and done.stdout.startswith("3 of the ") and '"unique":9' in done.stdout
    assert run("backtest", "--server", url, "unique >= 7", "events.jsonl").exit_code == 2
    assert json.loads(run("stats", url).stdout)["subscriptions"] == len(client)
    assert json.loads(run("stats", str(tmp_path / "folder-jsonl")).stdout)["subscriptions"] == 2
    monkeypatch.setenv("DIBS_TOKEN", "wrong")
    for command in (["catalog", "ls", url], ["validate", "--server", url, "a = 1"], ["stats", url]):
        done = run(*command)
        assert done.exit_code == 3 and "token" in done.stderr
