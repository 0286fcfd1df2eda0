"""What the papers claim in words, as data: a claim is a statement and checks on the results of experiments.

A check compares structures (`best`, `less`, `rank`) or follows one along the x-axis (`rises`, `falls`, `steady`). It
says what was measured, and one that fails says why by the counters of those it compared (whys). Claims are of the
structures as published: `auto`, and what structures became here, is no party to any. The rules, for all of them:

    A factor that a paper gives is reached where the logarithm of the measured one is MARGIN of the logarithm of the
    paper's: 1,000 times at 126, ten times at 5, twice at 1.6. Where it gives none, NOISE is what counts as a
    difference between structures, TREND as a change from end to end, and ALIKE as similar.
    A check is not measurable where a time is of fewer than STEPS steps per event (what any event costs outweighs the
    structure), or where there are fewer than ROWS subscriptions and fewer than the paper's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from dibs.papers.experiments.experiment import OURS_TOO
from dibs.papers.experiments.results import Result
from dibs.papers.experiments.whys import counters, explain, explain_change, number, say_where, steps_of

HOLDS, IN_PART, FAILS, TOO_SMALL = "holds", "holds in part", "does not hold here", "not measurable at this size"
OURS = "auto"
MARGIN = 0.7  # of the logarithm of a factor that a paper gives
NOISE = 1.05
TREND = 1.25  # a change of less from end to end is none
LINEAR = 1.1  # an exponent of n
ALIKE = 1.5  # less of a difference is called similar
STEPS, ROWS = 50, 1_000  # with fewer nothing is judged
UNITS = {"match_us": "µs per event", "build_s": "s", "bytes": "bytes", "insert_us": "µs", "predicates": "comparisons"}
LAST, FIRST = -1, 0


class Outcome(NamedTuple):
    passed: bool | None  # None: not measurable at this size
    figure: str
    why: str = ""


@dataclass(frozen=True)
class Check:
    experiment: str
    judge: Callable[[Result], Outcome]


@dataclass(frozen=True)
class Claim:
    name: str
    paper: str
    section: str
    statement: str  # in our words
    checks: tuple[Check, ...]

    @property
    def experiments(self) -> list[str]:
        return list(dict.fromkeys(check.experiment for check in self.checks))


def reached(factor: float, claimed: float) -> bool:
    """Whether a measured factor is what a paper claims, by the margin."""
    return factor > 0 and math.log(factor) >= MARGIN * math.log(claimed)


def too_small(result: Result, labels: Iterable[str], places: Iterable[int], measure: str) -> str:
    """Why what was measured at these places of the sweep cannot be judged; "" if it can."""
    for place in places:
        point = result.points[place]
        rows = point["subscriptions"]
        if rows < ROWS and result.settings["scale"] < 1:
            return f"{say_where(result, point['x'])}{rows:,} subscriptions are fewer than {ROWS:,}"
        for label in labels:
            row = point["rows"].get(label, {})
            if measure not in row:
                return f"{say_where(result, point['x'])}{label} was refused ({row.get('refused', 'not measured')})"
            if measure == "match_us" and (steps := steps_of(row)) < STEPS:
                return (
                    f"{say_where(result, point['x'])}{label} takes {number(steps)} steps per event, fewer than {STEPS}"
                )
    return ""


def less(
    experiment: str,
    label: str,
    other: str,
    measure: str = "match_us",
    at: int = LAST,
    by: float = 0.0,
    times: float = 0,
) -> Check:
    """At one point of the sweep (by its place), `label` has less than `other`: by a share or so many times less, where
    the paper says."""
    claimed = times or (1 / (1 - by) if by else 0.0)

    def judge(result: Result) -> Outcome:
        value = result.values[at]
        a, b = result.line(label, measure)[at], result.line(other, measure)[at]
        where = f"{say_where(result, value)}{label} {number(a)}, {other} {number(b)} {UNITS.get(measure, measure)}"
        if measure == "bytes" and a and b is None:
            return Outcome(True, where)  # it did not fit
        if reason := too_small(result, (label, other), (at,), measure):
            return Outcome(None, reason)
        assert a is not None and b is not None
        factor = b / a if a else math.inf
        wanted = f" ({_say_factor(factor)}; the paper: {_say_factor(claimed)})" if claimed else ""
        passed = reached(factor, claimed) if claimed else factor >= NOISE
        return Outcome(passed, where + wanted, "" if passed else explain(result, value, label, other, measure))

    return Check(experiment, judge)


def best(
    experiment: str,
    label: str,
    measure: str = "match_us",
    where: Callable[[Any], bool] = lambda value: True,
    among: Sequence[str] = (),
    by: float = 0.0,
) -> Check:
    """Nobody has less, at every value that is asked about; at the last of them by a share, where the paper says."""

    def judge(result: Result) -> Outcome:
        lost, won, worst, reason = [], 0, (1.0, None, ""), "no point is of the sizes that it is about"
        factor = 0.0
        for place, value in enumerate(result.values):
            if not where(value):
                continue
            rivals = {o: result.at(o, value, measure) for o in among or _list_parties(result) if o != label}
            known = {name: found for name, found in rivals.items() if found is not None}
            winner = min(known, key=lambda name: known[name], default=label)
            small = too_small(result, (label, winner), (place,), measure)
            if small:
                reason = small
                continue
            own = result.at(label, value, measure)
            assert own is not None
            factor = known[winner] / own if own else math.inf
            if factor >= 1 / NOISE:
                won += 1
                continue
            lost.append(value)
            if 1 / factor >= worst[0]:
                worst = 1 / factor, value, winner
        if not won + len(lost):
            return Outcome(None, reason)
        figure = f"{label} is {_least(measure)} at {won} of {won + len(lost)} values of {result.experiment.x}"
        if lost:
            figure += f"; at {number(worst[1])} {worst[2]} is, by a factor of {worst[0]:.2g}"
            return Outcome(False, figure, explain(result, worst[1], label, worst[2], measure))
        if not by:
            return Outcome(True, figure)
        figure += f", at the last with {_say_factor(factor)} (the paper: {_say_factor(1 / (1 - by))})"
        passed = reached(factor, 1 / (1 - by))
        return Outcome(passed, figure, "" if passed else counters(result, label, result.values[-1]))

    return Check(experiment, judge)


def rank(experiment: str, labels: Sequence[str], measure: str = "match_us", at: int = LAST) -> Check:
    """In this order, the least first."""

    def judge(result: Result) -> Outcome:
        if reason := too_small(result, labels, (at,), measure):
            return Outcome(None, reason)
        line = {label: result.line(label, measure)[at] or math.inf for label in labels}
        found = sorted(labels, key=lambda label: line[label])
        shown = ", ".join(f"{label} {number(line[label])}" for label in found)
        figure = f"{say_where(result, result.values[at])}{shown} {UNITS.get(measure, measure)}"
        wrong = [(a, b) for a, b in zip(labels, labels[1:]) if line[a] > NOISE * line[b]]
        if not wrong:
            return Outcome(True, figure)
        return Outcome(False, figure, explain(result, result.values[at], *wrong[0], measure))

    return Check(experiment, judge)


def _follow(
    experiment: str, labels: Sequence[str], measure: str, passes: Callable[[float], bool], word: str, to: int
) -> Check:
    def judge(result: Result) -> Outcome:
        if reason := too_small(result, labels, (FIRST, to), measure):
            return Outcome(None, reason)
        ratios, wrong, whys = [], False, []
        for label in labels:
            first, last = result.line(label, measure)[0] or 1e-9, result.line(label, measure)[to] or 0.0
            ratios.append(f"{label} x {last / first:.2g}")
            if not passes(last / first):
                wrong = True
                whys.append(explain_change(result, label, to, measure))
        ends = f"{result.experiment.x} {number(result.values[0])} to {number(result.values[to])}"
        return Outcome(not wrong, f"{_what(measure)}, {ends} (should {word}): {', '.join(ratios)}", "; ".join(whys))

    return Check(experiment, judge)


def rises(
    experiment: str, *labels: str, measure: str = "match_us", by: float = TREND, times: float = 0, to: int = LAST
) -> Check:
    """By a factor of ours, or `times` as the paper gives it."""
    word = f"rise {times:g} times" if times else "rise"
    return _follow(experiment, labels, measure, lambda r: reached(r, times) if times else r >= by, word, to)


def falls(
    experiment: str, *labels: str, measure: str = "match_us", by: float = TREND, times: float = 0, to: int = LAST
) -> Check:
    word = f"fall to 1 / {times:g}" if times else "fall"

    def passes(ratio: float) -> bool:
        return reached(1 / ratio, times) if times else ratio <= 1 / by

    return _follow(experiment, labels, measure, passes, word, to)


def steady(experiment: str, *labels: str, measure: str = "match_us", within: float = ALIKE, to: int = LAST) -> Check:
    return _follow(experiment, labels, measure, lambda r: 1 / within <= r <= within, "stay", to)


def changes_more(
    experiment: str, labels: Sequence[str], others: Sequence[str], measure: str = "match_us", to: int = LAST
) -> Check:
    """From end to end, each of `labels` grows (or falls) by a larger factor than each of `others`."""

    def judge(result: Result) -> Outcome:
        if reason := too_small(result, (*labels, *others), (FIRST, to), measure):
            return Outcome(None, reason)

        def factor(label: str) -> float:
            first, last = result.line(label, measure)[0], result.line(label, measure)[to]
            return math.inf if not first or not last else abs(math.log(last / first))

        a, b = {x: factor(x) for x in labels}, {x: factor(x) for x in others}
        passed = min(a.values()) >= max(b.values()) + math.log(NOISE)
        shown = ", ".join(f"{x} x or / {math.exp(min(f, 50)):.2g}" for x, f in {**a, **b}.items())
        slow, fast = min(a, key=lambda x: a[x]), max(b, key=lambda x: b[x])
        why = f"{explain_change(result, slow, to, measure)}; {explain_change(result, fast, to, measure)}"
        return Outcome(passed, f"{_what(measure)}, first to last value: {shown}", "" if passed else why)

    return Check(experiment, judge)


def least_at(experiment: str, label: str, value: Any, measure: str = "match_us") -> Check:
    """Of all its own values, the structure has the least at this one."""

    def judge(result: Result) -> Outcome:
        if reason := too_small(result, (label,), range(len(result.points)), measure):
            return Outcome(None, reason)
        line = dict(zip(result.values, result.line(label, measure)))
        if value not in line:
            return Outcome(None, f"{number(value)} {result.experiment.x} were not measured")
        found = min(line, key=lambda x: line[x] or math.inf)
        shown = ", ".join(f"{number(x)}: {number(y)}" for x, y in line.items())
        own, least = line.get(value) or math.inf, line[found] or 0.0
        passed = own <= NOISE * least
        figure = f"{label} by {result.experiment.x} (the paper: least at {number(value)}): {shown}"
        return Outcome(passed, figure, "" if passed else counters(result, label, found))

    return Check(experiment, judge)


def order_of_growth(
    experiment: str, *labels: str, measure: str = "match_us", at_most: float, at_least: float = -math.inf
) -> Check:
    """The exponent of n over the sweep: 1 is linear."""

    def judge(result: Result) -> Outcome:
        if reason := too_small(result, labels, (FIRST, LAST), measure):
            return Outcome(None, reason)
        shown, passed, whys = [], True, []
        for label in labels:
            found = [(x, y) for x, y in zip(result.values, result.line(label, measure)) if y]
            exponent = math.log(found[-1][1] / found[0][1]) / math.log(found[-1][0] / found[0][0])
            shown.append(f"{label} n^{exponent:.2f}")
            if not at_least <= exponent <= at_most:
                passed = False
                whys.append(explain_change(result, label, LAST, measure))
        return Outcome(passed, f"{_what(measure)}: {', '.join(shown)}", "; ".join(whys))

    return Check(experiment, judge)


def below(experiment: str, label: str, limit: float, measure: str = "match_us", at: int = LAST) -> Check:
    """Less than so much at the paper's size, and in proportion at a smaller one."""

    def judge(result: Result) -> Outcome:
        if reason := too_small(result, (label,), (at,), measure):
            return Outcome(None, reason)
        found = result.line(label, measure)[at]
        allowed = limit * min(result.settings["scale"], 1)
        wanted = f"should be below {number(allowed)}: {number(limit)} at the paper's size"
        figure = (
            f"{say_where(result, result.values[at])}{label} {number(found)} {UNITS.get(measure, measure)} ({wanted})"
        )
        passed = found is not None and found < allowed
        return Outcome(passed, figure, "" if passed else counters(result, label, result.values[at]))

    return Check(experiment, judge)


def alike(experiment: str, a: str, b: str, measure: str = "match_us", at: int = LAST, within: float = ALIKE) -> Check:
    def judge(result: Result) -> Outcome:
        if reason := too_small(result, (a, b), (at,), measure):
            return Outcome(None, reason)
        x, y = result.line(a, measure)[at], result.line(b, measure)[at]
        figure = f"{say_where(result, result.values[at])}{a} {number(x)}, {b} {number(y)} {UNITS.get(measure, measure)}"
        passed = bool(x and y and 1 / within <= x / y <= within)
        return Outcome(passed, figure, "" if passed else explain(result, result.values[at], a, b, measure))

    return Check(experiment, judge)


def _list_parties(result: Result) -> list[str]:
    """The structures as published."""
    return [label for label in result.labels if label != OURS and not label.endswith(OURS_TOO)]


def _what(measure: str) -> str:
    return {"match_us": "matching", "build_s": "construction", "bytes": "memory", "insert_us": "insertion"}.get(
        measure, measure
    )


def _least(measure: str) -> str:
    return {"match_us": "fastest", "build_s": "built fastest", "bytes": "smallest"}.get(measure, "the least")


def _say_factor(factor: float) -> str:
    """Of what another has."""
    if math.isinf(factor):
        return "nothing at all"
    return (
        f"{number(float(f'{factor:.3g}'))} times less"
        if factor >= 1
        else f"{number(float(f'{1 / factor:.3g}'))} times more"
    )
