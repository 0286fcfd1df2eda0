"""A small use of the compiled matcher, by which a process loads the kernels that most need."""

from __future__ import annotations

from dibs.matcher import Matcher

TEXTS = ("model = 'a' AND price <= 580", "brand LIKE 'A%' OR price BETWEEN 10 AND 20", "item.price < 3 AND stock")
EVENT = {"model": "a", "price": 550, "brand": "Apple", "item": {"price": 2}}


def run_once() -> None:
    with Matcher() as matcher:
        matcher.add_many(enumerate(TEXTS))
        matcher.match(EVENT)
        matcher.remove(0)
        matcher.match_batch([EVENT] * 10).pairs()
        matcher.match(EVENT)
