"""Constants by their hash: the same clauses hold as by searching, whatever the predicates ask for."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs.coding.batch import code_events
from dibs.coding.clauses import Clauses, code_clauses
from dibs.coding.domain import Domains
from dibs.coding.events import read_events
from dibs.coding.lookup import lookup_of
from dibs.index import create
from dibs.segments.compile import compile_texts
from dibs.tuning import using

STRINGS = ["", "a", "ab", "abcdefgh", "abcdefghi", "abcdefghij", "abcdefghijklmnopq", "é", "z" * 25, "1"]
NUMBERS = [0, 1, -1, 0.5, 2**53, 2**53 + 1, 2**63, 1e300, -7e-300, 7]
OTHERS = [
    "a\0",
    "abcdefgh\0",
    "abcdefghijklmnopr",
    2,
    2**53 + 2,
    2**63 + 1,
    float("nan"),
    float("inf"),
    True,
    None,
    [],
    [1, 2, "a"],
]


def coded(texts: list[str]) -> tuple[Domains, Clauses]:
    return code_clauses(compile_texts(pa.array(texts, pa.large_string())).table)


def held(events: list[dict[str, Any]], domains: Domains, clauses: Clauses) -> set[tuple[int, int]]:
    values = read_events(events, {name for name, _ in domains.attributes})
    pairs = create("scan", clauses).match(code_events(values, domains), 1)
    return set(zip(pairs.event.tolist(), pairs.row.tolist(), strict=True))


def sql(value: Any) -> str:
    return f"'{value}'" if isinstance(value, str) else repr(value)


def check(texts: list[str], events: list[dict[str, Any]]) -> Any:
    """Both ways; returns the table."""
    with using({"constants_searched": 0, "few_events": 0}):
        domains, clauses = coded(texts)
        searched = held(events, domains, clauses)
        domains.lookup = lookup_of(domains, clauses)
        assert held(events, domains, clauses) == searched
        return domains.lookup


CONSTANTS = st.sampled_from([*STRINGS, *NUMBERS])
PREDICATES = st.one_of(
    st.tuples(st.sampled_from(["=", "<>", "<", ">="]), CONSTANTS).map(lambda p: f"{p[0]} {sql(p[1])}"),
    st.tuples(st.sampled_from(["IN", "NOT IN"]), st.lists(CONSTANTS, min_size=1, max_size=4)).map(
        lambda p: f"{p[0]} ({', '.join(map(sql, p[1]))})"
    ),
    st.sampled_from(["IS NULL", "IS NOT NULL", "LIKE 'ab%'", "BETWEEN 0 AND 7"]),
)
EVENTS = st.lists(
    st.fixed_dictionaries({name: st.sampled_from([*STRINGS, *NUMBERS, *OTHERS]) for name in "xy"}), max_size=8
)


@given(st.lists(st.tuples(st.sampled_from("xy"), PREDICATES).map(" ".join), min_size=1, max_size=8), EVENTS)
def test_any_predicates(texts: list[str], events: list[dict[str, Any]]) -> None:
    check(texts, events)


def test_who_asks_for_equality_alone_is_looked_up() -> None:
    events = [{"x": value} for value in [*STRINGS, *NUMBERS, *OTHERS]]
    every = [f"x = {sql(value)}" for value in [*STRINGS, *NUMBERS]]
    lookup = check([*every, "x <> 'a'", "x NOT IN ('ab', 'z')", "x IS NOT NULL", "x IS NULL"], events)
    assert (lookup.numbers.tolist(), lookup.strings.tolist()) == ([0], [1])  # 2**53 + 1 has a rest
    lookup = check([t for t in every if str(2**53 + 1) not in t], events)
    assert (lookup.numbers.tolist(), lookup.strings.tolist()) == ([1], [1])


@pytest.mark.parametrize("more", ["x < 5", "x BETWEEN 1 AND 2", "x NOT BETWEEN 0 AND 1"])
def test_numbers_that_are_compared_are_searched(more: str) -> None:
    lookup = check(["x = 1", "x = 'a'", more], [{"x": value} for value in [*STRINGS, *NUMBERS, *OTHERS]])
    assert (lookup.numbers.tolist(), lookup.strings.tolist()) == ([0], [1])


@pytest.mark.parametrize("more", ["x < 'b'", "x LIKE 'abc%'", "x NOT LIKE 'abc%'"])
def test_strings_that_are_compared_are_searched(more: str) -> None:
    lookup = check(["x = 1", "x = 'a'", more], [{"x": value} for value in [*STRINGS, *NUMBERS, *OTHERS]])
    assert (lookup.numbers.tolist(), lookup.strings.tolist()) == ([1], [0])


def test_very_many_constants() -> None:
    chosen = random.Random(1)
    texts = [f"a{i % 3} = {sql(chosen.choice([i, f'text {i}', i / 7]))}" for i in range(3_000)]
    values = [chosen.choice([i, f"text {i}", i / 7, str(i)]) for i in range(4_000)]
    events = [{"a0": values[i], "a1": values[-1 - i], "a2": [values[i], values[i // 2]]} for i in range(len(values))]
    check(texts, events)
