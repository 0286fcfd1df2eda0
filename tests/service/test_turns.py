"""Turns between tenants: whoever has used least is next, and a long line is nobody else's."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine
from typing import Any

import pytest

from dibs.service.problems import Refusal
from dibs.service.turns import Turns


def in_loop(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


def test_a_long_line_keeps_nobody_else_waiting() -> None:
    async def work() -> None:
        turns, order = Turns(1, 1, "turns"), []

        def turn(name: str) -> None:
            time.sleep(0.002)
            order.append(name)

        many = [turns.submit("many", lambda: turn("many")) for _ in range(50)]
        await many[4]
        few = [turns.submit("few", lambda: turn("few")) for _ in range(3)]
        await asyncio.gather(*many, *few)
        first = order.index("few")
        assert first <= 7 and order[first : first + 5].count("few") == 3 - order[first + 5 :].count("few")
        assert order.index("many", first) < 15  # and they do not wait for each other either
        assert max(i for i, name in enumerate(order) if name == "few") <= 14
        turns.close()

    in_loop(work())


def test_turns_are_weighed_by_the_seconds_that_they_take() -> None:
    async def work() -> None:
        turns, done = Turns(1, 1, "turns"), {"long": 0, "short": 0}

        async def ask(name: str, seconds: float, until: float) -> None:
            def turn() -> None:
                time.sleep(seconds)
                done[name] += 1

            while time.monotonic() < until:
                await asyncio.gather(*(turns.submit(name, turn) for _ in range(4)))

        until = time.monotonic() + 1.0
        await asyncio.gather(ask("long", 0.02, until), ask("short", 0.002, until))
        assert done["short"] > 3 * done["long"] > 0
        turns.close()

    in_loop(work())


def test_one_tenant_has_only_some_of_the_threads() -> None:
    async def work() -> None:
        turns, go = Turns(3, 2, "turns"), threading.Event()
        held = [turns.submit("greedy", go.wait) for _ in range(10)]
        assert await asyncio.wait_for(turns.submit("other", lambda: 5), 10) == 5
        go.set()
        await asyncio.gather(*held)
        turns.close()

    in_loop(work())


def test_the_time_holds_for_waiting_and_working() -> None:
    async def work() -> None:
        turns, go, begun = Turns(1, 1, "turns"), threading.Event(), []
        with pytest.raises(Refusal) as working:
            await turns.run("a", lambda: go.wait(20), 0.05)
        with pytest.raises(Refusal) as waiting:  # the thread is not free before it has ended
            await turns.run("a", lambda: begun.append(1), 0.05)
        assert working.value.type == waiting.value.type == "timeout"
        go.set()
        assert await turns.run("a", lambda: 3, 10) == 3
        assert not begun  # nobody waited for it any more
        turns.close()

    in_loop(work())


def test_errors_are_told() -> None:
    async def work() -> None:
        turns = Turns(1, 1, "turns")
        with pytest.raises(ZeroDivisionError):
            await turns.run("a", lambda: 1 // 0, 10)
        turns.close()

    in_loop(work())
