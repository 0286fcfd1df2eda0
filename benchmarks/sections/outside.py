"""Dibs against what people would use instead: SQL joins (DuckDB, Polars, Spark), a rule engine, a library for patterns,
and the JSON engines of other languages (sections.engines).

The same subscriptions and events for all, and no time before a rival has found the same pairs. Joins get the
predicates as a table (subscription, attribute, low, high, how many) and the events as one of (event, attribute,
value): they join on the attribute, keep what lies between the bounds, and count per event and subscription. That is
the plan that works for any mix of subscriptions; a query per subscription would be far slower. Rule engines test rule
after rule, so they get fewer subscriptions, and the time is given per event and subscription, too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import pyarrow as pa

from dibs.matcher import Matcher
from dibs.papers.workloads import boolean
from dibs.papers.workloads.boolean import Workload
from measure import Keys, Say, Size
from sections import engines

SHAPES = ("sparse", "dense")
MOST = {"join": 100_000, "rules": 1_000}  # subscriptions: more take a join minutes, or a rule engine a second per event
EVENTS = {"join": 100, "rules": 10}
ROUNDS = 3
SECONDS = 3.0  # a rival that has taken so long is not called again
PATTERNS, STRINGS = 5_000, 2_000
ENGINES_AT = 100_000  # subscriptions of a run that measures all rules of the JSON engines
JOIN = """
SELECT e.event, p.subscription FROM events e JOIN predicates p
ON e.attribute = p.attribute AND e.value BETWEEN p.low AND p.high
GROUP BY e.event, p.subscription, p.size HAVING count(*) = p.size
"""
Pairs = tuple[Any, Any]
Call = Callable[[], Pairs]


def run(size: Size, say: Say) -> dict[str, Any]:
    found: dict[str, Any] = {"absent": {}, "workloads": {}}
    for shape in SHAPES:
        joins = _measure(shape, "join", min(size.subscriptions, MOST["join"]), JOINS, found["absent"], say)
        few = min(size.subscriptions // 10, MOST["rules"])
        rules = _measure(shape, "rules", few, RULES, found["absent"], say)
        found["workloads"][shape] = {"join": joins, "rules": rules}
    found["patterns"] = _measure_patterns(min(size.subscriptions, PATTERNS), found["absent"], say)
    found["engines"] = engines.measure(min(size.subscriptions / ENGINES_AT, 1), found["absent"], say)
    return found


def _measure(
    shape: str, kind: str, subscriptions: int, rivals: dict[str, Any], absent: dict[str, str], say: Say
) -> dict[str, Any]:
    """All rivals of a kind on one workload: they take turns, and the best of their rounds counts."""
    workload = boolean.make_named(shape, subscriptions, events=EVENTS[kind])
    matcher = Matcher(threads=2)
    matcher.add_table(workload.subscription_table())
    batch = workload.event_batch()

    def ours() -> Pairs:
        pairs = matcher.match_batch(batch, attributes="attributes").pairs()
        return pairs["event"].to_numpy(), pairs["subscription"].to_numpy()

    keys = Keys(*ours())
    times: dict[str, list[float]] = {"dibs": []}
    calls: dict[str, Call] = {"dibs": ours}
    with _all_of(rivals, workload, calls, absent, say):
        for name, call in calls.items():
            say(f"{shape}: {name}")
            keys.check(name, *call())
            times[name] = []
        for _ in range(ROUNDS):
            for name, call in calls.items():
                if sum(times[name]) < SECONDS:
                    begin = time.perf_counter()
                    call()
                    times[name].append(time.perf_counter() - begin)
    return {
        "subscriptions": workload.subscriptions,
        "events": workload.events,
        "matches per event": len(keys) / workload.events,
        "microseconds per event": {name: min(own) / workload.events * 1e6 for name, own in times.items()},
        "agreed": keys.agreed,
    }


@contextmanager
def _all_of(
    rivals: dict[str, Any], workload: Workload, calls: dict[str, Call], absent: dict[str, str], say: Say
) -> Iterator[None]:
    """Sets up every rival that is installed."""
    opened = []
    try:
        for name, make in rivals.items():
            say(f"preparing {name}")
            try:
                own = make(workload)
            except ImportError as e:
                absent[name] = f"{e.name} is not installed (pip install 'dibs[bench]')"
                continue
            opened.append(own)
            calls[name] = next(own)
        yield
    finally:
        for own in opened:
            with suppress(StopIteration):
                next(own)  # what comes after its yield


def _tables(workload: Workload) -> tuple[pa.Table, pa.Table]:
    sizes = np.diff(workload.offsets)
    predicates = pa.table(
        {
            "subscription": np.repeat(np.arange(workload.subscriptions), sizes),
            "attribute": workload.attribute,
            "low": workload.low,
            "high": workload.high,
            "size": np.repeat(sizes, sizes),
        }
    )
    width = workload.event_attribute.shape[1]
    events = pa.table(
        {
            "event": np.repeat(np.arange(workload.events), width),
            "attribute": workload.event_attribute.ravel(),
            "value": workload.event_value.ravel(),
        }
    )
    return predicates, events


def duckdb_join(workload: Workload) -> Iterator[Call]:
    import duckdb

    predicates, events = _tables(workload)
    connection = duckdb.connect()
    connection.execute("SET threads = 2")
    connection.execute("CREATE TABLE predicates AS SELECT * FROM predicates")
    connection.execute("CREATE TABLE events AS SELECT * FROM events")
    del predicates, events

    def call() -> Pairs:
        found = connection.execute(JOIN).fetchnumpy()
        return found["event"], found["subscription"]

    yield call
    connection.close()


def polars_join(workload: Workload) -> Iterator[Call]:
    import polars

    predicates, events = (polars.from_arrow(table) for table in _tables(workload))
    column = polars.col

    def call() -> Pairs:
        joined = events.lazy().join(predicates.lazy(), on="attribute")
        kept = joined.filter(column("value").is_between(column("low"), column("high")))
        counted = kept.group_by("event", "subscription", "size").agg(polars.len().alias("held"))
        found = counted.filter(column("held") == column("size")).select("event", "subscription").collect()
        return found["event"].to_numpy(), found["subscription"].to_numpy()

    yield call


def spark_join(workload: Workload) -> Iterator[Call]:
    """Events as maps, as a stream would have them: exploded, joined, counted."""
    from pyspark.sql import SparkSession

    from dibs.java import ensure_java

    ensure_java()
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.driver.memory", "2g")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    predicates, _ = _tables(workload)
    names = [f"a{number}" for number in predicates["attribute"].to_pylist()]
    predicates = predicates.set_column(1, "attribute", pa.array(names))
    session.createDataFrame(predicates).cache().createOrReplaceTempView("predicates")
    batch = pa.Table.from_batches([workload.event_batch()]).rename_columns(["event", "attributes"])
    session.createDataFrame(batch).cache().createOrReplaceTempView("maps")
    session.sql("SELECT count(*) FROM predicates, (SELECT count(*) FROM maps)").collect()
    exploded = "(SELECT event, explode(attributes) AS (attribute, value) FROM maps)"

    def call() -> Pairs:
        found = session.sql(JOIN.replace("events e", f"{exploded} e")).toArrow()
        return found["event"].to_numpy(), found["subscription"].to_numpy()

    yield call
    session.stop()


def rule_engine_rules(workload: Workload) -> Iterator[Call]:
    import rule_engine

    context = rule_engine.Context(default_value=None)
    rules = []
    for s in range(workload.subscriptions):
        own = slice(workload.offsets[s], workload.offsets[s + 1])
        bounds = zip(workload.attribute[own].tolist(), workload.low[own].tolist(), workload.high[own].tolist())
        texts = (f"(a{a} != null and a{a} >= {low} and a{a} <= {high})" for a, low, high in bounds)
        rules.append(rule_engine.Rule(" and ".join(texts), context=context))
    events = workload.event_dicts()

    def call() -> Pairs:
        found = [(e, s) for e, event in enumerate(events) for s, rule in enumerate(rules) if rule.matches(event)]
        event, subscription = np.array(found, np.int64).reshape(-1, 2).T
        return event, subscription

    yield call


def python_rules(workload: Workload) -> Iterator[Call]:
    """The loop that one writes first: compiled Python expressions."""
    codes = []
    for s in range(workload.subscriptions):
        own = slice(workload.offsets[s], workload.offsets[s + 1])
        bounds = zip(workload.attribute[own].tolist(), workload.low[own].tolist(), workload.high[own].tolist())
        texts = (f"{low} <= get('a{a}', -1) <= {high}" for a, low, high in bounds)
        codes.append(eval(f"lambda get: {' and '.join(texts)}"))
    events = workload.event_dicts()

    def call() -> Pairs:
        found = [(e, s) for e, event in enumerate(events) for s, code in enumerate(codes) if code(event.get)]
        event, subscription = np.array(found, np.int64).reshape(-1, 2).T
        return event, subscription

    yield call


JOINS = {"DuckDB join": duckdb_join, "Polars join": polars_join, "Spark SQL explode, join, count": spark_join}
RULES = {"rule-engine": rule_engine_rules, "Python lambdas": python_rules}


def _measure_patterns(count: int, absent: dict[str, str], say: Say) -> dict[str, Any]:
    """Texts that contain one of many literals: `CONTAINS(t, ...)` against hyperscan, which reports every occurrence."""
    import patterns

    literals = patterns.literals(count)
    texts = patterns.strings("literals", 0, STRINGS)
    matcher = Matcher(threads=1)
    matcher.add_many((k, f"CONTAINS(t, '{x}')") for k, x in enumerate(literals))
    batch = pa.record_batch({"t": texts})

    def ours() -> Pairs:
        pairs = matcher.match_batch(batch).pairs()
        return pairs["event"].to_numpy(), pairs["subscription"].to_numpy()

    keys = Keys(*ours())
    calls: dict[str, Call] = {"dibs": ours}
    try:
        calls["hyperscan"] = _prepare_hyperscan(literals, texts)
    except ImportError:
        absent["hyperscan"] = "hyperscan is not installed (pip install 'dibs[bench]')"
    times: dict[str, list[float]] = {name: [] for name in calls}
    for name, call in calls.items():
        say(f"patterns: {name}")
        keys.check(name, *call())
    for _ in range(ROUNDS):
        for name, call in calls.items():
            begin = time.process_time()
            call()
            times[name].append((time.process_time() - begin) / len(texts) * 1e6)
    return {
        "patterns": len(literals),
        "strings": len(texts),
        "matches per string": len(keys) / len(texts),
        "microseconds per string": {name: min(own) for name, own in times.items()},
        "agreed": keys.agreed,
    }


def _prepare_hyperscan(literals: list[str], texts: list[str]) -> Call:
    import hyperscan

    database = hyperscan.Database()
    flags = hyperscan.HS_FLAG_SINGLEMATCH
    database.compile(
        expressions=[text.encode() for text in literals],
        ids=list(range(len(literals))),
        elements=len(literals),
        flags=[flags] * len(literals),
        literal=True,
    )
    encoded = [text.encode() for text in texts]

    def call() -> Pairs:
        found: list[tuple[int, int]] = []

        def note(pattern: int, begin: int, end: int, flags: int, number: int) -> None:
            found.append((number, pattern))

        for number, text in enumerate(encoded):
            database.scan(text, match_event_handler=note, context=number)
        event, pattern = np.array(found, np.int64).reshape(-1, 2).T
        return event, pattern

    return call
