"""Coding by way of values that were arranged once gives what coding kind by kind gives."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dibs
from dibs.coding.batch import CodedEvents, _sort, code_events, number_names, pieces
from dibs.coding.clauses import code_clauses
from dibs.coding.events import WantedNames, read_events
from dibs.coding.merge import merge_domains
from dibs.language.normal_form import normal_form
from dibs.segments.compile import compile_forms, compile_texts
from dibs.tuning import numbers, using
from strategies import events, expressions


def same(a: CodedEvents, b: CodedEvents) -> bool:
    columns = ("offsets", "attribute", "lo", "hi")
    return a.points == b.points and all(np.array_equal(getattr(a, n), getattr(b, n)) for n in columns)


def domains_of(*texts: str):
    return code_clauses(compile_texts(pa.array(texts, pa.large_string())).table)[0]


@settings(max_examples=150)
@given(st.lists(expressions(max_leaves=6), min_size=1, max_size=5), st.lists(events(), max_size=9))
def test_arranged_is_sorted(trees, batch):
    domains, _ = code_clauses(compile_forms([normal_form(t) for t in trees]).table)
    values = read_events(batch, {n for n, _ in domains.attributes}, on_error="skip")
    assert same(code_events(values, domains), _sort(list(pieces(values, domains)), values.events))


@pytest.mark.parametrize("count", [1, numbers["few_events"].value, numbers["few_events"].value + 1, 700])
def test_kinds_arrays_and_rests(count):
    domains = domains_of(
        "a = 9007199254740993 AND b < 2 AND c = 'x'",
        "a >= 9007199254740992 AND b <> 1.5 AND d = true",
        "e > TIMESTAMP '2020-01-01 00:00:00' AND c BETWEEN 'long enough a' AND 'long enough b'",
    )
    rows = [
        {"b": 1, "a": 2**53 + 1, "z": 5},
        {"a": [2**53, 2**53 + 1, 2**53, -1], "c": "x"},
        {"c": ["long enough a", "long enough aa", "w"], "d": [True, False], "b": float("nan")},
        {"e": dt.datetime(2020, 1, 2), "b": [2, 2]},
        {},
        {"d": True, "c": 5, "a": "9007199254740993"},
    ]
    values = read_events([rows[i % len(rows)] for i in range(count)], {"a", "b", "c", "d", "e"})
    assert values.arranged is not None and number_names(values.names, domains).in_order
    assert same(code_events(values, domains), _sort(list(pieces(values, domains)), count))


def test_attributes_in_another_order_are_sorted():
    """New names come behind those that are known: then their order is not that of the domains."""
    domains = domains_of("m = 1 AND z = 1", "a = 1 AND m = 2")
    with using({"names_in_order": 0}):
        wanted = WantedNames({"m", "z"}).extend_by(["a"])
    assert wanted is not None and list(wanted.names) == ["m", "z", "a"]
    values = read_events([{"a": 1, "m": 2, "z": 3}, {"z": 1, "a": 0}], wanted)
    assert not number_names(values.names, domains).in_order
    coded = code_events(values, domains)
    assert coded.attribute.tolist() == [0, 1, 2, 0, 2]
    assert same(coded, _sort(list(pieces(values, domains)), 2))


def test_merged_domains_know_the_names_without_looking_them_up():
    first, second = domains_of("a = 1 AND c = 1"), domains_of("b = 1 AND c = 2")
    values = read_events([{"a": 1, "b": 2, "c": 3}], {"a", "b", "c"})
    for d in (first, second):
        code_events(values, d)
    merged, _ = merge_domains([first, second])
    assert merged.numbered is not None and merged.numbered.names is values.names
    assert merged.numbered.code.tolist() == number_names(list(values.names), merged).code.tolist()


def test_very_long_events_are_left_to_sorting():
    domains = domains_of("a = 1 AND b = 2")
    values = read_events([{"a": list(range(numbers["longest_event"].value + 1)), "b": 2}], {"a", "b"})
    assert values.arranged is None
    assert code_events(values, domains).offsets.tolist() == [0, 4]  # below 1, 1 and above it; and b


@pytest.mark.parametrize("many", [False, True])
def test_who_asks_for_no_value_is_found_without_any(many):
    """A segment that has nothing in common with an event may only be passed over if all of it asks for values."""
    m = dibs.Matcher()
    m.add_many(
        (i, f"other{i} = 1") for i in range(2_000 if many else 1)
    )  # so that what follows is a segment of its own
    assert m.match({"unknown": 1}) == []
    for id, text in {
        "null": "a IS NULL",
        "true": "TRUE",
        "false": "FALSE",
        "or": "b = 1 OR a IS NULL",
        "both": "b IS NULL AND a = 1",
        "value": "a = 1",
        "list": "a NOT IN (1, 2)",
    }.items():
        m.add(id, text)
        assert m.match({}) == m.match({"unknown": 1})
    assert m.match({}) == ["null", "or", "true"]
    assert [sorted(ids) for ids in m.match_batch([{}, {"a": 1}, {"unknown": 0}] * 5)] == [
        ["null", "or", "true"],
        ["both", "true", "value"],
        ["null", "or", "true"],
    ] * 5
