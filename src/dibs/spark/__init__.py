"""Matching on Spark: a shell round the Matcher that holds no matching logic of its own.

    compile    subscriptions to index files, as a job: versions that never change (dibs.spark.versions)
    match      events and subscriptions to (event_id, subscription_id), batch or streaming, classic or Connect
    explain    how a match would run, and why
    problems   the events that could not be read entirely, and why
    session    a local session for demos and tests; jobs use their own

Workers need Dibs in their Python, and nothing else: the compiled subscriptions reach them by themselves.
"""

from __future__ import annotations

try:
    import pyspark  # noqa: F401
except ImportError as error:
    raise ImportError("dibs.spark needs pyspark: pip install 'dibs[spark]'") from error

from dibs.spark.compile import Compilation, compile
from dibs.spark.match import explain, match, problems
from dibs.spark.plans import Plan
from dibs.spark.session import session

__all__ = ["Compilation", "Plan", "compile", "explain", "match", "problems", "session"]
