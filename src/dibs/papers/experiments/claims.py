"""What the papers claim in words, as data: a claim is a statement and checks on the results of experiments.

A check compares structures (`best`, `less`, `rank`) or follows one along the x-axis (`rises`, `falls`, `steady`). A
claim holds when all its checks pass, in part when some do. A check says what was measured, and one that fails says why
by the counters of those it compared (whys). `auto` is no party to any claim.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from dibs.papers.experiments.results import Result
from dibs.papers.experiments.whys import counters, explain, explain_change, number, say_where

HOLDS, IN_PART, FAILS = "holds", "holds in part", "does not hold here"
OURS = "auto"
TREND = 1.25  # a change of less from end to end is none
LINEAR = 1.1  # an exponent of n
ALIKE = 1.5  # less of a difference is called similar
ENOUGH = 0.8  # of the gain that a paper gives as a number
UNITS = {"match_us": "µs per event", "build_s": "s", "bytes": "bytes", "insert_us": "µs", "predicates": "comparisons"}
LAST, FIRST = -1, 0


class Outcome(NamedTuple):
    passed: bool
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


def less(experiment: str, label: str, other: str, measure: str = "match_us", at: int = LAST, by: float = 0.0) -> Check:
    """At one point of the sweep (by its place), `label` has less than `other`: by a share, if one is given."""

    def judge(result: Result) -> Outcome:
        value = result.values[at]
        a, b = result.line(label, measure)[at], result.line(other, measure)[at]
        where = f"{say_where(result, value)}{label} {number(a)}, {other} {number(b)} {UNITS.get(measure, measure)}"
        if a is None or b is None:
            return Outcome(a is not None, where)
        passed = a <= b * (1 - ENOUGH * by)
        change = f"{_percent(1 - a / b)} less" if a <= b else f"{_percent(a / b - 1)} more"
        wanted = f" ({change}; the paper: {_percent(by)} less)" if by else ""
        return Outcome(passed, where + wanted, "" if passed else explain(result, value, label, other, measure))

    return Check(experiment, judge)


def best(
    experiment: str,
    label: str,
    measure: str = "match_us",
    where: Callable[[Any], bool] = lambda value: True,
    among: Sequence[str] = (),
) -> Check:
    """Nobody has less, at every value that is asked about."""

    def judge(result: Result) -> Outcome:
        lost, won, worst = [], 0, (1.0, None, "")
        for value in filter(where, result.values):
            rivals = {o: result.at(o, value, measure) for o in among or result.labels if o not in (label, OURS)}
            known = {name: found for name, found in rivals.items() if found is not None}
            own = result.at(label, value, measure)
            winner = min(known, key=lambda name: known[name])
            if own is not None and own <= known[winner] * 1.02:
                won += 1
                continue
            lost.append(value)
            ratio = math.inf if own is None else own / known[winner]
            if ratio >= worst[0]:
                worst = ratio, value, winner
        figure = f"{label} is {_least(measure)} at {won} of {won + len(lost)} values of {result.experiment.x}"
        if not lost:
            return Outcome(True, figure)
        figure += f"; at {number(worst[1])} {worst[2]} is, by {_times(worst[0])}"
        return Outcome(False, figure, explain(result, worst[1], label, worst[2], measure))

    return Check(experiment, judge)


def rank(experiment: str, labels: Sequence[str], measure: str = "match_us", at: int = LAST) -> Check:
    """In this order, the least first."""

    def judge(result: Result) -> Outcome:
        line = {label: result.line(label, measure)[at] or math.inf for label in labels}
        found = sorted(labels, key=lambda label: line[label])
        shown = ", ".join(f"{label} {number(line[label])}" for label in found)
        figure = f"{say_where(result, result.values[at])}{shown} {UNITS.get(measure, measure)}"
        if found == list(labels):
            return Outcome(True, figure)
        a, b = next((a, b) for a, b in zip(labels, found) if a != b)
        return Outcome(False, figure, explain(result, result.values[at], a, b, measure))

    return Check(experiment, judge)


def _follow(
    experiment: str, labels: Sequence[str], measure: str, passes: Callable[[float], bool], word: str, to: int
) -> Check:
    def judge(result: Result) -> Outcome:
        ratios, wrong, whys = [], False, []
        for label in labels:
            first, last = result.line(label, measure)[0], result.line(label, measure)[to]
            if not first or last is None:
                ratios.append(f"{label} refused")
                wrong = True
                continue
            ratios.append(f"{label} x {last / first:.2g}")
            if not passes(last / first):
                wrong = True
                whys.append(explain_change(result, label, to, measure))
        ends = f"{result.experiment.x} {number(result.values[0])} to {number(result.values[to])}"
        return Outcome(not wrong, f"{_what(measure)}, {ends} (should {word}): {', '.join(ratios)}", "; ".join(whys))

    return Check(experiment, judge)


def rises(experiment: str, *labels: str, measure: str = "match_us", by: float = TREND, to: int = LAST) -> Check:
    return _follow(experiment, labels, measure, lambda r: r >= by, "rise", to)


def falls(experiment: str, *labels: str, measure: str = "match_us", by: float = TREND, to: int = LAST) -> Check:
    return _follow(experiment, labels, measure, lambda r: r <= 1 / by, "fall", to)


def steady(experiment: str, *labels: str, measure: str = "match_us", within: float = ALIKE, to: int = LAST) -> Check:
    return _follow(experiment, labels, measure, lambda r: 1 / within <= r <= within, "stay", to)


def changes_more(
    experiment: str, labels: Sequence[str], others: Sequence[str], measure: str = "match_us", to: int = LAST
) -> Check:
    """From end to end, each of `labels` grows (or falls) by a larger factor than each of `others`."""

    def judge(result: Result) -> Outcome:
        def factor(label: str) -> float:
            first, last = result.line(label, measure)[0], result.line(label, measure)[to]
            return math.inf if not first or not last else abs(math.log(last / first))

        a, b = {x: factor(x) for x in labels}, {x: factor(x) for x in others}
        passed = min(a.values()) > max(b.values())
        shown = ", ".join(f"{x} x or / {math.exp(min(f, 50)):.2g}" for x, f in {**a, **b}.items())
        slow, fast = min(a, key=lambda x: a[x]), max(b, key=lambda x: b[x])
        why = f"{explain_change(result, slow, to, measure)}; {explain_change(result, fast, to, measure)}"
        return Outcome(passed, f"{_what(measure)}, first to last value: {shown}", "" if passed else why)

    return Check(experiment, judge)


def order_of_growth(
    experiment: str, *labels: str, measure: str = "match_us", at_most: float, at_least: float = -math.inf
) -> Check:
    """The exponent of n over the sweep: 1 is linear."""

    def judge(result: Result) -> Outcome:
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
    """Less than so much at the paper's size, and in proportion at a smaller scale."""

    def judge(result: Result) -> Outcome:
        found = result.line(label, measure)[at]
        allowed = limit * result.settings["scale"]
        wanted = f"should be below {number(allowed)}: {number(limit)} at the paper's size"
        figure = (
            f"{say_where(result, result.values[at])}{label} {number(found)} {UNITS.get(measure, measure)} ({wanted})"
        )
        passed = found is not None and found < allowed
        return Outcome(passed, figure, "" if passed else counters(result, label, result.values[at]))

    return Check(experiment, judge)


def alike(experiment: str, a: str, b: str, measure: str = "match_us", at: int = LAST, within: float = ALIKE) -> Check:
    def judge(result: Result) -> Outcome:
        x, y = result.line(a, measure)[at], result.line(b, measure)[at]
        figure = f"{say_where(result, result.values[at])}{a} {number(x)}, {b} {number(y)} {UNITS.get(measure, measure)}"
        passed = bool(x and y and 1 / within <= x / y <= within)
        return Outcome(passed, figure, "" if passed else explain(result, result.values[at], a, b, measure))

    return Check(experiment, judge)


def _what(measure: str) -> str:
    return {"match_us": "matching", "build_s": "construction", "bytes": "memory", "insert_us": "insertion"}.get(
        measure, measure
    )


def _least(measure: str) -> str:
    return {"match_us": "fastest", "build_s": "built fastest", "bytes": "smallest"}.get(measure, "the least")


def _times(ratio: float) -> str:
    return "far (this one was refused)" if math.isinf(ratio) else f"a factor of {ratio:.2g}"


def _percent(share: float) -> str:
    return f"{100 * share:.4g} %" if share > 0.99 else f"{share:.0%}".replace("%", " %")
