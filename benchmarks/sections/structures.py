"""How does every index structure do, beside `auto` and `scan`: all names of dibs.index.INDEXES on the same workloads.

Each structure is built and matched in a process of its own, which may take so much memory and so much time; where it
refuses or takes more, a third of the subscriptions are tried, then a tenth and so on, and the row says so. Its matches
are those of `auto`, pair by pair, before it is timed; those of `auto` are those of `scan`. It and `auto` (over the same
subscriptions) take turns; slow structures get fewer events than fast ones. The row of `auto` has the middle of its
times in all these processes.
"""

from __future__ import annotations

import multiprocessing
import resource
import signal
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import numpy as np

from dibs.coding.batch import CodedEvents
from dibs.coding.clauses import Clauses
from dibs.errors import IndexTooLarge
from dibs.index import AUTO, INDEXES, create
from dibs.papers.workloads import boolean
from measure import (
    Keys,
    Say,
    Size,
    coded_events,
    events_from,
    forget_peak,
    interleaved,
    matcher_of,
    peak_bytes,
    per_event,
    resident_bytes,
    settle,
    timed,
)

SHARES = (1, 0.3, 0.1, 0.03)  # of the subscriptions
MOST_MEMORY = 8 << 30  # bytes of address space, on top of what the process has before it builds
WARM_UP = 300  # subscriptions
SLOW_IMPORTS = ["dibs.matching", "dibs.papers.workloads.boolean"]  # once for all processes of a run
FEWEST_EVENTS = 20
# What a process does one after the other, and the seconds that it has for each.
SECONDS = {"compiling": 600, "building": 60, f"matching {FEWEST_EVENTS} events": 20, "timing": 120}
SECONDS_A_CALL, SECONDS_OF_CALLS = 0.03, 0.3  # of one timed call and of all calls of a structure, for each repeat


def run(size: Size, say: Say) -> dict[str, Any]:
    names = list(size.structures or INDEXES)
    unknown = [name for name in names if name not in INDEXES]
    if unknown:
        raise SystemExit(f"no index is called {', '.join(unknown)}; there are: {', '.join(INDEXES)}")
    names = [AUTO, *(name for name in names if name != AUTO)]
    workloads = {}
    for shape in size.workloads:
        with TemporaryDirectory() as folder:
            workloads[shape] = _prepare(shape, size, Path(folder), say)
            rows = workloads[shape]["rows"] = [_row(shape, name, size, folder, say) for name in names]
            rows[0]["microseconds per event"] = _typical(rows)
    return {"subscriptions": size.structure_subscriptions, "workloads": workloads}


def _typical(rows: list[dict[str, Any]]) -> float:
    """What `auto` took: the middle of what it took in the turns with all structures of the full size."""
    full = rows[0]["subscriptions"]
    times = [r["auto: microseconds per event"] for r in rows if r.get("subscriptions") == full]
    return float(np.median(times))


def _prepare(shape: str, size: Size, folder: Path, say: Say) -> dict[str, Any]:
    """Writes clauses, events and the pairs of `auto`, which `scan` confirms for some events."""
    say(f"{shape}: generating")
    workload = boolean.make_named(shape, size.structure_subscriptions, events=size.events)
    _, segment, _ = matcher_of(workload, lambda text: say(f"{shape}: {text}"))
    coded = coded_events(workload.event_batch(), segment, "attributes")
    found = create(AUTO, segment.clauses).match(coded, 1)
    say(f"{shape}: asking scan for the matches of a few events")
    few = min(size.few_events, len(coded))
    sample = create("scan", segment.clauses).match(events_from(coded, 0, few), 1)
    Keys(found.event, found.row).check("scan", sample.event, sample.row, few)
    arrays = {name: getattr(segment.clauses, name) for name in Clauses.ARRAYS}
    arrays |= {f"event_{name}": getattr(coded, name) for name in ("offsets", "attribute", "lo")}
    arrays |= {"numbers": np.array([segment.clauses.conjunctions, segment.clauses.attributes])}
    arrays |= {"pair_event": found.event, "pair_row": found.row}
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    return {
        "attributes": workload.shape.attributes,
        "predicates": len(segment.clauses.attribute),
        "matches per event": len(found) / len(coded),
    }


def _row(shape: str, name: str, size: Size, folder: str, say: Say) -> dict[str, Any]:
    """The figures of one structure, at the largest size at which it has any."""
    refused: dict[str, str] = {}
    row: dict[str, Any] = {"structure": name, "refused": refused}
    for share in SHARES:
        n = max(int(size.structure_subscriptions * share), 1)
        outcome = _measure(name, n, size.repeats, folder, lambda text, n=n: say(f"{shape}: {name}, {n:,}: {text}"))
        if isinstance(outcome, dict):
            row |= {"subscriptions": n, **outcome}
            figures = outcome["microseconds per event"], outcome["/ auto"], outcome["build seconds"]
            text = "{:,.1f} us an event, {:.2f} times auto; built in {:.2f} s".format(*figures)
            say(f"{shape}: {name}, {n:,}: {text}\n")
            return row
        refused[str(n)] = outcome
        say(f"{shape}: {name}, {n:,}: {outcome}\n")
    return row


def _measure(name: str, subscriptions: int, repeats: int, folder: str, say: Say) -> dict[str, Any] | str:
    """The figures, or why there are none."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(SLOW_IMPORTS)
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(name, subscriptions, repeats, MOST_MEMORY, folder, theirs))
    process.start()
    theirs.close()
    try:
        for step, seconds in SECONDS.items():
            say(step)
            if not ours.poll(seconds):
                process.kill()
                return f"more than {seconds} s of {step}"
            kind, content = ours.recv()
            if kind == "refused":
                return str(content)
            if kind == "failed":
                raise content
            if kind == "done":
                return dict(content)
        raise AssertionError("the process has more steps than are known here")
    except EOFError:
        process.join()
        if process.exitcode in (-signal.SIGKILL, -signal.SIGABRT):
            return f"its process ended with {process.exitcode}, as one without memory does"
        raise RuntimeError(
            f"{name}, {subscriptions:,} subscriptions: its process ended with {process.exitcode}"
        ) from None
    finally:
        process.join()


def _answer(name: str, subscriptions: int, repeats: int, memory: int, folder: str, to: Connection) -> None:
    """Runs in the structure's process: a message at the end of each step of SECONDS."""
    with suppress(BrokenPipeError, KeyboardInterrupt):
        try:
            for step in _steps(name, subscriptions, repeats, memory, Path(folder)):
                to.send(("ended", None) if step is None else ("done", step))
        except IndexTooLarge as e:
            to.send(("refused", str(e).split(";")[0].split("\n")[0]))
        except MemoryError:
            to.send(("refused", f"more than {memory / 2**30:g} GB of memory"))
        except Exception as e:
            to.send(("failed", type(e)(f"{name}: {e}") if isinstance(e, AssertionError) else e))


def _steps(name: str, subscriptions: int, repeats: int, memory: int, folder: Path) -> Iterator[dict[str, Any] | None]:
    clauses, events, keys = _kept(folder, subscriptions)
    sample = events_from(events, 0, min(FEWEST_EVENTS, len(events)))
    create(name, _first(clauses, WARM_UP)).match(sample, 1)  # compiles, or loads what was compiled
    auto = create(AUTO, clauses)
    settle(SimpleNamespace(index=auto), events)
    yield None

    before = resident_bytes()
    _limit_memory(memory)
    forget_peak()
    seconds, index = timed(lambda: create(name, clauses))
    peak = peak_bytes() - before
    yield None

    trial, _ = timed(lambda: index.match(sample, 1))
    yield None

    if name == AUTO:
        settle(SimpleNamespace(index=index), events)
    few = int(np.clip(SECONDS_A_CALL * repeats / trial * len(sample), len(sample), len(events)))
    part = events_from(events, 0, few)
    found = index.match(part, 1)
    keys.check(name, found.event, found.row, few)
    for _ in range(2):
        if seconds < 2:
            seconds = min(seconds, timed(lambda: create(name, clauses))[0])
    rounds = int(np.clip(SECONDS_OF_CALLS * repeats / (trial / len(sample) * few), min(repeats, 3), repeats))
    rivals = {"own": lambda: index.match(part, 1), AUTO: lambda: auto.match(events, 1)}
    runs = interleaved(rivals, rounds)
    own, others = (per_event({n: runs[n]}, e)[n]["best"] for n, e in (("own", few), (AUTO, len(events))))
    yield {
        "build seconds": seconds,
        "bytes per subscription": index.nbytes / subscriptions,
        "peak bytes per subscription": peak / subscriptions,
        "microseconds per event": own,
        "auto: microseconds per event": others,
        "/ auto": 1.0 if name == AUTO else own / others,
        "events": few,
        "matches per event": found.count / few,
        "candidates per event": found.candidates / few,
        "false candidates per event": found.false_candidates / few,
        "predicates evaluated per event": found.predicates / few,
        "nodes per event": found.nodes / few,
    }


def _kept(folder: Path, subscriptions: int) -> tuple[Clauses, CodedEvents, Keys]:
    """What _prepare wrote, of the first subscriptions."""

    def array(name: str) -> Any:
        return np.load(folder / f"{name}.npy")

    conjunctions, attributes = array("numbers").tolist()
    columns = {name: array(name) for name in Clauses.ARRAYS}
    clauses = Clauses(**columns, conjunctions=conjunctions, attributes=attributes)
    cell = array("event_lo")
    events = CodedEvents(array("event_offsets"), array("event_attribute"), cell, cell, True)
    event, row = array("pair_event"), array("pair_row")
    kept = row < subscriptions
    return _first(clauses, subscriptions), events, Keys(event[kept], row[kept])


def _first(clauses: Clauses, rows: int) -> Clauses:
    """The first rows, all of them conjunctions."""
    rows = min(rows, len(clauses))
    assert clauses.conjunctions == len(clauses), "the workloads have no OR"
    offsets = clauses.offsets[: rows + 1].copy()
    columns = {name: getattr(clauses, name)[: offsets[-1]].copy() for name in ("attribute", "lo", "hi")}
    others = {name: getattr(clauses, name) for name in ("span_lo", "span_hi", "on_true", "on_false")}
    return Clauses(offsets=offsets, **columns, **others, conjunctions=rows, attributes=clauses.attributes)


def _limit_memory(more: int) -> None:
    """From now on this process may have so many bytes more of address space; asking for more is a MemoryError."""
    with suppress(OSError, ValueError):  # where there is no /proc, or no such limit
        now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now + more, resource.RLIM_INFINITY))
