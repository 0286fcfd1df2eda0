"""The deliverer with real receivers on loopback: that fail, hang, answer slowly, redirect."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from receivers import Receiver, hangs, wait_until

from dibs.errors import ArgumentError, WriterActive
from dibs.service.delivery import (
    Deliverer,
    DeliverySettings,
    Destination,
    MatchedDestination,
    Mode,
    Outbox,
    Reach,
    check_destination,
)
from dibs.service.delivery.addresses import Unreachable, parse_target, resolve
from dibs.service.delivery.kafka import KafkaMissing, check_kafka_target
from dibs.service.delivery.signing import BadSignature, sign, verify
from dibs.service.delivery.streams import WOKEN, LiveFeed, Lost, StreamItem, _Stream, follow, sse_of_stream

FAST = DeliverySettings(Reach(loopback=True), seconds=0.5, first=0.05, longest=0.2, attempts=4)


@contextmanager
def delivering(folder: Path, settings: DeliverySettings = FAST) -> Iterator[None]:
    """A deliverer in a thread of its own, stopped at the end."""
    started: list[Any] = []
    error: list[BaseException] = []

    async def work() -> None:
        deliverer = Deliverer(folder, settings)
        started.append((deliverer, asyncio.get_running_loop()))
        await deliverer.run()

    def run() -> None:
        try:
            asyncio.run(work())
        except BaseException as e:
            error.append(e)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        wait_until(lambda: started or error)
        if not error:
            deliverer, loop = started[0]
            loop.call_soon_threadsafe(deliverer.stop)
        thread.join(10)
        assert not thread.is_alive()
    if error:
        raise error[0]


@pytest.fixture
def outbox(tmp_path: Path) -> Iterator[Outbox]:
    with Outbox.open(tmp_path) as outbox:
        yield outbox


def add(outbox: Outbox, name: str, receiver: Receiver, **more: Any) -> None:
    receiver.secret = outbox.put_destination(Destination(name, "webhook", receiver.url, **more)).secret


def publish(outbox: Outbox, count: int, *names: str) -> None:
    for n in range(count):
        outbox.enqueue(json.dumps({"n": n}).encode(), [MatchedDestination("s", name) for name in names])


def test_each_is_delivered_signed_and_in_order(outbox: Outbox) -> None:
    with Receiver() as receiver, delivering(outbox.folder):
        add(outbox, "ops", receiver)
        publish(outbox, 20, "ops")
        wait_until(lambda: len(receiver.taken) >= 20)
        wait_until(lambda: outbox.stats()[0].waiting == 0)
    assert receiver.events == [{"n": n} for n in range(20)]
    assert receiver.ids == [body["delivery"] for _, body, _ in receiver.taken]
    assert outbox.stats()[0].delivered == 20 and outbox.stats()[0].last_success is not None
    assert receiver.headers["Content-Type"] == "application/json"


def test_what_fails_is_tried_again_in_order_with_the_same_id(outbox: Outbox) -> None:
    with Receiver(lambda receiver, number: 200 if number % 3 == 0 else 503) as receiver, delivering(outbox.folder):
        add(outbox, "ops", receiver)
        publish(outbox, 5, "ops")
        wait_until(lambda: len(receiver.taken) == 5)
    assert receiver.events == [{"n": n} for n in range(5)]
    assert [attempt for _, _, attempt in receiver.taken] == [3] * 5


def test_one_that_hangs_or_is_slow_holds_up_nobody_else(outbox: Outbox) -> None:
    def slow(receiver: Receiver, number: int) -> int:
        time.sleep(0.05)
        return 200

    with Receiver() as good, Receiver(hangs) as dead, Receiver(slow) as lazy, delivering(outbox.folder):
        for name, receiver in (("good", good), ("dead", dead), ("lazy", lazy)):
            add(outbox, name, receiver)
        start = time.monotonic()
        publish(outbox, 10, "good", "dead", "lazy")
        wait_until(lambda: len(good.taken) == 10)
        took = time.monotonic() - start
        assert len(lazy.taken) < 10 and not dead.taken
        wait_until(lambda: len(lazy.taken) == 10)
        wait_until(lambda: "no answer within" in {s.destination.name: s.last_error for s in outbox.stats()}["dead"])
    assert took < 2.5 and lazy.events == good.events == [{"n": n} for n in range(10)]


def test_after_enough_attempts_it_is_a_dead_letter_that_can_be_sent_again(outbox: Outbox) -> None:
    with Receiver(lambda receiver, number: 500 if number <= 4 else 200) as receiver, delivering(outbox.folder):
        add(outbox, "ops", receiver)
        publish(outbox, 2, "ops")
        wait_until(lambda: len(receiver.taken) == 1)
        [letter] = outbox.dead_letters()
        assert letter.reason == "answered 500" and letter.delivery.attempts == 4
        outbox.resend(letter.delivery.id)
        wait_until(lambda: len(receiver.taken) == 2)
    assert receiver.ids[1] == letter.delivery.id and receiver.events == [{"n": 1}, {"n": 0}]
    assert outbox.dead_letters() == []


def test_a_redirect_is_a_failure_and_not_followed(outbox: Outbox) -> None:
    with Receiver() as inner, Receiver(lambda receiver, number: 302) as receiver, delivering(outbox.folder):
        receiver.more = {"location": inner.url}
        add(outbox, "ops", receiver)
        publish(outbox, 1, "ops")
        wait_until(lambda: outbox.stats()[0].dead == 1)
    assert inner.requests == 0 and "redirects are not followed" in outbox.dead_letters()[0].reason


def test_a_paused_destination_keeps_what_comes_and_a_new_target_gets_it(outbox: Outbox) -> None:
    with Receiver() as receiver, delivering(outbox.folder):
        outbox.put_destination(Destination("ops", "webhook", "http://127.0.0.1:1/", paused=True))
        publish(outbox, 3, "ops")
        time.sleep(0.2)
        assert outbox.stats()[0].waiting == 3 and outbox.stats()[0].last_error == ""
        add(outbox, "ops", receiver)
        wait_until(lambda: len(receiver.taken) == 3)


def test_nobody_at_the_address_is_told_and_tried_again_by_the_next_deliverer(outbox: Outbox) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    outbox.put_destination(Destination("ops", "webhook", f"http://127.0.0.1:{port}/"))
    publish(outbox, 1, "ops")
    with delivering(outbox.folder):
        wait_until(lambda: outbox.stats()[0].failing_since)
    stats = outbox.stats()[0]
    assert "Connect" in stats.last_error and stats.retry_at is not None and stats.waiting == 1
    with Receiver() as receiver, delivering(outbox.folder):
        add(outbox, "ops", receiver)
        wait_until(lambda: len(receiver.taken) == 1)
        wait_until(lambda: outbox.stats()[0].waiting == 0)
    stats = outbox.stats()[0]
    assert stats.failing_since is None and stats.last_error == ""


def test_webhooks_do_not_go_to_this_machine_unless_they_may(outbox: Outbox) -> None:
    with Receiver() as receiver, delivering(outbox.folder, DeliverySettings(seconds=1, first=0.01, attempts=2)):
        add(outbox, "ops", receiver)
        publish(outbox, 1, "ops")
        wait_until(lambda: outbox.stats()[0].dead == 1)
    assert receiver.requests == 0 and "is this machine itself" in outbox.dead_letters()[0].reason


def test_a_digest_is_delivered_without_anybody_publishing(outbox: Outbox) -> None:
    with Receiver() as receiver, delivering(outbox.folder):
        add(outbox, "ops", receiver)
        for n in range(3):
            outbox.enqueue(b"%d" % n, [MatchedDestination("s", "ops", Mode("digest", seconds=0.3))])
        wait_until(lambda: len(receiver.taken) == 1)
    assert [item["event"] for item in receiver.taken[0][1]["events"]] == [0, 1, 2]


def test_one_folder_has_one_deliverer(tmp_path: Path) -> None:
    with delivering(tmp_path):
        wait_until(lambda: (tmp_path / "deliverer.lock").exists() and (tmp_path / "outbox.sqlite").exists())
        with pytest.raises(WriterActive):
            asyncio.run(Deliverer(tmp_path, FAST).run())


# ---- addresses ----


@pytest.mark.parametrize(
    "target",
    [
        "http://127.0.0.1/",
        "http://localhost:8080/",
        "http://[::1]/",
        "http://10.1.2.3/",
        "http://192.168.0.1/",
        "http://169.254.169.254/latest/meta-data",
        "http://0.0.0.0/",
        "http://[::ffff:127.0.0.1]/",
        "http://[64:ff9b::7f00:1]/",
        "http://[2002:7f00:1::]/",
        "http://[::127.0.0.1]/",
        "http://[fe80::1]/",
        "http://[fc00::1]/",
        "http://224.0.0.1/",
        "http://100.64.0.1/",
        "ftp://example.org/",
        "http://user:secret@example.org/",
        "http://example.org/\r\nX: y",
        "http://example.org/ä",
        "http:///path",
        "http://example.org:0/",
        "http://example.org:99999/",
        "http://example.org\\@127.0.0.1/",
        "http://example.org/#part",
        "file:///etc/passwd",
        "",
    ],
)
def test_a_target_that_is_not_public_is_refused_when_it_is_named(target: str) -> None:
    with pytest.raises(ArgumentError):
        check_destination(Destination("a", "webhook", target), DeliverySettings())


def test_a_public_target_is_taken() -> None:
    check_destination(Destination("a", "webhook", "https://example.org/hook?x=1"), DeliverySettings())
    check_destination(Destination("a", "webhook", "http://10.0.0.1/"), DeliverySettings(Reach(private=True)))
    with pytest.raises(ArgumentError):  # link-local: the metadata of clouds
        check_destination(Destination("a", "webhook", "http://169.254.169.254/"), DeliverySettings(Reach(True, True)))


@pytest.mark.parametrize("host", ["2130706433", "0x7f.1", "127.1", "0177.0.0.1", "localhost"])
def test_other_ways_to_write_this_machine_end_when_they_are_resolved(host: str) -> None:
    with ThreadPoolExecutor(1) as pool, pytest.raises(Unreachable):
        asyncio.run(resolve(parse_target(f"http://{host}/"), Reach(), pool))


def test_a_name_with_one_private_address_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if others of its addresses are public: whoever answers for the name decides which one comes first."""
    answer = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (a, 80)) for a in ("93.184.216.34", "10.0.0.1")]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: answer)  # no such name can be asked for here
    with ThreadPoolExecutor(1) as pool, pytest.raises(Unreachable, match=r"10\.0\.0\.1 is in a private network"):
        asyncio.run(resolve(parse_target("http://rebind.example/"), Reach(), pool))


# ---- signatures ----


def test_signatures() -> None:
    """The example of Standard Webhooks' own libraries."""
    secret, body = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", b'{"test": 2432232314}'
    expected = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    assert sign(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body) == expected
    headers = {"webhook-id": "a", "webhook-timestamp": "1000", "webhook-signature": sign(secret, "a", 1000, body)}
    assert verify(secret, headers, body, now=1100.0) == "a"
    for change in ({"webhook-id": "b"}, {"webhook-timestamp": "1001"}, {"webhook-signature": "v1,"}):
        with pytest.raises(BadSignature):
            verify(secret, {**headers, **change}, body, now=1100.0)
    with pytest.raises(BadSignature, match="too long ago"):
        verify(secret, headers, body, now=2000.0)
    with pytest.raises(BadSignature, match="expected"):
        verify(secret, {}, body)


# ---- Kafka ----


def test_kafka_targets() -> None:
    brokers = ("kafka:9092",)
    for target in ("kafka:9092/topic", "kafka://kafka:9092/", "kafka://kafka:9092/a b"):
        with pytest.raises(ArgumentError, match="kafka://broker:port/topic"):
            check_kafka_target(target, brokers)
    with pytest.raises(ArgumentError, match="no broker that this service delivers to"):
        check_kafka_target("kafka://elsewhere:9092/topic", brokers)


def test_without_the_library_kafka_is_an_error_that_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "aiokafka", None)
    with pytest.raises(KafkaMissing, match=r"pip install dibs\[kafka\]"):
        check_kafka_target("kafka://kafka:9092/topic", ("kafka:9092",))


def test_a_broker_that_does_not_answer_is_a_failure_like_others(outbox: Outbox) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        broker = f"127.0.0.1:{probe.getsockname()[1]}"
    outbox.put_destination(Destination("topic", "kafka", f"kafka://{broker}/events"))
    publish(outbox, 1, "topic")
    settings = DeliverySettings(brokers=(broker,), seconds=2, first=0.01, attempts=2)
    with delivering(outbox.folder, settings):
        wait_until(lambda: outbox.stats()[0].dead == 1)
    assert "KafkaConnectionError" in outbox.dead_letters()[0].reason


# ---- streams ----


def test_a_stream_is_followed_from_any_place(outbox: Outbox) -> None:
    outbox.put_destination(Destination("live", "stream", limit=5))

    async def take(after: int | None, count: int, then: Callable[[], None] | None = None) -> list[Any]:
        found: list[Any] = []
        following = follow(outbox, "live", "", after)
        if then is not None:
            asyncio.get_running_loop().call_later(0.1, then)
        async for some in following:
            found += some
            if len(found) >= count:
                break
        await following.aclose()  # type: ignore[attr-defined]
        return found

    publish(outbox, 8, "live")
    items = asyncio.run(take(1, 6))
    assert items[0] == Lost(2)
    assert [item.place for item in items[1:]] == [4, 5, 6, 7, 8]
    [item] = asyncio.run(take(None, 1, lambda: publish(outbox, 1, "live")))
    assert item.place == 9

    async def shown() -> bytes:
        async def items() -> Any:
            yield [StreamItem(4, b'{"a": 1}'), Lost(7)]
            yield []

        return b"".join([text async for text in sse_of_stream(items())])

    lost = b'event: lost\ndata: {"count":7}\n\n'
    assert asyncio.run(shown()) == b'event: delivery\nid: 4\ndata: {"a": 1}\n\n' + lost + b": still here\n\n"


def test_followers_are_told_some_at_a_time() -> None:
    """Else the loop has no time for others until all of them were told."""

    async def work() -> None:
        stream = _Stream()
        waiting = [asyncio.ensure_future(stream.wait(stream.looks, 30)) for _ in range(5 * WOKEN)]
        await asyncio.sleep(0)
        assert len(stream.waiting) == 5 * WOKEN
        stream.update(1, 1, [StreamItem(1, b"{}", 1)])
        waking = asyncio.ensure_future(stream.wake())
        told = []
        while not waking.done():
            await asyncio.sleep(0)
            told.append(sum(each.done() for each in waiting))
        assert max(b - a for a, b in zip([0, *told], told)) <= WOKEN
        assert await asyncio.gather(*waiting) == [True] * 5 * WOKEN
        assert await stream.wait(0, 30)  # something has come since
        assert not await stream.wait(stream.looks, 0.01) and not stream.waiting
        late = asyncio.ensure_future(stream.wait(stream.looks, 30))
        await asyncio.sleep(0)
        late.cancel()
        await asyncio.wait([late])
        assert late.cancelled() and not stream.waiting

    asyncio.run(work())


def test_a_slow_listener_of_a_live_feed_loses_the_oldest_and_is_told() -> None:
    async def work() -> None:
        feed: LiveFeed[int] = LiveFeed()
        with feed.listen(3) as slow, feed.listen() as fast:
            for n in range(5):
                feed.put(n)
            assert await slow.__anext__() == [Lost(2), 2, 3, 4]
            assert await fast.__anext__() == list(range(5))
            assert len(feed) == 2
        assert len(feed) == 0

    asyncio.run(work())
