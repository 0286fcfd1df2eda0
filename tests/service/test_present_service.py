"""now() in the service: the time at which a request came, one for all its events."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

from serving import JSON_LINES, running

from command_line import run
from dibs.client import Client

NOW = "2024-05-01T12:30:00Z"


def test_publish_match_and_explain(tmp_path: Path) -> None:
    with running(tmp_path / "searches") as served:
        client = served.client()
        for id, text in {
            "recent": "at > now() - INTERVAL 1 HOUR",
            "old": "at <= now() - INTERVAL 1 HOUR",
            **{f"bit {bit}": f"unix_micros(now()) DIV {2**bit} % 2 = 1" for bit in range(8)},
        }.items():
            assert client.put(f"/v1/subscriptions/{id}", json={"expression": text}).status_code == 201
        present = {"at": dt.datetime.now(dt.timezone.utc).isoformat()}
        answer = client.post("/v1/publish", json=present).json()
        published = int(answer["event"].split("-")[0], 16)  # in its id
        bits = sorted(f"bit {bit}" for bit in range(8) if published >> bit & 1)
        assert answer["subscriptions"] == [*bits, "recent"]
        lines = "\n".join([json.dumps(present)] * 300)
        rows = client.post("/v1/publish", content=lines, headers=JSON_LINES).content.splitlines()
        assert len({tuple(json.loads(row)["subscriptions"]) for row in rows}) == 1
        event = {"at": "2024-05-01T12:00:00Z", "sent": "2024-05-01T14:00:00Z"}
        asked = [client.post(f"/v1/match{now}", json=event).json() for now in ("", f"?now={NOW}", "?now=sent")]
        assert [[id for id in each["subscriptions"] if "bit" not in id] for each in asked] == [
            ["old"],
            ["recent"],
            ["old"],
        ]
        told = client.post("/v1/explain", json={"event": event, "id": "recent", "now": NOW}).json()
        assert told["matched"] is True
        refused = client.post("/v1/match?now=2024-13-01", json=event)
        assert refused.status_code == 400 and "now must be" in refused.json()["detail"]
        with Client(served.url, token=served.token()) as remote:
            assert "recent" in remote.match(event, now=NOW) and "old" in remote.match(event)
            assert "recent" in next(iter(remote.match_batch([event], now=dt.datetime(2024, 5, 1, 12, 30))))
            assert remote.explain("recent", event, now=NOW).matched and not remote.explain("recent", event).matched


def test_lines_do_not_fix_the_time_of_those_who_ask_later(tmp_path: Path) -> None:
    with running(tmp_path / "searches") as served:
        client = served.client()
        assert client.put("/v1/subscriptions/it", json={"expression": "at <= now()"}).status_code == 201
        assert client.post("/v1/match", content=b"{}\n{}", headers=JSON_LINES).status_code == 200
        later = {"at": dt.datetime.now(dt.timezone.utc).isoformat()}
        assert client.post("/v1/match", json=later).content == b'{"subscriptions":["it"]}'


def test_commands(tmp_path: Path) -> None:
    subscriptions, events = tmp_path / "subs.jsonl", tmp_path / "events.jsonl"
    subscriptions.write_text(json.dumps({"id": "recent", "expression": "at > now() - INTERVAL 1 HOUR"}))
    rows = [{"at": f"2024-05-01T{hour}:00:00Z", "sent": "2024-05-01T10:00:00Z"} for hour in range(10, 14)]
    events.write_text("\n".join(map(json.dumps, rows)))
    given = ["--subscriptions", str(subscriptions), "--events", str(events)]
    for now, count in (([], 0), (["--now", NOW], 2), (["--now", "sent"], 4)):
        ran = run("match", *given, "--matched-only", *now)
        assert ran.exit_code == 0 and len(ran.stdout.splitlines()) == count, ran
        ran = run("backtest", "--subscriptions", str(subscriptions), str(events), "--json", *now)
        assert json.loads(ran.stdout)["pairs"] == count
        ran = run("backtest", "at > now() - INTERVAL 1 HOUR", str(events), "--json", *now)
        assert json.loads(ran.stdout)["count"] == count
    ran = run("explain", "-s", str(subscriptions), "--id", "recent", "-e", json.dumps(rows[2]), "--now", NOW)
    assert ran.exit_code == 0
    ran = run("match", *given, "--now", "2024-13-01")
    assert ran.exit_code != 0 and "now must be" in ran.stderr
