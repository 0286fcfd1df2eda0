"""What one hostile event costs, by its size: seconds, megabytes, and the exponent with which they grow.

    python tests/hostile_cost.py                       every event against every kind of subscriptions, `auto`
    python tests/hostile_cost.py --index scan betree   the same with other structures
    python tests/hostile_cost.py --only values --sizes 10000 100000 1000000
    python tests/hostile_cost.py --http                one process of `dibs serve`, and what it spends

Each case is one event, made in three sizes, against subscriptions that stay the same. An event may cost its size times
a logarithm, and its matches; what grows faster is marked, and the exit code is 1. An event that is refused (EventError)
costs what the refusal takes. test_hostile_cost.py runs a short form.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pyarrow as pa

import dibs
from plain_matchers import plain_matcher

sys.path.insert(0, str(Path(__file__).parent / "service"))

from serving import JSON_LINES, Processes

Subscriptions = list[tuple[int, str]]
SIZES = (10_000, 100_000, 1_000_000)
STEEP = 1.35  # of an exponent: n log n is 1.1 between these sizes, and caches are left behind on the way
NOTICED = 0.02  # seconds; below, other things than the event are measured
ENOUGH = 20.0  # seconds that a size may be expected to take; larger ones are left out

# ---- events: about so many bytes of JSON ----


def many_values(size: int) -> dict[str, Any]:
    """Of one attribute, in no order."""
    n = size // 7
    return {"a": [(i * 7919) % n for i in range(n)], "b": 1}


def many_values_of_several(size: int) -> dict[str, Any]:
    n = size // 28
    return {name: [(i * 7919) % n for i in range(n)] for name in "abcd"}


def many_texts(size: int) -> dict[str, Any]:
    n = size // 10
    return {"s": [f"w{(i * 7919) % n:05}" for i in range(n)], "t": [f"w{(i * 7919) % 100:05}" for i in range(n // 10)]}


def many_attributes(size: int) -> dict[str, Any]:
    return {f"n{i:05}": i % 10 for i in range(size // 11)} | {"a": 5, "s": "w00007"}


def many_words(size: int) -> dict[str, Any]:
    """Many patterns in one string."""
    return {"t": " ".join(f"w{i:05}" for i in range(size // 7)), "a": 1}


def words_backwards(size: int) -> dict[str, Any]:
    """Texts in the order in which patterns do not ask for them."""
    return {"t": " ".join(f"w{i:05}" for i in range(size // 7, 0, -1)), "a": 1}


def one_letter(size: int) -> dict[str, Any]:
    return {"t": "a" * size, "s": "a" * 10}


def almost_there(size: int) -> dict[str, Any]:
    return {"t": ("a" * 999 + "b") * (size // 1000), "s": "a"}


def deep_paths(size: int) -> dict[str, Any]:
    """As deep as events may be, again and again."""
    deep: Any = {"a": 1}
    for _ in range(90):
        deep = {"p": deep}
    return {"p": [deep] * (size // 560), "a": 3}


def arrays_of_arrays(size: int) -> dict[str, Any]:
    inner: Any = list(range(20))
    for _ in range(90):
        inner = [inner]
    return {"a": [inner] * (size // 270), "b": [[[]]] * (size // 100)}


def arrays_of_objects(size: int) -> dict[str, Any]:
    n = size // 45
    return {"o": [{"a": (i * 7919) % n, "s": f"w{i:05}", "o": [{"a": i}]} for i in range(n)]}


def long_numbers(size: int) -> dict[str, Any]:
    return {"a": [int("7" * 4000)] * (size // 8100), "b": [10**300 + i for i in range(size // 700)]}


def duplicates(size: int) -> dict[str, Any]:
    return {"a": [7] * (size // 6), "s": ["w00007"] * (size // 20), "t": ["w00007 w00008"] * (size // 40)}


def escapes(size: int) -> dict[str, Any]:
    return {"t": 'é\u0001"' * (size // 14), "s": ["\u0002é"] * (size // 40)}


def ranges(size: int) -> dict[str, Any]:
    """No JSON, but what a process can be handed: overlapping ones, each a few times as wide as the step."""
    n = size // 20
    return {"a": [dibs.Range((i * 7919) % n, (i * 7919) % n + 50) for i in range(n)]}


EVENTS: dict[str, Callable[[int], dict[str, Any]]] = {
    f.__name__: f
    for f in (
        many_values,
        many_values_of_several,
        many_texts,
        many_attributes,
        many_words,
        words_backwards,
        one_letter,
        almost_there,
        deep_paths,
        arrays_of_arrays,
        arrays_of_objects,
        long_numbers,
        duplicates,
        escapes,
        ranges,
    )
}

# ---- subscriptions ----


def comparisons(n: int) -> Iterable[str]:
    """Where candidates are found by one predicate and fail by another, the tests of each are what counts."""
    for i in range(n // 10):
        yield f"a = {i * 10}"
        yield f"a = {i * 10} AND b = {i}"
        yield f"a IN ({i}, {i + 20}, {i * 3 + 1000000}) AND a <> {i} AND c = 1"
        yield f"a BETWEEN {i * 7} AND {i * 7 + 40} AND b > {i}"
        yield f"a >= {i * 9} AND a < {i * 9 + 3} AND o.a = {i}"
        yield f"a <> {i} AND a NOT IN ({i}, {i + 1}) AND d = {i}"
        yield f"n{i:05} = 3 AND n{i + 1:05} > 2"
        yield f"s = 'w{i:05}' AND s <> 'w00001' OR a = {i} AND o.s = 'w{i:05}'"
        yield f"a = {i} OR b = {i} OR o.a BETWEEN {i} AND {i + 4}"
        yield f"o.o.a > {i} AND o.s IS NULL OR a NOT BETWEEN 5 AND {i + 1000000} AND b = 9"


def lists(n: int) -> Iterable[str]:
    """Predicates of many spans."""
    for i in range(n // 60):
        yield f"a IN ({', '.join(str(i + 97 * k) for k in range(30))}) AND b = {i}"
        yield f"a NOT IN ({', '.join(str(i + 97 * k) for k in range(30))}) AND c = {i}"


def patterns(n: int) -> Iterable[str]:
    for i in range(n // 10):
        yield f"CONTAINS(t, 'w{i:05}')"
        yield f"t LIKE '%w{i:05}%' AND b = {i}"
        yield f"ENDSWITH(s, '{i:03}') AND a = {i}"
        yield f"STARTSWITH(s, 'w{i:04}') OR CONTAINS(t, 'w{i:05} w{i + 2:05}')"
        yield f"t LIKE '%w{i:05}%w{i + 7:05}%'"
        yield f"NOT t LIKE '%w{i:05}%w{i // 2:05}%' AND a = {i}"
        yield f"t LIKE '%w{i:05}_w%' AND CONTAINS(t, 'a{i}')"
        yield f"NOT CONTAINS(t, 'w{i:05}') AND a = {i}"
        yield f"t LIKE '{i}%w{i:05}%'"
        yield f"t LIKE '%w{i:05}%' OR s LIKE '%w{i:05}%'"


def expressions(n: int) -> Iterable[str]:
    for i in range(n // 20):
        yield f"t RLIKE 'w{i:05}[ x]w'"
        yield f"t RLIKE 'w{i:05} [a-z]{{2,3}}' AND a = {i}"


def long_patterns(n: int) -> Iterable[str]:
    """Texts that begin again and again."""
    yield f"t LIKE '%{'a' * 20_000}_b%'"
    yield f"t LIKE '%{'a' * 20_000}b%'"
    yield f"t LIKE '%{'a_' * 5_000}b%'"
    yield f"t LIKE '{'%a' * 1_000}%b%c'"
    yield f"t LIKE '%{'a' * 500}{'_' * 500}b%{'a' * 500}c%'"
    for i in range(n // 50):
        yield f"CONTAINS(t, '{'a' * (i + 8)}')"
        yield f"CONTAINS(t, '{'a' * (i + 8)}c')"
        yield f"t LIKE '%{'a' * (i + 8)}_c%'"


def joins(n: int) -> Iterable[str]:
    yield "EXISTS d (d.a = a)"
    yield "EXISTS d (d.a = a AND d.b < b)"
    yield "EXISTS d (d.a < a AND d.s = s)"
    yield "FORALL d (d.a <> a)"
    yield "NOT EXISTS d (d.o.a = o.a)"
    yield "a > (SELECT MAX(d.a) FROM history d WHERE d.s = s)"


KINDS: dict[str, Callable[[int], Iterable[str]]] = {
    f.__name__: f for f in (comparisons, lists, patterns, expressions, long_patterns, joins)
}
DOCUMENTS = [{"a": i % 500, "b": i % 7, "s": f"w{i % 100:05}", "o": {"a": i}} for i in range(1_000)]

# ---- ways in ----


def arrow_of(event: dict[str, Any]) -> Any:
    return pa.Table.from_pylist([{name: value for name, value in event.items() if not _is_mixed(value)}])


def _is_mixed(value: Any) -> bool:
    try:
        pa.array([value])
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return True
    return False


class Way(NamedTuple):
    prepare: Callable[[dict[str, Any]], Any]
    run: Callable[[Any, Any], Any]


def text_of(event: dict[str, Any]) -> bytes:
    return json.dumps(event).encode()


def plain(event: dict[str, Any]) -> dict[str, Any]:
    return event


def _explain(m: Any, event: Any) -> None:
    for id in (0, 2, 4, 6, 8):
        if id in m:
            m.explain(id, event).to_text()


def _remember(m: Any, event: Any) -> None:
    m.match(event, remember=True)
    m.history.prune(keep=len(DOCUMENTS))


WAYS: dict[str, Way] = {
    "json": Way(text_of, lambda m, event: m.match(event)),
    "dict": Way(plain, lambda m, event: m.match(event)),
    "lines": Way(text_of, lambda m, event: m.match_batch(event)),
    "dicts": Way(plain, lambda m, event: m.match_batch([event, {"a": 1}])),
    "arrow": Way(arrow_of, lambda m, event: m.match_batch(event)),
    "count": Way(plain, lambda m, event: m.count([event])),
    "explain": Way(plain, _explain),
    "remember": Way(plain, _remember),
}


class Served:
    """A matcher behind HTTP, in a process of its own."""

    def __init__(self, served: Processes):
        self.process = str(served.process.pid)
        self.client = httpx.Client(base_url=served.url, timeout=300)

    def ask(self, path: str, body: bytes, lines: bool = False) -> Any:
        answer = self.client.post(path, content=body, headers=JSON_LINES if lines else {})
        if 400 <= answer.status_code < 500 or answer.status_code == 503:  # refused, or not done within its time
            raise dibs.EventError(answer.json()["detail"])
        return answer.raise_for_status()


HTTP_WAYS: dict[str, Way] = {
    "match": Way(text_of, lambda m, text: m.ask("/v1/match", text)),
    "lines": Way(text_of, lambda m, text: m.ask("/v1/match", text, lines=True)),
    "explained": Way(text_of, lambda m, text: m.ask("/v1/match?explain=true", text, lines=True)),
    "publish": Way(text_of, lambda m, text: m.ask("/v1/publish", text)),
}


# ---- measuring ----


def spent(process: str) -> float:
    """Seconds of processor."""
    if process == "self":
        return time.process_time()
    fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_megabytes(process: str = "self") -> float:
    with open(f"/proc/{process}/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM"))


def forget_peak(process: str = "self") -> None:
    gc.collect()
    with open(f"/proc/{process}/clear_refs", "w") as refs:
        refs.write("5")


class Cost(NamedTuple):
    size: int
    seconds: float
    megabytes: float
    outcome: str


def measure(m: Any, way: Way, make: Callable[[int], dict[str, Any]], size: int, times: int = 2) -> Cost:
    """The cheapest of a few runs; what it needed beyond what was there, at most."""
    process = m.process if isinstance(m, Served) else "self"
    event = way.prepare(make(size))
    best, megabytes, outcome = math.inf, 0.0, "matched"
    for _ in range(times):
        forget_peak(process)
        before = peak_megabytes(process)
        start = spent(process)
        try:
            way.run(m, event)
        except dibs.DibsError as e:
            outcome = type(e).__name__ + ": " + str(e)[:60]
        took = spent(process) - start
        best, megabytes = min(best, took), max(megabytes, peak_megabytes(process) - before)
        if took > ENOUGH / 10:
            break
    return Cost(size, best, megabytes, outcome)


def exponent(costs: list[Cost]) -> float:
    """The steepest of the steps that can be noticed."""
    steps = [
        math.log(max(b.seconds, 1e-9) / max(a.seconds, NOTICED / 10)) / math.log(b.size / a.size)
        for a, b in zip(costs, costs[1:])
        if b.seconds > NOTICED
    ]
    return max(steps, default=0.0)


@contextmanager
def matcher_of(kind: str, count: int, index: str) -> Iterator[Any]:
    """index: also `cold`, what works before the engine is here, and `http`."""
    rules = list(enumerate(KINDS[kind](count)))
    if index == "http":
        with tempfile.TemporaryDirectory() as folder, Processes(Path(folder) / "searches", "--open") as served:
            m = Served(served)
            lines = b"\n".join(json.dumps({"id": id, "expression": text}).encode() for id, text in rules)
            m.ask("/v1/subscriptions", lines, lines=True)
            if kind == "joins":
                m.ask("/v1/publish", b"\n".join(map(text_of, DOCUMENTS)), lines=True)
            yield m
        return
    with plain_matcher() if index == "cold" else dibs.Matcher(index=index) as m:
        m.add_many(rules)
        if kind == "joins":
            m.history.load(DOCUMENTS)
        # As the service does: the collector looks at all that a process has whenever there is a quarter more, which
        # many containers in one text are. That is no cost of the event, and begins at some size.
        gc.collect()
        gc.freeze()
        yield m


def run_case(m: Any, way: Way, event: str, sizes: Iterable[int]) -> list[Cost]:
    costs: list[Cost] = []
    make = EVENTS[event]
    way.run(m, way.prepare(make(1_000)))  # what is built once
    for size in sizes:
        if len(costs) > 1:
            a, b = costs[-2:]
            grows = max(b.seconds / max(a.seconds, 1e-4), b.size / a.size)
            if b.seconds * grows > ENOUGH:
                break
        costs.append(measure(m, way, make, size))
    return costs


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--index", nargs="*", default=["auto"])
    parser.add_argument("--only", nargs="*", default=[], help="parts of names of events, kinds or ways")
    parser.add_argument("--sizes", nargs="*", type=int, default=list(SIZES))
    parser.add_argument("--subscriptions", type=int, default=20_000)
    parser.add_argument("--http", action="store_true", help="over HTTP instead of in this process")
    options = parser.parse_args()
    steep = 0
    for index in ["http"] if options.http else options.index:
        for kind in KINDS:
            cases = [case for case in cases_of(index) if is_chosen((*case, kind), options.only)]
            if cases:
                with matcher_of(kind, 500 if index == "cold" else options.subscriptions, index) as m:
                    steep += sum(show(m, index, kind, *case, options.sizes) for case in cases)
    print(f"{steep} grow faster than they should")
    return int(steep > 0)


def cases_of(index: str) -> Iterator[tuple[str, str]]:
    """Event and way."""
    for event in EVENTS:
        for way in HTTP_WAYS if index == "http" else WAYS:
            if event != "ranges" or (index != "http" and way not in ("json", "lines", "arrow", "remember")):
                yield event, way


def is_chosen(names: Iterable[str], parts: list[str]) -> bool:
    return all(any(part in name for name in names) for part in parts)


def show(m: Any, index: str, kind: str, event: str, way: str, sizes: list[int]) -> bool:
    """Whether it grows faster than it should."""
    costs = run_case(m, (HTTP_WAYS if index == "http" else WAYS)[way], event, sizes)
    grows = exponent(costs)
    mark = "STEEP" if grows > STEEP else "SLOW" if len(costs) < len(sizes) else ""
    row = "  ".join(f"{c.seconds:8.3f} s {c.megabytes:6.0f} MB" for c in costs)
    refused = {c.outcome for c in costs} - {"matched"}
    print(f"{index:10} {kind:13} {event:22} {way:9} {row}  ^{grows:4.2f} {mark}", *refused, flush=True)
    return bool(mark)


if __name__ == "__main__":
    sys.exit(main())
