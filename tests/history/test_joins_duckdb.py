"""DuckDB's correlated subqueries as the judge of joins: the canonical texts as they stand, over the same history as it
grows. (`history` has one column, of the alias' name, that holds the document.) More of it: join_judges.py."""

from __future__ import annotations

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
