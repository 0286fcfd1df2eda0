"""The date of the machine is set, forth and back, while deliveries wait and between two starts: retries, periods and
digests come when they are due."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import orjson
import pytest
from receivers import Receiver, wait_until
from test_delivery import add, delivering, publish

from dibs.service.delivery import Destination, MatchedDestination, Mode, Outbox
from dibs.service.delivery import clock as clock_module
from dibs.service.delivery.sending import Outcome, Sending

HOUR, DAY = 3_600.0, 86_400.0
SetDate = Callable[[float], None]


@pytest.fixture
def set_date(monkeypatch: pytest.MonkeyPatch) -> SetDate:
    """Puts the date so many seconds forth or back."""
    real = time.time
    return lambda seconds: monkeypatch.setattr(time, "time", lambda: real() + seconds)


@pytest.fixture
def new_boot(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], None]:
    """From now on it is as if the machine had been started anew."""
    place = tmp_path_factory.mktemp("boot")
    names = iter(range(100))

    def start() -> None:
        path = place / str(next(names))
        path.write_text(path.name)
        monkeypatch.setattr(clock_module, "BOOT", path)

    return start


def enqueue(outbox: Outbox, mode: Mode, to: str = "ops") -> int:
    return outbox.enqueue(b'{"a": 1}', [MatchedDestination("s", to, mode, 1)]).deliveries


def due_digests(outbox: Outbox) -> int:
    return Sending(outbox).send_digests()


@pytest.mark.parametrize("jump", [-HOUR, HOUR, -400 * DAY])
def test_retries_go_on_when_the_date_is_set(tmp_path: Path, set_date: SetDate, jump: float) -> None:
    with Outbox.open(tmp_path) as outbox, Receiver(lambda receiver, number: 200 if number > 2 else 503) as receiver:
        add(outbox, "ops", receiver)
        with delivering(outbox.folder):
            publish(outbox, 3, "ops")
            wait_until(lambda: receiver.requests >= 1)
            set_date(jump)
            wait_until(lambda: len(receiver.taken) == 3, 5)
            wait_until(lambda: outbox.stats()[0].waiting == 0, 5)
        success = outbox.stats()[0].last_success
        assert success is not None and abs(success - time.time()) < 30  # by the date that it is now
        assert outbox.dead_letters() == []


@pytest.mark.parametrize("jump", [-HOUR, HOUR])
def test_periods_and_digests_are_as_long_as_they_should_be(tmp_path: Path, set_date: SetDate, jump: float) -> None:
    period, digest = Mode("period", seconds=0.3), Mode("digest", seconds=0.3)
    with Outbox.open(tmp_path) as outbox:
        outbox.put_destination(Destination("ops", "webhook", "https://example.org/"))
        assert enqueue(outbox, period) == 1 and enqueue(outbox, digest) == 0
        set_date(jump)
        begun = time.monotonic()
        held = enqueue(outbox, period) + due_digests(outbox)
        assert held == 0 or time.monotonic() - begun > 0.2
        time.sleep(0.35)
        assert enqueue(outbox, period) == 1
        assert due_digests(outbox) == 1


def test_all_processes_have_one_time_whatever_the_date_was_when_they_began(tmp_path: Path, set_date: SetDate) -> None:
    with Outbox.open(tmp_path) as first:
        assert abs(first.clock() - time.time()) < 5
        set_date(-DAY)
        with Outbox.open(tmp_path) as second:
            set_date(+DAY)
            with Outbox.open(tmp_path) as third:
                times = [outbox.clock() for outbox in (first, second, third)]
    assert max(times) - min(times) < 1


def test_the_next_start_of_the_machine_does_not_go_back(
    tmp_path: Path, set_date: SetDate, new_boot: Callable[[], None]
) -> None:
    """A machine without a battery starts in 1970; all that waits is due when it would have been."""
    new_boot()
    with Outbox.open(tmp_path) as outbox:
        outbox.put_destination(Destination("ops", "webhook", "https://example.org/"))
        assert enqueue(outbox, Mode("period", seconds=0.3)) == 1
        sending = Sending(outbox)
        [lane], _ = sending.lanes()
        [delivery] = sending.head(lane.number, 1)
        sending.settle([Outcome(lane.number, delivery.number, "answered 500", outbox.clock() + 0.3)])
        assert sending.lanes()[0] == []
        before = outbox.clock()
    set_date(-time.time() + 60)
    new_boot()
    with Outbox.open(tmp_path) as outbox:
        assert before - 2 <= outbox.clock() <= before + 5
        time.sleep(0.6)
        assert len(Sending(outbox).lanes()[0]) == 1
        assert enqueue(outbox, Mode("period", seconds=0.3)) == 1


def test_a_clock_that_is_behind_goes_on_from_the_latest_time(tmp_path: Path) -> None:
    now = 1_000_000.0
    period, digest = Mode("period", seconds=60), Mode("digest", seconds=60)
    with Outbox.open(tmp_path, clock=lambda: now) as outbox:
        outbox.put_destination(Destination("ops", "webhook", "https://example.org/"))
        assert enqueue(outbox, period) == 1 and enqueue(outbox, digest) == 0
        now += 30
        assert enqueue(outbox, Mode()) == 1  # the latest that is in the outbox
    now -= DAY
    with Outbox.open(tmp_path, clock=lambda: now) as outbox:
        assert enqueue(outbox, period) == 0 and due_digests(outbox) == 0
        now += 31
        assert enqueue(outbox, period) == 1 and due_digests(outbox) == 1


def test_receivers_are_told_the_date(tmp_path: Path, set_date: SetDate) -> None:
    with Outbox.open(tmp_path) as outbox:
        outbox.put_destination(Destination("ops", "webhook", "https://example.org/"))
        set_date(-3 * DAY)
        enqueue(outbox, Mode())
        sending = Sending(outbox)
        [lane], _ = sending.lanes()
        [delivery] = sending.head(lane.number, 1)
        published = datetime.fromisoformat(orjson.loads(delivery.body)["published"].replace("Z", "+00:00"))
        assert abs(published.timestamp() - time.time()) < 5
        oldest = outbox.stats()[0].oldest
        assert oldest is not None and abs(oldest - time.time()) < 5
        sending.settle([Outcome(lane.number, delivery.number, "no", 0.0, given_up=True)])
        [letter] = outbox.dead_letters()
        assert abs(letter.died - time.time()) < 5 and abs(letter.delivery.created - time.time()) < 5
