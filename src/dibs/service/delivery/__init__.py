"""Delivery: what published events have matched goes to webhooks, streams and Kafka topics, at least once."""

from dibs.service.delivery.model import (
    DeadLetter,
    Delivery,
    Destination,
    DestinationStats,
    Enqueued,
    MatchedDestination,
    Mode,
    OutboxFull,
    Publication,
    UnknownDelivery,
    UnknownDestination,
)
from dibs.service.delivery.outbox import Outbox

__all__ = [
    "DeadLetter",
    "Delivery",
    "Destination",
    "DestinationStats",
    "Enqueued",
    "MatchedDestination",
    "Mode",
    "Outbox",
    "OutboxFull",
    "Publication",
    "UnknownDelivery",
    "UnknownDestination",
]
