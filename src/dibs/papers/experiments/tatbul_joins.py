"""Figure 9 of Tatbul's paper as an experiment: a new document is joined with all that are stored.

The paper draws the idea and counts (section 4.3.1), without measuring: N * D * c predicates without an index, and with
one j log D + k' log N or k log N + j' log D, by the order of the phases. Here 1,000 profiles of 100 different joins (at
scale 1) meet offers of a marketplace (dibs.papers.workloads.joins); what varies is the number of stored documents.
"""

from __future__ import annotations

import time
from typing import Any

import pyarrow as pa

from dibs.language.sql import parse
from dibs.matcher import Matcher
from dibs.papers.experiments.experiment import Data, Experiment, Series, Size
from dibs.papers.experiments.measure import DifferentMatches
from dibs.papers.workloads.joins import JoinWorkload, Market, generate
from dibs.reference import matches

PROFILES, JOINS = 1_000, 100
MOST_PAIRS = 100_000  # of a profile and a document, for all events, that are looked at without an index
SERIES = (
    Series("no index", "naive"),
    Series("joins first", "auto"),
    Series("joins first, pre-filter", "auto"),
    Series("constants first", "auto"),
    Series("constants first, pre-filter", "auto"),
)


def _generate(documents: int, size: Size) -> JoinWorkload:
    profiles = size.of(PROFILES)
    market = Market(goods=max(size.of(documents) // 20, 10))
    return generate(market, profiles, min(JOINS, profiles), size.of(documents), size.events, size.seed)


def _read(documents: Any, size: Size) -> Data:
    work = _generate(documents, size)
    return Data(pa.array(work.texts, pa.large_string()), work.events)


def _measure(documents: Any, size: Size) -> dict[str, Any]:
    """All ways at one size of the history."""
    work = _generate(documents, size)
    rows: dict[str, dict[str, Any]] = {"no index": _measure_naive(work, size)}
    begin = time.process_time()
    with Matcher(threads=1) as m:
        m.add_many(list(enumerate(work.texts)))
        m.history.load(work.documents)
        ways = [(order, prefilter) for order in ("joins", "constants") for prefilter in (False, True)]
        labels = [one.label for one in SERIES[1:]]
        for label, way in zip(labels, ways):  # what a way builds is counted apart
            m.plan_joins(*way)
            found = m.match_batch(work.events)
            rows[label] = {"build_s": time.process_time() - begin, "matches": found.count, "all_us": []}
        held = sum(m.history.state.coded.snapshot.nbytes.values())
        for _ in range(size.repeats):
            for label, way in zip(labels, ways):
                m.plan_joins(*way)
                begin = time.process_time()
                m.match_batch(work.events)
                rows[label]["all_us"].append((time.process_time() - begin) / size.events * 1e6)
    for label in labels:
        times = sorted(rows[label]["all_us"])
        rows[label] |= {"bytes": held, "match_us": times[0], "median_us": times[len(times) // 2]}
    counts = {row["matches"] for row in rows.values() if "matches" in row}
    if len(counts) != 1:
        raise DifferentMatches(f"{documents:,} documents: the ways differ in their matches: {counts}")
    return {"subscriptions": len(work.texts), "events": len(work.events), "rows": rows}


def _measure_naive(work: JoinWorkload, size: Size) -> dict[str, Any]:
    """Every profile with every document, by the plain evaluator."""
    pairs = len(work.texts) * len(work.documents)
    if pairs * size.events > MOST_PAIRS:
        return {"refused": f"{pairs:,} pairs of a profile and a document per event"}
    trees, documents = [parse(text) for text in work.texts], work.documents.to_pylist()
    begin = time.process_time()
    found = sum(matches(tree, event, documents) for event in work.events.to_pylist() for tree in trees)
    took = (time.process_time() - begin) / size.events * 1e6
    return {"build_s": 0.0, "bytes": 0, "matches": found, "match_us": took, "median_us": took, "all_us": [took]}


EXPERIMENTS: dict[str, Experiment] = {
    "tatbul-9": Experiment(
        "Tatbul, figure 9: joins with stored documents",
        "documents",
        (100, 1_000, 10_000, 100_000, 1_000_000),
        _read,
        SERIES,
        measure=_measure,
        is_size=True,
    ),
}
