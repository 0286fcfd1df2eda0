"""`match` as one step of a chain of DataFrame operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame

from dibs.errors import ArgumentError
from dibs.spark.match import Given, match


def matching(
    subscriptions: Given, event_id: str = "id", attributes: str | None = None, **options: Any
) -> Callable[[DataFrame], DataFrame]:
    """events.transform(matching(subscriptions)) is match(events, subscriptions), with the same options.
    (on_error="skip" has two results, which a chain cannot: it is for `match`.)"""
    if options.get("on_error", "raise") != "raise":
        raise ArgumentError('on_error="skip" gives two frames, matches and rejected: call match(events, ...) for both')

    def transform(events: DataFrame) -> DataFrame:
        return match(events, subscriptions, event_id, attributes, **options)

    return transform
