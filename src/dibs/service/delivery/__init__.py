"""Delivery: what published events have matched goes to webhooks, streams and Kafka topics, at least once."""

from dibs.service.delivery.addresses import Reach
from dibs.service.delivery.deliverer import Deliverer, DeliverySettings, check_destination, run_deliverer
from dibs.service.delivery.model import (
    DeadLetter,
    Delivery,
    Destination,
    DestinationExists,
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
    "Deliverer",
    "Delivery",
    "DeliverySettings",
    "Destination",
    "DestinationExists",
    "DestinationStats",
    "Enqueued",
    "MatchedDestination",
    "Mode",
    "Outbox",
    "OutboxFull",
    "Publication",
    "Reach",
    "UnknownDelivery",
    "UnknownDestination",
    "check_destination",
    "run_deliverer",
]
