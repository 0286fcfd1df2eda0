"""Events that nobody sends by mistake: sizes at and around every capacity, all of them in one event.

A case is some groups of subscriptions, each of which becomes a segment of its own where the thresholds allow it, and
events that reach as many of their predicates as can be: thousands of values of one attribute, thousands of patterns in
one string, the same strings under `=`, prefixes, suffixes and patterns at once, arrays in arrays, deep paths, long and
repeated keys, texts that end at a boundary. All of it is drawn from a `random.Random`.

What is right is known without an oracle: every subscription is over one attribute, and `expected` evaluates it in plain
Python over the values that it has.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, NamedTuple

# Around: single_values, single_text, the patterns of a single event, windows of 16, 32, 64 and 256 items.
COUNTS = (1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 255, 256, 257, 511, 513, 990, 999, 1000, 1001, 2000, 4095, 4097)
SIZES = (0, 1, 7, 8, 9, 31, 32, 33, 63, 64, 65, 4063, 4064, 4065, 65_503, 65_504, 65_505)  # bytes of a string
DEPTHS = (1, 2, 3, 30, 61, 62, 63, 64, 65)  # of arrays and objects: kernels read 64 levels


class Rule(NamedTuple):
    """A subscription over the values of one attribute."""

    id: str
    text: str
    attribute: str
    holds: Callable[[Any], bool]  # of one value


class Case(NamedTuple):
    groups: list[list[Rule]]  # that are added one after the other
    events: list[dict[str, Any]]

    @property
    def rules(self) -> list[Rule]:
        return [rule for group in self.groups for rule in group]

    def expected(self, event: dict[str, Any]) -> list[str]:
        values: dict[str, list[Any]] = {}
        for name, value in flat(event, ""):
            values.setdefault(name, []).append(value)
        return sorted(rule.id for rule in self.rules if any(map(rule.holds, values.get(rule.attribute, ()))))


def hostile_case(random: Random, most: int = max(COUNTS)) -> Case:
    """most: values, patterns and subscriptions of a group are about as many at most."""
    counts = [count for count in COUNTS if count <= most]
    values = [f"v{i:05d}" for i in range(random.choice(counts))]
    words = [f"w{i:05d}" for i in range(random.choice(counts))]
    numbers = [random.choice([i, i / 4, -i, 2**53 + i]) for i in range(random.choice(counts))]
    groups = []
    for g in range(random.choice([1, 1, 2, 3, 8])):
        rules: list[Rule] = []
        for kind in random.sample(KINDS, random.choice([1, 2, 3, len(KINDS)])):
            rules += kind(random, values, words, numbers)
        random.shuffle(rules)
        rules = rules[: random.choice(counts)]
        groups.append([rule._replace(id=f"{g}-{i}") for i, rule in enumerate(rules)])
    return Case(groups, [_event(random, values, words, numbers) for _ in range(random.choice([1, 2, 3]))])


# --- subscriptions -------------------------------------------------------------------------------------------------


def _equal(random: Random, values: list[str], words: list[str], numbers: list[Any]) -> list[Rule]:
    return [Rule("", f"a = '{v}'", "a", lambda x, v=v: x == v) for v in values]


def _suffixes(random: Random, values: list[str], words: list[str], numbers: list[Any]) -> list[Rule]:
    def either(v: str) -> Rule:
        return Rule("", f"a = '{v}' OR ENDSWITH(a, '{v[3:]}')", "a", lambda x: type(x) is str and x.endswith(v[3:]))

    return [either(v) for v in values]


def _prefixes(random: Random, values: list[str], words: list[str], numbers: list[Any]) -> list[Rule]:
    def either(v: str) -> Rule:
        n = random.randint(0, len(v))
        return Rule("", f"STARTSWITH(a, '{v[:n]}')", "a", lambda x: type(x) is str and x.startswith(v[:n]))

    return [either(v) for v in values]


def _contained(random: Random, values: list[str], words: list[str], numbers: list[Any]) -> list[Rule]:
    return [Rule("", f"CONTAINS(t, '{w}')", "t", lambda x, w=w: type(x) is str and w in x) for w in words]


def _excluded(random: Random, values: list[str], words: list[str], numbers: list[Any]) -> list[Rule]:
    return [Rule("", f"t NOT LIKE '%{w}%'", "t", lambda x, w=w: type(x) is str and w not in x) for w in words]


def _both_sides(random: Random, values: list[str], words: list[str], numbers: list[Any]) -> list[Rule]:
    def pattern(w: str) -> Rule:
        return Rule("", f"t LIKE '%{w[0]}_{w[2:]}%'", "t", lambda x: type(x) is str and w in x)

    return [pattern(w) for w in words]


def _compared(random: Random, values: list[str], words: list[str], numbers: list[Any]) -> list[Rule]:
    def compare(n: Any) -> Rule:
        return Rule("", f"n >= {n}", "n", lambda x: type(x) in (int, float) and x >= n)

    return [compare(n) for n in numbers]


def _listed(random: Random, values: list[str], words: list[str], numbers: list[Any]) -> list[Rule]:
    def member(n: Any) -> Rule:
        some = [n, *random.sample(numbers, min(len(numbers), random.choice([0, 3, 40])))]
        return Rule("", f"n IN ({', '.join(map(str, some))})", "n", lambda x: type(x) in (int, float) and x in some)

    return [member(n) for n in numbers]


def _deep(random: Random, values: list[str], words: list[str], numbers: list[Any]) -> list[Rule]:
    names = [".".join(["p"] * depth) for depth in (1, 2, 61, 62, 63, 64)]
    return [Rule("", f"{name} = 1", name, lambda x: x is not True and x == 1) for name in names]


def _present(random: Random, values: list[str], words: list[str], numbers: list[Any]) -> list[Rule]:
    """All of them match: room for rows is short."""
    name = random.choice(["a", "t", "n"])
    return [Rule("", f"{name} IS NOT NULL", name, lambda x: True) for _ in range(len(values))]


KINDS = [_equal, _suffixes, _prefixes, _contained, _excluded, _both_sides, _compared, _listed, _deep, _present]


# --- events --------------------------------------------------------------------------------------------------------


def _event(random: Random, values: list[str], words: list[str], numbers: list[Any]) -> dict[str, Any]:
    event: dict[str, Any] = {}
    parts: dict[str, Callable[[], Any]] = {
        "a": lambda: _array(random, values),
        "t": lambda: random.choice([" ".join(words), "".join(words), words, [" ".join(words)] * 3, words[:1]]),
        "n": lambda: _array(random, numbers),
        "p": lambda: _nested(random),
        "long": lambda: "é" * random.choice(SIZES) if random.random() < 0.3 else "x" * random.choice(SIZES),
        "k" * random.choice([30, 31, 32, 33, 64]): lambda: 1,
        'q"\\u00e9': lambda: random.choice([None, True, [], {}, [[]], '\n"\\\u00e9\U0001f600' * 20]),
    }
    for name in random.sample(list(parts), random.randint(1, len(parts))):
        event[name] = parts[name]()
    return event


def _array(random: Random, items: list[Any]) -> Any:
    shape = random.choice(["all", "all", "reversed", "shuffled", "twice", "one", "inside", "objects", "mixed"])
    if shape == "one":
        return items[-1]
    if shape == "reversed":
        return items[::-1]
    if shape == "shuffled":
        return random.sample(items, len(items))
    if shape == "twice":
        return items + items
    if shape == "inside":
        found: Any = list(items)
        for _ in range(random.choice(DEPTHS)):
            found = [found, items[0]]
        return found
    if shape == "objects":
        return [{"b": item} for item in items[:50]] + items
    if shape == "mixed":
        return [x for item in items for x in (item, None, True, "", 0.5)]
    return list(items)


def _nested(random: Random) -> Any:
    found: Any = 1
    for _ in range(random.choice(DEPTHS)):
        found = {"p": found} if random.random() < 0.9 else [found]
    return found


def texts_of(random: Random, event: dict[str, Any]) -> Iterator[bytes]:
    """The event as JSON text, as orjson and as others write it, and with white space up to a boundary."""
    yield json.dumps(event, ensure_ascii=False, separators=(",", ":")).encode()
    plain = json.dumps(event).encode()
    yield plain
    for boundary in (4_096, 65_536):
        short = boundary - len(plain) + random.choice([-33, -32, -31, -1, 0, 1, 31, 32, 33])
        if short > 0:
            yield b" " * short + plain


def flat(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """The values of an event by dotted name; nulls are none."""
    if isinstance(value, dict):
        for key, inside in value.items():
            yield from flat(inside, f"{name}.{key}" if name else key)
    elif isinstance(value, list):
        for inside in value:
            yield from flat(inside, name)
    elif value is not None:
        yield name, value
