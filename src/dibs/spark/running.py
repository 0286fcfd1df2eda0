"""A running stream: Spark's query, and what Dibs knows of its batches. And a batch that is cut off because its stream
is stopped, told to Spark in words that it understands.

Spark looks through the text of what Python raises, by a regular expression, for the name of an interruption, and if the
text is as long as a stack of Java, that search overflows the stack of the stream's thread, which dies of it with 1,024
lines on the terminal. So what says that the stream was stopped is told shortly.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import wraps
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]

from dibs.spark.fed import Feed
from dibs.spark.metrics import BatchMetrics
from dibs.spark.micro_batch import MicroBatches
from dibs.spark.places import first_line

A_LOOK = 0.25  # seconds between two looks at a running query
_running: dict[Path, RunningStream] = {}  # those of this process that were not closed, by their state folders


def close_ended(state: Path) -> None:
    """Closes the stream of this process that had the state folder and has ended: by `query.stop()`, by its sink, with
    its session. Nobody need have noticed. One that still runs goes on: whoever takes the lock is told."""
    before = _running.get(state)
    if before is not None and before.has_ended():
        before.close()


class RunningStream:
    """What `stream` returns. `query` is Spark's own StreamingQuery, for everything that is not here."""

    def __init__(self, query: Any, batches: MicroBatches, feed: Feed | None) -> None:
        self.query = query
        self._batches, self._feed = batches, feed
        self._closed = False
        _running[batches.state] = self

    @property
    def id(self) -> str:
        """The same after a restart with the same checkpoint."""
        return str(self.query.id)

    @property
    def name(self) -> str | None:
        return self.query.name

    @property
    def isActive(self) -> bool:
        return bool(self.query.isActive)

    @property
    def status(self) -> dict[str, Any]:
        return dict(self.query.status)

    @property
    def metrics(self) -> Sequence[BatchMetrics]:
        """Of the batches since this start, the latest last (at most a thousand)."""
        return list(self._batches.recent)

    @property
    def lastProgress(self) -> dict[str, Any] | None:
        """Spark's progress of the last batch, with the key "dibs": its BatchMetrics."""
        recent = self.recentProgress
        return recent[-1] if recent else None

    @property
    def recentProgress(self) -> list[dict[str, Any]]:
        own = {m.batch: asdict(m) for m in self._batches.recent}
        progress = [json.loads(p.json) for p in self.query.recentProgress]
        return [p | ({"dibs": own[p["batchId"]]} if p["batchId"] in own else {}) for p in progress]

    def has_ended(self) -> bool:
        try:
            return not self.query.isActive or self.query.exception() is not None
        except (Py4JError, OSError):  # with the JVM of its session
            return True

    def exception(self) -> Any:
        return self.query.exception()

    def processAllAvailable(self) -> None:
        """Waits until all events that are there are matched: for tests."""
        self.query.processAllAvailable()

    def awaitTermination(self, timeout: float | None = None) -> bool | None:
        """Waits until the stream ends, or so many seconds; then: whether it has ended. Raises what ended it."""
        try:
            ended = self.query.awaitTermination() if timeout is None else self.query.awaitTermination(timeout)
        except BaseException:
            if not self.query.isActive:
                self.close()
            raise
        if timeout is None or ended:
            self.close()
        return ended

    def stop(self) -> None:
        """Ends the stream. May be called again."""
        self.query.stop()
        self.close()

    def close(self) -> None:
        """Frees what the stream has open, once it has ended."""
        if not self._closed:
            self._closed = True
            _running.pop(self._batches.state, None)
            try:
                if self._feed is not None:
                    self._feed.close()
            finally:
                self._batches.close()

    def __enter__(self) -> RunningStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        last = f", batch {self.metrics[-1].batch}" if self.metrics else ""
        return f"<RunningStream {self.name or self.id}: {'running' if self.isActive else 'ended'}{last}>"

    def watch(self, console: Any = None) -> None:
        """Shows the batches in the terminal until the stream ends; Ctrl-C stops watching, not the stream. Raises what
        ended it."""
        from rich.console import Console
        from rich.live import Live

        console = console or Console(stderr=True)
        with Live(self.show(), console=console, refresh_per_second=4, transient=not console.is_terminal) as live:
            while not self.awaitTermination(A_LOOK):
                live.update(self.show())
            live.update(self.show())

    def show(self, batches: int = 10) -> Any:
        """The latest batches, as a table of rich."""
        from rich.table import Table

        table = Table(title=self.name or None, caption=self._tell(), box=None, header_style="dim", padding=(0, 1))
        for title in (
            "batch",
            "version",
            "subscriptions",
            "changes",
            "events",
            "matches",
            "bad",
            "lag",
            "compile",
            "time",
        ):
            table.add_column(title, justify="right")
        for m in self.metrics[-batches:]:
            lag = "" if m.lag_seconds is None else f"{m.lag_seconds:,.1f} s"
            counts = (m.subscriptions, m.changes, m.events, m.matches, m.malformed_events)
            times = (lag, f"{m.compile_seconds * 1000:,.0f} ms", f"{m.seconds * 1000:,.0f} ms")
            table.add_row(str(m.batch), f"{m.version:,}", *(f"{n:,}" for n in counts), *times)
        return table

    def _tell(self) -> str:
        status = self.query.status["message"] if self.isActive else "ended"
        lately = [m for m in self.metrics if m.finished_at > time.time() - 60]
        told = f"{status}; {sum(m.events for m in lately):,} events in the last minute"
        notice = self.metrics[-1].notice if self.metrics else None
        return told if notice is None else f"{told}\n{notice}"


# ---- what stops a batch ----

INTERRUPTIONS = ("InterruptedException", "InterruptedIOException", "ClosedByInterruptException")
CANCELLED = "cancelled job group", "cancellation of job group"  # as stopping a query does
DEEPEST = 20  # causes that are looked at


class Interrupted(Exception):
    """What Spark takes for an interruption: it knows it by this name."""

    def __init__(self, told: str) -> None:
        super().__init__(f"An error occurred while calling a micro-batch: {told}: java.lang.InterruptedException")


Interrupted.__module__, Interrupted.__qualname__ = "py4j.protocol", "Py4JJavaError"


def stop_quietly(run: Callable[..., None]) -> Callable[..., None]:
    """For a function of micro-batches."""

    @wraps(run)
    def batch(*given: Any) -> None:
        try:
            run(*given)
        except Exception as error:
            told = find_interruption(error)
            if told is None:
                raise
            raise Interrupted(told) from None

    return batch


def find_interruption(error: BaseException | None) -> str | None:
    """The first line of what says, among an error and its causes, that a job was interrupted; None: nothing does."""
    for _ in range(DEEPEST):
        if error is None:
            return None
        told = _of_java(error)
        if told is not None:
            return told
        error = error.__cause__ or error.__context__
    return None


def _of_java(error: BaseException) -> str | None:
    try:
        cause = getattr(error, "java_exception", None)
        for _ in range(DEEPEST):
            if cause is None:
                return None
            text = str(cause.toString())
            if text.split(":")[0].endswith(INTERRUPTIONS) or any(words in text for words in CANCELLED):
                return first_line(error)
            cause = cause.getCause()
    except (Py4JError, OSError):  # with the JVM
        return None
    return None
