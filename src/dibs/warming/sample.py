"""A small use of the engine, by which a process loads the kernels that most need."""

from __future__ import annotations

from collections.abc import Callable

from dibs import matching
from dibs.matcher import Matcher

TEXTS = ("model = 'a' AND price <= 580", "brand LIKE 'A%' OR price BETWEEN 10 AND 20", "item.price < 3 AND stock")
EVENT = {"model": "a", "price": 550, "brand": "Apple", "item": {"price": 2}}


def run_once(is_ending: Callable[[], bool] = lambda: False) -> bool:
    """Whether all of it was run, and not given up between two steps because the interpreter ends."""
    steps: tuple[Callable[[Matcher], object], ...] = (
        lambda matcher: matcher.add_many(enumerate(TEXTS)),
        lambda matcher: matcher.match(EVENT),
        lambda matcher: matcher.remove(0),
        lambda matcher: matcher.match_batch([EVENT] * 10).pairs(),
        lambda matcher: matcher.match(EVENT),
    )
    with Matcher() as matcher:
        matcher.use_engine(matching)
        for step in steps:
            if is_ending():
                return False
            step(matcher)
    return True
