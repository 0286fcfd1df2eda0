"""What is run so that kernels get compiled: a small use of everything, in parts that several processes take.

No list of kernels or of their types is kept. The last part, `life`, is what users do, so whatever it leaves uncompiled
nobody needs (tests/test_warming.py looks for kernels that were never reached). It runs by itself in the end and finds
most of its kernels compiled by the other parts, which begin at different stages of the pipeline, with input that was
made without the stages before: so they can run at once. All of it runs with numbers (dibs.tuning) as they are and at
their smallest, which leads small input through all paths.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from datetime import date, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dibs.coding.batch import CodedEvents, code_events
from dibs.coding.clauses import Clauses, code_clauses
from dibs.coding.events import read_events
from dibs.coding.merge import merge_domains, move_clauses
from dibs.coding.repeats import RowRuns, Spreading, find_repeats
from dibs.coding.values import Range
from dibs.index import AUTO, create, restore
from dibs.index.auto.planner import Auto
from dibs.index.base import do_pending
from dibs.language.normal_form import normal_form
from dibs.language.sql import parse
from dibs.language.table import ACCEPT, REJECT
from dibs.matcher import Matcher
from dibs.past.backtest import backtest
from dibs.segments.compile import compile_forms, compile_mixed, compile_texts, form_of
from dibs.segments.id_lists import COUNT, IDS, NUMBER, Frame
from dibs.tuning import smallest, using

SIMPLE = [
    "model = 'iphone5s' AND color = 'silver' AND price <= 580",
    "price BETWEEN 10 AND 20",
    "price > 5.5 AND count >= 9007199254740993",
    "brand LIKE 'App%' AND price < 600",
    "color IN ('red', 'silver') AND stock = TRUE",
    "price <> 7 AND color <> 'blue'",
    "day >= DATE '2026-01-31'",
    "item.price < 3 AND size NOT IN (1, 2)",
]
GENERAL = [
    "brand LIKE 'App%' OR price BETWEEN 10 AND 20",
    "(price < 5 OR price > 50) AND (color = 'red' OR stock)",
    "NOT (color = 'red' AND price IS NOT NULL)",
    "at < TIMESTAMP '2026-01-31 12:00:00' OR brand IS NULL",
    "brand LIKE '%ple' AND note LIKE '%new%'",
    "note RLIKE '[0-9]+x' OR note NOT LIKE '%a_c%'",
    "price NOT BETWEEN 3 AND 4 OR size NOT IN (1, 2, 3)",
    "ip_in(host, '10.0.0.0/8', '2001:db8::/32')",
    "geo_distance(lat, lon, 52.52, 13.4) < 5000",
    "geo_distance(lat, lon, lat, lon) < 5",
    "exists(items, x -> x.price > 3) OR items[0].price < 2",
    "TRUE",
]
TEXTS = [*SIMPLE, *GENERAL]
COMPUTED = ["price * 2 > 10", "price * 2 > 20"]  # one like the other
ALMOST_THERE = f"note LIKE '%{'a' * 200}_b%'"  # again and again, in a string of one letter
EVENT = {"model": "iphone5s", "color": "silver", "price": 550, "brand": "Apple", "stock": True}
EVENTS: list[dict[str, Any]] = [
    EVENT,
    {"price": 5.75, "count": 2**53 + 1, "item": {"price": 2}, "note": "a new 3x", "lat": 52.53, "lon": 13.41},
    {"items": [{"price": 2}, {"price": 5}]},
    {"host": "10.1.2.3", "day": date(2026, 2, 1), "at": datetime(2026, 1, 1), "size": 4, "color": "red"},
    {},
]
UNUSUAL: list[dict[str, Any]] = [
    *EVENTS,
    {"price": [1, 20, 30], "color": ["red", "blue"]},
    {"price": Range(3, 30), "brand": Range("App", "Apq"), "day": Range(date(2026, 1, 1), date(2026, 3, 1))},
]
COLUMNS = ("model", "color", "price", "brand", "size")


def language() -> None:
    """Texts to forms and tables."""
    forms = [form_of(text) for text in TEXTS]
    compile_mixed(pa.array(TEXTS, pa.large_string()), forms)
    compile_texts(pa.array([*TEXTS * 20, *COMPUTED], pa.large_string()))


def coding() -> None:
    """Forms, made without kernels, to clauses; and events to cells."""
    forms = [normal_form(parse(text)) for text in TEXTS]
    for some in (forms[: len(SIMPLE) - 2], forms):
        domains, clauses = code_clauses(compile_forms(some).table)
        for events in (EVENTS, UNUSUAL):
            for batch in (events[:1], events * 10, _table(events)):
                values = read_events(batch, [name for name, _ in domains.attributes])
                code_events(values, domains).single_valued()
        merged, moves = merge_domains([domains, domains])
        rows = np.arange(len(clauses))
        twice, _ = move_clauses([(clauses, rows, move) for move in moves], len(merged.attributes))
        first = find_repeats(twice, None)
        assert first is not None
        repeats, pairs = RowRuns(np.arange(len(clauses) + 1, dtype=np.int32) * 2), (first[:3], first[:3])
        Spreading(repeats, lambda event, row: None)(*repeats.spread(pairs))
    domains, _ = code_clauses(compile_forms([normal_form(parse(ALMOST_THERE))]).table)
    code_events(read_events([{"note": "a" * 1_000}], ["note"]), domains)


FEW_ATTRIBUTES, MANY_ATTRIBUTES = (300, 20), (3_000, 5_000)  # clauses, and attributes of which an event has 5


def index(
    name: str = AUTO,
    sizes: tuple[tuple[int, int], ...] = (FEW_ATTRIBUTES, MANY_ATTRIBUTES),
    batches: tuple[int, ...] = (1, 3, 70),
) -> None:
    """Clauses, made by hand, to an index; and batches of so many coded events to pairs."""
    for clauses in (_plain_clauses(40, 20), *(_clauses(*size) for size in sizes)):
        attributes = clauses.attributes
        built = create(name, clauses)
        for _ in range(3):
            for several in (False, True):
                for count in batches:
                    events = _events(count, attributes, several)
                    built.match(events, 1)
                    built.match(events, 2, lambda event, row: None)
            do_pending(built)
        if isinstance(built, Auto):
            built.for_singles()
            Auto.restore(clauses, {name: _read_only(array) for name, array in built.arrays().items()}).for_singles()
        restore(name, clauses, built.arrays()).match(_events(1, attributes, False), 1)


def life() -> None:
    """What users do."""
    _read_lines()
    with tempfile.TemporaryDirectory(prefix="dibs-warm-") as place:
        folder = Path(place)
        with Matcher() as matcher:
            _use(matcher)
            matcher.save(folder / "saved")
        with Matcher.load(folder / "saved") as loaded:
            _ask(loaded)
        with Matcher.open(folder / "durable") as durable:
            _use(durable)
            durable.export(folder / "all.parquet")
        with Matcher.open(folder / "durable") as durable, Matcher.open(folder / "durable", read_only=True) as reader:
            _ask(durable)
            durable.remove(1_000)
            _ask(reader)
        with Matcher() as imported:
            imported.import_from(folder / "all.parquet")


def past() -> None:
    """Joins over history, and backtests."""
    with Matcher() as joining:
        _join(joining)
    backtest(SIMPLE, EVENTS)
    backtest(TEXTS, UNUSUAL)
    backtest(TEXTS, _table(EVENTS * 10))


def _use(matcher: Matcher) -> None:
    for i, text in enumerate(TEXTS):
        matcher.add(str(i), text, weight=i)
        if i in (0, 9):
            matcher.match(EVENT)
    _ask(matcher)
    matcher.add_many([(1_000 + i, text) for i, text in enumerate(TEXTS * 4)])
    # Distinct ones, and more than are merged at once: what comes next is scanned.
    column = [f"({text}) AND size <> {i}" for i, text in enumerate(TEXTS * 70)]
    matcher.add_table(pa.table({"id": [f"t{i}" for i in range(len(column))], "expression": column}))
    _ask(matcher)
    matcher.add("late", "price < 600")
    _ask(matcher)
    matcher.remove_many([str(0), 1_001, *(f"t{i}" for i in range(300))])
    matcher.replace("1", "price < 600")
    _ask(matcher)
    matcher.replay(EVENTS * 10)
    matcher.stats()
    matcher.compact()
    _ask(matcher)


def _join(matcher: Matcher) -> None:
    """Joins over a history that is long enough for runs, and grows."""
    matcher.add("exists", "EXISTS d (d.brand = brand AND d.price > price AND d.size IN (3, 4))")
    matcher.add("window", "EXISTS d (d.at > at - INTERVAL 1 DAY)")
    matcher.add("least", "price < (SELECT MIN(d.price) FROM history d WHERE d.model LIKE '%5s')")
    matcher.add("count", "(SELECT COUNT(*) FROM history d WHERE d.price < price) > 5")
    matcher.add("total", "(SELECT SUM(d.price) FROM history d WHERE d.brand = brand) > 5")
    matcher.add("near", "EXISTS d (d.brand = brand AND abs(d.price - price) < 3)")
    matcher.history.load(UNUSUAL[:-1] * 60)
    for _ in range(3):
        matcher.match_batch(EVENTS * 30, remember=True)
    matcher.plan_joins(order="constants", prefilter=True)
    matcher.match_batch(UNUSUAL)
    matcher.history.prune(keep=150)
    with using({"history_ranked": 1}):
        matcher.match_batch(UNUSUAL)


def _read_lines() -> None:
    """JSON lines by their kernels: where an array is asked for as a whole (TEXTS), they are read as dicts."""
    with Matcher() as matcher:
        matcher.add_many(enumerate(SIMPLE))
        matcher.match_batch(b'{"price": 550, "item": {"price": 2}}\n{"size": 4}\n')
        matcher.match_batch(b'{"id": [1, "x"], "attributes": {"price": 3}}\n' * 8, attributes="attributes")
        matcher.add("late", "color = 'red' AND timestampdiff(MONTH, at, day) * 1.5 > 3")  # made last, and no program
        matcher.match_batch(EVENTS)


def _ask(matcher: Matcher) -> None:
    for _ in range(3):
        matcher.match(EVENT)
    matcher.match(EVENT, top=2)
    lines = b'{"price": 550, "item": {"price": 2}}\n{"size": 4}\n'
    for events in (EVENTS, UNUSUAL, EVENTS * 100, _table(EVENTS), lines):
        found = matcher.match_batch(events)
        list(found)
        found.by_event()
        found.columns().lines(Frame(b"[", NUMBER, b",", COUNT, b",", IDS, b"]\n"), 0)
        found.pairs(weights=True, versions=True)
        matcher.count(events)
        matcher.match_batch(events, top=2).top(2)
    rows = [{"attributes": list(event.items())} for event in ({"price": 3.5, "size": 4.0}, {"size": 1.0})]
    maps = pa.table({"attributes": pa.array([x["attributes"] for x in rows], pa.map_(pa.string(), pa.float64()))})
    matcher.match_batch(maps, attributes="attributes")
    matcher.match_batch(pa.table({"attributes": ['{"price": 3}']}), attributes="attributes")
    matcher.match_batch(b'{"id": [1, "x"], "attributes": {"price": 3}}\n' * 8, attributes="attributes")
    matcher.match_batch([{"price": object()}], on_error="skip")


def _table(events: list[dict[str, Any]]) -> pa.Table:
    plain = [{name: event.get(name) for name in COLUMNS} for event in events]
    return pa.Table.from_pylist([event for event in plain if not isinstance(event["price"], (list, Range))])


def _clauses(rows: int, attributes: int) -> Clauses:
    """Conjunctions of up to four predicates, and a third of programs."""
    draw = np.random.default_rng(1)
    plain = rows * 2 // 3
    sizes = draw.integers(0, 5, rows)
    sizes[plain:] += 1
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    total = int(offsets[-1])
    lo = draw.integers(1, 12, total).astype(np.int32)
    hi = np.minimum(lo + draw.integers(0, 3, total), 12).astype(np.int32)
    nothing = draw.random(total) < 0.05
    lo[nothing] = hi[nothing] = 0
    several = np.flatnonzero(draw.random(total) < 0.2)
    lo[several], hi[several] = 2 * np.arange(len(several)), -2
    span = np.tile(np.array([1, 5], np.int32), len(several))
    jumps: list[tuple[int, int]] = []
    for size in sizes[plain:].tolist():
        jumps += [(ACCEPT if p % 2 else p + 1, REJECT if p % 2 else p + 1) for p in range(size - 1)]
        jumps.append((ACCEPT, REJECT))
    on_true, on_false = (np.array([jump[i] for jump in jumps], np.int32) for i in range(2))
    attribute = draw.integers(0, attributes, total).astype(np.int32)
    return Clauses(offsets, attribute, lo, hi, span, span + 1, on_true, on_false, plain, attributes)


def _plain_clauses(rows: int, attributes: int) -> Clauses:
    """Clauses of one predicate that some value satisfies."""
    at, nothing = np.arange(rows, dtype=np.int32), np.empty(0, np.int32)
    cell = at // attributes + 1
    offsets = np.arange(rows + 1, dtype=np.int64)
    return Clauses(offsets, at % attributes, cell, cell, nothing, nothing, nothing, nothing, rows, attributes)


def _events(count: int, attributes: int, several: bool) -> CodedEvents:
    draw = np.random.default_rng(2)
    each = 6 if several else 5
    attribute = np.concatenate([np.sort(draw.choice(attributes, 5, replace=False)) for _ in range(count)])
    if several:  # the last attribute of each event twice
        attribute = np.concatenate([attribute.reshape(count, 5), attribute.reshape(count, 5)[:, -1:]], axis=1).ravel()
    lo = np.tile(np.arange(1, 1 + each), count).astype(np.int32)
    offsets = np.arange(count + 1, dtype=np.int64) * each
    return CodedEvents(offsets, attribute.astype(np.int32), lo, lo + 1 if several else lo, not several)


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    """As if it were mapped from a file."""
    view = array.view()
    view.flags.writeable = False
    return view


def _both_ways(use: Callable[[], None]) -> None:
    use()
    _at_smallest(use)


def _at_smallest(use: Callable[[], None]) -> None:
    with using(smallest()):
        use()


def _masks(batch: int) -> None:
    """Whatever the planner would do. Batches of different sizes have masks of different widths."""
    with using({"look_cost": 1e9, "mask_cost": -1.0, "one_by_one_clauses": 1, "one_by_one_calls": 0}):
        index(AUTO, (FEW_ATTRIBUTES,), (1, batch))


def _vectors() -> None:
    """Whatever the planner would do."""
    with using({"vector_rows": 1, "line_cost": -1e3, "look_cost": 1e6, "mask_cost": 1e6}):
        index(AUTO, (FEW_ATTRIBUTES,))


def _records() -> None:
    """Whatever the planner would do."""
    with using({"look_cost": 0.0, "mask_cost": 1e9}):
        index(AUTO, (MANY_ATTRIBUTES,))


PARTS: dict[str, Callable[[], None]] = {  # in the order in which they should begin
    "wide masks": partial(_masks, 300),
    "coding": partial(_both_ways, coding),
    "small sizes": partial(_at_smallest, index),
    "masks of middle width": partial(_masks, 200),
    "narrow masks": partial(_masks, 70),
    "language": partial(_both_ways, language),
    "records": _records,
    "vectors": _vectors,
}
LAST: dict[str, Callable[[], None]] = {"life": life, "past": past}  # when all others have been run


def run(part: str) -> None:
    """RowRuns a part: one of PARTS, one of LAST, or the name of another structure."""
    if part in PARTS:
        PARTS[part]()
    else:
        _both_ways(LAST[part] if part in LAST else partial(index, part))
