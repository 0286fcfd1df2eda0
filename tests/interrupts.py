"""Interrupts anywhere: a matcher that is interrupted at random moments, against a model of what must be there.

    python tests/interrupts.py --interrupts 20000

An operation that was interrupted has happened or not, as a whole; whatever came before it is there; nothing hangs and
no lock stays held; and a durable folder opened again says the same. Two ways to interrupt:

    Signals     a timer's signal, whose handler raises, at a random moment of the operation
    Injected    the exception is raised at the n-th point at which the interpreter would run a signal handler: where a
                function begins, and where one that is not written in Python has returned
"""

from __future__ import annotations

import argparse
import gc
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dibs
from dibs import engine
from dibs.tuning import at_random, smallest, using

engine.load()  # so that it is here from the beginning

Model = dict[Any, str]
EVENT = {"x": 1, "y": 2}
HANGS = 60.0  # seconds: more is called hanging


class Interrupted(KeyboardInterrupt):
    """What the signal handler raises."""


def _is_interrupt(error: BaseException) -> bool:
    """Raises it again if it is none. Numba's calls may turn one into a SystemError of which it is the cause."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, Interrupted):
            return True
        cause = cause.__cause__ or cause.__context__
    raise error


class Undisturbed:
    """No interrupts: what is compiled or imported at first is not what is tried here."""

    def call(self, name: str, work: Callable[[], Any]) -> bool:
        work()
        return False


class Signals:
    """Interrupts by a real signal after a random time, mostly within what the operation takes."""

    def __init__(self, draw: random.Random):
        self._draw = draw
        self._took: dict[str, float] = {}
        self._armed = False
        signal.signal(signal.SIGALRM, self._handle)

    def _handle(self, *_: Any) -> None:
        if self._armed:
            self._armed = False
            raise Interrupted

    def call(self, name: str, work: Callable[[], Any]) -> bool:
        """Whether it was interrupted."""
        begin = time.perf_counter()
        try:
            self._armed = True
            signal.setitimer(signal.ITIMER_REAL, max(self._draw.uniform(0, 1.2) * self._took.get(name, 1e-3), 1e-6))
            work()
            self._armed = False
            took = time.perf_counter() - begin
            self._took[name] = 0.9 * self._took.get(name, took) + 0.1 * took
            return False
        except BaseException as e:
            return _is_interrupt(e)
        finally:
            self._armed = False
            signal.setitimer(signal.ITIMER_REAL, 0)


def inject(at: int, work: Callable[[], Any]) -> int:
    """Interrupts the work at that point, and returns how many it came to: more than `at` if it was interrupted.

    The collector rests meanwhile: it may run a finalizer while Numba sets up a call for the profiler, an interrupt in
    there takes the profiler away, and Numba's call of what was there ends the process."""
    seen = 0

    def watch(frame: Any, event: str, _: Any) -> None:
        nonlocal seen
        if event in ("call", "c_return"):
            seen += 1
            if seen == at + 1:
                raise Interrupted

    gc.disable()
    try:
        sys.setprofile(watch)
        work()
    except BaseException as e:
        _is_interrupt(e)
    finally:
        sys.setprofile(None)
        gc.enable()
    return seen


class Injected:
    """Interrupts at a random point of the operation."""

    def __init__(self, draw: random.Random):
        self._draw = draw
        self._points: dict[str, int] = {}

    def call(self, name: str, work: Callable[[], Any]) -> bool:
        at = self._draw.randrange(int(1.1 * self._points.get(name, 300)) + 1)
        seen = inject(at, work)
        if seen <= at:
            self._points[name] = seen
        return seen > at


class Life:
    """One matcher, its model, and operations on both."""

    def __init__(self, draw: random.Random, folder: Path | None, index: str = "auto"):
        self._draw, self._folder, self._index = draw, folder, index
        self._way: Undisturbed | Signals | Injected = Undisturbed()
        self.model: Model = {}
        self._next = 0
        self.interrupts: Counter[str] = Counter()
        self.matcher = self._open()
        self._operations = [
            self.add,
            self.add_few,
            self.add_many,
            self.replace,
            self.remove,
            self.remove_many,
            self.batch,
            self.match,
            self.match_batch,
            self.compact,
            self.save,
            self.reopen,
        ]

    def _open(self) -> dibs.Matcher:
        if self._folder is None:
            return dibs.Matcher(index=self._index, threads=2)
        return dibs.Matcher.open(self._folder / "matcher", index=self._index, threads=2)

    def go_on(self, way: Undisturbed | Signals | Injected, operations: int, interrupts: int) -> None:
        """At most so many of both."""
        self._way = way
        for _ in range(operations):
            self._draw.choice(self._operations)()
            if self.interrupts.total() >= interrupts:
                break

    # ---- operations ----

    def add(self) -> None:
        id = self._new_id()
        self._change("add", lambda: self.matcher.add(id, self._text(id)), {id: self._text(id)})

    def add_few(self) -> None:
        self._add_many("add_many of few", self._draw.randrange(1, 6))

    def add_many(self) -> None:
        self._add_many("add_many", self._draw.randrange(20, 60))

    def _add_many(self, name: str, count: int) -> None:
        new = {id: self._text(id) for id in (self._new_id() for _ in range(count))}
        self._change(name, lambda: self.matcher.add_many(list(new.items())), new)

    def replace(self) -> None:
        if self.model:
            id = self._some()
            text = f"x >= {-self._draw.randrange(1000)}"
            self._change("replace", lambda: self.matcher.replace(id, text), {id: text})

    def remove(self) -> None:
        if self.model:
            id = self._some()
            self._change("remove", lambda: self.matcher.remove(id), {id: None})

    def remove_many(self) -> None:
        count = min(len(self.model), self._draw.randrange(1, 40))
        gone = self._draw.sample(sorted(self.model, key=str), count)
        self._change("remove_many", lambda: self.matcher.remove_many(gone), dict.fromkeys(gone))

    def batch(self) -> None:
        new = {id: self._text(id) for id in (self._new_id() for _ in range(3))}
        gone = self._some() if self.model else None

        def work() -> None:
            with self.matcher.batch():
                for id, text in new.items():
                    self.matcher.add(id, text)
                if gone is not None:
                    self.matcher.remove(gone)

        self._change("batch", work, {**new, **({} if gone is None else {gone: None})})

    def match(self) -> None:
        self._change("match", lambda: self.matcher.match(EVENT), {})

    def match_batch(self) -> None:
        self._change("match_batch", lambda: self.matcher.match_batch([EVENT] * 5), {})

    def compact(self) -> None:
        self._change("compact", lambda: self.matcher.compact(), {})

    def save(self) -> None:
        with tempfile.TemporaryDirectory() as place:
            self._change("save", lambda: self.matcher.save(Path(place) / "saved"), {})

    def reopen(self) -> None:
        """Closes it, interrupted perhaps; what a process that opens the folder next finds is what must be there."""
        if self._folder is None:
            return
        self._interrupted("close", self.matcher.close)
        self._within("close after an interrupt", self.matcher.close)
        self.matcher = self._open()
        self._check("close")

    # ---- judging ----

    def _change(self, name: str, work: Callable[[], Any], changes: dict[Any, str | None]) -> None:
        after = {id: text for id, text in {**self.model, **changes}.items() if text is not None}
        if not self._interrupted(name, work):
            self.model = after
        else:
            there = self._ids()
            if there == sorted(after, key=_order):
                # Replaced ones have the same ids before and after.
                replaced = [id for id in changes if id in self.model and id in after]
                if all(self.matcher.get(id).expression == after[id] for id in replaced):
                    self.model = after
        self._check(name)

    def _interrupted(self, name: str, work: Callable[[], Any]) -> bool:
        begin = time.monotonic()
        result = self._way.call(name, work)
        assert time.monotonic() - begin < HANGS, f"{name} hung"
        self.interrupts[name] += result
        return result

    def _ids(self) -> list[Any]:
        return self.matcher.match(EVENT)

    def _check(self, name: str) -> None:
        expected = sorted(self.model, key=_order)
        found = self._ids()
        assert found == expected, (
            f"after {name}: lost {[i for i in expected if i not in found]}, "
            f"false {[i for i in found if i not in self.model]}"
        )
        assert len(self.matcher) == len(expected), f"after {name}: len is {len(self.matcher)}, not {len(expected)}"
        if expected:
            id = self._draw.choice(expected)
            assert self.matcher.get(id).expression == self.model[id], f"after {name}"
        if self._draw.random() < 0.1:
            self._check_from_outside(name)

    def _check_from_outside(self, name: str) -> None:
        """Another thread can change and match: no lock is held. A reader of the folder sees the same."""

        def work() -> None:
            self.matcher.add("other", "x = 1")
            assert "other" in self.matcher.match(EVENT)
            self.matcher.remove("other")

        self._within(f"another thread after {name}", work)
        if self._folder is not None and self._draw.random() < 0.2:
            with dibs.Matcher.open(self._folder / "matcher", read_only=True, threads=1) as reader:
                assert reader.match(EVENT) == sorted(self.model, key=_order), f"a reader after {name}"

    def _within(self, name: str, work: Callable[[], None]) -> None:
        problems: list[BaseException] = []

        def run() -> None:
            try:
                work()
            except BaseException as e:
                problems.append(e)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join(HANGS)
        assert not thread.is_alive(), f"{name} hung"
        if problems:
            raise problems[0]

    def _new_id(self) -> Any:
        self._next += 1
        return self._next if self._next % 2 else f"id{self._next}"

    def _some(self) -> Any:
        return self._draw.choice(sorted(self.model, key=str))

    @staticmethod
    def _text(id: Any) -> str:
        return f"x = 1 AND y <> '{id}' OR x = 1" if str(id).endswith("6") else f"x = 1 AND y < {100 + len(str(id))}"


def _order(id: Any) -> tuple[bool, Any]:
    return isinstance(id, str), id


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--interrupts", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    options = parser.parse_args()
    total: Counter[str] = Counter()
    lives = 0
    print(f"seed {options.seed}", flush=True)
    while total.total() < options.interrupts:
        draw = random.Random(f"{options.seed} {lives}")
        durable, by_signal = lives % 2 == 1, lives % 4 < 3
        place = Path(tempfile.mkdtemp())
        index = draw.choice(["auto", "auto", "counting", "pstree", "opindex", "betree"])
        with using(draw.choice([{}, smallest(), at_random(lives)])):
            life = Life(draw, place if durable else None, index)
            life.go_on(Undisturbed(), 200, 1)
            wanted = min(500, options.interrupts - total.total())
            life.go_on((Signals if by_signal else Injected)(draw), 100 * wanted, wanted)
            life.matcher.close()
        kind = f"{'durable' if durable else 'memory'}, {'signals' if by_signal else 'injected'}"
        total.update({f"{kind}: {name}": count for name, count in life.interrupts.items()})
        shutil.rmtree(place)
        lives += 1
        print(f"{total.total():,} interrupts in {lives} lives ({kind}, {index})", flush=True)
    for name, count in sorted(total.items()):
        print(f"  {name}: {count:,}")
    print(f"{total.total():,} interrupts: nothing lost, nothing half done, nothing hung")
    return 0


if __name__ == "__main__":
    sys.exit(main())
