"""How one point of a figure is measured.

All structures of a point see the same subscriptions and events and must find the same matches; they take turns, in
another order each round, and the best and the median of the processor times are kept.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Union

import numpy as np

from dibs.coding.batch import CodedEvents, code_events
from dibs.coding.clauses import Clauses, code_clauses
from dibs.coding.events import read_events
from dibs.errors import DibsError, IndexTooLarge
from dibs.index import create, find
from dibs.index.base import Index, Pairs, do_pending
from dibs.papers.experiments.experiment import Data, Experiment, Series, Size, Steps
from dibs.papers.experiments.living import Lived, list_alive
from dibs.segments.compile import compile_texts
from dibs.thresholds import thresholds

SECONDS = 0.5  # of repeats per structure and point; two rounds are always made
UPDATED = 2_000  # rows that are inserted, and deleted again
Say = Callable[[str], None]
Measured = Union[Index, Lived]


class DifferentMatches(DibsError):
    """Two structures found different matches: no time is reported."""


def measure_point(wanted: Experiment, value: Any, size: Size, say: Say = lambda text: None) -> dict[str, Any]:
    """All structures of an experiment at one value of what varies."""
    if wanted.measure is not None:
        return wanted.measure(value, size)
    data = wanted.workload(value, size)
    kinds = data if isinstance(data, dict) else {"": data}
    rows: dict[str, dict[str, Any]] = {}
    for kind, own in kinds.items():
        clauses, events = code(own)
        series = [one for one in wanted.series_at(value) if one.data == kind]
        where = f"{wanted.about} at {value}"
        rows |= _measure(where, series, Coded(clauses, events, own.steps), size.repeats, say)
    shown = next(iter(kinds.values()))
    return {"x": value, "subscriptions": len(shown.expressions), "events": size.events, "rows": rows}


class Coded(NamedTuple):
    clauses: Clauses
    events: CodedEvents
    steps: Steps


def _measure(where: str, series: Sequence[Series], coded: Coded, repeats: int, say: Say) -> dict[str, dict[str, Any]]:
    clauses, events, steps = coded
    rows: dict[str, dict[str, Any]] = {}
    built: dict[str, Measured] = {}
    found: dict[str, tuple[int, int]] = {}
    for one in series:
        say(one.label)
        rows[one.label], index = _build(one, coded)
        if index is not None:
            built[one.label] = index
            pairs = index.match(events, 1)
            found[one.label] = pairs.count, _digest(pairs)
            rows[one.label] |= {"matches": pairs.count} | _count(pairs, len(events))
    if len(set(found.values())) != 1:
        raise DifferentMatches(f"{where}: structures differ in their matches: {found}")
    for label, times in _take_turns(built, events, repeats).items():
        rows[label] |= {"match_us": min(times), "median_us": float(np.median(times)), "all_us": times}
    for one in series:
        if one.updates and one.label in built and not steps:
            rows[one.label] |= _update(one, clauses)
    return rows


def code(data: Data) -> tuple[Clauses, CodedEvents]:
    compiled = compile_texts(data.expressions.cast("large_string"))
    if compiled.errors:
        raise next(iter(compiled.errors.values()))
    domains, clauses = code_clauses(compiled.table)
    names = frozenset(attribute for attribute, _ in domains.attributes)
    return clauses, code_events(read_events(data.events, names, attributes=data.attributes), domains)


def _build(one: Series, coded: Coded) -> tuple[dict[str, Any], Measured | None]:
    clauses, events, steps = coded
    few = clauses.take(np.arange(min(len(clauses), 50)))
    create(one.structure, few, **one.options).match(events, 1)  # compiles, or loads what was compiled
    begin = time.process_time()
    try:
        index: Measured
        if steps and one.updates:
            index = Lived(one, clauses, events, steps)
        else:
            index = create(one.structure, clauses.take(list_alive(steps)) if steps else clauses, **one.options)
    except IndexTooLarge as e:
        return {"refused": str(e)}, None
    built = {"build_s": time.process_time() - begin, "bytes": index.nbytes}
    if one.structure == "auto" and not isinstance(index, Lived):
        # It plans by the events that it has seen, once they are enough, and again when there is reason to.
        for _ in range(2 + 2 * thresholds.enough_events // max(len(events), 1)):
            index.match(events, 1)
            do_pending(index)
    return built, index


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


def _take_turns(built: dict[str, Measured], events: CodedEvents, repeats: int) -> dict[str, list[float]]:
    """Microseconds per event of each round."""
    times: dict[str, list[float]] = {label: [] for label in built}
    order = list(built)
    draw = random.Random(1)
    for _ in range(repeats):
        draw.shuffle(order)
        for label in order:
            if len(times[label]) >= 2 and sum(times[label]) * len(events) / 1e6 > SECONDS:
                continue
            begin = time.process_time()
            built[label].match(events, 1)
            times[label].append((time.process_time() - begin) / len(events) * 1e6)
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
