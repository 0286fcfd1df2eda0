"""Does any kernel read or write where it may not? Random and hostile events, bounds checked, guards round all arrays.

    python tests/memory_safety.py                          an hour: bounds checks and guards, all structures
    python tests/memory_safety.py --seconds 60 --indexes auto,scan
    python tests/memory_safety.py --plain                  the kernels that users have: guards alone

Every kernel is compiled with Numba's bounds checks (in a process of its own, with a cache of its own kernels), arrays
have guard bytes before and behind them (guards.py), and thresholds are in turns as they are, at their smallest and at
random. What is run: a little of everything (dibs.warming), random cases by every entry against the reference
(exactness.py), histories (test_history_lives.py), and hostile events (hostile_events.py), in other forms too, with
hostile documents and subscriptions (hostile_forms.py), whose answers are known.

The first violation, or wrong answer, is printed with its seed, and the exit code is 1. test_memory_safety.py runs a
short form.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from itertools import cycle
from pathlib import Path
from random import Random
from types import ModuleType

CHECKED = "NUMBA_BOUNDSCHECK"
HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE / "history")]
SAY_EVERY = 60  # seconds
ENGINE = ("auto", "scan")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3600, help="after which no new case is begun (default: 3600)")
    parser.add_argument("--indexes", default="", help="names, with commas between them (default: all)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--plain", action="store_true", help="kernels as users have them: guards alone")
    options = parser.parse_args()
    if not options.plain and os.environ.get(CHECKED) != "1":  # Numba reads it once, when it is imported
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | {CHECKED: "1"})
    return run(options.seconds, [name for name in options.indexes.split(",") if name], options.seed)


def run(seconds: float, indexes: Sequence[str], seed: int) -> int:
    from dibs.index import INDEXES
    from guards import GuardBroken, guarded

    indexes = list(indexes or INDEXES)
    begin = said = time.monotonic()
    done: dict[str, int] = {}
    with guarded() as guards:
        for what, work in cases(indexes, seed):
            try:
                work()
            except (Exception, GuardBroken):
                print(f"VIOLATION: {what}\n{traceback.format_exc()}", flush=True)
                return 1
            kind = what.split(",")[0]
            done[kind] = done.get(kind, 0) + 1
            now = time.monotonic()
            if now - said > SAY_EVERY:
                said = now
                print(f"{now - begin:.0f} s: {done}", flush=True)
            if now - begin > seconds and len(done) == len(KINDS) + 1:
                break
    called, all_kernels, reached, all_phases = reach(set(guards.called), indexes)
    checks = "bounds checks and guards" if os.environ.get(CHECKED) == "1" else "guards"
    print(
        f"{checks}, {time.monotonic() - begin:.0f} s, {len(indexes)} structures, {done}: no violation in "
        f"{sum(guards.called.values()):,} calls; {called} of {all_kernels} kernels called, {reached} of {all_phases} "
        "phases within them"
    )
    return 0


# --- cases ---------------------------------------------------------------------------------------------------------

Work = Callable[[], None]


def cases(indexes: Sequence[str], seed: int) -> Iterator[tuple[str, Work]]:
    """First a little of everything; then, for ever, one kind of case after the other."""
    from dibs.warming import workload

    structures = [name for name in indexes if name != "auto"]
    for part in [*(workload.PARTS if "auto" in indexes else []), *workload.LAST, *structures]:
        yield f"everything, {part}", lambda part=part: workload.run(part)
    for number, kind in enumerate(cycle(KINDS)):
        index = indexes[number // len(KINDS) % len(indexes)]
        own = seed * 1_000_003 + number
        thresholds = ("default", "smallest", "random")[number // len(KINDS) // len(indexes) % 3]
        yield (
            f"{kind}, index {index}, thresholds {thresholds}, seed {own}",
            lambda kind=kind, index=index, thresholds=thresholds, own=own: _case(kind, index, thresholds, own),
        )


def _case(kind: str, index: str, thresholds: str, seed: int) -> None:
    from dibs.tuning import using
    from settings import THRESHOLDS

    with using(THRESHOLDS[thresholds](seed)):
        KINDS[kind](index, seed)


def _random(index: str, seed: int) -> None:
    import exactness

    random = Random(seed)
    round = exactness.round_by_reference(seed, random.choice([10, 40, 120]))
    _, wrong = exactness.ask(round, index, random.choice([m for m in exactness.MAKINGS if m != "cold"]))
    if wrong is not None:
        raise AssertionError(f"{wrong.entry}: {wrong.what}")


def _history(index: str, seed: int) -> None:
    from test_history_lives import RETAIN, live

    random = Random(seed)
    retain = RETAIN[random.choice(list(RETAIN))]
    if random.random() < 0.7:
        live(random, retain, 25)
    else:
        with tempfile.TemporaryDirectory() as folder:
            live(random, retain, 15, Path(folder) / "m")


def _hostile(index: str, seed: int) -> None:
    from dibs.matcher import Matcher
    from hostile_events import hostile_case, texts_of

    random = Random(seed)
    case = hostile_case(random, 513 if index not in ENGINE and random.random() < 0.8 else 1 << 20)
    with Matcher(index=index, threads=random.choice([1, 2])) as matcher:
        for group in case.groups:
            matcher.add_many([(rule.id, rule.text) for rule in group])
            if random.random() < 0.7:
                matcher.match_batch([{}])  # which makes a segment of what waits
        right = [case.expected(event) for event in case.events]
        for event, ids in zip(case.events, right):
            for text in (event, event, *texts_of(random, event)):
                found = matcher.match(text)
                assert found == ids, f"match: {sorted(set(found) ^ set(ids))[:10]}"
        assert list(matcher.match_batch(case.events)) == right
        lines = b"\n".join(next(texts_of(random, event)) for event in case.events)
        assert list(matcher.match_batch(lines)) == right


def _form(name: str) -> Callable[[str, int], None]:
    def run(index: str, seed: int) -> None:
        import hostile_forms

        getattr(hostile_forms, name)(index, seed)

    return run


KINDS: dict[str, Callable[[str, int], None]] = {
    "random": _random,
    "history": _history,
    "hostile": _hostile,
    **{f"hostile {name}": _form(name) for name in ("forms", "columns", "documents", "texts")},
}


# --- what was reached ----------------------------------------------------------------------------------------------


def reach(called: set[str], indexes: Sequence[str]) -> tuple[int, int, int, int]:
    """(kernels called from Python, of how many; phases within these, of how many)."""
    from numba.core.dispatcher import Dispatcher

    from dibs.jit.kernel import Phase
    from dibs.jit.ready import own_modules
    from dibs.jit.stamps import kernel_modules

    everything = set(indexes) - set(ENGINE)
    found = {
        value: f"{name}.{value.py_func.__name__}"
        for name in (kernel_modules() if everything else own_modules())
        for value in vars(importlib.import_module(name)).values()
        if isinstance(value, Dispatcher) and value.py_func.__module__ == name
    }
    entered = [kernel for kernel, name in found.items() if name in called]
    reached, waiting = set(), list(entered)
    while waiting:
        kernel = waiting.pop()
        if kernel not in reached:
            reached.add(kernel)
            waiting += _named_by(kernel.py_func)
    kernels = {kernel for kernel in found if not isinstance(kernel, Phase)}
    phases = set(found) - kernels
    return len(kernels & (set(entered) | reached)), len(kernels), len(phases & reached), len(phases)


def _named_by(function: Callable[..., object]) -> Iterator[object]:
    """Compiled functions that a function names, itself or by a module."""
    from numba.core.dispatcher import Dispatcher

    names, known = function.__code__.co_names, function.__globals__
    for name in names:
        value = known.get(name)
        if isinstance(value, Dispatcher):
            yield value
        elif isinstance(value, ModuleType) and value.__name__.startswith("dibs."):
            yield from (part for n in names if isinstance(part := getattr(value, n, None), Dispatcher))


if __name__ == "__main__":
    sys.exit(main())
