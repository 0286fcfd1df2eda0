"""Domains, cells and spans: exact at every edge."""

from __future__ import annotations

import datetime as dt
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dibs.coding.batch import cell_of, code_events
from dibs.coding.batch_kernels import code_numbers
from dibs.coding.clauses import code_clauses
from dibs.coding.events import read_events
from dibs.coding.merge import merge_domains, move_clauses
from dibs.coding.values import Range, integer_keys, number_key
from dibs.index import create
from dibs.language.expression import Kind, literal
from dibs.language.flatten import is_conjunction
from dibs.language.normal_form import normal_form
from dibs.language.sql import parse
from dibs.language.table import Facet
from dibs.segments.compile import compile_forms
from dibs.tuning import numbers
from strategies import events, expressions


def coded(*texts):
    compiled = compile_forms([normal_form(parse(t)) for t in texts])
    return *code_clauses(compiled.table), compiled.order


def test_cells_of_an_attribute():
    domains, _, _ = coded("a IN (10, 20) AND a = 'x'")
    a = domains.number_of["a", Facet.VALUE]
    # 0 none, 1-2 booleans, 3-7 numbers: gap 10 gap 20 gap, 8-10 strings: gap x gap, 11 times: one gap
    cells = {x: cell_of(literal(x), a, domains) for x in (False, True, 9, 10, 10.5, 20, 21, "", "x", "x\0")}
    assert list(cells.values()) == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
    assert cell_of(literal(dt.date(2024, 1, 1)), a, domains) == 11
    assert domains.cells[a] == 12


@pytest.mark.parametrize(
    ("text", "spans"),
    [
        ("a = 10", [(4, 4)]),
        ("a <> 10", [(3, 3), (5, 5)]),
        ("a < 10", [(3, 3)]),
        ("a <= 10", [(3, 4)]),
        ("a > 10", [(5, 5)]),
        ("a >= 10", [(4, 5)]),
        ("a BETWEEN 10 AND 10", [(4, 4)]),
        ("a BETWEEN 20 AND 10", []),
        ("a NOT BETWEEN 10 AND 20", [(3, 3), (7, 7)]),
        ("a NOT BETWEEN 20 AND 10", [(3, 7)]),
        ("a BETWEEN 10 AND 'x'", []),
        ("a NOT BETWEEN 10 AND 'x'", [(3, 3), (8, 8)]),
        ("a IN (20, 10, 20)", [(4, 4), (6, 6)]),
        ("a NOT IN (10, 20)", [(3, 3), (5, 5), (7, 7)]),
        ("a IN (10, 'x')", [(4, 4), (7, 7)]),
        ("a NOT IN (10, 'x')", []),
        ("a NOT IN (10, NULL)", []),
        ("a = TRUE", [(2, 2)]),
        ("a < FALSE", []),
        ("a <> TRUE", [(1, 1)]),
        ("a IS NULL", [(0, 0)]),
        ("a IS NOT NULL", [(1, 5)]),
        ("STARTSWITH(a, 'x')", [(5, 6)]),
        ("NOT STARTSWITH(a, 'x')", [(4, 4), (7, 8)]),
        ("a LIKE '%'", [(4, 4)]),
    ],
)
def test_spans(text, spans):
    _, clauses, _ = coded(text)
    lo, hi = int(clauses.lo[0]), int(clauses.hi[0])
    if hi < 0:
        found = list(zip(clauses.span_lo[lo : lo - hi].tolist(), clauses.span_hi[lo : lo - hi].tolist()))
    else:
        found = [(lo, hi)] if lo <= hi else []
    assert found == spans


def test_numbers_are_ordered_by_mathematical_value():
    values = [-(2**63), -(2**53) - 1, -(2.0**53), -1, 0, 0.1, 1, 2**53, 2**53 + 1, 2.0**53 + 2, 2**63 - 1, 2.0**63,
              2**64 - 1, 2.0**64, 1e300, float("inf"), float("nan")]  # fmt: skip
    assert [number_key(x) for x in values] == sorted(number_key(x) for x in values)
    assert len({number_key(x) for x in values}) == len(values)
    for a, b in itertools.combinations(values[:-2], 2):
        assert (number_key(a) < number_key(b)) == (a < b)
    assert number_key(-0.0) == number_key(0) == number_key(0.0)


def test_numbers_of_attributes_with_many_few_and_no_constants_are_searched_together():
    """More values than are searched at once; the first attribute and the last have no number."""
    texts = ["a = 'x'", "b = 5", *(f"c >= {7 * n}" for n in range(100)), "z = 'x'"]
    domains, clauses, _ = coded(*texts)
    batch = [{"a": n, "b": n % 7, "c": 7 * (n % 101) - 1, "z": n} for n in range(-1, 200)]
    values = read_events(batch, ["a", "b", "c", "z"])
    coded_batch = code_events(values, domains)
    found = create("scan", clauses).match(coded_batch, 1)
    pairs = set(zip(found.event.tolist(), found.row.tolist(), strict=True))
    wanted = {(e, 1) for e, event in enumerate(batch) if event["b"] == 5}
    wanted |= {(e, 2 + n) for e, event in enumerate(batch) for n in range(100) if event["c"] >= 7 * n}
    assert pairs == wanted
    for e, event in enumerate(batch):
        cells = [cell_of(literal(event[name]), domains.number_of[name, Facet.VALUE], domains) for name in "abcz"]
        assert coded_batch.lo[coded_batch.offsets[e] : coded_batch.offsets[e + 1]].tolist() == cells


def test_constants_without_rests_take_events_that_have_one():
    """2 ** 53 + 1 has the float of its neighbour below, and 2 ** 53 + 3 that of the one above."""
    domains, clauses, _ = coded("x = 9007199254740992", "x > 9007199254740992", "x < 9007199254740996")
    assert len(domains.number_rests) == 0
    values = read_events([{"x": 2**53 + k} for k in range(5)], ["x"])
    found = create("scan", clauses).match(code_events(values, domains), 1)
    pairs = sorted(zip(found.event.tolist(), found.row.tolist(), strict=True))
    assert pairs == [(0, 0), (0, 2), (1, 1), (1, 2), (2, 1), (2, 2), (3, 1), (3, 2), (4, 1)]
    domains, _, _ = coded("x = 9007199254740992", "x = 9007199254740993")
    assert domains.number_rests.tolist() == [0, 1]


@given(st.lists(st.integers(-(2**63), 2**63 - 1)), st.lists(st.integers(0, 2**64 - 1)))
def test_integer_keys_have_a_plain_twin(signed, unsigned):
    edges = [2**53, 2**53 + 1, 2**62 + 1, 2**63 - 1, 2**63 - 512, 2**63 - 513]
    for values, dtype in (
        (signed + edges + [-(2**63), 1 - 2**63], np.int64),
        (unsigned + edges + [2**64 - 1, 2**64 - 1024, 2**64 - 1025], np.uint64),
    ):
        near, rest = integer_keys(np.array(values, dtype))
        assert list(zip(near.tolist(), rest.tolist())) == [number_key(v) for v in values]


def merge_clauses(parts):
    """The given rows of each part (domains, clauses, rows) as one set of clauses, as segments are merged."""
    domains, moves = merge_domains([d for d, _, _ in parts])
    clauses, place = move_clauses(
        [(c, rows, move) for (_, c, rows), move in zip(parts, moves)], len(domains.attributes)
    )
    return domains, clauses, place


@settings(max_examples=60)
@given(
    st.lists(expressions(max_leaves=5), min_size=1, max_size=6), st.lists(events(), min_size=1, max_size=5), st.data()
)
def test_merged_clauses_match_as_before(trees, batch, data):
    """Any rows of any parts, recoded into one domain, hold for the same events."""
    forms = [normal_form(t) for t in trees]
    cut = data.draw(st.integers(0, len(forms)))
    parts, wanted, place = [], set(), 0
    for group in (forms[:cut], forms[cut:]):
        compiled = compile_forms(group)
        domains, clauses = code_clauses(compiled.table)
        rows = np.array(sorted(data.draw(st.sets(st.sampled_from(range(len(group)))))) if group else [], np.int64)
        values = read_events(batch, {n for n, _ in domains.attributes})
        pairs = create("scan", clauses).match(code_events(values, domains), 1)
        at = {int(r): place + i for i, r in enumerate(rows)}
        wanted |= {(e, at[r]) for e, r in zip(pairs.event.tolist(), pairs.row.tolist()) if r in at}
        place += len(rows)
        parts.append((domains, clauses, rows))
    domains, clauses, order = merge_clauses(parts)
    values = read_events(batch, {n for n, _ in domains.attributes})
    pairs = create("scan", clauses).match(code_events(values, domains), 1)
    assert {(e, int(order[r])) for e, r in zip(pairs.event.tolist(), pairs.row.tolist())} == wanted


def test_programs_have_one_predicate_for_each_of_the_expression():
    factors = " AND ".join(f"(a{i} = 1 OR b{i} = 1)" for i in range(40))
    form = normal_form(parse(factors))
    assert not is_conjunction(form)
    assert len(compile_forms([form]).table.attribute) == 80


def test_without_attributes_no_kernel_looks_for_constants(monkeypatch):
    """It would ask for those of attribute 0 ahead of time, behind the end of the offsets."""

    def with_constants(own, name, value, rest, offsets, *constants):
        assert len(offsets) > 1, "there is no attribute"
        return code_numbers(own, name, value, rest, offsets, *constants)

    domains, clauses, _ = coded("TRUE")
    many = read_events([{"n": Range(1, 2), "m": [*range(100)], "s": "x", "b": True}], ["b", "m", "n", "s"])
    monkeypatch.setattr("dibs.coding.batch.code_numbers", with_constants)
    found = code_events(many, domains)
    assert (len(found), len(found.attribute)) == (1, 0)
    assert create("scan", clauses).match(found, 1).row.tolist() == [0]


def test_entries_of_an_event_are_sorted_and_distinct():
    domains, _, _ = coded("a IN (1, 2, 3) AND b = 1")
    batch = code_events(read_events([{"b": 1, "a": [3, 1, 2, 1]}, {}, {"a": 2}], {"a", "b"}), domains)
    assert batch.offsets.tolist() == [0, 4, 4, 5]
    assert batch.attribute[:4].tolist() == sorted(batch.attribute[:4].tolist())
    assert not batch.points
    a = domains.number_of["a", Facet.VALUE]
    assert batch.lo[batch.attribute == a].tolist() == [4, 6, 8, 6]


def test_a_huge_array_is_coded_fast_and_right():
    domains, clauses, _ = coded("a = 77", "a < 0", "a > 99999")
    values = list(range(100_000, 0, -1))
    assert len(values) > numbers["longest_event"].value
    batch = code_events(read_events([{"a": values}], {"a"}), domains)
    rows = create("scan", clauses).match(batch, 1).row.tolist()
    assert sorted(rows) == [0, 2]


def test_kinds_have_the_numbers_that_tables_rely_on():
    assert Kind.STRING == 2, "language.table and coding.domain rely on the numbers of kinds"


def test_columns_have_the_types_that_kernels_are_compiled_for():
    """Fresh, merged or loaded: one version of each kernel serves all."""
    domains, clauses, _ = coded("a = 1 AND b <> 'x'", "a = 1 OR c IN (1, 2)")
    merged_domains, merged, _ = merge_clauses([(domains, clauses, np.arange(2))])
    for part in (clauses, merged):
        types = {name: getattr(part, name).dtype for name in part.ARRAYS}
        assert types.pop("offsets") == np.int64
        assert set(types.values()) == {np.dtype(np.int32)}, types
    for name in domains.ARRAYS:
        assert getattr(domains, name).dtype == getattr(merged_domains, name).dtype, name
