"""Why a check failed, in a sentence that counters give: has a structure more to do, or does a step take it longer?

A step is a candidate looked at, a predicate evaluated or a node visited: the counters of a match. Where one structure
makes fewer steps and still takes longer, its steps are dearer: from node to node through memory, say, where those of
the other run along a list. Of what was built only the bytes are counted.

REMARKS are sentences for claims that counters alone do not explain, shown where one does not hold in full; each was
found by counters, and by what it names.
"""

from __future__ import annotations

import math
from typing import Any

from dibs.papers.experiments.results import Result

COUNTERS = ("candidates", "predicates", "nodes")
BUILT = ("build_s", "bytes", "insert_us", "delete_us")  # measures that events have no part in
SAME = 1.2  # times: no difference
FEW = 10  # steps per event, which take less than reading the event


def explain(result: Result, value: Any, a: str, b: str, measure: str) -> str:
    """Why a structure is not ahead of another one at a value."""
    where = f"{say_where(result, value)}"
    if measure in BUILT:
        return f"{where}{_of_bytes(result, value, a)}, {_of_bytes(result, value, b)}"
    reason = _compare(result, value, a, b, measure)
    return f"{where}{reason} ({counters(result, a, value)}; {counters(result, b, value)})"


def _compare(result: Result, value: Any, a: str, b: str, measure: str) -> str:
    steps = {label: _steps(result, label, value) for label in (a, b)}
    if measure in COUNTERS or not all(steps.values()):
        return f"{a} has more {measure} than {b}" if measure in COUNTERS else "nothing was counted"
    if steps[a] > steps[b]:
        most = max(COUNTERS, key=lambda c: _count(result, a, value, c) - _count(result, b, value, c))
        own, other = (number(_count(result, label, value, most)) for label in (a, b))
        return f"{a} has more to do, {own} {most} per event against {other}"
    prices = {label: _nanoseconds(result, label, value) for label in (a, b)}
    return (
        f"{a} has less to do, {number(steps[a])} steps per event against {number(steps[b])}, but a step takes it "
        f"{number(prices[a])} ns instead of {number(prices[b])}"
    )


def explain_change(result: Result, label: str, to: int, measure: str) -> str:
    """What changes along the x-axis for a structure."""
    first, last = result.values[0], result.values[to]
    if measure in BUILT:
        sizes = (number(result.at(label, value, "bytes")) for value in (first, last))
        return f"{label} has {' bytes at the first value and '.join(sizes)} at the last"
    begin, end = _steps(result, label, first), _steps(result, label, last)
    shown = (
        f"{counters(result, label, first, '')} per event at the first value, "
        f"{counters(result, label, last, '')} at the last"
    )
    if not begin or not end:
        return f"{label}: {shown}"
    reason = f"its steps change by x {end / begin:.2g}"
    prices = [_nanoseconds(result, label, value) for value in (first, last)]
    if measure == "match_us" and min(begin, end) < FEW:
        reason += f", but with {number(min(begin, end))} of them what any event costs outweighs them"
    elif measure == "match_us" and not 1 / SAME <= prices[1] / prices[0] <= SAME:
        reason += f", and a step takes {number(prices[1])} ns instead of {number(prices[0])}"
    return f"{label}: {reason} ({shown})"


def counters(result: Result, label: str, value: Any, name: str | None = None) -> str:
    def of(measure: str) -> str:
        return number(result.at(label, value, measure))

    shown = f"{of('candidates')} candidates, {of('predicates')} predicates, {of('nodes')} nodes"
    return shown if name == "" else f"{label}: {shown}"


def say_where(result: Result, value: Any) -> str:
    return f"at {number(value)} {result.experiment.x}: " if len(result.points) > 1 else ""


def _of_bytes(result: Result, value: Any, label: str) -> str:
    size = result.at(label, value, "bytes")
    rows = next(point["subscriptions"] for point in result.points if point["x"] == value)
    return f"{label} has {number(None if size is None else size / rows)} bytes a subscription"


def _count(result: Result, label: str, value: Any, counter: str) -> float:
    return result.at(label, value, counter) or 0.0


def steps_of(row: dict[str, Any]) -> float:
    """Per event."""
    return float(sum(row.get(counter) or 0.0 for counter in COUNTERS))


def _steps(result: Result, label: str, value: Any) -> float:
    return sum(_count(result, label, value, counter) for counter in COUNTERS)


def _nanoseconds(result: Result, label: str, value: Any) -> float:
    return 1000 * (result.at(label, value, "match_us") or 0.0) / _steps(result, label, value)


def number(value: Any) -> str:
    if value is None or value == math.inf:
        return "refused"
    if isinstance(value, str):
        return value
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"


CODED = (
    "Values are coded before any index sees them: a domain has a cell for each constant that occurs and for each "
    "gap, however large the value space is, so no structure pays for it."
)
PAIRS = (
    "PSTHash looks up every pair of an event's values (435 of 30 values, 4,005 of 90: its nodes), however few "
    "subscriptions there are; so it stands the better the more there are. The memory that all pairs of spaces take "
    "(2.3 GB for 200,000 dense subscriptions) limits the scale here."
)
COUNTING = (
    "BE-Tree makes the fewest steps, as its paper says, but each goes to another place in memory. SIFT counts in "
    "bytes along ascending lists, a nanosecond each: the random access to counters that the paper blames is gone, "
    "as those of a million subscriptions fit into a cache of today."
)
PIVOTS = (
    "Every subscription under a pivot that the event has is a candidate of OpIndex, and each of their lists is asked "
    "for each value of the event (32 lists and 20 values: 640 signatures, which no counter shows); k-index meets only "
    "lists of values that the event has. The paper blames its k-index for counting in an array of all subscriptions; "
    "here it merges sorted lists, as its own authors describe it, and counts nothing."
)
ATTRIBUTES = (
    "Published, BE-Tree counts the attributes of an overflowing l-node again for each partition, and its root "
    "holds thousands of subscriptions where attributes are many. Here an l-node of more than 256 rows is "
    'partitioned by all at once; with `partition="one"`, as published, 100,000 subscriptions over 20,000 '
    "attributes take 16 times as long to insert and find the same candidates."
)
BULK = "OpIndex and k-index are sorted in bulk here, BE-Tree is grown row by row in one compiled loop."
SPACES = (
    "PSTBloom lists a subscription in every space that its access predicate covers, BE-Tree in one l-node: with "
    "one equality in five the access predicates are often ranges, and what is written decides (bytes a "
    "subscription)."
)
KEPT = (
    "An index here keeps the predicates that it evaluates, so that larger subscriptions take more of its memory "
    "whatever the structure."
)

REMARKS = {
    "opindex-many-attributes": ATTRIBUTES,
    "opindex-many-attributes-best": PIVOTS,
    "opindex-capacity": (
        f"{ATTRIBUTES} Matching hardly changes because an attribute has some 50 subscriptions in its p-node at the "
        "paper's size, whatever the capacity allows: candidates per event grow from 361 to 670, not by 15."
    ),
    "opindex-memory": CODED,
    "opindex-memory-values": CODED,
    "opindex-insertion": ATTRIBUTES,
    "opindex-number": PIVOTS,
    "opindex-size": (
        "k-index has fewer candidates the more predicates a subscription has (212 to 95 per event at a million), "
        "which makes up for lists that are longer."
    ),
    "opindex-event-size": PIVOTS,
    "opindex-equality": (
        "What gets faster is the merging and counting; candidates of OpIndex are all under its pivots, whatever "
        "their operators."
    ),
    "opindex-values": CODED,
    "opindex-zipf": PIVOTS,
    "opindex-aol-build": (f"{BULK} {ATTRIBUTES}"),
    "opindex-aol-tweets": PIVOTS,
    "opindex-aol-articles": PIVOTS,
    "opindex-ebay-build": (f"{BULK} {ATTRIBUTES}"),
    "opindex-ebay": PIVOTS,
    "betree-distribution": COUNTING,
    "betree-scan": (
        "k-index merges a thousand postings where a scan reads four thousand rows one after the other: the scale "
        "decides which takes longer."
    ),
    "betree-next-best": COUNTING,
    "betree-dimensions": (
        "With few dimensions an event meets more p-nodes, and more predicates hold by chance: the nodes and "
        "candidates of the trees fall with the dimensions."
    ),
    "betree-dimensions-zipf": (
        "Zipf's law over 1,400 dimensions gives the popular ones a smaller share than over 50, so that k-index "
        "has fewer postings."
    ),
    "betree-size": COUNTING,
    "betree-cardinality": (
        "Propagation's clusters are tables of predicate numbers that are read from front to back, so its many "
        "steps are cheap ones."
    ),
    "betree-cardinality-memory": (
        "Ranges are enumerated over the cells of constants that occur, not over all values, so the enumeration "
        "stops growing when the constants do."
    ),
    "betree-ranges": (f"Ranges are enumerated over cells. {COUNTING}"),
    "betree-equality": (
        "Gryphon visits more nodes than BE-Tree and evaluates more predicates, but a step of it is cheaper."
    ),
    "betree-probability": (
        "Propagation's clusters are tables that are read from front to back, so its many steps are cheap ones; a "
        "posting of k-index costs the most, as its lists are kept in order."
    ),
    "betree-operators": (
        "Gryphon visits more nodes than BE-Tree and evaluates more predicates, but a step of it is cheaper."
    ),
    "pstree-build-least": SPACES,
    "pstree-build-dimensions": (
        f"{ATTRIBUTES} PSTHash keeps pairs of spaces, which are fewer the more attributes share the constants."
    ),
    "pstree-build-kept-in-order": (
        "A list of OpIndex takes a new entry by shifting a block of bounded size; no list is sorted again."
    ),
    "pstree-build-size": KEPT,
    "pstree-build-equality": SPACES,
    "pstree-dense": PAIRS,
    "pstree-zipf-psthash": PAIRS,
    "pstree-zipf-opindex": PIVOTS,
    "pstree-dimensions": (
        "With more dimensions fewer predicates hold by chance, so that Propagation's first phase finds fewer, and "
        "a scan gives up at the first predicate more often."
    ),
    "pstree-dimensions-each": (
        "A thousandth of all subscriptions matches, and there are 300 times as many at the end: each match is a "
        "candidate at least."
    ),
    "pstree-cardinality": PAIRS,
    "pstree-size-dense": (
        "Propagation's first phase finds all predicates that hold, and there are six times as many; OpIndex "
        "evaluates more of them, but has no more candidates."
    ),
    "pstree-size-sparse": ("OpIndex has no more candidates with larger subscriptions, only more predicates that hold."),
    "pstree-event-size": (
        "The first phase of Propagation finds the predicates that each value satisfies, and a scan goes on where "
        "more attributes are there."
    ),
    "pstree-event-size-best": PAIRS,
    "pstree-probability": (
        "Half of all subscriptions are reported: their remaining predicates are evaluated whatever found them, "
        "two thirds of what a scan evaluates."
    ),
    "pstree-equality": (
        "Where attributes are many and subscriptions few, BE-Tree's root holds what no three have in common."
    ),
    "pstree-equality-psthash": PAIRS,
    "pstree-memory": (f"{SPACES} {KEPT}"),
    "pstree-memory-size": KEPT,
    "pstree-query-log": PIVOTS,
    "pstree-query-log-build": BULK,
    "pstree-ads": PAIRS,
    "pstree-ads-build": BULK,
}
