"""Single events that come together: a batch, and each gets what Matcher.match would have given, errors included."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from dibs.arguments import Id
from dibs.errors import DibsError
from dibs.matcher import Matcher
from dibs.service.gathering import Gatherer

GOOD = [b'{"price": 5}', b'{"price": 15}', b'{"price":\n 25}']
ODD = [b"", b"[1]", b'{"price": ', b'{"price": 1}\n{"price": 30}', b"\xff"]


@pytest.fixture
def matcher() -> Matcher:
    matcher = Matcher()
    matcher.add("cheap", "price < 10")
    matcher.add("dear", "price > 20")
    return matcher


def ask(matcher: Matcher, texts: list[bytes], at_least: int) -> tuple[Gatherer, list[list[Id] | BaseException]]:
    """All in one turn of the loop."""
    with ThreadPoolExecutor(1) as pool:
        gatherer = Gatherer(matcher, pool, at_least)

        async def together() -> list[list[Id] | BaseException]:
            return await asyncio.gather(*(gatherer.match(text) for text in texts), return_exceptions=True)

        return gatherer, asyncio.run(together())


def test_what_comes_in_one_turn_is_one_batch(matcher: Matcher) -> None:
    gatherer, found = ask(matcher, GOOD, at_least=2)
    assert found == [["cheap"], [], ["dear"]]
    assert (gatherer.batches, gatherer.gathered) == (1, 3)


def test_fewer_than_asked_for_are_matched_alone(matcher: Matcher) -> None:
    gatherer, found = ask(matcher, GOOD, at_least=4)
    assert found == [["cheap"], [], ["dear"]]
    assert gatherer.batches == 0


@pytest.mark.parametrize("odd", ODD)
def test_each_gets_its_own_error(matcher: Matcher, odd: bytes) -> None:
    with pytest.raises(DibsError) as alone:
        matcher.match(odd)
    gatherer, found = ask(matcher, [GOOD[0], odd, GOOD[2]], at_least=2)
    assert gatherer.batches == 1
    assert (found[0], found[2]) == (["cheap"], ["dear"])
    assert type(found[1]) is type(alone.value) and str(found[1]) == str(alone.value)


def test_what_comes_meanwhile_is_the_next_batch(matcher: Matcher) -> None:
    with ThreadPoolExecutor(1) as pool:
        gatherer = Gatherer(matcher, pool, 1)

        async def one_after_another() -> list[list[Id]]:
            first = asyncio.ensure_future(gatherer.match(GOOD[0]))
            while not gatherer.batches:  # until the thread has it
                await asyncio.sleep(0)
            return await asyncio.gather(first, *(gatherer.match(text) for text in GOOD[1:]))

        assert asyncio.run(one_after_another()) == [["cheap"], [], ["dear"]]
        assert gatherer.gathered == 3 and gatherer.batches in (2, 3)


def test_a_slow_matcher_is_asked_by_a_thread_and_a_slow_start_is_forgotten(matcher: Matcher) -> None:
    with ThreadPoolExecutor(1) as pool:
        gatherer = Gatherer(matcher, pool, None)
        gatherer._alone = 0.05  # as after a first event whose code had to be loaded

        async def one_by_one() -> None:
            for _ in range(100):
                assert await gatherer.match(GOOD[0]) == ["cheap"]

        asyncio.run(one_by_one())
        assert 1 <= gatherer.batches < 90
