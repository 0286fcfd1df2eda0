"""A matcher before its engine is here: it needs no compiler, answers as with the engine, and goes over to it."""

from __future__ import annotations

import datetime as dt
import math
import os
import pickle
import re
import subprocess
import sys
import threading
from inspect import signature
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings

import dibs
from batches import FORMS, Case
from dibs import engine, matcher
from dibs.coding.values import Range
from dibs.language.printer import to_sql
from dibs.matching import Matching
from dibs.plain import NeedsEngine, PlainMatching
from dibs.reference import matches
from dibs.tuning import using
from dibs.warming import processes
from entries import Making, Subscription, askings, check_counts, check_top, cold
from plain_matchers import is_plain, plain_matcher
from strategies import RANDOM, cases

ROOT = Path(__file__).parent.parent
PAGES = ("README.md", "docs/operations.md")  # what people try first
IMPORT_FAILS = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("numba", "llvmlite", "pyarrow", "re2"):
            raise AssertionError(f"{name} is imported")
sys.meta_path.insert(0, Refuse())
"""
COMPILER_FAILS = """
from numba.core.dispatcher import _FunctionCompiler
def refuse(self, args, return_type):
    raise AssertionError(f"{self.py_func.__qualname__} is compiled")
_FunctionCompiler.compile = refuse
"""


def run(program: str, folder: Path) -> str:
    """What a program prints in a process with an empty cache."""
    own = {k: v for k, v in os.environ.items() if not k.startswith(("NUMBA_", "DIBS_"))}
    own |= {"DIBS_CACHE": str(folder / "empty"), "DIBS_WARM": "never"}
    done = subprocess.run([sys.executable, "-c", program], env=own, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def examples_of(*pages: str) -> list[str]:
    """The doctests of pages, block by block."""
    return [
        block for page in pages for block in re.findall(r"```python\n(>>> .*?)```", (ROOT / page).read_text(), re.S)
    ]


def doctest_of(examples: list[str]) -> str:
    return f"""
import doctest
test = doctest.DocTestParser().get_doctest({chr(10).join(examples)!r}, {{}}, "README", None, 0)
result = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test)
assert result.failed == 0 and result.attempted > 5, result
print("good")
"""


def test_the_first_example_imports_neither_numba_nor_arrow_nor_re2(tmp_path: Path) -> None:
    assert run(IMPORT_FAILS + doctest_of(examples_of("README.md")[:2]), tmp_path) == "good\n"


def test_the_examples_need_no_compiler(tmp_path: Path) -> None:
    """Up to where subscriptions are compiled on purpose, by save."""
    first, second, *others = examples_of("README.md", "docs/operations.md")
    (use,) = (text for text in others if "m.save" in text)
    assert run(COMPILER_FAILS + doctest_of([first, second, use[: use.index(">>> m.save")]]), tmp_path) == "good\n"


def test_the_compiler_is_made_to_fail(tmp_path: Path) -> None:
    """Else the test above would test nothing."""
    program = (
        COMPILER_FAILS + "import dibs; from dibs import engine; engine.load(); m = dibs.Matcher(); m.add('a', 'b = 1')"
    )
    with pytest.raises(AssertionError, match="is compiled"):
        run(program, tmp_path)


@pytest.mark.parametrize("form", FORMS)
def test_it_agrees_with_the_reference(form: str, tmp_path: Path) -> None:
    @settings(max_examples=settings.default.max_examples // 2)
    @given(cases(form=form), RANDOM)
    def agree(case: Case, random: Random) -> None:
        expressions, batch = case
        expected = [[i for i, each in enumerate(expressions) if matches(each, event)] for event in batch.events]
        subscriptions = [Subscription(i, to_sql(each), random.choice([1.0, 2.0])) for i, each in enumerate(expressions)]
        making = Making("auto", subscriptions, tmp_path, random, batch.events[0])
        with cold(making) as m:
            for name, ask in askings(batch).items():
                assert ask(m, batch) == expected, name
                assert is_plain(m) or "map" in name
            assert not check_counts(m, batch, expected)
            assert not check_top(m, batch, expected, {s.id: s.weight for s in subscriptions}, 2)

    agree()


UNREADABLE = [b"x", 1j, dt.timedelta(1), "\ud800", Range(2, 1), Range(1, "x"), Range(None, None)]


@pytest.mark.parametrize("bad", UNREADABLE, ids=repr)
def test_what_cannot_be_read_is_told_alike(bad: Any) -> None:
    both = [plain_matcher(), matcher.Matcher()]
    for m in both:
        m.add_many([(1, "a IS NULL"), (2, "a = 1 OR b = 1"), ("x", "TRUE")])
    for event in ({"a": bad, "b": 1}, {"a": [1, bad]}, {1: 2, "b": 1}, {"c": bad, "b": 1}, {"b": {2: 3}}):
        answers = []
        for m in both:
            try:
                found: Any = m.match(event)
            except dibs.EventError as error:
                found = str(error)
            skipped = m.match_batch([event, {"b": 1}], on_error="skip")
            answers.append((found, list(skipped), skipped.problems, m.count([event], on_error="skip").tolist()))
        assert answers[0] == answers[1]


@pytest.mark.parametrize(
    "call",
    [
        lambda m: m.add("a", "b = 1"),
        lambda m: m.add(True, "b = 1"),
        lambda m: m.add("new", "b ="),
        lambda m: m.add("new", 5),
        lambda m: m.add("new", "b = 1", weight=math.nan),
        lambda m: m.add_many(
            [("new", "b = 1"), ("a", "b = 1"), ("new", "c = 1"), (1.5, "b"), ("x",), ("y", "b <"), 7, ()]
        ),
        lambda m: m.add_many([("new", "b = 1"), ("a", "b = 1"), ("new", "c = 1"), ("z", "z")], on_error="skip"),
        lambda m: m.add_many([], on_error="other"),
        lambda m: m.add_many("ab"),
        lambda m: m.add_many({"new": "b = 1"}),
        lambda m: m.add_many(iter([("new", "b = 1", 3.0)])),
        lambda m: m.remove("not there"),
        lambda m: m.remove(1.0),
        lambda m: m.remove_many(["a", "a"]),
        lambda m: m.remove_many(["a", 2]),
        lambda m: m.remove_many("a"),
        lambda m: m.remove_many(iter(["a"])),
        lambda m: m.replace("a", "c = 1", 3),
        lambda m: m.replace("a", "c = 1"),
        lambda m: m.replace("a", "c ="),
        lambda m: m.replace("not there", "c = 1"),
        lambda m: m.get("a"),
        lambda m: m.get("not there"),
        lambda m: (m.expression("a"), m.weight("a"), "a" in m, 1.0 in m, 2 in m, True in m),
        lambda m: (m.version, sorted(m.attributes), m.weighted, len(m), repr(m)),
        lambda m: m.match(7),
        lambda m: m.match({"b": 1}, top=0),
        lambda m: m.match({"b": 1}, top=1),
        lambda m: m.match_batch({"b": 1}),
        lambda m: m.match_batch(7),
        lambda m: m.match_batch([{"b": 1}, 5]),
        lambda m: list(m.match_batch([{"b": 1}, 5], on_error="skip")),
        lambda m: list(m.match_batch(b'{"b": 1}\n{"b": 2\n', on_error="skip")),
        lambda m: list(m.match_batch([{"x": {"b": 1}}, {}], attributes="x", on_error="skip")),
        lambda m: m.match_batch([{"b": 1}], attributes=5),
        lambda m: m.match_batch([{"b": 1}]).pairs(weights=True, versions=True).sort_by("version").to_pylist(),
        lambda m: list(m.match_batch(pa.table({"b": [1, None], "c": ["x", "y"]}))),
        lambda m: list(m.match_batch(iter([{"b": 1}]))),
        lambda m: m.count([{"b": 1}, {}]).tolist(),
        lambda m: str(m.explain("a", {"b": 2})),
        lambda m: m.explain("a", 5),
        lambda m: str(m.explain("a", b'{"b": 2}')),
        lambda m: m.explain("a", b"[2]"),
        lambda m: m.match({"b": 1}, key="k"),
        lambda m: m.match_batch([{"b": 1}], key="k"),
        lambda m: (m.match({"b": 1}, remember=True), len(m.history)),
        lambda m: (m.match({"b": 1}, 1, True, "k"), "k" in m.history),
        lambda m: (list(m.match_batch([{"b": 1, "k": 5}], remember=True, key="k")), 5 in m.history),
        lambda m: m.close(),
    ],
)
def test_every_call_does_the_same(call: Any) -> None:
    """The same result or the same error, and the same matcher afterwards."""
    outcomes = []
    for m in (plain_matcher(), matcher.Matcher()):
        m.add("a", "b = 1 AND c IS NULL", weight=2)
        m.add_many([(2, "b >= 1"), (1, "b < 5", -1.0)])
        try:
            result = call(m)
        except dibs.DibsError as error:
            result = type(error), str(error)
        try:
            state: Any = m.version, len(m), m.match({"b": 1}), m.match({"c": 1}, top=2)
        except dibs.DibsError as error:
            state = str(error), len(m), 2 in m
        outcomes.append((str(result), state))
    assert outcomes[0] == outcomes[1]


def test_it_moves_over_with_everything() -> None:
    m = plain_matcher(threads=1)
    m.add_many([("a", "b = 1", 3.0), (1, "c LIKE '%x%'"), ("gone", "TRUE")])
    m.replace("a", "b = 2")
    m.remove("gone")
    before = (m.version, m.get("a"), m.get(1), m.match({"b": 2, "c": "axb"}), m.threads)
    assert is_plain(m)
    m._stays_plain = False  # the engine is here, so it goes there with the next call
    assert m.match({"b": 2, "c": "axb"}) == before[3]
    assert not is_plain(m)
    assert (m.version, m.get("a"), m.get(1), m.match({"b": 2, "c": "axb"}), m.threads) == before
    assert m.stats()["matching"]["events"] == 3
    m.add("new", "TRUE")
    assert m.version == before[0] + 1


def test_what_is_too_large_moves_over() -> None:
    with using({"cold_subscriptions": 3}):
        m = plain_matcher()
        m.add_many([(i, "b = 1") for i in range(3)])
        assert is_plain(m)
        m.add(3, "b = 1")
        assert not is_plain(m)
        assert (m.match({"b": 1}), m.version) == ([0, 1, 2, 3], 4)
    with using({"cold_pairs": 3}):
        m = plain_matcher()
        m.add_many([(i, "b = 1") for i in range(3)])
        assert list(m.match_batch([{"b": 1}])) == [[0, 1, 2]]
        assert is_plain(m)
        assert list(m.match_batch([{"b": 1}, {}])) == [[0, 1, 2], []]
        assert not is_plain(m)


def test_no_change_is_lost_by_moving_over() -> None:
    for _ in range(5):
        m = plain_matcher()

        def add(thread: int, m: Any = m) -> None:
            for i in range(100):
                m.add(thread * 1_000 + i, "b = 1")
                if thread == 0 and i == 50:
                    m._stays_plain = False

        threads = [threading.Thread(target=add, args=(t,)) for t in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (len(m), m.version, len(m.match({"b": 1}))) == (300, 300, 300)
        assert not is_plain(m)


def test_a_thread_that_is_in_a_call_when_another_moves_over() -> None:
    """What it asks for in plain Python is for the engine now, and no change is lost."""
    m = plain_matcher()
    m.add(1, "b = 1")
    calls = {name: getattr(m, name) for name in ("add", "match", "remove")}
    plain = m._plain.asked()
    m._stays_plain = False
    m.add(2, "b = 1")
    assert not is_plain(m)
    calls["add"](3, "b = 1")
    calls["remove"](1)
    assert calls["match"]({"b": 1}) == m.match({"b": 1}) == [2, 3]
    assert plain.find({"b": [1]}) == [1]  # a state never changes
    with pytest.raises(NeedsEngine):
        m._plain.match({"b": 1})
    assert m.stats()["subscriptions"] == 2


def test_all_threads_that_move_over_find_one_engine() -> None:
    for _ in range(20):
        m = plain_matcher()
        m.add(1, "b = 1")
        start, found = threading.Barrier(4), []

        def move(m: Any = m, start: Any = start, found: Any = found) -> None:
            start.wait()
            found.append(m.use_engine())

        threads = [threading.Thread(target=move) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len({id(each) for each in found}) == 1 and len(found) == 4
        assert m.match({"b": 1}) == [1]


def test_closing_while_another_thread_moves_over() -> None:
    """Whichever of the two is first."""
    for is_closed_first in (True, False):
        m = plain_matcher()
        m.add(1, "b = 1")
        if is_closed_first:
            m.close()
        assert m.use_engine()
        m.close()
        assert not is_plain(m) and len(m) == 0
        with pytest.raises(dibs.DibsError, match="closed"):
            m.match({"b": 1})
        with pytest.raises(dibs.DibsError, match="closed"):
            m.history.add({"b": 1})


def test_a_batch_of_changes_while_it_moves_over() -> None:
    m = plain_matcher()
    m.add(1, "b = 1")
    with m.batch():
        m.add(2, "b = 1")
        m.remove(1)
        assert is_plain(m) and m.match({"b": 1}) == [1]
        m.use_engine()
        m.add(3, "b = 1")
        assert m.match({"b": 1}) == [1] and len(m) == 2
    assert (m.match({"b": 1}), m.version) == ([2, 3], 4)


def test_joins_wait_for_the_engine() -> None:
    m = plain_matcher()
    m.add("a", "b = 1 AND EXISTS d (d.b = b)")
    m.add("c", "b = 1")
    assert is_plain(m)
    assert m.match({"b": 1}) == ["c"] and not is_plain(m)
    m.history.add({"b": 1})
    assert m.match({"b": 1}) == ["a", "c"]
    other = plain_matcher()
    other.add("a", "EXISTS d (d.b = b)")
    assert not other.explain("a", {"b": 1}).matched and not is_plain(other)


def test_there_is_one_class() -> None:
    m = plain_matcher()
    assert type(m) is dibs.Matcher is matcher.Matcher and type(dibs.Matcher()) is dibs.Matcher
    assert not isinstance(5, dibs.Matcher)
    for name in ("match", "match_batch", "count", "add_many", "replace", "explain", "open"):
        assert signature(getattr(dibs.Matcher, name)).parameters and getattr(dibs.Matcher, name).__doc__, name
    for name in ("match", "match_batch", "count"):  # one call, three ways to ask
        own, compiled, plain = (
            [(p.name, p.default) for p in signature(getattr(each, name)).parameters.values()]
            for each in (dibs.Matcher, Matching, PlainMatching)
        )
        assert own == compiled == plain, name
    assert not hasattr(dibs.Matcher, "no_such_thing")

    class Own(dibs.Matcher):
        pass

    own = Own()
    own.add("a", "b = 1")
    assert type(own) is Own and isinstance(own, dibs.Matcher) and own.match({"b": 1}) == ["a"]
    with pytest.raises(dibs.ArgumentError, match="save"):
        pickle.dumps(m)


def test_the_background_brings_in_the_compiled_matcher(tmp_path: Path) -> None:
    """With a cache that is taken for ready: what is missing there is compiled by the thread. (A note in it would have
    everybody else take it for ready too.)"""
    program = """
import time, sys, dibs
from dibs import engine
engine.is_ready = lambda: True
engine.is_wanted = lambda: True
m = dibs.Matcher()
m.add("a", "b = 1")
assert m.match({"b": 1}) == ["a"]
assert engine.current is None and "numba" not in sys.modules and "pyarrow" not in sys.modules
until = time.monotonic() + 300
while m._matching is None and time.monotonic() < until:
    assert m.match({"b": 1}) == ["a"]
    m.replace("a", "b = 1 OR c = 2")
    time.sleep(0.05)
print(engine.current.__name__, m.match({"c": 2}), dibs.Matcher()._matching is not None)
"""
    own = {k: v for k, v in os.environ.items() if not k.startswith("NUMBA_")}
    done = subprocess.run([sys.executable, "-c", program], env=own, cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.split("\n")[0] == "dibs.matching ['a'] True", done.stderr


def test_who_waits_for_kernels_is_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """By a callback; else on a terminal, or by the log."""

    def warm(progress: Any) -> None:
        for done in (1, 2):
            if progress is not None:
                progress(done)

    monkeypatch.setattr(engine, "_has_compiled", False)
    monkeypatch.setattr(engine, "has_kernels", lambda: False)
    monkeypatch.setattr(processes, "warm", warm)
    told: list[tuple[int, int]] = []
    engine.compile_kernels(lambda done, total: told.append((done, total)))
    assert [done for done, _ in told] == [1, 2] and told[0][1] > 100
    assert caplog.text == capsys.readouterr().err == ""
    engine.compile_kernels()
    assert "`dibs warm` does it beforehand" in caplog.text and len(caplog.records) == 1
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    engine.compile_kernels()
    assert f"\r{engine.WAITING}: 0 %" in capsys.readouterr().err and len(caplog.records) == 1


def test_an_interrupted_change_has_happened_or_not() -> None:
    """At every point of a change, and of moving over: then the change is made again if it is missing."""
    from interrupts import inject

    warmed = matcher.Matcher()  # what is loaded at first is not what is tried here
    warmed.add_many([(1, "b = 1"), (2, "b = 1 OR c = 3")])
    warmed.replace(1, "b = 2 OR c = 3")
    assert warmed.match({"b": 1}) == [2]
    outcomes = set()
    for at in range(1, 600, 5):
        for is_moving in (False, True):
            m = plain_matcher()
            m.add_many([(1, "b = 1", 2.0), (2, "b = 2")])
            m._stays_plain = not is_moving
            inject(at - 1, lambda m=m: m.replace(1, "b = 2 OR c = 3"))  # type: ignore[misc]
            found = m.match({"b": 2})
            assert found in ([2], [1, 2])
            assert (m.version, m.expression(1)) == ((2, "b = 1") if found == [2] else (3, "b = 2 OR c = 3"))
            m.replace(2, "b = 1")
            assert m.match({"b": 1}) == ([1, 2] if found == [2] else [2])
            assert m.weight(1) == 2.0
            outcomes.add((is_moving, len(found)))
    assert outcomes == {(False, 1), (False, 2), (True, 1), (True, 2)}
