"""A real broker: what is published goes to a topic, one record per delivery, in order; and is read back."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from receivers import wait_until
from serving import Processes, running

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


def read_topic(servers: str, topic: str) -> list[Any]:
    """All records of a topic of one partition."""
    import aiokafka

    async def read() -> list[Any]:
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=servers)
        await consumer.start()
        try:
            whole = aiokafka.TopicPartition(topic, 0)
            consumer.assign([whole])
            await consumer.seek_to_beginning(whole)
            count = (await consumer.end_offsets([whole]))[whole]
            return [await asyncio.wait_for(consumer.getone(), 30) for _ in range(count)]
        finally:
            await consumer.stop()

    return asyncio.run(read())


def header(record: Any, name: str) -> str:
    return dict(record.headers)[name].decode()


def test_deliveries_are_records_of_the_topic_in_order(broker: Any, tmp_path: Path) -> None:
    broker.create("deliveries", partitions=1)
    with running(tmp_path / "searches", deliver=True, brokers=(broker.servers,)) as served:
        client = served.client()
        about = {"kind": "kafka", "target": f"kafka://{broker.servers}/deliveries"}
        assert client.put("/v1/destinations/topic", json=about).status_code == 201
        refused = client.put("/v1/destinations/other", json=about | {"target": "kafka://elsewhere:9092/deliveries"})
        assert refused.status_code == 422 and "is no broker" in refused.json()["detail"]
        told = {"expression": "price < 50", "destination": "topic"}
        assert client.put("/v1/subscriptions/cheap", json=told).status_code == 201
        told["mode"] = {"kind": "transition", "key": "sku"}
        assert client.put("/v1/subscriptions/falls", json=told).status_code == 201
        events = [{"sku": f"A-{n % 3}", "price": n * 7 % 100} for n in range(40)]
        body = b"\n".join(json.dumps(event).encode() for event in events)
        published = client.post("/v1/publish", content=body, headers={"Content-Type": "application/jsonl"})
        ids = [json.loads(line)["event"] for line in published.text.splitlines()]
        cheap = [place for place, event in enumerate(events) if event["price"] < 50]
        wait_until(lambda: client.get("/v1/destinations/topic").json()["waiting"] == 0, 60)
        records = read_topic(broker.servers, "deliveries")
        assert client.get("/v1/destinations/topic").json()["delivered"] == len(cheap)
    bodies = [json.loads(record.value) for record in records]
    assert [body["event"] for body in bodies] == [events[place] for place in cheap]
    assert [record.key.decode() for record in records] == [ids[place] for place in cheap]
    assert [body["place"] for body in bodies] == list(range(1, len(cheap) + 1))
    assert [header(record, "dibs-delivery") for record in records] == [body["delivery"] for body in bodies]
    assert {header(record, "dibs-attempt") for record in records} == {"1"}
    below: dict[str, bool] = {}
    for place, event in enumerate(events):
        if place in cheap:
            matched = {match["subscription"] for match in bodies[cheap.index(place)]["matches"]}
            assert matched == ({"cheap"} if below.get(event["sku"]) else {"cheap", "falls"})
        below[event["sku"]] = event["price"] < 50


def test_a_kill_repeats_records_with_their_ids_and_loses_none(broker: Any, tmp_path: Path) -> None:
    broker.create("kills", partitions=1)
    for turn in range(3):
        with Processes(tmp_path / "searches", "--open", "--broker", broker.servers) as served:
            with httpx.Client(base_url=served.url, timeout=30) as client:
                about = {"kind": "kafka", "target": f"kafka://{broker.servers}/kills"}
                assert client.put("/v1/destinations/topic", json=about).is_success
                told = {"expression": "n >= 0", "destination": "topic"}
                assert client.put("/v1/subscriptions/all", json=told).is_success
                for n in range(turn * 30, turn * 30 + 30):
                    assert client.post("/v1/publish", json={"n": n}).status_code == 202
                if turn == 2:
                    wait_until(lambda: client.get("/v1/destinations/topic").json()["waiting"] == 0, 60)
            served.process.kill()
    first: dict[str, int] = {}
    for record in read_topic(broker.servers, "kills"):
        first.setdefault(header(record, "dibs-delivery"), json.loads(record.value)["event"]["n"])
    assert list(first.values()) == list(range(90))
