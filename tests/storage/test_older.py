"""Segments of an older language: their tests with times move to the facet TIME, row by row."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs.coding.batch import code_events
from dibs.coding.clauses import code_clauses
from dibs.coding.events import read_events
from dibs.index import create
from dibs.language.expression import In, literal
from dibs.language.flatten import conjunction_table
from dibs.language.normal_form import normal_form
from dibs.language.table import Facet, PredicateTable
from dibs.segments.compile import compile_forms
from dibs.storage.older import OlderLanguage, has_old_times, move_times
from strategies import MIDNIGHT, events, expressions

HERE = Path("segment.dibs")


def as_it_was(table: PredicateTable) -> PredicateTable:
    """The table in language 1, of the same rows."""
    known: dict[tuple[str, Facet], int] = {}
    names = [(name, Facet.VALUE if facet == Facet.TIME else facet) for name, facet in table.attributes]
    number = np.array([known.setdefault(each, len(known)) for each in names], np.int32)
    return replace(table, attributes=list(known), attribute=number[table.attribute] if len(number) else table.attribute)


@given(st.lists(expressions(max_leaves=5), min_size=1, max_size=6), st.lists(events(), min_size=1, max_size=4))
def test_they_match_as_what_is_compiled_today(trees, batch):  # type: ignore[no-untyped-def]
    table = compile_forms([normal_form(tree) for tree in trees]).table
    old = code_clauses(as_it_was(table))
    if not has_old_times(old[0]):
        return
    found = []
    for domains, clauses in (code_clauses(table), move_times(HERE, *old)):
        assert not has_old_times(domains)
        values = read_events(batch, [name for name, _ in domains.attributes], on_error="skip")
        pairs = create("scan", clauses).match(code_events(values, domains), 1)
        found.append(sorted(zip(pairs.event.tolist(), pairs.row.tolist())))
    assert found[0] == found[1]


def test_a_list_of_times_and_others_is_refused() -> None:
    table = as_it_was(conjunction_table([In("at", (literal(5), literal(MIDNIGHT)))]))
    with pytest.raises(OlderLanguage, match=r"segment\.dibs was compiled by an older version"):
        move_times(HERE, *code_clauses(table))
