"""Interrupts of first loads: fresh processes that are interrupted while kernels are imported, loaded and compiled.

    python tests/first_loads.py --signals 10000 --processes 200 --lines 2000

Each process must answer right afterwards, and end by itself with exit code 0. What it does, and how it is interrupted:

    issue       400 adds and matches, then 1,500 times both with a signal within 2 ms
    signals     a little of everything, each step again and again until no signal has cut it off
    lines       the same, but the exception is raised at sampled lines of the main thread
    threads     signals, with another thread that loads the same kernels
    forks       signals, and after some of them a fork, whose child goes on by itself
    ends        a first load, interrupted, and then the end of the interpreter
    compiles    the same with an empty cache: what is compiled is given up
    script      a match, some time, and the end
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

TESTS = Path(__file__).parent
HANGS = 240.0  # seconds; a process that takes longer is said to hang
RIGHT = "right"
ALL_RIGHT: list[list[str]] = [["a"], ["a", "b"]]


class Interrupted(KeyboardInterrupt):
    """What the signal handler raises."""


def is_interrupt(error: BaseException | None) -> bool:
    """It, or what it was turned into on its way."""
    while error is not None and not isinstance(error, Interrupted):
        error = error.__cause__ or error.__context__
    return error is not None


# ---- two ways to interrupt ----


class Signals:
    """A timer's signal at a random moment: mostly soon, sometimes late."""

    def __init__(self, draw: random.Random, most: int, longest: float = 0.05, evenly: bool = False):
        self._draw, self._most, self._longest, self._evenly = draw, most, longest, evenly
        self._armed = False
        self.count = 0
        signal.signal(signal.SIGALRM, self._handle)

    def _handle(self, *_: Any) -> None:
        if self._armed:
            self._armed = False
            self.count += 1
            raise Interrupted

    def call(self, work: Callable[[], Any]) -> bool:
        """Whether it came to its end."""
        if self.count >= self._most:
            work()
            return True
        try:
            self._armed = True
            early = math.exp(self._draw.uniform(math.log(1e-5), math.log(self._longest)))
            moment = self._draw.uniform(1e-5, self._longest) if self._evenly else early
            signal.setitimer(signal.ITIMER_REAL, moment)
            work()
            self._armed = False
            return True
        except BaseException as e:
            if not is_interrupt(e):
                raise
            return False
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)


class Lines:
    """A random line of the main thread: mostly one of the first, sometimes one of the last."""

    def __init__(self, draw: random.Random, most: int, longest: int = 30_000):
        self._draw, self._most, self._longest = draw, most, longest
        self.count = 0

    def call(self, work: Callable[[], Any]) -> bool:
        if self.count >= self._most:
            work()
            return True
        left = int(math.exp(self._draw.uniform(0, math.log(self._longest))))

        def watch(frame: Any, event: str, _: Any) -> Any:
            nonlocal left
            if event == "line":
                left -= 1
                if left == 0:
                    self.count += 1
                    raise Interrupted
            return watch

        sys.settrace(watch)
        try:
            work()
            return True
        except BaseException as e:
            if not is_interrupt(e):
                raise
            return False
        finally:
            sys.settrace(None)


# ---- what the processes do ----


class Uses:
    """First uses of everything, each of which may be called again after it was cut off."""

    def __init__(self, folder: str):
        import dibs

        assert dibs.Matcher  # what an interrupt does to an import statement is Python's
        self.dibs, self._folder = dibs, folder
        self._small: Any = None
        self._large: Any = None
        self._durable: Any = None

    def small(self) -> None:
        if self._small is None:
            self._small = self.dibs.Matcher()
        m = self._small
        for id, text in (("a", "x = 1"), ("b", "x > 0 AND y LIKE '%z%'")):
            if id not in m:
                m.add(id, text)
        assert [m.match({"x": 1}), m.match({"x": 1, "y": "azb"})] == ALL_RIGHT

    def batch_of_small(self) -> None:
        self.small()
        assert list(self._small.match_batch([{"x": 1}, {"x": 1, "y": "z"}])) == ALL_RIGHT

    def large(self) -> None:
        if self._large is None:
            self._large = self.dibs.Matcher(threads=2)
        m = self._large
        if not len(m):
            m.add_many([(i, f"x = {i % 7} AND y < {i}") for i in range(2_000)])
        assert m.match({"x": 3, "y": 1_500}) == [i for i in range(1_501, 2_000) if i % 7 == 3]
        assert m.match(b'{"x": 2, "y": 1990}') == [1_991 + (2 - 1_991) % 7]

    def batch_of_large(self) -> None:
        self.large()
        found = self._large.match_batch([{"x": k, "y": 0} for k in range(50)])
        counts = [sum(i % 7 == k for i in range(1, 2_000)) for k in range(50)]
        assert found.pairs().num_rows == sum(counts)
        assert [len(ids) for ids in found] == counts
        assert self._large.count(b'{"x": 6, "y": 1998}\n{"x": 0}\n').tolist() == [0, 0]

    def other_index(self) -> None:
        with self.dibs.Matcher(index="counting") as m:
            m.add_many([("a", "x = 1"), ("b", "x > 0 AND y = 'z'")])
            assert [m.match({"x": 1}), m.match({"x": 1, "y": "z"})] == ALL_RIGHT

    def joins(self) -> None:
        with self.dibs.Matcher() as m:
            m.add("a", "EXISTS d (d.k = k AND d.price > price)")
            m.history.load([{"k": i % 5, "price": i} for i in range(100)])
            assert m.match({"k": 1, "price": 95}) == ["a"] and m.match({"k": 1, "price": 97}) == []

    def durable(self) -> None:
        if self._durable is None:
            gc.collect()  # an open that was cut off lets go of the folder when it is collected
            self._durable = self.dibs.Matcher.open(os.path.join(self._folder, "durable"))
        m = self._durable
        for id, text in (("a", "x = 1"), ("b", "x > 0 AND y = 'z'")):
            if id not in m:
                m.add(id, text)
        assert [m.match({"x": 1}), m.match({"x": 1, "y": "z"})] == ALL_RIGHT
        m.compact()

    def all(self) -> list[Callable[[], None]]:
        return [
            self.small,
            self.batch_of_small,
            self.large,
            self.batch_of_large,
            self.other_index,
            self.joins,
            self.durable,
        ]


def use(
    draw: random.Random, way: Signals | Lines, folder: str, between: Callable[[Uses], None] = lambda uses: None
) -> None:
    """All uses, in any order, interrupted until the way has had enough; and once more without."""
    uses = Uses(folder)
    steps = uses.all()
    draw.shuffle(steps)
    for step in steps:
        while not way.call(step):
            between(uses)
    for _ in range(200):  # what is loaded: until there were interrupts enough
        if not way.call(draw.choice(steps)):
            between(uses)
    for step in steps:
        step()


def issue(draw: random.Random, most: int, folder: str) -> int:
    import dibs

    m = dibs.Matcher()
    for i in range(400):
        m.add(i, f"x = {i % 7} AND y < {i}")
        m.match({"x": i % 7, "y": 3})
    way = Signals(draw, 1_500, 2e-3, evenly=True)
    for i in range(400, 1_900):

        def add_and_match(i: int = i) -> None:
            m.add(i, f"x = {i % 7} AND y < {i}")
            m.match({"x": i % 7, "y": 3})

        way.call(add_and_match)
    there = [i for i in range(1_900) if i in m]
    assert len(there) == len(m) and there[:400] == list(range(400))
    for x in range(7):
        assert m.match({"x": x, "y": 3}) == [i for i in there if i % 7 == x and i > 3]
    return way.count


def signals(draw: random.Random, most: int, folder: str) -> int:
    way = Signals(draw, most)
    use(draw, way, folder)
    return way.count


def lines(draw: random.Random, most: int, folder: str) -> int:
    way = Lines(draw, most)
    use(draw, way, folder)
    return way.count


def threads(draw: random.Random, most: int, folder: str) -> int:
    problems: list[BaseException] = []
    other = Uses(os.path.join(folder, "other"))

    def work() -> None:
        try:
            for step in other.all():
                step()
        except BaseException as e:
            problems.append(e)

    thread = threading.Thread(target=work)
    thread.start()
    count = signals(draw, most, folder)
    thread.join()
    if problems:
        raise problems[0]
    return count


def forks(draw: random.Random, most: int, folder: str) -> int:
    way = Signals(draw, most)
    left = [2]  # each costs as much as a process

    def fork(uses: Uses) -> None:
        if not left[0] or draw.random() > 0.2:
            return
        left[0] -= 1
        child = os.fork()
        if child == 0:
            code = 1
            try:
                for step in (uses.small, uses.large):
                    step()
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

    use(draw, way, folder, fork)
    return way.count


def ends(draw: random.Random, most: int, folder: str) -> int:
    way = Signals(draw, 1, 2.0, evenly=True)
    uses = Uses(folder)
    way.call(draw.choice([uses.large, uses.batch_of_large, uses.other_index, uses.joins]))
    return way.count


def compiles(draw: random.Random, most: int, folder: str) -> int:
    """Whoever started it has an empty cache set, and no warming."""
    way = Signals(draw, 3, 6.0, evenly=True)
    uses = Uses(folder)
    for _ in range(3):
        way.call(uses.large)
    return way.count


def script(draw: random.Random, most: int, folder: str) -> int:
    import dibs

    m = dibs.Matcher()
    m.add("a", "x = 1")
    assert m.match({"x": 1}) == ["a"]
    time.sleep(draw.uniform(0.25, 1.25))
    return 0


KINDS = {each.__name__: each for each in (issue, signals, lines, threads, forks, ends, compiles, script)}
SILENT = ("ends", "compiles", "script")  # nothing but the interrupt itself happens: nothing is to be said


# ---- running them ----


class Ran(NamedTuple):
    interrupts: int
    seconds: float


def run(kind: str, seed: object, most: int = 50) -> Ran:
    """One process; fails unless it ends by itself, with exit code 0 and right answers."""
    with tempfile.TemporaryDirectory() as folder:
        own = dict(os.environ)
        if kind == "compiles":
            own |= {"DIBS_CACHE": os.path.join(folder, "cache"), "DIBS_WARM": "never"}
            own.pop("NUMBA_CACHE_DIR", None)
        command = [sys.executable, "-X", "faulthandler", __file__, "--child", kind, "--seed", str(seed)]
        begin = time.monotonic()
        try:
            done = subprocess.run(
                [*command, "--signals", str(most), "--folder", folder], env=own, capture_output=True, timeout=HANGS
            )
        except subprocess.TimeoutExpired as e:
            raise AssertionError(f"{kind}, seed {seed}: it hangs\n{(e.stderr or b'').decode()[-3_000:]}") from None
        seconds = time.monotonic() - begin
    said = done.stderr.decode()
    assert done.returncode == 0, f"{kind}, seed {seed}: exit code {done.returncode}\n{said[-3_000:]}"
    assert kind not in SILENT or not said, f"{kind}, seed {seed}: it said\n{said[-3_000:]}"
    told = json.loads(done.stdout)
    assert told["answers"] == RIGHT
    return Ran(told["interrupts"], seconds)


def child(kind: str, seed: str, most: int, folder: str) -> None:
    count = KINDS[kind](random.Random(f"{kind} {seed}"), most, folder)
    print(json.dumps({"interrupts": count, "answers": RIGHT}), flush=True)


def search(options: argparse.Namespace) -> int:
    """All kinds, until there were enough interrupts and processes. Signals count as signals, lines as lines."""
    counts: Counter[str] = Counter()
    processes: Counter[str] = Counter()
    longest: dict[str, float] = {}
    cycle = [
        *["issue", "lines", "ends", "script", "signals", "ends", "script", "forks", "ends", "script", "lines", "ends"],
        *["signals", "script", "ends", "threads", "script", "ends", "signals", "script", "ends", "script", "compiles"],
        *["ends", "signals"],
    ]
    print(f"seed {options.seed}", flush=True)
    while (
        counts.total() - counts["lines"] < options.signals
        or counts["lines"] < options.lines
        or processes.total() < options.processes
    ):
        kind = cycle[processes.total() % len(cycle)]
        ran = run(kind, f"{options.seed} {processes.total()}", options.each)
        counts[kind] += ran.interrupts
        processes[kind] += 1
        longest[kind] = max(longest.get(kind, 0.0), ran.seconds)
        if processes.total() % 20 == 0:
            print(f"{processes.total()} processes, {counts.total():,} interrupts", flush=True)
    for kind, count in sorted(processes.items()):
        print(f"  {kind}: {count} processes, {counts[kind]:,} interrupts, the longest {longest[kind]:.1f} s")
    print(
        f"{counts.total() - counts['lines']:,} signals and {counts['lines']:,} lines in {processes.total()} processes: "
        "all answered right and ended by themselves"
    )
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--signals", type=int, default=10_000, help="at least so many in all")
    parser.add_argument("--lines", type=int, default=2_000)
    parser.add_argument("--processes", type=int, default=200)
    parser.add_argument("--each", type=int, default=50, help="interrupts of a process")
    parser.add_argument("--seed", default=str(random.randrange(10**6)))
    parser.add_argument("--child", choices=KINDS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child, options.seed, options.signals, options.folder)
        return 0
    return search(options)


if __name__ == "__main__":
    sys.exit(main())
