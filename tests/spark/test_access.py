"""What a shard is reached through: the ends of stretches of keys say as much as all keys."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np

from dibs.language.printer import to_sql
from dibs.matcher import Matcher
from dibs.spark.access import NUMBER, STRING, THERE, Access, access_keys, reach_of, route, widen
from strategies import typed_expression


def reach_by_all_keys(access: Access, rows: Any) -> dict[str, list[Any]]:
    result: dict[str, list[Any]] = {}
    for attribute, kind, value in (access.keys[place] for place in access.of_row[rows].tolist()):
        if attribute or kind not in (THERE, NUMBER, STRING):
            numbers = [value] * 2 if kind == NUMBER else [None] * 2
            strings = [value] * 2 if kind == STRING else [None] * 2
            widen(result, attribute, [kind == THERE, *numbers, *strings])
    chosen = set(rows.tolist())
    for row, attribute in zip(access.reach_row.tolist(), access.reach_attribute, strict=True):
        if row in chosen and attribute:
            widen(result, attribute, [True, None, None, None, None])
    return result


def test_reach_by_the_ends_of_stretches() -> None:
    random = Random(4)
    for count in (1, 3, 30, 300):
        texts = [to_sql(typed_expression(random)) for _ in range(count)]
        for value in (random.randrange(50), random.random(), "'x'", "'é'", 1e300, 2**53 + 1):
            texts += [f"k = {value} AND m > 1", f"k IN ({value})", f"n = {value}"]
        with Matcher(index="scan") as matcher:
            matcher.add_many(enumerate(texts))
            matcher.compact()
            (layer,) = matcher.snapshot().layers
        access = access_keys(layer.segment)
        rows = np.arange(len(texts))
        for some in (rows, rows[::3], rows[:1], rows[:0]):
            found, expected = reach_of(access, some), reach_by_all_keys(access, some)
            assert found.keys() == expected.keys()
            assert route(found, {}) == route(expected, {})


def test_what_an_event_without_the_attribute_can_match_is_everywhere() -> None:
    texts = ["(k = 1) IS NOT TRUE", "k IS UNKNOWN OR m = 1", "(k = 1) IS NOT TRUE AND m = 1", "(k = 1) IS TRUE"]
    with Matcher(index="scan") as matcher:
        matcher.add_many(enumerate(texts))
        matcher.compact()
        (layer,) = matcher.snapshot().layers
    access = access_keys(layer.segment)
    rows = {text: np.flatnonzero(np.array(layer.segment.texts.to_pylist()) == text) for text in texts}
    assert [route(reach_of(access, rows[text]), {}) for text in texts[:2]] == ["TRUE", "TRUE"]
    assert list(reach_of(access, rows[texts[2]])) == ["m"]
    assert list(reach_of(access, rows[texts[3]])) == ["k"]


DOMAINS = {"k": "integer(0, 40)", "m": "integer(-5, 5)"}


def test_who_matches_satisfies_the_route_where_domains_are_declared() -> None:
    random = Random(3)
    forms = ("k = {0}", "k = {0} AND m > {1}", "k IN ({0}, 7)", "k >= {0} AND m = {1}", "k = {0} OR m = {1}")
    forms += ("k <> {0} AND m <= {1}", "m = {1} AND s = 'x'", "NOT (k = {0}) AND m IS NOT NULL", "k IS NULL AND m = 2")
    texts = [random.choice(forms).format(random.randrange(41), random.randrange(-5, 6)) for _ in range(200)]
    values = {"k": [None, *range(41), "7", 45, 3.5], "m": [None, *range(-5, 6)], "s": [None, "x"]}
    events = [{name: random.choice(some) for name, some in values.items()} for _ in range(300)]
    with Matcher(types=DOMAINS) as matcher, Matcher(types=DOMAINS) as router:
        matcher.add_many(enumerate(texts))
        matcher.compact()
        (layer,) = matcher.snapshot().layers
        access, ids = access_keys(layer.segment), layer.segment.ids.at(np.arange(len(texts), dtype=np.int32))
        router.add_many((id, route(reach_of(access, np.array([row])), DOMAINS)) for row, id in enumerate(ids))
        found, visited = matcher.match_batch(events, on_error="skip"), router.match_batch(events, on_error="skip")
        assert found.count > 2_000 and visited.count < 0.6 * len(events) * len(texts)
        assert all(set(own) <= set(shards) for own, shards in zip(found, visited, strict=True))
