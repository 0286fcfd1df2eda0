"""What would this expression have matched? One expression, or several, against stored events, before it is saved.

    events -> batches (only the columns that count) -> values -> bits -> counts, times, which rows to show

Values are read and coded as Matcher does it, so the answer is that of match_batch. The batches are worked on by several
threads and their results taken in order; with joins over history, by one, because each event sees those before it.
"""

from __future__ import annotations

import time as clock
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any, NamedTuple, overload

from dibs import notebooks
from dibs.arguments import OnError, check_callable, check_number, check_on_error, check_text, check_threads
from dibs.coding.events import WantedNames
from dibs.coding.values import EventProblem
from dibs.errors import ArgumentError, EventError, ExpressionError, Problem, show
from dibs.history.retention import Retention
from dibs.language.present import Now, Present, read_now
from dibs.language.types import Types, check_types
from dibs.past.columns import Expressions, Satisfied
from dibs.past.diagnosis import Before, Diagnosis, KeptBatches, diagnose, matches_little
from dibs.past.histogram import EventTimes, Histogram, HistogramCounting, times_of
from dibs.past.shown import share, show_problems, show_row
from dibs.past.sources import Spread, StoredBatch, StoredEvents, Wanted
from dibs.past.sources_files import open_events

ROWS = 1 << 16  # events at a time
PROBLEMS_KEPT = 1_000


class Example(NamedTuple):
    """A matching event: its number, counted from 0, and all that it says."""

    event: int
    values: dict[str, Any]


@dataclass
class Backtest:
    """What an expression would have matched."""

    expression: str
    events: int = 0
    count: int = 0
    problems: list[EventProblem] = field(default_factory=list)  # the first of what could not be read...
    problem_count: int = 0  # ...and how much that is in all
    examples: list[Example] = field(default_factory=list)
    histogram: Histogram | None = None  # where a time column was given
    why: Diagnosis | None = None  # it matches so little
    elapsed: float = 0.0  # seconds, for all expressions of the call together

    @property
    def rate(self) -> float:
        """The share of the events that match, from 0 to 1."""
        return self.count / self.events if self.events else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Everything, of types that JSON has (values of examples as they are)."""
        return {
            "expression": self.expression,
            "events": self.events,
            "count": self.count,
            "rate": self.rate,
            "elapsed": self.elapsed,
            "problem_count": self.problem_count,
            "problems": [problem._asdict() for problem in self.problems],
            "examples": [example._asdict() for example in self.examples],
            "histogram": None if self.histogram is None else vars(self.histogram),
            "why": None if self.why is None else self.why.to_dict(),
        }

    def __str__(self) -> str:
        lines = [self.expression, f"  {self.count:,} of {self.events:,} events match ({share(self.rate)})"]
        lines += show_problems(self.problems, self.problem_count)
        if self.why is not None:
            lines += [f"  {line}" for line in self.why.lines]
        if self.histogram is not None:
            lines += [f"  {line}" for line in str(self.histogram).split("\n")]
        if self.examples:
            lines.append("  for example:")
            lines += [f"    event {example.event}: {show_row(example.values)}" for example in self.examples]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        parts = [
            notebooks.headline(f"{self.expression}: {self.count:,} of {self.events:,} events ({share(self.rate)})")
        ]
        parts.append(notebooks.lines_of(show_problems(self.problems, self.problem_count)))
        parts.append("" if self.why is None else notebooks.lines_of(self.why.lines))
        if self.histogram is not None:
            parts.append(notebooks.chart(self.histogram.starts, self.histogram.counts))
        if self.examples:
            rows = [(example.event, show_row(example.values)) for example in self.examples]
            parts.append(notebooks.table(("event", "for example"), rows))
        return f"<div>{'<br>'.join(filter(None, parts))}</div>"


class Backtests(dict[Hashable, Backtest]):
    """The results of several expressions, by id or (where a list was given) by place."""

    def __str__(self) -> str:
        rows = [(str(id), f"{result.count:,}", share(result.rate), result.expression) for id, result in self.items()]
        widths = [max((len(row[i]) for row in rows), default=0) for i in range(3)]
        lines = [f"of {next(iter(self.values())).events:,} events match" if self else "no expressions"]
        for id, count, rate, expression in rows:
            lines.append(f"  {id:<{widths[0]}}  {count:>{widths[1]}}  {rate:>{widths[2]}}  {expression}")
        for result in list(self.values())[:1]:  # the problems are the same for all
            lines += show_problems(result.problems, result.problem_count)
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        most = max((result.rate for result in self.values()), default=0.0) or 1.0
        rows = [
            (str(id), result.count, share(result.rate), notebooks.Bar(result.rate / most), result.expression)
            for id, result in self.items()
        ]
        return notebooks.table(("", "events", "share", "", "expression"), rows)


@overload
def backtest(
    expression: str,
    events: Any,
    *,
    attributes: str | None = None,
    examples: int = 5,
    time: str | None = None,
    on_error: OnError = "raise",
    progress: Callable[[int], None] | None = None,
    threads: int | None = None,
    history: Any = None,
    retain: Retention = None,
    now: Now = None,
    types: Mapping[str, str] | None = None,
) -> Backtest: ...


@overload
def backtest(
    expression: Sequence[str] | Mapping[Any, str],
    events: Any,
    *,
    attributes: str | None = None,
    examples: int = 5,
    time: str | None = None,
    on_error: OnError = "raise",
    progress: Callable[[int], None] | None = None,
    threads: int | None = None,
    history: Any = None,
    retain: Retention = None,
    now: Now = None,
    types: Mapping[str, str] | None = None,
) -> Backtests: ...


def backtest(
    expression: str | Sequence[str] | Mapping[Any, str],
    events: Any,
    *,
    attributes: str | None = None,
    examples: int = 5,
    time: str | None = None,
    on_error: OnError = "raise",
    progress: Callable[[int], None] | None = None,
    threads: int | None = None,
    history: Any = None,
    retain: Retention = None,
    now: Now = None,
    types: Mapping[str, str] | None = None,
) -> Backtest | Backtests:
    """What an expression would have matched: how many events, which share, when, and some of them.

    >>> events = [{"price": 550, "day": "2024-02-28"}, {"price": 600}, {"price": 20, "day": "2024-03-01"}]
    >>> print(backtest("price <= 580", events, time="day"))
    price <= 580
      2 of 3 events match (66.7 %)
      by day of day (UTC):
        2024-02-28  1  ████████████████████████████████████████
        2024-02-29  0
        2024-03-01  1  ████████████████████████████████████████
      for example:
        event 0: {"price":550,"day":"2024-02-28"}
        event 2: {"price":20,"day":"2024-03-01"}
    >>> print(backtest({"now": "price <= 580", "new": "price <= 580 AND price > 100"}, events))
    of 3 events match
      now  2  66.7 %  price <= 580
      new  1  33.3 %  price <= 580 AND price > 100

    expression  one, or several: a list (results by place) or a mapping (by key), all in one pass over the events.
    events      an Arrow table, record batch, reader or dataset; dicts; JSON lines as bytes or an open binary file; or a
                path (or several in a list): a Parquet, Arrow or JSON lines file, a folder of Parquet files.
    attributes  the MAP, STRUCT or JSON column that holds the attributes (else the columns are the attributes).
    examples    how many matching events to show, of each expression: the first, the last and others evenly between.
    time        the column (or key) of a date or timestamp, for a histogram.
    on_error    as in match_batch; with "skip" what could not be read is counted, and the first 1,000 are listed.
    progress    is called with how many more events are done.
    threads     how many cores to use (all by default).
    history     what joins over history see before the first event: documents, as Matcher.history.load takes them (none
                by default). Each event sees those before it, in the order of the stored events.
    retain      how much of that is kept, as in Matcher (all by default).
    now         what now() is: an instant for all events (by default the clock's), or the name of the attribute that
                holds each event's own time.
    types       of attributes, where they are declared, as in Matcher.
    """
    check_on_error(on_error)
    check_text("attributes", attributes)
    check_text("time", time)
    check_callable("progress", progress)
    examples = check_number("examples", examples, 0, "a number from 0 on")
    threads = check_threads(threads)
    present = read_now(now)
    present = clock.time_ns() // 1_000 if present is None else present
    ids, texts = _name(expression)
    declared = check_types(types)
    compiled = Expressions(texts, None if isinstance(expression, str) else ids, declared)
    before = (history, retain, present, declared)
    run = _Run(compiled, texts, open_events(events), before, attributes, time, examples, on_error)
    results = run.through(progress, threads)
    return results[0] if isinstance(expression, str) else Backtests(zip(ids, results))


def _name(expression: Any) -> tuple[list[Hashable], list[str]]:
    ids: list[Hashable]
    if isinstance(expression, str):
        ids, texts = [0], [expression]
    elif isinstance(expression, Mapping):
        ids, texts = list(expression), list(expression.values())
    elif isinstance(expression, Sequence) and not isinstance(expression, (bytes, bytearray, memoryview)):
        ids, texts = list(range(len(expression))), list(expression)
    else:
        raise ArgumentError(f"expected an expression, a list or a mapping of them, not {show(expression)}")
    for text in texts:
        if not isinstance(text, str):
            raise ExpressionError([Problem(f"an expression is a string, not {type(text).__name__}")])
        try:
            text.encode()
        except UnicodeEncodeError:
            problem = Problem("the expression is not valid Unicode (lone surrogate)", text=ascii(text))
            raise ExpressionError([problem]) from None
    return ids, texts


class _Done(NamedTuple):
    """What one batch gave."""

    batch: StoredBatch
    events: int
    found: Satisfied
    problems: list[EventProblem]
    times: list[tuple[EventTimes, int]]  # for each expression, when there is a time column


class _Run:
    def __init__(
        self,
        compiled: Expressions,
        texts: list[str],
        source: StoredEvents,
        history: tuple[Any, Retention, Present, Types],
        attributes: str | None,
        time: str | None,
        examples: int,
        on_error: OnError,
    ):
        self.compiled, self.source, self.on_error = compiled, source, on_error
        self.history, self.before = history, Before(compiled.joins, *history)
        self.names = WantedNames([*compiled.names, *([history[2]] if isinstance(history[2], str) else [])])
        self.wanted = Wanted(self.names, attributes, time)
        self.results = [Backtest(text) for text in texts]
        self.spreads = [Spread(examples) for _ in texts]
        self.countings = [HistogramCounting(time) for _ in texts] if time is not None else []
        self.problems: list[EventProblem] = []
        self.events = self.problem_count = 0
        self.kept = None if source.again else KeptBatches()

    def through(self, progress: Callable[[int], None] | None, threads: int) -> list[Backtest]:
        begun = clock.perf_counter()
        threads = 1 if self.compiled.joins else threads
        if self.results:
            for done in in_order(self._work, self.source.batches(self.wanted, ROWS), threads):
                self._take(done)
                if progress is not None:
                    progress(done.events)
        for result, spread, counting in zip(self.results, self.spreads, self.countings or repeat(None)):
            chosen = spread.choose()
            later = [event for event in chosen if event not in spread.rows]
            rows = {**spread.rows, **dict(zip(later, self.source.rows(later, self.events)))}
            result.examples = [Example(event, rows[event]) for event in chosen]
            result.histogram = None if counting is None else counting.finish()
            result.events, result.problems, result.problem_count = self.events, self.problems, self.problem_count
            if matches_little(result.count, self.events):
                result.why = self._diagnose(result.expression)
        for result in self.results:
            result.elapsed = clock.perf_counter() - begun
        return self.results

    def _diagnose(self, expression: str) -> Diagnosis | None:
        """None: what joins have seen has passed by."""
        history, retain, now, types = self.history
        if self.compiled.joins and isinstance(history, Iterator):
            return None
        return diagnose(expression, self.kept or self.source, self.wanted.attributes, history, retain, now, types)

    def _work(self, batch: StoredBatch) -> _Done:
        """In any thread."""
        values = self.before.read(batch.data, self.names, self.wanted.attributes)
        found = self.compiled.find(values)
        times = []
        if self.wanted.time is not None:
            times = [times_of(batch.data, self.wanted.time, events) for events in found]
        return _Done(batch, values.events, found, values.problems, times)

    def _take(self, done: _Done) -> None:
        """In the order of the batches."""
        batch = done.batch
        if self.kept is not None:
            self.kept.keep(batch)
        for event, attribute, message in done.problems[: max(PROBLEMS_KEPT - len(self.problems), 1)]:
            text = batch.message(event, attribute, message)
            if self.on_error == "raise":
                raise EventError(text, batch.first + event, attribute)
            if len(self.problems) < PROBLEMS_KEPT:
                self.problems.append(EventProblem(batch.first + event, attribute, text))
        self.problem_count += len(done.problems)
        self.events += done.events
        for i, (result, events) in enumerate(zip(self.results, done.found)):
            result.count += len(events)
            self.spreads[i].add(batch, events)
            if done.times:
                self.countings[i].add(*done.times[i])


def in_order(work: Callable[[StoredBatch], _Done], batches: Iterator[StoredBatch], threads: int) -> Iterator[_Done]:
    """The results in the order of the batches, of which only a few are in memory at a time."""
    if threads == 1:
        yield from map(work, batches)
        return
    pool = ThreadPoolExecutor(threads, thread_name_prefix="dibs-backtest")
    waiting: deque[Future[_Done]] = deque()
    try:
        for batch in batches:
            waiting.append(pool.submit(work, batch))
            if len(waiting) > 2 * threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
