"""Backtests and replays: the answers of Matcher and of DuckDB, over every form of stored events."""

from __future__ import annotations

import datetime as dt
import io
import subprocess
import sys
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.dataset as ds
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

import dibs
from dibs.cli import app
from dibs.coding.events import WantedNames
from dibs.errors import EventError, ExpressionError, StorageError
from dibs.language.printer import to_sql
from dibs.past.backtest import Backtests, backtest
from dibs.past.columns import Expressions
from dibs.past.histogram import SHOWN
from dibs.past.replay import replay, replay_batches
from dibs.past.sources import Wanted
from sql_judges import CONCAT, duckdb_sql
from strategies import events as random_events
from strategies import expressions, typed_expression, typed_rows

ROWS = pa.table(
    {
        "price": pa.array([550, 600, 15, None, 580], pa.int64()),
        "brand": ["Apple", "Apple", "Nokia", "Sony", None],
        "seller": [{"rating": 4.8, "id": 1}, None, {"rating": 3.0, "id": 2}, {"rating": None, "id": 3}, None],
        "seller.rating": pa.array([None, 5.0, None, None, None], pa.float64()),
        "sold": pa.array([dt.datetime(2024, 2, d, 13, 5) for d in (1, 1, 2, 4)] + [None], pa.timestamp("us")),
    }
)


def matcher_counts(texts: list[str], events: Any, **options: Any) -> list[int]:
    matcher = dibs.Matcher(index="scan")
    matcher.add_many(enumerate(texts))
    found = Counter(matcher.match_batch(events, **options).pairs()["subscription"].to_pylist())
    return [found[i] for i in range(len(texts))]


def stream_file(table: pa.Table, path: Path) -> None:
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table)


# ---- the answers ----


def test_duckdb_counts_the_same(tmp_path: Path) -> None:
    random = Random(7)
    rows = typed_rows(random, 3_000)
    rows = rows.set_column(rows.column_names.index("t"), "t", rows["t"].cast(pa.timestamp("us")))
    path = tmp_path / "rows.parquet"
    pq.write_table(rows, path, row_group_size=700)
    wanted = [typed_expression(random) for _ in range(150)]
    connection = duckdb.connect()
    connection.execute(CONCAT)
    expected = [
        connection.execute(f"SELECT count(*) FROM '{path}' WHERE {duckdb_sql(expression)}").fetchall()[0][0]
        for expression in wanted
    ]
    texts = [to_sql(expression) for expression in wanted]
    together = backtest(texts, path, examples=0)
    assert [together[i].count for i in range(len(texts))] == expected, "all in one pass, over an index"
    for text, count in zip(texts, expected):
        assert backtest(text, path, examples=0).count == count, text
    assert 0 < sum(expected) < 150 * 3_000


@given(st.lists(expressions(extremes=True), min_size=1, max_size=4), st.lists(random_events(), max_size=12))
def test_the_matcher_finds_the_same(wanted: list[Any], events: list[dict[str, Any]]) -> None:
    texts = [to_sql(expression) for expression in wanted]
    results = backtest(texts, events, on_error="skip", examples=100)
    assert [results[i].count for i in range(len(texts))] == matcher_counts(texts, events, on_error="skip")
    for result in results.values():
        assert [example.values for example in result.examples] == [events[e.event] for e in result.examples]


def test_many_constants_and_long_strings() -> None:
    """Beyond the few constants that are compared one by one, and strings that agree in their first eight bytes."""
    random = np.random.default_rng(3)
    texts = ["", "a", "a\0", "abcdefgh", "abcdefgh\0", "abcdefghi", "abcdefg", "zzz", "ü", "b" * 40]
    strings = pa.array([texts[i] for i in random.integers(0, len(texts), 500)])
    table = pa.table({"n": random.integers(-50, 5_000, 500), "s": strings})
    numbers = ", ".join(map(str, range(0, 4_000, 3)))
    conditions = [
        f"n IN ({numbers})",
        f"n NOT IN ({numbers}) AND s <= 'abcdefgh'",
        *(f"s {operator} '{text}'" for operator in ("=", "<", ">=", "<>") for text in texts if "\0" not in text),
        "s IN (" + ", ".join(f"'x{i}'" for i in range(40)) + ", 'abcdefghi', 'a')",
        "s LIKE 'abc%' AND NOT s LIKE '%h'",
        "s RLIKE '^a' OR n < 10 OR n IS NULL",
    ]
    for condition in conditions:
        assert backtest(condition, table).count == matcher_counts([condition], table)[0], condition
    assert backtest("n > 9007199254740992", pa.table({"n": [2**53, 2**53 + 1]})).count == 1


def test_columns_or_an_index() -> None:
    """Up to 64 predicates are bits; the results of more are the same."""
    few, many = " OR ".join(["a = 1"] * 3), " OR ".join(f"a = {i} AND b IS NULL" for i in range(40))
    assert Expressions([few])._columns is not None
    assert Expressions([many])._columns is None
    events = [{"a": i % 50, "b": None if i % 3 else 1} for i in range(500)]
    assert backtest(many, events).count == sum(e["a"] < 40 and e["b"] is None for e in events)
    assert backtest(many, b'nonsense\n{"a":1}', on_error="skip").count == 1
    hundreds = backtest([f"a = {i}" for i in range(200)], events)
    assert [hundreds[i].count for i in (0, 49, 50)] == [10, 10, 0]


@pytest.mark.parametrize("more", ["", " OR " + " OR ".join(f"z = {i}" for i in range(70))], ids=["columns", "index"])
def test_missing_unreadable_and_broken(more: str) -> None:
    """A value that cannot be read is neither null nor not null, and an event that cannot be read matches nothing."""
    events = [{"a": 1}, {"a": object()}, {}, {"a": None}, {"a": [object(), 2]}, 17]
    for condition, count in (("a IS NULL", 2), ("a IS NOT NULL", 2), ("TRUE", 5), ("a IS NULL AND b IS NULL", 2)):
        text = f"({condition}){more}"
        assert backtest(text, events, on_error="skip").count == count, condition
        assert matcher_counts([text], events, on_error="skip") == [count], condition


def test_constants_and_no_events() -> None:
    for events in ([], pa.table({"a": pa.array([], pa.int64())}), b"", io.BytesIO(b"\n\n")):
        result = backtest("TRUE", events)
        assert (result.events, result.count, result.rate, result.examples) == (0, 0, 0.0, [])
    assert backtest("TRUE", ROWS).count == 5
    assert backtest("FALSE", ROWS).count == 0
    assert backtest("nothing IS NULL", ROWS).count == 5
    assert backtest([], ROWS) == {}


# ---- where events come from ----


def forms(table: pa.Table, folder: Path) -> dict[str, Any]:
    """The same events in every form."""
    pq.write_table(table, folder / "e.parquet", row_group_size=2)
    pa.feather.write_feather(table, folder / "e.feather", compression="lz4", chunksize=2)
    stream_file(table, folder / "e.arrow")
    parts = folder / "parts"
    parts.mkdir()
    for number in range(3):
        pq.write_table(table.slice(2 * number, 2), parts / f"{number}.parquet")
    (parts / "_SUCCESS").touch()
    return {
        "table": table,
        "batch": table.combine_chunks().to_batches()[0],
        "reader": pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=2)),
        "dicts": table.to_pylist(),
        "generator": iter(table.to_pylist()),
        "parquet": str(folder / "e.parquet"),
        "feather": folder / "e.feather",
        "stream": folder / "e.arrow",
        "folder": parts,
        "paths": [str(path) for path in sorted(parts.glob("*.parquet"))],
        "dataset": ds.dataset(folder / "e.parquet"),
        "polars or so": Handed(table),
    }


class Handed:
    """Arrow data by its stream interface only."""

    def __init__(self, table: pa.Table):
        self.table = table

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.table.__arrow_c_stream__(requested_schema)


@pytest.mark.parametrize("threads", [1, 2])
def test_every_form_of_events(threads: int, tmp_path: Path) -> None:
    for form, events in forms(ROWS, tmp_path).items():
        result = backtest("seller.rating > 4 OR price < 20", events, time="sold", threads=threads)
        assert (result.events, result.count, result.rate) == (5, 3, 0.6), form
        assert [example.event for example in result.examples] == [0, 1, 2], form
        assert [example.values for example in result.examples] == ROWS.slice(0, 3).to_pylist(), form
        assert result.histogram is not None
        assert (sum(result.histogram.counts), result.histogram.untimed) == (3, 0), form


def test_json_lines(tmp_path: Path) -> None:
    lines = b'\xef\xbb\xbf{"price": 15}\r\n\r\n{"price": 600}\n\n{"price": {"eur": 3}, "tags": [1, 2]}'
    (tmp_path / "e.jsonl").write_bytes(lines)
    for events in (lines, io.BytesIO(lines), tmp_path / "e.jsonl"):
        result = backtest("price <= 20 OR price.eur = 3", events)
        assert [tuple(example) for example in result.examples] == [
            (0, {"price": 15}),
            (2, {"price": {"eur": 3}, "tags": [1, 2]}),
        ]


def test_json_lines_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dibs.coding.lines.BYTES_AT_ONCE", 17)
    lines = b"\n".join(orjson.dumps({"n": n}) if n % 10 else b"" for n in range(1_000)) + b"\n{broken"
    for events in (lines, io.BytesIO(lines)):
        result = backtest("n >= 500", events, on_error="skip", examples=3)
        assert (result.events, result.count) == (901, 450)
        assert [example.values["n"] for example in result.examples][::2] == [501, 999]
        assert result.problems[0].event == 900
        assert "line 1001, column 2" in result.problems[0].message


@pytest.mark.parametrize("kind", ["json", "map", "struct"])
def test_attributes_in_one_column(kind: str, tmp_path: Path) -> None:
    prices = [15, 600, 20]
    values = {
        "json": pa.array([f'{{"price":{price}}}' for price in prices]),
        "map": pa.array([[("price", price)] for price in prices], pa.map_(pa.string(), pa.int64())),
        "struct": pa.array([{"price": price} for price in prices]),
    }[kind]
    pq.write_table(
        pa.table({"price": [1, 1, 1], "about": values, "when": [dt.date(2024, 1, 1)] * 3}), tmp_path / "e.parquet"
    )
    result = backtest("price <= 20", tmp_path / "e.parquet", attributes="about", time="when")
    assert (result.count, [example.event for example in result.examples]) == (2, [0, 2])
    assert result.examples[0].values["price"] == 1
    with pytest.raises(EventError, match=r"no column is called 'nothing', as attributes= says.*'about'"):
        backtest("price <= 20", tmp_path / "e.parquet", attributes="nothing")


def test_files_of_different_schemas(tmp_path: Path) -> None:
    """A column that came later, and one whose type has changed, keep what they say."""
    pq.write_table(pa.table({"n": pa.array([2**53 + 1], pa.int64())}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"n": [0.5, 2.0**53], "new": ["x", "y"]}), tmp_path / "2.parquet")
    assert backtest("n = 9007199254740993", tmp_path).count == 1
    assert backtest("new = 'y'", tmp_path).count == 1
    result = backtest("new IS NULL OR new = 'y'", tmp_path)
    assert [tuple(example) for example in result.examples] == [(0, {"n": 2**53 + 1}), (2, {"n": 2.0**53, "new": "y"})]


def test_a_dataset_that_filters(tmp_path: Path) -> None:
    table = pa.table({"n": range(100), "other": [f"o{n}" for n in range(100)]})
    pq.write_table(table, tmp_path / "e.parquet", row_group_size=10)
    result = backtest("n >= 95", ds.dataset(tmp_path / "e.parquet").filter(pc.field("n") >= 50), examples=2)
    assert (result.events, result.count) == (50, 5)
    assert [example.values for example in result.examples] == [{"n": 95, "other": "o95"}, {"n": 99, "other": "o99"}]
    assert [example.event for example in result.examples] == [45, 49]


def test_only_the_mentioned_columns_are_read(tmp_path: Path) -> None:
    """The other columns are destroyed on disk: whoever reads them fails."""
    table = pa.table({"a.b": range(1_000), "junk": [f"junk {i}" for i in range(1_000)], "a": [{"c": 1}] * 1_000})
    path = tmp_path / "e.parquet"
    pq.write_table(table, path, compression="zstd", use_dictionary=False)
    chunk = pq.ParquetFile(path).metadata.row_group(0).column(1)
    assert chunk.path_in_schema == "junk"
    with path.open("r+b") as file:
        file.seek(chunk.data_page_offset)
        file.write(b"\xff" * chunk.total_compressed_size)
    assert backtest("a.b < 10", path, examples=0).count == 10
    assert backtest("a.c = 1 AND a.b < 10", path, examples=0).count == 10
    with pytest.raises(StorageError, match=r"e\.parquet"):
        backtest("junk = 'junk 3'", path, examples=0)
    with pytest.raises(StorageError, match=r"e\.parquet"):
        backtest("a.b < 10", path, examples=1)

    def columns(*names: str, **options: Any) -> list[str]:
        return [table.column_names[i] for i in Wanted(WantedNames(names), **options).columns(table.schema)]

    assert columns("a.b") == ["a.b", "a"]
    assert columns("a.c") == ["a"]
    assert columns("a") == ["a"]
    assert columns("junk.x") == ["junk"], "it may be a struct"
    assert columns("a.b.c", time="junk") == ["a.b", "junk", "a"]
    assert columns("a.b", attributes="a") == ["a"]
    assert columns() == []


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    program = """
import sys, time, numpy as np, pyarrow as pa, pyarrow.parquet as pq
from dibs.past.backtest import backtest
path, groups, rows = sys.argv[1], 60, 20_000
schema = pa.schema([("n", pa.int64()), ("text", pa.string())])
text = pa.array([f"{i:08} " + "x" * 89 for i in range(rows)])
with pq.ParquetWriter(path, schema, compression="zstd") as writer:
    for g in range(groups):
        writer.write_table(pa.table({"n": np.arange(g * rows, (g + 1) * rows), "text": text}))
whole = groups * rows * (8 + 4 + 98)
# Whoever takes the batches is slower than whoever reads them.
result = backtest("text >= '0' AND n >= 20000", path, examples=3, progress=lambda more: time.sleep(0.1))
assert result.events == groups * rows and 0 < result.count < result.events
assert (result.examples[0].event, result.examples[-1].event) == (rows, groups * rows - 1)
print(whole, pa.default_memory_pool().max_memory())
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "e.parquet")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    whole, most = map(int, done.stdout.split())
    assert most < whole / 3, f"{most:,} bytes for a table of {whole:,}"


# ---- what it says ----


def test_examples_are_spread_and_the_same_in_every_run() -> None:
    table = pa.table({"n": range(300_000), "m": range(300_000)})
    for wanted in (0, 1, 2, 5, 40):
        shown = [example.event for example in backtest("n >= 1000", table, examples=wanted).examples]
        assert len(shown) == wanted
        assert shown == sorted(set(shown))
        assert shown == [e.event for e in backtest("n >= 1000", table, examples=wanted, threads=1).examples]
        if wanted:
            assert shown[0] == 1_000
        if wanted > 1:
            assert shown[-1] == 299_999
            gaps = np.diff(shown)
            assert gaps.max() < 2 * 299_000 / (wanted - 1), shown
    passing = pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=1_000))
    result = backtest("n >= 1000", passing, examples=5)
    assert [example.values for example in result.examples] == [{"n": e.event, "m": e.event} for e in result.examples]
    assert (result.examples[0].event, result.examples[-1].event) == (1_000, 299_999)


def test_examples_that_python_cannot_hold() -> None:
    bad = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(np.array([0, 2], np.int32)), pa.py_buffer(b"\xff\xfe")]
    )
    table = pa.table({"n": [1], "bad": bad, "far": pa.array([2**62], pa.timestamp("us"))})
    (example,) = backtest("n = 1", table).examples
    assert example.values["n"] == 1
    assert example.values["bad"] == "\\xff\\xfe"
    assert str(2**62) in example.values["far"]


@pytest.mark.parametrize(
    ("seconds", "step"),
    [(50 * 60, "minute"), (40 * 3_600, "hour"), (50 * 86_400, "day"), (300 * 86_400, "week")]
    + [(1_200 * 86_400, "month"), (40 * 365 * 86_400, "year"), (400 * 365 * 86_400, "decade")],
)
def test_histograms_have_few_buckets_and_lose_nothing(seconds: int, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dibs.past.histogram.KEPT", 430)  # more than the days of 60 weeks
    start = 1_704_103_200  # 2024-01-01 10:00
    random = np.random.default_rng(5)
    times = pa.array(start + random.integers(0, seconds, 50_000), pa.timestamp("s"), mask=random.random(50_000) < 0.1)
    table = pa.table({"n": random.integers(0, 100, 50_000), "when": times})
    result = backtest("n < 37", table, time="when")
    histogram = result.histogram
    assert histogram is not None
    assert histogram.step == step
    assert len(histogram) <= SHOWN
    assert sum(histogram.counts) + histogram.untimed == result.count
    matched = table.filter(pc.field("n") < 37).drop_null()
    truncated = (
        duckdb.from_arrow(matched).aggregate(f"date_trunc('{step}', \"when\") AS b, count(*)").order("b").fetchall()
    )
    assert [count for _, count in truncated] == [count for count in histogram.counts if count]
    assert str(truncated[0][0]).startswith(histogram.starts[0])


def test_times_as_text_and_dates() -> None:
    events = [{"at": "2024-02-29T23:30:00-02:00"}, {"at": dt.date(2024, 3, 1)}, {"at": "soon"}, {}, {"at": None}]
    result = backtest("x IS NULL", events, time="at")
    assert result.histogram is not None
    assert list(result.histogram)[0] == ("2024-03-01 00:00", 1)
    assert (sum(result.histogram.counts), result.histogram.untimed) == (2, 3)
    texts = pa.table({"at": pa.array(["2024-02-29", "2024-03-01", None]).dictionary_encode()})
    told = backtest("TRUE", texts, time="at").histogram
    assert told is not None
    assert (told.step, told.starts, told.untimed) == ("day", ["2024-02-29", "2024-03-01"], 1)
    for events_, message in ((pa.table({"at": [1]}), "of type int64"), ([{"at": 1}], "of type int")):
        with pytest.raises(EventError, match=message):
            backtest("TRUE", events_, time="at")
    with pytest.raises(EventError, match="no column is called 'when', as time= says; the columns are: 'at'"):
        backtest("TRUE", pa.table({"at": [1]}), time="when")


def test_variants_in_one_pass() -> None:
    results = backtest({"wide": "price <= 600", 7: "price <= 550"}, ROWS)
    assert isinstance(results, Backtests)
    assert (results["wide"].count, results[7].count) == (4, 2)
    assert "wide  4  80 %" in str(results)
    assert backtest(["price = 15"], ROWS)[0].count == 1


def test_progress_adds_up() -> None:
    told: list[int] = []
    backtest("price > 0", ROWS.to_batches()[0], progress=told.append)
    assert sum(told) == 5


# ---- what is wrong ----


def test_bad_expressions_are_told_with_their_place() -> None:
    with pytest.raises(ExpressionError) as caught:
        backtest("price <=", ROWS)
    assert caught.value.problems[0].column > 1
    with pytest.raises(ExpressionError, match=r"expression 'new': .*lowr"):
        backtest({"old": "price <= 1", "new": "lowr(brand) = 'x'"}, ROWS)
    with pytest.raises(ExpressionError, match="an expression is a string, not int"):
        backtest([1], ROWS)  # type: ignore[list-item]
    with pytest.raises(ExpressionError):
        backtest("a = '\ud800'", ROWS)


def test_what_cannot_be_read_is_listed() -> None:
    events = [{"a": 1}, {"a": object()}, {"a": 3}, {"a": b"x"}] * 30_000
    result = backtest("a >= 1", events, on_error="skip")
    assert (result.count, result.problem_count, len(result.problems)) == (60_000, 60_000, 1_000)
    assert (result.problems[2].event, result.problems[2].attribute) == (5, "a")
    expected = dibs.Matcher()
    expected.add(0, "a >= 1")
    assert result.problems == expected.match_batch(events, on_error="skip").problems[:1_000]
    with pytest.raises(EventError) as caught:
        backtest("a >= 1", [{"a": 1}] * 100_000 + [{"a": object()}])
    assert (caught.value.event, caught.value.attribute) == (100_000, "a")
    assert backtest("b IS NULL", events[:4]).count == 4, "what nobody asks for is not looked at"
    assert "60,000 things could not be read; the first: event 1, attribute 'a'" in str(result)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    for name in ("e.parquet", "e.arrow", "e.feather"):
        (tmp_path / name).write_bytes(b"nonsense, and more of it")
        with pytest.raises(StorageError, match=name):
            backtest("TRUE", tmp_path / name)
    (tmp_path / "e.xlsx").touch()
    with pytest.raises(StorageError, match=r"the ending tells no format; expected one of \.parquet"):
        backtest("TRUE", tmp_path / "e.xlsx")
    with pytest.raises(FileNotFoundError):
        backtest("TRUE", tmp_path / "missing.parquet")
    wrong: list[tuple[Any, str]] = [(17, "found events of type int"), ({"a": 1}, "put it into a list")]
    for events, message in [*wrong, ('{"a": 1}', "a string is a path here")]:
        with pytest.raises(EventError, match=message):
            backtest("TRUE", events)
    with pytest.raises(ValueError, match="on_error"):
        backtest("TRUE", [], on_error="ignore")  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="examples"):
        backtest("TRUE", [], examples=-1)


# ---- replay ----


def numbered_matcher(ids: list[Any]) -> dibs.Matcher:
    matcher = dibs.Matcher()
    for number, id in enumerate(ids):
        matcher.add(id, f"n >= {10 * number} AND n < {200 - number}")
    return matcher


@pytest.mark.parametrize("ids", [[1, 5, 3], ["a", "c", "b"], [2, "a", 1, "b"]], ids=["int", "string", "both"])
def test_replay_counts_what_match_batch_finds(ids: list[Any], tmp_path: Path) -> None:
    matcher = numbered_matcher(ids)
    never: Any = "zz" if isinstance(ids[0], str) else 99
    matcher.add(never, "n = 'never'")
    gone: Any = "gone" if isinstance(ids[0], str) else 1_000
    matcher.add(gone, "n > 0")
    matcher.remove(gone)
    table = pa.table({"n": [i % 250 for i in range(30_000)], "other": ["x"] * 30_000})
    expected = Counter(matcher.match_batch(table).pairs()["subscription"].to_pylist())
    pq.write_table(table, tmp_path / "e.parquet", row_group_size=7_000)
    for events in (table, tmp_path / "e.parquet", table.to_pylist()):
        told: list[int] = []
        result = replay(matcher, events, progress=told.append)
        assert (result.events, sum(told), result.pairs) == (30_000, 30_000, sum(expected.values()))
        counts = result.counts()
        assert counts.column_names == ["subscription", "count", "rate"]
        found = dict(zip(counts["subscription"].to_pylist(), counts["count"].to_pylist()))
        assert found == {**expected, never: 0}
        assert list(found) == sorted(found, key=lambda id: (isinstance(id, str), id))
        assert counts["rate"].to_pylist() == [count / 30_000 for count in found.values()]
        same_type = matcher.match_batch(table).pairs()["subscription"].type
        assert counts["subscription"].type == same_type
        assert result.silent() == [never]
        ordered = sorted(expected.items(), key=lambda item: (-item[1], isinstance(item[0], str), item[0]))
        assert result.busiest(2) == ordered[:2]
        assert len(result) == len(ids) + 1
        assert f"1 never matched: {never}" in str(result)


def test_replay_of_nothing() -> None:
    empty = dibs.Matcher()
    result = replay(empty, ROWS)
    assert (result.events, result.pairs, len(result), result.counts().num_rows) == (5, 0, 0, 0)
    result = replay(numbered_matcher([1]), [])
    assert (result.events, result.silent(), result.counts().to_pylist()) == (
        0,
        [1],
        [{"subscription": 1, "count": 0, "rate": 0.0}],
    )
    assert "no events" in str(result)


def test_replay_delivers_batch_by_batch() -> None:
    matcher = numbered_matcher(["a", "b", "c"])
    table = pa.table({"n": range(1_000)})
    whole = list(matcher.match_batch(table))
    for size in (None, 1, 77, 5_000):
        delivered: list[list[Any]] = []
        for offset, matches in replay_batches(matcher, table, batch_size=size):
            assert offset == len(delivered)
            assert size is None or len(matches) <= size
            delivered += matches
        assert delivered == whole
    seen: list[int] = []
    replay(matcher, table, batch_size=300, on_matches=lambda offset, matches: seen.append(offset + len(matches)))
    assert seen == [300, 600, 900, 1_000]


def test_subscriptions_that_change_while_events_are_replayed(tmp_path: Path) -> None:
    """Merges move subscriptions to other segments, and a new one may ask for columns that were not read so far."""
    table = pa.table({"n": range(1_000), "late": ["x", None] * 500})
    pq.write_table(table, tmp_path / "e.parquet", row_group_size=100)
    for events in (table, tmp_path / "e.parquet", table.to_pylist()):
        matcher = dibs.Matcher()
        matcher.add("all", "n >= 0")
        matcher.add("never", "n < 0")

        def change(offset: int, matches: dibs.Matches, matcher: dibs.Matcher = matcher) -> None:
            number = offset // 100
            matcher.add(f"extra {number}", "n < 0")
            if number == 2:
                matcher.add("null", "late IS NULL")
                matcher.remove("never")
            if number == 4:
                matcher.compact()
            if number == 6:
                matcher.replace("all", "n >= 900")

        result = replay(matcher, events, batch_size=100, on_matches=change)
        found = dict(zip(*(column.to_pylist() for column in result.counts().columns[:2])))
        assert result.events == 1_000
        assert found["all"] == 700 + 100
        assert found["null"] == 350
        assert found["never"] == 0
        assert result.pairs == 700 + 100 + 350


def test_more_segments_than_are_held_row_by_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dibs.past.replay.SEGMENTS_HELD", 1)
    matcher = numbered_matcher([1, 2, "a", "b"])
    table = pa.table({"n": range(250)})
    expected = Counter(matcher.match_batch(table).pairs()["subscription"].to_pylist())
    result = replay(matcher, table, batch_size=50)
    assert dict(zip(*(column.to_pylist() for column in result.counts().columns[:2]))) == expected


def test_what_a_replay_cannot_read() -> None:
    matcher = numbered_matcher([1])
    events = [{"n": 1}, {"n": object()}] * 5_000
    result = replay(matcher, events, on_error="skip", batch_size=1_000)
    assert (result.pairs, result.problem_count, len(result.problems)) == (5_000, 5_000, 1_000)
    assert result.problems[999].event == 1_999
    with pytest.raises(EventError) as caught:
        replay(matcher, [*events[:1], *[{"n": 3}] * 4_000, *events[1:2]])
    assert caught.value.event == 4_001
    with pytest.raises(ValueError, match="batch_size"):
        replay(matcher, events, batch_size=0)


# ---- the command ----


def run(*arguments: str | Path, stdin: str | bytes = b"") -> Result:
    return CliRunner().invoke(app, ["backtest", *map(str, arguments)], input=stdin)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    pq.write_table(ROWS, tmp_path / "e.parquet")
    pa.csv.write_csv(ROWS.select(["price", "brand", "sold"]), tmp_path / "e.csv")
    stream_file(ROWS, tmp_path / "e.arrow")
    lines = [{"price": 15, "brand": "Nokia"}, {"price": 600}]
    (tmp_path / "e.jsonl").write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))
    subscriptions = [{"id": "cheap", "expression": "price < 20"}, {"id": "dear", "expression": "price > 1000"}]
    (tmp_path / "subs.jsonl").write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in subscriptions))
    return tmp_path


@pytest.mark.parametrize("name", ["e.parquet", "e.csv", "e.arrow", "e.jsonl"])
def test_command(name: str, files: Path) -> None:
    result = run("price < 20", files / name)
    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith("price < 20\n  1 of ")
    assert '"brand":"Nokia"' in result.stdout
    assert result.stderr == ""


def test_command_for_programs(files: Path) -> None:
    result = run("--json", "price <= 600", files / "e.parquet", "--time", "sold", "--examples", "1")
    assert result.exit_code == 0, result.stderr
    told = orjson.loads(result.stdout)
    assert (told["count"], told["events"], told["rate"], len(told["examples"])) == (4, 5, 0.8, 1)
    assert sum(told["histogram"]["counts"]) + told["histogram"]["untimed"] == 4
    several = run("-x", "price < 20", "-x", "price > 20", "--json", files / "e.parquet", files / "e.jsonl")
    first, second = map(orjson.loads, several.stdout.splitlines())
    assert (first["id"], first["count"], second["count"], second["events"]) == (0, 2, 4, 7)
    assert [example["event"] for example in first["examples"]] == [2, 5]


def test_command_with_files_of_expressions_and_standard_input(files: Path) -> None:
    (files / "rules.txt").write_text("price < 20\n\nprice > 20\n")
    result = run("--expression-file", files / "rules.txt", stdin=(files / "e.jsonl").read_bytes())
    assert result.exit_code == 0, result.stderr
    assert result.stdout.endswith("of 2 events match\n  0  1  50 %  price < 20\n  1  1  50 %  price > 20\n")
    named = run("-f", files / "subs.jsonl", "-", stdin=(files / "e.jsonl").read_bytes())
    assert "  cheap  1  50 %  price < 20\n" in named.stdout
    table = run("price < 20", "--format", "csv", stdin="price\n15\n600\n")
    assert "1 of 2 events match" in table.stdout
    attributes = run("price < 20", "--attributes", "a", stdin='{"a": {"price": 3}}')
    assert "1 of 1 events match" in attributes.stdout


def test_command_over_all_subscriptions(files: Path) -> None:
    result = run("--subscriptions", files / "subs.jsonl", files / "e.parquet")
    assert result.exit_code == 0, result.stderr
    assert "2 subscriptions over 5 events: 1 matches" in result.stdout
    assert "cheap  1  20 %" in result.stdout
    assert "1 never matched: dear" in result.stdout
    told = orjson.loads(run("-s", files / "subs.jsonl", files / "e.parquet", "--json").stdout)
    assert (told["pairs"], told["busiest"], told["silent"]) == (1, [{"subscription": "cheap", "count": 1}], ["dear"])


def test_command_over_a_compiled_index(files: Path) -> None:
    made = CliRunner().invoke(app, ["compile", "-s", str(files / "subs.jsonl"), "--out", str(files / "index")])
    assert made.exit_code == 0, made.stderr
    assert "cheap  1  20 %" in run("-s", files / "index", files / "e.parquet").stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["price <=", "e.parquet"], "line 1, column"),
        (["-x", "price < 1", "-x", "lowr(x) = 'a'", "e.parquet"], "expression 1: the function lowr"),
        (["price < 1", "missing.parquet"], "missing.parquet: No such file"),
        (["price < 1", "bad.parquet"], "bad.parquet: cannot be read as parquet"),
        (["price < 1", "bad.csv"], "bad.csv cannot be read as csv"),
        (["price < 1", "e.xlsx"], "the ending tells no format"),
        (["price < 1", "e.parquet", "--time", "when"], "no column is called 'when'"),
        (["price < 1", "e.parquet", "--attributes", "x"], "no column is called 'x'"),
        (["price < 1", "e.jsonl", "bad.jsonl"], "bad.jsonl, event 1: line 2, column 1: found broken JSON"),
        (["-s", "subs.jsonl", "bad.jsonl"], "bad.jsonl, event 1: line 2, column 1: found broken JSON"),
        (["-f", "empty.txt", "e.parquet"], "holds no expression"),
        (["-s", "bad.jsonl", "e.parquet"], "bad subscription"),
    ],
)
def test_command_with_bad_input(
    arguments: list[str], message: str, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (files / "bad.parquet").write_bytes(b"nonsense")
    (files / "bad.csv").write_bytes(b"a,b\n1,2\n" + b"3\n")
    (files / "bad.jsonl").write_bytes(b'{"price": 1}\nnonsense\n')
    (files / "empty.txt").touch()
    monkeypatch.chdir(files)
    result = run(*arguments)
    assert result.exit_code == 3, result.stdout + result.stderr
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""


def test_command_past_bad_events(files: Path) -> None:
    result = run("price < 20", "--on-error", "skip", stdin=b'{"price": 1}\nnonsense\n')
    assert result.exit_code == 0
    assert "1 of 2 events match" in result.stdout
    assert "standard input, event 1: line 2, column 1" in result.stderr


def test_wrong_command_lines(files: Path) -> None:
    for arguments in (
        [],
        ["--json"],
        ["-x", "TRUE", "-s", "subs.jsonl"],
        ["-s", "-", "-"],
        ["-s", "subs.jsonl", "--time", "t", "e.parquet"],
        ["TRUE", "--examples", "-1"],
    ):
        assert run(*arguments).exit_code == 2, arguments
