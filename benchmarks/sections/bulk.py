"""What does a million subscriptions cost: seconds by stage, bytes by part, and the memory of the whole process."""

from __future__ import annotations

import gc
from functools import partial
from typing import Any

import dibs
from dibs.coding.clauses import code_clauses
from dibs.index import create
from dibs.papers.workloads import boolean
from dibs.segments.compile import compile_texts
from dibs.segments.ids import IdIndex
from measure import Say, Size, forget_peak, peak_bytes, resident_bytes, timed, warm_up


def run(size: Size, say: Say) -> dict[str, Any]:
    first_use = warm_up(say)
    say(f"writing {size.subscriptions:,} texts")
    table = boolean.make_named("sparse", size.subscriptions).subscription_table()
    table = table.combine_chunks()
    gc.collect()
    before, exact_peak = resident_bytes(), forget_peak()
    matcher = dibs.Matcher()
    say(f"adding {size.subscriptions:,} subscriptions")
    total, rejected = timed(partial(matcher.add_table, table))
    peak = peak_bytes()
    gc.collect()
    after = resident_bytes()
    assert len(matcher) == size.subscriptions and not rejected
    stats = matcher.stats()
    del matcher
    gc.collect()
    n = size.subscriptions
    return {
        "subscriptions": n,
        "predicates": stats["predicates"],
        "seconds": {"add_table": total, **_stages(table, say)},
        "bytes per subscription": {part: b / n for part, b in stats["bytes"].items()},
        "resident bytes per subscription": (after - before) / n,
        "peak bytes per subscription": (peak - before) / n if exact_peak else None,
        "first use": first_use,
    }


def _stages(table: Any, say: Say) -> dict[str, float]:
    """The same work stage by stage."""
    say("the same, stage by stage")
    texts = table["expression"].combine_chunks().cast("large_string")
    ids = table["id"].combine_chunks()
    parse, compiled = timed(lambda: compile_texts(texts))
    code, (_, clauses) = timed(lambda: code_clauses(compiled.table))
    index, _ = timed(lambda: create("auto", clauses))
    find, _ = timed(lambda: IdIndex(ids))
    return {"parse": parse, "code": code, "index": index, "ids": find}
