"""Time limits of many requests by one timer."""

from __future__ import annotations

import asyncio

from dibs.service.deadlines import Deadlines


def test_each_is_late_at_its_time_and_once() -> None:
    async def work() -> None:
        deadlines, late = Deadlines(), []
        loop = asyncio.get_running_loop()
        begun = loop.time()

        def tell(name: str) -> None:
            late.append((name, loop.time() - begun))

        kept = [deadlines.begin(seconds, lambda n=seconds: tell(str(n))) for seconds in (0.15, 0.03, 60.0)]  # type: ignore[misc]
        ended = deadlines.begin(0.02, lambda: tell("ended"))
        never = deadlines.begin(0, lambda: tell("never"))
        deadlines.end(ended)
        deadlines.end(never)
        deadlines.end(kept[2])
        while len(late) < 2:
            await asyncio.sleep(0.01)
        assert [name for name, _ in late] == ["0.03", "0.15"] and all(at >= float(name) for name, at in late)
        await asyncio.sleep(0.05)
        assert len(late) == 2

    asyncio.run(work())


def test_a_limit_that_is_due_before_the_others() -> None:
    async def work() -> None:
        deadlines, late = Deadlines(), asyncio.Event()
        deadlines.begin(3_600.0, lambda: None)
        deadlines.begin(0.01, late.set)
        await asyncio.wait_for(late.wait(), 30)

    asyncio.run(work())
