"""The outbox without a deliverer: what is enqueued, by which mode, and at which bound."""

from __future__ import annotations

import json
import random
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest

from dibs.errors import ArgumentError, DamagedError, StorageError
from dibs.service.delivery import (
    Destination,
    MatchedDestination,
    Mode,
    Outbox,
    OutboxFull,
    Publication,
    UnknownDelivery,
    UnknownDestination,
)
from dibs.service.delivery.sending import Outcome, Sending
from dibs.service.delivery.streams import read_stream


class Clock:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def outbox(tmp_path: Path, clock: Clock) -> Any:
    with Outbox.open(tmp_path, clock=clock) as outbox:
        outbox.put_destination(Destination("ops", "webhook", "https://example.org/hook"))
        yield outbox


def waiting(outbox: Outbox, name: str = "ops", tenant: str = "") -> list[dict[str, Any]]:
    """The bodies that wait for a destination."""
    [[number]] = outbox.session.read(
        lambda c: c.execute("SELECT number FROM destinations WHERE name = ? AND tenant = ?", (name, tenant)).fetchall()
    )
    return [json.loads(delivery.body) for delivery in Sending(outbox).head(number, 1_000_000)]


def one(subscription: str | int = "alice", mode: Mode | None = None, to: str = "ops", version: int = 1) -> Any:
    return MatchedDestination(subscription, to, mode or Mode(), version)


def test_all_matches_of_an_event_that_go_to_one_destination_are_one_delivery(outbox: Outbox) -> None:
    told = outbox.enqueue(b'{"price": 5}', [one("alice"), one(7)])
    assert told.deliveries == 1
    [body] = waiting(outbox)
    assert body["event"] == {"price": 5} and body["event_id"] == told.event and body["place"] == 1
    assert [m["subscription"] for m in body["matches"]] == ["alice", 7]
    assert body["delivery"] == f"{outbox.identity}-2"  # the destination has the number 1


def test_a_key_of_the_publisher_is_enqueued_once(outbox: Outbox, clock: Clock) -> None:
    first = outbox.enqueue(b"{}", [one()], "k")
    again = outbox.enqueue(b"{}", [one()], "k")
    assert again.repeated and again.event == first.event
    assert not outbox.enqueue(b"{}", [one()], "k", tenant="other").repeated
    clock.now += 86_401
    assert not outbox.enqueue(b"{}", [one()], "k").repeated
    assert len(waiting(outbox)) == 2


def test_a_transition_is_told_once_until_an_event_of_its_key_does_not_match(outbox: Outbox) -> None:
    mode = Mode("transition", "item.sku")
    low, high, other = b'{"item": {"sku": 1}, "p": 1}', b'{"item": {"sku": 1.0}, "p": 9}', b'{"item": {"sku": 2}}'
    assert outbox.enqueue(low, [one(mode=mode)]).deliveries == 1
    assert outbox.enqueue(low, [one(mode=mode)]).suppressed == 1
    outbox.enqueue(other, [])  # of another key
    outbox.enqueue(b"{}", [])  # of the key null
    assert outbox.enqueue(low, [one(mode=mode)]).suppressed == 1
    outbox.enqueue(high, [], tenant="other")  # of another tenant
    assert outbox.enqueue(low, [one(mode=mode)]).suppressed == 1
    outbox.enqueue(high, [])
    assert outbox.enqueue(low, [one(mode=mode)]).deliveries == 1
    assert outbox.enqueue(other, [one(mode=mode)]).deliveries == 1
    assert outbox.enqueue(low, [one(mode=mode, version=2)]).deliveries == 1  # it was replaced
    assert outbox.stats()[0].suppressed == 3


def test_without_a_key_every_event_that_does_not_match_ends_a_transition(outbox: Outbox) -> None:
    mode = Mode("transition")
    assert [
        outbox.enqueue(b"{}", m).deliveries for m in ([one(mode=mode)], [one(mode=mode)], [], [one(mode=mode)])
    ] == [
        1,
        0,
        0,
        1,
    ]


@pytest.mark.parametrize("seed", range(2))
def test_modes_are_what_a_plain_model_says(outbox: Outbox, clock: Clock, seed: int) -> None:
    draw = random.Random(seed)
    modes = {"t": Mode("transition"), "tk": Mode("transition", "k"), "p": Mode("period", seconds=5), "e": Mode()}
    modes["pk"] = Mode("period", "k", 7)
    on: dict[Any, bool] = {}
    until: dict[Any, float] = {}
    for _ in range(100):
        clock.now += draw.choice([0, 1, 3])
        event = {"k": draw.choice([1, 2, "1", None])}
        matched = [name for name in modes if draw.random() < 0.6]
        expected = []
        for name, mode in modes.items():
            place = (name, json.dumps(event["k"]) if mode.key else "")
            if mode.kind == "transition":
                if name in matched and not on.get(place):
                    expected.append(name)
                on[place] = name in matched
            elif name in matched and mode.kind == "period":
                if clock.now >= until.get(place, 0):
                    expected.append(name)
                    until[place] = clock.now + (mode.seconds or 0)
            elif name in matched:
                expected.append(name)
        before = len(waiting(outbox))
        outbox.enqueue(json.dumps(event).encode(), [one(name, modes[name]) for name in matched])
        bodies = waiting(outbox)[before:]
        told = {m["subscription"] for body in bodies for m in body["matches"]}
        assert told == set(expected) and len(bodies) == bool(expected)


def test_a_digest_is_sent_when_it_is_due(outbox: Outbox, clock: Clock) -> None:
    mode = Mode("digest", seconds=60)
    for price in (1, 2, 3):
        assert outbox.enqueue(json.dumps({"price": price}).encode(), [one(mode=mode)]).collected == 1
        clock.now += 10
    assert Sending(outbox).send_digests() == 0 and not waiting(outbox)
    clock.now += 30
    assert Sending(outbox).send_digests() == 1
    [body] = waiting(outbox)
    assert body["digest"]["matches"] == 3 and body["digest"]["left_out"] == 0
    assert [item["event"]["price"] for item in body["events"]] == [1, 2, 3]
    outbox.enqueue(b"{}", [one(mode=mode)])
    assert len(waiting(outbox)) == 1  # the next one collects


def test_a_full_destination_refuses_for_itself_alone(outbox: Outbox) -> None:
    outbox.put_destination(Destination("small", "webhook", "https://example.org/", limit=2))
    outbox.put_destination(Destination("lossy", "webhook", "https://example.org/", limit=1, when_full="drop"))
    mode = Mode("transition")
    for _ in range(2):
        assert not outbox.enqueue(b"{}", [one(to="small"), one(to="lossy")]).refused
    told = outbox.enqueue(b"{}", [one("new", mode, to="small"), one(to="ops"), one(to="lossy"), one(to="nobody")])
    assert set(told.refused) == {"small", "nobody"} and "its limit" in told.refused["small"]
    assert told.deliveries == 1 and told.dropped == 1
    before = len(waiting(outbox))
    with pytest.raises(OutboxFull) as full:
        outbox.enqueue(b"{}", [one(to="small"), one(to="ops")], whole=True)
    assert full.value.destinations == ["small"] and len(waiting(outbox)) == before
    # What was refused has not been told: the transition is still to come.
    sending = Sending(outbox)
    small = next(lane for lane in sending.lanes()[0] if lane.destination.name == "small")
    for delivery in sending.head(small.number, 10):
        sending.settle([Outcome(small.number, delivery.number)])
    assert outbox.enqueue(b"{}", [one("new", mode, to="small")]).deliveries == 1
    counts = {s.destination.name: (s.waiting, s.refused, s.dropped) for s in outbox.stats()}
    assert counts["small"] == (1, 1, 0) and counts["lossy"] == (1, 0, 2)


def test_the_outbox_as_a_whole_is_bounded(tmp_path: Path) -> None:
    with Outbox.open(tmp_path, most_bytes=10_000) as outbox:
        outbox.put_destination(Destination("ops", "webhook", "https://example.org/"))
        event = b'{"a": "%s"}' % (b"x" * 1000)
        for _ in range(8):
            outbox.enqueue(event, [one()])
        with pytest.raises(OutboxFull, match="10,000 bytes"):
            outbox.enqueue_many([Publication(event, (one(),))] * 2)
        count = len(waiting(outbox))
        assert count == 8
        lane = Sending(outbox).lanes()[0][0].number
        Sending(outbox).settle([Outcome(lane, d.number) for d in Sending(outbox).head(lane, 100)])
        [[size]] = outbox.session.read(lambda c: c.execute("SELECT bytes FROM state").fetchall())
        assert size == 0
        outbox.enqueue(b"{}", [one()])


def test_a_stream_keeps_its_latest(outbox: Outbox) -> None:
    outbox.put_destination(Destination("live", "stream", limit=3))
    outbox.enqueue_many([Publication(b"%d" % n, (one(to="live"),)) for n in range(10)])
    items = read_stream(outbox, "live", "", 0)
    assert [item.place for item in items] == [8, 9, 10]
    assert [json.loads(item.body)["event"] for item in items] == [7, 8, 9]
    assert [item.place for item in read_stream(outbox, "live", "", 9)] == [10]
    with pytest.raises(UnknownDestination):
        read_stream(outbox, "live", "other", 0)
    with pytest.raises(UnknownDestination):
        read_stream(outbox, "ops", "", 0)


def test_dead_letters_are_listed_by_tenant_and_sent_again_under_their_ids(outbox: Outbox) -> None:
    outbox.put_destination(Destination("ops", "webhook", "https://example.org/", tenant="other"))
    for n in range(3):
        outbox.enqueue(b"%d" % n, [one()])
    sending = Sending(outbox)
    lane = sending.lanes()[0][0].number
    first = sending.head(lane, 2)
    sending.settle([Outcome(lane, d.number, "answered 500", 0.0, given_up=True) for d in first])
    letters = outbox.dead_letters()
    assert [letter.delivery.id for letter in letters] == [d.id for d in first]
    assert letters[0].reason == "answered 500" and letters[0].delivery.attempts == 1
    assert outbox.dead_letters(after=first[0].id)[0].delivery.id == first[1].id
    assert outbox.dead_letters("other") == [] and outbox.stats()[0].dead == 2
    for wrong in (first[0].id + "0", "x", "", "-1"):
        with pytest.raises(UnknownDelivery):
            outbox.resend(wrong)
    with pytest.raises(UnknownDelivery):
        outbox.resend(first[0].id, "other")
    outbox.resend(first[1].id)
    assert [d.id for d in sending.head(lane, 5)][0] == first[1].id
    stats = outbox.stats("")[0]
    assert (stats.dead, stats.waiting) == (1, 2)
    assert outbox.remove_destination("ops") == 3
    with pytest.raises(UnknownDestination):
        outbox.destination("ops")
    assert [d.tenant for d in outbox.destinations()] == ["other"]


def test_all_dead_letters_are_sent_again_in_their_order(outbox: Outbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dibs.service.delivery.outbox.RESENT_AT_ONCE", 7)
    for name, tenant in (("second", ""), ("ops", "other")):
        outbox.put_destination(Destination(name, "webhook", "https://example.org/", tenant=tenant))
    for n in range(120):
        outbox.enqueue(b"%d" % n, [one(), MatchedDestination("s", "second")])
        outbox.enqueue(b"%d" % n, [one()], tenant="other")
    sending = Sending(outbox)
    lanes = {(lane.destination.tenant, lane.destination.name): lane.number for lane in sending.lanes()[0]}
    before = {lane: [d.id for d in sending.head(lane, 200)] for lane in lanes.values()}
    for lane in lanes.values():
        sending.settle([Outcome(lane, d.number, "no", 0.0, given_up=True) for d in sending.head(lane, 200)])
    with pytest.raises(UnknownDestination):
        outbox.resend_all("", "third")
    assert outbox.resend_all("", "second") == 120
    assert [d.id for d in sending.head(lanes["", "second"], 200)] == before[lanes["", "second"]]
    assert sending.head(lanes["", "ops"], 1) == []
    assert outbox.resend_all() == 120 and outbox.resend_all() == 0
    assert [d.id for d in sending.head(lanes["", "ops"], 200)] == before[lanes["", "ops"]]
    assert [(s.destination.tenant, s.dead, s.waiting) for s in outbox.stats()] == [
        ("", 0, 120),
        ("", 0, 120),
        ("other", 120, 0),
    ]


def test_many_threads_and_connections_enqueue(outbox: Outbox) -> None:
    def publish(number: int) -> None:
        with Outbox.open(outbox.folder) as own:
            for n in range(10):
                own.enqueue(json.dumps([number, n]).encode(), [one()])

    threads = [threading.Thread(target=publish, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    bodies = waiting(outbox)
    assert [body["place"] for body in bodies] == list(range(1, 41))
    for number in range(4):
        assert [body["event"][1] for body in bodies if body["event"][0] == number] == list(range(10))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Mode("sometimes"), "one of every, transition, period, digest"),  # type: ignore[arg-type]
        (lambda: Mode("period"), "seconds of the mode period"),
        (lambda: Mode("digest", seconds=float("nan")), "seconds of the mode digest"),
        (lambda: Mode("every", seconds=5), "has no seconds"),
        (lambda: Mode("digest", "k", 5), "has no key"),
        (lambda: Mode.of({"kind": "every", "what": 1}), "kind, key and seconds"),
        (lambda: Destination("a b", "webhook"), "letters, digits"),
        (lambda: Destination("a", "mail"), "webhook, stream, kafka"),  # type: ignore[arg-type]
        (lambda: Destination("a", "stream", "x"), "no target"),
        (lambda: Destination("a", "stream", limit=0), "from 1 to"),
    ],
)
def test_bad_arguments_are_told(make: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        make()


def test_another_database_is_no_outbox(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "outbox.sqlite")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE a (b)")
    connection.commit()
    connection.close()
    with pytest.raises(DamagedError, match="no outbox"):
        Outbox.open(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError):
        Outbox.open(tmp_path / "file")
