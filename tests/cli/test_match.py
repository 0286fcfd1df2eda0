"""dibs match: formats in and out, and places of mistakes."""

from __future__ import annotations

import gc
import io
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from command_line import EVENTS, EXPECTED, SUBSCRIPTIONS, found, json_rows, lines_of, run
from dibs.cli import events

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


@pytest.mark.parametrize("ending", ["parquet", "arrow", "csv"])
def test_events_whose_names_come_late(ending: str, subs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dibs.coding.lines.BYTES_AT_ONCE", 64)
    rows = [{"price": 15}] * 20 + [{"price": 15, "sku": "late"}, {"price": 15, "sku": 7}]
    target = tmp_path / f"pairs.{ending}"
    result = run("match", "-s", subs, "--event-id", "sku", "-o", target, stdin=lines_of(rows))
    assert result.exit_code == 0, result.stderr
    read = {"csv": pa.csv.read_csv, "parquet": pq.read_table}.get(ending, pa.feather.read_table)
    assert read(target)["event"].to_pylist()[-4:] == ["late", "late", "7", "7"]


def test_pairs_whose_ids_of_both_types_come_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dibs.coding.lines.BYTES_AT_ONCE", 64)
    (tmp_path / "s.jsonl").write_bytes(lines_of([{"id": id, "expression": "price > 1"} for id in (1, "a")]))
    stdin = lines_of([{"price": price} for price in [0] * 20 + [2]])
    result = run("match", "-s", tmp_path / "s.jsonl", "-o", tmp_path / "pairs.parquet", stdin=stdin)
    assert result.exit_code == 0, result.stderr
    assert pq.read_table(tmp_path / "pairs.parquet")["subscription"].to_pylist() == ["1", "a"]


def test_pairs_that_cannot_be_written(subs: Path, tmp_path: Path) -> None:
    pq.write_table(pa.table({"price": [15], "sku": [[1, 2]]}), tmp_path / "events.parquet")
    files = ["-s", subs, "-e", tmp_path / "events.parquet", "-o", tmp_path / "pairs.csv"]
    result = run("match", *files, "--event-id", "sku")
    assert result.exit_code == 3
    assert "pairs.csv cannot be written as csv: " in result.stderr


def test_a_compiled_index(subs: Path, products: Path, tmp_path: Path) -> None:
    for _ in range(2):
        made = run("compile", "-s", subs, "--out", tmp_path / "index")
        assert made.exit_code == 0, made.stderr
        assert "3 subscriptions are in" in made.stderr
    assert found(run("match", "-s", tmp_path / "index", "-e", products)) == EXPECTED
    assert found(run("match", "-s", tmp_path / "index", "-e", products, "--top", "1")) == [["bob"], ["bob"], []]
    other = run("match", "-s", tmp_path / "index", "-e", products, "--index", "counting")
    assert other.exit_code == 2
    assert "is compiled for the index 'auto'" in other.stderr
    refused = run("compile", "-s", subs, "--out", tmp_path)
    assert refused.exit_code == 3
    assert "give a new folder" in refused.stderr
    bad = run("compile", "-s", "-", "--out", tmp_path / "other", stdin=b"{}")
    assert bad.exit_code == 3
    assert not (tmp_path / "other").exists()


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
    monkeypatch.setattr("dibs.coding.lines.BYTES_AT_ONCE", 64)
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
    for command in (["match", "-s", "missing.jsonl"], ["compile", "-s", subs, "--out", tmp_path / "out"]):
        unknown = run(*command, "--index", "magic")
        assert unknown.exit_code == 2
        assert "no index is called 'magic'; there are: auto, " in unknown.stderr
    assert not (tmp_path / "out").exists()


def test_lines_have_a_limit(subs: Path, tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(b'{"price":15}\n\n' + b'{"price":15,"text":"' + b"x" * (1 << 20) + b'"}\n')
    for command in (["match", "-s", subs, "-e", path], ["backtest", "price = 15", path]):
        result = run(*command, "--max-line", "1")
        assert result.exit_code == 3
        assert f"{path}, line 3: longer than 1 MB; expected one object" in result.stderr
        assert "--max-line" in result.stderr
        assert run(*command).exit_code == 0
