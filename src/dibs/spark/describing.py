"""What Spark's own pages say of jobs that Dibs runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

DESCRIPTION = "spark.job.description"


@contextmanager
def describe_jobs(session: Any, text: str) -> Iterator[None]:
    """The jobs within have this description, as far as the session has any (Spark Connect has not)."""
    try:
        context = session.sparkContext
        before = context.getLocalProperty(DESCRIPTION)
    except Exception:  # whatever Connect raises, by its version
        yield
        return
    context.setLocalProperty(DESCRIPTION, f"dibs: {text}")
    try:
        yield
    finally:
        context.setLocalProperty(DESCRIPTION, before)
