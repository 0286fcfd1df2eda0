"""The life of a matcher: changes of every kind in any order, and after each of them it answers as the reference does
over what should be in it. In memory and durable, at the usual thresholds, the smallest and random ones."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from batches import Batch, random_batch
from cases import random_expression, random_world
from dibs.errors import DuplicateId, ExpressionError, SubscriptionErrors, UnknownId
from dibs.language.expression import Expression
from dibs.language.printer import to_sql
from dibs.matcher import Matcher
from dibs.matches import id_order
from dibs.reference import matches
from dibs.tuning import using
from entries import askings, check_counts, check_top, nothing_fails_unseen, settle
from settings import THRESHOLDS
from strategies import RANDOM

IDS: list[Any] = [*range(30), *"abcd"]
AN_ID = st.sampled_from(IDS)
SOME_IDS = st.lists(AN_ID, unique=True, max_size=8)


class Known(NamedTuple):
    expression: Expression
    weight: float


class Stop(Exception):
    """Raised inside a batch, which then has not happened."""


class Life(RuleBasedStateMachine):
    def __init__(self, index: str, thresholds: str, durable: bool) -> None:
        super().__init__()
        self.index, self.thresholds, self.durable = index, thresholds, durable
        self.open_things = ExitStack()
        self.above = Path(tempfile.mkdtemp(prefix="dibs-life-"))
        self.saves = 0
        self.model: dict[Any, Known] = {}
        self.version = 0

    @initialize(random=RANDOM, seed=st.integers(0, 1000))
    def begin(self, random: Random, seed: int) -> None:
        self.world = random_world(random)
        self.open_things.enter_context(using(THRESHOLDS[self.thresholds](seed)))
        self.open_things.enter_context(nothing_fails_unseen())
        self.matcher = self.opened() if self.durable else Matcher(index=self.index)
        self.add_several(random.sample(IDS, random.choice([0, 5, 20])), random, as_table=False, skip=False)

    def opened(self) -> Matcher:
        return Matcher.open(self.above / "durable", index=self.index)

    def teardown(self) -> None:
        if hasattr(self, "matcher"):
            self.matcher.close()
        self.open_things.close()
        shutil.rmtree(self.above)

    def known(self, random: Random) -> Known:
        return Known(random_expression(random, self.world), random.choice([1.0, 1.0, 2.0, 0.5]))

    def put(self, id: Any, known: Known | None) -> None:
        self.version += 1
        if known is None:
            del self.model[id]
        else:
            self.model[id] = known

    # ---- changes ----

    @rule(id=AN_ID, random=RANDOM)
    def add(self, id: Any, random: Random) -> None:
        new = self.known(random)
        if id in self.model:
            with pytest.raises(DuplicateId):
                self.matcher.add(id, to_sql(new.expression), new.weight)
        else:
            self.matcher.add(id, to_sql(new.expression), new.weight)
            self.put(id, new)

    @rule(ids=SOME_IDS, random=RANDOM, as_table=st.booleans(), skip=st.booleans())
    def add_several(self, ids: list[Any], random: Random, as_table: bool, skip: bool) -> None:
        """Some of them may be there already: then none is added, or only the others."""
        if as_table:
            ids = [id for id in ids if isinstance(id, int)]
        new = {id: self.known(random) for id in ids}
        items = [(id, to_sql(known.expression), known.weight) for id, known in new.items()]
        here = [id for id in ids if id in self.model]
        on_error = "skip" if skip else "raise"
        try:
            if as_table:
                columns = [[item[i] for item in items] for i in range(3)]
                types = [pa.int64(), pa.string(), pa.float64()]
                arrays = [pa.array(column, type_) for column, type_ in zip(columns, types)]
                refused = self.matcher.add_table(
                    pa.table(dict(zip(("id", "expression", "weight"), arrays))), on_error=on_error
                )
            else:
                refused = self.matcher.add_many(items, on_error=on_error)
        except SubscriptionErrors:
            assert here and not skip
            return
        assert len(refused) == len(here)
        for id, known in new.items():
            if id not in here:
                self.put(id, known)

    @rule(id=AN_ID, random=RANDOM)
    def replace(self, id: Any, random: Random) -> None:
        new = self.known(random)
        if id in self.model:
            self.matcher.replace(id, to_sql(new.expression), new.weight)
            self.put(id, new)
        else:
            with pytest.raises(UnknownId):
                self.matcher.replace(id, to_sql(new.expression))

    @rule(ids=SOME_IDS)
    def remove_several(self, ids: list[Any]) -> None:
        if all(id in self.model for id in ids):
            self.matcher.remove_many(ids)
            for id in ids:
                self.put(id, None)
        else:
            with pytest.raises(UnknownId):
                self.matcher.remove_many(ids)

    @precondition(lambda self: self.model)
    @rule(random=RANDOM)
    def remove(self, random: Random) -> None:
        id = random.choice(sorted(self.model, key=id_order))
        self.matcher.remove(id)
        self.put(id, None)

    @rule(ids=st.lists(AN_ID, max_size=10), random=RANDOM, stops=st.booleans())
    def batch(self, ids: list[Any], random: Random, stops: bool) -> None:
        """Adds, replaces and removes in one, the same id several times; aborted now and then."""
        before, version = dict(self.model), self.version
        try:
            with self.matcher.batch():
                for id in ids:
                    new = self.known(random)
                    if id not in self.model:
                        self.matcher.add(id, to_sql(new.expression), new.weight)
                        self.put(id, new)
                    elif random.random() < 0.5:
                        self.matcher.replace(id, to_sql(new.expression), new.weight)
                        self.put(id, new)
                    else:
                        self.matcher.remove(id)
                        self.put(id, None)
                    assert (id in self.matcher) == (id in self.model)
                if stops:
                    raise Stop
        except Stop:
            self.model, self.version = before, version

    @rule(id=AN_ID)
    def add_what_cannot_be_read(self, id: Any) -> None:
        with pytest.raises((ExpressionError, DuplicateId)):
            self.matcher.add(id, "a <= ")

    # ---- upkeep ----

    @rule()
    def compact(self) -> None:
        self.matcher.compact()

    @rule()
    def rest(self) -> None:
        settle(self.matcher)

    @rule(random=RANDOM)
    def save_and_load(self, random: Random) -> None:
        self.saves += 1
        folder = self.above / f"saved {self.saves}"
        self.matcher.save(folder)
        with Matcher.load(folder) as loaded:
            self.check(loaded, random_batch(random, self.world, 4))

    @precondition(lambda self: self.durable)
    @rule(random=RANDOM)
    def reopen(self, random: Random) -> None:
        with Matcher.open(self.above / "durable", read_only=True) as follower:
            self.check(follower, random_batch(random, self.world, 2))
        self.matcher.close()
        self.matcher = self.opened()
        assert self.matcher.version == self.version

    # ---- matches ----

    @rule(random=RANDOM, events=st.integers(1, 6))
    def match(self, random: Random, events: int) -> None:
        self.check(self.matcher, random_batch(random, self.world, events))

    @rule(random=RANDOM)
    def match_one(self, random: Random) -> None:
        self.check(self.matcher, random_batch(random, self.world, 1))

    def check(self, matcher: Matcher, batch: Batch) -> None:
        answer = [
            sorted((id for id, known in self.model.items() if matches(known.expression, event)), key=id_order)
            for event in batch.events
        ]
        for entry, ask in askings(batch).items():
            found = ask(matcher, batch)
            for event, right, told in zip(batch.events, answer, found, strict=True):
                for id in {*right} ^ {*told}:
                    known = self.model.get(id)
                    text = "which is not there" if known is None else to_sql(known.expression)
                    raise AssertionError(f"{entry}: {id} {text}\n  on {event}\n  {right}, was told {told}")
            assert found == answer, entry
        assert not check_counts(matcher, batch, answer)
        assert not check_top(matcher, batch, answer, {id: known.weight for id, known in self.model.items()}, 2)

    @invariant()
    def has_what_it_should_have(self) -> None:
        if hasattr(self, "matcher"):
            assert len(self.matcher) == len(self.model)
            assert [id for id in IDS if id in self.matcher] == [id for id in IDS if id in self.model]
            assert self.matcher.version == self.version
            for id, known in list(self.model.items())[:2]:
                assert self.matcher.expression(id) == to_sql(known.expression)
                assert self.matcher.weight(id) == known.weight


@pytest.mark.parametrize("durable", [False, True], ids=["memory", "durable"])
@pytest.mark.parametrize("thresholds", THRESHOLDS)
@pytest.mark.parametrize("index", ["auto", "betree", "pstree", "opindex", "pbtree-memory", "propagation"])
def test_any_life(index: str, thresholds: str, durable: bool) -> None:
    examples = max(settings.default.max_examples // 5, 1)
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        lambda: Life(index, thresholds, durable), settings=settings(max_examples=examples, stateful_step_count=20)
    )
