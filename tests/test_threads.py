"""Many threads match while one changes: every answer is that of one state, between the begin and the end of the match.

The changes, and with them the state at every version, are drawn before: a reader asks for the version, matches, asks
for the version again, and what it was told must be the answer at one of the versions in between.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

import pytest

from batches import random_batch
from cases import random_expressions, random_world
from dibs.index import INDEXES
from dibs.language.printer import to_sql
from dibs.matcher import Matcher
from dibs.matches import id_order
from dibs.reference import matches
from dibs.tuning import using
from entries import nothing_fails_unseen, settle
from settings import THRESHOLDS

EXPRESSIONS, EVENTS = 60, 8
STEPS = 150  # of the writer, at most...
SECONDS = 0.3  # ...and for so long


class Step(NamedTuple):
    """A change and what is there after it: the number of the expression of each id."""

    changes: list[tuple[Any, int | None]]  # id, number of its new expression; None: it goes
    version: int
    state: dict[Any, int]


class Story:
    """Changes of a matcher, and the right answer at every version."""

    def __init__(self, seed: int):
        random = Random(seed)
        world = random_world(random)._replace(unreadable=False)
        expressions = random_expressions(random, world, EXPRESSIONS)
        self.texts = [to_sql(e) for e in expressions]
        self.events = random_batch(random, world, EVENTS, "python").events
        self._matching = [{i for i, e in enumerate(expressions) if matches(e, event)} for event in self.events]
        first = {i: i for i in range(EXPRESSIONS // 2)}
        self.steps = [Step([], len(first), first)]
        for _ in range(STEPS):
            self.steps.append(self._next(random))
        self._at = {step.version: step.state for step in self.steps}
        self._answers: dict[int, list[list[Any]]] = {}

    def _next(self, random: Random) -> Step:
        last = self.steps[-1]
        state, changes = dict(last.state), list[tuple[Any, "int | None"]]()
        for _ in range(random.choice([1, 1, 1, 3, 12])):
            id = random.choice([*range(EXPRESSIONS), *"abcdefgh"])
            goes = id in state and random.random() < 0.5
            number = None if goes else random.randrange(EXPRESSIONS)
            if number is None:
                del state[id]
            else:
                state[id] = number
            changes.append((id, number))
        return Step(changes, last.version + len(changes), state)

    def answers(self, version: int) -> list[list[Any]]:
        """Of each event; empty for a version that is inside a batch, which nobody may see."""
        if version in self._at and version not in self._answers:
            state = self._at[version]
            found = [[id for id, i in state.items() if i in matching] for matching in self._matching]
            self._answers[version] = [sorted(ids, key=id_order) for ids in found]
        return self._answers.get(version, [])

    def begin(self, matcher: Matcher) -> None:
        matcher.add_many((id, self.texts[i]) for id, i in self.steps[0].state.items())

    def write(self, matcher: Matcher, until: float) -> None:
        state = dict(self.steps[0].state)
        for step in self.steps[1:]:
            with matcher.batch():
                for id, number in step.changes:
                    if number is None:
                        matcher.remove(id)
                    elif id in state:
                        matcher.replace(id, self.texts[number])
                    else:
                        matcher.add(id, self.texts[number])
                    state = {**state, id: number}
                    if number is None:
                        del state[id]
            assert matcher.version == step.version
            if time.monotonic() > until:
                return
            time.sleep(0.001)

    def check(self, places: list[int], ask: Callable[[], list[list[Any]]], matcher: Matcher) -> bool:
        """Asks, and fails unless the answer is that of one version; whether there was a change meanwhile."""
        before = matcher.version
        told = ask()
        after = matcher.version
        possible = [[a[p] for p in places] for v in range(before, after + 1) if (a := self.answers(v))]
        assert told in possible, (
            f"versions {before} to {after}: was told {told}\n  and not one of {possible}\n"
            f"  on {[self.events[p] for p in places]}"
        )
        return after > before


@pytest.mark.parametrize("thresholds", THRESHOLDS)
@pytest.mark.parametrize("index", INDEXES)
def test_every_answer_is_that_of_one_state(index: str, thresholds: str) -> None:
    seed = list(INDEXES).index(index)
    story = Story(seed)
    failed: list[BaseException] = []
    done = threading.Event()
    asked = dict.fromkeys(("single", "batch", "two", "top"), 0)
    everything = list(range(EVENTS))

    def read(how: str, matcher: Matcher) -> None:
        random = Random(how)
        try:
            while not done.is_set():
                place = random.randrange(EVENTS - 1)
                some = [place, place + 1] if how == "two" else [place] if how in ("single", "top") else everything
                batch = [story.events[p] for p in some]
                ask: Callable[[], list[list[Any]]] = lambda batch=batch: list(matcher.match_batch(batch))  # noqa: E731
                if how == "single":
                    ask = lambda batch=batch: [matcher.match(batch[0])]  # noqa: E731
                elif how == "top":  # all have one weight: the first in the order of ids
                    ask = lambda batch=batch: [matcher.match(batch[0], top=10**6)]  # noqa: E731
                story.check(some, ask, matcher)
                asked[how] += 1
        except BaseException as e:
            failed.append(e)
            done.set()

    with using(THRESHOLDS[thresholds](seed)), nothing_fails_unseen(), Matcher(index=index, threads=2) as matcher:
        story.begin(matcher)
        matcher.match(story.events[0])  # so that kernels are compiled before the time counts
        readers = [threading.Thread(target=read, args=(how, matcher)) for how in asked]
        for reader in readers:
            reader.start()
        try:
            story.write(matcher, time.monotonic() + SECONDS)
        finally:
            done.set()
            for reader in readers:
                reader.join()
        if failed:
            raise failed[0]
        assert min(asked.values()) > 0, asked
        settle(matcher)
        assert not story.check(everything, lambda: [matcher.match(event) for event in story.events], matcher)
        assert not story.check(everything, lambda: list(matcher.match_batch(story.events)), matcher)
