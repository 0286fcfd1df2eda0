"""DuckDB's correlated subqueries as the judge of joins: the canonical texts as they stand, over the same history as it
grows. (`history` has one column, of the alias' name, that holds the document.) More of it: join_judges.py."""

from __future__ import annotations

import datetime as dt
from random import Random

import duckdb
import pyarrow as pa
import pytest

import dibs
from join_judges import COLUMNS, expression, rows, wrong


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


@pytest.mark.parametrize("retain", [None, 0, 1, 7])
def test_events_that_are_remembered(retain: int | None) -> None:
    """Each event sees those before it, as far as they are retained: one by one, as a batch, and opened again."""
    assert wrong(60, 25, seed=retain or 5, retain=retain) == []


# Of names behind {}, the event's; {d} and {x} are the documents.
SEQUENCES = {
    "a, b, c": "{}type = 'c' AND EXISTS (SELECT 1 FROM {d} WHERE d.type = 'b' AND d.user = {}user AND d.time <= {}time"
    " AND d.time >= {}time - INTERVAL 5 MINUTES AND EXISTS (SELECT 1 FROM {x} WHERE x.type = 'a' AND x.user = d.user"
    " AND x.time <= d.time AND x.time >= d.time - INTERVAL 5 MINUTES))",
    "b and no a since": "{}type = 'c' AND EXISTS (SELECT 1 FROM {d} WHERE d.type = 'b' AND d.user = {}user"
    " AND NOT EXISTS (SELECT 1 FROM {x} WHERE x.type = 'a' AND x.user = d.user AND x.time > d.time))",
    "dearer than all before": "EXISTS (SELECT 1 FROM {d} WHERE d.user = {}user AND d.price > {}price"
    " AND d.price > (SELECT MAX(x.price) FROM {x} WHERE x.user = d.user AND x.time < d.time))",
    "one of many": "(SELECT COUNT(*) FROM {d} WHERE d.type = {}type AND (SELECT COUNT(*) FROM {x} WHERE"
    " x.user = d.user AND x.price = {}price) >= 2) >= 3",
    "all are followed": "{}type <> 'a' AND NOT EXISTS (SELECT 1 FROM {d} WHERE d.user = {}user AND d.type = 'a'"
    " AND NOT EXISTS (SELECT 1 FROM {x} WHERE x.type = 'b' AND x.user = d.user AND x.time >= d.time))",
}


@pytest.mark.parametrize("size", [40, 300])
def test_sequences(size: int) -> None:
    """Joins within joins, over events of which each sees those before it."""
    random = Random(size)
    users = [f"u{random.randrange(max(2, size // 25))}" for _ in range(size)]
    minutes = sorted(random.randrange(size) for _ in range(size))
    times = [dt.datetime(2024, 5, 1) + dt.timedelta(minutes=minute) for minute in minutes]
    columns = {"user": users, "type": random.choices("abc", k=size), "price": random.choices(range(9), k=size)}
    events = pa.table({**columns, "time": pa.array(times, pa.timestamp("us"))})
    with dibs.Matcher() as m, duckdb.connect() as connection:
        connection.register("numbered", events.append_column("row", pa.array(range(size))))
        for name, text in SEQUENCES.items():
            m.add(name, text.format(*[""] * 4, d="history d", x="history x"))
        found = [set(ids) for ids in m.match_batch(events, remember=True)]
        for name, text in SEQUENCES.items():
            seen = {alias: f"(SELECT * FROM numbered s WHERE s.row < e.row) {alias}" for alias in "dx"}
            query = f"SELECT row FROM numbered e WHERE {text.format(*['e.'] * 4, **seen)}"
            kept = {row for (row,) in connection.execute(query).fetchall()}
            assert kept == {row for row, names in enumerate(found) if name in names}, name
            assert 0 < len(kept) < size
