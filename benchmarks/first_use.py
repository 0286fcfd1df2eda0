"""What does a person meet first? README's first example, from the start of the process to the answer.

    python benchmarks/first_use.py           the example with an empty and with a full cache, and `import dibs`
    python benchmarks/first_use.py --warm    also `dibs warm`, with one process and with two: minutes

Each figure is the best of several runs, in turns: seconds on the clock, and of the processor. On a machine that has
other work to do only the latter means anything.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

RUNS = 7
EXAMPLE = """
import dibs
m = dibs.Matcher()
m.add("alice", "model = 'iphone5s' AND color = 'silver' AND price <= 580")
m.add("bob", "brand LIKE 'App%' OR price BETWEEN 10 AND 20")
m.add("carol", "tags = 'refurbished' AND seller.rating >= 4.5")
found = m.match({"model": "iphone5s", "color": "silver", "price": 550, "brand": "Apple"})
assert found == ["alice", "bob"], found
"""
COMPILED = "from dibs import engine; engine.load()" + EXAMPLE  # not in plain Python


class Took(NamedTuple):
    clock: float
    processor: float


def run(arguments: list[str], cache: Path) -> Took:
    """A process with this cache, from its start to its end."""
    environment = os.environ | {"DIBS_CACHE": str(cache)}
    environment.pop("NUMBA_CACHE_DIR", None)
    before, start = os.times(), time.perf_counter()
    done = subprocess.run([sys.executable, *arguments], env=environment, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        log = cache / "warming.log"
        story = log.read_text(encoding="utf-8") if log.exists() else ""
        raise SystemExit(f"{' '.join(arguments)} failed:\n{done.stderr}{story}")
    clock, after = time.perf_counter() - start, os.times()
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    return Took(clock, spent)


def say(what: str, took: Took, limit: str = "") -> None:
    print(f"{what:<58} {took.clock:7.2f} s  {took.processor:7.2f} s  {limit}", flush=True)


def best(runs: list[Took]) -> Took:
    return Took(min(took.clock for took in runs), min(took.processor for took in runs))


KINDS = {  # program, with a full cache, what it must take
    "python alone": ("pass", True, ""),
    "import dibs": ("import dibs", True, "must 0.1 above python, aim 0.05"),
    "README's first example, empty cache": (EXAMPLE, False, "must 2.0, aim 1.0"),
    "README's first example, full cache": (EXAMPLE, True, "aim 0.5"),
    "the same by the compiled matcher, full cache": (COMPILED, True, ""),
}


def first_example(full: Path, repeats: int = RUNS) -> dict[str, Took]:
    """full: a cache with what the example needs."""
    runs: dict[str, list[Took]] = {kind: [] for kind in KINDS}
    for _ in range(repeats):
        for kind, (program, is_full, _) in KINDS.items():
            with tempfile.TemporaryDirectory() as empty:
                runs[kind].append(run(["-c", program], full if is_full else Path(empty)))
    return {kind: best(own) for kind, own in runs.items()}


def say_all(took: dict[str, Took]) -> None:
    for kind, (_, _, limit) in KINDS.items():
        say(kind, took[kind], limit)


def warming() -> float:
    """Two processes / one, by the clock."""
    took = {}
    for processes in (1, 2):
        with tempfile.TemporaryDirectory() as empty:
            took[processes] = run(["-m", "dibs.cli", "warm", "--processes", str(processes)], Path(empty))
        say(f"dibs warm --processes {processes}", took[processes])
    print(f"two processes / one: {took[2].clock / took[1].clock:.2f} (must 0.65, aim 0.55)")
    return took[2].clock / took[1].clock


def full_cache(place: Path) -> Path:
    """A cache with what the example needs."""
    run(["-c", COMPILED], place)
    return place


def main() -> None:
    print(f"{'best of ' + str(RUNS):<58} {'clock':>9}  {'processor':>9}")
    with tempfile.TemporaryDirectory() as cache:
        say_all(first_example(full_cache(Path(cache))))
    if "--warm" in sys.argv[1:]:
        warming()


if __name__ == "__main__":
    main()
