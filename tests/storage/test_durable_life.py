"""The life of a durable matcher: changes, merges, checkpoints, crashes and readers in any order. It always equals the
reference over what is in it, and so does what another process would find in its folder at this moment."""

from __future__ import annotations

import shutil
import tempfile
import warnings
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from crash_writer import SMALL
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

import dibs
from dibs.errors import RecoveryWarning
from dibs.language.expression import Expression
from dibs.language.printer import to_sql
from dibs.reference import matches
from dibs.tuning import numbers
from strategies import events, expressions

IDS = st.one_of(st.integers(0, 12), st.sampled_from(["a", "b", "c", "d"]))
CHANGES = st.lists(st.tuples(IDS, expressions(max_leaves=3), st.sampled_from(["add", "remove"])), max_size=8)


class Life(RuleBasedStateMachine):
    index = "auto"

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        for name, value in SMALL.items():
            self.patch.setattr(numbers[name], "value", value)
        self.above = Path(tempfile.mkdtemp(prefix="dibs-life-"))
        self.places = 0
        self.folder = self.above / "0"
        self.matcher = dibs.Matcher.open(self.folder, index=self.index, threads=1)
        self.follower: dibs.Matcher | None = None
        self.model: dict[Any, Expression] = {}
        self.versions: dict[Any, int] = {}
        self.version = 0
        self.next_bulk = 1000
        # Nothing is ever damaged in this life.
        self.caught = warnings.catch_warnings()
        self.caught.__enter__()
        warnings.simplefilter("error", RecoveryWarning)

    def teardown(self) -> None:
        if self.follower is not None:
            self.follower.close()
        self.matcher.close()
        self.caught.__exit__(None, None, None)
        self.patch.undo()
        shutil.rmtree(self.above)

    def put(self, id: Any, tree: Expression | None) -> None:
        self.version += 1
        self.model.pop(id, None)
        self.versions.pop(id, None)
        if tree is not None:
            self.model[id], self.versions[id] = tree, self.version

    # ---- changes ----

    @rule(id=IDS, tree=expressions(max_leaves=4))
    def add(self, id: Any, tree: Expression) -> None:
        if id in self.model:
            with pytest.raises(dibs.DuplicateId):
                self.matcher.add(id, to_sql(tree))
        else:
            self.matcher.add(id, to_sql(tree))
            self.put(id, tree)

    @rule(items=st.lists(st.tuples(IDS, expressions(max_leaves=3)), max_size=10))
    def add_many(self, items: list[tuple[Any, Expression]]) -> None:
        skipped = self.matcher.add_many([(i, to_sql(t)) for i, t in items], on_error="skip")
        for position, (id, tree) in enumerate(items):
            if position not in {r.position for r in skipped}:
                assert id not in self.model
                self.put(id, tree)

    @rule(trees=st.lists(expressions(max_leaves=3), min_size=1, max_size=4), times=st.integers(1, 10))
    def add_table(self, trees: list[Expression], times: int) -> None:
        trees = trees * times
        ids = range(self.next_bulk, self.next_bulk + len(trees))
        self.next_bulk += len(trees)
        self.matcher.add_table(pa.table({"id": list(ids), "expression": [to_sql(t) for t in trees]}))
        for id, tree in zip(ids, trees):
            self.put(id, tree)

    @rule(id=IDS)
    def remove(self, id: Any) -> None:
        if id in self.model:
            self.matcher.remove(id)
            self.put(id, None)
        else:
            with pytest.raises(dibs.UnknownId):
                self.matcher.remove(id)

    @precondition(lambda self: self.model)
    @rule(data=st.data(), share=st.integers(1, 3))
    def remove_many(self, data: st.DataObject, share: int) -> None:
        there = sorted(self.model, key=str)
        first = data.draw(st.integers(0, len(there) - 1))
        gone = there[first::share]
        self.matcher.remove_many(gone)
        for id in gone:
            self.put(id, None)

    @precondition(lambda self: self.model)
    @rule(data=st.data(), tree=expressions(max_leaves=4))
    def replace(self, data: st.DataObject, tree: Expression) -> None:
        id = data.draw(st.sampled_from(sorted(self.model, key=str)))
        self.matcher.replace(id, to_sql(tree))
        self.put(id, tree)

    @rule(changes=CHANGES, ends=st.booleans())
    def batch(self, changes: list[tuple[Any, Expression, str]], ends: bool) -> None:
        before = self.model.copy(), self.versions.copy(), self.version
        try:
            with self.matcher.batch():
                for id, tree, kind in changes:
                    if kind == "remove" and id in self.model:
                        self.matcher.remove(id)
                        self.put(id, None)
                    elif kind == "add":
                        (self.matcher.replace if id in self.model else self.matcher.add)(id, to_sql(tree))
                        self.put(id, tree)
                    assert len(self.matcher) == len(self.model) and (id in self.matcher) == (id in self.model)
                if not ends:
                    raise LookupError
        except LookupError:
            self.model, self.versions, self.version = before

    # ---- upkeep ----

    @rule()
    def compact(self) -> None:
        self.matcher.compact()

    @rule()
    def checkpoint(self) -> None:
        self.matcher._changes.durable.checkpoint(self.matcher._layers)

    @rule()
    def settle(self) -> None:
        self.matcher._layers.upkeep.rest()
        assert self.matcher.stats()["background problem"] is None

    # ---- opening again ----

    @rule()
    def reopen(self) -> None:
        self.matcher.close()
        self.matcher = dibs.Matcher.open(self.folder, threads=1)
        assert self.matcher.index == self.index

    @rule(go_on=st.booleans())
    def crash(self, go_on: bool) -> None:
        """What a process that ended now would leave behind. The background rests, as a copy takes its time."""
        self.places += 1
        copy = self.above / str(self.places)
        self.matcher._layers.upkeep.run(lambda: shutil.copytree(self.folder, copy))  # type: ignore[arg-type]
        other = dibs.Matcher.open(copy, threads=1)
        if go_on:
            if self.follower is not None:
                self.follower.close()
                self.follower = None
            other, self.matcher, self.folder = self.matcher, other, copy
        else:
            self.check(other, [{}])
        other.close()

    @rule()
    def follow(self) -> None:
        if self.follower is not None:
            self.follower.close()
        self.follower = dibs.Matcher.open(self.folder, read_only=True, threads=1)

    # ---- what is there ----

    @rule(batch=st.lists(events(), min_size=1, max_size=3))
    def match(self, batch: list[dict[str, Any]]) -> None:
        self.check(self.matcher, batch)
        if self.follower is not None:
            self.check(self.follower, batch)

    def check(self, matcher: dibs.Matcher, batch: list[dict[str, Any]]) -> None:
        found = matcher.match_batch(batch)
        for event, ids in zip(batch, found):
            assert len(ids) == len(set(ids))
            assert set(ids) == {i for i, t in self.model.items() if matches(t, event)}
        for pair in found.pairs(versions=True).to_pylist():
            id = pair["subscription"]
            assert pair["version"] == self.versions[id if id in self.versions else int(id)]
        assert (matcher.version, len(matcher)) == (self.version, len(self.model))

    @invariant()
    def size(self) -> None:
        catalog = self.matcher._changes.durable.catalog
        assert len(self.matcher) == len(self.model) == len(catalog)
        assert self.matcher.version == self.version == catalog.version

    @invariant()
    def texts(self) -> None:
        for id, tree in list(self.model.items())[:3]:
            its = self.matcher.get(id)
            assert (its.expression, its.version) == (to_sql(tree), self.versions[id])
            assert its.time is not None


class InPlace(Life):
    index = "pstree"


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=25, stateful_step_count=30)
TestLifeInPlace = InPlace.TestCase
TestLifeInPlace.settings = settings(max_examples=15, stateful_step_count=30)
