"""What /metrics says: every digit, of every tenant and process; and that the dashboard asks for what there is."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from receivers import Receiver, wait_until
from serving import Running, running

from dibs.service.delivery import Destination, MatchedDestination
from dibs.service.metrics import HELP, Metrics
from dibs.service.process_figures import figures_of_process

SAMPLE = re.compile(r"([a-z_]+)(?:\{(.*)\})? (\S+)\Z")
LABEL = re.compile(r'([a-z]+)="((?:[^"\\]|\\.)*)"')
DASHBOARD = Path(__file__).parents[2] / "examples" / "grafana.json"
Samples = dict[str, list[tuple[dict[str, str], float]]]


def read(text: str) -> Samples:
    found: Samples = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            sample = SAMPLE.match(line)
            assert sample, line
            found.setdefault(sample[1], []).append((dict(LABEL.findall(sample[2] or "")), float(sample[3])))
    return found


def value(samples: Samples, name: str, **labels: str) -> float:
    [found] = [number for given, number in samples[name] if labels.items() <= given.items()]
    return found


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Two tenants, a webhook that fails, one that does not, a full one, a stream, and refusals."""
    with (
        Receiver(lambda *_: 500) as failing,
        Receiver() as fine,
        running(tmp_path_factory.mktemp("busy") / "s", deliver=True, private_targets=True) as served,
    ):
        acme = served.client("acme")
        outbox = served.service.outbox
        for name, kind, target, more in (
            ("fine", "webhook", fine.url, {}),
            ("failing", "webhook", failing.url, {}),
            ("full", "webhook", failing.url, {"limit": 1, "paused": True}),
            ("drops", "webhook", failing.url, {"limit": 1, "paused": True, "when_full": "drop"}),
            ("kept", "stream", "", {}),
        ):
            body = {"kind": kind, **({"target": target} if target else {}), **more}
            assert acme.put(f"/v1/destinations/{name}", json=body).is_success
            saved = {"expression": "a > 0", "destination": name}
            assert acme.put(f"/v1/subscriptions/{name}", json=saved).is_success
        assert acme.put("/v1/subscriptions/x", json={"expression": "b = 1", "paused": True}).is_success
        for n in range(3):
            assert acme.post("/v1/publish", json={"a": n + 1}).is_success
        assert acme.post("/v1/match", json=[]).status_code == 422
        assert acme.get("/v1/subscriptions/none").status_code == 404
        wait_until(lambda: outbox.stats("acme")[1].failing_since is not None and len(fine.taken) == 3)
        wait_until(lambda: value(metrics(served), "dibs_deliveries_total", destination="fine") == 3)
        yield served


def metrics(served: Running) -> Samples:
    answer = served.client("*", "admin").get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return read(answer.text)


def test_no_digit_is_lost() -> None:
    found = Metrics()
    found.count("dibs_events_total", 123_456_789, tenant="main")
    for _ in range(3):
        found.answered("GET /x", 200, 0.012345678901, "main")
    gauges = [("dibs_outbox_bytes", (), 8_589_934_593), ("process_start_time_seconds", (), 1_700_000_123.45)]
    samples = read(found.text(gauges, None))  # type: ignore[arg-type]
    assert value(samples, "dibs_events_total") == 123_456_789
    assert value(samples, "dibs_outbox_bytes") == 8_589_934_593
    assert value(samples, "process_start_time_seconds") == 1_700_000_123.45
    assert value(samples, "dibs_request_seconds_sum") == 3 * 0.012345678901
    assert "123456789\n" in found.text(gauges, None)  # type: ignore[arg-type]


def test_a_counter_never_goes_back_when_processes_come_and_go() -> None:
    writer, other = Metrics(), Metrics()
    for _ in range(5):
        other.answered("POST /v1/match", 200, 0.001, "main")
    writer.take("a", json.loads(json.dumps(other.hand_over())))
    writer.take("b", json.loads(json.dumps(Metrics().hand_over())))
    samples = read(writer.text([], None))
    assert value(samples, "dibs_requests_total", route="POST /v1/match") == 5
    assert value(samples, "dibs_tenant_requests_total", tenant="main") == 5
    named = {
        labels["process"] for labels, _ in read(writer.text(writer.processes(), None))["process_cpu_seconds_total"]
    }
    assert named == {"writer", "matching-a", "matching-b"}
    writer._heard["a"] -= 60
    named = {
        labels["process"] for labels, _ in read(writer.text(writer.processes(), None))["process_cpu_seconds_total"]
    }
    assert named == {"writer", "matching-b"}
    assert value(read(writer.text([], None)), "dibs_requests_total", route="POST /v1/match") == 5


def test_the_process_is_told_as_it_is(busy: Running) -> None:
    samples = metrics(busy)
    started = value(samples, "process_start_time_seconds", process="writer")
    own = Path("/proc/self").stat().st_mtime if os.path.exists("/proc/self") else time.time()
    assert abs(started - figures_of_process(os.getpid())["process_start_time_seconds"]) < 0.1
    assert started <= own + 5 and started > time.time() - 86_400
    assert value(samples, "process_start_time_seconds", process="deliverer") > started
    for name in ("process_cpu_seconds_total", "process_resident_memory_bytes", "process_open_fds", "process_max_fds"):
        assert value(samples, name, process="writer") > 0 and value(samples, name, process="deliverer") > 0, name
    assert value(samples, "process_resident_memory_bytes", process="writer") > 10e6
    assert value(samples, "dibs_build_info") == 1
    assert 0 < busy.client().get("/v1/stats").json()["uptime"] < 600


def test_what_a_stream_keeps_waits_for_nobody(busy: Running) -> None:
    samples = metrics(busy)
    assert value(samples, "dibs_deliveries_kept", destination="kept") == 3
    waiting = {labels["destination"]: number for labels, number in samples["dibs_deliveries_waiting"]}
    assert waiting == {"fine": 0, "failing": 3, "full": 1, "drops": 1}
    client = busy.client("acme")
    overview = client.get("/v1/deliveries").json()
    assert (overview["waiting"], overview["kept"]) == (5, 3)
    kept = client.get("/v1/destinations/kept").json()
    assert (kept["waiting"], kept["kept"]) == (0, 3)


def test_the_outbox(busy: Running) -> None:
    samples = metrics(busy)
    bytes_of_rows = busy.service.outbox.session.read(
        lambda c: c.execute("SELECT sum(length(body)) FROM deliveries").fetchone()[0]
    )
    assert value(samples, "dibs_outbox_bytes") == bytes_of_rows > 0
    assert value(samples, "dibs_outbox_limit_bytes") == 8 << 30
    assert value(samples, "dibs_outbox_file_bytes") >= bytes_of_rows
    age = value(samples, "dibs_outbox_oldest_seconds")
    assert 0 < age < 600
    assert value(samples, "dibs_deliveries_oldest_seconds", destination="failing") == pytest.approx(age, abs=1)
    assert value(samples, "dibs_deliveries_oldest_seconds", destination="fine") == 0
    assert value(samples, "dibs_destination_failing_seconds", destination="failing") > 0
    assert value(samples, "dibs_destination_failing_seconds", destination="fine") == 0
    assert value(samples, "dibs_deliveries_refused_total", destination="full") == 2
    assert value(samples, "dibs_deliveries_dropped_total", destination="drops") == 2


def test_destinations_of_tenants_that_nobody_asked_for_are_told(busy: Running) -> None:
    outbox = busy.service.outbox
    outbox.put_destination(Destination("ops", "webhook", "https://example.org/", "asleep", paused=True))
    outbox.enqueue(b"{}", [MatchedDestination("s", "ops")], tenant="asleep")
    assert value(metrics(busy), "dibs_deliveries_waiting", tenant="asleep") == 1
    outbox.remove_destination("ops", "asleep")


def test_each_tenant_has_figures_of_its_own(busy: Running) -> None:
    busy.client("quiet").get("/v1/whoami")
    samples = metrics(busy)
    assert value(samples, "dibs_tenant_requests_total", **{"tenant": "quiet", "class": "2xx"}) >= 1
    assert value(samples, "dibs_tenant_requests_total", **{"tenant": "acme", "class": "4xx"}) == 2
    assert value(samples, "dibs_tenant_refused_total", tenant="acme", type="unknown-id") == 1
    assert value(samples, "dibs_tenant_request_seconds_total", tenant="acme") > 0
    assert value(samples, "dibs_published_total", tenant="acme") == 3
    assert value(samples, "dibs_subscriptions", tenant="acme") == 6
    assert value(samples, "dibs_subscriptions_paused", tenant="acme") == 1
    own = read(busy.client("acme").get("/metrics").text)
    assert all(labels["tenant"] == "acme" for found in own.values() for labels, _ in found)
    assert {"dibs_tenant_requests_total", "dibs_tenant_refused_total", "dibs_deliveries_waiting"} <= own.keys()
    with busy.client("quiet").stream("GET", "/v1/stream"):
        assert value(metrics(busy), "dibs_tenant_streams", tenant="quiet") == 1


def test_nobody_is_named_before_a_token_says_who(busy: Running) -> None:
    before = metrics(busy)
    assert httpx.get(f"{busy.url}/v1/whoami", headers={"Authorization": "Bearer no"}).status_code == 401
    after = metrics(busy)
    refused = {labels["type"]: number for labels, number in after["dibs_refused_total"]}
    assert refused["unauthorized"] >= 1
    assert {labels["tenant"] for labels, _ in after["dibs_tenant_requests_total"]} == {
        labels["tenant"] for labels, _ in before["dibs_tenant_requests_total"]
    }


def test_all_that_is_told_is_described(busy: Running) -> None:
    text = busy.client("*", "admin").get("/metrics").text
    described = re.findall(r"^# TYPE (\w+) (\w+)$", text, re.M)
    assert len(described) == len(set(described))
    known = {name for name, _ in described} | {f"dibs_request_seconds_{end}" for end in ("bucket", "sum", "count")}
    assert read(text).keys() <= known
    assert {name for name, _ in described} <= HELP.keys()


# ---- the dashboard ----


def expressions(panel: dict[str, Any]) -> list[str]:
    return [target["expr"] for target in panel.get("targets", ())]


def test_the_dashboard_asks_for_what_there_is(busy: Running) -> None:
    """Every name and every label of it, of a service that has all of them."""
    with busy.client("acme").stream("GET", "/v1/stream"):
        samples = metrics(busy)
    board = json.loads(DASHBOARD.read_text())
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels) > 20
    asked = [text for panel in panels for text in expressions(panel)]
    asked += [variable["definition"] for variable in board["templating"]["list"] if variable["type"] == "query"]
    named = set()
    for text in asked:
        names = re.findall(r"\b((?:dibs|process)_\w+)(?:\{([^}]*)\})?", text)
        assert names, text
        for name, conditions in names:
            assert name in samples, text
            labels = {label for given, _ in samples[name] for label in given} | {"instance"}
            assert set(re.findall(r'(\w+)[=!]~?"', conditions)) <= labels, text
            for by in re.findall(r"by \(([^)]*)\)", text):
                assert set(by.split(", ")) <= labels | {"le"}, text
            named.add(name)
        legends = re.findall(r"route=\"([^\"]+)\"", text)
        assert all(
            route in {given["route"] for given, _ in samples["dibs_request_seconds_bucket"]} for route in legends
        )
    told = {re.sub("_(bucket|sum|count)$", "", name) for name in named}
    missing = HELP.keys() - told - {"dibs_published_total", "dibs_recent_events", "dibs_subscriptions_limit"}
    assert missing <= {"dibs_deliveries_kept", "dibs_deliveries_suppressed_total"}
