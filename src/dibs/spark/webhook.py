"""Matches as HTTP requests.

The matches of a batch are put in one order that depends on nothing but themselves, and cut into requests. So a batch
that is run again makes the same requests with the same idempotency keys, and a receiver that drops a key it has seen
gets every match once.

A request that fails is tried again after a growing pause (dibs.retrying), when that can help soon (no connection, 408,
429, 5xx): a batch waits for it. What cannot be delivered is written to `dead_letters`, and the stream goes on.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from dibs.errors import ArgumentError
from dibs.retrying import Retries, read_retry_after

WORTH_TRYING_AGAIN = {408, 425, 429, 500, 502, 503, 504}
LONGEST_PAUSE = 60.0  # seconds
DEAD_LETTER = "key string, url string, matches bigint, attempts int, error string, body string"


@dataclass(frozen=True)
class Webhook:
    """POSTs {"key": ..., "batch": ..., "matches": [{"event_id": ..., ...}, ...]} to the url, with the header
    Idempotency-Key.

    dead_letters  a folder (any that Spark writes to) for what could not be delivered, batch=N in it.
    matches       at most so many in a request.
    connections   requests at a time, at most (never more than there are cores). Keys depend on it: a stream that is
                  started again with another number may deliver one batch twice.
    attempts, pause  how often a request is tried; seconds before the second attempt, doubled for each one after, of
                  which a random half may be left out (and more, up to a minute, if the receiver asks for it).
    """

    url: str
    dead_letters: str
    headers: Mapping[str, str] = field(default_factory=dict)
    matches: int = 500
    connections: int = 4
    attempts: int = 5
    pause: float = 0.5
    timeout: float = 10.0

    def check(self, spark: SparkSession) -> None:
        if not self.url.startswith(("http://", "https://")):
            raise ArgumentError(f"the url of a webhook begins with http:// or https://, not {self.url!r}")
        for name in ("matches", "connections", "attempts"):
            if getattr(self, name) < 1:
                raise ArgumentError(f"{name} of a webhook must be at least 1, not {getattr(self, name)!r}")

    def write(self, matches: DataFrame, batch: int) -> None:
        ordered = matches.repartition(self.connections, "event_id").sortWithinPartitions("event_id", "subscription_id")
        failed = ordered.mapInArrow(_posting(self, batch), DEAD_LETTER)
        failed.write.mode("overwrite").parquet(f"{self.dead_letters.rstrip('/')}/batch={batch}")


def _posting(webhook: Webhook, batch: int) -> Any:
    def post_all(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        part = f"{batch}-{0 if context is None else context.partitionId()}of{webhook.connections}"
        dead = list(_post_rows(webhook, batch, part, (row for rows in batches for row in rows.to_pylist())))
        columns = ("key", "url", "matches", "attempts", "error", "body")
        types = (pa.string(), pa.string(), pa.int64(), pa.int32(), pa.string(), pa.string())
        yield pa.RecordBatch.from_arrays(
            [pa.array([letter[i] for letter in dead], kind) for i, kind in enumerate(types)], names=list(columns)
        )

    return post_all


def _post_rows(webhook: Webhook, batch: int, part: str, rows: Iterator[dict[str, Any]]) -> Iterator[tuple[Any, ...]]:
    """Makes the requests; gives those that could not be delivered."""
    from itertools import islice

    import orjson

    number = 0
    while chunk := list(islice(rows, webhook.matches)):
        key = f"{part}-{number}"
        number += 1
        body = orjson.dumps({"key": key, "batch": batch, "matches": chunk}, default=str)
        attempts, error = post(webhook, key, body)
        if error is not None:
            yield key, webhook.url, len(chunk), attempts, error, body.decode()


def post(webhook: Webhook, key: str, body: bytes) -> tuple[int, str | None]:
    """How often it was tried, and what went wrong in the end, if it did."""
    import urllib.error
    import urllib.request

    headers = {"Content-Type": "application/json", "Idempotency-Key": key, **webhook.headers}
    retries, chance, error = Retries(webhook.pause, LONGEST_PAUSE), random.Random(), ""
    for attempt in range(1, webhook.attempts + 1):
        asked = None
        try:
            request = urllib.request.Request(webhook.url, data=body, headers=headers, method="POST")
            with urllib.request.urlopen(request, timeout=webhook.timeout) as answer:
                answer.read()
            return attempt, None
        except urllib.error.HTTPError as refused:
            error = f"{refused.code} {refused.reason}"
            if refused.code not in WORTH_TRYING_AGAIN:
                return attempt, error
            asked = read_retry_after(refused.headers.get("Retry-After"))
        except OSError as failure:  # no connection, a name that is unknown, a timeout
            error = str(getattr(failure, "reason", failure)) or type(failure).__name__
        if attempt < webhook.attempts:
            time.sleep(retries.wait(attempt, asked, chance))
    return webhook.attempts, error
