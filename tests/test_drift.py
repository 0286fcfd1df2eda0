"""Plans follow the mix of events, for every kind of expression: what an event pays before, during and after."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

import dibs
from dibs.tuning import using

RULES = 1_000
# Of a rule: what it asks of a field of network events (n) and of process events (p).
KINDS: dict[str, Callable[[str, int], str]] = {
    "equality": lambda a, i: f"{a} = {i}",
    "range": lambda a, i: f"{a} BETWEEN {i} AND {i + 3}",
    "half-open": lambda a, i: f"{a} >= 0",
    "list": lambda a, i: f"{a} IN ({i}, {i + 5}, {i + 9})",
    "not": lambda a, i: f"NOT ({a} = {i} OR {a} > {i + 900})",
    "prefix": lambda a, i: f"{a}t LIKE 'x{i}%'",
    "suffix": lambda a, i: f"{a}t LIKE '%{i}x'",
    "contains": lambda a, i: f"{a}t LIKE '%y{i}z%'",
    "ILIKE": lambda a, i: f"{a}t ILIKE '%Y{i}Z%'",
    "regex": lambda a, i: f"{a}t RLIKE 'y{i}[a-z]'",
    "OR of two attributes": lambda a, i: f"({a} = {i} OR {a}u = {i})",
    "OR of one attribute": lambda a, i: f"({a} < {i} OR {a}t LIKE 'x%' OR {a} > 990)",
    "computed": lambda a, i: f"{a} + {a}u > {i}",
    "three fields": lambda a, i: f"{a} >= 0 AND {a}u >= 0 AND {a}t > ''",
}


def event(field: str, i: int) -> dict[str, object]:
    """Every event has some fields of its kind: half of all that there are."""
    found: dict[str, object] = {}
    for k in range(10):
        name, value = f"{field}{k}", (i * 7 + k) % 1_000
        found |= {name: value, f"{name}u": value, f"{name}t": f"x{value}y{value}zx"}
    return found


@pytest.mark.parametrize("kind", list(KINDS))
def test_plans_follow_the_mix(kind: str) -> None:
    """A rule asks for a field of network events and for one of process events: it is filed under the one that events
    lack. When they begin to have it, and lack the other, everybody pays for all rules, until the plan has followed."""
    test = KINDS[kind]
    texts = [f"{test(f'n{i % 10}', i)} AND {test(f'p{i % 7}', i)}" for i in range(RULES)]
    settings = {"enough_events": 256, "look_every": 512, "latest_events": 256, "remembered_events": 1_024}
    cheap = {"look_cost": 10.0, "mask_cost": 1e6, "vector_rows": 1_000_000}  # candidates of records are what is paid
    with using(settings | cheap), dibs.Matcher(threads=1) as m:
        m.add_many(list(enumerate(texts)))
        m.match_batch([{}])
        number = 0

        def pay(field: str, batches: int) -> float:
            nonlocal number
            before = m.stats()["matching"]["candidates"]
            for _ in range(batches):
                assert m.match_batch([event(field, number + k) for k in range(64)]).count == 0
                number += 64
                deadline = time.time() + 20
                while (
                    any(layer.segment.has_pending_work for layer in m._layers.state.layers) and time.time() < deadline
                ):
                    time.sleep(0.01)
            return float((m.stats()["matching"]["candidates"] - before) / (64 * batches))

        pay("n", 16)
        before = pay("n", 4)
        during = pay("p", 1)
        pay("p", 63)  # some thousand events
        after = pay("p", 4)
        pay("n", 64)
        again = pay("n", 4)
        assert before <= RULES / 50 and after <= RULES / 50 and again <= RULES / 50, (before, during, after, again)
        m.add("both", "n1 >= 0 AND p1 >= 0")
        assert m.match(event("n", 1) | event("p", 1))[-1] == "both"
