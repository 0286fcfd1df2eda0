"""What delivery speaks of: destinations, modes, what a published event has matched, and what became of it.

A destination has a name within its tenant, and a kind:

    webhook   target is an http or https address; each delivery is a signed POST (webhook.py)
    stream    no target; clients follow it by its name, and go on after the last delivery that they saw (streams.py)
    kafka     target is kafka://broker:port/topic, of a broker that the operator has named (kafka.py)

A mode says which matches of a subscription become deliveries. Where a mode has a key, that is the name of an attribute
(`sku`, `item.id`): what is said below holds for each value of it on its own. An event without that attribute has the
key null, which is a key like any other. Without a key all events share one.

    every        each match
    transition   the first match, and then none until it stops matching: until an event of the same key is published (by
                 the same tenant) that the subscription does not match. Events of other keys change nothing.
    period       at most one per period: after a delivery, matches of the next `seconds` are counted, not delivered.
    digest       matches are collected; `seconds` after the first of them they are sent as one delivery. The next match
                 begins the next one.

A subscription that was replaced starts over: what its older versions have matched holds nothing back.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, Union, get_args

import orjson

from dibs.arguments import DEFAULT_WEIGHT
from dibs.errors import ArgumentError, DibsError, show

Id = Union[str, int]
Kind = Literal["webhook", "stream", "kafka"]
ModeKind = Literal["every", "transition", "period", "digest"]
WhenFull = Literal["refuse", "drop"]

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z")
LONGEST_PERIOD = 31 * 86_400.0  # seconds
WAITING = 100_000  # deliveries that may wait for a destination, unless it says otherwise


class UnknownDestination(DibsError, KeyError):
    """No destination of the tenant has this name."""

    def __init__(self, tenant: str, name: str):
        self.tenant, self.name = tenant, name
        super().__init__(f"there is no destination {name!r}: add it first")

    def __str__(self) -> str:
        return str(self.args[0])


class DestinationExists(DibsError):
    """A destination of this name is there already."""

    def __init__(self, name: str):
        self.name = name
        super().__init__(f"there is a destination {name!r} already: choose another name")


class UnknownDelivery(DibsError, KeyError):
    """No dead letter of the tenant has this id."""

    def __init__(self, delivery: str):
        self.delivery = delivery
        super().__init__(f"no dead letter has the id {delivery!r}: it was sent again, dropped, or never there")

    def __str__(self) -> str:
        return str(self.args[0])


class OutboxFull(DibsError):
    """What was published cannot be kept until it is delivered; nothing of it was enqueued."""

    def __init__(self, message: str, destinations: list[str]):
        self.destinations = destinations  # those that are full; none: the outbox as a whole
        super().__init__(message)


@dataclass(frozen=True)
class Mode:
    """Which matches of a subscription become deliveries (above)."""

    kind: ModeKind = "every"
    key: str | None = None  # for transition and period
    seconds: float | None = None  # of period and digest

    def __post_init__(self) -> None:
        if self.kind not in get_args(ModeKind):
            raise ArgumentError(f"a mode is one of {', '.join(get_args(ModeKind))}, not {show(self.kind)}")
        timed = self.kind in ("period", "digest")
        if timed and not (_is_number(self.seconds) and 0 < float(self.seconds or 0) <= LONGEST_PERIOD):
            expected = f"a number of seconds above 0 and up to {LONGEST_PERIOD:,.0f}"
            raise ArgumentError(f"seconds of the mode {self.kind} must be {expected}, not {show(self.seconds)}")
        if not timed and self.seconds is not None:
            raise ArgumentError(f"the mode {self.kind} has no seconds: leave them out")
        if self.key is not None and (not isinstance(self.key, str) or not self.key):
            raise ArgumentError(f"key of a mode must be the name of an attribute, not {show(self.key)}")
        if self.key is not None and self.kind not in ("transition", "period"):
            raise ArgumentError(f"the mode {self.kind} has no key: leave it out")

    @classmethod
    def of(cls, value: Any) -> Mode:
        """From JSON: `"every"`, `{"kind": "transition", "key": "sku"}`, `{"kind": "period", "seconds": 3600}`."""
        if value is None:
            return cls()
        if isinstance(value, str):
            return cls(value)  # type: ignore[arg-type]
        if not isinstance(value, dict) or "kind" not in value or set(value) - {"kind", "key", "seconds"}:
            raise ArgumentError(f"a mode is a name or an object with kind, key and seconds, not {show(value)}")
        return cls(**value)

    def show(self) -> dict[str, Any]:
        """As JSON, which `of` reads."""
        fields = {"kind": self.kind, "key": self.key, "seconds": self.seconds}
        return {name: value for name, value in fields.items() if value is not None}


@dataclass(frozen=True)
class Destination:
    """Where deliveries go. At most `limit` of them wait; what comes then is refused, and the publisher told
    (`Enqueued`), or with when_full="drop" left out and counted. Of a stream, `limit` are kept: the oldest go."""

    name: str
    kind: Kind
    target: str = ""
    tenant: str = ""
    secret: str = ""  # signs the deliveries of a webhook; "": the outbox makes one
    limit: int = WAITING
    when_full: WhenFull = "refuse"
    paused: bool = False  # deliveries are kept, not sent

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not NAME.match(self.name):
            expected = "1 to 100 letters, digits, dots, dashes and underscores, beginning with a letter or digit"
            raise ArgumentError(f"name of a destination must be {expected}, not {show(self.name)}")
        if self.kind not in get_args(Kind):
            raise ArgumentError(f"kind of a destination is one of {', '.join(get_args(Kind))}, not {show(self.kind)}")
        for name in ("target", "tenant", "secret"):
            if not isinstance(getattr(self, name), str):
                raise ArgumentError(f"{name} of a destination must be a string, not {show(getattr(self, name))}")
        if self.kind == "stream" and self.target:
            raise ArgumentError("a stream has no target: clients come to it by its name")
        if not isinstance(self.limit, int) or isinstance(self.limit, bool) or not 1 <= self.limit <= 10_000_000:
            raise ArgumentError(f"limit of a destination must be from 1 to 10,000,000, not {show(self.limit)}")
        if self.when_full not in get_args(WhenFull):
            raise ArgumentError(f"when_full is one of {', '.join(get_args(WhenFull))}, not {show(self.when_full)}")
        if not isinstance(self.paused, bool):
            raise ArgumentError(f"paused must be true or false, not {show(self.paused)}")


@dataclass(frozen=True)
class MatchedDestination:
    """A subscription that a published event has matched, and where it wants to be told."""

    subscription: Id
    destination: str  # its name, of the same tenant
    mode: Mode = field(default_factory=Mode)
    version: int = 0  # of the subscription: another one starts over
    weight: float = DEFAULT_WEIGHT

    @cached_property
    def shown(self) -> orjson.Fragment:
        """As a delivery tells it."""
        about = {"subscription": self.subscription, "version": self.version, "weight": self.weight}
        return orjson.Fragment(orjson.dumps(about))


@dataclass(frozen=True)
class Publication:
    """A published event with all that it has matched, also if that is nothing: transitions end by it."""

    event: bytes  # JSON
    matches: tuple[MatchedDestination, ...] = ()
    key: str | None = None  # the publisher's name for it (Idempotency-Key): the same one again is not enqueued again
    tenant: str = ""


@dataclass(frozen=True)
class Enqueued:
    """What was acknowledged: `deliveries` will be made, and what is collected will be sent when it is due."""

    event: str  # its id
    deliveries: int = 0
    collected: int = 0  # matches that wait for a digest
    suppressed: int = 0  # matches that their mode holds back
    dropped: int = 0  # matches of full destinations that drop
    refused: dict[str, str] = field(default_factory=dict)  # destination to why nothing was enqueued for it
    repeated: bool = False  # its key had come before: nothing was enqueued now


@dataclass(frozen=True)
class Delivery:
    """One thing to be sent to one destination. Its id stays the same however often it is sent."""

    id: str
    number: int  # ascending: the order within a destination
    destination: str
    event: str  # id; "" of a digest
    created: float  # seconds since 1970
    attempts: int  # that failed
    body: bytes


@dataclass(frozen=True)
class DeadLetter:
    """A delivery that was given up."""

    delivery: Delivery
    died: float
    reason: str


@dataclass(frozen=True)
class DestinationStats:
    """How a destination does."""

    destination: Destination
    waiting: int  # to be sent
    kept: int  # of a stream, for its clients: nobody waits for them to go
    oldest: float | None  # when the first that waits or is kept was created
    delivered: int
    suppressed: int  # by modes
    refused: int
    dropped: int
    dead: int  # on the list now
    failing_since: float | None
    retry_at: float | None
    last_error: str
    last_success: float | None


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
