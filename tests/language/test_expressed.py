"""Events that are expressions: what they allow, against the values that satisfy their predicates, on every way."""

from __future__ import annotations

import datetime as dt
import math
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dibs
from dibs.coding.expressed import Below, Event
from dibs.language.sql import parse
from dibs.reference import matches

NUMBERS = ["3", "4", "3.5", "-7", "9007199254740993", "9007199254740992", "double('NaN')", "double('Infinity')"]
STRINGS = ["''", "'a'", "'ab'", "'abc'", "'b'", "'ba'", "'z'"]
TIMES = ["TIMESTAMP '2026-01-01'", "TIMESTAMP '2026-01-01 00:00:00.000001'", "DATE '2027-05-06'"]
# One from each gap, and the neighbours of all constants, as values of 64 bits know them.
POINTS = [
    *(-math.inf, -8, -7, -6.9, 0, 3, 3.2, 3.5, 3.7, 4, 5, 2**53, 2**53 + 1, 2**53 + 2, 2.0**60, math.inf, math.nan),
    *(math.nextafter(c, way) for c in (3, 3.5, 4, -7) for way in (-math.inf, math.inf)),
    *(
        "",
        "A",
        "a",
        "a\0",
        "aa",
        "aaz",
        "ab",
        "ab\0",
        "abb",
        "abc",
        "abcd",
        "abz",
        "ac",
        "b",
        "ba",
        "bab",
        "bb",
        "z",
        "zz",
    ),
    *(dt.datetime(2026, 1, 1) + dt.timedelta(microseconds=n) for n in (-1, 0, 1, 2)),
    *(dt.datetime(2027, 5, 6), dt.datetime(2027, 5, 5, 9), dt.datetime(2030, 1, 1), True, False),
]


def constants():
    return st.sampled_from([NUMBERS, STRINGS, TIMES])


@st.composite
def predicates(draw, name):
    of_kind = draw(constants())
    one = st.sampled_from(of_kind)
    form = draw(st.sampled_from(["compare", "compare", "in", "between", "prefix", "present", "boolean"]))
    negated = draw(st.sampled_from(["", "NOT "]))
    if form == "compare":
        return f"{name} {draw(st.sampled_from(['=', '<>', '<', '<=', '>', '>=']))} {draw(one)}"
    if form == "in":
        return f"{name} {negated}IN ({', '.join(draw(st.lists(one, min_size=1, max_size=3)))})"
    if form == "between":
        return f"{name} {negated}BETWEEN {draw(one)} AND {draw(one)}"
    if form == "prefix":
        return f"{name} {negated}LIKE '{draw(st.sampled_from(['a', 'ab', 'z', '']))}%'"
    return f"{name} IS NOT NULL" if form == "present" else f"{name} = {draw(st.sampled_from(['TRUE', 'FALSE']))}"


def conjunctions(names="ab"):
    some = st.sampled_from(names).flatmap(predicates)
    return st.lists(some, min_size=1, max_size=4)


def allowed(parts, name):
    """The points that satisfy all predicates on an attribute."""
    own = [parse(part) for part in parts if part.startswith(name)]
    return [point for point in POINTS if all(matches(tree, {name: point}) for tree in own)] if own else []


def expected(event, subscription):
    return all(any(matches(parse(part), {part[0]: x}) for x in allowed(event, part[0])) for part in subscription)


@settings(deadline=None)
@given(conjunctions(), st.lists(conjunctions(), min_size=1, max_size=4))
def test_a_subscription_matches_where_some_value_satisfies_each_predicate(parts, subscriptions):
    try:
        event = Event(" AND ".join(parts))
    except dibs.ExpressionError:
        assert any(not allowed(parts, part[0]) for part in parts)
        return
    texts = [" AND ".join(own) for own in subscriptions]
    # A gap between constants has values that are in no list here: whatever is wanted of one is wanted of all.
    wanted = [i for i, own in enumerate(subscriptions) if expected(parts, own)]
    assert [i for i, text in enumerate(texts) if matches(parse(text), event)] == wanted
    with dibs.Matcher(index="scan") as m:
        m.add_many(enumerate(texts))
        assert m.match(event) == wanted
        assert list(m.match_batch([event, {}, event])) == [wanted, [], wanted]
        assert [m.explain(i, event).matched for i in range(len(texts))] == [i in wanted for i in range(len(texts))]


@pytest.mark.parametrize("index", ["auto", "betree", "opindex", "pstbloom", "kindex", "cluster"])
def test_every_index_takes_them(index):
    texts = ["price < 15 AND brand = 'a'", "price > 20", "price = 10", "brand <> 'b'", "price NOT IN (10, 20)", "x = 1"]
    with dibs.Matcher(index=index) as m:
        m.add_many(enumerate(texts))
        assert m.match(dibs.Event("price BETWEEN 10 AND 20 AND brand IN ('a', 'b')")) == [0, 2, 3, 4]
        assert m.match(dibs.Event("price > 10 AND price < 20 AND brand = 'b'")) == [4]
        assert m.match(dibs.Event("price >= 20 AND brand LIKE 'b%' AND x = 1")) == [1, 3, 4, 5]


def test_predicates_on_one_attribute_intersect():
    assert Event("a > 3 AND a <= 9 AND a <> 5") == {
        "a": [dibs.Range(math.nextafter(3, 9), math.nextafter(5, 0)), dibs.Range(math.nextafter(5, 9), 9)]
    }
    assert Event("a >= 3 AND a <= 3 AND `x.y` = 'u'") == {"a": 3, "x.y": "u"} and type(Event("a = 3")["a"]) is int
    assert Event("a IN (1, 2, 3) AND a <> 2 AND b = TRUE") == {"a": [dibs.Range(1, 1), dibs.Range(3, 3)], "b": True}
    assert Event("s LIKE 'ab%' AND s < 'abd'") == {"s": Below("ab", "abd")}
    assert Event("a > 9007199254740992 AND a < 9007199254740994") == {"a": 9007199254740993}
    assert Event("a IS NULL AND b <> TRUE") == {"b": False} and Event("TRUE") == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a > 3 AND a < 3", "no value of 'a' satisfies all its predicates"),
        ("a IS NULL AND a = 1", "no value of 'a'"),
        ("a = 1 AND a = 'x'", "no value of 'a'"),
        ("a = 1 OR b = 2", "found Or in an event"),
        ("a + 1 = 2", "found a computed value or a join in an event"),
        ("EXISTS d (d.a = a)", "found a computed value or a join"),
        ("a RLIKE 'x+'", "found RLike in an event"),
        ("ENDSWITH(a, 'x')", "no prefix in an event"),
        ("a <", "line 1, column"),
    ],
)
def test_what_is_no_event_is_refused(text, message):
    with pytest.raises(dibs.ExpressionError, match=message):
        Event(text)


def test_computed_values_of_several_values_are_unknown_and_joins_ask_for_some():
    with dibs.Matcher() as m:
        m.add_many(
            [("length", "length(s) > 0"), ("sum", "a + 1 > 0"), ("some", "EXISTS d (d.s = s)"), ("has", "s > ''")]
        )
        m.history.add({"s": "ab", "a": 1})
        assert m.match(Event("s LIKE 'a%' AND a IN (1, 2)")) == ["has", "some"]
        assert m.match(Event("s < 'ab' AND a > 2")) == ["has"]
        assert m.match(Event("s = 'ab' AND a = 1")) == ["has", "length", "some", "sum"]
        assert m.match(Event("s BETWEEN 'a' AND 'b'")) == ["has", "some"]


def test_an_event_goes_to_other_processes():
    event = Event("s < 'b' AND a > 1")
    again = pickle.loads(pickle.dumps(event))
    assert again == event and repr(again) == repr(event) == "Event(\"s < 'b' AND a > 1\")"
    assert isinstance(again["s"], Below)


def test_domains_have_whole_numbers_only():
    with dibs.Matcher(domains={"a": (0, 9)}) as m:
        m.add_many([(i, f"a = {i}") for i in range(10)])
        assert m.match(Event("a > 3 AND a < 6")) == [4, 5]
        assert m.match(Event("a <> 4 AND a BETWEEN 3 AND 5")) == [3, 5]
