"""A table of conditions and events, held against every way to an answer.

conditions    condition -> the names of the events for which it is TRUE, and of those for which it is FALSE
events        name -> event; what JSON can say
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from dibs.explain import explain
from dibs.language.normal_form import normal_form
from dibs.language.printer import to_sql
from dibs.language.sql import parse
from dibs.matcher import Matcher
from dibs.reference import evaluate, matches
from dibs.tuning import using
from plain_matchers import plain_matcher
from settings import THRESHOLDS

Conditions = Mapping[str, tuple[str, str]]
Events = Mapping[str, dict[str, Any]]


def check_without_kernels(text: str, conditions: Conditions, events: Events) -> None:
    """The evaluator, the canonical text, explain and the matcher that has no kernels yet."""
    tree = parse(text)
    assert parse(to_sql(tree)) == tree
    yes, no = (set(names.split()) for names in conditions[text])
    assert yes | no <= set(events), (yes | no) - set(events)
    with plain_matcher() as matcher:
        matcher.add("it", text)
        for name, event in events.items():
            wanted = True if name in yes else False if name in no else None
            assert evaluate(tree, event) is wanted, (text, name)
            assert matches(normal_form(tree), event) == (wanted is True), (text, name)
            assert explain(tree, event).truth is wanted, (text, name)
            assert bool(matcher.match(event)) == (wanted is True), (text, name)
            assert bool(matcher.match(json.dumps(event).encode())) == (wanted is True), (text, name)


def negated(conditions: Conditions) -> dict[str, tuple[str, str]]:
    """With NOT, TRUE and FALSE change places. (No attribute with several values decides here.)"""
    return {f"NOT ({text})": (no, yes) for text, (yes, no) in conditions.items()}


def expected(conditions: Conditions, names: list[str]) -> list[list[str]]:
    return [sorted(text for text, (yes, _) in conditions.items() if name in yes.split()) for name in names]


def check_lanes(conditions: Conditions, events: Events, schema: pa.Schema | None = None) -> None:
    """schema: of an Arrow table of the events that can be in one; others are left out there."""
    names, batch = list(events), list(events.values())
    wanted = expected(conditions, names)
    lines = "\n".join(map(json.dumps, batch)).encode()
    for thresholds in ("default", "smallest"):
        with using(THRESHOLDS[thresholds](1)), Matcher() as matcher:
            matcher.add_many((text, text) for text in conditions)
            for name, event, found in zip(names, batch, wanted):
                assert matcher.match(event) == found, name
                assert matcher.match(json.dumps(event).encode()) == found, name
            for several in (1, 3):
                assert [sorted(ids) for ids in matcher.match_batch(batch * several)] == wanted * several
                assert [sorted(ids) for ids in matcher.match_batch((lines + b"\n") * several)] == wanted * several
            column = pa.table({"json": [json.dumps(event) for event in batch]})
            assert [sorted(ids) for ids in matcher.match_batch(column, attributes="json")] == wanted
            if schema is not None:
                check_arrow(matcher, wanted, names, batch, schema)


def check_arrow(
    matcher: Matcher, wanted: list[list[str]], names: list[str], batch: list[dict[str, Any]], schema: pa.Schema
) -> None:
    """A null is absent in a column, and absent ones are nulls: what tells the two from each other is left out."""
    kept = [number for number, event in enumerate(batch) if fits(event, schema)]
    assert kept
    rows = [batch[number] for number in kept]
    table = pa.Table.from_pylist(rows, schema)
    nested = pa.table({"all": pa.array(rows, pa.struct(schema))})
    for form, attributes in ((table, None), (nested, "all")):
        for several in (1, 3):
            found = matcher.match_batch(pa.concat_tables([form] * several), attributes=attributes)
            for number, ids in zip(kept * several, found):
                assert sorted(ids) == wanted[number], names[number]


def fits(event: dict[str, Any], schema: pa.Schema) -> bool:
    try:
        return pa.Table.from_pylist([event], schema).to_pylist() == [{**dict.fromkeys(schema.names), **event}]
    except (pa.ArrowException, TypeError, ValueError):
        return False
