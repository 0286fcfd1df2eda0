"""The sieve over records for single events: the answers of a scan, whatever a clause needs, and less to read."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from dibs import Matcher
from dibs.tuning import smallest, using

ATTRIBUTES = 400
# Where all clauses go that can be records, of which none is filed by values: reading all of an attribute is free.
BY_ATTRIBUTE = {"often": 1.1, "read_cost": 0.0, "look_cost": 0.0, "mask_cost": 1e9}
AS_MASKS = {"look_cost": 1e9, "mask_cost": -1.0}


def clause(random: Random) -> str:
    """A few predicates over attributes of which an event has few; some hold where their attribute is missing."""

    def predicate() -> str:
        name, value = f"n{random.randrange(ATTRIBUTES)}", random.randrange(10)
        return random.choice(
            [
                f"{name} = {value}",
                f"{name} <= {value}",
                f"{name} <> {value}",
                f"{name} IN ({', '.join(str(3 * random.randrange(50)) for _ in range(random.randint(2, 12)))})",
                f"{name} IS NULL",
                f"{name} = 'v{value}'",
            ]
        )

    joined = " OR " if random.random() < 0.15 else " AND "
    return joined.join(predicate() for _ in range(random.randint(1, 4)))


def event(random: Random) -> dict[str, Any]:
    names = [f"n{i}" for i in random.sample(range(ATTRIBUTES), random.randint(0, 60))]
    return {
        name: random.choice([random.randrange(10), 3 * random.randrange(50), f"v{random.randrange(10)}"])
        for name in names
    }


def pair(clauses: list[str]) -> tuple[Matcher, Matcher]:
    own, twin = Matcher(threads=1), Matcher("scan", threads=1)
    for matcher in (own, twin):
        matcher.add_many(enumerate(clauses))
    return own, twin


def sieve_of(matcher: Matcher) -> Any:
    (layer,) = matcher._layers.state.layers
    return layer.segment.single.parts.sieve


def check(own: Matcher, twin: Matcher, random: Random, count: int) -> None:
    for i in range(count):
        given = event(random)
        if i % 5 == 0 and given:  # several values: nothing is sifted for them
            given[next(iter(given))] = [1, 2, "v3"]
        (right,) = twin.match_batch([given])
        assert own.match(given) == right


def test_all_kinds_of_clauses() -> None:
    random = Random(1)
    with using({**BY_ATTRIBUTE, "sieve_share": 1e9}):
        own, twin = pair([clause(random) for _ in range(3_000)])
        check(own, twin, random, 150)
        assert sieve_of(own) is not None
        assert own._matching.singles.served == 150


def test_the_same_at_the_smallest_thresholds() -> None:
    random = Random(2)
    with using(smallest() | BY_ATTRIBUTE):
        own, twin = pair([clause(random) for _ in range(300)])
        check(own, twin, random, 60)


def test_more_clauses_pass_than_are_kept_and_more_rows_than_there_is_room_for() -> None:
    with using({**BY_ATTRIBUTE, "sieve_share": 1e9, "first_room": 8}):
        own, twin = pair([f"a >= {i % 7} AND b >= {i % 11} AND a < {100 + i}" for i in range(3_000)])
        for given in ({"a": 5, "b": 9}, {"a": 5}, {"a": 0, "b": 0}, {"b": 3}, {}):
            assert own.match(given) == list(twin.match_batch([given]))[0]
        assert sieve_of(own) is not None


def test_only_clauses_whose_needed_attribute_is_there_are_read() -> None:
    names = [(i % 300, (7 * i + 1) % 300, (11 * i + 5) % 300) for i in range(6_000)]
    with using(BY_ATTRIBUTE):
        own = Matcher(threads=1)
        own.add_many([(i, f"n{a} = 1 AND n{b} = 1 AND n{c} <= {3 + i}") for i, (a, b, c) in enumerate(names)])
        assert own.match({"n0": 1, "n1": 1, "n5": 1}) == [i for i, x in enumerate(names) if set(x) <= {0, 1, 5}] != []
        assert sieve_of(own) is not None
    counters = own._matching.counters
    assert counters["candidates"] == 60 and counters["predicates"] == 60 + 3 * 20  # twenty have what they need


@pytest.mark.parametrize("at_once", [0, 10**9])
def test_of_many_it_is_made_in_the_background(at_once: int) -> None:
    random = Random(3)
    with using({**BY_ATTRIBUTE, "sieve_share": 1e9, "sieved_at_once": at_once}):
        own, twin = pair([clause(random) for _ in range(2_000)])
        own.match(event(random))
        assert (sieve_of(own) is not None) == (at_once > 0)
        check(own, twin, random, 40)
        own._layers.upkeep.rest()
        check(own, twin, random, 40)
        assert sieve_of(own) is not None


def test_clauses_with_ranges_only_are_reached_through_one_of_them() -> None:
    """Dense data: the bits of single events give access by any predicate, not by equality alone."""
    with using(AS_MASKS):
        own = Matcher(threads=1)
        own.add_many([(i, f"a BETWEEN {i} AND {i + 5} AND b >= {i % 10}") for i in range(2_000)])
        assert own.match({"a": 1_000, "b": 100}) == list(range(995, 1_001))
    assert own.stats()["plans"][0]["one by one"] == 2_000
    assert own._matching.counters["candidates"] < 200
