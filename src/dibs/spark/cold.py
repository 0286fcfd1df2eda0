"""A few subscriptions before the kernels are compiled: they travel as texts, and workers match them in plain Python.

On a machine where Dibs never ran the kernels take a minute or more to compile, and a first small job should not wait
for them. So a process compiles them in the background, and workers go over to them once they are there (or wait, for
what plain Python cannot do). The answers are the same: see dibs.plain.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa

from dibs import engine
from dibs.additions import add_items
from dibs.changes import Changes
from dibs.errors import SubscriptionErrors
from dibs.index import AUTO
from dibs.jit.ready import is_ready
from dibs.language.expression import Between, Compare, In, IsNull, Kind, Like, RLike, StringTest, predicates
from dibs.language.normal_form import normal_form
from dibs.language.sql import parse
from dibs.matcher import Matcher, OnError
from dibs.matches import Matches
from dibs.plain import COLD_SUBSCRIPTIONS, NeedsEngine, PlainMatching
from dibs.segments.segment import Choice
from dibs.spark.tasks import advise
from dibs.storage.versions import NUMBERS, STRINGS, TIMES, Version, add_kinds

BITS = {Kind.NUMBER: NUMBERS, Kind.STRING: STRINGS, Kind.TIME: TIMES}
A_LOOK = 0.5  # seconds between two looks whether the kernels are there
PATIENCE = 600  # seconds after which a worker compiles what it needs itself

Texts = tuple[tuple[Any, ...], ...]  # (id, expression[, weight])
log = logging.getLogger("dibs.spark")


def is_cold(choice: Choice) -> bool:
    """Whether somebody would have to wait for kernels that can be done without."""
    return choice.name == AUTO and not choice.options and not engine.has_kernels()


def read_texts(table: pa.Table, text_ids: bool, weighted: bool, on_error: OnError) -> tuple[Texts, Version] | None:
    """The subscriptions as texts, and what is known of them; None: they need kernels. Raises SubscriptionErrors. Begins
    to compile the kernels."""
    names = ["id", "expression", *(["weight"] if weighted else [])]
    if len(table) > COLD_SUBSCRIPTIONS.value or any(table[name].null_count for name in names):
        return None
    texts = tuple(zip(*(table[name].to_pylist() for name in names)))
    changes = Changes()
    bad = add_items(changes, texts, on_error="skip")
    try:
        PlainMatching(changes).asked()
    except NeedsEngine:
        return None
    if bad and on_error == "raise":
        raise SubscriptionErrors([advise(each) for each in bad])
    if bad:
        return None
    engine.load_soon()
    kinds: dict[str, int] = {}
    for text in texts:
        add_kinds(kinds, kinds_of(text))
    return texts, Version(1, AUTO, "string" if text_ids else "int64", weighted, kinds, ())


def kinds_of(text: tuple[Any, ...]) -> dict[str, int]:
    """The kinds of the constants of a subscription, as storage.versions.kinds_in finds them in what is compiled."""
    kinds: dict[str, int] = {}
    for predicate in predicates(normal_form(parse(text[1]))):
        match predicate:
            case Compare(name, _, literal):
                found = [literal]
            case In(name, literals):
                found = list(literals)
            case Between(name, low, high):
                found = [low, high]
            case StringTest(name) | Like(name) | RLike(name):
                kinds[name] = kinds.get(name, 0) | STRINGS
                continue
            case IsNull(name):
                found = []
            case _:
                continue
        kinds.setdefault(name, 0)
        for literal in found:
            kinds[name] |= BITS.get(literal.kind, 0)
    return kinds


class TextMatcher:
    """In a worker: the texts in plain Python, and from when the kernels are there on, compiled."""

    def __init__(self, texts: Iterable[Sequence[Any]]) -> None:
        self._texts = list(map(tuple, texts))
        changes = Changes()
        add_items(changes, self._texts, on_error="raise")
        self._plain = PlainMatching(changes)
        self._full: Matcher | None = None

    def match_batch(self, events: Any, **given: Any) -> Matches:
        if self._full is None and not is_ready():
            try:
                return self._plain.match_batch(events, **given)
            except NeedsEngine:
                self._wait()
        if self._full is None:
            self._full = Matcher(threads=1)
            self._full.add_many(self._texts)
        return self._full.match_batch(events, **given)

    def _wait(self) -> None:
        log.warning("%s, which these events need", engine.WAITING)
        until = time.monotonic() + PATIENCE
        while not is_ready() and time.monotonic() < until:
            time.sleep(A_LOOK)


@lru_cache(maxsize=4)  # workers live on from job to job
def open_texts(texts: Texts) -> TextMatcher:
    return TextMatcher(texts)
