"""CSV: no value is changed by the type that its column gets."""

from __future__ import annotations

import datetime as dt
import os
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from command_line import found, json_rows, run
from dibs.cli import csv_tables
from dibs.cli.csv_tables import CsvTable
from dibs.cli.csv_types import Column, Kind, convert_column
from dibs.cli.outcome import BadInput
from dibs.coding.events import read_events


def read(texts: list[str | None], kind: Kind | None = None, is_id: bool = False) -> tuple[pa.DataType, list[Any]]:
    column = Column("c", kind, is_id)
    column.look(pa.array(texts, pa.string()), 1)
    return column.type(), convert_column(pa.array(texts, pa.string()), column.type()).to_pylist()


TEXT = pa.large_string()


@pytest.mark.parametrize(
    ("texts", "type_", "values"),
    [
        (["1", "-2", None], pa.int64(), [1, -2, None]),
        (["9007199254740993"], pa.int64(), [2**53 + 1]),
        (["18446744073709551615", "0"], pa.uint64(), [2**64 - 1, 0]),
        (["18446744073709551615", "-1"], pa.decimal128(38, 0), [2**64 - 1, -1]),
        (["9007199254740993", "1.5"], pa.decimal128(38, 1), [2**53 + 1, Decimal("1.5")]),
        (["100000000000000000000"], pa.float64(), [1e20]),
        (["100000000000000000001"], TEXT, ["100000000000000000001"]),
        (["19.90", "0.1", "-0.5"], pa.float64(), [19.9, 0.1, -0.5]),
        (["0.30000000000000004"], pa.float64(), [0.30000000000000004]),
        (["0.10000000000000001"], TEXT, ["0.10000000000000001"]),
        (["1e3", "2.5E-3"], pa.float64(), [1000.0, 0.0025]),
        (["1e400"], TEXT, ["1e400"]),
        (["1e-400"], TEXT, ["1e-400"]),
        (["01234", "7"], TEXT, ["01234", "7"]),
        (["+7"], TEXT, ["+7"]),
        (["7 "], TEXT, ["7 "]),
        (["NaN"], TEXT, ["NaN"]),
        (["true", "false"], pa.bool_(), [True, False]),
        (["True", "FALSE"], pa.bool_(), [True, False]),
        (["true", "yes"], TEXT, ["true", "yes"]),
        (["2024-02-29"], pa.date32(), [dt.date(2024, 2, 29)]),
        (["2024-02-29", "2023-02-29"], TEXT, ["2024-02-29", "2023-02-29"]),
        ([None, None], TEXT, [None, None]),
        ([None, "", "1"], TEXT, [None, "", "1"]),
    ],
    ids=str,
)
def test_types_of_columns(texts: list[str | None], type_: pa.DataType, values: list[Any]) -> None:
    assert read(texts) == (type_, values)


def test_timestamps() -> None:
    noon = dt.datetime(2024, 1, 31, 12, tzinfo=dt.timezone.utc)
    texts = ["2024-01-31 12:00", "2024-01-31T12:00:00Z", "2024-01-31 14:00:00.000001+02:00", "2024-01-31"]
    type_, values = read([*texts])
    assert pa.types.is_timestamp(type_)
    assert values == [noon, noon, noon + dt.timedelta(microseconds=1), noon - dt.timedelta(hours=12)]
    for text in ("2024-01-31 25:00:00", "2024-01-31 12:00:00.0000001", "2024-01-31 12"):
        assert read([texts[0], text]) == (TEXT, [texts[0], text])


@pytest.mark.parametrize(
    ("texts", "type_"),
    [
        (["7", "12", "-1", "0"], pa.int64()),
        (["9223372036854775807"], pa.int64()),
        (["9223372036854775808"], TEXT),
        (["007", "7"], TEXT),
        (["-0"], TEXT),
        (["1.0"], TEXT),
        (["1e3"], TEXT),
        (["+7"], TEXT),
        (["true"], TEXT),
        (["2024-01-31"], TEXT),
    ],
)
def test_ids(texts: list[str | None], type_: pa.DataType) -> None:
    found_type, values = read(texts, is_id=True)
    assert (found_type, [str(value) for value in values]) == (type_, texts)


numbers = st.one_of(
    st.integers(-(2**66), 2**66).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.decimals(allow_nan=False, allow_infinity=False, places=3).map(str),
    st.from_regex(r"[+-]?0?[0-9]{1,22}(\.[0-9]{1,20})?(e[+-]?[0-9]{1,3})?", fullmatch=True),
)


@given(st.lists(numbers, min_size=1, max_size=4))
def test_no_number_changes(texts: list[str | None]) -> None:
    """Text to number and back is the same value; and the language reads it as exactly that."""
    type_, values = read(texts)
    if pa.types.is_large_string(type_):
        return
    table = pa.table({"c": convert_column(pa.array(texts, pa.string()), type_)})
    keys = read_events(table, ["c"]).numbers
    for text, value, near, rest in zip(texts, values, keys.value.tolist(), keys.rest.tolist(), strict=True):
        assert text is not None
        exact = Decimal(text)
        assert exact in (Decimal(value), Decimal(repr(value) if isinstance(value, float) else value))
        if exact == exact.to_integral_value():
            assert int(near) + rest == int(exact)
        else:
            assert near == float(text)


@given(st.lists(numbers, min_size=1, max_size=4))
def test_numbers_that_are_asked_for_are_the_nearest(texts: list[str | None]) -> None:
    try:
        _, values = read(texts, Kind.number)
    except BadInput:
        assert any(float(text or 0) in (float("inf"), float("-inf")) for text in texts)
        return
    for text, value in zip(texts, values, strict=True):
        assert float(value) == float(text or 0)


def test_types_that_are_asked_for() -> None:
    assert read(["007", "+7", None, ".5"], Kind.number) == (pa.float64(), [7, 7, None, 0.5])
    assert read(["NaN", "-Infinity"], Kind.number)[1][1] == float("-inf")
    assert read(["1", "No", "t"], Kind.boolean) == (pa.bool_(), [True, False, True])
    assert read(["1", "2"], Kind.text) == (TEXT, ["1", "2"])
    wrong = {Kind.number: "7a", Kind.boolean: "maybe", Kind.date: "2024-02-30", Kind.timestamp: "now"}
    for kind, text in wrong.items():
        message = f"row 3, column 'c': '{text}' is no {kind.value}, as --types says; expected"
        with pytest.raises(BadInput, match=message):
            read([None, None, text], kind)


# ---- in dibs match ----


def test_the_values_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text(
        "id,expression,weight\n007,n = 9007199254740993,\n7,n = 9007199254740992,1.5\n8,zip = '01234',\n"
        "9,u = 18446744073709551615,\n"
    )
    (tmp_path / "e.csv").write_text("n,zip,u\n9007199254740993,01234,18446744073709551615\n9007199254740992,1234,0\n")
    result = run("match", "-s", tmp_path / "s.csv", "-e", tmp_path / "e.csv")
    assert found(result) == [["007", "8", "9"], ["7"]]
    assert "column 'zip' is text, because '01234' (row 1) is no number" in result.stderr
    quiet = run("match", "-s", tmp_path / "s.csv", "-e", tmp_path / "e.csv", "--types", "zip=text")
    assert (quiet.stdout, quiet.stderr) == (result.stdout, "")
    stdin = (tmp_path / "e.csv").read_bytes()
    assert run("match", "-s", tmp_path / "s.csv", "--format", "csv", stdin=stdin).stdout == result.stdout
    read_end, write_end = os.pipe()  # as a shell's <(...)
    os.write(write_end, stdin)
    os.close(write_end)
    try:
        events = f"/dev/fd/{read_end}"
        piped = run("match", "-s", tmp_path / "s.csv", "-e", events, "--format", "csv")
    finally:
        os.close(read_end)
    assert piped.stdout == result.stdout


def test_all_rows_decide_not_the_first_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_tables, "BLOCK", 1_000)
    rows = [str(n) for n in range(1, 2_000)] + ["007"]
    (tmp_path / "e.csv").write_text("code,n\n" + "".join(f"{code},{code}\n" for code in rows))
    table = CsvTable(str(tmp_path / "e.csv"), {"n": Kind.number})
    assert table.schema.types == [TEXT, pa.int64()]
    batches = list(table)
    assert len(batches) > 5
    assert pa.Table.from_batches(batches)["code"].to_pylist() == rows
    (tmp_path / "s.csv").write_text("id,expression\na,code = '007'\nb,code = '7'\n")
    result = run("match", "-s", tmp_path / "s.csv", "-e", tmp_path / "e.csv", "--matched-only")
    assert [(row["event"], row["subscriptions"]) for row in json_rows(result)] == [(6, ["b"]), (1_999, ["a"])]


def test_ids_are_all_of_one_kind(tmp_path: Path) -> None:
    path = tmp_path / "s.csv"
    for ids, wanted in ((["1", "2"], [1, 2]), (["1", "002"], ["002", "1"]), (["1", "a"], ["1", "a"])):
        path.write_text("id,expression\n" + "".join(f"{id},TRUE\n" for id in ids))
        assert found(run("match", "-s", path, stdin="{}")) == [wanted]
    path.write_text("id,expression\n1,TRUE\n")
    assert found(run("match", "-s", path, "--types", "id=text", stdin="{}")) == [["1"]]
    path.write_text("id,expression\n1,TRUE\n,TRUE\n3,TRUE\n")
    assert found(run("match", "-s", path, "--on-error", "skip", stdin="{}")) == [[1, 3]]
    assert "row 2: " in run("match", "-s", path, stdin="{}").stderr


def test_events_are_named_as_they_are_written(tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text("id,expression\n1,TRUE\n")
    (tmp_path / "e.csv").write_text("sku,day\n007,2024-01-31\n7,2024-02-01\n")
    arguments = ["-s", tmp_path / "s.csv", "-e", tmp_path / "e.csv"]
    for name, wanted in (("sku", ["007", "7"]), ("day", ["2024-01-31", "2024-02-01"])):
        assert [row["event"] for row in json_rows(run("match", *arguments, "--event-id", name))] == wanted
    run("match", *arguments, "--event-id", "sku", "-o", tmp_path / "pairs.parquet")
    assert pq.read_table(tmp_path / "pairs.parquet")["event"].to_pylist() == ["007", "7"]


def test_weights(tmp_path: Path) -> None:
    path = tmp_path / "s.csv"
    path.write_text("id,expression,weight\na,TRUE,1\nb,TRUE,heavy\nc,TRUE,\nd,TRUE,-Infinity\ne,TRUE,1e3\n")
    result = run("match", "-s", path, stdin="{}")
    assert result.exit_code == 3
    assert "s.csv, row 2: the weight must be a number, not 'heavy'" in result.stderr
    skipped = run("match", "-s", path, "--on-error", "skip", "--top", "9", stdin="{}")
    assert found(skipped) == [["e", "a", "c", "d"]]


def test_texts_that_are_no_utf_8_spoil_only_their_rows(tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_bytes(b"id,expression\na,n > 0\nb,t = '\xff'\n\xff,TRUE\n")
    (tmp_path / "e.csv").write_bytes(b"n,t\n1,x\n2,\xff\n")
    result = run("match", "-s", tmp_path / "s.csv", "-e", tmp_path / "e.csv")
    assert result.exit_code == 3
    assert "s.csv, row 2: " in result.stderr
    assert "s.csv, row 3: " in result.stderr
    (tmp_path / "s.csv").write_text("id,expression\na,n > 0\nb,t = 'x'\n")
    files = ["-s", tmp_path / "s.csv", "-e", tmp_path / "e.csv"]
    assert "e.csv, row 2: attribute 't'" in run("match", *files).stderr
    assert found(run("match", *files, "--on-error", "skip")) == [["a", "b"], ["a"]]


@pytest.mark.parametrize(
    ("content", "arguments", "code", "message"),
    [
        ("", [], 3, "e.csv cannot be read as csv: Empty CSV file"),
        ("a,b\n1\n", [], 3, "Row #2: Expected 2 columns, got 1"),
        ("a\n1\n", ["--types", "b=text"], 3, "e.csv has no column 'b', as --types says, only 'a'"),
        ("a\n1\nx\n", ["--types", "a=number"], 3, "e.csv, row 2, column 'a': 'x' is no number, as --types says"),
        ("a\n1\n", ["--types", "a=float"], 2, "'float' is no type; expected name=type"),
        ("a\n1\n", ["--types", "a"], 2, "'a' names no type"),
        ("a\n1\n", ["--types", "=text"], 2, "names no type"),
        ("a\n1\n", ["--event-id", "b"], 3, "the events have no column 'b', only 'a'"),
        ("a,b,b\n1,2,3\n", ["--event-id", "b"], 3, "the events have several columns 'b'"),
    ],
)
def test_what_is_told(content: str, arguments: list[str], code: int, message: str, tmp_path: Path, subs: Path) -> None:
    (tmp_path / "e.csv").write_text(content)
    for command in (["match", "-s", subs, "-e", tmp_path / "e.csv"], ["backtest", "a = 1", tmp_path / "e.csv"]):
        if command[0] == "backtest" and "--event-id" in arguments:
            continue
        result = run(*command, *arguments)
        assert (result.exit_code, result.stdout) == (code, ""), result.stderr
        assert message in " ".join(result.stderr.replace("│", "").split())


def test_types_of_ids(products: Path, tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text("id,expression\n1,price > 'a'\n")
    result = run("match", "-s", tmp_path / "s.csv", "-e", products, "--types", "id=date")
    assert result.exit_code == 2 and "ids are text or number" in result.stderr
    result = run("match", "-s", tmp_path / "s.csv", "-e", products, "--types", "id=text,price=text")
    assert result.exit_code == 0  # the id is that of the subscriptions, the price that of the events


def test_names_with_commas_and_equals_signs(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text('"a,b",c=d\n1,2\n')
    kinds = csv_tables.choose_types(["a,b=text,c=d=text"])
    assert kinds == {"a,b": Kind.text, "c=d": Kind.text}
    assert CsvTable(str(tmp_path / "e.csv"), kinds).schema.types == [TEXT, TEXT]


def test_backtest_reads_csv_alike(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text("n,zip,at\n9007199254740993,01234,2024-01-31\n9007199254740992,1234,2024-02-01\n")
    for expression in ("n = 9007199254740993", "zip = '01234'", "at < DATE '2024-02-01'"):
        result = run("backtest", expression, tmp_path / "e.csv", "--json")
        assert json_rows(result)[0]["count"] == 1, result.stderr
    asked = run("backtest", "zip = 1234", tmp_path / "e.csv", "--types", "zip=number", "--json")
    assert json_rows(asked)[0]["count"] == 2
