"""Is `auto` the fastest on shapes that nobody tuned it to? Every structure in turn, on shapes that a seed draws.

    python benchmarks/sampler.py                            the named shapes of benchmarks/shapes.py
    python benchmarks/sampler.py --seed 7 --count 50        fifty of seed 7
    python benchmarks/sampler.py --only rectangles --structures counting kindex

Processor time of one thread from coded events to pairs, the best of three rounds, in a process of its own for each
structure with so many bytes and seconds; one that finds another number of matches ends the run. Where `auto` takes more
than MARK times the best, both are measured again in one process, seven rounds in turns. Coding of the events, which
all share, is told apart. `auto` has seen the events before it is timed, as it has in a service.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from dibs.coding.batch import CodedEvents, code_events
from dibs.coding.clauses import Clauses
from dibs.coding.events import read_events
from dibs.errors import DibsError
from dibs.index import AUTO, INDEXES, Index, create
from dibs.index.base import do_pending
from dibs.matcher import Matcher
from measure import MICRO, events_from, segments_of
from shapes import NAMED, Maker, Shape, drawn

MARK = 1.1  # times the best structure: above it, a point is measured again
SLOW = ("scan", "naive")  # the oracle and a baseline: not among the rivals unless named
ROUNDS, AGAIN = 3, 7
SETTLING, ENOUGH = 5.0, 6_000  # seconds, and events between two looks at its plan, that `auto` is shown events for
LONG = 0.3  # seconds of one round, about: slow structures get fewer events


@dataclass(frozen=True)
class Limits:
    gigabytes: float
    seconds: float


@dataclass(frozen=True)
class Point:
    """What is matched."""

    clauses: Clauses
    batches: list[CodedEvents]
    coding: float  # microseconds for an event

    @property
    def events(self) -> int:
        return sum(map(len, self.batches))


Outcome = dict[str, Any]  # "refused": why; or "us", "bytes", "matches" of the first `events`, "build"


def prepare(shape: Shape, seed: int) -> Point:
    maker = Maker(shape, seed)
    matcher = Matcher(threads=1)
    matcher.add_many(list(enumerate(maker.texts())))
    matcher.match_batch([])
    (segment,) = segments_of(matcher)
    values = read_events(maker.events(), segment.names)
    code_events(values, segment.domains)
    start = time.process_time()
    coded = code_events(values, segment.domains)
    spent = time.process_time() - start
    batches = [events_from(coded, i, min(i + shape.batch, len(coded))) for i in range(0, len(coded), shape.batch)]
    return Point(segment.clauses, batches, spent / len(coded) * MICRO)


def sample(shape: Shape, seed: int, names: Sequence[str], limits: Limits) -> Outcome:
    """The figures of all structures for one shape."""
    point = prepare(shape, seed)
    rows: dict[str, Outcome] = {}
    for name in names:
        rows[name] = _in_a_process(lambda name=name: _measure(name, point, ROUNDS)[name], limits)  # type: ignore[misc]
    if "us" not in rows[AUTO]:
        raise AssertionError(f"{shape.name}: auto has no figure: {rows[AUTO]['refused']}")
    matches = {name: _per_event(row) for name, row in rows.items() if "us" in row}
    full = {round(row["matches"] / row["events"], 9) for row in rows.values() if row.get("events") == point.events}
    if len(full) > 1:
        raise AssertionError(f"{shape.name}: structures found different matches per event: {matches}")
    rivals = {name: row["us"] for name, row in rows.items() if "us" in row and name != AUTO}
    best = min(rivals, key=lambda name: rivals[name], default=AUTO)
    if best != AUTO and rows[AUTO]["us"] > MARK * rows[best]["us"]:
        again = _in_a_process(lambda: _measure_in_turns((AUTO, best), point), limits)
        for name in (AUTO, best):
            rows[name] |= again.get(name, {})
    return {
        "shape": str(shape),
        "matches": rows[AUTO]["matches"] / rows[AUTO]["events"],
        "coding": point.coding,
        "best": best,
        "ratio": rows[AUTO]["us"] / rows[best]["us"],
        "plan": rows[AUTO]["plan"],
        "structures": rows,
    }


def _per_event(row: Outcome) -> float:
    return float(row["matches"] / row["events"])


def _measure(name: str, point: Point, rounds: int) -> dict[str, Outcome]:
    start = time.process_time()
    index = create(name, point.clauses)
    built = time.process_time() - start
    run, row = _prepare_runs(index, point)
    row |= {"us": min(_microseconds(run, row["events"]) for _ in range(rounds)), "build": built, "bytes": index.nbytes}
    return {name: row}


def _measure_in_turns(names: Sequence[str], point: Point) -> dict[str, Outcome]:
    runs = {name: _prepare_runs(create(name, point.clauses), point) for name in names}
    spent: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(AGAIN):
        for name, (run, row) in runs.items():
            spent[name].append(_microseconds(run, row["events"]))
    return {name: {"us": min(each)} for name, each in spent.items()}


def _prepare_runs(index: Index, point: Point) -> tuple[Callable[[], int], Outcome]:
    """What is timed: as many batches as one round has time for; and how many events and matches these are."""
    if index.name == AUTO:
        _settle(index, point)
    first = events_from(point.batches[0], 0, min(20, len(point.batches[0])))
    index.match(first, 1)
    start = time.process_time()
    index.match(first, 1)
    each = (time.process_time() - start) / len(first)
    most, taken, batches = max(LONG / max(each, 1e-9), 1), 0, []
    for batch in point.batches:
        if taken >= most:
            break
        part = batch if taken + len(batch) <= most else events_from(batch, 0, int(most - taken))
        batches.append(part)
        taken += len(part)

    def run() -> int:
        return sum(index.match(batch, 1).count for batch in batches)

    row = {"events": taken, "matches": run()}
    if index.name == AUTO:
        row["plan"] = {k: v for k, v in index.plan().items() if k != "grounds"}
    return run, row


def _settle(index: Index, point: Point) -> None:
    """Shows `auto` events until its plan stays as it is, or for some seconds."""
    until, unchanged, plans = time.process_time() + SETTLING, 0, 1
    while unchanged < 3 and time.process_time() < until:
        seen = 0
        for batch in point.batches:
            if seen < ENOUGH and time.process_time() < until:
                index.match(batch, 1)
                do_pending(index)
                seen += len(batch)
        unchanged = unchanged + 1 if index.plan()["plans"] == plans else 0
        plans = index.plan()["plans"]


def _microseconds(run: Callable[[], int], events: int) -> float:
    start = time.process_time()
    run()
    return (time.process_time() - start) / events * MICRO


def _in_a_process(work: Callable[[], Outcome], limits: Limits) -> Outcome:
    """What `work` gives in a child that has so many bytes more, and so many seconds."""
    context = multiprocessing.get_context("fork")  # the clauses and events need not be sent
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(work, limits, theirs))
    process.start()
    theirs.close()
    try:
        if not ours.poll(limits.seconds):
            process.kill()
            return {"refused": f"more than {limits.seconds:g} s"}
        answer: Outcome = ours.recv()
        if "failed" in answer:
            raise RuntimeError(answer["failed"])
        return answer
    except EOFError:
        return {"refused": "its process ended, as one without memory does"}
    finally:
        process.join()


def _answer(work: Callable[[], Outcome], limits: Limits, to: Connection) -> None:
    try:
        with suppress(OSError, ValueError):  # where there is no such limit
            now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (now + int(limits.gigabytes * 2**30), resource.RLIM_INFINITY))
        to.send(work())
    except MemoryError:
        to.send({"refused": f"more than {limits.gigabytes:g} GB"})
    except DibsError as e:
        to.send({"refused": str(e).splitlines()[0]})
    except Exception as e:
        to.send({"failed": f"{type(e).__name__}: {e}"})


def tell(result: Outcome) -> None:
    """A line for each structure, the fastest first."""
    print(f"\n{result['shape']}\n  {result['matches']:.4g} matches; coding {result['coding']:.2f} us; {result['plan']}")
    rows = result["structures"]
    for name in sorted(rows, key=lambda name: rows[name].get("us", float("inf"))):
        row = rows[name]
        if "us" in row:
            print(f"  {name:14} {row['us']:10.3f} us {row['bytes']:14,} bytes   built in {row['build']:.2f} s")
        else:
            print(f"  {name:14} {row['refused']}")
    print(f"  auto / {result['best']}: {result['ratio']:.2f}", flush=True)


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, help="draw shapes by this seed; without it, the named ones")
    parser.add_argument("--count", type=int, default=24, help="so many of them")
    parser.add_argument("--first", type=int, default=0, help="from this one on")
    parser.add_argument("--largest", type=int, default=100_000, help="subscriptions, at most")
    parser.add_argument("--only", nargs="*", choices=list(NAMED), help="some of the named ones")
    parser.add_argument("--structures", nargs="*", choices=list(INDEXES), help="rivals; without it, all but the slow")
    parser.add_argument("--gigabytes", type=float, default=8.0)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--out", type=Path, help="results as JSON lines")
    options = parser.parse_args(arguments)
    rivals = [n for n in INDEXES if n not in SLOW] if options.structures is None else options.structures
    names = [AUTO, *(name for name in rivals if name != AUTO)]
    limits = Limits(options.gigabytes, options.seconds)
    seed = options.seed or 0
    if options.seed is None:
        shapes = [NAMED[name] for name in options.only or NAMED]
    else:
        shapes = [drawn(seed, options.first + i, options.largest) for i in range(options.count)]
    ratios = []
    for shape in shapes:
        result = sample(shape, seed, names, limits)
        tell(result)
        ratios.append(result["ratio"])
        if options.out:
            with options.out.open("a") as file:
                file.write(json.dumps(result) + "\n")
    within = sum(ratio <= MARK for ratio in ratios)
    print(f"\nauto at most {MARK} times the best at {within} of {len(ratios)} shapes; at worst {max(ratios):.2f} times")


if __name__ == "__main__":
    main(sys.argv[1:])
