"""Export and import: what comes back is what went out, to the byte, or there is an error that says why."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import tempfile
import textwrap
import threading
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import strategies
from dibs.errors import DamagedError, DibsError, DuplicateId, FormatError, StorageError, SubscriptionErrors
from dibs.exchange import export, import_from
from dibs.exchange import files as exchange_files
from dibs.language.printer import to_sql
from dibs.matcher import Matcher

HERE = Path(__file__).parent
ENDINGS = ["parquet", "jsonl"]
ROWS: list[tuple[Any, ...]] = [
    (5, "x = 1 OR y LIKE '%é_'", math.inf),
    ("5", "x = 2", -0.0),
    ("", "TRUE", -math.inf),
    ("zürich\x00\U0001f600\n", "s = 'a\nb' -- a remark", 0.1),
    (-(2**63), "x BETWEEN 1 AND 3", 5e-324),
    (2**63 - 1, "x IN (1, 2, 3)"),
    ("\uffff", "x = 1"),
    ("\U00010000", "x = 1"),
]
EVENTS: list[dict[str, Any]] = [{"x": 1}, {"x": 2, "y": "éa"}, {"s": "a\nb"}, {}]


def made(rows: Iterable[tuple[Any, ...]]) -> Matcher:
    matcher = Matcher()
    matcher.add_many(rows)
    return matcher


def content(matcher: Matcher) -> list[tuple[str, str, str]]:
    """Everything that a matcher has but for versions, told apart to the bit (-0.0 is not 0.0)."""
    with tempfile.TemporaryDirectory() as folder:
        export(matcher, Path(folder, "a.jsonl"))
        rows = [orjson.loads(line) for line in Path(folder, "a.jsonl").read_bytes().splitlines()]
    found = [matcher.get(row["id"]) for row in rows]
    assert len(found) == len(matcher)
    return [(repr(s.id), s.expression, repr(s.weight)) for s in found]


def pairs(matcher: Matcher, events: list[dict[str, Any]]) -> bytes:
    found = enumerate(matcher.match_batch(events))
    return repr(sorted((event, repr(id)) for event, ids in found for id in ids)).encode()


def moved(matcher: Matcher, path: Path) -> Matcher:
    export(matcher, path)
    other = Matcher()
    assert import_from(other, path) == []
    return other


# ---- there and back ----

IDS = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.integers(0, 9),
    st.integers(0, 9).map(str),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    st.text("ab", min_size=479, max_size=600),
)
TEXTS = st.one_of(strategies.expressions().map(to_sql), st.sampled_from([str(row[1]) for row in ROWS]))
WEIGHTS = st.one_of(st.just(1.0), st.floats(allow_nan=False), st.sampled_from([math.inf, -math.inf, -0.0, 0.0]))


@settings(max_examples=40)
@given(
    st.lists(st.tuples(IDS, TEXTS, WEIGHTS), max_size=12, unique_by=lambda row: repr(row[0])),
    st.sampled_from(ENDINGS),
    st.sets(st.integers(0, 11)),
    st.lists(strategies.events(), min_size=1, max_size=4),
)
def test_there_and_back(rows: list[Any], ending: str, gone: set[int], events: list[Any]) -> None:
    matcher = Matcher()
    matcher.add_many(rows[:5])
    for row in rows[5:]:
        matcher.add(*row)
        matcher.match({})  # so that there are several layers
    for place in gone & set(range(len(rows))):
        matcher.remove(rows[place][0])
    kept = [row for place, row in enumerate(rows) if place not in gone]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        first = moved(matcher, folder / f"a.{ending}")
        second = moved(first, folder / f"b.{ending}")
        export(second, folder / f"c.{ending}")
        assert (folder / f"b.{ending}").read_bytes() == (folder / f"c.{ending}").read_bytes()
        assert sorted(os.listdir(folder)) == [f"{n}.{ending}" for n in "abc"]
    expected = sorted((repr(id), text, repr(weight)) for id, text, weight in kept)
    assert sorted(content(matcher)) == sorted(content(first)) == expected
    assert pairs(matcher, events) == pairs(first, events) == pairs(second, events)


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("of_type", [int, str, None])
def test_order_and_columns(ending: str, of_type: type | None, tmp_path: Path) -> None:
    rows = [row for row in ROWS if of_type in (None, type(row[0]))]
    path = tmp_path / f"a.{ending}"
    assert export(made(rows), path) == len(rows)
    ids: list[Any] = sorted(row[0] for row in rows if isinstance(row[0], int))
    ids += sorted(row[0] for row in rows if isinstance(row[0], str))
    if ending == "jsonl":
        lines = [orjson.loads(line) for line in path.read_bytes().splitlines()]
        assert [line["id"] for line in lines] == ids
        assert list(lines[0]) == ["id", "expression", "weight", "version"]
        return
    table = pq.read_table(path)
    assert table.schema.metadata[b"dibs.format"] == b"1"
    assert table.schema.metadata[b"dibs.count"] == str(len(rows)).encode()
    assert table.schema.metadata[b"dibs.version"] == str(len(rows)).encode()
    assert table.schema.metadata[b"dibs.index"] == b"auto"
    flag = [] if of_type else ["id_is_integer"]
    assert table.column_names == ["id", *flag, "expression", "weight", "version"]
    assert table["id"].to_pylist() == (ids if of_type else list(map(str, ids)))
    assert pa.types.is_integer(table["id"].type) == (of_type is int)
    if flag:
        assert table["id_is_integer"].to_pylist() == [isinstance(id, int) for id in ids]
    by_id = {repr(row[0]): place for place, row in enumerate(rows, 1)}
    assert table["version"].to_pylist() == [by_id[repr(id)] for id in ids]


@pytest.mark.parametrize("ending", ENDINGS)
def test_equal_content_gives_equal_bytes(ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange_files, "ROWS", 3)  # several batches
    one, other = made(ROWS), Matcher()
    for row in ROWS:  # the same changes, filed in another way
        other.add(*row)
        other.match({"x": 1})
    one.compact()
    export(one, tmp_path / f"one.{ending}")
    export(other, tmp_path / f"other.{ending}")
    assert (tmp_path / f"one.{ending}").read_bytes() == (tmp_path / f"other.{ending}").read_bytes()
    other.replace("5", "x = 3")
    export(other, tmp_path / f"other.{ending}")
    assert (tmp_path / f"one.{ending}").read_bytes() != (tmp_path / f"other.{ending}").read_bytes()


@pytest.mark.parametrize("ending", ENDINGS)
def test_nothing_to_export(ending: str, tmp_path: Path) -> None:
    assert len(moved(Matcher(), tmp_path / f"a.{ending}")) == 0


@pytest.mark.parametrize("ending", ENDINGS)
def test_durable(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"a.{ending}"
    with Matcher.open(tmp_path / "one") as matcher:
        matcher.add_many(ROWS)
        matcher.remove("5")
        times = {id: matcher.get(id).time for id in [row[0] for row in ROWS] if id in matcher}
        assert export(matcher, path) == len(ROWS) - 1
        expected, found = content(matcher), pairs(matcher, EVENTS)
    if ending == "parquet":
        table = pq.read_table(path)
        assert table.schema.field("time").type == pa.timestamp("us", "UTC")
        assert set(table["time"].cast(pa.int64()).to_pylist()) == set(times.values())
    with Matcher.open(tmp_path / "two") as other:
        import_from(other, path)
    with Matcher.open(tmp_path / "two", read_only=True) as other:
        assert content(other) == expected
        assert pairs(other, EVENTS) == found
        export(other, tmp_path / f"b.{ending}")
    assert content(moved_from(tmp_path / f"b.{ending}")) == expected


def moved_from(path: Path) -> Matcher:
    matcher = Matcher()
    import_from(matcher, path)
    return matcher


def test_saved_files_are_exported(tmp_path: Path) -> None:
    made(ROWS).save(tmp_path / "saved")
    with Matcher.load(tmp_path / "saved") as loaded:
        assert content(moved(loaded, tmp_path / "a.parquet")) == content(made(ROWS))
        with pytest.raises(DibsError, match="read-only"):
            import_from(loaded, tmp_path / "a.parquet")
    with pytest.raises(DibsError, match="closed"):
        export(loaded, tmp_path / "b.parquet")
    assert not (tmp_path / "b.parquet").exists()


@pytest.mark.parametrize("durable", [False, True])
def test_an_export_is_of_one_moment(durable: bool, tmp_path: Path) -> None:
    """Ten subscriptions are replaced together again and again: an export never sees two generations."""
    with Matcher.open(tmp_path / "m") if durable else Matcher() as matcher:
        matcher.add_many([(id, "g = 0") for id in range(10)])
        ended = threading.Event()

        def change() -> None:
            generation = 0
            while not ended.is_set():
                generation += 1
                with matcher.batch():
                    for id in range(10):
                        matcher.replace(id, f"g = {generation}")

        thread = threading.Thread(target=change)
        thread.start()
        seen = set()
        try:
            for _ in range(30):
                assert export(matcher, tmp_path / "a.parquet") == 10
                texts = pq.read_table(tmp_path / "a.parquet")["expression"].to_pylist()
                assert len(set(texts)) == 1
                seen.add(texts[0])
        finally:
            ended.set()
            thread.join()
        assert len(seen) > 1, "the other thread changed nothing meanwhile"


def test_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange_files, "ROWS", 100)
    matcher, told = made([(i, f"x = {i}") for i in range(1000)]), []
    export(matcher, tmp_path / "a.parquet", told.append)
    assert sum(told) == 1000 and len(told) == 10
    told.clear()
    import_from(Matcher(), tmp_path / "a.parquet", progress=told.append)
    assert sum(told) == 1000


# ---- files of others ----


@pytest.mark.parametrize(
    "columns",
    [
        {"id": pa.array([1, 2, 3], pa.int32())},
        {"id": pa.array([1, 2, 3], pa.uint64()), "weight": pa.array([None, 2, None], pa.int8())},
        {"id": ["a", "b", "c"], "weight": pa.array([None, Decimal("2"), None], pa.decimal128(9, 3))},
        {"id": pa.array(["a", "b", "c"]).dictionary_encode(), "more": [[1], [], None]},
        {"id": pa.array(["a", "b", "c"], pa.string_view()), "weight": pa.nulls(3)},
        {"id": pa.array([1, 2, 3]), "id_is_integer": [False, True, None]},
        {"id": ["a", "b", "c"], "id_is_integer": [1, 2, 3]},
    ],
)
def test_tables_of_others(columns: dict[str, Any], tmp_path: Path) -> None:
    texts = pa.array(["x = 1", "x = 2", "TRUE"], columns["id"].type if "more" in columns else None)
    pq.write_table(pa.table({**columns, "expression": texts}), tmp_path / "a.parquet")
    matcher = moved_from(tmp_path / "a.parquet")
    ids = pa.array(columns["id"]).to_pylist()
    assert matcher.match({"x": 2}) == ids[1:]
    weighted = "weight" in columns and pa.array(columns["weight"])[1].as_py() is not None
    assert [matcher.weight(id) for id in ids] == [1, 2 if weighted else 1, 1]


def test_a_folder_of_tables(tmp_path: Path) -> None:
    folder = tmp_path / "subs"
    folder.mkdir()
    with pytest.raises(FormatError, match=r"holds no \.parquet file"):
        import_from(Matcher(), folder)
    pq.write_table(pa.table({"id": pa.array([1], pa.int32()), "expression": ["TRUE"]}), folder / "part-0.parquet")
    pq.write_table(pa.table({"id": [2], "expression": ["TRUE"], "weight": [3]}), folder / "part-1.parquet")
    (folder / "_SUCCESS").touch()
    matcher = moved_from(folder)
    assert [matcher.get(id)[:3] for id in (1, 2)] == [(1, "TRUE", 1.0), (2, "TRUE", 3.0)]
    pq.write_table(pa.table({"id": ["a"], "expression": ["TRUE"]}), folder / "part-2.parquet")
    with pytest.raises(FormatError, match="differ in the types"):
        import_from(Matcher(), folder)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"name": ["a"], "expression": ["TRUE"]}, "has no column 'id', only 'name', 'expression'"),
        ({"x": [1]}, "no column 'id' and no column 'expression'"),
        ({"id": [1], "expression": ["TRUE"], "weight": ["much"]}, "'weight' must hold numbers, not string"),
    ],
)
def test_tables_without_the_columns(columns: dict[str, Any], message: str, tmp_path: Path) -> None:
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    with pytest.raises(FormatError, match=message):
        import_from(Matcher(), tmp_path / "a.parquet")


def test_a_later_format(tmp_path: Path) -> None:
    table = pa.table({"id": [1], "expression": ["TRUE"]}).replace_schema_metadata({"dibs.format": "2"})
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(FormatError, match="the format 2; this version of Dibs reads 1"):
        import_from(Matcher(), tmp_path / "a.parquet")


# ---- all or nothing ----


@pytest.mark.parametrize("ending", ENDINGS)
def test_ids_that_are_taken(ending: str, tmp_path: Path) -> None:
    export(made(ROWS), tmp_path / f"a.{ending}")
    matcher = made([("5", "x = 9"), (2**63 - 1, "x = 9"), (7, "x = 9")])
    before = content(matcher)
    with pytest.raises(SubscriptionErrors) as caught:
        import_from(matcher, tmp_path / f"a.{ending}")
    assert [(r.position, r.id) for r in caught.value.rejected] == [(2, 2**63 - 1), (4, "5")]
    assert all(isinstance(r.error, DuplicateId) for r in caught.value.rejected)
    assert content(matcher) == before
    left_out = import_from(matcher, tmp_path / f"a.{ending}", on_error="skip")
    assert [(r.position, r.id) for r in left_out] == [(2, 2**63 - 1), (4, "5")]
    assert len(matcher) == 3 + len(ROWS) - 2
    assert matcher.expression("5") == "x = 9"


@pytest.mark.parametrize("mixed", [False, True])
def test_every_bad_row_is_listed(mixed: bool, tmp_path: Path) -> None:
    ids: list[Any] = ["1", "2", "2", "4", None, "6", "7"]
    texts = ["x = 1", "x = 2", "x = 3", "x >", "TRUE", None, "TRUE"]
    columns: dict[str, Any] = {"id": ids, "expression": texts, "weight": [1, 1, 1, 1, 1, 1, math.nan]}
    wrong = [2, 3, 4, 5, 6]
    if mixed:
        columns = {name: [*values, values[0]] for name, values in columns.items()}
        columns["id"][-1] = "01"
        columns["id_is_integer"] = [True, False, False, True, True, False, False, True]
        wrong.append(7)
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    matcher = made([("zero", "TRUE")])
    with pytest.raises(SubscriptionErrors) as caught:
        import_from(matcher, tmp_path / "a.parquet")
    assert [r.position for r in caught.value.rejected] == wrong
    assert len(matcher) == 1
    assert [r.position for r in import_from(matcher, tmp_path / "a.parquet", on_error="skip")] == wrong
    assert sorted(map(repr, matcher.match({"x": [1, 2]}))) == sorted(map(repr, [1 if mixed else "1", "2", "zero"]))


def test_bad_lines_are_listed(tmp_path: Path) -> None:
    lines = [
        '\ufeff{"id": 1, "expression": "TRUE"}',
        "",
        "no JSON",
        "[1]",
        '{"id": 2}',
        '{"expression": "TRUE"}',
        '{"id": 3, "expression": "TRUE", "weight": "heavy"}',
        '{"id": 4.5, "expression": "TRUE"}',
        '{"id": 5, "expression": 5}',
        '{"id": 6, "expression": "x >"}',
        '{"id": 1, "expression": "TRUE"}',
        '{"id": "ok", "expression": "TRUE", "weight": "-Infinity", "other": {}}',
    ]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    with pytest.raises(SubscriptionErrors) as caught:
        import_from(Matcher(), tmp_path / "a.jsonl")
    assert [r.position for r in caught.value.rejected] == list(range(2, 11))
    matcher = Matcher()
    import_from(matcher, tmp_path / "a.jsonl", on_error="skip")
    assert content(matcher) == [("1", "TRUE", "1.0"), ("'ok'", "TRUE", "-inf")]


def test_an_import_within_a_batch(tmp_path: Path) -> None:
    export(made(ROWS), tmp_path / "a.parquet")
    matcher = Matcher()

    def fail() -> None:
        with matcher.batch():
            import_from(matcher, tmp_path / "a.parquet")
            assert len(matcher) == len(ROWS)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert len(matcher) == 0
    with matcher.batch():
        import_from(matcher, tmp_path / "a.parquet")
    assert content(matcher) == content(made(ROWS))


# ---- bad files ----


@pytest.mark.parametrize(
    ("name", "bytes_", "error", "message"),
    [
        ("a.csv", b"id,expression\n1,TRUE\n", FormatError, "use .parquet or .jsonl"),
        ("a.parquet", b"id,expression\n1,TRUE\n", FormatError, "is no Parquet file"),
        ("a.parquet", b"", DamagedError, "cannot be read"),
        ("a.parquet", b"PAR1 and no more", DamagedError, "export it again"),
        ("a.parquet", None, StorageError, "there is no such file"),
        ("a.jsonl", None, StorageError, "there is no such file"),
        ("a.jsonl", b"PAR1\n\x00\xff\n", FormatError, "holds no subscription as a JSON line; line 1"),
        ("a.jsonl", b'{"id":1,"expression":"TRUE"}\n{"id":2,"expr', DamagedError, "its last line is cut off"),
    ],
)
def test_files_that_are_none(
    name: str, bytes_: bytes | None, error: type[DibsError], message: str, tmp_path: Path
) -> None:
    if bytes_ is not None:
        (tmp_path / name).write_bytes(bytes_)
    matcher = Matcher()
    with pytest.raises(error, match=message) as caught:
        import_from(matcher, tmp_path / name, on_error="skip")
    assert str(tmp_path / name) in str(caught.value)
    assert len(matcher) == 0


def test_endings(tmp_path: Path) -> None:
    for name in ("a.csv", "a", "a.parquet.gz"):
        with pytest.raises(FormatError, match=r"use \.parquet or \.jsonl"):
            export(made(ROWS), tmp_path / name)
    assert os.listdir(tmp_path) == []
    export(made(ROWS), tmp_path / "A.PARQUET")
    assert content(moved_from(tmp_path / "A.PARQUET")) == content(made(ROWS))


CHANGED_FILES = """
    import sys
    from pathlib import Path
    import numpy as np
    from dibs.errors import DibsError
    from dibs.exchange import export, import_from
    from dibs.matcher import Matcher
    import test_exchange as tests

    path = Path(sys.argv[1])
    rows = [(1000 + i, f"x = {i % 7} AND name LIKE 'a{i}%'", float(i)) for i in range(200)] + tests.ROWS
    export(tests.made(rows), path)
    whole, expected = path.read_bytes(), tests.content(tests.made(rows))
    random = np.random.default_rng(1)
    # Every byte of the head and the footer, where pages have no checksum, and some of the pages.
    footer = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    places = [*range(8), *range(footer, len(whole)), *random.choice(footer, 100, replace=False).tolist()]
    step = max(1, len(places) // 250)
    refused = 0
    for place in places[::step]:
        changed = bytearray(whole)
        changed[place] ^= 1 << int(random.integers(8))
        path.write_bytes(changed)
        matcher = Matcher()
        try:
            import_from(matcher, path)
        except DibsError:
            refused += 1
            assert len(matcher) == 0
        else:
            assert tests.content(matcher) == expected, place
    for length in range(0, len(whole), max(1, len(whole) // 25)):
        path.write_bytes(whole[:length])
        try:
            import_from(Matcher(), path)
        except DibsError:
            refused += 1
        else:
            raise AssertionError(f"cut off at {length}, and read")
    assert refused > 80, refused
"""

REFUSED = """
    import os, subprocess, sys
    from pathlib import Path
    from dibs.errors import StorageError
    from dibs.exchange import export
    from dibs.matcher import Matcher
    import test_exchange as tests

    folder, step, ending, wanted = Path(sys.argv[1]), *sys.argv[2:]
    path = folder / f"a.{ending}"
    small = tests.made(tests.ROWS)
    export(small, path)
    before = path.read_bytes()
    large = Matcher()
    large.add_many([(os.urandom(400).hex(), f"x = {i}") for i in range(6000)])
    if step == "limit":
        import resource, signal
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
    elif step == "read-only":
        subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
    for _ in range(2):
        try:
            export(large, path)
        except StorageError as e:
            assert wanted in str(e), e
            assert e.path == path
        else:
            raise AssertionError("it was written")
        assert os.listdir(folder) == [path.name], os.listdir(folder)
        assert path.read_bytes() == before
    if step == "full":
        assert export(small, path) == len(tests.ROWS)
"""


def run(program: str, *arguments: str, before: str = "") -> None:
    python = [sys.executable, "-c", textwrap.dedent(program), *arguments]
    command = ["unshare", "-rm", "sh", "-c", f'{before} && exec "$@"', "sh", *python] if before else python
    done = subprocess.run(command, capture_output=True, text=True, cwd=HERE)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def may_mount(folder: Path) -> bool:
    command = ["unshare", "-rm", "mount", "-t", "tmpfs", "none", str(folder)]
    try:
        return subprocess.run(command, capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


def test_changed_and_cut_off_files(tmp_path: Path) -> None:
    run(CHANGED_FILES, str(tmp_path / "a.parquet"))


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize(("step", "wanted"), [("full", "the disk is full"), ("read-only", "filesystem is read-only")])
def test_full_and_read_only_disks(ending: str, step: str, wanted: str, tmp_path: Path) -> None:
    if may_mount(tmp_path):
        run(REFUSED, str(tmp_path), step, ending, wanted, before=f"mount -t tmpfs -o size=2m none '{tmp_path}'")
    else:
        run(REFUSED, str(tmp_path), "limit", ending, "larger than the system allows")


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="there is no folder"):
        export(made(ROWS), tmp_path / "none" / "a.parquet")
    (tmp_path / "b.parquet").mkdir()
    with pytest.raises(StorageError, match="a folder stands there"):
        export(made(ROWS), tmp_path / "b.parquet")
    assert os.listdir(tmp_path) == ["b.parquet"]
