"""How one point of a figure is measured: structure by structure, each of which is handed over when it is done.

All structures of a point see the same subscriptions and events and must find the same matches. Times are processor
times; the best and the median of several rounds are kept. A structure that takes more than it may (limits) has the
reason in place of figures: a structure at a point is built and matched in a fork of the process that has coded the
data, so that what it takes is given back when it ends, and one that takes too much takes nothing else down.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import time
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple, Union

import numpy as np
from numpy.typing import NDArray

from dibs.coding.batch import CodedEvents, code_events
from dibs.coding.clauses import Clauses, code_declared
from dibs.coding.events import read_events
from dibs.errors import DibsError, IndexTooLarge
from dibs.index import create, find
from dibs.index.base import Index, Pairs, Sink, do_pending, renumber
from dibs.index.statistics import ENOUGH_EVENTS
from dibs.papers.experiments.experiment import Data, Experiment, Rows, Series, Size, Steps
from dibs.segments.compile import compile_texts

SECONDS = 0.5  # of rounds per structure and point; two are always made
UPDATED = 2_000  # rows that are inserted, and deleted again
FEW = 50  # rows with which kernels are compiled, or loaded, before anything is measured
SAMPLE = 2_000  # texts by which the time to read all of them is foretold
MeasuredRows = dict[str, dict[str, Any]]  # what was measured, by the label of the series
Save = Callable[[dict[str, Any]], None]
Measured = Union[Index, "Lived"]


class DifferentMatches(DibsError):
    """Two structures found different matches: no time is reported."""


class Coded(NamedTuple):
    clauses: Clauses
    events: CodedEvents
    steps: Steps
    facts: dict[str, Any]  # what the data are, as they were counted


def measure_point(
    wanted: Experiment,
    value: Any,
    size: Size,
    known: dict[str, Any] | None = None,
    save: Save = lambda point: None,
    limits: Limits | None = None,
) -> dict[str, Any]:
    """All structures of an experiment at one value of what varies. known: the point as far as it was measured before;
    save is called with the point whenever there is more of it."""
    point = {"x": wanted.true_value(value, size), "of": value, "seed": size.seed}
    if wanted.measure is not None:
        point |= wanted.measure(value, size)
        save(point)
        return point
    rows: MeasuredRows = dict(known["rows"]) if known is not None else {}
    try:
        data = wanted.workload(value, size)
        kinds = data if isinstance(data, dict) else {"": data}
        for kind, own in kinds.items():
            left = [one for one in wanted.series_at(value) if one.data == kind and one.label not in rows]
            if left:
                coded = code(own, limits)
                point = coded.facts | point
                for one in left:
                    rows[one.label] = _measure_one(one, coded, size, limits)
                    _require_equal(f"{wanted.about} at {value}", wanted, value, kind, rows)
                    save(point | {"rows": rows})
    except (BeyondLimit, MemoryError) as error:  # of the data themselves
        reason = str(error) or "more memory than there is"
        for one in wanted.series_at(value):
            rows.setdefault(one.label, {"refused": reason})
    point.setdefault("subscriptions", 0)
    point |= {"rows": rows}
    save(point)
    return point


def code(data: Data, limits: Limits | None = None) -> Coded:
    """Raises BeyondLimit where reading the texts would take too long."""
    texts = data.expressions.cast("large_string")
    begin = time.process_time()
    if limits is not None and len(texts) > 10 * SAMPLE:
        compile_texts(texts[:SAMPLE])  # what every text of their shapes needs once
        begin = time.process_time()
        compile_texts(texts[SAMPLE : 2 * SAMPLE])
        if (foretold := (time.process_time() - begin) / SAMPLE * len(texts)) > 60 * limits.minutes:
            raise BeyondLimit(f"reading {len(texts):,} texts would take {foretold / 60:.0f} minutes")
        begin = time.process_time()
    compiled = compile_texts(texts)
    if compiled.errors:
        raise next(iter(compiled.errors.values()))
    read = time.process_time()
    domains, clauses = code_declared(compiled.table, data.domains)
    coded = time.process_time()
    names = frozenset(attribute for attribute, _ in domains.attributes)
    events = code_events(read_events(data.events, names, attributes=data.attributes), domains)
    facts = {
        "subscriptions": len(list_alive(data.steps)) if data.steps else len(clauses),
        "events": len(events),
        "attributes": len(names),
        "predicates": len(clauses.attribute) / max(len(clauses), 1),
        "values": len(events.attribute) / max(len(events), 1),
        "read_s": read - begin,
        "code_s": coded - read,
        "code_bytes": domains.nbytes + clauses.nbytes,
    }
    return Coded(clauses, events, data.steps, facts)


def _measure_one(one: Series, coded: Coded, size: Size, limits: Limits | None) -> dict[str, Any]:
    few = coded.clauses.take(np.arange(min(len(coded.clauses), FEW)))
    create(one.structure, few, **one.options).match(coded.events, 1)  # compiles, or loads what was compiled
    if limits is None or len(coded.clauses) < limits.from_subscriptions:
        return _measure(one, coded, size)
    try:
        row: dict[str, Any] = run_within(limits, lambda: _measure(one, coded, size))
    except BeyondLimit as error:
        return {"refused": str(error)}
    return row


def _measure(one: Series, coded: Coded, size: Size) -> dict[str, Any]:
    clauses, events, steps, _ = coded
    begin = time.process_time()
    try:
        index: Measured
        if steps and one.updates:
            index = Lived(one, clauses, events, steps)
        else:
            options = one.options | ({"presence": _presence(clauses, events)} if one.log else {})
            index = create(one.structure, clauses.take(list_alive(steps)) if steps else clauses, **options)
    except IndexTooLarge as e:
        return {"refused": str(e)}
    row: dict[str, Any] = {"build_s": time.process_time() - begin, "bytes": index.nbytes}
    if one.structure == "auto" and not isinstance(index, Lived):
        # It plans by the events that it has seen, once they are enough, and again when there is reason to.
        for _ in range(2 + 2 * ENOUGH_EVENTS.value // max(len(events), 1)):
            index.match(events, 1)
            do_pending(index)
    pairs = index.match(events, 1)
    row |= {"matches": pairs.count, "digest": f"{_digest(pairs):016x}"} | _count(pairs, len(events))
    times = _time(index, events, size.repeats)
    row |= {"match_us": min(times), "median_us": float(np.median(times)), "all_us": times}
    if one.updates and not steps:
        del index, pairs
        row |= _update(one, clauses)
    return row


def _presence(clauses: Clauses, events: CodedEvents) -> NDArray[np.float64]:
    """The share of events that have each attribute: the event log by which OpIndex chooses pivots."""
    return np.bincount(events.attribute, minlength=clauses.attributes) / max(len(events), 1)


def _require_equal(where: str, wanted: Experiment, value: Any, kind: str, rows: MeasuredRows) -> None:
    labels = [one.label for one in wanted.series_at(value) if one.data == kind]
    found = {
        label: (rows[label]["matches"], rows[label]["digest"]) for label in labels if "digest" in rows.get(label, {})
    }
    if len(set(found.values())) > 1:
        raise DifferentMatches(f"{where}: structures differ in their matches: {found}")


def _count(pairs: Pairs, events: int) -> dict[str, float]:
    counters = {"candidates": pairs.candidates, "predicates": pairs.predicates, "nodes": pairs.nodes}
    return {name: value / events for name, value in counters.items()}


def _digest(pairs: Pairs) -> int:
    """The same for the same pairs in any order."""
    total = 0
    for event, row in pairs.chunks:
        key = (event.astype(np.uint64) << np.uint64(32)) | row.astype(np.uint64)
        key *= np.uint64(0x9E3779B97F4A7C15)
        total += int(np.sum(key ^ (key >> np.uint64(29)), dtype=np.uint64))
    return total % 2**64


def _time(index: Measured, events: CodedEvents, repeats: int) -> list[float]:
    """Microseconds per event of each round."""
    times: list[float] = []
    while len(times) < repeats and (len(times) < 2 or sum(times) * len(events) / 1e6 <= SECONDS):
        begin = time.process_time()
        index.match(events, 1)
        times.append((time.process_time() - begin) / len(events) * 1e6)
    return times


def _update(one: Series, clauses: Clauses) -> dict[str, float]:
    """Rows inserted and deleted one after the other, as the papers measure it, in a structure that holds all others.
    They are handed over at once: a call from Python takes 50 microseconds, whatever the structure does with its row."""
    few = min(UPDATED, len(clauses) // 2)
    first, rest = max(few // 100, 1), len(clauses) - few
    kind: Any = find(one.structure)
    index = kind.build(clauses.take(np.arange(rest)), **one.options)
    rows = clauses.take(np.arange(rest + first, len(clauses)))
    index.insert(clauses.take(np.arange(rest, rest + first)))  # the first ones may make arrays that grow
    begin = time.process_time()
    index.insert(rows)
    middle = time.process_time()
    index.delete(np.arange(rest, len(clauses)))
    end = time.process_time()
    return {"insert_us": (middle - begin) / max(len(rows), 1) * 1e6, "delete_us": (end - middle) / few * 1e6}


GIGABYTE = 1 << 30
IDLE = 300


class Limits(NamedTuple):
    """Of one structure at one point, the data included."""

    gigabytes: float = 12
    minutes: float = 10  # of processor time
    from_subscriptions: int = 20_000  # with fewer, nothing here can reach a limit: they are measured without a fork


class BeyondLimit(DibsError):
    """A point took more than it may."""


def run_within(limits: Limits, work: Callable[[], Any]) -> Any:
    """What the work returns, done in a fork. Raises BeyondLimit, and whatever the work raises."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)
    child = context.Process(target=_work, args=(there, limits, work))
    child.start()
    there.close()
    try:
        _wait(here, child.pid, limits)
        kind, found = here.recv()
    except EOFError:
        child.join()
        raise BeyondLimit(f"the process ended with {child.exitcode}, near {limits.gigabytes:g} GB") from None
    finally:
        here.close()
        child.kill()  # it has said what there is to say, or never will
        child.join()
    if kind == "memory":
        raise BeyondLimit(f"more than {limits.gigabytes:g} GB")
    if kind == "error":
        raise found
    return found


def _wait(here: Connection, process: int | None, limits: Limits) -> None:
    """Until there is something to read. A thread that memory fails in may leave others waiting for it: a process that
    takes no processor time for IDLE seconds is given up. (The time is limited from here: a process with RLIMIT_CPU has
    a clock that only moves with the kernel's ticks, of 4 ms.)"""
    used, since, most = -1, 0.0, 60 * limits.minutes * os.sysconf("SC_CLK_TCK")
    while not here.poll(1):
        try:
            now = sum(map(int, Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:13]))
        except OSError:
            return
        if now > most:
            raise BeyondLimit(f"more than {limits.minutes:g} minutes")
        since = since + 1 if now == used else 0.0
        used = now
        if since > IDLE:
            raise BeyondLimit(f"no more memory of its {limits.gigabytes:g} GB, and stuck")


def _work(there: Connection, limits: Limits, work: Callable[[], Any]) -> None:
    _limit_memory(limits)
    try:
        there.send(("done", work()))
    except MemoryError:
        there.send(("memory", None))
    except Exception as error:
        there.send(("error", error))


def _limit_memory(limits: Limits) -> None:
    """What the process may have written to: memory that is only reserved does not count (RLIMIT_DATA)."""
    most = int(limits.gigabytes * GIGABYTE)
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if hard == resource.RLIM_INFINITY or hard > most:
        resource.setrlimit(resource.RLIMIT_DATA, (most, hard))


class Lived:
    """Built from what came first; then a row goes and another one comes, one by one, and the events are matched after
    each step, from which the structure may learn. Its rows have the numbers that they have in `list_alive`."""

    def __init__(self, one: Series, clauses: Clauses, events: CodedEvents, steps: Steps):
        kind: Any = find(one.structure)
        (_, first), *others = steps
        self._index = kind.build(clauses.take(first), **one.options)
        number = {int(row): place for place, row in enumerate(first)}  # in the structure
        ever = len(first)
        for gone, come in others:
            for old, new in zip(gone.tolist(), come.tolist(), strict=True):
                self._index.delete(np.array([number.pop(old)]))
                self._index.insert(clauses.take(np.array([new])))
                number[new] = ever
                ever += 1
            self._index.match(events, 1)
            do_pending(self._index)
        alive = list_alive(steps)
        self._rows = np.full(ever, -1, np.int32)
        self._rows[[number[row] for row in alive.tolist()]] = np.arange(len(alive))

    def match(self, events: CodedEvents, threads: int, sink: Sink | None = None) -> Pairs:
        return renumber(partial(self._index.match, events, threads), None, self._rows, None, sink)

    @property
    def nbytes(self) -> int:
        return int(self._index.nbytes)


def list_alive(steps: Steps) -> Rows:
    """The rows that are there after all steps, in order."""
    alive: set[int] = set()
    for gone, come in steps:
        alive = alive.difference(gone.tolist()).union(come.tolist())
    return np.array(sorted(alive), np.int64)
