"""The command line: formats, places of mistakes, exit codes, and manners in a pipe."""

from __future__ import annotations

import gc
import io
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

import dibs
from dibs.cli import app, events, generate
from dibs.workloads import boolean

SUBSCRIPTIONS = [
    {"id": "alice", "expression": "model = 'iphone5s' AND price <= 580", "weight": 2},
    {"id": "bob", "expression": "brand LIKE 'App%' OR price BETWEEN 10 AND 20", "weight": 5},
    {"id": "carol", "expression": "price > 0"},
]
EVENTS = [
    {"sku": "p1", "model": "iphone5s", "brand": "Apple", "price": 550},
    {"sku": "p2", "price": 15},
    {"sku": "p3", "brand": "Nokia"},
]
EXPECTED = [["alice", "bob", "carol"], ["bob", "carol"], []]


def run(*arguments: str | Path, stdin: str | bytes = b"") -> Result:
    return CliRunner().invoke(app, [str(a) for a in arguments], input=stdin)


def lines_of(rows: list[Any]) -> bytes:
    return b"".join(orjson.dumps(row) + b"\n" for row in rows)


def json_rows(result: Result) -> list[Any]:
    return [orjson.loads(line) for line in result.stdout.splitlines()]


def found(result: Result) -> list[list[str]]:
    assert result.exit_code == 0, result.stderr
    rows = json_rows(result)
    assert [row["event"] for row in rows] == list(range(len(rows)))
    return [row["subscriptions"] for row in rows]


@pytest.fixture
def subs(tmp_path: Path) -> Path:
    path = tmp_path / "subs.jsonl"
    path.write_bytes(lines_of(SUBSCRIPTIONS))
    return path


@pytest.fixture
def products(tmp_path: Path) -> Path:
    path = tmp_path / "events.jsonl"
    path.write_bytes(lines_of(EVENTS))
    return path


WRITERS: dict[str, Callable[[pa.Table, Path], Any]] = {
    "csv": pa.csv.write_csv,
    "parquet": pq.write_table,
    "feather": pa.feather.write_feather,
    "arrow": lambda table, path: path.write_bytes(stream_of(table)),
}


def stream_of(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


# ---- match ----


def test_json_lines_in_and_out(subs: Path, products: Path) -> None:
    result = run("match", "--subscriptions", subs, "--events", products)
    assert result.exit_code == 0
    assert result.stdout.splitlines()[0] == '{"event":0,"subscriptions":["alice","bob","carol"]}'
    assert found(result) == EXPECTED
    assert result.stderr == ""


def test_events_from_standard_input(subs: Path) -> None:
    assert found(run("match", "-s", subs, stdin=lines_of(EVENTS))) == EXPECTED
    assert found(run("match", "-s", subs, "-e", "-", stdin=lines_of(EVENTS)[:-1])) == EXPECTED, "no last line end"
    assert run("match", "-s", subs, stdin=b"").stdout == ""


def test_subscriptions_from_standard_input(products: Path) -> None:
    assert found(run("match", "-s", "-", "-e", products, stdin=lines_of(SUBSCRIPTIONS))) == EXPECTED


@pytest.mark.parametrize("ending", WRITERS)
def test_tables_in(ending: str, tmp_path: Path) -> None:
    for name, rows in (("subs", SUBSCRIPTIONS), ("events", EVENTS)):
        names = list(dict.fromkeys(key for row in rows for key in row))
        table = pa.table({key: [row.get(key) for row in rows] for key in names})
        WRITERS[ending](table, tmp_path / f"{name}.{ending}")
    assert found(run("match", "-s", tmp_path / f"subs.{ending}", "-e", tmp_path / f"events.{ending}")) == EXPECTED


def test_tables_from_standard_input(subs: Path) -> None:
    table = pa.table({"price": [15, 600, None]})
    assert found(run("match", "-s", subs, "--format", "csv", stdin="price\n15\n600\n,\n"[:-2])) == [
        ["bob", "carol"],
        ["carol"],
    ]
    assert found(run("match", "-s", subs, "--format", "arrow", stdin=stream_of(table)))[0] == ["bob", "carol"]
    result = run("match", "-s", subs, "--format", "parquet", stdin=b"PAR1")
    assert result.exit_code == 3
    assert "give the file's name" in result.stderr


def test_a_folder_of_parquet_files(subs: Path, tmp_path: Path) -> None:
    folder = tmp_path / "products"
    folder.mkdir()
    pq.write_table(pa.table({"price": [15]}), folder / "part-0.parquet")
    pq.write_table(pa.table({"price": [600]}), folder / "part-1.parquet")
    (folder / "_SUCCESS").touch()
    assert found(run("match", "-s", subs, "-e", folder)) == [["bob", "carol"], ["carol"]]


def test_a_folder_of_parquet_files_has_the_columns_of_its_first(subs: Path, tmp_path: Path) -> None:
    folder = tmp_path / "products"
    folder.mkdir()
    pq.write_table(pa.table({"sku": ["p1"], "price": [15]}), folder / "part-0.parquet", row_group_size=1)
    pq.write_table(pa.table({"price": [12.0, 600.0], "more": [1, 2]}), folder / "part-1.parquet", row_group_size=1)
    batches = list(events.read_events(str(folder)))
    assert [(batch.first, batch.count) for batch in batches] == [(0, 1), (1, 1), (2, 1)]
    assert {tuple(batch.data.schema.names) for batch in batches} == {("sku", "price")}
    result = run("match", "-s", subs, "-e", folder, "--event-id", "sku")
    rows = [("p1", ["bob", "carol"]), (None, ["bob", "carol"]), (None, ["carol"])]
    assert json_rows(result) == [{"event": sku, "subscriptions": names} for sku, names in rows]


def test_a_slow_reader_of_parquet_holds_few_row_groups(tmp_path: Path) -> None:
    rows, groups = 10_000, 60
    table = pa.table({"n": range(rows), "text": [f"{i:08} " + "x" * 89 for i in range(rows)]})
    with pq.ParquetWriter(tmp_path / "events.parquet", table.schema) as writer:
        for _ in range(groups):
            writer.write_table(table)
    size, count = table.nbytes, 0
    del table
    gc.collect()
    before, most = pa.total_allocated_bytes(), 0
    for batch in events.read_events(str(tmp_path / "events.parquet")):
        if count < 5 * rows:  # time enough for Arrow to read all that it would
            time.sleep(0.1)
        most = max(most, pa.total_allocated_bytes() - before)
        count += batch.count
    assert count == batch.read == groups * rows
    assert most < 5 * size, f"{most / size:.1f} row groups of {groups}"


def test_csv_cells(subs: Path, tmp_path: Path) -> None:
    (tmp_path / "subs.csv").write_text(
        "id,expression\n1,TRUE\n2,name = ''\n3,name IS NULL\n4,day < DATE '2024-02-01'\n"
    )
    (tmp_path / "events.csv").write_text('name,day\n"",2024-01-31\n,2024-02-01\nNA,\n')
    assert found(run("match", "-s", tmp_path / "subs.csv", "-e", tmp_path / "events.csv")) == [[1, 2, 4], [1, 3], [1]]


@pytest.mark.parametrize("column", ["json", "map", "struct"])
def test_attributes_in_one_column(column: str, subs: Path, tmp_path: Path) -> None:
    prices = [15, 600]
    values = {
        "json": pa.array([f'{{"price":{price}}}' for price in prices]),
        "map": pa.array([[("price", price)] for price in prices], pa.map_(pa.string(), pa.int64())),
        "struct": pa.array([{"price": price} for price in prices]),
    }[column]
    pq.write_table(pa.table({"price": [1, 1], "about": values}), tmp_path / "events.parquet")
    result = run("match", "-s", subs, "-e", tmp_path / "events.parquet", "--attributes", "about")
    assert found(result) == [["bob", "carol"], ["carol"]]
    missing = run("match", "-s", subs, "-e", tmp_path / "events.parquet", "--attributes", "nothing")
    assert missing.exit_code == 3
    assert "nothing" in missing.stderr


def test_attributes_of_json_lines(subs: Path) -> None:
    assert found(run("match", "-s", subs, "--attributes", "a", stdin=b'{"price":1,"a":{"price":15}}')) == [
        ["bob", "carol"]
    ]


@pytest.mark.parametrize("ending", ["csv", "parquet", "arrow", "feather"])
@pytest.mark.parametrize("ids", [["alice", "bob", "carol"], [1, 2, 3], [1, 2, "carol"]])
def test_pairs_out(ending: str, ids: list[Any], products: Path, tmp_path: Path) -> None:
    renamed = [{**row, "id": id} for row, id in zip(SUBSCRIPTIONS, ids, strict=True)]
    target = tmp_path / f"pairs.{ending}"
    result = run("match", "-s", "-", "-e", products, "-o", target, stdin=lines_of(renamed))
    assert result.exit_code == 0, result.stderr
    assert result.stdout == ""
    read = {"csv": pa.csv.read_csv, "parquet": pq.read_table}.get(ending, pa.feather.read_table)
    table = read(target)
    if len({type(id) for id in ids}) == 2:
        ids = [str(id) for id in ids]
    assert table.to_pylist() == [
        {"event": event, "subscription": ids[s]} for event, s in ((0, 0), (0, 1), (0, 2), (1, 1), (1, 2))
    ]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["events.jsonl", f"pairs.{ending}"]


def test_pairs_of_no_events(subs: Path, tmp_path: Path) -> None:
    assert run("match", "-s", subs, "-o", tmp_path / "pairs.parquet").exit_code == 0
    assert pq.read_table(tmp_path / "pairs.parquet").num_rows == 0


def test_top_is_by_weight(subs: Path, products: Path, tmp_path: Path) -> None:
    assert found(run("match", "-s", subs, "-e", products, "--top", "2")) == [["bob", "alice"], ["bob", "carol"], []]
    run("match", "-s", subs, "-e", products, "--top", "1", "-o", tmp_path / "top.parquet")
    assert pq.read_table(tmp_path / "top.parquet")["subscription"].to_pylist() == ["bob", "bob"]
    assert run("match", "-s", subs, "-e", products, "--top", "0").exit_code == 2


def test_events_named_by_a_field(subs: Path, products: Path, tmp_path: Path) -> None:
    rows = json_rows(run("match", "-s", subs, "-e", products, "--event-id", "sku", "--matched-only"))
    assert rows == [{"event": "p1", "subscriptions": EXPECTED[0]}, {"event": "p2", "subscriptions": EXPECTED[1]}]
    run("match", "-s", subs, "-e", products, "--event-id", "sku", "-o", tmp_path / "pairs.csv")
    assert (tmp_path / "pairs.csv").read_text().splitlines()[:2] == ['"event","subscription"', '"p1","alice"']
    pq.write_table(pa.table({"sku": [7], "price": [15]}), tmp_path / "events.parquet")
    numbered = run("match", "-s", subs, "-e", tmp_path / "events.parquet", "--event-id", "sku")
    assert json_rows(numbered) == [{"event": 7, "subscriptions": ["bob", "carol"]}]
    wrong = run("match", "-s", subs, "-e", tmp_path / "events.parquet", "--event-id", "isbn")
    assert wrong.exit_code == 3
    assert "'isbn'" in wrong.stderr


def test_a_compiled_index(subs: Path, products: Path, tmp_path: Path) -> None:
    for _ in range(2):
        made = run("compile", "-s", subs, "--out", tmp_path / "index")
        assert made.exit_code == 0, made.stderr
        assert "3 subscriptions are in" in made.stderr
    assert found(run("match", "-s", tmp_path / "index", "-e", products)) == EXPECTED
    assert found(run("match", "-s", tmp_path / "index", "-e", products, "--top", "1")) == [["bob"], ["bob"], []]
    refused = run("compile", "-s", subs, "--out", tmp_path)
    assert refused.exit_code == 3
    assert "give a new folder" in refused.stderr
    bad = run("compile", "-s", "-", "--out", tmp_path / "other", stdin=b"{}")
    assert bad.exit_code == 3
    assert not (tmp_path / "other").exists()


# ---- what is wrong, and where ----


def test_a_broken_line_is_named_and_ends_the_run(subs: Path, tmp_path: Path) -> None:
    stdin = b'{"price":15}\n\n   \n{"price":\n[1]\n'
    result = run("match", "-s", subs, "-o", tmp_path / "out.jsonl", stdin=stdin)
    assert result.exit_code == 3
    assert "standard input, line 4: column" in result.stderr
    assert "line 5" in result.stderr
    assert "--on-error skip" in result.stderr
    assert "Traceback" not in result.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == ["subs.jsonl"], "nothing half-written is left"


def test_broken_lines_can_be_skipped_and_are_counted(subs: Path) -> None:
    stdin = b'\xef\xbb\xbf{"price":15}\r\n\r\nnonsense\r\n{"price":"\xff"}\r\n{"price":600}\r\n'
    result = run("match", "-s", subs, "--on-error", "skip", stdin=stdin)
    assert found(result) == [["bob", "carol"], [], [], ["carol"]]
    assert "2 events could not be read" in result.stderr
    assert "line 3: column 1" in result.stderr
    assert "line 4: column 11: found bytes that are not UTF-8" in result.stderr


def test_lines_and_events_are_counted_across_batches(subs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "BYTES_AT_ONCE", 64)
    many = [b'{"price":15}', b"", b'{"price":600}'] * 200
    many[450] = b"broken"
    result = run("match", "-s", subs, "--on-error", "skip", stdin=b"\n".join(many))
    assert found(result) == ([["bob", "carol"], ["carol"]] * 150 + [[], ["carol"]] + [["bob", "carol"], ["carol"]] * 49)
    assert "standard input, line 451: column 1" in result.stderr


def test_many_problems_are_shown_in_part(subs: Path) -> None:
    result = run("match", "-s", subs, "--on-error", "skip", stdin=b"x\n" * 1_000)
    assert "1,000 events could not be read" in result.stderr
    assert "... and 990 more" in result.stderr
    assert len(result.stderr.splitlines()) == 12


def test_bad_subscriptions_are_named(tmp_path: Path, products: Path) -> None:
    rows = [
        b'{"id": "alice", "expression": "price > 0"}',
        b"",
        b'{"id": "bob", "expression": "price <="}',
        b'{"id": "carol"}',
        b'{"id": 1.5, "expression": "TRUE"}',
        b'{"id": "dave", "expression": "TRUE", "weight": "much"}',
        b"{broken",
        b"[1]",
        b'{"id": "alice", "expression": "TRUE"}',
    ]
    (tmp_path / "subs.jsonl").write_bytes(b"\n".join(rows))
    result = run("match", "-s", tmp_path / "subs.jsonl", "-e", products)
    assert result.exit_code == 3
    assert result.stdout == ""
    assert "7 bad subscriptions:" in result.stderr
    for place in (
        "line 3: subscription 'bob'",
        "line 4: there is no 'expression'",
        "line 5: the id must be",
        "line 6: the",
    ):
        assert place in result.stderr
    for place in ("line 7: this is not JSON", "line 8: this is not a JSON object", "line 9: subscription 'alice'"):
        assert place in result.stderr
    assert "^" in result.stderr
    skipped = run("match", "-s", tmp_path / "subs.jsonl", "-e", products, "--on-error", "skip")
    assert found(skipped) == [["alice"], ["alice"], []]
    assert "7 bad subscriptions left out" in skipped.stderr


def test_bad_rows_of_a_table_are_named(tmp_path: Path, products: Path) -> None:
    pq.write_table(
        pa.table({"id": ["a", "b", None], "expression": ["TRUE", "price <=", "TRUE"]}), tmp_path / "s.parquet"
    )
    result = run("match", "-s", tmp_path / "s.parquet", "-e", products)
    assert result.exit_code == 3
    assert "row 2: subscription 'b'" in result.stderr
    assert "row 3: " in result.stderr


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("missing.jsonl", None, "missing.jsonl: No such file"),
        ("missing.parquet", None, "missing.parquet: no such file"),
        ("events.xlsx", b"", "the ending tells no format"),
        ("events.parquet", b"not parquet", "cannot be read as parquet"),
        ("events.arrow", b"not arrow", "cannot be read as arrow"),
        ("events.csv", b"a,b\n1\n", "cannot be read as csv"),
    ],
)
def test_files_that_cannot_be_read(name: str, content: bytes | None, message: str, subs: Path, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    for arguments in (["-s", subs, "-e", tmp_path / name], ["-s", tmp_path / name, "-e", subs]):
        result = run("match", *arguments)
        assert result.exit_code == 3, result.stderr
        assert message in result.stderr
        assert "Traceback" not in result.stderr


def test_a_parquet_file_that_is_damaged_further_on(subs: Path, tmp_path: Path) -> None:
    path = tmp_path / "events.parquet"
    pq.write_table(pa.table({"price": range(20_000)}), path, row_group_size=10_000, use_dictionary=False)
    chunk = pq.ParquetFile(path).metadata.row_group(1).column(0)
    with path.open("r+b") as file:
        file.seek(chunk.data_page_offset)
        file.write(b"\xff" * chunk.total_compressed_size)
    result = run("match", "-s", subs, "-e", path)
    assert result.exit_code == 3
    assert "events.parquet: cannot be read" in result.stderr
    assert "Traceback" not in result.stderr


def test_subscriptions_without_the_columns(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1], "query": ["TRUE"]}), tmp_path / "subs.parquet")
    result = run("match", "-s", tmp_path / "subs.parquet")
    assert result.exit_code == 3
    assert "no column 'expression', only 'id', 'query'" in result.stderr
    pq.write_table(pa.table({"id": [1], "expression": ["TRUE"], "weight": ["x"]}), tmp_path / "subs.parquet")
    assert "'weight' must hold numbers" in run("match", "-s", tmp_path / "subs.parquet").stderr


def test_wrong_command_lines(subs: Path, tmp_path: Path) -> None:
    assert run("match", "-s", "-").exit_code == 2
    assert run("match", "--events", "x.jsonl").exit_code == 2
    assert run("match", "-s", subs, "--on-error", "ignore").exit_code == 2
    assert run("explain", "-s", subs).exit_code == 2
    assert run("explain", "--expression", "TRUE", "-s", subs, "--id", "x").exit_code == 2
    assert run("validate", "TRUE", "--file", subs).exit_code == 2
    assert run("generate", "nothing", "--out", tmp_path).exit_code == 2
    assert run("generate", "dense", "--out", tmp_path, "--weights").exit_code == 2
    unknown = run("match", "-s", subs, "--index", "magic")
    assert unknown.exit_code == 3
    assert "no index is called 'magic'" in unknown.stderr


# ---- explain ----


def test_explain_yes_and_no(subs: Path) -> None:
    yes = run("explain", "--subscriptions", subs, "--id", "alice", "--event", '{"model": "iphone5s", "price": 550}')
    assert yes.exit_code == 0
    assert "alice matches" in yes.stdout
    assert "550" in yes.stdout
    no = run("explain", "-s", subs, "--id", "alice", stdin='{"model": "iphone5s", "price": 600}')
    assert no.exit_code == 1
    assert "alice does not match" in no.stdout
    assert run("explain", "-x", "price > 1", "-e", '{"price": 2}').exit_code == 0


def test_explain_as_json_and_with_integer_ids() -> None:
    stdin = lines_of([{"id": 17, "expression": "price > 1"}])
    result = run("explain", "-s", "-", "--id", "17", "--event", '{"price": 0}', "--json", stdin=stdin)
    assert result.exit_code == 1
    told = orjson.loads(result.stdout)
    assert (told["id"], told["matched"]) == (17, False)


def test_explain_bad_input(subs: Path) -> None:
    for arguments, message in (
        (["-s", subs, "--id", "nobody", "--event", "{}"], "none of its 3 subscriptions has the id 'nobody'"),
        (["-x", "price >", "--event", "{}"], "line 1, column"),
        (["-x", "TRUE", "--event", "{"], "the event is not JSON"),
        (["-x", "TRUE", "--event", "[1]"], "not a JSON object"),
        (["-s", "nothing.jsonl", "--id", "x", "--event", "{}"], "nothing.jsonl: No such file"),
    ):
        result = run("explain", *arguments)
        assert result.exit_code == 3, result.stdout
        assert message in result.stderr


# ---- validate ----


def test_validate_arguments() -> None:
    fine = run("validate", "price <= 580", "a IN (1, 2)")
    assert (fine.exit_code, fine.stdout) == (0, "")
    assert "2 of 2 expressions are fine" in fine.stderr
    bad = run("validate", "price <= 580", "price <=", "sqrt(a) = 2")
    assert bad.exit_code == 1
    assert "expression 2:\n" in bad.stdout
    assert "expression 3:\n" in bad.stdout
    assert "expression 1" not in bad.stdout
    assert "^" in bad.stdout
    assert "1 of 3 expressions are fine" in bad.stderr


def test_validate_lines(tmp_path: Path) -> None:
    stdin = b'price <= 580\n\n{"id": 1, "expression": "price <="}\n{"id": 2}\n{broken\n\xff = 1\n'
    result = run("validate", stdin=stdin)
    assert result.exit_code == 1
    assert [line for line in result.stdout.splitlines() if line.endswith(":")] == [
        "line 3, subscription 1:",
        "line 4, subscription 2:",
        "line 5:",
        "line 6:",
    ]
    (tmp_path / "conditions.txt").write_bytes(stdin)
    assert run("validate", "--file", tmp_path / "conditions.txt").stdout == result.stdout


def test_validate_files_of_subscriptions(tmp_path: Path) -> None:
    rows = [{"id": "a", "expression": "x = 1"}, {"id": "b", "expression": "x ="}, {"id": "a", "expression": "y = 1"}]
    (tmp_path / "s.jsonl").write_bytes(lines_of(rows))
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "s.parquet")
    for name, unit in (("s.jsonl", "line"), ("s.parquet", "row")):
        result = run("validate", "-f", tmp_path / name)
        assert result.exit_code == 1
        assert f"{unit} 2, subscription 'b':" in result.stdout
        assert f"the id 'a' is taken already, at {unit} 1" in result.stdout


def test_validate_for_programs() -> None:
    result = run("validate", "--json", "a = 1", "price <= AND b = 2")
    assert result.exit_code == 1
    fine, bad = json_rows(result)
    assert fine == {"place": "expression 1", "expression": "a = 1", "valid": True, "problems": []}
    assert bad["valid"] is False
    assert set(bad["problems"][0]) == {"message", "advice", "start", "end", "line", "column"}


# ---- generate ----


def test_workload_names() -> None:
    assert [w.value for w in generate.Workload] == ["shop", *boolean.SHAPES]


@pytest.mark.parametrize("workload", ["shop", "dense"])
def test_generated_files_match_alike_in_all_formats(workload: str, tmp_path: Path) -> None:
    results = []
    for format in ("parquet", "jsonl", "csv", "arrow"):
        size = ["--subscriptions", "500", "--events", "30", "--seed", "3", "--format", format]
        made = run("generate", workload, "--out", tmp_path, *size)
        assert made.exit_code == 0, made.stderr
        assert "dibs match --subscriptions" in made.stderr
        option = [] if format == "jsonl" else ["--attributes", "attributes"]
        files = ["-s", tmp_path / f"subscriptions.{format}", "-e", tmp_path / f"events.{format}"]
        results.append(found(run("match", *files, *option)))
    assert any(results[0])
    assert results[1:] == results[:1] * 3


def test_generated_shop_with_weights_and_broken_events(tmp_path: Path) -> None:
    size = ["--subscriptions", "100", "--events", "200", "--weights", "--malformed", "0.2", "--format", "jsonl"]
    assert run("generate", "shop", "--out", tmp_path, *size).exit_code == 0
    assert b'"weight":' in (tmp_path / "subscriptions.jsonl").read_bytes()
    files = ["-s", tmp_path / "subscriptions.jsonl", "-e", tmp_path / "events.jsonl"]
    assert run("match", *files).exit_code == 3
    assert len(found(run("match", *files, "--on-error", "skip"))) == 200


# ---- the examples ----


def test_commands_of_the_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    examples = Path(__file__).parents[2] / "examples"
    (tmp_path / "examples").symlink_to(examples)
    monkeypatch.chdir(tmp_path)
    commands = [
        line for line in (examples / "README.md").read_text().splitlines() if line.startswith(("dibs ", "tail "))
    ]
    results = []
    for command in commands:
        source, _, own = command.rpartition(" | ")
        stdin = Path(source.split()[-1]).read_text().splitlines()[-1] if source else ""
        results.append(run(*shlex.split(own)[1:], stdin=stdin))
    assert [result.exit_code for result in results] == [0, 0, 1, 1, 0, 0]
    assert json_rows(results[0]) == [
        {"event": "p-1", "subscriptions": ["alice", "bob"]},
        {"event": "p-2", "subscriptions": ["bob", "carol"]},
        {"event": "p-3", "subscriptions": []},
    ]
    assert found(results[1]) == [["bob"], ["bob"], []]
    assert pq.read_table("out/shop/pairs.parquet").num_rows > 500


# ---- as a process ----

DIBS = [sys.executable, "-c", "from dibs.cli import main; main()"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}


def test_help_teaches_and_starts_fast() -> None:
    code = (
        "import sys, types\n"
        "package = sys.modules['dibs'] = types.ModuleType('dibs')\n"  # what the package itself imports is its matter
        f"package.__path__ = [{str(Path(dibs.__file__).parent)!r}]\n"
        "import dibs.cli\n"
        "from typer.testing import CliRunner\n"
        "for command in ' match explain validate compile generate backtest catalog'.split(' '):\n"
        "    result = CliRunner().invoke(dibs.cli.app, [command, '--help'] if command else ['--help'])\n"
        "    assert result.exit_code == 0 and 'dibs ' in result.stdout, result\n"
        "heavy = {'numba', 'numpy', 'pyarrow', 'pyspark', 'sqlglot'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Exit codes:" in run("--help").stdout


def test_version() -> None:
    result = run("--version")
    assert result.exit_code == 0
    assert result.stdout.startswith("dibs 0.")


def test_a_closed_pipe_is_no_error(subs: Path, tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").write_bytes(b'{"price":15}\n' * 200_000)
    process = subprocess.Popen(
        [*DIBS, "match", "-s", str(subs), "-e", str(tmp_path / "events.jsonl")],
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline() == b'{"event":0,"subscriptions":["bob","carol"]}\n'
    process.stdout.close()
    assert process.wait(60) == 0
    assert process.stderr.read() == b""
    process.stderr.close()


def test_lines_are_answered_as_they_come_and_interrupting_is_quiet(subs: Path) -> None:
    process = subprocess.Popen(
        [*DIBS, "match", "-s", str(subs)],
        env=ENVIRONMENT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    for event, price in enumerate((15, 600)):
        process.stdin.write(f'{{"price":{price}}}\n'.encode())
        process.stdin.flush()
        assert orjson.loads(process.stdout.readline())["event"] == event
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    assert process.stderr.read() == b""
    for stream in (process.stdin, process.stdout, process.stderr):
        stream.close()
