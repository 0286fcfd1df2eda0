"""Rules in three languages, as Dibs, event-ruler and quamina say them, and events as JSON text of 20 fields.

Rules of many users are about many fields: each has three predicates on three of the 20. Some hold for an event, by
which they were made; the others hardly for any.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

import orjson

import patterns
from sections.events_json import NAMES, make_value

RULER, QUAMINA = DIALECTS = ("ruler", "quamina")
EVENTS = 1_000
MIXED = "prefixes and wildcards"
Event = dict[str, Any]


class Rules(NamedTuple):
    expressions: list[str]
    patterns: dict[str, list[dict[str, Any]]]  # by dialect, where it has words for them
    events: list[bytes]


def few(share: float) -> Rules:
    return _equalities(max(int(100 * share), 10), 1)


def many(share: float) -> Rules:
    return _equalities(max(int(100_000 * share), 10), 2)


def _equalities(rules: int, each: int) -> Rules:
    """`each` rules hold for an event."""
    wanted, events = _choose(rules, each)
    plain = [{name: [value] for name, value in rule.items()} for rule in wanted]
    texts = [" AND ".join(f"{name} = {value!r}" for name, value in rule.items()) for rule in wanted]
    return Rules(texts, {RULER: plain, QUAMINA: plain}, events)


def ranges(share: float) -> Rules:
    """Numbers may be a little larger; quamina has no ranges."""
    wanted, events = _choose(max(int(2_000 * share), 10), 1)
    texts, ruler = [], []
    for rule in wanted:
        tests, pattern = [], {}
        for name, value in rule.items():
            if isinstance(value, str):
                tests.append(f"{name} = {value!r}")
                pattern[name] = [value]
            else:
                high = round(value * 1.01, 2)
                tests.append(f"{name} BETWEEN {value!r} AND {high!r}")
                pattern[name] = [{"numeric": [">=", value, "<=", high]}]
        texts.append(" AND ".join(tests))
        ruler.append(pattern)
    return Rules(texts, {RULER: ruler}, events)


def _choose(rules: int, each: int) -> tuple[list[Event], list[bytes]]:
    """What rules are about, and events: where there are fewer rules than events, several events share theirs."""
    draw = Random(1)
    kinds = min(EVENTS, rules // each)
    samples = [_draw_event(draw) for _ in range(kinds)]
    made = [samples[k // each] if k < kinds * each else _draw_event(draw) for k in range(rules)]
    wanted = [{name: own[name] for name in sorted(draw.sample(NAMES, 3))} for own in made]
    events = []
    for number in range(EVENTS):
        kind = number % kinds
        shared = {name: value for rule in wanted[kind * each : (kind + 1) * each] for name, value in rule.items()}
        events.append(orjson.dumps(_draw_event(draw) | shared))
    return wanted, events


def _draw_event(draw: Random) -> Event:
    return {name: make_value(i, draw) for i, name in enumerate(NAMES)}


def wildcards(share: float) -> Rules:
    """Half of them prefixes; half with a prefix and a suffix, as quamina takes one star a pattern."""
    draw, words = Random(1), patterns.words_of(MIXED)
    texts, ruler, shells = [], [], []
    for k in range(max(int(10_000 * share), 2)):
        a, b = draw.choice(words), draw.choice(words)
        text = f"{a} {b[:1]}*" if k % 2 else f"{a}*{b[-1:]}"
        texts.append(f"t LIKE '{text.replace('*', '%')}'")
        ruler.append({"t": [{"prefix": text[:-1]} if k % 2 else {"wildcard": text}]})
        shells.append({"t": [{"shellstyle": text}]})
    events = [orjson.dumps(_draw_event(draw) | {"t": text}) for text in patterns.strings(MIXED, 0, EVENTS)]
    return Rules(texts, {RULER: ruler, QUAMINA: shells}, events)


WORKLOADS: dict[str, Callable[[float], Rules]] = {
    "100 rules": few,
    "2,000 rules with ranges": ranges,
    "100,000 equality rules": many,
    "10,000 prefixes and wildcards": wildcards,
}
