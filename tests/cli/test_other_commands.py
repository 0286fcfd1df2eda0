"""dibs explain, validate and generate, and the commands of the examples."""

from __future__ import annotations

import shlex
from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

import dibs
from command_line import found, json_rows, lines_of, run
from dibs.cli import generate
from dibs.papers.workloads import boolean
from dibs.papers.workloads.generators import GENERATORS

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


def test_explain_by_a_durable_folder(tmp_path: Path) -> None:
    folder = tmp_path / "alerts"
    with dibs.Matcher.open(folder) as m:
        m.add(5, "FORALL d (isbn <> d.isbn)")
        m.history.add({"isbn": 1})
    told = run("explain", "-s", folder, "--id", "5", "--event", '{"isbn": 1}')
    assert told.exit_code == 1 and "because of document 0: isbn 1 = 1" in told.stdout, told.stderr
    assert run("explain", "-s", folder, "--id", "5", "--event", '{"isbn": 2}').exit_code == 0
    nobody = run("explain", "-s", folder, "--id", "6", "--event", "{}")
    assert nobody.exit_code == 3 and "no subscription has the id '6'" in nobody.stderr
    assert run("explain", "-s", folder, "--id", "5", "--event", "{}", "--history", "x.jsonl").exit_code == 2


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
    bad = run("validate", "price <= 580", "price <=", "squirt(a) = 2")
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
    assert fine == {"place": "expression 1", "expression": "a = 1", "valid": True, "problems": [], "warnings": []}
    assert bad["valid"] is False
    assert set(bad["problems"][0]) == {"message", "advice", "start", "end", "line", "column"}


# ---- generate ----


def test_workload_names() -> None:
    assert [w.value for w in generate.Workload] == ["shop", *boolean.SHAPES, *GENERATORS]


@pytest.mark.parametrize("workload", ["shop", "dense", "begen", "qgrams", "prefixes"])
def test_generated_files_match_alike_in_all_formats(workload: str, tmp_path: Path) -> None:
    results = []
    for format in ("parquet", "jsonl", "csv", "arrow"):
        size = ["--subscriptions", "1500", "--events", "30", "--seed", "3", "--format", format]
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
    page = (examples / "README.md").read_text().partition("**The command line**")[2]  # tests/spark runs the rest
    commands = [line for line in page.splitlines() if line.startswith(("dibs ", "tail "))]
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


# ---- joins over history ----


def test_joins_over_history(tmp_path: Path) -> None:
    join = "FORALL d (isbn <> d.isbn)"
    subs, events, old = tmp_path / "subs.jsonl", tmp_path / "events.jsonl", tmp_path / "old.jsonl"
    subs.write_bytes(lines_of([{"id": "a", "expression": join}, {"id": "b", "expression": "isbn > 0"}]))
    events.write_bytes(lines_of([{"isbn": 1}, {"isbn": 1}, {"isbn": 7}]))
    old.write_bytes(lines_of([{"isbn": 7}]))
    run("compile", "-s", subs, "--out", tmp_path / "index", "--history", old)
    for source, history in ((subs, ["--history", old]), (tmp_path / "index", [])):
        assert found(run("match", "-s", source, "-e", events, *history)) == [["a", "b"], ["a", "b"], ["b"]]
        result = run("match", "-s", source, "-e", events, *history, "--remember")
        assert found(result) == [["a", "b"], ["b"], ["b"]] and result.stderr == ""
        result = run("match", "-s", source, "-e", events, *history, "--remember", "--retain", "1")
        assert found(result) == [["a", "b"], ["b"], ["a", "b"]]
    result = run("match", "-s", subs, "-e", events)
    assert found(result) == [["a", "b"]] * 3 and "no document is in the history" in result.stderr
    result = run("explain", "-x", join, "-e", '{"isbn": 7}', "--history", old)
    assert result.exit_code == 1 and "because of document 0: isbn 7 = 7" in result.stdout
    assert run("explain", "-s", subs, "--id", "a", "-e", '{"isbn": 8}', "--history", old).exit_code == 0
    for history, count in (([], 2), (["--history", old], 1), (["--history", old, "--retain", "0"], 3)):
        assert f"{count} of 3 events match" in run("backtest", "-x", join, events, *history).stdout
        table = run("backtest", "-s", subs, events, *history, "--json").stdout
        assert {"subscription": "a", "count": count} in orjson.loads(table)["busiest"]
    assert run("validate", join).exit_code == 0
    assert run("match", "-s", subs, "-e", events, "--history", tmp_path / "none.jsonl").exit_code == 3


def test_the_history_of_a_durable_folder(tmp_path: Path) -> None:
    join, folder = "FORALL d (isbn <> d.isbn)", tmp_path / "folder"
    events, old = tmp_path / "events.jsonl", tmp_path / "old.jsonl"
    events.write_bytes(lines_of([{"isbn": 1}, {"isbn": 1}]))
    old.write_bytes(lines_of([{"isbn": 7, "key": "k"}]))
    assert run("catalog", "add", folder, "a", join).exit_code == 0
    assert "added 1 document: 1 in the history" in run("catalog", "remember", folder, old, "--key", "key").stderr
    assert "added 0 documents: 1 in" in run("catalog", "remember", folder, old, "--key", "key").stderr
    assert found(run("match", "-s", folder, "-e", events)) == [["a"], ["a"]]
    assert found(run("match", "-s", folder, "-e", events, "--remember")) == [["a"], []]
    assert found(run("match", "-s", folder, "-e", events)) == [[], []]
    assert "3 documents" in run("catalog", "check", folder).stdout
    assert run("match", "-s", folder, "-e", events, "--history", old).exit_code == 2
    assert run("catalog", "remember", folder, tmp_path / "none.jsonl").exit_code == 3
