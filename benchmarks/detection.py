"""Rules as security tools have them: how many events a second and core, in batches and one by one?

    python benchmarks/detection.py                      3,600 rules, forty tests on each side of an AND
    python benchmarks/detection.py --tests 5 --form like

Made here, but after the shape of what is published: a rule asks for a kind of event, and for one of many texts in one
attribute and one of many in another, often not for a third; letters of either case. Events are those of processes, of
the network and of the registry, and what they mostly are changes every few thousand. JSON texts in, ids out; processor
time of one thread. The matches of some events are compared with those of the plain evaluator.
"""

from __future__ import annotations

import argparse
import re
import time
from random import Random
from typing import Any

import orjson

import dibs
from dibs import engine
from dibs.language.sql import parse
from dibs.reference import evaluate

BATCH, MIX = 1_000, 3_000  # events
LETTERS = "abcdefghijklmnopqrstuvwxyz"
KINDS = {  # of events: the attributes that rules ask for
    "process": ("Image", "CommandLine", "ParentImage", "ParentCommandLine", "OriginalFileName", "CurrentDirectory"),
    "network": ("Image", "DestinationHostname", "SourceHostname", "Initiated"),
    "registry": ("Image", "TargetObject", "Details"),
}
PATHS = {"Image", "ParentImage", "OriginalFileName"}  # rules ask how they end
MORE = {  # attributes that no rule asks for
    "process": ("Company", "Description", "Hashes", "LogonGuid", "LogonId", "ProcessGuid", "ProcessId", "User"),
    "network": ("DestinationIp", "DestinationPort", "Protocol", "SourceIp", "SourcePort", "ProcessGuid", "ProcessId"),
    "registry": ("EventType", "ProcessGuid", "ProcessId", "UtcTime"),
}


class Words:
    """Names of programs, options, hosts and keys."""

    def __init__(self) -> None:
        draw = Random("words")

        def word(least: int, most: int) -> str:
            return "".join(draw.choice(LETTERS) for _ in range(draw.randint(least, most)))

        self.programs = [word(4, 10).title() for _ in range(2_000)]
        self.folders = [word(3, 9).title() for _ in range(300)]
        self.words = [word(3, 10) for _ in range(6_000)]

    def path(self, draw: Random) -> str:
        folders = "\\".join(draw.choice(self.folders) for _ in range(draw.randint(1, 3)))
        return f"C:\\{folders}\\{self.program(draw)}.exe"

    def program(self, draw: Random) -> str:
        """Some are everywhere."""
        return self.programs[int(len(self.programs) * draw.random() ** 3)]

    def text(self, name: str, draw: Random) -> str:
        """A value of an attribute."""
        if name in PATHS or name == "CurrentDirectory":
            return self.path(draw)
        if name in ("CommandLine", "ParentCommandLine"):
            options = (f"{draw.choice('-/')}{self.word(draw)} {self.word(draw)}" for _ in range(draw.randint(1, 6)))
            return f'"{self.path(draw)}" {" ".join(options)}'
        if name == "TargetObject":
            return "HKLM\\Software\\" + "\\".join(self.word(draw) for _ in range(draw.randint(2, 5)))
        if name.endswith("Hostname"):
            return f"{self.word(draw)}.{self.word(draw)}.com"
        return f"{{{draw.getrandbits(64):x}-{self.word(draw)}}}"

    def word(self, draw: Random) -> str:
        return self.words[int(len(self.words) * draw.random() ** 2)]


WORDS = Words()


def sought(name: str, draw: Random) -> str:
    """What a test of an attribute looks for, with the wildcards round it as LIKE writes them."""
    if name in PATHS:
        return f"%\\{WORDS.program(draw)}.exe"
    text = f"{draw.choice(' -/')}{WORDS.word(draw)} {WORDS.word(draw)[:3]}"
    if name == "TargetObject" or name == "CurrentDirectory":
        text = f"\\{WORDS.word(draw)}\\{WORDS.word(draw)[:2]}"
    if name.endswith("Hostname"):
        return f"%{WORDS.word(draw)}.com"
    return f"{text}%" if draw.random() < 0.1 else f"%{text}%"


def test(form: str, name: str, wildcards: str) -> str:
    operator, pattern = form.upper(), wildcards.replace("\\", "\\\\")
    if form == "regex":
        begin, end = "^" * (wildcards[0] != "%"), "$" * (wildcards[-1] != "%")
        operator, pattern = "RLIKE", f"(?i){begin}{re.escape(wildcards.strip('%'))}{end}"
    quoted = pattern.replace("\\", "\\\\")
    return f"{name} {operator} '{quoted}'"


def rule(form: str, tests: int, draw: Random) -> str:
    kind = draw.choice(list(KINDS))
    names = draw.sample(KINDS[kind], 2)
    sides = [" OR ".join(test(form, name, sought(name, draw)) for _ in range(tests)) for name in names]
    text = " AND ".join(f"({side})" for side in sides)
    if draw.random() < 0.3:
        name = draw.choice(KINDS[kind])
        text += f" AND NOT ({test(form, name, sought(name, draw))})"
    return f"kind = '{kind}' AND {text}" if draw.random() < 0.5 else text


def event(number: int) -> dict[str, Any]:
    draw = Random(number)
    usual = list(KINDS)[number // MIX % len(KINDS)]
    kind = usual if draw.random() < 0.8 else draw.choice(list(KINDS))
    fields: dict[str, Any] = {"kind": kind, "Computer": "host.example.com", "EventID": list(KINDS).index(kind)}
    for name in (*KINDS[kind], *MORE[kind]):
        fields[name] = WORDS.text(name, draw)
    return fields


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rules", type=int, default=3_600)
    parser.add_argument("--tests", type=int, default=40, help="on each side")
    parser.add_argument("--form", choices=["regex", "ilike", "like"], default="regex")
    parser.add_argument("--events", type=int, default=30_000)
    options = parser.parse_args()
    engine.load()
    draw = Random("rules")
    rules = [rule(options.form, options.tests, draw) for _ in range(options.rules)]
    events = [event(i) for i in range(options.events)]
    texts = [orjson.dumps(e) for e in events]
    batches = [b"\n".join(texts[i : i + BATCH]) for i in range(0, len(texts), BATCH)]
    matcher = dibs.Matcher(threads=1)
    start = time.process_time()
    matcher.add_many(list(enumerate(rules)))
    answers = [ids for batch in batches for ids in matcher.match_batch(batch)]
    print(f"{len(rules):,} rules, {len(texts):,} events of {sum(map(len, texts)) / len(texts):.0f} bytes, "
          f"{sum(map(len, answers)) / len(answers):.2f} matches; added, and all events seen, after "
          f"{time.process_time() - start:.1f} s", flush=True)  # fmt: skip
    for number in range(0, len(events), len(events) // 3):
        expected = [i for i, text in enumerate(rules) if evaluate(parse(text), events[number]) is True]
        assert answers[number] == expected == matcher.match(texts[number]), f"event {number} has other matches"
    for name, run in (
        ("batches of 1,000 in order", lambda: [matcher.match_batch(batch).count for batch in batches]),
        ("single events, match(bytes)", lambda: [matcher.match(text) for text in texts]),
    ):
        run()
        matcher._layers.upkeep.rest()
        best = float("inf")
        for _ in range(3):
            start = time.thread_time()
            run()
            best = min(best, time.thread_time() - start)
        print(f"{name}: {len(texts) / best:,.0f} a second, {best / len(texts) * 1e6:.1f} µs an event", flush=True)


if __name__ == "__main__":
    main()
