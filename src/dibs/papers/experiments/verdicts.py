"""Results to verdicts.md: every claim of the papers, whether it holds here, by which figures, and why not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from dibs.papers.experiments import claims_betree, claims_opindex, claims_others, claims_pstree, standing
from dibs.papers.experiments.claims import (
    ALIKE,
    FAILS,
    HOLDS,
    IN_PART,
    MARGIN,
    NOISE,
    ROWS,
    STEPS,
    TOO_SMALL,
    TREND,
    Check,
    Claim,
    Outcome,
)
from dibs.papers.experiments.results import Result, read, read_seeds
from dibs.papers.experiments.whys import REMARKS

CLAIMS: tuple[Claim, ...] = (
    *claims_opindex.CLAIMS,
    *claims_betree.CLAIMS,
    *claims_pstree.CLAIMS,
    *claims_others.CLAIMS,
)
HEAD = f"""# What the papers claim, and what comes out here

Every claim that the evaluations of the five papers make in words, in ours, judged by the experiments of the same
figure on one machine, on the same data, at the sizes that stand beside each. `dibs bench verdicts` writes this page
from the results of the figures in [the figures](figures.md).

The rules. A factor that a paper gives is reached where the logarithm of the measured one is {MARGIN:g} of the
logarithm of the paper's: 1,000 times at {1000**MARGIN:.0f}, ten times at {10**MARGIN:.1f}, twice at
{2**MARGIN:.1f}. Where a paper gives none, a structure is ahead by {NOISE - 1:.0%} or more, a line rises or
falls by {TREND - 1:.0%} or more from end to end, and what differs by less than a factor of {ALIKE:g} is
alike. A check is *not measurable* where a time is of fewer than {STEPS} steps per event, where there are
fewer than {ROWS:,} subscriptions and fewer than the paper's, and where a structure was refused (12 GB, 10
minutes of processor time). Data are drawn with several seeds, and most of them decide. A claim holds when all
its checks pass, and in part when some do.

Times are processor times, the best of several rounds. Where a check fails, the counters of the structures that it
compares say why: what an event makes them look at (a step is a candidate, a predicate evaluated or a node visited).

A paper measures its authors' C or C++ against binaries of others, on another machine and sometimes on data that
nobody else has; here all structures are written in one language, over the same coded integers. So a claim that does not
hold here is no refutation: it says that the difference was not in the structure alone.
"""
WORDS = (HOLDS, IN_PART, FAILS, TOO_SMALL)
Find = Callable[[str], Sequence[Result]]  # an experiment by its name: a result for each seed


class Verdict(NamedTuple):
    claim: Claim
    word: str
    outcomes: tuple[Outcome, ...]


def judge(claim: Claim, find: Find) -> Verdict:
    outcomes = tuple(_judge_seeds(check, find(check.experiment)) for check in claim.checks)
    words = {outcome.passed for outcome in outcomes}
    if words == {True}:
        return Verdict(claim, HOLDS, outcomes)
    if words == {None}:
        return Verdict(claim, TOO_SMALL, outcomes)
    return Verdict(claim, IN_PART if True in words else FAILS, outcomes)


def _judge_seeds(check: Check, results: Sequence[Result]) -> Outcome:
    """What most of the seeds say; where they are even, that it does not pass."""
    found = [check.judge(result) for result in results]
    by_word = Counter(outcome.passed for outcome in found)
    word = max((None, True, False), key=lambda word: (by_word[word], word is False))
    shown = next(outcome for outcome in found if outcome.passed is word)
    if len(found) == 1:
        return shown
    return shown._replace(figure=f"{shown.figure} ({by_word[word]} of {len(found)} seeds)")


def judge_all(folder: Path, claims: Sequence[Claim] = CLAIMS) -> list[Verdict]:
    known: dict[str, Sequence[Result]] = {}

    def find(name: str) -> Sequence[Result]:
        if name not in known:
            known[name] = read_seeds(name, folder)
        return known[name]

    return [judge(claim, find) for claim in claims]


def list_sizes(folder: Path, claims: Sequence[Claim] = CLAIMS) -> dict[str, str]:
    """How many subscriptions there were in each experiment, and which share of the paper's that is."""
    found = {}
    for name in dict.fromkeys(name for claim in claims for name in claim.experiments):
        result = read(name, folder)
        scale = result.settings["scale"]
        share = "the paper's size" if scale == 1 else f"{100 * scale:.3g} % of the paper's"
        found[name] = f"{result.sizes} ({share})"
    return found


def write(verdicts: Sequence[Verdict], sizes: dict[str, str], auto: standing.Standing | None = None) -> str:
    """The page; sizes: of the experiments, in words; with how `auto` stands, where all experiments are there."""
    papers = list(dict.fromkeys(verdict.claim.paper for verdict in verdicts))
    lines = [HEAD, f"| paper | claims | {' | '.join(word.replace('holds', 'hold') for word in WORDS)} |"]
    lines += ["| --- |" + " ---: |" * (1 + len(WORDS))]
    for paper in [*papers, "all"]:
        words = Counter(v.word for v in verdicts if paper in (v.claim.paper, "all"))
        lines.append(f"| {paper} | {words.total()} | {' | '.join(str(words[word]) for word in WORDS)} |")
    if auto is not None:
        lines += ["\n## Where `auto` stands\n", standing.write(auto)]
    for paper in papers:
        lines += [f"\n## {paper}\n"]
        for verdict in verdicts:
            if verdict.claim.paper == paper:
                lines += _write_one(verdict, sizes)
    return "\n".join(lines) + "\n"


def _write_one(verdict: Verdict, sizes: dict[str, str]) -> list[str]:
    claim = verdict.claim
    lines = [
        f"### {claim.name}: {verdict.word}\n",
        f"{claim.statement} (section {claim.section}): **{verdict.word}**.\n",
    ]
    lines += [f"{name}: {sizes[name]}." for name in claim.experiments if name in sizes]
    lines += [""] if sizes else []
    for outcome in verdict.outcomes:
        word = {True: "yes", False: "no", None: "not measurable"}[outcome.passed]
        lines.append(f"- {word}: {outcome.figure}")
        if outcome.why:
            lines.append(f"  - why: {outcome.why}")
    if claim.name in REMARKS and verdict.word in (IN_PART, FAILS):
        lines.append(f"- {REMARKS[claim.name]}")
    return [*lines, ""]
