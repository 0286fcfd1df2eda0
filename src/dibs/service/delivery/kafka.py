"""Sends deliveries to a Kafka topic: one record each, with the delivery's id as a header and the event's id as its key.

A client of Kafka connects to whatever addresses the cluster names, so a tenant may not choose brokers: the operator
lists those that there are (`DeliverySettings.brokers`), and a target names one of them: kafka://broker:9092/topic.

Records of a destination are sent one after the other, each when all in-sync replicas have the one before.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from typing import Any

from dibs.errors import ArgumentError, DibsError, show
from dibs.service.delivery.model import Delivery, Destination
from dibs.service.delivery.webhook import Failure

TARGET = re.compile(r"kafka://([A-Za-z0-9.-]+:[0-9]{1,5})/([A-Za-z0-9._-]{1,249})\Z")


class KafkaMissing(DibsError):
    """The client library is not installed."""

    def __init__(self) -> None:
        super().__init__('Kafka destinations need a client library: install it with "pip install dibs[kafka]"')


def check_kafka_target(target: str, brokers: tuple[str, ...]) -> tuple[str, str]:
    """Broker and topic. Raises ArgumentError, KafkaMissing."""
    found = TARGET.match(target)
    if found is None or found[2] in (".", ".."):
        raise ArgumentError(f"the target of a Kafka destination is kafka://broker:port/topic, not {show(target)}")
    if found[1] not in brokers:
        known = ", ".join(brokers) or "none"
        raise ArgumentError(f"{found[1]} is no broker that this service delivers to (there are: {known})")
    _library()
    return found[1], found[2]


class KafkaSender:
    def __init__(self, destination: Destination, brokers: tuple[str, ...], seconds: float):
        self.destination, self.brokers, self.seconds = destination, brokers, seconds
        self._producer: Any = None

    async def send(self, delivery: Delivery) -> Failure | None:
        try:
            broker, topic = check_kafka_target(self.destination.target, self.brokers)
            return await asyncio.wait_for(self._attempt(broker, topic, delivery), self.seconds)
        except asyncio.TimeoutError:
            await self.close()
            return Failure(f"no answer within {self.seconds:g} seconds")
        except DibsError as e:
            return Failure(str(e))

    async def close(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            with suppress(Exception):
                await asyncio.wait_for(producer.stop(), self.seconds)

    async def _attempt(self, broker: str, topic: str, delivery: Delivery) -> Failure | None:
        aiokafka = _library()
        headers = [("dibs-delivery", delivery.id.encode()), ("dibs-attempt", str(delivery.attempts + 1).encode())]
        try:
            if self._producer is None:
                producer = aiokafka.AIOKafkaProducer(bootstrap_servers=broker, acks="all", enable_idempotence=True)
                try:
                    await producer.start()
                except BaseException:
                    with suppress(Exception):
                        await producer.stop()
                    raise
                self._producer = producer
            await self._producer.send_and_wait(
                topic, delivery.body, key=delivery.event.encode() or None, headers=headers
            )
        except (aiokafka.errors.KafkaError, OSError) as e:
            await self.close()
            return Failure(f"{type(e).__name__}: {e}")
        return None


def _library() -> Any:
    try:
        import aiokafka
        import aiokafka.errors
    except ImportError:
        raise KafkaMissing from None
    return aiokafka
