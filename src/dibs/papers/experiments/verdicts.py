"""Results to VERDICTS.md: every claim of the papers, whether it holds here, by which figures, and why not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from dibs.papers.experiments import claims_betree, claims_opindex, claims_others, claims_pstree, standing
from dibs.papers.experiments.claims import FAILS, HOLDS, IN_PART, Claim, Outcome
from dibs.papers.experiments.remarks import REMARKS
from dibs.papers.experiments.results import Result, read

CLAIMS: tuple[Claim, ...] = (
    *claims_opindex.CLAIMS,
    *claims_betree.CLAIMS,
    *claims_pstree.CLAIMS,
    *claims_others.CLAIMS,
)
HEAD = """# What the papers claim, and what comes out here

Every claim that the evaluations of the five papers make in words, in ours, judged by the experiments of the same
figure on one machine, in one process, on the same data. *Holds in part*: some of its checks pass. Times are processor
times, the best of several rounds in which all structures take turns. Where a check fails, the counters of the
structures that it compares say why: what an event makes them look at (a step is a candidate, a predicate evaluated or a
node visited). `dibs bench verdicts` writes this page from the results of the figures in
[benchmarks/pages](benchmarks/pages/papers.md).

A paper measures its authors' C or C++ against binaries of others, on another machine and sometimes on data that
nobody else has; here all structures are written in one language, over the same coded integers, and at a smaller
scale. So a claim that does not hold here is no refutation: it says that the difference was not in the structure
alone.
"""


class Verdict(NamedTuple):
    claim: Claim
    word: str
    outcomes: tuple[Outcome, ...]


def judge(claim: Claim, find: Callable[[str], Result]) -> Verdict:
    outcomes = tuple(check.judge(find(check.experiment)) for check in claim.checks)
    passed = sum(outcome.passed for outcome in outcomes)
    word = HOLDS if passed == len(outcomes) else IN_PART if passed else FAILS
    return Verdict(claim, word, outcomes)


def judge_all(folder: Path, claims: Sequence[Claim] = CLAIMS) -> list[Verdict]:
    known: dict[str, Result] = {}

    def find(name: str) -> Result:
        if name not in known:
            known[name] = read(name, folder)
        return known[name]

    return [judge(claim, find) for claim in claims]


def list_scales(folder: Path, claims: Sequence[Claim] = CLAIMS) -> dict[str, tuple[float, float]]:
    """The scales at which each paper's experiments were measured: the smallest and the largest."""
    found: dict[str, set[float]] = {}
    for claim in claims:
        scales = (read(name, folder).settings["scale"] for name in claim.experiments)
        found.setdefault(claim.paper, set()).update(scales)
    return {paper: (min(scales), max(scales)) for paper, scales in found.items()}


def write(
    verdicts: Sequence[Verdict], scales: dict[str, tuple[float, float]], auto: standing.Standing | None = None
) -> str:
    """The page; with how `auto` stands, where all experiments are there."""
    papers = list(dict.fromkeys(verdict.claim.paper for verdict in verdicts))
    lines = [HEAD, "| paper | scale | claims | hold | hold in part | do not hold here |"]
    lines += ["| --- | ---: | ---: | ---: | ---: | ---: |"]
    for paper in [*papers, "all"]:
        words = Counter(v.word for v in verdicts if paper in (v.claim.paper, "all"))
        scale = " to ".join(dict.fromkeys(f"{one:g}" for one in scales.get(paper, ())))
        lines.append(f"| {paper} | {scale} | {words.total()} | {words[HOLDS]} | {words[IN_PART]} | {words[FAILS]} |")
    if auto is not None:
        lines += ["\n## Where `auto` stands\n", standing.write(auto)]
    for paper in papers:
        lines += [f"\n## {paper}\n"]
        for verdict in verdicts:
            if verdict.claim.paper == paper:
                lines += _write_one(verdict)
    return "\n".join(lines) + "\n"


def _write_one(verdict: Verdict) -> list[str]:
    claim = verdict.claim
    mark = {HOLDS: "**holds**", IN_PART: "**holds in part**", FAILS: "**does not hold here**"}[verdict.word]
    lines = [f"### {claim.name}: {verdict.word}\n", f"{claim.statement} (section {claim.section}): {mark}.\n"]
    for outcome in verdict.outcomes:
        lines.append(f"- {'yes' if outcome.passed else 'no'}: {outcome.figure}")
        if outcome.why:
            lines.append(f"  - why: {outcome.why}")
    if claim.name in REMARKS and verdict.word != HOLDS:
        lines.append(f"- {REMARKS[claim.name]}")
    return [*lines, ""]
