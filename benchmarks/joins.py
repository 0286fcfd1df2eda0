"""Joins over history at scale: microseconds per event, by the size of the history, with and without each idea.

    python benchmarks/joins.py --quick      a minute
    python benchmarks/joins.py              100,000 subscriptions, 1,000,000 documents: five minutes

    phases       joins first, constants first; each with and without the pre-filter
    wishes       the same where the pre-filter pays: each subscription has a join of its own and constants that are true
                 of most events, and 19 of 20 wait for what was never offered
    sharing      each distinct join once per event, or once for each subscription (answered, without matching)
    growth       single joins of each shape over 10,000, 100,000 and 1,000,000 documents
    DuckDB       some of the subscriptions as correlated subqueries, on the same documents, with an index on what most
                 of them equate, for all events at once; and their joins alone, without the constants beside them

Processor time of one thread, the best of several turns; ways take turns. All ways must find the same matches, and
DuckDB those of its subscriptions, or nothing is printed.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import duckdb
import numpy as np

import dibs
from dibs.coding.events import WantedNames, read_events
from dibs.history.coded.answers import Answering, one_view
from dibs.history.plan import plan_of
from dibs.language.printer import JOIN
from dibs.papers.workloads.joins import SHAPES, JoinWorkload, Market, generate, offers, spell

WAYS = [(order, prefilter) for order in ("joins", "constants") for prefilter in (False, True)]
KINDS = ("equated key and bound", "not seen before", "bound and constant", "least of a key", "count in a window")
SINGLE = (
    "EXISTS d (d.price < price)",
    "EXISTS d (d.sku = sku)",
    "(SELECT COUNT(*) FROM history d WHERE d.price < price) > 5",
)


def measure(work: Callable[[], Any], turns: int) -> float:
    """Seconds of the processor: the best of some turns."""
    best = float("inf")
    for _ in range(turns):
        begin = time.process_time()
        work()
        best = min(best, time.process_time() - begin)
    return best


def measure_phases(m: dibs.Matcher, work: JoinWorkload, turns: int) -> int:
    """Prints each way; returns how many pairs match."""
    counts, times = set(), dict.fromkeys(WAYS, float("inf"))
    for way in WAYS:  # what each way builds is not counted
        m.plan_joins(*way)
        begin = time.process_time()
        counts.add(m.match_batch(work.events).count)
        print(f"  {name_of(*way)}: {time.process_time() - begin:.2f} s for the first batch", flush=True)
    for _ in range(turns):
        for way in WAYS:
            m.plan_joins(*way)
            times[way] = min(times[way], measure(lambda: counts.add(m.match_batch(work.events).count), 1))
    assert len(counts) == 1, f"the ways differ in their matches: {counts}"
    for way, seconds in times.items():
        print(f"{name_of(*way):42} {seconds / len(work.events) * 1e6:10,.1f} µs per event")
    print(f"  {m.explain_plan().split('pre-filter: ')[1].splitlines()[0]}")
    return counts.pop()


def name_of(order: str, prefilter: bool) -> str:
    return f"{order} first, {'with' if prefilter else 'without'} the pre-filter"


def measure_sharing(m: dibs.Matcher, work: JoinWorkload, events: int) -> None:
    """The joins of all subscriptions, each distinct one once, or all of them."""
    some = work.events.slice(0, events)
    plans = [plan_of(JOIN + join) for join in m.joins]
    times = len(work.texts) // len(plans)
    values = read_events(some, WantedNames({name for plan in plans for name in plan.event_attributes}))
    state = m.history.state
    for label, own in (("shared", plans), ("each subscription its own", plans * times)):
        answering = Answering(own)
        snapshot = state.coded.at(state, answering.compiled)
        view = one_view(state, values.events, snapshot.base)
        took = measure(lambda a=answering, s=snapshot, v=view: a.answer(values, s, v), 2) / values.events
        print(f"{'joins answered, ' + label:42} {took * 1e6:10,.1f} µs per event, {len(own):,} joins", flush=True)


def measure_growth(sizes: list[int], events: int, turns: int) -> None:
    """One join after the other: nanoseconds per event, by the size of the history."""
    draw = np.random.default_rng(7)
    market = Market()
    shapes = {kind: spell(shape.format(7), "") for kind, shape in zip(KINDS, SHAPES)}
    shapes |= {text: text for text in SINGLE}
    documents, seen = offers(market, 0, sizes[-1], draw), offers(market, sizes[-1], events, draw)
    found: dict[str, list[str]] = {kind: [] for kind in shapes}
    for size in sizes:
        for kind, text in shapes.items():
            with dibs.Matcher(threads=1) as m:
                m.add(1, text)
                m.history.load(documents.slice(sizes[-1] - size))
                m.match_batch(seen)
                found[kind].append(f"{measure(lambda m=m: m.match_batch(seen), turns) / events * 1e6:7.2f}")
    print(f"one join, µs per event{'':20} " + " ".join(f"{size:>10,}" for size in sizes))
    for kind, figures in found.items():
        print(f"  {kind[:46]:46} " + "    ".join(figures))


def measure_bytes(m: dibs.Matcher) -> None:
    parts = m.history.state.coded.snapshot.nbytes
    size = len(m.history)
    told = ", ".join(f"{part} {number / size:,.1f}" for part, number in parts.items() if number)
    print(f"bytes per document: {sum(parts.values()) / size:,.1f} ({told}), and the document itself")


def ask_duckdb(m: dibs.Matcher, work: JoinWorkload, some: int, ours: float) -> None:
    """Some subscriptions, as many of each shape; one query for each, over all events."""
    m.plan_joins()
    expected = dict.fromkeys(range(some), 0)  # shapes take turns
    for ids in m.match_batch(work.events):
        for id in expected.keys() & set(ids):
            expected[id] += 1
    with duckdb.connect() as connection:
        connection.execute("SET threads = 1")
        for name, rows in (("events", work.events), ("documents", work.documents)):
            connection.register(name, rows)
        connection.execute("CREATE TABLE e AS SELECT * FROM events")
        connection.execute("CREATE TABLE history AS SELECT * FROM documents")
        connection.execute("CREATE INDEX by_sku ON history (sku)")
        for what, times in (("all subscriptions", len(work.texts)), ("the distinct joins alone", len(m.joins))):
            begin = time.process_time()
            for number, count in expected.items():
                text = spell(work.templates[number] if times == len(work.texts) else work.joins[number], "e.")
                found = connection.execute(f"SELECT count(*) FROM e WHERE {text}").fetchall()[0][0]
                assert times != len(work.texts) or found == count, f"DuckDB finds {found}, not {count}: {text}"
            each = (time.process_time() - begin) / some / len(work.events)
            print(
                f"DuckDB, {what}: {each * times * 1e6:,.0f} µs per event, {each * times / ours:,.0f} times as long "
                f"(from {some} of them and {len(work.events):,} events, {each * 1e6:,.1f} µs each)",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of everything")
    parser.add_argument("--subscriptions", type=int)
    parser.add_argument("--joins", type=int)
    parser.add_argument("--documents", type=int)
    parser.add_argument("--events", type=int, default=1_000)
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    part = 20 if options.quick else 1
    subscriptions, joins = options.subscriptions or 100_000 // part, options.joins or 2_000 // part
    documents = options.documents or 1_000_000 // part
    work = generate(Market(), subscriptions, joins, documents, options.events)
    print(
        f"{subscriptions:,} subscriptions, {joins:,} distinct joins, {documents:,} documents, {options.events:,} events"
    )
    with dibs.Matcher(threads=1) as m:
        begin = time.process_time()
        m.add_many(list(enumerate(work.texts)))
        print(f"  added in {time.process_time() - begin:.1f} s", flush=True)
        m.history.load(work.documents)
        pairs = measure_phases(m, work, options.turns)
        print(f"  {pairs:,} matches")
        measure_sharing(m, work, max(options.events // 20, 10))
        measure_bytes(m)
        m.plan_joins()
        ours = measure(lambda: m.match_batch(work.events).count, options.turns) / options.events
        print(f"{'left to itself':42} {ours * 1e6:10,.1f} µs per event", flush=True)
        ask_duckdb(m, work, 20 if options.quick else 40, ours)
    wishes = generate(Market(waiting=0.95, broad=1.0), joins, joins, documents, max(options.events // 10, 10))
    print(f"{joins:,} wishes, each with a join of its own, {documents:,} documents, {len(wishes.events):,} events")
    with dibs.Matcher(threads=1) as m:
        m.add_many(list(enumerate(wishes.texts)))
        m.history.load(wishes.documents)
        print(f"  {measure_phases(m, wishes, options.turns):,} matches")
    sizes = [10_000, 100_000, 1_000_000]
    measure_growth([size for size in sizes if size <= documents] or [documents], options.events, options.turns)


if __name__ == "__main__":
    main()
