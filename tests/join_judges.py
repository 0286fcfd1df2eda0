"""SQL engines as judges of joins: random subscriptions, and which events satisfy them as the history grows.

    python tests/join_judges.py --subscriptions 5000 --events 40
    python tests/join_judges.py --judge spark --subscriptions 100

An event sees the events before it. The engine has the events and the documents in two tables, and the canonical text of
each subscription; `history` is a subquery that leaves out what comes later, or is retained no more. (It has one column,
of the alias' name, that holds the document.) They are asked of a Matcher one by one, of another as one batch, and of a
durable one, that is opened again half way. What Spark cannot run is listed by its reasons.
"""

from __future__ import annotations

import argparse
import datetime as dt
import re
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pyarrow as pa

import dibs

NOON = dt.datetime(2024, 2, 29, 12)
COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "n": (pa.int64(), [0, 1, 2, 3, 4]),
    "m": (pa.int64(), [1, 2, 3]),
    "x": (pa.float64(), [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, float("inf"), float("nan")]),
    "s": (pa.string(), ["", "a", "ab", "b", "é"]),
    "w": (pa.string(), ["a", "b"]),
    "flag": (pa.bool_(), [False, True]),
    "time": (pa.timestamp("us"), [NOON + dt.timedelta(minutes=k) for k in (0, 5, 10, 15)]),
    "place": (pa.int64(), []),  # another one in each document, so that there is one last
    "since": (pa.timestamp("us"), [NOON + dt.timedelta(minutes=k, microseconds=j) for k in (0, 10) for j in (-1, 0)]),
}
LIKE = {"n": ["n", "m", "x"], "x": ["x", "n"], "s": ["s", "w"], "w": ["w", "s"], "flag": ["flag"]}
LIKE |= {"m": ["m", "n"], "time": ["time", "since"], "since": ["since", "time"]}
PLAIN = [name for name in COLUMNS if name != "place"]
OPERATORS = ["=", "=", "=", "<>", "<", "<=", ">", ">="]
INTERVALS = ["", "", " - INTERVAL 10 MINUTES", " + INTERVAL 300 SECONDS", " - INTERVAL 1 MICROSECONDS"]


def constant(random: Random, name: str) -> str:
    value = random.choice(COLUMNS[name][1])
    if isinstance(value, dt.datetime):
        return f"TIMESTAMP '{value}'"
    if isinstance(value, float):
        return f"CAST('{value}' AS DOUBLE)"
    return repr(value) if isinstance(value, str) else str(value).upper()


# Computed from the document, from the event, or from both.
COMPUTED = [
    "d.n + 1 {} m", "d.n - n {} 1", "d.n {} m - 1", "abs(d.n - m) {} 1", "lower(d.s) {} lower(w)", "d.n {} d.m",
    "length(d.s) {} n", "d.x * 2 {} n + 0.5", "replace(d.s, 'a', w) {} s", "d.n {} CASE WHEN flag THEN n ELSE m END",
    "d.n % 2 {} n % 2", "d.time {} date_trunc('HOUR', time)", "coalesce(d.n, n) {} 2",
]  # fmt: skip
WINDOWS = [
    "d.time BETWEEN time - INTERVAL 5 MINUTES AND time", "d.n NOT BETWEEN n - 1 AND m", "d.n IN (n, m + 1)",
    "d.s LIKE replace(w, 'b', '%')", "(d.n + n) IS NULL", "d.since > since - INTERVAL 1 MONTHS",
]  # fmt: skip


def computed_pair(random: Random) -> str:
    if random.random() < 0.3:
        return random.choice(WINDOWS)
    return random.choice(COMPUTED).format(random.choice(OPERATORS))


def pair(random: Random) -> str:
    if random.random() < 0.2:
        return computed_pair(random)
    name = random.choice(PLAIN)
    if random.random() < 0.25:
        if random.random() < 0.3:
            return f"d.{name} IS {random.choice(['', 'NOT '])}NULL"
        if random.random() < 0.3:
            return f"d.{name} IN ({constant(random, name)}, {constant(random, name)})"
        return f"d.{name} {random.choice(OPERATORS)} {constant(random, name)}"
    interval = random.choice(INTERVALS) if name in ("time", "since") else ""
    sides = [f"d.{name}", random.choice(LIKE[name]) + interval]
    random.shuffle(sides)
    return f"{sides[0]} {random.choice(OPERATORS)} {sides[1]}"


def condition(random: Random, depth: int = 2) -> str:
    if depth and random.random() < 0.08:  # more conjunctions than kernels take: left to Python
        return "(" + " AND ".join(f"({' OR '.join(pair(random) for _ in range(3))})" for _ in range(3)) + ")"
    shape = random.choice(["pair", "pair", "and", "and", "or", "not"]) if depth else "pair"
    if shape == "pair":
        return pair(random)
    if shape == "not":
        return f"NOT ({condition(random, depth - 1)})"
    return "(" + f" {shape.upper()} ".join(condition(random, depth - 1) for _ in range(random.randint(2, 3))) + ")"


def expression(random: Random, depth: int = 1) -> str:
    """A join or, now and then, several of them with a test of the event."""
    if depth and random.random() < 0.3:
        parts = [expression(random, 0) for _ in range(2)] + [f"n {random.choice(OPERATORS)} 2"]
        return f"{random.choice(['', 'NOT '])}({random.choice([' AND ', ' OR ']).join(parts[: random.randint(2, 3)])})"
    where = condition(random)
    shape = random.choice(
        ["exists", "exists", "not exists", "forall", "count", "extreme", "extreme value", "last", "total", "total"]
    )
    if shape == "total":
        return total(random, where)
    if shape == "count":
        return f"(SELECT COUNT(*) FROM history d WHERE {where}) {random.choice(OPERATORS)} {random.randint(0, 5)}"
    if shape == "last":
        name = random.choice(PLAIN)
        end = random.choice(["MAX_BY", "MIN_BY"])
        query = times(random, name, f"(SELECT {end}(d.{name}, d.place) FROM history d WHERE {where})")
        return f"{random.choice(LIKE[name])} {random.choice(OPERATORS)} {query}"
    if shape.startswith("extreme"):
        name = random.choice([each for each in PLAIN if each != "flag"])
        query = f"(SELECT {random.choice(['MIN', 'MAX'])}(d.{name}) FROM history d WHERE {where})"
        other = random.choice(LIKE[name]) if shape == "extreme" else constant(random, name)
        if shape == "extreme":
            query = times(random, name, query)
        return f"{query} {random.choice(OPERATORS)} {other}"
    return {"exists": f"EXISTS d ({where})", "not exists": f"NOT EXISTS d ({where})", "forall": f"FORALL d ({where})"}[
        shape
    ]


def total(random: Random, where: str) -> str:
    """Sums of numbers that float64 adds exactly; of STDDEV nothing is asked that hangs on the last digit."""
    what = random.choice(
        ["SUM(d.n)", "SUM(d.n * d.m)", "SUM(d.n * 0.5)", "AVG(d.m)", "DISTINCT", "STDDEV", "STDDEV_POP"]
    )
    if what.startswith("STD"):
        name = random.choice("nm")
        bound = random.choice(["0.3e0", "0.77e0", "1.3e0"])
        return f"(SELECT {what}(d.{name}) FROM history d WHERE {where}) {random.choice('<>')} {bound}"
    if what == "DISTINCT":
        what = f"COUNT(DISTINCT d.{random.choice(PLAIN)})"
    query = f"(SELECT {what} FROM history d WHERE {where})"
    if random.random() < 0.2:
        return f"{query} IS {random.choice(['', 'NOT '])}NULL"
    other = random.choice(["n", "m", "n * 2", str(random.randint(0, 5))])
    return f"{query} {random.choice(OPERATORS)} {other}"


def times(random: Random, name: str, query: str) -> str:
    """The query, or a multiple of it where it is a number."""
    if name not in ("n", "m", "x") or random.random() < 0.5:
        return query
    factor = random.choice(["0.5", "2", "0.9", "1e0", "-1", "1.1"])
    return random.choice([f"{factor} * {query}", f"{query} * {factor}"])


def rows(random: Random, count: int) -> pa.Table:
    return pa.table(
        {
            name: pa.array(
                [None if random.random() < 0.2 else random.choice(values or [n]) for n in range(count)], kind
            )
            for name, (kind, values) in COLUMNS.items()
        }
    )


# ---- who satisfies what ----

Kept = set[tuple[int, int]]  # (event, subscription)
SEEN = "FROM (SELECT d FROM seen WHERE place < number {}) {}"


def found_by_matchers(texts: list[str], events: pa.Table, retain: int | None, folder: Path) -> Iterator[Kept]:
    """What each way to match says."""
    dicts, half = events.to_pylist(), len(events) // 2
    with dibs.Matcher(retain=retain) as singly, dibs.Matcher(retain=retain) as together:
        for m in (singly, together):
            m.add_many(list(enumerate(texts)))
        yield {(row, id) for row, event in enumerate(dicts) for id in singly.match(event, remember=True)}
        yield {(row, id) for row, ids in enumerate(together.match_batch(events, remember=True)) for id in ids}
    found: Kept = set()
    for first, end in ((0, half), (half, len(events))):
        with dibs.Matcher.open(folder, retain=retain) as durable:
            if not first:
                durable.add_many(list(enumerate(texts)))
            ids = durable.match_batch(events.slice(first, end - first), remember=True)
            found |= {(first + row, id) for row, own in enumerate(ids) for id in own}
    yield found


def kept_by_duckdb(texts: list[str], events: pa.Table, retain: int | None) -> Kept:
    fields = ", ".join(f"{name} := {name}" for name in COLUMNS)
    bound = "" if retain is None else f"AND place >= number - {retain}"
    with duckdb.connect() as connection:
        connection.execute("SET threads = 1")
        connection.register("rows", events.append_column("number", pa.array(range(len(events)))))
        connection.execute("CREATE TABLE numbered AS SELECT * FROM rows")
        connection.execute(f"CREATE TABLE seen AS SELECT struct_pack({fields}) AS d, number AS place FROM rows")
        kept: Kept = set()
        for number, text in enumerate(texts):
            sql = dibs.to_sql(dibs.parse(text)).replace("FROM history d", SEEN.format(bound, "d"))
            found = connection.execute(f"SELECT number FROM numbered WHERE {sql}").fetchall()
            kept |= {(row, number) for (row,) in found}
    return kept


def wrong(count: int, size: int, seed: int, retain: int | None = None) -> list[Any]:
    """The pairs about which DuckDB and some matcher differ, and how many match."""
    random = Random(seed)
    texts, events = [expression(random) for _ in range(count)], rows(random, size)
    kept = kept_by_duckdb(texts, events, retain)
    differences = []
    with tempfile.TemporaryDirectory() as folder:
        for way, found in enumerate(found_by_matchers(texts, events, retain, Path(folder) / "m")):
            differences += [(way, texts[id], row, events.slice(row, 1).to_pylist()) for row, id in found ^ kept]
    share = len(kept) / (count * size)
    assert 0.1 < share < 0.9, f"{share:.0%} of the pairs match, which is no test"
    return differences


def judged_by_spark(count: int, size: int, seed: int) -> tuple[int, list[Any], Counter[str]]:
    """How many texts Spark ran, where it differs on a history that stands, and why it could not run the others."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import AnalysisException

    from dibs.spark import session

    random = Random(seed)
    texts, documents, events = [expression(random) for _ in range(count)], rows(random, size), rows(random, size)
    with dibs.Matcher() as m:
        m.add_many(list(enumerate(texts)))
        m.history.load(documents)
        found = {(row, id) for row, ids in enumerate(m.match_batch(events)) for id in ids}
    spark = session()
    try:
        numbered = events.append_column("number", pa.array(range(len(events))))
        spark.createDataFrame(numbered).createOrReplaceTempView("numbered")
        spark.createDataFrame(documents).selectExpr("struct(*) AS d").createOrReplaceTempView("history")
        refused: Counter[str] = Counter()
        differences, ran = [], 0
        for number, text in enumerate(texts):
            sql = dibs.to_sql(dibs.parse(text))
            if "MAX_BY" in sql or "MIN_BY" in sql:  # which is NULL there if the last document lacks the value
                refused["MAX_BY, MIN_BY"] += 1
                continue
            try:
                kept = {row for (row,) in spark.sql(f"SELECT number FROM numbered WHERE {sql}").collect()}
            except AnalysisException as error:
                refused[error.getCondition() or str(error)[:80]] += 1
                continue
            except Py4JJavaError as error:  # Spark's own plan does not run
                internal = re.search(r"INTERNAL_ERROR\w*", str(error))
                if internal is None:
                    raise
                refused[internal[0]] += 1
                continue
            ran += 1
            differences += [(text, row) for row in kept ^ {row for row, id in found if id == number}]
    finally:
        spark.stop()
    return ran, differences, refused


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--subscriptions", type=int, default=5_000)
    parser.add_argument("--events", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--retain", type=int)
    parser.add_argument("--judge", choices=["duckdb", "spark"], default="duckdb")
    options = parser.parse_args()
    size, seed = options.events, options.seed
    if options.judge == "spark":
        ran, differences, refused = judged_by_spark(options.subscriptions, size, seed)
        print(f"Spark ran {ran:,} of {options.subscriptions:,} texts on {size} events: {len(differences):,} wrong")
        for reason, times in refused.most_common():
            print(f"  {times:,} not run: {reason}")
    else:
        differences = wrong(options.subscriptions, size, seed, options.retain)
        print(f"{options.subscriptions:,} subscriptions, {size} events, three ways: {len(differences):,} wrong")
    for difference in differences[:10]:
        print(difference)
    raise SystemExit(bool(differences))
