"""What computed values cost, in processor time, in rounds that take turns; matches are compared before times are.

python benchmarks/computed.py                  microseconds of an event for each distinct expression
python benchmarks/computed.py --many 100000    lower(a) = c beside a = c, networks beside equality
python benchmarks/computed.py --own 100000     constants of one's own inside: beside BETWEEN, and DuckDB
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import orjson
import pyarrow as pa

import dibs
from dibs import engine

DISTINCT, MENTIONS, EVENTS, ROUNDS = 8, 20, 20_000, 5
PLAIN = "p{i} > {c}"
EXPRESSIONS = {
    "price * qty > c": "p{i} * q{i} > {c}",
    "a < b": "(p{i} < q{i}) IS FALSE AND k{i} > {c}",
    "a + b - 2 * c BETWEEN ...": "p{i} + q{i} - 2 * k{i} BETWEEN {c} AND {c} + 1",
    "lower(s) = c": "lower(s{i}) = 'x{c}'",
    "length(s) > c": "length(s{i}) > {c}",
    "at > now() - ...": "at{i} > now() + INTERVAL {c} DAYS",
    "hour(at) = c": "hour(at{i}) = {c}",
    "ip_in(host, ...)": "ip_in(host{i}, '192.168.{m}.0/24')",
    "CASE": "CASE WHEN p{i} > 50 THEN q{i} ELSE k{i} END > {c}",
    "substring(s, 2, 3) = c": "substring(s{i}, 2, 3) = 'x{c}'",
    "round(price * 1.19, 2) > c": "round(p{i} * 1.19, 2) > {c}",
    "size(tags) > c": "size(tags{i}) > {c}",
    "exists(tags, x -> x > c)": "exists(tags{i}, x -> x > 1000) AND k{i} > {c}",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--many", type=int, default=0, help="so many subscriptions of each kind")
    parser.add_argument("--own", type=int, default=0, help="so many with constants of their own")
    parser.add_argument("--only", default="", help="expressions that have this in their names")
    options = parser.parse_args()
    engine.load()
    if options.many:
        measure_many(options.many)
    elif options.own:
        measure_own(options.own)
    else:
        measure_each(options.only)


# ---- each expression ----


def measure_each(only: str) -> None:
    events = [event_of(random.Random(i)) for i in range(EVENTS)]
    lines, one = b"\n".join(map(orjson.dumps, events)), orjson.dumps(events[0])
    table = pa.Table.from_pylist(events)
    print(f"{'':28}{'single':>9}{'lines':>9}{'Arrow':>9}   microseconds beyond a plain test")
    base = matcher_of(PLAIN)
    for name, text in EXPRESSIONS.items():
        if only not in name:
            continue
        own = matcher_of(text)
        costs = []
        for ask, times in ((lambda m: m.match(one), 400), (lambda m: run(m, lines), 1), (lambda m: run(m, table), 1)):
            before, after = in_turns([lambda: ask(base), lambda: ask(own)], times)  # noqa: B023
            costs.append((after - before) / DISTINCT / (EVENTS if times == 1 else 1) * 1e6)
        print(f"{name:28}" + "".join(f"{cost:9.3f}" for cost in costs), flush=True)


def event_of(own: random.Random) -> dict[str, Any]:
    event: dict[str, Any] = {}
    for i in range(DISTINCT):
        event |= {f"p{i}": round(own.uniform(0, 100), 2), f"q{i}": own.randrange(10), f"k{i}": own.randrange(10)}
        event |= {f"s{i}": f"Phone {own.randrange(100)}", f"at{i}": f"2024-05-{own.randrange(1, 28):02}T10:00:00Z"}
        event |= {f"host{i}": f"10.{own.randrange(200)}.2.3", f"tags{i}": [own.randrange(9) for _ in range(3)]}
    return event


def matcher_of(text: str) -> dibs.Matcher:
    """Of tests that no event satisfies, enough of each value that it is computed for every event."""
    matcher = dibs.Matcher()
    texts = [text.format(i=i, c=10_000 + m, m=m) for i in range(DISTINCT) for m in range(MENTIONS)]
    matcher.add_many(enumerate(texts))
    assert not list(matcher.match_batch([event_of(random.Random(1))] * 10))[0]
    return matcher


def run(matcher: dibs.Matcher, events: Any) -> int:
    return matcher.match_batch(events).count


def in_turns(works: Sequence[Callable[[], Any]], times: int) -> list[float]:
    """The least seconds of processor time of each, called so many times in a round."""
    best = [float("inf")] * len(works)
    for work in works:
        for _ in range(min(times, 50)):
            work()
    for _ in range(ROUNDS):
        for k, work in enumerate(works):
            begin = time.process_time()
            for _ in range(times):
                work()
            best[k] = min(best[k], (time.process_time() - begin) / times)
    return best


# ---- many ----


def measure_many(count: int) -> None:
    own = random.Random(7)
    hosts = [f"10.{own.randrange(256)}.{own.randrange(256)}.{own.randrange(256)}" for _ in range(EVENTS)]
    events = pa.table({"a": [f"Name{own.randrange(2 * count)}" for _ in range(EVENTS)], "host": hosts})
    blocks = own.sample(range(1 << 20), min(count, 1 << 20))  # of 16 addresses below 10.0.0.0/8
    pairs = {
        "lower(a) = c beside a = c": (
            [f"a = 'Name{i}'" for i in range(count)],
            [f"lower(a) = 'name{i}'" for i in range(count)],
        ),
        "networks beside equality": (
            [f"host = '10.{b >> 12}.{b >> 4 & 255}.{(b & 15) << 4}'" for b in blocks],
            [f"ip_in(host, '10.{b >> 12}.{b >> 4 & 255}.{(b & 15) << 4}/28')" for b in blocks],
        ),
    }
    for name, (plain, computed) in pairs.items():
        matchers = [dibs.Matcher() for _ in range(2)]
        for matcher, texts in zip(matchers, (plain, computed)):
            add(matcher, texts)
        first, second = (run(matcher, events) for matcher in matchers)
        assert first == second or "networks" in name
        before, after = in_turns([partial(run, matcher, events) for matcher in matchers], 1)
        print(
            f"{name:28}{before / EVENTS * 1e6:9.3f}{after / EVENTS * 1e6:9.3f}{after / before:7.2f} times", flush=True
        )


def add(matcher: dibs.Matcher, texts: list[str]) -> None:
    matcher.add_table(pa.table({"id": pa.array(range(len(texts))), "expression": texts}))


# ---- constants of one's own ----

CIRCLE = "category = 'c{k}' AND geo_distance(lat, lon, {lat}, {lon}) < {m}"
BOX = "category = 'c{k}' AND lat BETWEEN {lat0} AND {lat1} AND lon BETWEEN {lon0} AND {lon1}"
KINDS = {
    "abs": ("category = 'c{k}' AND abs(price - {c}) < {d}", "category = 'c{k}' AND price > {low} AND price < {high}"),
    "product": ("category = 'c{k}' AND price * {f} <= {c}", "category = 'c{k}' AND price <= {most}"),
    "circle": (CIRCLE.removeprefix("category = 'c{k}' AND "), BOX.removeprefix("category = 'c{k}' AND ")),
}


def measure_own(count: int) -> None:
    own = random.Random(3)
    events = pa.table(
        {
            "category": [f"c{own.randrange(1000)}" for _ in range(2_000)],
            "price": [round(own.uniform(0, 1000), 2) for _ in range(2_000)],
            "lat": [own.uniform(47, 55) for _ in range(2_000)],
            "lon": [own.uniform(6, 15) for _ in range(2_000)],
        }
    )
    for name, forms in KINDS.items():
        numbers = [numbers_of(own) for _ in range(count)]
        matchers = [dibs.Matcher() for _ in forms]
        seconds = []
        for matcher, form in zip(matchers, forms):
            begin = time.process_time()
            add(matcher, [form.format(**each) for each in numbers])
            seconds.append((time.process_time() - begin) / count * 1e6)
        found, plain = (run(matcher, events) for matcher in matchers)
        works = [partial(run, matcher, events) for matcher in matchers]
        after, before = (t / events.num_rows * 1e6 for t in in_turns(works, 1))
        print(
            f"{name:10}{after:9.2f} us an event, plain {before:9.2f}: {after / before:5.2f} times; "
            f"loading {seconds[0]:6.1f} and {seconds[1]:6.1f} us a text; matches {found} and {plain}"
            f"{asked_of_duckdb(name, numbers, events, found)}",
            flush=True,
        )


def numbers_of(own: random.Random) -> dict[str, Any]:
    c, d, f = round(own.uniform(0, 1000), 2), round(own.uniform(0.5, 5), 2), round(own.uniform(0.5, 2), 3)
    lat, lon, m = round(own.uniform(47, 55), 5), round(own.uniform(6, 15), 5), own.randrange(1_000, 10_000)
    up, across = m / 111_195, m / 66_000
    return {
        "k": own.randrange(1000),
        "c": c,
        "d": d,
        "f": f,
        "low": c - d,
        "high": c + d,
        "most": c / f,
        "lat": lat,
        "lon": lon,
        "m": m,
        "lat0": lat - up,
        "lat1": lat + up,
        "lon0": lon - across,
        "lon1": lon + across,
    }


def asked_of_duckdb(name: str, numbers: list[dict[str, Any]], events: pa.Table, found: int) -> str:
    """The same by DuckDB, which computes all: a few events, because it takes long."""
    try:
        import duckdb
    except ImportError:
        return ""
    if name == "circle" or len(numbers) * 20 > 50_000_000:
        return ""
    asked = events.slice(0, 20)
    columns = {key: [each[key] for each in numbers] for key in ("k", "c", "d", "f")}
    rules = pa.table(columns)
    test = "abs(e.price - r.c) < r.d" if name == "abs" else "e.price * r.f <= r.c"
    begin = time.process_time()
    count = duckdb.sql(f"SELECT count(*) FROM asked e, rules r WHERE e.category = 'c' || r.k AND {test}").fetchall()
    assert rules.num_rows and count
    return f"; DuckDB {(time.process_time() - begin) / asked.num_rows * 1e6:9.1f} us"


if __name__ == "__main__":
    main()
