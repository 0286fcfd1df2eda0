"""DuckDB's correlated subqueries as the judge of joins: the canonical texts as they stand, over the same history as it
grows. (`history` has one column, of the alias' name, that holds the document.)"""

from __future__ import annotations

import datetime as dt
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pytest

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


def pair(random: Random) -> str:
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
    shape = random.choice(["exists", "exists", "not exists", "forall", "count", "extreme", "extreme value", "last"])
    if shape == "count":
        return f"(SELECT COUNT(*) FROM history d WHERE {where}) {random.choice(OPERATORS)} {random.randint(0, 5)}"
    if shape == "last":
        name = random.choice(PLAIN)
        query = f"(SELECT MAX_BY(d.{name}, d.place) FROM history d WHERE {where})"
        return f"{random.choice(LIKE[name])} {random.choice(OPERATORS)} {query}"
    if shape.startswith("extreme"):
        name = random.choice([each for each in PLAIN if each != "flag"])
        query = f"(SELECT {random.choice(['MIN', 'MAX'])}(d.{name}) FROM history d WHERE {where})"
        other = random.choice(LIKE[name]) if shape == "extreme" else constant(random, name)
        return f"{query} {random.choice(OPERATORS)} {other}"
    return {"exists": f"EXISTS d ({where})", "not exists": f"NOT EXISTS d ({where})", "forall": f"FORALL d ({where})"}[
        shape
    ]


def rows(random: Random, count: int) -> pa.Table:
    return pa.table(
        {
            name: pa.array(
                [None if random.random() < 0.2 else random.choice(values or [n]) for n in range(count)], kind
            )
            for name, (kind, values) in COLUMNS.items()
        }
    )


@pytest.mark.parametrize("seed", range(3))
def test_as_duckdb_says(seed: int) -> None:
    random = Random(seed)
    texts = [expression(random) for _ in range(80)]
    documents, events = rows(random, 40), rows(random, 25)
    fields = ", ".join(f"{name} := {name}" for name in COLUMNS)
    matched = 0
    with dibs.Matcher() as m, duckdb.connect() as connection:
        m.add_many(list(enumerate(texts)))
        connection.register("numbered", events.append_column("row", pa.array(range(len(events)))))
        sql = [dibs.to_sql(dibs.parse(text)) for text in texts]
        last = 0
        for size in (0, 1, 3, 10, 40):
            m.history.load(documents.slice(last, size - last))
            last = size
            connection.register("seen", documents.slice(0, size))
            connection.execute(f"CREATE OR REPLACE TABLE history AS SELECT struct_pack({fields}) AS d FROM seen")
            kept = {
                (row, number)
                for number, text in enumerate(sql)
                for (row,) in connection.execute(f"SELECT row FROM numbered WHERE {text}").fetchall()
            }
            found = {(row, number) for row, ids in enumerate(m.match_batch(events)) for number in ids}
            different = [(sql[number], events.slice(row, 1).to_pylist(), size) for row, number in found ^ kept]
            assert different == []
            matched += len(found)
    assert 1_000 < matched < 5 * 80 * 25 - 1_000
