"""Tuning: the sizes, shares and costs by which Dibs takes one way or another to the same answer.

Each stands in the module that goes by it, with its unit and what it decides; above it, what was measured, where it was:

    FEW_RECORDS = tuned("few_records", 50_000, 0, "clauses", "whose search for few events keeps the interpreter")
    ... if clauses.count <= FEW_RECORDS.value:

A path that begins only above some size (a background plan, a full room, a merge) is never met by a test of a few
subscriptions. So a number is read when it is needed, never copied, and this registry knows all of them: tests set them
to their smallest values, or to random ones, and every way must give the same answer.

    DIBS_TUNING=smallest        for a whole process, and for those it starts (Spark's workers among them)
    DIBS_TUNING=random:7        drawn by that seed
    with using(smallest()): ... for a block; numbers of modules that are imported inside have theirs, too
    python -m dibs.tuning       prints all

Not here: limits that refuse input (they belong to the language) and sizes that only prefetch or show. Editing a number
makes no compiled kernel stale (jit/stamps.py): kernels are handed what they need.
"""

from __future__ import annotations

import importlib
import math
import os
import random
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Generic, TypeVar

VARIABLE = "DIBS_TUNING"
T = TypeVar("T", int, float)


class Number(Generic[T]):
    """smallest: the value at which the path behind it is taken as often as it can be. (It may be above the default,
    where a path is taken below the number.)"""

    __slots__ = ("about", "default", "name", "place", "smallest", "unit", "value")

    def __init__(self, name: str, default: T, smallest: T, unit: str, about: str) -> None:
        self.name, self.unit, self.about = name, unit, about
        self.default: T = default
        self.smallest: T = smallest
        self.value: T = default


class Values(dict[str, Any]):
    """Values of numbers, and by which rule those have theirs that nobody has declared yet."""

    rule: Callable[[Number[Any]], Any] | None = None

    def __or__(self, other: Mapping[str, Any]) -> Values:  # type: ignore[override]
        both = Values({**self, **other})
        both.rule = self.rule
        return both


numbers: dict[str, Number[Any]] = {}  # those of the modules that are imported


def tuned(name: str, default: T, smallest: T, unit: str, about: str) -> Number[T]:
    """Declare a number: once, at the top of the module that goes by it."""
    assert name not in numbers, f"two numbers are called {name}"
    number = numbers[name] = Number(name, default, smallest, unit, about)
    number.value = _value_now(number)
    return number


def smallest() -> Values:
    """Every number at its smallest."""
    return _by_rule(lambda number: number.smallest)


def at_random(seed: int | str) -> Values:
    """Each number somewhere between its smallest and its default value, small ones as likely as large ones."""
    return _by_rule(lambda number: _between(number, random.Random(f"dibs {seed} {number.name}")))


def _by_rule(rule: Callable[[Number[Any]], Any]) -> Values:
    values = Values({name: rule(number) for name, number in numbers.items()})
    values.rule = rule
    return values


def _between(number: Number[Any], draw: random.Random) -> Any:
    low, high = sorted((number.smallest, number.default))
    value = math.exp(draw.uniform(math.log(max(low, 1e-6)), math.log(max(high, 1e-6))))
    return type(number.default)(min(max(round(value) if isinstance(number.default, int) else value, low), high))


def put(values: Mapping[str, Any]) -> None:
    """These values from now on, for the whole process; those of numbers that are not declared yet when they are."""
    for name, value in values.items():
        _put[0][name] = value
        if name in numbers:
            numbers[name].value = value


@contextmanager
def using(values: Mapping[str, Any]) -> Iterator[None]:
    """These values inside the block. For tests: all threads of the process see them."""
    before = {name: number.value for name, number in numbers.items()}
    own = values if isinstance(values, Values) else Values(values)
    _put.append(own)
    for name in numbers.keys() & own.keys():
        numbers[name].value = own[name]
    try:
        yield
    finally:
        _put.pop()
        for number in numbers.values():
            if number.name not in before:
                number.value = _value_now(number)
            elif number.name in own:
                number.value = before[number.name]
    if unknown := own.keys() - numbers.keys():
        raise KeyError(f"no module that was imported has a number called {', '.join(sorted(unknown))}")


def _value_now(number: Number[T]) -> T:
    value = number.default
    for values in _put:
        if number.name in values:
            value = values[number.name]
        elif values.rule is not None:
            value = values.rule(number)
    return value


def import_all() -> None:
    """Import all modules that declare numbers."""
    package = Path(__file__).parent
    for path in sorted(package.rglob("*.py")):
        if re.search(r"^\w+ = tuned\(", path.read_text(encoding="utf-8"), re.MULTILINE):
            parts = path.relative_to(package).with_suffix("").parts
            importlib.import_module(".".join(("dibs", *(part for part in parts if part != "__init__"))))


def _of_environment(words: str) -> Values:
    kind, _, seed = words.partition(":")
    if kind == "smallest" and not seed:
        return smallest()
    if kind == "random" and seed:
        return at_random(seed)
    raise ValueError(f"{VARIABLE} must be smallest, or random: and a seed, not {words!r}")


_put = [_of_environment(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else Values()]  # what holds, the last first


def table() -> str:
    """All of those that are imported."""
    rows = ["| number | default | smallest | unit | what it decides |", "| --- | ---: | ---: | --- | --- |"]
    rows += [f"| `{n.name}` | {n.default:,} | {n.smallest:,} | {n.unit} | {n.about} |" for n in numbers.values()]
    return "\n".join(rows)


if __name__ == "__main__":
    from dibs import tuning  # the one that all others import

    tuning.import_all()
    print(tuning.table())
