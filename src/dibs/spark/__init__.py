"""Matching on Spark: a shell round the Matcher that holds no matching logic of its own.

    compile    subscriptions to index files, as a job: versions that never change (dibs.spark.versions)
    match      events and subscriptions to (event_id, subscription_id), batch or streaming, classic or Connect
    matching   the same as a step: events.transform(matching(subscriptions))
    explain    how a match would run, and why
    problems   the events that could not be read entirely, and why
    stream     a stream of events against subscriptions that change while it runs; `sinks` for its matches
    backfill   the same job over stored events
    register   SQL functions: dibs_match(struct(*), 'path or name') and others; `use` gives an index a name
    History    the documents that joins over history speak of, for match and stream
    session    a local session for demos and tests; jobs use their own

Workers need Dibs in their Python, and nothing else: the compiled subscriptions reach them by themselves.
"""

from __future__ import annotations

try:
    import pyspark  # noqa: F401
except ImportError as error:
    raise ImportError("dibs.spark needs pyspark: pip install 'dibs[spark]'") from error

from dibs import engine
from dibs.spark import sinks
from dibs.spark.compile import Compilation, compile
from dibs.spark.feeds import Topic
from dibs.spark.joins.history import History
from dibs.spark.match import explain, match, matching, problems
from dibs.spark.metrics import BatchMetrics
from dibs.spark.options import MatchOptions, StreamOptions
from dibs.spark.plans import Plan
from dibs.spark.running import RunningStream
from dibs.spark.session import session
from dibs.spark.sql import register, use
from dibs.spark.stream import backfill, stream
from dibs.spark.tables import Table
from dibs.spark.webhook import Webhook

engine.load()  # kernels are compiled when they are called, or come to workers from the driver

__all__ = [
    "BatchMetrics",
    "Compilation",
    "History",
    "MatchOptions",
    "Plan",
    "RunningStream",
    "StreamOptions",
    "Table",
    "Topic",
    "Webhook",
    "backfill",
    "compile",
    "explain",
    "match",
    "matching",
    "problems",
    "register",
    "session",
    "sinks",
    "stream",
    "use",
]
