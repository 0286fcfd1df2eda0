"""`History`: what users say of the documents that came before."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from dibs.arguments import check_flag, check_text
from dibs.errors import ArgumentError, DibsError, show
from dibs.history.retention import Retention
from dibs.spark.events import event_place
from dibs.spark.frames import is_frame
from dibs.spark.joins.keys import Keys

PLANS = ("auto", "replicated", "partitioned")


@dataclass(frozen=True)
class History:
    """The documents that joins over history speak of.

    documents   whatever events of `match` may be: those that are there before the first event. None: there are none (of
                a stream, whose own events follow). In a stream they have columns of the events.
    attributes  in `match`: the MAP, STRUCT or JSON column of the documents that holds their attributes; else their
                columns are. (In a stream, that of the events.)
    order       the column, or columns, by which documents came one after the other: needed where a join asks for the
                last (MAX_BY). In a stream also the order of the events within a micro-batch. Of equal ones it is not
                said which comes first; nulls come before all others.
    plan        of `match`: "replicated" (all documents to every worker), "partitioned" (by their keys), or "auto": by
                their number.
    retain      of a stream: how much is kept: a number of documents, a timedelta, or a dibs.Retain, by one of the two.
    every       of a stream: takes joins that equate no attribute of documents with one of the event. In each
                micro-batch every document is sent to every task, and each task holds all of them.
    """

    documents: Any = None
    attributes: str | None = None
    order: str | Sequence[str] | None = None
    plan: str = "auto"
    retain: Retention = None
    every: bool = False

    def __post_init__(self) -> None:
        check_text("attributes", self.attributes)
        check_flag("every", self.every)
        if self.plan not in PLANS:
            raise ArgumentError(f"plan must be one of {', '.join(map(repr, PLANS))}, not {show(self.plan)}")
        columns = self.order if isinstance(self.order, Iterable) else () if self.order is None else (self.order,)
        if not all(isinstance(name, str) for name in columns):
            raise ArgumentError(f"order must be the name of a column, or several, not {show(self.order)}")

    @property
    def order_columns(self) -> list[str]:
        if self.order is None:
            return []
        return [self.order] if isinstance(self.order, str) else list(self.order)

    def find_order(self, frame: DataFrame) -> list[int]:
        """The places of the columns that order a frame."""
        return [event_place(frame, name, "order") for name in self.order_columns]

    def check_order(self, keys: Keys) -> None:
        """Refuses if some join asks which document came last, and nobody says."""
        if keys.ordered and self.order is None:
            raise DibsError(
                f"{keys.ordered[0]} asks for the last document, and a DataFrame has no order: give "
                "history=dibs.spark.History(documents, order='time'), the column (or columns) by which documents came"
            )


def read_history(history: Any) -> History:
    """What `history=` may be, as a History."""
    if isinstance(history, History):
        return history
    if is_frame(history) or (isinstance(history, Iterable) and not isinstance(history, (str, bytes))):
        return History(history)
    if hasattr(history, "__arrow_c_stream__") or hasattr(history, "__arrow_c_array__"):
        return History(history)
    raise ArgumentError(
        f"history is a DataFrame of documents, or a dibs.spark.History(documents, order=...), not {show(history)}"
    )


def missing_history(keys_text: str) -> DibsError:
    return DibsError(
        f"subscriptions ask for the documents that came before ({keys_text}): give history=, a DataFrame of them"
    )
