"""Why an expression matches little: the same of dicts, JSON lines, tables and files; and what the numbers are is what
the conditions match."""

from __future__ import annotations

import io
import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dibs
from command_line import run
from dibs.past.diagnosis import MOST, Diagnosis, diagnose
from dibs.past.sources_files import open_events

DRAW = random.Random(5)
EVENTS: list[dict[str, Any]] = [
    {
        "price": DRAW.randrange(1_000),
        "brand": DRAW.choice(["Apple", "Acme", "Sony"]),
        "at": "2024-02-03",
        "fine": DRAW.random() < 0.5,
        "item": {"sku": f"A-{n}"},
        **({"colour": "red"} if n % 4 == 0 else {}),
    }
    for n in range(1_000)
]


def why(expression: str, events: Any = EVENTS, **more: Any) -> Diagnosis:
    found = dibs.backtest(expression, events, examples=0, **more)
    assert found.why is not None
    return found.why


def count(expression: str) -> int:
    return dibs.backtest(expression, EVENTS, examples=0).count


def test_an_attribute_that_no_event_has() -> None:
    [unseen] = why("prise < 500").unseen
    assert str(unseen) == "`prise`: never seen; did you mean `price`, in 100 % of events?"
    assert [(u.suggestion, u.share) for u in why("Colour = 'red' AND price > 0").unseen] == [("colour", 0.25)]
    assert [u.suggestion for u in why("sku = 'A-1'").unseen] == ["item.sku"]
    assert [str(u) for u in why("zzz = 1").unseen] == ["`zzz`: never seen"]
    later = [{"other": 1}] * 9_000 + EVENTS  # names are learnt from all of them, not from the first
    for events in (later, pa.Table.from_pylist([{"attributes": json.dumps(event)} for event in later])):
        [unseen] = why("prise < 500", events, **({} if events is later else {"attributes": "attributes"})).unseen
        assert unseen.suggestion == "price" and 0.09 < unseen.share < 0.11
    assert why("brand = 'none'").unseen == ()
    assert why("prise IS NULL AND price < 0").unseen == ()  # which is what it asks for
    assert [u.attribute for u in why("prise IS NOT NULL").unseen] == ["prise"]
    assert why("(prise > 1) IS NOT TRUE AND price < 0").unseen == ()  # nor does this ask for it
    assert why("(prise > 1) IS UNKNOWN AND NOT prise IS FALSE AND price < 0").unseen == ()
    assert [u.attribute for u in why("(prise > 1) IS FALSE").unseen] == ["prise"]
    assert [u.attribute for u in why("NOT (prise > 1 IS UNKNOWN OR prise IS NOT TRUE)").unseen] == ["prise"]


@pytest.mark.parametrize(
    ("condition", "asked", "found"),
    [
        ("price = '580'", "a string", "a number"),
        ("brand > 5", "a number", "a string"),
        ("brand IN (1, 2)", "a number", "a string"),
        ("brand BETWEEN 1 AND 2", "a number", "a string"),
        ("price LIKE '5%'", "a string", "a number"),
        ("fine = 1", "a number", "a boolean"),
        ("price = TRUE", "a boolean", "a number"),
    ],
)
def test_a_comparison_with_another_kind(condition: str, asked: str, found: str) -> None:
    [told] = why(f"{condition} AND price >= 0").across
    assert (told.asked, told.found) == (asked, found) and told.share == 1.0
    assert asked in str(told) and found in str(told)


@pytest.mark.parametrize("condition", ["price < 0", "brand = 'none'", "brand IN (1, 'none')", "at > DATE '2030-01-01'"])
def test_comparisons_that_are_of_the_kind_of_the_values(condition: str) -> None:
    assert why(condition).across == ()


def test_how_many_events_each_condition_leaves() -> None:
    conditions = ["price < 300", "brand = 'Apple'", "(colour = 'red' OR price < 10)", "price < 4"]
    found = why(" AND ".join(conditions))
    assert found.joined == "AND" and found.events == 1_000
    assert [step.alone for step in found.steps] == [count(condition) for condition in conditions]
    lefts = [count(" AND ".join(conditions[: n + 1])) for n in range(4)]
    assert [step.left for step in found.steps] == lefts and lefts == sorted(lefts, reverse=True)
    shown = " → ".join(f"{number:,}" for number in (1_000, *lefts))
    assert f"{shown} events are left by its conditions:" in found.lines
    [text] = [step.condition for step in found.steps if "OR" in step.condition]
    assert "colour" in text


def test_alternatives_are_told_one_by_one() -> None:
    found = why("price < 1 OR prise < 500 OR brand = 'none'")
    assert found.joined == "OR"
    assert [step.alone for step in found.steps] == [count("price < 1"), 0, 0]
    assert [step.left for step in found.steps] == [count("price < 1")] * 3
    assert [u.attribute for u in found.unseen] == ["prise"]


def test_arrays_and_negations_count_as_they_match() -> None:
    events = [{"tags": ["a", "b"], "n": 1}, {"tags": ["c"]}, {"n": 2}] * 10
    found = why("tags = 'a' AND tags = 'b' AND NOT n = 1", events)
    assert [(step.alone, step.left) for step in found.steps] == [(10, 10), (10, 10), (10, 0)]


def test_it_is_asked_only_where_little_matches() -> None:
    assert dibs.backtest("price < 500", EVENTS).why is None
    assert dibs.backtest("price < 500", []).why is None
    assert "why" in dibs.backtest("prise < 500", EVENTS).to_dict()
    json.dumps(why("prise < 500 AND price = 'x'").to_dict())


def test_every_form_of_events_tells_the_same(tmp_path: Path) -> None:
    expression = "prise < 300 AND item.sku = 5 AND brand = 'Apple'"
    expected = why(expression)
    table = pa.Table.from_pylist(EVENTS)
    pq.write_table(table, tmp_path / "events.parquet")
    text = "\n".join(map(json.dumps, EVENTS)).encode()
    (tmp_path / "events.jsonl").write_bytes(text)
    forms: list[Any] = [text, table, tmp_path / "events.parquet", str(tmp_path / "events.jsonl")]
    forms += [io.BytesIO(text), iter(EVENTS), pa.RecordBatchReader.from_batches(table.schema, table.to_batches())]
    for form in forms:
        assert why(expression, form) == expected, type(form)
    inside = pa.table({"id": list(range(1_000)), "event": [json.dumps(event) for event in EVENTS]})
    assert why(expression, inside, attributes="event") == expected
    mapped = pa.table({"m": pa.array([[("price", 5.0)]] * 50, pa.map_(pa.string(), pa.float64()))})
    assert [u.suggestion for u in why("prise < 3", mapped, attributes="m").unseen] == ["price"]


def test_what_is_no_event_is_passed_over() -> None:
    events: list[Any] = [[None], [1, 2], "x", b"{", None, 5, {"a": object()}, {5: 1}, {"price": 7}]
    found = dibs.backtest("prise = 1", events, on_error="skip")
    assert found.why is not None and [u.suggestion for u in found.why.unseen] == ["price"]


def test_joins_over_history_are_conditions_like_others() -> None:
    events = [{"isbn": n % 5, "price": 10} for n in range(50)]
    found = why("price < 20 AND NOT EXISTS d (d.isbn = isbn) AND price > 10", events)
    assert [(step.alone, step.left) for step in found.steps] == [(50, 50), (5, 5), (0, 0)]
    before = why("price < 20 AND NOT EXISTS d (d.isbn = isbn)", events, history=events[:5])
    assert [step.left for step in before.steps] == [50, 0]


def test_it_is_bounded() -> None:
    many = pa.table({"a": pa.array(range(MOST + 50_000))})
    assert diagnose("a < 0 AND b = 1", open_events(many)).events == MOST
    long = why(" AND ".join(f"price > {n}" for n in range(1_000, 1_050)))
    assert len(long.steps) == 20 and long.more == 30 and long.lines[-1] == "  and 30 conditions more"


def test_the_command_says_it(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text("\n".join(map(json.dumps, EVENTS)))
    done = run("backtest", "prise < 500 AND brand = 7", str(path))
    assert done.exit_code == 0
    assert "`prise`: never seen; did you mean `price`, in 100 % of events?" in done.stdout
    assert "`brand = 7` asks for a number, but `brand` is a string" in done.stdout
    assert "1,000 → 0 → 0 events are left by its conditions:" in done.stdout
    told = json.loads(run("backtest", "--json", "prise < 500", str(path)).stdout)
    assert told["why"]["unseen"] == [{"attribute": "prise", "suggestion": "price", "share": 1.0}]
