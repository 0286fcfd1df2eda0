"""Single events by the compiled call: what they match is what a batch of one matches, and the call is really taken."""

from __future__ import annotations

import datetime as dt
import math
import threading
from decimal import Decimal
from random import Random
from typing import Any

import numpy as np
import orjson
import pytest

from dibs import EventError, Matcher, Range
from dibs.index import INDEXES
from dibs.tuning import smallest, using


def expressions(random: Random, count: int) -> list[str]:
    """Conjunctions and programs over a few attributes, equality and ranges."""
    simple = [
        lambda: f"a = {random.randint(0, 9)}",
        lambda: f"b <= {random.randint(0, 9)}",
        lambda: f"c = 'v{random.randint(0, 9)}'",
        lambda: f"c >= 'v{random.randint(0, 9)}'",
        lambda: f"d IN ({random.randint(0, 4)}, {random.randint(5, 9)})",
        lambda: "e IS NULL",
        lambda: f"item.price <> {random.randint(0, 9)}",
        lambda: "f = TRUE",
    ]
    result = []
    for _ in range(count):
        parts = [random.choice(simple)() for _ in range(random.randint(1, 3))]
        result.append((" OR " if random.random() < 0.2 else " AND ").join(parts))
    return result


def event(random: Random) -> dict[str, Any]:
    values: dict[str, Any] = {
        "a": random.randint(0, 9),
        "b": random.random() * 10,
        "c": f"v{random.randint(0, 9)}",
        "d": random.randint(0, 9),
        "e": None,
        "f": random.random() < 0.5,
        "item.price": random.randint(0, 9),
        "nobody asks": "for this",
    }
    return {name: value for name, value in values.items() if random.random() < 0.8}


def by_batch(matcher: Matcher, event: object) -> list[Any]:
    (ids,) = matcher.match_batch([event])
    return ids


def filled(count: int = 300, seed: int = 1) -> Matcher:
    matcher = Matcher(threads=1)
    matcher.add_many([(f"s{i}", text) for i, text in enumerate(expressions(Random(seed), count))])
    return matcher


@pytest.mark.parametrize("count", [5, 300, 3_000])
def test_dicts_and_texts_match_as_a_batch_does(count):
    matcher, random = filled(count), Random(2)
    for i in range(60):
        given = event(random)
        right, text = by_batch(matcher, given), orjson.dumps(given)
        assert matcher.match(given) == right
        assert (
            matcher.match((text, bytearray(text), memoryview(text), text.decode(), b" \n" + text + b"\t")[i % 5])
            == right
        )
    assert matcher._matching.singles.served == 120


def test_all_thresholds_at_their_smallest():
    with using(smallest()):
        matcher, random = filled(120), Random(3)
        for _ in range(40):
            given = event(random)
            assert matcher.match(given) == by_batch(matcher, given)
        assert matcher._matching.singles.served > 0


def test_segments_of_both_types_of_ids_and_rows_that_are_gone():
    random, matcher = Random(4), Matcher(threads=1)
    texts = expressions(random, 2_600)
    matcher.add_many([(f"s{i}", text) for i, text in enumerate(texts[:1_500])])
    matcher.add_many([(i, text) for i, text in enumerate(texts[1_500:2_500])])
    for i, text in enumerate(texts[2_500:]):
        matcher.add(f"new {i}" if i % 2 else 10_000 + i, text)
        if i % 3 == 0:
            matcher.remove(f"s{7 * i}")
            matcher.remove(7 * i)
        given = event(random)
        assert matcher.match(given) == by_batch(matcher, given)
    assert len(matcher._layers.state.layers) > 2
    assert matcher._matching.singles.served == 100


@pytest.mark.parametrize("index", [name for name in INDEXES if name not in ("auto", "scan")])
def test_other_indexes_are_handed_the_coded_event(index):
    """With rows that are gone, a second segment, both types of ids, what waits, arrays, and events of which nobody asks
    anything."""
    random = Random(6)
    texts = expressions(random, 700)
    matcher = Matcher(index, threads=1)
    matcher.add_many([(f"s{i}", text) for i, text in enumerate(texts[:400])])
    matcher.add_many([(i, text) for i, text in enumerate(texts[400:690])])
    matcher.remove_many([*(f"s{i}" for i in range(0, 400, 5)), *range(0, 290, 7)])
    matcher.match_batch([{}])
    for i, text in enumerate(texts[690:]):
        matcher.add(f"waits {i}" if i % 2 else 10_000 + i, text)
    events = [event(random) for _ in range(40)] + [{}, {"a": [1, 2, 3], "c": ["v1", "v5"]}, {"nobody": 1}]
    counted = [dict(matcher._matching.counters)]
    found = [matcher.match(given) for given in events]
    counted.append(dict(matcher._matching.counters))
    assert matcher._matching.singles.served == len(events)
    assert [by_batch(matcher, given) for given in events] == found
    counted.append(dict(matcher._matching.counters))
    one, other = ({name: b[name] - a[name] for name in ("events", "pairs")} for a, b in zip(counted, counted[1:]))
    assert one == other


@pytest.mark.parametrize(
    "value",
    [
        math.nan,
        math.inf,
        -math.inf,
        -0.0,
        2**53 + 1,
        2**63,
        2**64,
        -(2**70),
        1e308,
        5e-324,
        dt.date(2024, 1, 2),
        dt.datetime(2024, 1, 2, 3, 4, 5, 6),
        Decimal("1.5"),
        np.float64(2.5),
        np.int64(7),
        "\ud800",
        "null",
        "ünï\u0000",
        True,
        None,
        [1, 2.5, math.nan],
        [],
        {"x": 1},
        Range(1, 3),
        type("Text", (str,), {})("7"),
        type("Number", (int,), {})(7),
    ],
    ids=repr,
)
def test_values_that_json_does_not_have_or_bends(value):
    matcher = Matcher(threads=1)
    constants = ["0", "1", "1.5", "7", "'7'", "9007199254740992", "9007199254740993", "9223372036854775807", "'null'"]
    constants += ["TRUE", "DATE '2024-01-02'"]
    texts = [f"a {op} {c}" for c in constants for op in ("=", "<>", "<", ">=")] + [
        "a IS NULL",
        "a IS NOT NULL",
        "a.x = 1",
    ]
    matcher.add_many(enumerate(texts))
    given = {"a": value, "b": 1}
    try:
        right: Any = by_batch(matcher, given)
    except EventError as error:
        right = str(error)
    try:
        found: Any = matcher.match(given)
    except EventError as error:
        found = str(error)
    assert found == right


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"  ",
        b"{",
        b"[1]",
        b"7",
        b'"x"',
        b"null",
        b'{"a": NaN}',
        b'{"a": 1} x',
        b'{"a": "\xff"}',
        b'{"a": 1,}',
        b"{a: 1}",
    ],
)
def test_what_is_no_event_is_told_as_of_one_line(text):
    matcher = filled(5)
    with pytest.raises(EventError) as single:
        matcher.match(text)
    if text.strip():
        with pytest.raises(EventError) as batch:
            matcher.match_batch(text)
        assert str(single.value) == str(batch.value)


def test_a_key_twice_a_byte_order_mark_and_lines_inside():
    matcher = filled(200)
    right = by_batch(matcher, {"a": 2, "c": "v3"})
    assert matcher.match(b'{"a": 1, "a": 2, "c": "v3"}') == right
    assert matcher.match(b'\xef\xbb\xbf{"a": 2, "c": "v3"}') == right
    assert matcher.match(b'{\n  "a": 2,\r\n  "c": "v\\u0033"\n}\n') == right


def test_other_things_are_no_events():
    with pytest.raises(EventError, match="an event is a dict of attributes, or a JSON text of one, not list"):
        filled(5).match([{"a": 1}])  # type: ignore[arg-type]


def test_more_rows_values_and_bytes_than_there_is_room_for():
    matcher = Matcher(threads=1)
    matcher.add_many([(i, "a >= 0") for i in range(20_000)])
    assert matcher.match({"a": 1}) == list(range(20_000))
    assert matcher.match({"a": 1, "b": "x" * 100_000}) == list(range(20_000))
    assert matcher.match({"a": -1, **{f"n{i}": i for i in range(5_000)}}) == []
    matcher.add_many([(f"t{i}", f"n{i} = {i}") for i in range(5_000)])
    assert len(matcher.match({f"n{i}": i for i in range(5_000)})) == 5_000


def test_several_values_of_one_attribute():
    for count in (50, 3_000):
        matcher = filled(count)
        for given in (
            {"a": [1, 2, 2], "c": ["v1", None, "v7"]},
            {"a": [], "b": [[3], [4.5]]},
            {"a": [9, 5, 1], "c": ["v7", "v1"], "d": [8, 2]},
            {"item": {"price": [1, 2]}},
        ):
            right = by_batch(matcher, given)
            assert matcher.match(given) == right
            assert matcher.match(orjson.dumps(given)) == right


def test_several_values_where_subscriptions_are_filed_under_values():
    """In rising or falling order only: whether an attribute has several is seen while they are sorted."""
    random = Random(7)
    matcher = Matcher(threads=1)
    matcher.add_many([(i, f"n{i % 400} = {i % 7} AND n{(7 * i + 1) % 400} > {i % 5}") for i in range(4_000)])
    found = 0
    for i in range(50):
        values = {f"n{random.randrange(400)}": random.sample(range(9), 3) for _ in range(30)}
        given = {name: sorted(own, reverse=i % 2 == 0) for name, own in values.items()}
        right = by_batch(matcher, given)
        found += len(right)
        assert matcher.match(given) == right
        assert matcher.match(orjson.dumps(given)) == right
    assert found > 100


def test_threads_have_spaces_of_their_own():
    matcher, random = filled(2_000), Random(5)
    events = [event(random) for _ in range(50)]
    right = [by_batch(matcher, e) for e in events]
    wrong: list[int] = []

    def work(seed: int) -> None:
        own = Random(seed)
        for _ in range(300):
            i = own.randrange(len(events))
            if matcher.match(events[i]) != right[i]:
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_events_are_counted_and_seen_by_the_index():
    matcher, random = filled(400), Random(6)
    events = [event(random) for _ in range(64)]
    pairs = sum(len(matcher.match(e)) for e in events)
    counted = matcher.stats()["matching"]
    assert (counted["events"], counted["pairs"]) == (64, pairs)
    assert counted["candidates"] - counted["false candidates"] <= pairs
    index: Any = matcher._layers.state.layers[0].segment.index
    assert index.plan()["events seen"] == 4


def test_an_index_that_plans_again_is_followed():
    matcher, random = filled(400), Random(7)
    given = event(random)
    right = matcher.match(given)
    segment = matcher._layers.state.layers[0].segment
    index: Any = segment.index
    before = segment.single
    index._plan_again(index._plan.shares)
    assert all(matcher.match(given) == right for _ in range(40))
    assert segment.single is not before


@pytest.mark.parametrize("several", [False, True])
def test_vectors_and_expressions_with_or_do_not_leave_the_call(several: bool) -> None:
    """The parts that batches have of them, or what is filed for single events instead, are in the table of the call."""
    random = Random(5)
    rectangles = [f"a BETWEEN {x} AND {x + 9} AND b BETWEEN {y} AND {y + 9}" for x in range(15) for y in range(15)]
    conjunctions = [f"c{k % 4} = {k % 7} AND a > {k % 20}" for k in range(200)]
    ored = [f"({x}) OR ({random.choice(conjunctions)})" for x in conjunctions]
    costs = {"look_cost": 1e6, "mask_cost": 1.0, "line_cost": 0.0, "group_cost": 0.0, "verify_cost": 0.0}
    with using({"tried_clauses": 0, "vector_rows": 128, **costs}), Matcher(threads=1) as matcher:
        matcher.add_many(list(enumerate([*rectangles, *ored])))
        events = [{"a": i % 25, "b": i % 23, **{f"c{k}": random.randrange(7) for k in range(4)}} for i in range(60)]
        if several:
            events = [{**e, "a": [e["a"], e["a"] + 5], "c1": [1, 2]} for e in events]
        texts = [orjson.dumps(e) for e in events]
        batch = list(matcher.match_batch(events))
        assert sum(map(len, batch)) > 500 and [matcher.match(text) for text in texts] == batch
        index: Any = matcher._layers.state.layers[0].segment.index
        found = index.for_singles()
        assert found.vectors.size == 225 and found.bits.records.size == 200 and not len(found.scanned)
        assert matcher._layers.state.single.asked == []
