"""Why a check failed, in a sentence that counters give: has a structure more to do, or does a step take it longer?

A step is a candidate looked at, a predicate evaluated or a node visited: the counters of a match. Where one structure
makes fewer steps and still takes longer, its steps are dearer: from node to node through memory, say, where those of
the other run along a list. Of what was built only the bytes are counted.
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
