"""The API, as routes.py says it: a real server, asked over HTTP."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from serving import JSON_LINES, Running, running

import dibs
from dibs.segments import compile


def lines(*rows: Any) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


@pytest.fixture(scope="module")
def admin(served: Running) -> httpx.Client:
    return served.client()


@pytest.fixture
def clean(served: Running, admin: httpx.Client) -> httpx.Client:
    """Without subscriptions."""
    while found := admin.get("/v1/subscriptions?limit=1000").json()["subscriptions"]:
        body = lines(*({"id": each["id"], "remove": True} for each in found))
        assert admin.post("/v1/subscriptions", content=body, headers=JSON_LINES).status_code == 200
    return admin


def put(client: httpx.Client, id: str, expression: str, **more: Any) -> httpx.Response:
    return client.put(f"/v1/subscriptions/{id}", json={"expression": expression, **more})


def test_one_subscription_from_put_to_delete(clean: httpx.Client, served: Running) -> None:
    made = put(clean, "alice", "price <= 580", weight=2, owner="shop", labels={"team": "a"})
    assert made.status_code == 201
    body = made.json()
    assert (body["id"], body["weight"], body["owner"], body["labels"]) == ("alice", 2.0, "shop", {"team": "a"})
    assert made.headers["etag"] == f'"{body["version"]}"'
    assert clean.get("/v1/subscriptions/alice").json() == body
    assert clean.post("/v1/match", json={"price": 550}).json() == {"subscriptions": ["alice"]}
    replaced = put(clean, "alice", "price <= 100")
    assert (replaced.status_code, replaced.json()["owner"]) == (200, None)
    assert clean.post("/v1/match", json={"price": 550}).json() == {"subscriptions": []}
    removed = clean.delete("/v1/subscriptions/alice")
    assert removed.json()["removed"]["expression"] == "price <= 100"
    missing = clean.get("/v1/subscriptions/alice")
    assert (missing.status_code, missing.headers["content-type"]) == (404, "application/problem+json")
    assert missing.json()["detail"] == str(dibs.UnknownId("alice"))
    assert "alice" not in served.matcher


def test_a_text_is_read_once(clean: httpx.Client, served: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    texts: list[str] = []
    read_row = compile.read_row
    monkeypatch.setattr(compile, "read_row", lambda text: texts.append(text) or read_row(text))
    for body in ({}, {"owner": "ann"}, {"owner": "bob"}, {"weight": 2.0}):  # new, details come, they change, they go
        put(clean, "a", f"price < {len(texts)}", **body)
    assert texts == [f"price < {i}" for i in range(4)]
    rows = ({"id": id, "expression": f"price < {i}", "owner": "ann"} for i, id in enumerate("abc", 4))
    clean.post("/v1/subscriptions", content=lines(*rows), headers=JSON_LINES)
    assert texts == [f"price < {i}" for i in range(7)]
    assert put(clean, "a", "price <", owner="ann").status_code == 422
    assert served.matcher.match({"price": 4.5}) == ["b", "c"]


def test_integers_and_strange_texts_are_ids(clean: httpx.Client, served: Running) -> None:
    names = ["5", "a/b", "ä ö", "?&#%", "../../etc/passwd", "%2e%2e", "a\tb", "'\";--"]
    for name in names:
        assert clean.put(
            httpx.URL(clean.base_url).copy_with(raw_path=path_of(name)), json={"expression": "a = 1"}
        ).is_success
    assert clean.put("/v1/subscriptions/5?integer=true", json={"expression": "a = 1"}).status_code == 201
    assert clean.post("/v1/match", json={"a": 1}).json()["subscriptions"] == [5, *sorted(names)]
    assert served.matcher.match({"a": 1}) == [5, *sorted(names)]
    assert clean.delete("/v1/subscriptions/5?integer=true").is_success
    assert "5" in served.matcher and 5 not in served.matcher


def path_of(name: str) -> bytes:
    from urllib.parse import quote

    return f"/v1/subscriptions/{quote(name, safe='')}".encode()


def test_problems_have_the_words_of_the_library(clean: httpx.Client) -> None:
    text = "price <= AND color ="
    found = put(clean, "bad", text)
    problems = dibs.validate(text)
    assert found.status_code == 422
    assert found.json()["detail"] == "\n".join(map(str, problems))
    assert [p["message"] for p in found.json()["problems"]] == [p.message for p in problems]
    asked = clean.post("/v1/validate", json={"expression": text}).json()
    assert not asked["valid"]
    assert [(p["start"], p["end"], p["advice"]) for p in asked["problems"]] == [
        (p.start, p.end, p.advice) for p in problems
    ]
    fine = clean.post("/v1/validate", json={"expression": "  price<=5 and `a b` = 'x'"}).json()
    assert fine == {
        "valid": True,
        "warnings": [],
        "problems": [],
        "canonical": dibs.to_sql(dibs.parse("price<=5 and `a b`='x'")),
        "attributes": ["a b", "price"],
    }
    bad = clean.post("/v1/match", content=b'{"a": ', headers={"Content-Type": "application/json"})
    assert bad.status_code == 422
    with pytest.raises(dibs.EventError) as error:
        dibs.Matcher().match(b'{"a": ')
    assert bad.json()["detail"] == str(error.value)


def test_conditions_and_versions(clean: httpx.Client) -> None:
    first = put(clean, "a", "x = 1").headers["etag"]
    assert (
        clean.put("/v1/subscriptions/a", json={"expression": "x = 2"}, headers={"If-None-Match": "*"}).status_code
        == 412
    )
    second = clean.put("/v1/subscriptions/a", json={"expression": "x = 2"}, headers={"If-Match": first})
    assert second.status_code == 200
    late = clean.put("/v1/subscriptions/a", json={"expression": "x = 3"}, headers={"If-Match": first})
    assert (late.status_code, late.json()["version"]) == (412, second.json()["version"])
    assert clean.delete("/v1/subscriptions/a", headers={"If-Match": first}).status_code == 412
    assert clean.put("/v1/subscriptions/b", json={"expression": "x = 3"}, headers={"If-Match": "*"}).status_code == 412
    assert clean.get("/v1/subscriptions/a").json()["expression"] == "x = 2"
    assert clean.delete("/v1/subscriptions/a", headers={"If-Match": second.headers["etag"]}).status_code == 200


def test_a_key_is_good_for_one_change(clean: httpx.Client) -> None:
    key = {"Idempotency-Key": "first"}
    made = clean.put("/v1/subscriptions/a", json={"expression": "x = 1"}, headers=key)
    assert clean.delete("/v1/subscriptions/a").is_success
    again = clean.put("/v1/subscriptions/a", json={"expression": "x = 1"}, headers=key)
    assert (again.status_code, again.content, again.headers["etag"]) == (201, made.content, made.headers["etag"])
    assert again.headers["idempotent-replay"] == "true"
    assert clean.get("/v1/subscriptions/a").status_code == 404  # nothing was done again
    other = clean.put("/v1/subscriptions/a", json={"expression": "x = 2"}, headers=key)
    assert (other.status_code, other.json()["type"]) == (409, "/problems/idempotency")
    key = {"Idempotency-Key": "event"}
    before = clean.get("/v1/events").json()["kept"]
    events = [clean.post("/v1/publish", json={"x": 1}, headers=key).json() for _ in range(2)]
    assert events[0] == events[1]
    assert clean.get("/v1/events").json()["kept"] == before + 1


def test_many_at_once(clean: httpx.Client, served: Running) -> None:
    put(clean, "old", "a = 0")
    put(clean, "owned", "a = 0", owner="x")
    rows: list[Any] = [{"id": "old", "expression": "a = 1"}, {"id": 7, "expression": "a = 1", "weight": 3}]
    body = lines(
        *rows, {"id": "owned", "remove": True}, *({"id": f"n{i}", "expression": f"a = {i}"} for i in range(100))
    )
    found = clean.post("/v1/subscriptions", content=body, headers=JSON_LINES)
    assert found.status_code == 200, found.text
    assert found.json() == {"put": 102, "removed": 1, "rejected": [], "version": served.matcher.version}
    assert served.matcher.match({"a": 1}) == [7, "n1", "old"]
    bad = lines(
        {"id": "z", "expression": "a = 1"},
        {"id": "y", "expression": "a ="},
        {"id": "gone", "remove": True},
        {"id": "x"},
    )
    refused = clean.post("/v1/subscriptions", content=bad, headers=JSON_LINES)
    assert refused.status_code == 422
    assert [r["position"] for r in refused.json()["rejected"]] == [1, 2, 3]
    assert "z" not in served.matcher
    skipped = clean.post("/v1/subscriptions?on_error=skip", content=bad, headers=JSON_LINES).json()
    assert (skipped["put"], skipped["removed"], len(skipped["rejected"])) == (1, 0, 3)
    assert served.matcher.match({"a": 1}) == [7, "n1", "old", "z"]
    taken = clean.post(
        "/v1/subscriptions?mode=add", content=lines({"id": "z", "expression": "a = 2"}), headers=JSON_LINES
    )
    assert taken.status_code == 422 and "taken already" in taken.json()["detail"]
    mixed = lines({"id": "p", "expression": "a = 5", "owner": "o"}, {"id": "q", "expression": "a <"})
    assert clean.post("/v1/subscriptions", content=mixed, headers=JSON_LINES).status_code == 422
    assert clean.get("/v1/subscriptions?owner=o").json()["subscriptions"] == []


def test_what_is_rejected_is_told_by_its_line(clean: httpx.Client) -> None:
    """Whatever was wrong with it, in a body of many slices too. Before, lines after a bad one were told by the place
    that they would have had without it."""
    good = [json.dumps({"id": n, "expression": f"a = {n}", "owner": "x" * 100}) for n in range(2_000)]
    bad = ["no JSON", '{"id": "b", "expression": "a <"}', '{"id": "c"}', '{"id": "none", "remove": true}']
    for at, text in zip((0, 700, 701, 2_003), bad):
        good.insert(at, text)
    found = clean.post("/v1/subscriptions?on_error=skip", content="\n".join(good).encode(), headers=JSON_LINES).json()
    assert [each["position"] for each in found["rejected"]] == [0, 700, 701, 2_003] and found["put"] == 2_000


def test_pages_of_long_subscriptions_are_short(clean: httpx.Client) -> None:
    """Before, a page had as many as were asked for: of 100,000 characters each, 100 MB."""
    text = "a IN (" + ", ".join(str(n) for n in range(15_000)) + ")"
    for n in range(30):
        clean.put(f"/v1/subscriptions/long-{n:02}", json={"expression": text}).raise_for_status()
    for asked in ("", "&silent=true", "&like=long"):
        found: list[str] = []
        after, most = "", 0
        while after is not None:
            answer = clean.get(f"/v1/subscriptions?limit=1000{asked}{f'&after={after}' if after else ''}")
            page = answer.json()
            found += [each["id"] for each in page["subscriptions"]]
            after, most = page["next"], max(most, len(answer.content))
        assert found == [f"long-{n:02}" for n in range(30)] and most < 1_300_000


def test_lists_are_paged_and_filtered(clean: httpx.Client) -> None:
    rows = [{"id": i, "expression": f"price < {i}"} for i in range(30)]
    rows += [{"id": f"s{i:02}", "expression": f"color = 'red' AND n = {i}", "owner": f"o{i % 3}"} for i in range(30)]
    assert clean.post("/v1/subscriptions", content=lines(*rows), headers=JSON_LINES).is_success
    for name in ("s05", "s11"):
        assert clean.post(f"/v1/subscriptions/{name}/pause").is_success
    everything = [row["id"] for row in rows]

    def listed(query: str = "") -> list[Any]:
        found: list[Any] = []
        after = ""
        for _ in range(100):
            page = clean.get(f"/v1/subscriptions?limit=7{query}{after}").json()
            assert len(page["subscriptions"]) <= 7 and page["total"] == 60
            found += [each["id"] for each in page["subscriptions"]]
            if page["next"] is None:
                return found
            after = f"&after={page['next']}"
        raise AssertionError("no end")

    assert listed() == everything
    assert listed("&owner=o2") == [f"s{i:02}" for i in range(2, 30, 3)]
    assert listed("&attribute=price") == list(range(30))
    assert listed("&attribute=n&owner=o1") == [f"s{i:02}" for i in range(1, 30, 3)]
    assert listed("&like=S2") == [f"s{i}" for i in range(20, 30)]
    assert listed("&paused=true") == ["s05", "s11"]
    assert listed("&paused=false") == [id for id in everything if id not in ("s05", "s11")]
    assert clean.get("/v1/subscriptions?after=nonsense").status_code == 400


def test_paused_ones_match_nothing(clean: httpx.Client, served: Running) -> None:
    put(clean, "a", "x = 1", weight=4, owner="me")
    paused = clean.post("/v1/subscriptions/a/pause").json()
    assert paused["paused"] and paused["expression"] == "x = 1" and paused["weight"] == 4
    assert clean.post("/v1/match", json={"x": 1}).json() == {"subscriptions": []}
    assert clean.get("/v1/subscriptions/a").json() == paused
    assert clean.post("/v1/explain", json={"id": "a", "event": {"x": 1}}).json()["matched"]
    resumed = clean.post("/v1/subscriptions/a/resume").json()
    assert (resumed["paused"], resumed["owner"], resumed["weight"]) == (False, "me", 4)
    assert clean.post("/v1/match", json={"x": 1}).json() == {"subscriptions": ["a"]}
    assert put(clean, "b", "x = 1", paused=True).json()["paused"]
    assert put(clean, "c", "x =", paused=True).status_code == 422
    assert clean.delete("/v1/subscriptions/b").json()["removed"]["paused"]
    assert served.matcher.match({"x": 1}) == ["a"]


def test_match_with_all_that_can_be_asked(clean: httpx.Client, served: Running) -> None:
    for name, weight in (("a", 1), ("b", 3), ("c", 2)):
        put(clean, name, "x > 0", weight=weight)
    found = clean.post("/v1/match?top=2&weights=true&versions=true&explain=true", json={"x": 1}).json()
    assert (found["subscriptions"], found["weights"]) == (["b", "c"], [3.0, 2.0])
    assert found["versions"] == [served.matcher.get(id).version for id in ("b", "c")]
    assert found["explanations"][0] == served.matcher.explain("b", {"x": 1}).to_dict()
    body = lines({"x": 1}, {"x": 0}, {"x": 5})
    answer = clean.post("/v1/match", content=body, headers=JSON_LINES)
    assert answer.headers["content-type"] == "application/jsonl"
    assert [json.loads(line)["subscriptions"] for line in answer.text.splitlines()] == [
        ["a", "b", "c"],
        [],
        ["a", "b", "c"],
    ]
    bad = lines({"x": 1}) + b'{"x": \n' + lines({"x": 2})
    assert clean.post("/v1/match", content=bad, headers=JSON_LINES).status_code == 422
    rows = [
        json.loads(line)
        for line in clean.post("/v1/match?on_error=skip", content=bad, headers=JSON_LINES).text.splitlines()
    ]
    assert [len(row["subscriptions"]) for row in rows] == [3, 0, 3] and rows[1]["problems"]


def test_misses_fail_on_one_attribute_alone(clean: httpx.Client) -> None:
    put(clean, "near", "price < 100 AND color = 'red'")
    put(clean, "far", "price < 100 AND color = 'blue'")
    put(clean, "text", "price > 100 AND color = 'green'")
    put(clean, "missing", "price > 100 AND size = 4")
    put(clean, "hit", "price > 100")
    found = clean.post("/v1/misses", json={"event": {"price": 200, "color": "red"}}).json()
    assert found["matched"] == 1
    assert {each["attribute"]: each["subscriptions"] for each in found["misses"]} == {
        "price": ["near"],
        "color": ["text"],
        "size": ["missing"],
    }


def test_misses_come_by_how_near_they_are(clean: httpx.Client) -> None:
    event = {"price": 590, "brand": "Acme", "at": "2024-01-02"}
    rows = {"a-far": "price < 5", "b-near": "price <= 580", "c-just": "price < 590", "d-in": "price IN (1, 600)"}
    rows |= {"e-word": "brand = 'Acne'", "f-word": "brand = 'Zebra'", "g-kind": "brand = 5", "h-none": "size = 4"}
    rows |= {"i-both": "price BETWEEN 595 AND 700 AND brand = 'Acme'"}
    for id, expression in rows.items():
        put(clean, id, expression)
    found = clean.post("/v1/misses", json={"event": event}).json()["misses"]
    assert [(miss["attribute"], miss["subscriptions"]) for miss in found] == [
        ("price", ["c-just", "i-both", "d-in", "b-near", "a-far"]),
        ("brand", ["e-word", "f-word", "g-kind"]),
        ("size", ["h-none"]),
    ]
    for miss in found:
        assert miss["distances"] == sorted(miss["distances"]) and all(0 < far <= 1 for far in miss["distances"])


def test_the_preview_says_why_nothing_matches(clean: httpx.Client) -> None:
    lines = "\n".join(json.dumps({"why_price": n, "why_brand": "Acme"}) for n in range(300))
    clean.post("/v1/publish", content=lines, headers=JSON_LINES).raise_for_status()
    expression = "why_prise < 500 AND why_brand = 'Acme' AND why_price = 'x'"
    found = clean.post("/v1/backtest", json={"expression": expression}).json()
    events, why = found["events"], found["why"]
    assert found["count"] == 0 and why["events"] == events >= 300
    assert [(u["attribute"], u["suggestion"]) for u in why["unseen"]] == [("why_prise", "why_price")]
    assert [(a["asked"], a["found"]) for a in why["across"]] == [("a string", "a number")]
    assert [(s["alone"], s["left"]) for s in why["steps"]] == [(0, 0), (300, 0), (0, 0)]
    assert any(line.startswith(f"{events:,} → 0 → 0 → 0 events") for line in why["lines"])
    assert clean.post("/v1/backtest", json={"expression": "why_price >= 0"}).json()["why"] is None


def test_what_is_published_is_seen(clean: httpx.Client, served: Running) -> None:
    put(clean, "cheap", "price < 10")
    kept = clean.get("/v1/events").json()["kept"]
    for price in (5, 50, 7):
        answer = clean.post("/v1/publish", json={"price": price, "item": {"color": "red"}})
        assert answer.status_code == 202
        assert answer.json()["subscriptions"] == (["cheap"] if price < 10 else [])
    many = clean.post("/v1/publish", content=lines({"price": 1}, {"price": 99}), headers=JSON_LINES)
    assert [json.loads(line)["count"] for line in many.text.splitlines()] == [1, 0]
    events = clean.get("/v1/events?limit=3").json()
    assert [each["event"]["price"] for each in events["events"]] == [99, 1, 7] and events["kept"] == kept + 5
    older = clean.get(f"/v1/events?limit=1&before={events['events'][-1]['seq']}").json()["events"]
    assert older[0]["event"]["price"] == 50
    past = clean.post("/v1/backtest", json={"expression": "price < 10", "examples": 2}).json()
    assert past["count"] == sum(bar["count"] for bar in past["histogram"]) >= 3
    assert past["events"] == kept + 5 and past["examples"][0]["event"] == {"price": 1}
    named = {each["name"]: each for each in clean.get("/v1/attributes").json()["attributes"]}
    assert named["item.color"]["values"] == [{"value": "red", "count": 3}]
    counted = clean.get("/v1/counts?id=cheap&by=minute&last=60").json()
    assert counted["counts"][0]["total"] == 3 == sum(counted["counts"][0]["series"])
    assert clean.get("/v1/subscriptions/cheap?counts=true").json()["matches"]["total"] == 3
    put(clean, "never", "price < 0")
    silent = clean.get("/v1/subscriptions?silent=true").json()["subscriptions"]
    assert [each["id"] for each in silent] == ["never"]
    page = clean.get("/v1/subscriptions?silent=true&limit=1").json()  # though the first in order has matched
    assert [each["id"] for each in page["subscriptions"]] == ["never"] and page["next"] is None
    clean.delete("/v1/subscriptions/cheap")
    put(clean, "cheap", "price < 10")
    assert clean.get("/v1/counts?id=cheap").json()["counts"][0]["total"] == 0  # another one of the same name


def test_the_live_stream(clean: httpx.Client) -> None:
    put(clean, "one", "x = 1")
    with clean.stream("GET", "/v1/stream?subscription=one") as stream:
        rows = stream.iter_lines()
        assert next(rows) == ": here"
        for x in (0, 1, 2):
            clean.post("/v1/publish", json={"x": x})
        found = [next(rows) for _ in range(4)]
    assert found[1] == "event: published"
    data = json.loads(found[3].removeprefix("data: "))
    assert data["event"] == {"x": 1} and data["subscriptions"] == ["one"]


def test_destinations_and_what_is_delivered_to_them(clean: httpx.Client) -> None:
    made = clean.put("/v1/destinations/mine", json={"kind": "stream"})
    assert made.status_code == 201 and made.json()["secret"]
    assert "secret" not in clean.get("/v1/destinations/mine").json()
    assert put(clean, "a", "x = 1", destination="nowhere").status_code == 422
    assert put(clean, "a", "x = 1", destination="mine", mode={"kind": "period"}).status_code == 400
    assert put(clean, "a", "x = 1", destination="mine").is_success
    assert clean.post("/v1/publish", json={"x": 1}).json()["deliveries"] == 1
    assert clean.post("/v1/publish", json={"x": 2}).json()["deliveries"] == 0
    with clean.stream("GET", "/v1/destinations/mine/stream?after=0") as stream:
        rows = stream.iter_lines()
        data = next(row for row in rows if row.startswith("data: "))
    assert json.loads(data.removeprefix("data: "))["event"] == {"x": 1}
    assert clean.get("/v1/destinations").json()["destinations"][0]["kept"] == 1
    assert clean.get("/v1/deliveries/dead").json() == {"dead": [], "next": None}
    assert clean.post("/v1/deliveries/dead/none/resend").status_code == 404
    clean.post("/v1/subscriptions/a/pause")
    assert clean.post("/v1/publish", json={"x": 1}).json()["deliveries"] == 0
    assert clean.delete("/v1/destinations/mine").json()["subscriptions"] == ["a"]
    assert clean.delete("/v1/destinations/mine?force=true").is_success


def test_documents_numbers_and_the_audit_log(clean: httpx.Client, served: Running) -> None:
    put(clean, "a", "x = 1")
    entry = clean.get("/v1/audit?limit=1").json()["entries"][0]
    assert entry["action"] == "PUT /v1/subscriptions/{id}" and entry["about"]["id"] == "a" and entry["status"] == 201
    stats = clean.get("/v1/stats").json()
    assert stats["subscriptions"] == 1 and stats["plan"]
    assert str(served.settings.folder) not in json.dumps(stats)
    assert 'dibs_subscriptions{tenant="main"} 1' in clean.get("/metrics").text
    document = httpx.get(f"{served.url}/openapi.json").json()
    assert "/v1/match" in document["paths"] and "/internal/metrics" not in document["paths"]
    page = httpx.get(f"{served.url}/docs")
    assert "/v1/subscriptions/{id}" in page.text and "http://" not in page.text.replace("http://...", "")
    assert httpx.get(f"{served.url}/health").json() == {"status": "ok"}
    assert httpx.get(f"{served.url}/ready").status_code == 200


def test_what_was_acknowledged_is_there_after_a_restart(tmp_path: Path) -> None:
    folder = tmp_path / "searches"
    with running(folder, open=True) as first:
        client = httpx.Client(base_url=first.url)
        client.put("/v1/destinations/d", json={"kind": "stream"})
        put(client, "a", "x = 1", owner="me", destination="d", mode="transition")
        put(client, "b", "x = 1")
        put(client, "p", "x = 1", paused=True)
        client.post("/v1/publish", json={"x": 1})
        client.close()
    with dibs.Matcher.open(folder) as matcher:  # the folder is an ordinary one
        assert matcher.match({"x": 1}) == ["a", "b"]
        matcher.remove("a")  # by another program
    with running(folder, open=True) as second:
        client = httpx.Client(base_url=second.url)
        assert [each["id"] for each in client.get("/v1/subscriptions").json()["subscriptions"]] == ["b", "p"]
        assert client.get("/v1/counts?id=b").json()["counts"][0]["total"] == 1
        put(client, "a", "x = 1")
        assert client.get("/v1/subscriptions/a").json()["destination"] is None
        client.close()


def test_a_change_that_was_begun_is_finished_on_opening(tmp_path: Path) -> None:
    """As if the process had been killed between details and matcher."""
    from dibs.service.database import Database
    from dibs.service.details import Detail, Details

    folder = tmp_path / "searches"
    with dibs.Matcher.open(folder) as matcher:
        matcher.add("replaced", "x = 1")
        matcher.add("paused", "x = 1")
    database = Database(folder / "service.sqlite")
    begun = [Detail("new", owner="o", expression="x = 1"), Detail("replaced", owner="o", expression="x = 2")]
    begun += [Detail("paused", paused=True, expression="x = 1"), Detail("bad", owner="o", expression="x =")]
    Details(database, "main").begin(begun)
    database.close()
    with running(folder, open=True) as found:
        assert found.matcher.match({"x": 1}) == ["new"] and found.matcher.match({"x": 2}) == ["replaced"]
        listed = httpx.get(f"{found.url}/v1/subscriptions").json()["subscriptions"]
    assert [(each["id"], each["owner"], each["paused"]) for each in listed] == [
        ("new", "o", False), ("paused", None, True), ("replaced", "o", False)]  # fmt: skip
